# SPDX-License-Identifier: Apache-2.0
"""JSON Lines as masks over bytes, for engines that divide work by bytes and lines instead of parsing byte after byte.

A mask has one bit per byte: a uint32 covers 32 bytes. A *rank* is a number of bits, or of written bytes, before a word.
From the start of each line, unescaped quotes alternately open and close a string. So the masks show which bytes are
inside strings, and a thread reads only the bytes of a line between its strings. An accepted line has the result of
`jsonl.parse_lines`. A line with unusual syntax, or with much work for one thread, has the status UNUSUAL instead.
"""

import numpy as np

from curation.kernels import jsonl
from curation.kernels.cache import kernel
from curation.kernels.utf8 import byte_at
from curation.kernels.words import HIGH_BITS
from gpu_pipeline.functions.items import at, block_at
from gpu_pipeline.functions.pretokens import NO_BITS, ONE, count_bits, lowest_bit
from gpu_pipeline.functions.spans import LOW_SEVEN, bits_of, mark_bytes_equal

NEWLINE = 10
ABOVE_CONTROLS = np.uint64(0x6060606060606060)  # adds to bytes from 0x20 on a high bit
ALL_BITS = np.uint64(0xFFFFFFFF)
MAX_BACKSLASH_WORDS = 16  # words of backslashes that are looked through: 512 bytes
MAX_STEP = 256  # bytes of white space in a row
MAX_SCALAR = 64  # more than any number of MAX_DIGITS, and more than the words true, false and null
MAX_KEY = 64
MAX_SKELETON = 1024  # bytes of a line outside of strings, and 8 for each string
MAX_ID = 512  # bytes
STRING_COST = 8
LONG_ESCAPE = 6  # bytes
NONE = -1


@kernel
def _is_character(data, i):
    """Whether the byte at `i`, which is not ASCII, belongs to a well-formed UTF-8 sequence."""
    j = i
    while j > 0 and i - j < 3 and (byte_at(data, j) & 0xC0) == 0x80:
        j -= 1
    return jsonl.sequence_length(data, j, data.size) > i - j


@kernel
def json_bits(data, blocks, i):
    """Return four masks of the eight bytes from `i`: quotes; backslashes; line ends; and bytes that no string may hold,
    which are other control characters and malformed UTF-8."""
    block = block_at(data, blocks, i)
    newlines = mark_bytes_equal(block, NEWLINE)
    faults = bits_of(~((block & LOW_SEVEN) + ABOVE_CONTROLS | block) & HIGH_BITS & ~newlines)
    if block & HIGH_BITS:
        for k in range(min(8, data.size - i)):
            if byte_at(data, i + k) >= 0x80 and not _is_character(data, i + k):
                faults |= 1 << k
    inside = (1 << max(min(8, data.size - i), 0)) - 1
    quotes = bits_of(mark_bytes_equal(block, jsonl.QUOTE))
    backslashes = bits_of(mark_bytes_equal(block, jsonl.BACKSLASH))
    return quotes & inside, backslashes & inside, bits_of(newlines) & inside, faults & inside


@kernel
def _below(bit):
    """The bits 0 to `bit` - 1 (`bit` from 0 to 32)."""
    return (ONE << np.uint64(bit)) - ONE


@kernel
def backslashes_before(backslashes, c):
    """Return whether an odd number of backslashes ends right before word `c`, and whether there are too many to
    count."""
    k = c
    while k > 0 and c - k < MAX_BACKSLASH_WORDS:
        word = np.uint64(backslashes[at(k - 1)])
        if word != ALL_BITS:
            odd = False
            while word & np.uint64(0x80000000):
                odd = not odd
                word <<= ONE
            return odd, False
        k -= 1
    return False, k > 0


@kernel
def split_backslashes(backslashes, c):
    """Return two masks of word `c`: of the backslashes that begin an escape, and of the bytes that are escaped."""
    rest = np.uint64(backslashes[at(c)])
    odd, _ = backslashes_before(backslashes, c)
    escaped = ONE if odd else NO_BITS
    rest &= ~escaped
    begins = NO_BITS
    while rest:
        lowest = rest & ~(rest - ONE)
        begins |= lowest
        escaped |= lowest << ONE
        rest &= ~(lowest | lowest << ONE)
    return begins, escaped


