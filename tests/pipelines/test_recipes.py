# SPDX-License-Identifier: Apache-2.0
"""The shipped recipes end to end, against the plain-Python oracle of their literal rules: kept ids in order, texts,
reasons, tokens, and the numbers of the report."""

import csv
import importlib
import json
import random
import statistics
from collections import Counter
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tiktoken
import yaml

from curation.base.errors import InputError
from curation.base.system.terminal import short_number
from curation.models.fasttext import LANGUAGE_MODEL
from curation.models.ngrams import TINY
from curation.reading.inputs import Input
from curation.recipes.recipe import load_recipe, shipped_recipes
from curation.results.finished.verify import verify
from curation.results.report.text import print_funnel
from curation.running.run import run
from curation.tokens import vocabularies
from curation.tokens.indexed import IndexedReader
from tests.needs import needs
from tests.oracle import pipelines
from tests.oracle.pipelines import Outcome
from tests.pipelines import made
from tests.pipelines.made import as_jsonl, as_wet, assert_outcome, fasttext_language, made_texts, run_recipe
from tests.runs import kept_rows, table_rows

EOD = 50256
NAMES = ("cc_news_chunks", "common_crawl", "edu_mix", "nemo", "news_wiki_web")
FILE_TYPE = "pt" if find_spec("torch") else "npy"


class Run:
    """A finished run and what the oracle says of the same texts."""

    def __init__(self, name: str, path: Path, folder: Path, ids: list[str], texts: list[str]) -> None:
        self.folder, self.ids, self.texts = folder, ids, texts
        language = [fasttext_language()] if name in ("common_crawl", "nemo") else []
        self.expected: Outcome = getattr(pipelines, name)(texts, *language)
        self.report: dict[str, Any] = run_recipe(name, path, folder)


def records_of(path: Path) -> tuple[list[str], list[str]]:
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [record["id"] for record in records], [record["text"] for record in records]


@pytest.fixture(
    scope="module",
    params=[
        *(f"{name}-made" for name in NAMES),
        *(
            pytest.param(
                f"{name}-real",
                marks=pytest.mark.slow("the shipped recipes do to real documents what plain Python says"),
            )
            for name in NAMES
        ),
    ],
    ids=lambda name: f"{name}-{FILE_TYPE}",  # with and without PyTorch, tests have names of their own
)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    name, corpus = request.param.split("-")
    folder = tmp_path_factory.mktemp(request.param)
    texts = made_texts()
    ids = [f"docs/{number}" for number in range(len(texts))]
    if corpus == "made" and name == "common_crawl":
        return Run(name, as_wet(texts, folder / "m.wet.gz"), folder / "out", [f"made-{k}" for k in range(400)], texts)
    if corpus == "made":
        return Run(name, as_jsonl(texts, folder / "made.jsonl"), folder / "out", ids, texts)
    path: Path = request.getfixturevalue("real_file")
    ids, texts = records_of(path)
    if name == "common_crawl":
        path, ids = as_wet(texts, folder / "real.wet.gz"), [f"made-{number}" for number in range(len(texts))]
    return Run(name, path, folder / "out", ids, texts)


def name_of(done: Run) -> str:
    return done.report["recipe"]["name"]


def test_every_pipeline_is_shipped_under_its_name():
    assert {*NAMES} < {*shipped_recipes()}
    for name, text in shipped_recipes().items():
        assert text.startswith("# ") and load_recipe(name).name == name


def test_the_made_corpus_gives_every_reason(done: Run):
    if len(done.texts) != 400:
        pytest.skip("of the made texts alone")
    stages = load_recipe(name_of(done)).stage_names
    assert {stage for _, stage, _ in done.expected.removed} == {
        stage for stage in stages if not stage.startswith(("rewrite", "redact"))
    }
    assert len(done.expected.kept) > 20
    expected = {"language", "language_probability", "length", "word_len", "symbol_ratio", "too_truncated"}
    expected |= {"too_bulleted", "repeat_2gram", "repeat_3gram", "near_duplicate"}
    assert {reason for *_, reason in done.expected.removed} == expected or name_of(done) != "common_crawl"


def test_kept_and_removed_are_what_plain_python_says(done: Run):
    assert_outcome(done.folder, done.expected, done.ids)
    assert verify(done.folder) == []


