# SPDX-License-Identifier: Apache-2.0
"""The measures of a document: one int64 each, equal on all engines.

Terms. A *character* is a code point. A *word* is a maximal run of characters that are not white space
(`str.split()`). A *line* is an element of `str.splitlines()`. A *text line* is a line with at least one word. A
*paragraph* is a maximal run of adjacent text lines. White space, letters, digits and case follow Unicode 17.0.
Measures of an empty or null document are 0.
"""

import math
import re
from enum import IntEnum, auto
from typing import NamedTuple

from curation.errors import nearest

GOPHER_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")  # Rae et al. 2021, A1.1
ENGLISH_FUNCTION_WORDS = ("the", "a", "an", "is", "are", "was", "were")

NGRAM_NAME = re.compile(r"(top|duplicate|covered)_(\d+)gram_")


class Measure(IntEnum):
    """Names of measures. Values are their columns in the output of the kernel.

    `Measure.words.definition`, `.unit` and `.source` describe a measure, and so does `help(Measure.words)`.

        >>> import curation
        >>> curation.Measure.words.definition, curation.Measure.words.unit
        ('maximal runs of characters that are not white space', 'words')
    """

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count

    bytes = auto()
    characters = auto()
    words = auto()
    lines = auto()
    text_lines = auto()
    paragraphs = auto()
    sentences = auto()
    newlines = auto()
    line_characters = auto()
    word_characters = auto()
    max_word_characters = auto()
    words_with_letter = auto()
    hash_signs = auto()
    ellipses = auto()
    ellipsis_characters = auto()
    symbols = auto()
    symbol_characters = auto()
    bullet_lines = auto()
    bullet_or_star_lines = auto()
    ellipsis_lines = auto()
    ellipsis_character_lines = auto()
    punctuated_lines = auto()
    short_lines = auto()
    alphabetic_characters = auto()
    alphanumeric_characters = auto()
    digit_characters = auto()
    uppercase_characters = auto()
    space_characters = auto()
    bracket_characters = auto()
    punctuation_characters = auto()
    unspaced_characters = auto()
    stop_words = auto()
    function_words = auto()
    urls = auto()
    url_characters = auto()
    duplicate_lines = auto()
    duplicate_line_characters = auto()
    duplicate_paragraphs = auto()
    duplicate_paragraph_characters = auto()
    distinct_words = auto()
    top_2gram_count = auto()
    top_3gram_count = auto()
    top_4gram_count = auto()
    top_2gram_characters = auto()
    top_3gram_characters = auto()
    top_4gram_characters = auto()
    duplicate_5gram_characters = auto()
    duplicate_6gram_characters = auto()
    duplicate_7gram_characters = auto()
    duplicate_8gram_characters = auto()
    duplicate_9gram_characters = auto()
    duplicate_10gram_characters = auto()
    covered_5gram_characters = auto()
    covered_6gram_characters = auto()
    covered_7gram_characters = auto()
    covered_8gram_characters = auto()
    covered_9gram_characters = auto()
    covered_10gram_characters = auto()
    num_2grams = auto()
    num_3grams = auto()

    @property
    def definition(self) -> str:
        """What the measure counts."""
        return DESCRIPTIONS[self.name]

    @property
    def unit(self) -> str:
        """The unit of the count, such as `words` or `characters`."""
        return unit_of(self.name)

    @property
    def source(self) -> str:
        """The paper or tool whose rules use the measure; "" for a basic count."""
        return SOURCES.get(self.name, "")


NUM_MEASURES = len(Measure)

# Names in other tools: `num_words`, `word_count`, `char_count`, `mean_word_length`.
COUNTING = re.compile(r"(?:num|n|nr|number_of|count_of|total)_|_(?:count|counts|num|number)$")
OTHER_NAMES = {
    "char": "characters", "chars": "characters", "length": "characters", "len": "characters",
    "text_length": "characters", "doc_length": "characters", "document_length": "characters", "size": "bytes",
    "stopword": "stop_words", "stopwords": "stop_words", "unique_words": "distinct_words",
}  # fmt: skip
WORD_LENGTHS = re.compile(r"(?:mean|avg|average)_word_len(?:gth)?|word_len(?:gth)?")

