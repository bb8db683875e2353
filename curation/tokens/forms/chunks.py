# SPDX-License-Identifier: Apache-2.0
"""`chunks`: each document is cut into chunks of limited length; a chunk has tokens of one document only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.base.errors import RecipeError, counted
from curation.base.system.damage import damaged, reading
from curation.base.system.steps import each
from curation.tokens.forms import base
from curation.tokens.forms.base import Count, Form
from curation.tokens.forms.documents import Batch, TokenizedDocuments
from curation.tokens.forms.shards import check_counts, entry, load_tensors, open_array, write_array, write_tensor

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
HISTOGRAM_BINS = 16
IGNORED_LABEL = -100  # `ignore_index` of PyTorch's cross entropy


class Lengths(msgspec.Struct):
    """Lengths of the kept chunks in tokens."""

    mean: float
    median: float
    percentiles: dict[str, float]


class ChunksSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""

    chunks: Count
    dropped_chunks: Count
    lengths: Lengths


class Chunks(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`chunks/<split>_NNNNN.ids.npy` with `.lengths.npy`, or `.pt`: a list of LongTensors.

    shard_name    name of shards without suffix, as of `blocks`
    length        maximum tokens of a chunk; the end-of-document token of `tokenizer.append_eod` counts
    min_tokens    minimum tokens of a chunk; shorter chunks are dropped, 1 keeps all
    file_type     `npy`, `pt`, or `auto`: pt if PyTorch is installed, else npy
    shard_chunks  chunks of a shard, which is in memory until it is written; the last shard of a split may have fewer

    `.ids.npy` has the ids of the shard's chunks back to back, uint16 or int32 (the tokenizer's dtype). `.lengths.npy`
    has the tokens of each chunk, int32. RecipeError: a split without chunks.
    """

    name, unit = "chunks", "chunks"
    pads = True
    summary = ChunksSummary

    length: int = 512
    min_tokens: int = 10
    file_type: str = "npy"
    shard_chunks: int = 50_000

    def __post_init__(self) -> None:
        check_counts(self, "length", "min_tokens", "shard_chunks")
        if self.min_tokens > self.length:
            raise ValueError(f"min_tokens ({self.min_tokens}) is above length ({self.length}): nothing would be kept")

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        shard = _Shard(self, folder, split, dtype)
        length_counts = np.zeros(self.length + 1, np.int64)  # chunks of each length, dropped ones included
        batches = each(
            documents, "writing chunks", "document", total=documents.count, worth=lambda batch: len(batch[1])
        )
        for ids, lengths in batches:
            chunk_lengths = cut_lengths(lengths, self.length)
            length_counts += np.bincount(chunk_lengths, minlength=self.length + 1)
            kept = chunk_lengths >= self.min_tokens
            shard.add(ids if kept.all() else ids[np.repeat(kept, chunk_lengths)], chunk_lengths[kept])
        shard.flush()
        if not shard.files:
            raise RecipeError(
                f"{split or 'the run'} has no chunk of at least {self.min_tokens} tokens. Set a smaller "
                "output.chunks.min_tokens"
            )
        dropped = length_counts[: self.min_tokens]
        kept_counts = np.concatenate([np.zeros(len(dropped), np.int64), length_counts[self.min_tokens :]])
        return {
            "files": shard.files,
            "documents": documents.count,
            "chunks": int(kept_counts.sum()),
            "tokens": int(kept_counts @ np.arange(len(kept_counts))),
            "dropped_chunks": int(dropped.sum()),
            "dropped_tokens": int(dropped @ np.arange(len(dropped))),
            "lengths": describe_lengths(kept_counts),
        }

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        return StoredChunks(path, count)

    @classmethod
    def numbers(cls, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return counts summed over splits, and the lengths of the first split. `tail_tokens` counts the tokens of
        dropped chunks, which are the short ends of documents."""
        if not splits:
            return {}
        lengths = splits[0]["lengths"]
        return {
            "chunks": sum(split["chunks"] for split in splits),
            "dropped_chunks": sum(split["dropped_chunks"] for split in splits),
            "tail_tokens": sum(split.get("dropped_tokens", 0) for split in splits),
            "median_chunk_tokens": lengths["median"],
            "mean_chunk_tokens": lengths["mean"],
            "chunk_percentiles": lengths["percentiles"],
        }

    @classmethod
    def lines(cls, splits: Sequence[Mapping[str, Any]]) -> list[str]:
        if not splits:
            return []
        numbers = cls.numbers(splits)
        ranks = ", ".join(f"p{rank} {length}" for rank, length in numbers["chunk_percentiles"].items())
        chunks, dropped = (counted(numbers[name], "chunk") for name in ("chunks", "dropped_chunks"))
        tail = f"; {dropped} with {counted(numbers['tail_tokens'], 'tail token')} dropped"
        shown = tail if numbers["dropped_chunks"] else ""
        return [f"{chunks}, median {numbers['median_chunk_tokens']} tokens ({ranks}){shown}"]


def cut_lengths(lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Return the lengths of all chunks in order (int32), for documents of `lengths` tokens, each at least 1.

    Every chunk has `max_length` tokens, except the last of each document.
    """
    counts = -(-lengths // max_length)
    chunk_lengths = np.full(int(counts.sum(dtype=np.int64)), max_length, np.int32)
    chunk_lengths[np.cumsum(counts, dtype=np.int64) - 1] = lengths - (counts - 1) * max_length
    return chunk_lengths


def describe_lengths(counts: np.ndarray) -> dict[str, Any]:
    """Return mean, median, percentiles and a histogram of lengths. `counts[n]` (int64): chunks of n tokens.

    Percentile p is the smallest length that p percent of the chunks do not exceed.
    """
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


class StoredChunks(Sequence[np.ndarray]):
    """The chunks of a shard: ids of shape (tokens,), memory-mapped.

    `path`: the shard's `.ids.npy` or `.pt`. `count`: its number of chunks, from the manifest. OutputError: a `.pt` file
    without PyTorch. IntegrityError: a damaged file.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.tensors = load_tensors(path) if path.suffix == ".pt" else None
        if self.tensors is None:
            self.ids = open_array(path)
            lengths_path = path.with_suffix("").with_suffix(".lengths.npy")
            lengths = open_array(lengths_path)
            if self.ids.ndim != 1 or self.ids.dtype.kind not in "iu":
                raise damaged(path, f"it has {self.ids.dtype} of shape {self.ids.shape}, expected one row of integers")
            if lengths.shape != (count,) or lengths.dtype.kind not in "iu" or (lengths < 1).any():
                raise damaged(lengths_path, f"expected {count:,} lengths of at least 1")
            self.ends = np.cumsum(np.concatenate([[0], lengths]), dtype=np.int64)
            if self.ends[-1] != len(self.ids):
                raise damaged(
                    lengths_path, f"{len(self.ids):,} ids are in {path.name}, the lengths add up to {self.ends[-1]:,}"
                )
        else:
            with reading(path):
                if len(self.tensors) != count or any(tensor.ndim != 1 for tensor in self.tensors):
                    raise ValueError(f"expected {count:,} rows of ids")

    def __len__(self) -> int:
        return len(self.ends) - 1 if self.tensors is None else len(self.tensors)

    def __getitem__(self, number: Any) -> Any:
        if self.tensors is None:
            return self.ids[self.ends[number] : self.ends[number + 1]]
        return self.tensors[number].numpy()


def pad(chunks: Sequence[np.ndarray], pad_id: int, length: int = 0) -> dict[str, np.ndarray]:
    """Return a padded batch of chunks: int64 arrays of shape (chunks, width).

    input_ids       ids, padded on the right with `pad_id`
    attention_mask  1 for real tokens, 0 for padding
    labels          ids, -100 for padding; the model shifts them by one

    The width is that of the longest chunk, or `length` if above 0; longer chunks are cut.
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
        self.batches: list[Batch] = []
        self.chunks = self.shards = 0
        self.files: list[dict[str, Any]] = []

    def add(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        while len(lengths):
            capacity = self.settings.shard_chunks - self.chunks
            tokens = int(lengths[:capacity].sum(dtype=np.int64))
            self.batches.append((np.array(ids[:tokens]), lengths[:capacity]))
            self.chunks += len(lengths[:capacity])
            ids, lengths = ids[tokens:], lengths[capacity:]
            if self.chunks == self.settings.shard_chunks:
                self.flush()

    def flush(self) -> None:
        if not self.chunks:
            return
        arrays = [ids for ids, _ in self.batches]
        lengths = np.concatenate([chunk_lengths for _, chunk_lengths in self.batches]).astype("<i4")
        self._write(arrays, lengths)
        self.batches, self.chunks, self.shards = [], 0, self.shards + 1

    def _write(self, arrays: list[np.ndarray], lengths: np.ndarray) -> None:
        tokens = int(lengths.sum(dtype=np.int64))
        if self.settings.file_type == "pt":
            path = self.settings.shard_path(self.folder, self.split, self.shards, ".pt")
            write_tensor(path, (tokens,), arrays, lengths)
            self.files.append(entry(path, chunks=len(lengths), tokens=tokens))
            return
        path = self.settings.shard_path(self.folder, self.split, self.shards, ".ids.npy")
        write_array(path, (tokens,), self.dtype, arrays)
        self.files.append(entry(path, chunks=len(lengths), tokens=tokens))
        path = self.settings.shard_path(self.folder, self.split, self.shards, ".lengths.npy")
        write_array(path, (len(lengths),), lengths.dtype, [lengths])
        self.files.append(entry(path))
