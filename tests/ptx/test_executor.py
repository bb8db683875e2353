# SPDX-License-Identifier: Apache-2.0
"""The executor sees what a device would not show: kernels that are broken on purpose, one fault each."""

import numba
import numpy as np
import pytest
from numba import cuda, types

from tests.ptx import execute
from tests.ptx.build import compile_to_ptx
from tests.ptx.execute import Counts, Executable, KernelError
from tests.ptx.test_instructions import made

SEEDS = range(6)
THREADS = 64
I32, I64, U8 = types.int32[::1], types.int64[::1], types.uint8[::1]


@pytest.fixture(scope="module")
def executable():
    """Compiles a kernel once for its tests."""
    found = {}

    def compiled(kernel, *signature) -> Executable:
        if kernel not in found:
            names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
            found[kernel] = Executable(compile_to_ptx(kernel, signature), names)
        return found[kernel]

    return compiled


# Memory


def add_neighbour(numbers, out):
    """Right for all but the last thread."""
    k = cuda.grid(1)
    if k < out.size:
        out[k] = numbers[k] + numbers[k + 1]


def test_a_read_past_the_end_is_a_fault(executable):
    kernel = executable(add_neighbour, I64, I64)
    numbers = np.arange(101)
    out = np.zeros(100, np.int64)
    kernel.run(2, THREADS, numbers, out, seed=1)
    assert out.tolist() == [2 * k + 1 for k in range(100)]
    with pytest.raises(KernelError) as fault:
        kernel.run(2, THREADS, numbers[:100], out, seed=1)
    assert str(fault.value).startswith(
        "thread 35 of block 1 accesses 8 bytes outside all memory it was given, at byte 800 of numbers (800 bytes); "
    )
    assert "line " in str(fault.value) and "ld.global." in str(fault.value)


def copy_from(numbers, first, out):
    k = cuda.grid(1)
    if k < out.size:
        out[k] = numbers[k - first]


@pytest.mark.parametrize("first", [np.int64(1) << 60, 1 << 37, 1 << 36])
def test_no_distance_reaches_another_array(executable, first):
    """2^40 bytes are from one array to the next; Numba adds the size to a negative index."""
    kernel = executable(copy_from, I64, types.int64, I64)
    numbers, out = np.arange(100), np.zeros(100, np.int64)
    with pytest.raises(KernelError, match="accesses 8 bytes outside all memory it was given"):
        kernel.run(1, THREADS, numbers, first, out, seed=1)


def test_a_view_allows_its_own_bytes_only(executable):
    kernel = executable(add_neighbour, I64, I64)
    memory = np.arange(300)
    out = np.zeros(100, np.int64)
    kernel.run(2, THREADS, memory[100:201], out, seed=1)
    assert out[0] == 201
    with pytest.raises(KernelError, match="byte 800 of numbers"):
        kernel.run(2, THREADS, memory[100:200], out, seed=1)
    both = memory[:100], memory[50:150]  # overlap: one region
    kernel.run(2, THREADS, *both, seed=1, races=False)
    with pytest.raises(KernelError, match=r"byte 1,\d+ of out and numbers \(1,200 bytes\)"):
        kernel.run(3, THREADS, memory[50:150], memory[:150], seed=1, races=False)


def test_a_store_through_an_empty_array_is_a_fault():
    kernel = Executable(made("st.global.u64 [%r6], %a;"))
    with pytest.raises(KernelError, match=r"at byte 0 of argument 2 \(0 bytes\); .* st.global.u64 \[%r6\], %a;"):
        kernel.run(1, 1, np.ones(1, np.uint64), np.ones(1, np.uint64), np.zeros(0, np.uint64))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.global.u32 %x, [%r4+2];", r"accesses 4 bytes at byte 2 of argument 0 .* not a multiple of 4"),
        ("ld.global.v2.u32 {%x, %y}, [%r4+4];", "accesses 8 bytes at byte 4 of argument 0"),
        ("st.global.u64 [%r6+1], %a;", "accesses 8 bytes at byte 1 of argument 2"),
        ("ld.global.u8 %u, [%r4+16];", "accesses 1 bytes outside .* byte 16 of argument 0"),
        ("ld.global.u64 %a, [%a];", "at address 0x7, in no array"),
        ("ld.shared.u64 %a, [%r4];", "byte 0 of argument 0 .* not in the state space"),
        ("div.u64 %a, %a, %r9;", "divides by zero"),
        ("trap;", "executes a trap"),
    ],
)
def test_faults_of_one_instruction(body, message):
    kernel = Executable(made(f".reg .b64 %r9;\n{body}"))
    arrays = np.array([7, 8], np.uint64), np.array([7, 8], np.uint64), np.zeros(2, np.uint64)
    with pytest.raises(KernelError, match=f"thread 0 of block 0 .*{message}.*; line .* {body[:9]}"):
        kernel.run(1, 1, *arrays)


