# SPDX-License-Identifier: Apache-2.0
"""The base class of input formats. A format is a subclass that overrides what differs from the defaults, and an entry
of `FORMATS`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import msgspec

from curation.base.errors import InputError, near_or_nothing
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.documents import Documents, shown_names
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.streams import FILE_DAMAGED, DamageError, StreamChunk, WindowError, open_stream, read_chunk
from curation.reading.urls import is_remote, shown

# Usual names of a text column, the most frequent first.
TEXT_COLUMNS = ("text", "content", "body", "raw_content", "article", "description", "document")
AGAIN = ". Download it again, or leave it out"  # after an error about damage
PROBED_RECORDS = 100
PROBED_BYTES = 1 << 20
SET = {  # remedies, by setting of an input
    "text_column": "Set text_column of the input in the recipe, or give --text-column NAME; for files of several "
    "kinds, curate init FOLDER writes a recipe",
    "columns": "Set columns of the input in the recipe",
}


WHOLE, USED, NEEDED = "whole", "used", "needed"  # parts of files, for `Format.parts`


class Joint(NamedTuple):
    """Small files that are read together.

    key   the properties that files must share to be read together
    read  function with the arguments ranges and `batch_bytes`; it yields the same documents as `Format.read` file by
          file
    """

    key: Hashable
    read: Callable[[Sequence[FileRange], int], Iterator[Documents]]


class SampledRange(NamedTuple):
    """A range of a file that an estimate reads.

    max_text   bytes of text after which reading ends
    records    number of records of the whole file, at least 1; 0: unknown, and the range is in bytes
    """

    start: int
    stop: int
    max_text: int
    records: int = 0


class Format:
    """A format of input files. The defaults fit formats whose files are read whole and have no columns.

    name              name in recipes, plans and reports
    suffixes          file-name suffixes for which `format: auto` chooses this format
    start             regular expression for the first bytes of a file with another suffix, after white space
    fields            names that `columns` may have, for formats whose files have no columns
    options           settings of an input that this format uses, of `separator encoding delimiter quote escape header
                      extract`; with `extract`, reading takes far longer than decompressing
    tells_encoding    whether a file states its encoding, so that `curate init` need not guess it
    parts             whether parts of a file are read alone. WHOLE: never. USED: parts of an uncompressed file, if its
                      server sends parts. NEEDED: always. Such a file may not be compressed as a whole, and is copied
                      first if its server sends no parts
    may_grow          whether an uncompressed file may grow after planning; it is then read up to its planned size
    expansion         bytes of text per stored byte: an assumed value, and an upper bound
    step              verb for reading in the funnel that the console shows
    hint              comment that `curate init` writes
    """

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    start: ClassVar[bytes] = b"(?!)"
    fields: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[str, ...]] = ()
    tells_encoding: ClassVar[bool] = False
    parts: ClassVar[str] = WHOLE
    may_grow: ClassVar[bool] = True
    expansion: ClassVar[tuple[float, float]] = (1.0, 1.0)
    step: ClassVar[str] = "read"
    hint: ClassVar[str] = ""

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Yield the documents of a range, in batches of about `batch_bytes`, for files of any size.

        Text is valid UTF-8. Records that are no documents, and damage, are entries of `rejected`. Raises InputError if
        the file does not have this format.
        """
        raise NotImplementedError

    def joint(self, file_range: FileRange) -> Joint | None:
        """Return how to read a small file together with other small files; None for a file that is read alone."""
        return None

    def spans(self, file: SourceFile, size: Callable[[int], int], later_bytes: int) -> list[tuple[int, int]]:
        """Return (start, stop) of each range of a file. By default, a file has one range.

        size          function that returns the size of the next range, from the remaining bytes
        later_bytes   size of the files after this one
        """
        return [(0, max(file.bytes, 0))]

    def is_divisible(self, file: SourceFile) -> bool:
        """Return whether `piece` can return any piece of a file, and not only its start."""
        return False

    def piece(self, file: SourceFile, number: int, size: int) -> SampledRange | None:
        """Return the piece number `number` of a file that is cut into pieces of `size` stored bytes; None: only the
        start can be read.

        A file that is not divisible has one piece, its start.
        """
        return None

    def is_one_document(self, file: SourceFile) -> bool:
        """Return whether a file is one document, so that its start would be only a part of a document."""
        return False

    def row_counts(self, file: SourceFile) -> list[int] | None:
        """Return the number of records of each part of a file; None if the format does not store these numbers."""
        return None

    def is_plain_lines(self, file: SourceFile) -> bool:
        """Return whether a file is JSON Lines, and only its text and id are read, from fields that are not nested."""
        return False

    def computed_with(self, file: SourceFile) -> dict[str, str]:
        """Return the packages on which the texts of a file depend: name -> version. A run does not resume with other
        versions. Raises InputError if a package is missing."""
        return {}

    def note(self, file: SourceFile) -> str:
        """Return a note that `curate plan` shows about a file, besides its columns."""
        return ""

    def probe(self, file: SourceFile) -> SourceFile:
        """Return a file with its text column. Raises InputError if it lacks a required column or does not have this
        format."""
        self.computed_with(file)
        if file.types:
            raise InputError(f"{self.name} has only strings in its columns. Leave the types of columns out")
        for name in file.carried.values():
            if name not in self.fields:
                raise InputError(f"{self.name} has no column {name!r}; columns may name {', '.join(self.fields)}")
        if file.compression and not is_remote(file.path):  # remote files are not checked, since there may be very many
            head(file, 1)
        return file

    def columns(self, file: SourceFile) -> list[str]:
        """Return the names that `columns` may have. Raises InputError if the file cannot be read."""
        return [*self.fields]

    def sample_columns(self, file: SourceFile) -> dict[str, list[Any]]:
        """Return the values of each column in the first PROBED_RECORDS records. Raises InputError if the file cannot be
        read."""
        return {}

    def doubt(self, file: SourceFile) -> str:
        """Return a message about those of the first PROBED_RECORDS records that a run would reject; "" if there are
        none."""
        return ""

    def detect(self, file: SourceFile) -> dict[str, Any]:
        """Return the settings that a file needs and that differ from the defaults, from its first bytes."""
        return {}


