# SPDX-License-Identifier: Apache-2.0
"""The folder of a run: locks, what may lie in it, what a rerun finds, and paths after it was moved."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from curation.errors import InputError, IntegrityError, OutputError, counted
from curation.files import TEMPORARY, check_name, file_sha256, make_folder, read_json, remove, sync_folder
from curation.packing.blends import INDEX_FOLDER, META, Blend, Megatron, meta_files, write_meta
from curation.packing.megatron import PairInfo, TrainingPair
from curation.packing.ordering import split_names
from curation.reading.inputs import HUB_MARK, entries_by_name
from curation.reading.paths import RUN_PLAN, RUN_REPORT, RealPaths, is_run
from curation.recipe import Recipe
from curation.running.progress import Progress
from curation.running.report import write_report
from curation.running.report_schema import OUTPUT_NAMES, wrong_in_report

(WORK, PLAN), REPORT = RUN_PLAN, RUN_REPORT
OWN_NAMES = (WORK, *OUTPUT_NAMES, INDEX_FOLDER, REPORT, "report.html")
SHOWN_GONE = 5
MANIFEST, NEMO = f"{META}/manifest.json", f"{META}/nemo.yaml"


@contextmanager
def locked(folder: Path, progress: Progress | None = None) -> Iterator[None]:
    """Holds the folder for one run. The kernel drops the lock with the process, so that a crash leaves none."""
    _refuse_outputs_of_runs(folder)
    try:
        make_folder(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(f"{error.filename} is a file; give another --output, which must be a folder") from None
    descriptor = os.open(folder, os.O_RDONLY)  # the folder itself is locked: no file to be left behind
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"another run is writing to {folder}; wait for it, or give another --output") from None
        except OSError as error:  # Lustre without -o flock, some NFS
            (progress or Progress()).say(
                f"the file system of {folder} cannot lock it ({error.strerror}): start no second run there"
            )
        yield
    finally:
        os.close(descriptor)


def _refuse_outputs_of_runs(folder: Path) -> None:
    """What stands among the outputs of a run is a stranger there to `verify`, and goes with them by `--force`."""
    below = folder
    for parent in folder.parents:
        if _is_own(below.name) and is_run(str(parent)):
            raise OutputError(f"{folder} lies in {below.name}/ of the run in {parent}; give another --output")
        below = parent


def sweep(folder: Path) -> None:
    """Deletes the temporary files that killed runs have left below a folder."""
    for path in folder.rglob(f"*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def plan_path(folder: Path) -> Path:
    return folder / WORK / PLAN


def check_inputs(folder: Path, paths: Iterable[str]) -> None:
    """InputError for an input that lies where the run writes, and where `--force` deletes."""
    inside, real = f"{folder}{os.sep}", RealPaths()
    for given in paths:
        path = real(given.removeprefix("file://").removeprefix(HUB_MARK))
        if path.startswith(inside) and _is_own(path.removeprefix(inside).split(os.sep)[0]):
            raise InputError(f"input {given} lies in the output folder {folder}; give another --output")


def check_names(recipe: Recipe, folder: Path) -> None:
    """OutputError where the name of an input is too long to become part of the names of files."""
    for name in entries_by_name(recipe.input):
        check_name(folder / "tokens", f"{name}_train_00000_text_document.bin", f"the input's name: {name[:40]!r}...")


def find_finished(folder: Path) -> dict[str, Any] | None:
    """The report of the folder's finished run; None where there is none, OutputError for one that no run has written,
    or whose outputs are gone."""
    finished: dict[str, Any] | None = read_json(folder / REPORT)
    if finished is not None:
        if wrong := wrong_in_report(finished):
            raise OutputError(f"{folder}: {wrong}. Give a new --output, or --force")
        _check_there(folder, finished["outputs"])
    return finished


def _check_there(folder: Path, outputs: Collection[str]) -> None:
    gone = [name for name in outputs if not (folder / name).exists()]
    if gone:
        named = ", ".join(gone[:SHOWN_GONE]) + (", ..." if len(gone) > SHOWN_GONE else "")
        raise OutputError(
            f"gone from the finished run in {folder}: {named} ({len(gone):,} of {counted(len(outputs), 'output')}). "
            "Give a new --output, or --force, which makes them anew"
        )


def check_empty(folder: Path, force: bool) -> None:
    """OutputError for a folder that holds what is not `force`'s to delete."""
    found = sorted(entry.name for entry in folder.iterdir() if entry.name != WORK)
    foreign = [name for name in found if not _is_own(name)]
    if foreign or (found and not force):
        advice = "give a new --output" + ("" if foreign else ", or --force")
        raise OutputError(f"{folder} is not empty (it has {', '.join((foreign or found)[:5])}); {advice}")


