# SPDX-License-Identifier: Apache-2.0
"""Removed rows are in files: the process that decides holds a batch of them."""

import tracemalloc

import numpy as np
import pytest

from curation.base import arrays
from curation.stages.corpus.kept_rows import group_sizes
from curation.stages.corpus.stored_drops import count_below, distinct_file, runs_of, stored_drops
from curation.stages.outcome import BYTES, Corpus
from tests.stages.divided import write_partitions

CHANCE = np.random.default_rng(11)


def plain_sizes(partner: np.ndarray) -> dict:
    kept, removed = np.unique(partner, return_counts=True)
    sizes = removed + 1
    by_top: dict[str, int] = {}
    for size in sorted(sizes.tolist()):
        top = 2
        while size > top:
            top *= 2
        name = str(top) if top == 2 else f"{top // 2 + 1}-{top}"
        by_top[name] = by_top.get(name, 0) + 1
    largest = sorted(zip((-sizes).tolist(), kept.tolist(), strict=True))[:10]
    return {
        "groups": len(kept),
        "group_sizes": by_top,
        "largest_groups": [{"row": row, "documents": -size} for size, row in largest],
    }


def corpus_in(folder, count: int) -> Corpus:
    partitions = write_partitions(folder, {BYTES: np.zeros(count, np.int64)}, [count])
    return partitions.corpus(0, np.arange(count))


@pytest.mark.parametrize("at_once", [1, 2, 7, 1 << 16])
@pytest.mark.parametrize("partner", [
    np.zeros(0, np.int32), np.zeros(1, np.int32), np.full(40, 3, np.int32), np.arange(30, dtype=np.int64),
    CHANCE.integers(0, 12, 300).astype(np.int32), np.repeat(np.arange(9), [1, 2, 3, 4, 7, 8, 15, 16, 17]),
])  # fmt: skip
def test_sizes_of_groups_equal_a_plain_count(tmp_path, monkeypatch, at_once, partner):
    monkeypatch.setattr(arrays, "AT_ONCE", at_once)
    assert group_sizes(corpus_in(tmp_path / "parts", 1), CHANCE.permutation(partner)) == plain_sizes(partner)
    found = [np.concatenate(values) for values in zip(*runs_of(np.sort(partner)), strict=True)]
    expected = np.unique(partner, return_counts=True)
    assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
    different = distinct_file(tmp_path / "different.bin", [partner[:7], partner[7:]])
    assert np.array_equal(different, expected[0]) and different.dtype == partner.dtype


def test_a_million_removed_rows_take_no_memory_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "AT_ONCE", 1000)
    corpus, pieces, size = corpus_in(tmp_path / "parts", 10), 500, 2000
    rows = np.arange(size, dtype=np.int32)

    def removed():
        for number in range(pieces):
            yield rows + number * size, rows // 2, np.where(rows % 4, 0.9, 0.5)

    tracemalloc.start()
    drops = stored_drops(corpus, "same", removed())
    below, sizes = count_below(drops, 0.8), group_sizes(corpus, drops.partner)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(drops.row) == len(drops.partner) == len(drops.value) == pieces * size
    assert (below, sizes["groups"], sizes["largest_groups"][0]) == (250_000, 1000, {"row": 0, "documents": 1001})
    assert peak < 1_000_000  # one byte per row


def test_files_that_are_written_again_leave_what_is_mapped(tmp_path):
    corpus, rows = corpus_in(tmp_path / "parts", 10), np.arange(10, dtype=np.int32)
    drops = stored_drops(corpus, "same", [(rows, rows, np.ones(10))])
    different = distinct_file(tmp_path / "different.bin", [rows])
    stored_drops(corpus, "same", [(rows + 1, rows + 1, np.zeros(10))])
    distinct_file(tmp_path / "different.bin", [rows + 1])
    assert drops.row.tolist() == drops.partner.tolist() == different.tolist() == rows.tolist()
    assert np.asarray(drops.value).tolist() == [1.0] * 10
