# SPDX-License-Identifier: Apache-2.0
"""Megatron and NeMo `.bin`/`.idx` pairs: layout and writer.

`curation/tokens/joining.py` joins token files to pairs, `curation/tokens/indexed.py` reads and checks pairs.

One document is one sequence. `copy_file_range` copies token bytes undecoded, and the index is streamed. Memory does not
grow with the corpus. Layout of the index, little-endian, for S sequences and D = documents + 1:

    0        9    b"MMIDIDX\\0\\0"
    9        8    uint64 version = 1
    17       1    uint8  dtype code (uint16 = 8, int32 = 4)
    18       8    uint64 S
    26       8    uint64 D
    34       4 S  int32  sequence lengths in tokens
    34+4S    8 S  int64  sequence pointers in bytes into the .bin
    34+12S   8 D  int64  document indices 0 .. S

Source: the reader in megatron-core 0.16.1, `megatron/core/datasets/indexed_dataset.py`. The `.bin` is the ids of all
sequences back to back in the dtype of the index, without a header.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import msgspec
import numpy as np

from curation.base.errors import IntegrityError, OutputError
from curation.base.system.files import (
    GrowingDigest,
    begin_sync,
    check_new,
    file_sha256,
    sweep_dead,
    sync_folder,
    temporary_folder,
)
from curation.base.system.leases import fence

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")  # "<" packs without padding: 34 bytes
DTYPE_CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}

UINT16_VOCABULARY = 65500  # Megatron's DType.optimal_dtype; not 65536
MAX_SEQUENCE_TOKENS = 2**31 - 1  # int32 lengths
MAX_SEQUENCES = 2**31 - 1  # GPTDataset numbers documents as int32

BATCH_SEQUENCES = 1 << 20  # 20 MB of index
BATCH_BYTES = 16 << 20

Lengths = np.ndarray | Callable[[], Iterable[np.ndarray]]


class PairCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a pair.

    prefix           path without suffix
    documents        documents in the pair
    empty_documents  documents without tokens. A `PairWriter` counts them and does not write them
    tokens, bytes    size of the `.bin`
    dtype            NumPy name of the ids' dtype: "uint16", "int32"
    """

    prefix: str
    documents: int
    empty_documents: int
    tokens: int
    bytes: int
    dtype: str


class PairInfo(PairCounts, frozen=True, kw_only=True):
    """A finished pair: its counts, and the SHA-256 of both files in hexadecimal."""

    sha256_bin: str
    sha256_idx: str


class TrainingPair(NamedTuple):
    """A finished pair of a run. `source`: name of the input. `split`: its split, "" in a run without splits."""

    source: str
    split: str
    info: PairInfo


def choose_dtype(vocabulary: int) -> np.dtype:
    """Return uint16 for a vocabulary below 65500 tokens, else int32: the rule of NVIDIA's writers.

    Source: `DType.optimal_dtype` in megatron-core's `indexed_dataset.py`.
    """
    return np.dtype("<u2") if vocabulary < UINT16_VOCABULARY else np.dtype("<i4")


def write_index(path: str | Path, dtype: np.dtype | type, lengths: Lengths) -> int:
    """Write and sync the `.idx` at `path` (layout: top of this module) and return the number of documents.

    dtype    dtype of the ids in the `.bin`
    lengths  int32 array of shape (documents,), tokens of each document, memory-mapped for instance. Or a callable that
             returns the batches of that array; it is called four times. Memory is constant in both cases

    IntegrityError: a length below 1 or above 2^31 - 1, or 2^31 documents or more. OutputError: a dtype that
    Megatron does not have.
    """
    dtype = np.dtype(dtype)
    batches = lengths if callable(lengths) else lambda: in_batches(lengths)
    num_sequences = sum(len(batch) for batch in batches())
    if num_sequences > MAX_SEQUENCES:
        raise IntegrityError(
            f"{path}: {num_sequences} documents, expected at most {MAX_SEQUENCES} in a pair. Set a smaller max_bytes."
        )
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, _dtype_code(dtype), num_sequences, num_sequences + 1))
        file.writelines(check_lengths(path, batch).astype("<i4") for batch in batches())
        file.writelines(byte_pointers(batches(), dtype.itemsize))
        file.writelines(_count_up(num_sequences + 1))
        _sync(file)
    return num_sequences


