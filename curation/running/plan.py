# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: what is fixed before it begins, what tells it from any other run, and how tasks read it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec

from curation import __version__
from curation.errors import IntegrityError, OutputError, RecipeError, nearest
from curation.files import commit
from curation.packing.blends import check_folder
from curation.packing.forms.writing import check_forms
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.reading.inputs import entries_by_name, input_names, is_hub
from curation.reading.paths import find_files
from curation.reading.source_files import FilePart, Slice, SourceFile
from curation.reading.urls import shown
from curation.recipe import Recipe, as_builtins, changed_keys, recipe_from_job
from curation.running.run_folder import WORK, check_inputs, check_names, plan_path
from curation.running.stream_inputs import FOLDER as COLLECTED
from curation.stages import Stage
from curation.stages.base import added_columns, calling, check_announced
from curation.stages.own_code import check_class, files_of, stage_for_job

_LOADING = Lock()  # of the threads that begin a phase one reads the files, the others wait for it
_LOADED: dict[Stored, Any] = {}  # the two that were used last: a plan and a job
Loaded = TypeVar("Loaded")
FACTS_OF_FILES = {"bytes": "size", "modified_ns": "modified time"}
SHOWN_CHANGES = 10


class Stored(NamedTuple):
    """A file that tasks share, and the SHA-256 of its content."""

    path: Path
    sha256: str


# The plan


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed before a run and followed by every rerun."""

    version: str
    recipe: Recipe
    files: list[SourceFile]  # as the recipe names them, without secrets
    slices: list[Slice]
    stage_files: dict[str, dict[str, str]]  # stage -> path -> SHA-256 of the files that it reads
    tokenizer: dict[str, Any]  # SHA-256 of its vocabulary, ids of end and begin; empty where none is used


class StoredPlan(msgspec.Struct, kw_only=True):
    """A plan as `_work/plan.json` has it: each file that slices read once, and slices by its number."""

    version: str
    recipe: dict[str, Any]
    files: list[SourceFile]
    read: list[SourceFile]
    slices: list[list[tuple[int, int, int, str]]]  # of each part the file, start, stop and edges
    stage_files: dict[str, dict[str, str]]
    tokenizer: dict[str, Any]

    def __post_init__(self) -> None:
        for parts in self.slices:
            if not parts:
                raise ValueError("a slice without parts")
            for number, start, stop, _ in parts:
                if not (0 <= number < len(self.read) and 0 <= start <= stop):
                    raise ValueError(f"a slice from {start} to {stop} of file {number}")


class _Versioned(msgspec.Struct):
    version: str


def store_plan(path: Path, plan: Plan) -> None:
    """Writes a plan. Passwords and signed queries of URLs stay in memory: `urls_of` gives them to tasks."""
    numbers: dict[int, int] = {}
    read: list[SourceFile] = []
    slices = []
    for piece in plan.slices:
        parts = []
        for part in piece.parts:
            number = numbers.setdefault(id(part.file), len(read))
            if number == len(read):
                read.append(part.file.without_secrets())
            parts.append((number, part.start, part.stop, part.edges))
        slices.append(parts)
    content = StoredPlan(
        version=plan.version, recipe=as_builtins(plan.recipe), files=plan.files, read=read, slices=slices,
        stage_files=plan.stage_files, tokenizer=plan.tokenizer,
    )  # fmt: skip
    with commit(path) as temporary:
        temporary.write_bytes(msgspec.json.encode(content))


def read_stored_plan(path: Path) -> StoredPlan | None:
    """The content of a plan's file; None where there is none. OutputError for one of another version of this program,
    IntegrityError for a damaged one."""
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != __version__:
            begun = f"{path.parent.parent} was begun by version {version}, this is {__version__}"
            raise OutputError(f"{begun}. Give a new --output, or --force")
        return msgspec.json.decode(data, type=StoredPlan)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path} is damaged: {error}. Begin anew with --force") from None


def as_plan(stored: StoredPlan, recipe: Recipe, read: Sequence[SourceFile]) -> Plan:
    """The plan of a file's content with the recipe that it was made of, of which slices read the files `read`."""
    parts = [
        [FilePart(file=read[number], start=start, stop=stop, edges=edges) for number, start, stop, edges in piece]
        for piece in stored.slices
    ]
    return Plan(
        version=stored.version, recipe=recipe, files=stored.files,
        slices=[Slice(index=index, parts=found) for index, found in enumerate(parts)],
        stage_files=stored.stage_files, tokenizer=stored.tokenizer,
    )  # fmt: skip


def urls_of(piece: Slice) -> tuple[str, ...]:
    """The real URLs of a slice's parts, for its task alone; nothing where no part has a secret."""
    paths = [part.file.path for part in piece.parts]
    return tuple(paths) if any(path != shown(path) for path in paths) else ()


def with_urls(piece: Slice, urls: Sequence[str]) -> Slice:
    """The slice with the URLs that `urls_of` gave."""
    if not urls:
        return piece
    pairs = zip(piece.parts, urls, strict=True)
    replace = msgspec.structs.replace
    return replace(piece, parts=[replace(part, file=replace(part.file, path=url)) for part, url in pairs])


