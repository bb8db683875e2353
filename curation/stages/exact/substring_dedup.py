# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup`: cut spans of bytes that occurred before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from curation.base.arrays import load_mapped, save_array
from curation.base.contract import Engine, Frame
from curation.base.errors import counted, nearest
from curation.base.system.files import commit
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.terminal import short_number
from curation.stages.base import (
    PATH,
    SHOWN_COUNTS,
    CorpusStage,
    Forecast,
    Function,
    NewIndex,
    Phase,
    Stage,
    StageSample,
)
from curation.stages.corpus.cutting import store_cuts
from curation.stages.corpus.key_ranges import slice_group, slice_group_count
from curation.stages.corpus.saved_index import saved_by
from curation.stages.corpus.stored_drops import stored_drops
from curation.stages.exact.span_blocks import LEVELS, blocks_of, count_records, repeated_mask, span_phases
from curation.stages.exact.span_counts import (
    add_lengths,
    count_by_length,
    entries_path,
    frequent_phase,
    frequent_spans,
    length_names,
    write_entries,
)
from curation.stages.exact.span_cuts import BOUNDS, CHARACTERS, CutSpans, cut_documents
from curation.stages.exact.span_index import DOCUMENT_BYTES, RECORD_BYTES, SETTINGS, SpanIndex, span_index_phases
from curation.stages.exact.span_index import FOLDER as SPAN_INDEX
from curation.stages.outcome import Corpus, Cuts, Decision, StageCount

MIN_ANCHORS = 10_000  # with fewer anchors, their number per byte says nothing
ANCHORS = 4  # per `length` bytes of text, about
MANY_ANCHORS = 16  # per `length` bytes; usual text has about 4, or one per document
CUTS, REASON = "cuts", "too_little_left"  # phase; reason in `removed/`
HASH, BYTES = VERIFY = ("hash", "bytes")
SHOWN_SPANS, SHOWN_CHARACTERS = 3, 80  # frequent spans in the report, and characters of each
MIN_LENGTH, MAX_LENGTH = 32, (1 << 16) - 1
# Bytes of files per byte of text, for the worst text: copies in which single bytes differ. The three numbers are for a
# short, any and a long `length`. Other text needs a third. The estimate of the disk takes 0.65 of what a stage
# announces
MOST_SCRATCH, SCRATCH_BYTES, LEAST_SCRATCH, ESTIMATED = 13, 560, 1.1, 0.65
VERIFIED_BYTES = 1.8  # per byte of text, more with `verify: bytes`


