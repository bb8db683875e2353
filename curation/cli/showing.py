# SPDX-License-Identifier: Apache-2.0
"""`curate show`: documents of a finished run, one after the other, with the reason and the part that broke the rule."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from curation.base.errors import counted
from curation.base.system.terminal import (
    as_json_line,
    fitted,
    print_escaped,
    print_line,
    printable,
    printable_line,
    stdout_is_lost,
)
from curation.cli.options import share
from curation.cli.parsing import Command, Parser, UsageError, add, whole_number

if TYPE_CHECKING:
    from curation.results.finished.first_copies import FirstCopy
    from curation.results.finished.results import FinishedRun
    from curation.results.report.marks import Span

WHAT = ("removed", "kept", "rejected", "edited", "pairs")
SIDES = {
    "kept_text": ("removed", "text", "kept", "kept_text"),
    "text_before": ("before", "text_before", "after", "text"),
}
CHARACTERS = 1_000
MARKS = {True: ("\x1b[7m", "\x1b[27m"), False: ("[[", "]]")}  # on a terminal: reverse video
MIN_WIDTH = 30  # of a side
GUTTER = " | "
SPACE = "\u00b7"
MAX_WORD = 50  # characters; an excerpt may begin inside a word longer than this
COPIES = "first_copies"
MAX_COPIES, COPY_CHARACTERS = 10, 60  # of a document, and of the text of each
CONTEXT = 15  # words before and after a difference of a pair


def _add_show(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", help="show documents of the run in this folder")
    add(parser, "--what", choices=WHAT, default="removed", metavar="WHAT",
        help="show these documents: removed (default), kept, rejected, edited, or pairs of duplicates")  # fmt: skip
    parser.add_argument("--stage", default="", metavar="NAME", help="show what this stage removed")
    parser.add_argument("--reason", default="", metavar="REASON", help="show what was removed for this reason")
    add(parser, "--where", metavar="RULE", help="show what satisfies this, such as 'words: {max: 50}' or language=de")
    parser.add_argument("--sample", type=whole_number, default=10, metavar="N", help="show N documents (default: 10)")
    parser.add_argument("--seed", type=whole_number, default=0, metavar="S", help="draw the sample with this seed")
    parser.add_argument(
        "--characters", type=whole_number, default=CHARACTERS, metavar="N",
        help=f"show at most N characters of a text (default: {CHARACTERS})",
    )  # fmt: skip
    share(parser, "log")


def show(options: argparse.Namespace) -> int:
    """Print documents that the run kept, changed, removed or rejected, up to `--sample` of them."""
    from curation.base.errors import counted
    from curation.results.finished.first_copies import first_copies
    from curation.results.finished.results import near_values, open_finished, run_documents

    if options.characters < 1:
        raise UsageError(f"show --characters: must be at least 1, not {options.characters}")
    run = open_finished(options.folder)
    table = run_documents(
        options.folder, options.what, stage=options.stage, reason=options.reason, where=options.where,
        sample=options.sample, seed=options.seed,
    )  # fmt: skip
    copies = first_copies(run, table, options.what)
    rows = ({name: table.column(name)[k].as_py() for name in table.column_names} | ({COPIES: copies[k]} if copies[k]
            else {}) for k in range(len(table)))  # fmt: skip
    console = options.console
    if not console.is_for_people:
        for row in rows:
            print_line(as_json_line("document", **_as_json(run, row, options.characters)))
        return int(console.result("show", folder=options.folder, what=options.what, documents=len(table)))
    few = options.what == "edited" and len(table) < options.sample
    limit = "; at most 1 GB of the inputs' text was read" if few else ""
    if not len(table):
        near = near_values(run, options.what, options.where)
        if options.what == "removed" and not near:
            near = "; kept documents are shown by --what kept"
        print_line(printable_line(f"no {options.what} document of {options.folder} fits{limit}{near}"))
        return 0
    lines = (line for row in rows for line in _lines(run, row, options.characters))
    _page(lines, f"{counted(len(table), 'document')}, seed {options.seed}{limit}")
    return 0


def _page(lines: Iterator[str], end: str) -> None:
    """Print lines that are already safe for a terminal; use a pager if standard output is a terminal."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not (sys.stdout.isatty() and sys.stdin.isatty() and command and shutil.which(command[0])):
        for line in lines:
            if stdout_is_lost():
                return
            print_escaped(line)
        print_escaped(end)
        return
    environment = {"LESS": "FRX"} | os.environ
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, text=True, errors="backslashreplace", env=environment
    ) as pager:
        assert pager.stdin
        try:
            for line in lines:
                pager.stdin.write(f"{line}\n")
            pager.stdin.write(f"{end}\n")
            pager.stdin.close()
        except BrokenPipeError:
            pass


