# SPDX-License-Identifier: Apache-2.0
"""The output folder of a run: its lock, allowed files, finished runs, and the paths of a moved folder."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from curation.base.errors import InputError, IntegrityError, OutputError, counted
from curation.base.system import locks
from curation.base.system.files import (
    TEMPORARY,
    check_name,
    delete,
    is_temporary,
    kind_of,
    make_folder,
    read_json,
    remove,
    remove_temporary,
    sync_folder,
)
from curation.base.system.leases import ARRAY, fence
from curation.base.system.os_errors import PASSING, explain
from curation.base.system.progress import Progress
from curation.reading.inputs import HUB_MARK, entries_by_name
from curation.reading.paths import RUN_KEYS, RUN_PLAN, RUN_REPORT, RealPaths, is_run
from curation.recipes.recipe import Recipe
from curation.record.finished_report import read_report
from curation.record.report_schema import CARD, OUTPUT_NAMES
from curation.tokens.blends import INDEX_FOLDER

WORK = RUN_PLAN[0]
FRAMES = "_frames"  # files of frames that are inputs; they are neither outputs nor files of a person

PLAN, REPORT = RUN_PLAN[1], RUN_REPORT
MARK = "made-by-curate-run"  # an empty file in the work folder
CENTROIDS = "centroids"  # folder in the outputs
COLLECTED = "collected"  # the folder of streamed data sets in the work folder
HTML = "report.html"
OWN_NAMES = (WORK, *OUTPUT_NAMES, INDEX_FOLDER, REPORT, HTML)
# Entries that versions without the mark write to the work folder before the plan, and how their plan begins.
BEFORE_PLAN = re.compile(rf"{COLLECTED}|{ARRAY}|({PLAN}\.|seen-).*\.tmp", re.DOTALL)
PLAN_BEGINS = '{"version":'
# Files that a run writes before its first task is finished. Other files may be hours of work.
WITHOUT_WORK = re.compile(rf"{MARK}|{PLAN}|job-[0-9a-f]{{16}}\.json|\d{{6,}}\.running")
# The first lines of a run's README.md. Another file of this name belongs to a person, and no run deletes it.
CARD_BEGINS = "---\n# `curate run` writes this file. Another run with --force replaces it."
MAX_SHOWN_MISSING = 5


@contextmanager
def locked(folder: Path, progress: Progress | None = None, *, shared: bool = False) -> Iterator[None]:
    """Create the folder and lock it while the context is open. The kernel releases the lock of a dead process.

    `shared`: processes with a shared lock exclude only processes without a shared lock.

    Raises OutputError if another process holds the lock, if `folder` cannot be created, or if `folder` lies in the
    outputs of another run.
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
    with ExitStack() as stack:
        operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        try:
            missing = stack.enter_context(locks.locked(folder, operation))  # the folder itself, so no lock file remains
        except BlockingIOError:
            raise OutputError(f"another run is writing to {folder}; wait for it, or give another --output") from None
        if missing:
            (progress or Progress()).log(
                f"the file system of {folder} has no locks ({missing.strerror}): do not start a second run there"
            )
        yield


def _refuse_outputs_of_runs(folder: Path) -> None:
    """Raise OutputError for a folder inside the outputs of a run, where `verify` rejects it and `--force` deletes
    it."""
    below = folder
    for parent in folder.parents:
        if _is_own(below.name) and is_run(str(parent)):
            raise OutputError(f"{folder} lies in {below.name}/ of the run in {parent}; give another --output")
        below = parent


