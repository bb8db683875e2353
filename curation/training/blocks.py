# SPDX-License-Identifier: Apache-2.0
"""`BlockDataset`: the rows of `blocks/`, one shard at a time, shards and rows shuffled anew each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from curation.packing.forms.shards import open_form
from curation.packing.ordering import seeded_order
from curation.training.positions import Share, at_least, check_state, fingerprint, positions, this_rank

ROWS = 64  # copied out of a shard at a time


class BlockDataset(IterableDataset[torch.Tensor]):
    """LongTensors [length] from the folder `blocks/` of a run.

    One shard is open at a time, memory-mapped, so that the workers of a machine share its pages. The order of shards
    and the order of rows in each are shuffled by (seed, epoch); with `shuffle=False` rows come as they were written.
    Each `iter()` is one epoch and the next one the next epoch; what a `break` has left of one comes first. `rank` and
    `ranks` default to torch.distributed's. Ranks may differ by one sample at the end of an epoch, since none is left
    out or repeated; `even=True` leaves out the last few instead.

    `Loader` knows what follows; a plain DataLoader with workers has to be told: `batch_size` must be its batch size,
    the epoch is set by `set_epoch`, and `state_dict`, which counts the samples given out in this process, stands still.

    Raises InputError for a folder without manifest, with a missing or a foreign file, or without the split, and for a
    batch size below 1.
    """

    def __init__(
        self, folder: str | Path, split: str = "train", *, seed: int = 0, shuffle: bool = True, rank: int | None = None,
        ranks: int | None = None, even: bool = False, batch_size: int = 1,
    ) -> None:  # fmt: skip
        self.folder = Path(folder)
        self.manifest, content = open_form(folder, "blocks", split)
        self.seed, self.shuffle, self.even = seed, shuffle, even
        self.batch_size = at_least(1, batch_size, "batch_size")
        self.files = content["files"]
        self.length = int(self.manifest["settings"]["length"])
        self.blocks = int(content["blocks"])
        self.rank, self.ranks = this_rank(rank, ranks)
        self.epoch = self.position = 0
        self.data = fingerprint("blocks", split, [file["sha256"] for file in self.files], seed, shuffle)

    @property
    def total(self) -> int:
        """Samples of an epoch, of all ranks."""
        return self.blocks - self.blocks % self.ranks if self.even else self.blocks

    def __len__(self) -> int:
        """Samples of a whole epoch for this rank."""
        return len(range(self.rank, self.total, self.ranks))

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        share = Share(self.rank, self.ranks, worker, workers, self.batch_size)
        start = self.position
        for count, row in enumerate(self._rows(share, start), 1):
            self.position = start + count * self.ranks
            yield row
        self.epoch, self.position = self.epoch + 1, 0

    def set_epoch(self, epoch: int) -> None:
        """The next `iter()` is this epoch, from its start."""
        self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where this data set is: the same for all ranks that are in step."""
        return {"data": self.data, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on after the last sample of `state`, with any number of ranks and workers. InputError for the state of
        another data set, seed or order."""
        self.epoch, self.position = check_state(state, self.data, "BlockDataset")

    def _rows(self, share: Share, start: int) -> Iterator[torch.Tensor]:
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
        for first in range(0, len(local), ROWS):
            wanted = local[first : first + ROWS]
            found = rows[wanted if row_order is None else row_order[wanted]]
            yield from torch.from_numpy(found.astype(np.int64)).unbind()

    def _shard_order(self) -> list[int]:
        count = len(self.files)
        return seeded_order(count, self.seed, self.epoch).tolist() if self.shuffle else list(range(count))

    def _open(self, shard: int) -> tuple[np.ndarray, np.ndarray | None]:
        path = self.folder / self.files[shard]["file"]
        if path.suffix == ".pt":
            rows = torch.load(path, weights_only=True, mmap=True).numpy()
        else:
            rows = np.asarray(np.load(path, mmap_mode="r"))  # memmap's own indexing is slow
        return rows, seeded_order(len(rows), self.seed, self.epoch, shard) if self.shuffle else None
