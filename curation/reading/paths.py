# SPDX-License-Identifier: Apache-2.0
"""Which files the path of an input stands for: a file, a folder, a glob, an URL, or a list of them."""

from __future__ import annotations

import codecs
import glob
import logging
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from curation.errors import InputError, IntegrityError
from curation.files import read_json
from curation.reading.inputs import (
    COMPRESSIONS,
    ENCODED,
    LIST_MARK,
    SUFFIXES,
    AnyInput,
    FilesInput,
    HubInput,
    ReadOptions,
    hub_label,
    input_names,
)
from curation.reading.remote import cause_of, refuse_remote
from curation.reading.source_files import SourceFile
from curation.reading.streams import open_raw, open_stream
from curation.reading.urls import check_url, is_remote, scrubbed, shown

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 44  # 17.6 TB: half a million slices, and far from what one file has
STDIN = "-"
UTF8 = ("utf-8", "utf-8-sig")  # as `codecs` names what every format has
# What tells the folder of a run.
RUN_PLAN = ("_work", "plan.json")
RUN_REPORT = "report.json"
RUN_KEYS = {"recipe", "documents_digest"}
COPIED = (*ReadOptions.__struct_fields__, "separator", "encoding")  # from an input to each of its files


def find_files(entries: Sequence[AnyInput], leave_out: str | os.PathLike[str] = "") -> list[SourceFile]:
    """All files of all inputs, in the order of the recipe and sorted inside an input.

    leave_out   the folder of the run's output: no input, where a folder or glob around it would take it for one

    Raises InputError for a path that stands for no file, an unknown format, and a file that two inputs (or two names
    in one input) resolve to, or whose format has no use for a setting. What is in the files is looked at by `probe`.
    """
    left_out = os.path.realpath(leave_out) if leave_out else ""
    found = [(path, number) for number, entry in enumerate(entries) for path in _paths(entry, left_out)]
    _check_once([path for path, _ in found])
    names = input_names(entries)
    return [_source_file(path, entries[number], names[number]) for path, number in found]


def _paths(entry: AnyInput, left_out: str) -> list[str]:
    """The files of an input; of a data set, which is streamed, its label."""
    if isinstance(entry, HubInput):
        return [hub_label(entry)]
    return [path for listed in _listed(entry) for path in _matches(listed, left_out)]


def split_suffix(path: str) -> tuple[str, str]:
    """(format, compression) by the suffixes of a path; ("", ...) where the format is not known."""
    stem, suffix = os.path.splitext(path.lower())
    compression = COMPRESSIONS.get(suffix, "")
    if compression:
        suffix = os.path.splitext(stem)[1]
    return SUFFIXES.get(suffix, ""), compression


def _suffixes_of(path: str) -> tuple[str, str]:
    """As `split_suffix`, without the query of an URL."""
    return split_suffix(path.split("?")[0] if is_remote(path) else path)


def _files_below(folder: str) -> Iterable[str]:
    """All input files in a folder and those below it, sorted. Links to folders are followed, but no folder is entered
    twice, and none below it that a run of this program has written."""
    seen = {os.path.realpath(folder)}
    for parent, folders, names in os.walk(folder, onerror=_cannot_list, followlinks=True):
        folders[:] = [name for name in sorted(folders) if _is_entered(os.path.join(parent, name), seen)]
        for name in sorted(names):
            if not name.startswith((".", "_")) and split_suffix(name)[0]:
                path = os.path.join(parent, name)
                if _is_readable_kind(path):
                    yield path


def _is_readable_kind(path: str) -> bool:
    """Whether a path in a folder or of a glob is a file, or leads nowhere, which is an error when it is opened. Pipes
    and devices may have no end: they are passed over with a warning."""
    if os.path.isfile(path) or not os.path.exists(path):
        return True
    if not os.path.isdir(path):
        log.warning("%s is passed over: it is no regular file", path)
    return False


def _is_entered(folder: str, seen: set[str]) -> bool:
    real = os.path.realpath(folder)
    if os.path.basename(folder).startswith((".", "_")) or real in seen or is_run(folder):
        return False
    seen.add(real)
    return True


