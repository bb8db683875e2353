# SPDX-License-Identifier: Apache-2.0
"""How objects look in a notebook: short reprs, and tables in HTML in which hostile text is inert."""

import copy
import pickle
import pydoc
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.system.html_table import MAX_ROWS, html_table
from curation.base.system.svg import KEPT, REMOVED
from curation.base.system.terminal import printable_line
from curation.results.finished.comparison import Removal
from curation.results.finished.run_result import RunResult
from curation.tools.ablation.efficiency import Curve, Worth
from curation.tools.ablation.experiment import Budgets, Row
from curation.tools.ablation.mixture import DomainRow, WeightsRow
from curation.tools.scoring_metrics import LabelMetrics
from tests.needs import needs
from tests.runs import records_of

HOSTILE = "<script>alert(1)</script><img src=x onerror='alert(2)'>\x1b[2J\u202e$$x$$&amp;\"'"
ALLOWED = {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}
DRAWN = {"figure", "figcaption", "svg", "rect", "path", "text", "title"}
DRAWN_BY = {
    "width", "height", "viewbox", "role", "aria-label", "font-family", "font-size", "fill", "x", "y", "d", "stroke",
    "stroke-width", "stroke-dasharray", "text-anchor",
}  # fmt: skip


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
    assert seen.tags <= ALLOWED | DRAWN and seen.attributes <= {"class", "style"} | DRAWN_BY
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


def test_a_run_shows_its_warnings_above_the_table(tmp_path: Path):
    frame = pd.DataFrame({"text": ["one", "two words"]})
    recipe = {"stages": [{"filter": {"rules": {"words": {"min": 100}}}}], "output": {"formats": []}}
    finished = curation.run(recipe, tmp_path / "none", input=frame, engine="cpu", progress=False)
    expected = "warning: nothing is kept: 2 of 2 records were removed, most of them by filter (2 of 2, reason words)"
    assert repr(finished) == f"<run {str(tmp_path / 'none')!r}: 2 documents read, 0 kept; {expected}>"
    above, _, _ = finished._repr_html_().partition("<table>")
    assert f"<p>{expected}</p>" in above
    report = finished.report | {"warnings": [HOSTILE, *["next"] * 12]}
    above, _, _ = finished._replace(report=report)._repr_html_().partition("<table>")
    assert "<p>warning: &lt;script&gt;" in above and above.count("next") == 9
    assert above.endswith("<p>and 3 more warnings</p>")


def test_pairs_show_hostile_texts_as_text():
    found = curation.exact_dedup(pd.DataFrame({"text": [HOSTILE, HOSTILE]}), details=True)
    assert "<script>" in assert_inert(found._repr_html_())


def test_a_table_is_bounded():
    page = html_table("many", ("reason", "documents"), ((f"r{k}" * 1000, k) for k in range(1_000_000)))
    assert f"and {1_000_000 - MAX_ROWS:,} more rows" in page and len(page) < 60_000


def test_headers_are_aligned_as_their_cells():
    page = html_table("t", ("name", "number", "share"), [("a", 1, "2.50%"), ("b", 2, "")])
    assert re.findall(r"<th style=\"text-align: (\w+)", page) == ["left", "right", "right"]
    assert re.findall(r"<td style=\"text-align: (\w+)", page)[:3] == ["left", "right", "right"]


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
        curation.estimate(recipe),
    ]
    for each in shown:
        assert len(repr(each)) < 250 and "\n" not in repr(each) and " at 0x" not in repr(each)
        assert_inert(each._repr_html_())
    assert repr(recipe) == "<recipe default: 1 input; no stages; tokenizer gpt2>"
    assert repr(curation.RULE_SETS["gopher"]) == "<rule set gopher: 23 rules>"
    assert "documents 2, sequences 2, tokens 6" in repr(reader)
    assert repr(shown[-1]).startswith("<estimate of default: 1 file, 2 documents, 2 kept, 6 tokens; ")


def test_an_estimate_names_the_stages_that_a_sample_cannot_show():
    frame = pd.DataFrame({"text": ["one two", "one two", "three"]})
    recipe = {"stages": [{"filter": {"rules": {"words": {"min": 2}}}}, "exact_dedup"]}
    found = curation.estimate(recipe, input=frame, engine="cpu")
    assert "3 documents, at most 2 kept, at most 6 tokens; " in repr(found)
    page = assert_inert(found._repr_html_())
    assert "exact_dedupa sample cannot show it" in page and "less what exact_dedup may remove" in page


