# SPDX-License-Identifier: Apache-2.0
"""The window size of a zstd file, from the header of its first frame (RFC 8878, section 3.1.1)."""

from __future__ import annotations

FRAME, SKIPPABLE = 0xFD2FB528, 0x184D2A50
SIZES = (0, 2, 4, 8)  # bytes of the field Frame_Content_Size, by its flag
DICTIONARY_SIZES = (0, 1, 2, 4)


def window_of(start: bytes) -> int:
    """Return the window size of the first frame in bytes, which a decompressor must hold; 0 if `start` does not show
    it."""
    offset = 0
    while offset + 8 <= len(start) and int.from_bytes(start[offset : offset + 4], "little") & ~15 == SKIPPABLE:
        offset += 8 + int.from_bytes(start[offset + 4 : offset + 8], "little")
    head = start[offset : offset + 18]
    if len(head) < 6 or int.from_bytes(head[:4], "little") != FRAME:
        return 0
    flags = head[4]
    if not flags & 0x20:
        base = 1 << (10 + (head[5] >> 3))
        return base + base // 8 * (head[5] & 7)
    size = SIZES[flags >> 6] or 1  # a single segment, whose window is its content
    begin = 5 + DICTIONARY_SIZES[flags & 3]
    content = int.from_bytes(head[begin : begin + size], "little")
    return content + 256 if size == 2 else content
