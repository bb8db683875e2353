# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a phase share, on disk: a task carries paths and a number, and each process reads them once.

Sent along with each task, the list of slices would make the work of processes and clusters grow with its square
(2,000 tiny slices in two processes: 72 s, from a file 8 s; benchmarks/LOG.md). The files are JSON: nothing in the
folder of a run can execute, and a file whose digest is not the one that the task carries is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from curation import __version__
from curation.errors import IntegrityError, OutputError
from curation.files import commit, piece_path
from curation.reading.source_files import FilePart, Slice, SourceFile
from curation.reading.urls import shown
from curation.recipe import Recipe, as_builtins, recipe_from_job
from curation.running.parts import Parts

_LOADING = Lock()  # of the threads that begin a phase one reads the files, the others wait for it
_LOADED: dict[Stored, Any] = {}  # the two that were used last: a plan and a job
Loaded = TypeVar("Loaded")


class Stored(NamedTuple):
    """A file that tasks share, and the SHA-256 of its content."""

    path: Path
    sha256: str


# The plan


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is fixed before a run and followed by every rerun."""

    version: str
    recipe: Recipe
    files: list[SourceFile]  # as the recipe names them, without secrets
    slices: list[Slice]
    stage_files: dict[str, dict[str, str]]  # stage -> path -> SHA-256 of the files that it reads
    tokenizer: dict[str, Any]  # SHA-256 of its vocabulary, ids of end and begin; empty where none is used


class StoredPlan(msgspec.Struct, kw_only=True):
    """A plan as `_work/plan.json` has it: each file that slices read once, and slices by its number."""

    version: str
    recipe: dict[str, Any]
    files: list[SourceFile]
    read: list[SourceFile]
    slices: list[list[tuple[int, int, int, str]]]  # of each part the file, start, stop and edges
    stage_files: dict[str, dict[str, str]]
    tokenizer: dict[str, Any]

    def __post_init__(self) -> None:
        for parts in self.slices:
            if not parts:
                raise ValueError("a slice without parts")
            for number, start, stop, _ in parts:
                if not (0 <= number < len(self.read) and 0 <= start <= stop):
                    raise ValueError(f"a slice from {start} to {stop} of file {number}")


class _Versioned(msgspec.Struct):
    version: str


def store_plan(path: Path, plan: Plan) -> None:
    """Writes a plan. Passwords and signed queries of URLs stay in memory: `urls_of` gives them to tasks."""
    numbers: dict[int, int] = {}
    read: list[SourceFile] = []
    slices = []
    for piece in plan.slices:
        parts = []
        for part in piece.parts:
            number = numbers.setdefault(id(part.file), len(read))
            if number == len(read):
                read.append(part.file.without_secrets())
            parts.append((number, part.start, part.stop, part.edges))
        slices.append(parts)
    content = StoredPlan(
        version=plan.version, recipe=as_builtins(plan.recipe), files=plan.files, read=read, slices=slices,
        stage_files=plan.stage_files, tokenizer=plan.tokenizer,
    )  # fmt: skip
    with commit(path) as temporary:
        temporary.write_bytes(msgspec.json.encode(content))


def read_stored_plan(path: Path) -> StoredPlan | None:
    """The content of a plan's file; None where there is none. OutputError for one of another version of this program,
    IntegrityError for a damaged one."""
    try:
        data = path.read_bytes()
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != __version__:
            begun = f"{path.parent.parent} was begun by version {version}, this is {__version__}"
            raise OutputError(f"{begun}. Give a new --output, or --force")
        return msgspec.json.decode(data, type=StoredPlan)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise IntegrityError(f"{path} is damaged: {error}. Begin anew with --force") from None


def as_plan(stored: StoredPlan, recipe: Recipe, read: Sequence[SourceFile]) -> Plan:
    """The plan of a file's content with the recipe that it was made of, of which slices read the files `read`."""
    parts = [
        [FilePart(file=read[number], start=start, stop=stop, edges=edges) for number, start, stop, edges in piece]
        for piece in stored.slices
    ]
    return Plan(
        version=stored.version, recipe=recipe, files=stored.files,
        slices=[Slice(index=index, parts=found) for index, found in enumerate(parts)],
        stage_files=stored.stage_files, tokenizer=stored.tokenizer,
    )  # fmt: skip


