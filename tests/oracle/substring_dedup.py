# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` in slow plain Python, straight from its definition: a dictionary of windows."""

import re
from collections.abc import Sequence

from tests.oracle.units import units_of


def repeated_bytes(texts: Sequence[bytes], length: int) -> list[list[bool]]:
    """Whether each byte of each text is in a window of `length` bytes that begins at an earlier place, too."""
    seen: set[bytes] = set()
    masks = []
    for text in texts:
        mask = [False] * len(text)
        for place in range(len(text) - length + 1):
            window = text[place : place + length]
            if window in seen:
                mask[place : place + length] = [True] * length
            seen.add(window)
        masks.append(mask)
    return masks


def kept_text(text: str, mask: Sequence[bool], bounds: str, join: int) -> str:
    """The text without the characters (lines, sentences) of which all bytes are cut: repeated ones, and gaps of at most
    `join` bytes between them."""
    spans: list[tuple[int, int]] = []
    for match in re.finditer(b"1+", bytes(b"01"[byte] for byte in mask)):
        start, stop = match.span()
        if spans and start - spans[-1][1] <= join:
            start = spans.pop()[0]
        spans.append((start, stop))
    pieces = list(text) if bounds == "characters" else ["".join(unit) for unit in units_of(text, bounds.rstrip("s"))]
    kept, start = [], 0
    for piece in pieces:
        stop = start + len(piece.encode())
        if not any(first <= start and stop <= last for first, last in spans):
            kept.append(piece)
        start = stop
    return "".join(kept) if pieces else text


def span_key(span: bytes, length: int) -> bytes:
    """The `length` bytes of least hash in a span; of equal hashes the first. A shorter span is its key."""

    def hashed(window: bytes) -> int:
        value = 0
        for byte in window:
            value = (value * 0x9E3779B97F4A7C15 + byte) % 2**64
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 1):
            value = (value ^ value >> 33) * factor % 2**64
        return value

    return min((span[k : k + length] for k in range(max(len(span) - length, 0) + 1)), key=hashed)


def frequent_spans(spans: Sequence[bytes], length: int) -> dict[bytes, tuple[int, bytes]]:
    """Key -> how many spans have it, and the shortest of them; of equal lengths the first."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for span in spans:
        key = span_key(span, length)
        count, shortest = found.get(key, (0, span))
        found[key] = count + 1, min(shortest, span, key=len)
    return found


def substring_dedup(
    texts: Sequence[str], length: int, bounds: str = "characters", join: int = 0, min_kept: int = 0
) -> list[str | None]:
    """The texts after the stage; None: the text is removed."""
    masks = repeated_bytes([text.encode() for text in texts], length)
    after = [kept_text(text, mask, bounds, join) for text, mask in zip(texts, masks, strict=True)]
    return [None if new != old and len(new) < min_kept else new for old, new in zip(texts, after, strict=True)]
