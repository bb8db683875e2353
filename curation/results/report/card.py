# SPDX-License-Identifier: Apache-2.0
"""Writes `README.md` in the folder of a run: its counts, and how other tools load its files.

The front matter is that of dataset cards of Hugging Face: `datasets.load_dataset(FOLDER)` reads its `configs`. Nothing
in the file depends on times, engines or slices, so it has the same bytes for each run of a recipe.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from curation.base.errors import counted
from curation.base.system.files import commit
from curation.base.system.terminal import printable_line
from curation.recipes.exports import PATTERN, export_format
from curation.record.folder import CARD_BEGINS
from curation.record.report_schema import CARD, CLEANED, RAW
from curation.tokens.ordering import SPLIT, split_names

TABLES = ("documents", "removed", "measures", CLEANED, RAW)  # folders with tables
READERS = {
    "jsonl": "json",
    "jsonl.gz": "json",
    "jsonl.zst": "json",
    "csv": "csv",
}  # readers of `datasets` for files that are not Parquet
MAX_INPUTS = 50
PUSHED_BEGINS = "---\n# `curate push` writes this file. The next push replaces it."
FILE = re.compile(rf"({'|'.join(TABLES)})/({PATTERN})")
BACKTICK, PIPE = r"\x60", r"\x7c"


def write_card(folder: Path, content: dict[str, Any], columns: Sequence[str]) -> dict[str, str]:
    """Write `README.md`, and return its name -> SHA-256.

    content   content of `report.json`
    columns   columns of `documents/`
    """
    card = as_card(content, columns).encode()
    with commit(folder / CARD) as path:
        path.write_bytes(card)
    return {CARD: hashlib.sha256(card).hexdigest()}


def as_card(content: dict[str, Any], columns: Sequence[str], repo: str = "") -> str:
    """Return the text of `README.md`. If `repo` is given, the text is for the data set of this name on the hub. This
    has only the outputs of `content`, without the report and other files of a run."""
    configs = list(_configs(content))
    lines = [PUSHED_BEGINS if repo else CARD_BEGINS, *_front_matter(configs), "---", ""]
    lines += [f"# {_code(content['recipe']['name'] or 'run')}", ""]
    lines += [*_counts(content), *_inputs(content)]
    if any(folder == "documents" for folder, _ in _paths(content)):
        lines += [f"Columns of `documents/`: {', '.join(map(_code, columns))}.", ""]
    if not repo:
        lines += ["`report.html` has the funnel, samples and sources. `curate verify DIR` checks every file.", ""]
    others = [(folder, path) for folder, path in _paths(content) if not path.endswith(".parquet")]
    return "\n".join([*lines, *_examples(configs, others, repo)])


def _configs(content: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (name, split, path) of each configuration, the default first. If the run has splits, each split is a
    separate configuration, since every file has rows of all splits."""
    for folder, path in _paths(content):
        if folder == "documents":
            for split in split_names(content["recipe"]["output"]["splits"]):
                yield split or folder, split or "train", path
        elif path.endswith(".parquet"):
            yield folder, folder, path


def _paths(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each folder with tables, with the path or pattern of its files."""
    present = {file[1]: file[2] for file in map(FILE.fullmatch, content["outputs"]) if file}
    for folder in (name for name in TABLES if name in present):
        name = present[folder]
        yield folder, f"{folder}/*.{export_format(name)}" if name.startswith("part-") else f"{folder}/{name}"


def _front_matter(configs: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    if configs:
        yield "configs:"
    for number, (name, split, path) in enumerate(configs):
        yield f"- config_name: {name}"
        if not number:
            yield "  default: true"
        yield from ("  data_files:", f"  - split: {split}", f"    path: {path}")
        if name == split and path.startswith("documents/"):
            yield f'  filters: [[{SPLIT}, "==", {split}]]'


def _counts(content: dict[str, Any]) -> Iterator[str]:
    documents, sizes, tokens = content["documents"], content["bytes"], content["tokens"]
    copies = f", {documents['copies']:,} of them copies" if documents["copies"] else ""
    yield f"The recipe kept {counted(documents['kept'], 'document')}{copies}."
    yield from ("", "| | documents | bytes of text |", "|---|---:|---:|")
    yield f"| read | {documents['read']:,} | {sizes['read']:,} |"
    yield f"| kept | {documents['kept']:,} | {sizes['kept']:,} |"
    yield f"| removed | {documents['removed']:,} | |"
    yield f"| rejected | {documents['rejected']:,} | |"
    yield ""
    if tokens:
        yield from (f"{counted(tokens['count'], 'token')} by {_code(tokens['tokenizer']['name'])}.", "")


def _inputs(content: dict[str, Any]) -> Iterator[str]:
    yield from ("| input | documents kept | bytes of text | licence |", "|---|---:|---:|---|")
    for source in content["sources"][:MAX_INPUTS]:
        counts = f"{source['documents_kept']:,} | {source['bytes_kept']:,}"
        yield f"| {_code(source['name'])} | {counts} | {_code(source['licence']) if source.get('licence') else ''} |"
    if others := len(content["sources"]) - MAX_INPUTS:
        yield from ["", f"`report.json` has {counted(others, 'more input')}."] * (others > 0)
    yield ""


def _examples(configs: Sequence[tuple[str, str, str]], others: Sequence[tuple[str, str]], repo: str) -> Iterator[str]:
    if not configs:
        return
    place, files = (repo, f"hf://datasets/{repo}") if repo else ("DIR", "DIR")
    yield from ("## Load", "", *([] if repo else ["`DIR` is this folder.", ""]))
    yield from ("```python", "from datasets import load_dataset", "")
    for number, (name, split, _) in enumerate(configs):
        chosen = f', "{name}"' if number else ""
        yield f'{name} = load_dataset("{place}"{chosen}, split="{split}")'
    for folder, path in others:
        reader = READERS[export_format(path)]
        yield f'{folder} = load_dataset("{reader}", data_files="{files}/{path}", split="train")'
    _, split, path = configs[0]
    is_split = path.startswith("documents/") and configs[0][0] == split
    where = f" WHERE {SPLIT} = '{split}'" if is_split else ""
    rows = f'.filter(polars.col("{SPLIT}") == "{split}")' if is_split else ""
    yield from ("```", "", "```python", "import duckdb", "")
    yield f"duckdb.sql(\"SELECT * FROM '{files}/{path}'{where}\")"
    yield from ("```", "", "```python", "import polars", "")
    yield f'polars.scan_parquet("{files}/{path}"){rows}.collect()'
    yield from ("```", "")


def _code(text: str) -> str:
    """Return untrusted text as Markdown code, in which GitHub renders no links, references, HTML or emoji. Characters
    that would end the code or a table cell are escaped, as on a terminal."""
    return f"`{printable_line(text).replace('`', BACKTICK).replace('|', PIPE) or ' '}`"
