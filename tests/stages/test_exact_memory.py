# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates take at most 2 bytes of memory per document, and 40 if all have one text."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curation.base.arrays import save_array
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.system.progress import Progress
from curation.recipes.recipe import Recipe
from curation.record import masks
from curation.record.partitions import Partitions, PartitionWriter
from curation.record.segments import Segment
from curation.running.phases import corpus_phase
from curation.running.phases.write_phase import cut_output_parts
from curation.stages import ExactDedup, invoke
from curation.stages.corpus import key_ranges
from curation.stages.outcome import BYTES, Decision, StageCount, key_column

CPU = load_engine("cpu")
SERIAL = SimpleNamespace(run=lambda function, items, *done: [function(item) for item in items])
SIZES = 200_000, 600_000
IN_PARTITION = 40_000
ALLOWED = {"distinct": 2, "pairs": 2, "equal": 40}  # a task has all documents with one text
ALLOWED_IN_THE_RUNNER = {"distinct": 1, "pairs": 1, "equal": 40}  # "equal" has one task, in this process
KINDS = {"distinct": lambda number: number + 1, "pairs": lambda number: number // 2 + 1, "equal": np.ones_like}
BY_KEY = ExactDedup(column="url", keep={"highest": "score"}, copies_column="copies")


def write_part(folder: Path, documents: int, kind: str) -> Partitions:
    folder.mkdir(parents=True)
    parts = Partitions(folder, [IN_PARTITION] * (documents // IN_PARTITION))
    for place in range(documents // IN_PARTITION):
        with PartitionWriter(parts.path(place), parts.keys_path(place)) as part:
            number = np.arange(place * IN_PARTITION, (place + 1) * IN_PARTITION, dtype=np.uint64)
            text = pa.nulls(len(number), pa.large_string())
            keys = {key_column(0, name): KINDS[kind](number) for name in ("high", "low")}
            keys[key_column(0, "order")] = number % 97 + 2
            part.write(pa.table({TEXT: text}), {BYTES: number.astype(np.int64)} | keys)
    return parts


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch):
    """Make the fixed memory of a task small, so that the part that grows with the corpus is measured."""
    monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", IN_PARTITION)
    monkeypatch.setattr(key_ranges, "MAX_GROUP_ROWS", IN_PARTITION)
    monkeypatch.setattr(key_ranges, "RANGE_KEYS", IN_PARTITION)
    monkeypatch.setattr(key_ranges, "REDUCER_KEYS", IN_PARTITION)
    monkeypatch.setattr(masks, "BATCH_ROWS", IN_PARTITION)


def peak_of(work: Callable[[], Any]) -> tuple[int, Any]:
    """The most bytes that are allocated at once meanwhile, and what it gives."""
    tracemalloc.start()
    result = work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, result


def decide(parts: Partitions, workers: int, stage: ExactDedup) -> Decision:
    """As the runner does, with its mask."""
    alive = np.ones(len(parts), bool)
    save_array(parts.folder / "mask.npy", alive)
    found = invoke.decide(stage, CPU, parts.corpus(0, parts.folder / "mask.npy", workers=workers))
    alive[found.dropped] = False
    return found


@pytest.mark.slow("`exact_dedup` takes the announced memory per document")
@pytest.mark.parametrize(
    ("workers", "stage"), [(1, ExactDedup()), (2, ExactDedup()), (2, BY_KEY)], ids=["1", "2", "by-key"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_per_document_of_the_stage(tmp_path: Path, kind: str, workers: int, stage: ExactDedup):
    peaks = []
    for documents in (IN_PARTITION, *SIZES):  # the first time loads modules and compiled code
        parts = write_part(tmp_path / str(documents), documents, kind)
        peak, found = peak_of(lambda parts=parts: decide(parts, workers, stage))
        assert len(found.dropped) == {"distinct": 0, "pairs": documents // 2, "equal": documents - 1}[kind]
        peaks.append(peak)
    assert (peaks[2] - peaks[1]) / (SIZES[1] - SIZES[0]) <= ALLOWED[kind]


@pytest.mark.slow("the memory of exact duplicates per document is bounded")
@pytest.mark.parametrize("kind", ["distinct", "pairs", "equal"])
def test_bytes_per_document_of_the_barrier(tmp_path: Path, kind: str):
    peaks = []
    for documents in (IN_PARTITION, *SIZES):
        folder = tmp_path / str(documents)
        parts = write_part(folder / "_work" / "segment-0", documents, kind)
        slices = SimpleNamespace(tasks=1, sources_of_task=lambda number: ["made"])
        plan = SimpleNamespace(recipe=Recipe(stages=[ExactDedup()]), slices=slices, stage_files={})
        run = corpus_phase.RunContext(plan, None, folder, CPU, "cpu", SERIAL, Progress(), workers=2, batch_bytes=0)

        sizes = np.add.reduceat(np.arange(len(parts)), parts.starts[:-1])
        totals = SimpleNamespace(documents=np.diff(parts.starts), slice_documents=np.array([len(parts)]), bytes=sizes)

        def barrier(run=run, parts=parts, totals=totals):
            counts = [StageCount(kind="exact_dedup", name="exact_dedup")]
            segment = Segment(0, (), (0,), 0, 0)
            reached = corpus_phase.run_corpus_stages(run, segment, {0: ExactDedup()}, totals, counts)
            return counts, cut_output_parts(reached, run.plan.recipe.output)

        peak, ([count], output_parts) = peak_of(barrier)
        assert sum(part.documents for part in output_parts) == count.documents_out > 0
        peaks.append(peak)
    assert (peaks[2] - peaks[1]) / (SIZES[1] - SIZES[0]) <= ALLOWED_IN_THE_RUNNER[kind]
