# SPDX-License-Identifier: Apache-2.0
"""Files of a run: atomic writes (temporary name, sync, rename), hashes, deletion.

A task writes its files with `commit`, and its done-record last. So the files of every done-record are complete. A rerun
writes files without a done-record again.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import orjson

from curation.base.errors import InputError, OutputError
from curation.base.system import interrupts
from curation.base.system.damage import reading
from curation.base.system.leases import fence
from curation.base.system.os_errors import PASSING, explain, fault_of
from curation.base.system.path_advice import unreplaced
from curation.base.system.shared_files import read_whole
from curation.base.system.system_folders import system_folder

TEMPORARY = ".tmp"
_TEMPORARY_NAME = re.compile(rf".+-\d+-\d+{re.escape(TEMPORARY)}", re.DOTALL)
FOLDER_FILES = 10_000  # maximum number of files in a folder
REMOVALS = 100  # attempts to delete a folder into which other processes write, 10 ms apart
LARGEST_ID = 1 << 22  # maximum process and thread id on Linux
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
SYNC_FILE_RANGE_WRITE = 2
_LIBC = ctypes.CDLL(None)
_open_temporaries: set[Path] = set()  # of this process
_unsynced: set[Path] = set()  # folders of `unsynced_folder` in this process


@contextmanager
def commit(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; sync and rename it if the block succeeds, else remove it."""
    with commit_all(path) as (temporary,):
        yield temporary


@contextmanager
def commit_all(*paths: Path) -> Iterator[list[Path]]:
    """Do the same as `commit` for several files of one folder, which is synced once.

    The temporary names are unique to the host, process and thread. So tasks of a failed run that still write, on any
    host of a cluster, do not disturb the next run.
    """
    for path in paths:
        _check_replaceable(path)
    temporaries = [path.with_name(f"{path.name}.{_writer()}{TEMPORARY}") for path in paths]
    folder = paths[0].parent
    make_folder(folder)
    _open_temporaries.update(temporaries)
    try:
        yield temporaries
        for temporary in temporaries:
            _sync_file(temporary)
        for temporary, path in zip(temporaries, paths, strict=True):
            os.replace(temporary, path)
    except BaseException:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
        raise
    finally:
        _open_temporaries.difference_update(temporaries)
    sync_folder(folder)