class PairWriter:
    """Writes `<prefix>.bin` and `<prefix>.idx`, both or neither.

        with PairWriter(prefix, dtype) as writer:
            writer.append(ids, lengths)
            info = writer.commit()

    prefix  path without suffix; missing folders are made
    dtype   dtype of the ids, one of Megatron's (`choose_dtype` for a vocabulary)
    force   replace an existing pair and remove Megatron's index cache of the old one. Default: False
    sweeps  delete what killed processes have left of this pair; this lists its folder. Default: True

    The files grow in a folder `_tmp.<name>...` next to the pair, and `commit` renames them. If the block ends without
    `commit`, that folder is removed. `documents`, `empty_documents`, `tokens` and `bytes` count what was appended.

    OutputError: a file of the pair exists and `force` is False, or Megatron does not have the dtype.
    """

    def __init__(self, prefix: str | Path, dtype: np.dtype | type, *, force: bool = False, sweeps: bool = True) -> None:
        self.prefix = Path(prefix)
        self.dtype = np.dtype(dtype)
        self.documents = self.empty_documents = self.tokens = self._synced_bytes = 0
        _dtype_code(self.dtype)
        for suffix in (".bin", ".idx"):
            check_new(suffixed(self.prefix, suffix), force)
        folder = self.prefix.with_name(f"_tmp.{self.prefix.name}")
        with ExitStack() as opened:
            if sweeps:
                sweep_dead(folder)
            self._folder = opened.enter_context(temporary_folder(folder))
            self._bin = opened.enter_context(open(self._folder / "bin", "w+b", buffering=0))
            self._lengths = opened.enter_context(open(self._folder / "lengths", "w+b"))
            self._digest = opened.enter_context(closing(GrowingDigest(self._folder / "bin")))
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @property
    def bytes(self) -> int:
        """Size of the `.bin` so far."""
        return self.tokens * self.dtype.itemsize

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Append documents.

        ids      array of shape (sum of lengths,) in the pair's dtype: the ids of all documents back to back
        lengths  integer array of shape (documents,), tokens of each. A length of 0 counts as an empty document and is
                 not written

        IntegrityError: another dtype, a length below 0 or above 2^31 - 1, or lengths that do not fit the ids.
        """
        if ids.dtype != self.dtype:
            raise IntegrityError(
                f"{self.prefix}: expected ids of {self.dtype}, got {ids.dtype}. Check their range, then cast them."
            )
        self._add_lengths(lengths, ids.nbytes)
        _write_all(self._bin.fileno(), memoryview(np.ascontiguousarray(ids).view("u1")))
        self._sync_and_hash()

    def append_file(self, ids_path: str | Path, lengths: np.ndarray, byte_range: tuple[int, int]) -> None:
        """Append documents whose ids are the bytes `[start, stop)` of a file. The kernel copies them where it can.

        IntegrityError: a file that ends before `stop`, and the errors of `append`.
        """
        start, stop = byte_range
        self._add_lengths(lengths, stop - start)
        with open(ids_path, "rb", buffering=0) as source:
            _copy_range(source.fileno(), self._bin.fileno(), start, stop)
        self._sync_and_hash()

    def commit(self) -> PairInfo:
        """Sync and rename both files and return the pair.

        The old `.idx` is removed first and the new one renamed last, so an index never belongs to other tokens.
        OutputError: a pair without documents, since Megatron cannot map an empty `.bin`. IntegrityError: the size of
        the `.bin` is not the number of bytes written.
        """
        if not self.documents:
            raise OutputError(
                f"{self.prefix}: no document with tokens. Megatron cannot open an empty .bin: leave the pair out."
            )
        self._digest.follow()
        self._sync_and_check()
        write_index(self._folder / "idx", self.dtype, np.memmap(self._folder / "lengths", "<i4", "r"))
        digest = self._digest.finish()
        self._rename()
        return PairInfo(
            prefix=str(self.prefix),
            documents=self.documents,
            empty_documents=self.empty_documents,
            tokens=self.tokens,
            bytes=self.bytes,
            dtype=self.dtype.name,
            sha256_bin=digest,
            sha256_idx=file_sha256(suffixed(self.prefix, ".idx")),
        )

    def _add_lengths(self, lengths: np.ndarray, num_bytes: int) -> None:
        lengths = np.asarray(lengths)
        kept = lengths[lengths != 0]
        tokens = int(kept.sum(dtype=np.int64))
        if tokens * self.dtype.itemsize != num_bytes or (len(kept) and kept.min() < 0):
            raise IntegrityError(
                f"{self.prefix}: lengths add up to {tokens} tokens of {self.dtype.itemsize} bytes, the ids take "
                f"{num_bytes} bytes. Count end-of-document tokens in the lengths."
            )
        self._lengths.write(check_lengths(self.prefix, kept, self.documents).astype("<i4"))
        self.documents += len(kept)
        self.empty_documents += len(lengths) - len(kept)
        self.tokens += tokens

    def _sync_and_hash(self) -> None:
        """Sync and hash the data written so far, so that little work remains for `commit`."""
        if self.bytes - self._synced_bytes >= BATCH_BYTES:
            self._synced_bytes = self.bytes
            begin_sync(self._bin.fileno())
            self._digest.follow()

    def _sync_and_check(self) -> None:
        self._lengths.flush()
        _sync(self._bin)
        size = os.fstat(self._bin.fileno()).st_size
        if size != self.bytes:
            raise IntegrityError(
                f"{self.prefix}.bin has {size} bytes, expected {self.bytes}. Check the disk and run again."
            )

    def _rename(self) -> None:
        folder = self.prefix.parent
        fence()
        remove_stale_cache(self.prefix)
        if os.path.lexists(old := suffixed(self.prefix, ".idx")):
            old.unlink()
            sync_folder(folder)
        os.replace(self._folder / "bin", suffixed(self.prefix, ".bin"))
        sync_folder(folder)
        os.replace(self._folder / "idx", suffixed(self.prefix, ".idx"))
        sync_folder(folder)


def remove_stale_cache(prefix: str | Path) -> bool:
    """Remove Megatron's index cache of a pair, the folder `<prefix>/cache`. Return whether it existed.

    Megatron's cache key is the path, not the content: training on a replaced pair would use the old samples. A cache in
    another folder (`--data-cache-path`, `path_to_cache`) is not removed. OutputError: the cache folder is a link.
    """
    cache = Path(prefix) / "cache"
    if not cache.is_dir():
        return False
    if link := next((path for path in (cache.parent, cache) if path.is_symlink()), None):
        raise OutputError(f"{link} is a link to Megatron's cache of a pair that is replaced. Delete link and cache")
    shutil.rmtree(cache)
    if not os.listdir(prefix):
        os.rmdir(prefix)
    return True


# ---- files and arrays


def _dtype_code(dtype: np.dtype) -> int:
    codes = {np.dtype(name): code for code, name in DTYPE_CODES.items()}
    if dtype not in codes:
        names = [np.dtype(name).name for name in DTYPE_CODES.values()]
        raise OutputError(f"dtype {dtype} is none of Megatron's {names}. Cast the ids to one of them.")
    return codes[dtype]


def check_lengths(path: str | Path, lengths: np.ndarray, first: int = 0) -> np.ndarray:
    """Return `lengths`. IntegrityError: a length below 1, or one that does not fit int32. `first`: number of the first
    sequence, for the message."""
    wrong = np.flatnonzero((lengths < 1) | (lengths > MAX_SEQUENCE_TOKENS))
    if len(wrong):
        advice = "leave empty documents out" if lengths[wrong[0]] < 1 else "cut the document before tokenising"
        raise IntegrityError(
            f"{path}: sequence {first + wrong[0]} has {lengths[wrong[0]]} tokens, expected 1 to {MAX_SEQUENCE_TOKENS}: "
            f"{advice}."
        )
    return lengths


def byte_pointers(batches: Iterable[np.ndarray], itemsize: int) -> Iterator[np.ndarray]:
    """Yield the byte where each sequence starts (int64), one array per batch of lengths. int32 would wrap at 2^31."""
    end = 0
    for lengths in batches:
        sizes = lengths.astype("<i8") * itemsize
        ends = np.cumsum(sizes) + end
        yield ends - sizes
        end = int(ends[-1]) if len(ends) else end


def _count_up(stop: int) -> Iterator[np.ndarray]:
    firsts = range(0, stop, BATCH_SEQUENCES)
    return (np.arange(first, min(first + BATCH_SEQUENCES, stop), dtype="<i8") for first in firsts)


def in_batches(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array in slices of BATCH_SEQUENCES elements, without copies."""
    return (values[first : first + BATCH_SEQUENCES] for first in range(0, len(values), BATCH_SEQUENCES))


