# SPDX-License-Identifier: Apache-2.0
"""Three kinds of warnings: about inputs, values of carried columns, scripts and languages that a run removes almost
wholly; about rules that remove far more of one language than of others; and about bounds on columns without numbers.

Documents of inputs are counted exactly. Other groups are counted in a sample: up to 200 removed documents for each
reason, and 2,000 kept documents. Each sampled document has a weight: the number of documents that it represents. The
warnings cost a run about 0.3 s, whatever its size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.errors import counted
from curation.kernels.fasttext import SCORE_UNITS
from curation.kernels.tables import SCRIPTS, load_tables
from curation.models.fasttext import load_classifier
from curation.recipes.text_kinds import is_wrapped
from curation.rules.columns import written_numbers
from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule
from curation.stages import Filter, Stage
from curation.stages.rows.language import MIN_PROBABILITY, REASONS, Language
from curation.stages.shares.mix import Mix
from curation.stages.shares.select import Select

GROUP_SAMPLES, GROUP_CHARACTERS = 200, 500  # documents per reason, and characters of each, to count languages
MAX_VALUE = 100  # characters of a value of a carried column; longer values name no group

KEPT_SAMPLES = 2_000
MIN_DOCUMENTS = 10  # least documents of a group, also in the sample
MIN_EXPECTED = 5  # least sampled documents that a group would keep if it kept the same share as the others
MAX_SHARE = 0.1  # a group is lost if it keeps less than this part of the share that the others keep
MIN_POINTS, MIN_TIMES = 0.1, 3  # least difference and ratio of shares that a rule removes, of a language and the others
DEVIATIONS = 2.58  # standard deviations to the lower bound of a share: 99 % of a normal distribution are nearer
MIN_OTHERS = 0.3  # least share of documents in languages of which the rule removes less
MIN_LETTERS = 20  # least letters of a document with a script or language
MAX_WARNINGS = 5
NO_SCRIPTS = 3  # Unknown, Common, Inherited: the first of SCRIPTS
Reason = tuple[str, str]  # stage, reason
ASKED: Reason = "", ""  # replaces the reason of a document that the recipe asks to remove


class SampledDocument(NamedTuple):
    """A document of a sample.

    source  its input
    text    the first GROUP_CHARACTERS characters
    values  carried column -> value
    lost    the stage and the reason for which it is removed; None if it is kept
    weight  number of documents that it represents
    """

    source: str
    text: str
    values: Mapping[str, str | None]
    lost: Reason | None
    weight: float


class GroupTotals(msgspec.Struct):
    """The documents of a group: kept, removed by each reason, and how many of them are in the sample (0: all are
    counted).

    asked  documents that the recipe asks to remove; no other number includes them
    """

    kept: float = 0
    removed: Counter[Reason] = msgspec.field(default_factory=Counter)
    asked: float = 0
    sampled: int = 0
    squares: float = 0  # sum of the squared weights of sampled documents

    def share(self, reason: Reason) -> float:
        """Return the share of the group that a reason removes; 0 for an empty group."""
        return self.removed[reason] / max(self.documents, 1)

    def least_share(self, reason: Reason) -> float:
        """Return the lower bound of `share(reason)` by Wilson's interval, for the effective size of the sample."""
        share, size = self.share(reason), self.documents**2 / self.squares
        square = DEVIATIONS**2 / size
        spread = math.sqrt(square * share * (1 - share) + square**2 / 4)
        return (share + square / 2 - spread) / (1 + square)

    @property
    def documents(self) -> float:
        """The number of documents that are kept or that any reason removes."""
        return self.kept + self.removed.total()


