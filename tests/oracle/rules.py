# SPDX-License-Identifier: Apache-2.0
"""The literal rule sets in plain Python, straight from the text: no measures, no kernels.

Each gives `(reason, value)` of the first rule that fires, or None for a document that stays.
"""

import math
import re
import statistics
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

Verdict = tuple[str, float] | None
TOP_NGRAMS = ((2, 0.20), (3, 0.18), (4, 0.16))
DUPLICATE_NGRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
GOPHER_STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
NEMO_WORDS = {"the", "a", "an", "is", "are", "was", "were"}


def _first(fired: Iterable[tuple[str, float, bool]]) -> Verdict:
    return next(((reason, value) for reason, value, fires in fired if fires), None)


def _share(part: float, whole: int) -> float:
    return part / max(1, whole)


def _mean_length(words: list[str]) -> float:
    return _share(sum(len(word) for word in words), len(words))


def _share_of(lines: list[str], test) -> float:
    return _share(sum(1 for line in lines if test(line)), len(lines))


def _is_bullet(line: str) -> bool:
    return line.lstrip().startswith(("•", "-"))


def _is_cut(line: str) -> bool:
    return line.rstrip().endswith(("...", "…"))


def _gopher_quality(text: str) -> Iterator[tuple[str, float, bool]]:
    words, lines = text.split(), text.splitlines()
    yield "too_few_words", len(words), len(words) < 50
    yield "too_many_words", len(words), len(words) > 100_000
    mean = _mean_length(words)
    yield "words_too_short", mean, mean < 3
    yield "words_too_long", mean, mean > 10
    hashes = _share(text.count("#"), len(words))
    yield "too_many_hash_signs", hashes, hashes > 0.1
    ellipsis = _share(text.count("...") + text.count("…"), len(words))
    yield "too_many_ellipses", ellipsis, ellipsis > 0.1
    bullets = _share_of(lines, _is_bullet)
    yield "too_many_bullet_lines", bullets, bullets > 0.9
    cut = _share_of(lines, _is_cut)
    yield "too_many_ellipsis_lines", cut, cut > 0.3
    alpha = _share_of(words, lambda word: any(char.isalpha() for char in word))
    yield "too_few_words_with_letter", alpha, alpha < 0.8
    stop_words = len(GOPHER_STOP_WORDS & set(words))
    yield "too_few_stop_words", stop_words, stop_words < 2


def gopher_quality(text: str) -> Verdict:
    """Rae et al. 2021, A1.1, in datatrove's order, with words as `str.split()` gives them."""
    return _first(_gopher_quality(text))


def paragraphs_of(text: str) -> list[str]:
    """Text lines joined where no other line lies between them; compared without their line ends."""
    lines = [line if line.strip() else "" for line in text.splitlines()]
    return [paragraph.strip("\n") for paragraph in re.split("\n\n+", "\n".join(lines).strip("\n")) if paragraph]


def _duplicates(items: list[str]) -> tuple[int, int]:
    """How many items equal an earlier one, and their characters."""
    counts = Counter(items)
    return sum(count - 1 for count in counts.values()), sum(len(item) * (count - 1) for item, count in counts.items())


def _top_ngram_characters(words: list[str], n: int) -> int:
    ngrams = Counter(zip(*(words[i:] for i in range(n)), strict=False))
    if not ngrams:
        return 0
    best = max(ngrams, key=ngrams.__getitem__)
    return len(" ".join(best)) * ngrams[best]


def _duplicate_ngram_characters(words: list[str], n: int) -> int:
    """datatrove `find_all_duplicate`; a tuple of words where it has them glued together."""
    unique: set[tuple[str, ...]] = set()
    repeated, idx = 0, 0
    while idx < len(words) - n + 1:
        ngram = tuple(words[idx : idx + n])
        if ngram in unique:
            repeated += len("".join(ngram))
            idx += n
        else:
            unique.add(ngram)
            idx += 1
    return repeated


def _gopher_repetition(text: str) -> Iterator[tuple[str, float, bool]]:
    paragraphs, words = paragraphs_of(text), text.split()
    lines = [line for line in text.splitlines() if line.strip()]
    for name, items in (("paragraph", paragraphs), ("line", lines)):
        count, characters = _duplicates(items)
        share = _share(count, len(items))
        yield f"duplicate_{name}s", share, share > 0.30
        share = _share(characters, len(text))
        yield f"duplicate_{name}_characters", share, share > 0.20
    for n, most in TOP_NGRAMS:
        share = _share(_top_ngram_characters(words, n), len(text))
        yield f"top_{n}gram", share, share > most
    for n, most in DUPLICATE_NGRAMS:
        share = _share(_duplicate_ngram_characters(words, n), len(text))
        yield f"duplicate_{n}grams", share, share > most


