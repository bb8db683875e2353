# SPDX-License-Identifier: Apache-2.0
"""Inputs of the tests that walk all commands that write."""

import json
import shutil
from pathlib import Path

import pytest

from curation.cli.main import main


@pytest.fixture(scope="module")
def command_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the texts d.jsonl and e.jsonl, the recipe r.yaml, a configuration of another tool, and two runs."""
    folder = tmp_path_factory.mktemp("commands")
    for name, words in (("d", ("one", "two", "three")), ("e", ("uno", "dos", "tres"))):
        texts = [" ".join(words[(k * n) % 3] + str(k * n % 7) for n in range(40)) for k in range(40)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "other.yaml").write_text("project_name: x\ndataset_path: d.jsonl\nprocess: [{words_num_filter: {}}]\n")
    recipe = {"input": [{"path": str(folder / "d.jsonl")}], "stages": [{"kind": "exact_dedup"}]}
    (folder / "r.yaml").write_text(json.dumps(recipe))
    assert main(["run", str(folder / "r.yaml"), "-o", str(folder / "o"), "--engine", "cpu", "--quiet"]) == 0
    shutil.copytree(folder / "o", folder / "copy")
    return folder
