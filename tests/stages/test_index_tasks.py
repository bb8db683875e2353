# SPDX-License-Identifier: Apache-2.0
"""The files of a saved index are the same bytes for any division into tasks, and after a kill at any of them."""

import hashlib
import json
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages import CorpusStage, ExactDedup, FuzzyDedup
from curation.stages.corpus import key_ranges, saved_index
from curation.stages.corpus.index_tasks import files_folder, noted_files
from curation.stages.corpus.key_ranges import Division
from curation.stages.invoke import run_phase_task, run_phases
from curation.stages.outcome import Corpus
from tests.runs import files_below, recipe_of
from tests.stages.divided import CPU, ORDERS, Order, corpus_of, write_partitions

CHANCE = np.random.default_rng(7)
ROWS = (3, 0, 40, 1, 27, 0)
COUNT = sum(ROWS)
TEXTS = [" ".join(f"w{k}" for k in CHANCE.integers(0, 30, size)) for size in CHANCE.integers(0, 12, COUNT)]
ALIVE = CHANCE.random(COUNT) < 0.8
BANDS = {"band_000": CHANCE.integers(0, 2**64, COUNT, np.uint64), "band_001": CHANCE.integers(0, 4, COUNT, np.uint64)}
BANDS["band_001"] <<= np.uint64(62)  # equal keys, at both ends of the ranges
HASHES = {"high": BANDS["band_001"], "low": CHANCE.integers(0, 3, COUNT, np.uint64)}
FUZZY = {"bands": 2, "rows": 1, "permutations": 2, "ngram": 2}


def files_of(monkeypatch: pytest.MonkeyPatch, stage: CorpusStage, corpus: Corpus, order: Order) -> dict[str, bytes]:
    """The files that the phases of the index write, with the tasks of each in another order, some at once."""

    def divide(starts: np.ndarray, bands: int, workers: int) -> Division:
        last = len(starts) - 1
        return Division([*range(0, last, order.partitions), last], order.ranges, 1)

    monkeypatch.setattr(key_ranges, "divide", divide)
    chance = random.Random(order.seed)

    def run_tasks(place: int, tasks: Sequence[int]) -> None:
        with ThreadPoolExecutor(order.threads) as pool:
            shuffled = chance.sample(tasks, len(tasks))
            list(pool.map(lambda task: run_phase_task(stage, CPU, corpus, place, task, True), shuffled))

    run_phases(stage, corpus, run_tasks, saving=True)
    files = {path.name: path.read_bytes() for path in files_folder(corpus).iterdir()}
    assert noted_files(corpus) == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    return files


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("alive", [ALIVE, ALIVE & False], ids=["some", "none"])
def test_keys_are_sorted_with_their_documents(tmp_path, monkeypatch, order, alive):
    stages = {"exact": (ExactDedup(), HASHES), "none": (FuzzyDedup(verify="none", **FUZZY), BANDS)}
    kept = np.flatnonzero(alive)
    expected: dict[str, dict[str, np.ndarray]] = {"exact": {}, "none": {}}
    by_both = np.lexsort((HASHES["low"][kept], HASHES["high"][kept]))
    for name, values in HASHES.items():
        expected["exact"][f"{name}.bin"] = values[kept][by_both]
    expected["exact"]["documents.bin"] = by_both.astype(np.int32)
    for band, keys in enumerate(BANDS.values()):
        by_key = np.argsort(keys[kept], kind="stable")
        expected["none"][f"keys-00{band}.bin"] = keys[kept][by_key]
        expected["none"][f"documents-00{band}.bin"] = by_key.astype(np.int32)
    for name, (stage, keys) in stages.items():
        corpus = corpus_of(write_partitions(tmp_path / name, keys, ROWS), alive)
        files = files_of(monkeypatch, stage, corpus, order)
        assert files == {file: values.tobytes() for file, values in expected[name].items()}


@pytest.mark.parametrize("verify_by", ["exact", "signature"])
def test_data_of_all_slice_groups_are_joined(tmp_path, monkeypatch, verify_by):
    stage = FuzzyDedup(verify=verify_by, **FUZZY)
    whole = corpus_of(write_partitions(tmp_path / "whole", BANDS, [COUNT], TEXTS), ALIVE)
    stage._write_similarity(CPU, whole, np.arange(len(whole.rows)), tmp_path / "plain")
    plain = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    assert {*plain} == ({"shingles.bin", "offsets.bin"} if verify_by == "exact" else {"signatures.bin"})
    for number, order in enumerate(ORDERS):
        corpus = corpus_of(write_partitions(tmp_path / f"{number}", BANDS, ROWS, TEXTS), ALIVE)
        files = files_of(monkeypatch, stage, corpus, order)
        assert {name: files[name] for name in plain} == plain


def test_ids_are_in_batches_that_do_not_depend_on_partitions(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_index, "IDS_AT_ONCE", 7)
    for rows in (ROWS, [COUNT], [1] * COUNT):
        corpus = corpus_of(write_partitions(tmp_path / str(len(rows)), BANDS, rows), ALIVE)
        path = tmp_path / f"{len(rows)}.arrow"
        count = saved_index._write_ids(path, corpus, lambda rows: pa.array(map(str, rows), pa.large_string()))
        assert count == ALIVE.sum()
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            batches = [reader.get_batch(number).column("id") for number in range(reader.num_record_batches)]
        assert {len(batch) for batch in batches[:-1]} == {7} and 0 < len(batches[-1]) <= 7
        ids = [value for batch in batches for value in batch.to_pylist()]
        assert ids == [str(row) for row in np.flatnonzero(ALIVE)]


@pytest.mark.slow("a run that is killed at each rename while it saves an index resumes with the same bytes")
def test_a_run_killed_at_each_rename_while_it_saves_ends_in_the_same_bytes(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    texts = [*TEXTS, *TEXTS[:5]]
    path.write_text("".join(json.dumps({"id": str(k), "text": text}) + "\n" for k, text in enumerate(texts)))
    stages = [{"kind": "exact_dedup"}, {"kind": "fuzzy_dedup", "bands": 2, "rows": 2, "permutations": 4}]
    recipe = recipe_of(path, stages=stages, output={"formats": [], "index": True})
    run(recipe, tmp_path / "whole", engine="cpu", workers=1)
    whole = {
        name: (tmp_path / "whole" / "index" / name).read_bytes() for name in files_below(tmp_path / "whole" / "index")
    }
    replace, left, kills = os.replace, [0], 0

    class Killed(BaseException):
        pass

    def rename(source: Path, target: Path) -> None:
        left[0] -= "saving" in str(target) or str(target).endswith("index")
        if not left[0]:
            raise Killed
        replace(source, target)

    monkeypatch.setattr(os, "replace", rename)
    while True:
        left[0] = kills // 3 + 1  # each resumed run goes on from the records of the last
        try:
            run(recipe, tmp_path / "killed", engine="cpu", workers=1)
            break
        except Killed:
            kills += 1
    assert kills > 10
    files = {
        name: (tmp_path / "killed" / "index" / name).read_bytes() for name in files_below(tmp_path / "killed" / "index")
    }
    assert files == whole and verify(tmp_path / "killed") == []
