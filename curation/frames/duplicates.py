# SPDX-License-Identifier: Apache-2.0
"""The groups and pairs that a stage for duplicates finds in a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.engine import engine_of, load_engine
from curation.base.errors import counted
from curation.base.system.html_table import html_table
from curation.frames.frames import apply_with_drops
from curation.frames.tables import as_frame, as_table, framed, is_column, is_table, like, table_of, unframed
from curation.stages import CorpusStage
from curation.stages.corpus.links import find_links, has_chains
from curation.stages.outcome import Drops

SHOWN_PAIRS = 5
NO_ROW = -1


class Duplicates(NamedTuple):
    """The duplicates in a frame: `exact_dedup` and `fuzzy_dedup` return them with `details=True`.

    kept     the frame without duplicates, as the function returns it without `details`
    pairs    one row per removed document: `row` and `kept_row`, the positions of the two in the frame; `similarity`, as
             `value` in `removed/`; `text` and `kept_text`; `id` and `kept_id` if the frame has ids.
             `fuzzy_dedup` adds `link_row` and `link_similarity` if only a chain joins the two: the document that
             links the removed one to the chain, and the similarity of both; else -1 and NaN
    groups   one row per kept document with duplicates, largest group first: `kept_row`, `documents`, their number with
             the kept one, and `similarity`, the lowest similarity to the kept one

    `kept_row` is -1, and the kept text and id are null, for documents of a saved index.
    """

    kept: Any
    pairs: Frame
    groups: Frame

    def __repr__(self) -> str:
        return f"<duplicates: {counted(len(self.pairs), 'document')} in {counted(len(self.groups), 'group')}>"

    def _repr_html_(self) -> str:
        names = ("similarity", "text", "kept_text")
        pairs = as_frame(table_of(self.pairs)) if is_table(self.pairs) else self.pairs
        table = engine_of(pairs).to_arrow(pairs[list(names)].head(SHOWN_PAIRS))
        rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
        note = f"the first {len(table)} of {len(self.pairs):,} pairs"
        return html_table(repr(self)[1:-1], names, rows, note)


def find_duplicates(frame: Any, stage: CorpusStage, text_column: str) -> Duplicates:
    """Return the duplicates that a stage finds in a frame, as frames of the same library."""
    if is_column(frame):
        kept, *others = find_duplicates(framed(frame, text_column), stage, text_column)
        return Duplicates(*(unframed(frame, part, text_column) for part in (kept, *others)))
    if is_table(frame):
        table = table_of(frame)
        kept, *others = find_duplicates(as_frame(table), stage, text_column)
        tables = (load_engine("cpu").to_arrow(part) for part in others)
        kept = as_table(kept, table, {text_column, *stage.writes()})
        return Duplicates(*(like(frame, part) for part in (kept, *tables)))
    decided = apply_with_drops(frame, stage, text_column)
    row, partner, value = _pairs(decided.drops)
    engine = engine_of(frame)
    wanted = np.unique(np.concatenate([row, partner[partner >= 0]]))
    texts = decided.rows(wanted)
    here = pa.array(np.searchsorted(wanted, row))
    there = pa.array(np.searchsorted(wanted, partner), mask=partner < 0)
    columns = {"row": pa.array(row), "kept_row": pa.array(partner), "similarity": pa.array(value)}
    for name in (ID, TEXT):
        if name in texts.column_names:
            found = texts.column(name).combine_chunks()
            columns |= {name: found.take(here), f"kept_{name}": found.take(there)}
    columns |= _links(engine, stage, partner, value, columns)
    pairs = engine.from_arrow(pa.table(columns))
    return Duplicates(decided.frame, pairs, engine.from_arrow(_groups(partner, value)))


def _pairs(drops: tuple[Drops, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three arrays: the removed rows, ascending; the row kept in the place of each; and the value of each
    removal."""
    parts = [
        (entry.row, np.full(len(entry.row), NO_ROW) if entry.index_folder else entry.partner, entry.value)
        for entry in drops
    ]
    row = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    partner = np.concatenate([np.zeros(0, np.int64), *(np.broadcast_to(part[1], len(part[0])) for part in parts)])
    value = np.concatenate([np.zeros(0), *(np.broadcast_to(part[2], len(part[0])) for part in parts)])
    order = np.argsort(row)
    return row[order].astype(np.int64), partner[order].astype(np.int64), value[order]


def _links(
    engine: Engine, stage: CorpusStage, partner: np.ndarray, value: np.ndarray, columns: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return two columns: for each pair, the row that links the removed row to the chain, and the similarity of the
    two. For a stage without chains, return no columns."""
    settings = msgspec.to_builtins(stage)
    if not has_chains(settings):
        return {}
    rows, similarity = np.full(len(partner), NO_ROW), np.full(len(partner), np.nan)
    order = np.argsort(partner, kind="stable")
    for kept in np.unique(partner[(value < settings["threshold"]) & (partner >= 0)]).tolist():
        low, high = np.searchsorted(partner[order], [kept, kept + 1]).tolist()
        at = order[low:high]
        texts = [columns[f"kept_{TEXT}"][int(at[0])].as_py(), *columns[TEXT].take(pa.array(at)).to_pylist()]
        for place, link in zip(at.tolist(), find_links(engine, settings, texts)[1:], strict=True):
            if link:
                rows[place], similarity[place] = columns["row"][int(at[link.position - 1])].as_py(), link.similarity
    return {"link_row": pa.array(rows), "link_similarity": pa.array(similarity)}


def _groups(partner: np.ndarray, value: np.ndarray) -> pa.Table:
    inside = partner >= 0
    kept, group, sizes = np.unique(partner[inside], return_inverse=True, return_counts=True)
    lowest = np.full(len(kept), np.inf)
    np.fmin.at(lowest, group, value[inside])
    lowest[np.isinf(lowest)] = np.nan  # with `verify: none` no similarity is measured
    order = np.argsort(-sizes, kind="stable")
    columns = {"kept_row": kept[order], "documents": sizes[order] + 1, "similarity": lowest[order]}
    return pa.table(columns)
