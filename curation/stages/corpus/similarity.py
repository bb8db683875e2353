# SPDX-License-Identifier: Apache-2.0
"""The similarity of two documents: exact Jaccard, its estimate by signatures, or none. Data of documents are in files,
written with one read of their texts."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from curation.base.arrays import batches_by_size, batches_of, map_file, write_array
from curation.base.contract import TEXT, Engine, Result, Text
from curation.base.system.damage import damaged
from curation.kernels.rewrite import VISIBLE, RewriteSteps
from curation.kernels.word_breaks import PIECES
from curation.stages.words import divides, kernels_of, split_words, with_parts

if TYPE_CHECKING:  # the stages import this module
    from curation.stages.outcome import Corpus

# How texts are compared by their words; the tests' definition is `tests/oracle/rewriting.py`
COMPARISONS = {
    "lowercase": RewriteSteps(lowercase=True),
    "exact": RewriteSteps(),
    "folded": RewriteSteps(lowercase=True, characters="folded"),
    "visible": VISIBLE,
}
UNSPACED_SHARE = 10
PAIRS_AT_ONCE = 1 << 16  # pairs of signatures: 64 MB at 128 permutations
SHINGLES, OFFSETS, SIGNATURES = "shingles.bin", "offsets.bin", "signatures.bin"
COPIED_AT_ONCE = 1 << 20  # bytes
HASHES_AT_ONCE = 1 << 22  # hashes in memory, of all workers: 32 MB, or one pair per worker


class ShingleSettings(NamedTuple):
    """The settings of n-grams."""

    steps: RewriteSteps
    ngram: int
    by_character: bool
    words: str = ""


class Similarity(Protocol):
    """The similarity of documents whose data are in one folder. Documents are numbered in the order of the corpus."""

    def bound_between(self, other: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return an upper bound of the similarity of each pair, float64, from data in memory. `right` are documents of
        the file `other`, which may be this one."""
        ...

    def between(self, other: Any, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the similarity of each pair, float64; NaN if not measured. `right` is as in `bound_between`."""
        ...


class ExactJaccard:
    """Jaccard similarity of the sets of n-gram hashes, which are sorted in a file: 8 bytes per n-gram of a document.

    Documents are read when they are compared. A memory map would be as fast, but Linux maps up to 2 MB around each
    requested page, and all of it counts as memory of the run.
    """

    FILES = (SHINGLES, OFFSETS)

    def __init__(self, engine: Engine, folder: Path, workers: int = 1) -> None:
        self.engine = engine
        self.workers = workers
        self.pool = ThreadPoolExecutor(workers)  # starting threads for each batch took 1/7 of the time
        self.hashes = folder / SHINGLES
        self.stored = self.hashes.stat().st_size // 8  # hashes
        self.offsets = map_file(folder / OFFSETS, np.int64)

    @staticmethod
    def write(engine: Engine, corpus: Corpus, documents: np.ndarray, settings: ShingleSettings, folder: Path) -> None:
        """Write the files of `documents`, with one read of their text."""

        def shingle(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
            text = joined_text(engine, engine.from_arrow(pa.table({TEXT: texts}))[TEXT], settings)
            return engine.shingles(text, settings.ngram, settings.by_character)

        total = 0
        with open(folder / SHINGLES, "wb") as hash_file, open(folder / OFFSETS, "wb") as offset_file:
            write_array(offset_file, np.zeros(1, np.int64))
            for hashes, offsets in for_texts(corpus, documents, shingle):
                write_array(hash_file, hashes)
                write_array(offset_file, offsets[1:] + total)
                total += len(hashes)

    @staticmethod
    def join(folders: Sequence[Path], paths: Sequence[Path]) -> None:
        """Write the hashes and the offsets of several folders, one after the other, to two paths."""
        _append_files([folder / SHINGLES for folder in folders], paths[0])
        total = 0
        with open(paths[1], "wb") as file:
            write_array(file, np.zeros(1, np.int64))
            for folder in folders:
                offsets = map_file(folder / OFFSETS, np.int64)
                for batch in batches_of(len(offsets) - 1):
                    write_array(file, offsets[batch.start + 1 : batch.stop + 1] + total)
                total += int(offsets[-1])

    def _sizes(self, numbers: np.ndarray) -> np.ndarray:
        """Return the number of hashes of each document. Raises IntegrityError for offsets that are not in the file of
        hashes."""
        first, last = self.offsets[numbers], self.offsets[numbers + 1]
        if len(numbers) and (first.min() < 0 or (first > last).any() or last.max() > self.stored):
            raise damaged(self.hashes.with_name(OFFSETS), "it has offsets outside of the file of hashes")
        return last - first

    def bound_between(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return an upper bound from the numbers of n-grams: the smaller number divided by the larger."""
        sizes = self._sizes(left), other._sizes(right)
        return np.minimum(*sizes) / np.maximum(*sizes)

    def between(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the similarity of each pair, from the n-grams that both documents have."""
        common = self._common(other, left, right)
        return common / (self._sizes(left) + other._sizes(right) - common)

    def shares(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the share of the n-grams of each left document that the right one has, float64."""
        return self._common(other, left, right) / self._sizes(left)

    def _common(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the number of hashes that the documents of each pair share, a batch of pairs per thread at a time."""
        both = self._sizes(left) + other._sizes(right)
        batch_hashes = min(HASHES_AT_ONCE, int(both.sum())) // self.workers + 1
        common = np.empty(len(left), np.int64)

        def compare(pairs: slice) -> None:
            common[pairs] = self._common_in_memory(other, left[pairs], right[pairs])

        batches = [self.pool.submit(compare, pairs) for pairs in batches_by_size(np.cumsum(both), batch_hashes)]
        wait(batches)  # no thread reads the files when an error deletes them
        for batch in batches:
            batch.result()
        return common

    def _common_in_memory(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
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
        from curation.kernels.files import read_pieces  # loads Numba

        starts, lengths = out.itemsize * self.offsets[numbers], out.itemsize * self._sizes(numbers)
        read_pieces(self.hashes, starts, lengths, out.view(np.uint8))


class ExactContainment(ExactJaccard):
    """The share of the n-grams of the left document that the right one has, from the same files."""

    def bound_between(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return an upper bound of the share, from the numbers of n-grams."""
        return np.minimum(other._sizes(right) / self._sizes(left), 1)

    def between(self, other: ExactJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the share of the left document's n-grams for each pair."""
        return self.shares(other, left, right)


class SignatureJaccard:
    """Share of equal components of two signatures: estimates J with standard error sqrt(J (1 - J) / permutations)."""

    FILES = (SIGNATURES,)

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
            text = joined_text(engine, engine.from_arrow(pa.table({TEXT: texts}))[TEXT], settings)
            return engine.signatures(text, settings.ngram, settings.by_character, *constants)

        with open(folder / SIGNATURES, "wb") as file:
            for signed in for_texts(corpus, documents, sign):
                write_array(file, signed)

    @staticmethod
    def join(folders: Sequence[Path], paths: Sequence[Path]) -> None:
        """Write the signatures of several folders, one after the other, to a path."""
        _append_files([folder / SIGNATURES for folder in folders], paths[0])

    def bound_between(self, other: SignatureJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return 1 for each pair, because signatures do not tell how many n-grams a document has."""
        return np.ones(len(left))

    def between(self, other: SignatureJaccard, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the estimate for each pair. To bound memory, at most PAIRS_AT_ONCE pairs are compared at a time."""
        out = np.empty(len(left))
        for start in range(0, len(left), PAIRS_AT_ONCE):
            batch = slice(start, start + PAIRS_AT_ONCE)
            out[batch] = (self.signatures[left[batch]] == other.signatures[right[batch]]).mean(axis=1)
        return out


class Unchecked:
    """No check: all candidates pass, and similarities are NaN."""

    def bound_between(self, other: Unchecked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return 1 for each pair, so that no candidate is dropped."""
        return np.ones(len(left))

    def between(self, other: Unchecked, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return NaN for each pair, because no similarity is computed."""
        return np.full(len(left), np.nan)


def _append_files(sources: Sequence[Path], path: Path) -> None:
    with open(path, "wb") as file:
        for source in sources:
            with open(source, "rb") as piece:
                shutil.copyfileobj(piece, file, COPIED_AT_ONCE)


def compared_text(engine: Engine, text: Text, settings: ShingleSettings) -> Text:
    """Return the texts as they are compared: normalized by `settings.steps`, with a space between words."""
    return split_words(engine, engine.rewrite(text, settings.steps)[0], settings.words)


def kernels_of_text(compare: str, words: str) -> tuple[str, ...]:
    """Return the groups of kernels of `joined_text`, for `Stage.kernels`."""
    if divides(words):
        return (*kernels_of(words), "measures", "rewrite")
    return () if compare == "exact" else ("rewrite",)


def joined_text(engine: Engine, text: Text, settings: ShingleSettings) -> Text:
    """Return the texts whose n-grams near-duplicates share: those of `compared_text`. With `scripts` and `table`, a
    text in scripts without spaces is divided into `word_breaks.PIECES` instead, so that copies with other white space
    are equal. In such a text at least one in UNSPACED_SHARE characters, without white space, belongs to these scripts.
    """
    compared = compared_text(engine, text, settings)
    if not divides(settings.words):
        return compared
    counts = engine.measure(text, ("unspaced_characters", "word_characters"))
    unspaced = counts["unspaced_characters"]
    wanted = (unspaced > 0) & (unspaced * UNSPACED_SHARE >= counts["word_characters"])
    if not wanted.any():
        return compared
    own = engine.filter_rows(text.to_frame(TEXT), wanted)[TEXT]
    joined = engine.rewrite(own, settings.steps._replace(spaceless=True))[0]
    return with_parts(engine, compared, split_words(engine, joined, PIECES), wanted)


def for_texts(
    corpus: Corpus, documents: np.ndarray, function: Callable[[pa.LargeStringArray], Result]
) -> Iterator[Result]:
    """Call `function` for each batch of the documents' texts, and yield its results in order. Two batches per worker
    are in memory."""

    def call(read: Callable[[], pa.LargeStringArray]) -> Result:
        return function(read())

    return read_ahead(call, corpus.texts(documents), corpus.workers)


def read_ahead(function: Callable[[Any], Result], items: Iterable[Any], workers: int) -> Iterator[Result]:
    """Call `function` for each item in threads, and yield its results in order. Two results per worker are in
    memory."""
    with ThreadPoolExecutor(workers) as pool:
        results: deque[Future[Result]] = deque()
        for item in items:
            if len(results) == 2 * workers:
                yield results.popleft().result()
            results.append(pool.submit(function, item))
        while results:
            yield results.popleft().result()
