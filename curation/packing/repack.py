# SPDX-License-Identifier: Apache-2.0
"""Finished `.bin/.idx` pairs joined to larger ones or cut into smaller ones, without a tokenizer.

In constant memory: the tokens are copied by the kernel, an index is read and written in pieces.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curation.errors import InputError, OutputError
from curation.files import local_output, make_folder, read_json
from curation.packing.indexed import IndexedReader, bare_prefix, check_pair
from curation.packing.megatron import PairInfo, in_chunks, is_of_stem, join_parts, refuse_existing, suffixed
from curation.packing.pair_sets import named_unfinished, publish, unpublished


def repack(prefixes: Sequence[str | Path], stem: str | Path, max_bytes: int, *, force: bool = False) -> list[PairInfo]:
    """The documents of `prefixes`, in this order, as pairs `<stem>_00000_text_document` and so on, each of at most
    `max_bytes` of tokens (one document at least). Merging is a large `max_bytes`, splitting one prefix.

    A pair may be given by either of its files, or by both. Every input is read once before, to be checked. Raises
    InputError where pairs have different dtypes, tokenizers or splits (by the manifests that runs leave beside them),
    one is given twice, has documents of several sequences, or would be replaced by the result, IntegrityError for a
    damaged one, OutputError where `stem` is a folder or a pair of it exists (unless `force`: then those that the result
    does not replace are deleted).

    The pairs are there all or not at all: `curation/packing/pair_sets.py` says how a kill is noticed.
    """
    given, stem = os.fspath(stem), local_output(stem)
    _refuse_folder(given)  # a path drops the slash at its end
    found = _each_once(prefixes)
    _refuse_own_output(found, stem)
    if not force:
        refuse_existing(stem, named_unfinished(stem))
    _check_tokenizers(found)
    _check_splits(found)
    dtype = _common_dtype(found)
    with unpublished(stem) as folder:
        parts = [(suffixed(prefix, ".bin"), folder / f"{n}.lengths") for n, prefix in enumerate(found)]
        for prefix, (_, path) in zip(found, parts, strict=True):
            with open(path, "wb") as file:
                file.writelines(chunk.astype("<i4") for chunk in in_chunks(IndexedReader(prefix).lengths))
        make_folder(folder / "pairs")
        pairs = join_parts(parts, folder / "pairs" / stem.name, dtype, max_bytes)
        if not force:
            refuse_existing(stem, named_unfinished(stem))  # another process may have written some meanwhile
        return publish(pairs, folder, stem)


def read_tokenizer(prefix: Path) -> dict[str, Any]:
    """What the manifest of the run that wrote a pair says of its tokenizer; empty where there is none."""
    return dict(_manifest(prefix).get("tokens", {}).get("tokenizer", {}))


def _manifest(prefix: Path) -> dict[str, Any]:
    return read_json(prefix.parent / "_meta" / "manifest.json") or {}


def _each_once(paths: Sequence[str | Path]) -> list[Path]:
    """The prefixes of the pairs, in the order given. Both files of a pair, as a shell's glob gives them, count once."""
    given: dict[Path, list[Path]] = {}
    for path in map(Path, paths):
        given.setdefault(suffixed(bare_prefix(path), ".idx").resolve(), []).append(path)
    for same in given.values():
        if len(same) > 1 and sorted(path.suffix for path in same) != [".bin", ".idx"]:
            raise InputError(f"{same[0]} and {same[1]} are the same pair; give each pair once")
    if not given:
        raise InputError("no pair given; name prefixes, as in news_00000_text_document")
    return [bare_prefix(same[0]) for same in given.values()]


def _check_tokenizers(prefixes: Sequence[Path]) -> None:
    known: dict[str, str] = {}  # SHA-256 -> the first pair that it made
    for prefix in prefixes:
        if tokenizer := read_tokenizer(prefix):
            known.setdefault(tokenizer["sha256"], f"{prefix}: {tokenizer['name']}, {tokenizer['sha256'][:12]}")
    if len(known) > 1:
        raise InputError(
            f"pairs of different tokenizers cannot be joined ({'; '.join([*known.values()][:2])}); merge those of each "
            "tokenizer alone"
        )


def _check_splits(prefixes: Sequence[Path]) -> None:
    known: dict[str, Path] = {}  # split -> its first pair
    for prefix in prefixes:
        splits = {entry["prefix"]: entry.get("split", "") for entry in _manifest(prefix).get("pairs", [])}
        if split := splits.get(prefix.name):
            known.setdefault(split, prefix)
    if len(known) > 1:
        named = "; ".join([f"{prefix}: {split}" for split, prefix in known.items()][:2])
        raise InputError(
            f"pairs of different splits cannot be joined ({named}); merge those of each split alone, as *_train_*.idx"
        )


def _common_dtype(prefixes: Sequence[Path]) -> np.dtype:
    dtypes: dict[str, Path] = {}
    for prefix in prefixes:
        info = check_pair(prefix, strict=False)
        if len(IndexedReader(prefix)) != info.documents or info.empty_documents:
            raise InputError(
                f"{prefix} has {info.documents} documents in {len(IndexedReader(prefix))} sequences; only pairs with "
                "one sequence per document can be merged or split"
            )
        dtypes.setdefault(info.dtype, prefix)
    if len(dtypes) > 1:
        shown = ", ".join(f"{prefix.name}: {name}" for name, prefix in dtypes.items())
        raise InputError(f"pairs of different dtypes cannot be joined ({shown}); they are of different tokenizers")
    return np.dtype(next(iter(dtypes)))


def _refuse_folder(stem: str) -> None:
    if stem.endswith(os.sep) or Path(stem).is_dir():
        inside = os.path.join(stem, "merged")
        raise OutputError(
            f"{stem} is a folder, expected the beginning of names: {inside} gives {inside}_00000_text_document"
        )


def _refuse_own_output(prefixes: Sequence[Path], stem: Path) -> None:
    """A pair that is read must not be written: `--force` would delete it."""
    for prefix in prefixes:
        if prefix.parent.resolve() == stem.parent.resolve() and is_of_stem(stem, prefix.name):
            raise InputError(f"{prefix} would be read and written; give another output name")
