# SPDX-License-Identifier: Apache-2.0
"""The rows of CSV and TSV in slow plain Python: each row is parsed anew with every line that it may have."""

import csv
import re
from collections.abc import Iterator
from typing import Any

from curation.reading.formats.csv_rows import UNCLOSED

LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
LARGE, LARGE_OR_UNCLOSED = "large", "large or unclosed"


class _OpenError(Exception):
    pass


def read_rows(text: str, delimiter: str, most: int, quote: str = '"') -> Iterator[tuple[int, list[str], str]]:
    """(0-based line, values, error) of each row that is not blank; a row has at most `most` characters."""
    lines = LINE.findall(text)
    first = 0
    while first < len(lines):
        count, values, error = _read_row(lines[first:], most, delimiter=delimiter, quotechar=quote)
        if values or error:
            yield first, values, error
        first += count


def _read_row(lines: list[str], most: int, **dialect: str) -> tuple[int, list[str], str]:
    """How many of the lines the first row takes, its values, its error."""
    for count in range(1, len(lines) + 1):
        row = lines[:count]
        if len("".join(row)) > most:
            return 1, [], LARGE if count == 1 else LARGE_OR_UNCLOSED
        try:
            return count, _parse(row, **dialect), ""
        except _OpenError:
            continue
        except csv.Error:
            break
    return 1, [], UNCLOSED


def _parse(row: list[str], **dialect: Any) -> list[str]:
    """csv.Error for text behind a closing quote, _OpenError where a quoted field is still open."""

    def given() -> Iterator[str]:
        yield from row
        raise _OpenError

    return next(csv.reader(given(), strict=True, **dialect))
