# SPDX-License-Identifier: Apache-2.0
"""`decontaminate` of one document in slow plain Python: sets of tuples of words."""

from typing import NamedTuple

from tests.oracle.rewriting import compared

Words = tuple[str, ...]


class Leak(NamedTuple):
    item: int
    ngrams: int
    counts: bool


def ngrams_of(words: Words, size: int) -> list[Words]:
    return [words[k : k + size] for k in range(max(len(words) - size + 1, 1) if words else 0)]


def near(words: Words, start: int, stop: int, answer: Words) -> bool:
    parts = words[max(start - 50, 0) : start], words[stop : stop + 50]
    return any(part[k : k + len(answer)] == answer for part in parts for k in range(len(part) - len(answer) + 1))


def says_something(words: Words, matched: set[int], size: int) -> bool:
    """Whether the different words with a letter have 1.5 bytes per word of an n-gram."""
    told = {words[k] for k in matched}
    letters = sum(len(word.encode()) for word in told if any(map(str.isalpha, word)))
    return letters >= 1.5 * size


def leaks_of(
    text: str, items: list[tuple[str, str]], size: int, least: int = 1, compare: str = "visible", alone: bool = True
) -> list[Leak]:
    """The items that a document contains, the one with most n-grams first. An item is a question and its answer."""
    words = tuple(compared(text, compare).split())
    questions = [tuple(compared(question, compare).split()) for question, _ in items]
    answers = [tuple(compared(answer, compare).split()[:8]) for _, answer in items]
    first: dict[Words, int] = {}
    for item, question in enumerate(questions):
        for ngram in ngrams_of(question, size):
            first.setdefault(ngram, item)
    found = []
    for item, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        places = [k for k, ngram in enumerate(ngrams_of(words, size)) if first.get(ngram) == item]
        ngrams: set[Words] = {words[k : k + size] for k in places}
        matched = {k for place in places for k in range(place, min(place + size, len(words)))}
        runs = [(k, k + 1) for k in matched]
        runs = [(k, stop) for k, stop in runs if k - 1 not in matched]  # where runs begin
        runs = [(k, next(n for n in range(k, len(words) + 1) if n not in matched)) for k, _ in runs]
        answered = bool(answer) and any(near(words, *run, answer) for run in runs)
        if 4 <= len(question) < size:
            for k in range(len(words) - len(question) + 1):
                has_answer = bool(answer) and near(words, k, k + len(question), answer)
                if words[k : k + len(question)] == question and (len(question) >= 8 or has_answer):
                    ngrams = ngrams or {("short",)}
                    matched |= {*range(k, k + len(question))}
                    answered |= has_answer
        length = min(size, len(question))
        is_all = (0, len(words)) in runs or words == question  # the document is one match
        if len(ngrams) >= least and (is_all or says_something(words, matched, length)):
            found.append(Leak(item, len(ngrams), alone or answered or not answer))
    return sorted(found, key=lambda leak: (not leak.counts, -leak.ngrams, leak.item))
