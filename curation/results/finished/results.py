# SPDX-License-Identifier: Apache-2.0
"""Reads documents of a finished run: kept, removed, rejected and edited documents, and pairs of duplicates.

It never imports code that a recipe names. Rows are chosen by a seeded hash of `doc`, while row groups are read one
after the other. The texts of chosen rows are read last, so memory depends only on the size of a row group and of the
sample.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import seeded_hashes
from curation.base.contract import ID, TEXT, Engine
from curation.base.engine import load_engine
from curation.base.errors import InputWarning, OutputError, RecipeError, nearest
from curation.base.system.damage import reading
from curation.recipes.recipe import convert_recipe
from curation.recipes.yaml_text import parse_yaml
from curation.record.finished_report import read_report
from curation.record.folder import REPORT
from curation.record.tables import DOC, WITH_TEXT, TablePart, part_paths, read_tables
from curation.results.finished.edited import edited_documents
from curation.results.finished.split_checks import has_documents
from curation.results.finished.verify import HasFolder, folder_of, no_run
from curation.rules.decide import Rule
from curation.stages import Filter, Lines
from curation.stages.corpus.links import CHAIN_STAGE, MAX_LINKED, VECTOR_STAGE, find_links, has_chains, jaccard

KINDS = ("kept", "removed", "rejected", "pairs", "edited")
COLUMN_AND_VALUE = re.compile(r"([\w.-]+)=(.*)", re.DOTALL)
FOLDERS = {"kept": "documents", "removed": "removed", "pairs": "removed"}
FILES = ("file", "path")  # columns with paths of input files: `file` of `removed/`, and the carried column `path`
MAX_COMPARED = 10_000  # values of a column that are compared with a wrong value
PARTNER = "duplicate_of"
PARTNER_DOC = "duplicate_of_doc"  # runs of earlier versions lack it
REJECTED_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("offset", pa.int64()),
        ("doc", pa.int64()),
        ("error", pa.string()),
    ]
)


class FinishedRun(NamedTuple):
    """A finished run: its folder, and the content of its `report.json`."""

    folder: Path
    report: dict[str, Any]

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Stage -> the reasons for which it removed documents."""
        return {stage["name"]: list(stage["reasons"]) for stage in self.report["stages"]}

    @property
    def keeps_removed_text(self) -> bool:
        """Whether the recipe has `removed: text`; otherwise `removed/` has no texts to show."""
        return bool(self.report["recipe"]["output"]["removed"] == "text")

    def rules(self, stage: str) -> tuple[Rule, ...]:
        """Return the rules of a filter stage; empty for any other stage."""
        found = self.judging_stage(stage)
        return found.expanded if isinstance(found, Filter) else ()

    def judging_stage(self, stage: str) -> Filter | Lines | None:
        """Return a stage that has rules; None for any other stage."""
        settings = self.settings(stage, "filter") or self.settings(stage, "lines")
        if not settings:
            return None
        found = convert_recipe({"stages": [settings]}, "the recipe of the run").stages[0]
        assert isinstance(found, Filter | Lines)
        return found

    def settings(self, stage: str, kind: str) -> dict[str, Any]:
        """Return the settings of a stage; empty if the stage has another kind than `kind`."""
        names = [entry["name"] for entry in self.report["stages"]]
        settings = self.report["recipe"]["stages"][names.index(stage)] if stage in names else {}
        return settings if settings.get("kind") == kind else {}

    def parts(self, table: str) -> list[Path]:
        """Return the files of `documents`, `removed` or `measures`, in their order."""
        return part_paths(self.folder, self.report["outputs"], table)

    def compares_vectors(self, stage: str) -> bool:
        """Return whether the values of documents that a stage removed are cosines."""
        return bool(self.settings(stage, VECTOR_STAGE))


def need_documents(run: FinishedRun, purpose: str) -> None:
    """Raise OutputError if the run has no `documents/`. `purpose` names what needs them."""
    if not has_documents(run.report):
        raise OutputError(
            f"{run.folder} has no documents/, which {purpose} needs: its recipe has output: {{documents: false}}. Run "
            "the recipe again with documents: true and a new --output"
        )


