# SPDX-License-Identifier: Apache-2.0
"""Joins the kept parts of a split document to one text again, for `cleaned/`.

Parts of one document are adjacent in `documents/`, and their ids are `x#k` with rising numbers k. `doc` minus k is
equal for all of them. A second copy of an input begins with a lower k.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array, text_buffers
from curation.base.contract import ID, TEXT
from curation.base.parquet import in_file_types
from curation.reading.split_settings import SEPARATOR
from curation.record.partitions import part_numbers


class _Part(NamedTuple):
    """The document of the last row: its source, the `doc` of its first part, and the part number of the row."""

    source: str
    first: int
    number: int


class Joiner:
    """Joins parts, table by table.

    split       names of the inputs whose documents are split
    separator   text between two parts; unset: the column `separator` has it for each document
    """

    def __init__(self, split: Collection[str], separator: str | msgspec.UnsetType) -> None:
        self.split, self.separator = pa.array(sorted(split), pa.string()), separator
        self.last: _Part | None = None

    def join(self, tables: Iterator[pa.Table], start: int, rows: int) -> Iterator[pa.Table]:
        """Yield the joined documents whose first part is in rows `start` to `start + rows` (exclusive) of the
        tables."""
        held: list[pa.Table] = []  # rows of the last document, which the next table may continue
        done = -start  # position of the first row of the table
        for table in tables:
            places = np.flatnonzero(self._begins(table))
            ends = places[places + done >= rows]
            stop = int(ends[0]) if len(ends) else len(table)
            places = places[(places + done >= 0) & (places < stop)]
            done += len(table)
            if held:
                held.append(table.slice(0, int(places[0]) if len(places) else stop))
            if held and (len(places) or len(ends)):
                yield self._joined(pa.concat_tables(held), np.zeros(1, np.int64))
                held = []
            if len(places):
                last = stop if len(ends) else int(places[-1])
                if len(before := places[places < last]):
                    yield self._joined(table.slice(before[0], last - before[0]), before - before[0])
                held = [table.slice(last)] if last < len(table) and not len(ends) else []
            if len(ends):
                return
        if held:
            yield self._joined(pa.concat_tables(held), np.zeros(1, np.int64))

    def _begins(self, table: pa.Table) -> np.ndarray:
        """Return a bool per row: false if the row is a later part of the document of the row before it."""
        number, doc = np.full(len(table), -1), table.column("doc").to_numpy()
        is_split = pc.is_in(table.column("source").cast(pa.string()), value_set=self.split).to_numpy()
        number[is_split] = part_numbers(table.column(ID).filter(pa.array(is_split)))
        source = table.column("source").combine_chunks()
        first = doc - number
        begins = np.ones(len(table), bool)
        same = pc.equal(source[1:], source[:-1]).to_numpy(zero_copy_only=False)
        begins[1:] = ~(is_split[1:] & same & (first[1:] == first[:-1]) & (number[1:] > number[:-1]))
        if len(table):
            own = _Part(source[0].as_py(), int(first[0]), int(number[0]))
            last = self.last
            if is_split[0] and last and own[:2] == last[:2] and own.number > last.number:
                begins[0] = False
            self.last = _Part(source[-1].as_py(), int(first[-1]), int(number[-1]))
        return begins

    def _joined(self, table: pa.Table, starts: np.ndarray) -> pa.Table:
        """Return one row per document, with the joined text. `starts` are the first rows of the documents. Columns that
        are not joined are those of a document's first kept part."""
        is_last = np.zeros(len(table), bool)
        is_last[np.append(starts[1:], len(table)) - 1] = True
        between = table.column(SEPARATOR).fill_null("") if self.separator is msgspec.UNSET else self.separator
        after = pc.if_else(pa.array(is_last), pa.scalar("", pa.large_string()), between)
        text = pc.binary_join_element_wise(
            table.column(TEXT).cast(pa.large_string()).fill_null(""),
            after.cast(pa.large_string()),
            pa.scalar("", pa.large_string()),
        )
        data, offsets = text_buffers(as_one_array(text))
        bounds = np.append(offsets[starts], offsets[-1])
        joined = pa.Array.from_buffers(pa.large_string(), len(starts), [None, pa.py_buffer(bounds), pa.py_buffer(data)])
        rows = table.drop_columns([SEPARATOR]).take(pa.array(starts))
        is_split = pc.is_in(rows.column("source").cast(pa.string()), value_set=self.split)
        ids = pc.if_else(is_split, pc.replace_substring_regex(rows.column(ID), r"#\d+$", ""), rows.column(ID))
        number = np.zeros(len(rows), np.int64)
        number[is_split.to_numpy()] = part_numbers(rows.column(ID).filter(is_split))
        doc = pc.subtract(rows.column("doc"), pa.array(number))
        for name, column in (("doc", doc), (ID, ids), (TEXT, joined)):
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return in_file_types(rows)
