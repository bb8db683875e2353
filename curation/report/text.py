# SPDX-License-Identifier: Apache-2.0
"""The report as text: the funnel and the numbers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from curation.errors import counted
from curation.packing.forms import FORMS
from curation.reading.formats import FORMATS, STREAMED
from curation.system.terminal import aligned, fitted, printable_line, short_number

LARGEST = 5  # reasons of a step in the funnel
SHORT = "short"  # the reason of a rule for a minimum number of words


def numbers(content: dict[str, Any]) -> dict[str, Any]:
    """Return the key numbers of a report (content of `report.json`).

    They are original, duplicates_removed, duplicates_removed_by_stage, kept, raw_bytes, final_bytes and retention (kept
    without copies / original). short_removed is there if a rule has the reason `short`; tokens and tokens_per_byte if
    the run writes tokens. Each form adds its own numbers.
    """
    documents, stages = content["documents"], content["stages"]
    finds = [stage for stage in stages if stage.get("finds_duplicates", stage.get("compares"))]
    duplicates = {stage["name"]: sum(stage["reasons"].values()) for stage in finds}
    short = [stage["reasons"].get(SHORT, 0) for stage in stages if SHORT in _reasons(content, stage["name"])]
    result: dict[str, Any] = {
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
        tokens = content["tokens"]
        result |= {"tokens": tokens["count"], "tokens_per_byte": tokens["per_byte"]}
        result["tokens_per_document"] = round(tokens["count"] / max(tokens["documents"], 1), 3)
    for form, splits in content["forms"].items():
        result |= FORMS[form].numbers(list(splits.values()))
    return result


def _reasons(content: dict[str, Any], name: str) -> list[str]:
    """The reasons of a stage's rules in the recipe, including reasons of count 0."""
    names = [stage["name"] for stage in content["stages"]]
    rules = content["recipe"]["stages"][names.index(name)].get("rules", [])
    return [rule.get("reason", "") for rule in rules if isinstance(rule, dict)]


def missing_documents(content: dict[str, Any]) -> list[str]:
    """Return a line about a run without `documents/`; an empty list for any other run."""
    if content["recipe"]["output"].get("documents", True):
        return []
    return ["documents/ was not written (output: {documents: false}); the kept documents are only in the tokens"]


def shown_numbers(content: dict[str, Any]) -> list[str]:
    """Return the key numbers as text: one line of totals, then the lines of each form."""
    shown = content["numbers"]
    parts = [f"original {shown['original']:,}", f"duplicates removed {shown['duplicates_removed']:,}"]
    if "short_removed" in shown:
        parts.append(f"short removed {shown['short_removed']:,}")
    parts += [f"kept {shown['kept']:,}", f"final size {shown['final_bytes'] / 1e6:,.2f} MB"]
    lines = ["; ".join(parts)]
    for form, splits in content["forms"].items():
        lines += FORMS[form].lines(list(splits.values()))
    return lines


def stage_lines(content: dict[str, Any]) -> list[str]:
    """Return the lines that stages add under the funnel, each with the stage's name."""
    return [f"{stage['name']}: {line}" for stage in content["stages"] for line in stage.get("lines", [])]


def funnel_line(content: dict[str, Any]) -> str:
    """Return the funnel as one line, with the kept documents of each removing stage and their share of its input.

    Example: `[parse] docs=1.0M  [langid] kept=600k (60%)  ...  [tokens] total=180M shards=2 per_byte=0.22`.
    """
    verbs = {FORMATS.get(file["format"], STREAMED).step for file in content["files"]}
    verb = verbs.pop() if len(verbs) == 1 else STREAMED.step
    steps = [f"[{verb}] docs={short_number(content['documents']['read'])}"]
    for stage in content["stages"]:
        if not stage.get("removes", True):
            continue
        share = stage["documents_out"] / stage["documents_in"] if stage["documents_in"] else 0.0
        steps.append(f"[{stage['name']}] kept={short_number(stage['documents_out'])} ({share:.0%})")
    if content["tokens"]:
        shards = content["numbers"].get("shards")
        shards_shown = f" shards={shards}" if shards is not None else ""
        tokens = content["tokens"]
        steps.append(f"[tokens] total={short_number(tokens['count'])}{shards_shown} per_byte={tokens['per_byte']:.3f}")
    return "  ".join(steps)


# The funnel as rows


