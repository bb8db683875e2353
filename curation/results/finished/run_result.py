# SPDX-License-Identifier: Apache-2.0
"""`RunResult`: a finished run, with its documents, funnel and measures as frames."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import Frame
from curation.base.engine import load_engine
from curation.base.errors import OutputError, counted, nearest
from curation.base.system.html_table import html_table, warning_lines
from curation.base.system.terminal import printable_line
from curation.record.measure_files import FOLDER as MEASURES
from curation.record.slice_notes import FIXED
from curation.record.tables import TablePart, part_paths, read_tables
from curation.results.finished.results import open_finished, run_documents
from curation.results.report.input_warnings import nothing_kept
from curation.results.report.text import FunnelRow, funnel, funnel_line
from curation.rules.decide import Rule

Where = str | Mapping[str, Any] | Rule


class RunResult(NamedTuple):
    """A finished run. Its methods return pandas DataFrames.

    report            content of `report.json`
    already_complete  whether an earlier call finished the run
    folder            its output folder, which methods read. It does not exist if the work folder of a copy was lost
    address           URL of its copy in an object store; "" if there is none
    """

    report: dict[str, Any]
    already_complete: bool
    folder: Path
    address: str = ""

    def kept(self, *, where: Where | None = None, sample: int | None = None, seed: int = 0) -> Frame:
        """Return kept documents, with the columns of `documents/`; see `curation.run_documents`.

        >>> import curation
        >>> curation.open_run("out").kept(where="words: {min: 3}")["text"].tolist()
        ['one two three', 'four five six']
        """
        return self._documents("kept", where=where, sample=sample, seed=seed)

    def removed(
        self, *, reason: str = "", stage: str = "", where: Where | None = None, sample: int | None = None, seed: int = 0
    ) -> Frame:
        """Return removed documents, with the columns of `removed/`; see `curation.run_documents`.

        >>> import curation
        >>> curation.open_run("out").removed(reason="short")[["text", "value", "bound"]].values.tolist()
        [['one', 1.0, 2.0]]
        """
        return self._documents("removed", reason=reason, stage=stage, where=where, sample=sample, seed=seed)

    def rejected(self, *, sample: int | None = None, seed: int = 0) -> Frame:
        """Return the records that are no documents, as in `rejected.jsonl`: file, line, error.

        >>> import curation
        >>> len(curation.open_run("out").rejected())
        0
        """
        return self._documents("rejected", sample=sample, seed=seed)

    def pairs(self, *, stage: str = "", sample: int | None = None, seed: int = 0) -> Frame:
        """Return removed duplicates with the text of the kept document (`kept_text`) and the similarity (`jaccard`).

        `jaccard` is null for `semantic_dedup`, whose `value` is the cosine.

        >>> import curation
        >>> curation.open_run("out").pairs()[["text", "kept_text", "jaccard"]].values.tolist()
        [['one two three', 'one two three', 1.0]]
        """
        return self._documents("pairs", stage=stage, sample=sample, seed=seed)

    def edited(self, *, where: Where | None = None, sample: int | None = None, seed: int = 0) -> Frame:
        """Return kept documents that the run edited: `text`, and `text_before`, which is read from the inputs again.

        >>> import curation
        >>> curation.open_run("edits").edited()[["text_before", "text"]].values.tolist()
        [['Seven Eight', 'seven eight']]
        """
        return self._documents("edited", where=where, sample=sample, seed=seed)

    @property
    def funnel(self) -> Frame:
        """The funnel: one row per step and per reason. Columns are `step`, `reason`, `documents` (negative if removed),
        `share` of the documents read, and `step_share` of the documents that reached the stage. `bytes` is the text
        after a step, and null for a reason."""
        rows = [(*row[:-1], None if row.reason else row.bytes) for row in funnel(self.report)]
        return _frame(pa.table(dict(zip(FunnelRow._fields, map(pa.array, zip(*rows, strict=True)), strict=True))))

    def measures(self, names: str | Sequence[str] = (), *, stage: str = "") -> Frame:
        """Return the measures that the run kept: `doc`, `id`, `source`, `stage`, and a column per measure.

        names   measures to read; empty (default): all
        stage   only documents that reached this filter, with its measures; "" (default): those of all filters. A
                document has a row per filter, with nulls for measures of other filters

        Raises OutputError for an unknown name, and for a run without measures: only runs with `output: {measures:
        true}` keep them.
        """
        files = part_paths(self.folder, self.report["outputs"], MEASURES)
        if not files:
            raise OutputError(
                f"{self.folder} has no measures. Run its recipe again with output: {{measures: true}} and a new "
                "--output, or measure its documents: curation.measure(run.kept(), names)"
            )
        wanted = [names] if isinstance(names, str) else list(names)
        schema = TablePart(files[0]).schema
        known = [name for name in schema.names if name not in FIXED.names]
        for name in wanted:
            if name not in known:
                raise OutputError(f"{self.folder} has no measure {name!r}{nearest(name, known)}")
        columns = [*FIXED.names, *(wanted or known)]
        types = {name: schema.field(name).type for name in columns}
        table = pa.concat_tables([schema.empty_table().select(columns), *read_tables(files, columns, types)])
        if stage:
            table = self._of_filter(table, stage)
        return _frame(table)

    def _of_filter(self, table: pa.Table, stage: str) -> pa.Table:
        """Return the rows of one filter, without the measures of other filters."""
        filters = [entry["name"] for entry in self.report["stages"] if entry["kind"] == "filter"]
        if stage not in filters:
            raise OutputError(f"{self.folder} has no filter {stage!r}{nearest(stage, filters)}")
        rows = table.filter(pc.equal(table.column("stage"), stage))
        return rows.select([name for name in table.column_names if rows.column(name).null_count < max(len(rows), 1)])

    @property
    def nothing_kept(self) -> str:
        """One sentence with the likely reason why the run kept no document; `""` if it kept any."""
        return nothing_kept(self.report)

    @property
    def _warnings(self) -> list[str]:
        """The warnings of the report; in the commands that they name, this run's folder replaces DIR."""
        own = f"curate show {shlex.quote(str(self.folder))}"
        return [line.replace("curate show DIR", own) for line in self.report["warnings"]]

    def _documents(self, what: str, **chosen: Any) -> Frame:
        return _frame(run_documents(self.folder, what, **chosen))

    def __repr__(self) -> str:
        documents, tokens = self.report["documents"], self.report["tokens"]
        shown = f", {counted(tokens['count'], 'token')}" if tokens else ""
        read = counted(documents["read"], "document")
        warnings = "".join(f"; {line}" for line in warning_lines(self._warnings, 3, 100))
        return printable_line(f"<run {str(self.folder)!r}: {read} read, {documents['kept']:,} kept{shown}{warnings}>")

    def _repr_html_(self) -> str:
        rows = [
            (row.step, row.reason, row.documents, f"{row.share:.2%}", f"{row.bytes / 1e6:.2f}" if row.step else "")
            for row in funnel(self.report)
        ]
        header = ("step", "reason", "documents", "share", "MB")
        return html_table(f"run {self.folder}", header, rows, funnel_line(self.report), warnings=self._warnings)


def open_run(folder: str | Path | RunResult) -> RunResult:
    """Return the finished run in a folder.

    folder   output folder of `curation.run` or `curate run`; or a `RunResult`, whose folder is read again

        >>> import curation
        >>> curation.open_run("out")
        <run 'out': 4 documents read, 2 kept>

    Raises OutputError for a folder without a finished run, and for a run of another version; ArgumentError for a value
    that is no path. It imports no code.
    """
    run = open_finished(folder)
    return RunResult(run.report, True, run.folder)


def _frame(table: pa.Table) -> Frame:
    return load_engine("cpu").from_arrow(table)
