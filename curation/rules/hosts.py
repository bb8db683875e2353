# SPDX-License-Identifier: Apache-2.0
"""Finds the host of a URL in a uniform form: lower case, without user, port and final dot, international names as
`xn--...`.

`host_of` defines the result for one URL. `hosts_of` returns the same for columns: RE2 finds plain hosts, 0.6 to 1.1
million per CPU second, and the slower code of `host_of` runs only for the others.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# The start is optional: a scheme with its slashes (for http and https any number of slashes, as in browsers), or two
# slashes.
AUTHORITY = r"^[\x00-\x20]*(?:(?:[Hh][Tt][Tt][Pp][Ss]?):[/\\]*|[A-Za-z][A-Za-z0-9+.\-]*://|[/\\]{2})?([^/?#\\]*)"
PLAIN = r"(?s)^(?:.*@)?\.*([A-Za-z0-9_\-]+(?:\.+[A-Za-z0-9_\-]+)*)\.*(?::[0-9]*)?[\x00-\x20]*$"
_AUTHORITY, _PLAIN = re.compile(AUTHORITY), re.compile(PLAIN)
_PORT = re.compile(r":[0-9]*\Z")
_BLANKS = "".join(map(chr, range(33)))
_IGNORED = str.maketrans("", "", "\u00ad\u200b\u2060\ufeff")  # UTS #46 removes these characters
_MALFORMED = "\ufffd"  # decoded from bytes such as `%ff` that are not UTF-8
_FULL_STOP = "\u3002"  # after NFKC, also a dot in names


def host_of(url: str) -> str:
    """Return the host of a URL, or "" if it has none.

    - The scheme may be missing: `Example.COM:80/x` has the host `example.com`. So has `//example.com`.
    - User, password, port, and dots at both ends are not part of the host. `\\` counts as `/`.
    - An international name is returned in its ASCII form, so `müller.de` and `xn--mller-kva.de` give the same host.
    - An IPv6 address is returned without brackets and in its shortest form: `http://[0:0::1]/` has the host `::1`.
    - A name with other characters than letters, digits, `.`, `-` and `_` is no host.
    """
    found = _AUTHORITY.match(url)
    return _host_in(found[1]) if found else ""


def _host_in(authority: str) -> str:
    if plain := _PLAIN.match(authority):
        return plain[1].lower()
    host = authority.strip(_BLANKS).rpartition("@")[2]
    if host.startswith("["):
        address, bracket, port = host[1:].partition("]")
        return _address(address) if bracket and (not port or _PORT.match(port)) else ""
    host = unquote(_PORT.sub("", host))
    if not host.isascii():
        host = _in_ascii(host) if _MALFORMED not in host else ""
    plain = None if "@" in host or ":" in host else _PLAIN.match(host)
    return plain[1].lower() if plain else ""


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        return ""


def _in_ascii(host: str) -> str:
    """Return an international name in ASCII, by the mapping of UTS #46 (lower case, NFKC) and Punycode (RFC 3492)."""
    from curation.kernels.normalization import normalize  # loads Numba

    # Character by character, so that a final sigma is lowered like any sigma
    lowered = "".join(map(str.lower, host.translate(_IGNORED)))
    mapped = normalize([lowered], "nfkc")[0].lower().replace(_FULL_STOP, ".")
    try:
        return ".".join(
            label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in mapped.split(".")
        )
    except UnicodeError:  # a lone surrogate
        return ""


def hosts_of(urls: pa.ChunkedArray | pa.Array) -> pa.LargeStringArray:
    """Return the host of each URL (strings); null for a null, and for a value without a host."""
    urls = (urls.combine_chunks() if isinstance(urls, pa.ChunkedArray) else urls).cast(pa.large_string())
    authority = pc.struct_field(pc.extract_regex(urls, pattern=AUTHORITY.replace("([^/", "(?P<a>[^/")), "a")
    plain = pc.extract_regex(authority, pattern=PLAIN.replace("([A", "(?P<h>[A"))
    hosts = pc.ascii_lower(pc.struct_field(plain, "h")).cast(pa.large_string())
    others = np.flatnonzero(pc.and_(plain.is_null(), pc.greater(pc.binary_length(authority), 0)).fill_null(False))
    if len(others):
        found = [_host_in(text) or None for text in authority.take(pa.array(others)).to_pylist()]
        mask = np.zeros(len(urls), bool)
        mask[others] = True
        hosts = pc.replace_with_mask(hosts, pa.array(mask), pa.array(found, pa.large_string()))
    return hosts


def domains_of(urls: pa.ChunkedArray | pa.Array) -> pa.LargeStringArray:
    """Return the host of each URL, without `www.` if the rest has a dot; null if `hosts_of` returns null."""
    return pc.replace_substring_regex(hosts_of(urls), pattern=r"^www\.(.*\.)", replacement=r"\1")
