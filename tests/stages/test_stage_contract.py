# SPDX-License-Identifier: Apache-2.0
"""Stages that are right and slightly wrong: a run of many slices, and `curation.apply` at once and lazily, give the
same rows or a StageError of one kind."""

import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import dask.config
import dask.dataframe as dd
import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation import Cuts, Decision, Drops, Outcome, Phase, Verdict
from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import CurationError, RecipeError, StageError
from curation.base.parquet import in_file_types
from curation.recipes.recipe import Output, Recipe
from curation.running.run import run
from curation.stages import STAGES, CorpusStage, RowStage
from curation.stages.base import REPLACED, Forecast, StageSample
from curation.stages.checks import check_announced
from curation.stages.invoke import compute_keys
from tests.runs import records_of

CPU = load_engine("cpu")
HERE = "tests.stages.test_stage_contract"
TEXTS = [f"document number {k} " + "word " * (k % 4) for k in range(30)]
TEXTS[11:14] = TEXTS[1:4]
BIG = 2**60 + 19  # float64 has no such number
SLICE_BYTES, BATCH_BYTES = 500, 200


def texts_of(engine: Any, frame: Any) -> list[str]:
    found: list[str] = engine.to_arrow(frame[[TEXT]]).column(TEXT).to_pylist()
    return found


class Rows(curation.RowStage, frozen=True, kw_only=True, tag=f"{HERE}:Rows"):
    """Returns what its case says of the texts."""

    case: str

    def writes(self) -> dict[str, str]:
        return ROWS[self.case][0]

    def apply(self, engine: Any, frame: Any) -> Any:
        return ROWS[self.case][1](texts_of(engine, frame))


class Keeps(Rows, frozen=True, kw_only=True, tag=f"{HERE}:Keeps"):
    removes: ClassVar[bool] = False


class WholeCorpus(curation.CorpusStage, frozen=True, kw_only=True, tag=f"{HERE}:WholeCorpus"):
    """Drops the later rows of equal keys, or decides what its case says."""

    case: str

    def keys(self, engine: Any, frame: Any) -> Any:
        return KEYS.get(self.case, KEYS["lengths"])(texts_of(engine, frame))

    def phases(self) -> list[Phase]:
        return [Phase("only", lambda corpus: 1, self.work)]

    def work(self, engine: Any, corpus: Any, task: int) -> None:
        if self.case == "a phase raises":
            raise ZeroDivisionError("in a phase")

    def decide(self, engine: Any, corpus: Any) -> Any:
        return DECISIONS.get(self.case, drop_later)(corpus)


class KeepsRows(WholeCorpus, frozen=True, kw_only=True, tag=f"{HERE}:KeepsRows"):
    removes: ClassVar[bool] = False


class CutsText(WholeCorpus, frozen=True, kw_only=True, tag=f"{HERE}:CutsText"):
    cuts_text: ClassVar[bool] = True


def drop_later(corpus: Any) -> Decision:
    keys = corpus.column("n")
    _, first = np.unique(keys, return_index=True)
    gone = np.setdiff1d(np.arange(len(keys)), first)
    return Decision((Drops(corpus.rows[gone], "seen", np.ones(len(gone)), np.full(len(gone), -1)),))


def dropping(choose: Callable[[np.ndarray], Any], value: Any = 1.0, partner: Any = -1) -> Callable[[Any], Decision]:
    return lambda corpus: Decision((Drops(choose(corpus.rows), "chosen", value, partner),))


def cutting(*spans: tuple[int, int, int]) -> Callable[[Any], Decision]:
    return lambda corpus: Decision(cuts=Cuts(*np.array(spans, np.int64).reshape(-1, 3).T))


def number_of(text: str) -> int:
    return int(text.split()[2])


def new_texts(texts: list[str]) -> tuple[list[str], list[bool]]:
    return [text.replace("7", "seven") for text in texts], ["7" in text for text in texts]


def typed_by_size(texts: list[str]) -> dict[str, np.ndarray]:
    kind = np.int8 if max(map(len, texts), default=0) < 22 else np.int64
    return {"n": np.array([len(text) for text in texts], kind)}


def raises(_: Any) -> Any:
    raise ZeroDivisionError("of my own")


def null_where_7(values: Callable[[str], Any]) -> Callable[[list[str]], list[Any]]:
    return lambda texts: [None if "7" in text else values(text) for text in texts]


