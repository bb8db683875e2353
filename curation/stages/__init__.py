# SPDX-License-Identifier: Apache-2.0
"""Stages: frozen structures with a few short methods each. `STAGES` are those of this package, by their kinds."""

from curation.stages.assign_clusters import AssignClusters
from curation.stages.base import CorpusStage, Phase, RowStage, Stage
from curation.stages.classify import Classify
from curation.stages.decontaminate import Decontaminate
from curation.stages.embed import Embed
from curation.stages.exact_dedup import ExactDedup
from curation.stages.filter import Filter
from curation.stages.fuzzy_dedup import FuzzyDedup
from curation.stages.language import Language
from curation.stages.measure import MeasureStage
from curation.stages.mix import Mix
from curation.stages.ngram_dedup import NgramDedup
from curation.stages.perplexity import Perplexity
from curation.stages.redact import Redact
from curation.stages.rewrite import Rewrite
from curation.stages.select import Select
from curation.stages.semantic_dedup import SemanticDedup

_CLASSES: tuple[type[Stage], ...] = (
    Rewrite, Redact, MeasureStage, Filter, Language, Classify, Perplexity, Embed, AssignClusters,
    Decontaminate, ExactDedup, FuzzyDedup, NgramDedup, SemanticDedup, Select, Mix,
)  # fmt: skip
STAGES: dict[str, type[Stage]] = {str(stage.__struct_config__.tag): stage for stage in _CLASSES}

__all__ = [
    "STAGES",
    "AssignClusters",
    "Classify",
    "CorpusStage",
    "Decontaminate",
    "Embed",
    "ExactDedup",
    "Filter",
    "FuzzyDedup",
    "Language",
    "MeasureStage",
    "Mix",
    "NgramDedup",
    "Perplexity",
    "Phase",
    "Redact",
    "Rewrite",
    "RowStage",
    "Select",
    "SemanticDedup",
    "Stage",
]  # fmt: skip
