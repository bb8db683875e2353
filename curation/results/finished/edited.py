# SPDX-License-Identifier: Apache-2.0
"""Finds kept documents that a run edited, with their texts before the edits.

A run does not store texts before edits, so the inputs are read again. The number `doc` identifies a document in the
inputs and in `documents/`. The `doc` of the first record of each input, and of each row group of Parquet, is known. So
Parquet is read by row groups in a seeded order, other formats from the start of the input. Inputs take turns, batch by
batch.
"""

from __future__ import annotations

import os
import random
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import seeded_hashes
from curation.base.contract import ID, ROW, TEXT
from curation.base.engine import load_engine
from curation.base.errors import InputError, OutputError
from curation.base.parquet import in_file_types
from curation.reading import probe, read_documents
from curation.reading.documents import HELD_BYTES, Documents
from curation.reading.formats import format_of
from curation.reading.inputs import is_hub
from curation.reading.sampling import read_sampled
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.split_settings import SEPARATOR
from curation.reading.urls import is_remote, shown
from curation.record.tables import TablePart, part_paths
from curation.tokens.token_spans import parts_of
from curation.tokens.tokenization import TokenizerSpec

BEFORE = "text_before"
COLUMNS = ("doc", ID, "source", TEXT)
SCHEMA = pa.schema(
    [
        ("doc", pa.int64()),
        (ID, pa.string()),
        ("source", pa.string()),
        (TEXT, pa.string()),
        (BEFORE, pa.string()),
    ]
)
BATCH_BYTES = 4 << 20  # size of a batch of the inputs
LEAST_BYTES = 64_000_000  # minimum input text from which a sample is drawn, if there is so much
MOST_BYTES = 1_000_000_000  # maximum input text that is read for a sample
CACHED_GROUPS = 2  # row groups of documents/ in memory: the next batch may begin in the same group
REMEDY = "Put the file back as it was, or run the recipe again with a new --output"


class _Place(NamedTuple):
    """A part of an input, and the `doc` of the first record in the part; None: the part follows the part before it."""

    part: FileRange
    first: int | None


class _Batch(NamedTuple):
    """Documents of a part of an input.

    base          `doc` of the first record of the part
    start, stop   `doc` of the first record of the batch, and `doc` of its last record + 1
    """

    documents: Documents
    base: int
    start: int
    stop: int


def edited_documents(
    folder: Path, report: dict[str, Any], satisfying: Callable[[pa.Table], np.ndarray] | None, sample: int | None,
    seed: int,
) -> pa.Table:  # fmt: skip
    """Return kept documents whose text differs from the text in the input, in the order of `doc`, with the columns of
    `SCHEMA`.

    report        content of `report.json` in the folder of the run
    satisfying    function that returns, for each row of a table of `documents/`, whether to choose it; None: all
    sample, seed  a seeded sample of this many documents. It is drawn from the first LEAST_BYTES of input text that are
                  read. If these have too few, reading ends where there are enough, or after MOST_BYTES. None: all
                  documents, of the whole inputs

    Raises OutputError if the run edited nothing. Raises InputError if a file of the inputs is gone, has changed or is
    not local.
    """
    if not report["documents"]["edited"]:
        raise OutputError(f"{folder} has no edited documents: no stage of its run changed a text")
    files = msgspec.convert(report["files"], list[SourceFile])
    for file in files:
        _check_file(file, folder)
    kept = _Kept(part_paths(folder, report["outputs"], "documents"), None if satisfying else COLUMNS)
    found, size = SCHEMA.empty_table(), 0
    for batch in _in_turns(_streams(report, files, seed)):
        rows = _edited(kept.rows(batch.start, batch.stop), batch)
        if satisfying and len(rows):
            rows = rows.filter(pa.array(satisfying(rows)))
        found = pa.concat_tables([found, rows.select(SCHEMA.names)])
        size += batch.documents.table.nbytes + HELD_BYTES * len(batch.documents.rejected)
        if sample is not None:
            found = _drawn(found, sample, seed)
            if size >= (LEAST_BYTES if len(found) == sample else MOST_BYTES):
                break
    return found.sort_by("doc").combine_chunks()


