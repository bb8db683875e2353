# SPDX-License-Identifier: Apache-2.0
"""`datasets` and the command line against a hub on this machine: what is asked for, what each answer comes to, and what
is kept of a data set that came in part."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from curation.running.verify import verify
from tests.pipelines.fake_hub import Hub, serve
from tests.run.runs import data_digests, kept_rows, report_of

pytest.importorskip("datasets", reason="the optional extra `hub` is not installed")

ROOT = Path(__file__).resolve().parents[2]
# The libraries wait between tries, and take the address of the hub from the environment when they are imported.
COMMAND = "import sys, time; time.sleep = lambda _: None; from curation.cli import main; sys.exit(main(sys.argv[1:]))"
RECIPE = "input: [{{path: 'hf:o/n', name: set, {}}}]\nstages: []\noutput: {{formats: []}}\n"
Curate = Callable[..., tuple[int, str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as running:
        yield running


@pytest.fixture
def curate(hub: Hub, tmp_path: Path) -> Curate:
    """Runs a recipe over the data set into a folder; gives the exit code and the last line of what it says."""

    def curate(out: Path, options: str, endpoint: str = "") -> tuple[int, str]:
        path = tmp_path / "recipe.yaml"
        path.write_text(RECIPE.format(options))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": endpoint or hub.endpoint, "HF_HOME": str(tmp_path / "home")}
        environment["USE_TORCH"] = "0"  # `datasets` imports it where it is, which takes as long as all the rest
        finished = subprocess.run(
            [sys.executable, "-c", COMMAND, "run", str(path), "--output", str(out), "--engine", "cpu"],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        told = [line for line in finished.stderr.splitlines() if line.startswith("curate: ")]
        assert len(told) == (finished.returncode != 0) and "Traceback" not in finished.stderr, finished.stderr
        return finished.returncode, "".join(told)

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
        (401, "the hub does not let us read it (401). Check the name; if it is right, accept the terms on its page"),
        (403, "the hub does not let us read it (gated). Check the name"),
        (429, "the hub answers 429; it has trouble of its own. Try the same command later"),
        (500, "the hub answers 500; it has trouble of its own. Try the same command later"),
        (0, "the hub cannot be reached ("),
    ],
)
def test_what_the_hub_answers(hub: Hub, curate: Curate, tmp_path: Path, status: int, told: str):
    hub.refuse = [("", status)]
    code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and said.startswith("curate: hf:o/n:small[train]") and told in said


def test_no_hub_at_all(curate: Curate, tmp_path: Path):
    code, said = curate(tmp_path / "out", "config: small", endpoint="http://127.0.0.1:9")
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


@pytest.mark.parametrize("status", [-1, 500])
def test_what_came_is_kept_and_goes_on_at_the_same_commit(hub: Hub, curate: Curate, tmp_path: Path, status: int):
    """The second of two files does not come; when it does, the branch has moved on."""
    assert curate(tmp_path / "whole", "config: small") == (0, "")
    hub.refuse = [("train-1.jsonl", status)]
    code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and "the connection broke after 400 documents, 4 times" in said
    assert "They are kept; the same command, without --force, goes on from here" in said
    hub.refuse, hub.main = [], "b" * 40
    assert curate(tmp_path / "out", "config: small") == (0, "")
    assert texts(tmp_path / "out") == expected("a small train-0", "a small train-1")
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")
