# SPDX-License-Identifier: Apache-2.0
"""Detects the content of a file from its first bytes, so that an error can name it.

There are two kinds of evidence. A signature is certain: a file with the signature of another format is refused before
it is read. A guess only replaces the error of a format that could not read the file.
"""

from __future__ import annotations

import codecs
import os
import re
from typing import NamedTuple

import orjson

from curation.base.errors import InputError
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.formats.base import PROBED_BYTES, ColumnFormat, Format, start_of
from curation.reading.source_files import COMPRESSIONS, MARKS, UTF8, SourceFile
from curation.reading.streams import MAX_WINDOW, open_raw
from curation.reading.urls import is_remote, shown
from curation.reading.zstd_frames import window_of

LOOK_BYTES = 4096
MIN_NULS = 8  # a file with fewer NUL bytes may be text
MAX_CONTROLS = 0.01  # maximum share of control characters in the bytes of a text
CONTROLS = bytes({*range(32)} - {*b"\t\n\v\f\r\b\x1b"})
SHOWN_CHARACTERS = 60
COMPRESSED = {
    "gzip": rb"\x1f\x8b", "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "xz": rb"\xfd7zXZ\0",
}  # fmt: skip
TOOLS = {"gzip": "gzip -dc", "zstd": "zstd -dc", "bzip2": "bzip2 -dc", "xz": "xz -dc"}
FORMATS = {  # name -> name in messages, and suffix
    "parquet": ("Parquet", ".parquet"), "arrow": ("Arrow IPC", ".arrow"), "warc": ("a WARC archive", ".warc"),
}  # fmt: skip
ALIKE = {"wet": "warc"}  # formats that begin alike
TABLES = {"parquet": "a readable Parquet file", "arrow": "readable Arrow IPC"}  # formats with binary content
FETCH = "A server or a program sent it in place of the data: check the address and the log-in, then fetch the data"
UNPACK = "Unpack it, and name the files in it"
TEXT = "Convert it to text first"
TABLE = "Convert it to Parquet or JSON Lines first"
LEAVE = "Leave it out"
DECRYPT = "Decrypt it first"
DECOMPRESS = "Decompress it, or compress it with gzip or zstd"


class FileContent(NamedTuple):
    """The content of a file.

    what      its name in messages; for a compression or format of this program, only its name here
    remedy    a sentence; "" if the remedy depends on the name of the file
    is_text   whether a plain text may begin in the same way
    """

    what: str
    remedy: str = ""
    is_text: bool = False


