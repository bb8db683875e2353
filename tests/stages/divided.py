# SPDX-License-Identifier: Apache-2.0
"""A corpus of given keys, decided by stages in tasks of any division, order and number of threads."""

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from curation.base.arrays import save_array
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.record.partitions import Partitions, PartitionWriter
from curation.stages import CorpusStage
from curation.stages.corpus import key_ranges
from curation.stages.corpus.key_ranges import Division
from curation.stages.invoke import decide, run_phase_task
from curation.stages.outcome import BYTES, Corpus, Decision, key_column

CPU = load_engine("cpu")


class Order(NamedTuple):
    """How the work is divided: slice groups of so many partitions, ranges of keys, reducers, the seed of the order of
    tasks and the threads that run them."""

    partitions: int
    ranges: int
    reducers: int
    seed: int = 0
    threads: int = 1


ORDERS = (Order(1, 1, 1), Order(2, 7, 7, 1), Order(1, 100, 100, 2, 3), Order(100, 5, 3, 3))


def write_partitions(
    folder: Path, keys: Mapping[str, np.ndarray], rows: Sequence[int], texts: Sequence[str] = ()
) -> Partitions:
    """Partitions of so many rows with these keys of stage 0, and texts where they are given."""
    folder.mkdir(parents=True)
    partitions = Partitions(folder, rows)
    for number, (low, high) in enumerate(pairwise(partitions.starts.tolist())):
        with PartitionWriter(partitions.path(number), partitions.keys_path(number)) as writer:
            mine = list(texts[low:high]) or [""] * (high - low)
            columns = {BYTES: np.array([len(text.encode()) for text in mine], np.int64)}
            columns |= {key_column(0, name): values[low:high] for name, values in keys.items()}
            writer.write(pa.table({TEXT: pa.array(mine, pa.large_string())}), columns)
    return partitions


def corpus_of(partitions: Partitions, alive: np.ndarray, **options: Any) -> Corpus:
    mask = partitions.folder / "mask.npy"
    save_array(mask, alive)
    return partitions.corpus(0, mask, **options)


def decide_in_order(
    monkeypatch: pytest.MonkeyPatch, stage: CorpusStage, corpus: Corpus, order: Order, engine: Any = CPU
) -> Decision:
    """The decision with the tasks of each phase in another order, some at once."""

    def divide(starts: np.ndarray, bands: int, workers: int) -> Division:
        last = len(starts) - 1
        slice_groups = [*range(0, last, order.partitions), last] if last else [0, 0]
        return Division(slice_groups, order.ranges, min(order.reducers, bands * order.ranges))

    monkeypatch.setattr(key_ranges, "divide", divide)
    chance = random.Random(order.seed)

    def run(place: int, tasks: Sequence[int]) -> None:
        shuffled = chance.sample(tasks, len(tasks))
        with ThreadPoolExecutor(order.threads) as pool:
            list(pool.map(lambda task: run_phase_task(stage, engine, corpus, place, task), shuffled))

    return decide(stage, engine, corpus, run)
