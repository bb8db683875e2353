# SPDX-License-Identifier: Apache-2.0
"""Whole runs with every form, splits and blends, from recipe to `curate verify`."""

import hashlib
import itertools
import os
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from curation import cli
from curation.base.errors import IntegrityError, OutputError, RecipeError, TokenizerError
from curation.recipes.recipe import as_builtins, convert_recipe, load_recipe
from curation.results.finished import loader_check
from curation.results.finished.loader_check import check_loader
from curation.results.finished.split_checks import split_leaks
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.tokens import tokenization
from curation.tokens.forms import TokenShards
from curation.tokens.forms.stored import open_form, problems
from curation.tokens.indexed import IndexedReader
from curation.tokens.ordering import assign_splits
from curation.tokens.samples import SAMPLE_FILES
from curation.tokens.tokenization import load_tokenizer
from tests.runs import table_rows
from tests.tokens.samples import make_texts, train_tokenizer, write_jsonl

SPLITS = {"train": 0.7, "valid": 0.15, "test": 0.15}
ALL = ["megatron", "token_shards", "blocks", "chunks", "packed", "mds", "litdata"]
SMALL = {
    "token_shards": {"shard_tokens": 3000},
    "blocks": {"length": 64, "shard_blocks": 30},
    "chunks": {"length": 32, "min_tokens": 5, "shard_chunks": 50},
    "packed": {"length": 128, "shard_rows": 20},
    "mds": {"length": 64, "shard_bytes": 4000},
    "litdata": {"length": 64, "shard_bytes": 4000},
}


def recipe_of(paths: list[Path], formats: list[str], stages: list | None = None, **output):
    inputs = [{"path": str(path), "keep_blank": True} for path in paths]
    settings = {form: SMALL[form] for form in formats if form in SMALL}
    return convert_recipe(
        {"input": inputs, "stages": stages or [], "output": {"formats": formats, **settings, **output}}
    )


@pytest.fixture
def texts(tmp_path) -> Path:
    return write_jsonl(tmp_path / "news.jsonl", make_texts(300))


def read_pair(prefix: Path) -> list[list[int]]:
    return [ids.tolist() for ids in IndexedReader(prefix)]


