# SPDX-License-Identifier: Apache-2.0
"""Loops over documents that call the functions on one document of this package and `curation.kernels`, without the GIL.

`data`, `offsets`: see `curation.kernels`. `valid` is bool, one item per document. Results have one item per document.
"""

import numpy as np

from cpu_fallback.fasttext import classify_document
from cpu_fallback.language_model import score_document
from cpu_fallback.rewriting import differs, rewrite_document
from cpu_fallback.vector_scan import scan_document
from cpu_fallback.vector_shingles import shingle_hashes
from cpu_fallback.vector_tables import count_distinct_words, count_duplicate_lines, count_ngrams
from curation.kernels.cache import kernel
from curation.kernels.fasttext import is_space, window_of
from curation.kernels.hashing import combine64, murmur3_x64_128
from curation.kernels.minhash import at, band_key, common_count, signature
from curation.kernels.ngrams import FREE, slot_of
from curation.kernels.utf8 import byte_at, decode, prefix_end
from curation.kernels.word_breaks import divides, find_divided

MAX_BUCKET = 64  # up to this size, sorting each bucket by insertion is faster than sorting all hashes together


@kernel
def rewrite_rows(data, offsets, valid, form_row, form_data, form_offsets, out, steps, pages, records, flags, lower):
    """Write the rewritten documents to `out`, one after the other; return where each ends, and which of them changed.

    form_row  row of `form_data` with the document's normalised text; negative if the text was already normal
    """
    ends = np.zeros(offsets.size, np.int64)
    edited = np.zeros(offsets.size - 1, np.bool_)
    o = 0
    for row in range(offsets.size - 1):
        if valid[row]:
            start, end = offsets[row], offsets[row + 1]
            if form_row[row] < 0:
                out_end = rewrite_document(data, start, end, out, o, steps, pages, records, flags, lower)
            else:
                first, last = form_offsets[form_row[row]], form_offsets[form_row[row] + 1]
                out_end = rewrite_document(form_data, first, last, out, o, steps, pages, records, flags, lower)
            edited[row] = differs(data, start, end, out, o, out_end)
            o = out_end
        ends[row + 1] = o
    return ends, edited


@kernel
def find_divided_rows(data, offsets, valid, pages, classes):
    """Return whether each text has a character of a script without spaces, U+1361 or U+200B."""
    divided = np.zeros(offsets.size - 1, np.bool_)
    for row in range(offsets.size - 1):
        i, end = offsets[row], offsets[row + 1]
        while valid[row] and i < end and not divided[row]:
            i = find_divided(data, i, end)
            if i < end:
                divided[row] = divides(pages, classes, decode(data, i)[0])
                i += 1
    return divided


@kernel
def measure_rows(
    data, offsets, valid, pages, records, flags, lower, lanes, wanted, lines, distinct, max_ngram, coverage,
    first_duplicates, positions, scratch, out,
):  # fmt: skip
    """Write the measures of each document to its column of `out`. Nulls keep the zeros of `out`."""
    word_hash, word_end, active, active_hash, active_slot, keys, counts = scratch
    for row in range(len(valid)):
        if not valid[row]:
            continue
        words, text_lines = scan_document(
            data, offsets[row], offsets[row + 1], pages, records, flags, lower, lanes, wanted, lines, positions,
            word_hash, word_end, active_hash, active, counts, out, row,
        )  # fmt: skip
        if lines:
            count_duplicate_lines(active_hash, active, text_lines, keys, out, row)
        if distinct:
            count_distinct_words(word_hash, words, keys, out, row)
        if max_ngram:
            count_ngrams(
                words, max_ngram, coverage, first_duplicates, word_hash, word_end, active, active_hash, active_slot,
                keys, counts, out, row,
            )  # fmt: skip


@kernel
def hash_rows(data, offsets, valid, max_characters, out):
    """Write the 128-bit hash of each document's first `max_characters` code points to `out`; nulls are empty texts."""
    for row in range(len(valid)):
        start = offsets[row]
        end = prefix_end(data, start, offsets[row + 1], max_characters) if valid[row] else start
        out[row, 0], out[row, 1] = murmur3_x64_128(data, start, end)


