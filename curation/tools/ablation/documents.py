# SPDX-License-Identifier: Apache-2.0
"""The documents of both arms of an ablation. The inputs may be larger than the memory: the documents with the smallest
keys are a random sample.

A key is a hash: of the position (`doc`) if the curated arm is a finished run, otherwise of the id if both inputs have
ids, or else of the text. So the samples of both arms have the same documents, unless curation removed them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_large_strings, seeded_hashes, text_buffers
from curation.base.contract import ID, TEXT
from curation.base.errors import InputError
from curation.reading.blank import read_visible
from curation.reading.inputs import input_names
from curation.reading.texts import InputTexts, list_whole_inputs
from curation.record.folder import REPORT
from curation.record.partitions import with_ids
from curation.record.tables import read_tables
from curation.results.finished.results import FinishedRun, need_documents, open_finished

MAX_DOMAINS = 32
EVERY = np.uint64((1 << 64) - 1)
KEY, DOC, SOURCE, STAGE, OWN = "key", "doc", "source", "stage", "own_source"
COLUMNS = [KEY, SOURCE, TEXT]


class Pair(NamedTuple):
    """The sampled documents of both arms: tables with `key` (uint64), `source` and `text`, in the order of the inputs.

    Sources are the names of inputs. If those of both arms differ, all documents are of one source. `removed` has for
    each stage of a run the keys of the sampled documents that it removed; it is empty if the curated arm is no run."""

    raw: pa.Table
    curated: pa.Table
    removed: dict[str, np.ndarray]


class Domain(NamedTuple):
    """A domain of a mixture: a sample of its documents, a table as in `Pair`, and the number of all its documents and
    of the bytes of their texts."""

    table: pa.Table
    documents: int
    bytes: int


class _Sample:
    """The documents with the smallest keys, of at most `size` bytes of text in total, among the tables added."""

    def __init__(self, size: int, limit: np.uint64 = EVERY) -> None:
        self.size, self.limit, self.bytes = size, limit, 0
        self.tables: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Add the documents of a table whose keys are not above the limit. Lower the limit if they are too many."""
        table = _below(table, self.limit)
        self.tables.append(table)
        self.bytes += _text_bytes(table)
        if self.bytes > 2 * self.size:
            self._shrink()

    def table(self) -> pa.Table:
        """Return the documents, in the order in which they were added."""
        self._shrink()
        return pa.concat_tables(self.tables).combine_chunks()

    def _shrink(self) -> None:
        table = pa.concat_tables(self.tables)
        if self.bytes > self.size:
            keys, sizes = _column(table, KEY), _sizes(table)
            order = np.argsort(keys, kind="stable")
            over = int(np.searchsorted(np.cumsum(sizes[order]), self.size, side="right"))
            self.limit = min(self.limit, keys[order[over]] - np.uint64(1))
            table = _below(table, self.limit)
        self.tables, self.bytes = [table], _text_bytes(table)


def read_pair(raw: Any, curated: Any, size: int, seed: int) -> Pair:
    """Return the documents of both arms with at most `size` bytes of text in each.

    raw      paths, or inputs as in a recipe
    curated  the same, or the folder of a finished run over `raw`

    Raises InputError if the arms have no document in common, or if the run has another input.
    """
    inputs, run = list_whole_inputs(raw, "raw"), _run_of(curated)
    if run is not None:
        need_documents(run, "an ablation")
        return _with_run(InputTexts(inputs, read=read_visible), run, size, seed)
    others = list_whole_inputs(curated, "curated")
    both = [InputTexts(given, read=read_visible) for given in (inputs, others)]
    column = ID if all(map(_has_ids, both)) else TEXT
    make = _keys_of(column, seed)
    first = _Sample(size)
    for table in _numbered(both[0], "reading raw documents"):
        first.add(_keyed(table, make))
    second = _Sample(size, first.limit)
    for table in _numbered(both[1], "reading curated documents"):
        second.add(_keyed(table, make))
    curated_table = second.table()
    raw_table = _below(first.table(), second.limit)
    if not np.isin(_column(curated_table, KEY), _column(raw_table, KEY)).any():
        remedy = "" if column == ID else ". Edited texts need ids in both inputs: a column id"
        raise InputError(f"raw and curated have no document in common, compared by {column}{remedy}")
    names = [{*table.column(SOURCE).to_pylist()} for table in (raw_table, curated_table)]
    if not (names[0] <= names[1] or names[1] <= names[0]):
        raw_table, curated_table = (_with_sources(table, ["all"] * len(table)) for table in (raw_table, curated_table))
    return Pair(raw_table, curated_table, {})


