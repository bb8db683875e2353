# SPDX-License-Identifier: Apache-2.0
"""Loops over documents as CUDA kernels, and the functions that lay out their memory.

The kernels share functions with the CPU's loops. A kernel has one thread per document unless its docstring says
otherwise. For n-grams, work is divided by bytes and words instead (`gpu_pipeline.functions.items`), so a long document
does not slow one thread. `order` (int64) lists the rows longest first: the 32 threads of a warp have similar work, and
long documents start first. The module imports neither cuDF nor CuPy, so machines without a GPU compile and link every
kernel. The layout functions take NumPy and CuPy arrays.
"""

import threading
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np

from curation.kernels.hashing import murmur3_x64_128
from curation.kernels.minhash import at, band_key, common_count, signature
from curation.kernels.ngrams import FREE, slot_of
from curation.kernels.utf8 import prefix_end
from gpu_pipeline.functions.items import (
    LAST_BIT,
    bits_below,
    hash_character,
    hash_ngram,
    hash_word,
    lead_bits,
    solid_bits,
)
from gpu_pipeline.kernels import long_repetition_kernels

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder
from numba.np.numpy_support import as_dtype  # isort: skip

THREADS = 128
MIN_BLOCKS = 128  # Numba warns below it; an idle block costs less than a microsecond
HASH_BYTES = 8
ITEM_BYTES = 8 + 1 + 8  # hash of a word or character, whether it starts a document, hash of the n-gram
ITEMS_PER_THREAD = 8  # an eighth of the instructions that prepare a thread
PIECE = 1024  # n-grams of a document that one block takes
NO_HIT = np.uint64(0xFFFFFFFFFFFFFFFF)  # its low half is FREE


@cuda.jit(cache=True)
def hash_rows(data, offsets, valid, order, max_characters, out):
    """One thread per document of `order`: writes the hash of its text."""
    k = cuda.grid(1)
    if k < order.size:
        row = order[k]
        start = offsets[row]
        end = prefix_end(data, start, offsets[row + 1], max_characters) if valid[row] else start
        out[row, 0], out[row, 1] = murmur3_x64_128(data, start, end)


@cuda.jit(cache=True)
def mark_bytes(data, blocks, origin, by_character, pages, records, flags, solid):
    """One thread per eight bytes: sets a bit for each byte of an item. If items are characters, only their first byte
    has a bit."""
    k = cuda.grid(1)
    while k < solid.size:
        i = origin + 8 * k
        if i >= data.size:
            solid[at(k)] = 0
        elif by_character:
            solid[at(k)] = lead_bits(data, blocks, i)
        else:
            solid[at(k)] = solid_bits(data, blocks, i, pages, records, flags)
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def mark_rows(offsets, origin, stops):
    """One thread per document: sets a bit for its first byte."""
    row = cuda.grid(1)
    if row < offsets.size and (row == 0 or offsets[row] != offsets[row - 1]):
        i = offsets[row] - origin
        cuda.atomic.or_(stops, i >> 5, np.uint32(1 << (i & 31)))


@cuda.jit(cache=True)
def mark_items(solid, origin, start, end, by_character, stops, starts, counts):
    """One thread per 32 bytes: sets a bit for each first byte of an item in start:end, and counts these bits. `stops`
    has a bit for the first byte of each document, and gets a bit for each byte of white space."""
    c = cuda.grid(1)
    while c < solid.size:
        i = origin + 32 * c
        here = solid[at(c)]
        if i < start:
            here &= ~np.uint32(bits_below(start - i))
        if end < i + 32:
            here &= bits_below(max(end - i, 0))
        firsts = here
        if not by_character:
            before = solid[at(c - 1)] >> LAST_BIT if c > 0 else np.uint32(0)
            firsts = np.uint32(here & (~np.uint32(here << np.uint32(1) | before) | stops[at(c)]))
        stops[at(c)] |= ~here
        starts[at(c)] = firsts
        counts[at(c)] = cuda.popc(np.uint32(firsts))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def rank_rows(offsets, origin, starts, ranks, items):
    """One thread per document: writes the number of items before the document."""
    row = cuda.grid(1)
    if row < offsets.size:
        i = offsets[row] - origin
        items[row] = ranks[i >> 5] + cuda.popc(np.uint32(starts[i >> 5] & bits_below(i & 31)))


