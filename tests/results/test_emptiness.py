# SPDX-License-Identifier: Apache-2.0
"""A run that keeps nothing: exit code 3 and one sentence with the likely cause, the same again for a rerun."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.cli import main
from curation.results.finished.verify import verify
from curation.running.run import run
from tests.runs import files_below, recipe_of, records_of, report_of

LATIN = "text\n" + "caf\u00e9 au lait\n" * 200
SHORT = [{"kind": "filter", "rules": [{"measure": "words", "min": 3, "reason": "short"}]}]
NO_TOKENS = {"formats": []}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.csv").write_bytes(LATIN.encode("latin-1"))
    (tmp_path / "plain.yaml").write_text("{stages: [], output: {formats: []}}")
    return tmp_path


LATIN_TOLD = (
    "nothing is kept: 200 of 200 records were rejected, most of them with the error: text is not valid UTF-8; set "
    "encoding: of the input, such as latin-1 (--set input.latin.encoding=latin-1)"
)


@pytest.mark.parametrize(
    "command",
    [
        ("run", "plain.yaml", "-i", "latin.csv", "--engine", "cpu"),
        ("measure", "-i", "latin.csv", "--names", "words", "--engine", "cpu"),
        ("tokenize", "latin.csv"),
    ],
    ids=lambda command: command[0],
)
def test_nothing_kept_exits_with_3_until_it_is_allowed(
    here: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
):
    for _ in range(2):
        assert main([*command, "-o", "out"]) == 3
        out, err = capsys.readouterr()
        assert err.splitlines()[-1] == f"curate: {LATIN_TOLD}"
        assert (out + err).count("nothing is kept") == 1
    assert out.startswith("already complete: out, 0 documents kept; --force")
    assert verify("out") == [] and len((here / "out" / "rejected.jsonl").read_bytes().splitlines()) == 200
    for folder in ("out", "anew"):
        assert main([*command, "-o", folder, "--allow-empty"]) == 0
        assert "nothing is kept" not in capsys.readouterr().err


def test_the_demo_on_a_corpus_without_documents(here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "demo").mkdir()
    (here / "demo" / "corpus.jsonl").touch()
    assert main(["demo", "--engine", "cpu"]) == 3
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "curate: nothing is kept: the input has no documents" and "Next:" not in out


@pytest.mark.parametrize(
    ("data", "stages", "told"),
    [
        (b"", [], "the input has no documents"),
        (b"\n \n", [], "the input has no documents"),
        (
            b'{"text": "one"}\n' + b'{"text": 5}\n' * 3 + b"no\n",
            SHORT,
            "4 of 5 records were rejected, most of them with the error: field 'text' is a number, expected a string; "
            "set text_column: of the input to a field with text",
        ),
        (
            b'{"text": "one"}\n' + b'{"body": "two"}\n' * 4,
            SHORT,
            "4 of 5 records were rejected, most of them with the error: no field 'text'; it has ['body']. Set "
            "text_column",
        ),
        (
            b'{"text": "caf\xe9"}\n' * 2,
            [],
            "2 of 2 records were rejected, most of them with the error: not valid JSON: str is not valid UTF-8: "
            "surrogates not allowed: line 1 column 1 (char 0); convert the input to UTF-8, which its format requires",
        ),
        (
            records_of(["one", "two", "three four five", "three four five"]),
            [
                *SHORT,
                {"kind": "exact_dedup"},
                {"kind": "filter", "rules": [{"measure": "lines", "min": 2}]},
            ],
            "4 of 4 records were removed, most of them by filter_1 (2 of 4, reason short)",
        ),
        (
            records_of(["a", "b", "c"]) + b"no\n",
            SHORT,
            "3 of 4 records were removed, most of them by filter (3 of 3, reason short)",
        ),
    ],
    ids=["empty", "blank", "no string", "no field", "no UTF-8", "removed", "more removed"],
)
def test_the_likely_cause(tmp_path: Path, data: bytes, stages: list[object], told: str):
    (tmp_path / "a.jsonl").write_bytes(data)
    recipe = recipe_of(tmp_path / "a.jsonl", stages=stages, output=NO_TOKENS)
    for complete in (False, True):
        finished = run(recipe, tmp_path / "out", engine="cpu")
        assert finished.already_complete == complete
        assert finished.nothing_kept == f"nothing is kept: {told}"
    assert finished.nothing_kept in report_of(tmp_path / "out")["warnings"]


def test_the_likely_cause_depends_on_the_input(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(LATIN.encode("latin-1"))
    pq.write_table(pa.table({"text": pa.array([None] * 3, pa.string())}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_bytes(records_of(["one two"] * 3))
    asked = {
        "a.csv": (
            {"encoding": "ascii"},
            "of the input, such as latin-1 (--set input.a.encoding=latin-1)",
        ),
        "a.parquet": (
            {},
            "most of them with the error: text is null; set text_column: of the input to a field with text",
        ),
        "a.jsonl": ({"max_document_bytes": 5}, "larger than max_document_bytes (5); raise it"),
    }
    for name, (settings, told) in asked.items():
        recipe = recipe_of({"path": str(tmp_path / name)} | settings, stages=[], output=NO_TOKENS)
        assert run(recipe, tmp_path / f"{name}.out", engine="cpu").nothing_kept.endswith(told)
    sampled = recipe_of({"path": str(tmp_path / "a.jsonl"), "sample": 1e-9}, stages=[], output=NO_TOKENS)
    told = run(sampled, tmp_path / "sampled", engine="cpu").nothing_kept
    assert told == "nothing is kept: sample: skipped all 3 records; raise it"


def test_a_run_that_keeps_something(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(["one", "a b c"]) + b"no\n" * 9)
    finished = run(recipe_of(tmp_path / "a.jsonl", stages=SHORT, output=NO_TOKENS), tmp_path / "out", engine="cpu")
    assert finished.nothing_kept == ""
    assert "documents/part-00000.parquet" in files_below(tmp_path / "out")
