# SPDX-License-Identifier: Apache-2.0
"""A run that is killed at any moment and started again ends in the same bytes as one that nothing disturbed."""

import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from curation.base.system.progress import ProgressLines
from curation.recipes.recipe import load_recipe
from curation.results.finished.verify import verify
from curation.running.phases import corpus_phase, write_phase
from curation.running.run import run
from curation.stages import FuzzyDedup, Mix
from tests.runs import digests, made_texts, recipe_of, records_of, table_rows

MOMENTS = 200 if "TORTURE" in os.environ else 12
MAX_DELAY = 0.02  # seconds between a rename and the kill
SLICE_BYTES = 12_000
# Each is a copy of one that has libraries and kernels loaded and has run nothing.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.running.kernels_loaded", __name__])
FUZZY, OLD_SPANS = {"kind": "fuzzy_dedup", "threshold": 0.5}, {"kind": "substring_dedup", "length": 40}
RECIPE = """
input:
  - {path: "PATH/one.jsonl", name: one}
  - {path: "PATH/two.jsonl", name: two}
stages:
  - {kind: rewrite, unicode: nfc}
  - {kind: fuzzy_dedup, threshold: 0.5, index: "PATH/old/index"}
  - {kind: exact_dedup}
  - {kind: filter, rules: [{measure: words, min: 5}]}
  - {kind: exact_dedup, max_characters: 40, compare: lowercase}
output: {part_documents: 60, max_file_bytes: 9000, shuffle: true, index: true, raw: parquet, cleaned: jsonl.zst}
"""

CUT = """
input:
  - {path: "PATH/one.jsonl", name: one}
  - {path: "PATH/two.jsonl", name: two}
stages:
  - {kind: line_dedup}
  - {kind: filter, rules: [{measure: words, min: 5}]}
  - {kind: fuzzy_dedup, threshold: 0.5, index: "PATH/old/index"}
  - {kind: line_dedup, name: spans, unit: sentence, window: 2, documents: 3, keep: none}
  - {kind: substring_dedup, length: 40, min_kept: 9}
output:
  {part_documents: 60, max_file_bytes: 9000, index: true, removed: ids, shuffle: true, documents: {shuffle: true},
   splits: {train: 0.7, valid: 0.3}}
"""

SPANS = """
input:
  - {path: "PATH/one.jsonl", name: one}
  - {path: "PATH/two.jsonl", name: two}
stages:
  - {kind: substring_dedup, length: 40, min_kept: 9, verify: bytes, index: "PATH/old/index"}
output: {part_documents: 60, max_file_bytes: 9000, index: true, removed: ids}
"""

MIXED = """
input:
  - {path: "PATH/one.jsonl", name: one}
  - {path: "PATH/two.jsonl", name: two}
stages:
  - {kind: exact_dedup}
  - {kind: mix, weights: {one: 1, two: 3}, documents: 900}
output: {part_documents: 60, max_file_bytes: 9000}
"""
LAST_STEPS = {
    "counting": (Mix, "_count_copies"),
    "deciding": (Mix, "decide"),
    "storing copies": (corpus_phase, "_save_copies"),
    "storing": (corpus_phase, "save_decision"),
    "writing": (write_phase, "_digest_documents"),
}


