# SPDX-License-Identifier: Apache-2.0
"""Reads many small ranges of a file in one call; host only."""

import os
from pathlib import Path

import numpy as np
from numba import types

from curation.base.errors import IntegrityError
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


def read_pieces(path: Path, starts: np.ndarray, lengths: np.ndarray, out: np.ndarray) -> None:
    """Read byte ranges of a file (int64 arrays) to `out` (uint8), one after the other. Raise IntegrityError if the file
    is too short."""
    done = 0
    with open(path, "rb", buffering=0) as file:
        while True:
            done += read_ranges(file.fileno(), starts[done:], lengths[done:], out[int(lengths[:done].sum()) :])
            if done == len(starts):
                return
            # Python retries the failed read: it resumes after a signal, and raises errors of the disk
            if len(os.pread(file.fileno(), int(lengths[done]), int(starts[done]))) < lengths[done]:
                raise IntegrityError(f"{path} is too short: another program has written to it. Start over with --force")
