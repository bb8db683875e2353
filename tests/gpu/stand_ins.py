# SPDX-License-Identifier: Apache-2.0
"""NumPy in CuPy's place, pandas in cuDF's, and one Python call per CUDA thread: the modules of `gpu_pipeline` run on
machines without a GPU. Threads run in random order over memory full of rubbish, so that nothing passes by luck.
"""

import importlib.util
import math
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numba import types
from numba.np.numpy_support import from_dtype

import cpu_fallback
import cpu_fallback.buffers
import gpu_pipeline.memory
from curation.base.arrays import as_one_array
from curation.base.contract import ENGINE_FUNCTIONS
from curation.base.engine import PACKAGES, STREAM_PER_THREAD
from tests.gpu import interface
from tests.gpu.interface import guarded

kernels = pytest.importorskip("gpu_pipeline.kernels.core")
measure_kernels = pytest.importorskip("gpu_pipeline.kernels.measure_kernels")
token_kernels = pytest.importorskip("gpu_pipeline.kernels.token_kernels")
text_kernels = pytest.importorskip("gpu_pipeline.kernels.text_kernels")
document_kernels = pytest.importorskip("gpu_pipeline.kernels.document_kernels")
rewrite_masks = pytest.importorskip("gpu_pipeline.kernels.rewrite_masks")
rewrite_kernels = pytest.importorskip("gpu_pipeline.kernels.rewrite_kernels")
json_kernels = pytest.importorskip("gpu_pipeline.kernels.json_kernels")
model_kernels = pytest.importorskip("gpu_pipeline.kernels.model_kernels")
all_kernels = pytest.importorskip("gpu_pipeline.kernels.all_kernels")
OF_REWRITING = document_kernels, rewrite_masks, rewrite_kernels
SIGNATURES = all_kernels.SIGNATURES
LONGEST = token_kernels.MERGED_BYTES
NO_WARPS = {"SHORT_BYTES": LONGEST, "SHORT_SLOTS": token_kernels.THREADS * LONGEST}  # one thread merges everything
WARP_MODULES = *all_kernels.OF_MEASURES, *OF_REWRITING, model_kernels  # with kernels for warps of LANES threads
KERNEL_MODULES = all_kernels.MODULES

TOTAL_BYTES = 16 << 30  # of the device
LOADED: list[tuple[str, Any]] = []  # (kernel, signature) of each that a run has loaded
HOST_BUFFERS = ("buffers_of", "series_of", "view")  # columns are pandas'


