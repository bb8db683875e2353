# SPDX-License-Identifier: Apache-2.0
"""CSV and TSV, by Python's csv module: with quoted newlines, and with the position of each bad row.

pyarrow reads three times as fast, but loses the position of a bad row, and stops at a row with malformed UTF-8 or one
above its block size. In csv and pandas an unclosed quote merges all rows up to the next quote into one field. Here a
row of several lines that does not end correctly loses its first line, and its other lines are read again as rows. If
one of these opens a quote, it fails on the same line, so it is not read to its end. A line is parsed at most three
times: inside a quoted field, as the start of a row, and once more where that start is bad or where a complete row
follows an oversized one. max_document_bytes bounds the lines that are held.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

import msgspec
import orjson
import pyarrow as pa

from curation.contract import Rejected
from curation.errors import InputError
from curation.reading.changes import open_planned
from curation.reading.documents import HELD_BYTES, MALFORMED, Documents, schema_of, too_large
from curation.reading.formats.base import PROBED_RECORDS, SET, ColumnFormat, start_of, with_some_column
from curation.reading.source_files import MARK_BYTES, QUOTE, FileRange, SourceFile, encoding_by_mark
from curation.reading.streams import DamageError, is_of_system
from curation.reading.urls import shown

MARKS = ",;\t|"  # delimiters that `detect` tries
QUOTES = (QUOTE, "", "'")
DETECTED_BYTES, DETECTED_ROWS = 1 << 20, 100
MAX_FIELD = 2**31 - 1  # the module's own limit is 128 KiB
OTHER_CHARS = 1 << 16  # characters of a row in addition to max_document_bytes
SKIPPED_STEP = 1 << 16
UNCLOSED = "a quoted field that begins in this row does not end where a delimiter or the row ends"
OR_UNCLOSED = ", or a quoted field that begins in this line is not closed"

SURROGATE = re.compile(r"[\ud800-\udfff]")


def _share_of_rows(file: SourceFile, head: bytes) -> float:
    """The share of the first rows that have as many fields as the header; 0 where that is one field, or a half."""
    rows = list(islice(_Rows(io.BytesIO(head), file), DETECTED_ROWS + 1))
    width = len(rows[0].values) if rows else 0
    fits = [len(row.values) == width for row in rows[1:]]
    quoted = file.quote != QUOTE and any(value[:1] == QUOTE == value[1:][-1:] for row in rows for value in row.values)
    if width < 2 or quoted:
        return 0
    if len(head) == DETECTED_BYTES and any(fits):  # the last row is cut off; inside quotes, each of its lines fails
        fits = fits[: len(fits) - fits[::-1].index(True)]
    share = sum(fits) / len(fits) if fits else 1
    return share if share > 0.5 else 0


class Row(NamedTuple):
    """A row, or the error of one."""

    line: int  # 0-based physical line where it begins
    values: list[str]
    error: str = ""


class _TooLargeError(Exception):
    pass


class _Rows:
    """The rows of a file, without blank ones. Bytes that are malformed in the encoding become lone surrogates."""

    def __init__(self, stream: Any, file: SourceFile, delimiter: str = ",") -> None:
        csv.field_size_limit(MAX_FIELD)
        source = _Source(stream)
        encoding = encoding_by_mark(source.start(MARK_BYTES), file.encoding)
        self.text = io.TextIOWrapper(io.BufferedReader(source), encoding, MALFORMED, newline="")
        self.limit = file.max_document_bytes
        self.max_chars = self.limit + OTHER_CHARS  # of a row
        self.quote = file.quote
        self.dialect: dict[str, Any] = {
            "delimiter": file.delimiter or delimiter,
            "quotechar": file.quote or None,
            "quoting": csv.QUOTE_MINIMAL if file.quote else csv.QUOTE_NONE,
        }
        self.line = 0  # where the next row begins
        self.row: list[str] = []  # lines of the current row so far
        self.size = 0  # characters of the row, or of `reread_lines` while rows are read from there
        self.reread_lines: deque[str] = deque()  # lines after the first of a failed row; "" is the end of the file
        self.begun = False

    def __iter__(self) -> Iterator[Row]:
        reader = self._reader()
        while True:
            self.row, self.size = [], 0
            try:
                values = next(reader)
            except StopIteration:
                return
            except _TooLargeError:
                values, error = None, too_large(self.limit)
                if len(self.row) == 1:
                    self._skip_line()
                else:
                    error += OR_UNCLOSED
            except csv.Error:
                values, error = self._parse(self.row[0], strict=False) if len(self.row) == 1 else None, UNCLOSED
            if values is None:
                yield Row(self.line, [], error)
                self.reread_lines.extend(self.row[1:])
                self.size -= len(self.row[0])
                self.line += 1
                yield from self._reread_rows(fails=error == UNCLOSED)
                reader = self._reader()
                continue
            if values:
                yield Row(self.line, values)
            self.line += len(self.row)

    def _reader(self) -> Any:
        return csv.reader(self._lines(), **self.dialect, strict=True)

    def _lines(self) -> Iterator[str]:
        max_chars = self.max_chars
        while line := self.reread_lines.popleft() if self.reread_lines else self.text.readline(max_chars + 1):
            if not self.begun:
                self.begun, line = True, line.removeprefix("\ufeff")
            self.row.append(line)
            self.size += len(line)
            if self.size > max_chars:
                raise _TooLargeError
            yield line
        self.row.append("")

    def _reread_rows(self, fails: bool) -> Iterator[Row]:
        """Yield the rows that begin in `reread_lines` before its last line.

        Inside a quoted field, every line but the last leaves the field open. `fails`: a row fails on the last line;
        otherwise that line has not been parsed yet.
        """
        reread_lines = self.reread_lines
        while len(reread_lines) > 1:
            count, error = 1, UNCLOSED
            try:
                values = self._parse(reread_lines[0], strict=not fails)
            except csv.Error:
                values = self._parse(reread_lines[0], strict=False)
            else:
                if values is None and not fails:
                    ends = self._ends()
                    if ends is None:
                        error = too_large(self.limit) + OR_UNCLOSED
                    elif ends:
                        values, count = self._parse(*reread_lines, strict=True), len(reread_lines)
                    else:
                        fails = True
            if values is None:
                yield Row(self.line, [], error)
            elif values:
                yield Row(self.line, values)
            self.line += count
            self.size -= sum(len(reread_lines.popleft()) for _ in range(count))

    def _ends(self) -> bool | None:
        """Return whether the row that opens a quote in the first line of `reread_lines` ends correctly; None where it
        is too large. Reads on until that is known."""
        while self.size <= self.max_chars:
            line = self.reread_lines[-1]
            try:
                if not line or self._parse(self.quote, line, strict=True) is not None:
                    return bool(line)
            except csv.Error:
                return False
            self.reread_lines.append(self.text.readline(self.max_chars + 1))
            self.size += len(self.reread_lines[-1])
        return None

    def _parse(self, *lines: str, strict: bool) -> list[str] | None:
        """Return the values of a row; None where it needs another line.

        Unless `strict`, text after a closing quote belongs to the field, as in csv and pandas. That is for rows of one
        line: in longer ones the quote may belong to a later row.
        """
        reader = csv.reader((*lines, self.quote), **self.dialect, strict=strict)
        values = next(reader)
        return values if reader.line_num <= len(lines) else None

    def _skip_line(self) -> None:
        """Read to the end of a line without keeping it."""
        line, size = self.row[0], self.max_chars + 1
        while len(line) == size and not line.endswith("\n"):
            ends = line.endswith("\r")  # the end of the line, perhaps followed by "\n"
            size = self.max_chars + 1 if ends else SKIPPED_STEP
            line = self.text.readline(size)
            if ends and line != "\n":
                self.reread_lines.append(line)
                return


class _Source(io.RawIOBase):
    """A stream that `io` can buffer. Closing it leaves the stream open."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.head = b""  # bytes that were read from the stream, and are not yet read from here

    def start(self, size: int) -> bytes:
        """Return the first bytes, which are read again later; fewer than `size` where the stream ends."""
        while len(self.head) < size and (data := self.stream.read(size - len(self.head))):
            self.head += data
        return self.head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.head[: len(buffer)] or self.stream.read(len(buffer))
        self.head = self.head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


