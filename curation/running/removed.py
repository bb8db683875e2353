# SPDX-License-Identifier: Apache-2.0
"""`removed/` and `rejected.jsonl`: every document that the run does not keep, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curation.arrays import sorted_unique
from curation.contract import ID, ROW
from curation.reading.source_files import Slice
from curation.running.intermediate import REMOVED_SCHEMA, Numbering, Partitions, open_partition, with_ids
from curation.running.kept_ids import StoredIds, ids_by_slice, store_ids
from curation.running.ledger import SliceTotals
from curation.running.places import Places, name_of
from curation.running.removed_texts import FILE_BYTES, Texts, file_rows, text_bytes
from curation.stages.saved_index import SavedIndex
from curation.system.files import commit, file_sha256, make_folder, numbered_path, remove
from curation.system.steps import each

MAX_REMOVED_ROWS = 250_000  # in one file of removed/
REMOVED_OUTPUT = pa.schema(
    [
        ("doc", pa.int64()),
        (ID, pa.large_string()),
        ("source", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.large_string()),
        ("value", pa.float64()),
        ("duplicate_of", pa.large_string()),
        ("file", pa.string()),
        ("line", pa.int64()),
    ]
)


class RemovedRows(NamedTuple):
    """The rows that a corpus stage removed for one reason. The arrays have shape (n,), one element per removed row.

    partitions    all rows of the segment
    stage         number of the stage in the recipe
    reason        the reason in `removed/`
    row           integer, ascending: positions in the rows of the segment
    kept_row      integer: the rows of the kept documents, or their numbers in the saved index
    value         float64: the `value` column of `removed/`
    index_folder  folder of the saved index; "" if the kept documents are of this run
    """

    partitions: Partitions
    stage: int
    reason: str
    row: np.ndarray
    kept_row: np.ndarray
    value: np.ndarray
    index_folder: str = ""


def write_removed(
    folder: Path, names: Sequence[str], numbering: Numbering, segments: Sequence[Path],
    duplicates: Sequence[RemovedRows], places: Places, notes: Mapping[str, str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Write `removed/part-*.parquet` in the order of `doc`, at least one file; return path -> SHA-256.

    folder      the folder `removed/`
    names       the names of the stages of the recipe
    segments    the folders of all segments, with the rows that rules removed
    duplicates  the rows that corpus stages removed
    places      the files and lines of documents
    notes       `removed: text`: add `bound`, these columns of stages (name -> Arrow type), and `text`; None: do not

    Each slice of a segment is read at most twice: for the ids of kept documents, and for its removed rows. Texts are
    read once more, for one row group at a time.
    """
    work = segments[0].parent / "kept-ids"
    make_folder(work)
    kept_ids = _store_kept_ids(work, numbering, duplicates)
    digests: dict[str, str] = {}
    texts = None if notes is None else Texts(_stores(segments, duplicates), numbering.offsets, notes)
    pending: list[pa.Table] = []
    size = 0
    for number in each(range(len(numbering.slices)), "writing removed/", "slice"):
        found = _removed_of_slice(number, numbering, segments, duplicates, texts)
        row = found.column("doc").to_numpy() - numbering.offsets[number]
        for name, values in places.columns(number, row).items():
            found = found.append_column(name, values)
        pending.append(found)
        size += text_bytes(pending[-1])
        last = number == len(numbering.slices) - 1
        while (
            sum(map(len, pending)) >= MAX_REMOVED_ROWS
            or size > FILE_BYTES
            or (last and (any(map(len, pending)) or not digests))
        ):
            rows = pa.concat_tables(pending)
            own = rows.slice(0, file_rows(rows, MAX_REMOVED_ROWS))
            path = folder / f"part-{len(digests):05d}.parquet"
            with commit(path) as temporary:
                table = _as_removed(own, names, duplicates, kept_ids)
                if texts:
                    texts.write(temporary, own, table)
                else:
                    pq.write_table(table, temporary, compression="zstd", compression_level=1)
            digests[f"{folder.name}/{path.name}"] = file_sha256(path)
            pending = [rows.slice(len(own))]
            size -= text_bytes(own)
    remove(work)
    return digests


