# SPDX-License-Identifier: Apache-2.0
"""The bytes and lengths of Arrow IPC. Arrow allocates each length that a file has, and a damaged file has any."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

FILE_MAGIC = b"ARROW1"  # at both ends of the file form
FILE_START = FILE_MAGIC + b"\0\0"
STREAM_BYTES = 1 << 20
SMALL = 1 << 25  # bytes; a larger allocation gets its own mapping, so that trying it leaves the heap as it is
NOT_COMPRESSED = -1  # in place of a buffer's uncompressed length
CODECS = ("lz4", "zstd")  # numbered in Message.fbs
RECORD_BATCH, DICTIONARY = "record batch", "dictionary"


class Source(io.BufferedReader):
    """What Arrow reads from. A length takes as much memory as there are bytes, whatever it is."""

    position = 0
    is_file = False  # of the file form, whose first bytes were passed
    short = False  # whether the last read gave less than was asked for

    def read(self, size: int | None = -1) -> Any:
        size = -1 if size is None else size
        found = super().read(size) if size <= SMALL or _has_room(size) else self._read_in_steps(size)
        self.position += len(found)
        self.short = len(found) < size
        return found

    def _read_in_steps(self, size: int) -> bytearray:
        found = bytearray()
        while piece := super().read(min(size - len(found), STREAM_BYTES)):
            found += piece
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = super().seek(offset, whence)
        return self.position

    def pass_start(self) -> None:
        """The file form is the stream form behind eight bytes, with a footer behind it."""
        self.is_file = self.peek(len(FILE_START)).startswith(FILE_START)
        if self.is_file:
            self.read(len(FILE_START))


def _has_room(size: int) -> bool:
    """Whether so many bytes can be allocated; pages that nothing is written to take no memory."""
    try:
        np.empty(size, np.uint8)
    except (MemoryError, ValueError):
        return False
    return True


def has_forged_length(source: Source, end: int) -> bool:
    """Whether a length in the message that ends at `end` is not that of what is compressed there. All of it is
    decompressed and counted: the ratio alone proves nothing, zstd packs 128 KiB into 4 bytes."""
    source.pass_start()
    for message in pa.ipc.MessageReader.open_stream(pa.PythonFile(source, "r")):
        if source.position >= end:
            return message.type in (RECORD_BATCH, DICTIONARY) and _is_forged(message)
    return False


def _is_forged(message: pa.Message) -> bool:
    data, body = message.metadata.to_pybytes(), message.body
    batch = _table(data, _field(data, _table(data, 0), 2))
    if message.type == DICTIONARY:
        batch = _table(data, _field(data, batch, 1))
    compression, buffers = _field(data, batch, 3), _field(data, batch, 2)
    if not compression or not buffers:
        return False
    codec = _field(data, _table(data, compression), 0)
    name = CODECS[data[codec] if codec else 0]
    vector = _table(data, buffers)
    for at in range(vector + 4, vector + 4 + 16 * _number(data, vector, 4), 16):
        start, length = _number(data, at, 8), _number(data, at + 8, 8)
        if length and not _is_true(body.slice(start, length), name):
            return True
    return False


def _is_true(stored: pa.Buffer, codec: str) -> bool:
    claim = _number(stored.slice(0, 8).to_pybytes(), 0, 8)
    if claim in (NOT_COMPRESSED, 0):
        return True
    found = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored.slice(8)), codec) as stream:
            while found <= claim and (count := len(stream.read(STREAM_BYTES))):
                found += count
    except OSError:
        return False
    return found == claim


# FlatBuffers (https://flatbuffers.dev/internals): a table begins with the distance back to where its fields are listed


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little", signed=True)


def _table(data: bytes, at: int) -> int:
    return at + _number(data, at, 4)


def _field(data: bytes, table: int, field: int) -> int:
    """Where a field of a table is; 0 where it is left out."""
    listed = table - _number(data, table, 4)
    slot = 4 + 2 * field
    offset = _number(data, listed + slot, 2) if slot < _number(data, listed, 2) else 0
    return table + offset if offset else 0
