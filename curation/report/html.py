# SPDX-License-Identifier: Apache-2.0
"""`report.html`: one page without images and links to other files, for screens of any width and for print.

Names, reasons, paths and texts come from untrusted files. All of them pass through `page.parts`, or are data of the one
script that the page allows. Each list has a limit in bytes, so that the page stays below MAX_BYTES whatever the run.
Without the script the page has everything but sliders, search and order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from curation.errors import counted
from curation.report.page.clusters import clusters
from curation.report.page.documents import before_and_after, groups
from curation.report.page.facts import data_card, lines, outputs, recipe, times
from curation.report.page.funnel import funnel, tiles, warnings
from curation.report.page.live import POLICY, Sliders
from curation.report.page.parts import MAX_CHARACTERS, document, section, shown, size
from curation.report.page.rules import rules
from curation.report.page.spans import spans
from curation.report.page.style import STYLE
from curation.report.page.texts import pairs, samples
from curation.report.text import funnel_line, shown_numbers, stage_lines

MAX_BYTES = 3_300_000  # of which 1.75 MB are the sample of measures
SHOWN_INPUTS = 5  # in the title


def as_html(content: dict[str, Any]) -> str:
    """Return a report (content of `report.json`) as a complete page."""
    name = shown(content["recipe"]["name"] or "run")
    engine = f"{shown(content['engine'])} ({shown(content['engine_reason'])})"
    memory = size(content.get("peak_memory_bytes", 0))
    inputs = shown(_inputs([source["name"] for source in content["sources"]]))
    digest = shown(content["documents_digest"][:12])
    sliders = Sliders(content)
    sections = [
        ("What happened to the documents", funnel(content), "funnel"),
        ("Rules and their bounds", rules(content, sliders), "rules"),
        ("Documents before and after", before_and_after(content), "documents"),
        ("Groups of duplicates", groups(content), "groups"),
        ("Repeated spans", spans(content), "spans"),
        ("Clusters", clusters(content), "clusters"),
        ("Samples of removed and kept documents", samples(content), "samples"),
        ("Pairs of duplicates", pairs(content), "pairs"),
        ("Time and memory", times(content), "time"),
        ("Stages in words", lines([*shown_numbers(content), *stage_lines(content)]), "stages"),
        ("Data card", data_card(content), "card"),
        ("Recipe", recipe(content["recipe"]), "recipe"),
        ("Files", outputs(content["outputs"]), "files"),
    ]
    links = "".join(f'<a href="#{anchor}">{_link(title)}</a>\n' for title, body, anchor in sections if body)
    body = f"""<h1>{name}</h1>
<p>{inputs}</p>
<p class="quiet">Digest of the documents {digest}; engine {engine}; {content["seconds"]:,.1f} s; {memory} of memory</p>
<nav>
{links}</nav>
{tiles(content)}
{warnings(content["warnings"])}
{"".join(section(*entry) for entry in sections)}
<p class="quiet">{shown(funnel_line(content))}</p>
{sliders.scripts()}"""
    return document(f"{name}: {inputs}", body, policy=POLICY)


def _inputs(names: Sequence[str]) -> str:
    more = f" and {counted(len(names) - SHOWN_INPUTS, 'input')} more" if len(names) > SHOWN_INPUTS else ""
    return f"{counted(len(names), 'input')}: {', '.join(names[:SHOWN_INPUTS])}{more}"


def _link(title: str) -> str:
    """The first words of a title."""
    short = {"What happened to the documents": "Funnel", "Samples of removed and kept documents": "Samples"}
    return short.get(title, title)


__all__ = ["MAX_BYTES", "MAX_CHARACTERS", "STYLE", "as_html"]
