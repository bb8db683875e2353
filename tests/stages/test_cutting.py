# SPDX-License-Identifier: Apache-2.0
"""A stage that drops documents and cuts spans of others: its tasks store the spans, a file per slice."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import dask.config
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation import Cuts, Decision, Drops, Phase
from curation.base.arrays import save_array
from curation.base.contract import TEXT
from curation.base.errors import IntegrityError, StageError
from curation.cli import main
from curation.recipes.recipe import Output, Recipe
from curation.running.planning import disk
from curation.running.run import run
from curation.stages import ExactDedup
from curation.stages.corpus import key_ranges
from curation.stages.corpus.cutting import StoredCuts, count_cuts, cut_texts, cuts_folder, load_cuts, store_cuts
from curation.stages.corpus.key_ranges import division_phase, slice_group, slice_group_count
from curation.stages.outcome import Corpus
from tests.runs import digests, made_texts, records_of
from tests.stages.divided import corpus_of, write_partitions

HERE = "tests.stages.test_cutting"
WORD = "café"
TEXTS = made_texts(60)


class CutWord(curation.CorpusStage, frozen=True, kw_only=True, tag=f"{HERE}:CutWord"):
    """Cut a word, and drop the texts that have it three times or more."""

    cuts_text: ClassVar[bool] = True

    arrays: bool = False  # return the spans, instead of storing them
    size: int = len(WORD.encode())

    def keys(self, engine: Any, frame: Any) -> dict[str, np.ndarray]:
        return {}

    def phases(self) -> list[Phase]:
        return [division_phase(1), Phase("spans", slice_group_count, self.find)]

    def find(self, engine: Any, corpus: Corpus, task: int) -> None:
        part, spans, gone = slice_group(corpus, task), [], []
        texts = [text for read in part.texts(np.arange(len(part.rows))) for text in read().to_pylist()]
        for row, text in zip(part.rows.tolist(), texts, strict=True):
            starts = [len(text[:at].encode()) for at in range(len(text)) if text.startswith(WORD, at)]
            spans += [(row, start, start + self.size) for start in starts]
            gone += [row] * (len(starts) >= 3)
        cuts = np.array(spans, np.int64).reshape(-1, 3).T
        if not self.arrays:
            store_cuts(part, Cuts(*cuts))
        np.save(corpus.scratch / "spans" / f"{task}.cuts.npy", cuts)
        np.save(corpus.scratch / "spans" / f"{task}.gone.npy", np.array(gone, np.int64))

    def decide(self, engine: Any, corpus: Corpus) -> Decision:
        cuts, gone = (
            np.concatenate(
                [np.load(corpus.scratch / "spans" / f"{task}.{name}.npy") for task in range(slice_group_count(corpus))],
                -1,
            )
            for name in ("cuts", "gone")
        )
        return Decision((Drops(gone, "too_many", 3, -1),), Cuts(*cuts) if self.arrays else None)


DIFFERENT = list(dict.fromkeys(TEXTS))
DROPPED = [text for text in DIFFERENT if text.count(WORD) >= 3]
KEPT = [text for text in DIFFERENT if text.count(WORD) < 3]
CUT = list(dict.fromkeys(text.replace(WORD, "") for text in KEPT))


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", 5)
    with dask.config.set({"dataframe.convert-string": False}):
        yield


def cut_run(folder: Path, slice_bytes: int, workers: int, **settings: Any) -> dict[str, Any]:
    source = folder.parent / "in.jsonl"
    if not source.exists():
        source.write_bytes(records_of(TEXTS))
    stages = [ExactDedup(), CutWord(**settings), ExactDedup(name="again")]
    recipe = Recipe(
        input=[curation.Input(path=str(source), keep_blank=True)],
        stages=stages,
        output=Output(formats=[], removed="text"),
    )
    return run(recipe, folder, engine="cpu", scheduler="threads", workers=workers, slice_bytes=slice_bytes).report


def test_documents_are_dropped_and_others_are_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = cut_run(tmp_path / "out", 4000, 2)
    assert pq.read_table(tmp_path / "out" / "documents")[TEXT].to_pylist() == CUT
    removed = pq.read_table(tmp_path / "out" / "removed")
    texts = removed.filter(pa.array([reason == "too_many" for reason in removed["reason"].to_pylist()]))[TEXT]
    assert texts.to_pylist() == DROPPED and len(DROPPED) > 3  # as they reached the stage
    _, stage, last = report["stages"]
    assert (stage["documents_in"], stage["documents_out"]) == (len(DIFFERENT), len(KEPT))
    assert stage["reasons"] == {"too_many": len(DROPPED)}
    assert stage["edited"] == report["documents"]["edited"] == sum(WORD in text for text in KEPT) > 5
    assert stage["bytes_in"] == sum(len(text.encode()) for text in DIFFERENT)
    assert stage["bytes_out"] == last["bytes_in"] == sum(len(text.replace(WORD, "").encode()) for text in KEPT)
    assert curation.verify(tmp_path / "out") == []
    assert main(["show", str(tmp_path / "out"), "--what", "edited"]) == 0
    shown = capsys.readouterr().out
    assert WORD in shown
    whole = digests(tmp_path / "out")
    for number, division in enumerate([(1500, 1), (10**6, 2)]):
        cut_run(tmp_path / f"{number}", *division)
        found = digests(tmp_path / f"{number}")
        assert {name for name in whole if found[name] != whole[name]} <= {"report.json", "recipe.resolved.yaml"}
    cut_run(tmp_path / "arrays", 4000, 2, arrays=True)
    assert curation.compare_runs(tmp_path / "out", tmp_path / "arrays").counts["kept"] == (len(CUT), len(CUT))
    assert pq.read_table(tmp_path / "arrays" / "documents")[TEXT].to_pylist() == CUT


def test_the_disk_has_room_for_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "in.jsonl").write_bytes(records_of(made_texts(1000)))
    recipe = Recipe(input=[curation.Input(path=str(tmp_path / "in.jsonl"))], stages=[CutWord()])
    with_spans = curation.estimate(recipe, tmp_path / "out")
    monkeypatch.setattr(disk, "CUT_SHARE", 0)
    extra = with_spans.disk.parts["_work"] - curation.estimate(recipe, tmp_path / "out").disk.parts["_work"]
    size = sum(len(text.encode()) for text in made_texts(1000))
    assert extra == pytest.approx(size / 20, rel=0.2)


@pytest.mark.slow("a run that stops at each rename of a cut resumes with the same bytes")
def test_a_run_that_stops_at_each_rename_of_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One run, which stops again after each file that it writes from the first file of the stage on."""
    cut_run(tmp_path / "whole", 1500, 1)
    real, seen = os.replace, []

    class Stopped(BaseException):
        """What no code of the project catches."""

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        name = str(Path(target).relative_to(tmp_path / "out"))
        if name not in seen and any(part in name for part in ("stage-1", "decision-1", "sums-0", "barrier-0")):
            seen.append(name)
            raise Stopped

    monkeypatch.setattr(os, "replace", replace)
    done = False
    while not done:
        with suppress(Stopped):
            cut_run(tmp_path / "out", 1500, 1)
            done = True
    assert sum("stage-1-cuts" in name for name in seen) >= 4 and len(seen) > 15
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_a_span_that_splits_a_character_names_the_stage(tmp_path: Path):
    frame = pd.DataFrame({TEXT: pd.Series(DIFFERENT, dtype="str")})
    told = (
        r"the stage .*:CutWord \(.*CutWord\): spans to cut must begin and end between code points of UTF-8, not the byt"
    )
    for work in (lambda: cut_run(tmp_path / "out", 1500, 1, size=4), lambda: curation.apply(frame, CutWord(size=4))):
        with pytest.raises(StageError, match=told):
            work()


