# SPDX-License-Identifier: Apache-2.0
"""`token_shards`: raw token ids of all documents back to back, without header or index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.errors import TokenizerError
from curation.base.system.files import commit
from curation.base.system.steps import each
from curation.tokens.forms import base
from curation.tokens.forms.base import Count, Form
from curation.tokens.forms.documents import TokenizedDocuments, TokenStream
from curation.tokens.forms.shards import WRITE_TOKENS, check_counts, entry, open_ids

if TYPE_CHECKING:
    from curation.tokens.tokenization import Tokenizer

DTYPES = ("auto", "uint16", "uint32")
UINT16_IDS = 2**16
WINDOW = 1024  # tokens shown at once


class ShardsSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""

    files: Count


class TokenShards(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`token_shards/<split>_NNNNN.bin`: little-endian ids, read by `np.memmap(path, np.uint16)`.

    shard_name    name of shards without suffix, as of `blocks`
    shard_tokens  tokens of a shard; the last shard of a split may have fewer. A document may span shards
    dtype         `uint16`, `uint32`, or `auto`: uint16 for a vocabulary of at most 65,536 entries, else uint32

    TokenizerError: `uint16` for a larger vocabulary.
    """

    name, unit = "token_shards", "tokens"
    summary = ShardsSummary

    shard_tokens: int = 100_000_000
    dtype: str = "auto"

    def __post_init__(self) -> None:
        check_counts(self, "shard_tokens")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {self.dtype!r}")

    def file_dtype(self, tokenizer: Tokenizer) -> np.dtype:
        vocabulary = tokenizer.vocabulary
        if self.dtype == "uint16" and vocabulary > UINT16_IDS:
            raise TokenizerError(
                f"a vocabulary of {vocabulary} does not fit uint16, whose largest id is {UINT16_IDS - 1}. "
                "Set output.token_shards.dtype: uint32"
            )
        narrow = self.dtype == "uint16" or (self.dtype == "auto" and vocabulary <= UINT16_IDS)
        return np.dtype("<u2" if narrow else "<u4")

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        stream = TokenStream(documents)
        files = []
        for number, first in enumerate(
            each(range(0, documents.tokens, self.shard_tokens), "writing token shards", "file")
        ):
            path = self.shard_path(folder, split, number, ".bin")
            remaining = tokens = min(self.shard_tokens, documents.tokens - first)
            with commit(path) as temporary, open(temporary, "wb") as file:
                while remaining:
                    ids = stream.take(min(remaining, WRITE_TOKENS))
                    file.write(ids.astype(dtype).data)
                    remaining -= len(ids)
            files.append(entry(path, tokens=tokens))
        return {"files": files, "documents": documents.count, "tokens": documents.tokens}

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        """Return the ids in windows of WINDOW tokens; the last one may have fewer."""
        ids = open_ids(path, dtype, count)
        return [ids[first : first + WINDOW] for first in range(0, len(ids), WINDOW)]

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"shards": sum(split["files"] for split in splits)}
