# SPDX-License-Identifier: Apache-2.0
"""Makes records of the windows of texts; `substring_dedup` finds equal windows by these records.

A window is `length` consecutive bytes of one text. Its anchor is the string of `length // 2` bytes in it that has the
least hash, the rightmost of ties. Equal windows have their anchors at the same distance from their starts. An anchor
*owns* the consecutive windows that have it as their anchor. At a length of 200 these are 54 on average, so one record
replaces 54 keys.

    place   int64 (low, high, anchor): the first and the last owned window, and the anchor; positions in `data`
    record  uint64 (part, whole, whole): a hash of the bytes that all owned windows share, and a 128-bit hash of all
            their bytes

Records with equal `whole` own equal windows. Only records with equal `part` can own a window in common. If a record
does not decide, it is divided into nodes of up to NODE windows, aligned to the anchor, and a node is divided into its
windows.
"""

import numpy as np

from curation.kernels.cache import kernel
from curation.kernels.hashing import at, load64, mix64, murmur3_x64_128, table_mask

BASE = np.uint64(0x9E3779B97F4A7C15)  # of the rolling hash; odd
CHUNK = 1 << 13  # hashes of strings kept in memory; they fit the first-level cache
SLOTS = 1 << 15  # records that `hash_anchors` remembers
NODE = 10
# Results for a record: none of its windows equals an earlier window; all of them do; or closer records must decide
KEPT, REPEATED, CLOSER = range(3)


def new_memory(slots: int = SLOTS) -> np.ndarray:
    """Return the empty memory of `hash_anchors`; with 0 slots it remembers nothing."""
    return np.zeros((slots, 2), np.uint64)


