# SPDX-License-Identifier: Apache-2.0
"""Repeated spans that a stage cut: by length, by input, and the most frequent ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from curation.report.page.parts import fit, percent, row, shown, size, table

MAX_STAGES, MAX_INPUTS = 4, 200
INPUT_BYTES, SPAN_BYTES = 20_000, 60_000


def spans(content: dict[str, Any]) -> str:
    """Return the tables of each stage that cut repeated spans; "" without any."""
    stages = [stage for stage in content["stages"] if stage.get("details", {}).get("lengths")]
    return "".join(map(_stage, stages[:MAX_STAGES]))


def _stage(stage: dict[str, Any]) -> str:
    details, total = stage["details"], stage["bytes_in"]
    lengths = [
        row((shown(name), f"{count:,}", size(sum_), percent(sum_, total)))
        for name, (count, sum_) in details["lengths"].items()
        if count
    ]
    inputs = [
        row((shown(name), size(whole), size(cut), percent(cut, whole)))
        for name, (cut, whole) in list(details["sources"].items())[:MAX_INPUTS]
    ]
    frequent = [
        row((f"{entry['count']:,}", f"{entry['bytes']:,}", shown(" ".join(entry.get("text", "").split()))))
        for entry in details["frequent"]
    ]
    return (
        f"<h3>{shown(stage['name'])}: {size(details['bytes'])} of {size(total)} cut</h3>\n"
        + _table(("bytes of a span", "spans", "cut", "share of all text"), lengths, "length", len(lengths))
        + _table(("input", "text", "cut", "share"), inputs, "input", len(details["sources"]), INPUT_BYTES)
        + _table(("times cut", "bytes", "most frequent spans"), frequent, "span", len(frequent), SPAN_BYTES)
    )


def _table(heads: Sequence[str], rows: Iterable[str], noun: str, total: int, max_bytes: int = INPUT_BYTES) -> str:
    if not total:
        return ""
    body, _, more = fit(rows, noun, total, max_bytes).rpartition("</tr>\n")
    return table(heads, f"{body}</tr>\n") + more
