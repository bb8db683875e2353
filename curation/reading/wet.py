# SPDX-License-Identifier: Apache-2.0
"""WARC records, as WET and WARC files hold them: gzipped per record, as one stream, or plain.

Framing is our own: general WARC readers take a wrong Content-Length at its word and lose the record behind it without a
word. Here a Content-Length counts where a record can end (ISO 28500, section 4): before a record or the end of the
file, or before a blank line if no other record's header stands in between. Any other record ends where the next one
begins. To look where a large one ends the file is read past it, and once more from its start if that was wrong; behind
such a one the lengths of large records do not count, so that a file is read twice at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from curation.reading.streams import Piece

RECORD = b"WARC/1."
NEXT_RECORD = b"\n" + RECORD
RECORD_END = b"\r\n\r\n"
HEADER_END = re.compile(rb"\r?\n\r?\n")
LINE_ENDS = re.compile(rb"[\r\n]*")
MOST_LINE_ENDS = 8  # that are looked at behind a record
MAX_HEADER_BYTES = 64 << 10
HELD_BYTES = 4 * MAX_HEADER_BYTES  # of a record that is passed over
RECORD_FIELDS = {"warc-type", "content-length"}
KEPT_FIELDS = {b"warc-type", b"content-length", b"warc-record-id", b"warc-target-uri", b"warc-date"}  # no others
UNKNOWN = 1 << 62
MOST_DIGITS = 18  # of a length below UNKNOWN; `int` refuses more than 4,300
SURE, BLANK = "sure", "blank"
NO_RECORD = "expected a WARC record, found other bytes"


class Record(NamedTuple):
    """One record: its offset in the decompressed file, those of its headers that are used (names in lower case), its
    content, which is not there where it is too large or damaged."""

    offset: int
    headers: dict[str, str]
    content: bytes
    damage: str = ""
    too_large: bool = False


def read_records(open_pieces: Callable[[], Iterator[Piece]], max_bytes: int) -> Iterator[Record]:
    """All records of a stream, which is opened again where that is needed, with contents of at most `max_bytes`.

    What is cut off comes as a last record with `damage`, and so does text between records that belongs to none.
    """
    window = _Window(open_pieces)
    told = ""
    while window.skip_line_ends():
        record = _next_record(window, max_bytes)
        told = record.damage
        yield record
    if window.damage and told != window.damage:
        yield Record(window.start, {}, b"", window.damage)


def _next_record(window: _Window, max_bytes: int) -> Record:
    """The record at the start of the window, which then starts behind it."""
    begin = window.start
    body = window.find_body()
    if body < 0:
        cut_off = window.data.startswith(RECORD) and len(window.data) < MAX_HEADER_BYTES
        following = window.find_record(begin + 1, 0)
        window.move_to(following)
        if window.is_at_end():
            return Record(begin, {}, b"", window.damage or ("the file ends in a header" if cut_off else NO_RECORD))
        return Record(begin, {}, b"", NO_RECORD)
    headers = _parse_headers(window.cut(begin, body))
    length = _content_length(headers)
    ending, holds_record = "", False
    if length <= max_bytes:
        ending = window.ending_at(body + length)
    elif not window.misled:
        holds_record = window.pass_over(body + length)
        ending = window.ending_at(body + length)
    if ending == BLANK and length <= max_bytes:
        holds_record = _holds_record(window.data, body - window.start, body + length - window.start)
    if ending == SURE or (ending == BLANK and not holds_record):
        content = b"" if length > max_bytes else window.cut(body, body + length)
        window.move_to(body + length)
        return Record(begin, headers, content, too_large=length > max_bytes)
    window.misled = window.misled or length > max_bytes
    window.move_back(body)
    following = window.find_record(body, max_bytes + len(RECORD_END))
    too_large = following - body > max_bytes + len(RECORD_END)
    content = b"" if too_large else window.cut(body, following).rstrip(b"\r\n")
    too_large = too_large or len(content) > max_bytes
    window.move_to(following)
    if window.is_at_end() and (window.damage or body + length > following):
        return Record(begin, headers, b"", window.damage or "the file ends inside the record")
    return Record(begin, headers, b"" if too_large else content, too_large=too_large)


class _Window:
    """What is held of a stream: the bytes from `start` on that were read. Offsets are those in the stream."""

    def __init__(self, open_pieces: Callable[[], Iterator[Piece]]) -> None:
        self.open_pieces = open_pieces
        self.stop = UNKNOWN  # where the stream ends
        self.damage = ""
        self.misled = False  # by the length of a large record: others are then not looked behind
        self._open()

    def _open(self) -> None:
        self.pieces = self.open_pieces()
        self.start, self.data = 0, bytearray()

    def _read(self) -> bool:
        piece = next(self.pieces, None)
        if piece is None:
            self.stop = self.start + len(self.data)
            return False
        self.data += piece.data
        self.damage = piece.damage
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
        """Lets go of what is before an offset, and reads on to there; stays where it is if that is known to be behind
        the end."""
        if self.stop < offset:
            return
        while self.start + len(self.data) < offset:
            self.start += len(self.data)
            self.data.clear()
            if not self._read():
                return
        del self.data[: offset - self.start]
        self.start = offset

    def move_back(self, offset: int) -> None:
        if offset < self.start:
            self._open()
        self.move_to(offset)

    def skip_line_ends(self) -> bool:
        """Whether there is anything else."""
        while True:
            ends = LINE_ENDS.match(self.data)
            self.move_to(self.start + (ends.end() if ends else 0))
            if self.data or not self._read():
                return bool(self.data)

    def find_body(self) -> int:
        """Where the content of the record begins that stands at the start; -1 if none stands there."""
        self._reach(self.start + MAX_HEADER_BYTES)
        header = HEADER_END.search(self.data, 0, MAX_HEADER_BYTES) if self.data.startswith(RECORD) else None
        if header is None or self.data.find(NEXT_RECORD, 0, header.start()) >= 0:
            return -1
        return self.start + header.end()

    def ending_at(self, offset: int) -> str:
        """How a record can end there: SURE before line ends and a record, or the end of the stream; BLANK before two
        line ends, which a text has too."""
        if not self.start <= offset <= self.stop or not self._reach(offset):
            return ""
        self._reach(offset + 2 * MOST_LINE_ENDS)
        place = offset - self.start
        ends = LINE_ENDS.match(self.data, place, place + MOST_LINE_ENDS)
        following = ends.end() if ends else place
        if following == len(self.data) or (following > place and self.data.startswith(RECORD, following)):
            return SURE
        return BLANK if self.data.startswith((RECORD_END, b"\n\n"), place) else ""

    def pass_over(self, offset: int) -> bool:
        """As `move_to`; whether the header of a record stands before the offset."""
        found = False
        while self.stop >= offset and self.start + len(self.data) < offset + len(RECORD_END):
            if len(self.data) > HELD_BYTES:
                found = found or _holds_record(self.data, 0, len(self.data))
                self.move_to(min(offset, self.start + len(self.data) - MAX_HEADER_BYTES))
            if not self._read():
                break
        found = found or _holds_record(self.data, 0, max(0, offset - self.start))
        self.move_to(offset)
        return found

    def find_record(self, offset: int, most: int) -> int:
        """Where the next record begins, or the stream ends. If that is more than `most` bytes away, they are not
        held."""
        searched = offset
        while (found := self.data.find(NEXT_RECORD, searched - self.start)) < 0:
            searched = max(offset, self.start + len(self.data) - len(NEXT_RECORD) + 1)
            if searched - offset > most:
                self.move_to(searched)
            if not self._read():
                return self.stop
        return self.start + found + 1


def _holds_record(data: bytearray, start: int, stop: int) -> bool:
    """Whether a header with the fields of a record begins in a part of the data."""
    place = data.find(NEXT_RECORD, start, stop)
    while place >= 0:
        following = data.find(NEXT_RECORD, place + 1, stop)
        most = min(place + MAX_HEADER_BYTES, stop + len(RECORD_END)) if following < 0 else following
        header = HEADER_END.search(data, place, min(most, place + MAX_HEADER_BYTES))
        if header and _parse_headers(bytes(data[place + 1 : header.start()])).keys() >= RECORD_FIELDS:
            return True
        place = following
    return False


def _parse_headers(raw: bytes) -> dict[str, str]:
    pairs = (line.partition(b":") for line in raw.splitlines()[1:])
    return {
        field.decode(): value.strip().decode("utf-8", "replace")
        for name, colon, value in pairs
        if colon and (field := name.strip().lower()) in KEPT_FIELDS
    }


def _content_length(headers: dict[str, str]) -> int:
    """The length that a record claims; 0 where it is no number."""
    value = headers.get("content-length", "")
    if not (value.isascii() and value.isdigit()):
        return 0
    digits = value.lstrip("0")
    return int(digits or 0) if len(digits) <= MOST_DIGITS else UNKNOWN
