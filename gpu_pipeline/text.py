# SPDX-License-Identifier: Apache-2.0
"""Row-local operations on a cuDF string column: CUDA kernels over its buffers.

The scratch of a batch of documents stays below SCRATCH_SHARE times the column's text. Together with the columns that a
stage reads and writes, memory stays below six times the text. If one thread handles one document (hashes, the language
model), a long document would finish long after the others. The CPU engine takes such documents, and those whose n-grams
exceed a batch.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import cupy as cp
import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.base.engine import load_engine
from curation.kernels.language_model import NUM_RESULTS
from curation.kernels.look_alikes import load_look_alikes
from curation.kernels.minhash import EMPTY
from curation.kernels.ngram_table import TABLES_AT_ONCE, NgramTable
from curation.kernels.ngrams import FREE
from curation.kernels.rewrite import RewriteSteps, output_bound, plan_steps
from curation.kernels.stop_words import TABLES_KEPT, StopWords
from curation.kernels.tables import UnicodeTables
from curation.kernels.word_breaks import PIECES, SCRIPTS, SPACES, TABLE
from curation.kernels.word_lists import load_classes, load_word_lists
from curation.models.fasttext import Classifier
from curation.models.ngrams import LanguageModel
from gpu_pipeline import columns, measures, models
from gpu_pipeline.columns import NO_LIMIT, TextColumn, device_tables, documents_of, in_batches, load_column, pieces_of
from gpu_pipeline.kernels import core, document_kernels
from gpu_pipeline.kernels import rewrite_kernels as rewriting
from gpu_pipeline.kernels import stop_word_kernels as counting
from gpu_pipeline.kernels import word_break_kernels as breaking
from gpu_pipeline.memory import host_memory
from gpu_pipeline.memory.buffers import (
    LARGE_STRINGS,
    buffers_of,
    download,
    download_rows,
    eight_byte_blocks,
    series_of,
    string_array,
    upload,
)
from gpu_pipeline.memory.device import on_device, shared
from gpu_pipeline.normal_forms import normalised_documents

if TYPE_CHECKING:
    import cudf

Value = TypeVar("Value")

SORTED_BYTES = 52  # bytes per hash while a batch is sorted


def _on_cpu(text: "cudf.Series", rows: np.ndarray, function: Callable[[Engine, Frame], Value]) -> Value:
    """Call `function` with the CPU engine and a frame of the texts of these rows."""
    engine = load_engine("cpu")
    return function(engine, engine.from_arrow(pa.table({TEXT: string_array(text.take(rows))})))


def _add_long(
    text: "cudf.Series", rows: np.ndarray, results: Sequence[np.ndarray], function: Callable[..., Sequence[np.ndarray]]
) -> None:
    """Write the CPU engine's results for these rows into `results`."""
    if len(rows):
        for values, long_values in zip(results, _on_cpu(text, rows, function), strict=True):
            values[rows] = long_values


# Rewriting


@shared(1)
def _device_look_alikes() -> UnicodeTables:
    return UnicodeTables(*map(cp.asarray, load_look_alikes()))


@on_device()
def rewrite(text: "cudf.Series", steps: RewriteSteps) -> tuple["cudf.Series", np.ndarray]:
    plan = plan_steps(steps)
    if steps == RewriteSteps() or len(text) == 0:
        return text, np.zeros(len(text), bool)
    column = load_column(text, NO_LIMIT)
    unicode = _device_look_alikes() if steps.look_alikes else device_tables()[0]
    form_rows, form = normalised_documents(column, steps.unicode, (*unicode[:3], unicode.combining))
    only_form = steps == RewriteSteps(unicode=steps.unicode)
    if only_form and form_rows.size == 0:
        return text, np.zeros(len(text), bool)
    properties = *unicode[:3], unicode.lower
    form_row = cp.full(len(text), -1, np.int64)
    form_row[form_rows] = cp.arange(form_rows.size, dtype=np.int64)
    lengths, whole = column.lengths.copy(), documents_of(column.data, column.offsets)
    lengths[form_rows] = form.offsets[1:] - form.offsets[:-1]
    moved = form_rows.size > 0 or bool((lengths != column.offsets[1:] - column.offsets[:-1]).any())
    sizes, edited = cp.zeros(len(text), np.int64), cp.zeros(len(text), bool)
    outputs: list[cp.ndarray] = []

    def run(first: int, last: int) -> None:
        valid, before = column.valid[first:last], whole._replace(offsets=column.offsets[first : last + 1])
        source = before
        if moved:
            starts = core.starts_of(lengths[first:last])
            pieces = pieces_of(starts, valid)
            source = document_kernels.copied_documents(before, form_row[first:last], form, starts, *pieces)
        after = source if only_form else rewriting.rewrite_documents(source, plan, properties)
        sizes[first:last] = after.offsets[1:] - after.offsets[:-1]
        same_size = sizes[first:last] == before.offsets[1:] - before.offsets[:-1]
        edited[first:last] = valid & ~same_size
        pieces = pieces_of(after.offsets, valid & same_size)
        document_kernels.mark_edited(before, after, *pieces, edited[first:last])
        outputs.append(after.data)

    scratch = (rewriting.BATCH_BYTES + moved) * lengths + output_bound(lengths, steps)
    in_batches(cp.asnumpy(core.starts_of(scratch)), column.bytes, run)
    out = outputs[0] if len(outputs) == 1 else cp.concatenate(outputs)
    return series_of(out, core.starts_of(sizes), text.index, column.nulls, text.name), download(edited)


