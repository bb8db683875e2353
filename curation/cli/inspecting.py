# SPDX-License-Identifier: Apache-2.0
"""Commands that read a finished run and write nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from curation.base.errors import counted
from curation.base.system.terminal import print_line, printable_line, stdout_is_lost
from curation.cli.options import LOGGING, share
from curation.cli.parsing import Command, Parser, whole_number

if TYPE_CHECKING:
    from curation.cli.console import Console

SHOWN_IDS = 200


def _add_inspect(parser: Parser) -> None:
    parser.add_argument("path", metavar="PATH", help="decode this .bin/.idx pair, shard or .parquet file")
    parser.add_argument(
        "--documents", type=whole_number, default=3, metavar="N", help="show N documents, or rows (default: 3)"
    )
    parser.add_argument("--source-of", type=whole_number, metavar="I", help="show the row of documents/ for document I")
    share(parser, "tokenizer", help="decode with this tokenizer (default: the manifest's)")


def inspect(options: argparse.Namespace) -> int:
    """Print the first documents of a `.bin/.idx` pair, a token form or a Parquet file, decoded; or the text from which
    one document of a pair was made."""
    from curation.results.finished.decoding import open_tokens, source_of, texts_of
    from curation.tokens.indexed import check_ids
    from curation.tokens.repack import check_tokenizer
    from curation.tokens.tokenization import load_tokenizer

    if options.source_of is not None:
        name, place, text = source_of(options.path, options.source_of)
        print_line(f"--- {printable_line(f'{name} ({place})')}\n{text}")
        return 0
    if options.path.endswith(".parquet"):
        for name, text in texts_of(options.path, options.documents):
            print_line(f"--- {printable_line(name)}\n{text}\n")
        return 0
    found = open_tokens(options.path)
    tokenizer, note = (
        (load_tokenizer(options.tokenizer), "")
        if options.tokenizer
        else check_tokenizer(found.tokenizer, found.manifest)
    )
    print_line(printable_line(f"{found.path}: {found.size}"))
    if note:
        print_line(f"ids instead of text: {note}; give --tokenizer NAME to show text")
    for number in range(min(options.documents, len(found.rows))):
        if stdout_is_lost():  # `curate inspect ... | head`
            break
        ids = found.rows[number]
        if tokenizer:
            check_ids(f"{found.file}, {found.noun} {number}", ids, tokenizer.vocabulary)
        print_line(f"\n--- {found.heading(number)}")
        print_line(tokenizer.decode(ids) if tokenizer else " ".join(map(str, ids[:SHOWN_IDS].tolist())))
    return 0


def _add_verify(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="check the run in this folder, or its copy at this URL")
    share(parser, *LOGGING)


def verify(options: argparse.Namespace) -> int:
    """Check the files of a run against its records, print each problem, and return 1 if there is one."""
    from curation.base.system.files import read_json
    from curation.base.system.steps import shown_by
    from curation.results.finished.moved_paths import relocated_meta
    from curation.results.finished.object_store import is_object_url
    from curation.results.finished.verify import verify as find_problems
    from curation.results.report.text import missing_documents
    from curation.tokens.blends import META

    console, folder, url = options.console, Path(options.folder), options.folder
    with shown_by(console.progress()):
        problems = find_problems(options.folder)
    if problems:
        for problem in problems:
            console.info(f"problem: {problem}")
            if not console.is_for_people:
                console.warn(problem)
        return int(console.result("verify", 1, folder=options.folder, problems=problems))
    if is_object_url(url):
        return _conclude_copy(url, console)
    content = read_json(folder / "report.json")
    console.info(f"{folder}: {counted(len(content['outputs']), 'output')}, all unchanged")
    for line in missing_documents(content):
        console.info(f"{line}. Their order, and the split of each text, were not checked")
    has_moved = bool(relocated_meta(folder.resolve(), content))
    if has_moved:
        console.info(
            f"The folder has moved, and the paths in {options.folder}/{META}/ are out of date. To rewrite them, rerun "
            f"the command that made the run with --output {options.folder}"
        )
    result = {"folder": options.folder, "problems": [], "outputs": len(content["outputs"]), "has_moved": has_moved}
    return int(console.result("verify", **result))


def _conclude_copy(url: str, console: Console) -> int:
    import orjson

    from curation.results.finished.object_store import ObjectStore

    store = ObjectStore(url)
    content = orjson.loads(store.read("report.json") or b"{}")
    console.info(
        f"{store.url}: {counted(len(content['outputs']), 'output')}, all unchanged. The content of documents was not "
        "checked: `curate verify` of the work folder's run does so"
    )
    outputs = len(content["outputs"])
    return console.result("verify", folder=store.url, problems=[], outputs=outputs, has_moved=False)


INSPECT = Command("inspect", "decode the tokens of a run back to text", _add_inspect, inspect)
VERIFY = Command("verify", "re-read a finished run and check everything", _add_verify, verify)
