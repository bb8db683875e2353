# SPDX-License-Identifier: Apache-2.0
"""Time and memory, the data card, the recipe, and the files of the run."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import yaml

from curation.errors import counted
from curation.report.page.parts import definitions, fit, row, share, shown, size, table
from curation.report.text import missing_documents
from curation.system.terminal import printable_line

MAX_OUTPUTS, MAX_SOURCES, MAX_STAGES = 400, 200, 200
RECIPE_BYTES, OUTPUT_BYTES, CARD_BYTES, TIME_BYTES = 120_000, 100_000, 80_000, 60_000


def times(content: dict[str, Any]) -> str:
    """Return the seconds and the rate of each stage, and the memory of the run."""
    stages = content["stages"]
    work = content.get("work_seconds", {})
    others = [("reading", work.get("read", 0.0)), ("documents/ and tokens", work.get("outputs", 0.0))]
    longest = max([*(stage["seconds"] for stage in stages), *(seconds for _, seconds in others)], default=0.0)
    rows = [_time(stage["name"], stage["seconds"], longest, _rate(stage)) for stage in stages[:MAX_STAGES]]
    rows = [_time(*others[0], longest), *rows, _time(*others[1], longest)]
    memory = content.get("peak_memory_bytes", 0)
    peak = f" and at most {size(memory)} of memory in the main process" if memory else ""
    whole = f"The run took {content['seconds']:,.1f} s{peak}. The seconds of a stage are added up over its tasks."
    return fit(rows, "stage", len(stages) + 2, TIME_BYTES) + f'<p class="quiet">{whole}</p>\n'


def _time(name: str, seconds: float, longest: float, rate: str = "") -> str:
    return (
        f'<div class="step time"><span class="name">{shown(name)}</span>'
        f'<span class="middle"><div class="bar" style="width:{share(seconds, longest):.2%}"></div></span>'
        f'<span class="count">{seconds:,.1f} s{rate}</span></div>\n'
    )


def _rate(stage: dict[str, Any]) -> str:
    return f", {stage['bytes_in'] / stage['seconds'] / 1e6:,.0f} MB/s" if stage["seconds"] >= 0.01 else ""


def lines(entries: Sequence[str]) -> str:
    """Return the lines below the funnel, as the terminal shows them."""
    return fit((f"<p>{shown(line)}</p>\n" for line in entries), "line", len(entries), 40_000)


def data_card(content: dict[str, Any]) -> str:
    """Return what a user of the data must know, without texts or paths: it may be published with the data."""
    documents, tokens = content["documents"], content["tokens"]
    facts = [
        ("Documents", f"{documents['kept']:,}, of which {documents['copies']:,} are further copies"),
        ("Text", size(content["bytes"]["kept"])),
        ("Read", f"{documents['read']:,} documents of {counted(len(content['files']), 'file')}"),
        ("Edited", f"{documents.get('edited', 0):,} documents"),
        ("Repaired", f"malformed UTF-8 in {documents.get('repaired', 0):,} documents"),
        ("Digest of the documents", content["documents_digest"]),
        ("Made with", ", ".join(map(" ".join, content.get("versions", {}).items()))),
    ]
    facts += [("Kept documents", line) for line in missing_documents(content)]
    if tokens:
        spec = tokens["tokenizer"]
        listed = f"{spec['name']}, {tokens['vocabulary']:,} entries, SHA-256 {spec.get('sha256', '')}"
        facts[2:2] = [("Tokens", f"{tokens['count']:,} as {tokens['dtype']}"), ("Tokenizer", listed)]
    if splits := content["recipe"]["output"]["splits"]:
        facts.append(("Splits", ", ".join(f"{name} {part:g}" for name, part in splits.items())))
    languages = content.get("values", {}).get("languages", {}).get("kept", {})
    if languages:
        ranked = sorted(languages.items(), key=lambda pair: (-pair[1], pair[0]))
        facts.append(("Languages", ", ".join(f"{name} {number:,}" for name, number in ranked)))
    return definitions(facts) + _card_sources(content) + _processing(content["stages"])


def _card_sources(content: dict[str, Any]) -> str:
    entries = content["sources"]
    total = max(sum(entry["bytes_kept"] for entry in entries), 1)
    rows = [
        row(
            (
                shown(entry["name"]),
                shown(entry.get("licence") or "not stated"),
                f"{entry['documents_kept']:,}",
                size(entry["bytes_kept"]),
                f"{entry['bytes_kept'] / total:.1%}",
                shown(entry.get("commit", "")[:12]),
            )
        )
        for entry in entries[:MAX_SOURCES]
    ]
    inner = fit(rows, "source", len(entries), CARD_BYTES)
    body, _, more = inner.rpartition("</tr>\n")
    heads = ("source", "licence", "documents", "text", "share", "commit")
    return "<h3>Sources</h3>\n" + table(heads, f"{body}</tr>\n" if body else "") + more


def _processing(stages: Sequence[dict[str, Any]]) -> str:
    steps = [
        row((shown(stage["name"]), shown(stage["kind"]), f"{stage['documents_in']:,}",
             f"{stage['documents_in'] - stage['documents_out']:,}", f"{stage['edited']:,}"))
        for stage in stages[:MAX_STAGES]
    ]  # fmt: skip
    if not steps:
        return ""
    inner = fit(steps, "stage", len(stages), CARD_BYTES)
    body, _, more = inner.rpartition("</tr>\n")
    return "<h3>Processing</h3>\n" + table(("stage", "kind", "documents", "removed", "edited"), f"{body}</tr>\n") + more


def recipe(content: dict[str, Any]) -> str:
    """Return the recipe with all defaults."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # 0.01 s in place of 0.1 s
    text = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True)
    escaped = html.escape("\n".join(map(printable_line, text[:RECIPE_BYTES].splitlines())))
    if cut := len(escaped.encode()) > RECIPE_BYTES or len(text) > RECIPE_BYTES:
        escaped = escaped.encode()[:RECIPE_BYTES].decode(errors="ignore").rpartition("\n")[0]
    end = "\n# cut; report.json has it all" if cut else ""
    return f"<details><summary>All settings, with defaults</summary><pre>{escaped}{end}</pre></details>\n"


def outputs(digests: dict[str, str]) -> str:
    """Return the files of the run with their digests."""
    rows = (row((shown(path), f"<code>{shown(digest)}</code>")) for path, digest in list(digests.items())[:MAX_OUTPUTS])
    inner = fit(rows, "file", len(digests), OUTPUT_BYTES)
    body, _, more = inner.rpartition("</tr>\n")
    listed = table(("file", "SHA-256"), f"{body}</tr>\n" if body else "") + more
    return f"<details><summary>{counted(len(digests), 'file')} with digests</summary>{listed}</details>\n"
