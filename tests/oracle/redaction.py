# SPDX-License-Identifier: Apache-2.0
"""`redact` of one document in slow plain Python: every piece of text that could be data is taken apart and judged by
itself, the longest at each place first."""

import ipaddress
import re
import string
from collections.abc import Callable
from pathlib import Path

from curation.stages.rows import redact as redact_stage
from curation.stages.rows.private_addresses import is_private

LIST = Path(redact_stage.__file__).with_name("top_level_domains.txt").read_text()
TOP_LEVEL_DOMAINS = {name for line in LIST.splitlines() if line[0] != "#" for name in line.split()}
LETTERS, DIGITS = string.ascii_letters, string.digits
NUMBER_WORDS = (
    *(
        "version",
        "release",
        "revision",
        "firmware",
        "section",
        "chapter",
        "identifier",
        "chrome",
        "edg",
        "edge",
        "firefox",
    ),
    *("ver", "oid", "opr"),
)
NOT_LETTERS = ("", "s", "v4", "v6")
HOST_WORDS = (
    *(
        "cidr",
        "client",
        "dns",
        "gateway",
        "inet",
        "nameserver",
        "peer",
        "ping",
        "proxy",
        "remote",
        "resolver",
        "socket",
    ),
    *("ssh ", "subnet", "telnet"),
)
ALNUM = LETTERS + DIGITS
WORD = ALNUM + "_"
TWO_DIGITS = (
    *(20, 27, 30, 31, 32, 33, 34, 36, 39, 40, 41, 43, 44, 45, 46, 47, 48, 49, 51, 52, 53, 54, 55, 56, 57, 58),
    *(60, 61, 62, 63, 64, 65, 66, 81, 82, 84, 86, 90, 91, 92, 93, 94, 95, 98),
)
ZONES = (21, 22, 23, 24, 25, 26, 29, 35, 37, 38, 42, 50, 59, 67, 68, 69, 80, 85, 87, 88, 96, 97, 99)
COUNTRY_CODES = {"7", *map(str, TWO_DIGITS), *(f"{zone}{digit}" for zone in ZONES for digit in DIGITS)}
ISSUERS: list[tuple[set[int], tuple[str, ...]]] = [  # lengths, first digits
    ({16, 19}, ("4",)),
    ({16}, ("51", "52", "53", "54", "55", *map(str, range(2221, 2721)))),
    ({15}, ("34", "37")),
    ({14}, ("300", "301", "302", "303", "304", "305", "36", "38", "39")),
    ({16, 17, 18, 19}, ("62", "6011", "644", "645", "646", "647", "648", "649", "65", *map(str, range(3528, 3590)))),
]


def at(text: str, place: int) -> str:
    """The character there; a space outside of the text."""
    return text[place] if 0 <= place < len(text) else " "


def is_email(text: str, start: int, end: int) -> bool:
    local, _, domain = text[start:end].partition("@")
    labels = domain.split(".")
    in_brackets = domain.startswith("[") and domain.endswith("]") and is_literal(domain[1:-1])
    return (
        at(text, start - 1) not in (ALNUM if local[:1] != "_" else WORD)
        and (in_brackets or is_domain(labels, at(text, end)))
        and 1 <= len(local) <= 64
        and (local[0] in ALNUM or (local[0] == "_" and not {*local} & {*ALNUM}))
        and set(local) <= {*WORD, *".%+-"}
    )


def is_literal(domain: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(domain))
    except ValueError:
        rest = domain[5:]
        is_named = domain[:2].lower() == "ip" and domain[2:5] == "v6:"
        return is_named and 2 <= len(rest) <= 45 and {*rest} <= {*string.hexdigits, ":", "."}


def is_domain(labels: list[str], after: str) -> bool:
    return (
        after not in ALNUM
        and 2 <= len(labels) <= 11
        and all(0 < len(label) < 64 and {*label} <= {*ALNUM, "-"} for label in labels)
        and not any(label.startswith("-") or label.endswith("-") for label in labels)
        and (labels[-1].startswith("xn--") or (2 <= len(labels[-1]) <= 24 and {*labels[-1]} <= {*LETTERS}))
        and labels[0] not in [f"{digit}x" for digit in DIGITS]
    )


