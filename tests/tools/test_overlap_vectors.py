# SPDX-License-Identifier: Apache-2.0
"""`curation.check_overlap` with a model: paraphrases in long documents, vectors of runs, and its bad inputs."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curation
from curation.models.embeddings import embed_texts
from curation.models.vectors import cosines, dots, squared_norms
from curation.results.finished.results import open_finished
from curation.running.run import run
from curation.tools import overlap_corpus, overlap_vectors
from tests.cli.test_cli import curate
from tests.models.tiny_files import write_safetensors
from tests.runs import recipe_of, records_of

WORDS = 300
DIMENSIONS = 24
LENGTHS = (9, 12, 16, 20, 30, 44, 60, 90)  # words of items


def write_model(folder: Path, seed: int = 3) -> str:
    """Static embeddings of w0, w1, ..., and of s0, s1, ..., each with almost the vector of the word of its number."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir(exist_ok=True)
    names = ["?", *(f"{kind}{number}" for kind in "ws" for number in range(WORDS))]
    tokenizer = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    chance = np.random.default_rng(seed)
    words = chance.standard_normal((WORDS, DIMENSIONS))
    near = words + 0.15 * chance.standard_normal(words.shape)
    table = np.concatenate([np.zeros((1, DIMENSIONS)), words, near]).astype(np.float32)
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    write_safetensors(folder / "model.safetensors", {"embeddings": table})
    return str(folder)


