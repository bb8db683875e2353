# SPDX-License-Identifier: Apache-2.0
"""Find the files of an input: a file, a folder, a glob, a URL, or a list of them."""

from __future__ import annotations

import codecs
import glob
import logging
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, filterfalse, islice
from pathlib import Path

import msgspec

from curation.base.errors import InputError, IntegrityError, counted
from curation.base.system.files import read_json
from curation.base.system.os_errors import fault_of, is_of_system
from curation.base.system.path_advice import advice, unreplaced
from curation.reading.formats import FORMATS, STREAMED, by_suffix, is_copied
from curation.reading.formats.base import NEEDED, WHOLE
from curation.reading.globs import HIDDEN, glob_paths, hidden_hint, remote_matches
from curation.reading.inputs import (
    AUTO,
    LIST_MARK,
    AnyInput,
    FilesInput,
    HubInput,
    hub_label,
    input_names,
)
from curation.reading.left_out import LeftOut, conversion, hidden_below
from curation.reading.source_files import COMPRESSIONS, QUOTE, UTF8, ReadOptions, SourceFile
from curation.reading.streams import open_raw, open_stream
from curation.reading.urls import is_remote, path_of, shown

log = logging.getLogger(__name__)

ABOUT_DATA = re.compile(  # names without a suffix of files that are no data
    r"(?:read_?me|licen[cs]e|copying|copyright|notice|authors|changelog|changes|citation|manifest|makefile|todo|"
    r"(?:md5|sha\d+|b2|cksum)(?:sum)?s?)\b",
    re.IGNORECASE,
)
MAX_LISTED = 1000  # names of a folder that are read for a message
UNNOTICED_BYTES = 1 << 20  # one task reads a smaller file anyway, so it causes no warning
MAX_FILE_BYTES = 1 << 44  # 17.6 TB: half a million slices, far above the size of real files
STDIN = "-"
# Files and keys that identify the output folder of a run.
RUN_PLAN = ("_work", "plan.json")
RUN_REPORT = "report.json"
RUN_KEYS = {"recipe", "documents_digest"}
# Settings that an input gives to each of its files.
COPIED = (*ReadOptions.__struct_fields__, "separator", "encoding", "delimiter", "quote", "escape", "header", "extract")


def find_files(entries: Sequence[AnyInput], leave_out: str | os.PathLike[str] = "") -> list[SourceFile]:
    """Return the files of all inputs, in the order of the recipe, sorted within each input. Logs one warning about
    files that were found but are not read.

    leave_out   output folder of the run. Its files are no inputs, even if a folder or glob of an input contains them

    Raises InputError for a path without a file, an unknown format, a file that occurs twice (even through links), and a
    setting that the format of a file does not use. `probe` checks the content of the files.
    """
    left_out = LeftOut()
    files = list_files(entries, left_out, leave_out)
    if line := left_out.line():
        log.warning("%s", line)
    return files


def list_files(
    entries: Sequence[AnyInput], left_out: LeftOut, leave_out: str | os.PathLike[str] = ""
) -> list[SourceFile]:
    """Return the files as `find_files` does, without its warning. Files that are not read are added to `left_out`."""
    run = os.path.realpath(leave_out) if leave_out else ""
    paths = [(path, number) for number, entry in enumerate(entries) for path in _paths(entry, run, left_out)]
    if left_out.links is not None:
        left_out.links |= {path: fault for path, _ in paths if (fault := broken_link(path))}
        left_out.links |= _links_to_others([path for path, _ in paths])
        paths = [(path, number) for path, number in paths if path not in left_out.links]
    _check_once([path for path, _ in paths])
    names = input_names(entries)
    files = [_source_file(path, entries[number], names[number]) for path, number in paths]
    _warn_of_whole(files)
    return files


