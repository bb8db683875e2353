# SPDX-License-Identifier: Apache-2.0
"""The base classes of stages. The runner and the library use only the attributes and methods of these classes.

A stage is a frozen structure. Its fields are the settings in a recipe; its methods announce what it needs and do the
work. Stages are stored and sent to workers as JSON, so fields must be JSON values. `docs/extending.md` shows how to
write one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import Engine, Frame
from curation.base.errors import counted
from curation.rules.grammar import Rule
from curation.stages.outcome import Corpus, Decision, Outcome, StageCount

SHOWN_COUNTS = 10  # of a stage's details, in its line below the funnel
PATH = "str | os.PathLike[str]"  # annotation of settings that are paths, for `Function.types`


class Clustered(NamedTuple):
    """Clusters that a stage finds or assigns: the column of the vectors, their names (empty: numbers), and the file of
    the centroids ("": the file of `CorpusStage.centroids_file`, which the run keeps)."""

    vectors: str
    names: tuple[str, ...] = ()
    centroids: str = ""


class Function(NamedTuple):
    """What the function of a stage, `curation.<kind>`, has besides the settings. `make functions` writes its code.

    doc      its docstring, without the parameters and the errors of all functions: what it returns, notes, an example
             (`import curation, pandas` is added), and perhaps errors, as in "Raises InputError for an empty file."
    second   setting that is the second parameter. Default: the one without a default, else a whole stage
    types    name of a setting -> its annotation, if it takes more types than in a recipe
    details  true if the function has `details`, which returns `curation.Duplicates`
    """

    doc: str
    second: str = ""
    types: Mapping[str, str] = MappingProxyType({})
    details: bool = False


class Stage(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", repr_omit_defaults=True,
):  # fmt: skip
    """One step of a recipe. A subclass sets its `kind` as the tag: `tag="filter"`, or
    `tag="mypackage.stages:BlockUrls"` outside this package.

    name   name of the stage in reports; default: its kind

    Class variables: `removes` is false if the stage never removes a document; `compares` is true if it compares
    documents with each other, `finds_duplicates` if those that it removes are duplicates; `revision` is raised when a
    new version of the stage gives other results for the same settings. A revision above 1 is part of the identity of a
    run.
    """

    revision: ClassVar[int] = 1
    removes: ClassVar[bool] = True
    reads_text: ClassVar[bool] = True  # False: its function takes frames without a column of texts
    compares: ClassVar[bool] = False
    finds_duplicates: ClassVar[bool] = False

    name: str = ""

    @property
    def kind(self) -> str:
        """The tag of the class, which names the stage in recipes."""
        return str(self.__struct_config__.tag)

    def reads(self) -> tuple[str, ...]:
        """Return the names of the columns that the stage needs besides `id` and `text`.

        Every input must list each of them in its `columns`, or an earlier stage must write it. If one is missing, the
        run stops before it reads any input. Default: none."""
        return ()

    def writes(self) -> dict[str, str]:
        """Return the columns that the stage adds to `documents/`: name -> name of the Arrow type (`int64`, `double`,
        `bool`, `large_string`). A later stage may overwrite one. Default: none."""
        return {}

    def values_of(self, column: str) -> tuple[str, ...]:
        """Return all values, as strings, that the stage can write into a column of `writes`; later stages check their
        groups against them before the run. Default: none, if they are not known."""
        return ()

    def notes(self) -> dict[str, str]:
        """Return the columns that the stage adds to `removed/` with `output.removed: text`: name -> name of the Arrow
        type. They are null for documents that other stages remove. Default: none."""
        return {}

    def files(self) -> dict[str, str]:
        """Return the files that the stage reads: path -> SHA-256 (`curation.base.system.files.known_sha256`).

        They are part of the identity of the run: a rerun with changed content is refused. Default: none. InputError
        for a missing file."""
        return {}

    def computed_with(self) -> dict[str, str]:
        """Return the facts of this machine on which the last digits of the results depend, such as the device and the
        versions of libraries: name -> value. A run that has begun with others does not resume, and a worker with others
        ends it. Default: none, since results of integers depend on none."""
        return {}

    def kernels(self) -> tuple[str, ...]:
        """Return the groups of kernels that the stage calls on the CPU engine, such as `measures` for `engine.measure`;
        `curation.stages.warm_up.GROUPS` lists them. The runner compiles them in parallel before the tasks start; any
        other kernel is compiled when it is first called. Default: none."""
        return ()

    def origin(self) -> dict[str, Any]:
        """Return the facts on which the vectors that the stage writes depend, such as the digest of its model: name ->
        value. Vectors are only compared with those in a saved index if the facts are equal. Default: none."""
        return {}

    def check(self, inputs: Sequence[str]) -> None:
        """Check the stage against the names of the inputs, before any input is read. RecipeError for settings that do
        not fit, InputError for files that cannot be used. Default: no check."""

    def check_order(self, earlier: Sequence[Stage]) -> None:
        """Check the stage against the earlier stages of its recipe, after `check`. RecipeError for those that do not
        fit. Default: no check. The library, which applies one stage, does not call it."""

    def prepare(self, folder: Path) -> Stage:
        """Return the stage that the tasks use; by default this one.

        The runner calls it once per run before the tasks start, and again after a kill. `folder` belongs to this stage;
        its files are kept until the run is complete."""
        return self

    def explain(self) -> list[str]:
        """Return lines for `curate plan` that explain the settings. Default: one line with the settings."""
        settings = {key: value for key, value in msgspec.to_builtins(self).items() if key not in ("kind", "name")}
        return [", ".join(f"{key} {_shown(value)}" for key, value in settings.items()) or "no settings"]

    def clustered(self) -> Clustered | None:
        """Return the clusters that the report shows on a map. Default: none."""
        return None

    def report_lines(self, count: StageCount) -> list[str]:
        """Return lines for the report, below the funnel, without the stage's name. Default: the number of documents
        removed and edited."""
        edited = [f"{count.edited:,} edited"] if count.edited else []
        removed = [f"{count.removed:,} removed"] if self.removes or count.removed else []
        return [f"{', '.join(removed + edited) or 'no change'} of {counted(count.documents_in, 'document')}"]

    def warnings(self, count: StageCount) -> list[str]:
        """Return warnings for the report, with the stage's name. Default: none."""
        return []


