# SPDX-License-Identifier: Apache-2.0
"""`lines`: cut lines, paragraphs or sentences that break a rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT, Engine, Frame, UnitFrame
from curation.kernels.units import UNITS, count_repeats
from curation.models.fasttext import describe_model, load_classifier
from curation.rules.decide import Verdict
from curation.rules.grammar import DIVIDED
from curation.rules.rule_lists import (
    check_lists,
    list_files,
    list_kernels,
    list_warnings,
    lists_in,
    sizes_of,
    with_stored_lists,
)
from curation.rules.units import (
    DOCUMENT,
    LANGUAGE,
    REPEATS,
    UnitRule,
    expand_unit_rules,
    first_broken,
    values_of,
)
from curation.stages.base import Function, RowStage, ShownRules, Stage, counts_line
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.language import labels_of
from curation.stages.rows.token_counts import check_tokenizer, check_use, measured, tokenizer_files
from curation.stages.words import check_words, divides, kernels_of, split_words

MAX_CHARACTERS = 1000  # of a unit that language identification reads, as in the stage `language`
TOO_MUCH = "too_much_removed"
SHARES = ("words", "lines", "characters")
CUT_UNITS, CUT_CHARACTERS = "cut_units", "cut_characters"


class Lines(RowStage, frozen=True, kw_only=True, dict=True, tag="lines"):
    """Cut the lines, paragraphs or sentences of texts that break one of `rules`.

    unit         `line`: an element of `str.splitlines()`; `paragraph`: a run of lines with words; `sentence`: the
                 words up to one that ends a sentence
    rules        rules as in `filter`, on each unit; the first one that a unit breaks cuts the unit. With
                 `removes: document` the rule removes the document. `repeats` counts equal units before it. `language`
                 lists languages, as `keep` of the stage `language` does; `min_probability` bounds the probability
    max_removed  `words`, `lines` or `characters` -> share: a document that would lose more is removed, with the reason
                 `too_much_removed`. `lines` counts units. Default: no limit
    strip        true strips white space at both ends of units before the rules, and of those that are kept
    cut          false cuts nothing: only `max_removed` and `removes: document` count
    tokenizer    tokenizer of the measure `tokens`, as in the recipe's `tokenizer.name`, the default in recipes
    words        what a word is: `spaces`, `scripts` or `table` (docs/languages.md); default: that of the recipe
    model        path of a supervised fastText model for rules on languages; "" is `lid.176.ftz`, which comes
                 with gpu-pipeline. It reads the first 1,000 characters of a unit

    A line is cut with its line end, a paragraph with the blank lines after it, a sentence with the white space after
    it. Text before the first unit belongs to that unit. Other bytes do not change. Put rules on columns into a
    `filter`. A null has no units.
    """

    revision: ClassVar[int] = 2  # 2: where words end by `scripts` and `table`
    function: ClassVar[Function] = Function(
        """Return the frame without the lines, paragraphs or sentences that break one of `rules`.

            >>> frame = pandas.DataFrame({"text": ["Home | Menu\\nA sentence with some words.\\nHome"]})
            >>> curation.lines(frame, {"words": {"min": 4}})["text"].tolist()
            ['A sentence with some words.\\n']
        """,
        types={"rules": "str | Rule | dict[str, Any] | Sequence[str | Rule | dict[str, Any]]"},
    )

    rules: str | list[str | UnitRule]
    unit: str = "line"
    max_removed: dict[str, float] = msgspec.field(default_factory=dict)
    strip: bool = False
    cut: bool = True
    tokenizer: str = ""
    words: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        check_words(self.words)
        if self.unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}, not {self.unit!r}")
        if not self.expanded:
            raise ValueError("rules is empty; name a rule set, or give a rule: {words: {min: 3}}")
        for name, share in self.max_removed.items():
            if name not in SHARES:
                raise ValueError(f"max_removed takes {', '.join(SHARES)}, not {name!r}")
            if not 0 <= share < 1:
                raise ValueError(f"max_removed: {name} must be a share from 0 to below 1, not {share:g}")
        if not self.cut and not self.max_removed and not any(rule.removes for rule in self.expanded):
            raise ValueError(
                "cut: false changes nothing without max_removed, and no rule removes a document. Give max_removed: "
                "{words: 0.05}"
            )
        check_use(self.measures, self.tokenizer)
        if self.model and not self._languages:
            raise ValueError(f"model {self.model!r} has no use: no rule is on languages. Leave it out")
        for codes in self._languages.values():
            labels_of(codes, self.model, LANGUAGE)

    @cached_property
    def expanded(self) -> tuple[UnitRule, ...]:
        """The single rules, in the order in which they are applied."""
        return expand_unit_rules(self.rules)

    def kernels(self) -> tuple[str, ...]:
        return (
            "units",
            "measures",
            *kernels_of(self.words),
            *(("hashes",) if REPEATS in self.measures else ()),
            *(("language",) if self._languages else ()),
            *list_kernels(self.expanded),
        )

    def files(self) -> dict[str, str]:
        files = list_files(self.expanded) | tokenizer_files(self.measures, self.tokenizer)
        if not self._languages:
            return files
        model = describe_model(self.model)
        return files | {model["file"]: model["sha256"]}

    def check(self, inputs: Sequence[str]) -> None:
        check_lists(self.expanded, self.words)
        check_tokenizer(self.measures, self.tokenizer)

    def prepare(self, folder: Path) -> Stage:
        """Store the entries of lists in files that all tasks share."""
        if not lists_in(self.expanded):
            return self
        return msgspec.structs.replace(self, rules=list(with_stored_lists(self.expanded, folder, self.words)))

    def shown_rules(self) -> ShownRules:
        return ShownRules(tuple(rule for rule in self.expanded if rule.is_on_measures), unit=self.unit)

    def explain(self) -> list[str]:
        """Return one line per rule."""
        lines = list_warnings(self.expanded, self.words)
        for rule in self.expanded:
            removes = " or the document is removed" if rule.removes else f" or the {self.unit} is cut" * self.cut
            lines.append(f"{rule.describe()}{removes}")
        lines += sizes_of(self.expanded, self.words)
        return lines + [f"{TOO_MUCH}: more than {share:g} of the {name}" for name, share in self.max_removed.items()]

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures that the rules need, including `repeats`."""
        return tuple(dict.fromkeys(name for rule in self.expanded for name in rule.measures))

    @property
    def _languages(self) -> dict[str, tuple[str, ...]]:
        """The codes of languages that each rule on languages lists, by the name of its measure; rules inside `any` are
        included."""
        parts = [part for rule in self.expanded for part in rule.parts]
        return {part.measures[0]: part.codes for part in parts if isinstance(part, UnitRule) and part.codes}

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        units = engine.split_units(frame[TEXT], self.unit, self.strip)
        judged = self._judged(engine, units)
        verdict = self._verdict(units, judged)
        own = np.repeat(verdict.kept, units.counts)  # per unit: whether the rules keep its document
        cut = judged.broken >= 0 if self.cut else np.zeros(len(own), bool)
        details = self._details(judged, own & cut, len(own))
        measures = {name: judged.measures[name] for rule in self.shown_rules().rules for name in rule.measures}
        outcome = Outcome(verdict, details=details, unit_measures=measures)
        if not self.cut or not (self.strip or (own & cut).any()):
            return outcome
        text, edited = engine.join_units(frame[TEXT], units, ~(own & cut))
        return outcome._replace(text=text, edited=edited & verdict.kept)

    def _judged(self, engine: Engine, units: UnitFrame) -> Judged:
        """Measure the units, and find the first rule that each unit breaks."""
        rules = self.expanded
        columns = {}
        if any(rule.columns for rule in rules):
            columns[TEXT] = engine.to_arrow(units.frame).column(TEXT)
        if divides(self.words) and any(rule.looks_for_words(columns) for rule in rules):
            divided = split_words(engine, units.frame[TEXT], self.words)
            columns[DIVIDED[self.words]] = engine.to_arrow(divided.to_frame(TEXT)).column(TEXT)
        languages = self._languages
        names = [name for name in self.measures if name != REPEATS and name not in languages]
        names += ["words"] * (REPEATS in self.measures or "words" in self.max_removed)
        measures: dict[str, np.ndarray] = {}
        if names or not columns:
            names = [*dict.fromkeys([*names, "characters"])]
            measures = measured(engine, units.frame[TEXT], names, self.tokenizer, self.words)
        else:
            measures["characters"] = pc.utf8_length(columns[TEXT]).to_numpy()
        if REPEATS in self.measures:
            repeats = count_repeats(engine.hash_text(units.frame[TEXT]), units.counts)
            measures[REPEATS] = np.where(measures["words"] > 0, repeats, 0)
        if languages:
            model = load_classifier(self.model)
            label, score = engine.classify(units.frame[TEXT], model, MAX_CHARACTERS)
            for name, codes in languages.items():
                listed = np.isin(label, [model.labels.index(each) for each in labels_of(codes, self.model, LANGUAGE)])
                measures[name] = np.where(listed, score, 0)
        broken = first_broken(rules, len(units.frame), measures, columns)
        return Judged(rules, measures, columns, broken)

    def _verdict(self, units: UnitFrame, judged: Judged) -> Verdict:
        rules, rows = judged.rules, len(units.counts)
        document = np.repeat(np.arange(rows), units.counts)
        reason, value = np.full(rows, -1, np.int16), np.full(rows, np.nan)
        removes = np.array([rule.removes == DOCUMENT for rule in rules] + [False])  # the last entry is for -1: no rule
        at = np.flatnonzero(removes[judged.broken])
        documents, first = np.unique(document[at], return_index=True)
        at = at[first]
        reason[documents] = judged.broken[at]
        for number in np.unique(judged.broken[at]).tolist():
            own = judged.broken[at] == number
            value[documents[own]] = values_of(rules[number], judged.measures, judged.columns, at[own])
        for number, (name, share) in enumerate(self.max_removed.items(), len(rules)):
            weights = np.ones(len(document)) if name == "lines" else judged.measures[name].astype(np.float64)
            whole = np.bincount(document, weights, rows)
            lost = np.bincount(document, weights * (judged.broken >= 0), rows) / np.maximum(whole, 1)
            gone = (reason < 0) & (lost > share)
            reason[gone], value[gone] = number, lost[gone]
        limits = tuple((-math.inf, share) for share in self.max_removed.values())
        names = (*(rule.name for rule in rules), *(TOO_MUCH for _ in limits))
        return Verdict(reason, names, value, (*(rule.bounds for rule in rules), *limits))

    @staticmethod
    def _details(judged: Judged, cut: np.ndarray, units: int) -> dict[str, int]:
        """Return the number of units, and the numbers of units and characters that are cut, in total and per rule."""
        number, rules = judged.broken[cut], len(judged.rules)
        by_rule = np.bincount(number, minlength=rules).tolist()
        characters = np.bincount(number, judged.measures["characters"][cut], rules).astype(np.int64).tolist()
        details = {"units": units, CUT_UNITS: sum(by_rule), CUT_CHARACTERS: sum(characters)}
        seen = Counter[str]()
        for rule, count, size in zip(judged.rules, by_rule, characters, strict=True):
            seen[rule.name] += 1
            own = f"{rule.name}_{seen[rule.name]}" if seen[rule.name] > 1 else rule.name
            details |= {f"{CUT_UNITS}/{own}": count, f"{CUT_CHARACTERS}/{own}": size}
        return details

    def broken_units(self, engine: Engine, text: str, reason: str) -> list[tuple[int, int]]:
        """Return the units to show in the text of a removed document, as ascending pairs (start, stop) in characters.
        These units break the rule that is the reason, or any rule if the reason is `too_much_removed`."""
        frame = engine.from_arrow(pa.table({TEXT: pa.array([text], pa.large_string())}))
        units = engine.split_units(frame[TEXT], self.unit, False)
        contents = engine.to_arrow(units.frame).column(TEXT).to_pylist()
        broken = self._judged(engine, engine.split_units(frame[TEXT], self.unit, self.strip)).broken
        numbers = {k for k, rule in enumerate(self.expanded) if reason in (rule.name, TOO_MUCH)}
        spans, place = [], 0
        for content, number in zip(contents, broken.tolist(), strict=True):
            place = text.index(content, place)
            spans += [(place, place + len(content))] if number in numbers and content else []
            place += len(content)
        return spans

    def warnings(self, count: StageCount) -> list[str]:
        return [f"{count.name}: {line}" for line in list_warnings(self.expanded, self.words)]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return lines with the number of units cut, the units cut per rule, and the documents removed."""
        details, many = count.details, f"{self.unit}s"
        cut, characters = details.get(CUT_UNITS, 0), details.get(CUT_CHARACTERS, 0)
        start = f"{CUT_UNITS}/"
        by_rule = {name.removeprefix(start): n for name, n in details.items() if name.startswith(start) and n}
        lines = [f"{cut:,} of {details.get('units', 0):,} {many} cut, with {characters:,} characters"] * self.cut
        lines += [f"{many} by rule: {counts_line(by_rule)}"] * bool(by_rule)
        removed = {reason: number for reason, number in count.reasons.items() if number}
        return lines + ([f"documents removed: {counts_line(removed)}"] if removed else [])


class Judged(NamedTuple):
    """The units of a frame, judged by the rules.

    rules     the rules
    measures  name -> int64, one per unit
    columns   the texts of the units on the host, and these texts divided into words, if a rule needs them
    broken    int16: the first rule that each unit breaks, -1 for none
    """

    rules: Sequence[UnitRule]
    measures: Mapping[str, np.ndarray]
    columns: Mapping[str, pa.ChunkedArray]
    broken: np.ndarray
