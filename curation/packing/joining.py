# SPDX-License-Identifier: Apache-2.0
"""Join token files to Megatron pairs of limited size. Layout and writer of a pair: `curation/packing/megatron.py`.

The kernel copies the tokens, so memory does not grow with the corpus. A shuffled join keeps 12 bytes per document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Self

import numpy as np

from curation.arrays import batch_end_at, batches_by_size
from curation.errors import IntegrityError, OutputError
from curation.packing.megatron import (
    BATCH_BYTES,
    PairInfo,
    PairWriter,
    byte_pointers,
    in_batches,
    map_array,
    remove_stale_cache,
    suffixed,
)
from curation.system.interrupts import check as check_interrupts
from curation.system.leases import fence
from curation.system.steps import each

DEFAULT_MAX_BYTES = 10_000_000_000  # NVIDIA recommends files of 10 GB and more, tens of files in all


def join_parts(
    token_parts: Sequence[tuple[str | Path, str | Path]],
    prefix_stem: str | Path,
    dtype: np.dtype | type,
    max_bytes: int = DEFAULT_MAX_BYTES,
    *,
    order: np.ndarray | None = None,
    force: bool = False,
) -> list[PairInfo]:
    """Join token files to pairs `<prefix_stem>_00000_text_document.bin/.idx`, `_00001_...` and return the pairs.

    token_parts  paths (ids, lengths) in the order to join. `ids`: raw ids in `dtype`, back to back. `lengths`:
                 little-endian int32, tokens of each document. Length 0 is an empty document: counted, not written
    prefix_stem  path of the pairs without number and suffix
    dtype        dtype of the ids, one of Megatron's (`DTYPE_CODES`)
    max_bytes    maximum size of a `.bin` in bytes, default 10 GB. Pairs are cut between documents, so a larger
                 document gets a pair for itself
    order        int64 permutation of the numbers of all documents with tokens, counted over all `token_parts`. It takes
                 12 bytes of memory per document and reads the files in random order. The first pair then counts all
                 empty documents. Default: file order
    force        replace the pairs of the stem, then delete those without a successor. Default: False

    The bytes of the pairs depend on the documents, not on their division into `token_parts`. Without any token the
    result is an empty list.

    IntegrityError: lengths do not fit the ids, or `order` is not a permutation. OutputError: a pair of the stem exists
    and `force` is False. Pairs finished before an error are kept.
    """
    stem = Path(prefix_stem)
    if not force:
        refuse_existing(stem)
    with _Cutter(stem, np.dtype(dtype), max_bytes, force) as cutter:
        if order is None:
            _copy_in_order(token_parts, cutter)
        else:
            _copy_shuffled(token_parts, cutter, order)
        pairs = cutter.finish()
    _delete_pairs(stem, len(pairs))
    return pairs


def refuse_existing(stem: Path, exceptions: Sequence[str] = ()) -> None:
    """Raise OutputError if a pair of the stem exists, of any number. Names in `exceptions` may exist."""
    for path in sorted(stem.parent.glob("*_text_document.*")):
        if path.suffix in (".idx", ".bin") and is_of_stem(stem, path.stem) and path.stem not in exceptions:
            raise OutputError(f"{path} exists already. Choose another name, or force the replacement.")


def is_of_stem(stem: Path, name: str) -> bool:
    """Return whether `name` is the name of a pair of the stem. Its number has five digits; a date has eight."""
    return re.fullmatch(re.escape(stem.name) + r"_\d{5}_text_document", name) is not None


def _prefix(stem: Path, number: int) -> Path:
    return stem.with_name(f"{stem.name}_{number:05d}_text_document")


def list_pairs(stem: Path, first: int = 0) -> list[Path]:
    """Return the prefixes of a stem from number `first` to the first gap. Pairs after a gap are another run's."""
    numbered = (_prefix(stem, number) for number in count(first))
    return list(takewhile(lambda prefix: any(suffixed(prefix, end).exists() for end in (".idx", ".bin")), numbered))


def _delete_pairs(stem: Path, first: int) -> None:
    """Delete from the last pair to the first: a kill then leaves no gap. Indexes before their tokens."""
    fence()
    for prefix in reversed(list_pairs(stem, first)):
        for suffix in (".idx", ".bin"):
            suffixed(prefix, suffix).unlink(missing_ok=True)
        remove_stale_cache(prefix)


