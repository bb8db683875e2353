# SPDX-License-Identifier: Apache-2.0
"""Long arrays in batches, arrays in files, and batches by size."""

from __future__ import annotations

import math
import mmap
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import numpy as np

from curation.base.errors import InputError, IntegrityError
from curation.base.records import TEXT, position_type
from curation.base.system.damage import reading

if TYPE_CHECKING:  # training imports this module and needs no Arrow
    import pyarrow as pa

Loaded = TypeVar("Loaded")

AT_ONCE = 1 << 16  # items of a batch
TRIES = 5  # NumPy parses a header as Python; in Python 3.11, threads that parse at once may get a SystemError
MAX_GROWTH = 100  # maximum ratio of array bytes to .npz bytes; a valid file rarely exceeds 10
GOLDEN = 0x9E3779B97F4A7C15  # of SplitMix64


def batches_of(count: int) -> Iterator[slice]:
    """Yield slices of AT_ONCE items from 0 to `count`."""
    for start in range(0, count, AT_ONCE):
        yield slice(start, min(start + AT_ONCE, count))


def positions_of(mask: np.ndarray) -> np.ndarray:
    """Return the positions where `mask` (bool) is true. They have the type `position_type(len(mask))`, which mostly
    needs half the bytes of `np.flatnonzero`."""
    out = np.empty(int(np.count_nonzero(mask)), position_type(len(mask)))
    done = 0
    for batch in batches_of(len(mask)):
        positions = np.flatnonzero(mask[batch])
        out[done : done + len(positions)] = positions + batch.start
        done += len(positions)
    return out


def sorted_unique(values: np.ndarray) -> np.ndarray:
    """Return the distinct values of an integer array, ascending. NumPy's `unique` hashes, which takes ten times as long
    for millions of values."""
    ordered = np.sort(values, axis=None)
    changed = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=changed[1:])
    return np.asarray(ordered[changed])


def map_file(path: Path, dtype: type | str | np.dtype) -> np.ndarray:
    """Return a file as a read-only array of `dtype`, through a memory map."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.zeros(0, dtype)
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)


def write_array(file: BinaryIO, values: np.ndarray) -> None:
    """Append the bytes of an array. Unlike in NumPy's `tofile`, an OSError names its cause, such as a full disk."""
    file.write(np.ascontiguousarray(values).view(np.uint8).data)


def write_file(path: Path, values: np.ndarray) -> None:
    """Write the bytes of an array to a file, which `map_file` reads. Errors are those of `write_array`."""
    with open(path, "wb") as file:
        write_array(file, values)


def _retried(load: Callable[[Path], Loaded]) -> Callable[[Path], Loaded]:
    """Call a function again after a SystemError, up to TRIES times in all."""

    @wraps(load)
    def loaded(path: Path) -> Loaded:
        for _ in range(TRIES - 1):
            with suppress(SystemError):
                return load(path)
        return load(path)

    return loaded


@_retried
def load_mapped(path: Path) -> np.ndarray:
    """Memory-map a `.npy` file as a read-only array. Raises IntegrityError if it is not a `.npy` file."""
    with reading(path):
        with open(path, "rb") as file:
            np.lib.format.read_magic(file)
            shape, _, _ = np.lib.format.read_array_header_1_0(file)
        return np.asarray(np.load(path, mmap_mode="r" if 0 not in shape else None))


@_retried
def load_writable(path: Path) -> np.ndarray:
    """Memory-map a `.npy` file, which this program has just written, as an array whose changes are written to the
    file."""
    return np.asarray(np.load(path, mmap_mode="r+"))


