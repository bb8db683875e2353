# SPDX-License-Identifier: Apache-2.0
"""Files as byte streams: local or remote, decompressed, and readable up to the first damage."""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from isal import igzip_lib

from curation.base.errors import InputError
from curation.base.system.os_errors import fault_of, is_of_system
from curation.base.system.steps import note_read
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.remote import RemoteFile
from curation.reading.urls import is_remote

COMPRESSED_STEP = 1 << 16  # bytes read from a compressed file per call
ZSTD_WINDOW = "Frame requires too much memory for decoding"  # end of Arrow's message, from libzstd
# Maximum window of Arrow's decompressor in bytes; `zstd --long` writes up to this size, `--long=31` 16 times
MAX_WINDOW = 1 << 27
RECOMPRESS = "Recompress it: zstd -dc --long=31 IN | zstd --long=27 -o OUT.zst"
DECODED_STEP = 1 << 12  # bytes decompressed per call; damage loses at most one step of sound data before it
FILE_DAMAGED = "the file is damaged or cut off"  # start of every error about an unread rest of a file (`is_damage`)


FILE_NOT_DECODED = "the rest of the file cannot be decompressed"  # start of the error about a file without damage


class DamageError(EOFError):
    """The content of a file cannot be decompressed, or ends too early. Failed reads of sound files raise OSError."""


class WindowError(DamageError):
    """A zstd frame needs a larger window than the decompressor has."""


class _LocalFile(io.FileIO):
    """A local file that counts the bytes that are read, since counts of records do not show the progress in a large
    file."""

    def read(self, size: int | None = -1) -> Any:
        data = super().read(size)
        note_read(len(data or b""))
        return data

    def readinto(self, buffer: Any) -> Any:
        count = super().readinto(buffer)
        note_read(count or 0)
        return count


def open_raw(path: str, planned: tuple[int, str] = (UNKNOWN_SIZE, "")) -> Any:
    """Open a local file or URL as a seekable stream of its stored bytes. Raises InputError if it cannot be opened.

    planned   size and version of a URL at planning
    """
    if is_remote(path):
        return RemoteFile(path, planned)
    try:
        return _LocalFile(path, "rb")
    except OSError as error:
        raise InputError(f"cannot open {path}: {fault_of(error)}") from None


def open_stream(path: str, compression: str, planned: tuple[int, str] = (UNKNOWN_SIZE, "")) -> Any:
    """Open a file as a stream of its decompressed bytes.

    compression   "gzip", "zstd", "bzip2", "xz", or "" for a file that is not compressed, whose stream is seekable
    planned       size and version of a URL at planning

    Raises InputError if the file cannot be opened. Reads raise DamageError at the first damage.
    """
    raw = open_raw(path, planned)
    if compression == "zstd":
        return _ZstdStream(raw)
    return _MemberStream(raw, DECOMPRESSORS[compression]) if compression else raw


DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    # isal: 577 MB/s where zlib gives 178, both with the parser
    "gzip": partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}