def funnel(content: dict[str, Any]) -> list[tuple[str, str, int, float, int]]:
    """Return the rows of the funnel: (step, reason, documents, share of documents read, bytes after the step).

    Removed documents are negative. Records that `skip` and `sample` leave out are not read: their share is of
    these and the documents read.
    """
    documents = content["documents"]
    total = max(documents["read"], 1)
    rows: list[tuple[str, str, int, float, int]] = []
    if skipped := sum(source.get("skipped", 0) for source in content["sources"]):
        rows.append(("", "skipped", -skipped, skipped / (skipped + documents["read"]), 0))
    if unsampled := sum(source["not_sampled"] for source in content["sources"]):
        rows.append(("", "not sampled", -unsampled, unsampled / (unsampled + documents["read"]), 0))
    rows.append(("read", "", documents["read"], 1.0, content["bytes"]["read"]))
    if documents["rejected"]:
        rows.append(("", "rejected", -documents["rejected"], documents["rejected"] / total, 0))
    for stage in content["stages"]:
        rows.append((stage["name"], "", stage["documents_out"], stage["documents_out"] / total, stage["bytes_out"]))
        rows += [("", reason, -number, number / total, 0) for reason, number in stage["reasons"].items()]
    if documents["copies"]:
        rows.append(("", "copies", documents["copies"], documents["copies"] / total, 0))
    rows.append(("kept", "", documents["kept"], documents["kept"] / total, content["bytes"]["kept"]))
    return rows


def shown_rows(content: dict[str, Any], every_reason: bool) -> list[tuple[str, str, str, str]]:
    """Return the funnel as text: (step or indented reason, documents, share, MB). Of each step the `LARGEST` reasons,
    and one row for its others."""
    rows: list[tuple[str, str, str, str]] = []
    reasons: list[tuple[str, int, float]] = []

    def add_reasons() -> None:
        largest = sorted(reasons, key=lambda entry: -abs(entry[1]))
        cut = len(reasons) if every_reason or len(reasons) <= LARGEST + 1 else LARGEST
        rows.extend((f"  {name}", f"{number:+,}", f"{share:.2%}", "") for name, number, share in largest[:cut])
        if rest := largest[cut:]:
            number, share = sum(entry[1] for entry in rest), sum(entry[2] for entry in rest)
            rows.append((f"  {counted(len(rest), 'other reason')}", f"{number:+,}", f"{share:.2%}", ""))
        reasons.clear()

    for step, reason, number, share, size in funnel(content):
        if reason:
            reasons.append((reason, number, share))
            continue
        add_reasons()
        rows.append((step, f"{number:,}", f"{share:.2%}", f"{size / 1e6:,.2f}"))
    return rows


def print_funnel(content: dict[str, Any], verbose: bool = False) -> None:
    """Print the funnel, what it does not show, and the warnings of a report to standard output.

    verbose  true prints all reasons, the totals and the funnel in one line too
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("step", "documents", "share", "MB"):
        table.add_column(heading, justify="left" if heading == "step" else "right", no_wrap=True)
    for name, *numbers in shown_rows(content, verbose):
        style = "dim" if name.startswith(" ") else ""
        table.add_row(Text(printable_line(name), overflow="ellipsis"), *numbers, style=style)
    console = Console(soft_wrap=True)
    console.print(table)
    for line in _shown_lines(content, verbose):
        console.print(fitted(printable_line(line), sys.stdout), highlight=False, markup=False)
    for line in _warning_lines(content):
        console.print(fitted(printable_line(line), sys.stdout), style="bold", highlight=False, markup=False)


def _warning_lines(content: dict[str, Any]) -> list[str]:
    return [f"warning: {warning}" for warning in content["warnings"]]


def _shown_lines(content: dict[str, Any], verbose: bool) -> list[str]:
    """The lines below the funnel."""
    totals, *forms = shown_numbers(content)
    return [
        *([totals] if verbose else []),
        *missing_documents(content),
        *stage_lines(content),
        *(f"left out {line}" for line in content["recipe"].get("left_out", [])),
        *source_rows(content["sources"]),
        *([content["funnel"]] if verbose else []),
        *_token_lines(content),
        *forms,
    ]


def _token_lines(content: dict[str, Any]) -> list[str]:
    tokens = content["tokens"]
    if not tokens:
        return []
    name, each = printable_line(tokens["tokenizer"]["name"]), tokens["count"] / max(tokens["documents"], 1)
    return [
        f"{tokens['count']:,} tokens ({name}, {tokens['dtype']}) in {counted(tokens['documents'], 'document')}, "
        f"{tokens['per_byte']:.3f} per byte, {each:,.1f} per document"
    ]


def source_rows(sources: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of inputs as aligned lines of text; an empty list for a single input."""
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
    return [*aligned([heads, *rows])]
