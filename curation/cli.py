# SPDX-License-Identifier: Apache-2.0
"""`curate`: the command line. It only parses, calls and prints; imports wait until a command needs them.

Exit codes: 0 done, 1 the run failed, 2 wrong use, recipe or input, 3 done and nothing kept, 129, 130 and 143 ended by
SIGHUP, SIGINT and SIGTERM.
"""

from __future__ import annotations

import argparse
import errno
import gc
import signal
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curation import __version__, interrupts
from curation.errors import CurationError, TokenizerError
from curation.terminal import complain, protect_streams, say, stdout_is_lost

if TYPE_CHECKING:
    from curation.packing.tokenization import Tokenizer
    from curation.recipe import Recipe
    from curation.running.runner import Finished

NOTHING_KEPT = 3  # the exit code
EXIT_CODES = (
    "exit codes: 0 done; 1 the run failed; 2 wrong use, recipe or input; 3 done, but no document is kept; "
    "129, 130, 143 ended by SIGHUP, SIGINT, SIGTERM, and can be resumed"
)
OBJECTS_BETWEEN_COLLECTIONS = 100_000
ENGINES = ("auto", "gpu", "cpu")
INPUT_HELP = (
    "file, folder or glob, each an input of its own: a glob in quotes is one input, without quotes the shell makes "
    "one of every file"
)
TEXT_COLUMN_HELP = "default: text, content, body, ..."


def command() -> int:
    """`main` in a process of its own. Some 200,000 objects of the libraries live as long as it does; looking among them
    for garbage took 0.1 s while they were loaded and 0.3 s at the end."""
    protect_streams()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    code = main()
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    options = _parser().parse_args(arguments)
    if "command" not in options:
        _parser().print_help()
        return 2
    try:
        try:
            code = int(options.command(options))
        except Exception:
            interrupts.check()  # of a signal in the middle of other people's code
            raise
        sys.stdout.flush()
        return code
    except CurationError as error:
        complain(f"curate: {error}")
        return error.exit_code
    except OSError as error:  # a full disk, a folder that may not be written
        complain(f"curate: {error}{_room_wanted(error, options)}")
        return 1
    except KeyboardInterrupt as error:
        complain(f"curate: interrupted{_goes_on(options)}")
        return getattr(error, "exit_code", 128 + signal.SIGINT)


