# SPDX-License-Identifier: Apache-2.0
"""Reading many small pieces of a file without Python in between; on the host only."""

from numba import njit, types

_pread = types.ExternalFunction("pread", types.intp(types.intc, types.uintp, types.uintp, types.int64))


@njit(cache=True, nogil=True)
def read_pieces(descriptor, starts, lengths, out):
    """Reads `lengths[k]` bytes (int64) from `starts[k]` on, piece after piece into `out` (uint8); gives the number of
    pieces read, which is smaller where the file ends too early or cannot be read."""
    at = 0
    for piece in range(len(starts)):
        done = 0
        while done < lengths[piece]:
            found = _pread(descriptor, out.ctypes.data + at, lengths[piece] - done, starts[piece] + done)
            if found <= 0:
                return piece
            done += found
            at += found
    return len(starts)