def open_finished(folder: str | Path | HasFolder) -> FinishedRun:
    """Return the finished run in a folder. Raises OutputError if there is none or it is of another version, and
    IntegrityError if its report has changed."""
    folder = folder_of(folder)
    content = read_report(Path(folder)) if Path(folder).is_dir() else None
    if content is None:
        raise OutputError(no_run(folder))
    return FinishedRun(Path(folder), content)


class DocumentChoice(NamedTuple):
    """Which documents to choose: those removed by a stage or for a reason ("" for any), and those that satisfy
    rules."""

    stage: str = ""
    reason: str = ""
    where: Filter | None = None


def run_documents(
    folder: str | Path, what: str = "kept", *, stage: str = "", reason: str = "",
    where: str | Mapping[str, Any] | Rule | None = None, sample: int | None = None, seed: int = 0,
) -> pa.Table:  # fmt: skip
    """Return documents of a finished run as an Arrow table in the order of `doc`. `to_pandas()` makes it a frame.

    folder         output folder of the run
    what           "kept" (the columns of `documents/`), "removed" (those of `removed/`), "rejected" (those of
                   `rejected.jsonl`), "pairs": removed documents with the text of the kept one, `kept_text`, and the
                   `jaccard` similarity of both texts (null for `semantic_dedup`, whose `value` is the cosine), and
                   for `fuzzy_dedup` the `link`: where only a chain joins both, the id of the document through which
                   the removed one is joined, and `link_jaccard`, their similarity; or "edited": kept documents with
                   another `text` than the input has, which is read again for `text_before`
    stage, reason  only documents that this stage removed, or for this reason
    where          only documents that satisfy a rule of docs/rules.md: a `Rule`, a mapping, or YAML such as
                   `words: {min: 50}`. Measures are computed from the text that is returned. `language=de` means the
                   documents with this value in this column. `file=notes/a.txt` means the removed documents
                   of the files whose paths end so
    sample, seed   a seeded sample of this many documents; None (default): all of them. A sample of edited documents
                   reads at most 1 GB of the text of the inputs

        >>> import curation
        >>> removed = curation.run_documents("out", "removed", reason="short")
        >>> removed.column("text").to_pylist()
        ['one']

    Raises OutputError for a folder without a finished run, for documents or texts that the run did not store, and
    for an unknown stage, reason or column; RecipeError for a wrong rule; InputError if inputs have changed since
    the run.
    """
    run = open_finished(folder)
    if what not in KINDS:
        raise OutputError(f"no documents are {what!r}{nearest(what, KINDS)}")
    if sample is not None and sample < 1:
        raise OutputError(f"sample must be at least 1, not {sample}")
    if what in ("kept", "pairs", "edited"):
        need_documents(run, f"a look at {what if what == 'pairs' else f'{what} documents'}")
    if (what == "pairs" or (what == "removed" and where is not None)) and not run.keeps_removed_text:
        raise OutputError(
            f"{run.folder} has no texts of removed documents. Run its recipe again with output: {{removed: text}}"
        )
    choice = _choice(run, what, stage, reason, where)
    if what == "rejected":
        return _rejected(run, sample, seed)
    engine = load_engine("cpu")
    if what == "edited":
        where_stage = choice.where
        satisfying = (lambda rows: _satisfying(where_stage, rows, engine)) if where_stage else None
        table = edited_documents(run.folder, run.report, satisfying, sample, seed)
    else:
        table = _rows(run, what, choice, sample, seed, engine)
    return with_partners(run, table, engine) if what == "pairs" else table


