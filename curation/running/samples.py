# SPDX-License-Identifier: Apache-2.0
"""`sample_dataset.pt`: the first batches of the chunks, as the shuffling loader gives them, to look at."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.errors import RecipeError
from curation.files import commit, file_sha256
from curation.packing.forms.shards import open_form
from curation.packing.ordering import mixed_seed, seeded_order

SAMPLE_FILES = ("sample_dataset.pt", "sample_dataset.npz")


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sample_dataset.pt`: a list of the first `batches` of `batch_size` chunks, in the order of epoch 0 of
    `curation.training.Loader` with the seed of the run; each is `input_ids` (padded on the right), `attention_mask`
    (1 real, 0 padding) and `labels` (-100 on padding). Without PyTorch it is `sample_dataset.npz`, with arrays named
    `input_ids_0`, ... `batches: 0` writes none.

    fixed  rows are as long as `chunks.length`; else as the longest of their batch
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
    """Writes the sample from `chunks/` of a run; gives path -> sha256."""
    manifest, content = open_form(folder / "chunks", "chunks", "train")
    pad_id = int(manifest["pad_id"])
    if pad_id < 0:
        raise RecipeError("a sample is padded with the end-of-document token, which the tokenizer lacks. Set pad_id")
    ends = np.cumsum([file["chunks"] for file in content["files"] if "chunks" in file])
    order = seeded_order(int(ends[-1]), mixed_seed(seed, 0))
    wanted = order[: settings.batches * settings.batch_size]
    chunks = _chunks(folder / "chunks", [file for file in content["files"] if "chunks" in file], ends, wanted)
    length = manifest["settings"]["length"] if settings.fixed else 0
    batches = [
        _batch(chunks[first : first + settings.batch_size], pad_id, length)
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


def _chunks(folder: Path, files: list[dict[str, Any]], ends: np.ndarray, wanted: np.ndarray) -> list[np.ndarray]:
    """The chunks of these numbers, in this order; one shard is open at a time."""
    found: dict[int, np.ndarray] = {}
    shards = np.searchsorted(ends, wanted, side="right")
    for shard in np.unique(shards).tolist():
        first = int(ends[shard]) - files[shard]["chunks"]
        path = folder / files[shard]["file"]
        if path.suffix == ".pt":
            import torch

            tensors = torch.load(path, weights_only=True, mmap=True)
            found |= {k: tensors[k - first].numpy() for k in wanted[shards == shard].tolist()}
            continue
        ids = np.load(path, mmap_mode="r")
        stops = np.cumsum(np.load(path.with_name(path.name.replace(".ids.npy", ".lengths.npy"))), dtype=np.int64)
        for k in wanted[shards == shard].tolist():
            start = int(stops[k - first - 1]) if k > first else 0
            found[k] = np.array(ids[start : int(stops[k - first])])
    return [found[k] for k in wanted.tolist()]


def _batch(chunks: list[np.ndarray], pad_id: int, length: int) -> dict[str, np.ndarray]:
    width = length or max(map(len, chunks))
    ids = np.full((len(chunks), width), pad_id, np.int64)
    mask = np.zeros_like(ids)
    for row, chunk in enumerate(chunks):
        ids[row, : len(chunk)] = chunk[:width]
        mask[row, : len(chunk)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": np.where(mask == 1, ids, -100)}
