# SPDX-License-Identifier: Apache-2.0
"""`line_dedup` cuts what plain Python cuts, in tasks of any division, and a later run knows the units of an index."""

import itertools
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.contract import TEXT
from curation.base.errors import IntegrityError, RecipeError
from curation.cli import main
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages import LineDedup
from curation.stages.corpus.cutting import cut_texts, cuts_folder, load_cuts
from curation.stages.exact import unit_blocks
from curation.stages.exact.unit_keys import UnitSettings, unit_keys
from tests.corpus import NASTY, real_documents
from tests.oracle.hashing import murmur3_x64_128
from tests.oracle.line_dedup import line_dedup
from tests.oracle.units import units_of
from tests.runs import digests, files_below, records_of, report_of
from tests.stages.divided import ORDERS, Order, corpus_of, decide_in_order, write_partitions

PIECES = [
    "Menu",
    "menu ",
    "Home, page 1",
    "Home page 2",
    "  ",
    "A b. C d? E",
    "漢字。",
    "\u2028x",
    "end.",
    "é" * 5,
    "\r",
]

SENTENCES = ["Yes.", "No!", "So it is.\n", "“Why?”"]


def made_pages(count: int, seed: int = 0) -> list[str]:
    """Texts of few different lines, which repeat within texts and between them."""
    chance = random.Random(seed)
    texts = ["\n".join(chance.choices(PIECES, k=chance.randrange(9))) for _ in range(count // 2)]
    texts += [" ".join(chance.choices(SENTENCES, k=chance.randrange(9))) for _ in range(count // 2)]
    return [*texts, "", "\n\n", "one line", "x" * 70_000]


PAGES = [*made_pages(60), *(text for text in NASTY if len(text) < 1000)]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"unit": "paragraph", "compare": "folded"},
    {"unit": "sentence", "window": 3},
    {"window": 2, "min_characters": 9, "keep": "none"},
    {"compare": "folded", "min_characters": 5, "documents": 4},
    {"unit": "sentence", "documents": 9, "keep": "none"},
    {"window": 4},
]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_blocks, "BLOCK_UNITS", 150)
    monkeypatch.setattr(unit_blocks, "UNIT_BYTES", 1)
    monkeypatch.setattr("curation.stages.corpus.key_ranges.MIN_GROUP_ROWS", 600)


def cut_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], order: Order, engine: Any
) -> tuple[list[str], dict[str, Any]]:  # fmt: skip
    """The texts after the stage, and its details."""
    rows = [25, 0, 1, 30, len(PAGES) - 56]
    partitions = write_partitions(folder, {}, rows, PAGES)
    corpus = corpus_of(partitions, np.ones(len(PAGES), bool))
    decision = decide_in_order(monkeypatch, LineDedup(**settings), corpus, order, engine)
    texts = []
    for number, (low, high) in enumerate(itertools.pairwise(partitions.starts.tolist())):
        spans = load_cuts(cuts_folder(corpus.scratch), number)
        texts += cut_texts(pa.array(PAGES[low:high], pa.large_string()), spans, 0).to_pylist()
    return texts, dict(decision.details)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_texts_are_those_of_plain_python(settings: dict[str, Any], tmp_path: Path, monkeypatch, engine):
    expected, cut = line_dedup(PAGES, **settings)
    lost = [len(text) - len(after) for text, after in zip(PAGES, expected, strict=True)]
    assert cut > 9
    for number, order in enumerate([Order(1, 5, 3, 1, 2)] if settings else ORDERS[1:3]):
        texts, details = cut_in_order(tmp_path / str(number), monkeypatch, settings, order, engine)
        assert texts == expected
        assert details == {
            "units": sum(len(units_of(text, settings.get("unit", "line"))) for text in PAGES),
            "cut": cut,
            "by_index": 0,
            "characters": sum(lost),
            "emptied": sum(bool(text) and not after for text, after in zip(PAGES, expected, strict=True)),
        }


def test_keys_are_hashes_of_units(engine):
    column = pa.array(["before", None, "Menu\n a, B1\n\n", "", "a b0"], pa.large_string()).slice(1)
    expected = [murmur3_x64_128(content.encode())[0] for content in ("menu", "a b0", "", "a b0")]
    keys, counts = unit_keys(engine, column, UnitSettings("line", 1, "folded", 0))
    assert (keys.tolist(), keys.dtype, counts.tolist()) == (expected, np.uint64, [0, 3, 0, 1])
    keys, _ = unit_keys(engine, column, UnitSettings("line", 1, "exact", 5))
    assert keys.tolist() == [0, murmur3_x64_128(b"a, B1")[0], 0, 0]
    keys, _ = unit_keys(engine, column, UnitSettings("line", 3, "exact", 9))
    assert (keys != 0).tolist() == [True, False, False, False]
    assert unit_keys(engine, column[:0], UnitSettings("line", 2, "exact", 0))[0].tolist() == []


