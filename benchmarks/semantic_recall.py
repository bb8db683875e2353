# SPDX-License-Identifier: Apache-2.0
"""Recall of `embed` and `semantic_dedup` on a corpus with known duplicates: `python -m benchmarks.semantic_recall`.

    CORPUS           corpus.jsonl, with corpus.flags.jsonl (planted duplicates) and corpus.pairs.jsonl (true Jaccard)
    --model FOLDER   encoder or static embeddings
    --windows N      windows of a text (1)
    --clusters N ... numbers of clusters; 0: auto (default: 1 10 100 0)
    --threshold T    cosine of close documents (0.95)
    --folder DIR     keeps the vectors there for the next call

One line per number of clusters. A pair of `flags` or `pairs` is found if both documents are in one group. `close` is
the number of pairs of different vectors that reach the threshold, by comparing all stored vectors. `found` is the
number that the stage finds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from curation.models.vectors import cosines, from_column, squared_norms, units_of
from curation.recipes.recipe import convert_recipe
from curation.running.run import run

AT_ONCE = 1 << 11
HIGH_JACCARD = 0.8


def embedded(corpus: Path, model: str, windows: int, folder: Path) -> dict[str, Any]:
    """Write the vectors of a corpus below a folder, unless they are there. Return the report of that run."""
    stage = {"kind": "embed", "model": model, "windows": windows}
    recipe = convert_recipe({"input": [{"path": str(corpus)}], "stages": [stage], "output": {"formats": []}})
    return dict(run(recipe, folder / "embedded", engine="cpu").report)


def measured(corpus: Path, folder: Path, clusters: int, threshold: float = 0.95) -> dict[str, Any]:
    """Return what `semantic_dedup` finds in the vectors below a folder, and what there is to find."""
    documents = folder / "embedded" / "documents"
    table = pq.read_table(documents, columns=["id", "embedding"])
    ids = table["id"].to_pylist()
    stage = {"kind": "semantic_dedup", "threshold": threshold, "clusters": clusters or "auto"}
    given = {"path": f"{documents}/*.parquet", "columns": ["embedding"]}
    recipe = convert_recipe({"input": [given], "stages": [stage], "output": {"formats": []}})
    out = folder / f"clusters-{clusters}"
    report = run(recipe, out, engine="cpu", force=True).report
    removed = pq.read_table(out / "removed", columns=["id", "duplicate_of"]).to_pydict()
    kept = dict(zip(removed["id"], removed["duplicate_of"], strict=True))
    details = report["stages"][0]["details"]
    close = pairs_close(*from_column(table["embedding"], "embedding"), units_of(threshold))
    flags, pairs = (_lines(corpus.with_suffix(f".{kind}.jsonl")) for kind in ("flags", "pairs"))
    planted = [(flag["id"], flag["of"]) for flag in flags if flag["kind"] == "exact"]
    alike = [(pair["a"], pair["b"]) for pair in pairs if pair["j"] >= HIGH_JACCARD]
    known = {frozenset((pair["a"], pair["b"])) for pair in pairs}
    partners = [frozenset(pair) for pair in kept.items()]
    return {
        "documents": len(ids), "clusters": details["clusters"], "removed": len(kept),
        "removed_not_in_pairs": sum(pair not in known for pair in partners),
        "planted": len(planted), "planted_found": _together(planted, kept),
        "alike": len(alike), "alike_found": _together(alike, kept),
        "close": close, "found": details["pairs_close"],
        "compared_per_document": round(details["pairs_compared"] / len(ids), 1), "sample": details["recall"],
    }  # fmt: skip


def pairs_close(vectors: np.ndarray, present: np.ndarray, units: int) -> int:
    """Return the number of pairs of different vectors whose cosine reaches `units`, by comparing all."""
    vectors = np.unique(vectors[present], axis=0)
    norms, wide = squared_norms(vectors), vectors.astype(np.float32)  # products are exact up to 1,024 dimensions
    count = 0
    for start in range(0, len(vectors), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        close = cosines(wide[rows] @ wide.T, norms[rows, None], norms[None, :]) >= units
        count += int(np.count_nonzero(np.triu(close, start + 1)))
    return count


def _together(pairs: Iterable[tuple[str, str]], kept: dict[str, str]) -> int:
    """Return how many pairs have both documents in one group."""
    return sum(kept.get(left, left) == kept.get(right, right) for left, right in pairs)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 10, 100, 0])
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        report = embedded(options.corpus, options.model, options.windows, folder)
        print("; ".join(report["stages"][0]["lines"]), flush=True)
        for clusters in options.clusters:
            print(json.dumps(measured(options.corpus, folder, clusters, options.threshold)), flush=True)


if __name__ == "__main__":
    main()
