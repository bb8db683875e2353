# SPDX-License-Identifier: Apache-2.0
"""Memory is what a run announces, whatever the shape of its data: files that hold far more than their bytes, and edits
that make far more than they read."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.running.memory_shapes import Shape, assert_bounded
from tests.runs import records_of

LONG = "lorem ipsum dolor sit amet " * 39_000  # 1 MB
PAGES = [f"page {number} " + f"with words of template {number} " * 100 for number in range(300)]
STRINGS = pa.schema([("text", pa.large_string())])
DEDUP = {"kind": "exact_dedup"}  # spares most of the time of writing


def recipe_for(path: Path, *stages: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"input": [{"path": str(path), **settings}], "stages": list(stages)}


def table_of(rows: int, *texts: str) -> pa.Table:
    """A column of the Arrow type dictionary, whose rows take turns with a few texts."""
    places = pa.array([row % len(texts) for row in range(rows)], pa.int32())
    return pa.table({"text": pa.DictionaryArray.from_arrays(places, pa.array(texts))})


def as_parquet(
    folder: Path, table: pa.Table, *, plain: bool = True, stages: Any = (DEDUP,), **options: Any
) -> dict[str, Any]:
    if plain and not options.get("use_dictionary", True):
        table = table.cast(STRINGS)
    pq.write_table(table, folder / "a.parquet", compression="zstd", store_schema=not plain, **options)
    return recipe_for(folder / "a.parquet", *stages)


def as_arrow(folder: Path, table: pa.Table, codec: str | None = None, stages: Any = (DEDUP,)) -> dict[str, Any]:
    with pa.ipc.new_file(folder / "a.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    return recipe_for(folder / "a.arrow", *stages)


def compressed(folder: Path, name: str, blocks: Iterable[bytes], *stages: Any, **settings: Any) -> dict[str, Any]:
    codec = {"zst": "zstd", "gz": "gzip"}[name.rpartition(".")[2]]
    with pa.output_stream(str(folder / name), compression=codec) as file:
        for block in blocks:
            file.write(block)
    return recipe_for(folder / name, *stages, **settings)


def lines_of(rows: int, *texts: str) -> Iterable[bytes]:
    return (orjson.dumps({"text": texts[row % len(texts)]}) + b"\n" for row in range(rows))


def growing(folder: Path, texts: list[str], *replace: tuple[str, str], **settings: Any) -> dict[str, Any]:
    (folder / "a.jsonl").write_bytes(records_of(texts))
    rewrite = {"kind": "rewrite", "replace": [{"matches": matches, "by": by} for matches, by in replace]}
    return recipe_for(folder / "a.jsonl", rewrite, DEDUP, **settings)


def _of(make: Callable[..., dict[str, Any]], table: Callable[[], pa.Table], **options: Any) -> Any:
    return lambda folder: make(folder, table(), **options)


DELTA = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
SHAPES = {
    "Parquet, 700 rows of one text of 1 MB": Shape(_of(as_parquet, partial(table_of, 700, LONG)), 1, len(LONG)),
    "Parquet, the same in delta encoding": Shape(_of(as_parquet, partial(table_of, 300, LONG), **DELTA), 1, len(LONG)),
    "Parquet, 400,000 pages of 300 templates": Shape(
        _of(as_parquet, partial(table_of, 400_000, *PAGES), stages=()), 400_000, 2_709
    ),
    "Parquet, 3,000,000 nulls": Shape(
        _of(as_parquet, lambda: pa.table({"text": pa.array(["a"] + [None] * 3_000_000, pa.string())})), 1, 1
    ),
    "Parquet, categories with 2.3 GB in a row group": Shape(
        _of(as_parquet, partial(table_of, 2200, LONG), plain=False), 1, len(LONG)
    ),
    "Arrow, categories with 2.3 GB in a batch": Shape(_of(as_arrow, partial(table_of, 2200, LONG)), 1, len(LONG)),
    "Arrow, batches of 65,536 pages in lz4": Shape(
        _of(
            as_arrow,
            lambda: table_of(140_000, *PAGES).cast(STRINGS),
            codec="lz4",
            stages=(),
        ),
        140_000,
        2_709,
    ),
    "JSON Lines in zstd, 300,000 pages of 300 templates": Shape(
        lambda folder: compressed(folder, "a.jsonl.zst", lines_of(300_000, *PAGES)), 300_000, 2_709
    ),
    "CSV in gzip, 500 rows of one text of 1 MB": Shape(
        lambda folder: compressed(folder, "a.csv.gz", [b"text\n", *[LONG.encode() + b"\n"] * 500], DEDUP), 1, len(LONG)
    ),
    "texts in gzip, 1,000,000 of 3 bytes": Shape(
        lambda folder: compressed(folder, "a.txt.gz", [b"a b|" * 250_000] * 4, separator="|"), 1_000_000, 3
    ),
    "texts of 26 bytes, of which an edit makes 40 times 26 MB": Shape(
        lambda folder: growing(folder, ["a" * 26] * 40, ("a", "b" * 1_000_000)), 1, 26_000_000
    ),
    "a text of 26 bytes, of which an edit would make 4.8 GB": Shape(
        lambda folder: growing(folder, ["a" * 26, "b"], *[("a", "a" * 1000)] * 2, ("a", "a" * 185)), 1, 26_000_000
    ),
}


@pytest.mark.slow("files and edits that make far more text than they have bytes take the memory that a run announces")
@pytest.mark.parametrize("name", SHAPES)
def test_memory_is_what_a_run_announces(name: str, tmp_path: Path):
    assert_bounded(tmp_path, SHAPES[name])


@pytest.mark.slow("a raised limit of documents is a remark on memory and chooses nothing")
def test_a_raised_limit_chooses_nothing(tmp_path: Path):
    found = []
    for name, settings in {"usual": {}, "raised": {"max_document_bytes": 2_000_000_000}}.items():
        (folder := tmp_path / name).mkdir()
        (folder / "a.jsonl").write_bytes(records_of(["a"]))
        make = partial(recipe_for, path=folder / "a.jsonl", **settings)
        found.append(assert_bounded(folder, Shape(lambda _, make=make: make(), 1, 1)))
    usual, raised = found
    assert "; up to 40.0 GB more for a document of max_document_bytes\n" in raised.printed
    assert "max_document_bytes" not in usual.printed and usual.announced == raised.announced
