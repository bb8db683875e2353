# SPDX-License-Identifier: Apache-2.0
"""Leaks: the evaluation items that a document contains, and where.

The few documents with a known n-gram are searched here, on the host, so the result does not depend on the engine. A
document contains an item if it has `min_ngrams` of the item's n-grams, and if these are evidence: their different words
with a letter have LETTERS bytes per word of an n-gram. Tables of numbers, alphabets and idioms of code are no evidence.

Common n-grams, which more than `max_documents` documents have, are no evidence, nor are the words in them. But a
document with at least the share WHOLE of an item's n-grams contains the item, however many documents have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from curation.base.contract import Engine
from curation.kernels import tables
from curation.kernels.hashing import mix64, unmix64
from curation.kernels.minhash import BASE
from curation.kernels.normalization import normalize
from curation.kernels.rewrite import DROP, FOLD, FORM_FLAGS, LOWERCASE, RewriteSteps, plan_steps, tables_of
from curation.stages.corpus.similarity import COMPARISONS, ShingleSettings
from curation.stages.exact.evaluation_items import (
    ALONE_WORDS,
    BY_NGRAMS,
    KEY_WORDS,
    Evaluation,
    EvaluationItems,
    column_of,
)
from curation.stages.words import left_out

LETTERS = 1.5  # bytes of UTF-8 per word: 20 for 13 words; benchmarks/leaks.py measures both errors
WHOLE = 0.8  # share of the n-grams of an item, as in `check_overlap`; docs/decisions/0111
NEAR_WORDS = 50  # an answer is searched within this many words before and after a question
WINDOW = 1 << 20  # characters of texts that are searched at once
OVERLAP = 1 << 14  # characters that two windows of a long text share
WHOLE_QUESTION = -1  # stands for a short question in the numbers of n-grams
SHOWN_CHARACTERS = 1000  # most characters of a matched text
CONTEXT_CHARACTERS = 60  # characters shown before and after a match


class LeakRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule that says when a document contains an item: the settings of `decontaminate` that tasks need."""

    ngram: int
    min_ngrams: int
    max_documents: int
    compare: str
    words: str
    removes: str
    removes_question: bool

    @property
    def shingles(self) -> ShingleSettings:
        """The settings of n-grams."""
        return ShingleSettings(COMPARISONS[self.compare], self.ngram, False, self.words)


class Leak(NamedTuple):
    """An evaluation item that a document contains.

    item      number of the item
    ngrams    number of different n-grams of the item that the document has
    text      the longest run of matched words
    spans     matched runs: the first character and the one after the last, counted without white space
    counts    whether the item counts: false for a question whose answer is missing, if questions alone are kept
    is_all    whether nothing else is in the document
    """

    item: int
    ngrams: int
    text: str
    spans: tuple[tuple[int, int], ...]
    counts: bool
    is_all: bool


class _Evidence:
    """The n-grams, words and answer of one item that a document contains."""

    def __init__(self) -> None:
        self.ngrams: set[int] = set()
        self.words: set[str] = set()  # matched words, without words of common n-grams
        self.text: list[str] = []  # the longest run of matched words
        self.spans: set[tuple[int, int]] = set()  # spans to cut
        self.answered = self.is_all = False  # is_all: the document has no other words


_Found = dict[int, _Evidence]  # item -> evidence


class _WordWindow(NamedTuple):
    """The words of a part of a document, and how many characters of the document, without white space, precede them."""

    document: int
    words: list[str]
    before: int
    is_all: bool
    ends: np.ndarray  # characters before each word, then their total


class LeakSearch(NamedTuple):
    """The n-grams and leaks of evaluation items in a text.

    ngrams   numbers of its different n-grams, ascending; after all n-grams come the short questions
    leaks    the one with most n-grams first
    """

    ngrams: np.ndarray
    leaks: list[Leak]


def search(engine: Engine, texts: Sequence[str], evaluation: Evaluation, rule: LeakRule) -> list[LeakSearch]:
    """Return the n-grams and leaks of items in each compared text, as if no n-gram were common."""
    size = len(evaluation.items.hashes) + len(evaluation.items.short)
    evidence, hits = _evidence(engine, texts, evaluation.items, rule, np.zeros(size, bool))
    leaks = [_judged(found, evaluation.items, rule) for found in evidence]
    return [LeakSearch(np.unique(np.concatenate(own)), found) for own, found in zip(hits, leaks, strict=True)]


def find_leaks(
    engine: Engine, texts: Sequence[str], evaluation: Evaluation, rule: LeakRule, is_common: np.ndarray
) -> list[list[Leak]]:
    """Return the leaks of each compared text without the evidence of common n-grams. The leak with the most n-grams is
    first.

    is_common   bool: whether an n-gram is common, in the order of `LeakSearch.ngrams`
    """
    evidence, _ = _evidence(engine, texts, evaluation.items, rule, is_common)
    return [_judged(found, evaluation.items, rule) for found in evidence]


