# SPDX-License-Identifier: Apache-2.0
"""`Loader`: a DataLoader over any data set of this package that shuffles by a seed, deals out to ranks, and resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from curation.errors import InputError
from curation.files import commit
from curation.packing.ordering import seeded_order
from curation.training.blocks import BlockDataset
from curation.training.positions import Share, at_least, check_state, fingerprint, positions, this_rank


class Loader:
    """Batches of a data set; each `iter()` is one epoch, or the rest of one that a `break` has left. To begin that
    epoch anew, load the `state_dict` of its start; a new Loader begins with the first.

    The order of samples depends on `seed` and epoch alone (`shuffle=False`: the data set's own order; a BlockDataset
    has a seed and an order of its own, and these two are then not given). `workers` are processes that read ahead.
    `state_dict` is exact after any batch that the caller has received, whatever workers have read ahead; it may be
    loaded with another number of workers or ranks. The last batch of an epoch may be smaller.

    `collate` as in DataLoader; a data set with a method `collate` brings its own. A data set that is indexed keeps its
    order in memory: 8 bytes per sample. Raises InputError for a batch size below 1.
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, seed: int = 0, shuffle: bool = True, workers: int = 0,
        rank: int | None = None, ranks: int | None = None, collate: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
    ) -> None:  # fmt: skip
        self.dataset, self.workers, self.pin_memory = dataset, workers, pin_memory
        self.batch_size = at_least(1, batch_size, "batch_size")
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
        """Samples of an epoch, of all ranks."""
        return cast(int, self.dataset.total) if self.blocks else len(cast(Sized, self.dataset))

    def __len__(self) -> int:
        """Batches of a whole epoch for this rank."""
        return -(-len(range(self.rank, self.total, self.ranks)) // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        start = self.position
        left = len(range(start + self.rank, self.total, self.ranks))
        for batch in self._batches(start):
            left -= min(left, self.batch_size)
            done = len(range(start + self.rank, self.total, self.ranks)) - left
            self.position = start + done * self.ranks
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch given out: the same for all ranks that are in step."""
        return {"data": self.data, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on after the last sample of `state`. InputError for the state of another data set, seed or order."""
        self.epoch, self.position = check_state(state, self.data, "Loader")

    def _batches(self, start: int) -> Iterator[Any]:
        if self.blocks:
            self.dataset.load_state_dict({"data": self.data, "epoch": self.epoch, "position": start})
            return iter(self._loader(self.dataset, batch_size=self.batch_size))
        order = seeded_order(self.total, self.seed, self.epoch) if self.shuffle else None
        sampler = _Sampler(order, Share(self.rank, self.ranks), start, self.total)
        return iter(self._loader(self.dataset, batch_size=self.batch_size, sampler=sampler))

    def _loader(self, dataset: Dataset[Any], **options: Any) -> DataLoader[Any]:
        return DataLoader(
            dataset, num_workers=self.workers, collate_fn=self.collate, pin_memory=self.pin_memory, **options
        )


class _Sampler:
    """The numbers that this rank takes."""

    def __init__(self, order: np.ndarray | None, share: Share, start: int, total: int) -> None:
        self.order, self.share, self.start, self.total = order, share, start, total

    def __iter__(self) -> Iterator[int]:
        for chosen in positions(self.share, self.start, self.total):
            yield from (chosen if self.order is None else self.order[chosen]).tolist()

    def __len__(self) -> int:
        return len(range(self.start + self.share.rank, self.total, self.share.ranks))


def save_sample(loader: Any, path: str | Path, batches: int = 1) -> int:
    """Saves the first batches as a list (`sample_dataset.pt`, say), whole or not at all; gives their number. The
    loader's own place does not change."""
    place = loader.state_dict() if hasattr(loader, "state_dict") else None
    found = list(islice(loader, batches))
    if place is not None:
        loader.load_state_dict(place)
    with commit(Path(path)) as temporary, open(temporary, "wb") as file:
        torch.save(found, file)
    return len(found)


def load_sample(path: str | Path) -> list[Any]:
    """The batches of `save_sample`. Only tensors and plain containers are read: no code of the file runs."""
    return list(torch.load(path, weights_only=True))