def gopher_repetition(text: str) -> Verdict:
    """Rae et al. 2021, A1.1, table A1, in datatrove's order and with its walk over repeated n-grams."""
    return _first(_gopher_repetition(text))


FINEWEB_ENDS = tuple(".!?\"'”’…。！？")


def _fineweb(text: str) -> Iterator[tuple[str, float, bool]]:
    lines, words = [line for line in text.splitlines() if line.strip()], text.split()
    share = _share_of(lines, lambda line: line.rstrip().endswith(FINEWEB_ENDS))
    yield "too_few_punctuated_lines", share, share < 0.12
    share = _share_of(lines, lambda line: len(line) <= 30)
    yield "too_many_short_lines", share, share > 0.67
    share = _share(_duplicates(lines)[1], sum(map(len, text.splitlines())))
    yield "duplicate_line_characters", share, share > 0.01
    share = _share(text.count("\n"), len(words))
    yield "too_many_newlines", share, share > 0.3


def fineweb(text: str) -> Verdict:
    """FineWeb's own rules, Penedo et al. 2024, as datatrove has them."""
    return _first(_fineweb(text))


def _most_frequent(words: list[str], n: int) -> float:
    ngrams = list(zip(*(words[i:] for i in range(n)), strict=False))
    return _share(max(Counter(ngrams).values(), default=0), len(ngrams))


def _common_crawl(text: str) -> Iterator[tuple[str, float, bool]]:
    words, lines = text.split(), text.splitlines()
    yield "length", len(words), len(words) < 50 or len(words) > 100_000
    mean = _mean_length(words)
    yield "word_len", mean, mean < 3 or mean > 10
    symbols = _share(text.count("#") + text.count("…"), len(text))
    yield "symbol_ratio", symbols, symbols > 0.10
    bullets = _share_of(lines, lambda line: line.lstrip().startswith(("•", "-", "*")))
    yield "too_bulleted", bullets, bullets > 0.90
    cut = _share_of(lines, lambda line: line.rstrip().endswith("…"))
    yield "too_truncated", cut, cut > 0.30
    for n, most in ((2, 0.20), (3, 0.18)):
        share = _most_frequent(words, n)
        yield f"repeat_{n}gram", share, share > most


def common_crawl(text: str) -> Verdict:
    """The quality table of the `common_crawl` pipeline."""
    return _first(_common_crawl(text))


def _nemo(text: str) -> Iterator[tuple[str, float, bool]]:
    words = text.split()
    yield "length", len(text), not 100 <= len(text) <= 100_000
    yield "word_count", len(words), len(words) < 20
    mean = _mean_length(words)
    yield "mean_word_length", mean, not 3 <= mean <= 15
    alphanumeric = _share(sum(1 for char in text if char.isalnum()), len(text))
    yield "alphanumeric", alphanumeric, alphanumeric < 0.7
    distinct = _share(len(set(words)), len(words))
    yield "distinct_words", distinct, distinct < 0.2
    function_words = sum(1 for word in text.lower().split() if word in NEMO_WORDS)
    yield "function_words", function_words, function_words < 1


def nemo(text: str) -> Verdict:
    """The heuristics of the `nemo` pipeline."""
    return _first(_nemo(text))


# Rules of other tools. `\s`, `\S` and line ends are those of RE2.
BREAKS = re.compile(r"[\t\n\f\r ]+")


def _blank(char: str) -> bool:
    """White space within a line, at its ends."""
    return char in "\t\f\r" or unicodedata.category(char).startswith("Z")


def _trimmed(line: str) -> str:
    """The line without white space at both ends."""
    while line and _blank(line[-1]):
        line = line[:-1]
    while line and _blank(line[0]):
        line = line[1:]
    return line


def _lines_with(text: str, test) -> int:
    return sum(1 for line in text.split("\n") if test(_trimmed(line)))


def _text_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _duplicate_shares(text: str) -> Iterator[tuple[str, float, bool]]:
    """Lines and paragraphs equal to earlier ones, then their characters."""
    lines, paragraphs = _text_lines(text), paragraphs_of(text)
    sizes = {"line": sum(map(len, text.splitlines())), "paragraph": len(text)}
    for name, items in (("line", lines), ("paragraph", paragraphs)):
        share = _share(_duplicates(items)[0], len(items))
        yield f"duplicate_{name}s", share, share > 0.3
    for name, items in (("line", lines), ("paragraph", paragraphs)):
        share = _share(_duplicates(items)[1], sizes[name])
        yield f"duplicate_{name}_characters", share, share > 0.2


