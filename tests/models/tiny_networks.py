# SPDX-License-Identifier: Apache-2.0
"""Folders of tiny models of every family with random weights, made by the package transformers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from tests.models.tiny_files import WORDS, write_safetensors, write_tokenizer
from tests.needs import needs

torch = needs("torch")
needs("transformers")

from transformers.models.auto import configuration_auto, modeling_auto

SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
    "initializer_range": 0.5,
}  # fmt: skip
KEYS = {"num_key_value_heads": 1, "head_dim": 8}
RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
OWN: dict[str, dict[str, Any]] = {
    "deberta": RELATIVE,
    "deberta-v2": RELATIVE | {"position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "electra": {"embedding_size": 8},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40},
    "llama": KEYS | {"rope_theta": 100.0, "rope_scaling": LLAMA3},
    "mistral": KEYS | {"sliding_window": 6}, "qwen2": KEYS, "qwen3": KEYS,
    "mpnet": {"pad_token_id": 1},  # its positions always begin behind 1
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 2, "sep_token_id": 3},
}  # fmt: skip
SCORES, TOKENS = "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING", "MODEL_FOR_CAUSAL_LM_MAPPING"


def write_network(folder: Path, family: str, kind: str = SCORES, **changes: Any) -> Any:
    """Write a model that gives `kind`, with the labels low, middle and high; return the module of the package."""
    values = SIZES | OWN.get(family, {}) | {"id2label": {0: "low", 1: "middle", 2: "high"}} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `rope_scaling` is the name of before
        config = configuration_auto.CONFIG_MAPPING[family].from_dict(values)
    module = getattr(modeling_auto, kind)[type(config)]
    torch.manual_seed(1)
    network = module._from_config(config, attn_implementation="eager").eval()
    folder.mkdir(parents=True, exist_ok=True)
    stored = values | {"model_type": family, "architectures": [module.__name__]}
    (folder / "config.json").write_text(json.dumps(stored))
    tensors = {name: each.numpy() for name, each in network.state_dict().items() if each.is_floating_point()}
    write_safetensors(folder / "model.safetensors", tensors)
    write_tokenizer(folder)
    return network
