# SPDX-License-Identifier: Apache-2.0
"""`rewrite`: change the text of documents; it removes no document."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from curation.contract import TEXT, Engine, Frame
from curation.kernels.rewrite import CHOICES, RewriteSteps
from curation.stages.base import Function, RowStage
from curation.stages.outcome import Outcome


class Rewrite(RowStage, frozen=True, kw_only=True, tag="rewrite"):
    """Rewrite text in this order: Unicode form, markup, control characters, character class, case, white space.

    unicode     `nfc` or `nfkc`: normalization form (UAX #15), in upper or lower case
    markup      `strip` deletes `<[^>]+>`; `strip_line` deletes `<.*?>` within a line
    control     `strip` deletes category Cc except tab, line feed and carriage return; `strip_all` deletes all of Cc
    characters  `basic` deletes characters outside `[\\w\\s.,!?]`; `folded` replaces each decimal digit by 0 and each
                punctuation character (categories P*) by a space
    lowercase   true applies `str.lower()`
    whitespace  `collapse` replaces each run of white space by one space and strips; `strip` only strips; `lines` strips
                line ends and keeps at most one blank line in a row

    The default `keep` leaves the text unchanged. Use two stages for another order. All engines use Unicode 17.0. Nulls
    stay nulls. ValueError if no option changes the text.
    """

    removes: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        """Return the frame with its text rewritten.

            >>> frame = pandas.DataFrame({"text": ["One  two ", "three"]})
            >>> curation.rewrite(frame, whitespace="collapse", lowercase=True)["text"].tolist()
            ['one two', 'three']
        """,
    )

    unicode: str = "keep"
    markup: str = "keep"
    control: str = "keep"
    characters: str = "keep"
    lowercase: bool = False
    whitespace: str = "keep"

    def __post_init__(self) -> None:
        if isinstance(self.unicode, str):
            msgspec.structs.force_setattr(self, "unicode", self.unicode.lower())
        for option, allowed in CHOICES.items():
            if getattr(self, option) not in allowed:
                raise ValueError(f"{option} must be one of {', '.join(allowed)}, not {getattr(self, option)!r}")
        if self.steps == RewriteSteps():
            raise ValueError(f"this rewrite changes nothing; set one of {', '.join(CHOICES)}, lowercase")

    @property
    def steps(self) -> RewriteSteps:
        """The settings as the engine takes them."""
        return RewriteSteps(
            unicode=self.unicode,
            markup=self.markup,
            control=self.control,
            characters=self.characters,
            lowercase=self.lowercase,
            whitespace=self.whitespace,
        )

    def kernels(self) -> tuple[str, ...]:
        return ("rewrite",)

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        text, edited = engine.rewrite(frame[TEXT], self.steps)
        return Outcome(text=text, edited=edited)

    def explain(self) -> list[str]:
        chosen = {option: getattr(self, option) for option in CHOICES if getattr(self, option) != "keep"}
        return [
            ", ".join([*(f"{option} {value}" for option, value in chosen.items()), *["lowercase"] * self.lowercase])
        ]
