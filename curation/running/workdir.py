# SPDX-License-Identifier: Apache-2.0
"""One run per folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curation.errors import OutputError
from curation.files import TEMPORARY


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for one run. The kernel drops the lock with the process, so that a crash leaves none."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)  # the folder itself is locked: no file to be left behind
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OutputError(f"another run is writing to {folder}; wait for it, or give another --output") from None
    try:
        yield
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Deletes the temporary files that killed runs have left below a folder."""
    for path in folder.rglob(f"*{TEMPORARY}"):
        path.unlink(missing_ok=True)
