# SPDX-License-Identifier: Apache-2.0
"""`ngram_dedup`: remove a document if earlier kept documents contain nearly all of its n-grams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import RecipeError, as_share, nearest
from curation.base.system.sealed import read_sealed, write_sealed
from curation.kernels.ngrams import FREE, pass_documents
from curation.stages.base import CorpusStage, Function, Phase
from curation.stages.corpus.key_ranges import divide, once, row_type
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings, for_texts, joined_text, kernels_of_text
from curation.stages.corpus.stored_drops import read_drops, write_drops
from curation.stages.outcome import Corpus, Decision, StageCount
from curation.stages.words import check_words

COMPARED, REASON = "compared", "seen_ngrams"  # phase; reason in `removed/`
SLOT_BYTES = 12  # a 64-bit hash and the row of the first document with it
# At most two thirds of the slots are used. A larger table is slower: its memory pages are accessed at random, and the
# system clears each page before its first use.
SLOTS_PER_NGRAM = 1.5
BYTES_PER_WORD = 6  # estimate of the bytes of text per word, for `explain`


class NgramDedup(CorpusStage, frozen=True, kw_only=True, tag="ngram_dedup"):
    """Remove a document if earlier kept documents contain a share of at least `min_seen` of its distinct word n-grams.

    ngram             number of words in an n-gram; at least 1
    min_seen          share of n-grams, in (0, 1]
    compare           `exact`: compare the text unchanged; `lowercase`: `text.lower()`; `folded` and `visible`: as in
                      `fuzzy_dedup`
    words             what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe
    max_memory_bytes  upper bound of the n-gram table in bytes: 18 per n-gram, about one n-gram per word. The table
                      is sized for all documents that reach the stage, before it reads their texts. A corpus that
                      needs more is a RecipeError

    One process compares all documents in order, so more machines do not help, and `max_memory_bytes` bounds the text:
    8 GB hold 444 million n-grams, about 2.7 GB of text. Use `fuzzy_dedup` for more.

    A document with fewer words than `ngram` has no n-gram and is kept; `exact_dedup` removes short copies. n-grams are
    compared by 64-bit hashes. In `removed/` the value is the share of n-grams seen before, and `duplicate_of` is the
    kept document that was the first with most of these n-grams.
    """

    function: ClassVar[Function] = Function(
        """Return the rows with less than the share `min_seen` of their distinct word n-grams in rows kept before them.

        On a Dask frame the call itself reads all text twice. The first pass computes 16 bytes of keys per document, the
        second decides, partition after partition. The rows stay lazy.

            >>> frame = pandas.DataFrame({"text": ["one two three", "two three", "three four"]})
            >>> curation.ngram_dedup(frame, ngram=2)["text"].tolist()
            ['one two three', 'three four']

        Raises RecipeError for a table larger than `max_memory_bytes`.
        """,
    )

    ngram: int = 5
    min_seen: float = 0.9
    compare: str = "exact"
    words: str = ""
    max_memory_bytes: int = 8_000_000_000

    # 2: documents without n-grams are kept; 3: `visible`, words; 4: `joined_text`, words counted in compared texts
    revision: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_words(self.words)
        if self.ngram < 1:
            raise ValueError(f"ngram must be at least 1, not {self.ngram}")
        if not 0 < self.min_seen <= 1:
            advice = as_share(self.min_seen) or ". It is the share of n-grams seen before"
            raise ValueError(f"min_seen must be above 0 and at most 1, not {self.min_seen}{advice}")
        if self.compare not in COMPARISONS:
            raise ValueError(f"compare: no comparison {self.compare!r}{nearest(self.compare, COMPARISONS)}")
        if self.max_memory_bytes < 1:
            raise ValueError(f"max_memory_bytes must be at least 1, not {self.max_memory_bytes}")

    def kernels(self) -> tuple[str, ...]:
        return ("measures", *kernels_of_text(self.compare, self.words), "shingles", "ngram_dedup")

    @property
    def settings(self) -> ShingleSettings:
        """The settings of n-grams."""
        return ShingleSettings(COMPARISONS[self.compare], self.ngram, False, self.words)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        return engine.measure(joined_text(engine, frame[TEXT], self.settings), ("words",))

    def phases(self) -> Sequence[Phase]:
        return (Phase(COMPARED, once, self._compare, durable=True),)

    def _compare(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Compare all documents in order, and write the documents to remove to files. Memory holds the table and one
        batch."""
        keys, owners = self._table(corpus)
        details = {"ngrams_kept": 0, "too_few_words": 0, "table_bytes": keys.nbytes + owners.nbytes}

        def shingle(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
            text = engine.from_arrow(pa.table({TEXT: texts}))[TEXT]
            return engine.shingles(joined_text(engine, text, self.settings), self.ngram, False)

        def removed() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for part in _parts(corpus):
                words, first = part.column("words"), 0
                details["too_few_words"] += int(np.count_nonzero(words < self.ngram))
                for hashes, offsets in for_texts(part, np.arange(len(words)), shingle):
                    batch = slice(first, first + len(offsets) - 1)
                    first, enough, rows = batch.stop, words[batch] >= self.ngram, part.rows[batch]
                    places = np.empty(np.diff(offsets).max(initial=0), np.int32)
                    kept, value = np.empty(len(rows), np.int32), np.empty(len(rows), np.float64)
                    details["ngrams_kept"] += pass_documents(
                        hashes, offsets, enough, rows, self.min_seen, keys, owners, places, kept, value
                    )
                    gone = np.flatnonzero(kept != -1)
                    yield rows[gone], kept[gone], value[gone]

        write_drops(corpus, REASON, removed())
        write_sealed(_details_path(corpus), details)

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        return Decision((read_drops(corpus, REASON),), details=read_sealed(_details_path(corpus)))

    def explain(self) -> list[str]:
        ngrams = int(self.max_memory_bytes / (SLOTS_PER_NGRAM * SLOT_BYTES))
        return [
            f"remove documents with {self.min_seen:.1%} or more of their {self.ngram}-grams in earlier kept ones",
            f"one process reads all documents in order; its table of {self.max_memory_bytes / 1e9:,.1f} GB holds "
            f"{ngrams:,} n-grams, about {ngrams * BYTES_PER_WORD / 1e9:,.1f} GB of text. More stop the run",
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        details = count.details
        table = f"{details['ngrams_kept']:,} n-grams in a table of {details['table_bytes'] / 1e6:,.1f} MB"
        short = f"{details['too_few_words']:,} of fewer than {self.ngram} words kept"
        return [f"{count.removed:,} removed; {short}; {table}"]

    def _table(self, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
        """Return an empty table, of which the n-grams fill two thirds. Raises RecipeError if the table exceeds
        `max_memory_bytes`, or if row numbers exceed int32."""
        documents = ngrams = 0
        for part in _parts(corpus):
            words = part.column("words")
            documents += len(words)
            ngrams += int(np.maximum(words - self.ngram + 1, 0).sum(dtype=np.int64))
        slots = int(ngrams * SLOTS_PER_NGRAM) + 4
        if slots * SLOT_BYTES > self.max_memory_bytes:
            raise RecipeError(
                f"{self.name or 'ngram_dedup'}: {documents:,} documents with {ngrams:,} n-grams need a table of "
                f"{slots * SLOT_BYTES / 1e9:,.1f} GB, max_memory_bytes is {self.max_memory_bytes / 1e9:,.1f} GB. "
                "Raise it if the machine has the memory, or remove more documents in earlier stages"
            )
        if row_type(corpus) != "int32":
            raise RecipeError(
                f"{self.name or 'ngram_dedup'}: the segment has {corpus.storage.starts[-1]:,} documents; at most "
                f"{2**31 - 1:,} can be compared. Divide the input, or use fuzzy_dedup"
            )
        return np.empty(slots, np.uint64), np.full(slots, FREE, np.int32)


def _parts(corpus: Corpus) -> Iterator[Corpus]:
    """Yield the corpus in parts of a few million rows at most."""
    for first, last in pairwise(divide(corpus.storage.starts, 1, corpus.workers).slice_groups):
        yield corpus.between(first, last)


def _details_path(corpus: Corpus) -> Path:
    return corpus.scratch / COMPARED / "details.json"
