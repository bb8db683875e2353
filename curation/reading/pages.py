# SPDX-License-Identifier: Apache-2.0
"""Finds the main text of HTML pages by Resiliparse, trafilatura or jusText, and checks bounds on pages before parsing.

Resiliparse needs memory of up to 113 times the bytes of a page, and its time grows with the depth of nested tags.
trafilatura and jusText are Python over lxml. The time of jusText, which trafilatura falls back to, grows with the
square of the paragraphs.

The bounds reject pages that would take a gigabyte or minutes. They only look at tag names: a page that hides its tags
in comments or attributes on purpose can still take longer.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from curation.base.errors import InputError, installation, near_or_nothing
from curation.reading.extract_settings import DROP, JUSTEXT, NO_LANGUAGE, RESILIPARSE, SHORT, TRAFILATURA, Extract
from curation.reading.page_encodings import decode

MAX_PAGE_BYTES = 5_250_000  # of HTML: up to 600 MB of memory. Common Crawl truncates pages at 5 MiB (1 MiB until 2025)
MAX_ATTRIBUTES = 5_000  # per tag; the time is quadratic: 100,000 attributes take 13 s
MAX_NESTING = (
    20_000_000  # sum over all tags of the number of open tags: 6,300 nested <div> take 0.4 s, 80,000 take 64 s
)
FEW_TAGS = 1_000  # pages with fewer tags are harmless at any nesting
FORMATTING_WEIGHT = 20  # parsers recreate each unclosed formatting tag in every later block, which takes 400 bytes
FORMATTING = {b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike", b"strong", b"tt", b"u"}
CLOSED_BY_OTHERS = {  # tags that other tags close, and tags without content
    b"a", b"area", b"base", b"br", b"col", b"dd", b"dt", b"embed", b"hr", b"img", b"input", b"li", b"link", b"meta",
    b"option", b"p", b"param", b"source", b"tbody", b"td", b"tfoot", b"th", b"thead", b"tr", b"track", b"wbr",
}  # fmt: skip
WEIGHTS = dict.fromkeys(CLOSED_BY_OTHERS, 0) | dict.fromkeys(FORMATTING, FORMATTING_WEIGHT)
TAG = re.compile(rb"<(/?[a-z][a-z0-9:-]*)")
LONG_TAG = re.compile(rb"<[a-zA-Z][^<>]{%d,}" % (2 * MAX_ATTRIBUTES))
MAX_TAGS = 100_000  # start and end tags of a page for trafilatura and jusText; so many take up to 4 s and 217 MB
MAX_BREAKS = 15_000  # of these, tags that may end a paragraph: up to 26 s if each paragraph is a word
BREAKS = {
    b"blockquote", b"body", b"br", b"caption", b"center", b"col", b"colgroup", b"dd", b"div", b"dl", b"dt", b"fieldset",
    b"form", b"h1", b"h2", b"h3", b"h4", b"h5", b"h6", b"legend", b"li", b"optgroup", b"option", b"p", b"pre", b"table",
    b"td", b"textarea", b"tfoot", b"th", b"thead", b"tr", b"ul",
}  # fmt: skip
PACKAGES = {  # packages on which results depend
    RESILIPARSE: ("resiliparse",),
    TRAFILATURA: ("resiliparse", "trafilatura", "justext", "lxml"),
    JUSTEXT: ("resiliparse", "justext", "lxml"),
}
XML_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
PAGE_START = re.compile(r"\s*<(?:html|!doctype)\b", re.IGNORECASE)
HINT = "main text by resiliparse; extract: trafilatura or {by: justext, language: English} finds it otherwise"
QUOTED = re.compile(rb"\"[^\"]*\"|'[^']*'")


def extractor(extract: Extract) -> Callable[..., tuple[str, bool]]:
    """Return a function that returns the main text of a page, and whether malformed bytes became U+FFFD in it. Its
    arguments are the page, the encoding label that the server sent, and the codec that the input sets
    (`curation.reading.page_encodings.decode`). The function raises ValueError for a page that exceeds the bounds or
    that the library cannot read. Raises InputError if a package is missing.
    """
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import detect_encoding  # noqa: F401  # of `page_encodings`
    except ImportError:
        raise InputError(
            f"reading WARC and HTML needs Resiliparse: {installation('warc')}. Without it, read WET files, or HTML "
            "with its tags: format: text"
        ) from None
    main_text: Callable[[str], str]
    if extract.by == RESILIPARSE:
        main_text = partial(extract_plain_text, main_content=True, skip_elements=extract.dropped or None)
    else:
        main_text = partial(_by_lxml, LOADERS[extract.by](extract), extract.by)

    def read(page: bytes, charset: str = "", encoding: str = "") -> tuple[str, bool]:
        check(page, extract)
        html, is_malformed = decode(page, charset, encoding)
        text = str(main_text(html))
        return text, is_malformed and "\ufffd" in text

    return read


@cache
def versions(extract: Extract) -> dict[str, str]:
    """Return the versions of the packages on which the main text depends."""
    return {name: version_of(name) for name in PACKAGES[extract.by]}


@cache
def version_of(package: str) -> str:
    """Return the installed version, which may decide the text of a page; "missing" without the package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _by_lxml(main_text: Callable[[str], str], name: str, html: str) -> str:
    """Return the main text that a library based on lxml finds. lxml stops at a NUL, refuses text that declares an
    encoding, and treats text that does not begin like a page as a part of a page."""
    html = XML_DECLARATION.sub("", html).replace("\0", "")
    try:
        return main_text(html if PAGE_START.match(html) else f"<!doctype html>\n{html}")
    except MemoryError:
        raise
    except Exception as error:  # these libraries raise errors of any class for unusual pages
        what = " ".join(str(error).split())[:100]
        raise ValueError(f"{name} cannot read the page: {type(error).__name__}{': ' * bool(what)}{what}") from None


