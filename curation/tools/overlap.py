# SPDX-License-Identifier: Apache-2.0
"""`curation.check_overlap`: the share of each evaluation item whose word n-grams occur in training texts.

`decontaminate` removes documents that share an n-gram with evaluation texts. This module answers the opposite question:
which evaluation items a model has seen. Memory: 44 to 68 bytes per n-gram of the evaluation texts, 100 bytes per n-gram
found and document named, and a batch of text per worker. The training texts stream through. With an embedding model,
items are compared with the training texts by the cosine of their vectors too: `curation.tools.overlap_vectors`.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.base.contract import ID, ROW, TEXT, Engine
from curation.base.engine import choose_engine, load_engine
from curation.base.errors import InputError, OutputError, RecipeError, as_share, counted, nearest
from curation.base.system.files import as_json, commit, local_output, prepare_output
from curation.base.system.html_table import html_table
from curation.base.system.memory import read_processors
from curation.base.system.steps import Count, each, watching
from curation.kernels.ngram_table import table_of
from curation.models.packages import model_folder
from curation.models.vectors import UNITS, units_of
from curation.reading import probe, read_documents, rejections, shown
from curation.reading.changes import check_unchanged
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.source_files import SourceFile
from curation.reading.texts import local_inputs
from curation.recipes.keywords import check_types
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings, compared_text
from curation.stages.exact.evaluation_items import Evaluation, column_of, evaluation_of
from curation.stages.exact.evaluation_items import read_items as read_evaluation
from curation.stages.exact.leaks import says_something
from curation.stages.words import check_words
from curation.tools.overlap_corpus import FilesTask, FoundNgrams, WantedNgrams, find_ngrams, first_per_group, plan_tasks
from curation.tools.overlap_vectors import Close, ItemVectors, items_of, refine

SLICE_BYTES = BATCH_BYTES = 16 << 20
SUFFIXES = (".json", ".arrow", ".parquet")
SCHEMA = pa.schema(
    [
        ("test", pa.string()), ("file", pa.string()), ("item", pa.int64()), ("id", pa.large_string()),
        ("words", pa.int64()), ("ngrams", pa.int64()), ("found", pa.int64()), ("share", pa.float64()),
        ("contaminated", pa.bool_()), ("documents", pa.list_(pa.large_string())),
    ]
)  # fmt: skip
CLOSE = [
    ("text", pa.large_string()), ("cosine", pa.float64()), ("close", pa.bool_()), ("nearest", pa.large_string()),
    ("nearest_text", pa.large_string()),
]  # fmt: skip
REMEDY = "Set text_column of the test file, or give --test-column NAME"


class EvaluationSet(NamedTuple):
    """The counts of one evaluation set, an input of `test`.

    items         items with words
    contaminated  items with more than the threshold of their n-grams in the training texts
    touched       items with at least one n-gram in the training texts
    short         items of fewer words than an n-gram
    ngrams        sum over items of their distinct n-grams
    found         sum over items of those n-grams that occur in the training texts
    empty         items without words, which are not compared
    close         items with a cosine of at least `cosine` to a training text; 0 without a model
    """

    name: str
    items: int
    contaminated: int
    touched: int
    short: int
    ngrams: int
    found: int
    empty: int = 0
    close: int = 0


def contamination(overlap: Any) -> str:
    """Return, as text, how many items of an Overlap or a SpanOverlap are contaminated, and by how many documents."""
    items, sets = counted(sum(entry.items for entry in overlap.sets), "item"), counted(len(overlap.sets), "set")
    return f"{overlap.contaminated:,} of {items} of {sets} contaminated by {counted(overlap.documents, 'document')}"


class Overlap(NamedTuple):
    """The result of `check_overlap`.

    sets       counts per evaluation set
    items      a row per evaluation item, in the order of the files: `test` (the set), `file`, `item` (record, from 1),
               `id`, `words`, `ngrams` (different ones), `found`, `share`, `contaminated`, and the ids of `documents`
               that have some of its n-grams, those with most of them first. An item without words has a null `share`.
               With a model also `text`, `cosine` (rounded down to four digits; null without a vector), `close` (whether
               it is at least the setting `cosine`), `nearest` (id of the nearest document), and `nearest_text`, the
               text compared
    ngram, threshold, model, cosine settings
    documents, bytes, rejected      training documents read, bytes of their text, and records that are no documents
    """

    sets: list[EvaluationSet]
    items: pa.Table
    ngram: int
    threshold: float
    documents: int
    bytes: int
    rejected: int
    model: str = ""
    cosine: float = 0.95

    @property
    def contaminated(self) -> int:
        """Number of contaminated items."""
        return sum(entry.contaminated for entry in self.sets)

    @property
    def close(self) -> int:
        """Number of items that are close to a training text; 0 without a model."""
        return sum(entry.close for entry in self.sets)

    def __repr__(self) -> str:
        close = f", {self.close:,} close to one by {self.model}" if self.model else ""
        return f"<overlap: {contamination(self)}{close}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], EvaluationSet._fields, self.sets)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the result to a `.json` file, or the items to an `.arrow` or `.parquet` file, and return its path.

        OutputError: another suffix, or a file that exists without `force`."""
        settings = {"model": self.model, "cosine": self.cosine} if self.model else {}
        content = {
            "ngram": self.ngram, "threshold": self.threshold, **settings,
            "documents": self.documents, "bytes": self.bytes,
            "rejected": self.rejected, "sets": [entry._asdict() for entry in self.sets],
        }  # fmt: skip
        return save_items(check_output(path, force), content, self.items)


