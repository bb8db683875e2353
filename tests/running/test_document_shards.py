# SPDX-License-Identifier: Apache-2.0
"""`documents: {shuffle: true}`: the documents in the order of the tokens, in the files that nanochat reads.

nanochat is no package. Its loader is recorded here as facts from its files `dataset.py` and `dataloader.py`, commit
92d63d4: Parquet files sorted by name, the last for validation and the others for training; of each file, rank r of n
reads the row groups r, r + n, ...; of each row group, the column `text`.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import RecipeError
from curation.recipes.recipe import Recipe, convert_recipe
from curation.results.finished.results import run_documents
from curation.results.finished.verify import verify
from curation.running.phases import document_shards
from curation.running.run import run
from curation.tokens.indexed import IndexedReader
from curation.tokens.tokenization import load_tokenizer
from tests.runs import digests, table_rows
from tests.tokens.samples import check_rows, make_texts, train_tokenizer, write_jsonl

SPLITS = {"train": 0.7, "valid": 0.3}
TEXTS = {"news": make_texts(260), "web": make_texts(140, seed=1)}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch):
    """Row groups of 16 documents, shards of 3,000 characters."""
    monkeypatch.setattr(document_shards, "GROUP_DOCUMENTS", 16)
    monkeypatch.setattr(document_shards, "SHARD_CHARACTERS", 3000)


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    tokenizer = train_tokenizer(tmp_path / "tok.json", TEXTS["news"])
    for name, texts in TEXTS.items():
        write_jsonl(tmp_path / f"{name}.jsonl", ["" if number % 9 == 2 else text for number, text in enumerate(texts)])

    def made(*names: str, inputs: dict[str, Any] | None = None, **output: Any) -> Recipe:
        entries = [{"path": str(tmp_path / f"{name}.jsonl"), "keep_blank": True, **(inputs or {})} for name in names]
        return convert_recipe(
            {
                "input": entries, "stages": [], "tokenizer": {"name": str(tokenizer), "append_eod": False},
                "output": {
                    "shuffle": True, "documents": {"shuffle": True}, "splits": SPLITS, "part_documents": 40,
                    "max_file_bytes": 4000, **output,
                },
            }
        )  # fmt: skip

    return made


def run_in(folder: Path, recipe: Recipe, **options: Any) -> Path:
    run(recipe, folder, engine="cpu", progress=False, **{"workers": 1} | options)
    return folder


def files_of(folder: Path, split: str) -> list[Path]:
    """The files that nanochat reads for "train" or "val"."""
    paths = [folder / "documents" / name for name in sorted(os.listdir(folder / "documents"))]
    return paths[:-1] if split == "train" else paths[-1:]


def texts_of_rank(folder: Path, split: str, rank: int, ranks: int) -> Iterator[str]:
    for path in files_of(folder, split):
        file = pq.ParquetFile(path)
        for group in range(rank, file.num_row_groups, ranks):
            yield from file.read_row_group(group).column("text").to_pylist()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_nanochat_reads_each_document_once_and_valid_alone_as_validation(recipe: Any, tmp_path: Path, ranks: int):
    folder = run_in(tmp_path / "out", recipe("news", "web"))
    plain = run_in(tmp_path / "plain", recipe("news", "web", documents=True))
    expected = table_rows(plain / "documents", "split", "text")
    for split, name in (("train", "train"), ("val", "valid")):
        read = [text for rank in range(ranks) for text in texts_of_rank(folder, split, rank, ranks)]
        assert Counter(read) == Counter(text for own, text in expected if own == name)
    assert len(files_of(folder, "train")) > 5


def test_files_have_whole_row_groups_and_end_at_the_limit(recipe: Any, tmp_path: Path):
    folder = run_in(tmp_path / "out", recipe("news"))
    *full, last = files_of(folder, "train")
    for path in full:
        file = pq.ParquetFile(path)
        groups = [file.read_row_group(number).column("text").to_pylist() for number in range(file.num_row_groups)]
        assert [*map(len, groups)] == [16] * len(groups)
        characters = [sum(map(len, group)) for group in groups]
        assert sum(characters[:-1]) < 3000 <= sum(characters)
    for path in (last, *files_of(folder, "val")):
        file = pq.ParquetFile(path)
        counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        assert set(counts[:-1]) <= {16} and 0 < counts[-1] <= 16


def test_documents_have_the_order_of_the_tokens(recipe: Any, tmp_path: Path):
    chosen = recipe("news")
    folder = run_in(tmp_path / "out", chosen)
    tokenizer, last = load_tokenizer(chosen.tokenizer), list[str]()
    for split, name in (("train", "train"), ("val", "valid")):
        pairs = sorted((folder / "tokens").glob(f"news_{name}_*.idx"))
        tokens = [ids.tolist() for path in pairs for ids in IndexedReader(path)]
        texts = [*texts_of_rank(folder, split, 0, 1)]
        assert [tokenizer.encode(pa.array([text]))[0].tolist() for text in texts[: len(tokens)]] == tokens
        last += texts[len(tokens) :]
    assert len(last) > 20 and {*last} == {""}  # without tokens, at the end


@pytest.mark.parametrize("names", [("news",), ("web", "news")], ids=len)
def test_rows_of_pairs_are_those_of_the_shards(recipe: Any, tmp_path: Path, names: tuple[str, ...]):
    chosen = recipe(*names, inputs={"copies": 2})
    folder = run_in(tmp_path / "out", chosen)
    check_rows(folder, load_tokenizer(chosen.tokenizer), SPLITS)
    assert verify(folder) == []


def test_rows_are_those_of_documents_in_their_order(recipe: Any, tmp_path: Path):
    folder = run_in(tmp_path / "out", recipe("news", "web"))
    plain = run_in(tmp_path / "plain", recipe("news", "web", documents=True))
    columns = ("doc", "id", "source", "text", "split")
    assert sorted(table_rows(folder / "documents", *columns)) == table_rows(plain / "documents", *columns)
    schemas = [pq.read_schema(path / "documents" / "part-00000.parquet") for path in (folder, plain)]
    assert schemas[0] == schemas[1]
    reports = [json.loads((path / "report.json").read_bytes()) for path in (folder, plain)]
    assert reports[0]["documents_digest"] == reports[1]["documents_digest"]
    kept = [run_documents(path, "kept", sample=20).sort_by("doc").to_pylist() for path in (folder, plain)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("formats", [["megatron", "packed"], []], ids=["tokens", "no tokens"])
def test_bytes_do_not_depend_on_slices_and_workers(recipe: Any, tmp_path: Path, formats: list[str]):
    chosen = recipe("news", "web", formats=formats, max_file_bytes=4000 if formats else 10_000_000_000)
    found = [
        digests(run_in(tmp_path / str(workers), chosen, workers=workers, slice_bytes=size))
        for workers, size in ((1, 0), (2, 1500))
    ]
    assert found[0] == found[1]


class Stopped(BaseException):
    """What no code of the project catches."""


def test_a_run_stopped_at_any_file_of_documents_goes_on(recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chosen, real = recipe("news"), os.replace
    expected = digests(run_in(tmp_path / "whole", chosen))
    for name in ("00003.documents", "00003.document_sizes", "train.order", "part-00002.parquet", "part-00000.parquet"):

        def stop(source: Any, target: Any, name: str = name) -> None:
            if str(target).endswith(name) and "removed" not in str(target):
                raise Stopped
            real(source, target)

        monkeypatch.setattr(os, "replace", stop)
        with pytest.raises(Stopped):
            run_in(tmp_path / name, chosen)
        monkeypatch.setattr(os, "replace", real)
        assert digests(run_in(tmp_path / name, chosen, workers=2)) == expected


def test_without_shuffle_documents_are_as_before(recipe: Any, tmp_path: Path):
    found = [
        digests(run_in(tmp_path / str(number), recipe("news", documents=value)))
        for number, value in enumerate((True, {"shuffle": False}))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"shuffle": False}, "documents.shuffle takes the order of output.shuffle, and shuffle is false. Set shuffle"),
        ({"splits": {}}, "splits must be train and valid, such as {train: 0.99, valid: 0.01}, not {}"),
        (
            {"splits": {"train": 0.5, "test": 0.5}},
            "documents.shuffle writes the split valid to the last file",
        ),
        ({"cleaned": "jsonl"}, "documents.shuffle cannot be combined with cleaned. Leave one of them out"),
        ({"parquet": "gpu"}, "documents.shuffle cannot be combined with parquet: gpu. Leave one of them out"),
        ({"documents": {"order": 1}}, "unknown field `order` - at `$.output.documents`"),
    ],
)
def test_settings_that_do_not_fit_are_one_message(recipe: Any, output: dict[str, Any], message: str):
    with pytest.raises(RecipeError) as error:
        recipe("news", **output)
    assert message in str(error.value)


def test_a_split_without_documents_is_an_error(recipe: Any, tmp_path: Path):
    write_jsonl(tmp_path / "one.jsonl", ["one"])
    with pytest.raises(RecipeError, match="got no document, and the last file of documents/ is the split valid"):
        run_in(tmp_path / "out", recipe("one", formats=[], max_file_bytes=10_000_000_000))


def test_a_run_that_keeps_nothing_has_one_file(recipe: Any, tmp_path: Path):
    (tmp_path / "none.jsonl").write_bytes(b"no record\n")
    folder = run_in(tmp_path / "out", recipe("none"))
    assert [pq.read_metadata(path).num_rows for path in (folder / "documents").iterdir()] == [0]
    assert verify(folder) == []


def test_verify_finds_a_document_of_the_other_split(recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = document_shards._gathered
    monkeypatch.setattr(
        document_shards, "_gathered",
        lambda places, opened: (table := real(places, opened)).set_column(
            table.column_names.index("split"), "split", pa.array(["train"] * len(table), pa.string())
        ),
    )  # fmt: skip
    folder = run_in(tmp_path / "out", recipe("news"))
    name = files_of(folder, "val")[0].name
    assert any(line.startswith(f"documents/{name} has ") and line.endswith("than valid") for line in verify(folder))