def _warn_of_whole(files: Sequence[SourceFile]) -> None:
    """Log a warning about files that are read slowly or copied to disk, because their server sends no parts of
    files."""
    whole = [file for file in files if file.is_whole]
    copied = [file for file in whole if is_copied(file)]
    slow = [file for file in whole if FORMATS[file.format].is_divisible(file) and not is_copied(file)]
    slow = [file for file in slow if file.bytes > UNNOTICED_BYTES]
    for group, how in ((slow, "one task reads it, from its beginning"), (copied, "it is copied to local disk first")):
        if group:
            size = sum(max(file.bytes, 0) for file in group)
            others = f" and {counted(len(group) - 1, 'other file')}" if group[1:] else ""
            log.warning(
                "The server sends no parts of %s%s: %s (%s bytes)", shown(group[0].path), others, how, f"{size:,}"
            )


def broken_link(path: str) -> str:
    """Return the message about a link to a file that does not exist; "" for any other path."""
    if is_remote(path) or not os.path.islink(path) or os.path.exists(path):
        return ""
    return f"{path} is a broken link: {os.readlink(path)} does not exist. Replace the link, or delete it"


def _paths(entry: AnyInput, run: str, left_out: LeftOut) -> list[str]:
    """Return the paths of the files of an input; for a streamed data set, its label."""
    if isinstance(entry, HubInput):
        return [hub_label(entry)]
    try:
        return [path for listed in _listed(entry) for path in _matches(listed, run, entry.format != AUTO, left_out)]
    except InputError as error:
        if not entry.path.startswith(LIST_MARK) or entry.path.removeprefix(LIST_MARK) in str(error):
            raise
        raise InputError(f"{error}. The list {shown(entry.path.removeprefix(LIST_MARK))} names it") from None


def split_suffix(path: str) -> tuple[str, str]:
    """Return (format, compression) from the suffixes of a path; "" for each that is unknown."""
    stem, suffix = os.path.splitext(path.lower())
    compression = COMPRESSIONS.get(suffix, "")
    return by_suffix(os.path.splitext(stem)[1] if compression else suffix), compression


def _suffixes_of(path: str) -> tuple[str, str]:
    """Return the result of `split_suffix` for a path, or for a URL without its query."""
    return split_suffix(path_of(path) if is_remote(path) else path)


