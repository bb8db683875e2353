# SPDX-License-Identifier: Apache-2.0
"""`datasets` and the command line against a hub on this machine: what is asked for, what each answer comes to, and what
is kept of a data set that came in part."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from curation.results.finished.verify import verify
from tests.needs import needs
from tests.pipelines.fake_hub import Hub, serve
from tests.runs import data_digests, kept_rows, report_of

needs("datasets")

ROOT = Path(__file__).resolve().parents[2]
# The libraries wait between tries, and take the address of the hub from the environment when they are imported.
SERVER = """
import json, os, sys, time
time.sleep = lambda _: None
import cpu_fallback, datasets
from curation.cli import main
from curation.reading import hub_requests
from curation.running import run

if len(sys.argv) > 2:
    hub_requests.FILE_SECONDS = hub_requests.API_SECONDS = float(sys.argv[2])
for line in sys.stdin:
    child = os.fork()
    if not child:
        with open(sys.argv[1], "w") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        environment, words = json.loads(line)
        os.environ.update(environment)
        code = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
RECIPE = "input: [{{path: 'hf:o/n', name: set, {}}}]\nstages: []\noutput: {{formats: []}}\n"
Curate = Callable[..., tuple[int, str]]


@contextmanager
def command_line(folder: Path, endpoint: str, *limit: str) -> Iterator[Curate]:
    """`curate` with this hub: each call is a copy of one process that has the libraries loaded. `limit`: seconds
    without progress after which a request ends."""
    log, path, home = folder / "log", folder / "recipe.yaml", folder / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home)}
    environment["USE_TORCH"] = "0"  # `datasets` imports it where it is, which takes as long as all the rest
    command = [sys.executable, "-c", SERVER, str(log), *limit]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def curate(out: Path, options: str, **variables: str) -> tuple[int, str]:
        """Runs a recipe over the data set into a folder, with variables of the environment; gives the exit code and
        the last line of what it says."""
        path.write_text(RECIPE.format(options))
        words = ["run", str(path), "--output", str(out), "--engine", "cpu"]
        process.stdin.write(json.dumps([variables, words]) + "\n")
        process.stdin.flush()
        code, shown = int(process.stdout.readline()), log.read_text()
        told = [line for line in shown.splitlines() if line.startswith("curate: ")]
        assert len(told) == (code != 0) and "Traceback" not in shown, shown
        return code, "".join(told)

    with process:
        yield curate


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def commands(server: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Curate]]:
    folder = tmp_path_factory.mktemp("commands")
    with command_line(folder, server.endpoint) as curate:
        yield folder, curate


@pytest.fixture
def hub(server: Hub) -> Hub:
    server.main, server.refuse, server.answers = "a" * 40, [], []
    return server


@pytest.fixture
def curate(hub: Hub, commands: tuple[Path, Curate]) -> Curate:
    folder, curate = commands
    shutil.rmtree(folder / "home", ignore_errors=True)
    return curate


def texts(out: Path) -> list[str]:
    return [text for *_, text in kept_rows(out)]


def expected(*parts: str, count: int = 400) -> list[str]:
    return [f"{part} {n}" for part in parts for n in range(count)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("config: small", expected("b small train-0", "b small train-1")),
        ("config: small, revision: v1", expected("a small train-0", "a small train-1")),
        ("config: small, split: test, max_documents: 250", expected("b small test", count=250)),
        ("config: other, revision: " + "a" * 40, expected("a other")),
    ],
)
def test_name_configuration_split_and_revision(
    hub: Hub, curate: Curate, tmp_path: Path, options: str, found: list[str]
):
    hub.main = "b" * 40
    assert curate(tmp_path / "out", options) == (0, "")
    assert texts(tmp_path / "out") == found and verify(tmp_path / "out") == []
    assert report_of(tmp_path / "out")["sources"][0]["commit"] == found[0][0] * 40


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (404, "was not found (404). Check the name and the revision"),
        (401, "the hub denies access (401). Check the name; if it is right, accept the terms on its page"),
        (403, "the hub denies access (gated). Check the name"),
        (429, "the hub answers 429, an error on its side. Rerun the same command later"),
        (500, "the hub answers 500, an error on its side. Rerun the same command later"),
        (0, "the hub cannot be reached ("),
    ],
)
def test_what_the_hub_answers(hub: Hub, curate: Curate, tmp_path: Path, status: int, told: str):
    hub.refuse = [("", status)]
    code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and said.startswith("curate: hf:o/n:small[train]") and told in said


