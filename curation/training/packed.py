# SPDX-License-Identifier: Apache-2.0
"""`PackedDataset`: the rows of `packed/`, with positions and numbers of their documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from curation.base.system.html_table import Shown
from curation.tokens.forms.chunks import IGNORED_LABEL
from curation.tokens.forms.packed import read_segments
from curation.tokens.forms.shards import open_rows
from curation.tokens.forms.stored import open_form
from curation.training.positions import fingerprint


class PackedDataset(Shown, Dataset[dict[str, torch.Tensor]]):
    """Rows of the folder `packed/` of a run, by number: dictionaries of int64 tensors of shape (length,).

    folder  the folder `packed/`
    split   "train" (default, also for a run without splits), "valid" or "test"

    Files are memory-mapped. Keys of a row:

    input_ids     ids, padded on the right with the manifest's `pad_id`
    labels        ids, -100 for padding; the model shifts them by one
    position_ids  0, 1, ... from the start of each document, 0 for padding
    document_ids  1 for the first document of the row, 2 for the next, 0 for padding. For attention within documents,
                  require equal document ids of query and key

    InputError: a folder without manifest, a missing or foreign file, or an unknown split. IndexError: a number outside
    of 0 to `len()` - 1.
    """

    def __init__(self, folder: str | Path, split: str = "train") -> None:
        self.folder = Path(folder)
        self.manifest, content = open_form(folder, "packed", split)
        self.length = int(self.manifest["settings"]["length"])
        self.files = [file for file in content["files"] if "rows" in file]
        self.ends = np.cumsum([file["rows"] for file in self.files])
        self.data = fingerprint("packed", split, [file["sha256"] for file in content["files"]])
        self._opened: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return int(self.ends[-1])

    def _facts(self) -> dict[str, object]:
        return {"folder": self.folder, "rows": len(self), "length": self.length}

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        shard = int(np.searchsorted(self.ends, index, side="right"))
        local = index - (int(self.ends[shard - 1]) if shard else 0)
        rows, segments, first_segments = self._shard(shard)
        _, starts, sizes = segments[first_segments[local] : first_segments[local + 1]].T
        used = int(sizes.sum())
        ids = rows[local].astype(np.int64)
        labels, document_ids, position_ids = ids.copy(), np.zeros_like(ids), np.zeros_like(ids)
        labels[used:] = IGNORED_LABEL
        document_ids[:used] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        position_ids[:used] = np.arange(used) - np.repeat(starts, sizes)
        row = {"input_ids": ids, "labels": labels, "position_ids": position_ids, "document_ids": document_ids}
        return {name: torch.from_numpy(values) for name, values in row.items()}

    def _shard(self, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if shard not in self._opened:
            file = self.files[shard]
            path = self.folder / file["file"]
            rows = open_rows(path, file["rows"], self.length)
            segments = read_segments(path, len(rows), self.length)
            first_segments = np.searchsorted(segments[:, 0], np.arange(len(rows) + 1, dtype=segments.dtype))
            self._opened[shard] = rows, segments, first_segments
        return self._opened[shard]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": {}}
