# SPDX-License-Identifier: Apache-2.0
"""The shipped recipes after other tools against the tools' own code: equal verdicts, equal texts, CPU time.

    python -m benchmarks.compare_recipes FILE [--only c4,dolma] [--repeats 3] [--show 5] [--peers FOLDER]

FILE has JSON Lines with `text`. Stages on single documents are compared, without those that need a model, a list or
other documents. Each round is a process per side. Line ends are compared as line feeds, and texts without white space
at both ends. Below the counts of a recipe, each kind of disagreement has a line: our reason, the tool's, documents.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import peer_rules
from benchmarks.bench_peers import DEFAULT_PEERS, ONE_THREAD, install

Judged = list[tuple[str | None, str]]


def stages_of(name: str) -> list[Any]:
    """The stages of a shipped recipe that judge or edit a document by itself, without a model."""
    from curation.recipes.recipe import load_recipe
    from curation.stages.base import CorpusStage

    settings = ["stages.mojibake.repair=mojibake"] if name == "datajuicer_redpajama" else []
    recipe = load_recipe(name, settings=settings)
    if name == "datajuicer_redpajama":
        recipe = load_recipe(name, settings=[*settings, "stages.datajuicer_redpajama.rules=datajuicer_redpajama"])
    row_stages = [stage for stage in recipe.stages if not isinstance(stage, CorpusStage)]
    kept = [stage for stage in row_stages if type(stage).__name__ != "Language"]
    return kept[1:] if name == "refinedweb" else kept  # the rules of Gopher have no public code here


def ours(texts: Sequence[str], stages: Sequence[Any]) -> tuple[Judged, float]:
    """Texts after stages with the reasons of removed ones, and the CPU seconds."""
    import pyarrow as pa

    from curation.base.engine import load_engine
    from curation.stages.invoke import apply_stage

    engine = load_engine("cpu")
    judged: Judged = [(None, "")] * len(texts)
    rows = pa.array(range(len(texts)), pa.int64())
    frame = engine.from_arrow(pa.table({"row": rows, "id": rows, "text": pa.array(texts, pa.large_string())}))
    start = time.process_time()
    for stage in stages:
        before = engine.to_arrow(frame[["row"]]).column(0).to_pylist()
        frame, outcome = apply_stage(engine, frame, stage)
        if outcome.verdict is not None:
            for row, reason in zip(before, outcome.verdict.reason.tolist(), strict=True):
                if reason >= 0:
                    judged[row] = (None, outcome.verdict.reasons[reason])
    seconds = time.process_time() - start
    kept = engine.to_arrow(frame[["row", "text"]]).to_pydict()
    for row, text in zip(kept["row"], kept["text"], strict=True):
        judged[row] = (text, "")
    return judged, seconds


def child(name: str, source: Path, out: Path) -> None:
    texts = [json.loads(line)["text"] for line in source.read_text("utf-8").splitlines()]
    stages = stages_of(name)
    ours(texts[:20], stages)  # compiles
    judged, seconds = ours(texts, stages)
    out.write_text(json.dumps({"judged": judged, "seconds": seconds}), "utf-8")


def one_round(command: list[str], out: Path) -> dict[str, Any]:
    environment = os.environ | ONE_THREAD | {"PYTHONWARNINGS": "ignore"}
    subprocess.run([*command, str(out)], check=True, stdout=subprocess.DEVNULL, env=environment)
    return dict(json.loads(out.read_text("utf-8")))


def normal(text: str) -> str:
    return "\n".join(text.splitlines()).strip()


def show(name: str, mine: Judged, other: Judged, examples: int) -> None:
    same = [(a is None) == (b is None) for (a, _), (b, _) in zip(mine, other, strict=True)]
    kept = [(a, b) for (a, _), (b, _) in zip(mine, other, strict=True) if a is not None and b is not None]
    equal = sum(normal(a) == normal(b) for a, b in kept)
    removed = sum(text is None for text, _ in mine), sum(text is None for text, _ in other)
    print(f"{name}: {sum(same):,} of {len(mine):,} verdicts equal; {equal:,} of {len(kept):,} texts that both keep")
    print(f"  removed: {removed[0]:,} here, {removed[1]:,} there")
    pairs = Counter((a, b) for (_, a), (_, b), agrees in zip(mine, other, same, strict=True) if not agrees)
    for (here, there), number in pairs.most_common():
        print(f"  {number:5,}  {here or 'kept'} here, {there or 'kept'} there")
    for a, b in [pair for pair in kept if normal(pair[0]) != normal(pair[1])][:examples]:
        print(
            *list(difflib.unified_diff(normal(a).split("\n"), normal(b).split("\n"), n=0, lineterm=""))[:8],
            sep="\n    ",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default=",".join(peer_rules.RECIPES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--show", type=int, default=0, help="print so many differing texts of each recipe")
    parser.add_argument("--peers", type=Path, default=DEFAULT_PEERS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], options.file, Path(options.child[1]))
        return
    content = options.file.read_bytes()
    texts = [json.loads(line)["text"] for line in content.splitlines()]
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts):,} documents, {size:.1f} MB, SHA-256 {hashlib.sha256(content).hexdigest()[:16]}")
    for name in options.only.split(","):
        peer = peer_rules.RECIPES[name][0]
        if peer and (problem := install(peer, options.peers)):
            print(f"{name}: {peer} {problem}")
            continue
        python = str(options.peers / peer / "bin/python") if peer else sys.executable
        sides = (
            [sys.executable, "-m", "benchmarks.compare_recipes", str(options.file), "--child", name],
            [python, str(Path(peer_rules.__file__)), name, str(options.file)],
        )
        with tempfile.TemporaryDirectory() as folder:
            rounds = [[one_round(side, Path(folder) / "out.json") for side in sides] for _ in range(options.repeats)]
        show(name, *([tuple(pair) for pair in side["judged"]] for side in rounds[0]), options.show)
        rates = [sorted(size / found[side]["seconds"] for found in rounds) for side in (0, 1)]
        shown = [f"{low:.3g} to {high:.3g}" for low, *_, high in ([*rate, rate[-1]] for rate in rates)]
        print(f"  MB per CPU s: {shown[0]} here, {shown[1]} there")


if __name__ == "__main__":
    main()
