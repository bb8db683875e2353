# SPDX-License-Identifier: Apache-2.0
"""`ChunkDataset`: the chunks of documents in `chunks/`, and `collate`, which pads a batch of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from curation.base.errors import InputError
from curation.base.system.html_table import Shown
from curation.tokens.forms.chunks import StoredChunks, pad
from curation.tokens.forms.stored import open_form
from curation.training.positions import fingerprint


def collate(samples: Sequence[torch.Tensor], pad_id: int, length: int = 0) -> dict[str, torch.Tensor]:
    """Pad samples of different lengths to a batch: int64 tensors of shape (samples, width).

    samples  int64 tensors of shape (tokens,)
    pad_id   id of padding
    length   width of the batch; longer samples are cut. Default: 0, the length of the longest sample

    `input_ids` is padded on the right, `attention_mask` is 1 for real tokens and 0 for padding, `labels` are the ids
    and -100 for padding.
    """
    padded = pad([sample.numpy() for sample in samples], pad_id, length)
    return {name: torch.from_numpy(rows) for name, rows in padded.items()}


class ChunkDataset(Shown, Dataset[torch.Tensor]):
    """Chunks in the folder `chunks/` of a run, by number: int64 tensors of shape (tokens,), memory-mapped.

    folder  the folder `chunks/`
    split   "train" (default, also for a run without splits), "valid" or "test"
    pad_id  id of padding. Default: the manifest's, which is `output.pad_id` or a token of the tokenizer

    A chunk has at most `length` tokens, the setting `chunks.length`. Pass `collate` or `collate_fixed` to a DataLoader;
    `Loader` uses `collate`.

    InputError: a folder without manifest, a missing or foreign file, an unknown split, or no id of padding. IndexError:
    a number outside of 0 to `len()` - 1.
    """

    def __init__(self, folder: str | Path, split: str = "train", *, pad_id: int = -1) -> None:
        self.folder = Path(folder)
        self.manifest, content = open_form(folder, "chunks", split)
        self.length = int(self.manifest["settings"]["length"])
        self.pad_id = pad_id if pad_id >= 0 else int(self.manifest["pad_id"])
        if self.pad_id < 0:
            raise InputError(
                f"{folder} has no id of padding: its tokenizer has no padding or end-of-document token. Give pad_id"
            )
        self.files = [file for file in content["files"] if "chunks" in file]
        self.ends = np.cumsum([file["chunks"] for file in self.files])
        self.data = fingerprint("chunks", split, [file["sha256"] for file in content["files"]])
        self._opened: dict[int, StoredChunks] = {}

    def __len__(self) -> int:
        return int(self.ends[-1])

    def _facts(self) -> dict[str, object]:
        return {"folder": self.folder, "chunks": len(self), "length": self.length}

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"chunk {index} of {len(self)}")
        shard = int(np.searchsorted(self.ends, index, side="right"))
        local = index - (int(self.ends[shard - 1]) if shard else 0)
        return torch.from_numpy(self._shard(shard)[local].astype(np.int64))

    def collate(self, samples: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Pad a batch to its longest sample. See `collate` of this module."""
        return collate(samples, self.pad_id)

    def collate_fixed(self, samples: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Pad a batch to `length` tokens, the setting `chunks.length`. See `collate` of this module."""
        return collate(samples, self.pad_id, self.length)

    def _shard(self, shard: int) -> StoredChunks:
        if shard not in self._opened:
            file = self.files[shard]
            self._opened[shard] = StoredChunks(self.folder / file["file"], file["chunks"])
        return self._opened[shard]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}  # each worker memory-maps the files itself
