# SPDX-License-Identifier: Apache-2.0
"""Rules on measures that are already computed: which documents they remove, and the effects of other bounds. No text is
read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.errors import RecipeError, nearest
from curation.base.measures import Measure
from curation.frames.frames import is_lazy
from curation.frames.tables import is_table, table_of
from curation.recipes.keywords import stage_of
from curation.rules.decide import Rule, Verdict
from curation.rules.decide import decide as decide_rows
from curation.rules.effects import Effects
from curation.rules.effects import rule_effects as effects_of_rows
from curation.stages import Filter

Measures = Any  # a DataFrame of pandas or cuDF, a table of another library, or name -> array
Rules = str | Rule | dict[str, Any] | Filter | Sequence[str | Rule | dict[str, Any]]


def decide(measures: Measures, rules: Rules) -> Verdict:
    """Return which documents rules would remove, from their measures: `kept` (bool), the reason and value of each row,
    and `counts()` per reason.

    measures   a DataFrame (pandas or cuDF), a table of polars, DuckDB or pyarrow, or a mapping name -> array, with one
               row per document and a column for each measure in the rules, as `curation.measure` and `curate measure`
               write them. Of a Dask frame the call computes these columns
    rules      as in `curation.filter`: a rule set, a `curation.Rule`, a mapping such as `{"words": {"min": 50}}`, or a
               list. Rules on columns need these columns too

    A million documents and 23 rules take about 70 ms of one core.

        >>> import curation
        >>> verdict = curation.decide({"words": [3, 80, 400]}, [curation.Rule(measure="words", min=50)])
        >>> verdict.kept.tolist(), verdict.counts()
        ([False, True, True], {'words': 1})

    Raises RecipeError for wrong rules, for a measure or column that is missing, and for columns of different lengths.
    """
    measures, expanded = _readable(measures), _expanded(rules)
    _check_measured(measures, expanded, rules)
    columns = {name: _arrow_column(measures, name) for rule in expanded for name in rule.columns}
    arrays, rows = _arrays(measures, expanded)
    rows = max([rows, *map(len, columns.values())])
    if any(len(column) != rows for column in [*arrays.values(), *columns.values()]):
        raise RecipeError("the measures have different numbers of rows; give measures of one set of documents")
    return decide_rows(expanded, arrays, rows, columns)


def rule_effects(measures: Measures, rules: Rules) -> Effects:
    """Return the effects of each bound of the rules: percentiles and a histogram of its measure or ratio, and numbers
    of documents. These are the documents that the bound removes; those that it removes if it is moved by 10 and 25 % in
    both directions; and those that no other rule removes.

    measures, rules   as in `decide`; rules on columns are skipped, and named in `skipped`

        >>> import curation
        >>> effects = curation.rule_effects({"words": [3, 45, 80, 400]}, [curation.Rule(measure="words", min=50)])
        >>> effects.effects[0].removed  # with min 37.5, 45, 50, 55 and 62.5
        (1, 1, 2, 2, 2)

    Raises RecipeError for wrong rules, for a missing measure, and for measures of different lengths.
    """
    measures, expanded = _readable(measures), _expanded(rules)
    _check_measured(measures, expanded, rules)
    arrays, rows = _arrays(measures, expanded)
    if any(len(values) != rows for values in arrays.values()):
        raise RecipeError("the measures have different numbers of rows; give measures of one set of documents")
    return effects_of_rows(expanded, arrays, rows)


def _readable(measures: Measures) -> Measures:
    """Return the measures; a table of another library becomes a pyarrow table."""
    return table_of(measures) if is_table(measures) else measures


def _expanded(rules: Rules) -> tuple[Rule, ...]:
    listed = [rules] if isinstance(rules, Rule | dict) else rules
    return stage_of(Filter, rules, {"rules": listed}).expanded


def _check_measured(measures: Measures, expanded: Sequence[Rule], rules: Rules) -> None:
    """Raise RecipeError if several measures are missing. If only one measure is missing, `_column` raises an error that
    suggests similar names."""
    wanted = dict.fromkeys(name for rule in expanded for name in rule.measures)
    missing = [name for name in wanted if name not in _names(measures)]
    if len(missing) > 1:
        given = repr(rules) if isinstance(rules, str) else "rules"
        raise RecipeError(
            f"the measures lack {len(missing)} columns: {', '.join(missing)}. Call curation.explain(frame, {given}) "
            "first, which adds them"
        )


def _arrays(measures: Measures, rules: Sequence[Rule]) -> tuple[dict[str, np.ndarray], int]:
    """Return the measures that the rules need, as arrays, and the number of documents."""
    arrays = {name: _array(measures, name) for rule in rules for name in rule.measures}
    return arrays, max(map(len, arrays.values()), default=0)


def _array(measures: Measures, name: str) -> np.ndarray:
    column = _column(measures, name)
    if hasattr(column, "to_arrow"):  # of cuDF, whose to_numpy refuses nulls
        column = column.to_arrow()
    is_arrow = isinstance(column, pa.Array)
    values = np.asarray(column.to_numpy(zero_copy_only=False) if is_arrow else column)
    if values.dtype.kind not in "iu":
        raise RecipeError(f"column {name!r} is no measure: it holds {values.dtype}, expected integers")
    return values


def _arrow_column(measures: Measures, name: str) -> pa.ChunkedArray:
    column = _column(measures, name)
    column = column.to_arrow() if hasattr(column, "to_arrow") else column
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([pa.array(column)])


def _names(measures: Measures) -> list[Any]:
    return list(measures.column_names if isinstance(measures, pa.Table) else measures)


def _column(measures: Measures, name: str) -> Any:
    names = _names(measures)
    if name not in names:
        fault = f"no column {name!r} in the measures{nearest(name, names)}"
        if name in Measure.__members__:
            fault += f"{'' if fault.endswith('?') else '.'} Compute it: curation.measure(frame, names=[{name!r}])"
        raise RecipeError(fault)
    column = measures[name]
    return column.compute() if is_lazy(column) else column  # NumPy does not take columns of Dask-cuDF
