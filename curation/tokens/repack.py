# SPDX-License-Identifier: Apache-2.0
"""Merge finished `.bin/.idx` pairs to larger ones or split them into smaller ones, without a tokenizer.

Memory is constant: the kernel of the operating system copies the tokens, and an index is read and written in batches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from curation.base.errors import InputError, OutputError, TokenizerError
from curation.base.system.files import check_writable, local_output, make_folder, read_json
from curation.base.system.steps import each
from curation.tokens.indexed import IndexedReader, bare_prefix, check_pair
from curation.tokens.joining import is_of_stem, join_parts, refuse_existing
from curation.tokens.megatron import PairInfo, in_batches, suffixed
from curation.tokens.pair_sets import LENGTHS, PAIRS, named_unfinished, publish, unpublished
from curation.tokens.tokenization import Tokenizer, load_tokenizer


def repack(prefixes: Sequence[str | Path], stem: str | Path, max_bytes: int, *, force: bool = False) -> list[PairInfo]:
    """Write the documents of pairs to new pairs `<stem>_00000_text_document`, `_00001_...` and return these.

    To merge, give several prefixes and a large `max_bytes`. To split, give one prefix and a small `max_bytes`.

    prefixes   pairs in the order to join: the prefix, either file, or both files
    stem       path of the new pairs without number and suffix
    max_bytes  maximum size of a `.bin` in bytes. A larger document gets its own pair
    force      replace the pairs of the stem and delete those that the result does not replace. Default: False

    Every input is read and checked first. Either all new pairs appear, or the set is marked as unfinished
    (`curation/tokens/pair_sets.py`).

    InputError: pairs with different dtypes, tokenizers or splits (by the manifests of their runs), a pair given twice,
    a document of several sequences, or an input that the result would replace. IntegrityError: a damaged pair.
    OutputError: `stem` is a folder, or a pair of it exists and `force` is False.
    """
    given, stem = os.fspath(stem), local_output(stem)
    _refuse_folder(given)  # Path drops a slash at the end
    inputs = _unique_prefixes(prefixes)
    _refuse_own_output(inputs, stem)
    if not force:
        refuse_existing(stem, named_unfinished(stem))
    _check_tokenizers(inputs)
    _check_splits(inputs)
    dtype = _common_dtype(inputs)
    check_writable(stem)
    with unpublished(stem) as folder:
        token_parts = [(suffixed(prefix, ".bin"), folder / f"{n}{LENGTHS}") for n, prefix in enumerate(inputs)]
        for prefix, (_, path) in each([*zip(inputs, token_parts, strict=True)], "reading lengths", "pair"):
            with open(path, "wb") as file:
                file.writelines(batch.astype("<i4") for batch in in_batches(IndexedReader(prefix).lengths))
        make_folder(folder / PAIRS)
        pairs = join_parts(token_parts, folder / PAIRS / stem.name, dtype, max_bytes)
        if not force:
            refuse_existing(stem, named_unfinished(stem))  # another process may have written pairs meanwhile
        return publish(pairs, folder, stem)


class _Tokenizer(msgspec.Struct):
    name: str
    sha256: str


class _Tokens(msgspec.Struct):
    tokenizer: _Tokenizer
    vocabulary: Annotated[int, msgspec.Meta(ge=1)]


class _Pair(msgspec.Struct):
    prefix: Annotated[str, msgspec.Meta(pattern="^[^/]+$")]
    split: str = ""


class _Manifest(msgspec.Struct):
    """The fields of `_meta/manifest.json` that readers of pairs need."""

    tokens: _Tokens
    pairs: list[_Pair]


def read_manifest(meta: Path) -> dict[str, Any]:
    """Return the manifest of pairs in a folder `_meta`, {} without a manifest. IntegrityError: a damaged manifest."""
    return read_json(meta / "manifest.json", _Manifest) or {}


def read_tokenizer(prefix: Path) -> dict[str, Any]:
    """Return the tokenizer of a pair from the manifest of its run, {} without a manifest."""
    return dict(read_manifest(prefix.parent / "_meta").get("tokens", {}).get("tokenizer", {}))


def recorded_tokenizer(prefix: Path) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer that a pair was made with, or None and the reason why it is not available."""
    return check_tokenizer(read_tokenizer(prefix), prefix.parent / "_meta")


