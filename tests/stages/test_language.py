# SPDX-License-Identifier: Apache-2.0
"""The stage `language`: what it keeps, the reasons it gives, what it counts, and the recipes it refuses."""

import json

import numpy as np
import pytest

from curation.base.contract import ID
from curation.base.errors import RecipeError
from curation.recipes.recipe import parse_recipe
from curation.running.run import run
from curation.stages import Language, invoke
from tests.conftest import frame_of
from tests.oracle import fasttext_reference as reference

ENGLISH = "The committee has published its report, and the members will discuss it in the next meeting."
GERMAN = "Der Ausschuss hat seinen Bericht vorgelegt, und die Mitglieder werden ihn in der Sitzung besprechen."
RUSSIAN = "Комитет опубликовал свой доклад, и члены обсудят его на следующем заседании."
VAGUE = "John Smith"
TEXTS = [ENGLISH, GERMAN, VAGUE, RUSSIAN, ENGLISH + "\n" + ENGLISH]


def applied(engine, texts: list[str | None], **settings):
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, texts), Language(**settings))
    kept = [int(name.removeprefix("doc-")) for name in engine.to_arrow(frame)[ID].to_pylist()]
    reasons = [outcome.verdict.reasons[k] if k >= 0 else "" for k in outcome.verdict.reason]
    return kept, reasons, outcome


def test_one_language(engine):
    kept, reasons, outcome = applied(engine, TEXTS, keep=["en"])
    assert kept == [0, 4]
    assert reasons == ["", "language", "language_probability", "language", ""]
    assert outcome.verdict.counts() == {"language": 2, "language_probability": 1}


def test_without_keep_it_only_labels(engine):
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, TEXTS), Language())
    labels = engine.to_arrow(frame).column("language").to_pylist()
    assert outcome.verdict is None and len(labels) == len(TEXTS) and labels[:2] == ["en", "de"]
    assert outcome.details["en"] >= 2


def test_the_value_is_the_probability(engine):
    _, _, outcome = applied(engine, TEXTS, keep=["en"])
    value = outcome.verdict.value
    assert np.isnan(value[[0, 4]]).all()
    assert value[1] > 0.9 and value[3] > 0.9 and 0 < value[2] < 0.5
    np.testing.assert_array_equal(value * 1e6, np.round(value * 1e6))


def test_bounds_are_inclusive(engine):
    _, _, outcome = applied(engine, [VAGUE], keep=["en"], min_probability=1.0)
    probability = float(outcome.verdict.value[0])
    assert applied(engine, [VAGUE], keep=["en"], min_probability=probability)[0] == [0]
    assert applied(engine, [VAGUE], keep=["en"], min_probability=probability + 1e-6)[0] == []


def test_windows_see_past_a_menu_and_a_notice(engine):
    """They decide if only the first characters count, and do not in five windows of as many characters."""
    texts = [f"{before} {9 * text}" for before in (5 * ENGLISH, 5 * RUSSIAN) for text in (GERMAN, RUSSIAN)]
    for windows, languages in ((1, ["en", "en", "ru", "ru"]), (5, ["de", "ru", "de", "ru"])):
        stage = Language(max_characters=400, windows=windows)
        assert stage.apply(engine, frame_of(engine, texts)).columns["language"].to_pylist() == languages
    assert stage.explain() == ["keep all documents; classify 5 windows of 80 characters"]


def test_documents_below_a_probability_have_no_label(engine):
    """They keep the probability, and their place if nothing is removed."""
    frame = frame_of(engine, [ENGLISH, VAGUE])
    vague = Language().apply(engine, frame).columns["language_probability"][1]
    for bound, label in ((vague, "en"), (vague + 1e-6, None)):
        outcome = Language(label_probability=bound).apply(engine, frame)
        assert outcome.verdict is None and outcome.columns["language"].to_pylist() == ["en", label]
        assert outcome.columns["language_probability"][1] == vague
    assert outcome.details == {"en": 1, "none": 1}
    assert applied(engine, [VAGUE], keep=["en"], min_probability=0, label_probability=1)[1] == ["language"]


def test_empty_and_null_texts(engine):
    kept, reasons, _ = applied(engine, ["", None, " \n"], keep=["en"])
    assert (kept, reasons) == ([], ["language_probability"] * 3)


def test_no_rows(engine):
    kept, _, outcome = applied(engine, [], keep=["en"])
    assert (kept, outcome.details, outcome.verdict.counts()) == ([], {}, {"language": 0, "language_probability": 0})


def test_own_model_and_documents_without_a_label(engine, tmp_path):
    path = tmp_path / "own.bin"
    labels = [(b"__label__good", 2), (b"__label__bad", 1)]
    model = reference.Model([b"fine", b"poor"], labels, [[4.0], [-4.0]], [[2.0], [-2.0]])
    path.write_bytes(reference.as_bytes(model))
    kept, reasons, outcome = applied(engine, ["fine", "poor", "else"], keep=["good"], model=str(path))
    assert (kept, reasons) == ([0], ["", "language", "language"])
    assert outcome.details == {"good": 1, "bad": 1, "none": 1}
    assert outcome.verdict.value.tolist()[1:] == [pytest.approx(1.0, abs=2e-5), 0.0]


def test_a_column_may_have_any_name(engine):
    frame = frame_of(engine, TEXTS)
    wide = engine.with_columns(frame, {"self": np.arange(len(TEXTS)), "columns": frame["text"]})
    assert engine.to_arrow(wide).column("self").to_pylist() == [0, 1, 2, 3, 4]
    assert engine.to_arrow(wide).column("columns").to_pylist() == TEXTS
    assert "self" not in engine.to_arrow(frame).column_names


def test_a_run_reports_what_came(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS * 3), "utf-8")
    stages = "stages:\n- {kind: language, keep: [en]}\noutput: {formats: []}\n"
    recipe = parse_recipe(f"input:\n- {{path: '{source}'}}\n{stages}")
    run(recipe, tmp_path / "out", engine="cpu", workers=1, slice_bytes=400)
    (stage,) = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["stages"]
    assert stage["details"] == {"en": 9, "de": 3, "ru": 3}
    assert stage["reasons"] == {"language": 6, "language_probability": 3}


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("keep: [], min_probability: 0.9", "without keep the stage removes no document; give keep"),
        ("keep: [enq]", "no language 'enq' in the model; did you mean en"),
        ("keep: [en, klingon]", "no language 'klingon'"),
        ("keep: [en], min_probability: 1.5", "from 0 to 1"),
        ("keep: [en], min_probability: .nan", "from 0 to 1"),
        ("label_probability: -0.1", "label_probability must be from 0 to 1, not -0.1"),
        ("keep: [en], max_characters: -1", "0 .all. or more"),
        ("windows: 0", "windows must be from 1 to max_characters, which is 1000, not 0"),
        ("max_characters: 4, windows: 5", "windows must be from 1 to max_characters, which is 4, not 5"),
        ("max_characters: 0, windows: 5", "each window has max_characters / windows characters"),
        ("keep: [en], model: absent.bin", "no fastText model can be read at absent.bin"),
        ("keep: [en], minimum: 0.5", "unknown field"),
        ("min_probability: 0.5", "min_probability is 0.5, but without keep"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(RecipeError, match=message) as error:
        parse_recipe(f"stages:\n- {{kind: language, {settings}}}\n")
    assert "$.stages[0]" in str(error.value)
