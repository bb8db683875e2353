# SPDX-License-Identifier: Apache-2.0
"""Runs of each engine, on threads and on processes of their own, leave the bytes that one thread of the CPU leaves."""

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.engine import PACKAGES
from curation.running.run import run
from tests.runs import data_digests, made_texts, recipe_of, records_of, rejected_rows, report_of

STAGES = [
    {"kind": "rewrite", "unicode": "nfc", "whitespace": "lines"},
    {"kind": "filter", "rules": [{"measure": "words", "min": 3, "reason": "short"}, {"measure": "lines", "max": 50}]},
    {"kind": "measure", "names": ["characters", "top_2gram_count"]},
    {"kind": "exact_dedup"},
    {"kind": "filter", "rules": "gopher_repetition"},
    {"kind": "fuzzy_dedup", "ngram": 3, "threshold": 0.5},
    {"kind": "substring_dedup", "length": 32, "min_kept": 9},
]


def write_parquet(path: Path, texts: list[str | bytes | None], group: int) -> None:
    """Bytes that are no UTF-8 stand in a string column, as other writers leave them."""
    raw = pa.array([text.encode() if isinstance(text, str) else text for text in texts], pa.binary())
    column = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers(), raw.null_count)
    pq.write_table(pa.table({"text": column}), path, row_group_size=group)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "rows").mkdir()
    plain = made_texts(1500, seed=1)
    write_parquet(folder / "rows" / "plain.parquet", plain[:700], 100)
    write_parquet(folder / "rows" / "small.parquet", plain[700:720], 100)
    write_parquet(folder / "rows" / "unusual.parquet", [*plain[720:900], None, b"caf\xe9 " * 20, *plain[900:]], 64)
    (folder / "lines.jsonl").write_bytes(records_of(made_texts(600, seed=2)) + b"no record\n")
    return [{"path": str(folder / "rows"), "name": "rows"}, {"path": str(folder / "lines.jsonl"), "name": "lines"}]


@pytest.fixture(scope="module")
def expected(inputs: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("expected") / "out"
    found = run(recipe_of(*inputs, stages=STAGES), folder, engine="cpu", workers=1).report["documents"]
    assert min(found[name] for name in ("kept", "removed", "rejected", "edited")) > 0
    assert report_of(folder)["stages"][-1]["details"]["bytes"] > 0
    return folder


@pytest.mark.parametrize(
    "scheduler",
    [
        "threads",
        pytest.param(
            "processes", marks=pytest.mark.slow("whole runs on processes are byte-identical to runs on threads")
        ),
    ],
)
def test_the_same_bytes(
    engine: ModuleType, inputs: list[dict[str, str]], expected: Path, tmp_path: Path, scheduler: str
):
    name = next(name for name, package in PACKAGES.items() if package == engine.__name__)
    recipe = recipe_of(*inputs, stages=STAGES)
    run(recipe, tmp_path / "out", engine=name, workers=2, scheduler=scheduler, slice_bytes=30_000)
    assert data_digests(tmp_path / "out") == data_digests(expected)
    assert rejected_rows(tmp_path / "out") == rejected_rows(expected)


def test_the_same_rows_in_files_that_the_engine_encodes(
    engine: ModuleType, inputs: list[dict[str, str]], expected: Path, tmp_path: Path
):
    name = next(name for name, package in PACKAGES.items() if package == engine.__name__)
    run(recipe_of(*inputs, stages=STAGES, output={"parquet": "gpu"}), tmp_path / "out", engine=name, workers=2)
    assert pq.read_table(tmp_path / "out" / "documents").equals(pq.read_table(expected / "documents"))
    found, wanted = data_digests(tmp_path / "out"), data_digests(expected)
    others = {path for path in wanted if not path.startswith("documents/")}
    assert others and {path: found[path] for path in others} == {path: wanted[path] for path in others}
