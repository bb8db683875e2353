# SPDX-License-Identifier: Apache-2.0
"""The phases of `decontaminate`: the n-grams of candidates, those that are common, and the leaks.

The keys name the few candidates. Only their texts are read again, once to count documents and once to judge.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.arrays import load_mapped, save_array
from curation.contract import TEXT, Engine, Frame
from curation.stages.base import CorpusStage, Phase
from curation.stages.corpus.cutting import store_cuts
from curation.stages.corpus.key_ranges import (
    division_of,
    division_phase,
    once,
    slice_group,
    slice_group_count,
)
from curation.stages.corpus.similarity import compared_text, for_texts
from curation.stages.corpus.stored_drops import stored_drops
from curation.stages.corpus.stored_notes import store_notes
from curation.stages.exact.common_ngrams import Counted, Hits, count_documents, write_hits
from curation.stages.exact.evaluation_items import KEY_WORDS, Evaluation
from curation.stages.exact.leaks import Leak, Rule, find_hits, find_leaks, in_context, ngram_in, places_in
from curation.stages.outcome import Corpus, Cuts, Decision
from curation.system.files import commit
from curation.system.sealed import read_sealed, write_sealed

REASON = "contaminated"
HITS, COMMON, JUDGED = "hits", "common", "judged"  # phases
NOTES = {
    "matched_text": "large_string", "evaluation_set": "string", "evaluation_file": "string", "evaluation_item": "int64",
}  # fmt: skip  # columns of `removed/`
SHOWN_COMMON = 10  # common n-grams in the report, each of another item


class Found(NamedTuple):
    """A document with leaks: its row, its text, and its leaks, the one that decides first."""

    row: int
    text: str
    leaks: list[Leak]


class LeakStage(CorpusStage, frozen=True, kw_only=True):
    """A stage that removes or cuts the leaks of evaluation items."""

    finds_duplicates = False

    def rule_of(self) -> Rule:
        """Return when a document contains an item."""
        raise NotImplementedError

    def evaluation(self, engine: Engine) -> Evaluation:
        """Return the items."""
        raise NotImplementedError

    @property
    def cuts_text(self) -> bool:  # type: ignore[override]  # a stage that removes documents ends no segment
        return self.rule_of().removes == "span"

    def notes(self) -> dict[str, str]:
        return dict(NOTES)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        """Return a hash of the compared text of each candidate, a document with a known n-gram; 0 for the others."""
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        text = compared_text(engine, frame[TEXT], rule.shingles)
        candidates = engine.ngram_hits(text, evaluation.ngrams, rule.ngram)[0] > 0
        if evaluation.keys is not None:
            candidates |= engine.ngram_hits(text, evaluation.keys, KEY_WORDS)[0] > 0
        keys = np.zeros(len(frame), np.uint64)
        if candidates.any():
            compared = engine.filter_rows(engine.with_columns(frame[[TEXT]], {TEXT: text}), candidates)
            keys[candidates] = [_hash(value.as_py() or "") for value in engine.to_arrow(compared).column(TEXT)]
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
        write_hits(
            _path(corpus, HITS, task), self._size(engine), self.rule_of().max_documents,
            self._hits(engine, slice_group(corpus, task)),
        )  # fmt: skip

    def _hits(self, engine: Engine, part: Corpus) -> Iterator[Hits]:
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        keys = part.column("text")
        positions = np.flatnonzero(keys)
        is_copy = np.ones(len(positions), bool)
        is_copy[np.unique(keys[positions], return_index=True)[1]] = False

        def search(texts: pa.LargeStringArray) -> list[np.ndarray]:
            return find_hits(engine, _compared(engine, texts, rule), evaluation, rule)

        done = 0
        for batch in for_texts(part, positions, search):
            for ngrams in batch:
                if len(ngrams):
                    row, text = int(part.rows[positions[done]]), int(keys[positions[done]])
                    yield Hits(row, text, bool(is_copy[done]), ngrams)
                done += 1

    def _write_common(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write which n-grams are common, and the most frequent ones with their words."""
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
        """Write the rows to remove, their notes and the spans to cut of a slice group, and what the report needs."""
        rule, evaluation = self.rule_of(), self.evaluation(engine)
        first, last = division_of(corpus).slice_groups[task : task + 2]
        rows, values, seen = list[int](), list[int](), set[int]()
        counts, samples = Counter[str](), dict[str, str]()
        for partition in range(first, last):
            removed, cuts = list[Found](), list[tuple[int, int, int]]()
            for found in self._leaks(engine, corpus.between(partition, partition + 1)):
                leak = found.leaks[0]
                name = evaluation.items.names[evaluation.items.places[leak.item, 0]]
                seen.update(own.item for own in found.leaks)
                counts[f"{name}/{'documents' if leak.counts else 'questions_alone'}"] += 1
                if name not in samples:
                    samples[name] = in_context(found.text, places_in(found.text, leak.spans[:1], rule.shingles.steps))
                if not leak.counts:
                    continue
                spans = _spans(found, rule) if self.cuts_text else []
                if spans:
                    cuts += [(found.row, *span) for span in spans]
                else:
                    removed.append(found)
            if removed:
                rows_removed = np.array([found.row for found in removed], np.int64)
                store_notes(corpus, partition, rows_removed, _notes(removed, evaluation), NOTES)
            if cuts:
                store_cuts(corpus.between(partition, partition + 1), Cuts(*np.array(cuts, np.int64).T))
            rows += [found.row for found in removed]
            values += [found.leaks[0].ngrams for found in removed]
        path = _path(corpus, JUDGED, task)
        with commit(path.with_suffix(".npy")) as temporary:
            save_array(temporary, np.array([rows, values], np.int64))
        with commit(path.with_suffix(".items.npy")) as temporary:
            save_array(temporary, np.array(sorted(seen), np.int64))
        write_sealed(path.with_suffix(".json"), {"counts": counts, "samples": samples})

    def _leaks(self, engine: Engine, part: Corpus) -> Iterator[Found]:
        """Yield the documents of a part with leaks, in order."""
        rule, evaluation, is_common = self.rule_of(), self.evaluation(engine), load_mapped(_common_path(part))
        positions = np.flatnonzero(part.column("text"))

        def search(texts: pa.LargeStringArray) -> list[tuple[str, list[Leak]]]:
            leaks = find_leaks(engine, _compared(engine, texts, rule), evaluation, rule, is_common)
            return [(text.as_py() or "", own) for text, own in zip(texts, leaks, strict=True)]

        done = 0
        for batch in for_texts(part, positions, search):
            for text, leaks in batch:
                if leaks:
                    yield Found(int(part.rows[positions[done]]), text, leaks)
                done += 1

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


