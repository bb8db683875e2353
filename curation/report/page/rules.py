# SPDX-License-Identifier: Apache-2.0
"""The rules of each filter: a histogram with the bound, and the documents beyond it."""

from __future__ import annotations

import math
from typing import Any

from curation.errors import counted
from curation.report.page.charts import histogram
from curation.report.page.live import Sliders
from curation.report.page.parts import fit, number, percent, shown
from curation.rules.group_tallies import SHOWN_GROUPS
from curation.stages.base import counts_line

MAX_RULES = 80
MAX_REASONS = 8  # of a group
RULES_BYTES = 300_000  # of the histograms of one page


def rules(content: dict[str, Any], sliders: Sliders) -> str:
    """Return the histograms of all rules on measures, and those of groups of documents with rules of their own; "" if
    no stage has any."""
    judged = [_of_units(stage) if stage.get("unit_rules") else stage for stage in content["stages"]]
    stages = [stage for stage in judged if stage.get("rules") or stage.get("groups")]
    if not stages:
        return ""
    legend = (
        '<p class="quiet"><span class="key kept"></span>within the bound <span class="key removed"></span>beyond it. '
        "All documents, or lines of them, that reached the stage; a bar grows with the logarithm of their number.</p>\n"
    )
    sections = []
    for stage in stages:
        columns = stage.get("groups", [])
        max_bytes = RULES_BYTES // (len(stages) * (bool(stage.get("rules")) + len(columns)))
        body = _stage(stage, sliders, max_bytes) if stage.get("rules") else ""
        body += "".join(_groups(stage, sliders, number, max_bytes) for number in range(len(columns)))
        sections.append(sliders.wrapped(stage["name"], body))
    return legend + "".join(sections)


def _of_units(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage that judges units, as if they were documents."""
    start, details = "cut_units/", stage["details"]
    cut = {name.removeprefix(start): count for name, count in details.items() if name.startswith(start)}
    return stage | {"rules": stage["unit_rules"], "documents_in": details["units"], "reasons": cut}


def _stage(stage: dict[str, Any], sliders: Sliders, max_bytes: int) -> str:
    entries = sorted(stage["rules"], key=lambda rule: -(rule["below"] + rule["above"]))
    active = [rule for rule in entries if rule["below"] + rule["above"]]
    idle = entries[len(active) :]
    unit = stage.get("unit", "document")
    heading = f"<h3>{shown(stage['name'])}: {stage['documents_in']:,} {unit}s</h3>\n"
    cards, idle_cards = (
        (_card(rule, stage, sliders.mark(stage["name"], rule)) for rule in part[:MAX_RULES]) for part in (active, idle)
    )
    used = fit(cards, "rule", len(active), max_bytes * 3 // 4)
    unused = fit(idle_cards, "rule", len(idle), max_bytes // 4)
    more = f"{counted(len(idle), 'rule')} that no {unit} breaks"
    folded = f'<details><summary>{more}</summary>\n<div class="cards">{unused}</div></details>\n' if idle else ""
    return f'{heading}<div class="cards">{used}</div>\n{folded}'


def _groups(stage: dict[str, Any], sliders: Sliders, number: int, max_bytes: int) -> str:
    column = stage["groups"][number]
    first, others = column["groups"][:SHOWN_GROUPS], column["groups"][SHOWN_GROUPS:]
    share = max_bytes * 3 // (4 * max(len(first), 1))
    entries = (_group(stage, entry, sliders, (number, place), share) for place, entry in enumerate(first))
    folded = fit(entries, "group", len(first), max_bytes)
    reasons = [count for entry in others for count in entry["reasons"].values()]
    counts = _counts(sum(entry["documents"] for entry in others), sum(reasons))
    rest = f'<p class="quiet">and {counted(len(others), "group")} more: {counts}</p>\n' if others else ""
    heading = f"<h3>{shown(stage['name'])} per {shown(column['column'])}: {stage['documents_in']:,} documents</h3>\n"
    return heading + folded + rest


def _group(
    stage: dict[str, Any], group: dict[str, Any], sliders: Sliders, place: tuple[int, int], max_bytes: int
) -> str:
    """The rules of a group. `place`: of its column, and of the group in it; the first one, the largest, is open."""
    own = stage | {"documents_in": group["documents"], "reasons": group["reasons"]}
    rules = sorted(group.get("rules", []), key=lambda rule: -(rule["below"] + rule["above"]))
    marked = (_card(rule, own, sliders.mark(stage["name"], rule, *place), small=True) for rule in rules[:MAX_RULES])
    cards = fit(marked, "rule", len(rules), max_bytes)
    reasons = shown(counts_line(group["reasons"], MAX_REASONS) or "none removed")
    counts = _counts(group["documents"], sum(group["reasons"].values()))
    return (
        f"<details{' open' * (place[1] == 0)}><summary>{shown(group['group'])}: {counts}</summary>\n"
        f'<p class="quiet">{reasons}</p>\n<div class="cards">{cards}</div></details>\n'
    )


def _counts(documents: int, removed: int) -> str:
    return f"{counted(documents, 'document')}, {removed:,} removed ({percent(removed, documents)})"


def _card(rule: dict[str, Any], stage: dict[str, Any], mark: str = "", small: bool = False) -> str:
    low, high = rule.get("min", -math.inf), rule.get("max", math.inf)
    bounds = [f"{sign} {number(bound)}" for sign, bound in (("≥", low), ("≤", high)) if math.isfinite(bound)]
    beyond, reached = rule["below"] + rule["above"], stage["documents_in"]
    first = stage["reasons"].get(rule["reason"], 0)
    done = "cut" if stage.get("unit") else "removed"
    counts = f"{beyond:,} beyond it ({percent(beyond, reached)}), {first:,} {done} by it"
    measure = f"{rule['measure']} {' and '.join(bounds)}"
    chart = histogram(rule, low, high, f"{rule['reason']}: {counts}", small)
    heading = f'<h3>{shown(rule["reason"])}</h3><p class="quiet">{shown(measure)}</p>'
    return f'<div class="card"{mark}>{heading}\n{chart}<p>{counts}</p></div>\n'
