# SPDX-License-Identifier: Apache-2.0
"""Sends HTTP requests to an endpoint, by the package `openai`. Each request ends within a limit of its total time.

The client's own time limit restarts with each byte that arrives. Here the client runs on an event loop in a separate
thread, where a request can be cancelled at any wait: for a name, a connection, TLS, headers, redirects and bodies.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from curation.base.errors import InputError, installation
from curation.reading.urls import shown
from curation.tools.synthesis.completions import StatusError, error_text
from curation.tools.synthesis.credentials import Credentials

MAX_BYTES = 8_000_000  # most bytes of an answer; 100,000 tokens are about 0.5 MB
MAX_ERROR_BYTES = 64_000  # most bytes of the body of an HTTP error
MAX_WAIT_SECONDS = 3600.0  # longest wait that an endpoint may ask for
CLOSE_SECONDS = 2.0
PROXIES = ("http", "https", "socks5", "socks5h")
SAME_METHOD = (307, 308)  # redirects that keep a POST; others turn it into a GET
LOGGERS = (
    "openai._base_client", "httpx", "httpx2",
    *(f"{core}.{part}" for core in ("httpcore", "httpcore2") for part in ("connection", "http11", "proxy", "socks")),
)  # fmt: skip

_opened: ContextVar[list[asyncio.Transport]] = ContextVar("opened")  # connections that the current request has opened


class Connection:
    """The client of an endpoint. Raises InputError without the package `openai`, or if no client can be made.

    proxy   the proxy of its requests, without user name and password; "" for none
    """

    def __init__(self, url: str, credentials: Credentials) -> None:
        try:
            import openai
        except ImportError as error:
            raise InputError(f"generate needs the package openai ({error}). Run: {installation('llm')}") from None
        self._openai, self._hide = openai, credentials.hidden_in_message
        parts = urlsplit(url)
        proxy = proxy_for(url)
        self.proxy = shown(proxy)
        base = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        headers = {"Accept-Encoding": "identity"}
        if any(credentials.login):  # not in the URL, which the libraries log
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(credentials.login).encode()).decode()}"
        try:
            client = openai.DefaultAsyncHttpxClient(
                event_hooks={"response": [_refuse]}, params=parts.query,
                proxy=proxy or None, trust_env=False, verify=_certificates() if parts.scheme == "https" else True,
            )  # fmt: skip
            self._client = openai.AsyncOpenAI(
                base_url=base, api_key=credentials.key or "none", max_retries=0, timeout=None, http_client=client,
                default_headers=headers,
            )  # fmt: skip
        except ImportError as error:
            raise InputError(f"the proxy {self.proxy} of the environment needs another package: {error}") from None
        except InputError:
            raise
        except Exception as error:  # errors of the client's libraries, whose texts may contain a part of a password
            wrong = f"the proxy {self.proxy} of the environment" if proxy else shown(url)
            name = type(error).__name__
            raise InputError(f"{wrong} is no valid URL ({name}). Check its host and its port") from None
        self._create = self._client.chat.completions.with_streaming_response.create  # imports modules, for seconds
        self._loop = _Loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._hide_record)

    def body(self, content: dict[str, Any], seconds: float) -> bytes:
        """Send a request, and return the body of its answer, cut after MAX_BYTES.

        TimeoutError: the complete answer has not arrived after `seconds`. StatusError: the endpoint answers with an
        HTTP error. Other errors are those of the client's libraries.
        """
        try:
            return asyncio.run_coroutine_threadsafe(self._body(content, seconds), self._loop).result()
        except self._openai.OpenAIError as error:
            cause = error.__cause__ or error
        raise cause  # outside of the handler, where the two errors would refer to each other

    async def _body(self, content: dict[str, Any], seconds: float) -> bytes:
        others = dict(content)
        named = {"model": others.pop("model"), "messages": others.pop("messages")}
        opened: list[asyncio.Transport] = []
        _opened.set(opened)
        async with asyncio.timeout(seconds):
            try:
                async with self._create(**named, extra_body=others) as response:
                    return await _beginning(response.http_response, MAX_BYTES)
            except asyncio.CancelledError:
                for transport in opened:  # the client leaves one open whose TLS handshake is cancelled
                    transport.abort()
                raise

    def close(self) -> None:
        """End the requests under way, and close the connections."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self._hide_record)

    async def _end(self) -> None:
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await self._client.close()

    def _hide_record(self, record: logging.LogRecord) -> bool:
        """Hide the credentials in the log lines of the libraries about these requests, and leave tracebacks out."""
        if record.thread == self._thread.ident:
            record.msg, record.args, record.exc_info = self._hide(record.getMessage()), None, None
        return True


