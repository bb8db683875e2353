# SPDX-License-Identifier: Apache-2.0
"""`semantic_dedup`: keep one document of each group with close vectors. Clusters find pairs; the cosine decides."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from curation.base.arrays import sorted_unique
from curation.base.contract import ID, TEXT, Engine, Frame
from curation.base.errors import InputError, as_share, counted, installation
from curation.base.system.files import known_sha256
from curation.models.vectors import UNITS, cosines, units_of, vector_hashes
from curation.stages.base import (
    PATH,
    CorpusStage,
    Forecast,
    Function,
    NewIndex,
    Outputs,
    Phase,
    Stage,
    StageSample,
)
from curation.stages.corpus.components import Components
from curation.stages.corpus.keep_orders import (
    checked_counts,
    order_key,
    policy_columns,
    shown_policy,
    value_lines,
    value_warnings,
)
from curation.stages.corpus.kept_rows import check_inputs, check_keep, group_sizes, rank_by, weight_of
from curation.stages.corpus.key_ranges import (
    RUNS,
    division_phase,
    once,
    read_cell,
    reducer_count,
    row_type,
    slice_group,
    slice_group_count,
    slice_group_starts,
    write_cells,
    write_run,
)
from curation.stages.corpus.saved_index import IndexMatches, write_index
from curation.stages.corpus.stored_drops import count_below, matched_drops, stored_drops
from curation.stages.outcome import Corpus, Decision, StageCount
from curation.stages.vectors import vector_clusters, vector_index, vector_store
from curation.stages.vectors.vector_clusters import Clusters
from curation.stages.vectors.vector_index import VectorIndex
from curation.stages.vectors.vector_store import VectorStore

if TYPE_CHECKING:
    import pyarrow as pa

KEEP = ("first", "longest", "nearest", "farthest")
REASON, INDEX_REASON = "semantic_duplicate", "semantic_duplicate_of_index"
GROUPS, VALUES = "groups", "values"  # phases
GPU_NOTE = (
    "cuML may find other clusters than the CPU engine, and in each run, so other documents may be removed. For the "
    "same documents, give centroids, a file of an earlier run, or --engine cpu"
)
KMEANS = ("sklearn", "cuml")  # either package finds clusters
MAX_CLUSTERS = 1 << 24
BYTES_PER_VECTOR = 1 << 10  # on disk, at 768 dimensions


class SemanticDedup(CorpusStage, frozen=True, kw_only=True, tag="semantic_dedup"):
    """Keep one document of each group of documents with close vectors.

    Two documents are close if the cosine of their vectors is at least `threshold`. Equal vectors are found by a hash.
    K-means divides the distinct vectors into clusters (scikit-learn on the CPU, cuML on the GPU). Each vector is
    compared with the vectors of its cluster and of the nearest other clusters. The report has the recall, measured on
    500 documents: the share of their close pairs that these comparisons find. Close documents are joined in groups; a
    group may hold a chain A ~ B ~ C in which A and C are not close. A document without a vector (null, or all zeros) is
    never a duplicate.

    column     column of the vectors: that of an `embed` stage, or one of the input with lists of numbers
    threshold  cosine in (0, 1]; it is compared in ten-thousandths, rounded down
    clusters   number of clusters; auto: one per 1,000 different vectors
    probe      number of other clusters that each vector is compared with, the nearest ones
    keep       document kept of a group. `first`: the first one, by the order of inputs and documents; `longest`: the
               one with most bytes, then the first; `nearest` or `farthest`: by the cosine to its centroid, then the
               first; or a list of input names: the first one of the earliest input, where inputs that are not listed
               come last; or `{highest: COLUMN}` or `{newest: COLUMN}`, as in `exact_dedup`
    centroids  file `centroids.npz` of an earlier run, which makes results of both engines equal; "" to fit centroids
    seed       seed of the sample to which k-means is fitted, below 2^64
    index      folder `index` of an earlier run with `output: {index: true}` and vectors of the same model. Documents
               that are close to one in it are removed first, with the reason `semantic_duplicate_of_index`. They are
               compared in its clusters: the nearest one and `probe` others; "" for none

    In `removed/` the value is the cosine to the kept document. It is below `threshold` if only a chain joins the two.
    """

    function: ClassVar[Function] = Function(
        """Return one row of each group of rows with close vectors.

        The column has lists of numbers, or JSON arrays of numbers in strings. On a Dask frame the call itself computes
        all partitions twice. The rows stay lazy. A frame does not tell the model of its vectors: with `index` only
        their dimensions are compared. A list in `keep` has values of the column `source`.

            >>> vectors = [[1.0, 0.0], [0.99, 0.01], [0.0, 1.0], None]
            >>> frame = pandas.DataFrame({"text": ["one", "uno", "two", ""], "embedding": vectors})
            >>> curation.semantic_dedup(frame)["text"].tolist()
            ['one', 'two', '']
            >>> curation.semantic_dedup(frame, details=True).pairs[["kept_text", "similarity"]].values.tolist()
            [['one', 0.9999]]

        Raises InputError for a column without vectors, and if more than one cluster is wanted and scikit-learn (on the
        GPU engine cuML) is not installed.
        """,
        details=True,
        types={"centroids": PATH, "index": PATH},
    )

    column: str = "embedding"
    threshold: float = 0.95
    clusters: int | str = "auto"
    probe: int = 4
    keep: str | list[str] | dict[str, str] = "first"
    centroids: str = ""
    seed: int = 1
    index: str = ""

    def __post_init__(self) -> None:
        if self.column in ("", TEXT, ID):
            raise ValueError(f"column must name a column of vectors, not {self.column!r}")
        if not 0 < self.threshold <= 1:
            advice = as_share(self.threshold) or ". It is the cosine of close documents"
            raise ValueError(f"threshold must be above 0 and at most 1, not {self.threshold}{advice}")
        if self.clusters != "auto" and (isinstance(self.clusters, str) or not 1 <= self.clusters <= MAX_CLUSTERS):
            raise ValueError(f"clusters must be auto or a number from 1 to {MAX_CLUSTERS:,}, not {self.clusters!r}")
        if self.clusters != "auto" and self.centroids:
            raise ValueError("give clusters or centroids: a file of centroids has its own number of clusters")
        if not 0 <= self.probe <= 1_000:
            raise ValueError(f"probe must be from 0 to 1,000, not {self.probe}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to below 2^64, not {self.seed}")
        check_keep(self.keep, KEEP)

    def reads(self) -> tuple[str, ...]:
        return (self.column, *policy_columns(self.keep))

    def kernels(self) -> tuple[str, ...]:
        return ("leaders", "pairs")

    def files(self) -> dict[str, str]:
        files = {self.centroids: known_sha256(self.centroids)} if self.centroids else {}
        if self.index:
            files |= VectorIndex(self.index).files()
        return files

    def check(self, inputs: Sequence[str]) -> None:
        """Check `keep`, `centroids` and `index`. Raises RecipeError for an unknown input or a missing index, InputError
        for a file without centroids, IntegrityError for a damaged index."""
        check_inputs(self.keep, inputs)
        if self.centroids:
            Clusters.given(Path(self.centroids))
        if self.index:
            index = VectorIndex(self.index)
            index.check_content()
            index.check_origin({})

    def check_order(self, earlier: Sequence[Stage]) -> None:
        """Raise RecipeError if the index has vectors of another model than the stage that writes the column. Raise
        InputError if an earlier stage computes the vectors, but no installed package can find clusters."""
        is_computed = any(self.column in stage.writes() for stage in earlier)
        has_kmeans = any(name in sys.modules or find_spec(name) for name in KMEANS)
        if is_computed and self.clusters != 1 and not self.centroids and not has_kmeans:
            raise InputError(
                f"{self.name or self.kind}: scikit-learn, or cuML on the GPU, finds the clusters, and none is "
                f"installed. {installation('embeddings')}. Or give the centroids of an earlier run, or set clusters: "
                f"1, which clusters: auto also means for up to {vector_clusters.PER_CLUSTER:,} vectors"
            )
        if self.index:
            VectorIndex(self.index).check_origin(self._origin(earlier))

    def _origin(self, earlier: Sequence[Stage]) -> dict[str, Any]:
        """Return the facts about the vectors from the stage that writes them; no facts for vectors of the input."""
        writers = [stage for stage in earlier if self.column in stage.writes()]
        return dict(writers[-1].column_facts(self.column).origin) if writers else {}

    def explain(self) -> list[str]:
        where = f"centroids of {self.centroids}" if self.centroids else f"clusters {self.clusters}"
        return [
            f"cosine of {self.column} >= {self.threshold:g}, keep {shown_policy(self.keep)}",
            f"{where}; each vector is compared within its cluster and with {self.probe} others",
        ]

    def report_lines(self, count: StageCount) -> list[str]:
        details = count.details
        sizes = [group["documents"] for group in details["largest_groups"]]
        largest = f", the largest of {sizes[0]:,}" if sizes else ""
        recall, pairs = details["recall"], f"{counted(details['pairs_compared'], 'pair')} compared"
        removed = count.reasons.get(REASON, 0)
        lines = [f"{removed:,} removed of {counted(details['groups'], 'group')}{largest}; {pairs}"]
        if recall["pairs"]:
            share = recall["found"] / recall["pairs"]
            lines.append(
                f"recall {share:.2%}: {recall['found']:,} of {counted(recall['pairs'], 'close pair')} of "
                f"{counted(recall['documents'], 'document')} found in {counted(details['clusters'], 'cluster')}"
            )
        if "index" in details:
            index = details["index"]
            found = index["recall"]
            share = f", recall {found['found'] / found['pairs']:.2%}" if found["pairs"] else ""
            removed = count.reasons.get(INDEX_REASON, 0)
            lines.append(f"{removed:,} close to one of {counted(index['documents'], 'document')} of the index{share}")
        if details["without_vector"]:
            lines.append(f"{counted(details['without_vector'], 'document')} without a vector kept")
        return lines + value_lines(self.keep, details)

    def warnings(self, count: StageCount) -> list[str]:
        lines = value_warnings(self.keep, count.details, count.documents_in)
        return [f"{self.name or self.kind}: {line}" for line in lines]

    def outputs(self) -> Outputs:
        is_fitted = self.clusters != 1 and not self.centroids
        return Outputs(centroids=vector_clusters.centroids_path, gpu_note=GPU_NOTE if is_fitted else "")

    def forecast(self, sample: StageSample) -> Forecast:
        """Return the bytes of the vectors. An index needs twice as many, because vectors are sorted from copies."""
        size = BYTES_PER_VECTOR * sample.documents
        return Forecast(scratch_bytes=size, index_bytes=2 * size)

    def keys(self, engine: Engine, frame: Frame) -> dict[str, np.ndarray]:
        vectors, present = vector_store.vectors_of(engine, frame, self.column)
        hashes = np.where(present[:, None], vector_hashes(vectors), np.uint64(0))
        named = {name: hashes[:, index] for index, name in enumerate(vector_store.COLUMNS)}
        return named | order_key(engine, frame, self.keep)

    def phases(self) -> Sequence[Phase]:
        recall = (vector_index.INDEX_RECALL, lambda corpus: VectorIndex(self.index).parts, self._measure_index_recall)
        index = [(vector_index.INDEX, slice_group_count, self._match_index), recall] if self.index else []
        tasks = [
            *index,
            (RUNS, slice_group_count, self._write_run),
            (vector_store.EQUAL, reducer_count, vector_store.write_equal),
            (vector_store.VECTORS, slice_group_count, self._write_vectors),
            (vector_clusters.CENTROIDS, once, self._write_centroids),
            (vector_clusters.ASSIGNED, slice_group_count, self._assign),
            (vector_clusters.COMPARED, vector_clusters.compare_tasks, self._compare),
            (vector_clusters.RECALL, slice_group_count, self._measure_recall),
            (GROUPS, once, self._write_groups),
            (VALUES, slice_group_count, self._write_values),
        ]
        return (division_phase(1), *(Phase(*task, durable=True) for task in tasks))

    def _write_run(self, engine: Engine, corpus: Corpus, task: int) -> None:
        write_run(corpus, self._part(corpus, task), task, [vector_store.COLUMNS], skip_zeros=True)

    def _part(self, corpus: Corpus, number: int) -> Corpus:
        """Return the documents of a group of slices, without those that match the index."""
        part = slice_group(corpus, number)
        if not self.index:
            return part
        return part.of(np.setdiff1d(part.rows, IndexMatches.load(vector_index.matches_path(corpus, number)).position))

    def _match_index(self, engine: Engine, corpus: Corpus, task: int) -> None:
        index, units = VectorIndex(self.index), units_of(self.threshold)
        vector_index.match_slice_group(engine, corpus, task, index, self.column, self.probe, units, self.seed)

    def _measure_index_recall(self, engine: Engine, corpus: Corpus, task: int) -> None:
        index, units = VectorIndex(self.index), units_of(self.threshold)
        vector_index.measure_index_recall(engine, corpus, task, index, units, self.seed)

    def _write_vectors(self, engine: Engine, corpus: Corpus, task: int) -> None:
        vector_store.write_vectors(corpus, self._part(corpus, task), task, self.column)

    def _write_centroids(self, engine: Engine, corpus: Corpus, task: int) -> None:
        clusters = 0 if isinstance(self.clusters, str) else self.clusters
        if self.index:  # few documents may be left without those that match the index
            clusters = min(clusters, VectorStore(corpus).count)
        vector_clusters.write_centroids(engine, corpus, self.column, clusters, self.seed, self.centroids)

    def _assign(self, engine: Engine, corpus: Corpus, task: int) -> None:
        vector_clusters.assign(engine, corpus, task, self.probe)

    def _compare(self, engine: Engine, corpus: Corpus, task: int) -> None:
        vector_clusters.compare(engine, corpus, task, units_of(self.threshold))

    def _measure_recall(self, engine: Engine, corpus: Corpus, task: int) -> None:
        vector_clusters.measure_recall(engine, corpus, task, units_of(self.threshold))

    def _write_groups(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write each removed row, the row kept in its place, and the vector numbers of both, by group of slices."""
        slice_groups = range(slice_group_count(corpus))
        equal = np.concatenate([vector_store.equal_of(corpus, number) for number in slice_groups], axis=1)
        pairs = np.concatenate([equal, *vector_clusters.pairs_of(corpus)], axis=1)
        components = Components(engine, sorted_unique(pairs))
        components.join(*pairs)
        rows, labels = components.rows, components.labels()
        store = VectorStore(corpus)
        stored = rows.copy()  # each distinct vector is stored for its first row
        stored[np.searchsorted(rows, equal[0])] = equal[1]
        numbers = store.numbers_of(stored)
        kept = labels
        if self.keep != "first":
            rank = rank_by(self._weight(corpus, rows, store, numbers))
            kept = engine.group_leaders(labels.astype(np.uint64)[:, None], rank, corpus.threads)
        removed = np.flatnonzero(kept != np.arange(len(kept), dtype=kept.dtype))
        partner = kept[removed]
        bounds = np.searchsorted(rows[removed], slice_group_starts(corpus).astype(rows.dtype)).tolist()
        cells = (
            [each[low:high] for each in (numbers[removed], numbers[partner], rows[removed], rows[partner])]
            for low, high in pairwise(bounds)
        )
        write_cells(_groups_path(corpus), cells, slice_group_count(corpus))

    def _weight(self, corpus: Corpus, rows: np.ndarray, store: VectorStore, numbers: np.ndarray) -> np.ndarray:
        """Return a weight per row. Of each group, the row with the lowest weight is kept."""
        if self.keep == "longest" or not isinstance(self.keep, str):
            return weight_of(corpus, rows, self.keep)
        near = store.at(numbers, "cosines")
        return -near if self.keep == "nearest" else near

    def _write_values(self, engine: Engine, corpus: Corpus, task: int) -> None:
        """Write for each removed row of a group of slices the cosine to the row kept in its place."""
        _, _, left, right = _removed_of(corpus, task)
        values = cosines(*VectorStore(corpus).cosines(left, right)) / UNITS
        write_cells(_values_path(corpus, task), [[values]], 1)

    def decide(self, engine: Engine, corpus: Corpus) -> Decision:
        numbers = range(slice_group_count(corpus))
        pieces = (
            (*_removed_of(corpus, number)[:2], np.frombuffer(read_cell(_values_path(corpus, number), 0), np.float64))
            for number in numbers
        )
        drops = stored_drops(corpus, REASON, pieces)
        store, clusters = VectorStore(corpus), Clusters.load(vector_clusters.centroids_path(corpus))
        compared, close = vector_clusters.pair_counts(corpus)
        matches = (
            [IndexMatches.load(vector_index.matches_path(corpus, number)) for number in numbers] if self.index else []
        )
        matched = sum(len(entry.position) for entry in matches)
        details: dict[str, Any] = {
            "vectors": store.count,
            "equal_vectors": store.present - store.count,
            "without_vector": len(corpus.rows) - store.present - matched,
            "clusters": len(clusters.centroids),
            "largest_cluster": int(vector_clusters.cluster_sizes(store, len(clusters.centroids)).max(initial=0)),
            "pairs_compared": compared,
            "pairs_close": close,
            "recall": vector_clusters.recall_of(corpus),
            "removed_by_chain": count_below(drops, units_of(self.threshold) / UNITS),
            **group_sizes(corpus, np.asarray(drops.partner)),
            **checked_counts(corpus, self.keep),
        }
        if not self.index:
            return Decision((drops,), details=details)
        index = VectorIndex(self.index)
        details["index"] = vector_index.index_details(corpus, index, matches, self.seed)
        return Decision((drops, matched_drops(corpus, INDEX_REASON, index.folder, matches)), details=details)

    def new_index(self) -> NewIndex:
        tasks = [
            (vector_index.SORTED, slice_group_count, self._sort_by_cluster),
            (vector_index.PARTS, vector_index.part_count, vector_index.write_part),
        ]
        phases = (division_phase(1), *(Phase(*task, durable=True) for task in tasks))
        return NewIndex(self._write_index, phases, {"vectors": vector_index.VERSION}, vector_index.FOLDER)

    def _sort_by_cluster(self, engine: Engine, corpus: Corpus, task: int) -> None:
        vector_index.sort_by_cluster(engine, corpus, task, self.column)

    def _write_index(
        self, corpus: Corpus, folder: Path, ids_of: Callable[[np.ndarray], pa.Array], earlier: Sequence[Stage]
    ) -> None:
        vector_index.write_clusters(corpus)
        write_index(folder, {"vectors": vector_index.VERSION} | self._origin(earlier), corpus, ids_of)


def _groups_path(corpus: Corpus) -> Path:
    return corpus.scratch / GROUPS / "groups.bin"


def _values_path(corpus: Corpus, number: int) -> Path:
    return corpus.scratch / VALUES / f"{number:06d}.bin"


def _removed_of(corpus: Corpus, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the removed rows of a group of slices, ascending, the rows kept in their places, and the vector numbers of
    both."""
    data, kind = read_cell(_groups_path(corpus), number), np.dtype(row_type(corpus))
    count = len(data) // (16 + 2 * kind.itemsize)
    left, right = np.frombuffer(data, np.int64, 2 * count).reshape(2, -1)
    row, partner = np.frombuffer(data, kind, 2 * count, 16 * count).reshape(2, -1)
    return row, partner, left, right
