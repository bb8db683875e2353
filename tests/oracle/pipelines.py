# SPDX-License-Identifier: Apache-2.0
"""The five reference pipelines in plain Python, rule by rule: `re`, `hashlib`, sets, lists.

Each takes the texts and gives an `Outcome`: what is kept (position, text) in order, and what went (position, stage,
reason) in order.
"""

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.oracle import redaction, rules

Language = Callable[[str], tuple[str, float]]  # text -> label, probability
BASIC = r"[^\w\s.,!?]"


class Outcome(NamedTuple):
    kept: list[tuple[int, str]]
    removed: list[tuple[int, str, str]]


class Chain:
    """Documents on their way through a pipeline."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.left = list(enumerate(texts))
        self.removed: list[tuple[int, str, str]] = []

    def change(self, function: Callable[[str], str]) -> None:
        self.left = [(number, function(text)) for number, text in self.left]

    def drop(self, stage: str, reason_of: Callable[[str], str | None]) -> None:
        kept = []
        for number, text in self.left:
            reason = reason_of(text)
            if reason:
                self.removed.append((number, stage, reason))
            else:
                kept.append((number, text))
        self.left = kept

    def change_all(self, function: Callable[[list[str]], list[str]]) -> None:
        texts = function([text for _, text in self.left])
        self.left = [(number, text) for (number, _), text in zip(self.left, texts, strict=True)]

    def outcome(self) -> Outcome:
        return Outcome(self.left, sorted(self.removed))


def first_of(key: Callable[[str], str]) -> Callable[[str], str | None]:
    """Exact duplicates by the MD5 of a text's key; the first stays."""
    seen: set[bytes] = set()

    def reason_of(text: str) -> str | None:
        digest = hashlib.md5(key(text).encode()).digest()
        if digest in seen:
            return "exact_duplicate"
        seen.add(digest)
        return None

    return reason_of


def _short(text: str) -> str | None:
    return "short" if len(text.split()) < 50 else None


def news_wiki_web(texts: Iterable[str]) -> Outcome:
    chain = Chain(texts)
    chain.change(lambda text: re.sub(r"\s+", " ", text.lower()).strip())
    chain.drop("exact_dedup", first_of(lambda text: text))
    chain.drop("filter", _short)
    return chain.outcome()


def edu_mix(texts: Iterable[str]) -> Outcome:
    chain = Chain(texts)
    chain.change(lambda text: re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", text.lower())).strip())
    chain.drop("filter", _short)
    chain.drop("exact_dedup", first_of(lambda text: text[:2000]))
    return chain.outcome()


def cc_news_clean(text: str) -> str:
    text = re.sub(r"\s+", " ", text.lower())
    text = re.sub(BASIC, "", text).strip()
    return re.sub(r"<.*?>", "", text)


def cc_news_chunks(texts: Iterable[str]) -> Outcome:
    chain = Chain(texts)
    chain.drop("exact_dedup", first_of(lambda text: text))
    chain.change(cc_news_clean)
    chain.drop("filter", _short)
    return chain.outcome()


def _in_english(language: Language, least: float, characters: int | None = None) -> Callable[[str], str | None]:
    """By the first `characters` of a text; None: the whole text."""

    def reason_of(text: str) -> str | None:
        label, probability = language(text[:characters].replace("\n", " "))
        if label != "en":
            return "language"
        return "language_probability" if probability < least else None

    return reason_of


def common_crawl(texts: Iterable[str], language: Language) -> Outcome:
    chain = Chain(texts)
    chain.drop("langid", _in_english(language, 0.65, 1000))
    chain.drop("gopher", lambda text: (rules.common_crawl(text) or (None,))[0])
    drop_near_duplicates(chain, "dedup", 5, 0.8, lambda text: text)
    return chain.outcome()


def drop_near_duplicates(chain: Chain, stage: str, ngram: int, threshold: float, key: Callable[[str], str]) -> None:
    """All pairs of a true Jaccard of at least `threshold` joined; the first of each group stays."""
    sets = [_ngrams(key(text), ngram, whole=True) for _, text in chain.left]
    leader = list(range(len(sets)))

    def find(number: int) -> int:
        while leader[number] != number:
            number = leader[number]
        return number

    having: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, grams in enumerate(sets):
        shared: dict[int, int] = defaultdict(int)
        for gram in grams:
            for other in having[gram]:
                shared[other] += 1
            having[gram].append(number)
        for other, common in shared.items():
            if common / (len(grams) + len(sets[other]) - common) >= threshold:
                low, high = sorted((find(number), find(other)))
                leader[high] = low
    kept = []
    for number, document in enumerate(chain.left):
        if find(number) == number:
            kept.append(document)
        else:
            chain.removed.append((document[0], stage, "near_duplicate"))
    chain.left = kept


def _ngrams(text: str, n: int, *, whole: bool) -> set[tuple[str, ...]]:
    """The distinct word n-grams; of a shorter text the text itself where `whole`, none of an empty one."""
    words = text.split()
    if whole and 0 < len(words) < n:
        return {tuple(words)}
    return {tuple(words[k : k + n]) for k in range(len(words) - n + 1)}


def seen_ngrams(n: int, share: float) -> Callable[[str], str | None]:
    """A document goes when so much of its n-grams were seen in kept documents before; without any it stays."""
    seen: set[tuple[str, ...]] = set()

    def reason_of(text: str) -> str | None:
        grams = _ngrams(text, n, whole=False)
        if grams and len(grams & seen) / len(grams) >= share:
            return "seen_ngrams"
        seen.update(grams)
        return None

    return reason_of


def nemo(texts: Iterable[str], language: Language) -> Outcome:
    chain = Chain(texts)
    chain.change(lambda text: "".join(c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c) != "Cc"))
    chain.drop("filter", lambda text: (rules.nemo(text) or (None,))[0])
    chain.drop("language", _in_english(language, 0.8))
    chain.drop("exact_dedup", first_of(lambda text: text.strip().lower()))
    drop_near_duplicates(chain, "fuzzy_dedup", 3, 0.8, str.lower)
    chain.drop("ngram_dedup", seen_ngrams(5, 0.9))
    chain.change(lambda text: redaction.redact_published(text)[0])
    return chain.outcome()


# What is made of the tokens


def blocks_of(documents: Iterable[list[int]], length: int) -> list[list[int]]:
    """All tokens as one stream, cut; the last incomplete block is dropped."""
    stream = [token for tokens in documents for token in tokens]
    return [stream[k : k + length] for k in range(0, len(stream) - length + 1, length)]


def chunks_of(documents: Iterable[list[int]], length: int, least: int) -> list[list[int]]:
    """Each document by itself, cut; chunks of fewer than `least` tokens are dropped."""
    chunks = [tokens[k : k + length] for tokens in documents for k in range(0, len(tokens), length)]
    return [chunk for chunk in chunks if len(chunk) >= least]
