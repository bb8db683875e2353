# SPDX-License-Identifier: Apache-2.0
"""The GPU engine reads from JSON Lines what the CPU engine reads: the same documents, rejected records, lines and
marks, however the file is cut. The host takes what is unusual."""

import gzip
import sys

import pytest

from curation.reading import probe
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from tests.gpu.stand_ins import install
from tests.gpu.test_reading import assert_same, joined, read
from tests.reading.test_jsonl import BAD, GOOD

import cpu_fallback  # isort: skip

BATCH_BYTES = 1 << 20
MIXED = [*BAD[:9], b"", b" \t", *GOOD, b"", b"", *BAD[9:], b'{"text": "last"}']


@pytest.fixture
def gpu_io(monkeypatch):
    """Its `on_device` has the bytes of each block that the device parsed."""
    module = install(monkeypatch)("io")
    settings = module.parse_block.__globals__
    module.on_device = []
    find = settings["_find"]

    def noted(data, file):
        module.on_device.append(data.size)
        return find(data, file)

    monkeypatch.setitem(settings, "_find", noted)
    monkeypatch.setitem(settings, "MIN_BYTES", 1)
    return module


def marks(engine, path, **options):
    return [mark for *_, found in read(engine, path, **options) for mark in found]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("batch_bytes", [300, BATCH_BYTES])
@pytest.mark.parametrize("slice_bytes", [700, BATCH_BYTES])
def test_documents_and_rejected_records(gpu_io, tmp_path, end, batch_bytes, slice_bytes):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + end.join(MIXED))
    batches = assert_same(gpu_io, path, batch_bytes=batch_bytes, slice_bytes=slice_bytes)
    assert len([entry for _, rejected, *_ in batches for entry in rejected]) > 20
    assert sum(gpu_io.on_device) > 1000
    cut = {"batch_bytes": batch_bytes, "slice_bytes": slice_bytes}
    assert marks(gpu_io, path, **cut) == marks(cpu_fallback, path, **cut)


@pytest.mark.parametrize("options", [{"max_document_bytes": 40}, {"text_column": "other"}, {"id_column": "text"}])
def test_settings_of_an_input(gpu_io, tmp_path, options):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"other": "b", "text": "a", "id": "x"}\n{"text": "' + b"a" * 40 + b'"}\n{"other": "c"}\n')
    assert_same(gpu_io, path, **options)
    assert gpu_io.on_device


@pytest.mark.parametrize("options", [{"columns": ["other"]}, {"text_column": "a.b"}, {"id_column": "a.b"}])
def test_other_columns_and_paths_are_for_the_host(gpu_io, tmp_path, options):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"other": "b", "text": "a", "a": {"b": "c"}}\n' * 5)
    assert_same(gpu_io, path, **options)
    assert not gpu_io.on_device


def test_damaged_and_small_files(gpu_io, tmp_path, monkeypatch):
    """A slice of a large file between small ones, which are read together, and a damaged one."""
    monkeypatch.setattr(gpu_io.lines, "SMALL_FILE_BYTES", 500)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "small"}\n\n{"text": 1}\n')
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "also small"}')
    (tmp_path / "c.jsonl").write_bytes(b"\n".join(MIXED))
    (tmp_path / "d.jsonl").write_bytes(b'\n{"text": "small again"}\n')
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(b'{"text": "compressed"}\n' * 3000)[:60])
    batches = assert_same(gpu_io, tmp_path)
    assert marks(gpu_io, tmp_path) == marks(cpu_fallback, tmp_path)
    assert len({entry.file_index for _, rejected, *_ in batches for entry in rejected}) >= 2
    assert gpu_io.on_device


def test_a_batch_reserves_memory_until_it_is_done(gpu_io, tmp_path):
    memory = sys.modules["gpu_pipeline.memory.device"].memory()
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n' * 50)
    (file,) = (probe(file) for file in find_files([Input(path=str(tmp_path / "a.jsonl"))]))
    (piece,) = plan_slices([file], BATCH_BYTES)
    used = [memory.used for _ in gpu_io.read_slice(piece, 300)]
    assert len(used) > 1 and min(used) > 0 and memory.used == 0


def test_few_bytes_are_for_the_host(gpu_io, tmp_path, monkeypatch):
    monkeypatch.setitem(gpu_io.parse_block.__globals__, "MIN_BYTES", 1 << 20)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n')
    assert_same(gpu_io, tmp_path / "a.jsonl")
    assert not gpu_io.on_device


def test_a_full_device_leaves_the_lines_to_the_host(gpu_io, tmp_path, monkeypatch, caplog):
    def fail(data, file):
        raise MemoryError

    monkeypatch.setitem(gpu_io.parse_block.__globals__, "_find", fail)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(MIXED))
    expected = read(cpu_fallback, tmp_path / "a.jsonl", batch_bytes=300)
    assert joined(read(gpu_io, tmp_path / "a.jsonl", batch_bytes=300)) == joined(expected)
    assert caplog.messages == ["device memory is short: JSON Lines are parsed on the host"]


def test_no_lines(gpu_io, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    assert read(gpu_io, tmp_path / "a.jsonl") == read(cpu_fallback, tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl").write_bytes(b"\n \n")
    assert_same(gpu_io, tmp_path / "a.jsonl")
