# SPDX-License-Identifier: Apache-2.0
"""`sample_dataset.pt`: the first batches of `chunks/` in the order of the shuffling loader, for inspection."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.base.system.files import commit, file_sha256
from curation.tokens.forms.chunks import StoredChunks, pad
from curation.tokens.forms.stored import open_form, written_manifest
from curation.tokens.ordering import seeded_order

SAMPLE_FILES = ("sample_dataset.pt", "sample_dataset.npz")


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sample_dataset.pt`: the first batches of chunks, in the order of epoch 0 of `curation.training.Loader`.

    batches     number of batches; 0 writes no sample
    batch_size  chunks of a batch; the last batch may have fewer
    fixed       rows have `chunks.length` tokens; else the length of the longest chunk of their batch

    The order depends on the seed of the run. The file is a list of dictionaries of int64 tensors of shape
    (batch_size, row length): `input_ids` (padded on the right with `pad_id`), `attention_mask` (1 real, 0 padding) and
    `labels` (-100 on padding). Without PyTorch the file is `sample_dataset.npz`, with arrays `input_ids_0`, ...
    """

    batches: int = 0
    batch_size: int = 8
    fixed: bool = False

    def __post_init__(self) -> None:
        if self.batches < 0:
            raise ValueError(f"batches must be 0 (no sample) or more, not {self.batches}")
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")


def write_sample(settings: Sample, folder: Path, seed: int) -> dict[str, str]:
    """Write the sample from `chunks/` of a run and return path -> SHA-256, {} for a run without chunks."""
    if not written_manifest(folder / "chunks")["splits"]:
        return {}
    manifest, content = open_form(folder / "chunks", "chunks", "train")
    chunks = _first_chunks(folder / "chunks", content["files"], settings.batches * settings.batch_size, seed)
    length = manifest["settings"]["length"] if settings.fixed else 0
    batches = [
        pad(chunks[first : first + settings.batch_size], int(manifest["pad_id"]), length)
        for first in range(0, len(chunks), settings.batch_size)
    ]
    path = folder / SAMPLE_FILES[0 if find_spec("torch") else 1]
    with commit(path) as temporary, open(temporary, "wb") as file:
        if path.suffix == ".pt":
            import torch

            torch.save([{name: torch.from_numpy(rows) for name, rows in batch.items()} for batch in batches], file)
        else:
            named = {f"{name}_{k}": rows for k, batch in enumerate(batches) for name, rows in batch.items()}
            np.savez(file, **named)  # type: ignore[arg-type]
    return {path.name: file_sha256(path)}


def unwritten_sample(settings: Sample, forms: dict[str, dict[str, Any]]) -> list[str]:
    """Return the report's warnings about the sample. `forms`: form -> manifest."""
    if not settings.batches or forms["chunks"]["splits"]:
        return []
    return ["no sample was written: the run kept no document with tokens, so it has no chunks"]


def _first_chunks(folder: Path, files: Sequence[dict[str, Any]], count: int, seed: int) -> list[np.ndarray]:
    """Return the first chunks of epoch 0. One shard is open at a time."""
    shards = [file for file in files if "chunks" in file]
    ends = np.cumsum([file["chunks"] for file in shards])
    wanted = seeded_order(int(ends[-1]), seed, 0)[:count]
    shard_of = np.searchsorted(ends, wanted, side="right")
    chunks: dict[int, np.ndarray] = {}
    for shard in np.unique(shard_of).tolist():
        first = int(ends[shard]) - shards[shard]["chunks"]
        stored = StoredChunks(folder / shards[shard]["file"], shards[shard]["chunks"])
        chunks |= {k: np.array(stored[k - first]) for k in wanted[shard_of == shard].tolist()}
    return [chunks[k] for k in wanted.tolist()]
