# SPDX-License-Identifier: Apache-2.0
"""The GPU engine reads what the CPU engine reads: row groups decoded on the device where nothing is unusual in them,
everything else by the host's readers. cuDF's reader is pyarrow's here (`stand_ins`)."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cpu_fallback
from curation.base.contract import ROW
from curation.reading import probe
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from tests.gpu.stand_ins import install

GROUP = 4  # rows
TEXTS = [f"document {row} é 漢字" for row in range(22)]


@pytest.fixture
def gpu_io(monkeypatch):
    return install(monkeypatch)("io")


@pytest.fixture
def decoded(gpu_io, monkeypatch):
    """What the device read: per call the row groups of each file."""
    groups = []
    read = gpu_io.cudf.read_parquet

    def noted(paths, **options):
        groups.append(options["row_groups"])
        return read(paths, **options)

    monkeypatch.setattr(gpu_io.cudf, "read_parquet", noted)
    return groups


def write(path: Path, texts=TEXTS, **columns) -> Path:
    table = pa.table({"text": texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string()), **columns})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=GROUP)
    return path


def read(engine, path: Path, slice_bytes=1 << 30, batch_bytes=1 << 20, **options):
    """Per batch: the rows as a table, rejected records, rows, lines, repaired."""
    files = [probe(file) for file in find_files([Input(path=str(path), **options)])]
    return [
        (engine.to_arrow(batch.frame), *batch[1:])
        for piece in plan_slices(files, slice_bytes)
        for batch in engine.read_slice(piece, batch_bytes)
    ]


def joined(batches):
    """What must not depend on how rows are cut into batches."""
    table = pa.concat_tables([table for table, *_ in batches])
    return table.schema, table.to_pylist(), [entry for _, rejected, *_ in batches for entry in rejected]


def assert_same(gpu_io, path: Path, **options):
    expected, actual = read(cpu_fallback, path, **options), read(gpu_io, path, **options)
    assert joined(actual) == joined(expected)
    assert sum(batch[2] for batch in actual) == sum(batch[2] for batch in expected)
    assert sum(batch[3] for batch in actual) == sum(batch[3] for batch in expected)
    return actual


def invalid_utf8() -> pa.Array:
    texts = [text.encode() for text in TEXTS]
    texts[9] = b"a \xff b"
    return pa.array(texts, pa.binary()).view(pa.string())


@pytest.mark.parametrize("batch_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("slice_bytes", [1, 1 << 20])
def test_plain_row_groups_are_decoded_on_the_device(gpu_io, decoded, tmp_path, monkeypatch, slice_bytes, batch_bytes):
    path = write(tmp_path / "a.parquet", id=[f"id-{row}" if row % 3 else None for row in range(22)], more=TEXTS[::-1])
    monkeypatch.setattr(gpu_io, "from_arrow", None)  # no transfer
    monkeypatch.setattr(gpu_io, "MAX_GROUPS_SHARE", 1 << 20)
    batches = assert_same(gpu_io, path, columns=["more"], slice_bytes=slice_bytes, batch_bytes=batch_bytes)
    assert batches[0][0].column_names == [ROW, "id", "text", "more"]
    assert [group for run in decoded for groups in run for group in groups] == [0, 1, 2, 3, 4, 5]
    assert (len(decoded) == 1) == (slice_bytes == batch_bytes == 1 << 20)


def test_without_ids(gpu_io, decoded, tmp_path):
    assert_same(gpu_io, write(tmp_path / "a.parquet"))
    assert decoded


@pytest.mark.parametrize(
    ("texts", "options", "rejected"),
    [
        ([*TEXTS[:9], None, *TEXTS[10:]], {}, 1),
        (invalid_utf8(), {}, 1),
        ([*TEXTS[:9], "x" * 60, *TEXTS[10:]], {"max_document_bytes": 50}, 1),
        ([*TEXTS[:9], "x" * 50, *TEXTS[10:]], {"max_document_bytes": 50}, 0),
    ],
    ids=["null", "malformed", "too large", "just fits"],
)
@pytest.mark.parametrize("batch_bytes", [300, 1 << 20])
def test_only_what_is_unusual_goes_to_the_host(gpu_io, decoded, tmp_path, texts, options, rejected, batch_bytes):
    batches = assert_same(gpu_io, write(tmp_path / "a.parquet", texts), batch_bytes=batch_bytes, **options)
    assert sum(len(found) for _, found, *_ in batches) == rejected
    assert decoded


def test_no_rows(gpu_io, tmp_path):
    assert read(gpu_io, write(tmp_path / "a.parquet", [])) == read(cpu_fallback, tmp_path / "a.parquet") == []


def test_malformed_ids_go_to_the_host(gpu_io, decoded, tmp_path):
    batches = assert_same(gpu_io, write(tmp_path / "a.parquet", id=invalid_utf8()))
    assert [entry.error for _, found, *_ in batches for entry in found] == ["id is not valid UTF-8"]


def test_what_cudf_does_not_take_as_it_stands_is_read_on_the_host(gpu_io, decoded, tmp_path):
    numbered = write(tmp_path / "a.parquet", id=list(range(22)))
    coded = write(tmp_path / "b.parquet", pa.array(TEXTS).dictionary_encode())
    pq.write_table(pa.table({"text": pa.array(TEXTS).dictionary_encode()}), coded)
    for path in (numbered, coded):
        assert_same(gpu_io, path)
    assert decoded == []


@pytest.mark.parametrize("folder", ["text=1", "a[b]", "~", "a::b"])
def test_paths_that_cudf_takes_for_more_are_read_on_the_host(gpu_io, decoded, tmp_path, folder):
    write(tmp_path / folder / "c.parquet")
    assert_same(gpu_io, tmp_path / folder)
    assert decoded == []


@pytest.mark.parametrize("batch_bytes", [600, 1400, 1 << 20])
@pytest.mark.parametrize("null_in", ["", "ad"])
def test_small_files_are_read_together(gpu_io, decoded, tmp_path, batch_bytes, null_in):
    for name in "abcd":
        texts = [] if name == "b" else [*TEXTS[:20], "21", None if name in null_in else "22"]
        write(tmp_path / "small" / f"{name}.parquet", texts)
    batches = assert_same(gpu_io, tmp_path / "small", batch_bytes=batch_bytes)
    groups = [group for call in decoded for groups in call for group in groups]
    assert groups == [0, 1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
    assert (len(decoded) == 1) == (batch_bytes == 1 << 20) and max(map(len, decoded)) > 1
    assert [entry.file_index for _, rejected, *_ in batches for entry in rejected] == [0, 3][: len(null_in)]


def test_small_files_of_several_kinds_are_read_on_the_host(gpu_io, decoded, tmp_path):
    write(tmp_path / "small" / "a.parquet")
    write(tmp_path / "small" / "b.parquet", id=TEXTS)
    assert_same(gpu_io, tmp_path / "small")
    assert decoded == []


@pytest.mark.parametrize("error", [RuntimeError("no such codec"), MemoryError("full"), IndexError("out of range")])
def test_what_cudf_cannot_read_is_read_on_the_host(gpu_io, tmp_path, monkeypatch, caplog, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(gpu_io.cudf, "read_parquet", fail)
    assert_same(gpu_io, write(tmp_path / "a.parquet"))
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        f"row groups from 0 on are read on the host: {error}"
    ]


def test_a_row_group_that_is_too_large_is_read_on_the_host(gpu_io, decoded, tmp_path):
    assert len(assert_same(gpu_io, write(tmp_path / "a.parquet"), batch_bytes=20)) > 6
    assert decoded == []


def test_other_formats_come_over_in_one_transfer_per_batch(gpu_io, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"text": "{text}"}}\n' for text in TEXTS) + "no record\n", "utf-8")
    assert len(assert_same(gpu_io, path)) == 1
