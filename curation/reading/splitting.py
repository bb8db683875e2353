# SPDX-License-Identifier: Apache-2.0
"""Splits documents of an input into parts. After reading, each part is a document.

The part number k of the document `x` has the id `x#k`. Parts of a record without an id, or with an empty id, have the
id `#k` until the `doc` of the record is known (`curation.record.partitions.with_ids`). The text between two parts is in
neither part; it is in the column `separator` of the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array, batches_by_size, text_buffers
from curation.base.contract import ID, ROW, TEXT, Batch, Engine
from curation.base.errors import InputError, IntegrityError
from curation.reading.documents import HELD_BYTES
from curation.reading.split_settings import MARKED, SEPARATOR, Split

HASH = pa.scalar("#", pa.large_string())
SPLIT_BYTES = 4 << 20  # of text that is split at once
# Values of all parts but the first
NOTHING: dict[str, Any] = {"lines": 0, "repaired": 0, "locations": (), "others": ()}
SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
TokenSizes = Callable[[pa.LargeStringArray], tuple[np.ndarray, np.ndarray]]


class PartSpans(NamedTuple):
    """The parts of texts: first byte and last byte + 1 of each part in the data buffer, and the number of parts of each
    text."""

    starts: np.ndarray
    stops: np.ndarray
    counts: np.ndarray

    def used(self) -> PartSpans:
        """Return the spans without the unused entries at the ends of their arrays."""
        parts = int(self.counts.sum())
        return PartSpans(self.starts[:parts], self.stops[:parts], self.counts)

    @staticmethod
    def empty(parts: int, texts: int) -> PartSpans:
        """Return arrays of these sizes for a kernel to fill; their values are undefined."""
        return PartSpans(np.empty(parts, np.int64), np.empty(parts, np.int64), np.empty(texts, np.int64))


def find_spans(text: pa.LargeStringArray, split: Split, token_sizes: TokenSizes | None = None) -> PartSpans:
    """Return the parts of texts, at least one per text.

    token_sizes   for a split by tokens: function that returns the bytes of each token, and the number of tokens of each
                  text

    Raises InputError if the pattern matches an empty text, or if `token_sizes` is missing for a split by tokens.
    """
    from curation.kernels import splitting as kernels  # loads Numba

    data, offsets = text_buffers(text)
    if isinstance(split.at, str):
        literal = split.at.replace(r"\n", "\n").replace(r"\t", "\t")
        if not SPECIAL.search(literal):
            needle = np.frombuffer(literal.encode(), np.uint8)
            spans = PartSpans.empty(kernels.count_literal(data, offsets[0], offsets[-1], needle) + len(text), len(text))
            kernels.find_literal(data, offsets, needle, *spans)
            return spans.used()
        marked = pc.replace_substring_regex(text, pattern=f"(?:{split.at})", replacement=MARKED)
        with_marks, bounds = text_buffers(marked)
        marks = (bounds[-1] - bounds[0] - offsets[-1] + offsets[0]) // 2
        spans = PartSpans.empty(marks + len(text), len(text))
        if kernels.find_marked(with_marks, bounds, offsets[0], *spans) >= 0:
            raise InputError(
                f"split.at: {split.at!r} matches an empty text in a document. Write a pattern that needs a character"
            )
        return spans
    if isinstance(split.sentences, int):
        return _by_sentences(text, split.sentences)
    assert isinstance(split.tokens, int)
    if token_sizes is None:
        raise InputError("split: tokens needs the tokenizer of a recipe. Run a recipe, then read its documents/")
    sizes, tokens = token_sizes(text)
    spans = PartSpans.empty(int(np.maximum(-(-tokens // split.tokens), 1).sum()), len(text))
    wrong = kernels.group_tokens(data, offsets, sizes, tokens, split.tokens, *spans)
    if wrong >= 0:
        raise IntegrityError(
            f"the tokens of {text[wrong].as_py()[:40]!r} have other bytes than the text. Report the tokenizer"
        )
    return spans.used()


def _by_sentences(text: pa.LargeStringArray, size: int) -> PartSpans:
    from curation.kernels import splitting as kernels
    from curation.kernels.units import SENTENCE, find_units

    data, offsets = text_buffers(text)
    units = find_units(data, offsets, None, SENTENCE)
    spans = PartSpans.empty(int(np.maximum(-(-units.counts // size), 1).sum()), len(text))
    kernels.group_units(offsets, units.spans, units.counts, size, *spans)
    return spans


class Parts:
    """The parts of a slice, batch by batch, with their positions.

    split         how documents are split
    batch_bytes   size of a batch of parts
    token_sizes   as in `find_spans`

    firsts     int64 arrays: position of the first part of each record so far. A record that is no document, or is not
               read, has one position
    documents, parts   number of documents that were split, and of their parts
    """

    def __init__(self, split: Split, batch_bytes: int, token_sizes: TokenSizes | None = None) -> None:
        self.split, self.batch_bytes, self.token_sizes = split, batch_bytes, token_sizes
        self.firsts: list[np.ndarray] = []
        self.records = self.positions = self.documents = self.parts = 0

    def batches(self, engine: Engine, batch: Batch) -> Iterator[tuple[Batch, int]]:
        """Yield batches of parts of the documents of a batch, each with the number of positions that parts have in
        addition to those of records. `row` is the position in the slice. Locations remain those of records. The frame
        of `batch` is an Arrow table."""
        table = batch.frame
        end = self.records + batch.rows
        rejected, others = list(batch.rejected), batch._replace(rejected=[], rows=0, **NOTHING)
        groups = [*self._groups(table)]
        for number, group in enumerate(groups):
            stop = int(groups[number + 1].column(ROW)[0].as_py()) if number + 1 < len(groups) else end
            count, first = stop - self.records, self.positions
            parts = self._split(group, count)
            rejects = [entry for entry in rejected if entry.row < stop]
            rejected = rejected[len(rejects) :]
            for piece, rows in enumerate(parts):
                part, added = others._replace(frame=engine.from_arrow(rows)), 0
                if piece == 0:
                    moved = [entry._replace(row=int(self.firsts[-1][entry.row - self.records])) for entry in rejects]
                    part = part._replace(rejected=moved, rows=self.positions - first)
                    added = part.rows - count
                if piece == number == 0:
                    part = part._replace(**{name: getattr(batch, name) for name in NOTHING})
                yield part, added
                del part
            self.records = stop

    def record_of(self, row: int) -> int:
        """Return the record of a part, from its position. The part must be in the last batch that `batches` has
        yielded."""
        return self.records + int(np.searchsorted(self.firsts[-1], row, side="right")) - 1

    def tables(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the parts of the documents of a table of `schema_of`, with rows from 0."""
        for group in self._groups(table):
            rows = pa.array(np.arange(self.records, self.records + len(group)), pa.int64())
            yield from self._split(group.set_column(0, ROW, rows), len(group))
            self.records += len(group)

    def _groups(self, table: pa.Table) -> Iterator[pa.Table]:
        """Yield the documents of a table in tables of about SPLIT_BYTES of text. An empty table is yielded
        unchanged."""
        table = table.combine_chunks()
        ends = np.cumsum(pc.binary_length(table.column(TEXT)).to_numpy())
        for batch in [*batches_by_size(ends, SPLIT_BYTES)] or [slice(0, 0)]:
            yield table.slice(batch.start, batch.stop - batch.start)

    def _split(self, table: pa.Table, records: int) -> Iterator[pa.Table]:
        """Split the documents among the next `records` records, and add the positions of these records. Return the
        tables of parts."""
        text = as_one_array(table.column(TEXT))
        spans = find_spans(text, self.split, self.token_sizes) if len(table) else PartSpans.empty(0, 0)
        positions = np.ones(records, np.int64)
        positions[table.column(ROW).to_numpy() - self.records] = spans.counts
        firsts = self.positions + np.cumsum(positions) - positions
        self.firsts.append(firsts)
        self.positions += int(positions.sum())
        self.documents += len(table)
        self.parts += len(spans.starts)
        return self._tables(table, text, spans, firsts[table.column(ROW).to_numpy() - self.records])

    def _tables(self, table: pa.Table, text: pa.Array, spans: PartSpans, firsts: np.ndarray) -> Iterator[pa.Table]:
        """Yield the parts in tables of about `batch_bytes`, with the columns of their documents."""
        others = table.drop_columns([ROW, ID, TEXT])
        held = HELD_BYTES + sum((pc.binary_length(column).fill_null(0).to_numpy() for column in others.columns), 0)
        ends = np.cumsum(spans.counts)
        sizes = np.repeat(np.broadcast_to(held, len(table)), spans.counts) + spans.stops - spans.starts
        for batch in [*batches_by_size(np.cumsum(sizes), self.batch_bytes)] or [slice(0, 0)]:
            number = np.arange(batch.start, batch.stop)
            document = np.searchsorted(ends, number, side="right")
            k = number - (ends - spans.counts)[document]
            yield _part_table(table, text, spans, number, document, k, firsts[document] + k)


