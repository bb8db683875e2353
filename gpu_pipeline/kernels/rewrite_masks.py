# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels that write masks of what each byte of a batch becomes when the text is rewritten.

`gpu_pipeline.functions.flat_rewrite` says what the bits of a character are. A mask has one bit per byte of the text.
Each word of a mask (uint32) covers 32 bytes; the first word begins at byte `origin`. `planes` (uint32, (PLANES, words))
has all masks. Eight words are a *chunk*: 256 bytes of text. Sums are kept per chunk. A mask has a multiple of 32 words:
each row of `planes` begins at a sector of memory, and each warp has work for all of its lanes. A *stop* is a bit of one
mask, or a border of documents. `stop_before` and `stop_from` find the stop before or after a byte in constant time. So
a long run of white space, tag or document does not slow one thread.
"""

from typing import Any, NamedTuple

import numpy as np

from curation.kernels import rewrite
from gpu_pipeline.functions.flat_rewrite import (
    ascii_classes,
    bounding_bits,
    ignored_ascii,
    is_cased,
    step_bits,
    tag_bits,
)
from gpu_pipeline.functions.items import at, block_at
from gpu_pipeline.kernels import core
from gpu_pipeline.kernels.document_kernels import DocumentBytes
from gpu_pipeline.kernels.measure_kernels import lowest_bit

from numba import cuda, types  # isort: skip - after curation.kernels, which sets the cache folder

SOLIDS, SPACES, FEEDS, GROWN, CHANGED, SIGMAS, OPENS, CLOSES, EVENTS = range(9)
PLANES = 9
KEPT = OPENS  # the kept bytes, written after the tags are cleared
TEXT_PLANES = 6  # the masks of characters, from SOLIDS on
CHUNK = 8  # words
LANES = 32  # threads of a warp; with 32 of them a thread has one word, else a chunk
WARP_WORDS = 32  # a mask has a multiple of them
ALL_BITS = 0xFFFFFFFF


@cuda.jit(device=True)
def word_of(planes, plane, c):
    """The 32 bits of a plane for bytes 32 * `c` and up."""
    return np.int64(planes[plane, at(c)])


@cuda.jit(device=True)
def below(bit):
    """The bits 0 to `bit` - 1 (`bit` from 0 to 32)."""
    return (np.int64(1) << bit) - 1


@cuda.jit(device=True)
def lowest(bits):
    """Return the position of the lowest set bit as int64, the type of positions; see `measure_kernels.lowest_bit`."""
    return np.int64(lowest_bit(np.uint32(bits)))


@cuda.jit(device=True)
def highest(bits):
    """The highest set bit; -1 for none."""
    return np.int64(31 - cuda.clz(np.uint32(bits)))


@cuda.jit(device=True)
def count_of(bits):
    """Return the number of set bits as int64, the type of positions."""
    return np.int64(cuda.popc(np.uint32(bits)))


@cuda.jit(device=True)
def chunk_sum(value):
    """The sum over the threads of a chunk, below 2^31."""
    total = np.int32(value)
    lanes = min(LANES, CHUNK) >> 1
    while lanes:
        total = np.int32(total + cuda.shfl_xor_sync(ALL_BITS, total, lanes))
        lanes >>= 1
    return np.int64(total)


@cuda.jit(device=True)
def chunk_bits(flag, lane):
    """Return a bit for each thread of the chunk, set if the thread's `flag` is."""
    return np.int64(cuda.ballot_sync(ALL_BITS, flag)) >> (lane & -CHUNK) & below(CHUNK)


@cuda.jit(device=True)
def stop_before(planes, borders, plane, masks, ranks, chunks, i):
    """Return the last stop before byte `i` (from `origin`); -1 if there is none."""
    c = i >> 5
    bits = (word_of(planes, plane, c) | np.int64(borders[at(c)])) & below(i & 31)
    if bits == 0:
        chunk = c >> 3
        filled = np.int64(masks[at(chunk)]) & below(c & 7)
        if filled == 0:
            before = np.int64(ranks[at(chunk)])
            if before == 0:
                return np.int64(-1)
            chunk = np.int64(chunks[at(before - 1)])
            filled = np.int64(masks[at(chunk)])
        c = CHUNK * chunk + highest(filled)
        bits = word_of(planes, plane, c) | np.int64(borders[at(c)])
    return 32 * c + highest(bits)


