# SPDX-License-Identifier: Apache-2.0
"""`select`: remove an exact share of the documents, the lowest or highest by a column of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from curation.contract import ID, TEXT, Engine, Frame
from curation.errors import InputError, as_share, counted
from curation.rules.columns import has_kind, numbers_of, written_numbers
from curation.stages.base import CorpusStage, Function, Phase
from curation.stages.outcome import Corpus, Decision, Drops, StageCount
from curation.stages.shares.rank_bounds import bounds_of, dropped_rows, phases

ORDER, GROUP = "order", "group"  # keys
SOURCE = "source"
SHARES = ("drop_lowest", "drop_highest", "keep_lowest", "keep_highest")
SHOWN_GROUPS = 10  # the largest, in the report
SIGN = np.uint64(1 << 63)
MISSING = np.uint64(0)  # order of a document without a number


class Select(CorpusStage, frozen=True, kw_only=True, tag="select"):
    """Remove an exact share of the documents by a column of numbers, such as a score.

    column        column with the numbers, compared as float64
    drop_lowest   share of the documents with the lowest numbers to remove, above 0 and below 1
    drop_highest  share of the documents with the highest numbers to remove
    keep_lowest   share of the documents with the lowest numbers to keep
    keep_highest  share of the documents with the highest numbers to keep
    per           apply the share to each `source` (input), or to each value of a column, such as `language`; default:
                  to all documents

    Give one share. Of n documents, floor(share * n) are removed; with a share to keep, floor((1 - share) * n). Of equal
    numbers the later documents are removed. Documents without a number (null, NaN, no number in a string) are removed
    first, whatever the direction.
    """

    finds_duplicates: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        """Return the rows without an exact share of them, those with the lowest or highest numbers in a column.

        Of n rows, floor(share * n) are removed; of equal numbers the later rows. On a Dask frame the call itself
        computes 16 bytes per row; the rows stay lazy.

            >>> frame = pandas.DataFrame({"text": ["low", "high", "middle"], "score": [0.1, 0.9, 0.5]})
            >>> curation.select(frame, "score", drop_lowest=0.4)["text"].tolist()
            ['high', 'middle']

        Raises InputError if no row has a number in the column.
        """,
    )

    column: str
    drop_lowest: float = 0
    drop_highest: float = 0
    keep_lowest: float = 0
    keep_highest: float = 0
    per: str = ""

    def __post_init__(self) -> None:
        if self.column in ("", TEXT, ID):
            raise ValueError(f"column must name a column of numbers, not {self.column!r}")
        if self.per in (TEXT, ID, self.column):
            raise ValueError(f"per must be source, or a column other than {self.per!r} whose values repeat")
        given = [name for name in SHARES if getattr(self, name) != 0]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(SHARES)}, not {', '.join(given) or 'none'}")
        share = getattr(self, given[0])
        if not 0 < share < 1:
            raise ValueError(f"{given[0]} must be above 0 and below 1, not {share}{as_share(share)}")

    @property
    def _given(self) -> tuple[str, float]:
        return next((name, getattr(self, name)) for name in SHARES if getattr(self, name))

    @property
    def _drops_highest(self) -> bool:
        return self._given[0] in ("drop_highest", "keep_lowest")

    @property
    def _is_grouped(self) -> bool:
        """Return whether groups are the values of a column."""
        return self.per not in ("", SOURCE)

    def kept_share(self, documents: float, tokens: float, groups: Mapping[str, float]) -> float:
        name, share = self._given
        return share if name.startswith("keep") else 1 - share

    @property
    def _reason(self) -> str:
        return f"{'high' if self._drops_highest else 'low'}_{self.column}"

    def reads(self) -> tuple[str, ...]:
        return (self.column, self.per) if self._is_grouped else (self.column,)

    def kernels(self) -> tuple[str, ...]:
        return ("hashes",) if self._is_grouped else ()

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        numbers = _numbers(engine.to_arrow(frame[[self.column]]).column(0), self.column)
        keys = {ORDER: order_of(numbers, self._drops_highest)}
        if self._is_grouped:
            values = as_strings(engine.to_arrow(frame[[self.per]]).column(0), self.per)
            text = engine.from_arrow(pa.table({TEXT: values}))[TEXT]
            keys[GROUP] = engine.hash_text(text)[:, 0]
        return keys

    def phases(self) -> Sequence[Phase]:
        return phases(self._keys_of, self._dropped, self._is_grouped)

    def _keys_of(self, part: Corpus) -> tuple[np.ndarray, np.ndarray]:
        """Return the group and the order of each row of a corpus."""
        if self._is_grouped:
            group = part.column(GROUP)
        elif self.per:
            names = list(dict.fromkeys(name for name, _, _ in part.sources))  # of a frame, an input may have several
            group = source_numbers(part, names)
        else:
            group = np.zeros(len(part.rows), np.uint64)
        return group, part.column(ORDER)

    def _dropped(self, groups: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return how many of so many documents are removed. The share counts as it is written: 0.3 of 10 are 3."""
        name, given = self._given
        share = Decimal(repr(given)) if name.startswith("drop") else 1 - Decimal(repr(given))
        return np.array([int(share * number) for number in documents.tolist()], np.int64)

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        rows, orders = dropped_rows(corpus)
        bounds = bounds_of(corpus, self._is_grouped)
        numbers = numbers_at(orders, self._drops_highest)
        missing = int(np.count_nonzero(orders == MISSING))
        if missing and missing == len(orders) and (corpus.column(ORDER) == MISSING).all():
            raise InputError(f"column {self.column!r} has no number in any of {counted(len(corpus.rows), 'document')}")
        largest = np.argsort(-bounds.documents, kind="stable")[:SHOWN_GROUPS]
        limits = numbers_at(bounds.bound[largest], self._drops_highest).tolist()
        groups = [
            {
                "name": self._name_of(corpus, int(bounds.first[place])),
                "documents": int(bounds.documents[place]),
                "removed": int(bounds.dropped[place]),
                "bound": limit if bounds.dropped[place] and np.isfinite(limit) else None,
            }
            for place, limit in zip(largest.tolist(), limits, strict=True)
        ]
        details = {"missing": missing, "groups": len(bounds.group), "by_group": groups}
        return Decision((Drops(rows, self._reason, numbers, -1),), details=details)

    def _name_of(self, corpus: Corpus, first: int) -> str:
        """Return the name of the group whose first row is given."""
        if not self.per:
            return ""
        if not self._is_grouped:
            return next(name for name, low, high in corpus.sources if low <= first < high)
        [read] = corpus.texts(np.searchsorted(corpus.rows, np.array([first], corpus.rows.dtype)), self.per)
        return str(read().to_pylist()[0] or "")

    def explain(self) -> list[str]:
        name, share = self._given
        verb, side = name.split("_")
        per = (
            "the documents" if not self.per else f"the documents of each {'input' if self.per == SOURCE else self.per}"
        )
        return [f"{verb} the {Decimal(repr(share)) * 100:f}% of {per} with the {side} {self.column}"]

    def report_lines(self, count: StageCount) -> list[str]:
        sign = ">=" if self._drops_highest else "<="
        lines = [
            f"{group['name'] or self.column}: {group['removed']:,} of {counted(group['documents'], 'document')} removed"
            + (f", {self.column} {sign} {group['bound']:.6g}" if group["bound"] is not None else "")
            for group in count.details["by_group"]
        ]
        others = count.details["groups"] - len(lines)
        missing = count.details["missing"]
        return [
            *lines,
            *([f"{counted(others, 'smaller group')} not shown"] if others else []),
            *([f"{counted(missing, 'document')} without a number removed"] if missing else []),
        ]


