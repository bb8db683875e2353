# SPDX-License-Identifier: Apache-2.0
"""Texts without a visible character. They are no documents: as tokens, each would be only an end-of-document token."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import ROW, TEXT, Batch, Engine, Frame, Rejected
from curation.kernels.look_alikes import blank_characters, class_of
from curation.reading.documents import Documents
from curation.reading.locations import Location
from curation.reading.slice_documents import read_documents
from curation.reading.source_files import Slice
from curation.reading.splitting import Parts

BLANK = "text has no visible character"


def blank_texts(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return per text (string array without nulls) whether it has no visible character (bool array)."""
    is_visible = pc.match_substring_regex(texts, f"[^{_blank_class()}]")
    return ~np.asarray(is_visible, bool)


def without_blank(table: pa.Table) -> pa.Table:
    """Return the rows of a table of documents whose texts have a visible character."""
    is_blank = blank_texts(table.column(TEXT))
    return table.filter(pa.array(~is_blank)) if is_blank.any() else table


def read_visible(input_slice: Slice, batch_bytes: int) -> Iterator[Documents]:
    """Yield the batches of `read_documents`. Texts without a visible character become rejected records, unless the
    input keeps them (`keep_blank`)."""
    if input_slice.ranges[0].file.keep_blank:
        yield from read_documents(input_slice, batch_bytes)
        return
    blank = BlankRows()
    for documents in read_documents(input_slice, batch_bytes):
        is_blank = blank_texts(documents.table.column(TEXT))
        rows = documents.table.column(ROW).filter(pa.array(is_blank))
        table = documents.table.filter(pa.array(~is_blank)) if len(rows) else documents.table
        yield documents._replace(table=table, rejected=blank.rejected(documents, rows))


class BlankRows:
    """Rejects the texts of a slice without a visible character, batch by batch. The file and line of a rejected row are
    computed from the locations of a batch and the last location before it."""

    def __init__(self) -> None:
        self.last = Location(0, 0, 0)

    def reject(self, engine: Engine, batch: Batch, parts: Parts | None = None) -> Batch:
        """Return the batch, with texts without a visible character as rejected records. `parts` is given if the
        documents are parts of records."""
        is_blank = _blank_rows(engine, batch.frame)
        rows = engine.to_arrow(engine.filter_rows(batch.frame[[ROW]], is_blank)).column(0) if is_blank.any() else ()
        rejected = self.rejected(batch, rows, parts)
        return batch._replace(frame=engine.filter_rows(batch.frame, ~is_blank), rejected=rejected)

    def rejected(
        self, batch: Batch | Documents, rows: Iterable[pa.Scalar], parts: Parts | None = None
    ) -> list[Rejected]:
        """Return the rejected records of the next batch, including its `rows`, whose texts have no visible
        character."""
        locations = [self.last, *batch.locations]
        self.last = locations[-1]
        firsts, rejected = [location.row for location in locations], list(batch.rejected)
        for row in (value.as_py() for value in rows):
            record = parts.record_of(row) if parts else row
            at = locations[bisect_right(firsts, record) - 1]
            rejected.append(Rejected(row, at.line + record - at.row, -1, BLANK, at.file_index))
        return sorted(rejected, key=lambda entry: entry.row)


def _blank_rows(engine: Any, frame: Frame) -> np.ndarray:
    """Return per row whether its text has no visible character. Only texts that begin with an invisible character are
    copied to the host."""
    is_blank = np.isin(engine.hash_text(frame[TEXT], 1)[:, 0], _hashes_of_starts(engine))
    if is_blank.any():
        is_blank[is_blank] = blank_texts(engine.to_arrow(engine.filter_rows(frame[[TEXT]], is_blank)).column(0))
    return is_blank


@cache
def _blank_class() -> str:
    return class_of(blank_characters())


@cache
def _hashes_of_starts(engine: Any) -> np.ndarray:
    """Return the hashes of the empty text and of each character that is not visible."""
    starts = ["", *map(chr, np.flatnonzero(blank_characters()).tolist())]
    frame = engine.from_arrow(pa.table({TEXT: pa.array(starts, pa.large_string())}))
    return engine.hash_text(frame[TEXT], 1)[:, 0]
