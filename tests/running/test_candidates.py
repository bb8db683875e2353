# SPDX-License-Identifier: Apache-2.0
"""Candidates for samples are the same however rows are divided, and few for any number of reasons."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.base.engine import load_engine
from curation.record import candidates
from curation.record.candidates import Candidates, sample_of, text_hashes
from curation.results.report.samples import MAX_REASONS, SHOWN_CHARACTERS
from curation.rules.decide import Verdict
from curation.running.run import run
from tests.runs import recipe_of, records_of, report_of

ROWS = 3_000
CPU = load_engine("cpu")


def collected(sizes: list[int], reasons: int) -> set[tuple[str, str]]:
    """The candidates of slices of these sizes: (reason, text)."""
    chance = random.Random(1)
    texts = [f"{chance.random()} {k}" for k in range(ROWS)]
    reason = np.array([chance.randrange(reasons) for _ in range(ROWS)], np.int64)
    names = tuple(f"reason {k}" for k in range(reasons))
    tables, first = [], 0
    for size in sizes:
        found = Candidates(2)
        for low in range(first, min(first + size, ROWS), 70):
            stop = min(low + 70, first + size, ROWS)
            rows = pa.table({"row": np.arange(low, stop) - first, "id": pa.nulls(stop - low, pa.large_string()),
                             "text": pa.array(texts[low:stop], pa.large_string())})  # fmt: skip
            verdict = Verdict(reason[low:stop], names, np.ones(stop - low))
            found.add(CPU, 0, CPU.from_arrow(rows), verdict, np.full(stop - low, np.nan))
        tables.append(found.table())
        first += size
    chosen = sample_of(pa.concat_tables(tables), 2)
    return set(zip(chosen.column("reason").to_pylist(), chosen.column("text").to_pylist(), strict=True))


@pytest.mark.parametrize("reasons", [3, 400])
def test_slices_change_no_candidate(monkeypatch: pytest.MonkeyPatch, reasons: int):
    monkeypatch.setattr(candidates, "MAX_REASONS", 50)
    monkeypatch.setattr(candidates, "PENDING_ROWS", 30)
    whole = collected([ROWS], reasons)
    assert whole == collected([100, 900, 1, 1_999], reasons) == collected([500] * 6, reasons)
    assert len(whole) == 2 * min(reasons, 50)


def test_hashes_read_only_the_text():
    texts = CPU.from_arrow(pa.table({"text": pa.array(["a", "", "long text " * 50, "a", None, "b"])}))["text"]
    hashes = text_hashes(CPU, texts)
    assert hashes[0] == hashes[3] != hashes[5] and hashes[1] == hashes[4]
    assert text_hashes(CPU, texts.iloc[2:])[0] == hashes[2]


def test_large_documents_and_many_reasons_leave_a_small_report(tmp_path: Path):
    large = "word and other words " * 150_000  # 3 MB
    texts = [large, large + "more", *(f"short {k}" for k in range(60))]
    (tmp_path / "a.jsonl").write_bytes(records_of(texts))
    rules = [{"matches": f"short {k}$", "max_count": 0, "reason": f"no {k} " + "x" * 400} for k in range(60)]
    stages = [{"kind": "filter", "rules": rules}, {"kind": "fuzzy_dedup"}]
    run(recipe_of(tmp_path / "a.jsonl", stages=stages), tmp_path / "out", engine="cpu", progress=False)
    texts = report_of(tmp_path / "out")["texts"]
    assert len(texts["removed"]) == MAX_REASONS
    [pair] = texts["pairs"][0]["pairs"]
    assert pair["jaccard"] is None and pair["cut"] and texts["kept"][0]["characters"] > 3_000_000
    assert max(len(run[0]) for run in pair["runs"]) <= SHOWN_CHARACTERS >= len(texts["kept"][0]["text"])
    assert (tmp_path / "out/report.html").stat().st_size < 200_000
