# SPDX-License-Identifier: Apache-2.0
"""Computes the measures that need the text, and the hashes of words and lines, on the CPU by masks of 64 bytes.

`find_words` turns masks into positions. Then each loop does one thing for all words, or for all lines: LLVM compiles
such loops, which have few branches, to vector code. Positions are bytes of `data`. `allocate_positions` describes the
arrays that `measures` does not describe.
"""

import numpy as np

from cpu_fallback.masks import (
    AHEAD,
    NO_BITS,
    ONE,
    append_few_positions,
    append_positions,
    class_masks,
    count_bits,
    first_bits,
    fold_product,
    lowest_bit,
    mark_masks,
    prefetch,
    text_masks,
)
from cpu_fallback.word_kinds import count_non_symbol_words, count_word_cases, count_word_lengths
from curation.base.measures import ENGLISH_FUNCTION_WORDS, GOPHER_STOP_WORDS, PROSE_LETTERS
from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, FMIX_2, GOLDEN, combine64, load64, load_tail
from curation.kernels.measures import (
    BULLET_START,
    ELLIPSIS_CHARACTER_END,
    ELLIPSIS_END,
    IS_FIRST,
    IS_PROSE,
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
from curation.kernels.tables import LINE_BREAK
from curation.kernels.utf8 import byte_at
from curation.kernels.words import (
    LANE_ALPHABETIC,
    LANE_ALPHANUMERIC,
    LANE_BRACKET,
    LANE_DIGIT,
    LANE_PUNCTUATION,
    LANE_UNSPACED,
    LANE_UPPERCASE,
    finish_word,
)

at = np.uint64


def short_key(word: str) -> np.uint32:
    """Return the key of a listed word: four bytes, padded with 0xFF. `_short_key` finds the same key in a text."""
    assert len(word) <= 4, f"{word}: only listed words of up to four letters are found"
    return np.uint32(int.from_bytes(word.encode().ljust(4, b"\xff"), "little"))


STOP_KEYS = tuple(map(short_key, GOPHER_STOP_WORDS))
FUNCTION_KEYS = tuple(map(short_key, ENGLISH_FUNCTION_WORDS))
ABSENT = np.uint32(0xFFFFFFFF)
CASE_BITS = np.uint32(0x20202020)  # bit 0x20 is the case of an ASCII letter


def allocate_positions(longest: int) -> tuple[np.ndarray, ...]:
    """Return the arrays that a scan writes, for documents of up to `longest` bytes."""
    blocks = longest // 64 + 2
    return (
        np.empty(longest + 9, np.int64),  # edges: where words start and end, alternating
        np.empty(longest + 3, np.int64),  # breaks: where line breaks start
        np.empty(longest // 3 + 1, np.int64),  # addresses: where URLs may start
        np.empty(longest // 2 + 65, np.uint32),  # short_words: keys of `_short_key`
        np.empty(blocks, np.uint64),  # all_changes: masks of the edges
        np.empty(blocks, np.int64),  # changes_before: number of edges before each mask
        np.empty(blocks, np.uint64),  # characters: masks of first bytes of characters
        np.empty(blocks, np.int64),  # characters_before: number of characters before each mask
        np.empty(blocks, np.uint64),  # visible_characters: the same without white space
        np.empty(blocks, np.int64),  # visible_before
    )


@kernel
def read_beyond_ascii(data, base, firsts, pages, records, flags, lanes, classes, out, row):
    """Return masks of white space, line breaks and letters for the characters that start at the bits `firsts` of the 64
    bytes from `base`, and a mask of white space that reaches into the next 64 bytes. With `classes`, add the classes of
    these characters to the measures."""
    spaces = breaks = letters = next_spaces = NO_BITS
    counters = NO_BITS
    while firsts:
        k = lowest_bit(firsts)
        bit = firsts & (~firsts + ONE)
        firsts &= firsts - ONE
        code_point, width = utf8.decode(data, base + k)
        record = utf8.record_of(pages, records, code_point)
        lane = lanes[at(record)]
        if lane != NO_BITS:
            counters += lane
            letters |= (lane >> at(LANE_ALPHABETIC) & ONE) << at(k)
            if code_point == 0x2026:
                out[M.ellipsis_characters, row] += 1
            elif code_point == 0x27E8 or code_point == 0x27E9:
                counters += at(1 << LANE_BRACKET)
            continue
        spaces |= first_bits(width) << at(k)
        if k + width > 64:
            next_spaces = first_bits(k + width - 64)
        if flags[at(record)] & np.uint32(LINE_BREAK) != np.uint32(0):
            breaks |= bit
    if classes:
        flush_lanes(counters, out, row)
    return spaces, breaks, letters, next_spaces


@kernel
def _count_classes(data, base, valid, letters, out, row):
    """Add the classes of the ASCII characters among the `valid` of the 64 bytes from `base`."""
    digits, capitals, punctuation, brackets = class_masks(data, base)
    num_letters, num_digits = count_bits(letters), count_bits(digits & valid)
    out[M.alphabetic_characters, row] += num_letters
    out[M.digit_characters, row] += num_digits
    out[M.alphanumeric_characters, row] += num_letters + num_digits
    out[M.uppercase_characters, row] += count_bits(capitals & valid)
    out[M.punctuation_characters, row] += count_bits(punctuation & valid)
    out[M.bracket_characters, row] += count_bits(brackets & valid)


@kernel
def _count_hidden_ends(data, base, ends, edges, num_edges):
    """Return how many of the words that end at the bits `ends` end a sentence by a mark before quotes or brackets, or
    by a mark beyond ASCII."""
    count = 0
    k = num_edges - 1
    while ends:
        end = base + lowest_bit(ends)
        ends &= ends - ONE
        while edges[at(k)] != end:
            k -= 1
        count += int(ends_in_sentence_mark(data, edges[at(k - 1)], end))
        k = num_edges - 1
    return count


@kernel
def find_words(
    data, start, end, pages, records, flags, lanes, classes, marks, edges, breaks, addresses, all_changes,
    changes_before, characters, characters_before, visible_characters, visible_before, out, row,
):  # fmt: skip
    """Write the positions, and the measures that need neither hashes nor lines; return the numbers of words, breaks and
    addresses."""
    num_edges = num_breaks = num_addresses = num_characters = num_visible = 0
    with_letter = sentences = hash_signs = ellipses = 0
    free = start  # the next ellipsis starts at this position or later
    next_spaces = last_visible = letter_carry = NO_BITS
    last_ends = last_hidden = last_dots = last_colons = last_slashes = last_ws = NO_BITS
    block = 0
    base = start
    while base < end:
        prefetch(data, base + AHEAD)
        spaces, line_breaks, letters, beyond, laters, dots, hashes = text_masks(data, base)
        valid = ~NO_BITS if end - base >= 64 else first_bits(end - base)
        beyond &= valid
        letters &= valid
        line_breaks &= valid
        dots &= valid
        hash_signs += count_bits(hashes & valid)
        if classes:
            _count_classes(data, base, valid, letters, out, row)
        spaces |= next_spaces
        next_spaces = NO_BITS
        if beyond:
            more_spaces, more_breaks, more_letters, next_spaces = read_beyond_ascii(
                data, base, beyond & ~laters, pages, records, flags, lanes, classes, out, row
            )
            spaces |= more_spaces
            line_breaks |= more_breaks
            letters |= more_letters

        visible = ~spaces & valid
        firsts = valid & ~laters
        characters[at(block)], characters_before[at(block)] = firsts, num_characters
        num_characters += count_bits(firsts)
        firsts &= visible
        visible_characters[at(block)], visible_before[at(block)] = firsts, num_visible
        num_visible += count_bits(firsts)
        changes = visible ^ (visible << ONE | last_visible)
        ends = changes & ~visible
        last_visible = visible >> at(63)
        all_changes[at(block)], changes_before[at(block)] = changes, num_edges
        num_edges = append_positions(changes, base, edges, num_edges)
        # The sum carries a bit to the end of each word that has a letter.
        total = visible + letters
        carry = at(total < visible)
        total += letter_carry
        letter_carry = carry | at(total < letter_carry)
        with_letter += count_bits(total & ~visible)
        num_breaks = append_few_positions(line_breaks, base, breaks, num_breaks)
        triples = dots & (dots << ONE | last_dots >> ONE) & (dots << at(2) | last_dots)
        last_dots = dots >> at(62)
        while triples:
            position = base + lowest_bit(triples)
            triples &= triples - ONE
            if position >= free:
                ellipses += 1
                free = position + 3
        if marks:
            sentence_ends, hidden, colons, slashes, ws = mark_masks(data, base)
            sentences += count_bits(ends & (sentence_ends << ONE | last_ends))
            hidden_ends = ends & (hidden << ONE | last_hidden)
            last_ends, last_hidden = sentence_ends >> at(63), hidden >> at(63)
            if hidden_ends:
                sentences += _count_hidden_ends(data, base, hidden_ends, edges, num_edges)
            # "://" is complete at its second stroke, "www." at its full stop.
            strokes = slashes & (slashes << ONE | last_slashes) & (colons << at(2) | last_colons)
            stops = dots & (ws << ONE | last_ws >> at(2)) & (ws << at(2) | last_ws >> ONE) & (ws << at(3) | last_ws)
            last_slashes, last_colons, last_ws = slashes >> at(63), colons >> at(62), ws >> at(61)
            address_bits = (strokes | stops) & valid
            while address_bits:
                k = lowest_bit(address_bits)
                addresses[at(num_addresses)] = base + k - (2 if strokes >> at(k) & ONE else 0)
                num_addresses += 1
                address_bits &= address_bits - ONE
        block += 1
        base += 64
    all_changes[at(block)], changes_before[at(block)] = NO_BITS, num_edges
    characters[at(block)], characters_before[at(block)] = NO_BITS, num_characters
    visible_characters[at(block)], visible_before[at(block)] = NO_BITS, num_visible
    if last_visible:
        edges[at(num_edges)] = end
        num_edges += 1
        if marks:
            sentences += int(ends_in_sentence_mark(data, edges[at(num_edges - 2)], end))
    out[M.words_with_letter, row] = with_letter + int(letter_carry)
    out[M.sentences, row] = sentences
    out[M.hash_signs, row] = hash_signs
    out[M.ellipses, row] = ellipses + out[M.ellipsis_characters, row]
    out[M.symbols, row] = hash_signs + out[M.ellipses, row]
    out[M.symbol_characters, row] = hash_signs + out[M.ellipsis_characters, row]
    out[M.characters, row] = num_characters
    out[M.word_characters, row] = num_visible
    out[M.space_characters, row] = num_characters - num_visible
    return num_edges >> 1, num_breaks, num_addresses


@kernel
def _count_before(masks, before, offset):
    """Return the number of bits for the first `offset` bytes of the document, by the masks and their running sum."""
    block = at(offset) >> at(6)
    return before[block] + count_bits(masks[block] & first_bits(offset & 63))


@kernel
def _short_key(rest, num_bytes):
    """Return a word of up to four bytes as a uint32, padded with 0xFF, which UTF-8 does not have; ABSENT for a longer
    word. `rest` has the word's first bytes."""
    return np.uint32(rest | ~first_bits(8 * min(num_bytes, 4)) | (NO_BITS - at(num_bytes > 4)))


@kernel
def load_words(data, words, edges, last_block, pending, short_words):
    """Write the numbers that `hash_words` needs for each word. `last_block` is its last whole block of eight bytes,
    with the blocks before it hashed into it; `pending` has the bytes after that block. Write `short_words` (uint32),
    the keys of `_short_key`. Eight bytes are read even for a shorter word, since a branch on the length cannot be
    predicted.
    """
    safe = words  # words with eight readable bytes after them
    while safe > 0 and edges[at(2 * safe - 1)] + 8 > len(data):
        safe -= 1
    for w in range(safe):
        word = edges[at(2 * w)]
        num_bytes = edges[at(2 * w + 1)] - word
        whole = NO_BITS - at(num_bytes >= 8)
        block = load64(data, word) & whole
        i = word + int(whole & at(8))
        left = num_bytes - int(whole & at(8))
        while left >= 8:
            block = combine64(ONE, block) * FMIX_1 + load64(data, i)
            i += 8
            left -= 8
        rest = load64(data, i) & first_bits(8 * left)
        last_block[at(w)] = block
        pending[at(w)] = rest
        short_words[at(w)] = _short_key(rest, num_bytes)
    for w in range(safe, words):
        i, end = edges[at(2 * w)], edges[at(2 * w + 1)]
        short_words[at(w)] = _short_key(load_tail(data, i, min(end - i, 4)), end - i)
        block = NO_BITS
        first = i
        while end - i >= 8:
            block = load64(data, i) if i == first else combine64(ONE, block) * FMIX_1 + load64(data, i)
            i += 8
        last_block[at(w)] = block
        pending[at(w)] = load_tail(data, i, end - i)


@kernel
def hash_words(words, edges, pending, word_hash):
    """Replace the last blocks in `word_hash` by the hashes of the words, as `words.finish_word` returns them."""
    for w in range(at(words)):
        num_bytes = edges[at(2) * w + ONE] - edges[at(2) * w]
        whole = NO_BITS - at(num_bytes >= 8)
        word_hash[w] = finish_word(combine64(ONE, word_hash[w]) & whole, pending[w], num_bytes)


@kernel
def _count_equal(short_words, words, key, case):
    """Return how many keys equal `key` after the bits of `case` are set in them."""
    count = np.uint32(0)
    for w in range(at(words)):
        count += np.uint32((short_words[w] | case) == key)
    return int(count)


@kernel
def count_listed(short_words, words, out, row):
    """Write the measures of listed words. One fast loop per listed word takes less time than a table."""
    for k in range(at(64)):
        short_words[at(words) + k] = ABSENT
    padded = words + 63 & ~63  # whole vectors
    for key in STOP_KEYS:
        count = _count_equal(short_words, padded, key, np.uint32(0))
        out[M.stop_word_count, row] += count
        out[M.stop_words, row] += int(count > 0)
    for key in FUNCTION_KEYS:
        out[M.function_words, row] += _count_equal(short_words, padded, key, CASE_BITS)


@kernel
def measure_words(start, words, edges, visible_characters, visible_before, word_end, out, row):
    """Write `word_end` and the length of the longest word."""
    longest = before = 0
    for w in range(at(words)):
        visible = _count_before(visible_characters, visible_before, edges[at(2) * w + ONE] - start)
        longest = max(longest, visible - before)
        before = visible
        word_end[w] = visible
    out[M.max_word_characters, row] = longest


@kernel
def _count_urls(
    data, start, end, words, edges, addresses, num_addresses, word_end, visible_characters, visible_before, pages,
    records, lanes, out, row,
):  # fmt: skip
    """Write the measures of URLs; only the first URL of a word counts."""
    counted = -1
    low = 0
    for k in range(num_addresses):
        address = addresses[k]
        high = words
        while high - low > 1:
            middle = (low + high) >> 1
            if edges[2 * middle] <= address:
                low = middle
            else:
                high = middle
        if low == counted:
            continue
        back = url_start(data, address, edges[2 * low], end, pages, records, lanes)
        if back > 0:
            counted = low
            out[M.urls, row] += 1
            out[M.url_characters, row] += word_end[low]
            out[M.url_characters, row] -= _count_before(visible_characters, visible_before, address - back - start)


@kernel
def _load_upto8(data, i, count):
    if count >= 8:
        return load64(data, i)
    if i + 8 <= len(data):
        return load64(data, i) & first_bits(8 * count)
    return load_tail(data, i, count)


@kernel
def _hash_bytes(data, start, end):
    """Return a hash of data[start:end], 16 bytes per multiplication. Hashes are compared only within a document."""
    state = at(end - start) * GOLDEN
    i = start
    while end - i > 16:
        state = fold_product(load64(data, i) ^ FMIX_1, load64(data, i + 8) ^ state)
        i += 16
    first = _load_upto8(data, i, end - i)
    second = _load_upto8(data, i + 8, end - i - 8) if end - i > 8 else NO_BITS
    return fold_product(fold_product(first ^ FMIX_1, second ^ state) ^ GOLDEN, FMIX_2)


@kernel
def _has_letters(data, i, end, pages, records, lanes):
    """Whether a line has enough letters for a line of prose. The letters are usually the first characters of the line,
    so the search is short."""
    letters = 0
    while i < end and letters < PROSE_LETTERS:
        byte = byte_at(data, i)
        if byte < 0x80:
            letters += int(97 <= byte | 32 <= 122)
            i += 1
        else:
            code_point, width = utf8.decode(data, i)
            lane = lanes[at(utf8.record_of(pages, records, code_point))]
            letters += int(lane >> at(LANE_ALPHABETIC) & ONE)
            i += width
    return letters == PROSE_LETTERS


@kernel
def scan_lines(
    data, start, end, words, edges, breaks, num_breaks, all_changes, changes_before, characters, characters_before,
    pages, records, lanes, hashed, line_hash, line_mark, out, row,
):  # fmt: skip
    """Write the measures of lines, `line_mark` and, if `hashed`, `line_hash`; return the number of text lines."""
    opening = first_fenced = 0
    lines = text_lines = newlines = line_ends = short = paragraphs = longest = 0
    new_paragraph = 1
    word = 0
    line = start
    k = 0
    while k < num_breaks or line < end:
        limit, next_word = end, words
        if k < num_breaks:
            limit = breaks[at(k)]
            next_word = _count_before(all_changes, changes_before, limit + 1 - start) >> 1
        lines += 1
        if word == next_word:
            new_paragraph = 1
            if limit - line > longest:  # bytes; lines of only white space are short
                length = _count_before(characters, characters_before, limit - start)
                longest = max(longest, length - _count_before(characters, characters_before, line - start))
        else:
            first_word, last_end = edges[at(2 * word)], edges[at(2 * next_word - 1)]
            count_line_start(data, first_word, out, row)
            count_line_end(data, edges[at(2 * next_word - 2)], last_end, out, row)
            word = next_word
            length = _count_before(characters, characters_before, limit - start)
            length -= _count_before(characters, characters_before, line - start)
            short += int(length <= SHORT_LINE_CHARACTERS)
            longest = max(longest, length)
            if hashed:
                line_hash[at(text_lines)] = _hash_bytes(data, line, limit)
                code = fence_code(data, first_word, last_end)
                is_prose = code == 0 and _has_letters(data, first_word, last_end, pages, records, lanes)
                line_mark[at(text_lines)] = 4 * length + IS_PROSE * int(is_prose) + IS_FIRST * new_paragraph
                if opening == 0:
                    opening, first_fenced = code, text_lines
                elif closes_fence(code, opening):
                    for fenced in range(first_fenced, text_lines):
                        line_mark[at(fenced)] &= ~IS_PROSE
                    opening = 0
            paragraphs += new_paragraph
            text_lines += 1
            new_paragraph = 0
        if k == num_breaks:
            break
        k += 1
        line_ends += 1
        byte = byte_at(data, limit)
        line = limit + 1
        if byte == 10:
            newlines += 1
        elif byte == 13:
            if line < end and byte_at(data, line) == 10:
                newlines += 1
                line_ends += 1
                line += 1
                k += 1
        elif byte >= 0x80:
            line = limit + utf8.decode(data, limit)[1]
    out[M.lines, row] = lines
    out[M.text_lines, row] = text_lines
    out[M.paragraphs, row] = paragraphs
    out[M.short_lines, row] = short
    out[M.max_line_characters, row] = longest
    out[M.newlines, row] = newlines
    out[M.line_characters, row] = out[M.characters, row] - line_ends
    return text_lines


@kernel
def scan_document(
    data, start, end, pages, records, flags, lower, lanes, wanted, hashed, positions, word_hash, word_end, line_hash,
    line_mark, counts, out, row,
):  # fmt: skip
    """Write the measures that need the text, and `word_hash` and `word_end`; return the numbers of words and of text
    lines.

    wanted      a `WantedScan`: measures of unwanted parts come out too small; without `words` there are no hashes
    hashed      whether `line_hash` and `line_mark` are wanted
    positions   the arrays of this module
    """
    classes, marks, want_words, want_lines, want_lengths, want_cases, want_non_symbols = wanted
    edges, breaks, addresses, short_words, all_changes, changes_before = positions[:6]
    characters, characters_before, visible_characters, visible_before = positions[6:]
    words, num_breaks, num_addresses = find_words(
        data, start, end, pages, records, flags, lanes, classes, marks, edges, breaks, addresses, all_changes,
        changes_before, characters, characters_before, visible_characters, visible_before, out, row,
    )  # fmt: skip
    if want_words:
        load_words(data, words, edges, word_hash, line_hash, short_words)
        hash_words(words, edges, line_hash, word_hash)
        count_listed(short_words, words, out, row)
        measure_words(start, words, edges, visible_characters, visible_before, word_end, out, row)
    if want_words and num_addresses:
        _count_urls(
            data, start, end, words, edges, addresses, num_addresses, word_end, visible_characters, visible_before,
            pages, records, lanes, out, row,
        )  # fmt: skip
    if want_lengths:
        count_word_lengths(word_end, words, counts, out, row)
    if want_cases:
        count_word_cases(data, start, end, all_changes, pages, records, flags, lower, out, row)
    if want_non_symbols:
        count_non_symbol_words(data, words, edges, word_end, pages, records, flags, out, row)
    text_lines = 0
    if want_lines:
        text_lines = scan_lines(
            data, start, end, words, edges, breaks, num_breaks, all_changes, changes_before, characters,
            characters_before, pages, records, lanes, hashed, line_hash, line_mark, out, row,
        )  # fmt: skip
    if marks and (words == 0 or not ends_in_sentence_mark(data, edges[at(2 * words - 2)], edges[at(2 * words - 1)])):
        out[M.sentences, row] += int(words > 0)
    out[M.bytes, row] = end - start
    out[M.words, row] = words
    out[M.num_2grams, row] = max(words - 1, 0)
    out[M.num_3grams, row] = max(words - 2, 0)
    out[M.num_5characters, row] = max(out[M.characters, row] - 4, 0)
    out[M.num_10characters, row] = max(out[M.characters, row] - 9, 0)
    return words, text_lines


@kernel
def flush_lanes(counters, out, row):
    """Add the eight-bit counters to their measures."""
    byte = np.uint64(0xFF)
    out[M.alphabetic_characters, row] += np.int64(counters >> np.uint64(LANE_ALPHABETIC) & byte)
    out[M.alphanumeric_characters, row] += np.int64(counters >> np.uint64(LANE_ALPHANUMERIC) & byte)
    out[M.digit_characters, row] += np.int64(counters >> np.uint64(LANE_DIGIT) & byte)
    out[M.uppercase_characters, row] += np.int64(counters >> np.uint64(LANE_UPPERCASE) & byte)
    out[M.bracket_characters, row] += np.int64(counters >> np.uint64(LANE_BRACKET) & byte)
    out[M.punctuation_characters, row] += np.int64(counters >> np.uint64(LANE_PUNCTUATION) & byte)
    out[M.unspaced_characters, row] += np.int64(counters >> np.uint64(LANE_UNSPACED) & byte)


@kernel
def count_line_start(data, word, out, row):
    """Count the measures that depend on the first characters of a text line."""
    bits = line_start_bits(data, word)
    out[M.bullet_lines, row] += int(bits == BULLET_START)
    out[M.bullet_or_star_lines, row] += int(bits != 0)


@kernel
def count_line_end(data, last_word, last_end, out, row):
    """Count the measures that depend on the last characters of a text line."""
    bits = line_end_bits(data, last_word, last_end)
    out[M.ellipsis_lines, row] += int(bits & ELLIPSIS_END != 0)
    out[M.ellipsis_character_lines, row] += int(bits & ELLIPSIS_CHARACTER_END != 0)
    out[M.punctuated_lines, row] += int(bits & PUNCTUATED_END != 0)
