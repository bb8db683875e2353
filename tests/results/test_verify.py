# SPDX-License-Identifier: Apache-2.0
"""`verify` finds whatever changed in a finished run: any byte of any file, files that are gone, files that came."""

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.errors import IntegrityError, OutputError
from curation.base.system.files import file_sha256, write_json
from curation.cli import main
from curation.record.folder import find_finished
from curation.record.identity import check_same, identity_in
from curation.record.tables import part_paths
from curation.results.finished.moved_paths import rewrite_moved_paths
from curation.results.finished.verify import verify
from curation.results.report import report
from curation.running.run import run
from tests.runs import files_below, made_texts, recipe_of, records_of

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
    assert "all unchanged" in capsys.readouterr().out
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
        assert f"problem: {name}" in capsys.readouterr().out.replace(f"{copy}/", "")
        (copy / name).write_bytes(whole)
    assert verify(copy) == []


def test_every_byte_of_the_small_files(finished: Path, copy: Path):
    for name in ("rejected.jsonl", "tokens/_meta/blend.txt", "tokens/_meta/manifest.json"):
        whole = (finished / name).read_bytes()
        for offset in range(0, len(whole), 23):
            (copy / name).write_bytes(whole[:offset] + bytes([whole[offset] ^ 0x20]) + whole[offset + 1 :])
            assert verify(copy) == [f"{name} has changed: its SHA-256 is not the one in report.json"]
        (copy / name).write_bytes(whole)


def test_every_byte_of_the_report(finished: Path, copy: Path):
    whole = (finished / "report.json").read_bytes()
    for offset in range(0, len(whole), 23):
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


LINKED = "is a link, and a run writes none: its target is not checked. Replace the link by the files"


@pytest.mark.parametrize(
    "name", ["notes.txt", "notes", "blocks", "sample_dataset.pt", "report.json.1.tmp", ".hidden", "a\x1b\udcff"]
)
def test_a_stranger_beside_the_report(copy: Path, name: str):
    (copy / name).write_bytes(b"")
    assert verify(copy) == [f"{name} is not part of the run".replace("\x1b\udcff", r"\x1b\udcff")]


def test_a_folder_beside_the_report_is_named_once(copy: Path):
    (copy / "notes" / "below").mkdir(parents=True)
    (copy / "notes" / "below" / "x").write_bytes(b"")
    (copy / "index_mapping").mkdir()  # where NeMo keeps its indexes
    (copy / "index_mapping" / "x.npy").write_bytes(b"")
    assert verify(copy) == ["notes is not part of the run"]


def test_a_work_folder_is_a_strangers_unless_a_run_has_left_it(copy: Path, tmp_path: Path):
    (copy / "_work" / "segment-0").mkdir(parents=True)
    assert verify(copy) == ["_work is not part of the run"]
    (copy / "_work" / "plan.json").write_bytes(b'{"version":"0.3.0"}')  # a kill before the deletion
    assert verify(copy) == []
    shutil.rmtree(copy / "_work")
    (copy / "_work").write_bytes(b"")
    assert verify(copy) == ["_work is not part of the run"]
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(9)))
    run(recipe_of(tmp_path / "a.jsonl", output={"keep_work": True}), tmp_path / "kept", engine="cpu")
    (tmp_path / "kept" / "_work" / "plan.json").unlink()
    assert verify(tmp_path / "kept") == []


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("documents/part-00001.parquet", "{finished}/documents/part-00001.parquet"),
        ("rejected.jsonl", "{finished}/rejected.jsonl"),
        ("report.json", "{finished}/report.json"),
        ("report.html", "{finished}/report.html"),
        ("documents", "{finished}/documents"),
        ("tokens/_meta", "{finished}/tokens/_meta"),
        ("documents/more", "/"),
        ("removed/more", "/etc/passwd"),
        ("tokens/made_00000_text_document/cache", "/"),
        ("index_mapping", "/"),
        ("_work", "/"),
        ("more", "/nowhere"),
    ],
)
def test_a_link_is_named_and_not_followed(
    finished: Path, copy: Path, name: str, target: str, monkeypatch: pytest.MonkeyPatch
):
    path = copy / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target.format(finished=finished))
    opened: list[Path] = []
    monkeypatch.setattr(
        "curation.results.finished.verify.file_sha256", lambda path: opened.append(path) or file_sha256(path)
    )
    assert verify(copy) == [f"{name} {LINKED}"]
    assert not [path for path in opened if path.resolve() != path]


