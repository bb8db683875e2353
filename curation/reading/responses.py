# SPDX-License-Identifier: Apache-2.0
"""HTTP responses in WARC files.

Some files store bodies as transferred, others store decoded bodies with unchanged headers. So a body that does not
begin like the encoding in its headers is used unchanged, as in warcio.

The media type says whether a body is HTML or text, as in browsers. Without a media type, or with `text/plain`, the
first bytes of the body decide (WHATWG MIME Sniffing, sections 7.1 and 7.2).
"""

from __future__ import annotations

import re
import zlib

import pyarrow as pa

from curation.base.errors import installation
from curation.reading.documents import too_large
from curation.reading.page_encodings import MARKS

HEADER_END = re.compile(rb"\r?\n\r?\n")
FOLDED = re.compile(r"\r?\n[ \t]+")  # a header value that continues on the next line
STATUS = re.compile(rb"HTTP/[0-9.]+[ \t]+([0-9]{3})\b")
QUOTES = "\"' \t"
HTML, TEXT = "page", "plain"  # kinds of content
SNIFFED = ("", "unknown/unknown", "application/unknown", "*/*")  # media types without information
SNIFFED_BYTES = 1445
HTML_STARTS = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?"
    rb"<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|!--)[ >]",
    re.IGNORECASE,
)
BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
CHUNK_START = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r?(?:\n|\Z)")
CHUNK_END = re.compile(rb"\r?\n|\Z")
MAX_HEAD_BYTES = 64 << 10  # header fields after these bytes are ignored
MAX_CODINGS = 10
GZIP_START, ZSTD_START, HTML_START = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"<"
ZSTD_CUT_OFF = "Truncated compressed stream"  # an error of Arrow
STEP = 1 << 16  # bytes that are decoded at once
GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS  # zlib's wbits for these forms


def split(response: bytes) -> tuple[dict[str, str], bytes]:
    """Return the headers, by name in lower case, and the body. Repeated fields are joined with commas."""
    end = HEADER_END.search(response)
    stop, body = (end.start(), response[end.end() :]) if end else (len(response), b"")
    lines = FOLDED.sub(" ", response[: min(stop, MAX_HEAD_BYTES)].decode("latin-1")).split("\n")
    headers: dict[str, list[str]] = {}
    for line in lines[1:] if stop <= MAX_HEAD_BYTES else lines[1:-1]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), []).append(value.strip())
    return {name: ",".join(values) for name, values in headers.items()}, body


