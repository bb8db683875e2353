# SPDX-License-Identifier: Apache-2.0
"""The numbers that reports on pretraining data quote, under the names they have there, and the funnel on one line."""

from __future__ import annotations

from typing import Any

from curation.packing.forms import FORMS

SHORT = "short"  # the reason of a rule that asks for a number of words


def numbers(content: dict[str, Any]) -> dict[str, Any]:
    """Of the content of `report.json`: original, duplicates_removed, short_removed (where a rule has the reason
    `short`), kept, raw_bytes, final_bytes, retention (of `original`; copies do not count); tokens and tokens_per_byte;
    and what each form has."""
    documents, stages = content["documents"], content["stages"]
    duplicates = {stage["name"]: sum(stage["reasons"].values()) for stage in stages if stage.get("compares")}
    short = [stage["reasons"].get(SHORT, 0) for stage in stages if SHORT in _reasons(content, stage["name"])]
    found: dict[str, Any] = {
        "original": documents["read"],
        "duplicates_removed": sum(duplicates.values()),
        "duplicates_removed_by_stage": duplicates,
        **({"short_removed": sum(short)} if short else {}),
        "kept": documents["kept"],
        "raw_bytes": content["bytes"]["read"],
        "final_bytes": content["bytes"]["kept"],
        "retention": round((documents["kept"] - documents["copies"]) / max(documents["read"], 1), 6),
    }
    if content["tokens"]:
        found |= {"tokens": content["tokens"]["count"], "tokens_per_byte": content["tokens"]["per_byte"]}
    for form, splits in content["forms"].items():
        found |= FORMS[form].numbers(list(splits.values()))
    return found


def _reasons(content: dict[str, Any], name: str) -> list[str]:
    """The reasons that the rules of a stage give in the recipe; those that never fired too."""
    names = [stage["name"] for stage in content["stages"]]
    rules = content["recipe"]["stages"][names.index(name)].get("rules", [])
    return [rule.get("reason", "") for rule in rules if isinstance(rule, dict)]


def shown_numbers(content: dict[str, Any]) -> list[str]:
    """The same for people, on a line or two."""
    found = content["numbers"]
    parts = [f"original {found['original']:,}", f"duplicates removed {found['duplicates_removed']:,}"]
    if "short_removed" in found:
        parts.append(f"short removed {found['short_removed']:,}")
    parts += [f"kept {found['kept']:,}", f"final size {found['final_bytes'] / 1e6:,.2f} MB"]
    lines = ["; ".join(parts)]
    for form, splits in content["forms"].items():
        lines += FORMS[form].lines(list(splits.values()))
    return lines


def stage_lines(content: dict[str, Any]) -> list[str]:
    """What the stages of a run say of themselves."""
    return [f"{stage['name']}: {line}" for stage in content["stages"] for line in stage.get("lines", [])]


def funnel_line(content: dict[str, Any]) -> str:
    """`[parse] docs=1.0M  [langid] kept=600k (60%)  ...  [tokens] total=180M shards=2 per_byte=0.22`: of each stage
    that removes, what it left and how much that is of what came to it."""
    archives = all(file["format"] in ("wet", "warc") for file in content["files"])
    steps = [f"[{'parse' if archives else 'read'}] docs={short_number(content['documents']['read'])}"]
    for stage in content["stages"]:
        if not stage.get("removes", True):
            continue
        share = stage["documents_out"] / stage["documents_in"] if stage["documents_in"] else 0.0
        steps.append(f"[{stage['name']}] kept={short_number(stage['documents_out'])} ({share:.0%})")
    if content["tokens"]:
        shards = content["numbers"].get("shards")
        told = f" shards={shards}" if shards is not None else ""
        tokens = content["tokens"]
        steps.append(f"[tokens] total={short_number(tokens['count'])}{told} per_byte={tokens['per_byte']:.3f}")
    return "  ".join(steps)


def short_number(number: int) -> str:
    """999, 1.0k, 12.3k, 600k, 1.0M, 180M."""
    value, unit = float(number), ""
    for unit in ("", "k", "M"):
        if value < 999.5 or unit == "M":
            break
        value /= 1000
    return f"{value:.1f}{unit}" if unit and value < 99.95 else f"{value:.0f}{unit}"
