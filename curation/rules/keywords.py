# SPDX-License-Identifier: Apache-2.0
"""Finds the rule for a name such as `min_words`, which is a setting of filters in other tools."""

from __future__ import annotations

import re

from curation.base.measures import similar_measures

BOUND_FIRST = re.compile(r"(min|max)(?:imum)?_(.+)")
BOUND_LAST = re.compile(r"(.+)_(min|max)(?:imum)?")
EXAMPLES = {"min": "50", "max": "100000"}


def as_rule(name: str, value: object) -> str:
    """Return the rule that corresponds to a name, such as `{words: {min: 50}}` for `min_words`; "" if it names no
    measure.

    value   the bound in the rule; if it is no number, an example is used
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
