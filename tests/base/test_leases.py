# SPDX-License-Identifier: Apache-2.0
"""One process at a time holds a lease, by the clock of the file system."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from curation.base.system.files import remove
from curation.base.system.leases import LeaseLostError, Leases, guarded_by, lease_path


@pytest.fixture
def leases(tmp_path: Path) -> Iterator[Leases]:
    with Leases(tmp_path, "first", 60) as made:
        yield made


def age(path: Path, seconds: float) -> None:
    modified = path.stat().st_mtime - seconds
    os.utime(path, (modified, modified))


def is_expired(leases: Leases, path: Path) -> bool:
    held = leases.held(path, leases.now())
    return held is not None and held.is_expired


def test_one_of_many_takes_a_lease(leases: Leases, tmp_path: Path):
    together = Barrier(8)

    def take(_: int) -> bool:
        together.wait()
        return leases.take(tmp_path, "000001", 3) is not None

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(take, range(8))) == 1


def test_a_lease_expires_by_the_terms_of_its_holder(leases: Leases, tmp_path: Path):
    with Leases(tmp_path, "second", 5) as others:
        lease = others.take(tmp_path, "driver")
        assert lease and not is_expired(leases, lease.path)
        age(lease.path, 4)
        assert not is_expired(leases, lease.path)
        age(lease.path, 2)
        assert is_expired(leases, lease.path)


def test_the_clock_of_this_machine_does_not_count(leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lease = leases.take(tmp_path, "driver")
    assert lease
    for name in ("time", "monotonic"):
        monkeypatch.setattr(time, name, lambda: 1e12)
    assert not is_expired(leases, lease.path)
    age(lease.path, 61)
    assert is_expired(leases, lease.path)


def test_held_leases_are_renewed_and_lost_ones_are_noticed(tmp_path: Path):
    with Leases(tmp_path, "first", 0.3) as leases:
        lease = leases.take(tmp_path, "driver")
        assert lease
        time.sleep(0.6)
        assert not is_expired(leases, lease.path) and lease.is_held()
        assert leases.take(tmp_path, "driver") is None and leases.newest(tmp_path, "driver") == 0
        assert leases.take(tmp_path, "driver", 1) and not lease.is_held()
        with pytest.raises(LeaseLostError):
            lease.check()


def test_a_lease_that_is_given_back_is_free_at_once(leases: Leases, tmp_path: Path):
    with Leases(tmp_path, "second", 60) as others:
        lease = others.take(tmp_path, "driver")
    assert lease and is_expired(leases, lease.path)
    assert not [path.name for path in tmp_path.glob("clock-*")][1:]


def test_a_lease_that_is_given_back_on_sshfs_is_free_at_once(
    leases: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its client takes the time 0 for the present: the lease would look renewed."""
    utime = os.utime
    monkeypatch.setattr(os, "utime", lambda path, times=None: utime(path, None if times and 0 in times else times))
    lease = leases.take(tmp_path, "driver")
    assert lease
    leases.give_back(lease)
    assert is_expired(leases, lease.path)


def test_a_lease_that_the_system_refuses_and_nobody_holds_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    with Leases(tmp_path, "first", 0.05) as leases:
        monkeypatch.setattr(os, "open", refuse)
        assert leases.take(tmp_path, "driver") is None  # it may be a moment old
        time.sleep(0.06)
        lease_path(tmp_path, "driver", 0).mkdir()
        assert leases.take(tmp_path, "driver") is None
        lease_path(tmp_path, "driver", 0).rmdir()
        with pytest.raises(PermissionError):
            leases.take(tmp_path, "driver")


def test_a_lease_whose_content_is_not_written_yet_counts(leases: Leases, tmp_path: Path):
    path = lease_path(tmp_path, "driver", 0)
    path.touch()
    assert not is_expired(leases, path)
    age(path, 61)
    assert is_expired(leases, path)


def test_who_has_lost_the_lease_of_a_run_deletes_nothing(leases: Leases, tmp_path: Path):
    kept = tmp_path / "kept"
    kept.mkdir()
    lease = leases.take(tmp_path, "driver")
    assert lease
    with guarded_by(lease):
        leases.take(tmp_path, "driver", 1)
        with pytest.raises(LeaseLostError):
            remove(kept)
    assert kept.is_dir()
    remove(kept)
    assert not kept.exists()