class FakeCuda:
    """What kernels ask of `numba.cuda`; one thread at a time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.blockIdx = SimpleNamespace(x=0)
        self.threadIdx = SimpleNamespace(x=0)
        self.blockDim = SimpleNamespace(x=3)
        self.gridDim = SimpleNamespace(x=2)
        self.local = SimpleNamespace(array=lambda size, kind: rubbish(size, str(kind)))
        operations = {"min": np.minimum, "max": np.maximum, "add": np.add, "or_": np.bitwise_or, "xor": np.bitwise_xor}
        self.atomic = SimpleNamespace(cas=exchange, **{name: atomic(each) for name, each in operations.items()})
        self.shared = self.local

    def grid(self, dimensions):
        assert dimensions == 1
        return np.int64(self.blockIdx.x * self.blockDim.x + self.threadIdx.x)

    def gridsize(self, dimensions):
        assert dimensions == 1
        return np.int64(self.gridDim.x * self.blockDim.x)

    def popc(self, bits):
        return int(bits).bit_count()

    def clz(self, bits):
        return 32 - int(bits).bit_length()

    def brev(self, bits):
        return int(f"{int(bits):032b}"[::-1], 2)

    def ballot_sync(self, lanes, flag):
        return int(flag)

    def match_any_sync(self, lanes, value):
        return 1

    def shfl_sync(self, lanes, value, lane):
        return value

    def syncwarp(self):
        """A warp is one thread."""

    def syncthreads(self):
        """Only blocks of one thread wait."""

    def syncthreads_or(self, flag):
        return flag

    def run(self, kernel, rows, *arguments):
        blocks = -(-rows // 3) + 1  # the last block has no work
        self.run_threads(blocks, 3, kernel, arguments)

    def run_blocks(self, kernel, rows, *arguments):
        self.run_threads(2, 3, kernel, arguments)

    def run_teams(self, kernel, rows, threads, *arguments):
        """A block of one thread waits for no other."""
        self.run_threads(2, 1, kernel, arguments)

    def run_threads(self, blocks, threads, kernel, arguments):
        for argument, kind in zip(arguments, SIGNATURES[kernel], strict=True):
            assert_of_type(argument, kind)
        with self.lock:
            self.gridDim.x, self.blockDim.x = blocks, threads
            for place in scattered(blocks * threads):
                self.blockIdx.x, self.threadIdx.x = divmod(place, threads)
                kernel.py_func(*arguments)


def atomic(operation: np.ufunc) -> Callable:
    """The operation on one item of an array; returns the item before."""

    def run(array, index, value):
        before = array[index].copy()
        operation.at(array, index, value)
        return before

    return run


def exchange(array, index, expected, value):
    before = array[index].copy()
    if before == expected:
        array[index] = value
    return before


def scattered(count: int) -> Iterator[int]:
    """The numbers below `count` in a random order that needs no memory: some tests count the memory of launches."""
    chance = random.Random(count)
    step = next(step for step in iter(lambda: chance.randrange(1, count + 1), None) if math.gcd(step, count) == 1)
    start = chance.randrange(count)
    return ((start + k * step) % count for k in range(count))


def assert_of_type(argument, kind) -> None:
    """What the kernels were compiled for is what they get."""
    if isinstance(kind, types.Array):
        assert isinstance(argument, np.ndarray) and from_dtype(argument.dtype) == kind.dtype
        assert argument.ndim == kind.ndim and (kind.layout == "A" or argument.flags.c_contiguous)
    else:
        assert isinstance(argument, bool) if kind == types.bool_ else isinstance(argument, int | np.int64)


def eight_byte_blocks(data):
    aligned = data if data.ctypes.data % 8 == 0 else data.copy()
    return aligned[: data.size // 8 * 8].view(np.uint64)


def copied_up(*parts):
    return np.concatenate(parts)


def copied_down(array, out):
    out[...] = array


def rubbish(shape, dtype):
    array = np.empty(shape, dtype)
    array.view(np.uint8).fill(0xA5)
    return array


def device_functions() -> list[tuple[ModuleType, str, Any]]:
    """(module, name, function) of what kernels call and the host does not launch."""
    kind = type(kernels.hash_rows)
    named = [(module, name, value) for module in KERNEL_MODULES for name, value in vars(module).items()]
    return [each for each in named if type(each[2]) is kind and each[2].targetoptions["device"]]


def numpy_as_cupy() -> ModuleType:
    stand_in = ModuleType("cupy")
    own = {"asnumpy": np.asarray, "asarray": np.ascontiguousarray, "empty": rubbish}  # copied: what the host has
    for name, parameters in interface.recorded().items():
        module, _, last = name.partition(".")
        if module == "cupy" and (last in own or hasattr(np, last)):
            made = own.get(last) or getattr(np, last)
            setattr(stand_in, last, made if parameters is None or isinstance(made, type) else guarded(name, made))
    stand_in.__version__ = "0"
    runtime = SimpleNamespace(
        driverGetVersion=lambda: 13020,
        getDevice=lambda: 0,
        getDeviceCount=lambda: 1,
        getDeviceProperties=lambda number: {"name": b"Made GPU", "uuid": bytes(range(16))},
        memGetInfo=lambda: (TOTAL_BYTES // 4, TOTAL_BYTES),
        deviceGetAttribute=lambda attribute, device: 1,
        hostRegister=lambda ptr, size, flags: None,
        hostUnregister=lambda ptr: None,
        deviceSynchronize=lambda: None,
        cudaDevAttrMemoryPoolsSupported=115,
    )
    stand_in.cuda = SimpleNamespace(
        runtime=runtime, Device=lambda: SimpleNamespace(id=0), get_current_stream=current_stream,
        MemoryPointer=lambda memory, offset: SimpleNamespace(mem=memory),
        UnownedMemory=lambda ptr, size, owner, device_id: SimpleNamespace(ptr=ptr, owner=owner),
        set_allocator=lambda allocator: setattr(stand_in.cuda, "allocator", allocator),
    )  # fmt: skip
    return stand_in


class Stream:
    """A stream of one thread."""

    def synchronize(self):
        """Work is done at once here."""


class _Streams(threading.local):
    def __init__(self) -> None:
        self.kernels, self.current = Stream(), Stream()


_streams = _Streams()


def stream_of_thread() -> Stream:
    return _streams.kernels


def current_stream() -> Stream:
    """CuPy's, which is not that of kernels if CuPy was imported too early."""
    return _streams.current


