# SPDX-License-Identifier: Apache-2.0
"""URLs for messages and reports, without passwords and signed queries. These stay only in memory."""

from __future__ import annotations

import re

from curation.base.errors import InputError

CHAIN = re.compile(r"::(?![^\[]*\])")  # between URLs, but not in an IPv6 address
AUTHORITY_END = re.compile(r"[/?#]")
QUERY, QUERY_ALONE = re.compile(r"[?#]"), re.compile(r"\?")
WORD = re.compile(r"""[^\s'"]+""")  # a word in a text, which may be a URL
PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
HTTP = ("http", "https")
HIDDEN = "***"
LITERAL = "literal::"  # prefix of the URL of an object whose key is used unchanged, even with `?`, `#` or `::`
KEY_MARKS = ("?", "#", "::")  # these have a special meaning in all other URLs
REFERENCE = "reference"
REFUSED = "reference:// is refused: fsspec runs templates of such a file as code. Name the files themselves"


def is_remote(path: str) -> bool:
    """Return whether a path is a URL for fsspec (`s3://`, `https://`, `memory://`, ...)."""
    return "://" in path


def shown(path: str) -> str:
    """Return a path for messages and reports: without user names, passwords and queries.

    Chains of URLs (`simplecache::https://...`) are included. If the parts of a URL cannot be separated, only its
    protocol is shown.
    """
    if not is_remote(path):
        return path
    if path.startswith(LITERAL):
        scheme, _, rest = path.removeprefix(LITERAL).partition("://")
        host, slash, key = rest.partition("/")
        rest = f"{host.rpartition('@')[2]}{slash}{key}" if "@" in host else _without_user(scheme, rest)
        return f"{LITERAL}{scheme}://{rest}"
    links = CHAIN.split(path)
    if not _is_chain(links):
        return f"{path.partition('://')[0]}://{HIDDEN}"
    return "::".join(map(_without_secrets, links))


def _is_chain(links: list[str]) -> bool:
    """Return whether the parts between `::` are a chain of URLs; `::` may also be part of a password or a query. In a
    chain, all parts but the last may be only names of protocols."""
    named = all("://" in link or PROTOCOL.fullmatch(link) for link in links[:-1])
    return named and "://" in links[-1]


def _without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    return f"{scheme}://{QUERY.split(_without_user(scheme, rest), maxsplit=1)[0]}"


def _without_user(scheme: str, rest: str) -> str:
    authority = AUTHORITY_END.split(rest, maxsplit=1)[0]
    if "@" in authority or _has_raw_marks(scheme, authority, rest):
        return rest.rpartition("@")[2]  # the last "@": a password may hold "/", "?" or "#"
    return rest


def _has_raw_marks(scheme: str, authority: str, rest: str) -> bool:
    """Return whether a password has an unescaped `/`, `?` or `#`, which end the authority of a URL (RFC 3986, section
    3.2).

    In this case, the text after the last `:` of the authority is no port. Digits count as a port only for HTTP, since
    its paths may contain `@`.
    """
    _, colon, port = authority.rpartition(":")
    is_port = port.endswith("]") or (port.isdigit() and scheme in HTTP)
    return bool(colon) and not is_port and "@" in rest[len(authority) :]


def is_http(url: str) -> bool:
    """Return whether a URL is an HTTP URL, and no chain of URLs."""
    return url.startswith(("http://", "https://"))


def path_of(url: str) -> str:
    """Return a URL without its query, and for HTTP without its fragment, which servers do not see."""
    return url if url.startswith(LITERAL) else (QUERY if is_http(url) else QUERY_ALONE).split(url, maxsplit=1)[0]


def refuse_reference(url: str) -> None:
    """Raise InputError for a URL of fsspec's `reference://`, whose files hold templates.

    fsspec before 2026.9 renders them by Jinja without a sandbox, so that they can run code.
    """
    if any(link.partition("://")[0] == REFERENCE for link in url.split("::")):
        raise InputError(f"{shown(url)}: {REFUSED}")


def check_url(url: str) -> None:
    """Raise InputError for a URL whose parts cannot be separated, and for `reference://`."""
    refuse_reference(url)
    links = [url.removeprefix(LITERAL)] if url.startswith(LITERAL) else CHAIN.split(url)
    if not _is_chain(links):
        raise InputError(f"{shown(url)}: `::` separates URLs; write %3A%3A in a password or a query")
    for link in links:
        scheme, _, rest = link.partition("://")
        authority = AUTHORITY_END.split(rest, maxsplit=1)[0]
        if "@" not in authority and _has_raw_marks(scheme, authority, rest):
            raise InputError(f"{shown(url)}: write / as %2F, ? as %3F and # as %23 in its user name or password")


def scrubbed(text: object, url: str = "") -> str:
    """Return the text of another library's error without the secrets of `url` and of other URLs in the text."""
    scrubbed_text = str(text).replace(url, shown(url)) if url else str(text)
    return WORD.sub(_without_secret, scrubbed_text)


def _without_secret(word: re.Match[str]) -> str:
    """Return a word without the user of a URL, which ends at the last `@`, and without its query. The time is
    linear."""
    before, slashes, after = word[0].partition("//")
    if "?" not in before:
        after = after.rpartition("@")[2]
    path, mark, query = f"{before}{slashes}{after}".partition("?")
    return path if query else f"{path}{mark}"