@pytest.mark.slow("a hub that nothing serves ends a run in one message")
def test_no_hub_at_all(tmp_path: Path):
    with command_line(tmp_path, "http://127.0.0.1:9") as curate:
        code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and "the hub cannot be reached (" in said


def test_names_inside_the_data_set(curate: Curate, tmp_path: Path):
    told = {
        "config: smal": "has no configuration 'smal'; did you mean small?",
        "config: small, split: tset": "has no split 'tset'; did you mean test?",
        "split: train": "has several configurations; set config to one of",
        "config: small, revision: v2": "has no revision 'v2' (404). Correct revision, or leave it out",
    }
    for options, message in told.items():
        code, said = curate(tmp_path / "out", options)
        assert code == 2 and message in said


JSON, ENDPOINT = {"Content-Type": "application/json"}, "Check HF_ENDPOINT and the proxy"
# Path, status, body and headers of an answer -> what the message says.
ANSWERS = {
    ("", 200, b"null"): "the answer is not that of a hub: it has no X-Repo-Commit. Check",
    ("", 200, b"[]"): "the answer is not that of a hub (",
    ("/tree/", 200, b"null"): "the answer is not that of a hub (TypeError: ",
    ("/tree/", 200, b"<html>Log in</html>"): "the answer of the hub is not JSON ('<html>Log in</html>'). Check",
    ("/tree/", 200, b'{"error": "quota"}'): 'the hub answers 200 with an error (\'{"error": "quota"}\'). Check',
    ("/tree/", 200, b"[]"): "has no file that datasets can read, such as .jsonl, .csv or .parquet",
    ("/tree/", 200, b'[{"type": "file"}]'): "the answer is not that of a hub (KeyError: 'path')",
    (".jsonl", 200, b"<html>Log in</html>"): "to a request for the bytes from 0 to 18,179, expected 206 and these ('<h",
    (".jsonl", 206, b"{}"): "the server answers 206 to a request for the bytes from 0",
    ("", 402, b"{}"): "the hub answers 402 (",
    ("", 429, b"{}"): "the hub answers 429 and asks to wait 4,294,967,296 s. Rerun after that time",
}
# Variables -> what the message says; "" where the run ends well.
VARIABLES = {
    ("ALL_PROXY", "socks://127.0.0.1:9/"): "ALL_PROXY is socks://127.0.0.1:9/, expected http://HOST:PORT, or socks5://",
    ("http_proxy", "socks5://u:secret@127.0.0.1:9"): "HTTP_PROXY is socks5://127.0.0.1:9, expected http://HOST:PORT",
    ("HTTP_PROXY", "http://127.0.0.1:x"): "HTTP_PROXY is http://127.0.0.1:x, expected http://HOST:PORT",
    ("HTTP_PROXY", "http://u:secret@127.0.0.1:9"): "cannot be reached through the proxy http://127.0.0.1:9 (",
    ("ALL_PROXY", "socks://127.0.0.1:9/", "NO_PROXY", "localhost,127.0.0.1"): "",
    ("HTTPS_PROXY", "socks://127.0.0.1:9/"): "",
    (
        "SSL_CERT_FILE",
        "/nothing/ca.pem",
    ): "SSL_CERT_FILE=/nothing/ca.pem has no certificates (No such file or directory)",
    ("SSL_CERT_FILE", __file__): "has no certificates ([X509",
    ("HF_ENDPOINT", "127.0.0.1:80"): "HF_ENDPOINT is '127.0.0.1:80', expected the address of a hub, such as https://",
    (
        "HF_ENDPOINT",
        "http://[::",
    ): "expected the address of a hub, such as https://huggingface.co. Correct it, or unset",
    ("HF_TOKEN", "hf_secret\x01"): "the token of the hub has characters that no HTTP header can have. Set HF_TOKEN",
    ("HF_TOKEN", "hf_secreté"): "the token of the hub has characters that no HTTP header can have. Set HF_TOKEN",
}


