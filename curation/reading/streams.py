# SPDX-License-Identifier: Apache-2.0
"""Files as byte streams: local or remote, decompressed, and read up to whatever damage they have."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from isal import igzip_lib

from curation.errors import InputError

COMPRESSED_STEP = 1 << 16
MOST_AHEAD = 1 << 17  # bytes that a decompressor may have ready beyond what it was asked for
REMOTE_STEP = 1 << 20
REMOTE_TRIES = 5
NOT_FOUND, DENIED = 404, (401, 403)  # what servers answer
UNKNOWN_SIZE = -1
OF_FILE = "the file"  # how messages begin about all that follows in a file; those about a record do not
FIRST_WAIT_SECONDS = 0.5  # doubled after each failed try
CHAIN = re.compile(r"::(?![^\[]*\])")  # between URLs, but not in an IPv6 address
AUTHORITY_END = re.compile(r"[/?#]")
QUERY = re.compile(r"[?#]")
SECRETS_IN_TEXT = re.compile(r"""//[^\s/'"]*@|\?[^\s'")\]>]+""")


class DamageError(EOFError):
    """What is stored cannot be decompressed, or ends too early. An error of reading itself is none: what it hides may
    be sound."""


def is_of_system(error: BaseException) -> bool:
    """Whether it says nothing of the file: memory ran out (Arrow's error is a MemoryError too), or the operating system
    raised it. Its errors have a number, those of Arrow about content have none."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)


def is_remote(path: str) -> bool:
    """Whether a path is an URL for fsspec (`s3://`, `https://`, `memory://`, ...)."""
    return "://" in path


def shown(path: str) -> str:
    """A path for messages and reports: without user names, passwords and signed queries, also those of a chain of URLs
    (`simplecache::https://...`)."""
    return "::".join(map(_without_secrets, CHAIN.split(path))) if is_remote(path) else path


def _without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    authority = AUTHORITY_END.split(rest, maxsplit=1)[0]
    if "@" in authority or _has_raw_marks(authority, rest):
        rest = rest.rpartition("@")[2]  # the last one: a password may hold what ends an authority
    return f"{scheme}://{QUERY.split(rest, maxsplit=1)[0]}"


def _has_raw_marks(authority: str, rest: str) -> bool:
    """Whether a password has a `/`, `?` or `#`, at which the authority of an URL ends (RFC 3986, section 3.2): what is
    before is no port then."""
    _, colon, port = authority.rpartition(":")
    return bool(colon) and not port.isdigit() and not port.endswith("]") and "@" in rest[len(authority) :]


def check_url(url: str) -> None:
    """InputError for an URL whose parts cannot be told apart."""
    for link in CHAIN.split(url):
        rest = link.partition("://")[2]
        authority = AUTHORITY_END.split(rest, maxsplit=1)[0]
        if "@" not in authority and _has_raw_marks(authority, rest):
            raise InputError(f"{shown(url)}: in its user name or password write / as %2F, ? as %3F and # as %23")


def scrubbed(text: object) -> str:
    """The text of another library's error without what URLs in it keep secret."""
    return SECRETS_IN_TEXT.sub(lambda found: "//" if found[0].startswith("//") else "", str(text))


