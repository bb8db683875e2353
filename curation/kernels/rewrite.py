# SPDX-License-Identifier: Apache-2.0
"""Rewriting one document in one pass over its bytes.

The order inside a stage is fixed: Unicode form, markup, control, characters, lower case, white space; what one step
deletes the next does not see. The Unicode form is not part of the pass: `needs_normalising` finds the few documents
that can change (UAX #15 quick check), and `curation.stages.normalization` rewrites these on the host before.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from curation.errors import RecipeError
from curation.kernels import tables, utf8
from curation.kernels.hashing import load64, store64
from curation.kernels.words import HIGH_BITS, first_mark, mark_capitals, mark_equal

CHOICES = {
    "unicode": ("keep", "nfc", "nfkc"),
    "markup": ("keep", "strip", "strip_line"),
    "control": ("keep", "strip", "strip_all"),
    "characters": ("keep", "basic", "folded"),
    "whitespace": ("keep", "collapse", "strip", "lines"),
}
KEEP = 0
STRIP_MARKUP, STRIP_MARKUP_LINE = 1, 2
COLLAPSE, STRIP, LINES = 1, 2, 3
FORM_FLAGS = {"nfc": tables.NFC_MAYBE, "nfkc": tables.NFKC_MAYBE}

# Positions in a plan.
STOP, DROP, MARKUP, WHITESPACE, LOWERCASE, FOLD, BLOCKS = 0, 1, 2, 3, 4, 5, 6

NEWLINE, BLANK, ZERO, TAG_BEGIN, TAG_END = 10, 32, 48, 60, 62
at = np.uint64  # an unsigned index spares the test for a negative one and lets loops become vector code


class RewriteSteps(NamedTuple):
    """What to do to a text. The defaults do nothing.

    - `unicode`: `nfc` or `nfkc` normalises to this form of Unicode 17.
    - `markup`: `strip` deletes every match of the regular expression `<[^>]+>`; `strip_line` every match of `<.*?>`,
      which stays within one line and takes `<>` too.
    - `control`: `strip` deletes category Cc except TAB, LF and CR; `strip_all` all of Cc.
    - `characters`: `basic` deletes what is outside `[\\w\\s.,!?]`; `folded` makes each decimal digit 0 and each
      punctuation character (categories P*) a space.
    - `lowercase`: as `str.lower`, final sigma and U+0130 included.
    - `whitespace`: `strip` removes white space at both ends; `collapse` also makes every run of it one space; `lines`
      removes white space before LF (so CR LF becomes LF), leaves at most two LF in a row, and strips both ends.
    """

    unicode: str = "keep"
    markup: str = "keep"
    control: str = "keep"
    characters: str = "keep"
    lowercase: bool = False
    whitespace: str = "keep"


def plan_steps(steps: RewriteSteps) -> np.ndarray:
    """The steps as the int64 array that `rewrite_document` takes."""
    for name, choices in CHOICES.items():
        if getattr(steps, name) not in choices:
            raise RecipeError(f"{name}: expected one of {', '.join(choices)}, got {getattr(steps, name)!r}")
    drop = {"keep": 0, "strip": tables.OTHER_CONTROL, "strip_all": tables.CONTROL}[steps.control]
    drop |= tables.SYMBOL if steps.characters == "basic" else 0
    fold = tables.DIGIT | tables.PUNCTUATION if steps.characters == "folded" else 0
    stop = drop | fold
    stop |= tables.TAG_START if steps.markup != "keep" else 0
    stop |= tables.SPACE if steps.whitespace != "keep" else 0
    markup, whitespace = (CHOICES[name].index(getattr(steps, name)) for name in ("markup", "whitespace"))
    blocks = steps.characters == "keep"  # what stops is white space, a control character or "<"
    return np.array([stop, drop, markup, whitespace, steps.lowercase, fold, blocks], np.int64)


def output_bound(num_bytes, steps: RewriteSteps):
    """Most bytes that `num_bytes` (one number or an array) of normalised text can become.

    Lower case turns two bytes into three at worst (U+0130, U+023A, U+023E). A document at bytes [a, b) of a column may
    be written at `output_bound(a)`: the bounds of neighbours do not overlap.
    """
    return num_bytes + num_bytes // 2 if steps.lowercase else num_bytes


@njit(cache=True, nogil=True)
def are_ascii(data, i):
    """Whether the 32 bytes from `i` are ASCII: one vector comparison on the CPU."""
    seen = load64(data, i) | load64(data, i + 8) | load64(data, i + 16) | load64(data, i + 24)
    return seen & HIGH_BITS == np.uint64(0)


@njit(cache=True, nogil=True)
def lower_block(block):
    """Eight ASCII bytes in lower case."""
    return block | mark_capitals(block) >> np.uint64(2)


@njit(cache=True, nogil=True)
def needs_normalising(data, start, end, form_flag, pages, records, flags, combining):
    """UAX #15 quick check of one document; `form_flag` is one of FORM_FLAGS. True where the answer is Maybe, too."""
    previous = 0
    i = start
    while i < end:
        if data[at(i)] < 0x80:
            previous = 0
            i += 1
            while i + 32 <= end and are_ascii(data, i):
                i += 32
            continue
        code_point, width = utf8.decode(data, i)
        record = utf8.record_of(pages, records, code_point)
        order = int(combining[record])
        if int(flags[record]) & form_flag or (order != 0 and order < previous):
            return True
        previous = order
        i += width
    return False


