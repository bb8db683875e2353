# SPDX-License-Identifier: Apache-2.0
"""The write phase: it writes `documents/` and the tokens of its parts. Parts end at counts of documents and bytes, not
at the ends of slices."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count, repeat
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array, load_mapped, text_buffers
from curation.base.contract import ID, ROW, TEXT, Engine, TableFile
from curation.base.engine import load_engine
from curation.base.errors import IntegrityError
from curation.base.parquet import write_table
from curation.base.system.files import commit, file_sha256, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.sealed import write_sealed
from curation.recipes.recipe import Output
from curation.record.documents import document_options, document_schema, encoding_engine, in_schema, row_groups
from curation.record.partitions import Numbering, Partitions, open_partition, with_ids
from curation.record.records import RunningNote, TaskCounts
from curation.record.row_sums import RowSpan, cut_pieces
from curation.rules.tallies import Tally, tally_of
from curation.running.phases.document_shards import stored_documents
from curation.stages import Stage
from curation.stages.base import added_columns
from curation.stages.rows.language import UNLABELLED, language_column
from curation.tokens.document_rows import document_path
from curation.tokens.ordering import SPLIT, assign_splits, split_names
from curation.tokens.token_files import Encoded, encode_together, token_files
from curation.tokens.tokenization import load_tokenizer

if TYPE_CHECKING:
    from curation.record.segment_state import SegmentState
    from curation.record.stored_plan import Plan


# Maximum of the parts that share a task; a single part may be larger. Large runs have tasks of up to LARGE_BYTES, since
# a task of the GPU engine tokenises its parts together, but at least MIN_TASKS tasks.
SHARED_BYTES, SHARED_DOCUMENTS = 1 << 20, 10_000
LARGE_BYTES, LARGE_DOCUMENTS, MIN_TASKS = 128 << 20, 1_000_000, 64
NAMED_DOCUMENTS = 10  # documents named per part that get no tokens, because their text contains a special token


class OutputPart(NamedTuple):
    """Rows `start` to `stop` (exclusive) of the last segment, all of one source, of which `documents` are written.

    `copy` is the number of the copy, from 0. `bytes` is the approximate size of the written texts.
    """

    number: int
    source: str
    start: int
    stop: int
    documents: int
    copy: int = 0
    bytes: int = 0


def cut_output_parts(
    state: SegmentState, output: Output, copies: Mapping[str, int] = MappingProxyType({})
) -> list[OutputPart]:
    """Return the parts of `documents/`.

    A part has one source, at most `part_documents` kept documents and at most `part_bytes` of text, but at least one
    document. Parts of a source are about equal, so no worker waits long for the last part.

    state    the result of the last segment
    copies   source -> how many times its documents are written, one whole copy after the other; default 1. Not used if
             `state` has a number of copies for each document: then all first copies of a source are written, then all
             second copies, and so on
    """
    parts: list[OutputPart] = []

    def add(name: str, spans: Sequence[RowSpan], copy: int, total: int) -> None:
        parts.extend(
            OutputPart(number, name, *span, copy, total // len(spans)) for number, span in enumerate(spans, len(parts))
        )

    for name, low, high in state.partitions.inputs:
        if state.copies:
            for copy in count():
                spans, total = _spans_of(state, output, low, high, copy)
                if not spans:
                    break
                add(name, spans, copy, total)
        else:
            spans, total = _spans_of(state, output, low, high, 0)
            for copy in range(copies.get(name, 1)):
                add(name, spans, copy, total)
    return parts


def _spans_of(state: SegmentState, output: Output, low: int, high: int, copy: int) -> tuple[list[RowSpan], int]:
    """Return the row spans of the output parts for copy number `copy` of an input, and their bytes of text."""
    pieces = list(state.sums.pieces(low, high, copy))
    total = sum(int(ends[-1]) for _, _, ends in pieces if len(ends))
    target = -(-total // max(-(-total // output.part_bytes), 1))
    return list(cut_pieces(pieces, target, output.part_documents)), total


def divide_parts(parts: Sequence[OutputPart]) -> np.ndarray:
    """Return the first part of each task, then the number of parts; int64. Small parts share a task."""
    firsts, size, documents = list[int](), 0, 0
    most_bytes = max(min(sum(part.bytes for part in parts) // MIN_TASKS, LARGE_BYTES), SHARED_BYTES)
    most_documents = max(min(sum(part.documents for part in parts) // MIN_TASKS, LARGE_DOCUMENTS), SHARED_DOCUMENTS)
    for part in parts:
        size, documents = size + part.bytes, documents + part.documents
        if not firsts or size > most_bytes or documents > most_documents:
            firsts.append(part.number)
            size, documents = part.bytes, part.documents
    return np.array([*firsts, len(parts)], np.int64)


class OutputJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the write phase. With the plan, it has everything to write any output part."""

    docs: np.ndarray  # int64: first doc of each slice
    partitions: Partitions
    mask: Path
    copies: Path | None
    output_parts: list[OutputPart]
    tasks: np.ndarray  # int64: first part of each task, then the number of parts
    work: Path
    documents: Path
    engine: str