def _is_own(name: str) -> bool:
    """Whether a name in the folder of a run is one of a run's, or of what was to become one."""
    return name in OWN_NAMES or (name.endswith(TEMPORARY) and any(name.startswith(f"{own}.") for own in OWN_NAMES))


def discard(folder: Path) -> None:
    """Deletes all that runs leave in a folder. The files that make it a run go first, and for good: a kill or a power
    cut in between leaves neither a report nor done-records that speak of files that are gone."""
    for path in (folder / REPORT, plan_path(folder)):
        if path.exists():
            remove(path)
            sync_folder(path.parent)
    for path in list(folder.iterdir()):
        if _is_own(path.name):
            remove(path)


class _Pair(PairInfo, frozen=True, kw_only=True):
    """An entry of `manifest.json`."""

    source: str
    split: str = ""


class _Manifest(msgspec.Struct):
    pairs: list[_Pair]


def relocated_meta(folder: Path, content: dict[str, Any]) -> dict[str, bytes]:
    """The files of `tokens/_meta/` as they have to be where the run of that `report.json` is now, an absolute path;
    none where they are so, or where it has no pairs. OutputError where it has moved and the manifest is not the run's,
    IntegrityError where the two contradict each other."""
    expected = content["outputs"].get(NEMO, "")
    if not expected:
        return {}
    if file_sha256(folder / MANIFEST) != content["outputs"].get(MANIFEST):
        if f" {folder}/tokens/".encode() in (folder / NEMO).read_bytes():
            return {}  # it has not moved: what has changed in it is for `verify` to tell
        raise OutputError(
            f"{folder} has moved, and {MANIFEST}, which its new paths are made from, has changed. Put the file back, "
            "or give --force"
        )
    manifest = read_json(folder / MANIFEST)
    output = content["recipe"]["output"]
    names = [source["name"] for source in content["sources"]]
    weights = {source["name"]: source["blend_weight"] for source in content["sources"] if "blend_weight" in source}
    files = meta_files(
        folder,
        manifest,
        _pairs(folder, manifest, names, split_names(output["splits"])),
        weights,
        (msgspec.convert(output["blend"], Blend), msgspec.convert(output["megatron"], Megatron)),
    )
    return {} if hashlib.sha256(files["nemo.yaml"]).hexdigest() == expected else files


def _pairs(folder: Path, manifest: Any, names: Sequence[str], splits: Sequence[str]) -> list[TrainingPair]:
    try:
        pairs = msgspec.convert(manifest, _Manifest).pairs
    except msgspec.ValidationError as error:
        raise IntegrityError(f"{MANIFEST} is not what a run writes: {error}") from None
    strange = [pair for pair in pairs if pair.source not in names or pair.tokens < 1]
    if strange or (pairs and {pair.split for pair in pairs} != {*splits}):
        raise IntegrityError(
            f"{MANIFEST} has pairs without tokens, or of inputs or splits that report.json does not have"
        )
    return [
        TrainingPair(
            pair.source, pair.split, msgspec.structs.replace(pair, prefix=str(folder / "tokens" / pair.prefix))
        )
        for pair in pairs
    ]


def rewrite_moved_paths(folder: Path, content: dict[str, Any]) -> bool:
    """Writes `tokens/_meta/` of a moved run anew, then the report with its digests; says whether there was a need. What
    is killed in between is done again by the next call. Raises as `relocated_meta`."""
    files = relocated_meta(folder, content)
    if not files:
        return False
    content["outputs"] |= write_meta(folder, files)
    write_report(folder, content)
    return True
