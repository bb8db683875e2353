# SPDX-License-Identifier: Apache-2.0
"""Detect files that change between planning and reading.

A plan holds the size and the modification time (ns) of each file. For each range of an uncompressed text file (JSON
Lines, CSV, TSV, text, WET, WARC) it also holds a digest of the first and last EDGE_BYTES. Such a file may grow after
its planned size, as a log does: the new bytes are not read. Every other change is an error, because documents of two
states of a file would be mixed or lost.

Two kinds of changes are not detected, if all of these edges stay the same: a change that restores size and modification
time, and a change in a file that has also grown.
"""

from __future__ import annotations

import hashlib
import io
import os
from typing import Any, NoReturn

from curation.base.errors import InputError
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.remote import MIXED
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.streams import open_raw, open_stream
from curation.reading.urls import is_remote, shown

EDGE_BYTES = 4096
DIGEST_BYTES = 8


def edges_of(file: SourceFile, start: int, stop: int) -> str:
    """Return a digest (hex) of the first and last EDGE_BYTES of a range in bytes."""
    with open_raw(file.path) as raw:
        return _edges(raw, start, stop)


def check_unchanged(input_slice: Slice) -> None:
    """Raise InputError if a file of a slice has changed since planning. Call it after the slice has been read."""
    for file_range in input_slice.ranges:
        if file_range.file.copy:
            continue  # a copy in the folder of the run does not change
        if is_remote(file_range.file.path):
            _check_remote(file_range.file)
        else:
            _check_local(file_range)


def open_planned(file: SourceFile) -> Any:
    """Open the decompressed bytes of a file, up to its planned size. Reads raise InputError if the file is shorter."""
    if file.compression or file.bytes == UNKNOWN_SIZE:
        return open_stream(file.path, file.compression, file.planned)
    return _Planned(file)


class _Planned(io.RawIOBase):
    """An uncompressed file up to its planned size."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._raw = open_raw(file.path, file.planned)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.bytes}[whence]
        self._position = int(self._raw.seek(start + offset))
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(self._file.bytes - self._position, 0))
        count: int = self._raw.readinto(memoryview(buffer)[:wanted]) if wanted else 0
        if wanted and not count:
            _changed(self._file, f"it ends after {self._position:,} bytes, planned were {self._file.bytes:,}")
        self._position += count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


def _changed(file: SourceFile, how: str) -> NoReturn:
    raise InputError(f"{file.label or shown(file.path)} has changed while it was read: {how}. {MIXED}")


def _check_local(file_range: FileRange) -> None:
    file = file_range.file
    with open_raw(file.path) as raw:
        status = os.fstat(raw.fileno())
        grown = status.st_size > file.bytes
        if status.st_size < file.bytes or (grown and not file_range.edges):
            _changed(file, f"it has {status.st_size:,} bytes, planned were {file.bytes:,}")
        if not status.st_size and raw.read(1):
            raise InputError(
                f"{file.path} has content but size 0, as files of /proc have: copy it to a regular file first"
            )
        if not grown and status.st_mtime_ns != file.modified_ns:
            _changed(file, "its modification time differs")
        if file_range.edges and _edges(raw, file_range.start, file_range.stop) != file_range.edges:
            _changed(file, f"its bytes between {file_range.start:,} and {file_range.stop:,} differ")


def _check_remote(file: SourceFile) -> None:
    with open_raw(file.path) as raw:
        if raw.size != file.bytes:
            _changed(file, f"the server reports {raw.size:,} bytes, planned were {file.bytes:,}")
        if raw.version != file.version:
            _changed(file, "the server reports another version")


def _edges(raw: Any, start: int, stop: int) -> str:
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for first, last in ((start, min(stop, start + EDGE_BYTES)), (max(start, stop - EDGE_BYTES), stop)):
        raw.seek(first)
        digest.update(raw.read(last - first))
    return digest.hexdigest()
