# SPDX-License-Identifier: Apache-2.0
"""Each form against plain Python over lists, and that its bytes depend on nothing but the documents."""

import hashlib
import inspect
import itertools
import json
import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

import curation
from curation.base.errors import IntegrityError, OutputError, RecipeError
from curation.base.system.terminal import printable
from curation.cli import main
from curation.recipes.recipe import Output, convert_recipe
from curation.results.finished.decoding import open_tokens
from curation.tokens.forms import (
    FORMS,
    Blocks,
    Chunks,
    Form,
    Forms,
    Litdata,
    Mds,
    Packed,
    TokenShards,
    packed,
    rows,
    token_shards,
)
from curation.tokens.forms import documents as documents_module
from curation.tokens.forms import shards as shards_module
from curation.tokens.forms.documents import TokenizedDocuments
from curation.tokens.forms.stored import open_form
from curation.tokens.forms.writing import shards, summaries, write_forms
from curation.tokens.ordering import seeded_order
from curation.tokens.tokenization import load_tokenizer
from tests.needs import needs
from tests.tokens.samples import flat, make_documents, opened, write_parts

PAD = 499
IDS = np.dtype("<u2")
ROOT = Path(__file__).resolve().parents[2]


class Sized(NamedTuple):
    """What `file_dtype` asks of a tokenizer."""

    vocabulary: int


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fresh(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


# Documents


@pytest.mark.parametrize("batch_tokens", [1, 50, 1 << 20])
@pytest.mark.parametrize("seed", [None, 7])
def test_documents_come_in_order_without_the_empty_ones(tmp_path, monkeypatch, batch_tokens, seed):
    monkeypatch.setattr(documents_module, "BATCH_TOKENS", batch_tokens)
    made = make_documents(60)
    source = opened(tmp_path, made, seed)
    kept = [ids for ids in made if ids]
    expected = kept if seed is None else [kept[k] for k in seeded_order(len(kept), seed)]
    batches = list(source)
    assert np.concatenate([ids for ids, _ in batches]).tolist() == flat(expected)
    assert np.concatenate([lengths for _, lengths in batches]).tolist() == [len(ids) for ids in expected]
    assert (source.count, source.tokens) == (len(kept), len(flat(made)))
    starts, lengths = source.extents()
    assert source.gather(starts, lengths).tolist() == flat(expected)


def test_orders_of_neighbouring_seeds_have_nothing_in_common():
    orders = [seeded_order(1000, *seeds) for seeds in ((7,), (8,), (7, 0), (7, 1), (0, 7), (-7,))]
    for one, other in itertools.combinations(orders, 2):
        assert sorted(one) == list(range(1000))
        shifts = np.bincount((np.argsort(one) - np.argsort(other)) % 1000)
        assert (one != other).any() and shifts.max() < 12  # of a shifted order all shifts are one
        after = {*itertools.pairwise(one)}
        assert len(after & {*itertools.pairwise(other + 1)}) < 12


def test_parts_that_do_not_fit_are_refused(tmp_path):
    (ids, lengths), *_ = write_parts(tmp_path, make_documents(9), [])
    ids.write_bytes(ids.read_bytes()[:-2])
    with pytest.raises(IntegrityError, match=r"its lengths count .* tokens"):
        TokenizedDocuments([(ids, lengths)], np.dtype("<u2"))


# token_shards


@pytest.mark.parametrize(("vocabulary", "dtype"), [(500, "<u2"), (65536, "<u2"), (65537, "<u4")])
def test_token_shards_are_read_by_memmap(tmp_path, vocabulary, dtype):
    made = make_documents(50)
    settings = TokenShards(shard_tokens=100)
    content = settings.write(
        opened(tmp_path / "parts", made), fresh(tmp_path / "out"), "", settings.file_dtype(Sized(vocabulary)), PAD
    )
    names = sorted(os.listdir(tmp_path / "out"))
    assert names == [f"train_{number:05d}.bin" for number in range(len(names))] == [f["file"] for f in content["files"]]
    found = [np.memmap(tmp_path / "out" / name, dtype, "r") for name in names]
    assert [len(shard) for shard in found[:-1]] == [100] * (len(names) - 1)
    assert np.concatenate(found).tolist() == flat(made)


# layout -> suffixes of a shard and of its index, dtype of the index
INDEXES = {"datatrove": (".ds", ".ds.index", "<u8"), "nanogpt": (".bin", ".bos.idx", "<i4")}


@pytest.mark.parametrize("layout", INDEXES)
@pytest.mark.parametrize("seed", [None, 7])
def test_an_index_has_the_bounds_of_documents(tmp_path, monkeypatch, layout, seed):
    made, (suffix, index, dtype) = make_documents(90), INDEXES[layout]
    settings, sizes = TokenShards(shard_tokens=100, layout=layout), (documents_module, token_shards)
    one = TokenizedDocuments(write_parts(tmp_path / "a", made, []), IDS, seed)
    many = TokenizedDocuments(write_parts(tmp_path / "b", made, [1, 2, 2, 30, 90]), IDS, seed)
    content = settings.write(one, fresh(tmp_path / "one"), "", IDS, PAD)
    for module, size in zip(sizes, ("BATCH_TOKENS", "WRITE_TOKENS"), strict=True):
        monkeypatch.setattr(module, size, 13)
    assert settings.write(many, fresh(tmp_path / "many"), "", IDS, PAD) == content
    assert files_of(tmp_path / "one") == files_of(tmp_path / "many")
    names = [file["file"] for file in content["files"]]
    count = len(names) // 2
    assert count > 10
    assert names == [f"train_{number:05d}{end}" for number in range(count) for end in (suffix, index)]
    plain = TokenShards(shard_tokens=100).write(one, fresh(tmp_path / "raw"), "", IDS, PAD)
    assert [file["tokens"] for file in content["files"][::2]] == [file["tokens"] for file in plain["files"]]
    kept = [ids for ids in made if ids]
    ordered = kept if seed is None else [kept[k] for k in seeded_order(len(kept), seed)]
    ends = [*itertools.accumulate(map(len, ordered))]
    for number, file in enumerate(content["files"][::2]):
        first, stop = number * 100, number * 100 + file["tokens"]
        found = np.fromfile(tmp_path / "one" / names[2 * number + 1], dtype).tolist()
        inside = {end - first for end in ends if first < end < stop}
        starts = {0} if first in (0, *ends) else set()
        assert found == sorted(inside | (starts if layout == "nanogpt" else {stop - first}))
        ids = settings.open_ids(tmp_path / "one" / file["file"], IDS, file["tokens"])
        assert ids.tolist() == np.fromfile(tmp_path / "raw" / f"train_{number:05d}.bin", IDS).tolist()


def test_a_document_of_several_shards_ends_in_the_last(tmp_path):
    settings = TokenShards(shard_tokens=4, layout="datatrove")
    settings.write(opened(tmp_path / "parts", [[1] * 10, [2] * 2]), fresh(tmp_path / "out"), "", IDS, PAD)
    indexes = sorted((tmp_path / "out").glob("*.index"))
    assert [np.fromfile(path, "<u8").tolist() for path in indexes] == [[4], [4], [2, 4]]
    settings = TokenShards(shard_tokens=4, layout="nanogpt")
    settings.write(opened(tmp_path / "parts", [[1] * 10, [2] * 2]), fresh(tmp_path / "nanogpt"), "", IDS, PAD)
    indexes = sorted((tmp_path / "nanogpt").glob("*.bos.idx"))
    assert [np.fromfile(path, "<i4").tolist() for path in indexes] == [[0], [], [2]]
    assert settings.open_ids(tmp_path / "nanogpt/train_00001.bin", IDS, 4).tolist() == [1] * 4


@pytest.mark.parametrize(
    ("layout", "bounds"),
    [
        *(("datatrove", bounds) for bounds in ([], [5, 100, 101], [5, 5, 100], [9, 5, 100], [0, 100], [5])),
        *(("nanogpt", bounds) for bounds in ([0, 100], [0, 5, 5], [9, 5], [-1, 5])),
    ],
)
def test_a_damaged_index_is_refused(tmp_path, layout, bounds):
    settings, (suffix, index, dtype) = TokenShards(shard_tokens=100, layout=layout), INDEXES[layout]
    settings.write(opened(tmp_path / "parts", make_documents(30)), fresh(tmp_path / "out"), "", IDS, PAD)
    shard = tmp_path / f"out/train_00000{suffix}"
    assert len(settings.open_shard(shard, IDS, 100)[0]) == 100
    np.array(bounds, dtype).tofile(shard.with_suffix(index))
    with pytest.raises(IntegrityError, match=rf"{index} is damaged: expected \w+ of documents .* 100 tokens"):
        settings.open_shard(shard, IDS, 100)


@pytest.mark.parametrize(
    ("dtype", "head"), [("<u2", [20240520, 1, 100, *[0] * 253]), ("<u4", [278895051, 1, 100, 4, *[0] * 252])]
)
def test_nanogpt_shards_have_a_header(tmp_path, dtype, head):
    settings, made = TokenShards(shard_tokens=100, layout="nanogpt"), make_documents(30)
    settings.write(opened(tmp_path / "parts", made), fresh(tmp_path / "out"), "", np.dtype(dtype), PAD)
    shard = tmp_path / "out/train_00000.bin"
    data = shard.read_bytes()
    assert np.frombuffer(data[:1024], "<i4").tolist() == head
    assert np.frombuffer(data[1024:], dtype).tolist() == flat(made)[:100]
    for changed in (data[:-1], data[:4] + b"\2" + data[5:], data[:8] + b"\1" + data[9:]):
        shard.write_bytes(changed)
        with pytest.raises(IntegrityError, match=r"a header of 1,024 bytes for 100 ids"):
            settings.open_shard(shard, np.dtype(dtype), 100)


# blocks


@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize("write_tokens", [1, 1 << 20])
def test_blocks_are_the_stream_cut_to_length(tmp_path, monkeypatch, keep_last, write_tokens):
    monkeypatch.setattr(rows, "WRITE_TOKENS", write_tokens)
    made = make_documents(50)
    settings = Blocks(length=16, shard_blocks=10, keep_last=keep_last)
    content = settings.write(opened(tmp_path / "parts", made), fresh(tmp_path / "out"), "valid", IDS, PAD)
    found = [np.load(tmp_path / "out" / file["file"]) for file in content["files"]]
    assert {shard.dtype for shard in found} == {np.dtype("<u2")}
    assert [len(shard) for shard in found[:-1]] == [10] * (len(found) - 1)
    stream = flat(made)
    full, rest = divmod(len(stream), 16)
    assert rest
    expected = stream + [PAD] * (16 - rest) if keep_last else stream[: full * 16]
    assert np.concatenate(found).reshape(-1).tolist() == expected
    assert content["blocks"] == full + keep_last
    assert content["dropped_tokens"] == (0 if keep_last else rest)
    assert content["padding"] == (16 - rest if keep_last else 0)


def test_a_stream_shorter_than_a_block_is_refused(tmp_path):
    with pytest.raises(RecipeError, match="train has 3 tokens, expected at least one block of 1024"):
        Blocks().write(opened(tmp_path, [[1, 2, 3]]), tmp_path, "train", IDS, PAD)


# chunks


def plain_chunks(made: list[list[int]], longest: int, shortest: int) -> list[list[int]]:
    pieces = [ids[first : first + longest] for ids in made for first in range(0, len(ids), longest)]
    return [piece for piece in pieces if len(piece) >= shortest]


@pytest.mark.parametrize("shortest", [1, 4, 10])
@pytest.mark.parametrize("batch_tokens", [1, 1 << 20])
def test_chunks_are_cut_per_document(tmp_path, monkeypatch, shortest, batch_tokens):
    monkeypatch.setattr(documents_module, "BATCH_TOKENS", batch_tokens)
    made = make_documents(70)
    settings = Chunks(length=10, min_tokens=shortest, shard_chunks=25)
    out = fresh(tmp_path / "out")
    content = settings.write(opened(tmp_path / "parts", made), out, "", IDS, PAD)
    found: list[list[int]] = []
    for file in content["files"][::2]:
        ids = np.load(out / file["file"])
        lengths = np.load(out / file["file"].replace(".ids.", ".lengths."))
        found += [piece.tolist() for piece in np.split(ids, np.cumsum(lengths)[:-1])]
    expected, everything = plain_chunks(made, 10, shortest), plain_chunks(made, 10, 1)
    assert found == expected
    assert (content["chunks"], content["tokens"]) == (len(expected), len(flat(expected)))
    assert content["dropped_chunks"] == len(everything) - len(expected)
    assert content["dropped_tokens"] == len(flat(everything)) - len(flat(expected))
    lengths = [len(piece) for piece in expected]
    told = content["lengths"]
    assert told["mean"] == round(np.mean(lengths), 3)
    assert told["median"] == np.percentile(lengths, 50, method="inverted_cdf")
    for percent, length in told["percentiles"].items():
        assert length == np.percentile(lengths, int(percent), method="inverted_cdf"), percent
    for entry in told["histogram"]:
        assert entry["chunks"] == sum(entry["from"] <= length <= entry["to"] for length in lengths)
    assert sum(entry["chunks"] for entry in told["histogram"]) == len(lengths)


def test_chunks_of_which_none_is_long_enough_are_refused(tmp_path):
    with pytest.raises(RecipeError, match="no chunk of at least 10 tokens"):
        Chunks().write(opened(tmp_path, [[1, 2, 3]]), tmp_path, "train", IDS, PAD)


# packed


def plain_best_fit(sizes: list[int], capacity: int) -> int:
    """The number of rows of best-fit decreasing, by looking at every open row."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [room for room in rooms if room >= size]
        if fitting:
            rooms.remove(min(fitting))
            rooms.append(min(fitting) - size)
        else:
            rooms.append(capacity - size)
    return len(rooms)


@pytest.mark.parametrize("length", [7, 16, 39, 64])
@pytest.mark.parametrize("seed", [None, 3])
def test_packed_rows_hold_every_piece_once(tmp_path, length, seed):
    made = make_documents(120, seed=length)
    out = fresh(tmp_path / "out")
    source = opened(tmp_path / "parts", made, seed)
    content = Packed(length=length, shard_rows=9).write(source, out, "", IDS, PAD)
    found: list[list[int]] = []
    rows = padding = 0
    for file in content["files"][::2]:
        shard = np.load(out / file["file"])
        pieces = np.load(out / file["file"].replace(".npy", ".pieces.npy"))
        inside = np.zeros(shard.shape, bool)
        for row, start, size in pieces.tolist():
            found.append(shard[row, start : start + size].tolist())
            assert not inside[row, start : start + size].any()
            inside[row, start : start + size] = True
        assert (np.diff(inside.astype(np.int8), axis=1) <= 0).all()  # padding stands at the end
        assert (shard[~inside] == PAD).all()
        rows, padding = rows + len(shard), padding + int((~inside).sum())
    whole = plain_chunks(made, length, 1)
    assert sorted(found) == sorted(whole)
    assert rows == content["rows"] == plain_best_fit([len(piece) for piece in whole], length)
    kept = [ids for ids in made if ids]
    assert content["truncated_documents"] == sum(len(ids) > length for ids in kept)
    assert content["truncated_share"] == round(content["truncated_documents"] / len(kept), 6)
    assert content["padding"] == padding == rows * length - len(flat(made))


def test_share_of_documents_that_one_stream_would_cut(tmp_path):
    source = opened(tmp_path / "parts", [[1] * 4, [2] * 4, [3] * 4, [4] * 4])  # rows of 6: 0-3, 4|7, 8-11, 12-15
    content = Packed(length=6).write(source, fresh(tmp_path / "out"), "", IDS, PAD)
    assert content["truncated_share"] == 0.0
    assert content["truncated_share_of_blocks"] == 0.25


def test_rows_come_in_the_order_of_their_first_documents(tmp_path):
    source = opened(tmp_path / "parts", [[1], [2] * 5, [3] * 4, [4] * 2, [5] * 3])
    Packed(length=5).write(source, fresh(tmp_path / "out"), "", IDS, PAD)
    rows = np.load(tmp_path / "out" / "train_00000.npy").tolist()
    assert rows == [[1, 3, 3, 3, 3], [2, 2, 2, 2, 2], [4, 4, 5, 5, 5]]


# mds


def mds_samples(folder: Path) -> list[np.ndarray]:
    """The samples of a split, by the offsets and the encoding in its files."""
    found = []
    shards = json.loads((folder / "index.json").read_bytes())["shards"]
    for shard in shards:
        data = (folder / shard["raw_data"]["basename"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (
            shard["raw_data"]["bytes"], shard["raw_data"]["hashes"]["sha256"]
        )  # fmt: skip
        count = int.from_bytes(data[:4], "little")
        assert count == shard["samples"]
        offsets = np.frombuffer(data, "<u4", count + 1, 4)
        assert json.loads(data[8 + 4 * count : offsets[0]]).items() <= shard.items()
        (encoding,), (name,) = shard["column_encodings"], shard["column_names"]
        kind, dtype, length = encoding.split(":")
        assert (kind, name, shard["column_sizes"]) == ("ndarray", "tokens", [4 * int(length)])
        found += [np.frombuffer(data[a:b], dtype) for a, b in itertools.pairwise(offsets.tolist())]
        assert len(data) <= shard["size_limit"] or count == 1
        assert len(data) + 4 * int(length) + 4 > shard["size_limit"] or shard is shards[-1]  # full
    return found


def litdata_samples(folder: Path) -> list[np.ndarray]:
    """The samples of a split, by the offsets in its files and the tokens and the dtype in its index."""
    found = []
    index = json.loads((folder / "index.json").read_bytes())
    assert index["config"]["data_format"] == ["no_header_tensor:16"]
    for chunk in index["chunks"]:
        data = (folder / chunk["filename"]).read_bytes()
        count = int.from_bytes(data[:4], "little")
        assert (len(data), count) == (chunk["chunk_bytes"], chunk["chunk_size"])
        offsets = np.frombuffer(data, "<u4", count + 1, 4)
        assert offsets[0] == 4 * (count + 2)
        found += [np.frombuffer(data[a:b], "<i4") for a, b in itertools.pairwise(offsets.tolist())]
        assert chunk["dim"] == sum(map(len, found[-count:]))
    return found


@pytest.mark.parametrize("keep_last", [False, True])
@pytest.mark.parametrize(
    ("form", "read", "name"), [(Mds, mds_samples, "shard.{:05d}.mds"), (Litdata, litdata_samples, "chunk-0-{}.bin")]
)
def test_samples_are_the_rows_of_blocks(tmp_path, keep_last, form, read, name):
    made, out = make_documents(50), fresh(tmp_path / "out")
    form = form(length=16, shard_bytes=800, keep_last=keep_last)
    content = form.write(opened(tmp_path / "parts", made), out, "valid", np.dtype("<i4"), PAD)
    samples = read(out / "valid")
    blocks = Blocks(length=16, shard_blocks=999, keep_last=keep_last).write(
        opened(tmp_path / "parts", made), out, "valid", IDS, PAD
    )
    assert np.array_equal(samples, np.load(out / "valid_00000.npy"))
    assert content["samples"] == len(samples) == blocks["blocks"]
    assert [file["file"] for file in content["files"]] == [
        *(f"valid/{name.format(number)}" for number in range(len(content["files"]) - 1)), "valid/index.json"
    ]  # fmt: skip
    assert len(content["files"]) > 3


def test_mds_writes_the_bytes_of_its_package(tmp_path):
    """Recorded from `streaming.MDSWriter` 0.13.0; `test_mds.py` compares with the installed one."""
    form = Mds(length=4, shard_bytes=330)
    made, dtype = [[1, 2, 3], [70_000, 5], [6] * 40], np.dtype("<i4")
    form.write(opened(tmp_path / "parts", made, dtype="<i4"), tmp_path / "mds", "", dtype, PAD)
    assert {name: hashlib.sha256(data).hexdigest()[:16] for name, data in files_of(tmp_path / "mds").items()} == {
        "train/shard.00000.mds": "8781807ec16dd2f2",
        "train/shard.00001.mds": "a46d5955bd02212a",
        "train/index.json": "8fbe43d69d7b9d19",
    }


def test_litdata_writes_the_chunks_of_its_package(tmp_path):
    """Recorded from `BinaryWriter` of litdata 0.2.76; `test_trainers.py` compares with the installed one."""
    form = Litdata(length=4, shard_bytes=100)
    made, dtype = [[1, 2, 3], [70_000, 5], [6] * 40], np.dtype("<i4")
    form.write(opened(tmp_path / "parts", made, dtype="<i4"), tmp_path / "litdata", "", dtype, PAD)
    found = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in files_of(tmp_path / "litdata").items()}
    assert found.pop("train/index.json")
    assert found == {
        "train/chunk-0-0.bin": "78653d94b7117456",
        "train/chunk-0-1.bin": "1b1d45abf1339c7d",
        "train/chunk-0-2.bin": "4e87607e46c9a833",
    }


def test_the_index_of_litdata_names_other_data_by_another_version(tmp_path):
    versions = []
    for number, made in enumerate(([[1, 2, 3, 4]], [[1, 2, 3, 4]], [[1, 2, 3, 5]])):
        out = tmp_path / str(number)
        Litdata(length=4).write(opened(tmp_path / "parts" / str(number), made), out, "", np.dtype("<i4"), PAD)
        versions.append(json.loads((out / "train/index.json").read_bytes())["updated_at"])
    assert versions[0] == versions[1] != versions[2]


def test_a_shard_of_mds_has_at_least_one_sample(tmp_path):
    Mds(length=8, shard_bytes=1).write(
        opened(tmp_path / "parts", [[7] * 20]), tmp_path / "mds", "", np.dtype("<i4"), PAD
    )
    assert [sample.tolist() for sample in mds_samples(tmp_path / "mds/train")] == [[7] * 8] * 2
    assert len(files_of(tmp_path / "mds")) == 3


# all forms


SMALL: dict[str, Form] = {
    "token_shards": TokenShards(shard_tokens=90),
    "blocks": Blocks(length=16, shard_blocks=8, keep_last=True),
    "chunks": Chunks(length=10, min_tokens=3, shard_chunks=20),
    "packed": Packed(length=24, shard_rows=6),
    "mds": Mds(length=16, shard_bytes=800, keep_last=True),
    "litdata": Litdata(length=16, shard_bytes=800, keep_last=True),
}
SAMPLES = {"mds": mds_samples, "litdata": litdata_samples}
TABLES = {"docs/training.md": "| `{0}` | `{0}/` |", "docs/output_files.md": "`{0}/`"}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_known_wherever_forms_are(name, capsys):
    assert name in SMALL, "give small settings to the tests here"
    form = FORMS[name]
    assert form.name == name and isinstance(getattr(Forms(), name), form)
    assert form.__name__ in curation.__all__ and getattr(curation, form.__name__) is form
    for path, row in TABLES.items():
        assert row.format(name) in (ROOT / path).read_text("utf-8"), f"{path} does not tell of {name}"
    assert f"`{name}`" in str(Output.__doc__)
    for field in form.__struct_fields__:
        assert f"\n{field} " in str(inspect.getdoc(form)), f"the docstring of {form.__name__} does not tell of {field}"
    with pytest.raises(SystemExit):
        main(["tokenize", "--help"])
    assert name in capsys.readouterr().out, f"the help of --formats in curation/cli/runs.py lacks {name}"


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_written_with_its_manifest(name, tmp_path):
    form, made, tokenizer = SMALL[name], make_documents(90), load_tokenizer("gpt2")
    forms = Forms(formats=(name,), **{name: form})
    written = write_forms(forms, tokenizer, {"": write_parts(tmp_path / "parts", made, [])}, tmp_path)
    manifest, content = open_form(tmp_path / name, name, "train")
    assert written == {name: manifest}
    assert manifest["settings"] == msgspec.to_builtins(form)
    assert manifest["dtype"] == form.file_dtype(tokenizer).name == ("int32" if name in SAMPLES else "uint16")
    assert content["documents"] == sum(map(bool, made))
    assert sum(file["bytes"] for file in content["files"]) >= 2 * content["tokens"] > 0
    splits = list(summaries(written)[name].values())
    msgspec.convert(splits, list[form.summary])
    assert form.numbers([]) in ({}, dict.fromkeys(form.numbers([]), 0)) and form.lines([]) == []
    assert {*form.numbers(splits)} >= {*form.numbers([])} and all(form.lines(splits))
    assert form.pads or not form.needs_pad_id()


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_loaded_and_decoded(name, tmp_path, capsys):
    form, made, tokenizer, folder = SMALL[name], make_documents(90), load_tokenizer("gpt2"), tmp_path / name
    form = msgspec.structs.replace(form, shard_name="a-{split}" if name == "token_shards" else "{split}_{number}.x")
    forms = Forms(formats=(name,), **{name: form})
    parts = {"train": write_parts(tmp_path / "a", made[:80], []), "valid": write_parts(tmp_path / "b", made[80:], [])}
    written = shards(FORMS[name], write_forms(forms, tokenizer, parts, tmp_path)[name]["splits"]["train"])
    assert len(written) > 1
    second = {"token_shards": "a-train_1.bin", "chunks": "train_1.x.ids.npy"} | {
        "mds": "train/train_1.x.mds", "litdata": "train/train_1.x.bin"
    }  # fmt: skip
    assert second.get(name, "train_1.x.npy") in written
    assert main(["check-loader", str(folder), "--batches", "2", "--batch-size", "4", "--length", "16"]) == 0
    told = capsys.readouterr().out.splitlines()
    shape = r"torch\.Size\(\[4, \d+\]\)" if find_spec("torch") and name not in SAMPLES else r"\(4, \d+\)"
    first, *rest = [line for line in told if not line.startswith("Loading shard: ")]
    assert first == f"{name}, train" and re.fullmatch(f"Batch 0 shape: {shape}", rest[0]) and "Batch 1" in rest[1]
    loaded = {line.removeprefix("Loading shard: ") for line in told} & {Path(file).name for file in written}
    assert loaded and told[-1] == "Data Loader test passed!"
    found = [open_tokens(folder / file) for file in written]
    assert [len(tokens.rows) for tokens in found] == (
        [1] * len(written) if name == "token_shards" else [*written.values()]
    )
    stored = [row.tolist() for tokens in found for row in tokens.rows]
    if name == "packed":  # without padding, whose id no document has
        assert sorted(i for i in flat(stored) if i != tokenizer.eod) == sorted(flat(made[:80]))
    elif name == "chunks":
        assert stored == [chunk for chunk in chunks_of(made[:80], 10) if len(chunk) >= 3]
    else:
        assert flat(stored)[: len(flat(made[:80]))] == flat(made[:80])
    path = folder / min(written)
    assert main(["inspect", str(path), "--documents", "1"]) == 0
    assert printable(tokenizer.decode(np.array(stored[0]))) in capsys.readouterr().out
    with open(path, "r+b") as file:
        file.write(b"\xff" * min(200, path.stat().st_size))
    assert main(["check-loader", str(folder), "--batches", "100", "--length", "16"]) == 1
    assert re.fullmatch(r"curate: .* (is damaged: |expected 0 to 50256).*\n", capsys.readouterr().err)
    path.unlink()
    assert main(["check-loader", str(folder)]) == 1
    assert f"{path} is missing" in capsys.readouterr().err


def chunks_of(made: list[list[int]], length: int) -> list[list[int]]:
    return [ids[first : first + length] for ids in made for first in range(0, len(ids), length)]


@pytest.mark.parametrize("name", FORMS)
def test_every_form_refuses_bad_settings(name):
    for field in (field for field, value in msgspec.to_builtins(SMALL[name]).items() if type(value) is int):
        with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
            FORMS[name](**{field: 0})
    with pytest.raises(RecipeError, match=rf"unknown field `none` - at `\$\.output\.{name}`"):
        convert_recipe({"output": {"formats": [name], name: {"none": 1}}})
    with pytest.raises(RecipeError, match=f"{name} is set, but formats has no {name}"):
        convert_recipe({"output": {name: msgspec.to_builtins(SMALL[name])}})


@pytest.mark.parametrize("form", SMALL)
@pytest.mark.parametrize("seed", [None, 5])
def test_bytes_do_not_depend_on_parts_or_batches(tmp_path, monkeypatch, form, seed):
    made, settings, dtype = make_documents(90), SMALL[form], IDS
    one = TokenizedDocuments(write_parts(tmp_path / "a", made, []), np.dtype("<u2"), seed)
    many = TokenizedDocuments(write_parts(tmp_path / "b", made, [1, 2, 2, 30, 90]), np.dtype("<u2"), seed)
    first = settings.write(one, fresh(tmp_path / "one"), "", dtype, PAD)
    monkeypatch.setattr(documents_module, "BATCH_TOKENS", 13)
    monkeypatch.setattr(rows, "WRITE_TOKENS", 13)
    monkeypatch.setattr(packed, "WRITE_TOKENS", 13)
    monkeypatch.setattr(token_shards, "WRITE_TOKENS", 13)
    second = settings.write(many, fresh(tmp_path / "many"), "", dtype, PAD)
    assert first == second
    assert files_of(tmp_path / "one") == files_of(tmp_path / "many")


@pytest.mark.parametrize("form", SMALL)
def test_int32_ids_stay_int32(tmp_path, form):
    made, settings = [[70_000, 1, 70_001, 5]] * 20, SMALL[form]
    dtype = np.dtype("<u4" if form == "token_shards" else "<i4")
    out = fresh(tmp_path / "out")
    settings.write(opened(tmp_path / "parts", made, dtype="<i4"), out, "", dtype, PAD)
    first = out / min(files_of(out))
    if form in SAMPLES:
        ids = SAMPLES[form](out / "train")[0]
    else:
        ids = np.fromfile(first, "<u4") if form == "token_shards" else np.load(first).reshape(-1)
    assert ids.dtype.itemsize == 4
    assert ids[:3].tolist() == [70_000, 1, 70_001]


@pytest.mark.parametrize("form", ["blocks", "chunks"])
def test_torch_files_hold_what_the_arrays_hold(tmp_path, form):
    torch = needs("torch")
    made, settings, dtype = make_documents(60), SMALL[form], IDS
    content = settings.write(opened(tmp_path / "a", made), fresh(tmp_path / "npy"), "", dtype, PAD)
    as_torch = msgspec.structs.replace(settings, file_type="pt")
    for folder in ("pt", "again"):
        found = as_torch.write(opened(tmp_path / "a", made), fresh(tmp_path / folder), "", dtype, PAD)
    assert files_of(tmp_path / "pt") == files_of(tmp_path / "again")
    arrays = [np.load(tmp_path / "npy" / file["file"]) for file in content["files"] if ".lengths." not in file["file"]]
    for file, array in zip(found["files"], arrays, strict=True):
        loaded = torch.load(tmp_path / "pt" / file["file"], weights_only=True)
        if form == "chunks":
            assert {chunk.dtype for chunk in loaded} == {torch.int64}
            lengths = np.load(tmp_path / "npy" / file["file"].replace(".pt", ".lengths.npy"))
            assert [len(chunk) for chunk in loaded] == lengths.tolist()
            loaded = torch.cat(loaded)
        assert loaded.dtype == torch.int64
        assert np.array_equal(loaded.numpy(), array)


def test_torch_files_without_torch_say_what_to_do(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(OutputError, match=r"needs PyTorch.*file_type: npy"):
        shards_module.require_torch("output.blocks.file_type: pt")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Packed(length=1 << 25), "length must be at most 16777216"),
        (lambda: Blocks(file_type="csv"), "file_type must be one of npy, pt, auto, not 'csv'"),
        (lambda: Chunks(min_tokens=600), "nothing would be kept"),
        (lambda: Litdata(shard_bytes=1 << 32), "shard_bytes must be at most 4294967295, not 4294967296"),
        (lambda: Mds(shard_bytes=1 << 32), "shard_bytes must be at most 4294967295, not 4294967296"),
        (
            lambda: Blocks(shard_name="{name}"),
            "shard_name must be letters, digits, .* such as shard_{number}, not '{name}'",
        ),
        (lambda: Mds(shard_name="a/b"), "shard_name must be letters"),
        (lambda: Chunks(shard_name=".a"), "shard_name must be letters"),
        (lambda: TokenShards(dtype="int8"), "dtype must be one of auto, uint16, uint32"),
        (lambda: TokenShards(layout="bin"), "layout must be one of raw, datatrove, nanogpt, not 'bin'"),
        (
            lambda: TokenShards(layout="nanogpt", shard_tokens=1 << 31),
            "shard_tokens must be at most 2147483647 with layout: nanogpt, not 2147483648",
        ),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
