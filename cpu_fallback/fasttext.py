# SPDX-License-Identifier: Apache-2.0
"""Classifies one document with a fastText model. `curation.kernels.fasttext` describes the model and its arrays.

The rows of a word are summed once: sums are exact integers, so a stored sum can be added when the word occurs again.
`known` stores sums of words of up to KNOWN_BYTES bytes, from any document, one per slot. With it, English takes 0.59 to
0.77 of the time without it (benchmarks/LOG.md).

known   (keys, sums, spare), initially zeros. keys: four int64 per slot; 24 bytes have the word, with its length in the
        last byte, and the fourth number is the number of its rows. sums: int32, the sum of these rows. spare: int64,
        space for one sum. Models with word n-grams have no slots, since rows depend on the words before; nor do
        models without character n-grams, where a word is one row
"""

import numpy as np

from curation.kernels import fasttext as ft
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, FMIX_2, GOLDEN, load64
from curation.kernels.utf8 import byte_at, prefix_end
from curation.models.fasttext import Classifier

KNOWN_BYTES = 23
SLOTS = 1 << 16  # 6 MB with the 16 dimensions of lid.176.ftz
MOST_SUMS = SLOTS * 16
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
LARGEST_SUM = (1 << 31) - 1


def allocate_known(model: Classifier) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return an empty `known` for a model; the wider the rows, the fewer slots it has."""
    settings = model.tables[0]
    dimensions, slots = int(settings[ft.DIMENSIONS]), SLOTS
    while slots * dimensions > MOST_SUMS:
        slots //= 2
    if settings[ft.MAX_CHARACTERS] == 0 or settings[ft.WORD_NGRAMS] > 1:
        slots = 0
    return np.zeros(4 * slots, np.int64), np.zeros(dimensions * slots, np.int32), np.zeros(dimensions, np.int64)


@kernel
def add_row(rows, row, dimensions, scratch):
    """Add a row of `rows` to the first `dimensions` items of `scratch`."""
    base = np.uint64(row * dimensions)
    for k in range(dimensions):
        scratch[np.uint64(k)] += rows[base + np.uint64(k)]


@kernel
def add_character_ngrams(data, first, last, settings, index, rows, scratch):
    """Add the rows of the character n-grams of `<token>`; return their number."""
    min_characters, max_characters = settings[ft.MIN_CHARACTERS], settings[ft.MAX_CHARACTERS]
    num_words, dimensions = settings[ft.NUM_WORDS], settings[ft.DIMENSIONS]
    buckets = np.uint64(settings[ft.BUCKETS])
    reciprocal = ft.LOW_32 // max(buckets, np.uint64(1))
    count = 0
    i = first - 1
    while i <= last:
        h = ft.FNV_START
        j = i
        n = 0
        while n < max_characters and j <= last:
            h, j = ft.add_character(data, first, last, j, h)
            n += 1
            if n >= min_characters and (n > 1 or (i >= first and j <= last)):
                row = ft.row_of_bucket(ft.remainder(h, buckets, reciprocal), index, num_words)
                if row >= 0:
                    add_row(rows, row, dimensions, scratch)
                    count += 1
        i += 1
        while i < last and byte_at(data, i) & 0xC0 == 0x80:
            i += 1
    return count


@kernel
def add_word_ngrams(h, tokens, settings, index, rows, scratch):
    """Add the rows of the n-grams of two or more words that end with word number `tokens` (from 0); return the number
    of rows. `h` is the hash of this word. The ring buffer in `scratch` has a running hash for each of the last
    words."""
    ring, ring_size = settings[ft.RING], settings[ft.WORD_NGRAMS] - 1
    code = ft.code_of_word(h)
    count = 0
    for back in range(1, min(ring_size, tokens) + 1):
        slot = ring + (tokens - back) % ring_size
        scratch[slot] = np.int64(ft.add_word(np.uint64(scratch[slot]), code))
        row = ft.row_of_word_ngram(np.uint64(scratch[slot]), settings, index)
        if row >= 0:
            add_row(rows, row, settings[ft.DIMENSIONS], scratch)
            count += 1
    scratch[ring + tokens % ring_size] = np.int64(code)
    return count


@kernel
def add_token(data, first, last, ends, tokens, settings, slots, word_bytes, word_ends, index, rows, scratch):
    """Add the rows of one token: the row of its word, and the rows of its character n-grams and word n-grams.

    `ends` marks the token `</s>`, which has no character n-grams. Return the number of rows, and whether the token
    counts as a word.
    """
    h = ft.hash_bytes(data, first, last)
    word = ft.number_of_token(data, first, last, h, settings, slots, word_bytes, word_ends)
    if word == ft.SKIPPED:
        return 0, False
    count = 0
    if word >= 0:
        add_row(rows, word, settings[ft.DIMENSIONS], scratch)
        count = 1
    if settings[ft.MAX_CHARACTERS] > 0 and not ends:
        count += add_character_ngrams(data, first, last, settings, index, rows, scratch)
    if settings[ft.WORD_NGRAMS] > 1:
        count += add_word_ngrams(h, tokens, settings, index, rows, scratch)
    return count, True


@kernel
def leading_bytes(data, i, count):
    """Return the first `count` of the bytes data[i:i + 8] as a little-endian number: 0 if `count` is below 1, all eight
    if it is above 7."""
    if count <= 0:
        return np.uint64(0)
    return load64(data, i) & (ALL_BITS >> np.uint64(64 - 8 * min(count, 8)))


@kernel
def find_known(data, first, last, keys):
    """Return the slot of a word of at most KNOWN_BYTES, whether the slot has this word, and the word as three numbers.
    `data` has 24 readable bytes from `first`."""
    size = last - first
    low, middle = leading_bytes(data, first, size), leading_bytes(data, first + 8, size - 8)
    high = leading_bytes(data, first + 16, size - 16) | np.uint64(size) << np.uint64(56)
    h = low * GOLDEN ^ middle * FMIX_1 ^ high * FMIX_2
    h = (h ^ h >> np.uint64(32)) * GOLDEN
    slot = (h >> np.uint64(32)) & ((np.uint64(len(keys)) >> np.uint64(2)) - np.uint64(1))
    key = slot << np.uint64(2)
    is_known = (
        np.uint64(keys[key]) == low
        and np.uint64(keys[key + np.uint64(1)]) == middle
        and np.uint64(keys[key + np.uint64(2)]) == high
    )
    return slot, is_known, low, middle, high


@kernel
def keep_sum(slot, low, middle, high, count, dimensions, keys, sums, spare, scratch):
    """Write a word and the sum in `spare` to a slot, and add the sum to `scratch`."""
    fits = True
    for k in range(dimensions):
        value = spare[np.uint64(k)]
        scratch[np.uint64(k)] += value
        sums[slot * np.uint64(dimensions) + np.uint64(k)] = value
        fits &= abs(value) <= LARGEST_SUM
    key = slot << np.uint64(2)
    keys[key], keys[key + np.uint64(1)] = np.int64(low), np.int64(middle)
    keys[key + np.uint64(2)], keys[key + np.uint64(3)] = np.int64(high) if fits else 0, count


@kernel
def add_document(data, start, end, settings, slots, word_bytes, word_ends, index, rows, keys, sums, spare, scratch):
    """Sum the rows of a text into the first `dimensions` items of `scratch`; return their number."""
    dimensions = settings[ft.DIMENSIONS]
    for k in range(dimensions):
        scratch[k] = 0
    count = 0
    tokens = 0
    most_bytes = KNOWN_BYTES if len(keys) else 0
    i = start
    while i < end:
        if ft.is_space(byte_at(data, i)):
            i += 1
            continue
        first = i
        while i < end and not ft.is_space(byte_at(data, i)):
            i += 1
        if ft.is_end(data, first, i):
            break
        if i - first <= most_bytes and first + KNOWN_BYTES < len(data):
            # For a known word, only small functions are called: a call with all arrays takes as long as adding the
            # word's sum.
            slot, is_known, low, middle, high = find_known(data, first, i, keys)
            if is_known:
                add_row(sums, np.int64(slot), dimensions, scratch)
                count += keys[(slot << np.uint64(2)) + np.uint64(3)]
                continue
            spare[:] = 0
            added, _ = add_token(data, first, i, False, 0, settings, slots, word_bytes, word_ends, index, rows, spare)
            keep_sum(slot, low, middle, high, added, dimensions, keys, sums, spare, scratch)
            count += added
            continue
        added, counts = add_token(
            data, first, i, False, tokens, settings, slots, word_bytes, word_ends, index, rows, scratch
        )
        count += added
        tokens += counts
    # `word_bytes` ends with "</s>", after the last word.
    mark = word_ends[word_ends.size - 1]
    added, _ = add_token(
        word_bytes, mark, mark + 4, True, tokens, settings, slots, word_bytes, word_ends, index, rows, scratch
    )
    return count + added


@kernel
def score_output(settings, output, scratch):
    """Return a label and its score by a softmax: the wanted label, or the most likely one if none is wanted."""
    dimensions, labels, shift = settings[ft.DIMENSIONS], settings[ft.NUM_LABELS], settings[ft.SHIFT]
    label = np.int64(0)
    for k in range(labels):
        scratch[dimensions + k] = ft.output_of(output, k, dimensions, scratch)
        if scratch[dimensions + k] >= scratch[dimensions + label]:
            label = np.int64(k)
    total = 0
    for k in range(labels):
        total += ft.exp_minus(scratch[dimensions + label] - scratch[dimensions + k], shift)
    return ft.share_of_label(settings, scratch, label, total)


@kernel
def classify_document(
    data,
    start,
    end,
    max_characters,
    settings,
    slots,
    word_bytes,
    word_ends,
    index,
    rows,
    output,
    tree,
    keys,
    sums,
    spare,
    scratch,
):
    """Return a label and its score in millionths, both int64; (-1, 0) for a text without anything that the model knows.

    The label is the wanted one of `settings`, or the most likely one if none is wanted.

    max_characters   code points to read, from the first token; 0 means all
    keys, sums, spare   from `allocate_known`; simultaneous calls need separate ones
    scratch          int64, `Classifier.scratch_items` long
    """
    first = start
    while first < end and ft.is_space(byte_at(data, first)):
        first += 1
    stop = prefix_end(data, first, end, max_characters)
    count = add_document(
        data, first, stop, settings, slots, word_bytes, word_ends, index, rows, keys, sums, spare, scratch
    )
    if count == 0:
        return np.int64(-1), np.int64(0)
    for k in range(settings[ft.DIMENSIONS]):
        scratch[k] //= count
    if settings[ft.HIERARCHICAL]:
        label, score = ft.score_tree(settings, output, tree, scratch)
    else:
        label, score = score_output(settings, output, scratch)
    return ft.in_millionths(label, score)
