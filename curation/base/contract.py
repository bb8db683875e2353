# SPDX-License-Identifier: Apache-2.0
"""The contract of an engine. `cpu_fallback` and `gpu_pipeline` satisfy `Engine` as modules: functions with these names
and signatures, no base class and no wrapper around frames.

A *frame* is a pandas or cuDF DataFrame. A *text* is one of its string columns, one document per row. Row-local
operations may run on frames in any order. Whole-corpus operations take and return NumPy arrays on the host. Engines
compute integers and rewritten text; stages decide. Both engines return the same values: plain Python in `tests/oracle`
defines the values; for tokens, the reference tokenizer does. Tests compare the implementation of each engine with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from curation.base.records import ID, ROW, TEXT, Rejected, position_type

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa

    from curation.base.records import OtherRecord
    from curation.kernels.ngram_table import NgramTable
    from curation.kernels.rewrite import RewriteSteps
    from curation.kernels.stop_words import StopWords
    from curation.models.fasttext import Classifier
    from curation.models.ngrams import LanguageModel
    from curation.reading.locations import Location
    from curation.reading.source_files import Slice
    from curation.tokens.tokenization import Tokenizer

Frame = Any
Text = Any
Item = TypeVar("Item")
Result = TypeVar("Result")


class Batch(NamedTuple):
    """Part of a slice.

    frame     the documents: `row` (int64), `id`, `text` and the columns that the input carries
    rejected  the records that are not documents
    rows      number of documents, rejected records, and responses in web archives that are no pages
    lines     number of physical lines, including blank ones
    repaired  number of documents in which U+FFFD replaced malformed UTF-8
    locations positions of records that do not directly follow the record before them (`curation.reading.locations`)
    others    skipped records of web archives (`OtherRecord`)
    """

    frame: Frame
    rejected: list[Rejected]
    rows: int
    lines: int
    repaired: int = 0
    locations: Sequence[Location] = ()
    others: Sequence[OtherRecord] = ()


class UnitFrame(NamedTuple):
    """Lines, paragraphs or sentences of texts (`curation.kernels.units`) as rows of a frame.

    frame   one column, `text`: the content of each unit
    counts  int64, one per text: the number of its units
    spans   where the units are in the texts, for `Engine.join_units`; its type depends on the engine
    """

    frame: Frame
    counts: np.ndarray
    spans: Any


class Session(Protocol):
    """Runs tasks on threads, on processes or on the workers of a Dask cluster.

    dashboard  address of the cluster's dashboard; "" without one
    """

    dashboard: str

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return `function(item)` for each item, in the order of `items`. Raises the first error, after cancelling the
        tasks that have not started."""
        ...

    def run(
        self, function: Callable[[Item], Result], items: Iterable[Item],
        done: Callable[[int, Item, Result], object] = ...,
    ) -> None:  # fmt: skip
        """Call `function(item)` for each item, and `done(number, item, result)` when a task has ended, in any order.
        Each item is taken from `items` when its task begins, so `items` may be a generator. Raises the first error,
        after cancelling the tasks that have not started."""
        ...


class TableFile(Protocol):
    """A Parquet file that `Engine.parquet_file` has opened."""

    def write(self, table: pa.Table) -> Frame | None:
        """Append the rows. Return them as a frame if the engine has made one."""
        ...


