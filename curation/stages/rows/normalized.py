# SPDX-License-Identifier: Apache-2.0
"""Normalizes texts: those in capitals to lower case, and Arabic and Hebrew ones to letters without vowel marks.

Models of languages and lists of stop words are made from text in small letters without these marks. Other combining
marks stay: Burmese, Hindi, Yoruba and others cannot be read without them. Engines count kinds of characters, and these
counts exclude most texts at little cost. The few remaining texts lose their marks on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT, Engine, Text
from curation.kernels.rewrite import RewriteSteps
from curation.rules.languages import VOWEL_MARKS

COUNTS = (
    "bytes", "characters", "word_characters", "alphabetic_characters", "alphanumeric_characters",
    "punctuation_characters", "uppercase_characters",
)  # fmt: skip
MIN_CAPITALS, MIN_CAPITAL_SHARE = 20, 0.5  # number of capitals, and their share of all letters
# Bounds for texts that may be Arabic or Hebrew with vowel marks. The first is the share of characters that are neither
# letters, numbers nor punctuation, without white space: other text is seldom above it, but code is. The second line
# bounds bytes per character.
MIN_OTHER_SHARE = 0.02
MIN_BYTES, MAX_BYTES = 1.3, 2.0  # scripts of India and South East Asia have more
CHEROKEE = r"\p{Cherokee}"  # usually written in letters that Unicode counts as capitals
LOWER_CASE = RewriteSteps(lowercase=True)


Classify = Callable[[Text], tuple[np.ndarray, np.ndarray]]
Normalized = tuple[Text, np.ndarray] | None  # normalized texts, and a bool per input text: whether it is among them


def is_in_capitals(counts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return for each text, from its COUNTS, whether at least 20 letters and half of its letters are capitals: bool."""
    letters, capitals = counts["alphabetic_characters"], counts["uppercase_characters"]
    return (capitals >= MIN_CAPITALS) & (capitals >= MIN_CAPITAL_SHARE * letters)


def may_have_marks(counts: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return for each text, from its COUNTS, whether it may be Arabic or Hebrew with vowel marks: bool."""
    others = counts["word_characters"] - counts["alphanumeric_characters"] - counts["punctuation_characters"]
    size, characters = counts["bytes"], counts["characters"]
    two_bytes = (size >= MIN_BYTES * characters) & (size <= MAX_BYTES * characters)
    return two_bytes & (others > 0) & (others >= MIN_OTHER_SHARE * counts["word_characters"])


def normalize(engine: Engine, text: Text, counts: Mapping[str, np.ndarray]) -> Normalized:
    """Return the normalized forms of texts in capitals, and of Arabic and Hebrew texts with vowel marks; None if no
    text needs normalization. `counts` has the COUNTS of all texts."""
    in_capitals = is_in_capitals(counts)
    rows = in_capitals | may_have_marks(counts)
    if not rows.any():
        return None
    part = engine.to_arrow(engine.filter_rows(text.to_frame(TEXT), rows)).column(TEXT)
    bare = pc.replace_substring_regex(part, VOWEL_MARKS, "")
    has_marks, is_cherokee = pc.not_equal(part, bare), pc.match_substring_regex(part, CHEROKEE)
    wanted = in_capitals[rows] & ~_mask(is_cherokee) | _mask(has_marks)
    rows[rows] = wanted
    if not wanted.any():
        return None
    return engine.rewrite(engine.from_arrow(pa.table({TEXT: bare.filter(pa.array(wanted))}))[TEXT], LOWER_CASE)[0], rows


def _mask(values: pa.ChunkedArray) -> np.ndarray:
    return values.fill_null(False).to_numpy()


def classify_normalized(
    engine: Engine, text: Text, counts: Mapping[str, np.ndarray], classify: Classify
) -> tuple[np.ndarray, np.ndarray]:
    """Return what `Engine.classify` returns, by `classify`; texts that normalization changes are classified in
    normalized form.

    counts  the COUNTS of the texts, which tell which texts normalization can change
    """
    label, score = classify(text)
    if found := normalize(engine, text, counts):
        label[found[1]], score[found[1]] = classify(found[0])
    return label, score