class RowStage(Stage, frozen=True, kw_only=True):
    """A stage that processes one frame at a time."""

    def rules_on_measures(self) -> tuple[Rule, ...]:
        """Return the rules on measures by which the stage removes documents. `apply` returns these measures; the report
        shows their values and bounds. Default: none."""
        return ()

    def rules_by_group(self) -> tuple[Rule, ...]:
        """Return all rules of a stage whose rules differ between groups of documents. `apply` returns the group of each
        document as `groups`, and all measures of the rules; the report shows each group. Default: none."""
        return ()

    def unit_name(self) -> str:
        """Return what the stage judges instead of documents, such as `line`; "" for documents."""
        return ""

    def rules_on_units(self) -> tuple[Rule, ...]:
        """Return the rules on measures of the lines, paragraphs or sentences of texts. `apply` returns these measures
        as `unit_measures`; the report shows their values and bounds. Default: none."""
        return ()

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        """Return the outcome for the rows of a frame, and leave the frame unchanged.

        The frame has `row` (int64), `id` and `text` (strings; `text` may be null), the columns that its input carries
        and those of earlier stages. It may have no rows. Results must not depend on how rows are divided into
        frames."""
        raise NotImplementedError(f"{type(self).__name__} has no apply()")


class ScoringStage(RowStage, frozen=True, kw_only=True):
    """A row stage that computes values of each text with a model, and its outcome from them alone."""

    def values(self) -> dict[str, str]:
        """Return what `score` returns: name -> name of the Arrow type, as in `writes`."""
        raise NotImplementedError(f"{type(self).__name__} has no values()")

    def score(self, engine: Engine, frame: Frame) -> pa.Table:
        """Return the values of the texts of a frame, one row per row. A row depends on its text alone."""
        raise NotImplementedError(f"{type(self).__name__} has no score()")

    def outcome(self, values: pa.Table) -> Outcome:
        """Return the outcome for rows with these values."""
        raise NotImplementedError(f"{type(self).__name__} has no outcome()")

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return self.outcome(self.score(engine, frame))

    def kept_values(self) -> dict[str, str]:
        """Return the values that a run keeps for later ones (`output.scores`), as `values` does: those that depend on
        the machine. Integers of fastText and of n-gram models are computed about as fast as they are found."""
        return self.values() if self.computed_with() else {}


class Phase(NamedTuple):
    """A step of a corpus stage between its keys and its decision.

    name     name of its folder, `corpus.scratch / name`: letters, digits and `_`, different for each phase
    tasks    function that returns the number of tasks, the same before and after a kill
    run      function that runs the task of a number, from 0, and writes its results to the folder
    durable  true if `run` syncs its files (`curation.base.system.files.commit`); else the runner syncs the folder after
             each task

    The tasks of a phase run at once, in threads, processes or on the workers of a cluster. They share only files.
    Results must not depend on the order of the tasks, nor on files that a killed task has left.
    """

    name: str
    tasks: Callable[[Corpus], int]
    run: Callable[[Engine, Corpus, int], None]
    durable: bool = False


