# SPDX-License-Identifier: Apache-2.0
"""What all tasks of a phase share is read once in a process."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from curation.running.jobs import run_stored, store_job

LOADS: list[int] = []


class Slow:
    """A job that takes a while to read, and says that it was."""

    def __setstate__(self, _: dict[str, Any]) -> None:
        LOADS.append(1)
        time.sleep(0.05)

    def __getstate__(self) -> dict[str, Any]:
        return {"a": 1}


def test_threads_that_begin_together_read_a_job_once(tmp_path: Path):
    path, together, seen = store_job(Slow(), tmp_path), Barrier(8), []

    def task(number: int) -> None:
        together.wait()
        run_stored(lambda job, at: seen.append((id(job), at)), path, number)

    LOADS.clear()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(task, range(8)))
    assert len(LOADS) == 1 and len({job for job, _ in seen}) == 1
    assert sorted(at for _, at in seen) == list(range(8))
