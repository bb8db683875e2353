# SPDX-License-Identifier: Apache-2.0
"""Groups of near-duplicates from shared band keys: the choice of pairs, their similarity, and the joining.

Bands are processed one at a time, and nothing is stored per pair: joined documents are not compared again. Within a
band, each document is compared with the first of its group. If a group then still has several labels, all its pairs
are compared if it has up to SMALL documents. A larger group is split by the next band's key, at most ROUNDS times; the
remaining documents are released: the band compares them no further. A document thus costs at most SMALL + ROUNDS
comparisons per band, however many documents share its key.

Memory: 8 bytes per candidate (number and label), the keys of one band and the table that groups them. Everything else
is done for about `arrays.AT_ONCE` documents at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from curation import arrays
from curation.arrays import batches_by_size, batches_of, map_file, positions_of, read_pieces, write_array
from curation.contract import TEXT, Engine, Result, Text, position_type
from curation.kernels.hashing import GOLDEN
from curation.kernels.rewrite import RewriteSteps

if TYPE_CHECKING:  # the stages import this module
    from curation.stages.outcome import Corpus

SMALL = 16
ROUNDS = 4
ROWS_AT_ONCE = 1 << 22  # rows of all bands that are grouped concurrently: 126 MB
MAX_BATCHES = 64  # passes over the keys of large groups
PAIRS_AT_ONCE = 1 << 16  # pairs of signatures: 64 MB at 128 permutations
SHINGLES, OFFSETS, SIGNATURES = "shingles.bin", "offsets.bin", "signatures.bin"
HASHES_AT_ONCE = 1 << 22  # hashes in memory, of all workers: 32 MB, or one pair each


class ShingleSettings(NamedTuple):
    """The settings of n-grams."""

    steps: RewriteSteps
    ngram: int
    by_character: bool


class Similarity(Protocol):
    """Similarity of documents of one file. They are numbered in the order of the corpus."""

    def bound(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return an upper bound of the similarity of each pair, float64, from data in memory."""
        ...

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the similarity of each pair, float64; NaN if not measured."""
        ...

    def bound_between(self, other: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Do as `bound`, for `right` in another file of the same kind."""
        ...

    def between(self, other: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Do as `of`, for `right` in another file of the same kind."""
        ...


class ExactJaccard:
    """Jaccard similarity of the sets of n-gram hashes, which are sorted in a file: 8 bytes per n-gram of a document.

    Documents are read when they are compared. A memory map would be as fast, but Linux maps up to 2 MB around each
    requested page, and all of it counts as memory of the run.
    """

    def __init__(self, engine: Engine, folder: Path, workers: int = 1) -> None:
        self.engine = engine
        self.workers = workers
        self.pool = ThreadPoolExecutor(workers)  # starting threads per batch took a seventh of the time
        self.hashes = folder / SHINGLES
        self.offsets = map_file(folder / OFFSETS, np.int64)

    @staticmethod
    def write(engine: Engine, corpus: Corpus, documents: np.ndarray, settings: ShingleSettings, folder: Path) -> None:
        """Write the files of `documents`, with one read of their text."""

        def shingle(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
            text = _compared_text(engine, texts, settings)
            return engine.shingles(text, settings.ngram, settings.by_character)

        total = 0
        with open(folder / SHINGLES, "wb") as hash_file, open(folder / OFFSETS, "wb") as offset_file:
            write_array(offset_file, np.zeros(1, np.int64))
            for hashes, offsets in for_texts(corpus, documents, shingle):
                write_array(hash_file, hashes)
                write_array(offset_file, offsets[1:] + total)
                total += len(hashes)

    def _sizes(self, numbers: np.ndarray) -> np.ndarray:
        return self.offsets[numbers + 1] - self.offsets[numbers]

    def bound(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self.bound_between(self, left, right)

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self.between(self, left, right)

    def bound_between(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        sizes = self._sizes(left), other._sizes(right)
        return np.minimum(*sizes) / np.maximum(*sizes)

    def between(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        both = self._sizes(left) + other._sizes(right)
        batch_hashes = min(HASHES_AT_ONCE, int(both.sum())) // self.workers + 1
        common = np.empty(len(left), np.int64)

        def compare(pairs: slice) -> None:
            common[pairs] = self._common(other, left[pairs], right[pairs])

        batches = [self.pool.submit(compare, pairs) for pairs in batches_by_size(np.cumsum(both), batch_hashes)]
        wait(batches)  # no thread reads the files when an error deletes them
        for batch in batches:
            batch.result()
        return common / (both - common)

    def _common(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the number of hashes that the documents of each pair share, with all hashes in memory."""
        mine, mine_at = np.unique(left, return_inverse=True)
        others, others_at = np.unique(right, return_inverse=True)
        offsets = np.cumsum(np.concatenate([[0], self._sizes(mine), other._sizes(others)]))
        hashes = np.empty(offsets[-1], np.uint64)
        self._read(mine, hashes[: offsets[len(mine)]])
        other._read(others, hashes[offsets[len(mine)] :])
        return self.engine.intersection_sizes(hashes, offsets, mine_at, len(mine) + others_at)

    def _read(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """Read the hashes of documents (ascending) to `out`, one after the other."""
        starts, lengths = out.itemsize * self.offsets[numbers], out.itemsize * self._sizes(numbers)
        read_pieces(self.hashes, starts, lengths, out.view(np.uint8))


class SignatureJaccard:
    """Share of equal components of two signatures: estimates J with standard error sqrt(J (1 - J) / permutations)."""

    def __init__(self, folder: Path, permutations: int) -> None:
        self.signatures = map_file(folder / SIGNATURES, np.uint32).reshape(-1, permutations)

    @staticmethod
    def write(
        engine: Engine,
        corpus: Corpus,
        documents: np.ndarray,
        settings: ShingleSettings,
        constants: tuple[np.ndarray, np.ndarray],
        folder: Path,
    ) -> None:
        """Write the files of `documents`, with one read of their text."""

        def sign(texts: pa.LargeStringArray) -> np.ndarray:
            text = _compared_text(engine, texts, settings)
            return engine.signatures(text, settings.ngram, settings.by_character, *constants)

        with open(folder / SIGNATURES, "wb") as file:
            for signed in for_texts(corpus, documents, sign):
                write_array(file, signed)

    def bound(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.ones(len(left))

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return self.between(self, left, right)

    def bound_between(self, other: SignatureJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.ones(len(left))

    def between(self, other: SignatureJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        out = np.empty(len(left))
        for start in range(0, len(left), PAIRS_AT_ONCE):
            batch = slice(start, start + PAIRS_AT_ONCE)
            out[batch] = (self.signatures[left[batch]] == other.signatures[right[batch]]).mean(axis=1)
        return out


class Unchecked:
    """No check: all candidates pass, and similarities are NaN."""

    def bound(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.ones(len(left))

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.full(len(left), np.nan)

    def bound_between(self, other: Unchecked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.ones(len(left))

    def between(self, other: Unchecked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.full(len(left), np.nan)


def _compared_text(engine: Engine, texts: pa.LargeStringArray, settings: ShingleSettings) -> Text:
    return engine.rewrite(engine.from_arrow(pa.table({TEXT: texts}))[TEXT], settings.steps)[0]


def for_texts(
    corpus: Corpus, documents: np.ndarray, function: Callable[[pa.LargeStringArray], Result]
) -> Iterator[Result]:
    """Yield `function` of each batch of the documents' texts, in order. Two batches per worker are in memory."""

    def call(read: Callable[[], pa.LargeStringArray]) -> Result:
        return function(read())

    return read_ahead(call, corpus.texts(documents), corpus.workers)


def read_ahead(function: Callable[[Any], Result], items: Iterable[Any], workers: int = 1) -> Iterator[Result]:
    """Yield `function` of each item, in order, from threads, with two results per worker in memory."""
    with ThreadPoolExecutor(workers) as pool:
        results: deque[Future[Result]] = deque()
        for item in items:
            if len(results) == 2 * workers:
                yield results.popleft().result()
            results.append(pool.submit(function, item))
        while results:
            yield results.popleft().result()


def measure_pairs(similarity: Similarity, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the similarity of each pair, float64, computed in batches."""
    value = np.empty(len(left))
    for batch in batches_of(len(left)):
        value[batch] = similarity.of(left[batch], right[batch])
    return value


def find_candidates(engine: Engine, corpus: Corpus, bands: Sequence[str]) -> np.ndarray:
    """Return the positions of the documents that share a band with another, without those without words (key 0)."""
    concurrent = min(corpus.workers, ROWS_AT_ONCE // max(len(corpus.rows), 1) or 1)

    def group(band: str) -> tuple[np.ndarray, np.ndarray]:
        keys = corpus.column(band)
        return keys, engine.group_leaders(keys[:, None], workers=-(-corpus.workers // concurrent))

    shared = np.zeros(len(corpus.rows), bool)
    for keys, leaders in read_ahead(group, bands, concurrent):
        for batch in batches_of(len(keys)):
            number = np.arange(batch.start, batch.stop)
            follows = (leaders[batch] != number) & (keys[batch] != 0)
            shared[number[follows]] = True
            shared[leaders[batch][follows]] = True
        del keys, leaders  # before the next column is read
    return positions_of(shared)


def read_keys(corpus: Corpus, band: str, candidates: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the keys of the candidates `numbers`, in any order. Columns are read in the order of rows."""
    keys = np.empty(len(numbers), np.uint64)
    for batch in batches_of(len(numbers)):
        order = np.argsort(numbers[batch], kind="stable")
        keys[batch.start + order] = corpus.column(band, candidates[numbers[batch][order]])
    return keys


class _Members(NamedTuple):
    """Candidates in groups, group after group. The leader of a group comes first."""

    number: np.ndarray
    start: np.ndarray  # of the candidate's group in `number`
    size: np.ndarray  # of the candidate's group

    @property
    def first(self) -> np.ndarray:
        return self.number[self.start]

    def select(self, mask: np.ndarray) -> _Members:
        """Return the groups for which `mask` is true; it has one value per group member, equal in a group."""
        kept = np.flatnonzero(mask)
        return _Members(self.number[kept], np.searchsorted(kept, self.start[kept]), self.size[kept])


def _gather(number: np.ndarray, group: np.ndarray, last: np.ndarray) -> _Members:
    """Return groups of two or more. Within a group, candidates where `last` is true follow the others."""
    order = np.lexsort((number, last, group))
    number, group = number[order], group[order]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if len(group) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(group)])
    members = _Members(number, np.repeat(starts, sizes), np.repeat(sizes, sizes))
    return members.select(members.size > 1)


class Grouping:
    """Joins near-duplicates, band after band. `key_of(band, numbers)` returns the keys of candidates."""

    def __init__(
        self,
        engine: Engine,
        similarity: Similarity,
        threshold: float,
        candidates: int,
        bands: int,
        key_of: Callable[[int, np.ndarray], np.ndarray],
        workers: int = 1,
    ) -> None:
        self.engine = engine
        self.workers = workers
        self.similarity = similarity
        self.threshold = threshold
        self.bands = bands
        self.key_of = key_of
        self.parent: np.ndarray = np.arange(candidates, dtype=position_type(candidates))  # a smaller one in the group
        self.compared = self.alike = self.released = 0
        self.regrouped = [0] * ROUNDS

    def labels(self) -> np.ndarray:
        """Return for each candidate the smallest one of its group."""
        for batch in batches_of(len(self.parent)):
            self.parent[batch] = self._label(self.parent[batch])
        return self.parent

    def join_bands(self) -> None:
        """Join candidates that share a band and are near-duplicates, band after band."""
        leaders = read_ahead(self._leaders, range(self.bands))
        for band in range(self.bands):
            self._join_band(band, next(leaders))

    def _join_band(self, band: int, leader: np.ndarray) -> None:
        for batch in batches_of(len(leader)):
            self._compare(leader[batch], np.arange(batch.start, batch.stop))
        small, large = self._split_members(leader)
        for part in _partition(leader[small]):
            number = small[part]
            self._compare_all(_gather(number, leader[number], np.zeros(len(number), bool)))
        firsts = leader[large]
        del leader, small  # one large group may have all candidates
        if len(large):
            self._regroup(large, firsts, band, 0)

    def _leaders(self, band: int) -> np.ndarray:
        """Return for each candidate the first one with the same key."""
        keys = np.empty(len(self.parent), np.uint64)
        for batch in batches_of(len(keys)):
            keys[batch] = self.key_of(band, np.arange(batch.start, batch.stop))
        return self.engine.group_leaders(keys[:, None], workers=self.workers)

    def _split_members(self, leader: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the members of groups with several labels: those of small groups, those of large ones."""
        split = np.zeros(len(leader), bool)
        for batch in batches_of(len(leader)):
            apart = self._label(np.arange(batch.start, batch.stop)) != self._label(leader[batch])
            split[leader[batch][apart]] = True
        size = np.zeros(len(leader), np.uint8)  # of each leader's group, up to SMALL + 1
        for batch in batches_of(len(leader)):
            first, count = np.unique(leader[batch][split[leader[batch]]], return_counts=True)
            size[first] = np.minimum(size[first] + count, SMALL + 1)
        large = size[leader] > SMALL
        return positions_of(split[leader] & ~large), positions_of(large)

    def _regroup(self, number: np.ndarray, leader: np.ndarray, band: int, step: int) -> None:
        """Split groups by another band's key, and compare each new group. Its leader has another label than the
        old one, with which all were compared, and a larger number: no candidate leads twice."""
        if step == min(ROUNDS, self.bands - 1):
            for batch in batches_of(len(number)):
                self.released += int(np.count_nonzero(self._label(number[batch]) != self._label(leader[batch])))
            return
        keys = self.key_of((band + step + 1) % self.bands, number)
        for part in _partition(keys):
            members, firsts = number[part], leader[part]
            apart = self._label(members) != self._label(firsts)
            self.regrouped[step] += int(np.count_nonzero(apart))
            pairs = np.stack([firsts.astype(np.uint64), keys[part]], axis=1)
            group = self.engine.group_leaders(pairs, workers=self.workers)
            groups = _gather(members, group, ~apart | (members < firsts))
            del pairs, group
            self.released += int(np.count_nonzero(np.isin(members[apart], groups.number, invert=True)))
            self._compare(groups.first, groups.number)
            groups = self._split(groups)
            self._compare_all(groups.select(groups.size <= SMALL))
            large = groups.select(groups.size > SMALL)
            if len(large.number):
                self._regroup(large.number, large.first, band, step + 1)

    def _split(self, groups: _Members) -> _Members:
        """Return the groups with several labels."""
        split = np.zeros(len(groups.number), bool)
        split[groups.start[self._label(groups.number) != self._label(groups.first)]] = True
        return groups.select(split[groups.start])

    def _compare_all(self, members: _Members) -> None:
        """Compare all pairs of each group except those with its leader, which were compared before."""
        place = np.arange(len(members.number)) - members.start
        for first in range(1, SMALL - 1):
            later = np.flatnonzero(place > first)
            if len(later) == 0:
                return
            self._compare(members.number[members.start[later] + first], members.number[later])

    def _compare(self, left: np.ndarray, right: np.ndarray) -> None:
        """Join the pairs that are near-duplicates and not joined yet."""
        apart = self._label(left) != self._label(right)
        left, right = left[apart], right[apart]
        possible = self.similarity.bound(left, right) >= self.threshold
        left, right = left[possible], right[possible]
        self.compared += len(left)
        passed = ~(self.similarity.of(left, right) < self.threshold)  # not measured (NaN) passes
        self.alike += int(np.count_nonzero(passed))
        self._join(self._label(left[passed]), self._label(right[passed]))

    def _join(self, left: np.ndarray, right: np.ndarray) -> None:
        roots, place = np.unique(np.concatenate([left, right]), return_inverse=True)
        smallest = self.engine.connected_components(place[: len(left)], place[len(left) :], len(roots))
        self.parent[roots] = roots[smallest]

    def _label(self, numbers: np.ndarray) -> np.ndarray:
        label = self.parent[numbers]
        above = self.parent[label]
        if (above != label).any():
            while (above != label).any():
                label, above = above, self.parent[above]
            self.parent[numbers] = label
        return label


def _partition(keys: np.ndarray) -> Iterator[np.ndarray]:
    """Yield positions of the keys in batches of up to about AT_ONCE. Equal keys share a batch unless they exceed it: a
    crowd that no band splits is compared in batches, each as a separate group."""
    batches = min(-(-2 * len(keys) // arrays.AT_ONCE), MAX_BATCHES)
    max_positions = max(arrays.AT_ONCE, 2 * len(keys) // MAX_BATCHES)
    for number in range(batches):
        positions: list[np.ndarray] = []
        for batch in batches_of(len(keys)):
            mixed = keys[batch].astype(np.uint64) * GOLDEN >> np.uint64(32)
            positions.append(batch.start + np.flatnonzero(mixed % np.uint64(batches) == number))
            if sum(map(len, positions)) > max_positions:
                yield np.concatenate(positions)
                positions = []
        if any(map(len, positions)):
            yield np.concatenate(positions)
