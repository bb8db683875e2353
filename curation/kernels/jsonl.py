# SPDX-License-Identifier: Apache-2.0
"""Parses JSON Lines: validates each line as strictly as a JSON parser, and copies its text and its id.

A line is PLAIN if it is one object in valid UTF-8, with plain keys, each wanted key at most once, numbers that a double
represents exactly, and no lone surrogate. Other lines are UNUSUAL: orjson parses them and decides. This parser may
refuse a valid line, but never accepts an invalid one. The parser runs without the GIL and builds no Python objects.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import load64, store64
from curation.kernels.utf8 import encode

BLANK, PLAIN, UNUSUAL = 0, 1, 2
MAX_DEPTH = 60  # nesting levels, one bit each in a uint64
MAX_DIGITS = 15  # any integer of up to 15 digits is exact in a double

QUOTE, BACKSLASH, COMMA, COLON = 34, 92, 44, 58
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY = 123, 125, 91, 93
LOW_BITS = np.uint64(0x0101010101010101)
HIGH_BITS = np.uint64(0x8080808080808080)


@kernel
def find_newline(data, start, end):
    """Index of the next U+000A, or `end`."""
    newlines = np.uint64(0x0A0A0A0A0A0A0A0A)
    i = start
    while i + 8 <= end:
        x = load64(data, i) ^ newlines
        if (x - LOW_BITS) & ~x & HIGH_BITS:
            break
        i += 8
    while i < end and data[i] != 10:
        i += 1
    return i


@kernel
def _mark_special(x):
    """Return a number that is not 0 if one of eight bytes is a quote, a backslash, a control character or above 0x7F.
    Which bit is set is not reliable (Hacker's Delight, 6-1)."""
    q = x ^ np.uint64(0x2222222222222222)
    b = x ^ np.uint64(0x5C5C5C5C5C5C5C5C)
    below_space = (x - np.uint64(0x2020202020202020)) & ~x
    return (((q - LOW_BITS) & ~q) | ((b - LOW_BITS) & ~b) | below_space | x) & HIGH_BITS


@kernel
def _skip_plain(data, start, end):
    """Position of the first byte from `start` that `_mark_special` would mark."""
    i = start
    while i + 8 <= end:
        if _mark_special(load64(data, i)):
            break
        i += 8
    while i < end:
        c = data[i]
        if c == QUOTE or c == BACKSLASH or c < 32 or c >= 128:
            break
        i += 1
    return i


@kernel
def sequence_length(data, i, end):
    """Bytes of the UTF-8 sequence at `i` (Unicode 17.0, table 3-7); 0 if it is not well-formed."""
    a = data[i]
    if a < 0x80:
        return 1
    if a < 0xC2 or a > 0xF4:
        return 0
    if a < 0xE0:
        return 2 if i + 1 < end and (data[i + 1] & 0xC0) == 0x80 else 0
    if a < 0xF0:
        if i + 2 >= end or (data[i + 2] & 0xC0) != 0x80:
            return 0
        low = 0xA0 if a == 0xE0 else 0x80
        high = 0x9F if a == 0xED else 0xBF
        return 3 if low <= data[i + 1] <= high else 0
    if i + 3 >= end or (data[i + 2] & 0xC0) != 0x80 or (data[i + 3] & 0xC0) != 0x80:
        return 0
    low = 0x90 if a == 0xF0 else 0x80
    high = 0x8F if a == 0xF4 else 0xBF
    return 4 if low <= data[i + 1] <= high else 0


@kernel
def is_valid_utf8(data, start, end):
    """Whether data[start:end] is well-formed UTF-8."""
    i = start
    while i < end:
        if i + 8 <= end and load64(data, i) & HIGH_BITS == np.uint64(0):
            i += 8
            continue
        length = sequence_length(data, i, end)
        if length == 0:
            return False
        i += length
    return True


@kernel
def check_utf8(data, offsets, valid):
    """Write to `valid` (bool, rows) whether each string is well-formed UTF-8; `offsets` has rows + 1 entries."""
    for row in range(len(valid)):
        valid[row] = is_valid_utf8(data, offsets[row], offsets[row + 1])


@kernel
def hex4(data, i, end):
    """The value of four hexadecimal digits, or -1."""
    if i + 4 > end:
        return -1
    value = 0
    for k in range(i, i + 4):
        c = data[k]
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= c <= 102:
            digit = c - 87
        elif 65 <= c <= 70:
            digit = c - 55
        else:
            return -1
        value = value * 16 + digit
    return value


@kernel
def escape(data, i, end):
    """Return the code point and the size in bytes of the escape whose backslash is at `i`; size 0 for an escape that is
    not plain."""
    if i + 1 >= end:
        return 0, 0
    c = data[i + 1]
    if c == 110:
        return 10, 2
    if c == QUOTE or c == BACKSLASH or c == 47:
        return int(c), 2
    if c == 116:
        return 9, 2
    if c == 114:
        return 13, 2
    if c == 98:
        return 8, 2
    if c == 102:
        return 12, 2
    if c != 117:
        return 0, 0
    high = hex4(data, i + 2, end)
    if high < 0 or 0xDC00 <= high <= 0xDFFF:
        return 0, 0
    if high < 0xD800 or high > 0xDBFF:
        return high, 6
    if i + 7 >= end or data[i + 6] != BACKSLASH or data[i + 7] != 117:
        return 0, 0
    low = hex4(data, i + 8, end)
    if low < 0xDC00 or low > 0xDFFF:
        return 0, 0
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), 12


