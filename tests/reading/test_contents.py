# SPDX-License-Identifier: Apache-2.0
"""Files that are not what their names say: one message with what they are and the remedy, the same in `curate init`."""

import base64
import bz2
import gzip
import io
import lzma
import pickle
import plistlib
import sqlite3
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import InputError
from curation.reading import probe, read_documents
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.recipes.survey import survey
from tests.needs import needs
from tests.runs import recipe_of

LINE = b'{"id": "7", "text": "a text of some words"}\n'
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize 1234567\n" % (b"4d" * 32)
ANNEX = b"../../.git/annex/objects/Xk/4G/MD5E-s12--ab.jsonl/MD5E-s12--ab.jsonl"
NOT_FOUND = b"<!DOCTYPE html>\n<html><head><title>Page not found</title></head><body>404</body></html>"
DRIVE = b"<!DOCTYPE html><html><head><title>Google Drive - Virus scan warning</title></head></html>"
S3 = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>no</Message></Error>'
OFFICE = "[Content_Types].xml"


def zip_of(name: str, content: bytes = b"x") -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        file.writestr(name, content)
    return sink.getvalue()


def tar_of(content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as file:
        entry = tarfile.TarInfo("d.jsonl")
        entry.size = len(content)
        file.addfile(entry, io.BytesIO(content))
    return sink.getvalue()


def table_of(kind: str) -> bytes:
    table, sink = pa.table({"text": ["a text of some words"]}), io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
    return sink.getvalue()


def sqlite_of() -> bytes:
    opened = sqlite3.connect(":memory:")
    opened.execute("create table t (text)")
    return opened.serialize()


def npy_of() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(99))
    return sink.getvalue()


