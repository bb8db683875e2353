# SPDX-License-Identifier: Apache-2.0
"""How files are cut into slices: byte ranges, row groups, whole files, or many small files together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from curation.reading import row_groups
from curation.reading.changes import edges_of
from curation.reading.source_files import FilePart, Slice, SourceFile

MAX_FILES_PER_SLICE = 1000


def plan_slices(
    files: Sequence[SourceFile], slice_bytes: int, *, least_bytes: int | None = None, workers: int = 1
) -> list[Slice]:
    """The slices of all files, numbered in order; each of about `slice_bytes` of the files.

    With `least_bytes` they get smaller towards the end, so that no worker waits long for the last one: half of each
    worker's share of what is left, but not less than that (guided self-scheduling: Polychronopoulos and Kuck, 1987).
    """

    def size(left: int) -> int:
        return slice_bytes if least_bytes is None else min(slice_bytes, max(left // (2 * workers), least_bytes))

    return [Slice(index=index, parts=parts) for index, parts in enumerate(_grouped(files, size))]


def _grouped(files: Sequence[SourceFile], size: Callable[[int], int]) -> Iterator[list[FilePart]]:
    """Small files of an input together; parts of larger ones alone. `size`: of the next slice, by what is left."""
    waiting: list[FilePart] = []
    waiting_bytes = 0
    left = sum(max(file.bytes, 0) for file in files)
    for file in files:
        slice_bytes = size(left)
        left -= max(file.bytes, 0)
        parts = [
            FilePart(file=file, start=start, stop=stop, edges=edges_of(file, start, stop))
            for start, stop in _spans(file, size, left)
        ]
        small = len(parts) == 1 and 0 <= file.bytes < slice_bytes
        together = small and len(waiting) < MAX_FILES_PER_SLICE and waiting_bytes + file.bytes <= slice_bytes
        if waiting and not (together and waiting[0].file.source == file.source):
            yield waiting
            waiting, waiting_bytes = [], 0
        if small:
            waiting += parts
            waiting_bytes += file.bytes
        else:
            yield from ([part] for part in parts)
    if waiting:
        yield waiting


def _spans(file: SourceFile, size: Callable[[int], int], behind: int) -> list[tuple[int, int]]:
    """The parts of a file with `behind` bytes of others behind it: of its bytes, or of its row groups."""
    if file.format == "parquet":
        groups = row_groups(file)
        return _row_group_spans(groups, size, behind * sum(groups) // max(file.bytes, 1))
    if file.format != "jsonl" or file.compression or file.bytes <= 0:
        return [(0, max(file.bytes, 0))]
    spans: list[tuple[int, int]] = []
    start = 0
    while start < file.bytes:
        stop = min(start + size(file.bytes - start + behind), file.bytes)
        spans.append((start, stop))
        start = stop
    return spans


def _row_group_spans(groups: Sequence[int], size: Callable[[int], int], behind: int) -> list[tuple[int, int]]:
    """As `_spans`; all sizes are uncompressed, files behind are taken to be compressed as this one is."""
    spans: list[tuple[int, int]] = []
    left = sum(groups) + behind
    start = taken = 0
    for group, group_bytes in enumerate(groups):
        taken += group_bytes
        if taken >= size(left):
            spans.append((start, group + 1))
            left -= taken
            start, taken = group + 1, 0
    if start < len(groups) or not spans:
        spans.append((start, len(groups)))
    return spans
