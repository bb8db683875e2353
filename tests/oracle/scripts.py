# SPDX-License-Identifier: Apache-2.0
"""Letters by script in plain Python, with the scripts of the package `regex`, which has Unicode's codes of scripts."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

import regex
import unicodedata2

from curation.kernels.scripts import CODES


def is_letter(character: str) -> bool:
    return unicodedata2.category(character).startswith("L")


@cache
def pattern_of(code: str) -> regex.Pattern[str]:
    return regex.compile(rf"\p{{Script={code}}}")


def scripts_of(characters: Iterable[str]) -> dict[str, str]:
    """Letter -> code of its script, without those of Common and Inherited."""
    text = "".join(sorted({character for character in characters if is_letter(character)}))
    return {letter: code for code in CODES[3:] for letter in pattern_of(code).findall(text)}


def letters_of(texts: list[str]) -> Iterator[Counter[str]]:
    """The letters of each text by script."""
    script = scripts_of("".join(texts))
    return (Counter(script[character] for character in text if character in script) for text in texts)


def main_script(letters: Counter[str]) -> str | None:
    """The script of most letters; of equal ones the first in the alphabet."""
    letters = +letters
    kana = letters.pop("Hira", 0) + letters.pop("Kana", 0)
    if kana and 10 * kana >= kana + letters["Hani"]:
        letters["Jpan"] = kana + letters.pop("Hani", 0)
    else:
        letters["Hani"] += kana
    return min(+letters, key=lambda code: (-letters[code], code), default=None)
