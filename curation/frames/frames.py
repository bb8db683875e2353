# SPDX-License-Identifier: Apache-2.0
"""Stages on frames: lazy on Dask DataFrames, immediate on pandas and cuDF DataFrames.

This module uses only the interface of `curation.stages.base`. A stage sees the text as the column `text`, whatever its
name in the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array, batches_by_size
from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.engine import engine_of
from curation.base.errors import ArgumentError, InputError, RecipeError
from curation.base.measures import close_measure
from curation.base.system.files import unsynced_folder
from curation.base.system.progress import notebook_progress
from curation.base.system.steps import Count, shown_by, watching
from curation.base.system.system_folders import PREFIX, naming_system_folder
from curation.frames.measured import note_measures, on_measures
from curation.frames.tables import (
    as_frame,
    as_table,
    check_once,
    framed,
    is_column,
    is_table,
    like,
    table_of,
    unframed,
)
from curation.frames.written import note_written, warn_of_replaced
from curation.stages import CorpusStage, RowStage, Stage
from curation.stages.base import Function
from curation.stages.checks import check_announced, stage_errors, stage_label
from curation.stages.corpus.cutting import cut_texts, cuts_folder, load_cuts
from curation.stages.corpus.written_columns import WrittenColumns, columns_folder
from curation.stages.invoke import apply_stage, as_column, compute_keys, decide, prepare_stage
from curation.stages.outcome import BYTES, Corpus, Cuts, Decision, Drops, key_column
from curation.stages.rows.language import Language
from curation.stages.warm_up import warm_up_stage

TEXTS_AT_ONCE = 10_000  # candidates per batch of a comparison
SOURCE = "source"
STRING_KINDS = "OUT"  # kinds of dtypes that can hold strings; values of an object column are checked when they are read
NUMBER = 0  # number of the only stage of a corpus of frames

Names = Mapping[Any, Any]  # column of the frame -> its name while a stage sees it


class HasColumns(Protocol):
    """A DataFrame, or a table of another library."""

    @property
    def columns(self) -> Any:
        """The names of the columns, in the library's type."""


class HasType(Protocol):
    """A Series of pandas, cuDF, Dask or polars."""

    @property
    def dtype(self) -> Any:
        """The type of the values. Only a Series has this attribute, not a DataFrame."""


class HasValues(Protocol):
    """An array of pyarrow."""

    @property
    def type(self) -> Any:
        """The Arrow type of the values."""


Value = TypeVar("Value")
AnyFrame = TypeVar("AnyFrame", bound=HasColumns | HasType | HasValues)


def apply(frame: AnyFrame, stage: Stage, *, text_column: str = "text") -> AnyFrame:
    """Return the frame after one stage, shipped or your own.

    frame         a pandas or cuDF DataFrame, which is not changed, or a Dask DataFrame, whose rows stay lazy; or a
                  table of polars, DuckDB or pyarrow (Arrow PyCapsule interface). The result is of the same library.
                  A Series of texts (pandas, cuDF, Dask, polars) or an array of pyarrow gives a Series or an array. If
                  the stage adds columns, it gives a frame with the texts as `text_column`
    stage         a `RowStage` or a `CorpusStage`
    text_column   the string column that holds the text, default `text`; it keeps its name. Nulls count as empty texts

    Columns keep their order and rows their index. Columns that the stage adds come last, or replace columns of the same
    name; an InputWarning names replaced columns that no earlier call has written. Integers and bools with nulls get
    pandas' nullable types, such as Int64.

    On a Dask frame a corpus stage reads all text during the call, to compute the stage's keys, and 8 bytes more per
    document. Partitions whose texts it compares are computed again, one by one. A stage that needs the names of inputs
    gets the values of the column `source`; this takes another pass over a Dask frame.

    Files that a stage prepares, such as tables, stay in a temporary folder until the process ends. For Dask workers on
    other machines, set TMPDIR to a folder that they share.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"body": ["One", "one", "two"]})
        >>> curation.apply(frame, curation.ExactDedup(compare="lowercase"), text_column="body")["body"].tolist()
        ['One', 'two']

    Raises, before anything is computed, TypeError if `frame` is no DataFrame, RecipeError if `stage` is no stage, and
    InputError if a column that the stage needs is missing. Raises also the errors of the stage's own `check`, and
    StageError for a stage that breaks its contract.
    """
    if is_column(frame):
        return cast(
            AnyFrame, unframed(frame, apply(framed(frame, text_column), stage, text_column=text_column), text_column)
        )
    if is_table(frame):
        table = table_of(frame)
        found = _applied(as_frame(table), stage, text_column)
        return cast(AnyFrame, like(frame, as_table(found, table, {text_column, *stage.writes()})))
    return cast(AnyFrame, _applied(frame, stage, text_column))


