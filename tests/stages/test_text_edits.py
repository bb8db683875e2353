# SPDX-License-Identifier: Apache-2.0
"""The steps of `rewrite` on the host: by hand, against plain Python, in their order, and what a run shows of them."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import curation
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import RecipeError
from curation.results.finished.verify import verify
from curation.rules.columns import count_matches
from curation.running.run import run
from curation.stages import Rewrite, invoke
from curation.stages.rows import mojibake, rewrite, text_edits
from tests.conftest import frame_of, hidden_nulls
from tests.corpus import LINE_ENDS, NASTY, SPACES, characters
from tests.needs import needs
from tests.oracle import rewriting
from tests.runs import assert_refused, made_texts, recipe_of, records_of

CPU = load_engine("cpu")
NOTES = [{"matches": r"\[\d*\]|\[edit\]", "by": ""}]

BY_HAND = [
    ({"entities": "decode"}, "&lt;b&gt; &amp;lt; &eacute;&#233;&#xE9;", "<b> &lt; ééé"),
    ({"entities": "decode"}, "&copy 5 &unknown; a&b & &notit;", "© 5 &unknown; a&b & ¬it;"),
    ({"whitespace": "blank_lines"}, "\n\n\n a  \n\n\n\t\n b\n\n", "\n\n a  \n\n b\n\n"),
    ({"whitespace": "blank_lines"}, "a\r\n\r\n\r\nb\n\u3000\n\n \n", "a\r\n\r\nb\n\u3000\n"),
    ({"whitespace": "line_ends"}, "a\r\n\r\n\r\nb\rc \n", "a\n\n\nb\rc \n"),
    ({"sentences": "lines"}, " One. “Two?” 3\nfour!)  5.6  e.g.\r\n\r\nx", "One.\n“Two?”\n3 four!)\n5.6  e.g.\nx"),
    ({"sentences": "lines"}, "你好。 再见！\u2028我 走", "你好。\n再见！\n我 走"),
    ({"replace": NOTES}, "a[1] b[edit] c[] d[x]", "a b c d[x]"),
    ({"replace": [{"matches": r"(\w+)@(\w+)", "by": r"\2 at \1, \0\\"}]}, "a@b", r"b at a, a@b" "\\"),
    ({"replace": [{"matches": "(?m)^", "by": "> "}]}, "a\nb", "> a\n> b"),
    ({"replace": [{"matches": "a", "by": "b"}, {"matches": "b+", "by": "c"}]}, "aab a", "c c"),
]  # fmt: skip
REPAIRED = [
    ("lâ€™humanitÃ©", "l’humanité"),
    ("âœ” No problems\n漢字 sÃ³", "✔ No problems\n漢字 só"),  # another line cannot be read in that encoding
    ("The Mona Lisa doesnÃ¢â‚¬â„¢t have eyebrows.", "The Mona Lisa doesn’t have eyebrows."),
    ("a\x85 b\x96c", "a… b–c"),
]
UNTOUCHED = [
    "l’humanité",
    "“quoted” — naïve",
    "漢字 ＡＢＣ ﬁ",
    "&lt;Ã",
    "plain",
    "Ã É UMA MAÇÃ",
    "\x1b[31mred\x00",
    "a\r\nb",
]


def edited_by(engine: Any, texts: list[str | None], **options: Any) -> tuple[list[str | None], Any]:
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, texts), Rewrite(**options))
    return engine.to_arrow(frame)[TEXT].to_pylist(), outcome


@pytest.mark.parametrize(("options", "text", "expected"), BY_HAND)
def test_by_hand(engine: Any, options: dict[str, Any], text: str, expected: str):
    found, outcome = edited_by(engine, [None, text, "-", ""], **options)
    first = rewriting.edit("-", Rewrite(**options))
    assert found == [None, expected, first, rewriting.edit("", Rewrite(**options))]
    assert outcome.edited.tolist()[:3] == [False, True, first != "-"]
    assert rewriting.edit(text, Rewrite(**options)) == expected


def test_empty_matches_are_those_that_rules_count():
    texts = ["abc", "", "漢b", "bb"]
    found, _ = edited_by(CPU, texts, replace=[{"matches": "b*", "by": "-"}])
    assert found == ["-a-c-", "-", "-漢-", "-"]
    assert [text.count("-") for text in found] == count_matches(pa.chunked_array([texts]), "b*").tolist()


INVISIBLE = (  # text, what is left
    ("un\u00adbe\u200blie\u2060v\ufeffable \u202eabc\u202c\u200e", "unbelievable abc"),
    ("a\ufe0f\u200db 3\u200d4 x\U000e0041", "ab 34 x"),
    ("葛\U000e0100 가\u3164나 ка\u00adк", "葛 가나 как"),
    *((text, text) for text in (
        "می\u200cروم ه\u200d", "क्\u200dष র\u200d্য ನ್\u200cನ", "\u1820\u180b", "ۖ۝ \u0600", "\x07\t\u3000",
        "👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 👍🏽",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    )),
)  # fmt: skip


def test_invisible_characters_go_unless_they_shape_letters(engine: Any):
    found, outcome = edited_by(engine, [text for text, _ in INVISIBLE], invisible="remove")
    assert found == [right for _, right in INVISIBLE]
    assert outcome.edited.tolist() == [text != right for text, right in INVISIBLE]


def test_mojibake_by_hand(engine: Any):
    needs("ftfy")
    texts = [text for text, _ in REPAIRED] + UNTOUCHED
    found, outcome = edited_by(engine, texts, repair="mojibake")
    assert found == [text for _, text in REPAIRED] + UNTOUCHED
    assert outcome.edited.tolist() == [True] * len(REPAIRED) + [False] * len(UNTOUCHED)


ORDER = [  # each of two neighbours has work for the other
    ({"entities": "decode", "repair": "mojibake"}, "&Atilde;&copy;", "é"),
    ({"repair": "mojibake", "unicode": "nfc"}, "eÌ\x81", "é"),
    ({"invisible": "remove", "unicode": "nfc"}, "e\u034f\u0301", "é"),
    ({"entities": "decode", "markup": "strip"}, "&lt;br&gt;x", "x"),
    ({"lowercase": True, "replace": [{"matches": "B", "by": "c"}]}, "AB", "ab"),
    ({"whitespace": "collapse", "sentences": "lines"}, "a.  b\n c", "a.\nb c"),
    ({"characters": "basic", "whitespace": "blank_lines"}, "a\n#\n#\n#\nb", "a\n\nb"),
    ({"whitespace": "line_ends", "sentences": "lines"}, "a\r\nb.\r\nc", "a b.\nc"),
    ({"sentences": "lines", "replace": [{"matches": "(?m)^b", "by": "c"}]}, "a. b", "a.\nc"),
    ({"whitespace": "strip", "replace": [{"matches": "a", "by": ""}]}, "a b", " b"),
]


@pytest.mark.parametrize(("options", "text", "expected"), ORDER)
def test_the_order_of_steps(engine: Any, options: dict[str, Any], text: str, expected: str):
    if "repair" in options:
        needs("ftfy")
    assert edited_by(engine, [text], **options)[0] == [expected]
    assert rewriting.edit(text, Rewrite(**options)) == expected


# Against plain Python

PIECES = [
    "a",
    "b.",
    "C!”",
    "…",
    "。",
    "é",
    "Ã©",
    "â€œ",
    "Â",
    "&amp;",
    "&#x",
    "&lt",
    "\x80",
    "[1]",
    "<i>",
    *" \n\r\t",
    *LINE_ENDS,
    *SPACES,
]
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), characters()), max_size=14).map("".join)
SETTINGS: list[dict[str, Any]] = [
    {"entities": "decode", "markup": "strip"},
    {"whitespace": "blank_lines"},
    {"whitespace": "line_ends", "replace": NOTES},
    {"sentences": "lines"},
    {"sentences": "lines", "whitespace": "collapse", "replace": [{"matches": "(?m)^(.)", "by": r"\1\1"}]},
]  # fmt: skip


@given(st.lists(TEXTS, max_size=6), st.sampled_from(SETTINGS))
@settings(deadline=None, max_examples=30)
def test_any_text_as_plain_python(texts: list[str], options: dict[str, Any]):
    stage = Rewrite(**options)
    found, outcome = edited_by(CPU, texts, **options)
    assert found == [rewriting.edit(text, stage) for text in texts]
    edited = [False] * len(texts) if outcome.edited is None else outcome.edited.tolist()
    assert edited == [before != after for before, after in zip(texts, found, strict=True)]


@pytest.mark.parametrize("options", [*SETTINGS, {"replace": [{"matches": r"[a-z]+", "by": r"<\0>"}]}], ids=str)
def test_nasty_texts_as_plain_python(engine: Any, options: dict[str, Any]):
    texts = [text[:5000] for text in NASTY]
    assert edited_by(engine, texts, **options)[0] == [rewriting.edit(text, Rewrite(**options)) for text in texts]


def test_one_sentence_per_line():
    found, _ = edited_by(CPU, [text[:5000] for text in NASTY], sentences="lines")
    counts = CPU.measure(frame_of(CPU, found)[TEXT], ("sentences", "lines", "words"))
    assert (counts["sentences"] == counts["lines"]).all() and counts["sentences"].max() > 5
    assert [text.split() for text in found] == [text[:5000].split() for text in NASTY]


BAD = "".join({*"ÃÂâ€™œ”©³²°±¡¿«»´·…–—ŸŠž×à√≈‚вЂГўΒβā┐│ΰΩйØÙ§£ﬁº¬\x85\x9d\xa0\xad\ufffd aZ.,\n3"})


@given(st.lists(st.text(st.sampled_from(BAD), max_size=6), min_size=20, max_size=20))
@settings(deadline=None, max_examples=30)
def test_candidates_of_mojibake_miss_nothing(texts: list[str]):
    needs("ftfy")
    array = pa.array(texts, pa.large_string())
    assert mojibake.repair_mojibake(array).to_pylist() == [rewriting.repair_mojibake(text) for text in texts]


def test_the_pattern_of_candidates_is_that_of_ftfy():
    badness = needs("ftfy").badness
    array = pa.array([f"a {first}{second}a" for first in BAD for second in BAD], pa.large_string())
    found = pc.match_substring_regex(array, mojibake.candidates()).to_pylist()
    assert found == [badness.is_bad(text) for text in array.to_pylist()] and 200 < sum(found) < 2500
    assert mojibake.candidates() != mojibake.NOT_ASCII


# Columns of every shape


def test_texts_without_a_match_are_not_copied():
    texts = pa.array(["a b", None, ""], pa.large_string())
    edits = (text_edits.decode_entities, text_edits.collapse_blank_lines, text_edits.convert_line_ends)
    assert all(edit(texts) is texts for edit in edits) and text_edits.replace_matches(texts, "c", "") is texts
    assert edited_by(CPU, ["a b", None], replace=NOTES)[1].text is None
    accents = pa.array(["é", "a"], pa.large_string())
    assert not find_spec("ftfy") or mojibake.repair_mojibake(accents) is accents


def test_slices_nulls_and_chunks(engine: Any):
    texts = ["[1]x", "a", None, "b[2]", "", "c[3]"] * 2
    whole = pa.array(["[0]", *texts, "[9]"], pa.large_string()).slice(1, len(texts))
    for chunks in ([whole], [whole.slice(0, 4), whole.slice(4, 0), whole.slice(4)]):
        frame = engine.from_arrow(pa.table({TEXT: pa.chunked_array(chunks)}))
        found, outcome = invoke.apply_stage(engine, frame, Rewrite(replace=NOTES, lowercase=True))
        assert engine.to_arrow(found)[TEXT].to_pylist() == ["x", "a", None, "b", "", "c"] * 2
        assert outcome.edited.tolist() == [True, False, False, True, False, True] * 2
    frame, outcome = invoke.apply_stage(engine, engine.from_arrow(hidden_nulls()), Rewrite(replace=NOTES))
    assert outcome.edited is None
    assert edited_by(engine, [], replace=NOTES)[0] == [] and edited_by(engine, [None], sentences="lines")[0] == [None]


def test_an_index_of_ones_own_stays():
    frame = pd.DataFrame({TEXT: ["A &amp; B", "c"], "other": [1, 2]}, index=[7, 7])
    found = curation.rewrite(frame, entities="decode", lowercase=True, replace={"matches": "b", "by": "d"})
    assert (
        found[TEXT].tolist() == ["a & d", "c"]
        and found.index.tolist() == [7, 7]
        and frame[TEXT][7].iloc[0] == "A &amp; B"
    )


PAGE = Path(__file__).resolve().parents[2] / "docs" / "edits.md"
ROW = re.compile(r"^\| `([^`]+)` \| `(\"[^`]*\")` \| `(\"[^`]*\")` \|$", re.MULTILINE)


def test_the_examples_of_the_page_and_their_order():
    needs("ftfy")
    found = ROW.findall(PAGE.read_text("utf-8"))
    rows = [(yaml.safe_load(options), *map(json.loads, texts)) for options, *texts in found]
    order = [*rewrite.CHOICES]
    order.insert(order.index("whitespace"), "lowercase")
    assert list(dict.fromkeys(name for options, *_ in rows for name in options)) == [*order, "replace"]
    for options, before, after in rows:
        assert edited_by(CPU, [before], **options)[0] == [after], options


# Runs

STAGE = {
    "kind": "rewrite",
    "whitespace": "blank_lines",
    "sentences": "lines",
    "replace": [{"matches": "[0-9]+", "by": "0"}],
}


def test_a_run_counts_and_shows_what_was_edited(tmp_path):
    texts = made_texts(60)
    (tmp_path / "in.jsonl").write_bytes(records_of(texts))
    recipe = recipe_of(tmp_path / "in.jsonl", stages=[STAGE], output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu", workers=2, slice_bytes=6000).report
    run(recipe, tmp_path / "again", engine="cpu", workers=1, slice_bytes=2500)
    assert verify(tmp_path / "out") == []
    expected = [rewriting.edit(text, Rewrite(**{key: STAGE[key] for key in STAGE if key != "kind"})) for text in texts]
    rows = curation.run_documents(tmp_path / "out", "edited").to_pylist()
    pairs = [(after, before) for before, after in zip(texts, expected, strict=True) if before != after]
    assert [(row["text"], row["text_before"]) for row in rows] == pairs and report["stages"][0]["edited"] == len(
        pairs
    ) > 40
    assert curation.run_documents(tmp_path / "again").column("text").to_pylist() == expected


def test_the_version_of_ftfy_is_part_of_a_run():
    ftfy = needs("ftfy")
    assert Rewrite(repair="mojibake").computed_with() == {"ftfy": ftfy.__version__}
    assert Rewrite(replace=NOTES).computed_with() == Rewrite(unicode="nfc").computed_with() == {}
    assert Rewrite(replace=NOTES).kernels() == () and Rewrite(entities="decode", unicode="nfc").kernels() == (
        "rewrite",
    )


def test_a_missing_ftfy_is_one_message(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "ftfy", None)
    mojibake.load.cache_clear()
    with pytest.raises(RecipeError, match=r"repair: mojibake needs the package ftfy.*Run: pip install"):
        Rewrite(repair="mojibake").check(["a"])


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("replace: [{matches: '(?=a)', by: ''}]", ["$.stages[0]", "replace[0]: ", "RE2", "(?=", "lookaround"]),
        ("replace: [{matches: 'a', by: '\\1'}]", ["$.stages[0]", "replace[0]: by", "requests 1 matches", "for groups"]),
        ("replace: [{matches: 'a', by: '\\x'}]", ["must be followed by a digit"]),
        ("replace: [{matches: 'a'}]", ["missing required field `by`"]),
        ("replace: [{matches: '', by: ''}]", ["is empty, and matches every text"]),
        ("replace: [{matches: a, with: ''}]", ["unknown field `with`"]),
        ("replace: a", ["Expected `array`"]),
        ("repair: ftfy", ["repair must be one of keep, mojibake, not 'ftfy'"]),
        ("entities: encode", ["entities must be one of keep, decode"]),
        ("sentences: words", ["sentences must be one of keep, lines"]),
        ("whitespace: blank", ["keep, collapse, strip, lines, blank_lines, line_ends, not 'blank'"]),
        ("unicode: keep", ["changes nothing", "replace"]),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(options: str, parts: list[str]):
    assert_refused(f"stages:\n- {{kind: rewrite, {options}}}\n", parts)


def test_many_patterns_are_refused_at_once():
    with pytest.raises(RecipeError, match="replace has 100,000 patterns, expected at most 1,000"):
        curation.rewrite(pd.DataFrame({TEXT: ["a"]}), replace=[{"matches": "a", "by": ""}] * 100_000)
