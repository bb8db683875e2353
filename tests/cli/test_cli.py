# SPDX-License-Identifier: Apache-2.0
"""`curate`: exit codes 0, 1, 2, 3 and 130, one message on standard error, results on standard output, a quick start."""

import argparse
import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from curation.cli import main
from curation.cli.main import _resume_advice
from curation.cli.runs import RUN
from curation.recipes.recipe import as_builtins, convert_recipe, load_recipe, shipped_recipes
from curation.rules.effects import RANKS
from curation.tokens.tokenization import load_tokenizer
from tests.running.test_run_folder import write_tokenizer
from tests.runs import files_below, made_texts, records_of, report_of

CURATE = [sys.executable, "-m", "curation"]
# As Ctrl-C at a moment in which the run is at work, however busy the machine is.
INTERRUPTED = """
import os, signal, sys, threading
from curation.cli import main
from curation.base.system.progress import ProgressLines

def log_once(self, line, log=ProgressLines.log):
    log(self, line)
    if " task" in line:
        ProgressLines.log = log
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

ProgressLines.log = log_once
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts with `&` is to ignore it
sys.exit(main(sys.argv[1:]))
"""
SLOW = {"numba", "pandas", "pyarrow", "dask", "numpy", "yaml", "rich", "jinja2", "tiktoken", "tokenizers", "msgspec"}
COMMANDS = (
    "run", "plan", "demo", "init", "import-config", "measure", "embed", "generate", "tokenize", "show", "compare",
    "inspect", "check-loader", "verify", "push", "tokens", "check-overlap", "align", "ablate", "train tokenizer",
    "train classifier", "train lm", "merge", "split", "doctor", "warmup", "recipes", "completion",
)  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of(made_texts(80)))
    (tmp_path / "short.yaml").write_text("stages: [{kind: filter, rules: [{measure: words, min: 5}]}]")
    return path


