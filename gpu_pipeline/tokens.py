# SPDX-License-Identifier: Apache-2.0
"""Tokenises a cuDF string column: the device finds pre-tokens, looks up their ids, and adds the special ids.

The host encodes instead if a tokenizer has no `FlatTables`, a document has more than MAX_BYTES, or a text gets the id
of a special token. The host also encodes pre-tokens above `token_kernels.MERGED_BYTES` that are no token. It checks one
document in a thousand with the tokenizer's library.
"""

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import cupy as cp
import numpy as np

from curation.kernels.bpe import TokenTable
from curation.tokens.tokenization import sample_of
from gpu_pipeline.kernels import core, token_kernels
from gpu_pipeline.kernels.token_kernels import Pieces
from gpu_pipeline.memory import host_memory
from gpu_pipeline.memory.buffers import buffers_of, download, eight_byte_blocks, string_array
from gpu_pipeline.memory.device import on_device, out_of_memory, shared, warn_of_short_memory

if TYPE_CHECKING:
    import cudf

    from curation.tokens.tokenization import Tokenizer

# A batch takes 9 bytes of memory per byte of English, and 36 where every byte is a pre-token.
BATCH_BYTES, MIN_BATCH_BYTES = 256 << 20, 4 << 20
MAX_BYTES = 1 << 30  # positions of pre-tokens have 32 bits
TEXT_AT_ONCE = 128 << 20  # a call costs some milliseconds of Python, whatever its size
HOST_BYTES = 16 << 20  # of a batch with a special token's text, the part that the host encodes


class _Tables(NamedTuple):
    """`FlatTables` on the device."""

    pages: cp.ndarray
    classes: cp.ndarray
    tokens: TokenTable
    byte_ids: cp.ndarray
    pairs: cp.ndarray
    is_special: cp.ndarray  # bool, by id


@shared(4)
def _device_tables(tokenizer: "Tokenizer") -> _Tables:
    flat = tokenizer.flat_tables
    keys, ids, data, offsets = map(cp.asarray, flat.tokens[:4])
    tokens = TokenTable(keys, ids, data, offsets, flat.tokens.longest)
    return _Tables(
        cp.asarray(flat.pages), cp.asarray(flat.classes), tokens, *map(cp.asarray, (*flat[4:6], tokenizer.is_special))
    )


class _Merged(NamedTuple):
    """The ids of pre-tokens that are no token.

    starts, pool, counts   the ids of missing pre-token j are the counts[j] in the pool from starts[j]
    on_host                ids that the host made, by pre-token
    """

    starts: cp.ndarray
    pool: cp.ndarray
    counts: cp.ndarray
    on_host: dict[int, np.ndarray]


def _encode_on_host(
    data: cp.ndarray, pieces: Pieces, numbers: cp.ndarray, tokenizer: "Tokenizer"
) -> dict[int, np.ndarray]:
    """Return the ids of each of the pre-tokens `numbers`; equal pre-tokens are encoded once."""
    encode = cache(lambda piece: tokenizer.flat_tables.encode_piece(piece.decode()))
    starts, ends = (cp.asnumpy(pieces.positions[k]).astype(np.int64) + pieces.origin for k in (numbers, numbers + 1))
    spans = zip(cp.asnumpy(numbers).tolist(), starts.tolist(), ends.tolist(), strict=True)
    return {number: encode(cp.asnumpy(data[start:end]).tobytes()) for number, start, end in spans}


def _merge(data: cp.ndarray, pieces: Pieces, missing: cp.ndarray, tokenizer: "Tokenizer") -> _Merged:
    tables = _device_tables(tokenizer)
    sizes = pieces.positions[missing + 1] - pieces.positions[missing]
    short, on_device = sizes <= token_kernels.SHORT_BYTES, sizes <= token_kernels.MERGED_BYTES
    starts = core.starts_of(cp.where(on_device, sizes, 0).astype(np.int64))
    pool, counts = cp.empty(int(starts[-1]), np.int32), cp.zeros(missing.size, np.int32)
    for kernel, chosen, threads in (
        (token_kernels.merge_short, short, 1),
        (token_kernels.merge_long, on_device & ~short, token_kernels.WARP),
    ):
        numbers = cp.flatnonzero(chosen)
        if numbers.size:
            core.launch(
                kernel, threads * numbers.size, data, pieces.origin, pieces.positions, missing, numbers, starts,
                tables.byte_ids, tables.pairs, pool, counts,
            )  # fmt: skip
    return _Merged(starts, pool, counts, _encode_on_host(data, pieces, missing[~on_device], tokenizer))


