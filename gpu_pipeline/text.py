# SPDX-License-Identifier: Apache-2.0
"""Row-local operations on a cuDF string column: CUDA kernels over its buffers.

Documents are worked on in batches whose scratch stays below SCRATCH_SHARE times the column's text; with the columns
that a stage reads and writes this is less than six times the text. A thread has one document, so that a long one would
be worked on when all others are done: those go through the CPU engine, which owes the same results.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import cupy as cp
import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Engine, Frame
from curation.engine import load_engine
from curation.kernels import tables
from curation.kernels.ngrams import FREE
from curation.kernels.rewrite import FORM_FLAGS, RewriteSteps, output_bound, plan_steps
from curation.kernels.words import character_lanes
from curation.measures import NUM_MEASURES, Measure, wanted
from curation.stages.classifiers import Classifier
from curation.stages.ngram_table import TABLES_AT_ONCE, NgramTable
from curation.stages.normalization import normalize
from gpu_pipeline import kernels
from gpu_pipeline.buffers import (
    DEVICE,
    buffers_of,
    memory_errors,
    out_of_memory,
    prepare_device,
    say_that_memory_is_short,
    series_of,
    string_array,
)

if TYPE_CHECKING:
    import cudf

Found = TypeVar("Found")

SCRATCH_SHARE = 3
MIN_SCRATCH_BYTES = 16 << 20  # less is not worth a launch: where it is not there, the device is full
# Longer documents are the CPU engine's. A thread is expected to measure 1 MB/s, ten times that elsewhere. Unmeasured.
LONG_BYTES = 1 << 18
LONG_MEASURED_BYTES = 1 << 16
SORTED_BYTES = 52  # of a hash while a batch of them is sorted


@cache
def _device_tables() -> tuple[tables.UnicodeTables, tuple[cp.ndarray, ...]]:
    """The Unicode tables and the lanes of characters, copied to the device once per process."""
    unicode = tables.load_tables()
    return tables.UnicodeTables(*map(cp.asarray, unicode)), tuple(map(cp.asarray, character_lanes(unicode)))


class Column(NamedTuple):
    """A text column as the kernels take it: `documents`, and what memory is laid out by."""

    data: cp.ndarray
    offsets: cp.ndarray
    valid: cp.ndarray
    nulls: cp.ndarray | None  # `valid`, or None where all are
    lengths: cp.ndarray  # in bytes; 0 of a null
    long: np.ndarray  # rows of the documents for the CPU engine, ascending
    bytes: int

    def documents(self, first: int, last: int) -> tuple[cp.ndarray, ...]:
        """What every kernel takes first: data, offsets, valid, and the rows first to last - 1 but the long ones,
        longest first."""
        order = kernels.longest_first(self.lengths[first:last]) + first
        return self.data, self.offsets, self.valid, order[len(self.long_between(first, last)) :]

    def long_between(self, first: int, last: int) -> np.ndarray:
        return self.long[slice(*np.searchsorted(self.long, (first, last)))]


def _load(text: "cudf.Series", long_bytes: int = LONG_BYTES) -> Column:
    prepare_device()
    data, offsets, nulls = buffers_of(text)
    valid = cp.ones(len(text), bool) if nulls is None else nulls
    lengths = cp.where(valid, offsets[1:] - offsets[:-1], 0)
    long = cp.asnumpy(cp.flatnonzero(lengths > long_bytes))
    return Column(data, offsets, valid, nulls, lengths, long, int(lengths.sum()))


def _on_cpu(text: "cudf.Series", rows: np.ndarray, function: Callable[[Engine, Frame], Found]) -> Found:
    """`function` of the CPU engine and a frame of these rows' texts."""
    engine = load_engine("cpu")
    return function(engine, engine.from_arrow(pa.table({TEXT: string_array(text.take(rows))})))


def _add_long(
    text: "cudf.Series", column: Column, results: Sequence[np.ndarray], function: Callable[..., Sequence[np.ndarray]]
) -> None:
    """Puts what the CPU engine gives for the long documents into their places in the results of all."""
    if len(column.long):
        for values, found in zip(results, _on_cpu(text, column.long, function), strict=True):
            values[column.long] = found


