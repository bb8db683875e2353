# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled before a run needs them, with a notice, and by one process if several ask at once."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation.base.engine import load_engine
from curation.base.errors import EngineError
from curation.base.system import progress
from curation.base.system.progress import NotebookLine, Progress
from curation.models.ngrams import TINY
from curation.recipes.recipe import convert_recipe, load_recipe
from curation.stages import STAGES, Filter, warm_up
from curation.stages.vectors.vector_clusters import Clusters
from curation.stages.warm_up import GROUPS, missing_groups, recipe_groups
from tests.models.tiny_files import write_static
from tests.oracle.fasttext_reference import as_bytes, model_of
from tests.runs import records_of

NOTICE_SECONDS = 2.0
COMPILED = """
import sys
from numba.core import event

class Compiled(event.Listener):
    names = []

    def on_start(self, event):
        self.names.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
from curation.__main__ import command

code = command()
print("compiled", *Compiled.names)
sys.exit(code)
"""
STAGES_OF_EVERY_KIND = """
name: every stage
stages:
  - {kind: rewrite, unicode: nfc}
  - {kind: language, keep: [en]}
  - {kind: classify, model: quality.bin, label: l1}
  - {kind: perplexity, model: tiny.arpa}
  - {kind: embed, model: vectors.static}
  - {kind: assign_clusters, centroids: centroids.npz}
  - {kind: measure, names: [words]}
  - {kind: filter, rules: gopher}
  - {kind: redact}
  - {kind: lines, rules: {words: {min: 2}}}
  - {kind: decontaminate, evaluation_files: [{path: evaluation.jsonl}]}
  - {kind: exact_dedup, compare: lowercase}
  - {kind: line_dedup, compare: folded, min_characters: 200}
  - {kind: substring_dedup, length: 32, bounds: lines}
  - {kind: fuzzy_dedup, keep: longest}
  - {kind: fuzzy_dedup, verify: signature, name: signatures}
  - {kind: ngram_dedup}
  - {kind: select, column: quality, drop_lowest: 0.1, per: language}
  - {kind: semantic_dedup, clusters: 1}
  - {kind: mix, by: language, weights: {en: 1.0}}
output: {formats: [megatron, packed]}
"""


def run_command(
    folder: Path, *words: str, code: str = COMPILED, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def write_stages_of_every_kind(folder: Path) -> Path:
    """Write the recipe and the models that it names."""
    names = ("quality.bin", "tiny.arpa", "vectors.static", "centroids.npz", "recipe.yaml")
    model, arpa, vectors, centroids, recipe = (folder / name for name in names)
    model.write_bytes(as_bytes(model_of()))
    arpa.write_bytes(TINY)
    write_static(vectors)
    Clusters(np.ones((1, 4), np.int8), np.zeros((0, 4), np.int8), np.zeros(0, np.int64)).save(centroids)
    stages = STAGES_OF_EVERY_KIND
    for path in (model, arpa, vectors, centroids):
        stages = stages.replace(path.name, str(path))
    recipe.write_text(stages)
    return recipe


@pytest.mark.slow("a run after the warm-up compiles nothing")
def test_after_a_warm_up_a_run_compiles_nothing(tmp_path: Path):
    recipe = write_stages_of_every_kind(tmp_path)
    assert {stage.kind for stage in load_recipe(recipe).stages} == set(STAGES)
    words = "The quick brown fox has jumped over that lazy dog, and it was with one of the others."
    (tmp_path / "evaluation.jsonl").write_bytes(records_of(["thirteen words " * 7]))
    texts = [f"{words} {number // 2} {words}" for number in range(40)]
    (tmp_path / "texts.jsonl").write_bytes(records_of(texts))
    warmed = run_command(tmp_path, "warmup", "recipe.yaml")
    assert warmed.returncode == 0, warmed.stderr
    finished = run_command(tmp_path, "run", "recipe.yaml", "-i", "texts.jsonl", "-o", "out", "--allow-empty")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "compiled", finished.stdout


@pytest.mark.slow("a first run shows in a terminal that it compiles kernels")
def test_a_first_run_says_that_it_compiles(tmp_path: Path):
    """With an empty cache, in a terminal."""
    (tmp_path / "texts.jsonl").write_bytes(records_of(["one"]))
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "curation", "run", "-i", "texts.jsonl", "-o", "out"]
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "200"}
    started = time.monotonic()
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=terminal, stderr=terminal) as process:
        shown, loaded = b"", 0.0
        while warm_up.LABEL.encode() not in shown and time.monotonic() - started < 60:
            if select.select([main], [], [], 0.1)[0]:
                shown += os.read(main, 4096)
                loaded = loaded or time.monotonic()
        seconds = time.monotonic() - loaded
        process.send_signal(signal.SIGTERM)  # a shell lets its background jobs ignore SIGINT
        while process.poll() is None and time.monotonic() - started < 120:  # a full terminal would block the process
            if select.select([main], [], [], 0.1)[0]:
                os.read(main, 4096)
    assert process.returncode == 128 + signal.SIGTERM
    os.close(main)
    os.close(terminal)
    assert warm_up.LABEL.encode() in shown and seconds < NOTICE_SECONDS, shown