class Place:
    """A recipe over made text, and runs of it as processes of their own group."""

    def __init__(self, folder: Path, recipe: str = RECIPE) -> None:
        self.recipe = folder / "recipe.yaml"
        self.recipe.write_text(recipe.replace("PATH", str(folder)))
        (folder / "old.jsonl").write_bytes(records_of(made_texts(100, 1)))
        old = recipe_of(folder / "old.jsonl", stages=[FUZZY, OLD_SPANS], output={"formats": [], "index": True})
        run(old, folder / "old", engine="cpu", workers=1)
        (folder / "one.jsonl").write_bytes(records_of(made_texts(250, 1)) + b"not json\n" * 3)
        (folder / "two.jsonl").write_bytes(b"null\n" + records_of(made_texts(150, 2)))

    def run(self, output: Path) -> None:
        run(
            load_recipe(str(self.recipe)),
            output,
            engine="cpu",
            workers=2,
            slice_bytes=SLICE_BYTES,
            progress=ProgressLines(),
        )

    def run_alone(self, output: Path, log: Path, last: str, moment: "Moment | None") -> None:
        """What a process of its own does. It dies where it comes to the step `last` of near-duplicates, or at a moment.
        It notes the folder of each file that it renames."""
        os.setsid()
        if moment:
            moment.watch(output)
        if last in LAST_STEPS:
            setattr(*LAST_STEPS[last], lambda *_: os.killpg(0, signal.SIGKILL))
        elif last:
            setattr(FuzzyDedup, last, lambda *_: os._exit(9))
        with log.open("ab") as sink:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
        self.run(output)

    def start(self, output: Path, log: Path, last: str = "", moment: "Moment | None" = None) -> BaseProcess:
        """Comes back when the run begins to work: its first line comes when all is loaded."""
        log.touch()
        before = log.stat().st_size
        process = PROCESSES.Process(target=self.run_alone, args=(output, log, last, moment))
        process.start()
        while process.is_alive() and log.stat().st_size == before:
            time.sleep(0.002)
        return process

    def finish(self, output: Path, log: Path, moment: "Moment | None" = None) -> None:
        """A whole run."""
        process = self.start(output, log, moment=moment)
        process.join(120)
        assert process.exitcode == 0, log.read_text()

    def kill_at(self, output: Path, log: Path, moment: "Moment") -> bool:
        """Starts a run that dies at a moment; says whether it came to it."""
        process = self.start(output, log, moment=moment)
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL), log.read_text()
        return process.exitcode == -signal.SIGKILL


class Moment(NamedTuple):
    """A moment of a run: so many seconds after so many renames of files. A run notes their folders in `notes`."""

    notes: Path
    renames: int = -1
    seconds: float = 0.0

    def watch(self, output: Path) -> None:
        """Notes renames, and kills the group of this process at the moment."""
        real, count = os.replace, itertools.count(1)
        notes = os.open(self.notes, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)

        def replace(source: str, target: str) -> None:
            real(source, target)
            os.write(notes, os.path.relpath(os.path.dirname(target), output).encode() + b"\n")
            if next(count) == self.renames:
                threading.Timer(self.seconds, os.killpg, (0, signal.SIGKILL)).start()

        os.replace = replace

    def phases(self) -> list[str]:
        """The folders of renamed files: each phase has one of its own."""
        return self.notes.read_text().splitlines()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("text"))


class Stopped(BaseException):
    """What no code of the project catches."""