class Series(pd.Series):
    @property
    def _constructor(self):
        return Series

    @property
    def _constructor_expanddim(self):
        return DataFrame

    @property
    def null_count(self) -> int:
        return int(self.isna().sum())

    def to_pylibcudf(self):
        return cpu_fallback.to_arrow(pd.DataFrame(self.rename("")))[""], {}

    def to_arrow(self) -> pa.Array:
        return as_one_array(self.to_pylibcudf()[0])

    @classmethod
    def from_arrow(cls, array: pa.Array) -> "Series":
        return cls(cpu_fallback.from_arrow(pa.table({"": array}))[""])


class DataFrame(pd.DataFrame):
    @property
    def _constructor(self):
        return DataFrame

    @property
    def _constructor_sliced(self):
        return Series

    @classmethod
    def from_arrow(cls, table: pa.Table) -> "DataFrame":
        return cls(cpu_fallback.from_arrow(table))

    def to_arrow(self, preserve_index: bool) -> pa.Table:
        assert not preserve_index
        return cpu_fallback.to_arrow(self)


def pandas_as_cudf() -> ModuleType:
    def read_parquet(paths, *, columns, row_groups, use_pandas_metadata, ignore_missing_columns, dataset_kwargs):
        assert not use_pandas_metadata and not ignore_missing_columns and dataset_kwargs == {}
        pieces = zip(paths, row_groups, strict=True)
        tables = [pq.ParquetFile(path).read_row_groups(groups, columns=columns) for path, groups in pieces]
        return DataFrame.from_arrow(pa.concat_tables(tables).combine_chunks())

    stand_in = ModuleType("cudf")
    vars(stand_in).update(
        DataFrame=DataFrame, Series=Series, Index=pd.Index, RangeIndex=pd.RangeIndex, __version__="0",
        concat=guarded("cudf.concat", pd.concat), read_parquet=guarded("cudf.read_parquet", read_parquet),
    )  # fmt: skip
    return stand_in


class ChunkedWriter:
    """pylibcudf's writer of Parquet, its options and their builder. Calls are those of the stubs of 26.10."""

    def __init__(self, sink: list[str]) -> None:
        self.path, self.set, self.file = sink[0], dict[str, Any](), None

    def __getattr__(self, name: str) -> Callable[[Any], "ChunkedWriter"]:
        if name not in (
            "metadata", "key_value_metadata", "compression", "stats_level", "row_group_size_bytes",
            "row_group_size_rows", "max_page_size_bytes",
        ):  # fmt: skip
            raise AttributeError(name)
        return lambda value: self.set.__setitem__(name, value) or self

    def build(self) -> "ChunkedWriter":
        return self

    def set_dictionary_policy(self, policy: str) -> None:
        self.set["dictionary"] = policy

    def write(self, columns: list[pa.ChunkedArray], partitions_info: None = None) -> None:
        """Strings have 32-bit offsets: only Arrow's schema in the footer tells that they were large."""
        kinds = [pa.string() if column.type == pa.large_string() else column.type for column in columns]
        names = [column.name for column in self.set["metadata"].column_metadata]
        columns = [column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]
        if self.file is None:
            assert (self.set["stats_level"], self.set["dictionary"]) == ("STATISTICS_NONE", "NEVER")
            self.file = pq.ParquetWriter(
                self.path, pa.schema([*zip(names, kinds, strict=True)]), compression=self.set["compression"].lower(),
                store_schema=False, write_statistics=False, use_dictionary=False,
            )  # fmt: skip
            self.file.add_key_value_metadata(self.set["key_value_metadata"][0])
        self.file.write_table(pa.table(columns, names), row_group_size=self.set["row_group_size_rows"])

    def close(self, metadata_file_path: list[str]) -> None:
        assert metadata_file_path == []
        self.file.close()


class ColumnMetadata:
    def set_name(self, name: str) -> "ColumnMetadata":
        self.name = name
        return self

    def set_nullability(self, nullable: bool) -> "ColumnMetadata":
        assert nullable
        return self


class Names(dict):
    """An enumeration whose values are their names."""

    __getattr__ = dict.__getitem__

    def __missing__(self, name: str) -> str:
        return name


