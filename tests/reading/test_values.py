# SPDX-License-Identifier: Apache-2.0
"""Values keep the digits and the bytes of the file, or their record is rejected."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curation.reading.lines import parse_record
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
