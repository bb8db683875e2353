# SPDX-License-Identifier: Apache-2.0
"""Stages: frozen structures with a few short methods each. `STAGES` are those of this package, by their kinds."""

from curation.stages.base import CorpusStage, Phase, RowStage, Stage
from curation.stages.exact.exact_dedup import ExactDedup
from curation.stages.near.fuzzy_dedup import FuzzyDedup
from curation.stages.near.ngram_dedup import NgramDedup
from curation.stages.rows.classify import Classify
from curation.stages.rows.decontaminate import Decontaminate
from curation.stages.rows.embed import Embed
from curation.stages.rows.filter import Filter
from curation.stages.rows.language import Language
from curation.stages.rows.measure import MeasureStage
from curation.stages.rows.perplexity import Perplexity
from curation.stages.rows.redact import Redact
from curation.stages.rows.rewrite import Rewrite
from curation.stages.shares.mix import Mix
from curation.stages.shares.select import Select
from curation.stages.vectors.assign_clusters import AssignClusters
from curation.stages.vectors.semantic_dedup import SemanticDedup

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
