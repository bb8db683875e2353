# SPDX-License-Identifier: Apache-2.0
"""Loads kernels and vocabulary of the runs of `test_kill` on one thread. Processes of a fork server inherit them."""

import pandas as pd

import curation
from curation.frames import frames

FRAME = pd.DataFrame({"text": ["Some words of a text, café 漢字."] * 2 + ["Other words"]})
for stage in (
    curation.Rewrite(unicode="nfc"),
    curation.Filter(rules=[curation.Rule(measure="words", min=1)]),
    curation.ExactDedup(max_characters=40, compare="lowercase"),
    curation.FuzzyDedup(threshold=0.5),
):
    curation.apply(FRAME, stage)
frames._folder().cleanup()
curation.load_tokenizer("gpt2")
