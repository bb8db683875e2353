# SPDX-License-Identifier: Apache-2.0
"""The numbers at the top, and the funnel: a bar per stage, a band between two bars, the reasons of removal."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from curation.errors import counted
from curation.report.page.parts import fit, rest, share, shown, size

MAX_REASONS, MAX_WARNINGS = 40, 100  # shown; the rest is counted
SHORT_LIST = 8  # reasons that are shown without a click
WARNING_BYTES, FUNNEL_BYTES = 50_000, 180_000


def tiles(content: dict[str, Any]) -> str:
    """Return the three numbers that matter most."""
    documents, sizes, tokens = content["documents"], content["bytes"], content["tokens"]
    kept = share(documents["kept"] - documents["copies"], documents["read"])
    text = share(sizes["kept"], sizes["read"])
    found = [
        (f"{documents['kept']:,}", f"documents kept, {kept:.1%} of {documents['read']:,}"),
        (size(sizes["kept"]), f"of text kept, {text:.1%} of {size(sizes['read'])}"),
        (f"{documents['removed']:,}", "documents removed; no tokens written"),
    ]
    if tokens:
        tokenizer = shown(tokens["tokenizer"]["name"])
        found[2] = (f"{tokens['count']:,}", f"tokens of {tokenizer}, {tokens['per_byte']:.3f} per byte")
    boxes = (f'<div class="tile"><b>{big}</b>{small}</div>' for big, small in found)
    return f'<div class="tiles">{"".join(boxes)}</div>'


def warnings(messages: Sequence[str]) -> str:
    """Return the warnings of the run."""
    entries = (f'<p class="warning"><b>Warning:</b> {shown(text)}</p>\n' for text in messages[:MAX_WARNINGS])
    return fit(entries, "warning", len(messages), WARNING_BYTES)


def funnel(content: dict[str, Any]) -> str:
    """Return what happened to the documents, from stage to stage."""
    documents = content["documents"]
    read = max(documents["read"], 1)
    unsampled = sum(source["not_sampled"] for source in content["sources"])
    skipped = sum(source.get("skipped", 0) for source in content["sources"])
    rows = [_reasons({"skipped": skipped, "not sampled": unsampled, "rejected": documents["rejected"]}, read)]
    rows.append(_bar("read", documents["read"], read, content["bytes"]["read"]))
    before = documents["read"]
    for stage in content["stages"]:
        rows.append(
            _band(before, stage["documents_out"], read)
            + _reasons(stage["reasons"], read, stage["name"])
            + _bar(stage["name"], stage["documents_out"], read, stage["bytes_out"], before)
        )
        before = stage["documents_out"]
    if documents["copies"]:
        rows.append(_bar("kept, with copies", documents["kept"], read, content["bytes"]["kept"]))
    return f'<div class="funnel">\n{fit(rows, "stage", len(rows), FUNNEL_BYTES)}</div>\n'


def _bar(name: str, documents: int, read: int, bytes_: int, reached: int = 0) -> str:
    part = share(documents, read)
    shares = f"{documents / read:.1%}" + (f" ({documents / reached:.1%} of step)" if reached else "")
    return (
        f'<div class="step"><span class="name">{shown(name)}</span>'
        f'<span class="middle"><div class="bar" style="width:{part:.2%}"></div></span>'
        f'<span class="count">{documents:,} <br><span class="quiet">{shares}, {size(bytes_)}</span>'
        "</span></div>\n"
    )


def _band(before: int, after: int, read: int) -> str:
    left, right = 1000 * share(before, read), 1000 * share(after, read)
    shape = f'<polygon points="0,0 {left:.1f},0 {right:.1f},10 0,10"/>'
    svg = f'<svg class="flow" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>'
    return f'<div class="step gap"><span></span><span class="middle">{svg}</span><span></span></div>\n'


def _reasons(reasons: dict[str, int], read: int, stage: str = "") -> str:
    ranked = sorted(filter(itemgetter(1), reasons.items()), key=lambda pair: (-pair[1], pair[0]))
    if not ranked:
        return ""
    lines = [
        f'<div class="step reason"><span class="name">{shown(name)}</span>'
        f'<span class="middle"><div class="bar" style="width:{share(number, read):.2%}"></div></span>'
        f'<span class="count">−{number:,} ({number / read:.1%})</span></div>\n'
        for name, number in ranked[:MAX_REASONS]
    ]
    summary = f"{sum(reasons.values()):,} removed by {shown(stage)}, for {len(ranked):,} reasons"
    heading = f'<p class="reason">{summary}</p>\n' if stage and len(ranked) > 1 else ""
    short = "".join(lines[:SHORT_LIST])
    longer = "".join(lines[SHORT_LIST:]) + rest(len(ranked) - MAX_REASONS, "reason")
    more = f"<details><summary>{counted(len(ranked) - SHORT_LIST, 'more reason')}</summary>\n{longer}</details>\n"
    return f"{heading}{short}{more if len(ranked) > SHORT_LIST else ''}"
