# SPDX-License-Identifier: Apache-2.0
"""Memory that threads reserve, their streams, and the messages of a device that fails, on a made device."""

import gc
import random
import sys
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from numba import types

from curation.base.errors import DeviceLostError, EngineError
from tests.gpu import stand_ins

WAIT = 20  # seconds until a test fails; none waits that long
kernels = stand_ins.kernels


@pytest.fixture
def load(monkeypatch):
    return stand_ins.install(monkeypatch)


@pytest.fixture
def device(load):
    return sys.modules["gpu_pipeline.memory.device"]


def column(*texts):
    return stand_ins.Series(texts, dtype="str")


def in_threads(count, work):
    """The results of `work(number)` in so many threads at once."""
    results = {}
    threads = [
        threading.Thread(target=lambda number=number: results.update({number: work(number)}), daemon=True)
        for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    return [results[number] for number in range(count)]


def wait_until(is_so):
    end = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("arguments", [(1, True), (np.zeros(1), np.zeros(1, bool))])
def test_one_thread_loads_a_kernel_for_types_of_arguments(monkeypatch, arguments):
    """Two threads loaded a kernel at its first launch, and the process ended with `double free`."""
    events = []

    class Kernel:
        def __getitem__(self, place):
            return self

        def __call__(self, *arguments):
            events.append("begins")
            time.sleep(0.05)
            events.append("ends")

    kernel = Kernel()
    monkeypatch.setattr(kernels, "stream_of_thread", lambda: 0)
    monkeypatch.setattr(kernels, "_loaded", set())
    kernels.launch(kernel, 1, arguments[0])
    events.clear()
    in_threads(4, lambda number: kernels.launch(kernel, 1, arguments[1]))
    assert events[:2] == ["begins", "ends"]
    assert events.count("ends") == 4


def test_a_loaded_kernel_needs_no_lock(monkeypatch):
    """`load` and `launch` describe the types of arguments alike."""
    loaded = []
    kernel = Mock()
    kernel.compile = lambda signature: SimpleNamespace(bind=lambda: loaded.append(signature))
    monkeypatch.setattr(kernels, "load", LOAD)
    monkeypatch.setattr(kernels, "_loaded", set())
    columns = (types.uint8[::1], types.uint64[:, ::1], types.Array(types.float32, 1, "A"), types.bool_, types.int64)
    for _ in range(2):
        kernels.load(kernel, columns)
    assert loaded == [columns]
    arrays = np.zeros(8, np.uint8), np.zeros((2, 2), np.uint64), np.zeros(8, np.float32)[::2]
    for numbers in ((False, 7), (True, np.int64(7))):
        assert kernels._typed(kernel, (*arrays, *numbers)) in kernels._loaded
    assert kernels._typed(kernel, (*arrays, 1, 7)) not in kernels._loaded


def test_reservations_never_exceed_the_memory(device):
    memory, most, chance = device.DeviceMemory(100), [], random.Random(1)
    sizes = [[chance.choice((1, 30, 49, 50, 51, 99, 100, 250)) for _ in range(60)] for _ in range(8)]

    def work(number):
        for size in sizes[number]:
            with memory.reserve(size):
                time.sleep(0.0002)
                most.append(memory.used)

    in_threads(8, work)
    assert 90 < max(most) <= 100 and len(most) == 480
    assert memory.used == 0 and not memory.is_held()


def test_two_batches_that_fit_are_worked_on_at_once_and_a_third_waits(device):
    memory, both, third = device.DeviceMemory(100), threading.Barrier(3), threading.Event()

    def work(number):
        if number == 2:
            return wait()
        with memory.reserve(50):
            both.wait(WAIT)  # ends only if both threads are inside
            both.wait(WAIT)

    def wait():
        both.wait(WAIT)
        waiting = threading.Thread(target=lambda: memory.reserve(1).__enter__() or third.set(), daemon=True)
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive() and memory.used == 100
        both.wait(WAIT)
        waiting.join(WAIT)
        assert third.is_set()

    in_threads(3, work)


def test_a_large_batch_is_not_overtaken_for_ever_and_runs_alone(device):
    memory, order = device.DeviceMemory(100), []
    first = memory.reserve(60)
    first.__enter__()

    def work(name, size):
        with memory.reserve(size):
            order.append((name, memory.used))

    threads = []
    for place, (name, size) in enumerate([("large", 1000), ("small", 10)], 1):
        threads.append(threading.Thread(target=work, args=(name, size), daemon=True))
        threads[-1].start()
        wait_until(lambda place=place: len(memory._waiting) == place)
    assert order == []  # "small" would fit, but came later
    first.__exit__(None, None, None)
    for thread in threads:
        thread.join(WAIT)
    assert order == [("large", 100), ("small", 10)]


def test_a_batch_reserves_sixteen_texts_and_at_least_128_mib(device):
    for text, expected in [(0, 128 << 20), (8 << 20, 128 << 20), ((8 << 20) + 1, (128 << 20) + 16), (1 << 26, 1 << 30)]:
        with device.reserved(text):
            assert device.memory().used == expected


def test_tables_that_stay_on_the_device_are_in_the_limit(device):
    """Of two tables at most. A table that leaves the cache gives its bytes back."""
    memory, made = device.memory(), []
    table = device.shared(2)(lambda size: made.append(size) or (np.zeros(size, np.uint8), (np.zeros(3, np.int64), 7)))
    whole = memory.total
    for size, kept in [(100, 124), (200, 348), (100, 348), (50, 198), (200, 298)]:  # 50 takes the place of 200
        table(size)
        assert (memory.resident, memory.total) == (kept, whole - kept)
    assert made == [100, 200, 50, 200]


def test_a_table_that_is_loaded_during_reservations_never_blocks(device):
    """What was reserved before may run on; the next batch waits for it, and then runs alone."""
    memory, begun = device.DeviceMemory(100), threading.Event()

    def work(number):
        with memory.reserve(60):
            assert memory.used <= 60
            begun.set()

    with memory.reserve(60):
        memory.keep(70)
        waiting = threading.Thread(target=work, args=(1,), daemon=True)
        waiting.start()
        assert not begun.wait(0.05)
    assert begun.wait(WAIT)
    memory.keep(200)  # more than there is
    begun.clear()
    threading.Thread(target=work, args=(2,), daemon=True).start()
    assert begun.wait(WAIT) and memory.total == 0


def test_a_reservation_inside_another_takes_nothing(device):
    memory = device.DeviceMemory(100)
    with memory.reserve(80), memory.reserve(80):
        assert memory.used == 80
    assert memory.used == 0


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_an_error_frees_the_reservation(load, device, monkeypatch, error):
    text = load("text")

    def fail(*_):
        assert device.memory().used == device.MIN_RESERVED
        raise error

    monkeypatch.setattr(kernels, "launch", fail)
    with pytest.raises(EngineError if error is MemoryError else error):
        text.hash_text(column("a b"))
    assert device.memory().used == 0 and not device.memory().is_held()


def test_threads_launch_at_the_same_time_on_their_own_streams(load, monkeypatch):
    """A lock around all launches would break the barrier."""
    text, both, found = load("text"), threading.Barrier(2), []

    class Kernel:
        def __getitem__(self, place):
            def run(*arguments):
                both.wait(WAIT)
                found.append(place[2])
                arguments[-1][:] = 7

            return run

    monkeypatch.setattr(kernels, "hash_rows", Kernel())
    monkeypatch.setattr(kernels, "_typed", lambda kernel, arguments: kernel)
    monkeypatch.setattr(kernels, "_loaded", {kernels.hash_rows})
    monkeypatch.setattr(kernels, "launch", LAUNCH)
    assert [each.tolist() for each in in_threads(2, lambda number: text.hash_text(column("a")))] == [[[7, 7]]] * 2
    assert len(found) == 2 and found[0] is not found[1]
    assert all(type(stream) is stand_ins.Stream for stream in found)


LAUNCH, LOAD = kernels.launch, kernels.load


@pytest.fixture
def waited(monkeypatch):
    """(thread, stream) of each wait."""
    found = []
    monkeypatch.setattr(stand_ins.Stream, "synchronize", lambda stream: found.append((threading.get_ident(), stream)))
    return found


def both_streams():
    thread = threading.get_ident()
    return [(thread, stand_ins.current_stream()), (thread, stand_ins.stream_of_thread())]


def test_a_result_is_complete_before_another_thread_gets_it(device, waited):
    """Each function of the engine waits for its streams, and so does each table that threads share."""
    made = device.shared(1)(lambda name: [name])
    tables = in_threads(4, lambda number: made("tables"))
    assert all(table is tables[0] for table in tables) and len(waited) == 2
    device.on_device()(lambda text: None)(column("a"))
    assert waited[2:] == both_streams()


@pytest.mark.parametrize("error", [MemoryError, ValueError, KeyboardInterrupt])
def test_after_an_error_the_work_of_the_thread_is_complete(device, waited, error):
    """The traceback keeps the arrays, and the thread that drops it frees them."""
    with pytest.raises(EngineError if error is MemoryError else error):
        device.on_device()(lambda text: (_ for _ in ()).throw(error))(column("a"))
    assert waited == both_streams()


class Pool:
    """Memory by CUDA's rules: what a thread frees, it may get again at once, whatever other threads still do with it.
    A launch uses memory until its thread, or the device, is waited for."""

    def __init__(self, device, monkeypatch):
        self.used, self.early, self.waits = {}, [], 0
        monkeypatch.setattr(device, "rmm_cupy_allocator", self.memory)
        monkeypatch.setattr(device.cp.cuda.runtime, "deviceSynchronize", self.wait, raising=False)
        monkeypatch.setattr(stand_ins.Stream, "synchronize", lambda stream: self.used.pop(threading.get_ident(), None))
        self.allocate = device._allocate

    def memory(self, size):
        """RMM's pointer. As in RMM, memory is freed after all finalizers: the collector sees nothing in an array."""
        block = Block(self)
        return SimpleNamespace(ptr=id(block), device_id=0, buffer=np.array([block], object))

    def wait(self):
        self.waits += 1
        self.used.clear()

    def launch(self, array):
        self.used.setdefault(threading.get_ident(), set()).add(array.mem.ptr)


class Block:
    """RMM's memory: freed on the stream of the thread that drops it."""

    def __init__(self, pool):
        self.pool = pool

    def __del__(self):
        others = (used for thread, used in self.pool.used.items() if thread != threading.get_ident())
        self.pool.early += [id(self) for used in others if id(self) in used]


@pytest.fixture
def pool(device, monkeypatch):
    return Pool(device, monkeypatch)


def dropped_elsewhere(pool, between=lambda: None):
    """A cycle with an array whose work runs is collected in another thread."""
    gc.disable()  # until then
    cycle = [pool.allocate(8)]
    pool.launch(cycle[0])
    cycle.append(cycle)
    between()
    del cycle
    in_threads(1, lambda number: gc.collect())
    gc.enable()


def test_memory_that_another_thread_collects_is_not_used_again_too_early(device, pool):
    dropped_elsewhere(pool)
    assert (pool.early, pool.waits) == ([], 1)


def test_memory_whose_work_is_complete_is_collected_without_waiting(device, pool):
    dropped_elsewhere(pool, device.finish)
    pool.launch(pool.allocate(8))  # the thread that launched frees it: in the order of its stream
    assert (pool.early, pool.waits) == ([], 0)


def test_arrays_of_cupy_have_owners_that_know_their_thread(device):
    device.memory()
    assert device.cp.cuda.allocator is device._allocate


@pytest.mark.parametrize(("free", "expected"), [(140 << 30, 256 << 20), (16 << 30, 256 << 20), (2 << 30, 115 << 20)])
@pytest.mark.parametrize("workers", [1, 16, 128])
def test_batches_do_not_depend_on_workers(load, device, monkeypatch, free, expected, workers):
    session = load("session")
    monkeypatch.setattr(session.cp.cuda.runtime, "memGetInfo", lambda: (free, 2 * free))
    found = session.batch_bytes(workers)
    assert found // 2**20 == expected // 2**20
    assert device.BATCH_SHARE * found <= device.memory().total <= free


class Resources:
    """`rmm.mr`: the resource of the device."""

    CudaMemoryResource, CudaAsyncMemoryResource = (type(name, (), {}) for name in ("Plain", "Async"))

    def __init__(self):
        self.current = self.CudaMemoryResource()

    def get_current_device_resource(self):
        return self.current

    def set_current_device_resource(self, resource):
        self.current = resource

    def CudaAsyncViewMemoryResource(self, pool):  # noqa: N802
        return f"view of {pool}"

    def PoolMemoryResource(self, upstream, initial_pool_size):  # noqa: N802
        assert type(upstream) is self.CudaMemoryResource and initial_pool_size % 256 == 0
        return f"{initial_pool_size >> 20} MiB of RMM"


@pytest.mark.parametrize(
    ("pools", "error", "expected"),
    [(1, 0, "view of pool of 0"), (1, 801, Resources.CudaAsyncMemoryResource), (0, 0, "3686 MiB of RMM")],
)
def test_where_memory_comes_from(device, monkeypatch, caplog, pools, error, expected):
    """The driver's pool tells how much it keeps. A driver that refuses it leaves RMM's own pools."""
    calls = []
    runtime = SimpleNamespace(
        cudaDeviceGetDefaultMemPool=lambda device: (error, f"pool of {device}"),
        cudaMemPoolSetAttribute=lambda *arguments: calls.append(arguments),
        cudaMemPoolAttr=SimpleNamespace(cudaMemPoolAttrReleaseThreshold=4),
    )
    bindings = SimpleNamespace(runtime=runtime, driver=SimpleNamespace(cuuint64_t=int))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    device.rmm.mr = Resources()
    monkeypatch.setattr(device.cp.cuda.runtime, "deviceGetAttribute", lambda *_: pools)
    device.memory()
    found = device.rmm.mr.current
    assert expected in (found, type(found))
    assert calls == ([("pool of 0", 4, (1 << 64) - 1)] if pools and not error else [])
    said = "the GPU's driver has no memory pools: the run takes 3686 MiB of the GPU at once"
    assert [record.message for record in caplog.records] == [said] * (not pools)


def test_a_resource_of_other_code_is_kept(device):
    device.rmm.mr = Resources()
    device.rmm.mr.current = "the notebook's"
    assert device.memory().total == (4 << 30) // 100 * 90
    assert device.rmm.mr.current == "the notebook's"


def test_a_full_device_is_one_message(device):
    full = "the GPU's memory is full: 4,096 of 16,384 MiB are free"
    with pytest.raises(EngineError, match=full), device.device_errors():
        raise MemoryError


LOST = [
    "cudaErrorIllegalAddress: an illegal memory access was encountered",
    "[719] Call to cuLaunchKernel results in CUDA_ERROR_LAUNCH_FAILED",
    "CUDA error at: cuda_stream_view.hpp:105: cudaErrorECCUncorrectable uncorrectable ECC error encountered",
]


@pytest.mark.parametrize("said", LOST)
def test_a_lost_device_is_one_message(device, said):
    @device.on_device()
    @device.on_device()
    def work(text):
        raise RuntimeError(said)

    with pytest.raises(DeviceLostError, match=r"^the GPU failed during the run \(.*--engine cpu to resume") as raised:
        work(column("a"))
    assert said in str(raised.value) and str(raised.value).count("the GPU failed") == 1


@pytest.mark.parametrize("said", ["cudaErrorInvalidValue: invalid argument", "other"])
def test_other_errors_pass(device, said):
    with pytest.raises(RuntimeError, match=said), device.device_errors():
        raise RuntimeError(said)