def warn_of_lost_groups(
    sample: Sequence[SampledDocument],
    inputs: Mapping[str, GroupTotals],
    stages: Mapping[str, Stage],
    is_plan: bool = False,
) -> list[str]:
    """Return the warnings: a line per group, largest group first; at most MAX_WARNINGS lines, and one line about other
    groups.

    Each document counts in one warning: for its input, else for a column, its script or its language.

    inputs   exact counts of the inputs; empty: inputs are counted in the sample
    stages   name -> stage of the recipe
    is_plan  there is no run yet that `curate show` could show
    """
    asked = _asked(stages)
    inputs = {name: _without(group, asked) for name, group in inputs.items()}
    if inputs and not any(group.removed.total() >= MIN_DOCUMENTS for group in inputs.values()):
        return []
    rest = [each._replace(lost=ASKED) if each.lost and asked & {each.lost, each.lost[0]} else each for each in sample]
    weight = _kept_weight(rest)
    exact = inputs or _groups(rest, [document.source for document in rest])
    found = [("input", name, group) for name, group in _lost(exact, 1 if inputs else weight)]
    rest = [document for document in rest if all(name != document.source for _, name, _ in found)]
    for column in dict.fromkeys(name for document in rest for name in document.values):
        lost = _lost(_groups(rest, [document.values.get(column) for document in rest]), weight)
        found += [(column, name, group) for name, group in lost]
        names = {name for name, _ in lost}
        rest = [document for document in rest if document.values.get(column) not in names]
    scripts = scripts_of([document.text for document in rest])
    lost = _lost(_groups(rest, scripts), weight)
    found += [("script", name, group) for name, group in lost]
    names = {name for name, _ in lost}
    rest = [document for document, script in zip(rest, scripts, strict=True) if script and script not in names]
    languages = _languages(rest)
    groups = _groups(rest, languages)
    lost = _lost(groups, weight)
    found += [("language", name, group) for name, group in lost]
    entries: list[tuple[float, str, str, str]] = [
        (group.removed.total(), kind, name, _line(kind, name, group, _share_of_others(exact, group), is_plan))
        for kind, name, group in found
    ]
    judged = [pair for pair in zip(rest, languages, strict=True) if pair[1] not in {name for name, _ in lost}]
    entries += _unequal(judged, stages, is_plan)
    ranked = sorted(entries, key=lambda entry: -entry[0])
    lines = [line for *_, line in ranked[:MAX_WARNINGS]]
    if others := [f"{kind} {name!r}" for _, kind, name, _ in ranked[MAX_WARNINGS:]]:
        lines.append(f"{counted(len(others), 'more group')} removed as much: {', '.join(others[:MAX_WARNINGS])}")
    return lines


def _without(group: GroupTotals, asked: Set[Reason | str]) -> GroupTotals:
    removed = {key: number for key, number in group.removed.items() if not asked & {key, key[0]}}
    return GroupTotals(group.kept, Counter(removed), group.removed.total() - sum(removed.values()), group.sampled)


def _asked(stages: Mapping[str, Stage]) -> set[Reason | str]:
    """Return the reasons, and names of stages, that remove documents because the recipe asks for it: `mix`, numbers of
    documents in `select`, `keep` of `language`, rules on the column of `language`, and lists of values."""
    columns = {stage.column for stage in stages.values() if isinstance(stage, Language)}
    asked: set[Reason | str] = set()
    for name, stage in stages.items():
        if isinstance(stage, Mix) or (isinstance(stage, Select) and (stage.max_documents or stage.max_bytes)):
            asked.add(name)
        elif isinstance(stage, Language):
            asked.add((name, REASONS[0]))
        elif isinstance(stage, Filter):
            asked |= {(name, rule.name) for rule in stage.expanded if _names_values(rule, columns)}
    return asked


def _names_values(rule: Rule, columns: Set[str]) -> bool:
    """Return whether a rule chooses values of a column, because it lists values, or because the column is one of
    `columns`."""
    if isinstance(rule, GroupedRule):
        return rule.chooses
    return rule.in_ is not None or rule.not_in is not None or bool(columns & {*rule.columns})


def _groups(sample: Iterable[SampledDocument], names: Iterable[str | None]) -> dict[str, GroupTotals]:
    groups: dict[str, GroupTotals] = {}
    for document, name in zip(sample, names, strict=True):
        if name is not None:
            group = groups.setdefault(name, GroupTotals())
            if document.lost == ASKED:
                group.asked += document.weight
                continue
            group.sampled += 1
            group.squares += document.weight**2
            if document.lost is None:
                group.kept += document.weight
            else:
                group.removed[document.lost] += document.weight  # type: ignore[assignment]  # a Counter of floats
    return groups


def _kept_weight(sample: Sequence[SampledDocument]) -> float:
    weights = [document.weight for document in sample if document.lost is None]
    return sum(weights) / max(len(weights), 1)