def test_a_block_has_each_key_once_and_16_bytes_per_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Memory of a range does not grow with the copies of a line, and the disk is bounded by the lines."""
    monkeypatch.setattr(unit_blocks, "BLOCK_UNITS", 1 << 20)
    monkeypatch.setattr(unit_blocks, "UNIT_BYTES", 64)
    texts = [*real_documents(), "Menu\n" * 100_000]
    lines = sum(len(text.splitlines()) for text in texts)
    corpus = corpus_of(write_partitions(tmp_path / "segment", {}, [len(texts)], texts), np.ones(len(texts), bool))
    decide_in_order(monkeypatch, LineDedup(documents=3), corpus, Order(1, 4, 2))
    size = sum(path.stat().st_size for path in corpus.scratch.rglob("*"))
    assert 4 * lines < size < 16 * lines
    blocks = unit_blocks.all_blocks(corpus)
    keys = np.concatenate([unit_blocks.read_range(blocks, number, True).keys for number in range(4)])
    assert len(keys) == len({line.strip() for text in texts for line in text.splitlines() if line.strip()})
    assert len(blocks) == 1


# Runs


def write_input(path: Path, texts: list[str]) -> Path:
    path.write_bytes(records_of(texts))
    return path


def finish(folder: Path, source: Path, stages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    output = {"formats": [], "index": True}
    recipe = convert_recipe({"input": [{"path": str(source), "keep_blank": True}], "stages": stages, "output": output})
    run(recipe, folder, engine="cpu", **{"workers": 2, "scheduler": "threads"} | more)
    return report_of(folder)


def texts_of(folder: Path) -> list[str]:
    return pq.read_table(folder / "documents")[TEXT].to_pylist()


LINES: dict[str, Any] = {"kind": "line_dedup"}


def test_a_run_counts_and_shows_what_it_cuts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = write_input(tmp_path / "in.jsonl", PAGES)
    report = finish(tmp_path / "out", source, [LINES, {"kind": "filter", "rules": {"words": {"min": 1}}}])
    expected, cut = line_dedup(PAGES)
    assert texts_of(tmp_path / "out") == [text for text in expected if text.split()]
    entry = report["stages"][0]
    changed = sum(before != after for before, after in zip(PAGES, expected, strict=True))
    assert (entry["edited"], entry["details"]["cut"]) == (changed, cut)
    assert entry["bytes_in"] - entry["bytes_out"] == sum(map(len, map(str.encode, PAGES))) - sum(
        map(len, map(str.encode, expected))
    )
    assert entry["lines"] == [
        f"{cut:,} lines of {entry['details']['units']:,} cut ({cut / entry['details']['units']:.1%}), "
        f"{entry['details']['characters']:,} characters in {changed} documents; "
        f"{entry['details']['emptied']} documents without text now"
    ]
    assert verify(tmp_path / "out") == []
    assert main(["show", str(tmp_path / "out"), "--what", "edited", "--sample", "30"]) == 0
    assert "[[" in capsys.readouterr().out
    whole = digests(tmp_path / "out")
    finish(tmp_path / "small", source, [LINES, {"kind": "filter", "rules": {"words": {"min": 1}}}], slice_bytes=9000)
    found = digests(tmp_path / "small")
    assert {file for file in whole if found[file] != whole[file]} <= {"report.json", "recipe.resolved.yaml"}


@pytest.mark.slow("a run that stops at each rename of line_dedup resumes with the same bytes")
def test_a_run_that_stops_at_each_rename_of_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One run, which stops again after each file that it writes, those of the index too."""
    source = write_input(tmp_path / "in.jsonl", made_pages(30)[:-1])
    options = {"workers": 1, "slice_bytes": 1200}
    finish(tmp_path / "whole", source, [LINES], **options)
    real, seen = os.replace, []

    class Stopped(BaseException):
        """What no code of the project catches."""

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        name = str(Path(target).relative_to(tmp_path / "out"))
        if name not in seen and any(part in name for part in ("stage-0", "decision-0", "saving-0", "index")):
            seen.append(name)
            raise Stopped

    monkeypatch.setattr(os, "replace", replace)
    done = False
    while not done:
        with suppress(Stopped):
            finish(tmp_path / "out", source, [LINES], **options)
            done = True
    for folder in ("runs", "listed", "copies", "cuts", "stage-0-cuts", "saving-0/joined"):
        assert any(f"{folder}/" in name for name in seen), folder
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


# An index


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    finish(folder / "old", write_input(folder / "old.jsonl", PAGES[:30]), [LINES])
    return folder / "old" / "index"