def _in_batches(byte_starts: np.ndarray, text_bytes: int, run: Callable[[int, int], None]) -> None:
    """Calls run(first, last) for one batch of rows after the other: as many as take SCRATCH_SHARE times the text, or
    half of it if that does not fit, and so on. `run` is called again with fewer rows where it ran out of memory."""
    first, limit = 0, max(SCRATCH_SHARE * text_bytes, MIN_SCRATCH_BYTES)
    while first < len(byte_starts) - 1:
        last = kernels.batch_end(byte_starts, first, limit)
        try:
            run(first, last)
        except MemoryError as error:  # CuPy's and RMM's are both of this kind
            if limit <= MIN_SCRATCH_BYTES:
                raise out_of_memory(int(byte_starts[last] - byte_starts[first])) from error
            say_that_memory_is_short()
            limit //= 2
        else:
            first = last


# Rewriting


def _normalise(text: "cudf.Series", column: Column, form: str) -> tuple[cp.ndarray, pa.LargeStringArray]:
    """Which rows can change, and these documents in the form: rewritten on the host, there are few."""
    rows = cp.zeros(0, np.int64)
    if form != "keep":
        with DEVICE:
            unicode, _ = _device_tables()
            found = cp.zeros(len(text), bool)
            properties = unicode.pages, unicode.records, unicode.flags, unicode.combining
            documents = column.documents(0, len(text))
            kernels.launch(kernels.find_unnormalised, len(text), *documents, FORM_FLAGS[form], *properties, found)
            rows = cp.flatnonzero(found)
    return rows, normalize(string_array(text.take(rows)) if rows.size else [], form)


def _rewrite_long(text: "cudf.Series", rows: np.ndarray, steps: RewriteSteps) -> tuple[list[np.ndarray], np.ndarray]:
    """The bytes of the rewritten long documents, and which of them changed."""

    def rewritten(engine: Engine, frame: Frame) -> tuple[list[np.ndarray], np.ndarray]:
        text, edited = engine.rewrite(frame[TEXT], steps)
        column = engine.to_arrow(engine.with_columns(frame, {TEXT: text})).column(TEXT)
        return [np.frombuffer(document.as_buffer(), np.uint8) for document in column], edited

    return _on_cpu(text, rows, rewritten) if len(rows) else ([], np.zeros(0, bool))


@memory_errors()
def rewrite(text: "cudf.Series", steps: RewriteSteps) -> tuple["cudf.Series", np.ndarray]:
    plan = plan_steps(steps)
    if steps == RewriteSteps() or len(text) == 0:
        return text, np.zeros(len(text), bool)
    column = _load(text)
    long_texts, long_edited = _rewrite_long(text, column.long, steps)
    form_rows, normalised = _normalise(text, column, steps.unicode)
    if steps == RewriteSteps(unicode=steps.unicode) and len(normalised) == 0 and not long_edited.any():
        return text, np.zeros(len(text), bool)
    with DEVICE:
        unicode, _ = _device_tables()
        form_row = cp.full(len(text), -1, np.int64)
        form_row[form_rows] = cp.arange(len(normalised), dtype=np.int64)
        form_data, form_offsets, _ = buffers_of(normalised)
        bounds = column.lengths.copy()
        bounds[form_rows] = form_offsets[1:] - form_offsets[:-1]
        long = cp.asarray(column.long)
        bounds[long] = cp.asarray([len(document) for document in long_texts], dtype=np.int64)
        region_starts = cp.asnumpy(kernels.starts_of(output_bound(bounds, steps)))
        sizes, edited = cp.zeros(len(text), np.int64), cp.zeros(len(text), bool)
        sizes[long], edited[long] = bounds[long], cp.asarray(long_edited)
        pieces: list[cp.ndarray] = []

        def run(first: int, last: int) -> None:
            regions = region_starts[first : last + 1] - region_starts[first]
            scattered = cp.empty(int(regions[-1]), np.uint8)
            on_device = cp.asarray(regions)
            kernels.launch(
                kernels.rewrite_rows, last - first, *column.documents(first, last), form_row, form_data, form_offsets,
                first, on_device, scattered, cp.asarray(plan), *unicode[:3], unicode.lower, sizes, edited,
            )  # fmt: skip
            for number, row in enumerate(column.long.tolist()):
                if first <= row < last:
                    start = int(regions[row - first])
                    scattered[start : start + len(long_texts[number])] = cp.asarray(long_texts[number])
            ends = kernels.starts_of(sizes[first:last])
            out = cp.empty(int(ends[-1]), np.uint8)
            kernels.launch_blocks(kernels.gather_rows, last - first, on_device[:-1], ends, scattered, out)
            pieces.append(out)

        _in_batches(region_starts, column.bytes, run)
        out = pieces[0] if len(pieces) == 1 else cp.concatenate(pieces)
        return series_of(out, kernels.starts_of(sizes), text.index, column.nulls, text.name), cp.asnumpy(edited)


