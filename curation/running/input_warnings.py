# SPDX-License-Identifier: Apache-2.0
"""Warnings of the report about inputs: rejected records, truncated files, empty columns, nothing kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from curation.errors import counted, nearest
from curation.reading import field_names, shown
from curation.reading.inputs import ENCODED, AnyInput, entries_by_name
from curation.reading.source_files import Slice
from curation.running.ledger import SliceRecord
from curation.stages.outcome import StageCount

REJECTED_SHARE = REPAIRED_SHARE = 0.1  # of the records, of an input's documents: from here on the report warns
NAMED_FILES = 5
Read = tuple[Slice, SliceRecord]
NOTHING = "nothing is kept: "
SEEN_REJECTIONS = 1000  # the first ones are of the kind that all have
HINTS = (
    ("text_column", ""),  # which the error itself asks for
    ("max_document_bytes", "; raise it"),
    ("expected a string", "; set text_column: of the input to a field with text"),
    ("is null", "; set text_column: of the input to a field with text"),
    ("", "; rejected.jsonl has every error"),
)


def warn_of_inputs(
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


def nothing_kept(report: Mapping[str, Any]) -> str:
    """Of the content of `report.json` the sentence that says why no document is kept; empty where some are."""
    if report["documents"]["kept"]:
        return ""
    return next((warning for warning in report["warnings"] if warning.startswith(NOTHING)), NOTHING.rstrip(": "))


def emptiness(
    documents: Mapping[str, int], stages: Sequence[StageCount], slices: Sequence[Slice],
    records: Sequence[SliceRecord], rejected: Path,
) -> list[str]:  # fmt: skip
    """The sentence for `nothing_kept`, of what became of most records; nothing where documents are kept. `rejected` is
    the path of `rejected.jsonl`."""
    if documents["kept"]:
        return []
    read, lost = documents["read"], max(documents["removed"], documents["rejected"])
    if not read:
        unsampled = sum(record.unsampled for record in records)
        passed = f"sample: passed over all {counted(unsampled, 'record')}; raise it"
        return [NOTHING + (passed if unsampled else "the input has no documents")]
    cause = _removal(stages) if lost == documents["removed"] else _rejection(slices, rejected)
    return [f"{NOTHING}{lost:,} of {read:,} records were {cause}"]


def _removal(stages: Sequence[StageCount]) -> str:
    most = max(stages, key=lambda stage: stage.removed)
    number, reason = most.removed, max(most.reasons, key=lambda name: most.reasons[name])
    return f"removed, most of them by {most.name} ({number:,} of {most.documents_in:,}, for {reason})"


def _rejection(slices: Sequence[Slice], rejected: Path) -> str:
    with open(rejected, "rb") as file:
        seen = [orjson.loads(line) for line in islice(file, SEEN_REJECTIONS)]
    kinds = Counter(_kind(record) for record in seen)
    [(most, _)] = kinds.most_common(1)
    record = next(record for record in seen if _kind(record) == most)
    error = record["error"]
    if "is not valid " in error:
        formats = {part.file.format for piece in slices if piece.source == record["source"] for part in piece.parts}
        hint = "; convert the input to UTF-8, which its format asks for"
        if formats & {*ENCODED}:
            hint = "; set encoding: of the input to that of its files, such as latin-1"
    else:
        hint = next(hint for mark, hint in HINTS if mark in error)
    return f"rejected, most of them since {error}{hint}"


def _kind(record: Mapping[str, Any]) -> tuple[str, str]:
    """Errors of a kind differ in numbers alone."""
    return record["source"], re.sub(r"\d+", "", record["error"])
