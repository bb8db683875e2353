# SPDX-License-Identifier: Apache-2.0
"""The sample of measures in `report.json` and the sliders of `report.html`: the same for any slices, and judged as
`curate plan --measures` judges."""

import base64
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from curation.cli.main import main
from curation.recipes.recipe import load_recipe
from curation.record.measured_rows import drawn_positions
from curation.record.report_schema import wrong_in_report
from curation.results.finished.measured_rules import plan_by_measures
from curation.results.report import measured_sample
from curation.results.report.html import as_html
from curation.results.report.measured_sample import packed
from curation.running.run import run
from tests.corpus import real_records
from tests.results.pages import CHROMIUM, NODE, in_browser, in_node
from tests.runs import made_texts, recipe_of, records_of, report_of

RECORDS = [*real_records()[::3], *({"text": text, "language": "en"} for text in ("", " ", "\n"))]
RULES: list[Any] = [
    "gopher",
    {"measure": "characters", "min": 100},
    {"ratio": ["newlines", "lines"], "max": 0.95, "reason": "a.b"},  # no path leads to this rule alone
    {"ratio": ["newlines", "lines"], "max": 0.99, "reason": "c.d"},
]
PER_LANGUAGE = [
    {"measure": "words", "max": 4_000, "reason": "long"},
    {"matches": "the ", "max_count": 12},
    {"per": "language", "rules": {
        "en": [{"measure": "words", "min": 60}, "gopher_repetition"], "de": "en", "pl": "keep",
        "fr": [{"measure": "words", "min": 40}], "other": [{"measure": "words", "min": 5, "max": 3_000}],
    }},
]  # fmt: skip
MOVES = [
    {},
    {"too_few_words.min": 60},
    {"too_few_words.min": 10, "top_4gram.max": 0.05, "too_few_words_with_letter.min": 0.9, "characters.min": 300},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe `r.yaml` of the real documents, and its run in `out`; the same per language in `l.yaml` and `per`."""
    folder = tmp_path_factory.mktemp("measured")
    (folder / "a.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in RECORDS))
    for name, out, rules in (("r", "out", RULES), ("l", "per", PER_LANGUAGE)):
        content = {
            "input": [{"path": str(folder / "a.jsonl"), "columns": ["language"], "keep_blank": True}],
            "stages": [{"kind": "filter", "rules": rules}],
            "output": {"measures": True},
        }
        (folder / f"{name}.yaml").write_bytes(orjson.dumps(content))
        run(load_recipe(folder / f"{name}.yaml"), folder / out, engine="cpu", progress=False)
    return folder


class Decoded:
    """A sample as plain Python reads it: the documents of the sample, without those whose texts are shown."""

    def __init__(self, entry: dict[str, Any]) -> None:
        numbers, value, shift = [], 0, 0
        for byte in base64.b64decode(entry["data"]):
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                numbers.append(value)
                value = shift = 0
        rows = len(entry["shown"]) + entry["drawn"]
        columns = [numbers[start : start + rows][-entry["drawn"] :] for start in range(0, len(numbers), rows)]
        count = len(entry["measures"])
        self.measures, self.groups, self.fixed = columns[:count], columns[count:-1], columns[-1]
        self.entry = entry

    def removed(self, moves: dict[str, float]) -> tuple[int, dict[str, int]]:
        """Documents that the rules remove, and those beyond the bounds of each rule, with some bounds moved."""
        gone, beyond = [bool(fixed) for fixed in self.fixed], {}
        for rule in self.entry["rules"]:
            low, high = (
                moves.get(f"{rule['reason']}.{side}", rule.get(side, empty))
                for side, empty in (("min", -math.inf), ("max", math.inf))
            )
            above, *below = (self.measures[place] for place in rule["measures"])
            own = range(len(gone))
            if "group" in rule:
                own = [row for row in own if self.groups[rule["column"]][row] == rule["group"]]
            values = {row: above[row] / max(below[0][row], 1) if below else above[row] for row in own}
            broken = [row for row, value in values.items() if not low <= value <= high]
            beyond[rule["reason"]] = len(broken)
            for row in broken:
                gone[row] = True
        return sum(gone), beyond


@pytest.mark.parametrize("moves", MOVES)
def test_the_sample_of_a_small_run_is_judged_as_the_plan_judges_all_documents(folder: Path, moves: dict[str, float]):
    (entry,) = report_of(folder / "out")["measured"]
    assert entry["drawn"] == entry["documents"] == len(RECORDS) == len(Decoded(entry).fixed)
    settings = [f"stages.filter.{name}={bound}" for name, bound in moves.items()]
    (effect,) = plan_by_measures(load_recipe(folder / "r.yaml", settings=settings), folder / "out")
    assert Decoded(entry).removed(moves) == (effect.removed, effect.reasons)
    assert 30 < effect.removed < entry["documents"]


def test_groups_and_rules_on_other_things_count_as_in_the_run(folder: Path):
    report = report_of(folder / "per")
    (entry,), (stage,) = report["measured"], report["stages"]
    assert entry["groups"] == [[group["group"] for group in stage["groups"][0]["groups"][:8]]]
    decoded = Decoded(entry)
    removed, _ = decoded.removed({})
    assert removed == sum(stage["reasons"].values()) > stage["reasons"]["text_matches"] > 0
    for place, group in enumerate(stage["groups"][0]["groups"][:8]):
        assert decoded.groups[0].count(place) == group["documents"]
    assert wrong_in_report(report) == ""


def test_documents_of_groups_that_are_not_shown_stay_as_they_are(tmp_path: Path):
    names = [f"l{number}" for number in range(12)]
    rules = {name: [{"measure": "words", "min": 5 + 2 * number}] for number, name in enumerate(names)}
    rows = zip(made_texts(240), [*names * 20], strict=True)
    (tmp_path / "a.jsonl").write_bytes(b"".join(orjson.dumps({"text": t, "language": n}) + b"\n" for t, n in rows))
    stages = [{"kind": "filter", "rules": [{"per": "language", "rules": rules}]}]
    run(recipe_of({"path": str(tmp_path / "a.jsonl"), "columns": ["language"]}, stages=stages), tmp_path / "out")
    report = report_of(tmp_path / "out")
    (entry,), (stage,) = report["measured"], report["stages"]
    decoded = Decoded(entry)
    assert decoded.groups[0].count(255) == 80 and 0 < sum(decoded.fixed) < 80
    assert decoded.removed({})[0] == stage["reasons"]["words"]


def test_the_sample_does_not_depend_on_slices(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measured_sample, "MAX_ROWS", 100)
    stages = [{"kind": "filter", "rules": ["gopher_quality"]}, {"kind": "exact_dedup"},
              {"kind": "filter", "rules": PER_LANGUAGE, "name": "later"}]  # fmt: skip
    recipe = recipe_of({"path": str(folder / "a.jsonl"), "columns": ["language"]}, stages=stages)
    found = []
    for name, slice_bytes in (("whole", 0), ("cut", 250_000)):
        run(recipe, tmp_path / name, engine="cpu", slice_bytes=slice_bytes, workers=1, progress=False)
        report = report_of(tmp_path / name)
        found.append((report["measured"], report["texts"]))
    assert found[0] == found[1]
    first, later = found[0][0]
    assert first["drawn"] == later["drawn"] == 100 < later["documents"] < first["documents"]
    assert {name[0] for name in first["shown"]} == {"k", "r"} == {name[0] for name in later["shown"]}


def test_a_share_is_within_its_error(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(measured_sample, "MAX_ROWS", 200)
    run(load_recipe(folder / "r.yaml"), tmp_path / "out", engine="cpu", progress=False)
    (entry,) = report_of(tmp_path / "out")["measured"]
    (effect,) = plan_by_measures(load_recipe(folder / "r.yaml"), folder / "out")
    removed, _ = Decoded(entry).removed({})
    share, drawn = effect.removed / effect.reached, removed / entry["drawn"]
    error = 1.96 * math.sqrt(share * (1 - share) / 200 * (1 - 200 / effect.reached))
    assert entry["drawn"] == 200 and 0 < abs(drawn - share) < error


def test_a_recipe_without_rules_on_measures_has_no_sample(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(9)))
    rules = [{"matches": "endoftext", "max_count": 1}]
    run(recipe_of(tmp_path / "a.jsonl", stages=[{"kind": "filter", "rules": rules}]), tmp_path / "out", progress=False)
    assert report_of(tmp_path / "out")["measured"] == []
    assert not [*tmp_path.rglob("*.values.arrow")]


def test_positions_are_one_of_each_range():
    assert drawn_positions(0, 10).tolist() == [] and drawn_positions(7, 10).tolist() == [*range(7)]
    positions = drawn_positions(10**12 + 7, 1_000)
    edges = [number * (10**12 + 7) // 1_000 for number in range(1_001)]
    assert all(low <= at < high for low, at, high in zip(edges, positions.tolist(), edges[1:], strict=False))
    assert len({*(positions % 1_000).tolist()}) > 500  # by a hash, not one and the same place of each range


@pytest.mark.parametrize(("recipe", "out"), [("r", "out"), ("l", "per")])
def test_the_paths_of_rules_are_settings_of_these_rules_alone(folder: Path, recipe: str, out: str):
    before = load_recipe(folder / f"{recipe}.yaml")
    (entry,) = report_of(folder / out)["measured"]
    assert [rule["reason"] for rule in entry["rules"] if not rule["path"]] == ["a.b", "c.d"] * (out == "out")
    for rule in [rule for rule in entry["rules"] if rule["path"]]:
        for side, bound in ((side, rule[side]) for side in ("min", "max") if side in rule):
            moved = bound + 1 if len(rule["measures"]) == 1 else round(0.9 * bound, 4)
            settings = [f"{rule['path']}.{side}={moved}"]
            after = load_recipe(folder / f"{recipe}.yaml", settings=settings)
            changed = [
                (old[:2], new[2:]) for old, new in zip(bounds_of(before), bounds_of(after), strict=True) if old != new
            ]
            column = entry["groups"][rule["column"]][rule["group"]] if "group" in rule else ""
            assert [key for key, _ in changed] == [(rule["reason"], column)], settings
            assert changed[0][1][side == "max"] == moved


def bounds_of(recipe: Any) -> list[tuple[str, str, float, float]]:
    """Each rule on measures of a filter: its reason, its group, and its bounds."""
    found = []
    for rule in measured_sample.rules_of(recipe.stages[0]):
        if not hasattr(rule, "groups"):
            found.append((rule.name, "", *rule.bounds))
            continue
        for number in range(rule.groups.count):
            if (own := rule.of_group(number)) is not None:
                found.append((rule.name, rule.groups.name(number), *own.bounds))
    return found


# The script

MOVE = """
const [filter] = {window}.curation.filters;
for (const [name, bound] of Object.entries({moves})) {{
  const [reason, side] = name.split(".");
  const rule = filter.rules.find((rule) => rule.reason === reason);
  rule[side === "min" ? "low" : "high"] = bound;
  filter.judge(rule);
}}
const beyond = Object.fromEntries(filter.rules.map((rule) => [rule.reason, filter.beyond(rule)]));
return {{ tally: filter.tally(), beyond, line: {window}.curation.settings(filter.moved) }};
"""


@pytest.mark.skipif(not (NODE or CHROMIUM), reason="neither Node nor Chromium is installed: apt-get install nodejs")
@pytest.mark.parametrize("moves", MOVES)
def test_the_script_counts_what_the_plan_counts_with_its_settings(
    folder: Path, moves: dict[str, float], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    page = as_html(report_of(folder / "out"))
    values = {"moves": json.dumps(moves), "window": "window" if NODE else "page"}
    found = in_node(page, MOVE.format(**values)) if NODE else in_browser(page, MOVE.format(**values), tmp_path)
    command = ["plan", str(folder / "r.yaml"), *shlex.split(found["line"]), "--measures", str(folder / "out")]
    assert main([*command, "--log", "json"]) == 0
    (effect,) = json.loads(capsys.readouterr().out.splitlines()[-1])["filters"]
    assert found["tally"]["rows"] - found["tally"]["kept"] == effect["removed"]
    assert found["tally"]["leave"] - found["tally"]["enter"] == effect["removed"] - effect["before"]
    assert {reason: each["beyond"] for reason, each in found["beyond"].items()} == effect["reasons"]
    assert found["line"].count("--set") == len(moves)


@pytest.mark.skipif(not (NODE or CHROMIUM), reason="neither Node nor Chromium is installed: apt-get install nodejs")
def test_the_interval_holds_the_share_of_all_documents(folder: Path, tmp_path: Path):
    report, moves = report_of(folder / "out"), MOVES[2]
    (whole,) = report["measured"]
    decoded, rows = Decoded(whole), range(0, whole["documents"], 3)
    columns = [*decoded.measures, *decoded.groups, decoded.fixed]
    part = {"shown": [], "drawn": len(rows), "data": packed([np.array(column)[rows] for column in columns])}
    body = MOVE.partition("const beyond")[0] + "return filter.share(filter.tally(), filter.documents, {kept});"
    kept = whole["documents"] - decoded.removed({})[0]
    values = {"moves": json.dumps(moves), "window": "window" if NODE else "page", "kept": kept}
    page = as_html(report | {"measured": [whole | part]})
    found = in_node(page, body.format(**values)) if NODE else in_browser(page, body.format(**values), tmp_path)
    share = 1 - decoded.removed(moves)[0] / whole["documents"]
    assert 0 < abs(found["share"] - share) < found["error"] < 0.1
    unmoved = body.format(**values | {"moves": "{}"})
    still = in_node(page, unmoved) if NODE else in_browser(page, unmoved, tmp_path)
    assert still["share"] == kept / whole["documents"]


SHOW = """
const find = (selector, root) => [...(root ?? page.document).querySelectorAll(selector)];
const text = (selector) => find(selector).map((each) => each.textContent);
const act = (element, value, event) => {
  element.value = value;
  element.dispatchEvent(new page.Event(event));
};
const card = find("[data-rule]").find((card) => find("h3", card)[0].textContent === "too_few_words");
const [slider, field] = [find("[type=range]", card)[0], find("[type=number]", card)[0]];
const seen = () => ({
  panel: text(".panel p"), code: text(".panel code")[0], badges: text(".badge"), field: field.value,
  hidden: find(".panel")[0].hidden, mark: find(".mark", card)[0].textContent, copy: text(".panel button")[0],
  window: find("svg svg", card)[0].getAttribute("x"), bound: find(".bound", card)[0].getAttribute("x1"),
});
"""


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: apt-get install chromium")
def test_a_slider_shows_shares_samples_and_settings(folder: Path, tmp_path: Path):
    report = report_of(folder / "out")
    moves = """
    const states = [seen()];
    act(field, "60", "change");
    states.push(seen());
    act(field, "0", "change");
    states.push(seen());
    act(slider, "1000", "input");
    find(".panel button")[0].click();
    await new Promise((done) => setTimeout(done, 100));
    states.push(seen());
    const times = [];
    for (let move = 300; move < 310; move++) {
      const start = page.performance.now();
      act(slider, String(move), "input");
      times.push(page.performance.now() - start);
    }
    find(".panel button")[1].click();
    states.push(seen());
    return { states, least: Math.min(...times) };
    """
    found = in_browser(as_html(report), SHOW + moves, tmp_path)
    first, typed, lowest, highest, last = found["states"]
    assert first["hidden"] and first["field"] == "50" == first["mark"] and not first["badges"]
    (effect,) = plan_by_measures(
        load_recipe(folder / "r.yaml", settings=["stages.filter.too_few_words.min=60"]), folder / "out"
    )
    total = effect.reached
    shares = [100 * (1 - removed / total) for removed in (effect.removed, effect.before)]
    assert typed["panel"][0] == (
        f"With the moved bounds, {shares[0]:.1f}% of the documents are kept after this filter; "
        f"the run kept {shares[1]:.1f}%. All rules then "
        f"remove {effect.removed:,} of {total:,} documents; the run removed {effect.before:,}."
    )
    assert f"all {total:,} documents that reached filter" in typed["panel"][1]
    assert not typed["hidden"] and typed["code"] == "--set stages.filter.too_few_words.min=60"
    assert typed["mark"] == "60" and typed["window"] == typed["bound"] > first["bound"]
    assert lowest["field"] == "1" and {*lowest["badges"]} == {"would pass filter"}  # 0 could remove nothing
    assert {*highest["badges"]} == {"would be removed by filter"} and highest["copy"] == "Copied"
    assert (last["hidden"], last["field"], last["badges"], last["bound"]) == (True, "50", [], first["bound"])
    assert found["least"] < 50


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: apt-get install chromium")
def test_samples_are_searched_and_sorted(folder: Path, tmp_path: Path):
    report = report_of(folder / "out")
    samples = [sample for entry in report["texts"]["removed"] for sample in entry["samples"]]
    word = samples[0]["text"].split()[0].lower()
    search = """
    const visible = () => find("[data-sample]").filter((each) => !each.hidden && !each.closest("details")?.hidden);
    const names = () => visible().map((each) => each.dataset.sample);
    const [field, order] = [find(".tools [type=search]")[0], find(".tools select")[0]];
    const start = names();
    act(order, "value", "change");
    const values = visible().map((each) => each.dataset.value ?? null);
    act(order, "input", "change");
    const inputs = names().length;
    act(order, "reason", "change");
    const again = names();
    act(field, {word}, "input");
    const texts = visible().map((each) => each.textContent), all = find("[data-sample]").length;
    return {{ start, values, inputs, again, texts, all }};
    """
    body = SHOW.replace("const [slider, field]", "const [slider, number]").replace("field.value", "number.value")
    found = in_browser(as_html(report), body + search.format(word=json.dumps(word)), tmp_path)
    numbers = [float(value) for value in found["values"] if value is not None]
    assert numbers == sorted(numbers, reverse=True) and len(numbers) == len(samples)
    assert found["start"] == found["again"] and found["inputs"] == found["all"] == len(samples) + 5
    assert 0 < len(found["texts"]) < found["all"] and all(word in text.lower() for text in found["texts"])
