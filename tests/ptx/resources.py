# SPDX-License-Identifier: Apache-2.0
"""Registers and memory of a kernel's machine code, as the linker reports them; neither needs a device."""

import re
import struct
from typing import NamedTuple

from tests.ptx.parse import PtxError

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0)]
INSTRUCTION_BYTES = 16
REPORT = re.compile(r"used (\d+) registers, .*?(\d+) stack, (\d+) bytes smem, .*?(\d+) bytes lmem")


class Resources(NamedTuple):
    registers: int  # of a thread
    stack: int  # bytes of a thread, spilled registers included
    shared: int  # bytes of a block
    local: int  # bytes of a thread
    instructions: int  # of the machine code


def link_to_cubin(ptx: bytes, capability: tuple[int, int]) -> tuple[bytes, str]:
    """The cubin, and what the linker says of registers and memory."""
    from cuda.bindings import nvjitlink

    options = ["-arch=sm_{}{}".format(*capability), "-verbose"]
    handle = nvjitlink.create(len(options), options)
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "kernel")
        nvjitlink.complete(handle)
        log = bytearray(nvjitlink.get_info_log_size(handle))
        nvjitlink.get_info_log(handle, log)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin), log.decode()


def code_bytes(cubin: bytes) -> int:
    """The size of all sections of an ELF file whose names begin with .text."""
    table, size, count, names = struct.unpack_from("<Q10x3H", cubin, 40)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + k * size) for k in range(count)]
    start = headers[names][4]
    return sum(header[5] for header in headers if cubin[start + header[0] :].startswith(b".text."))


def reported(cubin: bytes, log: str) -> Resources:
    """What `link_to_cubin` returns of one kernel, as numbers."""
    reports = set(REPORT.findall(log))
    if len(reports) != 1:
        raise PtxError(f"the linker reports {len(reports)} kernels, expected one: {log[-300:]!r}")
    return Resources(*map(int, reports.pop()), code_bytes(cubin) // INSTRUCTION_BYTES)
