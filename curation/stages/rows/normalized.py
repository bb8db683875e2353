# SPDX-License-Identifier: Apache-2.0
"""Normalized text: lower case without vowel marks, of texts in capitals, and of Arabic and Hebrew with vowel marks.

Models of languages and lists of stop words are made from text in small letters without these marks. Other combining
marks stay: Burmese, Hindi, Yoruba and others cannot be read without them. Engines count the characters, so that other
texts cost nothing but these comparisons. The few normalized ones lose their marks on the host.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import TEXT, Engine, Text
from curation.kernels.rewrite import RewriteSteps
from curation.models.fasttext import Classifier
from curation.rules.languages import VOWEL_MARKS

COUNTS = (
    "bytes", "characters", "word_characters", "alphabetic_characters", "alphanumeric_characters",
    "punctuation_characters", "uppercase_characters",
)  # fmt: skip
MIN_CAPITALS, MIN_CAPITAL_SHARE = 20, 0.5  # letters, and of all letters
# Characters that are neither letters, numbers nor punctuation, of those that are not white space: vowel marks, as
# scripts of two bytes per character have hardly any others. Texts that write no vowels have 0.01 or less.
MIN_MARK_SHARE = 0.02
MIN_BYTES, MAX_BYTES = 1.3, 2.0  # per character of such texts; those of India and South East Asia have more
LOWER_CASE = RewriteSteps(lowercase=True)


def normalized_rows(counts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return whether each text, with these COUNTS, is to be normalized: bool."""
    letters, capitals = counts["alphabetic_characters"], counts["uppercase_characters"]
    in_capitals = (capitals >= MIN_CAPITALS) & (capitals >= MIN_CAPITAL_SHARE * letters)
    others = counts["word_characters"] - counts["alphanumeric_characters"] - counts["punctuation_characters"]
    size, characters = counts["bytes"], counts["characters"]
    two_bytes = (size >= MIN_BYTES * characters) & (size <= MAX_BYTES * characters)
    return in_capitals | (two_bytes & (others > 0) & (others >= MIN_MARK_SHARE * counts["word_characters"]))


def normalized_text(engine: Engine, text: Text, rows: np.ndarray) -> Text:
    """Return the normalized texts of these rows (bool)."""
    part = engine.to_arrow(engine.filter_rows(text.to_frame(TEXT), rows)).column(TEXT)
    bare = engine.from_arrow(pa.table({TEXT: pc.replace_substring_regex(part, VOWEL_MARKS, "")}))[TEXT]
    return engine.rewrite(bare, LOWER_CASE)[0]


def classify_normalized(
    engine: Engine, text: Text, model: Classifier, max_characters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `Engine.classify` returns, of normalized texts."""
    label, score = engine.classify(text, model, max_characters)
    rows = normalized_rows(engine.measure(text, COUNTS))
    if rows.any():
        label[rows], score[rows] = engine.classify(normalized_text(engine, text, rows), model, max_characters)
    return label, score
