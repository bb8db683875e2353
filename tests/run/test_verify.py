# SPDX-License-Identifier: Apache-2.0
"""`verify` finds whatever changed in a finished run: any byte of any file, files that are gone, files that came."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.cli import main
from curation.errors import OutputError
from curation.files import file_sha256
from curation.recipe import Output
from curation.running import report
from curation.running.exports import part_files, write_cleaned
from curation.running.runner import run
from curation.running.verify import verify
from tests.run.runs import files_below, kept_rows, made_texts, recipe_of, records_of

KINDS = ("documents/part-00001.parquet", "removed/part-00000.parquet", "rejected.jsonl", "report.json", "report.html")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verified")
    (folder / "made.jsonl").write_bytes(records_of(made_texts(120)) + b"not json\n")
    run(recipe_of(folder / "made.jsonl", output={"part_documents": 50}), folder / "out", engine="cpu")
    return folder / "out"


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, for damaging it. Nothing in a run but `tokens/_meta/` says where it stands."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


def test_a_sound_run(finished: Path, copy: Path, capsys: pytest.CaptureFixture[str]):
    assert verify(finished) == verify(copy) == verify(str(copy)) == []
    assert main(["verify", str(finished)]) == 0
    assert "all as they were written" in capsys.readouterr().out
    names = files_below(finished)
    assert {*KINDS} < {*names}
    assert {Path(name).suffix for name in names} >= {".bin", ".idx", ".parquet", ".json", ".jsonl", ".txt", ".html"}


def test_a_flipped_byte_in_any_file(finished: Path, copy: Path, capsys: pytest.CaptureFixture[str]):
    for name in files_below(finished):
        whole = (finished / name).read_bytes()
        for offset in sorted({0, 4, 9, 17, 18, len(whole) // 3, len(whole) // 2, len(whole) - 9, len(whole) - 1}):
            for bit in (0, 5):
                damaged = bytearray(whole)
                damaged[offset] ^= 1 << bit
                (copy / name).write_bytes(damaged)
                problems = verify(copy)
                assert len(problems) == 1 and name in problems[0], (name, offset, bit, problems)
        (copy / name).write_bytes(whole[:-1])
        assert main(["verify", str(copy)]) == 1
        assert f"wrong: {name}" in capsys.readouterr().out.replace(f"{copy}/", "")
        (copy / name).write_bytes(whole)
    assert verify(copy) == []


def test_every_byte_of_the_small_files(finished: Path, copy: Path):
    for name in ("rejected.jsonl", "tokens/_meta/blend.txt", "tokens/_meta/manifest.json"):
        whole = (finished / name).read_bytes()
        for offset in range(0, len(whole), 7):
            (copy / name).write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x20]) + whole[offset + 1 :])
            assert verify(copy) == [f"{name} has changed: its SHA-256 is not the one that report.json asks for"]
        (copy / name).write_bytes(whole)


def test_every_byte_of_the_report(finished: Path, copy: Path):
    whole = (finished / "report.json").read_bytes()
    for offset in range(0, len(whole), 7):
        (copy / "report.json").write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
        problems = verify(copy)
        assert len(problems) == 1 and "report.json" in problems[0], (offset, whole[offset - 20 : offset + 20])


def test_a_file_that_is_gone(finished: Path, copy: Path):
    for name in files_below(finished):
        (copy / name).unlink()
        if name == "report.json":
            with pytest.raises(OutputError, match=r"holds no finished run \(no report\.json\)"):
                verify(copy)
        else:
            assert f"{name} is missing" in verify(copy)
        shutil.copy(finished / name, copy / name)


@pytest.mark.parametrize(
    "name", ["documents/part-99999.parquet", "removed/x", "tokens/more.bin", "tokens/_meta/x", "documents/sub/x.tmp"]
)
def test_a_file_that_came(copy: Path, name: str):
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_bytes(b"")
    assert verify(copy) == [f"{name} is not part of the run"]


def test_the_index_cache_of_a_training_run_is_no_stranger(copy: Path):
    cache = copy / "tokens" / "made_00000_text_document" / "cache" / "GPTDataset_indices"
    cache.mkdir(parents=True)
    (cache / "abc-document_index.npy").write_bytes(b"")
    assert verify(copy) == []
    other = copy / "tokens" / "other" / "cache"
    other.mkdir(parents=True)
    (other / "x.npy").write_bytes(b"")
    assert verify(copy) == ["tokens/other/cache/x.npy is not part of the run"]


# Runs whose files are all as the report says, and which still contradict themselves


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Problems after a change of the report that keeps its digests right."""
    content = json.loads((folder / "report.json").read_bytes())
    change(content)
    content["outputs"] = {name: file_sha256(folder / name) for name in content["outputs"]}
    report.write(folder, content)
    return verify(folder)


