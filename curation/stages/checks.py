# SPDX-License-Identifier: Apache-2.0
"""Checks of the values that a stage announces and returns. The checks also convert these values to fixed types.

The checks name the fault; `stage_errors` adds the name of the stage.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import isfunction, signature
from traceback import walk_tb
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from curation.base.arrays import as_one_array, batches_of
from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import CurationError, RecipeError, StageError, is_shortage
from curation.models.vectors import arrow_type
from curation.reading.source_files import RESERVED
from curation.rules.decide import Verdict
from curation.stages.base import CorpusStage, RowStage, Stage
from curation.stages.corpus.cutting import cuts_folder, integers, store_cuts
from curation.stages.corpus.written_columns import columns_folder
from curation.stages.outcome import ADVICE, Corpus, Decision, Drops, Outcome
from curation.stages.text_sizes import TOO_LARGE, TextsGrowError

TAKEN = [name for name in RESERVED if name != "bytes"]  # "bytes" is also the name of a measure and its column
UNREADABLE = (TypeError, ValueError, NotImplementedError, OverflowError)  # of Arrow, for values without a common type
PRESENT, DROPPED = 1, 2  # states of rows during a check of a decision; 0: not in the corpus


def stage_label(stage: Stage) -> str:
    """Return the name of a stage and its class, for messages."""
    return f"the stage {stage.name or stage.kind} ({type(stage).__module__}.{type(stage).__qualname__})"


@contextmanager
def stage_errors(stage: Stage) -> Iterator[None]:
    """Turn errors in the code of a stage into StageErrors that name the stage. Other errors of this package pass
    unchanged, as do errors of memory and disks, which the runner and the command line explain."""
    try:
        yield
    except StageError as error:
        raise StageError(f"{stage_label(stage)}: {error}") from error.__cause__
    except (CurationError, TextsGrowError):
        raise
    except Exception as error:
        if is_shortage(error) or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError)):
            raise
        raise StageError(f"{stage_label(stage)}: {type(error).__name__}: {error}{_place_of(stage, error)}") from error


def _place_of(stage: Stage, error: Exception) -> str:
    """Return where the error happened: the last line of the stage's module or cell in the traceback, and the error's
    notes; "" if there is no such line, or for a stage of this package."""
    module = type(stage).__module__
    frames = [] if module.startswith("curation.") else [*walk_tb(error.__traceback__)]
    own = [(frame.f_code, line) for frame, line in frames if frame.f_globals.get("__name__") == module]
    if not own:
        return ""
    code, line = own[-1]
    file = os.path.basename(code.co_filename) if os.path.isfile(code.co_filename) else "its cell"
    return f" ({', '.join([f'line {line} of {file}', *getattr(error, '__notes__', [])])})"


def check_announced(stage: Stage) -> None:
    """Check the arguments of methods (`check_arguments`), and `reads()` and `writes()` (`check_columns`)."""
    check_arguments(stage)
    check_columns(stage)


def check_columns(stage: Stage) -> None:
    """Raise RecipeError if `reads()` and `writes()` are not names of columns and Arrow types."""
    with stage_errors(stage):
        reads, writes = stage.reads(), stage.writes()
    if isinstance(reads, str) or not all(isinstance(name, str) for name in reads):
        raise RecipeError(f"{stage_label(stage)}: reads() must return names of columns as a tuple, not {reads!r}")
    if not isinstance(writes, Mapping):
        raise RecipeError(f"{stage_label(stage)}: writes() must return a dict of names and Arrow types, not {writes!r}")
    for name, kind in writes.items():
        if not isinstance(name, str) or not name or name in TAKEN:
            raise RecipeError(
                f"{stage_label(stage)}: writes() may not name a column {name!r}; any name is allowed except "
                f"{', '.join(TAKEN)}"
            )
        try:
            arrow_type(kind)
        except (AttributeError, ValueError):  # not a string; not a type
            raise RecipeError(
                f"{stage_label(stage)}: writes() gives the column {name} the type {kind!r}, which Arrow does not know. "
                "Use int64, double, bool, large_string, or int8[n] for vectors of n dimensions"
            ) from None


def check_arguments(stage: Stage) -> None:
    """Raise StageError for a method that cannot be called with the arguments of the base class. The stages of a class
    have the same methods."""
    with stage_errors(stage):
        _check_arguments(stage)


def _check_arguments(stage: Stage) -> None:
    base = CorpusStage if isinstance(stage, CorpusStage) else RowStage
    for name in [name for name in dir(base) if not name.startswith("_") and isfunction(getattr(base, name))]:
        if getattr(type(stage), name) is getattr(base, name):
            continue
        _, *expected = signature(getattr(base, name)).parameters
        try:
            found = signature(getattr(stage, name))
        except (TypeError, ValueError):  # not a function of Python
            continue
        try:
            found.bind(*expected)
        except TypeError:
            raise StageError(
                f"{name}() is called with ({', '.join(expected)}), but the class has ({', '.join(found.parameters)}). "
                "Give it these arguments"
            ) from None


# Outcomes


def checked_outcome(stage: RowStage, engine: Engine, frame: Frame, outcome: object) -> Outcome:
    """Return the outcome with Arrow columns of the types in `writes`, a NumPy `edited` and int counts. Raises
    StageError if the outcome differs from what the stage announces."""
    if not isinstance(outcome, Outcome):
        raise StageError(f"apply() must return an Outcome, not {type(outcome).__name__}")
    writes = stage.writes()
    if {*outcome.columns} != {*writes}:
        raise StageError(f"apply() returned the columns {[*outcome.columns]}, but writes() has {[*writes]}")
    if (outcome.text is None) != (outcome.edited is None):
        raise StageError("apply() must return text and edited together, or neither")
    verdict = _checked_verdict(stage, outcome.verdict)
    rows = {"verdict": None if verdict is None else verdict.reason, "text": outcome.text, "edited": outcome.edited}
    groups = {f"groups[{number}]": values for number, values in enumerate(outcome.groups)}
    for name, values in (rows | groups | dict(outcome.columns) | dict(outcome.measures)).items():
        if values is not None and len(values) != len(frame):
            raise StageError(f"apply() returned {len(values):,} values in {name} for {len(frame):,} rows")
    return Outcome(
        verdict=verdict,
        text=None if outcome.text is None else _checked_text(engine, frame, outcome.text),
        edited=None if outcome.edited is None else _as_bool(outcome.edited),
        columns={name: _typed(name, outcome.columns[name], kind) for name, kind in writes.items()},
        details=_counts(outcome.details),
        measures=outcome.measures,
        unit_measures=outcome.unit_measures,
        groups=outcome.groups,
    )


def _checked_verdict(stage: RowStage, verdict: Verdict | None) -> Verdict | None:
    if verdict is None:
        return None
    if not isinstance(verdict, Verdict):
        kind = type(verdict).__name__
        raise StageError(f"the verdict must be a Verdict, such as Verdict.dropping(mask, 'reason'), not {kind}")
    if not stage.removes and verdict.reasons != (TOO_LARGE,):
        raise StageError("apply() returned a verdict, but the class has removes = False. Set it to True")
    reason = integers("reason of the verdict", verdict.reason)
    value = _one_each("value of the verdict", verdict.value, len(reason), "iufb")
    last = len(verdict.reasons) - 1
    if len(reason) and not -1 <= reason.min() <= reason.max() <= last:
        raise StageError(f"the verdict has {last + 1} reasons: the reason of a row must be -1 (keep) to {last}")
    if verdict.bounds and np.shape(verdict.bounds) != (last + 1, 2):
        raise StageError(f"the verdict has {last + 1} reasons: bounds must be () or a (lowest, highest) for each")
    if {*verdict.notes} != {*stage.outputs().notes}:
        raise StageError(f"the verdict has the notes {[*verdict.notes]}, but outputs() has {[*stage.outputs().notes]}")
    notes = {name: _typed(name, verdict.notes[name], kind) for name, kind in stage.outputs().notes.items()}
    removed = int(np.count_nonzero(reason >= 0))
    for name, values in notes.items():
        if len(values) != removed:
            raise StageError(f"the verdict has {len(values):,} notes {name} for {removed:,} removed rows")
    return verdict._replace(reason=reason, value=value, notes=notes)


def _checked_text(engine: Engine, frame: Frame, text: Any) -> Any:
    """Return the texts as a text of the engine, or as an Arrow array of large_string. Raises StageError if a null
    replaces a text."""
    if isinstance(text, list | tuple | np.ndarray):
        text = _array("text", text)
    if isinstance(text, pa.Array | pa.ChunkedArray):
        if not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type) or pa.types.is_null(text.type)):
            raise StageError(f"text must be strings, not {text.type}")
        text = as_one_array(text.cast(pa.large_string()))
        null = np.asarray(text.is_null())
    else:
        null = text.isna().to_numpy()
    if null.any():
        lost = null & np.asarray(as_one_array(engine.to_arrow(frame[[TEXT]]).column(TEXT)).is_valid())
        if lost.any():
            raise StageError(f"text has {lost.sum():,} new nulls. Use '' for no text, or remove the row by a verdict")
    return text


def _as_bool(edited: Any) -> np.ndarray:
    values = np.asarray(edited)
    if len(values) and (values.dtype != bool or values.ndim != 1):
        raise StageError(f"edited must be bool, one per row, not {values.dtype}")
    return values.astype(bool, copy=False)


def _array(name: str, values: Any, kind: str | None = None) -> pa.Array:
    try:
        return pa.array(values, None if kind is None else arrow_type(kind))
    except UNREADABLE as error:
        raise StageError(f"{name} cannot be {kind or 'strings'}: {error}") from None


def _typed(name: str, values: Any, kind: str) -> Any:
    """Return the values of a column as an Arrow array of the announced type."""
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
        return array.cast(arrow_type(kind))
    except OverflowError:  # Python integers from 2**63 on: Arrow reads them only with the type uint64
        return _array(f"column {name}", values, kind)
    except UNREADABLE as error:
        raise StageError(f"column {name} cannot be {kind}: {error}") from None


def _counts(details: Mapping[str, Any]) -> dict[str, int]:
    try:
        return {name: operator.index(number) for name, number in details.items()}
    except TypeError:
        raise StageError(f"details must be integers, which are summed, not {dict(details)}") from None


# Keys


def checked_keys(returned: object, rows: int, first_types: list[dict[str, np.dtype]]) -> dict[str, np.ndarray]:
    """Return keys as one-dimensional int64, or as uint64 if they are unsigned or bool. If `first_types` is empty, the
    types of these keys are added to it. Raises StageError if the types differ from `first_types`."""
    if not isinstance(returned, Mapping):
        raise StageError(f"keys() must return a dict of arrays, not {type(returned).__name__}")
    keys = {name: _checked_key(name, values, rows) for name, values in returned.items()}
    types = {name: values.dtype for name, values in keys.items()}
    if rows and types != (first_types or [types])[0]:
        raise StageError(
            f"keys() returned {_shown(first_types[0])} for some rows, {_shown(types)} for others. {ADVICE}"
        )
    if rows and not first_types:
        first_types.append(types)
    return keys


def _checked_key(name: object, values: Any, rows: int) -> np.ndarray:
    key = np.asarray(values)
    if key.ndim != 1 or len(key) != rows:
        shape = f"{len(key):,} keys" if key.ndim == 1 else f"an array of {key.ndim} dimensions"
        raise StageError(f"keys() returned {shape} {name} for {rows:,} rows")
    if rows and key.dtype.kind not in "iub":
        raise StageError(f"the keys {name} must be integers, not {key.dtype}. {ADVICE}")
    return key.astype(np.int64 if key.dtype.kind == "i" else np.uint64, copy=False)


def _shown(types: Mapping[str, np.dtype]) -> str:
    return ", ".join(f"{name} as {kind}" for name, kind in types.items()) or "none"


# Decisions


def checked_decision(stage: CorpusStage, decision: object, corpus: Corpus) -> Decision:
    """Return the decision with NumPy arrays of one length and JSON details, and store its cuts in files (`load_cuts`).
    Raises StageError for rows outside the corpus or dropped twice, or for a decision that the class variables
    exclude."""
    if not isinstance(decision, Decision):
        raise StageError(f"decide() must return a Decision, not {type(decision).__name__}")
    if isinstance(decision.drops, Drops) or not isinstance(decision.drops, Sequence):
        raise StageError("drops must be a tuple of Drops, such as Decision((Drops(...),))")
    state = corpus.present().view(np.uint8)  # rows of the corpus are 1, PRESENT
    drops = tuple(_checked_drops(entry, state) for entry in decision.drops)
    if any(len(entry.row) for entry in drops) and not stage.removes:
        raise StageError("decide() drops rows, but the class has removes = False. Set it to True")
    if decision.cuts is not None:
        store_cuts(corpus, decision.cuts)
    if not stage.cuts_text and cuts_folder(corpus.scratch).exists():
        raise StageError("the stage cuts spans, but the class has cuts_text = False. Set it to True")
    if stage.writes() and not columns_folder(corpus.scratch).exists():
        raise StageError("writes() names columns, but the stage has stored none. Write them in a RowStage")
    if decision.copies is not None:
        _check_copies(decision.copies, drops, len(corpus.rows))
    return Decision(drops, None, _as_json(decision.details), decision.copies)


def _check_copies(copies: object, drops: Sequence[Drops], rows: int) -> None:
    if not isinstance(copies, np.ndarray) or copies.dtype != np.uint16 or copies.shape != (rows,):
        raise StageError(f"copies must be uint16, one per row of the corpus ({rows:,}), not {type(copies).__name__}")
    if int(np.count_nonzero(copies == 0)) != sum(len(entry.row) for entry in drops):
        raise StageError("copies must be 0 for the rows in drops, and for no others")


def _checked_drops(drops: object, state: np.ndarray) -> Drops:
    if not isinstance(drops, Drops) or not isinstance(drops.reason, str):
        raise StageError(f"drops must be Drops with a string as reason, not {drops!r}")
    row = integers("the rows of drops", drops.row)
    value = _one_each("value", drops.value, len(row), "iufb").astype(np.float64, copy=False)
    partner = _one_each("partner", drops.partner, len(row), "iu")
    _check_ascending(row)
    for batch in batches_of(len(row)):
        states = _state_of("decide() drops", row[batch], state)
        if (states == DROPPED).any():
            raise StageError(f"decide() drops the row {row[batch][states == DROPPED][0]} twice")
        state[row[batch]] = DROPPED
    for batch in batches_of(len(row)):
        _check_partners(partner[batch], drops.index_folder, state)
    return Drops(row, drops.reason, np.broadcast_to(value, row.shape), partner, drops.index_folder)


def _one_each(name: str, values: Any, count: int, kinds: str) -> np.ndarray:
    """Return an array with one number per row, without a copy. `values` is such an array, or one number for all
    rows."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in kinds:
        raise StageError(f"{name} must be {'integers' if kinds == 'iu' else 'numbers'}, not {array.dtype}")
    if array.ndim > 1 or (array.ndim == 1 and len(array) != count):
        raise StageError(f"{name} has the shape {array.shape}, but there are {count:,} rows")
    return np.broadcast_to(array if array.size else array.astype(np.int64), count)


