# SPDX-License-Identifier: Apache-2.0
"""Merging and splitting finished pairs."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from curation import cli
from curation.base.errors import InputError, IntegrityError, OutputError
from curation.base.system.files import write_json
from curation.tokens.indexed import IndexedReader
from curation.tokens.megatron import PairWriter, write_index
from curation.tokens.pair_sets import unpublished
from curation.tokens.repack import repack
from tests.tokens.samples import flat, make_documents


def write_pair(prefix: Path, documents: list[list[int]], dtype: str = "<u2") -> Path:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with PairWriter(prefix, dtype) as writer:
        writer.append(np.array(flat(documents), dtype), np.array([len(ids) for ids in documents], np.int32))
        writer.commit()
    return prefix


def read(prefix: str | Path) -> list[list[int]]:
    return [ids.tolist() for ids in IndexedReader(prefix)]


DOCUMENTS = [ids for ids in make_documents(60) if ids]


def test_split_and_merge_give_back_the_bytes(tmp_path):
    whole = write_pair(tmp_path / "a/whole_00000_text_document", DOCUMENTS)
    pieces = repack([whole], tmp_path / "b/piece", 400)
    assert len(pieces) > 3
    assert all(piece.bytes <= 400 for piece in pieces)
    assert [ids for piece in pieces for ids in read(piece.prefix)] == DOCUMENTS
    (merged,) = repack([piece.prefix + ".bin" for piece in pieces], tmp_path / "c/merged", 10**9)
    for suffix in (".bin", ".idx"):
        assert Path(merged.prefix + suffix).read_bytes() == Path(f"{whole}{suffix}").read_bytes()
    assert sorted(os.listdir(tmp_path / "c")) == ["merged_00000_text_document.bin", "merged_00000_text_document.idx"]


@pytest.mark.parametrize("place", ["bin", "idx", "", "/cache"])
def test_a_pair_behind_a_link_is_not_replaced(tmp_path, place):
    """Neither the link nor what it leads to, such as Megatron's cache of the old pair."""
    whole = write_pair(tmp_path / "a/whole_00000_text_document", DOCUMENTS)
    target = tmp_path / "b" / "new_00000_text_document"
    link = Path(f"{target}.{place}") if place in ("bin", "idx") else Path(f"{target}{place}")
    link.parent.mkdir(parents=True)
    mine = tmp_path / "mine"
    (mine / "cache").mkdir(parents=True)
    (mine / "cache" / "thesis.txt").write_text("years of work")
    link.symlink_to(mine)
    with pytest.raises(OutputError, match=rf"{link} is a link"):
        repack([whole], tmp_path / "b" / "new", 10**9, force=True)
    assert link.is_symlink() and (mine / "cache" / "thesis.txt").read_text() == "years of work"
    assert [path.name for path in (tmp_path / "b").iterdir()] == [Path(link.relative_to(tmp_path / "b")).parts[0]]


def test_only_folders_of_killed_calls_are_deleted(tmp_path):
    whole = write_pair(tmp_path / "a/whole_00000_text_document", DOCUMENTS)
    left, mine = tmp_path / "b" / "_repack.abcdefgh", tmp_path / "b" / "_repack.notes"
    (left / "pairs").mkdir(parents=True)
    (left / "0.lengths").touch()
    mine.mkdir()
    (mine / "thesis.txt").touch()
    repack([whole], tmp_path / "b" / "new", 10**9)
    assert not left.exists() and (mine / "thesis.txt").exists()


def test_merging_keeps_the_given_order(tmp_path):
    prefixes = [write_pair(tmp_path / f"in/{k}_text_document", [[k] * 3]) for k in (10, 2, 1)]
    (merged,) = repack(prefixes, tmp_path / "out", 10**9)
    assert read(merged.prefix) == [[10] * 3, [2] * 3, [1] * 3]


def test_memory_does_not_grow_with_the_pairs(tmp_path):
    import tracemalloc

    prefix = tmp_path / "large_00000_text_document"
    lengths = np.full(2_000_000, 5, np.int32)
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(int(lengths.sum()) * 2)
    write_index(f"{prefix}.idx", np.uint16, lengths)
    tracemalloc.start()
    try:
        (merged,) = repack([prefix], tmp_path / "out/copy", 10**12)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert merged.documents == 2_000_000
    assert peak < 100 << 20  # the index has 40 MB, in pieces of 20 MB; the rest is a piece of tokens being checked


