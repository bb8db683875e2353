# SPDX-License-Identifier: Apache-2.0
"""What the code of a stage announces and returns, checked and brought into one form.

Checks say what is wrong; `calling` says of which stage.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from curation.arrays import joined, pieces_of
from curation.contract import TEXT, Engine, Frame
from curation.errors import CurationError, RecipeError, StageError, is_shortage
from curation.reading.inputs import RESERVED
from curation.rules import Verdict
from curation.stages.outcome import ADVICE, Corpus, Cuts, Decision, Drops, Outcome

if TYPE_CHECKING:
    from curation.stages.base import CorpusStage, RowStage, Stage

TAKEN = [name for name in RESERVED if name != "bytes"]  # which is a measure too, and its column has that name
UNREADABLE = (TypeError, ValueError, NotImplementedError, OverflowError)  # of Arrow, for values without a common type
LEFT, DROPPED = 1, 2  # of a row, in a decision; 0 is not in the corpus


def called(stage: Stage) -> str:
    """A stage in a message."""
    return f"the stage {stage.name or stage.kind} ({type(stage).__module__}.{type(stage).__qualname__})"


@contextmanager
def calling(stage: Stage) -> Iterator[None]:
    """Makes errors of a stage's own code StageErrors that name it. Errors of this package say enough; of memory and
    disks the runner and the command line say more."""
    try:
        yield
    except StageError as error:
        raise StageError(f"{called(stage)}: {error}") from error
    except CurationError:
        raise
    except Exception as error:
        if is_shortage(error) or (isinstance(error, OSError) and not isinstance(error, FileNotFoundError)):
            raise
        raise StageError(f"{called(stage)}: {type(error).__name__}: {error}") from error


def check_announced(stage: Stage) -> None:
    """RecipeError for columns that a stage cannot read or write."""
    with calling(stage):
        reads, writes = stage.reads(), stage.writes()
    if isinstance(reads, str) or not all(isinstance(name, str) for name in reads):
        raise RecipeError(f"{called(stage)}: reads() must return names of columns as a tuple, not {reads!r}")
    if not isinstance(writes, Mapping):
        raise RecipeError(f"{called(stage)}: writes() must return a dict of names and Arrow types, not {writes!r}")
    for name, kind in writes.items():
        if not isinstance(name, str) or not name or name in TAKEN:
            raise RecipeError(
                f"{called(stage)}: writes() may not name a column {name!r}; any name will do but {', '.join(TAKEN)}"
            )
        try:
            pa.type_for_alias(kind)
        except (AttributeError, ValueError):  # what is no string, and what is none of them
            raise RecipeError(
                f"{called(stage)}: writes() gives the column {name} the type {kind!r}, which Arrow does not know. Use "
                "int64, double, bool or large_string"
            ) from None


# Outcomes


def checked_outcome(stage: RowStage, engine: Engine, frame: Frame, outcome: object) -> Outcome:
    """An outcome that is as the stage announces: Arrow columns of the types in `writes`, NumPy `edited`, plain counts.
    StageError for any other."""
    if not isinstance(outcome, Outcome):
        raise StageError(f"apply() must return an Outcome, not {type(outcome).__name__}")
    writes = stage.writes()
    if {*outcome.columns} != {*writes}:
        raise StageError(f"returned the columns {[*outcome.columns]}, but writes() has {[*writes]}")
    if (outcome.text is None) != (outcome.edited is None):
        raise StageError("must return text and edited together, or none of them")
    verdict = _checked_verdict(stage, outcome.verdict)
    found = {"verdict": None if verdict is None else verdict.reason, "text": outcome.text, "edited": outcome.edited}
    for name, values in (found | dict(outcome.columns)).items():
        if values is not None and len(values) != len(frame):
            raise StageError(f"returned {len(values):,} values in {name} for {len(frame):,} rows")
    return Outcome(
        verdict=verdict,
        text=None if outcome.text is None else _checked_text(engine, frame, outcome.text),
        edited=None if outcome.edited is None else _as_bool(outcome.edited),
        columns={name: _typed(name, outcome.columns[name], kind) for name, kind in writes.items()},
        details=_counts(outcome.details),
    )


def _checked_verdict(stage: RowStage, verdict: Verdict | None) -> Verdict | None:
    if verdict is None:
        return None
    if not isinstance(verdict, Verdict):
        found = type(verdict).__name__
        raise StageError(f"the verdict must be a Verdict, such as Verdict.dropping(mask, 'reason'), not {found}")
    if not stage.removes:
        raise StageError("returned a verdict, but its class has removes = False. Set it to True")
    reason = _integers("reason of the verdict", verdict.reason)
    value = _one_each("value of the verdict", verdict.value, len(reason), "iufb")
    last = len(verdict.reasons) - 1
    if len(reason) and not -1 <= reason.min() <= reason.max() <= last:
        raise StageError(f"the verdict has {last + 1} reasons: a row's must be from -1 (it stays) to {last}")
    return verdict._replace(reason=reason, value=value)


def _checked_text(engine: Engine, frame: Frame, text: Any) -> Any:
    """Texts as the engine's or as an Arrow array of strings, null at most where the frame has nulls."""
    if isinstance(text, list | tuple | np.ndarray):
        text = _array("text", text)
    if isinstance(text, pa.Array | pa.ChunkedArray):
        if not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type) or pa.types.is_null(text.type)):
            raise StageError(f"text must be strings, not {text.type}")
        text = joined(text.cast(pa.large_string()))
        null = np.asarray(text.is_null())
    else:
        null = text.isna().to_numpy()
    if null.any():
        lost = null & np.asarray(joined(engine.to_arrow(frame[[TEXT]]).column(TEXT)).is_valid())
        if lost.any():
            raise StageError(f"text has {lost.sum():,} nulls. Give '' for no text, or remove the row with a verdict")
    return text


