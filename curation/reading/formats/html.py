# SPDX-License-Identifier: Apache-2.0
"""HTML files: the main text of each is one document, extracted as from the pages in WARC."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import pyarrow as pa

from curation.contract import Rejected
from curation.reading import pages
from curation.reading.changes import open_planned
from curation.reading.documents import Documents, schema_of, too_large
from curation.reading.formats.base import Format
from curation.reading.remote import UNKNOWN_SIZE
from curation.reading.source_files import UTF8, FileRange, SourceFile
from curation.reading.streams import read_chunk
from curation.reading.urls import shown
from curation.system.interrupts import check as check_interrupts


def _encoding_of(page: bytes, encoding: str) -> str:
    """Return a given encoding other than UTF-8; UTF-8 for a page that is valid; or that of its meta tag or bytes."""
    if codecs.lookup(encoding).name not in UTF8:
        return encoding
    from resiliparse.parse.encoding import detect_encoding

    try:
        page.decode()
    except UnicodeDecodeError:
        return str(detect_encoding(page, from_html_meta=True) or "utf-8")
    return "utf-8-sig"


def _as_documents(file: SourceFile, text: str, error: str) -> Documents:
    schema = schema_of(file.carried)
    row = {"row": 0, "id": None, "text": text} | dict.fromkeys(file.carried, shown(file.path))
    table = pa.Table.from_pylist([] if error else [row], schema=schema)
    return Documents(table, [Rejected(0, 0, -1, error)] if error else [], 1, 1)


class Html(Format):
    """A file whose encoding is not UTF-8 is read as its meta tag or its bytes suggest."""

    name = "html"
    suffixes = (".html", ".htm")
    fields = ("path",)
    options = ("encoding",)
    tells_encoding = True
    start = rb"(?i)<!doctype html|<html\b"

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """An empty file has no document. A page that is damaged, oversized or above the bounds of `pages` is rejected.
        InputError where Resiliparse is not installed."""
        file = file_range.file
        extract = pages.extractor()
        check_interrupts()  # a page takes up to a second
        size = min(file.max_document_bytes, pages.MAX_PAGE_BYTES) + 1
        if not file.compression and file.bytes != UNKNOWN_SIZE:
            size = min(size, max(file.bytes, 1))
        with open_planned(file) as stream:
            page, error = read_chunk(stream, size)
        text = ""
        if not error and len(page) > file.max_document_bytes:
            error = too_large(file.max_document_bytes)
        if not error and not page.strip():
            return
        if not error:
            try:
                text = extract(page, _encoding_of(page, file.encoding))
            except (ValueError, LookupError) as raised:  # LookupError: an encoding that Python does not know
                error = str(raised)
        yield _as_documents(file, text, error)

    def require(self) -> None:
        pages.extractor()
