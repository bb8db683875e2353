# SPDX-License-Identifier: Apache-2.0
"""Temporary folders of the system. Errors name their parent folder, and TMPDIR, the variable that chooses it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curation.base.errors import OutputError
from curation.base.system.os_errors import FILLING

PREFIX = "gpu-pipeline-"


@contextmanager
def system_folder(prefix: str = PREFIX) -> Iterator[Path]:
    """Yield an empty temporary folder of the system, and remove it at the end. Raises the errors of
    `naming_system_folder`."""
    with naming_system_folder(prefix), tempfile.TemporaryDirectory(prefix=prefix) as name:
        yield Path(name)


@contextmanager
def naming_system_folder(prefix: str = PREFIX) -> Iterator[None]:
    """If a write in a temporary folder fails, let the error name the parent folder, which users know.

    Raises OutputError if there is no folder that can be written.
    """
    try:
        location = f"{tempfile.gettempdir()} (TMPDIR)"
    except FileNotFoundError as error:
        raise OutputError(f"no folder for temporary files can be written: {error.strerror}. Set TMPDIR") from None
    try:
        yield
    except OSError as error:
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        if path.startswith(os.path.join(tempfile.gettempdir(), prefix)) or (not path and error.errno in FILLING):
            raise OSError(error.errno, error.strerror, location) from None
        raise
