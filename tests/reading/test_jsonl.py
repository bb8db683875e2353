# SPDX-License-Identifier: Apache-2.0
"""Readers. For JSON Lines the kernel may take a line only where orjson accepts it and gives the same text and id."""

import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.contract import ID, ROW, TEXT
from curation.base.errors import InputError
from curation.kernels import jsonl
from curation.reading import probe, read_documents
from curation.reading.lines import BYTE_ORDER_MARK, parse_record
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.reading.streams import DECODED_STEP

BATCH_BYTES = 1 << 20

GOOD = [
    b'{"text": "a"}',
    b'{"id": "x", "text": "a"}',
    b'{"text":"a","id":"x"}',
    b' \t{ "text" : "a" , "id" : "x" } \r',
    b'{"id": 7, "text": "a"}',
    b'{"id": 0, "text": "a"}',
    b'{"id": -7, "text": "a"}',
    b'{"id": -0, "text": "a"}',
    b'{"id": 123456789012345, "text": "a"}',
    b'{"id": 1234567890123456, "text": "a"}',
    b'{"id": 18446744073709551615, "text": "a"}',
    b'{"id": -9223372036854775808, "text": "a"}',
    b'{"id": null, "text": "a"}',
    b'{"id": "", "text": ""}',
    b'{"text": "a", "other": [1, 2.5, -3, 1e5, 1E-5, 0.1, {"text": "no", "id": {}}, [], {}, true, false, null]}',
    rb'{"text": "q\" b\\ s\/ \b\f\n\r\t \u0041 \u00e9 \u6f22 \ud83d\ude42 \u0000"}',
    rb'{"t\u0065xt": "escaped key"}',
    rb'{"text": "first", "t\u0065xt": "escaped duplicate"}',
    rb'{"\u0069d": "escaped id", "text": "a"}',
    b'{"text": "first", "text": "second"}',
    b'{"text": 1, "text": "second"}',
    b'{"id": "first", "id": "second", "text": "a"}',
    b'{"id": null, "id": "second", "text": "a"}',
    b'{"id": "first", "id": null, "text": "a"}',
    b'{"id": 1, "text": "a", "id": 2}',
    '{"text": "é漢🙂\u2028\u0085\ufeff\x7f", "id": "漢"}'.encode(),
    '{"ключ": "é", "text": "a", "🙂": 1}'.encode(),
    b'{"": "", "text": "a"}',
    b'{"text": "a", "n": 123456789012345678901234567890}',
    b'{"text": "a", "n": -0.0}',
    b'{"text": "a", "n": 0.12345678901234567890}',
    b'{"text": "a", "n": ' + b"[" * 59 + b"]" * 59 + b"}",
    b'{"text": "a", "n": ' + b"[" * 61 + b"]" * 61 + b"}",
    b'{"text": "a", "n": ' + b'{"k":' * 200 + b"1" + b"}" * 200 + b"}",
    b'{"text": "' + b"x" * 7 + b'"}',
    b'{"text": "' + b"x" * 8 + b'\\n"}',
    b'{"text": "1234567\xc3\xa9"}',
    b'{"texts": "no", "tex": "no", "text": "a"}',
]