def status_of(response: bytes) -> str:
    """Return the status code of a response, such as "200"; "" without one."""
    match = STATUS.match(response)
    return match[1].decode() if match else ""


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header in lower case, without parameters: `text/html`."""
    return content_type.partition(";")[0].partition(",")[0].strip(QUOTES).lower()


def is_html(content_type: str) -> bool:
    """Return whether a Content-Type header names HTML: `text/html`, `application/xhtml+xml`."""
    return "html" in content_type.lower()


def may_be_page(content_type: str) -> bool:
    """Return whether a body with this Content-Type header may be HTML or text."""
    return is_html(content_type) or media_type(content_type) in (*SNIFFED, "text/plain")


def sniff(content_type: str, body: bytes) -> str:
    """Return HTML or TEXT; "" for other content, and for white space alone."""
    if is_html(content_type):
        return HTML
    if not may_be_page(content_type):
        return ""
    if HTML_STARTS.match(body):
        return HTML
    is_marked = body.startswith((*MARKS,))  # begins with the mark of UTF-16, whose text has NULs
    return TEXT if body.strip() and (is_marked or not BINARY.search(body, 0, SNIFFED_BYTES)) else ""


def decode(headers: dict[str, str], body: bytes, max_bytes: int) -> bytes:
    """Return the body without its transfer and content encodings (chunked, gzip, deflate, Brotli, zstd).

    For a truncated body, return its decoded start. Raises ValueError for a damaged body, a decoded body above
    `max_bytes`, other encodings, and more than MAX_CODINGS encodings.
    """
    for field in ("transfer-encoding", "content-encoding"):
        codings = [coding.strip() for coding in headers.get(field, "").lower().split(",")]
        codings = [coding for coding in codings if coding not in ("", "identity")]
        if len(codings) > MAX_CODINGS:
            raise ValueError(f"the page is encoded {len(codings)} times; up to {MAX_CODINGS} encodings can be read")
        for coding in reversed(codings):
            body = _undo(coding, body, max_bytes)
    return body


def _undo(coding: str, body: bytes, max_bytes: int) -> bytes:
    match coding:
        case "chunked":
            return _join_chunks(body)
        case "gzip" | "x-gzip":
            return _inflate(body, GZIP, max_bytes) if body.startswith(GZIP_START) else body
        case "deflate":
            return _undo_deflate(body, max_bytes)
        case "br":
            return _undo_brotli(body, max_bytes)
        case "zstd":
            return _undo_zstd(body, max_bytes) if body.startswith(ZSTD_START) else body
    raise ValueError(f"the page is encoded as {coding!r}; chunked, gzip, deflate, br and zstd can be read")


def _join_chunks(body: bytes) -> bytes:
    chunks = bytearray()  # a list of chunks of one byte would take 40 times the memory
    offset = 0
    while offset < len(body):
        head = CHUNK_START.match(body, offset)
        stop = head.end() + int(head[1], 16) if head else 0
        if head and stop == head.end():
            break
        end = CHUNK_END.match(body, stop) if head else None
        if head is None or end is None:
            if not chunks:
                return body
            raise ValueError("the chunks of the page are damaged")
        chunks += body[head.end() : stop]
        offset = end.end()
    return bytes(chunks)


def _undo_deflate(body: bytes, max_bytes: int) -> bytes:
    """Decode the zlib form (RFC 9110, section 8.4.1), or the raw deflate stream that many servers send."""
    if len(body) > 1 and body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0:
        return _inflate(body, ZLIB, max_bytes)
    try:
        return _inflate(body, RAW, max_bytes)
    except ValueError:
        if body.lstrip().startswith(HTML_START):
            return body
        raise


def _inflate(body: bytes, form: int, max_bytes: int) -> bytes:
    """Decode all members of gzip, or the single stream of another form."""
    bodies: list[bytes] = []
    remaining = max_bytes
    while body:
        stream = zlib.decompressobj(form)
        try:
            bodies.append(stream.decompress(body, remaining + 1))
        except zlib.error as error:
            raise ValueError(f"the compressed page is damaged: {error}") from None
        remaining -= len(bodies[-1])
        if remaining < 0:
            raise ValueError(too_large(max_bytes))
        body = stream.unused_data if stream.unused_data.startswith(GZIP_START) else b""
    return b"".join(bodies)


def _undo_brotli(body: bytes, max_bytes: int) -> bytes:
    """Decode Brotli (RFC 7932). Brotli has no signature. If decoding fails and the body begins like HTML, the body is
    already decoded."""
    try:
        import brotli
    except ImportError:
        raise ValueError(f"the page is encoded as 'br', which needs brotli: {installation('warc')}") from None
    try:
        decoded = bytes(brotli.Decompressor().process(body, output_buffer_limit=max_bytes + 1))
    except brotli.error as error:
        if body.lstrip().startswith(HTML_START):
            return body
        raise ValueError(f"the compressed page is damaged: {error}") from None
    if len(decoded) > max_bytes:  # above by at most a block, since decoding stops there
        raise ValueError(too_large(max_bytes))
    return decoded


def _undo_zstd(body: bytes, max_bytes: int) -> bytes:
    decoded = bytearray()
    with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
        try:
            while (block := stream.read(STEP)) and len(decoded) <= max_bytes:
                decoded += block
        except OSError as error:
            if not str(error).startswith(ZSTD_CUT_OFF):
                raise ValueError(f"the compressed page is damaged: {error}") from None
    if len(decoded) > max_bytes:
        raise ValueError(too_large(max_bytes))
    return bytes(decoded)
