# SPDX-License-Identifier: Apache-2.0
"""`TokenDataset`: windows of fixed length over the raw shards in `token_shards/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch.utils.data import Dataset

from curation.base.errors import InputError
from curation.base.system.html_table import Shown
from curation.tokens.forms.stored import open_form
from curation.tokens.forms.token_shards import TokenShards
from curation.training.positions import check_at_least, fingerprint


class TokenDataset(Shown, Dataset[torch.Tensor]):
    """Windows of the folder `token_shards/` of a run, by number: int64 tensors of shape (length,), memory-mapped.

    folder  the folder `token_shards/`
    length  tokens of a window
    split   "train" (default, also for a run without splits), "valid" or "test"

    Windows do not overlap. They follow the shards in order; an incomplete window at the end of a shard is skipped.

    InputError: a folder without manifest, a missing or foreign file, an unknown split, shards without a window of
    `length` tokens, or a `length` below 1. IndexError: a number outside of 0 to `len()` - 1.
    """

    def __init__(self, folder: str | Path, length: int, split: str = "train") -> None:
        self.manifest, content = open_form(folder, "token_shards", split)
        self.length = check_at_least(1, length, "length")
        self.settings = msgspec.convert(self.manifest["settings"], TokenShards)
        files = [file for file in content["files"] if "tokens" in file]  # the others are indexes
        self.paths = [Path(folder) / file["file"] for file in files]
        self.tokens = [file["tokens"] for file in files]
        self.ends = np.cumsum([tokens // length for tokens in self.tokens])
        if not self.ends[-1]:
            raise InputError(f"no shard of {folder} has {length} tokens. Give a smaller length")
        self._opened: dict[int, np.ndarray] = {}
        self.data = fingerprint("token_shards", split, length, [file["sha256"] for file in files])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def _facts(self) -> dict[str, object]:
        return {"folder": self.paths[0].parent, "windows": len(self), "length": self.length}

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        shard = int(np.searchsorted(self.ends, index, side="right"))
        local = index - (int(self.ends[shard - 1]) if shard else 0)
        tokens = self._shard(shard)
        return torch.from_numpy(tokens[local * self.length : (local + 1) * self.length].astype(np.int64))

    def _shard(self, shard: int) -> np.ndarray:
        if shard not in self._opened:
            dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
            self._opened[shard] = self.settings.open_ids(self.paths[shard], dtype, self.tokens[shard])
        return self._opened[shard]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}  # each worker memory-maps the files itself
