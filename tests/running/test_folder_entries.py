# SPDX-License-Identifier: Apache-2.0
"""Links, pipes and files of a person among the entries of a run's folder: nothing is followed, replaced or deleted."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import OutputError
from curation.cli import main
from curation.record import folder as run_folder
from curation.results.finished.verify import verify
from curation.running import run as runner
from curation.running.run import run
from tests.runs import digests, made_texts, recipe_of, records_of

OUTPUT = {"index": True, "raw": "csv", "cleaned": "jsonl", "measures": True, "formats": ["megatron", "token_shards"]}
STAGES = [{"kind": "filter", "rules": [{"measure": "words", "min": 5}]}, {"kind": "fuzzy_dedup"}]
# Entries of every kind of place: of the folder itself and deeper, folders and files.
FINISHED = (
    "documents", "documents/part-00000.parquet", "removed", "measures", "tokens", "tokens/_meta",
    "tokens/_meta/manifest.json", "token_shards", "index", "raw", "cleaned", "rejected.jsonl", "README.md",
    "report.html", "report.json",
)  # fmt: skip
WORK = (
    "_work", "_work/plan.json", "_work/made-by-curate-run", "_work/segment-0", "_work/segment-0/000000.json",
    "_work/prepared-0", "_work/outputs", "_work/decision-1.json",
)  # fmt: skip
NEW = ("_work/collected", "_work/array", "_work/collected/made", "tokens/made_00000_text_document", "index_mapping")
PAGE = Path(__file__, "../../../docs/runs.md").resolve().read_text("utf-8")
LINK, DANGLING, PIPE = "link", "dangling link", "pipe"
WAYS: dict[str, dict[str, Any]] = {"run": {}, "--force": {"force": True}, "array task": {"array_task": "1/1"}}
if find_spec("distributed"):  # the cluster is not asked
    WAYS["cluster"] = {"scheduler": "tcp://127.0.0.1:9", "force": True}


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What is below a folder, without following links: kind, inode, time and content of every file."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        time = 0 if path.is_dir() else status.st_mtime_ns
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, time, data)
    return found


def replace(path: Path, kind: str, elsewhere: Path) -> None:
    """Put a link or a pipe in the place of an entry. A link leads to the entry, which has moved."""
    if path.exists():
        shutil.move(path, elsewhere)
    elif kind == LINK:
        elsewhere.mkdir()
        (elsewhere / "mine.txt").write_text("years of work")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == PIPE:
        os.mkfifo(path)
    else:
        path.symlink_to(elsewhere if kind == LINK else elsewhere.with_name("nothing"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An input, and below `states` a finished run, one that was killed before its report, and an empty folder."""
    place = tmp_path_factory.mktemp("place")
    (place / "made.jsonl").write_bytes(records_of(made_texts(30)) + b"not json\n")
    recipe = recipe_of(place / "made.jsonl", stages=STAGES, output=OUTPUT)
    run(recipe, place / "states" / "finished", engine="cpu", workers=1, progress=False)
    kill(place, place / "states" / "killed")
    (place / "states" / "new").mkdir()
    return place


def fail(*_: Any) -> None:
    raise OSError("killed here")