def zstd_of(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


def window_of(log: int) -> bytes:
    """A zstd frame of one raw block, for which a decompressor has to hold 2^log bytes (RFC 8878)."""
    return b"\x28\xb5\x2f\xfd\0" + bytes([(log - 10) << 3]) + (len(LINE) << 3 | 1).to_bytes(3, "little") + LINE


PARQUET, ARROW = table_of("parquet"), table_of("arrow")
MEGATRON = np.arange(2000, dtype=np.int32).tobytes()
FETCH = "check the address and the log-in"
# A file -> its content, what the message says it is, and the remedy.
FILES: dict[str, tuple[bytes, str, str]] = {
    "a.jsonl": (LFS, "pointer of Git LFS", "git lfs pull"),
    "a.txt": (LFS, "pointer of Git LFS", "git lfs pull"),
    "a.parquet": (LFS, "pointer of Git LFS", "git lfs pull"),
    "a.csv.gz": (LFS, "pointer of Git LFS", "git lfs pull"),
    "annex.jsonl": (ANNEX, "pointer of git-annex", "git annex get"),
    "annex.warc.gz": (b"/annex/objects/SHA256E-s1--ab.warc.gz\n", "pointer of git-annex", "git annex get"),
    "link.jsonl": (b"../data/part-0.jsonl", "path of another file", "Read the file that it names"),
    "page.jsonl": (NOT_FOUND, "web page (HTML)", FETCH),
    "page.csv": (b"\n  <html lang=en>\n", "web page (HTML)", FETCH),
    "page.parquet": (NOT_FOUND, "web page (HTML)", FETCH),
    "page.wet": (NOT_FOUND, "web page (HTML)", FETCH),
    "page.jsonl.gz": (NOT_FOUND, "is not compressed", FETCH),
    "page2.jsonl.gz": (gzip.compress(NOT_FOUND), "gzip of a web page", FETCH),
    "drive.jsonl.zst": (DRIVE, "Google Drive", "gdown"),
    "s3.jsonl": (S3, "error of object storage", FETCH),
    "s3.arrow": (S3, "error of object storage", FETCH),
    "feed.csv": (b'<?xml version="1.0"?><rss></rss>', "XML document", "Convert its texts"),
    "error.jsonl": (b'{"message": "Not Found", "status": "404"}', "error of a server in JSON", FETCH),
    "error.json.gz": (gzip.compress(b'{"error": "Invalid credentials"}'), "error of a server in JSON", FETCH),
    "error.parquet": (b"404: Not Found", "'404: Not Found'", FETCH),
    "error.arrow": (b'{"error": "gone"}', "it begins with", FETCH),
    "answer.jsonl": (b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n" + LINE, "answer of a server with its headers", "without"),
    "plain.jsonl.gz": (LINE, "is not compressed", "Rename it to plain.jsonl"),
    "plain.csv.zst": (b"id,text\n1,words\n", "is not compressed", "Rename it to plain.csv"),
    "plain.txt.xz": (b"words", "is not compressed", "Rename it to plain.txt"),
    "plain.warc.bz2": (b"WARC/1.0\r\n", "is not compressed", "Rename it to plain.warc"),
    "binary.jsonl.gz": (bytes(range(256)) * 9, "is no gzip", "bytes 00 01 02"),
    "other.jsonl.gz": (zstd_of(LINE), "is zstd, not gzip", "Rename it to other.jsonl.zst"),
    "other.jsonl.zst": (bz2.compress(LINE), "is bzip2, not zstd", "Rename it to other.jsonl.bz2"),
    "other.csv.bz2": (lzma.compress(LINE), "is xz, not bzip2", "Rename it to other.csv.xz"),
    "twice.jsonl.gz": (gzip.compress(gzip.compress(LINE)), "compressed twice: gzip in gzip", "gzip -dc IN"),
    "twice.txt.zst": (zstd_of(bz2.compress(LINE)), "compressed twice: bzip2 in zstd", "zstd -dc IN"),
    "packed.jsonl": (gzip.compress(LINE), "its content is gzip", "Rename it to packed.jsonl.gz"),
    "packed.txt": (zstd_of(LINE), "its content is zstd", "Rename it to packed.txt.zst"),
    "packed.parquet": (gzip.compress(PARQUET), "its content is gzip", "gzip -dc IN > OUT"),
    "long.jsonl.zst": (window_of(31), "a window of 2 GB", "zstd -dc --long=31 long.jsonl.zst | zstd --long=27 -o OUT"),
    "long.txt.zst": (window_of(28), "a window of 256 MB", "--long=28 long.txt.zst"),
    "seekable.jsonl.zst": (b"\x50\x2a\x4d\x18\1\0\0\0x" + window_of(30), "a window of 1 GB", "--long=30"),
    "later.jsonl.zst": (window_of(20) + window_of(29), "a window above 128 MB", "--long=31 IN | zstd --long=27"),
    "a.zip.jsonl": (zip_of("d.jsonl", LINE), "a ZIP archive", "Unpack it"),
    "tar.jsonl.gz": (gzip.compress(tar_of(LINE)), "gzip of a tar archive", "tar -xf"),
    "tar.jsonl": (tar_of(LINE), "a tar archive", "tar -xf"),
    "7z.jsonl": (b"7z\xbc\xaf\x27\x1c\0\4", "a 7z archive", "Unpack it"),
    "rar.csv": (b"Rar!\x1a\7\1\0", "a RAR archive", "Unpack it"),
    "lz4.jsonl": (b"\x04\x22\x4d\x18\x64\x40", "compressed by lz4", "gzip or zstd"),
    "parquet.jsonl": (PARQUET, "its content is Parquet", "Rename it to parquet.parquet, or set format: parquet"),
    "parquet.jsonl.gz": (gzip.compress(PARQUET), "gzip of Parquet", "gzip -dc IN > OUT.parquet"),
    "arrow.parquet": (ARROW, "its content is Arrow IPC", "Rename it to arrow.arrow, or set format: arrow"),
    "parquet.arrow": (PARQUET, "its content is Parquet", "set format: parquet"),
    "warc.jsonl": (b"WARC/1.0\r\n", "a WARC archive", "set format: warc"),
    "feather.feather": (b"FEA1\0\0\0\0", "Feather file of version 1", "read_feather"),
    "orc.parquet": (b"ORC\x0a\3", "an ORC file", "Convert it to Parquet"),
    "avro.jsonl": (b"Obj\1\4", "an Avro file", "Convert it to Parquet"),
    "db.csv": (sqlite_of(), "SQLite", "Export the table"),
    "sheet.csv": (zip_of(OFFICE), "Office document", "Save it as CSV"),
    "old.csv": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office document", "Convert it to text"),
    "book.txt": (zip_of("mimetype", b"application/epub+zip"), "EPUB", "Convert it to text"),
    "scan.txt": (b"%PDF-1.4\n" + bytes(range(256)), "a PDF document", "Convert it to text"),
    "letter.txt": (b"{\\rtf1\\ansi words}", "an RTF document", "Convert it to text"),
    "photo.txt": (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image", "Leave it out"),
    "data.jsonl": (pickle.dumps({"text": ["a"]}), "a pickle", "can run code"),
    "vectors.jsonl": (npy_of(), "array of NumPy", "texts that it was made from"),
    "tokens.jsonl": (b"MMIDIDX\0\0" + bytes(9), "index of Megatron", "texts that it was made from"),
    "bin.jsonl": (MEGATRON, "looks like binary data", "Convert it"),
    "bin.txt": (MEGATRON, "looks like binary data", "Convert it"),
    "nul.jsonl": (bytes(9000), "only NUL bytes", "Fetch the whole file"),
    "nul.txt": (bytes(10), "only NUL bytes", "Fetch the whole file"),
    "empty.parquet": (b"", "is empty", "Fetch it"),
    "key.jsonl": (b"-----BEGIN PRIVATE KEY-----\nMIIB\n", "PEM", "Leave it out"),
    "secret.csv": (b"-----BEGIN PGP MESSAGE-----\n", "encrypted", "Decrypt it"),
    "base64.jsonl": (base64.b64encode(gzip.compress(LINE)), "gzip in base64", "base64 -d"),
    "wide.jsonl": (LINE.decode().encode("utf-16"), "its content is UTF-16", "iconv -f UTF-16"),
    "narrow.jsonl": (LINE.decode().encode("utf-16-le"), "UTF-16LE without a byte order mark", "iconv -f UTF-16LE"),
    "narrow.wet": ("WARC/1.0\r\n".encode("utf-16-be"), "UTF-16BE without a byte order mark", "iconv -f UTF-16BE"),
    "apple.jsonl": (b"\0\5\x16\7\0\2\0\0Mac OS X", "data of macOS about another file", "Delete it"),
    "store.jsonl": (b"\0\0\0\1Bud1\0\0", ".DS_Store", "Delete it"),
    "info.csv": (plistlib.dumps({"a": 1}, fmt=plistlib.FMT_BINARY), "property list", "Leave it out"),
}  # fmt: skip
# What these signs must not take: texts that begin as a signature, and files that a format reads.
READ: dict[str, bytes] = {
    "a.txt": b"PARENT and child", "b.txt": b"ORCHESTRA", "c.txt": b"PAR1 is the magic of Parquet", "d.txt": NOT_FOUND,
    "e.txt": b"ID3 tags are read", "f.txt": b"BZh91 is no bzip2", "g.txt": b"MZ and PK", "h.txt": b"%PDF- is a magic",
    "i.txt": b"-----BEGIN CERTIFICATE-----\nMIIB", "j.md": b"<?xml version='1.0'?> begins XML", "k.txt": LINE,
    "l.txt": b"\x0304red\x03 words of a chat\x0f", "m.txt": "Größe".encode("utf-16"), "n.txt": b"GIF89a is a format",
    "o.txt": "Größe und Länge".encode("latin-1"), "p.txt": b"FEA1 ARROW1 Obj LZIP ustar", "q.html": NOT_FOUND,
    "r.jsonl": b"< a bad line\n" + LINE, "s.jsonl": bytes(9) + b"\n" + LINE, "t.jsonl.zst": window_of(27),
    "u.jsonl.gz": gzip.compress(LINE) + gzip.compress(LINE), "v.csv": b"text,b\n../x,./y\n", "w.txt": b"../data/a.txt",
    "x.jsonl": b'{"error": "a", "text": "b"}\n', "y.txt": b"form\x0cfeeds \x1b[1m and \x08 backspaces",
    "z.txt": "lost \ufffd\ufffd \x03words\x0f".encode(),
    "z.jsonl.zst": b"\x50\x2a\x4d\x18\1\0\0\0x" + window_of(20),
}  # fmt: skip


def messages_of(path: Path) -> Iterator[str]:
    """The message of a run, and the one of `curate init`."""
    [file] = find_files([Input(path=str(path))])
    with pytest.raises(InputError) as of_run:
        probe(file)
    yield str(of_run.value)
    with pytest.raises(InputError) as of_init:
        survey([Input(path=str(path))])
    yield str(of_init.value)


def test_what_a_file_is_and_what_helps(tmp_path: Path):
    for name, (content, what, remedy) in FILES.items():
        path = tmp_path / name
        path.write_bytes(content)
        of_run, of_init = messages_of(path)
        assert what in of_run and remedy in of_run and str(path) in of_run, of_run
        assert "jq" not in of_run and "Download it again" not in of_run, of_run
        assert of_init == of_run


def test_what_looks_like_another_file_is_read(tmp_path: Path):
    for name, content in READ.items():
        path = tmp_path / name
        path.write_bytes(content)
        [file] = find_files([Input(path=str(path))])
        if file.format == "html":
            needs("resiliparse")
        [piece] = plan_slices([probe(file)], 1 << 30)
        assert sum(len(batch.table) for batch in read_documents(piece, 1 << 20)) >= 1, name
        assert survey([Input(path=str(path))]).inputs, name


def test_a_format_reads_the_files_of_a_folder_without_a_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """As of WikiExtractor and Spark; without a format, the message and `curate init` name it."""
    monkeypatch.chdir(tmp_path)
    bare = {"wiki/AA/wiki_00": LINE, "wiki/AB/wiki_01.gz": gzip.compress(LINE), "wiki/part-00000": LINE}
    others = ["README", "readme", "LICENSE", "Licence", "NOTICE", "SHA256SUMS", "md5sum", "a.xyz", "b.part", "_SUCCESS"]
    for name, content in {**bare, **{f"wiki/{name}": b"x" for name in others}}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    found = find_files([Input(path="wiki", format="jsonl")])
    assert {file.path for file in found} == {str(tmp_path / name) for name in bare}
    assert "9 files (9 bytes) in wiki not read" in caplog.text
    with pytest.raises(
        InputError, match=r"holds no input file.* To read files without a suffix, set format: to one of"
    ):
        find_files([Input(path="wiki")])
    assert survey([Input(path="wiki")]).inputs[0].settings == {"path": "wiki", "format": "jsonl", "text_column": "text"}
    Path("wiki/c.jsonl").write_bytes(LINE)  # a name with a format decides for all
    assert [file.path for file in find_files([Input(path="wiki")])] == [str(tmp_path / "wiki/c.jsonl")]
    with pytest.raises(InputError, match=r"does not tell its format; .* part of a download"):
        find_files([Input(path="wiki/b.part")])


SEPARATED = {  # -> the separator that init sets
    "story\n<|endoftext|>\nstory\n<|endoftext|>\n": "<|endoftext|>",
    "story<|endoftext|>\r\nstory<|endoftext|> \r\n": "<|endoftext|>",
    "story\n</s>\nstory\n </s>\nstory": "</s>",
    "a\n<|endoftext|>\nb": "",  # once
    "`<|endoftext|>` ends\na<|endoftext|>\nb<|endoftext|>": "",  # also inside a line: a text about it
    "<s>a</s>\n<s>b</s>\n": "",  # HTML
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_documents_with_marks_between_them_are_split(encoding: str, tmp_path: Path):
    for number, (text, separator) in enumerate(SEPARATED.items()):
        path = tmp_path / f"{number}.txt"
        path.write_bytes(text.encode(encoding))
        [found] = survey([Input(path=str(path))]).inputs
        assert found.settings.get("separator", "") == separator, text
        files = find_files([Input(**found.settings)])
        [piece] = plan_slices([probe(file) for file in files], 1 << 30)
        texts = [value for batch in read_documents(piece, 100) for value in batch.table.column("text").to_pylist()]
        assert (len(texts) > 1) == bool(separator)


HINTS = {  # -> a file, and the end of the warning about its rejected records
    "a.txt": (b"word " * 20 + b"<|endoftext|>\nb<|endoftext|>\n", '; set separator: "<|endoftext|>" of the input'),
    "b.txt": (b"word " * 20, '; set separator: of the input, such as "\\n\\n"'),
    "a.jsonl": (b'{"text": "%b"}\n' % (b"word " * 20), "(50); raise it"),
    "b.jsonl": (b'{"id": [1], "text": "a"}\n', "expected a string or an integer; rejected.jsonl has every error"),
    "c.jsonl": (b'{"text": "a"}\n' * 2 + b'{"text": 1}\n' * 9, "; set text_column: of the input to a field with text"),
}


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_for_what_was_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A name in a message, such as of a column `max_document_bytes`, does not choose it."""
    monkeypatch.chdir(tmp_path)
    content, hint = HINTS[name]
    Path(name).write_bytes(content)
    recipe = recipe_of({"path": name, "max_document_bytes": 50}, stages=[], output={"formats": []})
    result = curation.run(recipe, "out", engine="cpu", workers=1)
    assert any(hint in warning for warning in result.report["warnings"]), result.report["warnings"]
