# SPDX-License-Identifier: Apache-2.0
"""Leases: names in a shared folder that one process holds at a time, without a server.

A lease is a file `NAME.G`, where G is its generation. Only one process can create it, and this process is the holder.
The holder renews the lease by touching the file, six times before the lease would expire. After the expiry, another
process becomes the holder by creating `NAME.G+1`. A holder that was paused finds this new file, and knows that it has
lost the lease.

All times are modification times of files in one file system. Usually its server sets them, so they are of one clock.
Clients of GlusterFS and sshfs set them by their own clocks. There, a lease ends early or late by the difference of the
clocks.
"""

from __future__ import annotations

import errno
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from curation.base.system.shared_files import exists, fresh

ARRAY = "array"  # folder of leases in the work folder of a run
EXPIRE_SECONDS = 60.0
RENEWALS = 6  # before a lease expires
GIVEN_BACK = 1  # modification time of a lease that was given back; not 0, which sshfs takes for the present
_guard: ContextVar[Callable[[], Any] | None] = ContextVar("guard", default=None)


class LeaseLostError(Exception):
    """Another process has taken over the lease of this one."""


class Lease:
    """A lease that this process took. `path` is its file, and `successor` the file of the next holder."""

    def __init__(self, path: Path, name: str, generation: int) -> None:
        self.path, self.name, self.generation = path, name, generation
        self.successor = lease_path(path.parent, name, generation + 1)

    def renew(self) -> None:
        """Postpone the end of the lease."""
        with suppress(OSError):  # the next renewal may succeed; a lost lease is not renewed
            os.utime(self.path)

    def is_held(self) -> bool:
        """Return whether no other process has taken over, and the folder still exists."""
        return exists(self.path) and not exists(self.successor)

    def check(self) -> None:
        """Raise LeaseLostError if another process has taken over."""
        self.renew()
        if not self.is_held():
            raise LeaseLostError(f"{self.path} was taken over by another process")


def lease_path(folder: Path, name: str, generation: int) -> Path:
    """Return the path of a lease's file. Each take-over is a new generation with a new file."""
    return folder / f"{name}.{generation}"


class Held(NamedTuple):
    """A lease that a process holds, or held when it died.

    holder   the process, for messages
    silent   seconds since the last renewal
    expires  seconds without a renewal after which others may take over
    """

    holder: str
    silent: float
    expires: float

    @property
    def is_expired(self) -> bool:
        """Whether another process may take over."""
        return self.silent > self.expires

    @property
    def is_late(self) -> bool:
        """Whether the holder has missed a renewal, but may still come back."""
        return 2 * self.expires / RENEWALS < self.silent <= self.expires

    def explain(self, what: str) -> str:
        """Return the message of a process that waits for `what`, such as "2 tasks"."""
        return (
            f"waiting for {what} of {self.holder}: no sign of it for {self.silent:.0f} s. After {self.expires:g} s "
            "another process takes over"
        )


class Leases:
    """The leases of one process. Use it as a context: a thread renews them, and the exit gives them back.

    folder          folder for the clock file of this process; it is created
    holder          the process, for messages
    expire_seconds  seconds without a renewal after which others may take over
    """

    def __init__(self, folder: Path, holder: str, expire_seconds: float = EXPIRE_SECONDS) -> None:
        self.expire_seconds = expire_seconds
        self._terms = orjson.dumps({"holder": holder, "seconds": expire_seconds})
        self._clock = folder / f"clock-{uuid.uuid4().hex}"
        self._held: set[Lease] = set()
        self._refused: dict[Path, float] = {}  # when creating a file was first refused
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        fresh(self._clock.parent, lambda: self._clock.parent.mkdir(parents=True, exist_ok=True))
        fresh(self._clock, self._clock.touch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        for lease in [*self._held]:
            self.give_back(lease)
        with suppress(FileNotFoundError):
            fresh(self._clock, self._clock.unlink)

    def _renew(self) -> None:
        while not self._stop.wait(self.expire_seconds / RENEWALS):
            with self._lock:
                held = [*self._held]
            for lease in held:
                lease.renew()

    def now(self) -> float:
        """Return the time of the file system, in seconds. Raises FileNotFoundError if the folder was deleted."""

        def touch() -> float:
            os.utime(self._clock)
            return os.stat(self._clock).st_mtime

        return fresh(self._clock, touch)

    def take(self, folder: Path, name: str, generation: int = 0) -> Lease | None:
        """Take the lease `name` of a generation; None if another process was first.

        Raises FileNotFoundError if the folder does not exist.
        """
        path = lease_path(folder, name, generation)
        try:
            descriptor = fresh(path, lambda: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            return None
        except PermissionError:  # sshfs raises it if the file exists, too: its server does not say why it refuses
            since = self._refused.setdefault(path, time.monotonic())
            if os.access(folder, os.W_OK) and (exists(path) or time.monotonic() - since <= self.expire_seconds):
                return None
            raise  # refused, but no lease exists: the server's disk may be full
        try:
            with open(descriptor, "wb") as file:
                file.write(self._terms)
        except OSError as error:
            if error.errno != errno.ESTALE:  # a reader of a lease without terms assumes its own terms
                raise
        lease = Lease(path, name, generation)
        with self._lock:
            self._held.add(lease)
        return lease

    def held(self, path: Path, now: float) -> Held | None:
        """Return who holds a lease at the time `now`, from the lease's file; None if the file is gone: the task is
        done.

        The file is opened first: network file systems then ask the server for its time.
        """

        def read() -> tuple[float, bytes]:
            with open(path, "rb") as file:
                return os.fstat(file.fileno()).st_mtime, file.read()

        try:
            modified, data = fresh(path, read)
        except FileNotFoundError:
            return None
        holder, seconds = "another process", self.expire_seconds
        with suppress(ValueError, KeyError, TypeError):  # the holder is still writing it
            terms = orjson.loads(data)
            holder, seconds = str(terms["holder"]), float(terms["seconds"])
        return Held(holder, now - modified, seconds)

    def newest(self, folder: Path, name: str) -> int:
        """Return the generation of the present or last holder of a lease; -1 if there was none."""
        generation = -1
        while exists(lease_path(folder, name, generation + 1)):
            generation += 1
        return generation

    def finish(self, lease: Lease, done: Path) -> None:
        """End a lease whose task is done: rename the lease's file to `done`. That file stays."""
        self._forget(lease)
        with suppress(FileNotFoundError):  # the folder was deleted after another process had done the task
            fresh(lease.path, lambda: os.replace(lease.path, done))

    def give_back(self, lease: Lease) -> None:
        """End a lease, so that others may take over at once."""
        self._forget(lease)
        with suppress(OSError):
            os.utime(lease.path, (GIVEN_BACK, GIVEN_BACK))

    def _forget(self, lease: Lease) -> None:
        with self._lock:
            self._held.discard(lease)


@contextmanager
def guarded_by(lease: Lease) -> Iterator[None]:
    """Let `fence` check a lease inside the block, and in threads that run in a copy of the block's context."""
    token = _guard.set(lease.check)
    try:
        yield
    finally:
        _guard.reset(token)


def fence() -> None:
    """Raise LeaseLostError if this thread works under a lease that it has lost. Call it before something is deleted."""
    if guard := _guard.get():
        guard()
