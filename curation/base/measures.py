# SPDX-License-Identifier: Apache-2.0
"""The measures of a document: one int64 each, equal on all engines.

Terms. A *character* is a code point. A *word* is a maximal run of characters that are not white space
(`str.split()`). A *line* is an element of `str.splitlines()`. A *text line* is a line with at least one word. A
*paragraph* is a maximal run of adjacent text lines. White space, letters, digits and case follow Unicode 17.0.
Measures of an empty or null document are 0.
"""

import math
import re
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from curation.base.errors import nearest

GOPHER_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")  # Rae et al. 2021, A1.1
ENGLISH_FUNCTION_WORDS = ("the", "a", "an", "is", "are", "was", "were")

NGRAM_NAME = re.compile(r"(top|duplicate|covered)_(\d+)gram_")


# Definitions of measures of n-grams
_TOP_COUNT = "count of the most frequent word {}-gram"
_TOP_CHARACTERS = (
    "count x characters (joined by spaces) of the most frequent word {}-gram; of equally frequent ones, the first"
)
_DUPLICATE = (
    "characters of words in repeated {0}-grams, by a walk that skips {0} words after a repeat and never counts a first "
    "copy (datatrove)"
)
_COVERED = (
    "characters of words inside any {}-gram that occurs twice or more, each word once, first copies too "
    "(Rae et al. 2021)"
)
_REPEATED = (
    "characters at which one of the most frequent strings of {} characters begins. With n different strings, the most "
    "frequent ones are the first sqrt(n), rounded down, among those that occur twice or more (data-juicer)"
)


