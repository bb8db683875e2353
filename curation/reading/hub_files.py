# SPDX-License-Identifier: Apache-2.0
"""CSV and JSON Lines of a data set, read by this program's own readers.

The library `datasets` would guess the types of values: it turns the id 007 into 7, and a text that looks like a time
into a time. The library still finds and opens the files, and stores the position for resuming. It also still reads
files with declared types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from curation.base.contract import ROW
from curation.base.errors import InputError
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.documents import REJECTED, Documents, schema_of
from curation.reading.formats import FORMATS
from curation.reading.formats.base import PROBED_BYTES
from curation.reading.formats.csv_rows import PeekedStream
from curation.reading.formats.jsonl import first_lines, is_array
from curation.reading.inputs import HubInput
from curation.reading.lines import BYTE_ORDER_MARK
from curation.reading.source_files import ReadOptions, SourceFile

BATCH_BYTES = 4 << 20
# Setting for CSV files in the card of a data set -> the same setting of an input of files.
CSV_SETTINGS = {"sep": "delimiter", "quotechar": "quote", "escapechar": "escape", "encoding": "encoding"}
NOT_OF_READING = {"name", "version", "data_dir", "data_files", "description", "delimiter", "column_names"}

Tables = Callable[..., Iterator[tuple[Any, pa.Table]]]


def read_own_files(builder: Any, entry: HubInput, as_documents: Callable[[pa.Table], pa.Table]) -> bool:
    """Let the library's builder of a data set read CSV and JSON Lines with this program's readers. Return whether it
    does. Its tables have the columns of `schema_of` except `row`, and the column REJECTED.

    as_documents   converts a table of the library to these columns; the library reads JSON that is not in lines
    """
    file = _settings_of(builder, entry)
    if file is None:
        return False
    module, library = sys.modules[type(builder).__module__], builder._generate_tables
    open_file = getattr(module, "open", open)  # the library's own `open` reads URLs and archives

    def tables(*, allow_full_read: bool = True, **shards: Any) -> Iterator[tuple[Any, pa.Table]]:
        name = "files_iterables" if "files_iterables" in shards else "files"
        for number, paths in enumerate(shards[name]):
            for path in [paths] if isinstance(paths, str) else paths:
                with open_file(path, "rb") as opened:
                    stream = PeekedStream(opened)
                    if _is_lines(stream, file):
                        read = _documents(stream, msgspec.structs.replace(file, path=path))
                        yield from (((number, index), table) for index, table in enumerate(read))
                        continue
                options = {} if allow_full_read else {"allow_full_read": False}
                for key, table in library(**shards | {name: [[path]]}, **options):
                    documents = as_documents(table)
                    yield key, documents.append_column(REJECTED, pa.nulls(len(documents), pa.large_string()))

    builder._generate_tables = tables
    return True


def _settings_of(builder: Any, entry: HubInput) -> SourceFile | None:
    """Return the settings for reading the files of a data set. None if the library must read them: they have another
    format, declared types, or settings that inputs of files do not have."""
    kind, config = type(builder).__module__.removeprefix("datasets.packaged_modules."), builder.config
    if kind not in ("csv.csv", "json.json") or config.features is not None or builder.info.features is not None:
        return None
    usual = type(config)()
    given = {
        name: getattr(config, name)
        for name in config.__dataclass_fields__
        if name not in NOT_OF_READING and getattr(config, name) != getattr(usual, name)
    }
    if not given.keys() <= (CSV_SETTINGS.keys() if kind == "csv.csv" else {"chunksize"}):
        return None
    reading = {CSV_SETTINGS[name]: value for name, value in given.items() if name in CSV_SETTINGS}
    options = {name: getattr(entry, name) for name in ReadOptions.__struct_fields__}
    return SourceFile(
        path="", source=entry.name, format="csv" if kind == "csv.csv" else "jsonl", bytes=UNKNOWN_SIZE, modified_ns=0,
        **options, **reading,
    )  # fmt: skip


def _is_lines(stream: PeekedStream, file: SourceFile) -> bool:
    """Return whether this program, and not `datasets`, reads a file: it is CSV, or JSON with one object per line."""
    start = stream.start(PROBED_BYTES).removeprefix(BYTE_ORDER_MARK)
    first = first_lines(start)
    is_object = any(line.lstrip().startswith(b"{") and line.strip() != b"{" for line in first)
    return "delimiter" in FORMATS[file.format].options or not first or (is_object and not is_array(start, first))


def _documents(stream: PeekedStream, file: SourceFile) -> Iterator[pa.Table]:
    kind: Any = FORMATS[file.format]
    start = stream.start(PROBED_BYTES)
    try:
        probed = kind.probe_start(start if "delimiter" in kind.options else start.removeprefix(BYTE_ORDER_MARK), file)
    except InputError as error:
        raise InputError(str(error).replace("Set delimiter", "Name the files without hf:, and set delimiter")) from None
    for documents in kind.read_stream(stream, probed, BATCH_BYTES):
        if documents.rows:
            yield _with_rejected(documents, file)


def _with_rejected(documents: Documents, file: SourceFile) -> pa.Table:
    """Return a table with one row per record, in order, including rejected records."""
    schema = schema_of(file.carried).append(pa.field(REJECTED, pa.large_string()))
    kept = documents.table.append_column(REJECTED, pa.nulls(len(documents.table), pa.large_string()))
    name = file.path.partition("::")[0].rpartition("/")[2]
    rejected = [
        {ROW: entry.row, REJECTED: f"{name}, line {entry.line + 1}: {entry.error}"} for entry in documents.rejected
    ]
    rows = pa.concat_tables([kept.cast(schema), pa.Table.from_pylist(rejected, schema)]).sort_by(ROW)
    return rows.drop_columns([ROW]).combine_chunks()
