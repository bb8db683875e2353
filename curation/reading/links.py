# SPDX-License-Identifier: Apache-2.0
"""The hyperlinks of a web page, as a JSON array of URLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import orjson

from curation.reading.page_encodings import decode

MAX_LINKS, MAX_URL_CHARS = 10_000, 2_048  # with a long base, a page of 5 MB would have gigabytes of links
SCHEMES = ("http", "https")
NOT_FOLLOWED = {"nofollow", "sponsored", "ugc"}  # link types by which authors say that they do not recommend the target


def links_of(page: bytes, charset: str, url: str) -> str:
    """Return the URLs of the first 10,000 different links of a page, in their order, as a JSON array.

    page      bytes of HTML within the bounds of `curation.reading.pages`
    charset   encoding that the server named; "" without one
    url       address of the page; relative links are resolved by it, or by the page's `<base>`

    Links are `<a href>` and `<area href>` to http and https, without fragments. Left out are those with `rel=nofollow`,
    `sponsored` or `ugc`, all of a page whose robots may not follow them, and URLs of more than 2,048 characters.
    """
    from resiliparse.parse.html import HTMLTree

    links: dict[str, None] = {}
    for link in _resolved(HTMLTree.parse(decode(page, charset)[0]).document, url):
        if len(links) == MAX_LINKS:
            break
        links[link] = None
    return orjson.dumps([*links]).decode()


def _resolved(document: Any, url: str) -> Iterator[str]:
    robots = document.query_selector_all('meta[name="robots" i]')
    if any(_words(node, "content") & {"nofollow", "none"} for node in robots):
        return
    base = document.query_selector("base[href]")
    url = _joined(url, base.getattr("href")) if base else url
    for node in document.query_selector_all("a[href], area[href]"):
        if not _words(node, "rel") & NOT_FOLLOWED and (link := _joined(url, node.getattr("href"))):
            yield link


def _words(node: Any, name: str) -> set[str]:
    return {*(node.getattr(name) or "").lower().replace(",", " ").split()}


def _joined(url: str, link: str) -> str:
    """Return the URL of a link on a page; "" if it is not http(s), invalid or too long."""
    try:
        resolved = urldefrag(urljoin(url, link.strip())).url
        return resolved if len(resolved) <= MAX_URL_CHARS and urlsplit(resolved).scheme in SCHEMES else ""
    except ValueError:  # such as `http://[`
        return ""
