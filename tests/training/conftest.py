# SPDX-License-Identifier: Apache-2.0
"""One run with every form, made once for all tests of the data sets."""

from pathlib import Path

import pytest

from curation.recipes.recipe import convert_recipe
from curation.running.run import run
from tests.tokens.samples import make_texts, train_tokenizer, write_jsonl

LENGTH = 32
SETTINGS = {
    "formats": ["megatron", "token_shards", "blocks", "chunks", "packed"],
    "token_shards": {"shard_tokens": 4000},
    "blocks": {"length": LENGTH, "shard_blocks": 50},
    "chunks": {"length": LENGTH, "min_tokens": 4, "shard_chunks": 60},
    "packed": {"length": LENGTH, "shard_rows": 40},
    "max_file_bytes": 20_000,
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A folder with `out/`, a finished run with splits of two inputs, and `whole/`, the same without splits."""
    folder = tmp_path_factory.mktemp("training")
    texts = make_texts(600)
    tokenizer = train_tokenizer(folder / "tokenizer.json", texts)
    paths = [write_jsonl(folder / "one.jsonl", texts[:400]), write_jsonl(folder / "two.jsonl", texts[400:])]
    content = {"input": [{"path": str(path)} for path in paths], "tokenizer": {"name": str(tokenizer)}}
    for name, splits in (("out", {"train": 0.8, "valid": 0.1, "test": 0.1}), ("whole", {})):
        run(convert_recipe(content | {"output": SETTINGS | {"splits": splits}}), folder / name)
    return folder