class _Loop(asyncio.SelectorEventLoop):
    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Open a connection, and note that the current request has opened it."""
        opened: tuple[asyncio.Transport, Any] = await super().create_connection(*arguments, **options)
        _opened.get().append(opened[0])
        return opened

    async def getaddrinfo(self, *arguments: Any, **options: Any) -> Any:
        """Look a name up in a thread that nothing waits for at the end, since a look-up cannot be stopped."""
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()
        look_up = partial(socket.getaddrinfo, *arguments, **options)
        threading.Thread(target=_fill, args=(result, look_up), daemon=True).start()
        return await asyncio.wrap_future(result, loop=self)


def _fill(result: Future[Any], function: Callable[[], Any]) -> None:
    try:
        result.set_result(function())
    except Exception as error:
        result.set_exception(error)


async def _refuse(response: Any) -> None:
    """Raise StatusError for an HTTP error, with only the beginning of its body, since the package would read all of it.

    A redirect to another origin is an error too, since the request contains the texts of the task, and the key.
    """
    if response.is_success:
        return
    target = response.url.join(response.headers["location"]) if response.has_redirect_location else None
    if target and response.status_code in SAME_METHOD and _origin(target) == _origin(response.url):
        return
    try:
        body = await _beginning(response, MAX_ERROR_BYTES)
    except Exception:  # the body is cut or cannot be decompressed, but the status is known
        body = b""
    detail = error_text(body.decode("utf-8", "replace"))
    wait = seconds_in(response.headers.get("retry-after", ""))
    raise StatusError(response.status_code, detail, wait, shown(str(target or "")))


def _origin(url: Any) -> tuple[Any, ...]:
    return url.scheme, url.host, url.port


async def _beginning(response: Any, most: int) -> bytes:
    """Return the first bytes of a body: at least `most` if it has so many. Some servers compress the body although the
    request does not allow it."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            break
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(wbits=32 + zlib.MAX_WBITS).decompress(bytes(body), most + 1)
    if encoding != "identity":
        raise ValueError(f"its Content-Encoding is {encoding}, expected none")
    return bytes(body)


def seconds_in(retry_after: str) -> float:
    """Return the seconds of a Retry-After header, which may be a date; 0 without one, at most MAX_WAIT_SECONDS."""
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", retry_after):
        return min(float(retry_after), MAX_WAIT_SECONDS)
    try:
        seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError):  # also for dates outside the calendar
        return 0
    return min(max(seconds, 0.0), MAX_WAIT_SECONDS)


def proxy_for(url: str) -> str:
    """Return the proxy that the environment names for a URL; "" if there is none, or NO_PROXY excludes the URL's host.

    InputError: a proxy of an unknown kind. The client would refuse such a proxy even if no request needs it.
    """
    parts, proxies = urlsplit(url), getproxies()
    host = parts.hostname or ""
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or any(map(proxy_bypass, (host, f"{host}:{parts.port}"))) or _is_in(host, proxies.get("no", "")):
        return ""
    scheme, mark, _ = proxy.partition("://")
    if mark and scheme.lower() not in PROXIES:
        raise InputError(
            f"the proxy {shown(proxy)} of the environment has a scheme that cannot be used, expected one of "
            f"{', '.join(PROXIES)}. Set {parts.scheme}_proxy, or no_proxy={host} to ask {shown(url)} without it"
        )
    return proxy if mark else f"http://{proxy}"


def _is_in(host: str, networks: str) -> bool:
    """Whether the host is an address in one of the networks. Desktops write networks such as `127.0.0.0/8` to
    no_proxy."""
    for network in networks.split(","):
        with suppress(ValueError):
            if ipaddress.ip_address(host) in ipaddress.ip_network(network.strip(), strict=False):
                return True
    return False


def _certificates() -> ssl.SSLContext | bool:
    """Return the certificates that the environment names, by the same rules as the client; True means the client's
    default."""
    for variable, argument in (("SSL_CERT_FILE", "cafile"), ("SSL_CERT_DIR", "capath")):
        if path := os.environ.get(variable):
            try:
                return ssl.create_default_context(**{argument: path})  # type: ignore[arg-type]
            except OSError as error:
                raise InputError(
                    f"{variable} is {path}, where no certificates can be read ({error}). Correct or unset it"
                ) from None
    return True