DESCRIPTIONS: dict[str, str] = {
    "bytes": "bytes of the UTF-8 text",
    "characters": "code points",
    "words": "maximal runs of characters that are not white space",
    "lines": "elements of str.splitlines()",
    "text_lines": "lines with at least one word",
    "paragraphs": "maximal runs of adjacent text lines",
    "sentences": "words that end a sentence (. ! ? … 。 ！ ？ ।, closing quotes and brackets after it skipped), "
    "plus one if the last word does not end one",
    "newlines": "characters U+000A",
    "line_characters": "characters that are not line ends (the two characters of CR LF are one line end)",
    "word_characters": "characters that are not white space: the sum of all word lengths",
    "max_word_characters": "characters of the longest word",
    "words_with_letter": "words with at least one letter (str.isalpha)",
    "hash_signs": "characters #",
    "ellipses": "occurrences of '...' (not overlapping) and of '…'",
    "ellipsis_characters": "characters …",
    "symbols": "hash_signs + ellipses",
    "symbol_characters": "hash_signs + ellipsis_characters",
    "bullet_lines": "lines whose first character after white space is • or -",
    "bullet_or_star_lines": "lines whose first character after white space is •, - or *",
    "ellipsis_lines": "lines that end, white space skipped, in '...' or '…'",
    "ellipsis_character_lines": "lines that end, white space skipped, in '…'",
    "punctuated_lines": "text lines that end, white space skipped, in one of . ! ? \" ' ” ’ … 。 ！ ？",
    "short_lines": "text lines of at most 30 characters, white space at both ends included",
    "alphabetic_characters": "letters (str.isalpha)",
    "alphanumeric_characters": "letters and numbers (str.isalnum)",
    "digit_characters": "decimal digits (str.isdecimal)",
    "uppercase_characters": "upper-case letters (str.isupper)",
    "space_characters": "white space (str.isspace)",
    "bracket_characters": "any of ( ) [ ] { } ⟨ ⟩",
    "punctuation_characters": "characters of the general categories P*",
    "unspaced_characters": "characters of scripts written without spaces between words",
    "stop_words": "how many of the eight Gopher stop words occur (case-sensitive)",
    "function_words": "occurrences of a, an, are, is, the, was, were (case-insensitive)",
    "urls": "matches of https?://\\S+|www\\.\\S+",
    "url_characters": "characters of the matches of `urls`",
    "duplicate_lines": "text lines equal to an earlier one",
    "duplicate_line_characters": "characters of duplicate_lines, without line ends",
    "duplicate_paragraphs": "paragraphs whose lines equal those of an earlier one",
    "duplicate_paragraph_characters": "characters of duplicate_paragraphs; a line end within one counts as 1",
    "distinct_words": "different words (case-sensitive)",
    **{f"top_{n}gram_count": f"count of the most frequent word {n}-gram" for n in (2, 3, 4)},
    **{
        f"top_{n}gram_characters": f"count x characters (joined by spaces) of the most frequent word {n}-gram; "
        "of equally frequent ones, the first"
        for n in (2, 3, 4)
    },
    **{
        f"duplicate_{n}gram_characters": f"characters of words in repeated {n}-grams, by a walk that skips {n} words "
        "after a repeat and never counts a first copy (datatrove)"
        for n in range(5, 11)
    },
    **{
        f"covered_{n}gram_characters": f"characters of words inside any {n}-gram that occurs twice or more, each word "
        "once, first copies too (Rae et al. 2021)"
        for n in range(5, 11)
    },
    "num_2grams": "words - 1, at least 0",
    "num_3grams": "words - 2, at least 0",
}

