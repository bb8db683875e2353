# SPDX-License-Identifier: Apache-2.0
"""Write `tests/golden/recipes.json`: what each shipped recipe does to a small corpus, on the CPU engine.

    python -m tests.scripts.make_recipe_results

Digests are those of values, not of Parquet files, whose bytes differ between versions of pyarrow.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from msgspec.structs import replace

from curation.reading.inputs import Budget, Input
from curation.recipes.recipe import load_recipe, shipped_recipes
from curation.running.run import run
from tests.pipelines.made import WORDS, as_jsonl, made_texts, random_prose
from tests.runs import removed_rows

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "recipes.json"
FRAGMENTS = (  # what rules on lines and patterns of web pages are about
    "as noted[1] by others.[citation needed]", "lorem ipsum.", "Please enable javascript.", "x { y }.",
    "We use cookies.\n\n", "12 likes", "READ ALL OF IT NOW.", "sign-in here", "3 items in cart", "read more...",
    "one",
)  # fmt: skip


def corpus() -> list[str]:
    """Return 214 texts, of which every recipe keeps some. The last two have short lines."""
    chance, texts = random.Random(7), made_texts(180, seed=5, most=9)
    for number in range(32):
        lines = random_prose(chance, 6).replace(". ", ".\n").split("\n")
        lines.insert(number % len(lines), FRAGMENTS[number % len(FRAGMENTS)])
        texts.append("\n".join(lines))
    return texts + ["".join(f"{' '.join(chance.sample(WORDS, 4))}.\n" for _ in range(30)) for _ in range(2)]


def results(name: str, folder: Path, engine: str) -> dict[str, Any]:
    """Return what a recipe does: removed and edited documents of each stage, and digests of rows and of token files."""
    recipe = load_recipe(name)
    output = replace(recipe.output, formats=(*{*recipe.output.formats, "megatron"},))
    inputs = [Input(path=str(as_jsonl(corpus(), folder / "docs.jsonl")), name="docs", keep_blank=True)]
    recipe = replace(recipe, input=inputs, budget=Budget(), output=output)
    stages = run(recipe, folder / "out", engine=engine, workers=1, progress=False).report["stages"]
    kept = pq.read_table(folder / "out" / "documents").to_pylist()
    pairs = [*sorted((folder / "out" / "tokens").glob("*.bin")), *sorted((folder / "out" / "tokens").glob("*.idx"))]
    return {
        "stages": {each["name"]: [each["documents_in"] - each["documents_out"], each["edited"]] for each in stages},
        "kept": digest(map(repr, kept)),
        "removed": digest(map(repr, removed_rows(folder / "out"))),
        "tokens": digest(hashlib.sha256(path.read_bytes()).hexdigest() for path in pairs),
    }


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


if __name__ == "__main__":
    found = {}
    for recipe in shipped_recipes():
        with tempfile.TemporaryDirectory() as folder:
            found[recipe] = results(recipe, Path(folder), "cpu")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in found.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n", "utf-8")
