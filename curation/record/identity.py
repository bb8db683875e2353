# SPDX-License-Identifier: Apache-2.0
"""The identity of a run: the facts that a rerun must share with the plan or the report in its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from curation import __version__
from curation.base.errors import IntegrityError, OutputError
from curation.reading.formats import format_of
from curation.reading.source_files import SourceFile
from curation.reading.urls import is_remote
from curation.recipes.changes import changed_keys, completed
from curation.recipes.recipe import Recipe, as_builtins
from curation.stages import Stage
from curation.stages.cells import GLOBAL
from curation.stages.checks import stage_errors
from curation.stages.own_code import files_of
from curation.tokens.tokenization import Tokenizer

FACTS_OF_FILES = {"bytes": "size", "modified_ns": "modified time"}
SHOWN_SETTINGS, SHOWN_FACTS = 10, 4  # most settings, and most other facts, that a message names
INPUT = "input "  # prefix of the name of an input; no name of a stage begins so


class Identity(NamedTuple):
    """The facts that a rerun must share with the plan or the report in its folder."""

    recipe: dict[str, Any]
    files: list[SourceFile]
    stage_files: dict[str, dict[str, str]]  # stage -> path -> SHA-256
    tokenizer: dict[str, Any]
    stage_revisions: dict[str, int]  # stage -> revision above 1

    @property
    def digest(self) -> str:
        """The SHA-256 of the identity and of the version of this program."""
        facts = [__version__, *map(msgspec.to_builtins, self)]
        return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def revisions_of(recipe: Recipe) -> dict[str, int]:
    """Return the revisions above 1 of the stages of a recipe, by name."""
    stages = zip(recipe.stage_names, recipe.stages, strict=True)
    return {name: stage.revision for name, stage in stages if stage.revision > 1}


def identity_of(
    recipe: Recipe, files: Sequence[SourceFile], stage_files: dict[str, dict[str, str]], tokenizer: Tokenizer | None
) -> Identity:
    """Return the identity of a run. URLs of its files have no passwords or signed queries."""
    replace = msgspec.structs.replace  # results do not depend on whether a server can send parts of a file
    shown_files = [replace(file.without_secrets(), is_whole=False) if is_remote(file.path) else file for file in files]
    known = tokenizer.identity if tokenizer else {}
    return Identity(as_builtins(recipe), shown_files, stage_files, known, revisions_of(recipe))


def identity_in(report: dict[str, Any]) -> Identity:
    """Return the identity of the run in a report."""
    files = msgspec.convert(report["files"], list[SourceFile])
    facts = (report[name] for name in ("stage_files", "tokenizer", "stage_revisions"))
    return Identity(completed(report["recipe"]), files, *facts)


def check_same(
    folder: Path | str, before: Identity, now: Identity, advice: str = "Give a new --output, or --force"
) -> None:
    """Raise OutputError, naming the changes, if an output folder or prefix has the identity of another run."""
    settings, facts = changed_keys(before.recipe, now.recipe), changed_facts(before, now)
    shown = settings[:SHOWN_SETTINGS] + facts[:SHOWN_FACTS]
    if shown:
        more = len(settings) + len(facts) - len(shown)
        shown_changes = ", ".join(shown) + (f" and {more:,} more" if more else "")
        raise OutputError(f"{folder} belongs to another recipe or input; changed: {shown_changes}. {advice}")


def changes_between(before: Identity, now: Identity) -> list[str]:
    """Return one phrase per setting and fact that differs between two identities."""
    return changed_keys(before.recipe, now.recipe) + changed_facts(before, now)


def changed_facts(before: Identity, now: Identity) -> list[str]:
    """Return one phrase per fact besides the recipe that differs between two identities."""
    changes = _changed_files(before.files, _without_new_facts(before.files, now.files))
    changes += changed_stage_files(before.stage_files, now.stage_files)
    changes += changed_keys(before.tokenizer, now.tokenizer, "tokenizer")
    if before.recipe["stages"] == now.recipe["stages"]:  # other stages have other revisions
        changes += changed_keys(before.stage_revisions, now.stage_revisions, "stage_revisions")
    return changes


def changed_stage_files(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return one phrase per file that differs between two `stage_files`."""
    return [
        f"{path} of stage {name} ({'content' if path in old and path in new else 'gone' if path in old else 'new'})"
        for name in dict.fromkeys([*before, *now])
        for old, new in [(before.get(name, {}), now.get(name, {}))]
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]