def has_no_suffix(path: str) -> bool:
    """Return whether the name of a file has no suffix except that of a compression, and is not a name such as
    README."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return not os.path.splitext(stem if suffix.lower() in COMPRESSIONS else name)[1] and not ABOUT_DATA.match(name)


def _files_below(
    folder: str, unknown: list[str] | None = None, hidden: list[str] | None = None, with_bare: bool = False
) -> Iterable[str]:
    """Yield all input files in a folder and its subfolders, sorted. Links to folders are followed, but each folder is
    entered only once. Output folders of runs are skipped.

    unknown     list to which files with names of no known format are appended
    hidden      list to which files of a known format with hidden names or folders are appended
    with_bare   whether files without a suffix are input files, because the input sets their format
    """
    seen = {os.path.realpath(folder)}
    for parent, folders, names in os.walk(folder, onerror=_cannot_list, followlinks=True):
        paths = [os.path.join(parent, name) for name in sorted(names)]
        if hidden is not None:
            below = (os.path.join(parent, name) for name in sorted(folders) if name.startswith(HIDDEN))
            hidden_files = (path for path in paths if os.path.basename(path).startswith(HIDDEN))
            hidden += filter(_is_known, chain(hidden_files, *(hidden_below(path, is_run) for path in below)))
        folders[:] = [name for name in sorted(folders) if _is_entered(os.path.join(parent, name), seen)]
        for path in paths:
            name = os.path.basename(path)
            if name.startswith(HIDDEN):
                continue
            if not split_suffix(name)[0] and not (with_bare and has_no_suffix(name)):
                if unknown is not None:
                    unknown.append(path)
            elif _is_readable_kind(path):
                yield path


def _is_known(path: str) -> bool:
    """Return whether a path is a file whose name tells its format."""
    return bool(split_suffix(path)[0]) and os.path.isfile(path)


def has_input_file(folder: str) -> bool:
    """Return whether a file in a folder or below it has a name that tells its format."""
    return any(True for _ in _files_below(folder))


def _is_readable_kind(path: str) -> bool:
    """Return whether a path in a folder or glob is a file, or a broken link, which fails later at opening.

    Pipes and devices may have no end: they are skipped with a warning.
    """
    if os.path.isfile(path) or not os.path.exists(path):
        return True
    if not os.path.isdir(path):
        log.warning("%s is skipped: it is no regular file", path)
    return False


def _is_entered(folder: str, seen: set[str]) -> bool:
    real = os.path.realpath(folder)
    if os.path.basename(folder).startswith(HIDDEN) or real in seen or is_run(folder):
        return False
    seen.add(real)
    return True


def is_run(folder: str) -> bool:
    """Return whether a folder is the output of a run, finished or not."""
    if os.path.isfile(os.path.join(folder, *RUN_PLAN)):
        return True
    path = Path(folder, RUN_REPORT)
    try:
        report = read_json(path) if path.is_file() else None  # a pipe has no end
    except (OSError, IntegrityError):
        return False
    return isinstance(report, dict) and report.keys() >= RUN_KEYS


def _cannot_list(error: OSError) -> None:
    raise InputError(f"folder {error.filename} cannot be listed: {fault_of(error)}") from None


def _matches(path: str, leave_out: str, has_format: bool, left_out: LeftOut) -> list[str]:
    """Return the files of a path in a recipe, sorted. If a file with wildcards in its name exists, the path is no glob.

    has_format   whether the input sets the format, so that a folder's files without a suffix are read
    left_out     gets the files of a folder or glob that are not read
    """
    if is_remote(path):
        remote = remote_matches(path)
        known = [url for url in remote.hidden if _suffixes_of(url)[0]]
        left_out.add_hidden(known, path.rpartition("/")[0], remote.sizes.__getitem__)
        return remote.shown
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        if is_run(path):
            raise InputError(
                f"{path} is the output folder of a run; to read its documents: {os.path.join(path, 'documents')}"
            )
        unknown: list[str] = []
        hidden: list[str] = []
        files = _without(leave_out, _files_below(path, unknown, hidden, has_format), path)
        left_out.add_hidden(_without(leave_out, hidden, path), path)
        if not files:
            outputs = (parent for parent, _, _ in os.walk(path) if is_run(parent))
            skipped = next(outputs, leave_out if any(_files_below(path)) else "")
            hint = _skipped_hint(skipped) or (f". {left_out.hidden_line()}" if hidden else _content_hint(path))
            raise InputError(f"folder {path} holds no input file; expected names ending in {_known_suffixes()}{hint}")
        left_out.add_unknown(_without(leave_out, unknown, path))
        return files
    if path == STDIN or os.path.exists(path):
        raise InputError(
            f"input {path} is no regular file: inputs are read several times, and by several workers. Write it to a "
            "file first"
        )
    if not glob.has_magic(path):
        try:
            os.stat(path)
        except PermissionError as error:  # of a folder above it
            raise InputError(f"cannot open {path}: {fault_of(error)}") from None
        except (OSError, ValueError):
            pass
        if os.path.islink(path):
            raise InputError(f"input {broken_link(path)}")
        raise InputError(f"input {path} does not exist (working directory: {os.getcwd()}){advice(path)}")
    matched = glob_paths(path)
    matches = [match for match in matched.shown if _is_readable_kind(match)]
    files = _without(leave_out, matches, path)
    if not files:
        skipped = leave_out if matches else ""
        hint = _skipped_hint(skipped) or hidden_hint(filter(os.path.isfile, matched.hidden)) or _pattern_hint(path)
        raise InputError(f"no file matches {path} (working directory: {os.getcwd()}){hint}")
    left_out.add_hidden(_without(leave_out, _data_among(matched.hidden), path), _fixed_part(path))
    return files


def _data_among(hidden: Sequence[str]) -> Iterable[str]:
    """Return the hidden matches of a glob that are files of a known format and not in output folders of runs."""
    in_run = cache(lambda folder: bool(folder) and (is_run(folder) or in_run(os.path.dirname(folder.rstrip("/")))))
    return (path for path in hidden if _is_known(path) and not in_run(os.path.dirname(path)))


def _skipped_hint(folder: str) -> str:
    """Return the hint for an output folder of a run that was skipped in the search; "" without one."""
    if not folder:
        return ""
    return f". Output folders of runs are skipped; path: {os.path.join(folder, 'documents')} reads one"


def _pattern_hint(pattern: str) -> str:
    """Return the hint for a glob without a match: its folder does not exist, or it has an unreplaced variable or the
    like."""
    fixed = _fixed_part(pattern)
    if (reason := unreplaced(pattern)) or not fixed or os.path.isdir(fixed):
        return f"; {reason}" if reason else ""
    return f"; there is no folder {fixed}"


def _content_hint(folder: str) -> str:
    """Return the hint for a folder without an input file: the suffixes of its files."""
    names = list(islice(chain.from_iterable(names for _, _, names in os.walk(folder)), MAX_LISTED))
    suffixes = list(dict.fromkeys(os.path.splitext(name)[1] or name for name in names))
    if not suffixes:
        return ". It is empty"
    shown_suffixes = ", ".join(suffixes[:5]) + (", ..." if suffixes[5:] else "")
    bare = any(map(has_no_suffix, names))
    remedy = f". To read files without a suffix, set format: to one of {', '.join(FORMATS)}" if bare else ""
    return f". It holds {shown_suffixes}{remedy or conversion(suffixes[0])}"


def _without(folder: str, paths: Iterable[str], asked: str) -> list[str]:
    """Return the paths that are not in a folder. If the input's path (`asked`) is in the folder, return all paths."""
    if not folder or _is_in(folder, os.path.realpath(_fixed_part(asked))):
        return list(paths)
    real = RealPaths()
    return [path for path in paths if not _is_in(folder, real(path))]


