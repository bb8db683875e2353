# SPDX-License-Identifier: Apache-2.0
"""Every measure of one document in slow plain Python, straight from the definitions of `curation.Measure`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from math import isqrt
from statistics import median

import regex
import unicodedata2

STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
FUNCTION_WORDS = {"a", "an", "are", "is", "the", "was", "were"}
CLOSERS = "\"')]}»”’"
SENTENCE_ENDS = tuple(".!?…。！？।")
LINE_ENDS = tuple(".!?\"'。！？”’…")
URL = re.compile(r"https?://\S+|www\.\S+")
FENCE = re.compile(r"(?P<marks>`{3,}(?=[^`]*\Z)|~{3,})(?P<info>.*)")
# Independent of our own tables: the `regex` package carries its own Unicode scripts.
UNSPACED = regex.compile(r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}"
                         r"\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]")  # fmt: skip
ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def paragraphs_of(text: str) -> list[tuple[str, ...]]:
    """Maximal runs of lines that have a word."""
    found: list[tuple[str, ...]] = []
    run: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.split():
            run.append(line)
        elif run:
            found.append(tuple(run))
            run = []
    return found


def are_prose(lines: list[str]) -> list[bool]:
    """Whether each text line has 3 letters or more, and is no fenced code and no fence."""
    left_out: set[int] = set()
    opening: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        match = FENCE.fullmatch(line.strip())
        if match is None:
            continue
        left_out.add(number)
        if opening is None:
            opening = number, match["marks"]
        elif match["marks"].startswith(opening[1]) and not match["info"]:
            left_out.update(range(opening[0], number))
            opening = None
    return [k not in left_out and sum(map(str.isalpha, line)) >= 3 for k, line in enumerate(lines)]


def repeats_of(items: Iterable) -> Iterator:
    """The items equal to an earlier one."""
    seen = set()
    for item in items:
        if item in seen:
            yield item
        seen.add(item)


def paragraph_characters(paragraph: tuple[str, ...]) -> int:
    """Characters of the lines, each line end within counted as one."""
    return len("\n".join(paragraph))


def ngrams_of(words: list[str], n: int) -> list[tuple[str, ...]]:
    """All n-grams in order; none when there are fewer than n words."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def top_ngram(words: list[str], n: int) -> tuple[int, int]:
    """Count and count x joined characters of the most frequent n-gram; `Counter` keeps the first seen of equals."""
    counts = Counter(ngrams_of(words, n)).most_common(1)
    if not counts:
        return 0, 0
    ngram, count = counts[0]
    return count, count * len(" ".join(ngram))


def duplicate_ngram_characters(words: list[str], n: int) -> int:
    """datatrove's `find_all_duplicate`, with n-grams compared as tuples of words."""
    seen = set()
    characters = position = 0
    while position + n <= len(words):
        ngram = tuple(words[position : position + n])
        if ngram in seen:
            characters += sum(map(len, ngram))
            position += n
        else:
            seen.add(ngram)
            position += 1
    return characters


def strings_of(text: str, size: int) -> list[str]:
    """All strings of so many characters, in order."""
    return [text[i : i + size] for i in range(len(text) - size + 1)]


def repeated_strings(text: str, size: int) -> int:
    """Occurrences of the most frequent strings: of those that occur more than once, at most the square root of the
    number of different ones."""
    counts = sorted(Counter(strings_of(text, size)).values(), reverse=True)
    return sum(count for count in counts[: isqrt(len(counts))] if count > 1)


def covered_ngram_characters(words: list[str], n: int) -> int:
    """Characters of all words inside any n-gram that occurs twice or more."""
    ngrams = ngrams_of(words, n)
    counts = Counter(ngrams)
    covered = {i + k for i, ngram in enumerate(ngrams) if counts[ngram] > 1 for k in range(n)}
    return sum(len(words[i]) for i in covered)


def ends_sentence(word: str) -> bool:
    """Whether the word ends a sentence, closing quotes and brackets skipped."""
    return word.rstrip(CLOSERS).endswith(SENTENCE_ENDS)


def _count_sentences(words: list[str]) -> int:
    return sum(map(ends_sentence, words)) + (bool(words) and not ends_sentence(words[-1]))


def _measure_size(text: str) -> dict[str, int]:
    words, lines = text.split(), text.splitlines()
    non_symbols = [word for word in words if any(map(str.isalnum, word))]
    return {
        "bytes": len(text.encode()),
        "characters": len(text),
        "words": len(words),
        "lines": len(lines),
        "text_lines": sum(bool(line.split()) for line in lines),
        "paragraphs": len(paragraphs_of(text)),
        "sentences": _count_sentences(words),
        "newlines": text.count("\n"),
        "line_characters": sum(map(len, lines)),
        "word_characters": sum(map(len, words)),
        "max_word_characters": max(map(len, words), default=0),
        "max_line_characters": max(map(len, lines), default=0),
        "words_with_letter": sum(any(map(str.isalpha, word)) for word in words),
        "non_symbol_words": len(non_symbols),
        "non_symbol_word_characters": sum(map(len, non_symbols)),
        "num_2grams": len(ngrams_of(words, 2)),
        "num_3grams": len(ngrams_of(words, 3)),
        "num_5characters": len(strings_of(text, 5)),
        "num_10characters": len(strings_of(text, 10)),
    }


