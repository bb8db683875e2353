# SPDX-License-Identifier: Apache-2.0
"""What the inputs of a run did not give: warnings for its report, from the counts of what was read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from curation.errors import nearest
from curation.reading import field_names, shown
from curation.reading.inputs import ENCODED, AnyInput, entries_by_name
from curation.reading.source_files import Slice
from curation.running.ledger import SliceRecord

REJECTED_SHARE = REPAIRED_SHARE = 0.1  # of the records, of an input's documents: from here on the report warns
NAMED_FILES = 5

Read = tuple[Slice, SliceRecord]


def shortfalls(
    documents: Mapping[str, int], entries: Sequence[AnyInput], slices: Sequence[Slice], records: Sequence[SliceRecord]
) -> list[str]:
    """That much of the input is no documents, or that parts of it are not there."""
    read, rejected = documents["read"], documents["rejected"]
    found = []
    if rejected > read * REJECTED_SHARE:
        found.append(f"{rejected:,} of {read:,} records ({rejected / read:.0%}) were rejected; rejected.jsonl says why")
    pairs = list(zip(slices, records, strict=True))
    found += _damaged(pairs)
    for name in entries_by_name(entries):
        own = [(piece, record) for piece, record in pairs if piece.source == name]
        found += [*_empty_columns(name, own), *_repaired(name, own)]
    return found


def _damaged(pairs: Sequence[Read]) -> Iterator[str]:
    """Each kind of damage once, with the first files that have it; kinds differ in more than numbers."""
    kinds: dict[str, dict[str, str]] = {}  # -> file -> error
    for piece, record in pairs:
        for number, error in record.damaged:
            file = piece.parts[number].file
            kinds.setdefault(re.sub(r"\d+", "", error), {}).setdefault(file.label or shown(file.path), error)
    for files in kinds.values():
        names = ", ".join(list(files)[:NAMED_FILES]) + (", ..." if len(files) > NAMED_FILES else "")
        yield (
            f"{len(files):,} {'file was' if len(files) == 1 else 'files were'} not read to the end, and what stood "
            f"behind is lost: {names} ({next(iter(files.values()))}); see rejected.jsonl"
        )


def _empty_columns(name: str, own: Sequence[Read]) -> Iterator[str]:
    """A carried column that no document has: perhaps a misspelt one, since JSON Lines have no header to ask."""
    filled = {column for _, record in own for column in record.filled}
    if not any(record.rows - record.rejected - record.unsampled for _, record in own):
        return
    for column in own[0][0].columns:
        if column not in filled:
            known = field_names(own[0][0].parts[0].file)
            hint = nearest(column, known) if known and column not in known else ""
            yield f"input {name!r}: column {column!r} is null in every document" + (hint if "did you" in hint else "")


def _repaired(name: str, own: Sequence[Read]) -> Iterator[str]:
    documents = sum(record.rows - record.rejected for _, record in own)
    repaired = sum(record.repaired for _, record in own)
    if repaired and repaired >= documents * REPAIRED_SHARE:
        encoded = any(part.file.format in ENCODED for piece, _ in own for part in piece.parts)
        hint = ". If the files are in another encoding than UTF-8, set encoding:, such as latin-1" if encoded else ""
        yield (
            f"input {name!r}: bytes that are no text became U+FFFD in {repaired:,} of {documents:,} documents "
            f"({repaired / documents:.0%}){hint}"
        )