@contextmanager
def training_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the path of a model, for its training. Temporary folders of killed trainings are
    deleted first."""
    work = path.with_name(f"{path.name}.training")
    sweep_dead(work)
    with temporary_folder(work) as folder:
        yield folder


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path` that only this thread uses, and remove it at the end."""
    make_folder(path.parent)
    temporary = path.with_name(f"{path.name}.{_writer()}{TEMPORARY}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def unsynced_folder() -> Iterator[Path]:
    """Do the same as `system_folder`, but do not sync files below the folder. No later process reads these files, so
    they need not survive a crash."""
    with system_folder() as folder:
        _unsynced.add(folder)
        try:
            yield folder
        finally:
            _unsynced.discard(folder)


def _is_unsynced(path: Path) -> bool:
    return bool(_unsynced) and not _unsynced.isdisjoint(path.parents)


@contextmanager
def commit_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; sync and rename it if the block succeeds, else remove it.

    If the folder exists already, it is kept: another process has committed the same content.
    """
    with temporary_folder(folder) as temporary:
        yield temporary
        sync_files(temporary)
        try:
            os.rename(temporary, folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    sync_folder(folder.parent)


def _writer() -> str:
    """Return the part of a temporary file's name that identifies its writer: host, process and thread."""
    return f"{os.uname().nodename}-{os.getpid()}-{threading.get_native_id()}"


def is_temporary(name: str) -> bool:
    """Return whether a name is a temporary name of `commit` or `temporary_folder` on any host."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def _remove_temporaries() -> None:
    """Delete the files of open `commit` blocks, when a signal ends the process inside them."""
    for temporary in [*_open_temporaries]:
        temporary.unlink(missing_ok=True)


interrupts.at_end(_remove_temporaries)


def sweep_dead(*paths: Path) -> None:
    """Delete the temporary files and folders of these paths that processes of this host left when they were killed."""
    for path in paths:
        prefix = f"{path.name}.{os.uname().nodename}-"
        for temporary in path.parent.glob(f"*{TEMPORARY}"):
            match = re.fullmatch(rf"{re.escape(prefix)}(\d{{1,9}})-\d+{re.escape(TEMPORARY)}", temporary.name)
            if match and not _exists(int(match[1])):
                remove_temporary(temporary)


def _exists(process: int) -> bool:
    import psutil  # takes 0.03 s to import

    return bool(psutil.pid_exists(process))


def remove_temporary(path: Path) -> None:
    """Delete a temporary file or folder, if it still exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def local_output(path: str | os.PathLike[str]) -> Path:
    """Return the path of an output, `~` replaced by the home folder.

    Raises OutputError for an empty path, a URL, a name that is not UTF-8, and a new name with an unreplaced
    `$VARIABLE`, an unknown `~user` or a backslash.
    """
    given = os.path.expanduser(os.fspath(path))
    if not given:
        raise OutputError("the path of the output is empty. Give a folder, such as out")
    if URL.match(given):
        scheme = given.partition(":")[0]
        advice = f"Give /{given.partition(':')[2].lstrip('/')}" if scheme == "file" else "Give a local folder"
        raise OutputError(f"the output is a URL ({scheme}://), expected a local path. {advice}")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise OutputError(f"the name of the output {given!r} is not valid UTF-8. Give another --output") from None
    if (reason := unreplaced(given)) and not os.path.lexists(given):
        raise OutputError(f"output {given}: {reason}; if that is its name, create the folder first")
    return Path(given)


def check_new(path: Path, force: bool) -> None:
    """Raise OutputError if something exists at the path where a command writes a file. With `force`, a file may exist
    at the path."""
    if not force and os.path.lexists(path):
        raise OutputError(f"{path} exists already. Give another --output, or --force to replace it")
    _check_replaceable(path)


def check_new_or_same(path: Path, content: bytes, force: bool) -> None:
    """Do the same as `check_new`, but allow a file with the content `content`, which a killed command has written."""
    if not (path.is_file() and not path.is_symlink() and path.read_bytes() == content):
        check_new(path, force)


def prepare_output(path: Path, force: bool) -> Path:
    """Return the path of a command's output, after checking it and deleting temporary files that killed commands left.

    Raises the errors of `check_new` and `check_writable`.
    """
    check_new(path, force)
    check_writable(path)
    return path


def _check_replaceable(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            raise OutputError(f"{path} is {kind_of(mode)}, expected a file or nothing. Delete it, or name another file")


def check_writable(path: Path) -> None:
    """Check that `path` can be written: write and remove a short temporary file in its nearest existing parent folder.
    Files that killed commands left under such names are deleted first.

    Raises OutputError if the system refuses the write. A full disk and other temporary faults (`PASSING`) raise
    OSError.
    """
    folder = next((parent for parent in path.parents if os.path.lexists(parent)), path.parent)
    temporary = folder / f"{path.name}.{_writer()}{TEMPORARY}"
    try:
        sweep_dead(folder / path.name)
        temporary.write_bytes(b"\n")
    except OSError as error:
        error.filename = str(path)
        if error.errno in PASSING:
            raise
        raise OutputError(explain(error)) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def kind_of(mode: int) -> str:
    """Return the kind of a path for messages, from its mode of `os.lstat`: "a link", "a folder" or "a pipe or a
    device"."""
    return "a link" if stat.S_ISLNK(mode) else "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"


def check_name(folder: Path, name: str, what: str) -> None:
    """Raise OutputError if the temporary name of a file `name` in a folder would be too long for the file system.

    `what` names what to shorten, for the message. The folder need not exist.
    """
    existing = folder.parents[-1]
    try:
        for parent in reversed(folder.parents):  # from the root down, since looking up a path that is too long fails
            if not parent.is_dir():
                break
            existing = parent
    except OSError as error:
        raise OutputError(f"the output folder cannot be created: {explain(error)}") from None
    longest = f"{name}.{os.uname().nodename}-{LARGEST_ID}-{LARGEST_ID}{TEMPORARY}"
    for length, limit in (
        (len(longest.encode()), os.pathconf(existing, "PC_NAME_MAX")),
        (len(os.fsencode(folder / longest)), os.pathconf(existing, "PC_PATH_MAX") - 1),
    ):
        if length > limit:
            raise OutputError(
                f"{name} cannot be written to {folder}: its temporary name has {length} bytes, and the file system "
                f"allows {limit}. Shorten {what}"
            )


def _sync_file(path: Path) -> None:
    if not _is_unsynced(path):
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a crash."""
    if _is_unsynced(folder / "any"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync them."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def make_folders(folders: Sequence[Path]) -> None:
    """Create folders that have the same parent, and sync the parent once."""
    if missing := [folder for folder in folders if not folder.is_dir()]:
        make_folder(missing[0].parent)
        for folder in missing:
            folder.mkdir(exist_ok=True)
        sync_folder(missing[0].parent)


def begin_sync(descriptor: int) -> None:
    """Start writing a file's data to disk without waiting, so that the final sync is shorter. Linux only."""
    if function := getattr(_LIBC, "sync_file_range", None):
        function(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)


def as_json(value: Any, indent: bool = False) -> bytes:
    """Return a value as UTF-8 JSON that ends with a newline."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0) + b"\n"


def numbered_path(folder: Path, number: int, suffix: str) -> Path:
    """Return the path of a numbered file, such as `000012.arrow`. From 10,000 on, files are in subfolders of 10,000:
    `0012/123456.arrow`."""
    if number >= FOLDER_FILES:
        folder = folder / f"{number // FOLDER_FILES:04d}"
    return folder / f"{number:06d}{suffix}"


def numbered_folders(folder: Path) -> Iterator[Path]:
    """Yield a folder, and those of its subfolders that have a name from `numbered_path`."""
    yield folder
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.isdecimal() and entry.is_dir())
    yield from (folder / name for name in names if len(name) == 4)


def sync_files(folder: Path) -> None:
    """Sync every file below a folder, before a record declares them complete."""
    for path in folder.rglob("*"):
        if path.is_file():
            _sync_file(path)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal. It is cached until the file's size or modification time changes.

        >>> import curation
        >>> curation.known_sha256("recipe.yaml") == curation.known_sha256("recipe.yaml")
        True

    Raises InputError if the file cannot be opened.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(f"cannot open {path}: {fault_of(error)}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} is {kind_of(status.st_mode)}, expected a file")
    return _digest_of(str(path), status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _digest_of(path: str, size: int, modified_ns: int) -> str:
    return file_sha256(Path(path))


class GrowingDigest:
    """SHA-256 of a file that another thread appends to, computed in a thread."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  closed by close
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)

    def follow(self) -> Future[None]:
        """Start to hash the data that the file has now."""
        return self._thread.submit(self._read)

    def _read(self) -> None:
        while data := self._file.read(1 << 20):
            self._digest.update(data)

    def finish(self) -> str:
        """Return the digest of the whole file, in hexadecimal. The file must be complete."""
        self.follow().result()
        return self._digest.hexdigest()

    def close(self) -> None:
        """End the thread and close the file."""
        self._thread.shutdown(cancel_futures=True)
        self._file.close()


def write_json(path: Path, value: Any, indent: bool = False) -> None:
    """Write JSON with `commit`, so that a reader finds either the old file or the complete new one."""
    with commit(path) as temporary:
        temporary.write_bytes(as_json(value, indent))


def read_json(path: Path, kind: Any = None) -> Any:
    """Return the content of a JSON file; None if there is no file. Raises IntegrityError for invalid JSON, a folder, a
    pipe, or content that does not fit `kind` (a type for msgspec; None: any). Unknown keys are allowed."""
    import msgspec

    def decode(data: bytes) -> Any:
        try:
            content = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"it is not valid JSON: {error}") from None
        if kind is not None:
            msgspec.convert(content, kind)
        return content

    with reading(path):
        if path.is_fifo():  # it has no end
            raise ValueError("it is a pipe, expected a file")
        try:
            return read_whole(path, decode)
        except FileNotFoundError:
            return None


def remove(path: Path) -> None:
    """Delete a file, link or folder, if it exists. Raises LeaseLostError if this thread works under a lost lease."""
    fence()
    delete(path)


def delete(path: Path) -> None:
    """Do the same as `remove`, without a check of the lease.

    The files of a folder are deleted in parallel, since the system needs half a second to free a gigabyte.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with ThreadPoolExecutor() as pool:
        for folder, _, names in os.walk(path):  # one folder at a time: a run may have millions of files
            list(pool.map(partial(Path.unlink, missing_ok=True), [Path(folder, name) for name in names]))
    attempts = 0
    while path.exists():
        try:
            shutil.rmtree(path)
        except FileNotFoundError:  # another process deletes it too
            continue
        except OSError as error:  # another process has just written into it
            attempts += 1
            if error.errno != errno.ENOTEMPTY or attempts > REMOVALS:
                raise
            time.sleep(0.01)
