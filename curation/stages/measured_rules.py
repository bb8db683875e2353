# SPDX-License-Identifier: Apache-2.0
"""The rules of stages that set bounds on measures of documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from curation.rules.grammar import Rule
from curation.stages.base import RowStage, Stage

STORED_BYTES, NUMBER_BYTES = 13, 4  # per document that reaches a filter; more per measure or column of groups


def rules_of(stage: RowStage) -> Sequence[Rule]:
    """Return all rules of a stage if they differ between groups; else its rules on measures of documents."""
    shown = stage.shown_rules()
    return shown.by_group or shown.of_documents


def measured_rules(stage: Stage | None) -> list[Rule]:
    """Return the rules of a stage that set bounds on measures, for all documents or for groups."""
    return [rule for rule in rules_of(stage) if rule.is_on_measures] if isinstance(stage, RowStage) else []


def names_of(rules: Iterable[Rule]) -> list[str]:
    """Return the measures of rules, each once."""
    return list(dict.fromkeys(name for rule in rules for name in rule.measures))


def values_bytes(stages: Sequence[Stage]) -> int:
    """Return the bytes per document of the measures that filters store until the end of a run."""
    filters = [rules for stage in stages if (rules := measured_rules(stage))]
    numbers = names_of(rule for rules in filters for rule in rules)
    return len(filters) * (STORED_BYTES + NUMBER_BYTES * len(numbers))
