# SPDX-License-Identifier: Apache-2.0
"""The stages as functions on frames: lazy on Dask DataFrames, immediate on pandas and cuDF DataFrames.

The runner applies the same stages to each slice, so a notebook and a recipe give the same result. The signatures repeat
the stages' fields for editors and type checkers; `tests/contract/test_signatures.py` compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Frame
from curation.engine import choose_engine, load_engine
from curation.errors import EngineError, InputError
from curation.library.frames import AnyFrame, apply
from curation.library.keywords import plain_settings, stage_of, takes
from curation.library.measured import Explain
from curation.measures import Measure
from curation.planning.memory import read_processors
from curation.reading import probe, read_documents, rejections, schema_of
from curation.reading.changes import check_unchanged
from curation.reading.inputs import READING, AnyInput, FilesInput, list_inputs, refuse_streamed
from curation.reading.paths import find_files
from curation.reading.sampling import chosen
from curation.reading.slices import plan_slices
from curation.reading.source_files import Slice
from curation.recipes.recipe import Recipe
from curation.rules.decide import Rule
from curation.run_folder.partitions import with_ids
from curation.stages import (
    Decontaminate,
    Filter,
    Language,
    MeasureStage,
    Redact,
    Rewrite,
)

if TYPE_CHECKING:
    import dask.dataframe as dd

SLICE_BYTES = 32 << 20
ERRORS = ("warn", "raise")
READ_SETTINGS = (*READING, "columns", "sample")  # of an input; the others apply to runs only


@takes(FilesInput, InputError)
def read(
    paths: str | os.PathLike[str] | AnyInput | Sequence[str | os.PathLike[str] | AnyInput],
    *,
    engine: str = "auto",
    slice_bytes: int = 0,
    errors: str = "warn",
    text_column: str = "",
    id_column: str = "id",
    columns: str | Sequence[str] | Mapping[str, str] = (),
    max_document_bytes: int = 100_000_000,
    sample: float = 1.0,
    name: str = "",
    base: str = "",
    format: str = "auto",
    separator: str = "",
    encoding: str = "utf-8",
    delimiter: str = "",
    quote: str = '"',
) -> dd.DataFrame:
    """Return a lazy Dask DataFrame of documents: `doc` (int64), `id`, `source`, `text` and the `columns` (strings).

    paths         a file, folder or glob, or a list of them; each is one input, and the keywords apply to all of them. A
                  `curation.Input` in place of a path has its own settings; its weight, copies and minimum are ignored
                  here. Hugging Face data sets (`hf:`) are refused: only runs read them
    engine        `auto` (default), `cpu` (pandas partitions) or `gpu` (cuDF partitions)
    slice_bytes   input bytes per partition; 0 (default) chooses a size for this machine
    errors        `warn` (default) leaves out records that are no documents, with one `curation.InputWarning` that has
                  their number and first places, when the frame is computed; `raise` raises InputError instead

    `read(recipe.input)` gives the documents that a run reads; `sample` uses the default seed. Computing the frame reads
    the input twice: the first pass counts records to number the documents.

        >>> import curation
        >>> frame = curation.read("data/*.jsonl", engine="cpu")
        >>> list(frame.columns)
        ['doc', 'id', 'source', 'text']

    Raises InputError for missing or unreadable files and wrong settings, EngineError for a wrong `slice_bytes` or an
    engine that this machine does not have.
    """
    entries = _inputs(paths, locals())
    import dask.config
    import dask.dataframe as dd
    from dask.delayed import delayed

    dask.config.set({"dataframe.convert-string": False})  # Dask's own string type would lose pandas 3's `str`
    module = choose_engine(engine).name
    if errors not in ERRORS:
        raise InputError(f"errors must be one of {', '.join(ERRORS)}, not {errors!r}")
    if slice_bytes < 0:
        raise EngineError(f"slice_bytes must be 0 (chosen for this machine) or more, not {slice_bytes}")
    slice_bytes = slice_bytes or max(SLICE_BYTES, load_engine(module).batch_bytes(read_processors()))
    slices = plan_slices([probe(file) for file in find_files(entries)], slice_bytes)
    tallies = [delayed(_tally, pure=False)(input_slice, slice_bytes) for input_slice in slices]
    offsets = delayed(_offsets, pure=False)(tallies, errors)
    names = list(dict.fromkeys(column for entry in entries for column in entry.columns))
    meta = load_engine(module).from_arrow(_frame_schema(names).empty_table())
    frames = [delayed(_read_frame)(input_slice, offsets, module, slice_bytes, names) for input_slice in slices]
    return dd.from_delayed(frames, meta=meta, verify_meta=False)


def _inputs(paths: Any, arguments: Mapping[str, Any]) -> list[AnyInput]:
    """Return the inputs for the arguments of `read`; InputError for those that it cannot read."""
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(FilesInput)}
    try:
        plain = plain_settings(FilesInput, {name: arguments[name] for name in READ_SETTINGS})
        settings = {name: value for name, value in plain.items() if value != defaults[name]}
        entries = list_inputs(paths, settings)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not entries:
        raise InputError("nothing to read: paths is empty. Give a file, a folder or a glob")
    if len(entries) > 1 and settings.get("name"):
        raise InputError(
            f"name applies to one input, paths has {len(entries)}. Give a list of curation.Input(path=, name=)"
        )
    refuse_streamed(entries)
    return entries


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _tally(input_slice: Slice, batch_bytes: int) -> tuple[int, rejections.Tally | None]:
    """The number of positions in a slice, and the records that are no documents."""
    rows, tally = 0, None
    for documents in read_documents(input_slice, batch_bytes):
        rows += documents.rows
        tally = rejections.add(tally, input_slice, documents)
    check_unchanged(input_slice)
    return rows, tally


def _offsets(tallies: Sequence[tuple[int, rejections.Tally | None]], errors: str) -> np.ndarray:
    rejections.report([tally for _, tally in tallies if tally], errors)
    return np.cumsum([0, *(rows for rows, _ in tallies)])


def _read_frame(
    input_slice: Slice, offsets: np.ndarray, engine: str, batch_bytes: int, columns: Sequence[str]
) -> Frame:
    module = load_engine(engine)
    tables = [documents.table for documents in read_documents(input_slice, batch_bytes)]
    check_unchanged(input_slice)
    table = pa.concat_tables([schema_of(input_slice.columns).empty_table(), *tables])
    share = input_slice.ranges[0].file.sample
    if share < 1:
        table = table.filter(pa.array(chosen(module, module.from_arrow(table), share, Recipe().seed)))
    table = with_ids(table, input_slice.source, int(offsets[input_slice.index]))
    for name in columns:
        if name not in table.column_names:  # a column of another input
            table = table.append_column(name, pa.nulls(len(table), pa.large_string()))
    schema = _frame_schema(columns)
    return module.from_arrow(table.select(schema.names).cast(schema))


def _frame_schema(columns: Sequence[str]) -> pa.Schema:
    names = ("id", "source", TEXT, *columns)
    return pa.schema([("doc", pa.int64()), *((name, pa.large_string()) for name in names)])


@takes(Rewrite)
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
    """Return the frame with its text rewritten.

    stage                a whole `curation.Rewrite` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["One  two ", "three"]})
        >>> curation.rewrite(frame, whitespace="collapse", lowercase=True)["text"].tolist()
        ['one two', 'three']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Rewrite, stage, locals()), text_column=text_column)


