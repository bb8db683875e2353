# SPDX-License-Identifier: Apache-2.0
"""`rewrite: {markup: strip}`: delete tags of HTML, and separate the words around the tags. This step runs on the CPU
with either engine.

The simple pattern `<[^>]+>` deletes `< 0.05 ... q >` from a text on statistics, and a tenth to a fifth of source code.
Here `<` begins a tag only if the name of an HTML element follows, with attributes in the syntax of HTML. Sources: the
HTML standard, sections 13.1.2 (tags) and 13.1.6 (comments), the elements of HTML 4 and 3.2 that the standard dropped,
SVG and MathML.

No pattern backtracks. A `<` outside quotes ends the reading of a tag. So each character is read at most once outside
quotes, and once per kind of quotes. In all, a text is read at most four times.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pyarrow as pa

from curation.stages.rows.text_edits import edit_each

# Tags of BLOCKS end a line; tags of CELLS end a word.
BLOCKS = frozenset((
    "address", "article", "aside", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog", "dir",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "frameset", "h1", "h2", "h3", "h4", "h5",
    "h6", "head", "header", "hgroup", "hr", "html", "legend", "li", "main", "menu", "nav", "noframes", "noscript",
    "ol", "optgroup", "option", "p", "pre", "search", "section", "select", "summary", "table", "tbody", "template",
    "tfoot", "thead", "title", "tr", "ul", "xmp",
))  # fmt: skip
CELLS = frozenset(("td", "th"))
INLINE = frozenset((
    "a", "abbr", "acronym", "annotation", "applet", "area", "audio", "b", "base", "basefont", "bdi", "bdo", "bgsound",
    "big", "blink", "button", "canvas", "circle", "cite", "clippath", "code", "col", "colgroup", "data", "datalist",
    "defs", "del", "dfn", "ellipse", "em", "embed", "font", "frame", "g", "i", "iframe", "image", "img", "input",
    "ins", "kbd", "label", "line", "lineargradient", "link", "map", "mark", "marquee", "mask", "math", "menclose",
    "meta", "meter", "mfenced", "mfrac", "mi", "mn", "mo", "mover", "mroot", "mrow", "ms", "mspace", "msqrt", "mstyle",
    "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover", "nobr", "o:p", "object",
    "output", "param", "path", "pattern", "picture", "polygon", "polyline", "progress", "q", "radialgradient", "rb",
    "rect", "rp", "rt", "rtc", "ruby", "s", "samp", "script", "semantics", "slot", "small", "source", "span", "stop",
    "strike", "strong", "style", "sub", "sup", "svg", "symbol", "textarea", "time", "track", "tspan", "tt", "u", "use",
    "var", "video", "wbr",
))  # fmt: skip
NAMES = BLOCKS | CELLS | INLINE
# Elements that pages use without an end tag. A tag of another element, if it has no attributes, counts only if the text
# has its end tag: `<address>` alone is a word of a manual, `List<Object>` a type.
OPEN = frozenset(("br", "col", "dd", "dt", "hr", "html", "li", "p", "td", "th", "tr", "wbr"))
# Attributes that need no value.
BOOLEAN = (
    "allowfullscreen async autofocus autoplay border checked compact controls crossorigin declare default defer "
    "disabled download formnovalidate hidden inert ismap itemscope loop multiple muted nohref nomodule noresize "
    "noshade novalidate nowrap open playsinline readonly required reversed selected"
).replace(" ", "|")
LONGEST = 1_000_000  # characters; a longer tag or comment is text

SPACE = r"[ \t\n\f\r]"
VALUE = r"""(?:"[^"]*+"|'[^']*+'|[^ \t\n\f\r"'<>`]++)"""
ATTRIBUTE = (
    rf"""(?:{SPACE}++|(?<=["']))(?:[A-Za-z_:@#][A-Za-z0-9_.:@-]*+{SPACE}*+={SPACE}*+{VALUE}|"""
    rf"""(?:{BOOLEAN}|data-[a-z0-9-]++)(?=[ \t\n\f\r/>]))"""
)
TAG = (
    rf"""<(?:(?P<close>/?)(?P<name>[A-Z][A-Z0-9:]*+)(?P<attributes>(?:{ATTRIBUTE})*+){SPACE}*+/?{SPACE}*+>"""
    r"""|(?P<comment>!--)|!DOCTYPE[^<>]*+>|\?xml[^<>]*+>|!\[(?:if[^<>\]]*+|endif)\]>)"""
)  # compiled at the first text, since that takes as long as 50 other expressions
END = re.compile("</([A-Za-z][A-Za-z0-9:]*+)")
HINT = r"<[/!?]?[A-Za-z\-\[]"  # RE2


def remove_tags(texts: pa.Array) -> pa.Array:
    """Return the texts without tags of HTML; nulls stay nulls."""
    return edit_each(texts, HINT, strip_tags)


def strip_tags(text: str) -> str:
    """Return the text without tags. The tag of a block becomes a line feed and the tag of a cell a space, unless the
    line or the word already ends there."""
    parts: list[str] = []
    done, blank, spaced = 0, True, True  # whether the line so far is blank, and whether it ends with white space
    for start, end, mark in find_tags(text):
        part, following = text[done:start], text[end : end + 1]
        if part:
            spaced = part[-1].isspace()
            words = part.rstrip(" \t")
            blank = words[-1] in "\r\n" if words else blank
        parts.append(part)
        done = end
        if mark == "\n" and not blank and following not in "\r\n":
            parts.append("\n")
            blank = spaced = True
        elif mark == " " and not spaced and following and not following.isspace():
            parts.append(" ")
            spaced = True
    return "".join(parts) + text[done:] if parts else text


def find_tags(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the tags of a text: position of the first character, position after the last, and the separator that
    replaces the tag ("" for none)."""
    end, comment_end = 0, 0
    closed: set[str] | None = None  # names of the end tags in the text, as spelled
    tag = re.compile(TAG, re.IGNORECASE | re.ASCII)
    while match := tag.search(text, end):
        start, end = match.span()
        name = match["name"] or ""
        element = name.lower()
        if match["comment"]:
            if comment_end < start + 2:  # <!--> is a whole comment
                found = text.find("-->", start + 2)
                comment_end = found if found >= 0 else sys.maxsize
            if comment_end + 3 - start > LONGEST:
                continue
            end = comment_end + 3
        elif end - start > LONGEST or (name and (element not in NAMES or (match["close"] and match["attributes"]))):
            continue
        elif name and not match["close"] and not match["attributes"] and text[end - 2] != "/":
            closed = {*END.findall(text)} if closed is None else closed
            if name not in closed and (element not in OPEN or (name == "P" and text[start - 1 : start].isalnum())):
                continue
        yield start, end, "\n" if element in BLOCKS else " " if element in CELLS else ""
