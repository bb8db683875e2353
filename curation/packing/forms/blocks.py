# SPDX-License-Identifier: Apache-2.0
"""`blocks`: all documents as one stream of tokens, cut into rows of equal length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.errors import RecipeError, counted
from curation.packing.forms.base import Count, Form
from curation.packing.forms.documents import Documents, TokenStream
from curation.packing.forms.shards import WRITE_TOKENS, check_counts, entry, shard_path, write_array, write_tensor
from curation.system.steps import each


class Summary(msgspec.Struct):
    """Fields of a split in `report.json`."""

    blocks: Count
    dropped_tokens: Count = 0


class Blocks(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`blocks/<split>_NNNNN.npy` (or `.pt`): shards of shape (blocks, length).

    length        tokens of a block
    keep_last     keep an incomplete last block of a split, padded with `output.pad_id`; else it is dropped
    file_type     `npy`: uint16 or int32, the tokenizer's dtype. `pt`: PyTorch LongTensor, four times the size of
                  uint16. `auto`: pt if PyTorch is installed, else npy
    shard_blocks  blocks of a shard; the last shard of a split may have fewer

    A block may have tokens of several documents, and a document may span blocks. RecipeError: a split with less than
    one block.
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
                f"{split or 'the run'} has {documents.tokens} tokens, expected at least one block of {length}. Set a "
                "smaller output.blocks.length, or keep_last: true"
            )
        stream = TokenStream(documents)
        files = []
        for number, first in enumerate(each(range(0, count, self.shard_blocks), "writing blocks", "file")):
            rows = min(self.shard_blocks, count - first)
            path = shard_path(folder, split, number, f".{self.file_type}")
            batches = _row_batches(stream, rows, length, pad_id)
            if self.file_type == "pt":
                write_tensor(path, (rows, length), batches, None)
            else:
                write_array(path, (rows, length), dtype, batches)
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
        """Return counts summed over splits. `tail_tokens` are those of incomplete last blocks, which are dropped."""
        counts = {"blocks": "blocks", "tail_tokens": "dropped_tokens"}
        return {name: sum(split.get(key, 0) for split in splits) for name, key in counts.items()} if splits else {}

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        if not splits:
            return []
        numbers = cls.numbers(splits)
        tail = f"; {counted(numbers['tail_tokens'], 'tail token')} dropped" if numbers["tail_tokens"] else ""
        return [f"{counted(numbers['blocks'], 'block')}{tail}"]


def _row_batches(stream: TokenStream, rows: int, length: int, pad_id: int) -> Iterator[np.ndarray]:
    """Yield the next rows in batches; an incomplete last row is padded."""
    step = max(1, WRITE_TOKENS // length)
    for first in range(0, rows, step):
        size = min(step, rows - first) * length
        ids = stream.take(size)
        yield np.pad(ids, (0, size - len(ids)), constant_values=pad_id) if len(ids) < size else ids
