# SPDX-License-Identifier: Apache-2.0
"""`line_dedup`: cut lines, paragraphs or sentences, or windows of them, that occurred before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from curation.base.contract import Engine, Frame
from curation.base.errors import counted, near_or_nothing
from curation.base.system.sealed import read_sealed, write_sealed
from curation.kernels.units import UNITS
from curation.stages.base import PATH, CorpusStage, Forecast, Function, NewIndex, Phase, StageSample
from curation.stages.corpus.cutting import store_cuts
from curation.stages.corpus.key_ranges import (
    division_of,
    read_cell,
    reducer_count,
    slice_group,
    slice_group_count,
    write_cells,
)
from curation.stages.corpus.saved_index import SavedIndex, saved_by
from curation.stages.exact import unit_cuts
from curation.stages.exact.unit_blocks import (
    MAX_DOCUMENTS,
    Keys,
    all_blocks,
    block_phases,
    read_range,
    read_units,
)
from curation.stages.exact.unit_index import FOLDER as UNIT_INDEX
from curation.stages.exact.unit_index import known_documents, open_unit_index, unit_index_phases
from curation.stages.exact.unit_keys import COMPARISONS, UnitSettings
from curation.stages.outcome import Corpus, Cuts, Decision, StageCount

COPIES, CUTS = "copies", "cuts"  # phases
HASH = "murmur3_x64_128, high half"
FIRST, NONE = "first", "none"
KEEP = (FIRST, NONE)
COMPARED = {"exact": "unchanged text", "folded": "lower case, digits as 0, without punctuation"}
SEEN_BEFORE = 2  # value of `documents` with which a repetition in one document counts, too
# Bytes per byte of text, for units of 20 bytes: lines of code have 25 to 35 on average, lines of prose more
SCRATCH_SHARE = 16 / 20
INDEX_SHARE = 10 / 20


class LineDedup(CorpusStage, frozen=True, kw_only=True, tag="line_dedup"):
    """Cut lines, paragraphs or sentences, or windows of them, that occurred before. No document is removed.

    unit            `line`: a line of `str.splitlines()`; `paragraph`: adjacent lines with words; `sentence`: as the
                    measure `sentences` counts. A unit is cut with its line end and the white space up to the next one
    window          number of adjacent units that are compared together; all units of a repeated window are cut
    compare         `exact`: compare units unchanged; `folded`: in lower case, with each digit as 0, punctuation as a
                    space and runs of white space as one space. Both without white space at the ends
    min_characters  shorter units (windows) are kept. White space at the ends of units does not count
    documents       2: cut what occurred before, in an earlier document or in the same one; N above 2: cut copies of
                    what at least N different documents have; at most 65,535
    keep            `first`: keep the first copy; `none`: cut all copies

    index           folder `index` of an earlier run with `output: {index: true}` and the same `unit`, `window`,
                    `compare` and `min_characters`. Its documents precede those of this run; "" for none

    Blank units, and windows of blank units, are no copies. Units are compared by 64-bit hashes. A document without a
    cut keeps every byte. If all units of a document are cut, its text is empty.
    """

    function: ClassVar[Function] = Function(
        """Return all rows, without lines (paragraphs, sentences) that occurred before.

        On a Dask frame the call itself reads all text twice, and a third time where it cuts. The rows stay lazy.

            >>> frame = pandas.DataFrame({"text": ["Home. News. One story.", "Home. News. Another one."]})
            >>> curation.line_dedup(frame, unit="sentence")["text"].tolist()
            ['Home. News. One story.', 'Another one.']
        """,
        types={"index": PATH},
    )

    unit: str = "line"
    window: int = 1
    compare: str = "exact"
    min_characters: int = 0
    documents: int = SEEN_BEFORE
    keep: str = FIRST
    index: str = ""

    removes: ClassVar[bool] = False
    finds_duplicates: ClassVar[bool] = False
    cuts_text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, choices in (("unit", UNITS), ("compare", COMPARISONS), ("keep", KEEP)):
            if (value := getattr(self, name)) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}, not {value!r}{near_or_nothing(value, choices)}"
                )
        if self.window < 1:
            about = "It is the number of adjacent units that are compared together"
            raise ValueError(f"window must be at least 1, not {self.window}. {about}")
        if self.min_characters < 0:
            raise ValueError(f"min_characters must be 0 (compare all) or more, not {self.min_characters}")
        if not SEEN_BEFORE <= self.documents <= MAX_DOCUMENTS:
            raise ValueError(
                f"documents must be from 2 (what occurred before) to {MAX_DOCUMENTS:,}, not {self.documents}"
            )

    @property
    def compared(self) -> UnitSettings:
        """The settings that keys depend on."""
        return UnitSettings(self.unit, self.window, self.compare, self.min_characters)

    @property
    def counts_documents(self) -> bool:
        """Whether verdicts depend on the number of documents with a key."""
        return self.documents > SEEN_BEFORE

    def kernels(self) -> tuple[str, ...]:
        return ("unit_spans", "hashes", "leaders", *(() if self.compare == "exact" else ("rewrite",)))

    def check(self, inputs: Sequence[str]) -> None:
        """Raise RecipeError for an index that is missing or has other settings."""
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        return self.open_index().files() if self.index else {}

    def open_index(self) -> SavedIndex:
        """Return the saved index. Raises RecipeError if the index is missing or has other settings."""
        index = open_unit_index(self.index)
        index.check(self._index_settings)
        return index

    @property
    def _index_settings(self) -> dict[str, Any]:
        return {"hash": HASH, **self.compared._asdict()}

    def new_index(self) -> NewIndex:
        return saved_by(unit_index_phases(self.compared), self._index_settings, UNIT_INDEX, has_ids=False)

    def forecast(self, sample: StageSample) -> Forecast:
        """Return the bytes of keys, places and verdicts, at most 16 per unit, and the bytes of an index: keys and their
        numbers of documents."""
        return Forecast(scratch_bytes=SCRATCH_SHARE * sample.text_bytes, index_bytes=INDEX_SHARE * sample.text_bytes)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        return {}

    def phases(self) -> Sequence[Phase]:
        return (
            *block_phases(self.compared, self.counts_documents),
            Phase(COPIES, reducer_count, self._find_copies, durable=True),
            Phase(CUTS, slice_group_count, self._store_cuts, durable=True),
        )

    def _find_copies(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the verdicts about the keys of this task's ranges, one cell per block."""
        blocks, index = all_blocks(corpus), self.open_index() if self.index else None
        found: list[list[np.ndarray]] = [[] for _ in blocks]
        for number in division_of(corpus).cells(task, 1):
            keys = read_range(blocks, number, self.counts_documents)
            verdicts = self._verdicts(engine, keys, index, corpus.threads)
            for pieces, piece in zip(found, np.split(verdicts, keys.starts[1:-1]), strict=False):
                pieces.append(piece)
        write_cells(_verdicts_path(corpus, task), found, len(blocks))

    def _verdicts(self, engine: Engine, found: Keys, index: SavedIndex | None, threads: int) -> np.ndarray:
        """Return a verdict (uint8) about each key of `found`. A key has a verdict for each block that has it."""
        leaders = engine.group_leaders(found.keys[:, None], workers=threads)
        verdict = np.full(len(leaders), unit_cuts.CUT, np.uint8)
        if self.keep == FIRST:
            verdict[leaders == np.arange(len(leaders), dtype=leaders.dtype)] = unit_cuts.FIRST_KEPT
        elif found.documents is None:
            verdict[np.bincount(leaders)[leaders] == 1] = unit_cuts.ONE_KEPT
        known = np.zeros(len(leaders), np.int64) if index is None else known_documents(index, found.keys)
        verdict[known > 0] = unit_cuts.CUT_BY_INDEX
        if found.documents is not None:
            total = np.bincount(leaders, found.documents)
            verdict[total[leaders] + known < self.documents] = unit_cuts.KEPT
        return verdict

    def _store_cuts(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Store the spans to cut of a group of slices, and write how many units are cut."""
        part, division = slice_group(corpus, task), division_of(corpus)
        paths = [_verdicts_path(corpus, reducer) for reducer in range(division.reducers)]
        found, total = [Cuts(*np.zeros((3, 0), np.int64))], unit_cuts.CutUnits()
        for number, block in enumerate(all_blocks(corpus)):
            if block.group != task:
                continue
            places, counts = read_units(block, division.ranges)
            verdicts = np.frombuffer(b"".join(read_cell(path, number) for path in paths), np.uint8)
            cut, by_index = unit_cuts.units_to_cut(places, verdicts, self.window)
            sums = len(places), int(np.count_nonzero(cut)), int(np.count_nonzero(by_index))
            total = total.plus(unit_cuts.CutUnits(*sums))
            documents = part.of(part.rows[block.first : block.last])
            for spans, characters, emptied in unit_cuts.cut_spans(documents, counts, cut, self.compared):
                found.append(spans)
                total = total.plus(unit_cuts.CutUnits(characters=characters, emptied=emptied))
        store_cuts(part, Cuts(*map(np.concatenate, zip(*found, strict=True))))
        write_sealed(_counts_path(corpus, task), list(total))

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        total = unit_cuts.CutUnits()
        for group in range(slice_group_count(corpus)):
            total = total.plus(unit_cuts.CutUnits(*read_sealed(_counts_path(corpus, group))))
        details = total._asdict()
        if self.index:
            details["index_documents"] = self.open_index().documents
        return Decision(details=details)

    def explain(self) -> list[str]:
        what = self.unit if self.window == 1 else f"window of {self.window} {self.unit}s"
        when = "that occurred before" if self.documents == SEEN_BEFORE else f"that {self.documents:,} documents have"
        kept = "keep the first copy" if self.keep == FIRST else "keep no copy"
        shortest = f" of at least {counted(self.min_characters, 'character')}" if self.min_characters else ""
        return [f"cut each {what}{shortest} {when}, {kept}; compare {COMPARED[self.compare]}"]

    def report_lines(self, count: StageCount) -> list[str]:
        details, unit = count.details, self.unit
        share = details["cut"] / details["units"] if details["units"] else 0
        lines = [
            f"{counted(details['cut'], unit)} of {details['units']:,} cut ({share:.1%}), "
            f"{counted(details['characters'], 'character')} in {counted(count.edited, 'document')}; "
            f"{counted(details['emptied'], 'document')} without text now"
        ]
        if "index_documents" in details:
            old = counted(details["index_documents"], "document")
            lines.append(f"{counted(details['by_index'], unit)} of them in the index of {old}")
        return lines


def _verdicts_path(corpus: Corpus, reducer: int) -> Path:
    return corpus.scratch / COPIES / f"{reducer:06d}.bin"


def _counts_path(corpus: Corpus, group: int) -> Path:
    return corpus.scratch / CUTS / f"{group:06d}.json"
