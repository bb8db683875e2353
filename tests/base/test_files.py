# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all, also after a power cut, and on a disk that many hosts share."""

import errno
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from curation.base.errors import OutputError
from curation.base.system import files
from curation.record import folder as run_folder
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose names were made to last, in order."""
    found: list[Path] = []
    real = files.sync_folder

    def sync(folder: Path) -> None:
        real(folder)
        found.append(folder)

    monkeypatch.setattr(files, "sync_folder", sync)
    monkeypatch.setattr(run_folder, "sync_folder", sync)
    return found


def test_new_folders_last(tmp_path: Path, synced: list[Path]):
    files.write_json(tmp_path / "a" / "b" / "c.json", 1)
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    files.write_json(tmp_path / "a" / "b" / "d.json", 2)
    assert synced[3:] == [tmp_path / "a" / "b"]
    with run_folder.locked(tmp_path / "x" / "out"):
        assert synced[4:] == [tmp_path, tmp_path / "x"]


def test_temporary_files_of_a_library_call_are_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    with files.unsynced_folder() as folder:
        for outside in (False, True):
            place = tmp_path if outside else folder
            files.write_json(place / "a" / "b.json", 1)
            with files.commit_folder(place / "c") as new:
                (new / "d").touch()
            assert (place / "a" / "b.json").read_bytes() == b"1\n" and (place / "c" / "d").exists()
            assert bool(synced) == outside
        assert not any(name.startswith(str(folder)) for name in synced)
    assert not folder.exists()
    synced.clear()
    files.write_json(folder / "again.json", 1)  # the name is free again, and another file may have it
    assert any(name.startswith(str(folder)) for name in synced)
    files.remove(folder)


@pytest.mark.parametrize(("writes", "is_deleted"), [(3, True), (4, False)])
def test_a_folder_into_which_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, is_deleted: bool
):
    late = []

    def rmtree(path: Path) -> None:
        if len(late) < writes:
            late.append(path)
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        path.rmdir()

    monkeypatch.setattr(files.shutil, "rmtree", rmtree)
    monkeypatch.setattr(files, "REMOVALS", 3)
    (tmp_path / "folder").mkdir()
    with nullcontext() if is_deleted else pytest.raises(OSError, match="Directory not empty"):
        files.remove(tmp_path / "folder")
    assert len(late) == writes and (tmp_path / "folder").exists() == (not is_deleted)


def test_a_folder_that_is_a_file(tmp_path: Path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            files.make_folder(path)


def test_temporary_names_are_of_one_thread_of_one_process_of_one_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = []
    for change in (None, (os, "getpid", lambda: 1), (files.threading, "get_native_id", lambda: 1)):
        with monkeypatch.context() as patch:
            if change:
                patch.setattr(*change)
            with files.commit(tmp_path / "a") as path:
                path.touch()
                names.append(path.name)
    assert len(set(names)) == 3 and all(os.uname().nodename in name for name in names)
    (tmp_path / names[0]).touch()
    run_folder.sweep(tmp_path, ["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("mine", path)])
def test_only_files_are_replaced(tmp_path: Path, make: Callable[[Path], object]):
    """Before the block, which may take hours. A file keeps its other names and their content."""
    (tmp_path / "mine").write_text("years of work")
    make(tmp_path / "a")
    os.link(tmp_path / "mine", tmp_path / "b")
    with pytest.raises(OutputError, match=r"a is a (pipe or a device|folder|link), expected a file or nothing"):
        files.write_json(tmp_path / "a", {})
    files.write_json(tmp_path / "b", {})
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "mine"] and (tmp_path / "mine").read_text() == "years of work"


def test_the_end_of_an_old_run_lasts_before_its_files_go(
    tmp_path: Path, synced: list[Path], monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(20)))
    recipe, out = recipe_of(tmp_path / "a.jsonl", output={"keep_work": True}), tmp_path / "out"
    run(recipe, out, engine="cpu")
    order: list[object] = []
    monkeypatch.setattr(run_folder, "remove", lambda path: (order.append(path), files.remove(path)))
    monkeypatch.setattr(run_folder, "sync_folder", lambda folder: order.append(f"sync {folder.name}"))
    run_folder.discard(out)
    assert order[:4] == [out / "report.json", "sync out", out / "_work" / "plan.json", "sync _work"]
    assert len(order) > 7 and [path.name for path in out.rglob("*")] == ["_work", "made-by-curate-run"]
