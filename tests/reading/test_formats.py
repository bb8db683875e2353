# SPDX-License-Identifier: Apache-2.0
"""Every other way in: archives, tables, plain text, compressed, remote, listed, many small files."""

import bz2
import csv
import errno
import gzip
import hashlib
import io
import json
import lzma
import struct
import sys
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.base.contract import Rejected
from curation.base.errors import InputError
from curation.base.records import NOT_PAGE
from curation.reading import answers, probe, read_documents, schema_of
from curation.reading.documents import too_large
from curation.reading.formats import csv_rows as delimited
from curation.reading.formats.csv_rows import CsvRows, Row
from curation.reading.inputs import Input
from curation.reading.paths import _listed, find_files
from curation.reading.remote import RemoteFile
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.reading.streams import DECOMPRESSORS, DamageError, StreamChunk, open_stream, read_chunks
from curation.reading.wet import Record, read_records
from tests.corpus import real_documents
from tests.needs import needs
from tests.oracle.delimited import LARGE, LARGE_OR_UNCLOSED, read_rows
from tests.pipelines.made import as_wet

HEADER = b"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://x/%d\r\nWARC-Date: 2024-05-18T01:58:10Z\r\n"
HEADER += b"WARC-Record-ID: <urn:uuid:id-%d>\r\nContent-Length: %d\r\n\r\n"
INFO = b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 4\r\n\r\ninfo\r\n\r\n"


def record(number: int, text: bytes) -> bytes:
    return HEADER % (number, number, len(text)) + text + b"\r\n\r\n"


def read(path: Path | str, batch_bytes: int = 1 << 20, slice_bytes: int = 1 << 30, **settings: Any) -> dict[str, Any]:
    """All documents of an input by columns, with what was rejected and how many positions there are."""
    files = [probe(file) for file in find_files([Input(path=str(path), **settings)])]
    slices = plan_slices(files, slice_bytes)
    batches = [batch for piece in slices for batch in read_documents(piece, batch_bytes)]
    for batch in batches:
        batch.table.validate(full=True)
        no_pages = sum(record.why == NOT_PAGE for record in batch.others)
        assert batch.rows == len(batch.table) + len(batch.rejected) + no_pages
    columns = settings.get("columns", [])
    table = pa.concat_tables([schema_of(columns).empty_table(), *(batch.table for batch in batches)])
    rejected = [entry for batch in batches for entry in batch.rejected]
    return table.to_pydict() | {
        "rejected": rejected,
        "rows": sum(batch.rows for batch in batches),
        "repaired": sum(batch.repaired for batch in batches),
        "slices": len(slices),
    }


TEXTS = [
    b"first",
    b"",
    "zweiter é\nTeil".encode(),
    b"WARC/1.0 is only text here\r\n\r\nand here",
    b"x" * 5000,
    b"last\n\n",
]


