# SPDX-License-Identifier: Apache-2.0
"""Copies to servers that answer unlike S3: each answer ends in one message, and no request is endless.

botocore makes one try here, so that a test does not wait for its pauses."""

import asyncio
import errno
import gc
import io
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from curation.base.errors import OutputError
from curation.results.finished import object_store, request_limits
from curation.results.finished.object_store import ObjectStore
from tests.needs import needs
from tests.results.stalling_server import STALLS, Raw, serve

s3fs = needs("s3fs")
from aiobotocore.httpsession import AIOHTTPSession

# aiobotocore does not close the connection of an answer that ends within its bytes.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
URL = "s3://bucket/first"
LARGE = 8 << 20  # more than the buffers of a socket


KEPT: list[ObjectStore] = []  # a client that is collected warns of its open connections


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The settings of the client, which reads them once."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY": "S3CRET", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "FIRST_WAIT_SECONDS", 0.0)
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()
    gc.collect()


def opened() -> ObjectStore:
    KEPT.append(ObjectStore(URL))
    return KEPT[-1]


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Raw]:
    with serve() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        yield server


def test_a_store_that_is_silent_or_trickles_ends_in_one_message(raw: Raw, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(request_limits, "SILENT_SECONDS", 0.1)
    store = opened()
    for raw.stall in STALLS:
        for request in (store.names, partial(store.create, "large", bytes(LARGE))):
            with pytest.raises(OutputError, match=rf"^{URL}(/large)?: no answer within 0\.1 s in 2 tries\. Check the"):
                request()
    raw.stall = "half"
    with pytest.raises(OutputError, match=rf"^{URL}/large: no answer within 0\.1 s in 2 tries\. Check the"):
        store.read("large")


class Taking:
    """A session that takes pieces of the body, each in a time of the clock of its own, then waits as long again."""

    def __init__(self, seconds: float, waits: bool) -> None:
        self.seconds, self.waits, self.now = seconds, waits, 0.0

    async def send(self, _: Any, request: Any) -> str:
        async for piece in request.body:
            assert len(piece) <= request_limits.PIECE_BYTES
            await self.pass_time()
        for _ in repeat(None, 2 * self.waits):
            await self.pass_time()
        return "answer"

    async def pass_time(self) -> None:
        self.now += self.seconds
        for _ in range(3):
            await asyncio.sleep(0)


BODY = bytes(10 * request_limits.PIECE_BYTES)


async def iterated() -> AsyncIterator[bytes]:
    yield BODY


KINDS: dict[str, Callable[[], Any]] = {"bytes": lambda: BODY, "file": lambda: io.BytesIO(BODY), "iterable": iterated}


LARGE_OBJECT, LAST_PART = ("PUT", "http://store/large"), ("POST", "http://store/large?uploadId=1")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("request_line", "seconds", "waits", "ends"),
    [
        (LARGE_OBJECT, 59, False, False), (LARGE_OBJECT, 59, True, True), (LARGE_OBJECT, 61, False, True),
        (LAST_PART, 199, True, False), (LAST_PART, 301, True, True),
    ],
)  # fmt: skip
def test_a_transfer_may_take_any_time_in_all_and_a_minute_without_a_byte(
    kind: str, request_line: tuple[str, str], seconds: float, waits: bool, ends: bool, monkeypatch: pytest.MonkeyPatch
):
    taking = Taking(seconds, waits)
    monkeypatch.setattr(AIOHTTPSession, "send", lambda self, request: taking.send(self, request))
    session = request_limits.limited_store()["config_kwargs"]["http_session_cls"]

    async def send() -> Any:
        asyncio.get_running_loop().time = lambda: taking.now  # type: ignore[method-assign]
        body = KINDS[kind]()
        request = SimpleNamespace(method=request_line[0], url=request_line[1], body=body)
        try:
            return await session.send(None, request)
        finally:
            assert request.body is body

    if ends:
        with pytest.raises(request_limits.StalledError):
            asyncio.run(send())
    else:
        assert asyncio.run(send()) == "answer"
        assert taking.now > 5 * request_limits.SILENT_SECONDS


@pytest.mark.usefixtures("server")
def test_each_piece_of_an_object_is_noted(monkeypatch: pytest.MonkeyPatch):
    """The client of S3 passes the content on in another form."""
    pieces: list[int] = []
    noted = request_limits._noted

    async def counted(*arguments: Any) -> AsyncIterator[bytes]:
        async for piece in noted(*arguments):
            pieces.append(len(piece))
            yield piece

    monkeypatch.setattr(request_limits, "_noted", counted)
    monkeypatch.setattr(Handler, "answered", (200, ""))
    assert opened().create("large", BODY)
    assert pieces == [request_limits.PIECE_BYTES] * 10 and Handler.received == BODY


