# SPDX-License-Identifier: Apache-2.0
"""`Loader`: a DataLoader over a data set of this package with a seeded order, division among ranks, and resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from curation.base.errors import InputError
from curation.base.system.files import commit
from curation.base.system.html_table import Shown
from curation.base.system.packages import check_torch
from curation.tokens.ordering import seeded_order
from curation.training.blocks import BlockDataset
from curation.training.positions import WorkerShare, check_at_least, check_state, fingerprint, positions, this_rank


class Loader(Shown):
    """Batches of a data set in a seeded order, with exact resume.

    dataset      a data set of this package
    batch_size   samples of a batch; the last batch of an epoch may have fewer
    seed         seed of the order. Default: 0
    shuffle      False: the order of the data set. Default: True
    workers      processes that read ahead. Default: 0, this process reads
    rank, ranks  number of this rank and number of ranks. Default: those of torch.distributed, else 0 and 1
    collate      function from a list of samples to a batch, as in DataLoader. Default: the data set's method `collate`,
                 else DataLoader's default
    pin_memory   as in DataLoader. Default: False

    A BlockDataset has its own `seed`, `shuffle`, `rank` and `ranks`: give these to the data set, not to the Loader.

    Each `iter()` is one epoch, or the rest of an epoch that a `break` interrupted. To restart that epoch, load the
    `state_dict` of its start. A new Loader starts with epoch 0. The order depends only on the seed and the epoch. It
    takes 8 bytes of memory per sample of an indexed data set.

    `state_dict` is exact after any batch that the caller received, also if workers have read further. It can be loaded
    with another number of workers or ranks.

    InputError: a `batch_size` below 1, only one of `rank` and `ranks`, or settings that belong to the BlockDataset.
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, seed: int = 0, shuffle: bool = True, workers: int = 0,
        rank: int | None = None, ranks: int | None = None, collate: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
    ) -> None:  # fmt: skip
        self.dataset, self.workers, self.pin_memory = dataset, workers, pin_memory
        self.batch_size = check_at_least(1, batch_size, "batch_size")
        self.collate = collate or getattr(dataset, "collate", None)
        self.blocks = isinstance(dataset, BlockDataset)
        if self.blocks:
            if seed or not shuffle or rank is not None or ranks is not None:
                raise InputError("give seed, shuffle, rank and ranks to the BlockDataset, not to its Loader")
            dataset.batch_size, self.rank, self.ranks = batch_size, dataset.rank, dataset.ranks
            self.data = dataset.data
        else:
            self.rank, self.ranks = this_rank(rank, ranks)
            self.data = fingerprint(dataset.data, seed, shuffle)
        self.seed, self.shuffle = seed, shuffle
        self.epoch = self.position = 0

    @property
    def total(self) -> int:
        """The number of samples of an epoch, over all ranks."""
        return cast(int, self.dataset.total) if self.blocks else len(cast(Sized, self.dataset))

    def __len__(self) -> int:
        """Return the number of batches of a complete epoch for this rank."""
        return -(-len(range(self.rank, self.total, self.ranks)) // self.batch_size)

    def _facts(self) -> dict[str, object]:
        return {
            "data set": type(self.dataset).__name__,
            "samples": self.total,
            "batches": len(self),
            "batch_size": self.batch_size,
            "epoch": self.epoch,
            "position": self.position,
            "rank": f"{self.rank} of {self.ranks}",
        }

    def __iter__(self) -> Iterator[Any]:
        start = self.position
        samples = remaining = len(range(start + self.rank, self.total, self.ranks))
        for batch in self._batches(start):
            remaining -= min(remaining, self.batch_size)
            done = samples - remaining
            self.position = start + done * self.ranks
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch: a dictionary, equal on ranks that have read equally many."""
        return {"data": self.data, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume after the last sample of `state`. InputError: the state of another data set, seed or order."""
        self.epoch, self.position = check_state(state, self.data, "Loader")

    def _batches(self, start: int) -> Iterator[Any]:
        if self.blocks:
            self.dataset.load_state_dict({"data": self.data, "epoch": self.epoch, "position": start})
            return iter(self._loader(self.dataset, batch_size=self.batch_size))
        order = seeded_order(self.total, self.seed, self.epoch) if self.shuffle else None
        sampler = _Sampler(order, WorkerShare(self.rank, self.ranks), start, self.total)
        return iter(self._loader(self.dataset, batch_size=self.batch_size, sampler=sampler))

    def _loader(self, dataset: Dataset[Any], **options: Any) -> DataLoader[Any]:
        return DataLoader(
            dataset, num_workers=self.workers, collate_fn=self.collate, pin_memory=self.pin_memory, **options
        )


class _Sampler:
    """Yields the numbers of the samples of this rank."""

    def __init__(self, order: np.ndarray | None, share: WorkerShare, start: int, total: int) -> None:
        self.order, self.share, self.start, self.total = order, share, start, total

    def __iter__(self) -> Iterator[int]:
        for chosen in positions(self.share, self.start, self.total):
            yield from (chosen if self.order is None else self.order[chosen]).tolist()

    def __len__(self) -> int:
        return len(range(self.start + self.share.rank, self.total, self.share.ranks))


def save_sample(loader: Any, path: str | Path, batches: int = 1) -> int:
    """Save the next batches of a loader as a list and return their number.

    loader   a `Loader`, or another iterable of batches. The position of a loader with `state_dict` does not change
    path     file to write, such as `sample_dataset.pt`. It is written completely or not at all
    batches  maximum number of batches. Default: 1
    """
    state = loader.state_dict() if hasattr(loader, "state_dict") else None
    saved = list(islice(loader, batches))
    if state is not None:
        loader.load_state_dict(state)
    with commit(Path(path)) as temporary, open(temporary, "wb") as file:
        torch.save(saved, file)
    return len(saved)


def load_sample(path: str | Path) -> list[Any]:
    """Return the batches of `save_sample`. Reads tensors and plain containers only: no code of the file runs.

    pickle.UnpicklingError: a file with other objects.
    """
    check_torch()
    return list(torch.load(path, weights_only=True))
