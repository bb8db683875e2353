# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: keep the first of the documents with the same text."""

from __future__ import annotations

import numpy as np

from curation.arrays import positions_of
from curation.contract import TEXT, Engine, Frame
from curation.errors import counted
from curation.kernels.rewrite import RewriteSteps
from curation.stages.base import CorpusStage
from curation.stages.outcome import Corpus, Decision, Drops, StageCount

COMPARISONS = {"exact": RewriteSteps(), "lowercase": RewriteSteps(lowercase=True, whitespace="strip")}

COMPARED = {"exact": "unchanged", "lowercase": "stripped and in lower case"}
REASON = "exact_duplicate"


class ExactDedup(CorpusStage, frozen=True, kw_only=True, tag="exact_dedup"):
    """Keep the first document of each text, by a 128-bit hash of its UTF-8 bytes (murmur3_x64_128).

    max_characters  number of characters (code points) compared, from the start; 0: all
    compare         `exact`: compare the text after earlier stages unchanged; `lowercase`: `text.strip().lower()`

    A null equals an empty text. In `removed/` the value is 1 and `duplicate_of` the kept document.
    """

    max_characters: int = 0
    compare: str = "exact"

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        if self.compare not in COMPARISONS:
            raise ValueError(f"compare must be one of {', '.join(COMPARISONS)}, not {self.compare!r}")

    def kernels(self) -> tuple[str, ...]:
        return ("hashes", "leaders", *(() if self.compare == "exact" else ("rewrite",)))

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        text, _ = engine.rewrite(frame[TEXT], COMPARISONS[self.compare])
        hashes = engine.hash_text(text, self.max_characters)
        return {"high": hashes[:, 0], "low": hashes[:, 1]}

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        rows = corpus.rows
        keys = np.empty((len(rows), 2), np.uint64)
        for k, name in enumerate(("high", "low")):
            keys[:, k] = corpus.column(name)
        leaders = engine.group_leaders(keys, workers=corpus.workers)
        del keys  # 16 bytes per document
        duplicates = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
        partner = rows[leaders[duplicates]]
        del leaders
        return Decision((Drops(rows[duplicates], REASON, np.ones(len(duplicates)), partner),))

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        return [f"keep the first document of each text; compare {text}, {COMPARED[self.compare]}"]

    def report_lines(self, count: StageCount) -> list[str]:
        return [f"{counted(count.removed, 'document')} with the text of an earlier one"]
