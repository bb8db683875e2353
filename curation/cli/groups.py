# SPDX-License-Identifier: Apache-2.0
"""All commands, in the order of the help."""

from curation.cli import (
    ablating,
    aligning,
    comparing,
    coverage,
    demo,
    doctor,
    embedding,
    environment,
    generating,
    importing,
    init,
    inspecting,
    loading,
    measuring,
    overlap,
    pairs,
    pushing,
    runs,
    showing,
    training,
)
from curation.cli.parsing import CommandGroup

GROUPS = (
    CommandGroup(
        "runs",
        (
            runs.RUN,
            runs.PLAN,
            demo.DEMO,
            init.INIT,
            importing.IMPORT_CONFIG,
            measuring.MEASURE,
            embedding.EMBED,
            generating.GENERATE,
            runs.TOKENIZE,
        ),
    ),
    CommandGroup(
        "results",
        (
            showing.SHOW,
            comparing.COMPARE,
            inspecting.INSPECT,
            loading.CHECK_LOADER,
            inspecting.VERIFY,
            pushing.PUSH,
            coverage.TOKENS,
            overlap.CHECK_OVERLAP,
            aligning.ALIGN,
            ablating.ABLATE,
        ),
    ),
    CommandGroup("training", (training.TRAIN_TOKENIZER, training.TRAIN_CLASSIFIER, training.TRAIN_LM)),
    CommandGroup("pairs", (pairs.MERGE, pairs.SPLIT)),
    CommandGroup("environment", (doctor.DOCTOR, environment.WARMUP, environment.RECIPES, environment.COMPLETION)),
)
