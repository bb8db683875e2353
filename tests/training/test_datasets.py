# SPDX-License-Identifier: Apache-2.0
"""Every sample once per epoch, in one order for any number of workers and ranks, and resumed at the exact sample."""

import os
import pickle
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.needs import needs

torch = needs("torch")

from torch.utils.data import DataLoader

from curation.base.errors import InputError
from curation.recipes.recipe import convert_recipe
from curation.running.run import run
from curation.tokens.indexed import IndexedReader
from curation.training import (
    BlockDataset,
    ChunkDataset,
    Loader,
    MegatronDataset,
    PackedDataset,
    TokenDataset,
    collate,
    load_sample,
    save_sample,
)
from curation.training.megatron import apportion
from curation.training.positions import WorkerShare, positions
from tests.training.conftest import LENGTH

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than processors, on purpose
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),  # Python 3.12 and later
]


def rows(samples) -> list[tuple[int, ...]]:
    return [tuple(sample.tolist()) for sample in samples]


def batch_rows(batches) -> list[tuple[int, ...]]:
    return [row for batch in batches for row in rows(batch)]


@pytest.fixture
def blocks(trained) -> Path:
    return trained / "whole/blocks"


def stored(folder: Path) -> list[tuple[int, ...]]:
    return rows(torch.from_numpy(np.concatenate([np.load(path) for path in sorted(folder.glob("*.npy"))]).astype(int)))


# dealing out


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("start", [0, 6, 101])
def test_positions_are_dealt_without_loss_or_overlap(monkeypatch, ranks, workers, batch, start):
    monkeypatch.setattr("curation.training.positions.BATCH_POSITIONS", 7)
    found: list[int] = []
    for rank in range(ranks):
        for worker in range(workers):
            own = [
                p
                for run in positions(WorkerShare(rank, ranks, worker, workers, batch), start, 100)
                for p in run.tolist()
            ]
            assert own == sorted(own)
            found += own
    assert sorted(found) == list(range(start, 100))


# blocks


def test_an_epoch_has_every_block_once_and_the_next_another_order(blocks):
    dataset = BlockDataset(blocks, seed=3)
    first, second = rows(dataset), rows(dataset)
    assert sorted(first) == sorted(second) == sorted(stored(blocks))
    assert first != second != stored(blocks)
    assert first == rows(BlockDataset(blocks, seed=3))
    assert first != rows(BlockDataset(blocks, seed=4))
    assert rows(BlockDataset(blocks, shuffle=False)) == stored(blocks)
    assert len(dataset) == len(first)


