# SPDX-License-Identifier: Apache-2.0
"""CSV and TSV as documents: checks of a file before a run. `curation.reading.formats.csv_rows` reads their rows."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, ClassVar

import msgspec
import orjson
import pyarrow as pa

from curation.base.contract import Rejected
from curation.base.errors import InputError
from curation.base.system.os_errors import is_of_system
from curation.reading.changes import open_planned
from curation.reading.documents import HELD_BYTES, Documents, schema_of, too_large, type_problem
from curation.reading.formats.base import PROBED_RECORDS, SET, ColumnFormat, head, start_of, with_some_column
from curation.reading.formats.csv_dialect import (
    CHECKED_BYTES,
    DELIMITERS,
    DETECTED_BYTES,
    SUSPECT,
    dialect_of,
    has_header,
)
from curation.reading.formats.csv_rows import REPEATED, CsvRows, Row
from curation.reading.source_files import MARK_BYTES, QUOTE, FileRange, SourceFile, encoding_by_mark
from curation.reading.streams import DamageError
from curation.reading.urls import shown

SURROGATE = re.compile(r"[\ud800-\udfff]")


class _Batch:
    """Collects the rows of the next table."""

    def __init__(self, file: SourceFile, names: list[str]) -> None:
        self.file, self.names, self.types = file, names, file.types
        self.width = len(names)
        wanted = (file.id_column, file.text_column, *file.carried.values())
        indexes = {name: index for index, name in enumerate(names)}
        self.indexes = [indexes.get(name, -1) for name in wanted]
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
        picked = [values[index] if index >= 0 else None for index in self.indexes]
        self.records.append((self.row, *picked))
        self.size += HELD_BYTES + sum(len(value) for value in picked if value)
        self.row += 1

    def reject(self, line: int, error: str) -> None:
        self.rejected.append(Rejected(self.row, line, -1, error))
        self.size += HELD_BYTES
        self.row += 1

    def _problem(self, values: list[str | None]) -> str:
        if len(values) != self.width:
            return f"expected {self.width} columns, got {len(values)}"
        if values == self.names and self.file.header:
            return REPEATED
        for index in self.indexes:
            if index >= 0 and not _is_encodable(values[index] or ""):
                return f"{'text' if index == self.indexes[1] else 'column'} is not valid {self.file.encoding.upper()}"
        for index, name in zip(self.indexes[2:], self.file.carried, strict=True):
            if problem := type_problem(name, values[index], self.types.get(name, "")):
                return problem
        text = values[self.indexes[1]]
        if text is None:
            return "text is null"
        size = len(text.encode())
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
    """The first row has the names of the columns, unless `header` is false."""

    delimiter: ClassVar[str]  # default delimiter of the format
    options = ("encoding", "delimiter", "quote", "escape", "header")

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Yield the documents of a file. Bad rows are rejected, and so is the rest of a damaged file."""
        with open_planned(file_range.file) as stream:
            yield from self.read_stream(stream, file_range.file, batch_bytes)

    def read_stream(self, stream: Any, file: SourceFile, batch_bytes: int) -> Iterator[Documents]:
        """Read a decompressed stream to its end, in batches of about `batch_bytes` of text."""
        rows = CsvRows(stream, file, self.delimiter)
        names, numbered = _named(iter(rows), file)
        batch = _Batch(file, names)
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
        """Return the column names in the first row; [] for an empty file. Raises InputError if the row cannot be
        read."""
        with open_planned(file) as stream:
            return self._names(stream, file)

    def _names(self, stream: Any, file: SourceFile) -> list[str]:
        try:
            first = next(iter(CsvRows(stream, file, self.delimiter)), Row(0, []))
        except (OSError, EOFError, UnicodeError) as error:
            if is_of_system(error):
                raise
            raise InputError(f"{shown(file.path)} has no readable header: {error}") from None
        if first.error:
            raise InputError(f"{shown(file.path)} has no readable header: {first.error}. curate init detects dialects")
        return _named(iter([first]), file)[0]

    def probe(self, file: SourceFile) -> SourceFile:
        return self.probe_start(head(file, DETECTED_BYTES), file)

    def probe_start(self, start: bytes, file: SourceFile) -> SourceFile:
        """Return a file with its text column, from its first bytes. Raises the errors of `probe`."""
        names = self._names(io.BytesIO(start), file)
        if not names:
            return with_some_column(file)
        if not file.delimiter:
            self._check_delimiter(names, start, file)
        self._check_rows(names, start, file)
        return self._with_column(file, names)

    def _check_delimiter(self, names: Sequence[str], start: bytes, file: SourceFile) -> None:
        """Raise InputError if the header has one column, and its name contains another usual delimiter."""
        expected = self.delimiter
        mark = next((mark for mark in DELIMITERS if mark != expected and mark in names[0]), "")
        if len(names) == 1 and mark:
            named, current = orjson.dumps(mark).decode(), orjson.dumps(expected).decode()
            encoding = encoding_by_mark(start[:MARK_BYTES], file.encoding).upper()
            read_as = "" if encoding == "UTF-8" else f" (read as {encoding})"
            raise InputError(
                f"the header of {shown(file.path)}{read_as} is one column, {names[0]!r}: its fields seem to be "
                f"separated by {mark!r}, expected {expected!r}. Set delimiter: {named} of the input (for a "
                f"command: --set 'input.{file.source}.delimiter={named}'); {current} if it is one column. curate init "
                "detects delimiters"
            )

    def _check_rows(self, names: Sequence[str], start: bytes, file: SourceFile) -> None:
        """Raise InputError if the file begins with a comment, or if all rows have more fields than the header. Also
        raise it if rows seem to have another dialect, since their texts would change."""
        if names[0].startswith("# "):
            raise InputError(
                f"{shown(file.path)} begins with a comment, expected names of columns. Delete its comments: grep "
                "-v '^#' in.csv > out.csv"
            )
        start = start[:CHECKED_BYTES]
        rows = islice(CsvRows(io.BytesIO(start), file, self.delimiter), 1, PROBED_RECORDS + 1)
        widths = [len(row.values) for row in rows if not row.error][: -1 if len(start) >= CHECKED_BYTES else None]
        if len(widths) > 1 and len({*widths}) == 1 and widths[0] > len(names):
            raise InputError(
                f"the first row of {shown(file.path)} has {len(names)} fields, and all of the next {len(widths)} rows "
                f"have {widths[0]}. Write a name for each column in its first row"
            )
        is_set = file.delimiter or file.quote != QUOTE or file.escape is not msgspec.UNSET
        encoding = encoding_by_mark(start[:MARK_BYTES], file.encoding)
        if is_set or not SUSPECT.search(start.decode(encoding, "replace")):
            return
        dialect = dialect_of(start, file, self.delimiter)
        if "escape" in dialect or dialect.get("quote") == "'" or dialect.get("delimiter", "").endswith(" "):
            settings = ", ".join(f"{name}: {orjson.dumps(value).decode()}" for name, value in dialect.items())
            raise InputError(
                f"the fields of {shown(file.path)} seem to be written in another way than they would be read, which "
                f'would change texts. Set {settings} of the input; escape: "" reads them as they are. curate init '
                "detects these settings"
            )

    def _column_advice(self, names: Sequence[str], file: SourceFile) -> str:
        if any(SURROGATE.search(name) or "\0" in name for name in names):
            encoding = file.encoding.upper()
            return f"The header is not valid {encoding}: set encoding: of the input, such as latin-1 or utf-16-le"
        if not file.header:
            return f"{SET['text_column']}. Without a header, columns have numbers as names"
        spaced = next((name for name in names if name.startswith(" ") and name.strip()), "")
        if spaced:
            return f'{SET["text_column"]}; if spaces follow the delimiters, set delimiter: "{self.delimiter} "'
        return f"{SET['text_column']}; the first row must hold the names of the columns, or set header: false"

    def sample_columns(self, file: SourceFile) -> dict[str, list[Any]]:
        """Return the values of each column in the first complete rows; {} for an empty file."""
        self.columns(file)
        with open_planned(file) as stream:
            sampled: list[list[Any]] = []
            try:
                names, rows = _named(iter(CsvRows(stream, file, self.delimiter)), file)
                sampled += islice((row.values for row in rows if len(row.values) == len(names)), PROBED_RECORDS)
            except (OSError, EOFError, UnicodeError):
                pass
        return {name: list(column) for name, column in zip(names, zip(*sampled, strict=True), strict=False)}

    def detect(self, file: SourceFile) -> dict[str, Any]:
        """Return the dialect, unless the input sets it, and `header: False` if the file has no header."""
        start = start_of(file, DETECTED_BYTES).data
        is_set = file.delimiter or file.quote != QUOTE or file.escape is not msgspec.UNSET
        dialect = {} if is_set else dialect_of(start, file, self.delimiter)
        read = msgspec.structs.replace(file, **dialect)
        is_named = not file.header or has_header(start, read, self.delimiter)
        return dialect if is_named else dialect | {"header": False}


def _named(rows: Iterator[Row], file: SourceFile) -> tuple[list[str], Iterator[Row]]:
    """Return the names of the columns, and the rows of documents. Without a header, columns are named `column_1`,
    `column_2`, ..., and the first row is a document too."""
    first = next(rows, Row(0, []))
    if file.header:
        return [name or "" for name in first.values], rows
    return [f"column_{number}" for number in range(1, len(first.values) + 1)], chain([first], rows)


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