BAD = [
    b"{}",
    b"null",
    b"1",
    b'"text"',
    b"[]",
    b'["text", "a"]',
    b'[{"text": "a"}]',
    b'{"id": 1}',
    b'{"text": null}',
    b'{"text": 1}',
    b'{"text": true}',
    b'{"text": ["a"]}',
    b'{"text": {"text": "a"}}',
    b'{"text": "a", "text": 1}',
    b'{"text": "a", "id": true}',
    b'{"text": "a", "id": 1.0}',
    b'{"text": "a", "id": 1e3}',
    b'{"text": "a", "id": []}',
    b'{"text": "a", "id": {}}',
    b'{"text": "a", "id": 007}',
    b'{"text": "a", "id": -}',
    b'{"text": "a"} {"text": "b"}',
    b'{"text": "a"}{"text": "b"}',
    b'{"text": "a"},',
    b'{"text": "a"',
    b'{"text": "a',
    b'{"text": ',
    b'{"text"',
    b"{",
    b'{"text": "a",}',
    b'{,"text": "a"}',
    b'{"text": "a", "n": [1,]}',
    b'{"text": "a", "n": [,1]}',
    b'{"text": "a", "n": [1 2]}',
    b'{"text": "a", "n": [1}',
    b'{"text": "a", "n": {"k": 1]}',
    b'{"text": "a", "n": {1: 1}}',
    b'{"text": "a", "n": {"k"}}',
    b'{"text": "a" "n": 1}',
    b'{"text" "a"}',
    b"{'text': 'a'}",
    b'{text: "a"}',
    b'{"text": "a", "n": NaN}',
    b'{"text": "a", "n": Infinity}',
    b'{"text": "a", "n": -Infinity}',
    b'{"text": "a", "n": 1e999}',
    b'{"text": "a", "n": .5}',
    b'{"text": "a", "n": 5.}',
    b'{"text": "a", "n": +5}',
    b'{"text": "a", "n": 0x10}',
    b'{"text": "a", "n": 1e}',
    b'{"text": "a", "n": trux}',
    b'{"text": "a", "n": nullx}',
    b'{"text": "a", "n": True}',
    rb'{"text": "\ud800"}',
    rb'{"text": "\udc00"}',
    rb'{"text": "\ud83d\u0041"}',
    rb'{"text": "\ud83dx"}',
    rb'{"text": "\ud83d"}',
    rb'{"text": "a", "\ud800": 1}',
    rb'{"text": "a", "n": "\ud800"}',
    rb'{"text": "\x41"}',
    rb'{"text": "\u12"}',
    rb'{"text": "\u12g4"}',
    rb'{"text": "\'"}',
    b'{"text": "\\"}',
    b'{"text": "a\x00b"}',
    b'{"text": "a\tb"}',
    b'{"text": "a\x1fb"}',
    b'{"text": "a"}\x00',
    b"\x00",
    b'{"text": "\xff"}',
    b'{"text": "\xc3"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "\xf4\x90\x80\x80"}',
    b'{"text": "\xc0\x80"}',
    b'{"text": "\xe0\x80\x80"}',
    b'{"text": "a", "n": "\xff"}',
    b'{"text": "a", "\xff": 1}',
    b'{"text": "a"} // comment',
    BYTE_ORDER_MARK + b'{"text": "a"}',
    b'{"text": "a", "n": ' + b"[" * 1500 + b"]" * 1500 + b"}",
    b"\x0c",
    b"\xc2\xa0",
    b"plain words",
]

BLANK = [b"", b" ", b"\t", b"\r", b" \t\r "]


class Found(NamedTuple):
    """What a reading gave: (row, text, id) of each document, (row, line, offset, error) of each rejected record."""

    documents: list[tuple[int, str, str | None]]
    rejected: list[tuple[int, int, int, str]]
    rows: int
    lines: int


def source_file(path: Path, **changes: Any) -> SourceFile:
    suffixes = {".gz": "gzip", ".zst": "zstd"}
    values = {
        "path": str(path),
        "source": "input",
        "format": "parquet" if path.suffix == ".parquet" else "jsonl",
        "compression": suffixes.get(path.suffix, ""),
        "bytes": path.stat().st_size,
        "modified_ns": 0,
        "text_column": "text",
        "id_column": "id",
    }
    return SourceFile(**values | changes)


def read(file: SourceFile, slice_bytes: int = 1 << 30, batch_bytes: int = BATCH_BYTES) -> Found:
    """All slices of a file put together: rows and lines counted through, as a run does."""
    documents: list[tuple[int, str, str | None]] = []
    rejected: list[tuple[int, int, int, str]] = []
    rows = lines = 0
    for piece in plan_slices([file], slice_bytes):
        first_row, first_line = rows, lines
        for batch in read_documents(piece, batch_bytes):
            batch.table.validate(full=True)
            columns = (batch.table.column(name).to_pylist() for name in (ROW, TEXT, ID))
            documents += [(first_row + row, text, id_) for row, text, id_ in zip(*columns, strict=True)]
            for entry in batch.rejected:
                line = entry.line + (first_line if entry.offset >= 0 else 0)
                rejected.append((first_row + entry.row, line, entry.offset, entry.error))
            assert batch.rows == len(batch.table) + len(batch.rejected)
            rows += batch.rows
            lines += batch.lines
    return Found(documents, rejected, rows, lines)