def test_pairs_of_different_dtypes_are_refused(tmp_path):
    prefixes = [write_pair(tmp_path / "a", [[1]]), write_pair(tmp_path / "b", [[1]], "<i4")]
    with pytest.raises(InputError, match=r"different dtypes cannot be joined \(a: uint16, b: int32\)"):
        repack(prefixes, tmp_path / "out", 10**9)


def test_both_files_of_a_pair_count_once(tmp_path):
    """As a shell's glob gives them."""
    prefixes = [write_pair(tmp_path / name, [[number]]) for number, name in enumerate(("b", "a"))]
    files = [f"{prefix}{suffix}" for suffix in (".bin", ".idx") for prefix in prefixes]
    (merged,) = repack(files, tmp_path / "out/all", 10**9)
    assert read(merged.prefix) == [[0], [1]]


@pytest.mark.parametrize(
    "given", [["a", "a"], ["a", "a.bin"], ["a.idx", "a.idx"], ["a", "in/../a"], ["a", "l"], ["a.bin", "a.idx", "l.bin"]]
)
def test_a_pair_that_comes_twice_is_refused(tmp_path, given):
    write_pair(tmp_path / "a", [[1]])
    (tmp_path / "in").mkdir()
    for suffix in (".bin", ".idx"):
        (tmp_path / f"l{suffix}").symlink_to(tmp_path / f"a{suffix}")
    with pytest.raises(InputError, match="are the same pair; give each pair once"):
        repack([tmp_path / name for name in given], tmp_path / "out/all", 10**9)


def test_pairs_of_different_tokenizers_are_refused(tmp_path):
    """By the manifests of the runs that wrote them; a pair without one goes with any."""
    prefixes = [write_pair(tmp_path / name / "x", [[1]]) for name in "abcd"]
    for prefix, digest in zip(prefixes, ("11", "22", "11"), strict=False):
        manifest = {"tokens": {"tokenizer": {"name": f"tok{digest}", "sha256": digest}, "vocabulary": 9}, "pairs": []}
        write_json(prefix.parent / "_meta/manifest.json", manifest)
    told = r"different tokenizers cannot be joined \(.*a/x: tok11, 11; .*b/x: tok22, 22\)"
    with pytest.raises(InputError, match=told):
        repack(prefixes, tmp_path / "out/all", 10**9)
    (merged,) = repack([prefixes[0], *prefixes[2:]], tmp_path / "out/all", 10**9)
    assert merged.documents == 3


def test_pairs_of_different_splits_are_refused(tmp_path):
    """By the manifests of the runs that wrote them; a pair that has no split goes with any."""
    for folder, splits in (("m", ("train", "valid", "test", "train")), ("n", ("train", None, "valid"))):
        pairs = [{"prefix": f"x{n}"} | ({"split": split} if split else {}) for n, split in enumerate(splits)]
        tokens = {"tokenizer": {"name": "tok", "sha256": "11"}, "vocabulary": 9}
        write_json(tmp_path / folder / "_meta/manifest.json", {"tokens": tokens, "pairs": pairs})
    prefixes = [write_pair(tmp_path / name, [[1]]) for name in ("m/x0", "m/x1", "m/x2", "m/x3", "n/x0", "n/x1", "o/x")]
    told = r"different splits cannot be joined \(.*m/x0: train; .*m/x1: valid\)\. .* such as \*_train_\*\.idx"
    with pytest.raises(InputError, match=told):
        repack(prefixes, tmp_path / "out/all", 10**9)
    with pytest.raises(InputError, match=r"m/x2: test; .*n/x0: train"):
        repack([prefixes[2], prefixes[4]], tmp_path / "out/all", 10**9)
    (merged,) = repack([prefixes[0], *prefixes[3:]], tmp_path / "out/all", 10**9)
    assert merged.documents == 5


@pytest.mark.parametrize("stem", ["out/", "new/", "out"])
def test_a_stem_that_is_a_folder_is_refused(tmp_path, stem):
    prefix = write_pair(tmp_path / "a", [[1]])
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match=r"is a folder, .*/merged gives .*/merged_00000_text_document"):
        repack([prefix], f"{tmp_path}/{stem}", 10**9)


