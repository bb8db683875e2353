# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: keep one of the documents with the same text, or with the same value of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.arrays import positions_of
from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.errors import counted
from curation.base.system.sealed import read_sealed, write_sealed
from curation.kernels.rewrite import VISIBLE, VISIBLE_VERSION, RewriteSteps
from curation.reading.source_files import RESERVED
from curation.stages.base import PATH, CorpusStage, Forecast, Function, NewIndex, Phase, StageSample
from curation.stages.corpus.index_tasks import index_phases
from curation.stages.corpus.keep_orders import (
    FIRST,
    ORDER,
    as_strings,
    check_policy,
    check_values,
    order_key,
    policy_columns,
    read_column,
    shown_policy,
    split_rank,
    value_counts,
    value_lines,
    value_warnings,
)
from curation.stages.corpus.key_ranges import (
    RUNS,
    division_of,
    division_phase,
    read_cell,
    read_keys_of,
    reducer_count,
    row_type,
    slice_group,
    slice_group_count,
    slice_group_starts,
    write_cells,
    write_run,
)
from curation.stages.corpus.saved_index import IndexMatches, SavedIndex, saved_by, sum_details
from curation.stages.corpus.stored_drops import matched_drops, stored_drops
from curation.stages.corpus.written_columns import store_columns
from curation.stages.exact.canonical_urls import TRACKING, canonical_urls
from curation.stages.exact.column_keys import hash_keys, key_texts
from curation.stages.exact.exact_index import FOLDER as EXACT
from curation.stages.exact.exact_index import HASHES, find_equal, open_exact_index
from curation.stages.outcome import Corpus, Decision, StageCount

COMPARISONS = {
    "exact": RewriteSteps(),
    "lowercase": RewriteSteps(lowercase=True, whitespace="strip"),
    "visible": VISIBLE._replace(whitespace="collapse"),
}
URL = "url"  # a comparison only of columns

COMPARED = {
    "exact": "unchanged",
    "lowercase": "stripped and in lower case",
    "visible": "as eyes do: in lower case, without punctuation, signs and invisible characters, look-alikes as one",
    URL: "as canonical URLs",
}
TRACKING_NAME = "tracking"
REASON, INDEX_REASON = "exact_duplicate", "exact_duplicate_of_index"
HASH = "murmur3_x64_128"
INDEX, DUPLICATES, SORTED = "index", "duplicates", "sorted"  # phases