def _applied(frame: Any, stage: Stage, text_column: str) -> Any:
    names, runs, prepared_stage = _prepared(frame, stage, text_column)
    with _progress(stage):
        if isinstance(prepared_stage, CorpusStage):
            return _apply_corpus(frame, prepared_stage, names, runs).frame
        if not is_lazy(frame):
            return _apply_rows(frame, prepared_stage, names)
    return frame.map_partitions(
        _apply_rows, prepared_stage, names, meta=_apply_rows(frame._meta, prepared_stage, names)
    )


def apply_with_drops(frame: Any, stage: CorpusStage, text_column: str) -> Decided:
    """Return the frame after a corpus stage as `apply` does, and the rows that the stage removed."""
    names, runs, prepared_stage = _prepared(frame, stage, text_column)
    assert isinstance(prepared_stage, CorpusStage)
    with _progress(stage):
        return _apply_corpus(frame, prepared_stage, names, runs)


@contextmanager
def _progress(stage: Stage) -> Iterator[None]:
    """Show the progress of an immediate call in a notebook."""
    with shown_by(notebook_progress()), watching(stage.name or stage.kind, 0, lambda: Count(0), "", is_loop=True):
        yield


def _prepared(frame: Any, stage: Stage, text_column: str) -> tuple[Names, _LazyList, Stage]:
    """Check the frame and the stage; return the names of columns, the sources of rows, and the prepared stage."""
    check_frame(frame, text_column, stage)
    names = _check_stage(frame, stage, text_column)
    warn_of_replaced(frame, stage)
    runs = _LazyList(lambda: _source_runs(frame, stage))
    with stage_errors(stage):
        stage.check(_LazyList(lambda: list(dict.fromkeys(name for name, _, _ in runs))))
    warm_up_stage(stage, engine_of(frame))
    with naming_system_folder():
        return names, runs, prepare_stage(stage, Path(mkdtemp(dir=_folder().name)))


def of_partitions(frame: Any, function: Callable[..., Value], *arguments: Any) -> list[Value]:
    """Return `function(partition, *arguments)` of each partition of a frame, computed together; a frame in memory is
    one partition."""
    if not is_lazy(frame):
        return [function(frame, *arguments)]
    from dask.base import compute
    from dask.delayed import delayed

    return list(compute(*[delayed(function)(partition, *arguments) for partition in frame.to_delayed()]))  # type: ignore[no-untyped-call]


def is_lazy(frame: Any) -> bool:
    """Return whether the frame is of Dask, whose work begins only at `compute`."""
    return hasattr(frame, "map_partitions")


@cache
def _folder() -> TemporaryDirectory[str]:
    """Folder for files that stages prepare; lazy frames may need it until the process ends."""
    return TemporaryDirectory(prefix=PREFIX)


# Checks before anything is computed


def check_frame(frame: Any, text_column: str, stage: Stage | None = None) -> None:
    """Raise ArgumentError for a value that is no frame of an engine, InputError if `text_column` is no column of
    strings."""
    engine_of(frame)
    if not hasattr(getattr(frame, "_meta", frame), "columns"):
        raise ArgumentError(f"expected a DataFrame, got {type(frame).__name__}. Pass frame[[column]] or a whole frame")
    function = getattr(stage, "function", None)
    if isinstance(function, Function) and not function.reads_text:
        return
    if text_column not in frame.columns:
        raise InputError(
            f"column {text_column!r} not found in the frame; it has {list(frame.columns)}. Set text_column to the "
            "column of the text"
        )
    check_once(list(frame.columns), text_column)
    dtype = getattr(frame, "_meta", frame)[text_column].dtype
    if dtype.kind not in STRING_KINDS:
        raise InputError(
            f"column {text_column!r} must hold strings, not {dtype}. Convert it: frame[{text_column!r}].astype(str)"
        )


