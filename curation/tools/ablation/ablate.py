# SPDX-License-Identifier: Apache-2.0
"""`curation.ablate`: whether curated text trains a better model than raw text, by small models."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

from curation.base.errors import EngineError, RecipeError, installation, nearest
from curation.recipes.keywords import check_types
from curation.tools.ablation.documents import read_pair, read_texts
from curation.tools.ablation.experiment import VERDICTS, Experiment
from curation.tools.ablation.held_out import clean, split_off
from curation.tools.ablation.learner import ByteLearner
from curation.tools.ablation.result import Ablation
from curation.tools.ablation.store import Store

GPU = "gpu"
MIN_PLACEBOS = 8
UNSTABLE, OPPOSITE = "unstable", {"better", "worse"}


class Tier(NamedTuple):
    """A tier.

    budget    bytes of the training text of a model of bytes; 0: the tier trains transformers
    placebos  their number
    sample    how many times the training text of a model is read into memory from each arm
    """

    budget: int
    placebos: int = 16
    sample: int = 8


TIERS = {"seconds": Tier(2_000_000), "minutes": Tier(20_000_000), GPU: Tier(0, placebos=8, sample=2)}


class Plan(NamedTuple):
    """An ablation before a model is trained: `plan` says all that it will do, and the last of the experiments decides.

    store  of the bits of trained models
    """

    experiments: list[Experiment]
    plan: dict[str, Any]
    store: Store


def ablate(
    raw: Any,
    curated: Any,
    *,
    held_out: Any,
    tier: str = "seconds",
    source_column: str = "",
    placebos: int = 0,
    smallest_effect: float = 0.005,
    seed: int = 0,
    folder: str | os.PathLike[str] = "",
) -> Ablation:
    """Return whether curated text trains a better model than raw text of the same size, by the bits per byte of
    held-out text under models of both (docs/ablate.md).

    raw        paths, or inputs as in a recipe
    curated    the folder of a finished run over `raw`, or paths or inputs whose documents have the ids or the texts of
               `raw`
    held_out   paths or inputs with texts like those that the model is for. They decide; after leaks are taken out,
               300 documents of 5 sources must be left
    tier       `seconds`: models of at most 2 MB of text; `minutes`: of 20 MB. A sample of 8 times as much is read.
               `gpu`: transformers in PyTorch of 4, 10 and 20 million parameters on at most 20 bytes per parameter. A
               sample of twice as much is read. This tier has not run on a GPU yet
    source_column    column of `held_out` with the source of a document; "": each file is a source
    placebos   number of random removals of the same size, at least 8; 0: 16, of the tier `gpu` 8
    smallest_effect  smallest difference of interest, as a share of the bits
    seed       of all random choices, 0 or more
    folder     gets the plan, the result and the bits of each trained model. After a killed call, the same call goes on
               from there. "": nothing is written

    Hashes decide what is drawn, so every machine finds the same; last digits of the tier `gpu` depend on the device.
    Memory of models of bytes: 16 times the budget of the tier, and 60 times while one is trained.

        >>> import curation
        >>> curation.ablate("crawl.jsonl", "clean.jsonl", held_out="target/*.jsonl").verdict
        'better'

    RecipeError: wrong settings. EngineError: the tier `gpu` without PyTorch or a GPU. OutputError: `folder` has another
    plan. InputError: arms without a common document, a run over another input, too few held-out texts, or an arm of
    less than 100,000 bytes. IntegrityError: a damaged file in `folder`.
    """
    plan = prepare(
        raw, curated, held_out, tier=tier, source_column=source_column, placebos=placebos,
        smallest_effect=smallest_effect, seed=seed, folder=folder,
    )  # fmt: skip
    plan.store.begin(plan.plan)
    found = conclude(plan)
    if os.fspath(folder):
        found.save(folder)
    return found


def prepare(
    raw: Any, curated: Any, held_out: Any, *, tier: str, source_column: str, placebos: int, smallest_effect: float,
    seed: int, folder: str | os.PathLike[str] = "",
) -> Plan:  # fmt: skip
    """Check the arguments of `ablate`, read the texts, and return the experiments with their plan."""
    check_types(
        "ablate",
        {
            "tier": (tier, str), "source_column": (source_column, str), "placebos": (placebos, int),
            "smallest_effect": (smallest_effect, float), "seed": (seed, int), "folder": (folder, str),
        },
    )  # fmt: skip
    if tier not in TIERS:
        raise RecipeError(f"tier: no tier {tier!r}{nearest(tier, TIERS)}")
    placebos = placebos or TIERS[tier].placebos
    if placebos < MIN_PLACEBOS:
        raise RecipeError(f"placebos must be at least {MIN_PLACEBOS}, not {placebos}")
    if not 0 < smallest_effect < 1:
        raise RecipeError(f"smallest_effect must be above 0 and below 1, not {smallest_effect:g}")
    if seed < 0:
        raise RecipeError(f"seed must be 0 or more, not {seed}")
    learners = _transformers() if tier == GPU else [(ByteLearner, TIERS[tier].budget)]
    store, size = Store(folder), TIERS[tier].sample * learners[-1][1]
    pair, raw_like, curated_like = split_off(read_pair(raw, curated, size, seed))
    found = clean(read_texts(held_out, "held_out", source_column), raw_like, curated_like, pair, store)
    return plan_of(
        [
            Experiment(
                pair, found, tier=tier, budget=budget, placebos=placebos, smallest=smallest_effect, seed=seed,
                learner=learner, store=store,
            )
            for learner, budget in learners
        ],
        store,
    )  # fmt: skip


def _transformers() -> Sequence[tuple[Any, int]]:
    """Return the learners of the tier `gpu` with the bytes of their training texts. EngineError: no PyTorch or GPU."""
    if find_spec("torch") is None:
        raise EngineError(f"the tier gpu needs PyTorch, which is not installed here. {installation('torch')}")
    from curation.tools.ablation.transformer_training import learners, need_cuda

    return learners(need_cuda())


def plan_of(experiments: list[Experiment], store: Store) -> Plan:
    """Return the plan of experiments with the same texts; the last decides."""
    plan = experiments[-1].plan
    if len(experiments) > 1:
        models = [
            {"name": experiment.learner.name, **experiment.learner.plan, "budget_bytes": experiment.budget}
            for experiment in experiments
        ]
        plan = plan | {
            "verdicts": [*VERDICTS, UNSTABLE], "models": models, "note": "this tier has not run on a GPU yet",
            "model": "transformers over bytes; the largest decides",
        }  # fmt: skip
    return Plan(experiments, plan, store)


def conclude(plan: Plan, note: Callable[[str], object] = str) -> Ablation:
    """Train all models, and return the result. `note` is called with the minimum detectable effect, before the arms are
    read."""
    experiments = plan.experiments
    for experiment in experiments:
        detectable = experiment.score_placebos()
        of = f" of {experiment.learner.name}" if len(experiments) > 1 else ""
        base = f"{experiment.base:.3f} bits per byte"
        note(f"minimum detectable effect{of}: {detectable:.2%} of {base}, from placebos alone")
    last = experiments[-1]
    budgets = last.measure_budgets() if last.learner.has_stages else None
    results = [experiment.judge() for experiment in experiments]
    found, models = results[-1], []
    if len(experiments) > 1:
        models = [
            result["curated"]._replace(name=experiment.learner.name)
            for result, experiment in zip(results, experiments, strict=True)
        ]
    verdict = verdict_of([result["verdict"] for result in results])
    if verdict not in plan.plan["verdicts"]:
        raise AssertionError(f"the plan does not name the verdict {verdict!r}")
    return Ablation(
        detectable=detectable, budgets=budgets, plan=plan.plan, models=models, **found | {"verdict": verdict}
    )


def verdict_of(verdicts: Sequence[str]) -> str:
    """Return the verdict of models of several sizes, the largest last: `unstable` if two are opposite and the largest
    are not blind, else the verdict of the largest."""
    return UNSTABLE if {*verdicts} >= OPPOSITE and verdicts[-1] != "blind" else verdicts[-1]
