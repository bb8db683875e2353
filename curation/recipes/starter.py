# SPDX-License-Identifier: Apache-2.0
"""The recipe that `curate init` writes for your files: the stages of the default recipe, with hints in comments.

The first files of each input give the format, where the file name has no known suffix, and the text column. Without a
column of a usual name, the text column is the one with the longest text in the first records. If files of an input have
different text columns, the recipe names none: a run finds the column of each file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from curation.errors import InputError
from curation.reading import delimited, field_names, probe, read_documents, tabular
from curation.reading.inputs import AnyInput, FilesInput
from curation.reading.paths import find_files, split_suffix
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.recipes.recipe import DEFAULT_RECIPE, shipped_recipes
from curation.stages import FuzzyDedup

PROBED_BYTES = 1 << 20  # per file
PROBED_FILES = 10  # per input
SIGNATURES = {b"PAR1": "parquet", b"ARROW1": "arrow", b"WARC/": "warc", b"{": "jsonl"}
EXAMPLE = "data/*.jsonl.gz"

HEAD = """\
# A recipe to start from. Run it: curate run {name} -o out
# Estimate its run: curate plan {name}. Explain each stage: curate plan {name} --full
# List all settings: curate recipes --schema
"""
COMMENTS = {
    "input": "files, folders, globs or URLs, one input each; name: is its name in the outputs",
    "rewrite": "Unicode form; also markup: strip (tags), whitespace: collapse, lowercase: true",
    "filter": "published for English; for other languages use rules: gopher_repetition, or your own rules",
    "exact_dedup": "keeps the first of equal texts; compare: lowercase ignores case and outer white space",
    "fuzzy_dedup": f"near-duplicates; threshold: {FuzzyDedup().threshold} is Jaccard similarity; lower removes more",
    "tokenizer": "gpt2, cl100k_base, a tokenizer.json, a SentencePiece .model or hub:ORG/NAME",
    "output": "also token_shards, blocks, chunks, packed; splits: {train: 0.99, valid: 0.01} splits the documents",
}


def starting_recipe(inputs: Sequence[AnyInput], name: str) -> str:
    """YAML text of a recipe for the inputs; reads the first records of each.

    inputs   inputs of the recipe; empty: one example to change
    name     file name of the recipe, for the commands in its comments

    Raises InputError for an input that does not exist or in which no text is found.
    """
    content = yaml.safe_load(shipped_recipes()[DEFAULT_RECIPE])
    del content["name"]
    content["input"] = [_probed_input(entry) for entry in inputs] or [{"path": EXAMPLE}]
    lines = [HEAD.format(name=name), f"# {COMMENTS['input']}", "input:"]
    lines += [*(f"  - {_flow(entry)}" for entry in content["input"]), "stages:"]
    for stage in content["stages"]:
        lines += [f"  # {COMMENTS[stage['kind']]}", f"  - {_flow(stage)}"]
    for key in ("tokenizer", "output"):
        lines += [f"# {COMMENTS[key]}", f"{key}: {_flow(content[key])}"]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """A value on one line."""
    return str(yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=2**31)).strip()


def _probed_input(entry: AnyInput) -> dict[str, str]:
    """The input as the recipe writes it, with the format and text column of its files."""
    if not isinstance(entry, FilesInput):
        return {"path": entry.path}
    settings = {"path": entry.path}
    if not split_suffix(entry.path)[0] and os.path.isfile(entry.path):
        settings["format"] = _format_of(entry.path)
        entry = msgspec.structs.replace(entry, format=settings["format"])
    columns = {_text_column(file) for file in find_files([entry])[:PROBED_FILES]}
    return settings | {"text_column": columns.pop()} if len(columns) == 1 and "" not in columns else settings


def _format_of(path: str) -> str:
    """The format of a file without a known suffix, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(PROBED_BYTES).lstrip()
    return next((name for signature, name in SIGNATURES.items() if head.startswith(signature)), "text")


def _text_column(file: SourceFile) -> str:
    """The text column; empty for a format without columns. InputError if no column holds text."""
    try:
        return probe(file).text_column
    except InputError as error:
        lengths = {name: _mean_bytes(file, name) for name in _columns(file)}
        longest = max(lengths, key=lambda name: lengths[name], default="")
        if file.text_column or not lengths.get(longest):
            raise error from None
        return longest


def _columns(file: SourceFile) -> list[str]:
    if file.format in delimited.DELIMITERS:
        return delimited.header(file)
    return list(tabular.schema_in(file).names) if file.format in ("parquet", "arrow") else field_names(file)


def _mean_bytes(file: SourceFile, name: str) -> float:
    """Mean UTF-8 bytes of a column in the first documents; 0 if it holds no text."""
    if name == file.id_column:
        return 0
    try:
        slices = plan_slices([probe(msgspec.structs.replace(file, text_column=name))], PROBED_BYTES)
        documents = next(read_documents(slices[0], PROBED_BYTES), None)
    except InputError:
        return 0
    return 0 if documents is None else documents.table.column("text").nbytes / max(documents.table.num_rows, 1)
