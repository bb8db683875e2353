# SPDX-License-Identifier: Apache-2.0
"""`curate`: the command line. It only parses, calls and prints; imports wait until a command needs them.

A command is an entry of a table beside its function: `Command(name, help, add_options, function)`, in a module that
`groups.py` lists. Help, completion and the check of `docs/command_line.md` are made from these tables.
"""

from curation.cli.main import command, main

__all__ = ["command", "main"]
