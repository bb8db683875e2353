# SPDX-License-Identifier: Apache-2.0
"""URLs as messages and reports show them: passwords and signed queries stay in memory."""

from __future__ import annotations

import re

from curation.errors import InputError

CHAIN = re.compile(r"::(?![^\[]*\])")  # between URLs, but not in an IPv6 address
AUTHORITY_END = re.compile(r"[/?#]")
QUERY = re.compile(r"[?#]")
SECRETS_IN_TEXT = re.compile(r"""//[^\s/'"]*@|\?[^\s'")\]>]+""")


def is_remote(path: str) -> bool:
    """Whether a path is an URL for fsspec (`s3://`, `https://`, `memory://`, ...)."""
    return "://" in path


def shown(path: str) -> str:
    """A path for messages and reports: without user names, passwords and signed queries, also those of a chain of URLs
    (`simplecache::https://...`)."""
    return "::".join(map(_without_secrets, CHAIN.split(path))) if is_remote(path) else path


def _without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    authority = AUTHORITY_END.split(rest, maxsplit=1)[0]
    if "@" in authority or _has_raw_marks(authority, rest):
        rest = rest.rpartition("@")[2]  # the last one: a password may hold what ends an authority
    return f"{scheme}://{QUERY.split(rest, maxsplit=1)[0]}"


def _has_raw_marks(authority: str, rest: str) -> bool:
    """Whether a password has a `/`, `?` or `#`, at which the authority of an URL ends (RFC 3986, section 3.2): what is
    before is no port then."""
    _, colon, port = authority.rpartition(":")
    return bool(colon) and not port.isdigit() and not port.endswith("]") and "@" in rest[len(authority) :]


def check_url(url: str) -> None:
    """InputError for an URL whose parts cannot be told apart."""
    for link in CHAIN.split(url):
        rest = link.partition("://")[2]
        authority = AUTHORITY_END.split(rest, maxsplit=1)[0]
        if "@" not in authority and _has_raw_marks(authority, rest):
            raise InputError(f"{shown(url)}: in its user name or password write / as %2F, ? as %3F and # as %23")


def scrubbed(text: object) -> str:
    """The text of another library's error without what URLs in it keep secret."""
    return SECRETS_IN_TEXT.sub(lambda found: "//" if found[0].startswith("//") else "", str(text))


__all__ = ["check_url", "is_remote", "scrubbed", "shown"]