def _check_stage(frame: Any, stage: Stage, text_column: str) -> Names:
    """Return the names of columns as the stage sees them. Raises RecipeError or InputError for a stage that does not
    fit the frame."""
    if isinstance(stage, type):
        raise RecipeError(f"expected a stage, not the class {stage.__name__}. Call it: {stage.__name__}(...)")
    if not isinstance(stage, RowStage | CorpusStage):
        raise RecipeError(f"expected a stage, such as curation.ExactDedup(), not a {type(stage).__name__}")
    check_announced(stage)
    names = _names([*frame.columns, *stage.writes()], text_column)
    for column in stage.writes():
        if column in (TEXT, text_column):
            raise InputError(
                f"{stage_label(stage)} writes a column {column!r}, which holds the text. Rename the text column, "
                "or change the settings of the stage"
            )
    columns = [names.get(column, column) for column in frame.columns]
    for column in stage.reads():
        if column not in columns:
            first = "Call curation.language first, add" if column in Language().writes() else "Add"
            hint = close_measure(column) if hasattr(stage, "rules") else ""  # a rule on an unknown name reads a column
            raise InputError(
                f"{stage_label(stage)} reads the column {column!r}, which the frame lacks; besides its text "
                f"{text_column!r} it has {list(frame.columns)}{hint or '.'} {first} "
                "the column, or change the settings of the stage"
            )
        if columns.count(column) > 1:
            check_once(list(frame.columns), column)
    return names


# Names of columns


def _names(taken: Sequence[Any], text_column: str) -> Names:
    """Return the new names of columns: `text` for the text column, and another name for a column that has the name
    `text`; empty if nothing changes."""
    if text_column == TEXT:
        return {}
    free_name = TEXT
    while free_name in taken:
        free_name += "_"
    return {text_column: TEXT} | ({TEXT: free_name} if free_name != TEXT else {})


def as_stages_see(frame: Frame, text_column: str) -> Frame:
    """Return the frame with its text column named `text`, without a copy."""
    return _renamed(frame, _names(frame.columns, text_column))


def _renamed(frame: Frame, names: Names) -> Frame:
    """Return the same columns with other names, without a copy."""
    if not names:
        return frame
    out = frame.copy(deep=False)
    out.columns = [names.get(name, name) for name in frame.columns]
    return out


