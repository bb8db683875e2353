# SPDX-License-Identifier: Apache-2.0
"""Real megatron-core builds its GPTDataset and BlendedDataset from what a run hands over."""

import ast
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pytest
import yaml

from tests.needs import needs

needs("torch")
needs("megatron.core")

from curation.tokens.blends import documents_per_split
from curation.tokens.indexed import IndexedReader

LENGTH = 64
pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings("ignore::FutureWarning")]


@pytest.fixture(scope="module", autouse=True)
def process_group(tmp_path_factory):
    """megatron-core asks for its rank as soon as it has a cache to write."""
    import torch.distributed as distributed

    file = tmp_path_factory.mktemp("group") / "store"
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class FakeTokenizer:
    """What GPTDatasetConfig asks of a tokenizer."""

    def __init__(self, meta: Path) -> None:
        tokens = orjson.loads((meta / "manifest.json").read_bytes())["tokens"]
        self.vocab_size, self.eod = tokens["vocabulary"], tokens["tokenizer"]["eod"]
        self.pad = self.eos = self.eod
        self.unique_identifiers = {"class": "FakeTokenizer"}


def build(meta: Path, samples: list[int], cache: Path, **blend):
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=LENGTH,
        tokenizer=FakeTokenizer(meta),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        path_to_cache=str(cache),
        **blend,
    )
    return BlendedMegatronDatasetBuilder(GPTDataset, samples, lambda: True, config).build()


def blend_of(words: list[str]) -> tuple[list[str], list[float]]:
    from megatron.core.datasets.utils import get_blend_from_list

    prefixes, weights = get_blend_from_list(words)
    assert weights is not None  # else Megatron has taken the weights for paths
    return prefixes, weights


def streams(prefixes: list[str]) -> list[np.ndarray]:
    return [np.concatenate(list(IndexedReader(prefix))) for prefix in prefixes]


def test_a_blended_data_set_from_blend_txt(trained, tmp_path):
    from megatron.core.datasets.blended_dataset import BlendedDataset
    from megatron.core.datasets.gpt_dataset import GPTDataset

    meta = trained / "whole/tokens/_meta"
    prefixes, weights = blend_of((meta / "blend.txt").read_text().split())
    assert len(prefixes) == len(weights) == 3
    train, valid, test = build(meta, [200, 20, 10], tmp_path, blend=(prefixes, weights), split="80,10,10")
    for dataset, samples in ((train, 200), (valid, 20), (test, 10)):
        assert isinstance(dataset, BlendedDataset)
        assert samples <= len(dataset) <= samples + len(prefixes)  # it rounds up per pair
    assert all(isinstance(dataset, GPTDataset) for dataset in train.datasets)
    drawn = np.bincount(train.dataset_index, minlength=len(prefixes)) / len(train)
    assert np.allclose(drawn, np.array(weights) / sum(weights), atol=0.02)
    documents = {tuple(ids.tolist()) for prefix in prefixes for ids in IndexedReader(prefix)}
    eod = FakeTokenizer(meta).eod
    for number in range(20):
        tokens = [int(token) for token in train[number]["tokens"]]
        ends = [at for at, token in enumerate(tokens) if token == eod]
        for low, high in pairwise(ends):  # whole documents inside the sample
            assert tuple(tokens[low + 1 : high + 1]) in documents


def test_data_sets_of_each_split_from_per_split_json(trained, tmp_path):
    meta = trained / "out/tokens/_meta"
    per_split = orjson.loads((meta / "per_split.json").read_bytes())
    blends = [blend_of(per_split[name]) for name in ("train", "valid", "test")]
    datasets = build(meta, [100, 10, 5], tmp_path, blend_per_split=blends)
    own = []
    for name, dataset, (prefixes, _) in zip(per_split, datasets, blends, strict=True):
        assert all(f"_{name}_" in prefix for prefix in prefixes)
        text = " ".join(map(str, np.concatenate(streams(prefixes)).tolist()))
        own.append(text)
        sample = dataset[0]["tokens"].tolist()
        eod = FakeTokenizer(meta).eod
        whole = " ".join(map(str, sample[: sample.index(eod) + 1] if eod in sample else sample))
        assert f" {whole} " in f" {text} "


def test_the_lines_to_paste_are_what_megatron_takes(trained, tmp_path):
    for run, samples in (("whole", [50, 5, 5]), ("out", [50, 5, 5])):
        meta = trained / run / "tokens/_meta"
        (line,) = [text for text in (meta / "README.txt").read_text().splitlines() if "GPTDatasetConfig(" in text]
        call = ast.parse(line.strip().replace(", ...", "")).body[0].value
        options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        assert options.pop("sequence_length") == 4096
        assert options.pop("path_to_cache") == str(trained / run / "index_mapping")
        assert len(build(meta, samples, tmp_path / run, **options)[0]) >= 50


def test_nemo_yaml_has_the_same_blend(trained):
    data = yaml.safe_load((trained / "whole/tokens/_meta/nemo.yaml").read_text())["model"]["data"]
    words = (trained / "whole/tokens/_meta/blend.txt").read_text().split()
    assert [str(item) if number % 2 else item for number, item in enumerate(data["data_prefix"])] == [
        word if number % 2 else float(word) for number, word in enumerate(words)
    ]
    split = yaml.safe_load((trained / "out/tokens/_meta/nemo.yaml").read_text())["model"]["data"]["data_prefix"]
    assert list(split) == ["train", "validation", "test"]


@pytest.mark.parametrize("documents", [1, 2, 49, 50, 51, 99, 100, 1000])
@pytest.mark.parametrize("split", ["98,1,1", "1,0,0", "90,5,5", "0.99,0.01,0"])
def test_documents_per_side_are_megatrons(documents, split):
    from megatron.core.datasets.blended_megatron_dataset_config import (
        convert_split_vector_to_split_matrix,
        parse_and_normalize_split,
    )

    matrix = convert_split_vector_to_split_matrix(parse_and_normalize_split(split))
    expected = [
        round(math.fsum([side[1]]) * documents) - round(side[0] * documents) for side in matrix if side is not None
    ]
    assert documents_per_split(documents, [float(share) for share in split.split(",")]) == expected
