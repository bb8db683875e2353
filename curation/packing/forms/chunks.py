# SPDX-License-Identifier: Apache-2.0
"""`chunks`: every document by itself, cut into pieces of at most N tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.errors import RecipeError, counted
from curation.packing.forms.base import Count, Form
from curation.packing.forms.documents import Batch, Documents
from curation.packing.forms.shards import check_counts, entry, require_torch, shard_path, write_array, write_tensor

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
HISTOGRAM_BINS = 16
IGNORED_LABEL = -100  # what PyTorch's cross entropy passes over


class Lengths(msgspec.Struct):
    mean: float
    median: float
    percentiles: dict[str, float]


class Summary(msgspec.Struct):
    chunks: Count
    dropped_chunks: Count
    lengths: Lengths


class Chunks(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`chunks/<split>_NNNNN.ids.npy` with `.lengths.npy`, or `.pt`: a list of LongTensors.

    length        tokens of a chunk at most; the end-of-document token of `tokenizer.append_eod` counts
    min_tokens    shorter chunks go; 1 keeps all
    file_type     `npy`, `pt`, or `auto`: pt where PyTorch is installed
    shard_chunks  chunks of a shard, which is held in memory while it is written
    """

    name = "chunks"
    pads = True
    summary = Summary

    length: int = 512
    min_tokens: int = 10
    file_type: str = "npy"
    shard_chunks: int = 50_000

    def __post_init__(self) -> None:
        check_counts(self, "length", "min_tokens", "shard_chunks")
        if self.min_tokens > self.length:
            raise ValueError(f"min_tokens ({self.min_tokens}) is above length ({self.length}): nothing would be kept")

    def write(self, documents: Documents, folder: Path, split: str, dtype: np.dtype, pad_id: int) -> dict[str, Any]:
        shard = _Shard(self, folder, split, dtype)
        seen = np.zeros(self.length + 1, np.int64)  # chunks of each length, the dropped ones too
        for ids, lengths in documents:
            pieces = cut_lengths(lengths, self.length)
            seen += np.bincount(pieces, minlength=self.length + 1)
            kept = pieces >= self.min_tokens
            shard.add(ids if kept.all() else ids[np.repeat(kept, pieces)], pieces[kept])
        shard.flush()
        if not shard.files:
            raise RecipeError(
                f"{split or 'the run'} has no chunk of at least {self.min_tokens} tokens. Lower "
                "output.chunks.min_tokens"
            )
        dropped = seen[: self.min_tokens]
        kept_counts = np.concatenate([np.zeros(len(dropped), np.int64), seen[self.min_tokens :]])
        return {
            "files": shard.files,
            "documents": documents.count,
            "chunks": int(kept_counts.sum()),
            "tokens": int(kept_counts @ np.arange(len(kept_counts))),
            "dropped_chunks": int(dropped.sum()),
            "dropped_tokens": int(dropped @ np.arange(len(dropped))),
            "lengths": describe_lengths(kept_counts),
        }

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Splits are added up; lengths are those of the train side."""
        if not splits:
            return {}
        lengths = splits[0]["lengths"]
        return {
            "chunks": sum(split["chunks"] for split in splits),
            "dropped_chunks": sum(split["dropped_chunks"] for split in splits),
            "median_chunk_tokens": lengths["median"],
            "mean_chunk_tokens": lengths["mean"],
            "chunk_percentiles": lengths["percentiles"],
        }

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        if not splits:
            return []
        found = cls.numbers(splits)
        ranks = ", ".join(f"p{rank} {length}" for rank, length in found["chunk_percentiles"].items())
        return [f"{counted(found['chunks'], 'chunk')}, median {found['median_chunk_tokens']} tokens ({ranks})"]


def cut_lengths(lengths: np.ndarray, longest: int) -> np.ndarray:
    """The lengths of the chunks of documents of `lengths` tokens, in order: all `longest` but each document's last."""
    counts = -(-lengths // longest)
    pieces = np.full(int(counts.sum(dtype=np.int64)), longest, np.int32)
    pieces[np.cumsum(counts, dtype=np.int64) - 1] = lengths - (counts - 1) * longest
    return pieces


def describe_lengths(counts: np.ndarray) -> dict[str, Any]:
    """Mean, percentiles (the smallest length that so many percent do not exceed) and a histogram, where `counts[n]`
    chunks have n tokens."""
    total = int(counts.sum())
    reached = np.cumsum(counts)
    ranks = {p: int(np.searchsorted(reached, max(1, -(-p * total // 100)))) for p in PERCENTILES}
    width = -(-(len(counts) - 1) // HISTOGRAM_BINS)
    bins = [(low, min(low + width - 1, len(counts) - 1)) for low in range(1, len(counts), width)]
    return {
        "mean": round(float(counts @ np.arange(len(counts))) / total, 3),
        "median": ranks[50],
        "percentiles": {str(p): length for p, length in ranks.items()},
        "histogram": [{"from": a, "to": b, "chunks": int(counts[a : b + 1].sum())} for a, b in bins],
    }


def open_shard(path: Path) -> Callable[[int], np.ndarray]:
    """Gives the chunks of a shard by number, memory-mapped; `path` is its `.ids.npy` or `.pt`."""
    if path.suffix == ".pt":
        tensors = require_torch(f"reading {path.name}").load(path, weights_only=True, mmap=True)
        return lambda number: tensors[number].numpy()
    ids = np.asarray(np.load(path, mmap_mode="r"))  # memmap's own indexing is slow
    ends = np.cumsum(np.load(path.with_name(path.name.replace(".ids.npy", ".lengths.npy"))), dtype=np.int64)
    return lambda number: ids[ends[number - 1] if number else 0 : ends[number]]


def pad(chunks: Sequence[np.ndarray], pad_id: int, length: int = 0) -> dict[str, np.ndarray]:
    """A batch of chunks of different lengths: `input_ids` padded on the right with `pad_id`, `attention_mask` (1 real,
    0 padding), `labels` (the ids, -100 on padding; the shift by one is the model's).

    As wide as the longest chunk, or exactly `length`; what is longer is cut.
    """
    ids = np.full((len(chunks), length or max(map(len, chunks))), pad_id, np.int64)
    mask = np.zeros_like(ids)
    for row, chunk in enumerate(chunks):
        ids[row, : len(chunk)] = chunk[: ids.shape[1]]
        mask[row, : len(chunk)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": np.where(mask == 1, ids, IGNORED_LABEL)}


class _Shard:
    """Collects chunks and writes a shard whenever it is full."""

    def __init__(self, settings: Chunks, folder: Path, split: str, dtype: np.dtype) -> None:
        self.settings, self.folder, self.split, self.dtype = settings, folder, split, dtype
        self.waiting: list[Batch] = []
        self.chunks = self.shards = 0
        self.files: list[dict[str, Any]] = []

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        while len(lengths):
            room = self.settings.shard_chunks - self.chunks
            tokens = int(lengths[:room].sum(dtype=np.int64))
            self.waiting.append((np.array(ids[:tokens]), lengths[:room]))
            self.chunks += len(lengths[:room])
            ids, lengths = ids[tokens:], lengths[room:]
            if self.chunks == self.settings.shard_chunks:
                self.flush()

    def flush(self) -> None:
        if not self.chunks:
            return
        pieces = [ids for ids, _ in self.waiting]
        lengths = np.concatenate([found for _, found in self.waiting]).astype("<i4")
        self._write(pieces, lengths)
        self.waiting, self.chunks, self.shards = [], 0, self.shards + 1

    def _write(self, pieces: list[np.ndarray], lengths: np.ndarray) -> None:
        tokens = int(lengths.sum(dtype=np.int64))
        if self.settings.file_type == "pt":
            path = shard_path(self.folder, self.split, self.shards, ".pt")
            write_tensor(path, (tokens,), pieces, lengths)
            self.files.append(entry(path, chunks=len(lengths), tokens=tokens))
            return
        path = shard_path(self.folder, self.split, self.shards, ".ids.npy")
        write_array(path, (tokens,), self.dtype, pieces)
        self.files.append(entry(path, chunks=len(lengths), tokens=tokens))
        path = shard_path(self.folder, self.split, self.shards, ".lengths.npy")
        write_array(path, (len(lengths),), lengths.dtype, [lengths])
        self.files.append(entry(path))
