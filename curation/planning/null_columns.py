# SPDX-License-Identifier: Apache-2.0
"""The warning about a carried column without values."""

from __future__ import annotations

from curation.errors import near_or_nothing
from curation.reading.formats import format_of
from curation.reading.source_files import SourceFile


def null_column(name: str, column: str, file: SourceFile, of: str) -> str:
    """Return the warning about a carried column of an input that every `of` ("document", "sampled document") lacks.

    `file` is one of the input's; its first records show which field was meant.
    """
    known, field = format_of(file).record_fields(file), file.carried[column]
    from_field = f", from the field {field!r}," if field != column else ""
    hint = near_or_nothing(field, known) if field not in known else ""
    return f"input {name!r}: column {column!r}{from_field} is null in every {of}{hint}"
