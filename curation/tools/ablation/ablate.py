# SPDX-License-Identifier: Apache-2.0
"""`curation.ablate`: whether curated text trains a better model than raw text, by small models on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from curation.base.errors import RecipeError, nearest
from curation.recipes.keywords import check_types
from curation.tools.ablation.documents import read_pair, read_texts
from curation.tools.ablation.experiment import Experiment
from curation.tools.ablation.held_out import clean, split_off
from curation.tools.ablation.result import Ablation

TIERS = {"seconds": 2_000_000, "minutes": 20_000_000}  # bytes of training text of a model
SAMPLE = 8  # bytes of each arm that are read into memory, in budgets
PLACEBOS, MIN_PLACEBOS = 16, 8


def ablate(
    raw: Any,
    curated: Any,
    *,
    held_out: Any,
    tier: str = "seconds",
    source_column: str = "",
    placebos: int = PLACEBOS,
    smallest_effect: float = 0.005,
    seed: int = 0,
) -> Ablation:
    """Return whether curated text trains a better model than raw text of the same size, by the bits per byte of
    held-out text under models of both (docs/ablate.md).

    raw        paths, or inputs as in a recipe
    curated    the folder of a finished run over `raw`, or paths or inputs whose documents have the ids or the texts of
               `raw`
    held_out   paths or inputs with texts like those that the model is for. They decide; after leaks are taken out,
               300 documents of 5 sources must be left
    tier       `seconds`: models of at most 2 MB of text; `minutes`: of 20 MB. A sample of 8 times as much is read
    source_column    column of `held_out` with the source of a document; "": each file is a source
    placebos   number of random removals of the same size, at least 8
    smallest_effect  smallest difference of interest, as a share of the bits
    seed       of all random choices, 0 or more

    Hashes decide what is drawn, so every machine finds the same. Memory: 16 times the budget of the tier, and 60 times
    while a model is trained.

        >>> import curation
        >>> curation.ablate("crawl.jsonl", "clean.jsonl", held_out="target/*.jsonl").verdict
        'better'

    RecipeError: wrong settings. InputError: arms without a common document, a run over another input, too few held-out
    texts, or an arm of less than 100,000 bytes.
    """
    experiment = prepare(
        raw, curated, held_out, tier=tier, source_column=source_column, placebos=placebos,
        smallest_effect=smallest_effect, seed=seed,
    )  # fmt: skip
    return conclude(experiment)


def prepare(
    raw: Any, curated: Any, held_out: Any, *, tier: str, source_column: str, placebos: int, smallest_effect: float,
    seed: int,
) -> Experiment:  # fmt: skip
    """Check the arguments of `ablate`, read the texts, and return the experiment with its plan."""
    check_types(
        "ablate",
        {
            "tier": (tier, str), "source_column": (source_column, str), "placebos": (placebos, int),
            "smallest_effect": (smallest_effect, float), "seed": (seed, int),
        },
    )  # fmt: skip
    if tier not in TIERS:
        raise RecipeError(f"tier: no tier {tier!r}{nearest(tier, TIERS)}")
    if placebos < MIN_PLACEBOS:
        raise RecipeError(f"placebos must be at least {MIN_PLACEBOS}, not {placebos}")
    if not 0 < smallest_effect < 1:
        raise RecipeError(f"smallest_effect must be above 0 and below 1, not {smallest_effect:g}")
    if seed < 0:
        raise RecipeError(f"seed must be 0 or more, not {seed}")
    budget = TIERS[tier]
    pair, raw_like, curated_like = split_off(read_pair(raw, curated, SAMPLE * budget, seed))
    found = clean(read_texts(held_out, "held_out", source_column), raw_like, curated_like, pair)
    return Experiment(pair, found, tier=tier, budget=budget, placebos=placebos, smallest=smallest_effect, seed=seed)


def conclude(experiment: Experiment, note: Callable[[str], object] = str) -> Ablation:
    """Train all models, and return the result. `note` is called with the minimum detectable effect, before the arms are
    read."""
    detectable = experiment.score_placebos()
    note(f"minimum detectable effect: {detectable:.2%} of {experiment.base:.3f} bits per byte, from placebos alone")
    budgets, plan = experiment.measure_budgets(), experiment.plan
    return Ablation(detectable=detectable, budgets=budgets, plan=plan, **experiment.judge())