def _spans(run: FinishedRun, row: dict[str, Any]) -> list[Span]:
    from curation.results.report.marks import removing_spans

    if COPIES in row:
        return _characters(row["text"], row[COPIES])
    stage = run.judging_stage(row["stage"]) if "stage" in row else None
    return removing_spans(stage, row.get("reason", ""), row.get("text") or "")


def _characters(text: str, copies: list[FirstCopy]) -> list[Span]:
    """Return spans of bytes as spans of characters; spans that touch are joined."""
    data = text.encode()
    spans: list[Span] = []
    for copy in copies:
        start, stop = (len(data[:place].decode(errors="ignore")) for place in (copy.start, copy.stop))
        if spans and spans[-1][1] >= start:
            start = spans.pop()[0]
        spans.append((start, stop))
    return spans


def _copy_lines(row: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each span that was cut: the document and the byte where the span occurs first."""
    copies = row.get(COPIES, [])
    data = (row["text_before"] if "text_before" in row else row["text"]).encode() if copies else b""
    for copy in copies[:MAX_COPIES]:
        text = " ".join(data[copy.start : copy.stop].decode(errors="ignore").split())[:COPY_CHARACTERS]
        place = f"in {copy.id} at byte {copy.first:,}" if copy.id != row["id"] else f"here at byte {copy.first:,}"
        yield printable_line(f"bytes {copy.start:,} to {copy.stop:,} are first {place}: {text}")
    if len(copies) > MAX_COPIES:
        yield f"({counted(len(copies) - MAX_COPIES, 'more span')})"


def _as_json(run: FinishedRun, row: dict[str, Any], characters: int) -> dict[str, Any]:
    """Return a document for programs: its texts, cut to `characters`, and the marks in the text."""
    from curation.results.report.marks import excerpt

    content = dict(row)
    if COPIES in row:
        content[COPIES] = [copy._asdict() for copy in row[COPIES]]
    if "text_before" in row:
        content["text_start"] = start = _difference(row["text_before"], row["text"], characters)
        content |= {name: row[name][start : start + characters] for name in ("text_before", "text")}
        content["text_characters"] = len(row["text"])
    elif isinstance(row.get("text"), str):
        content["text"], content["marks"], content["text_start"] = excerpt(row["text"], _spans(run, row), characters)
        content["text_characters"] = len(row["text"])
    if isinstance(row.get("kept_text"), str):
        content["kept_text"] = row["kept_text"][:characters]
    return content


def _lines(run: FinishedRun, row: dict[str, Any], characters: int) -> Iterator[str]:
    yield fitted(printable_line(_heading(run, row)), sys.stdout)
    sides = next((names for key, names in SIDES.items() if row.get(key) is not None), None)
    if sides:
        yield from _side_by_side(row, sides, characters)
    elif "text" in row:
        yield from _marked(row, _spans(run, row), characters)
    elif "error" not in row:
        yield "(the run stored no texts of removed documents: output: {removed: ids})"
    yield from _copy_lines(row)
    yield ""


def _heading(run: FinishedRun, row: dict[str, Any]) -> str:
    if "error" in row:
        return f"--- {row['file']}, line {row['line']} (input {row['source']}): {row['error']}"
    parts = [f"--- {row['id']} ({row['source']})"]
    if "reason" in row:
        broken = row.get("bound")
        bound = "" if broken is None else f", bound {broken:g}"
        number = "" if row["value"] is None else f", {_subject(run, row)} {row['value']:.6g}"
        parts.append(f"{row['stage']}: {row['reason']}{number}{bound}")
    if row.get("duplicate_of") is not None:
        jaccard = row.get("jaccard")
        parts.append(f"kept: {row['duplicate_of']}" + ("" if jaccard is None else f", Jaccard {jaccard:.4f}"))
    if row.get("link") is not None:
        parts.append(f"joined through {row['link']}, Jaccard {row['link_jaccard']:.4f}")
    if "reason" in row:
        parts.append(_place(row))
    return "; ".join(parts)


def _place(row: dict[str, Any]) -> str:
    """Return the file of a removed document, relative to the working directory if inside it, and the line in this
    file."""
    number = "" if row["line"] is None else f", line {row['line']:,}"
    return f"{row['file'].removeprefix(os.path.join(os.getcwd(), ''))}{number}"


def _subject(run: FinishedRun, row: dict[str, Any]) -> str:
    """Return the name of a removed document's value: the measure or ratio, unless the reason already contains this
    name."""
    if run.compares_vectors(row["stage"]):
        return "cosine"
    rules = [rule for rule in run.rules(row["stage"]) if rule.name == row["reason"] and rule.is_on_measures]
    subjects = {rule.keys[-1] for rule in rules} - {row["reason"]}
    return subjects.pop() if len(subjects) == 1 else "value"


def _marked(row: dict[str, Any], spans: list[Span], characters: int) -> Iterator[str]:
    from curation.results.report.marks import excerpt, pieces

    text = row["text"] or ""
    shown, inside, first = excerpt(text, spans, characters)
    begin, end = MARKS[sys.stdout.isatty()]
    if first:
        yield f"(... {counted(first, 'character')})"
    yield "".join(
        f"{begin}{printable(part)}{end}" if marked else printable(part) for part, marked in pieces(shown, inside)
    )
    if left := len(text) - first - len(shown):
        yield f"({counted(left, 'more character')})"


def _difference(before: str, after: str, characters: int) -> int:
    """Return where excerpts of two texts begin: at the start, or at a word before the first difference if that is far
    from the start."""
    from curation.results.report.marks import common_start

    equal = common_start(before, after)
    start = equal - characters // 4 if equal >= max(characters // 2, 1) else 0
    return (before.rfind(" ", max(start - MAX_WORD, 0), start) + 1) or start


def _side_by_side(row: dict[str, Any], names: tuple[str, str, str, str], characters: int) -> Iterator[str]:
    """Yield lines with one text on the left and the other on the right; words that differ are marked.

    names   name and column of the left text, then of the right one
    """
    from curation.results.report.marks import MAX_CHARACTERS, aligned_words

    width = max((shutil.get_terminal_size((120, 24)).columns - len(GUTTER)) // 2, MIN_WIDTH)
    one, other = row[names[1]] or "", row[names[3]]
    if names[0] == "before" and (first := _difference(one, other, characters)):
        one, other = one[first:], other[first:]
        yield f"(... {counted(first, 'character')})"
    aligned = aligned_words(one, other)
    if one != other and all(equal for *_, equal in aligned):
        yield f"(the words are equal: other white space than one space is shown, with {SPACE} for a space)"
        aligned = aligned_words(_with_spaces(one[:MAX_CHARACTERS]), _with_spaces(other[:MAX_CHARACTERS]))
    yield f"{names[0]:<{width}}{GUTTER}{names[2]}"
    shown = 0
    for left, right, equal in aligned:
        if shown > characters:
            yield "(more words; raise --characters)"
            return
        sides = [_context(words) if equal else words for words in (left, right)]
        shown += max(sum(map(len, words)) + len(words) for words in sides)
        columns = [_wrapped(words, width, characters, not equal) for words in sides]
        for number in range(max(map(len, columns))):
            cells = [column[number] if number < len(column) else ("", "") for column in columns]
            yield f"{cells[0][1]}{' ' * (width - len(cells[0][0]))}{GUTTER}{cells[1][1]}".rstrip()


def _with_spaces(text: str) -> str:
    """Return the text with white space in visible form; single spaces between words stay. Visible white space is a word
    of its own."""

    def shown(space: re.Match[str]) -> str:
        is_inside = space.start() > 0 and space.end() < len(text)
        return " " if space[0] == " " and is_inside else f" {repr(space[0])[1:-1].replace(' ', SPACE)} "

    return re.sub(r"\s+", shown, text)


def _context(words: list[str]) -> list[str]:
    """Return equal words of two texts; words that are far from a difference are replaced by their number."""
    if len(words) <= 3 * CONTEXT:
        return words
    return [*words[:CONTEXT], f"(... {counted(len(words) - 2 * CONTEXT, 'word')} ...)", *words[-CONTEXT:]]


def _wrapped(words: list[str], width: int, characters: int, marked: bool) -> list[tuple[str, str]]:
    """Return lines of at most `width` characters, each as plain text and as it is printed."""
    import textwrap

    begin, end = MARKS[sys.stdout.isatty()] if marked else ("", "")
    room = width - (len(begin) + len(end) if begin == MARKS[False][0] else 0)
    text = printable_line(" ".join(words)[:characters])
    lines = textwrap.wrap(text, room, break_on_hyphens=False)
    bare = (begin, end) if begin == MARKS[False][0] else ("", "")
    return [(f"{bare[0]}{line}{bare[1]}", f"{begin}{line}{end}") for line in lines]


SHOW = Command("show", "show documents that a finished run kept or removed", _add_show, show)
