# SPDX-License-Identifier: Apache-2.0
"""The steps of `rewrite` that run on the CPU with either engine: by RE2, or by Python on the texts that RE2 selects.

If no text has a match, the array is returned unchanged. White space is that of `str.isspace`, listed here because RE2's
class has only ASCII.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.patterns import pattern_problem
from curation.rules.grammar import shortened
from curation.stages.text_sizes import exceed, too_large

MAX_REPLACEMENTS = 1000  # each is a pass over the texts
LINE_END = r"[\n-\r\x1c-\x1e\x{85}\x{2028}\x{2029}]"  # str.splitlines
NOT_FEED = r"\t\x0b-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
BLANK = rf"\n{NOT_FEED}"
SENTENCE_END = r"""([.!?…。！？।]["')\]}»”’]*)"""  # as in Measure.sentences

GROUP = re.compile(r"\\([0-9\\])")  # a group in the text that replaces a match
# Only ASCII letters begin a named entity (html.entities.html5).
ENTITY = "&(?:#[0-9Xx]|[A-Za-z])"


class Replacement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    r"""A pattern whose matches `rewrite` replaces.

    matches   RE2 regular expression; matches do not overlap, and are taken from left to right
    by        text in place of a match: `\1` to `\9` are groups, `\0` is the whole match, `\\` a backslash; "" deletes
              matches
    """

    matches: str
    by: str


def replacement_problem(replacement: Replacement) -> str:
    """Return what is wrong with a replacement; "" for a right one."""
    pattern, by = shortened(replacement.matches), shortened(replacement.by)
    if problem := pattern_problem(replacement.matches):
        return f"matches {pattern} {problem}"
    try:
        pc.replace_substring_regex(pa.array([""], pa.large_string()), replacement.matches, replacement.by)
    except pa.ArrowInvalid as error:
        cause = str(error).removeprefix("Invalid replacement string: ").removeprefix("Rewrite schema ")
        hint = r"Write \1 to \9 for groups, \0 for the match, \\ for a backslash"
        return f"by {by} does not fit matches {pattern}: {cause} {hint}"
    except UnicodeEncodeError:
        return "by must be text that UTF-8 can hold"
    return ""


def edit_where(texts: pa.Array, found: pa.Array, edit: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Return the texts with `edit` applied to those where `found` is true; `texts` itself if nothing changes."""
    count = pc.sum(found).as_py() or 0
    if count in (0, len(texts)):
        return edit(texts) if count else texts
    found = pc.fill_null(found, False)
    chosen = texts.filter(found)
    edited = edit(chosen)
    return texts if edited is chosen else pc.replace_with_mask(texts, found, edited)


def edit_each(texts: pa.Array, hint: str, edit: Callable[[str], str]) -> pa.Array:
    """Return the texts with the Python function `edit` applied to those in which RE2 finds `hint`."""
    found = pc.match_substring_regex(texts, hint)
    return edit_where(texts, found, lambda chosen: pa.array(map(edit, chosen.to_pylist()), texts.type))


def replace_matches(texts: pa.Array, pattern: str, by: str) -> pa.Array:
    """Return the texts with all matches replaced; null for a text that would be too large
    (`curation.stages.text_sizes`). Raises TextsGrowError if all texts together would be too large."""
    found = pc.match_substring_regex(texts, pattern)
    return edit_where(texts, found, lambda chosen: _replaced(chosen, pattern, by))


def _replaced(texts: pa.Array, pattern: str, by: str) -> pa.Array:
    before = _sizes(texts)
    total, groups = int(before.sum()), [int(digit) for digit in GROUP.findall(by) if digit != "\\"]
    written = len(GROUP.sub("", by).encode()) + GROUP.findall(by).count("\\")
    most = before * (1 + len(groups)) + (before + 1) * written
    if exceed(most, total):
        matches = pc.fill_null(pc.count_substring_regex(texts, pattern=pattern), 0).to_numpy(zero_copy_only=False) + 1
        most = before * (1 + len(groups)) + matches * written
    if exceed(most, total):
        without, marked = (_sizes(pc.replace_substring_regex(texts, pattern, mark)) for mark in ("", "-"))
        exact = without + (marked - without) * written
        for group in {*groups}:
            with_group = _sizes(pc.replace_substring_regex(texts, pattern, rf"\{group}"))
            exact += (with_group - without) * groups.count(group)
        gone = pa.array(too_large(exact, total))
        texts = pc.if_else(gone, pa.scalar(None, texts.type), texts)
    return pc.replace_substring_regex(texts, pattern, by)


def _sizes(texts: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False), np.int64)


def decode_entities(texts: pa.Array) -> pa.Array:
    """Return the texts with HTML entities decoded once, by `html.unescape`."""
    return edit_each(texts, ENTITY, html.unescape)


def convert_line_ends(texts: pa.Array) -> pa.Array:
    """Return the texts with each CR LF replaced by LF."""
    return replace_matches(texts, r"\r\n", "\n")


def collapse_blank_lines(texts: pa.Array) -> pa.Array:
    """Return the texts with at most two LF in a row. White space between the LF is ignored, and is cut with them."""
    return replace_matches(texts, rf"(\n[{NOT_FEED}]*\n)(?:[{NOT_FEED}]*\n)+", r"\1")


def put_sentences_on_lines(texts: pa.Array) -> pa.Array:
    """Return the texts with one sentence per line. Line ends within a sentence become a space; white space at both ends
    of a text is cut."""
    stripped = replace_matches(texts, rf"^[{BLANK}]+|[{BLANK}]+$", "")
    joined = replace_matches(stripped, rf"[{BLANK}]*{LINE_END}[{BLANK}]*", " ")
    return replace_matches(joined, rf"{SENTENCE_END}[{BLANK}]+", r"\1" "\n")
