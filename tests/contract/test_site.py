# SPDX-License-Identifier: Apache-2.0
"""The documentation is a site whose menu has all pages, with the Python API and the notebooks."""

import re
from pathlib import Path

import pytest

import curation
from tests.needs import needs
from tests.scripts import make_site

ROOT = Path(__file__).resolve().parents[2]
OWN_MENU = "docs/decisions/"  # its README lists them
MAX_WORDS, OF_README = 2500, 900
TABLES = ("docs/measurements/", "benchmarks/")  # of measurements
LISTS = ("CHANGELOG.md", make_site.API)  # looked up by name


def test_the_menu_has_each_page_once():
    pages = {str(path.relative_to(ROOT)) for path in make_site.markdown_files()}
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")}
    expected = {name for name in pages | notebooks | {make_site.API} if not name.startswith(OWN_MENU)}
    assert sorted(make_site.pages_in_menu()) == sorted({*expected, f"{OWN_MENU}README.md"})


def test_no_page_is_longer_than_people_read():
    api = make_site.api_pages()
    read = [name for name in make_site.pages_in_menu() if not name.startswith((*TABLES, *LISTS, "notebooks/"))]
    texts = api | {name: (ROOT / name).read_text("utf-8") for name in read if name not in api}
    counts = {name: len(text.split()) for name, text in texts.items()}
    longer = {name: words for name, words in counts.items() if words > MAX_WORDS and name not in LISTS}
    assert longer == {} and counts["README.md"] <= OF_README


def test_the_api_has_every_public_name():
    pages = make_site.api_pages()
    public = {name for name in curation.__all__ if callable(getattr(curation, name))}
    listed = dict(re.findall(r"^\| \[(\w+)\]\((.*?)\) \| \S", pages[make_site.API], re.M))
    assert listed.keys() == public
    assert all(f"# {name}\n" in pages[f"docs/{path}"] for name, path in listed.items())
    assert "| `frame, text_column` | as in" in pages["docs/python_api/fuzzy_dedup.md"]


@pytest.mark.parametrize(
    ("docstring", "page"),
    [
        ("One line.\n\na      first\n       line\nb, c   `x|y`", "One line.\n\n| name | meaning |\n|---|---|\n"
         "| `a` | first line |\n| `b, c` | `x\\|y` |"),
        ("Text\nof two lines.\n\n    >>> 1 + 1\n    2", "Text\nof two lines.\n\n```python\n>>> 1 + 1\n2\n```"),
    ],
)  # fmt: skip
def test_docstrings_become_tables_and_examples(docstring: str, page: str):
    assert make_site.docstring_page(docstring) == page


def test_the_site_is_built_without_a_warning(tmp_path: Path):
    needs("zensical")
    done = make_site.build(tmp_path / "site")
    assert done.returncode == 0, done.stdout
    built = {page.parent.name for page in (tmp_path / "site").glob("**/index.html")}
    assert {"rules", "python_api", "quickstart", "RESULTS", "CONTRIBUTING"} <= built
    assert (tmp_path / "site" / "search.json").exists()
    pages = [page.read_text("utf-8") for page in (tmp_path / "site").rglob("*.html")]
    assert not [tag for page in pages for tag in re.findall(r"<(?:link|script|img)[^>]*=.?(?:https?:)?//[^>]*>", page)]


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    needs("zensical")
    config = tmp_path / "zensical.toml"
    config.write_text('[project]\nsite_name = "one page"\ndocs_dir = "pages"\nsite_dir = "site"\n')
    monkeypatch.setattr(make_site, "CONFIG", config)
    for link, leads in (("index.md", True), ("gone.md", False)):

        def stage(folder: Path, link: str = link) -> None:
            folder.mkdir()
            (folder / "index.md").write_text(f"# Page\n\n[link]({link})\n")

        monkeypatch.setattr(make_site, "stage_pages", stage)
        site = tmp_path / link
        assert (make_site.build(site).returncode == 0, site.exists()) == (leads, leads)
