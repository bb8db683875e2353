# SPDX-License-Identifier: Apache-2.0
"""Divides one global order of samples among ranks and workers, and checks the state that resumes it.

An epoch has one global order of samples. From `position`, rank r of R reads numbers position + r, position + r + R, ...
Within a rank, worker j mod W reads batch j. A DataLoader takes batches from its workers in turn, so the order of
batches does not depend on W.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import orjson

from curation.base.errors import InputError

BATCH_POSITIONS = 1 << 16


class WorkerShare(NamedTuple):
    """The part of the order that one worker of one rank reads."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1
    batch: int = 1  # consecutive samples of one worker


def this_rank(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """Return (rank, ranks): the given ones, else those of torch.distributed, else (0, 1).

    InputError: only one of them is given, or 0 <= rank < ranks is not true.
    """
    import torch.distributed as distributed

    if rank is None and ranks is None:
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if rank is None or ranks is None or not 0 <= rank < ranks:
        raise InputError(f"got rank {rank} and ranks {ranks}, expected 0 <= rank < ranks. Give both or neither")
    return rank, ranks


def positions(share: WorkerShare, start: int, total: int) -> Iterator[np.ndarray]:
    """Yield the positions of a share from `start` to `total` in ascending order: int64 arrays of shape (positions,)."""
    count = len(range(start + share.rank, total, share.ranks))  # positions of this rank
    stride = share.batch * share.workers
    step = max(1, BATCH_POSITIONS // stride) * stride
    for first in range(0, count, step):
        numbers = np.arange(first, min(first + step, count), dtype=np.int64)
        numbers = numbers[numbers // share.batch % share.workers == share.worker]
        if len(numbers):
            yield start + share.rank + numbers * share.ranks


def check_at_least(minimum: int, number: int, name: str) -> int:
    """Return `number`. InputError: it is below `minimum`."""
    if number < minimum:
        raise InputError(f"{name} must be at least {minimum}, not {number}")
    return number


def fingerprint(*facts: Any) -> str:
    """Return the identity of a data set: 16 hexadecimal digits of a SHA-256 over facts that JSON can hold."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def check_state(state: dict[str, Any], expected: str, name: str) -> tuple[int, int]:
    """Return (epoch, position) of a saved state. InputError: the state of another data set, seed or order."""
    missing = {"data", "epoch", "position"} - {*state}
    if missing:
        raise InputError(
            f"the state lacks {', '.join(sorted(missing))}, expected a state of {name}. Give what state_dict() returned"
        )
    if state["data"] != expected:
        raise InputError(
            f"the state belongs to another data set, split, seed or order ({state['data']}, this {name} is "
            f"{expected}). Open the data set of the state, or start from the beginning"
        )
    return int(state["epoch"]), int(state["position"])
