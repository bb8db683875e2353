# SPDX-License-Identifier: Apache-2.0
"""The readers of trainers read what a run writes for them, and docs/trainers.md has what these tests check."""

import ast
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import pytest
import yaml

from curation.base.errors import CurationError
from curation.recipes.recipe import convert_recipe
from curation.results.finished.loader_check import check_loader
from curation.results.finished.verify import verify
from curation.running.run import run
from curation.tokens.forms import Litdata, TokenShards
from curation.tokens.indexed import IndexedReader
from tests.needs import needs
from tests.tokens.samples import make_texts, opened, write_jsonl
from tests.training.trainers import CASES, HOW, PAGE, ROOT, with_table, yaml_flow

SPLITS = {"train": 0.8, "valid": 0.2}
SMALL = {"token_shards": {"shard_tokens": 3001}, "litdata": {"length": 33, "shard_bytes": 4000}}


class Made(NamedTuple):
    """A finished run with splits: its folder, and split -> ids of its documents, as the pairs have them."""

    folder: Path
    documents: dict[str, list[list[int]]]


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Made]:
    """A function that makes a run for each case of this test, with small files, and compares the reader's version."""

    def make(**tokenizer: bool) -> Made:
        test = request.node.nodeid.partition("[")[0]
        (case,) = (case for case in CASES if case.test == test)
        if case.package:
            assert metadata.version(case.package) == case.version
        path = write_jsonl(tmp_path / "news.jsonl", make_texts(300))
        shown = case.output | {"formats": [*case.output["formats"], "megatron"], "splits": SPLITS}
        settings = {name: shown.get(name, {}) | SMALL[name] for name in SMALL if name in shown["formats"]}
        recipe = {"input": [{"path": str(path)}], "stages": [], "tokenizer": tokenizer, "output": shown | settings}
        run(convert_recipe(recipe), tmp_path / "out")
        check_loader(tmp_path / "out", length=16)
        pairs = {split: (tmp_path / "out/tokens").glob(f"*_{split}_*.idx") for split in SPLITS}
        documents = {split: [ids.tolist() for ids in IndexedReader(next(pairs[split]))] for split in SPLITS}
        return Made(tmp_path / "out", documents)

    return make


def windows(ids: list[int], length: int) -> list[list[int]]:
    """The whole windows of `ids`."""
    return [ids[first : first + length] for first in range(0, len(ids) - length + 1, length)]


def shards_of(made: Made, split: str, suffix: str, dtype: str = "<u2") -> list[list[int]]:
    """The ids of each shard, which together have all documents."""
    paths = sorted((made.folder / "token_shards").glob(f"{split}_*{suffix}"))
    shards = [np.fromfile(path, dtype).tolist() for path in paths]
    assert [*chain(*shards)] == [*chain(*made.documents[split])]
    return shards


def pieces(ids: list[int], eod: int) -> list[list[int]]:
    """The documents in `ids`, each up to and with its end; the last one may lack it."""
    ends = [place + 1 for place, token in enumerate(ids) if token == eod]
    return [ids[first:end] for first, end in pairwise([0, *ends, *([len(ids)] if ids[-1] != eod else [])])]


def positions_of(documents: list[list[int]]) -> list[int]:
    """The position of each token in its document."""
    return [*chain(*(range(len(ids)) for ids in documents))]


def test_datatrove_reads_ids_and_positions(made: Callable[..., Made]) -> None:
    needs("torch")
    needs("datatrove")
    from datatrove.utils.dataset import DatatroveFolderDataset

    width = 50  # ids of a sample: seq_len + 1
    done = made()
    for split in SPLITS:
        dataset = DatatroveFolderDataset(
            str(done.folder / "token_shards"), width - 1, f"{split}_*.ds", token_size=2, return_positions=True
        )
        samples = [dataset[number] for number in range(len(dataset))]
        shards = shards_of(done, split, ".ds")
        assert len(shards) > (split == "train")
        assert [sample["input_ids"].tolist() for sample in samples] == [
            window for ids in shards for window in windows(ids, width)
        ]
        position, expected = positions_of(done.documents[split]), []
        for ids in shards:
            for window in windows(position[: len(ids)], width):
                inside = next((at for at, place in enumerate(window) if not place), width)  # of a document begun before
                expected.append([*range(inside), *window[inside:]])
            position = position[len(ids) :]
        assert [sample["positions"].tolist() for sample in samples] == expected
        assert any(0 in row[1:] for row in expected) and any(0 not in row[1:] for row in expected)
    assert verify(done.folder) == []  # reading left nothing behind


