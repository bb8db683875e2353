# SPDX-License-Identifier: Apache-2.0
"""`blocks`: all documents as one stream of tokens, cut into rows of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from curation.tokens.forms import base
from curation.tokens.forms.base import Count
from curation.tokens.forms.rows import RowForm
from curation.tokens.forms.shards import check_counts, entry, open_rows, write_array, write_tensor


class BlocksSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""

    blocks: Count
    dropped_tokens: Count = 0


class Blocks(RowForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`blocks/<split>_NNNNN.npy` (or `.pt`): shards of shape (blocks, length).

    shard_name    name of shards without suffix, such as `shard_{number}`; `{number:05}` has five digits. Without a
                  number, later shards add `_1`, `_2` to the name. With splits, the name needs `{split}`
    length        tokens of a block
    keep_last     keep an incomplete last block of a split, padded with `output.pad_id`; else it is dropped
    file_type     `npy`: uint16 or int32, the tokenizer's dtype. `pt`: PyTorch LongTensor, four times the size of
                  uint16. `auto`: pt if PyTorch is installed, else npy
    shard_blocks  blocks of a shard; the last shard of a split may have fewer

    A block may have tokens of several documents, and a document may span blocks. RecipeError: a split with less than
    one block.
    """

    name = "blocks"
    row, unit = "block", "blocks"
    summary = BlocksSummary

    file_type: str = "npy"
    shard_blocks: int = 50_000

    def __post_init__(self) -> None:
        check_counts(self, "length", "shard_blocks")

    def shard_rows(self) -> int:
        return self.shard_blocks

    def shown_size(self, file: str, count: int) -> str:
        shape = f"{count}, {self.length}"
        return f"shape torch.Size([{shape}])" if file.endswith(".pt") else f"shape ({shape})"

    def write_shard(
        self, folder: Path, split: str, number: int, rows: int, batches: Iterable[np.ndarray], dtype: np.dtype
    ) -> dict[str, Any]:
        path = self.shard_path(folder, split, number, f".{self.file_type}")
        if self.file_type == "pt":
            write_tensor(path, (rows, self.length), batches, None)
        else:
            write_array(path, (rows, self.length), dtype, batches)
        return entry(path)

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        return open_rows(path, count, self.length)  # type: ignore[return-value]  # it has a length and rows
