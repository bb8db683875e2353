# SPDX-License-Identifier: Apache-2.0
"""Finished runs copied to an object store: fsspec's store in memory, with the conditions and the errors of S3."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import curation
from curation.base.errors import IntegrityError, OutputError
from curation.base.system.progress import Progress
from curation.cli import main
from curation.results.finished import object_store
from curation.results.report.report import digest
from curation.running.run import run
from tests.needs import needs
from tests.runs import made_texts, recipe_of, records_of

URL = "memory://bucket/first"
ROOT = "/bucket/first"


class Noting(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


class StoreError(OSError):
    """An error with the answer of a store, as botocore keeps it."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(f"An error occurred ({code}) for key KEY-S3CRET")
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """An empty store; the current folder has an input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(object_store, "FIRST_WAIT_SECONDS", 0.0)
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(60)))
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def run_to(url: str = URL, seed: int = 0, output: Any = None, **more: Any) -> curation.RunResult:
    recipe = recipe_of(Path("a.jsonl"), name="mine", seed=seed, output=output or {})
    return run(recipe, url, engine="cpu", workers=1, scheduler="threads", **more)


def fail(monkeypatch: pytest.MonkeyPatch, method: str, errors: Callable[[str, int], Exception | None]) -> list[str]:
    """Let a method of the store raise what `errors` returns for a path and the number of the call; return the paths."""
    original, calls = getattr(MemoryFileSystem, method), list[str]()

    def call(self: MemoryFileSystem, *args: Any, **more: Any) -> Any:
        calls.append(path := str(args[1] if method == "put_file" else args[0]))
        if error := errors(path, len(calls)):
            raise error
        return original(self, *args, **more)

    monkeypatch.setattr(MemoryFileSystem, method, call)
    return calls


def test_a_finished_run_is_copied_and_its_report_is_last(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    written, shown = fail(monkeypatch, "put_file", lambda *_: None), Noting()
    finished = run_to(progress=shown)
    folder = finished.folder
    assert finished.address == URL and not finished.already_complete
    assert shown.lines[0] == f"work folder: {folder.parent}; the finished run is copied to {URL}"
    assert folder.parent.parent == Path.cwd() and folder.name == "run"
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    copied = {path.removeprefix(f"{ROOT}/"): store.cat(path) for path in store.find(ROOT)}
    claim = json.loads(copied.pop("copy.json"))
    assert copied == files and claim["recipe"] == "mine"
    assert written[-1].endswith("/report.json") and len(written) == len(files)
    assert curation.verify(URL) == [] == curation.verify(folder)

    again = run_to(progress=Noting())
    assert again.already_complete and again.report == finished.report and len(written) == len(files)


def test_an_interrupted_copy_resumes_and_writes_no_object_twice(
    store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as cut:
        monkeypatch.setattr("curation.results.finished.object_copy.FILES_AT_ONCE", 1)
        fail(cut, "put_file", lambda path, number: KeyboardInterrupt() if number >= 4 else None)
        with pytest.raises(KeyboardInterrupt):
            run_to()
    there = {path: store.created(path) for path in store.find(ROOT)}
    assert len(there) == 4  # with the claim
    with pytest.raises(OutputError, match=rf"{URL} holds no finished run: the copy of a run has not ended. Rerun"):
        curation.verify(URL)
    finished = run_to()
    assert curation.verify(URL) == [] and not finished.already_complete
    assert {path: store.created(path) for path in there} == there


def test_requests_are_repeated_after_errors_that_pass(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    """Each request fails four times: with 500, a slow-down, a cut connection and a conflict of two writes."""
    faults = [
        StoreError("InternalError", 500),
        StoreError("SlowDown", 503),
        ConnectionResetError(),
        StoreError("", 409),
    ]
    seen = Counter[str]()

    def answer(path: str, number: int) -> Exception | None:
        seen[path] += 1
        return faults[seen[path] % 5 - 1] if seen[path] % 5 else None

    with monkeypatch.context() as faulty:
        written = fail(faulty, "put_file", answer)
        run_to()
    assert len(written) == 5 * (len(store.find(ROOT)) - 1)
    seen.clear()
    fail(monkeypatch, "cat_file", answer)
    assert curation.verify(URL) == []


def test_a_lost_answer_to_a_put_counts_as_written(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    original = MemoryFileSystem.put_file

    def put(self: MemoryFileSystem, local: str, path: str, **more: Any) -> None:
        original(self, local, path, **more)
        raise StoreError("PreconditionFailed", 412) if "report" in path else TimeoutError

    monkeypatch.setattr(MemoryFileSystem, "put_file", put)
    run_to()
    assert curation.verify(URL) == []


@pytest.mark.parametrize("ends", [True, False])
def test_a_second_run_to_the_same_prefix_is_refused_before_it_reads(
    store: MemoryFileSystem, ends: bool, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as cut:
        if not ends:
            fail(cut, "put_file", lambda path, number: KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt) if not ends else monkeypatch.context():
            run_to()
    before = dict(store.store)
    message = (
        rf"{URL} holds the run of recipe 'mine' in the work folder {Path.cwd()}/first-\w+\.work on .*\. Give another"
    )
    with pytest.raises(OutputError, match=message):
        run_to(work="other", seed=int(ends))  # the same run would be complete
    assert store.store == before and not Path("other/run").exists()


def test_an_object_that_another_run_writes_meanwhile_is_found(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    fail(monkeypatch, "put_file", lambda path, number: store.pipe_file(path, b"other") if "rejected" in path else None)
    with pytest.raises(OutputError, match=rf"{URL}/rejected\.jsonl has other bytes than .*Delete the object"):
        run_to()
    assert not store.exists(f"{ROOT}/report.json")


def test_a_changed_output_of_the_work_folder_is_not_copied(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as cut:
        fail(cut, "put_file", lambda path, number: KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_to(work="work")
    Path("work/run/rejected.jsonl").write_bytes(b"\n")
    with pytest.raises(
        IntegrityError, match=r"rejected\.jsonl has changed: its SHA-256 is not the one in report\.json"
    ):
        run_to(work="work")
    assert not store.exists(f"{ROOT}/report.json")


DAMAGES: dict[str, tuple[Callable[[MemoryFileSystem], None], str]] = {
    "changed": (lambda s: s.pipe_file(f"{ROOT}/rejected.jsonl", b"x"), "rejected.jsonl has changed: its SHA-256"),
    "missing": (lambda s: s.rm(f"{ROOT}/rejected.jsonl"), "rejected.jsonl is missing"),
    "foreign": (lambda s: s.pipe_file(f"{ROOT}/tokens/x.bin", b"x"), "tokens/x.bin is not part of the run"),
    "report": (
        lambda s: s.pipe_file(f"{ROOT}/report.json", s.cat(f"{ROOT}/report.json").replace(b'"cpu"', b'"gpu"')),
        "report.json has changed: its content does not match its digest",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_verify_names_damaged_objects(store: MemoryFileSystem, damage: str, capsys: pytest.CaptureFixture[str]):
    run_to()
    change, message = DAMAGES[damage]
    change(store)
    [problem] = curation.verify(URL)
    assert problem.startswith(message)
    assert main(["verify", URL]) == 1 and message in capsys.readouterr().out


ANSWERS = {
    "no permission": (
        "pipe_file",
        StoreError("AccessDenied", 403),
        " may not be written (AccessDenied). ",
    ),
    "read only": ("pipe_file", StoreError("MethodNotAllowed", 405), " may not be written (MethodNotAllowed)"),
    "no list": ("find", StoreError("AccessDenied", 403), " may not be listed (AccessDenied). Allow s3:ListBucket"),
    "no bucket": ("pipe_file", FileNotFoundError("x"), ": its bucket does not exist. Create it, or correct"),
    "clock": ("pipe_file", StoreError("RequestTimeTooSkewed", 403), ": the clock of this machine differs"),
    "wrong key": ("pipe_file", StoreError("InvalidAccessKeyId", 403), ": the store does not accept the credentials ("),
    "no condition": ("pipe_file", StoreError("NotImplemented", 501), ": the store has no conditional writes (Not"),
    "long outage": ("pipe_file", StoreError("SlowDown", 503), ": SlowDown in 6 tries. Check the network"),
    "other": ("pipe_file", StoreError("KeyTooLongError", 400), " cannot be written: An error occurred (KeyT"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_each_refusal_of_a_store_is_one_message_before_anything_is_read(
    store: MemoryFileSystem, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    method, error, message = ANSWERS[answer]
    fail(monkeypatch, method, lambda path, number: error)
    assert main(["run", "-i", "a.jsonl", "-o", URL, "--work", "w", "--stages", "exact_dedup", "--engine", "cpu"]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("curate: ")]
    assert line.startswith(f"curate: {URL}") and message in line
    assert not Path("w/run").exists()


@pytest.mark.parametrize("damaged", ["[]", '{"work": 5}', "{"])
def test_a_damaged_number_of_a_claim_is_one_message(store: MemoryFileSystem, tmp_path: Path, damaged: str):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "copy.json").write_text(damaged)
    with pytest.raises(IntegrityError, match=r"work/copy\.json is damaged: "):
        run_to(work=str(tmp_path / "work"))


def test_a_prefix_with_other_objects_is_refused(store: MemoryFileSystem):
    store.pipe_file(f"{ROOT}/mine.txt", b"x")
    with pytest.raises(OutputError, match=rf"{URL} is not empty: it has 'mine\.txt'\. .* another prefix"):
        run_to()
    assert store.cat(f"{ROOT}/mine.txt") == b"x"


def test_a_store_that_ignores_conditions_is_refused(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    original = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda s, path, data, mode: original(s, path, data))
    with pytest.raises(OutputError, match=rf"{URL}: the store replaces objects despite If-None-Match, so two runs"):
        run_to()
    assert not store.store  # the object that tested it is deleted


def test_an_object_that_tests_the_condition_may_remain(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    """Credentials that may write need not be allowed to delete."""
    with monkeypatch.context() as denied:
        fail(denied, "rm_file", lambda *_: StoreError("AccessDenied", 403))
        run_to()
    assert any("/condition-probe-" in path for path in store.store)
    assert curation.verify(URL) == [] and run_to().already_complete


VERSIONS_OF_S3FS = {
    "0.4.2": r"^s3://bucket/first: s3fs 0\.4\.2 sends no condition with a write.*pip install 'gpu-pipeline\[s3\]'",
    "2024.10.0": r"s3fs 2024\.10\.0 sends no condition",
}


@pytest.mark.parametrize("version", VERSIONS_OF_S3FS)
def test_an_s3fs_that_sends_no_condition_is_refused(
    store: MemoryFileSystem, version: str, monkeypatch: pytest.MonkeyPatch
):
    needs("s3fs")
    monkeypatch.setattr("fsspec.url_to_fs", lambda *_, **__: pytest.fail("it asks the library"))
    monkeypatch.setattr(object_store, "package_version", lambda name: version)
    with pytest.raises(OutputError, match=VERSIONS_OF_S3FS[version]):
        run_to("s3://bucket/first")
    assert not store.store


ARGUMENTS = {
    "force": ({"force": True}, r"--force deletes no objects: give another prefix than memory://"),
    "array": (
        {"array_task": "1/2"},
        r"array tasks share a folder, not memory://bucket/first\. Give them --output W",
    ),
    "work": ({"url": "out", "work": "w"}, r"a work folder \(w\) needs an output such as s3://BUCKET/PREFIX, not out"),
    "bucket": ({"url": "s3://"}, r"s3:// names no bucket\. Give an output such as s3://BUCKET/PREFIX"),
    "remote work": ({"work": "s3://b/w"}, r"the output is a URL \(s3://\), expected a local path"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_wrong_arguments_of_copies_are_refused(store: MemoryFileSystem, case: str):
    arguments, message = ARGUMENTS[case]
    with pytest.raises(OutputError, match=message):
        run_to(**arguments)  # type: ignore[arg-type]
    assert os.listdir() == ["a.jsonl"] and not store.find("/")


@pytest.mark.parametrize(("lost", "work"), [("w/run", "w"), ("w", "w"), ("w", "other")])
def test_a_finished_copy_is_complete_without_its_work_folder(
    store: MemoryFileSystem, lost: str, work: str, capsys: pytest.CaptureFixture[str]
):
    finished = run_to(work="w")
    shutil.rmtree(lost)
    before, shown = dict(store.store), Noting()
    again = run_to(work=work, progress=shown)
    assert again.already_complete and again.report == finished.report and again.address == URL
    assert shown.lines[-1] == f"{URL} has the finished run, and {again.folder} has none: nothing is written"
    assert store.store == before and not Path(work, "run").exists()
    refused = (
        rf"{URL} belongs .*changed: seed\. Give another prefix$|holds the run .*--work with the folder of that run"
    )
    with pytest.raises(OutputError, match=refused):
        run_to(work=work, seed=1)
    assert store.store == before


INCOMPLETE: dict[str, tuple[Callable[[MemoryFileSystem], None], str]] = {
    "missing": (DAMAGES["missing"][0], rf"^missing from the finished run in {URL}: 'rejected\.jsonl'\. `curate verify"),
    "report": (
        DAMAGES["report"][0],
        rf"^{URL}/report\.json is not the report that a run wrote\. `curate verify {URL}` names",
    ),
    "no report": (lambda s: s.pipe_file(f"{ROOT}/report.json", b"[]"), "is not the report that a run wrote"),
}


@pytest.mark.parametrize("damage", INCOMPLETE)
def test_a_damaged_copy_is_not_complete_without_its_work_folder(store: MemoryFileSystem, damage: str):
    run_to(work="w")
    shutil.rmtree("w")
    change, message = INCOMPLETE[damage]
    change(store)
    with pytest.raises(OutputError, match=message):
        run_to(work="w")
    assert not Path("w/run").exists()


class Killed(BaseException):
    """What no code of the project catches."""


@pytest.mark.parametrize(
    "after",
    [False, pytest.param(True, marks=pytest.mark.slow("the copy of a lost work folder resumes after each object"))],
    ids=["before the object", "after the object"],
)
def test_the_same_run_continues_the_copy_of_work_folders_that_are_lost(
    store: MemoryFileSystem, after: bool, monkeypatch: pytest.MonkeyPatch
):
    """Each attempt is killed at an object that no earlier one has reached, and its work folder is deleted."""
    monkeypatch.setattr("curation.results.finished.object_copy.FILES_AT_ONCE", 1)
    original, reached, attempts, killed = MemoryFileSystem.put_file, list[str](), 0, False

    def put(self: MemoryFileSystem, local: str, path: str, **more: Any) -> None:
        nonlocal killed
        if killed:  # a queued file that a thread takes before the pool ends
            raise Killed
        if path in reached:
            return original(self, local, path, **more)
        reached.append(path)
        killed = True
        if after:
            original(self, local, path, **more)
        raise Killed

    monkeypatch.setattr(MemoryFileSystem, "put_file", put)
    shown, few = Noting(), {"formats": []}
    while True:
        attempts, killed = attempts + 1, False
        try:
            finished = run_to(work="lost", progress=shown, output=few)
            break
        except Killed:
            if reached[-1].endswith("/report.json") and after:
                break
            there = {path: store.created(path) for path in store.find(ROOT)}
            assert f"{ROOT}/report.json" not in there
            shutil.rmtree("lost")
    assert attempts > 3 and len(reached) == len(store.find(ROOT)) - 1  # all but the claim
    assert {path: store.created(path) for path in there} == there
    assert curation.verify(URL) == [] == curation.verify("lost/run")
    assert store.cat(f"{ROOT}/report.json") == Path("lost/run/report.json").read_bytes()
    assert f"{URL} has a part of this run, copied from {Path.cwd()}/lost on " in "".join(shown.lines)
    if not after:
        assert finished.report == json.loads(Path("lost/run/report.json").read_bytes())
        assert run_to(work="lost", output=few).already_complete


def cut_copy(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """Copy all but the report, and lose the work folder."""
    with monkeypatch.context() as cut:
        fail(cut, "put_file", lambda path, number: KeyboardInterrupt() if "report.json" in path else None)
        with pytest.raises(KeyboardInterrupt):
            run_to(work=work)
    shutil.rmtree(work)


def test_another_run_does_not_continue_a_copy(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    cut_copy(monkeypatch, "lost")
    before = dict(store.store)
    path = re.escape(f"{Path.cwd()}/lost")
    with pytest.raises(OutputError, match=rf"{URL} holds the run .*, or --work {path}: it is the same run, so it"):
        run_to(work="elsewhere")
    time = Path("a.jsonl").stat().st_mtime_ns + 1
    os.utime("a.jsonl", ns=(time, time))
    with pytest.raises(OutputError, match=rf"{URL} holds the run .* in the work folder {path} .*with the folder of"):
        run_to(work="lost")
    assert store.store == before and not Path("lost/run").exists()


@pytest.mark.parametrize("case", ["equal", "other outputs", "changed"])
def test_a_copy_that_another_process_finishes_first_is_complete_if_its_outputs_are_equal(
    store: MemoryFileSystem, case: str, monkeypatch: pytest.MonkeyPatch
):
    run_to(work="lost")
    first = store.cat(f"{ROOT}/report.json")
    if case == "other outputs":
        content = json.loads(first)
        content["outputs"]["rejected.jsonl"] = "0" * 64
        first = json.dumps(content | {"digest": digest(content)}).encode()
    elif case == "changed":
        first = first.replace(b'"cpu"', b'"gpu"')
    store.rm(f"{ROOT}/report.json")
    shutil.rmtree("lost")
    put = MemoryFileSystem.put_file

    def meanwhile(self: MemoryFileSystem, local: str, path: str, **more: Any) -> None:
        if path.endswith("/report.json"):
            self.pipe_file(path, first)
        put(self, local, path, **more)

    monkeypatch.setattr(MemoryFileSystem, "put_file", meanwhile)
    if case == "equal":
        run_to(work="lost")
        assert curation.verify(URL) == []
    else:
        with pytest.raises(OutputError, match=rf"{URL} holds a finished run, and .*/lost/run holds another one"):
            run_to(work="lost")
    assert store.cat(f"{ROOT}/report.json") == first


def test_an_object_that_is_not_part_of_the_run_ends_the_copy(store: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as cut:
        fail(cut, "put_file", lambda path, number: KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            run_to()
    store.pipe_file(f"{ROOT}/tokens/x.bin", b"x")
    with pytest.raises(OutputError, match=rf"{URL} has objects that are not part of the run: 'tokens/x\.bin'\. Delete"):
        run_to()
