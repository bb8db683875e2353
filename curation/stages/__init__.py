# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: I001  # messages and the schema of recipes list kinds in this order
"""Stages: frozen structures with a few short methods each. `STAGES` has the stages of this package by kind. An import
here adds a stage; `make functions` then writes its function."""

from curation.stages.base import CorpusStage as CorpusStage
from curation.stages.base import Phase as Phase
from curation.stages.base import RowStage as RowStage
from curation.stages.base import Stage as Stage

from curation.stages.rows.rewrite import Rewrite as Rewrite
from curation.stages.rows.redact import Redact as Redact
from curation.stages.rows.measure import MeasureStage as MeasureStage
from curation.stages.rows.filter import Filter as Filter
from curation.stages.rows.lines import Lines as Lines
from curation.stages.rows.language import Language as Language
from curation.stages.rows.classify import Classify as Classify
from curation.stages.rows.perplexity import Perplexity as Perplexity
from curation.stages.rows.embed import Embed as Embed
from curation.stages.vectors.assign_clusters import AssignClusters as AssignClusters
from curation.stages.exact.decontaminate import Decontaminate as Decontaminate
from curation.stages.exact.exact_dedup import ExactDedup as ExactDedup
from curation.stages.exact.line_dedup import LineDedup as LineDedup
from curation.stages.exact.substring_dedup import SubstringDedup as SubstringDedup
from curation.stages.near.fuzzy_dedup import FuzzyDedup as FuzzyDedup
from curation.stages.near.ngram_dedup import NgramDedup as NgramDedup
from curation.stages.vectors.semantic_dedup import SemanticDedup as SemanticDedup
from curation.stages.shares.select import Select as Select
from curation.stages.shares.mix import Mix as Mix

_BASES = (Stage, RowStage, CorpusStage)
STAGES: dict[str, type[Stage]] = {
    str(found.__struct_config__.tag): found
    for found in [*vars().values()]
    if isinstance(found, type) and issubclass(found, Stage) and found not in _BASES
}
