# SPDX-License-Identifier: Apache-2.0
"""Repeated spans by a suffix array, for `compare_spans`. It runs in the environment of text-dedup and pydivsufsort.

    PYTHON peer_spans.py FILE LENGTH FOLDER

Writes a mask of the bytes of all texts that each rule cuts, FOLDER/RULE.npy: `first` all but the first copy, `all` all
copies, `across` all copies in the texts without borders between them, and `text_dedup` what text-dedup makes of these:
its Rust program is left out. Prints CPU seconds and, for each rule, the distinct windows of which no copy is left.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np


def covered(starts: np.ndarray, size: int, length: int) -> np.ndarray:
    """Whether each of `size` bytes is in a window of `length` at one of `starts`."""
    change = np.bincount(starts, minlength=size + 1) - np.bincount(starts + length, minlength=size + 1)
    return np.cumsum(change[:size]) > 0


def main(source: Path, length: int, folder: Path) -> None:
    from pydivsufsort import divsufsort, kasai

    texts = [json.loads(line)["text"] for line in source.read_bytes().splitlines()]
    data = np.frombuffer(bytearray(b"".join(text.encode() for text in texts)), np.uint8)  # pydivsufsort needs to write
    offsets = np.cumsum([0, *(len(text.encode()) for text in texts)])
    size, started = len(data), time.process_time()
    places = divsufsort(data)
    common = np.asarray(kasai(data, places))[: size - 1]  # bytes that a suffix shares with the next one
    groups = np.append(0, np.cumsum(common < length))
    is_window = np.arange(size) <= size - length
    inside = is_window.copy()
    for first, end in pairwise(offsets.tolist()):
        inside[max(end - length + 1, first) : end] = False
    masks, windows = {}, {}
    for name, allowed in (("within", inside), ("across", is_window)):
        own = allowed[places]
        at, group = places[own].astype(np.int64), groups[own]
        starts = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
        counts = np.diff(np.append(starts, len(at)))
        windows[name] = at, starts
        if name == "within":
            is_first = at == np.repeat(np.minimum.reduceat(at, starts), counts)
            masks["first"] = covered(at[~is_first], size, length)
        masks["all" if name == "within" else name] = covered(at[np.repeat(counts > 1, counts)], size, length)
    seconds = time.process_time() - started
    masks["text_dedup"] = text_dedup(masks["across"], offsets, length)
    facts = {"seconds": seconds, "lost": {}}
    at, starts = windows["within"]
    for name, mask in masks.items():
        np.save(folder / f"{name}.npy", mask)
        before = np.append(0, np.cumsum(mask))
        whole = before[at + length] == before[at]
        facts["lost"][name] = float(1 - np.maximum.reduceat(whole, starts).mean())
    print(json.dumps(facts))


def text_dedup(mask: np.ndarray, offsets: np.ndarray, length: int) -> np.ndarray:
    """What text-dedup's own code cuts of the texts if the repeated ranges are those of `mask`."""
    from text_dedup.suffix_array import restore_and_merge

    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.view(np.int8), [0]])))
    ranges = [slice(*pair) for pair in edges.reshape(-1, 2).tolist()]
    borders = [slice(*pair) for pair in pairwise(offsets.tolist())]
    cut = np.zeros(len(mask), bool)
    for border, slices in zip(borders, restore_and_merge(borders, ranges, length, "overlapping")[0], strict=True):
        for own in slices:
            cut[border.start + own.start : border.start + own.stop] = True
    return cut


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
