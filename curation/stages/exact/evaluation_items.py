# SPDX-License-Identifier: Apache-2.0
"""The items of evaluation texts, as tasks look them up: n-grams, short questions, and answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.arrays import load_arrays
from curation.base.contract import ROW, TEXT, Engine
from curation.base.errors import InputError, counted
from curation.base.system.files import commit
from curation.base.system.steps import each
from curation.kernels.ngram_table import TABLES_AT_ONCE, NgramTable, table_of
from curation.reading import probe, read_documents, shown
from curation.reading.changes import check_unchanged
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.stages.corpus.keep_orders import as_strings
from curation.stages.corpus.similarity import ShingleSettings, compared_text

SLICE_BYTES = BATCH_BYTES = 16 << 20
KEY_WORDS = 4  # consecutive words of a short question by which it is found
ALONE_WORDS = 8  # a short question with at least this many words is found without its answer
ANSWER_WORDS = 8  # words of an answer that are compared, from its start
BY_NGRAMS, SHORT, WHOLE_DOCUMENT = 0, 1, 2  # ways in which an item is searched


class ShortItem(NamedTuple):
    """A question of fewer words than an n-gram: its item, its words, and the position of the first word of its key,
    which has KEY_WORDS words."""

    item: int
    words: tuple[str, ...]
    key: int


class EvaluationItems(NamedTuple):
    """The items of evaluation texts: 16 bytes per n-gram and the words of short questions and of answers.

    names, files  of the inputs, and of their files
    places        int64 (items, 4): the input, the file, the record from 1, and how the item is searched
    answers       words of the answer of each item, joined by spaces; "" for none; empty if no item has one
    hashes        uint64, ascending and distinct: the n-grams
    first_item    int64: the first item that has each n-gram
    short         short questions, in the order of `key_hashes`
    key_hashes    uint64, ascending: their keys
    shared        number of n-grams that several inputs have
    """

    names: tuple[str, ...]
    files: tuple[str, ...]
    places: np.ndarray
    answers: tuple[str, ...]
    hashes: np.ndarray
    first_item: np.ndarray
    short: tuple[ShortItem, ...]
    key_hashes: np.ndarray
    shared: int

    def answer(self, item: int) -> tuple[str, ...]:
        """Return the compared words of an answer."""
        return tuple(self.answers[item].split()) if self.answers else ()

    def digest(self) -> str:
        """Return the SHA-256 of all items."""
        content = hashlib.sha256(msgspec.json.encode((self.names, self.files, self.answers, self.short, self.shared)))
        for array in (self.places, self.hashes, self.first_item, self.key_hashes):
            content.update(array.tobytes())
        return content.hexdigest()

    def save(self, path: Path) -> None:
        """Write the items to `path` as `.npz`."""
        texts = np.frombuffer(
            msgspec.json.encode((self.names, self.files, self.answers, self.short, self.shared)), np.uint8
        )
        with commit(path) as temporary, open(temporary, "wb") as file:
            np.savez(
                file, texts=texts, places=self.places, hashes=self.hashes, first_item=self.first_item,
                key_hashes=self.key_hashes,
            )  # fmt: skip

    def count(self, search: int) -> int:
        """Return how many items are searched in this way (`BY_NGRAMS`, `SHORT` or `WHOLE_DOCUMENT`)."""
        return int(np.count_nonzero(self.places[:, 3] == search))

    def searched(self) -> str:
        """Return how many items are searched in each way, as readable text."""
        short, whole = self.count(SHORT), self.count(WHOLE_DOCUMENT)
        return (
            f"{counted(len(self.places), 'evaluation item')}, {short + whole:,} with fewer words than an n-gram: "
            f"{short:,} searched as short questions, {whole:,} found only as whole documents"
        )


class Evaluation(NamedTuple):
    """Items with the table of their n-grams, the table of the keys of short questions (None: no short questions), and
    the number of n-grams of each item that no earlier item has (int64)."""

    items: EvaluationItems
    ngrams: NgramTable
    keys: NgramTable | None
    sizes: np.ndarray


def evaluation_of(items: EvaluationItems) -> Evaluation:
    """Return items with their tables."""
    keys = np.unique(items.key_hashes)
    sizes = np.bincount(items.first_item, minlength=len(items.places))
    return Evaluation(items, _table(items.hashes), _table(keys) if len(keys) else None, sizes)


def _table(hashes: np.ndarray) -> NgramTable:
    return table_of(("",), hashes, np.zeros(len(hashes), np.int32))


@lru_cache(maxsize=TABLES_AT_ONCE)
def load_evaluation(path: Path) -> Evaluation:
    """Return the items that `save` wrote, read once per process; the content of a path never changes."""
    stored = load_arrays(path)
    kind = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[ShortItem, ...], int]
    names, files, answers, short, shared = msgspec.json.decode(stored["texts"].tobytes(), type=kind)
    arrays = (stored[name] for name in ("places", "hashes", "first_item", "key_hashes"))
    places, hashes, first_item, key_hashes = arrays
    return evaluation_of(EvaluationItems(names, files, places, answers, hashes, first_item, short, key_hashes, shared))


def read_items(
    engine: Engine, files: Sequence[SourceFile], settings: ShingleSettings, answer_column: str
) -> EvaluationItems:
    """Return the items of files. Raises InputError for a rejected record, whose content would otherwise stay in the
    training data unnoticed."""
    sources = [probe(file) for file in files]
    names = tuple(dict.fromkeys(file.source for file in sources))
    shown_files = tuple(dict.fromkeys(shown(file.path) for file in sources))
    set_of = {name: number for number, name in enumerate(names)}
    file_of = {name: number for number, name in enumerate(shown_files)}
    places: list[np.ndarray] = [np.zeros((0, 4), np.int64)]
    hashes, owners = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    answers: list[str] = []
    short: list[ShortItem] = []
    first = before = 0
    for file in each(sources, "reading evaluation texts", "file", size=lambda file: max(file.bytes, 0)):
        for table, numbers in _batches(file):
            text = compared_text(engine, engine.from_arrow(table)[TEXT], settings)
            batch, offsets = engine.shingles(text, settings.ngram, False)
            own = np.full((len(table), 4), BY_NGRAMS, np.int64)
            own[:, 0], own[:, 1], own[:, 2] = set_of[file.source], file_of[shown(file.path)], numbers
            told = _answers(engine, table, settings, answer_column)
            few = engine.measure(text, ("words",))["words"] < settings.ngram
            texts = engine.to_arrow(text.to_frame(TEXT)).column(TEXT).combine_chunks().filter(pa.array(few))
            for row, question in zip(np.flatnonzero(few).tolist(), texts.to_pylist(), strict=True):
                words = tuple((question or "").split())
                is_short = len(words) >= KEY_WORDS and (len(words) >= ALONE_WORDS or bool(told and told[row]))
                own[row, 3] = SHORT if is_short else WHOLE_DOCUMENT
                if is_short:
                    short.append(ShortItem(first + row, words, _key_of(words)))
            hashes.append(batch)
            owners.append(np.repeat(np.arange(first, first + len(table)), np.diff(offsets)))
            places.append(own)
            answers += told
            first += len(table)
        if answer_column and not any(answers[before:]):
            raise InputError(
                f"evaluation texts {shown(file.path)}: no record has words in {answer_column!r}, the answer_column. "
                "Name the column of the answers"
            )
        before = first
    distinct, at = np.unique(np.concatenate(hashes), return_index=True)
    if not len(distinct):
        raise InputError(f"the evaluation texts of {', '.join(names)} have no words")
    keys = [" ".join(item.words[item.key : item.key + KEY_WORDS]) for item in short]
    key_hashes = engine.shingles(column_of(engine, keys), KEY_WORDS, False)[0]
    order = np.argsort(key_hashes, kind="stable")
    sorted_short = tuple(short[place] for place in order.tolist())
    all_owners, all_places = np.concatenate(owners), np.concatenate(places)
    _, in_sets = np.unique(
        np.unique(np.stack([np.concatenate(hashes), all_places[all_owners, 0].astype(np.uint64)]), axis=1)[0],
        return_counts=True,
    )
    return EvaluationItems(
        names, shown_files, all_places, tuple(answers), distinct, all_owners[at], sorted_short, key_hashes[order],
        int(np.count_nonzero(in_sets > 1)),
    )  # fmt: skip


def column_of(engine: Engine, texts: Sequence[str]) -> pa.Array:
    """Return strings as a column of texts of the engine."""
    return engine.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))[TEXT]


def _key_of(words: Sequence[str]) -> int:
    """Return where the key of a short question begins. The key is the KEY_WORDS consecutive words with the most bytes,
    because few texts have these."""
    sizes = [len("".join(words[at : at + KEY_WORDS]).encode()) for at in range(len(words) - KEY_WORDS + 1)]
    return sizes.index(max(sizes))


def _answers(engine: Engine, table: pa.Table, settings: ShingleSettings, column: str) -> list[str]:
    """Return the words of each answer that are compared, joined by spaces; an empty list if there is no column of
    answers."""
    if not column:
        return []
    values = pa.table({TEXT: as_strings(table.column(column), column)})
    text = compared_text(engine, engine.from_arrow(values)[TEXT], settings)
    texts = engine.to_arrow(text.to_frame(TEXT)).column(TEXT).to_pylist()
    return [" ".join((answer or "").split()[:ANSWER_WORDS]) for answer in texts]


def _batches(file: SourceFile) -> Iterator[tuple[pa.Table, np.ndarray]]:
    """Yield the records of a file, batch by batch, with their numbers from 1."""
    records = 0  # records of earlier slices of the file
    for input_slice in plan_slices([file], SLICE_BYTES):
        rows = 0
        for documents in read_documents(input_slice, BATCH_BYTES):
            rows += documents.rows
            for entry in documents.rejected:
                number = records + entry.row + 1
                raise InputError(f"evaluation texts {shown(file.path)}, record {number:,}: {entry.error}")
            yield documents.table, documents.table.column(ROW).to_numpy() + records + 1
        check_unchanged(input_slice)
        records += rows
