# SPDX-License-Identifier: Apache-2.0
"""Spans of bytes that a stage cuts out of texts: a file per partition.

A task of the stage writes the file, and one task reads it, with the texts of the partition. The files are in a separate
folder, since `corpus.scratch` is deleted after the decision. A file has an array of shape (3, spans): rows counted from
the first row of the partition, starts and stops; int32, or int64 for larger values. A partition without spans has no
file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.base.arrays import batches_of, load_mapped, save_array, text_buffers
from curation.base.contract import position_type
from curation.base.errors import IntegrityError, StageError
from curation.base.system.files import commit, numbered_path
from curation.stages.outcome import Corpus, Cuts

CONTINUES = 0b1000_0000  # UTF-8: a byte has these FIRST_BITS if it continues a code point
FIRST_BITS = 0b1100_0000
DAMAGED = "another program has written to it. Start over with --force"


class StoredCuts(NamedTuple):
    """The spans that a stage cuts.

    folder  the folder with a file per partition
    bytes   int64, one per partition: how many bytes the spans of kept rows have
    """

    folder: Path
    bytes: np.ndarray

    def of(self, partition: int) -> Cuts | None:
        """Return the spans of a partition, as `load_cuts` does; None if it has no spans. Raises IntegrityError if the
        file of its spans is missing."""
        if not self.bytes[partition]:
            return None
        cuts = load_cuts(self.folder, partition)
        if not len(cuts.row):
            raise IntegrityError(f"{_path(self.folder, partition)} does not exist: {DAMAGED}")
        return cuts


def cuts_folder(scratch: Path) -> Path:
    """Return the folder for the spans of the stage whose `corpus.scratch` is `scratch`."""
    return scratch.with_name(f"{scratch.name}-cuts")


def _path(folder: Path, partition: int) -> Path:
    return numbered_path(folder, partition, ".npy")


def store_cuts(corpus: Corpus, cuts: Cuts) -> None:
    """Write the spans that a corpus stage cuts out of texts, from a task of one of its phases.

    corpus  the corpus of the stage, or a part of it (`corpus.between`)
    cuts    spans in texts of `corpus`. All spans of a partition of `corpus.storage` are in one call

    Spans of rows that the decision drops have no effect, so a task need not know them.

        >>> import curation, pandas
        >>> class CutFirst(curation.CorpusStage, frozen=True, kw_only=True, tag="cutting:CutFirst"):
        ...     removes, cuts_text = False, True
        ...     def keys(self, engine, frame):
        ...         return {}
        ...     def phases(self):
        ...         return [curation.Phase("cut", lambda corpus: 1, self.cut)]
        ...     def cut(self, engine, corpus, task):
        ...         curation.store_cuts(corpus, curation.Cuts(corpus.rows, 0 * corpus.rows, 0 * corpus.rows + 1))
        ...     def decide(self, engine, corpus):
        ...         return curation.Decision()
        >>> curation.apply(pandas.DataFrame({"text": ["- one", "- two"]}), CutFirst())["text"].tolist()
        [' one', ' two']

    Raises StageError for spans that are empty, not sorted, overlap or end outside their text, for a row that is not in
    `corpus.rows`, and for other spans of a partition than an earlier call had. A span that splits a code point is found
    when the text is cut.
    """
    spans = _checked(cuts)
    row, starts = spans.row, corpus.storage.starts
    if not len(row):
        return
    _check_reached(row[(row < 0) | (row >= starts[-1])])
    first = 0
    while first < len(row):
        partition = int(np.searchsorted(starts, row[first], side="right")) - 1
        last = int(np.searchsorted(row, starts[partition + 1]))
        own = Cuts(*(values[first:last] for values in spans))
        _check_texts(corpus.between(partition, partition + 1), own)
        values = np.stack([own.row - starts[partition], own.start, own.stop])
        _store(_path(cuts_folder(corpus.scratch), partition), values, partition)
        first = last


def _store(path: Path, values: np.ndarray, partition: int) -> None:
    values = values.astype(position_type(int(values.max()) + 1))
    if not path.exists():  # it exists if a task is run again
        with commit(path) as temporary:
            save_array(temporary, values)
    elif not np.array_equal(load_mapped(path), values):
        raise StageError(
            f"store_cuts() has other spans of partition {partition} than an earlier call. Give all spans of a "
            "partition in one call, the same ones when a task is run again"
        )


def _checked(cuts: Any) -> Cuts:
    if not isinstance(cuts, Cuts):
        raise StageError(f"cuts must be Cuts, not {type(cuts).__name__}")
    spans = Cuts(*(integers(f"{name} of cuts", values).astype(np.int64, copy=False)
                   for name, values in cuts._asdict().items()))  # fmt: skip
    if len({len(values) for values in spans}) > 1:
        raise StageError(f"row, start and stop of cuts have the lengths {', '.join(str(len(each)) for each in spans)}")
    for batch in batches_of(len(spans.row)):
        row, start, stop = (values[max(batch.start - 1, 0) : batch.stop] for values in spans)
        empty = (start < 0) | (start >= stop)
        early = np.append(False, (row[1:] < row[:-1]) | ((row[1:] == row[:-1]) & (start[1:] < stop[:-1])))
        for wrong, expected in ((empty, "start at 0 or later and have a byte"), (early, "be sorted and not overlap")):
            if wrong.any():
                place = int(np.argmax(wrong))
                before = f" after {_shown(row, start, stop, place - 1)}" if wrong is early else ""
                raise StageError(f"spans to cut must {expected}, not {_shown(row, start, stop, place)}{before}")
    return spans


def integers(name: str, values: Any) -> np.ndarray:
    """Return a one-dimensional array of integers. Raises StageError with `name` for other values."""
    array = np.asarray(values)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise StageError(f"{name} must be integers in one dimension, not {array.dtype} in {array.ndim}")
    return array if len(array) else array.astype(np.int64)


def _shown(row: np.ndarray, start: np.ndarray, stop: np.ndarray, place: int) -> str:
    return f"the bytes {start[place]} to {stop[place]} of row {row[place]}"


def _check_reached(missing: np.ndarray) -> None:
    if len(missing):
        raise StageError(f"cuts have the row {missing[0]}, which is not in corpus.rows")


def _check_texts(part: Corpus, spans: Cuts) -> None:
    """Check the rows and stops of spans in a partition."""
    starts = np.flatnonzero(np.append(True, spans.row[1:] != spans.row[:-1]))  # rows ascend
    rows, counts = spans.row[starts], np.diff(np.append(starts, len(spans.row)))
    _check_reached(np.setdiff1d(rows, part.rows, assume_unique=True))
    sizes = np.repeat(part.of(rows).byte_lengths(), counts)
    wrong = np.flatnonzero(spans.stop > sizes)
    if len(wrong):
        place = int(wrong[0])
        raise StageError(f"spans to cut must end in their text, not {_shown(*spans, place)} with {sizes[place]} bytes")


def load_cuts(folder: Path, partition: int) -> Cuts:
    """Return the spans of a partition in a memory map; no spans if there is no file. Rows are counted from the first
    row of the partition. Raises IntegrityError for a damaged file."""
    path = _path(folder, partition)
    try:
        values = load_mapped(path)
    except FileNotFoundError:
        values = np.zeros((3, 0), np.int32)
    if values.ndim != 2 or len(values) != 3 or values.dtype not in (np.int32, np.int64):
        raise IntegrityError(f"{path} has {values.dtype} of shape {values.shape}, not spans: {DAMAGED}")
    return Cuts(*values)


def count_cuts(folder: Path, partition: int, kept: np.ndarray) -> tuple[int, int]:
    """Return how many rows of a partition the stored spans change, and their bytes. Spans of rows that are not `kept`
    (bool, one per row) do not count."""
    cuts = load_cuts(folder, partition)
    documents = size = 0
    for batch in batches_of(len(cuts.row)):
        row, start, stop = (values[batch] for values in cuts)
        alive = kept[row]
        first = np.append(batch.start == 0 or row[0] != cuts.row[batch.start - 1], row[1:] != row[:-1])
        documents += int(np.count_nonzero(first & alive))
        size += int((stop - start)[alive].sum(dtype=np.int64))
    return documents, size


def cut_texts(texts: pa.LargeStringArray, cuts: Cuts, first: int) -> pa.LargeStringArray:
    """Return the texts without their spans in `cuts`. The first text has the row `first` of `cuts`. Raises StageError
    for spans that split a code point; IntegrityError for spans that are not sorted or end after their text."""
    low, high = np.searchsorted(cuts.row, np.array([first, first + len(texts)], cuts.row.dtype))
    if low == high:
        return texts
    data, offsets = text_buffers(texts)
    data = data[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    row = cuts.row[low:high] - first
    start, stop = offsets[row] + cuts.start[low:high], offsets[row] + cuts.stop[low:high]
    _check_bytes(data, offsets, cuts, low, row, start, stop)
    edges = np.concatenate([[0], np.stack([start, stop], 1).ravel(), [len(data)]])
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(edges) - 1, [None, *map(pa.py_buffer, (edges, data))]
    )
    is_kept = np.arange(len(edges) - 1) % 2 == 0
    kept = pieces.filter(pa.array(is_kept)).buffers()[2]
    removed = np.bincount(row, stop - start, len(texts)).astype(np.int64)
    after = offsets - np.concatenate([[0], np.cumsum(removed)])
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(after), kept)


def _check_bytes(
    data: np.ndarray, offsets: np.ndarray, cuts: Cuts, low: int, row: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> None:
    """Check spans of the bytes `data` of some texts. `low` is the position in `cuts` of the first of these spans."""
    ordered = bool((start[1:] >= stop[:-1]).all()) and bool((np.diff(row) >= 0).all())
    if not ordered or (start >= stop).any() or (start < offsets[row]).any() or (stop > offsets[row + 1]).any():
        raise IntegrityError(f"the stored spans are not sorted, or not in their texts: {DAMAGED}")
    first, after = data[start], np.where(stop < len(data), data[np.minimum(stop, len(data) - 1)], 0)
    splits = ((first & FIRST_BITS) == CONTINUES) | ((after & FIRST_BITS) == CONTINUES)
    if splits.any():
        shown = _shown(*cuts, low + int(np.argmax(splits)))
        raise StageError(f"spans to cut must begin and end between code points of UTF-8, not {shown} of the partition")
