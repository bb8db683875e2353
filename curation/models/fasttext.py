# SPDX-License-Identifier: Apache-2.0
"""Supervised fastText models (`.bin`, `.ftz`) as integer tables for `curation.kernels.fasttext`.

Loading converts every weight to int32, with one power of two as the unit of its matrix. Quantised matrices are
expanded, since the kernel adds plain rows: `lid.176.ftz` (0.9 MB) takes 4 MB of memory, `lid.176.bin` 126 MB as in the
file.
"""

from __future__ import annotations

import math
import mmap
import stat
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curation.base.errors import InputError, nearest
from curation.base.system.files import file_sha256
from curation.base.system.os_errors import fault_of
from curation.kernels import fasttext as kernel

MAGIC, NEWEST_VERSION = 793712314, 12
SUPERVISED = 3
LOSSES = {1: "hierarchical softmax", 2: "negative sampling", 3: "softmax", 4: "one-vs-all"}
LABEL_PREFIX = "__label__"
END_OF_TEXT = b"</s>"
CENTROIDS = 256  # centroids per part of a quantised row
CHUNK_ROWS = 1 << 16
ENTRY = struct.Struct("<qb")  # after the bytes of a word: its count, and whether it is a label
MODELS_KEPT = 4  # models in memory
NO_COUNT = 10**15  # fastText's count of an inner node without children
MAX_WORD_NGRAMS = 100  # fastText's default is 1; each word of an n-gram takes 8 bytes per document
MAX_CHARACTER_NGRAMS = 30  # fastText's default is 0, and 6 for word vectors. Each length adds a row per character
MAX_PRUNED_BUCKETS = 100_000_000  # fastText's default is 2 million; each bucket takes 2 bits of memory
MAX_PART_WIDTH = 64  # fastText's default is 2; the number of weights that one byte of the file becomes
MAX_SHIFT = 29  # more fractional bits do not change a sum of products

LANGUAGE_MODEL = Path(__file__).with_name("lid.176.ftz")
LANGUAGE_SHA256 = "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"
LANGUAGE_LICENCE = "CC BY-SA 3.0 (https://fasttext.cc/docs/en/language-identification.html)"


@dataclass(frozen=True, eq=False)
class Classifier:
    """A loaded model.

    labels         names of the labels, without `__label__`
    digest         SHA-256 of the file
    tables         arguments of `classify_document` between `max_characters` and `scratch`, in that order
    scratch_items  int64 items of scratch memory for one document
    """

    labels: tuple[str, ...]
    digest: str
    tables: tuple[np.ndarray, ...]
    scratch_items: int

    def scoring(self, label: str) -> Classifier:
        """Return a model with which `Engine.classify` gives the probability of this label for each text. Raises
        ValueError for a label that the model does not have."""
        if label not in self.labels:
            raise ValueError(f"no label {label!r} in the model{nearest(label, self.labels)}")
        return _scoring(self, self.labels.index(label))


def label_names(model: str) -> tuple[str, ...]:
    """Return the labels of the model at a path, read from the head of the file; "" means `lid.176.ftz`. Raises
    InputError for a file that is not a supported model."""
    path = _model_path(model)
    return _label_names(path, _stamp(path))


def load_classifier(model: str) -> Classifier:
    """Return the model at a path; "" means `lid.176.ftz`. A process keeps up to MODELS_KEPT models. Raises InputError
    for a file that is not a supported model."""
    path = _model_path(model)
    return _load(path, _stamp(path))


def describe_model(model: str) -> dict[str, str]:
    """Return the `file` and `sha256` of a model for reports, and its `licence` if known."""
    path = _model_path(model)
    digest = _digest(path, _stamp(path))
    known = {"licence": LANGUAGE_LICENCE} if digest == LANGUAGE_SHA256 else {}
    return {"file": model or path.name, "sha256": digest} | known


def _model_path(model: str) -> Path:
    return Path(model) if model else LANGUAGE_MODEL


