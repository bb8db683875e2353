# SPDX-License-Identifier: Apache-2.0
"""Time limits for the requests to an object store and to a hub.

A request fails if its response is not complete SILENT_SECONDS after its start, or after the last bytes of a file that
it sends. So an upload may take any time while the server accepts bytes, and a response that arrives too slowly ends.
The limits of the libraries do not suffice: each limits either the wait for a single byte or a whole request. aiohttp
has no limit while it sends, and httpx has none for a response of one byte per second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import cache
from typing import Any

from curation.reading import answers

SILENT_SECONDS = float(answers.SILENT_SECONDS)
JOINING_SECONDS = 600.0  # maximum for a store to join the parts of a file; meanwhile, Amazon S3 sends spaces
PIECE_BYTES = 1 << 16


class StalledError(OSError):
    """A request got no complete response in time. It is not a TimeoutError, after which s3fs and botocore would repeat
    the request many times."""


def limited_store() -> dict[str, Any]:
    """Return options of s3fs with time limits for requests, together with the options that the user has configured for
    fsspec."""
    from fsspec.config import conf

    own = {"http_session_cls": _session(), "connect_timeout": SILENT_SECONDS, "read_timeout": SILENT_SECONDS}
    configured = [conf.get(protocol, {}).get("config_kwargs", {}) for protocol in ("s3", "s3a")]
    return {"config_kwargs": configured[0] | configured[1] | own}


@cache
def _session() -> type:
    import asyncio  # here, since most runs send no requests

    from aiobotocore.httpsession import AIOHTTPSession
    from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

    async def send(self: Any, request: Any) -> Any:
        body, is_joining = request.body, request.method == "POST" and "uploadId=" in request.url
        seconds = JOINING_SECONDS if is_joining else SILENT_SECONDS
        try:
            async with asyncio.timeout(seconds) as limit:
                if body:
                    request.body = _noted(body, lambda: limit.reschedule(asyncio.get_running_loop().time() + seconds))
                return await AIOHTTPSession.send(self, request)
        except (TimeoutError, ConnectTimeoutError, ReadTimeoutError):
            raise StalledError from None
        finally:
            request.body = body  # botocore rewinds it before it repeats the request

    return type("LimitedSession", (AIOHTTPSession,), {"send": send})


async def _noted(body: Any, begin_again: Callable[[], None]) -> AsyncIterator[bytes]:
    """Yield the pieces of a body, and call a function whenever the client takes a piece: the time limit begins
    again."""
    async for block in _blocks(body):
        for start in range(0, len(block), PIECE_BYTES):
            with suppress(RuntimeError):  # the limit has been reached
                begin_again()
            yield block[start : start + PIECE_BYTES]


async def _blocks(body: Any) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        yield body
    elif hasattr(body, "__aiter__"):  # an object that adds a checksum, for encrypted connections
        async for block in body:
            yield block
    else:
        while block := body.read(PIECE_BYTES):
            yield block
