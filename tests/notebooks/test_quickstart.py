# SPDX-License-Identifier: Apache-2.0
"""The notebook runs from a clean kernel, and its own assertions hold."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


# The kernel's sockets are closed by its own threads, at times after the test.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning")
def test_quickstart_runs_from_a_clean_kernel():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(cell.get("execution_count") is None for cell in notebook.cells), "committed with outputs"
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
