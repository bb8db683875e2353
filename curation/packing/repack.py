# SPDX-License-Identifier: Apache-2.0
"""Finished `.bin/.idx` pairs joined to larger ones or cut into smaller ones, without a tokenizer.

In constant memory: the tokens are copied by the kernel, an index is read and written in pieces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curation.errors import InputError
from curation.files import make_folder
from curation.packing.indexed import IndexedReader, check_pair
from curation.packing.megatron import PairInfo, in_chunks, is_of_stem, join_parts, refuse_existing, suffixed


def bare_prefix(path: str | Path) -> Path:
    """The prefix that a path of a pair, or of one of its files, stands for."""
    return Path(str(path).removesuffix(".bin").removesuffix(".idx"))


def repack(prefixes: Sequence[str | Path], stem: str | Path, max_bytes: int, *, force: bool = False) -> list[PairInfo]:
    """The documents of `prefixes`, in this order, as pairs `<stem>_00000_text_document` and so on, each of at most
    `max_bytes` of tokens (one document at least). Merging is a large `max_bytes`, splitting one prefix.

    Every input is read once before, to be checked. Raises InputError where pairs have different dtypes or a pair has
    documents of several sequences, or would be replaced by the result, IntegrityError for a damaged one, OutputError
    where a pair of `stem` exists (unless `force`: then those that the result does not replace are deleted).
    """
    found = [bare_prefix(prefix) for prefix in prefixes]
    if not found:
        raise InputError("no pair given; name prefixes, as in news_00000_text_document")
    _refuse_own_output(found, Path(stem))
    if not force:
        refuse_existing(Path(stem))
    dtype = _common_dtype(found)
    with tempfile.TemporaryDirectory(prefix="_repack.", dir=_existing(Path(stem).parent)) as folder:
        parts = [(suffixed(prefix, ".bin"), Path(folder) / f"{n}.lengths") for n, prefix in enumerate(found)]
        for prefix, (_, path) in zip(found, parts, strict=True):
            with open(path, "wb") as file:
                file.writelines(chunk.astype("<i4") for chunk in in_chunks(IndexedReader(prefix).lengths))
        return join_parts(parts, stem, dtype, max_bytes, force=force)


def _existing(folder: Path) -> Path:
    make_folder(folder)
    return folder


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


def _refuse_own_output(prefixes: Sequence[Path], stem: Path) -> None:
    """A pair that is read must not be written: `--force` would delete it."""
    for prefix in prefixes:
        if prefix.parent.resolve() == stem.parent.resolve() and is_of_stem(stem, prefix.name):
            raise InputError(f"{prefix} would be read and written; give another output name")