GOPHER, FINEWEB = "Rae et al. 2021 (Gopher)", "Penedo et al. 2024 (FineWeb)"
SOURCES: dict[str, str] = {  # of measures that are no basic counts
    **dict.fromkeys(
        ("words_with_letter", "hash_signs", "ellipses", "symbols", "bullet_lines", "ellipsis_lines", "stop_words"),
        f"{GOPHER}, appendix A1.1",
    ),
    **dict.fromkeys(
        ("duplicate_lines", "duplicate_line_characters", "duplicate_paragraphs", "duplicate_paragraph_characters"),
        f"{GOPHER}, table A1",
    ),
    **{f"top_{n}gram_characters": f"{GOPHER}, table A1" for n in (2, 3, 4)},
    **{f"duplicate_{n}gram_characters": f"{GOPHER}, table A1, as datatrove computes it" for n in range(5, 11)},
    **{f"covered_{n}gram_characters": f"{GOPHER}, table A1" for n in range(5, 11)},
    **dict.fromkeys(("punctuated_lines", "short_lines"), f"{FINEWEB}, section 3.6, as datatrove computes it"),
}
OTHER_UNITS = {
    "hash_signs": "characters", "ellipses": "occurrences", "symbols": "occurrences", "newlines": "characters",
    "function_words": "words", "stop_words": "words", "distinct_words": "words", "words_with_letter": "words",
    "urls": "occurrences",
}  # fmt: skip


def unit_of(name: str) -> str:
    """Return the unit of a measure."""
    if name.endswith("_count") or name.startswith("num_"):
        return "occurrences"
    return OTHER_UNITS.get(name) or name.rpartition("_")[2]


# Measure -> measures of which it counts a part. A unit with characters counts as its first character.
# Excluded: `top_*gram_characters`, since equal n-grams may overlap, and upper case in letters (Ⓐ is not a letter).
PARTS: dict[str, tuple[str, ...]] = {
    "characters": ("bytes",),
    "words": ("word_characters",),
    "lines": ("characters",),
    "text_lines": ("lines", "words"),
    "paragraphs": ("text_lines",),
    "sentences": ("words",),
    "newlines": ("space_characters", "lines"),
    "line_characters": ("characters",),
    "word_characters": ("line_characters",),
    "max_word_characters": ("word_characters",),
    "words_with_letter": ("words", "alphabetic_characters"),
    "hash_signs": ("symbol_characters",),
    "ellipses": ("symbols",),
    "ellipsis_characters": ("symbol_characters", "ellipses"),
    "symbols": ("punctuation_characters",),
    "symbol_characters": ("symbols",),
    "bullet_lines": ("bullet_or_star_lines",),
    "bullet_or_star_lines": ("text_lines",),
    "ellipsis_lines": ("punctuated_lines",),
    "ellipsis_character_lines": ("ellipsis_lines", "ellipsis_characters"),
    "punctuated_lines": ("text_lines",),
    "short_lines": ("text_lines",),
    "alphabetic_characters": ("alphanumeric_characters",),
    "alphanumeric_characters": ("word_characters",),
    "digit_characters": ("alphanumeric_characters",),
    "uppercase_characters": ("word_characters",),
    "space_characters": ("characters",),
    "bracket_characters": ("punctuation_characters",),
    "punctuation_characters": ("word_characters",),
    "unspaced_characters": ("word_characters",),
    "stop_words": ("distinct_words", "words_with_letter"),
    "function_words": ("words_with_letter",),
    "urls": ("words_with_letter", "url_characters"),
    "url_characters": ("word_characters",),
    "duplicate_lines": ("text_lines", "duplicate_line_characters"),
    "duplicate_line_characters": ("line_characters",),
    "duplicate_paragraphs": ("paragraphs", "duplicate_lines", "duplicate_paragraph_characters"),
    "duplicate_paragraph_characters": ("characters",),
    "distinct_words": ("words",),
    "top_2gram_count": ("num_2grams",),
    "top_3gram_count": ("num_3grams", "top_2gram_count"),
    "top_4gram_count": ("top_3gram_count",),
    **{f"duplicate_{n}gram_characters": (f"covered_{n}gram_characters",) for n in range(5, 11)},
    **{f"covered_{n}gram_characters": (f"covered_{n - 1}gram_characters",) for n in range(6, 11)},
    "covered_5gram_characters": ("word_characters",),
    "num_2grams": ("words",),
    "num_3grams": ("num_2grams",),
}


