# SPDX-License-Identifier: Apache-2.0
"""Versions of installed packages."""

import re
from functools import lru_cache
from importlib import metadata

from curation.base.errors import EngineError, installation

OLDEST_TORCH = (2, 6)  # in older ones, `torch.load(weights_only=True)` can run code of a file (CVE-2025-32434)
VERSION = re.compile(r"^Version: *(\S+)", re.MULTILINE)


@lru_cache(maxsize=64)
def package_version(name: str) -> str:
    """Return the version of an installed package. It is the result of `importlib.metadata.version`, which is slow: it
    parses the whole description of the package (2 to 8 ms). Raises PackageNotFoundError if the package is not
    installed."""
    match = VERSION.search(metadata.distribution(name).read_text("METADATA") or "")
    return match[1] if match else metadata.version(name)


def check_torch() -> None:
    """Raise EngineError if the installed PyTorch can run code of the files that it loads. A missing PyTorch is no
    error."""
    try:
        installed = package_version("torch")
    except metadata.PackageNotFoundError:
        return
    if tuple(map(int, installed.split(".")[:2])) < OLDEST_TORCH:
        raise EngineError(
            f"PyTorch {installed} can run code of a file that it loads, expected 2.6 or newer; {installation('torch')}"
        )
