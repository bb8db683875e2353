# SPDX-License-Identifier: Apache-2.0
"""The held-out texts of an ablation, in three kinds that are never merged, and without leaks.

target        texts that the user names; they alone decide
raw-like      a random part of the raw documents, taken out of both arms
curated-like  the same documents as curation left them; those that it removed are missing

A filter makes its output look like itself, so curated text predicts curated text well and raw text badly, whatever it
is worth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import batches_by_size, seeded_hashes, split_mix
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import InputError, counted
from curation.frames.frames import apply
from curation.kernels.ngram_table import table_of
from curation.stages import FuzzyDedup
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings, compared_text
from curation.tools.ablation.documents import KEY, Pair, concat, digest_of, sources_of, texts_of
from curation.tools.ablation.store import Store

TARGET, RAW_LIKE, CURATED_LIKE = KINDS = ("target", "raw-like", "curated-like")
MIN_DOCUMENTS, MIN_SOURCES = 300, 5
READ_DOCUMENTS, MAX_DOCUMENTS = 4000, 1000  # of a kind: compared with the arms, and scored
MAX_BYTES = 1000  # of a text that is scored
SPLIT = 20  # one in so many raw documents is held out
NGRAM = 13  # words
JACCARD = 0.5  # near-duplicates
BATCH_BYTES = 4 << 20
COMPARE = "visible"  # how words are compared
ROW = "held_out_row"


class HeldOutTexts(NamedTuple):
    """Held-out texts of one kind.

    texts    large_string, each cut to at most MAX_BYTES
    sources  int64: number of the source of each text, in `names`
    read     documents before leaks were taken out
    leaked   documents taken out because they are in an arm, or near-duplicates of others
    """

    texts: pa.LargeStringArray
    sources: np.ndarray
    names: list[str]
    read: int
    leaked: int


def split_off(pair: Pair) -> tuple[Pair, pa.Table, pa.Table]:
    """Return the arms without the documents that are held out, and these as they are in the raw and in the curated
    arm. Keys decide, so copies of a document with the same key are held out together."""
    tables = (pair.raw, pair.curated)
    chosen = [split_mix(np.asarray(table.column(KEY).to_numpy())) % np.uint64(SPLIT) == 0 for table in tables]
    raw, curated = (table.filter(pa.array(~mask)) for table, mask in zip(tables, chosen, strict=True))
    raw_like, curated_like = (table.filter(pa.array(mask)) for table, mask in zip(tables, chosen, strict=True))
    return Pair(raw, curated, pair.removed), raw_like, curated_like


def clean(
    target: pa.Table,
    raw_like: pa.Table,
    curated_like: pa.Table,
    pair: Pair,
    store: Store | None = None,
    few: bool = False,
) -> dict[str, HeldOutTexts]:
    """Return the held-out texts of each kind, without those that share a word 13-gram with a text of an arm, or are
    near-duplicates of one or of each other. `store`: of what was found before.

    Raises InputError if too few of the target are left, unless `few` is true.
    """
    tables = [_chosen(table, READ_DOCUMENTS) for table in (target, raw_like, curated_like)]
    key = " ".join(digest_of(texts_of(table)) for table in (*tables, pair.raw, pair.curated)).encode()
    leaks = (store or Store()).get("leaks", key, lambda _: _leaks(tables, _both(pair))).copy()
    ends = np.cumsum([len(table) for table in tables])
    lost = tables[1].column(KEY).filter(pa.array(leaks[ends[0] : ends[1]]))
    leaks[ends[1] :] |= np.isin(tables[2].column(KEY).to_numpy(), lost.to_numpy())
    found = {}
    for kind, table, leaked in zip(KINDS, tables, np.split(leaks, ends[:-1]), strict=True):
        left = _chosen(table.filter(pa.array(~leaked)), MAX_DOCUMENTS)
        names, sources = np.unique(sources_of(left), return_inverse=True)
        found[kind] = HeldOutTexts(_cut(left), sources, names.tolist(), len(table), int(leaked.sum()))
    if not few:
        _check(found[TARGET])
    return found


def _leaks(tables: list[pa.Table], arms: pa.Table) -> np.ndarray:
    """Return for each document of the three kinds whether it is a leak (bool). Curated-like ones are not compared as
    near-duplicates: their raw versions are."""
    leaks, near = has_leak(concat(tables), arms), is_near_duplicate(concat(tables[:2]), arms)
    leaks[: len(near)] |= near
    return leaks


def _both(pair: Pair) -> pa.Table:
    """Return the texts of both arms, without the curated ones that are equal to the raw one with their key."""
    raw = {*zip(pair.raw.column(KEY).to_pylist(), pair.raw.column(TEXT).to_pylist(), strict=True)}
    pairs = zip(pair.curated.column(KEY).to_pylist(), pair.curated.column(TEXT).to_pylist(), strict=True)
    return concat([pair.raw, pair.curated.filter(pa.array([one not in raw for one in pairs], pa.bool_()))])


def _check(target: HeldOutTexts) -> None:
    documents, sources = len(target.texts), len(target.names)
    if documents < MIN_DOCUMENTS or sources < MIN_SOURCES:
        leaked = f"{target.leaked:,} of {target.read:,} are in the training text or near-duplicates. "
        have = f"{counted(documents, 'document')} of {counted(sources, 'source')}"
        raise InputError(
            f"the held-out text has {have} without leaks, expected {MIN_DOCUMENTS} of {MIN_SOURCES} or more: "
            f"{leaked if target.leaked else ''}Give more texts; each file is a source, or name the column of sources "
            "with --source-column"
        )


def _chosen(table: pa.Table, count: int) -> pa.Table:
    """Return at most `count` rows, chosen by hashes of keys, with numbers per source as equal as possible."""
    sources = np.unique(sources_of(table), return_inverse=True)[1]
    order = np.lexsort((seeded_hashes(table.column(KEY).to_numpy(), 1), sources))
    starts = np.searchsorted(sources[order], sources[order])
    rank = np.empty(len(table), np.int64)
    rank[order] = np.arange(len(table)) - starts
    return table.take(pa.array(np.sort(np.lexsort((sources, rank))[:count])))


def _cut(table: pa.Table) -> pa.LargeStringArray:
    texts = (text.encode()[:MAX_BYTES].decode(errors="ignore") for text in table.column(TEXT).to_pylist())
    return pa.array(texts, pa.large_string())


def has_leak(held_out: pa.Table, arms: pa.Table) -> np.ndarray:
    """Return for each held-out document whether it shares an n-gram of 13 words with a text of `arms` (bool). A text of
    fewer words is one n-gram."""
    engine, settings = load_engine("cpu"), ShingleSettings(COMPARISONS[COMPARE], NGRAM, False, "spaces")

    def compared(texts: pa.LargeStringArray) -> Any:
        return compared_text(engine, engine.from_arrow(pa.table({TEXT: texts}))[TEXT], settings)

    hashes, offsets = engine.shingles(compared(texts_of(held_out)), NGRAM, False)
    known, place = np.unique(hashes, return_inverse=True)
    seen = np.zeros(len(known), bool)
    table = table_of(("held-out",), known, np.zeros(len(known), np.int32))
    texts = texts_of(arms)
    for rows in batches_by_size(np.cumsum(pc.binary_length(texts).to_numpy()), BATCH_BYTES):
        text = compared(texts[rows])
        hits = engine.ngram_hits(text, table, NGRAM)[0] > 0
        if hits.any():
            frame = engine.filter_rows(text.to_frame(TEXT), hits)
            found = engine.shingles(frame[TEXT], NGRAM, False)[0]
            seen[np.searchsorted(known, found[np.isin(found, known)])] = True
    of_document = np.repeat(np.arange(len(held_out)), np.diff(offsets))
    return np.bincount(of_document, seen[place], len(held_out)) > 0


def is_near_duplicate(held_out: pa.Table, arms: pa.Table) -> np.ndarray:
    """Return for each held-out document whether it is a near-duplicate of a text of `arms`, or of a held-out document
    before it (bool), by `fuzzy_dedup`."""
    engine = load_engine("cpu")
    table = concat([arms, held_out]).append_column(ROW, pa.array(np.arange(len(arms) + len(held_out))))
    kept = engine.to_arrow(apply(engine.from_arrow(table), FuzzyDedup(threshold=JACCARD, compare=COMPARE)))
    is_kept = np.zeros(len(table), bool)
    is_kept[kept.column(ROW).to_numpy()] = True
    return np.asarray(~is_kept[len(arms) :])
