# SPDX-License-Identifier: Apache-2.0
"""`documents/` in the order of `output.shuffle`: shards with row groups of 1,024 documents, the split `valid` last.

The write phase stores the documents of each output part in the work folder, uncompressed. When all are stored, the
driver computes the order and the cuts between shards. Then tasks write the shards: each gathers its documents from the
mapped files, row group by row group, so the memory of a task does not grow with the shard. The order takes 34 bytes of
memory per document of a split.

The order is that of the token forms other than pairs: all documents with tokens by `seeded_order`, over all inputs.
With one input, its pairs have the same order. Documents without tokens follow.

nanochat reads such a folder (recorded from its files `dataset.py` and `dataloader.py`): Parquet files sorted by name,
the last for validation and all others for training; row groups r, r + ranks, ... of each file on rank r; the column
`text`. Its own shards have row groups of 1,024 documents, and end with the first one that brings them to 250 million
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array
from curation.base.contract import TEXT
from curation.base.errors import RecipeError
from curation.base.parquet import TableWriter
from curation.base.system.files import commit, file_sha256, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.recipes.recipe import Recipe
from curation.record.documents import document_options
from curation.record.partitions import in_order
from curation.tokens.document_rows import PLACE, by_parts, document_path, write_places
from curation.tokens.megatron import map_array
from curation.tokens.ordering import seeded_order, split_names
from curation.tokens.token_files import token_paths

GROUP_DOCUMENTS = 1024
SHARD_CHARACTERS = 250_000_000
MAX_OPEN = 1024  # mapped files of a task
SIZE = np.dtype([("split", "u1"), ("characters", "<u4")])


class DocumentShard(NamedTuple):
    """A file of `documents/`: `rows` documents of a split, from number `first` of its order on."""

    number: int
    split: str
    first: int
    rows: int


class StoredDocuments:
    """Writes the documents of an output part to the work folder; made by `stored_documents`."""

    def __init__(self, sink: Path, sizes: Path, schema: pa.Schema) -> None:
        self.writer, self.sizes_path = pa.ipc.new_file(str(sink), schema), sizes
        self.sizes = [np.empty(0, SIZE)]

    def write(self, table: pa.Table, splits: np.ndarray) -> None:
        """Append documents, which are in the given splits: the number of each in `split_names`."""
        self.writer.write_table(table.combine_chunks())
        sizes = np.empty(len(table), SIZE)
        sizes["split"] = splits
        sizes["characters"] = pc.fill_null(pc.utf8_length(as_one_array(table.column(TEXT))), 0).to_numpy()
        self.sizes.append(sizes)

    def close(self) -> None:
        """Write the end of the file, and the sizes."""
        self.writer.close()
        np.concatenate(self.sizes).tofile(self.sizes_path)


def stored_path(work: Path, number: int) -> Path:
    """Return the file of the stored documents of an output part."""
    return numbered_path(work, number, ".documents")


def sizes_path(work: Path, number: int) -> Path:
    """Return the file of their splits and characters."""
    return numbered_path(work, number, ".document_sizes")


@contextmanager
def stored_documents(work: Path, number: int, schema: pa.Schema) -> Iterator[StoredDocuments]:
    """Yield the open file of an output part. It gets its final name when the block ends without an error."""
    with commit(stored_path(work, number)) as path, commit(sizes_path(work, number)) as sizes:
        file = StoredDocuments(path, sizes, schema)
        yield file
        file.close()


def plan_shards(recipe: Recipe, work: Path, numbers: Sequence[int]) -> list[DocumentShard]:
    """Write the order of each split to the work folder, and return the shards. `numbers` are the output parts."""
    shards: list[DocumentShard] = []
    splits = split_names(recipe.output.splits) if numbers else []  # a run that kept nothing has no parts
    for index, split in enumerate(splits):
        rows, characters, tokenised = [np.empty(0, "<u4")], [np.empty(0, "<u4")], [np.empty(0, bool)]
        for number in numbers:
            sizes = np.fromfile(sizes_path(work, number), SIZE)
            own = np.flatnonzero(sizes["split"] == index)
            rows.append(own.astype("<u4"))
            characters.append(sizes["characters"][own])
            tokenised.append(_has_tokens(recipe, work, number, split, len(own)))
        firsts = np.cumsum([*map(len, rows)])
        order = _order(recipe.seed, np.concatenate(tokenised))
        if not len(order):
            raise RecipeError(
                f"split {split} has a share of {recipe.output.splits[split]:g} and got no document, and the last file "
                "of documents/ is the split valid. Give the split a larger share"
            )
        places = by_parts(np.array(numbers, "<u4"), firsts, np.concatenate(rows))
        write_places(order_path(work, split), order, places)
        del rows, tokenised, places
        cuts = _cuts(np.concatenate(characters), order, whole=index > 0)
        for first, stop in zip([0, *cuts], cuts, strict=False):
            shards.append(DocumentShard(len(shards), split, first, stop - first))
    return shards


def order_path(work: Path, split: str) -> Path:
    """Return the file with the place of each document of a split in the stored documents, in the order of the shards:
    `PLACE`."""
    return work / f"{split}.order"


def _has_tokens(recipe: Recipe, work: Path, number: int, split: str, documents: int) -> np.ndarray:
    """Return a bool per document of an output part in a split; true for all in a run without tokens."""
    if not recipe.output.formats:
        return np.ones(documents, bool)
    return np.asarray(np.fromfile(token_paths(work, number, split)[1], "<i4") != 0)


def _order(seed: int, tokenised: np.ndarray) -> np.ndarray:
    """Return the order of documents: those with tokens shuffled, then the others. int64."""
    order = seeded_order(int(np.count_nonzero(tokenised)), seed)
    if len(order) == len(tokenised):
        return order
    return np.concatenate([np.flatnonzero(tokenised)[order], np.flatnonzero(~tokenised)])


def _cuts(characters: np.ndarray, order: np.ndarray, whole: bool) -> list[int]:
    """Return the end of each shard, in documents of the order. `whole`: the documents are one shard."""
    cuts, waiting = list[int](), 0
    for first in range(0, 0 if whole else len(order), GROUP_DOCUMENTS):
        waiting += int(characters[order[first : first + GROUP_DOCUMENTS]].sum(dtype=np.int64))
        if waiting >= SHARD_CHARACTERS:
            cuts.append(min(first + GROUP_DOCUMENTS, len(order)))
            waiting = 0
    return cuts if cuts and cuts[-1] == len(order) else [*cuts, len(order)]


class _Stored:
    """The stored documents of an output part, memory-mapped."""

    def __init__(self, path: Path) -> None:
        self.file = pa.ipc.open_file(pa.memory_map(str(path)))
        counts = [self.file.get_batch(number).num_rows for number in range(self.file.num_record_batches)]
        self.firsts = np.cumsum([0, *counts])

    def take(self, rows: np.ndarray) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows, which ascend."""
        batch_of = np.searchsorted(self.firsts, rows, side="right") - 1
        for number in np.unique(batch_of).tolist():
            local = rows[batch_of == number] - self.firsts[number]
            yield self.file.get_batch(number).take(pa.array(local))