# Jobs


def digest_of(path: Path) -> Stored:
    """A file for tasks, by what it holds now."""
    return Stored(path, hashlib.sha256(path.read_bytes()).hexdigest())


def load_plan(stored: Stored) -> Plan:
    """A plan as a task has it, once per process: URLs are without their secrets."""

    def decode(data: bytes) -> Plan:
        content = msgspec.json.decode(data, type=StoredPlan)
        return as_plan(content, recipe_from_job(content.recipe), content.read)

    return load_shared(stored, decode)


def keep_plan(stored: Stored, plan: Plan) -> None:
    """Spares the threads of this process a second copy of the plan."""
    with _LOADING:
        _keep(stored, plan)


def load_shared(stored: Stored, decode: Callable[[bytes], Loaded]) -> Loaded:
    with _LOADING:
        if stored not in _LOADED:
            data = stored.path.read_bytes()
            if hashlib.sha256(data).hexdigest() != stored.sha256:
                raise IntegrityError(f"{stored.path} has changed while the run needs it. Begin anew with --force")
            _keep(stored, decode(data))
        found: Loaded = _LOADED[stored]
        _keep(stored, found)
        return found


def _keep(stored: Stored, value: Any) -> None:
    _LOADED.pop(stored, None)
    _LOADED[stored] = value  # at the end: used last
    while len(_LOADED) > 2:
        del _LOADED[next(iter(_LOADED))]


def find_tokenizer(recipe: Recipe, folder: Path) -> Tokenizer | None:
    """The tokenizer of a recipe that writes tokens. TokenizerError, OutputError for what its outputs would stumble over
    after hours of work."""
    if not recipe.output.formats:
        return None
    tokenizer = load_tokenizer(recipe.tokenizer)
    check_forms(recipe.output, tokenizer)
    if "megatron" in recipe.output.formats:
        check_folder(folder)
    return tokenizer


class Preflight(NamedTuple):
    """What is known of a run before it writes."""

    files: list[SourceFile]
    tokenizer: Tokenizer | None
    identity: Identity


def preflight(recipe: Recipe, folder: Path) -> Preflight:
    """All that can be refused before anything is read or written: stages, inputs, names, the tokenizer. Raises the
    errors of `curation.errors`."""
    read = check_stages(recipe)
    for stage in read.values():
        check_inputs(folder, stage)
    files = find_files(recipe.input, folder)
    check_inputs(folder, [file.path for file in files] + [entry.path for entry in recipe.input if is_hub(entry.path)])
    check_names(recipe, folder)
    tokenizer = find_tokenizer(recipe, folder)
    return Preflight(files, tokenizer, identity_of(recipe, files, read, tokenizer))


class Identity(NamedTuple):
    """What makes a run this run: the part of its plan and of its report that a rerun is compared with."""

    recipe: dict[str, Any]
    files: list[SourceFile]
    stage_files: dict[str, dict[str, str]]  # stage -> path -> SHA-256
    tokenizer: dict[str, Any]


def identity_of(
    recipe: Recipe, files: Sequence[SourceFile], stage_files: dict[str, dict[str, str]], tokenizer: Tokenizer | None
) -> Identity:
    shown_files = [file.without_secrets() for file in files]
    return Identity(as_builtins(recipe), shown_files, stage_files, tokenizer.identity if tokenizer else {})


def identity_in(folder: Path, report: dict[str, Any]) -> Identity:
    """What a report says of its run. OutputError for one of an earlier version."""
    if "stage_files" not in report:
        version = report.get("versions", {}).get("gpu-pipeline", "an earlier version")
        raise OutputError(
            f"{folder} was finished by version {version}, this is {__version__}; give a new --output, or --force"
        )
    files = msgspec.convert(report["files"], list[SourceFile])
    return Identity(report["recipe"], files, report["stage_files"], report.get("tokenizer", {}))


def check_same(folder: Path, before: Identity, now: Identity) -> None:
    """OutputError where what a folder's plan or report says of its run is not this run's identity."""
    files = _without_new_facts(before.files, now.files)
    changes = changed_keys(before.recipe, now.recipe) + _changed_files(before.files, files)
    changes += changed_stage_files(before.stage_files, now.stage_files)
    changes += changed_keys(before.tokenizer, now.tokenizer, "tokenizer")
    if changes:
        shown_changes = ", ".join(changes[:SHOWN_CHANGES]) + (", ..." if len(changes) > SHOWN_CHANGES else "")
        raise OutputError(
            f"{folder} belongs to another recipe or input; changed: {shown_changes}. Give a new --output, or --force"
        )