def _top_shares(text: str, words: list[str]) -> Iterator[tuple[str, float, bool]]:
    for n, most in TOP_NGRAMS:
        share = _share(_top_ngram_characters(words, n), len(text))
        yield f"top_{n}gram", share, share > most


def _covered_characters(words: list[str], n: int) -> int:
    ngrams = list(zip(*(words[k:] for k in range(n)), strict=False))
    counts = Counter(ngrams)
    places = {k + j for k, ngram in enumerate(ngrams) if counts[ngram] > 1 for j in range(n)}
    return sum(len(words[place]) for place in places)


def _repeated_shares(words: list[str], count, whole: int) -> Iterator[tuple[str, float, bool]]:
    for n, most in DUPLICATE_NGRAMS:
        share = _share(count(words, n), whole)
        yield f"duplicate_{n}grams", share, share > most


def _letters(words: list[str]) -> tuple[str, float, bool]:
    share = _share_of(words, lambda word: any(char.isalpha() for char in word))
    return "too_few_words_with_letter", share, share < 0.8


def _stop_words(words: list[str]) -> tuple[str, float, bool]:
    found = sum(word in GOPHER_STOP_WORDS for word in words)
    return "too_few_stop_words", found, found < 2


def _out_of(name: str, value: float, low: float, high: float) -> tuple[str, float, bool]:
    return name, value, not low <= value <= high


ELLIPSES = ("...", "[...]", "(...)", "…", "[…]", "-»", "read more", "read more..")
SYMBOL = re.compile(
    r"(?:^|[\t\n\f\r ])(?:\.\.\.|\[\.\.\.\]|\(\.\.\.\)|…|\[…\]|-»|#(?:[^\t\n\f\r #]#)*)(?:[\t\n\f\r ]|\Z)"
)