def write_output_parts(plan: Plan, job: OutputJob, number: int) -> TaskCounts:
    """Write the parts of a task, then the done-record."""
    first, last = job.tasks[number : number + 2].tolist()
    recipe, records = plan.recipe, list[dict[str, Any]]()
    schema = document_schema(
        plan.slices.carried, recipe.stages, splits=bool(recipe.output.splits), types=recipe.column_types
    )
    with RunningNote(job.work, number) as note:
        task = _Task(plan, job, schema, load_mapped(job.copies or job.mask), note, load_engine(job.engine))
        parts = job.output_parts[first:last]
        groups = _row_groups(task, parts)
        for part in parts:
            records.append(_write_part(task, part, groups, part_counts(records)))
    write_sealed(numbered_path(job.work, number, ".json"), {"parts": records})
    return part_counts(records)


class _Task(NamedTuple):
    """What the parts of a task share. `schema` is the schema of `documents/`. `mask` says for each row whether it is
    kept, or how many copies of it are written."""

    plan: Plan
    job: OutputJob
    schema: pa.Schema
    mask: np.ndarray
    note: RunningNote
    engine: Engine


RowGroup = tuple[pa.Table, Encoded | None]


def _row_groups(task: _Task, parts: Sequence[OutputPart]) -> Iterator[RowGroup | None]:
    """Yield the row groups of all parts, in order, and None after the last of each part.

    Each has its tokens, from a call for as many row groups as the engine tokenises at once. It has none if nothing is
    tokenised, or if the engine writes the file: then a frame has its texts.
    """
    plan, output = task.plan, task.plan.recipe.output
    is_encoded = bool(output.formats) and not (output.documents and output.parquet == "gpu")
    most = task.engine.tokens_at_once() if is_encoded else 1
    waiting, size = list[pa.Table | None](), 0

    def taken() -> Iterator[RowGroup | None]:
        columns = [table.column(TEXT) for table in waiting if table is not None]
        encoded: Iterator[Encoded | None] = repeat(None)
        if is_encoded and columns:
            encoded = encode_together(task.engine, load_tokenizer(plan.recipe.tokenizer), columns)
        for table in waiting:
            yield None if table is None else (table, next(encoded))
        waiting.clear()

    for part in parts:
        for table in row_groups(_kept_documents(task, part)):
            waiting.append(table)
            size += table.column(TEXT).nbytes
            if size >= most:
                yield from taken()
                size = 0
        waiting.append(None)
        if not size:  # no other part's tables wait with this end
            yield from taken()
    yield from taken()


def _write_part(task: _Task, part: OutputPart, groups: Iterator[RowGroup | None], before: TaskCounts) -> dict[str, Any]:
    """Write `documents/part-NNNNN.parquet` and the tokens of its documents, and return its record.

    With `output.documents: false`, only tokens are written. `groups` has the row groups of the part next, then None.
    `before` has the counts of earlier parts of the task.
    """
    started, number = time.perf_counter(), part.number
    plan, job, output = task.plan, task.job, task.plan.recipe.output
    path = document_path(job.documents.parent, number) if output.documents is True else None
    digest = hashlib.sha256()
    tally: dict[str, Any] = {"source": part.source, "documents": 0, "bytes": 0, "tokens": 0, "special_hits": 0}
    tally |= {"copy": part.copy, "untokenised": 0, "untokenised_names": []}
    lengths, languages = Tally(), Counter[str]()
    engine = task.engine
    files = token_files(plan.recipe, engine, job.work, number) if output.formats else nullcontext()
    stored = stored_documents(job.work, number, task.schema) if output.shuffles_documents else nullcontext()
    with (
        files as tokens,
        stored as store,
        _document_file(output, job.engine, path, task.schema) if path else nullcontext() as file,
    ):
        if tokens and tokens.tokenizer.identity != plan.tokenizer:
            name = plan.recipe.tokenizer.name
            raise IntegrityError(f"a file of tokenizer {name} changed during the run. Put it back, then run again")
        while (group := next(groups)) is not None:
            check_interrupts()
            (table, encoded), splits = group, None
            if output.splits:
                texts = table.column(TEXT).cast(pa.large_binary()).to_pylist()
                splits = assign_splits(texts, output.splits, plan.recipe.seed)
                names = pa.array(split_names(output.splits), pa.string())
                table = table.set_column(table.column_names.index(SPLIT), SPLIT, names.take(pa.array(splits)))
            frame = file.write(table) if file else None
            if store and splits is not None:  # such runs have splits
                store.write(table, splits)
            _digest_documents(digest, table)
            tally["documents"] += len(table)
            sizes = pc.fill_null(pc.binary_length(table.column(TEXT)), 0).to_numpy()
            tally["bytes"] += int(sizes.sum())
            lengths.add(tally_of(sizes))
            languages += count_languages(plan.recipe.stages, table)
            if tokens:
                column = None if frame is None else frame[TEXT]
                found = tokens.write(table.column(TEXT), splits, column, encoded)
                names = [[table["doc"][row].as_py(), piece] for row, piece in found[:NAMED_DOCUMENTS]]
                tally["untokenised"] += len(found)
                tally["untokenised_names"] = [*tally["untokenised_names"], *names][:NAMED_DOCUMENTS]
            documents = before.documents + tally["documents"]
            task.note.write(documents, before.bytes + tally["bytes"], documents)
    if tokens:
        tally |= tokens.counts()
    if path:
        tally |= {"file": path.name, "sha256": file_sha256(path)}
    tally |= {"digest": digest.hexdigest(), "lengths": msgspec.to_builtins(lengths), "languages": languages}
    tally["seconds"] = time.perf_counter() - started
    return tally