def test_what_is_no_regular_file(copy: Path):
    for name in ("documents/part-00000.parquet", "removed/pipe"):
        (copy / name).unlink(missing_ok=True)
        os.mkfifo(copy / name)
    assert verify(copy) == ["documents/part-00000.parquet is no regular file", "removed/pipe is not part of the run"]


# Reports that nobody's run has written, with the right digest


REJECTED = {"rejected.jsonl": "0" * 64}
FORGED: list[tuple[str, Any, str]] = [
    ("outputs", None, "Object missing required field `outputs`"),
    ("outputs", 3, "Expected `object`, got `int` - at `$.outputs`"),
    ("outputs", {}, "outputs lacks rejected.jsonl"),
    ("outputs", {"../../etc/passwd": "0" * 64, **REJECTED}, "'../../etc/passwd', which a run does not write"),
    ("outputs", {"documents/../../x": "0" * 64, **REJECTED}, "outputs names 'documents/../../x', which"),
    ("outputs", {"/etc/passwd": "0" * 64, **REJECTED}, "outputs names '/etc/passwd', which"),
    ("outputs", {"notes.txt": "0" * 64, **REJECTED}, "outputs names 'notes.txt', which"),
    ("outputs", {"report.json": "0" * 64, **REJECTED}, "outputs names 'report.json', which"),
    ("outputs", {"documents/\0": "0" * 64, **REJECTED}, r"outputs names 'documents/\x00', which"),
    ("outputs", {"rejected.jsonl": "x"}, "- at `$.outputs[...]`"),
    ("stages", [], "0 stages are counted, the recipe has 3"),
    ("documents", {"read": 1}, "Object missing required field `copies` - at `$.documents`"),
    ("documents.kept", None, "Object missing required field `kept` - at `$.documents`"),
    ("documents.kept", -1, "Expected `int` >= 0 - at `$.documents.kept`"),
    ("recipe.output.formats", ["../x"], "Invalid enum value '../x' - at `$.recipe.output.formats[0]`"),
    ("recipe.output.splits", {"train": 2.0}, "the share of split train must be above 0"),
    ("tokens", {}, "Object missing required field `count`"),
    ("stage_files", [], "Expected `object`, got `array` - at `$.stage_files`"),
]  # fmt: skip


def forge(folder: Path, path: str, value: Any) -> None:
    """Sets an entry of the report, or deletes it (None), and makes its digest right."""
    content = json.loads((folder / "report.json").read_bytes())
    *parents, last = path.split(".")
    place = functools.reduce(lambda found, key: found[int(key) if isinstance(found, list) else key], parents, content)
    key = int(last) if isinstance(place, list) else last
    if value is None:
        del place[key]
    else:
        place[key] = value
    write_json(folder / "report.json", content | {"digest": report.digest(content)}, indent=True)


