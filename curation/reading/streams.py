# SPDX-License-Identifier: Apache-2.0
"""Files as byte streams: local or remote, decompressed, and read up to whatever damage they have."""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from isal import igzip_lib

from curation.errors import InputError
from curation.reading.remote import RemoteFile
from curation.reading.urls import is_remote

COMPRESSED_STEP = 1 << 16
MOST_AHEAD = 1 << 17  # bytes that a decompressor may have ready beyond what it was asked for
OF_FILE = "the file"  # how messages begin about all that follows in a file; those about a record do not


class DamageError(EOFError):
    """What is stored cannot be decompressed, or ends too early. An error of reading itself is none: what it hides may
    be sound."""


def is_of_system(error: BaseException) -> bool:
    """Whether it says nothing of the file: memory ran out (Arrow's error is a MemoryError too), or the operating system
    raised it. Its errors have a number, those of Arrow about content have none."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


def open_raw(path: str) -> Any:
    """The bytes of a file as they are stored; seekable. InputError where it cannot be opened."""
    if is_remote(path):
        return RemoteFile(path)
    try:
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise InputError(f"cannot open {path}: {error.strerror}") from None


def open_stream(path: str, compression: str) -> Any:
    """The bytes of a file, decompressed."""
    if compression == "zstd":
        return _ZstdStream(path)
    raw = open_raw(path)
    return _MemberStream(raw, DECOMPRESSORS[compression]) if compression else raw


DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    # isal: 577 MB/s where zlib gives 178 with the parser behind it
    "gzip": partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}


class _Decompressed(io.RawIOBase):
    """A stream by its `read`."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class _MemberStream(_Decompressed):
    """All members of a compressed file, one after the other. The modules' own file objects would lose what they have
    in their buffers in front of damage."""

    def __init__(self, raw: Any, new_member: Callable[[], Any]) -> None:
        self._raw = raw
        self._new_member = new_member
        self._position = 0
        self._rescued = b""
        self._damage = ""  # its text: an error that is kept would keep its frames, and what these hold
        self._begin()

    def _begin(self) -> None:
        self._member: Any = None
        self._waiting = b""

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if not self._rescued and not self._damage:
            try:
                return self._read_some(size)
            except DamageError as error:
                self._rescue(str(error), size + MOST_AHEAD)
        found, self._rescued = self._rescued[:size], self._rescued[size:]
        if not found and self._damage:
            raise DamageError(self._damage)
        return found

    def _rescue(self, damage: str, most: int) -> None:
        """Reads what stands before damage: a call that meets it gives nothing. So what is found does not depend on how
        much was asked for. Where the damage does not come again, reading goes on behind what is found."""
        self._damage = damage
        found = bytearray()
        for step in (COMPRESSED_STEP, 1):
            wanted, self._position = self._position, 0
            self._raw.seek(0)
            self._begin()
            try:
                while self._position < wanted:
                    if not self._read_some(min(wanted - self._position, COMPRESSED_STEP)):
                        return  # the file has become shorter
                while len(found) < most and (piece := self._read_some(step)):
                    found += piece
            except DamageError as error:
                self._damage = str(error)
            else:
                self._damage = ""
                break
        self._rescued = bytes(found)

    def _read_some(self, size: int) -> bytes:
        while True:
            if self._member is None:
                if not self._waiting and not self._fill():
                    return b""
                self._waiting = self._waiting.lstrip(b"\0")  # members may be padded with zeros
                if not self._waiting:
                    continue
                self._member = self._new_member()
            ended = self._member.needs_input and not self._waiting and not self._fill()
            found = self._decompress(size)  # also at the end: bzip2 asks for input with output still inside
            if ended and not found:
                raise DamageError("it ends inside the compressed data")
            if found:
                self._position += len(found)
                return found

    def _decompress(self, size: int) -> bytes:
        data, self._waiting = self._waiting, b""
        try:
            found: bytes = self._member.decompress(data, size)
        # The stub of isal takes its class for an instance. libbzip2 answers some damage with a RuntimeError.
        except (OSError, EOFError, lzma.LZMAError, igzip_lib.error, RuntimeError) as error:  # type: ignore[misc]
            raise DamageError(str(error)) from None
        if self._member.eof:
            self._waiting = self._member.unused_data
            self._member = None
        return found

    def _fill(self) -> bool:
        self._waiting = self._raw.read(COMPRESSED_STEP)
        return bool(self._waiting)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _ZstdStream(_Decompressed):
    """All frames of a zstd file. Arrow drops what it read in front of damage, so that the last step before it is read
    again byte by byte. The zstandard package would take a cut-off frame for the end of the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stream = self._open()
        self._position = 0
        self._damage = ""

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self._damage:
            raise DamageError(self._damage)
        size = min(size, COMPRESSED_STEP)
        try:
            found = self._read_some(size)
        except DamageError as error:
            found = self._read_before(str(error), size)
        self._position += len(found)
        return found

    def _open(self) -> Any:
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(open_raw(self._path), "r"), "zstd")

    def _read_some(self, size: int) -> bytes:
        try:
            found: bytes = self._stream.read(size)
        except OSError as error:
            if is_of_system(error):
                raise
            raise DamageError(str(error)) from None
        return found

    def _read_before(self, damage: str, size: int) -> bytes:
        """What stands before damage. Where it does not come again, reading goes on."""
        self._damage = damage
        self._stream.close()
        self._stream = self._open()
        skipped = 0
        while skipped < self._position:
            passed = len(self._read_some(min(self._position - skipped, COMPRESSED_STEP)))
            if not passed:
                raise DamageError(damage)  # the file has become shorter
            skipped += passed
        found = bytearray()
        try:
            while len(found) < size and (byte := self._read_some(1)):
                found += byte
        except DamageError:
            if not found:
                raise
        else:
            self._damage = ""
        return bytes(found)

    def close(self) -> None:
        self._stream.close()
        super().close()


class Piece(NamedTuple):
    """Bytes of a stream, and what stopped it where it did not end well."""

    data: bytes
    damage: str


def read_piece(stream: Any, size: int) -> Piece:
    """`size` bytes, or what is left, or what stands before damage. OSError where reading itself fails."""
    pieces = []
    try:
        while size > 0 and (piece := stream.read(size)):
            pieces.append(piece)
            size -= len(piece)
    except DamageError as error:
        return Piece(b"".join(pieces), _told(error))
    return Piece(pieces[0] if len(pieces) == 1 else b"".join(pieces), "")


def _told(damage: DamageError) -> str:
    return f"{OF_FILE} is damaged or cut off: {damage}"


def is_damage(error: str) -> bool:
    """Whether the error of a rejected record says that the rest of its file was not read."""
    return error.startswith(OF_FILE)


def read_behind(rest: np.ndarray, stream: Any, size: int) -> tuple[np.ndarray, str]:
    """`read_piece` behind the bytes `rest`, in one array with them: what is read is not copied. Shorter than asked for
    at the end of the stream alone."""
    data = np.empty(len(rest) + size, np.uint8)
    data[: len(rest)] = rest
    end = len(rest)
    try:
        while end < len(data) and (count := stream.readinto(memoryview(data)[end:])):
            end += count
    except DamageError as error:
        return data[:end], _told(error)
    return data[:end], ""


def read_pieces(stream: Any, size: int) -> Iterator[Piece]:
    """The whole stream, piece by piece; the last one names the damage, if there is any."""
    while True:
        piece = read_piece(stream, size)
        if piece.data or piece.damage:
            yield piece
        if piece.damage or not piece.data:
            return
