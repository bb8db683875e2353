# SPDX-License-Identifier: Apache-2.0
"""The stages as functions on frames: lazily on Dask DataFrames, at once on one pandas or cuDF frame.

The runner calls the same stages on each slice, so that what is built cell by cell is what a recipe runs.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import TEXT, Engine, Frame
from curation.engine import choose_engine, engine_of, load_engine
from curation.errors import InputError, RecipeError, nearest
from curation.measures import Measure
from curation.reading import probe, read_documents, schema_of
from curation.reading.inputs import Input, Slice, find_files
from curation.reading.slices import plan_slices
from curation.rules import Rule
from curation.running.parts import BYTES, with_ids
from curation.running.resources import read_processors
from curation.stages import ExactDedup, Filter, FuzzyDedup, Language, Redact, Rewrite
from curation.stages.outcome import RowStage

SLICE_BYTES = 32 << 20
TEXTS_AT_ONCE = 10_000  # of candidates, when they are compared
SOURCE = "source"
STRING_KINDS = "OUT"  # of dtypes that can hold strings; what an object column holds is seen when it is read


def read(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    engine: str = "auto",
    name: str = "",
    format: str = "auto",
    text_column: str = "",
    id_column: str = "id",
    columns: Sequence[str] = (),
    slice_bytes: int = 0,
) -> Any:
    """A lazy Dask DataFrame (pandas or cuDF partitions, one per slice) with `doc`, `id`, `source`, `text`
    and the fields named in `columns`.

    `paths`: a file, a folder, a glob, or several of them, each an input of its own. Records that are not documents are
    left out; a run lists them in `rejected.jsonl`. To number documents, the records of every slice are counted in a
    pass of their own when the frame is computed. `slice_bytes`: input bytes of a partition; 0 chooses. Raises
    InputError, EngineError.
    """
    import dask.config
    import dask.dataframe as dd
    from dask.delayed import delayed

    dask.config.set({"dataframe.convert-string": False})  # Dask's own string type would lose pandas 3's `str`
    chosen = choose_engine(engine).name
    slice_bytes = slice_bytes or max(SLICE_BYTES, load_engine(chosen).batch_bytes(read_processors()))
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    entries = [
        Input(
            path=os.fspath(path),
            name=name if len(listed) == 1 else "",
            format=format,
            text_column=text_column,
            id_column=id_column,
            columns=list(columns),
        )
        for path in listed
    ]
    slices = plan_slices([probe(file) for file in find_files(entries)], slice_bytes)
    counts = [delayed(_count_rows, pure=False)(piece, slice_bytes) for piece in slices]
    bases = delayed(np.cumsum)([0, *counts])
    meta = load_engine(chosen).from_arrow(_frame_schema(columns).empty_table())
    frames = [delayed(_read_frame)(piece, bases, chosen, slice_bytes) for piece in slices]
    return dd.from_delayed(frames, meta=meta, verify_meta=False)


def _count_rows(piece: Slice, batch_bytes: int) -> int:
    return sum(documents.rows for documents in read_documents(piece, batch_bytes))


def _read_frame(piece: Slice, bases: np.ndarray, engine: str, batch_bytes: int) -> Frame:
    tables = [documents.table for documents in read_documents(piece, batch_bytes)]
    table = pa.concat_tables([schema_of(piece.columns).empty_table(), *tables])
    table = with_ids(table, piece.source, int(bases[piece.index]))
    return load_engine(engine).from_arrow(table.cast(_frame_schema(piece.columns)))


def _frame_schema(columns: Sequence[str]) -> pa.Schema:
    names = ("id", "source", TEXT, *columns)
    return pa.schema([("doc", pa.int64()), *((name, pa.large_string()) for name in names)])


def _settings(stage: type[msgspec.Struct], values: dict[str, Any]) -> Any:
    """A stage from keyword arguments, checked as a recipe is."""
    try:
        return msgspec.convert({"kind": stage.__struct_config__.tag, **values}, stage)
    except msgspec.ValidationError as error:
        raise RecipeError(str(error)) from None


def _engine_of(frame: Any) -> Engine:
    """The engine of a frame that has a text column; TypeError, InputError for anything else."""
    engine = engine_of(frame)
    if not hasattr(frame, "columns"):
        raise TypeError(f"expected a DataFrame, got {type(frame).__name__}; a Series has no other columns to keep")
    if TEXT not in frame.columns:
        raise InputError(
            f"column {TEXT!r} not found in the frame; it has {list(frame.columns)}. Rename one to {TEXT!r}"
        )
    found = getattr(frame, "_meta", frame)[TEXT].dtype
    if found.kind not in STRING_KINDS:
        raise InputError(f"column {TEXT!r} must hold strings, not {found}. Convert it: frame[{TEXT!r}].astype(str)")
    return engine


def _is_lazy(frame: Any) -> bool:
    return hasattr(frame, "map_partitions")


def _map(frame: Any, function: Callable[..., Frame], *arguments: Any) -> Any:
    """`function` of the frame, or of each partition of a lazy one."""
    _engine_of(frame)
    if not _is_lazy(frame):
        return function(frame, *arguments)
    return frame.map_partitions(function, *arguments, meta=function(frame._meta, *arguments))


def _apply(frame: Frame, stage: RowStage) -> Frame:
    return stage.apply(engine_of(frame), frame).frame


def rewrite(frame: Any, **settings: Any) -> Any:
    """The frame with `text` rewritten. Settings: `curation.Rewrite`. RecipeError for a wrong one."""
    return _map(frame, _apply, _settings(Rewrite, settings))


def redact(frame: Any, **settings: Any) -> Any:
    """The frame with personal data in `text` replaced. Settings: `curation.Redact`. RecipeError for a wrong one."""
    return _map(frame, _apply, _settings(Redact, settings))


def filter(frame: Any, rules: str | Sequence[str | Rule | dict[str, Any]]) -> Any:
    """The rows that break none of `rules`: a rule set's name, or a list of names, `Rule`s and dictionaries."""
    listed = rules if isinstance(rules, str) else [msgspec.to_builtins(rule) for rule in rules]
    return _map(frame, _apply, _settings(Filter, {"rules": listed}))


