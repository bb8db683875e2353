# SPDX-License-Identifier: Apache-2.0
"""Lines, paragraphs and sentences of many texts at once, as spans of bytes.

    line       an element of `str.splitlines()`, with its line end
    paragraph  a maximal run of adjacent text lines, which are lines with a word, as `Measure.paragraphs` counts
    sentence   the words up to one that ends a sentence, as `Measure.sentences` counts

The units of a text cover it without gaps: the first begins at the first byte of the text, each ends where the next
begins, and the last ends at the end of the text. So blank lines after a paragraph belong to the paragraph, and white
space after a sentence belongs to the sentence. Blank lines or white space before the first unit belong to the first
unit. The *content* of a unit leaves these out: it is the line without its line end, the lines of a paragraph without
the last line end, or the first to the last character of a sentence. A text without words has no paragraphs and no
sentences.

A span has three numbers (int64), positions in `data`: the first byte of the unit, the first byte of its content, the
byte after its content.
"""

from typing import NamedTuple

import numpy as np

from curation.kernels import utf8
from curation.kernels.cache import kernel
from curation.kernels.hashing import at, load64
from curation.kernels.measures import ends_in_sentence_mark
from curation.kernels.minhash import space_width
from curation.kernels.tables import load_tables
from curation.kernels.utf8 import byte_at
from curation.kernels.words import HIGH_BITS

BLANKS = np.uint64(0x2020202020202020)
LINE, PARAGRAPH, SENTENCE = "line", "paragraph", "sentence"
UNITS = (LINE, PARAGRAPH, SENTENCE)
# Last bytes of the marks . ! ? … 。 ！ ？ । that end sentences: an upper bound of the number of sentences.
MARK_BYTES = np.isin(np.arange(256), [0x2E, 0x21, 0x3F, 0xA6, 0x82, 0x81, 0x9F, 0xA4])


class Units(NamedTuple):
    """The units of texts, in order.

    spans   int64 of shape (units, 3), as the module describes
    counts  int64, one per text: the number of its units; 0 for a null
    """

    spans: np.ndarray
    counts: np.ndarray

    def texts(self) -> np.ndarray:
        """Return the number of the text of each unit, int64."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def ends(self, offsets: np.ndarray) -> np.ndarray:
        """Return the byte after each unit, int64. `offsets` are those of the texts."""
        ends = np.empty(len(self.spans), np.int64)
        ends[:-1] = self.spans[1:, 0]
        ends[np.cumsum(self.counts)[self.counts > 0] - 1] = offsets[1:][self.counts > 0]
        return ends


def find_units(data: np.ndarray, offsets: np.ndarray, valid: np.ndarray | None, unit: str) -> Units:
    """Return the units of the texts data[offsets[k]:offsets[k + 1]].

    data     uint8: UTF-8
    offsets  int64, texts + 1
    valid    bool, one per text: false for a null; None: no text is null
    unit     one of `UNITS`
    """
    texts = len(offsets) - 1
    valid = np.ones(texts, np.bool_) if valid is None else valid
    counts = np.zeros(texts, np.int64)
    part = data[offsets[0] : offsets[-1]]
    most = texts + int(MARK_BYTES[part].sum() if unit == SENTENCE else count_break_bytes(part))
    spans = np.empty((most, 3), np.int64)  # pages of memory that are never written take no memory
    tables = load_tables()[:3]
    if unit == LINE:
        count = find_lines(data, offsets, valid, spans, counts)
    elif unit == PARAGRAPH:
        count = find_paragraphs(data, offsets, valid, *tables, spans, counts)
    else:
        count = find_sentences(data, offsets, valid, *tables, spans, counts)
    return Units(spans[:count], counts)


def stripped(data: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Return the spans with contents that have no white space at their ends; a blank content becomes empty."""
    out = spans.copy()
    strip_spans(data, *load_tables()[:3], out)
    return out


