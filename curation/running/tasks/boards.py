# SPDX-License-Identifier: Apache-2.0
"""Phases for processes that share only a folder. The driver publishes a phase, and all processes take tasks of it by
leases.

When a task is done, its process renames the lease to `NNNNNN.done`. If a process pauses, a second one may run the same
task. Both write the same bytes under temporary names, so the later rename changes nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from curation.base.errors import IntegrityError, OutOfMemoryError, counted
from curation.base.system.damage import RESUME_ADVICE
from curation.base.system.files import FOLDER_FILES, numbered_folders, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.leases import GIVEN_BACK, Held, Lease, Leases, guarded_by, lease_path
from curation.base.system.sealed import sealed, unsealed
from curation.base.system.shared_files import exists, fresh
from curation.base.system.steps import Count
from curation.record.jobs import URLS, load_job
from curation.record.stored_plan import Plan, Stored

FIRST_WAIT, MAX_WAIT, LISTING_SHARE = 0.02, 1.0, 20  # listing takes at most 1/20 of the time of a waiting process
MAX_DEATHS = 4  # processes that may die while they hold the same task
MISSES = 16  # consecutive tasks that others have taken, before the folder is listed again
DONE = "done"
# The functions that a phase may name. Someone who can write to the folder of a run must not be able to choose others.
TASKS = (
    "curation.record.jobs:run_stored", "curation.running.tasks.deletion:delete_share",
    "curation.record.row_sums:run_sums", "curation.record.totals:run_totals",
    "curation.running.phases.corpus_phase:run_stored_phase",
)  # fmt: skip
LEASE = re.compile(rf"(\d+)\.(\d+|{DONE})")


class PublishedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase as its file describes it.

    serial      number of the phase among those of its driver, from 0
    engine      the engine of its tasks
    call        the function, and its arguments before the item
    numbers     ranges (first, last + 1) of the numbers of its tasks
    are_tuples  whether items are tuples of a number and further arguments
    arguments   the further arguments of each task, in the order of the numbers; empty if no task has any
    urls        whether the arguments are URLs, which are not written since they have secrets
    label       what the phase does, for messages
    """

    serial: int
    engine: str
    call: list[str | int | Stored]
    numbers: list[tuple[int, int]]
    are_tuples: bool
    arguments: list[Any]
    urls: bool
    label: str = "tasks"

    @property
    def key(self) -> str:
        """The name of the folder for the leases of this phase. A later driver that publishes the same phase gets the
        same name."""
        return hashlib.sha256(_encode(self.call)).hexdigest()[:16]

    def encoded(self) -> bytes:
        """Return the phase as JSON."""
        return sealed(_encode(self))

    def function(self) -> Callable[[Any], Any]:
        """Return the function that a task calls, with the arguments that were published with it."""
        first, *parts = self._parts()
        return partial(cast(Any, first), *parts)

    def _parts(self) -> list[Any]:
        return [_named(part) if isinstance(part, str) else part for part in self.call]

    def items(self, plan: Plan, work: Path) -> Callable[[int], Any]:
        """Return a function that returns the item of a task, by its number. `plan` has the URLs with their secrets. The
        function raises IntegrityError for a path that is not below `work`."""
        numbers = in_ranges(self.numbers)
        called = self._parts()  # `run_stored`, its function, the class of the job, the plan and the job

        def item(number: int) -> Any:
            if not self.are_tuples:
                return number
            if self.urls:
                urls = URLS[called[1]](plan, load_job(called[2], called[4]), number)
                return (number, urls) if urls else (number,)
            arguments = self.arguments[int(np.searchsorted(numbers, number))] if self.arguments else []
            return (number, *(_from_json(value, work) for value in arguments))

        return item


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)  # paths


def decode_phase(data: bytes) -> PublishedPhase:
    """Return the phase that `PublishedPhase.encoded` wrote. Raises ValueError or MsgspecError for other bytes."""
    phase = msgspec.json.decode(unsealed(data), type=PublishedPhase, dec_hook=lambda kind, value: kind(value))
    if not phase.call or phase.call[0] not in TASKS:
        raise ValueError(f"it names {phase.call[:1]!s}, which is no function of tasks")
    return phase


