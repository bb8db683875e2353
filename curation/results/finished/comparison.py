# SPDX-License-Identifier: Apache-2.0
"""Compares two finished runs: settings, counts, and the documents that one run kept and the other removed.

Two documents are the same if their inputs and ids are equal. If several documents of a run have the same id, they are
paired in order, provided that the other run has the same number of them. Memory: about 80 bytes per document, for
hashes of ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import ID, TEXT, Engine
from curation.base.engine import load_engine
from curation.base.errors import OutputError, counted
from curation.base.system.html_table import html_table
from curation.record.tables import TablePart, read_tables
from curation.results.finished.changed_settings import Setting, changed_settings, other_differences
from curation.results.finished.results import FinishedRun, need_documents, open_finished
from curation.results.finished.run_result import RunResult

EXAMPLES = 5
SHOWN_SOURCES = 3
EQUAL = "the identities are equal: settings, input files, files of stages, tokenizer and version"
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, so that documents with equal ids get different keys
SEPARATOR = "\x1f"  # between input and id
COUNTS = ("read", "kept", "removed", "rejected", "edited")
SHOWN_EXAMPLE = (ID, "stage", "reason", "value", "bound", TEXT)  # columns in a notebook
REMOVAL = ("stage", "reason", "value", "bound")
EXAMPLE_SCHEMA = pa.schema(
    [
        ("kept_by", pa.string()),
        (ID, pa.string()),
        ("source", pa.string()),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("value", pa.float64()),
        ("bound", pa.float64()),
        (TEXT, pa.string()),
    ]
)


class Removal(NamedTuple):
    """The documents that a stage removed for a reason in each run, and the bytes of their texts (-1: texts not
    stored)."""

    stage: str
    reason: str
    documents_a: int
    documents_b: int
    bytes_a: int
    bytes_b: int


class Comparison(NamedTuple):
    """The comparison of the runs A and B.

    settings        settings of the recipes that differ
    counts          name -> number in A and in B: documents (`read`, `kept`, ...), `kept_bytes` and `tokens`
    removals        one per stage and reason, in the order of the stages of A, then of the stages that only B has
    kept_by_a       documents that A kept and B removed
    kept_by_b       documents that B kept and A removed
    only_a, only_b  documents that the other run neither kept nor removed
    ambiguous_a, ambiguous_b  documents that are not compared, since the other run has more or fewer documents with
                            their id
    examples        some documents that only A kept, and some that only B kept. Each has the run that kept it ("A" or
                    "B"), why the other run removed it, and the kept text
    facts           other differences of the runs' identities: version, input files, files of stages, tokenizer,
                    revisions of stages
    names           the folders of A and B
    unmatched       why no document of A is in B; "" if at least one is
    """

    settings: list[Setting]
    counts: dict[str, tuple[int, int]]
    removals: list[Removal]
    kept_by_a: int
    kept_by_b: int
    only_a: int
    only_b: int
    ambiguous_a: int
    ambiguous_b: int
    examples: pa.Table
    facts: list[str] = []  # noqa: RUF012
    names: tuple[str, str] = ("A", "B")
    unmatched: str = ""

    def __repr__(self) -> str:
        read, kept = ("{:,} and {:,}".format(*self.counts[name]) for name in ("read", "kept"))
        return (
            f"<comparison of A and B: {counted(len(self.settings), 'different setting')}; "
            f"{read} documents read, {kept} kept, {self.kept_by_a:,} by A only, {self.kept_by_b:,} by B only; "
            f"{counted(self.only_a, 'document')} in A only, {self.only_b:,} in B only"
            f"{self.unmatched and f'; {self.unmatched}'}>"
        )

    def _repr_html_(self) -> str:
        names = self.names
        rows = [("documents", name, *numbers) for name, numbers in self.counts.items()]
        rows += [(entry.stage, entry.reason, entry.documents_a, entry.documents_b) for entry in self.removals]
        tables = [html_table(repr(self)[1:-1], ("stage", "count or reason", *names), rows)]
        if self.settings:
            settings = [(path, shown_value(a), shown_value(b)) for path, a, b in self.settings]
            tables.append(html_table("different settings", ("setting", *names), settings))
        if len(self.examples):
            columns = ["kept_by", *(name for name in SHOWN_EXAMPLE if name in self.examples.column_names)]
            examples = [
                (dict(zip("AB", names, strict=True)).get(row.get("kept_by"), ""), *(row[name] for name in columns[1:]))
                for row in self.examples.to_pylist()
            ]
            tables.append(html_table("documents that only one run kept", columns, examples))
        return "".join(tables)


def compare_runs(a: str | Path | RunResult, b: str | Path | RunResult, *, examples: int = EXAMPLES) -> Comparison:
    """Return the differences between the finished runs `a` and `b`. For each run, they include at most `examples`
    documents that only this run kept. A run is given by its folder or its `RunResult`.

        >>> import curation
        >>> comparison = curation.compare_runs("out", "stricter")
        >>> comparison.counts["kept"], comparison.kept_by_a
        ((2, 1), 2)

    Raises OutputError for a folder without a finished run or without `documents/`, and for one folder given twice;
    ArgumentError for a value that is neither a path nor a `RunResult`.
    """
    return compare_finished((open_finished(a), open_finished(b)), examples)


def compare_finished(runs: tuple[FinishedRun, FinishedRun], examples: int) -> Comparison:
    """Do the same as `compare_runs` for opened runs. Raises OutputError if both are one folder, or if a run has no
    documents."""
    first, second = (run.folder for run in runs)
    if first.resolve() == second.resolve():
        raise OutputError(f"{first} and {second} are the same folder; give two runs")
    for run in runs:
        need_documents(run, "a comparison")
    engine = load_engine("cpu")
    all_documents = [_documents(run, engine) for run in runs]
    known = _paired(*all_documents)
    # for each run, the rows of documents that both runs have
    _, *same = np.intersect1d(known[0].key, known[1].key, assume_unique=True, return_indices=True)
    kept = [documents.kept[rows] for documents, rows in zip(known, same, strict=True)]
    changed = [[rows[kept[k] & ~kept[1 - k]] for rows in same] for k in (0, 1)]
    shown = [row for k in (0, 1) for row in _examples(runs, known, [rows[:examples] for rows in changed[k]], k)]
    return Comparison(
        settings=changed_settings(*runs),
        counts=_counts(*runs),
        removals=_removals(*runs),
        kept_by_a=len(changed[0][0]),
        kept_by_b=len(changed[1][0]),
        only_a=len(known[0].key) - len(same[0]),
        only_b=len(known[1].key) - len(same[1]),
        ambiguous_a=len(all_documents[0].key) - len(known[0].key),
        ambiguous_b=len(all_documents[1].key) - len(known[1].key),
        examples=pa.Table.from_pylist(shown, schema=EXAMPLE_SCHEMA),
        facts=other_differences(*runs),
        names=(str(first), str(second)),
        unmatched="" if len(same[0]) or not all(len(documents.key) for documents in known) else _unmatched(runs),
    )


def _unmatched(runs: tuple[FinishedRun, FinishedRun]) -> str:
    """Return why two runs have no common document: the names of their inputs differ, or the ids of their documents."""
    sources = [
        sorted({source for folder in ("documents", "removed") for rows in read_tables(run.parts(folder), ["source"])
                for source in rows.column("source").unique().to_pylist()})
        for run in runs
    ]  # fmt: skip
    start = "no document of A is in B: documents are matched by source and id, and the"
    if {*sources[0]} & {*sources[1]}:
        return f"{start} ids differ"
    shown = (", ".join(names[:SHOWN_SOURCES]) + ", ..." * (len(names) > SHOWN_SOURCES) for names in sources)
    return f"{start} sources differ: {' and '.join(shown)}. Give the inputs the same name"


def _counts(*runs: FinishedRun) -> dict[str, tuple[int, int]]:
    def pair(part: str, name: str) -> tuple[int, int]:
        first, second = (int(run.report[part].get(name, 0)) for run in runs)
        return first, second

    documents = {name: pair("documents", name) for name in COUNTS}
    return documents | {"kept_bytes": pair("bytes", "kept"), "tokens": pair("tokens", "count")}


def _removals(*runs: FinishedRun) -> list[Removal]:
    counts = [
        {
            (stage["name"], reason): number
            for stage in run.report["stages"]
            for reason, number in stage["reasons"].items()
        }
        for run in runs
    ]
    sizes = [_removed_bytes(run) for run in runs]
    return [
        Removal(
            *key,
            *(count.get(key, 0) for count in counts),
            *(-1 if size is None else size.get(key, 0) for size in sizes),
        )
        for key in _in_order_of_stages(runs, counts)
    ]


def _in_order_of_stages(
    runs: Sequence[FinishedRun], counts: Sequence[dict[tuple[str, str], int]]
) -> list[tuple[str, str]]:
    names = [*dict.fromkeys(stage["name"] for run in runs for stage in run.report["stages"])]
    return sorted(dict.fromkeys([*counts[0], *counts[1]]), key=lambda key: names.index(key[0]))


def _removed_bytes(run: FinishedRun) -> dict[tuple[str, str], int] | None:
    """Return (stage, reason) -> bytes of removed texts; None if the run did not store these texts."""
    if not run.keeps_removed_text:
        return None
    totals: dict[tuple[str, str], int] = {}
    for rows in read_tables(run.parts("removed"), ["stage", "reason", TEXT]):
        sizes = pc.fill_null(pc.binary_length(rows.column(TEXT)), 0)
        table = pa.table({"stage": rows.column("stage"), "reason": rows.column("reason"), "bytes": sizes})
        for entry in table.group_by(["stage", "reason"]).aggregate([("bytes", "sum")]).to_pylist():
            key = entry["stage"], entry["reason"]
            totals[key] = totals.get(key, 0) + entry["bytes_sum"]
    return totals


class _Documents(NamedTuple):
    """The documents of a run, sorted by `key` (uint64, a hash of input and id). `doc` is int64, `kept` is bool."""

    key: np.ndarray
    doc: np.ndarray
    kept: np.ndarray

    def at(self, rows: np.ndarray) -> _Documents:
        return _Documents(*(column[rows] for column in self))


def _documents(run: FinishedRun, engine: Engine) -> _Documents:
    """Return the kept and removed documents, each once. Documents with equal keys are in the order of the input."""
    parts = [_Documents(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, bool))]
    for folder in ("documents", "removed"):
        for rows in read_tables(run.parts(folder), ["source", ID, "doc"]):
            doc = rows.column("doc").to_numpy()
            parts.append(_Documents(_hash(rows, engine), doc, np.full(len(doc), folder == "documents")))
    found = _Documents(*map(np.concatenate, zip(*parts, strict=True)))
    found = found.at(np.lexsort((found.doc, found.key)))
    first = np.ones(len(found.key), bool)
    first[1:] = (np.diff(found.key) != 0) | (np.diff(found.doc) != 0)
    return found.at(first)


def _paired(*runs: _Documents) -> list[_Documents]:
    """Return the documents of both runs with a unique key per document. If the runs have different numbers of documents
    with a key, the documents with this key are left out."""
    keys, counts = zip(*(np.unique(run.key, return_counts=True) for run in runs), strict=True)
    both, *at = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    unclear = both[counts[0][at[0]] != counts[1][at[1]]]
    found = []
    for run, count in zip(runs, counts, strict=True):
        nth = np.arange(len(run.key)) - np.repeat(np.cumsum(count) - count, count)
        clear = ~np.isin(run.key, unclear)
        found.append(run._replace(key=run.key + nth.astype(np.uint64) * GOLDEN).at(clear))
    return found


def _hash(rows: pa.Table, engine: Engine) -> np.ndarray:
    source, own = (rows.column(name).cast(pa.large_string()) for name in ("source", ID))
    names = pc.binary_join_element_wise(source, own, pa.scalar(SEPARATOR, pa.large_string()))
    return engine.hash_text(engine.from_arrow(pa.table({TEXT: names}))[TEXT])[:, 0]


def _examples(
    runs: tuple[FinishedRun, FinishedRun], documents: Sequence[_Documents], rows: Sequence[np.ndarray], keeper: int
) -> list[dict[str, Any]]:
    """Return examples of documents that one run (`keeper`) kept, from the rows of these documents in both runs. Each
    has the kept text, and why the other run removed the document."""
    remover = runs[1 - keeper]
    columns = [column for column in REMOVAL if column != "bound" or remover.keeps_removed_text]
    wanted = [documents[number].doc[rows[number]] for number in (keeper, 1 - keeper)]
    kept = _find(runs[keeper], "documents", [ID, "source", TEXT], wanted[0])
    removed = _find(remover, "removed", [ID, "source", *columns], wanted[1])
    pairs = zip(*(numbers.tolist() for numbers in wanted), strict=True)
    return [{"kept_by": "AB"[keeper], **removed[gone], **kept[doc]} for doc, gone in pairs]


def _find(run: FinishedRun, folder: str, columns: list[str], docs: np.ndarray) -> dict[int, dict[str, Any]]:
    """Return `doc` -> values of the columns, for the documents `docs`. If a document has copies, the values are those
    of the first copy."""
    found: dict[int, dict[str, Any]] = {}
    for part in map(TablePart, run.parts(folder) if len(docs) else ()):
        for group in part.groups:
            own = part.read(group, ["doc"]).column("doc").to_numpy()
            at = np.flatnonzero(np.isin(own, docs))
            if len(at):
                rows = part.read(group, columns).take(pa.array(at)).to_pylist()
                found = dict(zip(own[at].tolist(), rows, strict=True)) | found
    return found


def shown_value(value: Any) -> str:
    """Return the value of a setting as readable text; "-" if it is not set."""
    return (
        "-" if value is None else value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    )
