# SPDX-License-Identifier: Apache-2.0
"""`--reuse`: a run with the scores of an earlier one has the same bytes, and computes nothing twice."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from curation.base.errors import InputError, IntegrityError
from curation.base.system.files import numbered_path
from curation.base.system.progress import Progress
from curation.recipes.recipe import Recipe
from curation.record import scores
from curation.record.partitions import IpcFile
from curation.record.scores import StoredScores, keys_of, open_scores, sorted_rows, suffix_of
from curation.running import phase_loop
from curation.running.phases import scores as slice_scores
from curation.running.phases.scores import ScoresFiles
from curation.running.planning.disk import bytes_per_document
from curation.running.reused import open_reused
from curation.running.run import run
from curation.stages.rows import embed
from tests.models.tiny_files import WORDS, write_static
from tests.runs import recipe_of, records_of


class Place(NamedTuple):
    """A run whose filter has the bound 2, and one with the bound 5, both without `reuse`."""

    folder: Path
    model: str

    @property
    def old(self) -> Path:
        return self.folder / "old"

    @property
    def fresh(self) -> Path:
        return self.folder / "fresh"

    def recipe(self, bound: int = 5, stages: Sequence[dict[str, Any]] | None = None, **output: Any) -> Recipe:
        rule = {"measure": "words", "min": bound, "reason": "short"}
        own = [{"kind": "filter", "rules": [rule]}, {"kind": "embed", "model": self.model}, {"kind": "exact_dedup"}]
        return recipe_of(
            self.folder / "in.jsonl", stages=own if stages is None else stages, output={"formats": [], **output}
        )

    def run(self, name: str, bound: int = 5, **settings: Any) -> Any:
        return run(self.recipe(bound), self.folder / name, engine="cpu", progress=False, **settings).report


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("reuse")
    chance = np.random.default_rng(1)
    texts = [" ".join(chance.choice(WORDS, chance.integers(1, 12))) for _ in range(120)]
    (folder / "in.jsonl").write_bytes(records_of([*texts, *texts[:20], "", "?"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_scores, "FILE_BYTES", 1500)  # several files
        patch.setattr(slice_scores, "FILES_AT_ONCE", 3)
        patch.setattr(slice_scores, "BATCH_BYTES", 500)
        found = Place(folder, str(write_static(folder / "tiny")))
        write_static(folder / "tiny-2", embeddings=np.ones((len(WORDS), 4), np.float32))
        found.run("old", bound=2, workers=1)
        found.run("fresh")
        yield found


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a run whose bytes its identity determines."""
    names = ("documents", "removed", "scores", "rejected.jsonl")
    paths = [path for name in names for path in (folder / name, *(folder / name).rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def only_new_texts(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The texts that the model reads from now on."""
    read: list[str | None] = []
    original = embed.embed_texts

    def watched(texts: Sequence[str | None], *more: Any) -> Any:
        read.extend(texts)
        return original(texts, *more)

    monkeypatch.setattr(embed, "embed_texts", watched)
    return read


def test_an_array_with_reuse_has_the_same_bytes_and_reads_only_new_texts(place: Place, monkeypatch: pytest.MonkeyPatch):
    read = only_new_texts(monkeypatch)
    options = {"reuse": place.fresh, "slice_bytes": 600, "workers": 1, "lease_seconds": 30}
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(place.run, "new", 2, array_task=f"{number}/2", **options) for number in (1, 2)]
        report, other = (task.result() for task in tasks)
    assert report == other
    expected = files_of(place.old)
    assert files_of(place.folder / "new") == expected and sum("scores/" in name for name in expected) == 8
    count = report["stages"][1]["documents_in"]
    assert 0 < len(read) < count and all(1 < len((text or "").split()) < 5 for text in read)
    assert report["reused_from"] == str(place.fresh)
    assert report["stages"][1]["lines"][-1] == f"{count - len(read)} of {count} scores reused from {place.fresh}"
    old = place.run("old", bound=2)  # its report
    stored = sum(len(open_scores(place.old / name)) for name in expected if name.startswith("scores/"))
    assert stored == old["stages"][2]["documents_out"], "each text once"
    details = report["stages"][1]["details"]
    assert details.pop("reused") == count - len(read) and details == old["stages"][1]["details"]


def test_a_stopped_run_is_reused_and_ends_in_the_same_bytes(place: Place, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    read = only_new_texts(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(phase_loop, "run_corpus_stages", stop)
        with pytest.raises(KeyboardInterrupt):
            place.run("stopped", slice_bytes=1500, reuse=place.old)
    with open_reused(place.folder / "stopped", place.recipe(bound=1), place.folder / "x", Progress()) as reused:
        [found] = reused.stages[1]
        assert len(found.files) > 2 and found.bits == -1
    report = place.run("stopped")  # the finished slices are not repeated, and the identity has no `reuse`
    assert report["reused_from"] == str(place.old) and report["stages"][1]["lines"][-1].endswith(f"from {place.old}")
    assert read == [] and files_of(place.folder / "stopped") == files_of(place.fresh)


@pytest.mark.parametrize("bits", [-1, 0, 2])
def test_hashes_are_found_in_any_files(tmp_path: Path, bits: int):
    chance = np.random.default_rng(bits + 1)
    hashes = chance.integers(0, 1 << 64, (300, 2), np.uint64)
    hashes[:20, 0] = hashes[20:40, 0]  # equal first halves
    hashes[5] = 0
    stored = hashes[:200]
    schema = pa.schema([pa.field("hash", pa.binary(16), nullable=False), ("value", pa.int64())])
    paths = [numbered_path(tmp_path, number, suffix_of(4)) for number in range(3)]
    for number, path in enumerate(paths):
        at = np.arange(number, 200, 3)
        with IpcFile(path, schema) as file:
            for part in (at[:30], at[30:]):
                keys = pa.array(keys_of(stored[part]).astype("V16").tolist(), pa.binary(16))
                file.write(sorted_rows(pa.table([keys, pa.array(part)], schema=schema)))
    if bits >= 0:
        written: dict[str, str] = {}
        with patch.object(slice_scores, "open_partition", wraps=slice_scores.open_partition) as opened:
            for first in range(0, 1 << bits, 3):  # files 0 to 2, and 3
                last = min(first + 3, 1 << bits)
                written |= slice_scores.write_scores(tmp_path, ScoresFiles(4, 1, bits, first, last), tmp_path, 3)
        paths = [tmp_path / name for name in written]
        assert opened.call_count == 3 * (1 + bits // 2) and len(paths) == 1 << bits
    order = chance.permutation(300)
    places, batches = StoredScores(paths, bits).look_up(hashes[order])
    values = np.concatenate([batch.column("value").to_numpy() for batch in batches])
    assert sorted(values.tolist()) == list(range(200)) and (order[places] == values).all()


def damaged(place: Place, folder: Path) -> Path:
    copytree(place.old, folder / "damaged")
    path = folder / "damaged" / "scores" / "stage-2" / "00001.arrow"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    return folder / "damaged"


def without_scores(place: Place, folder: Path) -> Path:
    run(place.recipe(scores=False), folder / "none", engine="cpu", progress=False)
    return folder / "none"


def embedding(**settings: Any) -> list[dict[str, Any]]:
    return [{"kind": "embed", **settings}]


Old = Callable[[Place, Path], Path]
OWN = None  # the stages of the fixture
REFUSED: dict[str, tuple[Old, Callable[[Place], Any], tuple[str, ...]]] = {
    "no run": (lambda _, folder: folder, lambda _: OWN, ("no run is there", "Give the local folder")),
    "no folder": (lambda _, folder: folder / "x", lambda _: OWN, ("no run is there", "Give the local folder")),
    "the output": (lambda _, folder: folder / "out", lambda _: OWN, ("is the output folder of this run", "Leave")),
    "no stage": (lambda place, _: place.old, lambda _: [], ("the recipe has no stage", "embed", "Leave")),
    "another model": (
        lambda place, _: place.old,
        lambda place: embedding(model=f"{place.model}-2"),
        ("nothing can be reused. embed: none, since these differ: files. Leave",),
    ),
    "other settings": (
        lambda place, _: place.old,
        lambda place: embedding(model=place.model, max_characters=9),
        ("these differ: settings.max_characters. Leave",),
    ),
    "a damaged file": (damaged, lambda _: OWN, ("00001.arrow is damaged: it is missing, or its SHA-256", "Leave")),
    "no scores": (without_scores, lambda _: OWN, ("has no scores", "output: {scores: false}", "Leave")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_reuse_that_cannot_help_is_refused(place: Place, tmp_path: Path, case: str):
    make_old, stages_of, parts = REFUSED[case]
    old, recipe = make_old(place, tmp_path), place.recipe(stages=stages_of(place))
    with pytest.raises((InputError, IntegrityError)) as error, open_reused(old, recipe, tmp_path / "out", Progress()):
        pass
    assert [part for part in parts if part not in str(error.value)] == [], str(error.value)


def test_scores_of_another_version_are_refused(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scores, "__version__", "9.9")
    with (
        pytest.raises(InputError, match="these differ: version"),
        open_reused(place.old, place.recipe(), tmp_path, Progress()),
    ):
        pass


def test_a_run_that_another_process_writes_is_refused(place: Place, tmp_path: Path):
    descriptor = os.open(place.old, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with (
            pytest.raises(InputError, match="another process uses this run"),
            open_reused(place.old, place.recipe(), tmp_path, Progress()),
        ):
            pass
    finally:
        os.close(descriptor)


def test_a_file_that_is_lost_during_the_run_has_one_message(place: Place, tmp_path: Path):
    with pytest.raises(InputError, match="does not exist, but --reuse reads it"):
        open_scores(tmp_path / "gone.arrow")
    (tmp_path / "short.arrow").write_bytes(b"ARROW1")
    with pytest.raises(IntegrityError, match=r"short\.arrow is damaged"):
        open_scores(tmp_path / "short.arrow")


def test_the_plan_counts_the_disk_of_scores_and_a_setting_keeps_none(place: Place):
    assert bytes_per_document(place.recipe()) == 16 + 4 + 4 * 8  # hash, vector, counts of windows
    assert bytes_per_document(place.recipe(scores=False)) == 0
