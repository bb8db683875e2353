# SPDX-License-Identifier: Apache-2.0
"""Rules for names such as `min_words`, which other tools have as settings of a filter."""

from __future__ import annotations

import re

from curation.base.measures import similar_measures

BOUND_FIRST = re.compile(r"(min|max)(?:imum)?_(.+)")
BOUND_LAST = re.compile(r"(.+)_(min|max)(?:imum)?")
EXAMPLES = {"min": "50", "max": "100000"}


def as_rule(name: str, value: object) -> str:
    """Return the rule that a name stands for: `{words: {min: 50}}` for `min_words`; "" if it names no measure.

    value   bound to write; anything but a number gives an example
    """
    if match := BOUND_FIRST.fullmatch(name):
        bound, measure = match.groups()
    elif match := BOUND_LAST.fullmatch(name):
        measure, bound = match.groups()
    else:
        return ""
    measures = similar_measures(measure)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{{{measures[0]}: {{{bound}: {value if is_number else EXAMPLES[bound]}}}}}" if measures else ""


def as_python(rule: str) -> str:
    """Return a rule of `as_rule` as Python code: `{"words": {"min": 50}}`."""
    return re.sub(r"[a-z]\w*(?=:)", lambda name: f'"{name[0]}"', rule)
