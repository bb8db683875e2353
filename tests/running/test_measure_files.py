# SPDX-License-Identifier: Apache-2.0
"""`measures/` of a run, and `curate plan --measures`: what bounds would remove, without reading text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curation.base.errors import IntegrityError, OutputError, RecipeError
from curation.cli.main import main
from curation.results.finished.measured_rules import _count, plan_by_measures
from curation.results.finished.verify import verify
from curation.rules.decide import RULE_SETS, Rule, decide
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of, report_of, table_rows

WORDS = {"measure": "words", "min": 5, "max": 40, "reason": "words"}
SHARE = {"ratio": ["words_with_letter", "words"], "min": 0.6}
LINES = {"ratio": ["newlines", "lines"], "max": 0.95}
STAGES = [
    {"kind": "filter", "name": "filter", "rules": [WORDS, {"matches": "endoftext", "max_count": 2}, SHARE]},
    {"kind": "exact_dedup"},
    {"kind": "rewrite", "lowercase": True},
    {"kind": "filter", "name": "later", "rules": [LINES]},
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measures")
    (folder / "a.jsonl").write_bytes(records_of(made_texts(300)))
    recipe = recipe_of(folder / "a.jsonl", stages=STAGES, output={"measures": True})
    run(recipe, folder / "out", engine="cpu", slice_bytes=20_000, progress=False)
    return folder / "out"


def recipe_with(finished: Path, *rules: list[dict[str, Any]]):
    return recipe_of(finished.parent / "a.jsonl", stages=[{"kind": "filter", "rules": list(entry)} for entry in rules])


def test_measures_are_those_of_every_document_that_reached_a_filter(finished: Path, tmp_path: Path):
    assert verify(finished) == []
    stages = {stage["name"]: stage for stage in report_of(finished)["stages"]}
    rows = table_rows(finished / "measures", "doc", "stage", "words", "words_with_letter", "newlines")
    assert [row[0] for row in rows if row[1] == "filter"] == list(range(300))
    assert len([row for row in rows if row[1] == "later"]) == stages["later"]["documents_in"]
    assert rows == sorted(rows, key=lambda row: (row[0], row[1]))
    texts = made_texts(300)
    assert all(words == len(texts[doc].split()) for doc, stage, words, *_ in rows if stage == "filter")
    assert all((words is None) == (stage == "later") == (lines is not None) for _, stage, words, _, lines in rows)
    run(
        recipe_of(finished.parent / "a.jsonl", stages=STAGES, output={"measures": True}),
        tmp_path / "one",
        progress=False,
    )
    for path in (finished / "measures").iterdir():
        assert path.read_bytes() == (tmp_path / "one/measures" / path.name).read_bytes()


def test_a_plan_by_measures_counts_what_a_run_removes(finished: Path, tmp_path: Path):
    rules = [{**WORDS, "min": 20}, {**SHARE, "min": 0.8}]
    effect, later = plan_by_measures(recipe_with(finished, rules, [{**LINES, "max": 0.5}]), finished)
    run(recipe_with(finished, rules), tmp_path / "out", engine="cpu", progress=False)
    reasons = report_of(tmp_path / "out")["stages"][0]["reasons"]
    assert effect.first == reasons and effect.removed == sum(reasons.values()) > 50
    assert effect.reached == 300 and effect.of == "filter" and later.of == "later"
    assert effect.reasons["words"] == reasons["words"] and effect.reasons["words_with_letter_per_words"] > 0
    assert effect.before == sum(report_of(finished)["stages"][0]["reasons"].values())


def test_counts_equal_those_of_decide():
    chance = np.random.default_rng(0)
    names = sorted({name for rule in RULE_SETS["gopher"] for name in rule.measures})
    measures = {name: chance.integers(0, 40, 70_000) for name in names}
    rules = (*RULE_SETS["gopher"], Rule(ratio=("words", "lines"), min=0.1, max=0.3, reason="tenths"))
    verdict = decide(rules, measures, 70_000)
    beyond, first, removed = _count(rules, {name: values.astype(float) for name, values in measures.items()}, {})
    assert first == verdict.counts() and removed == np.count_nonzero(~verdict.kept)
    for rule in rules:
        assert beyond[rule.name] == np.count_nonzero(~decide([rule], measures, 70_000).kept)


def test_rules_per_language_are_judged_by_measures(tmp_path: Path):
    texts, names = made_texts(90), ["en", "de", "fr"]
    rows = [{"text": text, "language": names[k % 3], "source": names[k % 2]} for k, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {"path": str(tmp_path / "a.jsonl"), "columns": ["language"]}

    def stages(low: int, share: float) -> list[dict[str, Any]]:
        rules = {"en": [{**WORDS, "min": low}], "de": [WORDS, {**SHARE, "min": share}], "other": "keep"}
        return [{"kind": "filter", "rules": {"per": "language", "rules": rules}}]

    run(recipe_of(entry, stages=stages(5, 0.6), output={"measures": True}), tmp_path / "out", progress=False)
    stored = table_rows(tmp_path / "out/measures", "doc", "language", "words")
    assert stored == [(k, names[k % 3], len(text.split())) for k, text in enumerate(texts)]
    run(recipe_of(entry, stages=stages(30, 0.8)), tmp_path / "strict", progress=False)
    (effect,) = plan_by_measures(recipe_of(entry, stages=stages(30, 0.8)), tmp_path / "out")
    reasons = report_of(tmp_path / "strict")["stages"][0]["reasons"]
    assert {name: number for name, number in effect.first.items() if number} == reasons and len(reasons) == 2
    assert effect.before == sum(report_of(tmp_path / "out")["stages"][0]["reasons"].values())
    per_source = [{"kind": "filter", "rules": {"per": "source", "rules": {"a": [WORDS]}}}]
    assert plan_by_measures(recipe_of(entry, stages=per_source), tmp_path / "out")[0].removed > 0
    per_kind = [{"kind": "filter", "rules": {"per": "kind", "rules": {"a": [WORDS]}}}]
    with pytest.raises(RecipeError, match=r"rules per kind need the column kind, which the run in .* did not keep"):
        plan_by_measures(recipe_of({**entry, "columns": ["kind"]}, stages=per_kind), tmp_path / "out")


def test_the_command_prints_a_line_per_rule(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    recipe, head = tmp_path / "r.yaml", "stages: "  # no input: no text is read
    recipe.write_text(head + "[{kind: filter, rules: [gopher_quality]}]\n")
    assert main(["plan", str(recipe), "--measures", str(finished)]) == 2
    assert "did not keep" in capsys.readouterr().err
    recipe.write_text(head + "[{kind: filter, rules: [{words: {min: 9}}]}]\n")
    assert main(["plan", str(recipe), "--measures", str(finished)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("filter: 300 documents reached filter of")
    assert lines[1].split() == ["rule", "documents", "share", "first"] and lines[2].split()[0] == "words"
    assert lines[3].split()[:2] == ["in", "all"] and "judged in" in lines[4]


def test_what_cannot_be_judged_ends_in_one_message(finished: Path, tmp_path: Path):
    unkept = recipe_with(finished, [{"measure": "hash_signs", "max": 3}])
    with pytest.raises(
        RecipeError, match=r"rule hash_signs needs the measure 'hash_signs', which stage filter .* did not keep"
    ):
        plan_by_measures(unkept, finished)
    with pytest.raises(RecipeError, match=r"has 3 filters, but the run in .* kept measures of 2: filter, later"):
        plan_by_measures(recipe_with(finished, [WORDS], [LINES], [WORDS]), finished)
    with pytest.raises(RecipeError, match="no filter with rules on measures"):
        plan_by_measures(recipe_of(tmp_path / "x.jsonl", stages=[]), finished)
    with pytest.raises(OutputError, match="holds no finished run"):
        plan_by_measures(recipe_with(finished, [WORDS]), tmp_path)
    (tmp_path / "a.jsonl").write_bytes(records_of(["a b"]))
    run(recipe_of(tmp_path / "a.jsonl", stages=[]), tmp_path / "out", progress=False)
    with pytest.raises(OutputError, match=r"has no measures/\. Run its recipe again with output: \{measures: true\}"):
        plan_by_measures(recipe_with(finished, [WORDS]), tmp_path / "out")
    report = tmp_path / "out/report.json"
    report.write_bytes(report.read_bytes().replace(b'"seconds"', b'"secondz"', 1))
    with pytest.raises((IntegrityError, OutputError)):
        plan_by_measures(recipe_with(finished, [WORDS]), tmp_path / "out")


def test_a_run_without_filter_writes_one_empty_file(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(["a b"]))
    run(recipe_of(tmp_path / "a.jsonl", stages=[], output={"measures": True}), tmp_path / "out", progress=False)
    assert pq.read_table(tmp_path / "out/measures").num_rows == 0
    with pytest.raises(RecipeError, match="kept measures of 0: none"):
        plan_by_measures(
            recipe_of(tmp_path / "a.jsonl", stages=[{"kind": "filter", "rules": [WORDS]}]), tmp_path / "out"
        )


@pytest.mark.parametrize("samples", [-1, 21])
def test_samples_out_of_range_are_refused(samples: int):
    with pytest.raises(RecipeError, match=f"samples must be from 0 .* to 20, not {samples}"):
        recipe_of(Path("a.jsonl"), report={"samples": samples})
