# SPDX-License-Identifier: Apache-2.0
"""Batches of tasks on a Dask cluster: once one task has failed, the others end too."""

import time
from functools import partial
from pathlib import Path

import pytest

from curation.base.system.cluster import connect
from curation.base.system.interrupts import check
from tests.needs import needs

distributed = needs("distributed")

TASKS, FAILING = 2_000, 5  # of 20 seconds in all
TASK_SECONDS = 0.02


def work(folder: Path, is_long: bool, number: int) -> None:
    """Fail, or write a file: after a while, or after an hour with safe points."""
    if number == FAILING:
        raise ValueError(f"task {number} fails")
    (folder / f"{number}.begun").touch()
    for _ in range(180_000 if is_long and number > FAILING else 1):
        check()
        time.sleep(TASK_SECONDS)
    (folder / f"{number}.done").touch()


@pytest.mark.parametrize("is_long", [False, True], ids=["between tasks", "at a safe point"])
def test_batches_end_when_another_one_has_failed(tmp_path: Path, is_long: bool):
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, silence_logs=False
    ) as cluster:
        if is_long:
            from tornado import web

            cluster.scheduler.http_application.add_application(web.Application())  # as bokeh's dashboard
        with pytest.raises(ValueError, match="task 5 fails"), connect(cluster) as session:
            session.run(partial(work, tmp_path, is_long), range(TASKS))
        assert session.dashboard == (cluster.dashboard_link if is_long else "")
        worker = cluster.workers[0]
        until = time.monotonic() + 20
        while worker.state.executing and time.monotonic() < until:
            time.sleep(TASK_SECONDS)
        begun, done = ({*tmp_path.glob(f"*.{kind}")} for kind in ("begun", "done"))
        assert not worker.state.executing and len(begun) < TASKS / 4 and len(begun) - len(done) <= 2
        assert session.executor.batch(TASKS, 0.0) > 1  # a batch had several tasks
