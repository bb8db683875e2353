# SPDX-License-Identifier: Apache-2.0
"""`decontaminate` in slow plain Python: sets of tuples of words."""

from collections.abc import Sequence
from typing import NamedTuple

from tests.oracle.rewriting import compared

Words = tuple[str, ...]
Items = Sequence[tuple[str, str]]  # questions and their answers


class Leak(NamedTuple):
    item: int
    ngrams: int
    counts: bool


def ngrams_of(words: Words, size: int) -> list[Words]:
    return [words[k : k + size] for k in range(max(len(words) - size + 1, 1) if words else 0)]


def near(words: Words, start: int, stop: int, answer: Words) -> bool:
    parts = words[max(start - 50, 0) : start], words[stop : stop + 50]
    return any(part[k : k + len(answer)] == answer for part in parts for k in range(len(part) - len(answer) + 1))


def says_something(words: Words, evidence: set[int], size: int) -> bool:
    """Whether the different words with a letter have 1.5 bytes per word of an n-gram."""
    told = {words[k] for k in evidence}
    letters = sum(len(word.encode()) for word in told if any(map(str.isalpha, word)))
    return letters >= 1.5 * size


class Evaluation:
    """Questions and answers as words, and the first item that has each n-gram."""

    def __init__(self, items: Items, size: int, compare: str):
        self.size, self.compare = size, compare
        self.questions = [self.words_of(question) for question, _ in items]
        self.answers = [self.words_of(answer)[:8] for _, answer in items]
        self.first: dict[Words, int] = {}
        for item, question in enumerate(self.questions):
            for ngram in ngrams_of(question, size):
                self.first.setdefault(ngram, item)

    def words_of(self, text: str) -> Words:
        return tuple(compared(text, self.compare).split())

    def short(self, words: Words, item: int) -> list[int]:
        """Where a document has a question that is shorter than an n-gram."""
        question = self.questions[item]
        least = 4 if self.answers[item] else 8
        if not least <= len(question) < self.size:
            return []
        return [k for k in range(len(words) - len(question) + 1) if words[k : k + len(question)] == question]

    def common(self, texts: Sequence[str], most: int) -> set[Words | int]:
        """The n-grams and the numbers of short questions that more than `most` different texts have."""
        counts: dict[Words | int, int] = {}
        for text in {compared(text, self.compare) for text in texts} if most else ():
            words = tuple(text.split())
            short = [item for item in range(len(self.questions)) if self.short(words, item)]
            for found in {*(ngram for ngram in ngrams_of(words, self.size) if ngram in self.first), *short}:
                counts[found] = counts.get(found, 0) + 1
        return {found for found, count in counts.items() if count > most}

    def leak(
        self, words: Words, item: int, least: int, alone: bool, common: set[Words | int], all_count: bool
    ) -> Leak | None:
        """The leak of an item. Common n-grams are evidence if `all_count`."""
        size, question, answer = self.size, self.questions[item], self.answers[item]
        places = [k for k, ngram in enumerate(ngrams_of(words, size)) if ngram in self.first]
        unsaid = {n for k in places if words[k : k + size] in common and not all_count for n in range(k, k + size)}
        places = [k for k in places if self.first[words[k : k + size]] == item]
        places = [k for k in places if all_count or words[k : k + size] not in common]
        ngrams: set[Words] = {words[k : k + size] for k in places}
        matched = {k for place in places for k in range(place, min(place + size, len(words)))}
        starts = [k for k in matched if k - 1 not in matched]
        runs = [(k, next(n for n in range(k, len(words) + 1) if n not in matched)) for k in starts]
        answered = bool(answer) and any(near(words, *run, answer) for run in runs)
        evidence = matched - unsaid
        for k in self.short(words, item):
            has_answer = bool(answer) and near(words, k, k + len(question), answer)
            if has_answer or (len(question) >= 8 and item not in common):
                ngrams = ngrams or {("short",)}
                evidence |= {*range(k, k + len(question))}
                answered |= has_answer
        own = sum(1 for ngram in {*ngrams_of(question, size)} if self.first[ngram] == item)
        if len(ngrams) < least or (all_count and len(ngrams) < 0.8 * own):
            return None
        is_all = (0, len(words)) in runs or (words == question and bool(ngrams))  # the document is one match
        if is_all or says_something(words, evidence, min(size, len(question))):
            return Leak(item, len(ngrams), alone or answered or not answer)
        return None


def leaks_in(
    texts: Sequence[str], items: Items, size: int, least: int = 1, compare: str = "visible", alone: bool = True,
    most: int = 10,
) -> list[list[Leak]]:  # fmt: skip
    """The items that each document contains, the one with most n-grams first. An item is a question and its answer."""
    evaluation = Evaluation(items, size, compare)
    common = evaluation.common(texts, most)
    found = []
    for words in map(evaluation.words_of, texts):
        has_common = any(ngram in common for ngram in ngrams_of(words, size))
        leaks = []
        for item in range(len(items)):
            leak = evaluation.leak(words, item, least, alone, common, False)
            if has_common:
                leak = evaluation.leak(words, item, least, alone, common, True) or leak
            leaks += [leak] if leak else []
        found.append(sorted(leaks, key=lambda leak: (not leak.counts, -leak.ngrams, leak.item)))
    return found
