# SPDX-License-Identifier: Apache-2.0
"""`select` removes exactly the share it names, as sorting all documents does, however the work is divided."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest

import curation
from curation.base.engine import load_engine
from curation.base.errors import CurationError, InputError, RecipeError
from curation.rules.hosts import host_of
from curation.running.run import run
from curation.stages import Select
from curation.stages.corpus import key_ranges
from curation.stages.shares import rank_bounds
from curation.stages.shares.select import numbers_at, order_of, seeded
from tests.runs import recipe_of, records_of, table_rows

SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), 1e-310, -1e-310, 0.1, 0.30000000000000004, 2.0**53]
SHARES = [{"drop_lowest": 0.3}, {"drop_highest": 0.3}, {"keep_highest": 0.29}, {"keep_lowest": 0.5}]


def removed_by_sorting(numbers: list[float | None], groups: list[str], settings: dict[str, float]) -> set[int]:
    """The positions that `select` must remove."""
    [(name, given)] = settings.items()
    share = Decimal(str(given)) if name.startswith("drop") else 1 - Decimal(str(given))
    sign = -1 if name in ("drop_highest", "keep_lowest") else 1
    members = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)

    def rank(place: int) -> tuple[bool, float, int]:
        number = numbers[place]
        is_number = number is not None and number == number
        return (is_number, sign * number if is_number else 0.0, -place)

    return {place for places in members.values() for place in sorted(places, key=rank)[: int(share * len(places))]}


def numbers_of(count: int, distinct: int, rng: np.random.Generator) -> list[float | None]:
    """Numbers with ties, special values that JSON has, and gaps."""
    pool = [*filter(math.isfinite, SPECIAL), *rng.normal(size=distinct).tolist(), None, float("nan")]
    return [pool[place] for place in rng.integers(len(pool), size=count)]


def run_on(
    numbers: list[float | None], groups: list[str], folder: Path, settings: dict[str, Any], **how: Any
) -> tuple[dict[str, Any], set[int]]:
    """The report of a run over some files, and the positions that it removed."""
    folder.mkdir(exist_ok=True)
    lines = [
        orjson.dumps({"id": str(place), "text": f"text {place}", "score": number, "kind": group})
        for place, (number, group) in enumerate(zip(numbers, groups, strict=True))
    ]
    (folder / "in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    stage = {"kind": "select", "column": "score", **settings}
    entry = {"path": str(folder / "in.jsonl"), "columns": ["score", "kind"]}
    recipe = recipe_of(entry, stages=[stage], output={"formats": []})
    report = run(recipe, folder / "out", engine="cpu", progress=False, **how).report
    return report, {int(name) for (name,) in table_rows(folder / "out/removed", "id")}


@pytest.mark.parametrize("settings", SHARES, ids=str)
@pytest.mark.parametrize("per", ["", "kind"])
def test_the_removed_documents_are_those_of_a_sort(settings: dict[str, float], per: str, tmp_path: Path):
    rng = np.random.default_rng(len(per))
    numbers = numbers_of(701, 40, rng)
    groups = [f"group {number}" for number in rng.integers(9, size=701) ** 2 // 8]
    report, removed = run_on(numbers, groups, tmp_path / "run", settings | {"per": per}, slice_bytes=1 << 12)
    assert removed == removed_by_sorting(numbers, groups if per else [""] * 701, settings)
    details = report["stages"][0]["details"]
    assert details["groups"] == (len({*groups}) if per else 1)
    assert sum(group["removed"] for group in details["by_group"]) == len(removed)
    assert not per or {group["name"] for group in details["by_group"]} == {*groups}


@pytest.mark.slow("a selection does not depend on the division into tasks")
def test_results_do_not_depend_on_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ties across slice groups, many reducers, and slice groups of a few rows: the same documents as from one task."""
    rng = np.random.default_rng(5)
    numbers = [float(number) for number in rng.integers(3, size=600)]
    groups = [f"{number:x}" for number in rng.integers(60, size=600)]
    settings = {"drop_lowest": 0.45, "per": "kind"}
    _, whole = run_on(numbers, groups, tmp_path / "whole", settings, workers=1)
    monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", 40)
    monkeypatch.setattr(key_ranges, "MAX_GROUP_ROWS", 40)
    monkeypatch.setattr(rank_bounds, "REDUCER_ROWS", 50)
    _, divided = run_on(numbers, groups, tmp_path / "divided", settings, slice_bytes=1 << 10, workers=3)
    assert whole == divided == removed_by_sorting(numbers, groups, {"drop_lowest": 0.45})


