# SPDX-License-Identifier: Apache-2.0
"""`exact_dedup`: keep the first of the documents with the same text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from curation.arrays import positions_of
from curation.contract import TEXT, Engine, Frame
from curation.errors import counted
from curation.kernels.rewrite import RewriteSteps
from curation.stages.base import PATH, CorpusStage, Function, Phase, Stage
from curation.stages.corpus.index_tasks import index_phases
from curation.stages.corpus.key_ranges import (
    RUNS,
    division_phase,
    read_cell,
    read_keys_of,
    reducer_count,
    row_type,
    slice_group,
    slice_group_count,
    slice_group_starts,
    write_cells,
    write_run,
)
from curation.stages.corpus.saved_index import DESCRIPTION, Matches, SavedIndex, sum_details, write_index
from curation.stages.corpus.stored_drops import matched_drops, stored_drops
from curation.stages.exact.exact_index import FOLDER as EXACT
from curation.stages.exact.exact_index import HASHES, find_equal, open_exact_index
from curation.stages.outcome import Corpus, Decision, StageCount

if TYPE_CHECKING:
    import pyarrow as pa

COMPARISONS = {"exact": RewriteSteps(), "lowercase": RewriteSteps(lowercase=True, whitespace="strip")}

COMPARED = {"exact": "unchanged", "lowercase": "stripped and in lower case"}
REASON, INDEX_REASON = "exact_duplicate", "exact_duplicate_of_index"
HASH = "murmur3_x64_128"
INDEX, DUPLICATES, SORTED = "index", "duplicates", "sorted"  # phases


class ExactDedup(CorpusStage, frozen=True, kw_only=True, tag="exact_dedup"):
    """Keep the first document of each text, by a 128-bit hash of its UTF-8 bytes (murmur3_x64_128).

    max_characters  number of characters (code points) compared, from the start; 0: all
    compare         `exact`: compare the text after earlier stages unchanged; `lowercase`: `text.strip().lower()`

    index           folder `index` of an earlier run with `output: {index: true}` and the same settings. Documents with
                    the text of one in it are removed first, with the reason `exact_duplicate_of_index`; "" for none

    A null equals an empty text. In `removed/` the value is 1 and `duplicate_of` the kept document.
    """

    function: ClassVar[Function] = Function(
        """Return the first row of each distinct text.

        On a Dask frame the call itself reads all text once, for 24 bytes of keys per document. The rows stay lazy.

            >>> frame = pandas.DataFrame({"text": ["one", "two", "one"]})
            >>> curation.exact_dedup(frame)["text"].tolist()
            ['one', 'two']
            >>> curation.exact_dedup(frame, details=True).pairs[["row", "kept_row"]].values.tolist()
            [[2, 0]]
        """,
        details=True,
        types={"index": PATH},
    )

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
        index = [Phase(INDEX, slice_group_count, self._match_index, durable=True)] if self.index else []
        return (
            division_phase(1),
            *index,
            Phase(RUNS, slice_group_count, self._write_run, durable=True),
            Phase(DUPLICATES, reducer_count, self._find_duplicates, durable=True),
            Phase(SORTED, slice_group_count, self._sort_duplicates, durable=True),
        )

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the documents of a slice group whose text is in the index."""
        part = slice_group(corpus, task)
        matches = find_equal(part, self.open_index())
        matches._replace(position=part.rows[matches.position]).save(_matches_path(corpus, task))

    def _write_run(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the keys of a slice group, without documents whose text is in the index."""
        part = slice_group(corpus, task)
        if self.index:
            part = part.of(np.setdiff1d(part.rows, Matches.load(_matches_path(corpus, task)).position))
        write_run(corpus, part, task, [HASHES.columns], skip_zeros=False)

    def _find_duplicates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the duplicates among the keys of a reducer and the first row with each key, by slice group."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for _, keys, rows in read_keys_of(corpus, task, 1, len(HASHES.columns)):
            leaders = engine.group_leaders(keys)
            duplicates = positions_of(leaders != np.arange(len(leaders), dtype=leaders.dtype))
            leaders = leaders[duplicates]
            found.append((rows[duplicates], rows[leaders]))
            del keys, rows, leaders, duplicates  # before the next keys are read
        starts = slice_group_starts(corpus).astype(row_type(corpus))
        bounds = [np.searchsorted(row, starts).tolist() for row, _ in found]

        def cells() -> Iterator[list[np.ndarray]]:
            for number in range(len(starts) - 1):
                spans = [slice(*bound[number : number + 2]) for bound in bounds]
                yield [np.stack([row[span], first[span]], 1) for (row, first), span in zip(found, spans, strict=True)]

        write_cells(_duplicates_path(corpus, task), cells(), len(starts) - 1)

    def _sort_duplicates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the duplicates of a slice group, ascending, and the first row with each one's key."""
        cells = b"".join(read_cell(_duplicates_path(corpus, reducer), task) for reducer in range(reducer_count(corpus)))
        pairs = np.frombuffer(cells, row_type(corpus)).reshape(-1, 2)
        pairs = pairs[np.argsort(pairs[:, 0])]
        write_cells(_sorted_path(corpus, task), [[pairs[:, 0], pairs[:, 1]]], 1)

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        slice_groups = range(slice_group_count(corpus))
        drops = stored_drops(corpus, REASON, (_removed_of(corpus, number) for number in slice_groups))
        if not self.index:
            return Decision((drops,))
        matches = [Matches.load(_matches_path(corpus, number)) for number in slice_groups]
        matched = matched_drops(corpus, INDEX_REASON, Path(self.index) / EXACT, matches)
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


def _duplicates_path(corpus: Corpus, reducer: int) -> Path:
    return corpus.scratch / DUPLICATES / f"{reducer:06d}.bin"


def _matches_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / INDEX / f"{slice_group:06d}.npz"


def _sorted_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / SORTED / f"{slice_group:06d}.bin"


def _removed_of(corpus: Corpus, slice_group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the duplicates of a slice group, ascending, the first row with each one's key, and ones."""
    row, partner = np.frombuffer(read_cell(_sorted_path(corpus, slice_group), 0), row_type(corpus)).reshape(2, -1)
    return row, partner, np.ones(len(row))