@_retried
def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a `.npz` file. Raises IntegrityError if it is not a `.npz` file or announces too much data,
    which NumPy would allocate. An array may not exceed the bytes that the file holds for it. All arrays together may
    have at most MAX_GROWTH times the bytes of the file. In an array without values, each empty dimension counts as
    1."""
    with reading(path):
        left = MAX_GROWTH * path.stat().st_size
        with zipfile.ZipFile(path) as members:
            for entry in members.infolist():
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError("it is compressed in a way that NumPy does not use")
                with members.open(entry) as member:
                    is_first = np.lib.format.read_magic(member) == (1, 0)
                    read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
                    shape, _, dtype = read(member)
                    size = math.prod(max(length, 1) for length in shape) * dtype.itemsize
                    held = left if 0 in shape else min(entry.file_size - member.tell(), left)
                    if size > held:
                        raise ValueError(f"{entry.filename} announces {size:,} bytes and can have {held:,}")
                    left -= size
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def given_arrays(path: Path, names: Sequence[str], setting: str, remedy: str) -> list[np.ndarray]:
    """Return the arrays `names` of the `.npz` file that a setting names. Raises InputError if they cannot be read."""
    try:
        stored = load_arrays(path)
        return [stored[name] for name in names]
    except FileNotFoundError:
        raise InputError(f"{setting}: {path} does not exist. {remedy}") from None
    except OSError as error:
        raise InputError(f"{setting}: {path} cannot be read ({error.strerror or error}). {remedy}") from None
    except (IntegrityError, KeyError):
        raise InputError(f"{setting}: {path} is not a file of {names[0]}, or is damaged. {remedy}") from None


def save_array(path: Path, values: np.ndarray) -> None:
    """Save an array as `np.save` does. An OSError names its cause, as in `write_array`."""
    values = np.ascontiguousarray(values)
    with open(path, "wb") as file:
        header = np.lib.format.header_data_from_array_1_0(values)
        np.lib.format.write_array_header_1_0(file, header)
        write_array(file, values)


def as_one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array. A single chunk is copied only if it is empty: it may have no buffer of offsets."""
    import pyarrow as pa

    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 and len(column) else column.combine_chunks()


def as_large_strings(texts: pa.Array | pa.ChunkedArray) -> pa.LargeStringArray:
    """Return the texts as one array of large strings. Raises InputError for nulls and for other types than strings."""
    import pyarrow as pa

    texts = as_one_array(texts)
    if not isinstance(texts, pa.Array) or texts.null_count:
        actual = f"{texts.null_count} nulls" if isinstance(texts, pa.Array) else type(texts).__name__
        raise InputError(f"expected an Arrow array of strings without nulls, got {actual}. Drop or fill nulls first.")
    return texts if pa.types.is_large_string(texts.type) else texts.cast(pa.large_string())


def text_buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of texts (uint8) and their offsets (int64), without a copy. Text k has the bytes from
    offset k to offset k + 1. The first offset may be above 0; a null is empty."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), bounds


# Batches by size


def batch_end_at(ends: np.ndarray, first: int, size: int, items: int | None = None, *, begun: bool = False) -> int:
    """Return the position after the last item of a batch that starts at `first`.

    The batch has at most the total `size` and, if given, at most `items` items. It has at least one item, or may have
    none if it has `begun` with earlier items. `ends` is the running sum of the sizes of the items.
    """
    before = int(ends[first - 1]) if first else 0
    last = max(int(np.searchsorted(ends, before + size, side="right")), first + (not begun))
    return last if items is None else min(last, first + items)


def batches_by_size(ends: np.ndarray, max_size: int) -> Iterator[slice]:
    """Yield batches of items with a total size of at most `max_size`; a larger item is a batch alone. `ends` is the
    running sum of the sizes."""
    first = 0
    while first < len(ends):
        last = batch_end_at(ends, first, max_size)
        yield slice(first, last)
        first = last


