# SPDX-License-Identifier: Apache-2.0
"""The training texts of `curation.check_overlap`: finished runs, files of documents, and `.bin/.idx` pairs.

A task reads one slice of files, or a range of the documents of a pair. It returns the n-grams of evaluation texts that
it has found, with the first documents that have each n-gram, and the texts whose vectors are nearest to each item.
Memory of a task: a batch of text, and these results.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.contract import ID, ROW, TEXT, Batch, Engine, Frame
from curation.base.errors import InputError
from curation.base.system.damage import damaged
from curation.kernels.ngram_table import NgramTable
from curation.reading import probe, rejections
from curation.reading.changes import check_unchanged
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.source_files import Slice
from curation.reading.streams import is_damage
from curation.reading.texts import local_inputs
from curation.record.folder import REPORT
from curation.record.tables import TablePart
from curation.results.finished.results import need_documents, open_finished
from curation.stages.corpus.similarity import ShingleSettings, compared_text
from curation.stages.exact.evaluation_items import KEY_WORDS, Evaluation
from curation.stages.exact.leaks import find_questions
from curation.tokens.indexed import IndexedReader, bare_prefix, check_ids
from curation.tokens.megatron import suffixed
from curation.tokens.repack import recorded_tokenizer
from curation.tokens.tokenization import Tokenizer, load_tokenizer
from curation.tools.overlap_vectors import Close, ItemVectors, VectorSearch, stored_column

SLICE_BYTES = 16 << 20
MODEL_SLICE_BYTES = 1 << 20  # models are slow: with more tasks, all workers are busy to the end
TASK_TOKENS = 4 << 20  # tokens of a pair per task
BATCH_TOKENS = 1 << 20


class FilesTask(NamedTuple):
    """A slice of files of documents, of a run or not, and the column of their stored vectors, if they have one."""

    slice: Slice
    stored: str = ""
    is_run: bool = False


class PairTask(NamedTuple):
    """The documents from `first` to `last` of a pair, with the tokenizer that decodes them."""

    prefix: Path
    first: int
    last: int
    tokenizer: Tokenizer


class WantedNgrams(NamedTuple):
    """The n-grams to find: their table, whose owners are positions in `hashes`, and the settings of n-grams.

    documents  number of documents to name per n-gram
    items      the items with a vector; None if only n-grams are compared
    questions  the items with short questions, and the table of these questions; None if there are none
    grams      int64: the first n-gram of each item, which is the only one of a short question
    """

    table: NgramTable
    hashes: np.ndarray
    settings: ShingleSettings
    documents: int
    items: ItemVectors | None = None
    questions: Evaluation | None = None
    grams: np.ndarray | None = None


class FoundNgrams(NamedTuple):
    """The n-grams that a task has found: `gram` is the position in `WantedNgrams.hashes`; `row` and `id` are those of a
    document with the n-gram. For each n-gram, these are the first `WantedNgrams.documents` documents. `id` is None for
    a record without one. `close` has the nearest texts of each item, if vectors are compared; `tally` counts the
    records of a slice."""

    gram: np.ndarray
    row: np.ndarray
    ids: np.ndarray
    source: str
    rows: int
    documents: int
    bytes: int
    rejected: int
    close: Close | None = None
    tally: rejections.RecordTally | None = None


def plan_tasks(train: Any, tokenizer: str, model: str) -> list[FilesTask | PairTask]:
    """Return the tasks that read the training texts: of runs, inputs as in a recipe, and pairs, in this order. With a
    `model`, the tasks of a run have the column of the vectors that it has stored by this model."""
    several = isinstance(train, Sequence) and not isinstance(train, str | bytes)
    files: list[Any] = []
    stored: dict[str, str] = {}  # folder of the documents of a run -> column of vectors
    tasks: list[FilesTask | PairTask] = []
    for given in train if several else [train]:
        path = Path(given).expanduser() if isinstance(given, str | os.PathLike) else None
        if path is not None and os.path.lexists(path / REPORT):
            run = open_finished(path)
            need_documents(run, "check-overlap")
            for part in run.parts("documents"):
                TablePart(part)  # checks it
            entry = {"path": str(path / "documents"), "format": "parquet", "text_column": TEXT, "id_column": ID}
            column = stored_column(run, model) if model else ""
            stored[str(entry["path"])] = column
            files.append(entry | ({"columns": [column]} if column else {}))
        elif path is not None and suffixed(bare_prefix(path), ".idx").is_file():
            tasks += _pair_tasks(path, tokenizer)
        else:
            files.append(given)
    inputs = local_inputs(files, "train: ") if files else []
    slices = plan_slices([probe(file) for file in find_files(inputs)], MODEL_SLICE_BYTES if model else SLICE_BYTES)
    folders = ((part, os.path.dirname(part.ranges[0].file.path)) for part in slices)
    return [*(FilesTask(part, stored.get(folder, ""), folder in stored) for part, folder in folders), *tasks]


def is_documents(path: str) -> bool:
    """Return whether a path of training texts means files of documents, not a run or a pair."""
    plain = Path(path).expanduser()
    return not os.path.lexists(plain / REPORT) and not suffixed(bare_prefix(plain), ".idx").is_file()


def _pair_tasks(path: Path, tokenizer: str) -> Iterator[PairTask]:
    reader = IndexedReader(path)
    if tokenizer:
        loaded: Tokenizer | None = load_tokenizer(tokenizer)
    else:
        loaded, note = recorded_tokenizer(reader.prefix)
        if loaded is None:
            raise InputError(f"{reader.prefix}.bin cannot be decoded: {note}. Name its tokenizer with --tokenizer")
    assert loaded is not None
    check_ids(f"{reader.prefix}.bin", reader.tokens, loaded.vocabulary)
    first = 0
    while first < len(reader.documents) - 1:
        last, tokens = first, 0
        while last < len(reader.documents) - 1 and tokens < TASK_TOKENS:
            tokens += int(reader.lengths[reader.documents[last] : reader.documents[last + 1]].sum(dtype=np.int64))
            last += 1
        yield PairTask(reader.prefix, first, last, loaded)
        first = last


def find_ngrams(engine: Engine, wanted: WantedNgrams, task: FilesTask | PairTask) -> FoundNgrams:
    """Read the documents of a task and return the n-grams found in them."""
    gram, row = np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids = np.zeros(0, object)
    rows = documents = text_bytes = rejected = 0
    tally = None
    stored = task.stored if isinstance(task, FilesTask) else ""
    search = VectorSearch(engine, wanted.items, stored) if wanted.items is not None else None
    batches = _batches(engine, task) if isinstance(task, FilesTask) else _decoded(engine, task)
    for frame, batch_rows, batch in batches:
        rows += batch_rows
        if batch is not None and isinstance(task, FilesTask):
            rejected += len(batch.rejected)
            tally = rejections.add(tally, task.slice, batch)
            if task.is_run and (damage := [entry for entry in batch.rejected if is_damage(entry.error)]):
                raise damaged(task.slice.ranges[damage[0].file_index].file.path, damage[0].error)
        documents += len(frame)
        text_bytes += int(engine.byte_lengths(frame[TEXT]).sum())
        if search is not None:
            search.add(frame)
        new = _matches(engine, wanted, frame)
        gram, row, ids = first_per_group(
            np.concatenate([gram, new[0]]), np.concatenate([row, new[1]]), np.concatenate([ids, new[2]]),
            wanted.documents,
        )  # fmt: skip
    source = task.slice.source if isinstance(task, FilesTask) else task.prefix.name
    close = search.close if search is not None else None
    return FoundNgrams(gram, row, ids, source, rows, documents, text_bytes, rejected, close, tally)


def first_per_group(
    group: np.ndarray, order: np.ndarray, values: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows with the `limit` lowest `order` numbers of each group, sorted by group and order."""
    by_order = np.lexsort((order, group))
    group, order, values = group[by_order], order[by_order], values[by_order]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    rank = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
    kept = rank < limit
    return group[kept], order[kept], values[kept]


