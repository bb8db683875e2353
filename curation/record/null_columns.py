# SPDX-License-Identifier: Apache-2.0
"""Warnings about carried columns without values, and about blank texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from curation.base.errors import InputError, counted, near_or_nothing
from curation.reading.formats import format_of
from curation.reading.source_files import SourceFile
from curation.reading.streams import DamageError

MIN_BLANK_SHARE = 0.01
SHOWN_COLUMNS = 20  # most warnings per input: for each, the column's name is compared with those of all fields


def null_columns(name: str, columns: Sequence[str], file: SourceFile, of: str) -> Iterator[str]:
    """Yield a warning about each carried column of an input that is null in every `of` ("document", "sampled
    document"). There are at most SHOWN_COLUMNS warnings, and one about the other columns.

    `file` is one of the input's; its first records show which field was meant.
    """
    known, fields = _known(file) if columns else [], file.carried
    for column in columns[:SHOWN_COLUMNS]:
        field = fields[column]
        from_field = f", from the field {field!r}," if field != column else ""
        hint = near_or_nothing(field, known) if field not in known else ""
        yield f"input {name!r}: column {column!r}{from_field} is null in every {of}{hint}"
    if others := columns[SHOWN_COLUMNS:]:
        yield f"input {name!r}: {counted(len(others), 'more column')} are null in every {of}, such as {others[0]!r}"


def _known(file: SourceFile) -> list[str]:
    """Return the fields that a file has; none if it cannot be read any more."""
    try:
        return format_of(file).columns(file)
    except (InputError, OSError, DamageError):
        return []


def without_text(name: str, blank: int, documents: int, of: str) -> Iterator[str]:
    """Yield a warning about an input if the share of `blank` texts, which have no visible character, is MIN_BLANK_SHARE
    or more."""
    if blank and blank >= documents * MIN_BLANK_SHARE:
        yield (
            f"input {name!r}: {blank:,} of {documents:,} {of}s have no visible character ({blank / documents:.0%}) and "
            "are rejected. If another column has the text, set text_column of the input. To keep them, set keep_blank: "
            "true"
        )
