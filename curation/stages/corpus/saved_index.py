# SPDX-License-Identifier: Apache-2.0
"""The saved indexes of a run: files by which a later run removes duplicates and near-duplicates of its documents.

`exact_index.py` has the index of exact duplicates, `vector_index.py` the index of close vectors. This module has the
index of near-duplicates, and what all indexes share.

Documents are numbered in the order of `doc`. All numbers are little-endian; files are read through memory maps:

    index.json                      the settings of the stage, counts, size and SHA-256 of every file
    ids.arrow                       `id` of every document
    keys-000.bin, documents-000.bin ...   per band its keys (uint64, ascending) and their documents (int32, from 2^31
                                    documents on int64; ascending among equal keys): 12 bytes per band and document
    shingles.bin, offsets.bin       sorted n-gram hashes of every document, and their offsets (`verify: exact`)
    signatures.bin                  MinHash signatures, uint32 (`verify: signature`)

A new document is compared with at most MAX_COMPARED documents of the index. Candidates are the first MAX_COMPARED
documents with its key in each band; those that share most bands with it are compared. A key that a million documents
share costs no more than a key that MAX_COMPARED documents share.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from curation import __version__
from curation.base.arrays import batches_by_size, batches_of, load_arrays, map_file, positions_of
from curation.base.contract import ID, position_type
from curation.base.errors import IntegrityError, RecipeError
from curation.base.system.damage import damaged, reading
from curation.base.system.files import commit, make_folder, remove, sync_folder, write_json
from curation.base.system.steps import each
from curation.stages.base import NewIndex, Phase, Stage
from curation.stages.corpus.index_tasks import Band, files_folder, index_files, noted_files
from curation.stages.corpus.similarity import ExactJaccard, Similarity

if TYPE_CHECKING:  # the stages import this module
    from curation.stages.outcome import Corpus

FORMAT = 1
FOLDER = "index"
DESCRIPTION = "index.json"
IDS = "ids.arrow"
IDS_AT_ONCE = 1 << 16  # ids per batch of ids.arrow
FILE_NAME = re.compile(r"[\w.-]{1,80}", re.ASCII)  # a file in the folder itself
SHOWN = 80  # characters shown of a wrong name
MAX_COMPARED = 64
PAIRS_AT_ONCE = 1 << 18
Settings = dict[str, Any]


def _keys_file(band: int) -> str:
    return f"keys-{band:03d}.bin"


def _documents_file(band: int) -> str:
    return f"documents-{band:03d}.bin"


# Writing


def keys_band(band: int, column: str) -> Band:
    """Return the band of an index whose keys are in `column`, with the names of its two files: keys, and documents with
    these keys."""
    return Band([column], [_keys_file(band)], _documents_file(band))


def saved_by(phases: Sequence[Phase], settings: Settings, folder: str = "", has_ids: bool = True) -> NewIndex:
    """Return an index that `write_index` writes, with or without ids of documents."""

    def write(corpus: Corpus, below: Path, ids_of: Callable[[np.ndarray], pa.Array], earlier: Sequence[Stage]) -> None:
        write_index(below, settings, corpus, ids_of if has_ids else None)

    return NewIndex(write, phases, settings, folder)


def write_index(
    folder: Path, settings: Settings, corpus: Corpus, ids_of: Callable[[np.ndarray], pa.Array] | None
) -> None:
    """Write the index of all documents of `corpus` to `folder`, as a whole or not at all. Tasks have written all files
    except the ids (`index_tasks.index_phases`).

    settings  settings of the stage that a later run must share
    ids_of    function that returns the ids of rows; None: the index has no ids
    """
    work = files_folder(corpus)
    if ids_of is None:
        parts = range(len(corpus.storage.starts) - 1)
        documents = sum(len(corpus.between(part, part + 1).rows) for part in parts)
    else:
        with index_files(corpus, [IDS]) as (path,):
            documents = _write_ids(path, corpus, ids_of)
    files = noted_files(corpus)
    for path in work.iterdir():
        if path.name not in files:  # a killed task has left it
            remove(path)
    content = {"format": FORMAT, "version": __version__, "settings": settings, "documents": documents, "files": files}
    write_json(work / DESCRIPTION, content, indent=True)
    make_folder(folder.parent)
    os.replace(work, folder)
    sync_folder(folder.parent)


def _write_ids(path: Path, corpus: Corpus, ids_of: Callable[[np.ndarray], pa.Array]) -> int:
    """Write the ids of all documents, in batches of IDS_AT_ONCE, and return their number."""
    rows, documents = np.zeros(0, np.int64), 0
    parts = range(len(corpus.storage.starts) - 1)
    with pa.ipc.new_file(str(path), pa.schema([(ID, pa.large_string())])) as writer:
        for part in each(parts, "writing ids of the index", "partition"):
            rows = np.concatenate([rows, corpus.between(part, part + 1).rows])
            whole = len(rows) if part == parts[-1] else len(rows) // IDS_AT_ONCE * IDS_AT_ONCE
            for start in range(0, whole, IDS_AT_ONCE):
                writer.write_batch(pa.record_batch([ids_of(rows[start : min(start + IDS_AT_ONCE, whole)])], [ID]))
            rows, documents = rows[whole:], documents + whole
    return documents


def index_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of the finished indexes in a folder, by its path in the run folder."""
    digests: dict[str, str] = {}
    for path in sorted(folder.rglob(DESCRIPTION)):
        index, below = SavedIndex(path.parent), path.parent.relative_to(folder.parent).as_posix()
        files = {name: entry["sha256"] for name, entry in index.content["files"].items()}
        digests |= {f"{below}/{name}": digest for name, digest in (files | {DESCRIPTION: index.digest}).items()}
    return digests


