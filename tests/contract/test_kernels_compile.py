# SPDX-License-Identifier: Apache-2.0
"""Every CUDA kernel compiles to PTX and links to a cubin, without a GPU, for Turing to Blackwell.

What a device would refuse at the first launch is refused here: a construct outside Numba's CUDA subset, a table in
constant memory, too many parameters. Registers and memory stay close to the recorded ones (`tests/ptx/recorded.json`).
"""

import json
import re
from pathlib import Path

import pytest

from tests.needs import needs

INSTALL = "pip install 'numba-cuda[cu13]<0.31'"
needs("numba_cuda")
pytest.importorskip("cuda.bindings.nvjitlink", reason=f"nvJitLink is not installed: {INSTALL}")
pytest.importorskip("numba.cuda")
NAMES = (
    "kernels", "text_kernels", "document_kernels", "rewrite_masks", "rewrite_kernels", "token_kernels", "json_kernels",
    "model_kernels",
)  # fmt: skip
LAUNCHED = [pytest.importorskip(f"gpu_pipeline.{name}") for name in NAMES]
kernels = LAUNCHED[0]

from tests.ptx.build import other_toolchain, ptx_of
from tests.ptx.parse import parse
from tests.ptx.resources import CAPABILITIES, Resources, link_to_cubin, reported

RECORDED = json.loads((Path(__file__).parents[1] / "ptx" / "recorded.json").read_bytes())
MORE_REGISTERS = 1.1  # that another version of the linker may use
SIGNATURES = {kernel: signature for module in LAUNCHED for kernel, signature in module.SIGNATURES.items()}
OF_MEASURES = kernels.measure_kernels, kernels.word_kernels, kernels.repetition_kernels, kernels.long_repetition_kernels
MODULES = *LAUNCHED, *OF_MEASURES
KERNELS = {kernel.py_func.__name__: kernel for kernel in SIGNATURES}


def test_every_kernel_has_a_signature():
    """Functions that only kernels call are compiled with them."""
    made = [(module, value) for module in MODULES for value in vars(module).values() if hasattr(value, "py_func")]
    found = {
        value for module, value in made if value.__module__ == module.__name__ and not value.targetoptions["device"]
    }
    assert found == set(SIGNATURES)


def excess(found: Resources, recorded: Resources) -> list[str]:
    """Names of the resources of which a kernel uses more than recorded."""
    most = recorded._replace(registers=recorded.registers * MORE_REGISTERS)
    return [name for name in ("registers", "stack", "shared", "local") if getattr(found, name) > getattr(most, name)]


@pytest.mark.parametrize(
    "capability",
    [
        (9, 0),
        *(
            pytest.param(each, marks=pytest.mark.slow("every kernel compiles and links for Turing to Blackwell"))
            for each in CAPABILITIES
            if each != (9, 0)
        ),
    ],
    ids="sm_{0[0]}{0[1]}".format,
)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_compiles_and_links(name, capability):
    ptx = ptx_of(KERNELS[name], SIGNATURES[KERNELS[name]], capability).encode()
    assert b".f64" not in ptx, "an integer became float64: int64 and uint64 were mixed"
    cubin, log = link_to_cubin(ptx, capability)
    assert cubin.startswith(b"\x7fELF")
    recorded = RECORDED["resources"]["{}.{}".format(*capability)].get(name)
    assert recorded, "not recorded: run `make ptx-record`"
    found = reported(cubin, log)
    if not other_toolchain(RECORDED["toolchain"]):
        assert not excess(found, Resources(*recorded)), f"{found}, recorded {recorded}; accept it by `make ptx-record`"


@pytest.mark.slow("the device code that is executed here is that of other capabilities")
@pytest.mark.parametrize("capability", [(7, 5), (8, 0)], ids="sm_{0[0]}{0[1]}".format)
@pytest.mark.parametrize("name", KERNELS)
def test_device_code_that_is_executed_is_that_of_other_capabilities(name, capability):
    """`tests/ptx` runs the code for 9.0 and 10.0."""

    def code(chosen: tuple[int, int]) -> str:
        kernel = parse(ptx_of(KERNELS[name], SIGNATURES[KERNELS[name]], chosen))
        text = "\n".join(instruction.text.replace(kernel.name, "kernel") for instruction in kernel.instructions)
        numbers: dict[str, int] = {}  # Numba counts shared arrays over all kernels of the process
        return re.sub(r"(?<=_smem_)\d+", lambda found: str(numbers.setdefault(found[0], len(numbers))), text)

    assert code(capability) == code((9, 0))


def test_more_registers_or_spilled_ones_are_noticed():
    recorded = Resources(40, 0, 0, 0, 1000)
    assert excess(recorded._replace(registers=44, instructions=2000), recorded) == []
    assert excess(recorded._replace(registers=45), recorded) == ["registers"]
    assert excess(recorded._replace(stack=8, local=8), recorded) == ["stack", "local"]
