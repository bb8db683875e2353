# SPDX-License-Identifier: Apache-2.0
"""A saved index: what a later run has to know about the documents of an earlier one to leave out their near-duplicates.

Documents are numbered in the order of `doc`. All numbers are little-endian, all files are read through memory maps:

    index.json                      the settings of the stage, counts, size and SHA-256 of every file
    ids.arrow                       `id` of every document
    keys-000.bin, documents-000.bin ...   per band its keys (uint64, ascending) and whose they are (int32, or int64 from
                                    2^31 documents on; ascending where keys are equal): 12 bytes per band and document
    shingles.bin, offsets.bin       sorted n-gram hashes of every document, where each begins (`verify: exact`)
    signatures.bin                  MinHash signatures, uint32 (`verify: signature`)

A document of the new data is compared with at most CROWD of the index: those that share most bands with it, of the
first CROWD of each band. So a band that a million documents share costs no more than one shared by CROWD.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from curation import __version__
from curation.arrays import map_file, pieces_by_size, pieces_of, positions_of, write_array
from curation.contract import ID, position_type
from curation.errors import IntegrityError, RecipeError
from curation.files import commit, make_folder, remove, sync_folder, write_json
from curation.stages.similarity import Similarity

if TYPE_CHECKING:  # the stages import this module
    from curation.stages.outcome import Corpus

FORMAT = 1
FOLDER = "index"
DESCRIPTION = "index.json"
IDS = "ids.arrow"
IDS_AT_ONCE = 1 << 16  # of a batch in ids.arrow
CROWD = 64
PAIRS_AT_ONCE = 1 << 18
Settings = dict[str, Any]


def _keys_file(band: int) -> str:
    return f"keys-{band:03d}.bin"


def _documents_file(band: int) -> str:
    return f"documents-{band:03d}.bin"


# Writing


def write_index(
    folder: Path,
    work: Path,
    settings: Settings,
    corpus: Corpus,
    bands: Sequence[str],
    ids_of: Callable[[np.ndarray], pa.Array],
    write_similarity: Callable[[np.ndarray, Path], None],
) -> None:
    """Writes the index of all documents of `corpus` to `folder`, by way of `work` on the same disk, so that it is there
    whole or not at all. `bands` are the corpus's columns, `ids_of` gives the ids of rows, `write_similarity` writes
    what documents are compared by."""
    remove(work)
    make_folder(work)
    documents = len(corpus.rows)
    with commit(work / IDS) as path, pa.ipc.new_file(str(path), pa.schema([(ID, pa.large_string())])) as writer:
        for start in range(0, documents, IDS_AT_ONCE):
            writer.write_batch(pa.record_batch([ids_of(corpus.rows[start : start + IDS_AT_ONCE])], [ID]))
    for band, column in enumerate(bands):
        _write_band(work, band, corpus.column(column))
    write_similarity(np.arange(documents, dtype=position_type(documents)), work)
    files = {path.name: _described(path) for path in sorted(work.iterdir())}
    content = {"format": FORMAT, "version": __version__, "settings": settings, "documents": documents, "files": files}
    write_json(work / DESCRIPTION, content, indent=True)
    os.replace(work, folder)
    sync_folder(folder.parent)


def _write_band(folder: Path, band: int, keys: np.ndarray) -> None:
    order = np.argsort(keys, kind="stable")
    paths = folder / _keys_file(band), folder / _documents_file(band)
    with open(paths[0], "wb") as key_file, open(paths[1], "wb") as document_file:
        for piece in pieces_of(len(keys)):
            write_array(key_file, keys[order[piece]])
            write_array(document_file, order[piece].astype(position_type(len(keys))))


def _described(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}


def index_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a finished index, by its path in the run's folder."""
    index = SavedIndex(folder)
    files = {name: entry["sha256"] for name, entry in index.content["files"].items()}
    return {f"{folder.name}/{name}": digest for name, digest in (files | {DESCRIPTION: index.digest}).items()}


