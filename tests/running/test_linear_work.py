# SPDX-License-Identifier: Apache-2.0
"""The work of a recipe grows with its columns, rules and stages, not with their square. Work is counted: comparisons of
names, calls of Python functions, files that are opened."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import curation
from curation.base.contract import ROW
from curation.base.system.files import make_folder, numbered_path
from curation.reading import lines
from curation.reading.formats.base import _check_names
from curation.reading.formats.delimited import _Batch
from curation.reading.formats.tabular import _as_documents
from curation.reading.source_files import SourceFile
from curation.recipes.exports import check_columns
from curation.recipes.rule_settings import bound_paths
from curation.record import measured_rows, null_columns
from curation.record.documents import in_schema
from curation.record.ledger import SliceRecord, _add
from curation.record.measured_rows import OTHERS, STAGE, VALUES, ReachedRows, WantedRows, read_rows
from curation.record.partitions import IpcFile
from curation.rules.decide import expand_rules
from curation.running.planning import survey
from curation.running.planning.plan import _check_columns
from curation.stages.base import stage_names
from curation.stages.rows.lines import Judged, Lines

LONGEST = 2.3  # work for twice as many; the square has 4


class Work:
    """The work so far."""

    done = 0


class Name(str):
    """A name that counts its comparisons with other names."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Work.done += 1
        return str.__eq__(self, other)