def check_stage_files(names: Sequence[str], stages: Sequence[Stage], planned: Mapping[str, Mapping[str, str]]) -> None:
    """Raise IntegrityError if a file that these stages read has changed since the run was planned.

    Prepared stages may read fewer files than planned, and also files that they wrote themselves, which are not
    compared.
    """
    known = {name: planned.get(name, {}) for name in names}
    now = {
        name: {path: digest for path, digest in files_of(stage).items() if path in known[name]}
        for name, stage in zip(names, stages, strict=True)
    }
    before = {name: {path: known[name][path] for path in files} for name, files in now.items()}
    if changes := changed_stage_files(before, now):
        advice = "Put it back, then run again"
        if any(change.startswith(GLOBAL) for change in changes):
            advice += ". If the stage itself changes the value, make the value inside its function"
        raise IntegrityError(f"changed during the run: {', '.join(changes)}. {advice}")


def facts_of_stages(names: Sequence[str], stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
    """Return stage -> `computed_with()` of the stages whose results depend on the machine."""
    found = {}
    for name, stage in zip(names, stages, strict=True):
        with stage_errors(stage):
            if facts := stage.computed_with():
                found[name] = facts
    return found


def facts_of_files(files: Iterable[SourceFile]) -> dict[str, dict[str, str]]:
    """Return for each input (`input NAME`) the packages on which the texts of its files depend, with their versions."""
    kinds = {(file.source, file.format): file for file in files}  # an input has one `extract`
    found: dict[str, dict[str, str]] = {}
    for (source, _), file in kinds.items():
        if facts := format_of(file).computed_with(file):
            found[f"{INPUT}{source}"] = facts
    return found


def check_computed_with(
    facts_now: Mapping[str, Mapping[str, str]], planned: Mapping[str, Mapping[str, str]], run: str
) -> None:
    """Raise OutputError if a stage or an input would be computed with other facts here than where the run began. Scores
    of two devices must not mix, nor texts of two versions of a library. `run` names the run in the message."""
    for name, facts in facts_now.items():
        before = planned.get(name, {})
        if changes := [key for key in {**before, **facts} if before.get(key) != facts.get(key)]:
            then, now = (", ".join(f"{key} {known.get(key, 'none')}" for key in changes) for known in (before, facts))
            what = name if name.startswith(INPUT) else f"stage {name}"
            raise OutputError(
                f"{run} began to compute the {what} with {then}; here it would be {now}. The results "
                "would differ: resume where the run began, or give a new --output, or --force"
            )


def _without_new_facts(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the files `now`, without versions of URLs (ETag, date) that were unknown in `before`."""
    known = {file.path: file.version for file in before}
    return [msgspec.structs.replace(file, version="") if not known.get(file.path, "?") else file for file in now]


def _changed_files(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[str]:
    if before == now:
        return []
    old, new = ({file.path: file for file in files} for files in (before, now))
    changes = [
        f"file {path} ({_change_of(old.get(path), new.get(path))})"
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]
    return changes or ["the number or the order of the files"]


def _change_of(before: SourceFile | None, now: SourceFile | None) -> str:
    if before is None or now is None:
        return "gone" if before else "new"
    keys = [key for key in SourceFile.__struct_fields__ if getattr(before, key) != getattr(now, key)]
    return ", ".join(FACTS_OF_FILES.get(key, key) for key in keys)