@kernel
def _copy_plain(data, start, end, out, o):
    """Copy the plain bytes that `_skip_plain` would skip; return their number."""
    i = start
    shift = o - start
    while i + 8 <= end:
        x = load64(data, i)
        store64(
            out, i + shift, x
        )  # `out` is as long as the data, and never filled beyond the position read: later writes overwrite the excess
        if _mark_special(x):
            break
        i += 8
    while i < end:
        c = data[i]
        if c == QUOTE or c == BACKSLASH or c < 32 or c >= 128:
            break
        out[i + shift] = c
        i += 1
    return i - start


@kernel
def _copy_string(data, start, end, out, o):
    """Unescape the string whose first character is at `start` into `out`.

    Return (position after the closing quote, or -1 for a string that is not plain; end of the output).
    """
    i = start
    while True:
        copied = _copy_plain(data, i, end, out, o)
        o += copied
        i += copied
        if i >= end or data[i] < 32:
            return -1, o
        if data[i] == QUOTE:
            return i + 1, o
        if data[i] == BACKSLASH:
            code_point, taken = escape(data, i, end)
            if taken == 0:
                return -1, o
            o = encode(code_point, out, o)
            i += taken
        else:
            length = sequence_length(data, i, end)
            if length == 0:
                return -1, o
            for k in range(length):
                out[o + k] = data[i + k]
            o += length
            i += length


@kernel
def _skip_string(data, start, end):
    """Position after the closing quote of the string whose first character is at `start`; -1 if it is not plain."""
    i = start
    while True:
        i = _skip_plain(data, i, end)
        if i >= end or data[i] < 32:
            return -1
        if data[i] == QUOTE:
            return i + 1
        if data[i] == BACKSLASH:
            _, taken = escape(data, i, end)
            if taken == 0:
                return -1
            i += taken
        else:
            length = sequence_length(data, i, end)
            if length == 0:
                return -1
            i += length


@kernel
def skip_space(data, i, end):
    """The first position from `i` on without white space of JSON, at most `end`."""
    while i < end and (data[i] == 32 or data[i] == 9 or data[i] == 13 or data[i] == 10):
        i += 1
    return i


@kernel
def _skip_digits(data, i, end):
    while i < end and 48 <= data[i] <= 57:
        i += 1
    return i


