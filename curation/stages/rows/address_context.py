# SPDX-License-Identifier: Apache-2.0
"""Check whether a match is an e-mail or IP address: names in programs and version numbers have the same shape.

Top-level domains are listed in a file, so results do not depend on a library. Only a few characters around a match are
read, so time is linear in the text.
"""

from __future__ import annotations

import re
from pathlib import Path

NAMES = Path(__file__).with_name("top_level_domains.txt").read_text("ascii")
DOMAINS = frozenset(re.sub(r"#.*", "", NAMES).split())

# These domains count even if more follows, as in `a@b.comNext` after a deleted line end, or in `a@b.org.html`.
COMMON = re.compile(r"\.(?i:com|edu|gov|net|org)(?![a-z])")
# A match in angle brackets, or after one of these words, is an e-mail address, whatever its domain.
MAIL = re.compile(r"(?:mailto:|\b(?:from|to|cc|bcc|reply-to|sender|e-?mail|mail)[ ]?:[ ]?)\Z", re.IGNORECASE)
VERSION = re.compile(r"v?\d+\.\d", re.ASCII | re.IGNORECASE)  # net@v0.1.2-rc.dev, a@1.2.dev
LABELS = ("this", "super", "return", "break", "continue")  # this@Outer.name (Kotlin)
CODE = re.compile(r"[(\[$]|_\w|[ ]?<-", re.ASCII)  # q@k.to(x), obj@meta.name$a, x@y.is_z, x@info.id <- 1 (Python, R)


def is_mail(match: re.Match[str]) -> bool:
    """Return whether a match is an e-mail address. Names in programs (`q@k.transpose`), versions and systemd units
    (`a@tty1.service`) are not."""
    local, domain = match[0].split("@")
    text, start, end = match.string, match.start(), match.end()
    if local == "git" and text[end : end + 1] in (":", "/"):  # git@host:path is the address of a repository
        return False
    framed = text[start - 1 : start] == "<" and text[end : end + 1] == ">"
    if domain[0] == "[" or framed or MAIL.search(text, max(start - 12, 0), start) or COMMON.search(domain):
        return True
    name = domain.rpartition(".")[2]
    one_case = name.islower() or name.isupper()  # user@Model.Id is a property
    known = one_case and (name.lower() in DOMAINS or name[:4].lower() == "xn--")
    return known and not (VERSION.match(domain) or local in LABELS or CODE.match(text, end))


NUMBERED = re.compile(
    r"(?:version|release|revision|firmware|section|chapter|identifier|chrome|edge?|firefox|(?<![a-z])(?:ver|oid|opr))s?"
    r"[^\w\n]{1,6}\Z",
    re.ASCII | re.IGNORECASE,
)
QUAD = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)", re.ASCII)
SMALL = 31  # of a version, at most one number is above 31; of public addresses, that is true of 1 in 150
NEAR = 48  # characters
# Signs of a host: a word before the match in its line, or a port, a prefix length or the fields of a log after it.
HOST = re.compile(
    r"(?<![a-z])ip(?:s|v[46])?(?![a-z])|addr|(?<!g)host|mask|connect(?!or)|listen|bind\(|forwarded|received"
    r"|(?<![a-z])(?:cidr|client|dns|gateway|inet|nameserver|peer|ping|proxy|remote|resolver|socket|subnet|telnet)"
    r"|server[ ]?[:=(\"']|(?<![a-z])ssh[ ]|//\Z|::(?:ffff:)?\Z|\.[a-z]{2,}\.?[ ]?[(\[]+\Z",
    re.ASCII | re.IGNORECASE,
)
HOST_AFTER = re.compile(
    r":\d|/\d\d?(?!\d)|[\"'],[ ]?\d{1,5}\b|[ ]+(?:port|netmask|mask|via|dev)\b|[ ]-[ ]\S+[ ]\[", re.ASCII
)


def is_host(match: re.Match[str]) -> bool:
    """Return whether a match is a host's address. Versions, sections, object identifiers and IPv6 prefixes of one group
    are not."""
    address, text, start, end = match[0], match.string, match.start(), match.end()
    if ":" in address:
        return address.count(":") > 2 or not address.endswith("::")
    if NUMBERED.search(text, max(start - 16, 0), start):
        return False
    if not _is_small(address):
        return True
    before, after = max(start - NEAR, 0), end + NEAR
    others = (*QUAD.findall(text, before, start), *QUAD.findall(text, end, after))
    line = max(before, text.rfind("\n", before, start) + 1)
    found = HOST.search(text, line, start) or HOST_AFTER.match(text, end, after)
    return bool(found) or not all(map(_is_small, others))


def _is_small(address: str) -> bool:
    """Return whether an address could be a version by its numbers. 8.8.8.8 could not; 1.1.1.1 could, as CVS has such
    versions."""
    numbers = [int(number) for number in address.split(".")]
    same = len({*numbers}) == 1 and numbers[0] > 1
    return numbers[0] <= SMALL and sum(number > SMALL for number in numbers) <= 1 and not same
