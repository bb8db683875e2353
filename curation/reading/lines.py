# SPDX-License-Identifier: Apache-2.0
"""Parses JSON Lines, with the same results as orjson.

A kernel parses lines without unusual content at 1.3 GB/s on one core, without Python objects or the GIL. orjson parses
all other lines; with Arrow's conversion it reaches 430 MB/s. A byte order mark at the start of a file is not part of
the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from curation.base.contract import ROW, Rejected
from curation.kernels import jsonl
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.changes import open_planned
from curation.reading.documents import LINES_AT_ONCE, Documents, schema_of, shown_names, too_large, type_problem
from curation.reading.locations import locations_after, locations_of_files
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.streams import new_bytes, read_after, read_chunk

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SMALL_FILE_BYTES = 1 << 20  # files of up to this size are parsed together: 15 us each instead of 300
MISSING = object()
NOTHING = np.empty(0, np.uint8)
BLANKS = b" \t\r\n"
LAST_SHARE = 8  # of a block: a smaller rest of a range is read with the block before it
LAST_STEP = 1 << 16  # bytes read after a range to find the end of its last line
EXPONENT = orjson.dumps(1e300).decode()[1:-3]  # as orjson writes it: e+ or e
LONG_FLOAT = re.compile(r"\de\+?(?:1[89]|[2-9]\d|[1-9]\d\d)(?!\d)")  # 1e18 or more
LONG_DIGITS = 19
MAX_KERNEL_COLUMNS = 64  # with more carried columns, orjson is used: the kernel reads all lines once per column
NO_JSON = re.compile("NaN|Infinity")  # Python's `json.dumps` writes them, but they are not JSON


BlockParser = Callable[[np.ndarray, int, SourceFile, int, int], Iterator[Documents]]  # as `parse_block`


class Block(NamedTuple):
    """Whole lines of a file.

    offset          position of the first line in bytes of the decompressed file
    error           damage after the lines, or why the line after them was skipped; "" for neither
    skipped_lines   1 if a line was skipped, else 0
    """

    data: np.ndarray  # uint8
    offset: int
    error: str = ""
    skipped_lines: int = 0


def read_jsonl(
    file_range: FileRange,
    batch_bytes: int,
    parse: BlockParser | None = None,
    empty: Callable[[int], np.ndarray] = new_bytes,
) -> Iterator[Documents]:
    """Yield the documents of the lines that begin in a range, about `batch_bytes` of the file at a time.

    Lines that are no documents are rejected, and so is the rest of a damaged file. `parse` replaces `parse_block`. The
    `table` of its documents may be a frame of an engine. `empty` makes the arrays (uint8) for the bytes of the file.
    """
    with open_planned(file_range.file) as stream:
        yield from read_stream(stream, file_range, batch_bytes, parse, empty)


def read_stream(
    stream: Any,
    file_range: FileRange,
    batch_bytes: int,
    parse: BlockParser | None = None,
    empty: Callable[[int], np.ndarray] = new_bytes,
) -> Iterator[Documents]:
    """Yield the documents of a range of decompressed bytes; see `read_jsonl`."""
    row = line = 0
    for block in _line_blocks(stream, file_range, batch_bytes, empty):
        mark = _mark_length(block.data) if block.offset == 0 else 0
        data, offset = block.data[mark:], block.offset + mark
        for documents in (parse or parse_block)(data, offset, file_range.file, row, line):
            row += documents.rows
            line += documents.lines
            yield documents
            del documents  # do not keep a batch alive while the caller waits for the next
        if block.error:
            reject = Rejected(row, line, block.offset + len(block.data), block.error)
            yield Documents(schema_of(file_range.file.carried).empty_table(), [reject], 1, block.skipped_lines)
            row += 1
            line += block.skipped_lines
        del block, data  # nor a block


def read_files(file_ranges: Sequence[FileRange], batch_bytes: int) -> Iterator[Documents]:
    """Yield the documents of small files, about `batch_bytes` at a time. They are the same as those of `read_jsonl`."""
    row = first = 0
    while first < len(file_ranges):
        texts: list[bytes] = []
        starts, mark_lengths = [0], []  # per file: its start in the block, and the bytes of its byte order mark
        while first + len(texts) < len(file_ranges) and starts[-1] < batch_bytes:
            with open_planned(file_ranges[first + len(texts)].file) as stream:
                content = read_chunk(stream, SMALL_FILE_BYTES).data
            text = content.removeprefix(BYTE_ORDER_MARK)
            mark_lengths.append(len(content) - len(text))
            texts.append(text if text.endswith(b"\n") or not text else text + b"\n")
            starts.append(starts[-1] + len(texts[-1]))
        lines_before = np.cumsum([0, *(text.count(b"\n") for text in texts)])
        data = np.frombuffer(b"".join(texts), np.uint8)
        parsed = list(parse_block(data, 0, file_ranges[first].file, row, 0))
        blank = [location for documents in parsed for location in documents.locations]
        locations = locations_of_files(blank, lines_before[:-1].tolist(), row, first)
        for documents in parsed:
            rejected = []
            for entry in documents.rejected:
                index = int(np.searchsorted(starts, entry.offset, side="right")) - 1
                offset = entry.offset - starts[index] + mark_lengths[index]
                rejected.append(
                    entry._replace(line=entry.line - int(lines_before[index]), offset=offset, file_index=first + index)
                )
            yield documents._replace(rejected=rejected, locations=locations)
            row, locations = row + documents.rows, []
        first += len(texts)


def _first_line_start(stream: Any, start: int) -> int:
    """Return the offset of the first line that begins at `start` or later."""
    if start == 0:
        return 0
    position = start - 1
    stream.seek(position)
    while block := stream.read(1 << 16):
        newline = block.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(block)
    return position


def _line_blocks(
    stream: Any, file_range: FileRange, block_bytes: int, empty: Callable[[int], np.ndarray]
) -> Iterator[Block]:
    """Yield blocks of the whole lines that begin in a range. The last line may end after the range."""
    whole = bool(file_range.file.compression) or file_range.file.bytes == UNKNOWN_SIZE
    limit = file_range.file.max_document_bytes
    offset = 0 if whole else _first_line_start(stream, file_range.start)
    if not whole:
        stream.seek(offset)
    rest = NOTHING
    while whole or offset < file_range.stop:
        remaining = block_bytes if whole else file_range.stop + LAST_STEP - offset - len(rest)
        is_last = block_bytes < remaining <= block_bytes + block_bytes // LAST_SHARE
        size = remaining if is_last else min(max(remaining, len(rest)), block_bytes)
        data, damage = read_after(rest, stream, size, empty)
        if damage or len(data) == len(rest):
            if len(data) or damage:
                yield Block(data, offset, damage)
            return
        end = jsonl.end_of_lines(data, 0, len(data))
        if not whole and offset + end >= file_range.stop:
            last = max(file_range.stop - 1 - offset, 0)
            yield Block(data[: jsonl.find_newline(data, last, len(data)) + 1], offset)
            return
        rest = data[end:].copy()  # a view would keep the block
        if end:
            yield Block(data[:end], offset)
        del data
        offset += end
        mark = _mark_length(rest) if offset == 0 else 0
        if len(rest) - mark > limit:
            start = offset + mark
            rest, offset = _skip_line(stream, block_bytes, offset + len(rest))
            yield Block(NOTHING, start, too_large(limit), 1)


def _mark_length(data: np.ndarray) -> int:
    """Return the length of the byte order mark at the start of a file's first bytes: 3 or 0."""
    return len(BYTE_ORDER_MARK) if data[: len(BYTE_ORDER_MARK)].tobytes() == BYTE_ORDER_MARK else 0


