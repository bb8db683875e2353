# SPDX-License-Identifier: Apache-2.0
"""Share of documents whose fate depends on the centroids: `python -m benchmarks.centroid_fates VECTORS.npy ...`.

    --clusters N ...   numbers of clusters; 0: auto (default)
    --probe N ...      other clusters that each vector is compared with (0 4)
    --threshold T      cosine of close documents (0.95)

Centroids of several fits: k-means of the stage with three seeds, scikit-learn's KMeans with k-means++ on all vectors,
and its MiniBatchKMeans, as a stand-in for another implementation. cuML is not run. `semantic_dedup` gets each as
`centroids`. A line has the removed documents of each fit, and the largest share of documents that one fit removes and
another one keeps, over all pairs of fits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import curation
from curation.base.engine import load_engine
from curation.models.vectors import quantised, to_column, unit_vectors
from curation.stages.vectors.vector_clusters import PER_CLUSTER, Clusters, fit_clusters, sample_size

SEEDS = (1, 2, 3)


def fits(vectors: np.ndarray, clusters: int) -> dict[str, Clusters]:
    """Return the centroids of several fits."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    engine, wide, found = load_engine("cpu"), unit_vectors(vectors), {}
    for seed in SEEDS:
        sample = np.random.default_rng(seed).permutation(len(vectors))[: sample_size(clusters)]
        found[f"seed {seed}"] = fit_clusters(engine, vectors[sample], clusters, seed)
    for kind in (KMeans, MiniBatchKMeans):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            centres = quantised(kind(clusters, random_state=1, n_init=1).fit(wide).cluster_centers_)[0]
        found[kind.__name__] = Clusters(centres, centres[:0], np.zeros(0, np.int64))
    return found


def removed_by(frame: pd.DataFrame, clusters: Clusters, probe: int, threshold: float) -> np.ndarray:
    """Return the rows that `semantic_dedup` removes with these centroids, as a bool per row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centroids.npz"
        clusters.save(path)
        kept = curation.semantic_dedup(frame, centroids=path, probe=probe, threshold=threshold)
    return ~frame.index.isin(kept.index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vectors", type=Path, nargs="+")
    parser.add_argument("--clusters", type=int, nargs="+", default=[0])
    parser.add_argument("--probe", type=int, nargs="+", default=[0, 4])
    parser.add_argument("--threshold", type=float, default=0.95)
    options = parser.parse_args()
    for path in options.vectors:
        vectors = quantised(np.load(path))[0]
        column = pd.array(to_column(vectors), pd.ArrowDtype(pa.list_(pa.int8(), vectors.shape[1])))
        frame = pd.DataFrame({"text": "", "embedding": column})
        for clusters in options.clusters:
            count = clusters or -(-len(vectors) // PER_CLUSTER)
            found = fits(vectors, count)
            for probe in options.probe:
                removed = {name: removed_by(frame, fit, probe, options.threshold) for name, fit in found.items()}
                share = max(np.mean(one != two) for one, two in combinations(removed.values(), 2))
                counts = {name: int(rows.sum()) for name, rows in removed.items()}
                line = {"file": path.name, "documents": len(vectors), "clusters": count, "probe": probe}
                print(json.dumps(line | {"removed": counts, "largest_share": round(float(share), 6)}), flush=True)


if __name__ == "__main__":
    main()
