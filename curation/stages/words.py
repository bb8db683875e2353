# SPDX-License-Identifier: Apache-2.0
"""The setting `words` of stages: what a word is. `curation.kernels.word_breaks` has the definitions."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import msgspec
import numpy as np

from curation.contract import Engine, Text
from curation.errors import nearest
from curation.kernels.word_breaks import SCRIPTS, SPACES, TABLE, WORDS
from curation.stages.base import Stage

AnyStage = TypeVar("AnyStage", bound=Stage)

# A text with a space between adjacent words has these measures plus the number of these spaces.
WITH_SPACES = ("bytes", "characters", "line_characters", "space_characters")
# Measures that such spaces change, and that do not speak of words.
OF_UNSPLIT = (
    "max_line_characters", "short_lines", "urls", "url_characters", "duplicate_line_characters",
    "duplicate_paragraph_characters", "repeated_5character_characters", "repeated_10character_characters",
    "num_5characters", "num_10characters",
)  # fmt: skip


def check_words(words: str) -> None:
    """Raise ValueError for an unknown kind of words."""
    if words and words not in WORDS:
        raise ValueError(f"words must be {', '.join(WORDS[:-1])} or {WORDS[-1]}, not {words!r}{nearest(words, WORDS)}")


def kernels_of(words: str) -> tuple[str, ...]:
    """Return the group of kernels that cuts such words, for `Stage.kernels`."""
    return () if words in ("", SPACES) else ("words",)


def with_words(stage: AnyStage, words: str) -> AnyStage:
    """Return a stage of a recipe with the recipe's `words` if it takes that setting and has none of its own."""
    if words != SPACES and getattr(stage, "words", None) == "" and getattr(stage, "unit", "") != "character":
        return msgspec.structs.replace(stage, words=words)
    return stage


def split_words(engine: Engine, text: Text, words: str) -> Text:
    """Return the texts with a space between adjacent words. `words` is one of WORDS, or "" for `spaces`."""
    return text if words in ("", SPACES) else engine.split_words(text, words)[0]


def measure_words(engine: Engine, text: Text, names: Collection[str], words: str) -> dict[str, np.ndarray]:
    """Return the measures `names` of each text, int64, by these words.

    Sentences of `table` are those of `scripts`: a closing bracket is a word there, and would begin a sentence.
    """
    if words in ("", SPACES) or not names:
        return engine.measure(text, tuple(names)) if names else {}
    split, changed = engine.split_words(text, words)
    rows = np.flatnonzero(changed)
    if not len(rows):
        return engine.measure(text, tuple(names))
    is_most = 2 * len(rows) > len(changed)  # then the split texts have the measures of all
    of_split = tuple(name for name in names if name not in OF_UNSPLIT and (name != "sentences" or words != TABLE))
    of_text = tuple(name for name in names if not is_most or name not in of_split)
    values = engine.measure(text, of_text) if of_text else {}
    if of_split:
        parts, own = (split, text) if is_most else (split.take(rows), text.take(rows))
        found = engine.measure(parts, of_split)
        if {*WITH_SPACES} & {*of_split}:
            added = engine.byte_lengths(parts) - engine.byte_lengths(own)
            found |= {name: found[name] - added for name in WITH_SPACES if name in found}
        for name, counts in found.items():
            if is_most:
                values[name] = counts
            else:
                values[name][rows] = counts
    if "sentences" in names and words == TABLE:
        values |= measure_words(engine, text, ("sentences",), SCRIPTS)
    return {name: values[name] for name in names}