@pytest.mark.parametrize(("path", "value", "told"), FORGED)
def test_a_forged_report_is_one_message(
    copy: Path, path: str, value: Any, told: str, capsys: pytest.CaptureFixture[str]
):
    forge(copy, path, value)
    [problem] = verify(copy)
    assert problem.startswith("report.json is not what a run writes: ") and told in problem
    assert main(["verify", str(copy)]) == 1
    assert capsys.readouterr().out == f"problem: {problem}\n"
    (copy.parent / "a.jsonl").write_bytes(records_of(["one"]))
    with pytest.raises(IntegrityError, match=r"with a new --output or --force$") as error:
        run(recipe_of(copy.parent / "a.jsonl", stages=[]), copy, engine="cpu")
    assert problem in str(error.value)


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    """Every entry of a JSON value, as `forge` takes it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in pairs:
        if "." not in str(key):
            yield f"{path}{key}"
            yield from paths_of(entry, f"{path}{key}.")


FORGERIES = (None, 3, "x", -1, [], {}, [{}], {"x": "y"})


@pytest.mark.slow("no forged report entry ends in a traceback")
@pytest.mark.parametrize("shift", [0, 3])  # two of eight: 0.7 s each
def test_no_entry_of_a_report_ends_in_a_traceback(finished: Path, copy: Path, shift: int):
    whole = (finished / "report.json").read_bytes()
    content = json.loads(whole)
    told = 0
    paths = [path for path in paths_of(content) if not path.startswith(("digest", "outputs."))][bool(shift) :: 2]
    for number, path in enumerate(paths, shift):
        forge(copy, path, FORGERIES[number % len(FORGERIES)])
        told += verify(copy) != []
        with contextlib.suppress(OutputError, IntegrityError):
            forged = find_finished(copy)
            assert forged is not None
            check_same(copy, identity_in(forged), identity_in(content))
            rewrite_moved_paths(copy, json.loads((copy / "report.json").read_bytes()))
        (copy / "report.json").write_bytes(whole)
    assert told > 60


NOT_IN_REPORT = "has pairs without tokens, or of inputs or splits that are not in report.json"


@pytest.mark.parametrize(
    ("forged", "told"),
    [
        (lambda pair: 3, "is not what a run writes: Expected `array`, got `int` - at `$.pairs`"),
        (lambda pair: [{"source": "made"}], "is not what a run writes: Object missing required field `prefix`"),
        (lambda pair: [pair | {"source": "other"}], NOT_IN_REPORT),
        (lambda pair: [pair | {"split": "train"}], NOT_IN_REPORT),
        (lambda pair: [pair | {"tokens": 0}], NOT_IN_REPORT),
    ],
    ids=["no list", "no pair", "other input", "other split", "no tokens"],
)
def test_a_forged_manifest_of_a_moved_run(
    copy: Path, forged: Callable[[Any], Any], told: str, capsys: pytest.CaptureFixture[str]
):
    path = copy / "tokens" / "_meta" / "manifest.json"
    [pair] = json.loads(path.read_bytes())["pairs"]
    write_json(path, {"pairs": forged(pair)})
    assert rewritten(copy, lambda content: None) == []
    assert main(["verify", str(copy)]) == 1
    assert capsys.readouterr().err.startswith(f"curate: tokens/_meta/manifest.json {told}")


def test_a_forged_manifest_of_a_form(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(30)))
    output = {"formats": ["blocks"], "blocks": {"length": 4}, "splits": {"train": 0.5, "valid": 0.5}}
    run(recipe_of(tmp_path / "a.jsonl", stages=[], output=output), tmp_path / "out", engine="cpu")
    for manifest in (b"{}", b"[]", b'{"splits": {"train": {}}}', b"no"):
        (tmp_path / "out" / "blocks" / "manifest.json").write_bytes(manifest)
        [problem] = rewritten(tmp_path / "out", lambda content: None)
        assert problem.startswith(f"{tmp_path}/out/blocks/manifest.json is damaged: ")


def test_parts_without_what_a_run_writes(copy: Path):
    path = copy / "removed" / "part-00000.parquet"
    table = pq.read_table(path)
    doc = table.column("doc")
    for other, told in (
        (table.set_column(0, "doc", doc.cast(pa.string())), "it has no column 'doc' of type int64. "),
        (table.drop_columns("doc"), "it has no column 'doc' of type int64. "),
        (table.set_column(0, "doc", pa.array([None] * len(doc), pa.int64())), "it has rows without doc. "),
        (None, "Parquet file size is 4 bytes"),
    ):
        path.write_bytes(b"PAR1") if other is None else pq.write_table(other, path)
        problems = rewritten(copy, lambda content: None)
        assert problems and all(problem.startswith(f"{path} is damaged: {told}") for problem in problems), problems


# Runs whose files are all as the report says, and which still contradict themselves


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> list[str]:
    """Problems after a change of the report that keeps its digests right."""
    content = json.loads((folder / "report.json").read_bytes())
    change(content)
    content["outputs"] = {name: file_sha256(folder / name) for name in content["outputs"]}
    report.write_report(folder, content)
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
        report.write_report(copy, before)

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
    folder = copy / "documents"
    for number, path in reversed(list(enumerate(sorted(folder.iterdir())))):
        path.rename(folder / f"part-{99_999 + number:05d}.parquet")
    names = [f"documents/{path.name}" for path in folder.iterdir()]
    first, second, *_ = part_paths(copy, names, "documents")
    assert (first.name, second.name) == ("part-99999.parquet", "part-100000.parquet")

    def rename(content: dict[str, Any]) -> None:
        others = {name: digest for name, digest in content["outputs"].items() if not name.startswith("documents/")}
        content["outputs"] = others | {f"documents/{path.name}": "" for path in folder.iterdir()}

    assert rewritten(copy, rename) == []


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
    with pytest.raises(OutputError, match="does not exist"):
        verify(tmp_path / "none")
    assert main(["verify", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err
