# SPDX-License-Identifier: Apache-2.0
"""`removed/` costs one look-up of ids per slice, however many files it has."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.base.engine import load_engine
from curation.base.errors import IntegrityError
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.record import kept_ids, removed
from curation.record import partitions as intermediate
from curation.record.kept_ids import store_ids
from curation.record.ledger import SliceRecord, SliceTotals, add_up
from curation.record.locations import LocationTable
from curation.record.partitions import REMOVED_SCHEMA, IpcFile, Numbering, Partitions
from tests.runs import removed_rows

IN_SLICE = 5


def write_segment(folder: Path, slices: int) -> tuple[Partitions, Numbering]:
    """Slices of five documents; every second one has an id of its own."""
    folder.mkdir()
    for number in range(slices):
        ids = [None if k % 2 else f"é{number}-{k}" for k in range(IN_SLICE)]
        with IpcFile(folder / f"{number:06d}.arrow") as table:
            table.write(pa.table({"row": np.arange(IN_SLICE), "id": pa.array(ids, pa.large_string())}))
        with IpcFile(folder / f"{number:06d}.removed.arrow", REMOVED_SCHEMA):
            pass
    partitions = Partitions(folder, [IN_SLICE] * slices)
    file = SourceFile(path="made.jsonl", source="made", format="jsonl", bytes=1, modified_ns=1)
    text = FileRange(file=file, start=0, stop=1)
    return partitions, Numbering(
        SliceTable.of(Slice(index=k, ranges=[text]) for k in range(slices)), partitions.starts[:-1]
    )


def id_of(row: int) -> str:
    number, place = divmod(row, IN_SLICE)
    return f"made/{row}" if place % 2 else f"é{number}-{place}"


def two_stages(partitions: Partitions) -> list[removed.RemovedRows]:
    """The second and fourth document of each slice, removed by two stages; one document has no partner."""
    rows = np.arange(len(partitions), dtype=np.int32)
    found = []
    for stage, place in enumerate((1, 3)):
        gone = rows[rows % IN_SLICE == place]
        kept = (gone * 7919) % len(partitions)
        kept[-1] = -1
        found.append(removed.RemovedRows(partitions, stage, f"reason {stage}", gone, kept, np.ones(len(gone))))
    return found


@pytest.mark.parametrize("slices", [10, 40])
def test_slices_are_read_a_few_times_however_many_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slices: int
):
    partitions, numbering = write_segment(tmp_path / "segment-0", slices)
    opened: Counter[str] = Counter()

    def count(path: Path) -> pa.Table:
        opened[path.name] += 1
        return intermediate.open_partition(path)

    monkeypatch.setattr(removed, "open_partition", count)
    monkeypatch.setattr(kept_ids, "open_partition", count)
    monkeypatch.setattr(kept_ids, "TASK_ROWS", 20)
    monkeypatch.setattr(removed, "MAX_REMOVED_ROWS", 7)
    duplicates = two_stages(partitions)
    planned = removed.plan_kept_ids(tmp_path / "kept-ids", duplicates)
    ids = planned[0][0]
    assert len(ids) == -(-len(ids.rows) // 20) and planned[1][0] is ids
    for task in reversed(range(len(ids))):
        removed.look_up_ids(ids, task, planned[0][1], numbering)
    assert max(opened.values()) == 1
    records = [SliceRecord(rows=IN_SLICE, lines=IN_SLICE)] * slices
    totals = SliceTotals(numbering.slices, [add_up(numbering.slices, range(slices), records)], [])
    places = LocationTable.of(partitions.folder, numbering.slices, totals)
    store = removed.RemovedStore(["one", "two"], numbering, [partitions.folder], duplicates, places)
    files = removed.plan_removed(np.full(slices, 2))
    for file in reversed(files):
        store.write(tmp_path / "removed", file, [ids, ids], load_engine("cpu"))
    assert len(files) == -(-2 * slices // 7)
    assert max(opened.values()) <= 3 and sum(opened.values()) <= 4.5 * slices  # a slice may be in two files
    expected = sorted(
        (row, id_of(row), "made", ("one", "two")[entry.stage], entry.reason, 1.0, None if kept < 0 else id_of(kept))
        for entry in duplicates
        for row, kept in zip(entry.row.tolist(), entry.kept_row.tolist(), strict=True)
    )
    assert removed_rows(tmp_path) == expected


@given(st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=8), st.booleans())
def test_files_of_removed_rows_follow_from_counts_and_sizes(made: list[list[int]], with_text: bool):
    """They are those of a writer that takes one slice after the other."""
    sizes = [np.array(slice_sizes, np.int64) for slice_sizes in made]
    expected, pending = [], 0
    for size in (size for slice_sizes in made for size in slice_sizes):
        if not expected or (pending + size > 12 and with_text) or expected[-1] == 4:
            expected.append(0)
            pending = 0
        expected[-1] += 1
        pending += size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removed, "MAX_REMOVED_ROWS", 4)
        patch.setattr(removed, "FILE_BYTES", 12)
        files = removed.plan_removed(np.array([len(one) for one in made]), iter(sizes) if with_text else None)
    assert [file.rows for file in files] == (expected or [0])
    ends = np.cumsum([len(one) for one in made])
    firsts = [int(ends[file.first_partition]) - len(made[file.first_partition]) + file.skip for file in files]
    assert firsts == [0, *np.cumsum(expected[:-1]).tolist()]
    assert all(file.skip < len(made[file.first_partition]) for file in files if file.rows)


def test_stored_ids_of_a_short_file_are_refused(tmp_path: Path):
    rows = np.array([2, 5, 9], np.int32)
    chunks = [pa.array(["no", "a", "é"], pa.large_string())[1:], pa.array(["", "x"], pa.large_string())[1:]]
    stored = store_ids(tmp_path / "ids", rows, chunks)
    assert stored.take(np.array([9, 2, 9, 5])).to_pylist() == ["x", "a", "x", "é"]
    (tmp_path / "ids").write_bytes(b"a")
    with pytest.raises(IntegrityError, match="too short"):
        stored.take(np.array([5]))