def measure(frame: Any, names: Sequence[str] = ()) -> Any:
    """The frame with one int64 column per measure (all of them without `names`): `curation.Measure`."""
    chosen = tuple(names) or tuple(member.name for member in Measure)
    for name in chosen:
        if name not in Measure.__members__:
            raise RecipeError(f"no measure named {name!r}{nearest(name, Measure.__members__)}")
    return _map(frame, _measure, chosen)


def _measure(frame: Frame, names: tuple[str, ...]) -> Frame:
    engine = engine_of(frame)
    return engine.with_columns(frame, engine.measure(frame[TEXT], names))


def language(frame: Any, keep: Sequence[str], **settings: Any) -> Any:
    """The rows whose text is, clearly enough, in one of the languages `keep`, with the columns `language` and
    `language_probability`; columns of these names are replaced. Settings: `curation.Language`."""
    return _map(frame, _apply, _settings(Language, {"keep": list(keep), **settings}))


def exact_dedup(frame: Any, **settings: Any) -> Any:
    """The first row of every text. Settings: `curation.ExactDedup`.

    On a Dask frame the keys (16 bytes per document) are computed at once, in a pass over the text; the rows stay lazy.
    """
    return _dedup(frame, _settings(ExactDedup, settings))


def fuzzy_dedup(frame: Any, **settings: Any) -> Any:
    """One row of each group of near-duplicates. Settings: `curation.FuzzyDedup`; a list in `keep` names what stands in
    the column `source`.

    On a Dask frame the keys (8 bytes per band and document, 168 with the defaults) are computed at once, in a pass over
    the text, and partitions that hold candidates are read a second time, one by one; the rows stay lazy.
    """
    stage: FuzzyDedup = _settings(FuzzyDedup, settings)
    if stage.against:
        stage.open_index()  # one that does not fit is said before anything is read
    return _dedup(frame, stage)