def test_an_address_keeps_the_alignment_of_its_view():
    """A view that starts at byte 12 of an allocation of 4-byte numbers does not hold 8-byte numbers."""
    kernel = Executable(made("ld.global.u64 %a, [%r6];"))
    memory = np.arange(9, dtype=np.uint32)
    ones = np.ones(1, np.uint64)
    kernel.run(1, 1, ones, ones.copy(), memory[2:])
    with pytest.raises(KernelError, match="accesses 8 bytes at byte 0 of argument 2"):
        kernel.run(1, 1, ones, ones.copy(), memory[3:])


def endless(out):
    while out[0] == 0:
        out[1] += 1


def test_an_endless_kernel_is_a_fault(executable):
    with pytest.raises(KernelError, match="is still running after 10,000 basic blocks of the launch"):
        executable(endless, I64).run(1, 1, np.zeros(2, np.int64), seed=1, patience=10_000)


def local_sum(numbers, out):
    kept = cuda.local.array(20, numba.int64)
    k = cuda.grid(1)
    for i in range(20):
        kept[(i * 7) % 20] = numbers[(k + i) % numbers.size]
    for i in range(k % 20 + 1):
        out[k] += kept[numbers[(k + i) % numbers.size] % 20]


def test_local_memory_belongs_to_one_thread(executable):
    kernel = executable(local_sum, I64, I64)
    numbers = np.random.default_rng(1).integers(0, 1000, 64)
    expected = np.zeros(64, np.int64)
    for k in range(64):
        kept = [0] * 20
        for i in range(20):
            kept[i * 7 % 20] = int(numbers[(k + i) % 64])
        expected[k] = sum(kept[numbers[(k + i) % 64] % 20] for i in range(k % 20 + 1))
    for seed in SEEDS:
        out = np.zeros(64, np.int64)
        kernel.run(1, 64, numbers, out, seed=seed)
        assert out.tolist() == expected.tolist()
    assert kernel.run(1, 64, numbers, out, counting=True).local > 64 * 20


# Threads of a block


def reverse(numbers, out):
    shared = cuda.shared.array(THREADS, numba.int64)
    k = cuda.threadIdx.x
    shared[k] = numbers[cuda.grid(1)]
    cuda.syncthreads()
    out[cuda.grid(1)] = shared[THREADS - 1 - k]


def reverse_without_barrier(numbers, out):
    shared = cuda.shared.array(THREADS, numba.int64)
    k = cuda.threadIdx.x
    shared[k] = numbers[cuda.grid(1)]
    out[cuda.grid(1)] = shared[THREADS - 1 - k]


def reversed_blocks(kernel, seed, threads=THREADS, races=False):
    numbers = np.arange(8 * threads)
    out = np.zeros_like(numbers)
    kernel.run(8, threads, numbers, out, seed=seed, races=races)
    return out.reshape(8, -1)[:, ::-1].ravel().tolist() == numbers.tolist()


def test_a_missing_barrier_changes_the_result(executable):
    good, bad = (executable(kernel, I64, I64) for kernel in (reverse, reverse_without_barrier))
    assert all(reversed_blocks(good, seed) for seed in SEEDS)
    assert not any(reversed_blocks(bad, seed) for seed in SEEDS)


