# SPDX-License-Identifier: Apache-2.0
"""Functions take tables of polars, DuckDB and pyarrow, and give the same kind back."""

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

import curation
from tests.needs import needs

COLUMNS = {
    "text": pa.array(["One", "one", "two words here", None]),
    "number": pa.array([1, 2, None, 4], pa.int64()),
    "list": pa.array([[1], [2], None, [3]], pa.list_(pa.int64())),
    "kind": pa.array(["a", "b", "a", "b"]),
}
TABLE = pa.table(COLUMNS)


def of_polars(table: pa.Table) -> Any:
    return needs("polars").from_arrow(table)


def of_duckdb(table: pa.Table) -> Any:
    return needs("duckdb").from_arrow(table)


MADE = {"pyarrow": lambda table: table, "polars": of_polars, "duckdb": of_duckdb}


@pytest.fixture(params=MADE.values(), ids=MADE)
def made(request: pytest.FixtureRequest) -> Callable[[pa.Table], Any]:
    return request.param


def test_rows_and_columns_are_those_of_pandas(made: Callable[[pa.Table], Any]):
    given = made(TABLE)
    found = curation.measure(curation.exact_dedup(given, compare="lowercase"), ["words"])
    assert type(found) is type(given)
    expected = {name: column.take(pa.array([0, 2, 3])) for name, column in COLUMNS.items()}
    assert pa.table(found).to_pydict() == {
        **{name: column.to_pylist() for name, column in expected.items()}, "words": [1, 3, 0],
    }  # fmt: skip


def test_the_text_column_may_have_any_name_and_the_table_is_not_changed(made: Callable[[pa.Table], Any]):
    given = made(TABLE.rename_columns(["body", "number", "list", "text"]))
    found = curation.rewrite(given, lowercase=True, text_column="body")
    assert pa.table(found).column("body").to_pylist() == ["one", "one", "two words here", None]
    assert pa.table(found).column("text").to_pylist() == ["a", "b", "a", "b"]
    assert pa.table(given).column("body").to_pylist()[0] == "One"


def test_types_of_pyarrow_stay():
    types = curation.rewrite(TABLE, lowercase=True).schema
    assert types == TABLE.schema
    numbers = TABLE.append_column("score", pa.array([1.0, float("nan"), None, 2.0]))
    assert str(curation.filter(numbers, {"words": {"min": 1}})["score"].to_pylist()) == "[1.0, nan, None]"
    large = TABLE.set_column(0, "text", TABLE.column(0).cast(pa.large_string()))
    assert curation.rewrite(large, lowercase=True).schema == large.schema
    listed = TABLE.set_column(3, "kind", TABLE.column(3).dictionary_encode())
    assert curation.filter(listed, {"words": {"min": 1}}).schema == listed.schema


def test_duplicates_are_tables_too(made: Callable[[pa.Table], Any]):
    found = curation.fuzzy_dedup(made(pa.table({"text": ["a b c d e f g"] * 2 + ["x y z"]})), details=True)
    assert pa.table(found.kept).num_rows == 2 and pa.table(found.pairs).column("kept_row").to_pylist() == [0]
    assert type(found.pairs) is type(found.kept) and "a b c d e f g" in found._repr_html_()


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (TABLE.to_reader(), TypeError, "or a table of polars, DuckDB or pyarrow, got pyarrow"),
        (TABLE.column("number"), curation.InputError, "column 'text' must hold strings, not Int64"),
        (pa.table({"body": ["a"]}), curation.InputError, "column 'text' not found in the frame; it has .'body'."),
        (pa.table({"text": [1]}), curation.InputError, "column 'text' must hold strings, not int64"),
        (pa.table([["a"], ["b"]], ["text", "text"]), curation.InputError, "the frame has 2 columns 'text'"),
    ],
)
def test_what_is_no_table_of_texts_is_one_message(value: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        curation.exact_dedup(value)


def test_a_lazy_frame_of_polars_is_to_be_collected():
    lazy = needs("polars").LazyFrame({"text": ["a"]})
    with pytest.raises(TypeError, match=r"got polars\S+LazyFrame. Call collect\(\) first"):
        curation.exact_dedup(lazy)


def test_pandas_stays_pandas():
    assert type(curation.exact_dedup(pd.DataFrame({"text": ["a", "a"]}))) is pd.DataFrame


# Columns

TEXTS = ["One", "one", "two words here", None]
SERIES = {
    "pandas": lambda: pd.Series(TEXTS, [5, 6, 7, 8], name="body"),
    "dask": lambda: dd.from_pandas(pd.Series(TEXTS, [5, 6, 7, 8], name="body"), npartitions=2),
    "polars": lambda: needs("polars").Series("body", TEXTS),
    "chunked": lambda: pa.chunked_array([pa.array(TEXTS)]),
    "array": lambda: pa.array(TEXTS),
}


def values(found: Any) -> list[Any]:
    found = found.compute() if hasattr(found, "compute") else found
    found = found.to_list() if hasattr(found, "to_list") else found.to_pylist()
    return [None if text != text else text for text in found]


@pytest.mark.parametrize("kind", SERIES)
def test_a_column_of_texts_gives_the_same_kind(kind: str):
    given = SERIES[kind]()
    rewritten = curation.rewrite(given, lowercase=True)
    assert type(rewritten) is type(given) and values(rewritten) == ["one", "one", "two words here", None]
    kept = curation.exact_dedup(rewritten)
    assert type(kept) is type(given) and values(kept) == ["one", "two words here", None]
    assert getattr(kept, "name", "body") == "body"
    assert getattr(given, "type", 0) == getattr(kept, "type", 0)
    if kind == "pandas":
        assert kept.index.tolist() == [5, 7, 8] and kept.dtype == given.dtype


@pytest.mark.parametrize("kind", SERIES)
def test_a_column_gives_a_frame_where_columns_are_added(kind: str):
    given = SERIES[kind]()
    found = curation.explain(given, {"words": {"min": 2}}, text_column="body")
    frame = curation.filter(curation.measure(given, ["words"]), {"words": {"min": 2}})
    assert type(found).__module__.partition(".")[0] == type(given).__module__.partition(".")[0]
    assert [*getattr(found, "column_names", found.columns)] == ["body", "words", "kept", "reason", "value", "bound"]
    assert values(frame["text"]) == ["two words here"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_the_duplicates_of_a_column(kind: str):
    given = SERIES[kind]()
    found = curation.exact_dedup(given, compare="lowercase", details=True)
    assert type(found.kept) is type(given) and values(found.kept) == ["One", "two words here", None]
    assert repr(found) == "<duplicates: 1 document in 1 group>" and values(found.pairs["kept_text"]) == ["One"]


def test_a_row_of_a_frame_is_no_column_of_texts():
    row = pd.DataFrame({"id": ["a"], "text": ["some words"]}).iloc[0]
    with pytest.raises(TypeError, match=r"got a row of a frame, with the label 'text'. Give frame.iloc\[\[NUMBER\]\]"):
        curation.explain(row, "gopher")


def test_rules_read_measures_of_another_table():
    class Foreign:
        """A table as polars and DuckDB have it: `columns` has the names, and an Arrow stream has the data."""

        columns = ("words", "bytes")

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"words": [3, 80], "bytes": [9, 400]}).__arrow_c_stream__(requested_schema)

    assert curation.decide(Foreign(), curation.Rule(measure="words", min=50)).kept.tolist() == [False, True]
    assert curation.rule_effects(Foreign(), curation.Rule(measure="words", min=50)).removed == 1