def check_tokenizer(recorded: Mapping[str, Any], where: Path) -> tuple[Tokenizer | None, str]:
    """Return the tokenizer with the name and SHA-256 in a manifest in `where`, or None and the reason why it is not
    available."""
    if not recorded:
        return None, f"no manifest in {where} names the tokenizer"
    try:
        tokenizer = load_tokenizer(recorded["name"])
    except TokenizerError:
        return None, f"tokenizer {recorded['name']} of the manifest cannot be loaded here"
    if tokenizer.digest != recorded["sha256"]:
        return None, f"{recorded['name']} is not the tokenizer of the manifest"
    return tokenizer, ""


def _unique_prefixes(paths: Sequence[str | Path]) -> list[Path]:
    """Return the prefixes in the given order. The two files of a pair, as a shell's glob gives them, count as one
    prefix."""
    given: dict[Path, list[Path]] = {}
    for path in paths:
        given.setdefault(suffixed(bare_prefix(path), ".idx").resolve(), []).append(Path(path))
    for same in given.values():
        if len(same) > 1 and sorted(path.suffix for path in same) != [".bin", ".idx"]:
            raise InputError(f"{same[0]} and {same[1]} are the same pair; give each pair once")
    if not given:
        raise InputError("no pair given; name prefixes, as in news_00000_text_document")
    return [bare_prefix(same[0]) for same in given.values()]


def _check_tokenizers(prefixes: Sequence[Path]) -> None:
    known: dict[str, str] = {}  # SHA-256 -> its first pair
    for prefix in prefixes:
        if tokenizer := read_tokenizer(prefix):
            known.setdefault(tokenizer["sha256"], f"{prefix}: {tokenizer['name']}, {tokenizer['sha256'][:12]}")
    if len(known) > 1:
        raise InputError(
            f"pairs of different tokenizers cannot be joined ({'; '.join([*known.values()][:2])}). Merge the pairs of "
            "one tokenizer at a time"
        )


def _check_splits(prefixes: Sequence[Path]) -> None:
    known: dict[str, Path] = {}  # split -> its first pair
    for prefix in prefixes:
        splits = {
            entry["prefix"]: entry.get("split", "") for entry in read_manifest(prefix.parent / "_meta").get("pairs", [])
        }
        if split := splits.get(prefix.name):
            known.setdefault(split, prefix)
    if len(known) > 1:
        examples = "; ".join([f"{prefix}: {split}" for split, prefix in known.items()][:2])
        raise InputError(
            f"pairs of different splits cannot be joined ({examples}). Merge the pairs of one split at a time, such as "
            "*_train_*.idx"
        )


def _common_dtype(prefixes: Sequence[Path]) -> np.dtype:
    dtypes: dict[str, Path] = {}
    for prefix in each(prefixes, "checking pairs", "pair"):
        info, sequences = check_pair(prefix, strict=False), len(IndexedReader(prefix))
        if sequences != info.documents or info.empty_documents:
            raise InputError(
                f"{prefix} has {info.documents} documents in {sequences} sequences, expected one sequence per "
                "document: other pairs cannot be merged or split"
            )
        dtypes.setdefault(info.dtype, prefix)
    if len(dtypes) > 1:
        shown = ", ".join(f"{prefix.name}: {name}" for name, prefix in dtypes.items())
        raise InputError(
            f"pairs of different dtypes cannot be joined ({shown}): their tokenizers differ. Merge each dtype alone"
        )
    return np.dtype(next(iter(dtypes)))


def _refuse_folder(stem: str) -> None:
    if stem.endswith(os.sep) or Path(stem).is_dir():
        inside = os.path.join(stem, "merged")
        raise OutputError(
            f"{stem} is a folder, expected the start of a file name: {inside} gives {inside}_00000_text_document"
        )


def _refuse_own_output(prefixes: Sequence[Path], stem: Path) -> None:
    """Raise InputError for an input that is also an output: `--force` would delete it."""
    for prefix in prefixes:
        if prefix.parent.resolve() == stem.parent.resolve() and is_of_stem(stem, prefix.name):
            raise InputError(f"{prefix} would be read and written. Give another output name")
