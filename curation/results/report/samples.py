# SPDX-License-Identifier: Apache-2.0
"""Chooses texts for the report: a few removed documents per reason, kept documents, pairs and groups of duplicates.

Seeded hashes choose the documents, so the choice does not depend on slices and workers. Texts are shortened, so the
report is small even if documents are large.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import batches_by_size, batches_of, load_mapped, seeded_hashes
from curation.base.contract import ID, ROW, TEXT
from curation.record.candidates import MAX_CHARACTERS, held, sample_of
from curation.record.documents import ROW_GROUP_BYTES
from curation.record.locations import LocationTable
from curation.record.lost_groups import (
    GROUP_CHARACTERS,
    KEPT_SAMPLES,
    MIN_DOCUMENTS,
    GroupTotals,
    SampledDocument,
    bounded_columns,
    starts_of,
    warn_of_lost_groups,
    warn_of_strings,
)
from curation.record.masks import row_batches
from curation.record.partitions import Numbering, Partitions, open_partition, rows_at
from curation.record.removed import RemovedRows
from curation.record.source_code import MIN_CODE_DOCUMENTS, prose_stages, warn_of_code
from curation.record.totals import candidates
from curation.results.report.marks import Span, aligned_words, excerpt, removing_spans
from curation.stages.corpus.links import MAX_LINKED, VECTOR_STAGE, find_links, has_chains, jaccard
from curation.stages.outcome import BYTES, StageCount

if TYPE_CHECKING:
    from curation.reading.source_files import Slice
    from curation.record.context import RunContext
    from curation.record.segment_state import SegmentState

# The most frequent reasons get samples: of rules, and of stages that compare documents
MAX_REASONS, MAX_COMPARED = 40, 20
SHOWN_CHARACTERS = 600  # characters shown of a text
SHOWN_WORDS = 400  # words shown of each text of a pair
CONTEXT = 12  # words of a pair before and after a difference
MAX_COMPARED_BYTES = 1 << 20  # maximum size of a text whose Jaccard similarity is computed
SEED = 0


class _Document(NamedTuple):
    """A document of a partition. `text` has at most MAX_CHARACTERS. `whole` is the whole text, or None if it is too
    long to be compared."""

    slice: int
    row: int
    id: str
    text: str
    characters: int
    whole: str | None
    position: int = -1  # row number in the segment


class Sampler(NamedTuple):
    """Draws samples of a run from its parts.

    context    the run
    segments   the folders of all segments
    numbering  the numbers of documents
    locations  the files and lines of documents
    removed    the rows that corpus stages removed
    state      the state of the last segment
    """

    context: RunContext
    segments: Sequence[Path]
    numbering: Numbering
    locations: LocationTable
    removed: Sequence[RemovedRows]
    state: SegmentState

    def collect(self, counts: Sequence[StageCount]) -> dict[str, Any]:
        """Return the texts of the report: `kept`, `removed`, `pairs` and `groups`; empty lists for `samples: 0`."""
        samples = self.context.plan.recipe.report.samples
        groups = [group for rows in self.removed if (group := self._groups(rows, counts, samples))]
        if not samples:
            return {"kept": [], "removed": [], "pairs": [], "groups": groups}
        numbers = {
            (stage, reason): number
            for stage, count in enumerate(counts)
            for reason, number in count.reasons.items()
            if number
        }
        ranked = sorted(numbers, key=lambda key: (-numbers[key], key))
        by_rules = {*[key for key in ranked if not counts[key[0]].compares][:MAX_REASONS]}
        compared = {*[key for key in ranked if counts[key[0]].compares][:MAX_COMPARED]}
        shown = [key for key in ranked if key in by_rules | compared]
        removed = self._by_rules(samples, {*shown})
        pairs: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for rows in self.removed:
            if (key := (rows.stage, rows.reason)) in shown:
                removed[key], pairs[key] = self._duplicates(rows, samples)
        names = self.context.plan.recipe.stage_names

        def entries(name: str, found: dict[tuple[int, str], list[dict[str, Any]]]) -> list[dict[str, Any]]:
            return [
                {"stage": names[key[0]], "reason": key[1], "documents": numbers[key], name: found[key]}
                for key in shown
                if found.get(key)
            ]

        kept = [self._sample(document) for document in self._documents(self.state.partitions, self._kept(samples))]
        return {
            "kept": kept,
            "removed": entries("samples", removed),
            "pairs": entries("pairs", pairs),
            "groups": groups,
        }

    def _candidates(self, samples: int) -> pa.Table:
        tables: list[pa.Table] = []
        for number, segment in enumerate(self.segments):
            for rows in candidates(self.context, number, segment):
                tables = [sample_of(pa.concat_tables([*tables, rows]), samples)]
        return tables[0]

    def warn_of_lost_groups(self, counts: Sequence[StageCount], inputs: Mapping[str, GroupTotals]) -> list[str]:
        """Return the warnings about lost groups, strings in bounded columns, and source code. `inputs` has the counts
        of each input."""
        recipe, removed = self.context.plan.recipe, sum(count.removed for count in counts)
        stages = dict(zip(recipe.stage_names, recipe.stages, strict=True))
        columns = bounded_columns(stages) if removed else {}
        has_groups = removed >= MIN_DOCUMENTS and any(group.kept for group in inputs.values())
        for_prose = prose_stages(stages) if removed >= MIN_CODE_DOCUMENTS else []
        sample = [*self._sampled(counts)] if has_groups or columns or for_prose else []
        lost = warn_of_lost_groups(sample, inputs, stages) if has_groups else []
        return [*warn_of_strings(sample, columns), *warn_of_code(sample, for_prose), *lost]

    def _sampled(self, counts: Sequence[StageCount]) -> Iterator[SampledDocument]:
        """Yield a sample of removed and kept documents, for the warnings about lost groups."""
        rows = self._candidates(held(0))
        seen = Counter(zip(rows.column("stage").to_pylist(), rows.column("reason").to_pylist(), strict=True))
        names = ("slice", ROW, TEXT, "values", "stage", "reason")
        for number, row, *rest in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
            text, values, stage, reason = rest
            weight = counts[stage].reasons[reason] / seen[stage, reason]
            own = self.numbering.slice_of(number, row)
            yield _sampled_one(own, text, values, (counts[stage].name, reason), weight)
        for found in self.removed:
            at = _chosen(found.row, held(0))
            lost = counts[found.stage].name, found.reason
            yield from self._sampled_rows(found.partitions, np.asarray(found.row[at]), lost, len(found.row))
        kept = int(np.count_nonzero(load_mapped(self.state.mask)))
        yield from self._sampled_rows(self.state.partitions, self._kept(KEPT_SAMPLES), None, kept)

    def _sampled_rows(
        self, partitions: Partitions, rows: np.ndarray, lost: tuple[str, str] | None, total: int
    ) -> Iterator[SampledDocument]:
        """Yield the documents at these rows of a segment, which are a sample of `total` documents."""
        rows = np.sort(rows)
        numbers, positions = partitions.locate(rows)
        for number in np.unique(numbers).tolist():
            own, columns, path = numbers == number, self.numbering.slice_of(number, 0).columns, partitions.path(number)
            sizes = np.empty(int(np.count_nonzero(own)), np.int64)
            partitions.read_keys(number, BYTES, rows[own], sizes)
            schema = open_partition(path).select([ROW, TEXT, *columns]).schema
            for batch in batches_by_size(np.cumsum(sizes), ROW_GROUP_BYTES):
                documents = rows_at(path, positions[own][batch], schema)
                places = self.numbering.slices_of(number, documents.column(ROW).to_numpy()).tolist()
                for place, text, values in zip(places, *starts_of(documents, columns), strict=True):
                    yield _sampled_one(self.numbering.slices[place], text, values, lost, total / len(rows))

    def _by_rules(self, samples: int, shown: set[tuple[int, str]]) -> dict[tuple[int, str], list[dict[str, Any]]]:
        """Return samples of documents that row stages removed, by stage and reason."""
        found: dict[tuple[int, str], list[dict[str, Any]]] = {}
        for row in sorted(self._candidates(samples).to_pylist(), key=lambda row: row["hash"]):
            key = row["stage"], row["reason"]
            if key in shown:
                name = self._id(row["slice"], row[ROW], row[ID])
                document = _Document(row["slice"], row[ROW], name, row[TEXT], row["characters"], None)
                facts = {"value": _number(row["value"]), "bound": _number(row["bound"])}
                found.setdefault(key, []).append(self._sample(document, self._spans(*key, document.text)) | facts)
        return found

    def _spans(self, stage: int, reason: str, text: str) -> list[Span]:
        """Return the parts of a text that break the rule for which a row stage removed the text."""
        return removing_spans(self.context.plan.recipe.stages[stage], reason, text)

    def _id(self, number: int, row: int, own: str | None) -> str:
        named = pa.table({ROW: pa.array([row], pa.int64()), ID: pa.array([own], pa.large_string())})
        return str(self.numbering.with_ids(named, number).column(ID)[0].as_py())

    def _sample(self, document: _Document, spans: Sequence[Span] = ()) -> dict[str, Any]:
        text, marks, start = excerpt(document.text, list(spans), SHOWN_CHARACTERS)
        place = self.locations.columns(document.slice, np.array([document.row]))
        return {
            "id": document.id,
            "doc": self.numbering.offset(document.slice) + document.row,
            "source": self.numbering.slice_of(document.slice, document.row).source,
            "file": place["file"][0].as_py(),
            "line": place["line"][0].as_py(),
            "text": text,
            "marks": [list(mark) for mark in marks],
            "start": start,
            "characters": document.characters,
        }

    def _kept(self, samples: int) -> np.ndarray:
        """Return the rows of `samples` kept documents, chosen by a hash."""
        mask = load_mapped(self.state.mask)
        best = np.zeros(0, np.int64)
        for low, high in row_batches(0, len(mask)):
            rows = np.concatenate([best, np.flatnonzero(mask[low:high]) + low])
            best = rows[_chosen(rows, samples)]
        return best

    def _documents(self, partitions: Partitions, rows: np.ndarray) -> Iterator[_Document]:
        """Yield the documents at these rows of a segment, in the order of `rows`."""
        opened, table = -1, pa.table({})
        for at, number, position in zip(
            rows.tolist(), *(values.tolist() for values in partitions.locate(rows)), strict=True
        ):
            if number != opened:  # opening takes as long as the rest
                opened, table = number, open_partition(partitions.path(number)).select([ROW, ID, TEXT])
            row = table.slice(position, 1)
            text = pc.fill_null(row.column(TEXT), "")
            characters = int(pc.utf8_length(text)[0].as_py())
            whole = text[0].as_py() if pc.binary_length(text)[0].as_py() <= MAX_COMPARED_BYTES else None
            start = pc.utf8_slice_codeunits(text, 0, MAX_CHARACTERS)[0].as_py()
            place = row.column(ROW)[0].as_py()
            name = self._id(number, place, row.column(ID)[0].as_py())
            yield _Document(number, place, name, start, characters, whole, at)

    def _duplicates(self, rows: RemovedRows, samples: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return samples of documents that a corpus stage removed: single documents, and pairs with different texts."""
        at = _chosen(rows.row, samples)
        documents, pairs = [], []
        for document, kept_row, value in zip(
            self._documents(rows.partitions, rows.row[at]),
            rows.kept_row[at].tolist(),
            rows.value[at].tolist(),
            strict=True,
        ):
            facts: dict[str, Any] = {"value": _number(value), "bound": None}
            if kept_row < 0 or rows.index_folder:
                documents.append(self._sample(document) | facts)
                continue
            kept = next(self._documents(rows.partitions, np.array([kept_row])))
            if document.text == kept.text and document.characters == kept.characters:
                documents.append(self._sample(document) | facts | {"kept": kept.id})
            else:
                link = self._link(rows, document, kept, value)
                pairs.append(self._pair(rows.stage, document, kept, value) | facts | {"link": link})
        return documents, pairs

    def _link(self, rows: RemovedRows, document: _Document, kept: _Document, value: float) -> dict[str, Any] | None:
        """Return the document through which a chain joins a removed document with the kept one, and its similarity with
        the removed document. None without a chain."""
        settings = msgspec.to_builtins(self.context.plan.recipe.stages[rows.stage])
        if kept.whole is None or not has_chains(settings) or not value < settings["threshold"]:
            return None
        at = np.concatenate([found + low for low, found in _equal(rows.kept_row, kept.position)])
        if len(at) >= MAX_LINKED:
            return None
        members = [kept, *self._documents(rows.partitions, np.asarray(rows.row[at]))]
        if any(member.whole is None for member in members):
            return None
        links = find_links(self.context.engine, settings, [member.whole or "" for member in members])
        own = next(index for index, member in enumerate(members) if member.position == document.position)
        link = links[own]
        return {"id": members[link.position].id, "jaccard": round(link.similarity, 6)} if link else None

    def _pair(self, stage: int, left: _Document, right: _Document, value: float) -> dict[str, Any]:
        similarity = None
        settings = msgspec.to_builtins(self.context.plan.recipe.stages[stage])
        is_by_vectors = settings["kind"] == VECTOR_STAGE
        if left.whole is not None and right.whole is not None and not is_by_vectors:
            own = settings if settings["kind"] == "fuzzy_dedup" else {}
            similarity = round(jaccard(self.context.engine, own, left.whole, right.whole), 6)
        runs, room = [], SHOWN_CHARACTERS
        for mine, other, equal in aligned_words(left.text, right.text, SHOWN_WORDS):
            sides = [" ".join(_context(words) if equal else words)[:room] for words in (mine, other)]
            runs.append([*sides, equal])
            room -= max(map(len, sides))
            if room <= 0:
                break
        cut = max(left.characters, right.characters) > SHOWN_CHARACTERS
        cosine = _number(value) if is_by_vectors else None
        return {
            "id": left.id, "kept": right.id, "jaccard": similarity, "cosine": cosine, "runs": runs, "cut": cut,
        }  # fmt: skip

    def _groups(self, rows: RemovedRows, counts: Sequence[StageCount], samples: int) -> dict[str, Any] | None:
        """Return the sizes of the groups of duplicates of a corpus stage, and its largest group; None without
        groups."""
        kept = np.sort(rows.kept_row[rows.kept_row >= 0])
        if rows.index_folder or not len(kept):
            return None
        starts = np.flatnonzero(np.append(True, kept[1:] != kept[:-1]))
        sizes = np.diff(np.append(starts, len(kept))) + 1
        powers = np.bincount(np.ceil(np.log2(sizes)).astype(np.int64))
        largest = int(np.argmax(sizes))
        document = next(self._documents(rows.partitions, kept[starts[largest : largest + 1]]))
        shown = self._sample(document) if samples else {"id": document.id}
        return {
            "stage": counts[rows.stage].name,
            "groups": len(sizes),
            "sizes": [[int(power), int(number)] for power, number in enumerate(powers.tolist()) if number],
            "largest": int(sizes[largest]),
            "document": shown,
        }