def _as_bool(edited: Any) -> np.ndarray:
    values = np.asarray(edited)
    if len(values) and (values.dtype != bool or values.ndim != 1):
        raise StageError(f"edited must be bool, one per row, not {values.dtype}")
    return values.astype(bool, copy=False)


def _array(name: str, values: Any, kind: str | None = None) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UNREADABLE as error:
        raise StageError(f"{name} cannot be {kind or 'strings'}: {error}") from None


def _typed(name: str, values: Any, kind: str) -> Any:
    """The values of a column as an Arrow array of its announced type."""
    try:
        return (values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)).cast(kind)
    except OverflowError:  # of Python's integers from 2**63 on, which Arrow reads where it is told that they are uint64
        return _array(f"column {name}", values, kind)
    except UNREADABLE as error:
        raise StageError(f"column {name} cannot be {kind}: {error}") from None


def _counts(details: Mapping[str, Any]) -> dict[str, int]:
    try:
        return {name: operator.index(number) for name, number in details.items()}
    except TypeError:
        raise StageError(f"details must be integers, which are added up, not {dict(details)}") from None


# Keys


def checked_keys(found: object, rows: int, seen: list[dict[str, np.dtype]]) -> dict[str, np.ndarray]:
    """Keys as one-dimensional int64, or uint64 where the stage gives unsigned ones or bool. `seen` gets the types of
    the first rows; StageError where later ones have others."""
    if not isinstance(found, Mapping):
        raise StageError(f"keys() must return a dict of arrays, not {type(found).__name__}")
    keys = {name: _checked_key(name, values, rows) for name, values in found.items()}
    types = {name: values.dtype for name, values in keys.items()}
    if rows and types != (seen or [types])[0]:
        raise StageError(f"gives the keys {_shown(seen[0])} for some rows, {_shown(types)} for others. {ADVICE}")
    if rows and not seen:
        seen.append(types)
    return keys


def _checked_key(name: object, values: Any, rows: int) -> np.ndarray:
    key = np.asarray(values)
    if key.ndim != 1 or len(key) != rows:
        shape = f"{len(key):,} keys" if key.ndim == 1 else f"an array of {key.ndim} dimensions"
        raise StageError(f"returned {shape} {name} for {rows:,} rows")
    if rows and key.dtype.kind not in "iub":
        raise StageError(f"the keys {name} must be integers, not {key.dtype}. {ADVICE}")
    return key.astype(np.int64 if key.dtype.kind == "i" else np.uint64, copy=False)


def _shown(types: Mapping[str, np.dtype]) -> str:
    return ", ".join(f"{name} as {kind}" for name, kind in types.items()) or "none"


# Decisions


def checked_decision(stage: CorpusStage, decision: object, corpus: Corpus) -> Decision:
    """A decision about rows of the corpus, each of them once, with arrays of one length and details that are JSON.
    StageError for any other. Takes a byte per row of the corpus's storage meanwhile."""
    if not isinstance(decision, Decision):
        raise StageError(f"decide() must return a Decision, not {type(decision).__name__}")
    if isinstance(decision.drops, Drops) or not isinstance(decision.drops, Sequence):
        raise StageError("drops must be a tuple of Drops, as Decision((Drops(...),))")
    state = np.zeros(int(corpus.storage.starts[-1]), np.uint8)
    for piece in pieces_of(len(corpus.rows)):
        state[corpus.rows[piece]] = LEFT
    drops = tuple(_checked_drops(found, state) for found in decision.drops)
    cuts = None if decision.cuts is None else _checked_cuts(decision.cuts, state)
    if any(len(found.row) for found in drops):
        if not stage.removes:
            raise StageError("drops rows, but its class has removes = False. Set it to True")
        if stage.cuts_text:
            raise StageError("drops rows, but its class has cuts_text = True. Drop them in a stage of its own")
    if cuts is not None and not stage.cuts_text:
        if len(cuts.row):
            raise StageError("cuts spans, but its class has cuts_text = False. Set it to True")
        cuts = None
    return Decision(drops, cuts, _as_json(decision.details))