def test_digests_alone_are_not_enough(copy: Path):
    assert rewritten(copy, lambda content: None) == []


def test_counts_of_the_report(copy: Path):
    def change(content: dict[str, Any], *path: Any, by: int = 1) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] += by

    before = json.loads((copy / "report.json").read_bytes())
    for path in (
        ("documents", "read"), ("documents", "kept"), ("documents", "removed"), ("documents", "rejected"),
        ("stages", 0, "documents_in"), ("stages", 1, "documents_out"), ("stages", 2, "reasons", "exact_duplicate"),
        ("tokens", "count"), ("tokens", "documents"),
    ):  # fmt: skip
        assert rewritten(copy, lambda content, path=path: change(content, *path)), path
        report.write(copy, before)

    def move(content: dict[str, Any]) -> None:
        change(content, "documents", "kept")
        change(content, "documents", "removed", by=-1)

    problems = " ".join(rewritten(copy, move))
    assert "documents/ has" in problems and "removed/ has" in problems


def test_order_of_documents(copy: Path):
    path = copy / "documents" / "part-00001.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take([1, 0, *range(2, len(table))]), path)
    assert rewritten(copy, lambda content: None) == ["documents/part-00001.parquet is not in the order of doc"]
    first, second = copy / "documents" / "part-00000.parquet", copy / "documents" / "part-00001.parquet"
    pq.write_table(table, first)
    pq.write_table(table.slice(0, 0), second)
    assert any("documents/ has" in problem for problem in rewritten(copy, lambda content: None))


def test_parts_of_six_digits_come_after_those_of_five(copy: Path):
    """As in a run of more than 100,000 parts."""
    folder, before = copy / "documents", kept_rows(copy)
    for number, path in reversed(list(enumerate(sorted(folder.iterdir())))):
        path.rename(folder / f"part-{99_999 + number:05d}.parquet")
    assert [path.name for path in part_files(folder)][:2] == ["part-99999.parquet", "part-100000.parquet"]

    def rename(content: dict[str, Any]) -> None:
        others = {name: digest for name, digest in content["outputs"].items() if not name.startswith("documents/")}
        content["outputs"] = others | {f"documents/{path.name}": "" for path in folder.iterdir()}

    assert rewritten(copy, rename) == []
    write_cleaned(Output(cleaned="jsonl"), copy)
    cleaned = [json.loads(line)["doc"] for line in (copy / "cleaned/part-00000.jsonl").read_bytes().splitlines()]
    assert cleaned == [doc for doc, *_ in before]


def test_a_document_that_is_kept_and_removed(copy: Path):
    path = copy / "removed" / "part-00000.parquet"
    table = pq.read_table(path)
    kept = pq.read_table(copy / "documents" / "part-00000.parquet").column("doc")[0].as_py()
    docs = sorted([kept, *table.column("doc").to_pylist()[1:]])
    pq.write_table(table.set_column(0, "doc", pa.array(docs, pa.int64())), path)
    assert any("both kept and removed" in problem for problem in rewritten(copy, lambda content: None))


def test_ids_out_of_range_and_pointers(copy: Path):
    prefix = copy / "tokens" / "made_00000_text_document"
    data = bytearray(prefix.with_suffix(".bin").read_bytes())
    data[0:2] = (65000).to_bytes(2, "little")
    prefix.with_suffix(".bin").write_bytes(data)
    assert any("id 65000 at token 0" in problem for problem in rewritten(copy, lambda content: None))
    data[0:2] = b"\x00\x00"
    prefix.with_suffix(".bin").write_bytes(data)
    index = bytearray(prefix.with_suffix(".idx").read_bytes())
    index[34] ^= 1
    index[38] ^= 1
    prefix.with_suffix(".idx").write_bytes(index)
    assert any(".idx" in problem for problem in rewritten(copy, lambda content: None))


def test_what_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(OutputError, match="holds no finished run"):
        verify(tmp_path)
    with pytest.raises(OutputError, match="holds no finished run"):
        verify(tmp_path / "none")
    assert main(["verify", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err
