# SPDX-License-Identifier: Apache-2.0
"""Remote files that are copied to `_work/collected/_copies/` before the plan: those of formats that are read in parts,
from servers that send no parts. A copy that an earlier try finished is used again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from curation.base.system.files import commit
from curation.base.system.steps import each
from curation.reading.copies import copy_to
from curation.reading.formats import is_copied
from curation.reading.source_files import SourceFile
from curation.reading.urls import shown
from curation.record.folder import COLLECTED

COPIES = "_copies"  # not the name of an input


def copied_bytes(files: Sequence[SourceFile]) -> int:
    """Return the bytes of the files that a run copies; those of unknown size count as 0."""
    return sum(max(file.bytes, 0) for file in files if is_copied(file))


def copy_inputs(files: Sequence[SourceFile], work: Path) -> list[SourceFile]:
    """Return the files, with a copy in the folder `work` for each that needs one."""
    wanted = [number for number, file in enumerate(files) if is_copied(file)]
    result = list(files)
    for number in each(wanted, "copying inputs", "file") if wanted else ():
        file = files[number]
        digest = hashlib.sha256(repr((shown(file.path), *file.planned)).encode()).hexdigest()[:16]
        path = work / COLLECTED / COPIES / f"{number:06}-{digest}"
        if not path.exists():
            with commit(path) as temporary, open(temporary, "wb") as target:
                copy_to(file, target)
        result[number] = msgspec.structs.replace(file, copy=str(path))
    return result