def _document_members() -> None:
    """Give the class and each measure a docstring with the definition, unit and source, for `help`."""
    lines = []
    for measure in Measure:
        source = f". Source: {measure.source}" if measure.source else ""
        measure.__doc__ = f"{measure.definition} (unit: {measure.unit}){source}"
        lines.append(f"    {measure.name:<32}{measure.__doc__}")
    Measure.__doc__ = f"{Measure.__doc__}\n" + "\n".join(lines)


_document_members()


def is_part(part: str, whole: str) -> bool:
    """Return whether `part` is `whole` or counts a part of it, and hence is never larger."""
    return part == whole or any(is_part(between, whole) for between in PARTS.get(part, ()))


def highest_ratio(above: str, below: str) -> float:
    """Return a bound that the ratio of two measures cannot exceed; infinity where none is known.

    A word is in at most n occurrences of an n-gram, and each occurrence has n - 1 spaces and begins at another word. So
    the characters of a most frequent n-gram are at most (2n - 1) times those of the text.
    """
    if is_part(above, below):
        return 1.0
    match = NGRAM_NAME.match(above)
    if match and match[1] == "top" and above.endswith("_characters") and below == "characters":
        return 2.0 * int(match[2]) - 1
    return math.inf


def similar_measures(name: str) -> list[str]:
    """Return the measures that a name of another tool stands for, such as `word_count` or `num_chars`; [] for none."""
    stem = COUNTING.sub("", name.lower())
    names = (stem, f"{stem}s", OTHER_NAMES.get(stem, ""), OTHER_NAMES.get(name.lower(), ""))
    return list(dict.fromkeys(known for known in names if known in Measure.__members__))


def near_measure(name: str) -> str:
    """Return the end of a message about an unknown measure: the measures of a similar meaning or name."""
    if WORD_LENGTHS.fullmatch(name.lower()):
        return "; write the ratio word_characters/words"
    similar = similar_measures(name)
    return f"; did you mean {', '.join(similar)}?" if similar else nearest(name, Measure.__members__)


def name_of(measure: object) -> str:
    """Return the name of a measure, from its name or a `Measure`. ValueError for anything else."""
    name = measure.name if isinstance(measure, Measure) else measure
    if not isinstance(name, str) or name not in Measure.__members__:
        raise ValueError(f"no measure named {name!r}{near_measure(str(name))}")
    return name


class Wanted(NamedTuple):
    """The costly parts of the kernel that a set of measures needs. The kernel always computes the cheap ones.

    lines      duplicate lines and paragraphs
    distinct   distinct words
    max_ngram  largest n-gram size; 0: none
    coverage   coverage by n-grams
    """

    lines: bool
    distinct: bool
    max_ngram: int
    coverage: bool


def wanted(names: tuple[str, ...]) -> Wanted:
    """Return the costly parts that the measures `names` need."""
    ngrams = [match for match in map(NGRAM_NAME.match, names) if match]
    return Wanted(
        lines=any(name.startswith(("duplicate_line", "duplicate_paragraph")) for name in names),
        distinct="distinct_words" in names,
        max_ngram=max((int(match[2]) for match in ngrams), default=0),
        coverage=any(match[1] == "covered" for match in ngrams),
    )


OF_CLASSES = tuple(
    f"{kind}_characters"
    for kind in ("alphabetic", "alphanumeric", "digit", "uppercase", "bracket", "punctuation", "unspaced")
)
OF_MARKS = ("sentences", "urls", "url_characters")
OF_SINGLE_WORDS = ("max_word_characters", "stop_words", "function_words", "urls", "url_characters", "distinct_words")


class WantedScan(NamedTuple):
    """The parts of a scan that a set of measures needs, for an engine that can leave them out.

    classes   counts of characters by class
    marks     ends of sentences and URLs
    words     hashes and lengths of single words
    lines     everything about lines and paragraphs
    """

    classes: bool
    marks: bool
    words: bool
    lines: bool


def wanted_scan(names: tuple[str, ...]) -> WantedScan:
    """Return the parts of a scan that the measures `names` need."""
    return WantedScan(
        classes=any(name in OF_CLASSES for name in names),
        marks=any(name in OF_MARKS for name in names),
        words=any(name in OF_SINGLE_WORDS or NGRAM_NAME.match(name) for name in names),
        lines=any("line" in name or "paragraph" in name for name in names),
    )