@njit(cache=True, nogil=True)
def copy_bytes(data, start, end, out, o):
    """Copy the bytes [start, end); gives the end of the output."""
    source, target = at(start), at(o)
    for k in range(at(end - start)):
        out[target + k] = data[source + k]
    return o + end - start


@njit(cache=True, nogil=True)
def find_tag_end(data, i, end, markup):
    """For "<" at `i`: (True, end of the match), or (False, position before which no "<" begins a match)."""
    j = i + 1
    while j < end:
        byte = int(data[j])
        if byte == TAG_END:
            return (markup == STRIP_MARKUP_LINE or j > i + 1), j + 1
        if byte == NEWLINE and markup == STRIP_MARKUP_LINE:
            return False, j
        j += 1
    return False, end


@njit(cache=True, nogil=True)
def write_space(data, i, width, out, o, out_start, solid, whitespace):
    """Write one white space character; `solid` is the end of the output before this run of white space."""
    if solid == out_start:
        return o
    if whitespace == COLLAPSE:
        out[solid] = BLANK
        return solid + 1
    if whitespace == LINES and data[i] == NEWLINE:
        kept = solid
        while kept < o and kept < solid + 2 and out[kept] == NEWLINE:
            kept += 1
        if kept < solid + 2:
            out[kept] = NEWLINE
            kept += 1
        return kept
    return copy_bytes(data, i, i + width, out, o)


@njit(cache=True, nogil=True)
def write_folded(found, out, o, out_start, solid, whitespace):
    """Write what stands for a digit or a punctuation character; gives (end, end without white space)."""
    if found & tables.DIGIT:
        out[o] = ZERO
        return o + 1, o + 1
    if whitespace == KEEP:
        out[o] = BLANK
        return o + 1, o + 1
    if solid == out_start:
        return o, solid
    o = solid if whitespace == COLLAPSE else o
    out[o] = BLANK
    return o + 1, solid


@njit(cache=True, nogil=True)
def follows_cased(out, first, o, pages, records, flags):
    """Whether the last character before `o` that is not case-ignorable is cased."""
    while o > first:
        o = utf8.start_of(out, first, o)
        code_point, _ = utf8.decode(out, o)
        found = int(flags[utf8.record_of(pages, records, code_point)])
        if not found & tables.CASE_IGNORABLE:
            return found & tables.CASED != 0
    return False


@njit(cache=True, nogil=True)
def settle_sigma(out, sigma, o, pages, records, flags):
    """Make the final sigma at `sigma` an ordinary one if the next character that is not case-ignorable is cased."""
    if sigma < 0:
        return
    i = sigma + 2
    while i < o:
        code_point, width = utf8.decode(out, i)
        found = int(flags[utf8.record_of(pages, records, code_point)])
        if not found & tables.CASE_IGNORABLE:
            if found & tables.CASED:
                out[sigma + 1] = 0x83
            return
        i += width