class SubstringDedup(CorpusStage, frozen=True, kw_only=True, tag="substring_dedup"):
    """Cut bytes of text that occurred before, wherever at least `length` bytes repeat. The first copy stays.

    length     bytes of UTF-8 that must repeat, from 32 to 65,535; 200 are about 50 tokens of English
    bounds     `characters`: cut whole characters; `lines` or `sentences`: cut only lines or sentences of which all
               bytes repeat, each with the line end or white space up to the next one
    join       also cut up to this many bytes between two cuts; 0: none
    min_kept   remove a document that is cut and keeps fewer characters; 0: none
    verify     `hash`: two sequences are equal if hashes of 128 bits of them are; `bytes`: if their bytes are, for text
               that somebody may have made so that different sequences have one hash
    index      folder `index` of an earlier run with `output: {index: true}` and the same `length`. The documents that
               reached its stage precede those of this run; "" for none

    A byte is cut if it is in `length` consecutive bytes of its document, and an equal sequence begins at an earlier
    place of the corpus: in an earlier document, or earlier in the same one. Bytes are compared unchanged, by hashes of
    128 bits. A document without a cut keeps every byte. If everything is cut, the text is empty.
    """

    function: ClassVar[Function] = Function(
        """Return all rows, without spans of text that occurred before; with `min_kept`, fewer rows.

        On a Dask frame the call itself reads all text twice, and parts of it twice more. The rows stay lazy.

            >>> licence = "Copies of this text are permitted if they are complete."
            >>> frame = pandas.DataFrame({"text": [licence + " One.", "Two. " + licence]})
            >>> curation.substring_dedup(frame, length=32)["text"].tolist()
            ['Copies of this text are permitted if they are complete. One.', 'Two. ']
        """,
        types={"index": PATH},
    )

    length: int = 200
    bounds: str = CHARACTERS
    join: int = 0
    min_kept: int = 0
    verify: str = HASH
    index: str = ""

    finds_duplicates: ClassVar[bool] = False
    cuts_text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not MIN_LENGTH <= self.length <= MAX_LENGTH:
            about = "Shorter sequences repeat by chance" if self.length < MIN_LENGTH else "Longer ones are rare"
            raise ValueError(
                f"length must be from {MIN_LENGTH} to {MAX_LENGTH:,} bytes, not {self.length}. {about}; 200 bytes are "
                "about 50 tokens"
            )
        if self.bounds not in BOUNDS:
            raise ValueError(
                f"bounds must be one of {', '.join(BOUNDS)}, not {self.bounds!r}{nearest(self.bounds, BOUNDS)}"
            )
        if self.join < 0:
            raise ValueError(f"join must be 0 (cut only repeated bytes) or more bytes, not {self.join}")
        if self.verify not in VERIFY:
            raise ValueError(
                f"verify must be one of {', '.join(VERIFY)}, not {self.verify!r}{nearest(self.verify, VERIFY)}"
            )
        if self.min_kept < 0:
            raise ValueError(f"min_kept must be 0 (remove no document) or more characters, not {self.min_kept}")

    def kernels(self) -> tuple[str, ...]:
        verified = ("leaders", "file_ranges") if self.verify == BYTES else ()
        return ("span_records", "span_masks", *verified, *(("unit_spans",) if BOUNDS[self.bounds] else ()))

    def check(self, inputs: Sequence[str]) -> None:
        """Raise RecipeError for an index that is missing or has another length."""
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        return self.open_index().saved.files() if self.index else {}

    def open_index(self) -> SpanIndex:
        """Return the saved index. Raises RecipeError if the index is missing or has another length."""
        index = SpanIndex(self.index)
        index.saved.check(self._index_settings)
        return index

    @property
    def _index_settings(self) -> dict[str, Any]:
        return {**SETTINGS, "length": self.length}

    def new_index(self) -> NewIndex:
        phases = span_index_phases(self.length, self.verify == BYTES)
        return saved_by(phases, self._index_settings, SPAN_INDEX)._replace(has_removed=True)

    def forecast(self, sample: StageSample) -> Forecast:
        """Return an upper bound of the bytes of records and verdicts, which only texts made to have equal hashes
        exceed; the bytes of texts, anchors and offsets of documents in an index; and a warning about later stages."""
        verified = VERIFIED_BYTES * (self.verify == BYTES)
        per_byte = (min(MOST_SCRATCH, SCRATCH_BYTES / self.length + LEAST_SCRATCH) + verified) / ESTIMATED
        return Forecast(
            scratch_bytes=sample.text_bytes * per_byte,
            index_bytes=sample.text_bytes * (1 + RECORD_BYTES * ANCHORS / self.length)
            + DOCUMENT_BYTES * sample.documents,
            warnings=self._order_warnings(sample.later),
        )

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        return {}

    def phases(self) -> Sequence[Phase]:
        phases = span_phases(self.length, self.verify == BYTES, self.open_index if self.index else None)
        cuts = Phase(CUTS, slice_group_count, self._store_cuts, durable=True)
        return (*phases, cuts, frequent_phase(CUTS))

    def _store_cuts(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Store the spans to cut of a group of slices, and write its rows to remove and the counts of cuts."""
        part, total = slice_group(corpus, task), CutSpans()
        cuts, keys = [Cuts(*np.zeros((3, 0), np.int64))], [np.zeros(0, np.uint64)]
        drops = [np.zeros((2, 0), np.int64)]
        for blocks in zip(*(blocks_of(corpus, level, task) for level in LEVELS), strict=True):
            documents = part.of(part.rows[blocks[0].first : blocks[0].last])
            mask = repeated_mask(corpus, blocks, int(documents.byte_lengths().sum()), self.length)
            for share in cut_documents(documents, mask, self.length, self.bounds, self.join, self.min_kept):
                cuts.append(share.cuts)
                keys.append(share.keys)
                drops.append(np.stack([share.dropped, share.left]))
                total = total.plus(share.found)
        joined = Cuts(*map(np.concatenate, zip(*cuts, strict=True)))
        if self.cuts_text:
            store_cuts(part, joined)
        write_entries(corpus, entries_path(corpus, CUTS, task), joined, np.concatenate(keys))
        with commit(_drops_path(corpus, task)) as path:
            save_array(path, np.concatenate(drops, axis=1))
        write_sealed(
            _counts_path(corpus, task), [list(total), _by_source(part, joined), count_by_length(joined, self.length)]
        )

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        groups = range(slice_group_count(corpus))

        def removed() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for group in groups:
                rows, left = load_mapped(_drops_path(corpus, group))
                yield rows, np.full(len(rows), -1), left

        total, sources, lengths = CutSpans(), dict[str, list[int]](), list[list[int]]()
        for group in groups:
            found, by_source, by_length = read_sealed(_counts_path(corpus, group))
            total, lengths = total.plus(CutSpans(*found)), add_lengths(lengths, by_length)
            for name, sizes in by_source.items():
                sources[name] = [one + more for one, more in zip(sources.get(name, (0, 0)), sizes, strict=True)]
        details = total._asdict() | {"anchors": count_records(corpus, LEVELS[0]), "sources": sources}
        if self.index:
            details["index_documents"] = self.open_index().saved.documents
        details["lengths"] = dict(zip(length_names(self.length, len(lengths)), lengths, strict=True))
        details["frequent"] = frequent_spans(corpus) if _has_report(corpus) else []
        drops = (stored_drops(corpus, REASON, removed()),) if self.min_kept else ()
        return Decision(drops, details=details)

    def explain(self) -> list[str]:
        whole = "" if self.bounds == CHARACTERS else f", in whole {self.bounds}"
        joined = f", and up to {counted(self.join, 'byte')} between two cuts" if self.join else ""
        lines = [f"cut what repeats an earlier {self.length:,} bytes or more{whole}{joined}; keep the first copy"]
        if self.index:
            lines.append(f"the documents of {self.index} precede those of this run")
        if self.verify == BYTES:
            lines.append("compare bytes where hashes are equal")
        if self.min_kept:
            lines.append(f"remove a document that keeps fewer than {counted(self.min_kept, 'character')}")
        return lines

    def _order_warnings(self, later: Sequence[Stage]) -> list[str]:
        names = [stage.name or stage.kind for stage in later if stage.removes]
        if not names:
            return []
        return [
            f"{self.name or self.kind}: {', '.join(names)} after it may remove the only copy of a span that is left. "
            "Put stages that remove documents before it"
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        details = count.details
        share = details["bytes"] / count.bytes_in if count.bytes_in else 0
        lines = [
            f"{counted(details['bytes'], 'byte')} of {count.bytes_in:,} cut ({share:.1%}) in "
            f"{counted(details['spans'], 'span')}, {counted(details['characters'], 'character')} in "
            f"{counted(count.edited, 'document')}; {counted(details['emptied'], 'document')} without text now"
        ]
        if len(details["sources"]) > 1:
            shares = {name: cut / size if size else 0 for name, (cut, size) in details["sources"].items()}
            ranked = sorted(shares, key=lambda name: -shares[name])
            shown = [f"{name} {shares[name]:.1%}" for name in ranked[:SHOWN_COUNTS]]
            rest = [counted(len(ranked) - SHOWN_COUNTS, "other")] if len(ranked) > SHOWN_COUNTS else []
            lines.append(f"bytes cut by input: {', '.join(shown + rest)}")
        if "index_documents" in details:
            lines.append(f"compared with the index of {counted(details['index_documents'], 'document')} too")
        if details["bytes"]:
            found = [f"{name} {size / count.bytes_in:.1%}" for name, (_, size) in details["lengths"].items() if size]
            lines.append(f"bytes cut by length of span: {', '.join(found)}")
        for entry in details["frequent"][:SHOWN_SPANS]:
            text = f": {' '.join(entry['text'].split())[:SHOWN_CHARACTERS]}" if "text" in entry else ""
            lines.append(f"cut {entry['count']:,} times, {counted(entry['bytes'], 'byte')}{text}")
        if self.min_kept:
            lines.append(
                f"{counted(count.removed, 'document')} removed that kept fewer than {self.min_kept:,} characters, "
                f"with the {counted(details['left'], 'character')} that were left"
            )
        return [*lines, *_before_and_after(count)]

    def warnings(self, count: StageCount) -> list[str]:
        anchors = count.details["anchors"]
        if anchors < MIN_ANCHORS or anchors * self.length < MANY_ANCHORS * count.bytes_in:
            return []
        return [
            f"{self.name or self.kind}: the text has a record per {count.bytes_in / anchors:.1f} bytes, expected one "
            f"per {self.length / 4:.0f} or more. It may have been chosen to slow this stage. The cuts are exact; the "
            "stage took more time and disk"
        ]


def _before_and_after(count: StageCount) -> list[str]:
    """Return a line with the amount of text before and after the cuts; no line without cuts. It is in tokens, estimated
    from the tokens per byte of the kept text, or in bytes if no tokens are counted."""
    if not count.edited:
        return []
    if count.tokens_per_byte is None:
        return [f"{count.bytes_in:,} bytes of text before, {count.bytes_out:,} after"]
    before, after = (short_number(round(size * count.tokens_per_byte)) for size in (count.bytes_in, count.bytes_out))
    return [f"about {before} tokens before, {after} after, at {count.tokens_per_byte:.3f} per byte of the kept text"]


def _has_report(corpus: Corpus) -> bool:
    """Return whether a report shows the counts. A frame has no report, so its texts, which might have to be computed
    again, are not read for one."""
    return isinstance(corpus.sources, list)


def _by_source(part: Corpus, cuts: Cuts) -> dict[str, list[int]]:
    """Return for each input the bytes that are cut and all its bytes; empty without a report."""
    sizes: dict[str, list[int]] = {}
    for name, first, last in part.sources if _has_report(part) else ():
        own, spans = (slice(*np.searchsorted(rows, [first, last])) for rows in (part.rows, cuts.row))
        if own.start < own.stop:
            total = sizes.setdefault(name, [0, 0])
            total[0] += int((cuts.stop[spans] - cuts.start[spans]).sum())
            total[1] += int(part.of(part.rows[own]).byte_lengths().sum())
    return sizes


def _drops_path(corpus: Corpus, group: int) -> Path:
    return corpus.scratch / CUTS / f"{group:06d}.npy"


def _counts_path(corpus: Corpus, group: int) -> Path:
    return corpus.scratch / CUTS / f"{group:06d}.json"