def plan_path(folder: Path) -> Path:
    """Return the path of the plan. A resumed run compares this plan with its own."""
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
    """Return the report of the finished run in a folder; None if the folder has no report.

    Raises IntegrityError if the report has changed, OutputError if outputs that it names are missing, or if no run has
    written it.
    """
    if os.path.lexists(folder / REPORT) and not _is_of_run(folder):
        raise OutputError(f"{folder} is not empty (it has {REPORT}, which no run has written); give a new --output")
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
    """Raise OutputError if a folder has files that a new run must not delete: without `force`, all files except those
    of the work folder and of frames; with `force`, files that no run is known to have written."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.name not in (WORK, FRAMES))
    foreign = sorted(_foreign(folder, names))
    if foreign or (names and not force):
        advice = "give a new --output" + ("" if foreign else ", or --force")
        raise OutputError(f"{folder} is not empty (it has {', '.join((foreign or names)[:5])}); {advice}")


def _foreign(folder: Path, names: Collection[str]) -> Iterator[str]:
    """Yield the names of entries that no run has written: entries without the name of an output, and files that the
    report of a finished run lacks.

    In the folder of an unfinished run, every entry with the name of an output counts as written by the run.
    """
    is_of_run, has_card = _is_of_run(folder), _has_card(folder)
    yield from (name for name in names if not (is_of_run and _is_own(name)) or (name == CARD and not has_card))
    if outputs := _outputs(folder):
        for entry in own_entries(folder):
            name = os.path.relpath(entry.path, folder)
            is_part = name in outputs or name in (REPORT, HTML) or name.startswith(f"{WORK}{os.sep}")
            if entry.is_file() and not (is_part or is_cache(name, outputs) or is_temporary(entry.name)):
                yield name


def _is_of_run(folder: Path) -> bool:
    """Return whether a run, finished or not, has written to a folder. In other folders --force deletes nothing."""
    return bool(_outputs(folder)) or has_mark(folder) or _has_card(folder)


def _has_card(folder: Path) -> bool:
    return _begins(folder / CARD, CARD_BEGINS)


def _outputs(folder: Path) -> dict[str, Any]:
    """Return the outputs that the report of a finished run names; no outputs without such a report."""
    with suppress(IntegrityError):
        report = read_json(folder / REPORT)
        if isinstance(report, dict) and report.keys() >= RUN_KEYS and isinstance(report.get("outputs"), dict):
            return dict(report["outputs"])
    return {}


def is_cache(name: str, outputs: Collection[str]) -> bool:
    """Return whether a file is an index that Megatron or NeMo writes when it trains on a pair among the outputs."""
    prefix, separator, _ = name.partition("/cache/")
    return name.startswith(f"{INDEX_FOLDER}/") or (bool(separator) and f"{prefix}.idx" in outputs)


def _is_own(name: str, names: Collection[str] = OWN_NAMES) -> bool:
    """Return whether a name is among `names`, or is the name of a temporary file or folder that is renamed to one of
    them."""
    return name in names or (is_temporary(name) and any(name.startswith(f"{own}.") for own in names))


def _begins(path: Path, begin: str) -> bool:
    if not path.is_file():  # reading a pipe may never end
        return False
    with open(path, "rb") as file:
        return file.read(len(begin.encode())) == begin.encode()


def own_entries(
    folder: Path, names: Collection[str] = OWN_NAMES, levels: float = math.inf
) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder that have one of `names`, and the entries below them, on at most `levels` levels.
    Links are not followed. Entries that are deleted meanwhile are left out."""
    top = (os.fspath(folder), levels)
    pending = [top]
    while pending:
        found = pending.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(found[0]) as entries:
            for entry in entries:
                if found is not top or _is_own(entry.name, names):
                    yield entry
                    if found[1] > 1 and entry.is_dir(follow_symlinks=False):
                        pending.append((entry.path, found[1] - 1))


def check_entries(folder: Path, names: Collection[str] = OWN_NAMES, levels: float = math.inf) -> None:
    """Raise OutputError if an entry of `own_entries` is a link, a pipe or a device.

    Writing and deleting in the folder rely on this check, because later calls follow paths.
    """
    for entry in own_entries(folder, names, levels):
        if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
            continue
        with suppress(FileNotFoundError):
            if entry.is_symlink():
                raise OutputError(
                    f"{entry.path} is a link, and a run does not write through links in its output folder. Put "
                    "the files in its place, or delete it. To use another disk, give an --output there (for s3://, a "
                    "--work)"
                )
            if not stat.S_ISREG(mode := entry.stat().st_mode):
                raise OutputError(
                    f"{entry.path} is {kind_of(mode)}, expected a file or folder. Delete it, or give another --output"
                )


