# SPDX-License-Identifier: Apache-2.0
"""CSV and TSV, by Python's csv module: quoted newlines, and each bad row in its own place.

pyarrow reads three times as fast, but loses the place of a bad row, ends at one with malformed UTF-8, and at a row that
is larger than its block. A quote that is not closed takes all rows up to the next quote into one field in csv and
pandas; here a row of several lines that does not end well costs its first line, and the lines behind it are read again.
A later row of them that opens a quote fails on the same line, and is not read through. So a line is parsed three times
at most: inside a quoted field, as the start of a row, and again where that start is bad, or where a row is whole behind
one that is too large. What is held for that is bounded by max_document_bytes.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from curation.contract import Rejected
from curation.errors import InputError
from curation.reading.changes import open_planned
from curation.reading.documents import HELD_BYTES, MALFORMED, Documents, schema_of, too_large
from curation.reading.source_files import FilePart, SourceFile
from curation.reading.streams import DamageError
from curation.reading.urls import shown

DELIMITERS = {"csv": ",", "tsv": "\t"}
MAX_FIELD = 2**31 - 1  # the module's own limit is 128 KiB
BESIDE_TEXT = 1 << 16  # characters of a row beside a text of max_document_bytes
SKIPPED_STEP = 1 << 16
UNCLOSED = "a quoted field that begins in this row does not end where a delimiter or the row ends"
OR_UNCLOSED = ", or a quoted field that begins in this line is not closed"


def header(file: SourceFile) -> list[str]:
    """The names in the first row; InputError where there is none."""
    with open_planned(file) as stream:
        try:
            first = next(iter(_Rows(stream, file)), Row(0, []))
        except (OSError, EOFError, UnicodeError) as error:
            raise InputError(f"{shown(file.path)} has no readable header: {error}") from None
    if first.error:
        raise InputError(f"{shown(file.path)} has no readable header: {first.error}")
    return first.values


class Row(NamedTuple):
    line: int  # 0-based, where it begins
    values: list[str]
    error: str = ""


class _TooLargeError(Exception):
    pass


class _Rows:
    """The rows of a file, blank ones left out. Bytes that are not of the encoding become lone surrogates."""

    def __init__(self, stream: Any, file: SourceFile) -> None:
        csv.field_size_limit(MAX_FIELD)
        self.text = io.TextIOWrapper(io.BufferedReader(_Source(stream)), file.encoding, MALFORMED, newline="")
        self.limit = file.max_document_bytes
        self.most = self.limit + BESIDE_TEXT  # characters of a row
        self.delimiter = DELIMITERS[file.format]
        self.line = 0  # where the row begins that is read next
        self.row: list[str] = []  # its lines so far
        self.size = 0  # the characters of the row, or of `again` while its rows are read
        self.again: deque[str] = deque()  # lines behind the first one of a row that failed; "" is the end of the file
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
                self.again.extend(self.row[1:])
                self.size -= len(self.row[0])
                self.line += 1
                yield from self._rows_again(fails=error == UNCLOSED)
                reader = self._reader()
                continue
            if values:
                yield Row(self.line, values)
            self.line += len(self.row)

    def _reader(self) -> Any:
        return csv.reader(self._lines(), delimiter=self.delimiter, strict=True)

    def _lines(self) -> Iterator[str]:
        most = self.most
        while line := self.again.popleft() if self.again else self.text.readline(most + 1):
            if not self.begun:
                self.begun, line = True, line.removeprefix("\ufeff")
            self.row.append(line)
            self.size += len(line)
            if self.size > most:
                raise _TooLargeError
            yield line
        self.row.append("")

    def _rows_again(self, fails: bool) -> Iterator[Row]:
        """The rows that begin in `again`, before its last line. Inside a quoted field, each of its lines but the last
        one leaves the field open; on the last one a row fails if `fails`, else that line has not been parsed so far."""
        again = self.again
        while len(again) > 1:
            count, error = 1, UNCLOSED
            try:
                values = self._parse(again[0], strict=not fails)
            except csv.Error:
                values = self._parse(again[0], strict=False)
            else:
                if values is None and not fails:
                    ends = self._ends()
                    if ends is None:
                        error = too_large(self.limit) + OR_UNCLOSED
                    elif ends:
                        values, count = self._parse(*again, strict=True), len(again)
                    else:
                        fails = True
            if values is None:
                yield Row(self.line, [], error)
            elif values:
                yield Row(self.line, values)
            self.line += count
            self.size -= sum(len(again.popleft()) for _ in range(count))

    def _ends(self) -> bool | None:
        """Whether the row ends well that opens a quote in the first line of `again`; None where it is too large. Reads
        on until that is known."""
        while self.size <= self.most:
            line = self.again[-1]
            try:
                if not line or self._parse('"', line, strict=True) is not None:
                    return bool(line)
            except csv.Error:
                return False
            self.again.append(self.text.readline(self.most + 1))
            self.size += len(self.again[-1])
        return None

    def _parse(self, *lines: str, strict: bool) -> list[str] | None:
        """The values of a row, None where it asks for another line. If not `strict`, text behind a closing quote goes
        to the field as in csv and pandas: for rows of one line, since in others the quote may be a later row's."""
        reader = csv.reader((*lines, '"'), delimiter=self.delimiter, strict=strict)
        values = next(reader)
        return values if reader.line_num <= len(lines) else None

    def _skip_line(self) -> None:
        """Reads to the end of a line without keeping it."""
        line, size = self.row[0], self.most + 1
        while len(line) == size and not line.endswith("\n"):
            ends = line.endswith("\r")  # here, or with "\n" behind it
            size = self.most + 1 if ends else SKIPPED_STEP
            line = self.text.readline(size)
            if ends and line != "\n":
                self.again.append(line)
                return


class _Source(io.RawIOBase):
    """A stream that `io` can buffer; closing it leaves the stream open."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Waiting:
    """Rows on their way into a table."""

    def __init__(self, file: SourceFile, names: list[str]) -> None:
        self.file = file
        self.width = len(names)
        wanted = (file.id_column, file.text_column, *file.columns)
        self.places = [names.index(name) if name in names else -1 for name in wanted]
        self.clear(0)

    def clear(self, row: int) -> None:
        self.first = self.row = row
        self.size = 0
        self.found: list[tuple[int | str | None, ...]] = []
        self.rejected: list[Rejected] = []

    def add(self, row: Row) -> None:
        values = row.values
        error = row.error or self._problem(values)
        if error:
            self.reject(row.line, error)
            return
        picked = [values[place] if place >= 0 else None for place in self.places]
        self.found.append((self.row, *picked))
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
        schema = schema_of(self.file.columns)
        columns = list(zip(*self.found, strict=True)) or [()] * (2 + len(self.places) - 1)
        row, id_, text, *carried = columns
        arrays = [
            pa.array(column, field.type) for column, field in zip((row, id_, text, *carried), schema, strict=True)
        ]
        rows = self.row - self.first
        return Documents(pa.table(arrays, schema=schema), self.rejected, rows, rows)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_delimited(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    file = part.file
    with open_planned(file) as stream:
        rows = _Rows(stream, file)
        numbered = iter(rows)
        waiting = _Waiting(file, next(numbered, Row(0, [])).values)
        try:
            for row in numbered:
                waiting.add(row)
                if waiting.size >= batch_bytes:
                    yield waiting.documents()
                    waiting.clear(waiting.row)
        except (DamageError, UnicodeError) as error:
            waiting.reject(rows.line, f"the file is damaged or cut off: {error}")
    yield waiting.documents()