@njit(cache=True, nogil=True)
def write_lower(code_point, record, out, o, flags, lower):
    """Write the lower case of any code point but U+03A3."""
    o = utf8.encode(code_point + int(lower[record]), out, o)
    if int(flags[record]) & tables.LOWER_SPECIAL:
        o = utf8.encode(0x0307, out, o)
    return o


@njit(cache=True, nogil=True)
def plain_bytes(block, after_space, whitespace, drop, markup):
    """How many of eight ASCII bytes stay as they are but for their case: up to a control character, a "<", or a space
    after a space (`after_space`: one before the block), where these mean something."""
    marks = np.uint64(0)
    if whitespace != KEEP:
        spaces = mark_equal(block, np.uint64(0x2020202020202020))
        marks |= spaces & (spaces << np.uint64(8) | np.uint64(after_space) << np.uint64(7))
    if whitespace != KEEP or drop:
        marks |= ~(block + np.uint64(0x6060606060606060)) & HIGH_BITS
    if drop:
        marks |= mark_equal(block, np.uint64(0x7F7F7F7F7F7F7F7F))
    if markup != KEEP:
        marks |= mark_equal(block, np.uint64(0x3C3C3C3C3C3C3C3C))
    return first_mark(marks)


@njit(cache=True, nogil=True)
def rewrite_document(data, start, end, out, out_start, steps, pages, records, flags, lower):
    """Write the bytes [start, end) of `data` to `out` from `out_start`, rewritten; gives the end of the output.

    `steps` comes from `plan_steps`, the size of `out` from `output_bound`. Linear: the searches for a tag's end and for
    a sigma's neighbours each pass a byte once.
    """
    stop, drop, markup = steps[STOP], steps[DROP], steps[MARKUP]
    whitespace, lowercase, fold, blocks = steps[WHITESPACE], steps[LOWERCASE], steps[FOLD], steps[BLOCKS]
    if stop == 0 and lowercase == 0:
        return copy_bytes(data, start, end, out, out_start)
    lower_mask = -lowercase
    i = start
    o = out_start
    solid = out_start  # end of the output, white space after it left out
    sigma = -1  # a final sigma in the output whose next character is not known yet
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
                    store64(out, o, block)  # inside the bound: the eight bytes that were read may all stay
                    i += count
                    o += count
                    solid = o - 1 if whitespace != KEEP and out[at(o - 1)] == BLANK else o
                    continue
        byte = int(data[at(i)])
        if byte < 0x80 and int(flags[at(byte)]) & stop == 0:
            out[at(o)] = byte + (int(lower[at(byte)]) & lower_mask)
            i += 1
            o += 1
            solid = o
            continue
        if byte == TAG_BEGIN and markup != KEEP and i >= no_tag_before:
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
        found = int(flags[record])
        if found & drop:
            i += width
            continue
        if found & fold:
            o, solid = write_folded(found, out, o, out_start, solid, whitespace)
            i += width
            continue
        if whitespace != KEEP and found & tables.SPACE:
            o = write_space(data, i, width, out, o, out_start, solid, whitespace)
            i += width
            continue
        if lowercase and found & tables.SIGMA:
            is_final = follows_cased(out, out_start, o, pages, records, flags)
            undecided = o if is_final else -1
            o = utf8.encode(0x03C2 if is_final else 0x03C3, out, o)
            settle_sigma(out, sigma, o, pages, records, flags)
            sigma = undecided
        elif lowercase and (lower[record] != 0 or found & tables.LOWER_SPECIAL):
            o = write_lower(code_point, record, out, o, flags, lower)
        else:
            o = copy_bytes(data, i, i + width, out, o)
        solid = o
        i += width
    if whitespace != KEEP:
        o = solid
    settle_sigma(out, sigma, o, pages, records, flags)
    return o


@njit(cache=True, nogil=True)
def differs(data, start, end, out, out_start, out_end):
    """Whether two runs of bytes are not the same."""
    if end - start != out_end - out_start:
        return True
    first, second = at(start), at(out_start)
    for k in range(at(end - start)):
        if data[first + k] != out[second + k]:
            return True
    return False
