# SPDX-License-Identifier: Apache-2.0
"""Whether `curate ablate --mix` tells the truth: domains with planted noise, each case with other documents.

    python -m tests.scripts.mixture_truth [FILE] [--cases KIND=N ...] [--bytes N]

FILE has documents in JSON Lines with `text` and `source`, whose five largest sources are the domains; default: texts of
Python and of Django, and exercises in three groups of languages. Each case has seven domains of the same size: these,
`noise`, and `repeated` with five copies each of other documents. Prints a line per case, and exits with 1 if a promise
is broken:

characters  noise of random characters, DoReMi: its weight is below half of its share in all cases
words       noise of random words of the other domains: nothing is promised, since a model of 8 bytes learns from words
regmix      noise of random characters, RegMix with held-out text of the five domains: the same
equal       five parts of the same documents, DoReMi: the verdict is better or worse in at most one case of 20
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson

from curation.tools.ablation.ablate_mix import ablate_mix
from curation.tools.ablation.mixture import Mixture
from tests.corpus import real_records

DATA = Path(__file__).resolve().parents[1] / "data"
CHARACTERS = "".join(map(chr, [*range(33, 127), *range(161, 256)]))
PIECE = 500  # characters of a document
COPIES = 5
GROUPS = {"ru": "cyrillic", "uk": "cyrillic", "ja": "asian", "ko": "asian", "zh-Hans": "asian", "zh-Hant": "asian"}
PARTS, SHARE = 5, 1 / 7  # domains without noise and copies; share of each domain in the text
HELD_OUT = 90  # documents of each domain, for RegMix
PARDONED = {"characters": 0, "words": 1, "regmix": 0, "equal": 1 / 20}  # share of cases that may be false
CASES = {"characters": 20, "words": 20, "regmix": 20, "equal": 20}


def pieces(text: str) -> list[str]:
    """Return the pieces of a text."""
    return [text[k : k + PIECE] for k in range(0, len(text), PIECE) if len(text) - k > PIECE // 4]


def own_domains() -> dict[str, list[str]]:
    """Return the domains from the data of the tests."""
    found: dict[str, list[str]] = defaultdict(list)
    for record in real_records():
        found[record["source"]] += pieces(record["text"])
    for line in gzip.decompress((DATA / "languages.jsonl.gz").read_bytes()).splitlines():
        record = orjson.loads(line)
        found[GROUPS.get(record["language"], "latin")] += pieces(record["text"])
    return found


def domains_of(path: Path) -> dict[str, list[str]]:
    """Return the five largest sources of a file."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_bytes().splitlines():
        record = orjson.loads(line)
        found[record["source"]] += pieces(record["text"])
    return {name: found[name] for name in sorted(found, key=lambda name: -len(found[name]))[:PARTS]}


def noise_of(kind: str, chance: random.Random, size: int, words: list[str]) -> list[str]:
    """Return texts of about `size` bytes in total: of random characters, or of random words."""
    found, total = [], 0
    while total < size:
        if kind == "words":
            text = " ".join(chance.choice(words) for _ in range(PIECE // 6))
        else:
            text = "".join(chance.choices(CHARACTERS, k=PIECE))
        found.append(text)
        total += len(text.encode())
    return found


def cut(texts: list[str], size: int) -> list[str]:
    """Return the first texts, of about `size` bytes in total."""
    total = 0
    for count, text in enumerate(texts):
        total += len(text.encode())
        if total >= size:
            return texts[: count + 1]
    return texts


def write_case(folder: Path, domains: dict[str, list[str]], kind: str, case: int, size: int) -> None:
    """Write the files of a case: a file per domain, and held-out texts in `target/`."""
    chance = random.Random(f"{kind} {case}")
    mixed = {name: chance.sample(texts, len(texts)) for name, texts in domains.items()}
    (folder / "target").mkdir(parents=True)
    if kind == "equal":
        texts = [text for name in sorted(mixed) for text in mixed[name]]
        chance.shuffle(texts)
        for number in range(PARTS):
            write(folder / f"part-{number}.jsonl", cut(texts[number::PARTS], size * (2 + number) // 10))
        return
    known = []
    for name, texts in mixed.items():
        write(folder / "target" / f"{name}.jsonl", texts[:HELD_OUT])
        known += (own := cut(texts[HELD_OUT:], int(size * SHARE)))
        write(folder / f"{name}.jsonl", own)
    rest = sorted({text for texts in mixed.values() for text in texts[HELD_OUT:]} - {*known})
    chance.shuffle(rest)
    few = cut(rest, int(size * SHARE / COPIES))
    write(folder / "repeated.jsonl", few * COPIES)
    words = [word for text in known for word in text.split() if len(word) < 12]
    write(folder / "noise.jsonl", noise_of(kind, chance, int(size * SHARE), words))


def write(path: Path, texts: list[str]) -> None:
    """Write texts as JSON Lines."""
    path.write_bytes(b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts))


def choose(folder: Path, kind: str, case: int, **more: Any) -> Mixture:
    """Return the result of the case in a folder."""
    more |= {"held_out": str(folder / "target/*.jsonl")} if kind == "regmix" else {"method": "doremi"}
    if kind == "equal":
        more |= {"mixture_bytes": 300_000}  # nothing is repeated
    return ablate_mix(sorted(map(str, folder.glob("*.jsonl"))), seed=case, **more)


def is_true(kind: str, found: Mixture) -> bool:
    """Return whether a case keeps the promise of its kind."""
    if kind == "equal":
        return found.verdict not in ("better", "worse")
    return found.chosen.weights["noise"] < found.rows[0].weights["noise"] / 2


def main() -> int:
    """Run the cases, print them, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--cases", nargs="+", default=[], metavar="KIND=N", help="run N cases of these kinds only")
    parser.add_argument("--bytes", type=int, default=700_000, help="bytes of the text (default: 700000)")
    options = parser.parse_args()
    given = dict(entry.split("=") for entry in options.cases)
    domains = domains_of(options.file) if options.file else own_domains()
    faults = 0
    for kind, count in CASES.items():
        cases, true = int(given.get(kind, 0 if given else count)), 0
        for case in range(cases):
            with tempfile.TemporaryDirectory() as folder:
                write_case(Path(folder), domains, kind, case, options.bytes)
                found = choose(Path(folder), kind, case)
            true += is_true(kind, found)
            shares = ", ".join(
                f"{name} {share:.3f} of {found.rows[0].weights[name]:.3f}"
                for name, share in found.chosen.weights.items()
            )
            ranks = f"; rank correlation {found.correlation:.2f}" if kind == "regmix" else ""
            print(f"{kind} {case}: {shares}; {found.line}{ranks}", flush=True)
        if cases:
            print(f"{kind}: {true} of {cases} true")
            faults += true < cases - PARDONED[kind] * cases
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
