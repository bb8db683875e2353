# SPDX-License-Identifier: Apache-2.0
"""`documents/` and `removed/` encoded by the device: the same rows, types, tokens and digests as by the host, on a
made device."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cpu_fallback
from cpu_fallback.parquet import parquet_file as host_file
from curation.base import engine as selector
from curation.base.errors import EngineError, InputError, RecipeError
from curation.recipes import recipe as recipes
from curation.recipes.recipe import convert_recipe
from curation.record.documents import document_options
from curation.results.finished.verify import verify
from curation.results.report.report import output_notes
from curation.running.run import run
from tests.gpu import stand_ins
from tests.runs import data_digests, recipe_of, records_of

TEXTS = [f"document {k} é " + "and more words " * (k % 7) for k in range(60)] + [""]
STAGES: list[Any] = [{"filter": {"rules": [{"measure": "words", "min": 12, "reason": "short"}]}}, "exact_dedup"]
TYPES = pa.schema(
    [("doc", pa.int64()), ("id", pa.large_string()), ("flag", pa.bool_()), ("text", pa.large_string()),
     ("score", pa.float64())]
)  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    made = stand_ins.install_engine(monkeypatch)
    monkeypatch.setattr(made, "tokenize", cpu_fallback.tokenize)  # kernels are slow here
    return made


def tables(count: int) -> list[pa.Table]:
    texts = ["x" * 50, None, "naïve"]
    made = {"doc": [1, 2, 3], "id": ["a", "b", None], "flag": [True, None, False], "text": texts}
    made["score"] = [float("nan"), 0.5, None]
    return [pa.table(made, TYPES) for _ in range(count)]


@pytest.mark.parametrize(("count", "batch"), [(0, 1), (1, 1 << 20), (3, 1), (5, 700)])
def test_files_of_both_engines_have_the_same_rows_and_types(gpu, tmp_path: Path, monkeypatch, count: int, batch: int):
    monkeypatch.setitem(gpu.parquet_file.__wrapped__.__globals__, "BATCH_BYTES", batch)
    for name, open_file in (("host", host_file), ("device", gpu.parquet_file)):
        with open_file(tmp_path / name, TYPES, document_options(TYPES)) as file:
            for table in tables(count):
                frame = file.write(table)
                assert name == "host" or [*frame.columns] == TYPES.names
    host, device = (pq.read_table(tmp_path / name) for name in ("host", "device"))
    assert device.schema.equals(host.schema) and device.equals(host) and host.schema.field("text").type == pa.string()
    assert host.column("score").to_pylist() == [None, 0.5, None] * count
    metadata = pq.read_metadata(tmp_path / "device")
    assert metadata.num_rows == 3 * count and (not count or metadata.row_group(0).column(3).compression == "ZSTD")
    assert not count or not metadata.row_group(0).column(3).is_stats_set  # a document could be in the footer


@pytest.fixture
def reports(gpu, tmp_path: Path):
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(TEXTS))
    found = {}
    for engine, parquet in (("cpu", "cpu"), ("cpu", "gpu"), ("gpu", "cpu"), ("gpu", "gpu")):
        output = {"formats": ["megatron"], "parquet": parquet, "part_documents": 25}
        folder = tmp_path / f"{engine}-{parquet}"
        report = run(recipe_of(path, stages=STAGES, output=output), folder, engine=engine, workers=1).report
        found[engine, parquet] = folder, report
    return found


def test_runs_have_the_same_documents_tokens_and_digests_of_rows(reports):
    folder, expected = reports["cpu", "cpu"]
    rows, removed = (pq.read_table(folder / name) for name in ("documents", "removed"))
    assert removed.column("text").null_count == 0 < len(removed)
    for (engine, parquet), (other, report) in reports.items():
        assert pq.read_table(other / "documents").equals(rows)
        assert pq.read_table(other / "removed").equals(removed)
        assert verify(other) == []
        for name, digest in expected["outputs"].items():
            is_same = report["outputs"][name] == digest
            device = name.startswith(("documents/", "removed/")) and (engine, parquet) == ("gpu", "gpu")
            assert is_same != device or name.startswith("tokens/_meta/")
        assert report["documents_digest"] == expected["documents_digest"]


def test_texts_go_to_the_device_once_for_tokens_and_file(gpu, tmp_path: Path, monkeypatch):
    path, sizes = tmp_path / "made.jsonl", []
    path.write_bytes(records_of(TEXTS))
    monkeypatch.setattr(
        sys.modules["gpu_pipeline.memory.buffers"], "upload", lambda host: sizes.append(host.size) or host.copy()
    )
    trips = dict[str, int]()
    for parquet in ("cpu", "gpu"):
        sizes.clear()
        output = {"formats": ["megatron"], "parquet": parquet}
        run(recipe_of(path, stages=[], output=output), tmp_path / parquet, engine="gpu", workers=1)
        text = sum(len(each.encode()) for each in TEXTS)
        trips[parquet] = sum(size >= text for size in sizes)
    assert trips == {"cpu": 2, "gpu": 2}  # of the text as read, and of the kept one


def test_what_cudf_cannot_write_is_one_message(gpu, tmp_path: Path, monkeypatch):
    def fail(self, columns, partitions_info=None):
        raise RuntimeError("CUDF failure at: writer_impl.cu: nvcomp is disabled\nand more")

    monkeypatch.setattr(stand_ins.ChunkedWriter, "write", fail)
    message = r"cuDF cannot write .* \(CUDF failure .* nvcomp is disabled\)\. Leave output"
    with (
        pytest.raises(EngineError, match=message),
        gpu.parquet_file(tmp_path / "file", TYPES, document_options(TYPES)) as file,
    ):
        file.write(tables(1)[0])


def test_no_nan_goes_to_the_device(gpu, tmp_path: Path, monkeypatch):
    """The stand-in of cuDF reads NaN as null, so what it is given is looked at."""
    names, given = gpu.parquet_file.__wrapped__.__globals__, []
    from_arrow = names["from_arrow"]
    monkeypatch.setitem(names, "from_arrow", lambda table: given.append(table) or from_arrow(table))
    with gpu.parquet_file(tmp_path / "file", TYPES, document_options(TYPES)) as file:
        file.write(tables(1)[0])
    assert given[0].column("score").to_pylist() == [None, 0.5, None]


@pytest.mark.parametrize("writer", ["host", "device"])
def test_a_text_of_2_gib_is_one_message(gpu, tmp_path: Path, monkeypatch, writer: str):
    monkeypatch.setattr("curation.base.parquet.LARGEST_STRING", 40)
    open_file = host_file if writer == "host" else gpu.parquet_file
    message = r"column 'text' of document 'a' has a value of 50 bytes, .* at most 40\. Set max_document_bytes"
    with pytest.raises(InputError, match=message), open_file(tmp_path / "a", TYPES, document_options(TYPES)) as file:
        file.write(tables(1)[0])


def test_the_cpu_engine_says_that_it_does_not_use_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.jsonl").write_bytes(records_of(TEXTS))
    said = []
    for parquet in ("gpu", "cpu"):
        recipe = recipe_of(tmp_path / "a.jsonl", stages=[], output={"formats": [], "parquet": parquet})
        run(recipe, tmp_path / parquet, engine="cpu", progress=True)
        said.append([line for line in capsys.readouterr().err.splitlines() if "output.parquet" in line])
    assert said == [[output_notes(recipe_of(output={"parquet": "gpu"}).output, "cpu")[0]], []]
    chosen, offered = (output_notes(recipe_of(output={"parquet": name}).output, "gpu")[0] for name in ("gpu", "cpu"))
    assert "the GPU encodes documents/ and removed/" in chosen and "output.parquet: gpu lets the GPU" in offered
    assert data_digests(tmp_path / "gpu") == data_digests(tmp_path / "cpu")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"parquet": "device"}, "parquet must be cpu or gpu, not 'device'"),
        ({"parquet": "gpu"}, "output.parquet: gpu cannot write 'vector', a column of vectors. Leave parquet out"),
    ],
)
def test_recipes_that_it_cannot_write_are_refused(monkeypatch: pytest.MonkeyPatch, output: dict, message: str):
    monkeypatch.setattr(recipes, "added_columns", lambda stages: {"vector": "int8[8]"})  # as of the stage `embed`
    with pytest.raises(RecipeError, match=message):
        convert_recipe({"output": output})
