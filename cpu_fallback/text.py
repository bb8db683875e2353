# SPDX-License-Identifier: Apache-2.0
"""Row-local operations on a pandas `str` column: `nogil` loops over its Arrow buffers."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd
import pyarrow as pa

from cpu_fallback import flat_counts, kernels, normal_forms
from cpu_fallback.buffers import STRING, buffers_of, series_of, string_array
from cpu_fallback.fasttext import allocate_known
from cpu_fallback.repeated_strings import allocate_strings, repeat_long_rows, repeat_rows
from cpu_fallback.vector_scan import allocate_positions
from cpu_fallback.vector_shingles import allocate_words
from curation.base.arrays import as_one_array, batches_by_size
from curation.base.measures import NUM_MEASURES, REPEATED_SIZES, Measure, wanted, wanted_scan
from curation.kernels import stop_words, tables
from curation.kernels.hashing import table_mask
from curation.kernels.language_model import NUM_RESULTS
from curation.kernels.ngram_table import NgramTable
from curation.kernels.normalization import normalize_spans
from curation.kernels.rewrite import FORM_FLAGS, RewriteSteps, output_bound, plan_steps, tables_of
from curation.kernels.stop_words import StopWords
from curation.kernels.word_breaks import PIECES, SCRIPTS, SPACES, TABLE, allocate_span, split_rows
from curation.kernels.word_lists import load_classes, load_word_lists
from curation.kernels.words import character_lanes
from curation.models.fasttext import MODELS_KEPT, Classifier
from curation.models.ngrams import SPELLED, WORD, LanguageModel, spelled

MOST_SLICES = 256  # per call: a slice of texts costs as much as a copy of about 20 KB
SPELLED_AT_ONCE = 1 << 20  # bytes of text that are copied as words
ROWS_AT_ONCE = 2040  # all measures of this many rows fit the cache; a power of two would share cache sets


def _normalised(data, offsets, valid, form, unicode) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each document its number among those that the normal form changes, or -1; these documents in this
    form; and where each starts."""
    form_row = np.full(len(valid), -1, np.int64)
    unchanged = form_row, np.empty(0, np.uint8), np.zeros(1, np.int64)
    if form == "keep":
        return unchanged
    properties = unicode.pages, unicode.records, unicode.flags, unicode.combining
    spans, firsts = normal_forms.find_spans(data, offsets, valid, FORM_FLAGS[form], *properties)
    if not len(spans):
        return unchanged
    joined = np.empty(int((spans[:, 1] - spans[:, 0]).sum()) + len(spans), np.uint8)
    normal_forms.join_spans(data, spans, joined)
    normal = normalize_spans(joined, len(spans), form)
    owners = np.searchsorted(firsts, np.flatnonzero(normal.changed), side="right") - 1
    size = int(np.diff(offsets)[np.unique(owners)].sum()) + len(normal.data)
    out = np.empty(size, np.uint8)
    starts = normal_forms.put_spans(data, offsets, spans, firsts, *normal, form_row, out)
    return form_row, out[: starts[-1]], starts


def rewrite(text: pd.Series, steps: RewriteSteps) -> tuple[pd.Series, np.ndarray]:
    plan = plan_steps(steps)
    if steps == RewriteSteps():
        return text, np.zeros(len(text), bool)
    unicode = tables_of(steps)
    data, offsets, nulls = buffers_of(text)
    valid = np.ones(len(text), bool) if nulls is None else nulls
    form_row, form_data, form_offsets = _normalised(data, offsets, valid, steps.unicode, unicode)
    if steps == RewriteSteps(unicode=steps.unicode) and len(form_offsets) == 1:
        return text, np.zeros(len(text), bool)
    out = np.empty(output_bound(int(offsets[-1] - offsets[0]) + form_data.size, steps), np.uint8)
    ends, edited = kernels.rewrite_rows(
        data, offsets, valid, form_row, form_data, form_offsets, out, plan, *unicode[:3], unicode.lower
    )
    return series_of(out[: ends[-1]], ends, text.index, nulls, text.name), edited


def split_words(text: pd.Series, words: str) -> tuple[pd.Series, np.ndarray]:
    data, offsets, nulls = buffers_of(text)
    wanted = np.full(len(text), words != SPACES) if nulls is None else nulls & (words != SPACES)
    if words == SCRIPTS:
        wanted = kernels.find_divided_rows(data, offsets, wanted, *load_classes())
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return text[:0], wanted
    lists = load_word_lists()
    out = np.empty(2 * int(np.diff(offsets)[rows].sum()), np.uint8)  # at most a space per character
    ends = split_rows(data, offsets, rows, words == TABLE, words == PIECES, tuple(lists), allocate_span(), out)
    return series_of(out[: ends[-1]], ends, text.index[rows], None, text.name), wanted


