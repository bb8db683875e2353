# SPDX-License-Identifier: Apache-2.0
"""Finds characters on which a fast library and a tokenizer's reference may differ, since their versions of Unicode
differ.

`unicode_differences.json` has an entry for each pair of versions and each split that `curation.tokens.unicode_sweep`
compared on all code points. The reference encodes texts with a listed character.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

STORED = Path(__file__).with_name("unicode_differences.json")
SWEEP = "python -m curation.tokens.unicode_sweep"
WITHOUT_CLASSES = ("Prepend", "Metaspace", "ByteFallback")  # and String patterns: they compare bytes


class SweepOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The result of one sweep: a comparison of two libraries on all code points.

    fast, reference   names and versions of the two libraries, as "tiktoken 0.14.0"
    split             how texts are cut or changed by properties of characters: `split_of`, or tiktoken's expression
    characters        ranges of code points in hexadecimal, in order, as "88F 323B0-33479"
    """

    fast: str
    reference: str
    split: str
    characters: str


class Characters(NamedTuple):
    """A set of characters for `curation.kernels.listed.mark_texts`.

    leads           uint8: first bytes of their UTF-8, repeated up to a multiple of four
    prefixes        uint8, shape (any, 3): a first byte, a second byte under a mask, and the mask
    firsts, lasts   int32: the ranges, in order
    """

    leads: np.ndarray
    prefixes: np.ndarray
    firsts: np.ndarray
    lasts: np.ndarray


@cache
def stored_entries() -> tuple[SweepOutcome, ...]:
    """Load the recorded sweeps: on which characters two libraries differ, per version."""
    return tuple(msgspec.json.decode(STORED.read_bytes(), type=list[SweepOutcome]))


def find_entry(fast: str, reference: str, split: str) -> SweepOutcome | None:
    """Return the sweep of two versions and a split, None if there is none."""
    key = fast, reference, split
    return next((entry for entry in stored_entries() if (entry.fast, entry.reference, entry.split) == key), None)


def compared_versions(split: str) -> list[str]:
    """Return the pairs of versions with a sweep of this split, as "gigatoken 0.10.0 with tiktoken 0.14.0"."""
    return [f"{entry.fast} with {entry.reference}" for entry in stored_entries() if entry.split == split]


def ranges_of(entry: SweepOutcome) -> list[tuple[int, int]]:
    """Return the ranges of an entry: (first, last)."""
    ends = [part.split("-") for part in entry.characters.split()]
    return [(int(part[0], 16), int(part[-1], 16)) for part in ends]


def characters_of(entry: SweepOutcome) -> Characters:
    """Return the characters of an entry in the form that kernels use: first bytes, prefixes and ranges of code
    points."""
    ranges = np.array(ranges_of(entry), np.int32).reshape(-1, 2)
    prefixes = _prefixes(ranges.tolist())
    leads = sorted({lead for lead, _, _ in prefixes})
    leads += leads[-1:] * (-len(leads) % 4)
    columns = map(np.ascontiguousarray, ranges.T)
    return Characters(np.array(leads, np.uint8), np.array(prefixes, np.uint8).reshape(-1, 3), *columns)


def _prefixes(ranges: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return the first two bytes of all characters: (first byte, second byte, mask). One mask covers several adjacent
    second bytes."""
    numbers = (number for first, last in ranges for number in range(first, last + 1))
    pairs = sorted({tuple(chr(number).encode()[:2]) for number in numbers})
    return sorted(
        {
            (
                lead,
                second & ~1 if (lead, second ^ 1) in pairs else second,
                0xFE if (lead, second ^ 1) in pairs else 0xFF,
            )
            for lead, second in pairs
        }
    )


def documents_with(texts: pa.LargeStringArray, characters: Characters) -> np.ndarray:
    """Return the indexes of the texts that have one of the characters."""
    from curation.kernels.listed import mark_texts
    from curation.tokens.encoder_pool import text_offsets

    buffer = texts.buffers()[2]
    if buffer is None or not len(characters.firsts):
        return np.zeros(0, np.int64)
    marked = np.zeros(len(texts), np.bool_)
    data, offsets = np.frombuffer(buffer, np.uint8), text_offsets(texts)
    for array in (data, offsets):
        array.setflags(write=False)  # Numba would compile the kernel twice, for writable and for read-only arrays
    mark_texts(data, offsets, *characters, marked)
    return np.flatnonzero(marked)


def split_of(content: dict[str, Any]) -> str:
    """Return the steps of a tokenizer.json that depend on properties of characters; "" if it has none."""
    steps = (content.get("normalizer"), content.get("pre_tokenizer"))
    return " ".join(dependent for step in steps for dependent in _dependent_steps(step))


def _dependent_steps(step: dict[str, Any] | None) -> Iterator[str]:
    if not step or step["type"] in WITHOUT_CLASSES:
        return
    pattern, kind = step.get("pattern"), step["type"]
    if kind == "Sequence":
        for part in step.get("normalizers") or step.get("pretokenizers") or ():
            yield from _dependent_steps(part)
    elif kind == "ByteLevel":
        if step.get("use_regex", True):
            yield kind
    elif pattern is not None:
        if "Regex" in pattern:
            yield str(pattern["Regex"])
    elif kind == "Precompiled":
        yield f"{kind}:{hashlib.sha256(json.dumps(step, sort_keys=True).encode()).hexdigest()[:16]}"
    else:
        yield kind
