# SPDX-License-Identifier: Apache-2.0
"""Checks that each document of a finished run is in the split that its text assigns, and in no other split."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.errors import counted
from curation.base.system.steps import each
from curation.record.tables import TablePart, part_paths, read_tables
from curation.tokens.forms.stored import read_manifest
from curation.tokens.indexed import IndexedReader
from curation.tokens.joining import is_of_stem, stem_name
from curation.tokens.ordering import SPLIT, assign_splits, split_names

REVERSIBLE = ("tiktoken",)  # other tokenizers may give two texts the same tokens
Counts = Mapping[tuple[str, str], int]  # (source or form, split) -> documents


def has_documents(content: dict[str, Any]) -> bool:
    """Return whether the run of a report wrote `documents/`."""
    return bool(content["recipe"]["output"]["documents"])


def split_leaks(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yield a message for every document found in more than one split, and for wrong counts of documents per split.

    `content` is the run's `report.json`. All its outputs must exist.
    """
    yield from _kept_and_removed(folder, content)
    recipe, tokens = content["recipe"], content["tokens"]
    output = recipe["output"]
    if not output["splits"]:
        return
    if "megatron" in output["formats"] and tokens["tokenizer"]["kind"] in REVERSIBLE:
        yield from _shared_between_splits(folder, content)
    if not has_documents(content):
        return
    expected, wrong = _expected(part_paths(folder, content["outputs"], "documents"), output["splits"], recipe["seed"])
    yield from wrong
    empty = tokens.get("empty_documents", 0)  # documents whose texts assign a split, but that are in no form
    if "megatron" in output["formats"]:
        yield from _miscounted(_in_pairs(folder, content), expected, empty)
    per_split = Counter[str]()
    for (_, split), count in expected.items():
        per_split[split] += count
    for form in (name for name in output["formats"] if name != "megatron"):
        counts = _in_form(folder / form, form, split_names(output["splits"]))
        yield from _miscounted(counts, {key: per_split[key[1]] for key in counts}, empty)
        if sum(counts.values()) != tokens["documents"]:
            yield f"{form}: {sum(counts.values())} documents in all splits, the report counts {tokens['documents']}"


def _kept_and_removed(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yield a message if documents are both kept and removed.

    Of a group of duplicates, one document is kept and the others are in `removed/`. So if no document is in both
    folders, no group is in two splits.
    """
    kept, removed = (_docs(part_paths(folder, content["outputs"], name)) for name in ("documents", "removed"))
    both = np.intersect1d(kept, removed)  # copies of kept documents count once
    if len(both):
        yield f"{counted(len(both), 'document')} both kept and removed, the first is doc {both[0]}"


def _docs(paths: Sequence[Path]) -> np.ndarray:
    docs = (table.column("doc").to_numpy() for table in read_tables(paths, ["doc"]))
    return np.concatenate([np.empty(0, np.int64), *docs])


def _prefixes(folder: Path, content: dict[str, Any], source: str, split: str) -> list[Path]:
    """Return the prefixes of the pairs of a split of a source."""
    recipe = content["recipe"]
    naming = recipe["output"]["megatron"]["names"]
    stem = Path("tokens", stem_name(source, split, naming, len(recipe["input"])))
    names = [name.removesuffix(".idx") for name in content["outputs"] if name.endswith(".idx")]
    return [folder / name for name in names if is_of_stem(stem, Path(name).name)]


def _sources(content: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(file["source"] for file in content["files"]))


def _expected(paths: Sequence[Path], shares: Mapping[str, float], seed: int) -> tuple[Counts, list[str]]:
    """Count documents per source and split, as the texts in `documents/` assign them. Also return a message for each
    file whose column `split` differs; runs up to version 0.3 lack this column."""
    names, expected, wrong = split_names(shares), Counter[tuple[str, str]](), []
    for path in each(paths, "assigning splits", "file"):
        part, differing = TablePart(path), 0
        columns = ["source", "text", *({SPLIT} & {*part.schema.names})]
        for batch in (part.read(group, columns) for group in part.groups):
            texts = batch.column("text").cast(pa.large_binary()).to_pylist()
            assigned = [names[number] for number in assign_splits(texts, shares, seed).tolist()]
            expected.update(zip(batch.column("source").to_pylist(), assigned, strict=True))
            if SPLIT in columns:
                stored = batch.column(SPLIT).to_pylist()
                differing += sum(own != other for own, other in zip(stored, assigned, strict=True))
        if differing:
            wrong.append(f"documents/{path.name} has {differing} documents in another split than their texts assign")
    return expected, wrong


def _in_pairs(folder: Path, content: dict[str, Any]) -> Counts:
    return {
        (source, split): sum(len(IndexedReader(prefix)) for prefix in _prefixes(folder, content, source, split))
        for source in _sources(content)
        for split in split_names(content["recipe"]["output"]["splits"])
    }


def _in_form(folder: Path, form: str, names: Sequence[str]) -> Counts:
    splits = (read_manifest(folder) or {"splits": {}})["splits"]
    return {(form, split): splits[split]["documents"] if split in splits else 0 for split in names}


def _miscounted(counts: Counts, expected: Counts, empty: int) -> Iterator[str]:
    for (name, split), count in counts.items():
        assigned = expected.get((name, split), 0)
        if not assigned - empty <= count <= assigned:
            yield f"{name}: split {split} has {count} documents, their texts assign {assigned} to it"


def _shared_between_splits(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each two splits that have documents with the same tokens, compared by 128-bit hashes."""
    names = split_names(content["recipe"]["output"]["splits"])
    hashes = {
        split: _token_hashes([p for source in _sources(content) for p in _prefixes(folder, content, source, split)])
        for split in names
    }
    for first, second in combinations(names, 2):
        shared = np.intersect1d(hashes[first], hashes[second], assume_unique=True)
        if len(shared):
            yield f"{counted(len(shared), 'document')} with the same tokens in {first} and in {second}"


def _token_hashes(prefixes: list[Path]) -> np.ndarray:
    hashed = bytearray()
    for prefix in prefixes:
        reader = IndexedReader(prefix)
        for ids in each(reader, f"comparing {prefix.name}", "document", total=len(reader)):
            hashed += hashlib.blake2b(ids, digest_size=16).digest()
    return np.unique(np.frombuffer(bytes(hashed), "S16"))