def _skip_line(stream: Any, block_bytes: int, offset: int) -> tuple[np.ndarray, int]:
    """Read to the end of a line without storing it. Return the bytes after it in the last block, and their offset."""
    while True:
        fresh, _ = read_after(NOTHING, stream, block_bytes)
        newline = jsonl.find_newline(fresh, 0, len(fresh))
        if newline < len(fresh) or not len(fresh):
            return fresh[newline + 1 :].copy(), offset + min(newline + 1, len(fresh))
        offset += len(fresh)


class _Parsed(NamedTuple):
    """The kernel's result for a block: one entry per line. `status` is uint8, see `curation.kernels.jsonl`."""

    status: np.ndarray
    text: pa.Array
    id: pa.Array


def _parse(data: np.ndarray, starts: np.ndarray, text_column: str, id_column: str) -> _Parsed:
    lines = len(starts) - 1
    status, id_valid = np.empty(lines, np.uint8), np.empty(lines, np.bool_)
    texts, ids = np.empty(len(data), np.uint8), np.empty(len(data), np.uint8)
    text_offsets, id_offsets = np.zeros(lines + 1, np.int64), np.zeros(lines + 1, np.int64)
    keys = [np.frombuffer(name.encode(), np.uint8) for name in (text_column, id_column)]
    jsonl.parse_lines(data, 0, len(data), *keys, starts, status, texts, text_offsets, ids, id_offsets, id_valid)
    return _Parsed(
        status,
        _strings(text_offsets, texts[: text_offsets[-1]]),
        _strings(id_offsets, ids[: id_offsets[-1]].copy(), id_valid),
    )


