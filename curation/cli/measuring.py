# SPDX-License-Identifier: Apache-2.0
"""`curate measure`: measures of documents, and the documents that the rules of a recipe would remove."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curation.base.errors import OutputError, counted
from curation.base.system.system_folders import system_folder
from curation.base.system.terminal import GAP, aligned, print_line, printable_line
from curation.cli import recipes
from curation.cli.execution import conclude, prepare_memory, run_recipe
from curation.cli.options import LOGGING, RUNNING, add_inputs, inputs_in, inputs_of, share, split_names
from curation.cli.parsing import Command, Parser, UsageError

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe
    from curation.rules.effects import Effect, Effects, GroupEffects, Histogram
    from curation.rules.grammar import Rule
    from curation.stages import Stage

BLOCKS, BOUND = "▁▂▃▄▅▆▇█", "│"
ASCII_BLOCKS, ASCII_BOUND = ".:-=+*%@", "|"
SPAN_COUNTS = ("bytes", "spans", "documents", "emptied", "sources", "lengths", "frequent")
GROUP_RANKS = (1, 50, 99)  # percentiles shown for a group
SHOWN_SPANS, SPAN_CHARACTERS = 10, 80
LEGEND = (
    "this only: removed by no other rule; +10%: with the bound raised by 10 %; "
    "in a histogram the bound is the upright line"
)


def _add_measure(parser: Parser) -> None:
    add_inputs(parser)
    parser.add_argument(
        "--names", default="", metavar="A,B",
        help="compute these measures, and ratios as a/b (default: all of curation.Measure, or those of the rules)",
    )  # fmt: skip
    parser.add_argument(
        "--spans", default="", metavar="N,M",
        help="show what substring_dedup would cut at these lengths in bytes, such as 100,200,500",
    )  # fmt: skip
    share(parser, "recipe", dest="recipe", help="show what each rule of this recipe would remove")
    share(parser, "rules", help="show what each rule of these sets would remove")
    share(parser, "stages", help="run these stages before the measures (default: none)")
    share(parser, "set", "allow_code")
    share(parser, "output", required=False, default="", help="keep the measures in this folder (default: print only)")
    share(parser, *RUNNING, *LOGGING)


def measure(options: argparse.Namespace) -> int:
    """Measure documents and write the results to a folder: a temporary one if only the summary is wanted."""
    if options.spans:
        _check_spans(options)
    prepare_memory()
    if options.output:
        return _measure_in(options.output, options)
    with system_folder("curate-measure-") as folder:
        try:
            return _measure_in(str(folder), options)
        except OutputError as error:  # the disk is too small
            raise OutputError(str(error).replace(str(folder), f"{folder.parent} (TMPDIR)")) from None


def _check_spans(options: argparse.Namespace) -> None:
    for name in ("names", "recipe", "rules", "output"):
        if getattr(options, name):
            raise UsageError(f"measure --spans prints shares alone: leave --{name} out")


def _lengths_of(options: argparse.Namespace) -> list[int]:
    lengths = split_names(options.spans)
    if wrong := [name for name in lengths if not name.isdecimal()]:
        raise UsageError(f"measure --spans takes lengths in bytes, such as 100,200,500, not {wrong[0]!r}")
    return sorted({int(name) for name in lengths})


def _measure_spans(folder: str, options: argparse.Namespace) -> int:
    """Run the stages of `--stages` and count the repeated spans of each length, in one run over the inputs."""
    import msgspec

    from curation.base.errors import RecipeError
    from curation.results.finished.results import open_finished
    from curation.stages.exact.span_shares import SpanShares

    lengths = _lengths_of(options)
    recipe = recipes.build("measure", _content(options, recipes.stages_of(options)), options)
    try:
        stages = [SpanShares(name=f"{length:,} bytes", length=length) for length in lengths]
    except ValueError as error:
        raise RecipeError(f"measure --spans: {error}") from None
    finished = run_recipe(msgspec.structs.replace(recipe, stages=[*recipe.stages, *stages]), folder, options)
    shown = open_finished(folder).report["stages"][-len(lengths) :]
    if options.console.is_for_people:
        print_spans(shown)
        return conclude(finished, folder, options)
    spans = [{"length": length, "bytes_in": stage["bytes_in"]} | {name: stage["details"][name] for name in SPAN_COUNTS}
             for length, stage in zip(lengths, shown, strict=True)]  # fmt: skip
    return conclude(finished, folder, options, spans=spans)


def print_spans(stages: Sequence[dict[str, Any]]) -> None:
    """Print, to standard output, how much would be cut at each length, and the most frequent spans of the shortest
    length."""
    names = [*stages[0]["details"]["sources"]]
    rows = [["repeats", "cut", "share", "spans", "documents", "left empty", *(names if len(names) > 1 else ())]]
    for stage in stages:
        details = stage["details"]
        counts = [f"{details[name]:,}" for name in SPAN_COUNTS[:4]]
        sizes = [(details["bytes"], stage["bytes_in"]), *(details["sources"].values() if len(names) > 1 else ())]
        share, *shares = (f"{cut / max(size, 1):.2%}" for cut, size in sizes)
        rows.append([stage["name"], counts[0], share, *counts[1:], *shares])
    print_table([list(column) for column in zip(*rows, strict=True)])
    for entry in stages[0]["details"]["frequent"][:SHOWN_SPANS]:
        text = " ".join(entry["text"].split())[:SPAN_CHARACTERS]
        print_line(
            printable_line(f"repeats {counted(entry['count'], 'time')}, {counted(entry['bytes'], 'byte')}: {text}")
        )


def _measure_in(folder: str, options: argparse.Namespace) -> int:
    if options.spans:
        return _measure_spans(folder, options)
    from curation.results.finished.measured import RANKS, MeasuredDocuments, percentiles
    from curation.rules.effects import group_effects, rule_effects

    shown = split_names(options.names) if options.names else []
    measured = [part for name in shown for part in name.split("/")]
    rules: list[Rule] = []
    if options.recipe or options.rules:
        recipe, rules = _recipe_of_rules(options, measured)
    else:
        stages = [*recipes.stages_of(options), {"kind": "measure", "names": measured}]
        recipe = recipes.build("measure", _content(options, stages), options)
        shown = shown or list(recipe.stages[-1].writes())
    finished = run_recipe(recipe, folder, options)
    units = stages_of_units(folder)
    measures = MeasuredDocuments(Path(folder))
    table, effects = percentiles(measures, shown), rule_effects(rules, measures, measures.rows)
    groups = group_effects(rules, measures, measures.column) if measures.rows else []
    if options.console.is_for_people:
        if shown:
            print_percentiles(measures.rows, table)
        if rules and measures.rows:
            print_effects(effects)
            print_groups(groups)
            _print_skipped(rules)
        for stage in units:
            print_units(stage)
        return conclude(finished, folder, options)
    result = {"ranks": RANKS, "percentiles": table, "rules": [as_json(effect) for effect in effects.effects]}
    result["units"] = [{name: stage[name] for name in ("name", "unit", "details", "unit_rules")} for stage in units]
    result["groups"] = [group_as_json(group) for group in groups]
    return conclude(finished, folder, options, **result)


def _recipe_of_rules(options: argparse.Namespace, names: list[str]) -> tuple[Recipe, list[Rule]]:
    """Return a recipe that computes the measures for the filters of a recipe, on the text that the first filter gets;
    and the rules of these filters. Stages `lines` before the first filter judge their units. Raises RecipeError for a
    recipe without rules."""
    import msgspec

    from curation.base.errors import RecipeError
    from curation.recipes.recipe import Output, check_readable, load_recipe
    from curation.rules.groups import groups_in
    from curation.stages import Filter, Lines, MeasureStage
    from curation.stages.rows.rule_measures import RuleMeasures

    if options.recipe:
        name, inputs, settings = options.recipe, inputs_in(options), recipes.settings_of(options)
        recipe = load_recipe(name, inputs or None, settings=settings, allow_code=options.allow_code)
        check_readable(recipe)
    else:
        name = "--rules"
        recipe = recipes.build("measure", _content(options, recipes.stages_of(options)), options)
    filters = [number for number, stage in enumerate(recipe.stages) if isinstance(stage, Filter)]
    judges = [number for number, stage in enumerate(recipe.stages) if isinstance(stage, Lines)]
    if not filters and not judges:
        raise RecipeError(f"{name} has no stage filter or lines; name a recipe with rules, or give --rules")
    first, last = (filters[0], filters[-1]) if filters else (judges[-1] + 1, 0)
    before = [stage for stage in recipe.stages[:first] if isinstance(stage, Lines) or _changes_text(stage)]
    later = [recipe.stage_names[k] for k in range(first, last) if k in judges or _changes_text(recipe.stages[k])]
    if later:
        options.console.warn(f"all rules are measured before {', '.join(later)}, which change the text between filters")
    rules = [rule for stage in recipe.stages if isinstance(stage, Filter) for rule in stage.expanded]
    names = list(dict.fromkeys([*names, *(name for rule in rules for name in rule.measures)]))
    if not names and not any(isinstance(stage, Lines) and stage.shown_rules().rules for stage in before):
        raise RecipeError(f"no rule of {name} is on a measure; rules on columns have no percentiles")
    per = tuple(dict.fromkeys(groups.column for groups in groups_in(rules)))
    measure = RuleMeasures(name="measure", names=tuple(names), per=per) if per else MeasureStage(names=tuple(names))
    before = _with_writers(recipe.stages[: max(last, first)], before, per)
    stages = [*before, *([measure] if names else [])]
    return msgspec.structs.replace(recipe, name="measure", stages=stages, output=Output(formats=())), rules


def _with_writers(stages: Sequence[Stage], taken: Sequence[Stage], columns: Sequence[str]) -> list[Stage]:
    """Return the stages of `taken` and the stages that write `columns`, in the order of `stages`. The stages that write
    columns which these writers read are included too."""
    wanted, found = {*columns}, []
    for stage in reversed(stages):
        if written := wanted & {*stage.writes()}:
            wanted = (wanted - written) | {*stage.reads()}
        if written or any(stage is other for other in taken):
            found.append(stage)
    return found[::-1]


def _content(options: argparse.Namespace, stages: list[Any]) -> dict[str, Any]:
    return {"name": "measure", "input": inputs_of(options), "stages": stages, "output": {"formats": []}}


def _changes_text(stage: Stage) -> bool:
    """Whether a stage must run before the measures: it removes nothing, and it is not a measure itself."""
    return not stage.removes and stage.kind != "measure"


def print_percentiles(documents: int, table: dict[str, list[float]]) -> None:
    """Print the percentiles of measures and ratios to standard output."""
    from curation.base.errors import counted
    from curation.results.finished.measured import RANKS

    print_line(f"percentiles of {counted(documents, 'document')}")
    if table:
        columns = [[f"{rank}%", *column] for rank, column in zip(RANKS, _columns(table.values()), strict=True)]
        print_table([["measure", *table], *columns])


def print_effects(effects: Effects) -> None:
    """Print two tables to standard output, with a line per bound: the documents that it removes, and percentiles."""
    from curation.base.errors import counted
    from curation.rules.effects import MOVES, RANKS

    shown = effects.effects
    if not shown:
        return
    rules, removed, alone = _bounds_of(effects)
    moved = [
        [f"{move:+.0%}", *_shares((effect.removed[k] for effect in shown), effects.documents)]
        for k, move in enumerate(MOVES)
        if move
    ]
    share = f"{effects.removed:,} ({effects.removed / max(effects.documents, 1):.2%})"
    print_line(f"{counted(effects.documents, 'document')}, of which the rules remove {share}")
    print_table([*rules, removed, alone, *moved], optional=(5, 6, 4, 7, 3))
    print_line(LEGEND)
    print_table([*rules, *_values_of(effects, RANKS)], left=(0, 2), optional=(4, 8, 10, 5, 7, 3, 9))


def _bounds_of(effects: Effects) -> tuple[list[list[str]], list[str], list[str]]:
    """Return the columns of a table with a line per bound: name and bound, share of documents removed, and share of
    documents that break only this rule."""
    shown = effects.effects
    names = ["rule", *(effect.rule.name for effect in shown)]
    bounds = ["keeps", *(f"{'>=' if effect.side == 'min' else '<='} {effect.bound:g}" for effect in shown)]
    removed = ["removes", *_shares((effect.removed_now for effect in shown), effects.documents)]
    return [names, bounds], removed, ["this only", *_shares((effect.alone for effect in shown), effects.documents)]


def _values_of(effects: Effects, shown: Sequence[float]) -> list[list[str]]:
    """Return the columns of histograms and of percentiles at the ranks `shown`."""
    from curation.rules.effects import RANKS

    values = zip(RANKS, _columns(effect.percentiles for effect in effects.effects), strict=True)
    ranks = [[f"{rank:g}%", *column] for rank, column in values if rank in shown]
    return [["histogram", *map(histogram_line, effects.effects)], *ranks]


def _shares(numbers: Iterable[int], documents: int) -> list[str]:
    return [f"{number / max(documents, 1):.2%}" for number in numbers]


def print_groups(groups: Sequence[GroupEffects]) -> None:
    """Print, to standard output, a table for each group of documents that has separate rules, with a line per bound."""
    from curation.base.errors import counted

    others: dict[str, list[int]] = {}
    for group in groups:
        if group.effects is None:
            others.setdefault(group.column, []).append(group.documents)
            continue
        removed = f"{group.effects.removed:,} ({group.effects.removed / group.documents:.2%})"
        counts = f"{counted(group.documents, 'document')}, of which its rules on measures remove {removed}"
        print_line(printable_line(f"{group.column} {group.group}: {counts}"))
        if group.effects.effects:
            rules, removes, alone = _bounds_of(group.effects)
            table = [*rules, removes, alone, *_values_of(group.effects, GROUP_RANKS)]
            print_table(table, left=(0, 4), optional=(3, 5, 7, 6))
    for column, documents in others.items():
        counts = f"{counted(len(documents), 'group')} more: {counted(sum(documents), 'document')}"
        print_line(printable_line(f"{column}: {counts}"))


def _print_skipped(rules: Sequence[Rule]) -> None:
    if names := ", ".join(dict.fromkeys(rule.name for rule in rules if not rule.is_on_measures)):
        print_line(f"not measured, since they are on columns or patterns: {names}")


def stages_of_units(folder: str | Path) -> list[dict[str, Any]]:
    """Return the entries of a run's report for the stages that judge lines, paragraphs or sentences by measures."""
    from curation.results.finished.results import open_finished

    return [stage for stage in open_finished(folder).report["stages"] if stage.get("unit_rules")]


