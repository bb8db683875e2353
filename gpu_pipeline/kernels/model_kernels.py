# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels of fastText models and of language models: work is divided by words and characters of a whole batch.

Tokens are runs of bytes without ASCII white space; masks find them (`core.TextItems`). Sums of rows and of
logarithms are integers, so results do not depend on the order of additions.

A warp takes a piece of one document. It collects the numbers of the rows to add in a queue in shared memory, then adds
them together: its threads read neighbouring weights of a row.

origin, stops    the byte of the first bits, and their mask, as in `core.TextItems`
places           uint64: the first byte of each token of the batch
weights          int64: the rows of the model, two weights in each; an odd row has a zero more
pieces, rows     int64: first piece of each document, document of each piece
scratch          int64, (rows, items): of each document the sum of its rows, then space for the functions of `fasttext`
counts           int64: number of rows in the sum

The module imports neither cuDF nor CuPy. The layout functions take NumPy and CuPy arrays.
"""

import numpy as np

from curation.kernels import fasttext as ft
from curation.kernels import language_model as lm
from curation.kernels.utf8 import byte_at, prefix_end
from curation.kernels.words import HIGH_BITS, mark_range
from gpu_pipeline.functions.items import at, bits_below, block_at
from gpu_pipeline.functions.spans import LOW_SEVEN, bits_of, mark_bytes_equal
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels.core import end_of_item
from gpu_pipeline.kernels.measure_kernels import ALL_LANES, lowest_bit, warp_max, warp_sum

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

LANES = 32  # threads of a warp
WARPS = core.THREADS // LANES  # of a block
QUEUE = 256  # rows that a warp collects before it adds them
QUEUES = WARPS * QUEUE
BYTE_PIECE, TOKEN_PIECE = 512, 256  # bytes and tokens of a document that one warp takes
LABEL_BYTES = 9  # bytes of a token that show whether it is a label
HASHED_BYTES = 4096  # longer tokens have no hash for word n-grams here: the CPU engine takes their documents
WORD, BEGIN, END = 0, 1, 2  # kinds of words of a sentence
HAS_END, HAS_LABEL = 0, 1  # positions in `flags`


# Tokens


@cuda.jit(cache=True)
def mark_tokens(data, blocks, origin, has_nul, solid, breaks):
    """One thread per eight bytes: sets a bit for each byte that is no white space, and for each line feed if `breaks`
    is not empty. NUL is white space if `has_nul`."""
    k = cuda.grid(1)
    while k < solid.size:
        i = origin + 8 * k
        block = np.uint64(block_at(data, blocks, i)) if i < data.size else np.uint64(0)
        low = block & LOW_SEVEN
        spaces = np.uint64(mark_range(low, np.uint64(0x7777777777777777), np.uint64(0x7272727272727272)))
        spaces = spaces & ~block | np.uint64(mark_bytes_equal(block, 0x20))
        if has_nul:
            spaces = spaces | np.uint64(mark_bytes_equal(block, 0))
        solid[at(k)] = bits_of(spaces & HIGH_BITS) ^ 0xFF
        if breaks.size:
            breaks[at(k)] = bits_of(np.uint64(mark_bytes_equal(block, 0x0A)))
        k += cuda.gridsize(1)


@cuda.jit(device=True)
def place_of_item(number, first, last, origin, starts, ranks):
    """Return the first byte of item `number`, which starts in the bytes from `first` to `last`."""
    low, high = (first - origin) >> 5, ((last - origin) >> 5) + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if ranks[at(middle)] <= number:
            low = middle
        else:
            high = middle
    bits = starts[at(low)]
    for _ in range(number - ranks[at(low)]):
        bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
    return origin + 32 * low + lowest_bit(bits)


@cuda.jit(cache=True)
def find_prefixes(offsets, origin, starts, ranks, firsts, tokens, token_ranks, first_tokens, max_characters, ends):
    """One thread per document: `ends` becomes the end of the first `max_characters` characters from its first token,
    if it has more. Document k has the characters from firsts[k] and the tokens from first_tokens[k]."""
    row = cuda.grid(1)
    if row < ends.size and ends[row] - offsets[row] > max_characters and first_tokens[row] < first_tokens[row + 1]:
        first, last = offsets[row], offsets[row + 1]
        spaces = place_of_item(first_tokens[row], first, last, origin, tokens, token_ranks) - first  # of a byte each
        wanted = firsts[row] + spaces + max_characters
        if wanted < firsts[row + 1]:
            ends[row] = place_of_item(wanted, first, last, origin, starts, ranks)


@cuda.jit(cache=True)
def find_windows(
    data, offsets, ends, origin, tokens, token_ranks, first_tokens, windows, max_characters, starts, sizes
):
    """One thread per window: writes where it starts, and its size with the space after it. A text of up to
    `max_characters` is its own first window. Document k has the tokens from first_tokens[k]."""
    k = cuda.grid(1)
    if k < starts.size:
        row, window = k // windows, k % windows
        first, end = offsets[row], ends[row]
        if first < end and first_tokens[row] < first_tokens[row + 1]:
            first = place_of_item(first_tokens[row], first, offsets[row + 1], origin, tokens, token_ranks)
        else:
            first = end
        start, stop = np.int64(first), np.int64(end)
        if prefix_end(data, first, end, max_characters) < end:
            start, stop = ft.window_of(data, first, end, window, windows, max_characters)
        elif window:
            stop = start - 1
        starts[k], sizes[k] = start, stop - start + 1


@cuda.jit(cache=True)
def copy_windows(data, starts, out_starts, out):
    """One warp per window: copies its bytes and a space to out[out_starts[k]:out_starts[k + 1]]."""
    lane, k = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while k < starts.size:
        shift, last = starts[k] - out_starts[k], out_starts[k + 1] - 1
        o = out_starts[k] + lane
        while o <= last:
            out[at(o)] = data[at(o + shift)] if o < last else 0x20
            o += LANES
        k += cuda.gridsize(1) // LANES


# fastText


@cuda.jit(device=True)
def push(queue, count, number, pairs):
    """Append the row of each thread of the warp to the queue of `count` rows; return the queue's new length. A negative
    row is skipped. The queue has the position at which a row starts; a row has `pairs` pairs of weights."""
    lane = cuda.threadIdx.x % LANES
    votes = np.uint32(cuda.ballot_sync(ALL_LANES, number >= 0))
    if number >= 0:
        index = count + cuda.popc(np.uint32(votes & bits_below(lane)))
        queue[at(index)] = np.int64(np.int32(number)) * np.int64(np.int32(pairs))
    return np.int32(count + cuda.popc(votes))


@cuda.jit(device=True)
def shift_of(pairs):
    """Return the logarithm to base 2 of the number of threads that share a row."""
    shift = 0
    while (1 << shift) < min(pairs, LANES):
        shift += 1
    return shift


@cuda.jit(device=True)
def flush(queue, count, pairs, shift, weights, scratch, counts, row):
    """Add the rows of the queue to the sum of a document; each thread takes two neighbouring weights."""
    cuda.syncwarp()
    lane, step = cuda.threadIdx.x % LANES, LANES >> shift
    d = np.int64(lane & ((1 << shift) - 1))
    while d < pairs:
        low, high = np.int64(0), np.int64(0)
        k = np.int64(lane >> shift)
        while k + step < count:
            first, second = weights[at(queue[at(k)] + d)], weights[at(queue[at(k + step)] + d)]
            low += np.int64(np.int32(first)) + np.int64(np.int32(second))
            high += (first >> 32) + (second >> 32)
            k += 2 * step
        if k < count:
            first = weights[at(queue[at(k)] + d)]
            low += np.int64(np.int32(first))
            high += first >> 32
        if low:
            cuda.atomic.add(scratch, (row, 2 * d), low)
        if high:
            cuda.atomic.add(scratch, (row, 2 * d + 1), high)
        d += 1 << shift
    if lane == 0 and count:
        cuda.atomic.add(counts, row, count)
    cuda.syncwarp()


@cuda.jit(cache=True)
def look_up_tokens(
    data, origin, stops, positions, firsts, lasts, ends, pieces, rows, most_bytes, settings, slots, word_bytes,
    word_ends, weights, numbers, codes, flags, too_long, scratch, counts,
):  # fmt: skip
    """One warp per piece of a document, one thread per token: adds the row of its word.

    firsts, lasts   int64: the tokens of each document
    ends            becomes the first token `</s>` of a document, if it has one: then HAS_END of `flags` is set
    most_bytes      tokens of more bytes are no words
    numbers         int32: `fasttext.number_of_token` of each token
    codes           uint32: hash of each token for word n-grams, or empty
    too_long        becomes True for documents with a token above `most_bytes`, if `codes` is not empty
    """
    queues = cuda.shared.array(QUEUES, types.int64)
    warp, lane = cuda.threadIdx.x // LANES, cuda.threadIdx.x % LANES
    queue = queues[QUEUE * warp : QUEUE * (warp + 1)]
    pairs = (settings[ft.DIMENSIONS] + 1) >> 1
    shift = shift_of(pairs)
    piece = cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        k = firsts[row] + (piece - pieces[row]) * TOKEN_PIECE
        last = min(k + TOKEN_PIECE, lasts[row])
        count = np.int32(0)
        while k < last:
            number = np.int64(ft.UNKNOWN)
            if k + lane < last:
                i = np.int64(positions[at(k + lane)])
                stop = end_of_item(stops, origin, i, most_bytes)
                if stop - i > most_bytes:
                    if ft.is_label(data, i, stop):
                        number = np.int64(ft.SKIPPED)
                    elif codes.size:
                        too_long[row] = True
                elif ft.is_end(data, i, stop):
                    flags[HAS_END] = 1
                    cuda.atomic.min(ends, row, i)
                else:
                    h = ft.hash_bytes(data, i, stop)
                    number = np.int64(ft.number_of_token(data, i, stop, h, settings, slots, word_bytes, word_ends))
                    if codes.size:
                        codes[at(k + lane)] = h
                numbers[at(k + lane)] = number
                if number == ft.SKIPPED:
                    flags[HAS_LABEL] = 1
            count = push(queue, count, number, pairs)
            k += LANES
        flush(queue, count, pairs, shift, weights, scratch, counts, row)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def add_characters(
    data, origin, starts, stops, ranks, offsets, ends, pieces, rows, numbers, reciprocal, settings, index, weights,
    scratch, counts,
):  # fmt: skip
    """One warp per piece of a document, one thread per byte: adds the rows of the character n-grams of `<token>` that
    start at the byte. The byte before a token counts as its `<`.

    starts, ranks   of tokens
    ends            int64: the end of the part of each document that is read
    numbers         of tokens if one of them is SKIPPED, or else empty
    reciprocal      of the number of buckets, for `fasttext.remainder`
    """
    queues = cuda.shared.array(QUEUES, types.int64)
    warp, lane = cuda.threadIdx.x // LANES, cuda.threadIdx.x % LANES
    queue = queues[QUEUE * warp : QUEUE * (warp + 1)]
    num_words, pairs = settings[ft.NUM_WORDS], (settings[ft.DIMENSIONS] + 1) >> 1
    shift = shift_of(pairs)
    shortest, longest = settings[ft.MIN_CHARACTERS], settings[ft.MAX_CHARACTERS]
    buckets = np.uint64(settings[ft.BUCKETS])
    piece = cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        start, end = offsets[row], ends[row]
        i = start - 1 + (piece - pieces[row]) * BYTE_PIECE
        last = min(i + BYTE_PIECE, end)
        i += lane
        count = np.int32(0)
        while i - lane < last:
            opens = i < start or (i < last and ft.is_space(byte_at(data, i)))
            first = i + 1 if opens else i  # of the token's characters from here on
            is_character = i < last and first < end
            if is_character:
                byte = byte_at(data, first)
                is_character = not ft.is_space(byte) and byte & 0xC0 != 0x80
            if is_character and numbers.size:
                j = first + 1 - origin
                token = ranks[at(j >> 5)] + cuda.popc(np.uint32(starts[at(j >> 5)] & bits_below(j & 31))) - 1
                is_character = numbers[at(token)] != ft.SKIPPED
            stop = end_of_item(stops, origin, first, 4 * longest) if is_character else first
            j, h = i, ft.FNV_START
            for n in range(1, longest + 1):
                number = np.int64(-1)
                if is_character and j <= stop:
                    h, j = ft.add_character(data, first, stop, j, h)
                    if n >= shortest and (n > 1 or not opens):
                        number = np.int64(ft.row_of_bucket(ft.remainder(h, buckets, reciprocal), index, num_words))
                if n < shortest:
                    continue
                count = push(queue, count, number, pairs)
                if count > QUEUE - LANES:
                    flush(queue, count, pairs, shift, weights, scratch, counts, row)
                    count = np.int32(0)
            i += LANES
        flush(queue, count, pairs, shift, weights, scratch, counts, row)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def add_token_ngrams(codes, firsts, lasts, pieces, rows, end_code, settings, index, weights, scratch, counts):
    """One warp per piece of a document, one thread per token that is no label: adds the rows of the word n-grams that
    start at the token. The token of `end_code` follows a document's tokens, unless `end_code` is negative."""
    queues = cuda.shared.array(QUEUES, types.int64)
    warp, lane = cuda.threadIdx.x // LANES, cuda.threadIdx.x % LANES
    queue = queues[QUEUE * warp : QUEUE * (warp + 1)]
    pairs, longest = (settings[ft.DIMENSIONS] + 1) >> 1, settings[ft.WORD_NGRAMS]
    shift = shift_of(pairs)
    piece = cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        k = firsts[row] + (piece - pieces[row]) * TOKEN_PIECE
        end = lasts[row]
        last = min(k + TOKEN_PIECE, end)
        k += lane
        count = np.int32(0)
        while k - lane < last:
            h = np.uint64(0)
            if k < last:
                h = np.uint64(ft.code_of_word(np.uint64(codes[at(k)])))
            for n in range(1, longest):
                number = np.int64(-1)
                if k < last and k + n < end + int(end_code >= 0):
                    code = np.uint64(codes[at(k + n)]) if k + n < end else np.uint64(end_code)
                    h = np.uint64(ft.add_word(h, np.uint64(ft.code_of_word(code))))
                    number = np.int64(ft.row_of_word_ngram(h, settings, index))
                count = push(queue, count, number, pairs)
                if count > QUEUE - LANES:
                    flush(queue, count, pairs, shift, weights, scratch, counts, row)
                    count = np.int32(0)
            k += LANES
        flush(queue, count, pairs, shift, weights, scratch, counts, row)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def average_rows(dimensions, scratch, counts):
    """One thread per document and dimension: divides the sum of the rows by their number."""
    k = cuda.grid(1)
    while k < counts.size * dimensions:
        row, d = k // dimensions, k % dimensions
        if counts[row]:
            scratch[row, d] //= counts[row]
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def score_trees(settings, output, tree, scratch, counts, label, score):
    """One thread per document: writes label and score of a hierarchical softmax."""
    row = cuda.grid(1)
    if row < counts.size:
        chosen, value = np.int64(-1), np.int64(0)
        if counts[row]:
            chosen, value = ft.score_tree(settings, output, tree, scratch[row])
        label[row], score[row] = ft.in_millionths(chosen, value)


