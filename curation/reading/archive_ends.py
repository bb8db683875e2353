# SPDX-License-Identifier: Apache-2.0
"""Checks whether a compressed file is complete. An interrupted download lacks the end of its last member."""

from __future__ import annotations

from curation.reading.source_files import SourceFile
from curation.reading.streams import FILE_DAMAGED, open_raw, open_stream, read_chunks

TAIL_BYTES = 64
BZIP2_END = 0x177245385090  # 48 bits before the checksum of a stream; they may begin at any bit
STEP = 1 << 20


def fault_at_end(file: SourceFile, max_bytes: int) -> str:
    """Return the damage of a compressed local file that lacks its end; "" for other files.

    max_bytes   maximum size of a gzip or zstd file to check. To check such a file, all of it is decompressed, since it
                has no mark at its end. Files of bzip2 and xz have a mark, and are checked at any size
    """
    if file.compression in ("gzip", "zstd"):
        if file.bytes > max_bytes:
            return ""
        with open_stream(file.path, file.compression) as stream:
            return next((chunk.damage for chunk in read_chunks(stream, STEP) if chunk.damage), "")
    with open_raw(file.path) as raw:
        raw.seek(max(file.bytes - TAIL_BYTES, 0))
        tail = raw.read(TAIL_BYTES)
    if (_ends_bzip2 if file.compression == "bzip2" else _ends_xz)(tail):
        return ""
    return f"{FILE_DAMAGED}: it ends inside the compressed data"


def _ends_xz(tail: bytes) -> bool:
    return tail.rstrip(b"\0").endswith(b"YZ")  # members may be padded with zeros


def _ends_bzip2(tail: bytes) -> bool:
    bits = int.from_bytes(tail)
    return any(bits >> shift & (1 << 48) - 1 == BZIP2_END for shift in range(32, 8 * len(tail) - 47))