def _checked_drops(found: object, state: np.ndarray) -> Drops:
    if not isinstance(found, Drops) or not isinstance(found.reason, str):
        raise StageError(f"drops must be Drops with a reason that is a string, not {found!r}")
    row = _integers("the rows of drops", found.row)
    value = _one_each("value", found.value, len(row), "iufb").astype(np.float64, copy=False)
    partner = _one_each("partner", found.partner, len(row), "iu")
    _check_ascending(row)
    for piece in pieces_of(len(row)):
        known = _state_of("drops", row[piece], state)
        if (known == DROPPED).any():
            raise StageError(f"drops the row {row[piece][known == DROPPED][0]} twice")
        state[row[piece]] = DROPPED
    for piece in pieces_of(len(row)):
        _check_partners(partner[piece], found.index_folder, state)
    return Drops(row, found.reason, np.broadcast_to(value, row.shape), partner, found.index_folder)


def _integers(what: str, values: Any) -> np.ndarray:
    found = np.asarray(values)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
        raise StageError(f"{what} must be integers in one dimension, not {found.dtype} in {found.ndim}")
    return found if len(found) else found.astype(np.int64)


def _one_each(what: str, values: Any, count: int, kinds: str) -> np.ndarray:
    """The numbers, or the one number for all, without a copy."""
    found = np.asarray(values)
    if found.size and found.dtype.kind not in kinds:
        raise StageError(f"{what} must be {'integers' if kinds == 'iu' else 'numbers'}, not {found.dtype}")
    if found.ndim > 1 or (found.ndim == 1 and len(found) != count):
        raise StageError(f"{what} has the shape {found.shape}, but there are {count:,} rows")
    return np.broadcast_to(found if found.size else found.astype(np.int64), count)


def _check_ascending(row: np.ndarray) -> None:
    for piece in pieces_of(len(row)):
        part = row[max(piece.start - 1, 0) : piece.stop]
        wrong = np.flatnonzero(part[1:] <= part[:-1])
        if len(wrong):
            first, second = part[wrong[0] : wrong[0] + 2].tolist()
            raise StageError(f"the rows of drops must be ascending and different: {second} comes after {first}")


def _state_of(what: str, row: np.ndarray, state: np.ndarray) -> np.ndarray:
    """The state of rows. StageError for one that is not in the corpus."""
    outside = row[(row < 0) | (row >= len(state))]
    if not len(outside):
        found = state[row]
        outside = row[found == 0]
    if len(outside):
        raise StageError(f"{what} the row {outside[0]}, which is not in corpus.rows")
    return found


def _check_partners(partner: np.ndarray, index_folder: str, state: np.ndarray) -> None:
    if not index_folder:
        _state_of("names as partner", partner[partner != -1], state)
    elif (partner < 0).any():
        raise StageError(f"names the partner {partner.min()} in the saved index {index_folder}; they count from 0")


def _checked_cuts(cuts: object, state: np.ndarray) -> Cuts:
    if not isinstance(cuts, Cuts):
        raise StageError(f"cuts must be Cuts, not {type(cuts).__name__}")
    found = Cuts(*(_integers(f"{name} of cuts", values).astype(np.int64, copy=False)
                   for name, values in cuts._asdict().items()))  # fmt: skip
    if len({len(values) for values in found}) > 1:
        raise StageError(f"row, start and stop of cuts have the lengths {', '.join(str(len(each)) for each in found)}")
    for piece in pieces_of(len(found.row)):
        row, start, stop = (values[max(piece.start - 1, 0) : piece.stop] for values in found)
        _state_of("cuts", row, state)
        ordered = (row[1:] > row[:-1]) | ((row[1:] == row[:-1]) & (start[1:] >= stop[:-1]))
        if not ordered.all() or (start < 0).any() or (start >= stop).any():
            raise StageError("spans to cut must be sorted by row and start, not empty, and not overlap")
    return found


def _as_json(details: Any) -> dict[str, Any]:
    try:
        found = orjson.loads(orjson.dumps(dict(details), option=orjson.OPT_SERIALIZE_NUMPY))
    except (TypeError, ValueError) as error:
        raise StageError(f"details cannot be JSON: {error}") from None
    return dict(found)


__all__ = [
    "called",
    "calling",
    "check_announced",
    "checked_decision",
    "checked_keys",
    "checked_outcome",
]
