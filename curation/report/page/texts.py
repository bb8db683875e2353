# SPDX-License-Identifier: Apache-2.0
"""Samples of removed and kept documents with the part that broke the rule, and pairs of duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from curation.errors import counted
from curation.report.page.parts import fit, number, shown, shown_block

SAMPLE_BYTES, KEPT_BYTES, PAIR_BYTES = 330_000, 50_000, 130_000


def samples(content: dict[str, Any]) -> str:
    """Return the samples of kept documents, and of removed ones by reason; "" without samples."""
    texts = content.get("texts", {})
    removed, kept = texts.get("removed", []), texts.get("kept", [])
    parts = [fit(_reasons(removed), "reason", len(removed), SAMPLE_BYTES)]
    if kept:
        named = (sample(entry, f"k{place}") for place, entry in enumerate(kept))
        listed = fit(named, "document", len(kept), KEPT_BYTES)
        title = f'kept <span class="quiet">{counted(len(kept), "sample")}</span>'
        parts.append(f'<details><summary>{title}</summary>\n<div class="samples">{listed}</div></details>\n')
    return "".join(parts)


def _reasons(entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    first = next((index for index, entry in enumerate(entries) if _is_by_rule(entry)), 0)
    for index, entry in enumerate(entries):
        found = entry["samples"]
        title = (
            f'{shown(entry["reason"])} <span class="quiet">{shown(entry["stage"])}; '
            f"{counted(len(found), 'sample')} of {entry['documents']:,} removed</span>"
        )
        named = (sample(entry, f"r{index}.{place}") for place, entry in enumerate(found))
        inner = f'<div class="samples">{"".join(named)}</div>'
        opened = " open" if index == first else ""
        yield f"<details{opened}><summary>{title}</summary>\n{inner}</details>\n"


def _is_by_rule(entry: dict[str, Any]) -> bool:
    return any(found["marks"] for found in entry["samples"])


def sample(entry: dict[str, Any], name: str = "") -> str:
    """Return a document with its place, its value and bound, and its text with the marked part. The script finds it by
    its name."""
    facts = [f"<b>{shown(entry['id'])}</b>"]
    data = f' data-sample="{name}" data-input="{shown(entry["source"])}"' if name else ""
    if name and entry.get("value") is not None:
        data += f' data-value="{entry["value"]!r}"'
    if entry.get("value") is not None and entry.get("bound") is not None:
        facts.append(f"value {number(entry['value'])}, bound {number(entry['bound'])}")
    if entry.get("kept") is not None:
        facts.append(f"the text of {shown(entry['kept'])}, which was kept")
    line = f", line {entry['line']:,}" if entry.get("line") is not None else ""
    facts.append(f"{shown(entry['file'])}{line} of {shown(entry['source'])}")
    text, first = entry["text"], entry["start"]
    left = entry["characters"] - first - len(text)
    before = f'<span class="quiet">(… {counted(first, "character")})</span> ' if first else ""
    after = f' <span class="quiet">(… {counted(left, "more character")})</span>' if left > 0 else ""
    shown_text = shown_block(text, [(start, stop) for start, stop in entry["marks"]])
    return (
        f'<div class="sample"{data}><div class="where">{" · ".join(facts)}</div>\n'
        f'<div class="text">{before}{shown_text}{after}</div></div>\n'
    )


def pairs(content: dict[str, Any]) -> str:
    """Return the pairs of duplicates, with removed and kept texts side by side; "" without pairs."""
    groups = content.get("texts", {}).get("pairs", [])
    entries = [(group, pair) for group in groups for pair in group["pairs"]]
    return fit((_pair(*entry) for entry in entries), "pair", len(entries), PAIR_BYTES)


def _pair(group: dict[str, Any], pair: dict[str, Any]) -> str:
    names = {"jaccard": "Jaccard", "cosine": "cosine"}
    value = "".join(f" · {name} {pair[key]:.3f}" for key, name in names.items() if pair.get(key) is not None)
    if link := pair.get("link"):
        value += f" · joined through <b>{shown(link['id'])}</b>, Jaccard {link['jaccard']:.3f}"
    sides = enumerate((("removed", "id"), ("kept", "kept")))
    columns = "".join(
        f'<div><div class="where">{name} <b>{shown(pair[key])}</b></div>\n'
        f'<div class="text">{_side(pair, side)}</div></div>\n'
        for side, (name, key) in sides
    )
    where = f"{shown(group['reason'])} by {shown(group['stage'])}{value}"
    return f'<div class="sample"><div class="where">{where}</div>\n<div class="pair">{columns}</div></div>\n'


def _side(pair: dict[str, Any], side: int) -> str:
    words = ((run[side], run[2]) for run in pair["runs"] if run[side])
    parts = (shown_block(text) if equal else f"<mark>{shown_block(text)}</mark>" for text, equal in words)
    return " ".join(parts) + (" …" if pair["cut"] else "")
