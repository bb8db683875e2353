# SPDX-License-Identifier: Apache-2.0
"""`curate check-overlap`: evaluation items that occur in training texts."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from curation.base.system import interrupts
from curation.base.system.steps import shown_by
from curation.base.system.terminal import print_line, printable_line
from curation.cli.execution import prepare_memory
from curation.cli.measuring import print_table
from curation.cli.options import LOGGING, READING, check_needs_model, share
from curation.cli.parsing import Command, Parser, UsageError, whole_number

if TYPE_CHECKING:
    from curation.tools.overlap import Overlap
    from curation.tools.overlap_spans import SpanOverlap

COMPARISONS = ("visible", "lowercase", "exact", "folded")
WORDS = ("spaces", "scripts", "table")  # as in `curation.kernels.word_breaks`, whose import loads Numba
SHOWN_ITEMS = 10
SHOWN_IDS = 3
SHOWN_CHARACTERS = 120
FOUND = 1  # exit code


def _add_check_overlap(parser: Parser) -> None:
    parser.add_argument(
        "--train", nargs="+", action="extend", default=[], metavar="PATH",
        help="search the finished run in this folder, these files, folders and globs, or these .bin/.idx pairs",
    )  # fmt: skip
    parser.add_argument(
        "--spans", default="", metavar="INDEX",
        help="in place of --train: search for equal bytes in the index (out/index) of substring_dedup",
    )  # fmt: skip
    parser.add_argument(
        "--test", nargs="+", action="extend", default=[], required=True, metavar="FILE",
        help="search for the items of these files, each as one evaluation set",
    )  # fmt: skip
    parser.add_argument("--test-column", default="", metavar="NAME", help="read the items from this column of FILE")
    parser.add_argument("--answer-column", default="", metavar="NAME", help="read the answers from this column")
    for name, metavar, kind, default, text in (
        ("--ngram", "N", whole_number, 13, "compare n-grams of N words (default: 13)"),
        (
            "--threshold",
            "SHARE",
            float,
            0.8,
            "an item with more of its n-grams (bytes) found is contaminated (default: 0.8)",
        ),
        ("--documents", "N", whole_number, 10, "name N documents (longest spans) of an item (default: 10)"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)
    parser.add_argument(
        "--compare", choices=COMPARISONS, default="visible",
        help="compare words in this form, of docs/evaluation_texts.md (default: visible)",
    )  # fmt: skip
    parser.add_argument(
        "--words", choices=WORDS, default="spaces",
        help="divide texts into words at spaces, in scripts without spaces too, or also at marks (default: spaces)",
    )  # fmt: skip
    share(
        parser,
        "model",
        help="compare vectors too, by the encoder or static embeddings in this local folder, or package:NAME",
    )
    parser.add_argument(
        "--cosine", type=float, metavar="COSINE",
        help="with --model: an item with at least this cosine to a text is close to it (default: 0.95)",
    )  # fmt: skip
    parser.add_argument(
        "--whole-documents", action="store_true",
        help="with --model: compare whole documents; a long one hides an item",
    )  # fmt: skip
    share(
        parser,
        "output",
        required=False,
        default="",
        metavar="FILE",
        help="write the items to this .json, .arrow or .parquet file",
    )
    share(parser, "force", help="replace FILE")
    share(parser, "tokenizer", help="decode pairs with this tokenizer (default: the one in _meta/manifest.json)")
    share(parser, *READING, "engine", "workers", *LOGGING)


def check_overlap(options: argparse.Namespace) -> int:
    """Compare by n-grams, by bytes (`--spans`) or by vectors (`--model`), and print the items that were found."""
    console = options.console
    check_needs_model(options, "cosine", "whole_documents")
    if bool(options.train) == bool(options.spans):
        raise UsageError("give training texts as --train PATH..., or an index as --spans INDEX")
    if options.spans and options.model:
        raise UsageError("--model compares vectors, and --spans bytes; give one of them")
    if options.spans and options.answer_column:
        raise UsageError("--answer-column is for --train; --spans compares bytes. Leave it out")
    prepare_memory()
    from curation.tools import overlap

    if options.output:
        overlap.check_output(options.output, options.force)  # checked before the work
    if options.spans:
        return _check_spans(options)
    with shown_by(console.progress()):
        found = overlap.check_overlap(
            [_train(path, options.text_column) for path in options.train],
            _tests(options),
            ngram=options.ngram, threshold=options.threshold, compare=options.compare, words=options.words,
            documents=options.documents, tokenizer=options.tokenizer, model=options.model,
            cosine=0.95 if options.cosine is None else options.cosine, whole_documents=options.whole_documents,
            answer_column=options.answer_column,
            engine=options.engine, workers=options.workers,
        )  # fmt: skip
    if console.is_for_people:
        _print(found)
    if options.output:
        interrupts.begin_writing()
        console.info(f"items: {found.save(options.output, force=options.force)}")
    content = {
        "output": options.output, "sets": [entry._asdict() for entry in found.sets],
        "documents": found.documents, "bytes": found.bytes, "rejected": found.rejected,
    }  # fmt: skip
    return int(console.result("check-overlap", FOUND if found.contaminated or found.close else 0, **content))


def _check_spans(options: argparse.Namespace) -> int:
    from curation.tools.overlap_spans import check_spans

    console = options.console
    with shown_by(console.progress()):
        found = check_spans(
            options.spans, _tests(options), threshold=options.threshold, places=options.documents
        )  # fmt: skip
    if console.is_for_people:
        _print_spans(found)
    if options.output:
        interrupts.begin_writing()
        console.info(f"items: {found.save(options.output, force=options.force)}")
    sets = [entry._asdict() for entry in found.sets]
    content = {"output": options.output, "sets": sets, "length": found.length, "documents": found.documents}
    return int(console.result("check-overlap", FOUND if found.contaminated else 0, **content))


def _tests(options: argparse.Namespace) -> list[dict[str, str]]:
    return [{"path": path, "text_column": options.test_column} for path in options.test]


def _train(path: str, text_column: str) -> str | dict[str, str]:
    """Return an input with its text column. A run or a pair, which have no text column, is returned as its path."""
    from curation.tools.overlap_corpus import is_documents

    return {"path": path, "text_column": text_column} if text_column and is_documents(path) else path


def _print(found: Overlap) -> None:
    from curation.base.errors import counted

    size = f"{found.bytes / 1e6:,.2f} MB"
    print_line(f"searched {counted(found.documents, 'document')}, {size}; n-grams of {found.ngram} words")
    rows = [
        [
            printable_line(entry.name), f"{entry.items:,}", f"{entry.contaminated:,}",
            f"{entry.contaminated / max(entry.items, 1):.2%}", f"{entry.touched:,}",
            f"{entry.found / max(entry.ngrams, 1):.2%}", f"{entry.short:,}",
        ]
        for entry in found.sets
    ]  # fmt: skip
    head = ["test", "items", f"above {found.threshold:g}", "share", "with a match", "n-grams found", "short"]
    if found.model:
        head.append(f"cosine {found.cosine:g}")
        rows = [[*row, f"{entry.close:,}"] for row, entry in zip(rows, found.sets, strict=True)]
    print_table([list(column) for column in zip(*[head, *rows], strict=True)])
    for entry in found.sets:
        if entry.short:
            print_line(
                f"{printable_line(entry.name)}: {counted(entry.short, 'item')} of fewer than {found.ngram} words, found"
                " as questions: from 8 words on, from 4 words on with --answer-column; others as whole documents"
            )
        if entry.empty:
            print_line(f"{printable_line(entry.name)}: {counted(entry.empty, 'item')} without words, not compared")
    shown = found.items.filter(found.items["contaminated"]).slice(0, SHOWN_ITEMS).to_pylist()
    for item in shown:
        ids = ", ".join(item["documents"][:SHOWN_IDS]) + (", ..." if len(item["documents"]) > SHOWN_IDS else "")
        print_line(printable_line(f"{item['file']}, item {item['item']:,}: {item['share']:.1%} found, in {ids}"))
    if found.contaminated > len(shown):
        print_line(f"and {found.contaminated - len(shown):,} more")
    if found.model:
        _print_close(found)


def _print_spans(found: SpanOverlap) -> None:
    import pyarrow.compute as pc

    from curation.base.errors import counted

    print_line(f"searched the index of {counted(found.documents, 'document')}; spans of {found.length:,} bytes or more")
    rows = [
        [
            printable_line(entry.name), f"{entry.items:,}", f"{entry.contaminated:,}",
            f"{entry.contaminated / max(entry.items, 1):.2%}", f"{entry.touched:,}",
            f"{entry.found / max(entry.bytes, 1):.2%}", f"{entry.short:,}",
        ]
        for entry in found.sets
    ]  # fmt: skip
    head = ["test", "items", f"above {found.threshold:g}", "share", "with a span", "bytes found", "short"]
    print_table([list(column) for column in zip(*[head, *rows], strict=True)])
    for entry in found.sets:
        if entry.short:
            print_line(
                f"{printable_line(entry.name)}: {counted(entry.short, 'item')} of fewer than {found.length:,} bytes, "
                "not found; the index of a smaller length finds them"
            )
    touched = found.items.filter(pc.greater(found.items["found"], 0))
    for item in touched.slice(0, SHOWN_ITEMS).to_pylist():
        where = ", ".join(
            f"{span['start']:,} to {span['stop']:,} in {span['document']} at {span['offset']:,}"
            for span in item["spans"][:SHOWN_IDS]
        ) + (", ..." if len(item["spans"]) > SHOWN_IDS else "")
        print_line(printable_line(f"{item['file']}, item {item['item']:,}: {item['share']:.1%} found, bytes {where}"))
    if len(touched) > SHOWN_ITEMS:
        print_line(f"and {len(touched) - SHOWN_ITEMS:,} more")


def _print_close(found: Overlap) -> None:
    """Print the items with the highest cosines, each with the nearest text."""
    items = found.items.filter(found.items["close"]).sort_by([("cosine", "descending")])
    for item in items.slice(0, SHOWN_ITEMS).to_pylist():
        where = f"{item['file']}, item {item['item']:,}"
        print_line(printable_line(f"{where}: cosine {item['cosine']:.4f} in {item['nearest']}"))
        for name in ("text", "nearest_text"):
            print_line(f"    {printable_line(' '.join(item[name].split())[:SHOWN_CHARACTERS])}")
    if found.close > SHOWN_ITEMS:
        print_line(f"and {found.close - SHOWN_ITEMS:,} more")


CHECK_OVERLAP = Command("check-overlap", "find evaluation items in training texts", _add_check_overlap, check_overlap)
