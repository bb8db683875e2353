# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: what is fixed before it begins, and what tells it from any other run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from curation import __version__
from curation.errors import IntegrityError, OutputError
from curation.packing.blends import check_folder
from curation.packing.forms.writing import check_forms
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.reading.inputs import is_hub
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.recipe import Recipe, as_builtins, changed_keys
from curation.running.collecting import FOLDER as COLLECTED
from curation.running.jobs import Plan, Stored, StoredPlan, as_plan, digest_of, keep_plan, read_stored_plan, store_plan
from curation.running.workdir import WORK, plan_path
from curation.stages import Stage
from curation.stages.own_code import files_of

FACTS_OF_FILES = {"bytes": "size", "modified_ns": "modified time"}
SHOWN_CHANGES = 10


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


class Identity(NamedTuple):
    """What makes a run this run: the part of its plan and of its report that a rerun is compared with."""

    recipe: dict[str, Any]
    files: list[SourceFile]
    stage_files: dict[str, dict[str, str]]  # stage -> path -> SHA-256
    tokenizer: dict[str, Any]


def identity_of(recipe: Recipe, files: Sequence[SourceFile], tokenizer: Tokenizer | None) -> Identity:
    return Identity(
        as_builtins(recipe),
        [file.without_secrets() for file in files],
        stage_files(recipe),
        tokenizer.identity if tokenizer else {},
    )


def stage_files(recipe: Recipe) -> dict[str, dict[str, str]]:
    """SHA-256 of what every stage reads beside the documents, by the stage's name and the path."""
    found = {name: files_of(stage) for name, stage in zip(recipe.stage_names, recipe.stages, strict=True)}
    return {name: files for name, files in found.items() if files}


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
    may read fewer."""
    now = {name: files_of(stage) for name, stage in zip(names, stages, strict=True)}
    then = {name: {path: planned.get(name, {}).get(path, "") for path in files} for name, files in now.items()}
    if changes := changed_stage_files(then, now):
        raise IntegrityError(f"changed during the run: {', '.join(changes)}. Put it back, then run again")


def _without_new_facts(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[SourceFile]:
    """The files of today without the versions of URLs that reports up to 0.2.0 do not have."""
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
