# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates take at most 32 bytes of memory per document, and what the runner does with its rows 34."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from curation.arrays import positions_of
from curation.contract import TEXT
from curation.engine import load_engine
from curation.recipes.recipe import Recipe
from curation.running import corpus_phase
from curation.running.intermediate import MIN_KEY_ROWS, Partitions, PartitionWriter
from curation.running.ledger import SliceRecord
from curation.running.map_phase import Segment
from curation.running.progress import Progress
from curation.running.write_phase import cut_output_parts
from curation.stages import ExactDedup, invoke
from curation.stages.outcome import BYTES, Decision, StageCount, key_column

CPU = load_engine("cpu")
SIZES = 200_000, 600_000
KINDS = {"distinct": lambda number: number, "pairs": lambda number: number // 2, "equal": np.zeros_like}


def write_part(folder: Path, documents: int, kind: str) -> Partitions:
    folder.mkdir(parents=True)
    parts = Partitions(folder, [documents])
    with PartitionWriter(parts.path(0), parts.keys_path(0)) as part:
        for start in range(0, documents, MIN_KEY_ROWS):
            number = np.arange(start, min(start + MIN_KEY_ROWS, documents), dtype=np.uint64)
            text = pa.nulls(len(number), pa.large_string())
            keys = {key_column(0, name): KINDS[kind](number) for name in ("high", "low")}
            part.write(pa.table({TEXT: text}), {BYTES: number.astype(np.int64)} | keys)
    return parts


def peak_of(work: Callable[[], Any]) -> tuple[int, Any]:
    """The most bytes that are allocated at once meanwhile, and what it gives."""
    tracemalloc.start()
    result = work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, result


def decide(parts: Partitions, workers: int) -> Decision:
    """As the runner does, with its mask."""
    alive = np.ones(len(parts), bool)
    found = invoke.decide(ExactDedup(), CPU, parts.corpus(0, positions_of(alive), workers=workers))
    alive[found.dropped] = False
    return found


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_per_document_of_the_stage(tmp_path: Path, kind: str, workers: int):
    peaks = []
    for documents in SIZES:
        parts = write_part(tmp_path / str(documents), documents, kind)
        invoke.decide(ExactDedup(), CPU, parts.corpus(0, np.arange(100)))  # compiles, and loads what was compiled
        peak, found = peak_of(lambda parts=parts: decide(parts, workers))
        assert len(found.dropped) == {"distinct": 0, "pairs": documents // 2, "equal": documents - 1}[kind]
        peaks.append(peak)
    assert (peaks[1] - peaks[0]) / (SIZES[1] - SIZES[0]) <= 32


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_per_document_of_the_barrier(tmp_path: Path, kind: str):
    peaks = []
    for documents in SIZES:
        folder = tmp_path / str(documents)
        parts = write_part(folder / "_work" / "segment-0", documents, kind)
        slices = [SimpleNamespace(source="made", index=0)]
        plan = SimpleNamespace(recipe=Recipe(stages=[ExactDedup()]), slices=slices, stage_files={})
        run = corpus_phase.RunContext(plan, None, folder, CPU, "cpu", None, Progress(), workers=2, batch_bytes=0)

        def barrier(run=run, parts=parts):
            counts = [StageCount(kind="exact_dedup", name="exact_dedup")]
            records = [SliceRecord(documents=len(parts))]
            segment = Segment(0, (), (0,), 0, 0)
            reached = corpus_phase.run_corpus_stages(run, segment, {0: ExactDedup()}, records, counts)
            sizes, sources = reached.partitions.byte_lengths(), [("made", 0, len(parts))]
            return counts, cut_output_parts(sources, sizes, reached.alive, run.plan.recipe.output)

        peak, ([count], output_parts) = peak_of(barrier)
        assert sum(part.documents for part in output_parts) == count.documents_out > 0
        peaks.append(peak)
    assert (peaks[1] - peaks[0]) / (SIZES[1] - SIZES[0]) <= 34
