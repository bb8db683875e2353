# SPDX-License-Identifier: Apache-2.0
"""Warnings about columns without values: carried ones, and texts."""

from __future__ import annotations

from collections.abc import Iterator

from curation.errors import near_or_nothing
from curation.reading.formats import format_of
from curation.reading.source_files import SourceFile

MIN_EMPTY_SHARE = 0.01


def null_column(name: str, column: str, file: SourceFile, of: str) -> str:
    """Return the warning about a carried column of an input that every `of` ("document", "sampled document") lacks.

    `file` is one of the input's; its first records show which field was meant.
    """
    known, field = format_of(file).record_fields(file), file.carried[column]
    from_field = f", from the field {field!r}," if field != column else ""
    hint = near_or_nothing(field, known) if field not in known else ""
    return f"input {name!r}: column {column!r}{from_field} is null in every {of}{hint}"


def without_text(name: str, empty: int, documents: int, of: str) -> Iterator[str]:
    """Yield the warning about an input with `empty` texts of no byte, where they are MIN_EMPTY_SHARE or more."""
    if empty and empty >= documents * MIN_EMPTY_SHARE:
        yield (
            f"input {name!r}: {empty:,} of {documents:,} {of}s have no text ({empty / documents:.0%}). If another "
            "column has it, set text_column of the input"
        )
