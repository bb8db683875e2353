# SPDX-License-Identifier: Apache-2.0
"""The rows of CSV and TSV, by Python's csv module: with quoted newlines, and with the position of each bad row.

pyarrow reads three times as fast, but loses the position of a bad row, and stops at a row with malformed UTF-8 or one
above its block size. In csv and pandas an unclosed quote merges all rows up to the next quote into one field. Here a
row of several lines that does not end correctly loses its first line, and its other lines are read again as rows. If
one of these lines opens a quote, its row fails on the same line as before, so it is not read to its end. A line is
parsed at most three times: inside a quoted field, as the start of a row, and once more where that start is bad or where
a complete row follows an oversized one. max_document_bytes bounds the lines that are held.

In csv, an escape character disappears before every character. Programs that write tables escape only some characters,
so an escaped character is replaced before csv parses its line, and put back into the values.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from curation.reading.documents import MALFORMED, too_large
from curation.reading.source_files import MARK_BYTES, SourceFile, encoding_by_mark

MAX_FIELD = 2**31 - 1  # the module's own limit is 128 KiB
OTHER_CHARS = 1 << 16  # characters of a row in addition to max_document_bytes
SKIPPED_STEP = 1 << 16
UNCLOSED = "a quoted field that begins in this row does not end where a delimiter or the row ends"
OR_UNCLOSED = ", or a quoted field that begins in this line is not closed"
REPEATED = "the row repeats the header"
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\r\n]*', re.IGNORECASE)  # first line in files for Excel, such as sep=;
# An escaped character is replaced by two lone surrogates, which no text has: ESCAPED, then one that stands for the
# character.
ESCAPED = "\ud800"
FIRST_CODE = 0xD801
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "Z": "\x1a"}


class Row(NamedTuple):
    """One row with its position. A damaged row has an error message in place of values."""

    line: int  # physical line where the row begins, from 0
    values: list[Any]  # strings; None for \N in a file with escapes
    error: str = ""


class _TooLargeError(Exception):
    pass


class CsvRows:
    """The rows of a file that are not blank. Bytes that are malformed in the encoding become lone surrogates."""

    def __init__(self, stream: Any, file: SourceFile, delimiter: str = ",") -> None:
        csv.field_size_limit(MAX_FIELD)
        source = PeekedStream(stream)
        encoding = encoding_by_mark(source.start(MARK_BYTES), file.encoding)
        self.text = io.TextIOWrapper(io.BufferedReader(source), encoding, MALFORMED, newline="")
        self.limit = file.max_document_bytes
        self.max_chars = self.limit + OTHER_CHARS  # of a row
        self.quote = file.quote
        self.given, self.delimiter = file.delimiter, delimiter
        self.escapes = _Escapes(file.escape, file.quote, (file.delimiter or delimiter)[0]) if file.escape else None
        self.dialect: dict[str, Any] = {}
        self.line = 0  # where the next row begins
        self.row: list[str] = []  # lines of the current row so far
        self.size = 0  # characters of the row, or of `reread_lines` while its rows are read
        self.reread_lines: deque[str] = deque()  # lines after the first of a failed row; "" is the end of the file

    def __iter__(self) -> Iterator[Row]:
        self._begin()
        if not self.escapes:
            return self._rows()
        return (row._replace(values=[*map(self.escapes.restored, row.values)]) for row in self._rows())

    def _begin(self) -> None:
        """Read the first line, and remove its byte order mark. A line such as `sep=;` is no row; it sets the
        delimiter."""
        line = self._read_line(self.max_chars + 1).removeprefix("\ufeff")
        marked = SEPARATOR_LINE.fullmatch(line)
        delimiter = self.given or (marked[1] if marked else self.delimiter)
        self.dialect = {
            "delimiter": delimiter[0],
            "skipinitialspace": len(delimiter) > 1,
            "quotechar": self.quote or None,
            "quoting": csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            "strict": True,
        }
        if marked:
            self.line = 1
        elif line:
            self.reread_lines.append(line)

    def _rows(self) -> Iterator[Row]:
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
                values, error = None, UNCLOSED
            if values is None:
                yield Row(self.line, [], error)
                self.reread_lines.extend(self.row[1:])
                self.size -= len(self.row[0])
                self.line += self._height(self.row[:1])
                yield from self._reread_rows(fails=error == UNCLOSED)
                reader = self._reader()
                continue
            if values:
                yield Row(self.line, values)
            self.line += self._height(self.row)

    def _height(self, lines: list[str]) -> int:
        """Return how many lines of the file `lines` are. A line whose end is escaped is joined here with the next line;
        in the file they are two lines."""
        return len(lines) + (sum(map(self.escapes.joined, lines)) if self.escapes else 0)

    def _reader(self) -> Any:
        return csv.reader(self._lines(), **self.dialect)

    def _read_line(self, size: int) -> str:
        line = self.text.readline(size)
        if not self.escapes:
            return line
        while len(line) < size and self.escapes.continues(line) and (more := self.text.readline(size)):
            line += more
        return self.escapes.replaced(line)

    def _lines(self) -> Iterator[str]:
        max_chars = self.max_chars
        while line := self.reread_lines.popleft() if self.reread_lines else self._read_line(max_chars + 1):
            self.row.append(line)
            self.size += len(line)
            if self.size > max_chars:
                raise _TooLargeError
            yield line
        self.row.append("")

    def _reread_rows(self, fails: bool) -> Iterator[Row]:
        """Yield the rows that begin in `reread_lines` before its last line.

        Inside a quoted field, every line but the last leaves the field open. `fails`: whether a row is known to fail on
        the last line. If not, that line has not been parsed yet.
        """
        reread_lines = self.reread_lines
        while len(reread_lines) > 1:
            count, values, error = 1, None, UNCLOSED
            try:
                values = self._parse(reread_lines[0])
                if values is None and not fails:
                    ends = self._ends()
                    if ends is None:
                        error = too_large(self.limit) + OR_UNCLOSED
                    elif ends:
                        values, count = self._parse(*reread_lines), len(reread_lines)
                    else:
                        fails = True
            except csv.Error:
                pass
            if values is None:
                yield Row(self.line, [], error)
            elif values:
                yield Row(self.line, values)
            read = [reread_lines.popleft() for _ in range(count)]
            self.line += self._height(read)
            self.size -= sum(map(len, read))

    def _ends(self) -> bool | None:
        """Return whether the row that opens a quote in the first line of `reread_lines` ends correctly; None if it is
        too large. Reads further lines until this is known."""
        while self.size <= self.max_chars:
            line = self.reread_lines[-1]
            try:
                if not line or self._parse(self.quote, line) is not None:
                    return bool(line)
            except csv.Error:
                return False
            self.reread_lines.append(self._read_line(self.max_chars + 1))
            self.size += len(self.reread_lines[-1])
        return None

    def _parse(self, *lines: str) -> list[str] | None:
        """Return the values of a row; None if the row needs another line."""
        reader = csv.reader((*lines, self.quote), **self.dialect)
        values = next(reader)
        return values if reader.line_num <= len(lines) else None

    def _skip_line(self) -> None:
        """Read to the end of a line without keeping it."""
        line, size = self.row[0], self.max_chars + 1
        while len(line) == size and not line.endswith("\n"):
            ends = line.endswith("\r")  # the end of the line, perhaps followed by "\n"
            size = self.max_chars + 1 if ends else SKIPPED_STEP
            line = self._read_line(size)
            if ends and line != "\n":
                self.reread_lines.append(line)
                return


class _Escapes:
    """Replaces escaped characters of a file by codes, and restores them. A line keeps its length.

    In files with quotes (Spark, MySQL), the escape character escapes the quote, itself, the delimiter and line ends;
    before other characters it stays in the text. In files without quotes (PostgreSQL's COPY, mysql), it also begins the
    control characters of CONTROLS; before other characters it disappears.
    """

    def __init__(self, escape: str, quote: str, delimiter: str) -> None:
        self.escape, self.is_quoted = escape, bool(quote)
        marks = ["\r\n", "\r", "\n", *dict.fromkeys(mark for mark in (escape, quote, delimiter) if mark)]
        self.codes = {mark: chr(FIRST_CODE + number) for number, mark in enumerate(marks)}
        self.marks = {code: mark for mark, code in self.codes.items()}
        one = re.escape(escape)
        self.escaped = re.compile(f"{one}(\r\n|.)", re.DOTALL)
        self.open_end = re.compile(f"(?<!{one})(?:{one}{one})*{one}(?:\r\n|\r|\n)$")
        self.ends = re.compile(f"{ESCAPED}[{''.join(list(self.marks)[:3])}]")
        self.special = re.compile(f"{ESCAPED}(.)|{one}(.)", re.DOTALL)

    def continues(self, line: str) -> bool:
        return self.open_end.search(line) is not None

    def joined(self, line: str) -> int:
        """Return the number of escaped line ends in a line."""
        return len(self.ends.findall(line))

    def replaced(self, line: str) -> str:
        """Return a line in which a code replaces each escaped character that has a code."""
        codes = self.codes
        return self.escaped.sub(lambda match: ESCAPED + codes[match[1]] if match[1] in codes else match[0], line)

    def restored(self, value: str) -> str | None:
        """Return a value with its escapes decoded; None for the null of databases."""
        if value == f"{self.escape}N":
            return None
        return self.special.sub(self._character, value) if ESCAPED in value or self.escape in value else value

    def _character(self, match: re.Match[str]) -> str:
        if match[1]:
            return self.marks.get(match[1], match[0])
        return match[0] if self.is_quoted else CONTROLS.get(match[2], match[2])


class PeekedStream(io.RawIOBase):
    """Wraps a stream so that `io` can buffer it and its start can be read ahead. Closing it leaves the stream open."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.head = b""  # bytes that were read ahead from the stream

    def start(self, size: int) -> bytes:
        """Return the first bytes, which later reads return again; fewer than `size` if the stream is shorter."""
        while len(self.head) < size and (data := self.stream.read(size - len(self.head))):
            self.head += data
        return self.head

    def readable(self) -> bool:
        """Return true, which `io.BufferedReader` expects."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the bytes read ahead, then from the stream."""
        data = self.head[: len(buffer)] or self.stream.read(len(buffer))
        self.head = self.head[len(data) :]
        buffer[: len(data)] = data
        return len(data)