def kill(place: Path, out: Path) -> None:
    """Begin a run that dies when all outputs except the report are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "delete_work", fail)
        with pytest.raises(OSError, match="killed here"):
            go(place, out)
    (out / "_work" / "report.json").unlink()


def go(place: Path, folder: Path, **options: Any) -> runner.RunResult:
    recipe = recipe_of(place / "made.jsonl", stages=STAGES, output=OUTPUT)
    return run(recipe, folder, engine="cpu", workers=1, progress=False, **options)


ENTRIES = {"finished": (*FINISHED, "_work", *NEW), "killed": (*FINISHED, *WORK, *NEW), "new": (*FINISHED, *WORK)}
CASES = [(state, name, kind) for state in ENTRIES for name in ENTRIES[state] for kind in (LINK, DANGLING, PIPE)]
QUICK = (
    ("finished", "documents", LINK), ("finished", "tokens/_meta", LINK), ("finished", "report.json", PIPE),
    ("killed", "_work/segment-0", LINK), ("killed", "index", DANGLING), ("killed", "_work/collected", LINK),
    ("killed", "_work/plan.json", PIPE), ("new", "_work", LINK), ("new", "_work", DANGLING), ("new", "raw", PIPE),
)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "name", "kind"),
    [
        *QUICK,
        *(
            pytest.param(*case, marks=pytest.mark.slow("no run follows a link or a pipe in the place of any entry"))
            for case in CASES if case not in QUICK
        ),
    ],
)  # fmt: skip
def test_no_run_follows_links_or_pipes_below_its_folder(
    place: Path, tmp_path: Path, state: str, name: str, kind: str, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "out"
    shutil.copytree(place / "states" / state, out)
    replace(out / name, kind, tmp_path / "elsewhere")
    before = snapshot(tmp_path)
    for way, options in WAYS.items():
        with pytest.raises(OutputError) as caught:
            go(place, out, **options)
        shown = "/data/out/report.json is a pipe or a device" if kind == PIPE else "/data/out/_work is a link"
        assert f"`{str(caught.value).replace(str(out / name), shown.split()[0])}`" in PAGE, way
        assert f"`{shown}, " in PAGE
        after = snapshot(tmp_path)
        assert before.items() <= after.items(), way
        new = after.keys() - before.keys()  # an array writes its lease before it looks into all folders
        assert not [path for path in new if not path.startswith("out/_work")], way
    if state == "finished":
        assert main(["verify", str(out)]) in (1, 2)
        assert f"{name.split('/')[0] if '_work' in name else name} is " in "".join(capsys.readouterr())


def test_a_moved_run_is_not_rewritten_through_a_link(place: Path, tmp_path: Path):
    """A run whose outputs lie on another disk is still read, and never written."""
    out = tmp_path / "moved"
    shutil.copytree(place / "states" / "finished", out)
    for name in ("documents", "tokens"):
        replace(out / name, LINK, tmp_path / name)
    before = snapshot(tmp_path)
    assert main(["show", str(out), "--what", "kept", "--quiet"]) in (0, 2)
    with pytest.raises(OutputError, match=f"{out}/(documents|tokens) is a link"):
        go(place, out)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["run", "run/_work"])
def test_a_run_for_an_object_store_follows_no_link_in_its_work_folder(place: Path, tmp_path: Path, name: str):
    replace(tmp_path / "work" / name, LINK, tmp_path / "elsewhere")
    before = snapshot(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match=f"{tmp_path / 'work' / name} is a link, .* a --work"):
        run(recipe_of(place / "made.jsonl"), f"memory://bucket/{name}", work=tmp_path / "work", progress=False)
    assert snapshot(tmp_path / "elsewhere") == before


# Files of a person


PERSONS = (
    "_work/notes/thesis.txt", "_work/plan.json", "_work", "documents/thesis.txt", "removed/a.parquet", "raw/scan.tiff",
    "tokens/x.bin", "index/a.html", "scores/a.csv", "report.html", "report.json", "README.md", "thesis.txt",
    "documents.x.tmp",
)  # fmt: skip


@pytest.mark.parametrize("name", [*PERSONS, "array and documents/thesis.txt"])
def test_files_of_a_person_are_refused_whatever_their_names(place: Path, tmp_path: Path, name: str):
    if name.startswith("array and "):  # left by an array that was killed at once
        name = name.removeprefix("array and ")
        (tmp_path / "out" / "_work" / "array").mkdir(parents=True)
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"planned_values": {}}')
    before = snapshot(tmp_path)
    top = name.split("/")[0]
    for way, options in WAYS.items():
        with pytest.raises(OutputError) as caught:
            go(place, tmp_path / "out", **options)
        message = str(caught.value)
        assert f"out is not empty (it has {top}" in message and message.endswith("; give a new --output"), way
        assert snapshot(tmp_path) == before, way


def test_files_of_a_person_in_the_folder_of_a_finished_run(place: Path, tmp_path: Path):
    """`--force` deletes the files that the report names, what trainers add to them, and nothing else."""
    out = tmp_path / "out"
    shutil.copytree(place / "states" / "finished", out)
    for name in ("tokens/made_00000_text_document/cache/a.npy", "index_mapping/b.npy"):
        (out / name).parent.mkdir(parents=True)
        (out / name).touch()
    for name in ("documents/mine.txt", "scores/mine.csv", "_work/mine.txt"):
        path = out / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("years of work")
        before = snapshot(tmp_path)
        with pytest.raises(OutputError, match=rf"is not empty \(it has {name.replace('_work/mine.txt', '_work')}"):
            go(place, out, force=True)
        assert snapshot(tmp_path) == before
        assert go(place, out).already_complete and path.exists()
        assert verify(out) == [f"{'_work' if '_work' in name else name} is not part of the run"]
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    assert not go(place, out, force=True).already_complete and verify(out) == []
    assert not (out / "index_mapping").exists()


# What interrupted deletions leave


def dying(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die after so many deletions of entries of the folder."""
    real, left = run_folder.remove, iter(range(after))

    def remove(path: Path) -> None:
        if next(left, None) is None:
            fail()
        real(path)

    for name in ("remove", "delete"):
        monkeypatch.setattr(run_folder, name, remove)


