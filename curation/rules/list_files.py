# SPDX-License-Identifier: Apache-2.0
"""Reads lists of domains, words or values in common forms: one entry per line, compressed, in tar archives, or as hosts
files."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import InputError, near_or_nothing
from curation.base.system.os_errors import fault_of
from curation.rules.hosts import host_of

BATCH_BYTES = 1 << 19
MAX_LINE_BYTES = 1 << 20
MAX_SHOWN = 3  # entries in a message
SHOWN_CHARACTERS, SHOWN_MEMBERS, SEARCHED_MEMBERS = 60, 8, 10_000
DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError, pa.ArrowException)
TAR_MAGIC = slice(257, 262)
MARK = b"\xef\xbb\xbf"
STARTS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
DOMAIN = r"^(?:\*?\.)?[A-Za-z0-9_\-]+(?:\.[A-Za-z0-9_\-]+)*\.?$"
_COMMENT = re.compile(r"#.*")
_ORIGIN = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.\-]*://)?([^/?#\\@]+)/?")
_IPV4 = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
HOSTS_FILE = ("localhost.localdomain", "0.0.0.0")  # names in hosts files that are no entries, like names without a dot


class EntryBatch(NamedTuple):
    """Some entries of a list.

    entries        large_string: domains as `host_of` returns them; other entries without white space at both ends
    lines          their line numbers, from 1
    bad            lines that are no entries, with their numbers
    single         number of domains of one label, such as `com`
    first_single   the first of these
    """

    entries: pa.LargeStringArray
    lines: np.ndarray
    bad: list[str]
    single: int = 0
    first_single: tuple[str, ...] = ()


def read_entries(path: str, members: Sequence[str], way: str) -> Iterator[EntryBatch]:
    """Yield the entries of a list. Blank lines and lines that begin with `#` are skipped. Raises InputError if the file
    is no text, cannot be read, or lacks a member."""
    try:
        with _open(path) as stream:
            if members or _is_archive(stream):
                yield from _read_members(stream, path, members, way)
            else:
                yield from _batches(stream, path, way)
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"listed: cannot open {path}: {fault_of(error)}") from None
        raise InputError(f"listed: {path} is damaged or cut off: {error}. Download it again") from None


def _open(path: str) -> Any:
    """Open a file as a stream of its decompressed bytes; the first bytes tell the compression."""
    with open(path, "rb") as file:
        start = file.read(8)
    form = next((form for mark, form in STARTS.items() if start.startswith(mark)), "")
    if form == "gzip":
        return gzip.open(path, "rb")
    if form == "zstd":
        return io.BufferedReader(_Readable(pa.CompressedInputStream(pa.OSFile(path), "zstd")))
    if form == "bzip2":
        return bz2.open(path, "rb")
    return lzma.open(path, "rb") if form == "xz" else open(path, "rb")


class _Readable(io.RawIOBase):
    """Wraps a stream of Arrow for `io.BufferedReader`, which can peek at its first bytes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _is_archive(stream: Any) -> bool:
    peek = getattr(stream, "peek", None)
    return peek is not None and bytes(peek(512)[TAR_MAGIC]) == b"ustar"


def _read_members(stream: Any, path: str, members: Sequence[str], way: str) -> Iterator[EntryBatch]:
    if not _is_archive(stream):
        raise InputError(f"listed: {path} is no tar archive; leave out member: {', '.join(members)}")
    left, names = [*members], []
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for entry in islice(archive, SEARCHED_MEMBERS):
            name = entry.name.removeprefix("./")
            if name in left and entry.isfile():
                left.remove(name)
                yield from _batches(archive.extractfile(entry), f"{name} in {path}", way)
            names += [name] if entry.isfile() else []
            if members and not left:
                return
    held = f"it has {', '.join(names[:SHOWN_MEMBERS])}{', ...' if len(names) > SHOWN_MEMBERS else ''}"
    if not members:
        raise InputError(f"listed: {path} is a tar archive; name the list in it by member: NAME; {held}")
    raise InputError(f"listed: {path} has no file {left[0]!r}; {held}{near_or_nothing(left[0], names)}")


