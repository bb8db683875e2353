# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m curation` and of the script `curate`."""

import sys

from curation.base.system import interrupts


def command() -> int:
    """Run one command and return its exit code. Signal handlers are installed before anything else is loaded."""
    interrupts.install()
    from curation import cli

    return cli.command()


if __name__ == "__main__":
    sys.exit(command())
