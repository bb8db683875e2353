# SPDX-License-Identifier: Apache-2.0
"""`curation.check_overlap`: evaluation items found in training texts, against a plain search, and its bad inputs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.running.run import run
from curation.tools import overlap, overlap_corpus
from tests.cli.test_cli import curate
from tests.runs import recipe_of, records_of

N = 5


def sentence(chance: random.Random, words: int, letters: str) -> str:
    return " ".join("".join(chance.choices(letters, k=6)) for _ in range(words))


def grams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[k : k + N]) for k in range(max(len(words) - N + 1, 1))} if words else set()


def expected(items: list[str], texts: list[str], named: int) -> list[tuple[float, list[int]]]:
    """(share of the n-grams of each item that a text has, the first texts that have one), by sets."""
    sets = [grams(text) for text in texts]
    corpus = set().union(*sets)
    result = []
    for item in map(grams, items):
        first = {number for gram in item for number in [k for k, other in enumerate(sets) if gram in other][:named]}
        counts = {
            k: sum(k in [n for n, other in enumerate(sets) if gram in other][:named] for gram in item) for k in first
        }
        having = sorted(first, key=lambda k: (-counts[k], k))
        result.append((len(item & corpus) / len(item), having[:named]))
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """Training texts and items. The third part of the items is planted whole, with another case and other white space;
    of the next, some words; the others share no word with the texts."""
    folder, chance = tmp_path_factory.mktemp("overlap"), random.Random(5)
    texts = [sentence(chance, chance.randrange(1, 60), "abcdefgh") for _ in range(300)]
    items = [sentence(chance, chance.randrange(3, 40), "stuvwxyz") for _ in range(60)]
    for number, item in enumerate(items[:40]):
        words = item.split()[: None if number < 20 else 12]
        for place in chance.sample(range(300), 1 + number % 4):
            texts[place] += f"\t{'  '.join(words).upper()}\n{sentence(chance, 3, 'abc')}"
    (folder / "train.jsonl").write_bytes(records_of(texts))
    (folder / "quiz.jsonl").write_bytes(records_of(items))
    (folder / "other.jsonl").write_bytes(records_of(sentence(chance, 30, "0123") for _ in range(20)))
    return folder, texts, items


def outcome(found: curation.Overlap) -> list[tuple[float, list[int]]]:
    columns = found.items.select(["share", "documents"]).to_pydict()
    numbers = [[int(id_.rpartition("/")[2]) for id_ in ids] for ids in columns["documents"]]
    return list(zip(columns["share"], numbers, strict=True))


@pytest.mark.parametrize("slice_bytes", [700, 1 << 20])
def test_shares_and_documents_equal_a_plain_search_for_any_slices(
    made: tuple[Path, list[str], list[str]], monkeypatch: pytest.MonkeyPatch, slice_bytes: int
):
    folder, texts, items = made
    for module in (overlap, overlap_corpus):
        monkeypatch.setattr(module, "SLICE_BYTES", slice_bytes)
    found = curation.check_overlap(folder / "train.jsonl", folder / "quiz.jsonl", ngram=N, documents=2, workers=2)
    assert outcome(found) == expected(items, texts, 2)
    assert found.items["item"].to_pylist() == [*range(1, 61)]
    (counts,) = found.sets
    assert counts.contaminated == sum(share > 0.8 for share, _ in expected(items, texts, 2)) == found.contaminated
    assert counts.short == sum(len(item.split()) < N for item in items) and found.documents == 300


def test_planted_items_are_found_and_disjoint_sets_share_nothing(made: tuple[Path, list[str], list[str]]):
    folder, _, items = made
    tests = [folder / "quiz.jsonl", {"path": str(folder / "other.jsonl"), "name": "disjoint"}]
    found = curation.check_overlap([str(folder / "train.jsonl")], tests, ngram=N)
    contaminated = found.items["contaminated"].to_pylist()
    planted = [len(item.split()) >= N for item in items[:20]]
    assert contaminated[:20] == planted and sum(planted) > 15
    assert not any(contaminated[40:])
    assert [(entry.name, entry.found, entry.touched) for entry in found.sets[1:]] == [("disjoint", 0, 0)]


def test_a_threshold_is_the_largest_clean_share(tmp_path: Path):
    words = [f"w{number}" for number in range(N + 9)]  # ten n-grams
    (tmp_path / "quiz.jsonl").write_bytes(records_of([" ".join(words)]))
    for kept, flagged in ((8, False), (9, True)):
        (tmp_path / "train.jsonl").write_bytes(records_of([" ".join(words[: N - 1 + kept])]))
        found = curation.check_overlap(tmp_path / "train.jsonl", tmp_path / "quiz.jsonl", ngram=N, compare="lowercase")
        assert found.items.select(["found", "contaminated"]).to_pylist() == [{"found": kept, "contaminated": flagged}]


def test_an_item_of_numbers_is_not_contaminated_by_another_table(tmp_path: Path):
    numbers = " ".join(map(str, range(20)))
    (tmp_path / "quiz.jsonl").write_bytes(records_of([numbers, f"{numbers} as words, many of which are left"]))
    (tmp_path / "train.jsonl").write_bytes(records_of([f"{numbers} 21", f"{numbers} as words, many of which are left"]))
    found = curation.check_overlap(tmp_path / "train.jsonl", tmp_path / "quiz.jsonl")
    assert found.items.select(["share", "contaminated", "documents"]).to_pylist() == [
        {"share": 1.0, "contaminated": False, "documents": ["train/0", "train/1"]},
        {"share": 1.0, "contaminated": True, "documents": ["train/1", "train/0"]},
    ]


def test_a_run_and_its_pair_give_the_shares_of_the_files(made: tuple[Path, list[str], list[str]], tmp_path: Path):
    folder, texts, items = made
    run(recipe_of(folder / "train.jsonl", stages=[], tokenizer={"name": "gpt2"}), tmp_path / "out", engine="cpu")
    pair = tmp_path / "out" / "tokens" / "train_00000_text_document.bin"
    for train in (tmp_path / "out", pair, str(pair).removesuffix(".bin")):
        found = curation.check_overlap(train, folder / "quiz.jsonl", ngram=N)
        assert outcome(found) == expected(items, texts, 10)
    assert found.items["documents"][0].as_py()[0].startswith("train_00000_text_document/")
    (pair.parent / "_meta" / "manifest.json").unlink()
    with pytest.raises(curation.InputError, match=r"cannot be decoded: no manifest in .* Name its tokenizer"):
        curation.check_overlap(pair, folder / "quiz.jsonl")
    assert outcome(curation.check_overlap(pair, folder / "quiz.jsonl", ngram=N, tokenizer="gpt2")) == outcome(found)


def test_words_around_an_end_of_document_stay_apart():
    tokenizer = curation.load_tokenizer("gpt2")
    one, two = (tokenizer.encode(pa.array([text], "large_string"))[0] for text in ("a b", "c d"))
    ids = np.concatenate([one, [tokenizer.eod], two, [tokenizer.eod]])
    assert overlap_corpus.decode_words(tokenizer, ids) == "a b\nc d\n"


def test_the_command_prints_tables_and_exits_with_1_for_a_contaminated_item(
    made: tuple[Path, list[str], list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, _, items = made
    command = ("check-overlap", "--train", folder / "train.jsonl", "--ngram", N, "--engine", "cpu", "--test")
    code, out, err = curate(capsys, *command, folder / "quiz.jsonl", "-o", tmp_path / "items.json")
    assert (
        code == 1
        and "reading training texts" in err
        and "quiz" in out
        and "item 1: 100.0% found, in train/" in out
        and "fewer than 5" in out
    )
    written = json.loads((tmp_path / "items.json").read_bytes())
    assert len(written["items"]) == len(items) and written["sets"][0]["name"] == "quiz"
    assert curate(capsys, *command, folder / "other.jsonl", "-o", tmp_path / "a.arrow", "--quiet") == (0, "", "")
    assert curate(capsys, *command, folder / "other.jsonl", "-o", tmp_path / "a.parquet", "--quiet")[0] == 0
    with pa.ipc.open_file(tmp_path / "a.arrow") as reader:
        assert reader.read_all().equals(pq.read_table(tmp_path / "a.parquet"))
    assert "exists already" in curate(capsys, *command, folder / "quiz.jsonl", "-o", tmp_path / "a.arrow")[2]


@pytest.mark.parametrize(
    ("train", "test", "settings", "message"),
    [
        ({"text": "a b"}, {"Text": "a b"}, {}, "text"),
        ({"text": "a b"}, {"text": " "}, {}, "quiz.jsonl has no words: nothing of it was compared"),
        ({"text": "a b"}, [{"text": "a b"}, {"other": 1}], {}, "record 2: no field 'text'"),
        ([], {"text": "a b"}, {}, "the training texts have no document. Check the paths"),
        ({"text": "a"}, {"text": "a"}, {"threshold": 1.0}, "threshold must be at least 0 and below 1, not 1"),
        (
            {"text": "a"},
            {"text": "a"},
            {"threshold": float("nan")},
            "threshold must be at least 0 and below 1, not nan",
        ),
        ({"text": "a"}, {"text": "a"}, {"ngram": 0}, "ngram must be at least 1, not 0"),
        ({"text": "a"}, {"text": "a"}, {"compare": "exakt"}, "no comparison 'exakt'; did you mean exact?"),
        ({"text": "a"}, {"text": "a"}, {"documents": 0}, "documents must be at least 1, not 0"),
        ({"text": "a"}, {"text": "a"}, {"workers": -1}, "workers must be 0 (one per processor) or more, not -1"),
    ],
)
def test_wrong_use_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Any, test: Any, settings: dict[str, Any], message: str
):
    monkeypatch.chdir(tmp_path)
    for name, record in (("train", train), ("quiz", test)):
        records = record if isinstance(record, list) else [record]
        Path(f"{name}.jsonl").write_bytes(b"".join(orjson.dumps(entry) + b"\n" for entry in records))
    with pytest.raises(curation.CurationError) as caught:
        curation.check_overlap("train.jsonl", "quiz.jsonl", **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_set_without_inputs_and_missing_files_are_errors(made: tuple[Path, list[str], list[str]], tmp_path: Path):
    folder = made[0]
    with pytest.raises(curation.InputError, match="test has no inputs"):
        curation.check_overlap(folder / "train.jsonl", [])
    with pytest.raises(curation.InputError, match="does not exist"):
        curation.check_overlap(tmp_path / "none.jsonl", folder / "quiz.jsonl")
    with pytest.raises(curation.InputError, match="does not exist"):
        curation.check_overlap(folder / "train.jsonl", tmp_path / "none.jsonl")


def test_short_questions_are_found_as_decontaminate_finds_them(tmp_path: Path):
    """From 8 words on alone, from 4 words on with their answers, if they say something; the rest in no other text."""
    items = [
        ("Why do leopards have spots on their fur?", "To hide"),
        ("Who wrote Lolita, twice?", "Nabokov"),
        ("Is it so?", "No"),
        ("1 2 3 4 5 6 7 8", "9"),
    ]
    texts = ["why do leopards have spots, on their fur", "Who wrote\n> LOLITA twice? It was Nabokov.", "Is it so? No.",
             "1 2 3 4 5 6 7 8 9", "Who wrote Lolita twice?"]  # fmt: skip
    texts = [f"Some text. {text} More." for text in texts]
    (tmp_path / "train.jsonl").write_bytes(records_of(texts))
    lines = [json.dumps({"text": question, "answer": answer}) for question, answer in items]
    (tmp_path / "quiz.jsonl").write_text("\n".join(lines))
    for column, expected in (("", [True, False, False, False]), ("answer", [True, True, False, False])):
        found = curation.check_overlap(tmp_path / "train.jsonl", tmp_path / "quiz.jsonl", answer_column=column)
        assert found.items["contaminated"].to_pylist() == expected
    assert found.items["documents"].to_pylist() == [["train/0"], ["train/1"], [], []]
    kept = curation.decontaminate(pd.DataFrame({"text": texts}), tmp_path / "quiz.jsonl", answer_column="answer")
    assert kept.index.tolist() == [2, 3, 4]
