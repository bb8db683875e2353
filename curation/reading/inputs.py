# SPDX-License-Identifier: Apache-2.0
"""What is read: paths become files, files become slices, before anything runs.

A slice is the unit of work and of resuming: a byte range of a plain JSON Lines file, a run of Parquet row groups, or a
whole compressed file. Results do not depend on how slices are cut.
"""

from __future__ import annotations

import codecs
import glob
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec

from curation.errors import InputError, IntegrityError
from curation.files import read_json
from curation.reading.remote import cause_of, refuse_remote
from curation.reading.streams import open_raw, open_stream
from curation.reading.urls import check_url, is_remote, scrubbed, shown

log = logging.getLogger(__name__)

SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".wet": "wet",
    ".warc": "warc",
}
FORMATS = ("auto", *dict.fromkeys(SUFFIXES.values()))
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
LIST_MARK = "@"
HUB_MARK = "hf:"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_FILES_PER_SLICE = 1000
MAX_FILE_BYTES = 1 << 44  # 17.6 TB: half a million slices, and far from what one file has
STDIN = "-"
UTF8 = ("utf-8", "utf-8-sig")  # as `codecs` names what every format has
ENCODED = ("text", "csv", "tsv")  # formats that may be in another encoding
# What tells the folder of a run.
RUN_PLAN = ("_work", "plan.json")
RUN_REPORT = "report.json"
RUN_KEYS = {"recipe", "documents_digest"}


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `input:` in a recipe.

    path                a file, a folder (all files below it whose suffix is known, but for the outputs of runs), a
                        glob, an URL for fsspec, or `@FILE`: a list of paths or URLs, one per line, perhaps gzipped
                        (Common Crawl's wet.paths.gz); or `hf:ORG/NAME`, `hf:FOLDER`: a data set that Hugging Face
                        `datasets` streams
    base                put in front of every entry of such a list (`https://data.commoncrawl.org/`)
    name                stands for the input in `source`, in made ids and in output names; by default made of the path,
                        with a number where another input has it (`x`, `x-2`); it may not look like a number, which
                        Megatron takes for a weight
    format              by suffix, or one of jsonl, parquet, arrow, csv, tsv, text, wet, warc
    text_column         "" finds it: text, content, body, raw_content, ...; a dotted path reaches into nested JSON
    id_column           strings or integers; records without one are called `<name>/<doc>`
    columns             further fields that go along to `documents/`, as strings (WET and WARC: url, date; text: path)
    separator           text: cut files here; "" makes each file one document
    encoding            of text, csv and tsv
    max_document_bytes  larger records are rejected; of text in UTF-8, whatever its encoding
    blend_weight        how training draws from this input, relative to its tokens
    sample              share of the documents that is taken, by a hash of id, text and the recipe's `seed`
    copies              how often each kept document is written, one whole copy of the input after the other
    min_bytes           an input with less text (after `sample`) is an error; 0: any
    config, split, revision, data_files   hf: which part of a data set, in which version
    max_documents, max_bytes   hf: budget; the document that reaches it is the last one; 0: all
    """

    path: str
    base: str = ""
    name: str = ""
    format: str = "auto"
    text_column: str = ""
    id_column: str = "id"
    columns: list[str] = []
    separator: str = ""
    encoding: str = "utf-8"
    max_document_bytes: int = 100_000_000
    blend_weight: float = 1.0
    sample: float = 1.0
    copies: int = 1
    min_bytes: int = 0
    config: str = ""
    split: str = "train"
    revision: str = ""
    data_files: str = ""
    max_documents: int = 0
    max_bytes: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.path, os.PathLike):
            msgspec.structs.force_setattr(self, "path", os.fspath(self.path))
        if not isinstance(self.path, str) or isinstance(self.columns, str):
            raise ValueError(f"path must be text and columns a list, not {self.path!r} and {self.columns!r}")
        self._check_shares()
        self._check_hub()
        if not self.path:
            raise ValueError("path is empty; give a file, a folder, a glob or an URL")
        if self.base and not self.path.startswith(LIST_MARK):
            raise ValueError(f"base goes with a list of paths; write path: '{LIST_MARK}{shown(self.path)}'")
        if self.format not in FORMATS:
            raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.name and not NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} must be letters, digits, '.', '_' and '-', a letter or digit first")
        if self.name and _is_number(self.name):
            raise ValueError(f"name {self.name!r} looks like a number, which Megatron would read as a blend weight")
        if self.text_column == self.id_column:
            raise ValueError(f"text_column and id_column are both {self.text_column!r}")
        for column in self.columns:
            if column in RESERVED:
                raise ValueError(
                    f"columns may not name {column!r}: the outputs have a column of that name of their own. Leave it "
                    "out, or rename it in the files"
                )
            if self.columns.count(column) > 1:
                raise ValueError(f"columns may not name {column!r} twice")
        if self.max_document_bytes < 1:
            raise ValueError(f"max_document_bytes must be at least 1, not {self.max_document_bytes}")
        if not self.blend_weight > 0:
            raise ValueError(f"blend_weight must be above 0, not {self.blend_weight}: leave the input out instead")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise ValueError(f"encoding {self.encoding!r} is not known to Python") from None

    def _check_shares(self) -> None:
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample must be above 0 and at most 1, not {self.sample}: leave the input out instead")
        if self.copies < 1:
            raise ValueError(f"copies must be at least 1, not {self.copies}; for less than all of an input set sample")
        for field in ("min_bytes", "max_bytes", "max_documents"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must be 0 (none) or more, not {getattr(self, field)}")

    def _check_hub(self) -> None:
        if is_hub(self.path):
            if self.path == HUB_MARK or self.format != "auto":
                raise ValueError(f"{self.path} must name a data set, as in {HUB_MARK}ORG/NAME, and takes no format")
            return
        for field in ("max_documents", "max_bytes"):
            if getattr(self, field):
                raise ValueError(
                    f"{field} is for data sets of Hugging Face ({HUB_MARK}ORG/NAME), which are streamed; of files, "
                    "sample takes a share"
                )
        for field, default in (("config", ""), ("revision", ""), ("data_files", ""), ("split", "train")):
            if getattr(self, field) != default:
                path = f"{HUB_MARK}{shown(self.path)}"
                raise ValueError(f"{field} is for data sets of Hugging Face; write path: '{path}'")


# Fields of an Input that say how the files of its path are read: what functions and stages that read files take.
READING = ("base", "name", "format", "text_column", "id_column", "separator", "encoding", "max_document_bytes")


def list_inputs(given: Any, settings: Mapping[str, Any] | None = None) -> list[Input]:
    """The inputs behind a path, an `Input`, its dictionary, or a list of them. `settings` are those of the paths.
    ValueError says which of them is wrong, and why."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | os.PathLike | Input | Mapping)
    listed = list(given) if several else [given]
    paths = [isinstance(entry, str | os.PathLike) for entry in listed]
    found = msgspec.convert(
        [
            {"path": os.fspath(entry), **(settings or {})} if is_path else entry
            for entry, is_path in zip(listed, paths, strict=True)
        ],
        list[Input],
    )
    if settings and not all(paths):
        raise ValueError(f"{', '.join(settings)} cannot go with an Input or its dictionary, which has its own")
    return found


def refuse_streamed(entries: Iterable[Input]) -> None:
    """InputError for a data set of Hugging Face, which a run alone can read."""
    for entry in entries:
        if is_hub(entry.path):
            raise InputError(f"{entry.path} is streamed: run a recipe with this input, then read its documents/")


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all inputs together may and must have; 0: any.

    max_documents, max_bytes   of all `hf:` inputs, taken in their order until it is reached; bytes are of the text
    min_bytes                  a run that reads less text is an error
    """

    max_documents: int = 0
    max_bytes: int = 0
    min_bytes: int = 0

    def __post_init__(self) -> None:
        for field in ("max_documents", "max_bytes", "min_bytes"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must be 0 (none) or more, not {getattr(self, field)}")


def is_hub(path: str) -> bool:
    """Whether a path is a data set for Hugging Face `datasets`."""
    return path.startswith(HUB_MARK)


def hub_label(entry: Input) -> str:
    """How messages and reports call a data set: `hf:ORG/NAME:CONFIG[SPLIT]@REVISION`."""
    config = f":{entry.config}" if entry.config else ""
    files = f":{shown(entry.data_files)}" if entry.data_files else ""
    return f"{entry.path}{config}{files}[{entry.split}]" + (f"@{entry.revision}" if entry.revision else "")


RESERVED = ("doc", "row", "id", "source", "text", "bytes")


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of an input as it was when the run was planned. `bytes` is -1 and `modified_ns` 0 where an URL's are not
    known. Stored without the fields that have their defaults: there may be hundreds of thousands of files."""

    path: str
    source: str
    format: str
    compression: str = ""
    bytes: int
    modified_ns: int
    text_column: str = ""
    id_column: str = "id"
    columns: list[str] = []
    separator: str = ""
    encoding: str = "utf-8"
    max_document_bytes: int = 100_000_000
    sample: float = 1.0
    label: str = ""  # of a file made from a data set: the data set
    commit: str = ""  # of the hub, that it was read at
    version: str = ""  # of an URL, as its server tells it

    def without_secrets(self) -> SourceFile:
        """As plans and reports have it: without what an URL keeps secret."""
        return msgspec.structs.replace(self, path=shown(self.path)) if is_remote(self.path) else self


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """`start`, `stop` are bytes of a plain JSON Lines file, or row groups of Parquet; other files are whole. Lines
    belong to the part in which they begin. `edges` is what `curation.reading.changes` recognises the bytes by."""

    file: SourceFile
    start: int
    stop: int
    edges: str = ""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of work: a part of one file, or several small files of one input."""

    index: int
    parts: list[FilePart]

    @property
    def source(self) -> str:
        return self.parts[0].file.source

    @property
    def columns(self) -> list[str]:
        return self.parts[0].file.columns


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


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
    if is_hub(path):
        return [path]
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


def _listed(entry: Input) -> list[str]:
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


def _source_file(path: str, entry: Input, name: str) -> SourceFile:
    if is_hub(path):
        _check_read(entry, path, "huggingface")
        return _described(hub_label(entry), entry, name, "huggingface", "", (-1, 0))
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


def _check_read(entry: Input, path: str, format_: str) -> None:
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
    path: str, entry: Input, name: str, format_: str, compression: str, status: tuple[int, int]
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
        text_column=entry.text_column,
        id_column=entry.id_column,
        columns=entry.columns,
        separator=entry.separator,
        encoding=entry.encoding,
        max_document_bytes=entry.max_document_bytes,
        sample=entry.sample,
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


def _default_name(path: str) -> str:
    """A name made of the last part of the path that has no wildcard."""
    parts = [part for part in Path(shown(path)).parts if not glob.has_magic(part)]
    stem = parts[-1].split(".")[0] if parts else ""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")
    if not name:
        return "input"
    return f"input-{name}" if _is_number(name) or _is_number(f"{name}-2") else name  # 1e-2 is one


def input_names(entries: Sequence[Input]) -> list[str]:
    """The name of every input. Given names must differ; of those made from paths the second `x` is `x-2`."""
    given = [entry.name for entry in entries if entry.name]
    for name in given:
        if given.count(name) > 1:
            raise InputError(f"two inputs are named {name!r}; give each its own name: in the recipe")
    taken, names = set(given), []
    for entry in entries:
        name = entry.name or _unused(_default_name(entry.path), taken)
        taken.add(name)
        names.append(name)
    return names


def _unused(name: str, taken: set[str]) -> str:
    numbered = (f"{name}-{number}" for number in count(2))
    return next(found for found in chain([name], numbered) if found not in taken)


def entries_by_name(entries: Sequence[Input]) -> dict[str, Input]:
    return dict(zip(input_names(entries), entries, strict=True))


def find_files(entries: Sequence[Input], leave_out: str | os.PathLike[str] = "") -> list[SourceFile]:
    """All files of all inputs, in the order of the recipe and sorted inside an input.

    leave_out   the folder of the run's output: no input, where a folder or glob around it would take it for one

    Raises InputError for a path that stands for no file, an unknown format, and a file that two inputs (or two names
    in one input) resolve to, or whose format has no use for a setting. What is in the files is looked at by `probe`.
    """
    left_out = os.path.realpath(leave_out) if leave_out else ""
    found = [
        (path, number)
        for number, entry in enumerate(entries)
        for listed in _listed(entry)
        for path in _matches(listed, left_out)
    ]
    _check_once([hub_label(entries[number]) if is_hub(path) else path for path, number in found])
    names = input_names(entries)
    return [_source_file(path, entries[number], names[number]) for path, number in found]


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