@cuda.jit(cache=True)
def place_items(origin, block, end_block, starts, ranks, base, positions):
    """One thread per eight bytes: positions[k] becomes the first byte of item `base` + k."""
    b = block + cuda.grid(1)
    while b < end_block:
        i = 8 * b - origin
        word = starts[at(i >> 5)]
        bits = np.uint32(word >> np.uint32(i & 31)) & np.uint32(0xFF)
        k = ranks[at(i >> 5)] + cuda.popc(np.uint32(word & bits_below(i & 31))) - base
        while bits:
            if at(k) < at(positions.size):  # the first and the last block may hold items of other documents
                positions[at(k)] = 8 * b + cuda.popc(np.uint32(~bits & np.uint32(bits - np.uint32(1))))
            bits = np.uint32(bits & np.uint32(bits - np.uint32(1)))
            k += 1
        b += cuda.gridsize(1)


@cuda.jit(device=True)
def end_of_item(stops, origin, i, most_bytes):
    """Return the next stop after byte `i`. If it is more than `most_bytes` after `i`, any position above i + most_bytes
    may be returned."""
    j = i + 1 - origin
    bits = np.uint32(stops[at(j >> 5)] >> np.uint32(j & 31))
    while bits == np.uint32(0):
        j = ((j >> 5) + 1) << 5
        if origin + j - i > most_bytes:
            return origin + j
        bits = stops[at(j >> 5)]
    return origin + j + cuda.popc(np.uint32(~bits & np.uint32(bits - np.uint32(1))))


@cuda.jit(cache=True)
def hash_items(data, blocks, origin, stops, by_character, items):
    """One thread per item: replaces its position in `items` by its hash. A word ends at the next bit of `stops`, which
    has a bit at the end of the text."""
    k = cuda.grid(1)
    while k < items.size:
        i = np.int64(items[at(k)])
        if by_character:
            items[at(k)] = hash_character(data, i)
        else:
            items[at(k)] = hash_word(data, blocks, i, end_of_item(stops, origin, i, data.size))
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def hash_ngrams(hashes, first, ngram, out):
    """One thread per item: writes the hash of the n-gram that starts at the item, if there is one."""
    k = cuda.grid(1)
    while k < out.size:
        hashed, exists = hash_ngram(hashes, first, k, ngram)
        if exists:
            out[at(k)] = hashed
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def sign_pieces(hashes, starts, counts, pieces, rows, a, b, out):
    """One block per piece of a document, one thread per permutation: writes the signature. All threads read the same
    hash at once. Document k has the pieces from pieces[k] on; `rows` has the document of each piece."""
    piece = cuda.blockIdx.x
    low = cuda.local.array(1, numba.uint32)
    while piece < rows.size:
        row = rows[piece]
        skipped = (piece - pieces[row]) * PIECE
        first, count = starts[row] + skipped, min(counts[row] - skipped, PIECE)
        k = cuda.threadIdx.x
        while k < a.size:
            signature(hashes[first : first + count], count, a[k : k + 1], b[k : k + 1], low)
            cuda.atomic.min(out, (row, k), low[0])
            k += cuda.blockDim.x
        piece += cuda.gridDim.x


@cuda.jit(cache=True)
def key_rows(signed, rows, out):
    """One thread per document and band: writes the band's key."""
    k = cuda.grid(1)
    if k < signed.shape[0] * out.shape[0]:
        row, band = k // out.shape[0], k % out.shape[0]
        out[band, row] = band_key(signed[row], band * rows, rows)