class _Cutter:
    """Opens the next pair when a document does not fit the current one."""

    def __init__(self, stem: Path, dtype: np.dtype, max_bytes: int, force: bool) -> None:
        self.stem, self.dtype, self.max_bytes, self.force = stem, dtype, max_bytes, force
        self.writer: PairWriter | None = None
        self.finished: list[PairInfo] = []
        self.leading_empty = 0  # empty documents before the first pair

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is not None:
            self.writer.__exit__(None, None, None)

    def spread(self, lengths: np.ndarray) -> Iterator[tuple[PairWriter, slice, int, int]]:
        """Yield (writer, slice of `lengths`, first byte, last byte) for runs of documents. Write a run, then take the
        next. Bytes count from the first document of `lengths`."""
        sizes = lengths.astype(np.int64) * self.dtype.itemsize
        ends = np.cumsum(sizes)
        first = self._skip_leading_empty(sizes)
        while first < len(sizes):
            start = int(ends[first] - sizes[first])
            writer = self._writer_for(int(sizes[first]))
            stop = batch_end_at(ends, first, max(0, self.max_bytes - writer.bytes))
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
        self.leading_empty += first
        return first

    def _writer_for(self, size: int) -> PairWriter:
        if self.writer is None or (size and self.writer.bytes + size > self.max_bytes):
            self.finish()
            self.writer = PairWriter(_prefix(self.stem, len(self.finished)), self.dtype, force=self.force)
            self.writer.empty_documents, self.leading_empty = self.leading_empty, 0
        return self.writer


def _copy_in_order(token_parts: Sequence[tuple[str | Path, str | Path]], cutter: _Cutter) -> None:
    parts = each([*token_parts], f"joining {cutter.stem.name}", "part", size=lambda part: Path(part[0]).stat().st_size)
    for ids_path, lengths_path in parts:
        offset = 0  # bytes
        for lengths in in_batches(_part_lengths(ids_path, lengths_path, cutter.dtype.itemsize)):
            check_interrupts()
            for writer, run, start, stop in cutter.spread(lengths):
                writer.append_file(ids_path, lengths[run], (offset + start, offset + stop))
            offset += int(lengths.sum(dtype=np.int64)) * cutter.dtype.itemsize


def _copy_shuffled(token_parts: Sequence[tuple[str | Path, str | Path]], cutter: _Cutter, order: np.ndarray) -> None:
    all_lengths = [_part_lengths(*part, cutter.dtype.itemsize) for part in token_parts]
    kept = [lengths[lengths != 0] for lengths in all_lengths]
    cutter.leading_empty = sum(map(len, all_lengths)) - sum(map(len, kept))
    lengths = np.concatenate([np.empty(0, "<i4"), *kept])
    _check_permutation(order, len(lengths))
    first_document = np.cumsum([0, *map(len, kept)])
    starts = np.concatenate(
        [np.empty(0, np.int64), *(p for k in kept for p in byte_pointers([k], cutter.dtype.itemsize))]
    )
    sources = [memoryview(map_array(path, "u1", 0, Path(path).stat().st_size)) for path, _ in token_parts]
    batches = in_batches(order)
    for chosen in each(batches, f"joining {cutter.stem.name}, shuffled", "document", total=len(order), worth=len):
        part_of = np.searchsorted(first_document, chosen, side="right") - 1
        for writer, run, _, _ in cutter.spread(lengths[chosen]):
            _gather(writer, sources, part_of[run], starts[chosen[run]], lengths[chosen[run]])


def _gather(
    writer: PairWriter, sources: list[memoryview], part_of: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> None:
    """Append documents from any place to the pair, in buffers of BATCH_BYTES or one larger document."""
    sizes = lengths.astype(np.int64) * writer.dtype.itemsize
    for run in batches_by_size(np.cumsum(sizes), BATCH_BYTES):
        buffer = np.empty(int(sizes[run].sum()), "u1")
        _fill(memoryview(buffer), sources, part_of[run], starts[run], sizes[run])
        writer.append(buffer.view(writer.dtype), lengths[run])


def _fill(
    target: memoryview, sources: list[memoryview], part_of: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> None:
    offset = 0
    for part, start, size in zip(part_of.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        target[offset : offset + size] = sources[part][start : start + size]  # 0.3 us per document: copying dominates
        offset += size


def _check_permutation(order: np.ndarray, count: int) -> None:
    seen = np.zeros(count, bool)
    fits = len(order) == count and (not count or (int(order.min()) >= 0 and int(order.max()) < count))
    if fits:
        seen[order] = True
    if not fits or not seen.all():
        raise IntegrityError(
            f"order has {len(order)} numbers, expected each of 0 to {count - 1} once: it numbers the documents with "
            "tokens over all token files. Make it from the same files."
        )


def _part_lengths(ids_path: str | Path, lengths_path: str | Path, itemsize: int) -> np.ndarray:
    size, length_bytes = Path(ids_path).stat().st_size, Path(lengths_path).stat().st_size
    lengths = map_array(lengths_path, "<i4", 0, length_bytes // 4)
    num_bytes = sum(int(batch.sum(dtype=np.int64)) for batch in in_batches(lengths)) * itemsize
    negative = any(batch.min() < 0 for batch in in_batches(lengths))
    if length_bytes % 4 or negative or num_bytes != size:
        raise IntegrityError(
            f"{ids_path} has {size} bytes, expected {num_bytes} by the lengths in {lengths_path} ({length_bytes} bytes)"
            f"{'; some lengths are negative' if negative else ''}. Remove both files and run again."
        )
    return lengths