def open_raw(path: str) -> Any:
    """The bytes of a file as they are stored; seekable. InputError where it cannot be opened."""
    if is_remote(path):
        return _RetryingFile(path)
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
        self._damage: DamageError | None = None
        self._begin()

    def _begin(self) -> None:
        self._member: Any = None
        self._waiting = b""

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if not self._rescued and self._damage is None:
            try:
                return self._read_some(size)
            except DamageError as error:
                self._rescue(error, size + MOST_AHEAD)
        found, self._rescued = self._rescued[:size], self._rescued[size:]
        if not found and self._damage:
            raise self._damage
        return found

    def _rescue(self, damage: DamageError, most: int) -> None:
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
                self._damage = error
            else:
                self._damage = None
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
            elif self._member.needs_input and not self._fill():
                raise DamageError("it ends inside the compressed data")
            found = self._decompress(size)
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
        self._damage: DamageError | None = None

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            return self.readall()
        if self._damage:
            raise self._damage
        size = min(size, COMPRESSED_STEP)
        try:
            found = self._read_some(size)
        except DamageError as error:
            found = self._read_before(error, size)
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

    def _read_before(self, damage: DamageError, size: int) -> bytes:
        """What stands before damage. Where it does not come again, reading goes on."""
        self._damage = damage
        self._stream = self._open()
        skipped = 0
        while skipped < self._position:
            passed = len(self._read_some(min(self._position - skipped, COMPRESSED_STEP)))
            if not passed:
                raise damage  # the file has become shorter
            skipped += passed
        found = bytearray()
        try:
            while len(found) < size and (byte := self._read_some(1)):
                found += byte
        except DamageError:
            if not found:
                raise
        else:
            self._damage = None
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


def cause_of(error: BaseException) -> BaseException:
    """What is behind an error: fsspec says of every answer of a server that there is no such file."""
    cause = error.__cause__
    hidden = isinstance(error, FileNotFoundError) and cause is not None and getattr(cause, "status", 0) != NOT_FOUND
    return cause if hidden and cause is not None else error


def refuse_remote(url: str, error: BaseException) -> None:
    """InputError for an error of a file system that another try does not change."""
    status = getattr(error, "status", 0)
    if status in DENIED:
        raise InputError(f"{shown(url)} may not be read: the server answers {status}") from None
    match error:
        case FileNotFoundError():
            raise InputError(f"{shown(url)} does not exist") from None
        case PermissionError():
            raise InputError(f"{shown(url)} may not be read: {scrubbed(error)}") from None
        case ImportError():
            raise InputError(f"{shown(url)} needs another package: {scrubbed(error)}") from None
        case ValueError():  # no such protocol, host or port
            raise InputError(f"{shown(url)} cannot be opened: {scrubbed(error)}") from None


class _RetryingFile(io.RawIOBase):
    """A remote file that is opened again where it was when reading fails. `size` is -1 where the server does not say
    it; such a file is read to its end, and a place in it is reached by reading."""

    def __init__(self, path: str) -> None:
        check_url(path)
        self.path = path
        self.position = 0
        self.file: Any = None
        self.size = 0
        size = self._try(lambda: getattr(self._open(), "size", None))
        self.size = UNKNOWN_SIZE if size is None else int(size)

    def _open(self) -> Any:
        if self.file is None:
            import fsspec

            file = fsspec.open(self.path, "rb").open()
            if self.size == UNKNOWN_SIZE:
                left = self.position
                while left and (piece := file.read(min(left, REMOTE_STEP))):
                    left -= len(piece)
            else:
                file.seek(self.position)
            self.file = file
        return self.file

    def _try(self, action: Any) -> Any:
        wait = FIRST_WAIT_SECONDS
        for attempt in range(1, REMOTE_TRIES + 1):
            try:
                return action()
            except InputError:
                raise
            except Exception as raised:  # file systems raise errors of their own libraries
                error = cause_of(raised)
                refuse_remote(self.path, error)
                self.file = None
                if attempt == REMOTE_TRIES:
                    status = getattr(error, "status", "")  # of HTTP
                    what = " ".join(map(str, filter(None, [type(error).__name__, status])))
                    raise InputError(f"{shown(self.path)}: {what} in {attempt} tries") from None
                time.sleep(wait)
                wait *= 2

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END and self.size == UNKNOWN_SIZE:
            raise InputError(f"{shown(self.path)}: the server does not say how long it is; download it first")
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence] + offset
        if self.file is not None and start != self.position:
            if self.size == UNKNOWN_SIZE:
                self.file = None
            else:
                self.file.seek(start)
        self.position = start
        return start

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: Any) -> int:
        data = self._try(lambda: self._open().read(len(buffer)))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)
