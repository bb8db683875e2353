# SPDX-License-Identifier: Apache-2.0
"""Instructions, as C, equal plain Python on values at the limits of their types."""

import itertools
import random

import numpy as np
import pytest

from tests.ptx.execute import Executable
from tests.ptx.parse import PtxError

EDGES = [0, 1, 2, 3, 31, 32, 63, 64, 65, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1]
EDGES += [2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
VALUES = [*EDGES, *(random.Random(1).getrandbits(64) for _ in range(20))]
PAIRS = list(itertools.product(VALUES, VALUES))


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated(a: int, b: int) -> tuple[int, int]:
    """Quotient and remainder, rounded towards zero as in C."""
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def s(value: int) -> int:
    return signed(value, 64)


def s32(value: int) -> int:
    return signed(value, 32)


def low(value: int, bits: int = 32) -> int:
    return value & (1 << bits) - 1


def permuted(a: int, b: int, chosen: int) -> int:
    stored = (low(b) << 32 | low(a)).to_bytes(8, "little")
    choices = [chosen >> 4 * k & 15 for k in range(4)]
    return sum((stored[c & 7] if c < 8 else 255 * (stored[c & 7] >> 7)) << 8 * k for k, c in enumerate(choices))


# The instruction; its result for the 64-bit values a and b. %d is the result's register, %x and %y hold the low 32 bits
# of a and b, %u and %v the low 16 bits, %n is b modulo 128, %odd is b with the lowest bit set, %p is a < b (signed).
CASES = {
    "add.s64 %d64, %a, %b": lambda a, b: a + b,
    "add.s32 %d32, %x, %y": lambda a, b: a + b,
    "add.s16 %d16, %u, %v": lambda a, b: a + b,
    "sub.s64 %d64, %a, %b": lambda a, b: a - b,
    "sub.s32 %d32, %x, -5": lambda a, b: a + 5,
    "add.s64 %d64, %a, -4294967296": lambda a, b: a - 2**32,
    "neg.s64 %d64, %a": lambda a, b: -a,
    "abs.s64 %d64, %a": lambda a, b: abs(s(a)),
    "mul.lo.s64 %d64, %a, %b": lambda a, b: a * b,
    "mul.lo.s32 %d32, %x, %y": lambda a, b: a * b,
    "mul.hi.s64 %d64, %a, %b": lambda a, b: s(a) * s(b) >> 64,
    "mul.hi.u64 %d64, %a, %b": lambda a, b: a * b >> 64,
    "mul.hi.u32 %d32, %x, %y": lambda a, b: low(a) * low(b) >> 32,
    "mul.wide.u32 %d64, %x, %y": lambda a, b: low(a) * low(b),
    "mul.wide.s32 %d64, %x, %y": lambda a, b: s32(a) * s32(b),
    "mad.lo.s32 %d32, %x, %y, %x": lambda a, b: a * b + a,
    "mad.wide.u32 %d64, %x, %y, %b": lambda a, b: low(a) * low(b) + b,
    "div.s64 %d64, %a, %odd": lambda a, b: truncated(s(a), s(b | 1))[0],
    "div.u64 %d64, %a, %odd": lambda a, b: a // (b | 1),
    "rem.s64 %d64, %a, %odd": lambda a, b: truncated(s(a), s(b | 1))[1],
    "rem.u64 %d64, %a, %odd": lambda a, b: a % (b | 1),
    "min.s64 %d64, %a, %b": lambda a, b: min(s(a), s(b)),
    "min.u32 %d32, %x, %y": lambda a, b: min(low(a), low(b)),
    "max.s64 %d64, %a, %b": lambda a, b: max(s(a), s(b)),
    "and.b64 %d64, %a, %b": lambda a, b: a & b,
    "or.b32 %d32, %x, %y": lambda a, b: a | b,
    "xor.b64 %d64, %a, %b": lambda a, b: a ^ b,
    "not.b64 %d64, %a": lambda a, b: ~a,
    "shl.b64 %d64, %a, %n": lambda a, b: a << b % 128,
    "shl.b32 %d32, %x, %n": lambda a, b: a << b % 128,
    "shl.b16 %d16, %u, %n": lambda a, b: a << b % 128,
    "shr.u64 %d64, %a, %n": lambda a, b: a >> b % 128,
    "shr.s64 %d64, %a, %n": lambda a, b: s(a) >> b % 128,
    "shr.u32 %d32, %x, %n": lambda a, b: low(a) >> b % 128,
    "shr.s32 %d32, %x, %n": lambda a, b: s32(a) >> b % 128,
    "shr.u16 %d16, %u, %n": lambda a, b: low(a, 16) >> b % 128,
    "shf.l.wrap.b32 %d32, %x, %y, %n": lambda a, b: ((low(b) << 32 | low(a)) << b % 32) >> 32,
    "shf.r.clamp.b32 %d32, %x, %y, %n": lambda a, b: (low(b) << 32 | low(a)) >> min(b % 128, 32),
    "bfi.b64 %d64, %a, %b, 8, 56": lambda a, b: b & 255 | a << 8,
    "bfi.b32 %d32, %x, %y, 5, 7": lambda a, b: b & ~(127 << 5) | (a & 127) << 5,
    "bfe.u32 %d32, %x, 5, 7": lambda a, b: a >> 5 & 127,
    "bfe.s64 %d64, %a, 60, 9": lambda a, b: s(a) >> 60,
    "bfe.s32 %d32, %x, 3, 5": lambda a, b: signed(a >> 3, 5),
    "prmt.b32 %d32, %x, %y, 291": lambda a, b: permuted(a, b, 0x0123),
    "prmt.b32 %d32, %x, %y, 0xBE47U": lambda a, b: permuted(a, b, 0xBE47),
    "lop3.b32 %d32, %x, %y, 12345, 0x96": lambda a, b: a ^ b ^ 12345,
    "lop3.b32 %d32, %x, %y, 12345, 0xCA": lambda a, b: a & b | ~a & 12345,
    "popc.b64 %d32, %a": lambda a, b: a.bit_count(),
    "clz.b64 %d32, %a": lambda a, b: 64 - a.bit_length(),
    "clz.b32 %d32, %x": lambda a, b: 32 - low(a).bit_length(),
    "brev.b32 %d32, %x": lambda a, b: int(f"{low(a):032b}"[::-1], 2),
    "bfind.u64 %d32, %a": lambda a, b: a.bit_length() - 1,
    "bfind.shiftamt.u32 %d32, %x": lambda a, b: 32 - low(a).bit_length() if low(a) else -1,
    "selp.b64 %d64, %a, -1, %p": lambda a, b: a if s(a) < s(b) else -1,
    "cvt.s64.s32 %d64, %x": lambda a, b: s32(a),
    "cvt.u64.u16 %d64, %u": lambda a, b: low(a, 16),
    "cvt.s16.s8 %d16, %u": lambda a, b: signed(a, 8),
    "cvt.u32.u64 %d32, %a": lambda a, b: a,
    "mov.b64 {%d32, _}, %a": lambda a, b: a,
    "mov.b64 {_, %d32}, %a": lambda a, b: a >> 32,
    "mov.b64 %d64, {%x, %y}": lambda a, b: low(b) << 32 | low(a),
}
COMPARISONS = {
    **{f"setp.{name}.s64 %q, %a, %b": lambda a, b, f=f: f(s(a), s(b)) for name, f in (
        ("eq", int.__eq__), ("ne", int.__ne__), ("lt", int.__lt__), ("le", int.__le__), ("gt", int.__gt__),
        ("ge", int.__ge__),
    )},
    "setp.lt.u64 %q, %a, %b": lambda a, b: a < b,
    "setp.gt.s16 %q, %u, %v": lambda a, b: signed(a, 16) > signed(b, 16),
    "and.pred %q, %p, %p2": lambda a, b: s(a) < s(b) and a < b,
    "xor.pred %q, %p, -1": lambda a, b: not s(a) < s(b),
    "not.pred %q, %p": lambda a, b: not s(a) < s(b),
}  # fmt: skip
HEAD = """.version 9.5
.target sm_90
.address_size 64
.visible .entry made(
{parameters}
)
{{
	.reg .pred %p; .reg .pred %p2; .reg .pred %q;
	.reg .b16 %u; .reg .b16 %v; .reg .b16 %d16;
	.reg .b32 %x; .reg .b32 %y; .reg .b32 %n; .reg .b32 %d32; .reg .b32 %tid;
	.reg .b64 %a; .reg .b64 %b; .reg .b64 %odd; .reg .b64 %d64; .reg .b64 %r<9>;
	ld.param.u64 %r0, [made_param_4];
	ld.param.u64 %r1, [made_param_11];
	ld.param.u64 %r2, [made_param_18];
	mov.u32 %tid, %tid.x;
	mul.wide.u32 %r3, %tid, 8;
	add.s64 %r4, %r0, %r3;
	add.s64 %r5, %r1, %r3;
	add.s64 %r6, %r2, %r3;
	ld.global.u64 %a, [%r4];
	ld.global.u64 %b, [%r5];
{body}
	ret;
}}
"""


def made(body: str) -> str:
    """PTX of a kernel that loads an item of its first two arrays; %r6 is the address of one of the third."""
    parameters = ",\n".join(f".param .u64 made_param_{k}" for k in range(21))
    text = HEAD.format(parameters=parameters, body=body)
    return "\n".join(line.replace("; ", ";\n") if ".reg" in line else line for line in text.split("\n"))


def results_of(cases: list[str]) -> np.ndarray:
    """A row of results for each case, all from one kernel."""
    lines = ["cvt.u32.u64 %x, %a;", "cvt.u32.u64 %y, %b;", "cvt.u16.u64 %u, %a;", "cvt.u16.u64 %v, %b;"]
    lines += ["and.b32 %n, %y, 127;", "or.b64 %odd, %b, 1;", "setp.lt.s64 %p, %a, %b;", "setp.lt.u64 %p2, %a, %b;"]
    for number, case in enumerate(cases):
        width = next((width for width in ("d16", "d32") if f"%{width}" in case), "")
        widen = {"d16": "cvt.u64.u16 %d64, %d16;", "d32": "cvt.u64.u32 %d64, %d32;"}.get(width, "")
        if "%q" in case:
            widen = "selp.b64 %d64, 1, 0, %q;"
        lines += [f"{case};", widen, f"st.global.u64 [%r6+{number * 8 * len(PAIRS)}], %d64;"]
    a, b = (np.array(column, np.uint64) for column in zip(*PAIRS, strict=True))
    results = np.zeros(len(cases) * len(PAIRS), np.uint64)
    Executable(made("\n".join(lines))).run(1, len(PAIRS), a, b, results, seed=3)
    return results.reshape(len(cases), -1)


def test_instructions_equal_python():
    cases = {**CASES, **COMPARISONS}
    for (case, reference), row in zip(cases.items(), results_of(list(cases)), strict=True):
        bits = 64 if "%d64" in case else 32 if "%d32" in case else 16 if "%d16" in case else 1
        expected = [low(int(reference(a, b)), bits) for a, b in PAIRS]
        wrong = [pair for pair, value, wanted in zip(PAIRS, row.tolist(), expected, strict=True) if value != wanted]
        assert not wrong, (case, wrong[:3])


@pytest.mark.parametrize(
    "instruction",
    ["sad.u32 %x, %x, %y, %x", "add.f64 %a, %a, %b", "add.cc.u32 %x, %x, %y", "activemask.b32 %x",
     "setp.lt.and.s64 %p, %a, %b, %p2", "bar.sync 1", "atom.global.add.f32 %x, [%r6], %x", "cvt.rni.s32.s64 %x, %a",
     "call.uni made", "ld.global.v8.u32 %x, [%r6]", "shfl.up.b32 %x, %x, 1, 0", "div.approx.u32 %x, %x, %y"],
)  # fmt: skip
def test_an_unknown_opcode_is_an_error_with_its_name(instruction):
    with pytest.raises(PtxError, match=rf"unknown opcode '{instruction.split()[0]}' in line \d+: {instruction[:9]}"):
        Executable(made(f"{instruction};"))


@pytest.mark.parametrize(
    ("line", "message"),
    [(".branchtargets a;", "unknown directive: '.branchtargets a;'"), ("?;", r"not an instruction: '\?;'"),
     ("mov.u32 %x, %clock;", "unknown operand '%clock'"), ("st.global.u64 [4], %a;", r"unknown address '\[4\]'")],
)  # fmt: skip
def test_an_unknown_line_is_an_error(line, message):
    with pytest.raises(PtxError, match=message):
        Executable(made(line))