def read_texts(given: Any, label: str, source_column: str) -> pa.Table:
    """Return all documents of inputs, with `key`, `source` and `text`. `source_column` is the column with the source of
    a document; "": its source is its file."""
    inputs = list_whole_inputs(given, label)
    if source_column:
        inputs = [msgspec.structs.replace(entry, columns={OWN: source_column}) for entry in inputs]
    tables = []
    for table in _numbered(InputTexts(inputs, read=read_visible, by_file=not source_column), f"reading {label}"):
        if source_column:
            table = _with_sources(table, [str(name or "") for name in table.column(OWN).to_pylist()])
        tables.append(_keyed(table, _keys_of(TEXT, 0)))
    if not tables:
        raise InputError(f"{label} has no document. Check the paths and --text-column")
    return pa.concat_tables(tables).combine_chunks()


def read_domains(given: Any, column: str, size: int, seed: int) -> dict[str, Domain]:
    """Return the domains of inputs, by name, with samples of at most `size` bytes of text. Equal texts are in a sample
    together. `column`: the column with the domain of a document, "" for its input. Documents without one are left out.

    Raises InputError for an input without documents, a column without values, and more than MAX_DOMAINS domains.
    """
    inputs, make = list_whole_inputs(given, "mix"), _keys_of(TEXT, seed)
    names = [] if column else input_names(inputs)
    samples: dict[str, _Sample] = {}
    counts: dict[str, tuple[int, int]] = {}
    if column:
        inputs = [msgspec.structs.replace(entry, columns={OWN: column}) for entry in inputs]
    for table in _numbered(InputTexts(inputs, read=read_visible), "reading domains"):
        if column:
            table = _with_sources(table, ["" if name is None else str(name) for name in table.column(OWN).to_pylist()])
        table = _keyed(table, make)
        for name in pc.unique(table.column(SOURCE)).to_pylist():
            if name:
                part = table.filter(pc.equal(table.column(SOURCE), name))
                samples.setdefault(name, _Sample(size)).add(part)
                documents, size_so_far = counts.get(name, (0, 0))
                counts[name] = documents + len(part), size_so_far + _text_bytes(part)
        if len(samples) > MAX_DOMAINS:
            raise InputError(
                f"mix: {f'column {column}' if column else 'the input'} has more than {MAX_DOMAINS} domains. Give a "
                "column with fewer values"
            )
    if column and not samples:
        raise InputError(f"mix: no document has a value in column {column!r}. Name a column of the input")
    if missing := [name for name in names if name not in samples]:
        raise InputError(f"mix: input {missing[0]!r} has no document. Leave it out")
    return {name: Domain(samples[name].table(), *counts[name]) for name in sorted(samples)}


def texts_of(table: pa.Table) -> pa.LargeStringArray:
    """Return the texts of a table as one array."""
    return as_large_strings(table.column(TEXT))


def sources_of(table: pa.Table) -> np.ndarray:
    """Return the sources of documents, as an array of strings."""
    return np.array(table.column(SOURCE).to_pylist(), object).astype(str)


def digest_of(texts: pa.LargeStringArray) -> str:
    """Return the SHA-256 of texts and their sizes."""
    data, offsets = text_buffers(texts)
    found = hashlib.sha256(np.diff(offsets).astype("<i8").tobytes())
    found.update(data[offsets[0] : offsets[-1]].tobytes())
    return found.hexdigest()


def _run_of(curated: Any) -> FinishedRun | None:
    if hasattr(curated, "folder"):  # a RunResult
        return open_finished(curated)
    is_path = isinstance(curated, str | os.PathLike)
    return open_finished(curated) if is_path and os.path.lexists(Path(curated).expanduser() / REPORT) else None


