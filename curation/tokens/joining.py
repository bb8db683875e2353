# SPDX-License-Identifier: Apache-2.0
"""Join token files to Megatron pairs of limited size. Layout and writer of a pair: `curation/tokens/megatron.py`.

The kernel of the operating system copies the tokens, so memory does not grow with the corpus. A shuffled join keeps 12
bytes per document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from curation.base.arrays import batch_end_at, batches_by_size
from curation.base.errors import IntegrityError, OutputError
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.leases import fence
from curation.base.system.steps import each
from curation.tokens.megatron import (
    BATCH_BYTES,
    PairInfo,
    PairWriter,
    byte_pointers,
    in_batches,
    map_array,
    remove_stale_cache,
    suffixed,
)

BARE = "*_document"  # end of a stem: the first pair has no number, as in train_document, train_00001_document
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
    max_bytes    maximum size of a `.bin` in bytes, default 10 GB. Pairs are cut between documents, so a larger document
                 gets its own pair
    order        int64 permutation of the numbers of all documents with tokens, counted over all `token_parts`. It takes
                 12 bytes of memory per document, and the files are read in random order. With an order, the first pair
                 counts all empty documents. Default: file order
    force        replace the pairs of the stem, then delete its other pairs. Default: False

    The bytes of the pairs depend on the documents, not on their division into `token_parts`. Without any token the
    result is an empty list.

    IntegrityError: lengths do not fit the ids, or `order` is not a permutation. OutputError: a pair of the stem exists
    and `force` is False. After an error, the finished pairs of files are kept.
    """
    stem = Path(prefix_stem)
    if not force:
        refuse_existing(stem)
    if order is None:
        planned = plan_pairs(token_parts, stem, dtype, max_bytes)
        writing = each(planned, f"joining {stem.name}", "pair", size=PlannedPair.size)
        pairs = [write_pair(pair, dtype, force=force) for pair in writing]
    else:
        with _Cutter(stem, np.dtype(dtype), max_bytes, force) as cutter:
            _copy_shuffled(token_parts, cutter, order)
            pairs = cutter.finish()
    delete_pairs(stem, len(pairs))
    return pairs


class Piece(NamedTuple):
    """The documents of a pair that are in one token file: a range of document numbers and a range of bytes."""

    ids: str
    lengths: str
    first: int
    last: int
    start: int
    stop: int


class PlannedPair(NamedTuple):
    """A pair to write.

    prefix           path without suffix
    empty_documents  documents without tokens before the first piece
    pieces           its documents, in order
    """

    prefix: str
    empty_documents: int
    pieces: list[Piece]

    def size(self) -> int:
        """Return the bytes of its tokens."""
        return sum(piece.stop - piece.start for piece in self.pieces)