def _stores(segments: Sequence[Path], duplicates: Sequence[RemovedRows]) -> list[Callable[[int], Path]]:
    """The files with texts: records of removed documents for each segment, partitions for each of `duplicates`."""
    rules = [partial(numbered_path, folder, suffix=".removed.arrow") for folder in segments]
    return [*rules, *(removed_rows.partitions.path for removed_rows in duplicates)]


def _store_kept_ids(folder: Path, numbering: Numbering, duplicates: Sequence[RemovedRows]) -> list[StoredIds]:
    """Store the ids of the kept documents in `folder`, with one read of each slice of a segment; return them for each
    of `duplicates`."""
    groups: dict[str, list[RemovedRows]] = {}  # by the folder of the segment or the index
    for removed_rows in duplicates:
        groups.setdefault(_holder(removed_rows), []).append(removed_rows)
    stored = {}
    for number, (holder, group) in enumerate(groups.items()):
        rows = sorted_unique(np.concatenate([removed_rows.kept_row for removed_rows in group]))
        rows = rows[rows >= 0]
        index, partitions = group[0].index_folder, group[0].partitions
        ids = SavedIndex(index).ids_by_batch(rows) if index else ids_by_slice(partitions, rows, numbering)
        stored[holder] = store_ids(folder / f"{number}.bin", rows, ids)
    return [stored[_holder(removed_rows)] for removed_rows in duplicates]


def _holder(removed_rows: RemovedRows) -> str:
    return removed_rows.index_folder or str(removed_rows.partitions.folder)


def _removed_of_slice(
    number: int, numbering: Numbering, segments: Sequence[Path], duplicates: Sequence[RemovedRows], texts: Texts | None
) -> pa.Table:
    """`doc`, `id`, `source`, `stage`, `reason`, `value` and `kept_row`, which is -1 for rows that a rule removed; with
    texts also `bound` and the place of the text."""
    tables = []
    for store, folder in enumerate(segments):
        rules = open_partition(numbered_path(folder, number, ".removed.arrow"))
        told = rules.select(texts.told.names if texts else [])
        rules = rules.select(REMOVED_SCHEMA.names).append_column("kept_row", pa.array(np.full(len(rules), -1)))
        if texts:
            rules = _with_columns(rules, told)
            rules = texts.located(rules, store, number, np.arange(len(rules)))
        tables.append(rules)
    opened: dict[Path, pa.Table] = {}
    for store, removed_rows in enumerate(duplicates, len(segments)):
        found, positions = _duplicates_of_slice(number, removed_rows, opened)
        if texts:
            told = [pa.nulls(len(found), field.type) for field in texts.told]
            found = _with_columns(found, pa.table(told, schema=texts.told))
            found = found.set_column(found.column_names.index("bound"), "bound", pa.array(np.full(len(found), np.nan)))
            found = texts.located(found, store, number, positions)
        tables.append(found)
    rows = with_ids(pa.concat_tables(tables), numbering.slices[number].source, int(numbering.offsets[number]))
    return rows.sort_by("doc")


def _with_columns(table: pa.Table, added: pa.Table) -> pa.Table:
    for name in added.column_names:
        table = table.append_column(name, added.column(name))
    return table