def with_whole_items(leaks: Sequence[Leak], stored: Sequence[Leak], evaluation: Evaluation) -> list[Leak]:
    """Return `leaks`, the leaks without common n-grams, and those leaks of `stored` (as if no n-gram were common) whose
    items the document has as a whole. A short question counts as a whole only if it is the whole document."""
    is_short = evaluation.items.places[:, 3] != BY_NGRAMS
    whole = {
        leak.item: leak
        for leak in stored
        if leak.ngrams >= WHOLE * evaluation.sizes[leak.item] and (leak.is_all or not is_short[leak.item])
    }
    return _ordered([*whole.values(), *(leak for leak in leaks if leak.item not in whole)])


def find_questions(engine: Engine, texts: Sequence[str], items: EvaluationItems) -> list[set[int]]:
    """Return for each compared text the items whose short question it has, either with the answer near it, or with at
    least ALONE_WORDS words that are evidence (`says_something`)."""
    found: list[set[int]] = [set() for _ in texts]
    for window, words in _hashed(engine, texts):
        for number, start, stop in _short_questions(window, words, items):
            item, question = items.short[number].item, window.words[start:stop]
            answered = _near(window.words, start, stop, items.answer(item)) is not None
            if (answered or len(question) >= ALONE_WORDS) and says_something(question, len(question)):
                found[window.document].add(item)
    return found


def _evidence(
    engine: Engine, texts: Sequence[str], items: EvaluationItems, rule: LeakRule, is_common: np.ndarray
) -> tuple[list[_Found], list[list[np.ndarray]]]:
    """Return two lists with an element per text: the evidence for each item, and the numbers of n-grams and short
    questions. A common short question is evidence only with its answer."""
    evidence: list[_Found] = [{} for _ in texts]
    hits: list[list[np.ndarray]] = [[np.zeros(0, np.int64)] for _ in texts]
    for window, words in _hashed(engine, texts):
        found = evidence[window.document]
        starts, grams = _matches(words, items.hashes, rule.ngram)
        hits[window.document].append(grams)
        said = np.ones(len(window.words), bool)  # false: the word is in a common n-gram, so it is no evidence
        common = is_common[grams]
        if common.any():
            for start in starts[common].tolist():
                said[start : start + rule.ngram] = False
            starts, grams = starts[~common], grams[~common]
        _note_ngrams(window, starts, grams, items, rule, said, found)
        for number, start, stop in _short_questions(window, words, items):
            item, place = items.short[number].item, len(items.hashes) + number
            hits[window.document].append(np.array([place]))
            near = _near(window.words, start, stop, items.answer(item))
            if near is not None or (stop - start >= ALONE_WORDS and not is_common[place]):
                entry = found.setdefault(item, _Evidence())
                entry.ngrams = entry.ngrams or {WHOLE_QUESTION}
                _note(entry, window, start, stop, near, np.ones(len(window.words), bool))
    return evidence, hits


def _hashed(engine: Engine, texts: Sequence[str]) -> Iterator[tuple[_WordWindow, np.ndarray]]:
    """Yield the windows of texts, with the hashes of their words."""
    for windows in _groups(_windows(texts)):
        yield from zip(windows, _word_hashes(engine, windows), strict=True)


def ngram_in(engine: Engine, text: str, evaluation: Evaluation, rule: LeakRule, number: int) -> str:
    """Return the words of an n-gram or a short question that a compared text has."""
    items = evaluation.items
    if number >= len(items.hashes):
        return " ".join(items.short[number - len(items.hashes)].words)
    for window, words in _hashed(engine, [text]):
        starts, _ = _matches(words, items.hashes[number : number + 1], rule.ngram)
        if len(starts):
            return " ".join(window.words[starts[0] : starts[0] + rule.ngram])[:SHOWN_CHARACTERS]
    return ""


def _windows(texts: Sequence[str]) -> Iterator[_WordWindow]:
    for number, text in enumerate(texts):
        before, step = 0, WINDOW - OVERLAP
        for start in range(0, max(len(text) - OVERLAP, 1), step):
            is_all = len(text) <= WINDOW
            words = (text if is_all else text[start : start + WINDOW]).split()
            yield _WordWindow(number, words, before, is_all, np.cumsum([0, *map(len, words)]))
            if is_all:
                break
            before += sum(map(len, text[start : start + step].split()))


def _groups(windows: Iterable[_WordWindow]) -> Iterator[list[_WordWindow]]:
    """Yield groups of windows with about WINDOW characters together."""
    group: list[_WordWindow] = []
    size = 0
    for window in windows:
        group.append(window)
        size += 6 * len(window.words)
        if size >= WINDOW:
            yield group
            group, size = [], 0
    if group:
        yield group


