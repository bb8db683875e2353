# SPDX-License-Identifier: Apache-2.0
"""Kept parts joined to documents, however `documents/` and `cleaned/` are cut."""

import msgspec
import pyarrow as pa
import pytest

from curation.record.documents import document_schema
from curation.running.phases.joining import Joiner

# x twice, as two records of one id; the second copy of the input; an id of an input that is not split
ROWS = [
    (0, "x#0", "a", "A", "u0", "\n"),
    (1, "x#1", "a", "B", "u0", "--"),
    (3, "x#3", "a", "C", "u0", ""),
    (4, "x#0", "a", "D", "u1", "\n"),
    (6, "y#z#1", "a", "E", "u2", "\n"),
    (9, "a/8#1", "a", "F", "u3", ""),
    (8, "a/8#0", "a", "G", "u3", "\t"),
    (9, "a/8#1", "a", "H", "u3", ""),
    (10, "x#3", "b", "I", "u4", None),
    (11, "x#4", "b", "", "u5", None),
]
JOINED = [
    (0, "x", "a", "A\nB--C", "u0"),
    (4, "x", "a", "D", "u1"),
    (5, "y#z", "a", "E", "u2"),
    (8, "a/8", "a", "F", "u3"),
    (8, "a/8", "a", "G\tH", "u3"),
    (10, "x#3", "b", "I", "u4"),
    (11, "x#4", "b", "", "u5"),
]


def joined(tables: list[pa.Table], start: int, rows: int, separator: object = msgspec.UNSET) -> list[tuple]:
    found = Joiner(["a"], separator).join(iter(tables), start, rows)
    return [tuple(row.values()) for table in found for row in table.to_pylist()]


@pytest.mark.parametrize("size", [1, 2, 3, len(ROWS)])
def test_documents_are_joined_wherever_tables_and_files_are_cut(size: int):
    schema = document_schema(["url", "separator"])
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in ROWS], schema)
    tables = [table.slice(first, size) for first in range(0, len(table), size)]
    assert joined(tables, 0, len(ROWS)) == JOINED
    assert [row[3] for row in joined(tables, 0, len(ROWS), " | ")][:2] == ["A | B | C", "D"]
    for rows in (1, 2, 3, 7):
        found = []
        for first in range(0, len(ROWS), rows):  # as files of `cleaned/` begin: with the row before, to the end
            before = table.slice(max(first - 1, 0))
            pieces = [before.slice(at, size) for at in range(0, len(before), size)]
            found += joined(pieces, int(first > 0), rows)
        assert found == JOINED