def save_items(target: Path, content: dict[str, Any], items: pa.Table) -> Path:
    """Write content with its items to a `.json` file, or the items to an `.arrow` or `.parquet` file, and return its
    path."""
    with commit(target) as temporary:
        if target.suffix == ".json":
            temporary.write_bytes(as_json(content | {"items": items.to_pylist()}, indent=True))
        elif target.suffix == ".arrow":
            with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, items.schema) as writer:
                writer.write_table(items)
        else:
            pq.write_table(items, temporary, compression="zstd")
    return target


def check_output(path: str | os.PathLike[str], force: bool) -> Path:
    """Return the path of an output of `Overlap.save`. Raises the same OutputError."""
    target = local_output(path)
    if target.suffix not in SUFFIXES:
        raise OutputError(f"the output is {target}, expected a name that ends in {', '.join(SUFFIXES)}")
    return prepare_output(target, force)


def check_overlap(
    train: Any,
    test: Any,
    *,
    ngram: int = 13,
    threshold: float = 0.8,
    compare: str = "visible",
    words: str = "spaces",
    documents: int = 10,
    tokenizer: str = "",
    model: str | os.PathLike[str] = "",
    cosine: float = 0.95,
    whole_documents: bool = False,
    answer_column: str = "",
    engine: str = "auto",
    workers: int = 0,
) -> Overlap:
    """Return which evaluation items occur in training texts, by the share of their word n-grams that are found there.

    train      the folder of a finished run, paths or inputs as in a recipe, prefixes of `.bin/.idx` pairs, or a list
    test       paths or inputs as in a recipe; each input is a set. A record that cannot be read, and a file without a
               word, are an InputError
    ngram      number of words in an n-gram; each different n-gram of an item counts once
    threshold  an item is contaminated if more than this share of its n-grams is found, and its different words with a
               letter have 1.5 bytes per word of an n-gram, as in `decontaminate`
    compare    the text that is cut into words. `visible`: in the form NFKC and lower case, without invisible
               characters, each punctuation character and sign (P*, S*) as a space, letters that look the same as
               one; `lowercase`: `text.lower()`; `exact`: the text unchanged; `folded`: as in `fuzzy_dedup`, where all
               digits are equal
    words      what a word is: `spaces`, `scripts` or `table` (docs/languages.md)
    documents  number of documents to name per item: of the first ones with each n-gram, those with most n-grams
    tokenizer  of pairs; default: the one in the manifest of their run
    model      as in `curation.embed`: compare vectors too; "": n-grams only
    cosine     with a model: an item is close to a training text from this cosine on, in (0, 1]
    whole_documents  with a model: compare documents as a whole only. A long one then hides an item
    answer_column    column of `test` with the answer of an item, as in `decontaminate`; "": items have none
    engine     `auto`, `gpu` or `cpu`
    workers    tasks at once; 0: one per processor

    An item of fewer than `ngram` words is one n-gram. From 8 words on, it is found inside documents; from 4 words on,
    if its answer is within 50 words of it; a shorter one only in documents that consist of the same words.
    `EvaluationSet.short` counts these items. The texts of pairs are decoded, then cut into words. Equal results for
    any number of workers.

    With a model, each item is compared with windows of about its length of every document, and with shorter documents.
    A finished run with vectors by the same model (equal SHA-256 of its files) gives those of whole documents.

        >>> import curation, pandas
        >>> words = " ".join(f"word{number}" for number in range(20))
        >>> pandas.DataFrame({"text": ["other", f"so {words} it is"]}).to_json("a.jsonl", orient="records", lines=True)
        >>> pandas.DataFrame({"text": [words]}).to_json("quiz.jsonl", orient="records", lines=True)
        >>> overlap = curation.check_overlap("a.jsonl", "quiz.jsonl")
        >>> overlap.contaminated, overlap.items["documents"].to_pylist()
        (1, [['a/1']])

    RecipeError: wrong settings. InputError: inputs or a model that cannot be used, or training texts without a
    document. EngineError: a missing package of the model.
    """
    check_types(
        "check_overlap",
        {
            "ngram": (ngram, int), "threshold": (threshold, float), "documents": (documents, int),
            "tokenizer": (tokenizer, str), "words": (words, str), "model": (model, str), "cosine": (cosine, float),
            "whole_documents": (whole_documents, bool), "answer_column": (answer_column, str),
            "workers": (workers, int),
        },
    )  # fmt: skip
    _check(ngram, threshold, compare, documents, workers)
    try:
        check_words(words)
    except ValueError as error:
        raise RecipeError(str(error)) from None
    model = model_folder(os.fspath(model))
    if model and not 0 < cosine <= 1:
        raise RecipeError(f"cosine must be above 0 and at most 1, not {cosine:g}{as_share(cosine)}")
    if whole_documents and not model:
        raise RecipeError("whole_documents is for vectors, and there is no model. Give the folder of a model")
    chosen = load_engine(choose_engine(engine).name)
    items = _Items(test, ShingleSettings(COMPARISONS[compare], ngram, False, words))
    vectors = items_of(items.texts, model, whole_documents) if model else None
    if vectors is not None and not len(vectors.rows):
        raise InputError(f"test: {model} knows no word of any item. Give a model of their language")
    tasks = plan_tasks(train, tokenizer, model)
    table = table_of(("test",), items.hashes, np.arange(len(items.hashes), dtype=np.int32))
    questions = items.questions(answer_column)
    wanted = WantedNgrams(table, items.hashes, items.settings, documents, vectors, questions, items.first_grams)
    corpus = _scan(chosen, wanted, tasks, workers or read_processors())
    if not corpus.documents:
        rejected = f"; {corpus.rejected:,} records were rejected" if corpus.rejected else ""
        raise InputError(f"the training texts have no document{rejected}. Check the paths and --text-column")
    overlap = _judge(items, corpus, ngram, threshold, documents)
    return overlap if vectors is None else _with_cosines(overlap, items, vectors, corpus, cosine)


