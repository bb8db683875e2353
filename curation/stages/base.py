# SPDX-License-Identifier: Apache-2.0
"""What a stage is. The runner and the library ask nothing of a stage but what these classes have.

A stage is a frozen structure: the settings that a recipe gives it, and methods that say what it needs and does. It is
stored and sent to workers as JSON, so that its fields must be plain values. `docs/extending.md` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Engine, Frame
from curation.errors import StageError, counted
from curation.files import commit, make_folder, sync_files
from curation.stages.outcome import Corpus, Decision, Outcome, StageCount
from curation.stages.returned import (
    called,
    calling,
    check_announced,
    checked_decision,
    checked_keys,
    checked_outcome,
)

SHOWN_COUNTS = 10  # of a stage's details in its line under the funnel


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One step of a recipe. A class of its own names its `kind` as the tag: `tag="filter"`, or
    `tag="mypackage.stages:BlockUrls"` outside of this package.

    name   what reports call the stage; by default its kind
    """

    removes: ClassVar[bool] = True  # documents
    compares: ClassVar[bool] = False  # documents with each other

    name: str = ""

    @property
    def kind(self) -> str:
        """What a recipe calls the stage."""
        return str(self.__struct_config__.tag)

    def reads(self) -> tuple[str, ...]:
        """The columns that must be there besides `id` and `text`: each in `columns` of every input, or written by an
        earlier stage. A run that lacks one ends before it reads anything."""
        return ()

    def writes(self) -> dict[str, str]:
        """The columns that the stage adds to `documents/`: name -> Arrow type (`int64`, `double`, `bool`,
        `large_string`). A later stage may write one again."""
        return {}

    def files(self) -> dict[str, str]:
        """The files that the stage reads: path -> SHA-256 (`curation.files.known_sha256`). They are part of what
        makes a run this run: a rerun with another content is refused. InputError for one that is not there."""
        return {}

    def check(self, inputs: Sequence[str]) -> None:
        """Raises what is wrong with the stage for inputs of these names, before anything is read: RecipeError,
        InputError."""

    def prepare(self, folder: Path) -> Stage:
        """The stage that tasks use. It is called once per run, or again after a kill, before the tasks begin; what it
        writes to `folder`, under names of its own, stays there until the run is complete."""
        return self

    def explain(self) -> list[str]:
        """Lines for `curate plan`: what the settings come to. By default the settings themselves."""
        settings = {key: value for key, value in msgspec.to_builtins(self).items() if key not in ("kind", "name")}
        return [", ".join(f"{key} {_shown(value)}" for key, value in settings.items()) or "no settings"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Lines under the funnel of a finished run, without the stage's name. By default how many documents it removed
        and edited."""
        edited = [f"{count.edited:,} edited"] if count.edited else []
        removed = [f"{count.removed:,} removed"] if self.removes else []
        return [f"{', '.join(removed + edited) or 'no change'} of {counted(count.documents_in, 'document')}"]


class RowStage(Stage, frozen=True, kw_only=True):
    """A stage that looks at one frame at a time."""

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        """What the stage says about the rows of a frame, which has `row`, `id`, `text`, the columns that its input
        carries and those of earlier stages. The frame is not changed. Results may not depend on how rows are divided
        into frames."""
        raise NotImplementedError(f"{type(self).__name__} has no apply()")


class Phase(NamedTuple):
    """A step of a corpus stage between its keys and its decision. The result does not depend on the order of its tasks,
    nor on what a killed one has left."""

    name: str  # of its folder, `corpus.scratch / name`
    tasks: Callable[[Corpus], int]  # how many
    run: Callable[[Engine, Corpus, int], None]  # one of them, which leaves files in the folder


class CorpusStage(Stage, frozen=True, kw_only=True):
    """A stage that compares documents: keys of each slice, then phases, then a decision. A phase's finished tasks are
    not run again after a kill."""

    compares: ClassVar[bool] = True
    cuts_text: ClassVar[bool] = False  # decides about spans, not rows
    indexes: ClassVar[bool] = False  # has `write_index`

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        """Integers or bool, one per row, that the corpus has as columns of int64 or uint64."""
        raise NotImplementedError(f"{type(self).__name__} has no keys()")

    def phases(self) -> Sequence[Phase]:
        """What happens between the keys and `decide`, in order."""
        return ()

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        """Rows to remove, or spans to cut."""
        raise NotImplementedError(f"{type(self).__name__} has no decide()")

    def write_index(
        self, engine: Engine, corpus: Corpus, folder: Path, work: Path, ids_of: Callable[[np.ndarray], pa.Array]
    ) -> None:
        """Writes to `folder`, by way of `work`, what a later run needs to compare its documents with those of
        `corpus`; `ids_of` gives the ids of rows."""
        raise NotImplementedError(f"{type(self).__name__} has no write_index()")


# What the runner and the library do with stages


def applied(engine: Engine, frame: Frame, stage: RowStage) -> tuple[Frame, Outcome]:
    """The frame after a row stage, and what the stage said. StageError for an outcome that is not what the stage
    announces."""
    with calling(stage):
        outcome = checked_outcome(stage, engine, frame, stage.apply(engine, frame))
    if outcome.text is not None:
        frame = engine.with_columns(frame, {TEXT: as_column(engine, frame, outcome.text)})
    columns = outcome.columns
    if outcome.verdict is not None:
        kept = outcome.verdict.kept
        frame = engine.filter_rows(frame, kept)
        columns = {name: values.filter(pa.array(kept)) for name, values in columns.items()}
    if columns:
        frame = engine.with_columns(frame, {name: as_column(engine, frame, found) for name, found in columns.items()})
    return frame, outcome


def keyed(
    stage: CorpusStage, engine: Engine, frame: Frame, seen: list[dict[str, np.dtype]] | None = None
) -> dict[str, np.ndarray]:
    """The keys of a frame's rows, as int64 or uint64. StageError for keys that are no integers, not one per row, or of
    another type than those of earlier frames, which `seen` takes down."""
    with calling(stage):
        return checked_keys(stage.keys(engine, frame), len(frame), [] if seen is None else seen)


def prepared(stage: Stage, folder: Path) -> Stage:
    """The stage that tasks use."""
    with calling(stage):
        return stage.prepare(folder)


def as_column(engine: Engine, frame: Frame, values: Any) -> Any:
    """Values as a column of the frame's library, aligned with the frame."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    column = engine.from_arrow(pa.table({TEXT: values}))[TEXT]
    column.index = frame.index  # frames put columns together by their index
    return column


def _shown(value: object) -> str:
    """A setting for people."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return str(value) if value != "" else "none"


def run_phases(stage: CorpusStage, engine: Engine, corpus: Corpus) -> None:
    """Runs the tasks of all phases that have no done-record yet."""
    phases = stage.phases()
    names = [phase.name for phase in phases]
    if len({*names}) < len(names) or not all(name.isidentifier() for name in names):
        raise StageError(f"must name each phase differently, by letters, digits and '_', not {names}")
    for phase in phases:
        folder = corpus.scratch / phase.name
        for number in range(phase.tasks(corpus)):
            record = folder / f"{number:05d}.done"
            if not record.exists():
                make_folder(folder)
                phase.run(engine, corpus, number)
                sync_files(folder)
                with commit(record) as path:
                    path.touch()


def decided(stage: CorpusStage, engine: Engine, corpus: Corpus) -> Decision:
    """The decision of a corpus stage, after its phases, of which what they left stays until it is stored. StageError
    for one that is not about this corpus, or not what the stage announces."""
    with calling(stage):
        run_phases(stage, engine, corpus)
        return checked_decision(stage, stage.decide(engine, corpus), corpus)


def added_columns(stages: Sequence[Stage]) -> dict[str, str]:
    """The columns that stages add: name -> Arrow type; a later one of the same name replaces it."""
    return {name: kind for stage in stages for name, kind in stage.writes().items()}


def stage_names(stages: Sequence[tuple[str, str]]) -> list[str]:
    """A name per stage of these names and kinds: its own, or its kind, numbered where a kind comes more than once."""
    kinds = [kind for _, kind in stages]
    return [
        name or (f"{kind}_{kinds[:number].count(kind) + 1}" if kinds.count(kind) > 1 else kind)
        for number, (name, kind) in enumerate(stages)
    ]


def counts_line(counts: Mapping[str, int], shown: int = SHOWN_COUNTS) -> str:
    """`en 1,200, de 30, 5 others 12`: the largest counts, and the sum of the rest."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{name} {count:,}" for name, count in ranked[:shown]]
    rest = [count for _, count in ranked[shown:]]
    return ", ".join(parts + ([f"{len(rest)} others {sum(rest):,}"] if rest else []))


__all__ = [
    "CorpusStage", "Phase", "RowStage", "Stage", "added_columns", "applied", "as_column", "called", "calling",
    "check_announced", "counts_line", "decided", "keyed", "prepared", "run_phases", "stage_names",
]  # fmt: skip
