# SPDX-License-Identifier: Apache-2.0
"""The leaves of `curation`: what can be cut off. Only tables name their modules (docs/architecture.md)."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Files with a line per module. A leaf is cut off with its lines in them.
TABLES = (
    "curation/__init__.py",
    "curation/cli/groups.py",
    "curation/stages/__init__.py",
    "curation/tokens/forms/__init__.py",
)

# Leaf -> patterns of its files, below `curation/`.
LEAVES = {
    "ablate": ("cli/ablating*.py", "kernels/byte_ngrams.py", "results/report/page/ablation.html", "tools/ablation/*"),
    "check_overlap": ("cli/overlap.py", "tools/overlap*.py"),
    "compare": ("cli/comparing.py", "results/finished/changed_settings.py", "results/finished/comparison*.py",
                "results/report/page/comparison.html"),
    "coverage of tokenizers": ("cli/coverage.py", "tools/token_coverage.py"),
    "demo": ("cli/demo.py", "demo.py", "tools/demo.py"),
    "doctor": ("cli/doctor.py", "tools/doctor.py"),
    "embeddings and clusters": (
        "cli/aligning.py", "cli/embedding.py", "frames/close_vectors.py", "frames/projections.py",
        "models/cluster_words.py", "stages/rows/embed.py", "stages/vectors/*",
    ),
    "generate": ("cli/generating.py", "tools/synthesis/*"),
    "graphs": ("tools/graph*.py",),
    "import-config": ("cli/importing.py", "recipes/imported/*"),
    "loaders for PyTorch": ("cli/loading.py", "results/finished/loader_check.py", "training/*"),
    "litdata": ("tokens/forms/litdata.py",),
    "MDS": ("tokens/forms/mds.py",),
    "plots": ("frames/plotting.py",),
    "push": ("cli/pushing.py", "results/finished/hub_*.py"),
    "training of models and tokenizers": (
        "cli/training.py", "kernels/ngram_counts.py", "tokens/sentencepiece_training.py",
        "tokens/tokenizer_training.py",
        "tools/classifier_training.py", "tools/external_sort.py", "tools/lm_training.py", "tools/scoring_metrics.py",
    ),
}  # fmt: skip


def files_of(leaf: str) -> set[Path]:
    """Return the files of a leaf."""
    folder = ROOT / "curation"
    return {
        path
        for path in folder.rglob("*")
        if path.is_file() and any(fnmatchcase(path.relative_to(folder).as_posix(), name) for name in LEAVES[leaf])
    }
