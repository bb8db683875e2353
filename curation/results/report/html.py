# SPDX-License-Identifier: Apache-2.0
"""Makes `report.html`: one page without images and links to other files, for screens of any width and for print.

The templates are in `page/`, one per section. Each list has a limit in bytes, so that the page of any run is smaller
than MAX_BYTES.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from curation.base.errors import counted
from curation.results.report.page.charts import histogram, pairs_of_bars, single
from curation.results.report.page.live import SCRIPT, SCRIPT_DIGEST, Sliders
from curation.results.report.page.rendering import number, percent, ranked, rendered
from curation.results.report.text import ONE_LINE, form_lines, funnel_line, missing_documents, stage_lines, totals
from curation.rules.group_tallies import SHOWN_GROUPS
from curation.stages.base import counts_line
from curation.tokens.blend_phases import phase_table

MAX_BYTES = 3_300_000  # including 1.75 MB for the sample of measures
SHOWN_INPUTS = 5  # inputs named in the title
MAX_CUTTING = 4  # stages that cut spans, with a section each
RULES_BYTES = 300_000  # for all histograms of a page
SECTIONS = {  # name of the template and link -> title of the section, and text of the link ("": the title)
    "funnel": ("What happened to the documents", "Funnel"),
    "rules": ("Rules and their bounds", ""),
    "documents": ("Documents before and after", ""),
    "groups": ("Groups of duplicates", ""),
    "spans": ("Repeated spans", ""),
    "samples": ("Samples of removed and kept documents", "Samples"),
    "pairs": ("Pairs of duplicates", ""),
    "time": ("Time and memory", ""),
    "stages": ("Stages in words", ""),
    "card": ("Data card", ""),
    "recipe": ("Recipe", ""),
    "files": ("Files", ""),
}


def as_html(content: dict[str, Any]) -> str:
    """Return a report (content of `report.json`) as a complete page."""
    known = content | {
        "heading": f"Report of recipe {name}" if (name := content["recipe"]["name"]) else "Report of a run",
        "inputs": _inputs([source["name"] for source in content["sources"]]),
        "one_line": ONE_LINE + funnel_line(content),
        "lines": [*form_lines(content), *stage_lines(content)],
        "missing": missing_documents(content),
        "totals": totals(content),
        "sliders": Sliders(content),
        "judging": _judging(content["stages"]),
        "cutting": [stage for stage in content["stages"] if stage.get("details", {}).get("lengths")][:MAX_CUTTING],
        "timed": _timed(content),
        "recipe_lines": _recipe(content["recipe"]),
        **_documents(content),
        **_texts(content["texts"]),
        **FUNCTIONS,
    }
    texts = known["texts"]
    lacked = {"rules": known["judging"], "spans": known["cutting"], "samples": texts["kept"] + texts["removed"]}
    lacked |= {name: texts[name] for name in ("groups", "pairs")}
    sections = {
        name: (*titles, rendered(f"{name}.html", known)) for name, titles in SECTIONS.items() if lacked.get(name, True)
    }
    script = {"script": SCRIPT, "script_digest": SCRIPT_DIGEST}
    return rendered("report.html", known | script | {"sections": sections})


def _inputs(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - SHOWN_INPUTS, 'input')} more" if len(names) > SHOWN_INPUTS else ""
    return f"{counted(len(names), 'input')}: {', '.join(names[:SHOWN_INPUTS])}{more}"


def _judging(stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stages with rules on measures, or with groups of documents that have their own rules."""
    found = [_of_units(stage) if stage.get("unit_rules") else stage for stage in stages]
    found = [stage for stage in found if stage.get("rules") or stage.get("groups")]
    judging = []
    for stage in found:
        rules, groups = by_beyond(stage.get("rules", [])), stage.get("groups", [])
        active = [rule for rule in rules if rule["below"] + rule["above"]]
        share = {"max_bytes": RULES_BYTES // (len(found) * (bool(rules) + len(groups)))}
        judging.append(
            stage | share | {"rules": rules, "active": active, "idle": rules[len(active) :], "groups": groups}
        )
    return judging


def _of_units(stage: dict[str, Any]) -> dict[str, Any]:
    """Return a stage with rules on units, with the keys that a stage with rules on documents has."""
    start, details = "cut_units/", stage["details"]
    cut = {name.removeprefix(start): count for name, count in details.items() if name.startswith(start)}
    return stage | {"rules": stage["unit_rules"], "documents_in": details["units"], "reasons": cut}


def by_beyond(rules: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rules sorted by the number of documents that break them, the largest number first."""
    return sorted(rules, key=lambda rule: -(rule["below"] + rule["above"]))


def removed_of(groups: Sequence[dict[str, Any]]) -> int:
    """Return the number of documents of groups that rules removed."""
    return sum(sum(group["reasons"].values()) for group in groups)


def rule_text(rule: Mapping[str, Any]) -> str:
    """Return the measure of a rule with its bounds."""
    bounds = [f"{sign} {number(rule[name])}" for sign, name in (("≥", "min"), ("≤", "max")) if name in rule]
    return f"{rule['measure']} {' and '.join(bounds)}"


def most_removed(entry: Mapping[str, Any]) -> str:
    """Return the reason that removes the most documents of a language or an input; "" for an empty entry."""
    return f"{entry['stage']}: {entry['reason']} ({entry['documents']:,})" if entry else ""


def _documents(content: dict[str, Any]) -> dict[str, Any]:
    """Return the histograms, the languages, and the counts of records that were not read."""
    values, sources = content["values"], content["sources"]
    languages = values.get("languages") or {"read": {}, "kept": {}}
    read, kept = languages["read"], languages["kept"]
    names = sorted({*read, *kept}, key=lambda name: (-read.get(name, 0), name))
    total, left = sum(read.values()), sum(kept.values())
    most = values.get("most_removed", {})
    rows = []
    for name in names:
        first, last = read.get(name, 0), kept.get(name, 0)
        shares = percent(first, total), last, percent(last, left), percent(min(last, first), first)
        rows.append((name, first, *shares, most_removed(most.get(name, {}))))
    has_lengths = values.get("read_bytes", {}).get("counts") and "kept_bytes" in values
    has_ratios = values.get("tokens_per_byte", {}).get("counts")
    return {
        "not_sampled": sum(source["not_sampled"] for source in sources),
        "skipped": sum(source.get("skipped", 0) for source in sources),
        "lengths": pairs_of_bars(values["read_bytes"], values["kept_bytes"], "B") if has_lengths else None,
        "ratios": single(values["tokens_per_byte"]) if has_ratios else None,
        "languages": rows,
        "epochs": phase_table(content["phases"]) if content.get("phases") else [],
        "kept_languages": ", ".join(f"{name} {count:,}" for name, count in ranked(kept)),
    }


def _texts(texts: dict[str, Any]) -> dict[str, Any]:
    """Return `texts`, in which each pair is together with its group. Also return the index of the first reason whose
    samples have marked parts."""
    texts = {"kept": [], "removed": [], "pairs": [], "groups": []} | texts  # `ReportTexts` lets a report lack them
    by_rule = (any(found["marks"] for found in entry["samples"]) for entry in texts["removed"])
    pairs = [(group, pair) for group in texts["pairs"] for pair in group["pairs"]]
    return {
        "texts": texts | {"pairs": pairs},
        "opened": next((place for place, is_by_rule in enumerate(by_rule) if is_by_rule), 0),
    }


def _timed(content: dict[str, Any]) -> list[tuple[str, float, int]]:
    """Return name, seconds and bytes of each step."""
    work = content["work_seconds"]
    stages = [(stage["name"], stage["seconds"], stage["bytes_in"]) for stage in content["stages"][:200]]
    return [("reading", work.get("read", 0.0), 0), *stages, ("documents/ and tokens", work.get("outputs", 0.0), 0)]


def _recipe(recipe: dict[str, Any]) -> list[str]:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # 0.01 s in place of 0.1 s
    return str(yaml.dump(recipe, Dumper=dumper, sort_keys=False, allow_unicode=True)).splitlines()


FUNCTIONS = {
    "SHOWN_GROUPS": SHOWN_GROUPS, "by_beyond": by_beyond, "counts_line": counts_line,
    "histogram": histogram, "most_removed": most_removed, "removed_of": removed_of,
    "rule_text": rule_text,
}  # fmt: skip
__all__ = ["MAX_BYTES", "as_html"]