@contextmanager
def _named(names: Names) -> Iterator[None]:
    """Add the frame's name of the text column to the messages of InputErrors in this block, which name it `text`."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{error} (the text is in {_text_column(names)!r})" if names else str(error)) from None


# Row stages


def _apply_rows(frame: Frame, stage: Any, names: Names) -> Frame:
    text_column = _text_column(names)
    with _named(names):
        applied = on_measures(stage, frame, text_column)
        result, outcome = apply_stage(engine_of(frame), _renamed(frame, names), applied)
    result = _renamed(result, {seen: name for name, seen in names.items()})
    if hasattr(result, "attrs"):
        note_measures(result, stage, text_column, changed=outcome.text is not None)
        note_written(result, stage)
    return result


def _text_column(names: Names) -> Any:
    return next((name for name, seen in names.items() if seen == TEXT), TEXT)


# Corpus stages


class _LazyList(Sequence[Any]):
    """A list that is made on first access."""

    def __init__(self, make: Callable[[], list[Any]]) -> None:
        self.make = make

    @cached_property
    def made(self) -> list[Any]:
        return self.make()

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, number: Any) -> Any:
        return self.made[number]


def _source_runs(frame: Any, stage: Stage) -> list[tuple[str, int, int]]:
    """Return (source, first row, row after the last) of each run of consecutive rows with equal values in the column
    `source`."""
    if SOURCE not in frame.columns:
        raise InputError(
            f"{stage_label(stage)} needs names of inputs, but the frame has no column {SOURCE!r}; it has "
            f"{list(frame.columns)}. Add the name of each row's input"
        )
    check_once(list(frame.columns), SOURCE)
    runs = [run for runs in of_partitions(frame[[SOURCE]], _runs) for run in runs]
    ends = np.cumsum([count for _, count in runs], dtype=np.int64).tolist()
    return [(name, low, high) for (name, _), low, high in zip(runs, [0, *ends], ends, strict=False)]


def _runs(frame: Frame) -> list[tuple[str, int]]:
    column = as_one_array(engine_of(frame).to_arrow(frame).column(SOURCE))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    runs = pc.run_end_encode(column)
    return list(zip(runs.values.to_pylist(), np.diff(runs.run_ends.to_numpy(), prepend=0).tolist(), strict=True))


def row_batches(engine: Engine, seen: Frame, lengths: np.ndarray | None = None) -> Sequence[slice]:
    """Divide a frame, named as stages see it, into batches of a size that suits the engine. Return the rows of each
    batch; there is at least one."""
    if not len(seen) or hasattr(seen[TEXT].dtype, "categories"):  # a batch would have all categories
        return [slice(0, len(seen))]
    lengths = engine.byte_lengths(seen[TEXT]) if lengths is None else lengths
    return list(batches_by_size(np.cumsum(lengths), engine.batch_bytes(1)))


def _keys_of_frame(frame: Frame, stage: CorpusStage, names: Names) -> dict[str, np.ndarray]:
    """Return the keys of the rows of a frame and the bytes of their texts, computed batch by batch, so that memory is
    reused."""
    engine, seen = engine_of(frame), _renamed(frame, names)
    with _named(names):
        lengths = engine.byte_lengths(seen[TEXT])
        types: list[dict[str, np.dtype]] = []
        batch_keys = [
            compute_keys(stage, engine, seen.iloc[rows], types) for rows in row_batches(engine, seen, lengths)
        ]
    keys = {key_column(NUMBER, name): np.concatenate([each[name] for each in batch_keys]) for name in batch_keys[0]}
    return keys | {BYTES: lengths}


class _Frames:
    """Frames as a `stages.outcome.Storage`.

    keys  of each frame, as `_keys_of_frame` returns them
    load  function from the number of a frame to the frame as stages see it
    """

    def __init__(self, keys: Sequence[dict[str, np.ndarray]], load: Callable[[int], Frame]) -> None:
        self.starts = np.cumsum([0, *(len(own[BYTES]) for own in keys)])
        self.keys = keys
        self.load = load

    def key_names(self, partition: int) -> Sequence[str]:
        return [*self.keys[partition]]

    def key_type(self, partition: int, name: str) -> np.dtype:
        return self.keys[partition][name].dtype

    def read_keys(self, partition: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        np.take(self.keys[partition][name], rows - self.starts[partition], out=out, mode="clip")

    def read_texts(self, partition: int, rows: np.ndarray, column: str) -> Iterator[Callable[[], pa.Array]]:
        mask = np.zeros(self.starts[partition + 1] - self.starts[partition], bool)
        mask[rows - self.starts[partition]] = True
        texts = self._chosen(partition, mask, [column]).column(column)
        for first in range(0, len(texts), TEXTS_AT_ONCE):
            yield texts.slice(first, TEXTS_AT_ONCE).combine_chunks

    def rows_at(self, rows: np.ndarray) -> pa.Table:
        """Return the rows with these numbers, ascending: `text`, and `id` if the frames have it."""
        tables = []
        for partition in range(len(self.keys)):
            mask = np.zeros(self.starts[partition + 1] - self.starts[partition], bool)
            low, high = np.searchsorted(rows, self.starts[partition : partition + 2])
            mask[rows[low:high] - self.starts[partition]] = True
            if mask.any() or not partition:  # the first partition gives the types of columns, even without rows
                tables.append(self._chosen(partition, mask, [TEXT, ID]))
        return pa.concat_tables(tables)

    def _chosen(self, partition: int, mask: np.ndarray, names: Sequence[str]) -> pa.Table:
        frame = self.load(partition)
        engine = engine_of(frame)
        return engine.to_arrow(engine.filter_rows(frame[[name for name in names if name in frame.columns]], mask))


class Decided(NamedTuple):
    """The outcome of a corpus stage for a frame.

    frame   the rows that it keeps
    drops   the rows that it removes, as in `Decision`, numbered over all partitions
    rows    function from ascending row numbers to these rows in Arrow: `text`, and `id` if the frame has it
    """

    frame: Any
    drops: tuple[Drops, ...]
    rows: Callable[[np.ndarray], pa.Table]


class _FrameDecision(NamedTuple):
    """The part of a corpus stage's decision that concerns the rows of one frame."""

    kept: np.ndarray  # bool, one per row
    cuts: Cuts | None  # rows are numbered from the first of the frame
    copies: np.ndarray | None = None  # uint16, one per row
    columns: Mapping[str, pa.Array] = MappingProxyType({})  # columns that the stage writes