def urls_of(piece: Slice) -> tuple[str, ...]:
    """The real URLs of a slice's parts, for its task alone; nothing where no part has a secret."""
    paths = [part.file.path for part in piece.parts]
    return tuple(paths) if any(path != shown(path) for path in paths) else ()


def with_urls(piece: Slice, urls: Sequence[str]) -> Slice:
    """The slice with the URLs that `urls_of` gave."""
    if not urls:
        return piece
    pairs = zip(piece.parts, urls, strict=True)
    replace = msgspec.structs.replace
    return replace(piece, parts=[replace(part, file=replace(part.file, path=url)) for part, url in pairs])


# Jobs


def digest_of(path: Path) -> Stored:
    """A file for tasks, by what it holds now."""
    return Stored(path, hashlib.sha256(path.read_bytes()).hexdigest())


def store_job(job: Any, folder: Path) -> Stored:
    """The file of a job, a structure whose fields are JSON, paths, arrays, `Parts` or `Stored`."""
    data = msgspec.json.encode(job, enc_hook=_encode)
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"job-{digest[:16]}.json"
    if not path.exists():
        with commit(path) as temporary:
            temporary.write_bytes(data)
    return Stored(path, digest)


def run_stored(
    function: Callable[..., None], kind: type[Any], plan: Stored, job: Stored, item: tuple[int, *tuple[Any, ...]]
) -> None:
    """`function` of the stored plan and job and of `item`, a number and whatever else its task carries, unless the
    number's done-record is there: Dask runs again what a worker had finished that died before the end of the phase."""
    if piece_path(job.path.parent, item[0], ".json").exists():
        return
    function(load_plan(plan), load_job(kind, job), *item)


def load_plan(stored: Stored) -> Plan:
    """A plan as a task has it, once per process: URLs are without their secrets."""

    def decode(data: bytes) -> Plan:
        content = msgspec.json.decode(data, type=StoredPlan)
        return as_plan(content, recipe_from_job(content.recipe), content.read)

    return _load(stored, decode)


def keep_plan(stored: Stored, plan: Plan) -> None:
    """Spares the threads of this process a second copy of the plan."""
    with _LOADING:
        _keep(stored, plan)


def load_job(kind: type[Loaded], stored: Stored) -> Loaded:
    return _load(stored, lambda data: msgspec.json.decode(data, type=kind, dec_hook=_decode))


def _load(stored: Stored, decode: Callable[[bytes], Loaded]) -> Loaded:
    with _LOADING:
        if stored not in _LOADED:
            data = stored.path.read_bytes()
            if hashlib.sha256(data).hexdigest() != stored.sha256:
                raise IntegrityError(f"{stored.path} has changed while the run needs it. Begin anew with --force")
            _keep(stored, decode(data))
        found: Loaded = _LOADED[stored]
        _keep(stored, found)
        return found


def _keep(stored: Stored, value: Any) -> None:
    _LOADED.pop(stored, None)
    _LOADED[stored] = value  # at the end: used last
    while len(_LOADED) > 2:
        del _LOADED[next(iter(_LOADED))]


def _encode(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case np.ndarray():
            return value.tolist()
        case Parts():
            return [str(value.folder), np.diff(value.starts).tolist()]
    raise NotImplementedError(f"a job cannot hold a {type(value).__name__}")


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Path:
        return Path(value)
    if kind is np.ndarray:
        return np.array(value, np.int64)
    if kind is Parts:
        return Parts(Path(value[0]), value[1])
    raise NotImplementedError(f"a job cannot hold a {kind.__name__}")


__all__ = [
    "Plan", "Stored", "StoredPlan", "as_plan", "digest_of", "keep_plan", "load_job", "load_plan", "read_stored_plan",
    "run_stored", "store_job", "store_plan", "urls_of", "with_urls",
]  # fmt: skip