# Measures


def _scratch(word_starts: np.ndarray, slot_starts: np.ndarray) -> tuple[cp.ndarray, ...]:
    """Scratch for one batch, in the order of the kernel's arguments; the starts count from the batch's first row."""
    words = (cp.empty(int(word_starts[-1]), kind) for kind in kernels.WORD_TYPES)
    table = cp.empty((max(int(slot_starts[-1]), 2), 2), np.uint64)  # not one slot: Numba would take it for contiguous
    table[:, 1] = 0
    halves = table.view(np.int32)
    return cp.asarray(word_starts), cp.asarray(slot_starts), *words, table[:, 0], halves[:, 2], halves[:, 3]


def _measure_on_device(column: Column, names: tuple[str, ...], result: np.ndarray) -> None:
    """Writes one row of `result` per name. Rows go in the order of their length, so that those that run side by side
    take about as long."""
    unicode, lanes = _device_tables()
    plan = wanted(names)
    chosen = cp.asarray([int(Measure[name]) for name in names])
    *buffers, order = column.documents(0, result.shape[1])
    words = cp.zeros(order.size, np.int64)
    kernels.launch(kernels.count_row_words, order.size, *buffers, order, *unicode[:2], *lanes, words)
    slots = kernels.table_slots(words) if plan.lines or plan.distinct or plan.max_ngram else cp.zeros_like(words)
    word_starts, slot_starts, rows = map(cp.asnumpy, (kernels.starts_of(words), kernels.starts_of(slots), order))

    def run(first: int, last: int) -> None:
        piece = slice(first, last + 1)
        scratch = _scratch(word_starts[piece] - word_starts[first], slot_starts[piece] - slot_starts[first])
        out = cp.zeros((NUM_MEASURES, last - first), np.int32)
        documents = *buffers, order[first:last]
        kernels.launch(kernels.measure_rows, last - first, *documents, *unicode[:3], *lanes, *plan, *scratch, out)
        result[:, rows[first:last]] = cp.asnumpy(out[chosen])

    out_starts = np.arange(len(word_starts)) * (4 * NUM_MEASURES)
    byte_starts = word_starts * kernels.WORD_BYTES + slot_starts * kernels.SLOT_BYTES + out_starts
    _in_batches(byte_starts, column.bytes, run)


@memory_errors()
def measure(text: "cudf.Series", names: Sequence[str]) -> dict[str, np.ndarray]:
    result = np.zeros((len(names), len(text)), np.int64)
    if result.size:
        column = _load(text, LONG_MEASURED_BYTES)
        with DEVICE:
            _measure_on_device(column, tuple(names), result)
        if len(column.long):
            found = _on_cpu(text, column.long, lambda engine, frame: engine.measure(frame[TEXT], names))
            for name, values in zip(names, result, strict=True):
                values[column.long] = found[name]
    return dict(zip(names, result, strict=True))


# Hashes and labels


@memory_errors()
def hash_text(text: "cudf.Series", max_characters: int = 0) -> np.ndarray:
    if len(text) == 0:
        return np.zeros((0, 2), np.uint64)
    column = _load(text)
    with DEVICE:
        out = cp.empty((len(text), 2), np.uint64)
        kernels.launch(kernels.hash_rows, len(text), *column.documents(0, len(text)), max_characters, out)
        result = cp.asnumpy(out)
    if len(column.long):
        result[column.long] = _on_cpu(
            text, column.long, lambda engine, frame: engine.hash_text(frame[TEXT], max_characters)
        )
    return result


