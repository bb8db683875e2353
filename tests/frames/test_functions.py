# SPDX-License-Identifier: Apache-2.0
"""The functions for notebooks give what a run keeps, lazily on Dask frames and at once on one frame."""

import gzip
import re
import textwrap
import typing
import warnings
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import msgspec
import numpy as np
import pandas as pd
import pytest

import cpu_fallback.session
import curation
import curation.frames.functions
from curation.base import errors
from curation.base.errors import EngineError, InputError, RecipeError
from curation.base.measures import Measure
from curation.running.run import run
from tests.runs import kept_rows, made_texts, recipe_of, records_of

STAGES = [
    {"kind": "rewrite", "unicode": "nfc", "whitespace": "collapse"},
    {"kind": "filter", "rules": ["gopher_repetition", {"measure": "words", "min": 5}]},
    {"kind": "exact_dedup", "max_characters": 50, "compare": "lowercase"},
]
RULES = STAGES[1]["rules"]
COLUMNS = ["doc", "id", "source", "text"]
pytestmark = pytest.mark.filterwarnings("ignore::curation.base.errors.InputWarning")  # each file has a bad line


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for number in range(3):
        (folder / f"{number}.jsonl").write_bytes(records_of(made_texts(100, number)) + b"not json\n")
    return folder


def whole_chain(frame: Any) -> Any:
    frame = curation.rewrite(frame, unicode="nfc", whitespace="collapse")
    frame = curation.filter(frame, RULES)
    return curation.exact_dedup(frame, max_characters=50, compare="lowercase")


def rows_of(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(frame[COLUMNS].itertuples(index=False, name=None))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> list[tuple[Any, ...]]:
    out = tmp_path_factory.mktemp("kept") / "out"
    run(recipe_of(corpus, stages=STAGES, output={"formats": []}), out, engine="cpu", slice_bytes=9000)
    found = kept_rows(out)
    assert 100 < len(found) < 290
    return found


@pytest.mark.parametrize("slice_bytes", [6000, 1 << 20])
def test_lazily_as_a_run_keeps(corpus: Path, kept: list[tuple[Any, ...]], slice_bytes: int):
    frame = curation.read(str(corpus), engine="cpu", slice_bytes=slice_bytes)
    assert isinstance(frame, dd.DataFrame) and list(frame.columns) == COLUMNS
    chained = whole_chain(frame)
    assert isinstance(chained, dd.DataFrame)
    assert rows_of(chained.compute()) == kept
    assert (chained.npartitions > 3) == (slice_bytes == 6000)


def test_eagerly_as_a_run_keeps(corpus: Path, kept: list[tuple[Any, ...]]):
    frame = curation.read(str(corpus), engine="cpu", keep_blank=True).compute()
    assert isinstance(frame, pd.DataFrame) and len(frame) == 300
    assert frame["doc"].tolist() == [number for number in range(303) if number not in (100, 201, 302)]
    chained = whole_chain(frame)
    assert isinstance(chained, pd.DataFrame)
    assert rows_of(chained) == kept
    assert frame["text"].tolist() == made_texts(100, 0) + made_texts(100, 1) + made_texts(100, 2)  # left as it was


def near_texts() -> list[str]:
    """40 documents of 60 words, and each of them again with some words more."""
    texts = [" ".join(f"{row}-{k}" for k in range(60)) for row in range(40)]
    return texts + [f"{text} more {'words ' * (row % 3)}" for row, text in enumerate(texts)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"keep": ["b", "a"]},
        *(
            pytest.param(
                each, marks=pytest.mark.slow("functions keep what a run keeps with each setting of near-duplicates")
            )
            for each in ({"keep": "longest"}, {"verify": "signature"})
        ),
    ],
    ids=str,
)
def test_near_duplicates_as_a_run_keeps(tmp_path: Path, settings: dict[str, Any]):
    texts = near_texts()
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    paths[0].write_bytes(records_of(texts[:50]))
    paths[1].write_bytes(records_of(texts[50:]))
    inputs = [{"path": str(path), "name": path.stem} for path in paths]
    index = {"formats": [], "index": True}
    recipe = recipe_of(*inputs, stages=[{"kind": "fuzzy_dedup", **settings}], output=index)
    run(recipe, tmp_path / "out", engine="cpu")
    kept = kept_rows(tmp_path / "out")
    assert 40 <= len(kept) < 45
    frame = dd.concat([curation.read(path, name=path.stem, engine="cpu", slice_bytes=9000) for path in paths])
    eager = frame.compute()
    assert frame.npartitions > 2
    for found in (curation.fuzzy_dedup(frame, **settings).compute(), curation.fuzzy_dedup(eager, **settings)):
        assert found["text"].tolist() == [text for *_, text in kept]
    assert len(curation.fuzzy_dedup(frame, index=str(tmp_path / "out" / "index"), **settings).compute()) == 0


