# SPDX-License-Identifier: Apache-2.0
"""Calls in the workers of a cluster, which unpickle them by name. Their modules are imported during the call: a worker
then has its variables of streams, which the package sets."""

from collections.abc import Mapping


def device_of_worker() -> str:
    """Return the UUID of the device of this process."""
    from gpu_pipeline.memory.device import device_id

    return device_id()


def begin(processes: Mapping[str, int], kernels: tuple[str, ...]) -> None:
    """Divide the device among the processes on it, load the kernels of these groups, and prepare the pool of host
    memory. Each batch of tasks begins by this call; only the first one has work to do."""
    from gpu_pipeline.kernels.all_kernels import load_kernels
    from gpu_pipeline.memory.device import divide_device
    from gpu_pipeline.memory.host_memory import prepare, tasks_of_worker
    from gpu_pipeline.session import batch_bytes

    divide_device(processes)
    load_kernels(kernels)
    prepare(batch_bytes(tasks_of_worker()))
