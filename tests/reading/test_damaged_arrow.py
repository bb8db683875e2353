# SPDX-License-Identifier: Apache-2.0
"""Arrow IPC and Parquet with wrong ends, checksums, lengths or names, and memory that is too short for sound files."""

import bz2
import gzip
import io
import logging
import lzma
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import InputError
from curation.reading.formats import tabular
from tests.reading.test_formats import read

TEXTS = [f"text number {number}" for number in range(30)]
FORGED = "the file is damaged or cut off: the length of a compressed buffer is not that of what is in it"
END = b"\xff\xff\xff\xff\0\0\0\0"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: bytes(pa.compress(data, "zstd", asbytes=True)),
}


def arrow_of(form: str, compression: str | None = None, kind: str | None = None) -> tuple[bytes, list[int]]:
    """Three batches of ten, and where each ends."""
    text = pa.array(TEXTS)
    sink, table = io.BytesIO(), pa.table({"text": text.dictionary_encode() if kind == "dict" else text})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    ends = []
    with (pa.ipc.new_stream if form == "stream" else pa.ipc.new_file)(sink, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=10):
            writer.write_batch(batch)
            ends.append(sink.tell())
    return sink.getvalue(), ends


def errors(found: dict[str, Any]) -> list[str]:
    return [entry.error for entry in found["rejected"]]


@pytest.mark.parametrize("suffix", PACK)
def test_the_file_form_without_its_footer_is_damaged(tmp_path: Path, suffix: str):
    data, ends = arrow_of("file")
    path = tmp_path / f"a.arrow{suffix}"
    path.write_bytes(PACK[suffix](data[: ends[1]]))
    found = read(path)
    assert found["text"] == TEXTS[:20]
    assert errors(found) == ["the file is damaged or cut off: no footer follows its last batch"]


def test_an_end_mark_between_batches_is_no_end_of_the_file_form(tmp_path: Path):
    data, ends = arrow_of("file")
    path = tmp_path / "a.arrow.gz"
    path.write_bytes(gzip.compress(data[: ends[0]] + END + data[ends[0] + 8 :]))
    found = read(path)
    assert found["text"] == TEXTS[:10]
    assert errors(found) == ["the file is damaged or cut off: no footer follows its last batch"]


@pytest.mark.parametrize("suffix", PACK)
def test_a_stream_without_its_end_mark_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str):
    data, ends = arrow_of("stream")
    path = tmp_path / f"a.arrow{suffix}"
    for kept, warnings in ((data, 0), (data[: ends[1]], 1)):
        path.write_bytes(PACK[suffix](kept))
        with caplog.at_level(logging.WARNING):
            found = read(path)
        assert found["text"] == TEXTS[: 20 if warnings else 30] and not found["rejected"]
        assert [f"{path} has no end-of-stream mark" in text for text in caplog.messages] == [True] * warnings


def test_what_follows_the_end_of_a_stream_is_damage(tmp_path: Path):
    data, _ = arrow_of("stream")
    (tmp_path / "a.arrow").write_bytes(data + data)
    found = read(tmp_path / "a.arrow")
    assert found["text"] == TEXTS
    assert errors(found) == [f"the file is damaged or cut off: {len(data)} bytes follow the end of its stream"]


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize(
    ("suffix", "start", "error"),
    [
        (".gz", -8, "it ends inside the compressed data"),
        (".bz2", -6, "it ends inside the compressed data"),
        (".xz", -8, "it ends inside the compressed data"),
    ],
)
def test_the_end_of_compressed_arrow_is_read(tmp_path: Path, form: str, suffix: str, start: int, error: str):
    packed = PACK[suffix](arrow_of(form)[0])
    path = tmp_path / f"a.arrow{suffix}"
    path.write_bytes(packed[:start])
    found = read(path)
    assert found["text"] == TEXTS
    assert len(found["rejected"]) == 1 and errors(found)[0].startswith("the file is damaged or cut off: ")
    assert error in errors(found)[0]


def test_a_wrong_checksum_of_compressed_arrow_costs_its_last_batch(tmp_path: Path):
    table = pa.table({"text": [f"{number} " * 3000 for number in range(3)]})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    packed = bytearray(gzip.compress(sink.getvalue()))
    packed[-8] ^= 1
    (tmp_path / "a.arrow.gz").write_bytes(packed)
    found = read(tmp_path / "a.arrow.gz")
    assert found["text"] == table.column("text").to_pylist()[:2]
    assert errors(found) == ["the file is damaged or cut off: Error -6 Incorrect checksum found"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("field", "length"),
    [("body", 5 * 10**12), ("body", 2**63 - 8), ("body", -8), ("metadata", 2**31 - 8), ("metadata", -8)],
)
@pytest.mark.parametrize("form", ["file", "stream"])
def test_a_length_that_is_not_true_is_damage(tmp_path: Path, form: str, field: str, length: int, suffix: str):
    data, ends = arrow_of(form)
    messages = pa.ipc.MessageReader.open_stream(data[8 if form == "file" else 0 :])
    _, _, batch = (messages.read_next_message() for _ in range(3))
    if field == "body":
        wrong = struct.pack("<q", batch.body.size)
        at, width = data.index(wrong, ends[0]), "<q"
    else:
        at, width = ends[0] + 4, "<i"
    forged = bytearray(data)
    struct.pack_into(width, forged, at, length)
    path = tmp_path / f"a.arrow{suffix}"
    path.write_bytes(PACK[suffix](bytes(forged)))
    found = read(path)
    assert found["text"] == TEXTS[:10]
    assert len(found["rejected"]) == 1 and errors(found)[0].startswith("the file is damaged or cut off: ")


