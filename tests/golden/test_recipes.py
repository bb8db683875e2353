# SPDX-License-Identifier: Apache-2.0
"""The shipped recipes do to a small corpus what `tests/golden/recipes.json` has: rows, order, reasons and token files.
Stages with `when` are left out, so no test needs a file or a package of its own."""

import json
from pathlib import Path
from types import ModuleType

import pytest

from curation.base import engine as selector
from curation.recipes.recipe import shipped_recipes
from tests.scripts.make_recipe_results import GOLDEN, results

RECORDED = json.loads(GOLDEN.read_text("utf-8"))
IDLE = ("language", "rewrite_3")  # writes labels alone; finds no tags, as its second stage deleted their marks
FAST = ("dolma3",)
HINT = "if this is meant, see CONTRIBUTING.md, Change a default; then run python -m tests.scripts.make_recipe_results"


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_recipe_gives_the_recorded_result(engine: ModuleType, name: str, tmp_path: Path):
    kind = next(kind for kind, package in selector.PACKAGES.items() if package == engine.__name__)
    assert results(name, tmp_path, kind) == RECORDED.get(name), HINT


@pytest.mark.parametrize(
    "name",
    [
        *FAST,
        *(
            pytest.param(
                name, marks=pytest.mark.slow("shipped recipes give the recorded results on the GPU engine over NumPy")
            )
            for name in shipped_recipes()
            if name not in FAST
        ),
    ],
)
def test_the_gpu_engine_gives_the_recorded_result(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("gpu_pipeline.kernels.core")
    from tests.gpu.stand_ins import install_engine

    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    install_engine(monkeypatch)
    assert results(name, tmp_path, "gpu") == RECORDED[name]


def test_every_stage_of_every_recipe_finds_something():
    assert [*RECORDED] == [*shipped_recipes()]
    for name, facts in RECORDED.items():
        assert {stage for stage, counts in facts["stages"].items() if not any(counts)} <= {*IDLE}, name
