# SPDX-License-Identifier: Apache-2.0
"""Read and check Megatron and NeMo `.bin`/`.idx` pairs. Layout and writer: `curation/packing/megatron.py`."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path

import numpy as np

from curation.errors import InputError, IntegrityError
from curation.packing.megatron import (
    BATCH_BYTES,
    BATCH_SEQUENCES,
    DTYPE_CODES,
    HEADER,
    MAGIC,
    UINT16_VOCABULARY,
    VERSION,
    PairCounts,
    byte_pointers,
    check_positive,
    choose_dtype,
    in_batches,
    map_array,
    suffixed,
)
from curation.packing.pair_sets import refuse_unfinished
from curation.reading.urls import is_remote, shown
from curation.system.html_table import Shown

SHOWN_PAIRS = 5


class IndexedReader(Shown):
    """A memory-mapped pair. `len(reader)` is the number of sequences S, `reader[i]` the ids of sequence i.

    `reader[i]` has shape (tokens of the sequence,) and the pair's dtype. It is a read-only view, without a copy.

    prefix  path of the pair without suffix, or the path of either file

    Attributes:

    dtype      dtype of the ids
    lengths    int32, shape (S,): tokens of each sequence
    pointers   int64, shape (S,): byte of the `.bin` where each sequence starts
    documents  int64, shape (documents + 1,): first sequence of each document, then S
    tokens     shape (all tokens,): the whole `.bin`
    num_bytes  size of the `.bin`

    Layout: `curation/packing/megatron.py`. InputError: a missing file, a URL, or a pair of an unfinished `merge` or
    `split`. IntegrityError: a file that is not a Megatron index, or files whose sizes contradict the index. `reader[i]`
    raises IndexError, and IntegrityError for a pointer outside of the `.bin`.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = bare_prefix(prefix)
        refuse_unfinished(self.prefix)
        index_path, bin_path = suffixed(self.prefix, ".idx"), suffixed(self.prefix, ".bin")
        for path in (index_path, bin_path):
            if not path.is_file():
                raise InputError(f"{path} does not exist. {_suggest_pairs(self.prefix)}")
        self.dtype, num_sequences, num_documents = _read_header(index_path)
        self.lengths = map_array(index_path, "<i4", HEADER.size, num_sequences)
        self.pointers = map_array(index_path, "<i8", HEADER.size + 4 * num_sequences, num_sequences)
        self.documents = map_array(index_path, "<i8", HEADER.size + 12 * num_sequences, num_documents)
        self.num_bytes = bin_path.stat().st_size
        self._check_size(bin_path)
        self.tokens = map_array(bin_path, self.dtype, 0, self.num_bytes // self.dtype.itemsize)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        start, remainder = divmod(int(self.pointers[index]), self.dtype.itemsize)
        stop = start + int(self.lengths[index])
        if remainder or not 0 <= start <= stop <= len(self.tokens):
            raise IntegrityError(
                f"{self.prefix}.idx: sequence {index} takes bytes {int(self.pointers[index])} + "
                f"{int(self.lengths[index])} x {self.dtype.itemsize}, the .bin has {self.num_bytes}. Export it again."
            )
        return self.tokens[start:stop]

    def _facts(self) -> dict[str, object]:
        return {
            "pair": self.prefix,
            "documents": len(self.documents) - 1,
            "sequences": len(self),
            "tokens": len(self.tokens),
            "dtype": self.dtype,
        }

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def _check_size(self, bin_path: Path) -> None:
        num_tokens = sum(int(batch.sum(dtype=np.int64)) for batch in in_batches(self.lengths))
        if num_tokens * self.dtype.itemsize != self.num_bytes:
            raise IntegrityError(
                f"{bin_path} has {self.num_bytes} bytes, its index counts {num_tokens} tokens of "
                f"{self.dtype.itemsize} bytes = {num_tokens * self.dtype.itemsize}. One file is damaged or from "
                "another run: export the pair again."
            )


def bare_prefix(path: str | Path) -> Path:
    """Return the prefix of a pair, given the prefix or the path of either file. InputError: a URL."""
    if is_remote(str(path)):
        raise InputError(
            f"{shown(str(path))} is a URL, and pairs are read from local files. Copy its .bin and .idx to a folder of "
            "this machine, and give the prefix there"
        )
    return Path(str(path).removesuffix(".bin").removesuffix(".idx"))


def _suggest_pairs(prefix: Path) -> str:
    """Name pairs in the folder `prefix`, or pairs whose names begin with `prefix`."""
    indexes = [*prefix.glob("*.idx"), *prefix.glob("tokens/*.idx"), *prefix.parent.glob(f"{escape(prefix.name)}*.idx")]
    pairs = sorted(str(bare_prefix(path)) for path in indexes if suffixed(bare_prefix(path), ".bin").is_file())
    if not pairs:
        return "Give the prefix of a pair, its path without .bin or .idx."
    return f"Give one of {', '.join(pairs[:SHOWN_PAIRS])}{', ...' if len(pairs) > SHOWN_PAIRS else ''}"


def check_pair(prefix: str | Path, vocabulary: int | None = None, *, strict: bool = True) -> PairCounts:
    """Read all of a pair and return its counts.

    prefix      path of the pair without suffix, or the path of either file
    vocabulary  number of tokens of the tokenizer. Every id must be below it. Default: ids are checked against the dtype
    strict      require the form that this package writes: one sequence of at least one token per document, and the
                dtype that Megatron chooses for `vocabulary`. False also accepts several sequences per document, empty
                documents and another dtype. Default: True

    Checked: magic, version, dtype code, both file sizes, pointers (the running sum of lengths), document indices, and
    the range of every id. IntegrityError names the first fault. InputError: a missing file or an unfinished set.
    """
    reader = IndexedReader(prefix)
    _check_dtype(reader, vocabulary, strict)
    _check_pointers(reader, strict)
    _check_documents(reader, strict)
    _check_ids(reader, vocabulary)
    empty = sum(int(np.count_nonzero(batch[1:] == batch[:-1])) for batch in _overlapping_batches(reader.documents))
    return PairCounts(
        prefix=str(reader.prefix),
        documents=len(reader.documents) - 1,
        empty_documents=empty,
        tokens=len(reader.tokens),
        bytes=reader.num_bytes,
        dtype=reader.dtype.name,
    )


def _read_header(path: Path) -> tuple[np.dtype, int, int]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise IntegrityError(
            f"{path} starts with {head[:9]!r}, expected {MAGIC!r}: it is not a Megatron index. Export it again."
        )
    _, index_version, code, num_sequences, num_documents = HEADER.unpack(head)
    if index_version != VERSION:
        raise IntegrityError(f"{path} has version {index_version}, expected {VERSION}. Export it again.")
    if code not in DTYPE_CODES:
        raise IntegrityError(f"{path} has dtype code {code}, expected one of {sorted(DTYPE_CODES)}. Export it again.")
    expected = HEADER.size + 12 * num_sequences + 8 * num_documents
    if size != expected:
        raise IntegrityError(
            f"{path} has {size} bytes, expected {expected} for {num_sequences} sequences and {num_documents} document "
            "indices. It is truncated or damaged, or has modes (multimodal data). Export it again without modes."
        )
    return np.dtype(DTYPE_CODES[code]), num_sequences, num_documents


def _check_dtype(reader: IndexedReader, vocabulary: int | None, strict: bool) -> None:
    if reader.dtype.kind not in "iu":
        raise IntegrityError(
            f"{reader.prefix}.idx: dtype {reader.dtype}, expected an integer dtype for token ids. Export it again."
        )
    if strict and vocabulary is not None and reader.dtype != choose_dtype(vocabulary):
        raise IntegrityError(
            f"{reader.prefix}.idx: dtype {reader.dtype}, expected {choose_dtype(vocabulary)} for a vocabulary of "
            f"{vocabulary} (uint16 below {UINT16_VOCABULARY}). Export it again with this tokenizer."
        )


def _check_pointers(reader: IndexedReader, strict: bool) -> None:
    offset = 0
    expected_pointers = byte_pointers(in_batches(reader.lengths), reader.dtype.itemsize)
    for lengths, expected in zip(in_batches(reader.lengths), expected_pointers, strict=True):
        if strict or lengths.min() < 0:
            check_positive(f"{reader.prefix}.idx", lengths, offset)
        wrong = np.flatnonzero(reader.pointers[offset : offset + len(lengths)] != expected)
        if len(wrong):
            i = int(wrong[0])
            raise IntegrityError(
                f"{reader.prefix}.idx: pointer of sequence {offset + i} is {int(reader.pointers[offset + i])}, "
                f"expected {int(expected[i])} by the lengths. The index is damaged: export it again."
            )
        offset += len(lengths)


def _check_documents(reader: IndexedReader, strict: bool) -> None:
    documents, num_sequences = reader.documents, len(reader)
    if not len(documents) or documents[0] != 0 or documents[-1] != num_sequences:
        limits = f"run from {int(documents[0])} to {int(documents[-1])}" if len(documents) else "are missing"
        raise IntegrityError(
            f"{reader.prefix}.idx: document indices {limits}, expected 0 to {num_sequences}. Export it again."
        )
    if strict and len(documents) != num_sequences + 1:
        raise IntegrityError(
            f"{reader.prefix}.idx: {len(documents) - 1} documents in {num_sequences} sequences, expected one sequence "
            "per document. Export it again."
        )
    offset = 0
    for batch in _overlapping_batches(documents):
        steps = np.diff(batch)
        wrong = np.flatnonzero(steps != 1 if strict else steps < 0)
        if len(wrong):
            i = int(wrong[0])
            raise IntegrityError(
                f"{reader.prefix}.idx: document index {offset + i + 1} is {int(batch[i + 1])} after {int(batch[i])}, "
                f"expected {'the next number' if strict else 'no smaller number'}. Export it again."
            )
        offset += len(batch) - 1


def _check_ids(reader: IndexedReader, vocabulary: int | None) -> None:
    bound = vocabulary if vocabulary is not None else np.iinfo(reader.dtype).max + 1
    for first in range(0, len(reader.tokens), BATCH_BYTES):
        batch = reader.tokens[first : first + BATCH_BYTES]
        if batch.min() < 0 or batch.max() >= bound:
            position = first + int(np.argmax((batch < 0) | (batch >= bound)))
            raise IntegrityError(
                f"{reader.prefix}.bin: id {int(reader.tokens[position])} at token {position}, expected 0 to "
                f"{bound - 1}. Another tokenizer wrote it, or the file is damaged. Export it again."
            )


def _overlapping_batches(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield slices that share one element with the next, to compare neighbours."""
    return (values[first : first + BATCH_SEQUENCES + 1] for first in range(0, len(values) - 1, BATCH_SEQUENCES))
