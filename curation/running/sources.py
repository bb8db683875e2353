# SPDX-License-Identifier: Apache-2.0
"""What each input of a run contributes: before, as it was read, and after, as it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from curation.reading.inputs import AnyInput, Budget, HubInput, entries_by_name
from curation.reading.source_files import Slice
from curation.running.collecting import check_minimum
from curation.running.ledger import SliceRecord

LIMITS = ("max_documents", "max_bytes")


def contributions(
    entries: Sequence[AnyInput], slices: Sequence[Slice], records: Sequence[SliceRecord],
    parts: Sequence[dict[str, Any]], drawn: Mapping[str, float],
) -> list[dict[str, Any]]:  # fmt: skip
    """One entry per input, in the order of the recipe: documents, bytes and tokens, and its shares of the bytes read,
    of the tokens written (of the bytes, where there are no tokens), and of what training draws by the blend, whose
    weights are in `drawn`."""
    found = []
    for name, entry in entries_by_name(entries).items():
        pairs = [(piece, record) for piece, record in zip(slices, records, strict=True) if piece.source == name]
        own = [record for _, record in pairs]
        commit = next((piece.parts[0].file.commit for piece, _ in pairs), "")
        written = [part for part in parts if part.get("source") == name]
        documents, copied = sum(part["documents"] for part in written), entry.copies
        found.append(
            {
                "name": name,
                "documents_read": sum(record.rows - record.unsampled for record in own),
                "not_sampled": sum(record.unsampled for record in own),
                "rejected": sum(record.rejected for record in own),
                "bytes_read": sum(record.bytes_read for record in own),
                "documents_kept": documents,
                "copies": documents - documents // copied,
                "bytes_kept": sum(part["bytes"] for part in written),
                "tokens": sum(part["tokens"] for part in written),
                **({} if entry.blend_weight is msgspec.UNSET else {"blend_weight": entry.blend_weight}),
                **({"commit": commit} if commit else {}),
            }
        )
    after = "tokens" if any(entry["tokens"] for entry in found) else "bytes_kept"
    for share, counted in (("share_before", "bytes_read"), ("share_after", after)):
        total = max(sum(entry[counted] for entry in found), 1)
        for row in found:
            row[share] = round(row[counted] / total, 6)
    for row in found:
        if drawn:
            row["share_drawn"] = round(drawn.get(row["name"], 0.0) / sum(drawn.values()), 6)
    return found


def unreached_budgets(
    entries: Sequence[AnyInput], budget: Budget, slices: Sequence[Slice], records: Sequence[SliceRecord]
) -> list[str]:
    """The data sets, or all of them together, that ended before a budget was used up, in words."""
    taken: dict[str, tuple[int, int]] = {}
    for piece, record in zip(slices, records, strict=True):
        documents, size = taken.get(piece.source, (0, 0))
        taken[piece.source] = documents + record.rows, size + record.bytes_read
    streamed = {name: entry for name, entry in entries_by_name(entries).items() if isinstance(entry, HubInput)}
    together = sum(taken[name][0] for name in streamed), sum(taken[name][1] for name in streamed)
    if _is_reached(budget, together):
        return []
    limits: list[tuple[str, HubInput | Budget, tuple[int, int]]] = [
        (f"input {name!r}", entry, taken[name]) for name, entry in streamed.items()
    ]
    return [
        f"{what} ended after {documents:,} documents and {size:,} bytes of text, before the budget "
        f"({', '.join(f'{field} {getattr(limit, field):,}' for field in LIMITS if getattr(limit, field))}) was reached"
        for what, limit, (documents, size) in [*limits, ("all data sets", budget, together)]
        if any(getattr(limit, field) for field in LIMITS) and not _is_reached(limit, (documents, size))
    ]


def _is_reached(limit: HubInput | Budget, taken: tuple[int, int]) -> bool:
    pairs = zip((limit.max_documents, limit.max_bytes), taken, strict=True)
    return any(most and count >= most for most, count in pairs)


def source_rows(sources: Sequence[dict[str, Any]]) -> list[str]:
    """The table as lines of text; none for a single input."""
    if len(sources) < 2:
        return []
    heads = ("input", "read", "MB", "share", "kept", "copies", "MB", "tokens", "share", "drawn")
    rows = [
        (
            entry["name"],
            f"{entry['documents_read']:,}",
            f"{entry['bytes_read'] / 1e6:,.2f}",
            f"{entry['share_before']:.2%}",
            f"{entry['documents_kept']:,}",
            f"{entry['copies']:,}",
            f"{entry['bytes_kept'] / 1e6:,.2f}",
            f"{entry['tokens']:,}",
            f"{entry['share_after']:.2%}",
            f"{entry['share_drawn']:.2%}" if "share_drawn" in entry else "-",
        )
        for entry in sources
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return [
        row[0].ljust(widths[0])
        + "".join(f"  {cell.rjust(width)}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in (heads, *rows)
    ]


def check_minima(
    entries: Sequence[AnyInput], budget: Budget, slices: Sequence[Slice], records: Sequence[SliceRecord]
) -> None:
    """InputError where an input, or all of them together, have less text than they have to have."""
    sizes: dict[str, int] = {}
    for piece, record in zip(slices, records, strict=True):
        sizes[piece.source] = sizes.get(piece.source, 0) + record.bytes_read
    for name, entry in entries_by_name(entries).items():
        check_minimum(f"input {name!r}", sizes.get(name, 0), entry.min_bytes)
    check_minimum("the input", sum(sizes.values()), budget.min_bytes)
