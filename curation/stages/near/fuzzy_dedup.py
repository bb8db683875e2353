# SPDX-License-Identifier: Apache-2.0
"""`fuzzy_dedup`: keep one document of each group of near-duplicates. MinHash bands find candidates; a check confirms
them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from curation.base.contract import TEXT, Engine, Frame, Text
from curation.base.errors import RecipeError, as_share, counted
from curation.base.system.files import commit_folder, make_folder, temporary_folder
from curation.kernels.permutations import VERSION, constants
from curation.kernels.rewrite import VISIBLE_VERSION
from curation.stages.base import PATH, CorpusStage, Forecast, Function, NewIndex, Phase, StageSample
from curation.stages.corpus.index_tasks import ComparedData, index_phases
from curation.stages.corpus.keep_orders import (
    checked_counts,
    order_key,
    policy_columns,
    shown_policy,
    value_lines,
    value_warnings,
)
from curation.stages.corpus.kept_rows import check_inputs, check_keep, group_sizes, rank_by, weight_of
from curation.stages.corpus.key_ranges import (
    RUNS,
    division_phase,
    reducer_count,
    runs_path,
    slice_group,
    slice_group_count,
    write_run,
)
from curation.stages.corpus.saved_index import (
    IndexMatches,
    SavedIndex,
    find_matches,
    keys_band,
    saved_by,
    sum_details,
)
from curation.stages.corpus.similarity import (
    COMPARISONS,
    ExactContainment,
    ExactJaccard,
    ShingleSettings,
    SignatureJaccard,
    Similarity,
    Unchecked,
    joined_text,
    kernels_of_text,
)
from curation.stages.corpus.stored_drops import count_below, matched_drops, stored_drops
from curation.stages.near import near_groups, near_pairs
from curation.stages.near.bands import RECALL, most_rows, s_curve
from curation.stages.near.common_prefixes import (
    COMMON,
    NONE,
    PAIR_BYTES,
    PREFIXES,
    STEP,
    WithoutPrefix,
    prefix_counts,
    prefix_phases,
)
from curation.stages.near.contained import COMPARED, choose_containing, uncompared_count
from curation.stages.outcome import Corpus, Decision, Drops, StageCount
from curation.stages.words import WORDS_VERSION, check_words, divides

CHOICES = {
    "unit": ("word", "character"),
    "compare": tuple(COMPARISONS),
    "verify": ("exact", "signature", "none"),
    "skip_prefix": PREFIXES,
}
KEEP = ("first", "longest")
SHINGLE_BYTES, BYTES_PER_WORD = 8, 6
SHOWN_JACCARD = 0.5  # start of the S-curve in `explain`
INDEX = "index"  # phase
Task = Callable[[Engine, Corpus, int], None]


class FuzzyDedup(CorpusStage, frozen=True, kw_only=True, tag="fuzzy_dedup"):
    """Keep one document of each group of near-duplicates.

    Two documents are near-duplicates if the Jaccard similarity of their sets of n-grams is at least `threshold`.
    Documents that share a MinHash band are candidates (Broder 1997; Lee et al. 2022). Near-duplicates are joined in
    groups; a group may hold a chain A ~ B ~ C in which A and C are not near-duplicates. If more than 16 documents share
    a band, each is compared with the first one, and with those that share the next bands too. A document with fewer
    words or characters than `ngram` has one n-gram, all of them. A document without words is never a near-duplicate.

    ngram         number of units in an n-gram
    unit          `word` or `character`
    words         what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe. With
                  the last two, texts of scripts without spaces are compared without white space
    compare       `lowercase`: compare `text.lower()`; `exact`: the text unchanged; `folded`: lower case, decimal digits
                  replaced by 0, punctuation (categories P*) by a space; `visible`: as in `decontaminate`
    permutations  number of components of the MinHash signature; 4 bytes each per candidate with `verify: signature`
    seed          seed of the permutations, below 2^64
    threshold     Jaccard similarity in (0, 1]
    bands         number of bands; 0: as many as `permutations` allow
    rows          number of signature components in a band; 0: the largest number that finds 99.5 % of the pairs at the
                  threshold, or `permutations / bands`
    verify        `exact`: compute the Jaccard similarity of candidates, with one more read of their text; `signature`:
                  estimate it from the signatures; `none`: accept all candidates
    keep          document kept of a group. `first`: the first one, by the order of inputs and documents; `longest`: the
                  one with most bytes, then the first; or a list of input names: the first one of the earliest input,
                  where inputs that are not listed come last; or `{highest: COLUMN}` or `{newest: COLUMN}`, as in
                  `exact_dedup`
    contained     lowest share of a removed document's n-grams that the kept one has; 0: do not compute it. Documents
                  with other text, too, stay. Of each group, the first document by `keep` stays, then the first one
                  that it does not contain, and so on; each is compared with at most 16 of them. Needs `verify: exact`
    skip_prefix   `common`: compare documents without the beginning that they share with others, such as the system
                  prompt of dialogues (docs/near_duplicates.md); `none`: compare whole documents
    index         folder `index` of an earlier run with `output: {index: true}` and the same settings. Documents with a
                  near-duplicate in it are removed first, with the reason `near_duplicate_of_index`; "" for none

    In `removed/` the value is the similarity to the kept document: exact, estimated, or null with `verify: none`. It is
    below `threshold` if only a chain joins the two. With `contained` the value is the share.
    """

    function: ClassVar[Function] = Function(
        """Return one row of each group of near-duplicates.

        On a Dask frame the call itself reads all text once, for 8 bytes of keys per band and document, plus 8 per
        document. It computes partitions with candidates a second time, one by one. The rows stay lazy. A list in `keep`
        has values of the column `source`.

            >>> frame = pandas.DataFrame({"text": ["one two three four", "One two three four", "five"]})
            >>> curation.fuzzy_dedup(frame, ngram=2)["text"].tolist()
            ['one two three four', 'five']
            >>> curation.fuzzy_dedup(frame, ngram=2, details=True).pairs[["kept_text", "similarity"]].values.tolist()
            [['one two three four', 1.0]]
        """,
        details=True,
        types={"index": PATH},
    )

    ngram: int = 5
    unit: str = "word"
    words: str = ""
    compare: str = "lowercase"
    permutations: int = 128
    seed: int = 1
    threshold: float = 0.8
    bands: int = 0
    rows: int = 0
    verify: str = "exact"
    keep: str | list[str] | dict[str, str] = "first"
    contained: float = 0
    skip_prefix: str = NONE
    index: str = ""

    # 2: groups of more than 16 are divided by keys before comparisons; 3: `visible`, words; 4: texts are `joined_text`
    revision: ClassVar[int] = 4

    def __post_init__(self) -> None:
        check_words(self.words)
        if self.words and self.unit == "character":
            raise ValueError(
                f"the setting `words: {self.words}` has no effect with `unit: character`. Leave one of the two out"
            )
        for field, allowed in CHOICES.items():
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} must be one of {', '.join(allowed)}, not {getattr(self, field)!r}")
        for field, low in (("ngram", 1), ("permutations", 1), ("bands", 0), ("rows", 0), ("seed", 0)):
            if getattr(self, field) < low:
                raise ValueError(f"{field} must be at least {low}, not {getattr(self, field)}")
        if self.seed >= 2**64:
            raise ValueError(f"seed must be below 2^64, not {self.seed}")
        if not 0 < self.threshold <= 1:
            advice = as_share(self.threshold) or ". It is the Jaccard similarity of near-duplicates"
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}{advice}")
        if not 0 <= self.contained <= 1:
            advice = as_share(self.contained) or ". It is the share of a removed document that the kept one has"
            raise ValueError(f"contained must be from 0 (not used) to 1, not {self.contained:g}{advice}")
        if self.contained and self.verify != "exact":
            raise ValueError(
                f"contained compares all n-grams, and `verify: {self.verify}` does not. Set verify to exact, or leave "
                "out contained"
            )
        if self.index and self.skip_prefix != NONE:
            raise ValueError(
                f"index has n-grams of whole documents, but `skip_prefix: {self.skip_prefix}` leaves out their "
                "beginnings. Leave out one of the two"
            )
        check_keep(self.keep, KEEP)
        bands, rows = self.banding
        if bands * rows > self.permutations or bands == 0:
            raise ValueError(f"{bands or 1} bands of {rows} rows need more than the {self.permutations} permutations")

    @property
    def banding(self) -> tuple[int, int]:
        """Number of bands and of rows per band."""
        if self.rows:
            return self.bands or self.permutations // self.rows, self.rows
        if self.bands:
            return self.bands, max(self.permutations // self.bands, 1)
        rows = most_rows(self.permutations, self.threshold)
        if not rows:
            raise ValueError(
                f"with {self.permutations} permutations no bands find {RECALL:.1%} of the pairs at threshold "
                f"{self.threshold}; raise permutations, or set bands and rows"
            )
        return self.permutations // rows, rows

    def reads(self) -> tuple[str, ...]:
        return policy_columns(self.keep)

    def kernels(self) -> tuple[str, ...]:
        by_check = {"exact": ("shingles", "file_ranges"), "signature": ("signatures",), "none": ()}
        own = kernels_of_text(self.compare, self.words)
        return (*own, "band_keys", "leaders", "pairs", *by_check[self.verify])

    def check(self, inputs: Sequence[str]) -> None:
        """Check `keep` and `index`. Raises RecipeError for an unknown input, or an index that is missing or has other
        settings."""
        check_inputs(self.keep, inputs)
        if self.index:
            self.open_index()

    def files(self) -> dict[str, str]:
        return self.open_index().files() if self.index else {}

    def explain(self) -> list[str]:
        """Return lines with the threshold, the bands, and the probability that bands find a pair, for similarities from
        0.5 on."""
        bands, rows = self.banding
        curve = [(jaccard, share) for jaccard, share in s_curve(bands, rows) if jaccard >= SHOWN_JACCARD]
        lines = [f"  Jaccard {jaccard:.2f}: {share:8.3%} of the pairs" for jaccard, share in curve]
        bound = f"Jaccard similarity of {self.unit} {self.ngram}-grams >= {self.threshold:g}"
        if self.verify == "none":
            bound = f"every pair of {self.unit} {self.ngram}-grams that shares a band, whatever its similarity"
        elif self.verify == "signature":
            bound = f"estimated {bound}"
        only = f"; remove only what the kept one contains to {self.contained:.1%}" if self.contained else ""
        rest = ", without common beginnings" if self.skip_prefix == COMMON else ""
        return [
            f"{bound}{rest}, keep {shown_policy(self.keep)}{only}",
            f"{bands} bands of {rows} rows, which make candidates of",
            *lines,
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        details = count.details
        sizes = [group["documents"] for group in details["largest_groups"]]
        largest = f", the largest of {sizes[0]:,}" if sizes else ""
        compared = f"{counted(details['pairs_compared'], 'pair')} compared"
        lines = [f"{count.removed:,} removed of {counted(details['groups'], 'group')}{largest}; {compared}"]
        if "index" in details:
            index = details["index"]
            pairs, known = counted(index["alike"], "near-duplicate pair"), counted(index["documents"], "document")
            lines.append(f"{pairs} with {known} of the index")
        if "prefix_documents" in details:
            cut, size = details["prefix_documents"], details["prefix_bytes"]
            lines.append(f"{counted(cut, 'document')} compared without a common beginning, {size:,} bytes in all")
        if details.get("uncompared"):
            lines.append(f"{details['uncompared']:,} stay that were compared with {COMPARED} kept ones of their group")
        return lines + value_lines(self.keep, details)

    def warnings(self, count: StageCount) -> list[str]:
        lines = value_warnings(self.keep, count.details, count.documents_in)
        return [f"{self.name or self.kind}: {line}" for line in lines]

    @property
    def settings(self) -> ShingleSettings:
        """The settings of n-grams."""
        return ShingleSettings(COMPARISONS[self.compare], self.ngram, self.unit == "character", self.words)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        order = order_key(engine, frame, self.keep)
        if self.skip_prefix != NONE:  # a later phase makes the band keys, when common beginnings are known
            return order
        keys = self._band_keys(engine, frame[TEXT])
        return {name: keys[:, band] for band, name in enumerate(self._columns())} | order

    def _band_keys(self, engine: Engine, text: Text) -> np.ndarray:
        bands, rows = self.banding
        a, b = constants(bands * rows, self.seed)
        joined = joined_text(engine, text, self.settings)
        return engine.band_keys(joined, self.ngram, self.settings.by_character, a, b, rows)

    def _columns(self) -> list[str]:
        return [f"band_{band:03d}" for band in range(self.banding[0])]

    @property
    def _index_settings(self) -> dict[str, Any]:
        bands, rows = self.banding
        names = ("ngram", "unit", "compare", "permutations", "seed", "threshold", "verify")
        chosen = {name: getattr(self, name) for name in names}
        if divides(self.words):  # an index of an earlier version has no such key
            chosen |= {"words": self.words, "words_version": WORDS_VERSION}
        if self.compare == "visible":
            chosen["compare_version"] = VISIBLE_VERSION
        return chosen | {"bands": bands, "rows": rows, "permutations_version": VERSION}

    def open_index(self) -> SavedIndex:
        """Return the saved index. Raises RecipeError if the index is missing or has other settings."""
        index = SavedIndex(self.index)
        index.check(self._index_settings)
        return index

    def forecast(self, sample: StageSample) -> Forecast:
        """Return the bytes of n-gram hashes or signatures. A hash has 8 bytes; there is one per 6 bytes of text if
        units are words. An index has 12 more bytes per band and document."""
        documents = sample.documents
        per_byte = SHINGLE_BYTES / (1 if self.unit == "character" else BYTES_PER_WORD)
        sizes = {"exact": per_byte * sample.text_bytes, "signature": 4 * self.permutations * documents}
        prefixes = PAIR_BYTES / STEP * sample.text_bytes + 8 * self.banding[0] * documents
        scratch = sizes.get(self.verify, 0) + (prefixes if self.skip_prefix != NONE else 0)
        return Forecast(scratch_bytes=scratch, index_bytes=scratch + 12 * self.banding[0] * documents)

    def new_index(self) -> NewIndex:
        if self.skip_prefix != NONE:
            raise RecipeError(
                "output.index needs n-grams of whole documents, and skip_prefix of fuzzy_dedup leaves some out. "
                "Leave out one of the two"
            )
        joins = {
            "exact": (ExactJaccard.FILES, ExactJaccard.join),
            "signature": (SignatureJaccard.FILES, SignatureJaccard.join),
        }

        def write(engine: Engine, corpus: Corpus, folder: Path) -> None:
            self._write_similarity(engine, corpus, np.arange(len(corpus.rows)), folder)

        bands = [keys_band(band, column) for band, column in enumerate(self._columns())]
        compared = None if self.verify == "none" else ComparedData(joins[self.verify][0], write, joins[self.verify][1])
        return saved_by(index_phases(bands, compared), self._index_settings)

    def phases(self) -> Sequence[Phase]:
        index = [(INDEX, slice_group_count, self._match_index)] if self.index else []
        tasks = [
            *index,
            (RUNS, slice_group_count, self._write_run),
            (near_pairs.PAIRS, reducer_count, self._write_pairs),
            (near_pairs.LARGE_GROUPS, near_pairs.large_group_tasks, self._write_large_group_keys),
            (near_pairs.SPLITS, near_pairs.split_tasks, self._split_large_groups),
            (near_groups.SIMILARITY, slice_group_count, self._write_candidates),
            (near_groups.FIRST_CHECK, slice_group_count, self._check_stars),
            *near_groups.join_phases(),
            (near_groups.JOINED, near_groups.join_tasks, near_groups.write_joined),
            (near_groups.SECOND_CHECK, near_groups.other_tasks, self._check_others),
            *near_groups.group_phases(),
            (near_groups.GROUPS, near_groups.group_tasks, self._write_groups),
            *(
                []
                if self.keep == "first" and not self.contained
                else [(near_groups.REPRESENTATIVES, self._choose_tasks, self._choose_kept)]
            ),
            (near_groups.VALUES, slice_group_count, self._measure),
        ]
        division = division_phase(self.banding[0])
        if self.skip_prefix == NONE:
            return (division, *(Phase(*task, durable=True) for task in tasks))
        found = prefix_phases(self._band_keys, self._columns())
        rest = (Phase(name, count, self._without_prefix(task), durable=True) for name, count, task in tasks)
        return (division, *found, *rest)

    def _without_prefix(self, run: Task) -> Task:
        return lambda engine, corpus, task: run(engine, WithoutPrefix.over(corpus, self._columns()), task)

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the documents of a group of slices that have a near-duplicate in the index."""
        part, index = slice_group(corpus, task), self.open_index()

        def similarities(candidates: np.ndarray) -> tuple[Similarity, Similarity]:
            self._write_similarity(engine, part, candidates, work)
            return self._similarity(engine, work, corpus.threads), self._similarity(engine, index.folder)

        with temporary_folder(corpus.scratch / INDEX / f"{task:06d}") as work:
            matches = find_matches(part, self._columns(), index, self.threshold, similarities, self.contained)
        matches._replace(position=part.rows[matches.position]).save(_matches_path(corpus, task))

    def _write_run(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the keys of a group of slices, without documents that match the index."""
        part = slice_group(corpus, task)
        if self.index:
            part = part.of(np.setdiff1d(part.rows, IndexMatches.load(_matches_path(corpus, task)).position))
        write_run(corpus, part, task, [[column] for column in self._columns()], skip_zeros=True)

    def _write_pairs(self, engine: Engine, corpus: Corpus, task: int) -> None:
        near_pairs.write_pairs(engine, corpus, task, self.banding[0])

    def _write_large_group_keys(self, engine: Engine, corpus: Corpus, task: int) -> None:
        near_pairs.write_large_group_keys(corpus, task, self._columns())

    def _split_large_groups(self, engine: Engine, corpus: Corpus, task: int) -> None:
        near_pairs.split_large_groups(engine, corpus, task, self.banding[0])

    def _write_candidates(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write the data to compare the candidates of a group of slices. Delete the keys of these slices, which are not
        needed any more."""
        rows = near_pairs.candidate_rows(corpus, task)
        with commit_folder(near_groups.similarity_folder(corpus, task)) as folder:
            self._write_similarity(engine, corpus.of(rows), np.arange(len(rows)), folder)
            near_groups.write_candidates(folder, rows)
        runs_path(corpus, task).unlink(missing_ok=True)

    def _check_stars(self, engine: Engine, corpus: Corpus, task: int) -> None:
        near_groups.check_stars(corpus, self._opener(engine, corpus), task, self.threshold)

    def _check_others(self, engine: Engine, corpus: Corpus, task: int) -> None:
        near_groups.check_others(corpus, self._opener(engine, corpus), task, self.threshold)

    def _write_groups(self, engine: Engine, corpus: Corpus, task: int) -> None:
        if self.contained:
            return near_groups.write_members(engine, corpus)
        near_groups.write_groups(engine, corpus, partial(self._kept, engine, corpus))

    def _choose_tasks(self, corpus: Corpus) -> int:
        return slice_group_count(corpus) if self.contained else near_groups.choose_tasks(corpus)

    def _choose_kept(self, engine: Engine, corpus: Corpus, task: int) -> None:
        if not self.contained:
            return near_groups.choose_kept(corpus, task, partial(self._kept, engine, corpus))
        opener = self._opener(engine, corpus, contained=True)
        choose_containing(engine, corpus, task, self.keep, opener, self.contained)

    def _measure(self, engine: Engine, corpus: Corpus, task: int) -> None:
        near_groups.measure(corpus, self._opener(engine, corpus, bool(self.contained)), task)

    def _opener(self, engine: Engine, corpus: Corpus, contained: bool = False) -> Callable[[Path], Similarity]:
        if contained:
            return lambda folder: ExactContainment(engine, folder, corpus.threads)
        return lambda folder: self._similarity(engine, folder, corpus.threads)

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        slice_groups = range(slice_group_count(corpus))
        pieces = (
            (*near_groups.removed_of(corpus, number), near_groups.values_of(corpus, number)) for number in slice_groups
        )
        drops = stored_drops(corpus, "near_duplicate", pieces)
        details = self._details(corpus, drops)
        if not self.index:
            return Decision((drops,), details=details)
        matches = [IndexMatches.load(_matches_path(corpus, number)) for number in slice_groups]
        matched = matched_drops(corpus, "near_duplicate_of_index", self.index, matches)
        return Decision((drops, matched), details=details | {"index": sum_details(matches)})

    def _kept(self, engine: Engine, corpus: Corpus, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return for each of `rows` the position of the row that is kept of its group. `labels` has the groups."""
        if self.keep == "first":
            return labels
        rank = rank_by(weight_of(corpus, rows, self.keep))
        return engine.group_leaders(labels.astype(np.uint64)[:, None], rank, corpus.threads)

    def _write_similarity(self, engine: Engine, corpus: Corpus, documents: np.ndarray, folder: Path) -> None:
        make_folder(folder)
        if self.verify == "exact":
            ExactJaccard.write(engine, corpus, documents, self.settings, folder)
        elif self.verify == "signature":
            permutations = constants(self.permutations, self.seed)
            SignatureJaccard.write(engine, corpus, documents, self.settings, permutations, folder)

    def _similarity(self, engine: Engine, folder: Path, workers: int = 1) -> Similarity:
        """Return the similarity of documents by the files that `_write_similarity` wrote to a folder."""
        if self.verify == "exact":
            return ExactJaccard(engine, folder, workers)
        return SignatureJaccard(folder, self.permutations) if self.verify == "signature" else Unchecked()

    def _details(self, corpus: Corpus, drops: Drops) -> dict[str, Any]:
        bands, rows = self.banding
        compared, alike = near_groups.check_counts(corpus)
        *regrouped, released = near_pairs.large_group_counts(corpus).tolist()
        return {
            "bands": bands,
            "rows": rows,
            "candidates": near_groups.candidate_count(corpus),
            "pairs_compared": compared,
            "pairs_alike": alike,
            "regrouped": regrouped,
            "released": released,
            "removed_by_chain": count_below(drops, self.threshold),
            **(prefix_counts(corpus) if self.skip_prefix != NONE else {}),
            **({"uncompared": uncompared_count(corpus)} if self.contained else {}),
            **group_sizes(corpus, np.asarray(drops.partner)),
            **checked_counts(corpus, self.keep),
        }


def _matches_path(corpus: Corpus, slice_group: int) -> Path:
    return corpus.scratch / INDEX / f"{slice_group:06d}.npz"
