# SPDX-License-Identifier: Apache-2.0
"""Whether `curate ablate` tells the truth: curated texts whose worth is known, each case with other documents.

    python -m tests.scripts.ablate_truth [FILE] [--cases KIND=N ...]

FILE has documents in JSON Lines (`text`, and `source` or not); default: the documentation of this Python. Prints a line
per case and a table of the verdicts, and exits with 1 if a promise is broken:

boilerplate  half of the raw documents are menus: better in all cases
language     half are in another language: better in all cases
duplicates   half are copies of a tenth of them: better in all cases
words        half have shuffled words: worse in none
half         curated is a random half: better or worse in at most one case of 20
swapped      boilerplate, with the arms swapped: worse in all cases
power        the smallest share of menus that is found in three quarters of the cases has the printed minimum detectable
             effect, within a factor of 1.5
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from curation.tools.ablation.documents import KEY, SOURCE, Pair
from curation.tools.ablation.experiment import Experiment
from curation.tools.ablation.held_out import TARGET, HeldOutTexts, clean
from curation.tools.demo import collect_documents
from tests.menus import menus

DATA = Path(__file__).resolve().parents[1] / "data"
MAX_CHARACTERS = 6000  # of a document
HELD_OUT = 700  # documents
SHARES = [step / 40 for step in range(1, 20)]  # of menus
FACTOR = 1.5
CASES = {"boilerplate": 10, "language": 10, "duplicates": 10, "words": 10, "half": 40, "swapped": 3, "power": 12}
Spoil = Callable[[random.Random, list[str]], list[str]]


def others(chance: random.Random, texts: list[str]) -> list[str]:
    """Return texts in other languages."""
    return [chance.choice(_languages()) for _ in texts]


def copies(chance: random.Random, texts: list[str]) -> list[str]:
    """Return ten copies each of a tenth of the texts."""
    kept = chance.sample(texts, max(1, len(texts) // 10))
    return [kept[k % len(kept)] for k in range(len(texts))]


def jumbled(chance: random.Random, texts: list[str]) -> list[str]:
    """Return the texts with all words in another order."""
    found = []
    for text in texts:
        words = text.split(" ")
        chance.shuffle(words)
        found.append(" ".join(words))
    return found


SPOILT: dict[str, Spoil | None] = {
    "boilerplate": menus, "language": others, "duplicates": copies, "words": jumbled, "half": None, "swapped": menus,
}  # fmt: skip


@cache
def _languages() -> list[str]:
    lines = gzip.decompress((DATA / "languages.jsonl.gz").read_bytes()).splitlines()
    return [text for line in lines if len(text := orjson.loads(line)["text"]) > 300]


def table_of(texts: list[str], numbers: list[int], sources: list[str] | None = None) -> pa.Table:
    """Return documents as an arm or a target has them."""
    columns = {
        KEY: pa.array(numbers, pa.uint64()), SOURCE: pa.array(sources or ["all"] * len(texts), pa.string()),
        "text": pa.array(texts, pa.large_string()),
    }  # fmt: skip
    return pa.table(columns)


class Pool:
    """Documents for cases, and held-out ones without leaks into any of them."""

    def __init__(self, documents: list[dict[str, Any]], held_out: int = HELD_OUT) -> None:
        random.Random(5).shuffle(documents)
        sources = [entry.get("source", "") for entry in documents]
        if len({*sources}) < 10:  # too few for an ablation: any will do
            sources = [f"source {number % 10}" for number in range(len(documents))]
        texts = [entry["text"][:MAX_CHARACTERS] for entry in documents]
        self.texts = texts[held_out:]
        target = table_of(texts[:held_out], [*range(held_out)], sources[:held_out])
        none = target.slice(0, 0)
        arms = table_of([*self.texts, *_languages()], [*range(len(self.texts) + len(_languages()))])
        self.held_out: dict[str, HeldOutTexts] = clean(target, none, none, Pair(arms, arms.slice(0, 0), {}))

    def experiment(self, kind: str, case: int, size: int, share: float = 0.5) -> Experiment:
        """Return a case: raw text of twice `size` bytes, of which curation removes the share that is spoilt."""
        chance = random.Random(f"{kind} {case}")
        order = chance.sample(range(len(self.texts)), len(self.texts))
        texts, total = [], 0
        for number in order:
            texts.append(self.texts[number])
            total += len(texts[-1].encode())
            if total >= 2 * size:
                break
        bad = sorted(chance.sample(range(len(texts)), int(share * len(texts))))
        if spoil := SPOILT.get(kind, menus):
            for place, text in zip(bad, spoil(chance, [texts[k] for k in bad]), strict=True):
                texts[place] = text[:MAX_CHARACTERS]
        raw = table_of(texts, [*range(len(texts))])
        curated = raw.filter(pa.array([k not in set(bad) for k in range(len(texts))]))
        pair = Pair(curated, raw, {}) if kind == "swapped" else Pair(raw, curated, {})
        return Experiment(
            pair, self.held_out, tier="seconds", budget=size * 3 // 4, placebos=16, smallest=0.005, seed=case
        )


def verdict_of(experiment: Experiment) -> tuple[str, str]:
    """Return the verdict, and a line about it."""
    detectable = experiment.score_placebos()
    found = experiment.judge()
    return found["verdict"], f"{found['curated'].text}, detectable {detectable:.2%}"


def power(pool: Pool, cases: int, size: int) -> Iterator[str]:
    """Yield a fault if the smallest share of menus that is found in three quarters of the cases has another effect than
    the minimum detectable effect that these cases print. The share is found by bisection."""
    low, high, lines = 0, len(SHARES), dict[int, tuple[str, float]]()
    while low < high:
        middle = (low + high) // 2
        experiments = [pool.experiment("power", case, size, SHARES[middle]) for case in range(cases)]
        detectable = sum(experiment.score_placebos() for experiment in experiments) / cases
        found = [experiment.judge() for experiment in experiments]
        effect = -sum(result["curated"].value for result in found) / cases
        better = sum(result["verdict"] == "better" for result in found)
        line = (
            f"power: {SHARES[middle]:.1%} menus, {effect:.2%} better, detectable {detectable:.2%}: {better} of {cases}"
        )
        print(line, flush=True)
        lines[middle] = line, effect / detectable
        low, high = (low, middle) if better >= 0.75 * cases else (middle + 1, high)
    line, ratio = lines.get(high, ("power: nothing found", 0.0))
    print(f"smallest share found: {line}")
    if not 1 / FACTOR <= ratio <= FACTOR:
        yield line


def is_broken(kind: str, verdicts: Counter[str]) -> bool:
    """Return whether the verdicts of a kind of cases break its promise."""
    cases = sum(verdicts.values())
    if kind == "half":
        return verdicts["better"] + verdicts["worse"] > cases / 20
    if kind == "words":
        return verdicts["worse"] > 0
    return verdicts["worse" if kind == "swapped" else "better"] < cases


def main() -> int:
    """Run the cases, print them, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--cases", nargs="+", default=[], metavar="KIND=N", help="run N cases of these kinds only")
    parser.add_argument("--bytes", type=int, default=1_000_000, help="bytes of the curated text (default: 1000000)")
    options = parser.parse_args()
    given = dict(entry.split("=") for entry in options.cases)
    cases = {kind: int(given.get(kind, 0 if given else count)) for kind, count in CASES.items()}
    lines = options.file.read_bytes().splitlines() if options.file else []
    pool = Pool([orjson.loads(line) for line in lines] or [*collect_documents()])
    target = pool.held_out[TARGET]
    print(
        f"held out: {len(target.texts):,} documents of {len(target.names)} sources, {target.leaked:,} leaks taken out"
    )
    faults = []
    for kind in SPOILT:
        verdicts: Counter[str] = Counter()
        for case in range(cases[kind]):
            verdict, line = verdict_of(pool.experiment(kind, case, options.bytes))
            verdicts[verdict] += 1
            print(f"{kind} {case}: {verdict}, {line}", flush=True)
        if verdicts:
            print(f"{kind}: {dict(verdicts)}")
        faults += [f"{kind}: {dict(verdicts)}"] if verdicts and is_broken(kind, verdicts) else []
    faults += power(pool, cases["power"], options.bytes) if cases["power"] else []
    for fault in faults:
        print(f"broken: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
