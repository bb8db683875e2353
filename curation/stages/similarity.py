# SPDX-License-Identifier: Apache-2.0
"""From shared band keys to groups of near-duplicates: which pairs are compared, and how alike they are.

Bands are handled one at a time and nothing is kept per pair: documents that are already joined are not compared again.
Within a band, each document is compared with the first of its group. What is still in pieces then is compared
completely in groups of up to SMALL documents, and regrouped by the next band's key in larger ones, at most ROUNDS
times; who is left is released. So a document costs at most SMALL + ROUNDS comparisons per band, however many share its
key.

A candidate takes 8 bytes beside the keys of one band and the table that groups them: its number and its label.
Everything else is done for about `arrays.AT_ONCE` documents at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from curation import arrays
from curation.arrays import map_file, pieces_by_size, pieces_of, positions_of, write_array
from curation.contract import TEXT, Engine, Result, Text, position_type
from curation.errors import IntegrityError
from curation.kernels.files import read_pieces
from curation.kernels.hashing import GOLDEN
from curation.kernels.rewrite import RewriteSteps

if TYPE_CHECKING:  # the stages import this module
    from curation.stages.outcome import Corpus

SMALL = 16
ROUNDS = 4
ROWS_AT_ONCE = 1 << 22  # of bands that are grouped side by side: 126 MB
MAX_PIECES = 64  # passes over what a band left
PAIRS_AT_ONCE = 1 << 16  # of signatures: 64 MB at 128 permutations
SHINGLES, OFFSETS, SIGNATURES = "shingles.bin", "offsets.bin", "signatures.bin"
HASHES_AT_ONCE = 1 << 22  # of pairs, by all workers: 32 MB, or a pair each


class ShingleSettings(NamedTuple):
    """What a document is compared by."""

    steps: RewriteSteps
    ngram: int
    by_character: bool


class Similarity(Protocol):
    """How alike documents of one file are; they are numbered in the order of the corpus."""

    def bound(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """At least the similarity of each pair, from numbers in memory."""
        ...

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The similarity of each pair, float64."""
        ...

    def bound_between(self, other: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """As `bound`, for `right` in another file of the same kind."""
        ...

    def between(self, other: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """As `of`, for `right` in another file of the same kind."""
        ...


class ExactJaccard:
    """Jaccard of the sets of n-gram hashes, which lie sorted in a file: 8 bytes per n-gram of a document.

    Documents are read where they are compared. A map of the file would be as fast, but Linux maps up to 2 MB around
    every page it is asked for, and all of that counts as memory of the run.
    """

    def __init__(self, engine: Engine, folder: Path, workers: int = 1) -> None:
        self.engine = engine
        self.workers = workers
        self.pool = ThreadPoolExecutor(workers)  # starting threads for every few pairs took a seventh of the time
        self.hashes = folder / SHINGLES
        self.offsets = map_file(folder / OFFSETS, np.int64)

    @staticmethod
    def write(engine: Engine, corpus: Corpus, documents: np.ndarray, settings: ShingleSettings, folder: Path) -> None:
        """Reads the documents' text once."""

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
        at_once = min(HASHES_AT_ONCE, int(both.sum())) // self.workers + 1
        common = np.empty(len(left), np.int64)

        def compare(pairs: slice) -> None:
            common[pairs] = self._common(other, left[pairs], right[pairs])

        pieces = [self.pool.submit(compare, pairs) for pairs in pieces_by_size(np.cumsum(both), at_once)]
        wait(pieces)  # nothing reads on when the files are deleted because of an error
        for piece in pieces:
            piece.result()
        return common / (both - common)

    def _common(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """How many hashes the documents of each pair share, all of them read into memory."""
        mine, mine_at = np.unique(left, return_inverse=True)
        others, others_at = np.unique(right, return_inverse=True)
        offsets = np.cumsum(np.concatenate([[0], self._sizes(mine), other._sizes(others)]))
        hashes = np.empty(offsets[-1], np.uint64)
        self._read(mine, hashes[: offsets[len(mine)]])
        other._read(others, hashes[offsets[len(mine)] :])
        return self.engine.intersection_sizes(hashes, offsets, mine_at, len(mine) + others_at)

    def _read(self, numbers: np.ndarray, out: np.ndarray) -> None:
        """The hashes of documents (ascending), one after the other."""
        starts, lengths = out.itemsize * self.offsets[numbers], out.itemsize * self._sizes(numbers)
        with open(self.hashes, "rb", buffering=0) as file:
            into, done = out.view(np.uint8), 0
            while True:
                done += read_pieces(file.fileno(), starts[done:], lengths[done:], into[int(lengths[:done].sum()) :])
                if done == len(numbers):
                    return
                # Python tries what that could not: it goes on after a signal, and says what is wrong with the disk
                if len(os.pread(file.fileno(), int(lengths[done]), int(starts[done]))) < lengths[done]:
                    raise IntegrityError(f"{self.hashes} ends too early: something else has written to it")


class SignatureJaccard:
    """The share of equal numbers in the signatures: an estimate with standard error sqrt(J (1 - J) / permutations)."""

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
        """Reads the documents' text once."""

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
            piece = slice(start, start + PAIRS_AT_ONCE)
            out[piece] = (self.signatures[left[piece]] == other.signatures[right[piece]]).mean(axis=1)
        return out


class Unchecked:
    """Sharing a band is enough; nothing is measured."""

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
    """`function` of each batch of the documents' texts, in order; two batches per worker are in memory."""

    def call(read: Callable[[], pa.LargeStringArray]) -> Result:
        return function(read())

    return read_ahead(call, corpus.texts(documents), corpus.workers)


def read_ahead(function: Callable[[Any], Result], items: Iterable[Any], workers: int = 1) -> Iterator[Result]:
    """`function` of each item, in order, by threads; two results per worker are in memory, with the one in use."""
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            if len(waiting) == 2 * workers:
                yield waiting.popleft().result()
            waiting.append(pool.submit(function, item))
        while waiting:
            yield waiting.popleft().result()


def measure_pairs(similarity: Similarity, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The similarity of each pair, some at a time."""
    value = np.empty(len(left))
    for piece in pieces_of(len(left)):
        value[piece] = similarity.of(left[piece], right[piece])
    return value


def find_candidates(engine: Engine, corpus: Corpus, bands: Sequence[str]) -> np.ndarray:
    """Positions of the documents that share a band with another. Documents without words share nothing (key 0)."""
    at_once = min(corpus.workers, ROWS_AT_ONCE // max(len(corpus.rows), 1) or 1)

    def group(band: str) -> tuple[np.ndarray, np.ndarray]:
        keys = corpus.column(band)
        return keys, engine.group_leaders(keys[:, None], workers=-(-corpus.workers // at_once))

    shared = np.zeros(len(corpus.rows), bool)
    for keys, leaders in read_ahead(group, bands, at_once):
        for piece in pieces_of(len(keys)):
            number = np.arange(piece.start, piece.stop)
            follows = (leaders[piece] != number) & (keys[piece] != 0)
            shared[number[follows]] = True
            shared[leaders[piece][follows]] = True
        del keys, leaders  # before one more column is read
    return positions_of(shared)


def read_keys(corpus: Corpus, band: str, candidates: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The keys of some candidates, which may stand in any order; columns are read in the order of the rows."""
    keys = np.empty(len(numbers), np.uint64)
    for piece in pieces_of(len(numbers)):
        order = np.argsort(numbers[piece], kind="stable")
        keys[piece.start + order] = corpus.column(band, candidates[numbers[piece][order]])
    return keys


class _Members(NamedTuple):
    """Candidates in groups: those of one group stand together, its first one first."""

    number: np.ndarray
    start: np.ndarray  # of each one's group in `number`
    size: np.ndarray  # of each one's group

    @property
    def first(self) -> np.ndarray:
        return self.number[self.start]

    def select(self, mask: np.ndarray) -> _Members:
        """Whole groups."""
        kept = np.flatnonzero(mask)
        return _Members(self.number[kept], np.searchsorted(kept, self.start[kept]), self.size[kept])


def _gather(number: np.ndarray, group: np.ndarray, last: np.ndarray) -> _Members:
    """Sorted by group, those that are `last` behind the others; groups of one are left out."""
    order = np.lexsort((number, last, group))
    number, group = number[order], group[order]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if len(group) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(group)])
    members = _Members(number, np.repeat(starts, sizes), np.repeat(sizes, sizes))
    return members.select(members.size > 1)


class Grouping:
    """Joins candidates, band after band. `key_of(band, numbers)` gives keys of candidates."""

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
        self.parent: np.ndarray = np.arange(candidates, dtype=position_type(candidates))  # a smaller one joined to each
        self.compared = self.alike = self.released = 0
        self.regrouped = [0] * ROUNDS

    def labels(self) -> np.ndarray:
        """For each candidate the smallest one that it is joined with."""
        for piece in pieces_of(len(self.parent)):
            self.parent[piece] = self._label(self.parent[piece])
        return self.parent

    def join_bands(self) -> None:
        """Joins what shares a band and is alike, band after band."""
        leaders = read_ahead(self._leaders, range(self.bands))
        for band in range(self.bands):
            self._join_band(band, next(leaders))

    def _join_band(self, band: int, leader: np.ndarray) -> None:
        for piece in pieces_of(len(leader)):
            self._compare(leader[piece], np.arange(piece.start, piece.stop))
        small, large = self._split_members(leader)
        for part in _partition(leader[small]):
            number = small[part]
            self._compare_all(_gather(number, leader[number], np.zeros(len(number), bool)))
        firsts = leader[large]
        del leader, small  # all of the corpus may be in one large group
        if len(large):
            self._regroup(large, firsts, band, 0)

    def _leaders(self, band: int) -> np.ndarray:
        """For each candidate the first one with the same key."""
        keys = np.empty(len(self.parent), np.uint64)
        for piece in pieces_of(len(keys)):
            keys[piece] = self.key_of(band, np.arange(piece.start, piece.stop))
        return self.engine.group_leaders(keys[:, None], workers=self.workers)

    def _split_members(self, leader: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The members of the groups that are not one whole yet: of small groups, of large ones."""
        split = np.zeros(len(leader), bool)
        for piece in pieces_of(len(leader)):
            unlike = self._label(np.arange(piece.start, piece.stop)) != self._label(leader[piece])
            split[leader[piece][unlike]] = True
        size = np.zeros(len(leader), np.uint8)  # of the group of each leader, counted up to SMALL + 1
        for piece in pieces_of(len(leader)):
            first, count = np.unique(leader[piece][split[leader[piece]]], return_counts=True)
            size[first] = np.minimum(size[first] + count, SMALL + 1)
        large = size[leader] > SMALL
        return positions_of(split[leader] & ~large), positions_of(large)

    def _regroup(self, number: np.ndarray, leader: np.ndarray, band: int, step: int) -> None:
        """Splits groups by another band's key, and goes on with each new group. Its first is one unlike the leader of
        the old one, which all were compared with, and behind it, so that nobody leads twice."""
        if step == min(ROUNDS, self.bands - 1):
            for piece in pieces_of(len(number)):
                self.released += int(np.count_nonzero(self._label(number[piece]) != self._label(leader[piece])))
            return
        keys = self.key_of((band + step + 1) % self.bands, number)
        for part in _partition(keys):
            members, firsts = number[part], leader[part]
            unlike = self._label(members) != self._label(firsts)
            self.regrouped[step] += int(np.count_nonzero(unlike))
            pairs = np.stack([firsts.astype(np.uint64), keys[part]], axis=1)
            group = self.engine.group_leaders(pairs, workers=self.workers)
            groups = _gather(members, group, ~unlike | (members < firsts))
            del pairs, group
            self.released += int(np.count_nonzero(np.isin(members[unlike], groups.number, invert=True)))
            self._compare(groups.first, groups.number)
            groups = self._split(groups)
            self._compare_all(groups.select(groups.size <= SMALL))
            left = groups.select(groups.size > SMALL)
            if len(left.number):
                self._regroup(left.number, left.first, band, step + 1)

    def _split(self, groups: _Members) -> _Members:
        """The groups that are not one whole yet."""
        split = np.zeros(len(groups.number), bool)
        split[groups.start[self._label(groups.number) != self._label(groups.first)]] = True
        return groups.select(split[groups.start])

    def _compare_all(self, members: _Members) -> None:
        """All pairs of each group but those with its first, which was compared before."""
        place = np.arange(len(members.number)) - members.start
        for first in range(1, SMALL - 1):
            later = np.flatnonzero(place > first)
            if len(later) == 0:
                return
            self._compare(members.number[members.start[later] + first], members.number[later])

    def _compare(self, left: np.ndarray, right: np.ndarray) -> None:
        """Joins the pairs that are alike, unless they are joined already."""
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
        joined = self.engine.connected_components(place[: len(left)], place[len(left) :], len(roots))
        self.parent[roots] = roots[joined]

    def _label(self, numbers: np.ndarray) -> np.ndarray:
        label = self.parent[numbers]
        above = self.parent[label]
        if (above != label).any():
            while (above != label).any():
                label, above = above, self.parent[above]
            self.parent[numbers] = label
        return label


def _partition(keys: np.ndarray) -> Iterator[np.ndarray]:
    """Positions of the keys in pieces of up to about AT_ONCE. Equal keys stay together, unless one alone is too many: a
    crowd that no band splits is looked at in pieces, each as a group of its own."""
    pieces = min(-(-2 * len(keys) // arrays.AT_ONCE), MAX_PIECES)
    most = max(arrays.AT_ONCE, 2 * len(keys) // MAX_PIECES)
    for number in range(pieces):
        found: list[np.ndarray] = []
        for piece in pieces_of(len(keys)):
            mixed = keys[piece].astype(np.uint64) * GOLDEN >> np.uint64(32)
            found.append(piece.start + np.flatnonzero(mixed % np.uint64(pieces) == number))
            if sum(map(len, found)) > most:
                yield np.concatenate(found)
                found = []
        if any(map(len, found)):
            yield np.concatenate(found)