@cuda.jit(cache=True)
def find_pieces(hashes, starts, counts, pieces, rows, keys, owners, hits, first_hit):
    """One block per piece of a document: counts its n-grams that are in the table. Neighbouring threads look up
    neighbouring n-grams. `first_hit` gets the smallest position with its owner, packed into 64 bits."""
    piece = cuda.blockIdx.x
    while piece < rows.size:
        row = rows[piece]
        k = (piece - pieces[row]) * PIECE + cuda.threadIdx.x
        end = min((piece - pieces[row] + 1) * PIECE, counts[row])
        while k < end:
            slot = slot_of(keys, owners, np.uint64(keys.size - 1), hashes[starts[row] + k])
            if owners[slot] != FREE:
                cuda.atomic.add(hits, row, 1)
                cuda.atomic.min(first_hit, row, np.uint64(k) << np.uint64(32) | np.uint64(owners[slot]))
            k += cuda.blockDim.x
        piece += cuda.gridDim.x


@cuda.jit(cache=True)
def count_common(hashes, offsets, left, right, out):
    """One thread per pair: counts the hashes that its two documents share."""
    pair = cuda.grid(1)
    if pair < out.size:
        i, j = left[pair], right[pair]
        out[pair] = common_count(hashes, offsets[i], offsets[i + 1], offsets[j], offsets[j + 1])


@cuda.jit(cache=True)
def join_rows(left, right, label, changed):
    """One thread per edge: if its two components differ, the larger label points to the smaller one."""
    k = cuda.grid(1)
    if k < left.size:
        i, j = label[left[k]], label[right[k]]
        if i != j:
            cuda.atomic.min(label, max(i, j), min(i, j))
            changed[0] = 1


def _signatures():
    i32, i64, u8, u16, u32, u64, mask = (
        kind[::1]
        for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64, types.bool_)
    )
    number, flag = types.int64, types.bool_
    documents = u8, i64, mask, i64
    return {
        hash_rows: (*documents, number, types.uint64[:, ::1]),
        mark_bytes: (u8, u64, number, flag, u16, u16, u32, u8),
        mark_rows: (i64, number, u32),
        mark_items: (u32, *[number] * 3, flag, u32, u32, i64),
        rank_rows: (i64, number, u32, i64, i64),
        place_items: (*[number] * 3, u32, i64, number, u64),
        hash_items: (u8, u64, number, u32, flag, u64),
        hash_ngrams: (u64, mask, number, u64),
        sign_pieces: (u64, *[i64] * 4, u32, u32, types.uint32[:, ::1]),
        key_rows: (types.uint32[:, ::1], number, types.uint64[:, ::1]),
        find_pieces: (u64, *[i64] * 4, u64, i32, i64, u64),
        count_common: (u64, i64, i64, i64, i64),
        join_rows: (i64, i64, i64, i32),
    }  # fmt: skip


# Types that the launches pass; a test compiles with them, without a GPU.
SIGNATURES = _signatures()


def _viewed(argument):
    """Return a CuPy array as a Numba array, without synchronisation: the work of a thread is in order on its stream."""
    return cuda.as_cuda_array(argument, sync=False) if hasattr(argument, "__cuda_array_interface__") else argument


@cache
def stream_of_thread():
    """Return CUDA's per-thread default stream: one object that means a different stream in each thread."""
    return cuda.per_thread_default_stream()


NUMBERS = int, np.int64  # Numba takes both as int64, and Python's bool as a type of its own
_loading = threading.Lock()
_loaded: set[Any] = set()  # kernels of this process, each with the types of its arguments


def _typed(kernel, arguments) -> tuple:
    """Return a kernel with the types of the arguments of a launch: Numba compiles and loads it once for each."""
    kinds = [
        isinstance(each, bool) if isinstance(each, NUMBERS) else (each.dtype, each.ndim, each.flags.c_contiguous)
        for each in arguments
    ]
    return kernel, *kinds


def _typed_by(kernel, signature) -> tuple:
    """Return what `_typed` returns for arguments of a signature."""
    kinds = [
        (as_dtype(each.dtype), each.ndim, each.layout == "C") if isinstance(each, types.Array) else each == types.bool_
        for each in signature
    ]
    return kernel, *kinds


