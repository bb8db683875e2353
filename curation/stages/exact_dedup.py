# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: keep the first of the documents with the same text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from curation.arrays import positions_of
from curation.contract import TEXT, Engine, Frame
from curation.errors import counted
from curation.kernels.rewrite import RewriteSteps
from curation.stages.base import CorpusStage, Phase, Stage
from curation.stages.exact_index import FOLDER as EXACT
from curation.stages.exact_index import HASHES, find_equal, open_exact_index
from curation.stages.index_tasks import index_phases
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
from curation.stages.saved_index import DESCRIPTION, Matches, SavedIndex, sum_details, write_index

if TYPE_CHECKING:
    import pyarrow as pa

COMPARISONS = {"exact": RewriteSteps(), "lowercase": RewriteSteps(lowercase=True, whitespace="strip")}

COMPARED = {"exact": "unchanged", "lowercase": "stripped and in lower case"}
REASON, INDEX_REASON = "exact_duplicate", "exact_duplicate_of_index"
HASH = "murmur3_x64_128"
INDEX, OWNERS = "index", "owners"  # phases


class ExactDedup(CorpusStage, frozen=True, kw_only=True, tag="exact_dedup"):
    """Keep the first document of each text, by a 128-bit hash of its UTF-8 bytes (murmur3_x64_128).

    max_characters  number of characters (code points) compared, from the start; 0: all
    compare         `exact`: compare the text after earlier stages unchanged; `lowercase`: `text.strip().lower()`

    index           folder `index` of an earlier run with `output: {index: true}` and the same settings. Documents with
                    the text of one in it are removed first, with the reason `exact_duplicate_of_index`; "" for none

    A null equals an empty text. In `removed/` the value is 1 and `duplicate_of` the kept document.
    """

    max_characters: int = 0
    compare: str = "exact"
    index: str = ""

    indexes: ClassVar[bool] = True
    index_folder: ClassVar[str] = EXACT

    def __post_init__(self) -> None:
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        if self.compare not in COMPARISONS:
            raise ValueError(f"compare must be one of {', '.join(COMPARISONS)}, not {self.compare!r}")

    def kernels(self) -> tuple[str, ...]:
        return ("hashes", "leaders", *(() if self.compare == "exact" else ("rewrite",)))

    def check(self, inputs: Sequence[str]) -> None:
        """RecipeError for an index that is missing or has other settings."""
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        if not self.index:
            return {}
        index = self.open_index()
        return {str(index.folder / DESCRIPTION): index.digest}

    def open_index(self) -> SavedIndex:
        """Return the saved index. RecipeError if it is missing or has other settings."""
        index = open_exact_index(self.index)
        index.check(self.index_settings())
        return index

    def index_settings(self) -> dict[str, Any]:
        """Return the settings that a saved index depends on."""
        return {"hash": HASH, "max_characters": self.max_characters, "compare": self.compare}

    def index_bytes(self, documents: float, text_bytes: float) -> float:
        """Return the bytes of hashes and of their documents."""
        return 20 * documents

    def index_phases(self) -> Sequence[Phase]:
        return index_phases([HASHES])

    def write_index(
        self, corpus: Corpus, folder: Path, ids_of: Callable[[np.ndarray], pa.Array], earlier: Sequence[Stage] = ()
    ) -> None:
        """Write the index of all documents of `corpus` to `folder`; see `saved_index.write_index`."""
        write_index(folder, self.index_settings(), corpus, ids_of)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        text, _ = engine.rewrite(frame[TEXT], COMPARISONS[self.compare])
        hashes = engine.hash_text(text, self.max_characters)
        return {"high": hashes[:, 0], "low": hashes[:, 1]}

    def phases(self) -> Sequence[Phase]:
        index = [Phase(INDEX, bundle_count, self._match_index, durable=True)] if self.index else []
        return (
            division_phase(1),
            *index,
            Phase(RUNS, bundle_count, self._write_run, durable=True),
            Phase(OWNERS, owner_count, self._find_duplicates, durable=True),
        )

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the documents of a bundle whose text is in the index."""
        part = bundle(corpus, task)
        matches = find_equal(part, self.open_index())
        matches._replace(position=part.rows[matches.position]).save(_matches_path(corpus, task))

    def _write_run(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the keys of a bundle, without documents whose text is in the index."""
        part = bundle(corpus, task)
        if self.index:
            part = part.of(np.setdiff1d(part.rows, Matches.load(_matches_path(corpus, task)).position))
        write_run(corpus, part, task, [HASHES.columns], skip_zeros=False)

    def _find_duplicates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the duplicates among the keys of an owner and the first row with each key."""
        found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
        for _, keys, rows in read_keys_of(corpus, task, 1, len(HASHES.columns)):
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
        drops = Drops(row, REASON, np.ones(len(row)), partner)
        if not self.index:
            return Decision((drops,))
        matches = [Matches.load(_matches_path(corpus, number)) for number in range(bundle_count(corpus))]
        position, number = (np.concatenate([entry[side] for entry in matches]) for side in range(2))
        folder = str(Path(self.index) / EXACT)
        matched = Drops(position, INDEX_REASON, np.ones(len(position)), number, folder)
        return Decision((drops, matched), details={"index": sum_details(matches)})

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        return [f"keep the first document of each text; compare {text}, {COMPARED[self.compare]}"]

    def report_lines(self, count: StageCount) -> list[str]:
        lines = [f"{counted(count.reasons.get(REASON, 0), 'document')} with the text of an earlier one"]
        if "index" in count.details:
            index = count.details["index"]
            lines.append(f"{index['equal']:,} with the text of one of {index['documents']:,} documents of the index")
        return lines


def _duplicates_path(corpus: Corpus, owner: int) -> Path:
    return corpus.scratch / OWNERS / f"{owner:06d}.bin"


def _matches_path(corpus: Corpus, bundle: int) -> Path:
    return corpus.scratch / INDEX / f"{bundle:06d}.npz"


def _read_all(corpus: Corpus, cell: int) -> np.ndarray:
    """Return a cell of the files of all owners: the duplicates, or the first row with each one's key."""
    pieces = [read_cell(_duplicates_path(corpus, owner), cell) for owner in range(owner_count(corpus))]
    return np.frombuffer(b"".join(pieces), row_type(corpus))
