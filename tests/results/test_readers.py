# SPDX-License-Identifier: Apache-2.0
"""The tables of a run in the tools that people load them with: pandas, `datasets`, DuckDB and polars.

DuckDB and polars are large, so `make test-all` installs them. What they rely on (types, nulls, statistics) is also
tested in `tests/base/test_parquet.py`.
"""

import random
import re
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from curation.running.run import run
from tests.needs import needs
from tests.runs import kept_rows, recipe_of, records_of, report_of, table_rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "outputs.md"
STAGES = [
    {"kind": "language"},
    {"kind": "filter", "rules": [{"measure": "words", "min": 12}]},
    {"kind": "exact_dedup"},
    {"kind": "fuzzy_dedup", "threshold": 0.5, "ngram": 2, "verify": "none"},
]
SPLITS = {"train": 0.7, "valid": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two inputs, splits, measures and documents in several files."""
    base = tmp_path_factory.mktemp("readers")
    for name, seed in (("news", 1), ("web", 2)):
        chance = random.Random(seed)
        texts = [" ".join(f"w{chance.randrange(5000)}" for _ in range(chance.randrange(5, 60))) for _ in range(90)]
        texts += [*texts[:20], *(f"{text} more" for text in texts[20:40])]
        (base / f"{name}.jsonl").write_bytes(records_of(texts, url="https://example.org"))
    inputs = [{"path": str(base / f"{name}.jsonl"), "name": name, "columns": ["url"]} for name in ("news", "web")]
    output = {"splits": SPLITS, "measures": True, "part_documents": 30, "cleaned": "parquet", "formats": []}
    run(recipe_of(*inputs, stages=STAGES, output=output), base / "DIR", engine="cpu", workers=1)
    return base / "DIR"


def of_split(folder: Path, split: str) -> list[int]:
    return [doc for doc, own in table_rows(folder / "documents", "doc", "split") if own == split]


def test_pyarrow_and_pandas_see_strings_and_missing_numbers(folder: Path):
    for name in ("documents", "removed", "measures", "cleaned"):
        schema = pq.read_table(folder / name).schema
        assert {str(field.type) for field in schema} <= {"int64", "double", "string"}, name
    removed = pd.read_parquet(folder / "removed")
    duplicates = removed[removed["stage"] != "filter"]
    assert len(duplicates) > 10 and duplicates["bound"].isna().all() and removed["bound"].mean() == 12
    counts = pq.read_table(folder / "removed", columns=["bound", "value"])
    near = int((removed["stage"] == "fuzzy_dedup").sum())  # verify: none measures no similarity
    assert near and counts["bound"].null_count == len(duplicates) and counts["value"].null_count == near
    documents = pd.read_parquet(folder / "documents")
    assert set(documents["split"]) == {"train", "valid"} and len(documents) == report_of(folder)["documents"]["kept"]


@pytest.fixture(scope="module")
def news_damaged(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`documents/` whose files with documents of `news` have zeros between the first four bytes and the footer."""
    copy = tmp_path_factory.mktemp("damaged")
    for path in (folder / "documents").iterdir():
        data = path.read_bytes()
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        is_news = b"news" in data[footer:]  # in the statistics
        (copy / path.name).write_bytes(data[:4] + bytes(footer - 4) + data[footer:] if is_news else data)
    return copy


def of_source(folder: Path, source: str) -> list[tuple]:
    return [row for row in kept_rows(folder) if row[2] == source]


def test_pyarrow_skips_row_groups_by_source(folder: Path, news_damaged: Path):
    files = dataset.dataset(news_damaged)
    found = files.to_table(["doc", "id", "source", "text"], filter=dataset.field("source") == "web")
    assert [tuple(row.values()) for row in found.to_pylist()] == of_source(folder, "web")
    with pytest.raises(OSError, match=r"(?i)zstd|page|corrupt|thrift"):
        files.to_table(filter=dataset.field("source") == "news")


def test_footers_have_bounds_of_numbers_and_of_the_source(folder: Path):
    for path in sorted((folder / "documents").iterdir()):
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(number) for number in range(group.num_columns)]
        found = {column.path_in_schema: column.statistics for column in columns if column.is_stats_set}
        assert sorted(found) == ["doc", "language_probability", "source"]
        assert found["source"].min == found["source"].max and found["doc"].min < found["doc"].max


def test_datasets_loads_the_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = needs("datasets")
    datasets.disable_progress_bars()

    def load(*names: str, **settings: object) -> object:
        return datasets.load_dataset(str(folder), *names, cache_dir=str(tmp_path / "cache"), **settings)

    found = load()
    assert list(found) == ["train"] and found["train"]["doc"][:] == of_split(folder, "train")
    assert load("valid", split="valid")["doc"][:] == of_split(folder, "valid")
    assert [row["doc"] for row in load("valid", split="valid", streaming=True)] == of_split(folder, "valid")
    assert len(load("removed", split="removed")) == report_of(folder)["documents"]["removed"]
    assert {*datasets.get_dataset_config_names(str(folder))} == {"train", "valid", "removed", "measures", "cleaned"}
    other = datasets.Dataset.from_dict({"text": ["of another data set"], "url": ["x"]})
    own = found["train"].select_columns(["text", "url"])
    assert datasets.concatenate_datasets([own, other])["text"][-1] == "of another data set"
    assert len(datasets.interleave_datasets([own, other], stopping_strategy="all_exhausted")) >= len(own)


BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split()[1])
def test_python_of_the_page_runs(block: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(folder.parent)
    for name in re.findall(r"^(?:from|import) (\w+)", block, re.MULTILINE):
        if name == "datasets":
            monkeypatch.setattr(needs(name).config, "HF_DATASETS_CACHE", str(tmp_path))
        elif name != "pandas":
            needs(name)
    names: dict[str, object] = {}
    exec(block, names)
    counts = report_of(folder)["documents"]
    expected = {"train": len(of_split(folder, "train")), "texts": len(of_split(folder, "train"))}
    expected |= {"valid": len(of_split(folder, "valid")), "removed": counts["removed"]}
    assert all(len(value) == expected[name] for name, value in names.items() if name in expected)


def test_duckdb_takes_means_and_skips_row_groups(folder: Path, news_damaged: Path):
    duckdb = needs("duckdb")

    def ask(query: str) -> tuple:
        return duckdb.sql(query).fetchall()[0]

    assert ask(f"SELECT avg(bound) FROM '{folder}/removed/*.parquet'") == (12.0,)
    assert ask(f"SELECT count(*) FROM '{folder}/documents/*.parquet' WHERE split = 'valid'") == (
        len(of_split(folder, "valid")),
    )
    query = f"SELECT count(text) FROM '{news_damaged}/*.parquet' WHERE source = "
    assert ask(f"{query}'web'") == (len(of_source(folder, "web")),)
    with pytest.raises(duckdb.Error):
        ask(f"{query}'news'")


def test_polars_scans_it_and_skips_row_groups(folder: Path, news_damaged: Path):
    polars = needs("polars")
    scan = polars.scan_parquet(f"{folder}/documents/*.parquet")
    assert scan.collect_schema()["text"] == polars.String
    damaged = polars.scan_parquet(f"{news_damaged}/*.parquet").select("doc", "id", "source", "text")
    assert damaged.filter(polars.col("source") == "web").collect().rows() == of_source(folder, "web")
    with pytest.raises(polars.exceptions.PolarsError):
        damaged.filter(polars.col("source") == "news").collect()
    removed = polars.read_parquet(f"{folder}/removed/*.parquet")
    assert removed["bound"].mean() == 12.0 and removed["bound"].is_nan().sum() == 0