# Words


@shared(1)
def _device_classes() -> tuple[cp.ndarray, ...]:
    return tuple(map(cp.asarray, load_classes()))


@shared(1)
def _device_word_lists() -> tuple[cp.ndarray, ...]:
    return tuple(map(cp.asarray, load_word_lists()))


@on_device()
def split_words(text: "cudf.Series", words: str) -> tuple["cudf.Series", np.ndarray]:
    column = load_column(text, NO_LIMIT)
    whole = documents_of(column.data, column.offsets)
    wanted = column.valid & (words != SPACES)
    if words == SCRIPTS and len(text):
        wanted = breaking.divided_documents(*whole, column.valid, *_device_classes())
    rows = cp.flatnonzero(wanted)
    if not rows.size:
        return text[:0], download(wanted)
    lists, as_they_are = _device_word_lists(), cp.full(len(text), -1, np.int64)
    lengths, sizes = cp.where(wanted, column.lengths, 0), cp.zeros(len(text), np.int64)
    outputs: list[cp.ndarray] = []

    def run(first: int, last: int) -> None:
        batch, starts = slice(first, last), core.starts_of(lengths[first:last])
        before = whole._replace(offsets=column.offsets[first : last + 1])
        pieces = pieces_of(starts, wanted[batch])
        source = document_kernels.copied_documents(before, as_they_are[batch], whole, starts, *pieces)
        after = breaking.split_documents(source, words == TABLE, words == PIECES, lists)
        sizes[batch] = after.offsets[1:] - after.offsets[:-1]
        outputs.append(after.data)

    in_batches(cp.asnumpy(core.starts_of(breaking.BATCH_BYTES * lengths)), column.bytes, run)
    out = outputs[0] if len(outputs) == 1 else cp.concatenate(outputs)
    return series_of(out, core.starts_of(sizes[rows]), text.index[: rows.size], None, text.name), download(wanted)


@on_device()
def replace_texts(text: "cudf.Series", parts: "cudf.Series", wanted: np.ndarray) -> "cudf.Series":
    column, chosen = load_column(text, NO_LIMIT), upload(wanted)
    data, offsets, _ = buffers_of(parts)
    form, form_row = documents_of(data, offsets), cp.full(len(text), -1, np.int64)
    form_row[chosen] = cp.arange(len(parts), dtype=np.int64)
    lengths = column.lengths.copy()
    lengths[chosen] = offsets[1:] - offsets[:-1]
    starts = core.starts_of(lengths)
    pieces = pieces_of(starts, cp.ones(len(text), bool))
    whole = documents_of(column.data, column.offsets)
    merged = document_kernels.copied_documents(whole, form_row, form, starts, *pieces)
    return series_of(
        merged.data, starts, text.index, None if column.nulls is None else column.nulls | chosen, text.name
    )


@shared(TABLES_KEPT)
def _device_stop_words(table: StopWords) -> counting.ListedWords:
    arrays = (cp.asarray(each) for each in (table.filters, table.keys, table.starts, table.endings, table.ranks))
    filters, keys, starts, endings, ranks = arrays
    longest = int(table.ranks.max(initial=0)) + 1
    return counting.ListedWords(filters, keys, starts, int(table.shift), endings, ranks, longest)


