# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: one run at a time, and what it already holds. Only what runs have made is deleted in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from curation.errors import InputError, OutputError, counted
from curation.files import TEMPORARY, make_folder, read_json, remove, sync_folder
from curation.packing.blends import INDEX_FOLDER
from curation.reading.inputs import HUB_MARK, RUN_PLAN, RUN_REPORT, is_run
from curation.reading.streams import shown
from curation.recipe import changed_keys
from curation.running.progress import Silent
from curation.running.report_schema import OUTPUT_NAMES, wrong_in_report
from curation.stages.language import changed_models

(WORK, PLAN), REPORT = RUN_PLAN, RUN_REPORT
OWN_NAMES = (WORK, *OUTPUT_NAMES, INDEX_FOLDER, REPORT, "report.html")
FACTS_OF_FILES = {"bytes": "size", "modified_ns": "modified time"}
SHOWN_CHANGES, SHOWN_GONE = 10, 5


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
    inside = f"{folder}{os.sep}"
    for given in paths:
        path = os.path.realpath(given.removeprefix("file://").removeprefix(HUB_MARK))
        if path.startswith(inside) and _is_own(path.removeprefix(inside).split(os.sep)[0]):
            raise InputError(f"input {given} lies in the output folder {folder}; give another --output")


def find_finished(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The report of the folder's finished run; None where there is none, OutputError for one that no run has written,
    of another identity, or whose outputs are gone."""
    finished: dict[str, Any] | None = read_json(folder / REPORT)
    if finished is not None:
        if wrong := wrong_in_report(finished):
            raise OutputError(f"{folder}: {wrong}. Give a new --output, or --force")
        check_same(folder, finished, identity)
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


def check_same(folder: Path, before: dict[str, Any], identity: dict[str, Any]) -> None:
    """OutputError where what a folder's plan or report says of its run is not this run's `identity`."""
    changes = changed_keys(before["recipe"], identity["recipe"]) + _changed_files(before["files"], identity["files"])
    changes += changed_keys(before.get("against", {}), identity["against"], "against")
    changes += changed_models(before.get("models", {}), identity["models"])
    changes += changed_keys(before.get("tokenizer", {}), identity["tokenizer"], "tokenizer")
    if changes:
        shown_changes = ", ".join(changes[:SHOWN_CHANGES]) + (", ..." if len(changes) > SHOWN_CHANGES else "")
        raise OutputError(
            f"{folder} belongs to another recipe or input; changed: {shown_changes}. Give a new --output, or --force"
        )


def _changed_files(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]]) -> list[str]:
    old, new = ({shown(file["path"]): file for file in files} for files in (before, now))
    pairs = ((path, old.get(path, {}), new.get(path, {})) for path in sorted({*old, *new}))
    return [f"file {path} ({_what_changed(was, is_)})" for path, was, is_ in pairs if was != is_]


def _what_changed(was: dict[str, Any], is_: dict[str, Any]) -> str:
    if not was or not is_:
        return "gone" if was else "new"
    keys = [key for key in {**was, **is_} if was.get(key) != is_.get(key)]
    return ", ".join(FACTS_OF_FILES.get(key, key) for key in keys)


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
