# SPDX-License-Identifier: Apache-2.0
"""JSON files that only this program reads: done-records and other files of unfinished runs.

The last key of each file is the SHA-256 of the bytes before it. So a run that resumes detects damage and edits without
a schema for each record.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import orjson

from curation.base.system.damage import reading
from curation.base.system.files import commit
from curation.base.system.shared_files import read_whole

KEY, BARE = b'"content_sha256":"', "*"  # BARE: the key under which a value that is no JSON object is stored
END = len(KEY) + 64 + len(b'"}\n')


def write_sealed(path: Path, value: Any) -> None:
    """Write a value as JSON with its digest, atomically."""
    content = orjson.dumps(value if isinstance(value, dict) else {BARE: value})
    with commit(path) as temporary:
        temporary.write_bytes(sealed(content))


def sealed(content: bytes) -> bytes:
    """Return a JSON object with its digest as the last key."""
    start = content[:-1] + (b"," if len(content) > len(b"{}") else b"")
    return start + KEY + hashlib.sha256(start).hexdigest().encode() + b'"}\n'


def read_sealed(path: Path, kind: Any = Any) -> Any:
    """Return the content of a file of `write_sealed`, as the type `kind` for msgspec. Raises IntegrityError if the file
    is damaged or has another type, and FileNotFoundError if there is no file."""

    def decode(data: bytes) -> Any:
        value = orjson.loads(unsealed(data))
        return msgspec.convert(value[BARE] if {*value} == {BARE} else value, kind)

    with reading(path):
        return read_whole(path, decode)


def unsealed(data: bytes) -> bytes:
    """Return the JSON object of `sealed` without its digest. Raises ValueError if `sealed` did not return these
    bytes."""
    content = data[:-END].removesuffix(b",") + b"}"
    if data != sealed(content):
        raise ValueError("its content does not match its digest")
    return content
