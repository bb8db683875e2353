# SPDX-License-Identifier: Apache-2.0
"""The base classes of stages. The runner and the library use only the attributes and methods of these classes.

A stage is a frozen structure. Its fields are the settings in a recipe; its methods announce what it needs and do the
work. Stages are stored and sent to workers as JSON, so fields must be JSON values. `docs/extending.md` shows how to
write one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import Engine, Frame
from curation.base.errors import RecipeError, StageError, counted
from curation.rules.grammar import Rule
from curation.stages.outcome import EMPTY, Corpus, Decision, Outcome, StageCount

SHOWN_COUNTS = 10  # counts in the line of a stage below the funnel
PATH = "str | os.PathLike[str]"  # annotation of settings that are paths, for `Function.types`


class Outputs(NamedTuple):
    """Further outputs of a stage.

    notes      columns of `removed/` with `output.removed: text`: name -> name of the Arrow type. They are null for
               documents that other stages remove
    centroids  function that returns the file of the centroids in `corpus.scratch` after the phases of a corpus stage.
               The run keeps the file as `centroids/stage-N.npz`
    gpu_note   what differs from the CPU engine's results on the GPU engine, and how to avoid it; a run on a GPU logs it
    """

    notes: Mapping[str, str] = EMPTY
    centroids: Callable[[Corpus], Path] | None = None
    gpu_note: str = ""


class ColumnFacts(NamedTuple):
    """Facts of a written column.

    values  all values that the stage can write, as strings; empty: not known
    origin  facts on which the vectors of the column depend, such as the digest of a model: name -> value. Vectors are
            only compared with those in a saved index if the facts are equal
    """

    values: tuple[str, ...] = ()
    origin: Mapping[str, Any] = EMPTY


class Function(NamedTuple):
    """Facts about the function of a stage, `curation.<kind>`, besides its settings. `make functions` writes its code.

    doc      its docstring, without the parameters and the errors of all functions: what it returns, notes, an example
             (`import curation, pandas` is added), and perhaps errors, as in "Raises InputError for an empty file."
    second   setting that is the second parameter. Default: the one without a default, else a whole stage
    types    name of a setting -> its annotation, if it takes more types than in a recipe
    details  true if the function has `details`, which returns `curation.Duplicates`
    reads_text  false if it takes frames without a column of texts
    """

    doc: str
    second: str = ""
    types: Mapping[str, str] = MappingProxyType({})
    details: bool = False
    reads_text: bool = True


# Names of earlier versions that classes of other packages may still define -> what replaces them
_FORECAST, _INDEX, _RULES = "which forecast() returns", "which new_index() returns", "which shown_rules() returns"
_OUTPUTS, _FACTS = "which outputs() returns", "which column_facts() returns"
REPLACED = {
    "kept_share": f"Forecast.kept_share, {_FORECAST}",
    "group_sizes": f"Forecast.groups, {_FORECAST}",
    "group_warnings": f"Forecast.warnings, {_FORECAST}",
    "order_warnings": f"Forecast.warnings, {_FORECAST}",
    "scratch_bytes": f"Forecast.scratch_bytes, {_FORECAST}",
    "index_bytes": f"Forecast.index_bytes, {_FORECAST}",
    "indexes": "new_index(), which returns None by default",
    "index_phases": f"NewIndex.phases, {_INDEX}",
    "write_index": f"NewIndex.write, {_INDEX}",
    "index_settings": f"NewIndex.settings, {_INDEX}",
    "index_folder": f"NewIndex.folder, {_INDEX}",
    "indexes_removed": f"NewIndex.has_removed, {_INDEX}",
    "clustered": "without use: a report has no map of clusters",
    "centroids_file": f"Outputs.centroids, {_OUTPUTS}",
    "notes": f"Outputs.notes, {_OUTPUTS}",
    "values_of": f"ColumnFacts.values, {_FACTS}",
    "origin": f"ColumnFacts.origin, {_FACTS}",
    "rules_on_measures": f"ShownRules.rules, {_RULES}",
    "rules_on_units": f"ShownRules.rules, {_RULES}",
    "rules_by_group": f"ShownRules.by_group, {_RULES}",
    "unit_name": f"ShownRules.unit, {_RULES}",
    "compares": "true of every CorpusStage, and of no RowStage",
    "reads_text": "Function.reads_text, in the class variable function",
}


def _naming_wrong_types(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the check of a stage, with RecipeError in place of TypeError for a setting of a wrong type."""

    @wraps(check)
    def named(stage: Any) -> None:
        try:
            check(stage)
        except TypeError:  # settings given in Python are not converted, as those of recipes are
            for field in msgspec.structs.fields(stage):
                try:
                    msgspec.convert(getattr(stage, field.name), field.type)
                except msgspec.ValidationError as error:
                    raise RecipeError(f"{stage.kind}: {error} - at `$.{field.encode_name}`") from None
            raise

    return named


