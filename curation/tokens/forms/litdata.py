# SPDX-License-Identifier: Apache-2.0
"""`litdata`: rows of equal length in the chunks that litdata's `TokensLoader` reads, as litgpt trains on.

`samples.py` has the bytes of a chunk, which has no header. `index.json` names the chunks with their bytes, samples and
tokens (`dim`), and the dtype of ids: `no_header_tensor:16` is a tensor of int32, as litgpt's own preparation writes.
The chunks equal those of `litdata.streaming.writer.BinaryWriter` 0.2.76 byte for byte.

`updated_at` of the index is the version of the data set: litdata empties its cache of a remote folder when it has
changed. litdata writes the time there, and this form a hash of all chunks, so that the same tokens make the same bytes.

Source: `BinaryWriter` and `TokensLoader` of https://pypi.org/project/litdata/0.2.76/
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curation.tokens.forms.samples import SampleForm

INT32 = "no_header_tensor:16"
ONE_TENSOR = '[1, {"type": null, "context": null, "children_spec": []}]'  # a sample is one tensor: a leaf of a pytree


class Litdata(SampleForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`litdata/<split>/chunk-0-N.bin` and `index.json`, read by `litdata.StreamingDataset` with a `TokensLoader`.

    shard_name   name of chunks without suffix; each split has its own folder
    length       tokens of a sample; `block_size` of the `TokensLoader`. litgpt trains on one token more than its
                 `max_seq_length`
    keep_last    keep an incomplete last sample of a split, padded with `output.pad_id`; else it is dropped
    shard_bytes  size limit of a chunk, which has at least one sample

    A sample is an int32 tensor of shape (length,). Samples are the rows that `blocks` of the same length has. A run
    without splits has the split `train`. RecipeError: a split with less than one sample.
    """

    name, suffix = "litdata", ".bin"

    shard_name: str = "chunk-0-{number}"

    def index(self, shards: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        chunks = [
            {
                "chunk_bytes": shard["bytes"],
                "chunk_size": shard["samples"],
                "dim": shard["samples"] * self.length,
                "filename": Path(shard["file"]).name,
            }
            for shard in shards
        ]
        config = {
            "chunk_bytes": None,
            "chunk_size": self.shard_rows() * self.length,
            "compression": None,
            "compression_batch_size": None,
            "compression_level": None,
            "data_format": [INT32],
            "data_spec": ONE_TENSOR,
            "encryption": None,
            "ipc_compression": None,
            "item_loader": "TokensLoader",
            "types": "tensor",
        }
        hashes = "".join(shard["sha256"] for shard in shards)
        return {"chunks": chunks, "config": config, "updated_at": hashlib.sha256(hashes.encode()).hexdigest()}
