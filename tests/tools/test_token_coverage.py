# SPDX-License-Identifier: Apache-2.0
"""`curate tokens` counts what the tokenizer's own package counts, per input and per value of a column."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

import curation
from curation.base.errors import CurationError
from curation.cli import main
from curation.tokens.tokenizer_training import SPECIAL
from tests.runs import made_texts, records_of

TEXTS = {"a": made_texts(60, 1), "b": ["Ωμέγα 🎉 done", "plain words", ""]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("coverage")
    for name, texts in TEXTS.items():
        lines = [records_of([text], language="el" if "Ω" in text else "en") for text in texts]
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
    for kind, suffix in (("wordpiece", "json"), ("unigram", "model")):
        curation.train_tokenizer(folder / "a.jsonl", folder / f"{kind}.{suffix}", vocabulary=400, kind=kind, force=True)
    return folder


@pytest.mark.parametrize("name", ["wordpiece.json", "unigram.model"])
def test_counts_are_those_of_the_package(folder: Path, name: str):
    found = curation.token_coverage([folder / "a.jsonl", folder / "b.jsonl"], str(folder / name), by="language")
    tokenizer = curation.load_tokenizer(str(folder / name))
    if name.endswith("json"):
        reference = Tokenizer.from_file(str(folder / name))

        def pieces_of(text: str) -> list[str]:
            return reference.encode(text, add_special_tokens=False).tokens
    else:
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / name))

        def pieces_of(text: str) -> list[str]:
            return model.encode(text, out_type=str)

    groups = {(group.by, group.name): group for group in found.groups}
    assert found.groups[0].by == "all" and {by for by, _ in groups} == {"all", "source", "language"}
    chosen = {
        ("all", ""): TEXTS["a"] + TEXTS["b"], ("source", "b"): TEXTS["b"], ("language", "el"): [TEXTS["b"][0]],
    }  # fmt: skip
    for key, texts in chosen.items():
        pieces = [piece for text in texts for piece in pieces_of(text)]
        unknown, byte = (sum(map(test, pieces)) for test in (lambda p: p == "<unk>", lambda p: p.startswith("<0x")))
        group = groups[key]
        assert (group.documents, group.words) == (len(texts), sum(len(text.split()) for text in texts))
        assert (group.bytes, group.tokens) == (sum(len(text.encode()) for text in texts), len(pieces))
        assert (group.unknown, group.byte_tokens) == (unknown, byte)
    assert groups["source", "b"].unknown + groups["source", "b"].byte_tokens > 0
    counts = Counter(piece for text in chosen["all", ""] for piece in pieces_of(text))
    assert [count for _, count in found.most_frequent(5)] == [count for _, count in counts.most_common(5)]
    assert found.counts.sum() == groups["all", ""].tokens and not found.counts[found.unused].any()
    used = np_count(found) + len(found.unused)
    special = sum(text in (*SPECIAL, "<unk>") or text.startswith("<0x") for text in map(tokenizer.piece, unseen(found)))
    assert used == tokenizer.vocabulary - special


def np_count(found: curation.TokenCoverage) -> int:
    return int((found.counts > 0).sum())


def unseen(found: curation.TokenCoverage) -> list[int]:
    return [id_ for id_, count in enumerate(found.counts.tolist()) if not count]


def test_a_run_is_read_with_its_own_tokenizer(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    inputs = [{"path": str(folder / f"{name}.jsonl"), "columns": ["language"], "keep_blank": True} for name in TEXTS]
    report = curation.run(curation.convert_recipe({"input": inputs}), tmp_path / "out", engine="cpu").report
    found = curation.token_coverage(tmp_path / "out")
    assert (
        found.groups[0].tokens == report["tokens"]["count"] - report["tokens"]["documents"]
    )  # without end of document
    capsys.readouterr()
    assert main(["tokens", str(tmp_path / "out"), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:6]] == [
        ["all", "63"], ["source", "a"], ["source", "b"], ["language", "en"], ["language", "el"],
    ]  # fmt: skip
    assert lines[-2].startswith(f"gpt2: {len(found.unused):,} of 50,257 tokens") and lines[-1].count("'") == 4


@pytest.mark.parametrize(
    ("paths", "settings", "told"),
    [
        ("a.jsonl", {}, "no tokenizer: name one, such as gpt2"),
        ("a.jsonl", {"tokenizer": "gpt3"}, "expected a tiktoken encoding"),
        ("a.jsonl", {"tokenizer": "gpt2", "by": "text"}, "by must be a column of the documents other than 'text'"),
        ("none.jsonl", {"tokenizer": "gpt2"}, "none.jsonl"),
        ("blank.jsonl", {"tokenizer": "gpt2"}, "the documents have no text to count tokens of"),
        ([], {"tokenizer": "gpt2"}, "inputs is empty, expected at least one path"),
    ],
)
def test_wrong_inputs(folder: Path, paths: Any, settings: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    Path("blank.jsonl").write_bytes(records_of([""]))
    with pytest.raises(CurationError, match=told):
        curation.token_coverage(paths, **settings)
