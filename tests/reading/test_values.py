# SPDX-License-Identifier: Apache-2.0
"""Values keep the digits and the bytes of the file, or their record is rejected."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.reading.inputs import Input
from curation.reading.lines import parse_record
from curation.recipes.recipe import Output, Recipe
from curation.running.run import run
from tests.reading.test_formats import read
from tests.reading.test_jsonl import source_file

LONG = {  # a JSON value, as a column
    "18446744073709551615": "18446744073709551615",
    "18446744073709551616": "18446744073709551616",
    "-9223372036854775808": "-9223372036854775808",
    "-9223372036854775809": "-9223372036854775809",
    "[1, 80241446968629135069, 1e20, 0.5, -0]": "[1,80241446968629135069,1e+20,0.5,0]",
    '{"a": {"b": 12345678901234567890123}, "c": "1e19"}': '{"a":{"b":12345678901234567890123},"c":"1e19"}',
    "9" * 300: "9" * 300,
    "1e19": "1e+19",
    "123456789012345678901.5": "1.2345678901234568e+20",
    "0.1234567890123456789": "0.12345678901234568",
    '"18446744073709551616"': "18446744073709551616",
}


def test_integers_beyond_64_bits_keep_their_digits(tmp_path: Path):
    file = tmp_path / "a.jsonl"
    file.touch()
    asked = source_file(file, columns={"n": "n", "deep": "o.n"})
    for value, written in LONG.items():
        record = f'{{"text": "a", "n": {value}, "o": {{"n": {value}}}, "id": "x"}}'
        assert parse_record(record.encode(), asked) == ("x", "a", written, written), value
    for digits in list(LONG)[:4]:
        assert parse_record(f'{{"text": "a", "id": {digits}}}'.encode(), asked)[0] == digits


def test_bytes_of_tables_that_are_utf8_are_texts(tmp_path: Path):
    values = [b"alpha", "é".encode(), b"\xff", None, b""]
    for kind in (pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())):
        column = pa.array(values, pa.binary()).cast(kind)
        ids = pa.array([b"a", b"b", b"c", b"d", b"\xfe"], pa.binary())
        table = pa.table({"id": ids, "text": column, "more": pa.array([b"x", b"\xfe", None, None, None], pa.binary())})
        pq.write_table(table, tmp_path / "a.parquet")
        found = read(tmp_path / "a.parquet", columns=["more"])
        assert found["text"] == ["alpha"] and found["id"] == ["a"] and found["more"] == ["x"]
        assert [(entry.row, entry.error) for entry in found["rejected"]] == [
            (1, "column more is not valid UTF-8"), (2, "text is not valid UTF-8"), (3, "text is null"),
            (4, "id is not valid UTF-8"),
        ]  # fmt: skip


OUTPUT = Output(formats=[])
TYPED = {name: {"field": name, "type": kind} for name, kind in (("n", "integer"), ("f", "number"), ("b", "boolean"))}


def test_declared_types_reach_documents(tmp_path: Path):
    """Other values are rejected with their line; without a type, a value stays the string of the file."""
    rows = [("007", "1.5", "true"), ("x", "1", "true"), ("", "", ""), ("-5", "1e3", "False"), ("9" * 20, "1", "true"),
            ("1", "1e999", "true"), ("1", "1", "yes")]  # fmt: skip
    columns = dict(zip("nfb", map(list, zip(*rows, strict=True)), strict=True))
    table = pa.table({"text": [f"t{k}" for k in range(len(rows))]} | columns)
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    lines = [",".join(row.values()) for row in table.to_pylist()]
    (tmp_path / "a.csv").write_text("\n".join(["text,n,f,b", *lines]) + "\n")
    for name, first in (("a.parquet", 0), ("a.jsonl", 0), ("a.csv", 1)):
        entry = Input(str(tmp_path / name), columns=TYPED)
        run(Recipe(input=[entry], stages=[], output=OUTPUT), tmp_path / f"out-{name}", engine="cpu")
        found = pq.read_table(tmp_path / f"out-{name}" / "documents")
        assert [str(found.schema.field(column).type) for column in "nfb"] == ["int64", "double", "bool"]
        kept = found.select(["text", "n", "f", "b"]).to_pylist()
        expected = [("t0", 7, 1.5, True), ("t2", None, None, None), ("t3", -5, 1e3, False)]
        assert [tuple(row.values()) for row in kept] == expected
        rejected = [json.loads(line) for line in (tmp_path / f"out-{name}" / "rejected.jsonl").read_text().splitlines()]
        assert [entry["error"] for entry in rejected] == [
            "column n is 'x', expected the type integer",
            f"column n is {'9' * 20}, too large for the type integer. Leave its type out",
            "column f is 1e999, too large for the type number. Leave its type out",
            "column b is 'yes', expected the type boolean",
        ]
        assert [entry["line"] - first for entry in rejected] == [2, 5, 6, 7]
    two = [Input(str(tmp_path / "a.csv"), columns=TYPED), Input(str(tmp_path / "a.jsonl"), columns=["n"])]
    with pytest.raises(ValueError, match="has 'n' with the type string, and another input with the type integer"):
        Recipe(input=two, stages=[], output=OUTPUT)
