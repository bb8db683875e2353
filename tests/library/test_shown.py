# SPDX-License-Identifier: Apache-2.0
"""How objects look in a notebook: short reprs, and tables in HTML in which hostile text is inert."""

import copy
import pickle
import pydoc
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

import curation
from curation.finished.run_result import RunResult
from curation.system.html_table import MAX_ROWS, html_table
from tests.needs import needs
from tests.runs import records_of

HOSTILE = "<script>alert(1)</script><img src=x onerror='alert(2)'>\x1b[2J\u202e$$x$$&amp;\"'"
ALLOWED = {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}


class Tags(HTMLParser):
    """The elements and attributes of a document, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_inert(page: str) -> str:
    seen = Tags(page)
    assert seen.tags <= ALLOWED and seen.attributes <= {"class", "style"}
    assert "\x1b" not in page and "\u202e" not in page and "mathjax_ignore" in page
    return seen.text


def hostile_run(tmp_path: Path) -> RunResult:
    (tmp_path / "a.jsonl").write_bytes(records_of(["one", "two words here"]))
    rule = {"measure": "words", "min": 2, "reason": HOSTILE.replace("\x1b", "").replace("\u202e", "")}
    recipe = curation.convert_recipe(
        {"input": [{"path": str(tmp_path / "a.jsonl")}], "stages": [{"kind": "filter", "rules": [rule]}],
         "name": HOSTILE.replace("\x1b", ""), "output": {"formats": []}}
    )  # fmt: skip
    finished = curation.run(recipe, tmp_path / "<b>out", engine="cpu", progress=False)
    assert "alert" in assert_inert(recipe._repr_html_())
    return finished


def test_runs_and_recipes_show_hostile_names_as_text(tmp_path: Path):
    finished = hostile_run(tmp_path)
    text = assert_inert(finished._repr_html_())
    assert "<script>alert(1)</script>" in text and "<b>out" in text


def test_pairs_show_hostile_texts_as_text():
    found = curation.exact_dedup(pd.DataFrame({"text": [HOSTILE, HOSTILE]}), details=True)
    assert "<script>" in assert_inert(found._repr_html_())


def test_a_table_is_bounded():
    page = html_table("many", ("reason", "documents"), ((f"r{k}" * 1000, k) for k in range(1_000_000)))
    assert f"and {1_000_000 - MAX_ROWS:,} more rows" in page and len(page) < 60_000


def test_reprs_are_short(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(["one two", "three four"]))
    recipe = curation.load_recipe("default", input=str(tmp_path / "a.jsonl"), settings=["stages=[]"])
    finished = curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)
    reader = curation.IndexedReader(tmp_path / "out" / "tokens" / "a_00000_text_document")
    shown = [
        finished,
        recipe,
        reader,
        curation.RULE_SETS,
        *curation.RULE_SETS.values(),
        curation.load_tokenizer("gpt2"),
    ]
    for each in shown:
        assert len(repr(each)) < 250 and "\n" not in repr(each) and " at 0x" not in repr(each)
        assert_inert(each._repr_html_())
    assert repr(recipe) == "<recipe default: 1 input; no stages; tokenizer gpt2>"
    assert repr(curation.RULE_SETS["gopher"]) == "<rule set gopher: 23 rules>"
    assert "documents 2, sequences 2, tokens 6" in repr(reader)


def test_effects_are_a_table():
    rules = [curation.Rule(measure="words", min=50, reason="<b>short")]
    effects = curation.rule_effects({"words": [3, 45, 80, 400]}, rules)
    assert repr(effects) == "<effects of 1 bound: 2 of 4 documents removed>"
    assert "words >= 50<b>short112222" in assert_inert(effects._repr_html_())


def test_loaders_and_data_sets_are_shown(tmp_path: Path):
    needs("torch")
    from curation.training import BlockDataset, ChunkDataset, Loader, MegatronDataset, PackedDataset, TokenDataset

    (tmp_path / "a.jsonl").write_bytes(records_of(["one two three four"] * 8))
    forms = {"formats": ["megatron", "token_shards", "blocks", "chunks", "packed"]}
    forms |= {"blocks": {"length": 4}, "chunks": {"length": 4, "min_tokens": 1}, "packed": {"length": 4}}
    recipe = curation.convert_recipe({"input": [{"path": str(tmp_path / "a.jsonl")}], "output": forms})
    curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)
    out = tmp_path / "out"
    pair = out / "tokens" / "a_00000_text_document"
    data = [BlockDataset(out / "blocks"), ChunkDataset(out / "chunks"), PackedDataset(out / "packed"),
            TokenDataset(out / "token_shards", 4), MegatronDataset(pair, 4)]  # fmt: skip
    for each in data:
        assert repr(each).startswith(f"<{type(each).__name__}: ") and "length 4" in repr(each)
        assert_inert(each._repr_html_())
    assert "batches 5, batch_size 2, epoch 0" in repr(Loader(data[0], 2))
    assert "rank" in assert_inert(Loader(data[0], 2)._repr_html_())


def test_a_rule_set_is_still_a_tuple_of_rules():
    rules = curation.RULE_SETS["gopher"]
    assert isinstance(rules, tuple) and rules[:10] + rules[10:] == rules
    assert pickle.loads(pickle.dumps(rules)) == copy.deepcopy(rules) == rules
    assert pickle.loads(pickle.dumps(rules)).name == "gopher"
    frame = pd.DataFrame({"text": ["one", "two words"]})
    assert len(curation.filter(frame, rules)) == len(curation.filter(frame, "gopher"))
    assert len(msgspec.json.encode(curation.Filter(rules=list(rules)))) > 1000


# Measures


def test_every_measure_has_a_definition_and_a_unit():
    units = {measure.unit for measure in curation.Measure}
    assert units == {"bytes", "characters", "words", "lines", "paragraphs", "sentences", "occurrences"}, (
        "a unit to add to OTHER_UNITS of curation/measures.py"
    )
    assert all(measure.definition and measure.definition in measure.__doc__ for measure in curation.Measure)
    used = {name for rules in ("gopher", "fineweb") for rule in curation.RULE_SETS[rules] for name in rule.measures[:1]}
    basic = {"words", "word_characters", "newlines"}
    assert all(curation.Measure[name].source for name in used - basic)


def test_help_describes_measures():
    measure = curation.Measure.top_2gram_characters
    text = pydoc.render_doc(measure)
    assert measure.definition in text and "(unit: characters)" in text and "Rae et al. 2021" in text
    assert all(each.definition.split("\n")[0] in (curation.Measure.__doc__ or "") for each in curation.Measure)
    assert np.int64(curation.Measure.words) == 2