def _strings(offsets: np.ndarray, data: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    mask = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


def parse_block(data: np.ndarray, offset: int, file: SourceFile, row: int, line: int) -> Iterator[Documents]:
    """Yield the documents of whole lines, LINES_AT_ONCE at a time. `offset`, `row` and `line` are those of the first
    line."""
    for batch, lines in _cut_lines(data):
        documents = parse_lines(batch, lines, offset, file, row, line)
        row, line, offset = row + documents.rows, line + lines, offset + len(batch)
        yield documents
        del documents


def _cut_lines(data: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the data in batches of at most LINES_AT_ONCE whole lines, each with its number of lines."""
    lines = jsonl.count_lines(data, 0, len(data))
    if lines <= LINES_AT_ONCE:
        yield data, lines
        return
    newlines = np.flatnonzero(data == ord("\n"))
    cuts = [0, *(int(end) + 1 for end in newlines[LINES_AT_ONCE - 1 : lines - 1 : LINES_AT_ONCE]), len(data)]
    for start, stop in pairwise(cuts):
        yield data[start:stop], min(LINES_AT_ONCE, lines)
        lines -= LINES_AT_ONCE


def parse_lines(
    data: np.ndarray, lines: int, offset: int, file: SourceFile, first_row: int, first_line: int
) -> Documents:
    """Return the documents of whole lines. `offset`, `first_row` and `first_line` are those of the first line."""
    starts = np.empty(lines + 1, np.int64)
    starts[-1] = len(data)
    parsed = _parse(data, starts, file.text_column, file.id_column)
    status = parsed.status
    sizes = np.diff(starts) - (data[starts[1:] - 1] == ord("\n"))
    status[sizes > file.max_document_bytes] = jsonl.UNUSUAL
    if "." in file.text_column or "." in file.id_column:
        status[status == jsonl.PLAIN] = jsonl.UNUSUAL  # the key may be a dotted path, which only `look_up` follows
    rows = first_row - 1 + np.cumsum(status != jsonl.BLANK)
    columns = [pa.array(rows, pa.int64()), parsed.id, parsed.text]
    types, fields = file.types, file.carried
    if len(fields) > MAX_KERNEL_COLUMNS:
        columns += [pa.nulls(lines, pa.large_string())] * len(fields)
        fields, status[status == jsonl.PLAIN] = {}, jsonl.UNUSUAL
    for column, name in fields.items():
        carried, known = _carried(data, starts, name, status)
        known &= column not in types  # `parse_record` checks the value
        columns.append(carried)
        status[(status == jsonl.PLAIN) & ~known] = jsonl.UNUSUAL
    table = pa.table(columns, schema=schema_of(file.carried))
    rejected: list[Rejected] = []
    if (status != jsonl.PLAIN).any():
        unusual = np.flatnonzero(status == jsonl.UNUSUAL)
        raw = [(int(k), data[starts[k] : starts[k + 1]].tobytes().strip(b"\n")) for k in unusual]
        slow, errors = _parse_unusual(raw, rows, file)
        rejected = [Rejected(int(rows[k]), first_line + k, offset + int(starts[k]), error) for k, error in errors]
        table = table.filter(pa.array(status == jsonl.PLAIN))
        if len(slow):
            table = pa.concat_tables([table, slow]).sort_by(ROW)
    blank = np.flatnonzero(status == jsonl.BLANK) + first_line
    locations = locations_after(blank, first_row, first_line)
    return Documents(table, rejected, lines - len(blank), lines, locations=locations)


def parse_others(
    data: np.ndarray, starts: np.ndarray, status: np.ndarray, offset: int, file: SourceFile, row: int, line: int
) -> Documents:
    """Parse the UNUSUAL lines of a block, after another parser has parsed its PLAIN lines.

    starts, status      first byte of each line and the end of the last line; kind of each line. UNUSUAL is replaced by
                        BLANK for blank lines, and by PLAIN for documents
    offset, row, line   offset, row and number of the first line

    The table of the result has only documents from UNUSUAL lines. The counts of rows and lines and the locations are
    those of all lines.
    """
    lines = [(int(k), data[starts[k] : starts[k + 1]].tobytes()) for k in np.flatnonzero(status == jsonl.UNUSUAL)]
    others = [(k, raw.rstrip(b"\n") + b"\n") for k, raw in lines if raw.strip(BLANKS)]
    numbers = np.array([k for k, _ in others], np.int64)
    status[status == jsonl.UNUSUAL] = jsonl.BLANK
    status[numbers] = jsonl.PLAIN
    rows = row - 1 + np.cumsum(status != jsonl.BLANK)
    text = np.frombuffer(b"".join(raw for _, raw in others), np.uint8)
    parsed = parse_lines(text, len(others), 0, file, 0, 0) if others else None
    rejected = []
    table = schema_of(file.carried).empty_table()
    if parsed is not None:
        table = parsed.table.set_column(
            0, ROW, pa.array(rows[numbers[parsed.table.column(ROW).to_numpy()]], pa.int64())
        )
        errors = [(int(numbers[entry.row]), entry.error) for entry in parsed.rejected]
        rejected = [Rejected(int(rows[k]), line + k, offset + int(starts[k]), error) for k, error in errors]
        status[[k for k, _ in errors]] = jsonl.UNUSUAL
    blank = np.flatnonzero(status == jsonl.BLANK) + line
    return Documents(
        table, rejected, len(status) - len(blank), len(status), locations=locations_after(blank, row, line)
    )


def _carried(data: np.ndarray, starts: np.ndarray, name: str, status: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Return the field `name` of every line (large_string), and per line whether the kernel could read it (bool)."""
    parsed = _parse(data, starts.copy(), name, "")
    return parsed.text, parsed.status == jsonl.PLAIN


def _parse_unusual(
    lines: list[tuple[int, bytes]], rows: np.ndarray, file: SourceFile
) -> tuple[pa.Table, list[tuple[int, str]]]:
    """Parse the lines that the kernel left with orjson. Return their documents, and (line, error) of rejected lines."""
    records: list[tuple[int | str | None, ...]] = []
    errors: list[tuple[int, str]] = []
    for k, raw in lines:
        try:
            records.append((int(rows[k]), *parse_record(raw, file)))
        except ValueError as error:
            errors.append((k, str(error)))
    schema = schema_of(file.carried)
    return pa.table(list(zip(*records, strict=True)) or [()] * len(schema), schema=schema), errors


def look_up(record: dict[str, object], name: str) -> object:
    """Return a field by its name, or by a dotted path into nested objects; MISSING if there is none."""
    if name in record:
        return record[name]
    value: object = record
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


def parse_record(raw: bytes, file: SourceFile) -> tuple[str | None, ...]:
    """Return (id, text, carried columns ...) of one JSON line. Raises ValueError with the reason for a rejection."""
    if len(raw) > file.max_document_bytes:
        raise ValueError(too_large(file.max_document_bytes))
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        number = NO_JSON.match(error.doc, error.pos)
        reason = f"{number[0]} is no JSON value: line 1 column {error.colno}. Write null instead" if number else error
        raise ValueError(f"not valid JSON: {reason}") from None
    if not isinstance(record, dict):
        raise ValueError(f"expected a JSON object, got {_type_name(record)}")
    text = look_up(record, file.text_column)
    if text is MISSING:
        raise ValueError(f"no field {file.text_column!r}; it has {shown_names(list(record))}. Set text_column")
    if not isinstance(text, str):
        raise ValueError(f"field {file.text_column!r} is {_type_name(text)}, expected a string")
    carried = [_as_string(look_up(record, name)) for name in file.carried.values()]
    if any(map(_is_rounded, carried)) or _is_rounded(_as_string(look_up(record, file.id_column))):
        record = json.loads(raw, parse_int=_exact_integer)
        carried = [_as_string(look_up(record, name)) for name in file.carried.values()]
    if types := file.types:
        for name, value in zip(file.carried, carried, strict=True):
            if problem := type_problem(name, value, types.get(name, "")):
                raise ValueError(problem)
    return (_id_of(record, file), text, *carried)


def _is_rounded(value: str | None) -> bool:
    """Return whether a value may hold an integer beyond 64 bits, which orjson reads as a float."""
    return value is not None and EXPONENT in value and LONG_FLOAT.search(value) is not None


def _exact_integer(digits: str) -> object:
    """Return an integer in a form that orjson writes with the same digits as the file."""
    return int(digits) if len(digits) < LONG_DIGITS else orjson.Fragment(digits)


def _id_of(record: dict[str, object], file: SourceFile) -> str | None:
    id_ = look_up(record, file.id_column)
    if id_ is MISSING or id_ is None or isinstance(id_, str):
        return id_ if isinstance(id_, str) else None
    if isinstance(id_, int | orjson.Fragment) and not isinstance(id_, bool):
        return orjson.dumps(id_).decode()
    raise ValueError(f"field {file.id_column!r} is {_type_name(id_)}, expected a string or an integer")


def _as_string(value: object) -> str | None:
    """Return a carried value: strings unchanged, other values as compact JSON, null and missing as None."""
    if value is MISSING or value is None or isinstance(value, str):
        return value if isinstance(value, str) else None
    return orjson.dumps(value).decode()


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
