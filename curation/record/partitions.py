# SPDX-License-Identifier: Apache-2.0
"""The intermediate tables in `_work/`: partitions that one segment writes and the next reads, and views over them.

A partition is two uncompressed Arrow IPC files, one of documents and one of keys. Documents keep the batches of the
reader and are fetched by position through a memory map. Keys are in batches of MIN_KEY_ROWS rows or more (the last is
smaller). Each key column is read alone, at its offsets in the file. This avoids opening the Arrow file, which took most
of the time.
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

from curation.base.contract import ID, ROW
from curation.base.errors import IntegrityError
from curation.base.system.damage import reading
from curation.base.system.files import begin_sync, numbered_path
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import Slice
from curation.reading.split_settings import ids_of_records
from curation.record.documents import in_schema
from curation.stages.outcome import Corpus

MIN_KEY_ROWS = 1 << 16  # 11 MB with 21 bands
MAX_PENDING = 16  # tables of keys. Freed memory between many small tables stays unused: 300 MB for 1,200 texts of 1 MB
KEPT_LAYOUTS = 4096
REMOVED_SCHEMA = pa.schema(
    [
        (ROW, pa.int64()),
        (ID, pa.large_string()),
        ("stage", pa.int32()),
        ("reason", pa.large_string()),
        ("value", pa.float64()),
    ]
)


def open_partition(path: Path) -> pa.Table:
    """Return the batches of an Arrow IPC file as one table over a memory map. Raises IntegrityError for a damaged
    file."""
    with reading(path), pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
        table.validate()
        return table


def rows_at(path: Path, rows: np.ndarray, schema: pa.Schema) -> pa.Table:
    """Return the rows of an Arrow IPC file at the positions `rows` (integers, in any order), without reading other
    rows.

    The table has the columns of `schema`; columns that the file lacks are null.
    """
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    tables, low = [schema.empty_table()], 0
    for batch in open_partition(path).to_batches():
        first, last = _bounds(ascending, low, low + len(batch))
        if first < last:
            stored = batch.select([name for name in schema.names if name in batch.schema.names])
            taken = stored.take(pa.array(ascending[first:last] - low))
            tables.append(in_schema(pa.Table.from_batches([taken]), schema))
        low += len(batch)
    return in_order(tables, order)


def in_order(tables: Sequence[pa.Table], places: np.ndarray) -> pa.Table:
    """Return the rows of all tables as one table, with row number k at `places[k]`."""
    inverse = np.empty(len(places), np.int64)
    inverse[places] = np.arange(len(places))
    return pa.concat_tables(tables).combine_chunks().take(pa.array(inverse))


class IpcFile:
    """A writer of an Arrow IPC file. Without a schema, it takes the schema of the first table."""

    def __init__(self, path: Path, schema: pa.Schema | None = None) -> None:
        self.rows = 0
        self.sink = pa.OSFile(str(path), "wb")
        self.writer = pa.ipc.new_file(self.sink, schema) if schema else None

    def write(self, table: pa.Table) -> None:
        """Append the rows as one batch, and let the system begin to write them to the disk."""
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


class PartitionWriter:
    """A writer of one partition. Documents are written immediately, and keys of the same rows in batches of
    MIN_KEY_ROWS or more.

    documents  path of the Arrow IPC file of the documents
    keys       path of the Arrow IPC file of the keys

    Use it as a context manager. On exit without an error it writes the pending keys.
    """

    def __init__(self, documents: Path, keys: Path) -> None:
        self.documents, self.keys = IpcFile(documents), IpcFile(keys)
        self.pending: list[pa.Table] = []

    def write(self, documents: pa.Table, keys: Mapping[str, np.ndarray]) -> None:
        """Write a batch: a table of n rows, and column name -> array of shape (n,) with its keys."""
        self.documents.write(documents)
        self.pending.append(pa.table({name: pa.array(values) for name, values in keys.items()}))
        if sum(map(len, self.pending)) >= MIN_KEY_ROWS:
            self._write_keys()
        elif len(self.pending) > MAX_PENDING:
            self.pending = [pa.concat_tables(self._nonempty()).combine_chunks()]

    def _write_keys(self) -> None:
        """Write the pending keys, except tables without rows, whose keys may have another type."""
        if any(map(len, self.pending)) or self.keys.writer is None:
            self.keys.write(pa.concat_tables(self._nonempty()))
        self.pending = []

    def _nonempty(self) -> list[pa.Table]:
        return [table for table in self.pending if len(table)] or self.pending[:1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.documents, self.keys:
            if self.pending and kind is None:
                self._write_keys()


class PartitionSpan(NamedTuple):
    """Rows `start` to `stop` (exclusive) of the partition with the number `partition`."""

    partition: int
    start: int
    stop: int


class KeyLayout(NamedTuple):
    """The layout of a partition's file of keys.

    ends     int64, shape (batches,): number of rows up to the end of each batch
    offsets  int64, shape (batches, columns): start of each column in the file, in bytes
    """

    schema: pa.Schema
    ends: np.ndarray
    offsets: np.ndarray

    def column(self, name: str) -> tuple[np.dtype, list[tuple[int, int, int]]]:
        """Return the dtype of a column, and (first row, row after the last, offset in bytes) of each batch."""
        number = self.schema.get_field_index(name)
        starts = [0, *self.ends.tolist()]
        batches = zip(starts, starts[1:], self.offsets[:, number].tolist(), strict=False)
        return np.dtype(self.schema.field(number).type.to_pandas_dtype()), list(batches)


class Numbering(NamedTuple):
    """The numbering of documents: `doc` is the row in its partition plus the `doc` of the partition's first row.

    slices  the slices of the plan
    docs    int64, shape (len(slices),): `doc` of the first row of each slice
    """

    slices: SliceTable
    docs: np.ndarray

    @property
    def offsets(self) -> np.ndarray:
        """`doc` of the first row of each partition, int64."""
        return self.docs if len(self.docs) == self.slices.tasks else self.docs[self.slices.task_starts[:-1]]

    def offset(self, number: int) -> int:
        """Return `doc` of the first row of a partition."""
        return int(self.docs[self.slices.task_starts[number]])

    def slices_of(self, number: int, rows: np.ndarray) -> np.ndarray:
        """Return the slice (int64) of each of `rows`, which are positions in a partition."""
        first, last = self.slices.task_starts[number : number + 2].tolist()
        return first - 1 + np.searchsorted(self.docs[first:last] - self.docs[first], rows, side="right")

    def slice_of(self, number: int, row: int) -> Slice:
        """Return the slice of `row`, which is a position in a partition."""
        return self.slices[int(self.slices_of(number, np.array([row]))[0])]

    def with_ids(self, table: pa.Table, number: int) -> pa.Table:
        """Return rows of a partition with `doc`, `id` and `source`, by the function `with_ids`."""
        first = int(self.slices.task_starts[number])
        source: str | pa.Array = self.slices[first].source
        if int(self.slices.task_starts[number + 1]) - first > 1:
            places = self.slices_of(number, table.column(ROW).to_numpy()) - first
            source = pa.array(self.slices.sources_of_task(number), pa.string()).take(pa.array(places))
        return with_ids(table, source, self.offset(number), self.slices[first].is_split)


class Partitions:
    """The partitions of one segment as one sequence of rows, in the order of the slices.

    folder  the folder of the segment
    counts  the rows of each partition

    `starts` is int64 of shape (len(counts) + 1,): the first row of each partition, then the number of rows. `len` is
    the number of rows. `inputs` has (name, first row, row after the last) of each input, only in the process of the
    run.
    """

    def __init__(self, folder: Path, counts: Sequence[int] | np.ndarray) -> None:
        self.folder = folder
        self.starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.inputs: Sequence[tuple[str, int, int]] = ()
        self._layouts: dict[int, KeyLayout] = {}

    def __reduce__(self) -> tuple[type[Partitions], tuple[Path, np.ndarray]]:
        return Partitions, (self.folder, np.diff(self.starts))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def path(self, partition: int) -> Path:
        """Return the file of a partition's documents."""
        return numbered_path(self.folder, partition, ".arrow")

    def keys_path(self, partition: int) -> Path:
        """Return the file of a partition's keys."""
        return numbered_path(self.folder, partition, ".keys.arrow")

    def key_layout(self, partition: int) -> KeyLayout:
        """Return the layout of a partition's keys, which is kept for the next reads."""
        layout = self._layouts.get(partition)
        if layout is None:
            if len(self._layouts) >= KEPT_LAYOUTS:
                self._layouts.clear()  # threads that use a layout have their own reference to it
            layout = self._layouts[partition] = _read_layout(self.keys_path(partition))
        return layout

    def corpus(
        self, stage: int, rows: np.ndarray | Path, sources: Sequence[tuple[str, int, int]] = (), workers: int = 1
    ) -> Corpus:
        """Return the view of a corpus stage on its rows.

        stage    number of the stage in the recipe
        rows     ascending positions of the rows that earlier stages kept, or the `.npy` file of their mask
        sources  (name, first row, row after the last) of each input
        workers  number of tasks that run at once
        """
        return Corpus(self, rows, stage, self.scratch(stage), sources, workers)

    def scratch(self, stage: int) -> Path:
        """Return the folder for the temporary files of the corpus stage number `stage`."""
        return self.folder / f"stage-{stage}"

    # The methods of `stages.outcome.Storage`

    def key_names(self, partition: int) -> Sequence[str]:
        """Return the names of a partition's key columns."""
        names: list[str] = self.key_layout(partition).schema.names
        return names

    def key_type(self, partition: int, name: str) -> np.dtype:
        """Return the dtype that a key column has in its file."""
        return self.key_layout(partition).column(name)[0]

    def read_keys(self, partition: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        """Read the keys of `rows` into `out`, which has the same shape. `rows` are ascending rows of the segment, all
        in `partition`.

        Raises IntegrityError if the file is shorter than its layout.
        """
        dtype, batches = self.key_layout(partition).column(name)
        low = int(self.starts[partition])
        with open(self.keys_path(partition), "rb", buffering=0) as file:
            for start, stop, offset in batches:
                first, last = _bounds(rows, low + start, low + stop)
                if first < last:
                    _read_keys(file, offset - (low + start) * dtype.itemsize, rows[first:last], out[first:last])

    def read_texts(self, partition: int, rows: np.ndarray, column: str) -> Iterator[Callable[[], pa.Array]]:
        """Yield, for each batch with some of `rows`, a function that returns the values of a column at these rows.
        `rows` is as in `read_keys`.

        The file is memory-mapped only while it is read, because mapped pages count as memory of the run.
        """
        low = int(self.starts[partition])
        for batch in open_partition(self.path(partition)).to_batches():
            first, last = _bounds(rows, low, low + len(batch))
            if first < last:
                yield partial(batch.column(column).take, pa.array(rows[first:last] - rows.dtype.type(low)))
            low += len(batch)

    def locate(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the partition of each row, and the row in that partition (int64, shape of `rows`)."""
        partition = np.searchsorted(self.starts, rows, side="right") - 1
        return partition, rows - self.starts[partition]

    def spans(self, start: int, stop: int) -> Iterator[PartitionSpan]:
        """Yield the spans of partitions that hold rows `start` to `stop` (exclusive)."""
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        for partition in range(max(first, 0), len(self.starts) - 1):
            low, high = int(self.starts[partition]), int(self.starts[partition + 1])
            if low >= stop:
                return
            if low < high:
                yield PartitionSpan(partition, max(start, low) - low, min(stop, high) - low)


def _bounds(rows: np.ndarray, low: int, high: int) -> list[int]:
    """Return the indices in the ascending `rows` at which the rows from `low` to `high` begin and end."""
    bounds: list[int] = np.searchsorted(rows, np.array([low, high], rows.dtype)).tolist()
    return bounds


def _read_layout(path: Path) -> KeyLayout:
    with reading(path), pa.memory_map(str(path)) as source:
        base = source.read_buffer(1).address
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        offsets = [[column.buffers()[1].address - base for column in batch.columns] for batch in batches]
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
        return KeyLayout(reader.schema, ends, np.array(offsets, np.int64).reshape(len(batches), -1))


def _read_keys(file: FileIO, offset: int, rows: np.ndarray, out: np.ndarray) -> None:
    """Read the keys of ascending `rows` into `out`; `offset` is the byte of the file at which row 0 would start."""
    first, last = int(rows[0]), int(rows[-1])
    keys = out if len(rows) == last - first + 1 else np.empty(last - first + 1, out.dtype)
    file.seek(offset + first * out.itemsize)
    if file.readinto(keys.view(np.uint8)) < keys.nbytes:
        raise IntegrityError(f"{file.name} ends too early: another program has written to it. Start over with --force")
    if keys is not out:
        np.take(keys, rows - rows[0], out=out, mode="clip")  # with mode="raise", NumPy would write to a copy of `out`


def with_ids(table: pa.Table, source: str | pa.Array, base: int, is_split: bool = False) -> pa.Table:
    """Return the table with `doc`, `id` and `source` in place of `row` and the record's own id.

    `source` is the input of all rows, or an array with the input of each row. `base` is the `doc` of row 0. A record
    without an id gets `<source>/<doc>`. If documents are split (`is_split`), the part number k of such a record gets
    `<source>/<doc of the first part>#k`.
    """
    doc = pc.add(table.column(ROW), pa.scalar(base, pa.int64()))
    ids, record, end = table.column(ID), doc, pa.scalar("", pa.large_string())
    if is_split:
        ids, record, end = _without_part(ids, doc)
    names = source.cast(pa.large_string()) if isinstance(source, pa.Array) else pa.scalar(source, pa.large_string())
    made = pc.binary_join_element_wise(
        names, pa.scalar("/", pa.large_string()), record.cast(pa.large_string()), end, pa.scalar("", pa.large_string())
    )
    columns = {
        "doc": doc,
        ID: pc.coalesce(ids, made),
        "source": source if isinstance(source, pa.Array) else pa.repeat(pa.scalar(source, pa.string()), len(table)),
    }
    rest = {name: table.column(name) for name in table.column_names if name not in (ROW, ID)}
    return pa.table({**columns, **rest})


def part_numbers(ids: pa.ChunkedArray) -> np.ndarray:
    """Return the number after the last `#` of each id, int64."""
    digits = pc.struct_field(pc.extract_regex(ids, r"#(?P<number>\d+)$"), "number")
    return np.asarray(digits.cast(pa.int64()).to_numpy())


def _without_part(ids: pa.ChunkedArray, doc: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray, pa.Array]:
    """Return the ids of parts, null if the record has no id; the `doc` of the first part of each record; and `#k` of
    each part."""
    number = part_numbers(ids)
    ends = pc.binary_join_element_wise(
        pa.scalar("", pa.large_string()), pa.array(number).cast(pa.large_string()), pa.scalar("#", pa.large_string())
    )
    return ids_of_records(ids), pc.subtract(doc, pa.array(number)), ends