# First bytes -> content. They come from the specifications of the formats; most are also in the `magic` of file(1).
SIGNATURES: dict[bytes, FileContent] = {
    **{pattern: FileContent(name) for name, pattern in COMPRESSED.items()},
    rb"PAR1(?![ -~])": FileContent("parquet"),
    rb"ARROW1\0\0": FileContent("arrow"),
    rb"PARE(?![ -~])": FileContent("an encrypted Parquet file", DECRYPT),
    rb"FEA1(?![ -~])": FileContent("a Feather file of version 1", "Convert: pandas.read_feather(IN).to_parquet(OUT)"),
    rb"ORC(?![ -~])": FileContent("an ORC file", TABLE),
    rb"Obj\x01": FileContent("an Avro file", TABLE),
    rb"SQLite format 3\0": FileContent("an SQLite database", "Export the table with the texts to CSV or Parquet first"),
    rb"\x89HDF\r\n\x1a\n": FileContent("an HDF5 file", TABLE),
    rb"\x93NUMPY": FileContent("an array of NumPy (.npy)", "Read the texts that it was made from"),
    rb"\x80[\x02-\x05][\x80-\x95(\]}cqX]": FileContent(
        "a pickle of Python",
        "Write its texts as JSON Lines or Parquet in the program that made it: reading a pickle can run code"),
    rb"MMIDIDX\0\0": FileContent("an index of Megatron (.idx)", "Read the texts that it was made from"),
    rb"PK\x03\x04[\s\S]{26,300}?(?:\[Content_Types\]|_rels/|xl/|word/|ppt/)": FileContent(
        "an Office document (such as .xlsx or .docx)", "Save it as CSV (tables) or as plain text (documents)"),
    rb"PK\x03\x04[\s\S]{26}mimetypeapplication/(?:epub|vnd\.oasis)": FileContent("an EPUB or OpenDocument file", TEXT),
    rb"PK\x03\x04[\s\S]{26}\S{1,200}?\.npy": FileContent("arrays of NumPy (.npz)", "Read the texts it was made from"),
    rb"PK\x03\x04[\s\S]{26}\S{1,200}?/data\.pkl": FileContent("a checkpoint of PyTorch", LEAVE),
    rb"PK(?:\x03\x04|\x05\x06|\x07\x08)": FileContent("a ZIP archive", UNPACK),
    rb"7z\xbc\xaf\x27\x1c": FileContent("a 7z archive", UNPACK),
    rb"Rar!\x1a\x07": FileContent("a RAR archive", UNPACK),
    rb"[\s\S]{257}ustar(?:\0|  \0)": FileContent("a tar archive", "Unpack it (tar -xf), and name the files in it"),
    rb"\x04\x22\x4d\x18": FileContent("compressed by lz4", DECOMPRESS),
    rb"\xff\x06\0\0sNaPpY": FileContent("compressed by snappy", DECOMPRESS),
    rb"LZIP\x01": FileContent("compressed by lzip", DECOMPRESS),
    rb"\x5d\0\0[\0-\x80]": FileContent("compressed by lzma", DECOMPRESS),
    rb"\x1f\x9d": FileContent("compressed by compress (.Z)", DECOMPRESS),
    rb"\x89LZO\0": FileContent("compressed by lzop", DECOMPRESS),
    rb"%PDF-[0-9]\.[0-9]\s": FileContent("a PDF document", TEXT),
    rb"\{\\rtf1": FileContent("an RTF document", TEXT),
    rb"%!PS": FileContent("a PostScript document", TEXT, is_text=True),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": FileContent("an old Office document (such as .doc or .xls)", TEXT),
    rb"AT&TFORM": FileContent("a DjVu document", TEXT),
    rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a(?![ -~]{8})|II\*\0|MM\0\*|RIFF[\s\S]{4}WEBP": FileContent("an image", LEAVE),
    rb"RIFF[\s\S]{4}WAVE|ID3[\x02-\x04]\0|OggS\0|fLaC\0|\0\0[\s\S]{2}ftyp": FileContent("sound or video", LEAVE),
    rb"\x7fELF|MZ[\s\S]{58}[\s\S]\0\0\0|\xcf\xfa\xed\xfe|\xca\xfe\xba\xbe": FileContent("a program", LEAVE),
    rb"\0\x05\x16[\0\x07]": FileContent(
        "data of macOS about another file, whose name lacks the `._`", "Delete it, and read the other file"),
    rb"\0\0\0\x01Bud1": FileContent("a .DS_Store of macOS", "Delete it"),
    rb"bplist0": FileContent("a property list of macOS", LEAVE),
    rb"Salted__|age-encryption\.org/": FileContent("an encrypted file", DECRYPT),
    rb"version https://git-lfs\.github\.com/spec/": FileContent(
        "a pointer of Git LFS, not the data", "Fetch the data: run git lfs pull in its repository"),
    rb"(?:\.\./)*(?:\.git)?/annex/objects/\S+\s*\Z": FileContent(
        "a pointer of git-annex, not the data", "Fetch the data: run git annex get (or datalad get) in its repository"),
    rb"(?:\.\./|\./|/)(?:[\w.+-]+/)*[\w.+-]+\n?\Z": FileContent(
        "the path of another file, as a symbolic link that was copied as text", "Read the file that it names", True),
    rb"WARC/[01]\.": FileContent("warc", is_text=True),
    rb"HTTP/[0-9.]+ [0-9]{3}\b": FileContent(
        "an answer of a server with its headers (curl -i)", "Fetch the data without its headers", True),
    rb"-----BEGIN (?:PGP MESSAGE|CMS|ENCRYPTED)": FileContent("an encrypted file", DECRYPT, True),
    rb"-----BEGIN [A-Z ]+-----": FileContent("a key or certificate (PEM)", LEAVE, True),
    rb"H4sI[A-Za-z0-9+/]{12}": FileContent(
        "gzip in base64", "Decode it: base64 -d IN > OUT.gz, with the suffix of the data before .gz", True),
    rb"begin [0-7]{3} \S+\r?\n": FileContent("a file in uuencode", "Decode it: uudecode IN", True),
}  # fmt: skip
MARKUP: dict[bytes, FileContent] = {  # after white space and a byte order mark
    rb"[\s\S]{0,3000}?Google Drive[\s\S]{0,200}?[Vv]irus scan": FileContent(
        "the HTML page of Google Drive that asks about a virus scan",
        "Download it through the browser, or with gdown (pip install gdown)", True),
    rb"<!doctype html|<html\b|<head\b|<body\b": FileContent(
        "a web page (HTML)", f"{FETCH}. To read pages, set format: html", True),
    rb"(?:<\?xml[^>]*>\s*)?<Error\b[\s\S]{0,200}?<Code>": FileContent("an error of object storage (XML)", FETCH, True),
    rb"<\?xml\b": FileContent("an XML document", "Convert its texts to JSON Lines first", True),
}  # fmt: skip
_SIGNATURES = [(re.compile(pattern), content) for pattern, content in SIGNATURES.items()]
# Takes a tenth of the time of matching one after the other
_ANY = re.compile(b"|".join(b"(?:%b)" % pattern for pattern in SIGNATURES))
_MARKUP = [(re.compile(pattern, re.IGNORECASE), content) for pattern, content in MARKUP.items()]
UTF16 = re.compile(rb"(?:[\t\n\r -~]\0){8}|(?:\0[\t\n\r -~]){8}")
ERRORS = {"detail", "error", "errors", "message", "msg"}
ERROR_KEYS = {
    *ERRORS, "code", "details", "documentation_url", "path", "reason",
    "request_id", "requestId", "status", "statusCode", "success", "timestamp", "title", "type",
}  # fmt: skip


