# SPDX-License-Identifier: Apache-2.0
"""`curation.pagerank` is that of a power iteration, `curation.communities` finds those of a planted graph, whatever the
order of rows."""

import json
import random
import sys
from collections import defaultdict
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base.errors import CurationError
from curation.base.system.memory import Limit
from curation.tools import graphs
from tests.needs import needs

Links = list[tuple[str, str, float]]


@pytest.fixture(scope="module")
def networkx() -> Any:
    needs("scipy")
    return needs("networkx")


def framed(links: Links) -> pd.DataFrame:
    return pd.DataFrame(links, columns=["source", "target", "n"])


def random_links(nodes: int, count: int) -> Links:
    """Links between nodes of very different degree; some nodes have no link, and some link to themselves."""
    chance = random.Random(7)
    names = [f"n{chance.randrange(10**6)}" for _ in range(nodes)]
    popular = [names[int(nodes * chance.random() ** 3)] for _ in range(count)]
    return [(chance.choice(names), name, chance.choice([0, 0.1, 0.2, 0.7])) for name in popular]


def iterated(links: Links, damping: float, rounds: int) -> dict[str, float]:
    """PageRank by its definition: a visitor follows a link by its weight, or goes to any node, from a dead end too."""
    weights: dict[str, dict[str, float]] = {name: defaultdict(float) for link in links for name in link[:2]}
    for source, target, weight in links:
        if source != target and weight:
            weights[source][target] += weight
    scores = dict.fromkeys(weights, 1 / len(weights))
    for _ in range(rounds):
        lost = sum(scores[name] for name, out in weights.items() if not out)
        new = dict.fromkeys(weights, (1 - damping + damping * lost) / len(weights))
        for name, out in weights.items():
            for target, weight in out.items():
                new[target] += damping * scores[name] * weight / sum(out.values())
        scores = new
    return scores


def test_pagerank_of_four_nodes(networkx: Any):
    """By hand, with a damping of 1/2: d = 1/8, a = 1/8 + (c + d)/2, b = 1/8 + a/2, c = 1/8 + b/2."""
    links = pd.DataFrame({"from": list("abcd"), "to": list("bcaa")})
    found = curation.pagerank(links, source="from", target="to", damping=0.5)
    assert found["node"].tolist() == list("abcd")
    assert found["score"].tolist() == pytest.approx([18 / 56, 16 / 56, 15 / 56, 7 / 56], abs=1e-6)
    assert found.attrs == {graphs.NOTE: {"damping": 0.5, "backend": "networkx", "networkx": networkx.__version__}}


def test_pagerank_is_that_of_a_power_iteration(networkx: Any):
    links = random_links(500, 1200)
    found = curation.pagerank(framed(links), weight="n")
    expected = iterated(links, 0.85, 120)
    assert found["node"].tolist() == sorted(expected)
    assert sum(abs(score - expected[node]) for node, score in found.values.tolist()) < 1e-5
    assert max(expected.values()) > 20 * min(expected.values())


