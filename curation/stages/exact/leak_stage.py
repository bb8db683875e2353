# SPDX-License-Identifier: Apache-2.0
"""The phases of `decontaminate`: find the n-grams of candidates, then the common n-grams, then the leaks.

The keys mark the few candidates. Only their texts are read again: all once, to search and count, and those with leaks
once more, to judge them without common n-grams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.arrays import load_mapped, save_array
from curation.base.contract import TEXT, Engine, Frame
from curation.base.system.files import commit
from curation.base.system.sealed import read_sealed, write_sealed
from curation.stages.base import CorpusStage, Outputs, Phase
from curation.stages.corpus.cutting import store_cuts
from curation.stages.corpus.key_ranges import (
    division_phase,
    once,
    slice_group,
    slice_group_count,
)
from curation.stages.corpus.similarity import compared_text, for_texts
from curation.stages.corpus.stored_drops import stored_drops
from curation.stages.corpus.stored_notes import store_notes
from curation.stages.exact.common_ngrams import Hits, NgramDocuments, count_documents, write_hits
from curation.stages.exact.evaluation_items import KEY_WORDS, Evaluation
from curation.stages.exact.leaks import (
    Leak,
    LeakRule,
    LeakSearch,
    find_leaks,
    in_context,
    ngram_in,
    places_in,
    search,
    with_whole_items,
)
from curation.stages.outcome import Corpus, Cuts, Decision

REASON = "contaminated"
HITS, COMMON, JUDGED = "hits", "common", "judged"  # phases
LEAKS = ".leaks"  # JSON lines: a row, its n-grams, and its leaks if no n-gram were common
NOTES = {
    "matched_text": "large_string", "evaluation_set": "string", "evaluation_file": "string", "evaluation_item": "int64",
}  # fmt: skip  # columns of `removed/`
Stored = tuple[list[Leak], bool]  # leaks if no n-gram were common, and whether the document has a common n-gram
SHOWN_COMMON = 10  # common n-grams in the report, one per item


class LeakStage(CorpusStage, frozen=True, kw_only=True):
    """A stage that removes or cuts the leaks of evaluation items."""

    finds_duplicates = False

    def rule_of(self) -> LeakRule:
        """Return the rule that says when a document contains an item."""
        raise NotImplementedError

    def evaluation(self, engine: Engine) -> Evaluation:
        """Return the items to search for, from evaluation texts or from the file that `prepare` saved."""
        raise NotImplementedError

    @property
    def cuts_text(self) -> bool:  # type: ignore[override]  # a stage that only removes documents ends no segment
        """Whether spans are removed, so that the next stages read a changed text."""
        return self.rule_of().removes == "span"

    def outputs(self) -> Outputs:
        return Outputs(notes=NOTES)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        """Return a hash of the compared text of each candidate (a document with a known n-gram), and 0 for other
        documents."""
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        text = compared_text(engine, frame[TEXT], rule.shingles)
        candidates = engine.ngram_hits(text, evaluation.ngrams, rule.ngram)[0] > 0
        if evaluation.keys is not None:
            candidates |= engine.ngram_hits(text, evaluation.keys, KEY_WORDS)[0] > 0
        keys = np.zeros(len(frame), np.uint64)
        if candidates.any():
            compared = engine.filter_rows(engine.with_columns(frame[[TEXT]], {TEXT: text}), candidates)
            keys[candidates] = np.maximum(engine.hash_text(compared[TEXT])[:, 0], 1)
        return {"text": keys}

    def phases(self) -> Sequence[Phase]:
        return (
            division_phase(1),
            Phase(HITS, slice_group_count, self._write_hits, durable=True),
            Phase(COMMON, once, self._write_common, durable=True),
            Phase(JUDGED, slice_group_count, self._judge, durable=True),
        )

    def _size(self, engine: Engine) -> int:
        items = self.evaluation(engine).items
        return len(items.hashes) + len(items.short)

    def _write_hits(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the n-grams of items in the candidates of a group of slices, and the leaks if no n-gram were common."""
        path, part = _path(corpus, HITS, task), slice_group(corpus, task)
        with commit(path.with_suffix(LEAKS)) as temporary, open(temporary, "wb") as file:
            write_hits(path, self._size(engine), self.rule_of().max_documents, self._hits(engine, part, file))

    def _hits(self, engine: Engine, part: Corpus, leaks_file: BinaryIO) -> Iterator[Hits]:
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        keys = part.column("text")
        positions = np.flatnonzero(keys)
        is_copy = np.ones(len(positions), bool)
        is_copy[np.unique(keys[positions], return_index=True)[1]] = False

        def found_in(texts: pa.LargeStringArray) -> list[LeakSearch]:
            return search(engine, _compared(engine, texts, rule), evaluation, rule)

        done = 0
        for batch in for_texts(part, positions, found_in):
            for found in batch:
                row, text = int(part.rows[positions[done]]), int(keys[positions[done]])
                if found.leaks:
                    leaks_file.write(msgspec.json.encode((row, found.ngrams.tolist(), found.leaks)) + b"\n")
                if len(found.ngrams):
                    yield Hits(row, text, bool(is_copy[done]), found.ngrams)
                done += 1

    def _write_common(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write which n-grams are common, and the words of the most frequent common n-grams."""
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        items = evaluation.items
        paths = [_path(corpus, HITS, number) for number in range(slice_group_count(corpus))]
        counted = count_documents(paths, self._size(engine), rule.max_documents)
        owners = np.append(items.first_item, [question.item for question in items.short]).astype(np.int64)
        shown = []
        for ngram in _most_frequent(counted, owners):
            position = np.searchsorted(corpus.rows, np.array([counted.first[ngram]], corpus.rows.dtype))
            [text] = [
                text
                for batch in for_texts(corpus, position, lambda texts: _compared(engine, texts, rule))
                for text in batch
            ]
            place = items.places[owners[ngram]]
            shown.append({
                "documents": int(counted.documents[ngram]), "evaluation_set": items.names[place[0]],
                "item": int(place[2]), "text": ngram_in(engine, text, evaluation, rule, ngram),
            })  # fmt: skip
        with commit(_common_path(corpus)) as temporary:
            save_array(temporary, counted.is_common)
        common = int(np.count_nonzero(counted.is_common))
        write_sealed(_path(corpus, COMMON, 0).with_suffix(".json"), {"common_ngrams": common, "common": shown})

    def _judge(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write for a group of slices the rows to remove with their notes, the spans to cut, and the counts for the
        report."""
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        rows, values, seen = list[int](), list[int](), set[int]()
        counts, samples = Counter[str](), dict[str, str]()
        is_common = load_mapped(_common_path(corpus))
        for part, partition, stored in _stored_leaks(corpus, task, is_common):
            removed, cuts = dict[int, Leak](), list[tuple[int, int, int]]()
            for row, text, leaks in self._decided(engine, part, stored, is_common):
                first = leaks[0]
                name = evaluation.items.names[evaluation.items.places[first.item, 0]]
                seen.update(leak.item for leak in leaks)
                counts[f"{name}/{'documents' if first.counts else 'questions_alone'}"] += 1
                if name not in samples:
                    samples[name] = in_context(text, places_in(text, first.spans[:1], rule.shingles))
                spans = _spans(text, leaks, rule) if self.cuts_text and first.counts else []
                cuts += [(row, *span) for span in spans]
                if first.counts and not spans:
                    removed[row] = first
            if removed:
                store_notes(corpus, partition, np.array([*removed]), _notes([*removed.values()], evaluation), NOTES)
            if cuts:
                store_cuts(part, Cuts(*np.array(cuts, np.int64).T))
            rows += removed
            values += [leak.ngrams for leak in removed.values()]
        path = _path(corpus, JUDGED, task)
        with commit(path.with_suffix(".npy")) as temporary:
            save_array(temporary, np.array([rows, values], np.int64))
        with commit(path.with_suffix(".items.npy")) as temporary:
            save_array(temporary, np.array(sorted(seen), np.int64))
        write_sealed(path.with_suffix(".json"), {"counts": counts, "samples": samples})

    def _decided(
        self, engine: Engine, part: Corpus, stored: Mapping[int, Stored], is_common: np.ndarray
    ) -> Iterator[tuple[int, str, list[Leak]]]:
        """Yield the row, text and leaks of each document with leaks. A leak whose only evidence is common n-grams is
        left out, unless the document has the whole item (`with_whole_items`)."""
        rule, evaluation = self.rule_of(), self.evaluation(engine)

        def judge(texts: pa.LargeStringArray) -> list[list[Leak]]:
            return find_leaks(engine, _compared(engine, texts, rule), evaluation, rule, is_common)

        unsure = [row for row, (_, is_unsure) in stored.items() if is_unsure]
        judged = (leaks for batch in for_texts(part, _positions(part, unsure), judge) for leaks in batch)
        texts = for_texts(part, _positions(part, [*stored]), lambda texts: texts.to_pylist())
        for (row, (leaks, is_unsure)), text in zip(stored.items(), chain.from_iterable(texts), strict=True):
            leaks = with_whole_items(next(judged), leaks, evaluation) if is_unsure else leaks
            if leaks:
                yield row, text or "", leaks

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        items = self.evaluation(engine).items
        paths = [_path(corpus, JUDGED, task) for task in range(slice_group_count(corpus))]
        counts, samples, seen = Counter[str](), dict[str, str](), np.zeros(len(items.places), bool)
        for path in paths:
            facts = read_sealed(path.with_suffix(".json"))
            counts.update(facts["counts"])
            samples = facts["samples"] | samples
            seen[load_mapped(path.with_suffix(".items.npy"))] = True
        sets = []
        for number, name in enumerate(items.names):
            own = items.places[:, 0] == number
            sets.append({
                "name": name, "items": int(np.count_nonzero(own)), "items_seen": int(np.count_nonzero(own & seen)),
                "documents": counts[f"{name}/documents"], "questions_alone": counts[f"{name}/questions_alone"],
                "text": samples.get(name, ""),
            })  # fmt: skip
        pieces = (
            (rows, np.full(len(rows), -1), values)
            for rows, values in (load_mapped(path.with_suffix(".npy")) for path in paths)
        )
        details = {
            "sets": sets,
            "shared_ngrams": items.shared,
            **read_sealed(_path(corpus, COMMON, 0).with_suffix(".json")),
        }
        return Decision((stored_drops(corpus, REASON, pieces),), details=details)


def _stored_leaks(corpus: Corpus, task: int, is_common: np.ndarray) -> Iterator[tuple[Corpus, int, dict[int, Stored]]]:
    """Yield for each partition with leaks in a group of slices: its corpus, its number, and the leaks of each row."""
    starts = corpus.storage.starts

    def entries(file: BinaryIO) -> Iterator[tuple[int, Stored]]:
        for line in file:
            row, ngrams, leaks = msgspec.json.decode(line, type=tuple[int, list[int], list[Leak]])
            yield row, (leaks, bool(is_common[ngrams].any()))

    with open(_path(corpus, HITS, task).with_suffix(LEAKS), "rb") as file:
        for partition, group in groupby(
            entries(file), lambda entry: int(np.searchsorted(starts, entry[0], "right")) - 1
        ):
            yield corpus.between(partition, partition + 1), partition, dict(group)


def _positions(part: Corpus, rows: Sequence[int]) -> np.ndarray:
    return np.searchsorted(part.rows, np.array(rows, part.rows.dtype))


def _compared(engine: Engine, texts: pa.LargeStringArray, rule: LeakRule) -> list[str]:
    text = compared_text(engine, engine.from_arrow(pa.table({TEXT: texts}))[TEXT], rule.shingles)
    return [value or "" for value in engine.to_arrow(text.to_frame(TEXT)).column(TEXT).to_pylist()]


def _most_frequent(counted: NgramDocuments, owners: np.ndarray) -> list[int]:
    """Return the common n-grams that the most documents have, at most one per item."""
    common = np.flatnonzero(counted.is_common)
    common = common[np.lexsort((common, -counted.documents[common]))]
    firsts = np.sort(np.unique(owners[common], return_index=True)[1])[:SHOWN_COMMON]
    ngrams: list[int] = common[firsts].tolist()
    return ngrams


def _spans(text: str, leaks: Sequence[Leak], rule: LeakRule) -> list[tuple[int, int]]:
    """Return the bytes to cut out of a text; none if no letter or digit would be left."""
    places = places_in(text, (span for leak in leaks if leak.counts for span in leak.spans), rule.shingles)
    edges = [0, *(place for pair in places for place in pair), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(edges)]
    if not any(map(str.isalnum, "".join(pieces[::2]))):
        return []
    ends = np.cumsum([len(piece.encode()) for piece in pieces]).tolist()
    return [*zip(ends[0:-1:2], ends[1::2], strict=True)]


def _notes(firsts: Sequence[Leak], evaluation: Evaluation) -> dict[str, Any]:
    """Return the notes of removed documents, one leak per document."""
    items, places = evaluation.items, evaluation.items.places[[leak.item for leak in firsts]]
    columns = (
        [leak.text for leak in firsts], [items.names[place] for place in places[:, 0]],
        [items.files[place] for place in places[:, 1]], places[:, 2],
    )  # fmt: skip
    return dict(zip(NOTES, columns, strict=True))


def _path(corpus: Corpus, phase: str, task: int) -> Path:
    return corpus.scratch / phase / f"{task:06d}"


def _common_path(corpus: Corpus) -> Path:
    return corpus.scratch / COMMON / "is_common.npy"
