# SPDX-License-Identifier: Apache-2.0
"""What the whole-corpus stages leave: what they removed, as files of `_work/`, and the saved index of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import orjson

from curation.contract import Engine
from curation.files import commit
from curation.reading.source_files import Slice
from curation.recipe import Recipe, saves_index
from curation.running.outputs import RemovedRows, ids_of
from curation.running.parts import Parts
from curation.stages import CorpusStage
from curation.stages.outcome import Cuts, Decision
from curation.stages.saved_index import FOLDER, index_digests


class Decided(NamedTuple):
    """What a corpus stage decided, as its file has it."""

    removed: list[RemovedRows]
    cuts: Cuts | None
    seconds: float
    details: dict[str, Any]

    @property
    def rows(self) -> np.ndarray:
        """The rows that were removed."""
        rows = [found.row for found in self.removed]
        return rows[0] if len(rows) == 1 else np.concatenate([np.zeros(0, np.int64), *rows])


def save_decision(path: Path, decision: Decision, seconds: float) -> None:
    facts = {
        "seconds": seconds,
        "details": dict(decision.details),
        "drops": [{"reason": found.reason, "index": found.index_folder} for found in decision.drops],
    }
    arrays: dict[str, Any] = {
        f"{name}_{number}": np.asarray(getattr(found, name))
        for number, found in enumerate(decision.drops)
        for name in ("row", "value", "partner")
    }
    if decision.cuts:
        arrays |= {f"cut_{name}": values for name, values in decision.cuts._asdict().items()}
    with commit(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, facts=np.array(orjson.dumps(facts).decode()), **arrays)


def load_decision(path: Path, parts: Parts, stage: int) -> Decided:
    with np.load(path) as stored:
        facts = orjson.loads(str(stored["facts"]))
        removed = [
            RemovedRows(
                parts, stage, found["reason"], stored[f"row_{number}"], stored[f"partner_{number}"],
                stored[f"value_{number}"], found["index"],
            )
            for number, found in enumerate(facts["drops"])
        ]  # fmt: skip
        cuts = Cuts(*(stored[f"cut_{name}"] for name in Cuts._fields)) if "cut_row" in stored else None
        return Decided(removed, cuts, facts["seconds"], facts["details"])


def save_cuts(path: Path, cuts: Cuts) -> None:
    """The spans for the tasks of the next segment: `segments.load_cuts`."""
    with commit(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **cuts._asdict())


def save_index(
    folder: Path,
    recipe: Recipe,
    engine: Engine,
    removed: Sequence[RemovedRows],
    slices: Sequence[Slice],
    bases: np.ndarray,
    workers: int,
) -> dict[str, str]:
    """Writes `index/` of what the last stage that has one kept, unless it is there; gives path -> sha256."""
    number = max(k for k, stage in enumerate(recipe.stages) if saves_index(stage))
    parts = next(found.parts for found in removed if found.stage == number)
    alive = np.ones(len(parts), bool)
    for found in removed:
        if found.parts is parts and found.stage <= number:
            alive[found.row] = False
    stage = cast(CorpusStage, recipe.stages[number])
    if not (folder / FOLDER).exists():
        corpus = parts.corpus(number, np.flatnonzero(alive), workers=workers)
        work = folder / "_work" / FOLDER
        stage.write_index(engine, corpus, folder / FOLDER, work, lambda rows: ids_of(parts, rows, slices, bases))
    return index_digests(folder / FOLDER)


__all__ = ["Decided", "load_decision", "save_cuts", "save_decision", "save_index"]