def words(chance: random.Random, count: int) -> list[str]:
    return [f"w{chance.randrange(WORDS)}" for _ in range(count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, list[str], list[str]]:
    """Training texts of 3 to 900 words, and items. Item k below the last eight is planted as a paraphrase, which
    shares no three words in a row with it, somewhere inside text 3 k: a long one for even k, else a short one."""
    folder, chance = tmp_path_factory.mktemp("close"), random.Random(8)
    model = write_model(folder / "model")
    texts = [words(chance, chance.randrange(3, 120)) for _ in range(80)]
    items = [words(chance, LENGTHS[number % len(LENGTHS)]) for number in range(24)]
    for number, item in enumerate(items[:16]):
        spoken = [f"s{word[1:]}" if place % 3 else word for place, word in enumerate(item)]
        text = words(chance, 900) if number % 2 == 0 else words(chance, 40)
        place = chance.randrange(len(text))
        texts[3 * number] = text[:place] + spoken + text[place:]
    (folder / "train.jsonl").write_bytes(records_of(map(" ".join, texts)))
    (folder / "quiz.jsonl").write_bytes(records_of(map(" ".join, items)))
    return folder, model, [" ".join(text) for text in texts], [" ".join(item) for item in items]


def check(made: tuple[Path, str, list[str], list[str]], **settings: Any) -> curation.Overlap:
    folder, model = made[:2]
    settings = {"ngram": 3, "model": model, "compare": "lowercase", **settings}
    return curation.check_overlap(folder / "train.jsonl", folder / "quiz.jsonl", **settings)


def test_paraphrases_in_long_documents_are_close_and_share_no_ngram(made: tuple[Path, str, list[str], list[str]]):
    found = check(made, cosine=0.9)
    rows = found.items.to_pylist()
    assert [row["close"] for row in rows] == [True] * 16 + [False] * 8
    assert found.close == found.sets[0].close == 16 and found.contaminated == 0
    for number, row in enumerate(rows[:16]):
        assert row["nearest"] == f"train/{3 * number}" and row["text"] == made[3][number]
        mine, theirs = ({word[1:] for word in row[name].split()} for name in ("text", "nearest_text"))
        assert len(mine & theirs) > 0.75 * len(mine) and row["nearest_text"] in made[2][3 * number]
    whole = check(made, cosine=0.9, whole_documents=True).items["close"].to_pylist()
    assert not any(whole[::2])  # a vector of 900 words hides each item


@pytest.mark.slow("overlap by vectors does not depend on slices and workers")
def test_the_result_depends_neither_on_slices_nor_on_workers(
    made: tuple[Path, str, list[str], list[str]], monkeypatch: pytest.MonkeyPatch
):
    expected = check(made).items
    monkeypatch.setattr(overlap_corpus, "MODEL_SLICE_BYTES", 3000)
    monkeypatch.setattr(overlap_vectors, "AT_ONCE", 7)
    assert check(made, workers=3).items.equals(expected)


def test_whole_documents_have_the_cosines_of_a_plain_search(made: tuple[Path, str, list[str], list[str]]):
    _, model, texts, items = made
    left, right = (embed_texts(side, model, 0, "mean").vectors for side in (items, texts))
    dot = left.astype(np.int64) @ right.T.astype(np.int64)
    norms = [squared_norms(side) for side in (left, right)]
    best = (dot / np.sqrt(np.multiply.outer(*norms))).argmax(axis=1)
    units = cosines(dots(left, right[best]), norms[0], norms[1][best])
    found = check(made, whole_documents=True).items
    assert found["cosine"].to_pylist() == (units / 10_000).tolist()
    assert found["nearest"].to_pylist() == [f"train/{place}" for place in best.tolist()]


def test_of_equally_near_documents_the_first_is_named(
    made: tuple[Path, str, list[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(overlap_vectors, "AT_ONCE", 2)
    (tmp_path / "train.jsonl").write_bytes(records_of(["w1", made[3][0], made[3][0], "w2"]))
    (tmp_path / "quiz.jsonl").write_bytes(records_of(made[3][:1]))
    found = curation.check_overlap(tmp_path / "train.jsonl", tmp_path / "quiz.jsonl", model=made[1])
    assert found.items.select(["nearest", "cosine"]).to_pylist() == [{"nearest": "train/1", "cosine": 1.0}]


@pytest.mark.parametrize("size", overlap_vectors.SIZES[:4])
def test_windows_cover_three_quarters_of_any_copy(size: int):
    text = " ".join(words(random.Random(size), 400))
    spans = list(overlap_vectors.windows(text, size, size // overlap_vectors.OVERLAPS))
    assert spans[0][0] == 0 and spans[-1][1] == len(text)
    assert all(first == 0 or text[first - 1] == " " for first, _ in spans)
    slack = 2 * max(map(len, text.split()))
    for first in range(len(text) - size):
        covered = max(min(last, first + size) - max(start, first) for start, last in spans)
        assert covered >= 0.75 * size - slack


@pytest.mark.parametrize("text", ["", "w", "x" * 500, "\n" * 200])
def test_windows_of_odd_texts_end(text: str):
    spans = list(overlap_vectors.windows(text, 64, 32))
    assert spans[0][0] == 0 and spans[-1][1] == len(text)


@pytest.fixture(scope="module")
def finished(made: tuple[Path, str, list[str], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "out"
    stages = [{"kind": "embed", "model": made[1], "column": "meaning"}]
    run(recipe_of(made[0] / "train.jsonl", stages=stages, output={"formats": []}), folder, engine="cpu")
    return folder


@pytest.mark.slow("overlap uses the vectors of a run")
def test_vectors_of_a_run_are_used_and_not_computed_again(
    made: tuple[Path, str, list[str], list[str]], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = str(shutil.copytree(made[1], tmp_path / "copy"))  # the same files in another place
    calls: list[str] = []

    def counted(texts: list[str], *rest: Any) -> Any:
        calls.extend(texts)
        return embed_texts(texts, *rest)

    monkeypatch.setattr(overlap_vectors, "embed_texts", counted)
    settings: dict[str, Any] = {"ngram": 3, "model": model, "compare": "lowercase", "whole_documents": True}
    found = curation.check_overlap(finished, made[0] / "quiz.jsonl", **settings)
    assert calls == made[3]
    assert found.items.equals(check(made, whole_documents=True).items)
    both = [finished, made[0] / "train.jsonl"]
    assert curation.check_overlap(both, made[0] / "quiz.jsonl", **settings).items["cosine"] == found.items["cosine"]
    with_windows = curation.check_overlap(finished, made[0] / "quiz.jsonl", ngram=3, model=model, cosine=0.9)
    assert with_windows.items["close"].to_pylist() == check(made, cosine=0.9).items["close"].to_pylist()


def test_vectors_of_other_models_texts_and_settings_are_not_used(
    made: tuple[Path, str, list[str], list[str]], finished: Path, tmp_path: Path
):
    assert overlap_vectors.stored_column(open_finished(finished), made[1]) == "meaning"
    other = write_model(tmp_path / "other", 4)
    assert overlap_vectors.stored_column(open_finished(finished), other) == ""
    embed = {"kind": "embed", "model": made[1]}
    cases: dict[str, list[dict[str, Any]]] = {
        "edited": [embed, {"kind": "rewrite", "lowercase": False, "whitespace": "collapse"}],
        "part": [embed | {"max_characters": 50}],
        "overwritten": [embed, embed | {"model": other}],
        "none": [],
    }
    (tmp_path / "in.jsonl").write_bytes(records_of(["w1  w2", "w3"]))
    for name, stages in cases.items():
        run(recipe_of(tmp_path / "in.jsonl", stages=stages, output={"formats": []}), tmp_path / name, engine="cpu")
        assert overlap_vectors.stored_column(open_finished(tmp_path / name), made[1]) == "", name
    moved = [{"kind": "rewrite", "whitespace": "collapse"}, embed | {"column": "a"}, {"kind": "exact_dedup"}]
    run(recipe_of(tmp_path / "in.jsonl", stages=moved, output={"formats": []}), tmp_path / "used", engine="cpu")
    assert overlap_vectors.stored_column(open_finished(tmp_path / "used"), made[1]) == "a"


def test_items_without_words_and_without_a_vector_are_counted(
    made: tuple[Path, str, list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "quiz.jsonl").write_bytes(records_of(["", made[3][0], " \n", "unknown words"]))
    train = made[0] / "train.jsonl"
    found = curation.check_overlap(train, tmp_path / "quiz.jsonl", model=made[1], cosine=0.9)
    (counts,) = found.sets
    assert (counts.items, counts.empty, counts.close) == (2, 2, 1)
    assert found.items["cosine"].is_null().to_pylist() == [True, False, True, True]
    assert found.items["close"].to_pylist() == [False, True, False, False]
    out = curate(capsys, "check-overlap", "--train", train, "--test", tmp_path / "quiz.jsonl", "--engine", "cpu")[1]
    assert "quiz: 2 items without words, not compared" in out


def test_the_command_shows_close_items_and_exits_with_1(
    made: tuple[Path, str, list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, model = made[:2]
    command = ("check-overlap", "--train", folder / "train.jsonl", "--test", folder / "quiz.jsonl", "--engine", "cpu")
    command = (*command, "--compare", "lowercase")
    code, out, _ = curate(capsys, *command, "--model", model, "--cosine", "0.9", "-o", tmp_path / "items.json")
    assert code == 1 and "cosine 0.9" in out and ": cosine 0.9" in out and "and 6 more" in out
    written = json.loads((tmp_path / "items.json").read_bytes())
    assert (written["model"], written["cosine"], written["sets"][0]["close"]) == (model, 0.9, 16)
    assert written["items"][0]["nearest"] == "train/0"
    assert curate(capsys, *command, "--model", model, "--cosine", "1")[0] == 0
    for suffix in ("arrow", "parquet"):
        assert curate(capsys, *command, "--model", model, "-o", tmp_path / f"a.{suffix}")[0] in (0, 1)
    assert "nearest_text" in pd.read_parquet(tmp_path / "a.parquet").columns


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "cosine": ({"cosine": 95}, "cosine must be above 0 and at most 1, not 95. Write 0.95 for 95 %"),
    "string": ({"cosine": "0.8"}, "check_overlap: Expected `float`, got `str` - at `$.cosine`"),
    "words": ({"ngram": 2.5}, "check_overlap: Expected `int`, got `float` - at `$.ngram`"),
    "number": ({"model": 3}, "check_overlap: Expected `str`, got `int` - at `$.model`"),
    "nan": ({"cosine": float("nan")}, "cosine must be above 0 and at most 1, not nan"),
    "no model": ({"model": "", "whole_documents": True}, "whole_documents is for vectors, and there is no model"),
    "no folder": ({"model": "nowhere"}, "there is no folder nowhere"),
    "other language": ({"test": "other.jsonl"}, "knows no word of any item. Give a model of their language"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_use_is_one_message(
    made: tuple[Path, str, list[str], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
):
    monkeypatch.chdir(tmp_path)
    settings, message = BAD[case]
    Path("other.jsonl").write_bytes(records_of(["unknown words"]))
    arguments = {"test": made[0] / "quiz.jsonl", "model": made[1]} | settings
    with pytest.raises(curation.CurationError) as caught:
        curation.check_overlap(made[0] / "train.jsonl", **arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_wrong_test_column_is_answered_with_its_own_option(
    made: tuple[Path, str, list[str], list[str]], capsys: pytest.CaptureFixture[str]
):
    command = ("check-overlap", "--train", made[0] / "train.jsonl", "--test", made[0] / "quiz.jsonl")
    code, _, err = curate(capsys, *command, "--test-column", "question")
    assert code == 2 and "--test-column NAME" in err and "--text-column" not in err and "'question'" in err
    code, _, err = curate(capsys, *command, "--text-column", "body")
    assert code == 2 and "--text-column NAME" in err and "--test-column" not in err
