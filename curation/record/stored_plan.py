# SPDX-License-Identifier: Apache-2.0
"""The plan as a file that all tasks share: its structure, writing and loading."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import msgspec

from curation import __version__
from curation.base.errors import IntegrityError, OutputError
from curation.base.system.damage import reading
from curation.base.system.files import commit
from curation.base.system.sealed import sealed, unsealed
from curation.base.system.shared_files import read_whole
from curation.reading.slice_table import Columns, SliceTable
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.recipes.recipe import Recipe, as_builtins, recipe_from_job

_LOADING = Lock()  # when a phase begins, one thread reads the files and the others wait
_LOADED: dict[Stored, Any] = {}  # the two that were used last: a plan and a job
Loaded = TypeVar("Loaded")


class Stored(NamedTuple):
    """A file that tasks share, with the SHA-256 of its content (hexadecimal)."""

    path: Path
    sha256: str


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that a plan and its file share.

    version      version of this program
    files        the input files as the recipe names them, without secrets of URLs
    stage_files  stage -> path -> SHA-256 of the files that the stage reads
    tokenizer    SHA-256 of the vocabulary, and the ids that begin and end documents; empty if the run uses none

    `stage_revisions` has the revisions above 1 of stages, by name. `computed_with` has, for stages whose results depend
    on the machine, the facts of the machine that began the run.
    """

    version: str
    files: list[SourceFile]
    stage_files: dict[str, dict[str, str]]
    tokenizer: dict[str, Any]
    stage_revisions: dict[str, int] = {}
    computed_with: dict[str, dict[str, str]] = {}

    def facts(self) -> dict[str, Any]:
        """Return these fields by name."""
        return {name: getattr(self, name) for name in _Facts.__struct_fields__}


class Plan(_Facts, frozen=True, kw_only=True):
    """The plan of a run, fixed before its first task: the recipe, and the slices of the local files. A resumed run
    follows the stored plan."""

    recipe: Recipe
    slices: SliceTable


class StoredPlan(_Facts, frozen=True, kw_only=True):
    """A plan in the structure of `_work/plan.json`: slices refer to files by their number in `read`."""

    recipe: dict[str, Any]
    read: list[SourceFile]
    slices: Columns

    def __post_init__(self) -> None:
        SliceTable(self.read, self.slices)  # checks them


class _Versioned(msgspec.Struct):
    version: str


def store_plan(path: Path, plan: Plan) -> None:
    """Write a plan without passwords and signed queries of URLs. Tasks get these from `urls_of`."""
    read = [file.without_secrets() for file in plan.slices.files]
    content = StoredPlan(**plan.facts(), recipe=as_builtins(plan.recipe), read=read, slices=plan.slices.columns())
    with commit(path) as temporary:
        temporary.write_bytes(sealed(msgspec.json.encode(content)))


def read_stored_plan(path: Path) -> StoredPlan | None:
    """Return the content of a plan's file; None if the file does not exist.

    Raises OutputError for a plan of another version of this program, IntegrityError for a damaged file.
    """

    def decode(data: bytes) -> StoredPlan:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != __version__:
            started = f"{path.parent.parent} was started by version {version}, this is {__version__}"
            raise OutputError(f"{started}. Give a new --output, or --force")
        return msgspec.json.decode(unsealed(data), type=StoredPlan)

    with reading(path):
        try:
            return read_whole(path, decode)
        except FileNotFoundError:
            return None


def as_plan(stored: StoredPlan, recipe: Recipe, read: Sequence[SourceFile]) -> Plan:
    """Return the plan from the content of its file. `recipe` is the plan's recipe, `read` has the files to which slices
    refer."""
    return Plan(**stored.facts(), recipe=recipe, slices=SliceTable(read, stored.slices))


def urls_of(slices: Sequence[Slice]) -> tuple[str, ...]:
    """Return the URLs of the slices' file ranges with their secrets, for the task of the slices; empty if no URL has
    secrets."""
    paths = [file_range.file.path for input_slice in slices for file_range in input_slice.ranges]
    return tuple(paths) if any(path != shown(path) for path in paths) else ()


def with_urls(slices: Sequence[Slice], urls: Sequence[str]) -> list[Slice]:
    """Return the slices of a stored plan, which has no secrets, with the URLs that `urls_of` returned."""
    if not urls:
        return list(slices)
    left, replace = iter(urls), msgspec.structs.replace
    return [
        replace(own, ranges=[replace(part, file=replace(part.file, path=next(left))) for part in own.ranges])
        for own in slices
    ]


def digest_of(path: Path) -> Stored:
    """Return a file that tasks share, with the digest of its content now."""
    return Stored(path, hashlib.sha256(path.read_bytes()).hexdigest())


def load_plan(stored: Stored) -> Plan:
    """Return the plan for a task, read once per process. The URLs in this plan have no secrets."""

    def decode(data: bytes) -> Plan:
        content = msgspec.json.decode(data, type=StoredPlan)
        return as_plan(content, recipe_from_job(content.recipe), content.read)

    return load_shared(stored, decode)


def keep_plan(stored: Stored, plan: Plan) -> None:
    """Let the threads of this process share `plan`, so they do not read it from its file."""
    with _LOADING:
        _keep(stored, plan)


def load_shared(stored: Stored, decode: Callable[[bytes], Loaded]) -> Loaded:
    """Return the decoded content of a shared file. Raises IntegrityError if the content has changed.

    A process keeps the two contents used last.
    """
    with _LOADING:
        if stored not in _LOADED:
            _keep(stored, decode(_read_shared(stored)))
        content: Loaded = _LOADED[stored]
        _keep(stored, content)
        return content


def _read_shared(stored: Stored) -> bytes:
    path = stored.path

    def checked(data: bytes) -> bytes:
        if hashlib.sha256(data).hexdigest() != stored.sha256:
            raise ValueError
        return data

    try:
        return read_whole(path, checked)
    except ValueError:
        raise IntegrityError(f"{path} has changed during the run. Start over with --force") from None
    except FileNotFoundError:
        raise OutputError(
            f"{path} does not exist on {socket.gethostname()}, where a task of the run began. Share the output folder "
            "with all workers, under the same path"
        ) from None


def _keep(stored: Stored, value: Any) -> None:
    _LOADED.pop(stored, None)
    _LOADED[stored] = value  # at the end: used last
    while len(_LOADED) > 2:
        del _LOADED[next(iter(_LOADED))]
