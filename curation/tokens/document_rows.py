# SPDX-License-Identifier: Apache-2.0
"""The rows of `documents/` from which the documents of a shuffled pair were made: `tokens/_meta/<pair>.rows`.

The file has 12 bytes per document of the pair, little-endian, in the order of the `.idx`:

    0        4    uint32 number N of the file `documents/part-N.parquet`, which is written with five digits or more
    4        8    uint64 row in this file, from 0

Without a shuffle there is no such file: the pairs of an input and a split have its rows in their order, without the
documents that have no tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curation.base.errors import IntegrityError
from curation.base.system.damage import reading
from curation.base.system.files import commit, file_sha256
from curation.tokens.blends import META
from curation.tokens.megatron import PairInfo, in_batches
from curation.tokens.ordering import SPLIT, seeded_order

PLACE = np.dtype([("part", "<u4"), ("row", "<u8")])


def document_path(folder: Path, number: int) -> Path:
    """Return the path of a file of `documents/` of a run, from its number."""
    return folder / "documents" / f"part-{number:05d}.parquet"


def rows_path(prefix: Path) -> Path:
    """Return the path of the rows of a pair, from its prefix."""
    return prefix.parent / Path(META).name / f"{prefix.name}.rows"


Parts = Sequence[tuple[int, Path]]  # number of each output part, file of the lengths of its documents in a split
Places = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # numbers of documents -> numbers of files, rows


def places_in_parts(parts: Parts, split: str, folder: Path) -> Places:
    """Return the places of the documents with tokens of an input and a split, if each output part is a file of
    `documents/`.

    Memory has 4 bytes per document. IntegrityError: `documents/` has other documents than the lengths.
    """
    found = [_rows_with_tokens(document_path(folder, number), lengths, split) for number, lengths in parts]
    firsts = np.cumsum([0, *map(len, found)])
    numbers = np.array([number for number, _ in parts], "<u4")
    rows = np.concatenate([np.empty(0, "<u4"), *found])
    return by_parts(numbers, firsts, rows)


def by_parts(numbers: np.ndarray, firsts: np.ndarray, rows: np.ndarray) -> Places:
    """Return the places of documents of several parts: the `numbers` of the parts, the number of the first document of
    each, and the row of each document in its part."""
    return lambda chosen: (numbers[np.searchsorted(firsts, chosen, side="right") - 1], rows[chosen])


def places_in_shards(parts: Parts, own: Sequence[int], shards: Sequence[tuple[int, int]], seed: int) -> Places:
    """Return the places of the documents with tokens of an input and a split in shards of all inputs
    (`document_shards.py`).

    parts   output parts of all inputs
    own     numbers of those of the input
    shards  number and first document of each shard of the split

    Memory has 8 bytes per document of all inputs, and 24 at first.
    """
    counts = {number: int(np.count_nonzero(np.fromfile(lengths, "<i4"))) for number, lengths in parts}
    starts = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    firsts = np.cumsum([0, *(counts[number] for number in own)])
    shifts = np.array([starts[number] for number in own], np.int64) - firsts[:-1]
    order = seeded_order(sum(counts.values()), seed)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    del order
    numbers, first_documents = (np.array(values, np.int64) for values in zip(*shards, strict=True))

    def places(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = positions[chosen + shifts[np.searchsorted(firsts, chosen, side="right") - 1]]
        shard = np.searchsorted(first_documents, found, side="right") - 1
        return numbers[shard], found - first_documents[shard]

    return places


def write_places(path: Path, order: np.ndarray, places_of: Places) -> None:
    """Write the place of each document in order, as PLACE."""
    with commit(path) as temporary, open(temporary, "wb") as file:
        for chosen in in_batches(order):
            places = np.empty(len(chosen), PLACE)
            places["part"], places["row"] = places_of(chosen)
            file.write(places.data)


def write_rows(pairs: Sequence[PairInfo], order: np.ndarray, places_of: Places, folder: Path) -> dict[str, str]:
    """Write the rows of the pairs of an input and a split. Return path in the run's folder -> SHA-256. `order` is the
    permutation of the documents with tokens by which the pairs were written; see `join_parts`."""
    digests, done = {}, 0
    for pair in pairs:
        path = rows_path(folder / "tokens" / Path(pair.prefix).name)
        write_places(path, order[done : done + pair.documents], places_of)
        done += pair.documents
        digests[path.relative_to(folder).as_posix()] = file_sha256(path)
    return digests


def read_place(path: Path, number: int, count: int) -> tuple[int, int]:
    """Return the number of the file of `documents/`, and the row in it, of document `number` of a pair of `count`
    documents. IntegrityError: a file of another size."""
    with reading(path):
        if (size := path.stat().st_size) != count * PLACE.itemsize:
            raise ValueError(f"it has {size:,} bytes, expected {PLACE.itemsize} for each of {count:,} documents")
        place = np.fromfile(path, PLACE, 1, offset=number * PLACE.itemsize)[0]
    return int(place["part"]), int(place["row"])


def _rows_with_tokens(document_file: Path, lengths_path: Path, split: str) -> np.ndarray:
    """Return the rows of the documents with tokens that are in a split: uint32."""
    lengths = np.fromfile(lengths_path, "<i4")
    rows = np.arange(len(lengths), dtype="<u4")
    if split:
        rows = np.concatenate([np.empty(0, "<u4"), *_rows_of_split(document_file, split)])
    if len(rows) != len(lengths):
        raise IntegrityError(
            f"{document_file} has {len(rows):,} documents of the split {split}, and {len(lengths):,} were tokenised. "
            "Another process wrote to it: start again with --force"
        )
    return rows[lengths != 0]


def _rows_of_split(document_file: Path, split: str) -> Iterator[np.ndarray]:
    done = 0
    for batch in pq.ParquetFile(document_file).iter_batches(columns=[SPLIT]):
        is_chosen = pc.equal(batch.column(0), split).to_numpy(zero_copy_only=False)
        yield (np.flatnonzero(is_chosen) + done).astype("<u4")
        done += len(batch)
