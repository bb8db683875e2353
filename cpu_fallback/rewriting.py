# SPDX-License-Identifier: Apache-2.0
"""Rewrites one document in one pass over its bytes; `curation.kernels.rewrite` plans the steps.

`out` is the output (uint8). `solid` is the end of the output without trailing white space. `pages`, `records`, `flags`,
`lower` and `combining` are those of `tables.UnicodeTables`.
"""

import numpy as np

from curation.kernels import rewrite, tables, utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import load64, store64
from curation.kernels.words import HIGH_BITS, first_mark, mark_capitals, mark_equal

at = np.uint64  # unsigned indices need no test for negatives, so LLVM vectorises the loops


@kernel
def are_ascii(data, i):
    """Whether the 32 bytes from `i` are ASCII: one vector comparison on the CPU."""
    seen = load64(data, i) | load64(data, i + 8) | load64(data, i + 16) | load64(data, i + 24)
    return seen & HIGH_BITS == np.uint64(0)


@kernel
def lower_block(block):
    """Return eight ASCII bytes in lower case."""
    return block | mark_capitals(block) >> np.uint64(2)


@kernel
def copy_bytes(data, start, end, out, o):
    """Copy a range to `out`; return where the output ends. The indices are unsigned, so the loop needs no tests for
    negatives."""
    source, target = at(start), at(o)
    for k in range(at(end - start)):
        out[target + k] = data[source + k]
    return o + end - start


@kernel
def find_tag_end(data, i, end, markup):
    """Search the end of the tag at the "<" at `i`. Return (True, end of the match), or (False, position before which no
    "<" starts a match)."""
    j = i + 1
    while j < end:
        byte = int(data[j])
        if byte == rewrite.TAG_END:
            return (markup == rewrite.BRACKETS_LINE or j > i + 1), j + 1
        if byte == rewrite.NEWLINE and markup == rewrite.BRACKETS_LINE:
            return False, j
        j += 1
    return False, end


@kernel
def write_space(data, i, width, out, o, out_start, solid, whitespace):
    """Write one white space character by the rule of `whitespace`; return the end of the output."""
    if solid == out_start:
        return o
    if whitespace == rewrite.COLLAPSE:
        out[solid] = rewrite.BLANK
        return solid + 1
    if whitespace == rewrite.LINES and data[i] == rewrite.NEWLINE:
        kept = solid
        while kept < o and kept < solid + 2 and out[kept] == rewrite.NEWLINE:
            kept += 1
        if kept < solid + 2:
            out[kept] = rewrite.NEWLINE
            kept += 1
        return kept
    return copy_bytes(data, i, i + width, out, o)


@kernel
def write_folded(char_flags, out, o, out_start, solid, whitespace):
    """Write 0 for a digit, a space for a punctuation character; return the end of the output and the new `solid`."""
    if char_flags & tables.DIGIT:
        out[o] = rewrite.ZERO
        return o + 1, o + 1
    if whitespace == rewrite.KEEP:
        out[o] = rewrite.BLANK
        return o + 1, o + 1
    if solid == out_start:
        return o, solid
    o = solid if whitespace == rewrite.COLLAPSE else o
    out[o] = rewrite.BLANK
    return o + 1, solid


@kernel
def follows_cased(out, first, o, pages, records, flags):
    """Whether the last character before `o` that is not case-ignorable is cased."""
    while o > first:
        o = utf8.start_of(out, first, o)
        code_point, _ = utf8.decode(out, o)
        char_flags = int(flags[utf8.record_of(pages, records, code_point)])
        if not char_flags & tables.CASE_IGNORABLE:
            return char_flags & tables.CASED != 0
    return False


@kernel
def finish_sigma(out, sigma, o, pages, records, flags):
    """Make the final sigma at `sigma` an ordinary one if the next character that is not case-ignorable is cased."""
    if sigma < 0:
        return
    i = sigma + 2
    while i < o:
        code_point, width = utf8.decode(out, i)
        char_flags = int(flags[utf8.record_of(pages, records, code_point)])
        if not char_flags & tables.CASE_IGNORABLE:
            if char_flags & tables.CASED:
                out[sigma + 1] = 0x83
            return
        i += width


@kernel
def write_lower(code_point, record, out, o, flags, lower):
    """Write the lower case of any code point except U+03A3; return the end of the output."""
    o = utf8.encode(code_point + int(lower[record]), out, o)
    if int(flags[record]) & tables.LOWER_SPECIAL:
        o = utf8.encode(0x0307, out, o)
    return o


