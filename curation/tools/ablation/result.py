# SPDX-License-Identifier: Apache-2.0
"""The result of an ablation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from curation.base.system.files import as_json, commit
from curation.base.system.html_table import html_table
from curation.tools.ablation.experiment import Budgets, Row
from curation.tools.ablation.page import ablation_page
from curation.tools.ablation.store import CONTENT, PAGE, write_plan

MOST_NEEDED = 100  # times as much text; more is not told


class Ablation(NamedTuple):
    """The result of `ablate`. Differences are in shares of the bits per byte of raw text: -0.01 are 1 % fewer, which is
    better.

    verdict     `better`, `worse`, `no difference`, `undecided`, or `blind`: the models did not even notice shuffled
                words. Of the tier `gpu` also `unstable`: models of one size say better, and of another worse
    curated     the row that decides: curated text against placebos, by the held-out target
    detectable  minimum detectable effect: a curated text better by this share is found in 80 % of outcomes
    needed      if undecided: how many times as much text would decide, if the difference stays; 0 of the tier `gpu`
    control     shuffled words against the same text: `blind` if they cost no more than the smallest effect
    everything  the larger arm without any removal against placebos: what the shares of sources alone change
    kinds       curated text by each kind of held-out text: `target`, `raw-like`, `curated-like`
    shift       whether only curated-like text is predicted better
    sources     curated text by each source of the target
    stages      raw text without what one stage removed; empty if the curated arm is no run
    budgets     the comparison over parts of the budget, with what curated text is worth in raw text; None for the tier
                `gpu`
    plan        what was fixed before the arms were read
    models      of the tier `gpu`: curated text by models of each size. The others are by models of the largest
    """

    verdict: str
    curated: Row
    detectable: float
    needed: float
    control: Row
    everything: Row
    kinds: list[Row]
    shift: bool
    sources: list[Row]
    stages: list[Row]
    budgets: Budgets | None
    plan: dict[str, Any]
    models: Sequence[Row] = ()

    @property
    def line(self) -> str:
        """The verdict and its numbers in one line."""
        numbers = f"curated text {self.curated.text} bits per byte against raw text of the same size"
        found = f"{self.verdict}: {numbers}; the smallest effect of interest is {self.plan['smallest_effect']:.1%}"
        if self.verdict == "blind":
            return f"blind: the models did not notice shuffled words ({self.control.text}); give more text"
        if self.verdict == "unstable":
            return f"{found}; models of another size say the opposite"
        if not self.needed:
            return found
        times = f"about {self.needed:.1f}" if self.needed < MOST_NEEDED else f"more than {MOST_NEEDED}"
        return f"{found}; {times} times as much text would decide"

    def __repr__(self) -> str:
        return f"<ablation: {self.line}>"

    def _repr_html_(self) -> str:
        rows = [(row.name, row.text, row.verdict) for row in (*self.kinds, *self.models, *self.stages)]
        return html_table(repr(self)[1:-1], ("", "bits per byte", "verdict"), rows)

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write `plan.json`, `ablation.json` and `ablation.html` to a folder, and return its path.

        OutputError: the folder has an ablation with another plan, and `force` is false."""
        path = write_plan(folder, self.plan, force)
        with commit(path / PAGE) as temporary:
            temporary.write_text(ablation_page(self), encoding="utf-8", errors="backslashreplace")
        with commit(path / CONTENT) as temporary:
            temporary.write_bytes(as_json(self.content(), indent=True))
        return path

    def content(self) -> dict[str, Any]:
        """Return the result as values of JSON."""
        return {
            "verdict": self.verdict, "line": self.line, "detectable": self.detectable, "needed": self.needed,
            "shift": self.shift, "curated": self.curated._asdict(), "control": self.control._asdict(),
            "everything": self.everything._asdict(), "kinds": _as_json(self.kinds), "sources": _as_json(self.sources),
            "stages": _as_json(self.stages), "models": _as_json(self.models), "plan": self.plan,
            "budgets": self.budgets and _of_budgets(self.budgets),
        }  # fmt: skip


def _of_budgets(budgets: Budgets) -> dict[str, Any]:
    return {
        "sizes": budgets.sizes, "raw_bits_per_byte": budgets.bits, "rows": _as_json(budgets.rows),
        "curve": budgets.curve._asdict(), "worth": budgets.worth._asdict(), "trend": budgets.trend._asdict(),
        "shrinks": budgets.shrinks,
    }  # fmt: skip


def _as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]