def _part_table(
    table: pa.Table, text: pa.Array, spans: PartSpans, number: np.ndarray, document: np.ndarray, k: np.ndarray,
    rows: np.ndarray,
) -> pa.Table:  # fmt: skip
    """Return a table of the parts with the numbers `number`. Its columns are positions, ids, texts, carried columns,
    and the separator after each part."""
    data = text_buffers(text)[0]
    starts, stops = spans.starts[number], spans.stops[number]
    is_last = k + 1 == spans.counts[document]
    following = np.where(is_last, stops, spans.starts[np.minimum(number + 1, len(spans.starts) - 1)])
    of = pa.array(document)
    ids = table.column(ID).combine_chunks().fill_null("").take(of)
    columns: dict[str, Any] = {
        ROW: pa.array(rows, pa.int64()),
        ID: pc.binary_join_element_wise(ids, pa.array(k).cast(pa.large_string()), HASH),
        TEXT: _copied(data, starts, stops),
    }
    for name in table.column_names:
        if name not in columns:
            columns[name] = table.column(name).combine_chunks().take(of)
    return pa.table(columns | {SEPARATOR: _copied(data, stops, following)})


def _copied(data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> pa.Array:
    """Copy spans of bytes to an array of texts."""
    from curation.kernels.splitting import copy_spans

    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(stops - starts, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_spans(data, starts, stops, out)
    return pa.Array.from_buffers(pa.large_string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(out)])
