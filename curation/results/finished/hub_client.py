# SPDX-License-Identifier: Apache-2.0
"""Gives `huggingface_hub` an HTTP client with the limits of `request_limits` and the proxies that the hub needs.

The library has no time limit for a hub that sends nothing. A factory makes its client: before version 1.0 a session of
requests, later a client of httpx or httpx2. All of them send each request by a method `send`, which this module
replaces. The new method runs the old one in a thread. If the time is over, it abandons the thread, since nothing else
ends a read from a server that sends a byte now and then.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from curation.base.errors import OutputError
from curation.reading.urls import scrubbed, shown
from curation.results.finished import request_limits
from curation.results.finished.request_limits import PIECE_BYTES

LATER = "Rerun the same command later: it sends what is missing"
OK, CONFLICT = 200, 409  # HTTP status
MAX_CONFLICTS = 20
MAX_PAUSE_SECONDS = 300  # maximum pause before the next try if a hub asks for one; the library accepts pauses of hours
PAUSES = {"retry-after": re.compile(r"\s*(\d{1,9})"), "ratelimit": re.compile(r".*;\s*t\s*=\s*(\d{1,9})")}


def open_client(hub: Any, endpoint: str) -> None:
    """Let `huggingface_hub` use a client with limits. Raises OutputError if the user's proxies or certificates prevent
    this."""
    http = hub.utils._http
    if hasattr(hub, "set_client_factory"):
        hub.set_client_factory(lambda: _limited(_made(http.default_client_factory, endpoint)))
    else:
        hub.configure_http_backend(lambda: _limited(http._default_backend_factory()))
    hub.get_session()


def _made(make: Callable[[], Any], endpoint: str) -> Any:
    """Return a client. httpx refuses any unknown kind of proxy, even if the endpoint does not need it, so such proxies
    are hidden."""
    proxy = ""
    try:
        try:
            return make()
        except OSError:
            raise
        except Exception:  # ValueError, ImportError, or an error class of httpx
            proxy = _proxy_of(endpoint)
            with _only_proxy(proxy):
                return make()
    except OSError as error:
        path = os.environ.get("SSL_CERT_FILE", "")
        raise OutputError(f"SSL_CERT_FILE, {path}, cannot be read: {error}. Correct it, then run again") from None
    except Exception as error:
        raise OutputError(
            f"the proxy {shown(proxy)} cannot be used for {shown(endpoint)}: {scrubbed(error)}. Correct HTTPS_PROXY or "
            "ALL_PROXY, or add the host to NO_PROXY"
        ) from None


def _proxy_of(endpoint: str) -> str:
    """Return the proxy that the environment sets for an address; "" without one."""
    parts, proxies = urlsplit(endpoint), getproxies()
    proxy = "" if proxy_bypass(parts.netloc.rpartition("@")[2]) else proxies.get(parts.scheme) or proxies.get("all", "")
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


@contextmanager
def _only_proxy(proxy: str) -> Iterator[None]:
    """Leave only one proxy, or none, in the environment while a client reads it."""
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    for name in kept:
        del os.environ[name]
    os.environ |= {"all_proxy": proxy} if proxy else {}
    try:
        yield
    finally:
        os.environ.pop("all_proxy", None)
        os.environ |= kept


def _limited(client: Any) -> Any:
    client.send = partial(_send, client.send, Counter())
    return client


def _send(send: Callable[..., Any], conflicts: Counter[str], request: Any, **options: Any) -> Any:
    """Return the response to a request. Raises OutputError if it is not complete in time, or reports an error with
    status 200.

    conflicts   number of responses with status 409 for each URL; the library would repeat such requests for ever
    """
    last, url = time.monotonic(), str(request.url)
    host = urlsplit(url).hostname

    def note() -> None:
        nonlocal last
        last = time.monotonic()

    def work() -> None:
        try:
            answer.set_result(send(request, **options))
        except BaseException as error:
            answer.set_exception(error)

    _note_body(request, note)
    answer: Future[Any] = Future()
    threading.Thread(target=work, daemon=True).start()
    while not answer.done():
        if (remaining := last + request_limits.SILENT_SECONDS - time.monotonic()) <= 0:
            raise OutputError(f"{host}: no answer within {request_limits.SILENT_SECONDS:g} s. {LATER}")
        wait([answer], remaining)
    response = answer.result()
    conflicts[url] += response.status_code == CONFLICT
    if conflicts[url] > MAX_CONFLICTS:
        raise OutputError(f"{host} answers {CONFLICT} to {MAX_CONFLICTS} requests. {LATER}")
    for name, pattern in PAUSES.items():
        if (asked := pattern.match(response.headers.get(name, ""))) and int(asked[1]) > MAX_PAUSE_SECONDS:
            del response.headers[name]
    if not options.get("stream"):
        _check_success(response, host)
    return response


def _check_success(response: Any, host: str | None) -> None:
    """Raise OutputError for an error with the status of a success, which some proxies send."""
    try:
        content = response.json()
    except ValueError:
        return
    if response.status_code == OK and isinstance(content, dict) and isinstance(content.get("error"), str):
        text = scrubbed(" ".join(content["error"].split()))
        raise OutputError(f"{host} answers {OK} with an error: {text}. {LATER}")


def _note_body(request: Any, note: Callable[[], None]) -> None:
    """Let a request call `note` whenever the client takes the next bytes of its body."""
    name = "stream" if hasattr(request, "stream") else "body"  # of httpx, of requests
    body = getattr(request, name)
    if body is None:
        return

    def pieces(_: Any) -> Iterator[bytes]:
        blocks = iter(partial(body.read, PIECE_BYTES), b"") if hasattr(body, "read") else body
        for block in [body] if isinstance(body, bytes) else blocks:
            for start in range(0, len(block), PIECE_BYTES):
                note()
                yield block[start : start + PIECE_BYTES]

    base = next((kind for kind in type(body).__mro__ if kind.__name__ == "SyncByteStream"), object)
    setattr(request, name, type("NotingBody", (base,), {"__iter__": pieces})())