def new_anchors(data: np.ndarray, offsets: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of all anchors of the texts data[offsets[k]:offsets[k + 1]], and their places in ascending
    order."""
    windows = int(np.maximum(np.diff(offsets) - length + 1, 0).sum())
    places, values = np.empty((windows, 3), np.int64), np.empty(windows, np.uint64)
    hashes = np.empty(CHUNK + length, np.uint64)
    count = find_anchors(data, offsets, length, length // 2, hashes, places, values)
    return values[:count], places[:count]


def spans_of_mask(mask: np.ndarray, offsets: np.ndarray, length: int, join: int) -> np.ndarray:
    """Return the spans of each text that are at least `length` bytes long and have all bytes set in `mask` (uint8):
    int64 (text, start, stop), positions in `mask`. Spans with at most `join` bytes between them are joined."""
    spans = np.empty((len(mask) // length + 1, 3), np.int64)
    return spans[: find_spans(mask, offsets, join, spans)].copy()


@kernel
def roll(rolled, added, dropped, drop):
    """Return the rolling hash of a string, from the hash of the string that starts one byte earlier. `drop`: BASE to
    the power of the string's size."""
    return rolled * BASE + (np.uint64(added) - drop * np.uint64(dropped))


@kernel
def hash_node(data, low, high, anchor, node, length, records, nodes, number):
    """Write the record and the place of a node of the anchor that owns the windows `low` to `high`."""
    last = anchor - node * NODE  # window of the node, whether it is owned or not
    first = last - NODE + 1
    own_low, own_high = max(first, low), min(last, high)
    records[number, 0], _ = murmur3_x64_128(data, last, first + length)
    records[number, 1], records[number, 2] = murmur3_x64_128(data, own_low, own_high + length)
    nodes[number, 0], nodes[number, 1], nodes[number, 2] = own_low, own_high, anchor


@kernel
def hash_window(data, window, length, records, windows, number):
    """Write the 128-bit hash of one window, and its place. As an anchor's place has three numbers, this place is the
    window's position, three times."""
    records[number, 0], records[number, 1] = murmur3_x64_128(data, window, window + length)
    windows[number, 0], windows[number, 1], windows[number, 2] = window, window, window


@kernel
def find_anchors(data, offsets, length, size, hashes, places, values):
    """Write the places of all anchors and their hashes; return how many there are."""
    strings = length - size + 1  # of a window
    drop = np.uint64(1)
    for _ in range(size):
        drop *= BASE
    count = 0
    for row in range(len(offsets) - 1):
        first, end = offsets[row], offsets[row + 1]
        last = end - length
        if last < first:
            continue
        rolled = np.uint64(0)
        for i in range(first, first + size):
            rolled = rolled * BASE + np.uint64(data[at(i)])
        anchor, least = -1, np.uint64(0)
        start = filled = low = window = first  # hashes[i - start] is that of the string at i, below `filled`
        while window <= last:
            for k in range(filled - window):
                hashes[at(k)] = hashes[at(window - start + k)]
            start = window
            stop = min(start + CHUNK + strings - 1, end - size + 1)
            for i in range(filled, stop):
                hashes[at(i - start)] = mix64(rolled)
                if i + size < end:
                    rolled = roll(rolled, data[at(i + size)], data[at(i)], drop)
            filled = stop
            while window <= filled - strings:
                newest = window + strings - 1
                position, value = anchor, least
                if anchor < window:
                    value = hashes[at(window - start)]
                    for k in range(at(window - start), at(newest - start + 1)):
                        value = min(value, hashes[k])
                    position = newest
                    while hashes[at(position - start)] != value:
                        position -= 1
                elif hashes[at(newest - start)] <= least:
                    position, value = newest, hashes[at(newest - start)]
                if position != anchor:
                    if anchor >= 0:
                        places[count, 0], places[count, 1], places[count, 2] = low, window - 1, anchor
                        values[count] = least
                        count += 1
                    anchor, least, low = position, value, window
                window += 1
        places[count, 0], places[count, 1], places[count, 2] = low, last, anchor
        values[count] = least
        count += 1
    return count


@kernel
def hash_anchors(data, offsets, length, values, memory, places, records, spans):
    """Write the records of the anchors whose windows are not known to be repeated, and move their places to the front.
    Return the number of these anchors, and the number of spans of the other windows.

    Windows are known to be repeated in two cases. `memory` has their record; or the text is periodic: two anchors have
    equal hashes, and the bytes of the windows equal those before them at the distance of the anchors.
    """
    kept = num_spans = row = 0
    before, distance, equal_until = -1, 0, 0
    for number in range(len(values)):
        low, high, anchor = places[number, 0], places[number, 1], places[number, 2]
        end = high + length
        while low >= offsets[row + 1]:
            row += 1
            before, distance = -1, 0
        repeated = False
        shift = anchor - before
        if before >= 0 and values[number] == values[number - 1] and low - shift >= offsets[row]:
            if shift != distance or low > equal_until:
                distance, equal_until = shift, low
            while equal_until + 8 <= end and load64(data, equal_until) == load64(data, equal_until - shift):
                equal_until += 8
            while equal_until < end and data[at(equal_until)] == data[at(equal_until - shift)]:
                equal_until += 1
            repeated = equal_until >= end
        before = anchor
        if not repeated:
            whole, more = murmur3_x64_128(data, low, end)
            if len(memory):
                slot = whole & np.uint64(SLOTS - 1)
                repeated = memory[slot, 0] == whole and memory[slot, 1] == more
                memory[slot, 0], memory[slot, 1] = whole, more
            records[kept, 0], records[kept, 1], records[kept, 2] = values[number], whole, more
        if not repeated:
            places[kept, 0], places[kept, 1], places[kept, 2] = low, high, anchor
            kept += 1
        elif num_spans and spans[num_spans - 1, 1] >= low:
            spans[num_spans - 1, 1] = end
        else:
            spans[num_spans, 0], spans[num_spans, 1] = low, end
            num_spans += 1
    return kept, num_spans


@kernel
def hash_nodes(data, places, length, records, nodes):
    """Write records and places of the nodes that divide the windows of each anchor, in the order of the windows."""
    count = 0
    for number in range(len(places)):
        low, high, anchor = places[number, 0], places[number, 1], places[number, 2]
        for node in range((anchor - low) // NODE, (anchor - high) // NODE - 1, -1):
            hash_node(data, low, high, anchor, node, length, records, nodes, count)
            count += 1


@kernel
def hash_windows(data, places, length, records, windows):
    """Write the record and the place of each window of the nodes at `places`."""
    count = 0
    for number in range(len(places)):
        for window in range(places[number, 0], places[number, 1] + 1):
            hash_window(data, window, length, records, windows, count)
            count += 1


@kernel
def judge(records, is_whole, verdicts):
    """Write for each record whether it is KEPT, REPEATED or CLOSER. A slot of a table has the high half of a hash, and
    the number, from 1, of the first record with this hash. Other records in the slot mostly differ already in the high
    half."""
    mask = table_mask(len(records))
    slots = np.zeros(np.int64(mask) + 1, np.uint64)
    part_slots = np.zeros(np.int64(mask) + 1 if is_whole else 0, np.uint64)
    high, low = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)
    for row in range(len(records)):
        hashed = records[row, 1]
        slot = hashed & mask
        while slots[slot] != np.uint64(0):
            if (slots[slot] ^ hashed) & high == np.uint64(0):
                other = np.int64(slots[slot] & low) - 1
                equal = records[other, 0] == records[row, 0] and records[other, 1] == hashed
                if equal and records[other, -1] == records[row, -1]:
                    break
            slot = (slot + np.uint64(1)) & mask
        if slots[slot] != np.uint64(0):
            verdicts[row] = REPEATED
            continue
        slots[slot] = hashed & high | np.uint64(row + 1)
        if not is_whole:
            verdicts[row] = CLOSER
            continue
        hashed = mix64(records[row, 0])
        slot = hashed & mask
        while part_slots[slot] != np.uint64(0):
            if (part_slots[slot] ^ hashed) & high == np.uint64(0):
                other = np.int64(part_slots[slot] & low) - 1
                if records[other, 0] == records[row, 0]:
                    verdicts[row] = verdicts[other] = CLOSER
                    break
            slot = (slot + np.uint64(1)) & mask
        if part_slots[slot] == np.uint64(0):
            part_slots[slot] = hashed & high | np.uint64(row + 1)


@kernel
def fill_spans(mask, starts, stops):
    """Set the bytes of spans to 1."""
    for number in range(len(starts)):
        mask[at(starts[number]) : at(stops[number])] = 1


@kernel
def find_spans(mask, offsets, join, spans):
    """Write the spans of `spans_of_mask`; return how many there are."""
    count = 0
    for row in range(len(offsets) - 1):
        i, end = offsets[row], offsets[row + 1]
        before = count
        while i < end:
            while i + 8 <= end and load64(mask, i) == np.uint64(0):
                i += 8
            while i < end and mask[at(i)] == 0:
                i += 1
            if i >= end:
                break
            start = i
            while i < end and mask[at(i)] != 0:
                i += 1
            if count > before and start - spans[count - 1, 2] <= join:
                spans[count - 1, 2] = i
            else:
                spans[count, 0], spans[count, 1], spans[count, 2] = row, start, i
                count += 1
    return count