def map_array(path: str | Path, dtype: str | np.dtype, offset: int, count: int) -> np.ndarray:
    """Return `count` elements of a file from byte `offset`, memory-mapped and read-only."""
    if not count:  # an empty range cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, (count,)))


def _write_all(descriptor: int, data: memoryview) -> None:
    while data.nbytes:  # one write takes at most 2 GiB
        data = data[os.write(descriptor, data) :]


def _copy_range(source: int, target: int, start: int, stop: int) -> None:
    """Append bytes `[start, stop)` of `source` to `target`. Some file systems refuse the kernel's copy."""
    if os.fstat(source).st_size < stop:
        raise IntegrityError(f"the file of tokens has {os.fstat(source).st_size} bytes, expected {stop}. Run again.")
    while start < stop:
        try:
            copied = os.copy_file_range(source, target, min(stop - start, 1 << 30), offset_src=start)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF):
                raise
            return _copy_in_process(source, target, start, stop)
        except AttributeError:  # not Linux
            return _copy_in_process(source, target, start, stop)
        if not copied:
            return _copy_in_process(source, target, start, stop)
        start += copied
    return None


def _copy_in_process(source: int, target: int, start: int, stop: int) -> None:
    while start < stop:
        data = os.pread(source, min(stop - start, BATCH_BYTES), start)
        if not data:
            raise IntegrityError(f"the file of tokens ends at byte {start}, expected {stop}. Run again.")
        _write_all(target, memoryview(data))
        start += len(data)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def suffixed(prefix: Path, suffix: str) -> Path:
    """Return the path of a file of the pair: `.bin`, `.idx` or another suffix."""
    return prefix.with_name(prefix.name + suffix)  # with_suffix would turn "v1.5" into "v1.bin"
