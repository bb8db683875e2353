# SPDX-License-Identifier: Apache-2.0
"""Finds the parts of a text that break a rule, to mark them for people who look at removed documents.

Marks only help to read: engines decide by measures. Only simple cases and the start of a long text are marked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from curation.base.contract import TEXT
from curation.base.engine import load_engine
from curation.base.measures import PROSE_LETTERS
from curation.rules.decide import Rule
from curation.stages import Filter, Lines, Stage
from curation.stages.words import split_words

MAX_CHARACTERS = 200_000  # characters of a text that are searched
MAX_WORDS = 2_000  # words of each text in a comparison, whose time grows with the product of both numbers
WORD, LINE, PARAGRAPH = re.compile(r"\S+"), re.compile(r"[^\n]+"), re.compile(r"\S.*?(?=\n[ \t]*\n|\Z)", re.DOTALL)
NGRAM = re.compile(r"(top|duplicate)_(\d+)gram(_characters|_count)?")
LINES = {
    "bullet_lines": re.compile(r"\s*[•-]"),
    "bullet_or_star_lines": re.compile(r"\s*[•*-]"),
    "ellipsis_lines": re.compile(r".*(\.\.\.|…)\s*$"),
    "ellipsis_character_lines": re.compile(r".*…\s*$"),
}
SIGNS = {"hash_signs": re.compile("#"), "ellipses": re.compile(r"\.\.\.|…")}
FENCE = re.compile(r"\s*(?P<marks>`{3,}(?=[^`]*$)|~{3,})\s*(?P<info>.*)")
REPEATED = {"duplicate_line": LINE, "duplicate_paragraph": PARAGRAPH}
Span = tuple[int, int]


def removing_spans(stage: Stage | None, reason: str, text: str) -> list[Span]:
    """Return the parts of a text that break the rule for which a stage removed the text, ascending."""
    if isinstance(stage, Lines):
        return stage.broken_units(load_engine("cpu"), text[:MAX_CHARACTERS], reason)
    rules = stage.expanded if isinstance(stage, Filter) else ()
    rule = next((rule for rule in rules if rule.name == reason), None)
    return broken_spans(rule, text, stage.words if isinstance(stage, Filter) else "")


def broken_spans(rule: Rule | None, text: str, words: str = "") -> list[Span]:
    """Return the parts of a text that a rule counts: (start, stop) in characters, ascending, not overlapping.

    The list is empty for rules that no single part breaks, such as a number of words. `words` is the stage's setting.
    """
    text = text[:MAX_CHARACTERS]
    rule = rule and rule.parts[0]
    if rule is None or (rule.column not in (None, TEXT)):
        return []
    if rule.matches is not None:
        return _matches(rule.matches, text)
    measure = rule.measures[0] if rule.measures else ""
    if measure == "words_with_letter":
        return [span for span in _words(text, words) if not any(map(str.isalpha, text[slice(*span)]))]
    if measure in LINES:
        return [match.span() for match in LINE.finditer(text) if LINES[measure].match(match[0])]
    if measure in SIGNS:
        return [match.span() for match in SIGNS[measure].finditer(text)]
    if found := NGRAM.fullmatch(measure):
        return _joined(_ngrams(found[1] == "top", int(found[2]), text, _words(text, words)))
    if measure.startswith("duplicate_prose_line"):
        return _repeated(_prose(text))
    unit = next((unit for name, unit in REPEATED.items() if measure.startswith(name)), None)
    return _repeated(unit.finditer(text)) if unit else []


def _matches(pattern: str, text: str) -> list[Span]:
    """Return the matches of a pattern, found by RE2, since Python's `re` may take for ever."""
    marks = [chr(code) for code in range(1, 32) if chr(code) not in text and chr(code) not in "\t\n\r"][:2]
    if len(marks) < 2:
        return []
    column = pa.array([text], pa.large_string())
    marked = pc.replace_substring_regex(column, pattern=f"({pattern})", replacement=rf"{marks[0]}\1{marks[1]}")
    spans, place = [], 0
    for piece in str(marked[0].as_py()).split(marks[0]):
        inside, separator, after = piece.partition(marks[1])
        if separator and inside:
            spans.append((place, place + len(inside)))
        place += len(inside) + len(after)
    return spans