@pytest.mark.parametrize("batch_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("form", ["plain", "members", "one member"])
def test_wet(tmp_path: Path, form: str, batch_bytes: int):
    records = [INFO, *(record(k, text) for k, text in enumerate(TEXTS))]
    path = tmp_path / ("a.warc.wet" if form == "plain" else "a.warc.wet.gz")
    packed = {
        "plain": b"".join(records),
        "members": b"".join(map(gzip.compress, records)),
        "one member": gzip.compress(b"".join(records)),
    }
    path.write_bytes(packed[form])
    found = read(path, batch_bytes, columns=["url", "date", "warc_id"])
    assert found["text"] == [text.decode() for text in TEXTS]
    assert found["id"] == [f"id-{k}" for k in range(len(TEXTS))]
    assert found["warc_id"] == found["id"]
    assert found["url"] == [f"http://x/{k}" for k in range(len(TEXTS))]
    assert found["date"] == ["2024-05-18T01:58:10Z"] * len(TEXTS)
    assert found["row"] == list(range(len(TEXTS))) and not found["rejected"]


def test_wet_with_a_wrong_content_length_loses_no_record(tmp_path: Path):
    """A record that claims more, or less, than it has ends where the next one begins."""
    values = (b"9999", b"2", b"no", b"", b"9" * 19, b"9" * 5000, b"9" * 60_000, b"-6", b"0x6", "٦".encode())
    for wrong in (b"", *(b"Content-Length: %s\r\n" % value for value in values)):
        broken = record(1, b"second").replace(b"Content-Length: 6\r\n", wrong)
        path = tmp_path / "a.wet"
        path.write_bytes(record(0, b"first") + broken + record(2, b"third"))
        assert read(path)["text"] == ["first", "second", "third"], wrong
    path.write_bytes(record(0, b"first\r\n\r\nend").replace(b": 12", b": " + b"0" * 5000 + b"12"))
    assert read(path)["text"] == ["first\r\n\r\nend"]


def test_wet_with_malformed_utf8_is_repaired_and_counted(tmp_path: Path):
    path = tmp_path / "a.wet"
    path.write_bytes(record(0, b"caf\xe9 \xf0\x9f") + record(1, b"good"))
    found = read(path)
    assert found["text"] == ["caf\ufffd \ufffd", "good"] and found["repaired"] == 1


@pytest.mark.parametrize("suffix", [".gz", ""])
def test_wet_that_is_cut_off_gives_what_stands_before(tmp_path: Path, suffix: str):
    whole = b"".join(record(k, b"text %d" % k) for k in range(20))
    data = gzip.compress(whole, mtime=0)[:-60] if suffix else whole[:-9]
    path = tmp_path / f"a.wet{suffix}"
    path.write_bytes(data)
    found = read(path)
    count = len(found["text"])
    assert found["text"] == [f"text {k}" for k in range(count)] and 0 < count < 20
    [damage] = found["rejected"]
    assert "cut off" in damage.error or "ends inside" in damage.error
    assert damage.row == count


def records_in(data: bytes, max_bytes: int = 1000, step: int = 1 << 20) -> list[Record]:
    chunks = (StreamChunk(data[k : k + step], "") for k in range(0, len(data), step))
    return list(read_records(chunks, max_bytes))


ABOUT_WARC = b"How to write WARC files:\nWARC/1.0\nWARC-Type: warcinfo\n\nand so on"


@pytest.mark.parametrize("step", [1, 10, 1 << 20])
def test_a_right_content_length_is_honoured_everywhere(step: int):
    """A page that looks like a record inside; in the last record, where nothing follows, too."""
    for pages in ([ABOUT_WARC, b"b"], [b"a", ABOUT_WARC], [ABOUT_WARC, ABOUT_WARC]):
        data = b"".join(record(k, page) for k, page in enumerate(pages))
        for cut in (0, 2, 4):  # line ends behind the last record, all or not
            found = records_in(data[: len(data) - cut], 1000, step)
            assert [entry.content for entry in found] == pages
            assert not any(entry.damage or entry.too_large for entry in found)


@pytest.mark.parametrize("step", [1, 10, 1 << 20])
def test_a_content_length_above_the_limit_rejects_its_record_alone(step: int):
    """It ends at the next header, whether the Content-Length is true or not."""
    for page, length in ((b"x" * 101, b"101"), (b"second", b"101"), (b"second", b"9" * 18)):
        large = record(1, page).replace(b"Content-Length: %d\r" % len(page), b"Content-Length: %s\r" % length)
        found = records_in(record(0, b"first") + large + record(2, b"third"), 100, step)
        assert [(entry.content, entry.too_large) for entry in found] == [
            (b"first", False),
            (b"", True),
            (b"third", False),
        ]
        assert not any(entry.damage for entry in found)


@pytest.mark.parametrize("step", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("max_bytes", [6, 7, 50, 10_000])
def test_a_wrong_content_length_means_the_same_whatever_is_held(step: int, max_bytes: int):
    for wrong in (b"2", b"60", b"150", b"5000", b"9" * 15, b"9" * 19, b"9" * 5000):
        too_large = len(wrong) < 19 and int(wrong) > max_bytes
        broken = record(1, b"second").replace(b"Content-Length: 6\r\n", b"Content-Length: %s\r\n" % wrong)
        found = records_in(record(0, b"first") + broken + record(2, b"third"), max_bytes, step)
        assert [entry.content for entry in found] == [b"first", b"" if too_large else b"second", b"third"], wrong
        assert [entry.too_large for entry in found] == [False, too_large, False]
        assert not any(entry.damage for entry in found)
    broken = record(1, b"second\n\n and more").replace(b"Content-Length: 17", b"Content-Length: 3")
    (found,) = records_in(broken, 100, step)
    assert found.content == b"second\n\n and more"  # the last one ends with the file


@pytest.mark.parametrize("step", [1, 7, 64, 1 << 20])
def test_a_content_length_that_lands_on_a_blank_line_swallows_no_record(step: int):
    parts = [record(0, b"first"), record(1, b"two\r\n\r\nparts"), record(2, b"x")]
    whole = b"".join(parts)
    body = whole.index(b"first")
    for blank in (whole.index(b"\r\n\r\n", body + 10), whole.index(b"\r\n\r\nparts")):
        data = whole.replace(b"Content-Length: 5\r", b"Content-Length: %d\r" % (blank - body))
        found = records_in(data, 10_000, step)
        assert [entry.content for entry in found] == [b"first", b"two\r\n\r\nparts", b"x"]
    about = b"A page:\nWARC/1.0 is a format.\n\nMore"  # no header
    data = record(0, about) + b"rubbish\r\n\r\n" + record(1, b"x")
    assert [entry.content for entry in records_in(data, 10_000, step)] == [about, b"", b"x"]


def test_archives_are_read_in_bounded_memory(tmp_path: Path):
    """A large record, one that lies about its size, no records at all."""
    large = b"some text " * 800_000
    lying = record(1, b"short").replace(b"Content-Length: 5", b"Content-Length: 9000000")
    path = tmp_path / "a.wet"
    for data, texts, errors in (
        (record(0, large) + record(1, b"b"), ["b"], [TOO_LARGE]),
        (record(0, large).replace(b"Content-Length: 8", b"Content-Length: 9") + record(1, b"b"), ["b"], [TOO_LARGE]),
        (lying + record(1, large).replace(b"conversion", b"metadata") + record(2, b"b"), ["b"], [TOO_LARGE]),
        (large, [], ["expected a WARC record, found other bytes"]),
        (record(0, large)[:-100_000], [], ["the file ends inside the record"]),
    ):
        path.write_bytes(data)
        tracemalloc.start()
        found = read(path, 100_000, max_document_bytes=1000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (found["text"], [entry.error for entry in found["rejected"]]) == (texts, errors)
        assert peak < 3_000_000


def test_a_header_that_is_cut_off_by_the_next_record(tmp_path: Path):
    path = tmp_path / "a.wet"
    path.write_bytes(record(0, b"a") + b"WARC/1.0\r\nWARC-Type: conv\r\n" + record(1, b"b"))
    found = read(path)
    assert found["text"] == ["a", "b"] and [entry.row for entry in found["rejected"]] == [1]


def test_archives_of_real_documents(tmp_path: Path):
    """As Common Crawl writes them, and with line feeds alone and a first record that claims more bytes than it has: the
    record behind it must not get lost."""
    texts = real_documents()
    found = read(as_wet(texts, tmp_path / "real.wet.gz"))
    assert found["text"] == texts and not found["rejected"] and not found["repaired"]
    records = [record(number, text.encode()) for number, text in enumerate(texts[:30])]
    path = tmp_path / "lines.wet"
    lying = INFO.replace(b"Content-Length: 4", b"Content-Length: 400")
    path.write_bytes((lying + b"".join(records)).replace(b"\r\n", b"\n"))
    found = read(path, columns=["url"])
    assert [text.rstrip("\n") for text in found["text"]] == [text.rstrip("\n") for text in texts[:30]]
    assert len(found["url"]) == 30 and not found["rejected"]


LINES = b'{"id": "a", "text": "one"}\n{"id": "b", "text": "two"}\n'


@pytest.mark.parametrize(("suffix", "pack"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_other_compressions(tmp_path: Path, suffix: str, pack: Any):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(pack(LINES) + pack(LINES))
    assert read(path)["text"] == ["one", "two"] * 2
    many = b"".join(b'{"text": "%d"}\n' % k for k in range(100_000))  # more than a block of bzip2
    path.write_bytes(pack(many)[:-30])
    found = read(path)
    assert found["text"] == [str(k) for k in range(len(found["text"]))]
    assert "damaged or cut off" in found["rejected"][-1].error


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_csv(tmp_path: Path, suffix: str, delimiter: str):
    rows = [["id", "body", "extra"], ["1", '"a ""quoted""\nline"', "x"], ["2", "", "y"], ["3", "NA", "z"]]
    path = tmp_path / f"a{suffix}"
    path.write_text("\ufeff" + "\n".join(delimiter.join(row) for row in rows) + "\n")
    found = read(path, columns=["extra"])
    assert found["text"] == ['a "quoted"\nline', "", "NA"]
    assert (found["id"], found["extra"]) == (["1", "2", "3"], ["x", "y", "z"])


@pytest.mark.parametrize(
    ("name", "settings", "content"),
    [
        ("a.csv", {"delimiter": ";"}, 'id;text\n1;"a; ""b""\nc"\n2;d, e\n3\n'),
        ("a.tsv", {"delimiter": "|", "quote": "'"}, "id|text\n1|'a; \"b\"\nc'\n2|d, e\n3\n"),
        ("a.data", {"format": "csv", "delimiter": "\t"}, 'id\ttext\n1\t"a; ""b""\nc"\n2\td, e\n3\n'),
    ],
)
def test_csv_of_other_delimiters_and_quotes(tmp_path: Path, name: str, settings: dict[str, str], content: str):
    """Rows of another width are rejected with their line: the first row takes two."""
    for encoding in ("utf-8", "utf-16"):
        (tmp_path / name).write_text(content, encoding)
        found = read(tmp_path / name, **settings, encoding=encoding)
        assert (found["id"], found["text"]) == (["1", "2"], ['a; "b"\nc', "d, e"])
        assert found["rejected"] == [Rejected(2, 4, -1, "expected 2 columns, got 1")]


def test_csv_without_quotes(tmp_path: Path):
    """A quote is part of the text, wherever it is."""
    (tmp_path / "a.tsv").write_text('id\ttext\n1\t"a" b\n2\t"c\n3\td"\n')
    assert read(tmp_path / "a.tsv", quote="")["text"] == ['"a" b', '"c', 'd"']


def test_carried_columns_with_other_names(tmp_path: Path):
    """`domain` is the field `source`, whose own name the outputs have. The second line needs the slow parser."""
    texts, sources = ["one", "two\ud7ff", "three"], ["a", "b", None]
    lines = [json.dumps({"text": text, "source": name}) for text, name in zip(texts, sources, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join([lines[0], lines[1].replace("{", '{"text": 5, ', 1), lines[2]]))
    (tmp_path / "a.csv").write_text("source,text\na,one\nb,two\ud7ff\n,three\n")
    table = pa.table({"text": texts, "source": sources})
    pq.write_table(table, tmp_path / "a.parquet")
    pa.feather.write_feather(table, tmp_path / "a.arrow")
    for name in ("a.jsonl", "a.csv", "a.parquet", "a.arrow"):
        found = read(tmp_path / name, columns={"domain": "source", "words": "text"})
        assert found["domain"] == (["a", "b", ""] if name == "a.csv" else sources), name
        assert found["text"] == found["words"] == texts and "source" not in found
    with pytest.raises(InputError, match=r"column 'sauce' not found in .*; did you mean source\? Set columns"):
        read(tmp_path / "a.parquet", columns={"domain": "sauce"})
    with pytest.raises(InputError, match=r"'source\.name' not found in .*\. Only JSON Lines have dotted paths"):
        read(tmp_path / "a.parquet", columns={"domain": "source.name"})
    wet = tmp_path / "a.wet"
    wet.write_bytes(record(0, b"text"))
    (tmp_path / "a.txt").write_text("text")
    assert read(wet, columns={"address": "url"})["address"] == ["http://x/0"]
    assert read(tmp_path / "a.txt", columns={"file": "path"})["file"] == [str(tmp_path / "a.txt")]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_a_file_without_records_has_no_documents(tmp_path: Path, name: str, content: bytes):
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name, columns=["path"])["rows"] == 0


def test_csv_with_a_byte_order_mark_before_a_quoted_header(tmp_path: Path):
    path = tmp_path / "a.csv"
    for encoding in ("utf-8", "UTF_8", "utf-8-sig", "utf-16", "utf-16-le"):
        mark = "" if encoding in ("utf-8-sig", "utf-16") else "\ufeff"
        path.write_bytes(f'{mark}"id","text"\r\n"a1","hello"\r\n'.encode(encoding))
        found = read(path, encoding=encoding)
        assert (found["id"], found["text"]) == (["a1"], ["hello"]), encoding


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_a_byte_order_mark_names_the_encoding(tmp_path: Path, encoding: str):
    """Also where the mark arrives byte by byte, and in files that are shorter than the longest mark."""
    for name, content, texts in (
        ("a.txt", "Größe 漢字 😀", ["Größe 漢字 😀"]),
        ("a.md", "", []),
        ("a.csv", "id,text\n1,Größe\n", ["Größe"]),
        ("a.tsv", "id\ttext\n1\tGröße\n", ["Größe"]),
    ):
        data = f"\ufeff{content}".encode(encoding)
        (tmp_path / name).write_bytes(data)
        (tmp_path / f"{name}.gz").write_bytes(b"".join(gzip.compress(bytes([byte])) for byte in data))
        for path in (tmp_path / name, tmp_path / f"{name}.gz"):
            assert read(path, batch_bytes=1)["text"] == texts, path
    (tmp_path / "a.jsonl").write_bytes('\ufeff{"text": "a"}\n'.encode(encoding))
    if encoding != "utf-8":
        with pytest.raises(
            InputError, match=f"its content is {encoding[:6].upper()}. Convert it, .* -f {encoding[:6].upper()} "
        ):
            probe(*find_files([Input(path=str(tmp_path / "a.jsonl"))]))


def test_an_encoding_that_is_set_goes_before_a_byte_order_mark(tmp_path: Path):
    for name, content, text in (("a.txt", b"\xff\xfea", "ÿþa"), ("a.csv", b"\xff\xfe,text\n1,\xe9\n", "é")):
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name, encoding="latin-1")["text"] == [text]


UNCLOSED = "a quoted field that begins in this row does not end where a delimiter or the row ends"
TOO_LARGE = "larger than max_document_bytes (1000)"


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_a_quote_that_is_not_closed_costs_its_line(tmp_path: Path, suffix: str, delimiter: str, batch_bytes: int):
    path = tmp_path / f"a{suffix}"
    rows = ["id,text", "0,zero", '1,"one', "2,two", "3,three"]
    for end in ("\n", "\r\n", ""):
        path.write_text("\n".join(rows).replace(",", delimiter) + end, newline="")
        found = read(path, batch_bytes)
        assert (found["id"], found["text"]) == (["0", "2", "3"], ["zero", "two", "three"])
        assert found["rejected"] == [Rejected(1, 2, -1, UNCLOSED)]
    # A quote of a later row, which then ends at a wrong place.
    rows = ["id,text", "0,zero", '1,"one', "2,two", '3,"three"', '4,"four"', '5,"fi""ve\n"', "6,six"]
    path.write_text("\n".join(rows).replace(",", delimiter))
    found = read(path, batch_bytes)
    assert (found["id"], found["text"]) == (
        ["0", "2", "3", "4", "5", "6"],
        ["zero", "two", "three", "four", 'fi"ve\n', "six"],
    )
    assert found["rejected"] == [Rejected(1, 2, -1, UNCLOSED)]


def test_csv_text_behind_a_closing_quote_is_rejected(tmp_path: Path):
    """csv and pandas drop the quotes: a text that is not the file's."""
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"a" b "c"\n2,d "e" f\n3,"g" "h\n4,last\n')
    found = read(path)
    assert found["text"] == ['d "e" f', "last"]
    assert [(entry.line, entry.error) for entry in found["rejected"]] == [(1, UNCLOSED), (3, UNCLOSED)]
    path.write_text('id,text\n1,"a" b,"c\nd"\n2,last\n')
    found = read(path)
    assert found["text"] == ["last"]
    assert [(entry.line, entry.error) for entry in found["rejected"]] == [
        (1, UNCLOSED),
        (2, "expected 2 columns, got 1"),
    ]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_rows_above_the_limit_are_passed_over(tmp_path: Path, suffix: str, end: str):
    """The first is just too large, the others by more than what is read of a row before it is skipped."""
    long = "x" * 200_000
    texts = ["x" * 1000, "x" * 1001, long, f'"{long}"', f'"{long}{end}""{end}{long}"', "é" * 501, f'"a{end}b"', "last"]
    path = tmp_path / f"a.csv{suffix}"
    data = (end.join(["id,text", "", *(f"{k},{text}" for k, text in enumerate(texts))]) + end).encode()
    path.write_bytes(gzip.compress(data) if suffix else data)
    found = read(path, max_document_bytes=1000)
    assert (found["id"], found["text"]) == (["0", "6", "7"], ["x" * 1000, f"a{end}b", "last"])
    assert [entry.line for entry in found["rejected"]] == [3, 4, 5, 6, 7, 8, 9]
    errors = [entry.error for entry in found["rejected"]]
    assert errors == [*[TOO_LARGE] * 4, "expected 2 columns, got 1", TOO_LARGE, TOO_LARGE]


@pytest.mark.slow("the memory of a CSV row is bounded")
def test_the_memory_of_a_csv_row_is_bounded(tmp_path: Path):
    for row in (b"x" * 8_000_000, b'"' + b"x" * 8_000_000, b'"' + b"long line\n" * 110_000):
        (tmp_path / "a.csv").write_bytes(b"text\n" + row + b"\n")
        tracemalloc.start()
        batches = 0
        (file,) = [probe(file) for file in find_files([Input(path=str(tmp_path / "a.csv"), max_document_bytes=1000)])]
        for batch in CsvRows(io.BytesIO((tmp_path / "a.csv").read_bytes()), file):
            batches += bool(batch.error)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert batches == 1 and peak < 3_000_000 + len(row)


@pytest.mark.parametrize("limit", [10, 100_000_000])
def test_rows_behind_a_quote_that_is_not_closed_are_read(tmp_path: Path, limit: int):
    """Whether the file ends in the quoted field or the field becomes too large."""
    count = 20_000
    rows = [f"{k},row {k}" for k in range(count)]
    rows[1000] = '1000,"row'
    rows[-1] = f'{count - 1},"last"'
    path = tmp_path / "a.csv"
    for last in (rows[-1], "19999,last"):
        path.write_text("\n".join(["id,text", *rows[:-1], last]))
        found = read(path, max_document_bytes=limit)
        assert found["id"] == [str(k) for k in range(count) if k != 1000]
        (entry,) = found["rejected"]
        assert (entry.row, entry.line) == (1000, 1001) and "a quoted field that begins in this" in entry.error


@pytest.mark.slow("quotes that are not closed are read in linear time")
@pytest.mark.parametrize("beside_text", [200, 1 << 16])
@pytest.mark.parametrize(
    "row",
    [
        '{},"row',
        '{},"',
        '"{},row',
        '{},""row"',
        '{},"""row',
        '{},row"',
        '{}","',
        '{}""","',
        '{}","\n{}',
        '{}","\n"b"{}d',
        '{}","\n' * 60 + '{}"b',
    ],
)
def test_quotes_that_are_not_closed_cost_linear_time(row: str, beside_text: int, monkeypatch: pytest.MonkeyPatch):
    """A line is parsed twice: inside a quoted field, and as the start of a row. Once more where that start is bad, and
    in a row that is whole behind one that is too large."""
    parsed: Counter[str] = Counter()
    real = csv.reader

    def counting(lines: Iterable[str], **settings: Any) -> Any:
        return real((parsed.update([line]) or line for line in lines), **settings)

    monkeypatch.setattr(csv, "reader", counting)
    monkeypatch.setattr(delimited, "OTHER_CHARS", beside_text)
    for quiet in (0, 1, 40):  # rows without quotes between those with one
        block = [*row.split("\n"), *["{},row"] * quiet]
        lines = block * (2000 // len(block))
        text = "".join(line.replace("{}", str(k)) + "\n" for k, line in enumerate(lines))
        parsed.clear()
        found = list(rows_of(text, 1, ","))
        del parsed['"']  # which asks whether a quoted field is open
        bad_starts = {f"{line}\n" for line in text.split("\n") if line.startswith('"b"') or '""row' in line}
        most = {line: 3 if line in bad_starts or beside_text == 200 else 2 for line in parsed}
        assert not {line: times for line, times in parsed.items() if times > most[line]}
        assert found[-1].line >= len(lines) - 2  # a row of two lines


CHARACTERS = st.sampled_from(["a", '"', ",", "\t", "\n", "\r", "\r\n"])
OPENING = st.sampled_from(['a","\n', '","\r\n', '",a,"aa\n'])  # close a quoted field, and open one
OTHERS = st.sampled_from(['a"\n', '"\n', 'a"b\n', "a,a\n", 'a""a\n', '"a"a\n'])


@settings(max_examples=150)
@given(
    st.lists(st.one_of(CHARACTERS, OPENING, OPENING, OTHERS), max_size=30),
    st.one_of(st.integers(1, 30), st.just(10_000)),
    st.sampled_from([',"', '\t"', ";'"]),
)
def test_csv_rows_are_those_of_their_definition(pieces: list[str], most: int, marks: str):
    delimiter, quote = marks
    text = "".join(pieces).replace(",", delimiter).replace('"', quote)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "OTHER_CHARS", 0)
        patch.setattr(delimited, "SKIPPED_STEP", 2)
        found = list(rows_of(text, most, delimiter, quote))
    large = too_large(most)
    errors = {"": "", UNCLOSED: UNCLOSED, LARGE: large, LARGE_OR_UNCLOSED: large + delimited.OR_UNCLOSED}
    expected = [(line, values, errors[error]) for line, values, error in read_rows(text, delimiter, most, quote)]
    assert [tuple(row) for row in found] == expected


def rows_of(text: str, limit: int, delimiter: str, quote: str = '"') -> Iterator[Row]:
    file = SourceFile(
        path="a", source="a", format="csv", compression="", bytes=len(text), modified_ns=0, text_column="text",
        id_column="", max_document_bytes=limit, delimiter=delimiter, quote=quote,
    )  # fmt: skip
    return iter(CsvRows(io.BytesIO(text.encode()), file))


def test_a_row_behind_one_that_is_too_large_ends_where_it_ends(monkeypatch: pytest.MonkeyPatch):
    """The second row begins inside the quoted field of the first one, and is whole."""
    monkeypatch.setattr(delimited, "OTHER_CHARS", 0)
    found = list(rows_of('x","xxxx\na","\nb"\nc,d\n', 15, ","))
    assert found == [
        Row(0, [], "larger than max_document_bytes (15)" + delimited.OR_UNCLOSED),
        Row(1, ['a"', "\nb"]),
        Row(3, ["c", "d"]),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_row_behind_a_line_that_is_too_large_is_read(end: str):
    """Whichever step of reading the line end falls into."""
    for first in (1000 + delimited.OTHER_CHARS, 1000 + delimited.OTHER_CHARS + delimited.SKIPPED_STEP):
        for size in (first - 2, first - 1, first, first + 1, first + 2):
            found = list(rows_of("x" * size + end + "next" + end, 1000, ","))
            assert found[-1] == Row(1, ["next"]) and len(found) == 2, size - first


def test_rejected_rows_of_csv_have_the_line_they_begin_in(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\r\n1,"a\r\n\r\nb"\r\n\r\n2\r\n3,c,d\r\n4,\xff\r\n')
    found = read(path)
    assert [(entry.row, entry.line) for entry in found["rejected"]] == [(1, 5), (2, 6), (3, 7)]


@pytest.mark.parametrize("stream", [False, True])
def test_arrow(tmp_path: Path, stream: bool):
    table = pa.table({"id": [1, 2, 3], "content": ["a", None, "c"]})
    path = tmp_path / "a.arrow"
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    found = read(path)
    assert (found["id"], found["text"]) == (["1", "3"], ["a", "c"])
    assert found["rejected"] == [Rejected(1, 1, -1, "text is null")]


def arrow_of(texts: list[str], stream: bool) -> bytes:
    """In batches of ten, without compression."""
    sink = io.BytesIO()
    table = pa.table({"text": texts})
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    return sink.getvalue()


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
@pytest.mark.parametrize("stream", [True, False])
def test_compressed_arrow(tmp_path: Path, stream: bool, suffix: str):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}.get(suffix)
    texts = [f"text {number}" for number in range(30)]
    data = arrow_of(texts, stream)
    path = tmp_path / f"a.arrow{suffix}"
    path.write_bytes(pack(data) if pack else bytes(pa.compress(data, "zstd")))
    assert read(path)["text"] == texts


@pytest.mark.parametrize("stream", [True, False])
def test_arrow_that_is_cut_off_gives_the_batches_before(tmp_path: Path, stream: bool):
    data = arrow_of([f"text {number}" for number in range(30)], stream)
    (tmp_path / "a.arrow").write_bytes(data[: len(data) // 2])
    found = read(tmp_path / "a.arrow")
    assert 0 < len(found["text"]) < 30 and found["text"] == [f"text {k}" for k in range(len(found["text"]))]
    assert "damaged or cut off" in found["rejected"][0].error


def test_a_wrong_offset_in_arrow_is_damage_and_wrong_utf8_one_row(tmp_path: Path):
    data = arrow_of([f"text {number:02d}" for number in range(30)], False)
    offsets = [7 * number for number in range(11)]
    sound, wrong = (struct.pack("<11i", *values) for values in (offsets, [*offsets[:5], 0x7F000000, *offsets[6:]]))
    assert data.count(sound) == 3
    last = data.rindex(sound)
    (tmp_path / "a.arrow").write_bytes(data[:last] + data[last:].replace(sound, wrong))
    found = read(tmp_path / "a.arrow")
    assert len(found["text"]) == 20 and "damaged or cut off" in found["rejected"][0].error
    (tmp_path / "a.arrow").write_bytes(data.replace(b"text 12", b"text 1\xff"))
    found = read(tmp_path / "a.arrow")
    assert len(found["text"]) == 29
    assert found["rejected"] == [Rejected(12, 12, -1, "text is not valid UTF-8")]


def test_html_gives_the_main_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    needs("resiliparse")
    page = "<html><nav>Home</nav><main><h1>Café déjà</h1><p>Zeile</p></main><footer>Imprint</footer></html>"
    meta = '<meta charset="windows-1252">'
    (tmp_path / "a.html").write_text("\ufeff" + page)
    (tmp_path / "b.htm").write_text(meta + page, "latin-1")
    (tmp_path / "c.html.gz").write_bytes(gzip.compress(page.encode()))
    (tmp_path / "d.html").write_bytes(b" \n")
    (tmp_path / "e.html").write_text("<p>" + "x" * 200)
    (tmp_path / "f.html.gz").write_bytes(gzip.compress(page.encode())[:-9])
    (tmp_path / "g.html").write_text("<div>" * 20_000)
    found = read(tmp_path, columns=["path"], max_document_bytes=150, base="")
    assert found["text"] == ["Café déjà\n\nZeile"] * 3 and found["path"][1] == str(tmp_path / "b.htm")
    errors = [entry.error for entry in found["rejected"]]
    assert errors[0] == errors[2] == "larger than max_document_bytes (150)" and "damaged or cut off" in errors[1]
    assert "nest too deeply" in read(tmp_path / "g.html")["rejected"][0].error
    (tmp_path / "a.html").write_text(page, "utf-16")
    assert read(tmp_path / "a.html", encoding="utf-16")["text"] == ["Café déjà\n\nZeile"]
    monkeypatch.setitem(sys.modules, "resiliparse.extract.html2text", None)
    with pytest.raises(
        InputError,
        match=r"needs Resiliparse: .*gpu-pipeline\[warc\]'.* in a clone\. .* or HTML with its tags: format",
    ):
        read(tmp_path / "a.html")


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.rst", "a.md.gz"])
def test_markdown_and_restructuredtext_are_plain_text(tmp_path: Path, name: str):
    content = b"# Title\n\nwords\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read(tmp_path / name)["text"] == [content.decode()]


def test_plain_text(tmp_path: Path):
    for name, text in (("a.txt", "one\n---\n  \n---\ntwo"), ("b.txt", "three")):
        (tmp_path / name).write_text(text)
    whole = read(tmp_path, columns=["path"])
    assert whole["text"] == ["one\n---\n  \n---\ntwo", "three"] and whole["slices"] == 1
    assert [Path(path).name for path in whole["path"]] == ["a.txt", "b.txt"]
    assert read(tmp_path, separator="---\n")["text"] == ["one\n", "two", "three"]
    assert read(tmp_path, 1, separator="---\n")["text"] == ["one\n", "two", "three"]


@pytest.mark.parametrize("batch_bytes", [1, 3, 1 << 20])
@pytest.mark.parametrize("encoding", ["utf-8", "UTF_8", "utf-8-sig", "utf-16", "utf-16-be", "latin-1", "cp932"])
def test_plain_text_of_every_encoding_is_cut(tmp_path: Path, encoding: str, batch_bytes: int):
    texts = ["one", "zwei\n \n" if encoding == "cp932" else "zwéi\n \n", "three"]
    path = tmp_path / "a.txt"
    path.write_bytes("---".join([*texts, " \r\n", ""]).encode(encoding))
    found = read(path, batch_bytes, encoding=encoding, separator="---")
    assert (found["text"], found["repaired"], found["rejected"]) == (texts, 0, [])


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "utf_8", "utf-8-sig", "utf-16-le"])
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path, encoding: str):
    raw = "utf-8" if "16" not in encoding else encoding
    for text in ("one\ufeff", "", "a"):
        (tmp_path / "a.txt").write_bytes(f"\ufeff{text}".encode(raw))
        for batch_bytes in (1, 2, 1 << 20):
            found = read(tmp_path / "a.txt", batch_bytes, encoding=encoding, max_document_bytes=6)
            assert found["text"] == [text][: len(text)] and not found["rejected"]


def test_malformed_plain_text_is_repaired_and_counted_in_every_encoding(tmp_path: Path):
    path = tmp_path / "a.txt"
    for encoding, data in (
        ("utf-8", b"good|b\xe9d"), ("Utf_8", b"good|b\xe9d"), ("ascii", b"good|b\xe9d"),
        ("utf-16", "good|b".encode("utf-16") + b"\x00\xd8" + "d".encode("utf-16-le")), ("cp1252", b"good|b\x81d"),
        ("utf-7", b"good|b+2AA-d"),
    ):  # fmt: skip
        for more in range(3):
            path.write_bytes(data.replace(b"\x00\xd8", b"\x00\xd8" + b"\x00\xd8" * more))
            found = read(path, 1 << more, encoding=encoding, separator="|")
            marks = "\ufffd" * (1 + more * (b"\x00\xd8" in data))
            assert (found["text"], found["repaired"]) == (["good", f"b{marks}d"], 1), encoding
    path.write_bytes("no mark".encode("utf-16-le"))
    found = read(path, encoding="utf-16")
    assert not found["text"] and "the file is not utf-16: " in found["rejected"][0].error


@pytest.mark.parametrize("separator", ["", "|", "<end>"])
@pytest.mark.parametrize("batch_bytes", [1, 4, 7, 100, 1 << 20])
def test_plain_text_above_the_limit_is_rejected(tmp_path: Path, separator: str, batch_bytes: int):
    texts = ["x" * 10, "x" * 11, " " * 11, "<end" * 20, "y", "x" * 300] if separator else ["x" * 11]
    path = tmp_path / "a.txt"
    path.write_text(separator.join(texts))
    found = read(path, batch_bytes, separator=separator, max_document_bytes=10)
    assert found["text"] == [text for text in texts if len(text) <= 10]
    rows = [row for row, text in enumerate(texts) if len(text) > 10]
    assert found["rejected"] == [Rejected(row, row, -1, TOO_LARGE.replace("1000", "10")) for row in rows]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("separator", ["", "|"])
def test_plain_text_above_the_limit_is_not_held(tmp_path: Path, separator: str, encoding: str):
    (tmp_path / "a.txt").write_bytes(("long text " * 1_000_000).encode(encoding))
    tracemalloc.start()
    found = read(tmp_path / "a.txt", 100_000, separator=separator, encoding=encoding, max_document_bytes=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not found["text"] and found["rows"] == 1 and peak < 3_000_000


def test_text_columns_are_found_and_dotted_paths_followed(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"meta": {"lang": "en", "n": [1]}, "raw_content": "x", "doc": {"text": "deep"}}\n')
    assert read(path)["text"] == ["x"]
    assert read(path, text_column="doc.text")["text"] == ["deep"]
    found = read(path, columns=["meta.lang", "meta", "none"])
    assert (found["meta.lang"], found["meta"], found["none"]) == (["en"], ['{"lang":"en","n":[1]}'], [None])
    (tmp_path / "a.jsonl").write_bytes(b'{"title": 1}\n')
    with pytest.raises(InputError, match="has none of the columns text, content"):
        read(path)


@pytest.mark.parametrize("batch_bytes", [1, 200, 700, 1 << 20])
@pytest.mark.parametrize("slice_bytes", [1, 900, 1 << 30])
def test_damage_in_parquet_takes_its_own_row_group_only(tmp_path: Path, slice_bytes: int, batch_bytes: int):
    path = tmp_path / "a.parquet"
    texts = [f"document {k} " + "x" * 20 for k in range(40)]
    pq.write_table(pa.table({"text": texts}), path, row_group_size=8, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    place = data.index(b"document 19 ")
    data[place - 4 : place] = b"\xff\xff\xff\x7f"  # the length of the string
    path.write_bytes(data)
    found = read(path, batch_bytes, slice_bytes)
    assert found["text"] == texts[:19] + texts[24:]
    assert [entry.line for entry in found["rejected"]] == [19]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("step", [1, 100, 70_000, 1 << 20])
def test_what_stands_before_damage_does_not_depend_on_how_it_is_read(tmp_path: Path, pack: Any, step: int):
    suffix = {gzip.compress: "gzip", bz2.compress: "bzip2", lzma.compress: "xz"}[pack]
    lines = b"".join(hashlib.sha256(b"%d" % k).hexdigest().encode() + b"\n" for k in range(2000))
    data = bytearray(pack(lines))
    data[len(data) // 2] ^= 255
    (tmp_path / "a").write_bytes(data)
    found = []
    for size in (step, 1 << 22):
        with open_stream(str(tmp_path / "a"), suffix) as stream:
            pieces = list(read_chunks(stream, size))
            assert list(read_chunks(stream, 9)) == [StreamChunk(b"", pieces[-1].damage)]  # and nothing behind it
        found.append((b"".join(piece.data for piece in pieces), pieces[-1].damage))
    assert found[0] == found[1] and "damaged or cut off" in found[0][1]


class _Disk:
    """A file whose content can change while it is open."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self, *_: Any) -> io.BytesIO:
        return _Opened(self)


class _Opened(io.BytesIO):
    def __init__(self, disk: _Disk) -> None:
        super().__init__(disk.data)
        self.disk = disk

    def read(self, size: int | None = -1) -> bytes:
        found = self.disk.data[self.tell() : self.tell() + min(size or 0, 1000)]
        self.seek(len(found), io.SEEK_CUR)
        return found


HASHES = b"".join(hashlib.sha256(b"%d" % k).hexdigest().encode() + b"\n" for k in range(20_000))
PACKED: dict[str, Any] = {
    "zstd": lambda data: bytes(pa.compress(data, "zstd")),
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


@pytest.mark.parametrize("kind", PACKED)
def test_a_file_that_gets_shorter_while_it_is_read_is_damaged(kind: str, monkeypatch: pytest.MonkeyPatch):
    disk = _Disk(PACKED[kind](HASHES))
    monkeypatch.setattr("curation.reading.streams.open_raw", disk.open)
    with open_stream("x", kind) as stream:
        begin = stream.read(60_000)
        disk.data = PACKED[kind](b"short")
        [piece] = read_chunks(stream, 1 << 22)
    assert HASHES.startswith(begin + piece.data) and "damaged or cut off" in piece.damage


def test_a_runtime_error_of_libbzip2_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It answers some damage with "Invalid sequence of commands sent to libbzip2"."""

    class Failing:
        needs_input = False

        def decompress(self, data: bytes, size: int) -> bytes:
            raise RuntimeError("Invalid sequence of commands")

    monkeypatch.setitem(DECOMPRESSORS, "bzip2", Failing)
    (tmp_path / "a").write_bytes(b"x")
    with open_stream(str(tmp_path / "a"), "bzip2") as stream, pytest.raises(DamageError, match="Invalid sequence"):
        stream.read(10)


@pytest.mark.parametrize("kind", ["", *PACKED])
def test_an_error_of_reading_is_no_damage(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(opened: _Opened, size: int | None = -1) -> bytes:
        if opened.tell() > 100_000:
            raise OSError(errno.EIO, "Input/output error")
        return io.BytesIO.read(opened, min(size or 0, 1000))

    def fail_into(opened: _Opened, buffer: Any) -> int:
        found = fail(opened, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    disk = _Disk(PACKED.get(kind, bytes)(HASHES))
    for module in ("streams", "changes"):
        monkeypatch.setattr(f"curation.reading.{module}.open_raw", disk.open)
    monkeypatch.setattr(_Opened, "read", fail)
    monkeypatch.setattr(_Opened, "readinto", fail_into)
    with open_stream("x", kind) as stream, pytest.raises(OSError, match="Input/output error"):
        assert not any(piece.damage for piece in read_chunks(stream, 1000))
    for name, text in (("a.csv", b"text\n" + HASHES), ("a.jsonl", b'{"text": "a"}\n' * 50_000)):
        (tmp_path / name).write_bytes(text)
        disk.data = text
        with pytest.raises(OSError, match="Input/output error"):
            read(tmp_path / name, 1000, text_column="text")


def test_carried_columns_of_parquet(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "b"], "score": [0.5, None], "url": ["u", "v"]}), path)
    found = read(path, columns=["score", "url"])
    assert (found["score"], found["url"]) == (["0.5", None], ["u", "v"])
    with pytest.raises(InputError, match="column 'nope' not found"):
        read(path, columns=["nope"])


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("batch_bytes", [64, 1 << 20])
def test_a_record_above_the_limit_is_rejected_and_not_held(tmp_path: Path, suffix: str, batch_bytes: int):
    lines = [b'{"text": "before"}', b'{"text": "' + b"x" * 5000 + b'"}', b'{"text": "after"}', b'{"text": "end"}']
    data = b"\n".join(lines) + b"\n"
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    found = read(path, batch_bytes, max_document_bytes=1000)
    assert found["text"] == ["before", "after", "end"] and found["row"] == [0, 2, 3]
    [entry] = found["rejected"]
    assert (entry.row, entry.line, entry.offset) == (1, 1, len(lines[0]) + 1) and "max_document_bytes" in entry.error


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def test_urls_globs_and_lists(tmp_path: Path, memory: Any):
    memory.pipe("/b/1.jsonl", LINES)
    memory.pipe("/b/2.jsonl.gz", gzip.compress(LINES))
    pq.write_table(pa.table({"text": ["p"]}), tmp_path / "p.parquet")
    memory.pipe("/b/3.parquet", (tmp_path / "p.parquet").read_bytes())
    assert read("memory://b/1.jsonl", slice_bytes=20)["text"] == ["one", "two"]
    assert read("memory://b/*", name="b")["text"] == ["one", "two", "one", "two", "p"]
    (tmp_path / "paths.gz").write_bytes(gzip.compress(b"1.jsonl\n\n2.jsonl.gz\n"))
    assert read(f"@{tmp_path}/paths.gz", base="memory://b/", name="b")["text"] == ["one", "two"] * 2
    with pytest.raises(InputError, match="does not exist"):
        read("memory://b/9.jsonl")


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".zst", lambda data: pa.compress(data, "zstd"))],
)
def test_a_long_list_is_read_to_its_end(tmp_path: Path, suffix: str, pack: Any):
    names = [hashlib.sha256(b"%d" % k).hexdigest() for k in range(10_000)]  # 400 KB and more, however compressed
    path = tmp_path / f"paths{suffix}"
    path.write_bytes(pack("\n".join(names).encode()))
    assert _listed(Input(path=f"@{path}", base="https://x/")) == [f"https://x/{name}" for name in names]


def test_a_damaged_list_is_refused(tmp_path: Path):
    for suffix, pack in ((".gz", gzip.compress), (".zst", lambda data: bytes(pa.compress(data, "zstd")))):
        path = tmp_path / f"paths{suffix}"
        path.write_bytes(pack(b"a.jsonl\n" * 10)[:-6])
        with pytest.raises(InputError, match=rf"list of inputs .*paths{suffix} is damaged or cut off"):
            find_files([Input(path=f"@{path}")])


def test_a_list_may_begin_with_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "paths.txt").write_text(f"\ufeff{tmp_path}/a.jsonl\r\n", "utf-8")
    assert read(f"@{tmp_path}/paths.txt")["text"] == ["one", "two"]


HTML = """<html><head><title>T</title></head><body><nav><a href=x>menu</a></nav><main>
<article><p>%s</p></article></main><footer>imprint</footer></body></html>"""


def response(number: int, content_type: bytes, body: bytes) -> bytes:
    http = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n\r\n%b" % (content_type, body)
    return (HEADER % (number, number, len(http))).replace(b"conversion", b"response") + http + b"\r\n\r\n"


def test_warc_gives_the_main_text_of_pages(tmp_path: Path):
    needs("resiliparse")
    sentence = "A page about whales and what they eat in winter. " * 5
    pages = [
        response(0, b"text/html; charset=utf-8", (HTML % ("Größe: " + sentence)).encode()),
        response(1, b"text/html", (HTML % ("Größe: " + sentence)).encode("latin-1")),
        response(2, b"image/png", b"\x89PNG"),
    ]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(map(gzip.compress, [INFO, *pages, record(3, b"not a response")])))
    found = read(path, columns=["url", "links"])
    assert found["url"] == ["http://x/0", "http://x/1"]
    assert found["links"] == ['["http://x/x"]', '["http://x/x"]']
    assert found["text"][0].strip().startswith("Größe: A page about whales") and "menu" not in found["text"][0]
    assert found["text"][1] == found["text"][0]


def encoded(field: bytes, body: bytes) -> bytes:
    return response(0, b"text/html\r\n" + field, body)


def chunked(body: bytes, size: int = 40) -> bytes:
    parts = (body[k : k + size] for k in range(0, len(body), size))
    return b"".join(b"%x;x=1\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def bare_deflate(body: bytes) -> bytes:
    return zlib.compress(body)[2:-4]


PAGE = (HTML % ("A page about whales and what they eat in winter. " * 50)).encode()
ENCODED = {
    "gzip": (b"Content-Encoding: gzip", gzip.compress(PAGE)),
    "two members": (b"content-encoding: X-GZIP", gzip.compress(PAGE[:999]) + gzip.compress(PAGE[999:]) + b"\r\n"),
    "deflate": (b"Content-Encoding: deflate", zlib.compress(PAGE)),
    "bare deflate": (b"Content-Encoding: deflate", bare_deflate(PAGE)),
    "chunked": (b"Transfer-Encoding: chunked", chunked(PAGE)),
    "both": (b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip", chunked(gzip.compress(PAGE))),
    "one in the other": (b"Content-Encoding: deflate, gzip", gzip.compress(zlib.compress(PAGE))),
    "gzip for transfer": (b"Transfer-Encoding: gzip, chunked", chunked(gzip.compress(PAGE))),
    "identity": (b"Content-Encoding: identity\r\nContent-Encoding: gzip", gzip.compress(PAGE)),
    "said, but not done": (b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip", PAGE),
    "deflate, not done": (b"Content-Encoding: deflate", PAGE),
    "Brotli": (b"Content-Encoding: br", lambda page: needs("brotli").compress(page)),
    "Brotli, not done": (b"Content-Encoding: br", lambda page: (needs("brotli"), page)[1]),
    "zstd": (b"Content-Encoding: zstd", lambda page: zstd_of(page)),
    "zstd, not done": (b"Content-Encoding: zstd", PAGE),
}


@pytest.mark.parametrize("form", ENCODED)
def test_warc_pages_are_decoded(tmp_path: Path, form: str):
    needs("resiliparse")
    field, body = ENCODED[form]
    if callable(body):
        body = body(PAGE)
    path = tmp_path / "a.warc"
    path.write_bytes(response(0, b"text/html", PAGE) + encoded(field, body))
    found = read(path, max_document_bytes=len(PAGE) + 1000)
    assert found["text"][0] == found["text"][1] and "about whales" in found["text"][0]


def test_warc_pages_that_are_cut_off_give_what_is_there(tmp_path: Path):
    needs("resiliparse")
    page = b"<html><body><p>" + b"".join(b"%d whales. " % (k * 7919) for k in range(500))
    forms = [gzip.compress(page)[:-300], zlib.compress(page)[:-300], bare_deflate(page)[:-300]]
    fields = [b"Content-Encoding: " + name for name in (b"gzip", b"deflate", b"deflate")]
    chunks = [chunked(page)[:-cut] for cut in (5, 7, 20, 44, 47, 49)]
    (tmp_path / "a.warc").write_bytes(
        b"".join(map(encoded, [*fields, *[b"Transfer-Encoding: chunked"] * len(chunks)], [*forms, *chunks]))
    )
    found = read(tmp_path / "a.warc")
    assert len(found["text"]) == 9 and not found["rejected"]
    assert all(text.startswith("0 whales. 7919 whales.") for text in found["text"])


def zstd_of(body: bytes) -> bytes:
    return pa.compress(body, codec="zstd", asbytes=True)


def test_warc_pages_that_cannot_be_decoded_are_rejected(tmp_path: Path):
    needs("resiliparse")
    brotli = needs("brotli")
    damaged = bytearray(gzip.compress(PAGE))
    damaged[40] ^= 255
    records = [
        encoded(b"Content-Encoding: br", b"?" * 99),
        encoded(b"Content-Encoding: zstd", b"\x28\xb5\x2f\xfd" + b"?" * 99),
        encoded(b"Content-Encoding: compress", b"\x1f\x9d"),
        encoded(b"Content-Encoding: gzip", bytes(damaged)),
        encoded(
            b"Transfer-Encoding: chunked", chunked(PAGE).replace(b"28;x=1", b"27;x=1", 5).replace(b"27;", b"28;", 2)
        ),
        encoded(b"Content-Encoding: gzip", gzip.compress(b" " * 10_000_000)),
        encoded(b"Content-Encoding: br", brotli.compress(b" " * 10_000_000)),
        encoded(b"Content-Encoding: zstd", zstd_of(b" " * 10_000_000)),
        response(0, b"image/png\r\nContent-Encoding: br", b"?"),
        response(0, b"text/html", b"<p>last"),
    ]
    (tmp_path / "a.warc").write_bytes(b"".join(records))
    found = read(tmp_path / "a.warc", max_document_bytes=1_000_000)
    assert [text.strip() for text in found["text"]] == ["last"]
    assert [entry.error.partition(": ")[0] for entry in found["rejected"]] == [
        "the compressed page is damaged",
        "the compressed page is damaged",
        "the page is encoded as 'compress'; chunked, gzip, deflate, br and zstd can be read",
        "the compressed page is damaged",
        "the chunks of the page are damaged",
        *["larger than max_document_bytes (1000000)"] * 3,
    ]


class _Flaky:
    """A remote file whose connection breaks at every second read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position, self.reads, self.opened = data, 0, 0, 0
        self.size = len(data)

    def invalidate_cache(self) -> None: ...

    def close(self) -> None: ...

    def info(self, _: str) -> dict[str, str]:
        return {"ETag": hashlib.sha256(self.data).hexdigest()}

    def open(self, *_: Any) -> "_Flaky":
        self.opened += 1
        return self

    def seek(self, position: int) -> None:
        self.position = position

    def read(self, size: int) -> bytes:
        self.reads += 1
        if self.reads % 2 == 0:
            raise OSError("connection reset")
        found = self.data[self.position : self.position + min(size, 40)]
        self.position += len(found)
        return found


def test_a_broken_connection_is_taken_up_where_it_was(monkeypatch: pytest.MonkeyPatch):
    data = b"".join(b'{"text": "%d"}\n' % k for k in range(200))
    flaky = _Flaky(data)
    monkeypatch.setattr(fsspec, "url_to_fs", lambda _: (flaky, ""))
    monkeypatch.setattr("curation.reading.remote.FIRST_WAIT_SECONDS", 0.0)
    assert read("memory://x/a.jsonl", 300, text_column="text")["text"] == [str(k) for k in range(200)]
    assert flaky.opened > 10


class _Endless(_Flaky):
    """A remote file whose length the server does not say, so that it cannot be read from a place on."""

    calls = 0

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.size = None

    def open(self, *_: Any) -> "_Endless":
        self.position = 0
        return self

    def seek(self, position: int) -> None:
        if position != self.position:
            raise ValueError("Cannot seek streaming HTTP file")

    def read(self, size: int) -> bytes:
        _Endless.calls += 1
        if _Endless.calls % 4 == 0:
            raise OSError("connection reset")
        found = self.data[self.position : self.position + size]
        self.position += len(found)
        return found


def test_a_remote_file_of_unknown_length_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.reading.remote.FIRST_WAIT_SECONDS", 0.0)
    texts = [str(k) for k in range(50)]
    lines = b"".join(b'{"text": "%b"}\n' % text.encode() for text in texts)
    table = pa.table({"text": texts})
    for name in ("a.arrow", "a.parquet"):
        with (pa.ipc.new_stream if name == "a.arrow" else pq.ParquetWriter)(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "a.csv").write_text("\n".join(["text", *texts]))
    monkeypatch.setattr(fsspec, "url_to_fs", lambda url: (_Endless((tmp_path / Path(url).name).read_bytes()), ""))
    for name in ("a.jsonl", "a.jsonl.gz", "a.csv", "a.arrow"):
        (file,) = find_files([Input(path=f"gs://x/{name}")])
        assert file.bytes == -1
        assert read(f"gs://x/{name}", 300, 100)["text"] == texts, name
    assert read("gs://x/a.parquet")["text"] == texts  # of a copy


def test_a_connection_that_stays_broken_is_one_message(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(fsspec, "url_to_fs", refuse)
    monkeypatch.setattr("curation.reading.remote.FIRST_WAIT_SECONDS", 0.0)
    with pytest.raises(InputError, match=r"s3://bucket/a\.jsonl: ConnectionError, in 5 tries"):
        read("s3://key:secret@bucket/a.jsonl")
    monkeypatch.setattr(answers, "FIRST_SECONDS", -1)
    with pytest.raises(InputError, match=r"s3://bucket/a\.jsonl: ConnectionError, in 1 try\."):
        find_files([Input(path="s3://key:secret@bucket/a.jsonl")])
    with pytest.raises(InputError, match="in 5 tries"):  # the plan knows it, so it has answered before
        RemoteFile("s3://bucket/a.jsonl", (10, "version"))


def test_the_address_that_is_awaited_is_named(monkeypatch: pytest.MonkeyPatch):
    said, named = Event(), list[str]()
    monkeypatch.setattr(answers, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(answers.log, "warning", lambda *parts: (named.extend(parts), said.set()))
    with answers.awaited("s3://bucket/a.jsonl"):
        assert said.wait(60)
    assert named[1] == "s3://bucket/a.jsonl"


def test_an_answer_of_a_server_with_a_wrong_number_is_one_message(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fsspec, "url_to_fs", lambda _: int("9" * 5000))
    with pytest.raises(InputError, match=r"ftp://x/a\.jsonl cannot be opened: "):
        read("ftp://user:secret@x/a.jsonl")