def test_a_share_per_input_names_the_inputs(tmp_path: Path):
    for name, count in (("small", 10), ("large", 30)):
        lines = [orjson.dumps({"text": f"{name} {number}", "score": str(number)}) for number in range(count)]
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(lines))
    inputs = [{"path": str(tmp_path / f"{name}.jsonl"), "columns": ["score"]} for name in ("small", "large")]
    stage = {"kind": "select", "column": "score", "keep_highest": 0.7, "per": "source"}
    report = run(recipe_of(*inputs, stages=[stage], output={"formats": []}), tmp_path / "out", engine="cpu").report
    assert report["stages"][0]["lines"] == [
        "large: 9 of 30 documents removed, score <= 8", "small: 3 of 10 documents removed, score <= 2"
    ]  # fmt: skip
    assert report["numbers"]["duplicates_removed_by_stage"] == {}  # those that it removes are none
    removed = table_rows(tmp_path / "out/removed", "source", "reason", "value")
    assert removed == [("small", "low_score", n) for n in range(3)] + [("large", "low_score", n) for n in range(9)]


def test_documents_without_a_number_are_removed_first_and_counted(tmp_path: Path):
    numbers = [5.0, None, 1.0, float("nan"), 2.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    for share, expected in (({"drop_lowest": 0.3}, {1, 2, 3}), ({"drop_highest": 0.3}, {1, 3, 9})):
        report, removed = run_on(numbers, [""] * 10, tmp_path / str(*share), share)
        assert removed == expected and report["stages"][0]["lines"][-1] == "2 documents without a number removed"


def test_the_plan_counts_with_the_share(tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(orjson.dumps({"text": f"t {n}", "score": n}) for n in range(40)))
    entry = {"path": str(tmp_path / "in.jsonl"), "columns": ["score"]}
    for share, kept in ((SHARES[0], 28), (SHARES[3], 20)):
        recipe = recipe_of(entry, stages=[{"kind": "select", "column": "score", **share}], output={"formats": []})
        assert curation.estimate(recipe).kept == kept


def test_frames_give_the_rows_of_a_run():
    frame = pd.DataFrame({"text": list("abcdef"), "n": [3, 1, 2, 1, 5, 4], "source": list("xyxyxy")})
    assert curation.select(frame, "n", drop_lowest=0.34)["text"].tolist() == list("acef")
    assert curation.select(frame, "n", keep_highest=0.34, per="source")["text"].tolist() == list("abef")
    assert curation.select(frame, curation.Select(column="n", keep_lowest=0.5))["text"].tolist() == list("bcd")


def test_orders_rise_with_numbers_and_lead_back():
    numbers = np.array(sorted(SPECIAL))
    for descending in (False, True):
        order = order_of(numbers, descending)
        assert (np.diff(order.astype(object)) * (-1 if descending else 1) >= 0).all() and order.min() > 0
        assert (numbers_at(order, descending) == numbers).all()
        assert (order[numbers == 0] == order[numbers == 0][0]).all()
    assert order_of(np.array([np.nan]), True)[0] == 0 and np.isnan(numbers_at(np.array([0], np.uint64), True))[0]


URLS = [None, "", "http://a.org/{}", "https://www.a.org/{}", "A.ORG:80", "b.a.org", "www.com", "c.org", "no host"]


def capped(numbers: list[float | None], urls: list[str | None], limit: int, sign: int) -> set[int]:
    """The positions that a cap per domain removes, by sorting."""
    members = defaultdict(list)
    for place, url in enumerate(urls):
        if host := host_of(url or ""):
            members[re.sub(r"^www\.(?=.*\.)", "", host)].append(place)

    def rank(place: int) -> tuple[bool, float, int]:
        number = numbers[place]
        is_number = number is not None and number == number
        return (is_number, sign * number if is_number else 0.0, -place)

    return {place for places in members.values() for place in sorted(places, key=rank)[: max(len(places) - limit, 0)]}


@pytest.mark.parametrize("keep", ["highest", "lowest"])
def test_a_cap_per_domain_is_the_one_of_a_sort(keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In one task, and in many."""
    rng = np.random.default_rng(7)
    numbers = numbers_of(300, 20, rng)
    urls = [(URLS[place] or "").format(place) or None for place in rng.integers(len(URLS), size=300)]
    expected = capped(numbers, urls, 9, 1 if keep == "highest" else -1)
    how: dict[str, int] = {"workers": 1}
    if keep == "lowest":
        monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", 40)
        monkeypatch.setattr(key_ranges, "MAX_GROUP_ROWS", 40)
        monkeypatch.setattr(rank_bounds, "REDUCER_ROWS", 50)
        how = {"workers": 2, "slice_bytes": 1 << 12}
    settings = {"max_documents": 9, "per_domain": "kind", "keep": keep}
    report, removed = run_on(numbers, urls, tmp_path, settings, **how)
    [entry] = report["stages"]
    assert removed == expected and entry["reasons"] == {"above_max_documents": len(expected)}
    assert f"{sum(not host_of(url or '') for url in urls)} documents without a domain kept" in entry["lines"]
    assert {group["name"] for group in entry["details"]["by_group"]} == {"a.org", "b.a.org", "www.com", "c.org"}


def test_a_cap_without_any_group_is_warned_of(tmp_path: Path):
    report, removed = run_on([1.0, 2.0], ["no url", None], tmp_path, {"max_documents": 1, "per_domain": "kind"})
    assert removed == set() and "select: none of 2 documents has a domain in kind; all are kept" in report["warnings"]


def test_a_budget_of_bytes_keeps_the_first_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of each input in a run of several groups of rows, and of all in a frame."""
    texts = {name: [name * (1 + 7 * number % 23) + "é" * (number % 3) for number in range(60)] for name in "ab"}
    paths = [tmp_path / f"{name}.jsonl" for name in texts]
    for path, found in zip(paths, texts.values(), strict=True):
        path.write_bytes(records_of(found))
    kept = {name: found[: reaching(found, 500) + 1] for name, found in texts.items()}
    monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", 20)
    monkeypatch.setattr(key_ranges, "MAX_GROUP_ROWS", 20)
    recipe = recipe_of(*paths, stages=[{"select": {"max_bytes": 500, "per": "source"}}], output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu", slice_bytes=700, progress=False).report
    assert [text for (text,) in table_rows(tmp_path / "out/documents", "text")] == [*kept["a"], *kept["b"]]
    assert report["stages"][0]["reasons"] == {"above_max_bytes": 120 - len(kept["a"]) - len(kept["b"])}
    size = len("".join(texts["a"]).encode())
    assert report["stages"][0]["lines"] == [f"{name}: {size} bytes before" for name in "ab"]
    whole = [*texts["a"], *texts["b"]]
    for budget in (1, size, size + 500, 10**9):
        frame = curation.select(pd.DataFrame({"text": whole}), max_bytes=budget)
        assert frame["text"].tolist() == whole[: reaching(whole, budget) + 1]


def reaching(texts: list[str], budget: int) -> int:
    """The position of the text that reaches a number of bytes."""
    return int(np.searchsorted(np.cumsum([len(text.encode()) for text in texts]), budget))


def test_a_cap_without_a_column_draws_by_the_seed():
    frame = pd.DataFrame({"text": list("abcdefgh"), "kind": ["x"] * 4 + ["y"] * 3 + [None]})
    engine = load_engine("cpu")
    drawn = []
    for seed in (1, 2):
        orders = seeded(engine.hash_text(frame["text"])[:, 0], seed).tolist()
        wanted = {
            *sorted(range(4), key=lambda row: orders[row])[2:],
            *sorted(range(4, 7), key=lambda row: orders[row])[1:],
        }
        kept = curation.select(frame, max_documents=2, per="kind", seed=seed)["text"].tolist()
        assert kept == [text for row, text in enumerate(frame["text"]) if row in {*wanted, 7}]
        drawn.append(kept)
        assert len(curation.select(frame, max_documents=3, seed=seed)) == 3
    assert drawn[0] != drawn[1]


def test_a_column_without_urls_is_refused():
    frame = pd.DataFrame({"text": ["a"], "url": [1]})
    with pytest.raises(InputError, match="column 'url' holds int64, but per_domain needs URLs"):
        curation.select(frame, max_documents=1, per_domain="url")


# bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drop_lowest": 30}, "drop_lowest must be above 0 and below 1, not 30. Write 0.3 for 30 %"),
        ({"drop_lowest": 1.0}, "drop_lowest must be above 0 and below 1, not 1.0"),
        ({"drop_lowest": -0.1}, "drop_lowest must be above 0 and below 1, not -0.1"),
        ({"drop_lowest": float("nan")}, "drop_lowest must be above 0 and below 1, not nan"),
        ({}, "give one of drop_lowest, drop_highest, keep_lowest, keep_highest, max_documents and max_bytes, not none"),
        ({"drop_lowest": 0.1, "keep_lowest": 0.1}, "max_bytes, not drop_lowest, keep_lowest"),
        ({"drop_lowest": 0.1, "max_documents": 2}, "max_bytes, not drop_lowest, max_documents"),
        ({"drop_lowest": 0.1, "column": ""}, "column must name a column of numbers, not ''"),
        ({"max_bytes": -1}, "max_bytes must be 1 or more, not -1"),
        ({"max_bytes": 5}, "max_bytes keeps the first documents of all or of each source; leave column, per and"),
        ({"max_bytes": 5, "column": "", "per": "kind"}, "or write per: source"),
        ({"max_bytes": 5, "column": "", "keep": "lowest"}, "keep: lowest is for max_documents with a column"),
        ({"max_documents": -1}, "max_documents must be 1 or more, not -1"),
        ({"max_documents": 2, "keep": "last"}, "keep must be highest or lowest, not 'last'"),
        ({"drop_lowest": 0.1, "keep": "lowest"}, "keep: lowest is for max_documents with a column"),
        ({"max_documents": 2, "column": "", "keep": "lowest"}, "keep: lowest is for max_documents with a column"),
        ({"max_documents": 2, "per": "kind", "per_domain": "url"}, "per_domain must be a column of URLs, without per"),
        ({"max_documents": 2, "per_domain": "text"}, "per_domain must be a column of URLs, without per, not 'text'"),
        ({"max_documents": 2, "seed": -1}, "seed must be 0 or more, not -1"),
        ({"drop_lowest": 0.1, "per": "score"}, "per must be source, or a column other than 'score'"),
        ({"drop_lowest": 0.1, "column": "text"}, "column must name a column of numbers, not 'text'"),
    ],
)
def test_wrong_settings_are_one_message(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        Select(**{"column": "score", **settings})


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ({"score": ["a", "b"]}, InputError, "column 'score' has no number in any of 2 documents"),
        ({"score": [None, None]}, InputError, "column 'score' has no number in any of 2 documents"),
        ({"score": [True, False]}, InputError, "column 'score' holds bool, but select needs numbers"),
        ({"other": [1, 2]}, CurationError, "score"),
    ],
)
def test_columns_without_numbers_are_one_message(column: dict[str, Any], error: type[Exception], message: str):
    with pytest.raises(error) as caught:
        curation.select(pd.DataFrame({"text": ["a", "b"]} | column), "score", drop_lowest=0.5)
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def test_an_unknown_share_in_a_recipe_is_named():
    with pytest.raises(RecipeError, match="drop_lowest"):
        recipe_of(Path("x.jsonl"), stages=[{"kind": "select", "column": "score", "drop_lowst": 0.3}])