class _Batch:
    """The rows of the next table."""

    def __init__(self, file: SourceFile, names: list[str]) -> None:
        self.file = file
        self.width = len(names)
        wanted = (file.id_column, file.text_column, *file.carried.values())
        self.places = [names.index(name) if name in names else -1 for name in wanted]
        self.clear(0)

    def clear(self, row: int) -> None:
        self.first = self.row = row
        self.size = 0
        self.records: list[tuple[int | str | None, ...]] = []
        self.rejected: list[Rejected] = []

    def add(self, row: Row) -> None:
        values = row.values
        error = row.error or self._problem(values)
        if error:
            self.reject(row.line, error)
            return
        picked = [values[place] if place >= 0 else None for place in self.places]
        self.records.append((self.row, *picked))
        self.size += HELD_BYTES + sum(len(value) for value in picked if value)
        self.row += 1

    def reject(self, line: int, error: str) -> None:
        self.rejected.append(Rejected(self.row, line, -1, error))
        self.size += HELD_BYTES
        self.row += 1

    def _problem(self, values: list[str]) -> str:
        if len(values) != self.width:
            return f"expected {self.width} columns, got {len(values)}"
        for place in self.places:
            if place >= 0 and not _is_encodable(values[place]):
                return f"{'text' if place == self.places[1] else 'column'} is not valid {self.file.encoding.upper()}"
        size = len(values[self.places[1]].encode())
        return too_large(self.file.max_document_bytes) if size > self.file.max_document_bytes else ""

    def documents(self) -> Documents:
        schema = schema_of(self.file.carried)
        columns = list(zip(*self.records, strict=True)) or [()] * len(schema)
        rows = self.row - self.first
        return Documents(pa.table(columns, schema=schema), self.rejected, rows, rows)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Delimited(ColumnFormat):
    """The first row has the names of the columns."""

    options = ("encoding", "delimiter", "quote")

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Bad rows are rejected, and so is the rest of a damaged file."""
        file = file_range.file
        with open_planned(file) as stream:
            rows = _Rows(stream, file, self.delimiter)
            numbered = iter(rows)
            batch = _Batch(file, next(numbered, Row(0, [])).values)
            try:
                for row in numbered:
                    batch.add(row)
                    if batch.size >= batch_bytes:
                        yield batch.documents()
                        batch.clear(batch.row)
            except (DamageError, UnicodeError) as error:
                batch.reject(rows.line, f"the file is damaged or cut off: {error}")
        yield batch.documents()

    def columns(self, file: SourceFile) -> list[str]:
        """Return the column names in the first row; [] for an empty file. Raises InputError where it cannot be read."""
        with open_planned(file) as stream:
            try:
                first = next(iter(_Rows(stream, file, self.delimiter)), Row(0, []))
            except (OSError, EOFError, UnicodeError) as error:
                if is_of_system(error):
                    raise
                raise InputError(f"{shown(file.path)} has no readable header: {error}") from None
        if first.error:
            raise InputError(f"{shown(file.path)} has no readable header: {first.error}")
        return first.values

    def probe(self, file: SourceFile) -> SourceFile:
        names = self.columns(file)
        if not names:
            return with_some_column(file)
        if not file.delimiter:
            self._check_delimiter(names, file)
        return self.with_column(file, names)

    def _check_delimiter(self, names: Sequence[str], file: SourceFile) -> None:
        """Raise InputError for a header of one column whose name holds another usual delimiter."""
        expected = self.delimiter
        mark = next((mark for mark in MARKS if mark != expected and mark in names[0]), "")
        if len(names) == 1 and mark:
            named, own = orjson.dumps(mark).decode(), orjson.dumps(expected).decode()
            raise InputError(
                f"the header of {shown(file.path)} is one column, {names[0]!r}: its fields seem to be separated by "
                f"{mark!r}, expected {expected!r}. Set delimiter: {named} of the input (for a "
                f"command: --set 'input.{file.source}.delimiter={named}'); {own} if it is one column. curate init "
                "detects delimiters"
            )

    def column_advice(self, names: Sequence[str], file: SourceFile) -> str:
        if any(SURROGATE.search(name) for name in names):
            encoding = file.encoding.upper()
            return f"The header is not valid {encoding}: set encoding: of the input, such as latin-1 or utf-16"
        return f"{SET['text_column']}; the first row must hold the names of the columns"

    def sample_columns(self, file: SourceFile) -> dict[str, list[Any]]:
        """Return the values of each column in the first complete rows; {} for an empty file."""
        names = self.columns(file)
        with open_planned(file) as stream:
            rows = _Rows(stream, file, self.delimiter)
            complete = (row.values for row in rows if len(row.values) == len(names))
            try:
                sampled = list(islice(complete, 1, PROBED_RECORDS + 1))
            except (OSError, EOFError, UnicodeError):
                sampled = []
        return {name: list(column) for name, column in zip(names, zip(*sampled, strict=True), strict=False)}

    def detect(self, file: SourceFile) -> dict[str, str]:
        """The best pair of `delimiter` and `quote` gives the most rows the number of fields of the header; the usual
        pair wins where it is as good.

        csv.Sniffer was wrong for 10 of 120 made files of one to five columns (this function for none), and finds no
        files without quotes.
        """
        if file.delimiter or file.quote != QUOTE:
            return {}
        head = start_of(file, DETECTED_BYTES).data
        pairs = product(sorted(MARKS, key=lambda mark: mark != self.delimiter), QUOTES)
        delimiter, quote = max(pairs, key=lambda pair: _share_of_rows(msgspec.structs.replace(
            file, delimiter=pair[0], quote=pair[1], max_document_bytes=DETECTED_BYTES), head))  # fmt: skip
        found = {"delimiter": delimiter} if delimiter != self.delimiter else {}
        return found | ({"quote": quote} if quote != QUOTE else {})


class Csv(Delimited):
    """Comma-separated values."""

    name = "csv"
    suffixes = (".csv",)
    delimiter = ","


class Tsv(Delimited):
    """Tab-separated values, with quotes as in CSV."""

    name = "tsv"
    suffixes = (".tsv",)
    delimiter = "\t"
