# SPDX-License-Identifier: Apache-2.0
"""`language`: identify the language of each document; with `keep`, remove documents in other languages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT, Engine, Frame, Text
from curation.base.errors import counted, nearest
from curation.kernels.fasttext import SCORE_UNITS
from curation.models.fasttext import describe_model, label_names, load_classifier
from curation.reading.source_files import RESERVED
from curation.rules.decide import Verdict
from curation.rules.languages import matching, scripts_of
from curation.stages.base import PATH, ColumnFacts, Function, RowStage, Stage, counts_line
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.normalized import COUNTS, MIN_BYTES, Classify, classify_normalized
from curation.stages.rows.scripts import SCRIPT, script_columns

ANY = "any"  # language
REASONS = ("language", "language_probability")
MAX_UNSURE_SHARE = 0.05  # of documents in a wanted language; if more are removed as unsure, the report warns
MIN_PROBABILITY = 0.65
UNLABELLED = "none"  # name for documents without a label, in counts by language
MAX_UNLABELLED_SHARE, MIN_UNLABELLED = 0.2, 10  # above this share and number without a label, the report warns
SHOWN_REASONS = 5
COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Language(RowStage, frozen=True, kw_only=True, tag="language"):
    """Keep documents whose most probable language is in `keep`, with a probability of at least `min_probability`.

    keep               languages, in any form: `zh`, `zho`, `cmn_Hani`, `ZHO_Hans`. A label of the model is allowed,
                       too; a language without a script means all its scripts. Default, and `any`: the stage only adds
                       the columns, and keeps all documents
    min_probability    lower bound of fastText's probability, in [0, 1]; resolution 0.000001; needs `keep`
    label_probability  lower bound of the probability of a label, in [0, 1]: documents below it have none
    model              path of a supervised fastText model, `.bin` or `.ftz`; "" is `lid.176.ftz`, which
                       comes with gpu-pipeline (Joulin et al. 2016)
    max_characters     number of characters (code points) classified, from the first token: ASCII white space and NUL at
                       the start do not count; 0: all; line ends count as spaces
    windows            windows of equal size, spread over the text, that the `max_characters` come from: a menu or a
                       notice at the start does not decide; 1: the start of the text
    normalize          whether text in capitals is classified in lower case, and Arabic and Hebrew without vowel marks,
                       and a text has no label, and probability 0, if its main script is none of the model's languages;
                       `false` classifies text as it is, as published recipes do
    column             name of the column in `documents/` for the most probable language (string, null without a label);
                       `<column>_probability` has its probability (float64). If two stages share a `column`, the later
                       one overwrites it

    Documents in another language are removed with the reason `language`. Documents below `min_probability` are removed
    with the reason `language_probability`. The value is the probability of the most probable language. Raises
    ValueError for a code that the model does not have, InputError for a model that cannot be used.
    """

    # 2: text in capitals, and Arabic and Hebrew with vowel marks; 3: scripts that the model does not know
    revision: ClassVar[int] = 3
    function: ClassVar[Function] = Function(
        """Return the rows in one of the languages `keep`, with the columns `language` and `language_probability`
        (float64).

        Existing columns of these two names are replaced.

            >>> texts = ["Nobody knows for sure why it does that.", "Niemand weiß so recht, warum er das tut."]
            >>> curation.language(pandas.DataFrame({"text": texts}), keep="de")["text"].tolist()
            ['Niemand weiß so recht, warum er das tut.']
        """,
        second="keep",
        types={"model": PATH},
    )

    keep: str | list[str] = msgspec.field(default_factory=list)
    min_probability: float = MIN_PROBABILITY
    label_probability: float = 0.0
    model: str = ""
    max_characters: int = 1000
    windows: int = 1
    normalize: bool = True
    column: str = "language"

    def __post_init__(self) -> None:
        keep = [self.keep] if isinstance(self.keep, str) else self.keep
        msgspec.structs.force_setattr(self, "keep", [] if keep == [ANY] else keep)
        if not self.keep and self.min_probability != MIN_PROBABILITY:
            raise ValueError(
                f"min_probability is {self.min_probability}, but without keep the stage removes no document; give keep "
                "too, such as [en], or leave min_probability out"
            )
        for name in ("min_probability", "label_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")
        if self.max_characters < 0:
            raise ValueError(f"max_characters must be 0 (all) or more, not {self.max_characters}")
        if self.windows < 1 or self.windows > max(self.max_characters, 1):
            raise ValueError(
                f"windows must be from 1 to max_characters, which is {self.max_characters}, not {self.windows}: each "
                "window has max_characters / windows characters of the text"
            )
        check_new_column(self.column)
        labels_of(self.keep, self.model, "keep")

    @property
    def kept_labels(self) -> list[str]:
        """The labels of the model that are kept; none if all are."""
        return labels_of(self.keep, self.model, "keep")

    def kernels(self) -> tuple[str, ...]:
        return ("language", "measures", "rewrite") if self.normalize else ("language",)

    def writes(self) -> dict[str, str]:
        return {self.column: "large_string", f"{self.column}_probability": "double"}

    def column_facts(self, column: str) -> ColumnFacts:
        return ColumnFacts((*(self.kept_labels or label_names(self.model)),) if column == self.column else ())

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        model = load_classifier(self.model)

        def classify(text: Text) -> tuple[np.ndarray, np.ndarray]:
            if self.windows == 1:
                return engine.classify(text, model, self.max_characters)
            return engine.classify(engine.spread_windows(text, self.windows, self.max_characters), model, 0)

        text = frame[TEXT]
        if self.normalize:
            label, score = self._classify_normalized(engine, text, classify, model.labels)
        else:
            label, score = classify(text)
        probability = score / SCORE_UNITS
        label = np.where(probability < self.label_probability, -1, label)
        names = pa.array(model.labels, pa.large_string()).take(pa.array(label, mask=label < 0))
        columns = dict(zip(self.writes(), (names, probability), strict=True))
        details = _counts(model.labels, label)
        if not self.keep:
            return Outcome(columns=columns, details=details)
        wanted = np.isin(label, [model.labels.index(name) for name in self.kept_labels])
        reason = np.full(len(label), -1, np.int16)
        reason[probability < self.min_probability] = 1
        reason[~wanted] = 0
        bounds = ((-math.inf, math.inf), (self.min_probability, math.inf))
        verdict = Verdict(reason, REASONS, np.where(reason < 0, np.nan, probability), bounds)
        return Outcome(verdict, columns=columns, details=details)

    def _classify_normalized(
        self, engine: Engine, text: Text, classify: Classify, labels: tuple[str, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels and scores of the normalized texts. The label is -1 and the score 0 if no language of the
        model uses the text's main script in the windows. In such a text the model knows only Latin names, digits and
        marks."""
        counts = engine.measure(text, COUNTS)
        label, score = classify_normalized(engine, text, counts, classify)
        known, rows = scripts_of(labels), (label >= 0) & (counts["bytes"] >= MIN_BYTES * counts["characters"])
        if known and rows.any():
            part = engine.filter_rows(text.to_frame(TEXT), rows)
            if self.windows > 1:
                read = engine.spread_windows(part[TEXT], self.windows, self.max_characters)
                part = engine.with_columns(part, {TEXT: read})
            script = script_columns(engine, part, True, ())[SCRIPT]
            rows[rows] = ~pc.is_in(script, pa.array([*known, None], script.type)).to_numpy(zero_copy_only=False)
            label[rows], score[rows] = -1, 0
        return label, score

    def files(self) -> dict[str, str]:
        model = describe_model(self.model)
        return {model["file"]: model["sha256"]}

    def explain(self) -> list[str]:
        text = f"the first {self.max_characters:,} characters" if self.max_characters else "the whole text"
        if self.windows > 1:
            text = f"{self.windows} windows of {self.max_characters // self.windows:,} characters"
        if not self.keep:
            unclear = f"; no label below a probability of {self.label_probability:g}" if self.label_probability else ""
            return [f"keep all documents; classify {text}{unclear}"]
        languages = ", ".join(self.keep)
        return [f"keep {languages} with a probability of at least {self.min_probability:g}; classify {text}"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return one line: documents per language before the stage, largest first, and the model."""
        model = describe_model(self.model)
        licence = f", {model['licence']}" if "licence" in model else ""
        return [f"{counts_line(count.details) or 'no documents'}; by {model['file']}{licence}"]

    def warnings(self, count: StageCount) -> list[str]:
        """Return a warning that many documents in a wanted language are removed only for their probability."""
        unsure = count.reasons.get(REASONS[1], 0)
        wanted = unsure + count.documents_out
        if unsure <= wanted * MAX_UNSURE_SHARE:
            return []
        return [
            f"{count.name}: {unsure:,} of {wanted:,} documents ({unsure / wanted:.0%}) that the model labels "
            f"{' or '.join(self.keep)} have a probability below {self.min_probability:g} and were removed. lid.176.ftz "
            "gives short, technical and mixed text low probabilities. Look at them with curate show DIR --reason "
            f"{REASONS[1]}; to keep more, lower min_probability, or set model: to lid.176.bin"
        ]


def language_column(stages: Sequence[Stage]) -> str:
    """Return the column of the last `language` stage; "" without one."""
    return next((stage.column for stage in reversed(stages) if isinstance(stage, Language)), "")


def unlabelled_line(documents: float, unlabelled: float, kept: float, removed: Mapping[tuple[str, str], float]) -> str:
    """Return a line about the documents that the stage gave no label: how many the run keeps, and how many it removes
    by each reason. `removed` maps (stage, reason) to a number of documents; it is empty if that is unknown."""
    start = f"{unlabelled:,.0f} of {counted(round(documents), 'document')} ({unlabelled / documents:.0%}) have no label"
    ranked = sorted(removed.items(), key=lambda pair: (-pair[1], pair[0]))
    reasons = [f"{stage} ({reason}) {number:,.0f}" for (stage, reason), number in ranked[:SHOWN_REASONS]]
    if rest := sum(number for _, number in ranked[SHOWN_REASONS:]):
        reasons.append(f"other reasons {rest:,.0f}")
    gone = f" and remove {unlabelled - kept:,.0f}" if kept < unlabelled else ""
    return f"{start}; all stages keep {kept:,.0f} of these{gone}{': ' * bool(reasons)}{', '.join(reasons)}"


def unlabelled_warning(stage: Language, name: str, documents: float, unlabelled: float) -> list[str]:
    """Return a warning if many documents have no label; else an empty list."""
    if stage.keep or unlabelled < MIN_UNLABELLED or unlabelled <= documents * MAX_UNLABELLED_SHARE:
        return []
    cause = f"has a probability of at least {stage.label_probability:g}" if stage.label_probability else "is found"
    return [
        f"{name}: {unlabelled / documents:.0%} of the documents have no label, because no language {cause}. They are "
        "short, mixed, or in a language that the model does not know. docs/your_language.md says how they are judged; "
        "model: can be a model that knows more languages"
    ]


def labels_of(codes: Sequence[str], model: str, where: str) -> list[str]:
    """Return the labels of a model for languages in any form. Raises ValueError for a language that the model does not
    have, or that is listed twice; its message names the setting `where`."""
    labels = label_names(model)
    found: dict[str, str] = {}
    for code in codes:
        own = matching(code, labels)
        for label in own:
            if found.setdefault(label, code) != code:
                raise ValueError(f"{where}: {found[label]!r} and {code!r} are the same language. List it once")
        if not own:
            raise ValueError(f"{where}: no language {code!r} in the model{nearest(code, labels)}")
    return list(found)


def check_new_column(name: str) -> None:
    """Raise ValueError if a stage cannot add a column with this name."""
    if not COLUMN.fullmatch(name) or name in RESERVED:
        raise ValueError(f"column must be letters, digits and '_', and none of {', '.join(RESERVED)}, not {name!r}")


def _counts(labels: tuple[str, ...], label: np.ndarray) -> dict[str, int]:
    """Return the number of documents per language, and the number of documents without a language."""
    numbers, counts = np.unique(label, return_counts=True)
    names = [labels[number] if number >= 0 else UNLABELLED for number in numbers.tolist()]
    return dict(zip(names, counts.tolist(), strict=True))
