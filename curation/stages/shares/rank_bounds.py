# SPDX-License-Identifier: Apache-2.0
"""Find an exact number of the lowest documents of each group of a corpus, by tasks that share only files.

Each row has a `group` and an `order`, both uint64, and a weight (int64), which is 1 unless the stage gives another.
Documents are counted by their weights. Rows with equal group and order have equal weights. The *bound* of a group is
the order of the last row to drop. Its digits of 16 bits are found one by one, the highest first (radix selection). For
each digit, a task per group of slices counts the digit's values among the rows whose order may still be the bound. Then
a task per range of groups, a *reducer*, chooses the digit. At the end a task per group of slices marks the rows to
drop. If several rows have the order of the bound, the last ones are dropped. A group may have several bounds, each for
a weight of its own; the passes over the keys are the same.

Memory of a task: about 110 bytes per row of a group of slices, or 40 per distinct digit of the groups of a reducer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.stages.base import Phase
from curation.stages.corpus.key_ranges import (
    division_phase,
    once,
    read_cell,
    row_type,
    slice_group,
    slice_group_count,
    write_cells,
)

if TYPE_CHECKING:
    from curation.base.contract import Engine
    from curation.stages.outcome import Corpus

DIGIT_BITS, DIGITS = 16, 4
MAX_SHARDS = 1 << 10
REDUCER_ROWS = 1 << 22  # rows per task that chooses digits, if groups have equal sizes

COUNTED = np.dtype([("group", "<u8"), ("value", "<u8"), ("count", "<i8"), ("first", "<i8")])
QUOTA = np.dtype([("group", "<u8"), ("last", "<i8")])

Keys = Callable[["Corpus"], tuple[np.ndarray, ...]]  # group of slices -> group, order and, if not 1, weight of each row
Dropped = Callable[[np.ndarray, np.ndarray], np.ndarray]  # groups and their weights -> weight to drop of each group


def _state_type(bounds: int) -> np.dtype:
    """Return the type of what is known about a group. `bound` has the digits that are chosen so far."""
    of_bounds = (("dropped", "<i8", (bounds,)), ("bound", "<u8", (bounds,)), ("left", "<i8", (bounds,)))
    return np.dtype([("group", "<u8"), ("documents", "<i8"), ("first", "<i8"), *of_bounds])


class GroupBounds(NamedTuple):
    """The groups of a corpus, ascending; arrays with an element, or a row, per group.

    group      the group, uint64
    documents  total weight of its rows, int64
    first      its first row, int64
    dropped    weight that each bound drops, int64, shape (groups, bounds)
    bound      the highest order that each bound drops, uint64, shape (groups, bounds); meaningless if no row is dropped
    """

    group: np.ndarray
    documents: np.ndarray
    first: np.ndarray
    dropped: np.ndarray
    bound: np.ndarray


def phases(keys: Keys, dropped: Dropped, divided: bool, bounds: int = 1) -> Sequence[Phase]:
    """Return the phases that find the lowest rows of each group.

    keys     function that returns the group, the order and the weight, if it is not 1, of each row of a group of slices
    dropped  function from groups and the weights of their rows to the weight to drop of each group (int64): an element,
             or a row of `bounds` elements, per group. The dropped rows have at most this weight
    divided  divide the groups among tasks; for columns with many values
    bounds   number of bounds per group
    """
    reducers = reducers_of(divided)
    steps = []
    for digit in range(DIGITS):
        steps += [
            Phase(
                f"count_{digit}", slice_group_count, partial(_count_digits, keys, reducers, bounds, digit), durable=True
            ),
            Phase(f"bound_{digit}", reducers, partial(_choose_digits, dropped, bounds, digit), durable=True),
        ]
    written = Phase("rows", slice_group_count, partial(_write_rows, keys, reducers), durable=True)
    return (division_phase(1), *steps, written)


def dropped_rows(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Return the dropped rows, ascending, and their orders."""
    pieces = [
        (read_cell(_path(corpus, "rows", number), 0), read_cell(_path(corpus, "rows", number), 1))
        for number in range(slice_group_count(corpus))
    ]
    rows = np.frombuffer(b"".join(rows for rows, _ in pieces), row_type(corpus))
    return rows, np.frombuffer(b"".join(orders for _, orders in pieces), np.uint64)


def bounds_of(corpus: Corpus, divided: bool, bounds: int = 1) -> GroupBounds:
    """Return the groups and their bounds."""
    state = _states(corpus, reducers_of(divided), DIGITS - 1, bounds)
    return GroupBounds(*(state[name] for name in GroupBounds._fields))


def _path(corpus: Corpus, phase: str, task: int) -> Path:
    return corpus.scratch / phase / f"{task:06d}.bin"


def reducers_of(divided: bool) -> Callable[[Corpus], int]:
    """Return the function that returns the number of tasks that choose digits."""
    return _reducer_count if divided else once