class Stage(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", repr_omit_defaults=True,
):  # fmt: skip
    """One step of a recipe. A subclass sets its `kind` as the tag: `tag="filter"`, or
    `tag="mypackage.stages:BlockUrls"` outside this package.

    name   name of the stage in reports; default: its kind

    Class variables: `removes` is false if the stage never removes a document; `revision` is raised when a new version
    of the stage gives other results for the same settings. A revision above 1 is part of the identity of a run.
    """

    revision: ClassVar[int] = 1
    removes: ClassVar[bool] = True

    name: str = ""

    def __init_subclass__(cls) -> None:
        """Raise StageError if a class of another package defines a name of an earlier version."""
        super().__init_subclass__()
        old = [] if cls.__module__.startswith("curation.") else [name for name in REPLACED if hasattr(cls, name)]
        if old:
            advice = "; ".join(f"{name} is now {REPLACED[name]}" for name in old)
            raise StageError(
                f"the stage {cls.__module__}:{cls.__qualname__} defines names of an earlier version: {advice}. See "
                "docs/extending.md"
            )
        if "__post_init__" in vars(cls):
            cls.__post_init__ = _naming_wrong_types(cls.__post_init__)  # type: ignore[attr-defined]

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

    def column_facts(self, column: str) -> ColumnFacts:
        """Return what is known before the run about a column of `writes`. Later stages check their groups and indexes
        against these facts. Default: no facts."""
        return ColumnFacts()

    def outputs(self) -> Outputs:
        """Return what the stage adds to the outputs besides the columns of `writes`. Default: nothing."""
        return Outputs()

    def files(self) -> dict[str, str]:
        """Return the files that the stage reads: path -> SHA-256 (`curation.base.system.files.known_sha256`).

        The files are part of the identity of the run: a rerun with changed files is refused. Default: none. Raises
        InputError for a missing file."""
        return {}

    def computed_with(self) -> dict[str, str]:
        """Return the facts of this machine on which the last digits of the results depend, such as the device and the
        versions of libraries: name -> value. A run that has begun with other facts cannot be resumed, and a worker with
        other facts ends the run. Default: none, because integer results do not depend on the machine."""
        return {}

    def kernels(self) -> tuple[str, ...]:
        """Return the groups of kernels that the stage calls on the CPU engine, such as `measures` for `engine.measure`;
        `curation.stages.warm_up.GROUPS` lists them. The runner compiles them in parallel before the tasks start; any
        other kernel is compiled when it is first called. Default: none."""
        return ()

    def check(self, inputs: Sequence[str]) -> None:
        """Check the stage against the names of the inputs, before any input is read. Raises RecipeError for settings
        that do not fit, InputError for files that cannot be used. Default: no check."""

    def check_order(self, earlier: Sequence[Stage]) -> None:
        """Check the stage against the earlier stages of its recipe, after `check`. Raises RecipeError for earlier
        stages that do not fit. Default: no check. The library applies single stages, so it does not call this
        method."""

    def prepare(self, folder: Path) -> Stage:
        """Return the stage that the tasks use; by default this one.

        The runner calls it once per run before the tasks start, and again after a kill. `folder` belongs to this stage;
        its files are kept until the run is complete."""
        return self

    def explain(self) -> list[str]:
        """Return lines for `curate plan` that explain the settings. Default: one line with the settings."""
        settings = {key: value for key, value in msgspec.to_builtins(self).items() if key not in ("kind", "name")}
        return [", ".join(f"{key} {_shown(value)}" for key, value in settings.items()) or "no settings"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return lines for the report, below the funnel, without the stage's name. Default: the number of documents
        removed and edited."""
        edited = [f"{count.edited:,} edited"] if count.edited else []
        removed = [f"{count.removed:,} removed"] if self.removes or count.removed else []
        return [f"{', '.join(removed + edited) or 'no change'} of {counted(count.documents_in, 'document')}"]

    def warnings(self, count: StageCount) -> list[str]:
        """Return warnings for the report, with the stage's name. Default: none."""
        return []


class ShownRules(NamedTuple):
    """Rules for the report.

    rules     rules on measures of documents, or of their units
    by_group  all rules, if they differ between groups of documents
    unit      what `rules` judge instead of documents, such as `line`; "" for documents
    """

    rules: tuple[Rule, ...] = ()
    by_group: tuple[Rule, ...] = ()
    unit: str = ""

    @property
    def of_documents(self) -> tuple[Rule, ...]:
        """The rules on measures of documents."""
        return () if self.unit else self.rules

    @property
    def of_units(self) -> tuple[Rule, ...]:
        """The rules on measures of units of documents."""
        return self.rules if self.unit else ()


class RowStage(Stage, frozen=True, kw_only=True):
    """A stage that processes one frame at a time."""

    def shown_rules(self) -> ShownRules:
        """Return the rules on measures by which the stage removes documents, or judges their units. `apply` returns the
        measures of `rules` as `measures`, or as `unit_measures` if there is a unit. With `by_group`, `apply` also
        returns the group of each document as `groups`, and the measures of all these rules. The report shows values,
        bounds and groups. Default: none."""
        return ShownRules()

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        """Return the outcome for the rows of a frame, and leave the frame unchanged.

        The frame has `row` (int64), `id` and `text` (strings; `text` may be null), the columns that its input carries,
        and the columns that earlier stages added. A frame may have no rows. Results must not depend on how rows are
        divided into frames."""
        raise NotImplementedError(f"{type(self).__name__} has no apply()")


class ScoringStage(RowStage, frozen=True, kw_only=True):
    """A row stage that computes values of each text with a model. Its outcome depends only on these values."""

    def values(self) -> dict[str, str]:
        """Return what `score` returns: name -> name of the Arrow type, as in `writes`."""
        raise NotImplementedError(f"{type(self).__name__} has no values()")

    def score(self, engine: Engine, frame: Frame) -> pa.Table:
        """Return a table with the values of each row of a frame. The values depend only on the text of the row."""
        raise NotImplementedError(f"{type(self).__name__} has no score()")

    def outcome(self, values: pa.Table) -> Outcome:
        """Return the outcome for rows with these values."""
        raise NotImplementedError(f"{type(self).__name__} has no outcome()")

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        return self.outcome(self.score(engine, frame))


class Phase(NamedTuple):
    """A step of a corpus stage between its keys and its decision.

    name     name of its folder, `corpus.scratch / name`: letters, digits and `_`, different for each phase
    tasks    function that returns the number of tasks, the same before and after a kill
    run      function that runs the task of a number, from 0, and writes its results to the folder
    durable  true if `run` syncs its files (`curation.base.system.files.commit`); else the runner syncs the folder after
             each task

    The tasks of a phase run at once, in threads, processes or on the workers of a cluster. Tasks share only files.
    Results must not depend on the order of the tasks, nor on files that a killed task has left.
    """

    name: str
    tasks: Callable[[Corpus], int]
    run: Callable[[Engine, Corpus, int], None]
    durable: bool = False


class NewIndex(NamedTuple):
    """The index that a stage saves.

    write        function of `corpus`, `folder`, `ids_of` and `earlier` that writes the index of a corpus to the folder,
                 as a whole. `corpus.scratch` has the files of `phases`, and is on the same disk as the folder; `ids_of`
                 takes rows (int64) and returns their ids as a string array; `earlier` are the earlier stages
    phases       phases that write files in `corpus.scratch` before `write`, in order. The corpus has the documents of
                 the index, and the centroids of the stage if it keeps any
    settings     settings that the index depends on; a stage with other settings cannot use the index
    folder       folder below `index/` of a run; "" is `index/` itself. The last stage with a folder saves its index
    has_removed  true if the index also has the documents that the stage itself or later stages remove
    """

    write: Callable[[Corpus, Path, Callable[[np.ndarray], pa.Array], Sequence[Stage]], None]
    phases: Sequence[Phase] = ()
    settings: Mapping[str, Any] = EMPTY
    folder: str = ""
    has_removed: bool = False


class StageSample(NamedTuple):
    """What is known about the documents that reach a corpus stage, for its forecast. An unknown number is 0; an unknown
    mapping or sequence is empty.

    documents, text_bytes, tokens  estimates
    keys    keys of some documents, all of the input `source`: name -> array, one value per document. Of such a sample
            only `Forecast.groups` is used
    source  name of their input
    groups  name of a group -> estimated documents, from the `Forecast.groups` of such samples
    later   the stages after this one in the recipe
    """

    documents: float = 0
    text_bytes: float = 0
    tokens: float = 0
    keys: Mapping[str, np.ndarray] = EMPTY
    source: str = ""
    groups: Mapping[str, float] = EMPTY
    later: Sequence[Stage] = ()


class Forecast(NamedTuple):
    """What a corpus stage predicts about a run before the run starts.

    kept_share     share of `sample.documents` that it keeps, if its settings fix it; above 1 if it repeats documents
    scratch_bytes  about how many bytes its phases write to `corpus.scratch` if they need the text of these documents
    index_bytes    about how many bytes an index of these documents has
    groups         documents of each group among those of `sample.keys`: name -> number
    warnings       lines that contain the stage's name, about `sample.groups` for `curate plan`, or about `sample.later`
                   for the plan and the report
    """

    kept_share: float = 1.0
    scratch_bytes: float = 0.0
    index_bytes: float = 0.0
    groups: Mapping[str, int] = EMPTY
    warnings: Sequence[str] = ()


class CorpusStage(Stage, frozen=True, kw_only=True):
    """A stage that compares documents. The stage computes keys of each slice, runs phases, and then makes one decision.
    After a kill, finished tasks of phases are not run again.

    Class variables: `finds_duplicates` is false if the documents that it removes are no duplicates; `cuts_text` is true
    if the stage cuts spans of text; it may remove rows too.
    """

    finds_duplicates: ClassVar[bool] = True
    cuts_text: ClassVar[bool] = False

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

    def forecast(self, sample: StageSample) -> Forecast:
        """Return what the stage predicts about a run with the documents of `sample`, for `curate plan` and the check of
        the disk. A run does not start if its disk is too small. Default: the stage keeps all documents and needs no
        disk."""
        return Forecast()

    def new_index(self) -> NewIndex | None:
        """Return the index that the stage saves for later runs, or None. Raises RecipeError if the settings do not
        allow an index. Default: None."""
        return None


def _shown(value: object) -> str:
    """Return a setting as readable text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    return str(value) if value != "" else "none"


def added_columns(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the columns that stages add: name -> Arrow type. If stages share a name, the type of the last stage
    counts."""
    return {name: kind for stage in stages for name, kind in stage.writes().items()}


def noted_columns(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the columns that stages add to `removed/`: name -> Arrow type. If stages share a name, the type of the
    last stage counts."""
    return {name: kind for stage in stages for name, kind in stage.outputs().notes.items()}


def stage_names(stages: Sequence[tuple[str, str]]) -> list[str]:
    """Return a name for each stage, given as (name, kind): its name, or else its kind, with a number if stages share
    the kind."""
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