SLOW = [("finished", 0), ("finished", 8), ("killed", 1), ("killed", 8)]


@pytest.mark.parametrize(
    ("state", "after"),
    [
        ("finished", 1),
        ("killed", 3),
        *(pytest.param(*case, marks=pytest.mark.slow("a killed --force is repeated")) for case in SLOW),
    ],
)
def test_a_force_that_is_killed_can_be_repeated(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, after: int
):
    out = tmp_path / "out"
    shutil.copytree(place / "states" / state, out)
    with monkeypatch.context() as patch:
        dying(after, patch)
        with pytest.raises(OSError, match="killed here"):
            go(place, out, force=True)
    if after:
        with pytest.raises(OutputError, match=r"is not empty \(it has .*; give a new --output, or --force$"):
            go(place, out)
    go(place, out, force=True)
    assert verify(out) == [] and not (out / "_work").exists()


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_work_folder_whose_deletion_was_killed_is_deleted(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_mark: bool
):
    """Without a mark it is that of an earlier version, whose plan tells it."""
    out = tmp_path / "out"
    kill(place, out)
    with monkeypatch.context() as patch:
        dying(2, patch)
        with pytest.raises(OSError, match="killed here"):
            go(place, out)
    assert (out / "report.json").exists() and (out / "_work").exists() and verify(out) == []
    if not has_mark:
        (out / "_work" / "made-by-curate-run").unlink()
    assert go(place, out).already_complete and not (out / "_work").exists()


@pytest.mark.parametrize(
    "left", ["", "collected/made/source.json", "array/driver.0", "plan.json.host-1-2.tmp", "killed"]
)
def test_a_run_without_a_mark_resumes(place: Path, tmp_path: Path, left: str):
    """What versions up to 0.3 leave, and what a kill before the mark leaves."""
    out = tmp_path / "out"
    if left == "killed":
        kill(place, out)
        (out / "_work" / "made-by-curate-run").unlink()
    else:
        (out / "_work" / left).parent.mkdir(parents=True)
        (out / "_work").mkdir(exist_ok=True)
        if left:
            (out / "_work" / left).touch()
    go(place, out)
    assert digests(out) == digests(place / "states" / "finished") and not (out / "_work").exists()


def test_temporary_files_of_a_person_are_not_swept(place: Path, tmp_path: Path):
    out = tmp_path / "out"
    kill(place, out)
    mine = ["notes.tmp", "other/documents/a.arrow.host-1-2.tmp", "x.host-1-2.tmp"]
    for name in [*mine, "documents/part-00000.parquet.host-1-2.tmp", "report.html.host-1-2.tmp"]:
        (out / name).parent.mkdir(exist_ok=True, parents=True)
        (out / name).write_text("work")
    go(place, out)
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.tmp")) == sorted(mine)