@pytest.mark.parametrize(
    "every", [9, pytest.param(1, marks=pytest.mark.slow("a run stopped at any rename resumes with the same bytes"))]
)
def test_runs_stopped_at_every_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int):
    """All of a run's files appear by a rename: before and after each of them is a moment of its own. The two inputs
    share all tasks."""
    paths = [tmp_path / "made.jsonl", tmp_path / "small.jsonl"]
    for path, texts in zip(paths, (made_texts(40), made_texts(3, 1)), strict=True):
        path.write_bytes(records_of(texts) + b"not json\n")
    recipe = recipe_of(*paths)
    run(recipe, tmp_path / "warm", engine="cpu", workers=1)  # kernels that are compiled are renamed into place too
    real = os.replace
    renames: list[str] = []

    def count(source: str, target: str) -> None:
        renames.append(os.path.basename(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", count)
    run(recipe, tmp_path / "whole", engine="cpu", workers=1)
    expected = digests(tmp_path / "whole")
    assert len(renames) > 15 and renames[0] == "plan.json" and renames[-1] == "report.json"
    for number in range(0, len(renames), every):
        for after in (False, True):
            left = iter(range(number))

            def stop(source: str, target: str, left: Iterator[int] = left, after: bool = after) -> None:
                if next(left, None) is not None:
                    return real(source, target)
                if after:
                    real(source, target)
                raise Stopped

            output = tmp_path / f"{number}-{after}"
            monkeypatch.setattr(os, "replace", stop)
            with pytest.raises(Stopped):
                run(recipe, output, engine="cpu", workers=1)
            monkeypatch.setattr(os, "replace", real)
            run(recipe, output, engine="cpu", workers=1)
            assert digests(output) == expected, f"stopped {'after' if after else 'before'} {renames[number]}"


@pytest.mark.slow("a run killed at any step of `fuzzy_dedup` resumes with the same bytes")
@pytest.mark.parametrize("step", ["decide", "_similarity", "_write_pairs", "_check_others", "_measure"])
def test_runs_killed_while_near_duplicates_are_looked_for(tmp_path: Path, place: Place, step: str):
    log = tmp_path / "log"
    place.finish(tmp_path / "whole", log)
    process = place.start(tmp_path / "out", log, step)
    process.join(120)
    assert process.exitcode == 9, log.read_text()
    assert list((tmp_path / "out" / "_work").glob("segment-*/stage-*/*"))
    place.run(tmp_path / "out")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


@pytest.mark.slow("a run killed in `mix` resumes with the same bytes")
def test_runs_killed_while_documents_are_mixed(tmp_path: Path):
    (tmp_path / "text").mkdir()
    place, log = Place(tmp_path / "text", MIXED), tmp_path / "log"
    place.finish(tmp_path / "whole", log)
    expected = digests(tmp_path / "whole")
    assert len(table_rows(tmp_path / "whole" / "documents", "doc")) == 900 and verify(tmp_path / "whole") == []
    output = tmp_path / "out"
    for step in LAST_STEPS:  # each kill continues the run of the one before
        process = place.start(output, log, step)
        process.join(120)
        assert process.exitcode == -signal.SIGKILL, log.read_text()
        assert (output / "_work").exists() and not (output / "report.json").exists()
    place.run(output)
    assert digests(output) == expected


@pytest.mark.slow("a run killed at any moment resumes with the same bytes")
@pytest.mark.parametrize(
    ("recipe", "moments"), [(RECIPE, MOMENTS), (CUT, MOMENTS), (SPANS, max(MOMENTS, 20))],
    ids=["documents", "cuts", "spans"],
)  # fmt: skip
def test_killed_runs_end_in_the_same_bytes(tmp_path: Path, recipe: str, moments: int):
    """Each phase is hit as often as any other, however long it takes."""
    (tmp_path / "text").mkdir()
    place = Place(tmp_path / "text", recipe)
    log, whole = tmp_path / "log", Moment(tmp_path / "renames")
    place.finish(tmp_path / "warm", log)  # compiles the kernels, loads the files
    place.finish(tmp_path / "whole", log, whole)
    expected = digests(tmp_path / "whole")
    assert expected == digests(tmp_path / "warm") and verify(tmp_path / "whole") == []
    assert sum(name.endswith(".bin") for name in expected) > 3

    chance = random.Random(20)
    renames = whole.phases()
    phases = list(dict.fromkeys(renames))
    assert len(phases) > 30 and phases[0] == "_work" and renames[-1] == "."
    hit = []
    for number in range(moments):
        output = tmp_path / f"killed-{number}"
        phase = phases[int((number + chance.random()) / moments * len(phases))]
        place_of = chance.choice([k for k, name in enumerate(renames, 1) if name == phase])
        for attempt in range(1 + 2 * (number % 4 == 3)):  # every fourth run is killed several times
            left = place_of if attempt == 0 else chance.randrange(1, max(len(renames) - place_of, 2))
            moment = Moment(tmp_path / "killed", left, chance.random() * MAX_DELAY)
            if place.kill_at(output, log, moment):
                hit.append(phases.index(moment.phases()[-1]))
        place.run(output)
        assert digests(output) == expected, f"kill {number} after rename {place_of} of {len(renames)}, in {phase}"
        assert not (output / "_work").exists()
    late = sum(number >= len(phases) / 2 for number in hit)
    assert len(hit) >= moments and len(hit) / 3 < late, hit