@cuda.jit(cache=True)
def multiply_outputs(settings, output, scratch, counts):
    """One thread per document and label: writes the label's product with the average; products follow the average in
    `scratch`."""
    labels, dimensions = settings[ft.NUM_LABELS], settings[ft.DIMENSIONS]
    k = cuda.grid(1)
    while k < counts.size * labels:
        row, number = k // labels, k % labels
        scratch[row, dimensions + number] = ft.output_of(output, number, dimensions, scratch[row])
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def choose_labels(settings, scratch, counts, label, score):
    """One warp per document: chooses the label of a softmax from the products. Of equally likely labels the last one
    wins."""
    labels, dimensions, shift = settings[ft.NUM_LABELS], settings[ft.DIMENSIONS], settings[ft.SHIFT]
    lane, row = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    if row < counts.size:
        largest = scratch[row, dimensions]
        for k in range(lane, labels, LANES):
            largest = max(largest, scratch[row, dimensions + k])
        largest = warp_max(largest)
        best, total = np.int64(0), np.int64(0)
        for k in range(lane, labels, LANES):
            value = scratch[row, dimensions + k]
            if value == largest:
                best = np.int64(k)
            total += ft.exp_minus(largest - value, shift)
        best, total = warp_max(best), warp_sum(total)
        if lane == 0:
            chosen, value = np.int64(-1), np.int64(0)
            if counts[row]:
                chosen, value = ft.share_of_label(settings, scratch[row], best, total)
            label[row], score[row] = ft.in_millionths(chosen, value)


