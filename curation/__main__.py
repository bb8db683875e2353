# SPDX-License-Identifier: Apache-2.0
"""`python -m curation`, and the script `curate`."""

import sys

from curation import interrupts


def command() -> int:
    """Runs one command and gives its exit code. Signals are handled before anything else is loaded."""
    interrupts.install()
    from curation import cli

    return cli.command()


if __name__ == "__main__":
    sys.exit(command())