def _batches(stream: Any, where: str, way: str) -> Iterator[EntryBatch]:
    rest, line, is_first = b"", 1, True
    while True:
        data = stream.read(BATCH_BYTES)
        text = rest + (data.removeprefix(MARK) if is_first else data)
        is_first = False
        cut = text.rfind(b"\n") + 1 if data else len(text)
        text, rest = text[:cut], text[cut:]
        if b"\0" in text or b"\0" in rest:
            raise InputError(f"listed: {where} is not text in UTF-8: it has a zero byte near line {line:,}")
        if len(rest) > MAX_LINE_BYTES:
            number = line + text.count(b"\n")
            raise InputError(
                f"listed: line {number:,} of {where} has more than {MAX_LINE_BYTES:,} bytes; expected an entry per line"
            )
        if text:
            yield _batch(text, line, way)
        line += text.count(b"\n")
        if not data:
            return


def _batch(text: bytes, first: int, way: str) -> EntryBatch:
    lines, bad = _decoded(text, first)
    values = pc.utf8_trim_whitespace(lines)
    used = pc.and_(pc.greater(pc.binary_length(values), 0), pc.invert(pc.starts_with(values, "#")))
    numbers = np.flatnonzero(used) + first
    values = values.filter(used)
    return _domains(values, numbers, bad) if way == "domain" else EntryBatch(values, numbers, bad)


def _decoded(text: bytes, first: int) -> tuple[pa.LargeStringArray, list[str]]:
    """Return the lines, and messages about lines that are not UTF-8. In the result, such lines are empty."""
    try:
        return pa.array(text.decode().split("\n"), pa.large_string()), []
    except UnicodeDecodeError:
        lines, bad = text.split(b"\n"), []
    for number, line in enumerate(lines):
        try:
            line.decode()
        except UnicodeDecodeError:
            bad.append(shown_line(first + number, line.decode("utf-8", "replace").strip()))
            lines[number] = b""
    return pa.array(lines, pa.large_binary()).cast(pa.large_string()), bad


def shown_line(number: int, line: str) -> str:
    """Return a line of a list for a message, cut to SHOWN_CHARACTERS."""
    shown = repr(line)
    return f"line {number:,}: {shown if len(shown) <= SHOWN_CHARACTERS else f'{shown[:SHOWN_CHARACTERS]}...'}"


def _domains(values: pa.LargeStringArray, numbers: np.ndarray, bad: list[str]) -> EntryBatch:
    plain = pc.match_substring_regex(values, DOMAIN)
    domains = pc.ascii_lower(pc.utf8_trim(pc.utf8_ltrim(values.filter(plain), "*"), "."))
    lines = numbers[plain.to_numpy(zero_copy_only=False)]
    others, other_lines = [], []
    for number, value in zip(
        numbers[~plain.to_numpy(zero_copy_only=False)].tolist(),
        values.filter(pc.invert(plain)).to_pylist(),
        strict=True,
    ):
        found = _written_domains(value)
        if found is None:
            bad.append(shown_line(number, value))
        others += found or []
        other_lines += [number] * len(found or [])
    if others:
        domains = pa.concat_arrays([domains.cast(pa.large_string()), pa.array(others, pa.large_string())])
        lines = np.append(lines, other_lines)
    single = pc.and_(pc.invert(pc.match_substring(domains, ".")), pc.invert(pc.match_substring(domains, ":")))
    shown = tuple(domains.filter(single).slice(0, MAX_SHOWN).to_pylist())
    return EntryBatch(domains, lines, bad, int(pc.sum(single).as_py() or 0), shown)


def _written_domains(line: str) -> list[str] | None:
    """Return the domains of a line that is not one plain domain: a line with a comment or of a hosts file, an
    international domain, or a URL without a path. None for any other line."""
    words = _COMMENT.sub("", line).split()
    if len(words) > 1 and _address_of(words[0]):
        hosts = [host_of(word) for word in words[1:]]
        return [host for host in hosts if "." in host and host not in HOSTS_FILE] if all(hosts) else None
    origin = _ORIGIN.fullmatch(words[0].removeprefix("*.")) if len(words) == 1 else None
    if origin is None:
        return None
    host = _address_of(origin[1]) or (host_of(origin[1]) if ":" not in origin[1] else "")  # not with a port
    return [host] if host else None


def _address_of(word: str) -> str:
    """Return a word if it is an IP address, as at the start of a line of a hosts file; "" for any other word."""
    if word.count(":") > 1:
        return host_of(f"[{word.removeprefix('[').removesuffix(']')}]")
    return word if _IPV4.fullmatch(word) else ""