def curate(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a command."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse
        code = int(str(stop.code))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def failed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message of a command that is used wrongly: one line, on standard error alone."""
    code, out, err = curate(capsys, *arguments)
    assert (code, out) == (2, ""), (code, out, err)
    assert err.startswith("curate: ") and err.count("\n") == 1, err
    return err


def test_run_and_run_again(corpus: Path, capsys: pytest.CaptureFixture[str]):
    command = ("run", "short.yaml", "--input", "made.jsonl", "--output", "out", "--engine", "cpu", "--workers", 1)
    code, out, err = curate(capsys, *command)
    assert code == 0
    assert "kept" in out and "tokens (gpt2, uint16)" in out and "wrote to out/: " in out
    assert "engine cpu (asked for); 1 worker; 1 file" in err
    kept = report_of(Path("out"))["documents"]["kept"]
    code, out, _ = curate(capsys, *command)
    assert (code, out) == (0, f"already complete: out, {kept} documents kept; --force runs it again\n")
    assert (
        "changed: name, stages, words, lid.176.ftz of stage language (new). Give a new --output, or --force"
        in failed(capsys, "run", *command[2:])
    )
    code, out, _ = curate(capsys, "run", *command[2:], "--force")
    assert code == 0 and report_of(Path("out"))["recipe"]["name"] == "default"


@pytest.mark.slow("interrupted commands exit with status 130 and can be resumed")
def test_interrupted_runs_exit_with_130_and_go_on(corpus: Path, tmp_path: Path):
    corpus.write_bytes(records_of(made_texts(300)) * 400)  # enough for some seconds
    options = ["run", "short.yaml", "-i", str(corpus), "-o", "out", "--engine", "cpu", "--workers", "2"]
    stopped = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *options], capture_output=True, text=True, check=False, timeout=60
    )
    # Python may end itself by the signal where it hit an import; a shell shows 130 for that too.
    assert stopped.returncode in (130, -signal.SIGINT), stopped.stderr
    last = stopped.stderr.splitlines()[-1]
    assert (stopped.stdout, last) == ("", "curate: interrupted; rerun the same command to resume")
    assert not (tmp_path / "out" / "report.json").exists()
    finished = subprocess.run([*CURATE, *options], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert report_of(tmp_path / "out")["documents"]["read"] == 120_000


def test_the_full_plan_is_the_recipe_and_the_chain(corpus: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = curate(capsys, "plan", "-i", "made.jsonl", "--full")
    assert (code, err) == (0, "")
    recipe = convert_recipe(yaml.safe_load(out))
    assert recipe.stages == load_recipe("default").stages and recipe.input[0].path == "made.jsonl"
    assert as_builtins(recipe) == yaml.safe_load(out)
    assert "# 3. filter" in out and "too_few_words" in out
    assert f"# 1 file, {corpus.stat().st_size:,} bytes" in out
    assert files_below(corpus.parent) == ["made.jsonl", "short.yaml"]
    assert "none.jsonl does not exist" in failed(capsys, "plan", "-i", "none.jsonl")
    assert "nothing to read" in failed(capsys, "plan")


@pytest.mark.parametrize("name", ["gpt-2", "./none.json"])
def test_plan_refuses_a_tokenizer_that_a_run_refuses(corpus: Path, capsys: pytest.CaptureFixture[str], name: str):
    Path("tok.yaml").write_text(f"tokenizer: {{name: {name}}}")
    message = failed(capsys, "plan", "tok.yaml", "-i", "made.jsonl")
    assert message == failed(capsys, "run", "tok.yaml", "-i", "made.jsonl", "-o", "out")
    Path("tok.yaml").write_text(f"{{tokenizer: {{name: {name}}}, output: {{formats: []}}}}")
    assert curate(capsys, "plan", "tok.yaml", "-i", "made.jsonl")[0] == 0


def test_plan_names_the_files_of_evaluation_texts(corpus: Path, capsys: pytest.CaptureFixture[str]):
    Path("eval.yaml").write_text("stages: [{kind: decontaminate, evaluation_files: ['quiz*.txt']}]")
    message = failed(capsys, "plan", "eval.yaml", "-i", "made.jsonl")
    assert "no file matches quiz*.txt" in message
    assert message == failed(capsys, "run", "eval.yaml", "-i", "made.jsonl", "-o", "out")
    Path("quiz-1.txt").write_text("one two three")
    shown = curate(capsys, "plan", "eval.yaml", "-i", "made.jsonl", "--full")[1]
    assert f"#      13-grams of {Path('quiz-1.txt').resolve()}\n" in shown


def test_inputs_on_the_command_line_add_up(corpus: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("b/made.jsonl", "c/made.jsonl"):
        Path(name).parent.mkdir()
        Path(name).write_bytes(records_of(["one"]))
    for _ in range(2):  # no list is shared
        code, out, _ = curate(capsys, "plan", "-i", "made.jsonl", "b/made.jsonl", "-i", "c/made.jsonl", "--full")
        paths = [entry["path"] for entry in yaml.safe_load(out)["input"]]
        assert (code, paths) == (0, ["made.jsonl", "b/made.jsonl", "c/made.jsonl"])
    message = failed(capsys, "plan", "-i", "made.jsonl", "-i", "made.jsonl")
    assert "made.jsonl is given twice" in message


def test_tokenize_finds_the_text(corpus: Path, capsys: pytest.CaptureFixture[str]):
    Path("c.jsonl").write_text('{"content": "one two three"}\n')
    formats = ("--formats", "megatron, token_shards")
    assert curate(capsys, "tokenize", "c.jsonl", "-o", "out", *formats)[0] == 0
    assert {path.parts[1] for path in Path("out").rglob("*manifest.json")} == {"tokens", "token_shards"}
    assert "no field 'body'" in failed(capsys, "tokenize", "c.jsonl", "-o", "out2", "--text-column", "body")


def test_formats_replace_those_of_a_recipe_with_their_settings(corpus: Path, capsys: pytest.CaptureFixture[str]):
    Path("c.jsonl").write_text('{"text": "one two three"}\n')
    for formats in ("megatron", "token_shards"):
        words = ("tokenize", "c.jsonl", "--recipe", "nemo", "--formats", formats, "-o", formats, "--engine", "cpu")
        assert curate(capsys, *words)[0] == 0
        output = json.loads(Path(formats, "report.json").read_bytes())["recipe"]["output"]
        assert (output["formats"], output["packed"]["length"]) == ([formats], 1024)
    told = failed(capsys, *words, "--set", "output.packed.length=9")
    assert "packed is set, but formats has no packed" in told


def test_measure_shows_what_to_choose_thresholds_by(corpus: Path, capsys: pytest.CaptureFixture[str]):
    Path("c.jsonl").write_text("".join(f'{{"content": "{"a " * number}"}}\n' for number in range(1, 2001)))
    command = ("measure", "--input", "c.jsonl", "-o", "out", "--names", "words, bytes", "--engine", "cpu")
    for told in ("wrote to out/", "already complete: out"):
        code, out, _ = curate(capsys, *command)
        assert code == 0 and told in out and "percentiles of 2,000 documents" in out
        rows = [line.split() for line in out.splitlines()[-3:]]
        assert rows == [
            ["measure", "1%", "25%", "50%", "75%", "99%"],
            ["words", "20", "500", "1,000", "1,500", "1,980"],
            ["bytes", "40", "1,000", "2,000", "3,000", "3,960"],
        ]
    assert {"documents", "removed", "report.json"} <= {path.name for path in Path("out").iterdir()}
    assert not Path("out/tokens").exists()
    assert "changed: stages" in failed(capsys, *command[:5])
    assert curate(capsys, *command[:5], "--force", "-i", "made.jsonl")[0] == 0
    assert report_of(Path("out"))["documents"]["read"] == 2080
    assert "no measure named 'word'; did you mean words" in failed(capsys, *command[:4], "out2", "--names", "word")
    Path("empty.jsonl").write_text("")
    assert curate(capsys, "measure", "-i", "empty.jsonl", "-o", "none")[1].endswith("percentiles of 0 documents\n")


TRAINING_LINES = (
    r"reading texts: 1 slice\n"
    r"reading texts: done in \d+\.\d s, 80 documents, 0\.0 MB.*\n"
    r"training 300 tokens: done in \d+\.\d s, 80 documents, 0\.0 MB.*\n"
)


def test_measure_without_an_output_prints_and_leaves_nothing(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (corpus.parent / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(corpus.parent / "temporary"))
    before = files_below(corpus.parent)
    command = ("measure", "made.jsonl", "--engine", "cpu", "--rules", "{words: {min: 30}}")
    code, out, err = curate(capsys, *command)
    assert code == 0 and "of which the rules remove" in out and "wrote to" not in out + err
    code, out, _ = curate(capsys, *command, "--log", "json")
    found = json.loads(out)
    assert code == 0 and found["rules"][0]["min"] == 30 and not {"output", "report"} & found.keys()
    assert files_below(corpus.parent) == before and [*(corpus.parent / "temporary").iterdir()] == []


def test_measure_shows_the_effect_of_each_rule(corpus: Path, capsys: pytest.CaptureFixture[str]):
    texts = ["one", "one two", "one two three", " ".join(["word"] * 40)]
    Path("texts.jsonl").write_bytes(records_of(texts))
    command = ("measure", "texts.jsonl", "--engine", "cpu", "--log", "text", "-o")
    out = curate(capsys, *command, "out", "--rules", "{words: {min: 3}, bytes/words: {max: 4.5}}")[1]
    lines = [line.split() for line in out[out.index("4 documents, of which") :].splitlines()]
    assert lines[0] == ["4", "documents,", "of", "which", "the", "rules", "remove", "3", "(75.00%)"]
    assert lines[1] == ["rule", "keeps", "removes", "this", "only", "-25%", "-10%", "+10%", "+25%"]
    assert lines[2] == ["words", ">=", "3", "50.00%", "50.00%", "50.00%", "50.00%", "75.00%", "75.00%"]
    assert lines[3] == ["bytes_per_words", "<=", "4.5", "25.00%", "25.00%", "75.00%", "50.00%", "25.00%", "0.00%"]
    assert lines[5][:3] == ["rule", "keeps", "histogram"] and lines[6][-8:] == [
        "1",
        "1",
        "1",
        "2",
        "3",
        "40",
        "40",
        "40",
    ]
    out = curate(capsys, *command, "names", "--names", "bytes/words")[1]
    assert out.splitlines()[-1].split() == ["bytes/words", "3", "3", "3.5", "4.333", "4.975"]
    result = json.loads(curate(capsys, *command[:-3], "--log", "json", "-o", "json", "--rules", "gopher_quality")[1])
    assert result["rules"][0] == {
        "reason": "too_few_words", "measures": ["words"], "min": 50.0, "removed": 4, "alone": 0,
        "removed_if_moved": {"-0.25": 3, "-0.10": 4, "+0.10": 4, "+0.25": 4},
        "percentiles": dict(zip(map(str, RANKS), [1, 1, 1, 2, 3, 40, 40, 40], strict=True)),
    }  # fmt: skip


def test_a_recipe_is_measured_on_the_text_that_its_filter_gets(corpus: Path, capsys: pytest.CaptureFixture[str]):
    Path("texts.jsonl").write_bytes(records_of(["A <b>b</b> c", "<i>d</i>"]))
    Path("recipe.yaml").write_text(
        "stages:\n- {kind: rewrite, markup: strip}\n- {kind: exact_dedup}\n- {kind: filter, rules: {bytes: {min: 5}}}\n"
        "- {kind: rewrite, lowercase: true, name: lower}\n- {kind: filter, name: late, rules: {words: {min: 2}}}\n"
    )
    code, out, err = curate(capsys, "measure", "texts.jsonl", "--recipe", "recipe.yaml", "-o", "out", "--engine", "cpu")
    assert code == 0 and "all rules are measured before lower, which change the text between filters" in err
    assert "2 documents, of which the rules remove 1 (50.00%)" in out
    Path("none.yaml").write_text("stages: [{kind: exact_dedup}]")
    message = failed(capsys, "measure", "texts.jsonl", "--recipe", "none.yaml", "-o", "none")
    assert "none.yaml has no stage filter or lines; name a recipe with rules, or give --rules" in message
    Path("columns.yaml").write_text("stages: [{kind: filter, rules: [{matches: x, max_count: 0}]}]")
    message = failed(capsys, "measure", "texts.jsonl", "--recipe", "columns.yaml", "-o", "none")
    assert "no rule of columns.yaml is on a measure; rules on columns have no percentiles" in message


def test_train_tokenizer(corpus: Path, capsys: pytest.CaptureFixture[str]):
    command = ("train-tokenizer", "-i", "made.jsonl", "-o", "tok/tokenizer.json", "--vocabulary", 300)
    code, out, err = curate(capsys, *command)
    assert code == 0 and re.fullmatch(TRAINING_LINES, err), err
    assert "tok/tokenizer.json: 300 tokens from 80 texts, 0.02 MB\n0." in out
    assert " tokens per byte on a sample" in out and "warning" not in out
    assert "tok/tokenizer.json exists already. Give another --output, or --force" in failed(capsys, *command)
    Path("c.jsonl").write_text('{"content": "one two three"}\n{"content": 5}\n')
    settings = ("--text-column", "content", "--kind", "wordpiece", "--special", "</s>, [UNK]")
    code, out, err = curate(capsys, "train", "tokenizer", "c.jsonl", *command[3:], "--force", *settings)
    assert code == 0 and "tokens from 1 text" in out
    assert "warning: 1 of 2 records are no documents (" in err and "a tenth of its speed" in err
    assert curate(capsys, "tokenize", "c.jsonl", "-o", "out", "--tokenizer", "tok")[0] == 0
    assert report_of(Path("out"))["tokens"]["vocabulary"] == load_tokenizer("tok").vocabulary
    assert "did you mean unigram" in failed(capsys, *command, "--kind", "unigrams", "--force")
    assert "expected a value, not an empty text" in failed(capsys, "train-tokenizer", "-i", "", "-o", "t.json")


@pytest.mark.parametrize(
    "command", [("inspect",), ("merge", "-o", "whole"), ("split", "--max-bytes", "99", "-o", "part")]
)
@pytest.mark.parametrize("url", ["s3://bucket/out/tokens/text", "https://me:secret@host.example/text.bin?key=secret"])
def test_a_pair_at_an_url_is_refused_by_its_url(command: tuple[str, ...], url: str, capsys: pytest.CaptureFixture[str]):
    shown = url.replace("me:secret@", "").partition("?")[0]
    assert f"{shown} is a URL, and pairs are read from local files. Copy its" in failed(capsys, *command, url)


def test_inspect_decodes_a_pair(corpus: Path, capsys: pytest.CaptureFixture[str]):
    assert curate(capsys, "run", "short.yaml", "-i", "made.jsonl", "-o", "out", "--engine", "cpu")[0] == 0
    prefix = "out/tokens/made_00000_text_document"
    texts = [text for text in made_texts(80) if len(text.split()) >= 5]
    for path in (prefix, f"{prefix}.bin", f"{prefix}.idx"):
        code, out, err = curate(capsys, "inspect", path, "--documents", 2)
        assert (code, err) == (0, "")
        assert f"{len(texts)} documents" in out and texts[0] in out and texts[1] in out and texts[2] not in out
    code, out, _ = curate(capsys, "inspect", prefix, "--documents", 0)
    assert code == 0 and "--- document" not in out
    assert "does not exist" in failed(capsys, "inspect", "out/tokens/none")
    assert f"Give one of {prefix}\n" in failed(capsys, "inspect", "out")
    code, out, _ = curate(capsys, "inspect", "out/documents/part-00000.parquet", "--documents", 2)
    assert code == 0 and texts[0] in out and texts[1] in out and texts[2] not in out and "--- made/" in out
    for command, told in {
        ("inspect", "out/documents"): "such as out/documents/part-00000.parquet",
        ("inspect", "none.parquet"): "none.parquet does not exist",
        ("inspect", "short.yaml"): "short.yaml is no shard that a manifest.json beside it names",
        ("check-loader", "out/documents"): "out/documents has no token form to load",
        ("check-loader", "out", "--batch-size", 0): "batch_size must be at least 1, not 0",
    }.items():
        assert told in failed(capsys, *command)
    code, out, err = curate(capsys, "check-loader", "out", "--length", 10**6)
    assert (code, out) == (1, "megatron, train\n")
    assert "Give a smaller length" in err or "Leave the pair out" in err  # without and with PyTorch
    data = bytearray(Path(f"{prefix}.idx").read_bytes())
    data[34] ^= 1
    Path(f"{prefix}.idx").write_bytes(data)
    code, out, err = curate(capsys, "inspect", prefix)
    assert (code, out) == (1, "") and ".idx counts" in err


def test_inspect_of_a_pair_without_its_tokenizer_shows_ids(corpus: Path, capsys: pytest.CaptureFixture[str]):
    write_tokenizer(Path("tok.json"), ["one", "two"])
    Path("two.jsonl").write_bytes(records_of(["one two two"]))
    Path("tok.yaml").write_text("{stages: [], tokenizer: {name: ./tok.json}}")
    assert curate(capsys, "run", "tok.yaml", "-i", "two.jsonl", "-o", "out", "--engine", "cpu")[0] == 0
    command = ("inspect", "out/tokens/two_00000_text_document")
    head = "out/tokens/two_00000_text_document: 1 document, 4 tokens, uint16\n{}\n--- document 0: 4 tokens\n{}\n"
    assert curate(capsys, *command) == (0, head.format("", "one two two </s>"), "")
    notes = {
        "./tok.json is not the tokenizer of the manifest": lambda: write_tokenizer(Path("tok.json"), ["two", "one"]),
        "tokenizer ./tok.json of the manifest cannot be loaded here": Path("tok.json").unlink,
        "no manifest in out/tokens/_meta names the tokenizer": Path("out/tokens/_meta/manifest.json").unlink,
    }
    for note, change in notes.items():
        change()
        told = f"ids instead of text: {note}; give --tokenizer NAME to show text\n"
        assert curate(capsys, *command) == (0, head.format(told, "2 3 3 1"), "")
    assert "'./tok.json', which is none of them" in failed(capsys, *command, "--tokenizer", "./tok.json")


def test_messages_have_one_prefix(corpus: Path, capsys: pytest.CaptureFixture[str]):
    message = failed(capsys, "tokenize", "made.jsonl", "-o", "out", "--formats", "megatrn")
    assert message.startswith("curate: tokenize: ")


def test_recipes_are_listed_and_shown(capsys: pytest.CaptureFixture[str]):
    code, out, err = curate(capsys, "recipes")
    assert (code, err) == (0, "") and out == curate(capsys, "recipes", "list")[1]
    assert [line.split()[0] for line in out.splitlines()] == sorted(shipped_recipes())
    assert all(line.endswith(".") for line in out.splitlines())
    assert "recipes show needs the name of a recipe: c4, cc_news_chunks, " in failed(capsys, "recipes", "show")
    assert curate(capsys, "recipes", "show", "default") == (0, shipped_recipes()["default"], "")
    assert "no recipe named 'defaultt'; did you mean default" in failed(capsys, "recipes", "show", "defaultt")


def test_help_and_version(capsys: pytest.CaptureFixture[str]):
    code, out, _ = curate(capsys, "--help")
    assert code == 0 and set(re.findall(r"^    ([\w-]+(?: \w+)?)  ", out, re.M)) == {*COMMANDS}
    assert re.findall(r"^(\w+):$", out, re.M) == ["runs", "results", "training", "pairs", "environment"]
    for name in COMMANDS:
        code, out, _ = curate(capsys, *name.split(), "--help")
        assert code == 0 and out.startswith(f"usage: curate {name} ")
    assert curate(capsys, "train-tokenizer", "--help") == curate(capsys, "train", "tokenizer", "--help")
    assert curate(capsys, "train", "--help") == curate(capsys, "--help")
    assert curate(capsys, "help") == curate(capsys, "--help")
    assert curate(capsys, "help", "run") == curate(capsys, "run", "--help")
    assert curate(capsys) == (2, curate(capsys, "--help")[1], "")
    assert curate(capsys, "--version")[0] == 0


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], ["runn"]])
def test_help_loads_nothing_slow(arguments: list[str]):
    command = [sys.executable, "-X", "importtime", "-m", "curation", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in finished.stderr.splitlines()}
    assert "curation" in loaded and not SLOW & loaded


def test_a_reader_that_goes_away():
    command = f"{sys.executable} -m curation recipes show default | true; exit ${{PIPESTATUS[0]}}"
    finished = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")


def test_a_forced_command_goes_on_only_where_its_plan_is(tmp_path: Path):
    told = partial(_resume_advice, argparse.Namespace(command=RUN, force=True, output=str(tmp_path)))
    assert told() == ""
    (tmp_path / "_work").mkdir()
    (tmp_path / "_work" / "plan.json").touch()
    assert told() == "; rerun the same command without --force to resume"
    (tmp_path / "report.json").touch()  # of the run that was not deleted yet
    assert told() == ""
