# SPDX-License-Identifier: Apache-2.0
"""Kernels are compiled before a run needs them, with a notice, and by one process if several ask at once."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from curation.base.errors import EngineError
from curation.base.system.progress import Progress
from curation.base.system.steps import shown_by
from curation.kernels.cache import LABEL, kernel, not_compiling
from curation.models.ngrams import TINY
from curation.recipes.recipe import convert_recipe, load_recipe
from curation.running import warm_up
from curation.running.warm_up import Part, parts_of
from curation.stages import STAGES
from curation.stages.vectors.vector_clusters import Clusters
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
        while LABEL.encode() not in shown and time.monotonic() - started < 60:
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
    assert LABEL.encode() in shown and seconds < NOTICE_SECONDS, shown


@pytest.mark.slow("two first runs at once compile each kernel once")
def test_two_first_runs_at_once_compile_a_kernel_once(tmp_path: Path):
    part = "from curation.running.warm_up import STAGES, Part; command = Part(STAGES['exact_dedup'](), {}).run"
    code = COMPILED.replace("from curation.__main__ import command", part)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0].split() for process in processes]
    assert sorted("hash_rows" in output for output in outputs) == [False, True]


def test_a_recipe_waits_for_its_own_kernels_only():
    recipe = convert_recipe({"name": "x", "stages": [{"kind": "exact_dedup"}], "output": {"formats": []}}, "x")
    assert [part.name for part in parts_of(recipe, "cpu")] == ["exact_dedup", "language", "read"]
    assert [part.name for part in parts_of(recipe, "gpu")] == ["read"]


def test_stages_with_large_files_and_of_other_packages_are_left_to_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recipe = load_recipe(write_stages_of_every_kind(tmp_path))
    names = [part.name for part in parts_of(recipe, "cpu")]
    assert {"perplexity", "select"} <= {*names}
    monkeypatch.setattr(warm_up, "MAX_BYTES", 10)
    monkeypatch.setitem(warm_up.STAGES, "select", STAGES["mix"])
    assert {"perplexity", "select"} & {part.name for part in parts_of(recipe, "cpu")} == set()


@pytest.mark.parametrize(
    ("part", "message"),
    [(Part("nothing", {}), "KeyError: 'nothing'"), (SimpleNamespace(run=partial(os._exit, 1)), "BrokenProcessPool")],
)
def test_a_part_that_cannot_be_compiled_is_one_message(part: Any, message: str):
    with pytest.raises(EngineError, match=f"a kernel could not be compiled: {message}"):
        warm_up._compile([part], 1, Progress())


def test_a_kernel_that_is_not_compiled_is_named_and_not_called():
    @kernel
    def twice(number):
        return 2 * number

    with not_compiling() as missing, pytest.raises(EngineError, match="twice is not compiled"):
        twice(os.getpid() % 2 + time.time())  # a float
    assert [name.rpartition(".")[2] for name in missing] == ["twice"]


class Labels(Progress):
    """A display that notes what it shows."""

    def __init__(self) -> None:
        self.labels: list[str] = []

    @contextmanager
    def watch(self, label: str, *arguments: Any, **settings: Any) -> Iterator[None]:
        self.labels.append(label)
        yield


def test_a_kernel_that_is_compiled_in_a_call_is_shown():
    def half(number):
        return number / 2

    shown, compiled = Labels(), kernel(half)
    compiled._cache.has = lambda sig: False
    with shown_by(shown):
        assert compiled(3) == compiled(3) == 1.5
    assert shown.labels == [LABEL]


def test_a_marker_spares_the_look_for_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    monkeypatch.setattr(warm_up, "FOLDER", tmp_path)
    monkeypatch.setattr(warm_up, "is_installed", lambda: False)
    monkeypatch.setitem(warm_up.OTHERS, "count", lambda: calls.append(1))
    parts = [Part("count", {})]
    assert warm_up.warm_up(parts, 1, Progress()) == warm_up.warm_up(parts, 1, Progress()) == []
    assert calls == [1]
    monkeypatch.setattr(warm_up, "FOLDER", tmp_path / "empty")
    monkeypatch.setattr(warm_up, "is_installed", lambda: True)
    warm_up.warm_up(parts, 1, Progress())
    assert calls == [1]
