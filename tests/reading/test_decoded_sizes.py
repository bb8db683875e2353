# SPDX-License-Identifier: Apache-2.0
"""Tables that hold far more text than bytes: rows are decoded and converted a few at a time, and none is lost."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.reading import probe, read_documents
from curation.reading.documents import Documents
from curation.reading.formats.tabular import decoded_row_groups
from curation.reading.inputs import Input
from curation.reading.parquet_pages import MIN_ROWS, bounds_of
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices

BATCH = 1 << 16
LONG = "lorem ipsum " * 300
ROWS = 500
CATEGORY = pa.dictionary(pa.int32(), pa.string())


def repeated(kind: pa.DataType) -> pa.Table:
    return pa.table({"text": pa.array([LONG, None, "short"] * ROWS).cast(kind)})


# Options of the writer, type of the column, most rows that may be decoded at once.
WRITTEN: dict[str, tuple[dict[str, Any], pa.DataType, int]] = {
    "a dictionary": ({}, pa.string(), BATCH // len(LONG)),
    "a dictionary of bytes": ({"compression": "none"}, pa.binary(), BATCH // len(LONG)),
    "old pages": ({"data_page_version": "2.0", "compression": "gzip"}, pa.large_string(), BATCH // len(LONG)),
    "parts of the value before": (
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}, pa.string(), BATCH // len(LONG)
    ),
    "lengths, then values": (
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}}, pa.string(), 100
    ),
    "plain": ({"use_dictionary": False}, pa.string(), 100),
    "categories": ({}, CATEGORY, 3 * ROWS),
}  # fmt: skip


def batches_of(path: Path) -> list[Documents]:
    files = [probe(file) for file in find_files([Input(path=str(path))])]
    return [batch for piece in plan_slices(files, 1 << 30) for batch in read_documents(piece, BATCH)]


def assert_all_read(path: Path) -> None:
    read = batches_of(path)
    assert [text for batch in read for text in batch.table["text"].to_pylist()] == [LONG, "short"] * ROWS
    assert {entry.error for batch in read for entry in batch.rejected} == {"text is null"}
    assert max(batch.table.nbytes for batch in read) < 2 * BATCH


@pytest.mark.parametrize("name", WRITTEN)
def test_rows_are_decoded_by_what_they_have_at_most(name: str, tmp_path: Path):
    options, kind, rows = WRITTEN[name]
    path = tmp_path / "a.parquet"
    pq.write_table(repeated(kind), path, **options)
    opened = pq.ParquetFile(path)
    assert MIN_ROWS <= bounds_of(str(path), opened, [0], ["text"]).rows_from(0, BATCH) <= max(rows, MIN_ROWS)
    assert bounds_of("", opened, [0], ["text"]).rows_from(0, BATCH) == MIN_ROWS
    assert_all_read(path)


def test_a_group_that_is_larger_once_decoded_tells_the_gpu_engine(tmp_path: Path):
    pq.write_table(repeated(pa.string()), tmp_path / "a.parquet")
    [file] = [probe(file) for file in find_files([Input(path=str(tmp_path / "a.parquet"))])]
    [piece] = plan_slices([file], 1 << 30)
    assert decoded_row_groups(piece.ranges[0], 1 << 30) == [pq.read_metadata(file.path).row_group(0).total_byte_size]
    [most] = decoded_row_groups(piece.ranges[0], BATCH)
    assert most >= 3 * ROWS * len(LONG) > 50 * BATCH


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_batches_of_arrow_are_cut(codec: str | None, tmp_path: Path):
    for name, kind in {"strings": pa.string(), "categories": CATEGORY}.items():
        table = repeated(kind)
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", table.schema, options=options) as writer:
            writer.write_table(table)
        assert_all_read(tmp_path / f"{name}.arrow")


def test_damaged_headers_of_pages_bound_nothing(tmp_path: Path):
    path = tmp_path / "a.parquet"
    pq.write_table(repeated(pa.string()), path)
    opened, sound = pq.ParquetFile(path), path.read_bytes()
    place = opened.metadata.row_group(0).column(0).dictionary_page_offset
    for damage in (b"\x00", b"\x1c" * 4000, b"\xff" * 40, b"\x18\xff\xff\xff\xff\x7f", b"\x15\x04\x15\x03\x15\x03"):
        path.write_bytes(sound[:place] + damage + sound[place + len(damage) :])
        assert bounds_of(str(path), opened, [0], ["text"]).rows_from(0, BATCH) == MIN_ROWS