# Bad spans

SLICES = ["plain text", "äö", "abc", "gone", "x"]  # of which the first two are one slice


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    partitions = write_partitions(tmp_path / "segment", {}, [2, 3], SLICES)
    return corpus_of(partitions, np.array([True, True, True, False, True]))


def spans(*each: tuple[int, int, int]) -> Cuts:
    return Cuts(*np.array(each, np.int64).reshape(-1, 3).T)


WRONG = {
    "a list": ([(0, 0, 1)], "cuts must be Cuts, not list"),
    "floats": (
        Cuts(*np.array([[0.5], [0.0], [1.0]])),
        "row of cuts must be integers in one dimension, not float64 in 1",
    ),
    "starts": (spans((0, 4, 5), (0, 0, 1)), "sorted and not overlap, not the bytes 0 to 1 of row 0 after the bytes 4"),
    "backwards": (spans((0, 3, 1)), "start at 0 or later and have a byte, not the bytes 3 to 1 of row 0"),
    "before the text": (spans((1, -1, 1)), "start at 0 or later and have a byte, not the bytes -1 to 1 of row 1"),
    "a row that did not reach": (spans((2, 0, 1), (3, 0, 1)), "the row 3, which is not in corpus.rows"),
    "a negative row": (spans((-1, 0, 1)), "the row -1, which is not in corpus.rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_spans_that_cannot_be_stored(case: str, corpus: Corpus):
    cuts, told = WRONG[case]
    with pytest.raises(StageError) as error:
        store_cuts(corpus, cuts)  # type: ignore[arg-type]
    assert told in str(error.value) and "\n" not in str(error.value)


def test_spans_of_another_slice_and_of_two_calls(corpus: Corpus):
    with pytest.raises(StageError, match=r"the row 2, which is not in corpus\.rows"):
        store_cuts(corpus.between(0, 1), spans((2, 0, 1)))
    store_cuts(corpus, spans((1, 0, 2), (4, 0, 1)))
    store_cuts(corpus, spans((1, 0, 2), (4, 0, 1)))  # a task that is run again
    store_cuts(corpus, spans())
    with pytest.raises(StageError, match="other spans of partition 1 than an earlier call"):
        store_cuts(corpus, spans((2, 0, 1)))
    folder = cuts_folder(corpus.scratch)
    assert [load_cuts(folder, 0).row.tolist(), load_cuts(folder, 1).row.tolist()] == [[1], [2]]
    assert count_cuts(folder, 1, np.array([True, True, True])) == (1, 1)
    assert count_cuts(folder, 1, np.array([True, True, False])) == (0, 0)  # dropped


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "does not exist: another program"),
    "truncated": (lambda path: os.truncate(path, path.stat().st_size - 4), "000000.npy is damaged: "),
    "another dtype": (lambda path: save_array(path, np.zeros((3, 2))), "has float64 of shape (3, 2), not spans"),
    "another shape": (lambda path: save_array(path, np.zeros(4, np.int32)), "has int32 of shape (4,), not spans"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_files_that_are_lost(case: str, corpus: Corpus):
    damage, told = DAMAGES[case]
    store_cuts(corpus, spans((0, 0, 1), (1, 0, 2)))
    stored = StoredCuts(cuts_folder(corpus.scratch), np.array([3, 0]))
    assert stored.of(0) is not None and stored.of(1) is None
    damage(stored.folder / "000000.npy")
    with pytest.raises(IntegrityError) as error:
        stored.of(0)
    assert told in str(error.value)


def test_neighbouring_spans_and_whole_texts():
    texts = pa.array(["abcdef", "äöü", "", "x"], pa.large_string())
    cuts = spans((10, 0, 2), (10, 2, 3), (11, 2, 4), (13, 0, 1), (99, 0, 1))
    assert cut_texts(texts, cuts, 10).to_pylist() == ["def", "äü", "", ""]
    assert cut_texts(texts.slice(1, 2), cuts, 11).to_pylist() == ["äü", ""]
    assert cut_texts(texts, cuts, 20) is texts
