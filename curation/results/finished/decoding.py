# SPDX-License-Identifier: Apache-2.0
"""Opens the token files and documents that a run writes, to decode tokens back to text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from curation.base.contract import ID, TEXT
from curation.base.errors import InputError, counted
from curation.base.system.damage import damaged
from curation.record.tables import TablePart
from curation.tokens.document_rows import document_path, read_place, rows_path
from curation.tokens.forms import FORMS, TokenShards
from curation.tokens.forms.shards import MANIFEST
from curation.tokens.forms.stored import read_manifest
from curation.tokens.indexed import IndexedReader, bare_prefix
from curation.tokens.megatron import suffixed
from curation.tokens.repack import read_tokenizer


class StoredTokens(NamedTuple):
    """The tokens of a file.

    path       the file, or the prefix of a `.bin/.idx` pair
    file       the file with the tokens
    size       its counts as readable text
    noun       the word for a row: document, block, chunk, row, sample or window
    rows       ids of shape (tokens,)
    tokenizer  name and SHA-256 of the tokenizer; empty if no manifest has them
    manifest   folder of the manifest
    """

    path: Path
    file: Path
    size: str
    noun: str
    rows: Sequence[np.ndarray] | PairDocuments
    tokenizer: Mapping[str, Any]
    manifest: Path

    def heading(self, number: int) -> str:
        """Return a heading with the noun and number of a row, its number of tokens, and its number of sequences if
        above 1."""
        sequences = self.rows.sequences(number) if isinstance(self.rows, PairDocuments) else 1
        inside = f" in {counted(sequences, 'sequence')}" if sequences > 1 else ""
        return f"{self.noun} {number}: {counted(len(self.rows[number]), 'token')}{inside}"


class PairDocuments:
    """The documents of a `.bin/.idx` pair, each as the ids of all its sequences."""

    def __init__(self, reader: IndexedReader) -> None:
        self.reader = reader

    def __len__(self) -> int:
        return len(self.reader.documents) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        return self.reader.document(number)

    def sequences(self, number: int) -> int:
        """Return the number of sequences of a document."""
        return int(self.reader.documents[number + 1] - self.reader.documents[number])

    def size(self) -> str:
        """Return the counts as readable text; sequences only if their number is not that of documents."""
        reader = self.reader
        counts = [(len(self), "document"), (len(reader), "sequence"), (len(reader.tokens), "token")]
        shown = [counted(*count) for count in counts if count[1] != "sequence" or len(reader) != len(self)]
        return ", ".join([*shown, reader.dtype.name, *(["modes (multimodal data)"] if reader.has_modes else [])])


def open_tokens(path: str | Path) -> StoredTokens:
    """Return the tokens of a `.bin/.idx` pair, or of a shard of a form, which must be in the folder of its manifest.

    Raises InputError for a missing file, or one that no manifest names; OutputError for a `.pt` file without PyTorch;
    IntegrityError for a damaged file.
    """
    file = Path(path)
    if file.is_dir() and (inside := _decodable(file)):
        raise InputError(f"{path} is a folder. Give one of its files, such as {inside[0]}")
    if not file.is_file() or suffixed(bare_prefix(file), ".idx").is_file():
        rows = PairDocuments(reader := IndexedReader(path, allow_modes=True))
        meta, bin_path = reader.prefix.parent / "_meta", suffixed(reader.prefix, ".bin")
        return StoredTokens(reader.prefix, bin_path, rows.size(), "document", rows, read_tokenizer(reader.prefix), meta)
    for folder in (file.parent, file.parent.parent):  # `mds` and `litdata` have a folder per split
        if (manifest := read_manifest(folder)) is None:
            continue
        form = FORMS[manifest["form"]]
        for split in manifest["splits"].values():
            for entry in split["files"]:
                if form.unit in entry and folder / entry["file"] == file:
                    settings, dtype = msgspec.convert(manifest["settings"], form), np.dtype(manifest["dtype"])
                    stored = settings.open_shard(file, dtype.newbyteorder("<"), entry[form.unit])
                    noun = "window" if form is TokenShards else form.unit.removesuffix("s")
                    size = f"{settings.shown_size(file.name, entry[form.unit])}, {dtype.name}"
                    return StoredTokens(file, file, size, noun, stored, manifest["tokenizer"], folder)
    raise InputError(f"{file} is no shard that a {MANIFEST} beside it names. Give a shard in the folder of its run")


def _decodable(folder: Path) -> list[Path]:
    """Return the files in a folder that can be decoded: Parquet files, or else the files that the manifest names."""
    splits = (read_manifest(folder) or {"splits": {}})["splits"]
    return sorted(folder.glob("*.parquet")) or [
        folder / entry["file"] for split in splits.values() for entry in split["files"]
    ]


def source_of(path: str | Path, number: int) -> tuple[str, str, str]:
    """Return (id, place, text) of the row of `documents/` from which document `number` of a shuffled pair was made.

    Raises InputError for a path that is no pair, a number that it does not have, and a pair without a file of rows;
    IntegrityError for a damaged file.
    """
    prefix = bare_prefix(path)
    count = len(IndexedReader(prefix).documents) - 1
    if not 0 <= number < count:
        raise InputError(f"{prefix} has no document {number}. Give a number from 0 to {count - 1}")
    if not (rows := rows_path(prefix)).exists():
        raise InputError(
            f"{rows} does not exist: only a run with output.shuffle and documents/ writes it. Without a shuffle, a "
            "pair has the documents of its input and split in the order of documents/, except those without tokens"
        )
    part, row = read_place(rows, number, count)
    document_file = document_path(prefix.parent.parent, part)
    if not os.path.lexists(document_file):
        raise damaged(rows, f"it names {document_file.name} in documents/, which is missing")
    table = TablePart(document_file)
    if row >= table.rows:
        raise damaged(rows, f"it names row {row:,} of {document_file.name}, which has {table.rows:,} rows")
    found = table.read_row(row, [ID, TEXT])
    return str(found[ID]), f"{document_file}, row {row:,}", found[TEXT] or ""


def texts_of(path: str | Path, count: int) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of the first rows of a `.parquet` file of a run.

    Raises InputError for a missing file, or one without the columns `id` and `text`; IntegrityError for a damaged file.
    """
    if not Path(path).exists():
        raise InputError(f"{path} does not exist. Give a file of documents/ or removed/")
    part = TablePart(Path(path))
    if missing := {ID, TEXT} - {*part.schema.names}:
        raise InputError(
            f"{path} has no column {min(missing)!r}; it has {', '.join(part.schema.names)}. Give a file of documents/ "
            "or removed/"
        )
    tables = (part.read(group, [ID, TEXT]) for group in part.groups)
    rows = (row for table in tables for start in range(0, len(table), 10) for row in table.slice(start, 10).to_pylist())
    for row in islice(rows, count):
        yield str(row[ID]), row[TEXT] or ""