@kernel
def plain_bytes(block, after_space, whitespace, drop, markup):
    """Number of leading bytes of an ASCII block that change at most in case.

    The count stops before a control character, a "<", or a space after a space, if the steps change these.
    `after_space`: whether a space precedes the block.
    """
    marks = np.uint64(0)
    if whitespace != rewrite.KEEP:
        spaces = mark_equal(block, np.uint64(0x2020202020202020))
        marks |= spaces & (spaces << np.uint64(8) | np.uint64(after_space) << np.uint64(7))
    if whitespace != rewrite.KEEP or drop:
        marks |= ~(block + np.uint64(0x6060606060606060)) & HIGH_BITS
    if drop:
        marks |= mark_equal(block, np.uint64(0x7F7F7F7F7F7F7F7F))
    if markup != rewrite.KEEP:
        marks |= mark_equal(block, np.uint64(0x3C3C3C3C3C3C3C3C))
    return first_mark(marks)


@kernel
def rewrite_document(data, start, end, out, out_start, steps, pages, records, flags, lower):
    """Write the rewritten data[start:end] to `out` from `out_start`; return the end of the output.

    `output_bound` gives the size that `out` needs. Time is linear: the searches for the end of a tag and for the
    neighbours of a sigma read each byte once.
    """
    stop, drop, markup = steps[rewrite.STOP], steps[rewrite.DROP], steps[rewrite.MARKUP]
    whitespace, lowercase = steps[rewrite.WHITESPACE], steps[rewrite.LOWERCASE]
    fold, blocks = steps[rewrite.FOLD], steps[rewrite.BLOCKS]
    if stop == 0 and lowercase == 0:
        return copy_bytes(data, start, end, out, out_start)
    lower_mask = -lowercase
    i = start
    o = out_start
    solid = out_start
    sigma = -1  # position of a final sigma in the output whose next character is unknown
    no_tag_before = start
    while i < end:
        while stop == 0 and i + 32 <= end and are_ascii(data, i):
            for k in range(0, 32, 8):
                store64(out, o + k, lower_block(load64(data, i + k)))
            i += 32
            o += 32
        if i >= end:
            break
        if blocks and i + 8 <= end:
            block = load64(data, i)
            if block & HIGH_BITS == np.uint64(0):
                count = plain_bytes(block, o != solid or o == out_start, whitespace, drop, markup)
                if count:
                    if lowercase:
                        block = lower_block(block)
                    store64(out, o, block)  # the bound on the output has room for all eight bytes
                    i += count
                    o += count
                    solid = o - 1 if whitespace != rewrite.KEEP and out[at(o - 1)] == rewrite.BLANK else o
                    continue
        byte = int(data[at(i)])
        if byte < 0x80 and int(flags[at(byte)]) & stop == 0:
            out[at(o)] = byte + (int(lower[at(byte)]) & lower_mask)
            i += 1
            o += 1
            solid = o
            continue
        if byte == rewrite.TAG_BEGIN and markup != rewrite.KEEP and i >= no_tag_before:
            is_tag, position = find_tag_end(data, i, end, markup)
            if is_tag:
                i = position
                continue
            no_tag_before = position
        if byte < 0x80:
            code_point, width, record = byte, 1, byte
        else:
            code_point, width = utf8.decode(data, i)
            record = utf8.record_of(pages, records, code_point)
        char_flags = int(flags[record])
        if char_flags & drop:
            i += width
            continue
        if char_flags & fold:
            o, solid = write_folded(char_flags, out, o, out_start, solid, whitespace)
            i += width
            continue
        if whitespace != rewrite.KEEP and char_flags & tables.SPACE:
            o = write_space(data, i, width, out, o, out_start, solid, whitespace)
            i += width
            continue
        if lowercase and char_flags & tables.SIGMA:
            is_final = follows_cased(out, out_start, o, pages, records, flags)
            undecided = o if is_final else -1
            o = utf8.encode(0x03C2 if is_final else 0x03C3, out, o)
            finish_sigma(out, sigma, o, pages, records, flags)
            sigma = undecided
        elif lowercase and (lower[record] != 0 or char_flags & tables.LOWER_SPECIAL):
            o = write_lower(code_point, record, out, o, flags, lower)
        else:
            o = copy_bytes(data, i, i + width, out, o)
        solid = o
        i += width
    if whitespace != rewrite.KEEP:
        o = solid
    finish_sigma(out, sigma, o, pages, records, flags)
    return o


@kernel
def differs(data, start, end, out, out_start, out_end):
    """Whether two ranges differ in their bytes or their length."""
    if end - start != out_end - out_start:
        return True
    first, second = at(start), at(out_start)
    for k in range(at(end - start)):
        if data[first + k] != out[second + k]:
            return True
    return False
