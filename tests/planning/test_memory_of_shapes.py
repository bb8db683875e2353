# SPDX-License-Identifier: Apache-2.0
"""Memory is what a run announces, whatever the shape of its data: files that hold far more than their bytes."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.planning.memory_shapes import Shape, assert_bounded

MEGABYTE = "lorem ipsum dolor sit amet " * 39_000


def recipe_for(path: Path, *stages: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"input": [{"path": str(path), **settings}], "stages": list(stages)}


def repeated(rows: int, *texts: str) -> pa.Table:
    """A column of the Arrow type dictionary, whose rows take turns with a few texts."""
    places = pa.array([row % len(texts) for row in range(rows)], pa.int32())
    return pa.table({"text": pa.DictionaryArray.from_arrays(places, pa.array(texts))})


def one_text_in_parquet(folder: Path) -> dict[str, Any]:
    pq.write_table(repeated(1200, MEGABYTE), folder / "one.parquet", compression="zstd", store_schema=False)
    return recipe_for(folder / "one.parquet")


SHAPES = {"parquet: 1,200 rows of one text of 1 MB": Shape(one_text_in_parquet, 1200, len(MEGABYTE))}


@pytest.mark.slow("files that hold far more text than bytes take the memory that their run announces")
@pytest.mark.parametrize("name", SHAPES)
def test_memory_is_what_a_run_announces(name: str, tmp_path: Path):
    assert_bounded(tmp_path, SHAPES[name])
