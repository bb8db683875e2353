# SPDX-License-Identifier: Apache-2.0
"""`removed/` and `rejected.jsonl`: every document that the run does not keep, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curation.base.arrays import cut_spans
from curation.base.contract import ID, ROW, Engine
from curation.base.parquet import file_options
from curation.base.system.files import commit, file_sha256, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.reading.source_files import SourceFile
from curation.record.kept_ids import KeptIds, ids_by_slice
from curation.record.locations import LocationTable, name_of
from curation.record.partitions import REMOVED_SCHEMA, Numbering, Partitions, open_partition
from curation.record.removed_texts import FILE_BYTES, REMOVED_OUTPUT, SIZE, AddedColumns, RemovedTexts, Store
from curation.stages import Stage
from curation.stages.corpus.saved_index import SavedIndex
from curation.stages.corpus.stored_drops import distinct_file
from curation.stages.corpus.stored_notes import notes_folder
from curation.stages.rows.language import UNLABELLED, Language, language_column

MAX_REMOVED_ROWS = 250_000  # rows in one file of removed/ or measures/


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


class RemovedFile(NamedTuple):
    """A file of `removed/` or `measures/`. The file has `rows` rows in the order of `doc`, after the first `skip` rows
    of its first partition."""

    number: int
    first_partition: int
    skip: int
    rows: int

    @property
    def name(self) -> str:
        """The name of the file, with five digits or more."""
        return f"part-{self.number:05d}.parquet"


def plan_removed(counts: np.ndarray, sizes: Iterable[np.ndarray] | None = None) -> list[RemovedFile]:
    """Return the files of `removed/` or `measures/`; at least one file if there is a slice.

    counts  int64: rows of each slice
    sizes   the bytes of the text of each removed row (int64), in arrays in the order of `doc`; None: without texts
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    firsts = list(range(0, total, MAX_REMOVED_ROWS))
    if sizes is not None:
        firsts = [first for first, _, _ in cut_spans(_numbered(sizes), FILE_BYTES, MAX_REMOVED_ROWS)]
    files = []
    for number, (first, last) in enumerate(pairwise([*(firsts or [0]), total] if len(counts) else [])):
        at = min(int(np.searchsorted(ends, first, side="right")), len(ends) - 1)
        files.append(RemovedFile(number, at, first - int(ends[at] - counts[at]) if last > first else 0, last - first))
    return files