# Reading


class SavedIndex:
    """An index on disk. RecipeError where there is none, IntegrityError where a file has not the size it was written
    with."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            data = (self.folder / DESCRIPTION).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise RecipeError(
                f"index: {folder} has no {DESCRIPTION}; give {FOLDER}/ of a run with output: {{index: true}}"
            ) from None
        try:
            self.content = orjson.loads(data)
            made = self.content["format"]
            self.documents = int(self.content["documents"]) if made == FORMAT else 0
            sizes = {name: entry["bytes"] for name, entry in self.content["files"].items()} if made == FORMAT else {}
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise IntegrityError(f"{self.folder / DESCRIPTION} is damaged ({error!r}); make the index again") from None
        if made != FORMAT:
            raise RecipeError(f"index: {folder} has format {made}, this version reads {FORMAT}; make the index again")
        for name, size in sizes.items():
            found = (self.folder / name).stat().st_size if (self.folder / name).is_file() else None
            if found != size:
                shown = "missing" if found is None else f"{found} bytes long, not {size}"
                raise IntegrityError(f"{self.folder / name} is {shown}; make the index again")
        self.digest = hashlib.sha256(data).hexdigest()

    def check(self, settings: Settings) -> None:
        """RecipeError that names the settings in which the index is another than a stage."""
        made = self.content["settings"]
        differences = [
            f"{name} {made.get(name)!r} there, {settings.get(name)!r} here"
            for name in sorted({*made, *settings})
            if made.get(name) != settings.get(name)
        ]
        if differences:
            raise RecipeError(
                f"index: {self.folder} was made with other settings: {'; '.join(differences)}. "
                "Use the same here, or make the index again"
            )

    def keys(self, band: int) -> np.ndarray:
        return map_file(self.folder / _keys_file(band), np.uint64)

    def numbers(self, band: int) -> np.ndarray:
        return map_file(self.folder / _documents_file(band), position_type(self.documents))

    def ids(self, numbers: np.ndarray) -> pa.Array:
        """The ids of documents, in any order."""
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        with pa.memory_map(str(self.folder / IDS)) as source:
            table = pa.ipc.open_file(source).read_all()
        found = [pa.array([], pa.large_string())]
        for batch, chunk in enumerate(table.column(ID).chunks):
            low, high = np.searchsorted(ordered, [batch * IDS_AT_ONCE, (batch + 1) * IDS_AT_ONCE])
            if low < high:
                found.append(chunk.take(pa.array(ordered[low:high] - batch * IDS_AT_ONCE)))
        back = np.empty(len(numbers), np.int64)
        back[order] = np.arange(len(numbers))
        return pa.concat_arrays(found).take(pa.array(back))


# Looking up


class Matches(NamedTuple):
    """Documents that have a near-duplicate in an index: position in the corpus, the best one's number, how alike."""

    position: np.ndarray
    number: np.ndarray
    value: np.ndarray
    details: dict[str, int]

    def save(self, path: Path) -> None:
        with commit(path) as temporary, open(temporary, "wb") as file:
            details = np.array(orjson.dumps(self.details).decode())
            np.savez(file, position=self.position, number=self.number, value=self.value, details=details)

    @staticmethod
    def load(path: Path) -> Matches:
        with np.load(path) as stored:
            details = orjson.loads(str(stored["details"]))
            return Matches(stored["position"], stored["number"], stored["value"], details)


class _Pairs(NamedTuple):
    """Documents of the corpus and of the index that share bands."""

    new: np.ndarray
    old: np.ndarray
    shared: np.ndarray  # how many bands

    def select(self, chosen: np.ndarray) -> _Pairs:
        return _Pairs(self.new[chosen], self.old[chosen], self.shared[chosen])

    def best_first(self, value: np.ndarray) -> np.ndarray:
        """The order in which the pairs of each new document stand by value, then by shared bands; which come first."""
        return np.lexsort((self.old, -self.shared, -value, self.new))


