# SPDX-License-Identifier: Apache-2.0
"""Inputs in the S3 of moto's server: each part is of the state of the plan, and listed keys are taken as they are."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import pytest

from curation.base.errors import InputError
from curation.reading import answers, probe, read_documents, remote
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from tests.needs import needs
from tests.runs import made_texts, records_of

s3fs = needs("s3fs")
needs("moto.server")

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from curation.reading.stores import S3File

TEXTS = made_texts(100)
URL = "s3://texts/made.jsonl"
Headers = dict[str, str]


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None: ...


class Store:
    """A server whose answers to GET for later parts of an object can be changed."""

    change: Callable[[Headers], Headers] = dict

    def __init__(self) -> None:
        self.backend = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Silent)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        wanted = environ.get("HTTP_RANGE", "")
        is_later = environ["REQUEST_METHOD"] == "GET" and wanted and not wanted.startswith("bytes=0-")

        def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            changed = self.change(dict(headers)) if is_later else dict(headers)
            return start_response(status, [*changed.items()], *more)

        return self.backend(environ, start)


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    store = Store()
    yield store
    store.server.shutdown()
    store.server.server_close()


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The server, with a bucket `texts`."""
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server.server_port}", "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "FIRST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(S3File, "block_bytes", 3000)
    server.change = dict
    urlopen(Request(f"{os.environ['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()
    s3fs.S3FileSystem.clear_instance_cache()  # a client of another file's tests has another server's address
    files = s3fs.S3FileSystem()
    files.mkdir("texts")
    files.pipe("texts/made.jsonl", records_of(TEXTS))
    return server


def planned(url: str = URL) -> Any:
    return plan_slices([probe(file) for file in find_files([Input(path=url, name="x")])], 10_000)


def texts_in(slices: Any) -> list[str]:
    batches = [batch for piece in slices for batch in read_documents(piece, 1000)]
    return [text for batch in batches for text in batch.table.column("text").to_pylist()]


CHANGED = "made.jsonl has changed while it was read: the server reports"
PLACE = r"made\.jsonl: asked for bytes=\d+-\d+, the server sends .*, in 5 tries"
ODD: dict[str, tuple[Callable[[Headers], Headers], str]] = {
    "a sound store": (dict, ""),
    "no tag": (lambda headers: {name: value for name, value in headers.items() if name.lower() != "etag"}, ""),
    "a weak tag": (lambda headers: headers | {"ETag": 'W/"1"'}, ""),
    "another tag": (lambda headers: headers | {"ETag": '"1"'}, f"{CHANGED} another version"),
    "another length": (lambda headers: headers | {"Content-Range": whole(headers, 99)}, f"{CHANGED} .* bytes, before"),
    "another part": (lambda headers: headers | {"Content-Range": "bytes 0-2999/99"}, PLACE),
    "a range that is none": (lambda headers: headers | {"Content-Range": "all"}, PLACE),
}


def whole(headers: Headers, more: int) -> str:
    place, _, size = {name.lower(): value for name, value in headers.items()}["content-range"].partition("/")
    return f"{place}/{int(size) + more}"


@pytest.mark.parametrize("name", ODD)
def test_each_part_is_of_the_state_of_its_object(name: str, store: Store):
    store.change, message = ODD[name]
    if not message:
        assert texts_in(planned()) == TEXTS
        return
    with pytest.raises(InputError, match=message):
        texts_in(planned())


def test_an_object_that_is_replaced_is_noticed(store: Store):
    slices = planned()
    s3fs.S3FileSystem().pipe("texts/made.jsonl", records_of(TEXTS[::-1]))
    with pytest.raises(InputError, match=f"{CHANGED} another version"):
        texts_in(slices)


def test_listed_keys_are_taken_as_they_are(store: Store):
    keys = ["a#1.jsonl", "a::b.jsonl", "a?b.jsonl", "c.jsonl?versionId=3.jsonl", "x1.jsonl", "x[1].jsonl"]
    files = s3fs.S3FileSystem()
    for key in keys:
        files.call_s3("put_object", Bucket="texts", Key=f"k/{key}", Body=records_of([key]))
    files.call_s3("put_object", Bucket="texts", Key="k/empty.jsonl/", Body=b"")
    files.call_s3("put_object", Bucket="texts", Key="k/folder.jsonl/x.jsonl", Body=records_of(["in a folder"]))
    files.call_s3("put_object", Bucket="texts", Key="k/c.jsonl", Body=records_of(["another"]))
    assert sorted(texts_in(planned("s3://texts/k/*.jsonl"))) == sorted([*keys, "another"])
    assert texts_in(planned("s3://texts/k/x[1].jsonl")) == ["x[1].jsonl"]
    assert texts_in(planned("literal::s3://texts/k/a?b.jsonl")) == ["a?b.jsonl"]
    with pytest.raises(InputError, match=r"no file matches s3://texts/k/f\*, only 1 folder\. To read the files in one"):
        planned("s3://texts/k/f*")


@pytest.mark.parametrize("url", ["s3://texts/gone.jsonl", "s3://gone/made.jsonl", "s3://texts.jsonl"])
def test_an_object_that_does_not_exist_is_one_message(url: str, store: Store):
    with pytest.raises(InputError, match=f"{url} does not exist"):
        planned(url)


@pytest.mark.parametrize(
    ("silent", "message"), [("head_object", "does not answer within"), ("read", "sends no byte of")]
)
def test_a_silent_store_is_not_waited_for_without_end(
    silent: str, message: str, store: Store, monkeypatch: pytest.MonkeyPatch
):
    slices, call = planned(), s3fs.S3FileSystem._call_s3

    async def end_never(*_: Any) -> bytes:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def call_or_wait(files: Any, method: str, *more: Any, **parameters: Any) -> Any:
        if method == silent:
            return await end_never()
        answer = await call(files, method, *more, **parameters)
        if method == "get_object":
            answer["Body"] = SimpleNamespace(read=end_never, close=answer["Body"].close)
        return answer

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", call_or_wait)
    monkeypatch.setattr(answers, "ANSWER_SECONDS" if silent == "head_object" else "SILENT_SECONDS", 0.05)
    with pytest.raises(InputError, match=rf"made\.jsonl: the store {message}.* 0\.05 s, in 5 tries"):
        texts_in(slices)
