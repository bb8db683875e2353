# SPDX-License-Identifier: Apache-2.0
"""The main text of HTML pages, by Resiliparse, and bounds on pages before parsing.

Resiliparse takes up to 113 times the bytes of a page, and its time grows with the depth of nested tags.

The bounds reject pages that would take a gigabyte or minutes. They only look at tag names: a page that hides its tags
in comments or attributes on purpose can still take longer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from curation.errors import InputError

MAX_PAGE_BYTES = 5_250_000  # of HTML: up to 600 MB of memory. Common Crawl truncates pages at 5 MiB (1 MiB until 2025)
MAX_ATTRIBUTES = 5_000  # per tag; time is quadratic: 100,000 take 13 s
MAX_NESTING = (
    20_000_000  # sum over all tags of the number of open tags: 6,300 nested <div> take 0.4 s, 80,000 take 64 s
)
FEW_TAGS = 1_000  # harmless at any nesting
FORMATTING_WEIGHT = 20  # parsers recreate unclosed formatting tags in every later block, 400 bytes each
FORMATTING = {b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong", b"tt", b"u"}
CLOSED_BY_OTHERS = {  # tags that others close, and tags without content
    b"a", b"area", b"base", b"br", b"col", b"dd", b"dt", b"embed", b"hr", b"img", b"input", b"li", b"link", b"meta",
    b"option", b"p", b"param", b"source", b"tbody", b"td", b"tfoot", b"th", b"thead", b"tr", b"track", b"wbr",
}  # fmt: skip
WEIGHTS = dict.fromkeys(CLOSED_BY_OTHERS, 0) | dict.fromkeys(FORMATTING, FORMATTING_WEIGHT)
TAG = re.compile(rb"<(/?[a-z][a-z0-9:-]*)")
LONG_TAG = re.compile(rb"<[a-zA-Z][^<>]{%d,}" % (2 * MAX_ATTRIBUTES))
QUOTED = re.compile(rb"\"[^\"]*\"|'[^']*'")


def extractor() -> Callable[[bytes, str], str]:
    """Return the function from a page and its encoding ("": detected) to its main text. It raises ValueError for a page
    above the bounds. Raises InputError where Resiliparse is not installed."""
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import detect_encoding
    except ImportError:
        raise InputError(
            "reading WARC and HTML needs Resiliparse: pip install '.[warc]'. Without it, read WET files, or HTML with "
            "its tags: format: text"
        ) from None

    def extract(page: bytes, encoding: str) -> str:
        check(page)
        html = page.decode(encoding or detect_encoding(page) or "utf-8", "replace")
        return str(extract_plain_text(html, main_content=True))

    return extract


def check(page: bytes) -> None:
    """Raise ValueError for a page (HTML bytes) that would take too much memory or time to parse."""
    if len(page) > MAX_PAGE_BYTES:
        raise ValueError(f"the page has more than {MAX_PAGE_BYTES:,} bytes of HTML, the maximum")
    for tag in LONG_TAG.finditer(page):
        if len(QUOTED.sub(b"", tag[0]).split()) > MAX_ATTRIBUTES:
            raise ValueError(f"a tag of the page has more than {MAX_ATTRIBUTES:,} attributes, the maximum")
    if page.count(b"<") > FEW_TAGS and _nests_deeply(page):
        raise ValueError(
            f"the tags of the page nest too deeply: the sum over all tags of the open tags (unclosed formatting counts "
            f"{FORMATTING_WEIGHT} times) is above {MAX_NESTING:,}"
        )


def _nests_deeply(page: bytes) -> bool:
    open_tags: Counter[bytes] = Counter()
    depth = total = 0
    for name in TAG.findall(page.lower()):
        closes = name[:1] == b"/"
        name = name[closes:]
        weight = WEIGHTS.get(name, 1)
        if not closes:
            total += depth
            if weight:
                depth += weight
                open_tags[name] += 1
        elif weight and open_tags[name]:
            open_tags[name] -= 1
            depth -= weight
        if total > MAX_NESTING:
            return True
    return False
