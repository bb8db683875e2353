# SPDX-License-Identifier: Apache-2.0
"""`assign_clusters`: write the cluster of each document, by centroids from a file, into a column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.errors import InputError, RecipeError, counted
from curation.base.system.files import known_sha256
from curation.stages.base import PATH, ColumnFacts, Function, RowStage
from curation.stages.outcome import Outcome, StageCount
from curation.stages.rows.language import check_new_column
from curation.stages.vectors.vector_clusters import Clusters
from curation.stages.vectors.vector_store import vectors_of

AT_ONCE = 1 << 12  # vectors compared at once


class AssignClusters(RowStage, frozen=True, kw_only=True, tag="assign_clusters"):
    """Write the cluster of each document into a column, for `mix`, `select` and `filter`. No document is removed.

    centroids  file of centroids: `centroids/stage-N.npz` of a run with `semantic_dedup`, or one by `curation.clusters`
    vectors    column of the vectors: that of an `embed` stage, or one of the input with lists of numbers
    column     name of the new column in `documents/`: the number of the cluster (int64), or its name; null for a
               document without a vector
    names      names of the clusters, in the order of their numbers; clusters may share one. Default: numbers

    The cluster is that of the nearest centroid by cosine; of equally near centroids the first counts. Cosines are
    computed in integers, so clusters are the same on every machine. Raises InputError for a file without centroids, and
    for vectors with other dimensions than the centroids.
    """

    removes: ClassVar[bool] = False
    function: ClassVar[Function] = Function(
        """Return the frame with a new column: the cluster of each row, which has the nearest centroid; null without a
        vector.

            >>> frame = pandas.DataFrame({"text": ["a", "b", "c"], "embedding": [[1.0, 0.1], [1.0, -0.1], None]})
            >>> _ = curation.clusters(frame, clusters=1, save="topics.npz")
            >>> curation.assign_clusters(frame, "topics.npz", names=["law"])["cluster"].tolist()
            ['law', 'law', nan]

        Raises InputError for centroids or vectors that cannot be used.
        """,
        types={"centroids": PATH},
        reads_text=False,
    )

    centroids: str
    vectors: str = "embedding"
    column: str = "cluster"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_new_column(self.column)
        if not self.centroids:
            raise ValueError("centroids is empty; give a file of centroids, such as RUN/centroids/stage-2.npz")
        if self.vectors in ("", TEXT, ID):
            raise ValueError(f"vectors must name a column of vectors, not {self.vectors!r}")
        if self.vectors == self.column:
            raise ValueError(f"vectors and column are both {self.column!r}; give the new column another name")
        if "" in self.names:
            raise ValueError(f"names has an empty name at position {self.names.index('')}; give each cluster a name")

    def reads(self) -> tuple[str, ...]:
        return (self.vectors,)

    def writes(self) -> dict[str, str]:
        return {self.column: "large_string" if self.names else "int64"}

    def column_facts(self, column: str) -> ColumnFacts:
        return ColumnFacts(self.names or tuple(map(str, range(len(self._load().centroids)))))

    def files(self) -> dict[str, str]:
        return {self.centroids: known_sha256(self.centroids)}

    def check(self, inputs: Sequence[str]) -> None:
        """Check the file of centroids. Raises InputError if the file has no centroids, RecipeError for too few or too
        many names."""
        self._load()

    def _load(self) -> Clusters:
        found = Clusters.given(Path(self.centroids))
        if self.names and len(self.names) != len(found.centroids):
            raise RecipeError(
                f"assign_clusters: names has {counted(len(self.names), 'name')} for {len(found.centroids):,} clusters "
                f"of {self.centroids}. Name each cluster"
            )
        return found

    def apply(self, engine: Engine, frame: Frame) -> Outcome:
        clusters = self._load()
        vectors, present = vectors_of(engine, frame, self.vectors)
        rows = np.flatnonzero(present)
        if len(rows) and vectors.shape[1] != clusters.centroids.shape[1]:
            raise InputError(
                f"centroids: {self.centroids} has {clusters.centroids.shape[1]:,} dimensions, but the vectors in "
                f"column {self.vectors!r} have {vectors.shape[1]:,}. Use vectors and centroids of one model"
            )
        found = np.zeros(len(present), np.int64)
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            found[part] = clusters.nearest(engine, vectors[part], 1)[:, 0]
        values = pa.array(found, pa.int64(), mask=~present)
        if self.names:
            values = pa.array(self.names, pa.large_string()).take(values)
        return Outcome(columns={self.column: values}, details={"without_vector": len(present) - len(rows)})

    def explain(self) -> list[str]:
        named = f", named {', '.join(dict.fromkeys(self.names))}" if self.names else ""
        return [f"{self.column}: the nearest centroid of {self.centroids} to {self.vectors}{named}"]

    def report_lines(self, count: StageCount) -> list[str]:
        """Return a line with the number of documents that have a cluster."""
        without = count.details.get("without_vector", 0)
        rest = f"; {counted(without, 'document')} without a vector" if without else ""
        return [f"{self.column}: cluster of {counted(count.documents_in - without, 'document')}{rest}"]
