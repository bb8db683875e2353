# SPDX-License-Identifier: Apache-2.0
"""The functions of `curation` on frames of cuDF and Dask-cuDF, over stand-ins: the CPU engine's values, in a frame of
the given kind, and nothing is used that cuDF's classes lack."""

import sys

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

import curation
from curation.base import engine as selector
from curation.models.fasttext import LANGUAGE_MODEL
from tests.gpu import interface, stand_ins
from tests.needs import needs

LONG = " the same forty characters, once and twice"
TEXTS = ["One two three.", "one two three. ", f"Bread rises; why?{LONG}", None, f"a\nb{LONG}"]


@pytest.fixture
def used(monkeypatch):
    """The engine "gpu" over stand-ins, and the names that `curation` looks up in its frames and columns."""
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    monkeypatch.setitem(selector.FRAME_LIBRARIES, "tests", "gpu")  # of the stand-ins
    stand_ins.install_engine(monkeypatch)
    names = set()
    for owner in (stand_ins.DataFrame, stand_ins.Series):
        looked_up = owner.__getattribute__

        def noted(self, name, owner=owner, looked_up=looked_up):
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.startswith("curation.") and not name.startswith("__"):
                names.add(f"cudf.{owner.__name__}.{name}")
            return looked_up(self, name)

        monkeypatch.setattr(owner, "__getattribute__", noted, raising=False)
    for name in ("__array__", "__iter__"):
        monkeypatch.setattr(stand_ins.Series, name, refused(getattr(pd.Series, name)), raising=False)
    return names


def refused(method):
    """A method of a Series that cuDF refuses, since it would copy from the device in silence."""

    def run(self, *arguments, **settings):
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith(("curation.", "dask.dataframe.dask_expr._collection")):
            raise TypeError("implicit conversion to the host")
        return method(self, *arguments, **settings)

    return run


MODEL = str(LANGUAGE_MODEL)
RULE = {"words": {"min": 2}}

LAZY = {  # functions that take Dask frames, too
    "apply": lambda frame, _: curation.apply(frame, curation.ExactDedup()),
    "classify": lambda frame, _: curation.classify(frame, MODEL, label="en"),
    "decontaminate": lambda frame, folder: curation.decontaminate(frame, folder / "quiz.txt", ngram=2),
    "exact_dedup": lambda frame, _: curation.exact_dedup(frame, compare="lowercase"),
    "explain": lambda frame, _: curation.explain(frame, RULE),
    "filter": lambda frame, _: curation.filter(curation.measure(frame, ["words"]), RULE),
    "fuzzy_dedup": lambda frame, _: curation.fuzzy_dedup(frame, ngram=2, threshold=0.5),
    "hash": lambda frame, _: curation.hash(frame),
    "language": lambda frame, _: curation.language(frame, model=MODEL),
    "line_dedup": lambda frame, _: curation.line_dedup(frame),
    "lines": lambda frame, _: curation.lines(frame, RULE),
    "measure": lambda frame, _: curation.measure(frame, ["words", "bytes"], script=True),
    "minhash": lambda frame, _: curation.minhash(frame, permutations=4),
    "mix": lambda frame, _: curation.mix(frame, {"a": 2, "b": 1}),
    "mix by a curve": lambda frame, _: curation.mix(frame, curve=[[0.4, 0], [1, 1.5]], column="number", per="source"),
    "ngram_dedup": lambda frame, _: curation.ngram_dedup(frame, ngram=2),
    "perplexity": lambda frame, folder: curation.perplexity(frame, folder / "tiny.arpa"),
    "redact": lambda frame, _: curation.redact(frame),
    "rewrite": lambda frame, _: curation.rewrite(frame, whitespace="collapse", lowercase=True),
    "select": lambda frame, _: curation.select(frame, "number", keep_highest=0.5),
    "semantic_dedup": lambda frame, _: curation.semantic_dedup(frame, clusters=1),
    "substring_dedup": lambda frame, _: curation.substring_dedup(frame, length=32),
    "text_column": lambda frame, _: curation.measure(
        frame.rename(columns={"text": "body"}), "words", text_column="body"
    ),
    "assign_clusters": lambda frame, folder: curation.assign_clusters(frame, folder / "centroids.npz"),
}
IN_MEMORY = {
    "align": lambda frame, _: curation.align(frame, frame, threshold=0.5),
    "clusters": lambda frame, _: curation.clusters(frame, clusters=1, words=1),
    "communities": lambda frame, _: curation.communities(frame, source="number", target="to"),
    "neighbours": lambda frame, _: curation.neighbours(frame, k=1),
    "pagerank": lambda frame, _: curation.pagerank(frame, source="number", target="to", column="rank"),
    "pca": lambda frame, _: curation.pca(frame, components=1),
    "pairs": lambda frame, _: curation.exact_dedup(frame, compare="lowercase", details=True).pairs,
    "groups": lambda frame, _: curation.exact_dedup(frame, compare="lowercase", details=True).groups,
}
PROBED = {
    f"cudf.DataFrame.{name}" for name in ("_meta", "map_partitions", "to_frame")
} | {  # absent from cuDF's classes
    f"cudf.Series.{name}" for name in ("_meta", "map_partitions", "columns")
}
NO_FRAMES = {"decide": "numbers", "rule_effects": "numbers", "plot": "a chart", "tokenize": "files", "embed": "a model"}


