# SPDX-License-Identifier: Apache-2.0
"""`curate`: the command line. The modules here only parse, call and print. A command imports its libraries only when it
runs.

Each command is a `Command(name, help, add_options, function)` in the module of its function; `groups.py` lists them
all. Help, completion and the check of `docs/command_line.md` are generated from this list.
"""

from curation.cli.main import command, main

__all__ = ["command", "main"]
