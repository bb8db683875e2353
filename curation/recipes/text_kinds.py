# SPDX-License-Identifier: Apache-2.0
"""Kinds of texts that need other stages than the default recipe: HTML, source code, and text with wrapped lines."""

from __future__ import annotations

import re
from itertools import pairwise
from unicodedata import east_asian_width

TAGS = (
    "a|abbr|article|aside|b|blockquote|body|br|code|div|em|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|img|"
    "li|main|nav|ol|p|pre|script|section|small|span|strong|style|sub|sup|table|tbody|td|th|thead|title|tr|u|ul"
)
TAG = re.compile(rf"</?(?:{TAGS})(?:\s+[a-z-]+\s*=[^<>]*|\s*/)?>", re.IGNORECASE)
ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{2,6}|#x[0-9a-f]{2,6});", re.IGNORECASE)
MIN_TAGS = 2  # fewest tags of a text with tags
WRAPPED_WIDTH, MIN_WRAPPED, MIN_WIDTH = 120, 3, 0.75  # longest line, lines, width as a share of the longest line
LOOKED_AT = 20_000  # characters at the start of a text
MIN_CODE_LINES, MIN_CODE = 3, 0.4  # fewest lines of source code, and the share of lines that look like code
LINE_CHARACTERS = 200  # at the end of a line
CODE_SUFFIXES = {
    ".bash", ".c", ".cc", ".cpp", ".cs", ".cu", ".cuh", ".cxx", ".go", ".h", ".hh", ".hpp", ".java", ".jl", ".js",
    ".jsx", ".kt", ".lua", ".m", ".php", ".pl", ".pm", ".py", ".pyi", ".pyx", ".r", ".rb", ".rs", ".scala", ".sh",
    ".sql", ".swift", ".ts", ".tsx", ".v", ".vhd", ".zig",
}  # fmt: skip
CODE_LINE = re.compile(
    r"""
      \s* (?: (?: def|class|fn|func|function|struct|enum|interface|impl) \s+ \w+ .* [({:]
        | (?: if|elif|for|while|try|except|with|switch|else) \b .* [:{(]$
        | (?: import|using|package) \s+ [\w.{*]+ (?: \s+ as \s+ \w+)?$ | from \s+ [\w.]+ \s+ import \s
        | \# \s* (?: include|define|ifdef|ifndef|endif|if|pragma) \b | @\w+ (?: [.(]|$) | // | /\* | \*/
        | (?: return|raise|yield|throw|assert|const|let|var|static|public|private) \s .* [^.!?,:]$
        | (?: return|break|continue|pass|end|fi|done|esac)$
        | [\w.$\[\]"'*&]{1,60} \s? (?: [-+*/|&]?=|:=|<-) \s? \S | [\w.$]{1,60} \( .* [)(,\[{]$
        | [)\]}] [,;:)\]}({]* $ )
    | .* [;{}]$""",
    re.VERBOSE,
)


def has_tags(text: str) -> bool:
    """Return whether there are at least MIN_TAGS tags of HTML: fewer may be quoted in prose."""
    return len(TAG.findall(text)) >= MIN_TAGS


def is_code(text: str) -> bool:
    """Return whether many lines of a text look like statements of a programming language."""
    lines = [line.rstrip()[-LINE_CHARACTERS:] for line in text[:LOOKED_AT].split("\n") if line.strip()]
    return len(lines) >= MIN_CODE_LINES and sum(map(bool, map(CODE_LINE.match, lines))) >= MIN_CODE * len(lines)


def is_wrapped(text: str) -> bool:
    """Return whether the lines inside the paragraphs of a text are about equally wide, as those of wrapped text are."""
    lines = text.split("\n")
    inner = [line for line, following in pairwise(lines) if line.strip() and following.strip()]
    widths = [sum(2 if east_asian_width(character) in "WF" else 1 for character in line) for line in inner]
    longest = max(widths, default=0)
    wide = sum(width >= MIN_WIDTH * longest for width in widths)
    return len(inner) >= MIN_WRAPPED and longest <= WRAPPED_WIDTH and 3 * wide >= 2 * len(inner)