def test_olmo_core_reads_documents(made: Callable[..., Made], tmp_path: Path) -> None:
    needs("torch")
    data = needs("olmo_core.data")

    done = made()
    eod = done.documents["train"][0][-1]
    for split in SPLITS:
        shards = shards_of(done, split, ".bin")
        paths = sorted((done.folder / "token_shards").glob(f"{split}_*.bin"))
        ids = {"pad_token_id": eod, "eos_token_id": eod, "vocab_size": 50257, "dtype": np.uint16}
        fixed = data.NumpyFSLDataset(*paths, sequence_length=64, generate_doc_lengths=True, **ids)
        found = [fixed[number] for number in range(len(fixed))]
        assert [row["input_ids"].tolist() for row in found] == [row for shard in shards for row in windows(shard, 64)]
        for row in found:
            lengths = [len(piece) for piece in pieces(row["input_ids"].tolist(), eod)]
            assert row["doc_lens"].tolist() == lengths
        packed = data.NumpyPackedFSLDataset(*paths, sequence_length=256, generate_doc_lengths=True, **ids)
        packed.work_dir = tmp_path / "work" / split
        packed.prepare()
        rows = [packed[number] for number in range(len(packed))]
        stored = [piece for row in rows for piece in pieces(row["input_ids"][row["label_mask"]].tolist(), eod)]
        expected = [piece for shard in shards for piece in pieces(shard, eod)]
        unread = [piece for piece in expected if piece[-1] != eod]  # of a document that goes on in the next file
        assert sorted(stored + unread) == sorted(expected) and len(unread) <= len(shards) - 1
        assert unread or split == "valid"
    assert verify(done.folder) == []


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_litdata_reads_rows(made: Callable[..., Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needs("torch")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # litdata keeps a cache there
    litdata = needs("litdata")
    from litdata.streaming.writer import BinaryWriter

    done, length = made(), SMALL["litdata"]["length"]
    for split in SPLITS:
        folder, expected = done.folder / "litdata" / split, windows([*chain(*done.documents[split])], length)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        dataset = litdata.StreamingDataset(str(folder), item_loader=litdata.TokensLoader(block_size=length))
        rows = [dataset[number] for number in range(len(dataset))]
        assert {row.dtype for row in rows} == {torch.int32}
        assert [row.tolist() for row in rows] == expected
        batches = litdata.StreamingDataLoader(dataset, batch_size=1, num_workers=2)
        assert sorted(row.tolist() for batch in batches for row in batch) == sorted(expected)
        assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
        theirs, ours = tmp_path / "theirs" / split, orjson.loads(before.pop("index.json"))
        loader = litdata.TokensLoader(block_size=length)
        writer = BinaryWriter(str(theirs), chunk_size=ours["config"]["chunk_size"], item_loader=loader)
        for number, row in enumerate(expected):
            writer[number] = torch.tensor(row, dtype=torch.int32)
        writer.done()
        writer.merge()
        index = orjson.loads((theirs / "index.json").read_bytes())
        assert ours | {"updated_at": ""} == index | {"updated_at": ""} and len(before) > 1
        assert before == {path.name: path.read_bytes() for path in theirs.iterdir() if path.suffix == ".bin"}
    assert verify(done.folder) == []


BOS = 50256  # of GPT-2
STARTING = {"prepend_bos": True, "append_eod": False}


def check_automodel(done: Made, tmp_path: Path) -> None:
    """AutoModel reads rows that start where documents do, with the index and without it, when it looks for BOS."""
    from nemo_automodel.components.datasets.llm.nanogpt_dataset import NanogptDataset, load_bin_shard

    length = 20
    for split in SPLITS:
        paths = sorted((done.folder / "token_shards").glob(f"{split}_*.bin"))
        shards = [load_bin_shard(path).tolist() for path in paths]
        assert [*chain(*shards)] == [*chain(*done.documents[split])] and len(shards) > (split == "train")
        expected = []
        for ids in shards:
            starts = [place for place, token in enumerate(ids) if token == BOS]
            assert np.fromfile(paths[shards.index(ids)].with_suffix(".bos.idx"), "<i4").tolist() == starts
            end = 0
            for start in starts:
                if start >= end and start + length < len(ids):
                    end = start + length + 1
                    expected.append(ids[start:end])
        bare = tmp_path / "bare" / split  # without the indexes
        bare.mkdir(parents=True)
        for path in paths:
            shutil.copy(path, bare)
        for folder in (done.folder / "token_shards", bare):
            dataset = NanogptDataset(f"{folder}/{split}_*.bin", length, bos_token=BOS, align_to_bos=True)
            rows = [*islice(dataset, len(expected) + 1)]  # it starts again after the last
            found = [[*row["input_ids"], row["labels"][-1]] for row in rows]
            assert found == [*expected, expected[0]]
            assert all(row["input_ids"][1:] == row["labels"][:-1] for row in rows)
    assert verify(done.folder) == []


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_automodel_reads_from_the_starts_of_documents(made: Callable[..., Made], tmp_path: Path) -> None:
    needs("torch")
    needs("nemo_automodel")
    check_automodel(made(**STARTING), tmp_path)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_automodel_reads_ids_of_four_bytes(made: Callable[..., Made], tmp_path: Path) -> None:
    needs("torch")
    needs("nemo_automodel")
    check_automodel(made(**STARTING), tmp_path)


def nanogpt_ids(path: Path) -> list[int]:
    """The ids of a file with the header that both programs below expect: the magic number, and the version."""
    header = np.fromfile(path, "<i4", 256)
    assert header[:2].tolist() == [20240520, 1]
    ids = np.fromfile(path, "<u2", offset=256 * 4)
    assert header[2] == len(ids) > 0 and path.stat().st_size == 256 * 4 + 2 * len(ids)
    return ids.tolist()


def test_files_are_those_that_modded_nanogpt_expects(made: Callable[..., Made]) -> None:
    """`_load_data_shard` and `Shard`: uint16 ids after 1,024 bytes. A document starts at each id 50256, `BOS_ID`, and
    ends where the next starts."""
    done = made(**STARTING)
    for split in SPLITS:
        ids = [*chain(*map(nanogpt_ids, sorted((done.folder / "token_shards").glob(f"{split}_*.bin"))))]
        starts = [place for place, token in enumerate(ids) if token == BOS]
        assert [ids[first:end] for first, end in pairwise([*starts, len(ids)])] == done.documents[split]


def test_files_are_those_that_llm_c_expects(made: Callable[..., Made]) -> None:
    """`dataloader_load_shard_`: uint16 ids after 1,024 bytes, and a file of just these bytes."""
    done = made(append_eod=True)
    for split in SPLITS:
        ids = map(nanogpt_ids, sorted((done.folder / "token_shards").glob(f"{split}_*.bin")))
        assert [*chain(*ids)] == [*chain(*done.documents[split])]


# The page


BAD = {
    "another layout": lambda folder: TokenShards(layout="bin"),
    "a number of ids that the header cannot have": lambda folder: TokenShards(layout="nanogpt", shard_tokens=1 << 31),
    "a chunk that no 32-bit offset reaches": lambda folder: Litdata(shard_bytes=1 << 32),
    "an input shorter than a sample": lambda folder: Litdata(length=2049).write(
        opened(folder / "a", [[1] * 20]), folder / "b", "", np.dtype("<i4"), -1
    ),
    "an index that does not fit its file": lambda folder: damaged_shard(folder, "datatrove", ".ds", ".ds.index"),
    "a header that does not fit its file": lambda folder: damaged_shard(folder, "nanogpt", ".bin", ".bin"),
}


def damaged_shard(folder: Path, layout: str, suffix: str, damaged: str) -> None:
    """Open a shard of 3,000 tokens, the last 8 bytes of a file of which are gone."""
    form, dtype = TokenShards(layout=layout), np.dtype("<u2")
    form.write(opened(folder / "parts", [[1] * 1000] * 3), folder, "", dtype, -1)
    path = folder / f"train_00000{damaged}"
    path.write_bytes(path.read_bytes()[:-8])
    form.open_ids(folder / f"train_00000{suffix}", dtype, 3000)


@pytest.mark.parametrize("name", BAD)
def test_the_page_has_the_messages_of_bad_input(name: str, tmp_path: Path) -> None:
    (message,) = re.findall(rf"^\| {name} \| `(.*)` \|$", PAGE.read_text("utf-8"), re.M)
    with pytest.raises((ValueError, CurationError)) as caught:
        BAD[name](tmp_path)
    assert message in str(caught.value)


def test_each_message_of_the_page_comes() -> None:
    assert {*re.findall(r"^\| (an?(?:other)? [^`|]*) \| `", PAGE.read_text("utf-8"), re.M)} == {*BAD}


def test_the_page_has_the_table_of_the_cases() -> None:
    page = PAGE.read_text("utf-8")
    assert page == with_table(page), "run: python -m tests.training.trainers"


@pytest.mark.parametrize("case", CASES, ids=[case.trainer.partition(",")[0] for case in CASES])
def test_each_case_is_checked_as_it_says(case) -> None:
    """A reader that runs has a package with a version, which the Makefile installs, and a test that exists."""
    assert case.how in HOW and bool(case.test) == (case.how != "read only") and (not case.package or case.how == HOW[0])
    assert yaml.safe_load(f"{{{yaml_flow(case.output)}}}") == case.output
    convert_recipe({"output": case.output})
    if case.package:
        with suppress(metadata.PackageNotFoundError):
            assert metadata.version(case.package) == case.version
        assert f"{case.package}=={case.version} " in f"{(ROOT / 'Makefile').read_text('utf-8')} ".replace("\n", " ")
    if case.test:
        path, name = case.test.split("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
