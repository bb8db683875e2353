# SPDX-License-Identifier: Apache-2.0
"""The schema of the parts of `report.json` that only `report.html` shows: values, samples, pairs and groups."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from curation.rules.tallies import SIZE
from curation.tokens.forms.base import Count

Bin = Annotated[int, msgspec.Meta(ge=0, lt=SIZE)]


class ValueTally(msgspec.Struct, frozen=True):
    """Numbers of documents by ranges of a value."""

    share: bool
    below: Count
    above: Count
    bins: list[Bin]
    counts: list[Count]

    def __post_init__(self) -> None:
        if len(self.bins) != len(self.counts) or self.bins != sorted({*self.bins}):
            raise ValueError(f"{len(self.counts)} counts need {len(self.counts)} bins in ascending order")


class RuleValues(ValueTally, frozen=True, kw_only=True):
    """A rule on measures, and the values of its documents."""

    reason: str
    measure: str
    min: float | msgspec.UnsetType = msgspec.UNSET
    max: float | msgspec.UnsetType = msgspec.UNSET


class GroupValues(msgspec.Struct, frozen=True):
    """A group of documents that rules distinguish. Only the groups with the most documents have `rules`."""

    group: str
    documents: Count
    reasons: dict[str, Count]
    rules: list[RuleValues] = []


class ColumnGroups(msgspec.Struct, frozen=True):
    """Documents by the value of one carried column, and how many each reason removed."""

    column: str
    groups: list[GroupValues]


class MostRemoved(msgspec.Struct, frozen=True):
    """The reason that removes most documents of an input or a language."""

    stage: str
    reason: str
    documents: Count


class AllValues(msgspec.Struct, frozen=True):
    """Values of the documents of a run."""

    read_bytes: ValueTally | msgspec.UnsetType = msgspec.UNSET
    kept_bytes: ValueTally | msgspec.UnsetType = msgspec.UNSET
    tokens_per_byte: ValueTally | msgspec.UnsetType = msgspec.UNSET
    languages: dict[str, dict[str, Count]] = {}
    most_removed: dict[str, MostRemoved] = {}  # by language

    def __post_init__(self) -> None:
        if self.languages and {*self.languages} != {"read", "kept"}:
            raise ValueError("languages needs read and kept")


class TextSample(msgspec.Struct, frozen=True):
    """An example of a kept, removed or edited document, with the places that the report page marks."""

    id: str
    source: str
    file: str
    text: str
    marks: list[tuple[Count, Count]]
    start: Count
    characters: Count
    line: Count | None = None
    value: float | None = None
    bound: float | None = None
    kept: str | None = None
    doc: Count = 0  # reports up to 0.3 lack it


class ChainLink(msgspec.Struct, frozen=True):
    """The document of a chain through which a removed document is linked to the kept one, and its similarity to the
    removed document."""

    id: str
    jaccard: float


class Pair(msgspec.Struct, frozen=True):
    """A removed document, and the one kept in its place."""

    id: str
    kept: str
    jaccard: float | None
    runs: list[tuple[str, str, bool]]
    cut: bool
    cosine: float | None = None
    link: ChainLink | None = None


class Removed(msgspec.Struct, frozen=True):
    """Samples of the documents that a stage removed for one reason."""

    stage: str
    reason: str
    documents: Count
    samples: list[TextSample]


class Pairs(msgspec.Struct, frozen=True):
    """Examples of documents that a reason removed, each with the document kept in its place."""

    stage: str
    reason: str
    documents: Count
    pairs: list[Pair]


class DuplicateGroups(msgspec.Struct, frozen=True):
    """The groups of duplicates of a stage."""

    stage: str
    groups: Count
    sizes: list[tuple[Annotated[int, msgspec.Meta(ge=1, le=64)], Count]]
    largest: Count
    document: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.document.get("id"), str):
            raise ValueError("the document of a group has no id")
        if "text" in self.document:
            msgspec.convert(self.document, TextSample)


class MeasuredRule(msgspec.Struct, frozen=True):
    """A rule on measures: positions of its measures in `Measured.measures`, its bounds, the highest possible value, its
    path in settings, and the positions of its column and group in `Measured.groups`."""

    reason: str
    measures: list[Count]
    path: str
    min: float | msgspec.UnsetType = msgspec.UNSET
    max: float | msgspec.UnsetType = msgspec.UNSET
    highest: float | msgspec.UnsetType = msgspec.UNSET
    column: Count | msgspec.UnsetType = msgspec.UNSET
    group: Count | msgspec.UnsetType = msgspec.UNSET


class Measured(msgspec.Struct, frozen=True):
    """The measures of a sample of the documents that reached a filter."""

    stage: str
    documents: Count
    drawn: Count
    shown: list[str]
    measures: list[str]
    groups: list[list[str]]
    rules: list[MeasuredRule]
    data: str

    def __post_init__(self) -> None:
        for rule in self.rules:
            if not 1 <= len(rule.measures) <= 2 or max(rule.measures) >= len(self.measures):
                raise ValueError(f"the rule {rule.reason} needs one or two of {len(self.measures)} measures")
            if (rule.column is msgspec.UNSET) != (rule.group is msgspec.UNSET):
                raise ValueError(f"the rule {rule.reason} needs column and group, or neither")
            if isinstance(rule.column, int) and isinstance(rule.group, int):
                columns = self.groups[rule.column : rule.column + 1]
                if not columns or rule.group >= len(columns[0]):
                    raise ValueError(f"the rule {rule.reason} has a group that groups lacks")


class ReportTexts(msgspec.Struct, frozen=True):
    """Samples, pairs and groups. Reports up to 0.4 may also have `clusters`, which nothing reads."""

    kept: list[TextSample] = []
    removed: list[Removed] = []
    pairs: list[Pairs] = []
    groups: list[DuplicateGroups] = []
