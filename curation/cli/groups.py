# SPDX-License-Identifier: Apache-2.0
"""All commands, in the order in which the help shows them."""

from curation.cli import look, machine, pairs, starting, training, work
from curation.cli.parsing import Group

GROUPS = (
    Group("work", (work.RUN, work.PLAN, work.DEMO, starting.INIT, work.MEASURE, work.TOKENIZE)),
    Group("look", (look.INSPECT, look.VERIFY)),
    Group("train", (training.TRAIN_TOKENIZER,)),
    Group("pairs", (pairs.MERGE, pairs.SPLIT)),
    Group("machine", (machine.DOCTOR, machine.RECIPES, machine.COMPLETION)),
)
