# SPDX-License-Identifier: Apache-2.0
"""The rules of other tools on texts: run as a script in the environment of a tool, for `benchmarks.compare_recipes`.

    python peer_rules.py RECIPE FILE OUT

FILE has JSON Lines with `text`. OUT gets the text and the reason of each document, null for a removed one, and the CPU
seconds of the rules. Two have no public package: RefinedWeb is written here from its paper, DCLM from its repository;
only the words of DCLM, by uniseg, are those of its code.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Judged = tuple[str | None, str]  # text, or None for a removed document; the reason
Judge = Callable[[str], Judged]
EMAIL, ADDRESS = "[REDACTED]_EMAIL", "[REDACTED]_IP_ADDRESS"
KEPT = ""


def _datatrove(steps: list[Any]) -> Judge:
    from datatrove.data import Document

    def judge(text: str) -> Judged:
        document = Document(text=text, id="0")
        for step in steps:
            verdict = step.filter(document)
            if verdict is not True:
                return None, f"{type(step).__name__}: {verdict[1]}"
        return document.text, KEPT

    return judge


def c4() -> Judge:
    from datatrove.pipeline.filters import C4QualityFilter

    return _datatrove([C4QualityFilter()])


def fineweb() -> Judge:
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.pipeline.formatters import PIIFormatter

    steps = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(filter_no_terminal_punct=False)]
    rules = _datatrove([*steps, FineWebQualityFilter()])
    personal = PIIFormatter(email_replacement=(EMAIL,), ip_replacement=(ADDRESS,))

    def judge(text: str) -> Judged:
        found, reason = rules(text)
        return (None, reason) if found is None else (personal.format(found), reason)

    return judge


def dolma() -> Judge:
    """The lines of c4_v2 without a mark at their end are cut, then the mixer's bounds; no duplicates."""
    from dolma.core.data_types import Document
    from dolma.taggers.c4 import FasterC4Tagger
    from dolma.taggers.gopher import GopherTagger
    from dolma.taggers.pii import FastPiiRegex

    lines, gopher, personal = FasterC4Tagger(), GopherTagger(), FastPiiRegex()
    most = {
        "word_count": (50, 100_000), "median_word_length": (3, 10), "symbol_to_word_ratio": (0, 0.1),
        "fraction_of_words_with_alpha_character": (0.8, 1), "required_word_count": (2, 1e9),
        "fraction_of_lines_starting_with_bullet_point": (0, 0.9), "fraction_of_lines_ending_with_ellipsis": (0, 0.3),
        "fraction_of_duplicate_lines": (0, 0.3), "fraction_of_characters_in_duplicate_lines": (0, 0.3),
        "fraction_of_characters_in_most_common_2grams": (0, 0.2),
        "fraction_of_characters_in_most_common_3grams": (0, 0.18),
        "fraction_of_characters_in_most_common_4grams": (0, 0.16),
        **{f"fraction_of_characters_in_duplicate_{n}grams": (0, (20 - n) / 100) for n in range(5, 11)},
    }  # fmt: skip

    def judge(text: str) -> Judged:
        spans = lines.predict(Document(source="", id="", text=text)).spans
        text = _without(text, [s for s in spans if s.type == "lines_with_no_ending_punctuation"], lambda span: "")
        document = Document(source="", id="", text=text)
        scores = {span.type: span.score for span in gopher.predict(document).spans}
        for name, (low, high) in most.items():
            if not low <= scores.get(name, low) <= high:
                return None, name
        found = personal.predict(document).spans
        if next(span.score for span in found if span.type == "doc_count") > 5:
            return None, "doc_count"
        found = [span for span in found if not span.type.startswith("doc_")]
        return _without(text, found, lambda span: f" |||{span.type}||| "), KEPT

    return judge


def _without(text: str, spans: list[Any], by: Callable[[Any], str]) -> str:
    """The text with spans replaced; of spans that overlap, the first."""
    parts, place = [], 0
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if span.start >= place:
            parts += [text[place : span.start], by(span)]
            place = span.end
    return "".join([*parts, text[place:]])


def curator_english() -> Judge:
    from nemo_curator.stages.text.filters.heuristic import repetition, string

    chain = [
        string.NonAlphaNumericFilter(0.25), string.SymbolsToWordsFilter(0.1), string.NumbersFilter(0.15),
        string.UrlsFilter(0.2), string.WhiteSpaceFilter(0.25), string.ParenthesesFilter(0.1),
        string.BoilerPlateStringFilter(True, 0.4), repetition.RepeatedLinesFilter(0.7),
        repetition.RepeatedParagraphsFilter(0.7), repetition.RepeatedLinesByCharFilter(0.8),
        repetition.RepeatedParagraphsByCharFilter(0.8), string.WordCountFilter(50, 100_000),
        string.PunctuationFilter(0.85), string.WordsWithoutAlphabetsFilter(0.8),
        string.CommonEnglishWordsFilter(2, True), string.MeanWordLengthFilter(3, 10), string.LongWordFilter(1000),
        string.EllipsisFilter(0.3),
        *(repetition.RepeatingTopNGramsFilter(n, bound) for n, bound in ((2, 0.2), (3, 0.18), (4, 0.16))),
        *(repetition.RepeatingDuplicateNGramsFilter(n, (20 - n) / 100) for n in range(5, 11)),
        string.BulletsFilter(0.9),
    ]  # fmt: skip

    def judge(text: str) -> Judged:
        for step in chain:
            if not step.keep_document(step.score_document(text)):
                return None, f"{type(step).__name__}{getattr(step, '_n', '')}"
        return text, KEPT

    return judge


