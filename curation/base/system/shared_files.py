# SPDX-License-Identifier: Apache-2.0
"""Files that another machine deletes or replaces while this one reads them.

A network file system may answer any call with ESTALE, until the path is looked up again. The error often names no path.
After a file is replaced, sshfs may read it only up to the length of the old file, in a trial for less than 0.1 s.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

WAITS = (0.0, 0.05, 0.2, 0.75)  # seconds between attempts: attributes are cached for a second
Value = TypeVar("Value")


def stale(path: Path | str) -> FileNotFoundError:
    """Return the error for a path that the file system has lost. Callers treat it as a missing file."""
    return FileNotFoundError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))


def fresh(path: Path, call: Callable[[], Value]) -> Value:
    """Return `call()`, which uses `path`, and repeat the call after ESTALE. Raises FileNotFoundError if all calls
    fail."""
    for seconds in WAITS:
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            lost = error
        time.sleep(seconds)
    raise stale(lost.filename or path) from None


def exists(path: Path) -> bool:
    """Return whether the path exists now. A stale handle of a network file system is looked up again (`fresh`)."""
    try:
        fresh(path, lambda: os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_whole(path: Path, decode: Callable[[bytes], Value]) -> Value:
    """Return the decoded content of a file. If `decode` raises the error of a damaged file, the file is read again.
    After some attempts, the last error is raised. Raises FileNotFoundError if the file is gone."""
    import msgspec  # the leases use this module, and `curate --help` loads them

    for seconds in WAITS:
        try:
            return decode(fresh(path, path.read_bytes))
        except (ValueError, msgspec.MsgspecError) as error:
            damage = error
        time.sleep(seconds)
    raise damage
