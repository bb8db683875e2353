# SPDX-License-Identifier: Apache-2.0
"""Pieces of HTML that all sections use. Text from outside enters the page through `shown` and `shown_block` only."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from curation.errors import counted
from curation.planning.memory import shown_bytes
from curation.report.marks import Span, pieces
from curation.report.page.style import STYLE
from curation.system.terminal import printable, printable_line

MAX_CHARACTERS = 300  # of a name, reason, path or line


def shown(text: object) -> str:
    """Return text from outside for the page: on one line, cut, escaped."""
    line = printable_line(text)
    return html.escape(line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]}…")


def shown_block(text: str, marks: Sequence[Span] = ()) -> str:
    """Return text of several lines for the page, escaped, with its marked parts."""
    parts = ((html.escape(printable(part)), marked) for part, marked in pieces(text, list(marks)))
    return "".join(f"<mark>{part}</mark>" if marked else part for part, marked in parts)


def size(bytes_: float) -> str:
    """Return a number of bytes for people."""
    return f"{bytes_ / 1e6:,.1f} MB" if 1e6 <= bytes_ < 1e7 else shown_bytes(bytes_)


def number(value: float) -> str:
    """Return a value of a measure for people."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def percent(part: float, whole: float) -> str:
    """Return a share in percent, with digits for small ones."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if share >= 1 or share == 0 else f"{share:.2g} %"


def share(part: float, whole: float) -> float:
    """Return a share of at most 1; 0 of nothing."""
    return min(part / whole, 1.0) if whole else 0.0


def document(title: str, body: str, *, policy: str = "", style: str = "") -> str:
    """Return a complete page that loads nothing.

    policy  what it allows besides styles, for its Content-Security-Policy
    style   rules after those of all pages
    """
    allowed = "; ".join(["default-src 'none'", "style-src 'unsafe-inline'", *([policy] if policy else [])])
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{allowed}">
<title>{title}</title>
<style>{STYLE}{style}</style>
</head>
<body>
{body}</body>
</html>
"""


def section(title: str, body: str, anchor: str = "") -> str:
    """Return a section of the page; "" without a body."""
    mark = f' id="{anchor}"' if anchor else ""
    return f"<section{mark}><h2>{title}</h2>\n{body}</section>\n" if body else ""


def rest(left: int, noun: str) -> str:
    """Return the line about entries that the page leaves out; "" if it shows all."""
    return f'<p class="quiet">and {counted(left, noun)} more</p>\n' if left > 0 else ""


def fit(entries: Iterable[str], noun: str, total: int, max_bytes: int) -> str:
    """Return as many entries as `max_bytes` hold, and the number of the others, of `total`."""
    taken: list[str] = []
    used = 0
    for entry in entries:
        used += len(entry.encode())
        if used > max_bytes:
            break
        taken.append(entry)
    return "".join(taken) + rest(total - len(taken), noun)


def table(heads: Iterable[str], rows: str) -> str:
    """Return a table with these heads; `rows` from `row`."""
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{rows}</table></div>\n'


def row(cells: Iterable[str]) -> str:
    """Return a row of a table."""
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def definitions(facts: Iterable[tuple[str, object]]) -> str:
    """Return a list of names and values; values are text from outside."""
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{shown(value)}</dd>\n" for name, value in facts) + "</dl>\n"
