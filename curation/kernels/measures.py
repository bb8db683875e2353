# SPDX-License-Identifier: Apache-2.0
"""Parts of the measures of one document, which `curation.measures` defines and the scans of the engines call.

Arrays; "int" is int64:

lanes                  uint64, of `words.character_lanes`
word_hash, word_end    uint64 and int, one per word: hash; characters of all words up to this one
line_hash, line_mark   uint64 and int, one per text line: hash of its characters; 2 * characters, plus 1 for the first
                       line of a paragraph
active, active_hash, active_slot   int, uint64, int, one per word: positions of n-grams that may repeat, their hashes,
                                   their slots in the table
keys, counts           uint64 and int32: the table; a power of two of slots, at least twice the words
out                    int, (measures, rows); column `row` belongs to this document

An n-gram can repeat only where its first and its last (n-1)-gram repeat. So each length looks only at the positions
that repeat for the length before: on real text one word in three for 3-grams, one in a hundred for 6-grams. This makes
the pass memory-bound instead of hash-bound.
"""

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1
from curation.kernels.utf8 import byte_at
from curation.kernels.words import (
    LANE_ALPHABETIC,
    LANE_ALPHANUMERIC,
    LANE_BRACKET,
    LANE_DIGIT,
    LANE_PUNCTUATION,
    LANE_UNSPACED,
    LANE_UPPERCASE,
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