def columns(kind: str, values: Callable[[list[str]], Any]) -> tuple[dict[str, str], Callable[[list[str]], Outcome]]:
    return {"made": kind}, lambda texts: Outcome(columns={"made": values(texts)})


Outcomes = Callable[[list[str]], Any]
ROWS: dict[str, tuple[dict[str, str], Outcomes]] = {
    "integers with nulls": columns("int64", null_where_7(lambda text: BIG + len(text))),
    "bool with nulls": columns("bool", null_where_7(lambda text: len(text) % 2 == 0)),
    "unsigned with nulls": columns("uint64", null_where_7(lambda text: 2**64 - len(text))),
    "all null": columns("bool", lambda texts: [None] * len(texts)),
    "lists of numbers": columns("int64", lambda texts: [len(text) for text in texts]),
    "NumPy details": ({}, lambda texts: Outcome(details={"long": np.array([len(t) > 22 for t in texts], bool).sum()})),
    "lists of texts": ({}, lambda texts: Outcome(text=new_texts(texts)[0], edited=new_texts(texts)[1])),  # type: ignore[arg-type]
    "Arrow edited": (
        {}, lambda texts: Outcome(text=pa.array(new_texts(texts)[0]), edited=pa.array(new_texts(texts)[1], pa.bool_()))
    ),
    "a verdict of lists": (
        {}, lambda texts: Outcome(Verdict([-("7" not in t) for t in texts], ("seven",), 1.0))  # type: ignore[arg-type]
    ),
    "a verdict": ({}, lambda texts: Outcome(Verdict.dropping(np.array(["7" in t for t in texts], bool), "seven"))),
    # wrong
    "nothing": ({}, lambda texts: None),
    "a stage that raises": ({}, raises),
    "a float detail": ({}, lambda texts: Outcome(details={"share": 0.5})),  # type: ignore[dict-item]
    "a mask as a verdict": ({}, lambda texts: Outcome(np.ones(len(texts), bool))),  # type: ignore[arg-type]
    "a reason without a name": (
        {}, lambda texts: Outcome(Verdict(np.ones(len(texts), np.int16), ("one",), np.ones(len(texts))))
    ),
    "a value too many": (
        {}, lambda texts: Outcome(Verdict(np.zeros(len(texts), np.int16), ("one",), np.ones(len(texts) + 1)))
    ),
    "null texts": (
        {},
        lambda texts: Outcome(text=pa.array(null_where_7(str)(texts), pa.string()), edited=np.ones(len(texts), bool)),
    ),
    "numbers as texts": (
        {}, lambda texts: Outcome(text=pa.array([1] * len(texts)), edited=np.ones(len(texts), bool))
    ),
    "edited as numbers": ({}, lambda texts: Outcome(text=pa.array(texts), edited=np.ones(len(texts)))),
    "too large": columns("int64", lambda texts: [2**70 for _ in texts]),
}  # fmt: skip
KEYS: dict[str, Callable[[list[str]], Any]] = {
    "lengths": lambda texts: {"n": np.array([len(text) for text in texts])},
    "bool keys": lambda texts: {"n": np.array([len(text) % 2 == 0 for text in texts], bool)},
    "list keys": lambda texts: {"n": [len(text) for text in texts]},
    "keys of another type per slice": typed_by_size,
    "large keys": lambda texts: {
        "n": np.array([int.from_bytes(hashlib.sha256(t.encode()).digest()[:8], "big") for t in texts], np.uint64)
    },
    "empty keys": lambda texts: {"n": np.array([number_of(text) // 2 for text in texts])} if texts else {},
    "no keys": lambda texts: {},
    # wrong
    "float keys": lambda texts: {"n": np.array([len(text) / 2 for text in texts])},
    "too few keys": lambda texts: {"n": np.array([len(text) for text in texts[1:]], np.int64)},
    "keys in two dimensions": lambda texts: {"n": np.zeros((len(texts), 2), np.int64)},
    "an array of keys": lambda texts: np.zeros(len(texts), np.int64),
    "keys raise": raises,
}
DECISIONS: dict[str, Callable[[Any], Any]] = {
    "no keys": dropping(lambda rows: rows[::3]),
    "one value for all": dropping(lambda rows: rows[::2]),
    "a list of rows": dropping(lambda rows: rows[::2].tolist(), value=[1] * 15),
    "an empty list of rows": dropping(lambda rows: []),
    "NumPy details of a decision": lambda corpus: Decision(
        details={"n": corpus.rows.max(), "all": {"rows": corpus.rows}}
    ),
    "spans": cutting((0, 0, 2), (0, 2, 4), (3, 1, 5)),
    "no spans": cutting(),
    "spans and drops": lambda corpus: cutting((0, 0, 2), (3, 1, 5), (4, 0, 3))(corpus)._replace(
        drops=(Drops(corpus.rows[4:9], "chosen", 1, -1),)
    ),
    # wrong
    "None": lambda corpus: None,
    "one Drops": lambda corpus: Decision(Drops(corpus.rows, "x", 1.0, -1)),  # type: ignore[arg-type]
    "duplicate rows": dropping(lambda rows: np.repeat(rows, 2)),
    "descending rows": dropping(lambda rows: rows[::-1]),
    "negative rows": dropping(lambda rows: np.array([-1])),
    "rows outside": dropping(lambda rows: np.array([2, 10**6])),
    "a mask": dropping(lambda rows: rows % 2 == 0),
    "rows of two drops": lambda corpus: Decision(
        (Drops(corpus.rows[:2], "a", 1, -1), Drops(corpus.rows[1:3], "b", 1, -1))
    ),
    "values of another length": dropping(lambda rows: rows[::2], value=np.ones(3)),
    "a value of no number": dropping(lambda rows: rows[::2], value="much"),
    "a partner outside": dropping(lambda rows: rows[:1], partner=10**6),
    "a negative partner": dropping(lambda rows: rows[:1], partner=-2),
    "details of no JSON": lambda corpus: Decision(details={"set": {1}}),
    "drops of a stage that removes nothing": dropping(lambda rows: rows[::2]),
    "spans of a stage that does not cut": cutting((0, 0, 2)),
    "spans out of order": cutting((3, 0, 2), (0, 0, 2)),
    "spans that overlap": cutting((0, 0, 2), (0, 1, 3)),
    "empty spans": cutting((0, 2, 2)),
    "spans of a row outside": cutting((10**6, 0, 2)),
    "spans behind the text": cutting((7, 2, 99)),
    "spans of two lengths": lambda corpus: Decision(cuts=Cuts(np.arange(2), np.arange(2), np.arange(1))),
    "a wrong name": lambda corpus: corpus.column("lenght"),
    "decide raises": raises,
    "memory": lambda corpus: (_ for _ in ()).throw(MemoryError("too little")),
}  # fmt: skip
TOLD = {
    "nothing": r"apply\(\) must return an Outcome, not NoneType",
    "a stage that raises": "ZeroDivisionError: of my own",
    "a float detail": r"details must be integers, which are summed, not \{'share': 0.5\}",
    "a mask as a verdict": "the verdict must be a Verdict",
    "a reason without a name": r"the verdict has 1 reasons: the reason of a row must be -1 \(keep\) to 0",
    "a value too many": r"value of the verdict has the shape \(\d+,\), but there are [\d,]+ rows",
    "null texts": r"text has \d+ new nulls\. Use '' for no text",
    "numbers as texts": "text must be strings, not int64",
    "edited as numbers": "edited must be bool, one per row, not float64",
    "too large": "column made cannot be int64",
    "float keys": "the keys n must be integers, not float64",
    "too few keys": r"returned [\d,]+ keys n for [\d,]+ rows",
    "keys in two dimensions": "returned an array of 2 dimensions n for",
    "an array of keys": r"keys\(\) must return a dict of arrays, not ndarray",
    "keys raise": "ZeroDivisionError: of my own",
    "None": r"decide\(\) must return a Decision, not NoneType",
    "one Drops": "drops must be a tuple of Drops",
    "duplicate rows": "ascending and unique: 0 comes after 0",
    "descending rows": "ascending and unique: 28 comes after 29",
    "negative rows": r"drops the row -1, which is not in corpus\.rows",
    "rows outside": "drops the row 1000000, which is not in corpus",
    "a mask": "the rows of drops must be integers in one dimension, not bool",
    "rows of two drops": "drops the row 1 twice",
    "values of another length": r"value has the shape \(3,\), but there are 15 rows",
    "a value of no number": "value must be numbers, not <U4",
    "a partner outside": "drops have as partner the row 1000000, which is not in corpus",
    "a negative partner": "drops have as partner the row -2, which is not in corpus",
    "details of no JSON": "details cannot be JSON: Type is not JSON serializable: set",
    "drops of a stage that removes nothing": r"decide\(\) drops rows, but the class has removes = False",
    "spans of a stage that does not cut": "the stage cuts spans, but the class has cuts_text = False",
    "spans out of order": "be sorted and not overlap, not the bytes 0 to 2 of row 0 after the bytes 0 to 2 of row 3",
    "spans that overlap": "be sorted and not overlap, not the bytes 1 to 3 of row 0 after the bytes 0 to 2 of row 0",
    "empty spans": "start at 0 or later and have a byte, not the bytes 2 to 2 of row 0",
    "spans of a row outside": "cuts have the row 1000000, which is not in corpus.rows",
    "spans behind the text": "must end in their text, not the bytes 2 to 99 of row 7 with",
    "spans of two lengths": "row, start and stop of cuts have the lengths 2, 2, 1",
    "a wrong name": r"the corpus has no column 'lenght'; keys\(\) gives n",
    "a phase raises": "ZeroDivisionError: in a phase",
    "decide raises": "ZeroDivisionError: of my own",
}
KINDS = {
    "drops of a stage that removes nothing": KeepsRows,
    **{name: CutsText for name in DECISIONS if "spans" in name and "does not" not in name},
}  # fmt: skip
CASES = [case for case in [*ROWS, *KEYS, *DECISIONS, "a phase raises"] if case != "memory"]


def stage_of(case: str) -> Any:
    return (Rows if case in ROWS else KINDS.get(case, WholeCorpus))(case=case)


@pytest.fixture(autouse=True)
def _own_strings() -> Iterator[None]:
    """As `curation.read` sets it: Dask's own string type is another one than pandas 3's."""
    with dask.config.set({"dataframe.convert-string": False}):
        yield


def rows_or_error(work: Callable[[], pa.Table]) -> list[Any] | StageError:
    try:
        found = work()
    except StageError as error:
        return error
    return [found.schema.types, found.to_pylist()]


def of_a_run(folder: Path, stages: list[Any]) -> pa.Table:
    (folder / "in.jsonl").write_bytes(records_of(TEXTS))
    recipe = Recipe(input=[curation.Input(path=str(folder / "in.jsonl"))], stages=stages, output=Output(formats=[]))
    run(recipe, folder / "out", engine="cpu", scheduler="threads", workers=2, slice_bytes=SLICE_BYTES)
    found = pq.read_table(folder / "out" / "documents")
    return found.select([TEXT, *(name for name in found.column_names if name not in ("doc", "id", "source", TEXT))])


def of_a_frame(frame: Any, stages: list[Any]) -> pa.Table:
    for stage in stages:
        frame = curation.apply(frame, stage)
    return in_file_types(CPU.to_arrow(frame.compute() if isinstance(frame, dd.DataFrame) else frame))


def three_ways(folder: Path, stages: list[Any]) -> list[Any]:
    frame = pd.DataFrame({TEXT: pd.Series(TEXTS, dtype="str")})
    return [
        rows_or_error(lambda: of_a_run(folder, stages)),
        rows_or_error(lambda: of_a_frame(frame, stages)),
        rows_or_error(lambda: of_a_frame(dd.from_pandas(frame, npartitions=3), stages)),
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_run_as_on_frames(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cpu_fallback.batch_bytes", lambda workers: BATCH_BYTES)
    found = three_ways(tmp_path, [stage_of(case)])
    if case not in TOLD:
        assert found[0] == found[1] == found[2] and len(found[0][1]) > 0
        return
    for error in found:
        assert isinstance(error, StageError), error
        stage = stage_of(case)
        assert str(error).startswith(f"the stage {stage.kind} ({HERE}.{type(stage).__name__}): ")
        assert "\n" not in str(error)
        with pytest.raises(StageError, match=TOLD[case]):
            raise error


@pytest.mark.parametrize("case", ["lengths", "list keys", "bool keys", "empty keys", "large keys", "lists of numbers"])
def test_batches_that_an_earlier_stage_empties(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cpu_fallback.batch_bytes", lambda workers: BATCH_BYTES)
    few = curation.Filter(rules=[curation.Rule(matches=" (0|7|20) ", min_count=1)])
    run_, eager, lazy = three_ways(tmp_path, [few, stage_of(case)])
    assert run_ == eager == lazy and 0 < len(run_[1]) <= 3


def test_values_survive_exactly(tmp_path: Path):
    for case in ("integers with nulls", "bool with nulls", "unsigned with nulls"):
        kind, apply = ROWS[case]
        [types, rows] = rows_or_error(lambda case=case: of_a_frame(pd.DataFrame({TEXT: TEXTS}), [Rows(case=case)]))  # type: ignore[misc]
        assert [row["made"] for row in rows] == apply(TEXTS).columns["made"]
        assert types[1] == pa.type_for_alias(kind["made"])


def test_later_rules_see_the_exact_value(tmp_path: Path):
    """Two numbers that are one as float64, of which a rule names one."""
    [one, *_] = [BIG + len(text) for text in TEXTS]
    rule = curation.Filter(rules=[curation.Rule(column="made", not_in=[one])])
    found = three_ways(tmp_path, [Rows(case="integers with nulls"), rule])
    assert found[0] == found[1] == found[2]
    kept = [row["made"] for row in found[0][1]]
    assert one not in kept and float(one) in [float(value) for value in kept if value]


def test_types_of_keys_that_differ(tmp_path: Path):
    """In frames that are seen one after the other, and in pieces of a corpus."""
    seen: list[dict[str, np.dtype]] = []
    stage = WholeCorpus(case="mixed")
    kinds = [np.int32, np.int64, np.uint64]
    KEYS["mixed"] = lambda texts: {"n": np.zeros(len(texts), kinds.pop(0))}
    frame = CPU.from_arrow(pa.table({TEXT: pa.array(["a"], pa.large_string())}))
    try:
        assert [compute_keys(stage, CPU, frame, seen)["n"].dtype for _ in range(2)] == [np.int64, np.int64]
        with pytest.raises(StageError, match=r"keys\(\) returned n as int64 for some rows, n as uint64 for others"):
            compute_keys(stage, CPU, frame, seen)
        KEYS["mixed"] = lambda texts: {"n": np.zeros(len(texts), np.int64 if texts[0] == TEXTS[0] else np.uint64)}
        (tmp_path / "in.jsonl").write_bytes(records_of(TEXTS))
        with pytest.raises(StageError, match="the key n is int64 for some rows, uint64 for others"):
            of_a_run(tmp_path, [stage])
    finally:
        del KEYS["mixed"]


def test_a_verdict_of_a_stage_that_removes_nothing(tmp_path: Path):
    for error in three_ways(tmp_path, [Keeps(case="a verdict")]):
        assert isinstance(error, StageError) and "returned a verdict, but the class has removes = False" in str(error)


def test_shortages_pass_as_they_are():
    """The runner says what to set."""
    with pytest.raises(MemoryError, match="too little") as error:
        curation.apply(pd.DataFrame({TEXT: TEXTS}), WholeCorpus(case="memory"))
    assert not isinstance(error.value, CurationError)


def test_python_shows_the_cause():
    with pytest.raises(StageError) as error:
        curation.apply(pd.DataFrame({TEXT: TEXTS}), Rows(case="a stage that raises"))
    assert isinstance(error.value.__cause__, ZeroDivisionError)


# What a stage may not announce


class Announces(curation.RowStage, frozen=True, kw_only=True, tag=f"{HERE}:Announces"):
    """Announces what a test tells it to."""

    case: str

    def reads(self) -> Any:
        return ANNOUNCED[self.case][0]

    def writes(self) -> Any:
        return ANNOUNCED[self.case][1]


ANNOUNCED: dict[str, tuple[Any, Any, str]] = {
    "a string": ("url", {}, r"reads\(\) must return names of columns as a tuple, not 'url'"),
    "no dict": ((), ["made"], r"writes\(\) must return a dict of names and Arrow types, not \['made'\]"),
    "an unknown type": ((), {"made": "nonsense"}, "the column made the type 'nonsense', which Arrow does not"),
    "no type": ((), {"made": None}, "the type None, which Arrow does not know. Use int64, double, bool, large"),
    **{name: ((), {name: "int64"}, f"not name a column '{name}'") for name in ("id", "row", "text", "doc", "source")},
}  # fmt: skip


@pytest.mark.parametrize("case", ANNOUNCED)
def test_what_is_announced(case: str):
    stage = Announces(case=case)
    frame = pd.DataFrame({TEXT: ["a"]})
    for refuse in (lambda: check_announced(stage), lambda: curation.apply(frame, stage)):
        with pytest.raises(RecipeError, match=ANNOUNCED[case][2]):
            refuse()


OLD_FORM = r"forecast\(\) is called with \(sample\), but the class has \(documents, tokens\)"


class OldForm(CorpusStage, frozen=True, kw_only=True, tag=f"{HERE}:OldForm"):
    """Overrides a method with other arguments."""

    def forecast(self, documents: float, tokens: float) -> Forecast:  # type: ignore[override]
        return Forecast()


class Fails(CorpusStage, frozen=True, kw_only=True, tag=f"{HERE}:Fails"):
    """Has a fault in a method that only the plan calls."""

    def keys(self, engine: Any, frame: Any) -> dict[str, np.ndarray]:
        return {"key": np.zeros(len(frame), np.int64)}

    def forecast(self, sample: StageSample) -> Forecast:
        return Forecast(sample.documents / sample.groups["none"])


class Tells(Fails, frozen=True, kw_only=True, tag=f"{HERE}:Tells"):
    """Tells a share in place of a forecast."""

    def forecast(self, sample: StageSample) -> Any:
        return 0.5


class Saves(Fails, frozen=True, kw_only=True, tag=f"{HERE}:Saves"):
    """Gives the folder of its index alone."""

    def forecast(self, sample: StageSample) -> Forecast:
        return Forecast()

    def new_index(self) -> Any:
        return "folder"


@pytest.mark.parametrize(
    ("call", "stage", "message"),
    [
        (curation.estimate, OldForm(), OLD_FORM),
        (curation.run, OldForm(), OLD_FORM),
        (curation.estimate, Fails(), "the stage .*Fails.*: KeyError: 'none'"),
        (curation.estimate, Tells(), r"the stage .*Tells.*: forecast\(\) must return a Forecast, not float"),
    ],
)
def test_methods_that_the_plan_cannot_call(call: Any, stage: CorpusStage, message: str, tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(["text"]))
    with pytest.raises(StageError, match=message):
        call(Recipe(input=[curation.Input(path=str(tmp_path / "a.jsonl"))], stages=[stage]), tmp_path / "out")


def test_an_index_that_is_none(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(["text"]))
    inputs, output = [curation.Input(path=str(tmp_path / "a.jsonl"))], curation.Output(formats=[], index=True)
    with pytest.raises(StageError, match=r"the stage .*Saves.*: new_index\(\) must return a NewIndex or None, not str"):
        curation.run(Recipe(input=inputs, stages=[Saves()], output=output), tmp_path / "out")


@pytest.mark.parametrize("base", [RowStage, CorpusStage])
@pytest.mark.parametrize("name", REPLACED)
def test_names_of_earlier_versions_are_refused(name: str, base: type[Any]):
    """As a method, a class variable and a setting, and of a class on which the stage is built."""
    message = f"stage tests.stages.test_stage_contract:.*Mine defines names of an earlier version: {name} is now "
    makers: list[Callable[[], Any]] = [
        lambda: types.new_class("Mine", (base,), exec_body=lambda body: body.update({name: lambda self: None, **here})),
        lambda: types.new_class("Mine", (base,), exec_body=lambda body: body.update({name: True, **here})),
        lambda: msgspec.defstruct("Mine", [(name, bool, True)], bases=(base,), module=HERE),
        lambda: types.new_class(
            "Mine", (type("Mixin", (), {name: True}), base), exec_body=lambda body: body.update(here)
        ),
    ]
    here = {"__module__": HERE}
    for make in makers:
        with pytest.raises(StageError, match=message) as error:
            make()
        assert REPLACED[name] in str(error.value)


def test_a_function_may_have_settings_of_these_names():
    def keep(texts: Any, *, origin: str = "", notes: int = 1) -> bool:
        return bool(texts)

    assert curation.stage(keep)(origin="a").notes == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", STAGES)
def test_shipped_stages_take_the_arguments_of_their_methods(kind: str):
    own = STAGES[kind]
    base = CorpusStage if issubclass(own, CorpusStage) else RowStage
    for name in [name for name in vars(base) if not name.startswith("_") and inspect.isfunction(getattr(base, name))]:
        inspect.signature(getattr(own, name)).bind(*inspect.signature(getattr(base, name)).parameters)


def test_what_shipped_stages_announce():
    check_announced(curation.MeasureStage())
    check_announced(curation.Language(keep=["en"]))
