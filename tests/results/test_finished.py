# SPDX-License-Identifier: Apache-2.0
"""A finished run in Python: its documents, funnel and measures as frames."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import curation
from curation.base.errors import OutputError
from curation.record import finished_report
from curation.results.report.text import shown_rows
from tests.runs import kept_rows, made_texts, recipe_of, records_of, removed_rows


@pytest.fixture
def finished(tmp_path: Path) -> Any:
    (tmp_path / "made.jsonl").write_bytes(records_of(made_texts(200)) + b"no record\n")
    recipe = recipe_of(tmp_path / "made.jsonl", name="made", output={"formats": []})
    return curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)


def test_a_result_is_as_good_as_its_folder(finished: Any):
    assert curation.open_run(finished).report == finished.report and curation.verify(finished) == []


def test_documents_are_frames(finished: Any):
    kept, removed = finished.kept(), finished.removed()
    assert isinstance(kept, pd.DataFrame)
    assert kept["id"].tolist() == [name for _, name, *_ in kept_rows(finished.folder)]
    assert removed["reason"].tolist() == [row[4] for row in removed_rows(finished.folder)]
    assert {*finished.removed(reason="short")["reason"]} == {"short"}
    assert len(finished.removed(stage="exact_dedup")) == len(finished.pairs()) > 5
    assert (finished.pairs()["text"] == finished.pairs()["kept_text"]).all()
    assert finished.rejected()["line"].tolist() == [201]
    assert len(finished.kept(where={"words": {"min": 50}})) < len(kept)
    assert finished.kept(sample=4, seed=2)["id"].tolist() == finished.kept(sample=4, seed=2)["id"].tolist()
    assert len(finished.kept(sample=4)) == 4


def test_the_funnel_is_that_of_the_report(finished: Any):
    funnel = finished.funnel
    steps = funnel[funnel["step"] != ""].set_index("step")["documents"]
    assert steps["read"] == 201 and steps["kept"] == finished.report["documents"]["kept"]
    reasons = funnel[funnel["reason"] != ""].set_index("reason")["documents"]
    short = finished.report["stages"][1]
    assert -reasons["short"] == short["reasons"]["short"]
    for stage in finished.report["stages"]:
        [row] = funnel[funnel["step"] == stage["name"]].to_dict("records")
        assert (
            row["share"] == stage["documents_out"] / 201
            and row["step_share"] == stage["documents_out"] / stage["documents_in"]
        )
    [row] = funnel[funnel["reason"] == "exact_duplicate"].to_dict("records")
    assert row["step_share"] == -row["documents"] / short["documents_out"] > row["share"]
    shown = {name: shares for name, _, *shares, _ in shown_rows(finished.report, True)}
    assert shown["  exact_duplicate"] == [f"{row['share']:.2%}", f"{row['step_share']:.2%}"]
    assert (
        shown["kept"][1] == ""
        and f"({short['retention']:.1%} of step)" in (finished.folder / "report.html").read_text()
    )


def test_a_folder_is_opened_again(finished: Any):
    again = curation.open_run(str(finished.folder))
    assert again.already_complete and again.report["digest"] == finished.report["digest"]
    assert again.kept().equals(finished.kept())


def test_measures_are_those_of_the_filters(tmp_path: Path):
    texts = made_texts(100)
    (tmp_path / "made.jsonl").write_bytes(records_of(texts))
    stages = [
        {"kind": "filter", "name": "short", "rules": [{"measure": "words", "min": 5}]},
        {"kind": "filter", "name": "lines", "rules": [{"ratio": ["lines", "words"], "max": 0.5}]},
    ]
    recipe = recipe_of(tmp_path / "made.jsonl", stages=stages, output={"formats": [], "measures": True})
    finished = curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)
    short = finished.measures(stage="short")
    assert list(short) == ["doc", "id", "source", "stage", "words"] and len(short) == 100
    assert short["words"].tolist() == [len(text.split()) for text in texts]
    verdict = curation.decide(short, [curation.Rule(measure="words", min=5)])
    assert verdict.counts()["words"] == len(finished.removed(stage="short"))
    second = finished.measures(["lines", "words"], stage="lines")
    assert list(second) == ["doc", "id", "source", "stage", "lines", "words"]
    assert len(second) == verdict.kept.sum()
    every = finished.measures("lines")
    assert list(every) == ["doc", "id", "source", "stage", "lines"] and len(every) == 100 + len(second)
    assert every["lines"].isna().sum() == 100
    with pytest.raises(OutputError, match="has no measure 'wordz'; did you mean words"):
        finished.measures(["wordz"])
    with pytest.raises(OutputError, match="has no filter 'shrt'; did you mean short"):
        finished.measures(stage="shrt")


def test_a_run_without_measures_says_how_to_keep_them(finished: Any):
    with pytest.raises(
        OutputError, match=r"out has no measures\. Run its recipe again with output: \{measures: true\}"
    ):
        finished.measures()


def test_a_folder_without_a_finished_run(tmp_path: Path, finished: Any):
    (tmp_path / "empty").mkdir()
    with pytest.raises(OutputError, match=r"empty holds no finished run \(no report.json\)"):
        curation.open_run(tmp_path / "empty")
    with pytest.raises(OutputError, match="gone does not exist"):
        curation.open_run(tmp_path / "gone")
    with pytest.raises(OutputError, match=r"documents holds no finished run.*it is part of the run in"):
        curation.open_run(finished.folder / "documents")
    (tmp_path / "half" / "_work").mkdir(parents=True)
    (tmp_path / "half" / "_work" / "plan.json").write_text("{}")
    with pytest.raises(OutputError, match=r"half holds no finished run.*its run has not finished. Rerun the command"):
        curation.open_run(tmp_path / "half")


def test_a_report_that_appears_while_it_is_looked_for(finished: Any, monkeypatch: pytest.MonkeyPatch):
    """Another process of the run writes it after this one has found no file."""
    report, hidden, exists = finished.folder / "report.json", finished.folder / "later", Path.exists
    expected = finished_report.read_report(finished.folder)
    report.rename(hidden)

    def appear(path: Path) -> bool:
        if path == report:
            hidden.rename(report)
        return exists(path)

    monkeypatch.setattr(Path, "exists", appear)
    assert finished_report.read_report(finished.folder) == expected


def test_the_repr_is_one_line(finished: Any):
    kept = finished.report["documents"]["kept"]
    assert repr(finished) == f"<run {str(finished.folder)!r}: 201 documents read, {kept} kept>"
