# SPDX-License-Identifier: Apache-2.0
"""Groups of near-duplicates equal those of slow Python, however the work is divided."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.base.errors import OutputError
from curation.running.run import run
from curation.stages import FuzzyDedup
from curation.stages.near import near_groups, near_pairs
from tests.oracle import minhash
from tests.runs import made_texts, recipe_of, records_of
from tests.stages.divided import CPU, ORDERS, Order, corpus_of, decide_in_order, write_partitions

SMALL = 3  # so that few documents are a crowd
BANDS = 3


def groups_by(rows: Iterable[int], key_of: Callable[[int], int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def pairs_of(
    keys: Sequence[Sequence[int]], rows: Sequence[int], band: int, small: int, step: int = 0
) -> set[tuple[int, int]]:
    """The pairs of a group of rows that share the key of a band."""
    pairs = {(rows[0], row) for row in rows[1:]}
    if len(rows) <= small:
        return pairs | set(combinations(rows, 2))
    if step < min(near_pairs.ROUNDS, len(keys) - 1):
        following = (band + step + 1) % len(keys)
        for group in groups_by(rows, lambda row: keys[following][row]):
            pairs |= pairs_of(keys, group, band, small, step + 1)
    return pairs


def kept_by_oracle(keys: Sequence[Sequence[int]], alive: Sequence[bool], small: int, alike: Any) -> dict[int, int]:
    """Removed row -> kept row."""
    label = list(range(len(alive)))
    for band, column in enumerate(keys):
        rows = [row for row, lives in enumerate(alive) if lives and column[row] != 0]
        for group in groups_by(rows, lambda row, column=column: column[row]):
            for left, right in pairs_of(keys, group, band, small):
                if alike(left, right):
                    old, new = max(label[left], label[right]), min(label[left], label[right])
                    label = [new if each == old else each for each in label]
    return {row: kept for row, kept in enumerate(label) if kept != row}


# Each document has a key per band and a word; documents with one word are alike.
DOCUMENTS = st.lists(
    st.tuples(st.tuples(*[st.sampled_from([1, 1, 2, 3, 2**64 - 1])] * BANDS), st.integers(0, 2), st.booleans()),
    max_size=30,
)


def decide(
    folder: Path,
    documents: Sequence[tuple[Sequence[int], Any, bool]],
    order: Order,
    cuts: Sequence[int],
    small: int = SMALL,
    **options: Any,
) -> Any:
    bounds = sorted({0, len(documents), *(min(cut, len(documents)) for cut in cuts)})
    rows = [high - low for low, high in pairwise(bounds)] or [0]
    keys = {f"band_{band:03d}": np.array([each[0][band] for each in documents], np.uint64) for band in range(BANDS)}
    partitions = write_partitions(folder / "segment", keys, rows, [str(each[1]) for each in documents])
    corpus = corpus_of(partitions, np.array([each[2] for each in documents], bool), workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_pairs, "SMALL", small)
        patch.setattr(near_pairs, "MERGE_PAIRS", 5)
        return decide_in_order(patch, FuzzyDedup(bands=BANDS, **options), corpus, order)


@settings(max_examples=8, deadline=None)
@given(DOCUMENTS, st.lists(st.integers(1, 29), max_size=4), st.sampled_from(ORDERS), st.sampled_from(["exact", "none"]))
def test_groups_equal_those_of_slow_python(documents: Any, cuts: list[int], order: Order, verify: str):
    keys = [[each[0][band] for each in documents] for band in range(BANDS)]
    expected = kept_by_oracle(
        keys,
        [each[2] for each in documents],
        SMALL,
        lambda left, right: verify == "none" or documents[left][1] == documents[right][1],
    )
    with TemporaryDirectory() as folder:
        [drops] = decide(Path(folder), documents, order, cuts, verify=verify).drops
    assert dict(zip(drops.row.tolist(), np.asarray(drops.partner).tolist(), strict=True)) == expected


def contained_by_oracle(words: Sequence[set[str]], alive: Sequence[bool], keep: str, threshold: float, bound: float):
    """Removed row -> kept row that contains it, where each pair is a candidate."""
    rows = [row for row, lives in enumerate(alive) if lives]
    pairs = [each for each in combinations(rows, 2) if minhash.jaccard(words[each[0]], words[each[1]]) >= threshold]
    label, kept, found = minhash.labels(pairs, len(alive)), dict[int, list[int]](), dict[int, int]()
    for row in sorted(rows, key=lambda row: (-sum(map(len, words[row])) if keep == "longest" else 0, row)):
        group = kept.setdefault(label[row], [])
        holders = [other for other in group if len(words[row] & words[other]) >= bound * len(words[row])]
        if holders:
            found[row] = holders[0]
        else:
            group.append(row)
    return found


@pytest.mark.slow("only documents that a kept one contains are removed, however the work is divided")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 63), st.booleans()), max_size=14),
    st.lists(st.integers(1, 13), max_size=3),
    st.sampled_from(ORDERS),
    st.sampled_from(["first", "longest"]),
    st.sampled_from([0, 1 << 23]),
)
def test_only_contained_documents_go(documents: Any, cuts: list[int], order: Order, keep: str, join_pairs: int):
    words = [{f"word{bit}" * (bit + 1) for bit in range(6) if bits >> bit & 1} for bits, _ in documents]
    given = [((1, 1, 1), " ".join(sorted(each)), lives) for each, (_, lives) in zip(words, documents, strict=True)]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_groups, "JOIN_PAIRS", join_pairs)
        found = decide(Path(folder), given, order, cuts, small=20, ngram=1, threshold=0.4, contained=0.7, keep=keep)
    [drops] = found.drops
    expected = contained_by_oracle(words, [lives for _, lives in documents], keep, 0.4, 0.7)
    assert dict(zip(drops.row.tolist(), np.asarray(drops.partner).tolist(), strict=True)) == expected
    shares = [len(words[row] & words[kept]) / len(words[row]) for row, kept in sorted(expected.items())]
    assert np.asarray(drops.value).tolist() == shares and found.details["uncompared"] == 0


@pytest.mark.slow("near-duplicates do not depend on the division of the work")
@pytest.mark.parametrize("options", [{}, {"verify": "signature"}, {"keep": "longest"}], ids=str)
def test_the_division_of_the_work_changes_nothing(tmp_path: Path, options: Any):
    chance = np.random.default_rng(5)
    documents = [
        (tuple(chance.choice([1, 2, 3, 4, 5, 6, 7, 8, 0], BANDS).tolist()), int(chance.integers(0, 4)), True)
        for _ in range(120)
    ]
    found = [
        decide(tmp_path / str(number), documents, order, range(0, 120, 17), **options)
        for number, order in enumerate(ORDERS)
    ]
    assert len(found[0].drops[0].row) > 60 and found[0].details["regrouped"][0] > 0
    for other in found[1:]:
        assert other.details == found[0].details
        for mine, theirs in zip(found[0].drops[0][:4:2], other.drops[0][:4:2], strict=True):
            assert np.array_equal(mine, theirs)
        assert np.array_equal(found[0].drops[0].partner, other.drops[0].partner)


def test_pairs_of_rows_beyond_int32_equal_those_below():
    chance = np.random.default_rng(1)
    pieces = [chance.integers(0, 30, (2, count)) for count in (0, 50, 200)]
    expected = sorted({*zip(*np.concatenate(pieces, axis=1).tolist(), strict=True)})
    for kind in (np.int32, np.int64):
        found = near_pairs.unique_pairs([piece.astype(kind) for piece in pieces])
        assert found.dtype == kind and [*zip(*found.tolist(), strict=True)] == expected


def test_no_comparison_is_repeated(tmp_path: Path):
    """Every unique pair is compared once, and none whose documents stars have joined."""
    compared: list[tuple[int, int]] = []

    def count(hashes: np.ndarray, offsets: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        words = [tuple(hashes[offsets[k] : offsets[k + 1]].tolist()) for k in range(len(offsets) - 1)]
        compared.extend((words[one], words[two]) for one, two in zip(left.tolist(), right.tolist(), strict=True))
        return CPU.intersection_sizes(hashes, offsets, left, right)

    engine = SimpleNamespace(**{name: getattr(CPU, name) for name in dir(CPU) if not name.startswith("_")})
    engine.intersection_sizes = count
    documents = [((1, 1, 1), word, True) for word in (0, 1, 1)]  # the last two are alike, and unlike the first
    keys = {f"band_{band:03d}": np.ones(3, np.uint64) for band in range(BANDS)}
    partitions = write_partitions(tmp_path / "segment", keys, [1, 2], [f"word{each[1]}" for each in documents])
    corpus = corpus_of(partitions, np.ones(3, bool))
    with pytest.MonkeyPatch.context() as patch:
        decision = decide_in_order(patch, FuzzyDedup(bands=BANDS), corpus, Order(1, 5, 3), engine)
    assert decision.drops[0].row.tolist() == [2] and decision.details["pairs_compared"] == 3
    assert len(compared) == 4  # two stars, one other pair, and the removed document with the kept one


def test_a_run_of_another_revision_of_the_stage_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(10)))
    recipe = recipe_of(path, stages=[{"kind": "fuzzy_dedup"}], output={"formats": []})
    run(recipe, tmp_path / "out", engine="cpu", workers=1)
    assert run(recipe, tmp_path / "out", engine="cpu", workers=1).already_complete
    monkeypatch.setattr(FuzzyDedup, "revision", 1)
    with pytest.raises(OutputError, match=r"changed: stage_revisions\.fuzzy_dedup"):
        run(recipe, tmp_path / "out", engine="cpu", workers=1)


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_two_crowds_are_divided_by_their_intersections(tmp_path: Path, shared: int):
    """Two documents of each of nine kinds: two bands are crowds, and only both together tell the kinds apart."""
    documents = []
    for number in range(18):
        kind = number // 2
        keys = [1 + kind % 3, 1 + kind // 3]
        keys.insert(shared, 100 + number)
        documents.append((keys, kind, True))
    for number, order in enumerate(ORDERS[shared::3]):
        decision = decide(tmp_path / str(number), documents, order, [5, 11])
        assert decision.drops[0].row.tolist() == list(range(1, 18, 2))
        assert np.asarray(decision.drops[0].partner).tolist() == list(range(0, 18, 2))
        assert decision.details["regrouped"][0] == 2 * 18