@cuda.jit(device=True)
def stop_from(planes, borders, plane, masks, ranks, chunks, i):
    """Return the first stop at byte `i` or after. The end of the text is a stop."""
    c = i >> 5
    bits = (word_of(planes, plane, c) | np.int64(borders[at(c)])) & (ALL_BITS ^ below(i & 31))
    if bits == 0:
        chunk = c >> 3
        filled = np.int64(masks[at(chunk)]) & ~below((c & 7) + 1)
        if filled == 0:
            chunk = np.int64(chunks[at(ranks[at(chunk + 1)])])
            filled = np.int64(masks[at(chunk)])
        c = CHUNK * chunk + lowest(filled)
        bits = word_of(planes, plane, c) | np.int64(borders[at(c)])
    return 32 * c + lowest(bits)


@cuda.jit(device=True)
def bits_before(planes, plane, counts, i):
    """Return the number of bits of a mask before byte `i`; `counts` has the number before each chunk."""
    c = i >> 5
    count = counts[at(c >> 3)] + count_of(word_of(planes, plane, c) & below(i & 31))
    word = c & -CHUNK
    while word < c:
        count += count_of(word_of(planes, plane, word))
        word += 1
    return count


@cuda.jit(device=True)
def grown_bits(planes, lowercase, c):
    """Return a mask of the bytes of word `c` whose character grows in lower case; 0 without `lowercase`."""
    return word_of(planes, GROWN, c) if lowercase else np.int64(0)


@cuda.jit(device=True)
def has_border(borders, i):
    """Whether a document starts at byte `i` of the batch."""
    return np.int64(borders[at(i >> 5)]) >> (i & 31) & 1 != 0


# Masks


@cuda.jit(cache=True)
def mark_steps(
    data, blocks, start, end, origin, drop, markup, whitespace, lowercase, fold, dropped_low, dropped_high, zeros_low,
    zeros_high, blanks_low, blanks_high, pages, records, flags, lower, bytes_of_planes,
):  # fmt: skip
    """One thread per eight bytes: writes eight bits of each mask that is read from the text, if the steps need the
    mask. The arguments from `dropped_low` on are the results of `ascii_classes`."""
    k = cuda.grid(1)
    classes = dropped_low, dropped_high, zeros_low, zeros_high, blanks_low, blanks_high
    while k < bytes_of_planes.shape[1]:
        i = origin + 8 * k
        solids = spaces = feeds = grown = changed = sigmas = opens = closes = 0
        if i < end:
            block = np.uint64(block_at(data, blocks, i))
            solids, spaces, feeds, grown, changed, sigmas = step_bits(
                data,
                blocks,
                block,
                start,
                end,
                i,
                drop,
                whitespace,
                lowercase,
                fold,
                classes,
                pages,
                records,
                flags,
                lower,
            )
            if markup != rewrite.KEEP:
                opens, closes = tag_bits(block, start, end, i, markup)
        bytes_of_planes[SOLIDS, at(k)] = solids
        bytes_of_planes[CHANGED, at(k)] = changed
        if whitespace != rewrite.KEEP:
            bytes_of_planes[SPACES, at(k)] = spaces
        if whitespace == rewrite.LINES:
            bytes_of_planes[FEEDS, at(k)] = feeds
        if lowercase:
            bytes_of_planes[GROWN, at(k)] = grown
            bytes_of_planes[SIGMAS, at(k)] = sigmas
        if markup != rewrite.KEEP:
            bytes_of_planes[OPENS, at(k)] = opens
            bytes_of_planes[CLOSES, at(k)] = closes
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def find_stops(planes, borders, plane, counted, masks, counts):
    """One thread per chunk: sets a bit for each word that has a stop of mask `plane`, and counts the bits of mask
    `counted`."""
    k, lane, share = np.int64(cuda.grid(1)), np.int64(cuda.threadIdx.x % LANES), CHUNK // min(LANES, CHUNK)
    while k * share < borders.size:  # all lanes
        packed = np.int64(0)  # the number, and the mask from bit 16
        for n in range(share):
            c = k * share + n
            bits = word_of(planes, plane, c)
            packed += count_of(bits if counted == plane else word_of(planes, counted, c))
            packed |= np.int64(bits | np.int64(borders[at(c)]) != 0) << (c & 7) + 16
        packed = chunk_sum(packed)
        if lane & 7 == 0:
            masks[at(k * share >> 3)] = packed >> 16
            counts[at(k * share >> 3)] = packed & 0xFFFF
        k += cuda.gridsize(1)


