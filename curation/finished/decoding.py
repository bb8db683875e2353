# SPDX-License-Identifier: Apache-2.0
"""Documents and rows of the files that a run writes, to decode them back to text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow.parquet as pq

from curation.contract import ID, TEXT
from curation.errors import InputError, counted
from curation.packing.forms import FORMS, TokenShards
from curation.packing.forms.shards import MANIFEST
from curation.packing.indexed import IndexedReader, bare_prefix
from curation.packing.megatron import suffixed
from curation.packing.repack import read_tokenizer
from curation.system.files import read_json


class StoredTokens(NamedTuple):
    """The tokens of a file.

    path       the file, or the prefix of a pair
    size       its counts as text
    noun       what a row is: document, block, chunk, row, sample or window
    rows       ids of shape (tokens,)
    tokenizer  name and SHA-256 of the tokenizer; empty if no manifest has them
    manifest   folder of the manifest
    """

    path: Path
    size: str
    noun: str
    rows: Sequence[np.ndarray] | IndexedReader
    tokenizer: Mapping[str, Any]
    manifest: Path


def open_tokens(path: str | Path) -> StoredTokens:
    """Return the tokens of a `.bin/.idx` pair, or of a shard of a form beside its manifest.

    InputError: a missing file, or one that no manifest names. OutputError: a `.pt` file without PyTorch.
    """
    file = Path(path)
    if not file.is_file() or suffixed(bare_prefix(file), ".idx").is_file():
        reader = IndexedReader(path)
        documents, tokens = counted(len(reader.documents) - 1, "document"), counted(len(reader.tokens), "token")
        size, meta = f"{documents}, {tokens}, {reader.dtype.name}", reader.prefix.parent / "_meta"
        return StoredTokens(reader.prefix, size, "document", reader, read_tokenizer(reader.prefix), meta)
    for folder in (file.parent, file.parent.parent):  # `mds` has a folder per split
        manifest = read_json(folder / MANIFEST) or {}
        form = FORMS.get(manifest.get("form", ""))
        for split in manifest["splits"].values() if form else ():
            for entry in split["files"]:
                if form and form.unit in entry and folder / entry["file"] == file:
                    settings, dtype = msgspec.convert(manifest["settings"], form), np.dtype(manifest["dtype"])
                    rows = settings.open_shard(file, dtype.newbyteorder("<"))
                    noun = "window" if form is TokenShards else form.unit.removesuffix("s")
                    size = f"{settings.shown_size(file.name, entry[form.unit])}, {dtype.name}"
                    return StoredTokens(file, size, noun, rows, manifest["tokenizer"], folder)
    raise InputError(f"{file} is no shard that a {MANIFEST} beside it names. Give a shard in the folder of its run")


def texts_of(path: str | Path, count: int) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of the first rows of a `.parquet` file of a run.

    InputError: a missing file, or one without the columns `id` and `text`.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as Parquet ({error}). Give a file of documents/ or removed/") from None
    with file:
        if missing := {ID, TEXT} - {*file.schema_arrow.names}:
            raise InputError(
                f"{path} has no column {min(missing)!r}; it has {', '.join(file.schema_arrow.names)}. Give a file of "
                "documents/ or removed/"
            )
        for batch in file.iter_batches(max(count, 1), columns=[ID, TEXT]):
            for row in batch.slice(0, count).to_pylist():
                yield str(row[ID]), row[TEXT] or ""
            return
