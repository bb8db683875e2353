# SPDX-License-Identifier: Apache-2.0
"""What the bodies of answers mean: odd fields that no document needs, errors, and what is no completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from curation.tools.synthesis.completions import NoCompletionError, StatusError, completion_of, error_text
from curation.tools.synthesis.connection import MAX_WAIT_SECONDS, seconds_in

TEXT = {"message": {"content": "text"}, "finish_reason": "stop"}
PARTS = [{"type": "text", "text": "te"}, {"type": "image_url"}, {"type": "thinking", "thinking": []}, "xt"]
USAGES = {  # JSON -> counts of the prompt and of the answer
    '{"prompt_tokens": 5, "completion_tokens": 2, "details": [{}]}': (5, 2),
    '{"prompt_tokens": 5, "total_tokens": 5}': (5, None),
    '{"prompt_tokens": true, "completion_tokens": null}': (None, None),
    '{"prompt_tokens": 5.0, "completion_tokens": "2"}': (None, None),
    f'{{"prompt_tokens": -1, "completion_tokens": {"9" * 5000}}}': (None, None),
    f'{{"prompt_tokens": {1 << 41}, "completion_tokens": NaN}}': (None, None),
    '{"prompt_tokens": {}, "completion_tokens": -Infinity, "cost": 1e400}': (None, None),
    **dict.fromkeys(("null", "[]", "[1]", "{}", '""', "7", "false"), (None, None)),
}
CHOICES: list[tuple[list[Any], tuple[str, str, str]]] = [  # with text, refusal and reason
    ([TEXT | {"index": 0, "logprobs": None}], ("text", "", "stop")),
    ([TEXT | {"index": 1, "message": {"content": "b"}}, TEXT | {"index": 0}], ("text", "", "stop")),
    ([TEXT | {"index": "0"}, TEXT | {"index": None, "message": {"content": "b"}}], ("text", "", "stop")),
    ([TEXT | {"finish_reason": 3}], ("text", "", "")),
    ([TEXT | {"finish_reason": {"a": 1}, "index": []}], ("text", "", "")),
    ([TEXT | {"message": {"content": PARTS, "refusal": None}}], ("text", "", "stop")),
    ([TEXT | {"message": {"content": [], "tool_calls": [{}], "reasoning": "so"}}], ("", "", "stop")),
    ([TEXT | {"message": {"content": None, "refusal": "no"}}], ("", "no", "stop")),
    ([TEXT | {"message": {"refusal": False, "role": 7}}], ("", "", "stop")),
    ([{"finish_reason": "content_filter", "message": None}], ("", "", "content_filter")),
    ([TEXT | {"message": {"content": "a \ud83d b \ud83d\ude00"}}], ("a \ufffd b \U0001f600", "", "stop")),
    ([TEXT | {"error": None}], ("text", "", "stop")),
]
ERRORS: list[tuple[Any, int, str]] = [  # with status 200, and what it means
    ({"error": {"message": "insufficient credits", "code": 402}}, 402, "insufficient credits"),
    ({"error": {"message": "slow down", "code": "429"}, "choices": None}, 429, "slow down"),
    ({"error": {"message": "quota", "code": "insufficient_quota", "status": True}}, 0, "quota"),
    ({"object": "error", "message": "too long", "code": 400, "choices": []}, 400, "too long"),
    ({"error": "down \ud83d", "status_code": 503}, 503, "down \ufffd"),
    ({"detail": [{"loc": ["body"], "msg": "field required"}]}, 0, "field required"),
    ({"error": {"code": 500.5, "type": "x"}}, 0, '{"error": {"code": 500.5, "type": "x"}}'),
    ({"choices": [{"error": {"code": 502, "message": "upstream"}, "finish_reason": "error"}]}, 502, "upstream"),
]
TEXTS = {  # of HTTP errors
    '{"error": {"message": {"detail": {"message": "deep"}}}}': "deep",
    '{"error": {"message": {"a": "b"}}}': '{"error": {"message": {"a": "b"}}}',
    '{"error": "text", "message": "other"}': "text",
    '{"detail": [{"loc": ["a"], "msg": "first"}, {"msg": "second"}]}': "first",
    '{"error": [], "message": null, "title": "a problem"}': "a problem",
    '{"error": {"message": "cut': '{"error": {"message": "cut',
    "<html><title>502 Bad\nGateway</title>": "502 Bad\nGateway",
    '{"error": ' * 6000: '{"error": ' * 6000,
    f"{'[' * 800}1{']' * 800}": f"{'[' * 800}1{']' * 800}",
    "null": "null",
    "": "",
}
OTHERS = {
    b"": "an empty body",
    b" \n": "an empty body",
    b'data: {"choices": []}\n\ndata: [DONE]': "an event stream. Let the endpoint answer without streaming",
    b": busy\n\ndata: {}": "an event stream. Let",
    b"<!doctype html><title> Log in </title>": "a web page: Log in",
    b"<html>": "a web page",
    b"[" * 9000: "recursion",
    b'"text"': "Expected `object`, got `str`",
    b'{"choices": 7}': "at `$.choices`",
    b'{"choices": [{}]}': "the first choice has no message",
    b'{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}': "the first choice has no message",
    b'{"choices": [{"message": "x"}]}': "Expected `object | null`, got `str` - at `$.choices[0].message`",
    b'{"choices": [{"message": {"content": [1]}}]}': "at `$.choices[0].message.content[0]`",
    b'{"choices": [{"message": {"content": "a"': "delimiter",
    b"\xff\xfe\xff": "codec can't decode",
}
WAITS = {
    "7.5": 7.5, "0": 0, " 7": 0, "-3": 0, "1e400": 0, "9999999999": 0, "999999999": MAX_WAIT_SECONDS, "\u0663": 0,
    "\u00b2": 0, "5, 10": 0, "[5]": 0, "soon": 0, "": 0, "nan": 0, "Fri, 31 Dec 99999 23:59:59 GMT": 0,
    "Fri, 31 Dec 9999 23:59:59 -2359": MAX_WAIT_SECONDS, "Mon, 01 Jan 0001 00:00:00 +2359": 0, "1, 2 3": 0,
    "Mon, 01 Jan 2001 00:00:00 GMT": 0, "Mon, 99 Jan 2001 00:00:00 GMT": 0,
}  # fmt: skip


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_only_the_text_must_be_there(coding: str):
    for choices, expected in CHOICES:
        assert completion_of(json.dumps({"choices": choices}).encode(coding))[:3] == expected
    for usage, counts in USAGES.items():
        body = f'{{"choices": [{json.dumps(TEXT)}], "usage": {usage}, "error": null}}'
        assert completion_of(body.encode(coding))[3:] == counts


def test_an_error_with_status_200_has_its_text_and_code():
    for body, status, text in ERRORS:
        with pytest.raises(StatusError) as raised:
            completion_of(json.dumps(body).encode())
        assert (raised.value.status, raised.value.detail) == (status, text)


def test_texts_of_errors_are_found():
    assert {body: error_text(body) for body in TEXTS} == TEXTS


@pytest.mark.parametrize(("body", "message"), OTHERS.items(), ids=[message[:20] for message in OTHERS.values()])
def test_other_bodies_are_no_completion(body: bytes, message: str):
    with pytest.raises(NoCompletionError) as raised:
        completion_of(body)
    assert message in str(raised.value)


def test_waits_are_within_bounds():
    assert {value: seconds_in(value) for value in WAITS} == WAITS
