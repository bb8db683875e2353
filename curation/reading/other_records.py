# SPDX-License-Identifier: Apache-2.0
"""Counts records of web archives that are no documents. Readers skip unknown types, as ISO 28500 requires. A damaged
type may hide a document, so a warning counts unknown types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from curation.base.errors import counted
from curation.base.records import NOT_PAGE, OF_FILE, UNKNOWN_TYPE, OtherRecord

TYPES = ("warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation")
MAX_CHARACTERS = 40  # maximum length of a shown type
MAX_TYPES = 8  # types that are counted separately
OTHERS = ""
OtherCounts = dict[str, dict[str, int]]  # why -> name -> number of records


def add_types(counts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    """Add the counts of types, in place.

    The first MAX_TYPES in alphabetical order are counted separately, all others together. So the result does not depend
    on the order in which counts are added.
    """
    for name, count in more:
        counts[name] = counts.get(name, 0) + count
    for name in sorted(counts.keys() - {OTHERS})[MAX_TYPES:]:
        counts[OTHERS] = counts.get(OTHERS, 0) + counts.pop(name)


def add_counts(counts: OtherCounts, more: OtherCounts) -> None:
    """Add counts of records that are no documents, in place."""
    for why, names in more.items():
        add_types(counts.setdefault(why, {}), names.items())


def add_records(counts: OtherCounts, records: Iterable[OtherRecord]) -> None:
    """Count records that are no documents, in place."""
    for record in records:
        add_types(counts.setdefault(record.why, {}), [(record.name, 1)])


def not_pages(counts: Mapping[str, Mapping[str, int]]) -> int:
    """Return the number of responses that are no pages. Of the counted records, only these have a position (`row`)."""
    return sum(counts.get(NOT_PAGE, {}).values())


def reported(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return the counts for `report.json`: "types" of skipped records, and "content" of responses that are no pages."""
    types: dict[str, int] = {}
    for why in counts.keys() - {NOT_PAGE, OF_FILE}:
        add_types(types, counts[why].items())
    groups = {"types": types, "content": counts.get(NOT_PAGE, {})}
    return {
        name: {key or "others": number for key, number in sorted(each.items())} for name, each in groups.items() if each
    }


def other_warnings(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the warnings about records of unknown types, and about files without any document."""
    warnings = [types_warning(counts[UNKNOWN_TYPE])] if counts.get(UNKNOWN_TYPE) else []
    if files := counts.get(OF_FILE):
        named = ", ".join(sorted(name for name in files if name != OTHERS))
        warnings.append(
            f"{counted(sum(files.values()), 'archive')} without a document: {named}{', ...' * (OTHERS in files)}. "
            "Documents are `conversion` records of WET, and pages in `response` and `resource` records of WARC. Set "
            "format: wet or warc if the name says another one"
        )
    return warnings


def types_warning(counts: Mapping[str, int]) -> str:
    """Return the warning about skipped records of unknown types."""
    ranked = sorted(counts.items(), key=lambda pair: (pair[0] == OTHERS, -pair[1], pair[0]))
    named = ", ".join(f"{name!r} ({count:,})" if name != OTHERS else f"others ({count:,})" for name, count in ranked)
    return (
        f"skipped {counted(sum(counts.values()), 'record')} of unknown WARC types: {named}. A damaged type may hide a "
        f"document: if no tool of yours wrote them, get the files again. Known types are {', '.join(TYPES)}"
    )
