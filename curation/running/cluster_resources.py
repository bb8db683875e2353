# SPDX-License-Identifier: Apache-2.0
"""Preparation of a Dask cluster for a run: checks of its workers, their memory, and their kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from curation.base.system.cluster import patience
from curation.base.system.cluster_workers import ClusterConnection, Worker, open_cluster
from curation.base.system.memory import LOADED, Limit, Resources, choose, choose_for_device, read_limits
from curation.record.folder import WORK, mark_work
from curation.running.planning.arguments import MAX_SLICE_BYTES, Call
from curation.stages.warm_up import recipe_groups, warm_up_groups

TOO_LITTLE = "that may be too little: start its worker with fewer --nthreads, or with more --memory-limit"


def prepare_cluster(call: Call) -> Resources | None:
    """Check the workers of a run's cluster, and compile the kernels once per machine. Return the resources of the run.

    Returns None for a run without a cluster. Raises EngineError if versions differ, OutputError if a worker does not
    see the output folder, and OutOfMemoryError if a worker has less memory than the smallest run needs.
    """
    if ":" not in call.scheduler:
        return None
    call.progress.log(f"connecting to the scheduler at {call.scheduler}, for up to {patience()}")
    with open_cluster(call.scheduler) as cluster:
        cluster.check_versions()
        mark_work(call.folder)
        cluster.check_folder(call.folder, call.folder / WORK)
        resources = find_cluster_resources(call, cluster)
        threads = max(worker.threads for worker in cluster.workers)
        cluster.on_each_host(warm_up_groups, recipe_groups(call.recipe, call.choice.name), threads)
    return resources


def find_cluster_resources(call: Call, cluster: ClusterConnection) -> Resources:
    """Return how many tasks all workers run at once, and the sizes of batches and slices that fit the memory of each
    worker."""
    threads = [worker.threads for worker in cluster.workers]
    found = Resources(call.workers or sum(threads), call.engine.batch_bytes(max(threads)), MAX_SLICE_BYTES)
    if call.choice.name != "cpu":
        return choose_for_device([], found.workers, found.batch_bytes, found.max_slice_bytes)
    limits = cluster.on_each_worker(read_limits)
    per_host = Counter(worker.host for worker in cluster.workers)
    for worker in cluster.workers:
        own = worker_limits(worker, limits[worker], per_host[worker.host])
        chosen = choose(own, worker.threads, found.batch_bytes, found.max_slice_bytes, fixed_workers=True)
        if found.limit is None or chosen.spare_bytes < found.spare_bytes:
            found = chosen._replace(workers=found.workers, remark=chosen.remark and TOO_LITTLE)
    return found


def worker_limits(worker: Worker, limits: Sequence[Limit], neighbours: int) -> list[Limit]:
    """Return the memory limits of a worker that has not loaded the libraries of a run. They are its own limit, and its
    share of those of the machine and its cgroups. `neighbours` workers of the host share these."""
    kind = "resident"
    resident = [limit for limit in limits if limit.kind == kind]
    own = [Limit(kind, f"the memory limit of {worker}", worker.memory_limit, worker.memory_limit)]
    shared = [
        limit._replace(name=f"{limit.name} of {worker}", free=limit.free // neighbours, hard=limit.hard)
        for limit in resident
    ]
    return [limit._replace(free=limit.free - LOADED[kind]) for limit in (*own, *shared) if limit.bound]
