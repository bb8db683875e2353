# SPDX-License-Identifier: Apache-2.0
"""What commands that run a recipe share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from curation.cli.options import NOTHING_KEPT
from curation.cli.voice import Voice

if TYPE_CHECKING:
    from curation.recipe import Recipe
    from curation.running.run import RunResult

RUN_OPTIONS = ("engine", "workers", "scheduler", "force")
RESULT_KEYS = ("documents", "bytes", "seconds", "warnings")  # of report.json


def load_within_limits() -> None:
    """Checks the memory and configures the allocators, before a command loads the libraries that run a recipe.
    OutOfMemoryError where memory is too short for the libraries."""
    from curation.running.memory import check_room, configure_allocators, read_limits

    check_room(read_limits(), loaded=False)
    configure_allocators()


def run_recipe(recipe: Recipe, folder: str, options: argparse.Namespace) -> RunResult:
    """Runs a recipe in sight of the user, and prints the funnel."""
    from curation.running.run import run

    voice: Voice = options.voice
    settings = {name: getattr(options, name) for name in RUN_OPTIONS}
    finished = run(recipe, folder, progress=voice.progress(), **settings)
    if finished.already_complete:
        voice.tell(f"already complete: {folder}")
    else:
        _show(finished, folder, options)
    return finished


def _show(finished: RunResult, folder: str, options: argparse.Namespace) -> None:
    """The funnel, which has the warnings; where nobody reads it, these alone."""
    voice, report = options.voice, finished.report
    if voice.is_for_people:
        from curation.running.report_text import print_funnel

        print_funnel(report)
        voice.tell(f"{report['seconds']:.1f} s; everything is in {folder}/, the counts in {folder}/report.json")
        return
    for warning in report["warnings"]:
        if warning != finished.nothing_kept or options.allow_empty:  # which is an error, and said by `conclude`
            voice.warn(warning)


def conclude(finished: RunResult, folder: str, options: argparse.Namespace, **more: Any) -> int:
    """Prints the result for programs, and gives the exit code: NOTHING_KEPT where no document is kept, after the likely
    cause on standard error; 0 for any other run."""
    voice: Voice = options.voice
    code = NOTHING_KEPT if finished.nothing_kept and not options.allow_empty else 0
    if code:
        voice.fail(finished.nothing_kept, code)
    content = finished.report
    found = {key: content[key] for key in RESULT_KEYS}
    found |= {"tokens": content["tokens"].get("count", 0), "stages": _stages(content)}
    return voice.result(
        options.command.name, code,
        output=folder, report=f"{folder}/report.json", already_complete=finished.already_complete, **found, **more,
    )  # fmt: skip


def _stages(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: stage[key] for key in ("name", "documents_out", "reasons")} for stage in content["stages"]]
