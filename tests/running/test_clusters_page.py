# SPDX-License-Identifier: Apache-2.0
"""The first two examples of `docs/clusters.md`, executed on this machine, write what one process writes."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from curation.results.finished.verify import verify
from tests.needs import needs
from tests.runs import STAGES, made_texts, records_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clusters.md"


def examples() -> list[str]:
    return re.findall(r"```bash\n((?!#!).*?)```", PAGE.read_text("utf-8"), re.DOTALL)[:2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe, and the programs that the page calls."""
    made = tmp_path_factory.mktemp("page")
    (made / "made.jsonl").write_bytes(records_of(made_texts(100)))
    recipe = {"input": [{"path": str(made / "made.jsonl")}], "stages": STAGES}
    (made / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (made / "bin").mkdir()
    for name, code in {
        "curate": "from curation.cli.main import main",
        "dask": "from dask.__main__ import main",
    }.items():
        program = made / "bin" / name
        program.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -c '{code}; main()' \"$@\"\n")
        program.chmod(0o755)
    return made


@pytest.mark.slow("the examples of `docs/clusters.md` run")
@pytest.mark.parametrize("number", range(2))
def test_examples_run(number: int, folder: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        text = examples()[number].replace("8799", str(free.getsockname()[1]))
    if "dask" in text:
        needs("distributed")
    here = folder / str(number)
    here.mkdir()
    environment = os.environ | {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euc", f"cp ../recipe.yaml .\n{text}"]
    finished = subprocess.run(
        command, cwd=here, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert verify(here / "out") == []
