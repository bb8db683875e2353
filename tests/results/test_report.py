# SPDX-License-Identifier: Apache-2.0
"""What the end of a run says: names as they are, and warnings where little came out."""

import functools
import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from curation.results.report.report import tokenizer_notes
from curation.results.report.text import print_funnel
from curation.running.run import run
from curation.tokens import tokenization
from curation.tokens.tokenization import Tokenizer, load_tokenizer
from tests.running.test_run_folder import Said
from tests.runs import recipe_of, records_of, report_of

WORDS = "one two three four five six"


WHOLE = {"megatron": {"splits_string": "1,0,0"}}  # one split, which these few documents fill


def warnings_of(folder: Path, data: bytes, **rest: Any) -> list[str]:
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(data)
    recipe = recipe_of(folder / "a.jsonl", **{"output": {"formats": []}, **rest})
    return run(recipe, folder / "out", engine="cpu").report["warnings"]


@pytest.mark.parametrize("reason", ["too_long[words]", "long [/x]", "[bold]", "back\\"])
def test_names_and_reasons_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str], reason: str):
    (tmp_path / "a.jsonl").write_bytes(records_of([WORDS, "one"]))
    rules = [{"measure": "words", "max": 3, "reason": reason}]
    stages = [{"kind": "filter", "name": f"short {reason}", "rules": rules}]
    finished = run(recipe_of(tmp_path / "a.jsonl", stages=stages), tmp_path / "out", engine="cpu")
    print_funnel(finished.report)
    lines = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert f"short {reason}" in lines
    print_funnel(finished.report)
    assert f" {reason} " in capsys.readouterr().out


def test_a_run_that_keeps_nothing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    none = [{"kind": "filter", "rules": [{"measure": "words", "min": 100}]}]
    assert warnings_of(tmp_path / "empty", b"") == ["nothing is kept: the input has no documents"]
    [removed] = warnings_of(tmp_path / "removed", records_of([WORDS]), stages=none)
    assert removed == "nothing is kept: 1 of 1 records were removed, most of them by filter (1 of 1, reason words)"
    many, rejected = warnings_of(tmp_path / "rejected", b"no\n")
    assert many == "1 of 1 records (100%) were rejected; rejected.jsonl has the reasons"
    assert rejected.startswith(
        "nothing is kept: 1 of 1 records were rejected, most of them with the error: not valid JSON: "
    )
    print_funnel(report_of(tmp_path / "rejected" / "out"))
    assert f"warning: {rejected}" in capsys.readouterr().out


def test_many_rejected_records_are_a_warning(tmp_path: Path):
    [warning] = warnings_of(tmp_path / "many", records_of([WORDS] * 8) + b"no\n" * 2, stages=[])
    assert warning.startswith("2 of 10 records (20%) were rejected")
    assert warnings_of(tmp_path / "few", records_of([WORDS] * 9) + b"no\n", stages=[]) == []


