# SPDX-License-Identifier: Apache-2.0
"""The result of a choice of weights for a mixture."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from curation.base.system.files import as_json, check_new, commit, local_output, make_folder
from curation.base.system.html_table import html_table
from curation.base.system.terminal import aligned

CONTENT = "mixture.json"
DIGITS = 4  # of weights


class DomainRow(NamedTuple):
    """A domain.

    documents, bytes  all its documents, and the bytes of their texts
    held_out          its held-out documents
    epochs            how often its text is in the mixture with the chosen weights
    """

    name: str
    documents: int
    bytes: int
    held_out: int
    epochs: float


class WeightsRow(NamedTuple):
    """Weights, and what models of such mixtures lose on held-out text.

    name        `proportional`, `uniform` or `chosen`
    weights     share of the bytes of each domain
    bits        bits per byte of the half of the target that judges
    bits_low, bits_high  ends of their interval of 95 %
    value       difference from proportional weights, in shares of their bits: -0.01 are 1 % fewer bits, which is better
    low, high   ends of its interval of 95 %
    verdict     `better`, `worse`, `no difference` or `undecided`; "" for proportional weights
    """

    name: str
    weights: dict[str, float]
    bits: float
    bits_low: float
    bits_high: float
    value: float
    low: float
    high: float
    verdict: str

    @property
    def text(self) -> str:
        """The difference with its interval, in percent."""
        return f"{self.value:+.2%} [{self.low:+.2%}, {self.high:+.2%}]" if self.verdict else ""


class Mixture(NamedTuple):
    """The result of `ablate_mix`.

    verdict      of the chosen weights against proportional ones: `better`, `worse`, `no difference`, or `undecided`
    domains      a row per domain, by name
    rows         proportional, uniform and chosen weights
    correlation  of `regmix`: rank correlation of predicted and measured bits of mixtures that the regression did not
                 see; below 0.5 the verdict is `undecided`. 1 for other methods
    history      of `doremi`: the weights after each round, whose mean is chosen
    plan         settings, counts and digests
    """

    verdict: str
    domains: list[DomainRow]
    rows: list[WeightsRow]
    correlation: float
    history: list[list[float]]
    plan: dict[str, Any]

    @property
    def chosen(self) -> WeightsRow:
        """The row of the chosen weights."""
        return self.rows[-1]

    @property
    def stage(self) -> dict[str, Any]:
        """The stage `mix` that draws this mixture. Its weights are shares of documents, since it counts documents."""
        counts = {
            row.name: self.chosen.weights[row.name] * self.plan["mixture_bytes"] * row.documents / row.bytes
            for row in self.domains
        }
        total = sum(counts.values())
        by = {"by": self.plan["by"]} if self.plan["by"] != "source" else {}
        weights = {name: max(round(count / total, DIGITS + 2), 10.0**-6) for name, count in counts.items()}
        return {
            "kind": "mix", **by, "weights": weights, "documents": round(total), "max_epochs": self.plan["max_epochs"],
        }  # fmt: skip

    @property
    def yaml(self) -> str:
        """`stage` as a line of a recipe."""
        return f"  - {yaml.safe_dump(self.stage, default_flow_style=True, sort_keys=False, width=10**6).strip()}"

    @property
    def line(self) -> str:
        """The verdict and its numbers in one line."""
        smallest = f"the smallest effect of interest is {self.plan['smallest_effect']:.1%}"
        found = f"{self.verdict}: the chosen weights {self.chosen.text} bits per byte against proportional ones"
        if self.verdict != self.chosen.verdict:
            reason = f"the regression ranks mixtures that it did not see with a correlation of {self.correlation:.2f}"
            return f"{found}; {reason}, too little to choose by"
        return f"{found}; {smallest}"

    def __repr__(self) -> str:
        return f"<mixture: {self.line}>"

    def _repr_html_(self) -> str:
        header, *rows = self._domain_rows()
        return html_table(repr(self)[1:-1], header, rows)

    def lines(self) -> list[str]:
        """Return tables of the domains and of the weights, and the stage `mix`."""
        bits = [("weights", "bits per byte", "95 %", "against proportional", "verdict")]
        bits += [
            (row.name, f"{row.bits:.3f}", f"[{row.bits_low:.3f}, {row.bits_high:.3f}]", row.text, row.verdict)
            for row in self.rows
        ]
        return [*aligned(self._domain_rows()), "", *aligned(bits), "", "stages:", self.yaml]

    def _domain_rows(self) -> list[tuple[str, ...]]:
        names = [row.name for row in self.rows]
        rows: list[tuple[str, ...]] = [("domain", "documents", "MB", *names, "epochs")]
        for row in self.domains:
            shares = [f"{weights.weights[row.name]:.{DIGITS}f}" for weights in self.rows]
            rows.append((row.name, f"{row.documents:,}", f"{row.bytes / 1e6:.2f}", *shares, f"{row.epochs:.2f}"))
        return rows

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write `mixture.json` to a folder, and return its path. OutputError: it exists, and `force` is false."""
        path = check_folder(folder, force)
        with commit(path / CONTENT) as temporary:
            temporary.write_bytes(as_json(self.content(), indent=True))
        return path

    def content(self) -> dict[str, Any]:
        """Return the result as values of JSON."""
        return {
            "verdict": self.verdict, "line": self.line, "correlation": self.correlation, "stage": self.stage,
            "domains": [row._asdict() for row in self.domains], "weights": [row._asdict() for row in self.rows],
            "history": self.history, "plan": self.plan,
        }  # fmt: skip


def check_folder(folder: str | os.PathLike[str], force: bool) -> Path:
    """Make the folder of a result, and return its path. OutputError: it has one, and `force` is false."""
    path = local_output(folder)
    check_new(path / CONTENT, force)
    make_folder(path)
    return path