def datajuicer_redpajama() -> Judge:
    """Without language, perplexity and SimHash; words by white space, since the model of its tokens is a download."""
    from data_juicer.ops.filter import (
        alphanumeric_filter,
        average_line_length_filter,
        character_repetition_filter,
        maximum_line_length_filter,
        special_characters_filter,
        word_repetition_filter,
        words_num_filter,
    )
    from data_juicer.ops.mapper import (
        clean_email_mapper,
        clean_links_mapper,
        fix_unicode_mapper,
        punctuation_normalization_mapper,
        whitespace_normalization_mapper,
    )

    mappers = [
        clean_email_mapper.CleanEmailMapper(), clean_links_mapper.CleanLinksMapper(),
        fix_unicode_mapper.FixUnicodeMapper(), punctuation_normalization_mapper.PunctuationNormalizationMapper(),
        whitespace_normalization_mapper.WhitespaceNormalizationMapper(),
    ]  # fmt: skip
    filters = [
        alphanumeric_filter.AlphanumericFilter(tokenization=False, min_ratio=0.65, max_ratio=0.9),
        average_line_length_filter.AverageLineLengthFilter(max_len=3000),
        character_repetition_filter.CharacterRepetitionFilter(rep_len=10, max_ratio=0.3),
        maximum_line_length_filter.MaximumLineLengthFilter(max_len=4000),
        special_characters_filter.SpecialCharactersFilter(max_ratio=0.4),
        words_num_filter.WordsNumFilter(tokenization=False, min_num=20, max_num=10_000),
        word_repetition_filter.WordRepetitionFilter(tokenization=False, rep_len=10, max_ratio=0.231),
    ]

    def judge(text: str) -> Judged:
        rows: dict[str, list[Any]] = {"text": [text]}
        for mapper in mappers:
            rows = mapper.process_batched(rows)
        rows["__dj__stats__"] = [{}]
        for step in filters:
            rows = step.compute_stats_batched(rows)
            if not next(iter(step.process_batched(rows))):
                return None, type(step).__name__
        return rows["text"][0], KEPT

    return judge


# RefinedWeb and DCLM-Baseline


MENUS = {"sign-in": "prefix", "read more...": "suffix", "items in cart": "any"}


def _line_rules(counters: str, keeps_blank: bool) -> Callable[[str], bool]:
    """Whether a line is cut."""
    counter = re.compile(rf"\W*\d[,.\d]*[kmb]?\s+(?:{counters})\W*", re.ASCII)

    def is_cut(line: str) -> bool:
        size = max(len(line), 1)
        if sum(map(str.isupper, line)) / size > 0.5 or sum(map(str.isdigit, line)) / size > 0.999999:
            return True
        words = len(line.split())
        return counter.fullmatch(line.lower()) is not None or words == 1 or (keeps_blank and words == 0 and line != "")

    return is_cut


def _without_menus(lines: Iterable[str], any_ending: bool) -> list[str]:
    """Lines of at most ten words without their phrases; a line of a phrase alone is cut."""
    kept = []
    for line in lines:
        edited = line
        if len(line.split()) <= 10:
            for phrase, place in MENUS.items():
                edited = _without_phrase(edited, phrase, place, any_ending)
        if edited == line or edited.strip():
            kept.append(edited)
    return kept


def _without_phrase(line: str, phrase: str, place: str, any_ending: bool) -> str:
    size = len(phrase)
    if place == "prefix":
        if not line.lower().startswith(phrase):
            return line
        rest = line[size:]
        return rest[1:] if rest[:1].isspace() else rest
    if place == "suffix":
        end = line[-size:].lower()
        if len(end) < size or not end.startswith("read more") or not (any_ending or end == phrase):
            return line
        rest = line[:-size]
        return rest[:-1] if rest[-1:].isspace() else rest
    while (at := line.lower().find(phrase)) >= 0:
        line = line[: at - (at > 0 and line[at - 1].isspace())] + line[at + size :]
    return line


def refinedweb() -> Judge:
    """Lines and menus alone."""
    is_cut = _line_rules("likes|shares|comments|retweets|views|followers", keeps_blank=False)

    def judge(text: str) -> Judged:
        lines = text.splitlines()
        kept = [line for line in lines if not is_cut(line)]
        before, after = (sum(len(line.split()) for line in part) for part in (lines, kept))
        if before - after > 0.05 * max(before, 1):
            return None, "words removed"
        return "\n".join(_without_menus(kept, any_ending=False)), KEPT

    return judge


