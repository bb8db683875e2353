# SPDX-License-Identifier: Apache-2.0
"""Divides files into slices (byte ranges, row groups, whole files, or several small files), and decides which slices
share a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from curation.base.system.steps import each
from curation.reading.changes import edges_of
from curation.reading.formats import format_of
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.urls import is_remote

MAX_FILES_PER_SLICE = 1000


def plan_slices(files: Sequence[SourceFile], slice_bytes: int) -> list[Slice]:
    """Return the slices of `cut_slices` as a list, for inputs whose slices fit in memory."""
    return list(cut_slices(files, slice_bytes))


def cut_slices(
    files: Sequence[SourceFile], slice_bytes: int, *, min_bytes: int | None = None, workers: int = 1
) -> Iterator[Slice]:
    """Yield the slices of all files, numbered in order.

    slice_bytes   size of a slice, in stored bytes of its files (uncompressed bytes for Parquet)
    min_bytes   minimum size; slices then shrink towards the end: half of each worker's share of the remaining bytes
                  (guided self-scheduling: Polychronopoulos and Kuck, 1987), so no worker waits long for the last one.
                  None: all slices have the same size
    workers       number of workers, for `min_bytes`

    Raises InputError if a file cannot be opened, or if it should be a Parquet file and is not.
    """

    def size(remaining: int) -> int:
        return slice_bytes if min_bytes is None else min(slice_bytes, max(remaining // (2 * workers), min_bytes))

    return _joined(_grouped(files, size))


class _Group(NamedTuple):
    """The file ranges of a slice, the sum of their bytes, and the maximum of this sum."""

    ranges: list[FileRange]
    bytes: int
    most: int


def _joined(groups: Iterator[_Group]) -> Iterator[Slice]:
    """Yield slices. The first slice of an input joins the task of the slice before it, while that task is small."""
    key, source, size, files = None, "", 0, 0
    for index, group in enumerate(groups):
        first = group.ranges[0].file
        # all slices of a task share one table schema and one limit of text size
        before, key = key, (first.output_columns, first.parts is None, first.max_document_bytes)
        joins = (
            index > 0
            and key == before
            and source != first.source
            and size + group.bytes <= group.most
            and files + len(group.ranges) <= MAX_FILES_PER_SLICE
        )
        source = first.source
        size, files = size * joins + group.bytes, files * joins + len(group.ranges)
        yield Slice(index=index, ranges=group.ranges, joins=joins)


def _grouped(files: Sequence[SourceFile], size: Callable[[int], int]) -> Iterator[_Group]:
    """Yield groups: small files of one input together, each range of a larger file alone. `size` returns the slice size
    for the remaining bytes."""
    group: list[FileRange] = []
    group_bytes = 0
    remaining = sum(max(file.bytes, 0) for file in files)
    for file in each(files, "planning", "file"):
        slice_bytes = size(remaining)
        remaining -= max(file.bytes, 0)
        kind = format_of(file)
        spans = kind.spans(file, size, remaining)
        may_grow = kind.may_grow and not (file.compression or is_remote(file.path))
        ranges = (
            FileRange(file=file, start=start, stop=stop, edges=edges_of(file, start, stop) if may_grow else "")
            for start, stop in spans
        )
        small = len(spans) == 1 and 0 <= file.bytes < slice_bytes
        together = small and len(group) < MAX_FILES_PER_SLICE and group_bytes + file.bytes <= slice_bytes
        if group and not (together and group[0].file.source == file.source):
            yield _Group(group, group_bytes, slice_bytes)
            group, group_bytes = [], 0
        if small:
            group += ranges
            group_bytes += file.bytes
        else:
            yield from (_Group([file_range], slice_bytes, slice_bytes) for file_range in ranges)
    if group:
        yield _Group(group, group_bytes, size(remaining))