def _check(ngram: int, threshold: float, compare: str, documents: int, workers: int) -> None:
    if ngram < 1:
        raise RecipeError(f"ngram must be at least 1, not {ngram}")
    if not 0 <= threshold < 1:
        raise RecipeError(f"threshold must be at least 0 and below 1, not {threshold:g}")
    if compare not in COMPARISONS:
        raise RecipeError(f"compare: no comparison {compare!r}{nearest(compare, COMPARISONS)}")
    if documents < 1:
        raise RecipeError(f"documents must be at least 1, not {documents}")
    if workers < 0:
        raise RecipeError(f"workers must be 0 (one per processor) or more, not {workers}")


class _Items:
    """The evaluation items and their distinct n-grams. `hashes` (uint64, ascending) has the n-grams of all items;
    `grams[starts[k]:starts[k + 1]]` has the positions in `hashes` of those of item k."""

    def __init__(self, test: Any, settings: ShingleSettings) -> None:
        inputs = local_inputs(test, "test: ")
        if not inputs:
            raise InputError("test has no inputs, expected at least one path")
        engine = load_engine("cpu")
        self.settings = settings
        self.columns: dict[str, list[Any]] = {name: [] for name in ("test", "file", "item", "id", "words")}
        self.texts: list[str] = []
        hashes, sizes = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
        for file in [probe(file, REMEDY) for file in find_files(inputs)]:
            before = len(hashes)
            for batch, counts in self._read(engine, file):
                hashes.append(batch)
                sizes.append(counts)
            if not sum(map(len, hashes[before:])):
                raise InputError(
                    f"test file {shown(file.path)} has no words: nothing of it was compared. Check that it "
                    f"is the right file. {REMEDY}"
                )
        self.hashes, grams = np.unique(np.concatenate(hashes), return_inverse=True)
        self.grams = grams.astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        self.inputs = inputs

    @property
    def first_grams(self) -> np.ndarray:
        """Return the position in `hashes` of each item's first n-gram; 0 for an item without words."""
        return np.append(self.grams, 0)[self.starts[:-1]]

    def questions(self, answer_column: str) -> Evaluation | None:
        """Return the evaluation items with short questions, and no n-grams; None if no item has a short question."""
        if not answer_column and min(self.columns["words"], default=0) >= self.settings.ngram:
            return None
        columns = [answer_column] if answer_column else []
        files = find_files([msgspec.structs.replace(entry, columns=columns) for entry in self.inputs])
        items = read_evaluation(load_engine("cpu"), files, self.settings, answer_column)
        none = np.zeros(0, np.int64)
        return evaluation_of(items._replace(hashes=none.astype(np.uint64), first_item=none)) if items.short else None

    def says_nothing(self, item: int) -> bool:
        """Return whether an item has too few letters for its n-grams to be evidence, as in `decontaminate`."""
        engine = load_engine("cpu")
        text = compared_text(engine, column_of(engine, [self.texts[item]]), self.settings)
        words = engine.to_arrow(text.to_frame(TEXT)).column(TEXT)[0].as_py().split()
        return len(words) >= self.settings.ngram and not says_something(words, self.settings.ngram)

    def _read(self, engine: Engine, file: SourceFile) -> Any:
        """Yield (n-grams of a batch, number of n-grams of each item), and store the items."""
        records = 0
        for input_slice in each(plan_slices([file], SLICE_BYTES), "reading test files", "slice"):
            rows = 0
            for documents in read_documents(input_slice, BATCH_BYTES):
                rows += documents.rows
                for entry in documents.rejected:
                    raise InputError(f"test file {shown(file.path)}, record {records + entry.row + 1:,}: {entry.error}")
                self.texts += documents.table.column(TEXT).to_pylist()
                text = compared_text(engine, engine.from_arrow(documents.table)[TEXT], self.settings)
                hashes, offsets = engine.shingles(text, self.settings.ngram, False)
                numbers = (documents.table.column(ROW).to_numpy() + records + 1).tolist()
                ids = documents.table.column(ID).to_pylist()
                self.columns["test"] += [file.source] * len(numbers)
                self.columns["file"] += [shown(file.path)] * len(numbers)
                self.columns["item"] += numbers
                self.columns["id"] += [
                    id_ or f"{file.source}/{number - 1}" for id_, number in zip(ids, numbers, strict=True)
                ]
                self.columns["words"] += engine.measure(text, ("words",))["words"].tolist()
                yield hashes, np.diff(offsets)
            check_unchanged(input_slice)
            records += rows


