# SPDX-License-Identifier: Apache-2.0
"""Tables as files have them: small strings, nulls in place of NaN, row groups below a bound, statistics of numbers."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base import parquet
from curation.base.errors import InputError
from curation.base.parquet import file_options, file_schema, file_tables, in_file_types, write_table
from curation.record.tables import TablePart

TYPES = pa.schema(
    [
        ("doc", pa.int64()), ("id", pa.large_string()), ("source", pa.string()), ("text", pa.large_string()),
        ("half", pa.float16()), ("score", pa.float64()), ("flag", pa.bool_()), ("vector", pa.list_(pa.int8(), 2)),
        ("raw", pa.large_binary()),
    ]
)  # fmt: skip
ROWS: dict[str, list[object]] = {
    "doc": [7, 8, 9], "id": ["a", None, "ç"], "source": ["s", "s", "t"], "text": ["", "ä 漢", None],
    "half": [np.float16(0.5), np.float16("nan"), None], "score": [math.nan, 2.5, None], "flag": [True, None, False],
    "vector": [[1, 2], None, [3, 4]], "raw": [b"\xff", b"", None],
}  # fmt: skip
WITHOUT_NAN = ROWS | {"half": [0.5, None, None], "score": [None, 2.5, None]}
TABLE = pa.table(ROWS, TYPES)


def test_files_have_small_strings_and_nulls_in_place_of_nan(tmp_path: Path):
    write_table(tmp_path / "a.parquet", TABLE, file_options(TYPES))
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.to_pydict() == WITHOUT_NAN
    kinds = {field.name: str(field.type) for field in found.schema}
    assert [kinds[name] for name in ("id", "source", "text", "raw", "half")] == [
        "string", "string", "string", "binary", "halffloat",
    ]  # fmt: skip
    assert found.schema == file_schema(TYPES) == file_schema(file_schema(TYPES))


def test_parts_of_larger_arrays_are_taken_as_they_are():
    whole = pa.concat_tables([TABLE, TABLE.slice(1), TABLE.slice(0, 0)])
    for start, stop in ((0, 5), (1, 4), (2, 2)):
        part = whole.slice(start, stop - start)
        expected = in_file_types(whole).slice(start, stop - start)
        assert in_file_types(part).to_pydict() == expected.to_pydict()
    column = whole.combine_chunks().column("text").chunk(0)
    (changed,) = file_tables(pa.table({"text": column[1:3]}))
    assert changed.column(0).chunk(0).buffers()[2].address == column.buffers()[2].address  # no text is copied


def test_a_text_far_inside_a_larger_array_is_taken(tmp_path: Path):
    """Its place needs 64 bits. The file has a hole of 2 GiB."""
    path, far = tmp_path / "hole", 2**31 + 5
    with open(path, "wb") as file:
        file.seek(far)
        file.write(b"far away")
    with pa.memory_map(str(path)) as mapped:
        offsets = pa.py_buffer(np.array([far, far + 3, far + 3, far + 8], np.int64))
        texts = pa.Array.from_buffers(pa.large_string(), 3, [None, offsets, mapped.read_buffer()])
        assert in_file_types(pa.table({"text": texts})).column("text").to_pylist() == ["far", "", " away"]


def test_row_groups_stay_below_a_bound_in_each_column_of_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet, "GROUP_BYTES", 1000)
    urls = ["u" * size for size in (300, 300, 300, 300, 2000, 10, 0, 900, 200)]
    table = pa.table({"doc": range(9), "text": ["x"] * 9, "url": urls}, file_schema(TYPES.empty_table().select(
        ["doc", "text"]).schema).append(pa.field("url", pa.large_string())))  # fmt: skip
    write_table(tmp_path / "a.parquet", table, file_options(table.schema))
    file = pq.ParquetFile(tmp_path / "a.parquet")
    sizes = [
        sum(map(len, file.read_row_group(group).column("url").to_pylist())) for group in range(file.num_row_groups)
    ]
    assert file.read().column("url").to_pylist() == urls
    assert all(size <= 1000 for size in sizes if size != 2000) and 2000 in sizes and 3 < len(sizes) < 9


def test_a_string_that_no_reader_holds_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet, "LARGEST_STRING", 100)
    table = pa.table({"id": ["a", "b"], "text": pa.array(["x" * 100, "y" * 101], pa.large_string())})
    with pytest.raises(InputError) as error:
        [*file_tables(table)]
    assert str(error.value) == (
        "column 'text' of document 'b' has a value of 101 bytes, and a Parquet file takes at most 100. Set "
        "max_document_bytes of the input: records above it are rejected"
    )
    assert len([*file_tables(table.slice(0, 1))]) == 1


def test_numbers_and_sources_have_statistics_and_texts_have_none(tmp_path: Path):
    write_table(tmp_path / "a.parquet", TABLE, file_options(TYPES))
    group = pq.read_metadata(tmp_path / "a.parquet").row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    found = {column.path_in_schema: column.statistics for column in columns if column.is_stats_set}
    assert sorted(found) == ["doc", "half", "score", "source"]
    assert (found["doc"].min, found["doc"].max) == (7, 9) and (found["source"].min, found["source"].max) == ("s", "t")
    assert (found["score"].min, found["score"].max, found["score"].null_count) == (2.5, 2.5, 2)


def test_files_of_earlier_versions_are_read_in_the_types_of_this_one(tmp_path: Path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    rows = TablePart(tmp_path / "a.parquet").read(0, ["id", "score"])
    assert rows.schema == pa.schema([("id", pa.string()), ("score", pa.float64())])
    assert rows.to_pydict() == {name: WITHOUT_NAN[name] for name in ("id", "score")}