def byte_lengths(text: "cudf.Series") -> np.ndarray:
    _, offsets, nulls = buffers_of(text)
    lengths = cp.asnumpy(offsets[1:] - offsets[:-1])
    return lengths if nulls is None else np.where(cp.asnumpy(nulls), lengths, 0)


@cache
def _device_model(model: Classifier) -> tuple[cp.ndarray, ...]:
    return tuple(map(cp.asarray, model.tables))


@memory_errors()
def classify(text: "cudf.Series", model: Classifier, max_characters: int) -> tuple[np.ndarray, np.ndarray]:
    column = _load(text)
    with DEVICE:
        tables_of_model = _device_model(model)
        label, score = cp.zeros(len(text), np.int32), cp.zeros(len(text), np.int64)
        *buffers, order = column.documents(0, len(text))

        def run(first: int, last: int) -> None:
            scratch = cp.empty((last - first, model.scratch_items), np.int64)
            arguments = order[first:last], max_characters, *tables_of_model, scratch, label, score
            kernels.launch(kernels.classify_rows, last - first, *buffers, *arguments)

        _in_batches(np.arange(order.size + 1) * (8 * model.scratch_items), column.bytes, run)
        result = cp.asnumpy(label), cp.asnumpy(score)
    _add_long(text, column, result, lambda engine, frame: engine.classify(frame[TEXT], model, max_characters))
    return result


# Near-duplicates


class Shingling(NamedTuple):
    """What n-grams are made of, and the bytes that their use takes: per document, and per item that it may have."""

    ngram: int
    by_character: bool
    row_bytes: int = 0
    item_bytes: int = 0


def _for_each_hashed(column: Column, shingling: Shingling, use: Callable[..., None]) -> None:
    """Calls use(first, hashes, starts, counts) for one batch of consecutive documents after the other: the n-gram
    hashes of row first + k are the first counts[k] from starts[k]; a long document has none."""
    unicode, _ = _device_tables()
    lengths = column.lengths.copy()
    lengths[cp.asarray(column.long)] = 0
    items = lengths if shingling.by_character else (lengths + 1) // 2  # two words have a white space between them
    item_starts = cp.asnumpy(kernels.starts_of(items))

    def run(first: int, last: int) -> None:
        starts = cp.asarray(item_starts[first : last + 1] - item_starts[first])
        hashes = cp.empty(int(item_starts[last] - item_starts[first]), np.uint64)
        counts = cp.zeros(last - first, np.int64)
        settings = shingling.ngram, shingling.by_character
        arguments = *column.documents(first, last), *settings, *unicode[:3], first, starts, hashes, counts
        kernels.launch(kernels.shingle_rows, last - first, *arguments)
        use(first, hashes, starts, counts)

    row_starts = np.arange(len(item_starts)) * shingling.row_bytes
    _in_batches(item_starts * (kernels.HASH_BYTES + shingling.item_bytes) + row_starts, column.bytes, run)


def _signed(
    hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray, constants: tuple[cp.ndarray, ...]
) -> cp.ndarray:
    signed = cp.empty((len(counts), len(constants[0])), np.uint32)
    kernels.launch_blocks(kernels.sign_rows, len(counts), hashes, starts, counts, *constants, signed)
    return signed


