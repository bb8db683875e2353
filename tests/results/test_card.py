# SPDX-License-Identifier: Apache-2.0
"""`README.md` of a run: what it says for which outputs, whatever names the run has."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from cmarkgfm import github_flavored_markdown_to_html
from cmarkgfm.cmark import Options

from curation.base.system.terminal import printable_line
from curation.results.finished.verify import verify
from curation.results.report.card import as_card
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of, report_of

SPLITS = {"train": 0.5, "valid": 0.3, "test": 0.2}


def content(outputs: list[str], splits: dict[str, float] | None = None, **changed: Any) -> dict[str, Any]:
    """Of a report: what the card reads."""
    source = {"name": "web", "documents_kept": 1234, "bytes_kept": 56789, "licence": "CC-BY-SA-4.0"}
    return {
        "recipe": {"name": "news", "output": {"splits": splits or {}, "documents": "documents" in str(outputs)}},
        "documents": {"read": 2000, "kept": 1234, "removed": 760, "rejected": 6, "copies": 0},
        "bytes": {"read": 99999, "kept": 56789},
        "tokens": {"count": 4321, "tokenizer": {"name": "gpt2"}},
        "sources": [source],
        "outputs": dict.fromkeys([*outputs, "rejected.jsonl", "tokens/web.bin"], "0"),
    } | changed


def configs_of(card: str) -> list[dict[str, Any]]:
    _, front, rest = card.split("---\n", 2)
    assert rest.startswith("\n# ")
    return (yaml.safe_load(front) or {}).get("configs", [])


DOCUMENTS, REMOVED = ["documents/part-00000.parquet", "documents/part-00001.parquet"], ["removed/part-00000.parquet"]


@pytest.mark.parametrize(
    ("outputs", "splits", "names"),
    [
        ([], {}, []),
        (DOCUMENTS, {}, [("documents", "train", "documents/*.parquet", None)]),
        ([*REMOVED, *DOCUMENTS], {}, [
            ("documents", "train", "documents/*.parquet", None), ("removed", "removed", "removed/*.parquet", None),
        ]),
        (REMOVED, SPLITS, [("removed", "removed", "removed/*.parquet", None)]),
        (DOCUMENTS, SPLITS, [
            (name, name, "documents/*.parquet", [["split", "==", name]]) for name in ("train", "valid", "test")
        ]),
        (["raw/all.parquet", "cleaned/part-00000.jsonl", "measures/part-00000.parquet", *DOCUMENTS], {}, [
            ("documents", "train", "documents/*.parquet", None), ("measures", "measures", "measures/*.parquet", None),
            ("raw", "raw", "raw/all.parquet", None),
        ]),
    ],
)  # fmt: skip
def test_a_configuration_for_each_folder_or_split(outputs: list[str], splits: dict[str, float], names: list[tuple]):
    card = as_card(content(outputs, splits), ["doc", "id", "source", "text"])
    configs = configs_of(card)
    found = [
        (config["config_name"], config["data_files"][0]["split"], config["data_files"][0]["path"],
         config.get("filters")) for config in configs
    ]  # fmt: skip
    assert found == names and [config.get("default") for config in configs] == [True, None, None][: len(names)]
    assert ("## Load" in card) is bool(names)
    assert ('cleaned = load_dataset("json", data_files="DIR/cleaned/*.jsonl", split="train")' in card) is (
        "cleaned/part-00000.jsonl" in outputs
    )


def test_counts():
    card = as_card(content(DOCUMENTS), ["doc", "text"])
    for line in (
        "The recipe kept 1,234 documents.", "| read | 2,000 | 99,999 |", "| removed | 760 | |", "| rejected | 6 | |",
        "4,321 tokens by `gpt2`.", "| `web` | 1,234 | 56,789 | `CC-BY-SA-4.0` |",
        "Columns of `documents/`: `doc`, `text`.",
    ):  # fmt: skip
        assert line in card.splitlines()
    many = [{"name": f"input-{k}", "documents_kept": 1, "bytes_kept": 1} for k in range(53)]
    card = as_card(content(DOCUMENTS, tokens={}, sources=many), ["doc"])
    assert "`input-49`" in card and "input-50" not in card and "`report.json` has 3 more inputs." in card
    assert "tokens by" not in card


HOSTILE = (
    "https://name.example/login", "www.name.example", "mail@name.example and mailto:mail@name.example", "&copy;",
    "&#64;", "@me", "#123 GH-1 owner/repo#1 0123456789abcdef0123456789abcdef01234567", "[^1]\n\n[^1]: note", "$x$",
    "$$y$$ $`z`$", ":smile:", "<!-- x", "<details open><summary>x</summary>", "<script>alert(1)</script>", "[l](http://name.example)",
    "![i](http://name.example/i.png)", "<http://name.example>", "a\n---\n# b", "a | b\n|---|---|", "\\", "a\\|b", "`",
    "```", "a ``b`` c`", " ` ", "~~~", "**b** __i__ ~~s~~", "- [x] task", "> q", "1. one", "\tcode", "[l]: http://name.example",
    "\u202e\u2028\x1b[2J", "---", "a" * 9000,
)  # fmt: skip
GITHUB = Options.CMARK_OPT_FOOTNOTES | Options.CMARK_OPT_UNSAFE  # raw HTML would be seen


class Rendered(HTMLParser):
    """A card as GitHub renders it: its elements with their attributes and the text outside of code; and the code."""

    def __init__(self, card: str) -> None:
        super().__init__()
        self.page, self.codes, self.is_code = list[Any](), list[str](), False
        self.feed(github_flavored_markdown_to_html(card.split("---\n", 2)[2], GITHUB))

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.page.append((tag, attrs))
        self.is_code = tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self.is_code = False

    def handle_data(self, data: str) -> None:
        (self.codes if self.is_code else self.page).append(data)

    def handle_comment(self, data: str) -> None:
        self.page.append(data)


def card_of(name: str, repo: str) -> str:
    recipe = {"name": name, "output": {"splits": {}, "documents": True}}
    sources = [{"name": name, "documents_kept": 1, "bytes_kept": 1, "licence": name}] * 2
    tokens = {"count": 1, "tokenizer": {"name": name}}
    outputs = [*DOCUMENTS, f"documents/{name}", f"raw/{name}\n.csv", f"raw/a.{name}\n"]
    return as_card(content(outputs, recipe=recipe, sources=sources, tokens=tokens), ["doc", name, name], repo)


@pytest.mark.parametrize("repo", ["", "owner/name"])
def test_names_of_others_are_nothing_but_code(repo: str):
    plain = Rendered(card_of("plain", repo))
    for name in HOSTILE:
        card = card_of(name, repo)
        assert configs_of(card) == configs_of(as_card(content(DOCUMENTS), [], repo)), name
        found = Rendered(card)
        assert found.page == plain.page, name
        shown = printable_line(name).replace("`", r"\x60").replace("|", r"\x7c")
        codes = [shown if code == "plain" else code for code in plain.codes]
        assert [code.strip() for code in found.codes] == [code.strip() for code in codes], name


@pytest.mark.parametrize("kept", [True, False])
def test_the_card_of_a_run_does_not_depend_on_slices(tmp_path: Path, kept: bool):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(80) if kept else ["a"] * 9))
    cards = []
    for name, size in (("small", 3000), ("large", 0)):
        output = {"splits": SPLITS, "formats": ["megatron"] if kept else [], "measures": True}
        recipe = recipe_of(tmp_path / "a.jsonl", output=output, name="made")
        run(recipe, tmp_path / name, engine="cpu", slice_bytes=size, workers=1)
        cards.append((tmp_path / name / "README.md").read_bytes())
        assert verify(tmp_path / name) == [] and "README.md" in report_of(tmp_path / name)["outputs"]
    assert cards[0] == cards[1] and b"# `made`\n" in cards[0]
