# SPDX-License-Identifier: Apache-2.0
"""Stages on frames: lazily on Dask DataFrames, at once on one pandas or cuDF frame.

A stage is asked for what `curation.stages.base` promises, and for nothing else. It sees the text as the column `text`,
whatever the frame calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.arrays import joined, pieces_by_size
from curation.contract import TEXT, Engine, Frame
from curation.engine import engine_of
from curation.errors import InputError, RecipeError
from curation.stages import CorpusStage, RowStage, Stage
from curation.stages.base import applied, as_column, called, calling, check_announced, decided, keyed, prepared
from curation.stages.cutting import cut_texts
from curation.stages.outcome import BYTES, Corpus, Cuts, key_column

TEXTS_AT_ONCE = 10_000  # of candidates, when they are compared
SOURCE = "source"
STRING_KINDS = "OUT"  # of dtypes that can hold strings; what an object column holds is seen when it is read
NUMBER = 0  # of the one stage of a corpus of frames

Names = Mapping[Any, Any]  # what columns of a frame are called while a stage sees it


class HasColumns(Protocol):
    """A DataFrame of pandas, cuDF or Dask."""

    @property
    def columns(self) -> Any: ...


AnyFrame = TypeVar("AnyFrame", bound=HasColumns)


def apply(frame: AnyFrame, stage: Stage, *, text_column: str = "text") -> AnyFrame:
    """The frame after a stage, which may be one of your own.

    frame         a pandas or cuDF DataFrame, which is not changed, or a Dask DataFrame, whose rows stay lazy
    stage         a `RowStage` or a `CorpusStage`. On a Dask frame a corpus stage computes its keys at once, and 8 bytes
                  per document beside them, in a pass over the text; partitions whose texts it asks for are computed
                  again, one by one
    text_column   the column of strings that is the text; it keeps its name. Nulls count as empty texts

    Columns keep their order and rows their index. Columns that the stage adds come last, or replace those of their
    names; integers and bool with nulls are of pandas' nullable types, such as Int64. A stage that asks for inputs or
    sources gets what is in the column `source`, on a Dask frame by a pass of its own. What a stage prepares, such as
    tables, is in a temporary folder until the process ends: for workers on other
    machines, set TMPDIR to a folder that they share.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"body": ["One", "one", "two"]})
        >>> curation.apply(frame, curation.ExactDedup(compare="lowercase"), text_column="body")["body"].tolist()
        ['One', 'two']

    Raises TypeError for what is no DataFrame, RecipeError for what is no stage, InputError for a frame without a column
    that is needed, all before anything is computed; what the stage's own `check` raises; StageError for a stage that
    breaks its contract.
    """
    return _applied(frame, stage, text_column)


def _applied(frame: Any, stage: Stage, text_column: str) -> Any:
    _check_frame(frame, text_column)
    names = _check_stage(frame, stage, text_column)
    runs = _Later(lambda: _source_runs(frame, stage))
    with calling(stage):
        stage.check(_Later(lambda: list(dict.fromkeys(name for name, _, _ in runs))))
    ready = prepared(stage, Path(mkdtemp(dir=_folder().name)))
    if isinstance(ready, CorpusStage):
        return _without(frame, ready, names, runs)
    if not _is_lazy(frame):
        return _map(frame, ready, names)
    return frame.map_partitions(_map, ready, names, meta=_map(frame._meta, ready, names))


def _is_lazy(frame: Any) -> bool:
    return hasattr(frame, "map_partitions")


@cache
def _folder() -> TemporaryDirectory[str]:
    """For what stages prepare: lazy frames may need it until the process ends."""
    return TemporaryDirectory(prefix="gpu-pipeline-")


# Checks before anything is computed


def _check_frame(frame: Any, text_column: str) -> None:
    engine_of(frame)
    if not hasattr(getattr(frame, "_meta", frame), "columns"):
        raise TypeError(f"expected a DataFrame, got {type(frame).__name__}; a Series has no other columns to keep")
    if text_column not in frame.columns:
        raise InputError(
            f"column {text_column!r} not found in the frame; it has {list(frame.columns)}. Set text_column to the "
            "column of the text"
        )
    _check_once(frame, text_column)
    found = getattr(frame, "_meta", frame)[text_column].dtype
    if found.kind not in STRING_KINDS:
        raise InputError(
            f"column {text_column!r} must hold strings, not {found}. Convert it: frame[{text_column!r}].astype(str)"
        )


def _check_once(frame: Any, name: str) -> None:
    if list(frame.columns).count(name) > 1:
        raise InputError(f"the frame has {list(frame.columns).count(name)} columns {name!r}. Drop or rename the others")


def _check_stage(frame: Any, stage: Stage, text_column: str) -> Names:
    """The names of columns as the stage sees them. RecipeError, InputError where stage and frame do not fit."""
    if isinstance(stage, type):
        raise RecipeError(f"expected a stage, not the class {stage.__name__}. Call it: {stage.__name__}(...)")
    if not isinstance(stage, RowStage | CorpusStage):
        raise RecipeError(f"expected a stage, such as curation.ExactDedup(), not a {type(stage).__name__}")
    check_announced(stage)
    names = _names([*frame.columns, *stage.writes()], text_column)
    for column in stage.writes():
        if column in (TEXT, text_column):
            raise InputError(
                f"{called(stage)} writes a column {column!r}, which is the text. Rename the column of the text, or "
                "change the settings of the stage"
            )
    seen = [names.get(column, column) for column in frame.columns]
    for column in stage.reads():
        if column not in seen:
            raise InputError(
                f"{called(stage)} reads the column {column!r}, which the frame does not have beside its text "
                f"{text_column!r}; it has {list(frame.columns)}"
            )
        if seen.count(column) > 1:
            _check_once(frame, column)
    return names


# Names of columns


def _names(taken: Sequence[Any], text_column: str) -> Names:
    """`text` for the text, and another name for what has that one. Empty where all is as stages want it."""
    if text_column == TEXT:
        return {}
    aside = TEXT
    while aside in taken:
        aside += "_"
    return {text_column: TEXT} | ({TEXT: aside} if aside != TEXT else {})


def _renamed(frame: Frame, names: Names) -> Frame:
    """The same columns under other names; nothing is copied."""
    if not names:
        return frame
    out = frame.copy(deep=False)
    out.columns = [names.get(name, name) for name in frame.columns]
    return out


@contextmanager
def _named(names: Names) -> Iterator[None]:
    """Says in messages about `text` what the frame calls it."""
    try:
        yield
    except InputError as error:
        told = [name for name, seen in names.items() if seen == TEXT]
        raise InputError(f"{error} (the text is in {told[0]!r})" if told else str(error)) from None


# Row stages


def _map(frame: Frame, stage: Any, names: Names) -> Frame:
    with _named(names):
        found, _ = applied(engine_of(frame), _renamed(frame, names), stage)
    return _renamed(found, {seen: name for name, seen in names.items()})


# Corpus stages


class _Later(Sequence[Any]):
    """A list that is made when it is first looked at."""

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
    """(what is in `source`, first row, row after the last) of rows on end that have the same there."""
    if SOURCE not in frame.columns:
        raise InputError(
            f"{called(stage)} asks for inputs, but the frame has no column {SOURCE!r}; it has {list(frame.columns)}"
        )
    _check_once(frame, SOURCE)
    found = _runs_of_all(frame[[SOURCE]])
    ends = np.cumsum([count for _, count in found], dtype=np.int64).tolist()
    return [(name, low, high) for (name, _), low, high in zip(found, [0, *ends], ends, strict=False)]


def _runs_of_all(frame: Any) -> list[tuple[str, int]]:
    if not _is_lazy(frame):
        return _runs(frame)
    from dask.base import compute
    from dask.delayed import delayed

    pieces = compute(*[delayed(_runs)(partition) for partition in frame.to_delayed()])  # type: ignore[no-untyped-call]
    return [run for piece in pieces for run in piece]


def _runs(frame: Frame) -> list[tuple[str, int]]:
    column = joined(engine_of(frame).to_arrow(frame).column(SOURCE))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    runs = pc.run_end_encode(column)
    return list(zip(runs.values.to_pylist(), np.diff(runs.run_ends.to_numpy(), prepend=0).tolist(), strict=True))


class _Survey(NamedTuple):
    """The rows and keys of one frame in a corpus, without its texts."""

    rows: int
    keys: dict[str, np.ndarray]


def _survey(frame: Frame, stage: CorpusStage, names: Names) -> _Survey:
    """The keys of a frame's rows, computed for a batch of them at a time, in memory that is used again."""
    engine, seen = engine_of(frame), _renamed(frame, names)
    with _named(names):
        lengths = engine.byte_lengths(seen[TEXT])
        pieces = [slice(0, len(seen))]
        if len(seen) and not hasattr(seen[TEXT].dtype, "categories"):  # a piece of such a column has those of all
            pieces = list(pieces_by_size(np.cumsum(lengths), engine.batch_bytes(1)))
        types: list[dict[str, np.dtype]] = []
        found = [keyed(stage, engine, seen.iloc[piece], types) for piece in pieces]
    keys = {key_column(NUMBER, name): np.concatenate([each[name] for each in found]) for name in found[0]}
    return _Survey(len(frame), keys | {BYTES: lengths})


