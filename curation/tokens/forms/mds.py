# SPDX-License-Identifier: Apache-2.0
"""`mds`: rows of equal length in the shards that MosaicML Streaming reads, such as LLM Foundry's text data sets.

`samples.py` has the bytes of a shard. Its header is JSON with sorted keys: the format, and the name, encoding and size
of each column. `index.json` repeats the header for each shard, with its name, bytes, samples and hashes. The files
equal those of `streaming.MDSWriter` 0.13 byte for byte. The writer is not called: its import needs PyTorch, torchvision
and transformers, 3.4 s and 250 MB (`docs/decisions/0093-write-mds-without-its-package.md`).

Source: https://docs.mosaicml.com/projects/streaming/en/stable/preparing_datasets/dataset_format.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curation.tokens.forms.samples import DTYPE, SampleForm, as_json


class Mds(SampleForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`mds/<split>/shard.NNNNN.mds` and `index.json`, read by `streaming.StreamingDataset(local="mds", split=...)`.

    shard_name   name of shards without suffix; each split has its own folder
    length       tokens of a sample
    keep_last    keep an incomplete last sample of a split, padded with `output.pad_id`; else it is dropped
    shard_bytes  size limit of a shard, which has at least one sample

    A sample has one column `tokens`, an int32 array of shape (length,). Samples are the rows that `blocks` of the same
    length has. A run without splits has the split `train`. RecipeError: a split with less than one sample.
    """

    name, suffix = "mds", ".mds"

    shard_name: str = "shard.{number:05}"

    def header(self) -> bytes:
        return as_json(self._described())

    def index(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"shards": [self._described() | _place(shard) for shard in shards], "version": 2}

    def _described(self) -> dict[str, Any]:
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


def _place(shard: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a shard in `index.json` that its header lacks."""
    file = {"basename": Path(shard["file"]).name, "bytes": shard["bytes"], "hashes": {"sha256": shard["sha256"]}}
    return {"raw_data": file, "samples": shard["samples"], "zip_data": None}
