# SPDX-License-Identifier: Apache-2.0
"""Stages: frozen configurations with one short method each. `Stage` is what a recipe may list."""

from curation.stages.decontaminate import Decontaminate
from curation.stages.exact_dedup import ExactDedup
from curation.stages.filter import Filter
from curation.stages.fuzzy_dedup import FuzzyDedup
from curation.stages.language import Language
from curation.stages.measure import AddMeasures
from curation.stages.ngram_dedup import NgramDedup
from curation.stages.redact import Redact
from curation.stages.rewrite import Rewrite

Stage = Rewrite | Redact | AddMeasures | Filter | Language | Decontaminate | ExactDedup | FuzzyDedup | NgramDedup

__all__ = [
    "AddMeasures", "Decontaminate", "ExactDedup", "Filter", "FuzzyDedup", "Language", "NgramDedup", "Redact", "Rewrite",
    "Stage",
]  # fmt: skip
