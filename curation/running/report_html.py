# SPDX-License-Identifier: Apache-2.0
"""`report.html`: one page without scripts, images or links to other files, for screens of any width and for print.

Names, reasons and paths come from untrusted files. All of them pass through `_shown`, and the page forbids scripts.
Lists are cut, so that the page stays below MAX_BYTES whatever the run.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import yaml

from curation.errors import counted
from curation.running.memory import shown_bytes
from curation.running.report_text import funnel_line, missing_documents, shown_numbers, stage_lines
from curation.system.terminal import printable_line

MAX_BYTES = 1_500_000
MAX_REASONS, MAX_SOURCES, MAX_OUTPUTS, MAX_WARNINGS = 40, 200, 400, 100  # shown; the rest is counted
SHORT_LIST = 12  # reasons that are shown without a click
MAX_CHARACTERS = 300  # of a name, reason, path or line
MAX_RECIPE_CHARACTERS = 200_000

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --panel: #f5f6f8; --ink: #16181d; --quiet: #5a6170; --line: #d9dde4;
  --kept: #4f8a00; --removed: #c2410c; --accent: #2456a6 }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --panel: #1e2127; --ink: #eceef2; --quiet: #a3abba;
  --line: #363b45; --kept: #8fd130; --removed: #ff9a62; --accent: #8db8ff } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem }
p, figure { margin: .25rem 0 } .quiet { color: var(--quiet) } .number { font-variant-numeric: tabular-nums }
.tiles { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); margin: 1.5rem 0 }
.tile { background: var(--panel); border-radius: .6rem; padding: 1rem } .tile b { display: block; font-size: 1.9rem;
  line-height: 1.2; font-variant-numeric: tabular-nums }
.step { display: grid; grid-template-columns: minmax(6rem, 11rem) 1fr 9rem; gap: 0 1rem;
  align-items: center }
.step > * { min-width: 0 } .step .name { font-weight: 600 }
.step .count { text-align: right; font-variant-numeric: tabular-nums }
.bar { height: 1.5rem; background: var(--kept); border-radius: .15rem; min-width: 1px }
.flow { display: block; width: 100%; height: 1.1rem } .flow polygon { fill: var(--kept); opacity: .3 }
.reason { font-size: .9rem; color: var(--quiet) } .reason .bar { height: .55rem; background: var(--removed) }
.time .bar { background: var(--accent); height: .8rem }
details { margin: .1rem 0 } summary { cursor: pointer; color: var(--accent) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .95rem }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8rem }
.warning { border-left: .3rem solid var(--removed); background: var(--panel); padding: .5rem .9rem; margin: .5rem 0 }
pre { background: var(--panel); border-radius: .6rem; padding: 1rem; overflow-x: auto; font-size: .85rem;
  margin: .5rem 0 }
dl { display: grid; grid-template-columns: minmax(7rem, 12rem) 1fr; gap: .3rem 1rem; margin: 0 }
dt { color: var(--quiet) } dd { margin: 0; min-width: 0 }
@media (max-width: 40rem) { .step { grid-template-columns: 1fr auto } .step .name, .step .count { grid-row: 1 }
  .step .middle { grid-column: 1 / -1; grid-row: 2 } .gap { display: none } body { padding: 1rem .75rem 3rem }
  dl { grid-template-columns: 1fr } dd { margin-bottom: .5rem } }
@media print { body { max-width: none; font-size: 11px } .tile, pre, .warning { border: 1px solid #999 }
  .bar, polygon { print-color-adjust: exact } section { break-inside: avoid-page } }
"""