def published(
    function: Callable[[Any], Any], items: Mapping[int, Any], serial: int, engine: str, label: str = "tasks"
) -> PublishedPhase:
    """Return the description of a phase for other processes. Raises TypeError for an unknown function or type of
    argument.

    items  task number -> item
    """
    assert isinstance(function, partial)
    call = [part if isinstance(part, int | Stored) else _name_of(part) for part in (function.func, *function.args)]
    if call[0] not in TASKS:
        raise TypeError(f"{call[0]} is not among the functions of tasks")
    are_tuples = isinstance(next(iter(items.values())), tuple)
    numbers = np.array(sorted(items), np.int64)
    ends = np.flatnonzero(np.diff(numbers) != 1)
    ranges = zip(numbers[[0, *(ends + 1)]].tolist(), (numbers[[*ends, -1]] + 1).tolist(), strict=True)
    urls = any(part in URLS for part in function.args)
    has_arguments = are_tuples and not urls and any(len(item) > 1 for item in items.values())
    arguments = [[_to_json(part) for part in items[number][1:]] for number in numbers.tolist()] if has_arguments else []
    return PublishedPhase(
        serial=serial, engine=engine, call=call, numbers=list(ranges), are_tuples=are_tuples, arguments=arguments,
        urls=urls, label=label,
    )  # fmt: skip


def _name_of(part: Any) -> str:
    name = f"{part.__module__}:{part.__qualname__}"
    if _named(name) is not part:
        raise TypeError(f"{part!r} is not a function or a class of this package")
    return name


def _named(name: str) -> Any:
    """Return a function or class of this package from a loaded module; None for any other name, so that only these are
    called."""
    module, _, attribute = name.partition(":")
    loaded = sys.modules.get(module) if module.startswith("curation.") else None
    return getattr(loaded, attribute, None)


