# SPDX-License-Identifier: Apache-2.0
"""Which samples a consumer takes: dealing one seeded order out over ranks and workers, and remembering the place.

The samples of an epoch stand in one global order. From `position` on, rank r of R takes numbers position + r,
position + r + R, ... Within a rank, batch j goes to worker j mod W, which is how a DataLoader asks for batches, so that
the order of batches does not depend on W.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson

from curation.errors import InputError

STEP = 1 << 16  # positions made at a time


class Share(NamedTuple):
    """One consumer among all of them."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1
    batch: int = 1  # samples that go to one worker in a row


def this_rank(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """(rank, ranks): as given, or those of torch.distributed, or the only one. InputError where only one is given or
    they do not fit."""
    import torch.distributed as distributed

    if rank is None and ranks is None:
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if rank is None or ranks is None or not 0 <= rank < ranks:
        raise InputError(f"expected 0 <= rank < ranks, both or neither, got rank {rank} and ranks {ranks}")
    return rank, ranks


def positions(share: Share, start: int, total: int) -> Iterator[np.ndarray]:
    """The numbers in the global order that a consumer takes, in rising order, some at a time."""
    count = len(range(start + share.rank, total, share.ranks))  # of this rank
    stride = share.batch * share.workers
    step = max(1, STEP // stride) * stride
    for first in range(0, count, step):
        own = np.arange(first, min(first + step, count), dtype=np.int64)
        own = own[own // share.batch % share.workers == share.worker]
        if len(own):
            yield start + share.rank + own * share.ranks


def at_least(least: int, number: int, name: str) -> int:
    """The number; InputError where it is smaller."""
    if number < least:
        raise InputError(f"{name} must be at least {least}, not {number}")
    return number


def fingerprint(*facts: Any) -> str:
    """What tells data sets apart: a hash of facts that JSON can hold."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def check_state(state: dict[str, Any], expected: str, name: str) -> tuple[int, int]:
    """(epoch, position) of a stored state. InputError for one of another data set, seed or order."""
    missing = {"data", "epoch", "position"} - {*state}
    if missing:
        raise InputError(f"this is no state of {name}: it lacks {', '.join(sorted(missing))}")
    if state["data"] != expected:
        raise InputError(
            f"the state belongs to another data set, split, seed or order ({state['data']}, this {name} is "
            f"{expected}). Open the data set it was saved with, or start from the beginning"
        )
    return int(state["epoch"]), int(state["position"])
