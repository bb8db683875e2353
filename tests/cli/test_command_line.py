# SPDX-License-Identifier: Apache-2.0
"""What all commands share: one message for each mistake, options with one spelling, and three ways to speak."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from curation.cli import main, overlap
from curation.cli.groups import GROUPS
from curation.cli.options import SHARED
from curation.cli.parsing import EMPTY, Parser
from curation.stages.corpus import similarity
from tests.cli.test_cli import CURATE, curate, failed
from tests.models.tiny_files import write_static
from tests.runs import data_digests, files_below, made_texts, records_of, report_of

COMMANDS = {command.name: command for group in GROUPS for command in group.commands}
RUNNING = ("run", "demo", "measure", "embed", "tokenize")
READING = (*RUNNING[:1], "plan", "init", *RUNNING[2:], "train tokenizer", "train lm")
TRAINING = ("train tokenizer", "train classifier", "train lm")
WRITING = (*RUNNING, "init", "import-config", "check-overlap", "align", "ablate", *TRAINING, "merge", "split")
SHARED_OPTIONS = {  # which commands have them; `init` and `import-config` write a recipe and read none
    "--input": (*READING, "generate"),
    "--text-column": (*READING, "check-overlap", "align", "ablate", "train classifier"),
    "--output": (*WRITING, "plan", "generate"),
    "--work": ("run", "tokenize"),
    "--force": WRITING,
    "--engine": (*RUNNING, "plan", "check-overlap", "align", "warmup"),
    "--workers": (*RUNNING, "plan", "check-overlap", "warmup"),
    "--scheduler": RUNNING,
    "--force-disk": RUNNING,
    "--allow-empty": RUNNING,
    "--verbose": RUNNING,
    "--set": (*RUNNING, "plan", "warmup", "generate"),
    "--recipe": ("run", "plan", "measure", "tokenize"),
    "--allow-code": ("run", "plan", "measure", "tokenize", "warmup"),
    "--stages": ("run", "plan", "measure", "tokenize"),
    "--rules": ("run", "plan", "measure", "tokenize"),
    "--tokenizer": ("run", "plan", "tokenize", "inspect", "tokens", "check-overlap"),
    "--model": ("embed", "align", "check-overlap"),
    "--windows": ("embed", "align"),
    "--quiet": (*WRITING, "check-loader", "verify", "push", "warmup", "generate"),
    "--log": (*WRITING, "show", "compare", "check-loader", "verify", "push", "plan", "warmup", "generate"),
}
WRONG = [
    ("xyz", "unknown command 'xyz'; see curate --help"),
    ("train", "train needs one of: tokenizer"),
    ("train tokeniser -o x", "unknown command 'train tokeniser'; did you mean tokenizer?"),
    ("-o out run", "put options after the command: curate COMMAND -o; see curate --help"),
    ("run --out out", "run has no option --out; did you mean --output?"),
    ("run --zzz", "run has no option --zzz; see curate run --help"),
    ("run -x", "run has no option -x; see curate run --help"),
    ("run -i x -o", "run --output/-o: expected one argument; see curate run --help"),
    ("run a.yaml b.yaml -o out", "run: unexpected 'b.yaml'; see curate run --help"),
    ("run default made.jsonl -o out", "run: unexpected 'made.jsonl'; give inputs with --input"),
    ("run short.yaml --recipe other.yaml -o out", "two recipes: short.yaml and --recipe other.yaml; give one"),
    ("plan -i made.jsonl --workers -1", "workers must be 0 (chosen for this machine) or more"),
    ("run -o out --log xml", "run --log: unknown form 'xml'; expected one of text, json; see curate run --help"),
    (
        "run -o out --allow-code ./mine.py",
        "run --allow-code: './mine.py' is not a module name; write it as in an import",
    ),
    ("run -o out -i made.jsonl --set stages", "run --set: expected PATH=VALUE without spaces, such as seed=3"),
    ("run -o out -i made.jsonl --set =3", "setting '': expected PATH=VALUE, such as"),
    ("plan -i made.jsonl --set output.shufle=true", "shuffle"),
    ("plan -i made.jsonl --set stages.langage.keep=[en]", "langage"),
    ("plan -i made.jsonl --text-column id", "text_column and id_column are both 'id'"),
    ("measure -o out", "measure needs an input: give a file, folder or glob, or --input"),
    ("train classifier -o m.bin", "train classifier needs two labels or more, not 0"),
    ("train classifier -o m.bin --label a x.jsonl", "train classifier needs two labels or more, not 1"),
    ("train classifier -o m.bin --label a x --label b", "train classifier --label b: PATH is missing"),
    ("check-overlap --test a", "give training texts as --train PATH..., or an index as --spans INDEX"),
    ("check-overlap --train made.jsonl --test made.jsonl -o x.csv", "expected a name that ends in .json, .arrow"),
    ("check-overlap --train made.jsonl --test made.jsonl --threshold 1", "threshold must be at least 0 and below 1"),
    ("run -i made.jsonl -o out --lease-seconds 60", "--lease-seconds is for --array-task, which is missing"),
    ("check-overlap --train made.jsonl --test made.jsonl --cosine 0.9", "--cosine is for --model, which is missing"),
    ("check-overlap --train made.jsonl --test made.jsonl --cosine 0", "--cosine is for --model, which is missing"),
    ("check-overlap --train made.jsonl --test made.jsonl --whole-documents", "--whole-documents is for --model"),
    ("align made.jsonl -o x.jsonl", "align: RIGHT is missing"),
    ("align made.jsonl made.jsonl -o x.csv", "expected a name that ends in .jsonl, .arrow, .parquet"),
    ("align made.jsonl made.jsonl -o made.jsonl", "made.jsonl exists already. Give another --output, or --force"),
    ("align made.jsonl made.jsonl -o x.jsonl --model m --column v", "and --model computes them; give one of them"),
    ("align made.jsonl made.jsonl -o x.jsonl --windows 1", "--windows is for --model, which is missing"),
    ("align made.jsonl made.jsonl -o x.jsonl --threshold 2", "threshold must be above 0 and at most 1, not 2"),
    ("align made.jsonl made.jsonl -o x.jsonl --column words", "column 'words'"),
    ("align made.jsonl made.jsonl -o x.jsonl --model no/model", "there is no folder no/model"),
    ("train lm made.jsonl -o m.arpa --prune 0,x", "train lm --prune: expected a whole number, not 'x'"),
    ("split a -o out --max-bytes 0", "--max-bytes must be above 0, not 0"),
    ("recipes show", "recipes show needs the name of a recipe: "),
    (
        "completion tcsh",
        "completion: unknown shell 'tcsh'; expected one of bash, zsh, fish; see curate completion --help",
    ),
    ("init none.jsonl", "input none.jsonl does not exist"),
    ("init made.jsonl -o short.yaml", "short.yaml exists already. Give another --output, or --force"),
    ("init made.jsonl -o out", "init --output out is not a recipe; expected a name ending in .yaml"),
    ("init made.jsonl --text-column body", "no field 'body'"),
    ("init numbers.jsonl", "none of the columns text, content"),
]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of([text.strip("\0 \n") or "one" for text in made_texts(80)]))
    (tmp_path / "numbers.jsonl").write_text('{"n": 1, "m": 2.5}\n')
    (tmp_path / "short.yaml").write_text(
        "stages: [{kind: filter, rules: [{measure: words, min: 5}]}]\noutput: {megatron: {splits_string: '1,0,0'}}"
    )
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, and files beside it."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "made.jsonl").write_bytes(records_of([text.strip("\0 \n") or "one" for text in made_texts(80)]))
    (folder / "quiz.jsonl").write_text('{"text": "how many legs has a spider"}\n')
    command = ["run", "-i", str(folder / "made.jsonl"), "--stages", "exact_dedup", "-o", str(folder / "out"), "--quiet"]
    assert main(command) == 0
    return folder


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(("line", "told"), WRONG, ids=[line for line, _ in WRONG])
def test_a_mistake_is_one_message(corpus: Path, capsys: pytest.CaptureFixture[str], line: str, told: str):
    before = files_below(corpus.parent)
    assert told in failed(capsys, *line.split())
    assert files_below(corpus.parent) == before


@pytest.mark.parametrize("line", ["runn --log json", "run -i none.jsonl -o out --log=json", "run --log json"])
def test_a_mistake_is_an_event_where_events_were_asked_for(corpus: Path, capsys: pytest.CaptureFixture[str], line: str):
    code, out, err = curate(capsys, *line.split())
    (event,) = events(err)
    assert (code, out, event["event"], event["exit_code"]) == (2, "", "error", 2) and event["text"]


@pytest.mark.parametrize("option", SHARED_OPTIONS)
def test_shared_options_are_where_they_have_a_meaning(option: str):
    having = {
        name
        for name, command in COMMANDS.items()
        for action in Parser(command).actions
        if option in action.option_strings
    }
    assert having == {*SHARED_OPTIONS[option]}


def test_every_shared_option_is_in_the_table_above():
    assert {flags[0] for flags, _ in SHARED.values()} == SHARED_OPTIONS.keys()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_options_have_a_help_and_no_second_meaning(command: Any):
    for action in Parser(command).actions:
        assert action.help, action
        shared = [flags for flags, _ in SHARED.values() if {*flags} & {*action.option_strings}]
        assert shared in ([], [tuple(action.option_strings)])


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_an_empty_value_is_one_message(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    """Of any option and argument: it must not count as not given."""
    monkeypatch.chdir(tmp_path)
    actions = [action for action in Parser(command).actions if action.nargs != 0]
    flags = [action.option_strings[0] for action in actions if action.option_strings]
    needed = [
        word for action in actions if action.required for flag in action.option_strings[:1] for word in (flag, "1")
    ]
    places = sum(2 if action.nargs == 2 else 1 for action in actions if not action.option_strings)
    lines = [([flag, ""], f" {flag}") for flag in flags] + [([f"{flag}="], f" {flag}") for flag in flags]
    for words, name in lines + ([([*needed, *[""] * places], ": ")] if places else []):
        assert main([*command.name.split(), *words]) == 2, words
        message = capsys.readouterr().err
        assert message.startswith(f"curate: {command.name}{name}") and message.count("\n") == 1, words
        assert message.endswith(EMPTY + "\n"), words
    assert not files_below(tmp_path)


def test_a_recipe_may_stand_behind_the_options(corpus: Path, capsys: pytest.CaptureFixture[str]):
    first = curate(capsys, "plan", "--full", "short.yaml", "-i", "made.jsonl")
    assert first[0] == 0 and "words" in first[1]
    for words in (["-i", "made.jsonl", "--set", "seed=1"], ["--recipe", "short.yaml", "-i", "made.jsonl"]):
        if "--recipe" in words:
            assert curate(capsys, "plan", *words, "--full") == first
    assert curate(capsys, "plan", "-i", "made.jsonl", "--text-column", "text", "short.yaml")[0] == 0


def test_settings_change_a_recipe(corpus: Path, capsys: pytest.CaptureFixture[str]):
    command = ("plan", "--full", "-i", "made.jsonl", "--stages", "exact_dedup,filter", "--rules", "fineweb")
    settings = ("--set", "output.formats=[]", "--tokenizer", "cl100k_base", "--set", "tokenizer.append_eod=false")
    code, out, err = curate(capsys, *command, *settings)
    assert (code, err) == (0, "")
    found = yaml.safe_load(out)
    assert [stage["kind"] for stage in found["stages"]] == ["exact_dedup", "filter"]
    assert "fineweb" in str(found["stages"][1]["rules"]) and found["output"]["formats"] == []
    assert (found["tokenizer"]["name"], found["tokenizer"]["append_eod"]) == ("cl100k_base", False)


def test_text_column_is_of_every_input(corpus: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("a", "b"):
        Path(f"{name}.jsonl").write_text('{"text": "no", "story": "one two three four five six"}\n')
    Path("two.yaml").write_text("{input: [{path: a.jsonl}, {path: b.jsonl}], stages: [], output: {formats: []}}")
    for command in (("plan", "--full", "two.yaml"), ("plan", "--full", "two.yaml", "-i", "a.jsonl", "b.jsonl")):
        found = yaml.safe_load(curate(capsys, *command, "--text-column", "story")[1])
        assert [entry["text_column"] for entry in found["input"]] == ["story", "story"]
    assert curate(capsys, "run", "two.yaml", "--text-column", "story", "-o", "out")[0] == 0
    assert report_of(Path("out"))["bytes"]["read"] == 2 * len("one two three four five six")


@pytest.mark.parametrize("name", ["measure", "tokenize"])
def test_commands_that_run_take_the_options_of_a_run(corpus: Path, capsys: pytest.CaptureFixture[str], name: str):
    command = (name, "made.jsonl", "--engine", "cpu", "--workers", 1, "--scheduler", "threads", "-o")
    code, _, err = curate(capsys, *command, "one")
    assert code == 0 and "engine cpu (asked for); 1 worker" in err
    assert curate(capsys, name, "-i", "made.jsonl", "--quiet", "-o", "two") == (0, "", "")
    assert data_digests(Path("one")) == data_digests(Path("two"))
    assert curate(capsys, *command, "three", "--set", "input=[{path: numbers.jsonl, text_column: n}]")[0] == 3


def test_demo_takes_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    assert "shuffle" in failed(capsys, "demo", "--set", "output.shufle=true")
    assert files_below(tmp_path) == []


# Three ways to speak


def test_quiet_prints_errors_and_warnings(corpus: Path, capsys: pytest.CaptureFixture[str]):
    assert curate(capsys, "run", "short.yaml", "-i", "made.jsonl", "-o", "out", "--quiet") == (0, "", "")
    Path("cjk.jsonl").write_bytes(records_of(["漢字" * 40, "漢字" * 50]))
    command = ("run", "short.yaml", "-i", "cjk.jsonl", "-o", "none", "--set", "stages.filter.words.min=1")
    code, out, err = curate(capsys, *command, "--quiet")
    assert (code, out, err.count("\n")) == (0, "", 1) and err.startswith("warning: filter: ")
    Path("empty.jsonl").write_text("")
    code, out, err = curate(capsys, "run", "-i", "empty.jsonl", "-o", "empty", "--quiet")
    assert (code, out, err) == (3, "", "curate: nothing is kept: the input has no documents\n")
    code, out, err = curate(capsys, "run", "-i", "empty.jsonl", "-o", "empty2", "--quiet", "--allow-empty")
    assert (code, out, err) == (0, "", "warning: nothing is kept: the input has no documents\n")


def test_plain_lines_have_no_bars(corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("curation.base.system.progress.choose_progress", lambda: pytest.fail("bars may be drawn"))
    code, out, err = curate(capsys, "run", "short.yaml", "-i", "made.jsonl", "-o", "out", "--log", "text")
    assert code == 0 and "kept" in out and "read + filter: 1 task" in err


def test_a_run_as_json(corpus: Path, capsys: pytest.CaptureFixture[str]):
    command = ("run", "short.yaml", "-i", "made.jsonl", "-o", "out", "--log", "json")
    code, out, err = curate(capsys, *command)
    told = events(err)
    assert code == 0 and {event["event"] for event in told} == {"progress", "phase_began", "phase_ended"}
    began, ended = ([e for e in told if e["event"] == name] for name in ("phase_began", "phase_ended"))
    assert [(e["phase"], e["tasks"]) for e in began] == [(e["phase"], e["tasks"]) for e in ended]
    assert all(e["seconds"] >= 0 for e in ended) and all(re.fullmatch(r"\d{4}-.*\+00:00", e["time"]) for e in told)
    (result,) = events(out)
    report = report_of(Path("out"))
    assert (result["event"], result["command"], result["exit_code"]) == ("result", "run", 0)
    assert result["documents"] == report["documents"] and result["tokens"] == report["tokens"]["count"] > 0
    assert result["stages"] == [
        {"name": "filter", "documents_out": report["documents"]["kept"], "reasons": report["stages"][0]["reasons"]}
    ]
    (again,) = events(curate(capsys, *command)[1])
    assert again == result | {"already_complete": True, "time": again["time"]} and not result["already_complete"]


def test_warnings_and_an_empty_run_as_json(corpus: Path, capsys: pytest.CaptureFixture[str]):
    Path("empty.jsonl").write_text("")
    code, out, err = curate(capsys, "run", "-i", "empty.jsonl", "-o", "empty", "--log", "json")
    last = events(err)[-1]
    assert (code, last["event"], last["exit_code"]) == (3, "error", 3) and "nothing is kept" in last["text"]
    assert events(out)[0]["exit_code"] == 3
    code, out, err = curate(capsys, "run", "-i", "empty.jsonl", "-o", "e2", "--log", "json", "--allow-empty", "--quiet")
    (warning,), (result,) = events(err), events(out)
    assert (code, warning["event"], result["exit_code"]) == (0, "warning", 0) and "nothing is kept" in warning["text"]


def write_config(path: Path) -> Path:
    """A configuration of data-juicer."""
    path.write_text("process: [{words_num_filter: {min_num: 3}}]")
    return path


RESULTS: dict[str, tuple[Callable[[Path], list[object]], set[str]]] = {
    "plan": (
        lambda at: ["-i", at / "made.jsonl"],
        {"recipe", "stages", "files", "bytes", "kinds", "documents", "text_bytes", "sample", "kept", "tokens"}
        | {"seconds", "workers", "memory", "disk", "not_counted", "special_tokens", "warnings"}
        | {"documents_between", "tokens_between", "device_time", "processors", "processor_share"},
    ),
    "check-loader": (lambda at: [at / "out", "--length", 64], {"folder", "passed", "forms"}),
    "verify": (lambda at: [at / "out"], {"folder", "problems", "outputs", "has_moved"}),
    "check-overlap": (
        lambda at: ["--train", at / "out", "--test", at / "quiz.jsonl"],
        {"output", "sets", "documents", "bytes", "rejected"},
    ),
    "align": (
        lambda at: [at / "made.jsonl", at / "quiz.jsonl", "--model", write_static(Path("vectors")), "-o", "p.jsonl"],
        {"output", "pairs", "documents"},
    ),
    "measure": (
        lambda at: [at / "made.jsonl", "--names", "words", "-o", "measured"],
        {"output", "report", "already_complete", "documents", "bytes", "seconds", "warnings", "tokens", "stages"}
        | {"ranks", "percentiles", "rules", "units", "groups"},
    ),
    "embed": (
        lambda at: [at / "made.jsonl", "--model", write_static(Path("vectors")), "-o", "embedded"],
        {"output", "report", "already_complete", "documents", "bytes", "seconds", "warnings", "tokens", "stages"},
    ),
    "train tokenizer": (
        lambda at: [at / "made.jsonl", "-o", "t/tokenizer.json", "--vocabulary", 300],
        {"output", "vocabulary", "texts", "bytes", "rejected", "tokens_per_byte"},
    ),
    "train lm": (
        lambda at: [at / "made.jsonl", "-o", "model.arpa", "--order", 2],
        {"output", "ngrams", "pruned", "discounts", "fallback", "documents", "sentences", "words", "rejected", "unit"},
    ),
    "merge": (lambda at: [at / "out/tokens/made_00000_text_document", "-o", "merged/all"], {"pairs"}),
    "split": (
        lambda at: [at / "out/tokens/made_00000_text_document", "-o", "cut/part", "--max-bytes", 4000],
        {"pairs"},
    ),
    "init": (lambda at: [at / "made.jsonl"], {"output", "inputs", "unused", "faults"}),
    "import-config": (
        lambda at: [write_config(Path("process.yaml"))],
        {"output", "tool", "entries", "translated", "differences", "not_translated"},
    ),
    "warmup": (lambda at: ["default"], {"folder", "compiled"}),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results_as_json_have_the_keys_of_the_page(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
):
    monkeypatch.chdir(tmp_path)
    arguments, keys = RESULTS[name]
    code, out, err = curate(capsys, *name.split(), *arguments(finished), "--log", "json")
    (result,) = events(out)
    assert (code, result["command"]) == (0, name) and events(err) is not None
    assert result.keys() == {"event", "time", "command", "exit_code"} | keys
    page = (Path(__file__).resolve().parents[2] / "docs" / "programs.md").read_text("utf-8")
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_verify_names_problems_in_each_way(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    problem = "x has changed"
    monkeypatch.setattr("curation.results.finished.verify.verify", lambda folder: [problem])
    assert curate(capsys, "verify", finished / "out") == (1, f"problem: {problem}\n", "")
    assert curate(capsys, "verify", finished / "out", "--quiet") == (1, "", f"warning: {problem}\n")
    code, out, err = curate(capsys, "verify", finished / "out", "--log", "json")
    assert code == 1 and events(out)[0]["problems"] == [problem] and events(err)[0]["text"] == problem


@pytest.mark.slow("messages and signals are also events of --log json")
def test_logs_and_signals_are_events_too(corpus: Path):
    os.mkfifo(corpus.parent / "pipe.jsonl")
    options = ["run", "short.yaml", "-i", ".", "-o", "out", "--log", "json"]
    done = subprocess.run([*CURATE, *options], capture_output=True, text=True, check=False)
    told = events(done.stderr)
    assert any(event["event"] == "warning" and "pipe.jsonl is skipped" in event["text"] for event in told)
    code = """
import os, signal, sys
from curation.cli import runs
runs.prepare_memory = lambda: os.kill(os.getpid(), signal.SIGTERM)
from curation.__main__ import command
sys.exit(command())
"""
    stopped = subprocess.run([sys.executable, "-c", code, *options], capture_output=True, text=True, check=False)
    (event,) = events(stopped.stderr)
    assert (stopped.returncode, event["event"]) == (128 + signal.SIGTERM, "error") and "interrupted" in event["text"]


def test_commands_that_look_write_nothing(finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    monkeypatch.chdir(finished)
    before = {name: (finished / name).stat().st_mtime_ns for name in files_below(finished)}
    for command in (
        ["plan", "-i", "made.jsonl"], ["inspect", "out/tokens/made_00000_text_document"], ["verify", "out"],
        ["recipes"], ["recipes", "--schema"], ["completion", "zsh"], ["--help"],
    ):  # fmt: skip
        assert curate(capsys, *command)[0] == 0
    assert {name: (finished / name).stat().st_mtime_ns for name in files_below(finished)} == before


def test_choices_of_comparisons_are_those_of_the_stages():
    """They are repeated, since `--help` may load no stage."""
    assert {*overlap.COMPARISONS} == {*similarity.COMPARISONS}