def read_items(test: Any) -> _Items:
    """Return the evaluation items of inputs as in a recipe."""
    return _Items(test, ShingleSettings(COMPARISONS["exact"], 1, False))


class _Corpus(NamedTuple):
    """The n-grams found: their positions in `_Items.hashes`, ascending, and the first documents that have each n-gram.
    `close` has the nearest texts of each item with a vector; `names` has the ids of the documents of these texts."""

    gram: np.ndarray
    order: np.ndarray
    ids: np.ndarray
    documents: int
    bytes: int
    rejected: int
    close: Close | None
    base: np.ndarray
    sources: list[str]
    tasks: list[Any]

    def name(self, order: int, row: int) -> str:
        """Return a name for a record without an id, made from its position. The upper bits of `order` are the number of
        its task."""
        task = order >> 40
        return f"{self.sources[task]}/{int(self.base[task]) + row if isinstance(self.tasks[task], FilesTask) else row}"


def _scan(engine: Engine, wanted: WantedNgrams, tasks: list[Any], workers: int) -> _Corpus:
    """Run the tasks, and merge their results, which may come in any order."""
    gram, order = np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids = np.zeros(0, object)
    counts = {"done": 0, "documents": 0, "bytes": 0, "rejected": 0}
    rows = np.zeros(len(tasks), np.int64)
    sources = [""] * len(tasks)
    tallies: dict[int, rejections.RecordTally] = {}
    close = Close.none(*wanted.items.vectors.shape) if wanted.items is not None else None

    def note(number: int, _: Any, ngrams: FoundNgrams) -> None:
        nonlocal gram, order, ids
        rows[number], sources[number] = ngrams.rows, ngrams.source
        gram, order, ids = first_per_group(
            np.concatenate([gram, ngrams.gram]),
            np.concatenate([order, (number << 40) + ngrams.row]),
            np.concatenate([ids, ngrams.ids]),
            wanted.documents,
        )
        if close is not None and ngrams.close is not None:
            numbered = ngrams.close._replace(order=ngrams.close.order + (number << 40))
            close.merge(np.arange(len(close.order)), numbered)
        if ngrams.tally is not None:
            tallies[number] = ngrams.tally
        counts["done"] += 1
        for name in ("documents", "bytes", "rejected"):
            counts[name] += getattr(ngrams, name)

    def progress() -> Count:
        return Count(counts["done"], counts["documents"], counts["bytes"])

    with (
        watching("reading training texts", len(tasks), progress, "task"),
        engine.open_session(workers, "threads") as session,
    ):
        session.run(partial(find_ngrams, engine, wanted), tasks, note)
    rejections.report(tallies[number] for number in sorted(tallies))
    base = np.cumsum(rows) - rows
    sizes = counts["documents"], counts["bytes"], counts["rejected"]
    corpus = _Corpus(gram, order, ids, *sizes, close, base, sources, tasks)
    for index in np.flatnonzero(ids == None).tolist():  # noqa: E711  # a record without an id is named by its position
        ids[index] = corpus.name(int(order[index]), int(order[index]) & ((1 << 40) - 1))
    return corpus


