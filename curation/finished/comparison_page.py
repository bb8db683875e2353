# SPDX-License-Identifier: Apache-2.0
"""The comparison of two runs as a page, in the style of `report.html`: it has no script and loads nothing.

What comes from the runs passes through `page.parts`; each list has a limit in bytes.
"""

from __future__ import annotations

from typing import Any

from curation.errors import counted
from curation.finished.comparison import Comparison, Removal, Setting, shown_value
from curation.finished.results import FinishedRun
from curation.report.marks import excerpt, removing_spans
from curation.report.page.parts import (
    definitions,
    document,
    fit,
    number,
    rest,
    row,
    section,
    share,
    shown,
    shown_block,
    size,
    table,
)

MAX_SETTINGS = 200
REMOVAL_BYTES, EXAMPLE_BYTES = 200_000, 300_000
OWN_STYLE = ".settings th, .settings td { text-align: left; white-space: normal }\n"
CHARACTERS = 600  # of an example


def comparison_page(found: Comparison, a: FinishedRun, b: FinishedRun) -> str:
    """Return the comparison `found` of the runs `a` and `b` as a complete page of HTML, of less than 1.5 MB."""
    titles = [run.report["recipe"]["name"] or "run" for run in (a, b)]
    sections = [
        section("Settings that differ", _settings(found.settings)),
        section("Documents and tokens", _counts(found)),
        section("Removed documents by reason", _removals(found.removals)),
        section(_changed(found.kept_by_a, "A", "B"), _examples(found, b, "A")),
        section(_changed(found.kept_by_b, "B", "A"), _examples(found, a, "B")),
        section("Not compared", _left_out(found)),
    ]
    folders = definitions(
        (name, f"{run.folder}: {title}") for name, run, title in zip("AB", (a, b), titles, strict=True)
    )
    body = f"<h1>Two runs compared</h1>\n{folders}{_tiles(found)}\n{''.join(sections)}"
    return document(" and ".join(map(shown, titles)) + " compared", body, style=OWN_STYLE)


def _tiles(found: Comparison) -> str:
    names = {"kept": "documents kept", "kept_bytes": "of text kept", "tokens": "tokens"}
    boxes = []
    for name, label in names.items():
        first, second = found.counts[name]
        a, b = ((size(value) if name == "kept_bytes" else f"{value:,}") for value in (first, second))
        change = f", {(second - first) / first:+.1%}" if first else ""
        boxes.append(f'<div class="tile"><b>{b}</b>{label} by B; {a} by A{change}</div>')
    return f'<div class="tiles">{"".join(boxes)}</div>'


def _settings(settings: list[Setting]) -> str:
    if not settings:
        return "<p>The settings are equal.</p>\n"
    cells = ((path, shown_value(a), shown_value(b)) for path, a, b in settings[:MAX_SETTINGS])
    listed = table(("setting", "A", "B"), "".join(row(map(shown, entry)) for entry in cells))
    return f'<div class="settings">{listed}</div>\n{rest(len(settings) - MAX_SETTINGS, "setting")}'


def _counts(found: Comparison) -> str:
    counts = found.counts.items()
    rows = (row((name.replace("_", " "), f"{a:,}", f"{b:,}", f"{b - a:+,}")) for name, (a, b) in counts)
    return table(("", "A", "B", "B − A"), "".join(rows))


def _removals(removals: list[Removal]) -> str:
    """The reasons by how much their counts differ, largest first; those of equal counts behind a click."""
    ranked = sorted(removals, key=lambda entry: -abs(entry.documents_b - entry.documents_a))
    most = max((max(entry.documents_a, entry.documents_b) for entry in ranked), default=1)
    equal = [entry for entry in ranked if entry.documents_a == entry.documents_b]
    parts = ['<p class="quiet"><span class="key pale"></span>A <span class="key removed"></span>B</p>\n']
    changed = ranked[: len(ranked) - len(equal)]
    parts.append(fit((_removal(entry, most) for entry in changed), "reason", len(changed), REMOVAL_BYTES))
    if equal:
        listed = fit((_removal(entry, most) for entry in equal), "reason", len(equal), REMOVAL_BYTES)
        title = f"{counted(len(equal), 'reason')} with the same number in both runs"
        parts.append(f"<details><summary>{title}</summary>\n{listed}</details>\n")
    return "".join(parts) if removals else ""


def _removal(entry: Removal, most: int) -> str:
    a, b = entry.documents_a, entry.documents_b
    bars = "".join(
        f'<div class="bar" style="width:{share(count, most):.2%};background:var({colour})"></div>'
        for count, colour in ((a, "--pale"), (b, "--removed"))
    )
    return (
        f'<div class="step reason"><span class="name">{shown(entry.stage)}: {shown(entry.reason)}</span>'
        f'<span class="middle">{bars}</span><span class="count">{a:,} → {b:,} <br>({b - a:+,})</span></div>\n'
    )


def _changed(documents: int, keeper: str, remover: str) -> str:
    return f"{counted(documents, 'document')} kept by {keeper} and removed by {remover}"


def _examples(found: Comparison, remover: FinishedRun, keeper: str) -> str:
    rows = [entry for entry in found.examples.to_pylist() if entry["kept_by"] == keeper]
    total = found.kept_by_a if keeper == "A" else found.kept_by_b
    listed = fit((_example(entry, remover) for entry in rows), "document", total, EXAMPLE_BYTES)
    return f'<div class="samples">{listed}</div>\n' if rows else ""


def _example(entry: dict[str, Any], remover: FinishedRun) -> str:
    text = entry["text"] or ""
    spans = removing_spans(remover.judging_stage(entry["stage"]), entry["reason"], text)
    part, marks, first = excerpt(text, spans, CHARACTERS)
    facts = [f"{name} {number(entry[name])}" for name in ("value", "bound") if entry[name] is not None]
    why = ", ".join([f"{shown(entry['stage'])}: {shown(entry['reason'])}", *facts])
    where = f"<b>{shown(entry['id'])}</b> of {shown(entry['source'])} · {why}"
    before = '<span class="quiet">…</span> ' if first else ""
    after = ' <span class="quiet">…</span>' if first + len(part) < len(text) else ""
    return (
        f'<div class="sample"><div class="where">{where}</div>\n'
        f'<div class="text">{before}{shown_block(part, marks)}{after}</div></div>\n'
    )


def _left_out(found: Comparison) -> str:
    """Documents that only one run has, or whose id cannot pair them."""
    lines = [
        f"{counted(documents, 'document')} only in {name}: the other run has no such id under this input name, or "
        "rejected it."
        for name, documents in (("A", found.only_a), ("B", found.only_b))
        if documents
    ]
    if found.ambiguous_a or found.ambiguous_b:
        lines.append(
            f"{found.ambiguous_a:,} of A and {found.ambiguous_b:,} of B, whose id the runs have in different numbers. "
            "Give the inputs unique ids (id_column)."
        )
    return "".join(f"<p>{line}</p>\n" for line in lines)
