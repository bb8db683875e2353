# SPDX-License-Identifier: Apache-2.0
"""Inputs of the tests that walk all commands that write."""

import json
import shutil
from pathlib import Path

import pytest

from curation.cli.main import main
from tests.models.tiny_files import write_static


@pytest.fixture(scope="module")
def command_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the texts d.jsonl and e.jsonl, the recipes r.yaml and s.yaml, a configuration of another tool, a
    task of generate, a model of vectors, the run o and its copy, and the run old of s.yaml."""
    folder = tmp_path_factory.mktemp("commands")
    for name, words in (("d", ("one", "two", "three")), ("e", ("uno", "dos", "tres"))):
        texts = ["good text. " + " ".join(words[(k * n) % 3] + str(k * n % 7) for n in range(40)) for k in range(40)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "other.yaml").write_text("project_name: x\ndataset_path: d.jsonl\nprocess: [{words_num_filter: {}}]\n")
    recipe = {"input": [{"path": str(folder / "d.jsonl")}], "stages": [{"kind": "exact_dedup"}]}
    (folder / "r.yaml").write_text(json.dumps(recipe))
    write_static(folder / "model")
    recipe |= {"stages": [{"kind": "embed", "model": str(folder / "model")}], "output": {"formats": []}}
    (folder / "s.yaml").write_text(json.dumps(recipe))
    task = {"kind": "template", "endpoint": "http://127.0.0.1:9/v1", "model": "m", "seeds": ["a", "b"]}
    (folder / "task.yaml").write_text(json.dumps(task | {"prompt": "on {text}", "concurrency": 1, "retries": 0}))
    for name, output in (("r.yaml", "o"), ("s.yaml", "old")):
        assert main(["run", str(folder / name), "-o", str(folder / output), "--engine", "cpu", "--quiet"]) == 0
    shutil.copytree(folder / "o", folder / "copy")
    return folder
