# SPDX-License-Identifier: Apache-2.0
"""Self-Instruct with a model that is a function: rounds, novelty, classification and instances."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.tools.synthesis.self_instruct import LABEL_FIRST, _instances, _listed
from curation.tools.synthesis.task import Request
from tests.needs import needs
from tests.tools.model import TASK, documents_in, files_of, stored

needs("rapidfuzz")

SEEDS = [
    {"instruction": "Say in one word which mood the sentence has.", "input": "I won!", "output": "happy",
     "is_classification": "true"},
    {"instruction": "Write a haiku about the season that is given.", "input": "spring", "output": "Buds and rain",
     "is_classification": "false"},
]  # fmt: skip
MAKE = {name: value for name, value in TASK.items() if name != "prompt"} | {"kind": "self_instruct", "seeds": SEEDS}
NOUNS = ["river", "glacier", "comet", "harbour", "violin", "orchard", "turbine", "mosaic", "lantern", "falcon"]


def model(prompt: str) -> str:
    """A model whose answers follow from the prompt alone."""
    if prompt.startswith("Come up"):
        first = int(re.findall(r'as "Task (\d+)', prompt)[0])
        chance = random.Random(prompt)
        tasks = [" ".join(chance.sample(NOUNS, 5)) + f" {chance.random():.3f} explained" for _ in range(6)]
        tasks += ["Say in one word which mood a sentence has.", "Draw a picture of a very old house."]
        return "\n".join(f"Task {first + number}: {task}" for number, task in enumerate(tasks))
    last = prompt.rpartition("Task: ")[2]
    if "Classification:" in last:
        return "Yes." if "river" in last else "no" if "comet" in last else "perhaps"
    if prompt.startswith("For the classification"):
        return "Label: wet\nInput: the sea\nLabel: dry\nInput: sand\nLabel: damp\nInput: the sea"
    return "Input: one\nOutput: first\nInput: two\nOutput:\nInput: three\nOutput: third\nline"


def test_instructions_are_new_and_have_instances(use: Any, tmp_path: Path):
    models = use(model)
    found = curation.generate(MAKE | {"documents": 30}, tmp_path / "out")
    made, items = documents_in(tmp_path / "out"), found.report["items"]
    rounds = [prompt for prompt in models.prompts if prompt.startswith("Come up")]
    asked = [prompt for prompt in models.prompts if prompt.endswith("Classification:")]
    assert len(asked) == 30 and len(models.prompts) == found.report["requests"]["answered"]
    assert items["similar"] + items["unsuitable"] + items.get("surplus", 0) + 30 == 8 * len(rounds)
    assert items["unsuitable"] == len(rounds) and items["similar"] >= len(rounds)
    assert items["written"] + items["unparsable"] == 30 and found.report["requests"]["missing"] == 0
    labelled = [entry for entry in made if entry["is_classification"]]
    assert {(entry["input"], entry["output"]) for entry in labelled} == {("sand", "dry")}  # the sea has two labels
    assert {(entry["input"], entry["output"]) for entry in made if not entry["is_classification"]} == {
        ("one", "first"), ("three", "third\nline")
    }  # fmt: skip
    assert labelled[0]["text"] == f"{labelled[0]['instruction']}\n\nsand\n\ndry" and labelled[0]["synthetic"] is True
    assert len({entry["id"] for entry in made}) == len(made)
    shown = [set(re.findall(r"^Task \d+: (.*)", prompt, re.M)) for prompt in rounds]
    seeds = {seed["instruction"] for seed in SEEDS}
    assert shown[0] == seeds and any(len(tasks - seeds) == 2 for tasks in shown[-4:])
    models = use(lambda prompt: model(prompt) if prompt.startswith("Come up") else "no")
    curation.generate(MAKE | {"documents": 30, "seed": 1}, tmp_path / "other")
    assert {prompt for prompt in models.prompts if prompt.startswith("Come up")} != {*rounds}


def test_a_kill_between_any_two_answers_changes_nothing(use: Any, tmp_path: Path):
    models, task = use(model), MAKE | {"documents": 20, "concurrency": 3, "seed": 5}
    curation.generate(task, tmp_path / "whole")
    wanted = len(models.prompts)
    left, calls, sent = 0, 0, 0

    def killed(prompt: str) -> str:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return model(prompt)

    while True:
        left, calls, models = 7, calls + 1, use(killed)
        try:
            curation.generate(task, tmp_path / "killed")
            break
        except KeyboardInterrupt:
            sent += 7
    assert calls > 5 and sent < wanted <= sent + 7
    whole, killed_files = files_of(tmp_path / "whole"), files_of(tmp_path / "killed")
    assert killed_files["documents.jsonl"] == whole["documents.jsonl"]
    assert killed_files["report.json"] == whole["report.json"]
    assert sorted(killed_files["answers.jsonl"].splitlines()) == sorted(whole["answers.jsonl"].splitlines())


def test_seeds_of_a_file_have_truth_values(use: Any, tmp_path: Path):
    records = [seed | {"is_classification": seed["is_classification"] == "true"} for seed in SEEDS]
    (tmp_path / "seeds.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    task = {name: value for name, value in MAKE.items() if name != "seeds"} | {"documents": 8}
    use(model)
    curation.generate(task, tmp_path / "file", input=tmp_path / "seeds.jsonl")
    curation.generate(MAKE | {"documents": 8}, tmp_path / "list")
    texts = [[entry["text"] for entry in documents_in(tmp_path / name)] for name in ("file", "list")]
    assert texts[0] == texts[1] and len(texts[0]) > 4


def test_a_model_that_repeats_itself_ends_the_rounds(use: Any, tmp_path: Path):
    use(lambda prompt: "Task 9: Tell me what a glacier is made of." if prompt.startswith("Come up") else "no")
    found = curation.generate(MAKE | {"documents": 10}, tmp_path / "out")
    assert found.report["items"] == {"written": 0, "similar": 11, "unparsable": 1}
    assert found.report["requests"]["answered"] == 14


def test_rouge_l_is_that_of_the_reference(use: Any, tmp_path: Path):
    """2 LCS / (m + n) over words: 7 of 10 shared words in order are 0.7, which is left out."""
    words = [f"w{number}" for number in range(10)]
    told = [" ".join(words), " ".join([*words[:7], "x", "y", "z"]), " ".join([*words[:6], "p", "q", "r", "s"])]
    answer = "\n".join(f"{number}. {text}" for number, text in enumerate(told, 1))
    use(lambda prompt: answer if prompt.startswith("Come up") else "no idea")
    report = curation.generate(MAKE | {"documents": 2}, tmp_path / "out").report
    assert report["items"] == {"written": 0, "similar": 1, "unparsable": 2}


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("input", "Output: alone", [("", "alone")]),
        ("input", "Input: a\nOutput: b\n\nInput: a\nOutput: b", [("a", "b")]),
        ("input", "Input: a\nOutput: b\nInput: a\nOutput: c", []),
        ("input", "nothing of it", []),
        (LABEL_FIRST, "Label: yes\nInput: sun\nmoon\nLabel: no", [("sun\nmoon", "yes"), ("", "no")]),
    ],
)
def test_instances_of_an_answer(form: str, text: str, expected: list[tuple[str, str]]):
    assert _instances(form, text) == expected


def test_the_last_task_of_a_cut_answer_is_left_out():
    request = Request("key", {})
    text = "Sure!\nTask 9: One two\n10) Three four\n* 11. Fi"
    assert _listed(stored(request, text)) == ["One two", "Three four", "Fi"]
    assert _listed(stored(request, {"text": text, "outcome": "cut"})) == ["One two", "Three four"]
    assert _listed(stored(request, {"text": text, "outcome": "refused"})) == _listed(None) == []


def test_seeds_without_a_field(tmp_path: Path):
    with pytest.raises(curation.RecipeError, match=r"no field for the placeholder \{is_classification\}"):
        curation.generate(MAKE | {"documents": 3, "seeds": [SEEDS[0], dict([*SEEDS[1].items()][:3])]}, tmp_path)