def plan_pairs(
    token_parts: Sequence[tuple[str | Path, str | Path]], stem: Path, dtype: np.dtype | type, max_bytes: int
) -> list[PlannedPair]:
    """Return the pairs that `join_parts` writes without an order. Lengths are read only from files in which a pair
    begins or ends; `write_pair` checks the other files."""
    itemsize = np.dtype(dtype).itemsize
    pairs: list[PlannedPair] = []
    pair_bytes = leading_empty = 0
    for ids_path, lengths_path in each([*token_parts], "reading lengths", "part"):
        size, length_bytes = Path(ids_path).stat().st_size, Path(lengths_path).stat().st_size
        if pairs and pair_bytes + size <= max_bytes and length_bytes % 4 == 0:
            pairs[-1].pieces.append(Piece(str(ids_path), str(lengths_path), 0, length_bytes // 4, 0, size))
            pair_bytes += size
            continue
        number = position = 0  # documents and bytes of the part
        for lengths in in_batches(_part_lengths(ids_path, lengths_path, itemsize)):
            sizes = lengths.astype(np.int64) * itemsize
            ends, first = np.cumsum(sizes), 0
            if not pairs:
                first = int(np.argmax(sizes > 0)) if sizes.any() else len(sizes)
                leading_empty += first
            while first < len(sizes):
                size = int(sizes[first])
                if not pairs or (size and pair_bytes + size > max_bytes):
                    pairs.append(PlannedPair(str(_prefix(stem, len(pairs))), leading_empty, []))
                    pair_bytes = leading_empty = 0
                last = batch_end_at(ends, first, max(0, max_bytes - pair_bytes))
                start, stop = position + int(ends[first]) - size, position + int(ends[last - 1])
                _extend(
                    pairs[-1].pieces,
                    Piece(str(ids_path), str(lengths_path), number + first, number + last, start, stop),
                )
                pair_bytes += stop - start
                first = last
            number += len(lengths)
            position += int(ends[-1]) if len(ends) else 0
    return pairs


def _extend(pieces: list[Piece], piece: Piece) -> None:
    """Append a piece, or merge it with the last piece if it follows directly in the same token file."""
    if pieces and pieces[-1][:2] == piece[:2] and pieces[-1].last == piece.first:
        piece = pieces.pop()._replace(last=piece.last, stop=piece.stop)
    pieces.append(piece)


def write_pair(planned: PlannedPair, dtype: np.dtype | type, force: bool = True, sweeps: bool = True) -> PairInfo:
    """Write a planned pair, and remove Megatron's cache of an older pair with this name. `force`: replace the older
    pair. `sweeps`: see `PairWriter`."""
    with PairWriter(planned.prefix, dtype, force=force, sweeps=sweeps) as writer:
        writer.empty_documents = planned.empty_documents
        for piece in planned.pieces:
            start = piece.start
            for lengths in in_batches(map_array(piece.lengths, "<i4", 4 * piece.first, piece.last - piece.first)):
                check_interrupts()
                stop = start + int(lengths.sum(dtype=np.int64)) * writer.dtype.itemsize
                if lengths.min() < 0 or stop > piece.stop:
                    raise _misfit(piece.ids, piece.lengths, writer.dtype.itemsize)
                writer.append_file(piece.ids, lengths, (start, stop))
                start = stop
            if start != piece.stop:
                raise _misfit(piece.ids, piece.lengths, writer.dtype.itemsize)
        info = writer.commit()
    remove_stale_cache(planned.prefix)
    return info


def refuse_existing(stem: Path, exceptions: Sequence[str] = ()) -> None:
    """Raise OutputError if a pair of the stem exists, of any number. Names in `exceptions` may exist."""
    for path in sorted(stem.parent.glob("*_document.*")):
        if path.suffix in (".idx", ".bin") and is_of_stem(stem, path.stem) and path.stem not in exceptions:
            raise OutputError(f"{path} exists already. Choose another name, or force the replacement.")


def is_of_stem(stem: Path, name: str) -> bool:
    """Return whether `name` is the name of a pair of the stem. The number in the name of a pair has five digits; a date
    has eight."""
    if stem.name.endswith(BARE):
        pattern = re.escape(stem.name.removesuffix(BARE)) + r"(_\d{5})?_document"
    else:
        pattern = re.escape(stem.name) + r"_\d{5}_text_document"
    return re.fullmatch(pattern, name) is not None


def stem_name(source: str, split: str, names: str, inputs: int) -> str:
    """Return the name of the pairs of an input and a split, without number and end; see `output.megatron.names`."""
    name = f"{source}_{split}" if split else source
    if names == "text":
        return name
    return f"{split if split and inputs == 1 else name}{BARE}"


def _prefix(stem: Path, number: int) -> Path:
    if stem.name.endswith(BARE):
        return stem.with_name(f"{stem.name.removesuffix(BARE)}{f'_{number:05d}' if number else ''}_document")
    return stem.with_name(f"{stem.name}_{number:05d}_text_document")


def list_pairs(stem: Path, first: int = 0) -> list[Path]:
    """Return the prefixes of a stem from number `first` to the first gap. Pairs after a gap belong to another run."""
    numbered = (_prefix(stem, number) for number in count(first))
    return list(takewhile(lambda prefix: any(suffixed(prefix, end).exists() for end in (".idx", ".bin")), numbered))


def delete_pairs(stem: Path, first: int) -> None:
    """Delete the pairs of a stem from number `first` on. The last pair is deleted first, so a kill leaves no gap in the
    numbers. The index of a pair is deleted before its tokens."""
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
        """Yield (writer, slice of `lengths`, start, stop) for batches of documents: their bytes from `start` to `stop`,
        counted from the first document of `lengths`. The caller writes a batch before it takes the next one."""
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
        for writer, batch, _, _ in cutter.spread(lengths[chosen]):
            _gather(writer, sources, part_of[batch], starts[chosen[batch]], lengths[chosen[batch]])


def _gather(
    writer: PairWriter, sources: list[memoryview], part_of: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> None:
    """Append documents from any position of the sources to the pair, in buffers of BATCH_BYTES or of one larger
    document."""
    sizes = lengths.astype(np.int64) * writer.dtype.itemsize
    for batch in batches_by_size(np.cumsum(sizes), BATCH_BYTES):
        buffer = np.empty(int(sizes[batch].sum()), "u1")
        _fill(memoryview(buffer), sources, part_of[batch], starts[batch], sizes[batch])
        writer.append(buffer.view(writer.dtype), lengths[batch])


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
    """Return the lengths of the documents in a token file. IntegrityError: the lengths do not fit the size of the
    file."""
    length_bytes = Path(lengths_path).stat().st_size
    lengths = map_array(lengths_path, "<i4", 0, length_bytes // 4)
    num_bytes, negative = _sum(lengths, itemsize)
    if length_bytes % 4 or negative or num_bytes != Path(ids_path).stat().st_size:
        raise _misfit(ids_path, lengths_path, itemsize)
    return lengths


def _sum(lengths: np.ndarray, itemsize: int) -> tuple[int, bool]:
    """Return the bytes of documents with these lengths, and whether a length is negative."""
    num_bytes = sum(int(batch.sum(dtype=np.int64)) for batch in in_batches(lengths)) * itemsize
    return num_bytes, any(batch.min() < 0 for batch in in_batches(lengths))


def _misfit(ids_path: str | Path, lengths_path: str | Path, itemsize: int) -> IntegrityError:
    """Return the error about a token file whose lengths do not fit its ids."""
    size, length_bytes = Path(ids_path).stat().st_size, Path(lengths_path).stat().st_size
    num_bytes, negative = _sum(map_array(lengths_path, "<i4", 0, length_bytes // 4), itemsize)
    return IntegrityError(
        f"{ids_path} has {size} bytes, expected {num_bytes} by the lengths in {lengths_path} ({length_bytes} bytes)"
        f"{'; some lengths are negative' if negative else ''}. Remove both files and run again."
    )
