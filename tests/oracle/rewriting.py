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
from curation.stages.rows import tags
from tests.oracle.measures import ends_sentence

MARKUP = {"keep": "(?!)", "brackets": r"<[^>]+>", "brackets_line": r"<.*?>"}
DELETED_CONTROL = {"keep": lambda _: False, "strip": lambda char: char not in "\t\n\r", "strip_all": lambda _: True}


def fold(text: str) -> str:
    kinds = map(unicodedata2.category, text)
    return "".join("0" if kind == "Nd" else " " if kind[0] == "P" else c for c, kind in zip(text, kinds, strict=True))


@cache
def invisible(char: str) -> bool:
    """Whether nothing is drawn, and no space: format and control characters, and those that fonts may ignore."""
    return not char.isspace() and regex.match(r"[\p{Cc}\p{Cf}]|[\p{DI}--\p{Cn}]", char, regex.V1) is not None


@cache
def default_ignorable(char: str) -> bool:
    return regex.match(r"\p{DI}", char) is not None


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
    text = "".join(text.split()) if steps.spaceless else text
    if steps.look_alikes:
        text = re.sub(
            f"[{APOSTROPHES}]|(?=[^\\n-\\r\\x1c-\\x20\\t])\\s",
            " ",
            "".join(c for c in text if c != TATWEEL and not default_ignorable(c)),
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


DECLARATION = re.compile(r"<(?:!doctype[^<>]*|\?xml[^<>]*|!\[if[^]<>]*\]|!\[endif\])>", re.IGNORECASE | re.ASCII)
NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
WITHIN_NAME = f"{NAME}0123456789:"


def skip(text: str, i: int, chars: str) -> int:
    while i < len(text) and text[i] in chars:
        i += 1
    return i


def attribute_at(text: str, i: int) -> tuple[bool, int]:
    """Whether an attribute begins at `i`; its end, or the end of what was read."""
    end = skip(text, i, f"{WITHIN_NAME}_@#.-") if text[i : i + 1] in {*f"{NAME}_:@#"} else i
    value = skip(text, end, " \t\n\f\r")
    if end > i and text[value : value + 1] == "=":
        value = skip(text, value + 1, " \t\n\f\r")
        quote = text[value : value + 1]
        if quote in {*"'\""}:
            last = text.find(quote, value + 1)
            return last >= 0, (last + 1 if last >= 0 else len(text))
        last = value
        while last < len(text) and text[last] not in " \t\n\f\r\"'<>`":
            last += 1
        return last > value, last
    name = text[i:end].lower()
    alone = name in tags.BOOLEAN.split("|") or re.fullmatch("data-[a-z0-9-]+", name) is not None
    return alone and text[end : end + 1] in {*" \t\n\f\r/>"}, end


def tag_at(text: str, start: int) -> tuple[bool, int, str, str]:
    """Whether a "<" begins what looks like a tag; the end of what was read, the name, and "/", "attributes" or ""."""
    close = text.startswith("</", start)
    first = start + 1 + close
    i = skip(text, first, WITHIN_NAME) if text[first : first + 1] in {*NAME} else first
    name, kind = text[first:i], "/" if close else ""
    while name:
        after = skip(text, i, " \t\n\f\r")
        last = skip(text, after + 1, " \t\n\f\r") if text[after : after + 1] == "/" else after
        if text[last : last + 1] == ">":
            return True, last + 1, name, kind or ("/>" if last > after else "")
        if after == i and text[i - 1] not in "\"'":
            return False, last, name, kind
        found, i = attribute_at(text, after)
        if not found:
            return False, i, name, kind
        kind += "attributes"
    return False, i, name, kind


def find_tags(text: str) -> tuple[list[tuple[int, int, str]], int]:
    """The tags of HTML (start, end, element), and how many characters were read as parts of tags, with repeats."""
    found, i, work = [], 0, 0
    ended = {*re.findall("(?a)</([a-z][a-z0-9:]*)", text, re.IGNORECASE)}
    while (i := text.find("<", i)) >= 0:
        start, element, is_tag = i, "", False
        if text.startswith("<!--", start):
            i = text.find("-->", start + 2) + 3
            is_tag = 2 < i <= start + tags.LONGEST
            i = i if is_tag else start + 4
        elif declaration := DECLARATION.match(text, start):
            i = declaration.end()
            is_tag = i - start <= tags.LONGEST
        else:
            looks, i, name, kind = tag_at(text, start)
            work += i - start
            element = name.lower()
            is_tag = looks and element in tags.NAMES and i - start <= tags.LONGEST and not kind.startswith("/a")
            if is_tag and not kind and name not in ended:
                is_tag = element in tags.OPEN and not (name == "P" and text[:start][-1:].isalnum())
            i = i if looks else start + 1
        if is_tag:
            found.append((start, i, element))
    return found, work


def strip_tags(text: str) -> str:
    out, done = "", 0
    for start, end, element in find_tags(text)[0]:
        out += text[done:start]
        done, following = end, text[end : end + 1]
        if element in tags.BLOCKS and following not in {"", "\r", "\n"}:
            out += "" if out.rstrip(" \t")[-1:] in {"", "\r", "\n"} else "\n"
        elif element in tags.CELLS and following.strip() and out[-1:].strip():
            out += " "
    return out + text[done:]


def edit(text: str, stage) -> str:
    """The text after all steps of a stage `rewrite`."""
    text = html.unescape(text) if stage.entities == "decode" else text
    text = repair_mojibake(text) if stage.repair == "mojibake" else text
    text = remove_invisible(text) if stage.invisible == "remove" else text
    text = strip_tags(text) if stage.markup == "strip" else text
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
