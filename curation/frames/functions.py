# SPDX-License-Identifier: Apache-2.0
"""`curation.read` and `curation.explain`; `stage_functions.py` has the functions of the stages.

The runner reads and applies stages by the same code, so a notebook and a recipe give the same result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Frame
from curation.base.engine import choose_engine, give_threads_streams, load_engine
from curation.base.errors import EngineError, InputError
from curation.base.system.memory import read_processors
from curation.frames.frames import AnyFrame, apply
from curation.frames.measured import Explain
from curation.reading import probe, rejections, schema_of
from curation.reading.blank import read_visible
from curation.reading.changes import check_unchanged
from curation.reading.inputs import READING, AnyInput, FilesInput, list_inputs, refuse_streamed
from curation.reading.paths import find_files
from curation.reading.sampling import chosen
from curation.reading.slices import plan_slices
from curation.reading.source_files import CarriedColumn, Slice
from curation.recipes.keywords import plain_settings, stage_of, takes
from curation.recipes.recipe import Recipe
from curation.record.partitions import with_ids
from curation.rules.decide import Rule
from curation.stages import (
    Filter,
)

if TYPE_CHECKING:
    import dask.dataframe as dd

SLICE_BYTES = 32 << 20
ERRORS = ("warn", "raise")
READ_SETTINGS = (*READING, "columns", "sample", "keep_blank")  # of an input; other settings apply only to runs


@takes(FilesInput, InputError)
def read(
    paths: str | os.PathLike[str] | AnyInput | Sequence[str | os.PathLike[str] | AnyInput],
    *,
    engine: str = "auto",
    slice_bytes: int = 0,
    errors: str = "warn",
    text_column: str = "",
    id_column: str = "id",
    columns: str | Sequence[str] | Mapping[str, str | CarriedColumn] = (),
    max_document_bytes: int = 100_000_000,
    sample: float = 1.0,
    keep_blank: bool = False,
    name: str = "",
    base: str = "",
    format: str = "auto",
    separator: str = "",
    encoding: str = "utf-8",
    delimiter: str = "",
    quote: str = '"',
    escape: str | msgspec.UnsetType = msgspec.UNSET,
    header: bool = True,
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
    give_threads_streams()
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
    slices = plan_slices([probe(file, "Set text_column") for file in find_files(entries)], slice_bytes)
    tallies = [delayed(_tally, pure=False)(input_slice, slice_bytes) for input_slice in slices]
    offsets = delayed(_offsets, pure=False)(tallies, errors)
    names = list(dict.fromkeys(column for entry in entries for column in entry.columns))
    meta = load_engine(module).from_arrow(_frame_schema(names).empty_table())
    frames = [delayed(_read_frame)(input_slice, offsets, module, slice_bytes, names) for input_slice in slices]
    return dd.from_delayed(frames, meta=meta, verify_meta=False)


def _inputs(paths: Any, arguments: Mapping[str, Any]) -> list[AnyInput]:
    """Return the inputs for the arguments of `read`. Raises InputError for inputs that `read` cannot read."""
    defaults = {field.name: _default_of(field) for field in msgspec.structs.fields(FilesInput)}
    try:
        given = {name: arguments[name] for name in READ_SETTINGS if arguments[name] is not msgspec.UNSET}
        plain = plain_settings(FilesInput, given)
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


def _tally(input_slice: Slice, batch_bytes: int) -> tuple[int, rejections.RecordTally | None]:
    """Return the number of positions in a slice, and the records that are no documents."""
    rows, tally = 0, None
    for documents in read_visible(input_slice, batch_bytes):
        rows += documents.rows
        tally = rejections.add(tally, input_slice, documents)
    check_unchanged(input_slice)
    return rows, tally


def _offsets(tallies: Sequence[tuple[int, rejections.RecordTally | None]], errors: str) -> np.ndarray:
    rejections.report([tally for _, tally in tallies if tally], errors)
    return np.cumsum([0, *(rows for rows, _ in tallies)])


def _read_frame(
    input_slice: Slice, offsets: np.ndarray, engine: str, batch_bytes: int, columns: Sequence[str]
) -> Frame:
    module = load_engine(engine)
    tables = [documents.table for documents in read_visible(input_slice, batch_bytes)]
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


@takes(Filter)
def explain(
    frame: AnyFrame,
    rules: str | Rule | dict[str, Any] | Filter | Sequence[str | Rule | dict[str, Any]],
    *,
    tokenizer: str = "",
    words: str = "",
    text_column: str = "text",
) -> AnyFrame:
    """Return all rows with their measures, and whether and why `rules` would remove them.

    rules                as in `curation.filter`
    frame, text_column   as in `curation.apply`

    The frame gets a column per measure in the rules, one per `matches` with the number of matches, and `kept` (bool),
    `reason` (the first broken rule, null for a kept row), `value` (its measure, ratio or count) and `bound` (the bound
    that the value breaks); the last two are NaN for a kept row. The column of a `matches` has the name of the rule's
    reason, with `_matches` at the end: `text_matches` by default, then `text_matches_2` for a second rule. Existing
    columns of these names are replaced. Measures that the frame has are used, as in `curation.filter`.

        >>> import curation, pandas
        >>> frame = pandas.DataFrame({"text": ["one", "one two three"]})
        >>> explained = curation.explain(frame, curation.Rule(measure="words", min=2, reason="short"))
        >>> explained[["words", "kept", "value", "bound"]].values.tolist()
        [[1, False, 1.0, 2.0], [3, True, nan, nan]]
        >>> explained["reason"][0]
        'short'

    Raises RecipeError for a wrong rule, and the errors of `curation.apply`.
    """
    stage = stage_of(Filter, rules, locals())
    return apply(
        frame, Explain(rules=stage.rules, tokenizer=stage.tokenizer, words=stage.words), text_column=text_column
    )
