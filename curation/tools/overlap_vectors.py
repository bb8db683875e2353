# SPDX-License-Identifier: Apache-2.0
"""Computes the cosines of evaluation items with training texts, for `curation.check_overlap`.

A vector of a long document says little about one sentence in it, so documents are compared in windows. The size of an
item's windows is the next power of two of its characters; windows begin half a window apart. The item is also compared
with documents shorter than a window. Some window then contains at least three quarters of any copy of the item. But it
contains other text as well, so its cosine may be low. So around the nearest windows of each item, windows of exactly
the item's length are compared again. `make test-models` measures how many planted copies and paraphrases this finds.

Memory: per item a few vectors, and as many texts of about twice the item's length. Windows are read one batch after the
other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.base.contract import ID, ROW, TEXT, Engine, Frame
from curation.base.system.steps import each
from curation.models.embeddings import dimensions_of, embed_texts
from curation.models.transformers import transformer_digests
from curation.models.vectors import UNITS, cosines, dots, from_column, squared_norms
from curation.results.finished.results import FinishedRun

SIZES = tuple(1 << power for power in range(6, 13))  # characters of windows
OVERLAPS = 2  # windows begin half a window apart
FINE_STEPS = 8  # windows of exactly an item's length begin an eighth of this length apart
CANDIDATES = 4  # nearest windows of an item around which windows are compared again
SNAP = 32  # characters within which a window begins and ends at white space
AT_ONCE = 1 << 10  # texts embedded at once
SHOWN_CHARACTERS = 2 * SIZES[-1]  # characters shown of a document that is compared as a whole
SPACE = re.compile(r"\s")


class ItemVectors(NamedTuple):
    """The evaluation items that have a vector.

    model      folder of the model
    whole      whether documents are compared as a whole only
    rows       positions among all items
    texts      their texts
    vectors    int8, shape (items, dimensions)
    sizes      characters of the windows with which each item is compared
    """

    model: str
    whole: bool
    rows: np.ndarray
    texts: list[str]
    vectors: np.ndarray
    sizes: np.ndarray


class ComparedText(NamedTuple):
    """A text that is compared: a window, or a whole document.

    shown       the text, or the start of a whole document that is longer than any window
    around      the text with half a window before and after it
    low, high   sizes of windows of the items with which it is compared
    vector      int8, or None if it is not known yet
    """

    row: int
    id: str | None
    text: str
    shown: str
    around: str
    low: int
    high: int
    vector: np.ndarray | None = None


class Close(NamedTuple):
    """The nearest pieces of training text of each item, nearest first; the arrays have the shape (items, CANDIDATES).

    score   dot product divided by the norm of the piece, float32; -inf if there is no piece
    order   order of the pieces, int64
    row     row of the document in its task, int64
    ids     id of the document, object
    shown   `ComparedText.shown`, object
    around  `ComparedText.around`, object
    vectors int8, shape (items, CANDIDATES, dimensions)
    """

    score: np.ndarray
    order: np.ndarray
    row: np.ndarray
    ids: np.ndarray
    shown: np.ndarray
    around: np.ndarray
    vectors: np.ndarray

    @classmethod
    def none(cls, items: int, dimensions: int) -> Close:
        """Return a result without any piece."""
        shape = (items, CANDIDATES)
        return cls(
            score=np.full(shape, -np.inf, np.float32),
            order=np.full(shape, -1, np.int64),
            row=np.zeros(shape, np.int64),
            ids=np.full(shape, None, object),
            shown=np.full(shape, "", object),
            around=np.full(shape, "", object),
            vectors=np.zeros((*shape, dimensions), np.int8),
        )

    def merge(self, rows: np.ndarray, other: Close) -> None:
        """Replace pieces of the items at `rows` by nearer pieces of another result. Of pieces with equal scores, the
        first in the order of pieces counts as nearer."""
        score = np.concatenate([self.score[rows], other.score], axis=1)
        order = np.concatenate([self.order[rows], other.order], axis=1)
        best = np.lexsort((order, -score), axis=1)[:, :CANDIDATES]
        for mine, theirs in zip(self, other, strict=True):
            both = np.concatenate([mine[rows], theirs], axis=1)
            columns = best[:, :, None] if both.ndim == 3 else best
            mine[rows] = np.take_along_axis(both, columns, axis=1)


class Nearest(NamedTuple):
    """The nearest document of each item: the cosine in ten-thousandths, the order of its task and its row in the task,
    its id, and the compared text."""

    units: np.ndarray
    order: np.ndarray
    row: np.ndarray
    ids: np.ndarray
    texts: list[str]


def items_of(texts: Sequence[str], model: str, whole: bool) -> ItemVectors:
    """Return the items with a vector. Raises InputError for a model that cannot be used."""
    rows, vectors = [np.zeros(0, np.int64)], [np.zeros((0, dimensions_of(model)), np.int8)]
    for start in each(range(0, len(texts), AT_ONCE), "vectors of items", "batch"):
        embedded = embed_texts(texts[start : start + AT_ONCE], model, 0, "mean")
        chosen = np.flatnonzero(embedded.present)
        rows.append(chosen + start)
        vectors.append(embedded.vectors[chosen])
    row = np.concatenate(rows)
    named = [texts[number] for number in row.tolist()]
    indexes = np.searchsorted(SIZES, [len(text.strip()) for text in named])
    return ItemVectors(
        model, whole, row, named, np.concatenate(vectors), np.array(SIZES)[np.minimum(indexes, len(SIZES) - 1)]
    )


def stored_column(run: FinishedRun, model: str) -> str:
    """Return the column of `documents/` with the vectors of the documents by this model; "" if there is none.

    Models are equal if the SHA-256 of their files are equal. The vectors are not used if a later stage changed texts,
    or if they were made from a different part of the texts than is compared here."""
    wanted = _by_name(transformer_digests(model))
    column = ""
    for number, stage in enumerate(run.report["stages"]):
        settings = run.report["recipe"]["stages"][number]
        if stage["edited"]:
            column = ""
        if stage["kind"] != "embed":
            continue
        whole = not settings["max_characters"] and (settings["pooling"] == "mean" or settings["windows"] == 1)
        same = _by_name(run.report["stage_files"].get(stage["name"], {})) == wanted
        if column in ("", settings["column"]):
            column = settings["column"] if whole and same else ""
    return column


def _by_name(digests: dict[str, str]) -> dict[str, str]:
    return {Path(path).name: digest for path, digest in digests.items()}


class VectorSearch:
    """The search of one task: `add` its frames, then take `close`."""

    def __init__(self, engine: Engine, items: ItemVectors, stored: str) -> None:
        self.engine, self.items, self.stored = engine, items, stored
        self.close = Close.none(*items.vectors.shape)
        self.sizes = np.unique(items.sizes).tolist()
        self.number = 0

    def add(self, frame: Frame) -> None:
        """Compare the documents of a frame."""
        pieces: list[ComparedText] = []
        for document in self._documents(frame):
            for piece in self._pieces(*document):
                pieces.append(piece)
                if len(pieces) == AT_ONCE:
                    self._compare(pieces)
                    pieces = []
        self._compare(pieces)

    def _documents(self, frame: Frame) -> Iterator[tuple[int, str | None, str, np.ndarray | None]]:
        table = self.engine.to_arrow(frame[[ROW, ID, TEXT, *([self.stored] if self.stored else [])]])
        for batch in table.to_batches(AT_ONCE):
            rows, ids, texts = (batch.column(name).to_pylist() for name in (ROW, ID, TEXT))
            if self.stored:
                vectors, present = from_column(batch.column(self.stored), self.stored, ids)
                known: list[np.ndarray | None] = [v if has else None for v, has in zip(vectors, present, strict=True)]
            else:
                known = [None] * len(rows)
            yield from zip(rows, ids, texts, known, strict=True)

    def _pieces(self, row: int, id_: str | None, text: str, vector: np.ndarray | None) -> Iterator[ComparedText]:
        if not text.strip():
            return
        high = self.sizes[-1] if self.sizes else 0
        low = 0 if vector is not None or self.items.whole else len(text)
        if low <= high:
            start = text[:SHOWN_CHARACTERS]
            yield ComparedText(row, id_, text, start, start, low, high, vector)
        for size in self.sizes if not self.items.whole else ():
            if size < len(text):
                for first, last in windows(text, size, size // OVERLAPS):
                    around = text[max(first - size // 2, 0) : last + size // 2]
                    yield ComparedText(row, id_, text[first:last], text[first:last], around, size, size)

    def _compare(self, pieces: list[ComparedText]) -> None:
        vectors, present = np.zeros((len(pieces), self.items.vectors.shape[1]), np.int8), np.ones(len(pieces), bool)
        new = [index for index, piece in enumerate(pieces) if piece.vector is None]
        embedded = embed_texts([pieces[index].text for index in new], self.items.model, 0, "mean") if new else None
        if embedded is not None:
            vectors[new], present[new] = embedded.vectors, embedded.present
        for index, piece in enumerate(pieces):
            if piece.vector is not None:
                vectors[index] = piece.vector
        low, high = np.array([(piece.low, piece.high) for piece in pieces], np.int64).reshape(-1, 2).T
        for size in self.sizes:
            theirs = np.flatnonzero(present & (low <= size) & (size <= high))
            if len(theirs):
                self._take(np.flatnonzero(self.items.sizes == size), pieces, theirs, vectors[theirs])
        self.number += len(pieces)

    def _take(self, mine: np.ndarray, pieces: list[ComparedText], theirs: np.ndarray, vectors: np.ndarray) -> None:
        """Compare the items at `mine` with the pieces at `theirs`, and keep the nearest pieces of each item."""
        weights = (1 / np.sqrt(squared_norms(vectors).astype(np.float64))).astype(np.float32)
        items = self.items.vectors[mine]
        near = self.engine.nearest_vectors(items, vectors, weights, min(CANDIDATES, len(vectors))).astype(np.int64)
        score = np.stack(
            [dots(items, vectors[column]).astype(np.float32) * weights[column] for column in near.T], axis=1
        )
        better = (score > self.close.score[mine, -1:]).any(axis=1)
        if not better.any():
            return
        near, score = near[better], score[better]
        indexes = theirs[near]

        def objects(name: str) -> np.ndarray:
            out = np.empty(indexes.shape, object)
            out.reshape(-1)[:] = [getattr(pieces[index], name) for index in indexes.reshape(-1).tolist()]
            return out

        nearer = Close(
            score, indexes + self.number, objects("row").astype(np.int64), objects("id"), objects("shown"),
            objects("around"), vectors[near],
        )  # fmt: skip
        self.close.merge(mine[better], nearer)


def windows(text: str, size: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last character + 1 of windows of about `size` characters, which begin and end at white
    space if it is near. The last one ends with the text."""
    start = 0
    while True:
        yield _snapped(text, start), _snapped(text, start + size)
        if start + size >= len(text):
            return
        start += step