class ExactDedup(CorpusStage, frozen=True, kw_only=True, tag="exact_dedup"):
    """Keep one document of each text, or of each value of columns, by a 128-bit hash of UTF-8 bytes (murmur3_x64_128).

    max_characters   number of characters (code points) of the text compared, from the start; 0: all
    compare          `exact`: compare the text after earlier stages, or the column, unchanged; `lowercase`:
                     `text.strip().lower()`; `visible`: as in `decontaminate`, with one space for each run of white
                     space; `url`: a column as canonical URLs
    index            folder `index` of an earlier run with `output: {index: true}` and the same settings. Documents
                     with the text or key of one in it are removed first, with the reason `exact_duplicate_of_index`;
                     "" for none
    column           column, or list of columns, whose values are compared in place of the text of a document; "": the
                     text. A document in which one of them is null or empty has no key, and is kept
    keep             document kept of each text or key. `first`: the first one, by the order of inputs and documents;
                     `{highest: COLUMN}`: the one with the highest number; `{newest: COLUMN}`: the one with the latest
                     date. If equal, the first; documents without a number or date come last
    drop_parameters  with `compare: url`, names of parameters that do not count; `*` at the end stands for any
                     characters. `tracking`, alone or in a list, stands for a list of known ones, such as `utm_*`
    writes           name of a new column: the number of documents with the text or key of the kept one; "" for none.
                     In Python it is `copies_column`

    A null text equals an empty one. Numbers are compared as they are written. In `removed/` the value is 1, and
    `duplicate_of` is the kept document.
    """

    function: ClassVar[Function] = Function(
        """Return one row of each distinct text, or of each distinct value of columns.

        On a Dask frame the call itself reads all text once, for 24 bytes of keys per document. The rows stay lazy.

            >>> urls = ["http://a.org/", "https://www.a.org", None]
            >>> frame = pandas.DataFrame({"text": ["one", "two", "one"], "url": urls})
            >>> curation.exact_dedup(frame)["text"].tolist()
            ['one', 'two']
            >>> curation.exact_dedup(frame, column="url", compare="url", writes="copies")["copies"].tolist()
            [2, 1]
            >>> curation.exact_dedup(frame, details=True).pairs[["row", "kept_row"]].values.tolist()
            [[2, 0]]

        Raises InputError for a column that cannot be a key, or has no number or date.
        """,
        details=True,
        types={"index": PATH},
    )

    max_characters: int = 0
    compare: str = "exact"
    index: str = ""
    column: str | list[str] = ""
    keep: str | dict[str, str] = FIRST
    drop_parameters: str | list[str] = TRACKING_NAME
    copies_column: str = msgspec.field(default="", name="writes")

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        if self.compare not in COMPARED:
            raise ValueError(f"compare must be one of {', '.join(COMPARED)}, not {self.compare!r}")
        if self.column != "":
            self._check_columns()
        elif self.compare == URL:
            raise ValueError("compare: url compares a column. Give its name, such as column: url")
        if self.drop_parameters != TRACKING_NAME and self.compare != URL:
            raise ValueError("drop_parameters has names of parameters in URLs; it needs compare: url")
        if "" in _listed(self.drop_parameters):
            raise ValueError("drop_parameters has an empty name. Give [] to leave out no parameter")
        if isinstance(self.keep, dict):
            check_policy(self.keep)
        elif self.keep != FIRST:
            raise ValueError(f"keep must be first, {{highest: COLUMN}} or {{newest: COLUMN}}, not {self.keep!r}")
        name = self.copies_column
        if name and (not name.isidentifier() or name in RESERVED):
            raise ValueError(f"writes must be a name for a new column, not {name!r}")

    def _check_columns(self) -> None:
        if self.key_columns in ([], [TEXT]) or "" in self.key_columns:
            raise ValueError(
                f"column must name a column or a list of columns, not {self.column!r}. Leave it out for texts"
            )
        if len({*self.key_columns}) < len(self.key_columns):
            raise ValueError(f"column must name each column once, not {self.column!r}")
        if self.max_characters:
            raise ValueError("max_characters compares the start of texts; it has no meaning with column")

    @property
    def key_columns(self) -> list[str]:
        """The columns of the key; none if texts are compared."""
        return [] if self.column == "" else _listed(self.column)

    @property
    def _dropped(self) -> list[str]:
        """The names of parameters of URLs that are ignored."""
        return [
            name
            for entry in _listed(self.drop_parameters)
            for name in (TRACKING if entry == TRACKING_NAME else [entry])
        ]

    def reads(self) -> tuple[str, ...]:
        names = [*self.key_columns, *policy_columns(self.keep)]
        return tuple(name for name in dict.fromkeys(names) if name not in (ID, TEXT))  # every document has both

    def writes(self) -> dict[str, str]:
        return {self.copies_column: "int64"} if self.copies_column else {}

    def kernels(self) -> tuple[str, ...]:
        return ("hashes", "leaders", *(("rewrite",) if self.compare in ("lowercase", "visible") else ()))

    def check(self, inputs: Sequence[str]) -> None:
        """Raise RecipeError for an index that is missing or has other settings."""
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        return self.open_index().files() if self.index else {}

    def open_index(self) -> SavedIndex:
        """Return the saved index. Raises RecipeError if the index is missing or has other settings."""
        index = open_exact_index(self.index)
        index.check(self._index_settings)
        return index

    @property
    def _index_settings(self) -> dict[str, Any]:
        settings = {"hash": HASH, "max_characters": self.max_characters, "compare": self.compare}
        if self.column:
            settings["column"] = ", ".join(self.key_columns)
        if self.compare == "visible":
            settings["compare_version"] = VISIBLE_VERSION
        if self.compare == URL:
            settings["drop_parameters"] = sorted({*self._dropped})
        return settings

    def new_index(self) -> NewIndex:
        return saved_by(index_phases([HASHES]), self._index_settings, EXACT)

    def forecast(self, sample: StageSample) -> Forecast:
        """Return the bytes of the new column on disk, and the bytes of hashes and documents in an index."""
        scratch = 8 * sample.documents if self.copies_column else 0
        return Forecast(scratch_bytes=scratch, index_bytes=20 * sample.documents)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        if self.column:
            columns = [as_strings(read_column(engine, frame, name), name) for name in self.key_columns]
            hashes = hash_keys(engine, key_texts(columns, partial(self._compared, engine)))
        else:
            text, _ = engine.rewrite(frame[TEXT], COMPARISONS[self.compare])
            hashes = engine.hash_text(text, self.max_characters)
        keys = {"high": hashes[:, 0], "low": hashes[:, 1]}
        return keys | order_key(engine, frame, self.keep)

    def _compared(self, engine: Engine, values: pa.Array) -> pa.Array:
        """Return the strings that are compared in place of `values`."""
        if self.compare == URL:
            return canonical_urls(values, self._dropped)
        if self.compare == "exact":
            return values
        frame = engine.from_arrow(pa.table({TEXT: values}))
        text, _ = engine.rewrite(frame[TEXT], COMPARISONS[self.compare])
        return engine.to_arrow(engine.with_columns(frame, {TEXT: text})).column(TEXT).combine_chunks()

    def phases(self) -> Sequence[Phase]:
        index = [Phase(INDEX, slice_group_count, self._match_index, durable=True)] if self.index else []
        return (
            division_phase(1),
            *index,
            Phase(RUNS, slice_group_count, self._write_run, durable=True),
            Phase(DUPLICATES, reducer_count, self._find_duplicates, durable=True),
            Phase(SORTED, slice_group_count, self._sort_duplicates, durable=True),
        )

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the documents of a group of slices whose text or key is in the index."""
        part = slice_group(corpus, task)
        if self.column:
            part = part.of(part.rows[part.column("high") != 0])  # without documents that have no key
        matches = find_equal(part, self.open_index())
        matches._replace(position=part.rows[matches.position]).save(_matches_path(corpus, task))

    def _write_run(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the keys of a group of slices, without documents that have no key or whose key is in the index."""
        part = slice_group(corpus, task)
        if self._is_counted:
            counts = {"without_key": int(np.count_nonzero(part.column("high") == 0))} if self.column else {}
            write_sealed(_counts_path(corpus, task), counts | value_counts(part, self.keep))
        if self.index:
            part = part.of(np.setdiff1d(part.rows, IndexMatches.load(_matches_path(corpus, task)).position))
        write_run(corpus, part, task, [self._run_columns], skip_zeros=bool(self.column))

    @property
    def _run_columns(self) -> list[str]:
        return [*HASHES.columns, *([] if self.keep == FIRST else [ORDER])]

    @property
    def _is_counted(self) -> bool:
        """Whether documents may lack a key, or a value by which `keep` chooses."""
        return bool(self.column) or self.keep != FIRST

    def _find_duplicates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Find the duplicates among the rows with this task's keys. Write each duplicate with the kept row of its key,
        one cell per group of slices."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for _, keys, rows in read_keys_of(corpus, task, 1, len(self._run_columns)):
            rank = None if self.keep == FIRST else split_rank(keys)
            leaders = engine.group_leaders(keys, rank)
            del keys, rank  # before the next arrays: all rows may have one key
            duplicates = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
            leaders = leaders[duplicates]
            found.append((rows[duplicates], rows[leaders]))
            del rows, leaders, duplicates  # before the next keys are read
        starts = slice_group_starts(corpus).astype(row_type(corpus))
        bounds = [np.searchsorted(row, starts).tolist() for row, _ in found]

        def cells() -> Iterator[list[np.ndarray]]:
            for number in range(len(starts) - 1):
                spans = [slice(*bound[number : number + 2]) for bound in bounds]
                yield [np.stack([row[span], first[span]], 1) for (row, first), span in zip(found, spans, strict=True)]

        write_cells(_duplicates_path(corpus, task), cells(), len(starts) - 1)
        if self.copies_column:
            kept, removed = np.unique(np.concatenate([starts[:0], *(first for _, first in found)]), return_counts=True)
            spans = [slice(*bound) for bound in pairwise(np.searchsorted(kept, starts).tolist())]
            sizes = ([kept[span], (removed[span] + 1).astype(kept.dtype)] for span in spans)
            write_cells(_sizes_path(corpus, task), sizes, len(spans))

    def _sort_duplicates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the duplicates of a group of slices, ascending, each with the kept row of its key."""
        cells = b"".join(read_cell(_duplicates_path(corpus, reducer), task) for reducer in range(reducer_count(corpus)))
        pairs = np.frombuffer(cells, row_type(corpus)).reshape(-1, 2)
        pairs = pairs[np.argsort(pairs[:, 0])]
        write_cells(_sorted_path(corpus, task), [[pairs[:, 0], pairs[:, 1]]], 1)
        if self.copies_column:
            self._store_copies(corpus, task)

    def _store_copies(self, corpus: Corpus, task: int) -> None:
        """Write the number of documents with the key of each row, for the rows of a group of slices. The number is 1
        for a row without duplicates."""
        first, last = slice_group_starts(corpus)[task : task + 2].tolist()
        copies = np.ones(last - first, np.int64)
        for reducer in range(reducer_count(corpus)):
            stored = np.frombuffer(read_cell(_sizes_path(corpus, reducer), task), row_type(corpus)).reshape(2, -1)
            copies[stored[0] - first] = stored[1]
        partitions = range(*division_of(corpus).slice_groups[task : task + 2])
        starts = corpus.storage.starts - first
        for number in partitions:
            store_columns(corpus, number, [copies[starts[number] : starts[number + 1]]])

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        slice_groups = range(slice_group_count(corpus))
        details: dict[str, Any] = {}
        if self._is_counted:
            counts = [read_sealed(_counts_path(corpus, number)) for number in slice_groups]
            details = {name: sum(count[name] for count in counts) for name in counts[0]}
            check_values(self.keep, details, len(corpus.rows))
        drops = stored_drops(corpus, REASON, (_removed_of(corpus, number) for number in slice_groups))
        if not self.index:
            return Decision((drops,), details=details)
        matches = [IndexMatches.load(_matches_path(corpus, number)) for number in slice_groups]
        matched = matched_drops(corpus, INDEX_REASON, Path(self.index) / EXACT, matches)
        return Decision((drops, matched), details=details | {"index": sum_details(matches)})

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        values = ", ".join(self.key_columns) or text
        which = "the first document" if self.keep == FIRST else f"the document with the {shown_policy(self.keep)}"
        lines = [f"keep {which} of each {self._unit}; compare {values}, {COMPARED[self.compare]}"]
        if self.compare == URL:
            lines.append(f"parameters that do not count: {', '.join(self._dropped) or 'none'}")
        return lines + ([f"{self.copies_column}: documents of the {self._unit}"] if self.copies_column else [])

    @property
    def _unit(self) -> str:
        """The noun for what duplicates share, as in the report: the text or the columns."""
        return "key" if self.column else "text"

    def warnings(self, count: StageCount) -> list[str]:
        """Return warnings about columns that are null or empty in all documents."""
        lines = value_warnings(self.keep, count.details, count.documents_in)
        if count.documents_in and count.details.get("without_key") == count.documents_in:
            documents = counted(count.documents_in, "document")
            lines.append(f"none of {documents} has a key: {' or '.join(self.key_columns)} is null or empty in each")
        return [f"{self.name or self.kind}: {line}" for line in lines]

    def report_lines(self, count: StageCount) -> list[str]:
        other = "an earlier one" if self.keep == FIRST else "another"
        lines = [f"{counted(count.reasons.get(REASON, 0), 'document')} with the {self._unit} of {other}"]
        if missing := count.details.get("without_key"):
            lines.append(f"{counted(missing, 'document')} without a key kept")
        lines += value_lines(self.keep, count.details)
        if "index" in count.details:
            index = count.details["index"]
            known = counted(index["documents"], "document")
            lines.append(f"{index['equal']:,} with the {self._unit} of one of {known} of the index")
        return lines


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _counts_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / RUNS / f"{slice_group:06d}.json"


def _sizes_path(corpus: Corpus, reducer: int) -> Path:
    return corpus.scratch / DUPLICATES / f"{reducer:06d}.sizes"


def _duplicates_path(corpus: Corpus, reducer: int) -> Path:
    return corpus.scratch / DUPLICATES / f"{reducer:06d}.bin"


def _matches_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / INDEX / f"{slice_group:06d}.npz"


def _sorted_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / SORTED / f"{slice_group:06d}.bin"


def _removed_of(corpus: Corpus, slice_group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the duplicates of a group of slices, ascending, the kept row of each duplicate's key, and the value 1 for
    each."""
    row, partner = np.frombuffer(read_cell(_sorted_path(corpus, slice_group), 0), row_type(corpus)).reshape(2, -1)
    return row, partner, np.ones(len(row))
