# SPDX-License-Identifier: Apache-2.0
"""`.bin`/`.idx` byte by byte, what is refused, where pairs are cut, and Megatron itself as a reader."""

import os
import re
import struct
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest

from curation.base.errors import InputError, IntegrityError, OutputError
from curation.cli import main
from curation.tokens import joining, megatron
from curation.tokens.indexed import IndexedReader, check_pair
from curation.tokens.joining import join_parts
from curation.tokens.megatron import PairCounts, PairWriter, choose_dtype
from tests.needs import needs

DOCUMENTS = [[1, 2, 3, 9], [7, 9], [9], [65499, 0, 5, 6, 9]]


def flat(documents):
    return list(chain.from_iterable(documents))


def write_pair(prefix, documents=DOCUMENTS, dtype=np.uint16, **options):
    with PairWriter(prefix, dtype, **options) as writer:
        writer.append(np.array(flat(documents), dtype), np.array(list(map(len, documents)), np.int32))
        return writer.commit()


def write_part(folder, name, documents, dtype=np.uint16):
    folder.mkdir(parents=True, exist_ok=True)
    tokens, lengths = folder / f"{name}.tokens", folder / f"{name}.lengths"
    tokens.write_bytes(np.array(flat(documents), dtype).tobytes())
    lengths.write_bytes(struct.pack(f"<{len(documents)}i", *map(len, documents)))
    return tokens, lengths


def read_all(infos):
    return [ids.tolist() for info in infos for ids in IndexedReader(info.prefix)]


def make_documents(count, seed=0, empty_every=5):
    rng = np.random.default_rng(seed)
    return [[] if i % empty_every == 3 else rng.integers(0, 50257, rng.integers(1, 40)).tolist() for i in range(count)]


@pytest.mark.parametrize(("dtype", "code", "letter"), [(np.uint16, 8, "H"), (np.int32, 4, "i")])
def test_bytes_equal_the_table_of_the_format(tmp_path, dtype, code, letter):
    write_pair(tmp_path / "a", dtype=dtype)
    size = struct.calcsize("<" + letter)
    expected = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", code) + struct.pack("<QQ", 4, 5)
    expected += struct.pack("<4i", 4, 2, 1, 5)
    expected += struct.pack("<4q", 0, 4 * size, 6 * size, 7 * size)
    expected += struct.pack("<5q", 0, 1, 2, 3, 4)
    assert (tmp_path / "a.idx").read_bytes() == expected
    assert len(expected) == 42 + 20 * 4
    assert (tmp_path / "a.bin").read_bytes() == struct.pack(f"<12{letter}", *flat(DOCUMENTS))
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.idx"]


@pytest.mark.parametrize(
    ("vocabulary", "name"), [(1, "uint16"), (65499, "uint16"), (65500, "int32"), (65536, "int32"), (200019, "int32")]
)
def test_dtype_changes_at_65500(vocabulary, name):
    assert choose_dtype(vocabulary).name == name


def test_index_does_not_depend_on_batches(tmp_path, monkeypatch):
    lengths = np.random.default_rng(1).integers(1, 90, 1000).astype(np.int32)
    megatron.write_index(tmp_path / "whole", np.uint16, lengths)
    monkeypatch.setattr(megatron, "BATCH_SEQUENCES", 7)
    megatron.write_index(tmp_path / "chunked", np.uint16, lengths)
    megatron.write_index(tmp_path / "called", np.uint16, lambda: iter(np.split(lengths, [1, 2, 500])))
    whole = (tmp_path / "whole").read_bytes()
    assert (tmp_path / "chunked").read_bytes() == whole
    assert (tmp_path / "called").read_bytes() == whole


def test_pointers_do_not_wrap_beyond_2_to_the_31(tmp_path):
    lengths = np.full(5, 2**30, np.int32)
    megatron.write_index(tmp_path / "long.idx", np.int32, lengths)
    pointers = np.frombuffer((tmp_path / "long.idx").read_bytes(), "<i8", 5, 34 + 4 * 5)
    assert pointers.tolist() == [i * 2**32 for i in range(5)]


