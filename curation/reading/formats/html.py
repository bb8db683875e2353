# SPDX-License-Identifier: Apache-2.0
"""HTML files: the main text of each is one document, extracted as from the pages in WARC."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import pyarrow as pa

from curation.base.contract import Rejected
from curation.base.system.interrupts import check as check_interrupts
from curation.reading import pages
from curation.reading.answers import UNKNOWN_SIZE
from curation.reading.changes import open_planned
from curation.reading.documents import Documents, schema_of, too_large
from curation.reading.formats.base import Format
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.streams import read_chunk
from curation.reading.urls import shown


def _as_documents(file: SourceFile, text: str, error: str, repaired: bool) -> Documents:
    schema = schema_of(file.carried)
    row = {"row": 0, "id": None, "text": text} | dict.fromkeys(file.carried, shown(file.path))
    table = pa.Table.from_pylist([] if error else [row], schema=schema)
    return Documents(table, [Rejected(0, 0, -1, error)] if error else [], 1, 1, int(repaired))


class Html(Format):
    """HTML: if the input sets no encoding, it is detected as browsers do (`curation.reading.page_encodings`)."""

    name = "html"
    suffixes = (".html", ".htm")
    fields = ("path",)
    options = ("encoding", "extract")
    hint = pages.HINT
    tells_encoding = True
    start = rb"(?i)<!doctype html|<html\b"

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        """Yield the main text of a page as a document; an empty file has none. A page that is damaged, oversized or
        above the bounds of `pages` is rejected. Raises InputError if a package is missing."""
        file = file_range.file
        extract = pages.extractor(file.extraction)
        check_interrupts()  # a page takes up to a second
        size = min(file.max_document_bytes, pages.MAX_PAGE_BYTES) + 1
        if not file.compression and file.bytes != UNKNOWN_SIZE:
            size = min(size, max(file.bytes, 1))
        with open_planned(file) as stream:
            page, error = read_chunk(stream, size)
        text, repaired = "", False
        encoding = "" if codecs.lookup(file.encoding).name == "utf-8" else file.encoding
        if not error and len(page) > file.max_document_bytes:
            error = too_large(file.max_document_bytes)
        if not error and not page.strip():
            return
        if not error:
            try:
                text, repaired = extract(page, encoding=encoding)
            except (ValueError, LookupError) as raised:  # LookupError: Python does not know the encoding
                error = str(raised)
        yield _as_documents(file, text, error, repaired)

    def is_one_document(self, file: SourceFile) -> bool:
        return True

    def computed_with(self, file: SourceFile) -> dict[str, str]:
        pages.extractor(file.extraction)  # InputError where a package is missing
        return pages.versions(file.extraction)

    def note(self, file: SourceFile) -> str:
        return pages.note(file.extraction)
