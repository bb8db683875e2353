# SPDX-License-Identifier: Apache-2.0
"""The stages as functions on frames: lazily on Dask DataFrames, at once on one pandas or cuDF frame.

The runner calls the same stages on each slice, so that what is built cell by cell is what a recipe runs. Settings are
written out for editors and type checkers; `tests/contract/test_signatures.py` holds them equal to the stages' fields.
"""

from __future__ import annotations

import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Frame
from curation.engine import choose_engine, load_engine
from curation.errors import CurationError, EngineError, InputError, RecipeError, nearest
from curation.frames import AnyFrame, apply
from curation.measures import Measure
from curation.reading import probe, read_documents, schema_of
from curation.reading.changes import check_unchanged
from curation.reading.inputs import READING, AnyInput, FilesInput, list_inputs, refuse_streamed
from curation.reading.paths import find_files
from curation.reading.sampling import chosen
from curation.reading.slices import plan_slices
from curation.reading.source_files import Slice
from curation.recipe import Recipe
from curation.rules import Rule
from curation.running.intermediate import with_ids
from curation.running.memory import read_processors
from curation.settings import expand_shorthands
from curation.stages import (
    Decontaminate,
    ExactDedup,
    Filter,
    FuzzyDedup,
    Language,
    MeasureStage,
    NgramDedup,
    Redact,
    Rewrite,
)

if TYPE_CHECKING:
    import dask.dataframe as dd

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = TypeVar("Kind", bound=msgspec.Struct)

SLICE_BYTES = 32 << 20
READ_SETTINGS = (*READING, "columns", "sample")  # of an input; the others mean something to a run alone


def _takes(kind: type[msgspec.Struct], error: type[CurationError] = RecipeError) -> Callable[[Function], Function]:
    """Adds the documentation of a structure to a function that has its fields as keywords, and refuses keywords that it
    does not have, or that come beside a whole stage: what their defaults are cannot be seen later on."""

    def documented(function: Function) -> Function:
        known = [*inspect.signature(function).parameters]

        @wraps(function)
        def checked(*arguments: Any, **given: Any) -> Any:
            named = dict(zip(known, arguments, strict=False)) | given
            for name in given:
                if name not in known:
                    raise error(f"{function.__name__}: no setting {name!r}{nearest(name, known)}")
            others = [name for name in known[2:] if name in named and name != "text_column"]
            if others and isinstance(named.get(known[1]), kind):
                raise error(
                    f"{function.__name__} takes settings by keyword, or one {kind.__name__} alone, not "
                    f"{', '.join(others)} beside it"
                )
            return function(*arguments, **given)

        texts = (inspect.cleandoc(text or "") for text in (function.__doc__, kind.__doc__))
        checked.__doc__ = f"\n\n`curation.{kind.__name__}`: ".join(texts)
        return cast(Function, checked)

    return documented