def _as_removed(
    table: pa.Table, names: Sequence[str], duplicates: Sequence[RemovedRows], kept_ids: Sequence[StoredIds]
) -> pa.Table:
    """The rows in the schema of `removed/`. `kept_ids` has the ids of the kept documents for each of `duplicates`."""
    stage, kept_row = (table.column(name).to_numpy() for name in ("stage", "kept_row"))
    encoded = table.column("reason").combine_chunks().dictionary_encode()
    reason, numbers = encoded.indices.to_numpy(), {name: k for k, name in enumerate(encoded.dictionary.to_pylist())}
    places = np.full(len(table), -1)
    ids = pa.array([], pa.large_string())
    for removed_rows, stored in zip(duplicates, kept_ids, strict=True):
        number = numbers.get(removed_rows.reason, -1)
        at = np.flatnonzero((stage == removed_rows.stage) & (kept_row >= 0) & (reason == number))
        places[at] = np.arange(len(ids), len(ids) + len(at))
        ids = pa.concat_arrays([ids, stored.take(kept_row[at])])
    duplicate_of = ids.take(pa.array(places, mask=places < 0))
    replaced = {"stage": pa.array(names, pa.string()).take(pa.array(stage)), "duplicate_of": duplicate_of}
    columns = [replaced[name] if name in replaced else table.column(name) for name in REMOVED_OUTPUT.names]
    return pa.table(columns, REMOVED_OUTPUT.names).cast(REMOVED_OUTPUT).combine_chunks()


def _duplicates_of_slice(
    number: int, removed: RemovedRows, opened: dict[Path, pa.Table]
) -> tuple[pa.Table, np.ndarray]:
    """The removed rows of a slice, and their positions in its partition. `opened` has the partitions that are open."""
    partitions = removed.partitions
    start, stop = partitions.starts[number], partitions.starts[number + 1]
    bounds = np.array([start, stop], removed.row.dtype)  # bounds of another dtype would copy all rows
    low, high = np.searchsorted(removed.row, bounds)
    count = high - low
    positions = removed.row[low:high] - start
    schema = REMOVED_SCHEMA.append(pa.field("kept_row", pa.int64()))
    if not count:
        return schema.empty_table(), positions
    path = partitions.path(number)
    if path not in opened:
        opened[path] = open_partition(path).select([ROW, ID])
    rows = opened[path].take(pa.array(positions))
    columns = [
        rows.column(ROW),
        rows.column(ID),
        np.full(count, removed.stage, np.int32),
        pa.repeat(pa.scalar(removed.reason, pa.large_string()), count),
        removed.value[low:high],
        removed.kept_row[low:high],
    ]
    return pa.table(columns, schema=schema), positions


def _output_line(entry: dict[str, Any], input_slice: Slice, base: int, lines_before: int) -> bytes:
    """The line of `rejected.jsonl` for an entry of the slice's own file."""
    file = input_slice.ranges[entry["file_index"]].file
    in_text = entry["offset"] >= 0
    record = {
        "source": input_slice.source,
        "file": name_of(file),
        "line": entry["line"] + 1 + (lines_before if in_text else 0),
    }
    if in_text:
        record["offset"] = entry["offset"]
    return orjson.dumps(record | {"doc": base + entry["row"], "error": entry["error"]}) + b"\n"


def write_rejected(path: Path, segment: Path, numbering: Numbering, totals: SliceTotals) -> str:
    """Write `rejected.jsonl` and return its SHA-256.

    A line has source, file, line (from 1), byte offset (text formats only), `doc` and error of a rejected record.
    `segment` is the folder of the first segment, `totals` are its counts.
    """
    with commit(path) as temporary, open(temporary, "wb") as out:
        before, file = 0, ""  # lines in earlier slices of the file
        for input_slice, base in zip(numbering.slices, numbering.offsets.tolist(), strict=True):
            number, first = input_slice.index, input_slice.ranges[0]
            before = before if first.file.path == file and first.start else 0
            if totals.has_rejected[number]:
                with open(numbered_path(segment, number, ".rejected.jsonl"), "rb") as entries:
                    out.writelines(_output_line(orjson.loads(entry), input_slice, base, before) for entry in entries)
            before, file = before + int(totals.lines[number]), first.file.path
    return file_sha256(path)