def test_the_report_has_the_numbers_that_reports_quote(done: Run):
    found, report, removed = done.report["numbers"], done.report, Counter(r for *_, r in done.expected.removed)
    duplicates = removed["exact_duplicate"] + removed["near_duplicate"] + removed["seen_ngrams"]
    assert (found["original"], found["kept"]) == (len(done.texts), len(done.expected.kept))
    assert found["duplicates_removed"] == duplicates
    assert found.get("short_removed") == (None if name_of(done) in ("common_crawl", "nemo") else removed["short"])
    assert found["raw_bytes"] == sum(len(text.encode()) for text in done.texts)
    assert found["final_bytes"] == sum(len(text.encode()) for _, text in done.expected.kept)
    assert found["retention"] == round(found["kept"] / found["original"], 6)
    assert found["tokens_per_byte"] == report["tokens"]["per_byte"] > 0.15
    for stage in report["stages"]:
        assert stage["retention"] == round(stage["documents_out"] / stage["documents_in"], 6)
    page = (done.folder / "report.html").read_text("utf-8")
    assert f"Duplicates Removed: {duplicates:,}" in page and "per_byte=" in report["funnel"]


def test_tokens_are_those_of_the_kept_documents(done: Run):
    check = {
        "news_wiki_web": check_blocks,
        "edu_mix": check_padded_chunks,
        "cc_news_chunks": check_chunks,
        "common_crawl": check_shards,
        "nemo": check_pair,
    }
    check[name_of(done)](done)


# The tokens, by tiktoken


@cache
def gpt2() -> tiktoken.Encoding:
    """tiktoken's own, from the data files that come with the package; no network."""
    return vocabularies.gpt2_encoding("gpt2")


def encoded(done: Run, eod: bool) -> list[list[int]]:
    return [gpt2().encode_ordinary(text) + [EOD] * (eod and text != "") for _, text in done.expected.kept]


def loaded(path: Path) -> Any:
    if path.suffix == ".pt":
        import torch

        return torch.load(path, weights_only=True)
    return np.load(path)


def check_blocks(done: Run) -> None:
    expected = pipelines.blocks_of(encoded(done, True), 1024)
    assert done.report["numbers"]["blocks"] == len(expected) > 3
    (path,) = sorted((done.folder / "blocks").glob(f"*.{FILE_TYPE}"))
    assert loaded(path).tolist() == expected
    tail = sum(map(len, encoded(done, True))) - 1024 * len(expected)
    assert done.report["numbers"]["tail_tokens"] == tail > 0
    assert f"{tail:,} tail tokens dropped" in (done.folder / "report.html").read_text("utf-8")
    kept = [(done.ids[number], text) for number, text in done.expected.kept]
    for path, rows in (("raw/raw_dataset", zip(done.ids, done.texts, strict=True)), ("cleaned/clean_dataset", kept)):
        found = [json.loads(line) for line in (done.folder / f"{path}.jsonl").read_bytes().split(b"\n")[:-1]]
        assert [(row["id"], row["text"]) for row in found] == list(rows)


def chunks_in(done: Run) -> list[list[int]]:
    folder = done.folder / "chunks"
    name = "tokenized_data" if name_of(done) == "cc_news_chunks" else "train_00000"
    if FILE_TYPE == "pt":
        return [chunk.tolist() for chunk in loaded(folder / f"{name}.pt")]
    ids, lengths = (np.load(folder / f"{name}.{what}.npy") for what in ("ids", "lengths"))
    return [chunk.tolist() for chunk in np.split(ids, np.cumsum(lengths)[:-1])]


