# SPDX-License-Identifier: Apache-2.0
"""The benchmarks call the package as it is: each measurement of `bench_peers` runs on a few documents."""

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.bench_peers import COMPARISONS, WORKS, Place, measure

OURS = sorted({comparison.ours.work for comparison in COMPARISONS.values()})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("benchmarks") / "corpus.jsonl"
    lines = [json.dumps({"id": str(k), "text": f"Text {k} says that the sea and the sky are blue."}) for k in range(30)]
    path.write_text("\n".join(lines) + "\n")
    path.with_name("corpus.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", OURS)
def test_a_measurement_runs_and_has_its_times(corpus: Path, tmp_path: Path, name: str):
    found = measure(WORKS[name], corpus, tmp_path / "work", Place(corpus, corpus, tmp_path, tmp_path / "gpt2.json"))
    assert found["user"] >= 0 and found["system"] >= 0
    if "kept" in found:
        assert found["kept"] in range(31)
