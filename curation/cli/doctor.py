# SPDX-License-Identifier: Apache-2.0
"""`curate doctor`."""

from __future__ import annotations

import argparse

from curation.base.system.terminal import print_line
from curation.cli.parsing import Command, Parser


def _add_nothing(parser: Parser) -> None: ...


def doctor(options: argparse.Namespace) -> int:
    """Print the engines, versions and devices of the machine. Return 1 if something necessary is missing."""
    from curation.tools.doctor import diagnose

    lines, sound = diagnose()
    print_line("\n".join(lines))
    return 0 if sound else 1


DOCTOR = Command("doctor", "show engines, versions and devices, and check parity", _add_nothing, doctor)
