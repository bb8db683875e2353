# SPDX-License-Identifier: Apache-2.0
"""`select`: remove an exact share of the documents by a column of numbers, or keep at most a number of documents per
group."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curation.base.arrays import GOLDEN, split_mix
from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.errors import InputError, as_share, counted
from curation.rules.columns import has_kind, numbers_of, written_numbers
from curation.rules.hosts import domains_of
from curation.stages.base import CorpusStage, Forecast, Function, Phase, StageSample
from curation.stages.corpus.keep_orders import SIGN, as_strings, order_of_floats
from curation.stages.outcome import Corpus, Decision, Drops, StageCount
from curation.stages.shares.rank_bounds import bounds_of, dropped_rows, phases

ORDER, GROUP, SIZE = "order", "group", "size"  # keys
SOURCE = "source"
SHARES = ("drop_lowest", "drop_highest", "keep_lowest", "keep_highest")
SIDES = ("highest", "lowest")
CAP, BUDGET = "max_documents", "max_bytes"
NO_GROUP = 0  # hash of the empty text: the group of documents without a value of `per`, or without a domain
SHOWN_GROUPS = 10  # largest groups in the report
MISSING = np.uint64(0)  # order of a document without a number


class Select(CorpusStage, frozen=True, kw_only=True, tag="select"):
    """Remove an exact share of the documents by a column of numbers, such as a score, or all but some of each group.

    column         column with the numbers, compared as float64. Default: none, only with max_documents
    drop_lowest    share of the documents with the lowest numbers to remove, above 0 and below 1
    drop_highest   share of the documents with the highest numbers to remove
    keep_lowest    share of the documents with the lowest numbers to keep
    keep_highest   share of the documents with the highest numbers to keep
    max_documents  number of documents to keep, of each group or of all
    max_bytes      bytes of text to keep, of each input (`per: source`) or of all: those of the first documents, up to
                   the one that reaches this number, and empty texts right behind it
    keep           the documents that max_documents keeps: with the `highest` numbers in `column`, or the `lowest`.
                   Without `column` they are drawn: those with the highest hash of text and seed
    per            apply the share or number to each `source` (input), or to each value of a column, such as `language`;
                   default: to all documents
    per_domain     column with URLs: apply it to each domain, which is the host of a URL without `www.`
    seed           seed of the draw

    Give exactly one of a share, max_documents and max_bytes. Of n documents, floor(share * n) are removed; with a share
    to keep, floor((1 - share) * n). If numbers are equal, later documents are removed first. Documents without a number
    (null, NaN, a string that is no number) are removed before all others, whatever the direction. With max_documents,
    all documents without a value of `per`, or without a domain, are kept, and the report counts them.
    """

    finds_duplicates: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        """Return the rows without an exact share of rows that have the lowest or highest numbers in a column.

        Of n rows, floor(share * n) are removed; if numbers are equal, later rows are removed first. On a Dask frame the
        call itself computes 16 bytes per row; the rows stay lazy.

            >>> frame = pandas.DataFrame({"text": ["low", "high", "middle"], "score": [0.1, 0.9, 0.5]})
            >>> curation.select(frame, "score", drop_lowest=0.4)["text"].tolist()
            ['high', 'middle']

            >>> frame = pandas.DataFrame({"text": ["a", "b", "c"], "url": ["x.org/1", "www.x.org", "y.org"]})
            >>> len(curation.select(frame, max_documents=1, per_domain="url"))
            2

        Raises InputError if no row has a number in the column.
        """,
        second="column",
    )

    column: str = ""
    drop_lowest: float = 0
    drop_highest: float = 0
    keep_lowest: float = 0
    keep_highest: float = 0
    max_documents: int = 0
    max_bytes: int = 0
    keep: str = "highest"
    per: str = ""
    per_domain: str = ""
    seed: int = 1234

    def __post_init__(self) -> None:
        self._check_limit()
        if self.max_bytes and (self.column or self.per not in ("", SOURCE) or self.per_domain):
            raise ValueError(f"{BUDGET} keeps the first documents of all or of each source; leave column, per and "
                             "per_domain out, or write per: source")  # fmt: skip
        if self.column in (TEXT, ID) or (not self.column and not self._is_cap):
            raise ValueError(f"column must name a column of numbers, not {self.column!r}")
        if self.per in (TEXT, ID, *([self.column] if self.column else [])):
            raise ValueError(f"per must be source, or a column other than {self.per!r} whose values repeat")
        if self.per_domain and (self.per or self.per_domain in (TEXT, ID, SOURCE, self.column)):
            raise ValueError(f"per_domain must be a column of URLs, without per, not {self.per_domain!r}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")

    def _check_limit(self) -> None:
        given = [name for name in (*SHARES, CAP, BUDGET) if getattr(self, name) != 0]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join((*SHARES, CAP))} and {BUDGET}, not {', '.join(given) or 'none'}")
        share = getattr(self, given[0])
        if self._is_cap and share < 1:
            raise ValueError(f"{given[0]} must be 1 or more, not {share}")
        if not self._is_cap and not 0 < share < 1:
            raise ValueError(f"{given[0]} must be above 0 and below 1, not {share}{as_share(share)}")
        if self.keep not in SIDES:
            raise ValueError(f"keep must be highest or lowest, not {self.keep!r}")
        if self.keep != SIDES[0] and (given != [CAP] or not self.column):
            raise ValueError(f"keep: {self.keep} is for {CAP} with a column")

    @property
    def _is_cap(self) -> bool:
        return bool(self.max_documents or self.max_bytes)

    @property
    def _given(self) -> tuple[str, float]:
        return next((name, getattr(self, name)) for name in SHARES if getattr(self, name))

    @property
    def _drops_highest(self) -> bool:
        if self._is_cap:
            return self.keep == "lowest"
        return self._given[0] in ("drop_highest", "keep_lowest")

    @property
    def _grouped_by(self) -> str:
        """The column whose values, or the domains of its URLs, are the groups; "" if inputs are the groups, or if there
        is only one group."""
        return self.per_domain or (self.per if self.per != SOURCE else "")

    @property
    def _is_grouped(self) -> bool:
        return self._grouped_by != ""

    def forecast(self, sample: StageSample) -> Forecast:
        if self.max_bytes:
            return Forecast()  # a plan does not know the bytes of documents
        if self.max_documents:
            keeps_all = self.per or self.per_domain or sample.documents <= self.max_documents
            return Forecast(1.0 if keeps_all else self.max_documents / sample.documents)
        name, share = self._given
        return Forecast(share if name.startswith("keep") else 1 - share)

    @property
    def _reason(self) -> str:
        if self._is_cap:
            return f"above_{CAP if self.max_documents else BUDGET}"
        return f"{'high' if self._drops_highest else 'low'}_{self.column}"

    def reads(self) -> tuple[str, ...]:
        return tuple(name for name in (self.column, self._grouped_by) if name)

    def kernels(self) -> tuple[str, ...]:
        return ("hashes",) if self._is_grouped or not (self.column or self.max_bytes) else ()

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        if self.max_bytes:
            return {SIZE: engine.byte_lengths(frame[TEXT])}
        if self.column:
            numbers = numbers_in(engine.to_arrow(frame[[self.column]]).column(0), self.column, self.kind)
            keys = {ORDER: order_of(numbers, self._drops_highest)}
        else:
            keys = {ORDER: seeded(engine.hash_text(frame[TEXT])[:, 0], self.seed)}
        if self._is_grouped:
            values = self._groups_of(engine.to_arrow(frame[[self._grouped_by]]).column(0))
            text = engine.from_arrow(pa.table({TEXT: values}))[TEXT]
            keys[GROUP] = engine.hash_text(text)[:, 0]
        return keys

    def _groups_of(self, values: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        """Return the name of the group of each value of a column."""
        if not self.per_domain:
            return as_strings(values, self.per)
        kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
        if not has_kind(kind, "text"):
            raise InputError(f"column {self.per_domain!r} holds {values.type}, but per_domain needs URLs")
        return domains_of(values)

    def phases(self) -> Sequence[Phase]:
        return phases(self._keys_of, self._dropped, self._is_grouped)

    def _keys_of(self, part: Corpus) -> tuple[np.ndarray, ...]:
        """Return for each row of a corpus its group, its order and, with `max_bytes`, its bytes."""
        if self._is_grouped:
            group = part.column(GROUP)
        elif self.per == SOURCE:
            names = list(dict.fromkeys(name for name, _, _ in part.sources))  # frames may have several per input
            group = source_numbers(part, names)
        else:
            group = np.zeros(len(part.rows), np.uint64)
        if self.max_bytes:  # the lowest orders are dropped: later rows
            return group, ~part.rows.astype(np.uint64), part.column(SIZE)
        return group, part.column(ORDER)

    def _dropped(self, groups: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return how many of the documents (or bytes) of each group are removed. The share is computed in decimals: 0.3
        of 10 documents are 3."""
        if self._is_cap:
            above = np.maximum(documents - (self.max_documents or self.max_bytes), 0)
            return np.where((groups == NO_GROUP) & self._is_grouped, 0, above)
        name, given = self._given
        share = Decimal(repr(given)) if name.startswith("drop") else 1 - Decimal(repr(given))
        return np.array([int(share * number) for number in documents.tolist()], np.int64)

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        rows, orders = dropped_rows(corpus)
        bounds = bounds_of(corpus, self._is_grouped)
        numbers = numbers_at(orders, self._drops_highest) if self.column else np.full(len(rows), np.nan)
        if self.max_bytes:
            firsts, sizes = bounds.first.tolist(), bounds.documents.tolist()
            found = {self._name_of(corpus, first): size for first, size in zip(firsts, sizes, strict=True)}
            return Decision((Drops(rows, self._reason, numbers, -1),), details={"bytes": found})
        missing = int(np.count_nonzero(orders == MISSING)) if self.column else 0
        if missing and missing == len(orders) and (corpus.column(ORDER) == MISSING).all():
            raise InputError(f"column {self.column!r} has no number in any of {counted(len(corpus.rows), 'document')}")
        largest = np.argsort(-bounds.documents, kind="stable")
        if self.max_documents and self._is_grouped:
            largest = largest[bounds.group[largest] != NO_GROUP]
        largest = largest[:SHOWN_GROUPS]
        limits = (
            numbers_at(bounds.bound[largest, 0], self._drops_highest).tolist()
            if self.column
            else [np.nan] * SHOWN_GROUPS
        )
        groups = [
            {
                "name": self._name_of(corpus, int(bounds.first[place])),
                "documents": int(bounds.documents[place]),
                "removed": int(bounds.dropped[place, 0]),
                "bound": limit if bounds.dropped[place, 0] and np.isfinite(limit) else None,
            }
            for place, limit in zip(largest.tolist(), limits, strict=False)
        ]
        details = {"missing": missing, "groups": len(bounds.group), "by_group": groups}
        if self.max_documents and self._is_grouped:
            details["without_group"] = int(bounds.documents[bounds.group == NO_GROUP].sum())
        return Decision((Drops(rows, self._reason, numbers, -1),), details=details)

    def _name_of(self, corpus: Corpus, first: int) -> str:
        """Return the name of the group whose first row is given."""
        if not self.per and not self.per_domain:
            return ""
        if not self._is_grouped:
            return next(name for name, low, high in corpus.sources if low <= first < high)
        [read] = corpus.texts(np.searchsorted(corpus.rows, np.array([first], corpus.rows.dtype)), self._grouped_by)
        return str(self._groups_of(pa.chunked_array([read()]))[0].as_py() or "")

    def explain(self) -> list[str]:
        if self.max_bytes:
            of_each = " of each input" if self.per else ""
            return [f"keep the first documents{of_each}, up to the one that reaches {self.max_bytes:,} bytes of text"]
        if self.max_documents:
            groups = "domain" if self.per_domain else "input" if self.per == SOURCE else self.per
            of_each = f" of each {groups}" if groups else ""
            chosen = f"with the {self.keep} {self.column}" if self.column else f"drawn by seed {self.seed}"
            return [f"keep at most {counted(self.max_documents, 'document')}{of_each}, {chosen}"]
        name, share = self._given
        verb, side = name.split("_")
        per = (
            "the documents" if not self.per else f"the documents of each {'input' if self.per == SOURCE else self.per}"
        )
        return [f"{verb} the {Decimal(repr(share)) * 100:f}% of {per} with the {side} {self.column}"]

    def warnings(self, count: StageCount) -> list[str]:
        """Return a warning if no document has a group, so that none is removed."""
        if not count.documents_in or count.details.get("without_group") != count.documents_in:
            return []
        what = "domain" if self.per_domain else "value"
        none = f"none of {counted(count.documents_in, 'document')} has a {what} in {self._grouped_by}"
        return [f"{count.name}: {none}; all are kept"]

    def report_lines(self, count: StageCount) -> list[str]:
        if self.max_bytes:
            return [f"{name or 'all'}: {counted(size, 'byte')} before" for name, size in count.details["bytes"].items()]
        sign = ">=" if self._drops_highest else "<="
        lines = [
            f"{group['name'] or self.column or 'all'}: {group['removed']:,} of "
            f"{counted(group['documents'], 'document')} removed"
            + (f", {self.column} {sign} {group['bound']:.6g}" if group["bound"] is not None else "")
            for group in count.details["by_group"]
        ]
        missing, free = count.details["missing"], count.details.get("without_group", 0)
        others = count.details["groups"] - len(lines) - bool(free)
        what = "domain" if self.per_domain else self.per
        return [
            *lines,
            *([f"{counted(free, 'document')} without a {what} kept"] if free else []),
            *([f"{counted(others, 'smaller group')} not shown"] if others else []),
            *([f"{counted(missing, 'document')} without a number removed"] if missing else []),
        ]