class Measure(IntEnum):
    """Names of measures. Values are their columns in the output of the kernel.

    `Measure.words.definition`, `.unit` and `.source` describe a measure, and so does `help(Measure.words)`.

        >>> import curation
        >>> curation.Measure.words.definition, curation.Measure.words.unit
        ('maximal runs of characters that are not white space', 'words')
    """

    definition: str  # what the measure counts
    parts_of: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Measure.{self.name}: {self.definition} (unit: {self.unit})>"

    def __new__(cls, definition: str, *parts_of: str) -> "Measure":
        """`parts_of`: measures that this one never exceeds. Words never exceed word characters, for example.
        `top_*gram_characters` has none, since equal n-grams may overlap. `uppercase_characters` does not name letters,
        since Ⓐ is upper case and no letter.
        """
        measure = int.__new__(cls, len(cls.__members__))
        measure._value_ = len(cls.__members__)
        measure.definition, measure.parts_of = definition, parts_of
        return measure

    bytes = "bytes of the UTF-8 text"
    characters = "code points", "bytes"
    words = "maximal runs of characters that are not white space", "word_characters"
    lines = "elements of str.splitlines()", "characters"
    text_lines = "lines with at least one word", "lines", "words"
    paragraphs = "maximal runs of adjacent text lines", "text_lines"
    sentences = (
        "words that end a sentence (. ! ? … 。 ！ ？ ।, closing quotes and brackets after it skipped), plus one if the "
        "last word does not end one",
        "words",
    )
    newlines = "characters U+000A", "space_characters", "lines"
    line_characters = "characters that are not line ends (the two characters of CR LF are one line end)", "characters"
    word_characters = "characters that are not white space: the sum of all word lengths", "line_characters"
    max_word_characters = "characters of the longest word", "word_characters"
    median_word_characters = (
        "characters of the middle word by length; of two middle ones, their mean, rounded down",
        "max_word_characters",
    )
    short_words = "words of at most 3 characters", "words"
    long_words = "words of at least 7 characters", "words"
    max_line_characters = "characters of the longest line, without its line end", "line_characters"
    words_with_letter = "words with at least one letter (str.isalpha)", "non_symbol_words", "alphabetic_characters"
    non_symbol_words = (
        "words with at least one letter or number (str.isalnum): words that are not marks alone",
        "words",
        "alphanumeric_characters",
    )
    non_symbol_word_characters = "characters of non_symbol_words", "word_characters"
    uppercase_words = (
        "words with an upper-case letter and no other cased one, such as NATO or U.S. (str.isupper)",
        "words",
        "uppercase_characters",
    )
    capitalised_words = (
        "words whose cased letters are upper case exactly where no cased one precedes, such as Jean-Luc (str.istitle)",
        "words",
    )
    hash_signs = "characters #", "symbol_characters"
    ellipses = "occurrences of '...' (not overlapping) and of '…'", "symbols"
    ellipsis_characters = "characters …", "symbol_characters", "ellipses"
    symbols = "hash_signs + ellipses", "punctuation_characters"
    symbol_characters = "hash_signs + ellipsis_characters", "symbols"
    bullet_lines = "lines whose first character after white space is • or -", "bullet_or_star_lines"
    bullet_or_star_lines = "lines whose first character after white space is •, - or *", "text_lines"
    ellipsis_lines = "lines that end, white space skipped, in '...' or '…'", "punctuated_lines"
    ellipsis_character_lines = "lines that end, white space skipped, in '…'", "ellipsis_lines", "ellipsis_characters"
    punctuated_lines = "text lines that end, white space skipped, in one of . ! ? \" ' ” ’ … 。 ！ ？", "text_lines"
    short_lines = "text lines of at most 30 characters, white space at both ends included", "text_lines"
    alphabetic_characters = "letters (str.isalpha)", "alphanumeric_characters"
    alphanumeric_characters = "letters and numbers (str.isalnum)", "non_symbol_word_characters"
    digit_characters = "decimal digits (str.isdecimal)", "alphanumeric_characters"
    uppercase_characters = "upper-case letters (str.isupper)", "word_characters"
    space_characters = "white space (str.isspace)", "characters"
    bracket_characters = "any of ( ) [ ] { } ⟨ ⟩", "punctuation_characters"
    punctuation_characters = "characters of the general categories P*", "word_characters"
    unspaced_characters = "characters of scripts written without spaces between words", "word_characters"
    stop_words = "how many of the eight Gopher stop words occur (case-sensitive)", "distinct_words", "stop_word_count"
    stop_word_count = (
        "occurrences of the eight Gopher stop words the, be, to, of, and, that, have, with (case-sensitive)",
        "words_with_letter",
    )
    function_words = "occurrences of a, an, are, is, the, was, were (case-insensitive)", "words_with_letter"
    urls = "matches of https?://\\S+|www\\.\\S+", "words_with_letter", "url_characters"
    url_characters = "characters of the matches of `urls`", "word_characters"
    duplicate_lines = "text lines equal to an earlier one", "text_lines", "duplicate_line_characters"
    duplicate_line_characters = "characters of duplicate_lines, without line ends", "line_characters"
    duplicate_paragraphs = (
        "paragraphs whose lines equal those of an earlier one",
        "paragraphs",
        "duplicate_lines",
        "duplicate_paragraph_characters",
    )
    duplicate_paragraph_characters = (
        "characters of duplicate_paragraphs; a line end within one counts as 1",
        "characters",
    )
    prose_lines = (
        "text lines with at least 3 letters (str.isalpha), without code fences of CommonMark (indented or not) and the "
        "lines between one and the fence that closes it",
        "text_lines",
        "prose_line_characters",
    )
    prose_line_characters = "characters of prose_lines, without line ends", "line_characters"
    duplicate_prose_lines = (
        "prose_lines equal to an earlier one",
        "prose_lines",
        "duplicate_lines",
        "duplicate_prose_line_characters",
    )
    duplicate_prose_line_characters = (
        "characters of duplicate_prose_lines, without line ends",
        "prose_line_characters",
        "duplicate_line_characters",
    )
    distinct_words = "different words (case-sensitive)", "words"
    top_2gram_count = _TOP_COUNT.format(2), "num_2grams"
    top_3gram_count = _TOP_COUNT.format(3), "num_3grams", "top_2gram_count"
    top_4gram_count = _TOP_COUNT.format(4), "top_3gram_count"
    top_2gram_characters = _TOP_CHARACTERS.format(2)
    top_3gram_characters = _TOP_CHARACTERS.format(3)
    top_4gram_characters = _TOP_CHARACTERS.format(4)
    duplicate_2gram_characters = _DUPLICATE.format(2), "word_characters"
    duplicate_3gram_characters = _DUPLICATE.format(3), "word_characters"
    duplicate_4gram_characters = _DUPLICATE.format(4), "word_characters"
    duplicate_5gram_characters = _DUPLICATE.format(5), "covered_5gram_characters"
    duplicate_6gram_characters = _DUPLICATE.format(6), "covered_6gram_characters"
    duplicate_7gram_characters = _DUPLICATE.format(7), "covered_7gram_characters"
    duplicate_8gram_characters = _DUPLICATE.format(8), "covered_8gram_characters"
    duplicate_9gram_characters = _DUPLICATE.format(9), "covered_9gram_characters"
    duplicate_10gram_characters = _DUPLICATE.format(10), "covered_10gram_characters"
    covered_5gram_characters = _COVERED.format(5), "word_characters"
    covered_6gram_characters = _COVERED.format(6), "covered_5gram_characters"
    covered_7gram_characters = _COVERED.format(7), "covered_6gram_characters"
    covered_8gram_characters = _COVERED.format(8), "covered_7gram_characters"
    covered_9gram_characters = _COVERED.format(9), "covered_8gram_characters"
    covered_10gram_characters = _COVERED.format(10), "covered_9gram_characters"
    num_2grams = "words - 1, at least 0", "words"
    num_3grams = "words - 2, at least 0", "num_2grams"
    repeated_5character_characters = _REPEATED.format(5), "num_5characters"
    repeated_10character_characters = _REPEATED.format(10), "num_10characters"
    num_5characters = "characters - 4, at least 0: strings of 5 characters", "characters"
    num_10characters = "characters - 9, at least 0: strings of 10 characters", "num_5characters"

    @property
    def unit(self) -> str:
        """The unit of the count, such as `words` or `characters`."""
        return unit_of(self.name)

    @property
    def source(self) -> str:
        """The paper or tool whose rules use the measure; "" for a basic count."""
        return SOURCES.get(self.name, "")