def test_a_recipe_is_at_most_ten_lines():
    deduplicate = [{"kind": "exact_dedup", "name": f"stage_{number}"} for number in range(12)]
    for recipe, last in (
        (curation.convert_recipe({"stages": deduplicate}), "stage_11"),
        (curation.load_recipe("c4", input=["a.jsonl", "b.jsonl", "c.jsonl"]), "a.jsonl, b.jsonl and 1 more"),
        (curation.load_recipe("default"), "label_probability=0.5"),
    ):
        page = recipe._repr_html_()
        assert 5 < page.count("<tr>") <= 9 and last in assert_inert(page)


def test_effects_are_a_table():
    rules = [curation.Rule(measure="words", min=50, reason="<b>short")]
    effects = curation.rule_effects({"words": [3, 45, 80, 400]}, rules)
    assert repr(effects) == "<effects of 1 bound: 2 of 4 documents removed>"
    page = effects._repr_html_()
    assert "words >= 50<b>short112222" in assert_inert(page)
    chart = effects.effects[0].svg()
    assert chart in page and chart in effects.effects[0]._repr_html_() and "http" not in page
    # 3 and 45 are below the bound, 80 and 400 are not. The line cuts the bar of 45, which is that of 44 to 53.
    bars = [(float(x), color) for x, color in re.findall(r'<rect x="([\d.]+)".*?fill="(#\w+)"', chart)]
    line = float(re.search(r'<path d="M([\d.]+) 14', chart)[1])
    assert [color for _, color in bars] == [REMOVED, REMOVED, KEPT, KEPT, KEPT]
    assert [x < line for x, _ in bars] == [True, True, False, False, False]
    assert curation.Histogram(np.array([]), np.array([], np.int64)).svg().startswith("<svg ")
    assert pandas.DataFrame(effects.effects)["alone"].tolist() == [2]


def test_bars_are_proportional_to_documents():
    chart = curation.Histogram(np.array([0.0, 1.0, 2.0, 3.0]), np.array([437, 46, 1])).svg()
    heights = [float(height) for height in re.findall(r'<rect [^>]*height="([\d.]+)"', chart)]
    assert heights == [82.0, 8.6, 1.0]  # the last one is drawn as a line
    assert "log scale" not in chart and "<title>2 to 3: 1 document</title>" in chart


def test_a_wide_range_says_that_it_is_logarithmic():
    measures = {"words": np.arange(3_480)}
    effects = curation.rule_effects(measures, [curation.Rule(measure="words", max=100_000)])
    chart = effects.effects[0].svg()
    assert ">log scale</text>" in chart and ">100,000</text>" in chart and "e+0" not in effects._repr_html_()
    assert "words <= 100,000" in repr(effects.effects[0])
    drawn = curation.plot(measures, [curation.Rule(measure="words", max=100_000)]).to_dict()
    assert drawn["concat"][0]["layer"][0]["encoding"]["x"]["title"] == "log scale"