def _word_hashes(engine: Engine, windows: Sequence[_WordWindow]) -> list[np.ndarray]:
    """Return the hashes of the words of each window. The engine's hash of an n-gram of one word is mixed, and `unmix64`
    undoes the mixing."""
    words = [word for window in windows for word in window.words]
    hashes = unmix64.py_func(engine.shingles(column_of(engine, words), 1, False)[0])
    return np.split(hashes, np.cumsum([len(window.words) for window in windows])[:-1])


def _matches(words: np.ndarray, known: np.ndarray, ngram: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the position of the first word of each n-gram that is in `known` (ascending), and the n-gram's position in
    `known`."""
    size = min(ngram, len(words))
    value = np.zeros(len(words) - size + 1 if size else 0, np.uint64)
    for power in range(size):  # as in `curation.kernels.minhash`
        value = value * BASE + words[power : power + len(value)]
    hashes = mix64.py_func(value)
    places = np.searchsorted(known, hashes)
    starts = np.flatnonzero(known[np.minimum(places, len(known) - 1)] == hashes)
    return starts, places[starts]


def _note_ngrams(
    window: _WordWindow, starts: np.ndarray, grams: np.ndarray, items: EvaluationItems, rule: LeakRule,
    said: np.ndarray, found: _Found,
) -> None:  # fmt: skip
    """Add the n-grams in a window to the evidence of their items, and the runs of words that these n-grams make."""
    owners = items.first_item[grams]
    order = np.lexsort((starts, owners))
    starts, grams, owners = starts[order], grams[order], owners[order]
    begins = np.diff(owners, prepend=-1) != 0
    begins[1:] |= starts[1:] > starts[:-1] + rule.ngram
    for first, last in pairwise([*np.flatnonzero(begins).tolist(), len(starts)]):
        item, start = int(owners[first]), int(starts[first])
        stop = min(int(starts[last - 1]) + rule.ngram, len(window.words))
        entry = found.setdefault(item, _Evidence())
        entry.ngrams.update(grams[first:last].tolist())
        _note(entry, window, start, stop, _near(window.words, start, stop, items.answer(item)), said)


def _short_questions(window: _WordWindow, words: np.ndarray, items: EvaluationItems) -> Iterator[tuple[int, int, int]]:
    """Yield for each short question in a window its number, the position of its first word, and the position after its
    last word."""
    if not items.short:
        return
    starts, places = _matches(words, items.key_hashes, KEY_WORDS)
    lasts = np.searchsorted(items.key_hashes, items.key_hashes[places], side="right")
    for at, place, last in zip(starts.tolist(), places.tolist(), lasts.tolist(), strict=True):
        for number in range(place, last):
            question = items.short[number]
            start, stop = at - question.key, at - question.key + len(question.words)
            if start >= 0 and tuple(window.words[start:stop]) == question.words:
                yield number, start, stop


def _near(words: Sequence[str], start: int, stop: int, answer: tuple[str, ...]) -> tuple[int, int] | None:
    """Return where the words of an answer begin and end, after or before a question; None if they are not within
    NEAR_WORDS of the question."""
    if not answer:
        return None
    after = range(stop, min(stop + NEAR_WORDS, len(words)) - len(answer) + 1)
    before = range(max(start - NEAR_WORDS, 0), start - len(answer) + 1)
    for place in (*after, *before):
        if tuple(words[place : place + len(answer)]) == answer:
            return place, place + len(answer)
    return None


def _note(
    entry: _Evidence, window: _WordWindow, start: int, stop: int, answer: tuple[int, int] | None, said: np.ndarray
) -> None:
    """Add a run of matched words to the evidence of an item, and the answer near the run. Only words where `said` is
    true are evidence."""
    words = window.words[start:stop]
    entry.answered |= answer is not None
    entry.is_all |= window.is_all and len(window.words) == len(words)
    if len(words) > len(entry.text):
        entry.text = words
    edges = np.flatnonzero(np.diff(np.concatenate([[False], said[start:stop], [False]]))).reshape(-1, 2) + start
    for low, high in edges.tolist():
        entry.words.update(window.words[low:high])
    for low, high in (*edges.tolist(), *([answer] if answer else [])):
        entry.spans.add((window.before + int(window.ends[low]), window.before + int(window.ends[high])))


def says_something(words: Iterable[str], size: int) -> bool:
    """Return whether words are evidence: the different ones with a letter have at least LETTERS bytes for each of
    `size` words."""
    return sum(len(word.encode()) for word in {*words} if any(map(str.isalpha, word))) >= LETTERS * size


def _judged(found: _Found, items: EvaluationItems, rule: LeakRule) -> list[Leak]:
    leaks = []
    for item, entry in found.items():
        is_evidence = entry.is_all or says_something(entry.words, min(rule.ngram, len(entry.text)))
        if len(entry.ngrams) >= rule.min_ngrams and is_evidence:
            counts = rule.removes_question or entry.answered or not items.answer(item)
            text = " ".join(entry.text)[:SHOWN_CHARACTERS]
            leaks.append(Leak(item, len(entry.ngrams), text, tuple(sorted(entry.spans)), counts, entry.is_all))
    return _ordered(leaks)


def _ordered(leaks: Iterable[Leak]) -> list[Leak]:
    return sorted(leaks, key=lambda leak: (not leak.counts, -leak.ngrams, leak.item))


def places_in(text: str, spans: Iterable[tuple[int, int]], settings: ShingleSettings) -> list[tuple[int, int]]:
    """Return where spans of the compared text are in the text: pairs of the first character and the one after the last.
    The spans count characters of the compared text without white space. Spans that overlap or touch are joined."""
    points = _points(text)
    counts, firsts = _compared(points, settings), _first_points(points, settings.steps)
    stops = np.append(firsts[1:], len(points))
    for piece in np.flatnonzero(_changes(points, firsts, stops, settings.steps)).tolist():
        first, stop = firsts[piece], stops[piece]
        (form,) = normalize([text[first:stop]], settings.steps.unicode)
        counts[first:stop] = 0
        counts[first] = _compared(_points(form), settings).sum()
    ends = np.cumsum(counts)
    inside = np.zeros(len(text) + 2, bool)
    for start, stop in spans:
        first, last = np.searchsorted(ends, (start, stop - 1), side="right")
        inside[first + 1 : stops[np.searchsorted(firsts, last, side="right") - 1] + 1] = True
    edges = np.flatnonzero(np.diff(inside)).reshape(-1, 2)
    return [(first, last) for first, last in edges.tolist()]


def _points(text: str) -> np.ndarray:
    """Return the code points of a text, int64."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)


def _compared(points: np.ndarray, settings: ShingleSettings) -> np.ndarray:
    """Return how many characters besides white space the compared text has for each character, if its Unicode form is
    not changed."""
    plan, unicode = plan_steps(settings.steps), tables_of(settings.steps)
    flags = unicode.flags[unicode.records_of(points)].astype(np.int64)
    counts = 1 + ((flags & tables.LOWER_SPECIAL != 0) & bool(plan[LOWERCASE])).astype(np.int64)
    blank = (flags & plan[FOLD] != 0) & (flags & tables.DIGIT == 0)
    counts[blank | (flags & (int(plan[DROP]) | tables.SPACE) != 0)] = 0
    counts[np.isin(points, [ord(character) for character in left_out(settings.words)])] = 0
    return counts


def _first_points(points: np.ndarray, steps: RewriteSteps) -> np.ndarray:
    """Return the first character of each piece of a text. The Unicode form of a piece depends on no other piece (UAX
    #15, section 9)."""
    if steps.unicode == "keep":
        return np.arange(len(points))
    unicode = tables_of(steps)
    is_first, kinds = _begins(points, unicode, steps.unicode), np.unique(points)
    changing = kinds[~_begins(kinds, unicode, steps.unicode)]
    forms = normalize([chr(point) for point in changing.tolist()], steps.unicode)
    firsts = np.array([ord(form[0]) if form else 0 for form in forms], np.int64)
    closed = changing[_begins(firsts, unicode, steps.unicode)]  # such as ligatures: no form joins them to a neighbour
    is_first |= np.isin(points, closed)
    is_first[:1] = True
    return np.flatnonzero(is_first)


def _begins(points: np.ndarray, unicode: tables.UnicodeTables, form: str) -> np.ndarray:
    """Return whether characters have no other Unicode form, and combine with no character before them."""
    records = unicode.records_of(points)
    return (unicode.flags[records] & FORM_FLAGS[form] == 0) & (unicode.combining[records] == 0)


def _changes(points: np.ndarray, firsts: np.ndarray, stops: np.ndarray, steps: RewriteSteps) -> np.ndarray:
    """Return whether the Unicode form of each piece may differ from the piece."""
    if steps.unicode == "keep":
        return np.zeros(len(firsts), bool)
    unicode = tables_of(steps)
    flags = unicode.flags[unicode.records_of(points[firsts])]
    return (stops > firsts + 1) | (flags & FORM_FLAGS[steps.unicode] != 0)


def in_context(text: str, places: Sequence[tuple[int, int]]) -> str:
    """Return the text at the first place, with the words before and after it, in one line."""
    first, last = places[0]
    start, stop = max(first - CONTEXT_CHARACTERS, 0), min(last, first + SHOWN_CHARACTERS) + CONTEXT_CHARACTERS
    return " ".join(text[start:stop].split())
