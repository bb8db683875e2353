# SPDX-License-Identifier: Apache-2.0
"""Words in plain Python, straight from the definitions of `curation.kernels.word_breaks`."""

import lzma
import math
import re
from functools import cache
from itertools import accumulate, groupby

import regex
import unicodedata2

from curation.kernels.word_lists import LIST_PATH

HAN = regex.compile(r"[\u3005\u3041-\u309F\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF]")
KATAKANA = regex.compile(r"[\u30A1-\u30FA\u30FC-\u30FF\u31F0-\u31FF]")
SOUTHEAST = regex.compile(r"[\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\uA9E0-\uA9FF\uAA60-\uAA7F]")
LEADING = "เแโใไເແໂໃໄ"
FOLLOWING = "ะาำๅະາຳ"
MOST, LONGEST = 256, 33  # characters of a run, of a listed word


@cache
def listed() -> dict[str, int]:
    """The words of the lists and their costs, read from the file of the package."""
    content = lzma.decompress(LIST_PATH.read_bytes())
    count, start = int.from_bytes(content[:8], "little"), 8 + 0x110000
    shared, own, costs = (content[start + k * count : start + (k + 1) * count] for k in range(3))
    text = content[start + 3 * count :].decode("utf-16-le")
    words, before = {}, ""
    for part, end, length, cost in zip(shared, accumulate(own), own, costs, strict=True):
        before = before[:part] + text[end - length : end]
        words[before] = cost
    return words


def kind_of(character: str) -> str:
    """U: a script without spaces; S: white space; L: a letter; I: a mark inside words; P: opening; M: another mark."""
    category = unicodedata2.category(character)
    if character.isspace():
        return "S"
    if SOUTHEAST.match(character) and category[0] in "LM":
        return "U"
    if (HAN.match(character) and category[0] in "LN") or KATAKANA.match(character):
        return "U"
    if category[0] in "LMN" or character == "_":
        return "L"
    if character in "-.'’,:":
        return "I"
    return "P" if category in ("Ps", "Pi") else "M"


def is_southeast(character: str) -> bool:
    return SOUTHEAST.match(character) is not None


def is_sign(character: str) -> bool:
    return is_southeast(character) and (unicodedata2.category(character)[0] == "M" or character in FOLLOWING)


def cut(run: str) -> list[str]:
    """The words of a run: the cheapest way from its start to its end."""
    southeast, words = is_southeast(run[0]), listed()
    ways: list[tuple[float, int, bool]] = [(0, 0, True)] + [(math.inf, 0, True)] * len(run)  # cost, start, is a word
    for start in range(len(run)):
        cost = ways[start][0]
        if cost == math.inf:
            continue
        found = []
        for end in range(start + 1, min(start + LONGEST, len(run)) + 1):
            if run[start:end] in words and not (end < len(run) and is_sign(run[end])):
                found.append((end, cost + (10 if southeast else words[run[start:end]]), True))
        if not found or found[0][0] != start + 1:
            end = start + 1 + (run[start] in LEADING and start + 1 < len(run))
            while end < len(run) and is_sign(run[end]):
                end += 1
            found.append((end, cost + (25 if southeast else 255), not southeast))
        if KATAKANA.match(run[start]) and not (start and KATAKANA.match(run[start - 1])):
            length = next((k for k, c in enumerate(run[start:]) if not KATAKANA.match(c)), len(run) - start)
            found.append((start + length, cost + 200, True))
        for end, total, is_word in found:
            if total < ways[end][0]:
                ways[end] = (total, start, is_word)
    pieces: list[tuple[str, bool]] = []
    end = len(run)
    while end:
        _, start, is_word = ways[end]
        pieces.insert(0, (run[start:end], is_word))
        end = start
    words_found: list[str] = []
    last_is_word = True
    for piece, is_word in pieces:  # adjacent unknown clusters are one word
        if is_word or last_is_word:
            words_found.append(piece)
        else:
            words_found[-1] += piece
        last_is_word = is_word
    return words_found


def runs_of(token: str) -> list[tuple[str, str]]:
    """(text, kind) of the parts of a token: words of runs of scripts without spaces, and single other characters."""
    parts: list[tuple[str, str]] = []
    start = 0
    while start < len(token):
        kind = kind_of(token[start])
        end = start + 1
        if kind != "U":
            parts.append((token[start], kind))
        else:
            family = is_southeast(token[start])
            while end < len(token) and kind_of(token[end]) == "U" and is_southeast(token[end]) == family:
                end += 1
            for first in range(start, end, MOST):
                parts += [(word, "U") for word in cut(token[first : min(first + MOST, end)])]
        start = end
    return parts


@cache
def letters(southeast: bool) -> str:
    """A class for `re` of the letters of Han and kana, or of the other four scripts."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x40000))))
    found = SOUTHEAST.findall(every) if southeast else sorted((*HAN.findall(every), *KATAKANA.findall(every)))
    codes = [ord(character) for character in found if kind_of(character) == "U"]
    runs = [list(run) for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])]
    return "[" + "".join(f"{chr(run[0][1])}-{chr(run[-1][1])}" for run in runs) + "]"


def shown(text: str, words: str) -> str:
    """The text without zero width spaces and line ends within runs, and with a space where such characters divide."""
    text = text.replace("\u1361", "\u2003") if words != "table" else text  # a space, and no blank of a line end
    text = re.sub("(?<=\u200b{4})\u200b+", "\u2003", text)
    han, southeast = letters(False), letters(True)
    unspaced = han[:-1] + southeast[1:]
    text = re.sub(f"(?<={unspaced})\u200b+(?={unspaced})", " ", text)
    for family in (han, southeast):
        text = re.sub(rf"(?<={family})[ \t]{{0,8}}\r?\n[ \t]{{0,8}}(?={family})", "", text)
    return text.replace("\u200b", "")


def words_of(text: str, words: str) -> list[str]:
    """The words of a text."""
    if words == "spaces":
        return text.split()
    tokens = shown(text, words).split()
    ends = {"table": _ends_table, "scripts": _ends_scripts, "pieces": _ends_pieces}[words]
    found = []
    for token in tokens:
        parts = runs_of(token)
        kinds = "".join(kind for _, kind in parts)
        word = ""
        for number, (part, _) in enumerate(parts):
            if word and ends(parts, kinds, number, word):
                found.append(word)
                word = ""
            word += part
        found.append(word)
    return found


def _ends_scripts(parts: list[tuple[str, str]], kinds: str, number: int, word: str) -> bool:
    """`word`: the characters since the last end of a word."""
    if kinds[number] == "U":
        return not (len(word) <= 4 and all(kind_of(character) == "P" for character in word))
    return kinds[number] in "LP" and re.search("U[MI]{0,4}$", kinds[:number]) is not None


def _ends_pieces(parts: list[tuple[str, str]], kinds: str, number: int, word: str) -> bool:
    is_cut = kinds[number - 1 : number + 1] == "LL" and (ord(parts[number - 1][0]) + ord(parts[number][0])) % 5 == 0
    return is_cut or _ends_scripts(parts, kinds, number, word)


def _ends_table(parts: list[tuple[str, str]], kinds: str, number: int, word: str) -> bool:
    around = kinds[max(number - 2, 0) : number], kinds[number : number + 2]
    if around[1][0] == "L":
        return not (around[0].endswith("L") or around[0] == "LI")
    if around[1] == "IL" and around[0].endswith("L"):
        return False
    return kinds[number] == "U" or parts[number][0] != parts[number - 1][0]
