# SPDX-License-Identifier: Apache-2.0
"""The saved index of `exact_dedup`: a later run removes the texts that an earlier one has kept, and names them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import curation
from curation.base.errors import IntegrityError, OutputError, RecipeError
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages.exact.exact_index import _places
from tests.runs import files_below, kept_rows, made_texts, recipe_of, removed_rows, report_of

EXACT: dict[str, Any] = {"kind": "exact_dedup"}
FUZZY: dict[str, Any] = {"kind": "fuzzy_dedup"}


def write_input(path: Path, texts: list[str]) -> Path:
    lines = [json.dumps({"id": f"{path.stem}-{k}", "text": text}) + "\n" for k, text in enumerate(texts)]
    path.write_text("".join(lines))
    return path


def finish(folder: Path, path: Path, *stages: dict[str, Any], **more: Any) -> Path:
    recipe = recipe_of(path, stages=[*stages], output={"formats": [], "index": True})
    run(recipe, folder, engine="cpu", **{"workers": 2, "scheduler": "threads"} | more)
    return folder / "index"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", made_texts(300)), EXACT)


def test_texts_of_an_earlier_run_are_removed_and_the_old_document_is_named(old: Path, tmp_path: Path):
    texts = [*made_texts(300)[100:], *made_texts(200, seed=1)]
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", texts), EXACT | {"index": str(old)})
    first = {text: id_ for _, id_, _, text in kept_rows(tmp_path / "old")}
    found = {row[1]: (row[4], row[5], row[6]) for row in removed_rows(tmp_path / "new")}
    seen: dict[str, str] = {}
    expected = {}
    for number, text in enumerate(texts):
        if text in first:
            expected[f"new-{number}"] = ("exact_duplicate_of_index", 1.0, first[text])
        elif text in seen:
            expected[f"new-{number}"] = ("exact_duplicate", 1.0, seen[text])
        else:
            seen[text] = f"new-{number}"
    assert found == expected and {reason for reason, *_ in found.values()} == {
        "exact_duplicate_of_index",
        "exact_duplicate",
    }
    assert [row[1] for row in kept_rows(tmp_path / "new")] == [*seen.values()]
    report = report_of(tmp_path / "new")
    equal = sum(reason == "exact_duplicate_of_index" for reason, *_ in found.values())
    assert report["stages"][0]["details"]["index"] == {"documents": len(first), "equal": equal}
    assert f"{equal} with the text of one of {len(first)} documents of the index" in report["stages"][0]["lines"]
    assert verify(tmp_path / "new") == []


@pytest.mark.slow("an index of `exact_dedup` has the same bytes for any slices and workers")
def test_the_same_bytes_for_any_slices_and_workers(old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.stages.corpus.key_ranges.MIN_GROUP_ROWS", 7)
    path = write_input(tmp_path / "new.jsonl", [*made_texts(300)[200:], *made_texts(150, seed=2)])
    stage = EXACT | {"index": str(old)}
    whole = finish(tmp_path / "whole", path, stage, workers=1)
    for name, more in {
        "small": {"slice_bytes": 700, "workers": 3},
        "processes": {"slice_bytes": 5000, "scheduler": "processes"},
    }.items():
        index = finish(tmp_path / name, path, stage, **more)
        assert removed_rows(tmp_path / name) == removed_rows(tmp_path / "whole")
        assert kept_rows(tmp_path / name) == kept_rows(tmp_path / "whole")
        assert {file: (index / file).read_bytes() for file in files_below(index)} == {
            file: (whole / file).read_bytes() for file in files_below(whole)
        }


def test_one_folder_has_the_indexes_of_both_stages(tmp_path: Path):
    texts = made_texts(200)
    index = finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", texts), EXACT, FUZZY)
    assert {"index.json", "keys-000.bin", "exact/index.json", "exact/high.bin"} < {*files_below(index)}
    outputs = {name for name in report_of(tmp_path / "old")["outputs"] if name.startswith("index/")}
    assert outputs == {f"index/{name}" for name in files_below(index)}
    ids = [json.loads((index / below / "index.json").read_text())["documents"] for below in ("", "exact")]
    assert ids == [len(kept_rows(tmp_path / "old"))] * 2
    new = write_input(tmp_path / "new.jsonl", [*texts[:50], "a new text of six words"])
    finish(tmp_path / "new", new, EXACT | {"index": str(index)}, FUZZY | {"index": str(index)})
    assert [row[1] for row in kept_rows(tmp_path / "new")] == ["new-50"]
    assert {row[4] for row in removed_rows(tmp_path / "new")} >= {"exact_duplicate_of_index"}
    assert verify(tmp_path / "old") == [] == verify(tmp_path / "new")
    (index / "exact/low.bin").write_bytes(b"\0" * 8 * ids[1])
    assert ["index/exact/low.bin has changed" in fault for fault in verify(tmp_path / "old")] == [True]


def test_texts_whose_hashes_share_64_bits_are_told_apart():
    high = np.array([1, 5, 5, 5, 9], np.uint64)
    low = np.array([4, 2, 3, 7, 1], np.uint64)
    wanted = [(5, 3), (5, 7), (5, 4), (1, 4), (9, 2), (0, 0), (12, 1), (5, 2)]
    found = _places(high, low, *(np.array(side, np.uint64) for side in zip(*wanted, strict=True)))
    assert found.tolist() == [2, 3, -1, 0, -1, -1, -1, 1]


def test_frames_are_compared_with_an_index(old: Path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["new", made_texts(300)[7], "new"]})
    assert curation.exact_dedup(frame, index=old)["text"].tolist() == ["new"]


def test_empty_data_on_both_sides(old: Path, tmp_path: Path):
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", []), EXACT | {"index": str(old)})
    none = finish(tmp_path / "none", write_input(tmp_path / "none.jsonl", []), EXACT)
    finish(tmp_path / "later", write_input(tmp_path / "later.jsonl", ["a", "a", ""]), EXACT | {"index": str(none)})
    assert [row[1] for row in kept_rows(tmp_path / "later")] == ["later-0", "later-2"]


def test_indexes_that_do_not_fit_are_refused(old: Path, tmp_path: Path):
    path, index = tmp_path / "old.jsonl", {"index": str(old)}
    fuzzy = finish(tmp_path / "fuzzy", path, FUZZY)
    with pytest.raises(RecipeError, match=r"was made with other settings: compare 'exact' there, 'lowercase' here"):
        finish(tmp_path / "new", path, EXACT | index | {"compare": "lowercase"})
    message = (
        r"index: .*fuzzy/index/exact has no index\.json; give index/ of a run with exact_dedup and output: \{index"
    )
    with pytest.raises(RecipeError, match=message):
        finish(tmp_path / "new", path, EXACT | {"index": str(fuzzy)})
    with pytest.raises(RecipeError, match=r"index: .*old/index has no index\.json; give index/ of a run with fuzzy"):
        finish(tmp_path / "new", path, FUZZY | index)
    assert not (tmp_path / "new").exists()
    finish(tmp_path / "new", path, EXACT | index)
    finish(tmp_path / "old", write_input(path, ["other"]), EXACT, force=True)
    with pytest.raises(OutputError, match=r"changed: .*"):
        finish(tmp_path / "new", path, EXACT | index)
    (old / "exact/high.bin").write_bytes(b"")
    with pytest.raises(IntegrityError, match=r"exact/high\.bin is 0 bytes long, not 8; make the index again"):
        finish(tmp_path / "new", path, EXACT | index)
