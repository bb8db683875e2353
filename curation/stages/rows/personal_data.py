# SPDX-License-Identifier: Apache-2.0
"""Patterns of personal data for `redact`: each type has an exact pattern, and a wider one that selects documents.

Patterns prefer precision to recall: a number counts only in a format that is rare for other numbers. Letters, digits
and word edges are those of ASCII. So the Unicode version has no effect, and a number between letters of a script
without spaces has edges, too. RE2 has no lookaround, so it only selects documents, without Python's global lock.
Python's `re`, which is ten times slower, then finds the matches. Results therefore do not depend on RE2's version. All
repetitions are bounded, so time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from curation.stages.rows.address_context import is_host, is_mail


class Finder(NamedTuple):
    """The search for one type of personal data.

    hint     RE2 pattern that matches every text in which `pattern` matches, and few others
    pattern  pattern of a match; if it has a group `value`, only this group is replaced
    check    further condition on a match; by default none
    """

    hint: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] = bool  # accepts every match

    def replace(self, text: str, replacement: str) -> tuple[str, int]:
        """Replace the matches that pass the check, from left to right. Return the new text and the number of
        replacements."""
        pieces: list[str] = []
        done = position = 0
        part = "value" if "value" in self.pattern.groupindex else 0
        while match := self.pattern.search(text, position):
            if self.check(match):
                pieces += (text[done : match.start(part)], replacement)
                done = position = match.end(part)
            else:
                position = match.start() + 1
        return "".join((*pieces, text[done:])), len(pieces) // 2


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that is written with spaces and comments. Its character classes match only ASCII."""
    return re.compile(pattern, re.ASCII | re.VERBOSE)


# Edges of numbers: a match is no part of a word, a code (AB-123, 123-AB), a longer number (1.5) or a fraction. A letter
# may follow: an extension as in 555-0123x45, or the next word if a recipe has deleted line ends.
BEFORE = r"(?<![+\w]) (?<!\w-) (?<!\d[./])"
AFTER = r"(?! \d | \.\d | -\w )"

OCTET = r"(?: 25[0-5] | 2[0-4]\d | 1\d\d | [1-9]?\d )"
# RFC 5321, 4.5.3.1: 64 octets before the @; 4.1.3: an IP address in brackets is a domain. RFC 1035: labels of 63.
# `logo@2x.png` is a file name. In `_a@b.co_` the underscores are marks of emphasis; an underscore begins a local part
# only if the part has no letter or digit.
EMAIL = rf"""
    (?<![A-Za-z0-9]) (?: [A-Za-z0-9] [\w.%+-]{{0,63}}+ | (?<!_) _ [_.%+-]{{0,63}}+ ) @ (?! \dx\. )
    (?: (?: [A-Za-z0-9] (?: [A-Za-z0-9-]{{0,61}} [A-Za-z0-9] )? \. ){{1,10}}
        (?: xn-- [A-Za-z0-9-]{{0,58}} [A-Za-z0-9] | [A-Za-z]{{2,24}} ) (?![A-Za-z0-9])
      | \[ (?: {OCTET} (?: \. {OCTET} ){{3}} | [Ii][Pp]v6: [0-9A-Fa-f:.]{{2,45}} ) \] )
"""

# RFC 3986, 3.2.2: numbers from 0 to 255 without leading zeros. RFC 4291, 2.2, with the first groups in use according to
# IANA's address space registry (2000::/3, fc00::/7, fe80::/10, ff00::/8): others are times, or names in C++.
GROUP = r"[0-9A-Fa-f]{1,4}"
IP_ADDRESS = rf"""
    (?<![\w.]) (?<![A-Za-z_]-) {OCTET} (?: \. {OCTET} ){{3}} (?! \w | \.\w | -[A-Za-z_] )
    | (?<![\w:]) (?: [23][0-9A-Fa-f]{{3}} | [Ff] (?: [CDFcdf][0-9A-Fa-f]{{2}} | [Ee][89ABab][0-9A-Fa-f] ) )
      (?: (?: :{GROUP} ){{7}} | (?: :{GROUP} ){{0,6}} :: (?: {GROUP} (?: :{GROUP} ){{0,5}} )? )
      (?! \w | :[\w:] | \.\d )
"""
GROUPS = 8
NUMBERED = re.compile(r"\b(?:section|chapter|version|release)s?[ .]{1,2}\Z", re.ASCII | re.IGNORECASE)
LINE_START = re.compile(r"(?:\A|\n)[ \t*#-]{0,8}\Z")
TITLE = re.compile(r"\.[ \t]+\S|[ \t]+[A-Z]", re.ASCII)
MAX_SECTION = 31  # of random addresses, 1 in 4,096 has only numbers up to 31


def _is_host(match: re.Match[str]) -> bool:
    return _is_address(match) and is_host(match)