def arrow_as_pylibcudf() -> SimpleNamespace:
    kinds = SimpleNamespace(
        TableInputMetadata=lambda columns: SimpleNamespace(column_metadata=[ColumnMetadata() for _ in columns]),
        CompressionType=Names(), StatisticsFreq=Names(), DictionaryPolicy=Names(),
    )  # fmt: skip
    writing = SimpleNamespace(
        ChunkedParquetWriterOptions=SimpleNamespace(builder=ChunkedWriter),
        ChunkedParquetWriter=SimpleNamespace(from_options=lambda options: options),
    )
    modules = SimpleNamespace(types=kinds, parquet=writing, SinkInfo=list)
    return SimpleNamespace(Column=None, Table=list, io=modules)


def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Puts everything in place; gives what loads a module of the GPU engine."""

    def load(name: str) -> ModuleType:
        path = next(Path(gpu_pipeline.__file__).parent.rglob(f"{name}.py"))
        spec = importlib.util.spec_from_file_location(f"gpu_{name}_on_numpy", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    for variable in STREAM_PER_THREAD.values():
        monkeypatch.setenv(variable, "1")
    resources = SimpleNamespace(get_current_device_resource=lambda: None, CudaMemoryResource=dict)
    for name, stand_in in (
        ("cupy", numpy_as_cupy()),
        ("cudf", pandas_as_cudf()),
        ("pylibcudf", arrow_as_pylibcudf()),
        ("rmm", SimpleNamespace(__name__="rmm", __version__="0", mr=resources)),
        ("rmm.allocators.cupy", SimpleNamespace(rmm_cupy_allocator=None)),
        ("numba_cuda", SimpleNamespace(__name__="numba_cuda", __version__="0")),  # only its version is asked for
    ):
        monkeypatch.setitem(sys.modules, name, stand_in)
    host_memory = load("host_memory")
    monkeypatch.setitem(sys.modules, "gpu_pipeline.memory.host_memory", host_memory)
    monkeypatch.setattr(gpu_pipeline.memory, "host_memory", host_memory, raising=False)
    buffers = load("buffers")
    vars(buffers).update({name: getattr(cpu_fallback.buffers, name) for name in HOST_BUFFERS})
    buffers.eight_byte_blocks, buffers.upload = eight_byte_blocks, copied_up

    def download(array, out=None):
        out = host_memory.empty(array.shape, array.dtype) if out is None else out
        copied_down(array, out)
        return out

    buffers.download = download
    buffers.is_text = lambda column: pa.types.is_large_string(
        cpu_fallback.to_arrow(pd.DataFrame(column)).schema[0].type
    )
    monkeypatch.setitem(sys.modules, "gpu_pipeline.memory.buffers", buffers)
    monkeypatch.setitem(sys.modules, "gpu_pipeline.memory.device", load("device"))
    monkeypatch.setattr(kernels, "stream_of_thread", stream_of_thread)
    monkeypatch.setattr(kernels, "empty", lambda like, dtype, *shape: rubbish(shape, dtype))
    fake = FakeCuda()
    monkeypatch.setattr(kernels, "launch_teams", fake.run_teams)
    for module in KERNEL_MODULES:
        monkeypatch.setattr(module, "cuda", fake)
    for module, name, function in device_functions():
        monkeypatch.setattr(module, name, function.py_func)
    for module in WARP_MODULES:
        monkeypatch.setattr(module, "LANES", 1)  # a warp of one thread waits for no other
    for name, number in NO_WARPS.items():
        monkeypatch.setattr(token_kernels, name, number)
    for name in (
        "batches",
        "word_kinds",
        "measures",
        "columns",
        "normal_forms",
        "models",
        "json_lines",
        "io",
    ):  # after those that they import
        monkeypatch.setitem(sys.modules, f"gpu_pipeline.{name}", load(name))
        monkeypatch.setattr(gpu_pipeline, name, sys.modules[f"gpu_pipeline.{name}"], raising=False)
    monkeypatch.setattr(kernels, "launch", fake.run)
    monkeypatch.setattr(kernels, "launch_blocks", fake.run_blocks)
    monkeypatch.setattr(kernels, "load", lambda kernel, signature: LOADED.append((kernel.py_func.__name__, signature)))
    all_kernels.load_kernels.cache_clear()
    LOADED.clear()
    return load


def install_engine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The whole engine, for everything that loads "gpu" by name."""
    load = install(monkeypatch)
    made = ModuleType("gpu_on_numpy")
    for name, functions in ENGINE_FUNCTIONS.items():
        module = load(name)
        vars(made).update({function: getattr(module, function) for function in functions})
    monkeypatch.setitem(sys.modules, "gpu_on_numpy", made)
    monkeypatch.setitem(PACKAGES, "gpu", "gpu_on_numpy")
    return made