def source_numbers(part: Corpus, names: Sequence[str]) -> np.ndarray:
    """Return the place in `names` (uint64) of the input of each row; `len(names)` for an input that has no place."""
    places = {name: number for number, name in enumerate(names)}
    number_of = np.array([places.get(name, len(names)) for name, _, _ in part.sources], np.uint64)
    ends = np.array([last for _, _, last in part.sources], np.int64)
    return number_of[np.searchsorted(ends, part.rows.astype(np.int64), side="right")]


def _numbers(column: pa.ChunkedArray, name: str) -> np.ndarray:
    """Return a column as float64; NaN for a null and for a string that is not a number."""
    if has_kind(column.type, "number"):
        return numbers_of(column)
    if has_kind(column.type, "text"):
        return written_numbers(column)
    raise InputError(f"column {name!r} holds {column.type}, but select needs numbers")


def as_strings(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column of strings or integers as strings. InputError for another one."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        raise InputError(
            f"column {name!r} holds {column.type}, which cannot name groups. Use strings or integers"
        ) from None


def order_of(numbers: np.ndarray, descending: bool) -> np.ndarray:
    """Return uint64 in the order of the float64 numbers, from 1; 0 (`MISSING`) for NaN."""
    bits = ((-numbers if descending else numbers) + 0.0).view(np.uint64)  # + 0.0: -0.0 equals 0.0
    order = np.where(bits & SIGN, ~bits, bits | SIGN)
    order[np.isnan(numbers)] = MISSING
    return order


def numbers_at(orders: np.ndarray, descending: bool) -> np.ndarray:
    """Return the numbers of `order_of`; NaN for 0."""
    bits = np.where(orders & SIGN, orders ^ SIGN, ~orders)
    numbers: Any = bits.view(np.float64)
    numbers = np.where(orders == MISSING, np.nan, -numbers if descending else numbers)
    return numbers + 0.0
