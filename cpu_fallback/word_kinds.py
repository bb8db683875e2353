# SPDX-License-Identifier: Apache-2.0
"""Measures words on the CPU: by length, by upper and lower case, and by letters and numbers.

Cases are counted by masks of 64 bytes, as `vector_scan` counts words with a letter.
"""

import numpy as np

from cpu_fallback.masks import NO_BITS, ONE, case_masks, count_bits, first_bits, lowest_bit
from curation.base.measures import LONG_WORD_CHARACTERS, SHORT_WORD_CHARACTERS
from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.measures import M
from curation.kernels.tables import ALNUM, CASED, UPPER

at = np.uint64


@kernel
def count_word_lengths(word_end, words, counts, out, row):
    """Write the measures of word lengths. `counts`: int32, more items than the longest word has characters."""
    counts[: out[M.max_word_characters, row] + 1] = 0
    before = short = long = 0
    for w in range(at(words)):
        length = word_end[w] - before
        before = word_end[w]
        counts[at(length)] += 1
        short += int(length <= SHORT_WORD_CHARACTERS)
        long += int(length >= LONG_WORD_CHARACTERS)
    out[M.short_words, row] = short
    out[M.long_words, row] = long
    if words:
        lower = upper = 0
        seen = np.int64(counts[at(lower)])
        while seen <= (words - 1) >> 1:
            lower += 1
            seen += counts[at(lower)]
        upper = lower
        while seen <= words >> 1:
            upper += 1
            seen += counts[at(upper)]
        out[M.median_word_characters, row] = (lower + upper) >> 1


@kernel
def count_non_symbol_words(data, words, edges, word_end, pages, records, flags, out, row):
    """Write the measures of words with a letter or number. In most words the first character is one."""
    count = characters = before = 0
    for w in range(at(words)):
        i, end = edges[at(2) * w], edges[at(2) * w + ONE]
        while i < end:
            code_point, width = utf8.decode(data, i)
            record = code_point if code_point < 0x80 else utf8.record_of(pages, records, code_point)
            if flags[at(record)] & np.uint32(ALNUM) != np.uint32(0):
                count += 1
                characters += word_end[w] - before
                break
            i += width
        before = word_end[w]
    out[M.non_symbol_words, row] = count
    out[M.non_symbol_word_characters, row] = characters


@kernel
def _visible(changes, before):
    """Return the bits of words in a block, from the bits where words start and end. `before`: all bits if a word is
    open before the block, else none."""
    for shift in (1, 2, 4, 8, 16, 32):
        changes ^= changes << at(shift)
    return changes ^ before


@kernel
def _cases_beyond_ascii(data, base, firsts, pages, records, flags, lower):
    """Return masks for the characters that start at the bits `firsts` of the 64 bytes from `base`: of upper-case,
    titlecase and lower-case characters, and of the bytes after cased ones, in these 64 bytes and in the next 64."""
    uppers = titles = lowers = follows = next_follows = NO_BITS
    while firsts:
        k = lowest_bit(firsts)
        bit = firsts & (~firsts + ONE)
        firsts &= firsts - ONE
        code_point, width = utf8.decode(data, base + k)
        record = at(utf8.record_of(pages, records, code_point))
        if flags[record] & np.uint32(CASED) == np.uint32(0):
            continue
        if flags[record] & np.uint32(UPPER) != np.uint32(0):
            uppers |= bit
        elif lower[record] != 0:  # a cased letter that is not upper case and has a lower case
            titles |= bit
        else:
            lowers |= bit
        if k + width < 64:
            follows |= bit << at(width)
        else:
            next_follows = ONE << at(k + width - 64)
    return uppers, titles, lowers, follows, next_follows


@kernel
def _add_marks(visible, marks, carry):
    """Return the ends of words with a mark, and 1 if the last word is open and has a mark. An addition carries a bit to
    the end of such a word. `carry`: the second result for the 64 bytes before."""
    total = visible + marks
    after = at(total < visible)
    total += carry
    return total & ~visible, after | at(total < carry)


@kernel
def count_word_cases(data, start, end, all_changes, pages, records, flags, lower, out, row):
    """Write the measures of words by upper and lower case. `all_changes`: masks of the starts and ends of words."""
    open_word = with_upper = with_other = with_start = with_break = next_follows = NO_BITS
    uppercase = capitalised = block = 0
    base = start
    while base < end:
        uppers, lowers, beyond = case_masks(data, base)
        valid = ~NO_BITS if end - base >= 64 else first_bits(end - base)
        uppers &= valid
        lowers &= valid
        titles = NO_BITS
        follows = (uppers | lowers) << ONE | next_follows
        next_follows = (uppers | lowers) >> at(63)
        if beyond & valid:
            more_uppers, titles, more_lowers, more_follows, more_next = _cases_beyond_ascii(
                data, base, beyond & valid, pages, records, flags, lower
            )
            uppers |= more_uppers
            lowers |= more_lowers
            follows |= more_follows
            next_follows |= more_next
        visible = _visible(all_changes[at(block)], NO_BITS - open_word)
        open_word = visible >> at(63)
        starts = uppers | titles
        upper_ends, with_upper = _add_marks(visible, uppers, with_upper)
        other_ends, with_other = _add_marks(visible, lowers | titles, with_other)
        start_ends, with_start = _add_marks(visible, starts, with_start)
        break_ends, with_break = _add_marks(visible, starts & follows | lowers & ~follows, with_break)
        uppercase += count_bits(upper_ends & ~other_ends)
        capitalised += count_bits(start_ends & ~break_ends)
        block += 1
        base += 64
    out[M.uppercase_words, row] = uppercase + int(with_upper & ~with_other)
    out[M.capitalised_words, row] = capitalised + int(with_start & ~with_break)
