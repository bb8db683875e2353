# SPDX-License-Identifier: Apache-2.0
"""Write the table of `docs/your_language.md`: what the default recipe does with the Universal Declaration in each
language, of which `tests/data/declarations.jsonl.gz` has the first articles.

    python -m tests.scripts.your_language
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from curation.base.engine import load_engine
from curation.recipes.recipe import load_recipe
from curation.rules.languages import parse_label
from curation.stages import RowStage
from curation.stages.invoke import apply_stage

ROOT = Path(__file__).parents[2]
PAGE, EXCERPTS = ROOT / "docs" / "your_language.md", ROOT / "tests" / "data" / "declarations.jsonl.gz"
HEAD = "| the first articles of the Declaration | number | languages, by their codes in ISO 639-3 |\n|---|---:|---|\n"
OWN, UNKNOWN, OTHER, REMOVED = (
    "have the label of their language; kept", "have no label; kept", "have the label of another language; kept",
    "removed",
)  # fmt: skip


def judged() -> list[tuple[str, str | None, str]]:
    """Return the language, the label and the reason for removal, "" for none, of each excerpt."""
    records = [json.loads(line) for line in gzip.decompress(EXCERPTS.read_bytes()).splitlines()]
    engine, found = load_engine("cpu"), dict[str, Any]()
    ids = pa.array(map(str, range(len(records))))
    frame = engine.from_arrow(
        pa.table({"text": pa.array([each["text"] for each in records], pa.large_string()), "id": ids})
    )
    for stage in load_recipe("default", input="unused.jsonl").stages[:3]:
        assert isinstance(stage, RowStage)
        frame, outcome = apply_stage(engine, frame, stage)
        found |= outcome.columns
        verdict = outcome.verdict
    assert verdict is not None
    reasons = ["" if number < 0 else verdict.reasons[number] for number in verdict.reason.tolist()]
    return [*zip((each["language"] for each in records), found["language"].to_pylist(), reasons, strict=True)]


def table_of(excerpts: list[tuple[str, str | None, str]]) -> str:
    """Return the table. A language without a code has none in it, and only counts."""
    rows: dict[str, list[str]] = {name: [] for name in (OWN, UNKNOWN, OTHER, REMOVED)}
    for code, label, reason in excerpts:
        own, found = parse_label(code), parse_label(label or "")
        is_own = bool(own and found and own.code == found.code)
        row = REMOVED if reason else UNKNOWN if label is None else OWN if is_own else OTHER
        shown = f"{code} (`{reason}`)" if reason else f"{code} ({label})" if row == OTHER else code
        rows[row].append("" if code == "und" else shown)
    lines = [f"| {row} | {len(own)} | {', '.join(sorted({*own} - {''}))} |" for row, own in rows.items()]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text("utf-8").partition(HEAD)
    PAGE.write_text(before + table_of(judged()) + "\n" + rest.partition("\n\n")[2], "utf-8")