NUM_MEASURES = len(Measure)
# The number of tokens of the text, without special tokens. Rules and the stage `measure` can use it, since they have
# the tokenizer. No kernel counts tokens, so it is no member of `Measure`.
TOKENS = "tokens"

# Names in other tools: `num_words`, `word_count`, `char_count`, `mean_word_length`.
COUNTING = re.compile(r"(?:num|n|nr|number_of|count_of|total)_|_(?:count|counts|num|number)$")
OTHER_NAMES = {
    "char": "characters", "chars": "characters", "length": "characters", "len": "characters",
    "text_length": "characters", "doc_length": "characters", "document_length": "characters", "size": "bytes",
    "stopword": "stop_words", "stopwords": "stop_words", "unique_words": "distinct_words",
}  # fmt: skip
WORD_LENGTHS = re.compile(r"(?:mean|avg|average)_word_len(?:gth)?|word_len(?:gth)?")

GOPHER, FINEWEB = "Rae et al. 2021 (Gopher)", "Penedo et al. 2024 (FineWeb)"
SOURCES: dict[str, str] = {  # of the measures that are not basic counts
    **dict.fromkeys(
        ("words_with_letter", "hash_signs", "ellipses", "symbols", "bullet_lines", "ellipsis_lines", "stop_words"),
        f"{GOPHER}, appendix A1.1",
    ),
    **dict.fromkeys(
        ("duplicate_lines", "duplicate_line_characters", "duplicate_paragraphs", "duplicate_paragraph_characters"),
        f"{GOPHER}, table A1",
    ),
    **dict.fromkeys(
        ("duplicate_prose_lines", "duplicate_prose_line_characters"), f"{GOPHER}, table A1, there of all lines"
    ),
    **{f"top_{n}gram_characters": f"{GOPHER}, table A1" for n in (2, 3, 4)},
    **{f"duplicate_{n}gram_characters": f"{GOPHER}, table A1, as datatrove computes it" for n in range(2, 11)},
    **{f"covered_{n}gram_characters": f"{GOPHER}, table A1" for n in range(5, 11)},
    **dict.fromkeys(("punctuated_lines", "short_lines"), f"{FINEWEB}, section 3.6, as datatrove computes it"),
    **dict.fromkeys(
        ("short_words", "long_words", "uppercase_words", "capitalised_words", "stop_word_count"),
        "datatrove, word_stats",
    ),
    **dict.fromkeys(
        ("non_symbol_words", "non_symbol_word_characters"),
        "datatrove, Gopher quality filter, which has a list of marks",
    ),
    "median_word_characters": "dolma, gopher_v1, which does not round",
    **dict.fromkeys((f"repeated_{n}character_characters" for n in (5, 10)), "data-juicer, character_repetition_filter"),
}
OTHER_UNITS = {
    "hash_signs": "characters", "ellipses": "occurrences", "symbols": "occurrences", "newlines": "characters",
    "function_words": "words", "stop_words": "words", "distinct_words": "words", "words_with_letter": "words",
    "urls": "occurrences",
}  # fmt: skip


