# SPDX-License-Identifier: Apache-2.0
"""The definition of common beginnings, by sets of bytes."""

from collections import defaultdict
from collections.abc import Sequence

STEP, MAX_STEPS, CONTINUATIONS = 64, 1024, 5


def without_prefix(texts: Sequence[str], others: Sequence[str] | None = None) -> list[str]:
    """The texts without the beginnings that are common in them, or in other ones."""
    following = defaultdict[bytes, set[bytes]](set)
    for text in (text.encode() for text in (others or texts)):
        for end in range(STEP, min(len(text), STEP * MAX_STEPS) + 1, STEP):
            following[text[:end]].add(text[end : end + STEP])
    return [_rest(text.encode(), following).decode() for text in texts]


def _rest(text: bytes, following: dict[bytes, set[bytes]]) -> bytes:
    for end in range(min(len(text) // STEP, MAX_STEPS) * STEP, 0, -STEP):
        if len(following.get(text[:end], ())) >= CONTINUATIONS:
            while text[end:] and text[end] & 0xC0 == 0x80:  # inside a code point
                end -= 1
            return text[end:] or text
    return text
