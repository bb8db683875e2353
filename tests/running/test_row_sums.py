# SPDX-License-Identifier: Apache-2.0
"""Tasks add up the rows of a segment. Sums and spans are those of all rows at once."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.arrays import cut_spans, save_array
from curation.base.system.files import make_folder
from curation.record import masks, row_sums
from curation.record.jobs import store_job
from curation.record.partitions import Partitions, PartitionWriter
from curation.record.row_sums import RowSums, SumsJob, cut_pieces, divide_partitions, run_sums

COUNTS = (5, 0, 7, 1, 12, 3)
SOURCES = [("a", 0, 12), ("b", 12, 28)]


@given(st.lists(st.integers(0, 9), max_size=30), st.data(), st.integers(1, 20), st.integers(1, 6))
def test_spans_of_pieces_are_those_of_all_documents(sizes: list[int], data: st.DataObject, size: int, items: int):
    numbers = np.cumsum(data.draw(st.lists(st.integers(1, 4), min_size=len(sizes), max_size=len(sizes))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sizes)), max_size=4)))
    expected = list(cut_spans([(numbers.astype(np.int64), np.array(sizes, np.int64))], size, items))

    def pieces() -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        for low, high in zip([0, *cuts], [*cuts, len(sizes)], strict=True):
            base = int(numbers[low]) if low < len(sizes) else 0
            yield base, (numbers[low:high] - base).astype(np.uint32), np.cumsum(sizes[low:high], dtype=np.int64)

    assert [tuple(span) for span in cut_pieces(pieces(), size, items)] == expected


@pytest.mark.parametrize(("rows", "partitions"), [(1 << 20, 64), (6, 64), (1 << 20, 1), (1, 1)])
@pytest.mark.parametrize("repeats", [False, True])
def test_sums_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, partitions: int, repeats: bool):
    monkeypatch.setattr(row_sums, "TASK_ROWS", rows)
    monkeypatch.setattr(row_sums, "TASK_PARTITIONS", partitions)
    monkeypatch.setattr(masks, "BATCH_ROWS", 4)
    parts, total = Partitions(tmp_path / "segment", COUNTS), sum(COUNTS)
    make_folder(parts.folder)
    sizes = np.arange(total, dtype=np.int64) * 10 % 70
    for number, count in enumerate(COUNTS):
        with PartitionWriter(parts.path(number), parts.keys_path(number)) as writer:
            writer.write(pa.table({"row": np.arange(count)}), {"bytes": sizes[parts.starts[number] :][:count]})
    removed = [np.array([0, 4, 5, 27]), np.zeros(0, np.int64)]
    written = np.ones(total, np.uint16 if repeats else bool)
    written[removed[0]] = 0
    if repeats:
        written[[2, 13, 14]] = (2, 3, 2)
    save_array(tmp_path / "written.npy", written)
    for number, values in enumerate(removed):
        save_array(tmp_path / f"removed-{number}.npy", values)
    job = SumsJob(
        partitions=parts,
        removed=[tmp_path / f"removed-{number}.npy" for number in range(2)],
        mask=tmp_path / "mask.npy",
        cuts=None,
        written=tmp_path / "written.npy",
        bounds=divide_partitions(parts.starts),
        folder=tmp_path / "sums",
    )
    make_folder(job.folder)
    stored = store_job(job, job.folder)
    for number in reversed(range(len(job.bounds) - 1)):
        run_sums(stored, 0, number)
    sums = RowSums(job)
    for number, values in enumerate(removed):
        places = np.searchsorted(parts.starts, values, side="right") - 1
        assert sums.lost[number, 0].tolist() == np.bincount(places, minlength=len(COUNTS)).tolist()
        assert sums.lost[number, 1].tolist() == np.bincount(places, sizes[values], len(COUNTS)).tolist()
    for _, low, high in SOURCES:
        for copy in range(4):
            kept = np.flatnonzero(written[low:high] > copy) + low
            found = list(sums.pieces(low, high, copy))
            assert [start + row for start, rows_, _ in found for row in rows_.tolist()] == kept.tolist()
            ends = [np.diff(ends, prepend=0) for _, _, ends in found]
            assert np.concatenate([np.zeros(0, int), *ends]).tolist() == sizes[kept].tolist()