def write_shard(recipe: Recipe, work: Path, folder: Path, shard: DocumentShard) -> dict[str, str]:
    """Write a shard. Return its path in the run's folder -> SHA-256."""
    places = map_array(order_path(work, shard.split), PLACE, PLACE.itemsize * shard.first, shard.rows)
    opened = lru_cache(MAX_OPEN)(lambda number: _Stored(stored_path(work, number)))
    schema = opened(int(places["part"][0])).file.schema
    path = document_path(folder, shard.number)
    with commit(path) as temporary, TableWriter(temporary, schema, document_options(schema)) as writer:
        for first in range(0, shard.rows, GROUP_DOCUMENTS):
            check_interrupts()
            writer.write(_gathered(places[first : first + GROUP_DOCUMENTS], opened))
    return {path.relative_to(folder).as_posix(): file_sha256(path)}


def _gathered(places: np.ndarray, opened: Callable[[int], _Stored]) -> pa.Table:
    """Return the documents at some places, in the order of the places."""
    order = np.argsort(places, order=("part", "row"))
    ordered = places[order]
    batches = [
        batch
        for number in np.unique(ordered["part"]).tolist()
        for batch in opened(number).take(ordered["row"][ordered["part"] == number].astype(np.int64))
    ]
    return in_order([pa.Table.from_batches(batches)], order)