def print_units(stage: dict[str, Any]) -> None:
    """Print a table to standard output, with a line per bound: how many units break it, and their histogram."""
    from curation.rules.effects import histogram_of
    from curation.rules.tallies import Tally

    details, columns = stage["details"], [["rule"], ["keeps"], ["breaks"], ["cuts"], ["histogram"]]
    units = max(details["units"], 1)
    for rule in stage["unit_rules"]:
        for side, sign, beyond in (("min", ">=", "below"), ("max", "<=", "above")):
            if side in rule:
                tally = Tally(**{name: rule[name] for name in ("share", "bins", "counts")})
                drawn = bars_line(histogram_of(tally, rule[side]), side, rule[side])
                cut = details.get(f"cut_units/{rule['reason']}", 0)
                row = [
                    rule["reason"],
                    f"{sign} {rule[side]:g}",
                    f"{rule[beyond] / units:.2%}",
                    f"{cut / units:.2%}",
                    drawn,
                ]
                for column, cell in zip(columns, row, strict=True):
                    column.append(cell)
    share = f"{details['cut_units']:,} ({details['cut_units'] / units:.2%})"
    print_line(f"{stage['name']}: {details['units']:,} {stage['unit']}s, of which the rules cut {share}")
    print_table(columns, left=(0, 4))


