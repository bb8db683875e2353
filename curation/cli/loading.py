# SPDX-License-Identifier: Apache-2.0
"""`curate check-loader`: reads a run's token forms as training does."""

from __future__ import annotations

import argparse

from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser, whole_number


def _add_check_loader(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="load the run or form in this folder")
    for name, default, text in (
        ("--batches", 3, "read N batches of each form"),
        ("--batch-size", 8, "make batches of N samples"),
        ("--length", 1024, "make samples of N tokens of token_shards and pairs"),
    ):
        parser.add_argument(name, type=whole_number, default=default, metavar="N", help=f"{text} (default: {default})")
    share(parser, *LOGGING)


def check_loader(options: argparse.Namespace) -> int:
    """Read some batches of each form and split, and print how many. A form that cannot be read is an error."""
    from curation.base.errors import counted
    from curation.results.finished import loader_check

    console = options.console
    given = {"batches": options.batches, "batch_size": options.batch_size, "length": options.length}
    found = loader_check.check_loader(options.folder, **given, say=console.info)
    for form in found:
        samples, batches = counted(form.samples, "sample"), f"{form.batches:,} of up to {options.batch_size:,}"
        console.info(f"{form.form}, {form.split}: {samples}, batches {batches}")
    console.info("Data Loader test passed!")
    forms = [form._asdict() for form in found]
    return int(console.result("check-loader", folder=options.folder, passed=True, forms=forms))


CHECK_LOADER = Command(
    "check-loader", "load the tokens of a finished run as training does", _add_check_loader, check_loader
)
