# SPDX-License-Identifier: Apache-2.0
"""JSON Lines: checks of a file before a run, and its ranges. `curation.reading.lines` parses the lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import orjson

from curation.base.errors import InputError, counted, near_or_nothing
from curation.reading import lines
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.documents import Documents, shown_names
from curation.reading.formats.base import (
    PROBED_BYTES,
    PROBED_RECORDS,
    SET,
    USED,
    ColumnFormat,
    Joint,
    SampledRange,
    find_column,
    head,
    with_some_column,
)
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.urls import is_remote, shown

MAX_PIECE_TEXT = 16 << 20
OVER_LINES = "For objects over several lines: jq -c . in.json > out.jsonl; for another format set format:"
ARRAY_START = re.compile(rb'\s*\[\s*[]{["\-0-9tfn]')


class JsonLines(ColumnFormat):
    """JSON Lines. Ranges are bytes of an uncompressed file; a line belongs to the range in which it begins."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson", ".json")
    start = rb"{"
    parts = USED

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        return lines.read_jsonl(file_range, batch_bytes)

    def read_stream(self, stream: Any, file: SourceFile, batch_bytes: int) -> Iterator[Documents]:
        """Read a decompressed stream to its end, in batches of about `batch_bytes` of text."""
        whole = FileRange(file=msgspec.structs.replace(file, bytes=UNKNOWN_SIZE), start=0, stop=0)
        return lines.read_stream(stream, whole, batch_bytes)

    def joint(self, file_range: FileRange) -> Joint | None:
        file = file_range.file
        small = not file.compression and file.bytes <= lines.SMALL_FILE_BYTES and not is_remote(file.path)
        whole = (file_range.start, file_range.stop) == (0, file.bytes)
        return Joint((file.text_column, file.id_column), lines.read_files) if small and whole else None

    def is_divisible(self, file: SourceFile) -> bool:
        return not file.compression and file.bytes > 0

    def spans(self, file: SourceFile, size: Callable[[int], int], later_bytes: int) -> list[tuple[int, int]]:
        if file.is_whole or not self.is_divisible(file):
            return super().spans(file, size, later_bytes)
        spans: list[tuple[int, int]] = []
        start = 0
        while start < file.bytes:
            stop = min(start + size(file.bytes - start + later_bytes), file.bytes)
            spans.append((start, stop))
            start = stop
        return spans

    def piece(self, file: SourceFile, number: int, size: int) -> SampledRange | None:
        start = number * size
        return SampledRange(start, min(start + size, file.bytes), MAX_PIECE_TEXT) if self.is_divisible(file) else None

    def is_plain_lines(self, file: SourceFile) -> bool:
        return not file.columns and not any("." in name for name in (file.text_column, file.id_column))

    def probe(self, file: SourceFile) -> SourceFile:
        return self.probe_start(_text_head(file), file)

    def probe_start(self, start: bytes, file: SourceFile) -> SourceFile:
        """Return a file with its text column, which one of the first PROBED_RECORDS records must have. `start` has the
        first bytes, without a byte order mark."""
        first = first_lines(start)
        _check_lines(start, first, file)
        records = _objects(first)
        if not records:
            return with_some_column(file)
        names = _field_names(records)
        if not file.text_column:
            strings = [name for name in names if any(isinstance(record.get(name), str) for record in records)]
            others = [name for name in names if name not in strings]
            return msgspec.structs.replace(file, text_column=find_column(strings, file, others))
        if all(lines.look_up(record, file.text_column) is lines.MISSING for record in records):
            raise InputError(
                f"{shown(file.path)}: no field {file.text_column!r} in the first {counted(len(records), 'record')}. "
                f"They have {shown_names(names)}{near_or_nothing(file.text_column, names) or '.'} "
                f"{SET['text_column']}"
            )
        return file

    def columns(self, file: SourceFile) -> list[str]:
        return _field_names(_sample_records(file))

    def sample_columns(self, file: SourceFile) -> dict[str, list[Any]]:
        """Return the values of each field, and of the fields of nested objects (`data.text`)."""
        columns: dict[str, list[Any]] = {}
        for record in _sample_records(file):
            for name, value in record.items():
                columns.setdefault(name, []).append(value)
                if isinstance(value, dict):
                    for inner, entry in value.items():
                        columns.setdefault(f"{name}.{inner}", []).append(entry)
        return columns

    def doubt(self, file: SourceFile) -> str:
        first = first_lines(_text_head(file))
        wrong = [number for number, line in enumerate(first, 1) if not isinstance(_load(line), dict)]
        if not wrong:
            return ""
        return f"{len(wrong):,} of its first {counted(len(first), 'line')} are no JSON objects; a run rejects them"


def _sample_records(file: SourceFile) -> list[dict[str, Any]]:
    """Return the first records; [] for a file that cannot be read."""
    try:
        return _objects(first_lines(_text_head(file)))
    except (InputError, OSError):
        return []


def _text_head(file: SourceFile) -> bytes:
    return head(file).removeprefix(lines.BYTE_ORDER_MARK)


def _objects(raw_lines: Sequence[bytes]) -> list[dict[str, Any]]:
    return [record for raw in raw_lines if isinstance(record := _load(raw), dict)]


def _field_names(records: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record))


def _check_lines(start: bytes, first: Sequence[bytes], file: SourceFile) -> None:
    """Raise InputError for JSON that does not have one object per line. A single bad line passes, since the file may be
    truncated; reading rejects the line."""
    if is_array(start, first):
        raise InputError(
            f"{shown(file.path)} begins with a JSON array, expected one object per line. "
            "Convert it: jq -c '.[]' in.json > out.jsonl"
        )
    objects = any(line.lstrip().startswith(b"{") and line.strip() != b"{" for line in first)
    if not objects and (len(first) > 1 or (first and _load(first[0]) is not None)):
        raise InputError(
            f"{shown(file.path)}: none of its first {len(first)} lines is a JSON object, expected one per line. "
            f"{OVER_LINES if start.lstrip().startswith(b'{') else 'If it has another format, set format:'}"
        )


def is_array(start: bytes, first: Sequence[bytes]) -> bool:
    """Return whether a file is a JSON array, and does not only begin with a line such as `[INFO] start`.

    Lines of an array end in commas, so they are no JSON objects. If most of the other lines are objects, the file is no
    array.
    """
    if not ARRAY_START.match(start):
        return False
    objects = sum(isinstance(_load(line), dict) for line in first[1:])
    return len(first) < 2 or 2 * objects <= len(first[1:])


def _load(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def first_lines(start: bytes) -> list[bytes]:
    """Return the first lines that are complete and not blank. The last line of a long start may be cut off, so it is
    left out."""
    split = start.split(b"\n")
    complete = split if len(start) < PROBED_BYTES - len(lines.BYTE_ORDER_MARK) else split[:-1]
    return [line for line in complete if line.strip()][:PROBED_RECORDS]
