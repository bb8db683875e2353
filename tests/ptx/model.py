# SPDX-License-Identifier: Apache-2.0
"""The time that a kernel would need on an H200, from its counts. A model, not a measurement."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.ptx.execute import Counts
from tests.ptx.resources import Resources

# An H200 has the processor of an H100 (data sheets): 132 SMs, at most 1.98 GHz, which gives 66.9 T float32 and 33.5 T
# integer operations per second if a multiply-add counts as two. The clock is assumed lower, as under load.
SMS = 132
CLOCK = 1.8e9  # cycles per second
# Warp instructions per cycle and SM. Four schedulers issue one each, but an SM has 64 lanes for integers (NVIDIA's
# white paper on the H100; table of arithmetic throughput in the CUDA programming guide): half of its float32 lanes.
ISSUED = 2
L1_SECTORS = 4  # per cycle and SM: 128 bytes
DRAM_BYTES = 4.3e12  # per second: what copies within an H200 are reported to reach; its data sheet gives 4.8e12
DEPENDENT_CYCLES = 4  # from an instruction to the next one that needs its result; assumed
LOAD_CYCLES = 35  # from a load that hits the L1 cache to its use; assumed
SECTOR_BYTES = 32
# Of an SM for 9.0, by the CUDA programming guide. The linker reports shared memory with the KiB that CUDA reserves.
REGISTERS, SHARED_BYTES, WARPS, BLOCKS = 65_536, 228 << 10, 64, 32
WARP = 32
# Python's time for a launch and for each array of it: pull request 288 of numba-cuda (2025) measures 6.6, 10.6 and
# 14.1 us for 0, 1 and 2 arrays.
LAUNCH_MS, ARRAY_MS = 0.0066, 0.0036
OPERATION_MS = 0.0186  # of an operation of CuPy: pull request 8457 of CuPy (2025) measures 18.6 us for a small `add`
WAIT_MS = 0.02  # until the host has a number or knows a size; assumed
BATCH_BYTES = 256 << 20
TOKEN_BATCH_BYTES = 128 << 20  # the text that a task of the write phase gives to one call
WINDOW_BATCH_BYTES = 8 << 20  # `curation.stages.exact.span_blocks`
GB = 1e9

ASSUMPTIONS = f"""\
A model gives the times on an H200, in ms per GB of text. Sources of its numbers are in `tests/ptx/model.py`.

- *Issue*: {SMS} SMs at {CLOCK / 1e9:.1f} GHz issue {ISSUED} integer instructions of a warp per cycle each. Every PTX \
instruction counts as the kernel's average number of machine instructions for 9.0.
- *Waits*: a warp takes {DEPENDENT_CYCLES} cycles for each machine instruction and {LOAD_CYCLES} more for each load. \
As many warps run at once as registers, shared memory and the kernel's block size allow.
- *L1*: the L1 cache of an SM answers {L1_SECTORS} sectors per cycle.
- *Memory*: {DRAM_BYTES / 1e12:.1f} TB/s. The lower end reads and writes each different sector once, the upper end \
every requested sector, as if there was no cache.
- *ms per GB* is the largest of issue, waits, L1 and memory, for each end of memory.
- A launch lasts at least as long as its *longest thread*. The last column assumes that no document of the batch is \
longer than the longest one of this input.
- *Prefix sums* are CuPy's. A pass reads its input and writes its output once; a conversion to another type is a pass \
of its own. The device time of CuPy's other operations is not in the model.
- *Python* takes {LAUNCH_MS * 1e3:.1f} µs for a launch, {ARRAY_MS * 1e3:.1f} µs for each array of it, \
{OPERATION_MS * 1e3:.1f} µs for an operation of CuPy, and {WAIT_MS * 1e3:.0f} µs for a wait of the host.
- A *batch* has {BATCH_BYTES >> 20} MiB of text, {TOKEN_BATCH_BYTES >> 20} MiB for tokens and \
{WINDOW_BATCH_BYTES >> 20} MiB for repeated spans. Transfers are not in these tables.

The model has no waits for memory beyond the L1 cache: kernels that look up tables take longer."""


class Times(NamedTuple):
    """Milliseconds: per GB of text, and for the longest thread of the input."""

    issue: float
    waits: float
    l1: float
    least_memory: float
    most_memory: float
    longest_thread: float

    @property
    def cached(self) -> float:
        return max(self.issue, self.waits, self.l1, self.least_memory)

    @property
    def per_gb(self) -> float:
        return max(self.cached, self.most_memory)

    def batch_ms(self, per_gb: float, batch_bytes: int = BATCH_BYTES) -> float:
        """Milliseconds of a launch with a batch of text."""
        return max(per_gb * batch_bytes / GB, self.longest_thread)


def resident_warps(code: Resources, threads: int) -> int:
    """Warps of an SM at once, in blocks of `threads`."""
    warps = -(-threads // WARP)
    registers = -(-code.registers // 8) * 8 * WARP  # the device gives them to a warp in units of 256
    blocks = min(BLOCKS, WARPS // warps, REGISTERS // registers // warps)
    return min(blocks, SHARED_BYTES // code.shared if code.shared else blocks) * warps


def times_of(counts: Counts, text_bytes: int, code: Resources, threads: int, machine_per_ptx: float) -> Times:
    """`threads`: of a block; `machine_per_ptx`: machine instructions per PTX instruction."""
    ms_per_gb = 1e3 * GB / text_bytes
    cycles = machine_per_ptx * DEPENDENT_CYCLES + counts.loads / max(counts.instructions, 1) * LOAD_CYCLES
    return Times(
        counts.warp_instructions * machine_per_ptx / (SMS * ISSUED * CLOCK) * ms_per_gb,
        counts.warp_instructions * cycles / (SMS * resident_warps(code, threads) * CLOCK) * ms_per_gb,
        counts.sectors / (SMS * L1_SECTORS * CLOCK) * ms_per_gb,
        counts.touched_sectors * SECTOR_BYTES / DRAM_BYTES * ms_per_gb,
        counts.sectors * SECTOR_BYTES / DRAM_BYTES * ms_per_gb,
        counts.longest * cycles / CLOCK * 1e3,
    )


def ms_of_sums(bytes_moved: float) -> float:
    """Milliseconds per GB of text, for prefix sums that move so many bytes per byte of text."""
    return bytes_moved * GB / DRAM_BYTES * 1e3


def python_ms(launches: int, arrays: int, operations: int, waits: int) -> float:
    """Milliseconds of Python for what the host asks of a device."""
    return launches * LAUNCH_MS + arrays * ARRAY_MS + operations * OPERATION_MS + waits * WAIT_MS


class Speeds(NamedTuple):
    """GB/s of a function.

    lowest, highest   of its batches: nothing is cached and Python waits for kernels; or the contrary
    kernels           of its kernels and prefix sums alone, if nothing is cached
    """

    lowest: float
    highest: float
    kernels: float


def batch_speeds(times: Sequence[Times], bytes_moved: float, python: float, batch_bytes: int) -> Speeds:
    """Speeds of a function that runs these kernels on a batch, with prefix sums as in `ms_of_sums` and milliseconds of
    Python."""
    sums = ms_of_sums(bytes_moved) * batch_bytes / GB
    most = sum(each.batch_ms(each.per_gb, batch_bytes) for each in times) + sums
    least = sum(each.batch_ms(each.cached, batch_bytes) for each in times) + sums
    return Speeds(*(batch_bytes / GB / ms * 1e3 for ms in (most + python, max(least, python), most)))
