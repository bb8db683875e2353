# SPDX-License-Identifier: Apache-2.0
"""Runs by processes that share only a folder, such as the tasks of a Slurm array: no scheduler, no connections.

One process holds the lease of the driver: it plans, publishes each phase, and writes the report. All processes,
including the driver, take tasks of the published phase. If the driver dies, another process takes over its lease and
resumes the run. The others end when the report is written.

    _work/array/driver.G           lease of the driver; G is its generation
    _work/array/phase-G.json       the phase that the driver of generation G published last
    _work/array/failed-G.json      the error that ended this driver
    _work/array/KEY/NNNNNN.G       lease of task NNNNNN of the phase KEY
    _work/array/KEY/NNNNNN.done    task NNNNNN is done
"""

from __future__ import annotations

import errno
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from curation.base import errors
from curation.base.contract import Session
from curation.base.errors import CurationError, EngineError, OutputError, counted
from curation.base.system.damage import reading
from curation.base.system.files import remove
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.leases import ARRAY, EXPIRE_SECONDS, Lease, Leases, guarded_by, lease_path
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.shared_files import exists, fresh, read_whole, stale
from curation.record.folder import (
    REPORT,
    WORK,
    check_empty,
    check_entries,
    check_work,
    find_finished,
    has_mark,
    locked,
    mark_work,
    plan_path,
)
from curation.record.stored_plan import Plan
from curation.running.planning.arguments import Call, find_resources
from curation.running.planning.plan import make_plan
from curation.running.tasks.boards import (
    FIRST_WAIT,
    MAX_WAIT,
    Board,
    PublishedPhase,
    decode_phase,
    in_ranges,
    published,
)
from curation.stages.warm_up import recipe_groups

DRIVER = "driver"
MIN_EXPIRE, MAX_EXPIRE = 0.1, 86_400.0
LEVELS = 2  # folder levels in which each process looks for links in an unfinished run; the driver looks in all levels
OR_FORCE = re.compile(r",? or --force\b")
MAX_LOSSES = 5  # files that the file system may lose between two phases; after more, this process ends


class ArrayTask(NamedTuple):
    """One process of a run without a scheduler: process `number` (from 1) of `of` processes."""

    number: int
    of: int
    expire_seconds: float = EXPIRE_SECONDS

    def __str__(self) -> str:
        return f"array task {self.number}/{self.of}"


