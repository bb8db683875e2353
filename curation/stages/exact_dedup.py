# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: keep the first of the documents with the same text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from curation.arrays import positions_of
from curation.contract import TEXT, Engine, Frame
from curation.errors import counted
from curation.kernels.rewrite import RewriteSteps
from curation.stages.base import CorpusStage, Phase
from curation.stages.key_ranges import (
    RUNS,
    bundle,
    bundle_count,
    division_phase,
    owner_count,
    read_cell,
    read_keys_of,
    row_type,
    write_cells,
    write_run,
)
from curation.stages.outcome import Corpus, Decision, Drops, StageCount

COMPARISONS = {"exact": RewriteSteps(), "lowercase": RewriteSteps(lowercase=True, whitespace="strip")}

COMPARED = {"exact": "unchanged", "lowercase": "stripped and in lower case"}
REASON = "exact_duplicate"
COLUMNS = ("high", "low")  # of keys
OWNERS = "owners"  # phase


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

    def phases(self) -> Sequence[Phase]:
        return (
            division_phase(1),
            Phase(RUNS, bundle_count, self._write_run, durable=True),
            Phase(OWNERS, owner_count, self._find_duplicates, durable=True),
        )

    def _write_run(self, engine: Engine, corpus: Corpus, task: int) -> None:
        write_run(corpus, bundle(corpus, task), task, [COLUMNS], skip_zeros=False)

    def _find_duplicates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the duplicates among the keys of an owner and the first row with each key."""
        found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for _, keys, rows in read_keys_of(corpus, task, 1, len(COLUMNS)):
            leaders = engine.group_leaders(keys)
            duplicates = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
            leaders = leaders[duplicates]
            found[0].append(rows[duplicates])
            found[1].append(rows[leaders])
            del leaders, duplicates  # before the next keys are read
        write_cells(_duplicates_path(corpus, task), found, len(found))

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        row, partner = (_read_all(corpus, cell) for cell in range(2))
        order = np.argsort(row)
        row, partner = row[order], partner[order]
        del order  # 8 bytes per duplicate
        return Decision((Drops(row, REASON, np.ones(len(row)), partner),))

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        return [f"keep the first document of each text; compare {text}, {COMPARED[self.compare]}"]

    def report_lines(self, count: StageCount) -> list[str]:
        return [f"{counted(count.removed, 'document')} with the text of an earlier one"]


def _duplicates_path(corpus: Corpus, owner: int) -> Path:
    return corpus.scratch / OWNERS / f"{owner:06d}.bin"


def _read_all(corpus: Corpus, cell: int) -> np.ndarray:
    """Return a cell of the files of all owners: the duplicates, or the first row with each one's key."""
    pieces = [read_cell(_duplicates_path(corpus, owner), cell) for owner in range(owner_count(corpus))]
    return np.frombuffer(b"".join(pieces), row_type(corpus))
