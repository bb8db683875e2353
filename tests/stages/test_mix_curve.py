# SPDX-License-Identifier: Apache-2.0
"""A curve of `mix` writes documents as often as a sort of all documents tells, however the work is divided."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest

import curation
from curation.base.errors import CurationError
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages import Mix
from curation.stages.corpus import key_ranges
from curation.stages.shares import curve, mix, rank_bounds
from curation.stages.shares.select import order_of
from tests.runs import data_digests, kept_rows, recipe_of, table_rows
from tests.stages.divided import ORDERS, corpus_of, decide_in_order, write_partitions

DOLMA = [[0.4, 0], [0.95, 1], [1.0, 7]]
CURVES = [
    DOLMA,
    [[1, 2]],
    [[1.0, 0.3]],
    [[0.07, 1.5], [0.1, 0.25], [0.1001, 0], [0.9, 2.999], [1, 7]],
    [[round(k / 20, 2), round(0.4 * k, 1)] for k in range(1, 21)],  # vigintiles
]
SPECIAL = [0.0, -0.0, 1.0, 1.0, -1.0, 1e-310, -1e-310, 0.1, 0.30000000000000004, 2.0**53, None, float("nan")]


def copies_by_hand(numbers: list[float | None], groups: list[str], pieces: list[list[float]]) -> list[int]:
    """How often each document is written."""
    members: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)

    def rank(place: int) -> tuple[bool, float, int]:
        number = numbers[place]
        is_number = number is not None and number == number
        return (is_number, number if is_number else 0.0, -place)  # type: ignore[return-value]

    copies = [0] * len(numbers)
    for places in members.values():
        ranked, low = sorted(places, key=rank), 0
        for share, wanted in pieces:
            high = math.floor(Fraction(str(share)) * len(ranked))
            piece, low = ranked[low:high], high
            whole = math.floor(Fraction(str(wanted)) * len(piece))
            for place in piece:
                copies[place] = math.floor(wanted)
            for place in piece[::-1][: whole - sum(copies[place] for place in piece)]:
                copies[place] += 1
            assert sum(copies[place] for place in piece) == whole
    return copies


def made(count: int, seed: int) -> tuple[list[float | None], list[str]]:
    """Numbers with ties and gaps, and groups of different sizes, one without a name."""
    rng = np.random.default_rng(seed)
    pool = [*SPECIAL, *rng.normal(size=30).tolist()]
    numbers = [pool[place] for place in rng.integers(len(pool), size=count)]
    return numbers, ["" if g == 8 else f"group {g}" for g in (rng.integers(9, size=count) ** 2 // 8).tolist()]


def run_curve(folder: Path, pieces: list[list[float]], per: str, count: int = 307, **how: Any) -> dict[str, Any]:
    numbers, groups = made(count, 3)
    folder.mkdir(exist_ok=True)
    entries = []
    for name, rows in (("a", range(120)), ("b", range(120, count))):
        lines = [
            orjson.dumps({"id": str(k), "text": f"text {k}", "score": numbers[k], "kind": groups[k]}) for k in rows
        ]
        if not (folder / f"{name}.jsonl").exists():
            (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        entries.append({"path": str(folder / f"{name}.jsonl"), "name": name, "columns": ["score", "kind"]})
    stages = [{"kind": "mix", "curve": pieces, "column": "score", "per": per}]
    output = {"splits": {"train": 0.8, "valid": 0.2}, "cleaned": "jsonl", "part_documents": 40}
    report = run(recipe_of(*entries, stages=stages, output=output), folder / "out", engine="cpu", **how).report
    assert verify(folder / "out") == []
    return report


@pytest.mark.parametrize(
    "pieces",
    [
        CURVES[3],
        *(
            pytest.param(pieces, marks=pytest.mark.slow("the copies of every curve are those of a sort"))
            for pieces in (*CURVES[:3], CURVES[4])
        ),
    ],
    ids=lambda pieces: f"{len(pieces)} pieces",
)
def test_copies_are_those_of_a_sort_whatever_the_tasks(
    pieces: list[list[float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In one group and in many, with ties and gaps in all pieces, some rows gone, and in tasks of any division."""
    monkeypatch.setattr(rank_bounds, "REDUCER_ROWS", 40)
    chance = np.random.default_rng(len(pieces))
    for case, count in enumerate((1, 19, 160)):
        numbers, groups = made(count, case)
        numbers[0] = 0.5
        cuts = np.sort(chance.integers(0, count + 1, size=5)).tolist()
        sizes = np.diff([0, *cuts, count]).tolist()
        names = sorted({*groups})
        keys = {
            "order": order_of(np.array([math.nan if n is None else n for n in numbers]), descending=False),
            "group": np.array([names.index(group) << 61 for group in groups], np.uint64),
        }
        partitions = write_partitions(tmp_path / str(case), keys, sizes)
        alive = chance.random(count) < 0.8
        alive[0] = True
        rows = np.flatnonzero(alive).tolist()
        for per in ("", "kind"):
            stage = Mix(curve=tuple((share, copies) for share, copies in pieces), column="score", per=per)
            expected = copies_by_hand([numbers[k] for k in rows], [groups[k] if per else "" for k in rows], pieces)
            for number, order in enumerate(ORDERS):
                corpus = corpus_of(partitions, alive, workers=order.threads)
                corpus.scratch = tmp_path / f"scratch {case} {per} {number}"
                decision = decide_in_order(monkeypatch, stage, corpus, order)
                assert decision.copies is not None and decision.copies.tolist() == expected
                assert decision.dropped.tolist() == [k for k, copies in zip(rows, expected, strict=True) if not copies]