@kernel
def inside_strings(quotes, newlines, in_string, c):
    """Return a mask of the bytes of word `c` inside strings, without the quotes. `in_string`: whether the first byte is
    inside."""
    marks = np.uint64(quotes[at(c)])
    inside = marks
    for shift in (1, 2, 4, 8, 16):
        inside ^= inside << np.uint64(shift)
    if in_string:
        inside = ~inside
    lines = np.uint64(newlines[at(c)])
    bits = lines
    while bits:
        k = np.uint64(lowest_bit(bits))
        if inside >> k & ONE:  # a string that its line does not close
            inside ^= ~((np.uint64(2) << k) - ONE)
        bits &= bits - ONE
    return inside & ~marks & ~lines & ALL_BITS


@kernel
def _is_second(data, begins, i):
    """Whether the escape at `i` is the second half of a surrogate pair, and the first half ends right before `i`."""
    if i < LONG_ESCAPE or byte_at(data, i - LONG_ESCAPE + 1) != 117 or i + LONG_ESCAPE > data.size:
        return False
    j = i - LONG_ESCAPE
    if not np.uint64(begins[at(j >> 5)]) >> np.uint64(j & 31) & ONE:
        return False
    return (
        0xD800 <= jsonl.hex4(data, j + 2, data.size) <= 0xDBFF
        and 0xDC00 <= jsonl.hex4(data, i + 2, data.size) <= 0xDFFF
    )


@kernel
def _width(code_point):
    return 1 + int(code_point >= 0x80) + int(code_point >= 0x800) + int(code_point >= 0x10000)


@kernel
def _escape_bytes(data, begins, i):
    """Return the size of the escape at `i`, and the size of the character that it writes. The first half of a pair does
    not include the second half, which writes no character. Sizes are 0 for an escape that is not plain."""
    code_point, taken = jsonl.escape(data, i, data.size)
    if taken:
        return min(taken, LONG_ESCAPE), _width(code_point)
    if i + 1 < data.size and byte_at(data, i + 1) == 117 and _is_second(data, begins, i):
        return LONG_ESCAPE, 0
    return 0, 0


@kernel
def split_word(data, begins, inside, faults, c):
    """Return four results for word `c`: a mask of bytes of strings to copy; a mask of escapes to replace by a
    character; the number of bytes that both write; and a mask of faults."""
    bad = inside & np.uint64(faults[at(c)])
    copied, escapes, written = inside, NO_BITS, np.int64(0)
    if c > 0:  # escapes that end here
        before = np.uint64(begins[at(c - 1)]) >> np.uint64(27)
        while before:
            k = lowest_bit(before)
            taken, _ = _escape_bytes(data, begins, 32 * c - 5 + k)
            copied &= ~_below(max(taken - 5 + k, 0))
            before &= before - ONE
    bits = np.uint64(begins[at(c)]) & inside
    while bits:
        k = lowest_bit(bits)
        taken, width = _escape_bytes(data, begins, 32 * c + k)
        if taken == 0:
            bad |= ONE << np.uint64(k)
        if width:
            escapes |= ONE << np.uint64(k)
        written += width
        copied &= ~(_below(taken) << np.uint64(k))
        bits &= bits - ONE
    return copied & ALL_BITS, escapes, written + count_bits(copied & ALL_BITS), bad


@kernel
def escaped_bytes(data, escapes, c):
    """Return the number of bytes that these escapes of word `c` write."""
    written = np.int64(0)
    while escapes:
        written += _width(jsonl.escape(data, 32 * c + lowest_bit(escapes), data.size)[0])
        escapes &= escapes - ONE
    return written


@kernel
def written_before(data, copied, escapes, ranks, i):
    """Return the number of bytes that all strings write before byte `i`."""
    c, below = i >> 5, _below(i & 31)
    written = np.int64(ranks[at(c)]) + count_bits(np.uint64(copied[at(c)]) & below)
    return written + escaped_bytes(data, np.uint64(escapes[at(c)]) & below, c)


@kernel
def bits_before(mask, ranks, i):
    """The number of bits before byte `i`."""
    return np.int64(ranks[at(i >> 5)]) + count_bits(np.uint64(mask[at(i >> 5)]) & _below(i & 31))


@kernel
def _step(data, i, end):
    """Return the position after white space from `i`; `end` + 1 if there is too much white space."""
    stop = min(end, i + MAX_STEP)
    i = jsonl.skip_space(data, i, stop)
    return end + 1 if i == stop and stop < end else i


