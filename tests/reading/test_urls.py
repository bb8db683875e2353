# SPDX-License-Identifier: Apache-2.0
"""What a URL keeps secret reaches no message, and a URL that cannot be used ends in one message."""

import pytest

from curation.base.errors import InputError, RecipeError
from curation.reading.inputs import Input, input_names
from curation.reading.paths import find_files
from curation.reading.urls import scrubbed, shown
from curation.recipes.recipe import load_recipe, parse_recipe

SHOWN = {
    "https://host/a.jsonl": "https://host/a.jsonl",
    "https://user@host/a.jsonl": "https://host/a.jsonl",
    "ftp://user:p@ss@host/a.jsonl": "ftp://host/a.jsonl",
    "ftp://user:p/ss@host/a.jsonl": "ftp://host/a.jsonl",
    "ftp://user:p?ss@host/a.jsonl": "ftp://host/a.jsonl",
    "ftp://user:p#s@s@host/a.jsonl": "ftp://host/a.jsonl",
    "https://host/a.jsonl?sig=SECRET&x=1": "https://host/a.jsonl",
    "https://host/a.jsonl#SECRET": "https://host/a.jsonl",
    "https://host:8080/@scope/a@1.jsonl": "https://host:8080/@scope/a@1.jsonl",
    "https://host:8080/a.jsonl?mail=a@b": "https://host:8080/a.jsonl",
    "http://[::1]:8080/a.jsonl?x": "http://[::1]:8080/a.jsonl",
    "http://user:pw@[::1]:8080/a.jsonl": "http://[::1]:8080/a.jsonl",
    "simplecache::https://user:pw@host/a.jsonl?sig=x": "simplecache::https://host/a.jsonl",
    "zip://a.jsonl::https://user:p/w@host/b.zip": "zip://a.jsonl::https://host/b.zip",
    "https://h/x?sig=a::SECRET": "https://***",
    "https://h/a::b?sig=SECRET": "https://***",
    "ftp://u:se::cret@h/x": "ftp://***",
    "ftp://u:1234/5@h/x": "ftp://h/x",
    "https://u:p@w@h/a@1?b@c": "https://c",
    "literal::s3://bucket/a?b#c::d.jsonl": "literal::s3://bucket/a?b#c::d.jsonl",
    "literal::ftp://user:pw@host/a@b?c.jsonl": "literal::ftp://host/a@b?c.jsonl",
    "literal::ftp://user:p/w@host/a.jsonl": "literal::ftp://host/a.jsonl",
    "/data/a?b@c.jsonl": "/data/a?b@c.jsonl",
    "s3://bucket/key=1/a.jsonl": "s3://bucket/key=1/a.jsonl",
}


@pytest.mark.parametrize("url", SHOWN)
def test_what_is_shown_of_a_url(url: str):
    assert shown(url) == SHOWN[url]
    assert shown(shown(url)) == SHOWN[url]


SCRUBBED = {
    "Max retries exceeded with url: /a/b?X-Amz-Signature=SECRET (Caused by x)": (
        "Max retries exceeded with url: /a/b (Caused by x)"
    ),
    "403, url=URL('https://user:SECRET@host/a?sig=SECRET')": "403, url=URL('https://host/a')",
    "no port in https://u:SEC/RET@h:80": "no port in https://h:80",
    "at http://h/x?sig=(SECRET)SECRET": "at http://h/x",
    "nothing to hide": "nothing to hide",
}


@pytest.mark.parametrize("text", SCRUBBED)
def test_what_is_left_of_the_text_of_an_error(text: str):
    assert scrubbed(text) == SCRUBBED[text]


def test_a_long_text_of_an_error_takes_linear_time():
    """A search from each slash to the end of the word would take hours."""
    assert scrubbed("/" * 1_000_000) == "/" * 1_000_000


def test_a_known_url_is_scrubbed_whatever_it_holds():
    url = "https://user:SEC RET'@host/a?sig=SEC RET"
    assert scrubbed(f"cannot open {url}: no", url) == f"cannot open {shown(url)}: no"


UNUSABLE = {
    "https://h/x.jsonl?sig=a::SECRET.jsonl": r"https://\*\*\*: `::` separates URLs; write %3A%3A in a password",
    "ftp://u:1234/SECRET@h/x.jsonl": r"ftp://h/x\.jsonl: write / as %2F, \? as %3F and # as %23 in its",
    "s4://bucket/SECRET@a.jsonl": r"s4://.*cannot be opened: Protocol not known: s4",
    "http://user:SECRET@host:port/a.jsonl": r"http://host:port/a\.jsonl cannot be opened: ",
    "http://user:SEC/RET@host/a.jsonl": r"http://host/a\.jsonl: write / as %2F, \? as %3F and # as %23 in its",
    "http://user:SEC/RET@host/*.jsonl": r"http://host/\*\.jsonl: write / as %2F, \? as %3F and # as %23 in its",
    "s4://user:SECRET@bucket/*.jsonl": r"s4://bucket/\*\.jsonl cannot be opened: Protocol not known: s4",
    "http:///a.jsonl?SECRET": r"http:///a\.jsonl",
    "reference://a.jsonl::file:///x.json": r"a\.jsonl::file:///x\.json: reference:// is refused: fsspec runs",
    "simplecache::reference::https://h/x.json?SECRET": r"::https://h/x\.json: reference:// is refused: fsspec runs",
    "zip://*.jsonl::reference://a.zip::https://h/x.json?SECRET": r"reference:// is refused: fsspec runs templates",
}


@pytest.mark.parametrize("url", UNUSABLE)
def test_a_url_that_cannot_be_used_ends_in_one_message(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.reading.remote.FIRST_WAIT_SECONDS", 0)
    with pytest.raises(InputError, match=UNUSABLE[url]) as caught:
        find_files([Input(path=url)])
    assert "SEC" not in str(caught.value).removeprefix("s4://bucket/SECRET@a.jsonl")


def test_names_of_inputs_have_no_secrets():
    assert input_names([Input(path="https://u:SECRET@host/data.jsonl?sig=SECRET")]) == ["data"]


REFUSED = {
    "base without a list": lambda: Input(path="https://u:SECRET@host/a.jsonl", base="https://host"),
    "a budget": lambda: Input(path="https://u:SECRET@host/a.jsonl", revision="1"),
    "data for a recipe": lambda: load_recipe("https://u:SECRET@host/a.jsonl?SECRET"),
    "YAML": lambda: parse_recipe('input: [{path: "https://u:SECRET@host/a.jsonl"} {'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_messages_have_no_secrets(case: str):
    with pytest.raises((ValueError, RecipeError)) as caught:
        REFUSED[case]()
    assert "SECRET" not in str(caught.value)


def test_the_place_of_wrong_yaml_is_named():
    with pytest.raises(RecipeError, match=r"recipe is not valid YAML: .* \(line 2, column 10\)"):
        parse_recipe("name: a\nstages: [}")
