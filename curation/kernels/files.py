# SPDX-License-Identifier: Apache-2.0
"""Reads many small ranges of a file in one call; host only."""

from numba import types

from curation.kernels.cache import kernel

_pread = types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))


@kernel
def read_ranges(descriptor, starts, lengths, out):
    """Read byte ranges of an open file, one after the other, into `out` (uint8); return the number of ranges read.

    starts, lengths   int64: first byte and number of bytes of each range

    The result is below len(starts) if the file ends too early or cannot be read.
    """
    at = 0
    for k in range(len(starts)):
        done = 0
        while done < lengths[k]:
            count = _pread(descriptor, out.ctypes.data + at, lengths[k] - done, starts[k] + done)
            if count <= 0:
                return k
            done += count
            at += count
    return len(starts)
