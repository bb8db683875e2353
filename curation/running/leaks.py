# SPDX-License-Identifier: Apache-2.0
"""Looks for documents, and groups of near-duplicates, that stand on two sides of a split.

Every document's side is worked out anew from its text, and the documents of each side are counted: in pairs by their
indexes, in other forms by their manifests. Of pairs the tokens are compared too, which holds 16 bytes per document in
memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.errors import IntegrityError
from curation.files import read_json
from curation.packing.forms.shards import MANIFEST
from curation.packing.indexed import IndexedReader
from curation.packing.megatron import is_of_stem
from curation.packing.ordering import sides, split_names
from curation.renamed import with_new_names

BATCH_DOCUMENTS = 10_000
REVERSIBLE = ("tiktoken",)  # other tokenizers may drop what tells two texts apart


class _Side(msgspec.Struct):
    documents: int


class _Manifest(msgspec.Struct):
    """What is read of the manifest of a form."""

    splits: dict[str, _Side]


Counts = Mapping[tuple[str, str], int]  # (source or form, split) -> documents


def leaks(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """What stands on two sides, in words. `content` is the run's `report.json`, whose outputs are all there."""
    yield from _kept_and_removed(folder)
    recipe, tokens = with_new_names(content["recipe"]), content["tokens"]
    output = recipe["output"]
    if not output["splits"]:
        return
    expected = _expected(folder, output["splits"], recipe["seed"])
    empty = tokens["empty_documents"]  # on a side by their texts, and in no form
    if "megatron" in output["formats"]:
        yield from _miscounted(_in_pairs(folder, content), expected, empty)
        if tokens["tokenizer"]["kind"] in REVERSIBLE:
            yield from _on_two_sides(folder, content)
    whole = Counter[str]()
    for (_, split), count in expected.items():
        whole[split] += count
    for form in (name for name in output["formats"] if name != "megatron"):
        try:
            found = _in_form(folder / form, form, split_names(output["splits"]))
        except (IntegrityError, msgspec.ValidationError) as error:
            yield f"{form}/{MANIFEST} is not what a run writes: {error}"
            continue
        yield from _miscounted(found, {key: whole[key[1]] for key in found}, empty)
        if sum(found.values()) != tokens["documents"]:
            yield f"{form}: {sum(found.values())} documents on all sides, the report counts {tokens['documents']}"


def _kept_and_removed(folder: Path) -> Iterator[str]:
    """Of a group of duplicates one document is kept and the others are in `removed/`. So a group is on one side exactly
    if nothing is in both folders."""
    both = np.intersect1d(_docs(folder / "documents"), _docs(folder / "removed"))  # kept ones come again as copies
    if len(both):
        yield f"{len(both)} documents are both kept and removed, the first is doc {both[0]}"


def _docs(folder: Path) -> np.ndarray:
    found = [pq.read_table(path, columns=["doc"]).column("doc").to_numpy() for path in folder.glob("*.parquet")]
    return np.concatenate([np.empty(0, np.int64), *found])


def _prefixes(folder: Path, content: dict[str, Any], source: str, split: str) -> list[Path]:
    """The pairs of a source's side, by the names that the run gave them."""
    stem = Path("tokens", f"{source}_{split}")
    names = [name.removesuffix(".idx") for name in content["outputs"] if name.endswith(".idx")]
    return [folder / name for name in names if is_of_stem(stem, Path(name).name)]


def _sources(content: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(file["source"] for file in content["files"]))


def _expected(folder: Path, shares: Mapping[str, float], seed: int) -> Counts:
    """By the texts of all documents."""
    names, expected = split_names(shares), Counter[tuple[str, str]]()
    for path in (folder / "documents").glob("*.parquet"):
        for batch in pq.ParquetFile(path).iter_batches(BATCH_DOCUMENTS, columns=["source", "text"]):
            texts = batch.column("text").cast(pa.large_binary()).to_pylist()
            numbers = sides(texts, shares, seed)
            expected.update(zip(batch.column("source").to_pylist(), (names[n] for n in numbers.tolist()), strict=True))
    return expected


def _in_pairs(folder: Path, content: dict[str, Any]) -> Counts:
    return {
        (source, split): sum(len(IndexedReader(prefix)) for prefix in _prefixes(folder, content, source, split))
        for source in _sources(content)
        for split in split_names(content["recipe"]["output"]["splits"])
    }


def _in_form(folder: Path, form: str, names: Sequence[str]) -> Counts:
    written = msgspec.convert(read_json(folder / MANIFEST), _Manifest).splits
    return {(form, split): written[split].documents if split in written else 0 for split in names}


def _miscounted(found: Counts, expected: Counts, empty: int) -> Iterator[str]:
    for (where, split), count in found.items():
        should = expected.get((where, split), 0)
        if not should - empty <= count <= should:
            yield f"{where}: {count} documents are in {split}, by their texts it should be {should}"


def _on_two_sides(folder: Path, content: dict[str, Any]) -> Iterator[str]:
    """Compares 128-bit hashes of the tokens of all documents."""
    names = split_names(content["recipe"]["output"]["splits"])
    found = {
        split: _token_hashes([p for source in _sources(content) for p in _prefixes(folder, content, source, split)])
        for split in names
    }
    for left, right in combinations(names, 2):
        shared = np.intersect1d(found[left], found[right], assume_unique=True)
        if len(shared):
            yield f"{len(shared)} documents have the same tokens in {left} and in {right}"


def _token_hashes(prefixes: list[Path]) -> np.ndarray:
    hashed = bytearray()
    for prefix in prefixes:
        for ids in IndexedReader(prefix):
            hashed += hashlib.blake2b(ids, digest_size=16).digest()
    return np.unique(np.frombuffer(bytes(hashed), "S16"))