def expected(data: bytes, file: SourceFile) -> Found:
    """The law: every line through orjson."""
    documents: list[tuple[int, str, str | None]] = []
    rejected: list[tuple[int, int, int, str]] = []
    skipped = len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0
    row, offset = 0, skipped
    lines = data[skipped:].split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    for number, line in enumerate(lines):
        if line.strip(b" \t\r"):
            try:
                id_, text = parse_record(line, file)
                documents.append((row, text, id_))
            except ValueError as error:
                rejected.append((row, number, offset, str(error)))
            row += 1
        offset += len(line) + 1
    return Found(documents, rejected, row, len(lines))


def written(path: Path, data: bytes) -> SourceFile:
    path.write_bytes(data)
    return source_file(path)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that Hypothesis writes again for every example."""
    return tmp_path_factory.mktemp("lines") / "lines.jsonl"


def parse_one(line: bytes, text_key: str = "text", id_key: str = "id") -> tuple[int, bytes, bytes | None]:
    """(status, text, id) that the kernel gives one line."""
    data = np.frombuffer(line, np.uint8)
    count = jsonl.count_lines(data, 0, len(data))
    assert count == 1
    texts, ids = np.empty(len(data), np.uint8), np.empty(len(data), np.uint8)
    starts, text_ends, id_ends = (np.zeros(2, np.int64) for _ in range(3))
    status, valid = np.empty(1, np.uint8), np.empty(1, np.bool_)
    keys = [np.frombuffer(key.encode(), np.uint8) for key in (text_key, id_key)]
    jsonl.parse_lines(data, 0, len(data), *keys, starts, status, texts, text_ends, ids, id_ends, valid)
    return int(status[0]), texts[: text_ends[1]].tobytes(), ids[: id_ends[1]].tobytes() if valid[0] else None


# The kernel against orjson


@pytest.mark.parametrize("line", GOOD)
def test_documents_are_read_as_orjson_reads_them(tmp_path: Path, line: bytes):
    file = written(tmp_path / "a.jsonl", line)
    id_, text = parse_record(line, file)
    assert read(file) == Found([(0, text, id_)], [], 1, 1)


@pytest.mark.parametrize("line", BAD)
def test_what_is_no_document_is_rejected_with_orjsons_words(tmp_path: Path, line: bytes):
    file = written(tmp_path / "a.jsonl", b"\n" + line)
    with pytest.raises(ValueError, match=r"\S") as error:
        parse_record(line, file)
    assert read(file) == Found([], [(0, 1, 1, str(error.value))], 1, 2)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_only_python_writes_are_named(tmp_path: Path, number: str):
    file = written(tmp_path / "a.jsonl", f'{{"n": [{number}], "text": "NaN"}}'.encode())
    reason = rf"^not valid JSON: {number.strip('-')} is no JSON value: line 1 column \d+\. Write null instead$"
    with pytest.raises(ValueError, match=reason):
        parse_record(Path(file.path).read_bytes(), file)


def test_usual_lines_need_no_orjson():
    assert parse_one(b'{"id": "x", "text": "a\\n\xc3\xa9", "n": [1, {"k": null}]}') == (
        jsonl.PLAIN,
        b"a\n\xc3\xa9",
        b"x",
    )
    assert parse_one(b'{"text": "", "id": 12}') == (jsonl.PLAIN, b"", b"12")
    assert parse_one(b'{"text": "a", "id": null}') == (jsonl.PLAIN, b"a", None)
    assert [parse_one(line)[0] for line in BLANK[1:]] == [jsonl.BLANK] * 4


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n", b"\n \t\r\n"])
@pytest.mark.parametrize("last", [b"", b"\n", b"\n\n"])
def test_all_lines_of_one_file(tmp_path: Path, end: bytes, last: bytes):
    lines = [line for pair in zip(BAD, GOOD * 3, strict=False) for line in pair]
    data = end.join([*lines, *BLANK]) + last
    file = written(tmp_path / "a.jsonl", data)
    found = read(file)
    assert found == expected(data, file)
    assert len(found.documents) >= len(GOOD) and len(found.rejected) >= len(BAD)


def names_and_lines() -> list[tuple[str, str, bytes]]:
    line = '{"текст": "t", "номер": "n", "text": "a", "id": "b", "": "c", "a b": "d", "q\\"": "e", "é": 1}'.encode()
    names = ("текст", "номер", "text", "id", "", "a b", 'q"', "é", "e\u0301", "missing")
    return [(text, id_, line) for text in names for id_ in names if text != id_]


def test_any_name_may_be_the_text_or_the_id(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    for text, id_, line in names_and_lines():
        file = written(path, line)
        file = source_file(path, text_column=text, id_column=id_)
        assert read(file) == expected(line, file), (text, id_)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "\x00", '"\\', "\u2028", "🙂", 10**25, -0.0, 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["text", "id", "text", "id", "other", "té", ""]) | st.text(max_size=4)


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """A line of JSON as some program may have written it, with one key twice now and then."""
    pairs = draw(st.lists(st.tuples(NAMES, JSON_VALUES | st.text()), max_size=5))
    if draw(st.booleans()):
        pairs.append(("text", draw(st.text())))
    ascii_only = draw(st.booleans())
    gap = draw(st.sampled_from(["", " ", "\t", " \r "]))
    dump = [
        json.dumps(key, ensure_ascii=ascii_only) + gap + ":" + gap + json.dumps(value, ensure_ascii=ascii_only)
        for key, value in pairs
    ]
    return (gap + "{" + gap + ("," + gap).join(dump) + gap + "}" + gap).encode("utf-8", "surrogatepass")


PIECES = (
    b'"', b"\\", b"\\u", b"\\ud83d", b"\\ude42", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\r\n", b"\x00", b"\xff",
    BYTE_ORDER_MARK, b"NaN", b"1e999", b"-", b"0", b"9" * 20, b".5", b'"text":"a"', b'"id":1', b"t\\u0065xt", b" ",
    b"null",
)  # fmt: skip


@st.composite
def mutated_lines(draw: st.DrawFn) -> bytes:
    """A good line after a few accidents: bytes flipped, cut, doubled, put in."""
    line = bytearray(draw(json_lines() | st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(line)))
        to = min(len(line), at + draw(st.integers(0, 6)))
        accident = draw(st.integers(0, 3))
        if accident == 0 and at < len(line):
            line[at] ^= 1 << draw(st.integers(0, 7))
        elif accident == 1:
            del line[at:to]
        elif accident == 2:
            line[at:at] = line[at:to]
        else:
            line[at:at] = draw(st.sampled_from(PIECES))
    return bytes(line)


@given(line=mutated_lines())
def test_plain_means_that_orjson_agrees(scratch: Path, line: bytes):
    line = line.replace(b"\n", b" ") or b" "
    scratch.touch()
    status, text, id_ = parse_one(line)
    if status == jsonl.PLAIN:
        expected_id, expected_text = parse_record(line, source_file(scratch))
        assert (text.decode(), None if id_ is None else id_.decode()) == (expected_text, expected_id)
    assert (status == jsonl.BLANK) == (not line.strip(b" \t\r"))


@given(lines=st.lists(mutated_lines(), max_size=6), last=st.sampled_from([b"", b"\n"]), data=st.data())
def test_mutated_files_read_as_orjson_reads_them(scratch: Path, lines: list[bytes], last: bytes, data: st.DataObject):
    content = b"\n".join(lines) + last
    file = written(scratch, content)
    slice_bytes = data.draw(st.integers(1, len(content) + 1))
    batch_bytes = data.draw(st.integers(1, 40))
    assert read(file, slice_bytes, batch_bytes) == expected(content, file)


# Slices and batches


def made_lines() -> bytes:
    """Lines of very different lengths, bad and blank ones between them."""
    chance = random.Random(3)
    lines = [chance.choice([*GOOD[:12], *BAD[:30], *BLANK]) for _ in range(60)]
    lines[20] = b'{"text": "' + b"long " * 100 + b'"}'
    return b"\n".join(lines)


@pytest.mark.parametrize("slice_bytes", [1, 2, 3, 7, 16, 17, 31, 40, 64, 333, 10**6])
def test_any_cut_gives_the_same(tmp_path: Path, slice_bytes: int):
    data = made_lines()
    file = written(tmp_path / "a.jsonl", data)
    for batch_bytes in (1, 17, 256, BATCH_BYTES):
        assert read(file, slice_bytes, batch_bytes) == expected(data, file)


@pytest.mark.parametrize("start", [b"", BYTE_ORDER_MARK])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_said_of_large_lines_does_not_depend_on_the_cut(tmp_path: Path, suffix: str, start: bytes):
    lines = [b'{"text":"%b"}' % (b"x" * size) for size in (9, 8, 9, 200, 10)] + [b" " * 20, b" " * 21, b'{"text":"c"}']
    path = tmp_path / f"a.jsonl{suffix}"
    data = start + b"\n".join(lines)
    path.write_bytes(gzip.compress(data) if suffix else data)
    file = source_file(path, max_document_bytes=20)
    whole = read(file)
    assert [(row, len(text)) for row, text, _ in whole.documents] == [(0, 9), (1, 8), (2, 9), (6, 1)]
    too_large = "larger than max_document_bytes (20)"
    assert [(line, error) for _, line, _, error in whole.rejected] == [(line, too_large) for line in (3, 4, 6)]
    for slice_bytes in (1, 7, 30, 100, 1000):
        for batch_bytes in (1, 2, 3, 5, 20, 21, 22, 50, 1000):
            assert read(file, slice_bytes, batch_bytes) == whole


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n\n", b'{"text": "a"}', b'{"text": "a"}\n', BYTE_ORDER_MARK, b"x"])
@pytest.mark.parametrize("slice_bytes", [1, 2, 5, 1000])
def test_small_files(tmp_path: Path, data: bytes, slice_bytes: int):
    file = written(tmp_path / "a.jsonl", data)
    assert read(file, slice_bytes) == expected(data, file)


@pytest.mark.parametrize("slice_bytes", [1, 3, 4, 20, 1000])
def test_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, slice_bytes: int):
    data = BYTE_ORDER_MARK + b'{"text": 1}\n{"text": "a"}\n' + BYTE_ORDER_MARK + b'{"text": "b"}\n'
    file = written(tmp_path / "a.jsonl", data)
    found = read(file, slice_bytes, 1)
    assert found == expected(data, file)
    assert [offset for _, _, offset, _ in found.rejected] == [3, 29]


@pytest.mark.slow("long lines are read in bounded memory")
@pytest.mark.parametrize(("slice_bytes", "batch_bytes"), [(1 << 30, 1000), (100_000, 4096), (999_983, BATCH_BYTES)])
def test_a_line_of_a_megabyte(tmp_path: Path, slice_bytes: int, batch_bytes: int):
    text = "".join(random.Random(1).choices('ab "\\é🙂\n', k=300_000)) * 2
    data = b'{"text": "before"}\n' + json.dumps({"text": text}).encode() + b'\n{"text": "after"}'
    file = written(tmp_path / "a.jsonl", data)
    assert len(data) > 1 << 20
    assert [document[1] for document in read(file, slice_bytes, batch_bytes).documents] == ["before", text, "after"]


# Compressed files

_BYTES = random.Random(1)
LINES = b"".join(json.dumps({"id": k, "text": _BYTES.randbytes(60).hex()}).encode() + b"\n" for k in range(4000))


LOOKAHEAD = 16  # bytes that a decoder may keep until it has seen what follows


def as_zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESS = {".gz": gzip.compress, ".zst": as_zstd}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("batch_bytes", [1000, BATCH_BYTES])
@pytest.mark.parametrize("members", [1, 3])
def test_compressed_files_read_as_the_plain_one(tmp_path: Path, suffix: str, batch_bytes: int, members: int):
    cuts = [len(LINES) * k // members for k in range(members + 1)]
    parts = [COMPRESS[suffix](LINES[low:high]) for low, high in pairwise(cuts)]
    plain = written(tmp_path / "a.jsonl", LINES)
    packed = written(tmp_path / f"a.jsonl{suffix}", b"".join(parts))
    assert read(packed, 100, batch_bytes) == read(plain) == expected(LINES, plain)


def test_gzip_members_may_be_empty_and_padded(tmp_path: Path):
    parts = [gzip.compress(b""), gzip.compress(LINES[:1000]), bytes(70_000), gzip.compress(LINES[1000:]), bytes(3)]
    file = written(tmp_path / "a.jsonl.gz", b"".join(parts))
    assert read(file) == expected(LINES, file)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_empty_compressed_files(tmp_path: Path, suffix: str):
    for data in (b"", COMPRESS[suffix](b"")):
        assert read(written(tmp_path / f"a.jsonl{suffix}", data)) == Found([], [], 0, 0)


def check_damaged(file: SourceFile, available: int) -> Found:
    """What stands before the damage is read, and one record more names it."""
    found = read(file)
    row, line, offset, error = found.rejected[-1]
    assert available - LOOKAHEAD <= offset <= available
    whole = expected(LINES[:offset], file)
    assert found.documents == whole.documents
    assert found.rejected[:-1] == whole.rejected and len(whole.rejected) <= 1
    assert (row, line) == (whole.rows, whole.lines)
    assert error.startswith("the file is damaged or cut off: ")
    assert read(file, batch_bytes=1000) == found
    return found


@pytest.mark.parametrize("share", [0.01, 0.3, 0.99, 0.99999])
def test_truncated_gzip_gives_all_that_stands_before(tmp_path: Path, share: float):
    import zlib

    data = gzip.compress(LINES)[: int(len(gzip.compress(LINES)) * share)]
    available = len(zlib.decompressobj(31).decompress(data))
    found = check_damaged(written(tmp_path / "a.jsonl.gz", data), available)
    assert len(found.documents) >= int(share * 3800) - 20


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_truncated_zstd_gives_all_whole_blocks(tmp_path: Path, blocks: int):
    content = as_zstd(LINES[: (blocks << 17) + 5000])[:-1]  # a block of 2^17 bytes is compressed at once
    found = check_damaged(written(tmp_path / "a.jsonl.zst", content), blocks << 17)
    assert bool(found.documents) == bool(blocks)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_rubbish_behind_and_instead_of_compressed_data(tmp_path: Path, suffix: str):
    found = read(written(tmp_path / f"a.jsonl{suffix}", COMPRESS[suffix](LINES) + b"rubbish behind the end"))
    lost = 4000 - len(found.documents)  # zstd: in the last step
    assert 0 <= lost * len(LINES) / 4000 <= (DECODED_STEP if suffix == ".zst" else 0) and found.rejected
    found = read(written(tmp_path / f"a.jsonl{suffix}", b'{"text": "not compressed at all"}\n'))
    assert found.documents == [] and "damaged" in found.rejected[0][3]


def test_flipped_bits_in_gzip_are_noticed(tmp_path: Path):
    whole = gzip.compress(LINES)
    for place in (0, 2, len(whole) // 3, len(whole) // 2, len(whole) - 6):
        data = bytearray(whole)
        data[place] ^= 0x20
        found = read(written(tmp_path / "a.jsonl.gz", bytes(data)))
        assert "the file is damaged or cut off" in found.rejected[-1][3], place
        assert found.rows == len(found.documents) + len(found.rejected)


# Looking before running


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_a_column_that_no_record_has_is_found_before_the_run(tmp_path: Path, suffix: str):
    pack = COMPRESS.get(suffix, bytes)
    file = written(tmp_path / f"a.jsonl{suffix}", pack(b'{"body": "a", "id": 1}\n' * 5000))
    with pytest.raises(InputError, match=r"no field 'text' in the first 100 records\. They have \['body', 'id'\]"):
        probe(file)
    for content in (b"", b"\n\n", b'{"body": 1}\n{"text": "a"}\n', b"rubbish\n", b'{"text": null}\n'):
        probe(written(tmp_path / f"a.jsonl{suffix}", pack(content)))


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("start", [b"", BYTE_ORDER_MARK])
def test_json_that_is_not_in_lines_is_refused(tmp_path: Path, suffix: str, start: bytes):
    pack = COMPRESS.get(suffix, bytes)
    records = [{"text": "a", "more": {"k": 1}}, {"text": "b", "more": []}] * 3
    array, whole = json.dumps(records), json.dumps(records, indent=1)
    for content in (array, whole, f" \n{array}", "[]", "[\n]\n", "[1]\n[2]\n", json.dumps([*records, "x" * (2 << 20)])):
        with pytest.raises(
            InputError, match=r"begins with a JSON array, expected one object per line\. .*jq -c '\.\[\]'"
        ):
            probe(written(tmp_path / f"a.json{suffix}", pack(start + content.encode())))
    for content in (json.dumps(records[0], indent=1), '"a"\n"b"\n', "1\n", '"a"', "id,text\n1,a\n"):
        with pytest.raises(InputError, match=r"none of its first \d lines is a JSON object, expected one per line"):
            probe(written(tmp_path / f"a.json{suffix}", pack(start + content.encode())))
    for content in ('{"te', "", "\n", "rubbish", '\n{"text": "a"\n{"text": "b"\n', 'rubbish\n{"text": "a"}\n'):
        probe(written(tmp_path / f"a.json{suffix}", pack(start + content.encode())))


@pytest.mark.parametrize("first", ["[INFO] start", "[", "[ ] x", "[2024-05-18] start", "[1]", "[]", "[error", "[-"])
def test_a_line_that_looks_like_an_array_in_front_of_json_lines(tmp_path: Path, first: str):
    lines = '{"text": "a"}\n{"text": "b"}\n'
    assert probe(written(tmp_path / "a.jsonl", f"{first}\n{lines}".encode())).text_column == "text"


# Parquet


def parquet(path: Path, columns: dict[str, Any] | pa.Table, **options: Any) -> SourceFile:
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return source_file(path)


def test_row_groups_are_slices(tmp_path: Path):
    texts = [f"text {k}" if k % 7 else None for k in range(100)]
    file = parquet(tmp_path / "a.parquet", {"text": texts, "id": range(100), "n": range(100)}, row_group_size=9)
    whole = read(file)
    assert whole.documents == [(k, texts[k], str(k)) for k in range(100) if k % 7]
    assert whole.rejected == [(k, k, -1, "text is null") for k in range(0, 100, 7)]
    assert len(plan_slices([file], 1)) == 12
    for slice_bytes in (1, 300, 10_000):
        for batch_bytes in (1, 100, BATCH_BYTES):
            assert read(file, slice_bytes, batch_bytes) == whole


def strings_of(pieces: list[bytes]) -> pa.Array:
    """A string column of these bytes, which need not be UTF-8."""
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(pieces), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
    )


def test_bytes_that_are_not_utf8_are_rejected(tmp_path: Path):
    texts = [b"good", b"\xff", b"", b"cut \xc3", b"\xed\xa0\x80", "é漢🙂".encode(), b"a\x00b", b"\xe9 latin"]
    file = parquet(tmp_path / "a.parquet", {"text": strings_of(texts)})
    found = read(file)
    assert [text for _, text, _ in found.documents] == ["good", "", "é漢🙂", "a\x00b"]
    assert found.rejected == [(k, k, -1, "text is not valid UTF-8") for k in (1, 3, 4, 7)]
    file = parquet(tmp_path / "b.parquet", {"text": ["a"] * 3, "id": strings_of([b"x", b"\xff", b""])})
    found = read(file)
    assert found.documents == [(0, "a", "x"), (2, "a", "")]
    assert found.rejected == [(1, 1, -1, "id is not valid UTF-8")]


TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
def test_every_kind_of_string_column(tmp_path: Path, kind: pa.DataType):
    texts = ["a", None, "", "漢字 and more than twelve bytes", "a"]
    column = pa.array(texts, pa.string()).cast(kind)
    file = parquet(tmp_path / "a.parquet", {"text": column, "id": column}, row_group_size=2)
    found = read(file)
    assert found.documents == [(k, text, text) for k, text in enumerate(texts) if text is not None]
    assert found.rejected == [(1, 1, -1, "text is null")]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64()], ids=str)
def test_integer_ids(tmp_path: Path, kind: pa.DataType):
    ids = [1, None, 127] if kind != pa.uint64() else [1, None, 2**64 - 1]
    file = parquet(tmp_path / "a.parquet", {"id": pa.array(ids, kind), "text": ["a", "b", "c"]})
    assert [id_ for _, _, id_ in read(file).documents] == [None if id_ is None else str(id_) for id_ in ids]


def test_parquet_without_ids_and_without_rows(tmp_path: Path):
    assert read(parquet(tmp_path / "a.parquet", {"text": ["a"]})).documents == [(0, "a", None)]
    for columns in ({"text": pa.array([], pa.string())}, {"text": pa.array([], pa.string()), "id": pa.array([], "i8")}):
        file = parquet(tmp_path / "b.parquet", columns)
        assert read(file) == Found([], [], 0, 0) and len(plan_slices([file], 10)) == 1
    with pq.ParquetWriter(tmp_path / "c.parquet", pa.schema({"text": pa.string()})):
        pass
    assert read(source_file(tmp_path / "c.parquet")) == Found([], [], 0, 0)


WRONG_PARQUET = {
    "column 'text' not found in .*; it has \\['body', 'id'\\]. Set text_column": {"body": ["a"], "id": [1]},
    "column 'text' .* is int64, expected strings": {"text": [1]},
    "column 'text' .* is list": {"text": [["a"]]},
    "column 'id' .* is double, expected strings or integers": {"text": ["a"], "id": [1.5]},
    "has 2 columns named 'text'": pa.table([["a"], ["b"]], names=["text", "text"]),
    "has 2 columns named 'id'": pa.table([["a"], [1], [2]], names=["text", "id", "id"]),
}


@pytest.mark.parametrize("message", WRONG_PARQUET)
def test_wrong_parquet_is_refused_before_the_run(tmp_path: Path, message: str):
    file = parquet(tmp_path / "a.parquet", WRONG_PARQUET[message])
    with pytest.raises(InputError, match=message):
        probe(file)


def test_what_is_no_parquet_is_refused(tmp_path: Path):
    whole = tmp_path / "whole.parquet"
    parquet(whole, {"text": ["a" * 1000] * 50})
    for data in (b"", b"PAR1", b'{"text": "a"}', whole.read_bytes()[:-9]):
        path = tmp_path / "a.parquet"
        path.write_bytes(data)
        with pytest.raises(InputError, match="not a readable Parquet file"):
            probe(source_file(path))


# Small files, which are parsed together


CONTENTS = st.lists(
    st.sampled_from([*GOOD[:12], *BAD[:12], b"", b" ", b"\r", b"not json", BYTE_ORDER_MARK, b'{"text": "CRLF"}\r']),
    max_size=4,
)


@given(
    contents=st.lists(st.tuples(st.booleans(), CONTENTS, st.booleans()), min_size=2, max_size=8),
    batch_bytes=st.sampled_from([1, 64, BATCH_BYTES]),
)
def test_small_files_are_read_as_one_after_the_other(
    scratch: Path, contents: list[tuple[bool, list[bytes], bool]], batch_bytes: int
):
    files = []
    for number, (marked, lines, ended) in enumerate(contents):
        data = BYTE_ORDER_MARK * marked + b"\n".join(lines) + b"\n" * ended
        files.append(written(scratch.with_name(f"{number}.jsonl"), data))
    [piece] = plan_slices(files, 1 << 30)
    assert len(piece.ranges) == len(files)
    documents, rejected, rows, lines = [], [], 0, 0
    for batch in read_documents(piece, batch_bytes):
        batch.table.validate(full=True)
        documents += zip(*(batch.table.column(name).to_pylist() for name in (ROW, TEXT, ID)), strict=True)
        rejected += [tuple(entry) for entry in batch.rejected]
        rows, lines = rows + batch.rows, lines + batch.lines
    wanted_documents, wanted_rejected, before, all_lines = [], [], 0, 0
    for part, file in enumerate(files):
        found = expected(Path(file.path).read_bytes(), file)
        wanted_documents += [(before + row, text, id_) for row, text, id_ in found.documents]
        wanted_rejected += [(before + row, *rest, part) for row, *rest in found.rejected]
        before, all_lines = before + found.rows, all_lines + found.lines
    assert (documents, rejected, rows, lines) == (wanted_documents, wanted_rejected, before, all_lines)


def test_files_with_other_columns_are_not_parsed_together(tmp_path: Path):
    files = [
        probe(msgspec.structs.replace(written(tmp_path / f"{number}.jsonl", data), text_column=""))
        for number, data in enumerate([b'{"text": "a"}\n', b'{"content": "b"}\n', b'{"content": "c"}\n'])
    ]
    [piece] = plan_slices(files, 1 << 30)
    [batch] = read_documents(piece, 1 << 20)
    assert batch.table.column(TEXT).to_pylist() == ["a", "b", "c"] and batch.table.column(ROW).to_pylist() == [0, 1, 2]
