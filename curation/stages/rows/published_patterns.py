# SPDX-License-Identifier: Apache-2.0
r"""The five patterns of personal data that the reference pipeline of `nemo` names: `redact` with `patterns: published`.

The patterns are literal: `\b`, `\d` and `\s` are those of Python's `re`, so letters and digits are those of its Unicode
version. The literal pattern of e-mail addresses takes quadratic time on text such as `a.a.a.`. The pattern here has the
same matches, but tries each run of characters once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

DIGIT = r"[0-9\x{80}-\x{10FFFF}]"  # in hints: RE2 and Python may know different digits
ANY = r"(?s:.)?"
LOCAL = "[A-Za-z0-9._%+-]"
# A match begins at the first word edge in a run of LOCAL: the literal pattern is \b LOCAL+ @ and then the domain.
RUN = rf"((?:\B{LOCAL})*+)\b{LOCAL}++@[A-Za-z0-9.-]+\.[A-Z|a-z]{{2,}}\b"
RUN_HERE, RUN_START = re.compile(RUN), re.compile(f"(?<!{LOCAL}){RUN}")


class PublishedPattern(NamedTuple):
    """The search for one type. `hint` is an RE2 pattern that matches every text in which `pattern` matches. Matches
    that fail `check` are not replaced."""

    hint: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] = bool  # accepts every match

    def replace(self, text: str, replacement: str) -> tuple[str, int]:
        """Replace the matches, from left to right. Return the new text and the number of replacements."""
        kept = 0

        def put(match: re.Match[str]) -> str:
            nonlocal kept
            if self.check(match):
                return replacement
            kept += 1
            return match[0]

        replaced, found = self.pattern.subn(put, text)
        return replaced, found - kept


class PublishedEmail(NamedTuple):
    """The search for e-mail addresses."""

    hint: str = r"@[A-Za-z0-9.-]+\.[A-Z|a-z]{2}"

    def replace(self, text: str, replacement: str) -> tuple[str, int]:
        """Replace the matches, from left to right. Return the new text and the number of replacements."""
        pieces, done = [""], 0
        # A match may end inside a run: the rest of the run is tried too.
        while match := (done and RUN_HERE.match(text, done)) or RUN_START.search(text, done):
            pieces += (text[done : match.end(1)], replacement)
            done = match.end()
        return "".join((*pieces, text[done:])), len(pieces) // 2


PUBLISHED: dict[str, PublishedPattern | PublishedEmail] = {  # in the order of application
    "email": PublishedEmail(),
    "phone": PublishedPattern(
        rf"{DIGIT}{{3}}[-.]?{DIGIT}{{3}}[-.]?{DIGIT}{{4}}", re.compile(r"\b\d{3}[-.]?\d{3}[-.]?\d{4}\b")
    ),
    "ssn": PublishedPattern(rf"{DIGIT}{{3}}-{DIGIT}{{2}}-{DIGIT}{{4}}", re.compile(r"\b\d{3}-\d{2}-\d{4}\b")),
    "credit_card": PublishedPattern(
        ANY.join([f"{DIGIT}{{4}}"] * 4), re.compile(r"\b\d{4}[-\s]?\d{4}[-\s]?\d{4}[-\s]?\d{4}\b")
    ),
    "ip_address": PublishedPattern(
        r"\.".join([f"{DIGIT}{{1,3}}"] * 4), re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
    ),
}
