# SPDX-License-Identifier: Apache-2.0
"""Mojibake: UTF-8 that was read in another encoding, such as `Ã©` for `é`. ftfy repairs it, in the texts that one RE2
pattern selects.

ftfy leaves a line unchanged unless its pattern of unlikely neighbours matches. That pattern has no lookaround. The RE2
pattern is made from ftfy's and matches wherever ftfy's matches, so no text that ftfy would change is missed. ftfy reads
4 to 7 MB of text per CPU second.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import RecipeError, installation
from curation.base.patterns import pattern_problem
from curation.stages.rows.text_edits import BLANK, edit_each, edit_where

NOT_ASCII = r"[^\x00-\x7f]"  # ftfy never changes ASCII
PARTS = re.compile(r"(?P<kept>\[[^\]]+\]|\\[^sw]|[^\s#\\^.\[])|\s+|#.*|(?P<white>\\s)|(?P<word>\\w)|\^|(?P<any>\.)")
WIDER = {"white": f"[{BLANK}]", "word": r"[\w\x{80}-\x{10FFFF}]", "any": "(?s:.)"}  # RE2 has them only for ASCII
OFF = (
    *("unescape_html", "remove_terminal_escapes", "fix_latin_ligatures", "fix_character_width", "uncurl_quotes"),
    *("fix_line_breaks", "remove_control_chars"),
)


def facts() -> dict[str, str]:
    """Return the version of ftfy, on which results depend."""
    return {"ftfy": version("ftfy") if find_spec("ftfy") else "missing"}


def repair_mojibake(texts: pa.Array) -> pa.Array:
    """Return the texts with mojibake repaired line by line by `ftfy.fix_text`, whose other steps are off."""
    ftfy, config = load()

    def repair(chosen: pa.Array) -> pa.Array:
        return edit_each(chosen, candidates(), lambda text: ftfy.fix_text(text, config))

    return edit_where(texts, pc.invert(pc.string_is_ascii(texts)), repair)


@lru_cache(maxsize=1)
def load() -> tuple[Any, Any]:
    """Return ftfy and its settings. Raises RecipeError if ftfy is not installed."""
    try:
        import ftfy
    except ImportError as error:
        raise RecipeError(
            f"repair: mojibake needs the package ftfy, which cannot be imported ({error}). Run: "
            f"{installation('repair')}"
        ) from None
    return ftfy, ftfy.TextFixerConfig(explain=False, normalization=None, **dict.fromkeys(OFF, False))


@lru_cache(maxsize=1)
def candidates() -> str:
    """Return an RE2 pattern that matches every text that ftfy may change."""
    from ftfy.badness import BADNESS_RE

    pattern = re2_pattern(BADNESS_RE.pattern)
    return NOT_ASCII if pattern_problem(pattern) else pattern


def re2_pattern(verbose: str) -> str:
    """Return an RE2 pattern that matches every text in which a verbose pattern of Python's `re` matches some part."""

    def plain(match: re.Match[str]) -> str:
        kind = match.lastgroup
        return match[0] if kind == "kept" else WIDER.get(kind or "", "")  # ^: a part may begin anywhere

    return PARTS.sub(plain, verbose)
