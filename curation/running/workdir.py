# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: one run at a time, and what it already holds. Only what runs have made is deleted in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curation.errors import InputError, OutputError, counted
from curation.files import TEMPORARY, check_name, make_folder, read_json, remove, sync_folder
from curation.packing.blends import INDEX_FOLDER
from curation.reading.inputs import HUB_MARK, entries_by_name
from curation.reading.paths import RUN_PLAN, RUN_REPORT, RealPaths, is_run
from curation.recipe import Recipe
from curation.running.progress import Silent
from curation.running.report_schema import OUTPUT_NAMES, wrong_in_report

(WORK, PLAN), REPORT = RUN_PLAN, RUN_REPORT
OWN_NAMES = (WORK, *OUTPUT_NAMES, INDEX_FOLDER, REPORT, "report.html")
SHOWN_GONE = 5


@contextmanager
def locked(folder: Path, progress: Silent | None = None) -> Iterator[None]:
    """Holds the folder for one run. The kernel drops the lock with the process, so that a crash leaves none."""
    _refuse_outputs_of_runs(folder)
    try:
        make_folder(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"{error.filename} is a file; give another --output, which must be a folder") from None
    descriptor = os.open(folder, os.O_RDONLY)  # the folder itself is locked: no file to be left behind
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"another run is writing to {folder}; wait for it, or give another --output") from None
        except OSError as error:  # Lustre without -o flock, some NFS
            (progress or Silent()).say(
                f"the file system of {folder} cannot lock it ({error.strerror}): start no second run there"
            )
        yield
    finally:
        os.close(descriptor)


def _refuse_outputs_of_runs(folder: Path) -> None:
    """What stands among the outputs of a run is a stranger there to `verify`, and goes with them by `--force`."""
    below = folder
    for parent in folder.parents:
        if _is_own(below.name) and is_run(str(parent)):
            raise OutputError(f"{folder} lies in {below.name}/ of the run in {parent}; give another --output")
        below = parent


def sweep(folder: Path) -> None:
    """Deletes the temporary files that killed runs have left below a folder."""
    for path in folder.rglob(f"*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def plan_path(folder: Path) -> Path:
    return folder / WORK / PLAN


def check_inputs(folder: Path, paths: Iterable[str]) -> None:
    """InputError for an input that lies where the run writes, and where `--force` deletes."""
    inside, real = f"{folder}{os.sep}", RealPaths()
    for given in paths:
        path = real(given.removeprefix("file://").removeprefix(HUB_MARK))
        if path.startswith(inside) and _is_own(path.removeprefix(inside).split(os.sep)[0]):
            raise InputError(f"input {given} lies in the output folder {folder}; give another --output")


def check_names(recipe: Recipe, folder: Path) -> None:
    """OutputError where the name of an input is too long to become part of the names of files."""
    for name in entries_by_name(recipe.input):
        check_name(folder / "tokens", f"{name}_train_00000_text_document.bin", f"the input's name: {name[:40]!r}...")


def find_finished(folder: Path) -> dict[str, Any] | None:
    """The report of the folder's finished run; None where there is none, OutputError for one that no run has written,
    or whose outputs are gone."""
    finished: dict[str, Any] | None = read_json(folder / REPORT)
    if finished is not None:
        if wrong := wrong_in_report(finished):
            raise OutputError(f"{folder}: {wrong}. Give a new --output, or --force")
        _check_there(folder, finished["outputs"])
    return finished


def _check_there(folder: Path, outputs: Collection[str]) -> None:
    gone = [name for name in outputs if not (folder / name).exists()]
    if gone:
        named = ", ".join(gone[:SHOWN_GONE]) + (", ..." if len(gone) > SHOWN_GONE else "")
        raise OutputError(
            f"gone from the finished run in {folder}: {named} ({len(gone):,} of {counted(len(outputs), 'output')}). "
            "Give a new --output, or --force, which makes them anew"
        )


def check_empty(folder: Path, force: bool) -> None:
    """OutputError for a folder that holds what is not `force`'s to delete."""
    found = sorted(entry.name for entry in folder.iterdir() if entry.name != WORK)
    foreign = [name for name in found if not _is_own(name)]
    if foreign or (found and not force):
        advice = "give a new --output" + ("" if foreign else ", or --force")
        raise OutputError(f"{folder} is not empty (it has {', '.join((foreign or found)[:5])}); {advice}")


def _is_own(name: str) -> bool:
    """Whether a name in the folder of a run is one of a run's, or of what was to become one."""
    return name in OWN_NAMES or (name.endswith(TEMPORARY) and any(name.startswith(f"{own}.") for own in OWN_NAMES))


def discard(folder: Path) -> None:
    """Deletes all that runs leave in a folder. The files that make it a run go first, and for good: a kill or a power
    cut in between leaves neither a report nor done-records that speak of files that are gone."""
    for path in (folder / REPORT, plan_path(folder)):
        if path.exists():
            remove(path)
            sync_folder(path.parent)
    for path in list(folder.iterdir()):
        if _is_own(path.name):
            remove(path)