def _stamp(path: Path) -> tuple[int, int]:
    """Return the time and the size of a file. Time and size show whether the file was replaced."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"no fastText model can be read at {path}: {fault_of(error)}") from None
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):  # a folder fails when it is opened
        raise InputError(f"no fastText model can be read at {path}: it is not a regular file")
    return status.st_mtime_ns, status.st_size


@lru_cache(MODELS_KEPT)
def _label_names(path: Path, stamp: tuple[int, int]) -> tuple[str, ...]:
    reader = _Reader(path)
    _read_settings(reader)
    return _read_words(reader).labels


@lru_cache(MODELS_KEPT)
def _digest(path: Path, stamp: tuple[int, int]) -> str:
    return file_sha256(path)


@lru_cache(MODELS_KEPT)
def _load(path: Path, stamp: tuple[int, int]) -> Classifier:
    reader = _Reader(path)
    digest = _digest(path, stamp)
    if path == LANGUAGE_MODEL and digest != LANGUAGE_SHA256:
        raise InputError(f"{path} is damaged: its SHA-256 is {digest}. Install gpu-pipeline again")
    settings = _read_settings(reader)
    words = _read_words(reader)
    quantised = reader.flag()
    rows = _read_matrix(reader, quantised)
    output = _read_matrix(reader, reader.flag() and quantised)
    _check(reader, settings, words, rows, output)
    return _build(settings, words, rows, output, digest)


# File format: https://github.com/facebookresearch/fastText, `saveModel`; little-endian, no alignment


class _Reader:
    """Reads the items of a file in order. Raises InputError for a file that ends too early."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise InputError(f"no fastText model can be read at {path}: {fault_of(error)}") from None
        except ValueError:  # an empty file cannot be mapped
            raise self.wrong("it is empty") from None
        self.position = 0

    def wrong(self, fault: str) -> InputError:
        return InputError(f"{self.path} is not a supported fastText model: {fault}")

    def advance(self, size: int) -> int:
        """Skip `size` bytes and return the position before them."""
        start = self.position
        if size < 0 or start + size > len(self.data):
            raise self.wrong(f"it ends at byte {len(self.data)}, within {size} bytes that start at {start}")
        self.position += size
        return start

    def numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack_from("<" + layout, self.data, self.advance(struct.calcsize("<" + layout)))

    def flag(self) -> bool:
        return bool(self.numbers("?")[0])

    def array(self, dtype: str, count: int) -> np.ndarray:
        """Return a view of the mapped file."""
        return np.frombuffer(self.data, dtype, count, self.advance(np.dtype(dtype).itemsize * count))

    def entries(self, count: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the words and labels: (bytes, count, kind)."""
        find, unpack, size = self.data.find, ENTRY.unpack_from, len(self.data) - ENTRY.size
        for _ in range(count):
            start, end = self.position, find(b"\0", self.position) + 1
            if not end:
                raise self.wrong(f"the word at byte {start} has no end")
            self.position = end
            if end > size:
                self.advance(ENTRY.size)
            self.position += ENTRY.size
            yield self.data[start : end - 1], *unpack(self.data, end)


class _Settings(NamedTuple):
    dimensions: int
    word_ngrams: int
    hierarchical: bool
    buckets: int
    min_characters: int
    max_characters: int


class _Words(NamedTuple):
    words: list[bytes]
    labels: tuple[str, ...]
    label_bytes: list[bytes]
    label_counts: list[int]
    pruned: np.ndarray | None  # (bucket, its row after the rows of words) of each kept bucket; None: all are kept


def _read_settings(reader: _Reader) -> _Settings:
    if reader.data[:4] != struct.pack("<i", MAGIC):
        raise reader.wrong(f"it starts with {reader.data[:4].hex(' ')}, not with {struct.pack('<i', MAGIC).hex(' ')}")
    _, version = reader.numbers("ii")
    if not 11 <= version <= NEWEST_VERSION:
        raise reader.wrong(f"its format has version {version}; 11 and {NEWEST_VERSION} are supported")
    dimensions, _, _, _, _, word_ngrams, loss, kind, buckets, low, high, _, _ = reader.numbers("12id")
    if kind != SUPERVISED:
        raise reader.wrong("it holds word vectors and has no labels; train one with `fasttext supervised`")
    if LOSSES.get(loss) not in ("hierarchical softmax", "softmax"):
        raise reader.wrong(f"its loss is {LOSSES.get(loss, loss)}; softmax (-loss softmax or hs) is supported")
    if version == 11:  # models of version 11 have no character n-grams, whatever `maxn` is
        high = 0
    if dimensions < 1 or buckets < 0 or (buckets == 0 and (high > 0 or word_ngrams > 1)):
        raise reader.wrong(f"it has dim {dimensions}, bucket {buckets}, maxn {high}, wordNgrams {word_ngrams}")
    if word_ngrams > MAX_WORD_NGRAMS:
        raise reader.wrong(f"it has wordNgrams {word_ngrams}, expected at most {MAX_WORD_NGRAMS}")
    if high > MAX_CHARACTER_NGRAMS:  # each character of a long word would cost that many rows
        raise reader.wrong(f"it has maxn {high}, expected at most {MAX_CHARACTER_NGRAMS}")
    return _Settings(dimensions, word_ngrams, loss == 1, buckets, low, high)


def _read_words(reader: _Reader) -> _Words:
    size, num_words, num_labels, _, num_pruned = reader.numbers("iiiqq")
    if num_labels < 1 or num_words < 0 or size != num_words + num_labels:
        raise reader.wrong(f"it has {size} entries for {num_words} words and {num_labels} labels")
    entries = [*reader.entries(size)]
    if any(kind != (number >= num_words) for number, (_, _, kind) in enumerate(entries)):
        raise reader.wrong("its labels do not follow its words")
    names = [word for word, _, _ in entries]
    labels = tuple(name.decode("utf-8", "replace").removeprefix(LABEL_PREFIX) for name in names[num_words:])
    counts = [count for _, count, _ in entries[num_words:]]
    pruned = reader.array("<i4", 2 * num_pruned).reshape(-1, 2) if num_pruned >= 0 else None
    return _Words(names[:num_words], labels, names[num_words:], counts, pruned)


class _Matrix(NamedTuple):
    shape: tuple[int, int]
    rows: Callable[[int, int], np.ndarray]  # (first, end) -> float64

    def expanded(self) -> _Matrix:
        """Return the matrix, with its rows in memory if they are one chunk."""
        if self.shape[0] > CHUNK_ROWS:
            return self
        values = self.rows(0, self.shape[0])
        return self._replace(rows=lambda first, last: values[first:last])

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        for first in range(0, self.shape[0], CHUNK_ROWS):
            yield first, self.rows(first, min(first + CHUNK_ROWS, self.shape[0]))


def _read_matrix(reader: _Reader, quantised: bool) -> _Matrix:
    if quantised:
        return _read_quantised(reader)
    height, width = reader.numbers("qq")
    if height < 0 or width < 1:
        raise reader.wrong(f"it has a matrix of {height} rows of {width}")
    values = reader.array("<f4", height * width).reshape(height, width)
    return _Matrix((height, width), lambda first, last: values[first:last].astype(np.float64))


def _read_quantised(reader: _Reader) -> _Matrix:
    """Read a product-quantised matrix (Jégou et al. 2011): a row is one centroid per part, times its norm if stored."""
    has_norms, height, width, num_codes = reader.numbers("?qqi")
    if height < 0 or width < 1:
        raise reader.wrong(f"it has a matrix of {height} rows of {width}")
    codes = reader.array("u1", num_codes)
    parts = _read_centroids(reader, width)
    if num_codes != height * len(parts):
        raise reader.wrong(f"a matrix of {height} rows of {len(parts)} codes has {num_codes} codes")
    codes = codes.reshape(height, len(parts))
    norms = np.ones((height, 1))
    if has_norms:
        norm_codes = reader.array("u1", height)
        norms = _read_centroids(reader, 1)[0][norm_codes].astype(np.float64)

    def rows(first: int, last: int) -> np.ndarray:
        pieces = [part[codes[first:last, number]] for number, part in enumerate(parts)]
        return np.concatenate(pieces, axis=1).astype(np.float64) * norms[first:last]

    return _Matrix((height, width), rows)


def _read_centroids(reader: _Reader, width: int) -> list[np.ndarray]:
    """Return the 256 centroids of each part of a row. The last part may be narrower."""
    dimensions, parts, part_width, last_width = reader.numbers("4i")
    total = (parts - 1) * part_width + last_width
    if dimensions != width or total != width or parts < 1 or not 1 <= last_width <= part_width <= MAX_PART_WIDTH:
        raise reader.wrong(
            f"its rows of {width} weights do not match {parts} parts of {part_width}, the last of {last_width}"
        )
    values = reader.array("<f4", dimensions * CENTROIDS)
    widths = [part_width] * (parts - 1) + [last_width]
    ends = np.cumsum([0, *widths]) * CENTROIDS
    return [values[ends[k] : ends[k + 1]].reshape(CENTROIDS, widths[k]) for k in range(parts)]


def _check(reader: _Reader, settings: _Settings, words: _Words, rows: _Matrix, output: _Matrix) -> None:
    """Check the assumptions of the kernel: all rows and labels are within bounds, and the tree has no cycle."""
    num_rows = settings.buckets if words.pruned is None else _check_pruning(reader, settings, words.pruned)
    for name, matrix, height in (
        ("input", rows, len(words.words) + num_rows),
        ("output", output, len(words.labels)),
    ):
        if matrix.shape[0] < height or matrix.shape[1] != settings.dimensions:
            raise reader.wrong(f"its {name} matrix is {matrix.shape}, not {(height, settings.dimensions)}")
    if min(words.label_counts) < 0 or sum(words.label_counts) >= NO_COUNT:
        raise reader.wrong(f"the counts of its labels are negative, or add up to {NO_COUNT} or more")


def _check_pruning(reader: _Reader, settings: _Settings, pruned: np.ndarray) -> int:
    """Check the buckets that pruning kept, and return their number of rows."""
    buckets, numbers = pruned.T
    if settings.buckets > MAX_PRUNED_BUCKETS:
        raise reader.wrong(f"it prunes {settings.buckets} buckets, expected at most {MAX_PRUNED_BUCKETS}")
    if len(pruned) and not 0 <= buckets.min() <= buckets.max() < settings.buckets:
        raise reader.wrong(f"it keeps buckets outside 0 to {settings.buckets - 1}")
    if numbers.min(initial=0) < 0:
        raise reader.wrong("it keeps rows with negative numbers")
    return int(numbers.max(initial=-1)) + 1


# Tables


def _build(settings: _Settings, words: _Words, rows: _Matrix, output: _Matrix, digest: str) -> Classifier:
    # The weights of rows are below 2^29, hence those of an average of rows are. The absolute weights of an output row
    # sum to less than 2^29, hence its sum of products with an average is below 2^58.
    rows, output = rows.expanded(), output.expanded()
    row_shift = _fitting_shift([abs(chunk).max(initial=0) for _, chunk in rows.chunks()])
    output_shift = _fitting_shift([abs(chunk).sum(axis=1).max(initial=0) for _, chunk in output.chunks()])
    if row_shift + output_shift < 31:
        raise InputError("this fastText model has weights that are too large for a trained model")
    index, order = _bucket_index(settings, words)
    tree, depth = _huffman_tree(words.label_counts) if settings.hierarchical else (np.zeros(0, np.int32), 0)
    ring = settings.dimensions + (2 * depth + 2 if settings.hierarchical else len(words.labels))
    numbers = np.zeros(kernel.NUM_SETTINGS, np.int64)
    numbers[kernel.NUM_WORDS] = len(words.words)
    numbers[kernel.MIN_CHARACTERS] = settings.min_characters
    numbers[kernel.MAX_CHARACTERS] = settings.max_characters
    numbers[kernel.BUCKETS] = settings.buckets
    numbers[kernel.WORD_NGRAMS] = settings.word_ngrams
    numbers[kernel.DIMENSIONS] = settings.dimensions
    numbers[kernel.NUM_LABELS] = len(words.labels)
    numbers[kernel.HIERARCHICAL] = settings.hierarchical
    numbers[kernel.SHIFT] = row_shift + output_shift
    numbers[kernel.RING] = ring
    numbers[kernel.WANTED] = -1
    whole_rows, whole_output = _as_integers(rows, row_shift), _as_integers(output, output_shift)
    if order is not None:
        whole_rows = whole_rows[order]
    tables = (numbers, *_word_table(words), index, whole_rows.reshape(-1), whole_output.reshape(-1), tree)
    return Classifier(words.labels, digest, _read_only(tables), ring + max(settings.word_ngrams - 1, 0))


def _read_only(tables: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    for table in tables:
        table.setflags(write=False)
    return tables


@lru_cache(MODELS_KEPT)
def _scoring(model: Classifier, label: int) -> Classifier:
    """Return the model for one label. All frames get the same object, since the GPU engine copies the tables of a model
    once."""
    settings, *others, tree = model.tables
    settings = settings.copy()
    settings[kernel.WANTED] = label
    if settings[kernel.HIERARCHICAL]:
        tree = np.concatenate([tree, _path_to(tree, label, len(model.labels))])
    return Classifier(model.labels, model.digest, _read_only((settings, *others, tree)), model.scratch_items)


def _path_to(tree: np.ndarray, label: int, labels: int) -> np.ndarray:
    """Return the path from the root of a tree of `_huffman_tree` to a label, as `score_of_leaf` reads it."""
    steps: list[int] = []
    node = label
    while node != 2 * labels - 2:
        index = int(np.flatnonzero(tree == node)[0])
        node = labels + index // 2
        steps = [index // 2, index % 2, *steps]
    return np.array([len(steps) // 2, *steps], np.int32)


def _fitting_shift(numbers: Sequence[np.floating]) -> int:
    """Return the largest number of fractional bits with which `numbers`, as integers, stay below 2^29; at most
    MAX_SHIFT."""
    largest = float(np.max(numbers, initial=0))  # this keeps NaN, which Python's max may lose
    if not math.isfinite(largest):
        raise InputError("this fastText model has weights that are not finite: its training has failed")
    return min(29 - math.frexp(largest)[1], MAX_SHIFT) if largest else MAX_SHIFT


def _as_integers(matrix: _Matrix, shift: int) -> np.ndarray:
    """Return all rows as int32, rounded to `shift` fractional bits."""
    table = np.empty(matrix.shape, np.int32)
    for first, chunk in matrix.chunks():
        table[first : first + len(chunk)] = np.rint(chunk * 2.0**shift)
    return table


def _word_table(words: _Words) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the hash table of all words and labels, their bytes, and where each of them ends. The bytes of `</s>` come
    last."""
    entries = words.words + words.label_bytes
    word_bytes = np.frombuffer(b"".join(entries) + END_OF_TEXT, np.uint8)
    word_ends = np.cumsum([0, *map(len, entries)], dtype=np.int64)
    slots = np.full(1 << (2 * len(entries)).bit_length(), -1, np.int32)
    kernel.fill_slots(word_bytes, word_ends, slots)
    return slots, word_bytes, word_ends


def _bucket_index(settings: _Settings, words: _Words) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the index for `row_of_bucket`, and the positions in the file of the rows that it needs: words, then
    buckets by number."""
    if words.pruned is None:
        return np.zeros(0, np.uint64), None
    buckets, first = np.unique(words.pruned[::-1, 0], return_index=True)  # the last of equal buckets counts
    source = words.pruned[::-1, 1][first]
    num_words = len(words.words)
    bits = np.zeros(settings.buckets // 32 + 1, np.uint64)
    np.bitwise_or.at(bits, buckets >> 5, np.uint64(1) << (buckets & 31).astype(np.uint64))
    before = num_words + np.searchsorted(buckets, 32 * np.arange(len(bits)))
    return bits | before.astype(np.uint64) << np.uint64(32), np.r_[np.arange(num_words), num_words + source]


def _huffman_tree(counts: list[int]) -> tuple[np.ndarray, int]:
    """Return the left and right child of each inner node and the depth of the tree, as fastText's `buildTree` does.

    Inner nodes are numbered after the leaves. `counts` descend from label to label."""
    leaves = len(counts)
    count = [*counts, *[NO_COUNT] * (leaves - 1)]
    depth = [0] * (2 * leaves - 1)
    children = np.zeros((leaves - 1, 2), np.int32)
    leaf, node = leaves - 1, leaves
    for parent in range(leaves, 2 * leaves - 1):
        for side in range(2):
            if leaf >= 0 and count[leaf] < count[node]:
                child, leaf = leaf, leaf - 1
            else:
                child, node = node, node + 1
            children[parent - leaves, side] = child
        pair = children[parent - leaves]
        count[parent] = count[pair[0]] + count[pair[1]]
        depth[parent] = 1 + max(depth[pair[0]], depth[pair[1]])
    return children.reshape(-1), depth[-1]