def parse_array_task(text: str, expire_seconds: float) -> ArrayTask:
    """Return the array task that the text `NUMBER/COUNT` names. Raises EngineError for any other text."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if not match:
        raise EngineError(f"an array task is NUMBER/COUNT, such as 3/100, not {text!r}")
    number, count = int(match[1]), int(match[2])
    if not 1 <= number <= count:
        if not count:
            raise EngineError(f"array task {text}: the count must be 1 or more")
        # the maximum of an array that counts from 0 is one less than its tasks
        slurm = f"--array=1-{count}" if number else f"--array=1-{count + 1} in place of --array=0-{count}"
        raise EngineError(f"array task {text}: the number must be 1 to {count}. For a Slurm array write {slurm}")
    if not MIN_EXPIRE <= expire_seconds <= MAX_EXPIRE:
        raise EngineError(f"lease_seconds must be {MIN_EXPIRE:g} to {MAX_EXPIRE:,.0f}, not {expire_seconds:g}")
    return ArrayTask(number, count, expire_seconds)


class _Failure(msgspec.Struct):
    """The error that ended a driver. `number` and `path` are those of an OSError."""

    kind: str
    text: str
    task: str
    number: int = 0
    path: str = ""


@contextmanager
def advised_without_force() -> Iterator[None]:
    """Remove the advice to use `--force` from errors, since an array refuses `--force`."""
    try:
        yield
    except CurationError as error:
        if OR_FORCE.search(str(error)):
            error.args = (OR_FORCE.sub("", str(error)),)
        raise


Report = dict[str, Any]
Drive = Callable[[Call, "ArrayDriver"], Report]


def run_array_task(call: Call, task: ArrayTask, drive: Drive) -> tuple[Report, bool]:
    """Take part in a run until it is finished. Return its report, and whether this process has written the report.

    `drive` runs the recipe as the driver.
    """
    with locked(call.folder, call.progress, shared=True):
        is_new = not has_mark(call.folder)
        check_entries(call.folder, levels=math.inf if is_new or exists(call.folder / REPORT) else LEVELS)
        if report := find_finished(call.folder):
            return report, False
        if is_new:
            check_empty(call.folder, force=False)
        check_work(call.folder)
        mark_work(call.folder)
        member = Member(call, task, drive)
        holder = f"{task}, process {os.getpid()} on {os.uname().nodename}"
        with Leases(member.folder, holder, task.expire_seconds) as member.leases:
            report = member.run()
        if not member.wrote_report:
            call.progress.log(f"{task} ran {counted(member.own, 'task')}; another one has finished the run")
        return report, member.wrote_report


class Member:
    """A process that takes part in a run: as the driver, or only by running tasks."""

    leases: Leases

    def __init__(self, call: Call, task: ArrayTask, drive: Drive) -> None:
        self.call, self.task, self.drive = call, task, drive
        self.folder = call.folder / WORK / ARRAY
        self.share = (task.number - 1) / task.of
        self.own, self.wrote_report = 0, False
        self._seen: tuple[int, int] = (-1, -1)  # driver and serial of the last phase
        self._plan: Plan | None = None
        self._said = set[Path]()  # leases of drivers that were reported as late
        self._losses = 0

    def run(self) -> dict[str, Any]:
        """Take part until the report is written, and return the report."""
        call, wait = self.call, FIRST_WAIT
        resources = find_resources(call.engine, call.choice.name, call.workers, call.scheduler, len(call.checked.files))
        newest = self.leases.newest(self.folder, DRIVER)
        earlier = newest if self._failed(newest) else -1  # driver of an earlier attempt that failed
        with call.engine.open_session(resources.workers, "threads", recipe_groups(call.recipe, "cpu")) as session:
            while not (report := self._find_finished()):
                check_interrupts()
                try:
                    self._check_plan()
                    newest = self.leases.newest(self.folder, DRIVER)
                    lease = self._elected(newest, earlier)
                except FileNotFoundError as error:  # the run is finished, and its work folder was deleted
                    self._check_folder(error)
                    continue
                if lease:
                    if report := self._drive(lease, session, resources.workers):
                        break
                elif phase := self._next_phase(newest):
                    self._work(phase, newest, session, resources.workers)
                    wait, self._losses = FIRST_WAIT, 0
                else:
                    time.sleep(wait)
                    wait = min(wait * 1.5, MAX_WAIT)
        return report

    def _find_finished(self) -> dict[str, Any] | None:
        return fresh(self.call.folder, partial(find_finished, self.call.folder))

    def _check_folder(self, error: OSError) -> None:
        """Raise OutputError if the work folder was deleted before the end of the run. Raise `error` if the file system
        keeps losing files of the folder."""
        time.sleep(MAX_WAIT)
        if not (exists(self.folder) or self._find_finished()):
            raise OutputError(f"{self.folder} was deleted during the run. Start the array tasks again")
        self._losses += 1
        if self._losses > MAX_LOSSES:
            raise error

    def _is_lost(self, error: Exception) -> bool:
        """Return whether this process may go on after an error of the driver: the file system has lost a file, at most
        MAX_LOSSES times so far."""
        is_stale = isinstance(error, OSError) and error.errno == errno.ESTALE
        self._losses += is_stale
        return is_stale and self._losses <= MAX_LOSSES

    def _check_plan(self) -> None:
        """Load the plan once it exists, and compare it with the recipe and the inputs of this process."""
        call, path = self.call, plan_path(self.call.folder)

        def deleted(_: Any) -> list[Any]:
            raise stale(path)

        if self._plan is None and exists(path):
            checked = call.checked
            self._plan, _ = make_plan(call.folder, call.recipe, checked.identity, checked.files, [], deleted)

    def _elected(self, newest: int, earlier: int) -> Lease | None:
        """Return the lease of the driver if nobody holds it and this process is the first to take it, else None. If the
        driver of generation `newest` has failed, and `newest` is above `earlier`, raises the driver's error."""
        if newest > earlier:
            self._raise_failure(newest)
        if newest >= 0:
            path = lease_path(self.folder, DRIVER, newest)
            held = self.leases.held(path, self.leases.now())
            if held and held.is_late and path not in self._said:
                self.call.progress.log(held.explain("the part of the driver"))
                self._said.add(path)
            if not (held and held.is_expired):
                return None
        return self.leases.take(self.folder, DRIVER, newest + 1)

    def _drive(self, lease: Lease, session: Session, workers: int) -> dict[str, Any] | None:
        """Run the rest of the run as the driver, and return the report. Return None if another process has taken over
        in the meantime."""
        self.call.progress.log(f"{self.task} is the driver of the run")
        try:
            with guarded_by(lease):
                if self._failed(lease.generation - 1):
                    self._forget_leases()
                report = self.drive(self.call, ArrayDriver(self, lease, session, workers))
            self.wrote_report = True
            return report
        except Exception as error:
            if not lease.is_held() or self._is_lost(error):
                return None
            self._note_failure(lease.generation, error)
            raise
        finally:
            self.leases.give_back(lease)

    def _forget_leases(self) -> None:
        """Delete the leases of tasks of an earlier attempt. These leases count how many processes died on a task;
        without them, the count begins at 0."""
        for path in [*self.folder.iterdir()]:
            if path.is_dir():
                remove(path)

    def _next_phase(self, driver: int) -> PublishedPhase | None:
        """Return the phase that the driver published last. Return None if there is no such phase, or if this process
        has already seen its end."""
        path = self.folder / f"phase-{driver}.json"
        with reading(path):
            try:
                phase = read_whole(path, decode_phase)
            except FileNotFoundError:
                return None
        return None if (driver, phase.serial) == self._seen else phase

    def _work(self, phase: PublishedPhase, driver: int, session: Session, workers: int) -> None:
        """Run tasks of a phase until all are done."""
        if phase.engine != self.call.choice.name:
            raise EngineError(
                f"{self.task} runs on the engine {self.call.choice.name}, and the run on {phase.engine}. "
                f"Give --engine {phase.engine} to every array task"
            )
        assert self._plan is not None
        item, function = phase.items(self._plan, self.folder.parent), phase.function()
        folder, numbers = self.folder / phase.key, in_ranges(phase.numbers)
        board = Board(
            self.leases, folder, numbers, self.share, partial(self._failed, driver), say=self.call.progress.log
        )

        def run(number: int) -> None:
            function(item(number))

        try:
            with self.call.progress.watch(phase.label, len(board.numbers), board.count):
                session.map(partial(board.work, run), range(workers))
        except Exception as error:
            self._note_failure(driver, error)
            raise
        finally:
            self.own += board.own
        self._seen = (driver, phase.serial)

    def _failed(self, driver: int) -> bool:
        return exists(self._failure(driver))

    def _failure(self, driver: int) -> Path:
        return self.folder / f"failed-{driver}.json"

    def _note_failure(self, driver: int, error: Exception) -> None:
        """Save an error, so that the other processes of the run end with the same message."""
        with suppress(OSError):
            failure = _Failure(type(error).__name__, str(error), str(self.task))
            if isinstance(error, OSError):
                failure.number, failure.path = error.errno or 0, str(error.filename or "")
            write_sealed(self._failure(driver), msgspec.to_builtins(failure))

    def _raise_failure(self, driver: int) -> None:
        if self._failed(driver):
            content = read_sealed(self._failure(driver), _Failure)
            kind = getattr(errors, content.kind, None)
            if isinstance(kind, type) and issubclass(kind, CurationError):
                raise kind(content.text)
            if content.number:
                raise OSError(content.number, os.strerror(content.number), content.path or None)
            raise EngineError(f"{content.task} ended with {content.kind}: {content.text}")