def _words(text: str, words: str) -> list[Span]:
    """Return the positions (start, stop) in a text of the words into which the engine divides the text."""
    engine = load_engine("cpu")
    column = engine.from_arrow(pa.table({TEXT: pa.array([text], pa.large_string())}))
    split = engine.to_arrow(engine.with_columns(column, {TEXT: split_words(engine, column[TEXT], words)}))
    places, place = [], 0
    for match in WORD.finditer(str(split.column(TEXT)[0])):
        word = match[0]
        start = place = text.index(word[0], place)
        if text.startswith(word, start):
            place += len(word)
        else:  # the text has other characters in the word, such as a zero width space
            for character in word:
                place = text.index(character, place) + 1
        places.append((start, place))
    return places


def _ngrams(is_top: bool, size: int, text: str, words: Sequence[Span]) -> list[Span]:
    """Return the spans of the most frequent n-gram, or of the n-grams that have occurred before."""
    found = [
        (tuple(text[slice(*word)] for word in words[k : k + size]), (words[k][0], words[k + size - 1][1]))
        for k in range(len(words) - size + 1)
    ]
    if is_top:
        counts = Counter(ngram for ngram, _ in found)
        top = max(counts, key=lambda ngram: (counts[ngram], sum(map(len, ngram))), default=())
        return [span for ngram, span in found if ngram == top]
    seen: set[tuple[str, ...]] = set()
    spans = []
    for ngram, span in found:
        if ngram in seen:
            spans.append(span)
        seen.add(ngram)
    return spans


def _prose(text: str) -> list[re.Match[str]]:
    """Return the matches of the lines of prose; `curation.Measure` defines these lines."""
    prose: list[re.Match[str]] = []
    opening, before = "", 0
    for line in LINE.finditer(text):
        fence = FENCE.fullmatch(line[0])
        if fence is None:
            prose.append(line)
        elif not opening:
            opening, before = fence["marks"], len(prose)
        elif fence["marks"].startswith(opening) and not fence["info"]:
            del prose[before:]
            opening = ""
    return [line for line in prose if sum(map(str.isalpha, line[0])) >= PROSE_LETTERS]


def _repeated(parts: Iterable[re.Match[str]]) -> list[Span]:
    seen: set[str] = set()
    spans = []
    for part in parts:
        content = part[0].strip()
        if content in seen:
            spans.append(part.span())
        if content:
            seen.add(content)
    return spans


def _joined(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, stop in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined


def excerpt(text: str, spans: list[Span], characters: int) -> tuple[str, list[Span], int]:
    """Return an excerpt of at most `characters` of a text, the spans in the excerpt, and the position in the text where
    the excerpt begins.

    The excerpt begins at the start of the text. If no span begins in it, the excerpt begins a little before the first
    span.
    """
    first = 0
    if spans and spans[0][0] >= characters:
        first = max(spans[0][0] - characters // 4, 0)
    last = first + characters
    inside = [(max(start, first) - first, min(stop, last) - first) for start, stop in spans]
    return text[first:last], [(start, stop) for start, stop in inside if start < stop], first


def common_start(left: str, right: str) -> int:
    """Return the number of characters that two texts have in common at their start."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


Aligned = tuple[list[str], list[str], bool]  # words of the left and of the right text, and whether they are equal


def aligned_words(left: str, right: str, words: int = MAX_WORDS) -> list[Aligned]:
    """Return the words of two texts, in order, as runs that are equal or different; at most `words` words of each
    text."""
    mine, other = left.split()[:words], right.split()[:words]
    blocks = SequenceMatcher(None, mine, other, autojunk=False).get_opcodes()
    return [(mine[a:b], other[c:d], tag == "equal") for tag, a, b, c, d in blocks]


def pieces(text: str, spans: list[Span]) -> list[tuple[str, bool]]:
    """Return a text in parts: (part, whether it is marked)."""
    edges = [0, *(place for span in spans for place in span), len(text)]
    parts = [(text[start:stop], bool(number % 2)) for number, (start, stop) in enumerate(pairwise(edges))]
    return [part for part in parts if part[0]]
