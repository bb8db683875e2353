# SPDX-License-Identifier: Apache-2.0
"""Small inputs share the tasks of a run and keep what is theirs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from curation.base.system.sessions import TaskSession
from curation.reading import slices
from curation.reading.inputs import input_names, list_inputs
from curation.recipes.recipe import Recipe
from curation.results.finished.verify import verify
from curation.running.planning import survey
from curation.running.run import run
from tests.runs import digests, made_texts, recipe_of, records_of, rejected_rows

FEW, MANY = 8, 24
WORDS = {"kind": "filter", "rules": [{"measure": "words", "min": 12}]}
SHORT = [WORDS, "exact_dedup", {"kind": "filter", "rules": [{"measure": "characters", "min": 60}]}]
STAGES = [WORDS, "line_dedup", SHORT[2], "exact_dedup"]
OUTPUT = {
    "formats": [], "removed": "text", "measures": True, "raw": "jsonl", "cleaned": "jsonl", "part_documents": 4,
}  # fmt: skip
MIX = {"kind": "mix", "weights": {f"n{number}": 1 + number % 3 for number in range(MANY) if number not in (4, 7)}}
SPLIT = {"split": {"sentences": 2}}


def inputs_of(folder: Path, count: int, each: dict[str, Any]) -> list[dict[str, Any]]:
    """Inputs of a few documents: with blank lines, wrong records, ids, limits, samples, no document, in two formats."""
    folder.mkdir()
    made, inputs = made_texts(count * 7, 3), []
    for number in range(count):
        texts = made[7 * number : 7 * number + 7]
        path = folder / f"{number}.jsonl"
        lines = records_of(texts, url="u").splitlines(keepends=True)
        if number % 4 == 1:
            lines[2:2] = [b"\n", b"not json\n", b'{"text": 5}\n']
        if number % 4 == 2:
            lines[3] = json.dumps({"text": texts[3], "id": f"own-{number}"}).encode() + b"\n"
            lines[4] = b'{"text": "bad \xff byte"}\n'
        path.write_bytes(b"" if number == 7 else b"".join(lines))
        if number == 4:
            path = path.with_suffix(".csv")
            path.write_text("text,url\n" + "".join(f"{place} of a table,\n" for place in range(9)))
        inputs.append({"path": str(path), "name": f"n{number}", "columns": ["url"], **each})
    inputs[3] |= {"skip": 1, "limit": 4}
    inputs[5] |= {"max_documents": 2}
    inputs[6] |= {"sample": 0.5}
    return inputs


def counted_run(recipe: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Counter[str]:
    """Run a recipe and count its tasks by their function."""
    counts: Counter[str] = Counter()
    real = TaskSession.run

    def watched(self: Any, function: Any, items: Any, *done: Any) -> None:
        chosen = list(items)
        name = next((part.__name__ for part in function.args if callable(part)), function.func.__name__)
        counts[name] += len(chosen)
        real(self, function, chosen, *done)

    with monkeypatch.context() as patch:
        patch.setattr(TaskSession, "run", watched)
        run(recipe, folder, engine="cpu", workers=1, progress=False, **options)
    return counts


@pytest.mark.parametrize(
    ("count", "each", "stages"),
    [(FEW, {"copies": 2}, SHORT), pytest.param(MANY, {}, STAGES, marks=pytest.mark.slow("many inputs share tasks")),
     pytest.param(MANY, {}, [WORDS, MIX], marks=pytest.mark.slow("many inputs share tasks")),
     pytest.param(MANY, SPLIT, STAGES, marks=pytest.mark.slow("many inputs share tasks"))],
)  # fmt: skip
def test_inputs_that_share_tasks_write_what_they_write_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, each: dict[str, Any], stages: list[Any]
):
    """Counts, limits, ids, lines of rejected records and warnings of each input do not depend on its tasks."""
    recipe = recipe_of(*inputs_of(tmp_path / "text", count, each), stages=stages, output=OUTPUT)
    shared = counted_run(recipe, tmp_path / "shared", monkeypatch)
    monkeypatch.setattr(slices, "MAX_FILES_PER_SLICE", 1)  # of a task, too
    alone = counted_run(recipe, tmp_path / "alone", monkeypatch)
    segments = shared["run_slice"]
    assert segments <= 2 and alone["run_slice"] == segments * count
    assert shared["write_output_parts"] == shared["run_sums"] // segments == 1
    assert digests(tmp_path / "shared") == digests(tmp_path / "alone")
    assert verify(tmp_path / "shared") == [] and len(rejected_rows(tmp_path / "shared")) >= count // 2


@pytest.mark.slow("the pairs of small inputs share tasks")
def test_pairs_of_small_inputs_share_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = recipe_of(
        *inputs_of(tmp_path / "text", MANY, {}), stages=[], output={"splits": {"train": 0.5, "valid": 0.5}}
    )
    counts = counted_run(recipe, tmp_path / "out", monkeypatch)
    assert counts["finish"] <= 4 and len(list((tmp_path / "out" / "tokens").glob("*.bin"))) >= MANY
    assert verify(tmp_path / "out") == []


def test_an_estimate_measures_the_largest_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The others are estimated by them; each input has its own share of the documents."""
    from curation.base.engine import load_engine
    from curation.reading.formats import probe
    from curation.reading.paths import find_files

    recipe = recipe_of(*inputs_of(tmp_path / "text", MANY, {}), stages=[WORDS, MIX], output=OUTPUT)
    files = [probe(file) for file in find_files(recipe.input)]
    whole = survey.survey_inputs(recipe, files, load_engine("cpu"), None)
    monkeypatch.setattr(survey, "MOST_KINDS", 6)
    calls: list[int] = []
    real = survey.measure
    monkeypatch.setattr(survey, "measure", lambda *given: calls.append(1) or real(*given))
    found = survey.survey_inputs(recipe, files, load_engine("cpu"), None)
    assert len(calls) == 7  # the first one loads the kernels
    assert found.documents == whole.documents and 0.6 < found.kept_bytes / whole.kept_bytes < 1.6
    assert {*found.stages[1].groups} == {*whole.stages[1].groups}


def test_names_of_many_inputs_are_found_in_one_pass(tmp_path: Path):
    paths = [str(tmp_path / f"{number}" / "x.jsonl") for number in range(1000)]
    assert input_names(list_inputs(paths))[:3] == ["x", "x-2", "x-3"]
