# SPDX-License-Identifier: Apache-2.0
"""`curation.generate` with a model that is a function: which requests it sends, what it stores, what it makes of it.

`test_endpoint.py` has the same over HTTP, with the package `openai`.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.base.errors import OutputError
from curation.base.system.interrupts import check as check_interrupts
from curation.cli import main
from curation.reading import texts
from curation.tools.synthesis import answers
from curation.tools.synthesis.endpoint import FailedError
from curation.tools.synthesis.task import load_task, shipped_tasks
from tests.runs import records_of
from tests.tools.model import TASK, documents_in, files_of

SCORE = TASK | {"kind": "score", "prompt": "Score {text}", "answer": "Score: {quality}"}


def test_documents_are_in_the_order_of_requests_and_a_second_call_asks_nothing(use: Any, tmp_path: Path):
    turns = threading.Barrier(2)

    def late_first(prompt: str) -> str:  # the second answer arrives before the first
        if prompt in ("on a", "on b"):
            turns.wait(5)
        if prompt == "on a":
            threading.Event().wait(0.05)
        return f"written {prompt}"

    models = use(late_first)
    found = curation.generate(TASK | {"documents": 5, "concurrency": 2}, tmp_path / "out")
    assert sorted(models.prompts) == ["on a", "on a", "on b", "on b", "on c"]
    assert [entry["text"] for entry in documents_in(tmp_path / "out")] == [f"written on {name}" for name in "abcab"]
    assert found.report["requests"] == {
        "answered": 5,
        "cut": 0,
        "refused": 0,
        "empty": 0,
        "with_key": 0,
        "missing": 0,
        "unused": 0,
    }
    first = documents_in(tmp_path / "out")[0]
    assert first == {"id": first["id"], "text": "written on a", "synthetic": True, "model": "m",
                     "task": found.report["task"], "seed_id": "seed/0"}  # fmt: skip
    before, models = files_of(tmp_path / "out"), use(late_first)
    again = curation.generate(TASK | {"documents": 5, "endpoint": "http://localhost:1/v1"}, tmp_path / "out")
    assert (models.prompts, again.asked, files_of(tmp_path / "out")) == ([], 0, before)
    more = curation.generate(TASK | {"documents": 6}, tmp_path / "out")
    assert (models.prompts, more.asked) == (["on c"], 1)
    fewer = curation.generate(TASK | {"documents": 2}, tmp_path / "out")
    assert fewer.report["requests"]["unused"] == 4 and len(documents_in(tmp_path / "out")) == 2
    assert repr(fewer) == f"<generated 2 documents in '{tmp_path}/out/documents.jsonl'; 0 missing>"


def test_what_a_model_does_not_answer_is_counted(use: Any, tmp_path: Path):
    told = {
        "on a": {"text": "half", "outcome": "cut"}, "on b": {"text": "no", "outcome": "refused"},
        "on c": {"text": "", "outcome": "empty"}, "on d": "fine",
    }  # fmt: skip
    use(told.__getitem__)
    report = curation.generate(TASK | {"seeds": [*"abcdd"]}, tmp_path / "out").report
    assert report["items"] == {"written": 1, "cut": 1, "empty": 1, "refused": 1, "repeated": 1}
    assert report["requests"] == {
        "answered": 1,
        "cut": 1,
        "refused": 1,
        "empty": 1,
        "with_key": 0,
        "missing": 0,
        "unused": 0,
    }
    assert report["tokens"] == {"prompt": 40, "answer": 3, "estimated": 0} and report["documents"] == 1


def test_placeholders_are_replaced_as_text(use: Any, tmp_path: Path):
    models = use(lambda prompt: "x")
    seed = {"text": "{id} {{topic}}", "topic": "{0.__class__} %s"}
    task = TASK | {"prompt": '{topic}|{text}|{{text}}|{ x }|{"a": {}}', "seeds": [seed], "system": "{text}", "seed": 7}
    curation.generate(task | {"documents": 2, "parameters": {"stop": ["|"]}, "temperature": 0.5}, tmp_path / "out")
    assert models.prompts[0] == '{0.__class__} %s|{id} {{topic}}|{text}|{ x }|{"a": {}}'
    messages = [{"role": "system", "content": "{text}"}, {"role": "user", "content": models.prompts[0]}]
    expected = {"model": "m", "messages": messages, "temperature": 0.5, "max_tokens": 1024, "stop": ["|"]}
    assert sorted(models.requests, key=lambda request: request["seed"]) == [
        expected | {"seed": 7},
        expected | {"seed": 8},
    ]
    curation.generate(task | {"max_characters": 2}, tmp_path / "short")
    assert models.prompts[2] == '{0|{i|{text}|{ x }|{"a": {}}'


def test_documents_of_files_are_scored_and_unclear_answers_asked_once_more(use: Any, tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(
        records_of(["good", "bad", "vague", "wild", "two"]) + b'{"text": 1}\n{"text": "own", "id": 5}\n'
    )
    attempts: list[str] = []

    def judge(prompt: str) -> str:
        attempts.append(prompt.split()[-1])
        if prompt == "Score vague" and attempts.count("vague") == 2:
            return "Score: 1"
        return {"good": "I say\nScore: 4", "bad": " Score: 0 ", "vague": "Score: 4/5", "wild": "Score: 9",
                "two": "Score: 1\nScore: 2", "own": "Score: 5"}[attempts[-1]]  # fmt: skip

    use(judge)
    task = {name: value for name, value in SCORE.items() if name != "seeds"} | {"concurrency": 1}
    with pytest.warns(curation.InputWarning, match="1 of 7 records are no documents") as warned:
        report = curation.generate(task, tmp_path / "out", input=tmp_path / "in.jsonl").report
    assert len(warned) == 1
    scores = {entry["text"]: entry["quality"] for entry in documents_in(tmp_path / "out")}
    assert scores == {"good": 4, "bad": 0, "vague": 1, "own": 5}
    assert attempts == ["good", "bad", "vague", "wild", "two", "own", "vague", "wild", "two"]
    assert report["items"] == {"written": 4, "unparsable": 2} and report["requests"]["answered"] == 9
    assert [entry["id"] for entry in documents_in(tmp_path / "out")][-1] == "5"
    assert documents_in(tmp_path / "out")[0] == {
        "id": "in/0", "text": "good", "quality": 4, "model": "m", "task": report["task"]
    }  # fmt: skip


def test_a_budget_ends_the_call_and_a_larger_one_goes_on(use: Any, tmp_path: Path):
    models = use(lambda prompt: "one two")  # 12 tokens each
    task = TASK | {"max_tokens": 20, "concurrency": 2}
    first = curation.generate(task | {"budget_tokens": 34}, tmp_path / "out")
    assert first.is_spent and (len(models.prompts), first.report["requests"]["missing"]) == (2, 1)
    second = curation.generate(task | {"budget_tokens": 45}, tmp_path / "out")
    assert not second.is_spent and (len(models.prompts), second.report["requests"]["missing"]) == (3, 0)
    assert first.report["tokens"]["prompt"] + first.report["tokens"]["answer"] <= 34


def test_failures_are_asked_again_by_the_next_call(use: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def fails(prompt: str) -> str:
        if prompt == "on b":
            raise FailedError("the endpoint answers 503: busy")
        return prompt

    (tmp_path / "task.json").write_text(json.dumps(TASK))
    models, command = use(fails), ["generate", str(tmp_path / "task.json"), "-o", str(tmp_path / "out")]
    assert main(command) == 1
    told = capsys.readouterr()
    assert "1 request failed, the last: the endpoint answers 503: busy. Rerun the same command" in told.err
    assert "2 answered, 1 missing" in told.out and len(models.prompts) == 3
    models = use(lambda prompt: prompt)
    assert main([*command, "--log", "json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (models.prompts, result["asked"], result["items"]) == (["on b"], 1, {"written": 3})


def test_a_dead_endpoint_ends_the_call_and_keeps_what_was_answered(use: Any, tmp_path: Path):
    def dies(prompt: str) -> str:
        if int(prompt.split()[-1]) >= 5:
            raise FailedError("gone")
        return prompt

    models, task = use(dies), TASK | {"seeds": [str(number) for number in range(90)], "concurrency": 3}
    with pytest.raises(curation.InputError, match=r"gone. 20 requests in a row failed, 5 answers stored. Rerun"):
        curation.generate(task, tmp_path / "out")
    assert len(models.prompts) < 30

    def fails_sometimes(prompt: str) -> str:
        if int(prompt.split()[-1]) % 2:
            raise FailedError("busy")
        return prompt

    use(fails_sometimes)
    assert curation.generate(task | {"concurrency": 1}, tmp_path / "busy").failed == 45
    models = use(lambda prompt: prompt)
    assert curation.generate(task, tmp_path / "out").asked == 85


REFUSED = {"outcome": "refused", "finish_reason": "HTTP 400", "text": "it answers 400: too long", "prompt_tokens": 0}


def test_refusals_by_the_endpoint_are_stored_after_the_first_answer_only(use: Any, tmp_path: Path):
    models = use(lambda prompt: REFUSED if prompt != "on c" else "fine")
    report = curation.generate(TASK | {"concurrency": 1}, tmp_path / "some").report
    assert report["items"] == {"written": 1, "refused": 2} and len(models.prompts) == 3
    assert curation.generate(TASK, tmp_path / "some").asked == 0
    use(lambda prompt: REFUSED)
    with pytest.raises(curation.InputError, match=r"it answers 400: too long. The endpoint has answered no other"):
        curation.generate(TASK, tmp_path / "none")
    assert (tmp_path / "none" / "answers.jsonl").read_bytes() == b""
    with pytest.raises(curation.InputError, match=r"too long. 20 requests in a row failed, 0 answers"):
        curation.generate(TASK | {"documents": 60, "seed": 1}, tmp_path / "many")


OF_BEFORE = """\
{"key":"31036633907ad81cb90491b758b15960","request":{"model":"m","messages":[{"role":"user","content":"on a"}],\
"max_tokens":1024},"outcome":"answered","text":"said","finish_reason":"stop","prompt_tokens":10,"answer_tokens":1,\
"is_estimated":false,"retries":0,"time":0.0}
{"key":"4c8ad861e8aaf4e990d42cbcdf39ebb8","request":{"model":"m","messages":[{"role":"user","content":"on b"}],\
"max_tokens":1024},"outcome":"refused","text":"it answers 400: too long","finish_reason":"HTTP 400","prompt_tokens":0,\
"answer_tokens":0,"is_estimated":false,"retries":0,"time":0.0}
"""


def test_answers_of_an_earlier_version_are_used(use: Any, tmp_path: Path):
    """Written by commit 53660083. The identity of its task is that of today, too."""
    task = {"kind": "template", "model": "m", "input": [], "seeds": ["a", "b"], "system": "", "max_characters": 0,
            "max_tokens": 1024, "parameters": {}, "prompt": "on {text}"}  # fmt: skip
    (tmp_path / "task.json").write_text(json.dumps(task))
    (tmp_path / "answers.jsonl").write_text(OF_BEFORE)
    models = use(lambda prompt: "x")
    found = curation.generate(TASK | {"seeds": ["a", "b"]}, tmp_path)
    assert (models.prompts, found.report["items"]) == ([], {"written": 1, "refused": 1})
    assert (tmp_path / "documents.jsonl").read_bytes() == (
        b'{"id":"31036633907ad81cb90491b758b15960","text":"said","synthetic":true,"model":"m","task":"%s","seed_id":"seed/0"}\n'
        % found.report["task"].encode()
    )


def test_a_kill_loses_no_answer_and_a_torn_line_is_asked_again(use: Any, tmp_path: Path):
    def killed(prompt: str) -> str:
        if prompt == "on c":
            raise KeyboardInterrupt
        return prompt

    use(killed)
    with pytest.raises(KeyboardInterrupt):
        curation.generate(TASK | {"concurrency": 1}, tmp_path / "out")
    stored = (tmp_path / "out" / "answers.jsonl").read_bytes()
    assert stored.count(b"\n") == 2
    (tmp_path / "out" / "answers.jsonl").write_bytes(stored[:-9])
    models = use(lambda prompt: prompt)
    found = curation.generate(TASK | {"concurrency": 1}, tmp_path / "out")
    assert (models.prompts, found.notice) == (
        ["on b", "on c"],
        f"{tmp_path}/out/answers.jsonl: an earlier call was killed while it wrote line 2, which is asked again",
    )
    again = curation.generate(TASK, tmp_path / "out")
    assert (again.asked, again.notice) == (0, "")
    use(lambda prompt: prompt)
    curation.generate(TASK | {"concurrency": 1}, tmp_path / "whole")
    assert files_of(tmp_path / "out")["documents.jsonl"] == files_of(tmp_path / "whole")["documents.jsonl"]
    (tmp_path / "out" / "answers.jsonl").write_bytes(b"{}\n" + stored)
    with pytest.raises(curation.IntegrityError, match=r"answers.jsonl: line 1 is damaged \(.*\). Delete the line"):
        curation.generate(TASK, tmp_path / "out")


def test_answers_that_arrive_after_the_end_are_kept(use: Any, tmp_path: Path):
    others = threading.Barrier(3)

    def refused(prompt: str) -> str:
        others.wait(5)
        if prompt == "on b":
            raise curation.InputError("it answers 401")
        if prompt == "on c":  # waits for a retry, as an endpoint does
            for _ in range(500):
                check_interrupts()
                threading.Event().wait(0.01)
        threading.Event().wait(0.1)
        return prompt

    use(refused)
    begun = time.monotonic()
    with pytest.raises(curation.InputError, match="it answers 401"):
        curation.generate(TASK, tmp_path / "out")
    assert (tmp_path / "out" / "answers.jsonl").read_bytes().count(b"\n") == 1
    assert time.monotonic() - begun < 4


def test_answers_are_synced_before_the_next_one_is_asked(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, synced = tmp_path / "out" / "answers.jsonl", [0]
    monkeypatch.setattr(answers.os, "fsync", lambda file: synced.append(path.stat().st_size if path.exists() else 0))
    sizes: list[tuple[int, int]] = []
    use(lambda prompt: sizes.append((path.stat().st_size, max(synced))) or "x")
    curation.generate(TASK | {"concurrency": 1}, tmp_path / "out")
    assert len({size for size, _ in sizes}) == 3 and all(size == known for size, known in sizes)


WRONG = [
    (TASK | {"endpoint": "localhost:8000"}, "task: endpoint must be a URL with http:// or https://, such as"),
    (TASK | {"endpoint": "file:///etc/passwd"}, "task: endpoint must be a URL with http:// or https://"),
    (TASK | {"endpoint": ""}, "task: endpoint must be a URL"),
    (TASK | {"model": ""}, "task: model is empty, expected the name of a model"),
    (TASK | {"kind": "template2"}, "task: kind is 'template2'; did you mean template?"),
    ({}, "task: kind is None; expected one of template, score, self_instruct"),
    (TASK | {"prompts": "x"}, "task: Object contains unknown field `prompts`; did you mean prompt?"),
    ({"kind": "template", "prompt": "x", "model": "m"}, "task: Object missing required field `endpoint`"),
    (TASK | {"seeds": []}, "task: one of input and seeds is needed, and both are empty. Give --input PATH"),
    (TASK | {"input": ["x.jsonl"]}, "task: one of input and seeds is needed, and both are set"),
    (TASK | {"input": ["hf:a/b"], "seeds": []}, "hf:a/b is streamed: run a recipe with this input"),
    (TASK | {"prompt": "on {topic}"}, "{topic} (a text in braces is written {{topic}}); expected one of id, text"),
    (TASK | {"prompt": "on {texts}"}, "{{texts}}); did you mean text? - at `$.seeds[0]`"),
    (TASK | {"retries": -1}, "task: retries must be at least 0, not -1"),
    (TASK | {"concurrency": 0}, "task: concurrency must be at least 1, not 0"),
    (TASK | {"timeout_seconds": 0}, "task: timeout_seconds must be above 0 and at most 86400, not 0"),
    (TASK | {"temperature": "hot"}, "task: Expected `float`, got `str` - at `$.temperature`"),
    (TASK | {"parameters": {"stream": True}}, "task: parameters has 'stream', which generate sets itself"),
    (TASK | {"budget_tokens": 1000}, "budget_tokens 1,000 is below one request, which may use 1,025 tokens. Raise it"),
    (SCORE | {"prompt": "Score it"}, "task: prompt has no {text}, so the model would not see the document"),
    (SCORE | {"answer": "Score"}, "answer must have the name of one column in braces, such as 'Score: {quality}'"),
    (SCORE | {"answer": "{text}"}, "task: answer names the column 'text', which the documents have"),
    (SCORE | {"min": 6}, "task: min 6 is above max 5. Swap them"),
    ("rephrse", "no task named 'rephrse'; did you mean rephrase?"),
    ("gone.yaml", "task gone.yaml does not exist; give a YAML file or one of educational_score, rephrase"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_wrong_tasks(task: Any, message: str, tmp_path: Path):
    with pytest.raises((curation.RecipeError, curation.InputError)) as raised:
        curation.generate(task, tmp_path / "out")
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["answers.jsonl", "documents.jsonl", "report.json", "task.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "hard link"])
def test_no_answer_is_written_through_a_link(use: Any, tmp_path: Path, name: str, kind: str):
    out, mine = tmp_path / "out", tmp_path / "mine"
    use(lambda prompt: prompt)
    curation.generate(TASK | {"documents": 2}, out)
    (out / name).rename(mine)
    if kind == "pipe":
        os.mkfifo(out / name)
    else:
        (out / name).symlink_to(mine) if kind == "link" else os.link(mine, out / name)
    before = mine.read_bytes()
    if kind == "hard link" and name != "answers.jsonl":  # replaced, not written
        curation.generate(TASK | {"documents": 3}, out)
    else:
        with pytest.raises(OutputError, match=rf"{name} (is a link|is a pipe|has another name)"):
            curation.generate(TASK | {"documents": 3}, out)
    assert mine.read_bytes() == before


def test_wrong_folders_and_inputs(use: Any, tmp_path: Path):
    use(lambda prompt: "x")
    curation.generate(TASK, tmp_path / "out")
    with pytest.raises(curation.OutputError, match=r"of another task: model, prompt differ. Give a new"):
        curation.generate(TASK | {"model": "n", "prompt": "{text}"}, tmp_path / "out")
    with pytest.raises(curation.OutputError, match="is not empty"):
        curation.generate(TASK, tmp_path)
    (tmp_path / "empty.jsonl").write_bytes(b"")
    without = {name: value for name, value in TASK.items() if name != "seeds"}
    with pytest.raises(curation.InputError, match="input has no documents"):
        curation.generate(without, tmp_path / "nothing", input=tmp_path / "empty.jsonl")
    (tmp_path / "in.jsonl").write_bytes(b'{"topic": "tides", "level": 3}\n')
    with pytest.raises(curation.InputError, match="text"):
        curation.generate(without, tmp_path / "none", input=tmp_path / "in.jsonl")


def test_columns_of_files_are_fields(use: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "SLICE_BYTES", 30)  # several slices
    (tmp_path / "in.jsonl").write_bytes(
        b'{"topic": "tides", "level": 3}\n{"topic": "ice", "level": null}\n{"topic": "fog"}\n'
    )
    models, without = use(lambda prompt: "x"), {name: value for name, value in TASK.items() if name != "seeds"}
    task = without | {"prompt": "{topic}, {level}", "concurrency": 1}
    curation.generate(task, tmp_path / "out", input=tmp_path / "in.jsonl")
    assert models.prompts == ["tides, 3", "ice, ", "fog, "]
    assert [entry["seed_id"] for entry in documents_in(tmp_path / "out")] == ["in/0", "in/1", "in/2"]
    identity = load_task(without, "s3://key:secret@bucket/a.jsonl").identity
    assert [entry["path"] for entry in identity["input"]] == ["s3://bucket/a.jsonl"]


def test_shipped_tasks_load():
    names = [*shipped_tasks()]
    assert names == ["educational_score", "rephrase"]
    for name in names:
        task = load_task(name, "in.jsonl", ["endpoint=http://localhost:8000/v1", "model=m"])
        assert task.names() == ["text"]