def as_html(content: dict[str, Any]) -> str:
    """Return a report (content of `report.json`) as a complete page."""
    name = _shown(content["recipe"]["name"] or "run")
    engine = f"{_shown(content['engine'])} ({_shown(content['engine_reason'])})"
    memory = _size(content.get("peak_memory_bytes", 0))
    sections = [
        _warnings(content["warnings"]),
        _section("What happened to the documents", _funnel(content)),
        _section("Inputs", _sources(content["sources"])),
        _section("Stages", _lines([*shown_numbers(content), *stage_lines(content)])),
        _section("Time", _times(content)),
        _section("Data card", _data_card(content)),
        _section("Recipe", _recipe(content["recipe"])),
        _section("Files", _outputs(content["outputs"])),
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{name}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{name}</h1>
<p class="quiet">Engine {engine}; {content["seconds"]:,.1f} s; {memory} of memory</p>
{_tiles(content)}
{"".join(sections)}
<p class="quiet">{_shown(funnel_line(content))}</p>
</body>
</html>
"""


def _shown(text: object) -> str:
    """Return text from outside for the page: on one line, cut, escaped."""
    line = printable_line(text)
    return html.escape(line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}…")


def _size(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if 1e6 <= size < 1e7 else shown_bytes(size)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>\n{body}</section>\n" if body else ""


def _rest(number: int, noun: str) -> str:
    return f'<p class="quiet">and {counted(number, noun)} more</p>\n' if number > 0 else ""


def _share(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole else 0.0


def _tiles(content: dict[str, Any]) -> str:
    documents, sizes, tokens = content["documents"], content["bytes"], content["tokens"]
    kept = _share(documents["kept"] - documents["copies"], documents["read"])
    text = _share(sizes["kept"], sizes["read"])
    tiles = [
        (f"{documents['kept']:,}", f"documents kept, {kept:.1%} of {documents['read']:,}"),
        (_size(sizes["kept"]), f"of text kept, {text:.1%} of {_size(sizes['read'])}"),
        (f"{documents['removed']:,}", "documents removed; no tokens written"),
    ]
    if tokens:
        tokenizer = _shown(tokens["tokenizer"]["name"])
        tiles[2] = (f"{tokens['count']:,}", f"tokens of {tokenizer}, {tokens['per_byte']:.3f} per byte")
    shown = (f'<div class="tile"><b>{big}</b>{small}</div>' for big, small in tiles)
    return f'<div class="tiles">{"".join(shown)}</div>'


def _warnings(warnings: Sequence[str]) -> str:
    shown = "".join(
        f'<p class="warning"><b>Warning:</b> {_shown(warning)}</p>\n' for warning in warnings[:MAX_WARNINGS]
    )
    return shown + _rest(len(warnings) - MAX_WARNINGS, "warning")


# The funnel: a bar per stage, a narrowing band between two bars, and the reasons of removal


def _funnel(content: dict[str, Any]) -> str:
    documents = content["documents"]
    read = max(documents["read"], 1)
    unsampled = sum(source["not_sampled"] for source in content["sources"])
    rows = [_reasons({"not sampled": unsampled, "rejected": documents["rejected"]}, read)]
    rows.append(_bar("read", documents["read"], read, content["bytes"]["read"]))
    before = documents["read"]
    for stage in content["stages"]:
        rows.append(_band(before, stage["documents_out"], read))
        rows.append(_reasons(stage["reasons"], read, stage["name"]))
        rows.append(_bar(stage["name"], stage["documents_out"], read, stage["bytes_out"]))
        before = stage["documents_out"]
    if documents["copies"]:
        rows.append(_bar("kept, with copies", documents["kept"], read, content["bytes"]["kept"]))
    return f'<div class="funnel">\n{"".join(rows)}</div>\n'


def _bar(name: str, documents: int, read: int, size: int) -> str:
    share = _share(documents, read)
    return (
        f'<div class="step"><span class="name">{_shown(name)}</span>'
        f'<span class="middle"><div class="bar" style="width:{share:.2%}"></div></span>'
        f'<span class="count">{documents:,}<br><span class="quiet">{documents / read:.1%}, {_size(size)}</span>'
        "</span></div>\n"
    )


def _band(before: int, after: int, read: int) -> str:
    left, right = 1000 * _share(before, read), 1000 * _share(after, read)
    shape = f'<polygon points="0,0 {left:.1f},0 {right:.1f},10 0,10"/>'
    svg = f'<svg class="flow" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>'
    return f'<div class="step gap"><span></span><span class="middle">{svg}</span><span></span></div>\n'


def _reasons(reasons: dict[str, int], read: int, stage: str = "") -> str:
    ranked = sorted(filter(itemgetter(1), reasons.items()), key=lambda pair: (-pair[1], pair[0]))
    if not ranked:
        return ""
    rows = "".join(
        f'<div class="step reason"><span class="name">{_shown(name)}</span>'
        f'<span class="middle"><div class="bar" style="width:{_share(number, read):.2%}"></div></span>'
        f'<span class="count">−{number:,} ({number / read:.1%})</span></div>\n'
        for name, number in ranked[:MAX_REASONS]
    )
    rows += _rest(len(ranked) - MAX_REASONS, "reason")
    by = f" by {_shown(stage)}" if stage else ""
    summary = f"{sum(reasons.values()):,} removed{by}, for {counted(len(ranked), 'reason')}"
    return f"<details{' open' if len(ranked) <= SHORT_LIST else ''}><summary>{summary}</summary>\n{rows}</details>\n"


# Tables


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{text}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>\n'


def _sources(sources: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            _shown(entry["name"]),
            f"{entry['documents_read']:,}",
            f"{entry['documents_kept']:,}",
            f"{_share(entry['documents_kept'] - entry['copies'], entry['documents_read']):.1%}",
            _size(entry["bytes_read"]),
            _size(entry["bytes_kept"]),
            f"{entry['tokens']:,}",
            f"{entry['share_before']:.2%}",
            f"{entry['share_after']:.2%}",
            f"{entry['share_drawn']:.2%}" if "share_drawn" in entry else "",
        )
        for entry in sources[:MAX_SOURCES]
    ]
    numbers = ("documents read", "kept", "share kept", "text read", "text kept", "tokens")
    heads = ("input", *numbers, "share of text", "afterwards", "drawn")
    return _table(heads, rows) + _rest(len(sources) - MAX_SOURCES, "input")


def _times(content: dict[str, Any]) -> str:
    stages = content["stages"]
    longest = max((stage["seconds"] for stage in stages), default=0.0)
    rows = "".join(
        f'<div class="step time"><span class="name">{_shown(stage["name"])}</span>'
        f'<span class="middle"><div class="bar" style="width:{_share(stage["seconds"], longest):.2%}"></div></span>'
        f'<span class="count">{stage["seconds"]:,.1f} s{_rate(stage)}</span></div>\n'
        for stage in stages
    )
    note = "The seconds of a stage are added up over its tasks."
    whole = f'<p class="quiet">The run took {content["seconds"]:,.1f} s. {note}</p>\n'
    return rows + whole if stages else ""


def _rate(stage: dict[str, Any]) -> str:
    return f", {stage['bytes_in'] / stage['seconds'] / 1e6:,.0f} MB/s" if stage["seconds"] >= 0.01 else ""


def _lines(lines: Sequence[str]) -> str:
    return "".join(f"<p>{_shown(line)}</p>\n" for line in lines)


def _data_card(content: dict[str, Any]) -> str:
    documents, tokens = content["documents"], content["tokens"]
    names = ", ".join(entry["name"] for entry in content["sources"][:MAX_SOURCES])
    facts = [
        ("Documents", f"{documents['kept']:,}, of which {documents['copies']:,} are further copies"),
        ("Text", _size(content["bytes"]["kept"])),
        ("Inputs", names),
        ("Files read", f"{len(content['files']):,}"),
        ("Processing", ", ".join(stage["name"] for stage in content["stages"]) or "none"),
        ("Edited", f"{documents.get('edited', 0):,} documents"),
        ("Repaired", f"malformed UTF-8 in {documents.get('repaired', 0):,} documents"),
        ("Digest of the documents", content["documents_digest"]),
        ("Made with", ", ".join(map(" ".join, content.get("versions", {}).items()))),
    ]
    facts += [("Kept documents", line) for line in missing_documents(content)]
    if tokens:
        spec = tokens["tokenizer"]
        shown = f"{spec['name']}, {tokens['vocabulary']:,} entries, SHA-256 {spec.get('sha256', '')}"
        facts[2:2] = [("Tokens", f"{tokens['count']:,} as {tokens['dtype']}"), ("Tokenizer", shown)]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{_shown(value)}</dd>\n" for name, value in facts) + "</dl>\n"


def _recipe(recipe: dict[str, Any]) -> str:
    text = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True)
    cut = (
        text if len(text) <= MAX_RECIPE_CHARACTERS else f"{text[:MAX_RECIPE_CHARACTERS]}\n# cut; report.json has it all"
    )
    lines = html.escape("\n".join(map(printable_line, cut.splitlines())))
    return f"<details><summary>All settings, with defaults</summary><pre>{lines}</pre></details>\n"


def _outputs(outputs: dict[str, str]) -> str:
    rows = [(_shown(path), f"<code>{_shown(digest)}</code>") for path, digest in list(outputs.items())[:MAX_OUTPUTS]]
    table = _table(("file", "SHA-256"), rows) + _rest(len(outputs) - MAX_OUTPUTS, "file")
    return f"<details><summary>{counted(len(outputs), 'file')} with digests</summary>{table}</details>\n"


__all__ = ["MAX_BYTES", "as_html"]
