# SPDX-License-Identifier: Apache-2.0
"""`curate ablate`: whether curated text trains a better model than raw text."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from curation.base.system import interrupts
from curation.base.system.steps import shown_by
from curation.cli.ablating_mix import ablate_mix, add_mix, check_arms
from curation.cli.execution import prepare_memory
from curation.cli.options import LOGGING, READING, share
from curation.cli.parsing import Command, Parser, add, whole_number

TIERS = ("seconds", "minutes", "gpu")
UNDECIDED, WORSE = 4, 5  # exit codes
CODES = {"better": 0, "no difference": 0, "worse": WORSE}


def _add_ablate(parser: Parser) -> None:
    parser.add_argument("raw", nargs="?", metavar="RAW", help="compare with these documents, a file, folder or glob")
    parser.add_argument(
        "curated", nargs="?", metavar="CURATED",
        help="judge this finished run over RAW, or these documents of RAW",
    )  # fmt: skip
    parser.add_argument(
        "--held-out", nargs="+", action="extend", default=[], metavar="FILE",
        help="decide by these texts; each FILE is a source",
    )  # fmt: skip
    parser.add_argument(
        "--source-column", default="", metavar="NAME", help="read sources of held-out texts from this column"
    )
    add(
        parser, "--tier", choices=TIERS, noun="tier", default="seconds", metavar="TIER",
        help="train models of bytes on 2 MB (seconds; default) or 20 MB (minutes), or transformers (gpu)",
    )  # fmt: skip
    for name, metavar, kind, default, text in (
        ("--smallest-effect", "SHARE", float, 0.005, "ignore smaller differences (default: 0.005)"),
        ("--seed", "N", whole_number, 0, "use another seed (default: 0)"),
    ):
        parser.add_argument(name, type=kind, default=default, metavar=metavar, help=text)
    add_mix(parser)
    share(parser, *READING)
    share(parser, "output", help="write the result to this folder")
    share(parser, "force", help="replace another ablation in DIR")
    share(parser, *LOGGING)


def ablate(options: argparse.Namespace) -> int:
    """Print the plan and the minimum detectable effect, then the verdict. With `--mix`, print weights."""
    check_arms(options)
    if options.mix:
        return ablate_mix(options, exit_code)
    console = options.console
    prepare_memory()
    from curation.base.errors import counted
    from curation.tools.ablation.ablate import conclude, prepare
    from curation.tools.ablation.experiment import plan_lines

    interrupts.begin_writing()
    names = ("tier", "source_column", "smallest_effect", "seed")

    def entry(path: str) -> dict[str, str]:
        return {"path": path, "text_column": options.text_column}

    with shown_by(console.progress()):
        plan = prepare(
            entry(options.raw), options.curated if _is_run(options.curated) else entry(options.curated),
            [entry(path) for path in options.held_out], placebos=0, folder=options.output,
            **{name: getattr(options, name) for name in names},
        )  # fmt: skip
        trained = plan.store.begin(plan.plan, options.force)
        console.info(*plan_lines(plan.plan))
        if trained:
            console.info(f"resumed: {counted(trained, 'model')} in {options.output} will not be trained again")
        found = conclude(plan, console.info)
    found.save(options.output, force=options.force)
    console.info(found.line)
    content = {"output": options.output, "verdict": found.verdict, "detectable": found.detectable}
    row = found.curated._asdict()
    content |= {name: row[name] for name in ("value", "low", "high")} | {"needed": found.needed, "shift": found.shift}
    return int(console.result("ablate", exit_code(found.verdict), **content))


def exit_code(verdict: str) -> int:
    """Return the exit code of a verdict."""
    return CODES.get(verdict, UNDECIDED)


def _is_run(path: str) -> bool:
    from curation.record.folder import REPORT

    return os.path.lexists(Path(path).expanduser() / REPORT)


ABLATE = Command("ablate", "show whether curated text trains a better model than raw text", _add_ablate, ablate)
