# SPDX-License-Identifier: Apache-2.0
"""`BlockDataset`: the rows of `blocks/`, one shard at a time. Each epoch shuffles shards and rows again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from curation.base.system.html_table import Shown
from curation.tokens.forms.shards import open_rows
from curation.tokens.forms.stored import open_form
from curation.tokens.ordering import seeded_order
from curation.training.positions import WorkerShare, check_at_least, check_state, fingerprint, positions, this_rank

BATCH_ROWS = 64  # rows copied from a shard at once


class BlockDataset(Shown, IterableDataset[torch.Tensor]):
    """Iterable data set of the blocks in the folder `blocks/` of a run: int64 tensors of shape (length,).

    folder       the folder `blocks/`
    split        "train" (default, also for a run without splits), "valid" or "test"
    seed         seed of the order of shards and of the rows in each shard. Default: 0
    shuffle      False: rows in the order of the files. Default: True
    rank, ranks  number of this rank and number of ranks. Default: those of torch.distributed, else 0 and 1
    even         drop the last samples of an epoch, so that all ranks have equally many. Default: False; ranks may then
                 differ by one sample, since none is dropped or repeated
    batch_size   consecutive samples that one worker reads. Default: 1. `Loader` sets it

    Each `iter()` is one epoch, or the rest of an epoch that a `break` interrupted. The order depends on (seed, epoch).
    One shard is open at a time, memory-mapped, so the workers of a machine share its pages.

    A plain DataLoader with workers needs what `Loader` does: `batch_size` must be the DataLoader's batch size, and
    `set_epoch` must be called before each epoch. `state_dict` cannot be used then, since it counts only the samples of
    this process.

    InputError: a folder without manifest, a missing or foreign file, an unknown split, a `batch_size` below 1, or only
    one of `rank` and `ranks`. IntegrityError: a damaged file.
    """

    def __init__(
        self, folder: str | Path, split: str = "train", *, seed: int = 0, shuffle: bool = True, rank: int | None = None,
        ranks: int | None = None, even: bool = False, batch_size: int = 1,
    ) -> None:  # fmt: skip
        self.folder = Path(folder)
        self.manifest, content = open_form(folder, "blocks", split)
        self.seed, self.shuffle, self.even = seed, shuffle, even
        self.batch_size = check_at_least(1, batch_size, "batch_size")
        self.files = content["files"]
        self.length = int(self.manifest["settings"]["length"])
        self.blocks = int(content["blocks"])
        self.rank, self.ranks = this_rank(rank, ranks)
        self.epoch = self.position = 0
        self.data = fingerprint("blocks", split, [file["sha256"] for file in self.files], seed, shuffle)

    @property
    def total(self) -> int:
        """The number of samples of an epoch, over all ranks."""
        return self.blocks - self.blocks % self.ranks if self.even else self.blocks

    def __len__(self) -> int:
        """Return the number of samples of a complete epoch for this rank."""
        return len(range(self.rank, self.total, self.ranks))

    def _facts(self) -> dict[str, object]:
        return {"folder": self.folder, "blocks": len(self), "length": self.length, "seed": self.seed}

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        share = WorkerShare(self.rank, self.ranks, worker, workers, self.batch_size)
        start = self.position
        for count, row in enumerate(self._rows(share, start), 1):
            self.position = start + count * self.ranks
            yield row
        self.epoch, self.position = self.epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` this epoch, from its start."""
        self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last sample: a dictionary, equal on ranks that have read equally many."""
        return {"data": self.data, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume after the last sample of `state`, with any number of ranks and workers.

        InputError: the state of another data set, seed or order.
        """
        self.epoch, self.position = check_state(state, self.data, "BlockDataset")

    def _rows(self, share: WorkerShare, start: int) -> Iterator[torch.Tensor]:
        order = self._shard_order()
        ends = np.cumsum([self.files[shard]["blocks"] for shard in order])
        opened = -1
        for chosen in positions(share, start, self.total):
            numbers = np.searchsorted(ends, chosen, side="right")
            for number in np.unique(numbers).tolist():
                if number != opened:
                    rows, row_order, opened = *self._open(order[number]), number
                first = int(ends[number]) - len(rows)
                yield from self._copy(rows, row_order, chosen[numbers == number] - first)

    def _copy(self, rows: np.ndarray, row_order: np.ndarray | None, local: np.ndarray) -> Iterator[torch.Tensor]:
        for first in range(0, len(local), BATCH_ROWS):
            numbers = local[first : first + BATCH_ROWS]
            batch = rows[numbers if row_order is None else row_order[numbers]]
            yield from torch.from_numpy(batch.astype(np.int64)).unbind()

    def _shard_order(self) -> list[int]:
        count = len(self.files)
        return seeded_order(count, self.seed, self.epoch).tolist() if self.shuffle else list(range(count))

    def _open(self, shard: int) -> tuple[np.ndarray, np.ndarray | None]:
        file = self.files[shard]
        rows = open_rows(self.folder / file["file"], file["blocks"], self.length)
        return rows, seeded_order(len(rows), self.seed, self.epoch, shard) if self.shuffle else None
