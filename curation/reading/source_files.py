# SPDX-License-Identifier: Apache-2.0
"""Files as a run plans them, and slices: the units of work and of resuming.

A slice is a byte range of a plain JSON Lines file, a run of Parquet row groups, a whole compressed file, or several
small files. Results do not depend on how slices are cut.
"""

from __future__ import annotations

import msgspec

from curation.reading.inputs import ReadOptions
from curation.reading.urls import is_remote, shown


class SourceFile(ReadOptions, frozen=True, kw_only=True, omit_defaults=True):
    """A file of an input as it was when the run was planned. `bytes` is -1 and `modified_ns` 0 where an URL's are not
    known. Stored without the fields that have their defaults: there may be hundreds of thousands of files."""

    path: str
    source: str
    format: str
    compression: str = ""
    bytes: int
    modified_ns: int
    separator: str = ""
    encoding: str = "utf-8"
    label: str = ""  # of a file made from a data set: the data set
    commit: str = ""  # of the hub, that it was read at
    version: str = ""  # of an URL, as its server tells it

    def without_secrets(self) -> SourceFile:
        """As plans and reports have it: without what an URL keeps secret."""
        return msgspec.structs.replace(self, path=shown(self.path)) if is_remote(self.path) else self


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """`start`, `stop` are bytes of a plain JSON Lines file, or row groups of Parquet; other files are whole. Lines
    belong to the part in which they begin. `edges` is what `curation.reading.changes` recognises the bytes by."""

    file: SourceFile
    start: int
    stop: int
    edges: str = ""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of work: a part of one file, or several small files of one input."""

    index: int
    parts: list[FilePart]

    @property
    def source(self) -> str:
        return self.parts[0].file.source

    @property
    def columns(self) -> list[str]:
        return self.parts[0].file.columns
