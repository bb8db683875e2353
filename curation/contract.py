# SPDX-License-Identifier: Apache-2.0
"""What an engine owes. `cpu_fallback` and `gpu_pipeline` are modules that satisfy `Engine`: functions with these names
and signatures, no base class and no wrapper frame.

A *frame* is a pandas or a cuDF DataFrame and a *text* one of its string columns. Row-local operations work on one
frame in any order. Whole-corpus operations take and give plain NumPy arrays. An engine returns integers and rewritten
text; it never decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from curation.kernels.rewrite import RewriteSteps
    from curation.reading.source_files import Slice
    from curation.stages.classifiers import Classifier
    from curation.stages.ngram_table import NgramTable

Frame = Any
Text = Any
Item = TypeVar("Item")
Result = TypeVar("Result")

# Columns of every frame that a reader gives. `row` is the position inside the slice, rejected records counted.
ROW, ID, TEXT = "row", "id", "text"


def position_type(rows: int) -> str:
    """The NumPy type of positions among so many rows: half as large where that is enough."""
    return "int32" if rows < 2**31 else "int64"


class Rejected(NamedTuple):
    """One record that could not become a document."""

    row: int
    line: int  # 0-based physical line inside the slice; for Parquet the row inside the file
    offset: int  # byte offset of the line in the (uncompressed) file; -1 where the format has none
    error: str
    part: int = 0  # which of the slice's files


class Batch(NamedTuple):
    """Part of a slice: the documents as a frame, and the records that are not documents."""

    frame: Frame
    rejected: list[Rejected]
    rows: int  # documents + rejected
    lines: int  # physical lines passed, blank ones too
    repaired: int = 0  # documents in which malformed UTF-8 became U+FFFD


class Session(Protocol):
    """Where tasks run: threads, processes, or the workers of a Dask cluster."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """`function` of each item, in the order of `items`; the first error stops the rest and is raised."""
        ...


class Engine(Protocol):
    """The contract, module by module."""

    # session.py

    def describe(self) -> dict[str, str]:
        """Versions of the libraries that compute, and the device, for reports."""
        ...

    def open_session(self, workers: int, scheduler: str) -> AbstractContextManager[Session]:
        """A session of `workers` at once on `scheduler`: "threads", "processes", or the address of a Dask scheduler."""
        ...

    def batch_bytes(self, workers: int) -> int:
        """Bytes of input that this engine likes to work on at a time, where `workers` tasks run at once. Results do
        not depend on it."""
        ...

    # io.py

    def read_slice(self, piece: Slice, batch_bytes: int) -> Iterator[Batch]:
        """The batches of one slice, in order, each of about `batch_bytes` of input."""
        ...

    def from_arrow(self, table: pa.Table) -> Frame:
        """A frame of the table's columns."""
        ...

    def to_arrow(self, frame: Frame) -> pa.Table:
        """The frame's columns on the host; strings become large_string."""
        ...

    def filter_rows(self, frame: Frame, mask: np.ndarray) -> Frame:
        """The rows whose `mask` (bool) is true, in order."""
        ...

    def with_columns(self, frame: Frame, columns: dict[str, Any]) -> Frame:
        """A new frame with these columns (NumPy arrays or texts) added or replaced."""
        ...

    # text.py

    def rewrite(self, text: Text, steps: RewriteSteps) -> tuple[Text, np.ndarray]:
        """The rewritten text and, per document, whether it changed (bool)."""
        ...

    def measure(self, text: Text, names: Sequence[str]) -> dict[str, np.ndarray]:
        """One int64 array per name of `curation.measures.Measure`; a null text measures as an empty one."""
        ...

    def byte_lengths(self, text: Text) -> np.ndarray:
        """Bytes of the UTF-8 of each document, int64; 0 for a null."""
        ...

    def hash_text(self, text: Text, max_characters: int = 0) -> np.ndarray:
        """murmur3_x64_128, seed 0, of the UTF-8 bytes of the first `max_characters` code points (0: of all); uint64,
        shape (documents, 2). A null hashes as an empty text."""
        ...

    def classify(self, text: Text, model: Classifier, max_characters: int) -> tuple[np.ndarray, np.ndarray]:
        """Number of the likeliest of `model.labels` (int32; -1 where nothing in the text is known to the model) and its
        probability in millionths (int64), of the first `max_characters` code points (0: of all). Line ends count as
        spaces, and a null as an empty text. fastText's own results, but for the rounding of its float32 sums."""
        ...

    def signatures(self, text: Text, ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The MinHash signature of each document's set of `ngram` words or characters: uint32, shape
        (documents, len(a)). Number k is the minimum of (a[k] * x + b[k]) mod 2^32 over the high 32 bits of the hashes;
        `a`, `b` are uint32, `a` odd. All of a document without words (null ones too) are 2^32 - 1."""
        ...

    def band_keys(
        self, text: Text, ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray, rows: int
    ) -> np.ndarray:
        """The keys of the bands of `rows` numbers each that the signatures are cut into: uint64, shape
        (documents, len(a) // rows). 0 for a document without words, and for no other."""
        ...

    def shingles(self, text: Text, ngram: int, by_character: bool) -> tuple[np.ndarray, np.ndarray]:
        """The distinct n-gram hashes of all documents one after the other (uint64), sorted within each, and where each
        begins and the last ends (int64, documents + 1). A document with fewer words than `ngram` has one: itself."""
        ...

    def ngram_hits(self, text: Text, table: NgramTable, ngram: int) -> tuple[np.ndarray, np.ndarray]:
        """How many n-grams (of `ngram` words) of each document are in `table` (int64; a repeated one counts each time),
        and the owner of the first (int32; -1 where there is none). A document with fewer words has one: itself."""
        ...

    # dedup.py

    def group_leaders(self, keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
        """For each row the position (of `position_type(rows)`) of the row with the smallest `rank` (int64, all
        different) among those with the same key; of the first one without `rank`. `keys` is uint64 of shape
        (rows, width). `workers`: threads that the host may use."""
        ...

    def intersection_sizes(
        self, hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """How many hashes the documents of each pair share (int64). `hashes`, `offsets` are as those of `shingles`;
        `left`, `right` number their documents."""
        ...

    def connected_components(self, left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
        """For each of `rows` rows the smallest row (int64) that it is joined with by the edges left[k] - right[k]."""
        ...


ENGINE_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "session": ("describe", "open_session", "batch_bytes"),
    "io": ("read_slice", "from_arrow", "to_arrow", "filter_rows", "with_columns"),
    "text": (
        "rewrite", "measure", "byte_lengths", "hash_text", "classify", "signatures", "band_keys", "shingles",
        "ngram_hits",
    ),
    "dedup": ("group_leaders", "intersection_sizes", "connected_components"),
}  # fmt: skip

__all__ = ["ENGINE_FUNCTIONS", "ID", "ROW", "TEXT", "Batch", "Engine", "Frame", "Rejected", "Session", "position_type"]