def cut_spans(
    batches: Iterable[tuple[np.ndarray, np.ndarray]], size: int, items: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (first number, last number + 1, number of items) for each batch. A batch has at most `items` items of the
    total `size`, but at least one item. `batches` yields the numbers of items, ascending, and the sizes of these items.
    How `batches` divides the items has no effect on the result."""
    numbers, sizes = np.zeros((2, 0), np.int64)  # of items that are in no batch yet
    for batch in chain(batches, [None]):
        if batch is not None:
            numbers, sizes = np.concatenate([numbers, batch[0]]), np.concatenate([sizes, batch[1]])
        ends, first = np.cumsum(sizes), 0
        while first < len(numbers):
            last = batch_end_at(ends, first, size, items)
            if last == len(numbers) and batch is not None:  # the next ones may belong to this batch
                break
            yield int(numbers[first]), int(numbers[last - 1]) + 1, last - first
            first = last
        numbers, sizes = numbers[first:], sizes[first:]


class Cutter:
    """Divides items into batches of at most `items` items and the total `size`, but at least one item.

    The caller adds the items in pieces. The batches do not depend on how the items are divided into pieces.
    """

    def __init__(self, size: int, items: int) -> None:
        self.size, self.items = size, items
        self.number = self.count = self.taken = 0  # of the batch that is open

    def add(self, ends: np.ndarray, first: int = 0, last: int | None = None) -> Iterator[tuple[int, int, int]]:
        """Add items `first` to `last` of a piece; `ends` is the running sum of the sizes of its items. For each batch
        that gets some of these items, yield (number of the batch, first item, last item + 1)."""
        stop = len(ends) if last is None else last
        while first < stop:
            left = self.size - self.taken, self.items - self.count
            end = min(batch_end_at(ends, first, *left, begun=self.count > 0), stop)
            if end == first:
                self.number, self.count, self.taken = self.number + 1, 0, 0
                continue
            yield self.number, first, end
            self.count += end - first
            self.taken += int(ends[end - 1]) - (int(ends[first - 1]) if first else 0)
            first = end

    def add_whole(self, count: int, total: int) -> bool:
        """Add `count` items of the size `total` to the open batch if all of them fit; return whether they do."""
        fits = not count or (self.count + count <= self.items and self.taken + total <= self.size)
        if fits:
            self.count, self.taken = self.count + count, self.taken + total
        return fits


Ends = Iterable[tuple[np.ndarray, int, int]]  # arguments of `Cutter.add`


def cut_counts(groups: Iterable[tuple[int, int, Callable[[], Ends]]], size: int, items: int) -> Iterator[int]:
    """Yield the number of items in each batch; a batch has up to `items` items of the total `size`, but at least one.

    Each group of items has three values: their number, their total size, and a function that returns the running sums
    of their sizes in pieces. The function is called only for a group in which a batch ends.
    """
    cutter, current, length = Cutter(size, items), 0, 0
    for count, total, load in groups:
        if cutter.add_whole(count, total):
            length += count
            continue
        for ends, start, stop in load():
            for number, first, last in cutter.add(ends, start, stop):
                if number != current:
                    yield length
                    current, length = number, 0
                length += last - first
    if length:
        yield length


def cut_tables(tables: Iterable[pa.Table], documents: int, size: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of `tables` in pairs: the number of a batch, and a table with some rows of this batch.

    A batch has at most `documents` documents and `size` bytes of text, but at least one document. Batches do not depend
    on how the rows are divided into tables.
    """
    import pyarrow.compute as pc

    cutter = Cutter(size, documents)
    for table in tables:
        ends = np.cumsum(pc.binary_length(table.column(TEXT)).to_numpy())
        for number, first, last in cutter.add(ends):
            yield number, table.slice(first, last - first)


def text_bytes_of(table: pa.Table) -> int:
    """Return the total size of a table's texts in bytes of UTF-8; a null counts as 0."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.binary_length(table.column(TEXT))).as_py() or 0)


def seeded_hashes(numbers: np.ndarray, seed: int) -> np.ndarray:
    """Return a seeded hash (uint64) of each number (0 or more). The numbers with the smallest hashes are a random
    sample."""
    return split_mix(numbers.astype(np.uint64) + np.uint64((seed + 1) * GOLDEN % 2**64))


def split_mix(values: np.ndarray) -> np.ndarray:
    """Return a hash of each value (uint64), by the finaliser of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