def _judge(items: _Items, corpus: _Corpus, ngram: int, threshold: float, documents: int) -> Overlap:
    """Return for each item the share of its n-grams that occur, and the documents that have most of these n-grams."""
    seen = np.zeros(len(items.hashes), bool)
    seen[corpus.gram] = True
    sizes = np.diff(items.starts)
    item_of = np.repeat(np.arange(len(sizes)), sizes)
    hits = np.bincount(item_of[seen[items.grams]], minlength=len(sizes))
    share = np.divide(hits, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    is_contaminated = share > threshold
    is_contaminated[[item for item in np.flatnonzero(is_contaminated).tolist() if items.says_nothing(item)]] = False
    starts = np.searchsorted(corpus.gram, np.arange(len(items.hashes) + 1))
    named: list[list[str]] = []
    for item in range(len(sizes)):
        ids: dict[int, str] = {}
        counts: Counter[int] = Counter()
        if hits[item]:
            for gram in items.grams[items.starts[item] : items.starts[item + 1]].tolist():
                span = slice(int(starts[gram]), int(starts[gram + 1]))
                ids.update(zip(corpus.order[span].tolist(), corpus.ids[span].tolist(), strict=True))
                counts.update(corpus.order[span].tolist())
        named.append([ids[order] for order in sorted(ids, key=lambda order: (-counts[order], order))[:documents]])
    columns = items.columns | {
        "ngrams": sizes, "found": hits, "share": pa.array(share, mask=sizes == 0), "contaminated": is_contaminated,
        "documents": named,
    }  # fmt: skip
    table = pa.table(columns, schema=SCHEMA)
    return Overlap(_sets(table, ngram), table, ngram, threshold, corpus.documents, corpus.bytes, corpus.rejected)


def _with_cosines(overlap: Overlap, items: _Items, vectors: ItemVectors, corpus: _Corpus, cosine: float) -> Overlap:
    """Return the result with the nearest training text of each item."""
    assert corpus.close is not None
    nearest_ = refine(vectors, corpus.close)
    seen = np.flatnonzero(nearest_.units >= -UNITS)
    count = len(items.texts)
    units, ids, texts = np.full(count, -UNITS), np.full(count, None, object), np.full(count, None, object)
    for index in seen.tolist():
        row = int(vectors.rows[index])
        units[row], texts[row] = nearest_.units[index], nearest_.texts[index]
        ids[row] = nearest_.ids[index] or corpus.name(int(nearest_.order[index]), int(nearest_.row[index]))
    missing = np.ones(count, bool)
    missing[vectors.rows[seen]] = False
    values = (
        items.texts, pa.array(units / UNITS, mask=missing), ~missing & (units >= units_of(cosine)), ids.tolist(),
        texts.tolist(),
    )  # fmt: skip
    table = overlap.items
    for (name, kind), value in zip(CLOSE, values, strict=True):
        table = table.append_column(name, pa.array(value, kind) if not isinstance(value, pa.Array) else value)
    return overlap._replace(items=table, sets=_sets(table, overlap.ngram), model=vectors.model, cosine=cosine)


def _sets(items: pa.Table, ngram: int) -> list[EvaluationSet]:
    names = np.array(items.column("test").to_pylist(), object)
    words, ngrams, hits = (items.column(name).to_numpy() for name in ("words", "ngrams", "found"))
    close = items.column("close").to_numpy() if "close" in items.column_names else np.zeros(len(items), bool)
    contaminated = items.column("contaminated").to_numpy()
    return [
        EvaluationSet(
            name, int((words[of] > 0).sum()), int(contaminated[of].sum()), int((hits[of] > 0).sum()),
            int(((words[of] > 0) & (words[of] < ngram)).sum()), int(ngrams[of].sum()), int(hits[of].sum()),
            int((words[of] == 0).sum()), int(close[of].sum()),
        )
        for name in dict.fromkeys(names.tolist())
        for of in [names == name]
    ]  # fmt: skip
