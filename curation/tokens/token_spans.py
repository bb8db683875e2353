# SPDX-License-Identifier: Apache-2.0
"""Finds the bytes of tokens in texts, to split texts by tokens."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.errors import InputError, IntegrityError
from curation.reading.splitting import Parts
from curation.tokens.tokenization import Tokenizer, TokenizerSpec, load_tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    from curation.reading.source_files import Slice


def token_sizes(tokenizer: Tokenizer, texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the size in bytes of each token of the texts, and the number of tokens of each text; both int64."""
    ids, counts = tokenizer.encode(texts)
    return bytes_of_ids(tokenizer)[ids], counts


@lru_cache(maxsize=4)
def bytes_of_ids(tokenizer: Tokenizer) -> np.ndarray:
    """Return the size in bytes of the token of each id, int64. InputError: a tokenizer whose tokens are not bytes of
    the text."""
    pairs = tokenizer.byte_pairs
    if pairs is None:
        raise InputError(
            f"split: tokens needs a tokenizer whose tokens are the bytes of the text, as those of byte-level BPE. "
            f"{tokenizer.name!r} is none. Set tokenizer: gpt2, or split by sentences"
        )
    sizes = np.zeros(tokenizer.vocabulary, np.int64)
    for token, number in pairs.ranks.items():
        sizes[number] = len(token)
    return sizes


def parts_of(
    input_slice: Slice, batch_bytes: int, spec: TokenizerSpec | None = None, identity: Mapping[str, Any] | None = None
) -> Parts | None:
    """Return the settings by which the documents of a slice are split; None if they stay whole.

    spec       the recipe's tokenizer; None where there is no recipe
    identity   `Tokenizer.identity` in the plan; None: identities are not compared

    IntegrityError if the tokenizer has another identity.
    """
    split = input_slice.ranges[0].file.parts
    if split is None:
        return None
    if not isinstance(split.tokens, int) or spec is None:
        return Parts(split, batch_bytes)
    tokenizer = load_tokenizer(spec)
    if identity is not None and tokenizer.identity != identity:
        raise IntegrityError(f"a file of tokenizer {spec.name} changed during the run. Put it back, then run again")
    return Parts(split, batch_bytes, partial(token_sizes, tokenizer))
