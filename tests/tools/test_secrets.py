# SPDX-License-Identifier: Apache-2.0
"""The key of an endpoint, and the password and query of its URL, are only sent: no file, message or log has them."""

from __future__ import annotations

import base64
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.cli import main
from curation.tools.synthesis.credentials import MIN_CHARACTERS, Credentials
from curation.tools.synthesis.task import load_task
from tests.needs import needs
from tests.runs import records_of
from tests.tools.endpoint import Local, Reply, completion, serving
from tests.tools.model import documents_in

needs("openai")
KEY = 'sk-proj/abc+DEF"4567'
SPELLED = [  # in JSON and around it
    KEY.replace('"', r"\""), KEY.replace("/", r"\/").replace('"', r"\""), "".join(f"\\u{ord(c):04x}" for c in KEY),
    KEY.replace("/", r"\\/").replace('"', r"\\\""), KEY.replace("/", "%2F").replace('"', "%22"),
]  # fmt: skip
SHORT = ["EMPTY", "ollama", "test", "k", "x" * (MIN_CHARACTERS - 1)]


def task_of(local: Local, **more: Any) -> dict[str, Any]:
    return {"kind": "template", "endpoint": local.url, "model": "m", "seeds": ["a"], "prompt": "on {text}",
            "key_variable": "TEST_KEY", "retries": 0, **more}  # fmt: skip


def everything(folder: Path) -> str:
    return "".join(path.read_text("utf-8") for path in folder.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "*")


def test_answers_with_the_key_are_stored_without_it_and_not_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bodies = [json.dumps(completion("your key is KEY, yes")).replace("KEY", spelled).encode() for spelled in SPELLED]
    bodies += [json.dumps(completion("fine", "KEY")).replace("KEY", spelled).encode() for spelled in SPELLED]
    bodies += [json.dumps(completion(None)).replace("null", '[{"text": "KEY"}]').replace("KEY", SPELLED[1]).encode()]
    bodies += [json.dumps({"choices": [{"message": {"refusal": KEY}}]}).encode()]
    seeds = [f"seed {number}" for number in range(len(bodies) + 1)]

    def answer(request: Any, number: int) -> Any:
        number = seeds.index(request["messages"][0]["content"].removeprefix("on "))
        return Reply(bodies[number]) if number < len(bodies) else "fine"

    with serving(answer) as local:
        (tmp_path / "task.json").write_text(json.dumps(task_of(local, seeds=seeds)))
        command = ["generate", str(tmp_path / "task.json"), "-o", str(tmp_path / "out")]
        for asked in (len(seeds), 0):
            assert main(command) == 0
            told = capsys.readouterr()
            assert f"{len(bodies)} answers with the key of the endpoint, stored as [key]" in told.err
            assert f"1 answered, {len(bodies)} with_key" in told.out and f"asked {asked} now" in told.out
            assert KEY not in told.out + told.err
    assert [entry["text"] for entry in documents_in(tmp_path / "out")] == ["fine"]
    stored = [json.loads(line) for line in (tmp_path / "out" / "answers.jsonl").read_text("utf-8").splitlines()]
    assert sum(entry["outcome"] == "with_key" for entry in stored) == len(bodies)
    assert sum("[key]" in entry["text"] + entry["finish_reason"] for entry in stored) == len(bodies)
    assert KEY not in everything(tmp_path / "out") and KEY[:12] not in everything(tmp_path / "out")


@pytest.mark.parametrize("kind", ["score", "self_instruct"])
def test_no_second_request_follows_an_answer_with_the_key(kind: str, tmp_path: Path):
    score = {"kind": "score", "prompt": "{text}", "answer": "Score: {quality}"}
    seed = {"instruction": "Say it.", "input": "", "output": "", "is_classification": "true"}
    more = {"kind": kind, "documents": 1, "seeds": [seed], "prompt": None} if kind == "self_instruct" else score
    with serving(lambda request, number: f"Score: 3 {KEY}") as local:
        task = {name: value for name, value in task_of(local, **more).items() if value is not None}
        with pytest.warns(curation.InputWarning, match="with the key of the endpoint"):
            found = curation.generate(task, tmp_path)
    assert len(local.requests) == found.report["requests"]["with_key"] and found.report["documents"] == 0
    assert len(local.requests) == 1 or kind == "self_instruct"