class _Frames:
    """Frames as `stages.outcome.Storage`. `load` gives a frame as stages see it."""

    def __init__(self, surveys: Sequence[_Survey], load: Callable[[int], Frame]) -> None:
        self.starts = np.cumsum([0, *(survey.rows for survey in surveys)])
        self.surveys = surveys
        self.load = load

    def key_names(self, piece: int) -> Sequence[str]:
        return [*self.surveys[piece].keys]

    def key_type(self, piece: int, name: str) -> np.dtype:
        return self.surveys[piece].keys[name].dtype

    def read_keys(self, piece: int, name: str, rows: np.ndarray, out: np.ndarray) -> None:
        np.take(self.surveys[piece].keys[name], rows - self.starts[piece], out=out, mode="clip")

    def read_texts(self, piece: int, rows: np.ndarray) -> Iterator[Callable[[], pa.LargeStringArray]]:
        mask = np.zeros(self.starts[piece + 1] - self.starts[piece], bool)
        mask[rows - self.starts[piece]] = True
        frame = self.load(piece)
        engine = engine_of(frame)
        found = engine.to_arrow(engine.filter_rows(frame[[TEXT]], mask)).column(TEXT)
        for first in range(0, len(found), TEXTS_AT_ONCE):
            yield found.slice(first, TEXTS_AT_ONCE).combine_chunks