@kernel
def _is_plain_key(data, start, end):
    """Whether a key is short and has no escape. A key with an escape may equal a wanted key."""
    if end - start > MAX_KEY:
        return False
    for k in range(start, end):
        if data[k] == jsonl.BACKSLASH:
            return False
    return True


@kernel
def _are_digits(data, start, end):
    for k in range(start, end):
        if data[k] < 48 or data[k] > 57:
            return False
    return True


@kernel
def scan_line(data, i, end, positions, q, q_end, text_key, id_key):
    """Read the line data[i:end] between its strings, whose quotes are at positions[q:q_end]. Return five numbers: the
    status (BLANK, PLAIN or UNUSUAL); start and end of the text, without quotes; start and end of the id, without quotes
    if it is a string, or NONE. This function does not check the content of strings.
    """
    unusual = jsonl.UNUSUAL, np.int64(NONE), np.int64(NONE), np.int64(NONE), np.int64(NONE)
    text, text_end = np.int64(NONE), np.int64(NONE)
    id_start, id_end = np.int64(NONE), np.int64(NONE)
    has_id = False
    first = i
    skipped = np.int64(0)  # bytes of strings
    i = _step(data, i, end)
    if i == end:
        return jsonl.BLANK, text, text_end, id_start, id_end
    if i > end or data[i] != jsonl.OPEN_OBJECT:
        return unusual
    levels, depth = ONE, 1  # a bit per open level: 1 is an object
    i += 1
    while True:
        in_object = levels & ONE != NO_BITS
        wants_text, wants_id = False, False
        i = _step(data, i, end)
        if in_object:
            if i >= end or q + 1 >= q_end or positions[q] != i:
                return unusual
            start, stop = np.int64(positions[q]) + 1, np.int64(positions[q + 1])
            q += 2
            skipped += stop - start - STRING_COST
            if depth == 1:
                if not _is_plain_key(data, start, stop):
                    return unusual
                wants_text = jsonl.key_is(data, start, stop, text_key)
                wants_id = not wants_text and jsonl.key_is(data, start, stop, id_key)
            i = _step(data, stop + 1, end)
            if i >= end or data[i] != jsonl.COLON:
                return unusual
            i = _step(data, i + 1, end)
        if i >= end or i - first - skipped > MAX_SKELETON:
            return unusual
        if (wants_text and (text != NONE or data[i] != jsonl.QUOTE)) or (wants_id and has_id):
            return unusual
        has_id |= wants_id
        if data[i] == jsonl.QUOTE:
            if q + 1 >= q_end or positions[q] != i:
                return unusual
            start, stop = np.int64(positions[q]) + 1, np.int64(positions[q + 1])
            q += 2
            skipped += stop - start - STRING_COST
            i = stop + 1
            if wants_text:
                text, text_end = start, stop
            elif wants_id:
                id_start, id_end = start, stop
                if stop - start > MAX_ID:
                    return unusual
        elif data[i] == jsonl.OPEN_OBJECT or data[i] == jsonl.OPEN_ARRAY:
            if wants_id or depth == jsonl.MAX_DEPTH:
                return unusual
            is_object = data[i] == jsonl.OPEN_OBJECT
            i = _step(data, i + 1, end)
            if i >= end:
                return unusual
            if data[i] != (jsonl.CLOSE_OBJECT if is_object else jsonl.CLOSE_ARRAY):
                levels = levels << ONE | (ONE if is_object else NO_BITS)
                depth += 1
                continue
            i += 1
        else:
            start = i
            i = jsonl.skip_scalar(data, i, min(end, i + MAX_SCALAR))
            if i < 0:
                return unusual
            if wants_id and data[start] != 110:  # not null
                if not _are_digits(data, start, i):
                    return unusual
                id_start, id_end = start, np.int64(i)
        while True:
            i = _step(data, i, end)
            if i >= end:
                return unusual
            if data[i] == jsonl.COMMA:
                i += 1
                break
            if data[i] != (jsonl.CLOSE_OBJECT if levels & ONE != NO_BITS else jsonl.CLOSE_ARRAY):
                return unusual
            levels >>= ONE
            depth -= 1
            i += 1
            if depth == 0:
                if text == NONE or q != q_end or _step(data, i, end) != end:
                    return unusual
                return jsonl.PLAIN, text, text_end, id_start, id_end
