# SPDX-License-Identifier: Apache-2.0
"""Every CUDA kernel compiles to PTX and links to a cubin, without a GPU, for Turing to Blackwell.

What a device would refuse at the first launch is refused here: a construct outside Numba's CUDA subset, a table in
constant memory, too many parameters. Registers and memory stay close to the recorded ones (`tests/ptx/recorded.json`).
"""

import bz2
import json
import pickle
import re
from pathlib import Path

import pytest

from benchmarks import compiled_kernels
from curation.kernels import cache
from tests.needs import needs

INSTALL = "pip install 'numba-cuda[cu13]<0.31'"
needs("numba_cuda")
pytest.importorskip("cuda.bindings.nvjitlink", reason=f"nvJitLink is not installed: {INSTALL}")
numba = pytest.importorskip("numba")
dispatcher, driver = (pytest.importorskip(f"numba.cuda.{name}") for name in ("dispatcher", "cudadrv.driver"))
kernels, all_kernels = (pytest.importorskip(f"gpu_pipeline.{name}") for name in ("kernels.core", "kernels.all_kernels"))

from tests.ptx.build import other_toolchain, ptx_of
from tests.ptx.parse import parse
from tests.ptx.resources import CAPABILITIES, Resources, link_to_cubin, reported

RECORDED = json.loads((Path(__file__).parents[1] / "ptx" / "recorded.json").read_bytes())
SAMPLE = 30  # one of so many kernels is compiled in all runs of the tests
MORE_REGISTERS = 1.1  # that another version of the linker may use
SIGNATURES = all_kernels.SIGNATURES
MODULES = all_kernels.MODULES
KERNELS = {kernel.py_func.__name__: kernel for kernel in SIGNATURES}


def test_every_kernel_has_a_signature():
    """Functions that only kernels call are compiled with them."""
    made = [(module, value) for module in MODULES for value in vars(module).values() if hasattr(value, "py_func")]
    found = {
        value for module, value in made if value.__module__ == module.__name__ and not value.targetoptions["device"]
    }
    assert found == set(SIGNATURES)


def test_no_module_of_kernels_is_forgotten():
    sources = Path(kernels.__file__).parent.glob("*.py")
    with_kernels = {path.stem for path in sources if "@cuda.jit(cache=True" in path.read_text("utf-8")}
    assert with_kernels == {module.__name__.rpartition(".")[2] for module in MODULES}


@pytest.fixture
def brought(tmp_path, monkeypatch):
    """A file of one kernel, compiled for a device, and a cache of another machine that has nothing."""
    name, _, kernel = compiled_kernels.compile_kernel("mark_rows")
    content = {
        "versions": compiled_kernels.versions(),
        "kernels": {name: kernel},
        "host": {"of the CPU engine": b"code"},
    }
    path = tmp_path / "kernels.bin"
    path.write_bytes(bz2.compress(pickle.dumps(content)))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "FOLDER", tmp_path / "host")
    monkeypatch.setattr(cache, "WHEEL_FEATURES", ())
    monkeypatch.setattr(kernels.mark_rows, "_cache", dispatcher.CUDACache(kernels.mark_rows.py_func))
    return path, content


def test_compiled_kernels_are_loaded_in_place_of_compiling(brought, monkeypatch):
    """As the first launch does: Numba asks its cache, and then for machine code."""
    kernel, signature = KERNELS["mark_rows"], SIGNATURES[KERNELS["mark_rows"]]
    monkeypatch.setattr(dispatcher._Kernel, "__init__", None)  # compiles
    monkeypatch.setattr(driver, "_Linker", None)
    with compiled_kernels.as_on_device((9, 0)):
        assert kernel._cache.load_overload(signature, kernel.targetctx) is None
        assert compiled_kernels.load(brought[0]) == f"1 of {len(KERNELS)} kernels loaded"
        loaded = kernel._cache.load_overload(signature, kernel.targetctx)
        assert bytes(loaded._codelibrary.get_cubin().code).startswith(b"\x7fELF")
    assert (cache.FOLDER / "of the CPU engine").read_bytes() == b"code"
    with compiled_kernels.as_on_device((8, 0)):
        assert kernel._cache.load_overload(signature, kernel.targetctx) is None


def test_kernels_of_other_versions_are_refused(brought):
    path, content = brought
    content["versions"] |= {"numba-cuda": "0.1"}
    path.write_bytes(bz2.compress(pickle.dumps(content)))
    with pytest.raises(ValueError, match=r"kernels\.bin: kernels compiled for .*'0\.1'.*,.*Compile them"):
        compiled_kernels.load(path)


def excess(found: Resources, recorded: Resources) -> list[str]:
    """Names of the resources of which a kernel uses more than recorded."""
    most = recorded._replace(registers=recorded.registers * MORE_REGISTERS)
    return [name for name in ("registers", "stack", "shared", "local") if getattr(found, name) > getattr(most, name)]


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        pytest.param(
            name,
            each,
            id="{}-sm_{}{}".format(name, *each),
            marks=()
            if each == (9, 0) and number % SAMPLE == 0
            else pytest.mark.slow("every kernel compiles and links for Turing to Blackwell"),
        )
        for number, name in enumerate(KERNELS)
        for each in CAPABILITIES
    ],
)
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


@pytest.mark.slow("the device code executed here is the same for other compute capabilities")
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
