# SPDX-License-Identifier: Apache-2.0
"""`rewrite` of one document in slow plain Python: `re`, `str` methods, `unicodedata2`.

`re` and `str` have this Python's Unicode version: right for characters assigned in it. Steps of `edit` that RE2 makes
are made here by other means than a pattern, but for patterns of users, which `re` takes.
"""

import html
import re
from functools import cache

import regex
import unicodedata2

from curation.kernels.look_alikes import APOSTROPHES, LETTERS, SPELLINGS, TATWEEL
from curation.stages.corpus.similarity import COMPARISONS
from tests.oracle.measures import ends_sentence

MARKUP = {"keep": "(?!)", "strip": r"<[^>]+>", "strip_line": r"<.*?>"}
DELETED_CONTROL = {"keep": lambda _: False, "strip": lambda char: char not in "\t\n\r", "strip_all": lambda _: True}


def fold(text: str) -> str:
    kinds = map(unicodedata2.category, text)
    return "".join("0" if kind == "Nd" else " " if kind[0] == "P" else c for c, kind in zip(text, kinds, strict=True))


def invisible(char: str) -> bool:
    """Whether nothing is drawn, and no space: format and control characters, and those that fonts may ignore."""
    return not char.isspace() and regex.match(r"[\p{Cc}\p{Cf}]|[\p{DI}--\p{Cn}]", char, regex.V1) is not None


def visible(text: str) -> str:
    """What eyes compare: no invisible character, and a space for each punctuation character and sign."""
    kept = (char for char in text if not invisible(char))
    return "".join(" " if unicodedata2.category(char)[0] in "PS" else char for char in kept)


@cache
def looks() -> dict[str, str]:
    """Each letter for which another one that looks the same is written."""
    groups = f"{LETTERS} {SPELLINGS}".split()
    return {letter: group[0] for group in groups for letter in group[1:]}


def look_alikes(text: str) -> str:
    """Lower case, with one letter for those that look the same."""
    return "".join(looks().get(letter, letter) for letter in text.lower())


CHARACTERS = {
    "keep": lambda text: text,
    "basic": lambda text: re.sub(r"[^\w\s.,!?]", "", text),
    "folded": fold,
    "visible": visible,
}


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
    if steps.look_alikes:
        text = re.sub(
            f"[{APOSTROPHES}]|(?=[^\\n-\\r\\x1c-\\x20\\t])\\s",
            " ",
            "".join(c for c in text if c != TATWEEL and not regex.match(r"\p{DI}", c)),
        )
    text = CHARACTERS[steps.characters](text)
    text = look_alikes(text) if steps.look_alikes else text.lower() if steps.lowercase else text
    return WHITESPACE[steps.whitespace](text)


def collapse_blank_lines(text: str) -> str:
    """At most one blank line in a row, between two LF."""
    first, *between = text.split("\n")
    last = between.pop() if between else None
    kept = [part for k, part in enumerate(between) if part.strip() or k == 0 or between[k - 1].strip()]
    return "\n".join([first, *kept, *([] if last is None else [last])])


def put_sentences_on_lines(text: str) -> str:
    parts = re.split(r"(\s+)", text.strip())  # words, and the white space between them
    found = parts[:1]
    for before, space, word in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
        joint = space if space.splitlines() == [space] else " "
        found += ["\n" if ends_sentence(before) else joint, word]
    return "".join(found)


def repair_mojibake(text: str) -> str:
    """As ftfy, which is asked about every line."""
    import ftfy

    config = ftfy.TextFixerConfig(
        unescape_html=False, remove_terminal_escapes=False, fix_latin_ligatures=False, fix_character_width=False,
        uncurl_quotes=False, fix_line_breaks=False, remove_control_chars=False, normalization=None,
    )  # fmt: skip
    return "".join(ftfy.fix_text_segment(line, config) for line in re.findall(r"[^\n]*\n|[^\n]+", text))


def is_shaped(char: str) -> bool:
    """Whether a joiner beside this character shapes it: a letter or mark that joins others, or an emoji."""
    return (
        regex.match(r"[\p{Arabic}\p{Syriac}\p{Mongolian}\p{Indic_Syllabic_Category=Consonant}\p{InSC=Virama}]", char)
        is not None
    )


def remove_invisible(text: str) -> str:
    """Without default-ignorable characters, but for joiners beside characters that they shape; no emoji."""
    around = zip(f" {text[:-1]}", text, f"{text[1:]} ", strict=True) if text else ()
    return "".join(
        char
        for before, char, after in around
        if not regex.match(r"[\p{DI}--\p{Cn}]", char, regex.V1)
        or (char in "\u200c\u200d" and (is_shaped(before) or is_shaped(after)))
    )


def edit(text: str, stage) -> str:
    """The text after all steps of a stage `rewrite`."""
    text = html.unescape(text) if stage.entities == "decode" else text
    text = repair_mojibake(text) if stage.repair == "mojibake" else text
    text = remove_invisible(text) if stage.invisible == "remove" else text
    text = rewrite(text, stage.steps)
    text = collapse_blank_lines(text) if stage.whitespace == "blank_lines" else text
    text = text.replace("\r\n", "\n") if stage.whitespace == "line_ends" else text
    text = put_sentences_on_lines(text) if stage.sentences == "lines" else text
    for each in stage.replace:
        text = re.sub(each.matches, each.by.replace(r"\0", r"\g<0>"), text)
    return text


def compared(text: str, compare: str) -> str:
    """The text whose words make the n-grams of `fuzzy_dedup`, `ngram_dedup`, `decontaminate` and `check_overlap`."""
    return rewrite(text, COMPARISONS[compare])