def is_ipv4(text: str, start: int, end: int) -> bool:
    before, after = at(text, start - 1), at(text, end)
    try:
        numbers = [*ipaddress.IPv4Address(text[start:end]).packed]
    except ValueError:
        return False
    if before in WORD + "." or (before == "-" and at(text, start - 2) in LETTERS + "_"):
        return False
    if after in WORD or (after == "." and at(text, end + 1) in WORD):
        return False
    if after == "-" and at(text, end + 1) in LETTERS + "_":
        return False
    words = re.split(r"(\w+)", text[:start], flags=re.ASCII)
    if len(words) > 1 and words[-1] in (" ", ".", "  ", " .", ". ", ".."):
        word = words[-2].lower()
        if word in ("section", "chapter", "version", "release", "sections", "chapters", "versions", "releases"):
            return False
    line = text[:start].rpartition("\n")[2]
    dotted, rest = text[end : end + 1] == ".", text[end:].removeprefix(".")
    title = rest.lstrip(" \t")
    titled = title != rest and title != "" and (title[0] not in string.whitespace if dotted else "A" <= title[0] <= "Z")
    return not (titled and len(line) <= 8 and not line.strip(" \t*#-") and max(numbers) < 32)


def is_ipv6(text: str, start: int, end: int) -> bool:
    try:
        value = int(ipaddress.IPv6Address(text[start:end]))
    except ValueError:
        return False
    first = text[start:end].partition(":")[0]
    after = at(text, end), at(text, end + 1)
    if at(text, start - 1) in WORD + ":" or after[0] in WORD:
        return False
    if (after[0] == ":" and after[1] in WORD + ":") or (after[0] == "." and after[1] in DIGITS):
        return False
    high = value >> 112
    used = 0x2000 <= high < 0x4000 or 0xFC00 <= high < 0xFE00 or 0xFE80 <= high < 0xFEC0 or high >= 0xFF00
    return len(first) == 4 and used and "." not in text[start:end]


def is_ip_address(text: str, start: int, end: int) -> bool:
    return is_ipv4(text, start, end) or is_ipv6(text, start, end)


def stands_alone(text: str, start: int, end: int) -> bool:
    before, after = at(text, start - 1), at(text, end)
    return not (
        before in WORD + "+"
        or (before == "-" and at(text, start - 2) in WORD)
        or (before in "./" and at(text, start - 2) in DIGITS)
        or after in DIGITS
        or (after == "." and at(text, end + 1) in DIGITS)
        or (after == "-" and at(text, end + 1) in WORD)
    )


def luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(map(int, reversed(digits))):
        twice = digit * 2 if place % 2 else digit
        total += twice - 9 if twice > 9 else twice
    return total % 10 == 0


def is_credit_card(text: str, start: int, end: int) -> bool:
    found = text[start:end]
    digits = "".join(char for char in found if char in DIGITS)
    for separator in " -":
        if separator in found:
            sizes = [len(group) for group in found.split(separator)]
            if sizes not in ([4, 4, 4, 4], [4, 6, 5], [4, 6, 4]):
                return False
            found = found.replace(separator, "")
            break
    else:
        if at(text, end) in LETTERS + "_":
            return False
    return (
        found == digits
        and any(len(digits) in lengths and digits.startswith(first) for lengths, first in ISSUERS)
        and luhn(digits)
        and stands_alone(text, start, end)
        and at(text, start - 1) != "."
    )


def is_ssn(text: str, start: int, end: int) -> bool:
    parts = text[start:end].split("-")
    if [len(part) for part in parts] != [3, 2, 4] or not {*"".join(parts)} <= {*DIGITS}:
        return False
    area, group, serial = map(int, parts)
    return 0 < area < 900 and area != 666 and group > 0 and serial > 0 and stands_alone(text, start, end)


def is_north_american(found: str) -> bool:
    digits = "".join(char for char in found if char in DIGITS)
    national = digits[-10:]
    codes = [national[:3], national[3:6]]
    if any(code[0] in "01" or code.endswith("11") for code in codes):
        return False
    shape = "".join("9" if char in DIGITS else char for char in found)
    if found.startswith("+1"):
        return bool(re.fullmatch(r"\+9[ .-]?(?:\(999\)|999)[ .-]?999[ .-]?9999", shape))
    if len(digits) == 11:
        if shape[:2] not in ("9 ", "9-", "9.") or digits[0] != "1":
            return False
        shape = shape[2:]
    area = ("999-", "999/", "999 ", "(999)", "(999) ", "(999)-")
    shapes = {f"{code}999-9999" for code in area} | {f"{code}999{mark}9999" for code in area[3:] for mark in " ."}
    return shape in shapes | {"999.999.9999"}