def load(kernel, signature) -> None:
    """Compile a kernel for a signature, or get it from Numba's cache, and load it on the device of this process."""
    with _loading:
        if (typed := _typed_by(kernel, signature)) not in _loaded:
            kernel.compile(signature).bind()
            _loaded.add(typed)


def _launch(kernel, blocks: int, threads: int, arguments) -> None:
    """Launch a kernel. If it is not loaded for these types of arguments, hold a lock: Numba loads it at its first
    launch, and two threads that load the same kernel at once damage the heap."""
    run = kernel[blocks, threads, stream_of_thread()]
    if (typed := _typed(kernel, arguments)) in _loaded:
        return run(*map(_viewed, arguments))
    with _loading:
        run(*map(_viewed, arguments))
    _loaded.add(typed)


def launch(kernel, rows: int, *arguments) -> None:
    """Run a kernel with one thread per row."""
    _launch(kernel, max(-(-rows // THREADS), MIN_BLOCKS), THREADS, arguments)


def launch_shared(kernel, items: int, *arguments) -> None:
    """Run a kernel whose threads take several items each, in steps of the number of threads."""
    launch(kernel, -(-items // ITEMS_PER_THREAD), *arguments)


def launch_blocks(kernel, rows: int, *arguments) -> None:
    """Run a kernel with one block per row."""
    _launch(kernel, min(max(rows, MIN_BLOCKS), 1 << 16), THREADS, arguments)


def launch_teams(kernel, rows: int, threads: int, *arguments) -> None:
    """Run a kernel with one block of `threads` threads per row; the threads of a block wait for each other."""
    _launch(kernel, min(max(rows, MIN_BLOCKS), 1 << 16), threads, arguments)


def longest_first(lengths):
    """Return the positions of the documents by decreasing length (int64)."""
    return (-lengths).argsort()


def prefix_sums(values, dtype=None):
    """Return for each value the sum of the values up to it, itself included. A library does this work; a test counts
    these calls."""
    return values.cumsum(dtype=dtype)


def starts_of(sizes):
    """Return where each item starts if items of these sizes are back to back, and where the last one ends: one more
    than `sizes`, of the same type."""
    starts = zeros(sizes, sizes.dtype, sizes.size + 1)
    starts[1:] = prefix_sums(sizes)
    return starts


def table_slots(words):
    """Return `table_mask(words) + 1` for an array: the smallest power of two that is at least twice `words`, and at
    least 4."""
    slots = np.maximum(words * 2, 4) - 1
    for shift in (1, 2, 4, 8, 16, 32):
        slots |= slots >> shift
    return slots + 1


def empty(like, dtype, *shape: int):
    """Return an array on the device of `like`, not initialised. The shape is passed as a tuple: for the shape 0, CuPy
    returns an array as long as `like`, without memory."""
    return np.empty_like(like, dtype, shape=(*shape,))


def zeros(like, dtype, *shape: int):
    """Return an array as `empty` does, filled with zeros."""
    return np.zeros_like(like, dtype, shape=(*shape,))


def entries_of(n: int, functions):
    """Return where a walk enters each chunk (int32), if it enters the first chunk at 0. `functions` has one function
    per chunk.

    n           number of places where it can enter a chunk, at most 16
    functions   uint64: where it leaves each chunk, four bits for each of these places
    """
    levels = [functions]
    while levels[-1].size > 1:
        levels.append(empty(functions, np.uint64, -(-levels[-1].size // long_repetition_kernels.FAN)))
        launch(long_repetition_kernels.compose_functions, levels[-1].size, n, *levels[-2:])
    entries = empty(functions, np.int32, 1)
    entries[:] = 0
    for level in levels[-2::-1]:
        entries_of_each = empty(functions, np.int32, level.size)
        launch(long_repetition_kernels.enter_functions, entries.size, level, entries, entries_of_each)
        entries = entries_of_each
    return entries


class TextItems(NamedTuple):
    """The words or characters of a column, as bit masks over its bytes (`gpu_pipeline.functions.items`)."""

    blocks: Any  # the text as uint64
    origin: int  # the byte of the first bits
    starts: Any  # of items
    stops: Any  # white space, or the start of a document
    ranks: Any  # int64: items before each 32 bytes
    row_starts: Any  # int64, rows + 1: items before each document


def find_borders(offsets, multiple: int = 1):
    """Return the byte at which the mask begins, and the mask: a bit for the first byte of each document, and for the
    end of the last one. The mask's number of words is a multiple of `multiple`."""
    origin, size = int(offsets[0]) // 32 * 32, int(offsets[-1]) // 32 - int(offsets[0]) // 32 + 1
    size = -(-size // multiple) * multiple
    borders = zeros(offsets, np.uint32, size)
    launch(mark_rows, offsets.size, offsets, origin, borders)
    return origin, borders


def find_items(data, blocks, offsets, by_character: bool, properties) -> TextItems:
    """Find the items of all documents, null rows included. 32 bytes of text take 36 bytes of memory; the result keeps
    16 of these.

    properties   pages, records and flags of `tables.UnicodeTables`
    """
    origin, stops = find_borders(offsets)
    solid = empty(offsets, np.uint32, stops.size)
    launch_shared(mark_bytes, 4 * stops.size, data, blocks, origin, by_character, *properties, solid.view(np.uint8))
    return number_items(blocks, offsets, origin, stops, solid, by_character)


def number_items(blocks, offsets, origin: int, stops, solid, by_character: bool) -> TextItems:
    """Return the items of the mask `solid`, which has the bytes of words, or the first bytes of characters. `stops` has
    a bit for each border."""
    start, end, size = int(offsets[0]), int(offsets[-1]), stops.size
    starts = empty(offsets, np.uint32, size)
    counts, row_starts = (empty(offsets, np.int64, items) for items in (size, offsets.size))
    launch_shared(mark_items, size, solid, origin, start, end, by_character, stops, starts, counts)
    ranks = starts_of(counts)
    launch(rank_rows, offsets.size, offsets, origin, starts, ranks, row_starts)
    return TextItems(blocks, origin, starts, stops, ranks, row_starts)


def hash_batch(
    data, items: TextItems, first_byte: int, end_byte: int, first_item: int, end_item: int, starts, ngram: int,
    by_character: bool,
):  # fmt: skip
    """Return the hash of the n-gram at each item of a batch of documents; unspecified where no n-gram starts. Document
    k has the items from starts[k]."""
    size, block, end_block = end_item - first_item, first_byte // 8, -(-end_byte // 8)
    hashes, out = (empty(items.ranks, np.uint64, size) for _ in range(2))
    is_first = zeros(items.ranks, bool, size + 1)
    is_first[starts] = True
    launch_shared(
        place_items, end_block - block, items.origin, block, end_block, items.starts, items.ranks, first_item, hashes
    )
    launch_shared(hash_items, size, data, items.blocks, items.origin, items.stops, by_character, hashes)
    launch_shared(hash_ngrams, size, hashes, is_first, ngram, out)
    return out


def inserted(
    hashes: np.ndarray, offsets: np.ndarray, rows: np.ndarray, row_hashes: np.ndarray, row_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Insert the hashes of `rows`, which had none; return the hashes and offsets of all documents."""
    sizes = np.diff(offsets)
    sizes[rows] = np.diff(row_offsets)
    new = [*np.split(row_hashes, row_offsets[1:-1]), hashes[:0]]
    pairs = zip(np.split(hashes, offsets[rows]), new, strict=True)
    return np.concatenate([each for pair in pairs for each in pair]), starts_of(sizes)


def batch_end(starts: np.ndarray, first: int, limit: int) -> int:
    """Return the end of the batch that begins at row `first`: it has at most `limit` bytes, or is one larger row."""
    return max(int(np.searchsorted(starts, starts[first] + limit, side="right")) - 1, first + 1)
