# SPDX-License-Identifier: Apache-2.0
"""Publish a set of pairs as a whole: after `merge` and `split`, all pairs of the set exist, or the set is marked as
unfinished.

A set is written to a temporary folder next to the result, then renamed. Several renames are not atomic: the file
`STEM.unfinished` names the pairs while the renames run, and readers refuse these pairs.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from curation.base.errors import InputError, IntegrityError, OutputError
from curation.base.system.files import check_new, make_folder, sweep_dead, sync_folder, write_json
from curation.base.system.locks import locked
from curation.tokens.joining import list_pairs
from curation.tokens.megatron import PairInfo, remove_stale_cache, suffixed

FOLDER = "_repack."
PAIRS, LENGTHS = "pairs", ".lengths"  # in this folder
NUMBERED = re.compile(r"(.+)_\d{5}_text_document")


class _Unfinished(msgspec.Struct):
    """Content of `STEM.unfinished`: the temporary folder of the pairs, and the names of the pairs."""

    folder: str
    pairs: list[str]


def refuse_unfinished(prefix: Path) -> None:
    """Raise InputError if the pair belongs to a set whose renames were interrupted."""
    if match := NUMBERED.fullmatch(prefix.name):
        stem = prefix.with_name(match[1])
        if prefix.name in named_unfinished(stem):
            raise InputError(
                f"{prefix} is part of an unfinished set ({_marker(stem)} names it). Run the same merge or split "
                "command again"
            )


def named_unfinished(stem: Path) -> list[str]:
    """Return the names of the pairs in the stem's unfinished set, [] if there is none."""
    unfinished = _read_marker(stem)
    return unfinished.pairs if unfinished else []


@contextmanager
def unpublished(stem: Path) -> Iterator[Path]:
    """Yield a temporary folder on the file system of `stem` for the pairs of a set.

    The folder is locked until the block ends, then deleted. Folders left by killed processes are deleted at the start.
    OutputError: another process publishes a set of the stem.
    """
    make_folder(stem.parent)
    for path in stem.parent.glob(f"{FOLDER}*"):
        _delete_if_unlocked(path)
    unfinished = _read_marker(stem)
    if unfinished and (stem.parent / unfinished.folder).exists():
        raise OutputError(
            f"another process writes the pairs of {stem} from {stem.parent / unfinished.folder}. Wait for it. If no "
            "such process runs, delete that folder"
        )
    while True:
        folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=stem.parent))
        with locked(folder, fcntl.LOCK_EX):
            if not folder.exists():  # another process deleted it before the lock
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return


def publish(pairs: Sequence[PairInfo], folder: Path, stem: Path) -> list[PairInfo]:
    """Rename pairs of an `unpublished` folder to their place at the stem, and delete all other pairs of the stem.

    Return the pairs with their new prefixes.
    """
    moves = [(Path(pair.prefix), stem.with_name(Path(pair.prefix).name)) for pair in pairs]
    old = [*list_pairs(stem), *(stem.with_name(name) for name in named_unfinished(stem))]
    replaced = list(dict.fromkeys([*old, *(target for _, target in moves)]))
    for prefix in replaced:
        for suffix in (".bin", ".idx"):
            check_new(suffixed(prefix, suffix), force=True)
        remove_stale_cache(prefix)
    sweep_dead(_marker(stem))
    write_json(_marker(stem), msgspec.to_builtins(_Unfinished(folder.name, [prefix.name for prefix in replaced])))
    _delete(replaced)
    sync_folder(stem.parent)
    for suffix in (".bin", ".idx"):  # an index never exists without its tokens
        for source, target in moves:
            os.replace(suffixed(source, suffix), suffixed(target, suffix))
        sync_folder(stem.parent)
    shutil.rmtree(folder, ignore_errors=True)  # before the marker: a rerun starts from the marker
    _marker(stem).unlink()
    sync_folder(stem.parent)
    return [msgspec.structs.replace(pair, prefix=str(target)) for pair, (_, target) in zip(pairs, moves, strict=True)]


def _delete(prefixes: Sequence[Path]) -> None:
    """Delete all indexes before any tokens."""
    for suffix in (".idx", ".bin"):
        for prefix in prefixes:
            suffixed(prefix, suffix).unlink(missing_ok=True)


def _marker(stem: Path) -> Path:
    return suffixed(stem, ".unfinished")


def _read_marker(stem: Path) -> _Unfinished | None:
    path = _marker(stem)
    if not path.is_file():
        return None
    try:
        unfinished = msgspec.json.decode(path.read_bytes(), type=_Unfinished)
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"{path} does not name the pairs of an unfinished set: {error}. Delete it") from None
    return msgspec.structs.replace(unfinished, pairs=[name for name in unfinished.pairs if _is_pair(stem, name)])


def _is_pair(stem: Path, name: str) -> bool:
    """Return whether `name` is a pair of the stem. No other file is deleted, even if the marker names it."""
    match = NUMBERED.fullmatch(name)
    return match is not None and match[1] == stem.name


def _delete_if_unlocked(folder: Path) -> None:
    """Delete a folder that no process has locked, if it has nothing but what `repack` writes."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with suppress(OSError), locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB, flags) as no_locks:  # or deleted meanwhile
        if not no_locks and all(name == PAIRS or name.endswith(LENGTHS) for name in os.listdir(folder)):
            shutil.rmtree(folder, ignore_errors=True)