def is_international(found: str) -> bool:
    """`+`, a country code, perhaps a 0 for calls inside the country, and the rest in any groups."""
    code = next((found[1 : 1 + size] for size in (1, 2, 3) if found[1 : 1 + size] in COUNTRY_CODES), None)
    if found[:1] != "+" or code is None:
        return False
    rest = found[1 + len(code) :]
    gaps = re.split(r"\d", rest, flags=re.ASCII)
    if gaps[-1] or not all(re.fullmatch(r"\)?[ .-]?\(?", gap) for gap in gaps):
        return False
    national = re.sub(r"\D", "", rest, flags=re.ASCII)
    if code == "7":
        return len(national) == 10
    if gaps[0].startswith(")"):
        return False
    if national.startswith("0"):
        national = national[1:]
    most, least = 15 - len(code), 10 - len(code)
    return least <= len(national) <= most and not national.startswith("0")


def is_phone(text: str, start: int, end: int) -> bool:
    found = text[start:end]
    if not stands_alone(text, start, end) or sum(char in DIGITS for char in found) < 10:
        return False
    return is_north_american(found) or is_international(found)


JUDGES: dict[str, tuple[Callable[[str, int, int], bool], str, int]] = {  # what it can begin with, how long it can be
    "EMAIL": (is_email, WORD, 64 + 1 + 11 * 64),
    "IP_ADDRESS": (is_ip_address, string.hexdigits, 39),
    "CREDIT_CARD": (is_credit_card, "23456", 19),
    "SSN": (is_ssn, DIGITS, 11),
    "PHONE": (is_phone, DIGITS + "+(", 70),
}
ALPHABETS = {  # what it can hold
    "EMAIL": WORD + ".%+-@[]:",
    "IP_ADDRESS": string.hexdigits + ".:",
    "CREDIT_CARD": DIGITS + " -",
    "SSN": DIGITS + "-",
    "PHONE": DIGITS + "+() .-/",
}


def followed_by(text: str, end: int, *starts: str) -> bool:
    return text[end:].startswith(starts)


def is_in_mail(text: str, start: int, end: int) -> bool:
    local, domain = text[start:end].split("@")
    if local == "git" and followed_by(text, end, ":", "/"):
        return False
    before = text[:start].lower()
    if domain.startswith("[") or before.endswith("mailto:") or (before.endswith("<") and followed_by(text, end, ">")):
        return True
    for word in ("from", "to", "cc", "bcc", "reply-to", "sender", "email", "e-mail", "mail"):
        for spaces in (":", " :", ": ", " : "):
            header = before.removesuffix(word + spaces)
            if header != before and not re.search(r"\w\Z", header):
                return True
    labels = domain.split(".")
    for label in labels[1:]:
        for common in ("com", "edu", "gov", "net", "org"):
            if label.lower().startswith(common) and not ("a" <= label[3:4] <= "z"):
                return True
    name = labels[-1]
    known = name.lower() in TOP_LEVEL_DOMAINS or name.lower().startswith("xn--")
    is_version = labels[0].lower().removeprefix("v").isdigit() and labels[1][0] in DIGITS
    return (
        known
        and name in (name.lower(), name.upper())
        and not is_version
        and local not in ("this", "super", "return", "break", "continue")
        and not followed_by(text, end, "(", "[", "$", "<-", " <-")
        and not (followed_by(text, end, "_") and at(text, end + 1) in WORD)
    )


def is_small(numbers: list[int]) -> bool:
    same = numbers[0] > 1 and numbers == numbers[:1] * 4
    return numbers[0] < 32 and len([number for number in numbers if number > 31]) < 2 and not same


def quads(text: str, start: int) -> list[list[int]]:
    """Four numbers with dots, from a place on."""
    found = []
    for match in re.finditer(r"[\w.]+", text, re.ASCII):
        piece = match[0].rstrip(".")
        numbers = piece.split(".")
        if match.start() >= start and len(numbers) == 4 and all(re.fullmatch("[0-9]{1,3}", n) for n in numbers):
            found.append([int(number) for number in numbers])
    return found


