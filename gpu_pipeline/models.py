# SPDX-License-Identifier: Apache-2.0
"""Labels of fastText models and scores of language models for a batch of documents: launches of `model_kernels`."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from curation.kernels import fasttext
from curation.kernels import language_model as lm
from curation.models.fasttext import Classifier
from curation.models.ngrams import BYTE, SPELLED, LanguageModel, spelled
from gpu_pipeline import batches
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels import model_kernels as parts
from gpu_pipeline.memory.buffers import eight_byte_blocks
from gpu_pipeline.memory.device import shared

MASK_BYTES, TOKEN_BYTES = 2, 17  # scratch per byte of text, and per token; with its space it has two or more
SENTENCE_WORD_BYTES = 14  # and four bytes per order above one; the shortest sentence has three words in two bytes


class Model(NamedTuple):
    """A fastText model on the device, and the settings that the host needs.

    end_number, end_code   of the token `</s>` that ends every text: the row of its word or -1, and its hash for word
                           n-grams or -1
    most_bytes             of a token that the device hashes
    """

    settings: np.ndarray
    tables: tuple[cp.ndarray, ...]
    scratch_items: int
    end_number: int
    end_code: int
    most_bytes: int


@shared(4)
def device_classifier(model: Classifier) -> Model:
    """Copy a model to the device, with its rows in pairs, as `model_kernels` reads them."""
    settings, slots, word_bytes, word_ends, *_ = model.tables
    mark, lengths = int(word_ends[-1]), np.diff(word_ends)
    code = fasttext.hash_bytes(word_bytes, mark, mark + 4)
    words = settings, slots, word_bytes, word_ends
    number = int(fasttext.number_of_token(word_bytes, mark, mark + 4, code, *words))
    most = max(
        int(lengths.max(initial=0)), parts.LABEL_BYTES, parts.HASHED_BYTES * (settings[fasttext.WORD_NGRAMS] > 1)
    )
    end_code = -1 if number == fasttext.SKIPPED else int(code)
    rows = parts.in_pairs(model.tables[5], int(settings[fasttext.DIMENSIONS]))
    on_device = tuple(map(cp.asarray, (*model.tables[:5], rows, *model.tables[6:])))
    return Model(settings, on_device, model.scratch_items, max(number, -1), end_code, most)


@shared(2)
def device_language_model(model: LanguageModel) -> tuple[cp.ndarray, ...]:
    """Copy the tables of a language model to the device, unchanged. A model of bytes also gets SPELLED."""
    return tuple(map(cp.asarray, (*model.tables, *([SPELLED] if model.unit == BYTE else []))))


def classifier_bytes(offsets: np.ndarray, model: Classifier) -> np.ndarray:
    """Return for each document the number of scratch bytes that all documents before it need."""
    rows = np.arange(offsets.size) * (8 * model.scratch_items)
    return offsets * (MASK_BYTES + TOKEN_BYTES // 2 + 1) + rows


def window_bytes(offsets: np.ndarray, windows: int) -> np.ndarray:
    """Return for each document the number of bytes that the scratch and the windows of all documents before it need."""
    return offsets * (MASK_BYTES + 1) + np.arange(offsets.size) * (25 * windows)


def language_model_bytes(offsets: np.ndarray, model: LanguageModel) -> np.ndarray:
    """Return an upper bound of the scratch bytes that the text before each offset needs. The bound depends on bytes of
    text, since words are not counted yet."""
    word_bytes = SENTENCE_WORD_BYTES + 4 * (len(model.counts) - 1)
    if model.unit == BYTE:
        return offsets * (SPELLED.shape[1] * (MASK_BYTES + 2) + TOKEN_BYTES + 3 * word_bytes)
    return offsets * (MASK_BYTES + (TOKEN_BYTES + 3 * word_bytes) // 2 + 1)


# fastText


def _pieces(firsts: cp.ndarray, lasts: cp.ndarray, size: int) -> tuple[cp.ndarray, cp.ndarray]:
    return batches.pieces_of(lasts - firsts, size)


def _launch_warps(kernel: object, pieces: tuple[cp.ndarray, cp.ndarray], *arguments: object) -> None:
    if pieces[1].size:
        batches.launch_warps(kernel, pieces[1], *arguments)


class _Sums(NamedTuple):
    """The last arguments of kernels that add rows: the weights, the sums in `scratch`, and the number of rows in each
    sum."""

    weights: cp.ndarray
    scratch: cp.ndarray
    counts: cp.ndarray


def _sums(model: Model, rows: int) -> _Sums:
    """Return the initial sums of documents: the row of the token `</s>`, which ends every text."""
    weights, dimensions = model.tables[5], int(model.settings[fasttext.DIMENSIONS])
    width = dimensions + dimensions % 2
    scratch = cp.zeros((rows, model.scratch_items), np.int64)
    if model.end_number >= 0:
        row = weights.view(np.int32)[model.end_number * width : (model.end_number + 1) * width]
        scratch[:, :dimensions] = row[:dimensions]
    return _Sums(weights, scratch, cp.full(rows, int(model.end_number >= 0), np.int64))


class _Tokens(NamedTuple):
    items: core.TextItems
    firsts: cp.ndarray  # int64: the tokens of each document
    lasts: cp.ndarray
    numbers: cp.ndarray
    codes: cp.ndarray
    too_long: cp.ndarray
    has_label: bool


def _look_up(data: cp.ndarray, offsets: cp.ndarray, ends: cp.ndarray, model: Model) -> tuple[_Tokens, _Sums]:
    """Add the rows of words. `ends` becomes the first token `</s>` of each document that has one."""
    borders = cp.empty(2 * ends.size + 1, np.int64)
    borders[:-1:2], borders[1::2], borders[-1] = offsets[:-1], ends, offsets[-1]
    items = parts.find_tokens(data, eight_byte_blocks(data), borders, True)
    positions = parts.positions_of(items, borders)
    firsts, lasts = items.row_starts[:-1:2].copy(), items.row_starts[1::2].copy()
    has_ngrams = model.settings[fasttext.WORD_NGRAMS] > 1
    numbers = cp.empty(positions.size, np.int32)
    codes = cp.empty(positions.size if has_ngrams else 0, np.uint32)
    flags, too_long = cp.zeros(2, np.int32), cp.zeros(ends.size, bool)
    sums, pieces = _sums(model, ends.size), _pieces(firsts, lasts, parts.TOKEN_PIECE)
    _launch_warps(
        parts.look_up_tokens, pieces, data, items.origin, items.stops, positions, firsts, lasts, ends, *pieces,
        model.most_bytes, *model.tables[:4], sums.weights, numbers, codes, flags, too_long, *sums[1:],
    )  # fmt: skip
    if int(flags[parts.HAS_END]):
        return _look_up(data, offsets, ends, model)
    has_label = bool(flags[parts.HAS_LABEL])
    return _Tokens(items, firsts, lasts, numbers, codes, too_long, has_label), sums


def _add_token_ngrams(tokens: _Tokens, model: Model, sums: _Sums) -> None:
    codes, firsts, lasts = tokens.codes, tokens.firsts, tokens.lasts
    if tokens.has_label:
        kept = tokens.numbers != fasttext.SKIPPED
        ranks = core.starts_of(kept.astype(np.int64))
        codes, firsts, lasts = codes[kept], ranks[firsts], ranks[lasts]
    pieces = _pieces(firsts, lasts, parts.TOKEN_PIECE)
    arguments = codes, firsts, lasts, *pieces, model.end_code, model.tables[0], model.tables[4], *sums
    _launch_warps(parts.add_token_ngrams, pieces, *arguments)


def spread_batch(
    data: cp.ndarray, offsets: cp.ndarray, valid: cp.ndarray, windows: int, max_characters: int
) -> tuple[cp.ndarray, cp.ndarray]:
    """Return the windows of all documents, where the windows of each document start, and where the last one ends."""
    ends = cp.where(valid, offsets[1:], offsets[:-1])
    return parts.spread_windows(data, eight_byte_blocks(data), offsets, ends, windows, max_characters)


def classify_batch(
    data: cp.ndarray, offsets: cp.ndarray, valid: cp.ndarray, model: Model, max_characters: int, properties: tuple
) -> tuple[cp.ndarray, cp.ndarray, cp.ndarray]:
    """Return label and score of each document, and whether the device could not classify it.

    properties   pages, records and flags of `tables.UnicodeTables`
    """
    settings, rows = model.tables[0], valid.size
    ends = cp.where(valid, offsets[1:], offsets[:-1])
    ends = parts.prefix_ends(data, eight_byte_blocks(data), offsets, ends, max_characters, properties)
    tokens, sums = _look_up(data, offsets, ends, model)
    if model.settings[fasttext.WORD_NGRAMS] > 1:
        _add_token_ngrams(tokens, model, sums)
    if model.settings[fasttext.MAX_CHARACTERS] > 0:
        starts = offsets[:-1]
        pieces = _pieces(starts - (starts < ends), ends, parts.BYTE_PIECE)  # with the byte before
        numbers = tokens.numbers if tokens.has_label else tokens.numbers[:0]
        reciprocal = 0xFFFFFFFF // int(model.settings[fasttext.BUCKETS])
        masks = tokens.items.origin, tokens.items.starts, tokens.items.stops, tokens.items.ranks
        _launch_warps(
            parts.add_characters, pieces, data, *masks, offsets, ends, *pieces, numbers, reciprocal, settings,
            model.tables[4], *sums,
        )  # fmt: skip
    dimensions, labels = (int(model.settings[k]) for k in (fasttext.DIMENSIONS, fasttext.NUM_LABELS))
    core.launch_shared(parts.average_rows, rows * dimensions, dimensions, sums.scratch, sums.counts)
    label, score = cp.empty(rows, np.int32), cp.empty(rows, np.int64)
    output, tree = model.tables[6:]
    if model.settings[fasttext.HIERARCHICAL]:
        core.launch(parts.score_trees, rows, settings, output, tree, sums.scratch, sums.counts, label, score)
    else:
        core.launch_shared(parts.multiply_outputs, rows * labels, settings, output, sums.scratch, sums.counts)
        arguments = settings, sums.scratch, sums.counts, label, score
        core.launch(parts.choose_labels, rows * parts.LANES, *arguments)
    return label, score, tokens.too_long


# Language models


def score_batch(
    data: cp.ndarray, offsets: cp.ndarray, valid: cp.ndarray, model: tuple[cp.ndarray, ...], order: int
) -> cp.ndarray:
    """Return the results of each document (int64, (rows, NUM_RESULTS))."""
    settings, entries, *of_bytes = model
    if of_bytes:
        data, offsets = spelled(data, offsets, *of_bytes)
    blocks, out = eight_byte_blocks(data), cp.zeros((valid.size, lm.NUM_RESULTS), np.int64)
    breaks = cp.empty(int(offsets[-1]) // 32 - int(offsets[0]) // 32 + 1, np.uint32)
    items = parts.find_tokens(data, blocks, offsets, False, breaks)
    positions = parts.positions_of(items, offsets)
    if positions.size == 0:
        return out
    break_counts = cp.empty(breaks.size, np.int64)
    core.launch_shared(parts.count_bits, breaks.size, breaks, break_counts)
    is_first = cp.zeros(positions.size + 1, bool)
    is_first[items.row_starts] = True
    opens = cp.empty(positions.size, np.uint8)
    arguments: tuple[Any, ...] = items.origin, breaks, core.starts_of(break_counts), is_first, positions, opens
    core.launch_shared(parts.mark_sentences, positions.size, *arguments)
    sentences = core.prefix_sums(opens, np.int64)
    before = cp.where(items.row_starts > 0, sentences[items.row_starts - 1], 0)
    size = positions.size + 2 * int(sentences[-1])
    words, kinds = cp.empty(size, np.uint64), cp.empty(size, np.uint8)
    arguments = data, items.origin, items.stops, positions, opens, sentences, settings, entries, words, kinds
    core.launch_shared(parts.place_sentences, positions.size, *arguments)
    del positions, opens, sentences
    logs, lengths = cp.empty(size, np.int32), cp.empty(size, np.uint8)
    back_offs = cp.empty((order - 1, size), np.int32)
    arguments = words, kinds, settings, entries, logs, lengths, back_offs
    core.launch_shared(parts.look_up_ngrams, size, *arguments)
    firsts = items.row_starts + 2 * before
    pieces = batches.pieces_of(cp.where(valid, firsts[1:] - firsts[:-1], 0), parts.TOKEN_PIECE)
    _launch_warps(
        parts.add_scores, pieces, words, kinds, logs, lengths, back_offs, firsts, *pieces, settings, out
    )  # fmt: skip
    out[:, lm.WORDS] = cp.where(valid, items.row_starts[1:] - items.row_starts[:-1], 0)
    out[:, lm.LINES] = cp.where(valid, before[1:] - before[:-1], 0)
    return out
