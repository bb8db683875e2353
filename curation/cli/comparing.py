# SPDX-License-Identifier: Apache-2.0
"""`curate compare`: the differences between two finished runs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curation.base.errors import counted
from curation.base.system.files import commit, local_output, prepare_output
from curation.base.system.terminal import print_line, printable_line
from curation.cli.measuring import print_table
from curation.cli.options import share
from curation.cli.parsing import Command, Parser, UsageError

if TYPE_CHECKING:
    from curation.results.finished.comparison import Comparison

CHARACTERS = 200  # of an example
PAGE_EXAMPLES = 30  # per run
MAX_SETTINGS, MAX_FILES = 20, 2  # that differ
MAX_VALUE = 60  # characters of a setting that are shown


def _add_compare(parser: Parser) -> None:
    parser.add_argument("folders", nargs=2, metavar="DIR", help="compare the runs in these two folders, A and B")
    parser.add_argument(
        "--html", type=os.path.expanduser, metavar="FILE",
        help="write the comparison with more examples to FILE, an .html",
    )  # fmt: skip
    share(parser, "log")


def compare(options: argparse.Namespace) -> int:
    """Print the differences, or write them as a page (`--html`)."""
    from curation.results.finished.comparison import EXAMPLES, compare_finished
    from curation.results.finished.results import open_finished

    page = _page_path(options.html) if options.html else None
    first, second = map(open_finished, options.folders)
    found = compare_finished((first, second), PAGE_EXAMPLES if page else EXAMPLES)
    if page:
        from curation.results.finished.comparison_page import comparison_page

        with commit(page) as temporary:
            temporary.write_text(comparison_page(found, first, second), encoding="utf-8", errors="backslashreplace")
    if options.console.is_for_people:
        _print(found, options.folders)
        if page:
            print_line(printable_line(f"wrote {page}"))
        return 0
    content = found._asdict() | {
        "folders": options.folders,
        "settings": [setting._asdict() for setting in found.settings],
        "removals": [removal._asdict() for removal in found.removals],
        "examples": [_as_json(row) for row in found.examples.to_pylist()],
    }
    return int(options.console.result("compare", **content))


def _page_path(given: str) -> Path:
    """Return the path of the page. Suffixes other than `.html` are refused: the path may be a file of a run, given
    after the wrong option."""
    from curation.results.finished.comparison_page import HEADING

    path = local_output(given)
    if path.suffix != ".html":
        raise UsageError(f"compare --html: expected a name that ends in .html, not {given}")
    if path.is_dir():
        raise UsageError(f"compare --html: {given} is a folder; name a file")
    prepare_output(path, force=True)
    if path.exists() and HEADING not in path.read_bytes():
        raise UsageError(f"compare --html: {given} exists already and is no comparison; name another file")
    return path


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"text": _start(row["text"])}


def _start(text: str | None) -> str:
    return (text or "")[:CHARACTERS]


def _print(found: Comparison, folders: list[str]) -> None:
    from curation.results.finished.comparison import EQUAL, shown_value

    for name, folder in zip("AB", folders, strict=True):
        print_line(printable_line(f"{name}: {folder}"))
    if found.settings:
        values = [[_cut(shown_value(value)) for value in setting] for setting in found.settings[:MAX_SETTINGS]]
        _table([["setting", "A", "B"], *values], left=(0, 1, 2))
        if (more := len(found.settings) - MAX_SETTINGS) > 0:
            print_line(f"and {more:,} more; --html FILE lists all {len(found.settings):,}")
    else:
        print_line("no setting differs" if found.facts else EQUAL)
    files = [fact for fact in found.facts if fact.startswith("file ")]
    facts = [fact for fact in found.facts if fact not in files][:MAX_SETTINGS] + files[:MAX_FILES]
    for fact in facts:
        print_line(printable_line(f"also different: {fact}"))
    if more := len(found.facts) - len(facts):
        print_line(f"also different: {more:,} more; --html FILE lists them")
    rows = [[name.replace("_", " "), f"{a:,}", f"{b:,}", f"{b - a:+,}"] for name, (a, b) in found.counts.items()]
    _table([["documents", "A", "B", "B - A"], *rows])
    removals = [
        [
            entry.stage, printable_line(entry.reason), f"{entry.documents_a:,}", f"{entry.documents_b:,}",
            f"{entry.documents_b - entry.documents_a:+,}", _megabytes(entry.bytes_a, entry.bytes_b),
        ]
        for entry in found.removals if entry.documents_a != entry.documents_b
    ]  # fmt: skip
    if removals:
        _table([["stage", "removed for", "A", "B", "B - A", "MB"], *removals], left=(0, 1))
    if equal := len(found.removals) - len(removals):
        print_line(f"{counted(equal, 'reason')} with the same number in both runs")
    _print_changed(found)


def _print_changed(found: Comparison) -> None:
    from curation.base.errors import counted
    from curation.results.finished.comparison import EXAMPLES

    for name, other, number in (("A", "B", found.kept_by_a), ("B", "A", found.kept_by_b)):
        print_line(f"\n{counted(number, 'document')} kept by {name} and removed by {other}")
        examples = [row for row in found.examples.to_pylist() if row["kept_by"] == name][:EXAMPLES]
        for row in examples:
            facts = [f", {fact} {row[fact]:.6g}" for fact in ("value", "bound") if row[fact] is not None]
            why = f"{row['stage']}: {row['reason']}{''.join(facts)}"
            print_line(printable_line(f"--- {row['id']} ({row['source']}); {why}"))
            print_line(_start(row["text"]))
        if number > len(examples):
            print_line(f"and {number - len(examples):,} more")
    if found.unmatched:
        print_line(printable_line(found.unmatched))
    for name, number in (("A", found.only_a), ("B", found.only_b)):
        if number and not found.unmatched:
            print_line(
                f"{counted(number, 'document')} only in {name}: the other run has no such id under this input "
                "name, or rejected it"
            )
    if found.ambiguous_a or found.ambiguous_b:
        print_line(
            f"not compared: {found.ambiguous_a:,} of A and {found.ambiguous_b:,} of B, whose id the runs have in "
            "different numbers; give the inputs unique ids (id_column)"
        )


def _cut(text: str) -> str:
    text = printable_line(text)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _megabytes(a: int, b: int) -> str:
    return f"{(b - a) / 1e6:+,.2f}" if min(a, b) >= 0 else ""


def _table(rows: list[list[str]], left: tuple[int, ...] = (0,)) -> None:
    print_line()
    print_table([list(column) for column in zip(*rows, strict=True)], left)


COMPARE = Command("compare", "show what differs between two finished runs", _add_compare, compare)