class CorpusStage(Stage, frozen=True, kw_only=True):
    """A stage that compares documents: keys of each slice, then phases, then one decision. After a kill, finished tasks
    of phases are not run again.

    Class variables: `cuts_text` is true if the stage cuts spans of text; it may remove rows too. `indexes` is true if
    it has `write_index`. `index_folder` is the folder below `index/` of a run that it writes; "" is `index/` itself.
    `indexes_removed` is true if the index also has the documents that the stage itself or later stages remove.
    """

    compares: ClassVar[bool] = True
    finds_duplicates: ClassVar[bool] = True
    cuts_text: ClassVar[bool] = False
    indexes: ClassVar[bool] = False
    indexes_removed: ClassVar[bool] = False
    index_folder: ClassVar[str] = ""

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        """Return the keys of a frame: name -> integers or bool, one per row, in one dimension. The corpus stores signed
        integers as int64, unsigned ones and bool as uint64. A key must have one type in all frames."""
        raise NotImplementedError(f"{type(self).__name__} has no keys()")

    def phases(self) -> Sequence[Phase]:
        """Return the phases between `keys` and `decide`, in order. Default: none."""
        return ()

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        """Return the rows to remove, and the spans to cut if no task has stored them (`store_cuts`)."""
        raise NotImplementedError(f"{type(self).__name__} has no decide()")

    def centroids_file(self, corpus: Corpus) -> Path | None:
        """Return the file in `corpus.scratch` that the run keeps as `centroids/stage-N.npz`, after the phases. Default:
        none."""
        return None

    def kept_share(self, documents: float, tokens: float, groups: Mapping[str, float]) -> float:
        """Return the share that the stage keeps of so many documents with so many tokens, if its settings fix it; above
        1 if it repeats documents. `groups` has the estimated documents of each of its groups (`group_sizes`). `curate
        plan` and the check of the disk use it. Default: 1."""
        return 1.0

    def group_sizes(self, keys: Mapping[str, np.ndarray], source: str) -> dict[str, int]:
        """Return the number of documents of each group, by name, among some documents of an input with these keys.
        Default: none, for stages whose `kept_share` needs none."""
        return {}

    def group_warnings(self, groups: Mapping[str, float]) -> list[str]:
        """Return warnings for `curate plan` about the groups of a sample: name -> estimated documents (`group_sizes`).
        Default: none."""
        return []

    def order_warnings(self, later: Sequence[Stage]) -> list[str]:
        """Return warnings for the plan and the report about the stages after this one in the recipe. Default: none."""
        return []

    def scratch_bytes(self, documents: float, text_bytes: float) -> float:
        """Return about how many bytes the phases write to `corpus.scratch` if they need the text of so many documents
        with `text_bytes` of text. Default: 0. The run is refused if its disk is too small."""
        return 0

    def index_bytes(self, documents: float, text_bytes: float) -> float:
        """Return about how many bytes the index of so many documents has. Default: 0."""
        return 0

    def index_phases(self) -> Sequence[Phase]:
        """Return the phases that write files in `corpus.scratch` before `write_index`, in order. The corpus has the
        documents of the index, and the centroids of the stage if it keeps any. Default: none."""
        return ()

    def write_index(
        self, corpus: Corpus, folder: Path, ids_of: Callable[[np.ndarray], pa.Array], earlier: Sequence[Stage] = ()
    ) -> None:
        """Write to `folder`, as a whole, the index of `corpus` with which a later run compares its documents.

        `corpus.scratch` has the files of `index_phases`, and is on the same disk as `folder`. `ids_of` takes rows
        (int64) and returns their ids as a string array. `earlier` are the earlier stages of the recipe."""
        raise NotImplementedError(f"{type(self).__name__} has no write_index()")


def _shown(value: object) -> str:
    """Return a setting as text for people."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return str(value) if value != "" else "none"


def added_columns(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the columns that stages add: name -> Arrow type. Of equal names the last counts."""
    return {name: kind for stage in stages for name, kind in stage.writes().items()}


def noted_columns(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the columns that stages add to `removed/`: name -> Arrow type. Of equal names the last counts."""
    return {name: kind for stage in stages for name, kind in stage.notes().items()}


def stage_names(stages: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name per stage of (name, kind): its name, or else its kind, with a number if stages share the kind."""
    counts, seen = Counter(kind for _, kind in stages), Counter[str]()
    names = []
    for name, kind in stages:
        seen[kind] += 1
        names.append(name or (f"{kind}_{seen[kind]}" if counts[kind] > 1 else kind))
    return names


def counts_line(counts: Mapping[str, int], shown: int = SHOWN_COUNTS) -> str:
    """Return the largest `shown` counts and the sum of the others, as in `en 1,200, de 30, 5 others 12`."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{name} {count:,}" for name, count in ranked[:shown]]
    rest = [count for _, count in ranked[shown:]]
    return ", ".join(parts + ([f"{counted(len(rest), 'other')} {sum(rest):,}"] if rest else []))