def _dedup(frame: Any, stage: ExactDedup | FuzzyDedup) -> Any:
    """The rows that a whole-corpus stage leaves."""
    engine = _engine_of(frame)
    if not _is_lazy(frame):
        return engine.filter_rows(frame, _kept_rows(engine, stage, [_survey(frame, stage)], lambda _: frame))
    import dask.dataframe as dd
    from dask.base import compute
    from dask.delayed import delayed

    partitions = frame.to_delayed()
    surveys = compute(*[delayed(_survey)(partition, stage) for partition in partitions])  # type: ignore[no-untyped-call]
    kept = _kept_rows(engine, stage, list(surveys), lambda number: partitions[number].compute())
    masks = np.split(kept, np.cumsum([survey.rows for survey in surveys])[:-1])
    frames = [delayed(_filter)(partition, mask) for partition, mask in zip(partitions, masks, strict=True)]
    return dd.from_delayed(frames, meta=frame._meta, verify_meta=False)


class _Survey(NamedTuple):
    """What a whole-corpus stage wants to know of one frame, but its texts."""

    rows: int
    keys: dict[str, np.ndarray]
    sources: list[tuple[str, int]]  # what stands in `source`, and in how many rows on end


def _survey(frame: Frame, stage: ExactDedup | FuzzyDedup) -> _Survey:
    engine = engine_of(frame)
    keys, sources = stage.keys(engine, frame), []
    keep = getattr(stage, "keep", "first")
    if keep == "longest":
        keys[BYTES] = engine.byte_lengths(frame[TEXT])
    if not isinstance(keep, str):
        if SOURCE not in frame.columns:
            raise InputError(f"keep lists inputs, but the frame has no column {SOURCE!r}; it has {list(frame.columns)}")
        runs = pc.run_end_encode(engine.to_arrow(frame[[SOURCE]]).column(SOURCE).combine_chunks())
        sources = list(zip(runs.values.to_pylist(), np.diff(runs.run_ends.to_numpy(), prepend=0).tolist(), strict=True))
    return _Survey(len(frame), keys, sources)


class _Frames:
    """Frames as a whole-corpus stage wants them: what `stages.outcome.Corpus` promises. `load` gives a frame."""

    def __init__(self, surveys: Sequence[_Survey], load: Callable[[int], Frame], scratch: Path) -> None:
        self.keys = {name: np.concatenate([survey.keys[name] for survey in surveys]) for name in surveys[0].keys}
        self.starts = np.cumsum([0, *(survey.rows for survey in surveys)])
        self.rows = np.arange(self.starts[-1])
        ends = np.cumsum([count for survey in surveys for _, count in survey.sources], dtype=np.int64).tolist()
        names = [name for survey in surveys for name, _ in survey.sources]
        self.sources: Sequence[tuple[str, int, int]] = list(zip(names, [0, *ends], ends, strict=False))
        self.load = load
        self.scratch = scratch
        self.workers = 1

    def column(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        return self.keys[name][self.rows if positions is None else self.rows[positions]]

    def byte_lengths(self) -> np.ndarray:
        return self.column(BYTES)

    def texts(self, positions: np.ndarray) -> Iterator[Callable[[], pa.LargeStringArray]]:
        rows = self.rows[positions]
        bounds = np.searchsorted(rows, self.starts)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            mask = np.zeros(self.starts[number + 1] - self.starts[number], bool)
            mask[rows[bounds[number] : bounds[number + 1]] - self.starts[number]] = True
            frame = self.load(number)
            engine = engine_of(frame)
            found = engine.to_arrow(engine.filter_rows(frame[[TEXT]], mask)).column(TEXT)
            for first in range(0, len(found), TEXTS_AT_ONCE):
                yield found.slice(first, TEXTS_AT_ONCE).combine_chunks

    def select(self, positions: np.ndarray) -> _Frames:
        chosen = copy.copy(self)
        chosen.rows = self.rows[positions]
        return chosen


def _filter(frame: Frame, mask: np.ndarray) -> Frame:
    return engine_of(frame).filter_rows(frame, mask)


def _kept_rows(
    engine: Engine, stage: ExactDedup | FuzzyDedup, surveys: Sequence[_Survey], load: Callable[[int], Frame]
) -> np.ndarray:
    """A mask over the rows of all frames."""
    with TemporaryDirectory() as scratch:
        corpus = _Frames(surveys, load, Path(scratch) / "stage")
        found = stage.decide(engine, corpus)
    kept = np.ones(len(corpus.rows), bool)
    kept[found.all_rows] = False
    return kept


__all__ = ["exact_dedup", "filter", "fuzzy_dedup", "language", "measure", "read", "redact", "rewrite"]
