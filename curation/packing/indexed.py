# SPDX-License-Identifier: Apache-2.0
"""Megatron and NeMo `.bin`/`.idx` pairs: reader and checker. Layout and writers stand in `packing/megatron.py`."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path

import numpy as np

from curation.errors import InputError, IntegrityError
from curation.packing.megatron import (
    CHUNK_BYTES,
    CHUNK_SEQUENCES,
    DTYPE_CODES,
    HEADER,
    MAGIC,
    UINT16_VOCABULARY,
    VERSION,
    PairCounts,
    byte_pointers,
    check_positive,
    choose_dtype,
    in_chunks,
    map_array,
    suffixed,
)
from curation.packing.pair_sets import refuse_unfinished

SHOWN_PAIRS = 5


class IndexedReader:
    """A pair, memory-mapped: `len()` sequences, `reader[i]` the ids of one (a read-only view, no copy).

    `dtype`; `lengths` (int32, tokens), `pointers` (int64, bytes into the `.bin`), `documents` (int64, index of the
    first sequence of each document, and S at the end). Raises `InputError` where a file is missing or the pair is of a
    set that was not finished, `IntegrityError` where the index is none, or where the sizes of the files are not what it
    says.

    `prefix` may be the path of either file too.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = bare_prefix(prefix)
        refuse_unfinished(self.prefix)
        index_path, bin_path = suffixed(self.prefix, ".idx"), suffixed(self.prefix, ".bin")
        for path in (index_path, bin_path):
            if not path.is_file():
                raise InputError(f"expected a file {path}, there is none. {_pairs_near(self.prefix)}")
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
                f"{self.prefix}.idx: sequence {index} is said to stand at bytes {int(self.pointers[index])} + "
                f"{int(self.lengths[index])} x {self.dtype.itemsize}, the .bin has {self.num_bytes}. Export it again."
            )
        return self.tokens[start:stop]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def _check_size(self, bin_path: Path) -> None:
        num_tokens = sum(int(chunk.sum(dtype=np.int64)) for chunk in in_chunks(self.lengths))
        if num_tokens * self.dtype.itemsize != self.num_bytes:
            raise IntegrityError(
                f"{bin_path} has {self.num_bytes} bytes, its index counts {num_tokens} tokens of "
                f"{self.dtype.itemsize} bytes = {num_tokens * self.dtype.itemsize}. One of the pair is damaged or of "
                "another run: export it again."
            )


def bare_prefix(path: str | Path) -> Path:
    """The prefix that a path of a pair, or of one of its files, stands for."""
    return Path(str(path).removesuffix(".bin").removesuffix(".idx"))


def _pairs_near(prefix: Path) -> str:
    """What can be given in place of a prefix that is none: pairs of the folder it names, or whose names begin so."""
    indexes = [*prefix.glob("*.idx"), *prefix.glob("tokens/*.idx"), *prefix.parent.glob(f"{escape(prefix.name)}*.idx")]
    found = sorted(str(bare_prefix(path)) for path in indexes if suffixed(bare_prefix(path), ".bin").is_file())
    if not found:
        return "Give the prefix of a pair, its path without .bin or .idx."
    return f"Give one of {', '.join(found[:SHOWN_PAIRS])}{', ...' if len(found) > SHOWN_PAIRS else ''}"


def check_pair(prefix: str | Path, vocabulary: int | None = None, *, strict: bool = True) -> PairCounts:
    """Read a pair from end to end and say what it holds, or raise `IntegrityError` with the first thing that is wrong.

    Checked: magic, version, dtype code, both sizes, that pointers are the running sum of lengths, document indices, and
    that every id is at least 0 and, given a `vocabulary`, below it and of the dtype that Megatron expects for it.
    `strict` asks for what this package writes, one sequence of at least one token per document; without it pairs of
    other writers pass that have several sequences per document or empty documents.
    """
    reader = IndexedReader(prefix)
    _check_dtype(reader, vocabulary, strict)
    _check_pointers(reader, strict)
    _check_documents(reader, strict)
    _check_ids(reader, vocabulary)
    steps = sum(int(np.count_nonzero(pair[1:] == pair[:-1])) for pair in _overlapping(reader.documents))
    return PairCounts(
        prefix=str(reader.prefix),
        documents=len(reader.documents) - 1,
        empty_documents=steps,
        tokens=len(reader.tokens),
        bytes=reader.num_bytes,
        dtype=reader.dtype.name,
    )


