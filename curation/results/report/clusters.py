# SPDX-License-Identifier: Apache-2.0
"""The map of clusters in the report: some kept documents on two principal components, and the words of each cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from curation.base.contract import ID, ROW, TEXT, Engine
from curation.models.cluster_words import ClusterWords
from curation.models.vectors import from_column
from curation.record.partitions import Partitions, open_partition
from curation.stages.base import Clustered
from curation.stages.vectors.principal_components import PrincipalComponents
from curation.stages.vectors.vector_clusters import Clusters

POINTS = 400  # documents on the map, chosen by a hash
SHOWN_CLUSTERS, WORDS = 8, 8
SHOWN_CHARACTERS, COUNTED_CHARACTERS = 100, 8_000  # of a text: shown, and searched for words


def cluster_map(
    engine: Engine, clustered: Clustered, centroids: Path, partitions: Partitions, rows: np.ndarray,
    name: Callable[[int, int, str | None], str],
) -> dict[str, Any] | None:  # fmt: skip
    """Return the map of the documents at rows of a segment; None if fewer than three of them have a vector.

    `name` makes the id of a document from its slice, its row there, and its own id. `points` are (x, y, place of the
    cluster in `clusters` or -1, id, start of the text); x and y are from -1 to 1, with one scale.
    The largest clusters of these documents are in `clusters`."""
    documents, vectors = [], []
    for number, position in zip(*(values.tolist() for values in partitions.locate(rows)), strict=True):
        row = open_partition(partitions.path(number)).select([ROW, ID, TEXT, clustered.vectors]).slice(position, 1)
        vector, present = from_column(row.column(clustered.vectors), clustered.vectors)
        if present[0]:
            vectors.append(vector[0])
            id_ = name(number, row.column(ROW)[0].as_py(), row.column(ID)[0].as_py())
            text = pc.utf8_slice_codeunits(row.column(TEXT), 0, COUNTED_CHARACTERS)  # texts may have 100 MB each
            documents.append((id_, text[0].as_py() or ""))
    if len(vectors) < 3:
        return None
    found = Clusters.given(centroids)
    stacked = np.stack(vectors)
    home = found.nearest(engine, stacked, 1)[:, 0].tolist()
    words = ClusterWords()
    for cluster, (_, text) in zip(home, documents, strict=True):
        words.add(cluster, text)
    typical = words.typical(WORDS)
    sizes = np.bincount(home, minlength=len(found.centroids))
    shown = [int(k) for k in np.argsort(-sizes, kind="stable")[:SHOWN_CLUSTERS] if sizes[k]]
    plane = PrincipalComponents.fitted(stacked, 2)
    places = plane.projected(stacked)
    places /= max(float(np.abs(places).max()), 1e-12)
    return {
        "clusters": [
            {"name": clustered.names[k] if clustered.names else str(k), "documents": int(sizes[k]), "words": typical[k]}
            for k in shown
        ],
        "count": int(np.count_nonzero(sizes)),
        "shares": [round(share, 4) for share in plane.shares.tolist()],
        "points": [
            [round(x, 3), round(y, 3), shown.index(k) if k in shown else -1, id_, _start(text)]
            for (x, y), k, (id_, text) in zip(places.tolist(), home, documents, strict=True)
        ],
    }


def _start(text: str) -> str:
    return " ".join(text[: 4 * SHOWN_CHARACTERS].split())[:SHOWN_CHARACTERS]