def _hash(text: str) -> int:
    """Return a hash of a text that is not 0."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") or 1


def _compared(engine: Engine, texts: pa.LargeStringArray, rule: Rule) -> list[str]:
    text = compared_text(engine, engine.from_arrow(pa.table({TEXT: texts}))[TEXT], rule.shingles)
    return [value or "" for value in engine.to_arrow(text.to_frame(TEXT)).column(TEXT).to_pylist()]


def _most_frequent(counted: Counted, owners: np.ndarray) -> list[int]:
    """Return the common n-grams that most documents have, one of each item."""
    common = np.flatnonzero(counted.is_common)
    common = common[np.lexsort((common, -counted.documents[common]))]
    firsts = np.sort(np.unique(owners[common], return_index=True)[1])[:SHOWN_COMMON]
    ngrams: list[int] = common[firsts].tolist()
    return ngrams


def _spans(found: Found, rule: Rule) -> list[tuple[int, int]]:
    """Return the bytes to cut out of a text; none if no letter or digit would be left."""
    places = places_in(
        found.text, (span for leak in found.leaks if leak.counts for span in leak.spans), rule.shingles.steps
    )
    edges = [0, *(place for pair in places for place in pair), len(found.text)]
    pieces = [found.text[start:stop] for start, stop in pairwise(edges)]
    if not any(map(str.isalnum, "".join(pieces[::2]))):
        return []
    ends = np.cumsum([len(piece.encode()) for piece in pieces]).tolist()
    return [*zip(ends[0:-1:2], ends[1::2], strict=True)]


def _notes(removed: Sequence[Found], evaluation: Evaluation) -> dict[str, Any]:
    """Return the notes of removed documents."""
    firsts = [found.leaks[0] for found in removed]
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
