# SPDX-License-Identifier: Apache-2.0
"""Which pages are parsed: Resiliparse takes up to 113 times the bytes of a page, and time by how deep its tags nest.

The bounds hold back pages that would take a gigabyte or minutes. They look at the names of tags alone, as a parser does
not: a page that hides its tags in comments or attributes on purpose can still take longer.
"""

from __future__ import annotations

import re
from collections import Counter

MAX_PAGE_BYTES = 5_250_000  # of HTML: up to 600 MB. Common Crawl cuts pages at 5 MiB (1 MiB until 2025)
MAX_ATTRIBUTES = 5_000  # of a tag: quadratic, 100,000 take 13 s
MAX_NESTING = 20_000_000  # open tags, added up over all tags: 6,300 nested <div> take 0.4 s, 80,000 take 64 s
FEW_TAGS = 1_000  # harmless, however they nest
FORMATTING_WEIGHT = 20  # where they are not closed, parsers make all of them anew in each later block, 400 bytes each
FORMATTING = {b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong", b"tt", b"u"}
CLOSED_BY_OTHERS = {  # and those that hold nothing
    b"a", b"area", b"base", b"br", b"col", b"dd", b"dt", b"embed", b"hr", b"img", b"input", b"li", b"link", b"meta",
    b"option", b"p", b"param", b"source", b"tbody", b"td", b"tfoot", b"th", b"thead", b"tr", b"track", b"wbr",
}  # fmt: skip
WEIGHTS = dict.fromkeys(CLOSED_BY_OTHERS, 0) | dict.fromkeys(FORMATTING, FORMATTING_WEIGHT)
TAG = re.compile(rb"<(/?[a-z][a-z0-9:-]*)")
LONG_TAG = re.compile(rb"<[a-zA-Z][^<>]{%d,}" % (2 * MAX_ATTRIBUTES))
QUOTED = re.compile(rb"\"[^\"]*\"|'[^']*'")


def check(page: bytes) -> None:
    """ValueError for a page that would take too much memory or time."""
    if len(page) > MAX_PAGE_BYTES:
        raise ValueError(f"the page has more than {MAX_PAGE_BYTES:,} bytes of HTML, the most that are parsed")
    for tag in LONG_TAG.finditer(page):
        if len(QUOTED.sub(b"", tag[0]).split()) > MAX_ATTRIBUTES:
            raise ValueError(f"a tag of the page has more than {MAX_ATTRIBUTES:,} attributes, the most that are parsed")
    if page.count(b"<") > FEW_TAGS and _nests_deeply(page):
        raise ValueError(
            f"the tags of the page nest too deeply: the open ones, added up over all tags (unclosed formatting "
            f"{FORMATTING_WEIGHT} times), are more than {MAX_NESTING:,}"
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


__all__ = ["check"]