def test_shards_and_rows_are_both_shuffled(blocks):
    where = {row: number // 50 for number, row in enumerate(stored(blocks))}
    order = [where[row] for row in rows(BlockDataset(blocks, seed=1))]
    visited = [shard for shard, before in zip(order, [None, *order[:-1]], strict=True) if shard != before]
    assert len(visited) == len(set(order)) > 3  # one shard after the other
    assert visited != sorted(visited)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_change_nothing(blocks, workers):
    expected = batch_rows(Loader(BlockDataset(blocks, seed=2), 8))
    loader = Loader(BlockDataset(blocks, seed=2), 8, workers=workers)
    assert batch_rows(loader) == expected
    assert batch_rows(loader) != expected  # the second epoch
    assert len(loader) == -(-len(expected) // 8)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_an_epoch(blocks, ranks, workers):
    expected = rows(BlockDataset(blocks, seed=2))
    found = [
        batch_rows(Loader(BlockDataset(blocks, seed=2, rank=rank, ranks=ranks), 4, workers=workers))
        for rank in range(ranks)
    ]
    for rank, own in enumerate(found):
        assert own == expected[rank::ranks]
    even = [len(BlockDataset(blocks, rank=rank, ranks=ranks, even=True)) for rank in range(ranks)]
    assert set(even) == {len(expected) // ranks}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("taken", [0, 1, 5, 1000])
def test_resumed_at_the_exact_sample(blocks, workers, taken):
    whole = Loader(BlockDataset(blocks, seed=2), 8, workers=workers)
    expected = [batch_rows(whole), batch_rows(whole)]
    before = Loader(BlockDataset(blocks, seed=2), 8, workers=workers)
    found = batch_rows(islice(before, taken))
    state = pickle.loads(pickle.dumps(before.state_dict()))
    after = Loader(BlockDataset(blocks, seed=2), 8, workers=2 - workers)
    after.load_state_dict(state)
    if taken < 1000:
        found += batch_rows(after)
    assert found == expected[0]
    assert batch_rows(after) == expected[1]


def test_resumed_with_another_number_of_ranks(blocks):
    expected = rows(BlockDataset(blocks, seed=2))
    loaders = [Loader(BlockDataset(blocks, seed=2, rank=rank, ranks=3), 4) for rank in range(3)]
    seen = [batch_rows(islice(loader, 5)) for loader in loaders]
    states = [loader.state_dict() for loader in loaders]
    assert states[0] == states[1] == states[2]
    rest = []
    for rank in range(2):
        loader = Loader(BlockDataset(blocks, seed=2, rank=rank, ranks=2), 4)
        loader.load_state_dict(states[0])
        rest.append(batch_rows(loader))
    assert sorted(row for own in seen for row in own) == sorted(expected[:60])
    assert sorted(rest[0] + rest[1]) == sorted(expected[60:])


def test_a_block_dataset_alone_counts_what_it_gave(blocks):
    dataset = BlockDataset(blocks, seed=2)
    expected = rows(BlockDataset(blocks, seed=2))
    found = rows(islice(dataset, 13))
    again = BlockDataset(blocks, seed=2)
    again.load_state_dict(dataset.state_dict())
    assert found + rows(again) == expected


def test_a_plain_dataloader_takes_it(blocks):
    dataset = BlockDataset(blocks, seed=2, batch_size=8)
    expected = batch_rows(Loader(BlockDataset(blocks, seed=2), 8))
    assert batch_rows(DataLoader(dataset, batch_size=8, num_workers=2)) == expected
    dataset.set_epoch(1)
    assert batch_rows(DataLoader(dataset, batch_size=8, num_workers=2)) != expected


def test_torch_shards_give_the_same_samples(trained, tmp_path):
    inputs = [{"path": str(trained / name)} for name in ("one.jsonl", "two.jsonl")]
    output = {
        "formats": ["blocks", "chunks"],
        "blocks": {"length": LENGTH, "shard_blocks": 50, "file_type": "pt"},
        "chunks": {"length": LENGTH, "min_tokens": 4, "shard_chunks": 60, "file_type": "pt"},
    }
    content = {"input": inputs, "tokenizer": {"name": str(trained / "tokenizer.json")}, "output": output}
    run(convert_recipe(content), tmp_path / "out")
    assert rows(BlockDataset(tmp_path / "out/blocks", seed=5)) == rows(BlockDataset(trained / "whole/blocks", seed=5))
    found, expected = ChunkDataset(tmp_path / "out/chunks"), ChunkDataset(trained / "whole/chunks")
    assert rows(found[k] for k in range(len(found))) == rows(expected[k] for k in range(len(expected)))


# chunks


def test_chunks_are_the_stored_ones(trained):
    folder = trained / "whole/chunks"
    expected: list[tuple[int, ...]] = []
    for path in sorted(folder.glob("*.ids.npy")):
        lengths = np.load(str(path).replace(".ids.", ".lengths."))
        expected += [tuple(piece.tolist()) for piece in np.split(np.load(path), np.cumsum(lengths)[:-1])]
    dataset = ChunkDataset(folder)
    assert len(dataset) == len(expected)
    assert rows(dataset[k] for k in range(len(dataset))) == expected
    with pytest.raises(IndexError, match="chunk"):
        dataset[len(dataset)]


def test_collate_pads_on_the_right():
    samples = [torch.tensor([5, 6, 7]), torch.tensor([8])]
    batch = collate(samples, pad_id=9)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [[5, 6, 7], [8, -100, -100]]
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}


def test_collate_to_a_fixed_length_pads_and_cuts():
    batch = collate([torch.tensor([5, 6, 7]), torch.tensor([9])], pad_id=9, length=2)
    assert batch["input_ids"].tolist() == [[5, 6], [9, 9]]
    assert batch["labels"].tolist() == [[5, 6], [9, -100]]  # a real 9 is no padding
    assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]


@pytest.mark.parametrize("workers", [0, 2])
def test_chunk_loader_shuffles_and_resumes(trained, workers):
    dataset = ChunkDataset(trained / "whole/chunks")
    whole = Loader(dataset, 16, seed=4, workers=workers)
    expected = [batch["input_ids"] for batch in whole]
    assert {batch.shape[1] for batch in expected} <= {*range(4, LENGTH + 1)}
    before = Loader(dataset, 16, seed=4, workers=workers)
    found = [batch["input_ids"] for batch in islice(before, 3)]
    after = Loader(dataset, 16, seed=4)
    after.load_state_dict(before.state_dict())
    found += [batch["input_ids"] for batch in after]
    assert batch_rows(found) == batch_rows(expected)
    fixed = Loader(dataset, 16, collate=dataset.collate_fixed)
    assert {batch["input_ids"].shape[1] for batch in fixed} == {LENGTH}


def test_ranks_share_an_indexed_data_set(trained):
    dataset = TokenDataset(trained / "whole/token_shards", LENGTH)
    expected = batch_rows(Loader(dataset, 4, seed=1))
    found = [batch_rows(Loader(dataset, 4, seed=1, rank=rank, ranks=2, workers=rank)) for rank in range(2)]
    assert [*found] == [expected[0::2], expected[1::2]]


# packed, token_shards


def test_packed_rows_tell_documents_apart(trained):
    dataset = PackedDataset(trained / "whole/packed")
    eod = orjson.loads((trained / "whole/packed/manifest.json").read_bytes())["pad_id"]
    for index in range(len(dataset)):
        row = {name: tensor.tolist() for name, tensor in dataset[index].items()}
        for at in range(LENGTH):
            new = at == 0 or row["document_ids"][at] != row["document_ids"][at - 1]
            if row["document_ids"][at] == 0:
                assert (row["input_ids"][at], row["labels"][at]) == (eod, -100)
            else:
                assert row["position_ids"][at] == (0 if new else row["position_ids"][at - 1] + 1)
                assert row["labels"][at] == row["input_ids"][at]
    assert len(next(iter(Loader(dataset, 8)))["input_ids"]) == 8


def test_windows_of_token_shards(trained):
    folder = trained / "whole/token_shards"
    dataset = TokenDataset(folder, 100)
    shards = [np.fromfile(path, "<u2") for path in sorted(folder.glob("*.bin"))]
    expected = [tuple(s[k : k + 100].tolist()) for s in shards for k in range(0, len(s) - 99, 100)]
    assert rows(dataset[k] for k in range(len(dataset))) == expected
    with pytest.raises(InputError, match="Give a smaller length"):
        TokenDataset(folder, 10**6)


# Megatron pairs


def pairs(trained: Path) -> list[Path]:
    return sorted(path.with_suffix("") for path in (trained / "whole/tokens").glob("*.idx"))


def test_samples_go_across_documents(trained):
    prefix = pairs(trained)[0]
    stream = np.concatenate(list(IndexedReader(prefix))).tolist()
    dataset = MegatronDataset(prefix, 100)
    assert len(dataset) == len(stream) // 100
    assert rows(dataset[k] for k in range(len(dataset))) == [
        tuple(stream[k * 100 : k * 100 + 100]) for k in range(len(dataset))
    ]


def test_a_blend_draws_by_weight_and_repeats_small_pairs(trained):
    found = pairs(trained)[:2]
    weights, samples = [1.0, 3.0], 400
    dataset = MegatronDataset(found, 100, weights=weights, samples=samples)
    drawn = batch_rows(Loader(dataset, 16, seed=1))
    assert len(drawn) == samples
    first, second = (MegatronDataset(prefix, 100) for prefix in found)
    own = [{*rows(data[k] for k in range(len(data)))} for data in (first, second)]
    assert [sum(row in mine for row in drawn) for mine in own] == [100, 300]
    counts = {row: drawn.count(row) for row in own[1]}
    assert max(counts.values()) - min(counts.values()) <= 1  # whole epochs, and a part of one


def test_a_blend_from_the_files_of_a_run(trained):
    whole = MegatronDataset.from_blend(trained / "whole/tokens/_meta/blend.txt", 64)
    assert whole.prefixes == [str(prefix) for prefix in pairs(trained)]
    valid = MegatronDataset.from_blend(trained / "out/tokens/_meta/per_split.json", 64, split="valid")
    assert all("_valid_" in prefix for prefix in valid.prefixes)
    with pytest.raises(InputError, match="no pairs for split 'dev'"):
        MegatronDataset.from_blend(trained / "out/tokens/_meta/per_split.json", 64, split="dev")
    with pytest.raises(InputError, match=r"blend.txt is the train split. Give the per_split.json .* 'valid'"):
        MegatronDataset.from_blend(trained / "out/tokens/_meta/blend.txt", 64, split="valid")


def test_a_megatron_data_set_can_be_sent_to_workers(trained):
    dataset = MegatronDataset(pairs(trained)[:2], 64, weights=[1, 2], samples=50)
    copy = pickle.loads(pickle.dumps(dataset))
    assert (copy.data, len(copy)) == (dataset.data, 50)
    assert rows(copy[k] for k in range(50)) == rows(dataset[k] for k in range(50))


@pytest.mark.parametrize(("total", "shares"), [(10, [1, 1, 1]), (7, [0.1, 0.9]), (0, [1.0]), (1000, [1e-9, 1, 3])])
def test_apportioned_counts_add_up(total, shares):
    counts = apportion(total, shares)
    assert sum(counts) == total
    assert all(abs(n - total * s / sum(shares)) < 1 for n, s in zip(counts, shares, strict=True))


@pytest.mark.parametrize("weight", [0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_draws_nothing_is_refused(trained, weight):
    with pytest.raises(InputError, match=r"expected one above 0\. Leave the pair out"):
        MegatronDataset(pairs(trained)[:2], 64, weights=[1.0, weight])


def test_a_pair_shorter_than_a_sample_is_refused(trained):
    with pytest.raises(InputError, match="less than one sample of 10000000 tokens"):
        MegatronDataset(pairs(trained)[0], 10**7)


# bad input


def test_states_of_another_data_set_are_refused(trained, blocks):
    state = BlockDataset(blocks, seed=1).state_dict()
    for other in (
        BlockDataset(blocks, seed=2),
        BlockDataset(blocks, seed=1, shuffle=False),
        BlockDataset(trained / "out/blocks", seed=1),
        BlockDataset(trained / "out/blocks", "valid", seed=1),
        Loader(ChunkDataset(trained / "whole/chunks"), 4),
    ):
        with pytest.raises(InputError, match="the state belongs to another data set, split, seed or order"):
            other.load_state_dict(state)
    with pytest.raises(InputError, match="the state lacks data, position, expected a state of Loader"):
        Loader(BlockDataset(blocks), 4).load_state_dict({"epoch": 3})


def test_a_changed_pair_is_another_data_set(trained, tmp_path):
    prefix = pairs(trained)[0]
    for suffix in (".bin", ".idx"):
        shutil.copy(f"{prefix}{suffix}", tmp_path / f"copy{suffix}")
    state = Loader(MegatronDataset(tmp_path / "copy", 64), 4).state_dict()
    Loader(MegatronDataset(prefix, 64), 4).load_state_dict(state)  # the same content
    with open(tmp_path / "copy.bin", "r+b") as file:
        file.write(b"\1\0")
    with pytest.raises(InputError, match="another data set"):
        Loader(MegatronDataset(tmp_path / "copy", 64), 4).load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "folder"),
    [
        (BlockDataset, "blocks"),
        (ChunkDataset, "chunks"),
        (PackedDataset, "packed"),
        (lambda path, **options: TokenDataset(path, 16, **options), "token_shards"),
    ],
    ids=["blocks", "chunks", "packed", "token_shards"],
)
def test_folders_that_are_not_as_they_were_are_refused(trained, tmp_path, make, folder):
    copy = tmp_path / folder
    shutil.copytree(trained / "out" / folder, copy)
    make(copy)
    with pytest.raises(InputError, match="has no split 'dev'; it has train, valid, test"):
        make(copy, split="dev")
    (copy / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes.txt is foreign: manifest.json does not name it"):
        make(copy)
    (copy / "notes.txt").unlink()
    first = copy / min(name for name in os.listdir(copy) if name.startswith("train"))
    first.rename(tmp_path / "away")
    with pytest.raises(InputError, match=r"train_00000.* is missing, though manifest.json names it"):
        make(copy)
    (copy / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"has no manifest.json, expected the folder"):
        make(copy)


def test_a_folder_of_another_form_is_refused(trained):
    with pytest.raises(InputError, match="holds 'chunks', expected 'blocks'"):
        BlockDataset(trained / "out/chunks")


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one_are_refused(trained, blocks, size):
    pair = trained / "whole/tokens/one_00000_text_document"
    for name, make in (
        ("length", lambda: TokenDataset(trained / "whole/token_shards", size)),
        ("length", lambda: MegatronDataset(pair, size)),
        ("batch_size", lambda: Loader(ChunkDataset(trained / "whole/chunks"), size)),
        ("batch_size", lambda: Loader(BlockDataset(blocks), size)),
        ("batch_size", lambda: BlockDataset(blocks, batch_size=size)),
    ):
        with pytest.raises(InputError, match=f"{name} must be at least 1, not {size}"):
            make()
    with pytest.raises(InputError, match="samples must be at least 0, not -1"):
        MegatronDataset(pair, 64, samples=-1)


def test_a_loop_goes_on_where_the_last_one_was_left(blocks):
    loader = Loader(BlockDataset(blocks, seed=1), 8)
    start, expected = loader.state_dict(), batch_rows(Loader(BlockDataset(blocks, seed=1), 8))
    first = next(iter(loader))
    assert rows(first) + batch_rows(loader) == expected
    loader.load_state_dict(start)
    assert batch_rows(loader) == expected


def test_ranks_that_do_not_fit_are_refused(blocks):
    for rank, ranks in ((0, None), (2, 2), (-1, 2)):
        with pytest.raises(InputError, match="expected 0 <= rank < ranks"):
            BlockDataset(blocks, rank=rank, ranks=ranks)
    with pytest.raises(InputError, match="to the BlockDataset, not to its Loader"):
        Loader(BlockDataset(blocks), 4, seed=3)


# samples


def test_sample_batches_are_saved_and_read_without_code(trained, tmp_path):
    loader = Loader(ChunkDataset(trained / "whole/chunks"), 8, seed=1)
    expected = list(islice(Loader(ChunkDataset(trained / "whole/chunks"), 8, seed=1), 2))
    assert save_sample(loader, tmp_path / "sample_dataset.pt", batches=2) == 2
    found = load_sample(tmp_path / "sample_dataset.pt")
    assert [batch["labels"].tolist() for batch in found] == [batch["labels"].tolist() for batch in expected]
    assert next(iter(loader))["labels"].tolist() == expected[0]["labels"].tolist()  # the place is as it was
    torch.save([print], tmp_path / "bad.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"weights_only"):
        load_sample(tmp_path / "bad.pt")