def dclm_baseline() -> Judge:
    """All but URLs, language and the classifier; its URLs are removed from texts that begin with a top-level domain."""
    from uniseg.wordbreak import words as split

    counters = "likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads|views|followers"
    is_cut = _line_rules(counters, keeps_blank=True)
    address = re.compile(
        r"\s{0,10}\b(?:(?:https?|ftp)://)?(?:[0-2]?[0-9]{1,2}\.){3}[0-2]?[0-9]{1,2}[-a-zA-Z0-9()@:%_+.~#?&/=]*"
    )

    def judge(text: str) -> Judged:
        text = re.sub(r"\n{3,}", "\n\n", address.sub("", text))
        reason = next(_dclm_broken(text, split), "")
        if reason:
            return None, reason
        kept = [line for line in text.split("\n") if not is_cut(line)]
        edited = "\n".join(_without_menus(kept, any_ending=True))
        before, after = (sum(word[:1].isalnum() for word in part.split()) for part in (text, edited))
        if before == 0 or (before - after) / before > 0.05:
            return None, "words removed"
        return edited, KEPT

    return judge


def _dclm_broken(text: str, split: Callable[[str], Iterable[str]]) -> Iterable[str]:
    words = text.split()
    lines, paragraphs = ([part for each in re.split(end, text) if (part := each.strip())] for end in ("\n", "\n\n"))
    if not 50 <= sum(word[:1].isalnum() for word in words) <= 100_000:
        yield "words"
    if not 3 <= sum(map(len, words)) / max(len(words), 1) <= 10:
        yield "word length"
    if sum(map(text.count, ("#", "...", ". . .", "…"))) / max(len(words), 1) > 0.1:
        yield "symbols"
    if sum(line.startswith(("●", "•", "*", "-")) for line in lines) > 0.9 * len(lines):
        yield "bullets"
    if sum(line.endswith(("...", ". . .", "…")) for line in lines) > 0.3 * len(lines):
        yield "ellipses"
    if sum(any(map(str.isalpha, word)) for word in words) < 0.8 * len(words):
        yield "words with letter"
    stop_words = {"the", "be", "to", "of", "and", "that", "have", "with"}
    if sum(word.lower() in stop_words for word in words) < 2:
        yield "stop words"
    for name, parts in (("lines", lines), ("paragraphs", paragraphs)):
        copies = {part: count for part, count in Counter(parts).items() if count > 1}
        if len(parts) > 1 and sum(copies.values()) / len(parts) > 0.3:
            yield f"duplicate {name}"
        if len(parts) > 1 and sum(len(part) * count for part, count in copies.items()) / sum(map(len, parts)) > 0.2:
            yield f"characters of duplicate {name}"
    tokens = [word for word in split(text) if word[0].isalnum()]
    size = max(sum(map(len, tokens)), 1)
    for n in range(2, 11):
        grams = list(zip(*(tokens[k:] for k in range(n)), strict=False))
        counts = Counter(grams)
        most = max(counts.values(), default=1)
        if n <= 4 and most > 1:
            longest = max(sum(map(len, gram)) for gram, count in counts.items() if count == most)
            if longest * most / size > {2: 0.2, 3: 0.18, 4: 0.16}[n]:
                yield f"top {n}-gram"
        elif n > 4:
            covered = {k + j for k, gram in enumerate(grams) if counts[gram] > 1 for j in range(n)}
            if sum(len(tokens[k]) for k in covered) / size > (20 - n) / 100:
                yield f"duplicate {n}-grams"


RECIPES: dict[str, tuple[str, Callable[[], Judge]]] = {  # the environment in `bench_peers`, and the rules
    "c4": ("datatrove", c4),
    "refinedweb": ("", refinedweb),
    "fineweb": ("datatrove", fineweb),
    "dclm_baseline": ("dclm", dclm_baseline),
    "dolma": ("dolma", dolma),
    "curator_english": ("curator", curator_english),
    "datajuicer_redpajama": ("data-juicer", datajuicer_redpajama),
}


def main() -> None:
    recipe, source, out = sys.argv[1:]
    texts = [json.loads(line)["text"] for line in Path(source).read_text("utf-8").splitlines()]
    judge = RECIPES[recipe][1]()
    judge("A text that loads what is loaded once. " * 20)
    start = time.process_time()
    judged = [_tried(judge, text) for text in texts]
    found = {"judged": judged, "seconds": time.process_time() - start}
    Path(out).write_text(json.dumps(found), "utf-8")


def _tried(judge: Judge, text: str) -> Judged:
    """A tool may fail on a text, such as one that its mappers have emptied."""
    try:
        return judge(text)
    except (ZeroDivisionError, ValueError, IndexError) as error:
        return None, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
