# SPDX-License-Identifier: Apache-2.0
"""Raw text to training data for language models: curated, deduplicated, tokenised, packed; one result on GPU and CPU.

    import curation
    frame = curation.read("data/*.jsonl.gz")            # a lazy Dask DataFrame
    frame = curation.filter(curation.rewrite(frame, unicode="nfc"), rules="gopher")
    recipe = curation.load_recipe("default", input="data/*.jsonl.gz")
    finished = curation.run(recipe, "out")

Everything is loaded on first use, so that `import curation` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.3.0.dev0"

_HOMES = {
    "curation.library": (
        "decontaminate",
        "exact_dedup",
        "filter",
        "fuzzy_dedup",
        "language",
        "measure",
        "read",
        "redact",
        "rewrite",
    ),
    "curation.running.runner": ("Finished", "run"),
    "curation.recipe": ("Output", "Recipe", "convert_recipe", "load_recipe", "parse_recipe"),
    "curation.packing.blends": ("Blend", "Megatron"),
    "curation.packing.forms": ("Blocks", "Chunks", "Packed", "TokenShards"),
    "curation.reading.inputs": ("Budget", "FilesInput", "HubInput", "Input"),
    "curation.packing.samples": ("Sample",),
    "curation.stages.base": ("CorpusStage", "Phase", "RowStage"),
    "curation.stages.outcome": ("Cuts", "Decision", "Drops", "Outcome"),
    "curation.files": ("known_sha256",),
    "curation.stages": (
        "AddMeasures",
        "Decontaminate",
        "ExactDedup",
        "Filter",
        "FuzzyDedup",
        "Language",
        "NgramDedup",
        "Redact",
        "Rewrite",
    ),
    "curation.rules": ("RULE_SETS", "Rule", "Verdict"),
    "curation.measures": ("Measure",),
    "curation.packing.tokenization": ("TokenizerSpec", "load_tokenizer"),
    "curation.packing.tokenizer_training": ("Trained", "train_tokenizer"),
    "curation.packing.indexed": ("IndexedReader",),
    "curation.running.verify": ("verify",),
    "curation.errors": (
        "CurationError",
        "EngineError",
        "InputError",
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
