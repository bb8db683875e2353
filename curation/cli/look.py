# SPDX-License-Identifier: Apache-2.0
"""Commands that look at what a run has left, and write nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from curation.cli.options import SPEAKING, share
from curation.cli.parsing import Command, Parser, whole_number
from curation.errors import TokenizerError
from curation.terminal import say, stdout_is_lost

if TYPE_CHECKING:
    from curation.packing.tokenization import Tokenizer

SHOWN_IDS = 200


def _add_inspect(parser: Parser) -> None:
    parser.add_argument("prefix", metavar="PREFIX", help="path of the pair, with or without .bin or .idx")
    parser.add_argument("--documents", type=whole_number, default=3, metavar="N", help="how many to show (default: 3)")
    share(parser, "tokenizer", help="what decodes (default: the one in _meta/manifest.json)")


def inspect(options: argparse.Namespace) -> int:
    from curation.errors import counted
    from curation.packing.indexed import IndexedReader
    from curation.packing.tokenization import load_tokenizer

    reader = IndexedReader(options.prefix)
    tokenizer, note = (load_tokenizer(options.tokenizer), "") if options.tokenizer else _own_tokenizer(reader.prefix)
    counts = (counted(len(reader.documents) - 1, "document"), counted(len(reader.tokens), "token"), reader.dtype.name)
    say(f"{reader.prefix}: {', '.join(counts)}")
    if note:
        say(f"ids, not text: {note}; --tokenizer NAME shows text")
    for number in range(min(options.documents, len(reader))):
        if stdout_is_lost():  # `curate inspect ... | head`
            break
        ids = reader[number]
        say(f"\n--- document {number}: {counted(len(ids), 'token')}")
        say(tokenizer.decode(ids) if tokenizer else " ".join(map(str, ids[:SHOWN_IDS].tolist())))
    return 0


def _own_tokenizer(prefix: Path) -> tuple[Tokenizer | None, str]:
    """The tokenizer that a pair was made with, or why it is not to be had."""
    from curation.packing.repack import read_tokenizer
    from curation.packing.tokenization import load_tokenizer

    known = read_tokenizer(prefix)
    if not known:
        return None, f"no manifest in {prefix.parent / '_meta'} names the tokenizer"
    try:
        tokenizer = load_tokenizer(known["name"])
    except TokenizerError:
        return None, f"tokenizer {known['name']} of the manifest cannot be loaded here"
    if tokenizer.digest != known["sha256"]:
        return None, f"{known['name']} is another tokenizer than the one of the manifest"
    return tokenizer, ""


def _add_verify(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of the run")
    share(parser, *SPEAKING)


def verify(options: argparse.Namespace) -> int:
    from curation.files import read_json
    from curation.packing.blends import META
    from curation.running.run_folder import relocated_meta
    from curation.running.verify import verify as find_problems

    voice, folder = options.voice, Path(options.folder)
    problems = find_problems(options.folder)
    if problems:
        for problem in problems:
            voice.tell(f"wrong: {problem}")
            if not voice.is_for_people:
                voice.warn(problem)
        return int(voice.result("verify", 1, folder=options.folder, problems=problems))
    content = read_json(folder / "report.json")
    voice.tell(f"{folder}: {len(content['outputs'])} outputs, all as they were written")
    has_moved = bool(relocated_meta(folder.resolve(), content))
    if has_moved:
        voice.tell(
            f"The folder has moved, the paths in {options.folder}/{META}/ point elsewhere: the command that made "
            f"the run, with --output {options.folder}, writes them anew"
        )
    found = {"folder": options.folder, "problems": [], "outputs": len(content["outputs"]), "has_moved": has_moved}
    return int(voice.result("verify", **found))


INSPECT = Command("inspect", "decode a .bin/.idx pair", _add_inspect, inspect)
VERIFY = Command("verify", "re-read a finished run and check everything", _add_verify, verify)
