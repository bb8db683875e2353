# SPDX-License-Identifier: Apache-2.0
"""`mds`: rows of equal length in the shards that MosaicML Streaming reads, such as LLM Foundry's text data sets.

A shard is, in this order, with little-endian numbers:

    samples   uint32
    offsets   uint32 of samples + 1: where each sample begins in the file, and where the last one ends
    header    JSON with sorted keys: the format, and the name, encoding and size of each column
    samples   ids of one sample after the other

`index.json` repeats the header for each shard, with its name, bytes, samples and hashes. The files equal those of
`streaming.MDSWriter` 0.13 byte for byte. The writer is not called: its import needs PyTorch, torchvision and
transformers, 3.4 s and 250 MB (`docs/decisions/0093-write-mds-without-its-package.md`).

Source: https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.system.damage import damaged
from curation.base.system.files import commit
from curation.tokens.forms import base
from curation.tokens.forms.base import Count
from curation.tokens.forms.documents import TokenizedDocuments
from curation.tokens.forms.rows import RowForm
from curation.tokens.forms.shards import check_counts, entry, open_array

if TYPE_CHECKING:
    from curation.tokens.tokenization import Tokenizer

DTYPE = np.dtype("<i4")
OFFSET = np.dtype("<u4")
INDEX = "index.json"
MAX_SHARD_BYTES = (1 << 32) - 1  # the largest offset


class MdsSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""

    samples: Count
    dropped_tokens: Count = 0


class Mds(RowForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`mds/<split>/shard.NNNNN.mds` and `index.json`, read by `streaming.StreamingDataset(local="mds", split=...)`.

    shard_name   name of shards without suffix; each split has its own folder
    length       tokens of a sample
    keep_last    keep an incomplete last sample of a split, padded with `output.pad_id`; else it is dropped
    shard_bytes  size limit of a shard, which has at least one sample

    A sample has one column `tokens`, an int32 array of shape (length,). Samples are the rows that `blocks` of the same
    length has. A run without splits has the split `train`. RecipeError: a split with less than one sample.
    """

    name = "mds"
    row, unit = "sample", "samples"
    nested = True
    summary = MdsSummary

    shard_name: str = "shard.{number:05}"
    shard_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        check_counts(self, "length", "shard_bytes")
        if self.shard_bytes > MAX_SHARD_BYTES:
            raise ValueError(f"shard_bytes must be at most {MAX_SHARD_BYTES}, not {self.shard_bytes}")

    def file_dtype(self, tokenizer: Tokenizer) -> np.dtype:
        return DTYPE

    def shard_rows(self) -> int:
        fixed = 2 * OFFSET.itemsize + len(_json(self.header()))
        return max(1, (self.shard_bytes - fixed) // (self.length * DTYPE.itemsize + OFFSET.itemsize))

    def header(self) -> dict[str, Any]:
        """Return the description of the samples in the header of each shard."""
        return {
            "column_encodings": [f"ndarray:{DTYPE.name}:{self.length}"],
            "column_names": ["tokens"],
            "column_sizes": [self.length * DTYPE.itemsize],
            "compression": None,
            "format": self.name,
            "hashes": ["sha256"],
            "size_limit": self.shard_bytes,
            "version": 2,
        }

    def write_shard(
        self, folder: Path, split: str, number: int, rows: int, batches: Iterable[np.ndarray], dtype: np.dtype
    ) -> dict[str, Any]:
        path = self.shard_path(folder / (split or "train"), split, number, ".mds")
        with commit(path) as temporary, open(temporary, "wb") as file:
            file.write(self._head(rows))
            for batch in batches:
                file.write(batch.astype(dtype).data)
        return entry(path, folder)

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        data = open_array(path, np.dtype(np.uint8))
        head = self._head(count)
        if bytes(data[: len(head)]) != head or len(data) - len(head) != count * self.length * DTYPE.itemsize:
            raise damaged(path, f"expected a head with the offsets of {count:,} samples, and their ids after it")
        return data[len(head) :].view(DTYPE).reshape(count, self.length)  # type: ignore[return-value]

    def _head(self, rows: int) -> bytes:
        """Return the bytes of a shard before its samples."""
        header = _json(self.header())
        first = OFFSET.itemsize * (rows + 2) + len(header)
        offsets = first + np.arange(rows + 1) * (self.length * DTYPE.itemsize)
        return np.append(rows, offsets).astype(OFFSET).tobytes() + header

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        content = super().write(documents, folder, split, dtype, pad_id)
        shards = [self._described(Path(file["file"]).name, file) for file in content["files"]]
        path = folder / (split or "train") / INDEX
        with commit(path) as temporary:
            temporary.write_bytes(_json({"shards": shards, "version": 2}))
        return content | {"files": [*content["files"], entry(path, folder)]}

    def _described(self, name: str, file: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of a shard in `index.json`."""
        raw = {"basename": name, "bytes": file["bytes"], "hashes": {"sha256": file["sha256"]}}
        return self.header() | {"raw_data": raw, "samples": file["samples"], "zip_data": None}


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