# Reading


def missing_index(folder: str | Path, stage: str, within: str = "") -> str:
    """Return the message that a folder lacks the index of a stage. `within` is the path of the index below the
    folder."""
    found = f"index: {Path(folder) / within} has no {DESCRIPTION}"
    if (Path(folder) / FOLDER / within / DESCRIPTION).is_file():  # the folder of the run itself
        return f"{found}; did you mean {Path(folder) / FOLDER}?"
    return f"{found}; give {FOLDER}/ of a run with {stage} and output: {{index: true}}"


class _File(msgspec.Struct):
    """The entry of a file in `index.json`."""

    bytes: int
    sha256: str


class SavedIndex:
    """An index on disk. Raises RecipeError if the index is missing or has another format, IntegrityError if it is
    damaged or a file has the wrong size."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            data = (self.folder / DESCRIPTION).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise RecipeError(missing_index(folder, "fuzzy_dedup")) from None
        try:
            self.content = orjson.loads(data)
            made = self.content["format"]
            self.documents = int(self.content["documents"]) if made == FORMAT else 0
            files = msgspec.convert(self.content["files"] if made == FORMAT else {}, dict[str, _File])
            sizes = {name: entry.bytes for name, entry in files.items()}
            if wrong := [name for name in sizes if not FILE_NAME.fullmatch(name)]:
                raise ValueError(f"it names the file {wrong[0][:SHOWN]!r}")
            self.settings = dict(self.content["settings"]) if made == FORMAT else {}
        except (msgspec.ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise IntegrityError(f"{self.folder / DESCRIPTION} is damaged ({error!r}); make the index again") from None
        if made != FORMAT:
            raise RecipeError(f"index: {folder} has format {made}, this version reads {FORMAT}; make the index again")
        for name, size in sizes.items():
            actual = (self.folder / name).stat().st_size if (self.folder / name).is_file() else None
            if actual != size:
                shown = "missing" if actual is None else f"{actual} bytes long, not {size}"
                raise IntegrityError(f"{self.folder / name} is {shown}; make the index again")
        self.digest = hashlib.sha256(data).hexdigest()

    def files(self) -> dict[str, str]:
        """Return the file that describes the index, with the file's SHA-256, for `Stage.files`."""
        return {str(self.folder / DESCRIPTION): self.digest}

    def check(self, settings: Settings) -> None:
        """Raise RecipeError with the settings that differ between the index and a stage."""
        made = self.settings
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
        """Return the keys of a band, uint64, ascending."""
        return map_file(self.folder / _keys_file(band), np.uint64)

    def numbers(self, band: int) -> np.ndarray:
        """Return the document number of each key of a band."""
        return map_file(self.folder / _documents_file(band), position_type(self.documents))

    def checked(self, numbers: np.ndarray, name: str) -> np.ndarray:
        """Return numbers of documents from the file `name`, as int64. Raises IntegrityError for a number that no
        document has."""
        numbers = numbers.astype(np.int64)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.documents:
            raise damaged(self.folder / name, "it has numbers of documents that the index lacks")
        return numbers

    def starts(self) -> np.ndarray:
        """Return the first document of each batch of ids, then the number of documents; int64."""
        return np.append(np.arange(0, self.documents, IDS_AT_ONCE), self.documents)

    def ids(self, numbers: np.ndarray) -> pa.Array:
        """Return the ids of the documents `numbers`, which may be in any order."""
        distinct, place = np.unique(numbers, return_inverse=True)
        ids = [pa.array([], pa.large_string()), *self.ids_by_batch(distinct)]
        return pa.concat_arrays(ids).take(pa.array(place))

    def ids_by_batch(self, numbers: np.ndarray) -> Iterator[pa.LargeStringArray]:
        """Yield the ids of the documents `numbers`, ascending and unique, one array per batch with any of them."""
        path = self.folder / IDS
        with reading(path), pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            for batch in np.unique(numbers // IDS_AT_ONCE).tolist():
                low, high = np.searchsorted(numbers, [batch * IDS_AT_ONCE, (batch + 1) * IDS_AT_ONCE])
                ids = reader.get_batch(batch).column(ID)
                ids.validate(full=True)
                yield ids.take(pa.array(numbers[low:high] - batch * IDS_AT_ONCE))


# Looking up


class IndexMatches(NamedTuple):
    """Documents that have a near-duplicate in an index.

    position  position in the corpus, ascending
    number    number of the most similar document of the index, int64
    value     similarity to it, float64; NaN if not measured
    details   counts for the report
    """

    position: np.ndarray
    number: np.ndarray
    value: np.ndarray
    details: dict[str, int]

    def save(self, path: Path) -> None:
        """Write the matches to an `.npz` file, whole or not at all, so that a resumed run finds no part of a file."""
        with commit(path) as temporary, open(temporary, "wb") as file:
            details = np.array(orjson.dumps(self.details).decode())
            np.savez(file, position=self.position, number=self.number, value=self.value, details=details)

    @staticmethod
    def load(path: Path) -> IndexMatches:
        """Read what `save` wrote."""
        stored = load_arrays(path)
        return IndexMatches(stored["position"], stored["number"], stored["value"], orjson.loads(str(stored["details"])))


def sum_details(matches: Sequence[IndexMatches]) -> dict[str, int]:
    """Return the sum of each count over several matches with one index; `documents` is the same in all."""
    total = {name: sum(entry.details[name] for entry in matches) for name in matches[0].details}
    return total | {"documents": matches[0].details["documents"]}


class _Pairs(NamedTuple):
    """Pairs of a document of the corpus and a document of the index that share bands."""

    new: np.ndarray
    old: np.ndarray
    shared: np.ndarray  # number of shared bands

    def select(self, chosen: np.ndarray) -> _Pairs:
        return _Pairs(self.new[chosen], self.old[chosen], self.shared[chosen])

    def best_first(self, value: np.ndarray) -> np.ndarray:
        """Return the positions of the pairs in this order: by new document, then by value, then by shared bands. The
        largest values and numbers come first."""
        return np.lexsort((self.old, -self.shared, -value, self.new))


def find_matches(
    corpus: Corpus,
    bands: Sequence[str],
    index: SavedIndex,
    threshold: float,
    similarities: Callable[[np.ndarray], tuple[Similarity, Similarity]],
    contained: float,
) -> IndexMatches:
    """Return the documents of `corpus` with a near-duplicate in the index.

    `similarities` takes the positions of candidates and returns two comparison objects: that of the candidates and that
    of the index. Pairs match if their similarity is at least `threshold`, or NaN (not measured). With `contained`, a
    document of the index must also have at least this share of the document's n-grams, and the value is the share."""
    hits = np.zeros(len(corpus.rows), np.int32)
    for band, column in enumerate(each(bands, "searching the index", "band")):
        sorted_keys = index.keys(band)
        for batch in batches_of(len(hits)):
            keys = corpus.column(column, np.arange(batch.start, batch.stop))
            hits[batch] += np.minimum(_spans(sorted_keys, keys)[1], MAX_COMPARED).astype(np.int32)
    candidates = positions_of(hits > 0)
    mine, others = similarities(candidates)
    details = {"documents": index.documents, "candidates": len(candidates), "compared": 0, "alike": 0, "crowded": 0}
    matches = [(candidates[:0], np.zeros(0, np.int64), np.zeros(0))]
    batches = batches_by_size(np.cumsum(hits[candidates], dtype=np.int64), PAIRS_AT_ONCE)
    for batch in each(batches, "comparing with the index", "batch"):
        pairs = _pairs(corpus, bands, index, candidates[batch], details)
        numbers = batch.start + pairs.new
        possible = np.flatnonzero(mine.bound_between(others, numbers, pairs.old) >= threshold)
        pairs, numbers = pairs.select(possible), numbers[possible]
        value = mine.between(others, numbers, pairs.old)
        alike = np.flatnonzero(~(value < threshold))  # pairs that are not measured (NaN) pass
        details["compared"] += len(value)
        details["alike"] += len(alike)
        pairs, value = pairs.select(alike), value[alike]
        if contained and isinstance(mine, ExactJaccard) and isinstance(others, ExactJaccard):
            value = mine.shares(others, numbers[alike], pairs.old)
            pairs, value = pairs.select(value >= contained), value[value >= contained]
        order = pairs.best_first(np.nan_to_num(value))
        best = order[np.flatnonzero(np.diff(pairs.new[order], prepend=-1))]
        matches.append((candidates[batch][pairs.new[best]], pairs.old[best], value[best]))
    position, number, value = (np.concatenate(columns) for columns in zip(*matches, strict=True))
    return IndexMatches(position, number, value, details)


def _spans(sorted_keys: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each key begins among the sorted keys, and how many of them are equal to it; 0 for documents without
    words (key 0). Keys are looked up in ascending order, so that adjacent ones are read from the same memory pages."""
    order = np.argsort(keys)
    low, high = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    low[order] = np.searchsorted(sorted_keys, keys[order], side="left")
    high[order] = np.searchsorted(sorted_keys, keys[order], side="right")
    return low, np.where(keys == 0, 0, high - low)


def _pairs(
    corpus: Corpus, bands: Sequence[str], index: SavedIndex, positions: np.ndarray, details: dict[str, int]
) -> _Pairs:
    """Return the pairs of each document with at most MAX_COMPARED documents of the index. `details` counts documents
    with more candidates."""
    codes: list[np.ndarray] = []
    excess = np.zeros(len(positions), bool)
    for band, column in enumerate(bands):
        low, count = _spans(index.keys(band), corpus.column(column, positions))
        excess |= count > MAX_COMPARED
        count = np.minimum(count, MAX_COMPARED)
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        old = index.checked(index.numbers(band)[np.repeat(low, count) + place], _documents_file(band))
        codes.append(np.repeat(np.arange(len(positions)), count) * index.documents + old)
    code, shared = np.unique(np.concatenate(codes), return_counts=True)
    pairs = _Pairs(code // max(index.documents, 1), code % max(index.documents, 1), shared)
    pairs = pairs.select(pairs.best_first(np.zeros(len(code))))
    starts = np.searchsorted(pairs.new, np.arange(len(positions)))
    near = np.arange(len(code)) - starts[pairs.new] < MAX_COMPARED
    excess[pairs.new[~near]] = True
    details["crowded"] += int(np.count_nonzero(excess))
    return pairs.select(np.flatnonzero(near))