@cuda.jit(device=True)
def opens_since_stop(planes, borders, masks, ranks, chunks, counts, c):
    """Whether a "<" is between the last stop before word `c` and the word."""
    before = stop_before(planes, borders, CLOSES, masks, ranks, chunks, 32 * c)
    return bits_before(planes, OPENS, counts, before) != bits_before(planes, OPENS, counts, 32 * c)


@cuda.jit(cache=True)
def find_tags(data, origin, borders, markup, masks, ranks, chunks, counts, planes):
    """One thread per word: for each "<" that starts a tag, two bits of EVENTS change: the bit of "<", and the bit right
    after the tag.

    A tag starts at the first "<" after a stop, and ends at the next stop if that is ">".
    """
    c = cuda.grid(1)
    while c < borders.size:
        bits = word_of(planes, OPENS, c)
        stops = word_of(planes, CLOSES, c) | np.int64(borders[at(c)]) if bits else np.int64(0)
        last = np.int64(-1)  # "<" of the word
        while bits:
            k = lowest(bits)
            bits &= bits - 1
            stop = highest(stops & below(k + 1))
            is_first = stop > last
            if stop < 0 and last < 0:
                is_first = not opens_since_stop(planes, borders, masks, ranks, chunks, counts, c)
            last = k
            if is_first:
                i = 32 * c + k
                end = stop_from(planes, borders, CLOSES, masks, ranks, chunks, i + 1)
                closed = not has_border(borders, end) and np.int64(data[origin + end]) == rewrite.TAG_END
                if closed and (markup == rewrite.BRACKETS_LINE or end > i + 1):
                    cuda.atomic.xor(planes, (EVENTS, i >> 5), np.uint32(1 << (i & 31)))
                    cuda.atomic.xor(planes, (EVENTS, end + 1 >> 5), np.uint32(1 << (end + 1 & 31)))
        c += cuda.gridsize(1)


@cuda.jit(cache=True)
def clear_tags(counts, planes):
    """One thread per word: clears the bits of characters inside tags. `counts` has the number of bits of EVENTS before
    each chunk."""
    k, lane, share = np.int64(cuda.grid(1)), np.int64(cuda.threadIdx.x % LANES), CHUNK // min(LANES, CHUNK)
    while k * share < planes.shape[1]:  # all lanes
        odd = np.int64(0)  # words of the chunk with an odd number of bits
        for n in range(share):
            c = k * share + n
            inside = word_of(planes, EVENTS, c)
            odd |= chunk_bits(count_of(inside) & 1 != 0, lane) << n
            for shift in (1, 2, 4, 8, 16):
                inside ^= inside << shift
            if counts[at(c >> 3)] + count_of(odd & below(c & 7)) & 1:
                inside = ~inside
            if inside & ALL_BITS:
                for plane in range(TEXT_PLANES):
                    planes[plane, at(c)] = word_of(planes, plane, c) & ~inside
        k += cuda.gridsize(1)


# Sigma


@cuda.jit(cache=True)
def mark_bounds(
    data, blocks, start, end, origin, fold, ignored_low, ignored_high, pages, records, flags, bytes_of_planes
):  # fmt: skip
    """One thread per eight bytes: sets bits of EVENTS for characters that are not case-ignorable."""
    k = cuda.grid(1)
    while k < bytes_of_planes.shape[1]:
        i = origin + 8 * k
        bits = 0
        kept = np.int64(bytes_of_planes[SOLIDS, at(k)] | bytes_of_planes[SPACES, at(k)])
        if i < end and kept:
            block = np.uint64(block_at(data, blocks, i))
            bits = bounding_bits(
                data, block, start, end, i, kept, fold, ignored_low, ignored_high, pages, records, flags
            )
        bytes_of_planes[EVENTS, at(k)] = bits
        k += cuda.gridsize(1)


