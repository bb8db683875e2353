# SPDX-License-Identifier: Apache-2.0
"""Files of tiny models: tokenizers, tensors, and static embeddings."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

LETTERS = "abcdefghij"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, ".", "good", "bad", "text", *(f"##{each}" for each in LETTERS)]
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64"}


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in tensors.items():
        offsets = [len(data), len(data) + values.nbytes]
        header[name] = {"dtype": NAMES[values.dtype.name], "shape": values.shape, "data_offsets": offsets}
        data += values.tobytes()
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(5)  # such settings of a file are ignored
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_static(folder: Path, **tensors: np.ndarray) -> Path:
    """Write static embeddings of 4 dimensions; `tensors` replace those of the file."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    table = np.random.default_rng(3).standard_normal((len(WORDS), 4)).astype(np.float32)
    write_safetensors(folder / "model.safetensors", {"embeddings": table} | tensors)
    write_tokenizer(folder)
    return folder
