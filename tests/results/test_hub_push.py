# SPDX-License-Identifier: Apache-2.0
"""`curate push` against a hub on this machine: what arrives there, what a second push sends, and each message."""

import json
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import OutputError, installation
from curation.cli import main
from curation.recipes.recipe import convert_recipe
from curation.results.finished import hub_client, hub_push, request_limits
from curation.results.finished.verify import verify
from curation.results.report.card import PUSHED_BEGINS
from curation.running.run import run
from tests.needs import needs
from tests.pipelines.fake_hub import Hub, serve
from tests.results import stalling_server
from tests.results.stalling_server import STALLS
from tests.tokens.samples import make_texts, write_jsonl

datasets = needs("datasets")
import huggingface_hub
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
def hub(server: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub without the data set, and the library of a user who has a token for it."""
    server.private, server.refuse, server.branches, server.received, server.storage = None, [], {}, {}, ""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.endpoint + template)
    monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its storage is not imitated here
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(_http.time, "sleep", lambda _: None)
    monkeypatch.setattr(_http, "_GLOBAL_CLIENT_FACTORY", _http._GLOBAL_CLIENT_FACTORY)  # which a push replaces
    monkeypatch.setenv("HF_TOKEN", SECRET)
    _http.close_session()
    yield server
    _http.close_session()


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


def client_library() -> Any:
    """httpx, or the fork of it that the installed version uses."""
    return sys.modules[type(huggingface_hub.get_session()).__module__.partition(".")[0]]


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
        ([("/received", 0)], "cannot be reached (RemoteProtocolError: "),
        ([("/received", 500)], "answers 500, an error on its side. Rerun the same command later"),
        ([("/received", 400)], "refuses the push to o/n: "),
        ([("preupload", 404)], "refuses the push to o/n: "),
        ([("preupload", b'{"error": "No\\nspace"}')], "127.0.0.1 answers 200 with an error: No space. Rerun the same"),
    ],
    ids=str,
)
def test_what_the_hub_refuses(
    made: Path, hub: Hub, push: Push, refuse: list[tuple[str, int | bytes]], message: str
) -> None:
    hub.refuse = refuse
    code, _, err = push(made)
    [told] = [line for line in err.splitlines() if line.startswith("curate: ")]
    assert (code, message in told, "Traceback" in err) == (2, True, False), err


REQUESTS = (
    "/api/repos/create", "/api/datasets/o/n", "/branch/ids", "/preupload/", "objects/batch", "/commit/", "/tree/",
    "/api/validate-yaml",
)  # fmt: skip
ODD = (b"null", b"[]", b"[1]", b"{}", b"<html>Log in</html>", b'{"error": "Internal error"}', b'{"files": null}', b"")


@pytest.mark.parametrize(
    "odd", [pytest.param(ODD, marks=pytest.mark.slow("each odd answer of a hub to each request is one message")), None]
)
def test_a_hub_that_answers_something_else_is_one_message(
    made: Path, hub: Hub, push: Push, odd: tuple[bytes, ...] | None
) -> None:
    """Each request once, or each request with each answer. Some are like those of a hub, so no push fails by them."""
    count = 0
    for number, path in enumerate(REQUESTS):
        for answer in odd or ODD[number % 5 : number % 5 + 1]:
            hub.private, hub.branches = None, {}
            hub.refuse = [(path, answer)]
            code, _, err = push(made, "--revision", "ids", "--public")
            told = [line for line in err.splitlines() if line.startswith("curate: ")]
            assert (len(told), "Traceback" in err) == (code // 2, False), (path, answer, err)
            count += code == 2
    assert count >= (len(REQUESTS) - 2) * len(odd or [1])


@pytest.mark.parametrize("stall", STALLS)
@pytest.mark.parametrize("place", ["hub", "storage"])
def test_a_hub_that_is_silent_or_trickles_is_one_message(
    made: Path, hub: Hub, push: Push, place: str, stall: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "SILENT_SECONDS", 0.2)
    with stalling_server.serve() as raw:
        raw.stall = stall
        if place == "storage":
            hub.storage = raw.address
        else:
            monkeypatch.setattr(constants, "ENDPOINT", raw.address)
        code, _, err = push(made)
    [told] = [line for line in err.splitlines() if line.startswith("curate: ")]
    assert (code, told) == (
        2,
        "curate: 127.0.0.1: no answer within 0.2 s. Rerun the same command later: it sends what is missing",
    )


def test_a_transfer_may_take_any_time_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of the body takes a second less than the limit, which is looked at after each."""
    now, taken, looked = 0.0, threading.Event(), threading.Event()

    def send(request: Any) -> Any:
        nonlocal now
        for _ in request.stream:
            now += request_limits.SILENT_SECONDS - 1
            taken.set()
            assert looked.wait(60)
            looked.clear()
        return client_library().Response(200)

    def wait(answers: list[Any], _: float) -> None:
        while not taken.wait(0.01) and not answers[0].done():
            pass
        taken.clear()
        looked.set()

    monkeypatch.setattr(hub_client, "wait", wait)
    monkeypatch.setattr(hub_client.time, "monotonic", lambda: now)
    request = client_library().Request("PUT", "http://hub/large", content=bytes(10 * request_limits.PIECE_BYTES))
    assert hub_client._send(send, Counter(), request).status_code == 200
    assert now > 5 * request_limits.SILENT_SECONDS


def test_each_piece_of_a_file_is_noted(made: Path, hub: Hub, push: Push, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Counter[str]()
    note_body = hub_client._note_body

    def counted(request: Any, note: Callable[[], None]) -> None:
        def twice() -> None:
            notes[request.method] += 1
            note()

        note_body(request, twice)

    monkeypatch.setattr(hub_client, "PIECE_BYTES", 1000)
    monkeypatch.setattr(hub_client, "_note_body", counted)
    assert push(made)[0] == 0
    [sent] = hub.received.values()
    assert notes["PUT"] == len(range(0, len(sent), 1000)) > 1


def test_a_conflict_that_does_not_end_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """`create_repo` repeats its request without a pause."""
    httpx = client_library()
    conflict = httpx.Response(409, text="Cannot create repo: another conflicting operation is in progress")
    client = httpx.Client()
    monkeypatch.setattr(client, "send", lambda *_, **__: conflict)
    monkeypatch.setattr(_http, "_GLOBAL_CLIENT", hub_client._limited(client))
    with pytest.raises(OutputError, match=r"^hub answers 409 to 20 requests\. Rerun the same command later"):
        huggingface_hub.HfApi(endpoint="http://hub").create_repo("o/n", repo_type="dataset", exist_ok=True)


@pytest.mark.parametrize(
    ("headers", "pauses"),
    [
        ({"Retry-After": "300"}, [301.0]),
        ({"Retry-After": "301"}, [1]),
        ({"Retry-After": "9" * 5000}, [1]),
        ({"RateLimit": '"api";r=0;t=299'}, [300.0]),
        ({"RateLimit": '"api";r=0;t=86400'}, [1]),
    ],
)
def test_a_pause_that_the_hub_asks_for_is_limited(
    headers: dict[str, str], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    answers = iter([client_library().Response(429, headers=headers), client_library().Response(200)])
    monkeypatch.setattr(_http.time, "sleep", slept.append)
    client = client_library().Client()
    monkeypatch.setattr(client, "send", lambda *_, **__: next(answers))
    monkeypatch.setattr(_http, "_GLOBAL_CLIENT", hub_client._limited(client))
    assert _http.http_backoff("GET", "http://hub/").status_code == 200
    assert slept == pauses


SETTINGS: dict[str, tuple[dict[str, str], str]] = {  # environment -> part of the message, or "" for none
    "desktop": ({"ALL_PROXY": f"socks://u:{SECRET}@127.0.0.1:1"}, "the proxy socks://127.0.0.1:1 cannot be used for "),
    "desktop, excluded": ({"all_proxy": "socks://127.0.0.1:1", "no_proxy": "localhost,127.0.0.1"}, ""),
    "all excluded": ({"HTTP_PROXY": "socks://127.0.0.1:1", "NO_PROXY": "*"}, ""),
    "of another protocol": ({"HTTPS_PROXY": "socks://127.0.0.1:1"}, ""),
    "no package": ({"HTTP_PROXY": "socks5://127.0.0.1:1"}, "cannot be used for http://127.0.0.1:"),
    "no port": ({"http_proxy": f"u:{SECRET}@host:port"}, "the proxy http://host:port cannot be used for http://"),
    "nobody": ({"HTTP_PROXY": "http://127.0.0.1:1"}, "cannot be reached (ConnectError: [Errno 111]"),
    "no certificates": ({"SSL_CERT_FILE": "/no/file"}, "SSL_CERT_FILE, /no/file, cannot be read: [Errno 2] No such"),
    "odd certificates": ({"SSL_CERT_FILE": __file__}, f"SSL_CERT_FILE, {__file__}, cannot be read: [X509"),
    "offline": ({}, "cannot be reached (OfflineModeIsEnabled: "),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_wrong_setting_of_the_client_is_one_message(
    made: Path, hub: Hub, push: Push, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, message = SETTINGS[setting]
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    if setting == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub_push.import_library()  # sets two variables, once in a process
    before = dict(os.environ)
    code, _, err = push(made)
    told = [line for line in err.splitlines() if line.startswith("curate: ")]
    assert (code, len(told), message in "".join(told)) == ((2, 1, True) if message else (0, 0, True)), err
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "fault",
    [
        PermissionError(13, "Permission denied", "part"),
        FileNotFoundError(2, "No such file", "part"),
        OSError(28, "full"),
    ],
    ids=str,
)
def test_a_local_fault_is_no_broken_connection(
    made: Path, hub: Hub, push: Push, fault: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Error while uploading") from fault

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", fail)
    code, _, err = push(made)
    [told] = [line for line in err.splitlines() if line.startswith("curate: ")]
    assert (code, "reached" in err, "Traceback" in err) == (1, False, False) and (fault.filename or "space") in told


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
    assert f"Run: {installation('hub')}" in push(made)[2]