def look(start: bytes) -> FileContent | None:
    """Return the content whose signature these bytes have; None for text and for other bytes without a signature."""
    if _ANY.match(start):
        return next(content for pattern, content in _SIGNATURES if pattern.match(start))
    text = start.removeprefix(codecs.BOM_UTF8).lstrip()
    if not text.startswith(b"<"):
        return None
    return next((content for pattern, content in _MARKUP if pattern.match(text)), None)


def check(file: SourceFile, kind: Format) -> None:
    """Raise InputError if the content of a local file does not fit its format and compression. Files behind URLs may be
    very many, so only `explain` checks them."""
    if not is_remote(file.path) and not file.label and (problem := _problem(file, kind)):
        raise InputError(problem)


def explain(file: SourceFile, kind: Format, error: InputError) -> InputError:
    """Return the error for a file that its format could not read: an error that names its real content, or else
    `error`."""
    if file.label:
        return error
    try:
        problem = _problem(file, kind) or _guess(file, kind)
    except (InputError, EOFError, OSError):  # the file cannot be opened or read, which `error` says
        return error
    return InputError(problem) if problem else error


def _problem(file: SourceFile, kind: Format) -> str:
    start = _raw_start(file)
    content = look(start)
    if not file.compression or not start:
        return _content_problem(file, kind, start, content)
    if content is None or content.what != file.compression:
        return _not_compressed(file, start, content)
    if content.what == "zstd" and (window := window_of(start)) > MAX_WINDOW:
        return f"{shown(file.path)} {window_problem(window, shown(file.path))}"
    start = start_of(file, PROBED_BYTES if isinstance(kind, ColumnFormat) else LOOK_BYTES).data[
        :LOOK_BYTES
    ]  # one read for both
    return _content_problem(file, kind, start, look(start), f"{file.compression} of ")