def _snapped(text: str, position: int) -> int:
    if not 0 < position < len(text) or text[position - 1].isspace():
        return min(position, len(text))
    space = SPACE.search(text, position, position + SNAP)
    return space.end() if space else position


def refine(items: ItemVectors, close: Close) -> Nearest:
    """Return the nearest document of each item: the candidate with the best window of exactly the item's length."""
    norms = squared_norms(items.vectors)
    units = np.full(len(norms), -UNITS - 1, np.int64)
    chosen = np.zeros(len(norms), np.int64)
    texts = [""] * len(norms)

    def note(item: np.ndarray, candidate: np.ndarray, vectors: np.ndarray, named: Sequence[str]) -> None:
        compared = items.vectors[item]
        cosine = cosines(dots(compared, vectors), norms[item], squared_norms(vectors))
        for index in np.lexsort((np.arange(len(item)), -cosine)).tolist():
            number = int(item[index])
            if cosine[index] > units[number]:
                units[number], chosen[number], texts[number] = cosine[index], candidate[index], named[index]

    item, candidate = np.nonzero(np.isfinite(close.score))
    note(item, candidate, close.vectors[item, candidate], close.shown[item, candidate].tolist())
    pending: list[tuple[int, int, str]] = []

    def flush() -> None:
        embedded = embed_texts([text for _, _, text in pending], items.model, 0, "mean")
        has = np.flatnonzero(embedded.present)
        numbers = np.array([entry[:2] for entry in pending], np.int64).reshape(-1, 2)[has]
        note(numbers[:, 0], numbers[:, 1], embedded.vectors[has], [pending[index][2] for index in has.tolist()])
        pending.clear()

    for number in each(range(0 if items.whole else len(norms)), "nearest windows", "item"):
        length = len(items.texts[number].strip())
        for index in np.flatnonzero(np.isfinite(close.score[number])).tolist():
            around = close.around[number, index]
            for first, last in windows(around, length, max(length // FINE_STEPS, 1)):
                pending.append((number, index, around[first:last]))
                if len(pending) == AT_ONCE:
                    flush()
    if pending:
        flush()
    at = np.arange(len(norms)), chosen
    return Nearest(units, close.order[at], close.row[at], close.ids[at], texts)
