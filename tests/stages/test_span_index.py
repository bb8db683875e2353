# SPDX-License-Identifier: Apache-2.0
"""The index of `substring_dedup`: it, and then new text, cut what one run over both cuts."""

import json
import random
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.arrays import map_file
from curation.base.contract import TEXT
from curation.base.errors import IntegrityError, RecipeError
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages import SubstringDedup
from curation.stages.corpus import key_ranges
from curation.stages.corpus.cutting import cut_texts, cuts_folder, load_cuts
from curation.stages.corpus.key_ranges import Division
from curation.stages.exact import span_blocks, span_index
from curation.stages.invoke import run_phase_task, run_phases
from curation.stages.outcome import Corpus
from tests.corpus import real_documents
from tests.kernels.test_spans import made_corpus
from tests.oracle.substring_dedup import substring_dedup
from tests.runs import files_below, report_of
from tests.stages.divided import CPU, ORDERS, Order, corpus_of, decide_in_order, write_partitions
from tests.stages.test_substring_dedup import LENGTH, PAGES, SPANS, made_pages, write_input

SEEDS = 4
DIVISIONS = [Order(1, 1, 1), Order(2, 5, 3, 1), Order(100, 2, 1, 3)]
FILES = [
    *(f"{level}-{kind}.bin" for level in ("anchors", "nodes", "windows") for kind in ("hashes", "places")),
    *("ids.arrow", "index.json", "offsets.bin", "texts.bin"),
]


def divided(folder: Path, texts: Sequence[str], chance: random.Random) -> Corpus:
    """The corpus of texts in partitions of random sizes."""
    ends = sorted(chance.choices(range(len(texts) + 1), k=chance.randint(0, 3)))
    rows = np.diff([0, *ends, len(texts)]).tolist()
    return corpus_of(write_partitions(folder, {}, rows, texts), np.ones(len(texts), bool))