RULE = curation.Rule(measure="words", min=50, reason=HOSTILE)
EFFECTS = curation.rule_effects({"words": [3, 45, 80, 400]}, [RULE])
SHORT, REMOVAL = printable_line(HOSTILE), Removal("a", HOSTILE, 2, 3, 0, 0)
ROW = Row("curated", -0.05, -0.06, -0.04, "better", 400)
BUDGETS = Budgets([1000], [2.0], [ROW], Curve(1, 1, 1, 1, 2), Worth(1000, 1.5, 1.4, 1.6), ROW)
METRICS = {"good": LabelMetrics(10, 0.9, 0.8, 0.95)}
TABLE, GPT2 = pa.table({"id": ["a"]}), curation.load_tokenizer("gpt2")
SHOWN = [
    (curation.decide({"words": [3, 45, 80]}, [RULE]), f"<verdict: 2 of 3 documents removed: {SHORT} 2>"),
    (curation.decide({"words": [80, 80, 80]}, [RULE]), "<verdict: 0 of 3 documents removed>"),
    (EFFECTS.effects[0], "<effect of words >= 50: 2 documents removed, 2 by this bound only>"),
    (EFFECTS.effects[0].histogram, "<histogram: 4 documents in 24 bins from 3 to 400>"),
    (curation.Comparison([], {"read": (4, 4), "kept": (2, 1)}, [REMOVAL], 2, 1, *range(4), TABLE),
     "<comparison of A and B: 0 different settings; 4 and 4 documents read, 2 and 1 kept, 2 by A only, 1 by B only; "
     "0 documents in A only, 1 in B only>"),
    (curation.Overlap([curation.EvaluationSet(HOSTILE, 7, 3, 4, 0, 9, 5)], TABLE, 13, 0.8, 5, 9, 0),
     "<overlap: 3 of 7 items of 1 set contaminated by 5 documents>"),
    (curation.SpanOverlap([curation.SpanSet(HOSTILE, 7, 3, 4, 0, 9, 5)], TABLE, 50, 0.8, 5),
     "<overlap: 3 of 7 items of 1 set contaminated by 5 documents>"),
    (curation.TokenCoverage(GPT2, [curation.CoverageGroup("all", HOSTILE, 2, 30, 6, 9, 0, 1)], np.arange(50_257)),
     "<token coverage of gpt2: 9 tokens of 2 documents, 1.5 per word, 0.3 per byte, 0 unknown>"),
    (curation.Trained(Path("t.json"), GPT2, 2, 30, 0, 0.3),
     "<trained tokenizer 't.json': 50,257 tokens from 2 documents, 0.3 tokens per byte>"),
    (curation.TrainedLM(Path("m.arpa"), (5, 7), (0, 0), (), (), 2, 2, 6, 0),
     "<trained language model 'm.arpa': 5 1-grams, 7 2-grams of 2 documents>"),
    (curation.TrainedClassifier(Path("q.bin"), Path("q.json"), ("good",), {"good": 90}, METRICS, [], 0, 0, 0),
     "<trained classifier 'q.bin': on 10 held-out texts: good precision 0.90, recall 0.80>"),
    (curation.Ablation("better", ROW, 0.016, 0.0, ROW, ROW, [], False, [], [], BUDGETS, {"smallest_effect": 0.005}),
     "<ablation: better: curated text -5.00% [-6.00%, -4.00%] bits per byte against raw text of the same size; the "
     "smallest effect of interest is 0.5%>"),
    (curation.Mixture("better", [DomainRow("a", 10, 1000, 10, 0.5)],
                      [WeightsRow("chosen", {"a": 1.0}, 2.0, 1.9, 2.1, -0.05, -0.06, -0.04, "better")], 1.0, [],
                      {"smallest_effect": 0.005}),
     "<mixture: better: the chosen weights -5.00% [-6.00%, -4.00%] bits per byte against proportional ones; the "
     "smallest effect of interest is 0.5%>"),
    (curation.Generated(Path("d.jsonl"), {"documents": 2, "requests": {"missing": 1}}, 2, 1, "", False, ""),
     "<generated 2 documents in 'd.jsonl'; 1 missing>"),
    (curation.Measure.hash_signs, f"<Measure.hash_signs: {curation.Measure.hash_signs.definition} (unit: characters)>"),
    (curation.Rewrite(unicode="nfc"), "Rewrite(unicode='nfc')"),
    (curation.Input(path="a.jsonl", copies=2), "FilesInput(path='a.jsonl', copies=2)"),
    (curation.Output(documents=False), "Output(documents=False)"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), SHOWN, ids=[type(found).__name__ for found, _ in SHOWN])
def test_results_are_one_line_and_a_table(found: Any, expected: str):
    assert repr(found) == expected
    if hasattr(found, "_repr_html_"):
        assert_inert(found._repr_html_())


OF_STAGES = {
    "ColumnFacts", "Cuts", "Decision", "Drops", "Forecast", "NewIndex", "Outcome", "Outputs", "Phase",
    "ShownRules",
}  # fmt: skip  # what classes of one's own make


def test_no_result_shows_its_arrays():
    """A new result with arrays, tables or lists has a repr of its own."""
    shown = {type(found) for found, _ in SHOWN}
    for name in {*curation.__all__} - OF_STAGES:
        each = getattr(curation, name)
        if isinstance(each, type) and issubclass(each, tuple) and hasattr(each, "_fields"):
            kinds = each.__annotations__.values()
            plain = all(
                re.fullmatch("str|int|float|bool", str(kind).partition("'")[2][:-2] or str(kind)) for kind in kinds
            )
            assert plain or each in shown or each in (curation.RunResult, curation.Duplicates, curation.Effects), name


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
        "a unit to add to OTHER_UNITS of curation/base/measures.py"
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
