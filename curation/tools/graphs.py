# SPDX-License-Identifier: Apache-2.0
"""`curation.pagerank` and `curation.communities`, for graphs of links and of pairs; NetworkX computes them.

NetworkX uses one thread of Python: for a million edges, PageRank takes 20 CPU seconds, and Louvain two to over ten
minutes (docs/graphs.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.contract import Frame
from curation.base.engine import engine_of
from curation.base.errors import EngineError, OutOfMemoryError, RecipeError, as_share, counted, installation, nearest
from curation.base.system.memory import read_limits, shown_bytes
from curation.frames.tables import in_memory, result_like, with_column
from curation.recipes.keywords import check_types
from curation.tools.graph_edges import Edges, edges_of

NETWORKX, CUGRAPH = "networkx", "cugraph"
TOLERANCE = 1e-6  # limit of the sum of all changes; NetworkX multiplies its limit by the number of nodes
# Measured with NetworkX 3.6.1 on random graphs of 100,000 and a million edges, with 2 to 20 edges per node.
NODE_BYTES, EDGE_BYTES = {"pagerank": 600, "communities": 1900}, {"pagerank": 600, "communities": 900}
NOTE = "curation.graph"  # in frame.attrs: how the graph was computed


def pagerank(
    edges: Frame, *, source: str = "source", target: str = "target", weight: str = "", by: str = "", column: str = "",
    damping: float = 0.85, backend: str = NETWORKX,
) -> Frame:  # fmt: skip
    """Return the PageRank of each node of a graph of links, as a frame with `node` and `score` (float64), by node.

    edges    DataFrame of pandas or cuDF, or table of polars, DuckDB or pyarrow, with a link per row, or a page with its
             links; a Dask frame is to be computed first
    source   column of the nodes that link: strings or integers
    target   column of the nodes that are linked to, or of lists of them, also as JSON arrays in strings
    weight   column of the weights of links, numbers of at least 0; "" (default): each counts 1
    by       `page`, `host` or `domain`: the values are URLs, and the nodes their pages, as `exact_dedup` compares URLs,
             their hosts, or their hosts without `www.`; "" (default): the values themselves
    column   return the frame with the score of each row's source in this column, instead of the nodes; "": do not
    damping  share of the visitors that follow a link, above 0 and below 1
    backend  `networkx`, or `cugraph` on a GPU, with the package nx-cugraph

    Scores add up to 1, and are computed until all together change by at most 0.000001. Several links between two nodes
    add their weights. A link of a node to itself does not count, and with `by` neither does a value without a host. The
    order of rows changes nothing. Needs NetworkX and SciPy, by the extra `graphs`.

        >>> import curation, pandas
        >>> links = pandas.DataFrame({"source": ["a", "b", "c"], "target": ["c", "c", "a"]})
        >>> curation.pagerank(links).round(3).values.tolist()
        [['a', 0.464], ['b', 0.05], ['c', 0.486]]

    Raises RecipeError for a wrong setting; InputError for a column that is missing or holds no nodes or weights;
    EngineError for a package that is missing; OutOfMemoryError for a graph that needs more memory than is free.
    """
    names = {"source": source, "target": target, "weight": weight, "by": by, "column": column, "backend": backend}
    check_types("pagerank", {name: (value, str) for name, value in names.items()})
    check_types("pagerank", {"damping": (damping, float)})
    if not 0 < damping < 1:
        raise RecipeError(f"damping must be above 0 and below 1, not {damping}{as_share(damping)}")
    frame = in_memory(edges, source)
    graph = edges_of(engine_of(frame), frame, source, target, weight, by, directed=True)

    def score(networkx: Any, built: Any) -> np.ndarray:
        nodes = max(len(graph.nodes), 1)
        rounds = math.ceil(math.log(TOLERANCE / 2, damping)) + 1  # each lowers the change by this factor
        scores = networkx.pagerank(built, alpha=damping, tol=TOLERANCE / nodes, max_iter=rounds, backend=backend)
        return np.array([scores[node] for node in range(len(graph.nodes))], np.float64)

    settings = {"damping": damping, "backend": backend}
    return _result(edges, frame, graph, "score", column, _computed("pagerank", graph, score, settings), settings)


def communities(
    edges: Frame, *, source: str = "source", target: str = "target", weight: str = "", by: str = "", column: str = "",
    resolution: float = 1.0, seed: int = 1, backend: str = NETWORKX,
) -> Frame:  # fmt: skip
    """Return the community of each node of a graph, as a frame with `node` and `community` (int64), by node.

    resolution   above 1 favours more and smaller communities, below 1 larger ones
    seed         seed of the order in which nodes are moved; cuGraph ignores it

    The other arguments are those of `curation.pagerank`; the direction of edges does not count. Communities are found
    by the method of Louvain (Blondel et al., 2008) and numbered from 0 by their first node. The order of rows changes
    nothing. cuGraph moves nodes in another order, so its communities may differ.

        >>> import curation, pandas
        >>> pairs = pandas.DataFrame({"row": [1, 1, 2, 7], "kept_row": [2, 3, 3, 8]})
        >>> curation.communities(pairs, source="row", target="kept_row").values.tolist()
        [[1, 0], [2, 0], [3, 0], [7, 1], [8, 1]]

    Raises the errors of `curation.pagerank`.
    """
    names = {"source": source, "target": target, "weight": weight, "by": by, "column": column, "backend": backend}
    check_types("communities", {name: (value, str) for name, value in names.items()})
    check_types("communities", {"resolution": (resolution, float), "seed": (seed, int)})
    if not 0 < resolution < math.inf:
        raise RecipeError(f"resolution must be above 0, not {resolution}")
    frame = in_memory(edges, source)
    graph = edges_of(engine_of(frame), frame, source, target, weight, by, directed=False)

    def group(networkx: Any, built: Any) -> np.ndarray:
        groups = networkx.community.louvain_communities(built, resolution=resolution, seed=seed, backend=backend)
        numbers = np.empty(len(graph.nodes), np.int64)
        for number, members in enumerate(sorted(groups, key=min)):
            numbers[[*members]] = number
        return numbers

    settings = {"resolution": resolution, "seed": seed, "backend": backend}
    return _result(edges, frame, graph, "community", column, _computed("communities", graph, group, settings), settings)


def _computed(
    name: str, edges: Edges, compute: Callable[[Any, Any], np.ndarray], settings: dict[str, Any]
) -> np.ndarray:
    """Return the value of each node that `compute` computes with NetworkX. Store the version of NetworkX in
    `settings`."""
    backend = settings["backend"]
    if backend not in (NETWORKX, CUGRAPH):
        raise RecipeError(f"backend is {backend!r}{nearest(backend, (NETWORKX, CUGRAPH))}")
    try:
        import networkx
        import scipy.sparse  # noqa: F401  # of `networkx.pagerank`
    except ImportError:
        raise EngineError(f"{name} needs NetworkX and SciPy: {installation('graphs')}") from None
    settings["networkx"] = networkx.__version__
    _check_memory(name, edges)
    graph = networkx.DiGraph() if name == "pagerank" else networkx.Graph()
    graph.add_nodes_from(range(len(edges.nodes)))
    graph.add_weighted_edges_from(zip(edges.source.tolist(), edges.target.tolist(), edges.weight.tolist(), strict=True))
    try:
        return compute(networkx, graph)
    except ImportError as error:
        raise EngineError(
            f"backend: {backend} cannot be loaded ({error}). On a machine with an NVIDIA GPU: "
            f"{installation('graphs-cu13')}; graphs-cu12 for CUDA 12. Or leave backend out"
        ) from None


def _check_memory(name: str, edges: Edges) -> None:
    needed = NODE_BYTES[name] * len(edges.nodes) + EDGE_BYTES[name] * len(edges.source)
    limit = min(read_limits(), key=lambda each: each.free, default=None)
    if limit and needed > limit.free:
        raise OutOfMemoryError(
            f"{name} of {counted(len(edges.nodes), 'node')} and {counted(len(edges.source), 'edge')} needs about "
            f"{shown_bytes(needed)}, and {limit.name} leaves {shown_bytes(max(limit.free, 0))}. Give fewer edges, such "
            f"as by='host', or {limit.raised(needed)}"
        )


def _result(
    given: Any, frame: Any, edges: Edges, name: str, column: str, values: np.ndarray, settings: dict[str, Any]
) -> Any:
    """Return the nodes with their values, as a frame of the kind of `given`. With a `column`, return `given` with the
    values of its rows in this column instead."""
    engine = engine_of(frame)
    if column:
        mine = pa.array(values).take(pa.array(edges.rows, mask=edges.rows < 0))
        result = with_column(engine, given, frame, column, mine)
    else:
        result = result_like(given, engine, pa.table({"node": edges.nodes, name: values}))
    if hasattr(result, "attrs"):
        result.attrs[NOTE] = settings
    return result