@pytest.mark.slow("a run writes documents by a curve as often as a sort tells, whatever the slices and workers")
@pytest.mark.parametrize("per", ["", "kind", "source"])
def test_a_run_writes_the_copies(per: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pieces = [[0.4, 0], [0.6, 0.5], [0.95, 1], [1.0, 6.5]]
    numbers, kinds = made(307, 3)
    groups = {"": [""] * 307, "kind": kinds, "source": ["a"] * 120 + ["b"] * 187}[per]
    expected = copies_by_hand(numbers, groups, pieces)
    report = run_curve(tmp_path / "one", pieces, per, slice_bytes=1 << 20, workers=1)
    rows = kept_rows(tmp_path / "one" / "out")
    assert Counter(row[0] for row in rows) == Counter({k: count for k, count in enumerate(expected) if count})
    removed = table_rows(tmp_path / "one/out/removed", "doc", "reason", "value")
    assert [(row, reason) for row, reason, _ in removed] == [
        (k, "not_drawn") for k, copies in enumerate(expected) if not copies
    ]
    for row, _, value in removed:
        number = numbers[row]
        assert value == number or ((value is None or value != value) and (number is None or number != number))
    [entry] = report["stages"]
    assert sum(piece["drawn_documents"] for piece in entry["details"]["groups"]) == sum(expected)
    assert report["documents"]["copies"] == sum(copies - 1 for copies in expected if copies)
    with monkeypatch.context() as changed:
        changed.setattr(key_ranges, "MIN_GROUP_ROWS", 16)
        changed.setattr(key_ranges, "MAX_GROUP_ROWS", 32)
        changed.setattr(rank_bounds, "REDUCER_ROWS", 50)
        divided = run_curve(tmp_path / "many", pieces, per, slice_bytes=900, workers=2)
    assert data_digests(tmp_path / "one" / "out") == data_digests(tmp_path / "many" / "out")
    assert entry["details"] == divided["stages"][0]["details"]


def test_the_report_has_a_row_per_piece(tmp_path: Path):
    report = run_curve(tmp_path / "run", DOLMA, "")
    numbers, _ = made(307, 3)
    ranked = sorted(-math.inf if n is None or n != n else n for n in numbers)
    [entry] = report["stages"]
    assert [[word for word in line.split() if word not in ("<=", "to")] for line in entry["lines"]] == [
        ["score", "documents", "share", "drawn", "share", "copies", "at", "most"],
        ["0%", "40%,", f"{ranked[121]:.6g}", "122", "39.74%", "0", "0.00%", "0", "0x"],
        ["40%", "95%,", f"{ranked[290]:.6g}", "169", "55.05%", "169", "60.14%", "0", "1x"],
        ["95%", "100%", "16", "5.21%", "112", "39.86%", "96", "7x"],
        [str(sum(n is None or n != n for n in numbers)), *["documents", "without", "a", "number", "ranked", "lowest"]],
    ]
    [warning] = [line for line in report["warnings"] if "Muennighoff" in line]
    assert "documents of '95% to 100%' are repeated up to 7 times" in warning
    assert warning.endswith("Lower its copies in curve")


def test_the_plan_counts_the_copies(tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(orjson.dumps({"text": f"t {n}", "score": n}) for n in range(40)))
    entry = {"path": str(tmp_path / "in.jsonl"), "columns": ["score"]}
    for pieces, kept in ((DOLMA, 36), ([[0.5, 0], [1, 2.5]], 50)):
        stages = [{"mix": {"curve": pieces, "column": "score"}}]
        assert curation.estimate(recipe_of(entry, stages=stages, output={"formats": []})).kept == kept
    [line] = Mix(curve=((0.4, 0), (1.0, 2.5)), column="score", per="source").explain()
    assert (
        line == "documents of each input from the lowest to the highest score: 0% to 40% 0 times, 40% to 100% 2.5 times"
    )


@pytest.mark.parametrize("per", ["", "kind"])
def test_a_frame_is_written_as_a_run_is(per: str):
    numbers, groups = made(99, 6)
    frame = pd.DataFrame({"text": [f"text {k}" for k in range(99)], "score": numbers, "kind": groups})
    drawn = curation.mix(frame, curve=CURVES[3], column="score", per=per)
    expected = copies_by_hand(numbers, groups if per else [""] * 99, CURVES[3])
    assert drawn.index.tolist() == [k for k, copies in enumerate(expected) for _ in range(copies)]
    strings = frame.assign(score=[str(number) for number in numbers])  # numbers as strings, gaps as words
    assert curation.mix(strings, curve=CURVES[3], column="score", per=per).index.equals(drawn.index)


def test_no_documents_have_no_ranks(tmp_path: Path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"text": "gone", "score": 1}\n')
    stages = [{"kind": "filter", "rules": ["gopher"]}, {"kind": "mix", "curve": DOLMA, "column": "score"}]
    report = run(recipe_of(path, columns=["score"], stages=stages), tmp_path / "out", engine="cpu").report
    assert report["documents"]["kept"] == 0 and report["documents"]["read"] == 1


@pytest.mark.parametrize(
    ("pieces", "documents", "ends"),
    [
        (DOLMA, 100, [40, 95, 100]),
        (DOLMA, 7, [2, 6, 7]),
        (DOLMA, 1, [0, 0, 1]),
        ([[0.3, 1], [1, 2]], 10, [3, 10]),  # 0.3 * 10 is 3.0000000000000004 in floats, 0.29 * 100 is 28.999999999999996
        ([[0.29, 1], [1, 2]], 100, [29, 100]),
        ([[0.5, 2.5], [1, 0.1]], 10, [3, 5, 10, 10]),  # 12 copies of 5 documents; none of 5
        ([[1, 0.57]], 100, [43, 100]),
    ],
)
def test_ends_of_steps(pieces: list[tuple[float, float]], documents: int, ends: list[int]):
    assert curve.ends_of(pieces, documents) == ends


@pytest.mark.slow("a killed run with a curve resumes with the same bytes")
def test_a_killed_run_continues_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = run_curve(tmp_path / "whole", DOLMA, "kind")
    counted = mix.Mix._count_copies

    def die(stage: mix.Mix, engine: Any, corpus: Any, task: int) -> None:
        counted(stage, engine, corpus, task)
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    monkeypatch.setattr(mix.Mix, "_count_copies", die)
    with pytest.raises(KeyboardInterrupt):
        run_curve(folder, DOLMA, "kind", workers=1)
    monkeypatch.undo()
    finished = [*(folder / "out" / "_work").rglob("copies/*.bin")]
    assert run_curve(folder, DOLMA, "kind")["outputs"].keys() == expected["outputs"].keys() and finished
    assert data_digests(folder / "out") == data_digests(tmp_path / "whole" / "out")


# bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"curve": [[0.4, 0]]}, "the shares of curve must ascend from above 0 to 1.0, not [0.4]"),
        ({"curve": [[0.4, 0], [0.3, 1], [1, 2]]}, "ascend from above 0 to 1.0, not [0.4, 0.3, 1.0]"),
        ({"curve": [[0.4, 0], [0.4, 1], [1, 2]]}, "ascend from above 0 to 1.0, not [0.4, 0.4, 1.0]"),
        ({"curve": [[0, 0], [1, 2]]}, "ascend from above 0 to 1.0, not [0.0, 1.0]"),
        ({"curve": [[40, 0], [100, 1]]}, "not [40.0, 100.0]. Write 0.4 for 40 %"),
        ({"curve": [[float("nan"), 0], [1, 1]]}, "ascend from above 0 to 1.0, not [nan, 1.0]"),
        ({"curve": [[1, -1]]}, "the copies of curve must be 0 to 65,535, not -1.0"),
        ({"curve": [[1, 65536]]}, "the copies of curve must be 0 to 65,535, not 65536.0"),
        ({"curve": [[1, float("nan")]]}, "the copies of curve must be 0 to 65,535, not nan"),
        ({"curve": [[0.5, 0], [1, 0]]}, "curve removes all documents, since all copies are 0"),
        ({"curve": [[1, 2, 3]]}, "Expected `array` of length 2, got 3"),
        ({"curve": 2}, "Expected `array`, got `int`"),
        ({"curve": [["low", 2]]}, "Expected `float`, got `str`"),
        ({"column": ""}, "curve needs column, the name of a column of numbers, not ''"),
        ({"column": "text"}, "curve needs column, the name of a column of numbers, not 'text'"),
        ({"per": "text"}, "per must be source, or a column other than 'text' whose values repeat"),
        ({"per": "score"}, "per must be source, or a column other than 'score' whose values repeat"),
        ({"by": "kind"}, "by is for weights. To rank the documents of each kind, give per: kind"),
        ({"weights": {"a": 1}}, "curve determines how often documents are written. Leave weights out, or curve"),
        ({"temperature": 2}, "Leave temperature out, or curve"),
        ({"documents": 2}, "Leave documents out, or curve"),
        ({"tokens": 2}, "Leave tokens out, or curve"),
        ({"max_epochs": 2}, "Leave max_epochs out, or curve"),
        ({"curve": []}, "column is for curve. Give curve, or leave column out"),
        ({"curve": [], "column": "", "per": "kind"}, "per is for curve. Give curve, or leave per out"),
        ({"curve": [], "column": ""}, "weights is empty; name groups, such as {wiki: 0.3, web: 0.7}, or give "),
        ({"column": "number"}, "number"),
        ({"column": "flag"}, "column 'flag' holds bool, but mix needs numbers"),
        ({"column": "empty"}, "column 'empty' has no number in any of 2 documents"),
    ],
)
def test_wrong_curves_are_one_message(settings: dict[str, Any], message: str):
    frame = pd.DataFrame(
        {"text": ["a", "b"], "score": [1, 2], "kind": ["x", "y"], "flag": [True, False], "empty": [None, "none"]}
    )
    with pytest.raises(CurationError, match=re.escape(message)) as caught:
        curation.mix(frame, **{"curve": DOLMA, "column": "score", **settings})
    assert str(caught.value).count("\n") == 0


def test_a_wrong_shape_in_python_is_one_message():
    with pytest.raises(ValueError, match=re.escape("curve must be a list of [share, copies], such as")):
        Mix(curve=((1.0, 2.0, 3.0),), column="score")  # type: ignore[arg-type]
