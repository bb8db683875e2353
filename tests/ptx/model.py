# SPDX-License-Identifier: Apache-2.0
"""The time that a kernel would need on an H200, from its counts. A model, not a measurement."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.ptx.execute import Counts
from tests.ptx.resources import Resources

SMS = 132
CLOCK = 1.8e9  # cycles per second
ISSUED = 4  # warp instructions per cycle and SM, one per scheduler
L1_SECTORS = 4  # per cycle and SM: 128 bytes
DRAM_BYTES = 4.8e12  # per second
DEPENDENT_CYCLES = 4  # from an instruction to the next one that needs its result
LOAD_CYCLES = 35  # from a load that hits the L1 cache to its use
SECTOR_BYTES = 32
REGISTERS, SHARED_BYTES, THREADS = 65_536, 227 << 10, 2048  # of an SM
BLOCK_THREADS, WARP = 128, 32
LAUNCH_MS = 0.005  # from a launch to the next one in the same stream
BATCH_BYTES = 256 << 20
GB = 1e9

ASSUMPTIONS = f"""\
A model gives the times on an H200, in ms per GB of text:

- *Issue*: {SMS} SMs at {CLOCK / 1e9:.1f} GHz issue {ISSUED} warp instructions per cycle each. Every PTX instruction \
counts as the kernel's average number of machine instructions for 9.0.
- *Waits*: a warp takes {DEPENDENT_CYCLES} cycles for each machine instruction and {LOAD_CYCLES} more for each load. \
As many warps run at once as registers and shared memory allow.
- *L1*: the L1 cache of an SM answers {L1_SECTORS} sectors per cycle.
- *Memory*: {DRAM_BYTES / 1e12:.1f} TB/s. The lower end reads and writes each different sector once, the upper end \
every requested sector, as if there was no cache.
- *ms per GB* is the largest of issue, waits, L1 and the lower end of memory.
- A launch lasts at least as long as its *longest thread*. The last column assumes that no document of the batch is \
longer than the longest one of this input.
- *Prefix sums* are CuPy's. A pass reads its input and writes its output once; a conversion to another type is a pass \
of its own. The model leaves out CuPy's other functions (selections, searches, sorts, copies).
- A *launch* takes {LAUNCH_MS * 1e3:.0f} µs, and nothing else runs meanwhile. Transfers are not in the model.

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
    def per_gb(self) -> float:
        return max(self.issue, self.waits, self.l1, self.least_memory)

    @property
    def batch_speed(self) -> float:
        """GB/s of a launch with BATCH_BYTES of text."""
        ms = max(self.per_gb * BATCH_BYTES / GB, self.longest_thread)
        return BATCH_BYTES / GB / ms * 1e3


def resident_warps(code: Resources) -> int:
    """Warps of an SM at once, in blocks of BLOCK_THREADS."""
    registers = -(-code.registers // 8) * 8  # the device gives them out in eights
    blocks = min(THREADS, REGISTERS // registers) // BLOCK_THREADS
    if code.shared:
        blocks = min(blocks, SHARED_BYTES // code.shared)
    return blocks * BLOCK_THREADS // WARP


def times_of(counts: Counts, text_bytes: int, code: Resources, machine_per_ptx: float) -> Times:
    """`machine_per_ptx`: machine instructions per PTX instruction."""
    ms_per_gb = 1e3 * GB / text_bytes
    cycles = machine_per_ptx * DEPENDENT_CYCLES + counts.loads / max(counts.instructions, 1) * LOAD_CYCLES
    return Times(
        counts.warp_instructions * machine_per_ptx / (SMS * ISSUED * CLOCK) * ms_per_gb,
        counts.warp_instructions * cycles / (SMS * resident_warps(code) * CLOCK) * ms_per_gb,
        counts.sectors / (SMS * L1_SECTORS * CLOCK) * ms_per_gb,
        counts.touched_sectors * SECTOR_BYTES / DRAM_BYTES * ms_per_gb,
        counts.sectors * SECTOR_BYTES / DRAM_BYTES * ms_per_gb,
        counts.longest * cycles / CLOCK * 1e3,
    )


def ms_of_sums(bytes_moved: float) -> float:
    """Milliseconds per GB of text, for prefix sums that move so many bytes per byte of text."""
    return bytes_moved * GB / DRAM_BYTES * 1e3


def batch_speed(times: Sequence[Times], bytes_moved: float, launches: int) -> float:
    """GB/s of a function that runs these kernels on BATCH_BYTES of text, with prefix sums as in `ms_of_sums`."""
    kernels = sum(max(each.per_gb * BATCH_BYTES / GB, each.longest_thread) for each in times)
    ms = kernels + ms_of_sums(bytes_moved) * BATCH_BYTES / GB + launches * LAUNCH_MS
    return BATCH_BYTES / GB / ms * 1e3