def names_host(text: str, start: int, end: int) -> bool:
    """Whether a word for a host is there."""
    for place in range(start, end):
        piece = text[place:end].lower()
        first = at(text, place - 1).lower()
        if piece.startswith(("addr", "mask", "listen", "bind(", "forwarded", "received")):
            return True
        if piece.startswith("connect") and not piece.startswith("connector"):
            return True
        if (piece.startswith("host") and first != "g") or re.match(r"server ?[:=(\"']", piece):
            return True
        if not "a" <= first <= "z":
            if piece.startswith(HOST_WORDS):
                return True
            if piece.startswith("ip") and any(
                piece.startswith("ip" + more) and not "a" <= piece[2 + len(more) :][:1] <= "z" for more in NOT_LETTERS
            ):
                return True
    line = text[start:end]
    site = line.rstrip("([").removesuffix(" ").removesuffix(".")
    top = site.rpartition(".")[2]
    is_site = line.endswith(("(", "[")) and len(top) >= 2 and top != site and {*top} <= {*LETTERS}
    return is_site or line.endswith(("//", "::")) or line.lower().endswith("::ffff:")


def is_of_a_host(text: str, start: int, end: int) -> bool:
    address = text[start:end]
    if ":" in address:
        return not re.fullmatch(r"\w+::", address)
    marks = 0
    while marks < 7 and at(text, start - 1 - marks) not in WORD + "\n" and start > marks:
        marks += 1
    word = text[max(start - 16, 0) : start - marks].lower() if 0 < marks < 7 else ""
    for name in NUMBER_WORDS:
        for ending in (word, word.removesuffix("s")):
            if ending.endswith(name):
                before = ending[: -len(name)][-1:] or at(text, start - marks - len(word) - 1).lower()
                if name not in ("ver", "oid", "opr") or not "a" <= before <= "z":
                    return False
    if not is_small([int(number) for number in address.split(".")]):
        return True
    near, far = max(start - 48, 0), text[end : end + 48]
    line = max(near, text.rfind("\n", near, start) + 1)
    return (
        names_host(text, line, start)
        or any(not is_small(numbers) for numbers in quads(text[:start], near) + quads(text[: end + 48], end))
        or bool(re.match(r":\d|/\d\d?(?!\d)|[\"'],\x20?\d{1,5}\b", far, re.ASCII))
        or bool(re.match(r" +(port|netmask|mask|via|dev)\b| - \S+ \[", far, re.ASCII))
    )


CONTEXTS = {"EMAIL": is_in_mail, "IP_ADDRESS": is_of_a_host}
LEAST = {  # what it has to hold, and how often
    "EMAIL": ("@", 1),
    "IP_ADDRESS": (".:", 2),
    "CREDIT_CARD": (DIGITS, 14),
    "SSN": ("-", 2),
    "PHONE": (DIGITS, 10),
}


def redact_type(text: str, kind: str, replacement: str, private: bool = False, context: bool = True) -> tuple[str, int]:
    judge, firsts, longest = JUDGES[kind]
    alphabet, (needed, count) = ALPHABETS[kind], LEAST[kind]
    out, start, found = [], 0, 0
    if sum(map(text.count, needed)) < count:
        return text, 0
    while start < len(text):
        end = start
        if text[start] in firsts:
            while end < len(text) and end - start < longest and text[end] in alphabet:
                end += 1
            if sum(char in needed for char in text[start:end]) < count:
                end = start
        while end > start and not judge(text, start, end):
            end -= 1
        if end > start and (
            (context and kind in CONTEXTS and not CONTEXTS[kind](text, start, end))
            or (kind == "IP_ADDRESS" and not private and is_private(text[start:end]))
        ):
            end = start
        found += end > start
        out.append(replacement if end > start else text[start])
        start = max(end, start + 1)
    return "".join(out), found


def redact(text: str) -> tuple[str, dict[str, int]]:
    """The text, and how often each type was found."""
    counts = {}
    for kind in JUDGES:
        text, counts[kind] = redact_type(text, kind, f"[REDACTED]_{kind}")
    return text, counts


PUBLISHED = {  # the literal patterns
    "EMAIL": r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Z|a-z]{2,}\b",
    "PHONE": r"\b\d{3}[-.]?\d{3}[-.]?\d{4}\b",
    "SSN": r"\b\d{3}-\d{2}-\d{4}\b",
    "CREDIT_CARD": r"\b\d{4}[-\s]?\d{4}[-\s]?\d{4}[-\s]?\d{4}\b",
    "IP_ADDRESS": r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b",
}


def redact_published(text: str) -> tuple[str, dict[str, int]]:
    """The same by the published patterns."""
    counts = {}
    for kind, pattern in PUBLISHED.items():
        text, counts[kind] = re.subn(pattern, f"[REDACTED]_{kind}", text)
    return text, counts