def _plain(kind: type[msgspec.Struct], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function that are settings, as a recipe would have them; where several names are expected, one
    stands for a list of it. ValueError for what no setting can be."""
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.name in arguments:
            value = _without_measures(arguments[field.name])
            several = typing.get_origin(field.type) in (list, tuple)
            found[field.name] = [value] if several and isinstance(value, str | AnyInput) else value
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


def _stage(kind: type[Kind], first: object, arguments: Mapping[str, Any]) -> Kind:
    """The stage that a function was called with: `first` itself, or one of its arguments, checked as a recipe is."""
    if isinstance(first, kind):
        return first
    tag = kind.__struct_config__.tag
    if first is not None and "stage" in arguments:
        raise RecipeError(f"{tag} takes settings by keyword, or one {kind.__name__} alone, not {first!r}")
    try:
        [content] = expand_shorthands({"stages": [{"kind": tag, **_plain(kind, arguments)}]})["stages"]
        return msgspec.convert(content, kind)
    except ValueError as error:  # msgspec's own errors too
        raise RecipeError(f"{tag}: {error}") from None


@_takes(FilesInput, InputError)
def read(
    paths: str | os.PathLike[str] | AnyInput | Sequence[str | os.PathLike[str] | AnyInput],
    *,
    engine: str = "auto",
    slice_bytes: int = 0,
    text_column: str = "",
    id_column: str = "id",
    columns: str | Sequence[str] = (),
    max_document_bytes: int = 100_000_000,
    sample: float = 1.0,
    name: str = "",
    base: str = "",
    format: str = "auto",
    separator: str = "",
    encoding: str = "utf-8",
) -> dd.DataFrame:
    """A lazy Dask DataFrame (pandas or cuDF partitions, one per slice) with `doc`, `id`, `source`, `text`
    and the fields named in `columns`.

    paths         a file, a folder, a glob, or several of them, each an input of its own; the settings are of them all.
                  An `Input` instead of a path has its own, of which weights, copies and minima are for runs alone; so
                  `read(recipe.input)` reads what a run would, with a `sample` of the default seed. Data sets of Hugging
                  Face are for runs too
    engine        auto, cpu or gpu
    slice_bytes   input bytes of a partition; 0 chooses

    Records that are not documents are left out; a run lists them in `rejected.jsonl`. To number documents, the records
    of every slice are counted in a pass of their own when the frame is computed.

        >>> import curation
        >>> frame = curation.read("data/*.jsonl", engine="cpu")
        >>> list(frame.columns)
        ['doc', 'id', 'source', 'text']

    Raises InputError, EngineError.
    """
    entries = _inputs(paths, locals())
    import dask.config
    import dask.dataframe as dd
    from dask.delayed import delayed

    dask.config.set({"dataframe.convert-string": False})  # Dask's own string type would lose pandas 3's `str`
    module = choose_engine(engine).name
    if slice_bytes < 0:
        raise EngineError(f"slice_bytes must be 0 (chosen for this machine) or more, not {slice_bytes}")
    slice_bytes = slice_bytes or max(SLICE_BYTES, load_engine(module).batch_bytes(read_processors()))
    slices = plan_slices([probe(file) for file in find_files(entries)], slice_bytes)
    counts = [delayed(_count_rows, pure=False)(piece, slice_bytes) for piece in slices]
    offsets = delayed(np.cumsum)([0, *counts])
    names = list(dict.fromkeys(column for entry in entries for column in entry.columns))
    meta = load_engine(module).from_arrow(_frame_schema(names).empty_table())
    frames = [delayed(_read_frame)(piece, offsets, module, slice_bytes, names) for piece in slices]
    return dd.from_delayed(frames, meta=meta, verify_meta=False)


def _inputs(paths: Any, arguments: Mapping[str, Any]) -> list[AnyInput]:
    """The inputs that `read` was asked for; InputError for what it cannot read."""
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(FilesInput)}
    try:
        plain = _plain(FilesInput, {name: arguments[name] for name in READ_SETTINGS})
        settings = {name: value for name, value in plain.items() if value != defaults[name]}
        entries = list_inputs(paths, settings)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not entries:
        raise InputError("nothing to read: paths is empty")
    if len(entries) > 1 and settings.get("name"):
        raise InputError(f"name is for one input, not for {len(entries)}; give a list of curation.Input(path=, name=)")
    refuse_streamed(entries)
    return entries


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _count_rows(piece: Slice, batch_bytes: int) -> int:
    rows = sum(documents.rows for documents in read_documents(piece, batch_bytes))
    check_unchanged(piece)
    return rows


def _read_frame(piece: Slice, offsets: np.ndarray, engine: str, batch_bytes: int, columns: Sequence[str]) -> Frame:
    module = load_engine(engine)
    tables = [documents.table for documents in read_documents(piece, batch_bytes)]
    check_unchanged(piece)
    table = pa.concat_tables([schema_of(piece.columns).empty_table(), *tables])
    share = piece.parts[0].file.sample
    if share < 1:
        table = table.filter(pa.array(chosen(module, module.from_arrow(table), share, Recipe().seed)))
    table = with_ids(table, piece.source, int(offsets[piece.index]))
    for name in columns:
        if name not in table.column_names:  # of another input
            table = table.append_column(name, pa.nulls(len(table), pa.large_string()))
    schema = _frame_schema(columns)
    return module.from_arrow(table.select(schema.names).cast(schema))


def _frame_schema(columns: Sequence[str]) -> pa.Schema:
    names = ("id", "source", TEXT, *columns)
    return pa.schema([("doc", pa.int64()), *((name, pa.large_string()) for name in names)])


@_takes(Rewrite)
def rewrite(
    frame: AnyFrame,
    stage: Rewrite | None = None,
    *,
    unicode: str = "keep",
    markup: str = "keep",
    control: str = "keep",
    characters: str = "keep",
    lowercase: bool = False,
    whitespace: str = "keep",
    text_column: str = "text",
) -> AnyFrame:
    """The frame with its text rewritten, by settings or by a whole `stage`.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["One  two ", "three"]})
        >>> curation.rewrite(frame, whitespace="collapse", lowercase=True)["text"].tolist()
        ['one two', 'three']

    Raises RecipeError for a wrong setting, and as `curation.apply`.
    """
    return apply(frame, _stage(Rewrite, stage, locals()), text_column=text_column)


@_takes(Redact)
def redact(
    frame: AnyFrame,
    stage: Redact | None = None,
    *,
    types: str | Sequence[str] = ("email", "ip_address", "credit_card", "ssn", "phone"),
    replacement: str = "[REDACTED]_{type}",
    text_column: str = "text",
) -> AnyFrame:
    """The frame with personal data in its text replaced, by settings or by a whole `stage`.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["write to a@b.example"]})
        >>> curation.redact(frame, types="email")["text"].tolist()
        ['write to [REDACTED]_EMAIL']

    Raises RecipeError for a wrong setting, and as `curation.apply`.
    """
    return apply(frame, _stage(Redact, stage, locals()), text_column=text_column)


@_takes(Filter)
def filter(
    frame: AnyFrame,
    rules: str | Rule | dict[str, Any] | Filter | Sequence[str | Rule | dict[str, Any]],
    *,
    text_column: str = "text",
) -> AnyFrame:
    """The rows that break none of `rules`: a rule set's name (`curation.RULE_SETS`), a `curation.Rule` or a dictionary
    of its fields, a list of these, or a whole `curation.Filter`.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "one two three"]})
        >>> curation.filter(frame, curation.Rule(measure="words", min=2))["text"].tolist()
        ['one two three']

    Raises RecipeError for a wrong rule, and as `curation.apply`.
    """
    first, rules = rules, [rules] if isinstance(rules, Rule | dict) else rules
    return apply(frame, _stage(Filter, first, locals()), text_column=text_column)


@_takes(MeasureStage)
def measure(
    frame: AnyFrame, names: str | Measure | MeasureStage | Sequence[str | Measure] = (), *, text_column: str = "text"
) -> AnyFrame:
    """The frame with one int64 column per measure: those named, or all members of `curation.Measure`; `names` may be a
    whole stage.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["two words", ""]})
        >>> curation.measure(frame, ["words", "bytes"])["words"].tolist()
        [2, 0]

    Raises RecipeError for a name that is none, and as `curation.apply`.
    """
    return apply(frame, _stage(MeasureStage, names, locals()), text_column=text_column)


@_takes(Language)
def language(
    frame: AnyFrame,
    keep: str | Sequence[str] | Language,
    *,
    min_probability: float = 0.65,
    model: str | os.PathLike[str] = "",
    max_characters: int = 1000,
    column: str = "language",
    text_column: str = "text",
) -> AnyFrame:
    """The rows whose text is, clearly enough, in one of the languages `keep`, with the columns `language` and
    `language_probability`; columns of these names are replaced. `keep` may be a whole stage.

        >>> import curation, pandas
        >>> texts = ["Nobody knows for sure why it does that.", "Niemand weiß so recht, warum er das tut."]
        >>> curation.language(pandas.DataFrame({"text": texts}), keep="de")["text"].tolist()
        ['Niemand weiß so recht, warum er das tut.']

    Raises RecipeError for a wrong setting, and as `curation.apply`.
    """
    return apply(frame, _stage(Language, keep, locals()), text_column=text_column)


@_takes(Decontaminate)
def decontaminate(
    frame: AnyFrame,
    evaluation_files: str
    | os.PathLike[str]
    | FilesInput
    | Sequence[str | os.PathLike[str] | FilesInput]
    | Decontaminate,
    *,
    ngram: int = 13,
    min_ngrams: int = 1,
    compare: str = "lowercase",
    text_column: str = "text",
) -> AnyFrame:
    """The rows without n-grams of the evaluation texts in `evaluation_files`, which may be a whole stage. They are read
    at once, on a Dask frame too.

        >>> import curation, pandas, pathlib
        >>> _ = pathlib.Path("quiz.txt").write_text("two three")
        >>> frame = pandas.DataFrame({"text": ["one two three", "three two"]})
        >>> curation.decontaminate(frame, "quiz.txt", ngram=2)["text"].tolist()
        ['three two']

    Raises InputError for texts that cannot be read, RecipeError for a wrong setting, and as `curation.apply`.
    """
    return apply(frame, _stage(Decontaminate, evaluation_files, locals()), text_column=text_column)


@_takes(ExactDedup)
def exact_dedup(
    frame: AnyFrame,
    stage: ExactDedup | None = None,
    *,
    max_characters: int = 0,
    compare: str = "exact",
    text_column: str = "text",
) -> AnyFrame:
    """The first row of every text, by settings or by a whole `stage`.

    On a Dask frame the keys (24 bytes per document) are computed at once, in a pass over the text; the rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "two", "one"]})
        >>> curation.exact_dedup(frame)["text"].tolist()
        ['one', 'two']

    Raises RecipeError for a wrong setting, and as `curation.apply`.
    """
    return apply(frame, _stage(ExactDedup, stage, locals()), text_column=text_column)


@_takes(FuzzyDedup)
def fuzzy_dedup(
    frame: AnyFrame,
    stage: FuzzyDedup | None = None,
    *,
    ngram: int = 5,
    unit: str = "word",
    compare: str = "lowercase",
    permutations: int = 128,
    seed: int = 1,
    threshold: float = 0.8,
    bands: int = 0,
    rows: int = 0,
    verify: str = "exact",
    keep: str | Sequence[str] = "first",
    index: str | os.PathLike[str] = "",
    text_column: str = "text",
) -> AnyFrame:
    """One row of each group of near-duplicates, by settings or by a whole `stage`; a list in `keep` names what is in
    the column `source`.

    On a Dask frame the keys (8 bytes per band and document, and 8 more) are computed at once, in
    a pass over the text, and partitions that hold candidates are computed a second time, one by one; the rows stay
    lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three four", "One two three four", "five"]})
        >>> curation.fuzzy_dedup(frame, ngram=2)["text"].tolist()
        ['one two three four', 'five']

    Raises RecipeError for a wrong setting, and as `curation.apply`.
    """
    return apply(frame, _stage(FuzzyDedup, stage, locals()), text_column=text_column)


@_takes(NgramDedup)
def ngram_dedup(
    frame: AnyFrame,
    stage: NgramDedup | None = None,
    *,
    ngram: int = 5,
    min_seen: float = 0.9,
    compare: str = "exact",
    max_memory_bytes: int = 8_000_000_000,
    text_column: str = "text",
) -> AnyFrame:
    """The rows whose n-grams were not nearly all in rows before them, by settings or by a whole `stage`.

    On a Dask frame the texts are read twice at once: 16 bytes per document are computed in the first pass, and the
    decision needs a second one, partition after partition. The rows stay lazy.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one two three", "two three", "three four"]})
        >>> curation.ngram_dedup(frame, ngram=2)["text"].tolist()
        ['one two three', 'three four']

    Raises RecipeError for a wrong setting and for a table that would be larger than `max_memory_bytes`, and as
    `curation.apply`.
    """
    return apply(frame, _stage(NgramDedup, stage, locals()), text_column=text_column)


__all__ = [
    "apply", "decontaminate", "exact_dedup", "filter", "fuzzy_dedup", "language", "measure", "ngram_dedup", "read",
    "redact", "rewrite",
]  # fmt: skip