def say_one_message(curate: Curate, out: Path, told: str, **variables: str) -> None:
    code, said = curate(out, "config: small", **variables)
    assert code == 2 * bool(told) and said.startswith("curate: hf:o/n:small[train]" * bool(told))
    assert told in said and "secret" not in said, said


def parts(table: dict[Any, str]) -> tuple[dict[Any, str], dict[Any, str]]:
    """The first two entries of a table, and the others."""
    return dict(list(table.items())[:2]), dict(list(table.items())[2:])


@pytest.mark.parametrize(
    "table",
    [
        parts(ANSWERS)[0],
        pytest.param(parts(ANSWERS)[1], marks=pytest.mark.slow("each answer that is none of a hub is one message")),
    ],
    ids=["two", "others"],
)
def test_each_answer_that_is_none_of_a_hub_is_one_message(
    hub: Hub, curate: Curate, tmp_path: Path, table: dict[tuple[str, int, bytes], str]
):
    for (part, status, body), told in table.items():
        more = {"Retry-After": "4294967296"} if status == 429 else {}
        if status == 206:
            more = {"Content-Range": "bytes 7-8/9", "Accept-Ranges": "bytes"}
        hub.answers = [(part, status, body, JSON | more)]
        say_one_message(curate, tmp_path / "out", told)


@pytest.mark.parametrize(
    "table",
    [
        parts(VARIABLES)[0],
        pytest.param(
            parts(VARIABLES)[1],
            marks=pytest.mark.slow("each setting of the environment that cannot be used is one message"),
        ),
    ],
    ids=["two", "others"],
)
def test_each_setting_of_the_environment_that_cannot_be_used_is_one_message(
    curate: Curate, tmp_path: Path, table: dict[tuple[str, ...], str]
):
    for number, (names, told) in enumerate(table.items()):
        say_one_message(curate, tmp_path / str(number), told, **dict(zip(names[::2], names[1::2], strict=True)))


def test_an_older_copy_in_the_cache_is_not_read(
    hub: Hub, curate: Curate, tmp_path: Path, commands: tuple[Path, Curate]
):
    (commands[0] / "home" / "datasets" / "o___n" / "small" / "0.0.0" / ("a" * 40)).mkdir(parents=True)
    hub.refuse = [("", 404)]
    say_one_message(curate, tmp_path / "out", "was not found (404). Check the name and the revision")


def test_a_readme_that_names_files_of_this_machine(hub: Hub, curate: Curate, tmp_path: Path):
    secret = tmp_path / "notes.txt"
    secret.write_text("a note")
    for url in (str(secret), f"file://{secret}", f"{hub.endpoint}/notes.txt"):
        card = f"---\nconfigs:\n- {{config_name: small, data_files: '{url}'}}\n---\n"
        hub.main, hub.commits["d" * 40] = "d" * 40, {"README.md": card.encode()}
        say_one_message(curate, tmp_path / "out", "README.md names files outside of the data set")


@pytest.mark.slow("a hub that answers byte by byte ends a run in one message")
def test_a_hub_whose_header_never_ends(hub: Hub, tmp_path: Path):
    hub.refuse = [("", -2)]
    with command_line(tmp_path, hub.endpoint, "1") as curate:
        say_one_message(curate, tmp_path / "out", "the hub cannot be reached (1 s without a whole answer)")


@pytest.mark.slow("documents of a hub data set that arrived before a failure are kept")
@pytest.mark.parametrize("status", [-1, 500])
def test_what_came_is_kept_and_goes_on_at_the_same_commit(hub: Hub, curate: Curate, tmp_path: Path, status: int):
    """The second of two files does not come; when it does, the branch has moved on."""
    assert curate(tmp_path / "whole", "config: small") == (0, "")
    hub.refuse = [("train-1.jsonl", status)]
    code, said = curate(tmp_path / "out", "config: small")
    assert code == 2 and "the connection broke after 400 documents, 4 times" in said
    assert "They are kept. Rerun the same command without --force to resume" in said
    hub.refuse, hub.main = [], "b" * 40
    assert curate(tmp_path / "out", "config: small") == (0, "")
    assert texts(tmp_path / "out") == expected("a small train-0", "a small train-1")
    assert data_digests(tmp_path / "out") == data_digests(tmp_path / "whole")
