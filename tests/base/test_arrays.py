# SPDX-License-Identifier: Apache-2.0
"""Rows are cut by their sizes as plain Python cuts them, however the tables come. Arrays of objects are not loaded."""

from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.arrays import as_one_array, batches_by_size, cut_tables, load_arrays, load_mapped
from curation.base.contract import TEXT
from curation.base.errors import IntegrityError

SIZES = st.lists(st.integers(0, 9), max_size=40)


def greedy(sizes: list[int], most: int, items: int) -> list[int]:
    """How many items each piece has."""
    pieces: list[list[int]] = []
    for size in sizes:
        if not pieces or sum(pieces[-1]) + size > most or len(pieces[-1]) == items:
            pieces.append([])
        pieces[-1].append(size)
    return [len(piece) for piece in pieces]


@given(SIZES, st.integers(0, 20), st.integers(1, 10), st.lists(st.integers(0, 40)))
def test_tables_are_cut_where_their_rows_say(sizes: list[int], most: int, items: int, cuts: list[int]):
    texts = pa.table({TEXT: pa.array([f"{k:x}"[0] * size for k, size in enumerate(sizes)], pa.large_string())})
    bounds = [0, *sorted(min(cut, len(sizes)) for cut in cuts), len(sizes)]
    tables = [texts.slice(low, high - low) for low, high in pairwise(bounds)]
    found = list(cut_tables(tables, items, most))
    assert [sum(len(rows) for _, rows in group) for _, group in groupby(found, itemgetter(0))] == greedy(
        sizes, most, items
    )
    assert pa.concat_tables([texts.slice(0, 0), *(rows for _, rows in found)]).equals(texts)


@given(SIZES, st.integers(0, 20))
def test_pieces_by_size(sizes: list[int], most: int):
    pieces = list(batches_by_size(np.cumsum(np.array(sizes, np.int64)), most))
    assert [piece.stop - piece.start for piece in pieces] == greedy(sizes, most, len(sizes))


def test_one_chunk_is_not_copied():
    array = pa.array(["a", "b"])
    assert as_one_array(pa.chunked_array([array])).buffers()[2].address == array.buffers()[2].address
    assert as_one_array(pa.chunked_array([array, array])).to_pylist() == ["a", "b", "a", "b"]
    assert as_one_array(array) is array


class Evil:
    """Loading its pickle creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return (open, (str(self.path), "w"))


def test_arrays_of_objects_are_damaged_files(tmp_path: Path):
    objects = np.array([Evil(tmp_path / "ran")], dtype=object)
    np.save(tmp_path / "a.npy", objects)
    np.savez(tmp_path / "a.npz", objects=objects)
    for load, name in ((load_mapped, "a.npy"), (load_arrays, "a.npz")):
        with pytest.raises(IntegrityError, match=rf"{name} is damaged: .*\. Put the file back, or write it again"):
            load(tmp_path / name)
    assert not (tmp_path / "ran").exists()
