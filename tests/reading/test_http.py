# SPDX-License-Identifier: Apache-2.0
"""Inputs behind HTTP: what breaks off is asked for again, what changes ends the run with one message."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from curation.errors import InputError
from curation.reading import remote
from curation.report.report import write_report
from curation.running.run import run
from tests.needs import needs
from tests.reading.http_files import Answer, Files, served
from tests.runs import data_digests, made_texts, recipe_of, records_of

needs("aiohttp")
CORPUS = records_of(made_texts(300))
OTHER = CORPUS.replace(b"the", b"THE")
STRONG = '"1"'


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setattr(remote, "FIRST_WAIT_SECONDS", 0.0)
    with served(CORPUS) as files:
        yield files


def run_over(server: Files, folder: Path) -> None:
    recipe = recipe_of(f"http://{server.address}/made.jsonl", output={"formats": []})
    run(recipe, folder, engine="cpu", workers=1, slice_bytes=10_000)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of a run over the same file on disk."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "made.jsonl").write_bytes(CORPUS)
    run(recipe_of(folder / "made.jsonl", output={"formats": []}), folder / "out", engine="cpu")
    return data_digests(folder / "out")


@pytest.mark.parametrize("name", ["sound", "every fifth cut", "every fifth 500", "every fifth 429"])
def test_what_is_broken_off_is_asked_for_again(name: str, server: Files, tmp_path: Path, local: dict[str, str]):
    broken = {
        "sound": Answer(CORPUS),
        "every fifth cut": Answer(CORPUS, cut=100),
        "every fifth 500": Answer(CORPUS, status=500),
        "every fifth 429": Answer(CORPUS, status=429),
    }[name]
    server.answer = lambda number: Answer(CORPUS) if number % 5 else broken
    run_over(server, tmp_path / "out")
    assert data_digests(tmp_path / "out") == local


CHANGED = {
    "another version": (Answer(CORPUS, etag=STRONG), Answer(OTHER, etag='"2"'), "the server reports another version"),
    "a version of its own": (Answer(CORPUS), Answer(OTHER, etag='"2"'), "the server reports another version"),
    "shorter": (Answer(CORPUS), Answer(CORPUS[:2000]), "the server sends 2,000 of the .* that it announced"),
    "longer": (Answer(CORPUS), Answer(CORPUS * 2), "the server reports .* bytes, planned were"),
    "a wrong length": (Answer(CORPUS, length=len(CORPUS) + 9999), Answer(CORPUS), "the server sends .* announced"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_file_that_changes_during_a_run_ends_it(name: str, server: Files, tmp_path: Path):
    before, after, message = CHANGED[name]
    server.answer = lambda number: before if number <= 4 else after
    with pytest.raises(InputError, match=rf"made\.jsonl( has changed while it was read)?: {message}"):
        run_over(server, tmp_path / "out")


def test_a_weak_version_is_none(server: Files, tmp_path: Path):
    """Servers behind one address may give different ones for the same bytes."""
    server.answer = lambda number: Answer(CORPUS, etag=f'W/"{number}"')
    run_over(server, tmp_path / "out")


REFUSED = {
    301: r"TooManyRedirects in 5 tries",
    400: r"cannot be read: the server answers 400",
    401: r"may not be read: the server answers 401",
    403: r"may not be read: the server answers 403",
    404: r"does not exist",
    410: r"cannot be read: the server answers 410",
    500: r"ClientResponseError 500 in 5 tries",
}


@pytest.mark.parametrize("status", REFUSED)
def test_what_a_server_refuses_is_one_message(status: int, server: Files, tmp_path: Path):
    server.answer = lambda _: Answer(CORPUS, status=status)
    with pytest.raises(InputError, match=rf"http://{server.address}/made\.jsonl:? {REFUSED[status]}"):
        run_over(server, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_silent_server_is_not_waited_for_without_end(server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote, "READ_SECONDS", 0.1)
    server.answer = lambda _: Answer(CORPUS, stalls=True)
    with pytest.raises(InputError, match=r"made\.jsonl: \w*Timeout\w* in 5 tries"):
        run_over(server, tmp_path / "out")


def test_a_length_that_cannot_be_right_is_refused(server: Files, tmp_path: Path):
    """Planned, it would be 30 million slices."""
    server.answer = lambda _: Answer(CORPUS, length=10**15)
    with pytest.raises(
        InputError, match=r"made\.jsonl reports 1,000,000,000,000,000 bytes, more than the limit of 17,592"
    ):
        run_over(server, tmp_path / "out")


def test_a_compressed_file_that_ends_early_is_noticed(server: Files, tmp_path: Path):
    """At the end of one of its members, where nothing else tells."""
    half = gzip.compress(CORPUS)
    server.answer = lambda _: Answer(half, length=2 * len(half))
    with pytest.raises(
        InputError, match=r"made\.jsonl\.gz: the server sends [\d,]+ of the [\d,]+ bytes that it announced"
    ):
        run(recipe_of(f"http://{server.address}/made.jsonl.gz", output={"formats": []}), tmp_path / "out", engine="cpu")


def test_a_finished_run_of_a_version_that_knew_no_versions_of_urls(server: Files, tmp_path: Path):
    server.answer = lambda _: Answer(CORPUS, etag=STRONG)
    run_over(server, tmp_path / "out")
    report = msgspec.json.decode((tmp_path / "out/report.json").read_bytes())
    del report["files"][0]["version"], report["digest"]
    write_report(tmp_path / "out", report)
    assert run(
        recipe_of(f"http://{server.address}/made.jsonl", output={"formats": []}), tmp_path / "out"
    ).already_complete