@contextmanager
def _needed(extract: Extract) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"extract: {extract.by} needs a package that cannot be imported ({error}). Run: "
            f"{installation(extract.by)}. Or leave extract out, for Resiliparse"
        ) from None


def _load_trafilatura(extract: Extract) -> Callable[[str], str]:
    with _needed(extract):
        import trafilatura
    logger = logging.getLogger("trafilatura")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # otherwise a page without text prints a line on standard error
    left_out = [f"//{name}" for name in extract.dropped] or None
    return lambda html: trafilatura.extract(html, prune_xpath=left_out) or ""


def _load_justext(extract: Extract) -> Callable[[str], str]:
    with _needed(extract):
        from justext.core import justext, preprocessor
        from justext.utils import get_stoplists
        from lxml import etree
    if extract.language == NO_LANGUAGE:
        words, settings = frozenset[str](), {"stopwords_low": 0, "stopwords_high": 0}
    elif extract.language in (known := sorted(get_stoplists())):
        words, settings = _stop_words(extract.language), {}
    else:
        raise InputError(
            f"extract.language: jusText has no stop words for {extract.language!r}"
            f"{near_or_nothing(extract.language, known) or '.'} language: none needs none"
        )

    def prepare(root: Any) -> Any:
        etree.strip_elements(root, *extract.dropped, with_tail=False)
        return preprocessor(root)

    def main_text(html: str) -> str:
        try:
            paragraphs = justext(html, words, preprocessor=prepare, length_low=extract.min_characters, **settings)
        except etree.ParserError:  # no element
            return ""
        return "\n\n".join(paragraph.text for paragraph in paragraphs if not paragraph.is_boilerplate)

    return main_text


@cache
def _stop_words(language: str) -> frozenset[str]:
    from justext.utils import get_stoplist

    return frozenset(get_stoplist(language))


def note(extract: Extract) -> str:
    """Return how the main text is found, for `curate plan`."""
    left_out = " and ".join(name for name in ("tables", "lists") if getattr(extract, name) == DROP)
    language = f" with stop words of {extract.language}" if extract.language else ""
    language += f", paragraphs from {extract.min_characters} characters on" if extract.min_characters != SHORT else ""
    return f"main text by {extract.by}{language}{f', without {left_out}' if left_out else ''}"


LOADERS = {TRAFILATURA: _load_trafilatura, JUSTEXT: _load_justext}


def check(page: bytes, extract: Extract) -> None:
    """Raise ValueError for a page (HTML bytes) that would take too much memory or time to parse."""
    if len(page) > MAX_PAGE_BYTES:
        raise ValueError(f"the page has more than {MAX_PAGE_BYTES:,} bytes of HTML, the maximum")
    for tag in LONG_TAG.finditer(page):
        if len(QUOTED.sub(b"", tag[0]).split()) > MAX_ATTRIBUTES:
            raise ValueError(f"a tag of the page has more than {MAX_ATTRIBUTES:,} attributes, the maximum")
    tags = page.count(b"<")
    if extract.by != RESILIPARSE and tags > MAX_TAGS:
        raise ValueError(f"the page has more than {MAX_TAGS:,} tags, the maximum for {extract.by}")
    if extract.by != RESILIPARSE and tags > MAX_BREAKS and _breaks(page) > MAX_BREAKS:
        raise ValueError(
            f"the page has more than {MAX_BREAKS:,} tags that may end a paragraph, the maximum for {extract.by}"
        )
    if tags > FEW_TAGS and _nests_deeply(page):
        raise ValueError(
            f"the tags of the page nest too deeply: the sum over all tags of the open tags (unclosed formatting counts "
            f"{FORMATTING_WEIGHT} times) is above {MAX_NESTING:,}"
        )


def _breaks(page: bytes) -> int:
    return sum(name.removeprefix(b"/") in BREAKS for name in TAG.findall(page.lower()))


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