def _is_in(folder: str, path: str) -> bool:
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


class RealPaths:
    """Does the same as `os.path.realpath`, but resolves each folder once. It is ten times as fast for many files in few
    folders."""

    def __init__(self) -> None:
        self._folder = cache(os.path.realpath)

    def __call__(self, path: str) -> str:
        folder, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir) or os.path.islink(path):
            return os.path.realpath(path)
        return os.path.join(self._folder(folder), name)


def _fixed_part(path: str) -> str:
    """Return the folder in which a glob begins to search; a path without wildcards is returned unchanged."""
    while glob.has_magic(path):
        path = os.path.dirname(path)
    return path


def _listed(entry: FilesInput) -> list[str]:
    """Return the paths of an input: its own path, or those in its list."""
    if not entry.path.startswith(LIST_MARK):
        return [entry.path]
    path = os.path.expanduser(entry.path.removeprefix(LIST_MARK))
    if not is_remote(path) and not os.path.isfile(path):
        problem = "is no regular file" if os.path.exists(path) else f"does not exist (working directory: {os.getcwd()})"
        raise InputError(f"list of inputs {path} {problem}")
    with open_stream(path, _suffixes_of(path)[1]) as stream:
        try:
            lines = stream.read().decode("utf-8-sig", "replace").splitlines()
        except (EOFError, OSError) as error:
            if is_of_system(error):
                raise
            raise InputError(f"list of inputs {shown(path)} is damaged or cut off: {error}") from None
    paths = [entry.base + line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not paths:
        raise InputError(f"list of inputs {shown(path)} is empty")
    return paths


def _known_suffixes() -> str:
    suffixes = (suffix for kind in FORMATS.values() for suffix in kind.suffixes)
    return ", ".join([*suffixes, *(f".jsonl{suffix}" for suffix in COMPRESSIONS)])


def _source_file(path: str, entry: AnyInput, name: str) -> SourceFile:
    if isinstance(entry, HubInput):
        return _described(path, entry, name, STREAMED.name, "", (-1, 0))
    suffix_format, compression = _suffixes_of(path)
    format_ = suffix_format if entry.format == AUTO else entry.format
    if not format_:
        known = _known_suffixes()
        remedy = conversion(os.path.splitext(path)[1]) or f". Set format: to one of {', '.join(FORMATS)}"
        raise InputError(f"the name of {shown(path)} does not tell its format; expected {known}{remedy}")
    if compression and FORMATS[format_].parts == NEEDED:
        raise InputError(f"{shown(path)}: {format_.title()} has internal compression; decompress the file first")
    _check_read(entry, path, format_)
    where = path if is_remote(path) else os.path.abspath(path)
    if not is_remote(path):
        return _described(where, entry, name, format_, compression, _status(path))
    with open_raw(path) as file:
        kind = FORMATS[format_]
        is_whole = kind.parts != WHOLE and not (compression or file.sends_ranges(kind.parts == NEEDED))
        described = _described(where, entry, name, format_, compression, (file.size, 0))
        return msgspec.structs.replace(described, version=file.version, is_whole=is_whole)


def _check_read(entry: FilesInput, path: str, format_: str) -> None:
    """Raise InputError for a setting that the reader of the format does not use."""
    given = {
        "separator": bool(entry.separator),
        "encoding": codecs.lookup(entry.encoding).name not in UTF8,
        "delimiter": bool(entry.delimiter),
        "quote": entry.quote != QUOTE,
        "escape": bool(entry.escape),
        "header": not entry.header,
        "extract": bool(entry.extract),
    }
    for field, is_given in given.items():
        if is_given and field not in FORMATS[format_].options:
            readers = [name for name, kind in FORMATS.items() if field in kind.options]
            raise InputError(
                f"{shown(path)} is read as {format_}, but {field} is for {', '.join(readers)}. Leave {field} out, or "
                "make these files a separate input"
            )


def _described(
    path: str, entry: AnyInput, name: str, format_: str, compression: str, status: tuple[int, int]
) -> SourceFile:
    if status[0] > MAX_FILE_BYTES:
        raise InputError(
            f"{shown(path)} reports {status[0]:,} bytes, more than the limit of {MAX_FILE_BYTES:,}; split it"
        )
    return SourceFile(
        path=path,
        source=name,
        format=format_,
        compression=compression,
        bytes=status[0],
        modified_ns=status[1],
        **{field: getattr(entry, field) for field in COPIED if hasattr(entry, field)},
        split=entry.parts or msgspec.UNSET,
    )


def _status(path: str) -> tuple[int, int]:
    try:
        os.path.abspath(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"the name of {path!r} is not valid UTF-8; rename the file or a folder above it") from None
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(broken_link(path) or f"cannot open {path}: {fault_of(error)}") from None
    return status.st_size, status.st_mtime_ns


def _links_to_others(paths: Sequence[str]) -> dict[str, str]:
    """Return link -> why a run cannot read it, for links to files that are also among the paths."""
    real_path = RealPaths()
    first: dict[str, str] = {}
    for path in sorted(filterfalse(is_remote, paths), key=os.path.islink):  # files are sorted before links
        first.setdefault(real_path(path), path)
    linked = {path: first[real_path(path)] for path in paths if os.path.islink(path)}
    return {
        path: f"{path} is a link to {shown(other)}, which is read" for path, other in linked.items() if other != path
    }


def _check_once(paths: Iterable[str]) -> None:
    """Raise InputError if a file occurs twice, even through links."""
    seen: dict[str, str] = {}
    real_path = RealPaths()
    for path in paths:
        real = path if is_remote(path) else real_path(path)
        if real in seen:
            once = "a file can be read once in a run"
            if path == seen[real]:
                raise InputError(f"{shown(path)} is given twice; {once}")
            raise InputError(
                f"{shown(path)} and {shown(seen[real])} are the same file; {once}. Leave one out: give a glob that "
                f"does not match it, or a list of the files, as in path: {LIST_MARK}files.list"
            )
        seen[real] = path
