# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: what is fixed before it begins, and what tells it from any other run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from curation import __version__
from curation.errors import OutputError
from curation.files import read_json, write_json
from curation.packing.blends import check_folder
from curation.packing.forms.writing import check_forms
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.reading.inputs import Slice, SourceFile
from curation.recipe import Recipe, as_builtins
from curation.running.barriers import against_digests
from curation.running.workdir import check_same, plan_path
from curation.stages.language import models_of


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed before a run and followed by every rerun."""

    version: str
    recipe: Recipe
    files: list[SourceFile]
    slices: list[Slice]
    against: dict[str, str]  # stage -> SHA-256 of the saved index that it goes by
    models: dict[str, dict[str, str]]  # stage -> file, sha256 and licence of its model
    tokenizer: dict[str, Any]  # SHA-256 of its vocabulary, ids of end and begin; empty where none is used


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


def identity_of(recipe: Recipe, files: Sequence[SourceFile], tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What makes a run this run: the part of its plan and of its report that a rerun is compared with."""
    return {
        "recipe": as_builtins(recipe),
        "files": [file.as_shown() for file in files],
        "against": against_digests(recipe),
        "models": models_of(recipe.stage_names, recipe.stages),
        "tokenizer": tokenizer.identity if tokenizer else {},
    }


def make_plan(
    folder: Path, recipe: Recipe, identity: dict[str, Any], files: list[SourceFile], ready: list[SourceFile],
    cut: Callable[[Sequence[SourceFile]], list[Slice]],
) -> Plan:  # fmt: skip
    """The plan of an unfinished run in this folder, or a new one, on disk; `ready`: with data sets as local files."""
    path = plan_path(folder)
    stored = read_json(path)
    if stored is not None:
        check_same(folder, stored, identity)
        if stored["version"] != __version__:
            raise OutputError(f"{folder} was begun by version {stored['version']}, this is {__version__}; use --force")
        return msgspec.convert(stored, Plan)
    compared = {name: identity[name] for name in ("against", "models", "tokenizer")}
    plan = Plan(version=__version__, recipe=recipe, files=files, slices=cut(ready), **compared)
    write_json(path, msgspec.to_builtins(plan) | identity)
    return plan