def _apply_corpus(frame: Any, stage: CorpusStage, names: Names, sources: Sequence[tuple[str, int, int]]) -> Decided:
    """Return the rows that a prepared corpus stage keeps, without the spans that it cuts, and the rows that it
    removes."""
    engine = engine_of(frame)
    if not is_lazy(frame):
        seen = _renamed(frame, names)
        storage = _Frames(of_partitions(frame, _keys_of_frame, stage, names), lambda _: seen)
        decision, [share] = _decide(engine, stage, storage, sources)
        return Decided(_decided_frame(frame, share, names, stage), decision.drops, storage.rows_at)
    import dask.dataframe as dd
    from dask.delayed import delayed

    partitions = frame.to_delayed()
    storage = _Frames(
        of_partitions(frame, _keys_of_frame, stage, names), lambda number: _renamed(partitions[number].compute(), names)
    )
    decision, shares = _decide(engine, stage, storage, sources)
    pairs = zip(partitions, shares, strict=True)
    frames = [delayed(_decided_frame)(partition, share, names, stage) for partition, share in pairs]
    no_columns = dict.fromkeys(stage.writes(), pa.array([], pa.int64()))
    no_cuts = Cuts(*np.zeros((3, 0), np.int64)) if stage.cuts_text else None
    none = _FrameDecision(np.ones(0, bool), no_cuts, columns=no_columns)
    meta = _decided_frame(frame._meta, none, names, stage)
    return Decided(dd.from_delayed(frames, meta=meta, verify_meta=False), decision.drops, storage.rows_at)


def _decide(
    engine: Engine, stage: CorpusStage, storage: _Frames, sources: Sequence[tuple[str, int, int]]
) -> tuple[Decision, list[_FrameDecision]]:
    """Return the decision about all frames together, and the part of the decision for each frame."""
    with unsynced_folder() as folder:
        rows = np.arange(storage.starts[-1])
        corpus = Corpus(storage, rows, NUMBER, folder / "stage", sources)
        decision, cuts = decide(stage, engine, corpus), cuts_folder(corpus.scratch)
        partitions = range(len(storage.starts) - 1)
        spans = [load_cuts(cuts, number) if stage.cuts_text else None for number in partitions]  # maps outlive files
        columns = WrittenColumns(columns_folder(corpus.scratch), (*stage.writes(),))
        sizes = np.diff(storage.starts).tolist() if columns.names else [0] * len(partitions)
        written = [columns.of(number, 0, size) if columns.names else {} for number, size in enumerate(sizes)]
    kept = np.ones(len(rows), bool)
    kept[decision.dropped] = False
    copies = decision.copies
    shares = [
        _FrameDecision(kept[low:high], own, None if copies is None else copies[low:high], added)
        for own, added, (low, high) in zip(spans, written, pairwise(storage.starts.tolist()), strict=True)
    ]
    return decision, shares


def _decided_frame(frame: Frame, decision: _FrameDecision, names: Names, stage: CorpusStage) -> Frame:
    """Return the frame without the rows and spans that a decision removes, and with the columns that the stage
    writes."""
    engine = engine_of(frame)
    if decision.cuts is not None:
        texts = as_one_array(engine.to_arrow(_renamed(frame, names)[[TEXT]]).column(TEXT))
        with stage_errors(stage):
            cut = pc.if_else(texts.is_valid(), cut_texts(texts, decision.cuts, 0), pa.scalar(None, texts.type))
        frame = engine.with_columns(frame, {_text_column(names): as_column(engine, frame, cut)})
        if hasattr(frame, "attrs"):
            note_measures(frame, stage, _text_column(names), changed=True)
    if decision.columns:
        values = {name: as_column(engine, frame, column) for name, column in decision.columns.items()}
        frame = engine.with_columns(frame, values)
        note_written(frame, stage)
    if decision.copies is not None:
        return frame.take(np.repeat(np.arange(len(decision.copies)), decision.copies))
    return engine.filter_rows(frame, decision.kept)