@cuda.jit(cache=True)
def find_final_sigmas(data, origin, borders, masks, ranks, chunks, pages, records, flags, planes):
    """One thread per word: keeps only the final sigmas in SIGMAS. A final sigma follows a cased character, and no cased
    character follows it. Case-ignorable characters do not count."""
    c = cuda.grid(1)
    while c < borders.size:
        bits = finals = word_of(planes, SIGMAS, c)
        while bits:
            k = lowest(bits)
            bits &= bits - 1
            i = 32 * c + k
            is_final = False
            if not has_border(borders, i):
                before = stop_before(planes, borders, EVENTS, masks, ranks, chunks, i)
                if word_of(planes, EVENTS, before >> 5) >> (before & 31) & 1:
                    is_final = is_cased(data, origin + before, pages, records, flags)
            if is_final:
                after = stop_from(planes, borders, EVENTS, masks, ranks, chunks, i + 1)
                if not has_border(borders, after) and is_cased(data, origin + after, pages, records, flags):
                    is_final = False
            if not is_final:
                finals ^= np.int64(1) << k
        planes[SIGMAS, at(c)] = finals
        c += cuda.gridsize(1)


# White space


@cuda.jit(device=True)
def first_spaces(solids, spaces, kept, carry):
    """Return the spaces of `kept` that directly follow a solid character; characters that are gone are ignored.
    `carry`: whether a solid character comes right before the word."""
    gone = ALL_BITS ^ (solids | spaces)
    firsts = solids << 1 | carry
    return kept & (firsts | gone + (firsts & gone) & ~gone)


@cuda.jit(device=True)
def line_spaces(solids, spaces, feeds, kept, feeds_before, feed_follows):
    """Return the spaces of `kept` that stay: the first two line feeds of each run, and other spaces after which the run
    has no line feed."""
    last, count = np.int64(-1), feeds_before
    bits = feeds
    while bits:
        k = lowest(bits)
        bits &= bits - 1
        solid = highest(solids & below(k))
        if solid != last:
            last, count = solid, np.int64(0)
        count += 1
        if count > 2:
            kept &= ~(np.int64(1) << k)
        kept &= ~(below(k) & ~below(solid + 1) & ~feeds)
    if feed_follows:
        kept &= below(highest(solids) + 1) | feeds
    return kept


@cuda.jit(device=True)
def tail_of(solids, stops, counted):
    """Return a number for the last stop of a word: 1 if it is a solid byte, plus twice the number of `counted` bits
    from it on; -1 if the word has no stop."""
    k = highest(solids | stops)
    return np.int64(-1) if k < 0 else (solids >> k & 1) + 2 * count_of(counted & ~below(k))


@cuda.jit(device=True)
def head_of(solids, stops, feeds):
    """Return a number for the bytes up to the first stop of a word: 1 if the stop is no border, plus 2 if a line feed
    is before it; -1 if the word has no stop."""
    if solids | stops == 0:
        return np.int64(-1)
    k = lowest(solids | stops)
    return (stops >> k & 1 ^ 1) + 2 * np.int64(feeds & below(k) != 0)


@cuda.jit(device=True)
def spaces_before(planes, borders, counted, masks, ranks, chunks, counts, c, tail):
    """Return whether a solid byte of the same document comes before word `c`, and the number of counted bits between
    that byte and the word. `tail` is the result of `tail_of` for the word before, if it is known."""
    if tail >= 0:
        return tail & 1 != 0, tail >> 1
    before = stop_before(planes, borders, SOLIDS, masks, ranks, chunks, 32 * c)
    if before < 0 or word_of(planes, SOLIDS, before >> 5) >> (before & 31) & 1 == 0:
        return False, np.int64(0)
    return True, bits_before(planes, counted, counts, 32 * c) - bits_before(planes, counted, counts, before)


@cuda.jit(device=True)
def feeds_after(planes, borders, whitespace, masks, ranks, chunks, counts, c, head):
    """Return whether a solid byte of the same document follows word `c`, and whether a line feed is between the word
    and that byte. `head` is the result of `head_of` for the word after, if it is known."""
    if head >= 0:
        return head & 1 != 0, head & 2 != 0
    i = 32 * (c + 1)
    after = stop_from(planes, borders, SOLIDS, masks, ranks, chunks, i)
    feeds = np.int64(0)
    if whitespace == rewrite.LINES:
        feeds = bits_before(planes, FEEDS, counts, after) - bits_before(planes, FEEDS, counts, i)
    return not has_border(borders, after), feeds != 0


