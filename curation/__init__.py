# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: I001  # sorted, but for one import statement per module: isort wants one per name
"""Turn raw text into training data for language models: curate, deduplicate, tokenise, pack; on GPU or CPU, one result.

    import curation
    frame = curation.read("data/*.jsonl.gz")            # a lazy Dask DataFrame
    frame = curation.filter(curation.rewrite(frame, unicode="nfc"), rules="gopher")
    recipe = curation.load_recipe("default", input="data/*.jsonl.gz")
    finished = curation.run(recipe, "out")

Every name is loaded on first use: `import curation` loads no library.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the names of `__getattr__`, for type checkers; a test keeps the two lists equal
    from curation.errors import (
        CurationError as CurationError,
        DeviceLostError as DeviceLostError,
        EngineError as EngineError,
        InputError as InputError,
        InputWarning as InputWarning,
        IntegrityError as IntegrityError,
        OutOfMemoryError as OutOfMemoryError,
        OutputError as OutputError,
        RecipeError as RecipeError,
        StageError as StageError,
        TokenizerError as TokenizerError,
    )
    from curation.system.files import (
        known_sha256 as known_sha256,
    )
    from curation.library.functions import (
        apply as apply,
        decontaminate as decontaminate,
        explain as explain,
        filter as filter,
        language as language,
        measure as measure,
        read as read,
        redact as redact,
        rewrite as rewrite,
    )
    from curation.library.deduplication import (
        exact_dedup as exact_dedup,
        fuzzy_dedup as fuzzy_dedup,
        ngram_dedup as ngram_dedup,
        semantic_dedup as semantic_dedup,
    )
    from curation.library.duplicates import Duplicates as Duplicates
    from curation.library.close_vectors import align as align, clusters as clusters, neighbours as neighbours
    from curation.library.plotting import plot as plot
    from curation.library.classifier_training import (
        ClassifierSettings as ClassifierSettings,
        TrainedClassifier as TrainedClassifier,
        train_classifier as train_classifier,
    )
    from curation.library.lm_training import TrainedLM as TrainedLM, train_lm as train_lm
    from curation.library.overlap import (
        EvaluationSet as EvaluationSet,
        Overlap as Overlap,
        check_overlap as check_overlap,
    )
    from curation.library.scores import (
        assign_clusters as assign_clusters,
        classify as classify,
        embed as embed,
        mix as mix,
        perplexity as perplexity,
        select as select,
    )
    from curation.library.token_coverage import (
        CoverageGroup as CoverageGroup,
        TokenCoverage as TokenCoverage,
        token_coverage as token_coverage,
    )
    from curation.library.thresholds import decide as decide, rule_effects as rule_effects
    from curation.measures import (
        Measure as Measure,
    )
    from curation.packing.blends import (
        Blend as Blend,
        Megatron as Megatron,
    )
    from curation.packing.forms import (
        Blocks as Blocks,
        Chunks as Chunks,
        Packed as Packed,
        TokenShards as TokenShards,
    )
    from curation.packing.indexed import (
        IndexedReader as IndexedReader,
    )
    from curation.packing.samples import (
        Sample as Sample,
    )
    from curation.packing.tokenization import (
        TokenizerSpec as TokenizerSpec,
        load_tokenizer as load_tokenizer,
    )
    from curation.packing.tokenizer_training import (
        Trained as Trained,
        train_tokenizer as train_tokenizer,
    )
    from curation.reading.inputs import (
        Budget as Budget,
        FilesInput as FilesInput,
        HubInput as HubInput,
        Input as Input,
    )
    from curation.recipes.recipe import (
        Output as Output,
        Recipe as Recipe,
        Report as Report,
        convert_recipe as convert_recipe,
        load_recipe as load_recipe,
        parse_recipe as parse_recipe,
    )
    from curation.rules.decide import (
        RULE_SETS as RULE_SETS,
        Rule as Rule,
        Verdict as Verdict,
    )
    from curation.planning.estimate import Estimate as Estimate, estimate as estimate
    from curation.rules.effects import Effect as Effect, Effects as Effects, Histogram as Histogram
    from curation.finished.comparison import Comparison as Comparison, compare_runs as compare_runs
    from curation.finished.results import run_documents as run_documents
    from curation.finished.run_result import RunResult as RunResult, open_run as open_run
    from curation.running.run import run as run
    from curation.finished.verify import verify as verify
    from curation.stages import (
        AssignClusters as AssignClusters,
        MeasureStage as MeasureStage,
        Mix as Mix,
        Classify as Classify,
        Decontaminate as Decontaminate,
        Embed as Embed,
        ExactDedup as ExactDedup,
        Filter as Filter,
        FuzzyDedup as FuzzyDedup,
        Language as Language,
        NgramDedup as NgramDedup,
        Perplexity as Perplexity,
        Redact as Redact,
        Rewrite as Rewrite,
        Select as Select,
        SemanticDedup as SemanticDedup,
    )
    from curation.stages.base import CorpusStage as CorpusStage, Phase as Phase, RowStage as RowStage
    from curation.stages.outcome import (
        Cuts as Cuts,
        Decision as Decision,
        Drops as Drops,
        Outcome as Outcome,
    )

__version__ = "0.4.0.dev0"

_HOMES = {
    "curation.library.functions": (
        "apply",
        "decontaminate",
        "explain",
        "filter",
        "language",
        "measure",
        "read",
        "redact",
        "rewrite",
    ),
    "curation.library.deduplication": ("exact_dedup", "fuzzy_dedup", "ngram_dedup", "semantic_dedup"),
    "curation.library.duplicates": ("Duplicates",),
    "curation.library.close_vectors": ("align", "clusters", "neighbours"),
    "curation.library.plotting": ("plot",),
    "curation.planning.estimate": ("Estimate", "estimate"),
    "curation.library.classifier_training": ("ClassifierSettings", "TrainedClassifier", "train_classifier"),
    "curation.library.lm_training": ("TrainedLM", "train_lm"),
    "curation.library.overlap": ("EvaluationSet", "Overlap", "check_overlap"),
    "curation.library.scores": ("assign_clusters", "classify", "embed", "mix", "perplexity", "select"),
    "curation.library.token_coverage": ("CoverageGroup", "TokenCoverage", "token_coverage"),
    "curation.library.thresholds": ("decide", "rule_effects"),
    "curation.rules.effects": ("Effect", "Effects", "Histogram"),
    "curation.finished.run_result": ("RunResult", "open_run"),
    "curation.running.run": ("run",),
    "curation.recipes.recipe": ("Output", "Recipe", "Report", "convert_recipe", "load_recipe", "parse_recipe"),
    "curation.packing.blends": ("Blend", "Megatron"),
    "curation.packing.forms": ("Blocks", "Chunks", "Packed", "TokenShards"),
    "curation.reading.inputs": ("Budget", "FilesInput", "HubInput", "Input"),
    "curation.packing.samples": ("Sample",),
    "curation.stages.base": ("CorpusStage", "Phase", "RowStage"),
    "curation.stages.outcome": ("Cuts", "Decision", "Drops", "Outcome"),
    "curation.system.files": ("known_sha256",),
    "curation.stages": (
        "AssignClusters",
        "MeasureStage",
        "Mix",
        "Classify",
        "Decontaminate",
        "Embed",
        "ExactDedup",
        "Filter",
        "FuzzyDedup",
        "Language",
        "NgramDedup",
        "Perplexity",
        "Redact",
        "Rewrite",
        "Select",
        "SemanticDedup",
    ),
    "curation.rules.decide": ("RULE_SETS", "Rule", "Verdict"),
    "curation.measures": ("Measure",),
    "curation.packing.tokenization": ("TokenizerSpec", "load_tokenizer"),
    "curation.packing.tokenizer_training": ("Trained", "train_tokenizer"),
    "curation.packing.indexed": ("IndexedReader",),
    "curation.finished.comparison": ("Comparison", "compare_runs"),
    "curation.finished.results": ("run_documents",),
    "curation.finished.verify": ("verify",),
    "curation.errors": (
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
_RENAMED = {"AddMeasures": "MeasureStage", "Finished": "RunResult"}  # until 0.4

__all__ = ["__version__", *sorted(_HOME_OF)]


if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in _RENAMED:
            new = _RENAMED[name]
            warnings.warn(f"curation.{name} is now curation.{new}", DeprecationWarning, stacklevel=2)
            name = new
        if name not in _HOME_OF:
            raise AttributeError(f"module 'curation' has no attribute {name!r}")
        return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