def test_an_access_outside_of_shared_memory_is_a_fault(executable):
    with pytest.raises(KernelError, match=r"thread 6[4-7] of block . accesses 8 bytes outside .* of the shared array"):
        reversed_blocks(executable(reverse, I64, I64), 1, threads=68)


def count(out):
    out[0] += 1


def count_atomically(out):
    cuda.atomic.add(out, 0, 1)


def test_a_count_without_atomics_loses_some(executable):
    good, bad = executable(count_atomically, I64), executable(count, I64)
    results = []
    for seed in SEEDS:
        for kernel in (good, bad):
            out = np.zeros(1, np.int64)
            kernel.run(4, THREADS, out, seed=seed, races=False)
            results.append(int(out[0]))
    assert set(results[::2]) == {4 * THREADS}
    assert max(results[1::2]) < 4 * THREADS
    assert len(set(results[1::2])) > 3, "each seed is another order"
    out = np.zeros(1, np.int64)
    bad.run(4, THREADS, out, seed=SEEDS[0], races=False)
    assert out[0] == results[1], "a seed is always the same order"


def atomics(numbers, out):
    shared = cuda.shared.array(4, numba.uint64)
    if cuda.threadIdx.x < 4:
        shared[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    k = numbers[cuda.grid(1)]
    cuda.atomic.cas(shared, k % 4, np.uint64(0), np.uint64(k + 1))
    cuda.atomic.max(out, 0, k)
    cuda.atomic.min(out, 1, k)
    cuda.atomic.or_(out, 2, 1 << k)
    cuda.atomic.and_(out, 3, ~(1 << k))
    cuda.atomic.xor(out, 4, 1 << k)
    cuda.atomic.inc(out, 5, 100)
    cuda.syncthreads()
    if cuda.threadIdx.x < 4:
        cuda.atomic.add(out, 6, np.int64(shared[cuda.threadIdx.x] % np.uint64(4)))
    cuda.atomic.exch(out, 7, 5)


def test_atomics(executable):
    kernel = executable(atomics, I64, types.uint64[::1])
    numbers = np.arange(2 * THREADS) % 50
    for seed in SEEDS:
        out = np.array([0, 2**63, 0, 2**64 - 1, 0, 0, 0, 0], np.uint64)
        kernel.run(2, THREADS, numbers, out, seed=seed)
        bits = [np.bitwise_xor.reduce(1 << numbers), 2 * THREADS % 101]
        assert out.tolist() == [49, 0, 2**50 - 1, 2**64 - 2**50, *bits, 2 * (1 + 2 + 3 + 0), 5]
    out = np.array([0, 2**63, 0, 2**64 - 1, 0, 0, 0, 0], np.uint64)
    counts = kernel.run(2, THREADS, numbers, out, counting=True)
    assert counts.atomics == 2 * THREADS * 8 + 8
    assert counts.most_atomics_at_one_address == 2 * THREADS


def two_barriers(out):
    if cuda.threadIdx.x < 7:
        cuda.syncthreads()
        out[0] = 1
    else:
        cuda.syncthreads()
        out[0] = 2


def count_votes(numbers, out):
    k = cuda.grid(1)
    if k < numbers.size:
        out[k] = cuda.syncthreads_count(np.int32(numbers[k] > 10))
        out[k] += 1000 * cuda.syncthreads_and(np.int32(numbers[k] < 61))
        out[k] += 2000 * cuda.syncthreads_or(np.int32(numbers[k] > 61))


def sums_before(numbers, tickets, sums, out):
    """Each block adds up its numbers and waits for the sum of the block before, in the order of their start."""
    shared = cuda.shared.array(2, numba.int64)
    if cuda.threadIdx.x == 0:
        shared[0] = cuda.atomic.add(tickets, 0, 1)
        shared[1] = 0
    cuda.syncthreads()
    block = shared[0]
    k = block * cuda.blockDim.x + cuda.threadIdx.x
    cuda.atomic.add(shared, 1, numbers[k])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        before = 0
        if block > 0:
            while before == 0:
                before = cuda.atomic.add(sums, block - 1, 0)
        cuda.atomic.add(sums, block, before + shared[1])
        out[block] = before


def test_blocks_wait_for_each_other(executable):
    kernel = executable(sums_before, I64, I64, I64, I64)
    numbers = np.arange(1, 20 * THREADS + 1)
    expected = np.cumsum([0, *numbers.reshape(20, -1).sum(axis=1)])[:-1].tolist()
    for settings in ({"counting": True}, *({"seed": seed} for seed in SEEDS)):
        out = np.zeros(20, np.int64)
        kernel.run(20, THREADS, numbers, np.zeros(1, np.int64), np.zeros(20, np.int64), out, **settings)
        assert out.tolist() == expected


def wait_for_last(out):
    k = cuda.threadIdx.x
    if k == cuda.blockDim.x - 1:
        cuda.atomic.add(out, 0, 1)
    while cuda.atomic.add(out, 0, 0) == 0:
        pass


def test_threads_wait_for_each_other_in_a_loop(executable):
    for settings in ({"counting": True}, {"seed": 1}):
        executable(wait_for_last, I64).run(1, 3, np.zeros(1, np.int64), **settings)


def test_barriers(executable):
    with pytest.raises(KernelError, match="waits at this barrier, and other threads of its block at another one"):
        executable(two_barriers, I64).run(1, THREADS, np.zeros(1, np.int64), seed=1)
    out = np.zeros(100, np.int32)
    counted = executable(count_votes, I32, I32)
    counted.run(2, 50, np.arange(100, dtype=np.int32), out, seed=1)
    assert out.tolist() == [1039] * 50 + [2050] * 50
    out[:] = 0
    counted.run(1, 100, np.arange(60, dtype=np.int32), out, seed=1)  # threads that ended are not waited for
    assert out.tolist() == [1049] * 60 + [0] * 40


# Happens-before


def read_what_another_writes(numbers, out):
    """Right in all orders of these two, so no result shows it."""
    k = cuda.grid(1)
    if k == 0:
        numbers[0] = 1
    elif k == out.size - 1:
        out[k] = max(numbers[0], 1)


def mix_atomics(out):
    if cuda.grid(1) == 3:
        out[0] = 1
    else:
        cuda.atomic.add(out, 0, 1)


def write_bytes(out):
    """Neighbouring bytes, which are different memory."""
    out[cuda.grid(1)] = cuda.grid(1) & 255


def pass_on(out):
    """A lane writes what its neighbour wrote before."""
    shared = cuda.shared.array(THREADS, numba.int64)
    k = cuda.threadIdx.x
    for _ in range(3):
        shared[k] = k
        cuda.syncwarp()
        k ^= 1
        shared[k] += 1
        cuda.syncwarp()
    out[cuda.grid(1)] = shared[k]


def pass_on_by_votes(out):
    """A vote exchanges values, and orders no memory."""
    shared = cuda.shared.array(THREADS, numba.int64)
    k = cuda.threadIdx.x
    shared[k] = k
    if cuda.ballot_sync(0xFFFFFFFF, k >= 0) != 0:
        out[cuda.grid(1)] = shared[k ^ 1]


def pass_on_to_a_warp(out):
    """Only lanes of one warp wait for each other."""
    shared = cuda.shared.array(THREADS, numba.int64)
    k = cuda.threadIdx.x
    shared[k] = k
    cuda.syncwarp()
    out[cuda.grid(1)] = shared[k ^ 32]


def many_readers(numbers, out):
    """The last reader writes; two warps of another block and one of its own read before."""
    k = cuda.grid(1)
    out[k] = numbers[0]
    cuda.syncthreads()
    if k == 0:
        numbers[0] = 1


RACES = [
    (read_what_another_writes, (I64, I64), 1, r"which thread \d+ of block 0 accesses too"),
    (read_what_another_writes, (I64, I64), 2, r"which thread \d+ of block [01] accesses too"),
    (count, (I64,), 1, "byte 0 of out"),
    (
        mix_atomics,
        (I64,),
        1,
        r"line \d+ of the PTX of .*(st.global.* and line \d+: atom|atom.* and line \d+: st.global)",
    ),
    (reverse_without_barrier, (I64, I64), 1, "of the shared array"),
    (pass_on_by_votes, (I64,), 1, "of the shared array"),
    (pass_on_to_a_warp, (I64,), 1, "of the shared array"),
    (many_readers, (I64, I64), 2, "byte 0 of numbers"),
]


def arrays_for(signature, blocks):
    return [np.zeros(blocks * THREADS, np.uint8 if kind is U8 else np.int64) for kind in signature]


@pytest.mark.parametrize(
    ("kernel", "signature", "blocks", "message"), RACES, ids=[f"{each[0].__name__}-{each[2]}" for each in RACES]
)
def test_accesses_that_nothing_orders_are_a_fault(executable, kernel, signature, blocks, message):
    for settings in ({"counting": True}, *({"seed": seed} for seed in SEEDS)):
        with pytest.raises(KernelError, match=f"(?=.*, and no barrier is between; ).*{message}"):
            executable(kernel, *signature).run(blocks, THREADS, *arrays_for(signature, blocks), **settings)


@pytest.mark.parametrize(
    ("kernel", "signature", "blocks"),
    [(reverse, (I64, I64), 8), (write_bytes, (U8,), 3), (pass_on, (I64,), 5), (many_readers, (I64, I64), 1)],
)
def test_accesses_that_a_barrier_orders_are_none(executable, kernel, signature, blocks):
    for settings in ({"counting": True}, *({"seed": seed} for seed in SEEDS)):
        executable(kernel, *signature).run(blocks, THREADS, *arrays_for(signature, blocks), **settings)


def test_a_declared_race_is_none(monkeypatch):
    ptx = compile_to_ptx(count, (I64,))
    monkeypatch.setitem(execute.SAME_VALUE, "count", {"out": "a test"})
    Executable(ptx, ["out"], "count").run(1, THREADS, np.zeros(1, np.int64), seed=1)
    with pytest.raises(KernelError, match="no barrier is between"):
        Executable(ptx, ["out"], "another").run(1, THREADS, np.zeros(1, np.int64), seed=1)


def look_first(out, unused):
    """A bit is set by an atomic, unless it is set."""
    if out[0] & 1 == 0:
        cuda.atomic.or_(out, 0, 1)


def test_a_look_before_an_atomic_is_none_where_it_is_declared(monkeypatch):
    ptx = compile_to_ptx(look_first, (I64, I64))
    monkeypatch.setitem(execute.LOOKS, "look_first", "a test")
    for name in ("look_first", "another"):
        kernel = Executable(ptx, ["out", "unused"], name)
        launch = kernel.run, 2, THREADS, np.zeros(1, np.int64), np.zeros(1, np.int64)
        if name == "look_first":
            launch[0](*launch[1:], seed=1)
            continue
        with pytest.raises(KernelError, match="no barrier is between"):
            launch[0](*launch[1:], seed=1)


# Warps


def warp_operations(numbers, out):
    k = cuda.grid(1)
    number = numbers[k]
    everyone = 0xFFFFFFFF
    out[k, 0] = cuda.ballot_sync(everyone, number % 3 == 0)
    out[k, 1] = cuda.shfl_up_sync(everyone, number, 3)
    out[k, 2] = cuda.shfl_down_sync(everyone, number, 5)
    out[k, 3] = cuda.shfl_xor_sync(everyone, number, 7)
    out[k, 4] = cuda.shfl_sync(everyone, number, number % 32)
    out[k, 5] = cuda.match_any_sync(everyone, number % 5)
    out[k, 6] = cuda.any_sync(everyone, number == 40)
    out[k, 7] = cuda.all_sync(everyone, number < 90)
    out[k, 8] = cuda.laneid
    cuda.syncwarp()
    out[k, 9] = cuda.shfl_xor_sync(everyone, np.int64(number) << 40, 1) >> 40


def lanes_that(hold):
    """A bit per lane."""
    return sum(1 << lane for lane, holds in enumerate(hold) if holds)


def test_lanes_exchange_values(executable):
    kernel = executable(warp_operations, I32, types.int64[:, ::1])
    numbers = np.random.default_rng(2).permutation(96).astype(np.int32)
    expected = []
    for warp in numbers.reshape(-1, 32).tolist():
        for lane, number in enumerate(warp):
            expected.append([
                lanes_that(other % 3 == 0 for other in warp),
                warp[lane - 3] if lane >= 3 else number,
                warp[lane + 5] if lane < 27 else number,
                warp[lane ^ 7],
                warp[number % 32],
                lanes_that(other % 5 == number % 5 for other in warp),
                40 in warp,
                max(warp) < 90,
                lane,
                warp[lane ^ 1],
            ])  # fmt: skip
    expected = np.array(expected, np.int64)
    for seed in SEEDS:
        out = np.zeros((96, 10), np.int64)
        kernel.run(1, 96, numbers, out, seed=seed)
        np.testing.assert_array_equal(out & 0xFFFFFFFF, expected & 0xFFFFFFFF)


def shuffle_of_some(out, limit):
    if cuda.threadIdx.x < limit:
        out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, cuda.threadIdx.x, 0)
    cuda.syncthreads()