# Language models


@cuda.jit(cache=True)
def count_bits(bits, counts):
    """One thread per 32 bytes: counts the bits of a mask."""
    c = cuda.grid(1)
    while c < bits.size:
        counts[at(c)] = cuda.popc(bits[at(c)])
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_sentences(origin, breaks, ranks, is_first, positions, opens):
    """One thread per word: writes whether the word is the first of its line."""
    k = cuda.grid(1)
    while k < positions.size:
        is_new = is_first[at(k)]
        if not is_new:
            i, j = np.int64(positions[at(k)]) - origin, np.int64(positions[at(k - 1)]) - origin
            before = ranks[at(j >> 5)] + cuda.popc(np.uint32(breaks[at(j >> 5)] & bits_below(j & 31)))
            is_new = ranks[at(i >> 5)] + cuda.popc(np.uint32(breaks[at(i >> 5)] & bits_below(i & 31))) != before
        opens[at(k)] = is_new
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def place_sentences(data, origin, stops, positions, opens, sentences, settings, entries, words, kinds):
    """One thread per word: writes the word to its position between the BEGIN and the END of its sentence.

    opens, sentences   uint8: whether a sentence starts at each word; int64: the sentences that start up to it
    """
    k = cuda.grid(1)
    while k < positions.size:
        i = np.int64(positions[at(k)])
        p = k + 2 * sentences[at(k)] - 1
        stop = end_of_item(stops, origin, i, settings[lm.LONGEST])
        words[at(p)], kinds[at(p)] = np.uint64(lm.word_of(data, i, stop, settings, entries)), WORD
        if opens[at(k)]:
            words[at(p - 1)], kinds[at(p - 1)] = np.uint64(settings[lm.BEGIN]), BEGIN
            if p > 1:
                words[at(p - 2)], kinds[at(p - 2)] = np.uint64(settings[lm.END]), END
        if k + 1 == positions.size:
            words[at(p + 1)], kinds[at(p + 1)] = np.uint64(settings[lm.END]), END
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def look_up_ngrams(words, kinds, settings, entries, logs, lengths, back_offs):
    """One thread per word: finds the longest n-gram of the model that ends with the word; writes its log probability
    and its number of words. Row n of `back_offs` gets the back-off weight of the n + 1 words that end with this
    word."""
    longest, is_closed = settings[lm.ORDER] - 1, settings[lm.CLOSED] != 0
    k = cuda.grid(1)
    while k < words.size:
        key = np.uint64(words[at(k)])
        weights = np.uint64(lm.weights_of(entries, key))
        best, length = weights, 1
        goes_on = kinds[at(k)] != BEGIN
        for n in range(longest):
            back_offs[n, at(k)] = lm.back_off(weights)
            weights = np.uint64(0)
            if goes_on:
                j = at(k - n - 1)
                key = np.uint64(lm.longer_key(key, words[j]))
                weights = np.uint64(lm.weights_of(entries, key))
                if weights != np.uint64(0):
                    best, length = weights, n + 2
                goes_on = kinds[j] != BEGIN and (weights != np.uint64(0) or not is_closed)
        logs[at(k)], lengths[at(k)] = lm.log_probability(best), length
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def add_scores(words, kinds, logs, lengths, back_offs, firsts, pieces, rows, settings, out):
    """One warp per piece of a document, one thread per word: adds its log probability. Document k has the words from
    firsts[k], BEGIN and END included."""
    longest, unknown = settings[lm.ORDER] - 1, np.uint64(settings[lm.UNKNOWN])
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        k = firsts[row] + (piece - pieces[row]) * TOKEN_PIECE
        last = min(k + TOKEN_PIECE, firsts[row + 1])
        k += lane
        total, strange = np.int64(0), np.int64(0)
        while k < last:
            if kinds[at(k)] != BEGIN:
                total += logs[at(k)]
                for n in range(np.int64(lengths[at(k)]) - 1, longest):
                    total += back_offs[n, at(k - 1)]
                strange += int(kinds[at(k)] == WORD and words[at(k)] == unknown)
            k += LANES
        total, strange = warp_sum(total), warp_sum(strange)
        if lane == 0:
            cuda.atomic.add(out, (row, lm.TOTAL), total)
            cuda.atomic.add(out, (row, lm.UNKNOWN_WORDS), strange)
        piece += cuda.gridsize(1) // LANES


