# SPDX-License-Identifier: Apache-2.0
"""Write the outputs of the notebooks: `make notebooks`. A slow test compares them.

Outputs have no times, paths and versions: the line of progress and messages of libraries are left out, and the folders
of a notebook are FOLDER.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

from curation.base.system.progress import NOTEBOOK_MARK

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
WITHOUT_OUTPUTS = ("cpu_and_gpu", "tiny_gpt")  # which depend on the machine
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def executed(path: Path, folder: Path) -> Any:
    """Return a notebook after a run from a clean kernel, whose temporary folders are in `folder`."""
    notebook = nbformat.read(path, as_version=4)
    environment = {"TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute(env={**os.environ, **environment})
    return notebook


def with_plain_outputs(notebook: Any, folder: Path) -> Any:
    """Return a notebook as it is committed: without what depends on the machine and on the time."""
    notebook.metadata = METADATA
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kept = [output for output in cell.outputs if not _is_passing(output)]
            named = re.sub(rf"{re.escape(str(folder))}(/tmp\w+)?", "FOLDER", json.dumps(kept))
            cell.outputs = [nbformat.from_dict(output) for output in json.loads(named)]
    return notebook


def _is_passing(output: Any) -> bool:
    return output.get("name") == "stderr" or output.get("metadata", {}).get("curation") == NOTEBOOK_MARK["curation"]


def made(path: Path) -> str:
    """Return the file of a notebook with its outputs."""
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder).resolve()
        notebook = with_plain_outputs(executed(path, folder), folder)
    return str(nbformat.writes(notebook)) + "\n"


def main() -> None:
    """Write all notebooks that have outputs."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        if path.stem not in WITHOUT_OUTPUTS:
            path.write_text(made(path), "utf-8")


if __name__ == "__main__":
    main()
