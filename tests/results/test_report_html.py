# SPDX-License-Identifier: Apache-2.0
"""`report.html`: hostile names are inert, its size is bounded, its colours have contrast, and it fits a phone."""

import base64
import copy
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation.base.system.terminal import UNSAFE
from curation.record.report_schema import wrong_in_report
from curation.results.report import measured_sample
from curation.results.report.html import MAX_BYTES, as_html
from curation.results.report.measured_sample import packed
from curation.results.report.page import rendering
from curation.results.report.page.live import SCRIPT
from curation.running.run import run
from tests.results.pages import CHROMIUM, chromium, without_scripts
from tests.runs import made_texts, recipe_of, records_of, report_of

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e\u2028\"'&"
HOSTILE += "\" onload=\"alert(1)' onload='alert(1)` onload=`alert(1) </title></svg>]]>--><!--{{ name }}" + "W" * 3000
TAGS = {
    "a", "b", "body", "br", "code", "dd", "details", "div", "dl", "dt", "h1", "h2", "h3", "head", "html", "line",
    "mark", "meta", "nav", "p", "path", "polygon", "pre", "rect", "section", "span", "style", "summary", "svg", "table",
    "td", "text", "th", "title", "tr",
}  # fmt: skip
ATTRIBUTES = {
    "aria-hidden", "aria-label", "charset", "class", "content", "d", "data-bins", "data-filter", "data-input",
    "data-rule", "data-sample", "data-value", "height", "href", "http-equiv", "id", "lang", "name",
    "open", "points", "preserveaspectratio", "role", "style", "text-anchor", "viewbox", "width", "x", "x1", "x2", "y",
    "y1", "y2",
}  # fmt: skip
NAMING = {"reasons", "splits", "versions"}  # their keys are names
WIDTHS = (390, 800, 1600)
STAGES = [
    {"kind": "filter", "rules": [{"measure": "words", "min": 5, "max": 55, "reason": "short"},
                                 {"ratio": ["words_with_letter", "words"], "min": 0.5},
                                 {"matches": "endoftext", "max_count": 1, "reason": "marks"}]},
    {"kind": "exact_dedup"},
    {"kind": "fuzzy_dedup", "threshold": 0.5},
]  # fmt: skip
FRAME = """<!doctype html><body style="margin:0"><pre id=out></pre><script>
const page = {page};
for (const width of {widths}) {{
  const frame = document.createElement("iframe");
  frame.style = `width:${{width}}px;height:900px;border:0`;
  frame.onload = () => {{
    const root = frame.contentDocument.documentElement;
    document.getElementById("out").textContent += `${{width}}=${{root.scrollWidth}} `;
  }};
  frame.srcdoc = page;
  document.body.append(frame);
}}
</script>"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("report")
    texts = made_texts(200)
    texts += [f"{text} {number}" for number, text in enumerate(texts) if len(text) > 200]  # near-duplicates
    (folder / "a.jsonl").write_bytes(records_of([*texts, HOSTILE * 3]))
    recipe = recipe_of(folder / "a.jsonl", stages=STAGES, name="page", output={"formats": ["megatron"]})
    run(recipe, folder / "out", engine="cpu")
    return report_of(folder / "out")


class Reader(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def made_hostile(value: Any) -> Any:
    """The report with every string that comes from outside replaced, those that are keys too."""
    if isinstance(value, dict):
        numbers = {"data": value.get("data"), "shown": value.get("shown")} if "drawn" in value else {}
        hostile = {key: made_hostile(entry) for key, entry in value.items()} | numbers
        for name in NAMING & hostile.keys():
            hostile[name] = {f"{key}{HOSTILE}": entry for key, entry in hostile[name].items()}
        return hostile
    if isinstance(value, list):
        return [made_hostile(entry) for entry in value]
    return HOSTILE if isinstance(value, str) else value


def test_hostile_names_are_inert(report: dict[str, Any]):
    whole = as_html(made_hostile(report) | {"warnings": [HOSTILE]})
    page = without_scripts(whole)
    found = Reader(page)
    assert found.tags <= TAGS and found.attributes <= ATTRIBUTES and found.open == []
    assert "<script" not in page and html.escape("<script>alert(1)") in page and "\\u202e\\u2028" in page
    assert not UNSAFE.search(whole)
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f'http-equiv="Content-Security-Policy" content="{policy}">' in page
    assert {*re.findall(r'href="([^"]*)"', page)} <= {f"#{name}" for name in re.findall(r'id="([a-z]+)"', page)}


def test_the_page_shows_rules_samples_pairs_and_groups(report: dict[str, Any]):
    told = "DIR is the folder of this page"
    page = as_html(report | {"warnings": ["See curate show DIR --reason marks"]})
    assert told in page and told not in as_html(report | {"warnings": ["none"]})
    assert report["texts"]["pairs"] and len(report["texts"]["groups"]) == 2
    rule = report["stages"][0]["rules"][0]
    assert f"{rule['below'] + rule['above']:,} beyond it" in page and ">55</text>" in page
    for entry in report["texts"]["removed"]:
        assert f"{len(entry['samples'])} sample" in page and f"of {entry['documents']:,} removed" in page
    marked = next(entry for entry in report["texts"]["removed"] if entry["reason"] == "marks")
    assert marked["samples"][0]["marks"] and "<mark>endoftext</mark>" in page
    pair = report["texts"]["pairs"][0]["pairs"][0]
    assert f"Jaccard {pair['jaccard']:.3f}" in page and any(not equal for *_, equal in pair["runs"])


def test_no_samples_leave_no_text_in_the_report(tmp_path: Path):
    secrets = [f"secret{number} " * 3 for number in range(40)] + ["secret again and again and again"] * 2
    (tmp_path / "a.jsonl").write_bytes(records_of(secrets))
    for name, samples in (("with", 2), ("without", 0)):
        recipe = recipe_of(tmp_path / "a.jsonl", stages=STAGES, report={"samples": samples}, output={"removed": "ids"})
        run(recipe, tmp_path / name, engine="cpu", progress=False)
    assert all("secret" in (tmp_path / "with" / name).read_text() for name in ("report.html", "report.json"))
    assert not any("secret" in (tmp_path / "without" / name).read_text() for name in ("report.html", "report.json"))


def test_samples_do_not_depend_on_slices(tmp_path: Path, report: dict[str, Any]):
    folder = Path(report["files"][0]["path"]).parent
    recipe = recipe_of(folder / "a.jsonl", stages=STAGES, name="page", output={"formats": ["megatron"]})
    run(recipe, tmp_path / "out", engine="cpu", slice_bytes=12_000, workers=2, progress=False)
    sliced = report_of(tmp_path / "out")
    assert all(sliced[key] == report[key] for key in ("texts", "values", "measured")) and report["measured"]
    assert [stage.get("rules") for stage in sliced["stages"]] == [stage.get("rules") for stage in report["stages"]]


def test_values_of_rules_count_every_document_that_reached_the_filter(report: dict[str, Any]):
    stage = report["stages"][0]
    assert [rule["reason"] for rule in stage["rules"]] == ["short", "words_with_letter_per_words"]
    for rule in stage["rules"]:
        assert sum(rule["counts"]) == stage["documents_in"]
    assert stage["rules"][0]["below"] + stage["rules"][0]["above"] == stage["reasons"]["short"]
    assert sum(report["values"]["read_bytes"]["counts"]) == report["documents"]["read"]
    assert sum(report["values"]["kept_bytes"]["counts"]) == report["documents"]["kept"]
    assert sum(report["values"]["tokens_per_byte"]["counts"]) == report["documents"]["kept"]


def test_a_report_with_the_map_of_clusters_of_earlier_versions_is_read(report: dict[str, Any]):
    points = [[0.5, -0.5, 0, HOSTILE, HOSTILE]] * 3
    found = {"stage": "embed", "clusters": [], "count": 1, "shares": [0.5, 0.2], "points": points}
    earlier = report | {"texts": report["texts"] | {"clusters": [found]}}
    assert wrong_in_report(earlier) == "" and as_html(earlier) == as_html(report)


@pytest.mark.parametrize("name", ["bytes", "lengths", "sources", "frequent"])
def test_details_of_other_types_that_the_page_shows_are_refused(report: dict[str, Any], name: str):
    details = {"bytes": 5, "lengths": {"50 or more": [1, 5]}, "sources": {"texts": [5, 90]}, "frequent": []}
    stages = [report["stages"][0] | {"details": details}, *report["stages"][1:]]
    assert wrong_in_report(report | {"stages": stages}) == ""
    stages[0]["details"] = details | {name: ["x"]}
    assert "Expected" in wrong_in_report(report | {"stages": stages})


def test_every_number_of_the_funnel_is_on_the_page(report: dict[str, Any]):
    page = as_html(report)
    for stage in report["stages"]:
        assert f'<span class="name">{stage["name"]}</span>' in page and f">{stage['documents_out']:,} <br>" in page
        for reason, number in stage["reasons"].items():
            assert f'<span class="name">{reason}</span>' in page and f"−{number:,} (" in page
    assert f"<b>{report['documents']['kept']:,}</b>documents kept" in page


@pytest.mark.slow("the size of report.html is bounded")
def test_the_size_is_bounded(report: dict[str, Any]):
    many = copy.deepcopy(report)
    many["stages"][0]["reasons"] = {f"{number} {HOSTILE}": number for number in range(1, 20_000)}
    many["sources"] = [many["sources"][0] | {"name": f"{number}{HOSTILE}"} for number in range(5_000)]
    many["outputs"] = {f"{number}{HOSTILE}": "0" * 64 for number in range(20_000)}
    many["warnings"] = [HOSTILE] * 5_000
    many["recipe"]["input"] *= 5_000
    many["stages"][0]["rules"] = [many["stages"][0]["rules"][0] | {"reason": HOSTILE, "measure": HOSTILE}] * 3_000
    sample = many["texts"]["kept"][0] | {"text": HOSTILE * 10, "id": HOSTILE, "file": HOSTILE}
    removed = {"stage": HOSTILE, "reason": HOSTILE, "documents": 9, "samples": [sample] * 20}
    pair = many["texts"]["pairs"][0]["pairs"][0] | {"runs": [[HOSTILE, HOSTILE, False]] * 9}
    pairs = {"stage": HOSTILE, "reason": HOSTILE, "documents": 9, "pairs": [pair] * 3_000}
    groups = [{**group, "document": sample, "stage": HOSTILE} for group in many["texts"]["groups"] * 3_000]
    many["texts"] = {"kept": [sample] * 3_000, "removed": [removed] * 3_000, "pairs": [pairs], "groups": groups}
    many["values"]["languages"] = {name: {f"{k} {HOSTILE}": k for k in range(3_000)} for name in ("read", "kept")}
    most = {"stage": HOSTILE, "reason": HOSTILE, "documents": 9}
    many["values"]["most_removed"] = {f"{number} {HOSTILE}": most for number in range(3_000)}
    reasons = {f"{number} {HOSTILE}": number for number in range(60)}  # more than are shown
    many["stages"] += [many["stages"][0] | {"reasons": reasons}] * 300
    (entry,) = many["measured"]
    rules = [rule | {"reason": HOSTILE} for rule in entry["rules"]] * 99
    numbers = packed([np.full(measured_sample.MAX_NUMBERS, 2**31 - 1)])  # the largest sample
    many["measured"] = [entry | {"data": numbers}, entry | {"stage": "later", "rules": rules}]
    many["stages"].append(many["stages"][0] | {"name": "later"})
    page = as_html(many)
    assert len(page.encode()) < MAX_BYTES and len(numbers) > 1_400_000 and numbers in page and len(SCRIPT) < 60_000
    assert len(without_scripts(page).encode()) < 1_500_000 and "and 19,959 reasons more" in page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str):
    """WCAG 2.2, success criteria 1.4.3 (text, 4.5 to 1) and 1.4.11 (bars, 3 to 1)."""
    style = Path(rendering.__file__).with_name("style.css").read_text("utf-8")
    blocks = re.findall(r":root \{([^}]*)\}", style)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", blocks[scheme == "dark"]))
    for ground in ("ground", "panel"):
        for ink in ("ink", "quiet", "accent"):
            assert contrast(colours[ground], colours[ink]) >= 4.5
        for bar in ("kept", "removed", "accent"):
            assert contrast(colours[ground], colours[bar]) >= 3
    assert contrast(colours["mark"], colours["markink"]) >= 4.5


def contrast(first: str, second: str) -> float:
    dark, light = sorted(luminance(colour) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed: apt-get install chromium")
@pytest.mark.parametrize("hostile", [False, True])
def test_the_page_fits_the_width_of_screens(report: dict[str, Any], tmp_path: Path, hostile: bool):
    check_widths(as_html(made_hostile(report)) if hostile else as_html(report), tmp_path)


def check_widths(page: str, tmp_path: Path) -> None:
    """Check that Chromium shows the page without scrolling to the side and without a message on its console."""
    frame = tmp_path / "frame.html"
    content = json.dumps(page).replace("</", "<\\/")
    frame.write_text(FRAME.format(page=content, widths=list(WIDTHS)), "utf-8")
    output = chromium(frame, tmp_path)
    shown = re.search(r'<pre id="out">(.*?)</pre>', output)
    assert shown and sorted(shown[1].split()) == sorted(f"{width}={width}" for width in WIDTHS)