def test_short_keys_change_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Local servers ask for any word as a key. Only messages hide it, as a whole word."""
    text = f"an EMPTY test of ollama, k and {SHORT[-1]}"
    for key in SHORT:
        monkeypatch.setenv("TEST_KEY", key)
        folder = tmp_path / key
        told = {"on a": text, "on bad": Reply({"error": {"message": f"no {key}, keys, bad{key}"}}, 400)}
        with serving(lambda request, number, told=told: told[request["messages"][0]["content"]]) as local:
            found = curation.generate(task_of(local, seeds=["a", "bad"], concurrency=1), folder)
        assert local.keys == [f"Bearer {key}"] * 2 and found.report["requests"]["with_key"] == 0
        assert [entry["text"] for entry in documents_in(folder)] == [text]
        assert f"answers 400: no [key], keys, bad{key}" in (folder / "answers.jsonl").read_text("utf-8")


SENT = {KEY: KEY, f"{KEY}\r\n": KEY, f" \t{KEY}\r": KEY, "two words": "two words"}  # value of the variable -> key
UNSENDABLE = {  # value of the variable -> message
    f"{KEY}\rx": "the key in TEST_KEY has a character that no HTTP header can have, at position 21",
    f"{KEY}\nx\n": "at position 21, expected printable ASCII. Set the variable again",
    "schl\u00fcssel-0123456789": "at position 5,",
    "a\u2028": "at position 2,",
    "a\x7f": "at position 2,",
    "\x01": "at position 1,",
    "\udcff": "at position 1,",
    "\r\n": "the environment variable TEST_KEY (key_variable) is not set, expected the API key of http://127.0.0.1:",
}


def test_keys_that_no_header_can_have_are_refused_before_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with serving(lambda request, number: "fine") as local:
        for value in SENT:
            monkeypatch.setenv("TEST_KEY", value)
            curation.generate(task_of(local), tmp_path / str(len(local.keys)))
        assert local.keys == [f"Bearer {key}" for key in SENT.values()]
        for value, message in UNSENDABLE.items():
            monkeypatch.setenv("TEST_KEY", value)
            with pytest.raises(curation.InputError) as raised:
                curation.generate(task_of(local), tmp_path / "refused")
            assert message in str(raised.value)
            assert not any(part in str(raised.value) for part in (KEY, "0123456789", "\x01", "\x7f"))
    assert len(local.keys) == len(SENT)


@pytest.mark.parametrize("name", ["sk-abcdefgh0123456789", "gsk_abcdefgh0123456789", "AIzaSyD0123456789", "a b"])
def test_a_key_in_place_of_a_name_is_not_shown(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with serving(lambda request, number: "fine") as local:
        (tmp_path / "task.json").write_text(json.dumps(task_of(local)))
        command = ["generate", str(tmp_path / "task.json"), "-o", str(tmp_path / "out"), "--set"]
        for setting in (f"key_variable='{name}'", f"key_variable.x='{name}'", f"key_variable=['{name}']"):
            assert main([*command, setting]) == 2
            assert name not in "".join(capsys.readouterr())
    assert local.requests == [] and name not in repr(load_task(task_of(local, key_variable=name)))


def test_a_variable_in_lower_case_is_used_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("my_key", "a-key")
    with serving(lambda request, number: Reply({}, 401)) as local, pytest.raises(curation.InputError) as raised:
        curation.generate(task_of(local, key_variable="my_key"), tmp_path)
    assert local.keys == ["Bearer a-key"] and ". Check the key in the variable of key_variable. " in str(raised.value)


IN_REQUESTS: list[dict[str, Any]] = [
    {"prompt": f"{{text}} {KEY}"}, {"system": KEY}, {"seeds": ["a", KEY]}, {"model": KEY},
    {"parameters": {"user": [KEY]}}, {"parameters": {KEY: 1}}, {"input": "in.jsonl"},
]  # fmt: skip


@pytest.mark.parametrize("more", IN_REQUESTS, ids=[next(iter(more)) for more in IN_REQUESTS])
def test_a_task_or_a_document_with_the_key_is_not_sent(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(records_of([f"a text with {KEY}"]))
    with serving(lambda request, number: "fine") as local:
        task = task_of(local, **more) | ({"seeds": []} if "input" in more else {})
        with pytest.raises(
            curation.CurationError, match=r"has the key of http://127\.0\.0\.1:\d+/v1 in its text"
        ) as raised:
            curation.generate(task, tmp_path / "out")
    assert KEY not in str(raised.value) and local.requests == []
    assert not (tmp_path / "out").exists() or KEY not in everything(tmp_path / "out")


def test_the_secrets_of_a_url_are_sent_and_not_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """`api-version` is that of Azure, which is no secret."""
    caplog.set_level(logging.DEBUG)  # as OPENAI_LOG=debug, and more
    user, password, secret = "ALICE", "pass/word-0123456789", "q+SECRET-0123456789"
    query = "api-version=2024-10-21-preview&api_key=q%2BSECRET-0123456789"
    echo = {"error": {"message": f"wrong {password} of {user}, {secret} at http://h/x?{query}"}}
    told = [Reply(echo, 400, X_Echo=password), Reply(completion(f"see {secret}"), X_Echo=secret), "2024-10-21-preview"]
    with serving(lambda request, number: told[number] if number < 3 else Reply(echo, 401)) as local:
        url = f"{local.url.replace('//', f'//{user}:pass%2Fword-0123456789@')}?{query}"
        seeds = [*"abcd"]
        with pytest.raises(curation.InputError) as raised:
            curation.generate(task_of(local, endpoint=url, seeds=seeds, concurrency=1, key_variable=""), tmp_path)
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    assert local.keys == [f"Basic {basic}"] * 4
    assert {re.sub("%2B|%2b", "+", path) for path in local.paths} == {
        "/v1/chat/completions?api-version=2024-10-21-preview&api_key=q+SECRET-0123456789"
    }
    monkeypatch.undo()
    shown = f"{everything(tmp_path)}{caplog.text}{raised.value}{load_task(task_of(local, endpoint=url))!r}"
    assert not re.search(rf"{user}|pass.{{1,3}}word|SECRET|{re.escape(basic)}", shown)
    assert "answers 401: wrong [key] of [key], [key] at http://h/x. Name the variable" in str(raised.value)
    assert "[key]" in caplog.text and '"text":"2024-10-21-preview"' in (tmp_path / "answers.jsonl").read_text("utf-8")


def test_escapes_and_slashes_do_not_take_long():
    found = Credentials(load_task(task_of(Local("http://127.0.0.1:1/v1"))))
    for text in (r"\\%2f\/s" * 100_000, "//" * 100_000):  # in hours, if each place is compared with the rest
        assert found.hidden_in_answer(text) == text
        assert len(found.hidden_in_message(text)) <= 2_000