def test_units_of_an_earlier_run_are_known(old: Path, tmp_path: Path):
    source = write_input(tmp_path / "new.jsonl", PAGES[20:])
    report = finish(tmp_path / "new", source, [LINES | {"index": str(old)}], slice_bytes=9000)
    expected, cut = line_dedup(PAGES[20:], old=PAGES[:30])
    assert texts_of(tmp_path / "new") == expected
    details = report["stages"][0]["details"]
    assert (details["cut"], details["index_documents"]) == (cut, 30)
    assert report["stages"][0]["lines"][1] == f"{details['by_index']:,} lines of them in the index of 30 documents"
    assert 0 < details["by_index"] <= cut
    assert verify(tmp_path / "new") == []


@pytest.mark.parametrize("settings", [{"documents": 5}, {"keep": "none"}, {"documents": 7, "keep": "none"}], ids=str)
def test_copies_are_counted_with_those_of_an_index(settings: dict[str, Any], old: Path):
    frame = pd.DataFrame({TEXT: pd.Series(PAGES[20:], dtype="str")})
    found = curation.line_dedup(frame, index=old, **settings)[TEXT].tolist()
    assert found == line_dedup(PAGES[20:], old=PAGES[:30], **settings)[0]


def test_an_index_has_the_same_bytes_for_any_division(old: Path, tmp_path: Path):
    assert files_below(old) == [f"units/{name}" for name in ("documents.bin", "index.json", "keys.bin")]
    stages = [LINES | {"keep": "none", "documents": 3}]
    finish(tmp_path / "small", old.parents[1] / "old.jsonl", stages, slice_bytes=1500, workers=3)
    for file in files_below(old):
        assert (tmp_path / "small" / "index" / file).read_bytes() == (old / file).read_bytes()
    known = np.fromfile(old / "units/keys.bin", np.uint64)
    contents = {line.strip() for text in PAGES[:30] for line in text.splitlines()} - {""}
    assert known.tolist() == sorted(murmur3_x64_128(line.encode())[0] for line in contents)


def test_an_index_without_units(tmp_path: Path):
    for name, texts in (("old", []), ("new", ["a\na", "", "b"])):
        index = {"index": str(tmp_path / "old" / "index")} if name == "new" else {}
        finish(tmp_path / name, write_input(tmp_path / f"{name}.jsonl", texts), [LINES | index])
    assert texts_of(tmp_path / "new") == ["a\n", "", "b"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"unit": "sentence"}, "unit 'line' there, 'sentence' here"),
        ({"compare": "folded"}, "compare 'exact' there, 'folded' here"),
        ({"window": 2, "min_characters": 3}, "min_characters 0 there, 3 here; window 1 there, 2 here"),
    ],
)
def test_an_index_of_other_settings_is_refused(settings: dict[str, Any], told: str, old: Path, tmp_path: Path):
    source, index = write_input(tmp_path / "in.jsonl", ["a"]), shutil.copytree(old, tmp_path / "index")
    with pytest.raises(RecipeError, match=f"was made with other settings: {told}. Use the same here, or make the"):
        finish(tmp_path / "new", source, [LINES | settings | {"index": str(index)}])
    with pytest.raises(
        RecipeError, match=r"index: .*none/units has no index\.json; give index/ of a run with line_dedup"
    ):
        finish(tmp_path / "new", source, [LINES | {"index": str(tmp_path / "none")}])
    (index / "units/keys.bin").write_bytes(b"")
    with pytest.raises(IntegrityError, match=r"units/keys\.bin is 0 bytes long, not \d+; make the index again"):
        finish(tmp_path / "new", source, [LINES | {"index": str(index)}])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"window": 0}, "window must be at least 1, not 0. It is the number of adjacent units that are compared"),
        ({"min_characters": -1}, "min_characters must be 0 (compare all) or more, not -1"),
        ({"documents": 1}, "documents must be from 2 (what occurred before) to 65,535, not 1"),
        ({"documents": 65_536}, "documents must be from 2 (what occurred before) to 65,535, not 65536"),
        ({"unit": "lines"}, "unit must be one of line, paragraph, sentence, not 'lines'; did you mean line?"),
        ({"compare": "fold"}, "compare must be one of exact, folded, not 'fold'; did you mean folded?"),
        ({"keep": "last"}, "keep must be one of first, none, not 'last'"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], told: str):
    with pytest.raises(RecipeError) as error:
        convert_recipe({"input": [{"path": "x.jsonl"}], "stages": [LINES | settings]})
    assert told in str(error.value)


def test_frames_as_a_run():
    texts = [*PAGES, None]
    frame = pd.DataFrame({TEXT: pd.Series(texts, dtype="str")})
    found = curation.line_dedup(frame, unit="sentence", window=2)[TEXT].tolist()
    assert found[:-1] == line_dedup(PAGES, "sentence", 2)[0] and pd.isna(found[-1])