def unit_of(name: str) -> str:
    """Return the unit of a measure: "occurrences" for `*_count` and `num_*`, else the measure's entry in `OTHER_UNITS`,
    else the last word of its name."""
    if name.endswith("_count") or name.startswith("num_"):
        return "occurrences"
    return OTHER_UNITS.get(name) or name.rpartition("_")[2]


def _document_members() -> None:
    """Give the class and each measure a docstring with the definition, unit and source, for `help`."""
    lines = []
    for measure in Measure:
        source = f". Source: {measure.source}" if measure.source else ""
        measure.__doc__ = f"{measure.definition} (unit: {measure.unit}){source}"
        lines.append(f"    {measure.name:<32}{measure.__doc__}")
    Measure.__doc__ = f"{Measure.__doc__}\n" + "\n".join(lines)


_document_members()


def is_measure(name: str) -> bool:
    """Return whether `name` is a measure that a rule can bound: a member of `Measure`, or `tokens`."""
    return name == TOKENS or name in Measure.__members__


@cache
def is_part(part: str, whole: str) -> bool:
    """Return whether the measure `part` is never larger than `whole`: it counts a part of `whole`, or is the same."""
    return part == whole or (part != TOKENS and any(is_part(between, whole) for between in Measure[part].parts_of))


def highest_ratio(above: str, below: str) -> float:
    """Return an upper bound of the ratio of two measures; infinity if none is known.

    A word is in at most n occurrences of an n-gram. Each occurrence has n - 1 spaces, and no two begin at the same
    word. So the characters of the most frequent n-gram are at most (2n - 1) times those of the text.
    """
    if is_part(above, below):
        return 1.0
    match = NGRAM_NAME.match(above)
    if match and match[1] == "top" and above.endswith("_characters") and below == "characters":
        return 2.0 * int(match[2]) - 1
    return math.inf


def similar_measures(name: str) -> list[str]:
    """Return the measures that correspond to a name of another tool, such as `word_count` or `num_chars`; [] for
    none."""
    stem = COUNTING.sub("", name.lower())
    names = (stem, f"{stem}s", OTHER_NAMES.get(stem, ""), OTHER_NAMES.get(name.lower(), ""))
    return list(dict.fromkeys(known for known in names if known in Measure.__members__))


def near_measure(name: str) -> str:
    """Return the end of a message about an unknown measure; it suggests measures with a similar meaning or name."""
    if WORD_LENGTHS.fullmatch(name.lower()):
        return "; write the ratio word_characters/words"
    similar = similar_measures(name)
    return f"; did you mean {', '.join(similar)}?" if similar else nearest(name, Measure.__members__)


