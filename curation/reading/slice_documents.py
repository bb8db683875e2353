# SPDX-License-Identifier: Apache-2.0
"""The documents of a slice, from the readers of its formats."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import ROW
from curation.reading.documents import HELD_BYTES, Documents
from curation.reading.formats import format_of
from curation.reading.locations import Location, shifted
from curation.reading.source_files import FileRange, Slice


def read_documents(input_slice: Slice, batch_bytes: int) -> Iterator[Documents]:
    """Yield the documents of a slice, in order, in batches of about `batch_bytes`.

    For a damaged file, yields the documents before the damage, and one rejected record that names the damage.
    """
    batches: list[Documents] = []
    size = 0
    for documents in _file_batches(input_slice, batch_bytes):
        batches.append(documents)
        size += documents.table.nbytes + HELD_BYTES * (len(documents.rejected) + len(documents.others))
        if size >= batch_bytes:
            yield _joined(batches)
            batches, size = [], 0
    if batches:
        yield _joined(batches)


def groups_of(file_ranges: Sequence[FileRange]) -> Iterator[list[FileRange]]:
    """Yield lists of ranges, in order. Small files that can be parsed together are in one list; every other range is
    alone."""
    for (_, key), same in groupby(file_ranges, _group_key):
        group = list(same)
        yield from [group] if key is not None else [[file_range] for file_range in group]


def _group_key(file_range: FileRange) -> tuple[str, Hashable]:
    joint = format_of(file_range.file).joint(file_range)
    return file_range.file.format, None if joint is None else joint.key


def _file_batches(input_slice: Slice, batch_bytes: int) -> Iterator[Documents]:
    """Yield the documents of the files of a slice, with consecutive row numbers."""
    first = number = 0  # rows and ranges before the group
    for group in groups_of(input_slice.ranges):
        kind, rows = format_of(group[0].file), 0
        joint = kind.joint(group[0]) if len(group) > 1 else None
        start = [Location(0, 0, 0)] if len(input_slice.ranges) > len(group) == 1 else []
        for documents in joint.read(group, batch_bytes) if joint else kind.read(group[0], batch_bytes):
            rows += documents.rows
            if documents.rows:
                documents, start = documents._replace(locations=[*start, *documents.locations]), []
            yield _shifted(documents, first, number) if number else documents
        first += rows
        number += len(group)


def _joined(batches: Sequence[Documents]) -> Documents:
    """Join batches of small files, since each batch costs a millisecond, whatever its size."""
    if len(batches) == 1:
        return batches[0]
    return Documents(
        table=pa.concat_tables([documents.table for documents in batches]),
        rejected=[entry for documents in batches for entry in documents.rejected],
        rows=sum(documents.rows for documents in batches),
        lines=sum(documents.lines for documents in batches),
        repaired=sum(documents.repaired for documents in batches),
        locations=[location for documents in batches for location in documents.locations],
        others=[record for documents in batches for record in documents.others],
    )


def _shifted(documents: Documents, first: int, number: int) -> Documents:
    """Add the numbers of earlier rows and ranges of the slice to the row and range numbers of a batch."""
    rows = pc.add(documents.table.column(ROW), pa.scalar(first, pa.int64()))
    rejected = [
        entry._replace(row=entry.row + first, file_index=entry.file_index + number) for entry in documents.rejected
    ]
    return documents._replace(
        table=documents.table.set_column(0, ROW, rows),
        rejected=rejected,
        locations=shifted(documents.locations, first, number),
        others=[record._replace(row=record.row + first) for record in documents.others],
    )