def _raw_start(file: SourceFile) -> bytes:
    size = LOOK_BYTES if file.bytes == UNKNOWN_SIZE else min(LOOK_BYTES, file.bytes)
    if not size:
        return b""
    with open_raw(file.path, file.planned if is_remote(file.path) else (UNKNOWN_SIZE, "")) as raw:
        return bytes(raw.read(size))


def _content_problem(
    file: SourceFile, kind: Format, start: bytes, content: FileContent | None, inside: str = ""
) -> str:
    if content and not _suits(content, kind):
        return _message(file, content, inside)
    if len(start) >= MIN_NULS and not start.strip(b"\0") and not start_of(file).data.strip(b"\0"):
        return (
            f"{shown(file.path)} has only NUL bytes at its start: a download or copy did not finish. Fetch the whole "
            "file, or leave it out"
        )
    if content or kind.name in TABLES or kind.tells_encoding:
        return ""
    is_small = isinstance(kind, ColumnFormat) and not file.text_column and len(start) < LOOK_BYTES
    if is_small and (keys := _error_of_server(start)):
        begin = _begins(start)
        return f"{shown(file.path)} is an error of a server in JSON, with {', '.join(keys)}: {begin}. {FETCH}"
    return _encoding_problem(file, kind, start)


def _suits(content: FileContent, kind: Format) -> bool:
    """Return whether a format can read this content: content of its own kind, or text if the format reads any text."""
    return content.what in (kind.name, ALIKE.get(kind.name)) or (
        content.is_text and "encoding" in kind.options and not isinstance(kind, ColumnFormat)
    )


def _not_compressed(file: SourceFile, start: bytes, content: FileContent | None) -> str:
    if content and not content.is_text:
        return _message(file, content)
    if _is_binary(start):
        return f"{shown(file.path)} is no {file.compression}, although its name says so: {_begins(start)}. {FETCH}"
    plain = f"{shown(file.path)} is not compressed, although its name says {file.compression}"
    if content and content.remedy:
        return f"{plain}: it is {content.what}. {content.remedy}"
    return f"{plain}: {_begins(start)}. Rename it to {os.path.basename(_stem(file))}"


def _message(file: SourceFile, content: FileContent, inside: str = "") -> str:
    path, what, name = shown(file.path), content.what, os.path.basename(_stem(file))
    if what in COMPRESSED and inside:
        return (
            f"{path} is compressed twice: {what} in {file.compression}. Decompress it once: {TOOLS[file.compression]} "
            f"IN > OUT{_suffix_of(what)}"
        )
    if what in COMPRESSED and file.compression:
        return f"{path} is {what}, not {file.compression}. Rename it to {name}{_suffix_of(what)}"
    if what in COMPRESSED and file.format in TABLES:
        return f"{path} is read as {file.format}, but its content is {what}. Decompress it: {TOOLS[what]} IN > OUT"
    if what in COMPRESSED:
        return f"{path} is read as {file.format}, but its content is {what}. Rename it to {name}{_suffix_of(what)}"
    if what in FORMATS:
        title, suffix = FORMATS[what]
        rename = f"Rename it to {os.path.splitext(name)[0]}{suffix}, or set format: {what}"
        remedy = f"Decompress it: {TOOLS[file.compression]} IN > OUT{suffix}" if inside and what in TABLES else rename
        return f"{path} is read as {file.format}, but its content is {inside}{title}. {remedy}"
    return f"{path} is read as {file.format}, but its content is {inside}{what}. {content.remedy}"


def window_problem(window: int, name: str) -> str:
    """Return the end of a message about a zstd file with a window (bytes) above MAX_WINDOW."""
    size = f"{window / 2**30:.3g} GB" if window >= 2**30 else f"{window / 2**20:.4g} MB"
    return (
        f"was compressed with a window of {size}; up to {MAX_WINDOW >> 20} MB can be read. Recompress it: zstd -dc "
        f"--long={(window - 1).bit_length()} {os.path.basename(name)} | zstd --long=27 -o OUT.zst"
    )