def _drawn(rows: pa.Table, sample: int, seed: int) -> pa.Table:
    order = np.argsort(seeded_hashes(rows.column("doc").to_numpy(), seed), kind="stable")
    return rows.take(pa.array(order[:sample])) if len(rows) > sample else rows


def _check_file(file: SourceFile, folder: Path) -> None:
    """Raise InputError if a file is not the local file that the run read."""
    if is_hub(file.path) or is_remote(file.path):
        raise InputError(
            f"{shown(file.path)}, an input of {folder}, is not a local file. Texts before edits are read from local "
            "inputs only: download it, and run the recipe on the local files"
        )
    try:
        status = os.stat(file.path)
    except OSError:
        raise InputError(
            f"{file.path}, an input of {folder}, does not exist: texts before edits are read from it. {REMEDY}"
        ) from None
    if not stat.S_ISREG(status.st_mode) or status.st_size != file.bytes:
        fault = f"it has {status.st_size:,} bytes, the run read {file.bytes:,}"
    elif status.st_mtime_ns != file.modified_ns:
        fault = "its modification time differs"
    else:
        return
    raise InputError(f"{file.path}, an input of {folder}, has changed since the run: {fault}. {REMEDY}")


def _streams(report: dict[str, Any], files: Sequence[SourceFile], seed: int) -> list[Iterator[_Batch]]:
    """Return the batches of each input, with the inputs in a seeded order."""
    first, firsts = 0, {}
    for source in report["sources"]:
        firsts[source["name"]] = first
        first += _positions(source)
    inputs = [(name, list(own)) for name, own in groupby(files, lambda file: file.source)]
    random.Random(seed).shuffle(inputs)
    skipped = {source["name"]: source.get("skipped", 0) for source in report["sources"]}
    stops = {source["name"]: firsts[source["name"]] + _positions(source) for source in report["sources"]}
    streams = []
    for name, own in inputs:
        is_split = own[0].parts is not None
        in_order = is_split or format_of(own[0]).row_counts(own[0]) is None
        batches = (
            _split_batches(own, firsts[name], skipped[name], report["recipe"])
            if is_split
            else _batches(own, firsts[name], seed)
        )
        streams.append(_until(stops[name], batches, in_order))
    return streams


def _positions(source: dict[str, Any]) -> int:
    """Return how many numbers `doc` an input takes, from its entry in the report."""
    passed = sum(source.get(name, 0) for name in ("not_sampled", "skipped", "not_pages"))
    return int(source["documents_read"] + passed)


def _until(stop: int, batches: Iterator[_Batch], in_order: bool) -> Iterator[_Batch]:
    """Yield the batches with a `doc` below `stop`, since the run did not read the rest of the input."""
    for batch in batches:
        if batch.start < stop:
            yield batch._replace(stop=min(batch.stop, stop))
        elif in_order:
            return


def _in_turns(streams: list[Iterator[_Batch]]) -> Iterator[_Batch]:
    """Yield one batch of each stream, then the next batch of each, and so on."""
    while streams:
        left = []
        for stream in streams:
            if (batch := next(stream, None)) is not None:
                yield batch
                left.append(stream)
        streams = left


def _batches(files: Sequence[SourceFile], first: int, seed: int) -> Iterator[_Batch]:
    """Yield the batches of an input. `first` is the `doc` of its first record."""
    following = first
    for part, known in _places(files, first, seed):
        base = start = following if known is None else known
        for documents in read_documents(Slice(index=0, ranges=[part]), BATCH_BYTES):
            yield _Batch(documents, base, start, start + documents.rows)
            start += documents.rows
        following = start


def _split_batches(files: Sequence[SourceFile], first: int, skipped: int, recipe: dict[str, Any]) -> Iterator[_Batch]:
    """Yield the batches of an input whose documents are split. It is read from its start, since the `doc` of a part
    depends on all earlier documents."""
    spec = msgspec.convert(recipe["tokenizer"], TokenizerSpec)
    for file in map(probe, files):
        own = Slice(index=0, ranges=[FileRange(file=file, start=0, stop=_end_of(file))], skip=skipped)
        parts = parts_of(own, BATCH_BYTES, spec)
        start = first
        for batch, passed in read_sampled(load_engine("cpu"), own, BATCH_BYTES, recipe["seed"], parts):
            skipped -= passed.skipped
            documents = Documents(load_engine("cpu").to_arrow(batch.frame), batch.rejected, batch.rows, batch.lines)
            rows = documents.table.column(ROW).to_numpy()
            stop = max(start, first + int(rows[-1]) + 1) if len(rows) else start
            yield _Batch(documents, first, start, stop)
            start = stop
        first += parts.positions if parts else 0