@pytest.mark.parametrize("given", ["", "run", "run/tokens", "run/tokens/", "run/tokens/news"])
def test_pairs_near_to_what_is_none_are_named(tmp_path, given):
    for number in range(7):
        write_pair(tmp_path / f"run/tokens/news_{number:05d}_text_document", [[1]])
    (tmp_path / "run/tokens/alone.idx").touch()
    near = "".join(rf"\S*/news_0000{number}_text_document, " for number in range(5))
    with pytest.raises(
        InputError, match=rf"does not exist\. Give one of {near}\.\.\.$" if given else "the prefix of a pair"
    ):
        IndexedReader(f"{tmp_path}/{given}")


def test_either_file_of_a_pair_opens_it(tmp_path):
    prefix = write_pair(tmp_path / "v1.5", DOCUMENTS)
    for path in (prefix, f"{prefix}.bin", f"{prefix}.idx"):
        assert read(path) == DOCUMENTS


def test_a_damaged_pair_is_refused(tmp_path):
    prefix = write_pair(tmp_path / "a", DOCUMENTS)
    with open(f"{prefix}.bin", "ab") as file:
        file.write(b"\0\0")
    with pytest.raises(IntegrityError, match=r"a\.idx counts"):
        repack([prefix], tmp_path / "out", 10**9)


def test_a_missing_pair_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone.idx does not exist"):
        repack([tmp_path / "gone"], tmp_path / "out", 10**9)


def test_a_pair_is_never_written_over_itself(tmp_path):
    prefix = write_pair(tmp_path / "news_00000_text_document", DOCUMENTS)
    with pytest.raises(InputError, match="would be read and written"):
        repack([prefix], tmp_path / "news", 100, force=True)
    assert read(prefix) == DOCUMENTS


def test_existing_pairs_are_replaced_by_force_only(tmp_path):
    prefix = write_pair(tmp_path / "in/a", DOCUMENTS)
    repack([prefix], tmp_path / "out/b", 10**9)
    with pytest.raises(OutputError, match="exists already"):
        repack([prefix], tmp_path / "out/b", 10**9)
    repack([prefix], tmp_path / "out/b", 10**9, force=True)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_pairs_of_an_earlier_finer_cut_go(tmp_path):
    """They would be trained twice."""
    whole = write_pair(tmp_path / "in/whole", DOCUMENTS)
    out = tmp_path / "out"
    assert len(repack([whole], out / "x", 400)) > 3
    others = ["x_1_text_document.idx", "x_more_00009_text_document.bin", "xx_00009_text_document.idx"]
    others += ["x_20240101_text_document.bin", "x_20240101_text_document.idx", "x_00777_text_document.idx"]  # not ours
    for name in others:
        (out / name).write_bytes(b"")
    (out / "x_00003_text_document/cache").mkdir(parents=True)
    pairs = repack([whole], out / "x", 1000, force=True)
    assert [ids for pair in pairs for ids in read(pair.prefix)] == DOCUMENTS
    assert names(out) == sorted(
        [*others, *(f"{Path(pair.prefix).name}{suffix}" for pair in pairs for suffix in (".bin", ".idx"))]
    )


def test_a_pair_with_a_date_in_its_name_is_not_in_the_way(tmp_path):
    dated = write_pair(tmp_path / "out/x_20240101_text_document", DOCUMENTS)
    repack([dated], tmp_path / "out/x", 10**9)
    assert read(tmp_path / "out/x_00000_text_document") == read(dated) == DOCUMENTS


def test_a_pair_of_a_higher_number_is_enough_to_refuse(tmp_path):
    whole = write_pair(tmp_path / "in/whole", DOCUMENTS)
    (tmp_path / "out").mkdir()
    for suffix in ("bin", "idx"):
        left = tmp_path / f"out/x_00007_text_document.{suffix}"
        left.write_bytes(b"")
        with pytest.raises(OutputError, match=rf"x_00007_text_document\.{suffix} exists already"):
            repack([whole], tmp_path / "out/x", 400)
        assert names(tmp_path / "out") == [left.name]
        left.unlink()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def killed_before(step: int, folder: Path, command: Callable[[], object]) -> bool:
    """Runs a command in a process that dies before its `step`th rename or deletion in a folder; False where it has
    fewer."""
    child = os.fork()
    if not child:
        left = iter(range(step))
        for name in ("replace", "unlink"):
            setattr(os, name, partial(count_down, left, folder, getattr(os, name)))
        command()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def count_down(left: Iterator[int], folder: Path, function: Callable, *arguments: str | Path, **options: int) -> None:
    if Path(arguments[-1]).parent == folder and next(left, None) is None:
        os._exit(9)
    function(*arguments, **options)