@pytest.fixture
def given(tmp_path):
    """A frame of pandas, and files that functions need."""
    (tmp_path / "quiz.txt").write_text("Bread rises")
    (tmp_path / "tiny.arpa").write_text("\\data\\\nngram 1=3\n\n\\1-grams:\n-1 <unk>\n-99 <s>\n-0.5 </s>\n\n\\end\\\n")
    vectors = pa.array([[1.0, 0.1], [1.0, 0.1], [0.2, 1.0], None, [0.3, 0.9]], pa.list_(pa.float64()))
    frame = pd.DataFrame(
        {
            "number": [3, 1, 2, 5, 4],
            "to": [1, 2, 1, 4, 5],
            "source": pd.Series(["a", "a", "b", "b", "b"], dtype="str"),
            "embedding": pd.Series(pd.arrays.ArrowExtensionArray(vectors)),
            "text": pd.Series(TEXTS, dtype="str"),
        }
    ).set_axis([7, 7, 2, 1, 9])
    curation.clusters(frame, clusters=1, save=tmp_path / "centroids.npz")
    with dask.config.set({"dataframe.convert-string": False}):  # cuDF has one type of strings
        yield frame


def rows_of(frame):
    """The columns with their values: lists have another type in cuDF."""
    return {name: [None if each is pd.NA else each for each in column] for name, column in as_lists(frame).items()}


def as_lists(frame):
    return {"index": frame.index.tolist()} | {
        name: [value.tolist() if hasattr(value, "tolist") else value for value in frame[name]] for name in frame.columns
    }


@pytest.mark.filterwarnings("ignore::curation.base.errors.InputWarning")
@pytest.mark.parametrize("name", [*LAZY, *IN_MEMORY])
def test_frames_of_cudf_and_dask_cudf(used, given, tmp_path, name):
    if name in ("communities", "pagerank"):
        needs("networkx")
    function = (LAZY | IN_MEMORY)[name]
    expected = repr(rows_of(function(given, tmp_path)))
    frame = stand_ins.DataFrame(given)
    found = function(frame, tmp_path)
    assert type(found) is stand_ins.DataFrame and repr(rows_of(found)) == expected
    if name in LAZY:
        lazy = function(dd.from_pandas(frame, npartitions=2, sort=False), tmp_path)
        assert isinstance(lazy, dd.DataFrame) and type(lazy._meta) is stand_ins.DataFrame
        assert repr(rows_of(lazy.compute())) == expected
    assert used <= {f"{owner}.{each}" for owner, names in interface.FRAMES.items() for each in names} | PROBED


def test_columns(used, given):
    """A Series gives a Series, or a frame if there are new columns."""
    texts, column = given["text"], stand_ins.DataFrame(given)["text"]
    for series in (column, dd.from_pandas(column, npartitions=2, sort=False)):
        for name in ("rewrite", "exact_dedup", "hash"):
            expected, found = LAZY[name](texts, None), LAZY[name](series, None)
            found = found.compute() if isinstance(series, dd.Series) else found
            assert type(found) is (stand_ins.DataFrame if name == "hash" else stand_ins.Series)
            assert repr(rows_of(pd.DataFrame(found))) == repr(rows_of(pd.DataFrame(expected)))


@pytest.mark.parametrize("lazy", [False, True])
def test_measures(used, given, lazy):
    """`decide` copies the columns that it needs to the host."""
    rules = [RULE, {"number": {"max": 4}}]
    measured = curation.measure(stand_ins.DataFrame(given), "words")
    measured = dd.from_pandas(measured, npartitions=2, sort=False) if lazy else measured
    verdict = curation.decide(measured, rules)
    assert verdict.kept.tolist() == curation.decide(curation.measure(given, "words"), rules).kept.tolist()
    assert set(verdict.counts()) == {"words", "number"}
    assert curation.rule_effects(measured, [RULE]).effects[0].removed_now == 1
    nulls = stand_ins.DataFrame({"words": pd.array([1, None], "Int64")})
    with pytest.raises(curation.RecipeError, match="column 'words' is no measure"):
        curation.decide(dd.from_pandas(nulls, npartitions=1) if lazy else nulls, RULE)


def test_tokens_and_runs(used, given, tmp_path):
    frame = stand_ins.DataFrame(given)
    expected = curation.tokenize(given, tmp_path / "pandas")
    for number, each in enumerate((frame, dd.from_pandas(frame, npartitions=1, sort=False))):
        found = curation.tokenize(each, tmp_path / f"cudf-{number}")
        assert [pair.sha256_bin for pair in found] == [pair.sha256_bin for pair in expected]
    recipe = {"stages": ["exact_dedup"], "output": {"formats": []}}
    kept = [
        curation.run(recipe, tmp_path / name, input=each).kept()["text"].tolist()
        for name, each in (("a", given), ("b", frame))
    ]
    assert kept[0] == kept[1] and len(kept[0]) == 4


def test_a_mixture_is_one_message(used, given):
    frame = stand_ins.DataFrame(given)
    mixed = r"expected frames of one engine, got a DataFrame of tests and a DataFrame of pandas\. Convert one of them"
    with pytest.raises(curation.ArgumentError, match=mixed):
        curation.align(frame, given, threshold=0.5)
    with pytest.raises(curation.ArgumentError, match="expected frames of one engine"):
        curation.align(pa.table({"embedding": [[1.0]]}), frame, threshold=0.5)
    assert len(curation.align(pa.table({"embedding": [[1.0, 0.1]]}), given, threshold=0.5)) == 1


def test_each_function_on_frames_is_tried():
    """A new function on frames is added to this file."""
    homes = [name for name in curation._HOMES if name.startswith("curation.frames.")]
    public = {name for home in (*homes, "curation.tools.graphs") for name in curation._HOMES[home] if name.islower()}
    assert public - {"read"} == {*LAZY, *IN_MEMORY, *NO_FRAMES} - {"text_column", "pairs", "groups", "mix by a curve"}
