# SPDX-License-Identifier: Apache-2.0
"""Loops over the functions that the GPU's token kernels call, to test these functions on a CPU.

The CPU engine encodes with gigatoken. 20 MB of English take it 0.05 s of one core, these loops 0.9 s, tiktoken 2 s.
"""

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from curation.kernels.bpe import MISSING, find_token, merge_pairs
from curation.kernels.cache import kernel
from curation.kernels.expressions import GPT2, LLAMA3, O200K
from curation.tokens.flat_tables import FlatTables
from gpu_pipeline.functions.case_pretokens import case_word, o200k_starts
from gpu_pipeline.functions.pretokens import Runs, bits_between, cl100k_starts, class_bits, count_runs, gpt2_starts

DIGEST = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def loop(function: Callable[..., Any]) -> Any:
    """`kernel` for a function of this file, which the key of the cache leaves out."""
    compiled = kernel(function)
    compiled._cache.name += f"-{DIGEST}"
    return compiled


@loop
def mark_classes(data, blocks, pages, classes, planes):
    for k in range(planes.shape[1]):
        if 8 * k < data.size:
            planes[0, k], planes[1, k], planes[2, k], planes[3, k] = class_bits(data, blocks, 8 * k, pages, classes)


@loop
def mark_borders(offsets, borders):
    for offset in offsets:
        borders[offset >> 5] |= np.uint32(1) << np.uint32(offset & 31)


@loop
def find_runs(low, middle, high, leads, borders):
    size = borders.size
    starts, ranks, counts = np.empty(size, np.uint32), np.zeros(size + 1, np.int32), np.zeros(size + 1, np.int64)
    jumps = np.empty(size, np.int32)
    for c in range(size):
        starts[c], count = count_runs(low, middle, high, leads, borders, c)
        jumps[ranks[c]] = c
        ranks[c + 1] = ranks[c] + (starts[c] != 0)
        counts[c + 1] = counts[c] + count
    return Runs(starts, ranks, jumps, counts)


@loop
def find_cases(data, low, middle, high, leads, borders):
    """(Runs, the state in which the walk enters each word)."""
    size = borders.size
    starts, ranks, counts = np.empty(size, np.uint32), np.zeros(size + 1, np.int32), np.zeros(size + 1, np.int64)
    jumps, entries = np.empty(size, np.int32), np.zeros(size + 1, np.int32)
    for c in range(size):
        runs, function = case_word(low, middle, high, leads, borders, c, data, 32 * c - 16, data.size)
        starts[c], count = runs
        entries[c + 1] = int(function >> np.uint64(4 * entries[c]) & np.uint64(15))
        jumps[ranks[c]] = c
        ranks[c + 1] = ranks[c] + (starts[c] != 0)
        counts[c + 1] = counts[c] + count
    return Runs(starts, ranks, jumps, counts), entries


@loop
def mark_case_starts(data, low, middle, high, leads, borders, runs, entries, end, starts):
    for c in range(starts.size):
        found = o200k_starts(data, low, middle, high, leads, borders, 0, end, runs, entries[c], c)
        starts[c] = found & bits_between(32 * c, 0, end)


@loop
def mark_starts(data, low, middle, high, leads, borders, runs, pattern, end, starts):
    for c in range(starts.size):
        if pattern == GPT2:
            found = gpt2_starts(data, low, middle, high, leads, borders, 0, end, c)
        else:
            found = cl100k_starts(data, low, middle, high, leads, borders, 0, end, runs, pattern != LLAMA3, c)
        starts[c] = found & bits_between(32 * c, 0, end)


@loop
def encode_pieces(data, blocks, places, tokens, byte_ids, pairs, ids, counts):
    """Ids of the piece k at places[k]; the number of ids in counts[k]."""
    longest = 1
    for k in range(places.size - 1):
        longest = max(longest, places[k + 1] - places[k])
    scratch, found = np.empty(longest, np.int32), np.empty(longest, np.int32)
    end = 0
    for k in range(places.size - 1):
        number = find_token(data, blocks, places[k], places[k + 1], tokens)
        if number != MISSING:
            ids[end], counts[k] = number, 1
        else:
            size = places[k + 1] - places[k]
            counts[k] = merge_pairs(data, places[k], size, byte_ids, pairs, scratch, found, 0, 1)
            ids[end : end + counts[k]] = scratch[: counts[k]]
        end += counts[k]
    return end


def joined(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    encoded = [text.encode() for text in texts]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    return data, data[: data.size // 8 * 8].view(np.uint64), np.cumsum([0, *map(len, encoded)])


def places_of(texts: Sequence[str], pattern: int, pages: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Bytes at which pre-tokens start in the texts back to back, and the end of the last."""
    data, blocks, offsets = joined(texts)
    size = data.size // 32 + 1
    marked = np.zeros((4, 4 * size), np.uint8)
    mark_classes(data, blocks, pages, classes, marked)
    borders, starts = np.zeros(size, np.uint32), np.empty(size, np.uint32)
    mark_borders(offsets, borders)
    planes = *marked.view(np.uint32), borders
    if pattern == O200K:
        mark_case_starts(data, *planes, *find_cases(data, *planes), data.size, starts)
    else:
        mark_starts(data, *planes, find_runs(*planes), pattern, data.size, starts)
    return np.append(np.flatnonzero(np.unpackbits(starts.view(np.uint8), bitorder="little")), data.size)


def encoded(texts: Sequence[str], tables: FlatTables) -> list[list[int]]:
    """The ids of each text."""
    data, blocks, offsets = joined(texts)
    places = places_of(texts, tables.pattern, tables.pages, tables.classes)
    ids, counts = np.empty(data.size, np.int32), np.zeros(len(places) - 1, np.int64)
    encode_pieces(data, blocks, places, tables.tokens, tables.byte_ids, tables.pairs, ids, counts)
    ends = np.concatenate([[0], np.cumsum(counts)])[np.searchsorted(places, offsets)]
    return [ids[first:last].tolist() for first, last in pairwise(ends)]
