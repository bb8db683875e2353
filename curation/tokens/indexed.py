# SPDX-License-Identifier: Apache-2.0
"""Read and check Megatron and NeMo `.bin`/`.idx` pairs. Layout and writer: `curation/tokens/megatron.py`."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path

import numpy as np

from curation.base.errors import InputError, IntegrityError
from curation.base.system.damage import damaged
from curation.base.system.html_table import Shown
from curation.reading.urls import is_remote, shown
from curation.tokens.megatron import (
    BATCH_BYTES,
    BATCH_SEQUENCES,
    DTYPE_CODES,
    HEADER,
    MAGIC,
    UINT16_VOCABULARY,
    VERSION,
    PairCounts,
    byte_pointers,
    check_lengths,
    choose_dtype,
    in_batches,
    map_array,
    suffixed,
)
from curation.tokens.pair_sets import refuse_unfinished

SHOWN_PAIRS = 5


class IndexedReader(Shown):
    """A memory-mapped pair. `len(reader)` is the number of sequences S, `reader[i]` the ids of sequence i.

    `reader[i]` has shape (tokens of the sequence,) and the pair's dtype. It is a read-only view, without a copy.

    prefix       path of the pair without suffix, or the path of either file
    allow_modes  read a pair with a mode for each sequence (multimodal data). Default: False, which refuses it

    Attributes:

    dtype      dtype of the ids
    lengths    int32, shape (S,): tokens of each sequence
    pointers   int64, shape (S,): byte of the `.bin` where each sequence starts
    documents  int64, shape (documents + 1,): first sequence of each document, then S
    tokens     shape (all tokens,): the whole `.bin`
    num_bytes  size of the `.bin`
    has_modes  whether the index has a mode for each sequence

    Layout: `curation/tokens/megatron.py`. The whole index is checked: its lengths against the size of the `.bin`, its
    pointers against the lengths, and the order of its documents. InputError: a missing file, a URL, or a pair of an
    unfinished `merge` or `split`. IntegrityError: a damaged index. `reader[i]` raises IndexError.
    """

    def __init__(self, prefix: str | Path, *, allow_modes: bool = False) -> None:
        self.prefix = bare_prefix(prefix)
        refuse_unfinished(self.prefix)
        index_path, bin_path = suffixed(self.prefix, ".idx"), suffixed(self.prefix, ".bin")
        for path in (index_path, bin_path):
            if path.is_dir():
                raise damaged(path, "it is a folder, expected a file")
            if not path.is_file():
                raise InputError(f"{path} does not exist. {_suggest_pairs(self.prefix)}")
        self.dtype, num_sequences, num_documents, self.has_modes = _read_header(index_path, allow_modes)
        self.lengths = map_array(index_path, "<i4", HEADER.size, num_sequences)
        self.pointers = map_array(index_path, "<i8", HEADER.size + 4 * num_sequences, num_sequences)
        self.documents = map_array(index_path, "<i8", HEADER.size + 12 * num_sequences, num_documents)
        self.num_bytes = bin_path.stat().st_size
        self._check_size(bin_path)
        _check_pointers(self)
        _check_documents(self)
        self.tokens = map_array(bin_path, self.dtype, 0, self.num_bytes // self.dtype.itemsize)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        start = int(self.pointers[index]) // self.dtype.itemsize
        return self.tokens[start : start + int(self.lengths[index])]

    def document(self, number: int) -> np.ndarray:
        """Return the ids of all sequences of document `number`, from 0: a view as of `reader[i]`, which may be empty.
        IndexError for a number outside of 0 to documents - 1."""
        if not 0 <= number < len(self.documents) - 1:
            raise IndexError(f"document {number} of {len(self.documents) - 1}")
        bounds = [int(self.pointers[k]) if k < len(self) else self.num_bytes for k in self.documents[number:][:2]]
        return self.tokens[bounds[0] // self.dtype.itemsize : bounds[1] // self.dtype.itemsize]

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
                f"{bin_path} has {self.num_bytes} bytes, its index {self.prefix.name}.idx counts {num_tokens} tokens "
                f"of {self.dtype.itemsize} bytes = {num_tokens * self.dtype.itemsize}. One file is damaged or from "
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
    if strict:
        _check_form(reader)
    check_ids(f"{reader.prefix}.bin", reader.tokens, vocabulary)
    empty = sum(int(np.count_nonzero(batch[1:] == batch[:-1])) for batch in _overlapping_batches(reader.documents))
    return PairCounts(
        prefix=str(reader.prefix),
        documents=len(reader.documents) - 1,
        empty_documents=empty,
        tokens=len(reader.tokens),
        bytes=reader.num_bytes,
        dtype=reader.dtype.name,
    )


def _read_header(path: Path, allow_modes: bool) -> tuple[np.dtype, int, int, bool]:
    """Return the dtype, the numbers of sequences and of document indices, and whether the index has modes."""
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
    has_modes = bool(num_sequences) and size == expected + num_sequences  # a byte for each sequence, at the end
    if size != expected and not (allow_modes and has_modes):
        fault = "It has modes (multimodal data)" if has_modes else "It is truncated or damaged"
        remedy = "Export it again without modes." if has_modes else "Export it again."
        raise IntegrityError(
            f"{path} has {size} bytes, expected {expected} for {num_sequences} sequences and {num_documents} document "
            f"indices. {fault}. {remedy}"
        )
    return np.dtype(DTYPE_CODES[code]), num_sequences, num_documents, has_modes


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


def _check_pointers(reader: IndexedReader) -> None:
    offset = 0
    expected_pointers = byte_pointers(in_batches(reader.lengths), reader.dtype.itemsize)
    for lengths, expected in zip(in_batches(reader.lengths), expected_pointers, strict=True):
        if lengths.min() < 0:
            check_lengths(f"{reader.prefix}.idx", lengths, offset)
        wrong = np.flatnonzero(reader.pointers[offset : offset + len(lengths)] != expected)
        if len(wrong):
            i = int(wrong[0])
            raise IntegrityError(
                f"{reader.prefix}.idx: pointer of sequence {offset + i} is {int(reader.pointers[offset + i])}, "
                f"expected {int(expected[i])} by the lengths. The index is damaged: export it again."
            )
        offset += len(lengths)


def _check_documents(reader: IndexedReader) -> None:
    documents, num_sequences = reader.documents, len(reader)
    if not len(documents) or documents[0] != 0 or documents[-1] != num_sequences:
        limits = f"run from {int(documents[0])} to {int(documents[-1])}" if len(documents) else "are missing"
        raise IntegrityError(
            f"{reader.prefix}.idx: document indices {limits}, expected 0 to {num_sequences}. Export it again."
        )
    offset = 0
    for batch in _overlapping_batches(documents):
        wrong = np.flatnonzero(np.diff(batch) < 0)
        if len(wrong):
            i = int(wrong[0])
            raise IntegrityError(
                f"{reader.prefix}.idx: document index {offset + i + 1} is {int(batch[i + 1])} after {int(batch[i])}, "
                "expected no smaller number. Export it again."
            )
        offset += len(batch) - 1


def _check_form(reader: IndexedReader) -> None:
    """Check that each document is one sequence of at least one token."""
    offset = 0
    for lengths in in_batches(reader.lengths):
        check_lengths(f"{reader.prefix}.idx", lengths, offset)
        offset += len(lengths)
    if len(reader.documents) != len(reader) + 1 or any(
        (np.diff(batch) != 1).any() for batch in _overlapping_batches(reader.documents)
    ):
        raise IntegrityError(
            f"{reader.prefix}.idx: {len(reader.documents) - 1} documents in {len(reader)} sequences, expected one "
            "sequence per document. Export it again."
        )


def check_ids(path: str | Path, ids: np.ndarray, vocabulary: int | None = None) -> None:
    """Raise IntegrityError if an id of a file is outside the vocabulary, or if `vocabulary` is None, outside the range
    of the dtype."""
    bound = vocabulary if vocabulary is not None else np.iinfo(ids.dtype).max + 1
    if ids.dtype.kind == "u" and bound > np.iinfo(ids.dtype).max:
        return
    for first in range(0, len(ids), BATCH_BYTES):
        batch = ids[first : first + BATCH_BYTES]
        if batch.min() < 0 or batch.max() >= bound:
            position = first + int(np.argmax((batch < 0) | (batch >= bound)))
            raise IntegrityError(
                f"{path}: id {int(ids[position])} at token {position}, expected 0 to {bound - 1}. Another tokenizer "
                "wrote it, or the file is damaged. Name the tokenizer that wrote it, or export it again."
            )


def _overlapping_batches(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield slices that share one element with the next, to compare neighbours."""
    return (values[first : first + BATCH_SEQUENCES + 1] for first in range(0, len(values) - 1, BATCH_SEQUENCES))
