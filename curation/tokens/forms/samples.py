# SPDX-License-Identifier: Apache-2.0
"""Base class of `mds` and `litdata`: rows of equal length as samples of a streaming data set, in a folder per split.

A shard is, in this order, with little-endian numbers:

    samples   uint32
    offsets   uint32 of samples + 1: where each sample begins in the file, and where the last one ends
    header    bytes that the format has here, if any
    samples   int32 ids of one sample after the other

`index.json` in the folder describes all shards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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


class SamplesSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""

    samples: Count
    dropped_tokens: Count = 0


class SampleForm(RowForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that both forms have.

    suffix  of shards
    """

    row, unit = "sample", "samples"
    nested = True
    summary = SamplesSummary
    suffix: ClassVar[str]

    shard_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        check_counts(self, "length", "shard_bytes")
        if self.shard_bytes > MAX_SHARD_BYTES:
            raise ValueError(f"shard_bytes must be at most {MAX_SHARD_BYTES}, not {self.shard_bytes}")

    def header(self) -> bytes:
        """Return the bytes between the offsets and the samples of a shard. Default: none."""
        return b""

    def index(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the content of `index.json`, from the entries of the shards in the manifest, in their order."""
        raise NotImplementedError

    def file_dtype(self, tokenizer: Tokenizer) -> np.dtype:
        return DTYPE

    def shard_rows(self) -> int:
        fixed = 2 * OFFSET.itemsize + len(self.header())
        return max(1, (self.shard_bytes - fixed) // (self.length * DTYPE.itemsize + OFFSET.itemsize))

    def write_shard(
        self, folder: Path, split: str, number: int, rows: int, batches: Iterable[np.ndarray], dtype: np.dtype
    ) -> dict[str, Any]:
        path = self.shard_path(folder / (split or "train"), split, number, self.suffix)
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
        header = self.header()
        first = OFFSET.itemsize * (rows + 2) + len(header)
        offsets = first + np.arange(rows + 1) * (self.length * DTYPE.itemsize)
        return np.append(rows, offsets).astype(OFFSET).tobytes() + header

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        content = super().write(documents, folder, split, dtype, pad_id)
        path = folder / (split or "train") / INDEX
        with commit(path) as temporary:
            temporary.write_bytes(as_json(self.index(content["files"])))
        return content | {"files": [*content["files"], entry(path, folder)]}


def as_json(content: dict[str, Any]) -> bytes:
    """Return JSON with sorted keys."""
    return json.dumps(content, sort_keys=True).encode()
