# SPDX-License-Identifier: Apache-2.0
"""The forms in which Python code gives recipes and inputs: a structure, a name, a path, a dictionary, or a frame.

A run writes a frame to `_frames/frame.SHA256.parquet` in its folder, before its plan. Recipe and plan name this file,
so a run with another frame has another identity, and a resumed run reads the same bytes. The file costs disk space, but
no memory, and later calls such as `RunResult.edited` can read it again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from curation.base.contract import TEXT
from curation.base.engine import FRAME_LIBRARIES, engine_of
from curation.base.errors import InputError, RecipeError
from curation.base.parquet import TableWriter, file_options
from curation.base.system.files import commit, temporary_folder
from curation.recipes.recipe import DEFAULT_RECIPE, Recipe, check_readable, convert_recipe, load_recipe, with_inputs
from curation.record.folder import FRAMES, REPORT, check_entries, locked, plan_path, sweep

NAME = re.compile(r"frame\.[0-9a-f]{64}\.parquet")
GROUP_ROWS = 10_000
MODIFIED_SECONDS = 315_532_800  # 1980, for every file: the identity of a run includes the time
PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def recipe_of(recipe: Any, input: Any = None) -> tuple[Recipe, list[Any]]:
    """Return a recipe, and the frames of its inputs. In the recipe, a mark replaces each frame.

    recipe   a Recipe, its name or path, its dictionary, or a frame as the input of the default recipe
    input    replaces `input` of the recipe, as in `load_recipe`; also a frame, or {"path": frame, **settings}

    Raises RecipeError for a wrong recipe or input, and for a recipe without input.
    """
    frames: list[Any] = []
    if is_frame(recipe):
        if input is not None:
            raise RecipeError(
                f"expected a recipe before input, got a frame. Give a recipe first, such as {DEFAULT_RECIPE!r}"
            )
        recipe, input = DEFAULT_RECIPE, recipe
    given = None if input is None else _marked(input, frames)
    if isinstance(recipe, Mapping):
        inputs = _marked(recipe.get("input", []), frames)
        recipe = convert_recipe({**recipe, "input": [inputs] if frames and isinstance(inputs, Mapping) else inputs})
    elif isinstance(recipe, str | os.PathLike):
        recipe = load_recipe(recipe)
    if given is not None and isinstance(recipe, Recipe):
        recipe = with_inputs(recipe, given)
    check_readable(recipe)
    return recipe, frames


def is_frame(value: Any) -> bool:
    """Return whether a value is a DataFrame, lazy or not, a Series, or a table with the Arrow PyCapsule interface."""
    kind = type(value)
    is_table = hasattr(kind, "columns") and (_is_of_engine(value) or hasattr(kind, "__arrow_c_stream__"))
    return is_table or hasattr(kind, "to_frame") or hasattr(kind, "collect_schema")  # the last: polars.LazyFrame


def _is_of_engine(value: Any) -> bool:
    return type(getattr(value, "_meta", value)).__module__.partition(".")[0] in FRAME_LIBRARIES


def _marked(given: Any, frames: list[Any]) -> Any:
    """Return inputs with a mark in place of each frame, which is appended to `frames`."""
    if isinstance(given, list | tuple):
        return [_marked(entry, frames) for entry in given]
    if isinstance(given, Mapping) and is_frame(given.get("path")):
        return {**given, **_marked(given["path"], frames)}
    if not is_frame(given):
        return given
    frames.append(given)
    return {"path": _mark(len(frames) - 1)}


def _mark(number: int) -> str:
    return f"<frame {number}>"


@contextmanager
def frames_as_files(recipe: Recipe, frames: Sequence[Any], folder: Path, *, shared: bool = False) -> Iterator[Recipe]:
    """Yield the recipe with a file in the folder of a run in place of each mark of `recipe_of`.

    A run that is refused leaves no file of its frames. A run that ends deletes the files of an earlier run's frames.

    shared   whether other processes may take part in the run
    """
    before, existed = {*_files_in(folder)}, os.path.exists(folder)
    try:
        paths = {}
        if frames:
            with locked(folder, shared=shared):
                paths = {_mark(number): str(_write(frame, folder)) for number, frame in enumerate(frames)}
        replace = msgspec.structs.replace
        entries = [replace(entry, path=paths.get(entry.path, entry.path)) for entry in recipe.input]
        yield replace(recipe, input=entries) if paths else recipe
    except BaseException:
        _delete_unplanned({*_files_in(folder)} - before, folder)
        for made in [folder / FRAMES, *([] if existed else [folder])]:
            with suppress(OSError):  # a run has written into it
                made.rmdir()
        raise
    if not shared:
        _delete_unplanned(before, folder)


def _files_in(folder: Path) -> list[Path]:
    try:
        return [folder / FRAMES / name for name in os.listdir(folder / FRAMES) if NAME.fullmatch(name)]
    except OSError:  # a later check reports the folder
        return []


def _delete_unplanned(paths: Collection[Path], folder: Path) -> None:
    """Delete those of `paths` that neither the plan nor the report in a folder names."""
    places = (plan_path(folder), folder / REPORT) if paths else ()
    known = [place.read_bytes() for place in places if place.is_file()]
    for path in paths:
        if not any(path.name.encode() in content for content in known):
            path.unlink(missing_ok=True)


def _write(frame: Any, folder: Path) -> Path:
    """Write a frame to the folder of a run, unless the file exists already. Return the path of the file."""
    check_entries(folder, (FRAMES,))  # no link may lead elsewhere
    sweep(folder, (FRAMES,))
    with temporary_folder(folder / FRAMES / "frame") as work:
        written = work / "frame.parquet"
        _write_tables(_tables_of(frame), written)
        digest = _sha256(written)
        path = folder / FRAMES / f"frame.{digest}.parquet"
        if not path.exists() or _sha256(path) != digest:
            with commit(path) as temporary:
                os.replace(written, temporary)
                os.utime(temporary, (MODIFIED_SECONDS, MODIFIED_SECONDS))
    return path


def _write_tables(tables: Iterator[pa.Table], path: Path) -> None:
    """Write tables in groups of GROUP_ROWS rows, so that the bytes do not depend on the chunks of columns."""
    first = next(tables)
    with TableWriter(path, first.schema, file_options(first.schema)) as writer:
        for table in (first, *tables):
            if table.schema != first.schema:
                raise InputError(
                    f"the partitions of the frame have different types: {_types(first)}, then {_types(table)}. "
                    "Convert them: frame.astype({COLUMN: TYPE})"
                )
            for start in range(0, len(table), GROUP_ROWS):
                writer.write(table.slice(start, GROUP_ROWS).combine_chunks())


def _types(table: pa.Table) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.schema)


def _tables_of(frame: Any) -> Iterator[pa.Table]:
    """Yield the partitions of a frame as tables, with column types that Parquet files have."""
    if not hasattr(frame, "map_partitions"):
        yield _plain(frame)
        return
    for number in range(frame.npartitions):  # one in memory at a time
        yield _plain(frame.partitions[number].compute())


def _plain(frame: Any) -> pa.Table:
    if hasattr(frame, "to_frame"):  # a Series
        frame = frame.to_frame(TEXT)
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        raise InputError("expected a DataFrame, got a LazyFrame. Call collect() first")
    try:
        table = engine_of(frame).to_arrow(frame) if _is_of_engine(frame) else pa.table(frame)
        columns = [_as_plain(column) for column in table.columns]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"the frame has values that a Parquet file cannot hold: {error}. Convert their column, or drop it"
        ) from None
    names = table.column_names
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"the frame has {names.count(twice[0])} columns {twice[0]!r}. Drop or rename the others")
    return pa.table(columns, names)


def _as_plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with plain strings in place of categories and string views."""
    if pa.types.is_dictionary(column.type):
        chunks = [
            chunk.dictionary.cast(PLAIN.get(chunk.dictionary.type, chunk.dictionary.type)) for chunk in column.chunks
        ]
        column = pa.chunked_array(
            [values.take(chunk.indices) for values, chunk in zip(chunks, column.chunks, strict=True)],
            PLAIN.get(column.type.value_type, column.type.value_type),
        )
    return column.cast(PLAIN.get(column.type, column.type))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
