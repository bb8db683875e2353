# SPDX-License-Identifier: Apache-2.0
"""Files of which half are menus, for `curate ablate`. It imports nothing of the command, which is a leaf."""

from __future__ import annotations

import random
from pathlib import Path

import orjson

from tests.corpus import real_pieces

MENU = (
    "Home", "About us", "Contact", "Log in", "Register", "Privacy policy", "Terms of use", "Share this page", "Next",
    "Previous", "Subscribe to our newsletter", "All rights reserved", "Cookie settings", "Search", "Menu",
    "Back to top",
)  # fmt: skip


def menus(chance: random.Random, texts: list[str]) -> list[str]:
    """Return texts of about the same sizes with words of menus."""
    return ["\n".join(chance.choice(MENU) for _ in range(max(8, len(text) // 12))) for text in texts]


HELD_OUT, FEW = 400, 320  # pieces of the target, and of each side where any result will do


def write_ablation(folder: Path, held_out: int = HELD_OUT, documents: int | None = None) -> None:
    """Write `crawl.jsonl`, of which half are menus, and a target in `target/`: pieces of the tests' documents."""
    texts = real_pieces()
    (folder / "target").mkdir()
    for number, name in enumerate("abcdef"):
        _write(folder / "target" / f"{name}.jsonl", texts[number:held_out:6])
    rest = texts[held_out:][:documents]
    bad = menus(random.Random(1), rest)
    _write(folder / "crawl.jsonl", [bad[k] if k % 2 else text for k, text in enumerate(rest)])


def write_domains(folder: Path) -> None:
    """Write `books.jsonl`, `manuals.jsonl` and `reviews.jsonl`, whose texts are noise, for `ablate --mix` with the
    target of `write_ablation`."""
    chance, texts = random.Random(2), real_pieces()[HELD_OUT:][:FEW]
    letters = [chr(code) for code in range(33, 127)]
    _write(folder / "books.jsonl", texts[::2])
    _write(folder / "manuals.jsonl", texts[1::2])
    _write(folder / "reviews.jsonl", ["".join(chance.choices(letters, k=1000)) for _ in texts])


def _write(path: Path, texts: list[str]) -> None:
    path.write_bytes(b"".join(orjson.dumps({"id": f"d{k}", "text": text}) + b"\n" for k, text in enumerate(texts)))
