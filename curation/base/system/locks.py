# SPDX-License-Identifier: Apache-2.0
"""Locks of files and folders between processes. The kernel releases those of a dead process.

A forked child has a copy of each lock of its parent (`flock(2)`), which could outlive the parent. So a child closes its
copies at once. A parent unlocks explicitly, since closing its descriptor would leave the lock to other copies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_descriptors: set[int] = set()  # of locks of this process
_opening = threading.Lock()  # prevents a fork between opening a descriptor and adding it to `_descriptors`


@contextlib.contextmanager
def locked(path: Path, operation: int, flags: int = os.O_RDONLY) -> Iterator[OSError | None]:
    """Hold the lock `operation` (`fcntl.LOCK_*`) of a file or folder, opened with `flags`, while the context is open.

    Yield None, or the error of a file system without locks, such as Lustre without -o flock and some NFS. Raises
    BlockingIOError if another process has the lock, and OSError if the path cannot be opened.
    """
    owner, missing = os.getpid(), None
    with _opening:
        descriptor = os.open(path, flags, 0o666)
        _descriptors.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            raise
        except OSError as error:
            missing = error
        yield missing
    finally:
        if os.getpid() == owner:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            with _opening:
                _descriptors.discard(descriptor)
                os.close(descriptor)


def _close_copies() -> None:
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()
    _opening.release()


os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_copies)
