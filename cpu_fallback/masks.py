# SPDX-License-Identifier: Apache-2.0
"""Bit masks of 64 bytes, for the CPU: bit k of a mask belongs to byte k.

The comparisons are LLVM's generic vectors, which every processor has: two AVX2 instructions or one of AVX-512 compare
64 bytes. No kernel for CUDA may call these functions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from curation.kernels.cache import kernel

WIDTH = 64  # bytes of a mask
AHEAD = 512  # distance in bytes from a block to the block that is prefetched
NO_BITS, ONE = np.uint64(0), np.uint64(1)
SPACE_STARTS = (0xC2, 0xE1, 0xE2, 0xE3)  # first bytes of white space beyond ASCII, and of other characters
BLOCK = ir.VectorType(ir.IntType(8), WIDTH)
WORD, DOUBLE_WORD = ir.IntType(64), ir.IntType(128)


class _Block:
    """The instructions that compare the bytes of one block."""

    def __init__(self, builder: Any, block: Any) -> None:
        self.builder, self.block = builder, block

    def _all(self, byte: int) -> Any:
        return ir.Constant(BLOCK, [byte] * WIDTH)

    def equal(self, *characters: str) -> Any:
        return self._any(self.builder.icmp_unsigned("==", self.block, self._all(ord(char))) for char in characters)

    def between(self, *ranges: tuple[int, int], fold: int = 0) -> Any:
        """Whether each byte, after the bits of `fold` are set in it, is in one of the ranges; both ends are
        included."""
        block = self.builder.or_(self.block, self._all(fold)) if fold else self.block
        return self._any(
            self.builder.icmp_unsigned("<=", self.builder.sub(block, self._all(low)), self._all(high - low))
            for low, high in ranges
        )

    def either(self, *masks: Any) -> Any:
        return self._any(iter(masks))

    def _any(self, masks: Any) -> Any:
        combined = next(masks)
        for mask in masks:
            combined = self.builder.or_(combined, mask)
        return combined


def _readable_block(context: Any, builder: Any, array_type: Any, array: Any, position: Any) -> Any:
    """Return the 64 bytes from `position`. Bytes after the end of the array are not read; they are zero in the
    result."""
    fields = context.make_array(array_type)(context, builder, array)
    left = builder.sub(fields.nitems, position)
    enough = builder.icmp_signed(">=", left, WORD(WIDTH))
    start = builder.gep(fields.data, [position])
    copy = cgutils.alloca_once(builder, BLOCK)
    with builder.if_then(builder.not_(enough), likely=False):
        builder.store(ir.Constant(BLOCK, [0] * WIDTH), copy)
        cgutils.raw_memcpy(builder, builder.bitcast(copy, fields.data.type), start, left, 1)
    address = builder.select(enough, builder.bitcast(start, BLOCK.as_pointer()), copy)
    return _Block(builder, builder.load(address, align=1))


def _masks_of(compare: Callable[[_Block], tuple[Any, ...]], count: int) -> Any:
    """Return an intrinsic function (data, position) that returns `count` masks (uint64) of data[position:position +
    64]."""

    def typed(typing_context: Any, data: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = _readable_block(context, builder, signature.args[0], *arguments)
            masks = [builder.bitcast(mask, WORD) for mask in compare(block)]
            return context.make_tuple(builder, signature.return_type, masks)

        return types.UniTuple(types.uint64, count)(data, types.int64), generate

    return intrinsic(typed)


def _text(block: _Block) -> tuple[Any, ...]:
    return (
        block.between((9, 13), (28, 32)),
        block.between((10, 13), (28, 30)),
        block.between((97, 122), fold=32),
        block.between((0x80, 0xFF)),
        block.between((0x80, 0xBF)),
        block.equal("."),
        block.equal("#"),
    )


def _classes(block: _Block) -> tuple[Any, ...]:
    ranges = ((33, 35), (37, 42), (44, 47), (58, 59), (63, 64), (91, 93))
    return (
        block.between((48, 57)),
        block.between((65, 90)),
        block.either(block.between(*ranges), block.equal(*"_{}")),
        block.equal(*"()[]{}"),
    )


def _marks(block: _Block) -> tuple[Any, ...]:
    return (
        block.equal(*".!?"),
        block.either(block.between((0x80, 0xFF)), block.equal(*"\"')]}")),
        block.equal(":"),
        block.equal("/"),
        block.equal("w"),
    )


def _cases(block: _Block) -> tuple[Any, ...]:
    return block.between((65, 90)), block.between((97, 122)), block.between((0xC0, 0xFF))


def _spaces(block: _Block) -> tuple[Any, ...]:
    return block.between((9, 13), (28, 32)), block.either(*(block.between((byte, byte)) for byte in SPACE_STARTS))


# (white space, line breaks, letters, bytes of characters beyond ASCII, their bytes after the first, ".", "#");
# the first three have ASCII characters only
text_masks = _masks_of(_text, 7)
class_masks = _masks_of(_classes, 4)  # ASCII (digits, capitals, punctuation, brackets)
# (ends of sentences; bytes after which the end may be hidden; ":"; "/"; "w")
mark_masks = _masks_of(_marks, 5)
case_masks = _masks_of(_cases, 3)  # (ASCII capitals, ASCII small letters, first bytes beyond ASCII)
space_masks = _masks_of(_spaces, 2)  # (ASCII white space, bytes of SPACE_STARTS)


@intrinsic
def prefetch(typing_context: Any, data: Any, position: Any) -> Any:
    """Prefetch the cache line of data[position]; the position may be after the end of the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fields = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(fields.data, [arguments[1]]), ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [address, flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return types.none(data, types.int64), generate


@intrinsic
def lowest_bit(typing_context: Any, mask: Any) -> Any:
    """Return the position (int64) of the lowest set bit of a uint64; 64 if none is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def count_bits(typing_context: Any, mask: Any) -> Any:
    """Return the number of set bits (int64) of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def fold_product(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the exclusive or of the two halves of the 128-bit product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(*(builder.zext(value, DOUBLE_WORD) for value in arguments))
        high = builder.lshr(product, ir.Constant(DOUBLE_WORD, 64))
        return builder.xor(builder.trunc(product, WORD), builder.trunc(high, WORD))

    return types.uint64(types.uint64, types.uint64), generate


@kernel
def first_bits(count):
    """Return a mask of the lowest `count` bits, 0 to 63."""
    return (ONE << np.uint64(count)) - ONE


@kernel
def append_positions(mask, first, out, count):
    """Write `first` + k for each set bit k of the mask to out[count:]; return the new count.

    The positions are written eight at a time, which saves branches. `out` needs seven more items than positions.
    """
    after = count + count_bits(mask)
    while count < after:
        for k in range(8):
            out[np.uint64(count + k)] = first + lowest_bit(mask)
            mask &= mask - ONE
        count += 8
    return after


@kernel
def append_few_positions(mask, first, out, count):
    """Append positions to `out` as `append_positions` does, but faster for masks with mostly up to three bits. `out`
    needs three more items than positions."""
    after = count + count_bits(mask)
    for k in range(3):
        out[np.uint64(count + k)] = first + lowest_bit(mask)
        mask &= mask - ONE
    count += 3
    while count < after:
        out[np.uint64(count)] = first + lowest_bit(mask)
        mask &= mask - ONE
        count += 1
    return after
