# SPDX-License-Identifier: Apache-2.0
"""The spans of documents that a Unicode normal form may change, and the documents with normalised spans.

`curation.kernels.normalization` says what a span is. `spans` (int64, one row per span) has the first byte of each span
and the byte after its last one. `firsts` has the number of spans before each document, and the number of all spans.
"""

import numpy as np

from cpu_fallback.rewriting import are_ascii, at, copy_bytes
from curation.kernels.cache import kernel
from curation.kernels.normalization import SEPARATOR, is_stable, span_start
from curation.kernels.utf8 import byte_at, decode, record_of


@kernel
def next_unstable(data, i, end, form_flag, pages, records, flags, combining):
    """Return the start of the first character of data[i:end] that is not stable, or `end`."""
    while i < end:
        if byte_at(data, i) < 0x80:
            i += 1
            while i + 32 <= end and are_ascii(data, i):
                i += 32
            continue
        code_point, width = decode(data, i)
        if not is_stable(record_of(pages, records, code_point), form_flag, flags, combining):
            return i
        i += width
    return end


@kernel
def run_end(data, i, end, form_flag, pages, records, flags, combining):
    """Return the end of the run of characters at `i` that are not stable, and whether one fails the quick check."""
    previous, fails = 0, False
    while i < end:
        code_point, width = decode(data, i)
        record = record_of(pages, records, code_point)
        if is_stable(record, form_flag, flags, combining):
            break
        order = int(combining[at(record)])
        fails |= int(flags[at(record)]) & form_flag != 0 or 0 < order < previous
        previous = order
        i += width
    return i, fails


@kernel
def find_spans(data, offsets, valid, form_flag, pages, records, flags, combining):
    """Return `spans` and `firsts`. Null rows have no spans."""
    spans, count = np.empty((64, 2), np.int64), 0
    firsts = np.zeros(offsets.size, np.int64)
    for row in range(offsets.size - 1):
        start = offsets[row]
        end = offsets[row + 1] if valid[row] else start
        i = next_unstable(data, start, end, form_flag, pages, records, flags, combining)
        while i < end:
            stop, fails = run_end(data, i, end, form_flag, pages, records, flags, combining)
            if fails:
                if count == len(spans):
                    grown = np.empty((2 * count, 2), np.int64)
                    grown[:count] = spans
                    spans = grown
                spans[count, 0], spans[count, 1] = span_start(data, i, start), stop
                count += 1
            i = next_unstable(data, stop, end, form_flag, pages, records, flags, combining)
        firsts[row + 1] = count
    return spans[:count], firsts


@kernel
def join_spans(data, spans, out):
    """Write the spans to `out`, each followed by SEPARATOR."""
    o = 0
    for k in range(len(spans)):
        o = copy_bytes(data, spans[k, 0], spans[k, 1], out, o)
        out[o] = SEPARATOR
        o += 1


@kernel
def put_spans(data, offsets, spans, firsts, normal, normal_offsets, changed, form_row, out):
    """Write the documents that have changed spans to `out`, one after the other, with the spans of `normal`. Write the
    number of each to `form_row`; return where each starts, and where the last one ends."""
    starts, count, o = np.zeros(offsets.size, np.int64), 0, 0
    for row in range(offsets.size - 1):
        if not changed[firsts[row] : firsts[row + 1]].any():
            continue
        i = offsets[row]
        for k in range(firsts[row], firsts[row + 1]):
            o = copy_bytes(data, i, spans[k, 0], out, o)
            o = copy_bytes(normal, normal_offsets[k], normal_offsets[k + 1] - 1, out, o)
            i = spans[k, 1]
        o = copy_bytes(data, i, offsets[row + 1], out, o)
        form_row[row] = count
        count += 1
        starts[count] = o
    return starts[: count + 1]
