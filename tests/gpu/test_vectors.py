# SPDX-License-Identifier: Apache-2.0
"""Vectors on the GPU engine's own modules over stand-ins: k-means by cuML's interface, forms of list columns."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import orjson
import pyarrow as pa
import pytest

from curation.base import engine as selector
from curation.base.errors import InputError
from curation.models.vectors import from_column, quantised, to_column
from curation.running.run import run
from tests.gpu import stand_ins
from tests.models.tiny_files import LETTERS, write_static
from tests.runs import files_below, recipe_of, removed_rows

DIMENSIONS = 6


class KMeans:
    """`cuml.cluster.KMeans`, with its parameters: rounds of Lloyd from given centroids."""

    seeds: ClassVar[list[int]] = []

    def __init__(
        self, *, n_clusters: int = 8, max_iter: int = 300, tol: float = 1e-4, verbose: bool = False,
        random_state: int | None = None, init: Any = "scalable-k-means++", n_init: Any = "auto",
        oversampling_factor: float = 2.0, max_samples_per_batch: int = 1 << 15, device_buffer_samples: int = 0,
        init_size: int = 0, output_type: str | None = None,
    ) -> None:  # fmt: skip
        assert isinstance(init, np.ndarray) and len(init) == n_clusters and n_init == 1 and output_type == "cupy"
        assert random_state is not None and 0 <= random_state < 2**31
        self.centres, self.rounds, self.tol = init.copy(), max_iter, tol
        KMeans.seeds.append(random_state)

    def fit(self, sample: np.ndarray) -> KMeans:
        assert sample.dtype == np.float32 and sample.flags.c_contiguous and sample.shape[1] == self.centres.shape[1]
        if self.tol <= 0:
            raise RuntimeError("invalid parameter (tol<=0)")  # of cuVS
        if len(self.centres) > len(sample):
            raise ValueError("n_clusters is larger than the number of samples")
        for _ in range(self.rounds):
            before = self.centres.copy()
            home = np.square(sample[:, None] - self.centres[None]).sum(axis=2).argmin(axis=1)
            for cluster in np.unique(home):
                self.centres[cluster] = sample[home == cluster].mean(axis=0)
            if np.square(self.centres - before).sum() < self.tol:
                break
        self.cluster_centers_ = self.centres
        return self


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The engine "gpu" over stand-ins. cuDF has no lists of fixed size, so its stand-in refuses them."""

    def from_arrow(table: pa.Table, convert: Any = stand_ins.DataFrame.from_arrow) -> Any:
        assert not any(pa.types.is_fixed_size_list(kind) for kind in table.schema.types)
        return convert(table)

    monkeypatch.setattr(stand_ins.DataFrame, "from_arrow", from_arrow)
    monkeypatch.setitem(sys.modules, "cuml", ModuleType("cuml"))
    monkeypatch.setitem(sys.modules, "cuml.cluster", SimpleNamespace(KMeans=KMeans))
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    return stand_ins.install_engine(monkeypatch)


def clouds(count: int) -> np.ndarray:
    """Float32 vectors around four directions, the first four from different ones."""
    rng = np.random.default_rng(2)
    found = np.eye(4, DIMENSIONS)[np.arange(count) % 4] + 0.05 * rng.normal(size=(count, DIMENSIONS))
    return (found / np.linalg.norm(found, axis=1)[:, None]).astype(np.float32)


def test_centroids_are_the_means_of_the_clouds(gpu: ModuleType):
    sample = clouds(80)
    found = gpu.fit_centroids(sample, 4, 10, 2**40 + 7)
    assert found.dtype == np.float32 and KMeans.seeds[-1] == 7
    np.testing.assert_allclose(found, [sample[cloud::4].mean(axis=0) for cloud in range(4)], atol=1e-6)


def test_a_missing_cuml_is_one_message(gpu: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cuml.cluster", None)
    with pytest.raises(InputError, match=r"cuML finds the clusters on the GPU, and is not installed\. pip install"):
        gpu.fit_centroids(clouds(8), 2, 1, 1)


def test_a_column_of_vectors_keeps_its_numbers_and_nulls_in_frames(gpu: ModuleType):
    vectors, _ = quantised(clouds(9))
    present = np.arange(9) % 4 != 1
    vectors[~present] = 0
    table = pa.table({"text": [*"abcdefghi"], "v": to_column(vectors, present), "n": range(9)})
    for part in (table, table.slice(2, 5), table.slice(1, 1), table.slice(0, 0)):
        back = gpu.to_arrow(gpu.from_arrow(part))
        assert back.schema.names == ["text", "v", "n"] and back.column("n").to_pylist() == part.column("n").to_pylist()
        expected, found = from_column(part.column("v"), "v"), from_column(back.column("v"), "v")
        assert found[1].tolist() == expected[1].tolist()
        if expected[1].any():
            assert found[0].dtype == np.int8 and (found[0] == expected[0]).all()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rng = np.random.default_rng(6)
    texts = [" ".join(rng.choice(list(LETTERS), 6)) for _ in range(60)]
    texts += [" ".join(sorted(text.split())) for text in texts[::3]] + ["", "?"]
    lines = [orjson.dumps({"id": str(number), "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    write_static(tmp_path / "model")
    return tmp_path


def run_on(engine: str, corpus: Path, *assigned: Any, **settings: Any) -> tuple[Any, ...]:
    stages = [
        {"kind": "embed", "model": str(corpus / "model")},
        {"kind": "semantic_dedup", "threshold": 0.99, "probe": 1, **settings},
        *assigned,
    ]
    out = corpus / f"{engine}{len(settings)}"
    recipe = recipe_of(corpus / "in.jsonl", stages=stages, output={"formats": []})
    report = run(recipe, out, engine=engine, workers=2, slice_bytes=1000, progress=True).report
    assert report["engine"] == engine
    return files_below(out / "documents"), removed_rows(out), report["stages"][1]["details"]


def test_both_engines_store_the_same_vectors_and_keep_the_same_documents(
    gpu: ModuleType, corpus: Path, capsys: pytest.CaptureFixture[str]
):
    before = len(KMeans.seeds)
    fitted = run_on("gpu", corpus, clusters=5)
    note = "semantic_dedup: cuML may find other clusters than the CPU engine"
    assert capsys.readouterr().err.count(note) == 1
    assert len(KMeans.seeds) == before + 1 and fitted[2]["clusters"] == 5
    centroids = str(corpus / "gpu1" / "centroids" / "stage-2.npz")
    assigned = {"kind": "assign_clusters", "centroids": centroids}
    given = [run_on(engine, corpus, assigned, centroids=centroids, keep="nearest") for engine in ("cpu", "gpu")]
    assert given[0] == given[1] and len(given[0][1]) >= 20 and given[0][2]["without_vector"] == 2
    assert note not in capsys.readouterr().err