@cuda.jit(device=True)
def kept_spaces(
    planes, borders, whitespace, masks, ranks, chunks, counts, c, solids, spaces, feeds, is_start, is_end, tail, head
):  # fmt: skip
    """Return the bits of a mask word that mark the kept spaces of one document. `is_start` and `is_end`: whether the
    document starts or ends in the word."""
    kept = spaces
    feed_follows = False
    leading = below(lowest(solids)) if solids else np.int64(ALL_BITS)
    trailing = ALL_BITS ^ below(highest(solids) + 1)
    if kept & trailing:
        follows = False
        if not is_end:
            follows, feed_follows = feeds_after(planes, borders, whitespace, masks, ranks, chunks, counts, c, head)
        if not follows:
            kept &= ~trailing
    count = np.int64(0)
    if kept & leading:
        precedes = False
        if not is_start:
            counted = FEEDS if whitespace == rewrite.LINES else SPACES
            precedes, count = spaces_before(planes, borders, counted, masks, ranks, chunks, counts, c, tail)
        if not precedes:
            kept &= ~leading
    if whitespace == rewrite.COLLAPSE:
        return first_spaces(solids, spaces, kept, np.int64(kept & leading != 0 and count == 0))
    if whitespace == rewrite.LINES:
        return line_spaces(solids, spaces, feeds, kept, count, feed_follows)
    return kept


@cuda.jit(cache=True)
def mark_kept(borders, whitespace, lowercase, masks, ranks, chunks, counts, planes, sizes):
    """One thread per word: writes the mask of bytes that are kept. The kernel also counts the output bytes of each
    chunk."""
    k, lane, share = np.int64(cuda.grid(1)), np.int64(cuda.threadIdx.x % LANES), CHUNK // min(LANES, CHUNK)
    while k * share < borders.size:  # all lanes
        size = np.int64(0)
        for n in range(share):
            c = k * share + n
            solids = word_of(planes, SOLIDS, c)
            spaces = feeds = stops = np.int64(0)
            if whitespace != rewrite.KEEP:
                spaces, stops = word_of(planes, SPACES, c), np.int64(borders[at(c)])
            if whitespace == rewrite.LINES:
                feeds = word_of(planes, FEEDS, c)
            tail = np.int64(tail_of(solids, stops, feeds if whitespace == rewrite.LINES else spaces))
            head = np.int64(head_of(solids, stops, feeds))
            tail = np.int64(cuda.shfl_sync(ALL_BITS, np.int32(tail), (lane - 1) & LANES - 1))
            head = np.int64(cuda.shfl_sync(ALL_BITS, np.int32(head), (lane + 1) & LANES - 1))
            tail = tail if lane > 0 else np.int64(-1)
            head = head if lane < LANES - 1 else np.int64(-1)
            kept = solids
            low = np.int64(0)
            while spaces and low < 32:
                rest = stops & ~below(low + 1)
                high = lowest(rest) if rest else np.int64(32)
                segment = below(high) & ~below(low)
                if spaces & segment:
                    kept |= kept_spaces(
                        planes, borders, whitespace, masks, ranks, chunks, counts, c, solids & segment,
                        spaces & segment, feeds & segment, stops >> low & 1 != 0, high < 32, tail, head,
                    )  # fmt: skip
                low = high
            planes[KEPT, at(c)] = kept
            size += count_of(kept) + count_of(grown_bits(planes, lowercase, c))
        size = chunk_sum(size)
        if lane & 7 == 0:
            sizes[at(k * share >> 3)] = size
        k += cuda.gridsize(1)


def _signatures():
    i32, i64, u8, u16, u32, u64 = (
        kind[::1] for kind in (types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.uint64)
    )
    number = types.int64
    planes, bytes_of_planes = types.uint32[:, ::1], types.uint8[:, ::1]
    text, stops = (u8, u64, *[number] * 3), (u8, i32, i32, i64)
    return {
        mark_steps: (*text, *[number] * 11, u16, u16, u32, i32, bytes_of_planes),
        find_stops: (planes, u32, number, number, u8, i64),
        find_tags: (u8, number, u32, number, *stops, planes),
        clear_tags: (i64, planes),
        mark_bounds: (*text, *[number] * 3, u16, u16, u32, bytes_of_planes),
        find_final_sigmas: (u8, number, u32, u8, i32, i32, u16, u16, u32, planes),
        mark_kept: (u32, number, number, *stops, planes, i64),
    }