def is_run(folder: str) -> bool:
    """Whether a folder is the output of a run, finished or not."""
    if os.path.isfile(os.path.join(folder, *RUN_PLAN)):
        return True
    try:
        report = read_json(Path(folder, RUN_REPORT))
    except (OSError, IntegrityError):
        return False
    return isinstance(report, dict) and report.keys() >= RUN_KEYS


def _cannot_list(error: OSError) -> None:
    raise InputError(f"folder {error.filename} cannot be listed: {error.strerror}") from None


def _matches(path: str, leave_out: str) -> list[str]:
    """The files that a path of a recipe stands for, sorted; an existing file wins over its reading as a glob."""
    if is_remote(path):
        return _remote_matches(path)
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        if is_run(path):
            raise InputError(f"{path} is the folder of a run; to read what it kept: {os.path.join(path, 'documents')}")
        found = _without(leave_out, _files_below(path), path)
        if not found:
            outputs = (parent for parent, _, _ in os.walk(path) if is_run(parent))
            passed = next(outputs, leave_out if any(_files_below(path)) else "")
            raise InputError(
                f"folder {path} holds no input file; expected names ending in {_known_suffixes()}{_passed_over(passed)}"
            )
        return found
    if path == STDIN or os.path.exists(path):
        raise InputError(
            f"input {path} is no regular file: inputs are read several times, and by several workers. Write it to a "
            "file first"
        )
    if not glob.has_magic(path):
        try:
            os.stat(path)
        except PermissionError as error:  # of a folder above it
            raise InputError(f"cannot open {path}: {error.strerror}") from None
        except (OSError, ValueError):
            pass
        raise InputError(f"input {path} does not exist (looked from {os.getcwd()})")
    _check_listed(path)
    matches = sorted(match for match in glob.glob(path, recursive=True) if _is_readable_kind(match))
    found = _without(leave_out, matches, path)
    if not found:
        passed = leave_out if matches else ""
        raise InputError(f"no file matches {path} (looked from {os.getcwd()}){_passed_over(passed)}")
    return found


def _check_listed(pattern: str) -> None:
    """InputError for a folder that a glob passes over, since it may not be listed or entered.

    Part after part: the folders that the parts before it match are those that `glob` looks into."""
    head, parts = pattern, []
    while glob.has_magic(head):
        head, part = os.path.split(head)
        parts.append(part)
    for part in reversed(parts):
        folders = glob.glob(os.path.join(head, ""), recursive=True) if glob.has_magic(head) else [head or os.curdir]
        if part == "**":
            below = (glob.glob(os.path.join(glob.escape(folder), "**", ""), recursive=True) for folder in folders)
            folders = [*folders, *chain.from_iterable(below)]
        for folder in dict.fromkeys(map(os.path.normpath, folders)):
            _check_folder(folder, glob.has_magic(part))
        head = os.path.join(head, part)


def _check_folder(folder: str, is_listed: bool) -> None:
    try:
        os.stat(os.path.join(folder, os.curdir))
        if is_listed:
            os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):  # matches nothing
        return
    except OSError as error:
        raise InputError(f"folder {folder} cannot be listed: {error.strerror}") from None


def _passed_over(folder: str) -> str:
    """What to say of the output of a run in which an input was looked for."""
    if not folder:
        return ""
    return f". Folders of runs and the output are passed over; path: {os.path.join(folder, 'documents')} reads one"


def _without(folder: str, paths: Iterable[str], asked: str) -> list[str]:
    """The paths that do not lead into a folder, unless what was asked for is in it."""
    if not folder or _is_in(folder, os.path.realpath(_fixed_part(asked))):
        return list(paths)
    real = RealPaths()
    return [path for path in paths if not _is_in(folder, real(path))]


def _is_in(folder: str, path: str) -> bool:
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


