# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: of documents with the same text the first stays."""

from __future__ import annotations

import msgspec
import numpy as np

from curation.arrays import positions_of
from curation.contract import TEXT, Engine, Frame
from curation.kernels.rewrite import RewriteSteps
from curation.stages.outcome import Corpus, Duplicates

COMPARISONS = {"exact": RewriteSteps(), "lowercase": RewriteSteps(lowercase=True, whitespace="strip")}


class ExactDedup(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exact_dedup", tag_field="kind"
):
    """Keeps the first document of each text, by a 128-bit hash of its UTF-8 bytes.

    max_characters  compare only so many characters from the start (0: all)
    compare         `exact`: the text as it stands after the stages before; `lowercase`: `text.strip().lower()`
    """

    name: str = ""
    max_characters: int = 0
    compare: str = "exact"

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        if self.compare not in COMPARISONS:
            raise ValueError(f"compare must be one of {', '.join(COMPARISONS)}, not {self.compare!r}")

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        text, _ = engine.rewrite(frame[TEXT], COMPARISONS[self.compare])
        hashes = engine.hash_text(text, self.max_characters)
        return {"high": hashes[:, 0], "low": hashes[:, 1]}

    def decide(self, engine: Engine, corpus: Corpus) -> Duplicates:
        rows = corpus.rows
        keys = np.empty((len(rows), 2), np.uint64)
        for k, name in enumerate(("high", "low")):
            keys[:, k] = corpus.column(name)
        leaders = engine.first_of_group(keys, workers=corpus.workers)
        del keys  # 16 bytes per document
        gone = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
        return Duplicates(rows[gone], rows[leaders[gone]], np.ones(len(gone)), "exact_duplicate")
