# SPDX-License-Identifier: Apache-2.0
"""The stages as functions on frames: lazily on Dask DataFrames, at once on one pandas or cuDF frame.

The runner calls the same stages on each slice, so that what is built cell by cell is what a recipe runs.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.arrays import pieces_by_size
from curation.contract import TEXT, Engine, Frame
from curation.engine import choose_engine, engine_of, load_engine
from curation.errors import EngineError, InputError, RecipeError, nearest
from curation.measures import Measure
from curation.reading import probe, read_documents, schema_of
from curation.reading.changes import check_unchanged
from curation.reading.inputs import READING, Input, Slice, find_files, list_inputs, refuse_streamed
from curation.reading.sampling import chosen
from curation.reading.slices import plan_slices
from curation.recipe import Output
from curation.rules import Rule
from curation.running.parts import with_ids
from curation.running.resources import read_processors
from curation.stages import (
    AddMeasures,
    Decontaminate,
    ExactDedup,
    Filter,
    FuzzyDedup,
    Language,
    Redact,
    Rewrite,
    RowStage,
)
from curation.stages.base import applied, run_phases
from curation.stages.outcome import BYTES, Corpus, key_column

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=msgspec.Struct)

SLICE_BYTES = 32 << 20
TEXTS_AT_ONCE = 10_000  # of candidates, when they are compared
SOURCE = "source"
STRING_KINDS = "OUT"  # of dtypes that can hold strings; what an object column holds is seen when it is read


def _settings_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a structure that a function takes as keywords: of a stage all but its name for reports, of an input
    none that means something to a run alone."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    names = (*READING, "columns", "sample") if kind is Input else fields.keys() - {"name"}
    return {name: field for name, field in fields.items() if name in names}


def _takes(kind: type[msgspec.Struct]) -> Callable[[Function], Function]:
    """Gives a function the signature and the documentation of the settings that its `**settings` are."""

    def shown(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        own = [entry for entry in signature.parameters.values() if entry.kind is not entry.VAR_KEYWORD]
        settings = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_default_of(field), annotation=field.type)
            for name, field in _settings_of(kind).items()
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=own + settings)  # type: ignore[attr-defined]
        texts = (inspect.cleandoc(text or "") for text in (function.__doc__, kind.__doc__))
        function.__doc__ = f"\n\n`curation.{kind.__name__}`: ".join(texts)
        return function

    return shown


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _plain(kind: type[msgspec.Struct], settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as a recipe would have them; where several names are expected, one stands for a list of it. ValueError
    for one that is not there."""
    fields, found = _settings_of(kind), {}
    for name, value in settings.items():
        if name not in fields:
            raise ValueError(f"no setting {name!r}{nearest(name, fields)}")
        value = _without_measures(value)
        several = typing.get_origin(fields[name].type) in (list, tuple)
        found[name] = [value] if several and isinstance(value, str) else value
    return dict(msgspec.to_builtins(found, enc_hook=_plain_value))