def _chosen(rows: np.ndarray, samples: int) -> np.ndarray:
    """Return the positions of the rows with the smallest seeded hashes, in the order of the hashes."""
    best = np.zeros(0, np.int64)
    hashes = np.zeros(0, np.uint64)
    for batch in batches_of(len(rows)):
        at = np.concatenate([best, np.arange(batch.start, batch.stop)])
        found = np.concatenate([hashes, seeded_hashes(rows[batch], SEED)])
        order = np.argpartition(found, samples)[:samples] if len(found) > samples else np.arange(len(found))
        order = order[np.argsort(found[order])]
        best, hashes = at[order], found[order]
    return best


def _equal(rows: np.ndarray, row: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the positions in `rows` that hold the number `row`, batch by batch. Each item is the start of a batch, and
    positions relative to this start."""
    for batch in batches_of(len(rows)):
        yield batch.start, np.flatnonzero(rows[batch] == row)


def _context(words: list[str]) -> list[str]:
    """Return a run of words that two texts share. In a long run, a mark replaces the words far from both ends."""
    return words if len(words) <= 3 * CONTEXT else [*words[:CONTEXT], "[…]", *words[-CONTEXT:]]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _sampled_one(
    own: Slice, text: str, values: Sequence[str | None], lost: tuple[str, str] | None, weight: float
) -> SampledDocument:
    return SampledDocument(
        own.source, text[:GROUP_CHARACTERS], dict(zip(own.columns, values, strict=True)), lost, weight
    )  # fmt: skip
