# SPDX-License-Identifier: Apache-2.0
"""`README.md` of a run: what it says for which outputs, whatever names the run has."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from curation.finished.verify import verify
from curation.report.card import as_card
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
        "4,321 tokens by gpt2.", "| web | 1,234 | 56,789 | CC-BY-SA-4.0 |", "Columns of `documents/`: doc, text.",
    ):  # fmt: skip
        assert line in card.splitlines()
    many = [{"name": f"input-{k}", "documents_kept": 1, "bytes_kept": 1} for k in range(53)]
    card = as_card(content(DOCUMENTS, tokens={}, sources=many), ["doc"])
    assert "input-49 " in card.replace("|", "") and "input-50" not in card and "3 more inputs are in `report" in card
    assert "tokens by" not in card


def test_names_of_others_have_no_meaning_in_the_page():
    recipe = {"name": "a\n---\n# <b>`x`</b> [l](u)|\u202e", "output": {"splits": {}, "documents": True}}
    sources = [{"name": "web|1", "documents_kept": 1, "bytes_kept": 1, "licence": "x\n| y | z"}]
    card = as_card(content(DOCUMENTS, recipe=recipe, sources=sources), ["do|c"])
    assert configs_of(card) == configs_of(as_card(content(DOCUMENTS), []))
    lines = card.splitlines()
    assert lines[lines.index("---", 1) + 2] == r"# a --- \# \<b\>\`x\`\</b\> \[l\](u)\|"
    assert r"| web\|1 | 1 | 1 | x \| y \| z |" in lines and r"Columns of `documents/`: do\|c." in lines


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
    assert cards[0] == cards[1] and b"# made\n" in cards[0]