@pytest.mark.slow("two first runs at once compile each kernel once")
def test_two_first_runs_at_once_compile_a_group_once(tmp_path: Path):
    code = COMPILED.replace("curation.__main__ import command", "curation.stages.warm_up import serve").replace(
        "command", "serve"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdin
        process.stdin.write("hashes\n")
        process.stdin.flush()
    outputs = [process.communicate()[0].split() for process in processes]
    assert sorted("hash_rows" in output for output in outputs) == [False, True]


def test_a_recipe_waits_for_its_own_kernels_only():
    recipe = convert_recipe({"name": "x", "stages": [{"kind": "exact_dedup"}], "output": {"formats": []}}, "x")
    assert recipe_groups(recipe, "cpu") == [
        "json_lines", "language", "leaders", "hashes", "utf8", "file_ranges",
    ]  # fmt: skip
    assert recipe_groups(recipe, "gpu") == ["json_lines", "language", "utf8", "file_ranges"]


def test_stages_name_groups_that_exist(tmp_path: Path):
    path = write_stages_of_every_kind(tmp_path)
    assert {group for stage in load_recipe(path).stages for group in stage.kernels()} <= set(GROUPS)


def test_a_group_that_cannot_be_compiled_is_named():
    with pytest.raises(EngineError, match="the kernels of nothing could not be compiled: KeyError: 'nothing'"):
        warm_up.warm_up(["nothing"], Progress(), 1)


def test_a_group_is_missing_until_it_has_its_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(warm_up, "FOLDER", tmp_path)
    monkeypatch.setattr(warm_up, "is_installed", lambda: False)
    assert missing_groups(["hashes", "utf8"]) == ["hashes", "utf8"]
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "hashes.json").write_text("{}")
    assert missing_groups(["hashes", "utf8"]) == ["utf8"]
    monkeypatch.setattr(warm_up, "is_installed", lambda: True)
    assert missing_groups(["hashes", "utf8"]) == []


def test_a_notebook_shows_the_kernels_of_a_stage_in_its_line(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    shown: list[Any] = []
    line = NotebookLine(lambda data, **_: shown.append(data))
    monkeypatch.setattr(progress, "_of_notebook", lambda: line)
    monkeypatch.setattr(warm_up, "missing_groups", lambda groups: ["measures"])
    monkeypatch.setattr(warm_up, "warm_up", lambda groups, display, workers: display.log("compiling kernels"))
    warm_up.warm_up_stage(Filter(rules="gopher"), load_engine("cpu"))
    assert "compiling kernels" in shown[-1]["text/html"] and "done in" in shown[-1]["text/html"]
    assert capsys.readouterr().err == ""
