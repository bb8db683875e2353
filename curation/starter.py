# SPDX-License-Identifier: Apache-2.0
"""A recipe to start from, for one's own files: the stages of the default recipe, with what to change in comments.

Of each input the first files are looked at: the format where a name does not tell it, and the column that holds the
text. Where no column has one of the usual names, it is the one with the longest text in the first records. Files of
several columns get none in the recipe: a run finds that of each.
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
from curation.recipe import DEFAULT_RECIPE, shipped_recipes
from curation.stages import FuzzyDedup

LOOKED_AT_BYTES = 1 << 20
LOOKED_AT_FILES = 10  # of an input
SIGNATURES = {b"PAR1": "parquet", b"ARROW1": "arrow", b"WARC/": "warc", b"{": "jsonl"}
EXAMPLE = "data/*.jsonl.gz"

HEAD = """\
# A recipe to start from. Run it: curate run {name} -o out
# What it does, line by line: curate plan {name}. All settings: curate recipes --schema
"""
COMMENTS = {
    "input": "files, folders, globs or URLs, each an input of its own; name: stands in the outputs",
    "rewrite": "Unicode form; further: markup: strip (tags), whitespace: collapse, lowercase: true",
    "filter": "published for English; for other languages rules: gopher_repetition, or rules of your own",
    "exact_dedup": "the first of equal texts stays; compare: lowercase ignores case and outer white space",
    "fuzzy_dedup": f"near-duplicates; threshold: {FuzzyDedup().threshold} is Jaccard's, a lower one removes more",
    "tokenizer": "gpt2, cl100k_base, a tokenizer.json, a SentencePiece .model or hub:ORG/NAME",
    "output": "also token_shards, blocks, chunks, packed; splits: {train: 0.99, valid: 0.01} sets documents aside",
}


def starting_recipe(inputs: Sequence[AnyInput], name: str) -> str:
    """YAML of a recipe for the inputs, to be stored under `name`; without inputs it has one to be changed. Reads the
    first records of each input; InputError for one that is not there, or in which no text is found."""
    content = yaml.safe_load(shipped_recipes()[DEFAULT_RECIPE])
    del content["name"]
    content["input"] = [_looked_at(entry) for entry in inputs] or [{"path": EXAMPLE}]
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


def _looked_at(entry: AnyInput) -> dict[str, str]:
    """The input as the recipe has it, with what its files say."""
    if not isinstance(entry, FilesInput):
        return {"path": entry.path}
    found = {"path": entry.path}
    if not split_suffix(entry.path)[0] and os.path.isfile(entry.path):
        found["format"] = _format_of(entry.path)
        entry = msgspec.structs.replace(entry, format=found["format"])
    columns = {_text_column(file) for file in find_files([entry])[:LOOKED_AT_FILES]}
    return found | {"text_column": columns.pop()} if len(columns) == 1 and "" not in columns else found


def _format_of(path: str) -> str:
    """The format of a file whose name does not tell it, by its first bytes."""
    with open(path, "rb") as file:
        head = file.read(LOOKED_AT_BYTES).lstrip()
    return next((name for signature, name in SIGNATURES.items() if head.startswith(signature)), "text")


def _text_column(file: SourceFile) -> str:
    """The column with the text; empty for a format without columns. InputError where no column has any."""
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
    """UTF-8 bytes of a column in the first records, per record that has any; 0 where it holds no text."""
    if name == file.id_column:
        return 0
    try:
        slices = plan_slices([probe(msgspec.structs.replace(file, text_column=name))], LOOKED_AT_BYTES)
        documents = next(read_documents(slices[0], LOOKED_AT_BYTES), None)
    except InputError:
        return 0
    return 0 if documents is None else documents.table.column("text").nbytes / max(documents.table.num_rows, 1)