def _read_header(path: Path) -> tuple[np.dtype, int, int]:
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise IntegrityError(f"{path} starts with {head[:9]!r}, expected {MAGIC!r}: not a Megatron index.")
    _, index_version, code, num_sequences, num_documents = HEADER.unpack(head)
    if index_version != VERSION:
        raise IntegrityError(f"{path} has version {index_version}, expected {VERSION}.")
    if code not in DTYPE_CODES:
        raise IntegrityError(f"{path} has dtype code {code}, expected one of {sorted(DTYPE_CODES)}.")
    expected = HEADER.size + 12 * num_sequences + 8 * num_documents
    if size != expected:
        raise IntegrityError(
            f"{path} has {size} bytes, {num_sequences} sequences and {num_documents} document indices make {expected}. "
            "The file is cut or damaged, or has modes (multimodal data)."
        )
    return np.dtype(DTYPE_CODES[code]), num_sequences, num_documents


def _check_dtype(reader: IndexedReader, vocabulary: int | None, strict: bool) -> None:
    if reader.dtype.kind not in "iu":
        raise IntegrityError(f"{reader.prefix}.idx: dtype {reader.dtype} holds no token ids.")
    if strict and vocabulary is not None and reader.dtype != choose_dtype(vocabulary):
        raise IntegrityError(
            f"{reader.prefix}.idx: dtype {reader.dtype}, expected {choose_dtype(vocabulary)} for a vocabulary of "
            f"{vocabulary} (uint16 below {UINT16_VOCABULARY})."
        )


def _check_pointers(reader: IndexedReader, strict: bool) -> None:
    at = 0
    expected_pointers = byte_pointers(in_chunks(reader.lengths), reader.dtype.itemsize)
    for lengths, expected in zip(in_chunks(reader.lengths), expected_pointers, strict=True):
        if strict or lengths.min() < 0:
            check_positive(f"{reader.prefix}.idx", lengths, at)
        wrong = np.flatnonzero(reader.pointers[at : at + len(lengths)] != expected)
        if len(wrong):
            i = int(wrong[0])
            raise IntegrityError(
                f"{reader.prefix}.idx: pointer of sequence {at + i} is {int(reader.pointers[at + i])}, the lengths "
                f"before it make {int(expected[i])}. The index is damaged: export it again."
            )
        at += len(lengths)


def _check_documents(reader: IndexedReader, strict: bool) -> None:
    documents, num_sequences = reader.documents, len(reader)
    if not len(documents) or documents[0] != 0 or documents[-1] != num_sequences:
        ends = f"{int(documents[0])} to {int(documents[-1])}" if len(documents) else "nothing"
        raise IntegrityError(f"{reader.prefix}.idx: document indices run from {ends}, expected 0 to {num_sequences}.")
    if strict and len(documents) != num_sequences + 1:
        raise IntegrityError(
            f"{reader.prefix}.idx: {len(documents) - 1} documents in {num_sequences} sequences, expected one each."
        )
    at = 0
    for pair in _overlapping(documents):
        steps = np.diff(pair)
        wrong = np.flatnonzero(steps != 1 if strict else steps < 0)
        if len(wrong):
            i = int(wrong[0])
            raise IntegrityError(
                f"{reader.prefix}.idx: document index {at + i + 1} is {int(pair[i + 1])} after {int(pair[i])}, "
                f"expected {'the next number' if strict else 'no step back'}."
            )
        at += len(pair) - 1


def _check_ids(reader: IndexedReader, vocabulary: int | None) -> None:
    bound = vocabulary if vocabulary is not None else np.iinfo(reader.dtype).max + 1
    for first in range(0, len(reader.tokens), CHUNK_BYTES):
        chunk = reader.tokens[first : first + CHUNK_BYTES]
        if chunk.min() < 0 or chunk.max() >= bound:
            at = first + int(np.argmax((chunk < 0) | (chunk >= bound)))
            raise IntegrityError(
                f"{reader.prefix}.bin: id {int(reader.tokens[at])} at token {at}, expected 0 to {bound - 1}. Another "
                "tokenizer wrote it, or the file is damaged."
            )


def _overlapping(values: np.ndarray) -> Iterator[np.ndarray]:
    """Chunks that share one element with the next, for comparing neighbours."""
    return (values[first : first + CHUNK_SEQUENCES + 1] for first in range(0, len(values) - 1, CHUNK_SEQUENCES))
