# SPDX-License-Identifier: Apache-2.0
"""`report.json` of a finished run, read and checked: its JSON, its digest and its structure."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

from curation import __version__
from curation.base.errors import IntegrityError, OutputError
from curation.base.system.damage import remedy
from curation.base.system.files import read_json
from curation.reading.paths import RUN_REPORT
from curation.record.report_schema import wrong_in_report

CHANGED = "has changed: its content does not match its digest"


def digest(content: dict[str, Any]) -> str:
    """Return the SHA-256 of the content of a report, without the key `digest`."""
    signed = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(orjson.dumps(signed, option=orjson.OPT_SORT_KEYS)).hexdigest()


def is_signed(content: object) -> bool:
    """Return whether the content of a report matches its digest."""
    return isinstance(content, dict) and content.get("digest") == digest(content)


def read_report(folder: Path) -> dict[str, Any] | None:
    """Return the report of the finished run in a folder; None if the folder has no report.

    Raises IntegrityError for a report that has changed since a run wrote it, OutputError for a report that another
    version wrote with another structure.
    """
    path = folder / RUN_REPORT
    if (content := read_json(path)) is None:
        if not path.exists():
            return None
        content = read_json(path)  # "null", or a report that another process has just written
    if not is_signed(content):
        raise IntegrityError(f"{path} {CHANGED}. {remedy(path)}")
    if fault := wrong_in_report(content):
        versions = content.get("versions")
        made = versions.get("gpu-pipeline") if isinstance(versions, dict) else None
        if isinstance(made, str) and made != __version__:
            raise OutputError(
                f"{folder}: {fault}. It was written by version {made}, this is {__version__}. Give a new --output, or "
                "--force"
            )
        raise IntegrityError(f"{folder}: {fault}. {remedy(path)}")
    return dict(content)