def _numbered(sizes: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    done = 0
    for batch in sizes:
        yield np.arange(done, done + len(batch)), batch
        done += len(batch)


class RemovedStore(NamedTuple):
    """What a task needs to write files of `removed/`.

    names       the names of the stages of the recipe
    segments    the folders of all segments, with the rows that rules removed
    duplicates  the rows that corpus stages removed
    locations   the files and lines of documents
    added       the columns to add with `removed: text`; None: none
    """

    names: Sequence[str]
    numbering: Numbering
    segments: Sequence[Path]
    duplicates: Sequence[RemovedRows]
    locations: LocationTable
    added: AddedColumns | None = None

    @property
    def texts(self) -> RemovedTexts | None:
        """The texts of removed rows, with `removed: text`."""
        if self.added is None:
            return None
        records, partitions = self.added.of_records, self.added.of_partitions
        stores: list[Store] = [
            Store(partial(numbered_path, path, suffix=".removed.arrow"), records) for path in self.segments
        ]
        stores += [
            Store(found.partitions.path, partitions, notes_folder(found.partitions.scratch(found.stage)))
            for found in self.duplicates
        ]
        return RemovedTexts(stores, self.numbering.offsets, records)

    def sizes(self, number: int) -> np.ndarray:
        """Return the bytes of the texts of a slice's removed rows (int64), in the order of `doc`."""
        rows = _removed_of_slice(number, self.numbering, self.segments, self.duplicates, self.texts)
        return np.asarray(rows.column(SIZE).to_numpy())

    def write(self, folder: Path, file: RemovedFile, kept_ids: Sequence[KeptIds], encoder: Engine) -> str:
        """Write a file, encoded by an engine, and return its SHA-256. `kept_ids` has, for each of `duplicates`, the ids
        of the kept documents.

        Texts are read for one row group at a time.
        """
        texts, number = self.texts, file.first_partition
        tables: list[pa.Table] = []
        while not tables or sum(map(len, tables)) < file.skip + file.rows:
            check_interrupts()
            found = _removed_of_slice(number, self.numbering, self.segments, self.duplicates, texts)
            row = found.column("doc").to_numpy() - self.numbering.offset(number)
            for name, values in self.locations.columns(number, row).items():
                found = found.append_column(name, values)
            tables.append(found)
            number += 1
        own = pa.concat_tables(tables).slice(file.skip, file.rows)
        with commit(folder / file.name) as temporary:
            table = _as_removed(own, self.names, self.duplicates, kept_ids)
            if texts:
                texts.write(temporary, own, table, encoder)
            else:
                with encoder.parquet_file(temporary, table.schema, file_options(table.schema, True)) as opened:
                    opened.write(table)
        return file_sha256(folder / file.name)


def plan_kept_ids(folder: Path, duplicates: Sequence[RemovedRows]) -> list[tuple[KeptIds, RemovedRows]]:
    """Divide the kept documents among tasks that look up their ids. Return two values for each of `duplicates`: the ids
    of its kept documents, and the first of `duplicates` whose kept documents are in the same segment or index."""
    groups: dict[str, list[RemovedRows]] = {}  # by the folder of the segment or the index
    for removed_rows in duplicates:
        groups.setdefault(_holder(removed_rows), []).append(removed_rows)
    planned = {}
    for number, (holder, group) in enumerate(groups.items()):
        rows = distinct_file(folder / f"{number}.bin", [removed_rows.kept_row for removed_rows in group])
        index = group[0].index_folder
        starts = SavedIndex(index).starts() if index else group[0].partitions.starts
        planned[holder] = KeptIds.plan(folder / str(number), rows[np.searchsorted(rows, 0) :], starts), group[0]
    return [planned[_holder(removed_rows)] for removed_rows in duplicates]


def look_up_ids(kept_ids: KeptIds, task: int, asked: RemovedRows, numbering: Numbering) -> None:
    """Store the ids and `doc` of a task's rows, with one read of each of its slices. `asked` names the partitions or
    the index of the rows. Documents of an index have no `doc` in this run."""
    rows, index = kept_ids.rows_of(task), asked.index_folder
    if index:
        kept_ids.store(task, ((ids, np.full(len(ids), -1)) for ids in SavedIndex(index).ids_by_batch(rows)))
    else:
        kept_ids.store(task, ids_by_slice(asked.partitions, rows, numbering))


def _holder(removed_rows: RemovedRows) -> str:
    return removed_rows.index_folder or str(removed_rows.partitions.folder)


def _removed_of_slice(
    number: int,
    numbering: Numbering,
    segments: Sequence[Path],
    duplicates: Sequence[RemovedRows],
    texts: RemovedTexts | None,
) -> pa.Table:
    """Return the columns `doc`, `id`, `source`, `stage`, `reason`, `value` and `kept_row` of the removed rows of a
    slice; with `texts` also the place of each text. `kept_row` is -1 for rows that a rule removed."""
    tables = []
    for store, folder in enumerate(segments):
        rules = open_partition(numbered_path(folder, number, ".removed.arrow"))
        rules = rules.select(REMOVED_SCHEMA.names).append_column("kept_row", pa.array(np.full(len(rules), -1)))
        if texts:
            rules = texts.located(rules, store, number, np.arange(len(rules)))
        tables.append(rules)
    opened: dict[Path, pa.Table] = {}
    for store, removed_rows in enumerate(duplicates, len(segments)):
        found, positions = _duplicates_of_slice(number, removed_rows, opened)
        if texts:
            found = texts.located(found, store, number, positions)
        tables.append(found)
    rows = numbering.with_ids(pa.concat_tables(tables), number)
    return rows.sort_by("doc")


def _as_removed(
    table: pa.Table, names: Sequence[str], duplicates: Sequence[RemovedRows], kept_ids: Sequence[KeptIds]
) -> pa.Table:
    """Return the rows in the schema of `removed/`. `kept_ids` has, for each of `duplicates`, the ids and `doc` of the
    kept documents."""
    stage, kept_row = (table.column(name).to_numpy() for name in ("stage", "kept_row"))
    encoded = table.column("reason").combine_chunks().dictionary_encode()
    reason, numbers = encoded.indices.to_numpy(), {name: k for k, name in enumerate(encoded.dictionary.to_pylist())}
    places, docs = np.full(len(table), -1), np.full(len(table), -1)
    ids = pa.array([], pa.large_string())
    for removed_rows, stored in zip(duplicates, kept_ids, strict=True):
        number = numbers.get(removed_rows.reason, -1)
        at = np.flatnonzero((stage == removed_rows.stage) & (kept_row >= 0) & (reason == number))
        places[at] = np.arange(len(ids), len(ids) + len(at))
        own, docs[at] = stored.take(kept_row[at])
        ids = pa.concat_arrays([ids, own])
    replaced = {
        "stage": pa.array(names, pa.string()).take(pa.array(stage)),
        "duplicate_of": ids.take(pa.array(places, mask=places < 0)),
        "duplicate_of_doc": pa.array(docs, mask=docs < 0),
    }
    columns = [replaced[name] if name in replaced else table.column(name) for name in REMOVED_OUTPUT.names]
    return pa.table(columns, REMOVED_OUTPUT.names).cast(REMOVED_OUTPUT).combine_chunks()


def _duplicates_of_slice(
    number: int, removed: RemovedRows, opened: dict[Path, pa.Table]
) -> tuple[pa.Table, np.ndarray]:
    """Return the removed rows of a slice, and their positions in its partition. `opened` has the tables of the
    partitions that are already open, and gets that of this one."""
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


def lost_by_language(path: Path, stages: Mapping[str, Stage]) -> list[tuple[str, str, str, int]]:
    """Return the number of documents in a file of `removed/` by language (UNLABELLED without a label), stage and
    reason; an empty list if the file lacks the column of languages. `stages`: name -> stage of the recipe."""
    column = language_column([*stages.values()])
    names = [column, "stage", "reason"]
    if not column or not {*names} <= {*pq.read_schema(path).names}:
        return []
    counts = pq.read_table(path, columns=names).group_by(names).aggregate([([], "count_all")])
    places = {name: place for place, name in enumerate(stages)}
    labels = max(places[name] for name, stage in stages.items() if isinstance(stage, Language))
    rows = zip(*(counts.column(name).to_pylist() for name in (*names, "count_all")), strict=True)
    return [
        (language or UNLABELLED, stage, reason, documents)
        for language, stage, reason, documents in rows
        if language or places[stage] >= labels  # documents that earlier stages removed were never labelled
    ]


def _output_line(entry: dict[str, Any], files: Sequence[SourceFile], base: int, lines_before: int) -> bytes:
    """Return the line of `rejected.jsonl` for an entry of a task's file of rejected records. `files` has the input file
    of each range of the task. Earlier tasks have read `lines_before` lines of the first file."""
    file, in_text = files[entry["file_index"]], entry["offset"] >= 0
    before = lines_before if in_text and not entry["file_index"] else 0
    record = {"source": file.source, "file": name_of(file), "line": entry["line"] + 1 + before}
    if in_text:
        record["offset"] = entry["offset"]
    return orjson.dumps(record | {"doc": base + entry["row"], "error": entry["error"]}) + b"\n"


def write_rejected(
    path: Path, segment: Path, numbering: Numbering, lines_before: np.ndarray, has_rejected: np.ndarray
) -> str:
    """Write `rejected.jsonl` and return its SHA-256.

    A line has source, file, line (from 1), byte offset (text formats only), `doc` and error of a rejected record.

    segment       the folder of the first segment
    lines_before  int64: `LocationTable.before`
    has_rejected  bool, one per task: whether it has rejected records
    """
    with commit(path) as temporary, open(temporary, "wb") as out:
        for number in np.flatnonzero(has_rejected).tolist():
            check_interrupts()
            files, base, before = numbering.slices.files_of_task(number), numbering.offset(number), lines_before[number]
            with open(numbered_path(segment, number, ".rejected.jsonl"), "rb") as entries:
                out.writelines(_output_line(orjson.loads(entry), files, base, int(before)) for entry in entries)
    return file_sha256(path)