@kernel
def _skip_number(data, i, end):
    """Position after a number of at most 15 digits without exponent; -1 for any other value."""
    if i < end and data[i] == 45:
        i += 1
    first = i
    i = _skip_digits(data, i, end)
    digits = i - first
    if digits == 0 or (digits > 1 and data[first] == 48):
        return -1
    if i < end and data[i] == 46:
        after = _skip_digits(data, i + 1, end)
        if after == i + 1:
            return -1
        digits += after - i - 1
        i = after
    if digits > MAX_DIGITS or (i < end and (data[i] == 101 or data[i] == 69)):
        return -1
    return i


@kernel
def skip_scalar(data, i, end):
    """Position after a number, true, false or null; -1 for any other value."""
    c = data[i]
    if c == 116:
        ok = i + 4 <= end and data[i + 1] == 114 and data[i + 2] == 117 and data[i + 3] == 101
        return i + 4 if ok else -1
    if c == 102:
        ok = i + 5 <= end and data[i + 1] == 97 and data[i + 2] == 108 and data[i + 3] == 115 and data[i + 4] == 101
        return i + 5 if ok else -1
    if c == 110:
        ok = i + 4 <= end and data[i + 1] == 117 and data[i + 2] == 108 and data[i + 3] == 108
        return i + 4 if ok else -1
    return _skip_number(data, i, end)


@kernel
def _skip_key(data, i, end):
    """Position after `"key" :`; -1 if there is none."""
    i = skip_space(data, i, end)
    if i >= end or data[i] != QUOTE:
        return -1
    i = _skip_string(data, i + 1, end)
    if i < 0:
        return -1
    i = skip_space(data, i, end)
    return i + 1 if i < end and data[i] == COLON else -1


@kernel
def _skip_value(data, i, end):
    """Position after any JSON value; -1 if it is not plain. `levels` has a bit per level of nesting: 1 for an object, 0
    for an array."""
    levels = np.uint64(0)
    depth = 0
    while True:
        i = skip_space(data, i, end)
        if i >= end:
            return -1
        c = data[i]
        if c == QUOTE:
            i = _skip_string(data, i + 1, end)
        elif c == OPEN_OBJECT or c == OPEN_ARRAY:
            if depth == MAX_DEPTH:
                return -1
            is_object = c == OPEN_OBJECT
            inside = skip_space(data, i + 1, end)
            if inside < end and data[inside] == (CLOSE_OBJECT if is_object else CLOSE_ARRAY):
                i = inside + 1
            else:
                levels = levels << np.uint64(1) | np.uint64(1 if is_object else 0)
                depth += 1
                i = _skip_key(data, inside, end) if is_object else inside
                if i < 0:
                    return -1
                continue
        else:
            i = skip_scalar(data, i, end)
        if i < 0:
            return -1
        while True:
            if depth == 0:
                return i
            i = skip_space(data, i, end)
            if i >= end:
                return -1
            in_object = levels & np.uint64(1) != np.uint64(0)
            if data[i] == COMMA:
                i = _skip_key(data, i + 1, end) if in_object else i + 1
                if i < 0:
                    return -1
                break
            if data[i] != (CLOSE_OBJECT if in_object else CLOSE_ARRAY):
                return -1
            levels >>= np.uint64(1)
            depth -= 1
            i += 1


@kernel
def key_is(data, start, end, key):
    """Whether the bytes between two quotes are `key`; escapes are not decoded."""
    if end - start != len(key):
        return False
    for k in range(len(key)):
        if data[start + k] != key[k]:
            return False
    return True


@kernel
def _copy_integer(data, i, end, out, o):
    """Copy the digits of a non-negative integer; (-1, o) for any other number."""
    stop = _skip_number(data, i, end)
    if stop < 0 or stop == i:
        return -1, o
    for k in range(i, stop):
        if data[k] < 48 or data[k] > 57:
            return -1, o
        out[o + k - i] = data[k]
    return stop, o + stop - i


