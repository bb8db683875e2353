# SPDX-License-Identifier: Apache-2.0
"""Records of windows in slow plain Python, and the verdicts about them (`curation.kernels.spans`)."""

from collections.abc import Sequence
from itertools import groupby, pairwise

from tests.oracle.hashing import MASK, murmur3_x64_128

BASE, SLOTS, NODE = 0x9E3779B97F4A7C15, 1 << 15, 10
KEPT, REPEATED, CLOSER = range(3)

Place = tuple[int, int, int]
Record = tuple[int, ...]


def string_hash(string: bytes) -> int:
    value = 0
    for byte in string:
        value = (value * BASE + byte) & MASK
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def anchors(text: bytes, length: int) -> list[tuple[Place, int]]:
    """(Place, hash of the string) of each anchor of a text."""
    size = length // 2
    hashes = [string_hash(text[i : i + size]) for i in range(len(text) - size + 1)]
    found = []
    for window in range(len(text) - length + 1):
        strings = range(window, window + length - size + 1)
        found.append((window, min(strings, key=lambda i: (hashes[i], -i))))
    groups = [(anchor, [window for window, _ in group]) for anchor, group in groupby(found, key=lambda each: each[1])]
    return [((windows[0], windows[-1], anchor), hashes[anchor]) for anchor, windows in groups]


def anchor_records(
    data: bytes, offsets: Sequence[int], length: int, memory: dict[int, tuple[int, int]]
) -> tuple[list[Record], list[Place], list[list[int]]]:
    """`memory` has the last hash of each slot."""
    records, places, spans = [], [], []
    for start, stop in pairwise(offsets):
        last = None
        for (low, high, anchor), value in anchors(data[start:stop], length):
            low, high, anchor = low + start, high + start, anchor + start
            end, shift = high + length, anchor - last[0] if last else 0
            repeated = last is not None and last[1] == value and low - shift >= start
            repeated = repeated and data[low:end] == data[low - shift : end - shift]
            last = anchor, value
            if not repeated:
                whole = murmur3_x64_128(data[low:end])
                repeated = memory.get(whole[0] % SLOTS) == whole
                memory[whole[0] % SLOTS] = whole
            if not repeated:
                records.append((value, *whole))
                places.append((low, high, anchor))
            elif spans and low <= spans[-1][1]:
                spans[-1][1] = end
            else:
                spans.append([low, end])
    return records, places, spans


def node_records(data: bytes, places: Sequence[Place], length: int) -> tuple[list[Record], list[Place]]:
    records, nodes = [], []
    for low, high, anchor in places:
        for node, group in groupby(range(low, high + 1), key=lambda window: (anchor - window) // NODE):
            windows = [*group]
            shared = data[anchor - NODE * node : anchor - NODE * node - NODE + 1 + length]
            records.append((murmur3_x64_128(shared)[0], *murmur3_x64_128(data[windows[0] : windows[-1] + length])))
            nodes.append((windows[0], windows[-1], anchor))
    return records, nodes


def window_records(data: bytes, places: Sequence[Place], length: int) -> tuple[list[Record], list[Place]]:
    windows = [window for low, high, _ in places for window in range(low, high + 1)]
    return [murmur3_x64_128(data[k : k + length]) for k in windows], [(k, k, k) for k in windows]


def judge_records(records: Sequence[Record], is_whole: bool) -> list[int]:
    verdicts, seen = [], set()
    kinds: dict[int, set[Record]] = {}
    for record in records:
        kinds.setdefault(record[0], set()).add(record)
    for record in records:
        closer = not is_whole or len(kinds[record[0]]) > 1
        verdicts.append(REPEATED if record in seen else CLOSER if closer else KEPT)
        seen.add(record)
    return verdicts
