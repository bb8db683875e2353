# SPDX-License-Identifier: Apache-2.0
"""The files of `_work/`: what one segment leaves for the next, and views over all of them.

A part is two uncompressed Arrow IPC files. Its documents are in the batches they were read in and are fetched by
position, through a memory map. Its keys are in batches of KEY_ROWS or more; every column is read on its own, by its
places in the file, since opening the file took most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import ID, ROW, TEXT, position_type
from curation.errors import IntegrityError
from curation.files import begin_sync, piece_path
from curation.reading.source_files import Slice
from curation.stages.outcome import Corpus

KEY_ROWS = 1 << 16  # 11 MB with 21 bands
REMOVED_SCHEMA = pa.schema(
    [
        (ROW, pa.int64()),
        (ID, pa.large_string()),
        ("stage", pa.int32()),
        ("reason", pa.large_string()),
        ("value", pa.float64()),
    ]
)


def open_part(path: Path) -> pa.Table:
    """All batches of a part as one table over the mapped file."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


class TableFile:
    """An Arrow IPC file that takes its schema from the first table, where none is given."""

    def __init__(self, path: Path, schema: pa.Schema | None = None) -> None:
        self.rows = 0
        self.sink = pa.OSFile(str(path), "wb")
        self.writer = pa.ipc.new_file(self.sink, schema) if schema else None

    def write(self, table: pa.Table) -> None:
        if self.writer is None:
            self.writer = pa.ipc.new_file(self.sink, table.schema)
        self.writer.write_table(table.combine_chunks())
        begin_sync(self.sink.fileno())
        self.rows += len(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()
        self.sink.close()


class PartWriter:
    """Writes a part: documents as they come, and the keys of the same rows, of which some wait for more."""

    def __init__(self, documents: Path, keys: Path) -> None:
        self.documents, self.keys = TableFile(documents), TableFile(keys)
        self.waiting: list[pa.Table] = []

    def write(self, documents: pa.Table, keys: Mapping[str, np.ndarray]) -> None:
        self.documents.write(documents)
        self.waiting.append(pa.table({name: pa.array(values) for name, values in keys.items()}))
        if sum(map(len, self.waiting)) >= KEY_ROWS:
            self._write_keys()

    def _write_keys(self) -> None:
        """Tables without rows have keys of any type, and nobody reads them."""
        filled = [table for table in self.waiting if len(table)]
        if filled or self.keys.writer is None:
            self.keys.write(pa.concat_tables(filled or self.waiting[:1]))
        self.waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.documents, self.keys:
            if self.waiting and kind is None:
                self._write_keys()


class Span(NamedTuple):
    """Rows `start` to `stop` of the part of slice `piece`."""

    piece: int
    start: int
    stop: int


class KeyPlaces(NamedTuple):
    """Where the keys of a part stand in its file."""

    schema: pa.Schema
    ends: np.ndarray  # int64: rows up to the end of each batch
    offsets: np.ndarray  # int64: of each batch's columns, in bytes

    def column(self, name: str) -> tuple[np.dtype, list[tuple[int, int, int]]]:
        """The type of a column, and of each batch the first row, the row after the last, and where its keys begin."""
        number = self.schema.get_field_index(name)
        starts = [0, *self.ends.tolist()]
        batches = zip(starts, starts[1:], self.offsets[:, number].tolist(), strict=False)
        return np.dtype(self.schema.field(number).type.to_pandas_dtype()), list(batches)


class Numbering(NamedTuple):
    """How documents of slices are numbered: `doc` is the row in its slice plus the slice's offset (int64)."""

    slices: Sequence[Slice]
    offsets: np.ndarray


class Parts:
    """All parts of one segment as one sequence of rows, in the order of the slices."""

    def __init__(self, folder: Path, counts: Sequence[int]) -> None:
        self.folder = folder
        self.starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self._places: dict[int, KeyPlaces] = {}

    def __reduce__(self) -> tuple[type[Parts], tuple[Path, list[int]]]:
        return Parts, (self.folder, np.diff(self.starts).tolist())

    def __len__(self) -> int:
        return int(self.starts[-1])

    def path(self, piece: int) -> Path:
        """The file of a part's documents."""
        return piece_path(self.folder, piece, ".arrow")

    def keys_path(self, piece: int) -> Path:
        return piece_path(self.folder, piece, ".keys.arrow")

    def key_places(self, piece: int) -> KeyPlaces:
        if piece not in self._places:
            self._places[piece] = _find_keys(self.keys_path(piece))
        return self._places[piece]

    def byte_lengths(self) -> np.ndarray:
        """Bytes of the text of each row, int64."""
        return self.corpus(0, np.arange(len(self), dtype=position_type(len(self)))).byte_lengths()

    def corpus(
        self, stage: int, rows: np.ndarray, sources: Sequence[tuple[str, int, int]] = (), workers: int = 1
    ) -> Corpus:
        """The rows that are left, as the corpus stage number `stage` sees them."""
        return Corpus(self, rows, stage, self.scratch(stage), sources, workers)

    def scratch(self, stage: int) -> Path:
        """The folder of what the phases of a corpus stage leave."""
        return self.folder / f"stage-{stage}"

    # As `stages.outcome.Storage`

    def key_names(self, piece: int) -> Sequence[str]:
        names: list[str] = self.key_places(piece).schema.names
        return names

    def key_type(self, piece: int, name: str) -> np.dtype:
        return self.key_places(piece).column(name)[0]

    def read_keys(self, piece: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        dtype, batches = self.key_places(piece).column(name)
        low = int(self.starts[piece])
        with open(self.keys_path(piece), "rb", buffering=0) as file:
            for start, stop, offset in batches:
                first, last = _bounds(rows, low + start, low + stop)
                if first < last:
                    _read_keys(file, offset - (low + start) * dtype.itemsize, rows[first:last], out[first:last])

    def read_texts(self, piece: int, rows: np.ndarray) -> Iterator[Callable[[], pa.LargeStringArray]]:
        """A part is mapped while it is read and no longer, so that its pages do not count as memory of the run."""
        low = int(self.starts[piece])
        for batch in open_part(self.path(piece)).to_batches():
            first, last = _bounds(rows, low, low + len(batch))
            if first < last:
                yield partial(batch.column(TEXT).take, pa.array(rows[first:last] - rows.dtype.type(low)))
            low += len(batch)

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(slice, row in its part) of rows."""
        piece = np.searchsorted(self.starts, rows, side="right") - 1
        return piece, rows - self.starts[piece]

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """The pieces of parts that make up rows `start` to `stop`."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        for piece in range(max(first, 0), len(self.starts) - 1):
            low, high = int(self.starts[piece]), int(self.starts[piece + 1])
            if low >= stop:
                return
            if low < high:
                yield Span(piece, max(start, low) - low, min(stop, high) - low)


def _bounds(rows: np.ndarray, low: int, high: int) -> list[int]:
    """Where the rows from `low` and from `high` on begin in `rows`."""
    found: list[int] = np.searchsorted(rows, np.array([low, high], rows.dtype)).tolist()
    return found


def _find_keys(path: Path) -> KeyPlaces:
    with pa.memory_map(str(path)) as source:
        base = source.read_buffer(1).address
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        offsets = [[column.buffers()[1].address - base for column in batch.columns] for batch in batches]
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
        return KeyPlaces(reader.schema, ends, np.array(offsets, np.int64).reshape(len(batches), -1))


def _read_keys(file: FileIO, offset: int, rows: np.ndarray, out: np.ndarray) -> None:
    """Into `out` the keys of `rows`, which are ascending; the keys from row 0 on would begin at `offset`."""
    first, last = int(rows[0]), int(rows[-1])
    keys = out if len(rows) == last - first + 1 else np.empty(last - first + 1, out.dtype)
    file.seek(offset + first * out.itemsize)
    if file.readinto(keys.view(np.uint8)) < keys.nbytes:
        raise IntegrityError(f"{file.name} ends too early: something else has written to it. Begin anew with --force")
    if keys is not out:
        np.take(keys, rows - rows[0], out=out, mode="clip")  # any other mode makes a copy first


def with_ids(table: pa.Table, source: str, base: int) -> pa.Table:
    """`doc`, `id`, `source` in place of `row` and the record's own id; `base` is the first `doc` of the slice."""
    doc = pc.add(table.column(ROW), pa.scalar(base, pa.int64()))
    made = pc.binary_join_element_wise(
        pa.scalar(f"{source}/", pa.large_string()), doc.cast(pa.large_string()), pa.scalar("", pa.large_string())
    )
    columns = {
        "doc": doc,
        ID: pc.coalesce(table.column(ID), made),
        "source": pa.repeat(pa.scalar(source, pa.string()), len(table)),
    }
    rest = {name: table.column(name) for name in table.column_names if name not in (ROW, ID)}
    return pa.table({**columns, **rest})