@kernel
def _parse_line(data, i, end, text_key, id_key, texts, text_end, ids, id_end):
    """Parse one line. Return its status (PLAIN or UNUSUAL), the ends of `texts` and `ids`, and whether the line has an
    id."""
    i = skip_space(data, i, end)
    has_text = False
    has_id = False
    null_id = False
    if i >= end or data[i] != OPEN_OBJECT:
        return UNUSUAL, text_end, id_end, False
    while True:
        i = skip_space(data, i + 1, end)
        if i >= end or data[i] != QUOTE:
            return UNUSUAL, text_end, id_end, False
        key = i + 1
        key_end = _skip_plain(data, key, end)
        if key_end >= end or data[key_end] != QUOTE:
            key_end = _skip_string(data, key, end) - 1
            if key_end < 0:
                return UNUSUAL, text_end, id_end, False
            for k in range(key, key_end):
                if data[k] == BACKSLASH:  # an escaped key may equal a wanted one
                    return UNUSUAL, text_end, id_end, False
        i = skip_space(data, key_end + 1, end)
        if i >= end or data[i] != COLON:
            return UNUSUAL, text_end, id_end, False
        i = skip_space(data, i + 1, end)
        if i >= end:
            return UNUSUAL, text_end, id_end, False
        if key_is(data, key, key_end, text_key):
            if has_text or data[i] != QUOTE:
                return UNUSUAL, text_end, id_end, False
            has_text = True
            i, text_end = _copy_string(data, i + 1, end, texts, text_end)
        elif key_is(data, key, key_end, id_key):
            if has_id or null_id:
                return UNUSUAL, text_end, id_end, False
            if data[i] == QUOTE:
                has_id = True
                i, id_end = _copy_string(data, i + 1, end, ids, id_end)
            elif data[i] == 110:
                null_id = True
                i = skip_scalar(data, i, end)
            else:
                has_id = True
                i, id_end = _copy_integer(data, i, end, ids, id_end)
        else:
            i = _skip_value(data, i, end)
        if i < 0:
            return UNUSUAL, text_end, id_end, False
        i = skip_space(data, i, end)
        if i >= end:
            return UNUSUAL, text_end, id_end, False
        if data[i] == COMMA:
            continue
        if data[i] != CLOSE_OBJECT or skip_space(data, i + 1, end) != end or not has_text:
            return UNUSUAL, text_end, id_end, False
        return PLAIN, text_end, id_end, has_id


@kernel
def count_lines(data, start, end):
    """Number of lines in data[start:end], including a last one without a line end."""
    lines = 0
    i = start
    while i < end:
        i = find_newline(data, i, end) + 1
        lines += 1
    return lines


@kernel
def end_of_lines(data, start, end):
    """Position after the newline of the last whole line in data[start:end]; `start` if there is none."""
    while end > start and data[end - 1] != 10:
        end -= 1
    return end


@kernel
def parse_lines(
    data, start, end, text_key, id_key, line_starts, status, texts, text_offsets, ids, id_offsets, id_valid
):
    """Parse every line of data[start:end]; return the number of lines.

    text_key, id_key           uint8: names of the wanted keys
    line_starts, status        int64 and uint8, one per line: first byte; BLANK, PLAIN or UNUSUAL
    texts, ids                 uint8, as long as the data: strings of the plain lines, one after the other
    text_offsets, id_offsets   int64, lines + 1; a line that is not plain has an empty string
    id_valid                   bool, one per line: whether it has an id
    """
    line = 0
    i = start
    text_end = 0
    id_end = 0
    while i < end:
        stop = find_newline(data, i, end)
        line_starts[line] = i
        id_valid[line] = False
        if skip_space(data, i, stop) == stop:
            status[line] = BLANK
        else:
            status[line], new_text, new_id, id_valid[line] = _parse_line(
                data, i, stop, text_key, id_key, texts, text_end, ids, id_end
            )
            if status[line] == PLAIN:
                text_end = new_text
                id_end = new_id
        line += 1
        text_offsets[line] = text_end
        id_offsets[line] = id_end
        i = stop + 1
    return line
