# SPDX-License-Identifier: Apache-2.0
"""A saved index: a later run removes what an earlier one has kept, names it, and refuses an index that does not fit."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.base.errors import InputError, IntegrityError, RecipeError
from curation.cli import main
from curation.recipes.doubts import recipe_warnings
from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.stages import ExactDedup, FuzzyDedup
from curation.stages.corpus import saved_index
from curation.stages.corpus.saved_index import SavedIndex
from tests.corpus import corpora
from tests.oracle import minhash
from tests.runs import files_below, kept_rows, recipe_of, removed_rows, report_of

FUZZY = {"kind": "fuzzy_dedup"}
NEWER = ("words", "words_version", "compare_version")  # settings that indexes did not have before
CORPORA = corpora()


def words(start: int, count: int) -> str:
    return " ".join(map(str, range(start, start + count)))


def write_input(path: Path, texts: list[str], ids: list[str] | None = None) -> Path:
    names = ids or [f"{path.stem}-{k}" for k in range(len(texts))]
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in zip(names, texts, strict=True)]
    path.write_text("".join(lines))
    return path


def finish(folder: Path, path: Path, *, stages: list | None = None, against: Path | None = None, **options) -> Path:
    """A finished run with an index, over one file."""
    run_options = {key: options.pop(key) for key in ("slice_bytes", "scheduler", "force") if key in options}
    stage = FUZZY | options | ({"index": str(against)} if against else {})
    recipe = recipe_of(path, stages=[*(stages or []), stage], output={"formats": [], "index": True})
    run(recipe, folder, engine="cpu", workers=2, **run_options)
    return folder / "index"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    texts = [words(1000 * k, 60) for k in range(20)]
    return finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", [*texts, texts[3], "", words(4000, 61)]))


# Two steps


@pytest.mark.parametrize("name", CORPORA)
def test_nothing_alike_is_left_between_two_runs(tmp_path, name):
    documents, pairs = CORPORA[name]
    texts = {document["id"]: document["text"] for document in documents}
    halves = []
    for half, part in (("a", documents[::2]), ("b", documents[1::2])):
        ids = [document["id"] for document in part]
        halves.append(write_input(tmp_path / f"{half}.jsonl", [document["text"] for document in part], ids))
    index = finish(tmp_path / "out-a", halves[0])
    finish(tmp_path / "out-b", halves[1], against=index)
    kept = [{row[1] for row in kept_rows(tmp_path / f"out-{half}")} for half in ("a", "b")]
    across = [pair for pair in pairs if pair["j"] >= 0.8 and len({pair["a"], pair["b"]} & kept[0]) == 1]
    assert sum(1 for pair in across if pair["a"] in kept[1] or pair["b"] in kept[1]) == 0
    found = [row for row in removed_rows(tmp_path / "out-b") if row[4] == "near_duplicate_of_index"]
    assert len(found) > 30
    for _, id_, _, stage, _, value, duplicate_of in found:
        assert stage == "fuzzy_dedup" and duplicate_of in kept[0] and value >= 0.8
        left, right = (minhash.ngrams(texts[each].lower(), 5) for each in (id_, duplicate_of))
        assert value == minhash.jaccard(left, right)
    best = {
        id_: max(p["j"] for p in pairs if {id_} < {p["a"], p["b"]} and kept[0] & {p["a"], p["b"]})
        for _, id_, *_ in found
    }
    assert all(value == pytest.approx(best[id_], abs=1e-4) for _, id_, _, _, _, value, _ in found)
    assert not kept[0] & kept[1] and verify(tmp_path / "out-b") == []


def test_the_old_document_is_named_and_the_new_ones_are_deduplicated(old, tmp_path):
    texts = [words(2000, 61), words(77_000, 60), words(3000, 60), words(77_000, 62), "", words(2000, 62)]
    new = write_input(tmp_path / "new.jsonl", texts)
    finish(tmp_path / "new", new, against=old)
    assert [row[1] for row in kept_rows(tmp_path / "new")] == ["new-1", "new-4"]
    assert [(row[1], *row[4:]) for row in removed_rows(tmp_path / "new")] == [
        ("new-0", "near_duplicate_of_index", 56 / 57, "old-2"),
        ("new-2", "near_duplicate_of_index", 1.0, "old-3"),
        ("new-3", "near_duplicate", 56 / 58, "new-1"),
        ("new-5", "near_duplicate_of_index", 56 / 58, "old-2"),
    ]
    report = report_of(tmp_path / "new")
    assert report["stages"][0]["reasons"] == {"near_duplicate": 1, "near_duplicate_of_index": 3}
    assert report["stages"][0]["details"]["index"] == {
        "documents": 21, "candidates": 3, "compared": 3, "alike": 3, "crowded": 0,
    }  # fmt: skip
    assert report["stage_files"] == {"fuzzy_dedup": {f"{old}/index.json": SavedIndex(old).digest}}
    assert verify(tmp_path / "new") == []
    finish(tmp_path / "third", new, against=tmp_path / "new" / "index")
    assert {row[6] for row in removed_rows(tmp_path / "third")} == {"new-0", "new-1"}


def test_the_best_match_counts(tmp_path):
    index = finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", [words(0, 84), words(20, 84)]))
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", [words(18, 84)]), against=index, threshold=0.8)
    (row,) = removed_rows(tmp_path / "new")
    assert (row[5], row[6]) == (78 / 82, "old-1")
    new = write_input(tmp_path / "own.jsonl", [words(18, 84), words(18, 90)])  # the second one has more text of its own
    finish(tmp_path / "own", new, against=index, threshold=0.8, contained=0.975)
    (row,) = removed_rows(tmp_path / "own")
    assert (row[1], row[5], row[6]) == ("own-0", 78 / 80, "old-1")


@pytest.mark.slow("an index finds duplicates by every check of near-duplicates")
@pytest.mark.parametrize("verify_by", ["exact", "signature", "none"])
@pytest.mark.parametrize("unit", ["word", "character"])
def test_every_kind_of_check(tmp_path, verify_by, unit):
    texts = [words(1000 * k, 60) for k in range(30)]
    options = {"verify": verify_by, "unit": unit, "compare": "folded" if unit == "word" else "exact", "threshold": 0.9}
    texts = [text.translate(str.maketrans("0123456789", "abcdefghij")) for text in texts]
    index = finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", texts[:20]), **options)
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", texts[10:]), against=index, **options)
    assert [row[1] for row in kept_rows(tmp_path / "new")] == [f"new-{k}" for k in range(10, 20)]
    found = removed_rows(tmp_path / "new")
    assert [row[6] for row in found] == [f"old-{k}" for k in range(10, 20)]
    assert [row[5] for row in found] == [None if verify_by == "none" else 1] * 10


def test_the_index_has_what_the_last_stage_kept(tmp_path):
    path = write_input(tmp_path / "a.jsonl", ["short", *[words(1000 * (k // 2), 60 + k % 2) for k in range(8)]])
    rules = {"kind": "filter", "rules": [{"measure": "words", "min": 5}]}
    index = SavedIndex(finish(tmp_path / "out", path, stages=[rules, FUZZY | {"threshold": 1}]))
    assert index.documents == 4
    assert index.ids(np.array([3, 0, 0])).to_pylist() == ["a-7", "a-1", "a-1"]
    assert index.ids(np.zeros(0, np.int64)).to_pylist() == []
    assert [row[3] for row in removed_rows(tmp_path / "out")] == ["filter", *["fuzzy_dedup_2"] * 4]


@pytest.mark.slow("an index of little or no data works with little or no new data")
@pytest.mark.parametrize("texts", [[], ["", " "], ["one document of words"]], ids=str)
def test_small_and_empty_data_on_both_sides(old, tmp_path, texts):
    path = write_input(tmp_path / "few.jsonl", texts)
    index = finish(tmp_path / "few", path, against=old)
    assert SavedIndex(index).documents == len(texts)
    finish(tmp_path / "again", path, against=index)
    assert len(removed_rows(tmp_path / "again")) == sum(1 for text in texts if text.strip())
    assert verify(tmp_path / "few") == verify(tmp_path / "again") == []


@pytest.mark.slow("many copies in an index cost no more than the limit")
def test_a_crowd_in_the_index_costs_no_more_than_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_index, "PAIRS_AT_ONCE", 50)
    monkeypatch.setattr(saved_index, "MAX_COMPARED", 4)
    crowd = [f"{words(0, 70)} {words(1000 * k, 30)}" for k in range(1, 60)]  # any two share 66 of 126 5-grams
    index = finish(tmp_path / "old", write_input(tmp_path / "old.jsonl", crowd), rows=2)
    assert SavedIndex(index).documents == 59
    near = [f"{text} end" for text in crowd[::3]]
    finish(tmp_path / "new", write_input(tmp_path / "new.jsonl", near), against=index, rows=2)
    details = report_of(tmp_path / "new")["stages"][0]["details"]["index"]
    assert details["crowded"] == details["candidates"] == 20
    assert details["compared"] <= 4 * 20
    monkeypatch.setattr(saved_index, "MAX_COMPARED", 64)
    finish(tmp_path / "all", write_input(tmp_path / "new.jsonl", near), against=index, rows=2)
    assert len(removed_rows(tmp_path / "all")) == 20
    assert {row[6] for row in removed_rows(tmp_path / "all")} == {f"old-{k}" for k in range(0, 59, 3)}


# The files


def index_bytes(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


@pytest.mark.slow("a saved index has the same bytes for any division of the work")
def test_the_same_bytes_however_the_work_was_cut(old, tmp_path):
    other = finish(tmp_path / "other", tmp_path / "old.jsonl", slice_bytes=700, scheduler="processes")
    assert index_bytes(old) == index_bytes(other)
    assert {"index.json", "ids.arrow", "keys-020.bin", "documents-020.bin", "shingles.bin"} < {*index_bytes(old)}


def test_the_files_are_what_they_are_said_to_be(old):
    index = SavedIndex(old)
    content = json.loads((old / "index.json").read_text())
    assert content["documents"] == 21 and content["settings"]["bands"] == 21 and content["settings"]["rows"] == 6
    assert {*content["files"]} == {*files_below(old)} - {"index.json"}
    for band in range(21):
        keys, numbers = index.keys(band), index.numbers(band)
        assert (keys.dtype, numbers.dtype) == (np.uint64, np.int32)
        assert (np.diff(keys.astype(object)) >= 0).all() and sorted(numbers.tolist()) == list(range(21))
        assert (keys == 0).sum() == 1  # the empty document
    with pa.memory_map(str(old / "ids.arrow")) as source:
        ids = pa.ipc.open_file(source).read_all().column("id").to_pylist()
    assert ids == [f"old-{k}" for k in range(20)] + ["old-21"]


def test_verify_sees_the_index(old):
    folder = old.parent
    assert verify(folder) == []
    assert {name for name in report_of(folder)["outputs"] if name.startswith("index/")} == {
        f"index/{name}" for name in files_below(old)
    }
    path = old / "keys-003.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\x55")
    assert len(verify(folder)) == 1 and "index/keys-003.bin has changed" in verify(folder)[0]
    path.write_bytes(whole)
    (old / "stranger").write_text("")
    assert verify(folder) == ["index/stranger is not part of the run"]


@pytest.mark.slow("a run that is stopped while it saves an index resumes")
def test_a_run_that_was_stopped_while_it_saved(tmp_path, monkeypatch):
    path = write_input(tmp_path / "a.jsonl", [words(1000 * k, 60) for k in range(20)])
    whole = index_bytes(finish(tmp_path / "whole", path))

    def stop(*_, **__):
        raise KeyboardInterrupt

    for place in (
        "stages.corpus.index_tasks._join_band",
        "stages.corpus.saved_index.write_json",
        "running.phases.corpus_phase.index_digests",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(f"curation.{place}", stop)
            with pytest.raises(KeyboardInterrupt):
                finish(tmp_path / place, path)
        assert (tmp_path / place / "index").exists() == place.endswith("index_digests")
        assert index_bytes(finish(tmp_path / place, path)) == whole
        assert verify(tmp_path / place) == []


# What does not fit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram": 4}, "ngram 5 there, 4 here"),
        ({"unit": "character"}, "unit 'word' there, 'character' here"),
        ({"compare": "exact"}, "compare 'lowercase' there, 'exact' here"),
        ({"seed": 2}, "seed 1 there, 2 here"),
        ({"permutations": 64}, "bands 21 there, 16 here; permutations 128 there, 64 here; rows 6 there, 4 here"),
        ({"bands": 20, "rows": 6}, "bands 21 there, 20 here"),
        ({"threshold": 0.81, "bands": 21, "rows": 6}, "threshold 0.8 there, 0.81 here"),
        ({"verify": "none"}, "verify 'exact' there, 'none' here"),
    ],
    ids=str,
)
def test_an_index_of_other_settings(old, tmp_path, options, message):
    with pytest.raises(RecipeError) as error:
        finish(tmp_path / "new", tmp_path / "does not exist.jsonl", against=old, **options)
    assert f"was made with other settings: {message}. Use the same here" in str(error.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("stage", "there", "here"),
    [
        (FuzzyDedup(words="scripts"), {}, "words None there, 'scripts' here; words_version None there, 3 here"),
        (
            FuzzyDedup(words="scripts"),
            {"words": "scripts", "words_version": 2},
            "words_version 2 there, 3 here",
        ),
        (FuzzyDedup(compare="visible"), {}, "compare_version None there, 2 here"),
        (ExactDedup(compare="visible"), {}, "compare_version None there, 2 here"),
    ],
    ids=repr,
)
def test_an_index_of_an_earlier_division_or_comparison(tmp_path, stage, there, here):
    made = {name: value for name, value in stage.new_index().settings.items() if name not in NEWER} | there
    content = {"format": saved_index.FORMAT, "version": "0.4", "settings": made, "documents": 0, "files": {}}
    (tmp_path / "index.json").write_text(json.dumps(content))
    with pytest.raises(RecipeError) as error:
        SavedIndex(tmp_path).check(stage.new_index().settings)
    assert f"was made with other settings: {here}. Use the same here, or make the index again" in str(error.value)


def test_an_index_of_another_version(old, tmp_path, capsys):
    content = json.loads((old / "index.json").read_text())
    content["settings"]["permutations_version"] = 0
    (old / "index.json").write_text(json.dumps(content))
    with pytest.raises(RecipeError, match="permutations_version 0 there, 1 here"):
        finish(tmp_path / "new", tmp_path / "old.jsonl", against=old)
    (tmp_path / "r.yaml").write_text(f"stages: [{{kind: fuzzy_dedup, index: '{old}'}}]")
    assert main(["run", str(tmp_path / "r.yaml"), "-i", str(tmp_path / "old.jsonl"), "-o", str(tmp_path / "new")]) == 2
    assert "permutations_version 0 there, 1 here" in capsys.readouterr().err
    content["format"] = 7
    (old / "index.json").write_text(json.dumps(content))
    with pytest.raises(RecipeError, match="has format 7, this version reads 1"):
        SavedIndex(old)


def test_no_index_and_damaged_ones(old, tmp_path):
    with pytest.raises(RecipeError, match=rf"{old.parent} has no index.json; did you mean {old}\?"):
        SavedIndex(old.parent)
    for folder in (tmp_path / "none", tmp_path, tmp_path / "old.jsonl"):
        with pytest.raises(
            RecipeError, match=r"has no index.json; give index/ of a run with fuzzy_dedup and output: \{"
        ):
            SavedIndex(folder)
    whole = (old / "offsets.bin").read_bytes()
    (old / "offsets.bin").write_bytes(whole[:-8])
    with pytest.raises(IntegrityError, match=r"offsets.bin is 168 bytes long, not 176; make the index again"):
        SavedIndex(old)
    (old / "offsets.bin").unlink()
    with pytest.raises(IntegrityError, match=r"offsets.bin is missing"):
        SavedIndex(old)
    for damage in ("{", "[]", "{}", '{"format": 1, "documents": 3, "files": {"a": 1}}'):
        (old / "index.json").write_text(damage)
        with pytest.raises(IntegrityError, match=r"index.json is damaged"):
            SavedIndex(old)


def test_an_index_of_the_folder_that_is_written_to(old, tmp_path):
    with pytest.raises(InputError, match=r"index.json lies in the output folder .*; give another --output"):
        finish(old.parent, tmp_path / "old.jsonl", against=old, force=True)
    assert verify(old.parent) == []


def test_an_index_needs_the_stage():
    message = r"output.index needs exact_dedup, line_dedup, substring_dedup, fuzzy_dedup or semantic_dedup, and no"
    with pytest.raises(RecipeError, match=message):
        convert_recipe({"stages": [{"kind": "ngram_dedup"}], "output": {"index": True}})


def test_a_stage_whose_index_is_not_saved_is_named():
    stages = [{"exact_dedup": {"compare": "lowercase"}}, "line_dedup", {"kind": "exact_dedup", "name": "last"}]
    recipe = convert_recipe({"stages": stages, "output": {"index": True}})
    told = "output.index: the last exact_dedup (last) saves its index, and exact_dedup_1 saves none"
    assert recipe_warnings(recipe) == [told]