def count_repeats(hashes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return for each unit how many earlier units of its text have the same hash, int64.

    hashes  uint64 of shape (units, 2)
    counts  int64, one per text: the number of its units
    """
    repeats = np.zeros(len(hashes), np.int64)
    slots = np.empty(4 * int(counts.max(initial=1)), np.int64)
    find_repeats(hashes, counts, slots, repeats)
    return repeats


@kernel
def find_repeats(hashes, counts, slots, repeats):
    """Write for each unit how many earlier units of its text have the same hash. A slot has the last unit so far with a
    hash."""
    first = 0
    for row in range(len(counts)):
        size = np.uint64(1)
        while size < at(2 * counts[row]):
            size <<= np.uint64(1)
        slots[: np.int64(size)] = -1
        for unit in range(first, first + counts[row]):
            low, high = hashes[unit, 0], hashes[unit, 1]
            slot = low & (size - np.uint64(1))
            while slots[slot] >= 0 and (hashes[slots[slot], 0] != low or hashes[slots[slot], 1] != high):
                slot = (slot + np.uint64(1)) & (size - np.uint64(1))
            if slots[slot] >= 0:
                repeats[unit] = repeats[slots[slot]] + 1
            slots[slot] = unit
        first += counts[row]


@kernel
def count_break_bytes(data):
    """Return an upper bound of the number of line ends: bytes that may be a line end, or the last byte of one."""
    count = 0
    for byte in data:
        count += int(10 <= byte <= 13) | int(28 <= byte <= 30) | int(byte == 0x85) | int((byte & 0xFE) == 0xA8)
    return count


@kernel
def break_width(data, i, end):
    """Bytes of the line end at `i`, CR LF as one; 0 for another character."""
    byte = byte_at(data, i)
    if byte < 0x20:
        if byte == 13:
            return 2 if i + 1 < end and byte_at(data, i + 1) == 10 else 1
        return int(10 <= byte <= 12 or 28 <= byte <= 30)
    if byte == 0xC2:
        return 2 if byte_at(data, i + 1) == 0x85 else 0
    if byte == 0xE2 and byte_at(data, i + 1) == 0x80 and (byte_at(data, i + 2) & 0xFE) == 0xA8:
        return 3
    return 0


@kernel
def line_stop(data, i, end):
    """Return where the line that contains `i` stops: the first byte of its line end, or `end`."""
    while i < end:
        while i + 8 <= end and not may_break(load64(data, i)):
            i += 8
        stop = min(i + 8, end)
        while i < stop:
            byte = data[at(i)]
            if (byte < 0x20 or byte == 0xC2 or byte == 0xE2) and break_width(data, i, end):
                return i
            i += 1
    return end


@kernel
def may_break(block):
    """Whether one of eight bytes may begin a line end: a control character, or a byte beyond ASCII."""
    return ((block - BLANKS) | block) & HIGH_BITS != np.uint64(0)


@kernel
def is_blank(data, start, end, pages, records, flags):
    """Whether the text has only white space."""
    i = start
    while i < end:
        width = space_width(data, i, pages, records, flags)
        if width == 0:
            return False
        i += width
    return True


@kernel
def find_lines(data, offsets, valid, spans, counts):
    """Write where each line is, and how many each text has; return how many all have. Nulls have none."""
    k = 0
    for row in range(len(valid)):
        i, end = offsets[row], offsets[row + 1]
        before = k
        while valid[row] and i < end:
            stop = line_stop(data, i, end)
            spans[at(k), 0] = spans[at(k), 1] = i
            spans[at(k), 2] = stop
            k += 1
            i = stop + break_width(data, stop, end) if stop < end else end
        counts[row] = k - before
    return k


@kernel
def find_paragraphs(data, offsets, valid, pages, records, flags, spans, counts):
    """Write the results of `find_lines` for paragraphs: runs of lines that are not blank."""
    k = 0
    for row in range(len(valid)):
        i, end = offsets[row], offsets[row + 1]
        before = k
        inside = False
        while valid[row] and i < end:
            stop = line_stop(data, i, end)
            if is_blank(data, i, stop, pages, records, flags):
                inside = False
            else:
                if not inside:
                    spans[at(k), 0] = offsets[row] if k == before else i
                    spans[at(k), 1] = i
                    k += 1
                    inside = True
                spans[at(k - 1), 2] = stop
            i = stop + break_width(data, stop, end) if stop < end else end
        counts[row] = k - before
    return k


@kernel
def find_sentences(data, offsets, valid, pages, records, flags, spans, counts):
    """Write the results of `find_lines` for sentences. A line end does not end a sentence."""
    k = 0
    for row in range(len(valid)):
        i, end = offsets[row], offsets[row + 1]
        before = k
        inside = False
        while valid[row] and i < end:
            width = space_width(data, i, pages, records, flags)
            if width:
                i += width
                continue
            word = i
            while i < end and space_width(data, i, pages, records, flags) == 0:
                i += utf8.lead_width(byte_at(data, i))
            if not inside:
                spans[at(k), 0] = offsets[row] if k == before else word
                spans[at(k), 1] = word
                k += 1
            spans[at(k - 1), 2] = i
            inside = not ends_in_sentence_mark(data, word, i)
        counts[row] = k - before
    return k


@kernel
def strip_spans(data, pages, records, flags, spans):
    """Move the ends of contents to characters that are not white space."""
    for k in range(len(spans)):
        start, end = spans[at(k), 1], spans[at(k), 2]
        while start < end:
            width = space_width(data, start, pages, records, flags)
            if width == 0:
                break
            start += width
        while end > start:
            last = utf8.start_of(data, start, end)
            if space_width(data, last, pages, records, flags) == 0:
                break
            end = last
        spans[at(k), 1], spans[at(k), 2] = start, end
