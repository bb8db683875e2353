# SPDX-License-Identifier: Apache-2.0
"""`rewrite` of one document in slow plain Python: `re`, `str` methods, `unicodedata2`.

`re` and `str` have this Python's Unicode version: right for characters assigned in it.
"""

import re

import unicodedata2

MARKUP = {"keep": "(?!)", "strip": r"<[^>]+>", "strip_line": r"<.*?>"}
DELETED_CONTROL = {"keep": lambda _: False, "strip": lambda char: char not in "\t\n\r", "strip_all": lambda _: True}


def fold(text: str) -> str:
    kinds = map(unicodedata2.category, text)
    return "".join("0" if kind == "Nd" else " " if kind[0] == "P" else c for c, kind in zip(text, kinds, strict=True))


CHARACTERS = {"keep": lambda text: text, "basic": lambda text: re.sub(r"[^\w\s.,!?]", "", text), "folded": fold}


def tidy_lines(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


WHITESPACE = {
    "keep": lambda text: text,
    "collapse": lambda text: re.sub(r"\s+", " ", text).strip(),
    "strip": str.strip,
    "lines": tidy_lines,
}


def delete_control(text: str, control: str) -> str:
    return "".join(c for c in text if unicodedata2.category(c) != "Cc" or not DELETED_CONTROL[control](c))


def rewrite(text: str, steps) -> str:
    if steps.unicode != "keep":
        text = unicodedata2.normalize(steps.unicode.upper(), text)
    text = re.sub(MARKUP[steps.markup], "", text)
    text = delete_control(text, steps.control)
    text = CHARACTERS[steps.characters](text)
    text = text.lower() if steps.lowercase else text
    return WHITESPACE[steps.whitespace](text)


def compared(text: str, compare: str) -> str:
    """The text whose words make the n-grams of `fuzzy_dedup`, `ngram_dedup`, `decontaminate` and `check_overlap`."""
    return {"exact": str, "lowercase": str.lower, "folded": lambda text: fold(text).lower()}[compare](text)