class _Part(NamedTuple):
    """What a decision says about one frame."""

    kept: np.ndarray  # bool, for each row
    cuts: Cuts | None  # of its rows, which count from its first


def _without(frame: Any, stage: CorpusStage, names: Names, sources: Sequence[tuple[str, int, int]]) -> Any:
    """The rows that a prepared corpus stage leaves, without the spans that it cuts."""
    engine = engine_of(frame)
    if not _is_lazy(frame):
        seen = _renamed(frame, names)
        [part] = _decide(engine, stage, _Frames([_survey(frame, stage, names)], lambda _: seen), sources)
        return _left(frame, part, names)
    import dask.dataframe as dd
    from dask.base import compute
    from dask.delayed import delayed

    partitions = frame.to_delayed()
    surveys = compute(*[delayed(_survey)(partition, stage, names) for partition in partitions])  # type: ignore[no-untyped-call]
    storage = _Frames(surveys, lambda number: _renamed(partitions[number].compute(), names))
    parts = _decide(engine, stage, storage, sources)
    frames = [delayed(_left)(partition, part, names) for partition, part in zip(partitions, parts, strict=True)]
    none = _Part(np.ones(0, bool), _cuts_between(parts[0].cuts, 0, 0))
    return dd.from_delayed(frames, meta=_left(frame._meta, none, names), verify_meta=False)


def _decide(
    engine: Engine, stage: CorpusStage, storage: _Frames, sources: Sequence[tuple[str, int, int]]
) -> list[_Part]:
    """The decision of a stage, for each frame."""
    with TemporaryDirectory(prefix="gpu-pipeline-") as folder:
        rows = np.arange(storage.starts[-1])
        found = decided(stage, engine, Corpus(storage, rows, NUMBER, Path(folder) / "stage", sources))
    kept = np.ones(len(rows), bool)
    kept[found.dropped] = False
    pairs = pairwise(storage.starts.tolist())
    return [_Part(kept[low:high], _cuts_between(found.cuts, low, high)) for low, high in pairs]


def _cuts_between(cuts: Cuts | None, low: int, high: int) -> Cuts | None:
    """The spans of rows `low` to `high`, counted from `low`."""
    if cuts is None:
        return None
    first, last = np.searchsorted(cuts.row, [low, high])
    return Cuts(cuts.row[first:last] - low, cuts.start[first:last], cuts.stop[first:last])


def _left(frame: Frame, part: _Part, names: Names) -> Frame:
    """What a decision leaves of a frame."""
    engine = engine_of(frame)
    if part.cuts is not None:
        texts = joined(engine.to_arrow(_renamed(frame, names)[[TEXT]]).column(TEXT))
        cut = pc.if_else(texts.is_valid(), cut_texts(texts, part.cuts, 0), pa.scalar(None, texts.type))
        text_column = next((name for name, seen in names.items() if seen == TEXT), TEXT)
        frame = engine.with_columns(frame, {text_column: as_column(engine, frame, cut)})
    return engine.filter_rows(frame, part.kept)


__all__ = ["AnyFrame", "HasColumns", "apply"]
