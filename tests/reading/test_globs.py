# SPDX-License-Identifier: Apache-2.0
"""Paths and URLs with `? # :: * [`: what is written is a pattern, a query or a chain, and what is listed is a name."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from curation.base.errors import InputError
from curation.reading import probe, read_documents
from curation.reading.globs import remote_matches
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from tests.needs import needs
from tests.reading.http_files import Answer, served
from tests.runs import records_of

NAMES = ["a#1.jsonl", "a::b.jsonl", "a?b.jsonl", "c.jsonl?x=3.jsonl", "s*.jsonl", "s2.jsonl", "x1.jsonl", "x[1].jsonl"]


def texts_of(path: Path | str) -> list[str]:
    files = [probe(file) for file in find_files([Input(path=str(path), name="x")])]
    batches = [batch for piece in plan_slices(files, 1 << 20) for batch in read_documents(piece, 1000)]
    return [text for batch in batches for text in batch.table.column("text").to_pylist()]


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    for name in NAMES:
        files.pipe(f"/b/{name}", records_of([name]))
    files.pipe("/b/folder.jsonl/y.jsonl", records_of(["in a folder"]))
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


WRITTEN = {
    "memory://b/*.jsonl": NAMES,
    "memory://b/x[1].jsonl": ["x[1].jsonl"],
    "memory://b/x[12].jsonl": ["x1.jsonl"],
    "memory://b/s*.jsonl": ["s*.jsonl", "s2.jsonl"],
    "memory://b/a#1.jsonl": ["a#1.jsonl"],
    "memory://b/*/*": ["in a folder"],
    "literal::memory://b/a?b.jsonl": ["a?b.jsonl"],
    "literal::memory://b/a::b.jsonl": ["a::b.jsonl"],
    "literal::memory://b/s*.jsonl": ["s*.jsonl"],
}


@pytest.mark.parametrize("url", WRITTEN)
def test_listed_keys_are_names_and_written_ones_keep_their_meaning(url: str, memory: Any):
    assert texts_of(url) == sorted(WRITTEN[url])


REFUSED = {
    "memory://b/a?b.jsonl": r"the name of memory://b/a does not tell its format",
    "memory://b/a::b.jsonl": r"memory://\*\*\*: `::` separates URLs",
    "memory://b/f*": r"no file matches memory://b/f\*, only 1 folder\. To read the files in one, name it with /\*",
    "literal::memory://b/a?x.jsonl": r"literal::memory://b/a\?x\.jsonl does not exist",
    "literal::ftp://u:SEC/RET@h/a.jsonl": r"literal::ftp://h/a\.jsonl: write / as %2F",
}


@pytest.mark.parametrize("url", REFUSED)
def test_a_url_that_names_no_file_is_one_message(url: str, memory: Any):
    with pytest.raises(InputError, match=REFUSED[url]):
        texts_of(url)


def test_files_of_a_run_are_named_as_they_are_listed(memory: Any):
    paths = [file.without_secrets().path for file in find_files([Input(path="memory://b/a*")])]
    assert paths == [f"literal::memory://b/{name}" for name in NAMES[:3]]


def test_a_link_to_a_folder_is_no_match():
    needs("aiohttp")
    links = b'<a href="a.jsonl">a</a> <a href="b.jsonl/">b</a> <a href="c.jsonl?sig=SECRET">c</a>'
    with served(links) as server:
        server.answer = lambda _: Answer(links, sends_ranges=False, headers={"Content-Type": "text/html"})
        folder = f"http://{server.address}/d"
        assert remote_matches(f"{folder}/*.jsonl*").shown == [f"{folder}/a.jsonl", f"{folder}/c.jsonl?sig=SECRET"]
        assert remote_matches("http://[::1]:8080/a.jsonl").shown == ["http://[::1]:8080/a.jsonl"]


def test_a_match_has_the_host_and_the_user_of_its_glob(monkeypatch: pytest.MonkeyPatch):
    """As of file systems whose paths have neither."""
    local = fsspec.filesystem("file")
    monkeypatch.setattr(local, "glob", lambda *_, **__: {"/d/a.jsonl": {"type": "file"}})
    monkeypatch.setattr(fsspec, "url_to_fs", lambda _: (local, "/d/*.jsonl"))
    assert remote_matches("sftp://u:p@host/d/*.jsonl").shown == ["sftp://u:p@host/d/a.jsonl"]


LOCAL = {
    "*.jsonl": NAMES,
    "x[1].jsonl": ["x[1].jsonl"],
    "x[12].jsonl": ["x1.jsonl"],
    "a?b.jsonl": ["a?b.jsonl"],
    "a?*": ["a#1.jsonl", "a::b.jsonl", "a?b.jsonl"],
    "d[1]": ["d[1]"],
    "d[1]/*": ["d[1]"],
    "d[12]/*": ["d1"],
    "d[1]/**/*.jsonl": ["d[1]"],
}


@pytest.mark.parametrize("path", LOCAL)
def test_an_existing_path_goes_before_a_pattern(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        Path(name).write_bytes(records_of([name]))
    for folder in ("d[1]", "d1"):
        Path(folder).mkdir()
        Path(folder, "y.jsonl").write_bytes(records_of([folder]))
    assert texts_of(path) == sorted(LOCAL[path])


def test_a_glob_lists_each_folder_once_and_gives_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deep = tmp_path.joinpath("g", *["d"] * 30)
    deep.mkdir(parents=True)
    deep.joinpath("z.jsonl").write_bytes(records_of(["deep"]))
    deep.joinpath("loop").symlink_to("..")
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (listed.append(folder), scandir(folder))[1])
    for pattern in ("**/**/*.jsonl", "**/d/**/d*/**/*/**/*.jsonl", "**/**/**", "*/**/d/**/z.jsonl"):
        listed.clear()
        assert texts_of(tmp_path / "g" / pattern) == ["deep"]
        assert len(listed) == len({*listed}) <= 31