def test_what_read_takes_of_an_input(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes("Grüße--zwei--".encode("latin-1") + b"x" * 100)
    frame = curation.read(tmp_path / "a.txt", encoding="latin-1", separator="--", max_document_bytes=50, engine="cpu")
    assert frame.compute()["text"].tolist() == ["Grüße", "zwei"]
    (tmp_path / "b.jsonl").write_bytes(records_of(["one"], key="k", url="u"))
    inputs = [
        curation.Input(path=tmp_path / "b.jsonl", id_column="key", columns=["url"], blend_weight=2),
        curation.Input(path=tmp_path / "a.txt", encoding="latin-1", name="texts"),
    ]
    read = curation.read(inputs, engine="cpu").compute()
    assert read["id"].tolist() == ["k", "texts/1"] and read["source"].tolist() == ["b", "texts"]
    assert read["url"].isna().tolist() == [False, True]
    assert "url" in curation.read(tmp_path / "b.jsonl", columns="url", engine="cpu").columns
    renamed = curation.read(tmp_path / "b.jsonl", columns={"address": "url"}, engine="cpu").compute()
    assert renamed["address"].tolist() == ["u"]


def test_a_sample_is_that_of_a_run(tmp_path: Path, corpus: Path):
    recipe = recipe_of({"path": str(corpus), "sample": 0.3}, stages=[], output={"formats": []})
    run(recipe, tmp_path / "out", engine="cpu")
    found = curation.read(recipe.input, engine="cpu", slice_bytes=5000).compute()
    assert rows_of(found) == kept_rows(tmp_path / "out") and 40 < len(found) < 140
    assert rows_of(curation.read(corpus, sample=0.3, engine="cpu").compute()) == rows_of(found)


@pytest.mark.parametrize(
    ("paths", "settings", "message"),
    [
        ([], {}, "nothing to read: paths is empty"),
        (5, {}, "Expected `object`, got `int`"),
        ("a.jsonl", {"format": "json"}, "format must be one of auto, jsonl"),
        (
            ["a.jsonl", "b.jsonl"],
            {"name": "mine"},
            r"name applies to one input, paths has 2\. Give a list of curation\.Input",
        ),
        ([curation.Input(path="a.jsonl")], {"columns": "x"}, "columns cannot be combined with an Input"),
        (["b.jsonl", {"path": "a.jsonl"}], {"columns": "x", "sample": 0.5}, "columns, sample cannot be combined"),
        ("hf:org/set", {}, "hf:org/set is streamed: run a recipe with this input"),
    ],
)
def test_what_cannot_be_read(paths: Any, settings: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        curation.read(paths, engine="cpu", **settings)


def test_slices_below_zero_are_refused():
    with pytest.raises(EngineError, match=r"slice_bytes must be 0 .* or more, not -5"):
        curation.read("a.jsonl", slice_bytes=-5, engine="cpu")


def test_keep_names_few_of_many_sources():
    frame = pd.DataFrame({"text": ["a"] * 4000, "source": [f"source-{row % 100}" for row in range(4000)]})
    with pytest.raises(RecipeError, match=r"'zzz'; expected one of source-0, source-1, .* source-9 and 90 more$"):
        curation.fuzzy_dedup(frame, keep=["zzz"])


def test_language_keeps_what_is_asked_for():
    german = "Der schnelle braune Fuchs springt über den faulen Hund, und niemand weiß so recht, warum er das tut."
    english = "The quick brown fox jumps over the lazy dog, and nobody knows for sure why it would ever do that."
    frame = pd.DataFrame({"text": [german, english, ""]})
    assert curation.language(frame, keep=["de"])["text"].tolist() == [german]
    assert curation.language(frame, ["de", "en"])["text"].tolist() == [german, english]
    with pytest.raises(RecipeError, match="no language 'xx'"):
        curation.language(frame, keep=["xx"])


def test_evaluation_texts_are_files_or_inputs(tmp_path: Path):
    path = tmp_path / "quiz.jsonl"
    path.write_text('{"question": "Two three"}\n')
    texts = ["one two three", "two", "three two"]
    quiz = curation.Input(path=path, text_column="question")
    for files in (quiz, [quiz], curation.Decontaminate(evaluation_files=(quiz,), ngram=2)):
        settings = {} if isinstance(files, curation.Decontaminate) else {"ngram": 2}
        for frame in (pd.DataFrame({"text": texts}), dd.from_pandas(pd.DataFrame({"text": texts}), npartitions=2)):
            found = curation.decontaminate(frame, files, **settings)
            assert [*found["text"]] == texts[1:]
    (tmp_path / "quiz.txt").write_text("Two three\n")
    assert len(curation.decontaminate(pd.DataFrame({"text": texts}), str(tmp_path / "quiz.txt"), ngram=2)) == 2
    with pytest.raises(RecipeError, match="evaluation_files is empty"):
        curation.decontaminate(pd.DataFrame({"text": texts}), [])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the slices that are read from now on."""
    numbers: list[int] = []
    real = curation.frames.functions.read_sampled

    def counted(engine: Any, input_slice: Any, *arguments: Any) -> Any:
        numbers.append(input_slice.index)
        return real(engine, input_slice, *arguments)

    monkeypatch.setattr("curation.frames.functions.read_sampled", counted)
    return numbers


def test_each_slice_is_read_once_and_when_it_is_asked_for(corpus: Path, reads: list[int]):
    frame = curation.read(str(corpus), engine="cpu", slice_bytes=5000)
    frame = curation.measure(curation.filter(curation.rewrite(frame, unicode="nfc"), "gopher"), ["words"])
    assert reads == [] and frame.npartitions > 3
    whole = frame.compute(scheduler="synchronous")
    assert sorted(reads) == list(range(frame.npartitions))
    reads.clear()
    third = frame.partitions[2].compute()
    assert sorted(reads) == [0, 1, 2]  # their records number its documents
    assert third["doc"].tolist() == whole["doc"].tolist()[len(frame.partitions[:2]) :][: len(third)]


def test_few_slices_wait_in_memory(corpus: Path, monkeypatch: pytest.MonkeyPatch):
    """Documents wait until the slices before them are counted, not until all are."""
    functions, waiting = curation.frames.functions, [0]
    read_slice, numbered = functions._read_slice, functions._numbered

    def counted(change: int, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            found = function(*arguments)
            waiting.append(waiting[-1] + change)
            return found

        return call

    monkeypatch.setattr(functions, "_read_slice", counted(1, read_slice))
    monkeypatch.setattr(functions, "_numbered", counted(-1, numbered))
    frame = curation.read(str(corpus), engine="cpu", slice_bytes=2000)
    assert frame.npartitions > 12
    frame.compute(scheduler="synchronous")
    assert len(waiting) == 2 * frame.npartitions + 1 and max(waiting) == 1


def test_paths_of_every_kind(corpus: Path):
    expected = curation.read(str(corpus), engine="cpu").compute()["text"].tolist()
    for paths in (corpus, str(corpus / "*.jsonl"), [corpus]):
        assert curation.read(paths, engine="cpu").compute()["text"].tolist() == expected
    several = curation.read([corpus / "2.jsonl", str(corpus / "1.jsonl")], engine="cpu").compute()
    assert several["source"].unique().tolist() == ["input-2", "input-1"]
    assert several["id"].tolist()[:2] == ["input-2/0", "input-2/1"]
    named = curation.read(corpus / "0.jsonl", name="mine", engine="cpu").compute()
    assert named["source"].unique().tolist() == ["mine"]


def test_records_that_are_no_documents_are_a_warning_or_an_error(tmp_path: Path):
    """Nothing is left out in silence: neither single records nor what follows damage in a compressed file."""
    lines = b"".join(b'{"text": "%d"}\n' % k if k % 5 < 2 else b"bad\n" for k in range(10))
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 1000)[:-20])
    (tmp_path / "c.csv").write_text("text\nfine\n")
    where = re.escape(str(tmp_path))
    told = (
        rf"7 of \d+ records are no documents \({where}/a.jsonl, line 3: .*; .*, line 4: .*; .*, line 5: .*; \.\.\.\)\. "
        rf"1 file not read to the end: the documents after the damage are lost \({where}/b.jsonl.gz, line \d+: the file"
    )
    for slice_bytes in (0, 30):  # lines are those of the file in any slice
        with pytest.warns(curation.InputWarning) as caught:
            found = curation.read(tmp_path, engine="cpu", slice_bytes=slice_bytes).compute()
        *first, last = [str(warning.message) for warning in caught]
        assert found["text"].tolist()[:4] == ["0", "1", "5", "6"] and re.match(told, last)
        so_far = rf"1 of 3 records read so far are no documents \({where}/a.jsonl, line 3: "
        assert [bool(re.match(so_far, each)) for each in first] == [True] * bool(slice_bytes)
        found = curation.read(tmp_path, engine="cpu", slice_bytes=slice_bytes, errors="raise")
        with pytest.raises(InputError, match=rf"{so_far if slice_bytes else told}.*\. Mend the files, or give errors="):
            found.compute()
        with pytest.warns(curation.InputWarning, match=so_far if slice_bytes else told):
            curation.read(tmp_path, engine="cpu", slice_bytes=slice_bytes).partitions[0].compute()
    with pytest.raises(InputError, match="errors must be one of warn, raise, not 'ignore'"):
        curation.read(tmp_path, engine="cpu", errors="ignore")
    with warnings.catch_warnings(action="error"):
        curation.read(tmp_path / "c.csv", engine="cpu", errors="raise").compute()


def test_functions_that_read_files_warn_too(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(records_of(made_texts(60)) + b"bad\n")
    test = tmp_path / "test.jsonl"
    test.write_bytes(records_of(made_texts(2)))
    for call in (
        lambda: curation.check_overlap(path, test, engine="cpu", workers=1),
        lambda: curation.token_coverage(path, "gpt2"),
        lambda: curation.train_tokenizer(path, tmp_path / "tokenizer.json", vocabulary=300),
    ):
        with pytest.warns(curation.InputWarning, match=r"1 of 61 records are no documents \(.*/a\.jsonl, line 61: "):
            call()


def test_empty_files_and_frames(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(b"")
    frame = curation.read(tmp_path / "a.jsonl", engine="cpu")
    for found in (whole_chain(frame).compute(), whole_chain(frame.compute())):
        assert len(found) == 0 and list(found.columns) == COLUMNS


def test_wrong_paths_and_columns_are_said_at_once(tmp_path: Path, corpus: Path):
    with pytest.raises(InputError, match="does not exist"):
        curation.read(tmp_path / "none.jsonl", engine="cpu")
    with pytest.raises(InputError, match=r"no field 'body' in the first \d+ records?\. They have \['text'\]"):
        curation.read(corpus, text_column="body", engine="cpu")
    (tmp_path / "reviews.csv").write_text("n,label\n1,x\n")
    with pytest.raises(InputError, match=r"it has \['n', 'label'\]\. Set text_column; the first row must hold"):
        curation.read(tmp_path / "reviews.csv", engine="cpu")
    with pytest.raises(InputError, match=r"0\.jsonl is given twice"):
        curation.read([corpus / "0.jsonl", corpus / "0.jsonl"], engine="cpu")


def test_what_is_no_frame():
    for wrong in (["text"], "text", {"text": ["a"]}, None):
        shown = rf"{'None' if wrong is None else 'a ' + type(wrong).__name__}\. Make one of texts by pandas"
        with pytest.raises(TypeError, match=f"or a table of polars, DuckDB or pyarrow, got {shown}"):
            curation.redact(wrong)
    frame = pd.DataFrame({"body": ["a"]})
    for without_text in (frame, dd.from_pandas(frame, npartitions=1)):
        with pytest.raises(InputError, match=r"column 'text' not found in the frame; it has \['body'\]"):
            curation.redact(without_text)


def test_one_thing_where_several_are_expected():
    frame = pd.DataFrame(
        {"text": ["two words", "the quick brown fox and the lazy dog are here for all of us, a@b.example"]}
    )
    words = curation.Rule(measure=Measure.words, min=3)
    for one, several in (
        (curation.measure(frame, "words"), curation.measure(frame, ["words"])),
        (curation.measure(frame, Measure.bytes), curation.measure(frame, ["bytes"])),
        (curation.measure(frame, [Measure.words, "bytes"]), curation.measure(frame, ["words", "bytes"])),
        (curation.measure(frame, {Measure.words}), curation.measure(frame, "words")),
        (curation.language(frame, "en"), curation.language(frame, keep=["en"])),
        (curation.filter(frame, words), curation.filter(frame, [words])),
        (curation.filter(frame, {"measure": "words", "min": 3}), curation.filter(frame, [words])),
        (curation.filter(frame, {"measure": Measure.words, "min": 3}), curation.filter(frame, [words])),
        (
            curation.filter(frame, [{"ratio": (Measure.words, Measure.lines), "min": 3}]),
            curation.filter(frame, [curation.Rule(ratio=("words", "lines"), min=3)]),
        ),
        (curation.redact(frame, types="email"), curation.redact(frame, types=["email"])),
    ):
        pd.testing.assert_frame_equal(one, several)
    assert len(curation.filter(frame, words)) == 1


def test_a_whole_stage_in_place_of_settings():
    frame = pd.DataFrame({"text": ["One and a@b.example", "one and a@b.example", "two"]})
    for function, stage, left in (
        (curation.rewrite, curation.Rewrite(lowercase=True), ["one and a@b.example", "one and a@b.example", "two"]),
        (curation.redact, curation.Redact(replacement="X"), ["One and X", "one and X", "two"]),
        (curation.filter, curation.Filter(rules=[curation.Rule(measure="words", max=1)]), ["two"]),
        (curation.exact_dedup, curation.ExactDedup(compare="lowercase"), ["One and a@b.example", "two"]),
        (curation.fuzzy_dedup, curation.FuzzyDedup(ngram=1), ["One and a@b.example", "two"]),
        (curation.ngram_dedup, curation.NgramDedup(ngram=1, compare="lowercase"), ["One and a@b.example", "two"]),
        (curation.language, curation.Language(keep=["de"], min_probability=0.9), []),
    ):
        assert function(frame, stage)["text"].tolist() == left
        with pytest.raises(RecipeError):
            function(frame, curation.MeasureStage())
    for given in ("nfc", "keep"):  # the default too: the stage may say something else
        with pytest.raises(
            RecipeError, match=r"rewrite takes either keywords or one Rewrite, not both: leave unicode out"
        ):
            curation.rewrite(frame, curation.Rewrite(lowercase=True), unicode=given)
    with pytest.raises(
        RecipeError, match=r"language takes either keywords or one Language, not both: leave column out"
    ):
        curation.language(frame, keep=curation.Language(keep=["de"]), column="found")
    measured = curation.measure(frame, curation.MeasureStage(names=("words",)))
    pd.testing.assert_frame_equal(measured, curation.measure(frame, "words"))


def test_numbers_of_numpy_and_paths_are_settings(tmp_path: Path):
    frame = pd.DataFrame({"text": ["a b c", "a b d"]})
    assert len(curation.fuzzy_dedup(frame, threshold=np.float64(0.5), ngram=np.int64(1))) == 1
    with pytest.raises(RecipeError, match="none has no index"):
        curation.fuzzy_dedup(frame, index=tmp_path / "none")
    with pytest.raises(RecipeError, match="no setting can be a Series"):
        curation.redact(frame, types=pd.Series(["email"]))


def test_wrong_settings_name_what_is_near():
    frame = pd.DataFrame({"text": ["a"]})
    with pytest.raises(RecipeError, match="no measure named 'word'; did you mean words"):
        curation.measure(frame, ["words", "word"])
    with pytest.raises(RecipeError, match="no rule set named 'gofer'; did you mean gopher"):
        curation.filter(frame, "gofer")
    with pytest.raises(RecipeError, match="rewrite: no setting 'lower'; did you mean lowercase"):
        curation.rewrite(frame, lower=True)
    with pytest.raises(InputError, match="no setting 'column'; did you mean columns"):
        curation.read("none.jsonl", column="text")
    with pytest.raises(RecipeError, match=r"no measure named 'zzz'; expected one of bytes, .* and 70 more$"):
        curation.measure(frame, "zzz")
    for wrong in (5, [5], [["z"]], None, Measure.words.value):
        with pytest.raises(RecipeError, match=r"measure: Expected `(array|str)`, got"):
            curation.measure(frame, wrong)
    for wrong in (5, None, [5]):
        with pytest.raises(RecipeError, match=r"filter: Expected `str \| (array|object)`, got"):
            curation.filter(frame, wrong)
    with pytest.raises(RecipeError, match="max_characters must be 0"):
        curation.exact_dedup(frame, max_characters=-1)


def test_the_example_of_the_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl.gz").write_bytes(gzip.compress(records_of(made_texts(20))))
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"(?:^    .*\n)+", curation.__doc__ or "", re.MULTILINE)
    names: dict[str, Any] = {}
    exec(textwrap.dedent(example), names)
    assert names["finished"].report["documents"]["read"] == 20 and len(names["frame"].compute()) <= 20


def test_the_public_names_are_there():
    assert {"read", "rewrite", "filter", "measure", "exact_dedup", "run", "load_recipe"} <= {*curation.__all__}
    fields = (*msgspec.structs.fields(curation.Recipe), *msgspec.structs.fields(curation.Output))
    taken = {kind for field in fields for kind in typing.get_args(field.type) or [field.type]}
    kinds = {part for kind in taken for part in typing.get_args(kind) or [kind] if hasattr(part, "__struct_fields__")}
    assert len(kinds) > 10 and {kind.__name__ for kind in kinds} <= {*curation.__all__}
    assert {name for name in vars(errors) if name.endswith("Error")} <= {*curation.__all__}
    for name in curation.__all__:
        assert getattr(curation, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'reed'"):
        _ = curation.reed


@pytest.mark.parametrize(
    "text",
    [
        pd.Series([123, 4567]),
        pd.Series([1.5, None]),
        pd.Series([True, False]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"])),
        pd.Series(["a", 5], dtype=object),
        pd.Series([5, 6], dtype=object),
        pd.Series([b"a", b"b"], dtype=object),
        pd.Series([["a"], ["b"]], dtype=object),
        pd.Series([5, 6]).astype("category"),
    ],
    ids=lambda text: f"{text.dtype}-{text.tolist()[1]}",
)
def test_text_that_is_no_text(text: pd.Series):
    frame = pd.DataFrame({"text": text})
    for function in (
        lambda: curation.rewrite(frame, lowercase=True),
        lambda: curation.exact_dedup(frame),
    ):
        with pytest.raises(InputError, match="column 'text' must hold strings"):
            function()


def test_a_message_on_mixed_types_names_the_row_and_the_remedy():
    for value, remedy in {3: r"\.astype\(str\)", b"x": r"\.map\(lambda text: text\.decode\(\)"}.items():
        frame = pd.DataFrame({"text": ["a", None, value]}, index=[5, 6, 7], dtype=object)
        with pytest.raises(InputError, match=rf"but the row with index 7 holds {value!r} \(\w+\). .*{remedy}"):
            curation.rewrite(frame, lowercase=True)


def test_a_warning_names_the_columns_of_the_user_that_a_stage_replaces():
    own = pd.DataFrame({"text": ["a"], "language": ["x"], "words": ["y"]})
    cases: dict[str, Any] = {
        "language.*'language'.*set column to": curation.language,
        "measure.*'words'.*leave them out of names": lambda frame: curation.measure(frame, ["words", "bytes"]),
    }
    for frame in (own, dd.from_pandas(own, npartitions=1)):
        for message, call in cases.items():
            with pytest.warns(curation.InputWarning, match=message) as caught:
                once = call(frame)
            assert caught[0].filename == __file__
            with warnings.catch_warnings():
                warnings.simplefilter("error", curation.InputWarning)
                call(once)
                curation.language(frame, column="mine")


def test_half_a_character():
    frame = pd.DataFrame({"text": pd.Series(["a", "b\ud800"], dtype=object)})
    with pytest.raises(
        InputError, match=r"column 'text' holds '\\ud800', half a character, .* Replace it: \.str\.encode"
    ):
        curation.measure(frame, "words")
    frame["text"] = frame["text"].str.encode("utf-8", "replace").str.decode("utf-8")
    assert curation.measure(frame, "words")["words"].tolist() == [1, 1]


@pytest.mark.parametrize("lazy", [False, True])
def test_a_column_that_is_there_twice(lazy: bool):
    frame = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(InputError, match="the frame has 2 columns 'text'"):
        curation.rewrite(dd.from_pandas(frame, npartitions=1) if lazy else frame, lowercase=True)
    twice = pd.DataFrame([["a", "b", "c"]], columns=["text", "source", "source"])
    with pytest.raises(InputError, match="the frame has 2 columns 'source'"):
        curation.fuzzy_dedup(twice, keep=["b"])


@pytest.mark.parametrize("dtype", [object, "str", "string[python]", "string[pyarrow]", "category"])
def test_all_that_pandas_calls_strings(dtype: Any):
    frame = pd.DataFrame({"text": pd.Series(["a", None, "bcd"], dtype=dtype)})
    assert curation.measure(frame, ["characters"])["characters"].tolist() == [1, 0, 3]
    assert curation.redact(frame).text.tolist()[2] == "bcd"


@pytest.mark.parametrize("deduplicate", [curation.exact_dedup, curation.fuzzy_dedup])
def test_keys_of_a_long_frame_are_computed_batch_by_batch(deduplicate, monkeypatch):
    frame = pd.DataFrame({"text": [*made_texts(60, 1), "", "", *made_texts(60, 1)[::2]]})
    whole = deduplicate(frame)
    sizes = []
    monkeypatch.setattr(cpu_fallback.session, "BATCH_BYTES", 2_000)
    for stage in (curation.ExactDedup, curation.FuzzyDedup):
        keys = stage.keys
        monkeypatch.setattr(
            stage, "keys", lambda self, engine, part, keys=keys: sizes.append(len(part)) or keys(self, engine, part)
        )
    pd.testing.assert_frame_equal(deduplicate(frame), whole)
    assert len(sizes) > 2 and sum(sizes) == len(frame) > len(whole)
    sizes.clear()
    frame["text"] = frame["text"].astype("category")  # a batch of it would hold the categories of all
    assert deduplicate(frame).index.equals(whole.index) and sizes == [len(frame)]
