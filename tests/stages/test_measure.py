# SPDX-License-Identifier: Apache-2.0
"""The stage `measure`: its columns are `curation.measure` of the kept texts, however a run was cut or stopped; their
percentiles; the recipes it refuses."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.contract import ID
from curation.base.errors import RecipeError
from curation.base.measures import Measure
from curation.recipes.recipe import parse_recipe
from curation.results.finished.measured import RANKS, MeasuredDocuments, percentiles
from curation.running import phase_loop
from curation.running.run import run
from curation.stages import MeasureStage
from curation.stages.invoke import apply_stage
from tests.conftest import frame_of
from tests.corpus import NASTY
from tests.runs import data_digests, made_texts, recipe_of, records_of, report_of, table_rows

NAMES = ("words", "bytes", "top_2gram_characters")
NO_TOKENS = {"formats": []}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(120)))
    return path


def measured(texts: list[str], names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """What the library says of the texts."""
    frame = curation.measure(pd.DataFrame({"text": texts}), names)
    return list(frame[["text", *names]].itertuples(index=False, name=None))


@pytest.mark.parametrize("names", [NAMES, ()], ids=["some", "all"])
def test_columns_of_a_frame(engine, names):
    texts = [*(text[:2000] for text in NASTY), None]
    frame = frame_of(engine, texts)
    after, outcome = apply_stage(engine, frame, MeasureStage(names=names))
    table = engine.to_arrow(after)
    expected = engine.measure(frame["text"], names or tuple(Measure.__members__))
    assert table.column_names[3:] == [*expected] and {str(kind) for kind in table.schema.types[3:]} == {"int64"}
    assert {name: table.column(name).to_pylist() for name in expected} == {k: v.tolist() for k, v in expected.items()}
    assert table.column(ID).to_pylist() == [f"doc-{row}" for row in range(len(texts))]
    assert (outcome.verdict, outcome.text) == (None, None)


# Runs

CHAIN = [
    {"kind": "exact_dedup", "max_characters": 20},
    {"kind": "measure", "names": NAMES},
    {"kind": "fuzzy_dedup"},
    {"kind": "rewrite", "lowercase": True},
    {"kind": "measure", "name": "again", "names": ["words", "uppercase_characters"]},
    {"kind": "exact_dedup"},
]


def test_a_run_writes_what_the_library_says(tmp_path: Path, corpus: Path):
    run(recipe_of(corpus, stages=[{"kind": "measure"}], output=NO_TOKENS), tmp_path / "out", engine="cpu")
    names = tuple(Measure.__members__)
    rows = table_rows(tmp_path / "out" / "documents", "text", *names)
    assert rows == measured(made_texts(120), names)
    (stage,) = report_of(tmp_path / "out")["stages"]
    assert (stage["documents_in"], stage["documents_out"], stage["reasons"]) == (120, 120, {})
    schema = pq.read_schema(tmp_path / "out" / "documents" / "part-00000.parquet")
    assert schema.names == ["doc", "id", "source", "text", *names]


@pytest.mark.slow("measure columns do not depend on how the work is divided")
def test_columns_pass_barriers_and_do_not_show_how_the_work_was_cut(tmp_path: Path, corpus: Path):
    recipe = recipe_of(corpus, stages=CHAIN, output=NO_TOKENS)
    run(recipe, tmp_path / "one", engine="cpu", workers=1)
    run(recipe, tmp_path / "many", engine="cpu", workers=2, slice_bytes=700)
    assert data_digests(tmp_path / "one") == data_digests(tmp_path / "many")
    rows = table_rows(tmp_path / "many" / "documents", "text", "words", "uppercase_characters", "bytes")
    assert len(rows) > 50 and {upper for *_, upper, _ in rows} == {0}
    assert [row[:3] for row in rows] == measured([text for text, *_ in rows], ("words", "uppercase_characters"))
    assert [size for *_, size in rows] == [len(text.encode()) for text, *_ in rows]  # of the text before, as long


def test_a_run_that_was_stopped(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = recipe_of(corpus, stages=CHAIN, output=NO_TOKENS)
    run(recipe, tmp_path / "whole", engine="cpu", workers=1)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    for place in ("run_corpus_stages", "_write_documents"):
        with monkeypatch.context() as stopped:
            stopped.setattr(phase_loop, place, stop)
            with pytest.raises(KeyboardInterrupt):
                run(recipe, tmp_path / "out", engine="cpu", workers=1, slice_bytes=4000)
    run(recipe, tmp_path / "out", engine="cpu", workers=1)
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")


def test_of_two_measures_the_later_counts(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(records_of(["A  <b>tag</b> here"]))
    before, after = {"kind": "measure", "name": "before"}, {"kind": "measure", "names": ["characters"]}
    stages = [before, {"kind": "rewrite", "markup": "strip"}, after]
    run(recipe_of(path, stages=stages, output=NO_TOKENS), tmp_path / "out", engine="cpu")
    ((text, characters, size),) = table_rows(tmp_path / "out" / "documents", "text", "characters", "bytes")
    assert characters == len(text) < size == 18


@pytest.mark.parametrize("content", [b"", b'{"text": ""}\n'], ids=["no documents", "an empty one"])
def test_empty_inputs(tmp_path: Path, content: bytes):
    (tmp_path / "a.jsonl").write_bytes(content)
    stages = [{"kind": "measure"}, {"kind": "exact_dedup"}, {"kind": "rewrite", "lowercase": True}]
    run(recipe_of(tmp_path / "a.jsonl", stages=stages, output=NO_TOKENS), tmp_path / "out", engine="cpu")
    table = pq.read_table(tmp_path / "out" / "documents" / "part-00000.parquet")
    assert table.column_names[4:] == [*Measure.__members__] and not table.to_pandas().iloc[:, 4:].any(axis=None)
    assert [*percentiles(MeasuredDocuments(tmp_path / "out"), ["words"])] == (["words"] if content else [])


def test_exports_of_what_was_kept_have_them(tmp_path: Path, corpus: Path):
    for format_ in ("csv", "jsonl", "parquet"):
        out = tmp_path / format_
        output = NO_TOKENS | {"raw": format_, "cleaned": format_}
        run(recipe_of(corpus, stages=[{"kind": "measure", "names": NAMES}], output=output), out, engine="cpu")
        raw, cleaned = (out / name / f"part-00000.{format_}" for name in ("raw", "cleaned"))
        if format_ == "parquet":
            columns, rows = pq.read_schema(raw).names, pq.read_table(cleaned).to_pylist()
        elif format_ == "jsonl":
            columns = [*json.loads(raw.read_bytes().splitlines()[0])]
            rows = [json.loads(line) for line in cleaned.read_bytes().splitlines()]
        else:
            with open(raw, newline="", encoding="utf-8") as file:
                columns = next(csv.reader(file))
            with open(cleaned, newline="", encoding="utf-8") as file:
                rows = [{**row, **{name: int(row[name]) for name in NAMES}} for row in csv.DictReader(file)]
        assert not {*columns} & {*NAMES}
        found = [tuple(row[name] for name in NAMES) for row in rows]
        assert found == table_rows(out / "documents", *NAMES)


# Percentiles


def test_percentiles_are_those_of_the_sorted_values(tmp_path: Path, corpus: Path):
    output = NO_TOKENS | {"part_documents": 50}
    run(recipe_of(corpus, stages=[{"kind": "measure", "names": NAMES}], output=output), tmp_path / "out", engine="cpu")
    assert len([*(tmp_path / "out" / "documents").iterdir()]) == 3
    found = percentiles(MeasuredDocuments(tmp_path / "out"), NAMES)
    assert [*found] == [*NAMES]
    for name, values in found.items():
        rows = sorted(value for (value,) in table_rows(tmp_path / "out" / "documents", name))
        assert values == [next(v for k, v in enumerate(rows, 1) if k * 100 >= rank * len(rows)) for rank in RANKS]
        linear = np.percentile(rows, RANKS)
        assert all(abs(a - b) <= max(np.diff(rows)) for a, b in zip(values, linear, strict=True))


# What is refused, and what stands for what


def test_members_and_repeated_names_are_names():
    stage = MeasureStage(names=(Measure.words, "bytes", "words"))  # type: ignore[arg-type]
    assert stage == MeasureStage(names=("words", "bytes"))
    assert MeasureStage().names == () and [*MeasureStage().writes()] == [*Measure.__members__]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("names: [word]", r"no measure named 'word'; did you mean words.* - at `\$\.stages\[0\]`"),
        ("names: [words, '']", "no measure named ''"),
        ("names: words", "Expected `array`, got `str`"),
        ("measures: [words]", "unknown field `measures`"),
    ],
)
def test_wrong_settings(settings: str, message: str):
    with pytest.raises(RecipeError, match=message):
        parse_recipe(f"stages:\n- {{kind: measure, {settings}}}\n")


def test_a_column_of_an_input_is_not_written_over(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(records_of(["a b"], words=5))
    entry = {"path": str(path), "columns": ["words"]}
    with pytest.raises(
        RecipeError,
        match=r"the stage measure writes; leave it out, give .* columns: \{input_words: words\}, or change",
    ):
        recipe_of(entry, stages=[{"kind": "measure"}])
    recipe = recipe_of(entry, stages=[{"kind": "measure", "names": ["characters"]}], output=NO_TOKENS)
    run(recipe, tmp_path / "out", engine="cpu")
    assert table_rows(tmp_path / "out" / "documents", "words", "characters") == [("5", 3)]