def _columns(rows: Iterable[Sequence[float]]) -> list[list[str]]:
    """Return the columns of a table of numbers, as text."""
    return [list(column) for column in zip(*([_number(value) for value in row] for row in rows), strict=True)]


def print_table(columns: list[list[str]], left: Sequence[int] = (0,), optional: Sequence[int] = ()) -> None:
    """Print columns of text, aligned right, except the columns at `left`. Columns at `optional` are left out, in this
    order, until the table fits the terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    widths = [max(map(len, column)) for column in columns]
    shown = list(range(len(columns)))
    for number in optional:
        if sum(widths[k] + len(GAP) for k in shown) - len(GAP) > width:
            shown.remove(number)
    rows = list(zip(*(columns[k] for k in shown), strict=True))
    for line in aligned(rows, [place for place, k in enumerate(shown) if k in left]):
        print_line(line)


def histogram_line(effect: Effect) -> str:
    """Return the histogram of an effect as one character per bin, with the bound between two bins."""
    return bars_line(effect.histogram, effect.side, effect.bound)


def bars_line(histogram: Histogram, side: str, bound: float) -> str:
    """Return a histogram as one character per bin, with a bound ("min" or "max") between two bins."""
    blocks, line = (BLOCKS, BOUND) if _shows_blocks() else (ASCII_BLOCKS, ASCII_BOUND)
    counts, place = histogram.counts, histogram.bin_of(bound)
    top = max(int(counts.max()), 1)
    bars = [blocks[max(-(-int(count) * len(blocks) // top) - 1, 0)] if count else " " for count in counts]
    bars.insert(place if side == "min" else place + 1, line)
    return "".join(bars)


def _shows_blocks() -> bool:
    try:
        (BLOCKS + BOUND).encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def as_json(effect: Effect) -> dict[str, Any]:
    """Return an effect for programs; `docs/programs.md` lists the keys."""
    from curation.rules.effects import MOVES, RANKS

    return {
        "reason": effect.rule.name,
        "measures": list(effect.rule.measures),
        effect.side: effect.bound,
        "removed": effect.removed_now,
        "alone": effect.alone,
        "removed_if_moved": {
            f"{move:+.2f}": number for move, number in zip(MOVES, effect.removed, strict=True) if move
        },
        "percentiles": dict(zip(map(str, RANKS), effect.percentiles, strict=False)),
    }


def group_as_json(group: GroupEffects) -> dict[str, Any]:
    """Return the effects of a group for programs; `docs/programs.md` lists the keys."""
    entry: dict[str, Any] = {"column": group.column, "group": group.group, "documents": group.documents}
    if group.effects is not None:
        entry |= {"removed": group.effects.removed, "rules": [as_json(effect) for effect in group.effects.effects]}
    return entry


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


MEASURE = Command("measure", "measure documents, to choose thresholds", _add_measure, measure, resumes=True)