def _check_ascending(row: np.ndarray) -> None:
    for batch in batches_of(len(row)):
        part = row[max(batch.start - 1, 0) : batch.stop]
        wrong = np.flatnonzero(part[1:] <= part[:-1])
        if len(wrong):
            first, second = part[wrong[0] : wrong[0] + 2].tolist()
            raise StageError(f"the rows of drops must be ascending and unique: {second} comes after {first}")


def _state_of(action: str, row: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Return the state of each row, such as DROPPED. Raises StageError for a row that is not in the corpus."""
    outside = row[(row < 0) | (row >= len(state))]
    if not len(outside):
        states = state[row]
        outside = row[states == 0]
    if len(outside):
        raise StageError(f"{action} the row {outside[0]}, which is not in corpus.rows")
    return states


def _check_partners(partner: np.ndarray, index_folder: str, state: np.ndarray) -> None:
    if not index_folder:
        _state_of("drops have as partner", partner[partner != -1], state)
    elif (partner < 0).any():
        raise StageError(f"drops have the partner {partner.min()} in the saved index {index_folder}; they start at 0")


def _as_json(details: Any) -> dict[str, Any]:
    try:
        decoded = orjson.loads(orjson.dumps(dict(details), option=orjson.OPT_SERIALIZE_NUMPY))
    except (TypeError, ValueError) as error:
        raise StageError(f"details cannot be JSON: {error}") from None
    return dict(decoded)