def replace_texts(text: pd.Series, parts: pd.Series, wanted: np.ndarray) -> pd.Series:
    whole, own, rows = string_array(text), string_array(parts), np.flatnonzero(wanted)
    if len(rows) > MOST_SLICES:
        places = np.where(wanted, len(wanted) + np.cumsum(wanted) - 1, np.arange(len(wanted)))
        merged = pa.chunked_array([whole, own]).take(pa.array(places)).combine_chunks()
    else:
        starts = np.append(0, rows + 1)
        slices = [whole.slice(start, row - start) for start, row in zip(starts, [*rows, len(whole)], strict=True)]
        pieces = [piece for number, each in enumerate(slices) for piece in (each, own.slice(number, 1))]
        merged = pa.concat_arrays(pieces[:-1])
    return pd.Series(STRING.__from_arrow__(as_one_array(merged)), index=text.index, name=text.name, copy=False)


def count_stop_words(text: pd.Series, table: StopWords, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    data, offsets, nulls = buffers_of(text)
    return table.count(data, offsets, numbers if nulls is None else np.where(nulls, numbers, stop_words.NO_LIST))


def _measure_scratch(longest: int) -> tuple[np.ndarray, ...]:
    """Return scratch of `measure_rows` for documents of up to `longest` bytes, which have at most half as many
    words."""
    words = longest // 2 + 1
    slots = int(table_mask(words)) + 1
    return (
        np.empty(words, np.uint64),
        np.empty(words, np.int64),
        np.empty(words, np.int64),
        np.empty(words, np.uint64),
        np.empty(words, np.int64),
        np.empty(slots, np.uint64),
        np.empty(slots, np.int32),
    )


def measure(text: pd.Series, names: Sequence[str]) -> dict[str, np.ndarray]:
    data, offsets, nulls = buffers_of(text)
    valid = np.ones(len(text), bool) if nulls is None else nulls
    unicode = tables.load_tables()
    lanes, _ = character_lanes(unicode)
    if (
        nulls is None
        and {*names} <= {*flat_counts.NAMES}
        and offsets[-1] - offsets[0] < flat_counts.SHORT_BYTES * len(text)
    ):
        flat = flat_counts.count_flat(data, offsets, unicode[:3], lanes, "max_word_characters" in names)
        return {name: flat[name] for name in names}
    strings = {Measure[name]: size for name, size in REPEATED_SIZES.items() if name in names}
    longest = int(np.diff(offsets).max(initial=0))
    results = {name: np.empty(len(text), np.int64) for name in names}
    long = {measure: repeat_long_rows(data, offsets, valid, size) for measure, size in strings.items()}
    scratch, positions = _measure_scratch(longest), allocate_positions(longest)
    string_scratch = allocate_strings(longest if strings else 0)
    out = np.empty((NUM_MEASURES, min(len(text), ROWS_AT_ONCE)), np.int64)
    for first in range(0, len(text), ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, len(text))
        rows = data, offsets[first : last + 1], valid[first:last]
        out[:] = 0
        kernels.measure_rows(
            *rows, *unicode[:4], lanes, tuple(wanted_scan(tuple(names))), *wanted(tuple(names)), positions, scratch, out
        )
        for measure, size in strings.items():
            out[measure, : last - first] = long[measure][first:last]
            repeat_rows(*rows, size, string_scratch, out[measure])
        for name, values in results.items():
            values[first:last] = out[Measure[name], : last - first]
    return results


def hash_text(text: pd.Series, max_characters: int = 0) -> np.ndarray:
    data, offsets, nulls = buffers_of(text)
    valid = np.ones(len(text), bool) if nulls is None else nulls
    out = np.empty((len(text), 2), np.uint64)
    kernels.hash_rows(data, offsets, valid, max_characters, out)
    return out


def byte_lengths(text: pd.Series) -> np.ndarray:
    _, offsets, nulls = buffers_of(text)
    lengths = np.diff(offsets)
    return lengths if nulls is None else np.where(nulls, lengths, 0)


def spread_bytes(text: pd.Series, count: int) -> np.ndarray:
    data, offsets, nulls = buffers_of(text)
    lengths = np.diff(offsets) if nulls is None else np.where(nulls, np.diff(offsets), 0)
    if not len(data):
        return np.zeros((len(lengths), count), np.uint8)
    positions = offsets[:-1, None] + lengths[:, None] * np.arange(count) // count
    return np.where(lengths[:, None] > 0, data.take(positions, mode="clip"), 0).astype(np.uint8)


def spread_windows(text: pd.Series, windows: int, max_characters: int) -> pd.Series:
    data, offsets, nulls = buffers_of(text)
    valid = np.ones(len(text), bool) if nulls is None else nulls
    most = int(np.minimum(np.diff(offsets), 4 * max_characters).sum())  # a character has at most four bytes
    out, ends = np.empty(most + windows * len(text), np.uint8), np.zeros(len(text) + 1, np.int64)
    kernels.copy_windows(data, offsets, valid, windows, max_characters, out, ends)
    return series_of(out[: ends[-1]], ends, text.index, nulls, text.name)


def classify(text: pd.Series, model: Classifier, max_characters: int) -> tuple[np.ndarray, np.ndarray]:
    data, offsets, nulls = buffers_of(text)
    valid = np.ones(len(text), bool) if nulls is None else nulls
    label, score = np.empty(len(text), np.int32), np.empty(len(text), np.int64)
    scratch = np.empty(model.scratch_items, np.int64)
    free = _free_known(model)
    try:
        known = free.pop()
    except IndexError:
        known = allocate_known(model)
    kernels.classify_rows(data, offsets, valid, max_characters, *model.tables, *known, scratch, label, score)
    free.append(known)
    return label, score


@lru_cache(MODELS_KEPT)
def _free_known(model: Classifier) -> list[tuple[np.ndarray, ...]]:
    """Return the `known` tables of a model that no thread uses: each call takes one from this list, or makes one."""
    return []


def score_text(text: pd.Series, model: LanguageModel) -> np.ndarray:
    data, offsets, nulls = buffers_of(text)
    valid = np.ones(len(text), bool) if nulls is None else nulls
    out = np.zeros((len(text), NUM_RESULTS), np.int64)
    scratch = np.empty(model.scratch_items, np.int64)
    if model.unit == WORD:
        kernels.score_rows(data, offsets, valid, *model.tables, scratch, out)
        return out
    for rows in batches_by_size(offsets[1:] - offsets[0], SPELLED_AT_ONCE):
        words = spelled(data, offsets[rows.start : rows.stop + 1], SPELLED)
        for array in words:
            array.setflags(write=False)  # as the arrays of a column: the same compiled function takes both
        kernels.score_rows(*words, valid[rows], *model.tables, scratch, out[rows])
    return out


def _items(offsets: np.ndarray, by_character: bool) -> np.ndarray:
    """Return the maximum number of characters or words per document; two words have white space between them."""
    lengths = np.diff(offsets)
    return lengths if by_character else (lengths + 1) // 2


def _shingle_arguments(text: pd.Series) -> tuple:
    data, offsets, nulls = buffers_of(text)
    words = allocate_words(int(np.diff(offsets).max(initial=0)))
    return data, offsets, np.ones(len(text), bool) if nulls is None else nulls, words


def signatures(text: pd.Series, ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    data, offsets, valid, words = _shingle_arguments(text)
    out = np.empty((len(text), len(a)), np.uint32)
    hashes = np.empty(_items(offsets, by_character).max(initial=0), np.uint64)
    kernels.sign_rows(data, offsets, valid, ngram, by_character, a, b, *tables.load_tables()[:3], words, hashes, out)
    return out


def band_keys(text: pd.Series, ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray, rows: int) -> np.ndarray:
    data, offsets, valid, words = _shingle_arguments(text)
    out = np.empty((len(a) // rows, len(text)), np.uint64)  # one row per band: a band is one column of the result
    hashes = np.empty(_items(offsets, by_character).max(initial=0), np.uint64)
    signed = np.empty(
        len(a), np.uint32
    )  # one document at a time: signatures of short documents take more memory than the text
    kernels.key_rows(
        data, offsets, valid, ngram, by_character, a, b, rows, *tables.load_tables()[:3], words, hashes, signed, out
    )
    return out.T


def shingles(text: pd.Series, ngram: int, by_character: bool) -> tuple[np.ndarray, np.ndarray]:
    data, offsets, valid, words = _shingle_arguments(text)
    items = _items(offsets, by_character)
    hashes, spare = np.empty(items.sum(), np.uint64), np.empty(items.max(initial=0), np.uint64)
    ends = np.zeros(len(text) + 1, np.int64)
    kernels.shingle_rows(
        data, offsets, valid, ngram, by_character, *tables.load_tables()[:3], words, hashes, spare, ends
    )
    return hashes[: ends[-1]], ends


def ngram_hits(text: pd.Series, table: NgramTable, ngram: int) -> tuple[np.ndarray, np.ndarray]:
    data, offsets, valid, words = _shingle_arguments(text)
    hits, owner = np.empty(len(text), np.int64), np.empty(len(text), np.int32)
    hashes = np.empty(_items(offsets, False).max(initial=0), np.uint64)
    unicode = tables.load_tables()
    kernels.find_rows(data, offsets, valid, ngram, table.keys, table.owners, *unicode[:3], words, hashes, hits, owner)
    return hits, owner
