# SPDX-License-Identifier: Apache-2.0
"""Counts n-grams for the training of language models; on the host only.

A row has the numbers of an n-gram's words, from its last word to its first. So the order of rows sorts n-grams by their
last words. PAD follows BEGIN in rows of n-grams that begin a sentence.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.language_model import hash_span, is_space

PAD, BEGIN, END, UNKNOWN = 0, 1, 2, 3  # reserved word numbers; the numbers of words come after them
FIRST_WORD = 4
LINE_END = np.uint64(0)  # used instead of a hash


@kernel
def find_words(data, offsets, left_out, hashes, starts, ends):
    """Write the hash and the bounds of each word of all texts, and LINE_END after the words of each line. `left_out`
    are hashes of words that are skipped. Return the number of items written."""
    count = 0
    for row in range(offsets.size - 1):
        i, stop = offsets[row], offsets[row + 1]
        inside = False
        while i <= stop:
            byte = data[i] if i < stop else np.uint8(0x0A)
            if byte == 0x0A and inside:
                hashes[count] = LINE_END
                count += 1
                inside = False
            if is_space(byte):
                i += 1
                continue
            first = i
            while i < stop and not is_space(data[i]):
                i += 1
            h = hash_span(data, first, i)
            skip = False
            for k in range(left_out.size):
                skip = skip or h == left_out[k]
            if not skip:
                hashes[count], starts[count], ends[count] = h, first, i
                count += 1
                inside = True
    return count


@kernel
def number_bytes(data, offsets, numbers):
    """Write FIRST_WORD plus each byte of all texts that is no line end, and END after each line with bytes. Return the
    number of items written."""
    count = 0
    for row in range(offsets.size - 1):
        inside = False
        for i in range(offsets[row], offsets[row + 1] + 1):
            if i < offsets[row + 1] and data[i] != 0x0A:
                numbers[count] = FIRST_WORD + data[i]
                inside = True
            elif inside:
                numbers[count] = END
                inside = False
            else:
                continue
            count += 1
    return count


@kernel
def make_rows(words, rows):
    """Write a row for each word and each END, with the n-gram that ends there. `words` has complete sentences."""
    order = rows.shape[1]
    before = 0  # words of the sentence before
    for k in range(words.size):
        for n in range(order):
            if n <= before:
                rows[k, n] = words[k - n]
            else:
                rows[k, n] = BEGIN if n == before + 1 else PAD
        before = 0 if words[k] == END else before + 1


@kernel
def _precedes(keys, a, b):
    for n in range(keys.shape[1]):
        if keys[a, n] != keys[b, n]:
            return keys[a, n] < keys[b, n]
    return a < b


@kernel
def _sift(keys, heads, heap, size, index):
    """Move the block at `index` of the heap down to the position of its row in the order."""
    while True:
        child = 2 * index + 1
        if child >= size:
            return
        if child + 1 < size and _precedes(keys, heads[heap[child + 1]], heads[heap[child]]):
            child += 1
        if not _precedes(keys, heads[heap[child]], heads[heap[index]]):
            return
        heap[index], heap[child] = heap[child], heap[index]
        index = child


@kernel
def begin_merge(keys, heads, heap, size):
    """Order a heap of blocks by the rows at their `heads`."""
    for index in range(size // 2 - 1, -1, -1):
        _sift(keys, heads, heap, size, index)


@kernel
def merge_blocks(keys, values, heads, ends, heap, size, out_keys, out_values):
    """Merge sorted blocks until the output is full: rows with equal keys become one, their values are added. Return the
    number of rows written, and of blocks that remain."""
    count = 0
    while size:
        block = heap[0]
        row = heads[block]
        same = count > 0
        if same:
            for n in range(keys.shape[1]):
                same = same and out_keys[count - 1, n] == keys[row, n]
        if not same:
            if count == len(out_keys):
                return count, size
            out_keys[count] = keys[row]
            out_values[count] = values[row]
            count += 1
        else:
            for n in range(values.shape[1]):
                out_values[count - 1, n] += values[row, n]
        heads[block] += 1
        if heads[block] == ends[block]:
            size -= 1
            heap[0] = heap[size]
        _sift(keys, heads, heap, size, 0)
    return count, size


@kernel
def count_orders(rows, counts, last, raw, left, out_keys, out_values, out_count):
    """Count the n-grams of all orders in sorted rows, batch by batch.

    last        the previous row, initially zeros; after all batches, a row of zeros ends the last n-grams
    raw, left   int64 per order: occurrences of the n-gram that `last` ends, and its different words to the left
    out_keys    int32[order, space, order]: finished n-grams of each order
    out_values  int64[order, space, 2]: adjusted count (Kneser and Ney 1995) and occurrences
    out_count   int64[order]: finished n-grams so far
    """
    order = rows.shape[1]
    for row in range(len(rows)):
        common = 0
        while common < order and last[common] != PAD and last[common] == rows[row, common]:
            common += 1
        for n in range(common, order):
            if last[n] != PAD:
                index = out_count[n]
                for k in range(n + 1):
                    out_keys[n, index, k] = last[k]
                is_whole = n == order - 1 or last[n] == BEGIN
                out_values[n, index, 0] = raw[n] if is_whole else left[n]
                out_values[n, index, 1] = raw[n]
                out_count[n] += 1
        for n in range(common, order):
            raw[n] = left[n] = 0
            last[n] = rows[row, n]
        for n in range(order):
            if rows[row, n] != PAD:
                raw[n] += counts[row]
                if n > 0 and n >= common:
                    left[n - 1] += 1


@kernel
def find_lower(rows, position, lower_rows, lower, out):
    """Find each row without its last column in `lower_rows`, and write the number that `lower` has for it. Both arrays
    of rows are sorted. Return the position in `lower_rows` where the next call begins; -1 if a row is not found."""
    width = lower_rows.shape[1]
    for row in range(len(rows)):
        while position < len(lower_rows):
            same = True
            for n in range(width):
                same = same and lower_rows[position, n] == rows[row, n]
            if same:
                break
            position += 1
        if position == len(lower_rows):
            return -1
        out[row] = lower[position]
    return position
