# SPDX-License-Identifier: Apache-2.0
"""What tests of `report.html` share: its script apart from the rest, and running it in Node and in Chromium."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from curation.results.report.page.live import SCRIPT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE = shutil.which("node")
DATA = re.compile(r'<script type="application/json" id="measured">([^<]*)</script>\n')
IN_NODE = """
const data = {data};
globalThis.window = globalThis;
globalThis.document = {{
  getElementById: (name) => (name === "measured" ? {{ textContent: data }} : null), querySelectorAll: () => [],
}};
{script}
const run = () => {{ {body} }};
console.log(JSON.stringify(run()));
"""
IN_BROWSER = """<!doctype html><body style="margin:0"><pre id=out></pre><script>
const frame = document.createElement("iframe");
frame.style = "width:1200px;height:900px;border:0";
frame.onload = async () => {{
  const page = frame.contentWindow;
  const run = async () => {{ {body} }};
  document.getElementById("out").textContent = JSON.stringify(await run());
}};
frame.srcdoc = {page};
document.body.append(frame);
</script>"""


def without_scripts(page: str) -> str:
    """The page without its data and its script, each of which it has once."""
    assert len(DATA.findall(page)) == page.count(SCRIPT) == 1
    return DATA.sub("", page).replace(f"<script>{SCRIPT}</script>", "")


def in_node(page: str, body: str) -> Any:
    """What the body of a function returns, with the script of a page and its data, and without its elements."""
    found = DATA.search(page)
    assert found and NODE
    program = IN_NODE.format(data=json.dumps(found[1]), script=SCRIPT, body=body)
    return json.loads(subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, check=True).stdout)


def in_browser(page: str, body: str, folder: Path) -> Any:
    """What the body of an async function returns in Chromium, where `page` is the window of a page."""
    path = folder / "frame.html"
    content = json.dumps(page).replace("</", "<\\/")
    path.write_text(IN_BROWSER.format(page=content, body=body), "utf-8")
    output = chromium(path, folder)
    found = re.search(r'<pre id="out">(.*?)</pre>', output, re.DOTALL)
    assert found and found[1], output
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def chromium(path: Path, folder: Path) -> str:
    """The elements of a page after its scripts; no message may be on the console."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr")
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(CHROMIUM), *flags, profile, "--virtual-time-budget=5000", "--dump-dom", path.as_uri()]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in finished.stderr, finished.stderr
    return finished.stdout