LIST = "<ListBucketResult><IsTruncated>{}</IsTruncated>{}</ListBucketResult>"
MORE = "<NextContinuationToken>again</NextContinuationToken>"
ERROR = "<Error><Code>{0}</Code><Message>{0} AKIAEXAMPLEKEY</Message></Error>"
ANSWERS: dict[str, tuple[int, str, str]] = {  # status, body, part of the message about a list
    "nonsense": (200, "<<<", ": 500 in 6 tries. Check the network and the store"),
    "null": (200, "null", ": 500 in 6 tries"),
    "page": (502, "<html>Bad gateway</html>", ": 502 in 6 tries"),
    "page not found": (404, "<html></html>", " cannot be listed: "),
    "slow": (200, ERROR.format("SlowDown"), ": SlowDown in 6 tries"),
    "unavailable": (200, ERROR.format("ServiceUnavailable"), ": ServiceUnavailable in 6 tries"),
    "denied": (403, ERROR.format("AccessDenied"), " may not be listed (AccessDenied). Allow s3:ListBucket"),
    "denied with success": (200, ERROR.format("AccessDenied"), ": AccessDenied in 6 tries"),
    "no size": (
        200,
        LIST.format("false", "<Contents><Key>a</Key></Contents>"),
        ": the store does not answer as S3 does",
    ),
    "odd size": (
        200,
        LIST.format("false", "<Contents><Size>x</Size></Contents>"),
        " cannot be listed: invalid literal",
    ),
    "no place": (200, LIST.format("true", ""), ": the store does not answer as S3 does (KeyError: 'NextContinuationTo"),
    "endless": (200, LIST.format("true", MORE), ": the store lists its objects without end. Check AWS_ENDPOINT_URL"),
    "loop": (307, "", ": the store redirects without end. Check AWS_ENDPOINT_URL and AWS_DEFAULT_REGION"),
    "region": (400, ERROR.format("AuthorizationHeaderMalformed"), ": its bucket is in another region (AuthorizationHe"),
    "moved without a place": (301, ERROR.format("PermanentRedirect"), ": the store redirects without end"),
    "moved": (400, ERROR.format("PermanentRedirect"), ": its bucket is in another region (PermanentRedirect)"),
    "teapot": (418, "", " cannot be listed: "),
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answered = 502, ""
    received = b""

    def do_PUT(self) -> None:
        Handler.received = self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        status, body = Handler.answered
        self.send_response(status)
        if status == 307:
            self.send_header("Location", self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("server")
def test_each_answer_that_is_no_list_is_one_message(monkeypatch: pytest.MonkeyPatch):
    store = opened()
    for status, body, message in ANSWERS.values():
        monkeypatch.setattr(Handler, "answered", (status, body))
        with pytest.raises(OutputError) as raised:
            store.names()
        text = str(raised.value)
        assert text.startswith(f"{URL}{message}") and "\n" not in text and len(text) < 300


def test_a_store_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch):
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"  # without listen() it refuses
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(OutputError, match=f"Check the network and the store at {address}, then run"):
            opened().names()


SETTINGS: dict[str, tuple[dict[str, str], str]] = {
    "certificates": ({"AWS_CA_BUNDLE": "no.pem"}, "No such file or directory). Check AWS_CA_BUNDLE"),
    "proxy": ({"HTTP_PROXY": "socks5://127.0.0.1:1"}, "Error in 6 tries. Check the network"),
    "no proxy": ({"HTTP_PROXY": "socks5://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}, ": 502 in 6 tries"),
    "all": ({"ALL_PROXY": "socks://127.0.0.1:1"}, ": 502 in 6 tries"),
    "address": ({"AWS_ENDPOINT_URL": "store:80"}, "cannot be listed: Invalid endpoint: store:80"),
    "profile": ({"AWS_PROFILE": "nobody"}, "does not accept the credentials (ProfileNotFound)"),
    "configuration": ({"AWS_CONFIG_FILE": "odd"}, "cannot be listed: Unable to parse config file: odd"),
}


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("setting", SETTINGS)
def test_each_wrong_setting_of_the_client_is_one_message(setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("odd").write_text("[")
    values, message = SETTINGS[setting]
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OutputError) as raised:
        opened().names()
    assert str(raised.value).startswith(URL) and message in str(raised.value)


@pytest.mark.parametrize(
    "fault", [FileNotFoundError(2, "No such file", "f"), PermissionError(13, "Denied", "f"), OSError(errno.EIO, "I/O")]
)
def test_a_local_fault_is_no_fault_of_the_store(fault: OSError, monkeypatch: pytest.MonkeyPatch):
    async def put(*_: Any, **__: Any) -> None:
        raise fault

    monkeypatch.setattr(s3fs.S3FileSystem, "_put_file", put)
    with pytest.raises(OSError, match="'f'"):
        opened().create_from("f", Path("f"))