def _signatures():
    i32, i64, u8, u32, u64, mask = (
        kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint32, types.uint64, types.bool_)
    )
    number, flag, scratch = types.int64, types.bool_, types.int64[:, ::1]
    pieces = i64, i64
    dictionary = i64, i32, u8, i64
    return {
        mark_tokens: (u8, u64, number, flag, u8, u8),
        find_prefixes: (i64, number, u32, i64, i64, u32, i64, i64, number, i64),
        find_windows: (u8, i64, i64, number, u32, i64, i64, number, number, i64, i64),
        copy_windows: (u8, i64, i64, u8),
        look_up_tokens: (
            u8, number, u32, u64, i64, i64, i64, *pieces, number, *dictionary, i64, i32, u32, i32, mask, scratch, i64,
        ),
        add_characters: (u8, number, u32, u32, i64, i64, i64, *pieces, i32, number, i64, u64, i64, scratch, i64),
        add_token_ngrams: (u32, i64, i64, *pieces, number, i64, u64, i64, scratch, i64),
        average_rows: (number, scratch, i64),
        score_trees: (i64, i32, i32, scratch, i64, i32, i64),
        multiply_outputs: (i64, i32, scratch, i64),
        choose_labels: (i64, scratch, i64, i32, i64),
        count_bits: (u32, i64),
        mark_sentences: (number, u32, i64, mask, u64, u8),
        place_sentences: (u8, number, u32, u64, u8, i64, i64, u64, u64, u8),
        look_up_ngrams: (u64, u8, i64, u64, i32, u8, types.int32[:, ::1]),
        add_scores: (u64, u8, i32, u8, types.int32[:, ::1], i64, *pieces, i64, scratch),
    }  # fmt: skip


