# SPDX-License-Identifier: Apache-2.0
"""`curate ablate --mix`: weights of domains for the stage `mix`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from curation.base.system.steps import shown_by
from curation.cli.execution import prepare_memory
from curation.cli.parsing import Parser, UsageError, add, whole_number

METHODS = ("doremi", "regmix")
ARMS = ("raw", "curated")


def add_mix(parser: Parser) -> None:
    """Add the options of a choice of weights."""
    parser.add_argument(
        "--mix", nargs="+", action="extend", default=[], metavar="FILE",
        help="weigh these inputs for mix",
    )  # fmt: skip
    parser.add_argument("--by", default="source", metavar="NAME", help="weigh this column's values")
    add(
        parser, "--method", choices=METHODS, noun="method", default="regmix", metavar="METHOD",
        help="weigh by regmix (default) or doremi",
    )  # fmt: skip
    for name, metavar, default, text in (
        ("--mixture-bytes", "N", 0, "weigh for N bytes (default: all)"),
        ("--max-epochs", "N", 4, "repeat at most N times (default: 4)"),
    ):
        parser.add_argument(name, type=whole_number, default=default, metavar=metavar, help=text)


def check_arms(options: argparse.Namespace) -> None:
    """Raise UsageError unless either `--mix`, or RAW, CURATED and `--held-out` are given."""
    if options.mix:
        if options.raw or options.curated:
            raise UsageError("ablate: give --mix, or RAW and CURATED, not both; see curate ablate --help")
        return
    missing = [name.upper() for name in ARMS if not getattr(options, name)]
    missing += [] if options.held_out else ["--held-out"]
    if missing:
        raise UsageError(f"ablate: {', '.join(missing)} is missing; see curate ablate --help")


def ablate_mix(options: argparse.Namespace, exit_code: Callable[[str], int]) -> int:
    """Print tables of domains and weights, the stage `mix` and the verdict. Return the exit code of the verdict."""
    console = options.console
    prepare_memory()
    from curation.tools.ablation.ablate_mix import conclude, prepare
    from curation.tools.ablation.mixture import check_folder

    check_folder(options.output, options.force)
    names = (
        "by", "method", "tier", "mixture_bytes", "max_epochs", "source_column", "smallest_effect", "seed",
    )  # fmt: skip

    def entries(paths: list[str]) -> list[dict[str, str]]:
        return [{"path": path, "text_column": options.text_column} for path in paths]

    with shown_by(console.progress()):
        choice = prepare(
            entries(options.mix), entries(options.held_out), **{name: getattr(options, name) for name in names}
        )
        found = conclude(choice)
    found.save(options.output, force=options.force)
    console.info(*found.lines(), "", found.line)
    row = found.chosen
    content = {"output": options.output, "verdict": found.verdict, "stage": found.stage}
    content |= {"value": row.value, "low": row.low, "high": row.high}
    return int(console.result("ablate", exit_code(found.verdict), **content))