def tree(folder: Path) -> dict[str, str]:
    """Path -> hash of all outputs whose bytes depend on nothing but the documents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "_meta" not in name and not name.startswith("report"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


# forms


def test_all_forms_hold_the_documents_of_the_pair(texts, tmp_path):
    report = run(recipe_of([texts], ALL), tmp_path / "out").report
    pair = read_pair(tmp_path / "out/tokens/news_00000_text_document")
    stream = list(itertools.chain.from_iterable(pair))
    shards = sorted((tmp_path / "out/token_shards").glob("*.bin"))
    assert np.concatenate([np.fromfile(path, "<u2") for path in shards]).tolist() == stream
    rows = np.concatenate([np.load(path) for path in sorted((tmp_path / "out/blocks").glob("*.npy"))])
    assert rows.reshape(-1).tolist() == stream[: len(stream) // 64 * 64]
    told = report["forms"]
    assert told["token_shards"]["train"]["tokens"] == report["tokens"]["count"] == len(stream)
    assert told["packed"]["train"]["tokens"] == len(stream)
    assert told["chunks"]["train"]["tokens"] + told["chunks"]["train"]["dropped_tokens"] == len(stream)
    assert verify(tmp_path / "out") == []


def test_forms_alone_need_no_pair(texts, tmp_path):
    with_pair = run(recipe_of([texts], ALL), tmp_path / "a").report
    without = run(recipe_of([texts], ["blocks"]), tmp_path / "b").report
    assert with_pair["tokens"] == without["tokens"]
    assert not (tmp_path / "b/tokens").exists()
    assert tree(tmp_path / "b/blocks") == tree(tmp_path / "a/blocks")
    assert verify(tmp_path / "b") == []


def test_documents_are_encoded_once(texts, tmp_path, monkeypatch):
    calls: list[int] = []
    pack = tokenization.Tokenizer.pack
    monkeypatch.setattr(
        tokenization.Tokenizer, "pack", lambda self, chunk: calls.append(len(chunk)) or pack(self, chunk)
    )
    run(recipe_of([texts], ALL, splits=SPLITS), tmp_path / "out")
    assert sum(calls) == 300


@pytest.mark.parametrize(("splits", "shuffle"), [({}, False), (SPLITS, True)], ids=["whole", "split and shuffled"])
def test_bytes_do_not_depend_on_slices_workers_or_parts_in_work(texts, tmp_path, splits, shuffle):
    recipe = recipe_of([texts], ALL, splits=splits, shuffle=shuffle)
    run(recipe, tmp_path / "a", workers=1)
    run(recipe, tmp_path / "b", workers=2, slice_bytes=5000)
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert len(tree(tmp_path / "a")) > 15


@pytest.mark.parametrize(("layout", "files"), [("raw", 1), ("datatrove", 2), ("nanogpt", 2)])
def test_layouts_of_shards_have_the_same_ids(texts, tmp_path, monkeypatch, layout, files):
    shards = {"shard_tokens": 3000, "layout": layout}
    recipe = recipe_of([texts], ["token_shards"], splits=SPLITS, shuffle=True)
    recipe = convert_recipe(as_builtins(recipe) | {"output": as_builtins(recipe)["output"] | {"token_shards": shards}})
    report = run(recipe, tmp_path / "a", workers=1).report
    run(recipe, tmp_path / "b", workers=2, slice_bytes=5000)
    assert tree(tmp_path / "a") == tree(tmp_path / "b") and verify(tmp_path / "a") == []
    told = [*report["forms"]["token_shards"].values()]
    assert [split["files"] for split in told] == [files * len(split["shards"]) for split in told]
    raw = run(recipe_of([texts], ["token_shards"], splits=SPLITS, shuffle=True), tmp_path / "raw").report
    raw_told = [*raw["forms"]["token_shards"].values()]
    assert TokenShards.numbers(told) == TokenShards.numbers(raw_told) == {"shards": sum(s["files"] for s in raw_told)}
    for without_torch in (False, True):
        if without_torch:
            monkeypatch.setattr(loader_check, "has_torch", lambda: False)
        found, expected = (check_loader(tmp_path / name, length=16) for name in ("a", "raw"))
        assert found == expected and len(found) == len(SPLITS)


def test_a_run_killed_among_the_forms_goes_on(texts, tmp_path, monkeypatch):
    recipe = recipe_of([texts], ALL, splits=SPLITS)
    run(recipe, tmp_path / "whole")
    write = os.replace
    count = itertools.count()

    def break_at(limit):
        def replace(source, target):
            if "chunks" in str(target) and next(count) == limit:
                raise OSError("no space left")
            return write(source, target)

        return replace

    monkeypatch.setattr(os, "replace", break_at(2))
    with pytest.raises(OSError, match="no space left"):
        run(recipe, tmp_path / "out")
    assert not (tmp_path / "out/chunks").exists()
    left = tmp_path / "out/chunks.host-1-1.tmp"
    left.mkdir()
    (left / "train_00099.ids.npy").write_bytes(b"left behind")
    monkeypatch.undo()
    run(recipe, tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert verify(tmp_path / "out") == []


def test_force_deletes_forms_of_an_earlier_run(texts, tmp_path):
    run(recipe_of([texts], ALL), tmp_path / "out")
    (tmp_path / "out/index_mapping").mkdir()
    run(recipe_of([texts], ["megatron"]), tmp_path / "out", force=True)
    assert not {"blocks", "chunks", "packed", "token_shards", "index_mapping"} & {*os.listdir(tmp_path / "out")}


def test_verify_notices_a_changed_or_strange_file(texts, tmp_path):
    run(recipe_of([texts], ALL), tmp_path / "out")
    shard = tmp_path / "out/blocks/train_00000.npy"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    (tmp_path / "out/chunks/stray.npy").write_bytes(b"")
    found = verify(tmp_path / "out")
    assert any(problem.startswith("blocks/train_00000.npy has changed") for problem in found)
    assert "chunks/stray.npy is not part of the run" in found


def test_missing_and_foreign_files_of_a_form_are_named(texts, tmp_path):
    run(recipe_of([texts], ["blocks"]), tmp_path / "out")
    folder = tmp_path / "out/blocks"
    manifest, _ = open_form(folder, "blocks", "train")
    (folder / "train_00001.npy").unlink()
    (folder / "stray").write_bytes(b"")
    (folder / "train_00000.npy").write_bytes(b"short")
    found = list(problems(folder, manifest))
    assert found[0].startswith(f"{folder / 'train_00000.npy'} has 5 bytes, expected")
    assert found[1:] == [
        f"{folder / 'train_00001.npy'} is missing, though manifest.json names it",
        f"{folder / 'stray'} is foreign: manifest.json does not name it",
    ]


# splits


def test_a_documents_side_follows_from_its_text_and_the_seed(texts, tmp_path):
    run(recipe_of([texts], ["megatron"], splits=SPLITS), tmp_path / "out")
    tokenizer = load_tokenizer("gpt2")
    made = make_texts(300)
    side = assign_splits([text.encode() for text in made], SPLITS, 1234)
    assert sorted(os.listdir(tmp_path / "out/tokens")) == sorted(
        ["_meta", *(f"news_{name}_00000_text_document.{s}" for name in SPLITS for s in ("bin", "idx"))]
    )
    for number, name in enumerate(SPLITS):
        found = read_pair(tmp_path / f"out/tokens/news_{name}_00000_text_document")
        expected = [text for text, k in zip(made, side.tolist(), strict=True) if k == number]
        assert [tokenizer.decode(ids[:-1]) for ids in found] == expected
        assert abs(len(expected) / 300 - SPLITS[name]) < 0.08
    other = assign_splits([text.encode() for text in made], SPLITS, 1)
    assert (other != side).any()
    column = [name for (name,) in table_rows(tmp_path / "out/documents", "split")]
    assert column == [[*SPLITS][k] for k in side.tolist()]


def test_verify_finds_another_split_in_the_column(texts, tmp_path):
    """Here of a run that writes no tokens."""
    report = run(recipe_of([texts], [], splits=SPLITS), tmp_path / "out").report
    assert list(split_leaks(tmp_path / "out", report)) == []
    path = tmp_path / "out/documents/part-00000.parquet"
    table = pq.read_table(path)
    wrong = ["test" if name == "valid" else name for name in table.column("split").to_pylist()]
    count = table.column("split").to_pylist().count("valid")
    pq.write_table(table.set_column(table.column_names.index("split"), "split", pa.array(wrong)), path)
    assert list(split_leaks(tmp_path / "out", report)) == [
        f"documents/part-00000.parquet has {count} documents in another split than their texts assign"
    ]


def test_the_column_is_in_exports_and_not_in_joined_documents(texts, tmp_path):
    output = {"splits": SPLITS, "formats": [], "cleaned": "jsonl"}
    entry = {"path": str(texts), "split": {"sentences": 1}}
    for name, joined in (("parts", {}), ("joined", {"join": "id"})):
        run(convert_recipe({"input": [entry], "output": output | joined, "stages": []}), tmp_path / name)
        row = orjson.loads((tmp_path / name / "cleaned/part-00000.jsonl").read_bytes().splitlines()[0])
        assert ("split" in row) is (name == "parts")
    chosen = output | {"export_columns": ["split"]}
    with pytest.raises(RecipeError, match="the run adds 'split', so the documents in raw/ do not have it"):
        convert_recipe({"input": [entry], "output": chosen | {"raw": "csv"}, "stages": []})
    run(convert_recipe({"input": [entry], "output": chosen, "stages": []}), tmp_path / "chosen")
    assert {*orjson.loads((tmp_path / "chosen/cleaned/part-00000.jsonl").read_bytes().splitlines()[0])} == {"split"}


def test_names_of_inputs_that_read_like_sides_are_kept_apart(tmp_path):
    made = make_texts(100)
    paths = [
        write_jsonl(tmp_path / f"{name}.jsonl", part)
        for name, part in (("news", made[:60]), ("news_train_2024", made[60:]))
    ]
    run(recipe_of(paths, ["megatron"], splits=SPLITS), tmp_path / "out")
    assert verify(tmp_path / "out") == []


def test_splits_of_nothing_are_no_error(texts, tmp_path):
    nothing = [{"kind": "filter", "rules": [{"measure": "words", "min": 1000, "reason": "short"}]}]
    report = run(recipe_of([texts], ALL, stages=nothing, splits=SPLITS), tmp_path / "out").report
    assert (report["documents"]["kept"], verify(tmp_path / "out")) == (0, [])
    assert "nothing is kept" in report["warnings"][0]


def test_a_side_does_not_depend_on_the_order_of_the_recipe():
    made = [text.encode() for text in make_texts(50)]
    turned = dict(reversed(SPLITS.items()))
    assert assign_splits(made, SPLITS, 3).tolist() == assign_splits(made, turned, 3).tolist()


def test_exact_duplicates_fall_on_one_side_without_deduplication(tmp_path):
    path = write_jsonl(tmp_path / "twice.jsonl", make_texts(100) * 3)
    run(recipe_of([path], ["megatron"], splits=SPLITS), tmp_path / "out")
    found = [{*map(tuple, read_pair(tmp_path / f"out/tokens/twice_{name}_00000_text_document"))} for name in SPLITS]
    assert not found[0] & found[1] and not found[0] & found[2] and not found[1] & found[2]
    assert sum(map(len, found)) == 100
    assert verify(tmp_path / "out") == []


def test_a_document_on_two_sides_is_found(texts, tmp_path):
    report = run(recipe_of([texts], ["megatron"], splits=SPLITS), tmp_path / "out").report
    tokens = tmp_path / "out/tokens"
    for suffix in (".bin", ".idx"):
        (tokens / f"news_valid_00000_text_document{suffix}").write_bytes(
            (tokens / f"news_test_00000_text_document{suffix}").read_bytes()
        )
    found = list(split_leaks(tmp_path / "out", report))
    count = len(read_pair(tokens / "news_test_00000_text_document"))
    assert f"{count} documents with the same tokens in valid and in test" in found
    assert any("their texts assign" in problem for problem in found)


def test_sides_of_forms_are_counted_without_pairs(texts, tmp_path):
    report = run(recipe_of([texts], ALL[1:], splits=SPLITS), tmp_path / "out").report
    for form in ALL[1:]:
        assert list(split_leaks(tmp_path / "out", report)) == []
        path = tmp_path / "out" / form / "manifest.json"
        written = path.read_bytes()
        splits = (manifest := orjson.loads(written))["splits"]
        valid, test = (splits[name]["documents"] for name in ("valid", "test"))
        splits["valid"], splits["test"] = splits["test"], splits["valid"]
        path.write_bytes(orjson.dumps(manifest))
        assert list(split_leaks(tmp_path / "out", report)) == [
            f"{form}: split valid has {test} documents, their texts assign {valid} to it",
            f"{form}: split test has {valid} documents, their texts assign {test} to it",
        ]
        del splits["test"]
        path.write_bytes(orjson.dumps(manifest))
        wrong = f"{form}: {300 - valid} documents in all splits, the report counts 300"
        assert wrong in split_leaks(tmp_path / "out", report)
        path.write_bytes(written)


def test_a_document_without_tokens_is_on_no_side_of_a_form(tmp_path):
    path = write_jsonl(tmp_path / "some.jsonl", ["", *make_texts(60)])
    report = run(recipe_of([path], ["blocks"], splits={"train": 0.5, "valid": 0.5}), tmp_path / "out").report
    assert (report["tokens"]["empty_documents"], verify(tmp_path / "out")) == (1, [])


def test_a_removed_document_that_is_kept_is_found(tmp_path):
    path = write_jsonl(tmp_path / "twice.jsonl", make_texts(20) * 2)
    report = run(recipe_of([path], ["megatron"], stages=[{"kind": "exact_dedup"}]), tmp_path / "out").report
    assert list(split_leaks(tmp_path / "out", report)) == []
    removed = tmp_path / "out/removed/part-00000.parquet"
    table = pq.read_table(removed)
    pq.write_table(table.set_column(0, "doc", pa.array(range(len(table)), pa.int64())), removed)
    assert list(split_leaks(tmp_path / "out", report)) == ["20 documents both kept and removed, the first is doc 0"]


def test_a_split_without_tokens_is_refused(tmp_path):
    path = write_jsonl(tmp_path / "few.jsonl", make_texts(5))
    recipe = recipe_of([path], ["megatron"], splits={"train": 0.9999, "test": 0.0001})
    with pytest.raises(RecipeError, match=r"split test has a share of 0.0001 and got no token out of 5 documents"):
        run(recipe, tmp_path / "out")


def test_a_source_without_a_side_has_no_pair_there(tmp_path):
    large, small = (
        write_jsonl(tmp_path / "large.jsonl", make_texts(200)),
        write_jsonl(tmp_path / "small.jsonl", ["one"]),
    )
    run(recipe_of([large, small], ["megatron"], splits=SPLITS), tmp_path / "out")
    assert len(list((tmp_path / "out/tokens").glob("small_*.idx"))) == 1
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"splits": {"train": 1.0}}, "a share for train and for another split"),
        ({"splits": {"valid": 0.5, "test": 0.5}}, "a share for train"),
        ({"splits": {"train": 0.9, "dev": 0.1}}, "splits may name train, valid, test, not 'dev'"),
        ({"splits": {"train": 1.0, "test": 0.0}}, "the share of split test must be above 0"),
        ({"splits": {"train": 0.9, "test": 0.2}}, "must add up to 1, not 1.1"),
        ({"blocks": {"length": 8}}, "blocks is set, but formats has no blocks"),
        (
            {"formats": ["blocks"], "splits": {"train": 0.9, "test": 0.1}, "blocks": {"shard_name": "shard_{number}"}},
            "blocks.shard_name must have {split} where output has splits, not 'shard_{number}'",
        ),
        ({"pad_id": 3}, "pad_id is set, but formats has no blocks or chunks or packed or mds or litdata"),
        ({"blocks": {"lengthh": 8}}, r"unknown field `lengthh` - at `\$.output.blocks`; did you mean length"),
        ({"blend": {"by": "size"}}, "blend.by must be one of given, tokens, temperature, not 'size'"),
        ({"blend": {"temperature": 2.0}}, "blend.temperature is 2.0, but blend.by is given"),
        ({"blend": {"by": "temperature", "temperature": 0.0}}, "blend.temperature must be above 0"),
        ({"megatron": {"splits_string": "98,2"}}, "three numbers as in 98,1,1"),
        ({"megatron": {"splits_string": "98,nan,1"}}, "three numbers as in 98,1,1"),
        ({"megatron": {"splits_string": "inf,1,1"}}, "three numbers as in 98,1,1"),
        (
            {"megatron": {"splits_string": "90,5,5"}, "splits": {"train": 0.9, "test": 0.1}},
            "splits_string has no meaning with splits",
        ),
        ({"formats": ["block"]}, "no output format 'block'"),
    ],
)
def test_outputs_without_a_meaning_are_refused(output, message):
    with pytest.raises(RecipeError, match=message):
        convert_recipe({"output": output})


# blends


@pytest.mark.parametrize(
    ("blend", "expected"),
    [
        ({"by": "tokens"}, lambda a, b: 3 * a / (3 * a + b)),
        ({"by": "temperature", "temperature": 2.0}, lambda a, b: 3 * a**0.5 / (3 * a**0.5 + b**0.5)),
        ({}, lambda a, b: 0.75),
    ],
    ids=["tokens", "temperature", "default"],
)
def test_weights(tmp_path, blend, expected):
    paths = [
        write_jsonl(tmp_path / "one.jsonl", make_texts(100)),
        write_jsonl(tmp_path / "two.jsonl", make_texts(30, 1)),
    ]
    inputs = [{"path": str(paths[0]), "blend_weight": 3.0}, {"path": str(paths[1]), "blend_weight": 1.0}]
    # Small files, so that an input has several pairs which share its weight.
    recipe = convert_recipe({"input": inputs, "output": {"blend": blend, "max_file_bytes": 3000}})
    run(recipe, tmp_path / "out")
    words = (tmp_path / "out/tokens/_meta/blend.txt").read_text().split()
    tokens: dict[str, int] = {}
    weights: dict[str, float] = {}
    ratios: dict[str, set[float]] = {}
    for weight, prefix in zip(words[::2], words[1::2], strict=True):
        name, count = Path(prefix).name.split("_")[0], len(IndexedReader(prefix).tokens)
        tokens[name] = tokens.get(name, 0) + count
        weights[name] = weights.get(name, 0.0) + float(weight)
        ratios.setdefault(name, set()).add(round(float(weight) / count * 1e4, 1))
    assert len(words) > 8
    assert weights["one"] / sum(weights.values()) == pytest.approx(expected(tokens["one"], tokens["two"]), rel=1e-4)


def test_meta_of_a_run_without_splits(texts, tmp_path):
    recipe = recipe_of([texts], ["megatron"], megatron={"seq_length": 256, "splits_string": "90,5,5"})
    report = run(recipe, tmp_path / "out").report
    meta = tmp_path / "out/tokens/_meta"
    prefix = str(tmp_path / "out/tokens/news_00000_text_document")
    assert sorted(os.listdir(meta)) == ["README.txt", "blend.txt", "manifest.json", "nemo.yaml"]
    assert (meta / "blend.txt").read_text() == f"{report['tokens']['count']} {prefix}\n"
    assert yaml.safe_load((meta / "nemo.yaml").read_text())["model"]["data"] == {
        "data_impl": "mmap",
        "data_prefix": [report["tokens"]["count"], prefix],
        "index_mapping_dir": str(tmp_path / "out/index_mapping"),
        "splits_string": "90,5,5",
        "seq_length": 256,
        "skip_warmup": True,
    }
    assert f"--data-args-path {meta}/blend.txt --split 90,5,5 --seq-length 256" in (meta / "README.txt").read_text()


def test_meta_of_a_run_with_two_splits_gives_nemo_its_three(texts, tmp_path):
    run(recipe_of([texts], ["megatron"], splits={"train": 0.8, "test": 0.2}), tmp_path / "out")
    meta = tmp_path / "out/tokens/_meta"
    per_split = orjson.loads((meta / "per_split.json").read_bytes())
    assert per_split["valid"] is None
    assert {name: len(per_split[name]) for name in ("train", "test")} == {"train": 2, "test": 2}
    data = yaml.safe_load((meta / "nemo.yaml").read_text())["model"]["data"]
    assert data["splits_string"] is None
    assert data["data_prefix"]["validation"] == data["data_prefix"]["test"] != data["data_prefix"]["train"]
    assert f"--per-split-data-args-path {meta}/per_split.json" in (meta / "README.txt").read_text()


def test_a_split_without_documents_is_a_warning(tmp_path):
    report = run(
        recipe_of([write_jsonl(tmp_path / "few.jsonl", make_texts(10))], ["megatron"]), tmp_path / "out"
    ).report
    assert [warning.partition(":")[0] for warning in report["warnings"]] == ["few_00000_text_document has 10 documents"]
    text = (tmp_path / "out/tokens/_meta/README.txt").read_text()
    assert "few_00000_text_document has 10 documents: with --split 98,1,1 a split gets none" in text


# bad input


def test_a_path_with_a_space_is_refused_before_any_work(texts, tmp_path):
    with pytest.raises(OutputError, match=r"has white space, at which Megatron splits blend\.txt"):
        run(recipe_of([texts], ["megatron"]), tmp_path / "my out")
    assert not (tmp_path / "my out/_work").exists()
    run(recipe_of([texts], ["blocks"]), tmp_path / "my out")


def test_a_vocabulary_too_large_is_refused_before_any_work(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(load_tokenizer("gpt2"), "vocabulary", 65537)
    recipe = convert_recipe(
        {"input": [{"path": str(texts)}], "output": {"formats": ["token_shards"], "token_shards": {"dtype": "uint16"}}}
    )
    with pytest.raises(TokenizerError, match="a vocabulary of 65537 does not fit uint16"):
        run(recipe, tmp_path / "out")
    assert not (tmp_path / "out/_work").exists()


def test_padding_needs_a_token(texts, tmp_path, monkeypatch):
    path = train_tokenizer(tmp_path / "tokenizer.json", make_texts(50), eod=False)
    content = {
        "input": [{"path": str(texts)}],
        "tokenizer": {"name": str(path), "append_eod": False},
        "output": {"formats": ["packed"], "packed": SMALL["packed"]},
    }
    with pytest.raises(TokenizerError, match=r"names none. Set output.pad_id"):
        run(convert_recipe(content), tmp_path / "out")
    content["output"] |= {"pad_id": 0}
    run(convert_recipe(content), tmp_path / "out")
    sample = content | {"output": {"formats": ["chunks"], "sample": {"batches": 1}}}
    with pytest.raises(TokenizerError, match=r"names none. Set output.pad_id"):
        run(convert_recipe(sample), tmp_path / "sample")
    assert not (tmp_path / "sample/_work").exists()
    content["output"] |= {"pad_id": 100_000}
    with pytest.raises(TokenizerError, match=r"output\.pad_id is 100000, expected at most"):
        run(convert_recipe(content), tmp_path / "other")
    monkeypatch.setattr(load_tokenizer("gpt2"), "pad", 50_257)
    with pytest.raises(TokenizerError, match=r"the padding token of tokenizer 'gpt2' is 50257, expected at most 50256"):
        run(recipe_of([texts], ["chunks"]), tmp_path / "beyond")


def test_a_document_longer_than_an_int32_length_is_refused(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenization, "MAX_SEQUENCE_TOKENS", 60)
    with pytest.raises(IntegrityError, match=r"document \d+ of the batch has \d+ tokens, the .idx format allows 60"):
        run(recipe_of([texts], ["blocks"]), tmp_path / "out")


def test_a_weight_of_zero_is_refused():
    with pytest.raises(RecipeError, match="blend_weight must be above 0, not 0"):
        convert_recipe({"input": [{"path": "x.jsonl", "blend_weight": 0}]})


def test_nothing_kept_leaves_forms_without_splits(tmp_path):
    path = write_jsonl(tmp_path / "empty.jsonl", [""])
    report = run(recipe_of([path], ALL), tmp_path / "out").report
    assert report["forms"] == {form: {} for form in ALL[1:]}
    assert verify(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["edu_mix", "cc_news_chunks"])
def test_nothing_kept_leaves_no_sample(tmp_path, name):
    path = write_jsonl(tmp_path / "empty.jsonl", ["", "too short"])
    inputs = {"input": [{"path": str(path)}], "stages": [{"kind": "filter", "rules": [{"measure": "words", "min": 9}]}]}
    recipe = convert_recipe(as_builtins(load_recipe(name)) | inputs | {"budget": {}})
    run(recipe, tmp_path / "out")
    assert not {*SAMPLE_FILES} & {*os.listdir(tmp_path / "out")}
    assert verify(tmp_path / "out") == []
    assert run(recipe, tmp_path / "out").already_complete


# commands


def test_tokenize_reads_parquet_without_stages(tmp_path, capsys):
    made = make_texts(40)
    pq.write_table(pa.table({"body": made}), tmp_path / "table.parquet")
    table, out = str(tmp_path / "table.parquet"), str(tmp_path / "out")
    options = ["--text-column", "body", "--formats", "megatron,token_shards"]
    assert cli.main(["tokenize", table, "-o", out, *options]) == 0
    tokenizer = load_tokenizer("gpt2")
    found = read_pair(tmp_path / "out/tokens/table_00000_text_document")
    assert [tokenizer.decode(ids[:-1]) for ids in found] == made
    assert (tmp_path / "out/token_shards/train_00000.bin").is_file()
    assert "40" in capsys.readouterr().out


def test_tokenize_takes_settings_from_a_recipe(texts, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "stages: [{kind: exact_dedup}]\n"
        "output: {formats: [chunks], chunks: {length: 8, min_tokens: 1}, splits: {train: 0.5, test: 0.5}}\n"
    )
    assert cli.main(["tokenize", str(texts), "-o", str(tmp_path / "out"), "--recipe", str(recipe)]) == 0
    manifest = orjson.loads((tmp_path / "out/chunks/manifest.json").read_bytes())
    assert manifest["settings"]["length"] == 8
    assert sorted(manifest["splits"]) == ["test", "train"]