def _end_of(file: SourceFile) -> int:
    """Return the end of the range that covers a whole file: in bytes, or in row groups for a format that has them."""
    counts = format_of(file).row_counts(file)
    return file.bytes if counts is None else len(counts)


def _places(files: Sequence[SourceFile], first: int, seed: int) -> Iterator[_Place]:
    """Yield the parts of an input in the order in which they are read."""
    counts = [format_of(file).row_counts(file) for file in files]
    if None in counts:
        for file in map(probe, files):
            yield _Place(FileRange(file=file, start=0, stop=file.bytes), None)
        return
    groups: list[tuple[int, int, int]] = []  # file, row group, doc of its first record
    for number, rows_of in enumerate(counts):
        for group, rows in enumerate(rows_of or ()):
            groups.append((number, group, first))
            first += rows
    random.Random(seed).shuffle(groups)
    for number, group, start in groups:
        yield _Place(FileRange(file=probe(files[number]), start=group, stop=group + 1), start)


class _Kept:
    """Reads rows of `documents/` by `doc`.

    columns   columns to read; None: all
    """

    def __init__(self, paths: Sequence[Path], columns: Sequence[str] | None) -> None:
        self._groups: list[tuple[int, int, Path, int]] = []  # least and largest doc, file, row group
        self._schema = TablePart(paths[0]).schema
        for part in map(TablePart, paths):
            part.check({field.name: field.type for field in self._schema})
            bounds = (part.bounds(group) or (0, sys.maxsize) for group in part.groups)
            self._groups += [(*known, part.path, group) for group, known in enumerate(bounds)]
        self._columns = columns
        self._read = lru_cache(CACHED_GROUPS)(self._read_group)

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return the rows with `doc` from `start` to `stop` (exclusive), each once, ascending."""
        tables = [self._schema.empty_table().select(self._columns or self._schema.names)]
        for least, largest, path, group in self._groups:
            if least < stop and start <= largest:
                rows = self._read(path, group)
                doc = rows.column("doc").to_numpy()
                tables.append(rows.filter(pa.array((doc >= start) & (doc < stop))))
        rows = pa.concat_tables(tables)
        unique = np.unique(rows.column("doc").to_numpy(), return_index=True)[1]  # copies of an input repeat rows
        return rows.take(pa.array(unique))

    def _read_group(self, path: Path, group: int) -> pa.Table:
        return TablePart(path).read(group, self._columns or self._schema.names)


def _edited(kept: pa.Table, batch: _Batch) -> pa.Table:
    """Return the kept rows whose text differs from the text in the batch, with the column `text_before`."""
    table = batch.documents.table
    doc, wanted = batch.base + table.column(ROW).to_numpy(), kept.column("doc").to_numpy()
    at = np.searchsorted(doc, wanted)
    if len(wanted) and (at[-1] == len(doc) or (doc[at] != wanted).any()):
        _changed(kept)
    before = in_file_types(table.take(pa.array(at)))
    ids = pc.fill_null(pc.not_equal(before.column(ID), kept.column(ID)), False)
    if SEPARATOR in before.column_names:  # parts of records without an id have an id such as `#0` in the batch
        ids = pc.and_(ids, pc.invert(pc.starts_with(before.column(ID), "#")))
    if pc.any(ids).as_py():
        _changed(kept)
    differs = pc.not_equal(before.column(TEXT), kept.column(TEXT))
    return kept.append_column(BEFORE, before.column(TEXT)).filter(differs)


def _changed(kept: pa.Table) -> None:
    source = kept.column("source")[0].as_py()
    raise InputError(f"input {source} has other records than the run read, at the same places. {REMEDY}")
