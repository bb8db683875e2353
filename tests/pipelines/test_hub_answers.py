# SPDX-License-Identifier: Apache-2.0
"""`datasets` and the command line against a hub on this machine: what is asked for, what each answer comes to, and what
is kept of a data set that came in part."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from curation.finished.verify import verify
from tests.needs import needs
from tests.pipelines.fake_hub import Hub, serve
from tests.runs import data_digests, kept_rows, report_of

needs("datasets")

ROOT = Path(__file__).resolve().parents[2]
# The libraries wait between tries, and take the address of the hub from the environment when they are imported.
SERVER = """
import json, os, sys, time
time.sleep = lambda _: None
import cpu_fallback, datasets
from curation.cli import main
from curation.running import run

for line in sys.stdin:
    child = os.fork()
    if not child:
        with open(sys.argv[1], "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        code = main(json.loads(line))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
RECIPE = "input: [{{path: 'hf:o/n', name: set, {}}}]\nstages: []\noutput: {{formats: []}}\n"
Curate = Callable[[Path, str], tuple[int, str]]


@contextmanager
def command_line(folder: Path, endpoint: str) -> Iterator[Curate]:
    """`curate` with this hub: each call is a copy of one process that has the libraries loaded."""
    log, path, home = folder / "log", folder / "recipe.yaml", folder / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home)}
    environment["USE_TORCH"] = "0"  # `datasets` imports it where it is, which takes as long as all the rest
    command = [sys.executable, "-c", SERVER, str(log)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def curate(out: Path, options: str) -> tuple[int, str]:
        """Runs a recipe over the data set into a folder; gives the exit code and the last line of what it says."""
        path.write_text(RECIPE.format(options))
        process.stdin.write(json.dumps(["run", str(path), "--output", str(out), "--engine", "cpu"]) + "\n")
        process.stdin.flush()
        code, shown = int(process.stdout.readline()), log.read_text()
        told = [line for line in shown.splitlines() if line.startswith("curate: ")]
        assert len(told) == (code != 0) and "Traceback" not in shown, shown
        return code, "".join(told)

    with process:
        yield curate


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def commands(server: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Curate]]:
    folder = tmp_path_factory.mktemp("commands")
    with command_line(folder, server.endpoint) as curate:
        yield folder, curate


@pytest.fixture
def hub(server: Hub) -> Hub:
    server.main, server.refuse = "a" * 40, []
    return server


@pytest.fixture
def curate(hub: Hub, commands: tuple[Path, Curate]) -> Curate:
    folder, curate = commands
    shutil.rmtree(folder / "home", ignore_errors=True)
    return curate


def texts(out: Path) -> list[str]:
    return [text for *_, text in kept_rows(out)]


def expected(*parts: str, count: int = 400) -> list[str]:
    return [f"{part} {n}" for part in parts for n in range(count)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("config: small", expected("b small train-0", "b small train-1")),
        ("config: small, revision: v1", expected("a small train-0", "a small train-1")),
        ("config: small, split: test, max_documents: 250", expected("b small test", count=250)),
        ("config: other, revision: " + "a" * 40, expected("a other")),
    ],
)
def test_name_configuration_split_and_revision(
    hub: Hub, curate: Curate, tmp_path: Path, options: str, found: list[str]
):
    hub.main = "b" * 40
    assert curate(tmp_path / "out", options) == (0, "")
    assert texts(tmp_path / "out") == found and verify(tmp_path / "out") == []
    assert report_of(tmp_path / "out")["sources"][0]["commit"] == found[0][0] * 40


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, "was not found (404). Check the name and the revision"),
        (401, "the hub denies access (401). Check the name; if it is right, accept the terms on its page"),
        (403, "the hub denies access (gated). Check the name"),
        (429, "the hub answers 429, an error on its side. Rerun the same command later"),
        (500, "the hub answers 500, an error on its side. Rerun the same command later"),
        (0, "the hub cannot be reached ("),
    ],
)
def test_what_the_hub_answers(hub: Hub, curate: Curate, tmp_path: Path, status: int, told: str):
    hub.refuse = [("", status)]
    code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and said.startswith("curate: hf:o/n:small[train]") and told in said


@pytest.mark.slow("a hub that nothing serves ends a run in one message")
def test_no_hub_at_all(tmp_path: Path):
    with command_line(tmp_path, "http://127.0.0.1:9") as curate:
        code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and "the hub cannot be reached (" in said


def test_names_inside_the_data_set(curate: Curate, tmp_path: Path):
    told = {
        "config: smal": "has no configuration 'smal'; did you mean small?",
        "config: small, split: tset": "has no split 'tset'; did you mean test?",
        "split: train": "has several configurations; set config to one of",
        "config: small, revision: v2": "was not found (404). Check the name and the revision",
    }
    for options, message in told.items():
        code, said = curate(tmp_path / "out", options)
        assert code == 2 and message in said


@pytest.mark.slow("documents of a hub data set that arrived before a failure are kept")
@pytest.mark.parametrize("status", [-1, 500])
def test_what_came_is_kept_and_goes_on_at_the_same_commit(hub: Hub, curate: Curate, tmp_path: Path, status: int):
    """The second of two files does not come; when it does, the branch has moved on."""
    assert curate(tmp_path / "whole", "config: small") == (0, "")
    hub.refuse = [("train-1.jsonl", status)]
    code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and "the connection broke after 400 documents, 4 times" in said
    assert "They are kept. Rerun the same command without --force to resume" in said
    hub.refuse, hub.main = [], "b" * 40
    assert curate(tmp_path / "out", "config: small") == (0, "")
    assert texts(tmp_path / "out") == expected("a small train-0", "a small train-1")
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")
