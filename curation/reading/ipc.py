# SPDX-License-Identifier: Apache-2.0
"""Checks of lengths in Arrow IPC. Arrow allocates memory for any length that a file states, and a damaged file can
state any."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

FILE_MAGIC = b"ARROW1"  # at both ends of the file form
FILE_START = FILE_MAGIC + b"\0\0"
STREAM_BYTES = 1 << 20
SMALL = 1 << 25  # bytes; larger allocations get their own memory mapping, so a trial allocation does not grow the heap
NOT_COMPRESSED = -1  # in place of the uncompressed length of a buffer
CODECS = ("lz4", "zstd")  # by their numbers in Message.fbs
RECORD_BATCH, DICTIONARY = "record batch", "dictionary"


class Source(io.BufferedReader):
    """The file object that Arrow reads. A read needs memory only for bytes that the file has, whatever length is
    requested."""

    position = 0
    is_file = False  # whether it is the file form, whose first bytes have been skipped
    short = False  # whether the last read returned fewer bytes than requested

    def read(self, size: int | None = -1) -> Any:
        """Read up to `size` bytes. `short` then tells whether the file had fewer."""
        size = -1 if size is None else size
        data = super().read(size) if size <= SMALL or _has_room(size) else self._read_in_steps(size)
        self.position += len(data)
        self.short = len(data) < size
        return data

    def _read_in_steps(self, size: int) -> bytearray:
        data = bytearray()
        while block := super().read(min(size - len(data), STREAM_BYTES)):
            data += block
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, and store it in `position` for messages about damaged files."""
        self.position = super().seek(offset, whence)
        return self.position

    def pass_start(self) -> None:
        """Skip the first eight bytes of the file form. A stream and a footer follow these bytes."""
        self.is_file = self.peek(len(FILE_START)).startswith(FILE_START)
        if self.is_file:
            self.read(len(FILE_START))


def _has_room(size: int) -> bool:
    """Return whether `size` bytes can be allocated. The trial takes no memory, since it writes to no page."""
    try:
        np.empty(size, np.uint8)
    except (MemoryError, ValueError):
        return False
    return True


def has_forged_length(source: Source, end: int) -> bool:
    """Return whether an uncompressed length in the message that ends at byte `end` is wrong.

    The buffers of the message are decompressed and counted. A high ratio proves nothing: zstd packs 128 KiB into 4
    bytes.
    """
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
    for index in range(vector + 4, vector + 4 + 16 * _number(data, vector, 4), 16):
        start, length = _number(data, index, 8), _number(data, index + 8, 8)
        if length and not _is_true(body.slice(start, length), name):
            return True
    return False


def _is_true(stored: pa.Buffer, codec: str) -> bool:
    claim = _number(stored.slice(0, 8).to_pybytes(), 0, 8)
    if claim in (NOT_COMPRESSED, 0):
        return True
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored.slice(8)), codec) as stream:
            while size <= claim and (count := len(stream.read(STREAM_BYTES))):
                size += count
    except OSError:
        return False
    return size == claim


# FlatBuffers (https://flatbuffers.dev/internals): a table begins with the distance back to its list of fields (vtable)


def _number(data: bytes, offset: int, width: int) -> int:
    return int.from_bytes(data[offset : offset + width], "little", signed=True)


def _table(data: bytes, offset: int) -> int:
    return offset + _number(data, offset, 4)


def _field(data: bytes, table: int, field: int) -> int:
    """Return the position of a field of a table; 0 if the table does not have the field."""
    listed = table - _number(data, table, 4)
    slot = 4 + 2 * field
    offset = _number(data, listed + slot, 2) if slot < _number(data, listed, 2) else 0
    return table + offset if offset else 0
