# SPDX-License-Identifier: Apache-2.0
"""Every CUDA kernel compiles to PTX and links to a cubin, without a GPU, for Turing to Blackwell.

What a device would refuse at the first launch is refused here: a construct outside Numba's CUDA subset, a table in
constant memory, too many parameters. Run with `-rP` to see registers and stack of each kernel.
"""

import re

import pytest

CAPABILITIES = [(7, 5), (8, 0), (9, 0), (10, 0)]

INSTALL = "pip install 'numba-cuda[cu13]<0.31'"
pytest.importorskip("numba_cuda", reason=f"numba-cuda is not installed: {INSTALL}")
nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink", reason=f"nvJitLink is not installed: {INSTALL}")
cuda = pytest.importorskip("numba.cuda")
kernels = pytest.importorskip("gpu_pipeline.kernels")

KERNELS = {
    name: kernel
    for name, kernel in vars(kernels).items()
    if hasattr(kernel, "py_func") and kernel.__module__ == kernels.__name__
}


class Device:
    def __init__(self, compute_capability):
        self.compute_capability = compute_capability


def compile_to_ptx(kernel, capability, monkeypatch) -> bytes:
    # The compiler asks the current device for its capability even where `cc` is given.
    monkeypatch.setattr("numba.cuda.dispatcher.get_current_device", lambda: Device(capability))
    signature = kernels.SIGNATURES[kernel]
    ptx, _ = cuda.compile(kernel.py_func, signature, cc=capability, device=False, abi="numba", output="ptx")
    return ptx.encode()


def link_to_cubin(ptx: bytes, capability) -> tuple[bytes, str]:
    """The cubin, and what the linker says of registers and memory."""
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


def test_every_kernel_has_a_signature():
    assert KERNELS and set(KERNELS.values()) == set(kernels.SIGNATURES)


@pytest.mark.parametrize("capability", CAPABILITIES, ids="sm_{0[0]}{0[1]}".format)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_compiles_and_links(name, capability, monkeypatch):
    ptx = compile_to_ptx(KERNELS[name], capability, monkeypatch)
    assert b".f64" not in ptx, "an integer became float64: int64 and uint64 were mixed"
    cubin, log = link_to_cubin(ptx, capability)
    assert cubin.startswith(b"\x7fELF")
    for numbers in re.findall(r"\d+ bytes stack frame.*|Used \d+ registers|used \d+ registers.*", log):
        print(name, "sm_{}{}".format(*capability), numbers)  # noqa: T201 - what -rP shows