class _Decompressed(io.RawIOBase):
    """Decompressed bytes up to the first damage.

    A decompressor that meets damage drops the output of that call. Steps have the same size for every caller, so the
    bytes before damage do not depend on the batch size.
    """

    _decoded = b""
    _damage: tuple[type[DamageError], str] | None = None  # not an exception, which would keep frames and buffers alive

    def _decode(self) -> bytes:
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self._damage:
            kind, text = self._damage
            raise kind(text)
        if not self._decoded:
            try:
                self._decoded = self._decode()
            except DamageError as error:
                self._damage = type(error), str(error)
                raise
        data, self._decoded = self._decoded[:size], self._decoded[size:]
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _MemberStream(_Decompressed):
    """All members of a compressed file, in order. The file objects of `gzip`, `bz2` and `lzma` lose more on damage."""

    def __init__(self, raw: Any, new_member: Callable[[], Any]) -> None:
        self._raw = raw
        self._new_member = new_member
        self._member: Any = None
        self._compressed = b""

    def _decode(self) -> bytes:
        while True:
            if self._member is None:
                if not self._compressed and not self._fill():
                    return b""
                self._compressed = self._compressed.lstrip(b"\0")  # members may be padded with zeros
                if not self._compressed:
                    continue
                self._member = self._new_member()
            ended = self._member.needs_input and not self._compressed and not self._fill()
            data = self._decompress()  # at the end, too: bzip2 asks for input while it still has output
            if ended and not data:
                raise DamageError("it ends inside the compressed data")
            if data:
                return data

    def _decompress(self) -> bytes:
        compressed, self._compressed = self._compressed, b""
        try:
            data: bytes = self._member.decompress(compressed, DECODED_STEP)
        # The type stub of isal confuses its class with an instance. libbzip2 reports some damage as RuntimeError.
        except (OSError, EOFError, lzma.LZMAError, igzip_lib.error, RuntimeError) as error:  # type: ignore[misc]
            raise DamageError(str(error)) from None
        if self._member.eof:
            self._compressed = self._member.unused_data
            self._member = None
        return data

    def _fill(self) -> bool:
        self._compressed = self._raw.read(COMPRESSED_STEP)
        return bool(self._compressed)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _ZstdStream(_Decompressed):
    """All frames of a zstd file, decompressed by Arrow. The zstandard package treats a truncated frame as the end of
    the file."""

    def __init__(self, raw: Any) -> None:
        import pyarrow as pa

        self._stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")

    def _decode(self) -> bytes:
        try:
            data: bytes = self._stream.read(DECODED_STEP)
        except OSError as error:
            if is_of_system(error):
                raise
            if str(error).endswith(ZSTD_WINDOW):
                raise WindowError(f"a frame has a window above {MAX_WINDOW >> 20} MB. {RECOMPRESS}") from None
            raise DamageError(str(error)) from None
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()


class StreamChunk(NamedTuple):
    """Consecutive bytes of a stream, and the damage after them ("" for none)."""

    data: bytes
    damage: str


def read_chunk(stream: Any, size: int) -> StreamChunk:
    """Return the next `size` bytes of a stream; fewer at its end and before damage. Raises OSError for failed reads."""
    blocks = []
    try:
        while size > 0 and (block := stream.read(size)):
            blocks.append(block)
            size -= len(block)
    except DamageError as error:
        return StreamChunk(b"".join(blocks), _describe(error))
    return StreamChunk(blocks[0] if len(blocks) == 1 else b"".join(blocks), "")


def _describe(damage: DamageError) -> str:
    return f"{FILE_NOT_DECODED if isinstance(damage, WindowError) else FILE_DAMAGED}: {damage}"


def is_damage(error: str) -> bool:
    """Return whether the error of a rejected record says that the rest of its file was not read."""
    return error.startswith((FILE_DAMAGED, FILE_NOT_DECODED))


def new_bytes(size: int) -> np.ndarray:
    """Return an uninitialised array of bytes (uint8)."""
    return np.empty(size, np.uint8)


def read_after(
    rest: np.ndarray, stream: Any, size: int, empty: Callable[[int], np.ndarray] = new_bytes
) -> tuple[np.ndarray, str]:
    """Return `rest` (uint8) followed by the next `size` bytes of a stream, and the damage after them ("" for none).

    The array (uint8) is made by `empty`. It is shorter at the end of the stream and before damage. The new bytes are
    not copied.
    """
    data = empty(len(rest) + size)
    data[: len(rest)] = rest
    end = len(rest)
    try:
        while end < len(data) and (count := stream.readinto(memoryview(data)[end:])):
            end += count
    except DamageError as error:
        return data[:end], _describe(error)
    return data[:end], ""


def read_chunks(stream: Any, size: int) -> Iterator[StreamChunk]:
    """Yield the whole stream in chunks of `size` bytes. Only the last one can have damage."""
    while True:
        chunk = read_chunk(stream, size)
        if chunk.data or chunk.damage:
            yield chunk
        if chunk.damage or not chunk.data:
            return