def changed_stage_files(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The files of two `stage_files` that are not the same, in words."""
    return [
        f"{path} of stage {name} ({'content' if path in old and path in new else 'gone' if path in old else 'new'})"
        for name in dict.fromkeys([*before, *now])
        for old, new in [(before.get(name, {}), now.get(name, {}))]
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]


def check_stage_files(names: Sequence[str], stages: Sequence[Stage], planned: Mapping[str, Mapping[str, str]]) -> None:
    """IntegrityError where a file of one of these stages is not the one that the run was planned with. A prepared stage
    may read fewer, and files that it has made."""
    known = {name: planned.get(name, {}) for name in names}
    now = {
        name: {path: digest for path, digest in files_of(stage).items() if path in known[name]}
        for name, stage in zip(names, stages, strict=True)
    }
    then = {name: {path: known[name][path] for path in files} for name, files in now.items()}
    if changes := changed_stage_files(then, now):
        raise IntegrityError(f"changed during the run: {', '.join(changes)}. Put it back, then run again")


def _without_new_facts(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[SourceFile]:
    """The files now, without the versions of URLs that the run did not know before."""
    known = {file.path: file.version for file in before}
    return [msgspec.structs.replace(file, version="") if not known.get(file.path, "?") else file for file in now]


def _changed_files(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[str]:
    if before == now:
        return []
    old, new = ({file.path: file for file in files} for files in (before, now))
    found = [
        f"file {path} ({_what_changed(old.get(path), new.get(path))})"
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]
    return found or ["the number or the order of the files"]


def _what_changed(was: SourceFile | None, is_: SourceFile | None) -> str:
    if was is None or is_ is None:
        return "gone" if was else "new"
    keys = [key for key in SourceFile.__struct_fields__ if getattr(was, key) != getattr(is_, key)]
    return ", ".join(FACTS_OF_FILES.get(key, key) for key in keys)


def make_plan(
    folder: Path, recipe: Recipe, identity: Identity, files: Sequence[SourceFile], ready: Sequence[SourceFile],
    cut: Callable[[Sequence[SourceFile]], list[Slice]],
) -> tuple[Plan, Stored]:  # fmt: skip
    """The plan of an unfinished run in this folder, or a new one, and its file; `ready`: the files with data sets as
    local files."""
    path = plan_path(folder)
    content = read_stored_plan(path)
    if content is not None:
        compared = Identity(content.recipe, content.files, content.stage_files, content.tokenizer)
        check_same(folder, compared, identity)
        plan = as_plan(content, recipe, _read_now(folder, content, files))
    else:
        plan = Plan(
            version=__version__, recipe=recipe, files=identity.files, slices=cut(ready),
            stage_files=identity.stage_files, tokenizer=identity.tokenizer,
        )  # fmt: skip
        store_plan(path, plan)
    stored = digest_of(path)
    keep_plan(stored, plan)
    return plan, stored


def _read_now(folder: Path, content: StoredPlan, files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files that a stored plan reads, under the paths that the recipe gives today: a plan has no secrets of URLs,
    and whoever can write to the folder must not choose what is read. IntegrityError where they are not the same."""
    collected = folder / WORK / COLLECTED
    paths = [file.path for file in files if not is_hub(file.path)]
    own = [number for number, file in enumerate(content.read) if not file.label]
    strangers = [file.path for file in content.read if file.label and collected not in Path(file.path).parents]
    if strangers or [content.read[number].path for number in own] != [shown(path) for path in paths]:
        raise IntegrityError(f"{plan_path(folder)} names files that are not inputs of the run. Begin anew with --force")
    real = dict(zip(own, paths, strict=True))
    return [
        msgspec.structs.replace(file, path=real[number]) if number in real else file
        for number, file in enumerate(content.read)
    ]


def check_stages(recipe: Recipe) -> dict[str, dict[str, str]]:
    """The SHA-256 of what stages read besides the documents, by their names and the paths. RecipeError, InputError for
    a stage whose columns, files or settings do not fit the inputs."""
    for stage in recipe.stages:
        check_class(stage)
        check_announced(stage)
    _check_columns(recipe)
    inputs, read = input_names(recipe.input), {}
    for name, stage in zip(recipe.stage_names, recipe.stages, strict=True):
        stage_for_job(stage)
        with calling(stage):
            stage.check(inputs)
        if files := files_of(stage):
            read[name] = files
    return read


def _check_columns(recipe: Recipe) -> None:
    """RecipeError for a column that a stage reads and that no input carries or stage before it writes."""
    for number, stage in enumerate(recipe.stages):
        written = added_columns(recipe.stages[:number])
        for column in stage.reads():
            for name, entry in entries_by_name(recipe.input).items():
                if column not in written and column not in entry.columns:
                    advice = _advice(column, number, [*entry.columns, *written], recipe)
                    raise RecipeError(
                        f"stage {recipe.stage_names[number]} reads the column {column!r}, which the input {name} "
                        f"({shown(entry.path)}) does not carry{advice}"
                    )


def _advice(column: str, number: int, known: Sequence[str], recipe: Recipe) -> str:
    """What to do about a column that is not there."""
    later = [stage.kind for stage in recipe.stages[number + 1 :] if column in stage.writes()]
    if later:
        return f". Put the stage {later[0]}, which writes it, before this one"
    near = nearest(column, known)
    return f"{near if near.startswith('; did') else ''}. Add columns: [{column}] to the input"
