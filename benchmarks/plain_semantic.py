# SPDX-License-Identifier: Apache-2.0
"""Near pairs by sentence-transformers and scikit-learn alone, as a short script does it: `bench_embedding` compares.

    plain_semantic.py CORPUS.jsonl|VECTORS.npy OUT.json --model FOLDER --threads N --threshold T --clusters N

It writes the rows that are kept and the number of close pairs. Batches, lengths and truncation are the defaults of
sentence-transformers. Vectors are normalised floats.
"""

import argparse
import json
import os

parser = argparse.ArgumentParser()
parser.add_argument("source")
parser.add_argument("out")
parser.add_argument("--model", default="")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--threshold", type=float, default=0.95)
parser.add_argument("--clusters", type=int, default=0)
options = parser.parse_args()
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[variable] = str(options.threads)

import numpy as np  # noqa: E402
from scipy.sparse import coo_array  # noqa: E402
from scipy.sparse.csgraph import connected_components  # noqa: E402
from sklearn.cluster import KMeans  # noqa: E402
from sklearn.metrics.pairwise import cosine_similarity  # noqa: E402

if options.source.endswith(".npy"):
    vectors = np.load(options.source)
else:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(options.threads)
    with open(options.source, encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    vectors = SentenceTransformer(options.model, device="cpu").encode(texts, normalize_embeddings=True)

clusters = options.clusters or -(-len(vectors) // 1000)
labels = KMeans(clusters, random_state=1).fit_predict(vectors)
left, right = [], []
for cluster in range(clusters):
    members = np.flatnonzero(labels == cluster)
    i, j = np.nonzero(np.triu(cosine_similarity(vectors[members]) >= options.threshold, 1))
    left.append(members[i])
    right.append(members[j])
pairs = np.concatenate(left), np.concatenate(right)
size = len(vectors)
_, groups = connected_components(coo_array((np.ones(len(pairs[0]), bool), pairs), shape=(size, size)), directed=False)
_, kept = np.unique(groups, return_index=True)
with open(options.out, "w", encoding="utf-8") as file:
    json.dump({"kept": kept.tolist(), "pairs": len(pairs[0])}, file)
