# SPDX-License-Identifier: Apache-2.0
"""`fuzzy_dedup`: keep one document of each group of near-duplicates. MinHash bands find candidates; a check confirms
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from curation.arrays import batches_of, positions_of, save_array
from curation.contract import TEXT, Engine, Frame, position_type
from curation.errors import RecipeError, nearest
from curation.kernels.permutations import VERSION, constants
from curation.kernels.rewrite import RewriteSteps
from curation.stages.base import CorpusStage, Phase
from curation.stages.outcome import Corpus, Decision, Drops, StageCount
from curation.stages.saved_index import DESCRIPTION, Matches, SavedIndex, find_matches, write_index
from curation.stages.similarity import (
    ExactJaccard,
    Grouping,
    ShingleSettings,
    SignatureJaccard,
    Similarity,
    Unchecked,
    find_candidates,
    measure_pairs,
    read_keys,
)
from curation.system.files import commit, make_folder, remove

if TYPE_CHECKING:
    import pyarrow as pa

COMPARISONS = {
    "lowercase": RewriteSteps(lowercase=True),
    "exact": RewriteSteps(),
    "folded": RewriteSteps(lowercase=True, characters="folded"),
}
UNITS = ("word", "character")
CHECKS = ("exact", "signature", "none")
KEEP = ("first", "longest")
RECALL = 0.995  # share of the pairs at the threshold that the default bands find
LARGEST_SHOWN = 10
SHOWN_JACCARD = 0.5  # start of the S-curve in `explain`
INDEX, CANDIDATES, SIMILARITY = "index", "candidates", "similarity"  # phases
MATCHES, POSITIONS = "matches.npz", "positions.npy"  # files of the first two phases


class FuzzyDedup(CorpusStage, frozen=True, kw_only=True, tag="fuzzy_dedup"):
    """Keep one document of each group of near-duplicates.

    Two documents are near-duplicates if the Jaccard similarity of their sets of n-grams is at least `threshold`.
    Documents that share a MinHash band are candidates (Broder 1997; Lee et al. 2022). Near-duplicates are joined in
    groups; a group may hold a chain A ~ B ~ C in which A and C are not near-duplicates. A document with fewer words or
    characters than `ngram` has one n-gram, all of them. A document without words is never a near-duplicate.

    ngram         number of units in an n-gram
    unit          `word` (`str.split()`) or `character`
    compare       `lowercase`: compare `text.lower()`; `exact`: the text unchanged; `folded`: lower case, decimal digits
                  replaced by 0, punctuation (categories P*) by a space
    permutations  number of components of the MinHash signature; 4 bytes each per candidate with `verify: signature`
    seed          seed of the permutations, below 2^64
    threshold     Jaccard similarity in (0, 1]
    bands         number of bands; 0: as many as `permutations` allow
    rows          number of signature components in a band; 0: the largest number that finds 99.5 % of the pairs at the
                  threshold, or `permutations / bands`
    verify        `exact`: compute the Jaccard similarity of candidates, with one more read of their text; `signature`:
                  estimate it from the signatures; `none`: accept all candidates
    keep          document kept of a group. `first`: the first one, by the order of inputs and documents; `longest`: the
                  one with most bytes, then the first; or a list of input names: the first one of the earliest input,
                  where inputs that are not listed come last
    index         folder `index` of an earlier run with `output: {index: true}` and the same settings. Documents with a
                  near-duplicate in it are removed first, with the reason `near_duplicate_of_index`; "" for none

    In `removed/` the value is the similarity to the kept document: exact, estimated, or NaN with `verify: none`. It is
    below `threshold` if only a chain joins the two.
    """

    ngram: int = 5
    unit: str = "word"
    compare: str = "lowercase"
    permutations: int = 128
    seed: int = 1
    threshold: float = 0.8
    bands: int = 0
    rows: int = 0
    verify: str = "exact"
    keep: str | list[str] = "first"
    index: str = ""

    indexes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for field, allowed in (("unit", UNITS), ("compare", tuple(COMPARISONS)), ("verify", CHECKS)):
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(allowed)}, not {getattr(self, field)!r}")
        for field, low in (("ngram", 1), ("permutations", 1), ("bands", 0), ("rows", 0), ("seed", 0)):
            if getattr(self, field) < low:
                raise ValueError(f"{field} must be at least {low}, not {getattr(self, field)}")
        if self.seed >= 2**64:
            raise ValueError(f"seed must be below 2^64, not {self.seed}")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}")
        if isinstance(self.keep, str) and self.keep not in KEEP:
            raise ValueError(f"keep must be one of {', '.join(KEEP)} or a list of input names, not {self.keep!r}")
        if not self.keep or (len(set(self.keep)) < len(self.keep) and not isinstance(self.keep, str)):
            raise ValueError(f"keep must list each input once, not {self.keep!r}")
        bands, rows = self.banding
        if bands * rows > self.permutations or bands == 0:
            raise ValueError(f"{bands or 1} bands of {rows} rows need more than the {self.permutations} permutations")

    @property
    def banding(self) -> tuple[int, int]:
        """Number of bands and of rows per band."""
        if self.rows:
            return self.bands or self.permutations // self.rows, self.rows
        if self.bands:
            return self.bands, max(self.permutations // self.bands, 1)
        for rows in range(self.permutations, 0, -1):
            if share_probability(self.threshold, self.permutations // rows, rows) >= RECALL:
                return self.permutations // rows, rows
        raise ValueError(
            f"with {self.permutations} permutations no bands find {RECALL:.1%} of the pairs at threshold "
            f"{self.threshold}; raise permutations, or set bands and rows"
        )

    def kernels(self) -> tuple[str, ...]:
        by_check = {"exact": ("shingles", "file_ranges"), "signature": ("signatures",), "none": ()}
        rewriting = () if self.compare == "exact" else ("rewrite",)
        return ("band_keys", "leaders", "pairs", *by_check[self.verify], *rewriting)

    def check(self, inputs: Sequence[str]) -> None:
        """Check `keep` and `index`: RecipeError for an unknown input, or an index that is missing or has other
        settings."""
        for name in [] if isinstance(self.keep, str) else self.keep:
            if name not in inputs:
                raise RecipeError(f"keep: no input is named {name!r}{nearest(name, inputs)}")
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        return {str(Path(self.index) / DESCRIPTION): self.open_index().digest} if self.index else {}

    def explain(self) -> list[str]:
        """Return the bands and their probability of finding a pair, from a Jaccard similarity of 0.5 on."""
        bands, rows = self.banding
        curve = [(jaccard, share) for jaccard, share in s_curve(self) if jaccard >= SHOWN_JACCARD]
        lines = [f"  Jaccard {jaccard:.2f}: {share:8.3%} of the pairs" for jaccard, share in curve]
        return [f"{bands} bands of {rows} rows make candidates of", *lines]

    def report_lines(self, count: StageCount) -> list[str]:
        details = count.details
        sizes = [group["documents"] for group in details["largest_groups"]]
        largest = f", the largest of {sizes[0]:,}" if sizes else ""
        compared = f"{details['pairs_compared']:,} pairs compared"
        lines = [f"{count.removed:,} removed of {details['groups']:,} groups{largest}; {compared}"]
        if "index" in details:
            index = details["index"]
            lines.append(f"{index['alike']:,} near-duplicate pairs with {index['documents']:,} documents of the index")
        return lines

    @property
    def settings(self) -> ShingleSettings:
        """The settings of n-grams."""
        return ShingleSettings(COMPARISONS[self.compare], self.ngram, self.unit == "character")

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        bands, rows = self.banding
        text, _ = engine.rewrite(frame[TEXT], self.settings.steps)
        a, b = constants(bands * rows, self.seed)
        keys = engine.band_keys(text, self.ngram, self.settings.by_character, a, b, rows)
        return {name: keys[:, band] for band, name in enumerate(self._columns())}

    def _columns(self) -> list[str]:
        return [f"band_{band:03d}" for band in range(self.banding[0])]

    def index_settings(self) -> dict[str, Any]:
        """Return the settings that a saved index depends on. A stage with other ones cannot use it."""
        bands, rows = self.banding
        names = ("ngram", "unit", "compare", "permutations", "seed", "threshold", "verify")
        chosen = {name: getattr(self, name) for name in names}
        return chosen | {"bands": bands, "rows": rows, "permutations_version": VERSION}

    def open_index(self) -> SavedIndex:
        """Return the saved index. RecipeError if it is missing or has other settings."""
        index = SavedIndex(self.index)
        index.check(self.index_settings())
        return index

    def write_index(
        self, engine: Engine, corpus: Corpus, folder: Path, work: Path, ids_of: Callable[[np.ndarray], pa.Array]
    ) -> None:
        """Write the index of all documents of `corpus` to `folder`; see `saved_index.write_index`."""
        write = partial(self._write_similarity, engine, corpus)
        write_index(folder, work, self.index_settings(), corpus, self._columns(), ids_of, write)

    def phases(self) -> Sequence[Phase]:
        index = [Phase(INDEX, _once, self._match_index)] if self.index else []
        return (*index, Phase(CANDIDATES, _once, self._find), Phase(SIMILARITY, _once, self._write_all))

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the documents that have a near-duplicate in the index."""
        folder, work = corpus.scratch / INDEX, corpus.scratch / INDEX / SIMILARITY
        index = self.open_index()

        def similarities(candidates: np.ndarray) -> tuple[Similarity, Similarity]:
            self._write_similarity(engine, corpus, candidates, work)
            return self._similarity(engine, work, corpus.workers), self._similarity(engine, index.folder)

        matches = find_matches(corpus, self._columns(), index, self.threshold, similarities)
        remove(work)
        matches.save(folder / MATCHES)

    def _find(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the positions of the documents that share a band with another."""
        remaining, _ = self._without_matches(corpus)
        candidates = find_candidates(engine, remaining, self._columns())
        with commit(corpus.scratch / CANDIDATES / POSITIONS) as path:
            save_array(path, candidates)

    def _write_all(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the data by which candidates are compared."""
        remaining, _ = self._without_matches(corpus)
        self._write_similarity(engine, remaining, self._candidates(corpus), corpus.scratch / SIMILARITY)

    @staticmethod
    def _candidates(corpus: Corpus) -> np.ndarray:
        positions: np.ndarray = np.load(corpus.scratch / CANDIDATES / POSITIONS)
        return positions

    def _without_matches(self, corpus: Corpus) -> tuple[Corpus, Matches | None]:
        """Return the corpus without the documents that match the index, and the matches; None without an index."""
        if not self.index:
            return corpus, None
        matches = Matches.load(corpus.scratch / INDEX / MATCHES)
        unmatched = np.ones(len(corpus.rows), bool)
        unmatched[matches.position] = False
        return corpus.select(positions_of(unmatched)), matches

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        remaining, matches = self._without_matches(corpus)
        drops, details = self._decide(engine, remaining, self._candidates(corpus))
        if matches is None:
            return Decision((drops,), details=details)
        rows = corpus.rows[matches.position]
        matched = Drops(rows, "near_duplicate_of_index", matches.value, matches.number, self.index)
        return Decision((drops, matched), details=details | {"index": matches.details})

    def _decide(self, engine: Engine, corpus: Corpus, candidates: np.ndarray) -> tuple[Drops, dict[str, Any]]:
        similarity = self._similarity(engine, corpus.scratch / SIMILARITY, corpus.workers)
        kept, details = self._join(engine, corpus, candidates, similarity)
        moved = np.empty(len(kept), bool)
        for batch in batches_of(len(kept)):
            moved[batch] = kept[batch] != np.arange(batch.start, batch.stop)
        removed = positions_of(moved)
        partner = kept[removed]
        del kept, moved
        value = measure_pairs(similarity, removed, partner)
        details["removed_by_chain"] = int(np.count_nonzero(value < self.threshold))
        details |= _group_sizes(_count_groups(partner, len(candidates)), corpus.rows, candidates)
        row = _rows_at(corpus.rows, candidates, removed)
        del removed
        return Drops(row, "near_duplicate", value, _rows_at(corpus.rows, candidates, partner)), details

    def _join(
        self, engine: Engine, corpus: Corpus, candidates: np.ndarray, similarity: Similarity
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Return for each candidate the one kept of its group, and the counts for the report."""
        columns = self._columns()

        def key_of(band: int, numbers: np.ndarray) -> np.ndarray:
            return read_keys(corpus, columns[band], candidates, numbers)

        grouping = Grouping(engine, similarity, self.threshold, len(candidates), len(columns), key_of, corpus.workers)
        grouping.join_bands()
        return self._kept(engine, corpus, candidates, grouping.labels()), self._details(grouping, len(candidates))

    def _kept(self, engine: Engine, corpus: Corpus, candidates: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return for each candidate the one kept of its group."""
        if self.keep == "first":
            return labels
        rank = self._rank(corpus, candidates)
        return engine.group_leaders(labels.astype(np.uint64)[:, None], rank, corpus.workers)

    def _write_similarity(self, engine: Engine, corpus: Corpus, documents: np.ndarray, folder: Path) -> None:
        make_folder(folder)
        if self.verify == "exact":
            ExactJaccard.write(engine, corpus, documents, self.settings, folder)
        elif self.verify == "signature":
            permutations = constants(self.permutations, self.seed)
            SignatureJaccard.write(engine, corpus, documents, self.settings, permutations, folder)

    def _similarity(self, engine: Engine, folder: Path, workers: int = 1) -> Similarity:
        """Open the files of `_write_similarity` in a folder."""
        if self.verify == "exact":
            return ExactJaccard(engine, folder, workers)
        return SignatureJaccard(folder, self.permutations) if self.verify == "signature" else Unchecked()

    def _rank(self, corpus: Corpus, candidates: np.ndarray) -> np.ndarray:
        """Return a rank per candidate, all different; the lowest of a group is kept."""
        weight = self._longest_first(corpus) if self.keep == "longest" else self._source_order(corpus)
        order = np.argsort(weight[candidates], kind="stable")
        del weight
        rank = np.empty(len(candidates), np.int64)
        for batch in batches_of(len(candidates)):
            rank[order[batch]] = np.arange(batch.start, batch.stop)
        return rank

    @staticmethod
    def _longest_first(corpus: Corpus) -> np.ndarray:
        lengths = corpus.byte_lengths()
        return np.negative(lengths, out=lengths)

    def _source_order(self, corpus: Corpus) -> np.ndarray:
        self.check([name for name, _, _ in corpus.sources])
        order = np.full(len(corpus.rows), len(self.keep), np.int16)
        for name, low, high in corpus.sources:
            if name in self.keep:
                bounds = np.searchsorted(corpus.rows, np.array([low, high], corpus.rows.dtype))
                order[slice(*bounds)] = self.keep.index(name)
        return order

    def _details(self, grouping: Grouping, candidates: int) -> dict[str, Any]:
        bands, rows = self.banding
        return {
            "bands": bands,
            "rows": rows,
            "candidates": candidates,
            "pairs_compared": grouping.compared,
            "pairs_alike": grouping.alike,
            "regrouped": grouping.regrouped,
            "released": grouping.released,
        }


def _once(corpus: Corpus) -> int:
    """Number of tasks of a phase that is not divided."""
    return 1


def share_probability(jaccard: float, bands: int, rows: int) -> float:
    """Return the probability that two documents of this similarity share a band (Leskovec, Rajaraman, Ullman: Mining of
    Massive Datasets, section 3.4.2)."""
    return float(1 - (1 - jaccard**rows) ** bands)


def s_curve(stage: FuzzyDedup) -> list[tuple[float, float]]:
    """Return pairs of a Jaccard similarity, in steps of 0.05, and the probability that it makes a candidate."""
    bands, rows = stage.banding
    return [(step / 20, share_probability(step / 20, bands, rows)) for step in range(1, 21)]


def _rows_at(rows: np.ndarray, candidates: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    out = np.empty(len(numbers), rows.dtype)
    for batch in batches_of(len(numbers)):
        out[batch] = rows[candidates[numbers[batch]]]
    return out


def _count_groups(kept: np.ndarray, candidates: int) -> np.ndarray:
    """Return for each candidate the size of the group that it is kept for. `kept` has it for each removed document."""
    sizes = np.ones(candidates, position_type(candidates))
    for batch in batches_of(len(kept)):
        number, count = np.unique(kept[batch], return_counts=True)
        sizes[number] += count.astype(sizes.dtype)
    return sizes


def _group_sizes(sizes: np.ndarray, rows: np.ndarray, candidates: np.ndarray) -> dict[str, Any]:
    """Return the histogram of group sizes in powers of two, and the largest groups with the kept row."""
    kept = positions_of(sizes > 1)
    tops, counts = np.unique(np.ceil(np.log2(sizes[kept])).astype(np.int8), return_counts=True)
    largest = kept[np.argsort(-sizes[kept], kind="stable")[:LARGEST_SHOWN]]
    return {
        "groups": len(kept),
        "group_sizes": {_size_range(top): count for top, count in zip(tops.tolist(), counts.tolist(), strict=True)},
        "largest_groups": [{"row": int(rows[candidates[k]]), "documents": int(sizes[k])} for k in largest],
    }


def _size_range(top: int) -> str:
    low, high = 2 ** (top - 1) + 1, 2**top
    return str(high) if low == high else f"{low}-{high}"
