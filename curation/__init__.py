# SPDX-License-Identifier: Apache-2.0
"""Turn raw text into training data for language models: curate, deduplicate, tokenise, pack; on GPU or CPU, one result.

    import curation
    frame = curation.read("data/*.jsonl.gz")            # a lazy Dask DataFrame
    frame = curation.filter(curation.rewrite(frame, unicode="nfc"), rules="gopher")
    recipe = curation.load_recipe("default", input="data/*.jsonl.gz")
    finished = curation.run(recipe, "out")

Every name is loaded on first use: `import curation` loads no library.
"""

from importlib import import_module
from typing import Any

__version__ = "0.5.0.dev0"

# Module -> names. `make functions` writes those of stages, and `__init__.pyi` for type checkers.
_HOMES = {
    "curation.frames.fingerprints": ("hash", "minhash"),
    "curation.frames.frames": ("apply",),
    "curation.frames.functions": ("explain", "read"),
    "curation.frames.stage_functions": (
        "assign_clusters",
        "classify",
        "decontaminate",
        "embed",
        "exact_dedup",
        "filter",
        "fuzzy_dedup",
        "language",
        "line_dedup",
        "lines",
        "measure",
        "mix",
        "ngram_dedup",
        "perplexity",
        "redact",
        "rewrite",
        "select",
        "semantic_dedup",
        "substring_dedup",
    ),
    "curation.frames.token_pairs": ("tokenize",),
    "curation.frames.duplicates": ("Duplicates",),
    "curation.frames.close_vectors": ("align", "clusters", "neighbours"),
    "curation.frames.projections": ("pca",),
    "curation.tools.graphs": ("communities", "pagerank"),
    "curation.frames.plotting": ("plot",),
    "curation.running.planning.estimate": ("Estimate", "estimate"),
    "curation.tools.classifier_training": ("ClassifierSettings", "TrainedClassifier", "train_classifier"),
    "curation.tools.lm_training": ("TrainedLM", "train_lm"),
    "curation.tools.ablation.ablate": ("ablate",),
    "curation.tools.ablation.result": ("Ablation",),
    "curation.tools.ablation.ablate_mix": ("ablate_mix",),
    "curation.tools.ablation.mixture": ("Mixture",),
    "curation.tools.overlap": ("EvaluationSet", "Overlap", "check_overlap"),
    "curation.tools.overlap_spans": ("SpanOverlap", "SpanSet", "check_spans"),
    "curation.tools.token_coverage": ("CoverageGroup", "TokenCoverage", "token_coverage"),
    "curation.tools.synthesis.generate": ("Generated", "generate"),
    "curation.frames.thresholds": ("decide", "rule_effects"),
    "curation.rules.effects": ("Effect", "Effects", "Histogram"),
    "curation.results.finished.run_result": ("RunResult", "open_run"),
    "curation.running.run": ("run",),
    "curation.recipes.recipe": (
        "Output",
        "Recipe",
        "Report",
        "ShuffledDocuments",
        "convert_recipe",
        "load_recipe",
        "parse_recipe",
    ),
    "curation.tokens.blend_phases": ("BlendPhase",),
    "curation.tokens.blends": ("Blend", "Megatron"),
    "curation.tokens.forms": ("Blocks", "Chunks", "Litdata", "Mds", "Packed", "TokenShards"),
    "curation.reading.inputs": ("Budget", "FilesInput", "HubInput", "Input"),
    "curation.tokens.samples": ("Sample",),
    "curation.stages.base": (
        "ColumnFacts",
        "CorpusStage",
        "Forecast",
        "NewIndex",
        "Outputs",
        "Phase",
        "RowStage",
        "ShownRules",
    ),
    "curation.stages.own_functions": ("stage",),
    "curation.stages.corpus.cutting": ("store_cuts",),
    "curation.stages.outcome": ("Cuts", "Decision", "Drops", "Outcome"),
    "curation.base.system.files": ("known_sha256",),
    "curation.stages": (
        "AssignClusters",
        "Classify",
        "Decontaminate",
        "Embed",
        "ExactDedup",
        "Filter",
        "FuzzyDedup",
        "Language",
        "LineDedup",
        "Lines",
        "MeasureStage",
        "Mix",
        "NgramDedup",
        "Perplexity",
        "Redact",
        "Rewrite",
        "Select",
        "SemanticDedup",
        "SubstringDedup",
    ),
    "curation.rules.decide": ("RULE_SETS", "Rule", "Verdict"),
    "curation.rules.units": ("UnitRule",),
    "curation.base.measures": ("Measure",),
    "curation.tokens.tokenization": ("TokenizerSpec", "load_tokenizer"),
    "curation.tokens.tokenizer_training": ("Trained", "train_tokenizer"),
    "curation.tokens.indexed": ("IndexedReader",),
    "curation.results.finished.comparison": ("Comparison", "compare_runs"),
    "curation.results.finished.results": ("run_documents",),
    "curation.results.finished.verify": ("verify",),
    "curation.base.errors": (
        "ArgumentError",
        "CurationError",
        "DeviceLostError",
        "EngineError",
        "InputError",
        "InputWarning",
        "IntegrityError",
        "OutOfMemoryError",
        "OutputError",
        "RecipeError",
        "StageError",
        "TokenizerError",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'curation' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
