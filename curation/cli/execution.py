# SPDX-License-Identifier: Apache-2.0
"""Steps shared by all commands that run a recipe."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from curation.base.errors import counted
from curation.base.system import interrupts
from curation.base.system.terminal import fitted, printable_line
from curation.cli.console import Console
from curation.cli.options import NOTHING_KEPT

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe
    from curation.results.finished.run_result import RunResult

RUN_OPTIONS = ("engine", "workers", "scheduler", "force", "force_disk")
RESULT_KEYS = ("documents", "bytes", "seconds", "warnings")  # of report.json


def prepare_memory() -> None:
    """Check the memory limits and configure the allocators, before a command loads the libraries of a run.

    Raises OutOfMemoryError if memory is too small for the libraries.
    """
    from curation.base.system.memory import check_resources, configure_allocators, read_limits

    check_resources(read_limits(), loaded=False)
    configure_allocators()
    interrupts.listen()


def run_recipe(recipe: Recipe, folder: str, options: argparse.Namespace, **more: Any) -> RunResult:
    """Run a recipe with a progress display, print the funnel, and return the result. `more` are arguments of `run`."""
    from curation.running.run import run

    console: Console = options.console
    settings = {name: getattr(options, name) for name in RUN_OPTIONS}
    finished = run(recipe, folder, progress=console.progress(), **settings, **more)
    if finished.already_complete:
        kept = counted(finished.report["documents"]["kept"], "document")
        advice = "" if more.get("array_task") or finished.address else "; --force runs it again"
        console.info(f"already complete: {finished.address or folder}, {kept} kept{advice}")
    else:
        _show(finished, str(finished.folder) if finished.address else folder, options)
    return finished


def _show(finished: RunResult, folder: str, options: argparse.Namespace) -> None:
    """Print the funnel, which includes the warnings; with output for programs, print only the warnings."""
    console, report = options.console, finished.report
    if not options.allow_empty:  # `conclude` reports it as an error
        report = report | {"warnings": [text for text in report["warnings"] if text != finished.nothing_kept]}
    if options.output:
        own = f"curate show {shlex.quote(folder)}"
        report = report | {"warnings": [warning.replace("curate show DIR", own) for warning in report["warnings"]]}
    if console.is_for_people:
        from curation.results.report.text import print_funnel

        print_funnel(report, options.verbose)
        if options.output:
            for line in _end_lines(report, folder, options.verbose):
                console.info(*fitted(printable_line(line), sys.stdout).split("\n"))
        if finished.address:
            console.info(f"copied to {finished.address}; curate verify {finished.address} checks it")
        return
    for warning in report["warnings"]:
        console.warn(warning)


def _end_lines(report: dict[str, Any], folder: str, verbose: bool) -> list[str]:
    """Return lines with the files that a run wrote, and the commands that show them."""
    from curation.results.report.text import has_summary, saved_lines, totals

    written = [*dict.fromkeys(path.partition("/")[0] for path in report["outputs"]), "report.html"]
    looks = [f"{folder}/report.html in a browser"]
    if removed := _commonest_reason(report):
        looks.append(f"curate show {shlex.quote(folder)} --reason {shlex.quote(removed)}")
    if any(stage["finds_duplicates"] and stage["reasons"] for stage in report["stages"]):
        looks.append(f"curate show {shlex.quote(folder)} --what pairs")
    lines = [*totals(report), *saved_lines(report, folder)] if verbose or has_summary(report) else []
    lines += [f"{report['seconds']:.1f} s; wrote to {folder}/: {', '.join(written)}"]
    return [*lines, f"Look: {looks[0]}", *(f"      {look}" for look in looks[1:])]


def _commonest_reason(report: dict[str, Any]) -> str:
    """Return the reason for which most documents were removed; "" if no document was."""
    reasons: Counter[str] = Counter()
    for stage in report["stages"]:
        reasons.update(stage["reasons"])
    return max(reasons, key=reasons.__getitem__) if any(reasons.values()) else ""


def conclude(finished: RunResult, folder: str, options: argparse.Namespace, **more: Any) -> int:
    """Print the result for programs and return the exit code.

    The code is NOTHING_KEPT if no document is kept; then the likely cause is printed on standard error. Otherwise it is
    0.
    """
    console: Console = options.console
    code = NOTHING_KEPT if finished.nothing_kept and not options.allow_empty else 0
    if code:
        console.fail(finished.nothing_kept, code)
    content, folder = finished.report, finished.address or folder
    places = {"output": folder, "report": f"{folder}/report.json"} if options.output else {}
    result = {key: content[key] for key in RESULT_KEYS}
    result |= {"tokens": content["tokens"].get("count", 0), "stages": _stages(content)}
    return console.result(
        options.command.name, code,
        **places, already_complete=finished.already_complete, **result, **more,
    )  # fmt: skip


def _stages(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: stage[key] for key in ("name", "documents_out", "reasons")} for stage in content["stages"]]