def _curator_english(text: str) -> Iterator[tuple[str, float, bool]]:
    words, size, lines = text.split(), len(text), len(_text_lines(text))
    kept = set(string.ascii_letters + string.digits + "\n?!,.")
    for name, count, whole, most in (
        ("non_alphanumeric", sum(char not in kept for char in text), size, 0.25),
        ("too_many_symbols", len(SYMBOL.findall(text)), len(words), 0.1),
        ("too_many_digits", sum(map(str.isdecimal, text)), size, 0.15),
        ("too_many_urls", sum(map(len, re.findall(r"https?://\S+|www\.\S+", text))), size, 0.2),
        ("too_much_white_space", sum(map(str.isspace, text)), size, 0.25),
        ("too_many_brackets", sum(char in "()[]{}⟨⟩" for char in text), size, 0.1),
    ):
        share = _share(count, whole)
        yield name, share, share > most
    yield from _duplicate_shares(text)
    yield _out_of("word_count", len(words), 50, 100_000)
    share = _share(_lines_with(text, lambda line: line.endswith((".", "?", "!", '"', "'"))), lines)
    yield "too_few_end_marks", share, share < 0.15
    yield _letters(words)
    yield _stop_words(words)
    yield _out_of("mean_word_length", _mean_length(words), 3, 10)
    longest = max(map(len, words), default=0)
    yield "long_word", longest, longest > 1000
    share = _share(_lines_with(text, lambda line: line.lower().endswith(ELLIPSES)), lines)
    yield "too_many_ellipsis_lines", share, share > 0.3
    yield from _top_shares(text, words)
    yield from _repeated_shares(words, _duplicate_ngram_characters, size)
    share = _share(_lines_with(text, lambda line: line.startswith(tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿"))), lines)
    yield "too_many_bullet_lines", share, share > 0.9


def curator_english(text: str) -> Verdict:
    """Curator's English heuristics, without the one on boilerplate."""
    return _first(_curator_english(text))


def _dolma(text: str) -> Iterator[tuple[str, float, bool]]:
    words, lines, inside = text.split(), text.split("\n"), sum(map(len, text.split()))
    yield "too_few_words", len(words), len(words) < 50
    yield "too_many_words", len(words), len(words) > 100_000
    yield _out_of("median_word_length", int(statistics.median([len(word) for word in words] or [0])), 3, 10)
    share = _share(sum("#" in word or "…" in word for word in BREAKS.split(text)), len(words))
    yield "too_many_symbols", share, share > 0.1
    yield _letters(words)
    yield _stop_words(words)
    share = _share(sum(line.startswith(("*", "-")) for line in lines), len(text.splitlines()))
    yield "too_many_bullet_lines", share, share > 0.9
    share = _share(sum(line.endswith("…") for line in lines), len(text.splitlines()))
    yield "too_many_ellipsis_lines", share, share > 0.3
    count, characters = _duplicates(_text_lines(text))
    share = _share(count, len(_text_lines(text)))
    yield "duplicate_lines", share, share > 0.3
    share = _share(characters, inside)
    yield "duplicate_line_characters", share, share > 0.3
    yield from _top_shares(text, words)
    yield from _repeated_shares(words, _duplicate_ngram_characters, inside)


def dolma(text: str) -> Verdict:
    """The mixer of Dolma 1.6 for Common Crawl."""
    return _first(_dolma(text))


def _dclm_baseline(text: str) -> Iterator[tuple[str, float, bool]]:
    words, lines = text.split(), len(_text_lines(text))
    yield _out_of("word_count", len(words), 50, 100_000)
    yield _out_of("mean_word_length", _mean_length(words), 3, 10)
    share = _share(len(re.findall(r"#|\.\.\.|\. \. \.|…", text)), len(words))
    yield "too_many_symbols", share, share > 0.1
    share = _share(_lines_with(text, lambda line: line.startswith(("●", "•", "*", "-"))), lines)
    yield "too_many_bullet_lines", share, share > 0.9
    share = _share(_lines_with(text, lambda line: line.endswith(("...", ". . .", "…"))), lines)
    yield "too_many_ellipsis_lines", share, share > 0.3
    yield _letters(words)
    yield _stop_words(words)
    yield from _duplicate_shares(text)
    yield from _top_shares(text, words)
    yield from _repeated_shares(words, _covered_characters, sum(map(len, words)))


def dclm_baseline(text: str) -> Verdict:
    """The document rules of DCLM-Baseline."""
    return _first(_dclm_baseline(text))


def _repeated_strings(text: str, size: int) -> int:
    counts = Counter(text[k : k + size] for k in range(len(text) - size + 1))
    return sum(count for _, count in counts.most_common(math.isqrt(len(counts))) if count > 1)


def _datajuicer_redpajama(text: str) -> Iterator[tuple[str, float, bool]]:
    words, lines = text.split(), text.splitlines()
    yield _out_of("alphanumeric", _share(sum(map(str.isalnum, text)), len(text)), 0.65, 0.9)
    yield _out_of("mean_line_length", _share(len(text), len(lines)), 10, 3000)
    share = _share(_repeated_strings(text, 10), len(text) - 9)
    yield "repeated_characters", share, share > 0.3
    yield _out_of("longest_line", max(map(len, lines), default=0), 10, 4000)
    share = _share(sum(map(str.isalpha, text)), len(text))
    yield "special_characters", share, share < 0.6
    yield _out_of("word_count", len(words), 20, 10_000)
    share = _share(_duplicate_ngram_characters(words, 10), sum(map(len, words)))
    yield "repeated_10grams", share, share > 0.231


def datajuicer_redpajama(text: str) -> Verdict:
    """Data-Juicer's bounds for the C4 part of RedPajama."""
    return _first(_datajuicer_redpajama(text))


def sentence_ends(text: str, marks: Collection[str]) -> int:
    """The words that end a sentence: two letters and one of the marks, and then, perhaps after quotes and brackets,
    white space or the end of the text. One zero-width character and one space before the mark do not matter. After `。`
    and after two word spaces of Ethiopic, anything may follow."""
    return sum(
        _ends_sentence(text, place, marks) for place, char in enumerate(text) if char in marks or char == "\u1361"
    )


def _ends_sentence(text: str, place: int, marks: Collection[str]) -> bool:
    before = text[max(place - 4, 0) : place]
    if (text[place] in "\u3002\uff01\uff1f\uff61" or text[place : place + 2] == 2 * "\u1361") and _are_letters(before):
        return True
    for category in ("Zs Zl Zp", "Cf"):
        before = before[:-1] if before and unicodedata.category(before[-1]) in category.split() else before
    after = place + 1
    while after < len(text) and (text[after] in "\"'" or unicodedata.category(text[after]) in ("Pe", "Pf")):
        after += 1
    follows = after == len(text) or text[after] in "\t\n\f\r" or unicodedata.category(text[after])[0] == "Z"
    return text[place] in marks and follows and _are_letters(before)


def _are_letters(text: str) -> bool:
    return len(text) > 1 and all(unicodedata.category(char)[0] in "LM" for char in text[-2:])