SIGNATURES = _signatures()


class Stops(NamedTuple):
    """Positions of stops, as arguments of kernels."""

    masks: Any  # uint8, per chunk: words with a stop
    ranks: Any  # int32, chunks + 1: chunks with a stop before each
    chunks: Any  # int32: the numbers of the chunks with a stop
    counts: Any  # int64, chunks + 1: bits of another mask before each chunk


def _find_stops(planes, borders, plane: int, counted: int):
    """Return for each chunk a mask of its words with a stop, and the number of bits of the mask `counted`."""
    masks, counts = (core.empty(borders, kind, borders.size // CHUNK) for kind in (np.uint8, np.int64))
    core.launch_shared(find_stops, borders.size, planes, borders, plane, counted, masks, counts)
    return masks, counts


def _stops_of(planes, borders, plane: int, counted: int) -> Stops:
    masks, counts = _find_stops(planes, borders, plane, counted)
    filled = masks != 0
    before = core.starts_of(filled.astype(np.int32))
    return Stops(masks, before, filled.nonzero()[0].astype(np.int32), core.starts_of(counts))


def _clear_tags(text: DocumentBytes, origin: int, borders, markup: int, planes) -> None:
    if planes[OPENS].any():
        stops = _stops_of(planes, borders, CLOSES, OPENS)
        planes[EVENTS] = 0
        core.launch_shared(find_tags, borders.size, text.data, origin, borders, markup, *stops, planes)
        _, counts = _find_stops(planes, borders, EVENTS, EVENTS)
        core.launch_shared(clear_tags, borders.size, core.starts_of(counts), planes)


class Masks(NamedTuple):
    """The masks of the characters in a batch, and where the output of each chunk begins."""

    origin: int  # byte of the first bit
    planes: Any  # uint32, (PLANES, words)
    starts: Any  # int64, chunks + 1: where the output of each begins


def mark_documents(text: DocumentBytes, steps: np.ndarray, properties) -> Masks:
    """Return the masks of the documents.

    steps        of `rewrite.plan_steps`
    properties   pages, records, flags and lower of `tables.UnicodeTables`
    """
    start, end = int(text.offsets[0]), int(text.offsets[-1])
    origin, borders = core.find_borders(text.offsets, WARP_WORDS)
    size = borders.size
    drop, markup, whitespace, lowercase, fold = (
        int(steps[k]) for k in (rewrite.DROP, rewrite.MARKUP, rewrite.WHITESPACE, rewrite.LOWERCASE, rewrite.FOLD)
    )
    source = text.data, text.blocks, start, end, origin
    planes = core.empty(text.offsets, np.uint32, PLANES, size)
    bytes_of_planes = planes.view(np.uint8)
    core.launch_shared(
        mark_steps, 4 * size, *source, drop, markup, whitespace, lowercase, fold, *ascii_classes(drop, fold),
        *properties, bytes_of_planes,
    )  # fmt: skip
    if markup != rewrite.KEEP:
        _clear_tags(text, origin, borders, markup, planes)
    if lowercase and planes[SIGMAS].any():
        if whitespace == rewrite.KEEP:
            planes[SPACES] = 0
        core.launch_shared(mark_bounds, 4 * size, *source, fold, *ignored_ascii(fold), *properties[:3], bytes_of_planes)
        stops = _stops_of(planes, borders, EVENTS, EVENTS)
        arguments = text.data, origin, borders, *stops[:3], *properties[:3], planes
        core.launch_shared(find_final_sigmas, size, *arguments)
    stops = Stops(*(core.empty(borders, kind, 0) for kind in (np.uint8, np.int32, np.int32, np.int64)))
    if whitespace != rewrite.KEEP:
        stops = _stops_of(planes, borders, SOLIDS, FEEDS if whitespace == rewrite.LINES else SPACES)
    sizes = core.empty(borders, np.int64, size // CHUNK)
    core.launch_shared(mark_kept, size, borders, whitespace, lowercase, *stops, planes, sizes)
    return Masks(origin, planes, core.starts_of(sizes))
