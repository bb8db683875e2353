# SPDX-License-Identifier: Apache-2.0
"""`plot`: a histogram per rule with its bound, drawn by Altair."""

from __future__ import annotations

from typing import Any

from curation.base.errors import installation
from curation.base.system.svg import KEPT, REMOVED, grows
from curation.frames.thresholds import Measures, Rules, rule_effects
from curation.rules.effects import Effect

CHARTS_PER_ROW = 3
WIDTH, HEIGHT = 260, 130  # of a chart, in pixels


def plot(measures: Measures, rules: Rules) -> Any:
    """Return an Altair chart: for each bound of the rules, a histogram of its measure or ratio with the bound drawn in.

    measures, rules   as in `curation.rule_effects`; rules on columns are left out

    Bars beyond the bound are orange. A subtitle has the number of documents that the bound removes, and how many of
    them no other bound removes. The chart holds the counts of the bins, not the documents, so its size does not depend
    on their number.

        >>> import curation
        >>> chart = curation.plot({"words": [3, 45, 80, 400]}, [curation.Rule(measure="words", min=50)])
        >>> chart.to_dict()["concat"][0]["title"]["text"]
        'words >= 50'

    Raises ImportError without Altair, and the errors of `curation.rule_effects`.
    """
    try:
        import altair
    except ImportError as error:
        raise ImportError(f"curation.plot needs Altair ({error}); {installation('notebook')}") from error
    effects = rule_effects(measures, rules)
    charts = [_chart(altair, effect, effects.documents) for effect in effects.effects]
    return altair.concat(*charts, columns=CHARTS_PER_ROW).resolve_scale(x="independent", y="independent")


def _chart(altair: Any, effect: Effect, documents: int) -> Any:
    edges, counts = effect.histogram.edges, effect.histogram.counts
    bins = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    rows = [
        {"from": low, "to": high, "documents": count, "color": _color(effect, (low + high) / 2)}
        for low, high, count in bins
    ]
    wide = grows(edges.tolist())
    scale = altair.Scale(type="symlog") if wide else altair.Scale(zero=False)
    axis = altair.X("from:Q", scale=scale, title="log scale" if wide else None, axis=altair.Axis(format=",~r"))
    bars = altair.Chart(altair.Data(values=rows)).mark_bar()
    bars = bars.encode(
        x=axis,
        x2="to",
        y=altair.Y("documents:Q", title="documents"),
        color=altair.Color("color:N", scale=None),
        tooltip=["from:Q", "to:Q", "documents:Q"],
    )
    line = altair.Chart(altair.Data(values=[{"bound": effect.bound}])).mark_rule(strokeDash=[4, 2], size=2)
    share = effect.removed_now / max(documents, 1)
    subtitle = f"{effect.rule.name}: removes {effect.removed_now:,} ({share:.1%}), {effect.alone:,} by this bound only"
    title = altair.Title(effect.describe(), subtitle=subtitle)
    return (bars + line.encode(x=altair.X("bound:Q", scale=scale))).properties(width=WIDTH, height=HEIGHT, title=title)


def _color(effect: Effect, value: float) -> str:
    beyond = value < effect.bound if effect.side == "min" else value > effect.bound
    return REMOVED if beyond else KEPT