@kernel
def copy_windows(data, offsets, valid, windows, max_characters, out, ends):
    """Write the windows of each text to `out`, with a space after each. A text of up to `max_characters` is one
    window."""
    o = 0
    for row in range(len(valid)):
        first, end = offsets[row], offsets[row + 1] if valid[row] else offsets[row]
        while first < end and is_space(byte_at(data, first)):
            first += 1
        is_long = prefix_end(data, first, end, max_characters) < end
        for window in range(windows if is_long else 1):
            i, stop = first, end
            if is_long:
                i, stop = window_of(data, first, end, window, windows, max_characters)
            out[o : o + stop - i] = data[i:stop]
            o += stop - i
            out[o] = 0x20
            o += 1
        ends[row + 1] = o


@kernel
def classify_rows(
    data, offsets, valid, max_characters, settings, slots, word_bytes, word_ends, index, rows, output, tree, keys,
    sums, spare, scratch, label, score,
):  # fmt: skip
    """Write label and score of each document; `classify_document` describes the tables and the scratch."""
    for row in range(len(valid)):
        end = offsets[row + 1] if valid[row] else offsets[row]
        label[row], score[row] = classify_document(
            data, offsets[row], end, max_characters, settings, slots, word_bytes, word_ends, index, rows, output, tree,
            keys, sums, spare, scratch,
        )  # fmt: skip


@kernel
def score_rows(data, offsets, valid, settings, entries, scratch, out):
    """Write the sums of a language model to out[row]; nulls are empty texts."""
    for row in range(len(valid)):
        end = offsets[row + 1] if valid[row] else offsets[row]
        score_document(data, offsets[row], end, settings, entries, scratch, out[row])


@kernel
def sign_rows(data, offsets, valid, ngram, by_character, a, b, pages, records, flags, words, hashes, out):
    """Write the MinHash signature of each document to out[row]; `words` and `hashes` are scratch of one document."""
    for row in range(len(valid)):
        end = offsets[row + 1] if valid[row] else offsets[row]
        count = shingle_hashes(data, offsets[row], end, ngram, by_character, pages, records, flags, words, hashes)
        signature(hashes, count, a, b, out[row])


@kernel
def key_rows(data, offsets, valid, ngram, by_character, a, b, rows, pages, records, flags, words, hashes, signed, out):
    """Write one key per band of `rows` components to out[band, row]. `signed` is scratch for one signature."""
    for row in range(len(valid)):
        end = offsets[row + 1] if valid[row] else offsets[row]
        count = shingle_hashes(data, offsets[row], end, ngram, by_character, pages, records, flags, words, hashes)
        signature(hashes, count, a, b, signed)
        for band in range(len(out)):
            out[band, row] = band_key(signed, band * rows, rows)


@kernel
def sort_hashes(hashes, spare, bucket_ends):
    """Sort 64-bit hashes into buckets of one hash on average, then by insertion. This sort is 9 times as fast as
    Numba's, which is used if the hashes are uneven."""
    count = np.uint64(len(hashes))
    bits = 1
    while 1 << bits < len(bucket_ends) and 1 << bits < len(hashes):
        bits += 1
    shift = np.uint64(64 - bits)
    ends = bucket_ends[: 1 << bits]
    ends[:] = 0
    for k in range(count):
        ends[hashes[k] >> shift] += 1
    before = 0
    for bucket in range(np.uint64(len(ends))):
        if ends[bucket] > MAX_BUCKET:
            hashes.sort()
            return
        before, ends[bucket] = before + ends[bucket], before
    for k in range(count):
        bucket = hashes[k] >> shift
        spare[np.uint64(ends[bucket])] = hashes[k]
        ends[bucket] += 1
    for k in range(len(hashes)):
        value = spare[np.uint64(k)]
        j = k
        while j > 0 and hashes[np.uint64(j - 1)] > value:
            hashes[np.uint64(j)] = hashes[np.uint64(j - 1)]
            j -= 1
        hashes[np.uint64(j)] = value


