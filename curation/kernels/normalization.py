# SPDX-License-Identifier: Apache-2.0
"""Unicode normal forms. `unicodedata2` normalises spans: the few characters that a normal form may change, and those
that they may compose with. Python holds its lock meanwhile, so engines copy the rest of a text themselves.

A character is *stable* in a form if its combining class is 0 and its quick check (UAX #15) is Yes. Such a character
neither changes nor composes with a character before it, so a text can be cut before each stable character, and the
pieces normalised one by one. A *span* is a run of characters that are not stable, together with the stable character
before it, where at least one character fails the quick check: it is not Yes, or its combining class is lower than that
of the character before it. Spans end with their document. Engines write spans one after the other, each followed by
SEPARATOR.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import unicodedata2

from curation.base.errors import EngineError
from curation.kernels.cache import kernel
from curation.kernels.tables import UNICODE_VERSION
from curation.kernels.utf8 import byte_at, start_of

SEPARATOR = 10  # a line feed, which is stable, composes with no character, and is in no decomposition


class NormalSpans(NamedTuple):
    """Spans in a normal form.

    data      uint8: the spans, each followed by SEPARATOR
    offsets   int64: where each span starts in `data`, and the size of `data`
    changed   bool: whether each span differs from the text
    """

    data: np.ndarray
    offsets: np.ndarray
    changed: np.ndarray


def _normalize(text: str, form: str) -> str:
    if unicodedata2.unidata_version != UNICODE_VERSION:
        raise EngineError(
            f"unicodedata2 has Unicode {unicodedata2.unidata_version}, expected {UNICODE_VERSION}. "
            "Install it: pip install 'unicodedata2==17.0.1'"
        )
    return unicodedata2.normalize(form.upper(), text)


def normalize(texts: Iterable[str], form: str) -> list[str]:
    """Return texts in the form "nfc" or "nfkc" of Unicode 17. Raise EngineError if unicodedata2 has another version."""
    return [_normalize(text, form) for text in texts]


def normalize_spans(joined: np.ndarray, count: int, form: str) -> NormalSpans:
    """Return `count` spans in the form "nfc" or "nfkc" of Unicode 17.

    joined   uint8: the spans, each followed by SEPARATOR, which no span contains
    """
    normal = np.frombuffer(_normalize(str(joined.data, "utf-8"), form).encode(), np.uint8)
    offsets, changed = np.empty(count + 1, np.int64), np.empty(count, np.bool_)
    compare_spans(joined, normal, offsets, changed)
    return NormalSpans(normal, offsets, changed)


@kernel
def is_stable(record, form_flag, flags, combining):
    """Whether the character of this record is stable in the form of `form_flag`, one of `rewrite.FORM_FLAGS`."""
    return combining[np.uint64(record)] == 0 and int(flags[np.uint64(record)]) & form_flag == 0


@kernel
def span_start(data, i, start):
    """Return where the span starts whose first character that is not stable is at `i`; its document starts at `start`.
    A separator composes with nothing, so it is left out of the span."""
    if i == start or byte_at(data, i - 1) == SEPARATOR:
        return i
    return start_of(data, start, i)


@kernel
def compare_spans(joined, normal, offsets, changed):
    """Write where each span starts in `normal`, and whether it differs from the span in `joined`."""
    i = o = 0
    for k in range(changed.size):
        offsets[k] = o
        while joined[i] == normal[o] and normal[o] != SEPARATOR:
            i += 1
            o += 1
        changed[k] = joined[i] != normal[o]
        while joined[i] != SEPARATOR:
            i += 1
        while normal[o] != SEPARATOR:
            o += 1
        i += 1
        o += 1
    offsets[changed.size] = o