class Wide:
    """A table that counts the names that it lists."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.column = table, table.column

    @property
    def column_names(self) -> list[str]:
        Work.done += self.table.num_columns
        return list(self.table.column_names)


@contextmanager
def counted_calls() -> Iterator[None]:
    """Count the calls of Python functions, in threads that begin inside too."""

    def count(frame: Any, event: str, argument: object) -> None:
        Work.done += event == "call"

    sys.setprofile(count)
    threading.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def names(count: int) -> list[str]:
    return [Name(f"name{number}") for number in range(count)]


def file_of(count: int, **settings: Any) -> SourceFile:
    return SourceFile(
        path="a.csv", source="a", format="csv", bytes=1, modified_ns=0, text_column=Name("text"), id_column=Name("id"),
        columns=names(count), **settings,
    )  # fmt: skip


def name_stages(count: int) -> None:
    stage_names([("", kind) for kind in names(count)])


def check_a_header(count: int) -> None:
    _check_names([Name("text"), *names(count)], file_of(count))


def place_fields(count: int) -> None:
    _Batch(file_of(count), [Name("text"), *names(count)])


def convert_a_table(count: int) -> None:
    values = pa.array(["a"], pa.large_string())
    schema = SimpleNamespace(names=[Name("text"), *names(count)])
    _as_documents(SimpleNamespace(schema=schema, num_rows=1, column=lambda place: values), file_of(count), 0, 0)


def write_columns(count: int) -> None:
    table = pa.table({name: ["a"] for name in names(count)})
    in_schema(Wide(table), table.schema)  # type: ignore[arg-type]  # as a table


def export_columns(count: int) -> None:
    check_columns(names(count), True, names(count), ())


def add_records(count: int) -> None:
    _add(SliceRecord(filled=names(count)), SliceRecord(filled=names(count)))


def count_cut_units(count: int) -> None:
    rules = [SimpleNamespace(name=name) for name in names(count)]
    Lines._details(Judged(rules, {"characters": np.zeros(1, np.int64)}, {}, np.zeros(1, np.int16)), np.ones(1, bool), 1)  # type: ignore[arg-type]  # only names


def read_a_recipe(count: int) -> None:
    stages = [{"filter": {"rules": {"words": {"min": 1 + number}}}} for number in range(count)]
    with counted_calls():
        curation.convert_recipe({"stages": stages})


def follow_columns(count: int) -> None:
    recipe = curation.Recipe(stages=[curation.Language(column=f"language{number}") for number in range(count)])
    with counted_calls():
        _check_columns(recipe)


def name_bounds(count: int) -> None:
    stage = curation.Filter(rules=[curation.Rule(measure="words", max=1000 + number) for number in range(count)])
    with counted_calls():
        bound_paths("filter", stage, expand_rules(stage.rules))


WORK = [
    name_stages, check_a_header, place_fields, convert_a_table, write_columns, export_columns, add_records,
    count_cut_units, read_a_recipe, follow_columns, name_bounds,
]  # fmt: skip


def work_of(function: Callable[[int], None], count: int) -> int:
    Work.done = 0
    function(count)
    return Work.done


def test_twice_as_many_take_twice_the_work() -> None:
    for function in WORK:
        function(2)  # imports
        small, large = (work_of(function, count) for count in (30, 60))
        assert large <= LONGEST * max(small, 30), function.__name__


def test_the_rows_of_all_filters_are_read_at_once(tmp_path, monkeypatch) -> None:
    make_folder(numbered_path(tmp_path, 0, VALUES).parent)
    schema = pa.schema([(STAGE, pa.int32()), (ROW, pa.int64()), (OTHERS, pa.bool_()), ("words", pa.int32())])
    for number in range(2):
        with IpcFile(numbered_path(tmp_path, number, VALUES), schema) as file:
            for start in (0, 10):  # two frames
                for stage in range(3):
                    rows = np.arange(start, start + 4)
                    columns = [
                        np.full(4, stage, np.int32),
                        rows,
                        np.zeros(4, bool),
                        (rows + 100 * stage).astype(np.int32),
                    ]
                    file.write(pa.table(columns, schema=schema))
    opened: list[Any] = []
    monkeypatch.setattr(
        measured_rows,
        "open_partition",
        lambda path, open_it=measured_rows.open_partition: (opened.append(path), open_it(path))[1],
    )
    reached = [ReachedRows(stage, tmp_path, np.array([8, 8])) for stage in range(3)]
    found = read_rows([WantedRows(each, [(1, 12), (0, 9), (0, 1)], np.array([2, 5, 11])) for each in reached])
    assert len(opened) == 2
    for stage, (is_there, table) in enumerate(found):
        assert is_there.tolist() == [True, False, True]
        assert table.column(ROW).to_pylist() == [12, 1, 2, 11, 3]
        assert table.column("words").to_pylist() == [row + 100 * stage for row in (12, 1, 2, 11, 3)]


def test_many_empty_columns_are_a_few_warnings(monkeypatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(null_columns, "format_of", lambda file: SimpleNamespace(columns=lambda file: ["name"]))
    monkeypatch.setattr(null_columns, "near_or_nothing", lambda name, known: compared.append(name) or "")
    found = [*null_columns.null_columns("web", names(200), file_of(200), "document")]
    assert len(found) == len(compared) + 1 == null_columns.SHOWN_COLUMNS + 1
    assert found[-1] == "input 'web': 180 more columns are null in every document, such as 'name20'"


def test_lines_with_many_carried_columns_are_parsed_once(monkeypatch) -> None:
    record = {"text": "a", "id": 7, **{f"name{number}": number for number in range(99)}, "name4": None, "name5": [1]}
    data = json.dumps(record).encode() + b'\n\n{"text": 1}\n{"text": "b"}\n'
    parsed: list[int] = []
    parse = lines._parse
    monkeypatch.setattr(lines, "_parse", lambda *arguments: (parsed.append(1), parse(*arguments))[1])
    by_count = []
    for most in (1000, lines.MAX_KERNEL_COLUMNS):
        monkeypatch.setattr(lines, "MAX_KERNEL_COLUMNS", most)
        parsed.clear()
        by_count.append(lines.parse_lines(np.frombuffer(data, np.uint8), 4, 0, file_of(100), 0, 0))
    assert len(parsed) == 1
    assert by_count[0] == by_count[1]
    assert by_count[0].table.num_rows == 2


def test_a_plan_asks_for_the_kind_of_each_file_a_few_times(tmp_path, monkeypatch) -> None:
    asked: list[str] = []
    kind_of = survey.kind_of
    monkeypatch.setattr(survey, "kind_of", lambda file: (asked.append(file.path), kind_of(file))[1])
    counts = []
    for count in (10, 20):
        inputs = [{"path": str(tmp_path / f"{number}.jsonl"), "name": f"n{number}"} for number in range(count)]
        for entry in inputs:
            (tmp_path / entry["path"]).write_text('{"text": "some words of a text"}\n')
        asked.clear()
        found = curation.estimate({"input": inputs, "stages": [], "output": {"formats": []}})
        assert (found.documents, len(found.kinds)) == (count, count)
        counts.append(len(asked))
    assert counts[1] <= LONGEST * counts[0]


def run_with(shape: str, count: int, folder) -> int:
    """The calls of a run with so many rules, or filters of one rule."""
    path = folder / "a.parquet"
    pa.parquet.write_table(pa.table({"text": ["some words of a text"] * 20}), path)
    rules = [{"words": {"max": 1000 + number}} for number in range(count)]
    stages = [{"filter": {"rules": own}} for own in ([rules] if shape == "rules" else rules)]
    content = {"input": [{"path": str(path)}], "stages": stages, "output": {"formats": []}}
    Work.done = 0
    with counted_calls():
        recipe = curation.convert_recipe(content)
        curation.run(recipe, folder / f"{shape}-{count}", engine="cpu", workers=1, progress=False)
    return Work.done


@pytest.mark.slow("the calls of a run grow with its rules and stages, not with their square")
@pytest.mark.parametrize("shape", ["rules", "stages"])
def test_calls_of_a_run(shape, tmp_path) -> None:
    run_with(shape, 2, tmp_path)  # imports
    base, small, large = (run_with(shape, count, tmp_path) for count in (10, 160, 310))
    assert large - small <= 1.3 * (small - base)