def _choice(run: FinishedRun, what: str, stage: str, reason: str, where: Any) -> DocumentChoice:
    for name, value in (("stage", stage), ("reason", reason)):
        if value and what not in ("removed", "pairs"):
            raise OutputError(f"{name} has no meaning with {what} documents; leave it out, or ask for removed ones")
    if where is not None and what == "rejected":
        raise OutputError("a rule has no meaning with rejected records, which have no text; leave where out")
    if stage and stage not in run.reasons:
        raise OutputError(f"{run.folder} has no stage {stage!r}{nearest(stage, run.reasons)}")
    reasons = [name for of, names in run.reasons.items() if stage in ("", of) for name in names]
    if reason and reason not in reasons:
        by = f"stage {stage}" if stage else "no stage"
        verb = "removed nothing" if stage else "removed documents"
        raise OutputError(f"{by} of {run.folder} {verb} for the reason {reason!r}{nearest(reason, reasons)}")
    if isinstance(where, str) and (named := COLUMN_AND_VALUE.fullmatch(where)):
        where = _rule_on_column(run, FOLDERS.get(what, "documents"), *named.groups())
    return DocumentChoice(stage, reason, None if where is None else _filter_of(where))


def _rule_on_column(run: FinishedRun, name: str, column: str, value: str) -> dict[str, Any]:
    """Return the rule of `COLUMN=VALUE`: the column of the files in a folder has this value. Raises OutputError if the
    files lack the column."""
    files = run.parts(name)
    schema = TablePart(files[0]).schema if files else pa.schema([])
    if column not in schema.names:
        is_file = column == "file" and name == FOLDERS["kept"]
        hint = _of_kept_file(schema, value) if is_file else nearest(column, schema.names)
        raise OutputError(f"{name}/ of {run.folder} has no column {column!r}{hint}")
    is_text = pa.types.is_string(schema.field(column).type)
    ends = [file["path"] for file in run.report["files"] if column in FILES and _ends(file["path"], value)]
    return {"column": column, "in": [value if is_text else parse_yaml(value, "where"), *ends]}


def _of_kept_file(schema: pa.Schema, value: str) -> str:
    """Return the end of the message that `documents/` has no column `file`. It says how to choose kept documents by
    file."""
    if "path" in schema.names:
        return f", which only removed documents have. Choose by path={value}"
    return (
        ", which only removed documents have. For files of text or HTML: run with columns: [path] in the input, then "
        f"choose by path={value}"
    )


def _ends(path: str, value: str) -> bool:
    """Return whether `path` ends with a value, which is the name of a file or a relative path."""
    return path.endswith(f"/{value.removeprefix('./')}")


def near_values(run: FinishedRun, what: str, where: str | None) -> str:
    """Return the end of a message that no document fits `COLUMN=VALUE`: similar values of the column. "" for other
    rules, for a value that the column has, and for a column without text."""
    named = COLUMN_AND_VALUE.fullmatch(where or "")
    if not named or what == "rejected":
        return ""
    column, value = named.groups()
    if column in FILES:
        name, names = os.path.basename(value), {os.path.basename(file["path"]) for file in run.report["files"]}
        return "" if name in names else nearest(name, sorted(names)[:MAX_COMPARED])
    counts: Counter[str] = Counter()
    for rows in read_tables(run.parts(FOLDERS.get(what, "documents")), [column]):
        found = rows.column(column)
        if not pa.types.is_string(found.type) or len(counts) > MAX_COMPARED:
            return ""
        counts.update({entry["values"]: entry["counts"] for entry in pc.value_counts(found.drop_null()).to_pylist()})
    return "" if value in counts else nearest(value, [name for name, _ in counts.most_common()])


def _filter_of(where: Any) -> Filter:
    """Return a filter with one rule: a `Rule`, a mapping, YAML, or the name of a set. Raises RecipeError for a wrong
    rule."""
    rule = where
    if isinstance(where, str):
        rule = parse_yaml(where, "where")
        if not isinstance(rule, dict) and not (isinstance(rule, str) and rule.isidentifier()):
            raise RecipeError(f"where: {where!r} is no rule. Write one of docs/rules.md, such as 'words: {{min: 50}}'")
    if isinstance(rule, Rule):
        return Filter(rules=[rule])
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": [rule]}]}, "where").stages[0]
    assert isinstance(stage, Filter)
    return stage


