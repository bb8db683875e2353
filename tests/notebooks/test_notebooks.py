# SPDX-License-Identifier: Apache-2.0
"""The notebooks run from a clean kernel, and their own assertions hold. Their outputs are those that are committed."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

from tests.scripts.make_notebooks import WITHOUT_OUTPUTS, executed, with_plain_outputs

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDS = {"tiny_gpt": "torch"}
NAMES = ["ablate", "cpu_and_gpu", "near_duplicates", "own_stage", "quickstart", "thresholds", "tiny_gpt"]
STEPS = "5"  # of the training in tiny_gpt
PASSING = re.compile(r"/tmp\b|/home/|/root/|<script|Traceback|done in|\bstderr\b")  # paths, times, scripts


def test_all_notebooks_are_here_and_listed():
    assert [path.stem for path in NOTEBOOKS] == NAMES
    for page in ("README.md", "docs/notebooks.md"):
        text = (ROOT / page).read_text("utf-8")
        missing = [name for name in NAMES if f"notebooks/{name}.ipynb" not in text]
        assert missing == [] or (page == "README.md" and "docs/notebooks.md" in text)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_committed_without_times_and_paths(path: Path):
    notebook = json.loads(path.read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    if path.stem in WITHOUT_OUTPUTS:
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    else:
        outputs = json.dumps([cell["outputs"] for cell in code])
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert "text/html" in outputs and not PASSING.findall(outputs)
    assert "version" not in notebook["metadata"]["language_info"]
    assert not [cell for cell in notebook["cells"] if cell["metadata"]]
    assert notebook["cells"][0]["cell_type"] == "markdown" and notebook["cells"][0]["source"][0].startswith("# ")
    nbformat.validate(nbformat.from_dict(notebook))


# The kernel's sockets are closed by its own threads, at times after the test.
@pytest.mark.slow("every notebook runs from a clean kernel, and its outputs are those that are committed")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_a_clean_kernel(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    needed = NEEDS.get(path.stem, "curation")
    if find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: pip install {needed}")
    monkeypatch.setenv("NOTEBOOK_STEPS", STEPS)
    notebook = executed(path, tmp_path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    check_outputs(path.stem, [output for cell in code for output in cell.outputs])
    if path.stem not in WITHOUT_OUTPUTS:
        committed, now = nbformat.read(path, as_version=4), with_plain_outputs(notebook, tmp_path)
        for cell, then in zip(now.cells, committed.cells, strict=True):
            assert cell == then, f"run `make notebooks`: {cell.source}"


def check_outputs(name: str, outputs: list[Any]) -> None:
    """Charts are drawn, runs are tables, and each notebook says what it should."""
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    text = "".join(output.get("text", "") for output in outputs)
    assert "text/html" in kinds and "Traceback" not in text
    if name in ("ablate", "thresholds"):
        assert any("<svg " in output.get("data", {}).get("text/html", "") for output in outputs)
    if name == "cpu_and_gpu":
        assert ("engine cpu" in text and "There is no usable GPU here" in text) or "engine gpu" in text
    if name == "tiny_gpt":
        assert "loss " in text