def save(folder: Path, stage: SubstringDedup, corpus: Corpus, order: Order, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of the index that a stage saves of a corpus."""

    def divide(starts: np.ndarray, bands: int, workers: int) -> Division:
        last = len(starts) - 1
        return Division([*range(0, last, order.partitions), last], order.ranges, order.reducers)

    monkeypatch.setattr(key_ranges, "divide", divide)

    def work(place: int, tasks: Sequence[int]) -> None:
        for task in random.Random(order.seed).sample(tasks, len(tasks)):
            run_phase_task(stage, CPU, corpus, place, task, saving=True)

    run_phases(stage, corpus, work, saving=True)
    index = stage.new_index()
    index.write(corpus, folder / index.folder, lambda rows: pa.array(map(str, rows.tolist()), "large_string"), ())
    return str(folder)


def cut(stage: SubstringDedup, corpus: Corpus, texts: list[str], order: Order, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The texts after the stage."""
    decide_in_order(monkeypatch, stage, corpus, order)
    found: list[str] = []
    for number, (low, high) in enumerate(pairwise(corpus.storage.starts.tolist())):
        part = pa.array(texts[low:high], pa.large_string())
        found += cut_texts(part, load_cuts(cuts_folder(corpus.scratch), number), 0).to_pylist()
    return found


@pytest.fixture(params=[(64, 1 << 22), (1, 9)], ids=["few", "many"])
def _limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With low limits each hash of two places is looked up by nodes and windows, and ranges take passes."""
    few, records = request.param
    monkeypatch.setattr(span_index, "FEW", few)
    monkeypatch.setattr(span_blocks, "PASS_RECORDS", records)
    for name, size in {"BLOCK_RECORDS": 60, "BLOCK_BYTES": 3000, "PIECE_BYTES": 700, "PIECE_WINDOWS": 20}.items():
        monkeypatch.setattr(span_blocks, name, size)


@pytest.mark.usefixtures("_limits")
def test_an_index_and_new_text_equal_one_run_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed = 0
    for seed in range(SEEDS):
        chance, folder = random.Random(seed), tmp_path / str(seed)
        phrases = [text.decode() for text in made_corpus(chance)]
        old, new = ([*chance.choices(phrases, k=9), *made_pages(chance.randint(0, 20), seed + k)] for k in (0, 50))
        stage = SubstringDedup(length=chance.choice([32, 33, 64]))
        order, later = chance.sample(DIVISIONS, 2)
        index = save(folder / "index", stage, divided(folder / "old", old, chance), order, monkeypatch)
        stage = SubstringDedup(length=stage.length, index=index)
        expected = substring_dedup(old + new, stage.length)[len(old) :]
        assert cut(stage, divided(folder / "new", new, chance), new, later, monkeypatch) == expected, seed
        changed += expected != substring_dedup(new, stage.length)
    assert changed > 2


# Runs


def finish(folder: Path, source: Path, stages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    output = {"formats": [], "index": True}
    recipe = convert_recipe({"input": [{"path": str(source), "keep_blank": True}], "stages": stages, "output": output})
    run(recipe, folder, engine="cpu", **{"workers": 2, "scheduler": "threads"} | more)
    return report_of(folder)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of some documents, of which the stage and a later one remove some."""
    folder = tmp_path_factory.mktemp("index")
    stages = [SPANS | {"min_kept": 20}, {"kind": "exact_dedup"}]
    report = finish(folder / "old", write_input(folder / "old.jsonl", PAGES[:40]), stages)
    assert all(stage["reasons"] for stage in report["stages"])
    return folder / "old" / "index"


def test_spans_of_an_earlier_run_are_cut(old: Path, tmp_path: Path):
    source = write_input(tmp_path / "new.jsonl", PAGES[30:])
    report = finish(tmp_path / "new", source, [SPANS | {"index": str(old), "min_kept": 5}], slice_bytes=9000)
    expected = substring_dedup(PAGES[:40] + PAGES[30:], LENGTH, min_kept=5)[40:]
    assert expected != substring_dedup(PAGES[30:], LENGTH, min_kept=5)
    kept = [text for text in expected if text is not None]
    assert pq.read_table(tmp_path / "new" / "documents")[TEXT].to_pylist() == kept
    entry = report["stages"][0]
    assert (entry["details"]["index_documents"], entry["lines"][1]) == (
        40,
        "compared with the index of 40 documents too",
    )
    assert verify(tmp_path / "new") == verify(old.parent) == []
    frame = pd.DataFrame({TEXT: pd.Series(PAGES[30:], dtype="str")})
    assert curation.substring_dedup(frame, length=LENGTH, index=old, min_kept=5)[TEXT].tolist() == kept


def test_an_index_has_the_same_bytes_for_any_division(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert files_below(old / "spans") == sorted(FILES)
    texts, offsets = (old / "spans/texts.bin").read_bytes(), map_file(old / "spans/offsets.bin", np.int64)
    assert texts.decode() == "".join(PAGES[:40]) and len(offsets) == 41
    monkeypatch.setattr("curation.stages.corpus.key_ranges.MIN_GROUP_ROWS", 20)
    for name, size in {"BLOCK_RECORDS": 30, "BLOCK_BYTES": 3000, "PASS_RECORDS": 8}.items():
        monkeypatch.setattr(span_blocks, name, size)
    stages = [SPANS | {"bounds": "lines", "join": 3}, {"kind": "exact_dedup"}]
    finish(tmp_path / "small", old.parents[1] / "old.jsonl", stages, slice_bytes=1500, workers=3)
    for file in FILES:
        assert (tmp_path / "small/index/spans" / file).read_bytes() == (old / "spans" / file).read_bytes(), file
    assert len(map_file(old / "spans/anchors-places.bin", np.uint64)) > 30


def test_an_index_of_texts_without_windows(tmp_path: Path):
    finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", ["", "short"]), [SPANS])
    text = "x" * 9 + "y" * 31
    index = {"index": str(tmp_path / "old" / "index")}
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", [text, text]), [SPANS | index])
    assert pq.read_table(tmp_path / "new" / "documents")[TEXT].to_pylist() == [text, ""]


def test_an_index_that_does_not_fit_is_refused(old: Path, tmp_path: Path):
    source, index = write_input(tmp_path / "in.jsonl", ["a"]), shutil.copytree(old, tmp_path / "index")
    for stage, told in (
        ({"length": 64}, "spans was made with other settings: length 32 there, 64 here. Use the same here, or make "),
        ({"index": str(tmp_path)}, f"index: {tmp_path}/spans has no index.json; did you mean {index}?"),
        ({"index": "none"}, "index: none/spans has no index.json; give index/ of a run with substring_dedup and "),
    ):
        with pytest.raises(RecipeError) as refused:
            finish(tmp_path / "new", source, [SPANS | {"index": str(index)} | stage])
        assert told in str(refused.value)
    places, description = index / "spans/anchors-places.bin", index / "spans/index.json"
    content, size = json.loads(description.read_bytes()), places.stat().st_size
    content["files"][places.name]["bytes"] = size - 8
    shorter = (places, places.read_bytes()[8:])
    for spoiled, told in (
        (shorter, f"{places} is {size - 8} bytes long, not {size}; make the index again"),
        (
            (description, json.dumps(content).encode()),
            "spans is damaged: numbers of records in its files differ; make",
        ),
        ((description, b"{"), "index.json is damaged ("),
    ):
        spoiled[0].write_bytes(spoiled[1])
        with pytest.raises(IntegrityError) as damaged:
            finish(tmp_path / "new", source, [SPANS | {"index": str(index)}])
        assert told in str(damaged.value)
    assert not (tmp_path / "new").exists()


def test_damaged_places_are_not_followed(old: Path, tmp_path: Path):
    """A place outside the texts has no equal bytes: nothing outside the file is read."""
    index = shutil.copytree(old, tmp_path / "index")
    places = index / "spans/anchors-places.bin"
    number = places.stat().st_size // 8
    places.write_bytes(np.array([1 << 63, 1 << 40] * number, np.uint64)[:number].tobytes())
    frame = pd.DataFrame({TEXT: pd.Series(PAGES[30:40], dtype="str")})
    found = curation.substring_dedup(frame, length=LENGTH, index=index)[TEXT].tolist()
    assert found == substring_dedup(PAGES[30:40], LENGTH)


@pytest.mark.slow("an index of real text and a run over more text cut what one run over both cuts")
@pytest.mark.parametrize("length", [64, 200])
def test_real_text_after_an_index(length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    chance = random.Random(length)
    texts = chance.sample(real := real_documents(), len(real))
    half = len(texts) // 2
    stage = SubstringDedup(length=length)
    index = save(tmp_path / "index", stage, divided(tmp_path / "old", texts[:half], chance), ORDERS[1], monkeypatch)
    found = cut(
        SubstringDedup(length=length, index=index), divided(tmp_path / "new", texts[half:], chance), texts[half:],
        ORDERS[2], monkeypatch,
    )  # fmt: skip
    assert found == substring_dedup(texts, length)[half:] != substring_dedup(texts[half:], length)