SIGNATURES = _signatures()


def in_pairs(weights, dimensions: int):
    """Return rows of int32 as int64 with two weights in each, so one load takes both."""
    if dimensions % 2 == 0:
        return weights.view(np.int64)
    rows = np.zeros_like(weights, shape=(weights.size // dimensions, dimensions + 1))
    rows[:, :-1] = weights.reshape(-1, dimensions)
    return rows.reshape(-1).view(np.int64)


def find_tokens(data, blocks, offsets, has_nul: bool, breaks=None) -> core.TextItems:
    """Find the tokens of all documents. `breaks` (uint32, one per 32 bytes) gets the line feeds."""
    origin, stops = core.find_borders(offsets)
    solid = core.empty(offsets, np.uint32, stops.size)
    line_feeds = core.zeros(offsets, np.uint8, 0) if breaks is None else breaks.view(np.uint8)
    arguments = data, blocks, origin, has_nul, solid.view(np.uint8), line_feeds
    core.launch_shared(mark_tokens, 4 * stops.size, *arguments)
    return core.number_items(blocks, offsets, origin, stops, solid, False)


def prefix_ends(data, blocks, offsets, ends, max_characters: int, properties):
    """Return where the first `max_characters` characters from each document's first token end, or `ends` if that is
    earlier; 0 means all characters."""
    if max_characters and bool((ends - offsets[:-1] > max_characters).any()):
        items = core.find_items(data, blocks, offsets, True, properties)
        tokens = find_tokens(data, blocks, offsets, True)
        of_tokens = tokens.starts, tokens.ranks, tokens.row_starts
        arguments = offsets, items.origin, items.starts, items.ranks, items.row_starts, *of_tokens, max_characters, ends
        core.launch(find_prefixes, ends.size, *arguments)
    return ends


def spread_windows(data, blocks, offsets, ends, windows: int, max_characters: int):
    """Return the windows of all documents, where the windows of each document start, and where the last one ends."""
    tokens = find_tokens(data, blocks, offsets, True)
    starts, sizes = (core.empty(offsets, np.int64, windows * ends.size) for _ in range(2))
    of_tokens = tokens.origin, tokens.starts, tokens.ranks, tokens.row_starts
    core.launch(find_windows, starts.size, data, offsets, ends, *of_tokens, windows, max_characters, starts, sizes)
    out_starts = core.starts_of(sizes)
    out = core.empty(data, np.uint8, int(out_starts[-1]))
    core.launch(copy_windows, starts.size * LANES, data, starts, out_starts, out)
    return out, out_starts[::windows]


def positions_of(items: core.TextItems, offsets):
    """Return the first byte of each item (uint64)."""
    positions = core.empty(offsets, np.uint64, int(items.row_starts[-1]))
    block, end_block = int(offsets[0]) // 8, -(-int(offsets[-1]) // 8)
    arguments = items.origin, block, end_block, items.starts, items.ranks, 0, positions
    core.launch_shared(core.place_items, end_block - block, *arguments)
    return positions
