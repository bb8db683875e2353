# SPDX-License-Identifier: Apache-2.0
"""Keys of documents in plain Python: canonical URLs character by character, and who is kept of a group."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from curation.rules.hosts import host_of

UNRESERVED = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
ALLOWED = UNRESERVED | set("!$&'()*+,;=:@/?")
PORTS = {"http": "80", "https": "443", "": "80", "ftp": "21"}


def normal(text: str) -> str:
    """RFC 3986, 6.2.2.1 and 6.2.2.2, and the escapes of characters that no URL may have."""
    out, place = "", 0
    while place < len(text):
        digits = text[place + 1 : place + 3]
        if text[place] == "%" and len(digits) == 2 and set(digits) <= set("0123456789abcdefABCDEF"):
            byte = int(digits, 16)
            out += chr(byte) if chr(byte) in UNRESERVED else f"%{byte:02X}"
            place += 3
            continue
        character = text[place]
        out += character if character in ALLOWED else "".join(f"%{byte:02X}" for byte in character.encode())
        place += 1
    return out


def without_dots(path: str) -> str:
    """RFC 3986, 5.2.4, step by step."""
    out = ""
    while path:
        if path.startswith("/./") or path == "/.":
            path = "/" + path[3:]
        elif path.startswith("/../") or path == "/..":
            path, out = "/" + path[4:], out.rpartition("/")[0]
        else:
            end = path.find("/", 1)
            end = len(path) if end < 0 else end
            out, path = out + path[:end], path[end:]
    return out


def canonical_url(url: str, dropped: Sequence[str]) -> str:
    url = url.strip()
    host = host_of(url)
    if not host:
        return url
    url = url.partition("#")[0]
    rest, has_query, query = url.partition("?")
    rest = rest.replace("\\", "/")
    scheme, slashes, after = rest.partition("://")
    if not slashes or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        scheme, after = "", rest
        if web := re.match(r"(?i)(https?):(?=/|)", rest):
            scheme, after = web[1], rest[web.end() :]
    scheme = scheme.lower()
    if scheme in ("http", "https") or after.startswith("//"):
        after = after.lstrip("/") if scheme in ("http", "https") else after[2:]
    authority, slash, path = after.partition("/")
    port = re.search(r":([0-9]*)$", authority)
    number = port[1].lstrip("0") if port else ""
    if host.startswith("www.") and host.count(".") > 1:
        host = host[4:]
    host = f"[{host}]" if ":" in host else host
    key = ("" if scheme in ("", "http", "https") else f"{scheme}://") + host
    key += f":{number}" if number not in ("", PORTS.get(scheme)) else ""
    key += without_dots(normal(slash + path)).rstrip("/")
    names = []
    for part in normal(query).split("&") if has_query else []:
        name = part.partition("=")[0].lower()
        if part and not any(fnmatchcase(name, pattern) for pattern in dropped):
            names.append(part)
    names.sort(key=lambda part: part.partition("=")[0])
    return key + ("?" + "&".join(names) if names else "")


class Kept(NamedTuple):
    """What is kept: row -> size of its group; what is removed: row -> the kept row."""

    copies: dict[int, int]
    removed: dict[int, int]


def deduplicated(keys: Sequence[Any], order: Callable[[int], Any] | None = None) -> Kept:
    """`None` is no key. Of a group the row with the highest order is kept, the first of equal ones."""
    groups: dict[Any, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(("none", row) if key is None else ("key", key), []).append(row)
    copies, removed = {}, {}
    for rows in groups.values():
        kept = max(rows, key=lambda row: (order(row), -row)) if order else rows[0]
        copies[kept] = len(rows)
        removed |= {row: kept for row in rows if row != kept}
    return Kept(copies, removed)