class Engine(Protocol):
    """The functions of an engine, by module. Functions on texts return one value per document, in order, as NumPy
    arrays on the host. They read a null as an empty text."""

    # session.py

    def describe(self) -> dict[str, str]:
        """Return the engine, the device and the versions of the computing libraries, for reports."""
        ...

    def open_session(
        self, workers: int, scheduler: str, kernels: Sequence[str] = ()
    ) -> AbstractContextManager[Session]:
        """Open a session that runs up to `workers` tasks at once. `scheduler` is "threads", "processes", "auto" (the
        engine chooses threads or processes) or the address of a Dask scheduler. `kernels` are the groups of kernels
        that the tasks use (`curation.stages.warm_up.GROUPS`). The GPU engine loads them in each process before its
        first task; for the CPU engine, they are compiled earlier."""
        ...

    def batch_bytes(self, workers: int) -> int:
        """Return the batch size, in bytes of input, that suits the engine if `workers` tasks run at once. Results do
        not depend on it."""
        ...

    # io.py

    def read_slice(self, input_slice: Slice, batch_bytes: int) -> Iterator[Batch]:
        """Yield the batches of a slice, in order, each of about `batch_bytes` of input. Raises InputError if a file
        cannot be read."""
        ...

    def from_arrow(self, table: pa.Table) -> Frame:
        """Return a frame with the table's columns. Columns of integers and bool with nulls keep their type and their
        nulls."""
        ...

    def to_arrow(self, frame: Frame) -> pa.Table:
        """Copy the frame's columns to the host where needed. Strings become large_string, with their nulls."""
        ...

    def filter_rows(self, frame: Frame, mask: np.ndarray) -> Frame:
        """Return the rows where `mask` (bool, one per row) is true, in order."""
        ...

    def with_columns(self, frame: Frame, columns: dict[str, Any]) -> Frame:
        """Return a new frame with `columns` (NumPy arrays or texts, one value per row) added or replaced."""
        ...

    # parquet.py

    def parquet_file(
        self, path: Path, schema: pa.Schema, options: Mapping[str, Any]
    ) -> AbstractContextManager[TableFile]:
        """Open a Parquet file for writing; it is complete when the block ends without an error.

        Both engines write the same rows and types, but not the same bytes. `schema` is the schema of the tables. The
        file has the schema `curation.base.parquet.file_schema(schema)`, and nulls in place of NaN. `options` are those
        of pyarrow's ParquetWriter; the GPU engine uses only `compression` and `data_page_size`. The GPU engine writes
        strings, numbers and bool. Raises EngineError if cuDF cannot write the columns, and InputError for a string of 2
        GiB or more."""
        ...

    # text.py

    def rewrite(self, text: Text, steps: RewriteSteps) -> tuple[Text, np.ndarray]:
        """Return the rewritten text and a bool per document: true if its text changed. Nulls stay nulls."""
        ...

    def split_words(self, text: Text, words: str) -> tuple[Text, np.ndarray]:
        """Return texts with a space between adjacent words, and a bool per document: true if its text is among these
        texts. Only texts that may change are returned, in order. `words` is one of
        `curation.kernels.word_breaks.WORDS`, or PIECES. A null never changes, and neither does a text whose scripts all
        put spaces between words (`scripts`)."""
        ...

    def replace_texts(self, text: Text, parts: Text, wanted: np.ndarray) -> Text:
        """Return the texts, those where `wanted` (bool, one per text) is true replaced by `parts`: one per replaced
        text, in order, none of them null."""
        ...

    def count_stop_words(self, text: Text, table: StopWords, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how many different words of a list each text has, and how many of its words are in the list: two
        int64 arrays. A word is a run of characters without white space, and is compared by case. `numbers` (int32) has
        the number of each text's list in `table`; for the number of no list, such as NO_LIST of
        `curation.kernels.stop_words`, both counts are 0. If `table` has endings, a Korean word of several syllables
        also counts as its longest ending that the list has."""
        ...

    def measure(self, text: Text, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return one int64 array per measure; `names` are members of `curation.base.measures.Measure`."""
        ...

    def byte_lengths(self, text: Text) -> np.ndarray:
        """Return the size of each document in bytes of UTF-8, int64."""
        ...

    def spread_bytes(self, text: Text, count: int) -> np.ndarray:
        """Return `count` bytes of each document's UTF-8, at even distances from its first byte: uint8 of shape
        (documents, count). For an empty document all are 0."""
        ...

    def hash_text(self, text: Text, max_characters: int = 0) -> np.ndarray:
        """Return 128-bit hashes, uint64 of shape (documents, 2): murmur3_x64_128 with seed 0 over the UTF-8 bytes of
        the first `max_characters` code points (0: all)."""
        ...

    def spread_windows(self, text: Text, windows: int, max_characters: int) -> Text:
        """Return samples of each text: `windows` windows of `max_characters` // `windows` code points, with a space
        after each. Leading ASCII white space and NUL are skipped. The rest is cut into `windows` parts of equal size in
        bytes; each window starts in the middle of a part. If a token begins before the window and ends in it, the
        window starts after this token. A text of up to `max_characters` is returned whole. Nulls stay nulls."""
        ...

    def classify(self, text: Text, model: Classifier, max_characters: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the most probable label of each document. The model reads `max_characters` code points from the first
        token on (0: all). The first array indexes `model.labels` (int32); it is -1 if the model knows no token of the
        text. The second is the probability in millionths (int64). Line ends count as spaces. Results are those of
        fastText except for the rounding of its float32 sums."""
        ...

    def score_text(self, text: Text, model: LanguageModel) -> np.ndarray:
        """Return the log probability of each text by a back-off language model, int64 of shape (documents, 4).

        The columns are the sum of the logarithms (base 10, in units of 10^-7), words, lines with words, and words that
        the model does not have. A word is a run of bytes without ASCII white space, or by a model of bytes each byte of
        a line; each line with words is a sentence, and its end counts in the sum."""
        ...

    def signatures(self, text: Text, ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return MinHash signatures of the sets of n-grams: uint32, shape (documents, len(a)).

        An n-gram is `ngram` words, or characters if `by_character`. Component k is the minimum of
        (a[k] * x + b[k]) mod 2^32, where x runs over the high 32 bits of the n-gram hashes. `a` and `b` are uint32, and
        `a` is odd. All components of a document without words are 2^32 - 1."""
        ...

    def band_keys(
        self, text: Text, ngram: int, by_character: bool, a: np.ndarray, b: np.ndarray, rows: int
    ) -> np.ndarray:
        """Return one key per band of `rows` signature components: uint64, shape (documents, len(a) // rows). A key is 0
        if and only if the document has no words. `ngram`, `by_character`, `a` and `b` are as in `signatures`."""
        ...

    def shingles(self, text: Text, ngram: int, by_character: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct n-gram hashes of all documents, concatenated, and their offsets.

        Hashes are uint64, sorted within a document. Offsets are int64 of length documents + 1: those of document i are
        at offsets[i] to offsets[i + 1]. A document with fewer than `ngram` words or characters has one n-gram of all of
        them. A document without words has none."""
        ...

    def ngram_hits(self, text: Text, table: NgramTable, ngram: int) -> tuple[np.ndarray, np.ndarray]:
        """Return how many n-grams (of `ngram` words) of each document are in `table`, and the name that `table` has for
        the first of them. Counts are int64; a repeated n-gram counts each time. Names are int32 indexes of
        `table.names`; -1 for a document without an n-gram in `table`. A document with fewer than `ngram` words has one
        n-gram of all its words. A document without words has none."""
        ...

    # units.py

    def split_units(self, text: Text, unit: str, strip: bool) -> UnitFrame:
        """Return the units of texts; `unit` is one of `curation.kernels.units.UNITS`. With `strip`, contents have no
        white space at their ends."""
        ...

    def join_units(self, text: Text, units: UnitFrame, kept: np.ndarray) -> tuple[Text, np.ndarray]:
        """Return the texts without the units that are not `kept` (bool, one per unit), and a bool per document: true if
        its text changed. `units` is the result of `split_units` for these texts. If its `strip` was true, the white
        space at the ends of kept contents is left out too."""
        ...

    # tokens.py

    def tokenize(self, text: Text, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all documents, concatenated, and the number of ids of each document.

        Ids have the type `tokenizer.dtype`, and include the begin-of-sequence and end-of-document tokens of the
        tokenizer's spec. Lengths are int32. The length is 0 for a document without tokens, and for a document that is
        `Tokenizer.special_piece`. Raises IntegrityError if the ids of a sample of the documents differ from those of
        the tokenizer's library."""
        ...

    def tokens_at_once(self) -> int:
        """Return how many bytes of text should share a call of `tokenize`, if there are so many. Results do not depend
        on it."""
        ...

    # dedup.py

    def group_leaders(self, keys: np.ndarray, rank: np.ndarray | None = None, workers: int = 1) -> np.ndarray:
        """Return, for each row, the position of its leader: one of the rows with the same key. The leader is the row
        with the smallest `rank` (int64), and the first such row if ranks are equal. Without `rank` it is the first row.
        `keys` is uint64 of shape (rows, width). Positions have the type `position_type(rows)`. `workers` is the number
        of threads that the host may use."""
        ...

    def intersection_sizes(
        self, hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return the number of hashes that the documents of each pair share, int64. `hashes` and `offsets` are as
        `shingles` returns them; `left` and `right` are document indexes, one pair per position."""
        ...

    def connected_components(self, left: np.ndarray, right: np.ndarray, rows: int) -> np.ndarray:
        """Return, for each of `rows` rows, the smallest row of its component (int64). The edges are
        (left[k], right[k])."""
        ...

    # windows.py; `curation.kernels.spans` explains the words "anchor", "place" and "record"

    def anchor_records(
        self, data: np.ndarray, offsets: np.ndarray, length: int, memory: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the records of the anchors of texts, their places in ascending order, and repeated spans. Text k is
        data[offsets[k]:offsets[k + 1]]. A span, int64 (start, stop), covers windows that are repeated within these
        texts or within earlier texts with the same `memory`. The anchors of such windows have no record.

        `data` is uint8, `offsets` is int64, `length` is 32 or more. `memory` is first `new_memory()`, and each call
        changes it."""
        ...

    def node_records(self, data: np.ndarray, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the records of the nodes of anchors, and their places, in the order of the anchors."""
        ...

    def window_records(self, data: np.ndarray, places: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the hashes of the windows of nodes, uint64 of shape (n, 2), and their places, in the order of the
        nodes."""
        ...

    def judge_records(self, records: np.ndarray, is_whole: bool) -> np.ndarray:
        """Return whether the windows of each record equal earlier windows: KEPT, REPEATED or CLOSER of
        `curation.kernels.spans` (uint8). `records` are in the order of their places. `is_whole` means that no record
        outside of `records` has the first hash of one of them."""
        ...

    # vectors.py

    def nearest_vectors(self, vectors: np.ndarray, others: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
        """Return for each vector the positions of its `count` nearest `others`, nearest first: int32, shape (n, count).

        `vectors` and `others` are int8. The nearest is the one with the highest float32 product: the exact dot product
        times its weight (float32, one per vector of `others`). If products are equal, the first one is nearer. `count`
        is at most len(others)."""
        ...

    def close_vectors(
        self, left: np.ndarray, right: np.ndarray, left_bounds: np.ndarray, right_bounds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs (i, j) whose dot product is at least the float32 product left_bounds[i] * right_bounds[j],
        and these dot products. Pairs are sorted by i, then j. All three are int64; vectors are int8, bounds float32."""
        ...

    def fit_centroids(self, vectors: np.ndarray, clusters: int, rounds: int, seed: int) -> np.ndarray:
        """Return the centres of k-means, float32 of shape (clusters, dimensions), after at most `rounds` rounds.
        `vectors` (float32) are a sample; its first `clusters` vectors are the initial centres. Engines may return
        different centres. On one machine, the CPU engine always returns the same centres. cuML adds in no fixed order,
        so the last bits of its centres may differ from call to call. Raises InputError if the k-means library is not
        installed."""
        ...


ENGINE_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "session": ("describe", "open_session", "batch_bytes"),
    "io": ("read_slice", "from_arrow", "to_arrow", "filter_rows", "with_columns"),
    "parquet": ("parquet_file",),
    "text": (
        "rewrite", "split_words", "replace_texts", "count_stop_words", "measure", "byte_lengths", "spread_bytes",
        "hash_text", "spread_windows", "classify", "score_text", "signatures", "band_keys", "shingles", "ngram_hits",
    ),
    "units": ("split_units", "join_units"),
    "tokens": ("tokenize", "tokens_at_once"),
    "dedup": ("group_leaders", "intersection_sizes", "connected_components"),
    "windows": ("anchor_records", "node_records", "window_records", "judge_records"),
    "vectors": ("nearest_vectors", "close_vectors", "fit_centroids"),
}  # fmt: skip

__all__ = [
    "ENGINE_FUNCTIONS",
    "ID",
    "ROW",
    "TEXT",
    "Batch",
    "Engine",
    "Frame",
    "Rejected",
    "Session",
    "TableFile",
    "UnitFrame",
    "position_type",
]