SHORT_OF_MEMORY = """
import resource, sys
import pyarrow as pa
from pathlib import Path
from tests.reading.test_formats import read

pa.set_memory_pool(pa.system_memory_pool())
read(Path(sys.argv[1]))
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 64_000_000,) * 2)
for path in sys.argv[2:]:
    try:
        found = read(Path(path))
        print(len(found["text"]), *(entry.error for entry in found["rejected"]))
    except MemoryError:
        print("MemoryError")
"""


@pytest.mark.slow("a forged length in an Arrow file is damage, and too little memory is not")
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc")
def test_memory_that_is_too_short_is_no_damage_and_a_length_that_is_not_true_no_shortage(tmp_path: Path):
    large = pa.record_batch({"text": ["a b c d " * 128] * 150_000})
    with pa.ipc.new_file(
        tmp_path / "sound.arrow", large.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_batch(large.slice(0, 100))
        writer.write_batch(large)
    paths, expected = [tmp_path / "sound.arrow"], ["MemoryError"]
    for form, codec, kind, kept in (
        ("file", "zstd", None, 20),
        ("stream", "lz4", None, 20),
        ("stream", "zstd", "dict", 0),
    ):
        data, _ = arrow_of(form, codec, kind)
        forged = bytearray(data)
        text = len("".join(TEXTS if kind else TEXTS[20:]))
        struct.pack_into("<q", forged, data.rindex(struct.pack("<q", text)), 10**10)
        for suffix in ("", ".gz"):
            paths.append(tmp_path / f"{form}_{codec}.arrow{suffix}")
            paths[-1].write_bytes(PACK[suffix](bytes(forged)))
            expected.append(f"{kept} {FORGED}")
    (tmp_path / "small.arrow").write_bytes(arrow_of("file")[0])
    command = [sys.executable, "-c", SHORT_OF_MEMORY, tmp_path / "small.arrow", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected


def test_memory_that_runs_out_anywhere_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def too_large(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 306000000 failed")

    (tmp_path / "a.arrow").write_bytes(arrow_of("file")[0])
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    places: list[tuple[str, Any, str]] = [
        ("a.arrow", tabular, "_as_documents"),
        ("a.arrow", pa.ipc, "open_file"),
        ("a.parquet", tabular, "_as_documents"),
        ("a.parquet", pq, "ParquetFile"),
    ]
    for name, owner, function in places:
        with monkeypatch.context() as patched:
            patched.setattr(owner, function, too_large)
            with pytest.raises(MemoryError, match="306000000"):
                read(tmp_path / name)


def test_memory_that_runs_out_behind_damage_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    raised = [pa.ArrowInvalid("damaged"), pa.ArrowMemoryError("malloc of size 306000000 failed")]

    class Failing(pq.ParquetFile):
        def iter_batches(self, *_: Any, **__: Any) -> Any:
            raise raised.pop(0)

    monkeypatch.setattr(pq, "ParquetFile", Failing)
    with pytest.raises(MemoryError, match="306000000"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file.arrow", "is not readable Arrow IPC"),
        ("stream.arrow", "is not readable Arrow IPC"),
        ("stream.arrow.gz", "is not readable Arrow IPC"),
        ("a.parquet", "is not a readable Parquet file"),
    ],
)
def test_column_names_that_are_not_utf8_are_one_message(tmp_path: Path, name: str, message: str):
    table, sink = pa.table({"text": TEXTS, "named": TEXTS}), io.BytesIO()
    if name == "a.parquet":
        pq.write_table(table, sink, store_schema=False)
    else:
        with (pa.ipc.new_file if name == "file.arrow" else pa.ipc.new_stream)(sink, table.schema) as writer:
            writer.write_table(table)
    data = sink.getvalue().replace(b"named", b"n\xffmed")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match=message):
        read(tmp_path / name)


def test_a_row_count_of_parquet_that_is_not_true_is_damage(tmp_path: Path):
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(300)]}), sink)
    data = sink.getvalue()
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    at = footer.rindex(b"\xd8\x04")  # 300 as Thrift writes it; the last one is that of the row group
    forged = footer[:at] + b"\xfe\xff\xff\xff\x0f" + footer[at + 2 :]
    path = tmp_path / "a.parquet"
    path.write_bytes(data[: -8 - len(footer)] + forged + struct.pack("<I", len(forged)) + b"PAR1")
    found = read(path)
    assert len(found["text"]) == 300
    assert errors(found) == ["the file is damaged or cut off: its footer counts 2147483647 rows, but it has 300"]