def _suffix_of(compression: str) -> str:
    return next(suffix for suffix, name in COMPRESSIONS.items() if name == compression)


def _stem(file: SourceFile) -> str:
    """Return the path of a file without the suffix of its compression."""
    stem, suffix = os.path.splitext(shown(file.path))
    return stem if suffix.lower() in COMPRESSIONS else shown(file.path)


def _begins(start: bytes) -> str:
    """Return how a file begins, for messages."""
    if _is_binary(start):
        return f"it begins with the bytes {start[:8].hex(' ')}"
    text = " ".join(start.decode("utf-8", "replace").split())
    return f"it begins with {text[:SHOWN_CHARACTERS]!r}"


def _is_binary(start: bytes, encoding: str = "utf-8") -> bool:
    """Return whether bytes are no text: 1 % are NULs, or 1 % are control characters and the bytes are not UTF-8. Chat
    logs in UTF-8 may have control characters."""
    is_utf8 = codecs.lookup(encoding).name in UTF8
    text = start.decode("utf-8" if is_utf8 else encoding, "replace")
    data = start if is_utf8 else text.encode("utf-8", "replace")
    limit = MAX_CONTROLS * len(data)
    if data.count(0) > max(limit, MIN_NULS - 1):
        return True
    is_damaged = not is_utf8 or text[:-1].count("\ufffd") > start[:-1].count("\ufffd".encode())
    return is_damaged and len(data) - len(data.translate(None, CONTROLS)) > limit


def _encoding_problem(file: SourceFile, kind: Format, start: bytes) -> str:
    """Return the message about a file that is no text, or has an encoding that its format does not read; "" for other
    files."""
    path, reads_others = shown(file.path), "encoding" in kind.options
    marked = next((name.upper() for mark, name in MARKS if start.startswith(mark)), "")
    if marked and not reads_others:
        return f"{path} is read as {file.format}, but its content is {marked}. {_recode(kind, marked)}"
    is_binary = reads_others and not marked and _is_binary(start, file.encoding)
    if match := UTF16.match(start) if is_binary or not reads_others else None:
        name = "UTF-16BE" if match[0][0] == 0 else "UTF-16LE"
        return f"{path} looks like {name} without a byte order mark. {_recode(kind, name)}"
    return _binary(path, start) if is_binary else ""


def _recode(kind: Format, encoding: str) -> str:
    if "encoding" in kind.options:
        return f"Set encoding: {encoding.lower()}"
    return f"Convert it, since {kind.name} is in UTF-8: iconv -f {encoding} -t UTF-8 IN > OUT"


def _binary(path: str, start: bytes) -> str:
    return f"{path} looks like binary data, expected text: {_begins(start)}. Convert it, or leave it out"


def _guess(file: SourceFile, kind: Format) -> str:
    """Return a message about the likely content of a file that its format could not read; "" without a guess."""
    start = start_of(file, LOOK_BYTES).data if file.compression else _raw_start(file)
    path = shown(file.path)
    if kind.name in TABLES:
        is_not = f"{path} is not {TABLES[kind.name]}"
        if not start:
            return f"{is_not}: it is empty. Fetch it, since a download or copy did not finish, or leave it out"
        is_json = start.lstrip()[:1] in (b"{", b"[")
        remedy = f"{FETCH}. {'If it is JSON Lines, rename it to .jsonl' if is_json else 'If it is text, rename it'}"
        return "" if _is_binary(start) else f"{is_not}: {_begins(start)}. {remedy}"
    return _binary(path, start) if "encoding" not in kind.options and _is_binary(start) else ""


def _error_of_server(start: bytes) -> list[str]:
    """If the whole file is one JSON object with the keys of a server's error, return its keys; else []."""
    try:
        content = orjson.loads(start)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(content, dict) or not content.keys() <= ERROR_KEYS:
        return []
    return [*content] if content.keys() & ERRORS else []
