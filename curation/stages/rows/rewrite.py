# SPDX-License-Identifier: Apache-2.0
"""`rewrite`: change the text of documents; it removes a document only if its text would become too large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT, Engine, Frame
from curation.kernels.rewrite import CHOICES as KERNEL_CHOICES
from curation.kernels.rewrite import RewriteSteps
from curation.rules.grammar import shortened
from curation.stages.base import Function, RowStage
from curation.stages.outcome import Outcome
from curation.stages.rows import mojibake
from curation.stages.rows.invisible import remove_invisible
from curation.stages.rows.tags import remove_tags
from curation.stages.rows.text_edits import (
    MAX_REPLACEMENTS,
    Replacement,
    collapse_blank_lines,
    convert_line_ends,
    decode_entities,
    put_sentences_on_lines,
    replace_matches,
    replacement_problem,
)
from curation.stages.text_sizes import remove_large

HOST_WHITESPACE = {"blank_lines": collapse_blank_lines, "line_ends": convert_line_ends}
CHOICES = {  # in the order of application; `brackets` and `brackets_line` follow the Unicode form
    "entities": ("keep", "decode"),
    "repair": ("keep", "mojibake"),
    "invisible": ("keep", "remove"),
    "markup": ("keep", "strip", *KERNEL_CHOICES["markup"][1:]),
    **{option: allowed for option, allowed in KERNEL_CHOICES.items() if option != "markup"},
    "whitespace": (*KERNEL_CHOICES["whitespace"], *HOST_WHITESPACE),
    "sentences": ("keep", "lines"),
}


class Rewrite(RowStage, frozen=True, kw_only=True, tag="rewrite"):
    r"""Rewrite text in this order: entities, mojibake, invisible characters, markup, Unicode form, control characters,
    character class, case, white space, sentences, patterns of your own.

    entities    `decode` makes HTML entities characters, each once, as `html.unescape`
    repair      `mojibake` repairs UTF-8 that was read in another encoding, line by line with ftfy
                (the extra `repair`), whose version is part of the identity of a run
    invisible   `remove` deletes characters that nobody sees, such as soft hyphens and zero width spaces. Joiners stay
                in scripts whose letters they shape, such as Arabic and Devanagari, and in emoji
    markup      `strip` deletes tags and comments of HTML, and keeps other text in angle brackets. Tags of blocks become
                line ends, those of table cells spaces. `brackets` deletes `<[^>]+>` and `brackets_line` deletes `<.*?>`
                within a line, whatever they contain, after the Unicode form
    unicode     `nfc` or `nfkc`: normalization form (UAX #15), in upper or lower case
    control     `strip` deletes category Cc except tab, line feed and carriage return; `strip_all` deletes all of Cc
    characters  `basic` deletes characters outside `[\w\s.,!?]`; `folded` replaces each decimal digit by 0 and each
                punctuation character (categories P*) by a space; `visible` deletes characters that nobody sees, such as
                soft hyphens, and replaces each punctuation character and sign (P*, S*) by a space
    lowercase   true applies `str.lower()`
    whitespace  `collapse` replaces each run of white space by one space and strips; `strip` only strips; `lines` strips
                line ends and keeps at most one blank line in a row; `blank_lines` only keeps at most one blank line in
                a row; `line_ends` only replaces CR LF by LF
    sentences   `lines` writes one sentence per line: a line feed between two, a space for a line end within one.
                Sentences are those of the measure `sentences`
    replace     list of `{matches: PATTERN, by: TEXT}`, one after the other; RE2, with groups as `\1`

    The default `keep` leaves the text unchanged. Use two stages for another order. All engines use Unicode 17.0. Nulls
    stay nulls. A run removes a document whose text becomes larger than `max_document_bytes` of its input. Entities,
    mojibake, invisible characters, tags, `blank_lines`, `line_ends`, sentences and patterns are edited on the host.
    Raises ValueError if no option changes the text.
    """

    removes: ClassVar[bool] = False
    # 2: a text that becomes larger than max_document_bytes is removed; 3: `markup: strip` knows tags of HTML
    revision: ClassVar[int] = 3
    function: ClassVar[Function] = Function(
        """Return the frame with its text rewritten.

            >>> frame = pandas.DataFrame({"text": ["One  two ", "three [1]"]})
            >>> notes = {"matches": r" ?\\[\\d+\\]", "by": ""}
            >>> curation.rewrite(frame, whitespace="collapse", lowercase=True, replace=notes)["text"].tolist()
            ['one two', 'three']
        """,
        types={"replace": "Mapping[str, str] | Sequence[Mapping[str, str]]"},
    )

    unicode: str = "keep"
    markup: str = "keep"
    control: str = "keep"
    characters: str = "keep"
    lowercase: bool = False
    whitespace: str = "keep"
    entities: str = "keep"
    repair: str = "keep"
    invisible: str = "keep"
    sentences: str = "keep"
    replace: tuple[Replacement, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.unicode, str):
            msgspec.structs.force_setattr(self, "unicode", self.unicode.lower())
        if self.markup == "strip_line":
            raise ValueError("markup: strip_line is now brackets_line. strip deletes only tags of HTML")
        for option, allowed in CHOICES.items():
            if getattr(self, option) not in allowed:
                raise ValueError(f"{option} must be one of {', '.join(allowed)}, not {getattr(self, option)!r}")
        if len(self.replace) > MAX_REPLACEMENTS:
            raise ValueError(
                f"replace has {len(self.replace):,} patterns, expected at most {MAX_REPLACEMENTS:,}, as each reads all "
                "texts. Join patterns with the same replacement by |"
            )
        msgspec.structs.force_setattr(self, "replace", msgspec.convert(self.replace, tuple[Replacement, ...]))
        for number, each in enumerate(self.replace):
            if problem := replacement_problem(each):
                raise ValueError(f"replace[{number}]: {problem}")
        if self.steps == RewriteSteps() and not self._on_host:
            raise ValueError(f"this rewrite changes nothing; set one of {', '.join(CHOICES)}, lowercase, replace")

    @property
    def steps(self) -> RewriteSteps:
        """The settings of the steps that the engine runs."""
        return RewriteSteps(
            unicode=self.unicode,
            markup="keep" if self.markup == "strip" else self.markup,
            control=self.control,
            characters=self.characters,
            lowercase=self.lowercase,
            whitespace="keep" if self.whitespace in HOST_WHITESPACE else self.whitespace,
        )

    @property
    def _on_host(self) -> bool:
        """Whether a step edits the texts on the host."""
        options = self.entities, self.repair, self.invisible, self.sentences
        named = self.markup == "strip" or self.whitespace in HOST_WHITESPACE
        return bool(self.replace) or named or any(value != "keep" for value in options)

    def kernels(self) -> tuple[str, ...]:
        return () if self.steps == RewriteSteps() else ("rewrite",)

    def computed_with(self) -> dict[str, str]:
        return {} if self.repair == "keep" else mojibake.facts()

    def check(self, inputs: Sequence[str]) -> None:
        if self.repair != "keep":
            mojibake.load()

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        if not self._on_host:
            text, edited = engine.rewrite(frame[TEXT], self.steps)
            return Outcome(text=text, edited=edited)
        before = _on_host(engine, frame)
        text = self._last_edits(self._by_engine(engine, frame, before, self._first_edits(before)))
        edited = pc.fill_null(pc.not_equal(before, text), False).to_numpy(zero_copy_only=False)
        outcome = Outcome(text=text, edited=edited) if text is not before and edited.any() else Outcome()
        if text.null_count == before.null_count:
            return outcome
        gone = np.asarray(text.is_null()) & np.asarray(before.is_valid())
        whole = pc.if_else(pa.array(gone), before, text)
        return remove_large(outcome if outcome.text is None else outcome._replace(text=whole), gone, np.nan)

    def _first_edits(self, text: pa.Array) -> pa.Array:
        """Return the texts after the host's steps that come before the engine's steps."""
        if self.entities != "keep":
            text = decode_entities(text)
        if self.repair != "keep":
            text = mojibake.repair_mojibake(text)
        text = text if self.invisible == "keep" else remove_invisible(text)
        return remove_tags(text) if self.markup == "strip" else text

    def _by_engine(self, engine: Engine, frame: Frame, before: pa.Array, text: pa.Array) -> pa.Array:
        """Return `text` after the engine's steps. `before` has the texts of the frame."""
        if self.steps == RewriteSteps():
            return text
        frame = frame[[TEXT]] if text is before else engine.from_arrow(pa.table({TEXT: text}))
        rewritten, edited = engine.rewrite(frame[TEXT], self.steps)
        return _on_host(engine, engine.with_columns(frame, {TEXT: rewritten})) if edited.any() else text

    def _last_edits(self, text: pa.Array) -> pa.Array:
        """Return the texts after the host's steps that follow the engine's steps."""
        if self.whitespace in HOST_WHITESPACE:
            text = HOST_WHITESPACE[self.whitespace](text)
        if self.sentences != "keep":
            text = put_sentences_on_lines(text)
        for each in self.replace:
            text = replace_matches(text, each.matches, each.by)
        return text

    def explain(self) -> list[str]:
        """Return one line with all steps except the patterns, then one line per pattern."""
        chosen = [f"{option} {getattr(self, option)}" for option in CHOICES if getattr(self, option) != "keep"]
        steps = ", ".join(chosen + ["lowercase"] * self.lowercase)
        patterns = [f"replace {shortened(each.matches)} by {shortened(each.by)}" for each in self.replace]
        return [steps] * bool(steps) + patterns


def _on_host(engine: Engine, frame: Frame) -> pa.Array:
    """Return the texts of a frame as one Arrow array."""
    column = engine.to_arrow(frame[[TEXT]]).column(TEXT)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