def _with_run(texts: InputTexts, run: FinishedRun, size: int, seed: int) -> Pair:
    """Return the documents of both arms, the curated ones from `documents/`. Each document of `raw` is in `documents/`
    or in `removed/`, with the same id."""

    def make(table: pa.Table) -> np.ndarray:
        return seeded_hashes(_column(table, DOC), seed)

    sample = _Sample(size)
    for table in _numbered(texts, "reading raw documents"):
        sample.add(_keyed(table, make, DOC, ID))
    raw = sample.table()
    kept = [
        _below(_keyed(table, make, DOC, ID), sample.limit)
        for table in read_tables(run.parts("documents"), [DOC, ID, SOURCE, TEXT])
    ]
    lost = [
        _below(table.append_column(KEY, pa.array(make(table))), sample.limit)
        for table in read_tables(run.parts("removed"), [DOC, ID, STAGE])
    ]
    docs = raw.column(DOC).to_pylist()
    ids = dict(zip(docs, map(_own, raw.column(ID).to_pylist()), strict=True))
    seen = 0
    for table in (*kept, *lost):
        for doc, id_ in zip(table.column(DOC).to_pylist(), table.column(ID).to_pylist(), strict=True):
            if ids.get(doc) != _own(id_):
                theirs = f"{ids[doc]!r} in raw" if doc in ids else "not in raw"
                raise InputError(
                    f"{run.folder} is a run over another input: its document {doc} is {_own(id_)!r}, and {theirs}. "
                    "Give the inputs of its recipe as raw, in their order"
                )
        seen += len({*table.column(DOC).to_pylist()})
    if seen < len(raw) or not kept:
        raise InputError(
            f"{run.folder} is a run over another input: it has {seen:,} of {len(raw):,} documents of raw. Give the "
            "inputs of its recipe as raw"
        )
    removed = {
        name: [_column(table.filter(pc.equal(table.column(STAGE), name)), KEY) for table in lost]
        for name in (entry["name"] for entry in run.report["stages"])
    }
    sources, curated = dict(zip(docs, raw.column(SOURCE).to_pylist(), strict=True)), pa.concat_tables(kept)
    curated = _with_sources(curated, [sources[doc] for doc in curated.column(DOC).to_pylist()])
    return Pair(
        raw.select(COLUMNS), curated.select(COLUMNS).combine_chunks(),
        {name: np.concatenate(keys) for name, keys in removed.items() if any(map(len, keys))},
    )  # fmt: skip


def _own(id_: str) -> str:
    """Return the last part of an id: where a record has none, the name of its input precedes its position."""
    return id_.rpartition("/")[2]


def _numbered(texts: InputTexts, label: str) -> Iterator[pa.Table]:
    """Yield the documents of inputs with `doc`, `id`, `source`, `text` and `own_source`, batch by batch, numbered as in
    a run."""
    for source, table in texts.tables(label):
        yield with_ids(table, source, texts.base)


def _has_ids(texts: InputTexts) -> bool:
    """Return whether the first documents of inputs have ids of their own."""
    table = texts.first()
    return table is not None and table.column(ID).null_count == 0


def _keys_of(column: str, seed: int) -> Callable[[pa.Table], np.ndarray]:
    salt = seed.to_bytes(16, "little")

    def make(table: pa.Table) -> np.ndarray:
        values = (value.encode() for value in table.column(column).to_pylist())
        hashes = b"".join(hashlib.blake2b(value, digest_size=8, salt=salt).digest() for value in values)
        return np.frombuffer(hashes, "<u8").astype(np.uint64)

    return make


def _keyed(table: pa.Table, make: Callable[[pa.Table], np.ndarray], *columns: str) -> pa.Table:
    found = {KEY: pa.array(make(table), pa.uint64())}
    for name in (*columns, SOURCE, TEXT):
        found[name] = table.column(name)
    kinds = {SOURCE: pa.string(), TEXT: pa.large_string(), ID: pa.large_string()}
    return pa.table({name: values.cast(kinds[name]) if name in kinds else values for name, values in found.items()})


def _with_sources(table: pa.Table, names: list[str]) -> pa.Table:
    return table.set_column(table.column_names.index(SOURCE), SOURCE, pa.array(names, pa.string()))


def _below(table: pa.Table, limit: np.uint64) -> pa.Table:
    return table if limit == EVERY else table.filter(pa.array(_column(table, KEY) <= limit))


def _column(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(table.column(name).to_numpy())


def _sizes(table: pa.Table) -> np.ndarray:
    return np.asarray(pc.binary_length(table.column(TEXT)).to_numpy(), np.int64)


def _text_bytes(table: pa.Table) -> int:
    return int(_sizes(table).sum())


def concat(tables: Iterable[pa.Table]) -> pa.Table:
    """Return the `source` and `text` of tables, one after the other."""
    return pa.concat_tables([table.select([SOURCE, TEXT]) for table in tables]).combine_chunks()