@memory_errors()
def signatures(text: "cudf.Series", ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = np.empty((len(text), len(a)), np.uint32)
    column = _load(text)
    with DEVICE:
        constants = cp.asarray(a), cp.asarray(b)

        def sign(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
            out[first : first + len(counts)] = cp.asnumpy(_signed(hashes, starts, counts, constants))

        _for_each_hashed(column, Shingling(ngram, by_character, 4 * len(a)), sign)
    if len(column.long):
        out[column.long] = _on_cpu(
            text, column.long, lambda engine, frame: engine.signatures(frame[TEXT], ngram, by_character, a, b)
        )
    return out


@memory_errors()
def band_keys(
    text: "cudf.Series", ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray, rows: int
) -> np.ndarray:
    out = np.empty((len(a) // rows, len(text)), np.uint64)  # a band is one column of the result, in one piece
    column = _load(text)
    with DEVICE:
        constants = cp.asarray(a), cp.asarray(b)

        def key(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
            signed = _signed(hashes, starts, counts, constants)
            keys = cp.empty((len(out), len(counts)), np.uint64)
            kernels.launch(kernels.key_rows, keys.size, signed, rows, keys)
            out[:, first : first + len(counts)] = cp.asnumpy(keys)

        _for_each_hashed(column, Shingling(ngram, by_character, 4 * len(a) + 8 * len(out)), key)
    if len(column.long):
        out[:, column.long] = _on_cpu(
            text, column.long, lambda engine, frame: engine.band_keys(frame[TEXT], ngram, by_character, a, b, rows)
        ).T
    return out.T


def _sorted_distinct(hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """The distinct hashes of each document, sorted within it, and how many each has."""
    ends = kernels.starts_of(counts)
    total = int(ends[-1])
    if total == 0:
        return hashes[:0], counts
    document = (cp.searchsorted(ends, cp.arange(total), side="right") - 1).astype(np.int32)
    packed = hashes[cp.arange(total) + (starts[:-1] - ends[:-1])[document]]
    order = cp.argsort(packed, kind="stable")  # by two radix sorts; CuPy's lexsort compares
    packed, document = packed[order], document[order]
    order = cp.argsort(document, kind="stable")
    packed, document = packed[order], document[order]
    fresh = cp.ones(total, bool)
    fresh[1:] = (packed[1:] != packed[:-1]) | (document[1:] != document[:-1])
    return packed[fresh], cp.bincount(document[fresh], minlength=len(counts))


@memory_errors()
def shingles(text: "cudf.Series", ngram: int, by_character: bool) -> tuple[np.ndarray, np.ndarray]:
    if len(text) == 0:
        return np.zeros(0, np.uint64), np.zeros(1, np.int64)
    pieces: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    column = _load(text)

    def keep(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
        distinct, numbers = _sorted_distinct(hashes, starts, counts)
        pieces.append(cp.asnumpy(distinct))
        sizes.append(cp.asnumpy(numbers))

    with DEVICE:
        # A third as many words as there may be is the rule.
        _for_each_hashed(column, Shingling(ngram, by_character, 0, SORTED_BYTES // (1 if by_character else 3)), keep)
    hashes, offsets = np.concatenate(pieces), kernels.starts_of(np.concatenate(sizes))
    if len(column.long):
        found = _on_cpu(text, column.long, lambda engine, frame: engine.shingles(frame[TEXT], ngram, by_character))
        return _inserted(hashes, offsets, column.long, found)
    return hashes, offsets


def _inserted(hashes: np.ndarray, offsets: np.ndarray, rows: np.ndarray, found: Any) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of all documents, with those of `rows`, which have none so far, in their places."""
    pieces = np.split(hashes, offsets[rows])
    sizes = np.diff(offsets)
    sizes[rows] = np.diff(found[1])
    between = np.split(found[0], found[1][1:-1])
    joined = [piece for pair in zip(pieces, [*between, hashes[:0]], strict=True) for piece in pair]
    return np.concatenate(joined), kernels.starts_of(sizes)


@lru_cache(maxsize=TABLES_AT_ONCE)
def _device_ngrams(table: NgramTable) -> tuple[cp.ndarray, cp.ndarray]:
    return cp.asarray(table.keys), cp.asarray(table.owners)


@memory_errors()
def ngram_hits(text: "cudf.Series", table: NgramTable, ngram: int) -> tuple[np.ndarray, np.ndarray]:
    result = np.zeros(len(text), np.int64), np.full(len(text), FREE, np.int32)
    column = _load(text)
    with DEVICE:
        on_device = _device_ngrams(table)

        def look_up(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
            pieces = cp.zeros(len(counts), np.int64), cp.full(len(counts), FREE, np.int32)
            kernels.launch(kernels.find_rows, len(counts), hashes, starts, counts, *on_device, *pieces)
            for values, piece in zip(result, pieces, strict=True):
                values[first : first + len(counts)] = cp.asnumpy(piece)

        _for_each_hashed(column, Shingling(ngram, False, 12), look_up)
    _add_long(text, column, result, lambda engine, frame: engine.ngram_hits(frame[TEXT], table, ngram))
    return result