class ColumnFormat(Format):
    """A format whose files have named columns, one of them with the text. A subclass defines `columns`."""

    def probe(self, file: SourceFile) -> SourceFile:
        self.computed_with(file)
        try:
            names = self.columns(file)
        except DamageError as error:
            again = "" if isinstance(error, WindowError) else AGAIN
            raise InputError(f"{shown(file.path)} cannot be read: {error}{again}") from None
        return self._with_column(file, names)

    def _with_column(self, file: SourceFile, names: Sequence[str]) -> SourceFile:
        """Return a file with its text column, one of `names`. Raises InputError if it lacks a required column."""
        column = file.text_column or find_column(names, file, advice=self._column_advice(names, file))
        probed = msgspec.structs.replace(file, text_column=column)
        _check_names(names, probed)
        return probed

    def columns(self, file: SourceFile) -> list[str]:
        raise NotImplementedError

    def _column_advice(self, names: Sequence[str], file: SourceFile) -> str:
        """Return the remedy for a file without a usual text column."""
        return SET["text_column"]


def _check_names(names: Sequence[str], file: SourceFile) -> None:
    """Raise InputError if a required column is missing or not unique."""
    where, counts = shown(file.path), Counter(names)
    for column in (file.text_column, file.id_column, *file.carried.values()):
        if counts[column] > 1:
            raise InputError(f"{where} has {counts[column]} columns named {column!r}; rename all but one")
        if column not in counts and column != file.id_column:
            option = "text_column" if column == file.text_column else "columns"
            near = near_or_nothing(column, names) or "."
            if column.rpartition(".")[0].partition(".")[0] in counts:
                near = ". Only JSON Lines have dotted paths into nested fields: write the field to a column of its own."
            raise InputError(f"column {column!r} not found in {where}; it has {shown_names(names)}{near} {SET[option]}")


def with_some_column(file: SourceFile) -> SourceFile:
    """Return a file that has no valid records, with the default text column."""
    return msgspec.structs.replace(file, text_column=file.text_column or TEXT_COLUMNS[0])


def find_column(names: Sequence[str], file: SourceFile, others: Sequence[str] = (), advice: str = "") -> str:
    """Return the first name of TEXT_COLUMNS that is in `names`. `others`: fields without strings, for the message."""
    column = next((name for name in TEXT_COLUMNS if name in names), "")
    if not column:
        no_text = next((f", {name!r} without a string" for name in TEXT_COLUMNS if name in others), "")
        raise InputError(
            f"{shown(file.path)} has none of the columns {', '.join(TEXT_COLUMNS)} with text; it has "
            f"{shown_names([*names, *others])}{no_text}. {advice or SET['text_column']}"
        )
    return column


def start_of(file: SourceFile, size: int = PROBED_BYTES) -> StreamChunk:
    """Return the first bytes of a file. For the last local file they are cached, since `curate init` needs them several
    times."""
    if not file.compression and file.bytes != UNKNOWN_SIZE:
        size = min(size, file.bytes)  # allocating a megabyte takes longer than reading a small file
    read = _read_start.__wrapped__ if is_remote(file.path) else _read_start
    return read(file.path, file.compression, size, file.bytes, file.modified_ns)


@lru_cache(maxsize=1)
def _read_start(path: str, compression: str, size: int, *_version: int) -> StreamChunk:
    with open_stream(path, compression) as stream:
        return read_chunk(stream, size)


def head(file: SourceFile, size: int = PROBED_BYTES) -> bytes:
    """Return the first bytes of a file. Raises InputError if they are damaged."""
    start = start_of(file, size)
    if start.damage and not start.data:
        raise InputError(
            f"nothing in {shown(file.path)} can be read: {start.damage}"
            f"{AGAIN if start.damage.startswith(FILE_DAMAGED) else ''}"
        )
    return start.data
