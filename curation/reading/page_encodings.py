# SPDX-License-Identifier: Apache-2.0
"""Encodings of web pages, as browsers find them (WHATWG, HTML 13.2.3.2 and Encoding 4.2).

Resiliparse knows the labels, looks for `<meta>` as the standard says, and detects the encoding of pages without a
label. This module defines the order of these steps. It also does what Resiliparse 2.0 leaves to its caller: byte order
marks, XML declarations, and Python codecs that lack characters.
"""

from __future__ import annotations

import codecs
import re

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF16_LE: "utf-16-le"}
HEAD_BYTES = 1024  # where browsers look for <meta>
# Python codec -> wider codec, if the standard's encoding has characters that Python's codec of the same name lacks.
WIDER = {
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs", "iso8859-11": "cp874",
}  # fmt: skip
CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s\"',;]+)", re.IGNORECASE)
XML = re.compile(rb"<\?xml[^>]*\sencoding\s*=\s*[\"']([^\"'>]+)")
NOT_MARKUP = re.compile(rb"[^\t\n\f\r -}]")  # bytes that the detector would take for signs of an encoding
UNDECLARED = ("ascii", None)
ESCAPE = b"\x1b"  # starts a sequence of ISO-2022-JP, whose bytes are all ASCII


def charset_of(content_type: str) -> str:
    """Return the label in a Content-Type header, or ""."""
    match = CHARSET.search(content_type)
    return match[1] if match else ""


def decode(page: bytes, charset: str = "", encoding: str = "") -> tuple[str, bool]:
    """Return a page as text, and whether malformed bytes became U+FFFD.

    charset    encoding label that the server sent
    encoding   name of a Python codec to use in any case; "": detect the encoding as browsers do
    """
    mark = b"" if encoding else next((mark for mark in MARKS if page.startswith(mark)), b"")
    name = encoding or MARKS.get(mark) or _named(charset) or _declared(page) or _detected(page)
    page = page[len(mark) :]
    try:
        return page.decode(name), False
    except UnicodeDecodeError:
        return page.decode(name, "replace"), True


def _named(label: str) -> str:
    """Return the codec for a label, or "" for an unknown label."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    name = map_encoding_to_html5(label.strip(), False) if label else None
    return WIDER.get(name, name) if name else ""


def _declared(page: bytes) -> str:
    """Return the codec that the page names in `<meta>` or in its XML declaration, or ""."""
    from resiliparse.parse.encoding import detect_encoding

    head = page[:HEAD_BYTES]
    name = detect_encoding(NOT_MARKUP.sub(b"?", head), from_html_meta=True, html5_compatible=False)
    if name in UNDECLARED:
        match = XML.match(head)
        name = _named(match[1].decode("latin-1")) if match else ""
    if name.startswith("utf-16"):
        return "utf-8"  # the declaration could be read as ASCII, so the page cannot be UTF-16
    return WIDER.get(name, name)


def _detected(page: bytes) -> str:
    from resiliparse.parse.encoding import detect_encoding

    if ESCAPE not in page:
        try:
            page.decode()
            return "utf-8"
        except UnicodeDecodeError:
            pass
    name = str(detect_encoding(page) or "utf-8")
    return WIDER.get(name, name)