def close_measure(name: str) -> str:
    """Return "; did you mean ...?" with measures that are similar to a name; "" if none is."""
    hint = near_measure(name)
    return hint if hint.endswith("?") else ""


def name_of(measure: object) -> str:
    """Return the name of a measure, given as a name or a `Measure`. Raises ValueError for any other value."""
    name = measure.name if isinstance(measure, Measure) else measure
    if not isinstance(name, str) or not is_measure(name):
        raise ValueError(f"no measure named {name!r}{near_measure(str(name))}")
    return name


class MeasureParts(NamedTuple):
    """The costly parts of the kernel that a set of measures needs. The kernel always computes the cheap ones.

    lines             duplicate lines and paragraphs, and lines of prose
    distinct          distinct words
    max_ngram         largest n-gram size; 0: none
    coverage          coverage by n-grams
    first_duplicates  smallest n-gram size whose duplicates are counted: 2 or 5
    """

    lines: bool
    distinct: bool
    max_ngram: int
    coverage: bool
    first_duplicates: int


def wanted(names: tuple[str, ...]) -> MeasureParts:
    """Return the costly parts that the measures `names` need."""
    ngrams = [match for match in map(NGRAM_NAME.match, names) if match]
    return MeasureParts(
        lines=any(name.startswith(("duplicate_line", "duplicate_paragraph")) or "prose" in name for name in names),
        distinct="distinct_words" in names,
        max_ngram=max((int(match[2]) for match in ngrams), default=0),
        coverage=any(match[1] == "covered" for match in ngrams),
        first_duplicates=2 if any(match[1] == "duplicate" and int(match[2]) < 5 for match in ngrams) else 5,
    )


OF_CLASSES = tuple(
    f"{kind}_characters"
    for kind in ("alphabetic", "alphanumeric", "digit", "uppercase", "bracket", "punctuation", "unspaced")
)
OF_MARKS = ("sentences", "urls", "url_characters")
OF_WORD_LENGTHS = ("median_word_characters", "short_words", "long_words")
OF_WORD_CASES = ("uppercase_words", "capitalised_words")
OF_NON_SYMBOLS = ("non_symbol_words", "non_symbol_word_characters")
OF_SINGLE_WORDS = (
    "max_word_characters", "stop_words", "stop_word_count", "function_words", "urls", "url_characters",
    "distinct_words", *OF_WORD_LENGTHS, *OF_NON_SYMBOLS,
)  # fmt: skip
PROSE_LETTERS = 3  # minimum letters of a line of prose
SHORT_WORD_CHARACTERS, LONG_WORD_CHARACTERS = 3, 7
REPEATED_SIZES = {f"repeated_{size}character_characters": size for size in (5, 10)}


class WantedScan(NamedTuple):
    """The parts of a scan that a set of measures needs, for an engine that can leave them out.

    classes      counts of characters by class
    marks        ends of sentences and URLs
    words        hashes and lengths of single words
    lines        everything about lines and paragraphs
    lengths      numbers of words by length
    cases        words by upper and lower case
    non_symbols  words with a letter or number
    """

    classes: bool
    marks: bool
    words: bool
    lines: bool
    lengths: bool
    cases: bool
    non_symbols: bool


def wanted_scan(names: tuple[str, ...]) -> WantedScan:
    """Return the parts of a scan that the measures `names` need."""
    return WantedScan(
        classes=any(name in OF_CLASSES for name in names),
        marks=any(name in OF_MARKS for name in names),
        words=any(name in OF_SINGLE_WORDS or NGRAM_NAME.match(name) for name in names),
        lines=any("line" in name or "paragraph" in name for name in names),
        lengths=any(name in OF_WORD_LENGTHS for name in names),
        cases=any(name in OF_WORD_CASES for name in names),
        non_symbols=any(name in OF_NON_SYMBOLS for name in names),
    )
