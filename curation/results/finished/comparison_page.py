# SPDX-License-Identifier: Apache-2.0
"""Renders the comparison of two runs as an HTML page in the style of `report.html`, without scripts and external
files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curation.base.errors import counted
from curation.results.finished.comparison import EQUAL, Comparison, shown_value
from curation.results.finished.results import FinishedRun
from curation.results.report.marks import excerpt, removing_spans
from curation.results.report.page.rendering import rendered

CHARACTERS = 600  # maximum characters of an example
HEADING = b"<h1>Two runs compared</h1>"  # every such page has it


def comparison_page(found: Comparison, a: FinishedRun, b: FinishedRun) -> str:
    """Return the comparison `found` of the runs `a` and `b` as a complete page of HTML, of less than 1.5 MB."""
    names = [run.report["recipe"]["name"] or "run" for run in (a, b)]
    ranked = sorted(found.removals, key=lambda entry: -abs(entry.documents_b - entry.documents_a))
    content = {
        "found": found,
        "equal_line": EQUAL,
        "names": names,
        "folders": [f"{run.folder}: {name}" for run, name in zip((a, b), names, strict=True)],
        "settings": [(path, shown_value(first), shown_value(second)) for path, first, second in found.settings],
        "changed": [entry for entry in ranked if entry.documents_a != entry.documents_b],
        "equal": [entry for entry in ranked if entry.documents_a == entry.documents_b],
        "most": max((max(entry.documents_a, entry.documents_b) for entry in ranked), default=1),
        "changes": [
            ("A", "B", found.kept_by_a, list(_examples(found, "A", b))),
            ("B", "A", found.kept_by_b, list(_examples(found, "B", a))),
        ],
        "left_out": _left_out(found),
    }
    return rendered("comparison.html", content)


def _examples(found: Comparison, keeper: str, remover: FinishedRun) -> Iterator[dict[str, Any]]:
    for entry in found.examples.to_pylist():
        if entry["kept_by"] == keeper:
            text = entry["text"] or ""
            spans = removing_spans(remover.judging_stage(entry["stage"]), entry["reason"], text)
            part, marks, first = excerpt(text, spans, CHARACTERS)
            yield entry | {"part": part, "marks": marks, "first": first, "is_cut": first + len(part) < len(text)}


def _left_out(found: Comparison) -> list[str]:
    """Return lines about documents that only one run has, or that their ids cannot pair."""
    lines = [
        f"{counted(documents, 'document')} only in {name}: the other run has no such id under this input name, or "
        "rejected it."
        for name, documents in (("A", found.only_a), ("B", found.only_b))
        if documents and not found.unmatched
    ]
    if found.unmatched:
        lines.append(f"{found.unmatched[0].upper()}{found.unmatched[1:]}.")
    if found.ambiguous_a or found.ambiguous_b:
        lines.append(
            f"{found.ambiguous_a:,} of A and {found.ambiguous_b:,} of B, whose id the runs have in different numbers. "
            "Give the inputs unique ids (id_column)."
        )
    return lines
