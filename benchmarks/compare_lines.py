# SPDX-License-Identifier: Apache-2.0
"""`lines` against datatrove's C4 filter, and against plain Python for RefinedWeb's lines: equal texts and verdicts.

    python -m benchmarks.compare_lines FILE [--documents 2000] [--repeats 5] [--peers FOLDER]

FILE has JSON Lines with `id` and `text`. The recipes are `c4` and `refinedweb`. datatrove runs in the environment of
`benchmarks.bench_peers`. Line ends are compared as line feeds, since datatrove joins the lines that it keeps by them,
and texts without white space at both ends. Speeds are MB of text per CPU second, lowest and highest.

This module imports only what every environment has, because the peer runs it as a script.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Edited = list[str | None]  # texts; None for a removed document
COUNTERS = r"(?i)^\W*\d[,.\d]*[kmb]?\s+(likes|shares|comments|retweets|views|followers)\W*$"
MOST_REMOVED = 0.05
# What few documents have, so that no rule is idle but the one on digits: a line of digits is one word, too.
MADE = (
    "This line stays as it is. It has several words.\nThis one has a " + "w" * 1001 + " of a word.\n",
    "A line about nothing at all.\nPlease read the terms of use of this page.\nAnother line of words.\n",
    "A line of eight words about nothing at all.\n" * 9 + "12k likes\n1,024 views\n",
    "Lorem ipsum dolor sit amet.\n",
)


def recipe_stages(name: str, last: str) -> list[Any]:
    """The stages of a shipped recipe from its first one on lines to the one of the name `last`, with their rules."""
    import yaml

    from curation.recipes.recipe import shipped_recipes

    stages = list(yaml.safe_load(shipped_recipes()[name])["stages"])
    names = [stage.get("name") or stage["kind"] for stage in stages]
    first = next(number for number, stage in enumerate(stages) if stage["kind"] == "lines")
    return stages[first : names.index(last) + 1]


def ours(texts: list[str], stages: list[Any]) -> tuple[Edited, float]:
    """Texts after stages, and the CPU seconds of their work."""
    import pyarrow as pa

    from curation.base.engine import load_engine
    from curation.recipes.recipe import convert_recipe
    from curation.stages.invoke import apply_stage

    engine, found = load_engine("cpu"), convert_recipe({"stages": stages}).stages
    rows = pa.array(range(len(texts)), pa.int64())
    frame = engine.from_arrow(pa.table({"row": rows, "id": rows, "text": pa.array(texts, pa.large_string())}))
    start = time.process_time()
    for stage in found:
        frame = apply_stage(engine, frame, stage)[0]
    seconds = time.process_time() - start
    kept = engine.to_arrow(frame[["row", "text"]]).to_pydict()
    edited: Edited = [None] * len(texts)
    for row, text in zip(kept["row"], kept["text"], strict=True):
        edited[row] = text
    return edited, seconds


def datatrove(texts: list[str], sentences: int) -> tuple[Edited, float]:
    from datatrove.data import Document
    from datatrove.pipeline.filters import C4QualityFilter

    chosen, edited, seconds = C4QualityFilter(min_num_sentences=sentences), list[str | None](), 0.0
    for text in texts:
        document = Document(text=text, id="0")
        start = time.process_time()
        verdict = chosen.filter(document)
        seconds += time.process_time() - start
        edited.append(document.text if verdict is True else None)
    return edited, seconds


def plain_refinedweb(texts: list[str]) -> tuple[Edited, float]:
    """RefinedWeb's lines in plain Python; lines that are cut may have 5 % of the words."""
    edited: Edited = []
    start = time.process_time()
    for text in texts:
        lines = text.splitlines(keepends=True)
        cut = [_is_cut(line.splitlines()[0]) for line in lines]
        words = [len(line.split()) for line in lines]
        lost = sum(count for count, gone in zip(words, cut, strict=True) if gone)
        kept = "".join(line for line, gone in zip(lines, cut, strict=True) if not gone)
        edited.append(None if lost / max(sum(words), 1) > MOST_REMOVED else kept)
    return edited, time.process_time() - start


def _is_cut(line: str) -> bool:
    if (
        sum(map(str.isupper, line)) / max(len(line), 1) > 0.5
        or sum(map(str.isdecimal, line)) / max(len(line), 1) > 0.999999
    ):
        return True
    return re.search(COUNTERS, line, re.ASCII) is not None or len(line.split()) == 1


def normal(text: str | None) -> str | None:
    return None if text is None else "\n".join(text.splitlines()).strip()