def _is_address(match: re.Match[str]) -> bool:
    """Return whether a match is an address. An IPv6 match may have too many groups. An IPv4 match may be a number of a
    section or version: it follows such a word, or precedes a title at the start of a line."""
    address, text, start = match[0], match.string, match.start()
    if ":" in address:
        return len([group for group in address.split(":") if group]) < GROUPS or "::" not in address
    if NUMBERED.search(text, max(start - 12, 0), start):
        return False
    small = all(int(number) <= MAX_SECTION for number in address.split("."))
    return not (small and LINE_START.search(text, max(start - 9, 0), start) and TITLE.match(text, match.end()))


# ISO/IEC 7812-1: up to 19 digits, the last one a Luhn check digit. In one piece, or in the groups printed on cards.
CREDIT_CARD = rf"""
    {BEFORE} (?<!\.) [2-6]\d{{3}}
    (?: ([ -]) (?: \d{{4}} \1 \d{{4}} \1 \d{{4}} | \d{{6}} \1 \d{{4,5}} ) | \d{{10,15}} (?![A-Za-z_]) ) {AFTER}
"""
ISSUERS = (  # first four digits, numbers of digits
    (range(4000, 5000), (16, 19)),  # Visa; numbers of 13 digits, which look like an EAN, are no longer issued
    (range(5100, 5600), (16,)),  # Mastercard
    (range(2221, 2721), (16,)),
    (range(3400, 3500), (15,)),  # American Express
    (range(3700, 3800), (15,)),
    (range(3000, 3060), (14,)),  # Diners Club
    (range(3600, 3700), (14,)),
    (range(3800, 4000), (14,)),
    (range(3528, 3590), (16, 17, 18, 19)),  # JCB
    (range(6200, 6300), (16, 17, 18, 19)),  # UnionPay
    (range(6011, 6012), (16, 17, 18, 19)),  # Discover
    (range(6440, 6600), (16, 17, 18, 19)),
)


def _is_card(match: re.Match[str]) -> bool:
    digits = [int(character) for character in match[0] if character.isdigit()]
    first = int("".join(map(str, digits[:4])))
    if not any(first in firsts and len(digits) in lengths for firsts, lengths in ISSUERS):
        return False
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


# Social Security Administration: area not 000, 666 or 900 and above, group not 00, serial number not 0000.
SSN = rf"{BEFORE} (?! 000 | 666 | 9 ) \d{{3}} - (?! 00 ) \d\d - (?! 0000 ) \d{{4}} {AFTER}"

# North American Numbering Plan: both codes are 200 or above, and neither ends in 11. ITU-T E.164: country codes, and at
# most 15 digits; at least 10, without a 0 that is dialled only within the country.
CODE = r"[2-9] (?: [02-9]\d | 1[02-9] )"
FIRST_DIGIT = r"(?: [ .-]? \(? 0 \)? )? [ .-]? \(? [1-9]"
DIGIT = r"(?: \)? [ .-]? \(? \d )"
PHONE = rf"""
    {BEFORE} (?:
        \+1 [ .-]? (?: \( {CODE} \) | {CODE} ) [ .-]? {CODE} [ .-]? \d{{4}}
      | (?: 1 [ .-] )? (?: \( {CODE} \) [ -]? {CODE} [ .-] | {CODE} [ /-] {CODE} - | {CODE} \. {CODE} \. ) \d{{4}}
      | \+7 {DIGIT}{{10}}
      | \+(?: 2[07] | 3[0-469] | 4[013-9] | 5[1-8] | 6[0-6] | 8[1246] | 9[0-58] ) {FIRST_DIGIT} {DIGIT}{{7,12}}
      | \+(?: 2[1-69] | 3[578] | 42 | 5[09] | 6[7-9] | 8[0578] | 9[679] )\d {FIRST_DIGIT} {DIGIT}{{6,11}}
    ) {AFTER}
"""

FINDERS = {  # in the order of application: the least ambiguous first
    "email": Finder(r"@[\[A-Za-z0-9]", compiled(EMAIL), is_mail),
    "ip_address": Finder(
        r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|[23Ff][0-9A-Fa-f]{3}:[0-9A-Fa-f:]", compiled(IP_ADDRESS), _is_host
    ),
    "credit_card": Finder(r"[2-6][0-9]{3}(?:[ -]?[0-9]){10}", compiled(CREDIT_CARD), _is_card),
    "ssn": Finder(r"[0-9]{3}-[0-9]{2}-[0-9]{4}", compiled(SSN)),
    "phone": Finder(
        r"[2-9][0-9]{2}\)?[ ./-]?[2-9][0-9]{2}[ .-][0-9]{4}|\+[1-9](?:[ .()-]{0,3}[0-9]){9}", compiled(PHONE)
    ),
}

SHAPES = FINDERS | {  # the text around an address is not checked, except for numbers of sections and versions
    "email": FINDERS["email"]._replace(check=bool),
    "ip_address": FINDERS["ip_address"]._replace(check=_is_address),
}
