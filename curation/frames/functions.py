# SPDX-License-Identifier: Apache-2.0
"""`curation.read` and `curation.explain`; `stage_functions.py` has the functions of the stages.

The runner reads and applies stages by the same code, so a notebook and a recipe give the same result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec
import pyarrow as pa

from curation.base.contract import ID, ROW, TEXT, Frame
from curation.base.engine import choose_engine, give_threads_streams, load_engine
from curation.base.errors import EngineError, InputError
from curation.base.system.memory import read_processors
from curation.frames.frames import AnyFrame, apply
from curation.frames.measured import Explain
from curation.reading import probe, rejections
from curation.reading.inputs import READING, AnyInput, FilesInput, list_inputs, refuse_streamed
from curation.reading.paths import find_files
from curation.reading.sampling import read_sampled
from curation.reading.slices import plan_slices
from curation.reading.source_files import CarriedColumn, Slice
from curation.recipes.keywords import plain_settings, stage_of, takes
from curation.recipes.recipe import Recipe
from curation.record.partitions import with_ids
from curation.rules.decide import Rule
from curation.stages import (
    Filter,
)
from curation.stages.invoke import as_column

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
    errors        `warn` (default) leaves out records that are no documents. When the frame is computed, a
                  `curation.InputWarning` has the first of them, and another, after the last partition, their number.
                  `raise` raises InputError at the first of them instead

    `read(recipe.input)` gives the documents that a run reads; `sample` uses the default seed. Computing the frame reads
    the input once. A single partition needs the partitions before it, whose records number its documents.

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

    dask.config.set({"dataframe.convert-string": False})  # Dask's own string type would lose pandas 3's `str`
    module = choose_engine(engine).name
    if errors not in ERRORS:
        raise InputError(f"errors must be one of {', '.join(ERRORS)}, not {errors!r}")
    if slice_bytes < 0:
        raise EngineError(f"slice_bytes must be 0 (chosen for this machine) or more, not {slice_bytes}")
    slice_bytes = slice_bytes or max(SLICE_BYTES, load_engine(module).batch_bytes(read_processors()))
    slices = plan_slices([probe(file, "Set text_column") for file in find_files(entries)], slice_bytes)
    names = list(dict.fromkeys(column for entry in entries for column in entry.columns))
    meta = load_engine(module).from_arrow(_frame_schema(names).empty_table())
    graph, keys = _graph_of_read(slices, module, slice_bytes, errors, names)
    return dd.from_graph(graph, meta, (None,) * (len(keys) + 1), keys, "read")  # type: ignore[no-untyped-call]


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


def _graph_of_read(
    slices: Sequence[Slice], engine: str, batch_bytes: int, errors: str, columns: Sequence[str]
) -> tuple[dict[Any, Any], list[Any]]:
    """Return the tasks of a Dask frame, and the key of each partition.

    A slice is read once. Its documents are numbered when the slices before it are counted, so few slices wait in
    memory. The graph is one dictionary: graphs of nested `delayed` take minutes for 3,000 slices.
    """
    token = uuid4().hex  # files may have changed since another call
    read, total, frame = (f"{name}-{token}" for name in ("read-slice", "total-to-slice", "read"))
    graph: dict[Any, Any] = {(total, -1): (_Total,)}
    for index, each in enumerate(slices):
        graph[read, index] = _read_slice, each, engine, batch_bytes
        graph[total, index] = _add, (total, index - 1), (read, index), errors, index == len(slices) - 1
        graph[frame, index] = _numbered, (read, index), (total, index), each.source, engine, columns
    return graph, [(frame, index) for index in range(len(slices))]


class _Read(NamedTuple):
    """The documents of a slice: frames of an engine; the positions; and the records that are no documents."""

    frames: list[Frame]
    rows: int
    tally: rejections.RecordTally


class _Total(NamedTuple):
    """Positions, and records that are no documents, of the slices up to one of them."""

    rows: int = 0
    tally: rejections.RecordTally = rejections.NOTHING


def _read_slice(input_slice: Slice, engine: str, batch_bytes: int) -> _Read:
    rows, tally, frames = 0, None, []
    for batch, _ in read_sampled(load_engine(engine), input_slice, batch_bytes, Recipe().seed):
        rows += batch.rows
        tally = rejections.add(tally, input_slice, batch)
        frames += [batch.frame] if len(batch.frame) else []
        del batch  # an engine plans memory for one batch
    return _Read(frames, rows, tally or rejections.NOTHING)


def _add(before: _Total, read: _Read, errors: str, is_last: bool) -> _Total:
    """Return the total with one more slice. Reports the first slice with records that are no documents, and the total
    of all slices."""
    total = _Total(before.rows + read.rows, rejections.joined(before.tally, read.tally))
    if is_last or (total.tally.is_partial and not before.tally.is_partial):
        rejections.report([total.tally], errors, so_far=not is_last)
    return total


def _numbered(read: _Read, total: _Total, source: str, engine: str, columns: Sequence[str]) -> Frame:
    """Return the documents of a slice as one frame. `total` is that up to this slice."""
    module, schema = load_engine(engine), _frame_schema(columns)
    if not read.frames:
        return module.from_arrow(schema.empty_table())
    from dask.dataframe.dispatch import concat

    frame = concat(read.frames) if len(read.frames) > 1 else read.frames[0]  # type: ignore[no-untyped-call]
    frame = frame.reset_index(drop=True)
    table = with_ids(module.to_arrow(frame[[ROW, ID]]), source, total.rows - read.rows)
    for name in columns:
        if name not in frame.columns:  # a column of another input
            table = table.append_column(name, pa.nulls(len(table), pa.large_string()))
    added = {name: table.column(name).cast(schema.field(name).type) for name in table.column_names}
    return module.with_columns(frame, {name: as_column(module, frame, each) for name, each in added.items()})[
        schema.names
    ]


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