@on_device()
def count_stop_words(text: "cudf.Series", table: StopWords, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    result = np.zeros(len(text), np.int64), np.zeros(len(text), np.int64)
    column, listed, own = load_column(text, NO_LIMIT), _device_stop_words(table), cp.asarray(numbers)
    data, offsets = column.data, column.offsets
    items = core.find_items(data, eight_byte_blocks(data), offsets, False, device_tables()[0][:3])
    has_list = column.valid & (own < len(table.filters))
    row_starts, byte_starts = cp.asnumpy(items.row_starts), cp.asnumpy(offsets)
    scratch = row_starts * counting.WORD_BYTES + np.arange(len(row_starts)) * counting.row_bytes(listed)

    def count(first: int, last: int) -> None:
        places = int(byte_starts[first]), int(byte_starts[last]), int(row_starts[first]), int(row_starts[last])
        starts = items.row_starts[first : last + 1] - row_starts[first]
        counts = cp.where(has_list[first:last], starts[1:] - starts[:-1], 0)
        pieces = measures.pieces_of(counts, core.PIECE)
        found = counting.count_batch(data, items, places, starts, counts, pieces, own[first:last], listed)
        for values, counted in zip(result, found, strict=True):
            values[first:last] = download(counted)

    in_batches(scratch, column.bytes, count)
    return result


# Measures


def _measure_on_device(column: TextColumn, names: tuple[str, ...], result: np.ndarray) -> np.ndarray:
    """Write one row of `result` per name; return the documents that the CPU engine must measure."""
    unicode, lanes = device_tables()
    valid = column.valid.copy()
    valid[cp.asarray(column.long)] = False
    others = [column.long]

    def run(first: int, last: int) -> None:
        if not valid[first:last].any():
            return
        documents = column.data, column.offsets[first : last + 1], valid[first:last]
        values, unsettled = measures.measure_batch(*documents, unicode, lanes, names)
        result[:, first:last] = download(values)
        others.append(cp.asnumpy(unsettled) + first)

    byte_starts = cp.asnumpy(column.offsets) * measures.batch_bytes(names)
    in_batches(
        byte_starts + np.arange(len(byte_starts)) * measures.ROW_BYTES, column.bytes, run, measures.BATCH_BYTES << 30
    )
    return np.concatenate(others)


@on_device()
def measure(text: "cudf.Series", names: Sequence[str]) -> dict[str, np.ndarray]:
    result = host_memory.empty((len(names), len(text)), np.int64)
    result.fill(0)
    if result.size:
        column = load_column(text, columns.LONG_MEASURED_BYTES)
        rows = _measure_on_device(column, tuple(names), result)
        if len(rows):
            measured = _on_cpu(text, rows, lambda engine, frame: engine.measure(frame[TEXT], names))
            for name, values in zip(names, result, strict=True):
                values[rows] = measured[name]
    return dict(zip(names, result, strict=True))


# Hashes and labels


@on_device()
def hash_text(text: "cudf.Series", max_characters: int = 0) -> np.ndarray:
    if len(text) == 0:
        return np.zeros((0, 2), np.uint64)
    column = load_column(text)
    out = cp.empty((len(text), 2), np.uint64)
    core.launch(core.hash_rows, len(text), *column.documents(0, len(text)), max_characters, out)
    result = download(out)
    if len(column.long):
        result[column.long] = _on_cpu(
            text, column.long, lambda engine, frame: engine.hash_text(frame[TEXT], max_characters)
        )
    return result


@on_device()
def byte_lengths(text: "cudf.Series") -> np.ndarray:
    data, offsets, nulls = buffers_of(text)
    lengths = offsets[1:] - offsets[:-1]
    found = lengths if nulls is None else cp.where(nulls, lengths, 0)
    result = host_memory.empty(found.shape, np.int64)
    result[:] = download(found.astype(np.int32) if data.size < LARGE_STRINGS else found)  # int32: half as many bytes
    return result


@on_device()
def spread_bytes(text: "cudf.Series", count: int) -> np.ndarray:
    data, offsets, nulls = buffers_of(text)
    lengths = offsets[1:] - offsets[:-1] if nulls is None else cp.where(nulls, offsets[1:] - offsets[:-1], 0)
    if not data.size:
        return np.zeros((len(text), count), np.uint8)
    positions = offsets[:-1, None] + lengths[:, None] * cp.arange(count) // count
    spread = data[cp.minimum(positions, data.size - 1)]
    return download(cp.where(lengths[:, None] > 0, spread, 0).astype(np.uint8))


@on_device()
def spread_windows(text: "cudf.Series", windows: int, max_characters: int) -> "cudf.Series":
    if len(text) == 0:
        return text
    column, sizes = load_column(text, NO_LIMIT), cp.zeros(len(text), np.int64)
    outputs: list[cp.ndarray] = []

    def run(first: int, last: int) -> None:
        documents = column.data, column.offsets[first : last + 1], column.valid[first:last]
        out, starts = models.spread_batch(*documents, windows, max_characters)
        sizes[first:last] = starts[1:] - starts[:-1]
        outputs.append(out)

    in_batches(models.window_bytes(cp.asnumpy(column.offsets), windows), column.bytes, run)
    out = outputs[0] if len(outputs) == 1 else cp.concatenate(outputs)
    return series_of(out, core.starts_of(sizes), text.index, column.nulls, text.name)


@on_device()
def classify(text: "cudf.Series", model: Classifier, max_characters: int) -> tuple[np.ndarray, np.ndarray]:
    column, on_device = load_column(text, NO_LIMIT), models.device_classifier(model)
    label, score, unknown = (host_memory.empty(len(text), kind) for kind in (np.int32, np.int64, bool))
    properties = device_tables()[0][:3]

    def run(first: int, last: int) -> None:
        documents = column.data, column.offsets[first : last + 1], column.valid[first:last]
        results = models.classify_batch(*documents, on_device, max_characters, properties)
        for found, values in zip(results, (label, score, unknown), strict=True):
            download(found, values[first:last])

    in_batches(models.classifier_bytes(cp.asnumpy(column.offsets), model), column.bytes, run)
    rows = np.flatnonzero(unknown)
    _add_long(text, rows, (label, score), lambda engine, frame: engine.classify(frame[TEXT], model, max_characters))
    return label, score


@on_device()
def score_text(text: "cudf.Series", model: LanguageModel) -> np.ndarray:
    column, on_device = load_column(text, NO_LIMIT), models.device_language_model(model)
    out = host_memory.empty((len(text), NUM_RESULTS), np.int64)

    def run(first: int, last: int) -> None:
        documents = column.data, column.offsets[first : last + 1], column.valid[first:last]
        download(models.score_batch(*documents, on_device, len(model.counts)), out[first:last])

    in_batches(models.language_model_bytes(cp.asnumpy(column.offsets), model), column.bytes, run)
    return out


# Near-duplicates


class Shingling(NamedTuple):
    """The kind of n-grams, and the scratch bytes that `use` takes per document and per n-gram."""

    ngram: int
    by_character: bool
    row_bytes: int = 0
    ngram_bytes: int = 0


def _for_each_hashed(column: TextColumn, shingling: Shingling, use: Callable[..., None]) -> np.ndarray:
    """Call use(first, hashes, starts, counts) for each batch of documents in turn. The n-gram hashes of row
    first + k are hashes[starts[k]:starts[k] + counts[k]]. Return the rows that exceed a batch: they have no hashes."""
    ngram, by_character, row_bytes, ngram_bytes = shingling
    data, offsets = column.data, column.offsets
    items = core.find_items(data, eight_byte_blocks(data), offsets, by_character, device_tables()[0][:3])
    row_starts, byte_starts = cp.asnumpy(items.row_starts), cp.asnumpy(offsets)
    item_bytes = max(core.ITEM_BYTES, core.HASH_BYTES + ngram_bytes)
    scratch_starts = row_starts * item_bytes + np.arange(len(row_starts)) * row_bytes
    limit, exceeding = max(columns.SCRATCH_SHARE * column.bytes, columns.MIN_SCRATCH_BYTES), []

    def run(first: int, last: int) -> None:
        starts = items.row_starts[first : last + 1] - row_starts[first]
        sizes = cp.where(column.valid[first:last], starts[1:] - starts[:-1], 0)
        if scratch_starts[last] - scratch_starts[first] > limit:  # one row
            exceeding.append(first)
            return use(first, starts[:0].view(np.uint64), starts, cp.zeros_like(sizes))
        first_byte, end_byte = int(byte_starts[first]), int(byte_starts[last])
        first_item, end_item = int(row_starts[first]), int(row_starts[last])
        batch = first_byte, end_byte, first_item, end_item
        hashes = core.hash_batch(data, items, *batch, starts, ngram, by_character)
        use(first, hashes, starts, cp.maximum(sizes - ngram + 1, cp.minimum(sizes, 1)))

    in_batches(scratch_starts, column.bytes, run)
    return np.array(exceeding, np.int64)


def _signed(
    hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray, constants: tuple[cp.ndarray, ...]
) -> cp.ndarray:
    signed = cp.full((len(counts), len(constants[0])), EMPTY, np.uint32)
    pieces, rows = measures.pieces_of(counts, core.PIECE)
    core.launch_blocks(core.sign_pieces, rows.size, hashes, starts, counts, pieces, rows, *constants, signed)
    return signed


@on_device()
def signatures(text: "cudf.Series", ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = host_memory.empty((len(text), len(a)), np.uint32)
    column = load_column(text)
    constants = cp.asarray(a), cp.asarray(b)

    def sign(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
        download(_signed(hashes, starts, counts, constants), out[first : first + len(counts)])

    long = _for_each_hashed(column, Shingling(ngram, by_character, 4 * len(a)), sign)
    if len(long):
        out[long] = _on_cpu(text, long, lambda engine, frame: engine.signatures(frame[TEXT], ngram, by_character, a, b))
    return out


@on_device()
def band_keys(
    text: "cudf.Series", ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray, rows: int
) -> np.ndarray:
    # One row per band: a band is one column of the result
    out = host_memory.empty((len(a) // rows, len(text)), np.uint64)
    column = load_column(text)
    constants = cp.asarray(a), cp.asarray(b)

    def key(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
        signed = _signed(hashes, starts, counts, constants)
        keys = cp.empty((len(out), len(counts)), np.uint64)
        core.launch(core.key_rows, keys.size, signed, rows, keys)
        download_rows(keys, out[:, first : first + len(counts)])

    long = _for_each_hashed(column, Shingling(ngram, by_character, 4 * len(a) + 8 * len(out)), key)
    if len(long):
        out[:, long] = _on_cpu(
            text, long, lambda engine, frame: engine.band_keys(frame[TEXT], ngram, by_character, a, b, rows)
        ).T
    return out.T


def _sorted_distinct(hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the distinct hashes, sorted within each document, and their number per document."""
    ends = core.starts_of(counts)
    total = int(ends[-1])
    if total == 0:
        return hashes[:0], counts
    document = (cp.searchsorted(ends, cp.arange(total), side="right") - 1).astype(np.int32)
    packed = hashes[cp.arange(total) + (starts[:-1] - ends[:-1])[document]]
    order = cp.argsort(packed, kind="stable")  # two radix sorts; CuPy's lexsort is a slower comparison sort
    packed, document = packed[order], document[order]
    order = cp.argsort(document, kind="stable")
    packed, document = packed[order], document[order]
    fresh = cp.ones(total, bool)
    fresh[1:] = (packed[1:] != packed[:-1]) | (document[1:] != document[:-1])
    return packed[fresh], cp.bincount(document[fresh], minlength=len(counts))


@on_device()
def shingles(text: "cudf.Series", ngram: int, by_character: bool) -> tuple[np.ndarray, np.ndarray]:
    if len(text) == 0:
        return np.zeros(0, np.uint64), np.zeros(1, np.int64)
    batches: list[np.ndarray] = []
    sizes: list[np.ndarray] = []
    column = load_column(text)

    def keep(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
        distinct, numbers = _sorted_distinct(hashes, starts, counts)
        batches.append(download(distinct))
        sizes.append(download(numbers))

    rows = _for_each_hashed(column, Shingling(ngram, by_character, 0, SORTED_BYTES), keep)
    hashes, offsets = host_memory.joined(batches), core.starts_of(host_memory.joined(sizes))
    if len(rows):
        long = _on_cpu(text, rows, lambda engine, frame: engine.shingles(frame[TEXT], ngram, by_character))
        return core.inserted(hashes, offsets, rows, *long)
    return hashes, offsets


@shared(TABLES_AT_ONCE)
def _device_ngrams(table: NgramTable) -> tuple[cp.ndarray, cp.ndarray]:
    return cp.asarray(table.keys), cp.asarray(table.owners)


@on_device()
def ngram_hits(text: "cudf.Series", table: NgramTable, ngram: int) -> tuple[np.ndarray, np.ndarray]:
    result: tuple[np.ndarray, np.ndarray] = np.zeros(len(text), np.int64), np.full(len(text), FREE, np.int32)
    column = load_column(text)
    on_device = _device_ngrams(table)

    def look_up(first: int, hashes: cp.ndarray, starts: cp.ndarray, counts: cp.ndarray) -> None:
        batch = cp.zeros(len(counts), np.int64), cp.full(len(counts), core.NO_HIT, np.uint64)
        pieces = measures.pieces_of(counts, core.PIECE)
        core.launch_blocks(core.find_pieces, pieces[1].size, hashes, starts, counts, *pieces, *on_device, *batch)
        for values, batch_values in zip(result, batch, strict=True):
            download(batch_values.astype(values.dtype), values[first : first + len(counts)])

    long = _for_each_hashed(column, Shingling(ngram, False, 16), look_up)
    _add_long(text, long, result, lambda engine, frame: engine.ngram_hits(frame[TEXT], table, ngram))
    return result
