# SPDX-License-Identifier: Apache-2.0
"""Versions of installed packages."""

import re
from functools import lru_cache
from importlib import metadata

from curation.base.errors import EngineError, installation

OLDEST_TORCH = (2, 6)  # before, `torch.load(weights_only=True)` can run code of a file (CVE-2025-32434)
VERSION = re.compile(r"^Version: *(\S+)", re.MULTILINE)


@lru_cache(maxsize=64)
def package_version(name: str) -> str:
    """Return the version of an installed package, as `importlib.metadata.version` does, which parses the whole
    description of the package (2 to 8 ms). PackageNotFoundError for a package that is not installed."""
    match = VERSION.search(metadata.distribution(name).read_text("METADATA") or "")
    return match[1] if match else metadata.version(name)


def check_torch() -> None:
    """Raise EngineError for a PyTorch that can run code of the files that it loads. None installed is no error."""
    try:
        installed = package_version("torch")
    except metadata.PackageNotFoundError:
        return
    if tuple(map(int, installed.split(".")[:2])) < OLDEST_TORCH:
        raise EngineError(
            f"PyTorch {installed} can run code of a file that it loads, expected 2.6 or newer; {installation('torch')}"
        )
