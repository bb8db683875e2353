# SPDX-License-Identifier: Apache-2.0
"""Loops that copy units of texts (`curation.kernels.units`), and texts without some of their units."""

from curation.kernels.cache import kernel
from curation.kernels.hashing import at, load64, store64

SLACK = 8  # bytes after the output that a copy may overwrite


@kernel
def copy_contents(data, spans, out, offsets):
    """Write the contents of units one after the other, and where each content ends."""
    o = 0
    for k in range(len(spans)):
        o = copy_span(data, spans[k, 1], spans[k, 2], out, o)
        offsets[k + 1] = o


@kernel
def copy_span(data, start, end, out, o):
    """Write data[start:end], eight bytes at a time; return the position after it. `out` has room for seven more."""
    stop = o + end - start
    while o < stop and start + 8 <= len(data):
        store64(out, o, load64(data, start))
        start += 8
        o += 8
    while o < stop:
        out[at(o)] = data[at(start)]
        start += 1
        o += 1
    return stop


@kernel
def copy_kept(data, offsets, valid, spans, contents, ends, counts, kept, out, out_ends, edited):
    """Write the texts without the units that are not kept. Kept units have their content in `contents`, with what
    `spans` has before and after it."""
    o, k = 0, 0
    for row in range(len(valid)):
        done = offsets[row]  # bytes before this position are already written or left out
        for unit in range(k, k + counts[row]):
            begin, stop = spans[unit, 1], spans[unit, 2]
            if not kept[unit]:
                begin, stop = spans[unit, 0], ends[unit]
            first, last = contents[unit, 1], contents[unit, 2]
            if not kept[unit]:
                first = last = stop
            if begin != first or stop != last:
                edited[row] = True
                o = copy_span(data, done, begin, out, o)
                o = copy_span(data, first, last, out, o)
                done = stop
        k += counts[row]
        if valid[row]:
            o = copy_span(data, done, offsets[row + 1], out, o)
        out_ends[row + 1] = o
