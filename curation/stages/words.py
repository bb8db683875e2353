# SPDX-License-Identifier: Apache-2.0
"""The setting `words` of stages: what a word is. `curation.kernels.word_breaks` has the definitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec
import numpy as np

from curation.base.contract import Engine, Text
from curation.base.errors import nearest
from curation.kernels.word_breaks import SCRIPTS, SPACES, TABLE, WORD_SPACE, WORDS, ZERO_WIDTH_SPACE
from curation.stages.base import Stage

AnyStage = TypeVar("AnyStage", bound=Stage)
Split = tuple[Text, np.ndarray]  # what `Engine.split_words` returns

# Version of the division by `scripts` and `table`, stored in indexes; 2: line ends in runs, U+1361, U+200B; 3:
# `joined_text`
WORDS_VERSION = 3
# Measures of undivided texts. They are not about words, but division would change them: it adds spaces, and leaves out
# line ends inside words.
OF_UNSPLIT = (
    "bytes", "characters", "lines", "text_lines", "paragraphs", "newlines", "line_characters", "max_line_characters",
    "bullet_lines", "bullet_or_star_lines", "ellipsis_lines", "ellipsis_character_lines", "punctuated_lines",
    "short_lines", "space_characters", "urls", "url_characters", "duplicate_lines", "duplicate_line_characters",
    "duplicate_paragraphs", "duplicate_paragraph_characters", "prose_lines", "prose_line_characters",
    "duplicate_prose_lines", "duplicate_prose_line_characters", "repeated_5character_characters",
    "repeated_10character_characters", "num_5characters", "num_10characters",
)  # fmt: skip


def check_words(words: str) -> None:
    """Raise ValueError for an unknown kind of words."""
    if words and words not in WORDS:
        raise ValueError(f"words must be {', '.join(WORDS[:-1])} or {WORDS[-1]}, not {words!r}{nearest(words, WORDS)}")


def divides(words: str) -> bool:
    """Return whether words may also end at other places than white space; "" means `spaces`."""
    return words not in ("", SPACES)


def left_out(words: str) -> str:
    """Return the characters, besides white space, that `split_words` leaves out of texts."""
    return {SCRIPTS: f"{chr(WORD_SPACE)}{chr(ZERO_WIDTH_SPACE)}", TABLE: chr(ZERO_WIDTH_SPACE)}.get(words, "")


def kernels_of(words: str) -> tuple[str, ...]:
    """Return the group of kernels that divides texts into these words, for `Stage.kernels`; none for `spaces`."""
    return ("words",) if divides(words) else ()


def with_words(stage: AnyStage, words: str) -> AnyStage:
    """Return a stage of a recipe, with the recipe's `words` if the stage has that setting and leaves it empty."""
    if words != SPACES and getattr(stage, "words", None) == "" and getattr(stage, "unit", "") != "character":
        return msgspec.structs.replace(stage, words=words)
    return stage


def split_words(engine: Engine, text: Text, words: str) -> Text:
    """Return the texts with a space between adjacent words, without the characters that neither belong to a word nor
    end one. `words` is one of WORDS, or "" for `spaces`."""
    if not divides(words):
        return text
    parts, wanted = engine.split_words(text, words)
    return with_parts(engine, text, parts, wanted)


def with_parts(engine: Engine, text: Text, parts: Text, wanted: np.ndarray) -> Text:
    """Replace the texts where `wanted` (bool, one per text) is true by `parts`, and return all texts."""
    if wanted.all() or not wanted.any():
        return parts if wanted.any() else text
    return engine.replace_texts(text, parts, wanted)


def measure_words(
    engine: Engine, text: Text, names: Collection[str], words: str, split: Split | None = None
) -> dict[str, np.ndarray]:
    """Return the measures `names` of each text, int64. `words` says what a word is; `split` is what
    `Engine.split_words` returned. `table` has the sentences of `scripts`: in `table` a closing bracket is a word, and
    would begin a sentence.
    """
    if not names:
        return {}
    parts, wanted = split or (engine.split_words(text, words) if divides(words) else (text, np.zeros(0, bool)))
    rows = np.flatnonzero(wanted)
    of_split = tuple(name for name in names if name not in OF_UNSPLIT and (name != "sentences" or words != TABLE))
    of_text = tuple(name for name in names if len(rows) < len(wanted) or not len(rows) or name not in of_split)
    values = engine.measure(text, of_text) if of_text else {}
    if len(rows) and of_split:
        for name, counts in engine.measure(parts, of_split).items():
            values.setdefault(name, np.zeros(len(wanted), np.int64))[rows] = counts
    if "sentences" in names and words == TABLE:
        values |= measure_words(engine, text, ("sentences",), SCRIPTS)
    return {name: values[name] for name in names}
