# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels of the measures: work is divided by bytes, words and lines of a whole batch
(`gpu_pipeline.functions.spans`).

For sums per document, a warp takes a piece of one document, and its threads take neighbouring bytes or words. The warp
adds up their counts, and one thread adds the sum to `out` (int32, (measures, rows)). Rare counts are added one by one.

data, blocks   the text: bytes, and uint64 without a last partial one
origin         the byte of the first bits, a multiple of 32; the batch starts in these 32 bytes
bits           uint32, (MASKS, size): bits of 32 bytes each
ranks          int32, (RANKED, size + 1): bits before each 32 bytes
row_ranks      int32, (RANKED, rows + 1): bits before each document
pieces, rows   int64: first piece of each document, document of each piece
"""

import numpy as np

from curation.base.measures import PROSE_LETTERS
from curation.kernels.hashing import combine64, mix64
from curation.kernels.measures import (
    BULLET_START,
    ELLIPSIS_CHARACTER_END,
    ELLIPSIS_END,
    PUNCTUATED_END,
    SHORT_LINE_CHARACTERS,
    M,
    closes_fence,
    ends_in_sentence_mark,
    fence_code,
    line_end_bits,
    line_start_bits,
    url_start,
)
from curation.kernels.words import (
    HIGH_BITS,
    LANE_ALPHANUMERIC,
    LANE_UPPERCASE,
    first_mark,
    low_bytes,
    mark_capitals,
    mark_letters,
    mark_spaces,
    word_state,
)
from gpu_pipeline.functions.items import at, bits_below, block_at
from gpu_pipeline.functions.listed_words import FUNCTION_WORD, NUM_STOP_WORDS, listed_bits
from gpu_pipeline.functions.spans import (
    ADDRESS,
    BREAK,
    END,
    LEAD,
    LETTER,
    LINE_FEED,
    RANKED,
    SOLID,
    VISIBLE,
    WORD,
    address_bits,
    after_character,
    after_last_other_byte,
    ascii_lanes,
    character_lanes_at,
    character_start,
    count_ellipses,
    ends_sentence,
    hash_span,
    is_second_of_pair,
    last_other_character,
    may_have_ellipsis,
    segment_of,
    span_state,
    text_bits,
)

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

LANES = 32  # threads of a warp
ALL_LANES = 0xFFFFFFFF
BYTE_PIECE, WORD_PIECE = 4096, 512  # bytes and words of a document that one warp takes
SHORT_WORD = 7  # bytes; with the length they fit a uint64
LONG_WORD = LONG_PIECE = 2048  # bytes; longer words are cut into pieces
NO_URL = np.int32(0x7FFFFFFF)
_OF_LANES = (
    M.hash_signs, M.alphanumeric_characters, M.digit_characters, M.uppercase_characters, M.bracket_characters,
    M.punctuation_characters, M.unspaced_characters, M.ellipsis_characters,
)  # fmt: skip
LANE_MEASURES = np.uint64(int.from_bytes(_OF_LANES, "little"))  # one byte per lane of `spans.character_lanes_at`
EVEN_BYTES = np.uint64(0x00FF00FF00FF00FF)
COUNT_BITS, COUNT_MASK = 10, 0x3FF  # of a count up to WORD_PIECE


@cuda.jit(device=True)
def warp_sum(value):
    """Return in each thread of the warp the sum of `value` over all its threads."""
    lanes = LANES >> 1
    while lanes:
        value += cuda.shfl_xor_sync(ALL_LANES, value, lanes)
        lanes >>= 1
    return value


@cuda.jit(device=True)
def warp_max(value):
    """Return in each lane of the warp the largest `value` of all its lanes."""
    lanes = LANES >> 1
    while lanes:
        value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, lanes))
        lanes >>= 1
    return value


@cuda.jit(device=True)
def warp_or(value):
    """Return in each lane of the warp the bits of `value` that are set in any of its lanes."""
    lanes = LANES >> 1
    while lanes:
        value |= cuda.shfl_xor_sync(ALL_LANES, value, lanes)
        lanes >>= 1
    return value


@cuda.jit(device=True)
def rank(bits, ranks, mask, i):
    """The number of bits of a mask before the byte `origin` + i."""
    below = bits[mask, at(i >> 5)] & bits_below(i & 31)
    return ranks[mask, at(i >> 5)] + np.int32(cuda.popc(np.uint32(below)))


@cuda.jit(device=True)
def row_rank(bits, ranks, i):
    """Return the number of bits of one mask before the byte `origin` + i; `ranks` are those of this mask."""
    c = np.uint32(i) >> np.uint32(5)
    below = np.uint32(bits[c] & bits_below(np.int32(i & 31)))
    return np.int32(ranks[c] + np.int32(cuda.popc(below)))


@cuda.jit(cache=True)
def mark_text(data, blocks, origin, marks, pages, records, flags, lanes, bytes_of_bits):
    """One thread per eight bytes: writes eight bits of each mask that is read from the text; `marks`: whether ADDRESS
    is wanted."""
    k = cuda.grid(1)
    while k < bytes_of_bits.shape[1]:
        i = origin + 8 * k
        solid = leads = breaks = letters = addresses = 0
        if i < data.size:
            block = np.uint64(block_at(data, blocks, i))
            solid, leads, breaks, letters = text_bits(data, block, i, pages, records, flags, lanes)
            if marks:
                addresses = address_bits(data, block, i)
        bytes_of_bits[SOLID, at(k)] = solid
        bytes_of_bits[LEAD, at(k)] = leads
        bytes_of_bits[BREAK, at(k)] = breaks
        bytes_of_bits[LETTER, at(k)] = letters
        bytes_of_bits[ADDRESS, at(k)] = addresses
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_words(stops, bits, counts):
    """One thread per 32 bytes: writes the masks of word starts, word ends and visible characters, and the counts of all
    ranked masks. `stops` has a bit for the first byte of each document."""
    c = cuda.grid(1)
    while c < stops.size:
        solid, stop = bits[SOLID, at(c)], stops[at(c)]
        before = bits[SOLID, at(c - 1)] >> np.uint32(31) if c > 0 else np.uint32(0)
        shifted = np.uint32(solid << np.uint32(1) | before)
        starts = np.uint32(solid & (~shifted | stop))
        visible = np.uint32(solid & bits[LEAD, at(c)])
        bits[WORD, at(c)], bits[VISIBLE, at(c)] = starts, visible
        bits[END, at(c)] = shifted & (~solid | stop)
        counts[WORD, at(c)], counts[VISIBLE, at(c)] = cuda.popc(starts), cuda.popc(visible)
        for mask in (LEAD, BREAK, LETTER):
            counts[mask, at(c)] = cuda.popc(bits[mask, at(c)])
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def rank_documents(offsets, origin, bits, ranks, row_ranks):
    """One thread per document: writes the number of bits before the document, of each ranked mask."""
    row = cuda.grid(1)
    if row < offsets.size:
        for mask in range(RANKED):
            row_ranks[mask, row] = rank(bits, ranks, mask, offsets[row] - origin)


@cuda.jit(device=True)
def lowest_bit(bits):
    """Return the position of the lowest set bit of a uint32; 32 for none."""
    return cuda.clz(cuda.brev(np.uint32(bits)))


@cuda.jit(cache=True)
def place_words(bits, ranks, word_starts, word_ends):
    """One thread per 32 bytes: writes the positions where words start and end. Starts and ends have the same order: a
    word that is open before a byte ends at that byte or later."""
    c = cuda.grid(1)
    while c < bits.shape[1]:
        starts, ends = bits[WORD, at(c)], bits[END, at(c)]
        k = j = np.int64(ranks[WORD, at(c)])
        if c > 0:
            j -= np.int64(bits[SOLID, at(c - 1)] >> np.uint32(31))
        base = np.int32(32 * c)
        while starts:
            word_starts[at(k)] = np.int32(base + lowest_bit(starts))
            starts = np.uint32(starts & np.uint32(starts - np.uint32(1)))
            k += 1
        while ends:
            word_ends[at(j)] = np.int32(base + lowest_bit(ends))
            ends = np.uint32(ends & np.uint32(ends - np.uint32(1)))
            j += 1
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def place_breaks(bits, ranks, breaks):
    """One thread per 32 bytes: writes the positions of line breaks."""
    c = cuda.grid(1)
    while c < bits.shape[1]:
        break_bits, k = bits[BREAK, at(c)], ranks[BREAK, at(c)]
        while break_bits:
            breaks[at(k)] = 32 * c + lowest_bit(break_bits)
            break_bits &= np.uint32(break_bits - np.uint32(1))
            k += 1
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def count_urls(data, offsets, valid, origin, bits, ranks, word_ends, pages, records, lanes, url_starts, out):
    """One thread per 32 bytes: counts words with a URL, and their visible characters from the first URL on.
    `url_starts` has the start of the first URL found so far in each word, initially NO_URL. A thread that finds an
    earlier URL adds the difference."""
    c = cuda.grid(1)
    while c < bits.shape[1]:
        address_bits = bits[ADDRESS, at(c)]
        while address_bits:
            i = origin + 32 * c + lowest_bit(address_bits)
            address_bits &= np.uint32(address_bits - np.uint32(1))
            row = segment_of(offsets, i)
            if row >= 0 and row + 1 < offsets.size and valid[row]:
                back = url_start(data, i, offsets[row], offsets[row + 1], pages, records, lanes)
                if back > 0:
                    start = np.int32(i - back - origin)
                    k = rank(bits, ranks, WORD, start + 1) - 1
                    known = cuda.atomic.min(url_starts, k, start)
                    if known == NO_URL:
                        cuda.atomic.add(out, (M.urls, row), 1)
                        known = word_ends[k]
                    if start < known:
                        characters = rank(bits, ranks, VISIBLE, known) - rank(bits, ranks, VISIBLE, start)
                        cuda.atomic.add(out, (M.url_characters, row), characters)
        c += cuda.gridsize(1)


@cuda.jit(device=True)
def block_classes(data, blocks, i, start, end, pages, records, lanes, byte_lanes):
    """Return class counters of the characters of data[start:end] that start in the block at `i`."""
    block = np.uint64(block_at(data, blocks, i))
    if i < start:
        block &= ~np.uint64(low_bytes(start - i))
    if end < i + 8:
        block &= np.uint64(low_bytes(end - i))
    if block & HIGH_BITS == np.uint64(0):
        letters = np.uint64(mark_letters(block))
        counters = np.uint64(cuda.popc(letters)) << np.uint64(LANE_ALPHANUMERIC)
        counters |= np.uint64(cuda.popc(np.uint64(mark_capitals(block)))) << np.uint64(LANE_UPPERCASE)
        others = HIGH_BITS & ~(letters | np.uint64(mark_spaces(block)))
        while others:
            byte = np.int64(block >> np.uint64(8 * first_mark(others)) & np.uint64(0xFF))
            counters += np.uint64(ascii_lanes(byte, byte_lanes))
            others &= others - np.uint64(1)
        return counters
    counters = np.uint64(0)
    for k in range(8):
        byte = np.int64(block >> np.uint64(8 * k) & np.uint64(0xFF))
        if byte & 0xC0 != 0x80 and byte:
            counters += np.uint64(character_lanes_at(data, i + k, pages, records, lanes, byte_lanes))
    return counters


@cuda.jit(cache=True)
def count_classes(data, blocks, offsets, pieces, rows, pages, records, lanes, byte_lanes, out):
    """One warp per piece of a document, one thread per eight bytes: counts characters by class."""
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    while piece < rows.size:
        row = rows[piece]
        start, end = offsets[row], offsets[row + 1]
        first = (start & ~7) + (piece - pieces[row]) * BYTE_PIECE
        even = odd = np.uint64(0)
        i = first + 8 * lane
        while i < min(first + BYTE_PIECE, end):
            counters = block_classes(data, blocks, i, start, end, pages, records, lanes, byte_lanes)
            even += counters & EVEN_BYTES
            odd += counters >> np.uint64(8) & EVEN_BYTES
            i += 8 * LANES
        even, odd = np.uint64(warp_sum(np.int64(even))), np.uint64(warp_sum(np.int64(odd)))
        for turn in range(0, 8, LANES):  # one turn: a range from `lane` becomes seven copies of an atomic
            k = turn + lane
            if k < 8:
                sums = odd if k & 1 else even
                count = np.int32(sums >> np.uint64(16 * (k >> 1)) & np.uint64(0xFFFF))
                if count:
                    cuda.atomic.add(out, (np.int64(LANE_MEASURES >> np.uint64(8 * k) & np.uint64(0xFF)), row), count)
        piece += cuda.gridsize(1) // LANES


@cuda.jit(cache=True)
def measure_words(
    data, blocks, origin, bits, ranks, row_ranks, pieces, rows, word_starts, word_ends, word_hash, word_end,
    long_words, num_long, out,
):  # fmt: skip
    """One warp per piece of a document, one thread per word: writes the measures of words. Words above LONG_WORD bytes
    are listed in `long_words` (number and row of each); `measure_pieces` hashes them and finds their ends.

    word_end   becomes the visible characters before the end of each word, from the start of the batch
    """
    lane, piece = cuda.grid(1) % LANES, cuda.grid(1) // LANES
    visible_bits, visible_ranks, letter_bits, letter_ranks = bits[VISIBLE], ranks[VISIBLE], bits[LETTER], ranks[LETTER]
    while piece < rows.size:
        row = rows[piece]
        k = row_ranks[WORD, row] + (piece - pieces[row]) * WORD_PIECE
        end = min(k + WORD_PIECE, row_ranks[WORD, row + 1])
        last_word = row_ranks[WORD, row + 1] - 1
        k += lane
        counts = longest = listed = np.int32(0)
        while k < end:
            start, stop = word_starts[at(k)], word_ends[at(k)]
            num_bytes = np.int64(stop - start)
            visible = row_rank(visible_bits, visible_ranks, stop)
            word_end[at(k)] = visible
            if num_bytes > LONG_WORD:
                index = cuda.atomic.add(num_long, 0, 1)
                long_words[index, 0], long_words[index, 1] = k, row
                word_hash[at(k)] = np.uint64(0)
                characters = np.int32(visible - row_rank(visible_bits, visible_ranks, start))
                letters = row_rank(letter_bits, letter_ranks, start)
                counts += np.int32(row_rank(letter_bits, letter_ranks, stop) != letters)
            else:
                state, rest, dots = span_state(data, blocks, origin + start, origin + stop)
                rest = np.uint64(rest)
                key, list_bits = np.uint64(rest | np.uint64(num_bytes) << np.uint64(56)), np.int32(0)
                if num_bytes <= SHORT_WORD:
                    list_bits = np.int32(listed_bits(key))
                else:
                    key = np.uint64(word_state(np.uint64(state), rest, num_bytes))
                word_hash[at(k)] = mix64(key)
                if num_bytes <= 8 and rest & HIGH_BITS == np.uint64(0):
                    characters = np.int32(num_bytes)
                    has_letter = mark_letters(rest) != np.uint64(0)
                else:
                    characters = np.int32(visible - row_rank(visible_bits, visible_ranks, start))
                    letters = row_rank(letter_bits, letter_ranks, start)
                    has_letter = row_rank(letter_bits, letter_ranks, stop) != letters
                last = np.int64(rest >> np.uint64(8 * (num_bytes - 1 & 7)) & np.uint64(0xFF))
                is_end = ends_sentence(data, origin + start, origin + stop, last) or k == last_word
                listed |= list_bits
                counts += np.int32(has_letter) + (np.int32(is_end) << COUNT_BITS)
                counts += (list_bits >> NUM_STOP_WORDS) << 2 * COUNT_BITS
                if may_have_ellipsis(rest, dots):
                    ellipses = count_ellipses(data, origin + start, origin + stop, 0)
                    if ellipses:
                        cuda.atomic.add(out, (M.ellipses, row), ellipses)
            longest = max(longest, characters)
            k += LANES
        counts = np.int32(warp_sum(np.int32(counts)))
        longest = np.int32(warp_max(np.int32(longest)))
        listed = np.int32(warp_or(np.int32(listed)))
        if lane == 0:
            cuda.atomic.add(out, (M.words_with_letter, row), counts & COUNT_MASK)
            cuda.atomic.add(out, (M.sentences, row), counts >> COUNT_BITS & COUNT_MASK)
            cuda.atomic.add(out, (M.function_words, row), counts >> 2 * COUNT_BITS)
            cuda.atomic.max(out, (M.max_word_characters, row), longest)
            cuda.atomic.or_(out, (M.stop_words, row), listed & (FUNCTION_WORD - 1))
        piece += cuda.gridsize(1) // LANES


@cuda.jit(device=True)
def numbered(hashed, number):
    """Return the hash of a part of a word or line, mixed with the part's number. The hash of the word or line is the
    sum of these hashes over all parts."""
    return np.uint64(mix64(np.uint64(combine64(np.uint64(hashed), np.uint64(number)))))


@cuda.jit(cache=True)
def measure_pieces(data, blocks, origin, long_words, pieces, piece_words, word_starts, word_ends, word_hash, others):
    """One thread per piece of a long word: adds the piece's hash to the word's, and writes

    others   int64, (2, pieces): the byte after the last one that is no full stop, and where the last character that is
             no closing quote or bracket starts; -1 if the piece has none
    """
    piece = cuda.grid(1)
    while piece < piece_words.size:
        j = piece_words[piece]
        k = long_words[j, 0]
        number = piece - pieces[j]
        word, stop = origin + word_starts[k], origin + word_ends[k]
        start = character_start(data, word + number * LONG_PIECE, stop)
        end = character_start(data, min(word + (number + 1) * LONG_PIECE, stop), stop)
        hashed = hash_span(data, blocks, start, end)
        cuda.atomic.add(word_hash, k, numbered(hashed, number))
        others[0, piece] = after_last_other_byte(data, start, end)
        others[1, piece] = last_other_character(data, start, end)
        piece += cuda.gridsize(1)


@cuda.jit(cache=True)
def finish_pieces(data, origin, row_ranks, long_words, pieces, piece_words, word_starts, word_ends, others, out):
    """One thread per piece of a long word: each counts the ellipses that end in its piece. The thread of the last
    piece checks whether the word ends a sentence."""
    piece = cuda.grid(1)
    while piece < piece_words.size:
        j = piece_words[piece]
        k, row = long_words[j, 0], long_words[j, 1]
        number = piece - pieces[j]
        word, stop = origin + word_starts[k], origin + word_ends[k]
        start = character_start(data, word + number * LONG_PIECE, stop)
        end = character_start(data, min(word + (number + 1) * LONG_PIECE, stop), stop)
        other = piece - 1
        while other >= pieces[j] and others[0, other] < 0:
            other -= 1
        num_stops = start - (others[0, other] if other >= pieces[j] else word)
        ellipses = count_ellipses(data, start, end, num_stops % 3)
        if ellipses:
            cuda.atomic.add(out, (M.ellipses, row), ellipses)
        if piece + 1 == pieces[j + 1]:
            other = piece
            while other >= pieces[j] and others[1, other] < 0:
                other -= 1
            is_end = k + 1 == row_ranks[WORD, row + 1]
            if other >= pieces[j]:
                i = others[1, other]
                is_end |= ends_in_sentence_mark(data, i, after_character(data, i))
            cuda.atomic.add(out, (M.sentences, row), int(is_end))
        piece += cuda.gridsize(1)


@cuda.jit(cache=True)
def measure_lines(
    data, blocks, offsets, valid, origin, bits, ranks, row_ranks, item_starts, breaks, word_starts, word_ends, hashed,
    longest, line_hash, line_mark, line_prose, long_lines, num_long, out,
):  # fmt: skip
    """One thread per line break measures the line that ends there; one thread per document measures the text after the
    last line break. Document k has the items from item_starts[k]. Per item, if `hashed`:

    line_hash   hash of the line's bytes; 0 for lines above LONG_PIECE bytes, which are listed in `long_lines` (item,
                start and end of each)
    line_mark   2 * characters, plus 1 for the first line of a paragraph; -1 for what is no text line
    line_prose  characters of a line with the letters of one of prose; -1 - `fence_code` of a code fence; -1 for others

    `longest` says whether the longest line is wanted.
    """
    k = cuda.grid(1)
    while k < item_starts[offsets.size - 1]:
        mark = prose = np.int64(-1)
        row = segment_of(item_starts, k)
        if valid[row]:
            start, end = offsets[row], offsets[row + 1]
            first_break = row_ranks[BREAK, row]
            b = first_break + k - item_starts[row]
            is_rest = k + 1 == item_starts[row + 1]
            limit = end if is_rest else origin + breaks[b]
            line = start if b == first_break else after_character(data, origin + breaks[b - 1])
            is_line = line < end if is_rest else not is_second_of_pair(data, limit, start)
            if not is_rest and int(data[limit]) == LINE_FEED:
                cuda.atomic.add(out, (M.newlines, row), 1)
            if is_line:
                cuda.atomic.add(out, (M.lines, row), 1)
                word = rank(bits, ranks, WORD, line - origin)
                next_word = rank(bits, ranks, WORD, limit - origin)
                length = np.int32(0)
                if longest or word < next_word:
                    length = rank(bits, ranks, LEAD, limit - origin) - rank(bits, ranks, LEAD, line - origin)
                if longest:
                    cuda.atomic.max(out, (M.max_line_characters, row), length)
                if word < next_word:
                    is_first = word == row_ranks[WORD, row]
                    if not is_first:
                        # The line before this one ends at break b - 1, or at the first of two such breaks.
                        before = b - 1
                        if is_second_of_pair(data, origin + breaks[before], start):
                            before -= 1
                        earlier = start
                        if before > first_break:
                            earlier = after_character(data, origin + breaks[before - 1])
                        is_first = origin + word_starts[word - 1] < earlier
                    mark = 2 * np.int64(length) + int(is_first)
                    count_text_line(
                        data, origin + word_starts[word], origin + word_starts[next_word - 1],
                        origin + word_ends[next_word - 1], length, is_first, out, row,
                    )  # fmt: skip
                    if hashed:
                        letters = rank(bits, ranks, LETTER, limit - origin) - rank(bits, ranks, LETTER, line - origin)
                        code = fence_code(data, origin + word_starts[word], origin + word_ends[next_word - 1])
                        if code > 0:
                            prose -= code
                        elif letters >= PROSE_LETTERS:
                            prose = np.int64(length)
                        if limit - line > LONG_PIECE:
                            index = cuda.atomic.add(num_long, 0, 1)
                            long_lines[index, 0], long_lines[index, 1] = k, line - origin
                            long_lines[index, 2] = limit - origin
                            line_hash[k] = np.uint64(0)
                        else:
                            line_hash[k] = hash_span(data, blocks, line, limit)
        if hashed:
            line_mark[k], line_prose[k] = mark, prose
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def pair_fences(fence_starts, fences, line_prose, edges):
    """One thread per document: writes 1 to `edges` at the items of fences that open code, -1 at those that close it.

    fences   int64: the items of all fences; document k has those from fence_starts[k]
    """
    row = cuda.grid(1)
    while row < fence_starts.size - 1:
        opening = first = np.int64(0)
        for k in range(fence_starts[row], fence_starts[row + 1]):
            code = -1 - np.int64(line_prose[fences[k]])
            if opening == 0:
                opening, first = code, fences[k]
            elif closes_fence(code, opening):
                edges[first], edges[fences[k]] = 1, -1
                opening = np.int64(0)
        row += cuda.gridsize(1)


@cuda.jit(cache=True)
def hash_pieces(data, blocks, origin, long_lines, pieces, piece_lines, line_hash):
    """One thread per piece of a long line: adds the piece's hash to the line's."""
    piece = cuda.grid(1)
    while piece < piece_lines.size:
        j = piece_lines[piece]
        number = piece - pieces[j]
        start = origin + long_lines[j, 1] + number * LONG_PIECE
        end = min(start + LONG_PIECE, origin + long_lines[j, 2])
        hashed = hash_span(data, blocks, start, end)
        cuda.atomic.add(line_hash, long_lines[j, 0], numbered(hashed, number))
        piece += cuda.gridsize(1)


@cuda.jit(cache=True)
def add_lines(line_hash, line_mark, lines, paragraphs, paragraph_starts, paragraph_hash, paragraph_length):
    """One thread per item: adds a text line to its paragraph. Lines of a paragraph count as joined by one character.

    lines, paragraphs   int32: how many text lines and paragraphs start at the items up to this one
    paragraph_starts    int64: the first item of each paragraph
    """
    k = cuda.grid(1)
    while k < line_mark.size:
        if line_mark[k] >= 0:
            paragraph = paragraphs[k] - 1
            number = lines[k] - lines[paragraph_starts[paragraph]]
            cuda.atomic.add(paragraph_hash, paragraph, numbered(line_hash[k], number))
            cuda.atomic.add(paragraph_length, paragraph, (line_mark[k] >> 1) + int(number > 0))
        k += cuda.gridsize(1)


@cuda.jit(device=True)
def count_text_line(data, word, last_word, last_end, length, is_first, out, row):
    """Add a line with words to the measures of lines; `word` and `last_word` are its first and last word."""
    starts, ends = line_start_bits(data, word), line_end_bits(data, last_word, last_end)
    cuda.atomic.add(out, (M.text_lines, row), 1)
    if is_first:
        cuda.atomic.add(out, (M.paragraphs, row), 1)
    if length <= SHORT_LINE_CHARACTERS:
        cuda.atomic.add(out, (M.short_lines, row), 1)
    if starts == BULLET_START:
        cuda.atomic.add(out, (M.bullet_lines, row), 1)
    if starts:
        cuda.atomic.add(out, (M.bullet_or_star_lines, row), 1)
    if ends & PUNCTUATED_END:
        cuda.atomic.add(out, (M.punctuated_lines, row), 1)
    if ends & ELLIPSIS_END:
        cuda.atomic.add(out, (M.ellipsis_lines, row), 1)
    if ends & ELLIPSIS_CHARACTER_END:
        cuda.atomic.add(out, (M.ellipsis_character_lines, row), 1)


def _signatures():
    i32, i64, u8, u16, u32, u64, mask = (
        kind[::1]
        for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64, types.bool_)
    )
    number, flag = types.int64, types.bool_
    bits, ranks, bytes_of_bits = types.uint32[:, ::1], types.int32[:, ::1], types.uint8[:, ::1]
    listed, others, out = types.int32[:, ::1], types.int64[:, ::1], types.int32[:, ::1]
    text, classes = (u8, u64), (u16, u16, u64)
    return {
        mark_text: (*text, number, flag, u16, u16, u32, u64, bytes_of_bits),
        mark_words: (u32, bits, ranks),
        rank_documents: (i64, number, bits, ranks, ranks),
        place_words: (bits, ranks, i32, i32),
        place_breaks: (bits, ranks, i32),
        count_urls: (u8, i64, mask, number, bits, ranks, i32, *classes, i32, out),
        count_classes: (*text, i64, i64, i64, *classes, u64, out),
        measure_words: (*text, number, bits, ranks, ranks, i64, i64, i32, i32, u64, i32, listed, i32, out),
        measure_pieces: (*text, number, listed, i64, i64, i32, i32, u64, others),
        finish_pieces: (u8, number, ranks, listed, i64, i64, i32, i32, others, out),
        measure_lines: (
            *text, i64, mask, number, bits, ranks, ranks, i64, i32, i32, i32, flag, flag, u64, i32, i32, listed, i32,
            out,
        ),
        pair_fences: (i64, i64, i32, i32),
        hash_pieces: (*text, number, listed, i64, i64, u64),
        add_lines: (u64, i32, i32, i32, i64, u64, i32),
    }  # fmt: skip


SIGNATURES = _signatures()
