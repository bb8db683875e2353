# SPDX-License-Identifier: Apache-2.0
"""Plain text: a file is one document, or is split at a separator. White space alone is no document.

Other encodings are converted to UTF-8 first, so separators and sizes mean the same in all of them. A byte order mark at
the start of a file names its encoding, and is not part of the text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from curation.base.contract import Rejected
from curation.reading.changes import open_planned
from curation.reading.documents import LINES_AT_ONCE, MALFORMED, Documents, schema_of, strings, too_large
from curation.reading.formats.base import Format, start_of
from curation.reading.source_files import MARK_BYTES, UTF8, FileRange, SourceFile, encoding_by_mark
from curation.reading.streams import StreamChunk, read_chunks
from curation.reading.urls import shown

# Marks that end documents in a file of several documents. The first two are at the ends of lines. The others are whole
# lines, since HTML also has `</s>`.
END_MARKS = {
    mark: re.compile(rb"%b%b[ \t]*\r?$" % (start, re.escape(mark)), re.MULTILINE)
    for start, marks in ((b"", (b"<|endoftext|>", b"<|end_of_text|>")), (rb"^[ \t]*", (b"<eos>", b"</s>")))
    for mark in marks
}
MIN_MARKS = 2
TOO_LARGE = None  # in place of the text of a document above max_document_bytes


def _as_utf8(chunks: Iterator[StreamChunk], encoding: str) -> Iterator[StreamChunk]:
    """Convert chunks to UTF-8. Malformed bytes become malformed UTF-8, which `strings` repairs and counts."""
    chunks = _after_start(chunks, MARK_BYTES)
    first = next(chunks)
    encoding, chunks = encoding_by_mark(first.data, encoding), chain([first], chunks)
    if codecs.lookup(encoding).name in UTF8:
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(MALFORMED)
    try:
        for data, damage in chunks:
            yield StreamChunk(decoder.decode(data).encode("utf-8", MALFORMED), damage)
        yield StreamChunk(decoder.decode(b"", True).encode("utf-8", MALFORMED), "")
    except UnicodeError as error:  # for example UTF-16 without a byte order mark
        yield StreamChunk(b"", f"the file is not {encoding}: {error}")


def _without_mark(chunks: Iterator[StreamChunk]) -> Iterator[StreamChunk]:
    chunks = _after_start(chunks, len(codecs.BOM_UTF8))
    first = next(chunks)
    yield first._replace(data=first.data.removeprefix(codecs.BOM_UTF8))
    yield from chunks


def _after_start(chunks: Iterator[StreamChunk], size: int) -> Iterator[StreamChunk]:
    """Yield chunks. The first has at least `size` bytes, unless the file is shorter."""
    head, damage = b"", ""
    while len(head) < size and not damage and (chunk := next(chunks, None)):
        head, damage = head + chunk.data, chunk.damage
    yield StreamChunk(head, damage)
    yield from chunks


def _cut(chunks: Iterator[StreamChunk], separator: bytes, limit: int) -> Iterator[tuple[list[bytes | None], str]]:
    """Divide a file at the separator. Yield pairs: the documents of a batch, and the damage after them ("" for
    none)."""
    rest = bytearray()
    overlap = max(0, len(separator) - 1)  # bytes at the end that may begin a separator
    skipping = False  # whether the start of an oversized document has been dropped
    for data, damage in chunks:
        searched = max(0, len(rest) - overlap)
        rest += data
        while separator and rest.find(separator, searched) >= 0:
            first, *others, rest = rest.split(separator, LINES_AT_ONCE)
            yield [TOO_LARGE if skipping else _held(first, limit), *(_held(text, limit) for text in others)], ""
            skipping, searched = False, 0
        if skipping or len(rest) > limit + overlap:
            skipping = True
            del rest[: max(0, len(rest) - overlap)]
        if damage:
            break
    else:
        damage = ""
    yield [TOO_LARGE if skipping else _held(rest, limit)], damage


def _held(text: bytearray, limit: int) -> bytes | None:
    return bytes(text) if len(text) <= limit else TOO_LARGE


def _as_documents(texts: list[bytes | None], file: SourceFile, row: int, damage: str) -> Documents:
    numbered = list(enumerate((text for text in texts if text is TOO_LARGE or text.strip()), row))
    rejected = [Rejected(k, k, -1, too_large(file.max_document_bytes)) for k, text in numbered if text is TOO_LARGE]
    rows = [k for k, text in numbered if text is not TOO_LARGE]
    text, repaired = strings([text for _, text in numbered if text is not TOO_LARGE])
    carried = [pa.repeat(pa.scalar(shown(file.path), pa.large_string()), len(rows)) for _ in file.carried]
    columns = [pa.array(rows, pa.int64()), pa.nulls(len(rows), pa.large_string()), text, *carried]
    table = pa.table(columns, schema=schema_of(file.carried))
    total = len(numbered)
    if damage:
        rejected.append(Rejected(row + total, row + total, -1, damage))
        total += 1
    return Documents(table, rejected, total, total, repaired)


class Text(Format):
    """Plain text. Without `separator`, a file is one document."""

    name = "text"
    suffixes = (".txt", ".md", ".rst")
    fields = ("path",)
    options = ("separator", "encoding")
    hint = 'each file is a document; separator: "\\n\\n" divides it into paragraphs; columns: [path] stores its path'

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Yield the documents of a file. Oversized documents are rejected, and so is the rest of a damaged file."""
        row = 0
        with open_planned(file_range.file) as stream:
            chunks = _without_mark(_as_utf8(read_chunks(stream, batch_bytes), file_range.file.encoding))
            for texts, damage in _cut(chunks, file_range.file.separator.encode(), file_range.file.max_document_bytes):
                documents = _as_documents(texts, file_range.file, row, damage)
                row += documents.rows
                yield documents

    def detect(self, file: SourceFile) -> dict[str, str]:
        """Return the separator if the start of a file has one of END_MARKS at least twice, and only where it can end a
        document."""
        if file.separator:
            return {}
        raw = start_of(file).data
        start = raw.decode(encoding_by_mark(raw, file.encoding), "replace").encode()
        marks = (mark for mark, line in END_MARKS.items() if MIN_MARKS <= start.count(mark) == len(line.findall(start)))
        mark = next(marks, b"")
        return {"separator": mark.decode()} if mark else {}

    def is_one_document(self, file: SourceFile) -> bool:
        return not file.separator