class RealPaths:
    """`os.path.realpath` that resolves each folder once: for many files in few folders ten times as fast."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        folder, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir) or os.path.islink(path):
            return os.path.realpath(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)


def _fixed_part(path: str) -> str:
    """The folder in which a glob begins to search; a path without wildcards as it is."""
    while glob.has_magic(path):
        path = os.path.dirname(path)
    return path


def _remote_matches(url: str) -> list[str]:
    """The files of an URL: itself, or what a glob in it matches."""
    if not glob.has_magic(url.split("?")[0]):
        return [url]
    import fsspec

    check_url(url)
    try:
        system, pattern = fsspec.core.url_to_fs(url)
        found = sorted(system.unstrip_protocol(match) for match in system.glob(pattern))
    except Exception as raised:  # file systems raise errors of their own libraries
        error = cause_of(raised)
        refuse_remote(url, error)
        raise InputError(f"{shown(url)} cannot be listed: {scrubbed(error, url) or type(error).__name__}") from None
    if not found:
        raise InputError(f"no file matches {shown(url)}")
    return found


def _listed(entry: FilesInput) -> list[str]:
    """The paths that an input names: its own, or those of a list."""
    if not entry.path.startswith(LIST_MARK):
        return [entry.path]
    path = os.path.expanduser(entry.path.removeprefix(LIST_MARK))
    if not is_remote(path) and not os.path.isfile(path):
        problem = "is no regular file" if os.path.exists(path) else f"does not exist (looked from {os.getcwd()})"
        raise InputError(f"list of inputs {path} {problem}")
    with open_stream(path, _suffixes_of(path)[1]) as stream:
        try:
            lines = stream.read().decode("utf-8-sig", "replace").splitlines()
        except (EOFError, OSError) as error:
            raise InputError(f"list of inputs {shown(path)} is damaged or cut off: {error}") from None
    found = [entry.base + line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise InputError(f"list of inputs {shown(path)} is empty")
    return found


def _known_suffixes() -> str:
    return ", ".join([*SUFFIXES, *(f".jsonl{suffix}" for suffix in COMPRESSIONS)])


def _source_file(path: str, entry: AnyInput, name: str) -> SourceFile:
    if isinstance(entry, HubInput):
        return _described(path, entry, name, "huggingface", "", (-1, 0))
    found, compression = _suffixes_of(path)
    format_ = found if entry.format == "auto" else entry.format
    if not format_:
        known = _known_suffixes()
        raise InputError(f"cannot tell the format of {shown(path)} by its name; expected {known}. Set format:")
    if format_ == "parquet" and compression:
        raise InputError(f"{shown(path)}: Parquet is compressed inside; decompress the file first")
    _check_read(entry, path, format_)
    where = path if is_remote(path) else os.path.abspath(path)
    if not is_remote(path):
        return _described(where, entry, name, format_, compression, _status(path))
    with open_raw(path) as file:
        described = _described(where, entry, name, format_, compression, (file.size, 0))
        return msgspec.structs.replace(described, version=file.version)


def _check_read(entry: FilesInput, path: str, format_: str) -> None:
    """InputError for a setting that the reader of the format does not look at."""
    other = codecs.lookup(entry.encoding).name not in UTF8
    for field, given, readers in (
        ("separator", bool(entry.separator), ("text",)),
        ("encoding", other, ENCODED),
    ):
        if given and format_ not in readers:
            raise InputError(
                f"{shown(path)} is read as {format_}, but {field} is for {', '.join(readers)}. Leave {field} out, or "
                "make these files an input of their own"
            )


def _described(
    path: str, entry: AnyInput, name: str, format_: str, compression: str, status: tuple[int, int]
) -> SourceFile:
    if status[0] > MAX_FILE_BYTES:
        raise InputError(f"{shown(path)} says that it has {status[0]:,} bytes, more than {MAX_FILE_BYTES:,}; cut it")
    return SourceFile(
        path=path,
        source=name,
        format=format_,
        compression=compression,
        bytes=status[0],
        modified_ns=status[1],
        **{field: getattr(entry, field) for field in COPIED if hasattr(entry, field)},
    )


def _status(path: str) -> tuple[int, int]:
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"the name of {path!r} is not valid UTF-8; rename the file or a folder above it") from None
    try:
        status = os.stat(path)
    except OSError as error:  # such as a link to nothing
        raise InputError(f"cannot open {path}: {error.strerror}") from None
    return status.st_size, status.st_mtime_ns


def _check_once(paths: Iterable[str]) -> None:
    """InputError where a file is there twice, perhaps by links."""
    seen: dict[str, str] = {}
    real_path = RealPaths()
    for path in paths:
        real = path if is_remote(path) else real_path(path)
        if real in seen:
            both = f"{shown(path)} and {shown(seen[real])} are the same file"
            again = f"{shown(path)} is given twice" if path == seen[real] else both
            raise InputError(f"{again}; a file can be read once in a run")
        seen[real] = path
