# SPDX-License-Identifier: Apache-2.0
"""Records of web archives of types that ISO 28500 does not have. Readers skip them, as it says, and count them: a
damaged type may hide a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from curation.errors import counted

TYPES = ("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation")
MAX_CHARACTERS = 40  # of a type
MAX_TYPES = 8  # with a count of their own
OTHERS = ""


def add_types(counts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    """Add the counts of types, in place.

    The first MAX_TYPES in alphabetical order have counts of their own, all others one. So the result does not depend on
    the order in which counts are added up.
    """
    for name, count in more:
        counts[name] = counts.get(name, 0) + count
    for name in sorted(counts.keys() - {OTHERS})[MAX_TYPES:]:
        counts[OTHERS] = counts.get(OTHERS, 0) + counts.pop(name)


def types_warning(counts: Mapping[str, int]) -> str:
    """Return the warning about skipped records."""
    ranked = sorted(counts.items(), key=lambda pair: (pair[0] == OTHERS, -pair[1], pair[0]))
    named = ", ".join(f"{name!r} ({count:,})" if name != OTHERS else f"others ({count:,})" for name, count in ranked)
    return (
        f"skipped {counted(sum(counts.values()), 'record')} of unknown WARC types: {named}. A damaged type may hide a "
        f"document: if no tool of yours wrote them, get the files again. Known types are {', '.join(TYPES)}"
    )
