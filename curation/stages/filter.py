# SPDX-License-Identifier: Apache-2.0
"""`filter`: removes documents that break a rule."""

from __future__ import annotations

from curation.contract import TEXT, Engine, Frame
from curation.rules import Rule, decide, expand_rules
from curation.stages.base import RowStage, counts_line
from curation.stages.outcome import Outcome, StageCount

COUNTED = ("characters", "unspaced_characters")  # of all documents: whether rules on words mean anything here
SHOWN = 5  # reasons under the funnel


class Filter(RowStage, frozen=True, kw_only=True, tag="filter"):
    """Keeps documents that break none of `rules`: the name of a set, or a list of names and rules.

    The first broken rule is the reason. Sets: `curation.rules.RULE_SETS`.
    """

    rules: str | list[str | Rule]

    def __post_init__(self) -> None:
        if not expand_rules(self.rules):
            raise ValueError("rules is empty; name a rule set or give a rule")

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        rules = expand_rules(self.rules)
        names = tuple(dict.fromkeys([*COUNTED, *(name for rule in rules for name in rule.measures)]))
        measures = engine.measure(frame[TEXT], names)
        verdict = decide(rules, measures, len(frame))
        counted = {name: int(measures[name].sum()) for name in COUNTED}
        return Outcome(verdict, details=counted)

    def explain(self) -> list[str]:
        rules = expand_rules(self.rules)
        return [f"{rule.name}: {' / '.join(rule.measures)} in [{rule.min:g}, {rule.max:g}]" for rule in rules]

    def report_lines(self, count: StageCount) -> list[str]:
        """The reasons that removed the most."""
        return [
            counts_line({name: number for name, number in count.reasons.items() if number}, SHOWN) or "none removed"
        ]
