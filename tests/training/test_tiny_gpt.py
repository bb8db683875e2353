# SPDX-License-Identifier: Apache-2.0
"""A tiny GPT learns from every form: its loss falls clearly below the entropy of single tokens, which is as far as a
model gets that reads rows in the wrong order, cut in the wrong places, or as the wrong dtype."""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.needs import needs

torch = needs("torch")

from curation.recipes.recipe import convert_recipe
from curation.running.run import run
from curation.tokens.indexed import IndexedReader
from curation.tools.demo import collect_documents
from curation.training import BlockDataset, ChunkDataset, Loader, MegatronDataset, PackedDataset, TokenDataset
from tests.tokens.samples import train_tokenizer, write_jsonl
from tests.training.tiny_gpt import TinyGPT, train, unigram_entropy

LENGTH, VOCABULARY, STEPS = 64, 512, 170


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """A model this small loses more by waiting for threads than it gains: 12 ms a step on one, up to 250 on a busy
    machine with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def prose(tmp_path_factory) -> Path:
    """A run over a megabyte of docstrings, split by document."""
    folder = tmp_path_factory.mktemp("prose")
    texts = [document["text"] for document in collect_documents(1_000_000, 1_000_000)]
    tokenizer = train_tokenizer(folder / "tokenizer.json", texts, VOCABULARY)
    output = {
        "formats": ["megatron", "token_shards", "blocks", "chunks", "packed"],
        "shuffle": True,
        "splits": {"train": 0.9, "valid": 0.1},
        "blocks": {"length": LENGTH},
        "chunks": {"length": LENGTH},
        "packed": {"length": LENGTH},
    }
    content = {"tokenizer": {"name": str(tokenizer)}, "output": output}
    path = write_jsonl(folder / "prose.jsonl", texts)
    run(convert_recipe(content | {"input": [{"path": str(path)}]}), folder / "out")
    return folder / "out"


def as_batch(batch: Any) -> dict[str, Any]:
    """What the model takes: plain rows are their own labels."""
    if not isinstance(batch, dict):
        return {"input_ids": batch, "labels": batch}
    return {name: tensor for name, tensor in batch.items() if name != "attention_mask"}  # padding is on the right


def endless(loader: Loader) -> Iterator[dict[str, Any]]:
    while True:
        yield from map(as_batch, loader)


OPENED: dict[str, Callable[[Path, str], Any]] = {
    "megatron": lambda out, split: MegatronDataset.from_blend(out / "tokens/_meta/per_split.json", LENGTH, split=split),
    "token_shards": lambda out, split: TokenDataset(out / "token_shards", LENGTH, split),
    "blocks": lambda out, split: BlockDataset(out / "blocks", split),
    "chunks": lambda out, split: ChunkDataset(out / "chunks", split),
    "packed": lambda out, split: PackedDataset(out / "packed", split),
}


@pytest.mark.parametrize("form", OPENED)
def test_loss_falls_below_the_unigram_entropy(prose, form):
    stream = np.concatenate(list(IndexedReader(prose / "tokens/prose_train_00000_text_document")))
    entropy = unigram_entropy(torch.from_numpy(np.bincount(stream, minlength=VOCABULARY).astype(np.float64)))
    torch.manual_seed(1)
    model = TinyGPT(VOCABULARY, LENGTH)
    losses = train(model, islice(endless(Loader(OPENED[form](prose, "train"), 16)), STEPS))
    assert losses[0] > entropy  # nothing is known at the start
    with torch.no_grad():
        held_out = [model(**batch).item() for batch in islice(endless(Loader(OPENED[form](prose, "valid"), 64)), 4)]
    assert np.mean(losses[-10:]) < 0.94 * entropy
    assert np.mean(held_out) < 0.94 * entropy


def test_shuffled_tokens_teach_nothing_but_frequencies(prose):
    """The counter-example that shows what the bound above means."""
    stream = np.concatenate(list(IndexedReader(prose / "tokens/prose_train_00000_text_document"))).astype(np.int64)
    entropy = unigram_entropy(torch.from_numpy(np.bincount(stream, minlength=VOCABULARY).astype(np.float64)))
    mixed = torch.from_numpy(np.random.default_rng(1).permutation(stream))[: 16 * STEPS * LENGTH]
    torch.manual_seed(1)
    batches = [{"input_ids": rows, "labels": rows} for rows in mixed.view(-1, 16, LENGTH)]
    losses = train(TinyGPT(VOCABULARY, LENGTH), batches)
    assert np.mean(losses[-10:]) > 0.95 * entropy