@kernel
def shingle_rows(data, offsets, valid, ngram, by_character, pages, records, flags, words, hashes, spare, ends):
    """Write the distinct n-gram hashes of all documents to `hashes`, back to back, and where each document ends."""
    bucket_ends = np.empty(1 << 16, np.int64)
    o = 0
    for row in range(len(valid)):
        if valid[row]:
            count = shingle_hashes(
                data, offsets[row], offsets[row + 1], ngram, by_character, pages, records, flags, words, hashes[o:]
            )
            sort_hashes(hashes[o : o + count], spare, bucket_ends)
            o = keep_distinct(hashes, o, o + count, o)
        ends[row + 1] = o


@kernel
def find_rows(data, offsets, valid, ngram, keys, owners, pages, records, flags, words, hashes, hits, owner):
    """Write how many n-grams of each document are in the table, and the owner of the first of them."""
    for row in range(len(valid)):
        end = offsets[row + 1] if valid[row] else offsets[row]
        count = shingle_hashes(data, offsets[row], end, ngram, False, pages, records, flags, words, hashes)
        hits[row], owner[row] = find_ngrams(hashes, count, keys, owners)


@kernel
def hash_key(keys, row):
    """Return a 64-bit hash of the columns of one row."""
    hashed = np.uint64(0)
    for column in range(keys.shape[1]):
        hashed = combine64(hashed, keys[row, column])
    return hashed


@kernel
def find_partitions(keys, partitions, out):
    """Write the partition of each key, by the high half of its hash. The low bits select the slot."""
    for row in range(len(keys)):
        out[row] = (hash_key(keys, row) >> np.uint64(32)) * np.uint64(partitions) >> np.uint64(32)


@kernel
def find_leaders(keys, rank, slots, leaders):
    """Write the leader of each row: open addressing over row numbers.

    After the first loop, a slot has the row with the smallest rank of its key, or its first row without ranks.
    `leaders` holds slots during the first loop, rows after the second.
    """
    size = np.uint64(len(slots))
    for row in range(len(keys)):
        slot = hash_key(keys, row) % size
        while slots[slot] >= 0 and differ(keys, slots[slot], row):
            slot = slot + np.uint64(1) if slot + np.uint64(1) < size else np.uint64(0)
        if slots[slot] < 0 or (len(rank) and rank[row] < rank[slots[slot]]):
            slots[slot] = row
        leaders[row] = slot
    for row in range(len(keys)):
        leaders[row] = slots[leaders[row]]


@kernel
def differ(keys, first, second):
    """Whether two rows differ in any column; all columns are compared, without a branch."""
    different = False
    for column in range(keys.shape[1]):
        different |= keys[first, column] != keys[second, column]
    return different


@kernel
def count_common(hashes, offsets, left, right, out):
    """Write the number of hashes that each pair of documents shares; hashes are sorted within a document."""
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        out[pair] = common_count(hashes, offsets[i], offsets[i + 1], offsets[j], offsets[j + 1])


@kernel
def join_rows(left, right, label):
    """Join components by union-find. The smaller root stays the root, so a root is the smallest row of its
    component."""
    for pair in range(len(left)):
        i, j = left[pair], right[pair]
        while label[i] != i:
            label[i] = label[label[i]]
            i = label[i]
        while label[j] != j:
            label[j] = label[label[j]]
            j = label[j]
        label[max(i, j)] = min(i, j)
    for row in range(len(label)):
        label[row] = label[label[row]]


@kernel
def keep_distinct(hashes, start, end, o):
    """Move the distinct values of the sorted hashes[start:end] to position `o` <= start; return their end."""
    for k in range(start, end):
        value = hashes[at(k)]
        if k == start or value != hashes[at(o - 1)]:
            hashes[at(o)] = value
            o += 1
    return o


@kernel
def find_ngrams(hashes, count, keys, owners):
    """Return the number of hashes[:count] in the table, and the owner of the first of these; FREE if there is none.

    hashes         uint64; a repeated hash counts each time
    keys, owners   uint64 and int32, one per slot
    """
    mask = np.uint64(len(keys) - 1)
    hits = 0
    owner = FREE
    for k in range(count):
        slot = slot_of(keys, owners, mask, hashes[k])
        if owners[slot] != FREE:
            owner = owners[slot] if hits == 0 else owner
            hits += 1
    return hits, owner