def _to_json(value: Any) -> Any:
    """Return a value as JSON. It may be a number, a string, a path, a list, a tuple or a named tuple."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return {"path": str(value)}
        case np.integer():
            return int(value)
        case tuple():
            kind = _name_of(type(value)) if hasattr(value, "_fields") else ""
            return {"tuple": kind, "parts": [_to_json(part) for part in value]}
        case list():
            return [_to_json(part) for part in value]
    raise TypeError(f"a task cannot have an argument of type {type(value).__name__}")


def _from_json(value: Any, work: Path) -> Any:
    match value:
        case {"path": str(path)}:
            if work not in Path(os.path.normpath(path)).parents:
                raise IntegrityError(f"a phase in {work} names {path}, which is not below it. Start over with --force")
            return Path(path)
        case {"tuple": str(kind), "parts": list(parts)}:
            values = tuple(_from_json(part, work) for part in parts)
            return _named(kind)._make(values) if kind else values
        case list():
            return [_from_json(part, work) for part in value]
    return value


class Board:
    """The tasks of a phase, and the folder of their leases, from which processes take tasks.

    numbers  int64, ascending: the numbers of the tasks
    share    where this process begins to take tasks, from 0 to 1
    is_over  function that returns whether this process should stop taking tasks. It may raise an error
    noticed  function that is called with the numbers of tasks that are found done
    say      function that gets a message, once for each silent process for whose tasks this process waits
    """

    def __init__(
        self, leases: Leases, folder: Path, numbers: np.ndarray, share: float, is_over: Callable[[], bool],
        noticed: Callable[[np.ndarray], object] = len, say: Callable[[str], object] = len,
    ) -> None:  # fmt: skip
        self.leases, self.folder, self.numbers, self.is_over, self.noticed = leases, folder, numbers, is_over, noticed
        self.say, self._said = say, set[str]()  # holders that a message has named
        self.is_done = np.zeros(len(numbers), bool)
        self.first = int(len(numbers) * share)
        self.done = self.own = 0
        self._free: Iterator[tuple[int, int]] = iter(())
        self._ended = False
        self._lock, self._noticing = threading.Lock(), threading.Lock()
        self._wait, self._due = FIRST_WAIT, 0.0

    def next(self) -> Lease | None:
        """Return the lease of a task that nobody holds; None if all tasks are done. Waits while other processes hold
        all open tasks."""
        while True:
            check_interrupts()
            with self._lock:
                if self._ended:
                    return None
                if lease := self._take():
                    self._wait = FIRST_WAIT
                    return lease
                news = self._list() if time.monotonic() >= self._due else None
            if news is not None:
                with self._noticing:
                    self.noticed(news)
                continue
            time.sleep(min(self._wait, MAX_WAIT / 10))

    def _take(self) -> Lease | None:
        for misses, (number, generation) in enumerate(self._free, 1):
            try:
                if lease := self.leases.take(self._folder(number), f"{number:06d}", generation):
                    return lease
            except FileNotFoundError:
                self._ended = True
                return None
            if misses == MISSES:
                self._free, self._due = iter(()), 0.0
        return None

    def _folder(self, number: int) -> Path:
        """Return the folder of a task's leases; 10,000 tasks share a folder."""
        return numbered_path(self.folder, number, "").parent

    def make_folders(self) -> None:
        """Create the folders of all tasks."""
        self.folder.mkdir(exist_ok=True)
        for number in self.numbers[np.unique(self.numbers // FOLDER_FILES, return_index=True)[1]].tolist():
            self._folder(number).mkdir(exist_ok=True)

    def _list(self) -> np.ndarray:
        """Find the tasks that are done and those that nobody holds. Return the numbers of tasks that became done since
        the last listing."""
        started = time.monotonic()
        try:
            names = fresh(self.folder, self._names)
            now = self.leases.now()
        except FileNotFoundError:  # the driver deletes the folder when all tasks are done
            self._ended = True
            return np.zeros(0, np.int64)
        done = {int(name) for name, end in names if end == DONE}
        newest: dict[int, int] = {}
        for name, end in names:
            if int(name) not in done:
                newest[int(name)] = max(newest.get(int(name), 0), int(end))
        held = {
            number: self.leases.held(lease_path(self._folder(number), f"{number:06d}", generation), now)
            for number, generation in sorted(newest.items())
        }
        expired = [(number, newest[number] + 1) for number, lease in held.items() if lease and lease.is_expired]
        for number, generation in expired:
            self._check_deaths(number, generation)
        free = self.numbers[~np.isin(self.numbers, [*done, *newest])]
        if not (len(free) or expired):
            self._report_late([lease for lease in held.values() if lease and lease.is_late])
        place = int(np.searchsorted(free, self.numbers[self.first])) if len(free) else 0
        self._free = iter([*expired, *((number, 0) for number in np.roll(free, -place).tolist())])
        is_done = np.isin(self.numbers, [*done])
        news = self.numbers[is_done & ~self.is_done]
        self.is_done, self.done = is_done, int(np.count_nonzero(is_done))
        self._wait = FIRST_WAIT if len(news) else min(self._wait * 1.5, MAX_WAIT)
        self._ended = self.done == len(self.numbers) or self.is_over()
        ended = time.monotonic()
        self._due = ended + max(self._wait, LISTING_SHARE * (ended - started))
        return news

    def _report_late(self, late: Sequence[Held]) -> None:
        """Report each process that does not renew its leases, once: this process waits for its tasks."""
        for holder in sorted({lease.holder for lease in late} - self._said):
            leases = [lease for lease in late if lease.holder == holder]
            self.say(max(leases, key=lambda lease: lease.silent).explain(counted(len(leases), "task")))
            self._said.add(holder)

    def _names(self) -> list[tuple[str, str]]:
        """Return two texts for each file of a lease: the number of its task, and the lease's generation or DONE."""
        found: list[tuple[str, str]] = []
        for folder in numbered_folders(self.folder):
            with os.scandir(folder) as entries:
                found += [(match[1], match[2]) for entry in entries if (match := LEASE.fullmatch(entry.name))]
        return found

    def _check_deaths(self, number: int, generation: int) -> None:
        """Raise OutOfMemoryError if too many processes have died while they held a task."""
        paths = [lease_path(self._folder(number), f"{number:06d}", each) for each in range(generation)]
        if len(paths) >= MAX_DEATHS:
            dead = sum(fresh(path, path.stat).st_mtime > GIVEN_BACK for path in paths)
            if dead >= MAX_DEATHS:
                raise OutOfMemoryError(
                    f"{dead} processes died on the same task, most often because memory ran out. Give each process "
                    "more memory or fewer --workers; if documents are very long, lower max_document_bytes. "
                    f"{RESUME_ADVICE}"
                )

    def count(self) -> Count:
        """Return how many tasks were done when the folder was last listed."""
        return Count(self.done)

    def end(self) -> None:
        """Take no further tasks."""
        with self._lock:
            self._ended = True

    def work(self, run: Callable[[int], Any], _: int) -> None:
        """Take tasks and run them until all are done. The second argument is the number of the thread."""
        while (lease := self.next()) is not None:
            number = int(lease.name)
            done = numbered_path(self.folder, number, f".{DONE}")
            try:
                with guarded_by(lease):
                    fresh(self.folder, partial(run, number))  # a task that is repeated writes the same bytes
            except BaseException as error:
                if isinstance(error, Exception) and (exists(done) or not lease.is_held()):
                    continue  # this process was paused, and another process has taken over
                self.end()
                self.leases.give_back(lease)
                raise
            self.leases.finish(lease, done)
            with self._lock:
                self.own += 1


def in_ranges(ranges: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return the numbers of ranges (first, last + 1) as int64."""
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(first, stop) for first, stop in ranges)])