def _rows(
    run: FinishedRun, what: str, choice: DocumentChoice, sample: int | None, seed: int, engine: Engine
) -> pa.Table:
    """Return the chosen rows of `documents/` or `removed/`."""
    files = run.parts(FOLDERS[what])
    columns = WITH_TEXT if FOLDERS[what] == "removed" and run.keeps_removed_text else {}

    def found() -> Iterator[tuple[int, int, int, int]]:
        """Yield for each row its rank in a seeded order, its file, its row group, and its position in the group."""
        for number, path in enumerate(files):
            part = TablePart(path, columns)
            for group in part.groups:
                doc, at = _chosen_in(part, group, what, choice, engine)
                for order, row in zip(seeded_hashes(doc, seed).tolist(), at.tolist(), strict=True):
                    yield order, number, group, row

    chosen = found() if sample is None else nsmallest(sample, found())
    tables = [TablePart(files[0]).schema.empty_table()] if files else []
    for (number, group), places in groupby(sorted(place[1:] for place in chosen), itemgetter(0, 1)):
        part, rows = TablePart(files[number]), pa.array([row for *_, row in places])
        part.check({field.name: field.type for field in tables[0].schema})
        tables.append(part.read(group, tables[0].column_names).take(rows))
    return pa.concat_tables(tables).combine_chunks()


