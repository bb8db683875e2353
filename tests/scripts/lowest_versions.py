# SPDX-License-Identifier: Apache-2.0
"""Print the lowest version of each range of pyproject.toml, as constraints for pip, for `make test-versions`."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text("utf-8"))["project"]


def lowest_versions() -> Iterator[str]:
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["distributed"]]:
        if found := re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", line):
            yield f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lowest_versions())
