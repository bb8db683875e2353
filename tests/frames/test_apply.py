# SPDX-License-Identifier: Apache-2.0
"""`curation.apply` needs nothing of a stage but its contract, and finds the text in any column."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pytest

import curation
from curation import StageError
from curation.base.contract import TEXT
from curation.base.errors import InputError, RecipeError
from curation.models.ngrams import TINY
from curation.rules.decide import Verdict
from curation.stages import CorpusStage, Phase, RowStage
from curation.stages.outcome import Cuts, Decision, Drops, Outcome
from curation.stages.vectors.vector_clusters import Clusters
from tests.models.tiny_files import write_static
from tests.oracle.fasttext_reference import as_bytes, model_of
from tests.runs import made_texts

OTHERS = ["text", "source", "score", "n"]  # columns beside a text in `body`
TEXTS = [*made_texts(30, 1), "", *made_texts(40, 1), "The cat and the dog and the one that is for you with all of us."]


class AboveScore(RowStage, frozen=True, kw_only=True, tag="tests.frames.test_apply:AboveScore"):
    """Removes rows by a column, and marks and cuts texts by what it has prepared."""

    min: float = 0.5
    mark: str = ""

    def reads(self) -> tuple[str, ...]:
        return ("score",)

    def writes(self) -> dict[str, str]:
        return {"doubled": "double"}

    def prepare(self, folder: Path) -> "AboveScore":
        (folder / "mark").write_text(" !")
        return AboveScore(min=self.min, mark=str(folder / "mark"))

    def apply(self, engine: Any, frame: Any) -> Outcome:
        score = np.asarray(frame["score"], np.float64)
        text = engine.to_arrow(frame[[TEXT]]).column(TEXT)
        marked = pc.replace_substring_regex(text, "$", Path(self.mark).read_text(), max_replacements=1)
        verdict = Verdict(np.where(score < self.min, 0, -1).astype(np.int16), ("low",), score)
        return Outcome(verdict, text=marked, edited=np.ones(len(frame), bool), columns={"doubled": 2 * score})


class CutRepeats(CorpusStage, frozen=True, kw_only=True, tag="tests.frames.test_apply:CutRepeats"):
    """Cuts the first character of each text that an earlier row begins with."""

    cuts_text: ClassVar[bool] = True
    extra_keys: int = 0

    def keys(self, engine: Any, frame: Any) -> dict[str, np.ndarray]:
        texts = engine.to_arrow(frame[[TEXT]]).column(TEXT).to_pylist()
        first = [ord(text[0]) if text else 0 for text in texts] + [0] * self.extra_keys
        return {"first": np.array(first, np.int32)}

    def phases(self) -> list[Phase]:
        return [Phase("firsts", lambda corpus: 2, self._write)]

    def _write(self, engine: Any, corpus: Any, task: int) -> None:
        keys = corpus.column("first")
        _, first = np.unique(keys, return_index=True)
        np.save(corpus.scratch / "firsts" / f"{task}.npy", np.setdiff1d(np.flatnonzero(keys), first)[task::2])

    def decide(self, engine: Any, corpus: Any) -> Decision:
        row = np.sort(np.concatenate([np.load(corpus.scratch / "firsts" / f"{task}.npy") for task in (0, 1)]))
        stop = np.array([len(chr(key).encode()) for key in corpus.column("first", row).tolist()], np.int64)
        assert (corpus.byte_lengths()[row] >= stop).all()
        return Decision(cuts=Cuts(row.astype(np.int64), np.zeros(len(row), np.int64), stop))


class DropSources(CorpusStage, frozen=True, kw_only=True, tag="tests.frames.test_apply:DropSources"):
    """Drops the rows of sources in `drop`."""

    drop: tuple[str, ...]

    def check(self, inputs: Sequence[str]) -> None:
        for name in self.drop:
            if name not in inputs:
                raise RecipeError(f"no input {name}")

    def keys(self, engine: Any, frame: Any) -> dict[str, np.ndarray]:
        return {}

    def decide(self, engine: Any, corpus: Any) -> Decision:
        gone = [np.arange(low, high) for name, low, high in corpus.sources if name in self.drop]
        return Decision((Drops(np.concatenate(gone), "source", 1.0, -1),))


def frame_of(texts: Sequence[str | None], text_column: str = "body", index: int = 100) -> pd.DataFrame:
    rows = np.arange(len(texts))
    columns = {
        "text": [f"beside {row}" for row in rows],
        "source": [f"s{row % 3}" for row in rows],
        "score": rows / len(rows),
        text_column: pd.Series(texts, dtype="str"),
        "n": rows,
        "vector": [f"[{row % 4 - 1}, 1]" for row in rows],
    }
    return pd.DataFrame(columns).set_index(rows + index)


@pytest.fixture(autouse=True)
def _own_strings() -> Iterator[None]:
    """As `curation.read` sets it: Dask's own string type is another one than pandas 3's."""
    with dask.config.set({"dataframe.convert-string": False}):
        yield


@pytest.fixture
def quiz(tmp_path: Path) -> Path:
    (tmp_path / "quiz.txt").write_text("the cat and the dog\n")
    (tmp_path / "tiny.arpa").write_bytes(TINY)
    centroids = np.array([[1, 2], [2, -1]], np.int8), np.zeros((0, 2), np.int8), np.zeros(0, np.int64)
    Clusters(*centroids).save(tmp_path / "c.npz")
    write_static(tmp_path / "vectors")
    (tmp_path / "model.bin").write_bytes(as_bytes(model_of()))
    return tmp_path / "quiz.txt"


def stages(quiz: Path) -> dict[str, Any]:
    return {
        "rewrite": curation.Rewrite(lowercase=True),
        "redact": curation.Redact(),
        "filter": curation.Filter(rules=[curation.Rule(measure="words", min=5)]),
        "measure": curation.MeasureStage(names=("words", "bytes")),
        "language": curation.Language(keep=["en"], min_probability=0.1),
        "decontaminate": curation.Decontaminate(evaluation_files=(str(quiz),), ngram=4),
        "exact_dedup": curation.ExactDedup(max_characters=30),
        "fuzzy_dedup": curation.FuzzyDedup(ngram=2, threshold=0.3, keep=["s2", "s1"]),
        "ngram_dedup": curation.NgramDedup(ngram=2, min_seen=0.5),
        "line_dedup": curation.LineDedup(compare="folded"),
        "substring_dedup": curation.SubstringDedup(length=32, min_kept=5),
        "lines": curation.Lines(rules=[curation.Rule(measure="words", min=4)]),
        "classify": curation.Classify(model=str(quiz.with_name("model.bin")), label="l1") if quiz.name else None,
        "perplexity": curation.Perplexity(model=str(quiz.with_name("tiny.arpa"))) if quiz.name else None,
        "embed": curation.Embed(model=str(quiz.with_name("vectors"))) if quiz.name else None,
        "assign_clusters": curation.AssignClusters(centroids=str(quiz.with_name("c.npz")), vectors="vector")
        if quiz.name
        else None,
        "select": curation.Select(column="n", keep_lowest=0.5, per="source"),
        "mix": curation.Mix(weights={"s1": 2.0, "s2": 1.0}, documents=20),
        "mix by a curve": curation.Mix(curve=((0.4, 0), (0.9, 1), (1, 2.5)), column="n", per="source"),
        "semantic_dedup": curation.SemanticDedup(column="vector", threshold=0.9, keep="farthest"),
        "own rows": AboveScore(),
        "own corpus": CutRepeats(),
        "own drops": DropSources(drop=("s1",)),
    }


NAMES = list(stages(Path()))


def test_every_stage_of_the_package_is_applied(quiz: Path):
    assert {*curation.stages.STAGES} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_lazily_as_at_once_and_with_the_text_in_any_column(name: str, quiz: Path):
    stage, frame = stages(quiz)[name], frame_of(TEXTS)
    before = frame.copy()
    found = curation.apply(frame, stage, text_column="body")
    pd.testing.assert_frame_equal(frame, before)
    assert [*found.columns] == [*frame.columns, *stage.writes()]
    pd.testing.assert_frame_equal(found[OTHERS], frame.loc[found.index, OTHERS])
    changed = len(found) < len(frame) or not found["body"].equals(frame["body"]) or len(stage.writes()) > 0
    assert changed == (name != "redact") and len(found) > 0
    plain = frame.drop(columns="text").rename(columns={"body": "text"})
    pd.testing.assert_frame_equal(
        curation.apply(plain, stage), found.drop(columns="text").rename(columns={"body": "text"})
    )
    lazy = curation.apply(dd.from_pandas(frame, npartitions=4), stage, text_column="body")
    assert isinstance(lazy, dd.DataFrame) and lazy.npartitions == 4
    pd.testing.assert_frame_equal(lazy.compute(), found)
    pd.testing.assert_frame_equal(lazy._meta, found.iloc[:0], check_index_type=False)


def test_own_stages_do_as_they_say():
    frame = frame_of(["abc", "axy", None, "ßab", "ßxy", "a"], text_column="text", index=0)
    found = curation.apply(frame, AboveScore(min=0.6))
    assert found["text"].tolist() == ["ßxy !", "a !"] and found["doubled"].tolist() == [8 / 6, 10 / 6]
    cut = curation.apply(frame, CutRepeats())
    assert cut["text"].isna().tolist() == [False, False, True, False, False, False]
    assert cut["text"].dropna().tolist() == ["abc", "xy", "ßab", "xy", ""]
    assert curation.apply(frame, DropSources(drop=("s0", "s1")))["n"].tolist() == [2, 5]


def test_columns_that_are_called_as_those_that_are_put_aside():
    frame = pd.DataFrame({"text": ["a"], "text_": ["b"], "body": ["C"], "text__": ["d"]})
    found = curation.rewrite(frame, lowercase=True, text_column="body")
    assert found.to_dict("records") == [{"text": "a", "text_": "b", "body": "c", "text__": "d"}]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rewrite": lambda frame, **given: curation.rewrite(frame, lowercase=True, **given),
    "redact": curation.redact,
    "filter": lambda frame, **given: curation.filter(frame, curation.Rule(measure="words", min=1), **given),
    "measure": lambda frame, **given: curation.measure(frame, "words", **given),
    "language": lambda frame, **given: curation.language(frame, "en", min_probability=0, **given),
    "exact_dedup": curation.exact_dedup,
    "fuzzy_dedup": curation.fuzzy_dedup,
    "ngram_dedup": lambda frame, **given: curation.ngram_dedup(frame, ngram=1, **given),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_the_column_of_the_text(name: str):
    frame = pd.DataFrame({"text": ["beside"], "body": ["This is the one sentence in English."]})
    found = FUNCTIONS[name](frame, text_column="body")
    assert [*found.columns][:2] == ["text", "body"] and found["text"].tolist() == ["beside"]
    with pytest.raises(InputError, match=r"column 'none' not found in the frame; it has \['text', 'body'\]"):
        FUNCTIONS[name](frame, text_column="none")


TWICE = pd.DataFrame([["a", "b", "c"]], columns=["text", "body", "body"])
SCORES = pd.DataFrame({"text": ["a"], "score": [1.0]})
WRONG: dict[str, tuple[Any, Any, dict[str, Any], type[Exception], str]] = {
    "class": (SCORES, curation.Rewrite, {}, RecipeError, r"not the class Rewrite\. Call it: Rewrite\(\.\.\.\)"),
    "no stage": (SCORES, "rewrite", {}, RecipeError, r"expected a stage, such as curation\.ExactDedup\(\), not a str"),
    "input": (SCORES, curation.Input(path="a"), {}, RecipeError, "expected a stage, such as .*, not a "),
    "series": (SCORES["score"], curation.ExactDedup(), {}, InputError, "'text' must hold strings, not float64"),
    "list": (["a"], curation.ExactDedup(), {}, TypeError, "expected a DataFrame of pandas, cuDF or Dask"),
    "no text": (SCORES[["score"]], curation.ExactDedup(), {}, InputError, r"'text' not found .* has \['score'\]"),
    "no column": (SCORES, curation.ExactDedup(), {"text_column": "body"}, InputError, "'body' not found in the frame"),
    "numbers": (SCORES, curation.ExactDedup(), {"text_column": "score"}, InputError, "'score' must hold strings"),
    "twice": (TWICE, curation.ExactDedup(), {"text_column": "body"}, InputError, "the frame has 2 columns 'body'"),
    "reads": (SCORES[["text"]], AboveScore(), {}, InputError, r"reads the column 'score', which .* it has \['text'\]"),
    "reads language": (
        SCORES, curation.Filter(rules="gopher_multilingual"), {}, InputError,
        r"the column 'language', which .*\. Call curation\.language first, add the column, or change the settings",
    ),
    "reads text": (
        pd.DataFrame({"score": ["a"]}), AboveScore(name="mine"), {"text_column": "score"}, InputError,
        r"the stage mine \(.*AboveScore\) reads the column 'score', which the frame lacks; besides its text",
    ),
    "writes text": (
        pd.DataFrame({"words": ["a"]}), curation.MeasureStage(names=("words",)), {"text_column": "words"}, InputError,
        r"the stage measure \(.*\) writes a column 'words', which holds the text",
    ),
    "sources": (SCORES, DropSources(drop=("a",)), {}, InputError, r"no column 'source'; it has \['text', 'score'\]"),
    "source": (frame_of(["a"]), DropSources(drop=("zz",)), {}, RecipeError, "no input zz"),
    "keep": (frame_of(["a"]), curation.FuzzyDedup(keep=["zz"]), {}, RecipeError, r"no input is named 'zz'; .* s0"),
}  # fmt: skip


@pytest.mark.parametrize("lazy", [False, True], ids=["at once", "lazily"])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused_before_anything_is_computed(name: str, lazy: bool, monkeypatch: pytest.MonkeyPatch):
    frame, stage, settings, error, message = WRONG[name]
    for kind in (curation.ExactDedup, curation.FuzzyDedup, AboveScore, CutRepeats, DropSources):
        method = "apply" if kind is AboveScore else "keys"
        monkeypatch.setattr(kind, method, lambda *_: pytest.fail("computed"))
    if lazy and not isinstance(frame, list):
        frame = dd.from_pandas(frame, npartitions=1)
    with pytest.raises(error, match=message):
        curation.apply(frame, stage, **settings)


def test_stages_that_break_their_contract():
    with pytest.raises(StageError, match=r"CutRepeats\): keys\(\) returned 4 keys first for 3 rows"):
        curation.apply(frame_of(["a", "b", "c"]), CutRepeats(extra_keys=1))


def test_messages_name_the_column_of_the_frame():
    frame = pd.DataFrame({"body": pd.Series(["a", 5], dtype=object)})
    for stage in (curation.Rewrite(lowercase=True), curation.ExactDedup()):
        with pytest.raises(InputError, match=r"'text' must hold strings.*\(the text is in 'body'\)"):
            curation.apply(frame, stage, text_column="body")


def test_sources_are_looked_at_when_a_stage_asks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.frames.frames._runs", lambda _: pytest.fail("looked at"))
    for frame in (frame_of(TEXTS), dd.from_pandas(frame_of(TEXTS), npartitions=2)):
        assert len(curation.fuzzy_dedup(frame, text_column="body")) > 0
        with pytest.raises(pytest.fail.Exception, match="looked at"):
            curation.fuzzy_dedup(frame, keep=["s1"], text_column="body")


@pytest.mark.parametrize("dtype", ["category", "str", "string[python]"])
def test_sources_of_any_dtype(dtype: str):
    frame = frame_of(["one two", "one two", "one two"]).astype({"source": dtype})
    for given in (frame, dd.from_pandas(frame, npartitions=2)):
        assert [*curation.fuzzy_dedup(given, keep=["s1"], text_column="body")["n"]] == [1]
