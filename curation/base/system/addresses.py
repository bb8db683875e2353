# SPDX-License-Identifier: Apache-2.0
"""Addresses of Dask schedulers, checked before a run tries to connect."""

from __future__ import annotations

import re

ADDRESS = re.compile(r"(?:(?:tcp|tls|ucx|ucxx|ws|wss)://)?(?:\[[^\]]+\]|[^:/\[\]]+):(\d+)/?")
IN_PROCESS = "inproc://"  # a scheduler in this process has no port
EXAMPLE = "tcp://HOST:8786"
LARGEST_PORT = 65_535


def address_fault(address: str) -> str:
    """Return why `address` is not an address of a scheduler, or "" if it may be one."""
    if address.startswith(IN_PROCESS):
        return ""
    match = ADDRESS.fullmatch(address)
    if not match:
        return f"expected an address with a port, such as {EXAMPLE}"
    if not 1 <= int(match[1]) <= LARGEST_PORT:
        return f"port {match[1]} is not between 1 and {LARGEST_PORT}; schedulers listen at 8786 by default"
    return ""