class ArrayDriver:
    """The session of the driver of an array: it publishes a phase, so that all processes of the run take its tasks."""

    dashboard = ""

    def __init__(self, member: Member, lease: Lease, session: Session, workers: int) -> None:
        self.member, self.lease, self.session, self.workers = member, lease, session, workers
        self.processes = member.task.of
        self._serial = 0

    @contextmanager
    def open_session(self, workers: int, scheduler: str, kernels: Sequence[str] = ()) -> Iterator[Session]:
        """Yield this object, since the processes of the array are the workers."""
        yield self

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Do the same as `run`, and return a list of None. Tasks write their results to files."""
        count = 0

        def done(*_: Any) -> None:
            nonlocal count
            count += 1

        self.run(function, items, done)
        return [None] * count

    def run(
        self, function: Callable[[Any], Any], items: Iterable[Any],
        done: Callable[[int, Any, Any], object] = lambda number, item, result: None,
    ) -> None:  # fmt: skip
        """Publish a phase, and take its tasks until all are done. Calls `done` for each task, with None as the
        result."""
        member, lease = self.member, self.lease
        lease.check()
        by_number = {item[0] if isinstance(item, tuple) else item: item for item in items}
        if not by_number:
            return
        label = member.call.progress.label
        phase = published(function, by_number, self._serial, member.call.choice.name, label)
        self._serial += 1
        numbers = in_ranges(phase.numbers)

        def noticed(news: np.ndarray) -> None:
            for place, number in zip(np.searchsorted(numbers, news).tolist(), news.tolist(), strict=True):
                done(place, by_number[number], None)

        say = member.call.progress.log
        board = Board(member.leases, member.folder / phase.key, numbers, member.share, self._is_over, noticed, say)
        board.make_folders()
        new = member.folder / f"phase-{lease.generation}.new"
        new.write_bytes(phase.encoded())
        os.replace(new, new.with_suffix(".json"))  # not synced: a crash of the machine also ends all readers

        def run(number: int) -> None:
            function(by_number[number])

        try:
            self.session.map(partial(board.work, run), range(self.workers))
        finally:
            member.own += board.own
        member._raise_failure(lease.generation)
        lease.check()
        if not board.is_done.all():
            raise stale(board.folder)
        member._losses = 0
        remove(board.folder)

    def _is_over(self) -> bool:
        self.lease.check()
        return self.member._failed(self.lease.generation)

    def agree(self, content: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the report that the first driver has saved. Times in the content of a later driver
        would differ."""
        path = self.member.folder / "report.json"
        own = path.with_name(f"report-{self.lease.generation}.json")
        write_sealed(own, content)
        with suppress(FileExistsError):
            os.link(own, path)
        return dict(read_sealed(path))
