# SPDX-License-Identifier: Apache-2.0
"""`fuzzy_dedup`: of documents that are nearly the same one stays. MinHash finds candidates, a check decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from curation.arrays import pieces_of, positions_of, save_array
from curation.contract import TEXT, Engine, Frame, position_type
from curation.errors import RecipeError, nearest
from curation.files import commit, make_folder, remove
from curation.kernels.rewrite import RewriteSteps
from curation.stages.base import CorpusStage, Phase
from curation.stages.outcome import Corpus, Decision, Drops, StageCount
from curation.stages.permutations import VERSION, constants
from curation.stages.saved_index import DESCRIPTION, Matches, SavedIndex, find_old, write_index
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
RECALL = 0.995  # of pairs at the threshold, that the chosen bands find
LARGEST_SHOWN = 10
SHOWN_JACCARD = 0.5  # where the S-curve in `explain` begins
INDEX, CANDIDATES, SIMILARITY = "index", "candidates", "similarity"  # phases
MATCHES, POSITIONS = "matches.npz", "positions.npy"  # what they leave


class FuzzyDedup(CorpusStage, frozen=True, kw_only=True, tag="fuzzy_dedup"):
    """Keeps one document of each group of near-duplicates.

    Two documents are alike when the Jaccard similarity of their sets of n-grams is at least `threshold`. Documents that
    share a MinHash band are candidates; alike ones are joined, so that a group may hold A ~ B ~ C with A unlike C. A
    document with fewer words than `ngram` has one n-gram, itself; one without words is never a near-duplicate.

    ngram, unit   n-grams of so many `word`s (`str.split()`) or `character`s
    compare       `lowercase`: `text.lower()`; `exact`: the text as it stands; `folded`: lower case, decimal digits made
                  0 and punctuation (categories P*) made a space
    permutations, seed   of the MinHash signature
    threshold     Jaccard similarity in (0, 1]
    bands, rows   each band is so many `rows` of the signature; 0 chooses the most rows that find 99.5 % of the pairs at
                  the threshold
    verify        `exact`: the true Jaccard of candidates, in one further read of their text; `signature`: its estimate
                  from the signatures; `none`: sharing a band is enough
    keep          `first`: inputs in the order of the recipe, documents in their order; `longest`: most bytes, then the
                  first; or a list of input names: of earlier ones first, inputs not named come last
    index         the folder `index` of an earlier run with `output: {index: true}` and the same settings: documents
                  with a near-duplicate there are removed first, as `near_duplicate_of_index`; "" for none

    In `removed/` the value is the similarity with the kept document: exact, or its estimate, or NaN where nothing was
    measured. It is below `threshold` where a chain joined the two.
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
        """(bands, rows of each)."""
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

    def check(self, inputs: Sequence[str]) -> None:
        """RecipeError where `keep` names an input that is not there, or `index` no index of these settings."""
        for name in [] if isinstance(self.keep, str) else self.keep:
            if name not in inputs:
                raise RecipeError(f"keep: no input is named {name!r}{nearest(name, inputs)}")
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        return {str(Path(self.index) / DESCRIPTION): self.open_index().digest} if self.index else {}

    def explain(self) -> list[str]:
        """Bands, and how likely they find a pair: the S-curve from a Jaccard similarity of one half on."""
        bands, rows = self.banding
        curve = [(jaccard, found) for jaccard, found in s_curve(self) if jaccard >= SHOWN_JACCARD]
        lines = [f"  Jaccard {jaccard:.2f}: {found:8.3%} of the pairs" for jaccard, found in curve]
        return [f"{bands} bands of {rows} rows make candidates of", *lines]

    def report_lines(self, count: StageCount) -> list[str]:
        found = count.details
        sizes = [group["documents"] for group in found["largest_groups"]]
        largest = f", the largest of {sizes[0]:,}" if sizes else ""
        compared = f"{found['pairs_compared']:,} pairs compared"
        lines = [f"{count.removed:,} removed of {found['groups']:,} groups{largest}; {compared}"]
        if "index" in found:
            lines.append(
                f"{found['index']['alike']:,} pairs alike with {found['index']['documents']:,} documents of the index"
            )
        return lines

    @property
    def settings(self) -> ShingleSettings:
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
        """What a saved index depends on: a stage with others cannot use it."""
        bands, rows = self.banding
        names = ("ngram", "unit", "compare", "permutations", "seed", "threshold", "verify")
        chosen = {name: getattr(self, name) for name in names}
        return chosen | {"bands": bands, "rows": rows, "permutations_version": VERSION}

    def open_index(self) -> SavedIndex:
        """The saved index. RecipeError where there is none or one of other settings."""
        index = SavedIndex(self.index)
        index.check(self.index_settings())
        return index

    def write_index(
        self, engine: Engine, corpus: Corpus, folder: Path, work: Path, ids_of: Callable[[np.ndarray], pa.Array]
    ) -> None:
        """The index of all documents of `corpus`, in `folder`: `saved_index.write_index`."""
        write = partial(self._write_similarity, engine, corpus)
        write_index(folder, work, self.index_settings(), corpus, self._columns(), ids_of, write)

    def phases(self) -> Sequence[Phase]:
        index = [Phase(INDEX, _once, self._match_index)] if self.index else []
        return (*index, Phase(CANDIDATES, _once, self._find), Phase(SIMILARITY, _once, self._write_all))

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Leaves what has a near-duplicate in the index."""
        folder, work = corpus.scratch / INDEX, corpus.scratch / INDEX / SIMILARITY
        index = self.open_index()

        def similarities(candidates: np.ndarray) -> tuple[Similarity, Similarity]:
            self._write_similarity(engine, corpus, candidates, work)
            return self._similarity(engine, work, corpus.workers), self._similarity(engine, index.folder)

        found = find_old(corpus, self._columns(), index, self.threshold, similarities)
        remove(work)
        found.save(folder / MATCHES)

    def _find(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Leaves the positions of the documents that share a band with another."""
        left, _ = self._without_old(corpus)
        found = find_candidates(engine, left, self._columns())
        with commit(corpus.scratch / CANDIDATES / POSITIONS) as path:
            save_array(path, found)

    def _write_all(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Leaves what candidates are compared by."""
        left, _ = self._without_old(corpus)
        self._write_similarity(engine, left, self._candidates(corpus), corpus.scratch / SIMILARITY)

    @staticmethod
    def _candidates(corpus: Corpus) -> np.ndarray:
        found: np.ndarray = np.load(corpus.scratch / CANDIDATES / POSITIONS)
        return found

    def _without_old(self, corpus: Corpus) -> tuple[Corpus, Matches | None]:
        """The corpus without what has a near-duplicate in the index, and what has one."""
        if not self.index:
            return corpus, None
        found = Matches.load(corpus.scratch / INDEX / MATCHES)
        left = np.ones(len(corpus.rows), bool)
        left[found.position] = False
        return corpus.select(positions_of(left)), found

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        left, old = self._without_old(corpus)
        drops, details = self._decide(engine, left, self._candidates(corpus))
        if old is None:
            return Decision((drops,), details=details)
        rows = corpus.rows[old.position]
        known = Drops(rows, "near_duplicate_of_index", old.value, old.number, self.index)
        return Decision((drops, known), details=details | {"index": old.details})

    def _decide(self, engine: Engine, corpus: Corpus, candidates: np.ndarray) -> tuple[Drops, dict[str, Any]]:
        similarity = self._similarity(engine, corpus.scratch / SIMILARITY, corpus.workers)
        kept, details = self._join(engine, corpus, candidates, similarity)
        moved = np.empty(len(kept), bool)
        for piece in pieces_of(len(kept)):
            moved[piece] = kept[piece] != np.arange(piece.start, piece.stop)
        gone = positions_of(moved)
        kept_of_gone = kept[gone]
        del kept, moved
        value = measure_pairs(similarity, gone, kept_of_gone)
        details["removed_by_chain"] = int(np.count_nonzero(value < self.threshold))
        details |= _group_sizes(_count_groups(kept_of_gone, len(candidates)), corpus.rows, candidates)
        row = _rows_at(corpus.rows, candidates, gone)
        del gone
        return Drops(row, "near_duplicate", value, _rows_at(corpus.rows, candidates, kept_of_gone)), details

    def _join(
        self, engine: Engine, corpus: Corpus, candidates: np.ndarray, similarity: Similarity
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """For each candidate the one of its group that stays, and what was counted on the way."""
        columns = self._columns()

        def key_of(band: int, numbers: np.ndarray) -> np.ndarray:
            return read_keys(corpus, columns[band], candidates, numbers)

        grouping = Grouping(engine, similarity, self.threshold, len(candidates), len(columns), key_of, corpus.workers)
        grouping.join_bands()
        return self._kept(engine, corpus, candidates, grouping.labels()), self._details(grouping, len(candidates))

    def _kept(self, engine: Engine, corpus: Corpus, candidates: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """For each candidate the one of its group that stays."""
        if self.keep == "first":
            return labels
        rank = self._rank(corpus, candidates)
        return engine.group_leaders(labels.astype(np.uint64)[:, None], rank, corpus.workers)

    def _write_similarity(self, engine: Engine, corpus: Corpus, documents: np.ndarray, folder: Path) -> None:
        make_folder(folder)
        if self.verify == "exact":
            ExactJaccard.write(engine, corpus, documents, self.settings, folder)
        elif self.verify == "signature":
            found = constants(self.permutations, self.seed)
            SignatureJaccard.write(engine, corpus, documents, self.settings, found, folder)

    def _similarity(self, engine: Engine, folder: Path, workers: int = 1) -> Similarity:
        """What `_write_similarity` has left in a folder."""
        if self.verify == "exact":
            return ExactJaccard(engine, folder, workers)
        return SignatureJaccard(folder, self.permutations) if self.verify == "signature" else Unchecked()

    def _rank(self, corpus: Corpus, candidates: np.ndarray) -> np.ndarray:
        """Candidates of a group with a lower rank are kept rather; all ranks differ."""
        weight = self._longest_first(corpus) if self.keep == "longest" else self._source_order(corpus)
        order = np.argsort(weight[candidates], kind="stable")
        del weight
        rank = np.empty(len(candidates), np.int64)
        for piece in pieces_of(len(candidates)):
            rank[order[piece]] = np.arange(piece.start, piece.stop)
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
    """The tasks of a phase that is not divided."""
    return 1


def share_probability(jaccard: float, bands: int, rows: int) -> float:
    """How likely two documents of this similarity share a band (Leskovec, Rajaraman, Ullman: MMDS, section 3.4.2)."""
    return float(1 - (1 - jaccard**rows) ** bands)


def s_curve(stage: FuzzyDedup) -> list[tuple[float, float]]:
    """(Jaccard, probability that such a pair becomes a candidate) in steps of 0.05."""
    bands, rows = stage.banding
    return [(step / 20, share_probability(step / 20, bands, rows)) for step in range(1, 21)]


def _rows_at(rows: np.ndarray, candidates: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    out = np.empty(len(numbers), rows.dtype)
    for piece in pieces_of(len(numbers)):
        out[piece] = rows[candidates[numbers[piece]]]
    return out


def _count_groups(kept: np.ndarray, candidates: int) -> np.ndarray:
    """For each candidate the documents of the group for which it stays; `kept` names it for each that goes."""
    sizes = np.ones(candidates, position_type(candidates))
    for piece in pieces_of(len(kept)):
        number, count = np.unique(kept[piece], return_counts=True)
        sizes[number] += count.astype(sizes.dtype)
    return sizes


def _group_sizes(sizes: np.ndarray, rows: np.ndarray, candidates: np.ndarray) -> dict[str, Any]:
    """Histogram of group sizes in powers of two, and the largest with the row that stays."""
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