def _measure_symbols(text: str) -> dict[str, int]:
    hash_signs, ellipsis_characters = text.count("#"), text.count("…")
    ellipses = text.count("...") + ellipsis_characters
    urls = URL.findall(text)
    return {
        "hash_signs": hash_signs,
        "ellipses": ellipses,
        "ellipsis_characters": ellipsis_characters,
        "symbols": hash_signs + ellipses,
        "symbol_characters": hash_signs + ellipsis_characters,
        "urls": len(urls),
        "url_characters": sum(map(len, urls)),
    }


def _measure_lines(text: str) -> dict[str, int]:
    lines = text.splitlines()
    text_lines = [line for line in lines if line.split()]
    return {
        "bullet_lines": sum(line.lstrip().startswith(("•", "-")) for line in lines),
        "bullet_or_star_lines": sum(line.lstrip().startswith(("•", "-", "*")) for line in lines),
        "ellipsis_lines": sum(line.rstrip().endswith(("...", "…")) for line in lines),
        "ellipsis_character_lines": sum(line.rstrip().endswith("…") for line in lines),
        "punctuated_lines": sum(line.rstrip().endswith(LINE_ENDS) for line in text_lines),
        "short_lines": sum(len(line) <= 30 for line in text_lines),
    }


def _measure_characters(text: str) -> dict[str, int]:
    return {
        "alphabetic_characters": sum(map(str.isalpha, text)),
        "alphanumeric_characters": sum(map(str.isalnum, text)),
        "digit_characters": sum(map(str.isdecimal, text)),
        "uppercase_characters": sum(map(str.isupper, text)),
        "space_characters": sum(map(str.isspace, text)),
        "bracket_characters": sum(map("()[]{}⟨⟩".count, text)),
        "punctuation_characters": sum(unicodedata2.category(char).startswith("P") for char in text),
        "unspaced_characters": len(UNSPACED.findall(text)),
    }


def _measure_words(words: list[str]) -> dict[str, int]:
    lengths = [len(word) for word in words]
    return {
        "median_word_characters": int(median(lengths)) if lengths else 0,
        "short_words": sum(length <= 3 for length in lengths),
        "long_words": sum(length >= 7 for length in lengths),
        "uppercase_words": sum(map(str.isupper, words)),
        "capitalised_words": sum(map(str.istitle, words)),
        "stop_words": len(STOP_WORDS.intersection(words)),
        "stop_word_count": sum(word in STOP_WORDS for word in words),
        "function_words": sum(word.translate(ASCII_LOWER) in FUNCTION_WORDS for word in words),
    }


def _measure_duplicates(text: str) -> dict[str, int]:
    text_lines = [line for line in text.splitlines() if line.split()]
    lines, paragraphs = list(repeats_of(text_lines)), list(repeats_of(paragraphs_of(text)))
    prose = list(compress(text_lines, are_prose(text_lines)))
    return {
        "prose_lines": len(prose),
        "prose_line_characters": sum(map(len, prose)),
        "duplicate_prose_lines": len(list(repeats_of(prose))),
        "duplicate_prose_line_characters": sum(map(len, repeats_of(prose))),
        "duplicate_lines": len(lines),
        "duplicate_line_characters": sum(map(len, lines)),
        "duplicate_paragraphs": len(paragraphs),
        "duplicate_paragraph_characters": sum(map(paragraph_characters, paragraphs)),
    }


def _measure_ngrams(words: list[str]) -> dict[str, int]:
    measures = {}
    for n in (2, 3, 4):
        measures[f"top_{n}gram_count"], measures[f"top_{n}gram_characters"] = top_ngram(words, n)
    for n in range(2, 11):
        measures[f"duplicate_{n}gram_characters"] = duplicate_ngram_characters(words, n)
    for n in range(5, 11):
        measures[f"covered_{n}gram_characters"] = covered_ngram_characters(words, n)
    return measures


def measure_text(text: str) -> dict[str, int]:
    """The measures that need the text: all but those of repetition."""
    return {
        **_measure_size(text),
        **_measure_symbols(text),
        **_measure_lines(text),
        **_measure_characters(text),
        **_measure_words(text.split()),
    }


def measure_repetition(text: str) -> dict[str, int]:
    """The measures of words, lines, paragraphs and n-grams that repeat."""
    words = text.split()
    return {"distinct_words": len(set(words)), **_measure_duplicates(text), **_measure_ngrams(words)}


def measure_strings(text: str) -> dict[str, int]:
    """The measures of strings of characters that repeat."""
    return {f"repeated_{size}character_characters": repeated_strings(text, size) for size in (5, 10)}


def measure_document(text: str) -> dict[str, int]:
    """All measures of one document."""
    return measure_text(text) | measure_repetition(text) | measure_strings(text)
