# SPDX-License-Identifier: Apache-2.0
"""What a language stage leaves in a run: label and probability of every kept document, counts, and the digest
of its model."""

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import IntegrityError, OutputError, RecipeError
from curation.models.fasttext import LANGUAGE_SHA256
from curation.recipes.recipe import Recipe, convert_recipe
from curation.results.finished.verify import verify
from curation.results.report.html import as_html
from curation.results.report.text import print_funnel
from curation.running import phase_loop
from curation.running import run as runner
from curation.running.run import run
from tests.oracle import fasttext_reference as reference
from tests.pipelines.made import GERMAN, WORDS, fasttext_language
from tests.runs import records_of, report_of, table_rows

LANGUAGE = {"kind": "language", "keep": ["en", "de"], "min_probability": 0.3}
NO_TOKENS = {"formats": []}


def sentences(count: int, words: list[str]) -> list[str]:
    chance = random.Random(count)
    return [f"{' '.join(chance.choices(words, k=30))} {k}" for k in range(count)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """English, German, twenty of neither in a row (whole slices of which nothing is kept), and some copies."""
    texts = sentences(40, WORDS) + sentences(40, GERMAN)
    path = tmp_path / "c.jsonl"
    path.write_bytes(records_of(texts + ["漢字" * 40 + str(k) for k in range(20)] + texts[::3], url="u"))
    return path


def recipe(path: Path, *stages: dict[str, Any], output: dict[str, Any] = NO_TOKENS, **entry: Any) -> Recipe:
    return convert_recipe({"input": [{"path": str(path), "name": "c", **entry}], "stages": stages, "output": output})


def go(out: Path, chosen: Recipe, **options: Any) -> dict[str, Any]:
    report = run(chosen, out, engine="cpu", workers=2, **options).report
    assert verify(out) == []
    return report


def columns_of(out: Path, column: str = "language") -> list[tuple[Any, ...]]:
    return table_rows(out / "documents", "text", column, f"{column}_probability")


def check_verdicts(rows: list[tuple[Any, ...]], judge: Callable[[str], tuple[str, float]]) -> None:
    """Label and probability are fastText's, in millionths, of the first 1000 characters with spaces for line ends."""
    assert rows
    for text, label, probability in rows:
        expected = judge(text[:1000].replace("\n", " "))
        assert label == expected[0] and probability == pytest.approx(expected[1], abs=2e-4), text
        assert probability == round(probability * 1e6) / 1e6


def test_every_document_has_its_language_and_probability(tmp_path: Path, corpus: Path):
    go(tmp_path / "out", recipe(corpus, LANGUAGE, columns=["url"]), slice_bytes=9000)
    rows = columns_of(tmp_path / "out")
    check_verdicts(rows, fasttext_language())
    assert {label for _, label, _ in rows} == {"en", "de"}
    schema = pq.read_schema(tmp_path / "out" / "documents" / "part-00000.parquet")
    assert schema.names == ["doc", "id", "source", "text", "url", "language", "language_probability"]
    assert schema.field("language").type == pa.string()
    assert schema.field("language_probability").type == pa.float64()


def test_nothing_kept_has_the_columns(tmp_path: Path, corpus: Path):
    go(tmp_path / "out", recipe(corpus, LANGUAGE | {"keep": ["eo"]}))
    table = pq.read_table(tmp_path / "out" / "documents" / "part-00000.parquet")
    assert len(table) == 0 and table.column_names[-2:] == ["language", "language_probability"]


# Two stages, other names


def test_two_stages_with_two_names(tmp_path: Path, corpus: Path):
    model = write_model(tmp_path / "quality.bin", 4.0)
    quality = {"kind": "language", "name": "quality", "column": "quality", "model": str(model), "keep": ["good"]}
    report = go(tmp_path / "out", recipe(corpus, LANGUAGE, quality))
    rows = table_rows(tmp_path / "out" / "documents", "text", "language", "quality", "quality_probability")
    assert rows and all(" the " in f" {text} " and language == "en" for text, language, *_ in rows)
    assert {label for _, _, label, _ in rows} == {"good"} and all(p > 0.9 for *_, p in rows)
    assert report["stage_files"] == {
        "language_1": {"lid.176.ftz": LANGUAGE_SHA256},
        "quality": {str(model): hashlib.sha256(model.read_bytes()).hexdigest()},
    }


@pytest.mark.parametrize("name", ["", "text", "source", "a.b", "1st", "two words"])
def test_names_that_a_column_may_not_have(name: str):
    with pytest.raises(RecipeError, match=r"column must be letters, digits and '_', and none of doc, row, id"):
        recipe(Path("c.jsonl"), LANGUAGE | {"column": name})


# In the library


# The report


def test_the_report_counts_the_languages(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]):
    go(tmp_path / "out", recipe(corpus, LANGUAGE | {"name": "langid"}))
    report = report_of(tmp_path / "out")
    (stage,) = report["stages"]
    assert sum(stage["details"].values()) == report["documents"]["read"] and stage["details"]["de"] >= 40
    print_funnel(report)
    line = f"langid: de {stage['details']['de']}, en {stage['details']['en']}, "
    credit = "by lid.176.ftz, CC BY-SA 3.0 (https://fasttext.cc/docs/en/language-identification.html)"
    for shown in (capsys.readouterr().out, as_html(report)):
        assert line in shown and credit in shown


