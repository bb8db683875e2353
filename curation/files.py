# SPDX-License-Identifier: Apache-2.0
"""Files of a run: written whole or not at all (another name, sync, rename), hashed, deleted.

A piece of work writes its files with `commit` and last its record. A record without its files cannot exist, files
without a record are redone.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import orjson

from curation.errors import InputError, IntegrityError, OutputError

TEMPORARY = ".tmp"
LARGEST_ID = 1 << 22  # of processes and threads on Linux
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
SYNC_FILE_RANGE_WRITE = 2
_LIBC = ctypes.CDLL(None)


@contextmanager
def commit(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; syncs it and renames it when the block ends well, removes it otherwise."""
    with commit_all(path) as (temporary,):
        yield temporary


@contextmanager
def commit_all(*paths: Path) -> Iterator[list[Path]]:
    """As `commit`, of several files of a folder, which is synced once.

    The paths are the calling thread's own, also among the hosts of a cluster that share the folder: what a run that
    failed has still under way does not disturb the next.
    """
    thread = f"{os.uname().nodename}-{os.getpid()}-{threading.get_native_id()}"
    temporaries = [path.with_name(f"{path.name}.{thread}{TEMPORARY}") for path in paths]
    folder = paths[0].parent
    make_folder(folder)
    try:
        yield temporaries
        for temporary in temporaries:
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
        for temporary, path in zip(temporaries, paths, strict=True):
            os.replace(temporary, path)
    except BaseException:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)


def sweep_dead(*paths: Path) -> None:
    """Deletes the temporary files of `commit` for these paths that killed processes of this machine have left."""
    for path in paths:
        start = f"{path.name}.{os.uname().nodename}-"
        for left in path.parent.glob(f"*{TEMPORARY}"):
            found = re.fullmatch(rf"{re.escape(start)}(\d+)-\d+{re.escape(TEMPORARY)}", left.name)
            if found and not _is_alive(int(found[1])):
                left.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def local_output(path: str | os.PathLike[str]) -> Path:
    """Where to write; OutputError for a URL, and for a name that is not UTF-8."""
    given = os.fspath(path)
    if URL.match(given):
        scheme = given.partition(":")[0]
        advice = f"Give /{given.partition(':')[2].lstrip('/')}" if scheme == "file" else "Give a local folder"
        raise OutputError(f"the output is a URL ({scheme}://), expected a path of this machine. {advice}")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise OutputError(f"the name of the output {given!r} is not valid UTF-8. Give another --output") from None
    return Path(given)


def check_name(folder: Path, name: str, what: str) -> None:
    """OutputError where a file of that name could not be written to a folder: its temporary name is longer. `what` says
    what to shorten."""
    there = folder.parents[-1]
    for parent in reversed(folder.parents):  # from above: the name of one below may be too long to ask for
        if not parent.is_dir():
            break
        there = parent
    longest = f"{name}.{os.uname().nodename}-{LARGEST_ID}-{LARGEST_ID}{TEMPORARY}"
    for length, limit in (
        (len(longest.encode()), os.pathconf(there, "PC_NAME_MAX")),
        (len(os.fsencode(folder / longest)), os.pathconf(there, "PC_PATH_MAX") - 1),
    ):
        if length > limit:
            raise OutputError(
                f"{name} could not be written to {folder}: {length} bytes with its temporary name, and "
                f"the file system takes {limit}. Shorten {what}"
            )


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it that are missing, and makes them last."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def begin_sync(descriptor: int) -> None:
    """Has the system begin to write what a file holds, so that the sync at its end waits less. On Linux alone."""
    if function := getattr(_LIBC, "sync_file_range", None):
        function(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)


def as_json(value: Any, indent: bool = False) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0) + b"\n"


def piece_path(folder: Path, number: int, suffix: str) -> Path:
    return folder / f"{number:06d}{suffix}"


def sync_files(folder: Path) -> None:
    """Has the disk hold every file of a folder, and of those in it, before a record says that they are there."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: str | Path) -> str:
    """The SHA-256 of a file that may be asked for often: computed anew only where its size or time is another.
    InputError where it cannot be read."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from None
    return _digest_of(str(path), found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=1024)
def _digest_of(path: str, size: int, modified_ns: int) -> str:
    return file_sha256(Path(path))


class GrowingDigest:
    """The SHA-256 of a file that grows at its end, computed in a thread beside the writer."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  closed by close
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)

    def follow(self) -> Future[None]:
        """Takes in what the file holds by now."""
        return self._thread.submit(self._read)

    def _read(self) -> None:
        while data := self._file.read(1 << 20):
            self._digest.update(data)

    def finish(self) -> str:
        """The digest of the whole file, which must not grow any more."""
        self.follow().result()
        return self._digest.hexdigest()

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._file.close()


def write_json(path: Path, value: Any, indent: bool = False) -> None:
    with commit(path) as temporary:
        temporary.write_bytes(as_json(value, indent))


def read_json(path: Path) -> Any:
    """The content of a JSON file; None where there is none. IntegrityError for a file that is damaged."""
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError as error:
        raise IntegrityError(f"{path} is damaged, it is not valid JSON: {error}") from None


def remove(path: Path) -> None:
    """Deletes a file, a link or a folder, if it is there. Files beside each other go at once: the system takes half a
    second to give back the memory of a gigabyte of them."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(Path.unlink, missing_ok=True), [found for found in path.rglob("*") if found.is_file()]))
    shutil.rmtree(path)
