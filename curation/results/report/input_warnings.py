# SPDX-License-Identifier: Apache-2.0
"""Warnings of the report about inputs: rejected records, truncated files, repeated ids, empty columns, no kept
documents."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from curation.base.errors import InputError, counted
from curation.base.records import LARGEST_STRING
from curation.reading import shown
from curation.reading.documents import NULL_TEXT, too_large
from curation.reading.formats import format_of
from curation.reading.formats.csv_rows import OR_UNCLOSED, UNCLOSED
from curation.reading.inputs import AnyInput, entries_by_name
from curation.reading.other_records import OtherCounts, add_counts, not_pages, other_warnings
from curation.reading.source_files import Slice, SourceFile
from curation.record.ledger import SliceRecord
from curation.record.null_columns import null_columns, without_text
from curation.record.repeated_ids import IdSample
from curation.stages.outcome import StageCount

MAX_REJECTED_SHARE = 0.1  # share of all records, above which a warning is given
MAX_REPAIRED_SHARE = 0.1  # share of the documents of an input, from which a warning is given
MAX_NAMED_FILES = 5
Read = tuple[Slice, SliceRecord]
NOTHING = "nothing is kept: "
MAX_SEEN_REJECTIONS = 1000  # rejections that are read to find the most frequent kind
NOT_VALID = re.compile(r"(?:id|text|column) is not valid [\w-]+|not valid JSON: str is not valid UTF-8.*")
SEE_ALL = "; rejected.jsonl has every error"


def warn_of_inputs(
    documents: Mapping[str, int], entries: Sequence[AnyInput], slices: Sequence[Slice], records: Sequence[SliceRecord],
    rejected: Path,
) -> list[str]:  # fmt: skip
    """Return the input warnings of the report: rejected records, truncated files, repeated ids, empty columns and
    texts, repaired text, further records of web archives.

    `documents` has the counts of the run; `slices` and `records` are those of `SliceTotals`; `rejected` is
    `rejected.jsonl`.
    """
    # Without the additional parts of split documents
    read = documents["read"] - sum(record.split for record in records)
    count = documents["rejected"] - sum(record.blank for record in records)  # blank records have a separate warning
    warnings = []
    if count > read * MAX_REJECTED_SHARE:
        start = f"{count:,} of {read:,} records ({count / read:.0%}) were rejected"
        cause = f", {_rejection(slices, rejected).partition(', ')[2]}" if documents["kept"] else ""
        warnings.append(f"{start}; rejected.jsonl has the reasons" if not cause else f"{start}{cause}")
    pairs = list(zip(slices, records, strict=True))
    warnings += _damaged(pairs)
    ids = IdSample()
    for record in records:
        ids.add(np.array(record.ids.hashes, np.uint64), record.ids.modulus)
    warnings += [found] if (found := ids.warning()) else []
    read_of = by_input(slices, records)
    for name in entries_by_name(entries):
        own = read_of.get(name, [])
        warnings += [
            *_empty_columns(name, own),
            *_without_text(name, own),
            *_repaired(name, own),
            *_other_records(name, own),
        ]
    return warnings


def by_input(slices: Sequence[Slice], records: Sequence[SliceRecord]) -> dict[str, list[Read]]:
    """Return name of an input -> its slices, each with its record."""
    found: dict[str, list[Read]] = {}
    for pair in zip(slices, records, strict=True):
        found.setdefault(pair[0].source, []).append(pair)
    return found


def _damaged(pairs: Sequence[Read]) -> Iterator[str]:
    """Yield one warning per kind of damage, with the first files that have it. Errors that differ only in numbers are
    of one kind."""
    kinds: dict[str, dict[str, str]] = {}  # -> file -> error
    for input_slice, record in pairs:
        for number, error in record.damaged:
            file = input_slice.ranges[number].file
            kinds.setdefault(re.sub(r"\d+", "", error), {}).setdefault(file.label or shown(file.path), error)
    for files in kinds.values():
        names = ", ".join(list(files)[:MAX_NAMED_FILES]) + (", ..." if len(files) > MAX_NAMED_FILES else "")
        yield (
            f"{len(files):,} {'file was' if len(files) == 1 else 'files were'} not read to the end, and the documents "
            f"after the damage are lost: {names} ({next(iter(files.values()))}); see rejected.jsonl"
        )


def _empty_columns(name: str, own: Sequence[Read]) -> Iterator[str]:
    """Yield warnings for carried columns that are null in all documents. Their names may be misspelt, since JSON Lines
    has no header to check."""
    filled = {column for _, record in own for column in record.filled}
    if not any(record.documents_read - record.rejected for _, record in own):
        return
    empty = [column for column in own[0][0].columns if column not in filled]
    yield from null_columns(name, empty, own[0][0].ranges[0].file, "document")


def _without_text(name: str, own: Sequence[Read]) -> Iterator[str]:
    """Yield a warning about texts without a visible character. Blank parts of split documents do not count."""
    records = [record for input_slice, record in own if not input_slice.is_split]
    blank = sum(record.blank for record in records)
    documents = sum(record.documents_read - record.rejected for record in records)
    yield from without_text(name, blank, documents + blank, "document")


def _repaired(name: str, own: Sequence[Read]) -> Iterator[str]:
    documents = sum(record.rows - record.rejected - record.split - not_pages(record.others) for _, record in own)
    repaired = sum(record.repaired for _, record in own)
    if repaired and repaired >= documents * MAX_REPAIRED_SHARE:
        encoded = _have_encodings(input_slice for input_slice, _ in own)
        hint = ". If the files are not in UTF-8, set encoding:, such as latin-1" if encoded else ""
        yield (
            f"input {name!r}: invalid bytes became U+FFFD in {repaired:,} of {documents:,} documents "
            f"({repaired / documents:.0%}){hint}"
        )


def nothing_kept(report: Mapping[str, Any]) -> str:
    """Return the sentence of a report (content of `report.json`) that explains why nothing was kept; "" if documents
    were kept."""
    if report["documents"]["kept"]:
        return ""
    return next((warning for warning in report["warnings"] if warning.startswith(NOTHING)), NOTHING.rstrip(": "))


def emptiness(
    documents: Mapping[str, int], stages: Sequence[StageCount], slices: Sequence[Slice],
    records: Sequence[SliceRecord], rejected: Path,
) -> list[str]:  # fmt: skip
    """Return the warning that nothing was kept, with the most frequent cause; an empty list if documents were kept.

    `rejected` is the path of `rejected.jsonl`.
    """
    if documents["kept"]:
        return []
    read, lost = documents["read"], max(documents["removed"], documents["rejected"])
    if not read:
        unsampled = sum(record.unsampled for record in records)
        skipped = f"sample: skipped all {counted(unsampled, 'record')}; raise it"
        return [NOTHING + (skipped if unsampled else "the input has no documents")]
    cause = _removal(stages) if lost == documents["removed"] else _rejection(slices, rejected)
    return [f"{NOTHING}{lost:,} of {read:,} records were {cause}"]


def _removal(stages: Sequence[StageCount]) -> str:
    stage = max(stages, key=lambda stage: stage.removed)
    reason = max(stage.reasons, key=lambda name: stage.reasons[name])
    return f"removed, most of them by {stage.name} ({stage.removed:,} of {stage.documents_in:,}, reason {reason})"


def _rejection(slices: Sequence[Slice], rejected: Path) -> str:
    with open(rejected, "rb") as file:
        rejections = [orjson.loads(line) for line in islice(file, MAX_SEEN_REJECTIONS)]
    [(frequent, _)] = Counter(_kind(record) for record in rejections).most_common(1)
    record = next(record for record in rejections if _kind(record) == frequent)
    error = record["error"]
    return f"rejected, most of them with the error: {error}{_hint(error, record['source'], slices)}"


def _hint(error: str, source: str, slices: Sequence[Slice]) -> str:
    """Return the remedy for an error of rejected records of an input. The error is compared as a whole with the
    reader's messages, since it may quote names from the file."""
    own = [input_slice for input_slice in slices if input_slice.source == source]
    file = own[0].ranges[0].file
    if NOT_VALID.fullmatch(error):
        if _have_encodings(own):
            return f"; set encoding: of the input, such as latin-1 (--set input.{source}.encoding=latin-1)"
        return "; convert the input to UTF-8, which its format requires"
    if error == too_large(file.max_document_bytes):
        return _too_large_hint(file)
    if error == UNCLOSED or error.endswith(OR_UNCLOSED):
        return "; set escape:, or quote:, of the input. curate init detects them"
    if error == NULL_TEXT or error.startswith(f"field {file.text_column!r} is "):
        return "; set text_column: of the input to a field with text"
    return "" if error.startswith(f"no field {file.text_column!r}; ") else SEE_ALL


