# SPDX-License-Identifier: Apache-2.0
"""`report.html`: hostile names are inert, its size is bounded, its colours have contrast, and it fits a phone."""

import copy
import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from curation.running.report_html import MAX_BYTES, STYLE, as_html
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of, report_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e\"'&" + "W" * 3000
TAGS = {
    "b", "body", "br", "code", "dd", "details", "div", "dl", "dt", "h1", "h2", "head", "html", "meta", "p", "polygon",
    "pre", "section", "span", "style", "summary", "svg", "table", "td", "th", "title", "tr",
}  # fmt: skip
ATTRIBUTES = {
    "aria-hidden", "charset", "class", "content", "http-equiv", "lang", "name", "open", "points", "preserveaspectratio",
    "style", "viewbox",
}  # fmt: skip
WIDTHS = (390, 800, 1600)
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
    (folder / "a.jsonl").write_bytes(records_of(made_texts(200)))
    run(recipe_of(folder / "a.jsonl", name="page"), folder / "out", engine="cpu")
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
    """The report with every string that comes from outside replaced."""
    if isinstance(value, dict):
        return {HOSTILE if key == "exact_duplicate" else key: made_hostile(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [made_hostile(entry) for entry in value]
    return HOSTILE if isinstance(value, str) else value


def test_hostile_names_are_inert(report: dict[str, Any]):
    page = as_html(made_hostile(report) | {"warnings": [HOSTILE]})
    found = Reader(page)
    assert found.tags <= TAGS and found.attributes <= ATTRIBUTES and found.open == []
    assert "<script" not in page and "\x1b" not in page and html.escape("<script>alert(1)") in page
    assert "default-src 'none'" in page


def test_every_number_of_the_funnel_is_on_the_page(report: dict[str, Any]):
    page = as_html(report)
    for stage in report["stages"]:
        assert f'<span class="name">{stage["name"]}</span>' in page and f">{stage['documents_out']:,}<br>" in page
        for reason, number in stage["reasons"].items():
            assert f'<span class="name">{reason}</span>' in page and f"−{number:,} (" in page
    assert f"<b>{report['documents']['kept']:,}</b>documents kept" in page


def test_the_size_is_bounded(report: dict[str, Any]):
    many = copy.deepcopy(report)
    many["stages"][1]["reasons"] = {f"{number} {HOSTILE}": number for number in range(1, 20_000)}
    many["sources"] = [many["sources"][0] | {"name": f"{number}{HOSTILE}"} for number in range(5_000)]
    many["outputs"] = {f"{number}{HOSTILE}": "0" * 64 for number in range(20_000)}
    many["warnings"] = [HOSTILE] * 5_000
    many["recipe"]["input"] *= 20_000
    page = as_html(many)
    assert len(page.encode()) < MAX_BYTES and "and 19,959 reasons more" in page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_contrast(scheme: str):
    """WCAG 2.2, success criteria 1.4.3 (text, 4.5 to 1) and 1.4.11 (bars, 3 to 1)."""
    blocks = re.findall(r":root \{([^}]*)\}", STYLE)
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", blocks[scheme == "dark"]))
    for ground in ("ground", "panel"):
        for ink in ("ink", "quiet", "accent"):
            assert contrast(colours[ground], colours[ink]) >= 4.5
        for bar in ("kept", "removed", "accent"):
            assert contrast(colours[ground], colours[bar]) >= 3


def contrast(first: str, second: str) -> float:
    dark, light = sorted(luminance(colour) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")
@pytest.mark.parametrize("hostile", [False, True])
def test_the_page_fits_the_width_of_screens(report: dict[str, Any], tmp_path: Path, hostile: bool):
    page = as_html(made_hostile(report)) if hostile else as_html(report)
    frame = tmp_path / "frame.html"
    content = json.dumps(page).replace("</", "<\\/")
    frame.write_text(FRAME.format(page=content, widths=list(WIDTHS)), "utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [CHROMIUM, *flags, profile, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri()]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    shown = re.search(r'<pre id="out">(.*?)</pre>', finished.stdout)
    assert shown and shown[1].split() == [f"{width}={width}" for width in WIDTHS]
    assert "CONSOLE" not in finished.stderr, finished.stderr