@takes(Redact)
def redact(
    frame: AnyFrame,
    stage: Redact | None = None,
    *,
    patterns: str = "checked",
    types: str | Sequence[str] = ("email", "ip_address", "credit_card", "ssn", "phone"),
    replacement: str = "[REDACTED]_{type}",
    entities: str | Sequence[str] = (),
    model: str = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with personal data in its text replaced.

    patterns             `checked`, or `published`: plain patterns that match more
    entities, model      names to replace too, `person`, `location`, `organisation`, that the spaCy model in this folder
                         finds
    stage                a whole `curation.Redact` in place of the keywords, which are its fields
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["write to a@b.example"]})
        >>> curation.redact(frame, types="email")["text"].tolist()
        ['write to [REDACTED]_EMAIL']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Redact, stage, locals()), text_column=text_column)


@takes(Filter)
def filter(
    frame: AnyFrame,
    rules: str | Rule | dict[str, Any] | Filter | Sequence[str | Rule | dict[str, Any]],
    *,
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows that break none of `rules`.

    rules                the name of a rule set (`curation.RULE_SETS`), a `curation.Rule`, a dictionary of its fields, a
                         list of these, or a whole `curation.Filter`
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "one two three"]})
        >>> curation.filter(frame, curation.Rule(measure="words", min=2))["text"].tolist()
        ['one two three']

    Measures that `curation.measure` or `curation.explain` wrote to the frame are not computed again, unless a stage has
    changed the text since. If you change the text yourself, measure it again.

    Raises RecipeError for a wrong rule, and the errors of `curation.apply`.
    """
    first, rules = rules, [rules] if isinstance(rules, Rule | dict) else rules
    return apply(frame, stage_of(Filter, first, locals()), text_column=text_column)


def explain(
    frame: AnyFrame,
    rules: str | Rule | dict[str, Any] | Filter | Sequence[str | Rule | dict[str, Any]],
    *,
    text_column: str = "text",
) -> AnyFrame:
    """Return all rows with their measures and the verdict of `rules`.

    rules                as in `curation.filter`
    frame, text_column   as in `curation.apply`

    The frame gets a column per measure in the rules, one per `matches` with the number of matches, and `kept` (bool),
    `reason` (the first broken rule, null for a kept row), `value` (its measure, ratio or count) and `bound` (the bound
    that the value breaks); the last two are NaN for a kept row. The column of a `matches` is the reason of its rule,
    with `_matches` at the end: `text_matches` by default, then `text_matches_2` for a second rule. Existing columns of
    these names are replaced. Measures that the frame has are used, as in `curation.filter`.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "one two three"]})
        >>> explained = curation.explain(frame, curation.Rule(measure="words", min=2, reason="short"))
        >>> explained[["words", "kept", "value", "bound"]].values.tolist()
        [[1, False, 1.0, 2.0], [3, True, nan, nan]]
        >>> explained["reason"][0]
        'short'

    Raises RecipeError for a wrong rule, and the errors of `curation.apply`.
    """
    first, rules = rules, [rules] if isinstance(rules, Rule | dict) else rules
    return apply(frame, Explain(rules=stage_of(Filter, first, locals()).rules), text_column=text_column)


@takes(MeasureStage)
def measure(
    frame: AnyFrame,
    names: str | Measure | MeasureStage | Sequence[str | Measure] = (),
    *,
    listed_words: str | Sequence[str] = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return the frame with one int64 column per measure.

    names                one or more members of `curation.Measure`, or a whole `curation.MeasureStage`; default all, or
                         none with `listed_words`
    listed_words         words, or the path of a file with one per line: adds the column `listed_words`, the share
                         of the words of a text that are listed
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["two words", ""]})
        >>> curation.measure(frame, ["words", "bytes"])["words"].tolist()
        [2, 0]

    Raises RecipeError for an unknown measure, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(MeasureStage, names, locals()), text_column=text_column)


@takes(Language)
def language(
    frame: AnyFrame,
    keep: str | Sequence[str] | Language = (),
    *,
    min_probability: float = 0.65,
    model: str | os.PathLike[str] = "",
    max_characters: int = 1000,
    column: str = "language",
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows in one of the languages `keep`, with the columns `language` and `language_probability` (float64).

    keep                 language codes of the model, such as `en`, or a whole `curation.Language` in place of the
                         keywords, which are its fields; default: all rows
    frame, text_column   as in `curation.apply`

    Existing columns of these two names are replaced.

        >>> import curation, pandas
        >>> texts = ["Nobody knows for sure why it does that.", "Niemand weiß so recht, warum er das tut."]
        >>> curation.language(pandas.DataFrame({"text": texts}), keep="de")["text"].tolist()
        ['Niemand weiß so recht, warum er das tut.']

    Raises RecipeError for a wrong setting, and the errors of `curation.apply`.
    """
    return apply(frame, stage_of(Language, keep, locals()), text_column=text_column)


@takes(Decontaminate)
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
    compare: str = "folded",
    text_column: str = "text",
) -> AnyFrame:
    """Return the rows that share fewer than `min_ngrams` word n-grams with the evaluation texts.

    evaluation_files     paths or `curation.Input`s of the evaluation texts, or a whole `curation.Decontaminate` in
                         place of the keywords, which are its fields. Read at once, for Dask frames too
    frame, text_column   as in `curation.apply`

        >>> import curation, pandas, pathlib
        >>> _ = pathlib.Path("quiz.txt").write_text("two three")
        >>> frame = pandas.DataFrame({"text": ["one two three", "three two"]})
        >>> curation.decontaminate(frame, "quiz.txt", ngram=2)["text"].tolist()
        ['three two']

    Raises InputError for evaluation texts that cannot be read, RecipeError for a wrong setting, and the errors of
    `curation.apply`.
    """
    return apply(frame, stage_of(Decontaminate, evaluation_files, locals()), text_column=text_column)


__all__ = [
    "apply", "decontaminate", "explain", "filter", "language", "measure", "read", "redact", "rewrite",
]  # fmt: skip