def check_lengths(done: Run, expected: list[list[int]]) -> None:
    lengths, found = sorted(map(len, expected)), done.report["numbers"]
    assert found["chunks"] == len(expected) and found["mean_chunk_tokens"] == round(statistics.mean(lengths), 3)
    ranks = {rank: lengths[max(-(-int(rank) * len(lengths) // 100), 1) - 1] for rank in found["chunk_percentiles"]}
    assert found["chunk_percentiles"] == ranks and found["median_chunk_tokens"] == ranks["50"]


def sample_of(done: Run) -> list[dict[str, np.ndarray]]:
    if FILE_TYPE == "pt":
        batches = loaded(done.folder / "sample_dataset.pt")
        return [{name: rows.numpy() for name, rows in batch.items()} for batch in batches]
    with np.load(done.folder / "sample_dataset.npz") as stored:
        numbers = sorted({int(name.rpartition("_")[2]) for name in stored})
        names = ("input_ids", "attention_mask", "labels")
        return [{name: stored[f"{name}_{k}"] for name in names} for k in numbers]


def check_sample(done: Run, expected: list[list[int]], batches: int, size: int, width: int) -> None:
    """Batches of different chunks, padded with the eod id on the right; `width` 0: to the longest."""
    found = sample_of(done)
    assert len(found) == min(batches, -(-len(expected) // size))
    known = {tuple(chunk) for chunk in expected}
    for batch in found:
        lengths = batch["attention_mask"].sum(axis=1)
        assert batch["input_ids"].shape == (len(lengths), width or lengths.max()) and len(lengths) <= size
        for ids, mask, labels, length in zip(*batch.values(), lengths.tolist(), strict=True):
            assert tuple(ids[:length].tolist()) in known and (ids[length:] == EOD).all()
            assert mask.tolist() == [1] * length + [0] * (len(ids) - length)
            assert labels.tolist() == [*ids[:length].tolist(), *[-100] * (len(ids) - length)]


def check_padded_chunks(done: Run) -> None:
    expected = pipelines.chunks_of(encoded(done, False), 512, 1)
    assert chunks_in(done) == expected
    check_lengths(done, expected)
    check_sample(done, expected, 1, 8, 0)


def check_chunks(done: Run) -> None:
    expected = pipelines.chunks_of(encoded(done, False), 512, 10)
    assert chunks_in(done) == expected
    check_lengths(done, expected)
    check_sample(done, expected, 8, 16, 512)
    cut = pipelines.chunks_of(encoded(done, False), 512, 1)
    dropped = [chunk for chunk in cut if len(chunk) < 10]
    assert done.report["numbers"]["dropped_chunks"] == len(dropped)
    assert done.report["numbers"]["tail_tokens"] == sum(map(len, dropped)) > 0
    for name, texts in (("raw", done.texts), ("cleaned", [text for _, text in done.expected.kept])):
        with open(done.folder / name / f"{name}_data.csv", newline="", encoding="utf-8") as file:
            csv.field_size_limit(1 << 30)
            assert [*csv.reader(file)] == [["text"], *([text] for text in texts)]


def check_shards(done: Run) -> None:
    expected = [token for tokens in encoded(done, True) for token in tokens]
    found = np.memmap(done.folder / "token_shards" / "train_00000.bin", dtype=np.uint16, mode="r")
    assert found.tolist() == expected
    assert done.report["forms"]["token_shards"]["train"]["shards"] == {"train_00000.bin": len(expected)}
    urls = [f"http://made.example/{number}" for number, _ in done.expected.kept]
    assert table_rows(done.folder / "documents", "url") == [(url,) for url in urls]
    kept, documents = done.report["stages"], len(done.texts)
    assert done.report["funnel"].startswith(f"[parse] docs={short_number(documents)}  [langid] kept=")
    for stage in kept:
        share = stage["documents_out"] / documents
        assert stage["share"] == round(share, 6)
        assert f"[{stage['name']}] kept={short_number(stage['documents_out'])} ({share:.0%})" in done.report["funnel"]
    assert done.report["funnel"].endswith(
        f"[tokens] total={short_number(len(expected))} shards=1 per_byte={done.report['tokens']['per_byte']:.3f}"
    )


def check_pair(done: Run) -> None:
    reader = IndexedReader(done.folder / "tokens" / "docs_00000_text_document")
    assert [ids.tolist() for ids in reader] == encoded(done, True)
    meta = done.folder / "tokens" / "_meta"
    weight, prefix = (meta / "blend.txt").read_text().split()
    assert float(weight) > 0 and prefix == str(done.folder / "tokens" / "docs_00000_text_document")
    data = yaml.safe_load((meta / "nemo.yaml").read_text())["model"]["data"]
    assert data == {
        "data_impl": "mmap",
        "data_prefix": [float(weight), prefix],
        "index_mapping_dir": str(done.folder / "index_mapping"),
        "splits_string": "98,1,1",
        "seq_length": 4096,
        "skip_warmup": True,
    }
    lines = (meta / "README.txt").read_text()
    assert f"--data-args-path {meta / 'blend.txt'} --split 98,1,1 --seq-length 4096 --data-cache-path" in lines


def test_nemo_finds_the_language_of_the_whole_text(tmp_path: Path):
    """Texts whose first thousand characters have another language, or another probability, than the whole."""
    chance, german = random.Random(1), made.GERMAN
    begins = (
        made.random_prose(chance, 8),
        made.random_prose(chance, 20, german),
        made.random_prose(chance, 20),
        made.random_prose(chance, 8, german),
    )
    ends = ("", made.random_prose(chance, 180), made.random_prose(chance, 180, german), "")
    texts = [f"{begin} {end}" for begin, end in zip(begins, ends, strict=True)]
    assert [fasttext_language()(text[:1000].replace("\n", " "))[0] for text in texts] == ["en", "de", "en", "de"]
    path, settings = as_jsonl(texts, tmp_path / "docs.jsonl"), ["stages.filter_1.distinct_words.min=0.01"]
    run(load_recipe("nemo", input=str(path), settings=settings), tmp_path / "out", engine="cpu")
    assert [id_ for _, id_, *_ in kept_rows(tmp_path / "out")] == ["docs/0", "docs/1"]


def test_nemo_weighs_its_inputs(tmp_path: Path):
    texts = made_texts()
    paths = as_jsonl(texts[:250], tmp_path / "web.jsonl"), as_jsonl(texts[250:], tmp_path / "books.jsonl")
    inputs = [Input(path=str(path), name=path.stem, blend_weight=w) for path, w in zip(paths, (0.7, 0.3), strict=True)]
    report = run(msgspec.structs.replace(load_recipe("nemo"), input=inputs), tmp_path / "out", engine="cpu").report
    assert verify(tmp_path / "out") == []
    meta = tmp_path / "out" / "tokens" / "_meta"
    blend = (meta / "blend.txt").read_text().split()
    assert blend[1::2] == [str(meta.parent / f"{name}_00000_text_document") for name in ("web", "books")]
    tokens = [len(list(chain.from_iterable(IndexedReader(Path(prefix))))) for prefix in blend[1::2]]
    assert min(tokens) > 0 and blend[::2] == ["0.7", "0.3"]
    data = yaml.safe_load((meta / "nemo.yaml").read_text())["model"]["data"]
    assert data["data_prefix"] == [text if number % 2 else float(text) for number, text in enumerate(blend)]
    assert [row["share_drawn"] for row in report["sources"]] == [0.7, 0.3]


@pytest.mark.slow("stages of shipped recipes that need files run where the files are given")
def test_stages_that_need_files_run_where_the_files_are_given(tmp_path: Path):
    texts = made_texts()
    path = as_jsonl(texts, tmp_path / "docs.jsonl")
    model = str(LANGUAGE_MODEL)
    (tmp_path / "tiny.arpa").write_bytes(TINY)
    (tmp_path / "quiz.txt").write_text(next(text for text in texts if len(text.split()) > 150))
    given = {"model": model, "label": "en"}
    for name, stage in (("common_crawl_plus", "quality"), ("nemo", "classify")):
        settings = [f"stages.{stage}.{key}={value}" for key, value in given.items()]
        settings.append(f"stages.decontaminate.evaluation_files=[{tmp_path / 'quiz.txt'}]")
        if name == "common_crawl_plus":  # German stands for what is toxic
            settings += [f"stages.toxicity.model={model}", "stages.toxicity.label=de", "stages.toxic.toxic.max=0.0004"]
        if name == "nemo":
            settings += [f"stages.perplexity.model={tmp_path / 'tiny.arpa'}", "stages.fluent.perplexity.max=40"]
        recipe = load_recipe(name, input=str(path), settings=settings)
        report = run(recipe, tmp_path / name, engine="cpu").report
        stages = {entry["kind"]: entry for entry in report["stages"]}
        left_out = ["educational: set stages.educational.model", "taught: set stages.educational.model"]
        assert report["recipe"]["left_out"] == (left_out if name == "nemo" else [])
        assert stages["decontaminate"]["reasons"]["contaminated"] > 0
        assert verify(tmp_path / name) == []
        if name == "nemo":
            assert {"classify", "perplexity", "redact"} <= stages.keys() and (tmp_path / name / "packed").is_dir()
            (fluent,) = [entry for entry in report["recipe"]["stages"] if entry.get("name") == "fluent"]
            assert [(rule["column"], rule["max"]) for rule in fluent["rules"]] == [("perplexity", 40)]
        else:
            (toxic,) = [entry for entry in report["stages"] if entry["name"] == "toxic"]
            assert 0 < toxic["reasons"]["toxic"] < toxic["documents_in"]
            select = stages["select"]
            assert sum(select["reasons"].values()) == 3 * select["documents_in"] // 10 > 0


def test_a_run_names_the_stages_that_were_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = as_jsonl(made_texts(), tmp_path / "docs.jsonl")
    report = run(load_recipe("common_crawl_plus", input=str(path)), tmp_path / "out", engine="cpu").report
    print_funnel(report)
    shown = capsys.readouterr().out
    for line in (
        "left out quality: set stages.quality.model",
        "left out toxicity: set stages.toxicity.model",
        "left out toxic: set stages.toxicity.model",
        "left out decontaminate: set stages.decontaminate.evaluation_files",
        "left out drop_lowest: set stages.quality.model",
    ):
        assert line in shown.splitlines()
    assert [entry["name"] for entry in report["stages"]] == ["langid", "gopher", "dedup", "redact"]


def test_less_text_than_the_minimum_of_cc_news_chunks_is_an_error(tmp_path: Path):
    path = as_jsonl(made_texts(), tmp_path / "docs.jsonl")
    told = r"the input gave [\d,]+ bytes of text, min_bytes asks for 1,000,000,000\. Add inputs, .*budget\.min_bytes=0"
    with pytest.raises(InputError, match=told):
        run(load_recipe("cc_news_chunks", input=str(path)), tmp_path / "out", engine="cpu")


def test_many_documents_below_the_probability_are_a_warning(done: Run):
    found = [line for line in done.report["warnings"] if "have a probability below" in line]
    unsure = Counter(reason for *_, reason in done.expected.removed)["language_probability"]
    stage = next((entry for entry in done.report["stages"] if entry["kind"] == "language"), None)
    wanted = unsure + stage["documents_out"] if stage else 1
    assert len(found) == (unsure > 0.05 * wanted)
    for line in found:
        assert f"{unsure:,} of {wanted:,} documents ({unsure / wanted:.0%}) that the model labels en" in line
        assert "lower min_probability" in line
    if name_of(done) == "nemo" and len(done.texts) != 400:
        assert found  # manuals


@pytest.mark.slow("pairs have the names of published configurations")
def test_pairs_have_the_names_of_published_configurations(tmp_path: Path):
    paths = [as_jsonl(made_texts(200, seed), tmp_path / f"{name}.jsonl") for seed, name in enumerate("ab")]
    settings = ["output.megatron={names: document}", "output.splits={train: 0.8, valid: 0.2}"]
    for count, names in ((1, {"train_document", "valid_document"}), (2, {"a_train_document", "b_valid_document"})):
        out = tmp_path / str(count)
        inputs = [str(path) for path in paths[:count]]
        recipe = load_recipe("nemo", input=inputs, settings=[*settings, "output.max_file_bytes=20000"])
        run(recipe, out, engine="cpu")
        prefixes = {path.stem for path in (out / "tokens").glob("*.idx")}
        assert names <= prefixes and any("_00001_document" in prefix for prefix in prefixes)
        assert verify(out) == []
        data = yaml.safe_load((out / "tokens" / "_meta" / "nemo.yaml").read_text())["model"]["data"]
        assert {Path(prefix).name for split in data["data_prefix"].values() for prefix in split[1::2]} == prefixes
    training = needs("torch") and importlib.import_module("curation.training")
    blend = training.MegatronDataset.from_blend(out / "tokens/_meta/per_split.json", 64, split="valid", samples=9)
    assert len(blend) == 9
