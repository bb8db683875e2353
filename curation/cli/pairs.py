# SPDX-License-Identifier: Apache-2.0
"""`curate merge` and `curate split`: join .bin/.idx pairs, and divide them."""

from __future__ import annotations

import argparse
import sys

from curation.base.system import interrupts
from curation.base.system.steps import shown_by
from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser, UsageError, whole_number

COUNTS = ("documents", "tokens", "bytes")


def _add_merge(parser: Parser) -> None:
    parser.add_argument(
        "prefixes", nargs="+", metavar="PREFIX", help="join these pairs, given by prefix or file, in this order"
    )
    _add_result(parser, is_split=False)


def _add_split(parser: Parser) -> None:
    parser.add_argument("prefixes", nargs=1, metavar="PREFIX", help="cut this pair, given by prefix or file")
    _add_result(parser, is_split=True)


def _add_result(parser: Parser, is_split: bool) -> None:
    share(parser, "output", metavar="STEM", help="write pairs STEM_00000_text_document, ...")
    parser.add_argument(
        "--max-bytes",
        type=whole_number,
        default=sys.maxsize,
        metavar="N",
        required=is_split,
        help="limit a .bin to N bytes",
    )
    share(parser, "force", help="replace existing pairs of that name")
    share(parser, *LOGGING)


def repack(options: argparse.Namespace) -> int:
    """Write new pairs of at most `--max-bytes`. The input pairs are not changed."""
    from curation.base.errors import counted
    from curation.tokens import repack

    if options.max_bytes < 1:
        raise UsageError(f"--max-bytes must be above 0, not {options.max_bytes}")
    interrupts.begin_writing()
    with shown_by(options.console.progress()):
        pairs = repack.repack(options.prefixes, options.output, options.max_bytes, force=options.force)
    result = []
    for pair in pairs:
        counts = (counted(pair.documents, "document"), counted(pair.tokens, "token"), counted(pair.bytes, "byte"))
        options.console.info(f"{pair.prefix}: {', '.join(counts)}")
        result.append({"prefix": str(pair.prefix)} | {key: getattr(pair, key) for key in COUNTS})
    return int(options.console.result(options.command.name, pairs=result))


MERGE = Command("merge", "join .bin/.idx pairs", _add_merge, repack)
SPLIT = Command("split", "cut a .bin/.idx pair between documents", _add_split, repack)