def planted(groups: int, size: int) -> tuple[Links, dict[str, int]]:
    """Pairs of which most are inside a group, and the group of each node, numbered by its first node."""
    chance = random.Random(3)
    names = [f"d{number:03d}" for number in range(groups * size)]
    home = {name: place % groups for place, name in enumerate(names)}
    pairs = [(left, right) for left in names for right in names if left < right]
    inside = [(*pair, 1) for pair in pairs if home[pair[0]] == home[pair[1]] and chance.random() < 0.6]
    return inside + [(*chance.sample(names, 2), 0.5) for _ in range(groups * size // 3)], home


def test_planted_communities_are_found(networkx: Any):
    pairs, home = planted(5, 14)
    found = curation.communities(framed(pairs), weight="n")
    assert dict(found.values.tolist()) == home and found["community"].dtype == np.int64
    assert curation.communities(framed(pairs), resolution=0.01)["community"].nunique() == 1
    assert curation.communities(framed(pairs), resolution=50)["community"].nunique() > 5


def test_the_order_of_rows_changes_nothing(networkx: Any):
    links = random_links(60, 400)  # without clear communities, so the seed decides
    reverse = [(target, source, weight) for source, target, weight in links]
    ranks, groups = (function(framed(links), weight="n") for function in (curation.pagerank, curation.communities))
    for seed in range(3):
        shuffled = random.Random(seed).sample(links, len(links))
        assert curation.pagerank(framed(shuffled), weight="n").equals(ranks)
        mixed = [random.Random(k + seed).choice(pair) for k, pair in enumerate(zip(links, reverse, strict=True))]
        assert curation.communities(framed(mixed), weight="n").equals(groups)
    others = [curation.communities(framed(links), weight="n", seed=seed) for seed in range(2, 6)]
    assert not all(other.equals(groups) for other in others)


def test_lists_and_json_arrays_are_links_of_a_row(networkx: Any):
    lists = [["b", "c"], None, [], ["a"]]
    expected = {"node": list("abcde"), "score": curation.pagerank(framed([("a", "b", 1), ("a", "c", 1), ("e", "a", 1),
                ("d", "d", 1)]))["score"].tolist()}  # fmt: skip
    table = pa.table({"source": ["a", "b", "d", "e"], "target": lists})
    found = curation.pagerank(table)
    assert isinstance(found, pa.Table) and found.to_pydict() == expected
    texts = [json.dumps(links) if links is not None else None for links in lists]
    for target in (lists, texts):
        frame = table.to_pandas().assign(target=target)
        assert curation.pagerank(frame).to_dict("list") == expected


URLS = [("http://www.A.org/x?utm_id=1#top", "https://b.org/"), ("https://a.org/x/", "mailto:x"), (None, "//B.org./")]
BY = {
    "": [*sorted({url for pair in URLS[:2] for url in pair})],
    "page": ["a.org/x", "b.org"],
    "host": ["a.org", "b.org", "www.a.org"],
    "domain": ["a.org", "b.org"],
}


@pytest.mark.parametrize("by", BY)
def test_nodes_are_values_pages_hosts_or_domains(by: str, networkx: Any):
    frame = pd.DataFrame(URLS if by else URLS[:2], columns=["url", "link"], index=range(7, 10 if by else 9))
    found = curation.pagerank(frame, source="url", target="link", by=by)
    assert found["node"].tolist() == BY[by]
    scored = curation.pagerank(frame, source="url", target="link", by=by, column="score")
    of = dict(found.values.tolist())
    sources = {"": BY[""][1::-1], "page": ["a.org/x"] * 2, "host": ["www.a.org", "a.org"], "domain": ["a.org"] * 2}[by]
    if not by:
        sources = [URLS[0][0], URLS[1][0]]
    assert scored["score"].tolist()[:2] == [of[node] for node in sources]
    assert scored.index.equals(frame.index) and scored[["url", "link"]].equals(frame)
    assert not by or np.isnan(scored["score"][9])
    assert "score" not in frame and not frame.attrs


def test_tables_keep_their_columns_and_integers_their_type(networkx: Any):
    table = pa.table(
        {"source": pa.array([2**63, 5], pa.uint64()), "n": [1, 2], "target": pa.array([5, 9], pa.uint64())}
    )
    found = curation.communities(table)
    assert found.schema.types == [pa.uint64(), pa.int64()] and found.column("node").to_pylist() == [5, 9, 2**63]
    with_column = curation.communities(table, column="n")
    assert with_column.column_names == ["source", "target", "n"] and with_column.column("n").to_pylist() == [0, 0]
    small = curation.communities(table.set_column(0, "source", [pa.array([2, 5], pa.int8())]))
    assert small.schema.types == [pa.int64(), pa.int64()]


@pytest.mark.parametrize("function", [curation.pagerank, curation.communities])
def test_no_edges_give_no_nodes_or_nodes_alone(function: Any, networkx: Any):
    none = function(framed([]))
    assert len(none) == 0 and len(none.columns) == 2
    alone = function(framed([("a", "a", 1), ("b", "c", 0)]), weight="n")
    assert alone.iloc[:, 1].tolist() == pytest.approx([1 / 3] * 3 if function is curation.pagerank else [0, 1, 2])


def test_backends_are_used_where_they_are_named(networkx: Any, monkeypatch: pytest.MonkeyPatch):
    named = []

    def louvain(graph: Any, **settings: Any) -> list[set[int]]:
        named.append(settings["backend"])
        return [{*graph}]

    monkeypatch.setattr(networkx.community, "louvain_communities", louvain)
    for settings in ({}, {"backend": "cugraph"}):
        found = curation.communities(framed([("a", "b", 1)]), **settings)
        assert found.attrs[graphs.NOTE]["backend"] == named[-1]
    assert named == ["networkx", "cugraph"]


def test_a_graph_above_the_free_memory_is_refused(networkx: Any, monkeypatch: pytest.MonkeyPatch):
    frame = framed([("a", "b", 1)] * 3)
    limit = Limit("resident", "the machine", 10_000, 1_799)
    monkeypatch.setattr(graphs, "read_limits", lambda: [limit])
    with pytest.raises(curation.OutOfMemoryError) as error:
        curation.pagerank(frame)
    told = str(error.value)
    assert told.startswith("pagerank of 2 nodes and 1 edge needs about ") and "the machine leaves" in told
    assert "Give fewer edges, such as by='host', or end other programs" in told
    monkeypatch.setattr(graphs, "read_limits", lambda: [limit._replace(free=1_800)])
    assert len(curation.pagerank(frame)) == 2


ONE = framed([("a", "b", 1), ("b", "a", 2)])
LARGE = pa.table({"source": pa.array([2**63], pa.uint64()), "target": [1]})
BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "missing": (ONE, {"source": "sources"}, "'sources' not found in the frame; it has ['source', 'target', 'n']; did"),
    "target": (ONE[["source"]], {}, "column 'target' not found in the frame; it has ['source']. Set source, target"),
    "null": (ONE.assign(target=["a", None]), {}, "column 'target' has no node in 1 row: null or empty. Drop these"),
    "empty": (ONE.assign(source=""), {}, "column 'source' has no node in 2 rows: null or empty. Drop these rows"),
    "nulls": (ONE.assign(source=None), {}, "column 'source' has no node in 2 rows"),
    "null in a list": (ONE.assign(target=[["a", None], []]), {}, "column 'target' has no node in 1 row"),
    "floats": (ONE.assign(source=[1.0, np.nan]), {}, "column 'source' holds double, but nodes are strings or integers"),
    "kinds": (ONE.assign(source=1), {}, "column 'source' holds int64 and column 'target' large_string. Nodes are of"),
    "mixed": (ONE.assign(source=["a", 2]), {}, "column 'source' holds values of several types"),
    "large": (LARGE, {}, "columns 'source' and 'target': Integer value 9223372036854775808 not in range"),
    "array": (ONE.assign(target=['["a"]', "[b]"]), {}, "'target': row 1 is '[b]', but others begin like JSON"),
    "array of numbers": (ONE.assign(target="[1]"), {}, "'target': row 0 is '[1]', but others begin like JSON arrays"),
    "by": (ONE, {"by": "hosts"}, "by is 'hosts'; did you mean host?"),
    "no URLs": (ONE.assign(source=1), {"by": "host"}, "column 'source' holds int64, but by='host' needs URLs"),
    "weight": (ONE, {"weight": "w"}, "column 'w' not found in the frame"),
    "negative": (ONE.assign(n=[1, -0.5]), {"weight": "n"}, "row 1 of column 'n' is no weight: -0.5. Weights are numb"),
    "NaN": (ONE.assign(n=[np.nan, 1]), {"weight": "n"}, "row 0 of column 'n' is no weight: nan. Weights are numbers"),
    "infinite": (ONE.assign(n=np.inf), {"weight": "n"}, "row 0 of column 'n' is no weight: inf"),
    "weights of text": (ONE, {"weight": "target"}, "column 'target' holds large_string, but weights are numbers"),
    "damping": (ONE, {"damping": 1.0}, "damping must be above 0 and below 1, not 1.0"),
    "share": (ONE, {"damping": 85.0}, "damping must be above 0 and below 1, not 85.0. Write 0.85 for 85 %"),
    "string": (ONE, {"damping": "0.8"}, "pagerank: Expected `float`, got `str` - at `$.damping`"),
    "resolution": (ONE, {"resolution": 0.0}, "resolution must be above 0, not 0.0"),
    "seed": (ONE, {"seed": 1.5}, "communities: Expected `int`, got `float` - at `$.seed`"),
    "backend": (ONE, {"backend": "cograph"}, "backend is 'cograph'; did you mean cugraph?"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_calls_end_in_one_message(case: str):
    frame, settings, message = BAD[case]
    function = curation.communities if {*settings} & {"resolution", "seed"} else curation.pagerank
    with pytest.raises(CurationError) as error:
        function(frame, **settings)
    assert message in str(error.value)


def test_frames_on_disk_are_computed_first():
    with pytest.raises(TypeError, match=r"expected a frame in memory, got a Dask frame\. Call compute"):
        curation.pagerank(dd.from_pandas(ONE, npartitions=1))


@pytest.mark.parametrize("package", ["networkx", "scipy.sparse"])
def test_missing_packages_are_named(package: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(curation.EngineError, match=r"pagerank needs NetworkX and SciPy: .*gpu-pipeline\[graphs\]'"):
        curation.pagerank(ONE)


def test_a_missing_backend_is_named(networkx: Any):
    if "cugraph" in networkx.config.backends:
        pytest.skip("cuGraph is installed here")
    with pytest.raises(curation.EngineError) as error:
        curation.pagerank(ONE, backend="cugraph")
    assert str(error.value).startswith("backend: cugraph cannot be loaded ('cugraph' backend is not installed")
    assert "or '.[graphs-cu13]' in a clone; graphs-cu12 for CUDA 12. Or leave backend out" in str(error.value)
