# SPDX-License-Identifier: Apache-2.0
"""`blocks`: all documents as one stream of tokens, cut into rows of N."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.errors import RecipeError, counted
from curation.packing.forms.base import Count, Form
from curation.packing.forms.documents import Documents, TokenStream
from curation.packing.forms.shards import PIECE_TOKENS, check_counts, entry, shard_path, write_array, write_tensor


class Summary(msgspec.Struct):
    blocks: Count


class Blocks(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`blocks/<split>_NNNNN.npy` (or `.pt`): shards of shape (blocks, length).

    length        tokens of a block
    keep_last     keep the last block of a split where it is incomplete, filled up with `output.pad_id`; else it goes
    file_type     `npy`: the ids as they are (uint16 or int32), `pt`: PyTorch LongTensor, four times the size of uint16;
                  `auto`: pt where PyTorch is installed
    shard_blocks  blocks of a shard
    """

    name = "blocks"
    pads = True
    summary = Summary

    length: int = 1024
    keep_last: bool = False
    file_type: str = "npy"
    shard_blocks: int = 50_000

    def __post_init__(self) -> None:
        check_counts(self, "length", "shard_blocks")

    def needs_pad_id(self) -> bool:
        return self.keep_last

    def write(self, documents: Documents, folder: Path, split: str, dtype: np.dtype, pad_id: int) -> dict[str, Any]:
        length = self.length
        full, rest = divmod(documents.tokens, length)
        count = full + (self.keep_last and rest > 0)
        if not count:
            raise RecipeError(
                f"{split or 'the run'} has {documents.tokens} tokens, not one block of {length}. Set a smaller "
                "output.blocks.length, or keep_last: true"
            )
        stream = TokenStream(documents)
        files = []
        for number, first in enumerate(range(0, count, self.shard_blocks)):
            rows = min(self.shard_blocks, count - first)
            path = shard_path(folder, split, number, f".{self.file_type}")
            pieces = _pieces(stream, rows, length, pad_id)
            if self.file_type == "pt":
                write_tensor(path, (rows, length), pieces, None)
            else:
                write_array(path, (rows, length), dtype, pieces)
            files.append(entry(path, blocks=rows))
        padding = count * length - documents.tokens if count > full else 0
        return {
            "files": files,
            "documents": documents.count,
            "blocks": count,
            "tokens": count * length - padding,
            "dropped_tokens": 0 if count > full else rest,
            "padding": padding,
        }

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"blocks": sum(split["blocks"] for split in splits)} if splits else {}

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        return [counted(cls.numbers(splits)["blocks"], "block")] if splits else []


def _pieces(stream: TokenStream, rows: int, length: int, pad_id: int) -> Iterator[np.ndarray]:
    """The next rows, some at a time; a last one that is incomplete is filled up."""
    step = max(1, PIECE_TOKENS // length)
    for first in range(0, rows, step):
        wanted = min(step, rows - first) * length
        ids = stream.take(wanted)
        yield np.pad(ids, (0, wanted - len(ids)), constant_values=pad_id) if len(ids) < wanted else ids
