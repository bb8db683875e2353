# SPDX-License-Identifier: Apache-2.0
"""Local copies of remote files that are read in parts, from servers that send no parts.

A run stores its copies in `_work/`. Outside a run, a copy is a temporary file without a name, which exists until the
process ends.
"""

from __future__ import annotations

import os
import tempfile
from threading import Lock
from typing import Any

from curation.base.system.interrupts import check
from curation.reading.source_files import SourceFile
from curation.reading.streams import open_raw, read_chunks
from curation.reading.urls import shown

STEP = 16 << 20
_COPYING = Lock()
_copies: dict[tuple[str, int, str], int] = {}  # (path, size, version) -> descriptor, open until the process ends


def local_path(file: SourceFile) -> str:
    """Return the path of a file, or of a local copy if its server sends no parts. The copy is made if it does not
    exist.

    Raises InputError if the URL cannot be read, and OSError if the copy cannot be written.
    """
    if file.copy or not file.is_whole:
        return file.copy or file.path
    key = (file.path, *file.planned)
    with _COPYING:
        if key not in _copies:
            try:
                with tempfile.TemporaryFile() as target:
                    copy_to(file, target)
                    _copies[key] = os.dup(target.fileno())
            except OSError as error:
                where = f"{tempfile.gettempdir()} (TMPDIR), for a copy of {shown(file.path)}"
                raise OSError(error.errno, os.strerror(error.errno or 0), where) from None
    return f"/proc/self/fd/{_copies[key]}"


def copy_to(file: SourceFile, target: Any) -> None:
    """Write all bytes of a remote file to a file object."""
    with open_raw(file.path, file.planned) as raw:
        for chunk in read_chunks(raw, STEP):
            check()
            target.write(chunk.data)
    target.flush()
