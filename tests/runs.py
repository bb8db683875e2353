# SPDX-License-Identifier: Apache-2.0
"""What the tests of whole runs share: a made corpus, and reading back what a run leaves."""

import hashlib
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from curation.base.errors import RecipeError
from curation.recipes.recipe import Recipe, convert_recipe, parse_recipe

STAGES = [
    {"kind": "rewrite", "unicode": "nfc"},
    {"kind": "filter", "rules": [{"measure": "words", "min": 5, "reason": "short"}]},
    {"kind": "exact_dedup"},
]
# What reports of one result differ in.
TIMES = ("report_html", "seconds", "work_seconds", "batch_bytes", "peak_memory_bytes", "digest", "engine_reason")
WORDS = ("the", "of", "and", "café", "cafe\u0301", "漢字", "🙂", "<|endoftext|>", "don't", "x" * 30, "a", "1984")


def made_texts(count: int, seed: int = 0) -> list[str]:
    """Short texts with a few copies of earlier ones, empty ones, and lines of their own."""
    chance = random.Random(seed)
    texts: list[str] = []
    for number in range(count):
        kind = chance.random()
        if kind < 0.1 and texts:
            texts.append(chance.choice(texts))
        elif kind < 0.15:
            texts.append(chance.choice(["", " ", "\n", "two words", "\x00"]))
        else:
            words = [chance.choice(WORDS) for _ in range(chance.randrange(5, 60))]
            texts.append(f"{number} " + chance.choice([" ", "\n"]).join(words))
    return texts


def records_of(texts: Iterable[str], **extra: Any) -> bytes:
    return b"".join(orjson.dumps({"text": text, **extra}) + b"\n" for text in texts)


def assert_refused(text: str, parts: Iterable[str]) -> None:
    """A recipe in YAML ends in one message that names the file and has all parts."""
    with pytest.raises(RecipeError) as error:
        parse_recipe(text, "mine.yaml")
    message = str(error.value)
    missing = [part for part in parts if part not in message]
    assert message.startswith("mine.yaml: ") and missing == [], message


def recipe_of(*paths: Path | dict[str, Any], stages: list[Any] | None = None, **rest: Any) -> Recipe:
    """A recipe over inputs, which keep texts without a visible character: stages see every text of a corpus."""
    inputs = [{"keep_blank": True, **(path if isinstance(path, dict) else {"path": str(path)})} for path in paths]
    return convert_recipe({"input": inputs, "stages": STAGES if stages is None else stages, **rest})


def table_rows(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Rows of all Parquet files of a folder, in the order of their names."""
    found: list[tuple[Any, ...]] = []
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path, columns=list(columns))
        found += zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return found


def kept_rows(folder: Path) -> list[tuple[Any, ...]]:
    return table_rows(folder / "documents", "doc", "id", "source", "text")


def removed_rows(folder: Path) -> list[tuple[Any, ...]]:
    return table_rows(folder / "removed", "doc", "id", "source", "stage", "reason", "value", "duplicate_of")


def rejected_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rejected.jsonl").read_bytes().splitlines()]


def report_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_bytes())


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file, and the report without its times. Paths of the folder itself, which `tokens/_meta/` names,
    are taken out."""
    found = {name: (folder / name).read_bytes() for name in files_below(folder) if name != "report.html"}
    content = json.loads(found["report.json"])
    content = {key: value for key, value in content.items() if key not in TIMES}
    content["outputs"] = {name: value for name, value in content["outputs"].items() if "/_meta/" not in name}
    content["stages"] = [{**stage, "seconds": 0} for stage in content["stages"]]
    del found["report.json"]
    here = str(folder).encode()
    hashes = {name: hashlib.sha256(data.replace(here, b"DIR")).hexdigest() for name, data in found.items()}
    return hashes | {"report.json": json.dumps(content, sort_keys=True)}


def data_digests(folder: Path) -> dict[str, str]:
    """As `digests`, without what names the input: for comparing runs over different files of one content."""
    chosen = ("documents/", "tokens/")
    found = digests(folder)
    data = {name: value for name, value in found.items() if name.startswith(chosen) and "/_meta/" not in name}
    removed = [pq.read_table(path).drop_columns(["file", "line"]) for path in sorted((folder / "removed").iterdir())]
    return data | {"removed": repr([table.to_pylist() for table in removed])}
