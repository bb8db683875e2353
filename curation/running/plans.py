# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: what is fixed before it begins, and what tells it from any other run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from curation import __version__
from curation.errors import IntegrityError, OutputError, RecipeError
from curation.packing.blends import check_folder
from curation.packing.forms.writing import check_forms
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.reading.inputs import is_hub
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.recipe import Recipe, as_builtins, changed_keys, convert_recipe
from curation.renamed import with_new_names
from curation.running.barriers import against_digests
from curation.running.collecting import FOLDER as COLLECTED
from curation.running.jobs import Plan, Stored, StoredPlan, as_plan, digest_of, keep_plan, read_stored_plan, store_plan
from curation.running.workdir import WORK, plan_path
from curation.stages.language import changed_models, models_of

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
    against: dict[str, str]
    models: dict[str, dict[str, str]]
    tokenizer: dict[str, Any]


def identity_of(recipe: Recipe, files: Sequence[SourceFile], tokenizer: Tokenizer | None) -> Identity:
    return Identity(
        as_builtins(recipe),
        [file.without_secrets() for file in files],
        against_digests(recipe),
        models_of(recipe.stage_names, recipe.stages),
        tokenizer.identity if tokenizer else {},
    )


def identity_in(report: dict[str, Any]) -> Identity:
    """What a report says of its run; `against`, `models`, `tokenizer` are not in those of the first versions."""
    files = msgspec.convert(report["files"], list[SourceFile])
    return Identity(
        _as_today(report["recipe"]), files, *(report.get(key, {}) for key in ("against", "models", "tokenizer"))
    )


def _as_today(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe of a report with today's names and defaults, as far as it is one today."""
    today = with_new_names(recipe)
    if "seed" in recipe["output"]:
        _leave_out_weights_of_one(today)
    try:
        return as_builtins(convert_recipe(today))
    except RecipeError:
        return recipe


def _leave_out_weights_of_one(recipe: dict[str, Any]) -> None:
    """What version 0.2.0 stored where no input had a weight: 1 for each, by tokens."""
    blend = recipe["output"]["blend"]
    if blend.get("by") == "tokens" and all(entry.get("blend_weight") == 1 for entry in recipe["input"]):
        del blend["by"]
        for entry in recipe["input"]:
            del entry["blend_weight"]


def check_same(folder: Path, before: Identity, now: Identity) -> None:
    """OutputError where what a folder's plan or report says of its run is not this run's identity."""
    files = _without_new_facts(before.files, now.files)
    changes = changed_keys(before.recipe, now.recipe) + _changed_files(before.files, files)
    changes += changed_keys(before.against, now.against, "against")
    changes += changed_models(before.models, now.models)
    changes += changed_keys(before.tokenizer, now.tokenizer, "tokenizer")
    if changes:
        shown_changes = ", ".join(changes[:SHOWN_CHANGES]) + (", ..." if len(changes) > SHOWN_CHANGES else "")
        raise OutputError(
            f"{folder} belongs to another recipe or input; changed: {shown_changes}. Give a new --output, or --force"
        )


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
        compared = Identity(content.recipe, content.files, content.against, content.models, content.tokenizer)
        check_same(folder, compared, identity)
        plan = as_plan(content, _read_now(folder, content, files))
    else:
        plan = Plan(
            version=__version__, recipe=recipe, files=identity.files, slices=cut(ready), against=identity.against,
            models=identity.models, tokenizer=identity.tokenizer,
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
