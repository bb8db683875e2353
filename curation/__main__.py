# SPDX-License-Identifier: Apache-2.0
"""`python -m curation`: the command `curate`."""

import sys

from curation.cli import command

sys.exit(command())