def test_damaged_files_are_named_whatever_their_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lines = [records_of([f"{WORDS} {number} {k}" for k in range(3000)]) for number in range(9)]
    for number, data in enumerate(lines):
        packed = gzip.compress(data, mtime=0)
        cut = packed[: len(packed) // 2] if number < 6 else packed
        (tmp_path / f"{number}.jsonl.gz").write_bytes(cut)
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(lines[0])[:-8] + bytes(8))
    recipe = recipe_of(tmp_path, stages=[], output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu").report
    assert report["documents"]["rejected"] < report["documents"]["read"] / 10
    damaged, wrong = report["warnings"]
    named = ", ".join(str(tmp_path / f"{number}.jsonl.gz") for number in range(5))
    assert damaged.startswith(
        f"6 files were not read to the end, and the documents after the damage are lost: {named}, ... (the file"
    )
    assert "cut off: it ends inside the compressed data); see rejected.jsonl" in damaged
    assert wrong.startswith(
        f"1 file was not read to the end, and the documents after the damage are lost: {tmp_path}/bad.jsonl.gz ("
    )
    print_funnel(report)
    assert f"warning: {damaged}" in capsys.readouterr().out


def test_a_column_that_no_record_has_is_named(tmp_path: Path):
    rare = [{"text": WORDS}] * 20 + [{"text": WORDS, "language": "en", "url": None}]
    (tmp_path / "a.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in rare))
    (tmp_path / "b.jsonl").write_bytes(b"")
    columns = ["language", "langauge", "url", "zzz"]
    inputs = [{"path": str(tmp_path / f"{name}.jsonl"), "columns": columns} for name in "ab"]
    recipe = recipe_of(*inputs, stages=[], output={"formats": []})
    assert run(recipe, tmp_path / "out", engine="cpu", slice_bytes=100).report["warnings"] == [
        "input 'a': column 'langauge' is null in every document; did you mean language?",
        "input 'a': column 'url' is null in every document",
        "input 'a': column 'zzz' is null in every document",
    ]


@pytest.mark.parametrize(("wrong", "told"), [(1, True), (0, False)])
def test_text_in_another_encoding_is_a_warning(tmp_path: Path, wrong: int, told: bool):
    for number in range(10 if wrong else 11):
        data = "café".encode("utf-8" if number else "latin-1")
        (tmp_path / f"{number}.txt").write_bytes(data)
    recipe = recipe_of({"path": str(tmp_path / "*.txt"), "name": "old"}, stages=[], output={"formats": []})
    assert (
        run(recipe, tmp_path / "out", engine="cpu").report["warnings"]
        == [
            "input 'old': invalid bytes became U+FFFD in 1 of 10 documents (10%). If the files are not in UTF-8, set "
            "encoding:, such as latin-1"
        ][:told]
    )


def test_documents_without_tokens_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Of three texts one is blank; of this tokenizer's letters, without one for what is unknown, one text has none."""
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": []}
    (tmp_path / "tokenizer.json").write_bytes(orjson.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    tokenizer = {"name": str(tmp_path), "append_eod": False}
    texts = records_of(["banana", "b\u00e9", " \n"])
    for name, data, expected in (("some", texts, 1), ("none", records_of(["a", "", "\t"]), 0)):
        found = warnings_of(tmp_path / name, data, stages=[], tokenizer=tokenizer, output=WHOLE)
        warning = (
            f"tokenizer {tmp_path} has no token for the text of 1 of 3 documents: the token outputs leave them out. "
            "Choose a tokenizer made for such text"
        )
        others = [each for each in found if "1 of 3 documents have no text (33%)" not in each]
        assert others[1 : 1 + expected] == [warning] * expected and "tenth of its speed" in others[0]
        assert [" loses " in line for line in others[1 + expected :]] == [True] * expected
    print_funnel(report_of(tmp_path / "some" / "out"))
    assert f"warning: {warning}" in capsys.readouterr().out


def test_a_slow_tokenizer_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slow = functools.cached_property(lambda _: "gigatoken differs")
    slow.__set_name__(Tokenizer, "note")
    monkeypatch.setattr(Tokenizer, "note", slow)
    # A note stays with its tokenizer: none that another test has loaded, and none that is left to the next.
    monkeypatch.setattr(tokenization, "_load", functools.cache(tokenization._load.__wrapped__))
    (tmp_path / "a.jsonl").write_bytes(records_of([WORDS]))
    said = Said()
    report = run(recipe_of(tmp_path / "a.jsonl", output=WHOLE), tmp_path / "out", engine="cpu", progress=said).report
    expected = "tokenizer gpt2 runs at a tenth of its speed: gigatoken differs"
    assert report["warnings"] == [expected] and said.lines.count(expected) == 1


def test_a_tokenizer_that_does_not_use_the_gpu_is_named():
    tokenizer = load_tokenizer("gpt2")
    special = "special tokens: end <|endoftext|> 50256 (written), begin <|endoftext|> 50256 (not written), no padding"
    assert tokenizer_notes(tokenizer, "gpu") == [special]
    other = Tokenizer(tokenizer.spec, tokenizer._source._replace(byte_pairs=lambda: None))
    assert tokenizer_notes(other, "cpu") == [special]
    (_, line) = tokenizer_notes(other, "gpu")
    assert line.startswith("tokenizer gpt2 does not use the GPU: it is no byte-level BPE in the order of its ids")
