# SPDX-License-Identifier: Apache-2.0
"""`curate push`: a finished run as a data set of the Hugging Face hub."""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import TYPE_CHECKING, Any

from curation.base.system.terminal import aligned
from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser, add

if TYPE_CHECKING:
    from curation.results.finished.hub_push import PushedFiles

WHAT = ("documents", "tokens", "all")


def _add_push(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="send the run in this folder")
    parser.add_argument("repo", metavar="REPO", help="send it to this data set, OWNER/NAME; created if it is not there")
    add(
        parser, "--what", choices=WHAT, noun="outputs", default="documents",
        help="send documents/ with a card (default), the tokens in all forms, or all files of the run",
    )  # fmt: skip
    parser.add_argument(
        "--public", action="store_true", help="let everyone read the data set (default: a new one is private)"
    )
    parser.add_argument("--revision", default="", metavar="BRANCH", help="send to this branch (default: main)")
    parser.add_argument("--dry-run", action="store_true", help="show what would be sent, and send nothing")
    share(parser, *LOGGING)


def push(options: argparse.Namespace) -> int:
    """Print what would be sent, and send it unless `--dry-run` is given."""
    from curation.base.system.steps import shown_by
    from curation.results.finished import hub_push

    console, repo = options.console, options.repo
    hub_push.import_library()
    hub_push.check_repo(repo)
    with shown_by(console.progress()):
        content = hub_push.checked_content(options.folder, options.what, repo)
    facts = {"folder": options.folder, "repo": repo, "what": options.what, "revision": options.revision or "main"}
    facts |= {"files": len(content.sizes), "bytes": content.bytes}
    for line in _lines(content):
        console.info(line)
    if options.dry_run:
        console.info(f"nothing was sent to {repo} (--dry-run)")
        return int(console.result("push", **facts, url="", commit="", sent=False, private=not options.public))
    _silence_library(is_terminal=console.is_for_people and not console.lines and sys.stderr.isatty())
    pushed = hub_push.push(content, repo, revision=options.revision, public=options.public)
    if pushed.keeps_card:
        console.warn(f"README.md of {repo} was left as it is, since neither a run nor a push wrote it")
    state = "sent" if pushed.is_new else "nothing new: all files were there"
    readers = "private" if pushed.is_private else "public"
    console.info(f"{state}. {pushed.url} ({readers}), commit {pushed.commit[:8]}")
    facts |= {"url": pushed.url, "commit": pushed.commit, "sent": pushed.is_new, "private": pushed.is_private}
    return int(console.result("push", **facts))


def _lines(content: PushedFiles) -> list[str]:
    """Return files and bytes of each folder, as aligned lines of text."""
    counts: dict[str, list[int]] = {}
    for name, size in content.sizes.items():
        folder, slash, _ = name.partition("/")
        counts.setdefault(folder + slash, []).append(size)
    counts["in all"] = [*content.sizes.values()]
    rows = [(name, f"{len(sizes):,}", f"{sum(sizes) / 1e6:,.2f}") for name, sizes in counts.items()]
    return [*aligned([("", "files", "MB"), *rows])]


def _silence_library(is_terminal: bool) -> None:
    """Keep messages of the library from standard error, and also its progress bars if standard error is no terminal."""
    from huggingface_hub import utils

    warnings.filterwarnings("ignore", "Warnings while validating metadata")  # the card has no licence and no tags
    library: Any = utils
    library.logging.set_verbosity_error()
    if not is_terminal:
        library.disable_progress_bars()


PUSH = Command("push", "send a finished run to a data set of the Hugging Face hub", _add_push, push)