def _matches(engine: Engine, wanted: WantedNgrams, frame: Frame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (n-gram, row, id) for the distinct wanted n-grams of each document of a frame."""
    text = compared_text(engine, frame[TEXT], wanted.settings)
    hits = engine.ngram_hits(text, wanted.table, wanted.settings.ngram)[0] > 0
    if wanted.questions is not None and wanted.questions.keys is not None:
        hits |= engine.ngram_hits(text, wanted.questions.keys, KEY_WORDS)[0] > 0
    if not hits.any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, object)
    having = engine.filter_rows(engine.with_columns(frame[[ROW, ID, TEXT]], {TEXT: text}), hits)
    hashes, offsets = engine.shingles(having[TEXT], wanted.settings.ngram, False)
    positions = np.searchsorted(wanted.hashes, hashes)
    matched = wanted.hashes[np.minimum(positions, len(wanted.hashes) - 1)] == hashes
    grams, number = positions[matched], np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[matched]
    columns = engine.to_arrow(having)
    if wanted.questions is not None and wanted.grams is not None:
        texts = [text or "" for text in columns.column(TEXT).to_pylist()]
        asked = enumerate(find_questions(engine, texts, wanted.questions.items))
        pairs = [(wanted.grams[item], document) for document, items in asked for item in sorted(items)]
        both = np.array([*zip(grams, number, strict=True), *pairs], np.int64).reshape(-1, 2)
        grams, number = np.unique(both, axis=0).T
    ids = np.array(columns.column(ID).to_pylist(), object)
    return grams, columns.column(ROW).to_numpy()[number], ids[number]


def _batches(engine: Engine, task: FilesTask) -> Iterator[tuple[Frame, int, Batch | None]]:
    """Yield the batches of a slice: the frame, records, and the batch itself."""
    for batch in engine.read_slice(task.slice, engine.batch_bytes(1)):
        yield batch.frame, batch.rows, batch
    check_unchanged(task.slice)


def _decoded(engine: Engine, task: PairTask) -> Iterator[tuple[Frame, int, Batch | None]]:
    """Decode the documents of a `.bin/.idx` pair, and yield them in batches."""
    reader = IndexedReader(task.prefix)
    numbers: list[int] = []
    texts: list[str] = []
    tokens = 0
    for number in range(task.first, task.last):
        ids = [reader[k] for k in range(int(reader.documents[number]), int(reader.documents[number + 1]))]
        texts.append("".join(decode_words(task.tokenizer, part) for part in ids))
        numbers.append(number)
        tokens += sum(map(len, ids))
        if tokens >= BATCH_TOKENS or number == task.last - 1:
            columns = {
                ROW: pa.array(numbers, pa.int64()),
                ID: pa.array([f"{task.prefix.name}/{k}" for k in numbers], pa.large_string()),
                TEXT: pa.array(texts, pa.large_string()),
            }
            yield engine.from_arrow(pa.table(columns)), len(numbers), None
            numbers, texts, tokens = [], [], 0


def decode_words(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """Return the text of ids. End-of-document and begin-of-sequence tokens become line ends: their texts would join the
    words next to them."""
    marks = [mark for mark in (tokenizer.eod, tokenizer.bos) if mark is not None]
    cuts = np.flatnonzero(np.isin(ids, marks))
    parts = np.split(ids, cuts)
    return "\n".join(tokenizer.decode(part[1:] if number else part) for number, part in enumerate(parts))
