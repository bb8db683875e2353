# SPDX-License-Identifier: Apache-2.0
"""A run and the lazy functions of the library on the GPU engine's own modules, over NumPy and pandas: everything they
call is there, and what comes out is what the CPU engine gives."""

import gzip

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base import engine as selector
from curation.running.run import run
from tests.gpu import stand_ins
from tests.runs import kept_rows, made_texts, recipe_of, records_of, removed_rows

STAGES = [
    {"kind": "rewrite", "unicode": "nfc", "whitespace": "collapse"},
    {"kind": "filter", "rules": ["gopher_repetition", {"measure": "words", "min": 5}]},
    {"kind": "exact_dedup", "compare": "lowercase"},
    {"kind": "fuzzy_dedup", "threshold": 0.5},
    {"kind": "redact"},
]


@pytest.fixture
def gpu(monkeypatch):
    """The engine module "gpu" over stand-ins."""
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    return stand_ins.install_engine(monkeypatch)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "made.jsonl"
    texts = made_texts(60, 0)
    longer = [f"{text} and one@mail.example" for text in texts[:20]]
    path.write_bytes(records_of([*longer, *texts]) + b"no json\n")
    return path


def test_a_run_gives_the_same_as_on_the_cpu(gpu, corpus, tmp_path):
    recipe = recipe_of(corpus, stages=STAGES, output={"formats": []})
    found = {}
    for engine in ("cpu", "gpu"):
        report = run(recipe, tmp_path / engine, engine=engine, slice_bytes=4000, workers=2).report
        assert report["engine"] == engine
        found[engine] = kept_rows(tmp_path / engine), removed_rows(tmp_path / engine), report["documents"]
    assert found["gpu"] == found["cpu"]
    assert 10 < len(found["gpu"][0]) < 60
    assert sum("[REDACTED]_EMAIL" in row[-1] for row in found["gpu"][0]) > 5


@pytest.mark.filterwarnings("ignore::curation.base.errors.InputWarning")  # the corpus has a bad line
def test_the_device_reads_each_slice_once(gpu, corpus, tmp_path, monkeypatch):
    """The same partitions as on the CPU. Only texts that may be blank are copied to the host."""
    monkeypatch.setattr("curation.reading.lines.LINES_AT_ONCE", 9)  # slices of several batches
    table = pa.table({"text": [f"page {k}" for k in range(30)], "url": [f"u{k}" for k in range(30)]})
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=10)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"one line\n\n  \nanother\n"))
    parquet = curation.Input(tmp_path / "b.parquet", columns=["url"], id_column="url")
    inputs = [curation.Input(corpus, sample=0.5), parquet, tmp_path / "c.txt.gz"]
    reads, copied = [], []
    read_slice, to_arrow = gpu.read_slice, gpu.to_arrow

    def of_device(input_slice, batch_bytes):
        reads.append(input_slice.index)
        return read_slice(input_slice, batch_bytes)

    monkeypatch.setattr(gpu, "read_slice", of_device)

    def to_host(frame):
        copied.extend(frame.get("text", ()))
        return to_arrow(frame)

    monkeypatch.setattr(gpu, "to_arrow", to_host)
    for settings in ({}, {"slice_bytes": 3000}):
        found = curation.read(inputs, engine="gpu", **settings)
        expected = curation.read(inputs, engine="cpu", **settings)
        assert reads == [] and found.npartitions == expected.npartitions >= 3
        parts = dask.compute(*found.to_delayed(), scheduler="synchronous")
        assert sorted(reads) == list(range(found.npartitions))
        assert not any(text[:1].isalnum() for text in copied)
        assert all(isinstance(part, stand_ins.DataFrame) for part in parts)
        for part, other in zip(parts, dask.compute(*expected.to_delayed()), strict=True):
            pd.testing.assert_frame_equal(pd.DataFrame(part), other)
        assert sum(map(len, parts)) > 20
        reads.clear()


def chain(frame):
    frame = curation.rewrite(frame, unicode="nfc", whitespace="collapse")
    frame = curation.filter(frame, STAGES[1]["rules"])
    frame = curation.exact_dedup(frame, compare="lowercase")
    frame = curation.fuzzy_dedup(frame, threshold=0.5)
    frame = curation.redact(frame)
    return curation.measure(frame, ["words", "top_2gram_count"])


@pytest.mark.slow("functions of the GPU engine over NumPy give the CPU engine's frames, lazily and at once")
@pytest.mark.filterwarnings("ignore::curation.base.errors.InputWarning")  # the corpus has a bad line
def test_lazily_and_at_once_as_on_the_cpu(gpu, corpus, monkeypatch):
    expected = chain(curation.read(corpus, engine="cpu").compute()).reset_index(drop=True)
    monkeypatch.setitem(selector.FRAME_LIBRARIES, "tests", "gpu")  # of `stand_ins.DataFrame`
    lazy = curation.read(corpus, engine="gpu", slice_bytes=4000)
    assert isinstance(lazy, dd.DataFrame) and lazy.npartitions > 2
    for frame in (chain(lazy).compute(), chain(lazy.compute())):
        assert frame["text"].str.contains("_EMAIL").sum() > 5
        pd.testing.assert_frame_equal(pd.DataFrame(frame).reset_index(drop=True), expected)
    assert curation.read(corpus, engine="gpu").npartitions == 1
    plain = curation.rewrite(curation.ngram_dedup(lazy, ngram=3), lowercase=True).compute()
    renamed = lazy.rename(columns={"text": "body"})
    for frame in (renamed, renamed.compute()):
        found = curation.ngram_dedup(frame, ngram=3, text_column="body")
        found = curation.rewrite(found, lowercase=True, text_column="body")
        found = found.compute() if isinstance(found, dd.DataFrame) else found
        assert found["body"].tolist() == plain["text"].tolist() and 0 < len(found) < 80
