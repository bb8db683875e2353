# SPDX-License-Identifier: Apache-2.0
"""`curate push` against a hub on this machine: what arrives there, what a second push sends, and each message."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from curation.cli import main
from curation.finished import hub_push
from curation.finished.verify import verify
from curation.recipes.recipe import convert_recipe
from curation.report.card import PUSHED_BEGINS
from curation.running.run import run
from tests.needs import needs
from tests.packing.samples import make_texts, write_jsonl
from tests.pipelines.fake_hub import Hub, serve

datasets = needs("datasets")
from huggingface_hub import constants
from huggingface_hub.utils import _http

# The library sends files by an argument of its HTTP client that is deprecated there.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
SECRET = "hf_written"
Push = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with splits, removed documents, and two forms of its tokens."""
    folder = tmp_path_factory.mktemp("push")
    path = write_jsonl(folder / "news.jsonl", make_texts(60) * 2)
    output = {"formats": ["megatron", "mds"], "mds": {"length": 64}, "splits": {"train": 0.7, "valid": 0.3}}
    recipe = {"input": [{"path": str(path)}], "stages": [{"kind": "exact_dedup"}], "output": output}
    run(convert_recipe(recipe), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serve() as running:
        yield running


@pytest.fixture
def hub(server: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    """A hub without the data set, and the library of a user who has a token for it."""
    server.private, server.refuse, server.branches, server.received = None, [], {}, {}
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + template)
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its storage is not imitated here
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(_http.time, "sleep", lambda _: None)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    return server


@pytest.fixture
def push(capsys: pytest.CaptureFixture[str]) -> Push:
    def push(folder: Path | str, *options: str) -> tuple[int, str, str]:
        """The exit code, and what the command says on both streams, in which no token ever is."""
        repo = () if "/" in "".join(options[:1]) else ("o/n",)
        code = main(["push", str(folder), *repo, *options, "--log", "text"])
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        return code, out, err

    return push


def files_in(folder: Path, start: str) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {name: data for name, data in found.items() if name.startswith(start)}


def loaded(files: dict[str, bytes], folder: Path, *config: str) -> int:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    builder = datasets.load_dataset_builder(str(folder), *config, cache_dir=str(folder / "cache"))
    return sum(1 for _ in builder.as_streaming_dataset(split=config[0]))


def test_documents_arrive_with_a_card_of_their_own(made: Path, hub: Hub, push: Push, tmp_path: Path) -> None:
    code, out, err = push(made)
    there = hub.commits[hub.main]
    assert (code, hub.private) == (0, True), err
    assert {name: data for name, data in there.items() if name != "README.md"} == files_in(made, "documents/")
    card = there["README.md"].decode()
    assert card.startswith(PUSHED_BEGINS) and 'load_dataset("o/n", split="train")' in card
    assert "hf://datasets/o/n/documents/*.parquet" in card
    assert not [word for word in ("removed/", "report.html", "DIR", str(made)) if word in card]
    assert loaded(there, tmp_path / "there", "valid") > 0
    assert f"{hub.endpoint}/datasets/o/n (private), commit {hub.main[:8]}" in out
    assert "Traceback" not in err and "warning" not in err


@pytest.mark.parametrize("has_xet", [False, True])
def test_a_second_push_sends_nothing(
    made: Path, hub: Hub, push: Push, has_xet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_xet:  # the other way of the library; no file is large enough for the storage
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
        monkeypatch.setattr(hub, "large", ("?",))
    push(made)
    received, commits = dict(hub.received), len(hub.commits)
    assert commits > 1
    code, out, _ = push(made)
    assert (code, len(hub.commits), hub.received) == (0, commits, received)
    assert "nothing new: all files were there" in out


def test_all_files_arrive_and_verify_there(made: Path, hub: Hub, push: Push, tmp_path: Path) -> None:
    assert push(made, "--what", "all")[0] == 0
    loaded(hub.commits[hub.main], tmp_path / "there", "train")
    shutil.rmtree(tmp_path / "there/cache")
    assert verify(tmp_path / "there") == []


def test_tokens_arrive_at_a_branch(made: Path, hub: Hub, push: Push) -> None:
    assert push(made, "--what", "tokens", "--revision", "ids", "--public")[0] == 0
    there = hub.commits[hub.branches["ids"]]
    assert {name for name in there if name != "README.md"} == {*files_in(made, "tokens/"), *files_in(made, "mds/")}
    assert "configs" not in there["README.md"].decode() and "Load" not in there["README.md"].decode()
    assert (hub.main, hub.private) == ("c" * 40, False)


def test_files_of_another_run_are_deleted_and_others_kept(made: Path, hub: Hub, push: Push) -> None:
    hub.create("private")
    hub.commits[hub.main] = {"documents/part-99999.parquet": b"old", "notes.txt": b"mine", "README.md": b"# Mine"}
    code, _, err = push(made)
    there = hub.commits[hub.main]
    assert code == 0 and "documents/part-99999.parquet" not in there
    assert (there["notes.txt"], there["README.md"]) == (b"mine", b"# Mine")
    assert "warning: README.md of o/n was left as it is" in err
    assert "left as it is" in push(made)[2]  # it stays


def test_a_dry_run_asks_nothing_of_the_hub(made: Path, hub: Hub, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.refuse = [("", 500)]
    monkeypatch.delenv("HF_TOKEN")
    code, out, _ = push(made, "--dry-run")
    assert code == 0 and hub.private is None
    lines = [line.split() for line in out.splitlines()]
    assert [line[:2] for line in lines[1:4]] == [["documents/", "1"], ["README.md", "1"], ["in", "all"]]
    assert "nothing was sent to o/n (--dry-run)" in out


def test_the_result_for_programs(made: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", str(made), "o/n", "--log", "json"]) == 0
    out, err = capsys.readouterr()
    [result] = map(json.loads, out.splitlines())
    assert [json.loads(line)["event"] for line in err.splitlines()].count("error") == 0
    sizes = sum(map(len, hub.commits[hub.main].values()))
    expected = {"repo": "o/n", "what": "documents", "revision": "main", "files": 2, "bytes": sizes, "sent": True}
    expected |= {"url": f"{hub.endpoint}/datasets/o/n", "commit": hub.main, "private": True, "folder": str(made)}
    assert expected.items() <= result.items()


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        ([("repos/create", 403)], "the token may not write to o/n (403). Give a data set of your own"),
        ([("preupload", 403)], "the token may not write to o/n (403). Give a data set of your own"),
        ([("repos/create", 401)], "refuses the token (401). Log in with `hf auth login`, or set HF_TOKEN to one that"),
        ([("/commit/", 500)], "answers 500, an error on its side. Rerun the same command later"),
        ([("repos/create", 0)], "cannot be reached (RemoteProtocolError: "),
        ([("objects/batch", 0)], "cannot be reached (RemoteProtocolError: "),
    ],
    ids=str,
)
def test_what_the_hub_refuses(made: Path, hub: Hub, push: Push, refuse: list[tuple[str, int]], message: str) -> None:
    hub.refuse = refuse
    code, _, err = push(made)
    [told] = [line for line in err.splitlines() if line.startswith("curate: ")]
    assert (code, message in told, "Traceback" in err) == (2, True, False), err


def test_what_is_refused_before_the_hub_is_asked(
    made: Path, hub: Hub, push: Push, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.refuse = [("", 0)]
    for name in ("unfinished", "damaged", "empty"):
        shutil.copytree(made, tmp_path / name)
    (tmp_path / "unfinished/report.json").rename(tmp_path / "unfinished/plan")
    (tmp_path / "unfinished/_work").mkdir()
    (tmp_path / "unfinished/plan").rename(tmp_path / "unfinished/_work/plan.json")
    (tmp_path / "damaged/mds/train/index.json").write_bytes(b"{}")
    (tmp_path / "none").mkdir()
    for folder, options, code, message in (
        (tmp_path / "none", (), 2, "holds no finished run (no report.json). Give the --output of a run"),
        (tmp_path / "unfinished", (), 2, "its run has not finished. Rerun the command that made it"),
        (tmp_path / "damaged", (), 1, "mds/train/index.json has changed: its SHA-256 is not the one in report.json. "),
        (made, ("a b/c",), 2, "'a b/c' is no name of a data set, expected OWNER/NAME"),
        (made, ("https://user:word@host/o/n?key=1",), 2, "'https://host/o/n' is no name of a data set"),
        ("s3://key:word@bucket/run", (), 2, "s3://bucket/run is a URL. Give a local folder"),
    ):
        found, _, err = push(folder, *options)
        assert (found, message in err, "word" in err) == (code, True, False), err
    monkeypatch.delenv("HF_TOKEN")
    code, _, err = push(made)
    assert (code, "push needs a token of the hub with write access, and found none. Log in with" in err) == (2, True)


def test_a_public_data_set_is_refused_without_the_option(made: Path, hub: Hub, push: Push) -> None:
    hub.create("public")
    code, _, err = push(made)
    assert (code, len(hub.commits)) == (2, 1)
    assert "o/n is public: everyone could read the documents. Give --public to send them" in err
    assert push(made, "--public")[0] == 0


def test_a_run_without_documents_names_what_it_has(tmp_path: Path, push: Push) -> None:
    path = write_jsonl(tmp_path / "news.jsonl", make_texts(5))
    output = {"formats": ["megatron"], "documents": False}
    run(convert_recipe({"input": [{"path": str(path)}], "stages": [], "output": output}), tmp_path / "out")
    code, _, err = push(tmp_path / "out")
    assert (code, "has no documents: its recipe does not write them. Give --what tokens" in err) == (2, True)
    assert push(tmp_path / "out", "--what", "tokens", "--dry-run")[0] == 0


def test_without_the_library_it_says_what_to_install(made: Path, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    assert f"Run: {hub_push.INSTALL}" in push(made)[2]