def shuffle_after_the_end(out, limit):
    if cuda.threadIdx.x >= limit:
        return
    out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, cuda.threadIdx.x, 0)


def test_a_mask_names_lanes_that_take_part(executable):
    out = np.zeros(32, np.int32)
    for kernel in (shuffle_of_some, shuffle_after_the_end):
        executable(kernel, I32, types.int32).run(1, 32, out, 32, seed=1)
    with pytest.raises(KernelError, match=r"waits here for ever: .*shfl\.sync\.idx"):
        executable(shuffle_of_some, I32, types.int32).run(1, 32, out, 20, seed=1)
    with pytest.raises(KernelError, match=r"(waits here for ever|exchanges values with a lane that).*shfl\.sync"):
        executable(shuffle_after_the_end, I32, types.int32).run(1, 32, out, 20, seed=1)
    with pytest.raises(KernelError, match="exchanges values with a lane that is not in the mask"):
        executable(shuffle_of_some, I32, types.int32).run(1, 20, out, 20, seed=1)


# Counts


def copy_every(numbers, step, out):
    k = cuda.grid(1)
    out[k] = numbers[k * step]


@pytest.mark.parametrize(("step", "sectors"), [(0, 1), (1, 8), (2, 16), (4, 32), (9, 32)])
def test_sectors_of_a_request(executable, step, sectors):
    """32 neighbouring 8-byte numbers are 8 sectors of 32 bytes; numbers 32 bytes apart are a sector each."""
    kernel = executable(copy_every, I64, types.int64, I64)
    numbers, out = np.arange(32 * 64), np.zeros(64, np.int64)
    counts = kernel.run(2, 32, numbers, step, out, counting=True)
    assert (counts.loads, counts.stores, counts.requests) == (64, 64, 4)
    assert counts.sectors == 2 * (sectors + 8)
    assert counts.touched_sectors == (1 if step == 0 else 2 * sectors) + 16
    assert out.tolist() == numbers[: 64 * step : step].tolist() if step else [0] * 64


def follow(numbers, out):
    """Thread k follows k links."""
    k = cuda.grid(1)
    place = k
    for _ in range(k):
        place = numbers[place]
    out[k] = place


def test_instructions_of_threads_and_warps(executable):
    kernel = executable(follow, I64, I64)
    numbers, out = np.arange(64)[::-1].copy(), np.zeros(64, np.int64)
    alone, both = (kernel.run(1, threads, numbers, out, counting=True) for threads in (32, 64))
    assert out.tolist() == [k if k % 2 == 0 else 63 - k for k in range(64)]
    assert alone.warp_instructions == alone.longest, "all lanes wait for the longest one"
    assert both.longest > 1.7 * alone.longest
    assert both.warp_instructions == alone.longest + both.longest
    assert 1.5 < 32 * alone.longest / alone.instructions < 2, "about half of the lanes work, on average"


def test_counts_of_two_launches_add_up():
    added = Counts(instructions=1, longest=5, sectors=2) + Counts(instructions=2, longest=4, sectors=3)
    assert added == Counts(instructions=3, longest=5, sectors=5)
