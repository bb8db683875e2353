# SPDX-License-Identifier: Apache-2.0
"""Deletion of folders by tasks: the system takes a tenth of a second or more to free a gigabyte.

A task deletes the files of a folder whose names have a given hash. So tasks need no list of names, and a run that was
killed starts the same tasks again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from curation.base.system.files import remove
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.leases import ARRAY, fence
from curation.base.system.steps import Count
from curation.record.folder import WORK

if TYPE_CHECKING:
    from curation.record.context import RunContext

REPORT = "report.json"  # if it is in the work folder, all outputs are written
MIN_TASK_FILES, MAX_TASK_FILES = 16, 1024  # a task lists the whole folder
TASKS_PER_WORKER = 2
FENCE_FILES = 64  # files deleted between two checks of the lease
WHOLE_RUN = -1  # key of the tasks that delete the work folder

Share = tuple[int, Path, int, int]


def delete_work(context: RunContext) -> None:
    """Delete the large files of the work folder of a run. Its plan, its report and its leases are kept."""
    with os.scandir(context.work) as entries:
        folders = sorted(Path(entry) for entry in entries if entry.is_dir() and entry.name != ARRAY)
    _delete_files(context, WHOLE_RUN, folders)


def delete_scratch(context: RunContext, stage: int, folder: Path) -> None:
    """Delete the folder of the temporary files of a corpus stage."""
    if folder.exists():
        _delete_files(context, stage, [folder])
        remove(folder)  # only empty folders are left


def stored_report(folder: Path) -> Path:
    """Return the path of the report in the work folder. It exists from the last output to the deletion of the
    folder."""
    return folder / WORK / REPORT


def _delete_files(context: RunContext, key: int, folders: Iterable[Path]) -> None:
    tasks, done = list(_shares(folders, context.workers)), list[int]()
    with context.progress.watch("deleting temporary files", len(tasks), lambda: Count(len(done)), is_loop=True):
        context.session.run(partial(delete_share, key), tasks, lambda number, *_: done.append(number))


def _shares(folders: Iterable[Path], workers: int) -> Iterator[Share]:
    """Yield the tasks that delete the files below folders. A task has its number, a folder, the number of its share of
    the folder's files, and the number of shares."""
    found = [(Path(folder), len(names)) for top in folders for folder, _, names in os.walk(top)]
    per_task = sum(files for _, files in found) // (TASKS_PER_WORKER * workers)
    per_task = min(max(per_task, MIN_TASK_FILES), MAX_TASK_FILES)
    shares = ((folder, share, of) for folder, files in found for of in [-(-files // per_task)] for share in range(of))
    for number, share in enumerate(shares):
        yield number, *share


def delete_share(key: int, task: Share) -> None:
    """Delete a share of the files of a folder. The key distinguishes the deletions of a run.

    Raises LeaseLostError if this process has lost the lease of the task.
    """
    _, folder, share, shares = task
    with suppress(FileNotFoundError):  # another process has deleted the folder
        names = [name for name in os.listdir(folder) if crc32(os.fsencode(name)) % shares == share]
        for index, name in enumerate(names):
            if index % FENCE_FILES == 0:
                check_interrupts()
                fence()
            with suppress(FileNotFoundError, IsADirectoryError, PermissionError):  # `remove` reports the last one
                os.unlink(folder / name)