def _too_large_hint(file: SourceFile) -> str:
    """Return the remedy for records that are too large: raise the limit, or split a file that is read as one
    document."""
    kind = format_of(file)
    if not kind.is_one_document(file) or "separator" not in kind.options:
        return "; raise it"
    try:
        mark = kind.detect(file).get("separator")
    except InputError:  # the file is gone
        mark = ""
    split = (
        f"; set separator: {json.dumps(mark)} of the input: it ends the documents in {shown(file.path)}"
        if mark
        else ('; set separator: of the input, such as "\\n\\n", if the file has several documents')
    )
    return split if file.bytes > LARGEST_STRING else f"{split}. Or raise it"


def _other_records(name: str, own: Sequence[Read]) -> Iterator[str]:
    others: OtherCounts = {}
    for _, record in own:
        add_counts(others, record.others)
    return (f"input {name!r}: {warning}" for warning in other_warnings(others))


def _have_encodings(slices: Iterable[Slice]) -> bool:
    """Return whether the format of a file of the slices has the setting `encoding`."""
    return any("encoding" in format_of(part.file).options for input_slice in slices for part in input_slice.ranges)


def _kind(record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the kind of a rejected record: its input, and its error without the numbers, which may differ."""
    return record["source"], re.sub(r"\d+", "", record["error"])