def _lost(groups: Mapping[str, GroupTotals], kept_weight: float) -> list[tuple[str, GroupTotals]]:
    """Return the groups that keep less than MAX_SHARE of the share that the other groups keep."""
    kept, documents = sum(group.kept for group in groups.values()), sum(group.documents for group in groups.values())
    found = []
    for name, group in groups.items():
        others = (kept - group.kept) / max(documents - group.documents, 1)
        is_large = group.documents >= MIN_DOCUMENTS and (not group.sampled or group.sampled >= MIN_DOCUMENTS)
        is_expected = group.documents * others >= MIN_EXPECTED * kept_weight
        is_asked = group.asked > group.removed.total()
        if is_large and is_expected and not is_asked and group.kept < MAX_SHARE * others * group.documents:
            found.append((name, group))
    return found


def _share_of_others(inputs: Mapping[str, GroupTotals], group: GroupTotals) -> float:
    kept, documents = sum(each.kept for each in inputs.values()), sum(each.documents for each in inputs.values())
    return (kept - group.kept) / max(documents - group.documents, 1)


def _line(kind: str, name: str, group: GroupTotals, others: float, is_plan: bool) -> str:
    [((stage, reason), number)] = group.removed.most_common(1)
    removed = group.removed.total()
    is_exact = not group.sampled or abs(group.sampled - group.documents) < 0.5
    most = f", {_counted(number, is_exact)} of them" if number < removed - 0.5 else ""
    look = "" if is_plan else f". See curate show DIR --stage {stage} --reason {reason}"
    return (
        f"{kind} {name!r}: {_counted(removed, is_exact)} of {_counted(group.documents, is_exact)} documents are "
        f"removed{most} by {stage} ({reason}); of the other documents {others:.0%} are kept"
        f"{'' if is_exact else ', by a sample'}{look}"
    )


def _counted(number: float, is_exact: bool) -> str:
    whole = round(number)
    rounded = whole - whole % 10 ** max(len(str(whole)) - 2, 0)  # down, so that it never exceeds the exact one
    return f"{whole:,}" if is_exact else f"about {rounded:,}"


# Rules that remove far more of one language


def _unequal(
    judged: Sequence[tuple[SampledDocument, str | None]], stages: Mapping[str, Stage], is_plan: bool
) -> Iterator[tuple[float, str, str, str]]:
    """Yield the warnings, each as the number of removed documents, "language", the language's name, and the line to
    show. A language has at most one warning, about the rule that removes most of the language. The language is compared
    with those of which this rule removes less."""
    groups = _groups([document for document, _ in judged], [name for _, name in judged])
    sampled = Counter((name, document.lost) for document, name in judged)
    total = sum(group.documents for group in groups.values())
    found: dict[str, tuple[float, float, Reason]] = {}  # language -> share, share of the others, reason
    rules = _rules_on_texts(stages)
    for reason in rules:
        rest = sorted(groups, key=lambda name: groups[name].share(reason))
        while rest:
            name = rest.pop()
            share, documents = groups[name].share(reason), sum(groups[other].documents for other in rest)
            others = sum(groups[other].removed[reason] for other in rest) / max(documents, 1)
            is_large = sampled[name, reason] >= MIN_DOCUMENTS and documents >= MIN_OTHERS * total
            is_far = share >= others + MIN_POINTS and groups[name].least_share(reason) >= MIN_TIMES * others
            if is_large and is_far:
                found[name] = max(found.get(name, (0.0, 0.0, reason)), (share, others, reason))
    for name, (share, others, reason) in found.items():
        texts = [document.text for document, own in judged if own == name and document.lost == reason]
        group, is_exact = groups[name], abs(groups[name].sampled - groups[name].documents) < 0.5
        size = f"{_counted(group.documents, is_exact)} documents{'' if is_exact else ', by a sample'}"
        start = f"{reason[0]} ({reason[1]}) removes {share:.0%} of {size}; of those in other languages {others:.1%}"
        end = _remedy(name, reason, rules[reason], texts) + ("" if is_plan else _look(name, reason, stages))
        yield group.removed[reason], "language", name, f"language {name!r}: {start}. {end}"


def _remedy(language: str, reason: Reason, rule: Rule, texts: Sequence[str]) -> str:
    """Return the advice for a warning: `rule` removes `texts`, which are in `language`."""
    if any("line" in measure for measure in rule.measures) and 2 * sum(map(is_wrapped, texts)) > len(texts):
        return "Most of them have wrapped lines: join the lines before this stage, as docs/how_to/texts.md shows"
    if isinstance(rule, GroupedRule):
        return f"To keep them: --set stages.{reason[0]}.{language}.{reason[1]}=off"
    return "To keep them, give their language its own bound, as docs/rules_per_language.md shows"