def test_index_refuses_zero_lengths(tmp_path):
    with pytest.raises(IntegrityError, match="sequence 1 has 0 tokens"):
        megatron.write_index(tmp_path / "a.idx", np.uint16, np.array([3, 0, 2], np.int32))


def test_writer_counts_and_drops_empty_documents(tmp_path):
    info = write_pair(tmp_path / "a", [[], [1, 2], [], [3], []])
    assert (info.documents, info.empty_documents, info.tokens, info.bytes) == (2, 3, 3, 6)
    assert read_all([info]) == [[1, 2], [3]]


def test_writer_refuses_to_overwrite(tmp_path):
    write_pair(tmp_path / "a")
    with pytest.raises(OutputError, match="exists already"):
        write_pair(tmp_path / "a", [[1]])
    (tmp_path / "a.bin").unlink()
    with pytest.raises(OutputError, match=r"a\.idx exists already"):
        write_pair(tmp_path / "a", [[1]])
    assert len((tmp_path / "a.idx").read_bytes()) == 42 + 20 * 4


def test_force_replaces_the_pair_and_removes_megatrons_cache(tmp_path):
    write_pair(tmp_path / "a")
    cache = tmp_path / "a" / "cache" / "GPTDataset_indices"
    cache.mkdir(parents=True)
    (cache / "x.npy").write_bytes(b"stale")
    assert read_all([write_pair(tmp_path / "a", [[5]], force=True)]) == [[5]]
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.idx"]


def test_remove_stale_cache_leaves_other_files(tmp_path):
    (tmp_path / "a" / "cache").mkdir(parents=True)
    (tmp_path / "a" / "notes").write_text("mine")
    assert megatron.remove_stale_cache(tmp_path / "a") is True
    assert megatron.remove_stale_cache(tmp_path / "a") is False
    assert os.listdir(tmp_path / "a") == ["notes"]


def test_nothing_is_left_without_commit(tmp_path):
    with PairWriter(tmp_path / "a", np.uint16) as writer:
        writer.append(np.array([1, 2], np.uint16), np.array([2], np.int32))
        assert [name.startswith("_tmp.a.") for name in os.listdir(tmp_path)] == [True]
    assert os.listdir(tmp_path) == []


def test_empty_pair_is_refused(tmp_path):
    with pytest.raises(OutputError, match="no document with tokens"):
        write_pair(tmp_path / "a", [[], []])
    assert os.listdir(tmp_path) == []