def find_old(
    corpus: Corpus,
    bands: Sequence[str],
    index: SavedIndex,
    threshold: float,
    similarities: Callable[[np.ndarray], tuple[Similarity, Similarity]],
) -> Matches:
    """Documents of `corpus` that are alike with one of the index. `similarities` gives what the candidates, whose
    positions it gets, and the documents of the index are compared by."""
    hits = np.zeros(len(corpus.rows), np.int32)
    for band, column in enumerate(bands):
        sorted_keys = index.keys(band)
        for piece in pieces_of(len(hits)):
            keys = corpus.column(column, np.arange(piece.start, piece.stop))
            hits[piece] += np.minimum(_spans(sorted_keys, keys)[1], CROWD).astype(np.int32)
    candidates = positions_of(hits > 0)
    mine, others = similarities(candidates)
    details = {"documents": index.documents, "candidates": len(candidates), "compared": 0, "alike": 0, "crowded": 0}
    found = [(candidates[:0], np.zeros(0, np.int64), np.zeros(0))]
    for piece in pieces_by_size(np.cumsum(hits[candidates], dtype=np.int64), PAIRS_AT_ONCE):
        pairs = _pairs(corpus, bands, index, candidates[piece], details)
        numbers = piece.start + pairs.new
        possible = np.flatnonzero(mine.bound_between(others, numbers, pairs.old) >= threshold)
        pairs, numbers = pairs.select(possible), numbers[possible]
        value = mine.between(others, numbers, pairs.old)
        alike = np.flatnonzero(~(value < threshold))  # not measured (NaN) passes
        details["compared"] += len(value)
        details["alike"] += len(alike)
        pairs, value = pairs.select(alike), value[alike]
        order = pairs.best_first(np.nan_to_num(value))
        best = order[np.flatnonzero(np.diff(pairs.new[order], prepend=-1))]
        found.append((candidates[piece][pairs.new[best]], pairs.old[best], value[best]))
    position, number, value = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return Matches(position, number, value, details)


def _spans(sorted_keys: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each key begins among the sorted ones and how often it stands there; documents without words (key 0) share
    nothing. Sorted first: neighbours are looked up in the same pages."""
    order = np.argsort(keys)
    low, high = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    low[order] = np.searchsorted(sorted_keys, keys[order], side="left")
    high[order] = np.searchsorted(sorted_keys, keys[order], side="right")
    return low, np.where(keys == 0, 0, high - low)


def _pairs(
    corpus: Corpus, bands: Sequence[str], index: SavedIndex, positions: np.ndarray, details: dict[str, int]
) -> _Pairs:
    """Each of the documents with at most CROWD of the index; `details` count those that share bands with more."""
    codes: list[np.ndarray] = []
    crowded = np.zeros(len(positions), bool)
    for band, column in enumerate(bands):
        low, count = _spans(index.keys(band), corpus.column(column, positions))
        crowded |= count > CROWD
        count = np.minimum(count, CROWD)
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        old = index.numbers(band)[np.repeat(low, count) + place].astype(np.int64)
        codes.append(np.repeat(np.arange(len(positions)), count) * index.documents + old)
    code, shared = np.unique(np.concatenate(codes), return_counts=True)
    pairs = _Pairs(code // max(index.documents, 1), code % max(index.documents, 1), shared)
    pairs = pairs.select(pairs.best_first(np.zeros(len(code))))
    starts = np.searchsorted(pairs.new, np.arange(len(positions)))
    near = np.arange(len(code)) - starts[pairs.new] < CROWD
    crowded[pairs.new[~near]] = True
    details["crowded"] += int(np.count_nonzero(crowded))
    return pairs.select(np.flatnonzero(near))


__all__ = ["CROWD", "DESCRIPTION", "FOLDER", "Matches", "SavedIndex", "find_old", "index_digests", "write_index"]
