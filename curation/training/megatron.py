# SPDX-License-Identifier: Apache-2.0
"""`MegatronDataset`: samples of fixed length across the documents of `.bin/.idx` pairs, drawn by weight."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import orjson
import torch
from torch.utils.data import Dataset

from curation.errors import InputError
from curation.packing.indexed import IndexedReader
from curation.training.positions import at_least, fingerprint

EDGE_BYTES = 1 << 20  # of each pair that go into the fingerprint, from the start and from the end


class MegatronDataset(Dataset[torch.Tensor]):
    """LongTensors [length] by number: tokens k * length to (k + 1) * length of a pair, whatever documents they belong
    to; the incomplete last sample is passed over. Any pair will do that Megatron reads, by its prefix or either file;
    it is memory-mapped.

    Several pairs are blended: of `samples` samples (0: as many as all pairs have) each pair gives its share of
    `weights` (none: by size), to the nearest sample, and starts anew where it has fewer. Sample numbers stand pair by
    pair: shuffle them (`Loader` does). Unlike megatron-core, documents keep the order of the file inside a sample.

    Raises InputError for a missing file, a length below 1, a weight that is not above 0, or a pair shorter than one
    sample.
    """

    def __init__(
        self, prefixes: str | Path | Sequence[str | Path], length: int, *, weights: Sequence[float] = (),
        samples: int = 0,
    ) -> None:  # fmt: skip
        self.prefixes = [prefixes] if isinstance(prefixes, str | Path) else list(prefixes)
        self.length = at_least(1, length, "length")
        self.readers = [IndexedReader(prefix) for prefix in self.prefixes]
        self.sizes = [len(reader.tokens) // length for reader in self.readers]
        self._check(weights)
        shares = list(weights) or [float(size) for size in self.sizes]
        self.counts = apportion(at_least(0, samples, "samples") or sum(self.sizes), shares)
        self.ends = np.cumsum(self.counts)
        edges = [_edges(reader) for reader in self.readers]
        self.data = fingerprint("megatron", length, self.counts, edges)

    @classmethod
    def from_blend(cls, path: str | Path, length: int, *, split: str = "train", samples: int = 0) -> Self:
        """The blend of a `blend.txt`, which of a run with splits is its train side, or of one split of a
        `per_split.json`."""
        text = Path(path).read_text()
        if Path(path).suffix == ".json":
            words = orjson.loads(text).get(split) or []
            if not words:
                raise InputError(f"{path} has no pairs for split {split!r}")
        elif split != "train":
            raise InputError(f"{path} is the train side; give the per_split.json beside it for split {split!r}")
        else:
            words = text.split()
        try:
            weights = [float(word) for word in words[::2]]
        except ValueError:
            raise InputError(f"{path} must be pairs of weight and prefix, got {words[:4]}") from None
        return cls(words[1::2], length, weights=weights, samples=samples)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        pair = int(np.searchsorted(self.ends, index, side="right"))
        local = (index - (int(self.ends[pair - 1]) if pair else 0)) % self.sizes[pair]
        tokens = self.readers[pair].tokens[local * self.length : (local + 1) * self.length]
        return torch.from_numpy(tokens.astype(np.int64))

    def _check(self, weights: Sequence[float]) -> None:
        if weights and len(weights) != len(self.prefixes):
            raise InputError(f"{len(self.prefixes)} prefixes and {len(weights)} weights; give one for each, or none")
        for prefix, size, weight in zip(self.prefixes, self.sizes, weights or [1.0] * len(self.sizes), strict=True):
            if not (weight > 0 and math.isfinite(weight)):
                raise InputError(f"the weight of {prefix} is {weight}, it must be above 0: leave the pair out instead")
            if not size:
                raise InputError(f"{prefix} has less than one sample of {self.length} tokens; leave it out")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.prefixes, self.length, self.counts)


def _rebuild(
    kind: type[MegatronDataset], prefixes: list[str | Path], length: int, counts: list[int]
) -> MegatronDataset:
    """In another process the pairs are mapped again."""
    made = kind(prefixes, length)
    made.counts, made.ends = counts, np.cumsum(counts)
    made.data = fingerprint("megatron", length, counts, [_edges(reader) for reader in made.readers])
    return made


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """`total` divided by `shares` to whole numbers that add up to it: largest remainders first."""
    exact = [total * share / math.fsum(shares) for share in shares]
    counts = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_remainder[: total - sum(counts)]:
        counts[k] += 1
    return counts


def _edges(reader: IndexedReader) -> list[int]:
    """Enough of a pair to notice that it is another one: sizes, and CRCs of its start and end."""
    data = reader.tokens.view(np.uint8)
    return [len(reader), len(reader.tokens), zlib.crc32(data[:EDGE_BYTES]), zlib.crc32(data[-EDGE_BYTES:])]
