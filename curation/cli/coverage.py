# SPDX-License-Identifier: Apache-2.0
"""`curate tokens`: how well a tokenizer fits texts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from curation.base.errors import counted
from curation.base.system.terminal import aligned, print_line, printable_line
from curation.cli.execution import prepare_memory
from curation.cli.options import share
from curation.cli.parsing import Command, Parser, whole_number

if TYPE_CHECKING:
    from curation.tools.token_coverage import CoverageGroup, TokenCoverage

HEADS = ("texts", "documents", "MB", "tokens", "per byte", "per word", "per document", "unknown", "bytes")
SHOWN_GROUPS = 40


def _add_tokens(parser: Parser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="read the finished run in this folder, or these files and folders"
    )  # fmt: skip
    share(parser, "tokenizer", help="count the tokens of this tokenizer (default: that of the run)")
    parser.add_argument("--by", default="", metavar="COLUMN", help="group by this column (default: language of a run)")
    parser.add_argument(
        "--top", type=whole_number, default=20, metavar="N", help="show N frequent tokens (default: 20)"
    )


def tokens(options: argparse.Namespace) -> int:
    """Print one row per value of a column, and the tokens that no text has; nothing is written."""
    prepare_memory()
    from curation.tools.token_coverage import token_coverage

    paths = options.paths[0] if len(options.paths) == 1 else options.paths
    for line in _lines(token_coverage(paths, options.tokenizer, by=options.by), options.top):
        print_line(printable_line(line))
    return 0


def _lines(found: TokenCoverage, top: int) -> list[str]:
    lines = [*aligned([HEADS, *map(_row, found.groups[:SHOWN_GROUPS])])]
    if len(found.groups) > SHOWN_GROUPS:
        lines.append(f"{counted(len(found.groups) - SHOWN_GROUPS, 'smaller group')} not shown")
    unused, size = found.unused, found.tokenizer.vocabulary
    lines.append(
        f"{found.tokenizer.name}: {len(unused):,} of {size:,} tokens ({len(unused) / size:.1%}) occur in no text"
    )
    if top:
        frequent = ", ".join(f"{text!r} {count:,}" for text, count in found.most_frequent(top))
        lines.append(f"most frequent: {frequent}")
    return lines


def _row(group: CoverageGroup) -> tuple[str, ...]:
    count = max(group.tokens, 1)
    return (
        group.by if group.by == "all" else f"{group.by} {group.name or '(none)'}",
        f"{group.documents:,}",
        f"{group.bytes / 1e6:,.2f}",
        f"{group.tokens:,}",
        f"{group.tokens / max(group.bytes, 1):.3f}",
        f"{group.tokens / max(group.words, 1):.3f}",
        f"{group.tokens / max(group.documents, 1):,.1f}",
        f"{group.unknown / count:.3%}",
        f"{group.byte_tokens / count:.3%}",
    )


TOKENS = Command("tokens", "show how well a tokenizer fits texts", _add_tokens, tokens)