@pytest.mark.parametrize(
    "force",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.slow("a split that is killed while it replaces files is whole or refused")
        ),
    ],
)
def test_a_killed_split_is_whole_or_refused_and_the_same_command_ends_it(tmp_path, force):
    whole, out = write_pair(tmp_path / "in/whole", [[1, 2]] * 6), tmp_path / "out"
    repack([whole], tmp_path / "new/s", 12)
    repack([whole], tmp_path / "old/s", 8)
    new, old = contents(tmp_path / "new"), contents(tmp_path / "old") if force else {}
    assert (len(new), len(old)) == (4, 6 * force)
    refused = 0
    for step in range(100):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for name, content in old.items():
            (out / name).write_bytes(content)
        if not killed_before(step, out, lambda: repack([whole], out / "s", 12, force=force)):
            break
        left = {name: content for name, content in contents(out).items() if "_text_document" in name}
        if (out / "s.unfinished").exists():
            refused += 1
            for name in left:
                with pytest.raises(
                    InputError, match=r"is part of an unfinished set .* Run the same merge or split command"
                ):
                    IndexedReader(out / name)
        else:
            assert left in (old, new)
        if force or left != new or (out / "s.unfinished").exists():
            repack([whole], out / "s", 12, force=force and not (out / "s.unfinished").exists())
            assert contents(out) == new and names(out) == sorted(new)
    assert step > 8 and refused >= 5  # a rename of each file, and the end of the mark


def test_another_process_that_writes_the_set_is_left_alone(tmp_path):
    whole = write_pair(tmp_path / "in/whole", DOCUMENTS)
    with unpublished(tmp_path / "s") as folder:
        repack([whole], tmp_path / "other", 900)
        assert folder.is_dir()
        write_json(tmp_path / "s.unfinished", {"folder": folder.name, "pairs": []})
        with pytest.raises(OutputError, match="another process writes the pairs of"):
            repack([whole], tmp_path / "s", 900)
    repack([whole], tmp_path / "s", 900)
    assert not (tmp_path / "s.unfinished").exists()


@pytest.mark.parametrize("content", ["{}", "[", '{"folder": 1, "pairs": []}'])
def test_a_damaged_mark_of_a_set_is_named(tmp_path, content):
    prefix = write_pair(tmp_path / "s_00000_text_document", DOCUMENTS)
    (tmp_path / "s.unfinished").write_text(content)
    with pytest.raises(IntegrityError, match=r"s\.unfinished does not name the pairs .* Delete it"):
        IndexedReader(prefix)


def test_a_mark_deletes_no_pair_of_another_stem(tmp_path):
    whole = write_pair(tmp_path / "whole", DOCUMENTS)
    write_json(tmp_path / "s.unfinished", {"folder": "_repack.x", "pairs": ["whole", "../s_00000_text_document"]})
    repack([whole], tmp_path / "s", 10**9)
    assert read(whole) == read(tmp_path / "s_00000_text_document") == DOCUMENTS


def test_commands(tmp_path, capsys):
    whole = write_pair(tmp_path / "a/whole", DOCUMENTS)
    assert cli.main(["split", str(whole), "-o", str(tmp_path / "b/part"), "--max-bytes", "400"]) == 0
    prefixes = sorted(str(path.with_suffix("")) for path in (tmp_path / "b").glob("*.idx"))
    assert cli.main(["merge", *prefixes, "-o", str(tmp_path / "c/all")]) == 0
    assert read(tmp_path / "c/all_00000_text_document") == DOCUMENTS
    assert f"{len(DOCUMENTS)} documents" in capsys.readouterr().out
    assert cli.main(["merge", str(tmp_path / "nothing"), "-o", str(tmp_path / "d/all")]) == 2
    for wrong in ("0", "-1"):
        capsys.readouterr()
        assert cli.main(["split", str(whole), "-o", str(tmp_path / "e/part"), "--max-bytes", wrong]) == 2
        assert f"--max-bytes must be above 0, not {wrong}" in capsys.readouterr().err
