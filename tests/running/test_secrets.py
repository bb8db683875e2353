# SPDX-License-Identifier: Apache-2.0
"""Passwords and signed queries of URLs are in no file of a run, and a run goes on with new ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import OutputError
from curation.base.system.progress import Progress
from curation.record.stored_plan import load_plan
from curation.running import array_tasks, phase_loop
from curation.running.run import run
from curation.running.tasks.boards import decode_phase
from tests.needs import needs
from tests.reading.http_files import served
from tests.runs import data_digests, made_texts, recipe_of, records_of

needs("aiohttp")
CORPUS = records_of(made_texts(200))
SECRETS = (b"S3CRET", b"ALICE")


class Noting(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def server() -> Iterator[str]:
    with served(CORPUS) as files:
        files.authorization = "Basic QUxJQ0U6UzNDUkVU"  # ALICE:S3CRET
        yield files.address


def files_with(folder: Path, secrets: tuple[bytes, ...]) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert len(paths) > 10
    return [str(path) for path in paths if any(secret in path.read_bytes() for secret in secrets)]


@pytest.mark.parametrize(
    "scheduler",
    ["threads", pytest.param("processes", marks=pytest.mark.slow("secrets of a URL are in no file of a run"))],
)
def test_secrets_are_in_no_file_of_a_run(server: str, scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that ends too early, and the same that goes on with another signature."""
    folder, progress = tmp_path / "out", Noting()
    output = {"keep_work": True, "raw": "jsonl"}
    paths = [f"http://ALICE:S3CRET@{server}/made.jsonl?part={part}&sig=S3CRET" for part in (1, 2)]
    recipe = recipe_of(*paths, output=output)
    with monkeypatch.context() as stopped:
        stopped.setattr(phase_loop, "_write_documents", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(recipe, folder, engine="cpu", workers=1, scheduler=scheduler, slice_bytes=5000, progress=progress)
    assert files_with(folder, SECRETS) == []
    signed_again = recipe_of(*(path.replace("sig=S3CRET", "sig=S3CRET-2") for path in paths), output=output)
    run(signed_again, folder, engine="cpu", workers=1, scheduler=scheduler, progress=progress)
    assert files_with(folder, SECRETS) == []
    assert not any(secret.decode() in line for secret in SECRETS for line in progress.lines)

    local = [tmp_path / "made.jsonl", tmp_path / "again/made.jsonl"]
    local[1].parent.mkdir()
    for path in local:
        path.write_bytes(CORPUS)
    run(recipe_of(*local, output=output), tmp_path / "local", engine="cpu")
    assert data_digests(folder) == data_digests(tmp_path / "local")
    with pytest.raises(OutputError, match=rf"changed: .*file http://{server}/made\.jsonl"):
        run(recipe_of(paths[0], local[0], output=output), folder, engine="cpu")


def test_array_tasks_read_urls_with_the_secrets_of_their_own_recipe(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A published phase has no secrets. Each process finds the items of the driver in its own plan."""
    published, phases_with_urls, plans = array_tasks.published, [], []

    def compared(function: Any, items: Any, *rest: Any) -> Any:
        phase = published(function, items, *rest)
        if phase.urls:
            plans.append(load_plan(function.args[2]))  # of the process, before it loads other files
            item = decode_phase(phase.encoded()).items(plans[0], tmp_path)
            assert {number: item(number) for number in items} == items
            phases_with_urls.append((function.args[0].__name__, sum(len(item) > 1 for item in items.values())))
        return phase

    monkeypatch.setattr(array_tasks, "published", compared)
    recipe = recipe_of(f"http://ALICE:S3CRET@{server}/made.jsonl", output={"raw": "all.csv", "keep_work": True})
    run(recipe, tmp_path / "out", engine="cpu", workers=1, array_task="1/1", slice_bytes=9000, progress=False)
    assert files_with(tmp_path / "out", SECRETS) == []
    assert phases_with_urls == [("run_slice", 6), ("finish", 1)]