def _room_wanted(error: OSError, options: argparse.Namespace) -> str:
    """What to do about a disk or a quota that is full; empty for any other error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or "output" not in options:
        return ""
    return f"; make room for the output, {options.output}{_goes_on(options)}"


def _goes_on(options: argparse.Namespace) -> str:
    """What an interrupted command can be told to do; empty where it would begin anew."""
    if options.command not in (_run, _tokenize, _measure, _demo):
        return ""
    if not getattr(options, "force", False):
        return "; the same command goes on from here"
    from curation.reading.paths import RUN_PLAN, RUN_REPORT

    folder = Path(options.output)
    if (folder / RUN_REPORT).exists() or not folder.joinpath(*RUN_PLAN).exists():
        return ""  # --force has deleted nothing yet, or not written what the new run is
    return "; the same command without --force goes on from here"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="curate",
        description="Raw text to training data: curated, deduplicated, tokenised, packed.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"gpu-pipeline {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    run = commands.add_parser("run", help="run a recipe")
    _add_recipe(run)
    run.add_argument("--output", "-o", required=True, metavar="DIR", help="folder of the run")
    run.add_argument("--engine", choices=ENGINES, default="auto")
    run.add_argument("--force", action="store_true", help="delete what an earlier run left in DIR")
    run.add_argument("--workers", type=int, default=0, metavar="N", help="tasks at once (default: as many as fit)")
    run.add_argument(
        "--scheduler", default="threads", metavar="S", help="threads, processes, or the address of a Dask scheduler"
    )
    _add_allow_empty(run)
    run.set_defaults(command=_run)

    _add_measure(commands)
    _add_token_commands(commands)

    demo = commands.add_parser("demo", help="the default recipe on the documentation found on this machine")
    demo.add_argument("--output", "-o", default="demo", metavar="DIR")
    demo.add_argument("--engine", choices=ENGINES, default="auto")
    demo.set_defaults(command=_demo)

    plan = commands.add_parser("plan", help="print what a recipe would do; reads no document")
    _add_recipe(plan)
    plan.set_defaults(command=_plan)

    inspect = commands.add_parser("inspect", help="decode a .bin/.idx pair")
    inspect.add_argument("prefix", help="path of the pair, with or without .bin or .idx")
    inspect.add_argument("--documents", type=int, default=3, metavar="N", help="how many to show")
    inspect.add_argument("--tokenizer", default="", metavar="NAME", help="default: the one in _meta/manifest.json")
    inspect.set_defaults(command=_inspect)

    verify = commands.add_parser("verify", help="re-read a finished run and check everything")
    verify.add_argument("folder", metavar="DIR")
    verify.set_defaults(command=_verify)

    recipes = commands.add_parser("recipes", help="list the shipped recipes, or show one")
    recipes.add_argument("action", nargs="?", choices=["list", "show"], default="list")
    recipes.add_argument("name", nargs="?", default="")
    recipes.set_defaults(command=_recipes)

    doctor = commands.add_parser("doctor", help="engines, versions, devices, and a parity check")
    doctor.set_defaults(command=_doctor)
    return parser


def _add_measure(commands: Any) -> None:
    measure = commands.add_parser("measure", help="documents as they are, with measures to choose thresholds by")
    _add_input(measure)
    measure.add_argument("--output", "-o", required=True, metavar="DIR", help="folder of the run")
    measure.add_argument("--names", default="", metavar="A,B", help="of curation.Measure (default: all)")
    measure.add_argument("--engine", choices=ENGINES, default="auto")
    measure.add_argument("--text-column", default="", metavar="NAME", help=TEXT_COLUMN_HELP)
    measure.add_argument("--force", action="store_true", help="delete what an earlier run left in DIR")
    _add_allow_empty(measure)
    measure.set_defaults(command=_measure)


def _add_token_commands(commands: Any) -> None:
    tokenize = commands.add_parser("tokenize", help="documents as they are to training data, without any stage")
    tokenize.add_argument("input", nargs="+", metavar="INPUT", help=INPUT_HELP)
    tokenize.add_argument("--output", "-o", required=True, metavar="DIR", help="folder of the run")
    tokenize.add_argument("--recipe", default="", metavar="RECIPE", help="whose tokenizer and output settings to use")
    tokenize.add_argument("--tokenizer", default="", metavar="NAME", help="gpt2, tokenizer.json, .model, hub:ORG/NAME")
    tokenize.add_argument(
        "--formats", default="", metavar="A,B", help="of megatron, token_shards, blocks, chunks, packed"
    )
    tokenize.add_argument("--text-column", default="", metavar="NAME", help=TEXT_COLUMN_HELP)
    tokenize.add_argument("--force", action="store_true", help="delete what an earlier run left in DIR")
    _add_allow_empty(tokenize)
    tokenize.set_defaults(command=_tokenize)

    _add_training(commands)

    merge = commands.add_parser("merge", help="join .bin/.idx pairs")
    merge.add_argument(
        "prefixes", nargs="+", metavar="PREFIX", help="pairs, by prefix or file, in the order of the result"
    )
    split = commands.add_parser("split", help="cut a .bin/.idx pair between documents")
    split.add_argument("prefixes", nargs=1, metavar="PREFIX")
    for parser in (merge, split):
        parser.add_argument("--output", "-o", required=True, metavar="STEM", help="gives STEM_00000_text_document")
        parser.add_argument(
            "--max-bytes", type=int, default=sys.maxsize, metavar="N", required=parser is split, help="of a .bin"
        )
        parser.add_argument("--force", action="store_true", help="replace pairs of that name")
        parser.set_defaults(command=_repack)


def _add_training(commands: Any) -> None:
    train = commands.add_parser("train-tokenizer", help="a tokenizer of your own documents")
    _add_input(train)
    train.add_argument("--output", "-o", required=True, metavar="FILE", help="tokenizer.json, for tokenizer.name")
    train.add_argument("--vocabulary", type=int, default=32_000, metavar="N", help="tokens at most (default: 32000)")
    train.add_argument("--kind", default="bpe", metavar="KIND", help="bpe (default; of bytes), unigram or wordpiece")
    train.add_argument(
        "--special", default="", metavar="A,B", help="special tokens (default: <bos>,<eos>,<pad>,<unk>,<mask>)"
    )
    train.add_argument("--text-column", default="", metavar="NAME", help=TEXT_COLUMN_HELP)
    train.add_argument("--force", action="store_true", help="replace FILE and the tokenizer_config.json beside it")
    train.set_defaults(command=_train_tokenizer)


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", default="", metavar="RECIPE", help="YAML file or name (default: default)")
    _add_input(parser, required=False)


def _add_input(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument(
        "--input", "-i", nargs="+", action="extend", default=[], metavar="PATH", help=INPUT_HELP, required=required
    )


def _add_allow_empty(parser: argparse.ArgumentParser) -> None:
    told = f"exit with 0, not {NOTHING_KEPT}, where the run keeps no document"
    parser.add_argument("--allow-empty", action="store_true", help=told)


def _recipe(options: argparse.Namespace) -> Recipe:
    """The recipe of the command line; `--input` replaces its inputs."""
    from curation.errors import RecipeError
    from curation.recipe import DEFAULT_RECIPE, check_readable, load_recipe

    for path in options.input:
        if path.lower().endswith((".yaml", ".yml")):
            raise RecipeError(f"{path} is a recipe: put it before --input")
    recipe = load_recipe(options.recipe or DEFAULT_RECIPE, options.input or None)
    check_readable(recipe)  # `plan` runs nothing
    return recipe


def _load_within_limits() -> None:
    """Before a command that runs a recipe loads the libraries: OutOfMemoryError where memory is too short for them, and
    what they read while they are loaded."""
    from curation.running.resources import check_room, read_limits, settle_allocators

    check_room(read_limits(), loaded=False)
    settle_allocators()


def _run_recipe(recipe: Recipe, folder: str, **settings: Any) -> Finished:
    """Runs a recipe in sight of the user, and prints what came of it."""
    from curation.running.progress import choose_progress
    from curation.running.report import print_funnel
    from curation.running.runner import run

    finished = run(recipe, folder, progress=choose_progress(), **settings)
    if finished.already_complete:
        say(f"already complete: {folder}")
    else:
        print_funnel(finished.report)
        say(f"{finished.report['seconds']:.1f} s; everything is in {folder}/, the counts in {folder}/report.json")
    return finished


def _exit_code(finished: Finished, options: argparse.Namespace) -> int:
    """NOTHING_KEPT where no document is kept, after the likely cause on standard error; 0 for any other run."""
    if not finished.nothing_kept or getattr(options, "allow_empty", False):
        return 0
    complain(f"curate: {finished.nothing_kept}")
    return NOTHING_KEPT


def _run(options: argparse.Namespace) -> int:
    _load_within_limits()
    settings = {name: getattr(options, name) for name in ("engine", "force", "workers", "scheduler")}
    return _exit_code(_run_recipe(_recipe(options), options.output, **settings), options)


def _tokenize(options: argparse.Namespace) -> int:
    _load_within_limits()
    from curation.recipe import as_builtins, convert_recipe, load_recipe

    base = as_builtins(load_recipe(options.recipe)) if options.recipe else {}
    tokenizer, output = base.get("tokenizer", {}), base.get("output", {}) | {"index": False}
    if options.tokenizer:
        tokenizer = tokenizer | {"name": options.tokenizer}
    if options.formats:
        output = output | {"formats": _listed(options.formats)}
    content = {"name": "tokenize", "input": _inputs(options), "stages": [], "tokenizer": tokenizer, "output": output}
    return _exit_code(_run_recipe(convert_recipe(content, "tokenize"), options.output, force=options.force), options)


def _inputs(options: argparse.Namespace) -> list[dict[str, Any]]:
    return [{"path": path, "text_column": options.text_column} for path in options.input]


def _listed(names: str) -> list[str]:
    """What stands between commas."""
    return [name.strip() for name in names.split(",")]


def _measure(options: argparse.Namespace) -> int:
    _load_within_limits()
    from curation.recipe import convert_recipe
    from curation.running.percentiles import print_percentiles
    from curation.stages.base import added_columns

    stage = {"kind": "measure", "names": _listed(options.names) if options.names else []}
    content = {"name": "measure", "input": _inputs(options), "stages": [stage], "output": {"formats": []}}
    recipe = convert_recipe(content, "measure")
    finished = _run_recipe(recipe, options.output, engine=options.engine, force=options.force)
    print_percentiles(Path(options.output), finished.report["documents"]["kept"], added_columns(recipe.stages))
    return _exit_code(finished, options)


def _train_tokenizer(options: argparse.Namespace) -> int:
    _load_within_limits()
    from curation.errors import counted
    from curation.packing.tokenizer_training import SPECIAL, train_tokenizer
    from curation.running.report import tokenizer_warning

    interrupts.begin_writing()
    trained = train_tokenizer(
        _inputs(options),
        options.output,
        vocabulary=options.vocabulary,
        kind=options.kind,
        special=_listed(options.special) if options.special else SPECIAL,
        force=options.force,
        progress=sys.stderr.isatty(),
    )
    tokenizer, size = trained.tokenizer, f"{trained.bytes / 1e6:,.2f} MB"
    say(f"{trained.path}: {counted(tokenizer.vocabulary, 'token')}, of {counted(trained.texts, 'text')}, {size}")
    say(f"{trained.tokens_per_byte:.3f} tokens per byte of a sample of them")
    if trained.rejected:
        say(f"warning: passed over {counted(trained.rejected, 'record')}, which cannot be read as documents")
    if tokenizer.note:
        say(f"warning: {tokenizer_warning(tokenizer)}")
    return 0


def _repack(options: argparse.Namespace) -> int:
    from curation.errors import RecipeError, counted
    from curation.packing.repack import repack

    if options.max_bytes < 1:
        raise RecipeError(f"--max-bytes must be above 0, not {options.max_bytes}")
    interrupts.begin_writing()
    for pair in repack(options.prefixes, options.output, options.max_bytes, force=options.force):
        counts = (counted(pair.documents, "document"), counted(pair.tokens, "token"), counted(pair.bytes, "byte"))
        say(f"{pair.prefix}: {', '.join(counts)}")
    return 0


def _demo(options: argparse.Namespace) -> int:
    _load_within_limits()
    from curation.demo import prepare_corpus
    from curation.files import local_output
    from curation.reading.inputs import Input
    from curation.recipe import DEFAULT_RECIPE, load_recipe

    folder = local_output(options.output)
    interrupts.begin_writing()
    corpus, told = prepare_corpus(folder)
    say(told)
    recipe = load_recipe(DEFAULT_RECIPE, Input(path=str(corpus), name="documentation"))
    out = folder / "out"
    if code := _exit_code(_run_recipe(recipe, str(out), engine=options.engine), options):
        return code
    say(
        f"\nNext: curate inspect {out}/tokens/documentation_00000_text_document\n"
        f"      curate verify {out}\n"
        f"      curate run --input 'your/*.jsonl' --output DIR"
    )
    return 0


def _plan(options: argparse.Namespace) -> int:
    import yaml

    from curation.errors import counted
    from curation.packing.tokenization import load_tokenizer
    from curation.reading.paths import find_files
    from curation.recipe import as_builtins

    recipe = _recipe(options)
    files = find_files(recipe.input)
    if recipe.output.formats:
        load_tokenizer(recipe.tokenizer)  # which a run refuses at once
    named = enumerate(zip(recipe.stage_names, recipe.stages, strict=True), 1)
    chain = ["\n#      ".join([f"# {number}. {name}", *stage.explain()]) for number, (name, stage) in named]
    say(yaml.safe_dump(as_builtins(recipe), sort_keys=False, allow_unicode=True), end="")
    say("\n".join(["# the chain", *chain]))
    say(f"# {counted(len(files), 'file')}, {sum(max(file.bytes, 0) for file in files):,} bytes")
    return 0


def _inspect(options: argparse.Namespace) -> int:
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
        say(tokenizer.decode(ids) if tokenizer else " ".join(map(str, ids[:200].tolist())))
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


def _verify(options: argparse.Namespace) -> int:
    from curation.files import read_json
    from curation.packing.blends import META
    from curation.running.moved import meta_of_today
    from curation.running.verify import verify

    problems = verify(options.folder)
    for problem in problems:
        say(f"wrong: {problem}")
    if not problems:
        content = read_json(Path(options.folder) / "report.json")
        say(f"{options.folder}: {len(content['outputs'])} outputs, all as they were written")
        if meta_of_today(Path(options.folder).resolve(), content):
            say(
                f"The folder has moved, the paths in {options.folder}/{META}/ point elsewhere: the command that made "
                f"the run, with --output {options.folder}, writes them anew"
            )
    return 1 if problems else 0


def _recipes(options: argparse.Namespace) -> int:
    from curation.errors import RecipeError, nearest
    from curation.recipe import shipped_recipes

    shipped = shipped_recipes()
    if options.action == "list":
        for name, text in shipped.items():
            say(f"{name:<20}{_first_sentence(text)}")
        return 0
    if not options.name:
        raise RecipeError(f"give the name of a recipe to show: {', '.join(shipped)}")
    if options.name not in shipped:
        raise RecipeError(f"no recipe named {options.name!r}{nearest(options.name, shipped)}")
    say(shipped[options.name], end="")
    return 0


def _first_sentence(text: str) -> str:
    """Of the comment that a recipe begins with."""
    comment = " ".join(
        line.removeprefix("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines())
    )
    return comment.partition(". ")[0].removesuffix(".") + "."


def _doctor(options: argparse.Namespace) -> int:
    from curation.doctor import diagnose

    lines, sound = diagnose()
    say("\n".join(lines))
    return 0 if sound else 1
