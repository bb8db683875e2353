# SPDX-License-Identifier: Apache-2.0
"""Tables in HTML for notebooks. Every value is escaped: names, reasons and texts may come from hostile data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice

from curation.base.errors import counted, shown_number
from curation.base.system.terminal import printable_line

MAX_ROWS = 100
MAX_CHARACTERS = 200  # of a value
SHARE = re.compile(r"-?[\d,]+(\.\d+)? ?%?")  # a number in a string, such as "12.50%"
MAX_WARNINGS, MAX_WARNING_CHARACTERS = 10, 1000
CLASSES = "tex2jax_ignore mathjax_ignore"  # otherwise notebooks show text between dollar signs as formulas


def html_table(
    title: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    note: str = "",
    charts: str = "",
    warnings: Sequence[str] = (),
) -> str:
    """Return a table in HTML with at most 100 rows, then the number of further rows. Numbers are aligned to the right.

    title     line above the table
    header    names of the columns
    rows      each has one value per column
    note      line below the table; "" for none
    charts    HTML between title and table, which is not escaped; "" for none
    warnings  lines between title and table; the first 10 are shown, and the number of the others
    """
    rows = iter(rows)
    first = [*islice(rows, MAX_ROWS)]
    left_out = sum(1 for _ in rows)
    shown = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in first)
    samples = first[0] if first else [""] * len(header)
    names = "".join(
        f'<th style="text-align: {_side(value)}">{_text(name)}</th>'
        for name, value in zip(header, samples, strict=False)
    )
    more = f"<p>and {counted(left_out, 'more row')}</p>" if left_out else ""
    head = f"<thead><tr>{names}</tr></thead>" if header else ""
    above = "".join(f"<p>{escape(printable_line(line))}</p>" for line in warning_lines(warnings))
    return (
        f'<div class="{CLASSES}"><p>{_text(title)}</p>{above}{charts}'
        f"<table>{head}<tbody>{shown}</tbody></table>{more}"
        f"{f'<p>{_text(note)}</p>' if note else ''}</div>"
    )


def warning_lines(
    warnings: Sequence[str], most: int = MAX_WARNINGS, characters: int = MAX_WARNING_CHARACTERS
) -> list[str]:
    """Return "warning: ..." for the first `most` warnings, each cut to `characters`, then the number of further
    ones."""
    lines = [f"warning: {_cut(warning, characters)}" for warning in warnings[:most]]
    left_out = len(warnings) - len(lines)
    return [*lines, f"and {counted(left_out, 'more warning')}"] if left_out else lines


class Shown:
    """Base of classes that show named values: as a repr of one line, and as a table in notebooks."""

    def _facts(self) -> Mapping[str, object]:
        """Return name -> value, in the order to show."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = (f"{name} {_number(value)}" for name, value in self._facts().items())
        return printable_line(f"<{type(self).__name__}: {', '.join(facts)}>")

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, (), self._facts().items())


def _number(value: object) -> str:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else str(value)


def _cell(value: object) -> str:
    side = _side(value)
    if side == "left":
        return f'<td style="text-align: left">{_text(value)}</td>'
    shown = shown_number(value, 6) if isinstance(value, float) else _number(value)
    return f'<td style="text-align: right">{escape(shown)}</td>'


def _side(value: object) -> str:
    """Return the alignment of a cell and its header: "right" for numbers and shares, else "left"."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "right" if is_number or (isinstance(value, str) and SHARE.fullmatch(value)) else "left"


def _text(value: object) -> str:
    return escape(printable_line(_cut(str(value), MAX_CHARACTERS)))


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
