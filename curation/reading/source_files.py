# SPDX-License-Identifier: Apache-2.0
"""Planned files and slices. A task reads one slice, or small slices of several inputs. A resumed run repeats whole
tasks.

A slice is a byte range of an uncompressed JSON Lines file, consecutive row groups of Parquet, a whole file of another
kind, or several small files. Results do not depend on the slices.
"""

from __future__ import annotations

import codecs
from typing import Literal

import msgspec

from curation.reading.extract_settings import Extract
from curation.reading.split_settings import SEPARATOR, Split
from curation.reading.urls import is_remote, shown

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
QUOTE = '"'
UTF8 = ("utf-8", "utf-8-sig")  # names in `codecs` of UTF-8, which every format reads
# Byte order marks of other encodings. UTF-32 comes first, since its mark begins with that of UTF-16; a text in UTF-16
# does not begin with a NUL.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
MARK_BYTES = 4  # length of the longest mark
RESERVED = ("doc", "row", "id", "source", "text", "bytes")  # columns of the outputs


def encoding_by_mark(start: bytes, encoding: str = "utf-8") -> str:
    """Return the encoding of a file that begins with `start`: that of its byte order mark, or else `encoding`.

    A mark has no effect if `encoding` is not UTF-8, the default.
    """
    marked = codecs.lookup(encoding).name in UTF8
    return next((name for mark, name in MARKS if start.startswith(mark)), encoding) if marked else encoding


class CarriedColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A carried column: the field of the records that it copies, and its type in `documents/`."""

    field: str
    type: Literal["string", "integer", "number", "boolean"] = "string"


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for reading records as documents. Each kind of input has them, and so has each of its files
    (`SourceFile`)."""

    text_column: str = ""
    id_column: str = "id"
    columns: list[str] | dict[str, str | CarriedColumn] = []
    max_document_bytes: int = 100_000_000
    sample: float = 1.0
    keep_blank: bool = False

    @property
    def carried(self) -> dict[str, str]:
        """Name of each carried column in the outputs -> its name in the input: a field of records, or a column of
        files."""
        if not isinstance(self.columns, dict):
            return dict(zip(self.columns, self.columns, strict=True))
        return {name: each.field if isinstance(each, CarriedColumn) else each for name, each in self.columns.items()}

    @property
    def types(self) -> dict[str, str]:
        """Carried column -> its declared type in `documents/`; other columns are strings."""
        declared = self.columns.items() if isinstance(self.columns, dict) else ()
        return {name: each.type for name, each in declared if isinstance(each, CarriedColumn) and each.type != "string"}

    @property
    def parts(self) -> Split | None:
        """How documents are split; None for whole documents. In a data set of Hugging Face, `split` names a part of the
        data set instead."""
        split = getattr(self, "split", None)
        return split if isinstance(split, Split) else None

    @property
    def output_columns(self) -> list[str]:
        """The columns that documents have after reading, besides row, id and text."""
        return [*self.carried, *([SEPARATOR] if self.parts else [])]

    def check(self) -> None:
        """Raise ValueError for a setting out of range. The files of a plan skip this check."""
        if self.text_column == self.id_column:
            raise ValueError(f"text_column and id_column are both {self.text_column!r}")
        for column, field in self.carried.items():
            if column in RESERVED:
                raise ValueError(
                    f"columns may not name {column!r}: the outputs have their own column of that name. Leave it "
                    f"out, or give it another name: columns: {{input_{column}: {field}}}"
                )
        if len(self.carried) < len(self.columns):
            twice = next(name for index, name in enumerate(self.columns) if name in [*self.columns][:index])
            raise ValueError(f"columns may not name {twice!r} twice")
        if "" in (*self.carried, *self.carried.values()):
            raise ValueError("columns has an empty name. Write names of fields, or a mapping of column to field")
        if self.parts and SEPARATOR in self.carried:
            raise ValueError(
                f"columns may not name {SEPARATOR!r} with split, which writes the text between two parts to that "
                f"column. Rename yours: columns: {{input_{SEPARATOR}: {self.carried[SEPARATOR]}}}"
            )
        if self.max_document_bytes < 1:
            raise ValueError(f"max_document_bytes must be at least 1, not {self.max_document_bytes}")
        if not 0 < self.sample <= 1:
            raise ValueError(
                f"sample must be above 0 and at most 1, not {self.sample}. To read nothing, leave the input out"
            )


class SourceFile(ReadOptions, frozen=True, kw_only=True, omit_defaults=True):
    """A file of an input at the time of planning.

    bytes         stored size; -1 where a server does not give the size of a URL
    modified_ns   modification time in ns; 0 for URLs
    label         name of the data set that the file was made from; "" for other files
    commit        commit of the hub at which that data set was read
    version       version of a URL, a digest of its server's answer (`curation.reading.answers.version_of`)
    is_whole      whether a server sends the file only from its beginning to its end, and no part of it
    copy          local copy that is read in place of the URL; "" for none

    Plans store only fields without their default: there may be hundreds of thousands of files.
    """

    path: str
    source: str
    format: str
    compression: str = ""
    bytes: int
    modified_ns: int
    separator: str = ""
    encoding: str = "utf-8"
    delimiter: str = ""
    quote: str = QUOTE
    escape: str | msgspec.UnsetType = msgspec.UNSET
    header: bool = True
    split: Split | msgspec.UnsetType = msgspec.UNSET
    extract: Extract | msgspec.UnsetType = msgspec.UNSET
    label: str = ""
    commit: str = ""
    version: str = ""
    is_whole: bool = False
    copy: str = ""

    @property
    def planned(self) -> tuple[int, str]:
        """Size and version at planning, which are compared when a URL is opened."""
        return self.bytes, self.version

    @property
    def extraction(self) -> Extract:
        """How the main text of web pages is found."""
        return self.extract or Extract()

    def without_secrets(self) -> SourceFile:
        """Return the file as plans and reports store it: without user name, password and query of a URL."""
        return msgspec.structs.replace(self, path=shown(self.path)) if is_remote(self.path) else self


class FileRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a file.

    start, stop   bytes of an uncompressed JSON Lines file, or row groups of Parquet; other files have one range
    edges         digest of the first and last bytes, for `curation.reading.changes`; "" for files that may not grow

    Lines belong to the range in which they begin.
    """

    file: SourceFile
    start: int
    stop: int
    edges: str = ""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A range of one file, or several small files of one input.

    skip, stop   the records from `skip` to `stop` (exclusive) of the slice are read; -1: to the end
    ended_by     setting of the input because of which nothing after `stop` is read
    joins        whether one task reads this slice and the slice before it, which is of another input
    """

    index: int
    ranges: list[FileRange]
    skip: int = 0
    stop: int = -1
    ended_by: str = ""
    joins: bool = False

    @property
    def source(self) -> str:
        """The name of the input; all ranges are of one input."""
        return self.ranges[0].file.source

    @property
    def is_limited(self) -> bool:
        """Whether some of the records are not read."""
        return self.skip > 0 or self.stop >= 0

    @property
    def is_split(self) -> bool:
        """Whether the documents are parts of records."""
        return self.ranges[0].file.parts is not None

    @property
    def columns(self) -> list[str]:
        """The carried columns, by their names in the output."""
        return self.ranges[0].file.output_columns
