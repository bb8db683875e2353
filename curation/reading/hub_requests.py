# SPDX-License-Identifier: Apache-2.0
"""Requests of `huggingface_hub`: checks of the environment variables for them, time limits, and checks of file ranges.

The library ends most requests after 10 s without data. But it does not end the listing of a data set, nor a response
whose header arrives byte by byte. It repeats a failed read 20 times, and sleeps as long as `Retry-After` says. So its
calls run in a second thread, and the calling thread counts the seconds without progress.
"""

from __future__ import annotations

import math
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from curation.base.errors import InputError
from curation.base.system.interrupts import check as check_interrupts
from curation.reading import answers
from curation.reading.urls import HTTP, scrubbed, shown

FILE_SECONDS = float(answers.SILENT_SECONDS)  # maximum for requests that return no byte of a file
API_SECONDS = 120.0  # maximum for any other request
IDLE_SECONDS = 600.0  # maximum between requests, since a hub may ask to wait
STEP_SECONDS = 0.2
SHOWN_BYTES = 2_000  # a longer response is not shown
ENDPOINT = "https://huggingface.co"
RANGE = re.compile(r"bytes=(\d+)-(\d+)")
CONTENT_RANGE = re.compile(r"bytes (\d+)-")
Value = TypeVar("Value")


def check_endpoint(label: str) -> None:
    """Raise InputError if HF_ENDPOINT is no address. With some values, even the import of the library fails."""
    endpoint = os.environ.get("HF_ENDPOINT", "")
    if endpoint and not (_is_address(endpoint, HTTP) and not urlsplit(endpoint).query):
        raise InputError(
            f"{label}: HF_ENDPOINT is {shown(endpoint)!r}, expected the address of a hub, such as {ENDPOINT}. Correct "
            "it, or unset it"
        )


def check_environment() -> None:
    """Raise InputError if certificates or a token in the environment make all requests fail."""
    certificates = os.environ.get("SSL_CERT_FILE", "")
    try:
        if certificates:
            ssl.create_default_context(cafile=certificates)
    except OSError as error:
        raise InputError(
            f"SSL_CERT_FILE={certificates} has no certificates ({error.strerror or error}). Correct it, or unset it"
        ) from None
    import huggingface_hub

    token = huggingface_hub.get_token() or ""
    if not (token.isascii() and token.isprintable()):
        raise InputError(
            "the token of the hub has characters that no HTTP header can have. Set HF_TOKEN, or run `hf auth login`"
        )


def _is_address(url: str, schemes: Collection[str]) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def proxy_of_hub() -> tuple[str, str]:
    """Return the proxy for requests to the hub: the name of its variable without `_PROXY`, and its URL; both "" without
    one."""
    endpoint, proxies = urlsplit(os.environ.get("HF_ENDPOINT") or ENDPOINT), getproxies()
    if proxy_bypass(endpoint.netloc.rpartition("@")[2]):
        return "", ""
    scheme = endpoint.scheme if proxies.get(endpoint.scheme) else "all"
    return scheme.upper(), proxies.get(scheme, "")


