# SPDX-License-Identifier: Apache-2.0
"""One form for all URLs of a page, used as a key: RFC 3986, section 6, and further rules of crawlers.

`canonical_url` is the definition. `canonical_urls` gives the same results for columns: RE2 rewrites URLs that are plain
before the query, and `canonical_url` is called only for the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.rules.hosts import host_of

# Names that advertisers and mail services add to links. `*` at the end stands for any characters
TRACKING = (
    "utm_*", "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "srsltid", "_ga", "_gl", "fbclid", "igshid", "msclkid",
    "twclid", "ttclid", "yclid", "_openstat", "mc_cid", "mc_eid", "mkt_tok", "_hsenc", "_hsmi", "oly_anon_id",
    "oly_enc_id", "vero_id",
)  # fmt: skip
PORTS = {"": "80", "http": "80", "https": "443", "ftp": "21"}
_PARTS = re.compile(
    r"(?:(https?):[/\\]*|([a-z][a-z0-9+.\-]*)://|[/\\]{2})?([^/?#\\]*)([^?#]*)(?:\?([^#]*))?", re.IGNORECASE
)
_PORT = re.compile(r":([0-9]*)\Z")
# Percent-encoded bytes, and characters that must be percent-encoded in paths and queries
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})|([^A-Za-z0-9\-._~!$&'()*+,;=:@/?])")
_UNRESERVED = re.compile(r"[A-Za-z0-9\-._~]")
# A URL whose canonical form only lacks the scheme, `www.` and one final slash. No segment is empty or begins with a dot
_SEGMENT = r"/[A-Za-z0-9\-_~!$&'()*+,;=:@][A-Za-z0-9\-_~!$&'()*+,;=:@.]*"
PLAIN = rf"^https?://[a-z0-9_\-]+(?:\.[a-z0-9_\-]+)*(?:{_SEGMENT})*/?$"
_TAIL = r"(?s)[?#].*"  # the query and the fragment
_WWW = r"^https?://(?:www\.([^/.]+\.))?"


def canonical_url(url: str, dropped: Sequence[str] = TRACKING) -> str:
    """Return the form of a URL by which it is compared.

    dropped   names of parameters to leave out, in any case; `*` at the end stands for any characters

    - Left out: the schemes http and https, `www.` before another name with a dot, user and password, the port of the
      scheme, an empty query, the fragment, and slashes at the end of the path.
    - The host is in the form of `curation.rules.hosts`: lower case, international names in ASCII, no final dot.
    - Path and query: `%41` is `A`, other escapes are in upper case, and characters that no URL may have are escaped.
      Segments `.` and `..` are resolved. The case of letters is kept.
    - Parameters are in the order of their names; those of one name keep their order. Empty parameters are left out.

    White space around the URL is removed. A value without a host is no URL; it is not changed further.

        >>> canonical_url("HTTPS://www.Example.org:443/a/../b/?utm_source=x&z=1&a=2#top")
        'example.org/b?a=2&z=1'
    """
    url = url.strip()
    host = host_of(url)
    if not host:
        return url
    web, other, authority, path, query = _PARTS.match(url).groups()  # type: ignore[union-attr]
    scheme = (web or other or "").lower()
    port = _PORT.search(authority)
    number = port[1].lstrip("0") if port else ""
    if host.startswith("www.") and "." in host[4:]:
        host = host[4:]
    return "".join(
        (
            f"{other.lower()}://" if other else "",
            f"[{host}]" if ":" in host else host,
            f":{number}" if number and number != PORTS.get(scheme) else "",
            _path(path),
            _query(query or "", dropped),
        )
    )


def _escaped(text: str) -> str:
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """Return a percent-encoded byte as its character if that is unreserved, and any other character percent-encoded."""
    if found[1]:
        character = chr(int(found[1], 16))
        return character if _UNRESERVED.fullmatch(character) else f"%{found[1].upper()}"
    return "".join(f"%{byte:02X}" for byte in found[2].encode("utf-8", "replace"))


def _path(path: str) -> str:
    path = _escaped(path.replace("\\", "/"))
    if "/." in path:
        kept: list[str] = []
        for segment in path.split("/")[1:]:
            if segment == "..":
                del kept[-1:]
            elif segment != ".":
                kept.append(segment)
        path = "/" + "/".join(kept)
    return path.rstrip("/")


def _query(query: str, dropped: Sequence[str], mark: str = "?") -> str:
    """Return the canonical query with its question mark; "" if it is empty. `mark` is the character before it: after
    `#` there is no query."""
    if mark != "?" or not query:
        return ""
    names, prefixes = _dropped(tuple(dropped))
    kept = []
    for part in _escaped(query).split("&"):
        name = part.partition("=")[0]
        lowered = name.lower()
        if part and lowered not in names and not lowered.startswith(prefixes):
            kept.append((name, part))
    kept.sort(key=itemgetter(0))
    return f"?{'&'.join([part for _, part in kept])}" if kept else ""


@lru_cache(maxsize=16)
def _dropped(names: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the full names of parameters to leave out, and the prefixes of such names, in lower case."""
    lowered = [_escaped(name).lower() for name in names]
    prefixes = tuple(name[:-1] for name in lowered if name.endswith("*"))
    return frozenset(name for name in lowered if not name.endswith("*")), prefixes


def canonical_urls(urls: pa.Array, dropped: Sequence[str] = TRACKING) -> pa.LargeStringArray:
    """Return `canonical_url` of each URL of a column, without a call for plain URLs. Nulls stay nulls."""
    bare, is_plain = _bare(urls)
    others = pa.array(np.flatnonzero(~is_plain))
    if not len(others):
        return bare
    urls = urls.take(others)
    starts = pc.replace_substring_regex(urls, pattern=_TAIL, replacement="")
    sizes = pc.binary_length(starts).to_pylist()
    begun, has_plain_start = _bare(starts)
    rows = zip(urls.to_pylist(), begun.to_pylist(), has_plain_start.tolist(), sizes, strict=True)
    found = [
        start + _query(url[size + 1 :].rstrip().partition("#")[0], dropped, url[size : size + 1])
        if is_known
        else canonical_url(url, dropped)
        for url, start, is_known, size in rows
    ]
    return pc.replace_with_mask(bare, pa.array(~is_plain), pa.array(found, pa.large_string()))


def _bare(urls: pa.Array) -> tuple[pa.LargeStringArray, np.ndarray]:
    """Return URLs without scheme, `www.` and final slashes, and whether each is plain or null."""
    bare = pc.replace_substring_regex(urls, pattern=_WWW, replacement=r"\1", max_replacements=1)
    bare = pc.ascii_rtrim(bare, characters="/").cast(pa.large_string())
    return bare, np.asarray(pc.match_substring_regex(urls, pattern=PLAIN).fill_null(True))
