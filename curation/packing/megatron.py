# SPDX-License-Identifier: Apache-2.0
"""Megatron and NeMo `.bin`/`.idx` pairs: writer and joiner. `curation/packing/indexed.py` reads and checks them.

One document is one sequence. Token bytes are copied and never decoded (`copy_file_range`), and an index is streamed, so
memory does not grow with the corpus; only a shuffled join keeps 12 bytes per document. Layout of the index, all
little-endian, S sequences:

    0        9    b"MMIDIDX\\0\\0"
    9        8    uint64 version = 1
    17       1    uint8  dtype code (uint16 = 8, int32 = 4)
    18       8    uint64 S
    26       8    uint64 documents + 1
    34       4 S  int32  sequence lengths in tokens
    34+4S    8 S  int64  sequence pointers in bytes into the .bin
    34+12S   8 D  int64  document indices 0 .. S

as megatron-core 0.16.1 reads it (`megatron/core/datasets/indexed_dataset.py`).
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import count, takewhile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import msgspec
import numpy as np

from curation.arrays import end_of_piece, pieces_by_size
from curation.errors import IntegrityError, OutputError
from curation.files import GrowingDigest, begin_sync, file_sha256, make_folder, sync_folder

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")  # "<" packs without padding: 34 bytes
DTYPE_CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}

UINT16_VOCABULARY = 65500  # Megatron's DType.optimal_dtype; not 65536
MAX_SEQUENCE_TOKENS = 2**31 - 1  # int32 lengths
MAX_SEQUENCES = 2**31 - 1  # GPTDataset numbers documents as int32
DEFAULT_MAX_BYTES = 10_000_000_000  # NVIDIA: 10 GB per file and more, tens of files

CHUNK_SEQUENCES = 1 << 20  # 20 MB of index at a time
CHUNK_BYTES = 16 << 20

Lengths = np.ndarray | Callable[[], Iterable[np.ndarray]]


class PairCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a pair holds. `prefix`: path without suffix. `documents`: those in the pair; `empty_documents`: those
    without tokens that stand between them in the input and are not in the pair. `bytes`: of the `.bin`."""

    prefix: str
    documents: int
    empty_documents: int
    tokens: int
    bytes: int
    dtype: str


class PairInfo(PairCounts, frozen=True, kw_only=True):
    """One finished pair."""

    sha256_bin: str
    sha256_idx: str


class TrainingPair(NamedTuple):
    """A finished pair of a run: of which input, and of which side; `split` is empty in a run without splits."""

    source: str
    split: str
    info: PairInfo


def choose_dtype(vocabulary: int) -> np.dtype:
    """uint16 for a vocabulary below 65500 tokens, else int32, as all of NVIDIA's writers choose."""
    return np.dtype("<u2") if vocabulary < UINT16_VOCABULARY else np.dtype("<i4")


def write_index(path: str | Path, dtype: np.dtype | type, lengths: Lengths) -> int:
    """Write and sync the `.idx` at `path` for documents of `lengths` tokens; gives their number.

    `lengths` is an int32 array, memory-mapped for instance, or a callable that gives its chunks anew each time it is
    called (four times); memory stays constant either way. Raises `IntegrityError` for a length below 1 or for 2^31
    documents and more.
    """
    dtype = np.dtype(dtype)
    chunks = lengths if callable(lengths) else lambda: in_chunks(lengths)
    num_sequences = sum(len(chunk) for chunk in chunks())
    if num_sequences > MAX_SEQUENCES:
        raise IntegrityError(
            f"{path}: {num_sequences} documents, one pair takes {MAX_SEQUENCES}. Write smaller parts (max_bytes)."
        )
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, VERSION, _dtype_code(dtype), num_sequences, num_sequences + 1))
        file.writelines(check_positive(path, chunk).astype("<i4") for chunk in chunks())
        file.writelines(byte_pointers(chunks(), dtype.itemsize))
        file.writelines(_counting(num_sequences + 1))
        _sync(file)
    return num_sequences


