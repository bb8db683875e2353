# SPDX-License-Identifier: Apache-2.0
"""IP addresses that belong to no host on the Internet: those that IANA's registries of special-purpose addresses mark
as not globally reachable. The networks are listed here, since Python's own list (`is_global`) depends on the version of
Python.

https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
"""

from __future__ import annotations

import ipaddress

NETWORKS = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 is unspecified (RFC 791)
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),  # private use (RFC 1918, RFC 4193)
        "100.64.0.0/10",  # shared by a provider's customers (RFC 6598)
        *("127.0.0.0/8", "::1/128", "::/128"),  # loopback (RFC 1122, RFC 4291), unspecified
        *("169.254.0.0/16", "fe80::/10"),  # link-local (RFC 3927, RFC 4291)
        "192.0.0.0/24",  # protocol assignments (RFC 6890)
        *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),  # documentation
        *("198.18.0.0/15", "2001:2::/48"),  # benchmarks (RFC 2544, RFC 5180)
        "240.0.0.0/4",  # reserved, with the broadcast address (RFC 1112, RFC 919)
    )
]


def is_private(text: str) -> bool:
    """Return whether a text is an IP address in one of NETWORKS; False if it is no address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(address in network for network in NETWORKS)
