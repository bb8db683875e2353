# SPDX-License-Identifier: Apache-2.0
"""Build the documentation as a site with search, by Zensical: `make site`.

    python -m tests.scripts.make_site [SITE]    default: site/

Pages are plain Markdown that a forge shows too. They are copied with the layout of the repository, so the same links
hold on both. The notebooks, and the Python API from its docstrings, become pages here alone. A warning of Zensical,
such as a link to a heading that is not there, is an error.
"""

import inspect
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import curation

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "zensical.toml"
API = "docs/python_api.md"
API_FOLDER = "docs/python_api/"
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
NOTEBOOK = re.compile(r"(\]\([^)#:]+)\.ipynb(?=[)#])")
DEFINITION = re.compile(r"(\S.*?)\s{2,}(\S.*)")
WIDTH = 90
NAMED = re.compile(r"^```(\w+) (\S+)$", re.M)  # a block of code with the name of its file
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FOLDER = re.compile(r"(\]\((?:[^)#:]+/)?decisions)\)")


def markdown_files() -> list[Path]:
    """The Markdown files of the repository that the site shows."""
    return [path for files in ("*.md", "docs/**/*.md", "benchmarks/*.md") for path in sorted(ROOT.glob(files))]


def notebook_page(path: Path) -> str:
    """Return a notebook as Markdown."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


class Bare(str):
    """An annotation that `inspect` prints without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def bare(annotation: Any) -> Any:
    return Bare(annotation) if isinstance(annotation, str) else annotation


def signature_of(name: str, value: Any) -> str:
    """Return how to call a public name, with a parameter per line if that is longer than `WIDTH`."""
    try:
        signature = inspect.signature(value)
    except ValueError:
        return name
    parameters = [item.replace(annotation=bare(item.annotation)) for item in signature.parameters.values()]
    call = f"{name}{signature.replace(parameters=parameters, return_annotation=bare(signature.return_annotation))}"
    if len(call) <= WIDTH:
        return call
    first = next((k for k, item in enumerate(parameters) if item.kind is item.KEYWORD_ONLY), len(parameters))
    lines = [f"    {part}," for part in [*parameters[:first], *["*"] * (first < len(parameters)), *parameters[first:]]]
    return "\n".join([f"{name}(", *lines, call[call.rindex(")") :]])


def definitions(block: str) -> str:
    """Return lines of a name, two spaces or more, and its text as a table."""
    rows: list[list[str]] = []
    for line in block.splitlines():
        found = DEFINITION.fullmatch(line)
        if found and not line.startswith(" "):
            rows.append([*found.groups()])
        else:
            rows[-1][1] += f" {line.strip()}"
    escaped = [(name, text.replace("|", r"\|")) for name, text in rows]
    return "\n".join(["| name | meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in escaped)])


def docstring_page(text: str) -> str:
    """Return a docstring as Markdown: paragraphs, tables of names, and examples."""
    parts = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if lines[0].startswith("    "):
            parts.append(f"```python\n{inspect.cleandoc(block)}\n```")
        elif all(line.startswith(" ") or DEFINITION.fullmatch(line) for line in lines):
            parts.append(definitions(block))
        else:
            parts.append(block)
    return "\n\n".join(parts)


def entry_of(name: str) -> str:
    """Return the signature and the docstring of a public name as Markdown."""
    value = getattr(curation, name)
    call = [] if kind_of(value) == "Errors" else [f"```python\n{signature_of(name, value)}\n```"]
    return "\n\n".join([f"# {name}", *call, docstring_page(inspect.getdoc(value) or "")])


def api_pages() -> dict[str, str]:
    """Return the pages of the Python API by path: a list, and a page per name; `filter` and `Filter` share one."""
    names = sorted(curation.__all__, key=lambda name: (name.lower(), name[0].isupper()))
    public = [name for name in names if callable(getattr(curation, name))]
    pages: dict[str, str] = {}
    rows: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
    for name in public:
        path = f"{API_FOLDER}{name.lower()}.md"
        pages[path] = f"{pages[path]}\n{entry_of(name)}\n" if path in pages else f"{entry_of(name)}\n"
        rows[kind_of(getattr(curation, name))].append(
            f"| [{name}](python_api/{name.lower()}.md) | {first_line(name)} |"
        )
    tables = [f"## {kind}\n\n| name | meaning |\n|---|---|\n" + "\n".join(lines) for kind, lines in rows.items()]
    head = (
        "# Python API\n\nAll functions, classes and errors of `curation`. `help(curation.NAME)` prints the same texts."
    )
    return {API: "\n\n".join([head, *tables]) + "\n", **pages}


def kind_of(value: Any) -> str:
    if not inspect.isclass(value):
        return "Functions"
    return "Errors" if issubclass(value, BaseException) else "Classes"


def first_line(name: str) -> str:
    """The first paragraph of a docstring, for a cell of a table."""
    text = (inspect.getdoc(getattr(curation, name)) or "").partition("\n\n")[0]
    return " ".join(text.split()).replace("|", r"\|")


def stage_pages(folder: Path) -> None:
    """Write all pages of the site, and the files to which they link."""
    for page in markdown_files():
        text = page.read_text("utf-8")
        for target in LINK.findall(text):
            linked = (page.parent / target).resolve()
            if linked.is_file() and linked.suffix not in (".md", ".ipynb") and ROOT in linked.parents:
                copied = folder / linked.relative_to(ROOT)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(linked, copied)
        written = folder / page.relative_to(ROOT)
        written.parent.mkdir(parents=True, exist_ok=True)
        text = FOLDER.sub(r"\1/README.md)", NOTEBOOK.sub(r"\1.md", text))
        written.write_text(NAMED.sub(r'```\1 title="\2"', text), "utf-8")
    (folder / "notebooks").mkdir()
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        (folder / "notebooks" / f"{notebook.stem}.md").write_text(notebook_page(notebook), "utf-8")
    shutil.copyfile(ROOT / "docs" / "report.png", folder / "docs" / "report.png")
    (folder / API_FOLDER).mkdir()
    for name, text in api_pages().items():
        (folder / name).write_text(text, "utf-8")


def build(site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site into a folder that is replaced."""
    with tempfile.TemporaryDirectory() as name:
        staged = Path(name)
        stage_pages(staged / "pages")
        (staged / "zensical.toml").write_text(CONFIG.read_text("utf-8"), "utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        done = subprocess.run(command, cwd=staged, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            shutil.rmtree(site, ignore_errors=True)
            shutil.move(staged / "site", site)
        return done


def pages_in_menu() -> list[str]:
    """The pages that the menu of the site names."""

    def paths(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [path for part in (entry.values() if isinstance(entry, dict) else entry) for path in paths(part)]

    return paths(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"])


if __name__ == "__main__":
    done = build(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
    sys.stdout.write(COLOURS.sub("", done.stdout))
    sys.exit(done.returncode)
