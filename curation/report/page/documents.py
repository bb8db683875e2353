# SPDX-License-Identifier: Apache-2.0
"""Documents before and after: lengths, tokens per byte, languages, inputs; and groups of duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curation.errors import counted
from curation.report.page.charts import pairs_of_bars, single
from curation.report.page.parts import fit, percent, row, share, shown, size, table
from curation.report.page.texts import sample

MAX_SOURCES, MAX_LANGUAGES, MAX_GROUPS = 200, 30, 10
SOURCE_BYTES = 100_000
EMPTY: dict[str, Any] = {"share": False, "bins": [], "counts": []}


def before_and_after(content: dict[str, Any]) -> str:
    """Return the histograms of lengths and tokens, the languages, and the inputs."""
    values = content.get("values", {})
    cards = []
    read, kept = values.get("read_bytes", EMPTY), values.get("kept_bytes", EMPTY)
    if read["counts"]:
        legend = '<span class="key pale"></span>read <span class="key kept"></span>kept; UTF-8 bytes'
        cards.append(_card("Length of the text", pairs_of_bars(read, kept, "bytes of text per document", "B"), legend))
    tokens = values.get("tokens_per_byte", EMPTY)
    if tokens["counts"]:
        note = f"kept documents; {content['tokens']['per_byte']:.3f} over all text" if content["tokens"] else ""
        cards.append(_card("Tokens per byte", single(tokens, "tokens per byte of kept documents"), note))
    charts = f'<div class="cards">{"".join(cards)}</div>\n' if cards else ""
    languages = _languages(values.get("languages", {}), values.get("most_removed", {}))
    return charts + languages + sources(content["sources"])


def _card(title: str, chart: str, note: str) -> str:
    return f'<div class="card"><h3>{title}</h3>\n{chart}<p class="quiet">{note}</p></div>\n'


def _languages(languages: dict[str, dict[str, int]], most_removed: dict[str, dict[str, Any]]) -> str:
    if not languages:
        return ""
    read, kept = languages["read"], languages["kept"]
    names = sorted({*read, *kept}, key=lambda name: (-read.get(name, 0), name))
    total, left = sum(read.values()), sum(kept.values())
    rows = (
        row((shown(name), f"{read.get(name, 0):,}", percent(read.get(name, 0), total), f"{kept.get(name, 0):,}",
             percent(kept.get(name, 0), left), f"{share(kept.get(name, 0), read.get(name, 0)):.1%}",
             _most_removed(most_removed.get(name))))
        for name in names[:MAX_LANGUAGES]
    )  # fmt: skip
    listed = "".join(rows)
    heads = ("language", "identified", "share", "kept", "share", "share kept", "most removed by")
    more = fit((), "language", max(len(names) - MAX_LANGUAGES, 0), 0)
    return "<h3>Languages</h3>\n" + table(heads, listed) + more


def _most_removed(entry: dict[str, Any] | None) -> str:
    return "" if entry is None else f"{shown(entry['stage'])}: {shown(entry['reason'])} ({entry['documents']:,})"


def sources(entries: Sequence[dict[str, Any]]) -> str:
    """Return the table of inputs."""
    drawn = any("share_drawn" in entry for entry in entries)
    numbers = ("documents read", "kept", "share kept", "text read", "text kept", "tokens")
    heads = ("input", *numbers, "share of text", "afterwards", *(("drawn",) if drawn else ()), "most removed by")
    rows = fit((_source(entry, drawn) for entry in entries[:MAX_SOURCES]), "input", len(entries), SOURCE_BYTES)
    body, _, more = rows.rpartition("</tr>\n")
    return "<h3>Inputs</h3>\n" + table(heads, f"{body}</tr>\n" if body else "") + more


def _source(entry: dict[str, Any], drawn: bool) -> str:
    return row(
        (
            shown(entry["name"]),
            f"{entry['documents_read']:,}",
            f"{entry['documents_kept']:,}",
            f"{share(entry['documents_kept'] - entry['copies'], entry['documents_read']):.1%}",
            size(entry["bytes_read"]),
            size(entry["bytes_kept"]),
            f"{entry['tokens']:,}",
            f"{entry['share_before']:.2%}",
            f"{entry['share_after']:.2%}",
            *((f"{entry.get('share_drawn', 0):.2%}",) if drawn else ()),
            _most_removed(entry.get("most_removed")),
        )
    )


def groups(content: dict[str, Any]) -> str:
    """Return the groups of duplicates by size, with the largest one; "" if no stage found any."""
    found = content.get("texts", {}).get("groups", [])
    return "".join(map(_group, found[:MAX_GROUPS]))


def _group(group: dict[str, Any]) -> str:
    most = max((number for _, number in group["sizes"]), default=1)
    bars = "".join(
        f'<div class="step reason"><span class="name">{_range(power)}</span><span class="middle"><div class="bar" '
        f'style="width:{share(number, most):.2%}"></div></span><span class="count">{counted(number, "group")}</span>'
        "</div>\n"
        for power, number in group["sizes"]
    )
    largest = group["document"]
    title = f"the largest group, of {counted(group['largest'], 'document')}; kept: {shown(largest['id'])}"
    text = f"<details><summary>{title}</summary>\n{sample(largest)}</details>\n" if "text" in largest else ""
    line = "" if text else f"<p>{title}</p>\n"
    return f"<h3>{shown(group['stage'])}: {counted(group['groups'], 'group')} of duplicates</h3>\n{bars}{text}{line}"


def _range(power: int) -> str:
    low, high = 2 ** (power - 1) + 1, 2**power
    return f"{max(low, 2):,} documents" if max(low, 2) >= high else f"{low:,} to {high:,} documents"