def _look(language: str, reason: Reason, stages: Mapping[str, Stage]) -> str:
    columns = [stage.column for stage in stages.values() if isinstance(stage, Language) and not stage.model]
    where = f" --where {columns[-1]}={language}" if columns else ""
    return f". See curate show DIR --stage {reason[0]} --reason {reason[1]}{where}"


def _rules_on_texts(stages: Mapping[str, Stage]) -> dict[Reason, Rule]:
    """Return the rules of filters that judge only the text, also if they have different bounds per language."""
    found = {}
    for name, stage in stages.items():
        for rule in stage.expanded if isinstance(stage, Filter) else ():
            allowed = {TEXT}
            if isinstance(rule, GroupedRule) and not rule.chooses and rule.groups.has_languages:
                allowed.add(rule.groups.column)
            if not {*rule.columns} - allowed:
                found[name, rule.name] = rule
    return found


# Bounds on strings


def bounded_columns(stages: Mapping[str, Stage]) -> dict[str, Reason]:
    """Return the columns with `min` or `max` in a filter, except those that stages write: name -> stage and reason."""
    found: dict[str, Reason] = {}
    for name, stage in stages.items():
        for rule in stage.expanded if isinstance(stage, Filter) else ():
            found |= {str(part.column): (name, rule.name) for part in rule.parts if part.bounds_numbers}
    written = {column for stage in stages.values() for column in stage.writes()}
    return {column: reason for column, reason in found.items() if column not in written}


def warn_of_strings(sample: Sequence[SampledDocument], columns: Mapping[str, Reason]) -> Iterator[str]:
    """Yield a warning about each of the `bounded_columns` in which no sampled value is a number."""
    for column, (stage, reason) in columns.items():
        values = [value for document in sample if (value := document.values.get(column)) is not None]
        if values and np.isnan(written_numbers(pa.chunked_array([values], pa.large_string()))).all():
            yield (
                f"{stage} ({reason}): 0 of {len(values):,} sampled values of column {column!r} are numbers, "
                f"such as {min(values)!r}; min and max keep numbers only. For strings write in: [VALUE], or matches: "
                "PATTERN with min_count: 1, such as '^202[4-9]'"
            )


# Scripts and languages


def scripts_of(texts: Sequence[str]) -> list[str | None]:
    """Return for each text the script of most of its letters, by Unicode's property Script; None for a text with fewer
    than MIN_LETTERS letters."""
    points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.int64)
    tables = load_tables()
    script = tables.script[tables.records_of(points)]
    document = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    counts = np.bincount(document * len(SCRIPTS) + script, minlength=len(texts) * len(SCRIPTS))
    counts = counts.reshape(len(texts), len(SCRIPTS))
    counts[:, :NO_SCRIPTS] = 0
    has_letters = (counts.sum(axis=1) >= MIN_LETTERS).tolist()
    best = counts.argmax(axis=1).tolist()
    return [SCRIPTS[number] if is_text else None for number, is_text in zip(best, has_letters, strict=True)]


def _languages(sample: Sequence[SampledDocument]) -> list[str | None]:
    """Return the language of each document by the model lid.176.ftz, None if the model is unsure."""
    model = load_classifier("")
    engine = load_engine("cpu")
    texts = pa.array([document.text for document in sample], pa.large_string())
    label, score = engine.classify(engine.from_arrow(pa.table({TEXT: texts}))[TEXT], model, GROUP_CHARACTERS)
    is_sure = (label >= 0) & (score >= MIN_PROBABILITY * SCORE_UNITS)
    return [model.labels[number] if sure else None for number, sure in zip(label.tolist(), is_sure, strict=True)]


def values_of(rows: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Return the values of the carried columns of each row as a list, with null for values of more than MAX_VALUE
    characters."""
    values = [
        [value if value is None or len(value) <= MAX_VALUE else None for value in rows.column(name).to_pylist()]
        for name in columns
    ]
    lists = list(zip(*values, strict=True)) if columns else [()] * len(rows)
    return pa.array(lists, pa.list_(pa.large_string()))


def starts_of(rows: pa.Table, columns: Sequence[str]) -> tuple[list[str], list[list[str | None]]]:
    """Return the first GROUP_CHARACTERS characters of each text, and the values of its carried columns."""
    texts = pc.utf8_slice_codeunits(pc.fill_null(rows.column(TEXT), ""), 0, GROUP_CHARACTERS)
    return texts.to_pylist(), values_of(rows, columns).to_pylist()