def test_rare_languages_are_added_up(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    labels = [f"l{k}" for k in range(13)]
    words = [[float(row == k) for k in range(13)] for row in range(13)]
    pairs = [(f"__label__{label}".encode(), 13 - k) for k, label in enumerate(labels)]
    known = reference.Model([label.encode() for label in labels], pairs, words, [[9 * x for x in row] for row in words])
    model = tmp_path / "many.bin"
    model.write_bytes(reference.as_bytes(known))
    path.write_bytes(records_of([label for k, label in enumerate(labels) for _ in range(20 - k)]))
    stage = {"kind": "language", "keep": ["l0"], "model": str(model)}
    page = as_html(go(tmp_path / "out", recipe(path, stage)))
    common = ", ".join(f"l{k} {20 - k}" for k in range(10))
    assert f"language: {common}, 3 others 27; by {model}" in page


# Which model it was


def write_model(path: Path, size: float) -> Path:
    """A model that takes `the` for good text and `die` for bad."""
    labels = [(b"__label__good", 2), (b"__label__bad", 1)]
    model = reference.Model([b"the", b"die"], labels, [[size], [-size]], [[2.0], [-2.0]])
    path.write_bytes(reference.as_bytes(model))
    return path


@pytest.mark.parametrize("finished", [False, True])
def test_another_model_under_the_same_path_is_refused(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
):
    model = write_model(tmp_path / "own.bin", 4.0)
    chosen = recipe(corpus, {"kind": "language", "name": "quality", "keep": ["good"], "model": str(model)})
    with monkeypatch.context() as stopped:
        if not finished:
            stopped.setattr(phase_loop, "_write_documents", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                go(tmp_path / "out", chosen)
        else:
            go(tmp_path / "out", chosen)
    os.utime(model, ns=(1, 1))  # the same content at another time is the same model
    first = model.read_bytes()
    write_model(model, 3.0)
    with pytest.raises(OutputError, match=r"changed: .*own\.bin of stage quality \(content\)\. Give a new"):
        go(tmp_path / "out", chosen)
    model.write_bytes(first)
    report = go(tmp_path / "out", chosen)
    digest = hashlib.sha256(first).hexdigest()
    assert report["stage_files"] == {"quality": {str(model): digest}}


def test_a_run_without_a_model_names_none(tmp_path: Path, corpus: Path):
    assert go(tmp_path / "out", recipe(corpus, {"kind": "exact_dedup"}))["stage_files"] == {}


def test_a_model_that_changes_during_a_run_ends_it(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    model = write_model(tmp_path / "own.bin", 4.0)
    chosen = recipe(corpus, {"kind": "language", "keep": ["good"], "model": str(model)})
    planned = runner.make_plan

    def then_change(*arguments: object) -> object:
        found = planned(*arguments)
        write_model(model, 3.0)
        return found

    monkeypatch.setattr(runner, "make_plan", then_change)
    with pytest.raises(
        IntegrityError, match=r"changed during the run: .*own\.bin of stage language \(content\)\. Put it back"
    ):
        go(tmp_path / "out", chosen)
