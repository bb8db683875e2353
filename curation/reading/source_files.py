# SPDX-License-Identifier: Apache-2.0
"""Planned files and slices. A slice is the unit of work and of resuming.

A slice is a byte range of an uncompressed JSON Lines file, consecutive row groups of Parquet, a whole file of another
kind, or several small files. Results do not depend on the slices.
"""

from __future__ import annotations

import csv
from typing import Any

import msgspec

from curation.reading.inputs import DELIMITERS, QUOTE, ReadOptions
from curation.reading.urls import is_remote, shown


class SourceFile(ReadOptions, frozen=True, kw_only=True, omit_defaults=True):
    """A file of an input at the time of planning.

    bytes         stored size; -1 where a server does not give the size of an URL
    modified_ns   modification time in ns; 0 for URLs
    label         name of the data set that the file was made from; "" for other files
    commit        commit of the hub at which that data set was read
    version       version of an URL, a digest of its server's answer (`curation.reading.remote.version_of`)

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
    label: str = ""
    commit: str = ""
    version: str = ""

    @property
    def dialect(self) -> dict[str, Any]:
        """The delimiter and the quotes of CSV and TSV, as `csv.reader` takes them."""
        quoting = {"quotechar": self.quote} if self.quote else {"quotechar": None, "quoting": csv.QUOTE_NONE}
        return {"delimiter": self.delimiter or DELIMITERS[self.format], **quoting}

    def without_secrets(self) -> SourceFile:
        """Return the file as plans and reports store it: without user name, password and query of an URL."""
        return msgspec.structs.replace(self, path=shown(self.path)) if is_remote(self.path) else self


class FileRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a file.

    start, stop   bytes of an uncompressed JSON Lines file, or row groups of Parquet; other files have one range
    edges         digest by which `curation.reading.changes` recognises the bytes; "" for files that may not grow

    Lines belong to the range in which they begin.
    """

    file: SourceFile
    start: int
    stop: int
    edges: str = ""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of work: a range of one file, or several small files of one input."""

    index: int
    ranges: list[FileRange]

    @property
    def source(self) -> str:
        return self.ranges[0].file.source

    @property
    def columns(self) -> list[str]:
        return [*self.ranges[0].file.carried]