def _tokenize_batch(
    data: cp.ndarray, offsets: cp.ndarray, tokenizer: "Tokenizer"
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return ids, special ids included, and lengths, of one or more documents with less than 2^31 bytes in all. Return
    None if a text has the id of a special token, which the host replaces."""
    tables, flat = _device_tables(tokenizer), tokenizer.flat_tables
    blocks = eight_byte_blocks(data)
    pieces = token_kernels.find_pieces(data, blocks, offsets, flat.pattern, tables.pages, tables.classes)
    ids = cp.empty(pieces.positions.size - 1, np.int32)
    core.launch_shared(
        token_kernels.find_ids, ids.size, data, blocks, pieces.origin, pieces.positions, *tables.tokens, ids
    )
    missing = cp.flatnonzero(ids == token_kernels.MISSING)
    merged = _merge(data, pieces, missing, tokenizer)
    ids[missing] = -1 - cp.arange(missing.size, dtype=np.int32)
    counts = cp.ones(ids.size, np.int32)
    counts[missing] = merged.counts
    long = cp.asarray(np.array(list(merged.on_host), np.int64))
    counts[long] = cp.asarray(np.array([len(host_ids) for host_ids in merged.on_host.values()], np.int32))
    bos, eod = (special[0] if special else token_kernels.NO_ID for special in tokenizer.special_ids)
    core.launch(token_kernels.add_special_ids, len(offsets) - 1, pieces.rows, bos, eod, counts)
    starts = core.starts_of(counts.astype(np.int64))
    out, lengths = cp.empty(int(starts[-1]), np.int32), cp.empty(len(offsets) - 1, np.int64)
    core.launch_shared(
        token_kernels.gather_ids, ids.size, ids, starts, pieces.positions, pieces.borders, bos, *merged[:3], out
    )
    core.launch(token_kernels.end_documents, lengths.size, pieces.rows, starts, eod, out, lengths)
    opens = cp.isin(long, pieces.rows) if bos != token_kernels.NO_ID else cp.zeros(long.size, bool)
    for first, host_ids in zip(cp.asnumpy(starts[long] + opens).tolist(), merged.on_host.values(), strict=True):
        out[first : first + len(host_ids)] = cp.asarray(host_ids)
    sizes = download(lengths.astype(np.int32))
    added = sum(int(tokenizer.is_special[token]) for token in (bos, eod) if token != token_kernels.NO_ID)
    if int(tables.is_special[out].sum()) != added * np.count_nonzero(sizes):
        return None
    return download(out.astype(tokenizer.dtype)), sizes


def _tokenize_on_host(text: "cudf.Series", tokenizer: "Tokenizer") -> tuple[np.ndarray, np.ndarray]:
    return tokenizer.pack(string_array(text))


def _in_batches(text: "cudf.Series", tokenizer: "Tokenizer") -> tuple[np.ndarray, np.ndarray]:
    data, offsets, _ = buffers_of(text)
    byte_starts = cp.asnumpy(offsets)
    first, limit, small_until = 0, BATCH_BYTES, 0  # rows before `small_until` are in batches of HOST_BYTES
    batches: list[tuple[np.ndarray, np.ndarray]] = []
    while first < len(text):
        last = core.batch_end(byte_starts, first, min(limit, HOST_BYTES) if first < small_until else limit)
        if byte_starts[last] - byte_starts[first] > MAX_BYTES:  # one document
            batches.append(_tokenize_on_host(text.iloc[first:last], tokenizer))
            first = last
            continue
        try:
            batch = _tokenize_batch(data, offsets[first : last + 1], tokenizer)
        except MemoryError as error:
            if limit <= MIN_BATCH_BYTES:
                raise out_of_memory(int(byte_starts[last] - byte_starts[first])) from error
            warn_of_short_memory()
            limit //= 2
            continue
        if batch is None and first >= small_until and byte_starts[last] - byte_starts[first] > HOST_BYTES:
            small_until = last
            continue
        batches.append(_tokenize_on_host(text.iloc[first:last], tokenizer) if batch is None else batch)
        first = last
    if not batches:
        return np.zeros(0, tokenizer.dtype), np.zeros(0, np.int32)
    ids, lengths = map(host_memory.joined, zip(*batches, strict=True))
    return ids, lengths


def _check(text: "cudf.Series", tokenizer: "Tokenizer", ids: np.ndarray, lengths: np.ndarray) -> None:
    """Compare a sample of the documents with the tokenizer's library."""
    chosen = sample_of(cp.asnumpy(buffers_of(text)[1]))
    ends = np.cumsum(lengths, dtype=np.int64)
    bos, eod = map(len, tokenizer.special_ids)
    documents = [ids[ends[row] - lengths[row] + bos : ends[row] - eod] for row in chosen]
    tokenizer.check_ids(string_array(text.iloc[chosen]), chosen, documents)


@on_device()
def tokenize(text: "cudf.Series", tokenizer: "Tokenizer") -> tuple[np.ndarray, np.ndarray]:
    if text.null_count:
        text = text.fillna("")
    if tokenizer.device_note:
        return _tokenize_on_host(text, tokenizer)
    ids, lengths = _in_batches(text, tokenizer)
    _check(text, tokenizer, ids, lengths)
    return ids, lengths


def tokens_at_once() -> int:
    return TEXT_AT_ONCE