def _without_measures(value: Any) -> Any:
    """Names in place of members of `Measure`, which msgspec takes for numbers."""
    if isinstance(value, dict):
        return {key: _without_measures(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [_without_measures(entry) for entry in value]
    return value.name if isinstance(value, Measure) else value


def _plain_value(value: object) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise ValueError(f"no setting can be a {type(value).__name__}")


def _stage(kind: type[Kind], given: object, settings: dict[str, Any], field: str = "") -> Kind:
    """The stage that a function was called with: `given` itself, or one of its settings, checked as a recipe is, where
    `given` may be the value of `field`."""
    if isinstance(given, kind) and not settings:
        return given
    tag = kind.__struct_config__.tag
    if field:
        settings = {field: given, **settings}
    elif given is not None:
        raise RecipeError(f"{tag} takes settings by keyword, or one {kind.__name__} alone, not {given!r}")
    try:
        return msgspec.convert({"kind": tag, **_plain(kind, settings)}, kind)
    except ValueError as error:  # msgspec's own errors too
        raise RecipeError(f"{tag}: {error}") from None


@_takes(Input)
def read(
    paths: str | os.PathLike[str] | Input | Sequence[str | os.PathLike[str] | Input],
    *,
    engine: str = "auto",
    slice_bytes: int = 0,
    **settings: Any,
) -> Any:
    """A lazy Dask DataFrame (pandas or cuDF partitions, one per slice) with `doc`, `id`, `source`, `text`
    and the fields named in `columns`.

    `paths`: a file, a folder, a glob, or several of them, each an input of its own; the settings are of them all. An
    `Input` instead of a path has its own, of which weights, copies and minima are for runs alone; so
    `read(recipe.input)` reads what a run would, with a `sample` of the default seed. Data sets of Hugging Face are for
    runs too.

    Records that are not documents are left out; a run lists them in `rejected.jsonl`. To number documents, the records
    of every slice are counted in a pass of their own when the frame is computed. `slice_bytes`: input bytes of a
    partition; 0 chooses. Raises InputError, EngineError.
    """
    import dask.config
    import dask.dataframe as dd
    from dask.delayed import delayed

    dask.config.set({"dataframe.convert-string": False})  # Dask's own string type would lose pandas 3's `str`
    entries = _inputs(paths, settings)
    name = choose_engine(engine).name
    if slice_bytes < 0:
        raise EngineError(f"slice_bytes must be 0 (chosen for this machine) or more, not {slice_bytes}")
    slice_bytes = slice_bytes or max(SLICE_BYTES, load_engine(name).batch_bytes(read_processors()))
    slices = plan_slices([probe(file) for file in find_files(entries)], slice_bytes)
    counts = [delayed(_count_rows, pure=False)(piece, slice_bytes) for piece in slices]
    bases = delayed(np.cumsum)([0, *counts])
    columns = list(dict.fromkeys(name for entry in entries for name in entry.columns))
    meta = load_engine(name).from_arrow(_frame_schema(columns).empty_table())
    frames = [delayed(_read_frame)(piece, bases, name, slice_bytes, columns) for piece in slices]
    return dd.from_delayed(frames, meta=meta, verify_meta=False)


def _inputs(paths: Any, settings: dict[str, Any]) -> list[Input]:
    """The inputs that `read` was asked for; InputError for what it cannot read."""
    try:
        entries = list_inputs(paths, _plain(Input, settings))
    except ValueError as error:
        raise InputError(str(error)) from None
    if not entries:
        raise InputError("nothing to read: paths is empty")
    if len(entries) > 1 and settings.get("name"):
        raise InputError(f"name is for one input, not for {len(entries)}; give a list of curation.Input(path=, name=)")
    refuse_streamed(entries)
    return entries


def _count_rows(piece: Slice, batch_bytes: int) -> int:
    rows = sum(documents.rows for documents in read_documents(piece, batch_bytes))
    check_unchanged(piece)
    return rows


def _read_frame(piece: Slice, bases: np.ndarray, engine: str, batch_bytes: int, columns: Sequence[str]) -> Frame:
    module = load_engine(engine)
    tables = [documents.table for documents in read_documents(piece, batch_bytes)]
    check_unchanged(piece)
    table = pa.concat_tables([schema_of(piece.columns).empty_table(), *tables])
    share = piece.parts[0].file.sample
    if share < 1:
        table = table.filter(pa.array(chosen(module, module.from_arrow(table), share, Output().seed)))
    table = with_ids(table, piece.source, int(bases[piece.index]))
    for name in columns:
        if name not in table.column_names:  # of another input
            table = table.append_column(name, pa.nulls(len(table), pa.large_string()))
    schema = _frame_schema(columns)
    return module.from_arrow(table.select(schema.names).cast(schema))


def _frame_schema(columns: Sequence[str]) -> pa.Schema:
    names = ("id", "source", TEXT, *columns)
    return pa.schema([("doc", pa.int64()), *((name, pa.large_string()) for name in names)])


def _engine_of(frame: Any) -> Engine:
    """The engine of a frame that has a text column; TypeError, InputError for anything else."""
    engine = engine_of(frame)
    if not hasattr(frame, "columns"):
        raise TypeError(f"expected a DataFrame, got {type(frame).__name__}; a Series has no other columns to keep")
    if TEXT not in frame.columns:
        raise InputError(
            f"column {TEXT!r} not found in the frame; it has {list(frame.columns)}. Rename one to {TEXT!r}"
        )
    _check_once(frame, TEXT)
    found = getattr(frame, "_meta", frame)[TEXT].dtype
    if found.kind not in STRING_KINDS:
        raise InputError(f"column {TEXT!r} must hold strings, not {found}. Convert it: frame[{TEXT!r}].astype(str)")
    return engine


def _check_once(frame: Any, name: str) -> None:
    if list(frame.columns).count(name) > 1:
        raise InputError(f"the frame has {list(frame.columns).count(name)} columns {name!r}. Drop or rename the others")


def _is_lazy(frame: Any) -> bool:
    return hasattr(frame, "map_partitions")


def _map(frame: Any, function: Callable[..., Frame], *arguments: Any) -> Any:
    """`function` of the frame, or of each partition of a lazy one."""
    _engine_of(frame)
    if not _is_lazy(frame):
        return function(frame, *arguments)
    return frame.map_partitions(function, *arguments, meta=function(frame._meta, *arguments))


def _apply(frame: Frame, stage: RowStage) -> Frame:
    return applied(engine_of(frame), frame, stage)[0]


@_takes(Rewrite)
def rewrite(frame: Any, stage: Rewrite | None = None, **settings: Any) -> Any:
    """The frame with `text` rewritten, by settings or by a whole `stage`. RecipeError for a wrong one."""
    return _map(frame, _apply, _stage(Rewrite, stage, settings))


@_takes(Redact)
def redact(frame: Any, stage: Redact | None = None, **settings: Any) -> Any:
    """The frame with personal data in `text` replaced, as settings or a whole `stage` say. RecipeError for a wrong
    one."""
    return _map(frame, _apply, _stage(Redact, stage, settings))


def filter(frame: Any, rules: str | Rule | dict[str, Any] | Filter | Sequence[str | Rule | dict[str, Any]]) -> Any:
    """The rows that break none of `rules`: a rule set's name (`curation.RULE_SETS`), a `curation.Rule` or a dictionary
    of its fields, a list of these, or a whole `curation.Filter`. RecipeError for a wrong one."""
    return _map(frame, _apply, _stage(Filter, [rules] if isinstance(rules, Rule | dict) else rules, {}, "rules"))


def measure(frame: Any, names: str | Measure | AddMeasures | Sequence[str | Measure] = ()) -> Any:
    """The frame with one int64 column per measure: those named, or all members of `curation.Measure`; `names` may be a
    whole stage. RecipeError for a name that is none."""
    return _map(frame, _apply, _stage(AddMeasures, names, {}, "names"))


@_takes(Language)
def language(frame: Any, keep: str | Sequence[str] | Language, **settings: Any) -> Any:
    """The rows whose text is, clearly enough, in one of the languages `keep`, with the columns `language` and
    `language_probability`; columns of these names are replaced. `keep` may be a whole stage. RecipeError for a wrong
    setting."""
    return _map(frame, _apply, _stage(Language, keep, settings, "keep"))


@_takes(Decontaminate)
def decontaminate(
    frame: Any, evaluation_files: str | Input | Sequence[str | Input] | Decontaminate, **settings: Any
) -> Any:
    """The rows without n-grams of the evaluation texts in `evaluation_files`, which may be a whole stage. InputError
    for texts that cannot be read: they are at once, on a Dask frame too. RecipeError for a wrong setting."""
    files = [evaluation_files] if isinstance(evaluation_files, Input) else evaluation_files
    return _map(frame, _apply, _stage(Decontaminate, files, settings, "evaluation_files"))


@_takes(ExactDedup)
def exact_dedup(frame: Any, stage: ExactDedup | None = None, **settings: Any) -> Any:
    """The first row of every text, by settings or by a whole `stage`. RecipeError for a wrong one.

    On a Dask frame the keys (16 bytes per document) are computed at once, in a pass over the text; the rows stay lazy.
    """
    return _dedup(frame, _stage(ExactDedup, stage, settings))


@_takes(FuzzyDedup)
def fuzzy_dedup(frame: Any, stage: FuzzyDedup | None = None, **settings: Any) -> Any:
    """One row of each group of near-duplicates, by settings or by a whole `stage`; a list in `keep` names what stands
    in the column `source`. RecipeError for a wrong one.

    On a Dask frame the keys (8 bytes per band and document, 168 with the defaults) are computed at once, in a pass over
    the text, and partitions that hold candidates are read a second time, one by one; the rows stay lazy.
    """
    stage = _stage(FuzzyDedup, stage, settings)
    if stage.index:
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
    keys, sources = _keys(engine, frame, stage), []
    keep = getattr(stage, "keep", "first")
    if keep == "longest":
        keys[BYTES] = engine.byte_lengths(frame[TEXT])
    if not isinstance(keep, str):
        if SOURCE not in frame.columns:
            raise InputError(f"keep lists inputs, but the frame has no column {SOURCE!r}; it has {list(frame.columns)}")
        _check_once(frame, SOURCE)
        runs = pc.run_end_encode(engine.to_arrow(frame[[SOURCE]]).column(SOURCE).combine_chunks())
        sources = list(zip(runs.values.to_pylist(), np.diff(runs.run_ends.to_numpy(), prepend=0).tolist(), strict=True))
    return _Survey(len(frame), keys, sources)


def _keys(engine: Engine, frame: Frame, stage: ExactDedup | FuzzyDedup) -> dict[str, np.ndarray]:
    """The keys of a frame's rows, computed for a batch of them at a time, in memory that is used again."""
    pieces = [slice(0, len(frame))]
    if len(frame) and not hasattr(frame[TEXT].dtype, "categories"):  # a piece of such a column has those of all
        ends = np.cumsum(engine.byte_lengths(frame[TEXT]))
        pieces = list(pieces_by_size(ends, engine.batch_bytes(1)))
    found = [stage.keys(engine, frame.iloc[piece]) for piece in pieces]
    return {key_column(0, name): np.concatenate([keys[name] for keys in found]) for name in found[0]}


class _Frames:
    """Frames as `stages.outcome.Storage`. `load` gives a frame."""

    def __init__(self, surveys: Sequence[_Survey], load: Callable[[int], Frame]) -> None:
        self.starts = np.cumsum([0, *(survey.rows for survey in surveys)])
        self.surveys = surveys
        self.load = load

    @property
    def sources(self) -> list[tuple[str, int, int]]:
        ends = np.cumsum([count for survey in self.surveys for _, count in survey.sources], dtype=np.int64).tolist()
        names = [name for survey in self.surveys for name, _ in survey.sources]
        return list(zip(names, [0, *ends], ends, strict=False))

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


def _filter(frame: Frame, mask: np.ndarray) -> Frame:
    return engine_of(frame).filter_rows(frame, mask)


def _kept_rows(
    engine: Engine, stage: ExactDedup | FuzzyDedup, surveys: Sequence[_Survey], load: Callable[[int], Frame]
) -> np.ndarray:
    """A mask over the rows of all frames."""
    with TemporaryDirectory() as scratch:
        frames = _Frames(surveys, load)
        corpus = Corpus(frames, np.arange(frames.starts[-1]), 0, Path(scratch) / "stage", frames.sources)
        run_phases(stage, engine, corpus)
        found = stage.decide(engine, corpus)
    kept = np.ones(len(corpus.rows), bool)
    kept[found.dropped] = False
    return kept


__all__ = [
    "decontaminate", "exact_dedup", "filter", "fuzzy_dedup", "language", "measure", "read", "redact", "rewrite",
]  # fmt: skip
