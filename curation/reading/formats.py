# SPDX-License-Identifier: Apache-2.0
"""The reader of each format, and checks of a file before a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import ROW
from curation.errors import InputError, near_or_nothing
from curation.reading import archives, delimited, html, lines, pages, plain, tabular
from curation.reading.documents import HELD_BYTES, Documents, shown_names
from curation.reading.inputs import DELIMITERS
from curation.reading.places import Mark, shifted
from curation.reading.remote import UNKNOWN_SIZE
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.streams import open_stream, read_chunk
from curation.reading.urls import is_remote, shown

READERS: dict[str, Callable[[FileRange, int], Iterator[Documents]]] = {
    "jsonl": lines.read_jsonl,
    "parquet": tabular.read_parquet,
    "arrow": tabular.read_arrow,
    "csv": delimited.read_delimited,
    "tsv": delimited.read_delimited,
    "text": plain.read_text,
    "html": html.read_html,
    "wet": archives.read_wet,
    "warc": archives.read_warc,
}
# What `columns` may name, of formats without fields of their own.
FIELDS = {"text": plain.FIELDS, "html": plain.FIELDS, "wet": (*archives.FIELDS,), "warc": (*archives.FIELDS,)}

# Usual names of a text column, the most frequent first.
TEXT_COLUMNS = ("text", "content", "body", "raw_content", "article", "description", "document")
PROBED_RECORDS = 100
SET = {  # remedies, by setting of an input
    "text_column": "Set text_column of the input in the recipe, or give --text-column NAME; for files of several "
    "kinds, curate init FOLDER writes a recipe",
    "columns": "Set columns of the input in the recipe",
}
SIGNATURES = {  # first bytes that no text has
    b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"PK\3\4": "a ZIP archive",
    b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PAR1": "Parquet", b"ARROW1\0": "Arrow", b"%PDF-": "a PDF document",
}  # fmt: skip
REMEDIES = {
    "gzip": "Rename the file, such as x.jsonl.gz", "zstd": "Rename the file, such as x.jsonl.zst",
    "bzip2": "Rename the file, such as x.jsonl.bz2", "xz": "Rename the file, such as x.jsonl.xz",
    "a ZIP archive": "Unpack it, and name the files in it", "a PDF document": "Convert it to text, and name the text",
    "Parquet": "Rename the file, or set format: parquet", "Arrow": "Rename the file, or set format: arrow",
    "UTF-16": "Convert it, since JSON Lines are UTF-8: iconv -f UTF-16 -t UTF-8 in.jsonl > out.jsonl",
}  # fmt: skip
SURROGATE = re.compile(r"[\ud800-\udfff]")
ARRAY_START = re.compile(rb'\s*\[\s*[]{["\-0-9tfn]')
PROBED_BYTES = 1 << 20


def read_documents(input_slice: Slice, batch_bytes: int) -> Iterator[Documents]:
    """Yield the documents of a slice, in order, in batches of about `batch_bytes`.

    A damaged file gives the documents before the damage and one rejected record that names the damage.
    """
    batches: list[Documents] = []
    size = 0
    for documents in _file_batches(input_slice, batch_bytes):
        batches.append(documents)
        size += documents.table.nbytes + HELD_BYTES * len(documents.rejected)
        if size >= batch_bytes:
            yield _joined(batches)
            batches, size = [], 0
    if batches:
        yield _joined(batches)


def _file_batches(input_slice: Slice, batch_bytes: int) -> Iterator[Documents]:
    """Yield the documents of the files of a slice, with consecutive row numbers."""
    first = number = 0  # rows and ranges before
    for file_ranges in lines.runs(input_slice.ranges):
        reader = READERS[file_ranges[0].file.format]
        rows = 0
        start = [Mark(0, 0, 0)] if len(input_slice.ranges) > len(file_ranges) == 1 else []
        for documents in (
            reader(file_ranges[0], batch_bytes) if len(file_ranges) == 1 else lines.read_files(file_ranges, batch_bytes)
        ):
            rows += documents.rows
            documents, start = documents._replace(marks=[*start, *documents.marks]), []
            yield _shifted(documents, first, number) if number else documents
        first += rows
        number += len(file_ranges)


def _joined(batches: Sequence[Documents]) -> Documents:
    """Join batches of small files: the work on a batch of any size costs a millisecond."""
    if len(batches) == 1:
        return batches[0]
    return Documents(
        table=pa.concat_tables([documents.table for documents in batches]),
        rejected=[entry for documents in batches for entry in documents.rejected],
        rows=sum(documents.rows for documents in batches),
        lines=sum(documents.lines for documents in batches),
        repaired=sum(documents.repaired for documents in batches),
        marks=[mark for documents in batches for mark in documents.marks],
    )


def _shifted(documents: Documents, first: int, number: int) -> Documents:
    """Add the number of earlier rows and ranges of the slice to those of a batch."""
    rows = pc.add(documents.table.column(ROW), pa.scalar(first, pa.int64()))
    rejected = [
        entry._replace(row=entry.row + first, file_index=entry.file_index + number) for entry in documents.rejected
    ]
    marks = shifted(documents.marks, first, number)
    return documents._replace(table=documents.table.set_column(0, ROW, rows), rejected=rejected, marks=marks)


def row_groups(file: SourceFile) -> list[int]:
    """Return the uncompressed bytes of each row group of a Parquet file."""
    metadata = tabular.open_parquet(file).metadata
    return [metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups)]


def probe(file: SourceFile) -> SourceFile:
    """Return the file with its text column set. Raises InputError for a file without a required column.

    JSON Lines are checked by their first PROBED_RECORDS records: one of them must have the text column.
    """
    if file.format in FIELDS:
        fields = FIELDS[file.format]
        if file.format in ("html", "warc"):
            pages.extractor()
        for name in file.carried.values():
            if name not in fields:
                raise InputError(f"{file.format} has no column {name!r}; columns may name {', '.join(fields)}")
        if file.compression and not is_remote(file.path):  # remote files are skipped: there may be very many
            _head(file, 1)
        return file
    if file.format == "jsonl":
        return _probe_lines(file)
    names = _names(file)
    if not names and file.format in DELIMITERS:  # an empty file
        return _with_some_column(file)
    if file.format in DELIMITERS and not file.delimiter:
        _check_delimiter(names, file)
    probed = msgspec.structs.replace(file, text_column=file.text_column or _find_column(names, file))
    _check_names(names, probed)
    if probed.format in ("parquet", "arrow"):
        tabular.check_types(probed)
    return probed


def _names(file: SourceFile) -> list[str]:
    return delimited.header(file) if file.format in DELIMITERS else list(tabular.schema_in(file).names)


def _check_delimiter(names: Sequence[str], file: SourceFile) -> None:
    """Raise InputError for a header of one column whose name holds another usual delimiter."""
    expected = DELIMITERS[file.format]
    mark = next((mark for mark in delimited.MARKS if mark != expected and mark in names[0]), "")
    if len(names) == 1 and mark:
        named, own = orjson.dumps(mark).decode(), orjson.dumps(expected).decode()
        raise InputError(
            f"the header of {shown(file.path)} is one column, {names[0]!r}: its fields seem to be separated by "
            f"{mark!r}, expected {expected!r}. Set delimiter: {named} of the input (--set "
            f"'input.{file.source}.delimiter={named}'); {own} if it is one column. curate init detects delimiters"
        )


def _check_names(names: Sequence[str], file: SourceFile) -> None:
    """Raise InputError where a required column is missing or not unique."""
    where = shown(file.path)
    for column in (file.text_column, file.id_column, *file.carried.values()):
        if names.count(column) > 1:
            raise InputError(f"{where} has {names.count(column)} columns named {column!r}; rename all but one")
        if column not in names and column != file.id_column:
            option = "text_column" if column == file.text_column else "columns"
            near = near_or_nothing(column, names) or "."
            if column.rpartition(".")[0].partition(".")[0] in names:
                near = ". Only JSON Lines have dotted paths into nested fields: write the field to a column of its own."
            raise InputError(f"column {column!r} not found in {where}; it has {shown_names(names)}{near} {SET[option]}")


def _with_some_column(file: SourceFile) -> SourceFile:
    """Return a file without valid records with the default text column."""
    return msgspec.structs.replace(file, text_column=file.text_column or TEXT_COLUMNS[0])


def _find_column(names: Sequence[str], file: SourceFile, others: Sequence[str] = ()) -> str:
    """Return the first usual name in `names`. `others`: fields that hold no string, for the message."""
    column = next((name for name in TEXT_COLUMNS if name in names), "")
    if not column:
        no_text = next((f", {name!r} without a string" for name in TEXT_COLUMNS if name in others), "")
        raise InputError(
            f"{shown(file.path)} has none of the columns {', '.join(TEXT_COLUMNS)} with text; it has "
            f"{shown_names([*names, *others])}{no_text}. {_column_advice(names, file)}"
        )
    return column


def _column_advice(names: Sequence[str], file: SourceFile) -> str:
    """The remedy for a file without a usual text column."""
    if file.format in DELIMITERS:
        if any(SURROGATE.search(name) for name in names):
            encoding = file.encoding.upper()
            return f"The header is not valid {encoding}: set encoding: of the input, such as latin-1 or utf-16"
        return f"{SET['text_column']}; the first row must hold the names of the columns"
    return SET["text_column"]


def _probe_lines(file: SourceFile) -> SourceFile:
    head = _head(file)
    first = _first_lines(head)
    _check_lines(head, first, file)
    records = _objects(first)
    if not records:
        return _with_some_column(file)
    names = _field_names(records)
    if not file.text_column:
        strings = [name for name in names if any(isinstance(record.get(name), str) for record in records)]
        others = [name for name in names if name not in strings]
        return msgspec.structs.replace(file, text_column=_find_column(strings, file, others))
    if all(lines.look_up(record, file.text_column) is lines.MISSING for record in records):
        raise InputError(
            f"{shown(file.path)}: none of the first {len(records)} records is a document: no field "
            f"{file.text_column!r}; it has {shown_names(names)}{near_or_nothing(file.text_column, names) or '.'} "
            f"{SET['text_column']}"
        )
    return file


def column_names(file: SourceFile) -> list[str]:
    """Return the columns of a file, or the fields of its first records; for text, WET and WARC those that `columns` may
    name. [] for a data set that is streamed. InputError for a file that cannot be read."""
    if file.format in FIELDS:
        return [*FIELDS[file.format]]
    if file.format == "jsonl":
        return field_names(file)
    return _names(file) if file.format in READERS else []


def field_names(file: SourceFile) -> list[str]:
    """Return the fields of the first records of JSON Lines; [] for other formats and for files that cannot be read."""
    return _field_names(sample_records(file))


def sample_records(file: SourceFile) -> list[dict[str, Any]]:
    """Return the first records of JSON Lines; [] for other formats and for files that cannot be read."""
    if file.format != "jsonl":
        return []
    try:
        return _objects(_first_lines(_head(file)))
    except (InputError, OSError):
        return []


def _objects(raw_lines: Sequence[bytes]) -> list[dict[str, Any]]:
    return [record for raw in raw_lines if isinstance(record := _load(raw), dict)]


def _field_names(records: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record))


def _check_lines(head: bytes, first: Sequence[bytes], file: SourceFile) -> None:
    """Raise InputError for JSON that is not in lines. A single bad line passes: it may be a truncated file, and is
    rejected when it is read."""
    if signature := next((name for mark, name in SIGNATURES.items() if head.startswith(mark)), ""):
        raise InputError(
            f"{shown(file.path)} is read as {file.format}, but its content is {signature}. {REMEDIES[signature]}"
        )
    if _is_array(head, first):
        raise InputError(
            f"{shown(file.path)} begins with a JSON array, expected one object per line. "
            "Convert it: jq -c '.[]' in.json > out.jsonl"
        )
    objects = any(line.lstrip().startswith(b"{") and line.strip() != b"{" for line in first)
    if not objects and (len(first) > 1 or (first and _load(first[0]) is not None)):
        raise InputError(
            f"{shown(file.path)}: none of its first {len(first)} lines is a JSON object, expected one per line. "
            "For objects over several lines: jq -c . in.json > out.jsonl; for another format set format:"
        )


def _is_array(head: bytes, first: Sequence[bytes]) -> bool:
    """Return whether a file begins with a JSON array, and not with a line such as `[INFO] start`.

    Lines of an array end in commas. So a file of which most other lines are objects is no array.
    """
    if not ARRAY_START.match(head):
        return False
    objects = sum(isinstance(_load(line), dict) for line in first[1:])
    return len(first) < 2 or 2 * objects <= len(first[1:])


def _load(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _head(file: SourceFile, size: int = PROBED_BYTES) -> bytes:
    """Return the first bytes of a file. Raises InputError where they are damaged."""
    if not file.compression and file.bytes != UNKNOWN_SIZE:
        size = min(size, file.bytes)  # allocating a megabyte takes longer than reading a small file
    with open_stream(file.path, file.compression) as stream:
        head = read_chunk(stream, size)
    if head.damage and not head.data:
        raise InputError(
            f"nothing in {shown(file.path)} can be read: it is no {file.compression} file, or damaged or cut off at "
            "its start. Download it again, or leave it out"
        )
    return head.data.removeprefix(lines.BYTE_ORDER_MARK)


def _first_lines(head: bytes) -> list[bytes]:
    split = head.split(b"\n")
    complete = split if len(head) < PROBED_BYTES - len(lines.BYTE_ORDER_MARK) else split[:-1]
    return [line for line in complete if line.strip()][:PROBED_RECORDS]
