# SPDX-License-Identifier: Apache-2.0
"""Pairs that belong together, whole or not at all: `merge` and `split` leave all pairs of a set, or say that some miss.

All of a set is written to a folder in that of the result, then renamed. Several renames are not one step: the file
`STEM.unfinished` names the pairs from before the first to after the last, and readers refuse those pairs.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from curation.errors import InputError, IntegrityError, OutputError
from curation.files import make_folder, sweep_dead, sync_folder, write_json
from curation.packing.megatron import PairInfo, list_pairs, remove_stale_cache, suffixed

FOLDER = "_repack."
NUMBERED = re.compile(r"(.+)_\d{5}_text_document")


class _Unfinished(msgspec.Struct):
    """The content of `STEM.unfinished`: the folder that the pairs come from, and their names."""

    folder: str
    pairs: list[str]


def refuse_unfinished(prefix: Path) -> None:
    """InputError for a pair of a set whose renames did not end."""
    if found := NUMBERED.fullmatch(prefix.name):
        stem = prefix.with_name(found[1])
        if prefix.name in named_unfinished(stem):
            raise InputError(
                f"{prefix} is part of a set that was not finished ({_marker(stem)} names it): run the same command "
                "again"
            )


def named_unfinished(stem: Path) -> list[str]:
    """The names of the pairs of a stem that are no whole set."""
    found = _read_marker(stem)
    return found.pairs if found else []


@contextmanager
def unpublished(stem: Path) -> Iterator[Path]:
    """A folder on the file system of `stem` for the pairs of a set, locked until the block ends and then deleted.
    Deletes those that killed processes have left. OutputError where another process publishes a set of the stem."""
    make_folder(stem.parent)
    for left in stem.parent.glob(f"{FOLDER}*"):
        _delete_if_left(left)
    unfinished = _read_marker(stem)
    if unfinished and (stem.parent / unfinished.folder).exists():
        raise OutputError(
            f"another process writes the pairs of {stem} from {stem.parent / unfinished.folder}; wait for it, or "
            "delete that folder where none does"
        )
    while True:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=stem.parent))
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            _lock(descriptor, fcntl.LOCK_EX)
            if not folder.exists():  # somebody else took it for one that was left
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
        finally:
            os.close(descriptor)


def publish(pairs: Sequence[PairInfo], folder: Path, stem: Path) -> list[PairInfo]:
    """Renames the pairs of an `unpublished` folder to those of a stem and deletes all others that the stem has."""
    moves = [(Path(pair.prefix), stem.with_name(Path(pair.prefix).name)) for pair in pairs]
    old = [*list_pairs(stem), *(stem.with_name(name) for name in named_unfinished(stem))]
    replaced = list(dict.fromkeys([*old, *(target for _, target in moves)]))
    sweep_dead(_marker(stem))
    write_json(_marker(stem), msgspec.to_builtins(_Unfinished(folder.name, [prefix.name for prefix in replaced])))
    _delete(replaced)
    sync_folder(stem.parent)
    for suffix in (".bin", ".idx"):  # an index is never there without its tokens
        for source, target in moves:
            os.replace(suffixed(source, suffix), suffixed(target, suffix))
        sync_folder(stem.parent)
    _marker(stem).unlink()
    sync_folder(stem.parent)
    return [msgspec.structs.replace(pair, prefix=str(target)) for pair, (_, target) in zip(pairs, moves, strict=True)]


def _delete(prefixes: Sequence[Path]) -> None:
    """All indexes before any tokens."""
    for suffix in (".idx", ".bin"):
        for prefix in prefixes:
            suffixed(prefix, suffix).unlink(missing_ok=True)
    for prefix in prefixes:
        remove_stale_cache(prefix)


def _marker(stem: Path) -> Path:
    return suffixed(stem, ".unfinished")


def _read_marker(stem: Path) -> _Unfinished | None:
    path = _marker(stem)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Unfinished)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"{path} does not name the pairs of an unfinished set: {error}. Delete it") from None
    return msgspec.structs.replace(found, pairs=[name for name in found.pairs if _is_pair(stem, name)])


def _is_pair(stem: Path, name: str) -> bool:
    """Whether a name is that of a pair of the stem. Others are not deleted, whoever wrote the marker."""
    found = NUMBERED.fullmatch(name)
    return found is not None and found[1] == stem.name


def _delete_if_left(folder: Path) -> None:
    """Deletes a folder that no process holds locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # a file, a link, or gone by now
        return
    try:
        if _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, operation: int) -> bool:
    """Whether the lock is there; it ends with its process. Not on Lustre without -o flock, and some NFS."""
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        return False
    return True