def _reducer_count(corpus: Corpus) -> int:
    return min(max(-(-int(corpus.storage.starts[-1]) // REDUCER_ROWS), 1), MAX_SHARDS)


def _states(corpus: Corpus, reducers: Callable[[Corpus], int], digit: int, bounds: int) -> np.ndarray:
    """Return the states of all groups after a digit, in the order of groups: tasks have ascending ranges of groups."""
    pieces = [read_cell(_path(corpus, f"bound_{digit}", reducer), 0) for reducer in range(reducers(corpus))]
    return np.frombuffer(b"".join(pieces), _state_type(bounds))


def _places(groups: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of each group in the ascending `groups`, and whether `groups` has it."""
    if not len(groups):
        return np.zeros(len(group), np.int64), np.zeros(len(group), bool)
    place = np.minimum(np.searchsorted(groups, group), len(groups) - 1)
    return place, groups[place] == group


def _count_digits(
    keys: Keys, reducers: Callable[[Corpus], int], bounds: int, digit: int, engine: Engine, corpus: Corpus, task: int
) -> None:
    """Count the rows of a group of slices, by their group and the first digits of their order. Rows whose earlier
    digits differ from those of all bounds are left out: whether they are dropped is already known."""
    part = slice_group(corpus, task)
    group, order, *weights = keys(part)
    rows = part.rows.astype(np.int64)
    agrees = np.zeros(1, np.int16)  # the first bound whose earlier digits are those of a row
    if digit:
        state = _states(corpus, reducers, digit - 1, bounds)
        place, _ = _places(state["group"], group)  # all groups are known
        prefix = order >> np.uint64(64 - DIGIT_BITS * digit)
        agrees = np.full(len(rows), bounds, np.int16)
        for number in reversed(range(bounds)):
            agrees[(prefix == state["bound"][place, number]) & (state["left"][place, number] > 0)] = number
        chosen = np.flatnonzero(agrees < bounds)
        group, order, rows, agrees = group[chosen], order[chosen], rows[chosen], agrees[chosen]
        weights = [weight[chosen] for weight in weights]
    shift = np.uint64(64 - DIGIT_BITS * (digit + 1))
    value = (order >> shift).astype(np.uint16)
    _, number_of = np.unique(group, return_inverse=True)
    pairs, first, place, counts = np.unique(
        (number_of.astype(np.int64) * bounds + agrees) << DIGIT_BITS | value,
        return_index=True, return_inverse=True, return_counts=True,
    )  # fmt: skip
    for weight in weights:
        counts = np.zeros(len(pairs), np.int64)
        np.add.at(counts, place, weight)
    counted = np.empty(len(pairs), COUNTED)
    counted["group"], counted["value"] = group[first], order[first] >> shift
    counted["count"], counted["first"] = counts, rows[first]
    reducer = _reducer_of(counted["group"], reducers(corpus))
    ends = np.searchsorted(reducer, np.arange(reducers(corpus) + 1)).tolist()
    write_cells(
        _path(corpus, f"count_{digit}", task), ([counted[low:high]] for low, high in pairwise(ends)), len(ends) - 1
    )


def _reducer_of(groups: np.ndarray, reducers: int) -> np.ndarray:
    """Return the number of the task that chooses the digits of each group. Tasks have equal ranges of the upper 32 bits
    of groups."""
    return ((groups >> np.uint64(32)) * np.uint64(reducers) >> np.uint64(32)).astype(np.int64)


def _choose_digits(dropped: Dropped, bounds: int, digit: int, engine: Engine, corpus: Corpus, task: int) -> None:
    """Choose a digit of each bound of the groups of this task: the lowest digit with which enough rows are dropped.
    After the last digit, also write for each group of slices how many rows with the order of a bound are dropped."""
    pieces = [
        np.frombuffer(read_cell(_path(corpus, f"count_{digit}", number), task), COUNTED)
        for number in range(slice_group_count(corpus))
    ]
    counted = _merged(np.concatenate(pieces))
    if digit:
        path = _path(corpus, f"bound_{digit - 1}", task)
        state = np.frombuffer(read_cell(path, 0), _state_type(bounds)).copy()
    else:
        state = _first_state(counted, dropped, bounds)
    place, _ = _places(state["group"], counted["group"])
    for number in range(bounds):
        is_open = counted["value"] >> np.uint64(DIGIT_BITS) == state["bound"][place, number]
        is_open &= state["left"][place, number] > 0
        _choose(state["bound"][:, number], state["left"][:, number], counted[is_open], place[is_open])
    numbers = range(bounds if digit == DIGITS - 1 else 0)
    quotas = [quota for number in numbers for quota in _quotas(state, number, pieces)]
    write_cells(_path(corpus, f"bound_{digit}", task), [[state], *([quota] for quota in quotas)], 1 + len(quotas))


def _choose(bound: np.ndarray, left: np.ndarray, counted: np.ndarray, place: np.ndarray) -> None:
    """Add a digit to a bound of each group: the lowest at which the rows counted so far reach the number still to drop.

    bound, left  digits of the bound, and number still to drop, of each group; changed in place
    counted      counts of rows with these digits, sorted by group and value
    place        the group of each count
    """
    below = np.cumsum(counted["count"])
    starts = _starts(place)
    below -= np.repeat((below - counted["count"])[starts], np.diff(np.append(starts, len(counted))))
    reached = np.flatnonzero(below >= left[place])
    reached = reached[_starts(place[reached])]
    place = place[reached]
    bound[place] = counted["value"][reached]
    left[place] -= below[reached] - counted["count"][reached]


def _starts(values: np.ndarray) -> np.ndarray:
    """Return the indices at which a run of equal values begins."""
    is_new = np.ones(len(values), bool)
    is_new[1:] = values[1:] != values[:-1]
    return np.flatnonzero(is_new)


def _merged(counted: np.ndarray) -> np.ndarray:
    """Return the sums of the counts of all groups of slices, one per group and value, sorted by group and value."""
    counted = counted[np.lexsort((counted["value"], counted["group"]))]
    is_new = np.ones(len(counted), bool)
    is_new[1:] = (counted["group"][1:] != counted["group"][:-1]) | (counted["value"][1:] != counted["value"][:-1])
    starts = np.flatnonzero(is_new)
    merged = counted[starts].copy()
    if len(starts):
        merged["count"] = np.add.reduceat(counted["count"], starts)
        merged["first"] = np.minimum.reduceat(counted["first"], starts)
    return merged


def _first_state(counted: np.ndarray, dropped: Dropped, bounds: int) -> np.ndarray:
    """Return the states of the groups before any digit is known."""
    starts = _starts(counted["group"])
    state = np.zeros(len(starts), _state_type(bounds))
    state["group"] = counted["group"][starts]
    if len(starts):
        state["documents"] = np.add.reduceat(counted["count"], starts)
        state["first"] = np.minimum.reduceat(counted["first"], starts)
    wanted = np.asarray(dropped(state["group"], state["documents"]), np.int64).reshape(len(starts), bounds)
    state["dropped"] = state["left"] = wanted
    return state


def _quotas(state: np.ndarray, number: int, pieces: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return how many rows with the order of the bound are dropped: a number per group of rows, for each group of
    slices. The last of these rows are dropped.

    number   the bound
    pieces   counts of the last digit in each group of slices
    """
    bound, left = state["bound"][:, number], state["left"][:, number].copy()
    quotas = []
    for counted in reversed(pieces):
        place, _ = _places(state["group"], counted["group"])
        tied = np.flatnonzero((counted["value"] == bound[place]) & (left[place] > 0))
        quota = np.empty(len(tied), QUOTA)
        quota["group"], quota["last"] = counted["group"][tied], np.minimum(counted["count"][tied], left[place[tied]])
        left[place[tied]] -= quota["last"]
        quotas.append(quota)
    return quotas[::-1]


def _write_rows(keys: Keys, reducers: Callable[[Corpus], int], engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the rows of a group of slices that are dropped, and their orders."""
    part = slice_group(corpus, task)
    _, order, *_ = found = keys(part)
    rows = np.flatnonzero(dropped_by(corpus, task, found, reducers))
    write_cells(_path(corpus, "rows", task), [[part.rows[rows].astype(row_type(corpus))], [order[rows]]], 2)


def dropped_by(
    corpus: Corpus,
    task: int,
    keys: tuple[np.ndarray, ...],
    reducers: Callable[[Corpus], int] = once,
    bounds: int = 1,
) -> np.ndarray:
    """Return for each row of a group of slices how many bounds of its group drop it (int64). `keys`: group, order and,
    if not 1, weight of each row."""
    group, order, *weights = keys
    state = _states(corpus, reducers, DIGITS - 1, bounds)
    place, _ = _places(state["group"], group)  # all groups are known
    paths = [_path(corpus, f"bound_{DIGITS - 1}", reducer) for reducer in range(reducers(corpus))]
    found = np.zeros(len(order), np.int64)
    for number in range(bounds):
        bound = state["bound"][place, number]
        is_dropped = order < bound
        cell = 1 + number * slice_group_count(corpus) + task
        quotas = np.frombuffer(b"".join(read_cell(path, cell) for path in paths), QUOTA)
        tied = np.flatnonzero(order == bound)
        weight = weights[0][tied] if weights else np.ones(len(tied), np.int64)
        is_dropped[tied[_last_of_groups(group[tied], weight, quotas)]] = True
        found += is_dropped
    return found


def _last_of_groups(group: np.ndarray, weight: np.ndarray, quotas: np.ndarray) -> np.ndarray:
    """Return the indices of the last rows of each group, whose weights add up to at most the group's quota."""
    by_group = np.argsort(group, kind="stable")
    group, weight = group[by_group], weight[by_group]
    place, known = _places(quotas["group"], group)
    below = np.concatenate([np.zeros(1, np.int64), np.cumsum(weight)])
    after = below[np.searchsorted(group, group, side="right")] - below[:-1]  # weight of the group from this row on
    known[known] = after[known] <= quotas["last"][place[known]]
    return by_group[known]