def part_counts(records: Sequence[dict[str, Any]]) -> TaskCounts:
    """Return the counts of output parts for the display of progress."""
    documents, size = (sum(record[name] for record in records) for name in ("documents", "bytes"))
    return TaskCounts(documents, size, documents)


@contextmanager
def _document_file(output: Output, engine: str, path: Path, schema: pa.Schema) -> Iterator[TableFile]:
    """Yield a new file of `documents/`. It gets its final name when the block ends without an error."""
    writer = encoding_engine(output, engine)
    with commit(path) as temporary, writer.parquet_file(temporary, schema, document_options(schema)) as file:
        yield file


def count_languages(stages: Sequence[Stage], table: pa.Table) -> Counter[str]:
    """Return the number of documents per language, by the column of the last `language` stage; empty without such a
    column."""
    if not (column := language_column(stages)):
        return Counter()
    counts = pc.value_counts(table.column(column).combine_chunks())
    names = (name or UNLABELLED for name in counts.field("values").to_pylist())
    return Counter(dict(zip(names, counts.field("counts").to_pylist(), strict=True)))


def _kept_documents(task: _Task, part: OutputPart) -> Iterator[pa.Table]:
    """Yield the documents of an output part, batch by batch, in the schema of `documents/`."""
    plan, job, copy = task.plan, task.job, part.copy if task.job.copies else 0
    added = added_columns(plan.recipe.stages)
    numbering = Numbering(plan.slices, job.docs)
    for span in job.partitions.spans(part.start, part.stop):
        first = plan.slices[int(plan.slices.task_starts[span.partition])]
        table = open_partition(job.partitions.path(span.partition))
        table = table.select([ROW, ID, TEXT, *first.columns, *added])
        table = table.slice(span.start, span.stop - span.start)
        done = int(job.partitions.starts[span.partition]) + span.start
        for batch in table.to_batches():
            kept = np.asarray(task.mask[done : done + len(batch)]) > copy
            done += len(batch)
            rows = pa.Table.from_batches([batch]).filter(pa.array(kept))
            if len(rows):
                base = numbering.offset(span.partition)
                yield in_schema(with_ids(rows, part.source, base, first.is_split), task.schema)


def _digest_documents(digest: Any, table: pa.Table) -> None:
    """Add `doc`, `id` and `text` of the rows to a digest. For strings, their lengths are added too."""
    for name in ("doc", ID, TEXT):
        column = as_one_array(table.column(name))
        if pa.types.is_large_string(column.type):
            data, offsets = text_buffers(column)
            digest.update(np.diff(offsets).tobytes())
            digest.update(memoryview(data[offsets[0] : offsets[-1]]))
        else:
            digest.update(column.to_numpy().tobytes())


def write_empty_documents(folder: Path | None, schema: pa.Schema) -> dict[str, Any]:
    """Write one file without rows as the `documents/` of an empty result, and return its record. If `folder` is None,
    write no file."""
    digest = {"digest": hashlib.sha256().hexdigest()}
    if folder is None:
        return digest
    path = folder / "part-00000.parquet"
    with commit(path) as temporary:
        write_table(temporary, schema.empty_table(), document_options(schema))
    return {"file": path.name, "sha256": file_sha256(path)} | digest
