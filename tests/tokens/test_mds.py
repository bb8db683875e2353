# SPDX-License-Identifier: Apache-2.0
"""The package of MosaicML Streaming reads `mds/` of a run, and its own writer writes the same bytes."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from curation.recipes.recipe import convert_recipe
from curation.results.finished.verify import verify
from curation.running.run import run
from tests.needs import REMEDIES
from tests.tokens.samples import make_texts, write_jsonl

LENGTH = 64
SHARD_BYTES = 4000
# Packages of `streaming` that nothing here uses; they need torchvision and transformers.
UNUSED = ("multimodal", "text", "vision", "base.dataloader")


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if importlib.util.find_spec("streaming") is None:
        pytest.skip(f"streaming is not installed: {REMEDIES['streaming']}")
    for name in UNUSED:
        monkeypatch.setitem(sys.modules, f"streaming.{name}", ModuleType(name))
    monkeypatch.setattr(sys.modules["streaming.base.dataloader"], "StreamingDataLoader", None, raising=False)
    return importlib.import_module("streaming")


def test_the_package_reads_and_writes_the_same(streaming: ModuleType, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "news.jsonl", make_texts(200))
    sizes = {"mds": {"length": LENGTH, "shard_bytes": SHARD_BYTES}, "blocks": {"length": LENGTH}}
    output = {"formats": [*sizes], **sizes, "splits": {"train": 0.8, "valid": 0.2}}
    run(convert_recipe({"input": [{"path": str(path)}], "stages": [], "output": output}), tmp_path / "out")
    for split in output["splits"]:
        rows = np.load(tmp_path / f"out/blocks/{split}_00000.npy").astype(np.int32)
        folder = str(tmp_path / "out/mds")
        dataset = streaming.StreamingDataset(local=folder, split=split, batch_size=4, validate_hash="sha256")
        found = [dataset[number]["tokens"] for number in range(len(dataset))]
        assert {array.dtype for array in found} == {np.dtype(np.int32)}
        assert np.array_equal(found, rows)
        theirs = tmp_path / "theirs" / split
        columns = {"tokens": f"ndarray:int32:{LENGTH}"}
        with streaming.MDSWriter(columns=columns, out=str(theirs), hashes=["sha256"], size_limit=SHARD_BYTES) as out:
            for row in rows:
                out.write({"tokens": row})
        ours = tmp_path / "out/mds" / split
        assert len([*theirs.iterdir()]) > 3
        assert {p.name: p.read_bytes() for p in theirs.iterdir()} == {p.name: p.read_bytes() for p in ours.iterdir()}
    assert verify(tmp_path / "out") == []  # reading left nothing behind
