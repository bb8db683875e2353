# SPDX-License-Identifier: Apache-2.0
"""A small corpus in which every rule of the five pipelines finds something, and how recipes are run on it."""

import gzip
import json
import random
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import msgspec

from curation.models.fasttext import LANGUAGE_MODEL
from curation.reading.inputs import Budget, Input
from curation.recipes.recipe import load_recipe
from curation.running.run import run
from tests.oracle import fasttext_reference
from tests.oracle.pipelines import Outcome
from tests.runs import kept_rows, removed_rows

ENGLISH = """
the of and to in is was for that on as with by at from his it an were are which this be had first their has one new
after who they two her she been other when time during there into school more years over only world some can city
people most state between family university later made many up would such part used american work name three where
then early under did while north house since number made against became being called system government each company
group war south film born known music found like team age before through season album played series member history
church local including several major national army public century another river women water small place second
however life building game well town children best day long area high following book party left great power
"""
WORDS = ENGLISH.split()

OTHER = """
der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass
sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr durch
man sein wurde sei
"""
GERMAN = OTHER.split()

MARKS = (
    "<b>",
    "</b>",
    "<a href='x'>",
    "a < b > c",
    "#",
    "—",
    "!?",
    "é",
    "e\u0301",
    "\x07",
    "\t",
    "\r\n",
    "Σ",
    "\u00a0",
)


DATA = ("a.b@mail.example", "10.1.2.3", "4111 1111 1111 1111", "123-45-6789", "212-555-0123")  # personal


def _sentence(chance: random.Random, words: list[str], length: int) -> str:
    return " ".join(chance.choice(words) for _ in range(length)).capitalize() + "."


def random_prose(chance: random.Random, sentences: int, words: list[str] = WORDS) -> str:
    """Random sentences of some words."""
    found = [_sentence(chance, words, chance.randrange(6, 18)) for _ in range(sentences)]
    return chance.choice([" ", "\n"]).join(found)


def _odd(chance: random.Random) -> str:
    """A document that one of the rules is about."""
    prose = random_prose(chance, 8)
    return chance.choice(
        [
            "",
            "four words are few",
            " ".join(WORDS[:49]),
            " ".join(WORDS[:50]),
            "\n".join(f"{mark} {_sentence(chance, WORDS, 7)}" for mark in chance.choices("•-*", k=12)),
            "\n".join(f"{_sentence(chance, WORDS, 7)}…" for _ in range(12)),
            prose + "#" * 150,
            " ".join(f"end of it {_sentence(chance, WORDS, 2)}" for _ in range(19)) + " " + _sentence(chance, WORDS, 5),
            "there are some people " * 30,
            prose + " the end of it" * 60,
            " ".join("abcdefgh" * 10),
            " ".join(word * 3 for word in prose.split()),
            random_prose(chance, 8, GERMAN),
            random_prose(chance, 3) + " " + random_prose(chance, 3, GERMAN),
            " ".join(str(chance.randrange(10**6)) for _ in range(80)),
        ]
    )


def _again(chance: random.Random, texts: list[str]) -> str:
    """A document made of earlier ones."""
    first, second = chance.choice(texts), chance.choice(texts)
    words = first.split(" ")
    edited = list(words)
    edited[chance.randrange(len(words))] = "edited"
    return chance.choice(
        [
            first,
            first.upper(),
            "  " + first.replace(" ", "  "),
            first.replace(".", " —."),
            " ".join(edited),
            first + " " + second,
            first[: len(first) // 2] + second[len(second) // 2 :],
            (first + " ") * (2000 // max(len(first), 1) + 1) + random_prose(chance, 2),
        ]
    )


def made_texts(count: int = 400, seed: int = 3, most: int = 40) -> list[str]:
    """Texts with fewer than `most` sentences each."""
    chance = random.Random(seed)
    texts: list[str] = []
    for number in range(count):
        kind = chance.random()
        if kind < 0.2:
            texts.append(_odd(chance))
        elif kind < 0.5 and texts:
            texts.append(_again(chance, texts))
        else:
            words = random_prose(chance, chance.randrange(4, most)).split(" ")
            for _ in range(chance.choice([0, 0, 4])):
                words.insert(chance.randrange(len(words)), chance.choice(MARKS))
            if number % 10 < len(DATA):
                words.insert(len(words) // 2, DATA[number % 10])
            texts.append(" ".join(words))
    return texts


def as_jsonl(texts: list[str], path: Path) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    return path


def as_wet(texts: list[str], path: Path) -> Path:
    """An archive as Common Crawl writes it: one gzip member per record."""
    info = b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 4\r\n\r\nmade\r\n\r\n"
    with open(path, "wb") as file:
        file.write(gzip.compress(info))
        for number, text in enumerate(texts):
            body = text.encode()
            head = (
                f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://made.example/{number}\r\n"
                f"WARC-Record-ID: <urn:uuid:made-{number}>\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            file.write(gzip.compress(head.encode() + body + b"\r\n\r\n"))
    return path


def run_recipe(name: str, path: Path, folder: Path, **options) -> dict:
    inputs = [Input(path=str(path), name="docs", keep_blank=True)]
    recipe = msgspec.structs.replace(load_recipe(name), input=inputs, budget=Budget())
    return run(recipe, folder, engine="cpu", **options).report


def assert_outcome(folder: Path, expected: Outcome, ids: list[str]) -> None:
    """The run kept and removed exactly what the oracle says: ids in order, texts, stages and reasons."""
    kept = [(id_, text) for _, id_, _, text in kept_rows(folder)]
    assert [id_ for id_, _ in kept] == [ids[number] for number, _ in expected.kept]
    assert kept == [(ids[number], text) for number, text in expected.kept]
    removed = [(id_, stage, reason) for _, id_, _, stage, reason, *_ in removed_rows(folder)]
    assert removed == [(ids[number], stage, reason) for number, stage, reason in expected.removed]


@cache
def fasttext_language() -> Callable[[str], tuple[str, float]]:
    """fastText's verdict on a text without line ends: its own where it is installed, else the slow oracle's."""
    path = LANGUAGE_MODEL
    try:
        import fasttext
    except ImportError:
        reading = fasttext_reference.read(path)
        return lambda text: fasttext_reference.predict(reading, text) or ("none", 0.0)
    model = fasttext.load_model(str(path))
    return partial(fasttext_reference.predict_by_package, model)
