# SPDX-License-Identifier: Apache-2.0
"""Reads records of WET and WARC files, which are gzipped per record or as one stream, or not compressed.

General WARC readers trust a wrong Content-Length and silently lose the next record. Here a Content-Length counts only
where a record can end (ISO 28500, section 4): before another record or the end of the file, or before a blank line if
the content holds no other record's header. Every other record ends where the next header begins. So does a record whose
Content-Length is above `max_bytes`, which is rejected and never in memory as a whole. A file is read only once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from curation.reading.streams import StreamChunk

RECORD = b"WARC/1."
NEXT_RECORD = b"\n" + RECORD
RECORD_END = b"\r\n\r\n"
HEADER_END = re.compile(rb"\r?\n\r?\n")
LINE_ENDS = re.compile(rb"[\r\n]*")
FOLDED = re.compile(rb"\r?\n[ \t]+")  # a header value that continues on the next line
FOLD = b"\t"  # replaces such a line end, since values have no tabs
ENCLOSED = re.compile(r"<(.*)>|\"(.*)\"|'(.*)'", re.DOTALL)
MAX_LINE_ENDS = 8  # bytes of line ends that are searched after a record
MAX_HEADER_BYTES = 64 << 10
RECORD_FIELDS = {"warc-type", "content-length"}
KEPT_FIELDS = {
    b"warc-type", b"content-length", b"content-type", b"warc-record-id", b"warc-target-uri", b"warc-date"
}  # fmt: skip
URIS = {b"warc-record-id", b"warc-target-uri"}
MAX_DIGITS = 18  # maximum digits of a Content-Length; `int` refuses more than 4,300
BOUNDARY, BLANK_LINE = "boundary", "blank line"
NO_RECORD = "expected a WARC record, found other bytes"


class Record(NamedTuple):
    """One record.

    offset      where the record begins, in bytes of the decompressed file
    headers     the headers in KEPT_FIELDS: name in lower case -> value that `_clean` returns
    content     empty if the record is damaged or too large
    damage      why the record cannot be read; "" if it can
    too_large   whether the record, or its Content-Length, exceeds the limit
    """

    offset: int
    headers: dict[str, str]
    content: bytes
    damage: str = ""
    too_large: bool = False


def read_records(chunks: Iterator[StreamChunk], max_bytes: int) -> Iterator[Record]:
    """Yield all records of a decompressed stream, with contents of at most `max_bytes`.

    A truncated record, and bytes between records that belong to no record, are yielded as records with `damage`.
    """
    window = _HeldBytes(chunks)
    reported = ""
    while window.skip_line_ends():
        record = _next_record(window, max_bytes)
        reported = record.damage
        yield record
    if window.damage and reported != window.damage:
        yield Record(window.start, {}, b"", window.damage)


def _next_record(window: _HeldBytes, max_bytes: int) -> Record:
    """Return the record at the start of the window, and move the window to the next one."""
    begin = window.start
    body = window.find_body()
    if body < 0:
        truncated = window.data.startswith(RECORD) and len(window.data) < MAX_HEADER_BYTES
        window.move_to(window.find_record(begin + 1, 0))
        if window.is_at_end():
            return Record(begin, {}, b"", window.damage or ("the file ends in a header" if truncated else NO_RECORD))
        return Record(begin, {}, b"", NO_RECORD)
    headers = _parse_headers(window.cut(begin, body))
    length = _content_length(headers)
    too_large = length > max_bytes
    if not too_large and window.is_record_end(body, body + length):
        content = window.cut(body, body + length)
        window.move_to(body + length)
        return Record(begin, headers, content)
    held = 0 if too_large else max_bytes + len(RECORD_END)
    following = window.find_record(body, held)
    too_large = too_large or following - body > held
    content = b"" if too_large else window.cut(body, following).rstrip(b"\r\n")
    too_large = too_large or len(content) > max_bytes
    window.move_to(following)
    if window.is_at_end() and (window.damage or body + length > following):
        return Record(begin, headers, b"", window.damage or "the file ends inside the record")
    return Record(begin, headers, b"" if too_large else content, too_large=too_large)


class _HeldBytes:
    """The bytes of a stream from `start` on that have been read and not dropped. All offsets are offsets in the
    stream."""

    def __init__(self, chunks: Iterator[StreamChunk]) -> None:
        self.chunks = chunks
        self.damage = ""
        self.start, self.data = 0, bytearray()
        self.judged = 0  # headers that begin before this offset have been checked
        self.last_header = -1, -1  # start and end of the last header with all RECORD_FIELDS

    def _read(self) -> bool:
        chunk = next(self.chunks, None)
        if chunk is None:
            return False
        self.data += chunk.data
        self.damage = chunk.damage
        return True

    def _reach(self, offset: int) -> bool:
        while self.start + len(self.data) < offset:
            if not self._read():
                return False
        return True

    def is_at_end(self) -> bool:
        return not self._reach(self.start + 1)

    def cut(self, start: int, stop: int) -> bytes:
        return bytes(self.data[start - self.start : stop - self.start])

    def move_to(self, offset: int) -> None:
        """Drop the bytes before an offset that has been read."""
        del self.data[: offset - self.start]
        self.start = offset

    def skip_line_ends(self) -> bool:
        """Drop line ends at the start. Return whether other bytes follow."""
        while True:
            ends = LINE_ENDS.match(self.data)
            self.move_to(self.start + (ends.end() if ends else 0))
            if self.data or not self._read():
                return bool(self.data)

    def find_body(self) -> int:
        """Return the offset of the content of the record that begins at `start`; -1 if no record begins at `start`."""
        self._reach(self.start + MAX_HEADER_BYTES)
        if not self.data.startswith(RECORD):
            return -1
        following = self.data.find(NEXT_RECORD, 0, MAX_HEADER_BYTES)
        header = HEADER_END.search(self.data, 0, following + 1 if following >= 0 else MAX_HEADER_BYTES)
        return self.start + header.end() if header else -1

    def is_record_end(self, body: int, offset: int) -> bool:
        """Return whether the record whose content begins at `body` can end at `offset`."""
        ending = self._ending_at(offset)
        return ending == BOUNDARY or (ending == BLANK_LINE and not self._holds_record(body, offset))

    def _ending_at(self, offset: int) -> str:
        """Return what follows `offset`: BOUNDARY for line ends and then a record or the end of the stream, BLANK_LINE
        for two line ends before other bytes, else ""."""
        if not self._reach(offset):
            return ""
        self._reach(offset + 2 * MAX_LINE_ENDS)
        index = offset - self.start
        ends = LINE_ENDS.match(self.data, index, index + MAX_LINE_ENDS)
        following = ends.end() if ends else index
        if following == len(self.data) or (following > index and self.data.startswith(RECORD, following)):
            return BOUNDARY
        return BLANK_LINE if self.data.startswith((RECORD_END, b"\n\n"), index) else ""

    def find_record(self, offset: int, held: int) -> int:
        """Return where the next record begins or the stream ends. If more than `held` bytes are before it, they are
        dropped."""
        searched = offset
        while (index := self.data.find(NEXT_RECORD, searched - self.start)) < 0:
            searched = max(offset, self.start + len(self.data) - len(NEXT_RECORD) + 1)
            if searched - offset > held:
                self.move_to(searched)
            if not self._read():
                return self.start + len(self.data)
        return self.start + index + 1

    def _holds_record(self, first: int, last: int) -> bool:
        """Return whether a header with all RECORD_FIELDS begins in a range of the stream that ends at a blank line.

        If many records cannot end, their ranges overlap. So the result for each header is stored, and each header is
        checked once.
        """
        if self.last_header[0] >= first:
            return self.last_header[0] + len(NEXT_RECORD) <= last and self.last_header[1] <= last + len(RECORD_END)
        index = self.data.find(NEXT_RECORD, max(first, self.judged) - self.start, last - self.start)
        while index >= 0:
            following = self.data.find(NEXT_RECORD, index + 1, last - self.start)
            limit = following if following >= 0 else last - self.start + len(RECORD_END)
            header = HEADER_END.search(self.data, index, min(limit, index + MAX_HEADER_BYTES))
            if header and _parse_headers(bytes(self.data[index + 1 : header.start()])).keys() >= RECORD_FIELDS:
                self.judged, self.last_header = self.start + index, (self.start + index, self.start + header.end())
                return True
            index = following
        self.judged = max(self.judged, last - len(NEXT_RECORD) + 1)
        return False


def _parse_headers(raw: bytes) -> dict[str, str]:
    """Return the headers in KEPT_FIELDS. Two different types are joined, so that the result is an unknown type."""
    headers: dict[str, str] = {}
    for line in FOLDED.sub(FOLD, raw).splitlines()[1:]:
        name, colon, content = line.partition(b":")
        if colon and (field := name.strip().lower()) in KEPT_FIELDS:
            value = _clean(content.replace(FOLD, b"" if field in URIS else b" "))
            first = headers.get("warc-type", value) if field == b"warc-type" else value
            headers[field.decode()] = value if first == value else f"{first}, {value}"
    return headers


def _clean(content: bytes) -> str:
    """Return the value of a field without blanks, brackets and quotes around it. wget 1.19 to 1.21 writes
    `<http://...>`, as the grammar of WARC 1.0 says by mistake (ISO 28500:2017 has no brackets there)."""
    value = content.decode("utf-8", "replace").strip()
    while match := ENCLOSED.fullmatch(value):
        value = match[match.lastindex or 0].strip()
    return value


def _content_length(headers: dict[str, str]) -> int:
    """Return the Content-Length of a record in bytes; 0 if it is not a number of at most MAX_DIGITS digits."""
    value = headers.get("content-length", "")
    if not (value.isascii() and value.isdigit()):
        return 0
    digits = value.lstrip("0")
    return int(digits or 0) if len(digits) <= MAX_DIGITS else 0