class PairWriter:
    """Writes `<prefix>.bin` and `<prefix>.idx`, whole or not at all.

        with PairWriter(prefix, dtype) as writer:
            writer.append(ids, lengths)
            info = writer.commit()

    The files grow in the folder `_tmp.<name>` beside them and are renamed by `commit`; leaving the block without it
    removes that folder. Raises `OutputError` where one of the pair exists already, unless `force`: then it is replaced,
    and Megatron's index cache of the old pair is removed.
    """

    def __init__(self, prefix: str | Path, dtype: np.dtype | type, *, force: bool = False) -> None:
        self.prefix = Path(prefix)
        self.dtype = np.dtype(dtype)
        self.documents = self.empty_documents = self.tokens = self._followed = 0
        _dtype_code(self.dtype)
        if not force:
            self._refuse_overwrite()
        self._folder = self.prefix.with_name(f"_tmp.{self.prefix.name}")
        shutil.rmtree(self._folder, ignore_errors=True)  # of a run that was killed
        make_folder(self._folder)
        with ExitStack() as opened:
            opened.callback(shutil.rmtree, self._folder, ignore_errors=True)
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
        """Bytes of tokens so far."""
        return self.tokens * self.dtype.itemsize

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        """Add documents: `ids` of all of them back to back in the pair's dtype, `lengths` in tokens. Lengths of 0 are
        counted as empty documents and not written. Raises `IntegrityError` where the two do not fit."""
        if ids.dtype != self.dtype:
            raise IntegrityError(
                f"{self.prefix}: expected ids of {self.dtype}, got {ids.dtype}. Check their range, then cast them."
            )
        self._note(lengths, ids.nbytes)
        _write_all(self._bin.fileno(), memoryview(np.ascontiguousarray(ids).view("u1")))
        self._follow()

    def append_file(self, token_path: str | Path, lengths: np.ndarray, byte_range: tuple[int, int]) -> None:
        """Like `append`, with the ids copied from the bytes `[start, stop)` of a file, by the kernel where it can."""
        start, stop = byte_range
        self._note(lengths, stop - start)
        with open(token_path, "rb", buffering=0) as source:
            _copy_range(source.fileno(), self._bin.fileno(), start, stop)
        self._follow()

    def commit(self) -> PairInfo:
        """Sync and rename: the old `.idx` goes first and the new one comes last, so that there is never an index of
        other tokens. Raises `OutputError` for a pair without documents: Megatron cannot map an empty `.bin`."""
        if not self.documents:
            raise OutputError(
                f"{self.prefix}: no document with tokens, Megatron cannot open an empty .bin. Leave the pair out."
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

    def _refuse_overwrite(self) -> None:
        for path in (suffixed(self.prefix, ".bin"), suffixed(self.prefix, ".idx")):
            if path.exists():
                raise OutputError(f"{path} exists already. Choose another folder, or force the replacement.")

    def _note(self, lengths: np.ndarray, num_bytes: int) -> None:
        lengths = np.asarray(lengths)
        kept = lengths[lengths != 0]
        tokens = int(kept.sum(dtype=np.int64))
        if tokens * self.dtype.itemsize != num_bytes or (len(kept) and kept.min() < 0):
            raise IntegrityError(
                f"{self.prefix}: lengths add up to {tokens} tokens of {self.dtype.itemsize} bytes, the tokens take "
                f"{num_bytes} bytes. Lengths must count end-of-document tokens."
            )
        self._lengths.write(kept.astype("<i4"))
        self.documents += len(kept)
        self.empty_documents += len(lengths) - len(kept)
        self.tokens += tokens

    def _follow(self) -> None:
        """Has the disk and the digest catch up now and then, so that little is left to do in the end."""
        if self.bytes - self._followed >= CHUNK_BYTES:
            self._followed = self.bytes
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
        suffixed(self.prefix, ".idx").unlink(missing_ok=True)
        remove_stale_cache(self.prefix)
        sync_folder(folder)
        os.replace(self._folder / "bin", suffixed(self.prefix, ".bin"))
        sync_folder(folder)
        os.replace(self._folder / "idx", suffixed(self.prefix, ".idx"))
        sync_folder(folder)


def join_parts(
    parts: Sequence[tuple[str | Path, str | Path]],
    prefix_stem: str | Path,
    dtype: np.dtype | type,
    max_bytes: int = DEFAULT_MAX_BYTES,
    *,
    order: np.ndarray | None = None,
    force: bool = False,
) -> list[PairInfo]:
    """Join parts, in their order, to pairs `<prefix_stem>_00000_text_document.bin/.idx`, `_00001_...` and so on.

    A part is a file of ids in `dtype`, back to back, and a file of little-endian int32 lengths in tokens, 0 for an
    empty document, which is counted and left out. Pairs are cut between documents so that no `.bin` has more than
    `max_bytes` bytes, unless one document alone has. The bytes depend on the documents and not on how they were cut
    into parts. Parts without any token give no pair: the result is an empty list then.

    `order` puts the documents that have tokens into another order: an int64 permutation of their numbers, counted over
    all parts. It takes 12 bytes of memory per document and reads the parts in random order; empty documents are then
    all counted on the first pair.

    With `force` pairs of the stem are replaced, and those that have no successor are deleted, last.

    Raises `IntegrityError` where a part's lengths do not fit its tokens or `order` is no permutation, `OutputError`
    where a pair of the stem exists (unless `force`). Pairs finished before an error stay.
    """
    stem = Path(prefix_stem)
    if not force:
        refuse_existing(stem)
    with _Cutter(stem, np.dtype(dtype), max_bytes, force) as cutter:
        if order is None:
            _copy_in_order(parts, cutter)
        else:
            _copy_shuffled(parts, cutter, order)
        pairs = cutter.finish()
    _delete_pairs(stem, len(pairs))
    return pairs


def refuse_existing(stem: Path, besides: Sequence[str] = ()) -> None:
    """OutputError where there is a pair of this stem, of whatever number, that is not named `besides`."""
    for path in sorted(stem.parent.glob("*_text_document.*")):
        if path.suffix in (".idx", ".bin") and is_of_stem(stem, path.stem) and path.stem not in besides:
            raise OutputError(f"{path} exists already. Choose another name, or force the replacement.")


def is_of_stem(stem: Path, name: str) -> bool:
    """Whether a pair of that name is one of a stem's, which have five digits; a date has eight."""
    return re.fullmatch(re.escape(stem.name) + r"_\d{5}_text_document", name) is not None


def remove_stale_cache(prefix: str | Path) -> bool:
    """Remove Megatron's index cache of a pair, the folder `<prefix>/cache`; says whether there was one.

    The cache's key is the path and not the content, so that training on a replaced pair would draw from the old one. A
    cache kept elsewhere (`--data-cache-path`, `path_to_cache`) is not found.
    """
    cache = Path(prefix) / "cache"
    if not cache.is_dir():
        return False
    shutil.rmtree(cache)
    if not os.listdir(prefix):
        os.rmdir(prefix)
    return True


# ---- joining


def _prefix(stem: Path, number: int) -> Path:
    return stem.with_name(f"{stem.name}_{number:05d}_text_document")


def list_pairs(stem: Path, first: int = 0) -> list[Path]:
    """The prefixes of a stem from a number on, up to the first that has no file: what lies behind a gap is somebody
    else's."""
    numbered = (_prefix(stem, number) for number in count(first))
    return list(takewhile(lambda prefix: any(suffixed(prefix, end).exists() for end in (".idx", ".bin")), numbered))


def _delete_pairs(stem: Path, first: int) -> None:
    """The last goes first, so that a kill leaves no gap; and indexes before their tokens."""
    for prefix in reversed(list_pairs(stem, first)):
        for suffix in (".idx", ".bin"):
            suffixed(prefix, suffix).unlink(missing_ok=True)
        remove_stale_cache(prefix)


class _Cutter:
    """Opens the next pair when the next document does not fit the current one."""

    def __init__(self, stem: Path, dtype: np.dtype, max_bytes: int, force: bool) -> None:
        self.stem, self.dtype, self.max_bytes, self.force = stem, dtype, max_bytes, force
        self.writer: PairWriter | None = None
        self.finished: list[PairInfo] = []
        self.waiting_empty = 0  # empty documents before the first pair

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is not None:
            self.writer.__exit__(None, None, None)

    def spread(self, lengths: np.ndarray) -> Iterator[tuple[PairWriter, slice, int, int]]:
        """Where runs of the next documents go: writer, which of `lengths`, first and last byte counted from their
        start. The caller writes a run before it asks for the next."""
        sizes = lengths.astype(np.int64) * self.dtype.itemsize
        ends = np.cumsum(sizes)
        first = self._skip_leading_empty(sizes)
        while first < len(sizes):
            start = int(ends[first] - sizes[first])
            writer = self._writer_for(int(sizes[first]))
            stop = end_of_piece(ends, first, max(0, self.max_bytes - writer.bytes))
            yield writer, slice(first, stop), start, int(ends[stop - 1])
            first = stop

    def finish(self) -> list[PairInfo]:
        if self.writer is not None:
            with self.writer as writer:
                self.finished.append(writer.commit())
        self.writer = None
        return self.finished

    def _skip_leading_empty(self, sizes: np.ndarray) -> int:
        if self.writer is not None:
            return 0
        first = int(np.argmax(sizes > 0)) if sizes.any() else len(sizes)
        self.waiting_empty += first
        return first

    def _writer_for(self, size: int) -> PairWriter:
        if self.writer is None or (size and self.writer.bytes + size > self.max_bytes):
            self.finish()
            self.writer = PairWriter(_prefix(self.stem, len(self.finished)), self.dtype, force=self.force)
            self.writer.empty_documents, self.waiting_empty = self.waiting_empty, 0
        return self.writer


def _copy_in_order(parts: Sequence[tuple[str | Path, str | Path]], cutter: _Cutter) -> None:
    for token_path, lengths_path in parts:
        done = 0
        for lengths in in_chunks(_part_lengths(token_path, lengths_path, cutter.dtype.itemsize)):
            for writer, run, start, stop in cutter.spread(lengths):
                writer.append_file(token_path, lengths[run], (done + start, done + stop))
            done += int(lengths.sum(dtype=np.int64)) * cutter.dtype.itemsize


def _copy_shuffled(parts: Sequence[tuple[str | Path, str | Path]], cutter: _Cutter, order: np.ndarray) -> None:
    all_lengths = [_part_lengths(*part, cutter.dtype.itemsize) for part in parts]
    kept = [lengths[lengths != 0] for lengths in all_lengths]
    cutter.waiting_empty = sum(map(len, all_lengths)) - sum(map(len, kept))
    lengths = np.concatenate([np.empty(0, "<i4"), *kept])
    _check_permutation(order, len(lengths))
    first_document = np.cumsum([0, *map(len, kept)])
    starts = np.concatenate(
        [np.empty(0, np.int64), *(p for k in kept for p in byte_pointers([k], cutter.dtype.itemsize))]
    )
    sources = [memoryview(map_array(path, "u1", 0, Path(path).stat().st_size)) for path, _ in parts]
    for chosen in in_chunks(order):
        part_of = np.searchsorted(first_document, chosen, side="right") - 1
        for writer, run, _, _ in cutter.spread(lengths[chosen]):
            _gather(writer, sources, part_of[run], starts[chosen[run]], lengths[chosen[run]])


def _gather(
    writer: PairWriter, sources: list[memoryview], part_of: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> None:
    """Documents from anywhere to the end of the pair, in buffers of CHUNK_BYTES or one larger document."""
    sizes = lengths.astype(np.int64) * writer.dtype.itemsize
    for run in pieces_by_size(np.cumsum(sizes), CHUNK_BYTES):
        buffer = np.empty(int(sizes[run].sum()), "u1")
        _fill(memoryview(buffer), sources, part_of[run], starts[run], sizes[run])
        writer.append(buffer.view(writer.dtype), lengths[run])


def _fill(
    target: memoryview, sources: list[memoryview], part_of: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> None:
    at = 0
    for part, start, size in zip(part_of.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        target[at : at + size] = sources[part][start : start + size]  # 0.3 us a document: the copy dominates
        at += size


def _check_permutation(order: np.ndarray, count: int) -> None:
    seen = np.zeros(count, bool)
    fits = len(order) == count and (not count or (int(order.min()) >= 0 and int(order.max()) < count))
    if fits:
        seen[order] = True
    if not fits or not seen.all():
        raise IntegrityError(
            f"order has {len(order)} numbers, expected each of 0 to {count - 1} once: it counts the documents that "
            "have tokens over all parts. Make it from the same parts."
        )


def _part_lengths(token_path: str | Path, lengths_path: str | Path, itemsize: int) -> np.ndarray:
    size, length_bytes = Path(token_path).stat().st_size, Path(lengths_path).stat().st_size
    lengths = map_array(lengths_path, "<i4", 0, length_bytes // 4)
    num_bytes = sum(int(chunk.sum(dtype=np.int64)) for chunk in in_chunks(lengths)) * itemsize
    negative = any(chunk.min() < 0 for chunk in in_chunks(lengths))
    if length_bytes % 4 or negative or num_bytes != size:
        raise IntegrityError(
            f"{token_path} has {size} bytes, the lengths in {lengths_path} ({length_bytes} bytes) make it {num_bytes}"
            f"{' and some are negative' if negative else ''}. Remove the part and run again."
        )
    return lengths


# ---- files and arrays


def _dtype_code(dtype: np.dtype) -> int:
    codes = {np.dtype(name): code for code, name in DTYPE_CODES.items()}
    if dtype not in codes:
        raise OutputError(f"dtype {dtype} is none of Megatron's {[np.dtype(n).name for n in DTYPE_CODES.values()]}.")
    return codes[dtype]


def check_positive(path: str | Path, lengths: np.ndarray, first: int = 0) -> np.ndarray:
    if len(lengths) and lengths.min() < 1:
        raise IntegrityError(
            f"{path}: sequence {first + int(np.argmax(lengths < 1))} has {int(lengths.min())} tokens, expected at "
            "least 1: empty documents are left out."
        )
    return lengths


def byte_pointers(chunks: Iterable[np.ndarray], itemsize: int) -> Iterator[np.ndarray]:
    """The byte where each sequence starts, per chunk of lengths; int64 throughout, a sum of int32 wraps at 2^31."""
    end = 0
    for lengths in chunks:
        sizes = lengths.astype("<i8") * itemsize
        ends = np.cumsum(sizes) + end
        yield ends - sizes
        end = int(ends[-1]) if len(ends) else end


def _counting(stop: int) -> Iterator[np.ndarray]:
    firsts = range(0, stop, CHUNK_SEQUENCES)
    return (np.arange(first, min(first + CHUNK_SEQUENCES, stop), dtype="<i8") for first in firsts)


def in_chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    return (values[first : first + CHUNK_SEQUENCES] for first in range(0, len(values), CHUNK_SEQUENCES))


def map_array(path: str | Path, dtype: str | np.dtype, offset: int, count: int) -> np.ndarray:
    if not count:  # an empty range cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, (count,)))


def _write_all(descriptor: int, data: memoryview) -> None:
    while data.nbytes:  # one write takes at most 2 GiB
        data = data[os.write(descriptor, data) :]


def _copy_range(source: int, target: int, start: int, stop: int) -> None:
    """Bytes to the end of `target`. The kernel's copy is refused across some file systems."""
    if os.fstat(source).st_size < stop:
        raise IntegrityError(f"expected {stop} bytes of tokens, the file has {os.fstat(source).st_size}. Run it again.")
    while start < stop:
        try:
            copied = os.copy_file_range(source, target, min(stop - start, 1 << 30), offset_src=start)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF):
                raise
            return _copy_by_hand(source, target, start, stop)
        except AttributeError:  # not Linux
            return _copy_by_hand(source, target, start, stop)
        if not copied:
            return _copy_by_hand(source, target, start, stop)
        start += copied
    return None


def _copy_by_hand(source: int, target: int, start: int, stop: int) -> None:
    while start < stop:
        data = os.pread(source, min(stop - start, CHUNK_BYTES), start)
        if not data:
            raise IntegrityError(f"the file of tokens ended at byte {start}, expected {stop}. Run it again.")
        _write_all(target, memoryview(data))
        start += len(data)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def suffixed(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)  # with_suffix would turn "v1.5" into "v1.bin"