@contextmanager
def usable_proxies() -> Iterator[None]:
    """Inside this context, hide proxies that the hub's client cannot use and that no request to the hub needs.

    The client fails for such proxies even if it does not need them. Desktops set `ALL_PROXY=socks://...` in addition to
    `HTTPS_PROXY`.

    Raises InputError if a request needs a proxy that the client cannot use.
    """
    needed, proxy = proxy_of_hub()
    if proxy and not _is_usable(proxy):
        raise InputError(
            f"{needed}_PROXY is {shown(proxy)}, expected http://HOST:PORT, or socks5://HOST:PORT after `pip install "
            "socksio`. Correct it, or name the host of the hub in NO_PROXY"
        )
    unusable = [scheme for scheme in ("http", "https", "all") if not _is_usable(getproxies().get(scheme, ""))]
    names = [name for scheme in unusable for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")]
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _is_usable(proxy: str) -> bool:
    schemes = (*HTTP, "socks5", "socks5h") if find_spec("socksio") else HTTP
    return not proxy or _is_address(proxy if "://" in proxy else f"http://{proxy}", schemes)


class Requests:
    """The requests of one call. Completed responses and bytes of files count as progress."""

    def __init__(self) -> None:
        self.request: Any = None
        self.response: Any = None
        self.completed = self.seen = 0
        self.waited = self.idle = 0.0  # seconds since the last progress: with a request, and without one

    def asked(self, request: Any) -> None:
        """Record the start of a request. The progress of the request before it counts as completed."""
        self.completed = self.progress
        self.request, self.response = request, None

    def answered(self, response: Any) -> None:
        """Record the header of a response. Raises InputError if it asks to wait too long or is not what was
        requested."""
        self.response = response
        _check_wait(response)
        _check_range(response)
        _check_content(response)

    @property
    def is_file(self) -> bool:
        """Whether the request is for the bytes of a file, and not for the hub's data about it."""
        return self.request is not None and self.request.method == "GET" and "/api/" not in self.request.url.path

    @property
    def progress(self) -> int:
        """A number that grows with each byte of a file and each completed response. While it grows, a request makes
        progress."""
        response = self.response
        if response is None or response.status_code >= 400:
            return self.completed
        return self.completed + (response.num_bytes_downloaded if self.is_file else 0) + response.is_closed

    def count(self, seconds: float) -> None:
        """Add seconds that have passed. Raises ConnectionError after too many seconds without progress."""
        if self.progress != self.seen:
            self.seen, self.waited, self.idle = self.progress, 0.0, 0.0
        if self.request is None or (self.response is not None and self.response.is_closed):
            self.idle += seconds
        else:
            self.waited += seconds
        limit, what = (FILE_SECONDS, "byte of the file") if self.is_file else (API_SECONDS, "whole answer")
        if self.waited > limit:
            raise ConnectionError(f"{limit:g} s without a {what}")
        if self.idle > IDLE_SECONDS:
            raise ConnectionError(f"{IDLE_SECONDS:g} s without a request")


def _check_wait(response: Any) -> None:
    wait = response.headers.get("Retry-After", "")
    if response.status_code >= 400 and wait.isdecimal() and int(wait) > IDLE_SECONDS:
        raise InputError(
            f"the hub answers {response.status_code} and asks to wait {int(wait):,} s. Rerun after that time"
        )


def _length(response: Any) -> float:
    """Return the Content-Length of a response; infinity if it is missing or the response is encoded."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and not response.headers.get("Content-Encoding") else math.inf


def _check_content(response: Any) -> None:
    """Raise InputError if a short response of the API reports an error although its status is 200."""
    if response.status_code == 200 and "/api/" in response.request.url.path and _length(response) < SHOWN_BYTES:
        text = response.read()
        if text[:1] == b"{" and b'"error"' in text:
            raise InputError(f"the hub answers 200 with an error{shown_text(text)}. Check HF_ENDPOINT and the proxy")


def _check_range(response: Any) -> None:
    """Raise InputError if the response to a request for a range of a file has another range, or is too short. `fsspec`
    would accept it as the range, or repeat the request for ever."""
    asked = RANGE.fullmatch(response.request.headers.get("Range", ""))
    if asked is None or response.status_code not in (200, 206):
        return
    first, last = int(asked[1]), int(asked[2])
    is_whole = response.status_code == 200  # a server may send the whole file for any range
    match = CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    begins = 0 if is_whole else int(match[1]) if match else first
    if begins != first or (is_whole and _length(response) <= last):
        text = shown_text(response.read()) if _length(response) < SHOWN_BYTES else ""
        raise InputError(
            f"{shown(str(response.request.url))}: the server answers {response.status_code} to a request for the bytes "
            f"from {first:,} to {last:,}, expected 206 and these{text}. Check HF_ENDPOINT and the proxy"
        )


def shown_text(answer: str | bytes) -> str:
    """Return the start of a response in parentheses, as the end of a sentence; "" if it is empty."""
    text = scrubbed(" ".join((answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer).split()))
    return f" ({text[:200]!r})" if text else ""


@contextmanager
def _followed(requests: Requests) -> Iterator[Callable[[], None]]:
    """Report the requests inside this context to `requests`. Yield a function that also follows a client that the
    library has created since."""
    from huggingface_hub import utils

    library: Any = utils
    followed: list[tuple[Any, dict[str, list[Any]]]] = []

    def follow() -> None:
        client = library.get_session()
        if hasattr(client, "event_hooks") and not any(client is other for other, _ in followed):
            hooks = client.event_hooks
            followed.append((client, hooks))
            requests.request = None
            client.event_hooks = {
                "request": [*hooks["request"], requests.asked], "response": [*hooks["response"], requests.answered]
            }  # fmt: skip

    follow()
    try:
        yield follow
    finally:
        for client, hooks in followed:
            client.event_hooks = hooks


def limited(function: Callable[[], Value]) -> Value:
    """Return the result of a function, or raise its error. The function runs in a thread. Raises ConnectionError if its
    requests by `huggingface_hub` make no progress for too many seconds. In this case, the thread runs on until the
    process ends."""
    requests = Requests()
    outcome: list[tuple[Value | None, BaseException | None]] = []

    def work() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    with _followed(requests) as follow:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        last = time.monotonic()
        while thread.is_alive():
            thread.join(STEP_SECONDS)
            check_interrupts()
            follow()
            seconds, last = time.monotonic() - last, time.monotonic()
            requests.count(seconds)
    value, error = outcome[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # None only if the function returns None
