# SPDX-License-Identifier: Apache-2.0
"""Formats the report as text: the funnel, the key numbers, and the lines that a run prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from curation.base.errors import counted
from curation.base.system.terminal import aligned, fitted, print_escaped, printable_line, short_number
from curation.reading.formats import FORMATS, STREAMED
from curation.recipes.exports import is_one_file
from curation.record.report_schema import CLEANED
from curation.tokens.blend_phases import phase_table
from curation.tokens.forms import FORMS

SHOWN_SHARDS = 20
LARGEST = 5  # reasons of a step in the funnel
ONE_LINE = "the funnel in one line, with shares of the documents read: "
STYLES = {"dim": 2, "bold": 1}  # numbers of ECMA-48 for a terminal
SHORT = "short"  # reason of a rule with a minimum number of words


def numbers(content: dict[str, Any]) -> dict[str, Any]:
    """Return the key numbers of a report (content of `report.json`).

    They are original, duplicates_removed, duplicates_removed_by_stage, kept, raw_bytes, final_bytes, and retention
    (kept without copies / original). If a rule has the reason `short`, there is short_removed. If the run writes
    tokens, there are tokens, tokens_per_byte and tokens_per_document. Each form adds its own numbers.
    """
    documents, stages = content["documents"], content["stages"]
    finds = [stage for stage in stages if stage.get("finds_duplicates", stage.get("compares"))]
    duplicates = {stage["name"]: sum(stage["reasons"].values()) for stage in finds}
    settings = content["recipe"]["stages"]
    short = [stage["reasons"].get(SHORT, 0) for stage, own in zip(stages, settings, strict=True) if _has_short(own)]
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


def _has_short(stage: dict[str, Any]) -> bool:
    """Return whether a rule of a stage in the recipe has the reason `short`."""
    return any(rule.get("reason") == SHORT for rule in stage.get("rules", []) if isinstance(rule, dict))


def missing_documents(content: dict[str, Any]) -> list[str]:
    """Return a line about a run without `documents/`; an empty list for any other run."""
    if content["recipe"]["output"]["documents"]:
        return []
    return ["documents/ was not written (output: {documents: false}); the kept documents are only in the tokens"]


def totals(content: dict[str, Any]) -> list[str]:
    """Return the totals of a run as text, under the names that reports of published pipelines use."""
    shown, lengths = content["numbers"], _short_lengths(content)
    bounds = f" (<{lengths[0]} words)" if len(lengths) == 1 else ""
    return [
        f"Original Docs: {shown['original']:,}",
        f"Duplicates Removed: {shown['duplicates_removed']:,}",
        *([f"Short Docs Removed{bounds}: {shown['short_removed']:,}"] if "short_removed" in shown else []),
        f"Final Docs Kept: {shown['kept']:,}",
        f"Final Dataset Size: {shown['final_bytes'] / 1e6:,.2f} MB",
    ]


def _short_lengths(content: dict[str, Any]) -> list[str]:
    """Return the minimum numbers of words of the rules with the reason `short`."""
    rules = [rule for stage in content["recipe"]["stages"] for rule in stage.get("rules", []) if isinstance(rule, dict)]
    return [
        f"{rule['min']:g}"
        for rule in rules
        if rule.get("reason") == SHORT and rule.get("measure") == "words" and isinstance(rule.get("min"), int | float)
    ]


def saved_lines(content: dict[str, Any], folder: str) -> list[str]:
    """Return a line for `cleaned/` and one per shard of each form, with paths in `folder`, the folder of the run."""
    output, lines = content["recipe"]["output"], []
    if cleaned := output.get("cleaned", ""):
        lines.append(f"Cleaned data saved to: {folder}/{CLEANED}/{cleaned if is_one_file(cleaned) else ''}")
    for name, splits in content["forms"].items():
        form = msgspec.convert(output[name], FORMS[name])
        for split in splits.values():
            shards = split.get("shards", {})
            for number, (file, count) in enumerate([*shards.items()][:SHOWN_SHARDS]):
                size = form.shown_size(file, count)
                lines.append(f"Saved shard {number} to {folder}/{name}/{file}: {size}")
            if len(shards) > SHOWN_SHARDS:
                lines.append(f"Saved {counted(len(shards) - SHOWN_SHARDS, 'more shard')} to {folder}/{name}/")
    return lines


def form_lines(content: dict[str, Any]) -> list[str]:
    """Return the lines about the token files of each form."""
    return [line for name, splits in content["forms"].items() for line in FORMS[name].lines(list(splits.values()))]


def stage_lines(content: dict[str, Any]) -> list[str]:
    """Return the lines that stages add below the funnel, each with the name of its stage."""
    return [f"{stage['name']}: {line}" for stage in content["stages"] for line in stage.get("lines", [])]


def funnel_line(content: dict[str, Any]) -> str:
    """Return the funnel as one line. It has the documents after each stage that removes documents, and their share of
    the documents read.

    Example: `[parse] docs=1.0M  [langid] kept=600k (60%)  ...  [tokens] total=180M shards=2 per_byte=0.22`.
    """
    read = content["documents"]["read"]
    verbs = {FORMATS.get(file["format"], STREAMED).step for file in content["files"]}
    verb = verbs.pop() if len(verbs) == 1 else STREAMED.step
    steps = [f"[{verb}] docs={short_number(read)}"]
    for stage in content["stages"]:
        if not stage.get("removes", True):
            continue
        share = stage["documents_out"] / max(read, 1)
        steps.append(f"[{stage['name']}] kept={short_number(stage['documents_out'])} ({share:.0%})")
    if content["tokens"]:
        shards = content["numbers"].get("shards")
        shards_shown = f" shards={shards}" if shards is not None else ""
        tokens = content["tokens"]
        steps.append(f"[tokens] total={short_number(tokens['count'])}{shards_shown} per_byte={tokens['per_byte']:.3f}")
    return "  ".join(steps)


# The funnel as rows


class FunnelRow(NamedTuple):
    """A step of the funnel, or a reason of the step above it.

    documents   number of documents after the step; negative: removed for the reason
    share       share of the documents read
    step_share  share of the documents that reached the stage; None if the step is no stage
    bytes       bytes of text after the step
    """

    step: str
    reason: str
    documents: int
    share: float
    step_share: float | None = None
    bytes: int = 0


def funnel(content: dict[str, Any]) -> list[FunnelRow]:
    """Return the rows of the funnel. Records that `skip` and `sample` leave out do not count as read. Their share is
    that of all these records together with the documents read."""
    documents = content["documents"]
    total = max(documents["read"], 1)
    rows: list[FunnelRow] = []
    if skipped := sum(source.get("skipped", 0) for source in content["sources"]):
        rows.append(FunnelRow("", "skipped", -skipped, skipped / (skipped + documents["read"])))
    if unsampled := sum(source["not_sampled"] for source in content["sources"]):
        rows.append(FunnelRow("", "not sampled", -unsampled, unsampled / (unsampled + documents["read"])))
    rows.append(FunnelRow("read", "", documents["read"], 1.0, None, content["bytes"]["read"]))
    if documents["rejected"]:
        rows.append(FunnelRow("", "rejected", -documents["rejected"], documents["rejected"] / total))
    for stage in content["stages"]:
        kept, reached = stage["documents_out"], max(stage["documents_in"], 1)
        rows.append(FunnelRow(stage["name"], "", kept, kept / total, kept / reached, stage["bytes_out"]))
        for reason, number in stage["reasons"].items():
            rows.append(FunnelRow("", reason, -number, number / total, number / reached))
    if documents["copies"]:
        rows.append(FunnelRow("", "copies", documents["copies"], documents["copies"] / total))
    rows.append(FunnelRow("kept", "", documents["kept"], documents["kept"] / total, None, content["bytes"]["kept"]))
    return rows


def shown_rows(content: dict[str, Any], every_reason: bool) -> list[tuple[str, str, str, str, str]]:
    """Return the funnel as text: (step or indented reason, documents, share, share of the step, MB). Each step has its
    `LARGEST` reasons, and one row for all others."""
    rows: list[tuple[str, str, str, str, str]] = []
    reasons: list[FunnelRow] = []

    def add_reasons() -> None:
        largest = sorted(reasons, key=lambda row: -abs(row.documents))
        cut = len(reasons) if every_reason or len(reasons) <= LARGEST + 1 else LARGEST
        if rest := largest[cut:]:
            number, share, of_step = (sum(column) for column in zip(*(row[2:5] for row in rest), strict=True))
            largest[cut:] = [FunnelRow("", counted(len(rest), "other reason"), number, share, of_step)]
        rows.extend((f"  {row.reason}", f"{row.documents:+,}", *_shares(row), "") for row in largest)
        reasons.clear()

    for row in funnel(content):
        if row.reason:
            reasons.append(row)
            continue
        add_reasons()
        rows.append((row.step, f"{row.documents:,}", *_shares(row), f"{row.bytes / 1e6:,.2f}"))
    return rows


def _shares(row: FunnelRow) -> tuple[str, str]:
    return f"{row.share:.2%}", "" if row.step_share is None else f"{row.step_share:.2%}"


def print_funnel(content: dict[str, Any], verbose: bool = False) -> None:
    """Print the funnel, further lines, and the warnings of a report to standard output.

    verbose  true: also print all reasons, and the funnel in one line
    """
    rows = [tuple(map(printable_line, row)) for row in shown_rows(content, verbose)]
    for line in aligned([("step", "documents", "share", "of step", "MB"), *rows]):
        _print_styled(line, "dim" if line.startswith(" ") else "")
    for line in _shown_lines(content, verbose):
        _print_styled(printable_line(line))
    for line in _warning_lines(content):
        _print_styled(printable_line(line), "bold")


def _print_styled(line: str, style: str = "") -> None:
    """Print a line, broken to the width of a terminal, in a style of STYLES if standard output is a terminal."""
    line = fitted(line, sys.stdout)
    print_escaped(f"\x1b[{STYLES[style]}m{line}\x1b[0m" if style and sys.stdout.isatty() else line)


def has_summary(content: dict[str, Any]) -> bool:
    """Return whether the recipe asks for the totals and the saved files on the terminal."""
    return bool(content["recipe"]["report"].get("summary"))


def _warning_lines(content: dict[str, Any]) -> list[str]:
    return [f"warning: {warning}" for warning in content["warnings"]]


def _shown_lines(content: dict[str, Any], verbose: bool) -> list[str]:
    """Return the lines below the funnel."""
    return [
        *missing_documents(content),
        *stage_lines(content),
        *(f"left out {line}" for line in content["recipe"]["left_out"]),
        *source_rows(content["sources"]),
        *([ONE_LINE + content["funnel"]] if verbose or has_summary(content) else []),
        *_token_lines(content),
        *form_lines(content),
        *aligned(phase_table(phases) if (phases := content.get("phases")) else []),
    ]


def _token_lines(content: dict[str, Any]) -> list[str]:
    tokens = content["tokens"]
    if not tokens:
        return []
    name, each = printable_line(tokens["tokenizer"]["name"]), tokens["count"] / max(tokens["documents"], 1)
    empty = tokens.get("empty_documents", 0)  # a stage may remove all characters of a text
    return [
        f"{tokens['count']:,} tokens ({name}, {tokens['dtype']}) in {counted(tokens['documents'], 'document')}, "
        f"{tokens['per_byte']:.3f} per byte, {each:,.1f} per document"
        + (f"; {counted(empty, 'document')} without tokens" if empty else "")
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
