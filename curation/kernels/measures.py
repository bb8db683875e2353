# SPDX-License-Identifier: Apache-2.0
"""All measures of one document: one pass over its bytes, then n-grams over the word hashes.

The engines call parts of it, and tests compare their loops with the whole.

`curation.measures` defines them. Arrays; "int" is int64:

lanes, byte_lanes                  uint64, of `words.character_lanes`
word_hash, word_end                uint64 and int, one per word: hash; characters of all words up to this one
active, active_hash, active_slot   int, uint64, int, one per word: positions of n-grams that may repeat, their hashes,
                                   their slots in the table
keys, stamps, counts               uint64, int32, int32: the table; a power of two of slots, at least twice the words
generation                         int32[1], number of uses of the table; stamps start at 0, generations at 1
out                                int, (measures, rows); column `row` belongs to this document

An n-gram can repeat only where its first and its last (n-1)-gram repeat. So each length looks only at the positions
that repeat for the length before: on real text one word in three for 3-grams, one in a hundred for 6-grams. This makes
the pass memory-bound instead of hash-bound.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1, combine64, find_slot, load64, mix64, table_mask
from curation.kernels.tables import LINE_BREAK
from curation.kernels.utf8 import byte_at
from curation.kernels.words import (
    LANE_ALPHABETIC,
    LANE_ALPHANUMERIC,
    LANE_BRACKET,
    LANE_DIGIT,
    LANE_HASH_SIGN,
    LANE_PUNCTUATION,
    LANE_UNSPACED,
    LANE_UPPERCASE,
    MAX_LANE,
    finish_word,
    first_mark,
    low_bytes,
    mark_equal,
    mark_letters,
    mark_stops,
)
from curation.measures import ENGLISH_FUNCTION_WORDS, GOPHER_STOP_WORDS, Measure

M_BYTES, M_CHARACTERS, M_WORDS = int(Measure.bytes), int(Measure.characters), int(Measure.words)
M_LINES, M_TEXT_LINES, M_PARAGRAPHS = int(Measure.lines), int(Measure.text_lines), int(Measure.paragraphs)
M_SENTENCES, M_NEWLINES = int(Measure.sentences), int(Measure.newlines)
M_LINE_CHARACTERS, M_WORD_CHARACTERS = int(Measure.line_characters), int(Measure.word_characters)
M_MAX_WORD, M_WITH_LETTER = int(Measure.max_word_characters), int(Measure.words_with_letter)
M_HASHES, M_ELLIPSES, M_ELLIPSIS_CHARS = (
    int(Measure.hash_signs),
    int(Measure.ellipses),
    int(Measure.ellipsis_characters),
)
M_SYMBOLS, M_SYMBOL_CHARS = int(Measure.symbols), int(Measure.symbol_characters)
M_BULLETS, M_BULLETS_STAR = int(Measure.bullet_lines), int(Measure.bullet_or_star_lines)
M_ELLIPSIS_LINES, M_ELLIPSIS_CHAR_LINES = int(Measure.ellipsis_lines), int(Measure.ellipsis_character_lines)
M_PUNCTUATED, M_SHORT = int(Measure.punctuated_lines), int(Measure.short_lines)
M_ALPHABETIC, M_ALPHANUMERIC = int(Measure.alphabetic_characters), int(Measure.alphanumeric_characters)
M_DIGITS, M_UPPERCASE = int(Measure.digit_characters), int(Measure.uppercase_characters)
M_SPACES, M_BRACKETS = int(Measure.space_characters), int(Measure.bracket_characters)
M_PUNCTUATION, M_UNSPACED = int(Measure.punctuation_characters), int(Measure.unspaced_characters)
M_STOP_WORDS, M_FUNCTION_WORDS = int(Measure.stop_words), int(Measure.function_words)
M_URLS, M_URL_CHARS = int(Measure.urls), int(Measure.url_characters)
M_DUP_LINES, M_DUP_LINE_CHARS = int(Measure.duplicate_lines), int(Measure.duplicate_line_characters)
M_DUP_PARAGRAPHS, M_DUP_PARAGRAPH_CHARS = (
    int(Measure.duplicate_paragraphs),
    int(Measure.duplicate_paragraph_characters),
)
M_DISTINCT = int(Measure.distinct_words)
M_TOP_COUNT, M_TOP_CHARS = int(Measure.top_2gram_count), int(Measure.top_2gram_characters)
M_DUP_NGRAM, M_COVERED = int(Measure.duplicate_5gram_characters), int(Measure.covered_5gram_characters)
M_NUM_2GRAMS, M_NUM_3GRAMS = int(Measure.num_2grams), int(Measure.num_3grams)


def word_key(word: str) -> np.uint64:
    """A word of at most seven bytes as a uint64: its bytes, little-endian, and its length in the top byte."""
    return np.uint64(int.from_bytes(word.encode(), "little") | len(word) << 56)


CASE_OF_FOUR = np.uint64(0x20202020)  # bit 0x20 is the case of an ASCII letter
LISTED_BITS = 6
NUM_STOP_WORDS = len(GOPHER_STOP_WORDS)
FUNCTION_WORD = 1 << NUM_STOP_WORDS


def list_words() -> tuple[np.uint64, np.ndarray, np.ndarray, np.ndarray]:
    """A perfect hash of the listed words: the multiplier, and per slot (uint64) the key, the key with CASE_OF_FOUR, and
    the bits of the word: one per stop word of Gopher, one for English function words."""
    words = list(dict.fromkeys(GOPHER_STOP_WORDS + ENGLISH_FUNCTION_WORDS))
    assert max(map(len, words)) <= 7 and max(map(len, ENGLISH_FUNCTION_WORDS)) <= 4, "a listed word is too long"
    assert len(words) <= 1 << LISTED_BITS, "more listed words than slots"
    keys = np.array([word_key(word) for word in words], np.uint64)
    lower = keys | CASE_OF_FOUR
    bits = [sum(1 << k for k, stop in enumerate(GOPHER_STOP_WORDS) if stop == word) for word in words]
    bits = [bit | FUNCTION_WORD * (word in ENGLISH_FUNCTION_WORDS) for bit, word in zip(bits, words, strict=True)]
    multiplier = FMIX_1
    while len({*(lower * multiplier >> np.uint64(64 - LISTED_BITS)).tolist()}) < len(words):
        multiplier += np.uint64(2)
    tables = np.zeros((3, 1 << LISTED_BITS), np.uint64)
    tables[:, lower * multiplier >> np.uint64(64 - LISTED_BITS)] = keys, lower, np.array(bits, np.uint64)
    return multiplier, *tables


LISTED_MULTIPLIER, LISTED_KEYS, LISTED_LOWER, LISTED = list_words()
SHORT_LINE_CHARACTERS = 30
ELLIPSIS_END, ELLIPSIS_CHARACTER_END, PUNCTUATED_END = 1, 2, 4
BULLET_START, STAR_START = 1, 2
BLANK = 32
FULL_STOPS, COLONS = np.uint64(0x2E2E2E2E2E2E2E2E), np.uint64(0x3A3A3A3A3A3A3A3A)
NUL_GAP = np.uint64(0xD6E8FEB86659FD93)  # separates the hashes of gaps from those of words


@kernel
def _lane_at(data, i, pages, records, lanes, byte_lanes):
    """The counters (uint64) of the character that starts at `i`; 0 for white space."""
    byte = byte_at(data, i)
    if byte < 0x80:
        return byte_lanes[np.uint64(byte)]
    code_point, _ = utf8.decode(data, i)
    return lanes[np.uint64(utf8.record_of(pages, records, code_point))]


@kernel
def _is_space(data, i, end, pages, records, lanes):
    """Whether `i` is the end of the text or the start of a white space character."""
    if i >= end:
        return True
    code_point, _ = utf8.decode(data, i)
    return lanes[np.uint64(utf8.record_of(pages, records, code_point))] == np.uint64(0)


@kernel
def url_start(data, i, word, end, pages, records, lanes):
    """Distance from `i`, a ':' or '.', back to the start of a URL; 0 if there is none, or if white space follows."""
    if byte_at(data, i) == 46:
        if (
            i - word >= 3
            and byte_at(data, i - 1) == 119
            and byte_at(data, i - 2) == 119
            and byte_at(data, i - 3) == 119
        ):
            return 0 if _is_space(data, i + 1, end, pages, records, lanes) else 3
        return 0
    if i + 2 >= end or byte_at(data, i + 1) != 47 or byte_at(data, i + 2) != 47:
        return 0
    back = 5 if i - word >= 5 and byte_at(data, i - 1) == 115 else 4
    h = i - back
    if (
        h < word
        or byte_at(data, h) != 104
        or byte_at(data, h + 1) != 116
        or byte_at(data, h + 2) != 116
        or byte_at(data, h + 3) != 112
    ):
        return 0
    return 0 if _is_space(data, i + 3, end, pages, records, lanes) else back


@kernel
def last_code_point(data, start, end):
    """The code point that ends at byte `end`; 0 if there is none."""
    i = end - 1
    while i > start and (byte_at(data, i) & 0xC0) == 0x80:
        i -= 1
    if i < start:
        return 0
    return utf8.decode(data, i)[0]


@kernel
def is_closing(cp):
    """Whether a code point is a closing quote or bracket that may follow the end of a sentence."""
    if cp == 34 or cp == 39 or cp == 41 or cp == 93 or cp == 125:
        return True
    return cp == 0xBB or cp == 0x201D or cp == 0x2019


@kernel
def ends_in_sentence_mark(data, start, end):
    """Whether the last character of the word before closing quotes and brackets ends a sentence in some script."""
    while end > start:
        cp = last_code_point(data, start, end)
        if not is_closing(cp):
            if cp == 46 or cp == 33 or cp == 63 or cp == 0x2026:
                return True
            return cp == 0x3002 or cp == 0xFF01 or cp == 0xFF1F or cp == 0x0964
        end = utf8.start_of(data, start, end)
    return False


@kernel
def _is_terminal(cp):
    if cp == 46 or cp == 33 or cp == 63 or cp == 34 or cp == 39:
        return True
    return cp == 0x3002 or cp == 0xFF01 or cp == 0xFF1F or cp == 0x201D or cp == 0x2019 or cp == 0x2026


@kernel
def listed_bits(key):
    """The bits of a listed word: stop words match exactly, function words in any case. There is no branch, since
    branches on words cannot be predicted."""
    lower = key | CASE_OF_FOUR
    slot = lower * LISTED_MULTIPLIER >> np.uint64(64 - LISTED_BITS)
    written, any_case = int(LISTED_KEYS[slot] == key), int(LISTED_LOWER[slot] == lower)
    return int(LISTED[slot]) & ((FUNCTION_WORD - 1) * written | FUNCTION_WORD * any_case)


@kernel
def flush_lanes(counters, out, row):
    """Add the eight-bit counters to their measures."""
    byte = np.uint64(0xFF)
    out[M_ALPHABETIC, row] += np.int64(counters >> np.uint64(LANE_ALPHABETIC) & byte)
    out[M_ALPHANUMERIC, row] += np.int64(counters >> np.uint64(LANE_ALPHANUMERIC) & byte)
    out[M_DIGITS, row] += np.int64(counters >> np.uint64(LANE_DIGIT) & byte)
    out[M_UPPERCASE, row] += np.int64(counters >> np.uint64(LANE_UPPERCASE) & byte)
    out[M_BRACKETS, row] += np.int64(counters >> np.uint64(LANE_BRACKET) & byte)
    out[M_PUNCTUATION, row] += np.int64(counters >> np.uint64(LANE_PUNCTUATION) & byte)
    out[M_UNSPACED, row] += np.int64(counters >> np.uint64(LANE_UNSPACED) & byte)


@kernel
def count_ascii(data, start, end, byte_lanes, out, row):
    """Add the classes of the ASCII characters to the measures; return the number of "#"."""
    hash_signs = 0
    i = start
    while i < end:
        stop = min(i + MAX_LANE, end)
        counters = np.uint64(0)
        for k in range(i, stop):
            counters += byte_lanes[np.uint64(byte_at(data, k))]
        hash_signs += int(counters >> np.uint64(LANE_HASH_SIGN) & np.uint64(0xFF))
        flush_lanes(counters & ~np.uint64(0xFF << LANE_HASH_SIGN), out, row)
        i = stop
    return hash_signs


@kernel
def line_end_bits(data, last_word, last_end):
    """The bits of a text line by the end of its last word: ELLIPSIS_END, ELLIPSIS_CHARACTER_END, PUNCTUATED_END."""
    cp = last_code_point(data, last_word, last_end)
    bits = PUNCTUATED_END if _is_terminal(cp) else 0
    if cp == 0x2026:
        return bits | ELLIPSIS_END | ELLIPSIS_CHARACTER_END
    if (
        cp == 46
        and last_end - last_word >= 3
        and byte_at(data, last_end - 2) == 46
        and byte_at(data, last_end - 3) == 46
    ):
        return bits | ELLIPSIS_END
    return bits


@kernel
def line_start_bits(data, word):
    """The bits of a text line by the start of its first word: BULLET_START, STAR_START."""
    byte = byte_at(data, word)
    if byte == 45 or (byte == 0xE2 and byte_at(data, word + 1) == 0x80 and byte_at(data, word + 2) == 0xA2):
        return BULLET_START
    return STAR_START if byte == 42 else 0


@kernel
def count_line_start(data, word, out, row):
    """Count the measures that depend on the first characters of a text line."""
    bits = line_start_bits(data, word)
    out[M_BULLETS, row] += int(bits == BULLET_START)
    out[M_BULLETS_STAR, row] += int(bits != 0)


@kernel
def count_line_end(data, last_word, last_end, out, row):
    """Count the measures that depend on the last characters of a text line."""
    bits = line_end_bits(data, last_word, last_end)
    out[M_ELLIPSIS_LINES, row] += int(bits & ELLIPSIS_END != 0)
    out[M_ELLIPSIS_CHAR_LINES, row] += int(bits & ELLIPSIS_CHARACTER_END != 0)
    out[M_PUNCTUATED, row] += int(bits & PUNCTUATED_END != 0)


@kernel
def scan_document(
    data, start, end, pages, records, flags, lanes, byte_lanes, word_hash, word_end, line_hash, line_mark, out, row
):
    """Write the measures that need the text, and `word_hash` and `word_end`; return (words, text lines).

    line_hash, line_mark   uint64 and int, at least one per text line: hash of its characters; 2 * characters, plus
                           1 for the first line of a paragraph
    """
    words = 0
    text_lines = 0
    lines = 0
    characters = 0
    visible = 0
    longest = 0
    with_letter = 0
    sentences = 0
    ends_sentence = True
    ellipses = 0
    stop_bits = 0
    function_words = 0
    urls = 0
    url_characters = 0
    hash_signs = count_ascii(data, start, end, byte_lanes, out, row)
    ellipsis_characters = 0
    newlines = 0
    line_ends = 0
    counters = np.uint64(0)
    in_lanes = 0
    letter_lane = np.uint64(0xFF << LANE_ALPHABETIC)
    bracket = np.uint64(1 << LANE_BRACKET)
    limit = len(data) - 8  # last position where eight bytes can be loaded

    new_paragraph = 1
    line_start = 0  # in characters
    line_words = 0
    this_line = np.uint64(0)
    gap = np.uint64(0)
    gap_characters = 0
    last_word = start
    last_end = start
    i = start
    while i < end:
        lane = _lane_at(data, i, pages, records, lanes, byte_lanes)

        if lane != np.uint64(0):
            if line_words == 0:
                count_line_start(data, i, out, row)
            word = i
            word_characters = 0
            state = np.uint64(0)
            pending = np.uint64(0)
            num_pending = 0
            url_at = -1
            dots = 0
            dot_at = -2
            letters = np.uint64(0)
            # Eight ASCII bytes at a time; only full stops and colons are handled one by one.
            while i <= limit:
                block = load64(data, i)
                stops = mark_stops(block)
                if end - i < 8:
                    stops |= np.uint64(0x80) << np.uint64(8 * (end - i))
                length = first_mark(stops)
                if length == 0:
                    break
                block &= low_bytes(length)
                letters |= mark_letters(block)
                marks = mark_equal(block, FULL_STOPS) | mark_equal(block, COLONS)
                while marks:
                    k = first_mark(marks)
                    marks &= marks - np.uint64(1)
                    if byte_at(data, i + k) == 46:
                        dots = dots + 1 if dot_at == i + k - 1 else 1
                        dot_at = i + k
                        if dots == 3:
                            ellipses += 1
                            dots = 0
                    if url_at < 0:
                        back = url_start(data, i + k, word, end, pages, records, lanes)
                        if back > 0:
                            url_at = word_characters + k - back
                i += length
                word_characters += length
                if length < 8:
                    pending = block
                    num_pending = length
                    break
                state = combine64(state + np.uint64(1), block)
            lane = np.uint64(0)
            if i < end and byte_at(data, i) != BLANK:
                lane = _lane_at(data, i, pages, records, lanes, byte_lanes)
            # The rest of the word: characters beyond ASCII, control characters, the last bytes of the data.
            while lane != np.uint64(0):
                letters |= lane & letter_lane
                byte = byte_at(data, i)
                if byte < 0x80:
                    if byte == 46 or byte == 58:
                        if byte == 46:
                            dots = dots + 1 if dot_at == i - 1 else 1
                            dot_at = i
                            if dots == 3:
                                ellipses += 1
                                dots = 0
                        if url_at < 0:
                            back = url_start(data, i, word, end, pages, records, lanes)
                            if back > 0:
                                url_at = word_characters - back
                    width = 1
                else:
                    counters += lane
                    in_lanes += 1
                    cp, width = utf8.decode(data, i)
                    if cp == 0x2026:
                        ellipsis_characters += 1
                    elif cp == 0x27E8 or cp == 0x27E9:
                        counters += bracket
                    if in_lanes == MAX_LANE:
                        flush_lanes(counters, out, row)
                        counters = np.uint64(0)
                        in_lanes = 0
                for k in range(width):
                    pending |= np.uint64(byte_at(data, i + k)) << np.uint64(8 * num_pending)
                    num_pending += 1
                    if num_pending == 8:
                        state = combine64(state + np.uint64(1), pending)
                        pending = np.uint64(0)
                        num_pending = 0
                i += width
                word_characters += 1
                if i >= end:
                    break
                lane = _lane_at(data, i, pages, records, lanes, byte_lanes)

            num_bytes = i - word
            key = pending | np.uint64(min(num_bytes, 255)) << np.uint64(56)
            listed = listed_bits(key)
            stop_bits |= listed
            function_words += listed >> NUM_STOP_WORDS
            if letters:
                with_letter += 1
            if url_at >= 0:
                urls += 1
                url_characters += word_characters - url_at
            byte = byte_at(data, i - 1)
            ends_sentence = bool((byte == 46) | (byte == 33) | (byte == 63))
            if (byte >= 0x80) | (byte == 34) | (byte == 39) | (byte == 41) | (byte == 93) | (byte == 125):
                ends_sentence = ends_in_sentence_mark(data, word, i)
            sentences += int(ends_sentence)
            if word_characters > longest:
                longest = word_characters
            visible += word_characters
            characters += word_characters
            hashed = finish_word(state, pending, num_bytes)
            word_hash[np.uint64(words)] = hashed
            word_end[np.uint64(words)] = visible
            words += 1
            # A single space between two words does not change the hash; any other gap does.
            if gap_characters > 0 and (line_words == 0 or gap_characters > 1 or gap != np.uint64(32)):
                this_line = combine64(this_line, mix64(gap ^ NUL_GAP))
            this_line = combine64(this_line, hashed)
            gap = np.uint64(0)
            gap_characters = 0
            line_words += 1
            last_word = word
            last_end = i
            if i + 1 < end and byte_at(data, i) == BLANK:
                following = byte_at(data, i + 1)
                if BLANK < following < 0x7F:  # the common case: one space, then the next word
                    gap = np.uint64(BLANK)
                    gap_characters = 1
                    characters += 1
                    i += 1
        else:
            cp, width = utf8.decode(data, i)
            i += width
            characters += 1
            if flags[utf8.record_of(pages, records, cp)] & np.uint32(LINE_BREAK) == np.uint32(0):
                gap = gap * np.uint64(0x100000001B3) + np.uint64(cp)
                gap_characters += 1
                if i < end:
                    continue
                line_length = characters - line_start
            else:
                line_length = characters - 1 - line_start
                line_ends += 1
                if cp == 10:
                    newlines += 1
                elif cp == 13 and i < end and byte_at(data, i) == 10:
                    newlines += 1
                    characters += 1
                    line_ends += 1
                    i += 1
            # The line ends here: at a line end, or at the end of a text with trailing white space.
            lines += 1
            if line_words == 0:
                new_paragraph = 1
            else:
                if gap_characters > 0:
                    this_line = combine64(this_line, mix64(gap ^ NUL_GAP))
                if line_length <= SHORT_LINE_CHARACTERS:
                    out[M_SHORT, row] += 1
                count_line_end(data, last_word, last_end, out, row)
                line_hash[text_lines] = this_line
                line_mark[text_lines] = 2 * line_length + new_paragraph
                out[M_PARAGRAPHS, row] += new_paragraph
                text_lines += 1
                new_paragraph = 0
            line_start = characters
            line_words = 0
            this_line = np.uint64(0)
            gap = np.uint64(0)
            gap_characters = 0
    if line_words > 0:
        lines += 1
        line_length = characters - line_start
        if line_length <= SHORT_LINE_CHARACTERS:
            out[M_SHORT, row] += 1
        count_line_end(data, last_word, last_end, out, row)
        line_hash[text_lines] = this_line
        line_mark[text_lines] = 2 * line_length + new_paragraph
        out[M_PARAGRAPHS, row] += new_paragraph
        text_lines += 1

    flush_lanes(counters, out, row)
    stop_bits &= FUNCTION_WORD - 1
    stop_words = 0
    while stop_bits:
        stop_words += stop_bits & 1
        stop_bits >>= 1
    out[M_BYTES, row] = end - start
    out[M_CHARACTERS, row] = characters
    out[M_WORDS, row] = words
    out[M_LINES, row] = lines
    out[M_TEXT_LINES, row] = text_lines
    out[M_SENTENCES, row] = sentences + (0 if ends_sentence else 1)
    out[M_NEWLINES, row] = newlines
    out[M_LINE_CHARACTERS, row] = characters - line_ends
    out[M_WORD_CHARACTERS, row] = visible
    out[M_MAX_WORD, row] = longest
    out[M_WITH_LETTER, row] = with_letter
    out[M_HASHES, row] = hash_signs
    out[M_ELLIPSES, row] = ellipses + ellipsis_characters
    out[M_ELLIPSIS_CHARS, row] = ellipsis_characters
    out[M_SYMBOLS, row] = hash_signs + ellipses + ellipsis_characters
    out[M_SYMBOL_CHARS, row] = hash_signs + ellipsis_characters
    out[M_SPACES, row] = characters - visible
    out[M_STOP_WORDS, row] = stop_words
    out[M_FUNCTION_WORDS, row] = function_words
    out[M_URLS, row] = urls
    out[M_URL_CHARS, row] = url_characters
    out[M_NUM_2GRAMS, row] = max(words - 1, 0)
    out[M_NUM_3GRAMS, row] = max(words - 2, 0)
    return words, text_lines


@kernel
def _insert(keys, stamps, counts, generation, mask, key):
    """Count `key`; return its slot."""
    slot = find_slot(keys, stamps, generation, mask, key)
    if stamps[slot] == generation:
        counts[slot] += 1
    else:
        stamps[slot] = generation
        keys[slot] = key
        counts[slot] = 1
    return slot


@kernel
def count_duplicate_lines(line_hash, line_mark, text_lines, keys, stamps, counts, generation, out, row):
    """Write the measures of duplicate text lines and paragraphs; a paragraph hashes the hashes of its lines."""
    mask = table_mask(text_lines)
    generation[0] += 1
    for k in range(text_lines):
        slot = _insert(keys, stamps, counts, generation[0], mask, line_hash[k])
        if counts[slot] > 1:
            out[M_DUP_LINES, row] += 1
            out[M_DUP_LINE_CHARS, row] += line_mark[k] >> 1
    generation[0] += 1
    k = 0
    while k < text_lines:
        paragraph = line_hash[k]
        characters = line_mark[k] >> 1
        k += 1
        while k < text_lines and line_mark[k] & 1 == 0:
            paragraph = combine64(paragraph, line_hash[k])
            characters += 1 + (line_mark[k] >> 1)
            k += 1
        slot = _insert(keys, stamps, counts, generation[0], mask, paragraph)
        if counts[slot] > 1:
            out[M_DUP_PARAGRAPHS, row] += 1
            out[M_DUP_PARAGRAPH_CHARS, row] += characters


@kernel
def count_distinct_words(word_hash, words, keys, stamps, counts, generation, out, row):
    """Write the number of distinct words."""
    mask = table_mask(words)
    generation[0] += 1
    distinct = 0
    for w in range(words):
        slot = _insert(keys, stamps, counts, generation[0], mask, word_hash[w])
        if counts[slot] == 1:
            distinct += 1
    out[M_DISTINCT, row] = distinct


@kernel
def _count_level(
    n, words, word_hash, active, active_hash, active_slot, num_active, keys, stamps, counts, generation, mask
):
    """Count the n-grams at the active positions; return how many positions have an n-gram."""
    num_counted = 0
    for c in range(num_active):
        position = active[c]
        if n > 2 and (c + 1 == num_active or active[c + 1] != position + 1):
            continue  # the next (n-1)-gram does not repeat
        if position + n > words:
            continue
        hashed = combine64(active_hash[c], word_hash[position + n - 1])
        active[num_counted] = position
        active_hash[num_counted] = hashed
        active_slot[num_counted] = np.int64(_insert(keys, stamps, counts, generation, mask, hashed))
        num_counted += 1
    return num_counted


@kernel
def _keep_repeated(active, active_hash, active_slot, num_counted, counts):
    repeated = 0
    for c in range(num_counted):
        if counts[active_slot[c]] > 1:
            active[repeated] = active[c]
            active_hash[repeated] = active_hash[c]
            active_slot[repeated] = active_slot[c]
            repeated += 1
    return repeated


@kernel
def _characters_between(word_end, first, after):
    """Characters of the words first to after - 1."""
    return word_end[after - 1] - (word_end[first - 1] if first > 0 else 0)


@kernel
def write_top(n, words, word_end, active, active_slot, repeated, counts, out, row):
    best = 1
    position = 0
    for c in range(repeated):
        if counts[active_slot[c]] > best:
            best = counts[active_slot[c]]
            position = active[c]
    if words >= n:
        out[M_TOP_COUNT + n - 2, row] = best
        out[M_TOP_CHARS + n - 2, row] = best * (_characters_between(word_end, position, position + n) + n - 1)


@kernel
def write_duplicates(n, word_end, active, active_slot, repeated, counts, out, row):
    """Walk through the n-grams greedily; a negative count marks an n-gram seen before."""
    free = 0
    characters = 0
    for c in range(repeated):
        position = active[c]
        if position < free:
            continue
        slot = active_slot[c]
        if counts[slot] < 0:
            characters += _characters_between(word_end, position, position + n)
            free = position + n
        else:
            counts[slot] = -counts[slot]
    out[M_DUP_NGRAM + n - 5, row] = characters


@kernel
def write_covered(n, word_end, active, repeated, out, row):
    free = 0
    characters = 0
    for c in range(repeated):
        position = active[c]
        characters += _characters_between(word_end, max(position, free), position + n)
        free = position + n
    out[M_COVERED + n - 5, row] = characters


@kernel
def count_ngrams(
    words,
    max_ngram,
    coverage,
    word_hash,
    word_end,
    active,
    active_hash,
    active_slot,
    keys,
    stamps,
    counts,
    generation,
    out,
    row,
):
    """Write the measures of top 2- to 4-grams, of duplicate and, with `coverage`, covered 5- to 10-grams, up to
    `max_ngram`."""
    mask = table_mask(words)
    for w in range(words):
        active[w] = w
        active_hash[w] = word_hash[w]
    repeated = words
    for n in range(2, max_ngram + 1):
        generation[0] += 1
        num_counted = _count_level(
            n, words, word_hash, active, active_hash, active_slot, repeated, keys, stamps, counts, generation[0], mask
        )
        repeated = _keep_repeated(active, active_hash, active_slot, num_counted, counts)
        if n <= 4:
            write_top(n, words, word_end, active, active_slot, repeated, counts, out, row)
        else:
            if coverage:
                write_covered(n, word_end, active, repeated, out, row)
            write_duplicates(n, word_end, active, active_slot, repeated, counts, out, row)
        if repeated == 0 and n >= 4:
            break