def sweep(folder: Path, names: Collection[str] = OWN_NAMES) -> None:
    """Delete the temporary files of killed runs that are among `own_entries`."""
    fence()
    for path in [Path(entry.path) for entry in own_entries(folder, names) if is_temporary(entry.name)]:
        remove_temporary(path)


def bytes_of_run(folder: Path) -> int:
    """Return the bytes on disk of the files that runs have written in a folder, without temporary files."""
    blocks = 0
    for entry in own_entries(folder):
        with suppress(FileNotFoundError):  # a run that has not ended deletes files
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(TEMPORARY):
                blocks += entry.stat().st_blocks
    return blocks * 512  # the unit of st_blocks on Linux


def has_mark(folder: Path) -> bool:
    """Return whether the work folder in a folder belongs to a run. A work folder with the mark, or with the plan of an
    earlier version, belongs to a run."""
    return (folder / WORK / MARK).is_file() or _begins(plan_path(folder), PLAN_BEGINS)


def _is_work_of_run(folder: Path) -> bool:
    """Return whether a folder has no work folder, or one of a run: with a mark, or only with entries that earlier
    versions write before their plan."""
    if not os.path.lexists(folder / WORK):
        return True
    with suppress(FileNotFoundError, NotADirectoryError):
        names = os.listdir(folder / WORK)
        return has_mark(folder) or all(map(BEFORE_PLAN.fullmatch, names))
    return False


def check_work(folder: Path) -> None:
    """Raise OutputError if a folder has a work folder that no run has made."""
    if not _is_work_of_run(folder):
        raise OutputError(f"{folder} is not empty (it has {WORK}, which no run has written); give a new --output")


def mark_work(folder: Path) -> None:
    """Create the work folder of a run, and its mark, before anything else is written there."""
    mark = folder / WORK / MARK
    make_folder(mark.parent)
    if not mark.exists():
        mark.touch()
        sync_folder(mark.parent)


def clear_work(folder: Path, kept: Collection[str] = (COLLECTED, ARRAY)) -> None:
    """Mark the work folder of a run without a plan, and delete the rest of it except the entries `kept`: by default
    collected files, from which the next try resumes, and the leases of other processes that take part."""
    mark_work(folder)
    for path in [*(folder / WORK).iterdir()]:
        if path.name not in (MARK, *kept):
            remove(path)


def remove_work(folder: Path) -> None:
    """Delete the work folder of a finished run, its mark and plan last. So after an interruption, the next call knows
    that the remaining files belong to a run. All processes of an array call this function. A work folder that no run
    has made is not deleted."""
    fence()
    work = folder / WORK
    if work.is_dir() and _is_work_of_run(folder):
        with suppress(FileNotFoundError):  # another process of the array deleted the path first
            for path in [*work.iterdir()]:
                if path.name not in (MARK, PLAN):
                    delete(path)
        delete(work)


def has_work(folder: Path) -> bool:
    """Return whether a folder has more of a run than frames, plan and jobs, such as outputs, records of finished tasks,
    collected files, or leases of other processes."""
    if any(entry.name not in (WORK, FRAMES) for entry in folder.iterdir()) or not has_mark(folder):
        return True
    return any(
        not (entry.is_dir(follow_symlinks=False) or WITHOUT_WORK.fullmatch(entry.name) or is_temporary(entry.name))
        for entry in own_entries(folder, (WORK,))
    )


def delete_plan(folder: Path) -> None:
    """Delete the plan in a folder. The folder then counts as that of a run that has not begun."""
    remove(plan_path(folder))
    sync_folder(plan_path(folder).parent)


def discard(folder: Path) -> None:
    """Delete all files that runs write in a folder, except the mark of the work folder.

    The mark is written first: after a kill, it shows that the remaining files belong to a run. Then report and plan are
    deleted and the folder is synced, so that a kill or power cut leaves no report or done-record of deleted files.
    """
    mark_work(folder)
    for path in (folder / REPORT, plan_path(folder)):
        if path.exists():
            remove(path)
            sync_folder(path.parent)
    for path in [*folder.iterdir()]:
        if _is_own(path.name) and path.name != WORK:
            remove(path)
    clear_work(folder, kept=())
