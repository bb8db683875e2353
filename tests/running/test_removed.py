# SPDX-License-Identifier: Apache-2.0
"""`removed/` costs one look-up of ids per slice, however many files it has."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.errors import IntegrityError
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.running import intermediate, kept_ids, removed
from curation.running.intermediate import REMOVED_SCHEMA, Numbering, Partitions, TableFile
from curation.running.kept_ids import ids_of, store_ids
from curation.running.ledger import SliceRecord, SliceTotals
from curation.running.places import Places
from tests.runs import removed_rows

IN_SLICE = 5


def write_segment(folder: Path, slices: int) -> tuple[Partitions, Numbering]:
    """Slices of five documents; every second one has an id of its own."""
    folder.mkdir()
    for number in range(slices):
        ids = [None if k % 2 else f"é{number}-{k}" for k in range(IN_SLICE)]
        with TableFile(folder / f"{number:06d}.arrow") as table:
            table.write(pa.table({"row": np.arange(IN_SLICE), "id": pa.array(ids, pa.large_string())}))
        with TableFile(folder / f"{number:06d}.removed.arrow", REMOVED_SCHEMA):
            pass
    partitions = Partitions(folder, [IN_SLICE] * slices)
    file = SourceFile(path="made.jsonl", source="made", format="jsonl", bytes=1, modified_ns=1)
    text = FileRange(file=file, start=0, stop=1)
    return partitions, Numbering([Slice(index=k, ranges=[text]) for k in range(slices)], partitions.starts[:-1])


def id_of(row: int) -> str:
    number, place = divmod(row, IN_SLICE)
    return f"made/{row}" if place % 2 else f"é{number}-{place}"


def two_stages(partitions: Partitions) -> list[removed.RemovedRows]:
    """The second and fourth document of each slice, removed by two stages; one document has no partner."""
    rows = np.arange(len(partitions), dtype=np.int32)
    found = []
    for stage, place in enumerate((1, 3)):
        gone = rows[rows % IN_SLICE == place]
        kept = (gone * 7919) % np.maximum(gone, 1)
        kept[-1] = -1
        found.append(removed.RemovedRows(partitions, stage, f"reason {stage}", gone, kept, np.ones(len(gone))))
    return found


@pytest.mark.parametrize("slices", [40, 160])
def test_slices_are_read_twice_however_many_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slices: int
):
    partitions, numbering = write_segment(tmp_path / "segment-0", slices)
    opened: Counter[str] = Counter()

    def count(path: Path) -> pa.Table:
        opened[path.name] += 1
        return intermediate.open_partition(path)

    monkeypatch.setattr(removed, "open_partition", count)
    monkeypatch.setattr(kept_ids, "open_partition", count)
    monkeypatch.setattr(removed, "MAX_REMOVED_ROWS", 7)
    duplicates = two_stages(partitions)
    records = [SliceRecord(rows=IN_SLICE, lines=IN_SLICE)] * slices
    places = Places(partitions.folder, numbering.slices, SliceTotals(numbering.slices, records, []))
    folders = [partitions.folder]
    digests = removed.write_removed(tmp_path / "removed", ["one", "two"], numbering, folders, duplicates, places)
    assert len(digests) == -(-2 * slices // 7)
    assert max(opened.values()) == 2 and sum(opened.values()) <= 3 * slices
    expected = sorted(
        (row, id_of(row), "made", ("one", "two")[entry.stage], entry.reason, 1.0, None if kept < 0 else id_of(kept))
        for entry in duplicates
        for row, kept in zip(entry.row.tolist(), entry.kept_row.tolist(), strict=True)
    )
    assert removed_rows(tmp_path) == expected
    assert not (tmp_path / "kept-ids").exists()


def test_ids_are_returned_in_the_order_of_the_rows(tmp_path: Path):
    partitions, numbering = write_segment(tmp_path / "segment-0", 3)
    rows = np.array([14, 0, 7, 0, 3])
    assert ids_of(partitions, rows, numbering).to_pylist() == [id_of(row) for row in rows.tolist()]
    assert ids_of(partitions, rows[:0], numbering).to_pylist() == []


def test_stored_ids_of_a_short_file_are_refused(tmp_path: Path):
    rows = np.array([2, 5, 9], np.int32)
    chunks = [pa.array(["no", "a", "é"], pa.large_string())[1:], pa.array(["", "x"], pa.large_string())[1:]]
    stored = store_ids(tmp_path / "ids", rows, chunks)
    assert stored.take(np.array([9, 2, 9, 5])).to_pylist() == ["x", "a", "x", "é"]
    (tmp_path / "ids").write_bytes(b"a")
    with pytest.raises(IntegrityError, match="too short"):
        stored.take(np.array([5]))