def source_numbers(part: Corpus, names: Sequence[str]) -> np.ndarray:
    """Return for each row the position of its input in `names`, uint64; `len(names)` if the input is not among them."""
    places = {name: number for number, name in enumerate(names)}
    number_of = np.array([places.get(name, len(names)) for name, _, _ in part.sources], np.uint64)
    ends = np.array([last for _, _, last in part.sources], np.int64)
    return number_of[np.searchsorted(ends, part.rows.astype(np.int64), side="right")]


def seeded(hashes: np.ndarray, seed: int) -> np.ndarray:
    """Return new hashes from hashes and a seed (SplitMix64): each seed gives another order."""
    return split_mix(hashes + np.uint64(seed * GOLDEN % 2**64))


def numbers_in(column: pa.ChunkedArray, name: str, stage: str) -> np.ndarray:
    """Return a column as float64; NaN for a null and for a string that is not a number. Raises InputError, which names
    the stage, for other types."""
    if has_kind(column.type, "number"):
        return numbers_of(column)
    if has_kind(column.type, "text"):
        return written_numbers(column)
    raise InputError(f"column {name!r} holds {column.type}, but {stage} needs numbers")


def order_of(numbers: np.ndarray, descending: bool) -> np.ndarray:
    """Return uint64 values in the order of float64 numbers: 1 or more, and 0 (`MISSING`) for NaN."""
    order = order_of_floats(-numbers if descending else numbers)
    order[np.isnan(numbers)] = MISSING
    return order


def numbers_at(orders: np.ndarray, descending: bool) -> np.ndarray:
    """Return the numbers whose orders `order_of` returned; NaN for order 0."""
    bits = np.where(orders & SIGN, orders ^ SIGN, ~orders)
    numbers: Any = bits.view(np.float64)
    numbers = np.where(orders == MISSING, np.nan, -numbers if descending else numbers)
    return numbers + 0.0
