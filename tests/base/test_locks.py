# SPDX-License-Identifier: Apache-2.0
"""Locks of a process: a second is refused, and forked children neither keep nor release them."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from curation.base.system import locks
from curation.base.system.locks import locked
from curation.record.folder import locked as run_lock
from curation.tokens.pair_sets import unpublished

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


def is_free(folder: Path) -> bool:
    try:
        with locked(folder, EXCLUSIVE):
            return True
    except BlockingIOError:
        return False


@pytest.mark.parametrize("lock", [run_lock, lambda folder: locked(folder, EXCLUSIVE)])
def test_a_child_keeps_no_lock(tmp_path: Path, lock) -> None:
    ready, wait = os.pipe(), os.pipe()
    with lock(tmp_path):
        child = os.fork()
        if not child:
            os.write(ready[1], b"1")
            os.read(wait[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    os.write(wait[1], b"1")
    assert os.waitpid(child, 0)[1] == 0


def test_a_copy_made_elsewhere_keeps_no_lock(tmp_path: Path) -> None:
    with locked(tmp_path, EXCLUSIVE):
        copy = os.dup(*locks._descriptors)
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    os.close(copy)


def test_a_child_that_leaves_the_context_releases_nothing(tmp_path: Path) -> None:
    child = 0
    with locked(tmp_path, EXCLUSIVE):
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            assert not is_free(tmp_path)
    if not child:
        os._exit(0)
    assert is_free(tmp_path)


KILLED = """
import fcntl, os, signal, sys
from pathlib import Path
from curation.base.system.locks import locked
with locked(Path(sys.argv[1]), fcntl.LOCK_EX):
    if not os.fork():
        print(os.getpid(), flush=True)
    signal.pause()
"""


def test_a_killed_parent_leaves_no_lock_to_its_child(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    child = int(process.stdout.readline())
    assert not is_free(tmp_path)
    process.kill()
    process.wait()
    assert is_free(tmp_path)
    os.kill(child, signal.SIGKILL)
    process.stdout.close()


def test_a_set_of_pairs_is_free_after_its_block(tmp_path: Path) -> None:
    with unpublished(tmp_path / "set") as folder:
        assert not is_free(folder)
    assert not folder.exists()