def report(name: str, mine: Edited, other: Edited, texts: list[str]) -> None:
    left, right = list(map(normal, mine)), list(map(normal, other))
    verdicts = sum((a is None) == (b is None) for a, b in zip(left, right, strict=True))
    equal = sum(a == b for a, b in zip(left, right, strict=True))
    changed = sum(a is not None and a != normal(text) for a, text in zip(left, texts, strict=True))
    print(
        f"{name}: {verdicts:,} of {len(texts):,} verdicts and {equal:,} texts with their verdicts are equal; "
        f"{sum(text is None for text in left):,} removed, {changed:,} changed"
    )


def speeds(name: str, run: Callable[[], tuple[Edited, float]], size: float, repeats: int) -> Edited:
    """Run so often, print the range of speeds, and return the texts."""
    found = [run() for _ in range(repeats)]
    rates = sorted(size / seconds for _, seconds in found)
    print(f"{name}: {rates[0]:.4g} to {rates[-1]:.4g} MB per CPU s")
    return found[0][0]


def without_each_rule(stages: list[Any], texts: list[str]) -> None:
    """Print how many documents differ where a rule is left out, or a rewrite: none of them is idle."""
    whole = ours(texts, stages)[0]
    for number, stage in enumerate(stages):
        settings = stage.get("lines", stage)
        rules = settings.get("rules", {})
        listed = [{key: value} for key, value in rules.items()] if isinstance(rules, dict) else rules
        for rule in listed or [stage]:
            kept = [other for other in listed if other is not rule]
            changed = [{"lines": {**settings, "rules": kept}}] if kept and "lines" in stage else []
            changed = changed or ([{**stage, "rules": kept}] if kept else [])
            found = ours(texts, [*stages[:number], *changed, *stages[number + 1 :]])[0]
            differ = sum(a != b for a, b in zip(whole, found, strict=True))
            print(f"  without {json.dumps(rule)[:70]}: {differ:,} documents differ")


def by_peer(path: Path, peers: Path, documents: int, sentences: int) -> tuple[Edited, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        arguments = [str(path), "--documents", str(documents), "--peer", str(out), "--sentences", str(sentences)]
        subprocess.run([str(peers / "datatrove/bin/python"), __file__, *arguments], check=True)
        content = json.loads(out.read_text("utf-8"))
    return content["texts"], content["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--sentences", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    records = [json.loads(line) for line in options.file.read_text("utf-8").splitlines()][: options.documents]
    texts = [*(record["text"] for record in records), *MADE]
    size = sum(len(text.encode()) for text in texts) / 1e6
    if options.peer:
        edited, seconds = datatrove(texts, options.sentences)
        options.peer.write_text(json.dumps({"texts": edited, "seconds": seconds}), "utf-8")
        return
    from benchmarks.bench_peers import DEFAULT_PEERS, install

    peers = options.peers or DEFAULT_PEERS
    if problem := install("datatrove", peers):
        sys.exit(f"datatrove {problem}")
    print(
        f"{len(texts):,} documents, {size:.1f} MB, SHA-256 {hashlib.sha256(options.file.read_bytes()).hexdigest()[:16]}"
    )
    chain = recipe_stages("c4", "sentences")
    ours(texts[:20], chain)  # compiles
    for sentences, stages in ((-1, chain[:-1]), (5, chain)):
        name = "C4" if sentences < 0 else "C4 with five sentences"
        mine = speeds(f"{name}, lines", lambda stages=stages: ours(texts, stages), size, options.repeats)  # type: ignore[misc]
        other = by_peer(options.file, peers, options.documents, sentences)
        print(f"{name}, datatrove: {size / other[1]:.4g} MB per CPU s")
        report(name, mine, other[0], texts)
    without_each_rule(chain[:-1], texts)
    web = recipe_stages("refinedweb", "lines")
    mine = speeds("RefinedWeb, lines", lambda: ours(texts, web), size, options.repeats)
    report("RefinedWeb", mine, speeds("RefinedWeb, plain Python", lambda: plain_refinedweb(texts), size, 1), texts)
    without_each_rule(web, texts)
    words = [{"lines": {"rules": {"words": {"min": 3}}}}]
    speeds("one measure of lines", lambda: ours(texts, words), size, options.repeats)
    for unit in ("paragraph", "sentence"):
        speeds(
            f"one measure of {unit}s",
            lambda unit=unit: ours(texts, [{"lines": {"unit": unit, **words[0]["lines"]}}]),
            size,
            options.repeats,
        )  # type: ignore[misc]


if __name__ == "__main__":
    main()
