# SPDX-License-Identifier: Apache-2.0
"""`filter`: remove documents that break a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.contract import ID, TEXT, Engine, Frame, Text
from curation.base.errors import RecipeError, nearest
from curation.base.measures import Measure
from curation.rules.columns import Texts
from curation.rules.decide import Rule, Verdict, decide, expand_rules
from curation.rules.grammar import DIVIDED, NORMALIZED
from curation.rules.groups import GroupedRule, groups_in, of_all_documents
from curation.rules.rule_lists import (
    check_lists,
    list_files,
    list_kernels,
    list_warnings,
    lists_in,
    sizes_of,
    with_stored_lists,
)
from curation.stages.base import Function, RowStage, ShownRules, Stage
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.normalized import COUNTS, Normalized, normalize
from curation.stages.rows.scripts import OF_WORDS, count_unlisted
from curation.stages.rows.token_counts import check_tokenizer, check_use, measured, tokenizer_files
from curation.stages.words import Split, check_words, divides, kernels_of, split_words, with_parts

COUNTED = ("characters", "unspaced_characters")  # of all documents; their ratio tells whether rules on words make sense


class Filter(RowStage, frozen=True, kw_only=True, dict=True, tag="filter"):
    """Remove documents that break one of `rules`.

    rules      name of a rule set, or a list of names and rules; a document's first broken rule is its reason
    tokenizer  tokenizer of the measure `tokens`, as in the recipe's `tokenizer.name`, the default in recipes
    words      what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe

    `curation.rules.decide.RULE_SETS` has the sets and their sources (Gopher, FineWeb); `docs/rules.md` explains the
    grammar. A null has the measures of an empty text.
    """

    # 2: `scripts` and `table` divide words differently; gopher_multilingual judges by the ends of sentences without a
    # label, by normalized texts and by repeated lines of prose; 3: gopher_multilingual has its rules in another order
    revision: ClassVar[int] = 3
    function: ClassVar[Function] = Function(
        """Return the rows that break none of `rules`.

        `rules` may also be one `curation.Rule`, or a dictionary of its fields; `curation.RULE_SETS` has the sets.

        Measures that `curation.measure` or `curation.explain` wrote to the frame are not computed again, unless a stage
        has changed the text since. If you change the text yourself, measure it again.

            >>> frame = pandas.DataFrame({"text": ["one", "one two three"]})
            >>> curation.filter(frame, curation.Rule(measure="words", min=2))["text"].tolist()
            ['one two three']
        """,
        types={"rules": "str | Rule | dict[str, Any] | Sequence[str | Rule | dict[str, Any]]"},
    )

    rules: str | list[str | Rule]
    tokenizer: str = ""
    words: str = ""

    def __post_init__(self) -> None:
        check_words(self.words)
        if not self.expanded:
            raise ValueError("rules is empty; name a rule set, such as gopher, or give a rule")
        check_use(self.measures, self.tokenizer)

    @cached_property
    def expanded(self) -> tuple[Rule, ...]:
        """The single rules, in the order in which they are applied."""
        return expand_rules(self.rules)

    def reads(self) -> tuple[str, ...]:
        """Return the columns besides `text` and `id` that the rules need."""
        columns = [name for rule in self.expanded for name in rule.columns]
        return tuple(name for name in dict.fromkeys(columns) if name not in (TEXT, ID))

    def kernels(self) -> tuple[str, ...]:
        scripts = ("scripts",) if divides(self.words) and self.measures else ()
        edits = ("rewrite",) if self.normalized_measures else ()
        return ("measures", *scripts, *edits, *kernels_of(self.words), *list_kernels(self.expanded))

    def files(self) -> dict[str, str]:
        return list_files(self.expanded) | tokenizer_files(self.measures, self.tokenizer)

    def check(self, inputs: Sequence[str]) -> None:
        check_lists(self.expanded, self.words)
        check_tokenizer(self.measures, self.tokenizer)

    def check_order(self, earlier: Sequence[Stage]) -> None:
        """Raise RecipeError if an earlier stage can write a value without rules into the column of groups. Values of
        input columns are known only when documents are read: the first value without rules ends the run before it
        writes documents."""
        for groups in groups_in(self.expanded):
            by = next((stage for stage in reversed(earlier) if groups.column in stage.writes()), None)
            if by is not None:
                groups.check_values(by.column_facts(groups.column).values, by.name or by.kind)

    def prepare(self, folder: Path) -> Stage:
        """Store the entries of lists in files that all tasks share."""
        if not lists_in(self.expanded):
            return self
        entries = [self.rules] if isinstance(self.rules, str) else self.rules
        return msgspec.structs.replace(self, rules=list(with_stored_lists(entries, folder, self.words)))

    def shown_rules(self) -> ShownRules:
        return ShownRules(of_all_documents(self.expanded), self.expanded if groups_in(self.expanded) else ())

    def explain(self) -> list[str]:
        """Return warnings about lists, one line per rule, and the sizes of lists."""
        warnings, sizes = list_warnings(self.expanded, self.words), sizes_of(self.expanded, self.words)
        return [*warnings, *(rule.describe() for rule in self.expanded), *sizes]

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures that the rules need."""
        return tuple(dict.fromkeys(name for rule in self.expanded for name in rule.measures))

    @property
    def normalized_measures(self) -> tuple[str, ...]:
        """The names of the measures that rules take from normalized texts. Only `gopher_multilingual` has rules on
        normalized texts."""
        rules = _normalized(self.expanded)
        return tuple(dict.fromkeys(name for rule in rules for name in rule.measures))

    @property
    def patterns(self) -> dict[str, Rule]:
        """The rules with a regular expression or a list, by the name of the column that counts their matches. The name
        is the rule's reason with the ending `_matches` or `_listed`; further rules with the same name get a number from
        2 on."""
        found: dict[str, Rule] = {}
        seen = Counter[str]()
        for rule in self.expanded:
            if rule.matches is not None or rule.listed is not None:
                suffix = "_listed" if rule.matches is None else "_matches"
                name = rule.name.removesuffix(suffix) + suffix
                seen[name] += 1
                found[f"{name}_{seen[name]}" if seen[name] > 1 else name] = rule
        return found

    def count_patterns(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        """Return the number of matches of each of `patterns` in every row, int64."""
        found = self.patterns
        columns = self._columns(engine, frame, tuple(found.values()), self._edited(engine, frame))
        return {name: rule.counts(columns).astype(np.int64) for name, rule in found.items()}

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        names = self.measures
        counted = () if not names else OF_WORDS if divides(self.words) else COUNTED
        split = engine.split_words(frame[TEXT], self.words) if names and divides(self.words) else None
        measures, edited = self._measured(engine, frame, tuple(dict.fromkeys([*counted, *names])), split)
        if divides(self.words):
            details = count_unlisted(engine, frame, measures) if names else {}
        else:
            details = {name: int(measures[name].sum()) for name in counted}
        columns = self._columns(engine, frame, self.expanded, edited, split)
        verdict = decide(self.expanded, measures, len(frame), columns)
        groups = tuple(groups.numbers_of(columns) for groups in groups_in(self.expanded))
        shown = self.expanded if groups else self.shown_rules().rules
        names = tuple(dict.fromkeys(name for rule in shown for name in rule.measures))
        return Outcome(verdict, details=details, measures={name: measures[name] for name in names}, groups=groups)

    def measure(self, engine: Engine, frame: Frame, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Return these measures of the rows of a frame, int64."""
        return self._measured(engine, frame, names)[0]

    def _measured(
        self, engine: Engine, frame: Frame, names: Sequence[str], split: Split | None = None
    ) -> tuple[dict[str, np.ndarray], Normalized]:
        """Return the measures, and the normalized texts. `normalized_measures` names the measures that are those of
        normalized texts."""
        of_edited = self.normalized_measures
        wanted = dict.fromkeys([*names, *(COUNTS if of_edited else ())])
        measures = measured(engine, frame[TEXT], tuple(wanted), self.tokenizer, self.words, split)
        edited = normalize(engine, frame[TEXT], measures) if of_edited else None
        if edited:
            shared = [name for name in names if name in of_edited]
            for name, values in measured(engine, edited[0], shared, self.tokenizer, self.words).items():
                measures[name][edited[1]] = values
        return {name: measures[name] for name in names}, edited

    def _edited(self, engine: Engine, frame: Frame) -> Normalized:
        return self._measured(engine, frame, ())[1]

    def judge(self, engine: Engine, frame: Frame, measures: Mapping[str, np.ndarray]) -> Verdict:
        """Return which rows of a frame the rules remove, and why, from the measures of the rows."""
        columns = self._columns(engine, frame, self.expanded, self._edited(engine, frame))
        return decide(self.expanded, measures, len(frame), columns)

    def _columns(
        self,
        engine: Engine,
        frame: Frame,
        rules: Sequence[Rule],
        edited: Normalized,
        split: Split | None = None,
    ) -> dict[str, pa.ChunkedArray]:
        """Return the columns that the rules need. Among them are texts divided into words, for lists, and normalized
        texts. Texts are copied to the host only if a rule reads them."""
        columns = _columns(engine, frame, rules)
        if divides(self.words) and any(rule.looks_for_words(columns) for rule in rules):
            columns[DIVIDED[self.words]] = Texts(engine, lambda: self._divided(engine, frame[TEXT], split), len(frame))
        for name, key in NORMALIZED.items():
            if edited and name in columns:
                columns[key] = _normalized_texts(engine, columns[name], self.words if name != TEXT else "", edited)
        return columns

    def _divided(self, engine: Engine, text: Text, split: Split | None) -> Text:
        return with_parts(engine, text, *split) if split else split_words(engine, text, self.words)

    def warnings(self, count: StageCount) -> list[str]:
        return [f"{count.name}: {line}" for line in list_warnings(self.expanded, self.words)]


def _normalized_texts(engine: Engine, texts: Texts, words: str, edited: tuple[Text, np.ndarray]) -> Texts:
    """Return texts with those of `edited` in place of the ones that they were made from, divided as `texts` are."""
    return Texts(
        engine,
        lambda: with_parts(engine, texts.text, split_words(engine, edited[0], words), edited[1]),
        len(texts),
    )


def _normalized(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules that judge normalized texts."""
    return [rule for rule in rules if isinstance(rule, GroupedRule) and rule.normalized]


def _columns(engine: Engine, frame: Frame, rules: Sequence[Rule]) -> dict[str, pa.ChunkedArray]:
    """Return the columns that the rules need; none if all rules are on measures."""
    columns = {}
    for rule in rules:
        for name in rule.columns:
            if name not in columns:
                columns[name] = _column(engine, frame, name, rule)
    return columns


def _column(engine: Engine, frame: Frame, name: str, rule: Rule) -> pa.ChunkedArray:
    names = list(frame.columns)
    if name not in names:
        hint = nearest(name, [*names, *Measure.__members__] if rule.conditions[0] in ("min", "max") else names)
        raise RecipeError(f"rule {rule.name}: no column {name!r} in the documents{hint}")
    if names.count(name) > 1:
        raise RecipeError(f"rule {rule.name}: {names.count(name)} columns named {name!r}; drop or rename all but one")
    if name == TEXT:
        return Texts(engine, lambda: frame[TEXT], len(frame))
    try:
        return engine.to_arrow(frame[[name]]).column(0)
    except pa.ArrowException as error:  # Python objects of several types
        raise RecipeError(
            f"rule {rule.name}: column {name!r} holds values of several types: {error}. Convert them, such as by "
            "pandas.to_numeric"
        ) from None
