# SPDX-License-Identifier: Apache-2.0
"""The files with scores and vectors of models that a run keeps, so that a later run can reuse them (`--reuse`).

A row has the 128-bit hash of a text, and the values of `ScoringStage.score`. Each batch of an Arrow IPC file has rows
in the order of their hashes. The metadata of the file has all facts on which its values depend. The files are:

    _work/segment-N/NNNNNN.scores-K.arrow  rows of a slice for stage K, in batches of limited size
    scores/stage-K/NNNNN.arrow             2^bits files of one batch: the hashes whose first `bits` bits are NNNNN

A text is found by a binary search in a memory map.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from curation import __version__
from curation.base.errors import InputError
from curation.models.vectors import arrow_type
from curation.recipes.recipe import Recipe
from curation.record.partitions import open_partition
from curation.stages import Stage
from curation.stages.base import ScoringStage
from curation.stages.own_code import as_json, files_of

FOLDER = "scores"
HASH, FACTS = "hash", b"facts"
HASH_BYTES = 16
UNNAMED = ("kind", "name", "column", "model")  # settings on which values do not depend; the fact `files` has the model


class StoredScores(msgspec.Struct, frozen=True):
    """Files with the scores of one stage of an earlier run.

    files  paths, absolute
    bits   number of first bits of a hash that are the number of its file; -1: any file may have the hash
    """

    files: list[Path]
    bits: int = -1

    def look_up(self, hashes: np.ndarray) -> tuple[np.ndarray, list[pa.RecordBatch]]:
        """Return the positions of the `hashes` that are stored (int64), and batches with their rows in that order.

        `hashes` is uint64 of shape (n, 2). Raises InputError for a missing file, IntegrityError for a damaged one."""
        keys = keys_of(hashes)
        order = np.argsort(keys)
        files = hashes[order, 0] >> np.uint64(64 - self.bits) if self.bits > 0 else np.zeros(len(order), np.uint64)
        places, batches = [np.zeros(0, np.int64)], []
        for number in np.unique(files).tolist():
            wanted = order[np.searchsorted(files, number) : np.searchsorted(files, number, side="right")]
            for path in self.files if self.bits < 0 else self.files[number : number + 1]:
                for batch in open_scores(path).to_batches():
                    stored = stored_keys(batch)
                    place = np.searchsorted(stored, keys[wanted])
                    is_found = place < len(stored)
                    is_found[is_found] = stored[place[is_found]] == keys[wanted[is_found]]
                    places.append(wanted[is_found])
                    batches.append(batch.take(pa.array(place[is_found])))
                    wanted = wanted[~is_found]
        return np.concatenate(places), batches


def keys_of(hashes: np.ndarray) -> np.ndarray:
    """Return hashes (uint64 of shape (n, 2)) as bytes (S16 of shape (n,)), which sort like the numbers."""
    return np.ascontiguousarray(hashes.astype(">u8")).view("S16")[:, 0]


def stored_keys(batch: pa.RecordBatch) -> np.ndarray:
    """Return the hashes of stored rows, as `keys_of` does."""
    column = batch.column(HASH)
    return np.frombuffer(column.buffers()[1], "S16")[column.offset : column.offset + len(column)]


def kept_stages(recipe: Recipe, numbers: Iterable[int]) -> list[int]:
    """Return the numbers of the stages, among `numbers`, whose scores a run of the recipe keeps."""
    chosen = numbers if recipe.output.scores else ()
    return [number for number in chosen if kept_values(recipe.stages[number])]


def bytes_per_document(recipe: Recipe) -> int:
    """Return the size of one document in all files of `scores/`, for the check of the disk."""
    stages = (recipe.stages[number] for number in kept_stages(recipe, range(len(recipe.stages))))
    return sum(row_bytes(schema_of(stage)) for stage in stages)


def suffix_of(stage: int | str) -> str:
    """Return the suffix of the file with the scores of a slice by the stage number `stage`; "*" matches any stage."""
    return f".scores-{stage}.arrow"


def facts_of(stage: Stage) -> dict[str, Any]:
    """Return all that the values of a stage depend on besides the texts."""
    return {
        "stage": stage.kind,
        "version": __version__,
        "revision": stage.revision,
        "settings": {name: value for name, value in as_json(stage).items() if name not in UNNAMED},
        "files": sorted([Path(path).name, digest] for path, digest in files_of(stage).items()),
        "computed_with": stage.computed_with(),
    }


def schema_of(stage: Stage) -> pa.Schema:
    """Return the schema of the stored scores of a stage."""
    fields = [pa.field(name, arrow_type(kind)) for name, kind in kept_values(stage).items()]
    metadata = {FACTS: orjson.dumps(facts_of(stage), option=orjson.OPT_SORT_KEYS)}
    return pa.schema([pa.field(HASH, pa.binary(HASH_BYTES), nullable=False), *fields], metadata)


def open_scores(path: Path) -> pa.Table:
    """Return the rows of a file through a memory map. Raises InputError for a missing file, IntegrityError for a
    damaged one."""
    try:
        return open_partition(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist, but --reuse reads it. Put it back, or leave --reuse out") from None


def sorted_rows(rows: pa.Table) -> pa.Table:
    """Return rows of scores in the order of their hashes. Each hash is kept once, because equal texts have equal
    values."""
    keys = np.concatenate([np.zeros(0, "S16"), *map(stored_keys, rows.to_batches())])
    return rows.take(pa.array(np.unique(keys, return_index=True)[1])).combine_chunks()


def kept_values(stage: Stage) -> dict[str, str]:
    """Return the values that a run keeps for later runs (`output.scores`): name -> Arrow type. Only values that depend
    on the machine are kept, because integers of fastText and n-gram models are computed about as fast as looked up."""
    return stage.values() if isinstance(stage, ScoringStage) and stage.computed_with() else {}


def row_bytes(schema: pa.Schema) -> int:
    """Return the bytes of a row without compression."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    return int(kind.bit_width) // 8
