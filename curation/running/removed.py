# SPDX-License-Identifier: Apache-2.0
"""`removed/` and `rejected.jsonl`: every document that is not kept, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curation.contract import ID, ROW
from curation.files import commit, file_sha256, piece_path
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.running.intermediate import REMOVED_SCHEMA, Numbering, Parts, open_part, with_ids
from curation.running.ledger import SliceRecord
from curation.stages.saved_index import SavedIndex

REMOVED_ROWS = 250_000  # of one file in removed/
REMOVED_OUTPUT = pa.schema(
    [
        ("doc", pa.int64()),
        (ID, pa.large_string()),
        ("source", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.large_string()),
        ("value", pa.float64()),
        ("duplicate_of", pa.large_string()),
    ]
)


# removed/ and rejected.jsonl


class RemovedRows(NamedTuple):
    """What a whole-corpus stage removed for one reason, as positions in the rows of its segment."""

    parts: Parts
    stage: int
    reason: str
    row: np.ndarray
    kept_row: np.ndarray  # numbers in the saved index where there is one
    value: np.ndarray
    index_folder: str = ""  # of a saved index

    def kept_ids(self, kept_row: np.ndarray, numbering: Numbering) -> pa.Array:
        """The ids of what stays, for some of `kept_row`."""
        if self.index_folder:
            return SavedIndex(self.index_folder).ids(kept_row)
        return ids_of(self.parts, kept_row, numbering)


def write_removed(
    folder: Path, names: Sequence[str], numbering: Numbering, segments: Sequence[Path],
    duplicates: Sequence[RemovedRows],
) -> dict[str, str]:  # fmt: skip
    """`removed/part-*.parquet` in the order of `doc`; gives path -> sha256."""
    digests: dict[str, str] = {}
    waiting: list[pa.Table] = []
    for number in range(len(numbering.slices)):
        waiting.append(_removed_of_slice(number, numbering, segments, duplicates))
        last = number == len(numbering.slices) - 1
        while sum(map(len, waiting)) >= REMOVED_ROWS or (last and (any(map(len, waiting)) or not digests)):
            rows = pa.concat_tables(waiting)
            path = folder / f"part-{len(digests):05d}.parquet"
            with commit(path) as temporary:
                table = _as_removed(rows.slice(0, REMOVED_ROWS), names, numbering, duplicates)
                pq.write_table(table, temporary, compression="zstd", compression_level=1)
            digests[f"{folder.name}/{path.name}"] = file_sha256(path)
            waiting = [rows.slice(REMOVED_ROWS)]
    return digests


def _removed_of_slice(
    number: int, numbering: Numbering, segments: Sequence[Path], duplicates: Sequence[RemovedRows]
) -> pa.Table:
    """`doc`, `id`, `source`, `stage`, `reason`, `value`, and `kept_row`, which is -1 where a rule removed."""
    rules = pa.concat_tables([open_part(piece_path(folder, number, ".removed.arrow")) for folder in segments])
    tables = [rules.append_column("kept_row", pa.array(np.full(len(rules), -1)))]
    tables += [_duplicates_of_slice(number, found) for found in duplicates]
    return with_ids(pa.concat_tables(tables), numbering.slices[number].source, int(numbering.offsets[number])).sort_by(
        "doc"
    )


def _as_removed(
    table: pa.Table, names: Sequence[str], numbering: Numbering, duplicates: Sequence[RemovedRows]
) -> pa.Table:
    """The rows as `removed/` shows them, with the ids of the documents that stay."""
    stage, kept_row = (table.column(name).to_numpy() for name in ("stage", "kept_row"))
    encoded = table.column("reason").combine_chunks().dictionary_encode()
    reason, numbers = encoded.indices.to_numpy(), {name: k for k, name in enumerate(encoded.dictionary.to_pylist())}
    places = np.full(len(table), -1)
    ids = pa.array([], pa.large_string())
    for found in duplicates:
        at = np.flatnonzero((stage == found.stage) & (kept_row >= 0) & (reason == numbers.get(found.reason, -1)))
        places[at] = np.arange(len(ids), len(ids) + len(at))
        ids = pa.concat_arrays([ids, found.kept_ids(kept_row[at], numbering)])
    duplicate_of = ids.take(pa.array(places, mask=places < 0))
    shown = {"stage": pa.array(names, pa.string()).take(pa.array(stage)), "duplicate_of": duplicate_of}
    columns = [shown[name] if name in shown else table.column(name) for name in REMOVED_OUTPUT.names]
    return pa.table(columns, REMOVED_OUTPUT.names).cast(REMOVED_OUTPUT).combine_chunks()


def _duplicates_of_slice(number: int, found: RemovedRows) -> pa.Table:
    start, stop = found.parts.starts[number], found.parts.starts[number + 1]
    low, high = np.searchsorted(found.row, np.array([start, stop], found.row.dtype))  # of another type, all are copied
    rows = open_part(found.parts.path(number)).select([ROW, ID]).take(pa.array(found.row[low:high] - start))
    count = high - low
    columns = [
        rows.column(ROW),
        rows.column(ID),
        np.full(count, found.stage, np.int32),
        pa.repeat(pa.scalar(found.reason, pa.large_string()), count),
        found.value[low:high],
        found.kept_row[low:high],
    ]
    return pa.table(columns, schema=REMOVED_SCHEMA.append(pa.field("kept_row", pa.int64())))


def ids_of(parts: Parts, rows: np.ndarray, numbering: Numbering) -> pa.Array:
    """The ids of rows of a segment, fetched by position from the parts that hold them."""
    order = np.argsort(rows, kind="stable")
    pieces, local = parts.locate(rows[order])
    found = [pa.array([], pa.large_string())]
    for piece in np.unique(pieces).tolist():
        first, last = np.searchsorted(pieces, [piece, piece + 1])
        table = open_part(parts.path(piece)).select([ROW, ID]).take(pa.array(local[first:last]))
        found.append(
            with_ids(table, numbering.slices[piece].source, int(numbering.offsets[piece])).column(ID).combine_chunks()
        )
    back = np.empty(len(rows), np.int64)
    back[order] = np.arange(len(rows))
    return pa.chunked_array(found).take(pa.array(back)).combine_chunks()


def _shown_file(file: SourceFile) -> str:
    return file.label or shown(file.path)


def _as_shown(entry: dict[str, Any], piece: Slice, base: int, lines_before: int) -> bytes:
    """The line of `rejected.jsonl` for a record's entry in the slice's own list."""
    in_text = entry["offset"] >= 0
    record = {
        "source": piece.source,
        "file": _shown_file(piece.parts[entry["part"]].file),
        "line": entry["line"] + 1 + (lines_before if in_text else 0),
    }
    if in_text:
        record["offset"] = entry["offset"]
    return orjson.dumps(record | {"doc": base + entry["row"], "error": entry["error"]}) + b"\n"


def write_rejected(path: Path, segment: Path, numbering: Numbering, records: Sequence[SliceRecord]) -> str:
    """`rejected.jsonl`: source, file, 1-based line, byte offset, position and error of each; gives its sha256."""
    with commit(path) as temporary, open(temporary, "wb") as out:
        lines_before: dict[str, int] = {}  # of files that are cut into several slices
        for piece, base, record in zip(numbering.slices, numbering.offsets.tolist(), records, strict=True):
            before = lines_before.get(piece.parts[0].file.path, 0)
            if record.rejected:
                with open(piece_path(segment, piece.index, ".rejected.jsonl"), "rb") as entries:
                    out.writelines(_as_shown(orjson.loads(entry), piece, base, before) for entry in entries)
            lines_before[piece.parts[0].file.path] = before + record.lines
    return file_sha256(path)
