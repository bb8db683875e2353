# SPDX-License-Identifier: Apache-2.0
"""The disk of a run: the estimate against the true need, and the refusal of a run that does not fit."""

import random
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.base.errors import OutputError
from curation.reading.paths import find_files
from curation.record.folder import bytes_of_run
from curation.running.planning.disk import free_bytes, most_needed
from curation.running.run import run
from tests.cli.test_cli import curate, failed
from tests.runs import digests, files_below, recipe_of, records_of

Usage = namedtuple("Usage", "total used free")
WORDS = [f"{stem}{end}" for stem in ("read", "write", "token", "corpus", "shard", "band") for end in ("", "s", "ed")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1.5 MB of text: 1,500 documents, one in ten a copy."""
    path = tmp_path_factory.mktemp("disk") / "made.jsonl"
    chance, texts = random.Random(5), []
    for number in range(1500):
        words = [f"{chance.choice(WORDS)}{chance.randrange(400)}" for _ in range(chance.randrange(20, 200))]
        texts.append(texts[-1] if number % 10 == 9 else " ".join(words))
    path.write_bytes(records_of(texts))
    return path


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - free, free))


def needed(recipe: Any, folder: Path) -> int:
    return curation.estimate(recipe, folder).disk.needed


FORMS = ["blocks", "chunks", "packed"]
MIX = {"kind": "mix", "weights": {"made": 1}}
FUZZY = [{"kind": "exact_dedup"}, {"kind": "fuzzy_dedup"}]


@pytest.mark.parametrize(
    ("stages", "settings"),
    [
        (None, {}),
        *(
            pytest.param(
                *each, marks=pytest.mark.slow("the disk of an index, of exports and of forms is estimated with caution")
            )
            for each in (
                (FUZZY, {"output": {"index": True, "raw": "jsonl", "cleaned": "parquet"}}),
                ([*FUZZY, {"kind": "rewrite", "lowercase": True}], {"output": {"formats": FORMS, "pad_id": 0}}),
                ([MIX | {"tokens": 2_400_000}], {"output": {"cleaned": "jsonl"}}),
            )
        ),
        ([], {"output": {"formats": []}}),
        ([], {"output": {"formats": ["megatron", "token_shards"], "token_shards": {"dtype": "uint32"}}}),
        ([MIX | {"documents": 6000}], {"output": {"formats": ["megatron", *FORMS], "pad_id": 0}}),
    ],
    ids=["default", "index-exports", "two-segments-forms", "copied tokens", "documents-only", "wide-tokens", "copies"],
)  # fmt: skip
def test_the_estimate_is_a_cautious_bound(corpus: Path, tmp_path: Path, stages: Any, settings: dict[str, Any]):
    output = {"keep_work": True, **settings.get("output", {})}
    recipe = recipe_of(corpus, stages=stages, **{**settings, "output": output})
    estimated = needed(recipe, tmp_path / "out")
    run(recipe, tmp_path / "out", engine="cpu", workers=1)
    true = bytes_of_run(tmp_path / "out")  # nothing was deleted: the largest need
    assert 0.9 <= estimated / true <= 1.8, (estimated, true)
    assert estimated <= most_needed(recipe, find_files(recipe.input))


def test_copies_and_samples_of_an_input_count(corpus: Path, tmp_path: Path):
    sizes = [
        needed(recipe_of({"path": str(corpus), **entry}, stages=[]), tmp_path)
        for entry in ({"sample": 0.1}, {}, {"copies": 3})
    ]
    assert 4 * sizes[0] < sizes[1] and 1.5 * sizes[1] < sizes[2] < 3 * sizes[1]


def test_a_plan_and_the_check_count_the_copies_of_a_mix(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain, half, repeated = (
        recipe_of(corpus, stages=stages) for stages in ([], [MIX | {"documents": 750}], [MIX | {"documents": 150_000}])
    )
    found = [curation.estimate(recipe, tmp_path / "out") for recipe in (plain, half, repeated)]
    assert [estimate.kept for estimate in found] == [1500, 750, 150_000]
    assert found[1].tokens == pytest.approx(found[0].tokens / 2, rel=0.001)
    assert found[2].tokens == pytest.approx(found[0].tokens * 100, rel=0.001)
    assert found[1].disk.parts["documents"] == found[0].disk.parts["documents"]  # the removed half is in removed/
    with_free(monkeypatch, int(most_needed(plain, find_files(plain.input))) + 1)
    with pytest.raises(OutputError, match=r"the run needs about .* of disk"):
        run(repeated, tmp_path / "out", engine="cpu", workers=1)
    assert not (tmp_path / "out" / "documents").exists()


@pytest.mark.parametrize("by", ["source", "kind"])
def test_a_plan_of_a_mix_without_a_number_counts_the_groups(tmp_path: Path, by: str):
    sizes = {"web": 900, "wiki": 200, "spam": 300}
    inputs = []
    for name, size in sizes.items():
        (tmp_path / f"{name}.jsonl").write_bytes(records_of((f"text {number}" for number in range(size)), kind=name))
        inputs.append({"path": str(tmp_path / f"{name}.jsonl"), "columns": ["kind"]})
    stages = ["exact_dedup", {"kind": "mix", "by": by, "weights": {"web": 3, "wiki": 1}}]
    recipe = recipe_of(*inputs, stages=stages[1:])
    planned = curation.estimate(recipe, tmp_path / "out")
    assert planned.kept == 800 == run(recipe, tmp_path / "out", engine="cpu").report["documents"]["kept"]
    assert curation.estimate(recipe_of(*inputs, stages=stages), tmp_path / "other").kept == 800
    rare = recipe_of(*inputs, stages=[{"kind": "mix", "by": "kind", "weights": {"web": 3, "none": 1}}])
    assert curation.estimate(rare, tmp_path / "rare").kept == 4  # a group that the sample lacks counts as one document


def test_a_run_that_does_not_fit_is_refused_before_it_writes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    recipe = recipe_of(corpus)
    need = needed(recipe, tmp_path / "out")
    with_free(monkeypatch, need - 5)
    with pytest.raises(OutputError) as error:
        run(recipe, tmp_path / "out", engine="cpu", progress=False)
    message = str(error.value)
    assert f"({need:,} bytes" in message and f"({need - 5:,} bytes)" in message and "--force-disk" in message
    assert files_below(tmp_path) == []
    with_free(monkeypatch, need)
    run(recipe, tmp_path / "out", engine="cpu", progress=False)

    with_free(monkeypatch, 1000)
    command = ("tokenize", str(corpus), "-o", str(tmp_path / "tokens"))
    for words in (command, ("run", "-i", *command[1:])):
        assert "has 1 kB free (1,000 bytes)" in failed(capsys, *words, "--quiet")
    code, _, err = curate(capsys, *command)
    assert code == 2 and err.startswith("1 kB of disk are free, which may be too little: reading a sample")
    assert curate(capsys, *command, "--force-disk", "--quiet") == (0, "", "")
    assert run(recipe, tmp_path / "out").already_complete  # a finished run needs no disk


def test_a_refusal_keeps_the_outputs_of_the_earlier_run(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run(recipe_of(corpus, stages=[]), tmp_path, engine="cpu")
    before = digests(tmp_path)
    with_free(monkeypatch, 1000)
    with pytest.raises(OutputError, match="--force-disk"):
        run(recipe_of(corpus), tmp_path, engine="cpu", force=True)
    assert digests(tmp_path) == before


def test_what_a_resumed_run_has_written_is_not_needed_again(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = recipe_of(corpus, output={"keep_work": True})
    run(recipe, tmp_path, engine="cpu")
    (tmp_path / "report.json").unlink()
    need = curation.estimate(recipe, tmp_path).disk
    assert need.present == bytes_of_run(tmp_path) > 1_000_000
    with_free(monkeypatch, need.needed - need.present - 1)
    with pytest.raises(OutputError, match=r"of which .* has [34] MB"):
        run(recipe, tmp_path, engine="cpu")
    with_free(monkeypatch, need.needed - need.present)
    assert not run(recipe, tmp_path, engine="cpu").already_complete


@pytest.mark.parametrize("usage", [OSError("no such call"), Usage(0, 0, 0)], ids=["error", "zero"])
def test_a_run_starts_where_the_free_space_cannot_be_found(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usage: Any
):
    def fail(path: Path) -> Usage:
        if isinstance(usage, OSError):
            raise usage
        return usage

    monkeypatch.setattr(shutil, "disk_usage", fail)
    assert free_bytes(tmp_path) == -1
    recipe = recipe_of(corpus, stages=[], output={"formats": []})
    assert curation.estimate(recipe, tmp_path).disk.missing == 0
    run(recipe, tmp_path / "out", engine="cpu")


def test_the_disk_of_a_folder_that_does_not_exist_is_that_of_its_parent(tmp_path: Path):
    assert free_bytes(tmp_path / "none" / "out") == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.2)


def test_inputs_are_sampled_only_if_the_disk_may_be_too_small(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = recipe_of(corpus, stages=[], output={"formats": []})
    with_free(monkeypatch, int(most_needed(recipe, find_files(recipe.input))) + 1)
    monkeypatch.setattr("curation.running.planning.disk.survey_inputs", lambda *arguments: pytest.fail("sampled"))
    run(recipe, tmp_path / "out", engine="cpu")


def test_files_that_cannot_be_sampled_count_with_their_size(tmp_path: Path):
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "bad.jsonl").write_bytes(b'{"text": 5}\n' * 5000)
    recipe = recipe_of(
        {"path": str(tmp_path / "bad.jsonl"), "text_column": "text"}, tmp_path / "empty.jsonl", stages=[]
    )
    found = curation.estimate(recipe, tmp_path)
    assert found.disk.needed > 60_000 and found.kinds[0].rejected == 5000