def test_old_index_is_gone_before_new_tokens_arrive(tmp_path, monkeypatch):
    write_pair(tmp_path / "a")
    states, replace = [], os.replace

    def watch(source, target):
        states.append((Path(target).suffix, (tmp_path / "a.idx").exists()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    write_pair(tmp_path / "a", [[1]], force=True)
    assert states == [(".bin", False), (".idx", False)]


def test_append_checks_dtype_and_lengths(tmp_path):
    with PairWriter(tmp_path / "a", np.uint16) as writer:
        with pytest.raises(IntegrityError, match="expected ids of uint16, got int64"):
            writer.append(np.array([70000]), np.array([1], np.int32))
        with pytest.raises(IntegrityError, match="add up to 3 tokens"):
            writer.append(np.array([1, 2], np.uint16), np.array([3], np.int32))
        with pytest.raises(IntegrityError, match="add up to 2 tokens"):
            writer.append(np.array([1, 2], np.uint16), np.array([3, -1], np.int32))


def test_dtype_without_a_code_is_refused(tmp_path):
    with pytest.raises(OutputError, match="uint32 is none"):
        PairWriter(tmp_path / "a", np.uint32)


# ---- reading and checking


def test_reader_gives_what_was_written(tmp_path):
    write_pair(tmp_path / "v1.5_text_document")
    reader = IndexedReader(tmp_path / "v1.5_text_document")
    assert len(reader) == 4
    assert [ids.tolist() for ids in reader] == DOCUMENTS
    assert reader[-1].tolist() == DOCUMENTS[-1]
    assert reader.dtype == np.uint16
    assert reader.lengths.tolist() == [4, 2, 1, 5]
    assert reader.pointers.tolist() == [0, 8, 12, 14]
    assert reader.documents.tolist() == [0, 1, 2, 3, 4]
    for outside in (4, -5):
        with pytest.raises(IndexError):
            reader[outside]


INSPECTED = [  # sequences of each document, whether the index has modes, first line, and lines of documents
    ([[[5, 6, 7], [8, 9], [1]], [[2]]], False, "2 documents, 4 sequences, 7 tokens, uint16",
     ["6 tokens in 3 sequences", "1 token"]),
    ([[[5]], [], [[6, 7]]], False, "3 documents, 2 sequences, 3 tokens, uint16", ["1 token", "0 tokens", "2 tokens"]),
    ([[], [[5], []], []], False, "3 documents, 2 sequences, 1 token, uint16",
     ["0 tokens", "1 token in 2 sequences", "0 tokens"]),
    ([[[5, 6]], [[7]]], True, "2 documents, 3 tokens, uint16, modes (multimodal data)", ["2 tokens", "1 token"]),
    ([[[5], [6]]], True, "1 document, 2 sequences, 2 tokens, uint16, modes (multimodal data)",
     ["2 tokens in 2 sequences"]),
    ([[]], False, "1 document, 0 sequences, 0 tokens, uint16", ["0 tokens"]),
]  # fmt: skip


@pytest.mark.parametrize(("documents", "has_modes", "size", "lines"), INSPECTED)
def test_inspect_tells_sequences_from_documents(tmp_path, capsys, documents, has_modes, size, lines):
    lengths = [len(ids) for document in documents for ids in document]
    ends = np.cumsum([0, *lengths]) * 2
    starts = np.cumsum([0, *map(len, documents)])
    index = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, len(lengths), len(starts))
    index += np.array(lengths, "<i4").tobytes() + ends[:-1].astype("<i8").tobytes() + starts.astype("<i8").tobytes()
    (tmp_path / "a.idx").write_bytes(index + b"\x01" * len(lengths) * has_modes)
    (tmp_path / "a.bin").write_bytes(np.array(flat(flat(documents)), "<u2").tobytes())
    assert main(["inspect", str(tmp_path / "a"), "--documents", "9"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{tmp_path / 'a'}: {size}\n")
    assert re.findall("^--- document (.*)$", out, re.MULTILINE) == [f"{k}: {line}" for k, line in enumerate(lines)]
    shown = re.findall(r"^([\d ]*)$", out.partition("--- ")[2], re.MULTILINE)
    assert [*map(int, " ".join(shown).split())] == flat(flat(documents))
    reader = IndexedReader(tmp_path / "a", allow_modes=has_modes)
    assert reader.has_modes == has_modes
    with pytest.raises(IndexError, match=f"document {len(documents)} of {len(documents)}"):
        reader.document(len(documents))
    if has_modes:
        with pytest.raises(IntegrityError, match=r"has modes \(multimodal data\)\. Export it again without modes"):
            check_pair(tmp_path / "a", strict=False)


def test_reader_names_the_missing_file(tmp_path):
    write_pair(tmp_path / "a")
    (tmp_path / "a.bin").unlink()
    with pytest.raises(InputError, match=r"a\.bin does not exist"):
        IndexedReader(tmp_path / "a")


def test_check_gives_what_commit_gave(tmp_path):
    info = write_pair(tmp_path / "a")
    found = check_pair(tmp_path / "a")
    assert found == PairCounts(**{field: getattr(info, field) for field in PairCounts.__struct_fields__})
    assert (found.documents, found.tokens, found.bytes, found.dtype) == (4, 12, 24, "uint16")


@pytest.mark.parametrize("change", [-2, -1, 1])
def test_check_finds_a_bin_of_another_size(tmp_path, change):
    write_pair(tmp_path / "a")
    data = (tmp_path / "a.bin").read_bytes()
    (tmp_path / "a.bin").write_bytes(data[:change] if change < 0 else data + b"\x00" * change)
    with pytest.raises(IntegrityError, match=f"has {24 + change} bytes, its index a.idx counts 12 tokens"):
        check_pair(tmp_path / "a")


def test_check_finds_every_flipped_byte_of_an_index(tmp_path):
    write_pair(tmp_path / "a")
    good = (tmp_path / "a.idx").read_bytes()
    check_pair(tmp_path / "a")
    for at in range(len(good)):
        for flip in (0x01, 0x80):
            (tmp_path / "a.idx").write_bytes(good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
            with pytest.raises(IntegrityError):
                check_pair(tmp_path / "a")


@pytest.mark.parametrize(
    ("at", "replacement", "message"),
    [
        (0, b"X", "expected b'MMIDIDX"),
        (9, struct.pack("<Q", 2), "version 2"),
        (17, b"\x09", "dtype code 9"),
        (18, struct.pack("<Q", 5), "expected 134 for 5 sequences"),
        (34, struct.pack("<2i", 3, 3), "pointer of sequence 1 is 8, expected 6 by the lengths"),
        (34 + 4 * 4 + 8, struct.pack("<q", 10), "pointer of sequence 1 is 10, expected 8 by the lengths"),
        (34 + 12 * 4 + 8, struct.pack("<q", -1), "document index 1 is -1 after 0"),
        (34 + 12 * 4 + 8, struct.pack("<q", 0), "4 documents in 4 sequences, expected one sequence per document"),
        (34 + 12 * 4 + 32, struct.pack("<q", 3), "run from 0 to 3, expected 0 to 4"),
    ],
)
def test_check_says_what_is_wrong(tmp_path, at, replacement, message):
    write_pair(tmp_path / "a")
    data = bytearray((tmp_path / "a.idx").read_bytes())
    data[at : at + len(replacement)] = replacement
    (tmp_path / "a.idx").write_bytes(data)
    with pytest.raises(IntegrityError, match=message):
        check_pair(tmp_path / "a")


def test_check_finds_a_cut_index(tmp_path):
    write_pair(tmp_path / "a")
    data = (tmp_path / "a.idx").read_bytes()
    for size in (0, 20, len(data) - 8):
        (tmp_path / "a.idx").write_bytes(data[:size])
        with pytest.raises(IntegrityError):
            check_pair(tmp_path / "a")


def test_check_bounds_ids_by_the_vocabulary(tmp_path):
    write_pair(tmp_path / "a", [[1, 2], [5, 4]])
    assert check_pair(tmp_path / "a", vocabulary=6).tokens == 4
    with pytest.raises(IntegrityError, match="id 5 at token 2, expected 0 to 4"):
        check_pair(tmp_path / "a", vocabulary=5)
    write_pair(tmp_path / "b", [[1, -2]], np.int32)
    with pytest.raises(IntegrityError, match="id -2 at token 1"):
        check_pair(tmp_path / "b")


def test_check_knows_the_dtype_megatron_expects(tmp_path):
    write_pair(tmp_path / "a", [[1]], np.int32)
    with pytest.raises(IntegrityError, match="dtype int32, expected uint16 for a vocabulary of 50257"):
        check_pair(tmp_path / "a", vocabulary=50257)
    assert check_pair(tmp_path / "a", vocabulary=50257, strict=False).documents == 1


def test_check_takes_pairs_of_other_writers_when_not_strict(tmp_path):
    """Two documents of two and of no sequences, as preprocess_data.py writes --split-sentences and empty text."""
    (tmp_path / "a.bin").write_bytes(struct.pack("<3H", 1, 2, 3))
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 2, 3)
    (tmp_path / "a.idx").write_bytes(head + struct.pack("<2i2q3q", 1, 2, 0, 2, 0, 2, 2))
    info = check_pair(tmp_path / "a", strict=False)
    assert (info.documents, info.empty_documents, info.tokens) == (2, 1, 3)
    with pytest.raises(IntegrityError, match="2 documents in 2 sequences, expected one sequence per document"):
        check_pair(tmp_path / "a")


# ---- joining


@pytest.mark.parametrize("max_bytes", [1, 64, 200, 1 << 30])
def test_join_gives_the_same_bytes_however_parts_are_cut(tmp_path, max_bytes):
    documents = make_documents(60)
    bounds = [0, 0, 1, 17, 17, 59, len(documents)]
    parts = [write_part(tmp_path, f"part{i}", documents[a:b]) for i, (a, b) in enumerate(pairwise(bounds))]
    infos = join_parts(parts, tmp_path / "out" / "news", np.uint16, max_bytes)
    reference = join_parts(
        [write_part(tmp_path / "one", "part", documents)], tmp_path / "ref" / "news", np.uint16, max_bytes
    )
    kept = [d for d in documents if d]
    assert read_all(infos) == kept
    assert [i.sha256_bin for i in infos] == [i.sha256_bin for i in reference]
    assert [i.sha256_idx for i in infos] == [i.sha256_idx for i in reference]
    assert [i.empty_documents for i in infos] == [i.empty_documents for i in reference]
    assert sum(i.empty_documents for i in infos) == len(documents) - len(kept)
    assert all(i.bytes <= max_bytes or i.documents == 1 for i in infos)
    assert [Path(i.prefix).name for i in infos] == [f"news_{n:05d}_text_document" for n in range(len(infos))]
    for info in infos:
        assert check_pair(info.prefix, 50257).documents == info.documents


def test_join_fills_each_pair_up_to_the_limit(tmp_path):
    part = write_part(tmp_path, "p", [[], [1, 1], [2, 2], [], [3], [], [4, 4, 4, 4, 4, 4], [5], []])
    infos = join_parts([part], tmp_path / "out" / "x", np.uint16, 10)
    assert [i.bytes for i in infos] == [10, 12, 2]
    assert [i.empty_documents for i in infos] == [3, 0, 1]


def test_join_does_not_depend_on_batches(tmp_path, monkeypatch):
    documents = make_documents(60)
    part = write_part(tmp_path, "p", documents)
    order = np.random.default_rng(3).permutation(sum(map(bool, documents)))
    runs = {}
    for size in (1 << 20, 1, 7):
        monkeypatch.setattr(megatron, "BATCH_SEQUENCES", size)
        monkeypatch.setattr(megatron, "BATCH_BYTES", size * 10)
        monkeypatch.setattr(joining, "BATCH_BYTES", size * 10)
        plain = join_parts([part], tmp_path / f"p{size}" / "x", np.uint16, 200)
        mixed = join_parts([part], tmp_path / f"s{size}" / "x", np.uint16, 200, order=order)
        runs[size] = [(i.sha256_bin, i.sha256_idx, i.empty_documents) for i in plain + mixed]
    assert runs[1] == runs[7] == runs[1 << 20]


def test_join_without_copy_file_range(tmp_path, monkeypatch):
    part = write_part(tmp_path, "p", DOCUMENTS)

    def refuse(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    assert read_all(join_parts([part], tmp_path / "out" / "x", np.uint16)) == DOCUMENTS


def test_join_gives_no_pair_without_tokens(tmp_path):
    parts = [write_part(tmp_path, "a", [[], []]), write_part(tmp_path, "b", [])]
    assert join_parts(parts, tmp_path / "out" / "x", np.uint16) == []
    assert join_parts(parts, tmp_path / "out" / "x", np.uint16, order=np.empty(0, np.int64)) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", [0, 1, 2])  # the second one is whole in its pair
@pytest.mark.parametrize(
    ("tokens", "lengths", "message"),
    [
        (b"abcdef", [4], r"has 6 bytes, expected 8 by the lengths in .*b.len \(4 bytes\)\. Remove both files"),
        (b"abcdef", [1, 1], r"has 6 bytes, expected 4 by"),
        (b"abcdef", [4, -1], r"has 6 bytes, expected 6 by .*; some lengths are negative"),
        (b"ab", [], r"has 2 bytes, expected 0 by"),
        (b"", [2], r"has 0 bytes, expected 4 by"),
    ],
    ids=["short", "long", "negative", "no lengths", "no ids"],
)
def test_join_refuses_parts_that_contradict_themselves(tmp_path, place, tokens, lengths, message):
    parts = [write_part(tmp_path, name, DOCUMENTS) for name in ("a", "c")]
    ids_path, lengths_path = tmp_path / "b.bin", tmp_path / "b.len"
    ids_path.write_bytes(tokens)
    lengths_path.write_bytes(np.array(lengths, "<i4").tobytes())
    parts.insert(place, (ids_path, lengths_path))
    with pytest.raises(IntegrityError, match=message):
        join_parts(parts, tmp_path / "out" / "x", np.uint16)
    lengths_path.write_bytes(np.array([3], "<i4").tobytes() + b"x")
    ids_path.write_bytes(b"abcdef")
    with pytest.raises(IntegrityError, match=r"\(5 bytes\)"):
        join_parts(parts, tmp_path / "out" / "x", np.uint16)


def test_lengths_are_read_only_where_a_pair_begins_or_ends(tmp_path, monkeypatch):
    parts = [write_part(tmp_path, f"{number}", DOCUMENTS) for number in range(9)]  # 24 bytes each
    read, lengths_of = [], joining._part_lengths
    monkeypatch.setattr(
        joining, "_part_lengths", lambda ids, *rest: read.append(Path(ids).stem) or lengths_of(ids, *rest)
    )
    assert len(joining.plan_pairs(parts, tmp_path / "x", np.uint16, 110)) == 2
    assert read == ["0", "4"]


def test_join_refuses_to_overwrite(tmp_path):
    part = write_part(tmp_path, "a", DOCUMENTS)
    join_parts([part], tmp_path / "x", np.uint16)
    with pytest.raises(OutputError, match="exists already"):
        join_parts([part], tmp_path / "x", np.uint16)
    assert len(join_parts([part], tmp_path / "x", np.uint16, force=True)) == 1


@pytest.mark.parametrize("cuts", [[], [10, 10, 41]])
def test_shuffled_join_follows_the_order(tmp_path, cuts):
    documents = make_documents(60)
    bounds = [0, *cuts, len(documents)]
    parts = [write_part(tmp_path, f"part{i}", documents[a:b]) for i, (a, b) in enumerate(pairwise(bounds))]
    kept = [d for d in documents if d]
    order = np.random.default_rng(1234).permutation(len(kept))
    infos = join_parts(parts, tmp_path / "out" / "x", np.uint16, 300, order=order)
    assert read_all(infos) == [kept[i] for i in order]
    assert read_all(infos) != kept
    assert len(infos) > 1
    assert sum(i.empty_documents for i in infos) == len(documents) - len(kept)


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 4], [0, 1, 1, 3], [0, 1, 2, -1]])
def test_shuffled_join_wants_a_permutation(tmp_path, order):
    part = write_part(tmp_path, "a", DOCUMENTS)
    with pytest.raises(IntegrityError, match="expected each of 0 to 3 once"):
        join_parts([part], tmp_path / "x", np.uint16, order=np.array(order))


# ---- Megatron


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_megatron_reads_and_writes_the_same(tmp_path, dtype):
    needs("megatron.core")
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    documents = [d for d in make_documents(300) if d]
    info = write_pair(tmp_path / "a", documents, dtype)
    dataset = IndexedDataset(info.prefix)
    assert len(dataset) == len(documents)
    assert [dataset[i].tolist() for i in range(len(dataset))] == documents
    assert dataset.document_indices.tolist() == list(range(len(documents) + 1))
    builder = IndexedDatasetBuilder(str(tmp_path / "b.bin"), dtype=dtype)
    for document in documents:
        builder.add_document(torch.tensor(document), [len(document)])
    builder.finalize(str(tmp_path / "b.idx"))
    for suffix in (".bin", ".idx"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert check_pair(tmp_path / "b").documents == len(documents)
