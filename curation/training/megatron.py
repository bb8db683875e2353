# SPDX-License-Identifier: Apache-2.0
"""`MegatronDataset`: samples of fixed length over the documents of `.bin/.idx` pairs, blended by weight."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch.utils.data import Dataset

from curation.base.errors import InputError
from curation.base.system.damage import reading
from curation.base.system.files import read_json
from curation.base.system.html_table import Shown
from curation.tokens.indexed import IndexedReader
from curation.training.positions import check_at_least, fingerprint

EDGE_BYTES = 1 << 20  # bytes at the start and at the end of each pair that enter the fingerprint


class MegatronDataset(Shown, Dataset[torch.Tensor]):
    """Samples of Megatron pairs, by number: int64 tensors of shape (length,), memory-mapped.

    prefixes  one pair, or several to blend: the prefix or either file. Any pair that Megatron reads
    length    tokens of a sample
    weights   weight of each pair, above 0; they are divided by their sum. Default: by size
    samples   number of samples. Default: 0, as many as all pairs have

    Sample k of a pair is its tokens k * length to (k + 1) * length, across documents. An incomplete last sample is
    skipped. Each pair has its share of `samples`, rounded to whole samples, and repeats from its start if it has fewer.
    Numbers are sorted by pair, so shuffle them, as `Loader` does. Unlike in megatron-core, documents in a sample keep
    the order of the file.

    InputError: a missing file, a `length` below 1, `samples` below 0, a weight that is not above 0, another number of
    weights than pairs, or a pair shorter than one sample. IntegrityError: a damaged pair. IndexError: a number outside
    of 0 to `len()` - 1.
    """

    def __init__(
        self, prefixes: str | Path | Sequence[str | Path], length: int, *, weights: Sequence[float] = (),
        samples: int = 0,
    ) -> None:  # fmt: skip
        self.prefixes = [prefixes] if isinstance(prefixes, str | Path) else list(prefixes)
        self.length = check_at_least(1, length, "length")
        self.readers = [IndexedReader(prefix) for prefix in self.prefixes]
        self.sizes = [len(reader.tokens) // length for reader in self.readers]
        self._check(weights)
        shares = list(weights) or [float(size) for size in self.sizes]
        self.counts = apportion(check_at_least(0, samples, "samples") or sum(self.sizes), shares)
        self.ends = np.cumsum(self.counts)
        edges = [_edges(reader) for reader in self.readers]
        self.data = fingerprint("megatron", length, self.counts, edges)

    @classmethod
    def from_blend(cls, path: str | Path, length: int, *, split: str = "train", samples: int = 0) -> Self:
        """Return the data set of a blend file in `tokens/_meta/` of a run.

        path     `blend.txt` (in a run with splits: the train split), or `per_split.json`
        length   tokens of a sample
        split    "train" (default), "valid" or "test"; the last two need `per_split.json`
        samples  number of samples. Default: 0, as many as all pairs have

        InputError: a split without pairs, or a file of another form. IntegrityError: a damaged file. The errors of the
        class are raised too.
        """
        if Path(path).suffix == ".json":
            words = (read_json(Path(path), dict[str, list[str] | None]) or {}).get(split)
            if not words:
                raise InputError(f"{path} has no pairs for split {split!r}. Give a split of the run")
        elif split != "train":
            raise InputError(f"{path} is the train split. Give the per_split.json next to it for split {split!r}")
        else:
            with reading(Path(path)):
                words = Path(path).read_text().split()
        try:
            weights = [float(word) for word in words[::2]]
        except ValueError:
            raise InputError(
                f"{path} starts with {words[:4]}, expected pairs of weight and prefix. Correct the path"
            ) from None
        return cls(words[1::2], length, weights=weights, samples=samples)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def _facts(self) -> dict[str, object]:
        return {"pairs": len(self.readers), "samples": len(self), "length": self.length}

    def __getitem__(self, index: int) -> torch.Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        pair = int(np.searchsorted(self.ends, index, side="right"))
        local = (index - (int(self.ends[pair - 1]) if pair else 0)) % self.sizes[pair]
        tokens = self.readers[pair].tokens[local * self.length : (local + 1) * self.length]
        return torch.from_numpy(tokens.astype(np.int64))

    def _check(self, weights: Sequence[float]) -> None:
        if weights and len(weights) != len(self.prefixes):
            raise InputError(
                f"{len(self.prefixes)} prefixes and {len(weights)} weights. Give one weight for each prefix, or none"
            )
        for prefix, size, weight in zip(self.prefixes, self.sizes, weights or [1.0] * len(self.sizes), strict=True):
            if not (weight > 0 and math.isfinite(weight)):
                raise InputError(
                    f"the weight of {prefix} is {weight}, expected one above 0. Leave the pair out instead"
                )
            if not size:
                raise InputError(f"{prefix} has less than one sample of {self.length} tokens. Leave the pair out")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.prefixes, self.length, self.counts)


def _rebuild(
    kind: type[MegatronDataset], prefixes: list[str | Path], length: int, counts: list[int]
) -> MegatronDataset:
    """Open the data set in another process, which memory-maps the pairs again."""
    dataset = kind(prefixes, length)
    dataset.counts, dataset.ends = counts, np.cumsum(counts)
    dataset.data = fingerprint("megatron", length, counts, [_edges(reader) for reader in dataset.readers])
    return dataset


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Return whole numbers with the sum `total`, in proportion to `shares`, by the largest remainders."""
    exact = [total * share / math.fsum(shares) for share in shares]
    counts = [math.floor(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_remainder[: total - sum(counts)]:
        counts[k] += 1
    return counts


def _edges(reader: IndexedReader) -> list[int]:
    """Return the numbers of sequences and tokens of a pair, and CRCs of the start and end of its `.bin`, to identify
    its content."""
    data = reader.tokens.view(np.uint8)
    return [len(reader), len(reader.tokens), zlib.crc32(data[:EDGE_BYTES]), zlib.crc32(data[-EDGE_BYTES:])]
