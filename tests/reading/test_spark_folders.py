# SPDX-License-Identifier: Apache-2.0
"""Folders that Spark wrote are inputs as `docs/spark.md` says."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.engine import load_engine
from curation.base.errors import InputError
from curation.reading import probe
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import cut_slices
from curation.recipes.recipe import Recipe, parse_recipe
from tests.contract.test_pages_run import DOCS, FENCE
from tests.runs import records_of

UUID = "2f1c8f7e-7d0a-4f3f-9a55-0d1d9f5f2f10-c000"
RECIPES = [block for kind, block in FENCE.findall((DOCS / "spark.md").read_text("utf-8")) if kind == "yaml"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two folders as Spark 3.5 names and fills them: one partitioned by a copy of `lang`, one of JSON Lines."""
    pages, books = tmp_path / "lake" / "pages", tmp_path / "lake" / "books"
    for number, lang in enumerate(("de", "en")):
        texts = [f"{lang} {row}" for row in range(3)]
        table = pa.table({"url": [f"x.org/{text}" for text in texts], "text": texts, "lang": [lang] * 3})
        name = f"part-0000{number}-{UUID}.snappy.parquet"
        (pages / f"lang={lang}").mkdir(parents=True)
        pq.write_table(table, pages / f"lang={lang}" / name, compression="snappy")
        (pages / f"lang={lang}" / f".{name}.crc").write_bytes(b"crc\0")
    books.mkdir()
    (books / f"part-00000-{UUID}.json.gz").write_bytes(gzip.compress(records_of(["a book", "another"])))
    for folder in (pages, books):
        (folder / "_SUCCESS").touch()
        (folder / "._SUCCESS.crc").write_bytes(b"crc\0\0\0\0\0")
        attempt = folder / "_temporary" / "0" / "_temporary" / "attempt_1"
        attempt.mkdir(parents=True)
        (attempt / f"part-00009-{UUID}.json").write_bytes(records_of(["not yet committed"]))
    return tmp_path / "lake"


def documents_of(recipe: Recipe) -> list[dict[str, Any]]:
    """The documents of all inputs, as the CPU engine reads them."""
    engine, found = load_engine("cpu"), []
    for input_slice in cut_slices([probe(file) for file in find_files(recipe.input)], 1 << 20):
        for batch in engine.read_slice(input_slice, 1 << 20):
            rows = engine.to_arrow(batch.frame).to_pylist()
            found += [{"source": input_slice.source, **row} for row in rows]
    return found


def test_the_recipes_of_the_page_read_the_committed_files(lake: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(lake.parent)
    whole, by_partition = (parse_recipe(block) for block in RECIPES)
    rows = documents_of(whole)
    assert [row["text"] for row in rows] == ["de 0", "de 1", "de 2", "en 0", "en 1", "en 2", "a book", "another"]
    assert [row.get("lang") for row in rows[:6]] == ["de"] * 3 + ["en"] * 3 and rows[0]["url"] == "x.org/de 0"
    assert [(row["source"], row["text"]) for row in documents_of(by_partition)][2:4] == [("de", "de 2"), ("en", "en 0")]


def test_a_glob_leaves_out_hidden_names(lake: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(lake / "books")
    (lake / "books" / "_metadata.json").write_bytes(records_of(["named"]))
    book, attempt = f"part-00000-{UUID}.json.gz", f"_temporary/0/_temporary/attempt_1/part-00009-{UUID}.json"
    for pattern, names in {
        "*": [book],
        "**/*": [book],
        f"file://{lake}/books/*": [book],  # fsspec's `*` matches names that begin with a dot
        "_meta*": ["_metadata.json"],
        "../bo*/_temporary/*/_temporary/*/*": [attempt],
    }.items():
        files = find_files([Input(path=pattern)])
        assert [file.path.removeprefix("file://") for file in files] == [f"{lake}/books/{name}" for name in names]
    hidden = r"\. A glob leaves out .* begin with _ or \. \(\./\._SUCCESS\.crc, \./_SUCCESS\). To read a file, name it$"
    for pattern, message in {
        "./*S*": hidden,
        f"file://{lake}/books/[_]S*": r"books/_SUCCESS\). To",
        "x*": r"books\)$",
    }.items():
        with pytest.raises(InputError, match=message):
            find_files([Input(path=pattern)])
