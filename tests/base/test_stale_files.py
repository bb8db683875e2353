# SPDX-License-Identifier: Apache-2.0
"""Processes of an array on a file system that loses files for a moment (ESTALE), or shows them cut off."""

import builtins
import errno
import hashlib
import io
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import IntegrityError
from curation.base.system import shared_files
from curation.base.system.files import read_json, write_json
from curation.base.system.leases import Leases
from curation.base.system.shared_files import exists, fresh
from curation.record.stored_plan import Stored, load_shared
from curation.running.run import run
from tests.runs import digests, made_texts, recipe_of, records_of

CALLS = ("stat", "open", "scandir", "listdir", "utime", "replace", "rename", "unlink", "mkdir", "link", "rmdir")
STAGES = [{"kind": "exact_dedup"}, {"kind": "filter", "rules": [{"measure": "words", "min": 5}]}]
APART = 700  # calls between two lost files: a driver that resumes repeats some hundred
BEFORE = 60  # calls before the processes of an array wait for one another: a lost file there is one message
TRIALS = 150 if "TORTURE" in os.environ else 3


class Lost:
    """Lets calls of the system on files below a folder fail: those for which `chosen` is true of the number of the call
    and its site in this package. Errors of open files have no name, as the system's have."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.count, self.chosen = str(folder), 0, lambda number, site: False
        self.failed: list[str] = []
        for name in CALLS:
            monkeypatch.setattr(os, name, partial(self.call, name, getattr(os, name)))
        opened = partial(self.open, io.open)
        monkeypatch.setattr(io, "open", opened)
        monkeypatch.setattr(builtins, "open", opened)
        monkeypatch.setattr(os, "fstat", partial(self.fstat, os.fstat))

    def check(self, what: str, path: Any, named: bool = True) -> None:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.folder):
            frame = sys._getframe(1)
            while frame.f_back and f"{os.sep}curation{os.sep}" not in frame.f_code.co_filename:
                frame = frame.f_back
            site = f"{what} {Path(frame.f_code.co_filename).name}:{frame.f_code.co_name} {path}"
            self.count += 1
            if self.chosen(self.count, site):
                self.failed.append(site)
                raise OSError(errno.ESTALE, "Stale file handle", *[os.fspath(path)] * named)

    def call(self, name: str, real: Callable[..., Any], path: Any = ".", *rest: Any, **options: Any) -> Any:
        self.check(name, path)
        return real(path, *rest, **options)

    def fstat(self, real: Callable[..., Any], descriptor: int) -> Any:
        self.check("fstat", os.readlink(f"/proc/self/fd/{descriptor}"), named=False)
        return real(descriptor)

    def open(self, real: Callable[..., Any], path: Any, *rest: Any, **options: Any) -> Any:
        self.check("open", path)
        file = real(path, *rest, **options)
        try:
            self.check("read", path, named=False)
        except OSError:
            file.close()
            raise
        return file


class Place:
    """A small run, alone or as an array of one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "made.jsonl").write_bytes(records_of(made_texts(12)) + b"not json\n")
        self.run("whole")
        self.expected = digests(folder / "whole")

    def run(self, name: str, **options: Any) -> None:
        recipe = recipe_of(self.folder / "made.jsonl", stages=STAGES, output={"formats": []})
        run(recipe, self.folder / name, engine="cpu", workers=1, slice_bytes=1500, progress=False, **options)

    def run_array(self, name: str) -> None:
        self.run(name, array_task="1/1", lease_seconds=0.5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_files, "WAITS", (0.0, 0.0, 0.0, 0.01))
    monkeypatch.setattr("curation.running.array_tasks.MAX_WAIT", 0.02)


@pytest.mark.parametrize("first", range(3, APART, APART // TRIALS))
@pytest.mark.usefixtures("quick")
def test_files_that_are_lost_once_change_nothing(first: int, place: Place, monkeypatch: pytest.MonkeyPatch):
    """With TORTURE, each call after BEFORE fails once over all trials."""
    output = place.folder / f"lost-{first}"
    with monkeypatch.context() as patch:
        lost = Lost(output, patch)
        lost.chosen = lambda number, site: number > BEFORE and number % APART == first
        place.run_array(output.name)
    assert lost.failed
    assert digests(output) == place.expected, lost.failed


def test_files_that_stay_lost_end_an_array_with_their_name(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_files, "WAITS", (0.0,))
    monkeypatch.setattr("curation.running.array_tasks.MAX_WAIT", 0.0)
    output = place.folder / "stays"
    with monkeypatch.context() as patch:
        lost = Lost(output, patch)
        lost.chosen = lambda number, site: site.startswith("read") and site.endswith("plan.json")
        with pytest.raises(FileNotFoundError) as error:
            place.run_array(output.name)
    assert (error.value.errno, error.value.filename) == (errno.ESTALE, str(output / "_work" / "plan.json"))
    place.run_array(output.name)
    assert digests(output) == place.expected


def test_a_lost_file_is_gone_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_files, "WAITS", (0.0, 0.0))
    path = tmp_path / "file"
    path.touch()
    with Leases(tmp_path, "first") as leases, monkeypatch.context() as patch:
        lease = leases.take(tmp_path, "driver")
        lost = Lost(tmp_path, patch)
        lost.chosen = lambda number, site: True
        assert lease and leases.held(lease.path, 0) is None and not exists(path) and not lease.is_held()
        with pytest.raises(FileNotFoundError) as error:
            fresh(path, partial(os.open, path, os.O_RDONLY))
    assert (error.value.errno, error.value.filename) == (errno.ESTALE, str(path))


def test_a_lease_of_which_the_server_does_not_say_that_it_exists_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with Leases(tmp_path, "first") as leases, monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert leases.take(tmp_path, "000001") is None
        patch.setattr(os, "access", lambda *_: False)
        with pytest.raises(PermissionError):
            leases.take(tmp_path, "000001")


def cut_off(path: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows the first half of a file for the first reads of it."""
    real, left = Path.read_bytes, iter(range(times))

    def read(self: Path) -> bytes:
        data = real(self)
        return data[: len(data) // 2] if self == path and next(left, None) is not None else data

    monkeypatch.setattr(Path, "read_bytes", read)
    monkeypatch.setattr(shared_files, "WAITS", (0.0, 0.0, 0.0))


def test_files_that_are_cut_off_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "record.json"
    write_json(path, {"rows": 7})
    stored = Stored(path, hashlib.sha256(path.read_bytes()).hexdigest())
    cut_off(path, 2, monkeypatch)
    assert read_json(path) == {"rows": 7}
    cut_off(path, 2, monkeypatch)
    assert load_shared(stored, len) == path.stat().st_size
    cut_off(path, 3, monkeypatch)
    with pytest.raises(IntegrityError, match=f"^{re.escape(str(path))} is damaged: it is not valid JSON"):
        read_json(path)


def test_a_phase_that_stays_cut_off_ends_an_array_with_its_name(place: Place, monkeypatch: pytest.MonkeyPatch):
    folder = place.folder / "cut" / "_work" / "array"
    folder.mkdir(parents=True)
    with Leases(folder, "another") as leases:
        assert leases.take(folder, "driver")
        phase = folder / "phase-0.json"
        phase.write_bytes(b'{"serial": 0, "engi')
        cut_off(phase, 0, monkeypatch)
        with pytest.raises(IntegrityError, match=f"^{re.escape(str(phase))} is damaged: .* Completed work is kept"):
            place.run("cut", array_task="1/2")
