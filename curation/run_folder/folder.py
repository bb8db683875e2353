# SPDX-License-Identifier: Apache-2.0
"""The output folder of a run: its lock, allowed files, finished runs, and the paths of a moved folder."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from curation.errors import InputError, OutputError, counted
from curation.packing.blends import INDEX_FOLDER
from curation.reading.inputs import HUB_MARK, entries_by_name
from curation.reading.paths import RUN_PLAN, RUN_REPORT, RealPaths, is_run
from curation.recipes.recipe import Recipe
from curation.run_folder.finished_report import read_report
from curation.run_folder.report_schema import CARD, OUTPUT_NAMES
from curation.system.files import TEMPORARY, check_name, make_folder, remove, remove_temporary, sync_folder
from curation.system.leases import fence
from curation.system.os_errors import PASSING, explain
from curation.system.progress import Progress

WORK = RUN_PLAN[0]

PLAN, REPORT = RUN_PLAN[1], RUN_REPORT
OWN_NAMES = (WORK, *OUTPUT_NAMES, INDEX_FOLDER, REPORT, "report.html")
# The first lines of a run's README.md. Another file of this name is of a person, and no run deletes it.
CARD_BEGINS = "---\n# `curate run` writes this file. Another run with --force replaces it."
MAX_SHOWN_MISSING = 5


@contextmanager
def locked(folder: Path, progress: Progress | None = None, *, shared: bool = False) -> Iterator[None]:
    """Create the folder and lock it while the context is open. The kernel releases the lock of a dead process.

    `shared`: processes with a shared lock exclude only those without one.

    OutputError if another process holds the lock, if `folder` cannot be created, or if it lies in the outputs of
    another run.
    """
    _refuse_outputs_of_runs(folder)
    try:
        make_folder(folder)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError) and not os.path.islink(error.filename):
            raise OutputError(f"{error.filename} is a file; give another --output, which must be a folder") from None
        if error.errno in PASSING:
            raise
        remedy = "Give another --output" if error.errno == errno.ENOENT else ""
        raise OutputError(f"the output folder cannot be created: {explain(error, remedy)}") from None
    descriptor = os.open(folder, os.O_RDONLY)  # the folder itself is locked, so no lock file remains
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"another run is writing to {folder}; wait for it, or give another --output") from None
        except OSError as error:  # Lustre without -o flock, some NFS
            (progress or Progress()).log(
                f"the file system of {folder} has no locks ({error.strerror}): do not start a second run there"
            )
        yield
    finally:
        os.close(descriptor)


def _refuse_outputs_of_runs(folder: Path) -> None:
    """OutputError for a folder inside the outputs of a run: `verify` rejects it there, and `--force` deletes it."""
    below = folder
    for parent in folder.parents:
        if _is_own(below.name) and is_run(str(parent)):
            raise OutputError(f"{folder} lies in {below.name}/ of the run in {parent}; give another --output")
        below = parent


def sweep(folder: Path) -> None:
    """Delete the temporary files of killed runs below a folder."""
    fence()
    for path in [*folder.rglob(f"*{TEMPORARY}")]:
        remove_temporary(path)


def plan_path(folder: Path) -> Path:
    """Return the path of the plan in the folder of a run."""
    return folder / WORK / PLAN


def check_inputs(folder: Path, paths: Iterable[str]) -> None:
    """Raise InputError if an input lies among the files that the run writes and `--force` deletes."""
    inside, real = f"{folder}{os.sep}", RealPaths()
    for input_path in paths:
        path = real(input_path.removeprefix("file://").removeprefix(HUB_MARK))
        if path.startswith(inside) and _is_own(path.removeprefix(inside).split(os.sep)[0]):
            raise InputError(f"input {input_path} lies in the output folder {folder}; give another --output")


def check_names(recipe: Recipe, folder: Path) -> None:
    """Raise OutputError if the name of an input is too long to be part of file names."""
    for name in entries_by_name(recipe.input):
        check_name(folder / "tokens", f"{name}_train_00000_text_document.bin", f"the input's name: {name[:40]!r}...")


def find_finished(folder: Path) -> dict[str, Any] | None:
    """Return the report of the finished run in a folder; None if there is none.

    IntegrityError if the report has changed, OutputError if its outputs are missing.
    """
    if (report := read_report(folder)) is not None:
        _check_exist(folder, report["outputs"])
    return report


def _check_exist(folder: Path, outputs: Collection[str]) -> None:
    missing = [name for name in outputs if not (folder / name).is_file()]
    if missing:
        named = ", ".join(missing[:MAX_SHOWN_MISSING]) + (", ..." if len(missing) > MAX_SHOWN_MISSING else "")
        raise OutputError(
            f"missing from the finished run in {folder}: {named} ({len(missing):,} of "
            f"{counted(len(outputs), 'output')}). Give a new --output, or --force, which writes them again"
        )


def check_empty(folder: Path, force: bool) -> None:
    """Raise OutputError if a folder has files that a new run must not delete: foreign files, or any without `force`."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.name != WORK)
    foreign = [name for name in names if not _is_own(name) or (name == CARD and not _is_card(folder / name))]
    if foreign or (names and not force):
        advice = "give a new --output" + ("" if foreign else ", or --force")
        raise OutputError(f"{folder} is not empty (it has {', '.join((foreign or names)[:5])}); {advice}")


def _is_own(name: str) -> bool:
    """Whether a run writes a file or folder of this name, or a temporary one that becomes it."""
    return name in OWN_NAMES or (name.endswith(TEMPORARY) and any(name.startswith(f"{own}.") for own in OWN_NAMES))


def _is_card(path: Path) -> bool:
    begins = CARD_BEGINS.encode()
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(begins)) == begins
    return False


def bytes_of_run(folder: Path) -> int:
    """Return the bytes on disk of the files that runs have written in a folder, without temporary files."""
    blocks = 0
    for own in OWN_NAMES:
        for path in (folder / own, *(folder / own).rglob("*")):
            with suppress(FileNotFoundError):  # a run that has not ended deletes files
                blocks += path.stat().st_blocks * (path.is_file() and not path.name.endswith(TEMPORARY))
    return blocks * 512  # the unit of st_blocks on Linux


def discard(folder: Path) -> None:
    """Delete all files that runs write in a folder.

    Report and plan are deleted and synced first. A kill or power cut in between leaves no report or done-record of
    deleted files.
    """
    for path in (folder / REPORT, plan_path(folder)):
        if path.exists():
            remove(path)
            sync_folder(path.parent)
    for path in list(folder.iterdir()):
        if _is_own(path.name):
            remove(path)
