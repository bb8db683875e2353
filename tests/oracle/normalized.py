# SPDX-License-Identifier: Apache-2.0
"""Normalized text in plain Python, straight from the definition in `curation.stages.rows.normalized`."""

import regex
import unicodedata2

ARABIC_HEBREW = (range(0x0591, 0x05C8), range(0x0610, 0x0700), range(0x0897, 0x0900))


def is_vowel_mark(character: str) -> bool:
    return any(ord(character) in block for block in ARABIC_HEBREW) and unicodedata2.category(character) == "Mn"


def normalized(text: str) -> str | None:
    """The normalized text; None for a text that stays as it is."""
    letters = sum(map(str.isalpha, text))
    capitals = sum(map(str.isupper, text))
    visible = [character for character in text if not character.isspace()]
    kinds = [unicodedata2.category(character)[0] for character in visible]
    others = len(visible) - sum(map(str.isalnum, visible)) - kinds.count("P")
    size = len(text.encode()) / max(len(text), 1)
    bare = "".join(character for character in text if not is_vowel_mark(character))
    has_marks = 1.3 <= size <= 2 and others >= 0.02 * len(visible) and bare != text
    in_capitals = capitals >= 20 and 2 * capitals >= letters and not regex.search(r"\p{Cherokee}", text)
    return bare.lower() if has_marks or in_capitals else None