def _chosen_in(
    part: TablePart, group: int, what: str, choice: DocumentChoice, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    """Return `doc` of the chosen rows of a row group, and their positions in the group."""
    wanted = ["doc", *(("stage", "reason", PARTNER) if what != "kept" else ())]
    rows = part.read(group, None if choice.where else wanted)
    mask = np.ones(len(rows), bool)
    for name, value in (("stage", choice.stage), ("reason", choice.reason)):
        if value:
            mask &= pc.fill_null(pc.equal(rows.column(name), value), False).to_numpy()
    if what == "pairs":
        mask &= pc.is_valid(rows.column(PARTNER)).to_numpy()
    if choice.where:
        at = np.flatnonzero(mask)
        mask[at[~_satisfying(choice.where, rows.take(pa.array(at)), engine)]] = False
    at = np.flatnonzero(mask)
    return rows.column("doc").to_numpy()[at], at


def _satisfying(where: Filter, rows: pa.Table, engine: Engine) -> np.ndarray:
    """Return a bool per row of a table: whether the row satisfies the rules of a filter."""
    outcome = where.apply(engine, engine.from_arrow(rows))
    assert outcome.verdict is not None
    return outcome.verdict.kept


class _Rejected(msgspec.Struct):
    """A line of `rejected.jsonl`."""

    source: str
    file: str
    line: int
    doc: int
    error: str
    offset: int | None = None  # of formats that have one


def _rejected(run: FinishedRun, sample: int | None, seed: int) -> pa.Table:
    """Return the chosen lines of `rejected.jsonl`."""
    path, count = run.folder / "rejected.jsonl", 0

    def entries() -> Iterator[tuple[np.uint64, int, bytes]]:
        nonlocal count
        for count, line in enumerate(lines, 1):
            yield seeded_hashes(np.array([count - 1]), seed)[0], count, line

    with reading(path), open(path, "rb") as lines:
        chosen = sorted((entries() if sample is None else nsmallest(sample, entries())), key=itemgetter(1))
        if count != (expected := run.report["documents"]["rejected"]):
            raise ValueError(f"it has {count:,} lines, and {REPORT} counts {expected:,}")
        rows = [msgspec.structs.asdict(msgspec.json.decode(line, type=_Rejected)) for *_, line in chosen]
        return pa.Table.from_pylist(rows, schema=REJECTED_SCHEMA)


def with_partners(run: FinishedRun, table: pa.Table, engine: Engine) -> pa.Table:
    """Return removed duplicates with further columns. `kept_text` is null if the run does not have this text. `jaccard`
    is then null too, and also for a stage that compares vectors."""
    by, own = (PARTNER_DOC, DOC) if PARTNER_DOC in table.column_names else (PARTNER, ID)
    wanted = pc.unique(table.column(by)).drop_null()
    found: dict[Any, tuple[int, str | None]] = {}  # doc or id -> `doc` and text
    repeated: set[Any] = set()
    for folder in ("removed", "documents"):  # a later stage may remove the kept document of a group
        for rows in _rows_with(run.parts(folder), wanted, own):
            for key, doc, text in zip(*(rows.column(name).to_pylist() for name in (own, DOC, TEXT)), strict=True):
                repeated |= {key} if found.setdefault(key, (doc, text))[0] != doc else set()
    if repeated:
        warnings.warn(
            f"ids repeat: {len(repeated):,} of {len(wanted):,} ids of kept documents name several documents, and this "
            f"run has no column {PARTNER_DOC}. Their texts are left out. Write the run again to have them",
            InputWarning,
            stacklevel=3,
        )
    texts = {key: text for key, (_, text) in found.items() if key not in repeated}
    kept = [texts.get(key) for key in table.column(by).to_pylist()]
    table = table.append_column("kept_text", pa.array(kept, pa.string()))
    stages = table.column("stage").to_pylist()
    pairs = zip(stages, table.column(TEXT).to_pylist(), kept, strict=True)
    values = [
        None
        if other is None or run.compares_vectors(stage)
        else jaccard(engine, run.settings(stage, "fuzzy_dedup"), text or "", other)
        for stage, text, other in pairs
    ]
    table = table.append_column("jaccard", pa.array(values, pa.float64()))
    links = _links(run, table, engine, by)
    table = table.append_column("link", pa.array([name for name, _ in links], pa.string()))
    return table.append_column("link_jaccard", pa.array([similarity for _, similarity in links], pa.float64()))


def _links(run: FinishedRun, table: pa.Table, engine: Engine, by: str) -> list[tuple[str | None, float | None]]:
    """For each removed document, return the id of the document through which a chain joins it with the kept document,
    and their similarity. `by` is the column that names the kept document."""
    links: list[tuple[str | None, float | None]] = [(None, None)] * len(table)
    names = ("stage", by, DOC, "value", "kept_text")
    rows = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    chained: dict[tuple[str, Any], str] = {}  # stage and kept document -> its text
    for stage, kept, _, value, kept_text in rows:
        settings = run.settings(stage, CHAIN_STAGE)
        if None not in (kept_text, value) and has_chains(settings) and value < settings["threshold"]:
            chained[stage, kept] = kept_text
    for (stage, kept), members in _members(run, chained, by).items():
        texts = [chained[stage, kept], *(text for _, text in members.values())]
        found = dict(zip([-1, *members], find_links(engine, run.settings(stage, CHAIN_STAGE), texts), strict=True))
        ids = [None, *(own for own, _ in members.values())]  # a link is never the kept document
        for index, row in enumerate(rows):
            if row[:2] == (stage, kept) and (link := found.get(row[2])):
                links[index] = ids[link.position], link.similarity
    return links


def _members(
    run: FinishedRun, groups: Collection[tuple[str, Any]], by: str
) -> dict[tuple[str, Any], dict[int, tuple[str, str]]]:
    """Return the removed documents of each group: `doc` -> id and text. A group is a pair of a stage and a kept
    document, which the column `by` names."""
    members: dict[tuple[str, Any], dict[int, tuple[str, str]]] = {group: {} for group in groups}
    wanted = pa.array(sorted({kept for _, kept in groups}), pa.int64() if by == PARTNER_DOC else pa.string())
    for rows in _rows_with(run.parts("removed"), wanted, by, ("stage", by)):
        names = ("stage", by, DOC, ID, TEXT)
        for stage, kept, doc, own, text in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
            if (group := members.get((stage, kept))) is not None and len(group) <= MAX_LINKED:
                group[doc] = own, text or ""
    return members


def _rows_with(files: Sequence[Path], wanted: pa.Array, by: str, others: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Yield the rows with one of the values `wanted` in the column `by`, with the columns `doc`, `id`, `text` and
    `others`."""
    for part in map(TablePart, files if len(wanted) else ()):
        for group in part.groups:
            mask = pc.is_in(part.read(group, [by]).column(by), value_set=wanted)
            if pc.any(mask).as_py():
                yield part.read(group, [DOC, ID, TEXT, *others]).filter(mask)
