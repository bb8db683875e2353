# SPDX-License-Identifier: Apache-2.0
"""The edges of a graph from the columns of a frame: one edge per row, or one per link in a column of lists.

Nodes are numbered in the order of their values, and edges are sorted and summed, so the graph does not depend on the
order of rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import as_one_array
from curation.base.contract import Engine
from curation.base.errors import InputError, RecipeError, counted, near_or_nothing, nearest
from curation.base.number_lists import is_list
from curation.rules.columns import has_kind, numbers_of
from curation.rules.hosts import domains_of, hosts_of
from curation.stages.exact.canonical_urls import canonical_urls

KEYS = {"page": canonical_urls, "host": hosts_of, "domain": domains_of}


class Edges(NamedTuple):
    """The edges of a graph, ascending, each pair of nodes once. Nodes are positions in `nodes`.

    nodes   the values of the nodes, ascending: strings or integers
    source  int64; in an undirected graph, the smaller node
    target  int64
    weight  float64, above 0: the sum of the edges between the two nodes
    rows    int64, one per row of the frame: the node of its source; -1 for none
    """

    nodes: pa.Array
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    rows: np.ndarray


def edges_of(engine: Engine, frame: Any, source: str, target: str, weight: str, by: str, directed: bool) -> Edges:
    """Return the edges of a frame. Arguments are those of `curation.pagerank`; `directed` tells whether an edge differs
    from its reverse.

    Raises RecipeError for an unknown `by`, InputError for a column that is missing or has no nodes or weights.
    """
    if by and by not in KEYS:
        raise RecipeError(f"by is {by!r}{nearest(by, KEYS)}")
    parents, targets = _listed(_column(engine, frame, target), target)
    sources, others = _same_kind((_column(engine, frame, source), source), (targets, target), by)
    weights = _weights(engine, frame, weight)[parents]
    encoded = pa.concat_arrays([sources, others]).dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.append(np.empty(len(order), np.int64), -1)  # the last index is for nulls
    ranks[order.to_numpy()] = np.arange(len(order))
    nodes = ranks[encoded.indices.fill_null(-1).to_numpy()]
    rows = nodes[: len(sources)]
    left, right = rows[parents], nodes[len(sources) :]
    if not directed:
        left, right = np.minimum(left, right), np.maximum(left, right)
    kept = (left >= 0) & (right >= 0) & (left != right) & (weights > 0)
    left, right, weights = left[kept], right[kept], weights[kept]
    by_value = np.lexsort((weights, right, left))  # sums of floats depend on their order
    left, right, weights = left[by_value], right[by_value], weights[by_value]
    is_first = np.ones(len(left), bool)
    is_first[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
    firsts = np.flatnonzero(is_first)
    sums = np.add.reduceat(weights, firsts) if len(firsts) else weights
    return Edges(encoded.dictionary.take(order), left[firsts], right[firsts], sums, rows)


def _column(engine: Engine, frame: Any, name: str) -> pa.Array:
    if name not in frame.columns:
        names = [*map(str, frame.columns)]
        near = near_or_nothing(name, names) or ". Set source, target and weight to columns of the edges"
        raise InputError(f"column {name!r} not found in the frame; it has {names}{near}")
    try:
        column = as_one_array(engine.to_arrow(frame[[name]]).column(0))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"column {name!r} holds values of several types ({error}). Convert them to one type") from None
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _listed(column: pa.Array, name: str) -> tuple[np.ndarray, pa.Array]:
    """Return the rows and the values of a column. Lists and JSON arrays give one value per item."""
    if has_kind(column.type, "text"):
        given = column.drop_null()
        if len(given) and pc.all(pc.starts_with(given, "[")).as_py():
            column = _parsed(column, name)
    if is_list(column.type):
        return pc.list_parent_indices(column).to_numpy(), column.flatten()
    return np.arange(len(column)), column


def _parsed(column: pa.Array, name: str) -> pa.Array:
    lists = []
    for row, text in enumerate(column.to_pylist()):
        try:
            lists.append(orjson.loads(text) if text else [])
        except ValueError:
            lists.append(None)
        if not isinstance(lists[-1], list) or not all(isinstance(each, str) for each in lists[-1]):
            raise InputError(
                f"column {name!r}: row {row:,} is {text[:40]!r}, but others begin like JSON arrays of strings, such as "
                '["https://a.org/"]. Write all rows so, or one node per row'
            )
    return pa.array(lists, pa.large_list(pa.large_string()))


def _same_kind(left: tuple[pa.Array, str], right: tuple[pa.Array, str], by: str) -> tuple[pa.Array, pa.Array]:
    """Return the nodes of two columns, given with their names, as values of one type; null for a node that is left
    out."""
    sides = [_typed(column, name, by) for column, name in (left, right)]
    kinds = [side.type for side in sides if not pa.types.is_null(side.type)] or [pa.large_string()]
    if len({*kinds}) > 1 and any(map(pa.types.is_large_string, kinds)):
        raise InputError(
            f"column {left[1]!r} holds {left[0].type} and column {right[1]!r} {right[0].type}. Nodes are of one type: "
            "convert both to strings or both to integers"
        )
    try:
        first, second = (side.cast(kinds[0] if len({*kinds}) == 1 else pa.int64()) for side in sides)
    except pa.ArrowInvalid as error:
        raise InputError(f"columns {left[1]!r} and {right[1]!r}: {error}. Convert both to one type") from None
    return first, second


def _typed(column: pa.Array, name: str, by: str) -> pa.Array:
    is_text = has_kind(column.type, "text")
    if not is_text and (by or not pa.types.is_integer(column.type)):
        wanted = f"by={by!r} needs URLs" if by else "nodes are strings or integers"
        raise InputError(f"column {name!r} holds {column.type}, but {wanted}. Name another column, or convert it")
    if by:
        hosts = hosts_of(column.cast(pa.large_string()))
        return pc.if_else(hosts.is_valid(), KEYS[by](column.cast(pa.large_string())), None)
    empty = pc.fill_null(pc.equal(column, ""), True) if is_text and column.type != pa.null() else column.is_null()
    if missing := pc.sum(empty).as_py():
        raise InputError(f"column {name!r} has no node in {counted(missing, 'row')}: null or empty. Drop these rows")
    return column.cast(pa.large_string()) if is_text and column.type != pa.null() else column


def _weights(engine: Engine, frame: Any, name: str) -> np.ndarray:
    """Return the weight of each row of a frame, float64; 1 without a column."""
    if not name:
        return np.ones(len(frame))
    column = _column(engine, frame, name)
    if not has_kind(column.type, "number"):
        raise InputError(f"column {name!r} holds {column.type}, but weights are numbers. Convert it")
    weights = numbers_of(pa.chunked_array([column]))
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        value = weights[wrong[0]]
        raise InputError(
            f"row {wrong[0]:,} of column {name!r} is no weight: {value}. Weights are numbers of at least 0"
        )
    return weights
