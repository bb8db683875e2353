# SPDX-License-Identifier: Apache-2.0
"""What newcomers get wrong: each mistake ends in one message with place, cause and remedy, and in the right exit code.

The controls are right inputs that look like these mistakes: no message may accuse them.
"""

import errno
import gzip
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

import curation
from curation.base.errors import CurationError
from curation.base.measures import Measure, highest_ratio
from curation.base.system.os_errors import PASSING, SENTENCES
from curation.cli import main
from tests.cli.test_cli import curate
from tests.runs import files_below, made_texts

RECORD = b'{"text": "one two three four five six seven"}\n'
PLAN, RUN = "plan r.yaml -i made.jsonl", "run -i made.jsonl --stages exact_dedup --engine cpu -o "
CURATOR = "stages:\n  - _target_: nemo_curator.stages.text.filters.ScoreFilter\n    filter_obj: {min_words: 50}\n"
ROWS = "".join(f"{row},au lait\n" for row in range(9))


class Mistake(NamedTuple):
    """A command line that is wrong.

    line   words after `curate`
    parts  of the message: place, cause and remedy
    files  path -> content, in addition to made.jsonl and a finished run in done/; r.yaml is the recipe
    code   exit code
    """

    line: str
    parts: tuple[str, ...]
    files: dict[str, str | bytes] = {}  # noqa: RUF012  # never changed
    code: int = 2


def recipe(text: str, *parts: str) -> Mistake:
    """A wrong recipe, which `plan` refuses."""
    return Mistake(PLAN, ("r.yaml", *parts), {"r.yaml": text})


def stage(text: str, *parts: str) -> Mistake:
    """A recipe with one wrong stage."""
    return recipe(f"stages: [{text}]", *parts)


def data(name: str, content: str | bytes, *parts: str, code: int = 2) -> Mistake:
    """A wrong input file, which a run refuses."""
    command = f"run -i {name} --stages exact_dedup --engine cpu -o out"
    return Mistake(command, (name, *parts) if code == 2 else parts, {name: content}, code)


MISTAKES = {
    # The command line
    "misspelt command": Mistake("rnu -i made.jsonl -o out", ("'rnu'", "did you mean run?")),
    "misspelt option": Mistake("run -i made.jsonl --ouput out", ("--ouput", "did you mean --output")),
    "one dash": Mistake("run -input made.jsonl -o out", ("-input", "did you mean --input")),
    "no output": Mistake("run -i made.jsonl", ("--output/-o is missing",)),
    "no input": Mistake("run -o out", ("nothing to read", "--input PATH")),
    "data as recipe": Mistake("run made.jsonl -o out", ("made.jsonl looks like data", "give it with --input")),
    "folder as recipe": Mistake("plan done", ("done is a folder", "expected a recipe", "--input")),
    "recipe as input": Mistake("run -i r.yaml -o out", ("r.yaml is a recipe", "before --input"), {"r.yaml": "a: 1"}),
    "recipe missing": Mistake("plan r.yml", ("recipe r.yml does not exist", "did you mean r.yaml?"), {"r.yaml": ""}),
    "recipe with a long name": Mistake(f"plan {'x' * 300}.yaml", ("recipe xxx", "name is too long", "Shorten")),
    "setting with a colon": Mistake("plan -i made.jsonl --set seed:3", ("--set", "PATH=VALUE", "seed=3", "'seed:3'")),
    "setting with spaces": Mistake("plan -i made.jsonl --set seed = 3", ("--set", "PATH=VALUE without spaces")),
    "setting of a stage": Mistake(
        "plan -i made.jsonl --set filter.words.min=3", ("'filter.words.min'", "did you mean stages.filter?")
    ),
    "setting of a measure": Mistake(
        "plan -i made.jsonl --set stages.filter.word_count.min=3", ("'word_count'", "did you mean words?")
    ),
    "stages without commas": Mistake(
        "plan -i made.jsonl --stages 'exact_dedup fuzzy_dedup'", ("stages", "commas: exact_dedup,fuzzy_dedup")
    ),
    "unknown rule set": Mistake("plan -i made.jsonl --rules gophr", ("'gophr'", "did you mean gopher")),
    "measure of another tool": Mistake(
        "measure made.jsonl -o out --names word_count", ("no measure named 'word_count'", "did you mean words?")
    ),
    "measure with a short name": Mistake(
        "measure made.jsonl -o out --names num_chars", ("'num_chars'", "did you mean characters?")
    ),
    "unknown tokenizer": Mistake("plan -i made.jsonl --tokenizer gpt-2", ("'gpt-2'", "did you mean gpt2?")),
    "misspelt scheduler": Mistake(f"{RUN} out --scheduler proceses", ("'proceses'", "did you mean processes?")),
    "scheduler without port": Mistake(f"{RUN} out --scheduler tcp://host", ("tcp://host", "port", "tcp://HOST:8786")),
    "scheduler with wrong port": Mistake(f"{RUN} out --scheduler host:99999", ("99999", "between 1 and 65535")),
    "GPU without a GPU": Mistake(f"{RUN} out --engine gpu", ("engine gpu", "no NVIDIA driver", "Use --engine cpu")),
    "engine cuda": Mistake(f"{RUN} out --engine cuda", ("--engine", "'cuda'", "auto, gpu, cpu")),
    "half a worker": Mistake(f"{RUN} out --workers 0.5", ("--workers", "whole number", "'0.5'")),
    # Paths
    "missing input": Mistake("plan -i made.json", ("made.json does not exist", "did you mean made.jsonl?")),
    "glob without a match": Mistake("plan -i 'nodata/*.jsonl'", ("nodata/*.jsonl", "there is no folder nodata")),
    "inputs with a comma": Mistake(
        "plan -i made.jsonl,b.jsonl",
        ("made.jsonl,b.jsonl does not exist", "spaces: made.jsonl b.jsonl"),
        {"b.jsonl": RECORD},
    ),
    "path of Windows": Mistake(r"plan -i 'C:\data\a.jsonl'", ("path of Windows", "/mnt/c/data/a.jsonl")),
    "backslash": Mistake(r"plan -i 'data\a.jsonl'", (r"data\a.jsonl", "separated by /", "Write data/a.jsonl")),
    "output with a backslash": Mistake(RUN + r"'out\x'", (r"output out\x", "Write out/x")),
    "unknown home": Mistake("plan -i '~nobodyx/a.jsonl'", ("~nobodyx/a.jsonl", "no user of the name 'nobodyx'")),
    "variable in an input": Mistake(
        "plan -i '$DATA/a.jsonl'", ("$DATA/a.jsonl does not exist", "$DATA was not replaced")
    ),
    "variable in an output": Mistake(
        RUN + "'${OUT}/x'", ("output ${OUT}/x", "${OUT} was not replaced", "Write its value")
    ),
    "variable in a recipe": Mistake(
        "plan r.yaml",
        ("${DATA}/a.jsonl", "${DATA} was not replaced"),
        {"r.yaml": "input: [{path: '${DATA}/a.jsonl'}]\nstages: []"},
    ),
    "output is a file": Mistake(RUN + "made.jsonl", ("made.jsonl is a file", "give another --output")),
    "output holds the input": Mistake(
        RUN.replace("made.jsonl", "in") + "in",
        ("in is not empty", "a.jsonl", "give a new --output"),
        {"in/a.jsonl": RECORD},
    ),
    "output of other inputs": Mistake(
        "run -i a.jsonl b.jsonl c.jsonl d.jsonl -o done --engine cpu",
        ("done belongs to another recipe", "a.jsonl (new), ", "more. Give a new --output"),
        {f"{name}.jsonl": RECORD for name in "abcd"},
    ),
    "output of another run": Mistake(
        "run -i made.jsonl -o done --engine cpu",
        ("done belongs to another recipe", "changed: ", "--output, or --force"),
    ),
    "output in /proc": Mistake(
        RUN + "/proc/x", ("/proc/x", "no such file or folder (ENOENT)", "Give another --output")
    ),
    "output with a long name": Mistake(
        RUN + "x" * 300, ("xxx: the name is too long (ENAMETOOLONG)", "Shorten the path")
    ),
    "output at a URL": Mistake(RUN + "gs://bucket/out", ("URL (gs://)", "Give a local folder")),
    "output of a run as input": Mistake("plan -i done", ("done is the output folder of a run", "done/documents")),
    "verify a part": Mistake(
        "verify done/tokens", ("done/tokens holds no finished run", "run in done.", "Give that folder")
    ),
    "verify a file": Mistake("verify done/report.json", ("done/report.json is a file", "run in done.")),
    "verify a parent": Mistake("verify .", ("holds no finished run", "this folder in it does: done")),
    "verify nothing": Mistake("verify dune", ("dune does not exist", "did you mean done? Give the --output of a run")),
    "folder without files": Mistake(
        "plan -i pdfs", ("folder pdfs", ".jsonl", "It holds .pdf", "Convert"), {"pdfs/a.pdf": "x"}
    ),
    "archive": Mistake("plan -i a.zip", ("a.zip", "does not tell its format", "Unpack the archive"), {"a.zip": "PK"}),
    "same file twice": Mistake("plan -i made.jsonl ./made.jsonl", ("made.jsonl", "same file", "once in a run")),
    # Files
    "no text column": data("b.jsonl", '{"prose": "x"}\n', "none of the columns text", "['prose']", "--text-column"),
    "wrong text column": Mistake(
        "run -i b.jsonl --text-column prosa -o out",
        ("b.jsonl: ", "no field 'prosa'", "did you mean prose?"),
        {"b.jsonl": '{"prose": "x"}\n'},
    ),
    "CSV in Latin-1": data(
        "l.csv", "id,text\n1,café\n".encode("latin-1"), "not valid UTF-8", "set encoding:", "latin-1", code=3
    ),
    "header in Latin-1": data(
        "l.csv", "id,téxt\n1,café\n".encode("latin-1"), "header is not valid UTF-8", "set encoding:"
    ),
    "CSV without header": data(
        "h.csv", "1,some words\n2,more words\n", "['1', 'some words']", "first row must hold the names"
    ),
    "CSV with semicolons": data(
        "s.csv",
        "id;text\n1;a b\n",
        "one column, 'id;text'",
        "separated by ';'",
        "expected ','",
        """Set delimiter: ";" of the input (for a command: --set 'input.s.delimiter=";"'); "," if it is one column""",
    ),
    "tabs in a CSV": data("s.csv", "id\ttext\n1\ta b\n", r"separated by '\t'", r'Set delimiter: "\t"'),
    "commas in a TSV": data("s.tsv", "id,text\n1,a b\n", "separated by ','", 'Set delimiter: ","'),
    "no gzip": data("a.jsonl.gz", RECORD, "is not compressed", "Rename it to a.jsonl"),
    "gzip without suffix": data("a.jsonl", gzip.compress(RECORD), "content is gzip", "Rename it to a.jsonl.gz"),
    "UTF-16 JSON Lines": data(
        "a.jsonl", RECORD.decode().encode("utf-16"), "content is UTF-16", "Convert it", "iconv -f UTF-16 -t UTF-8"
    ),
    "no Parquet": data("a.parquet", RECORD, "not a readable Parquet file", "it begins with", "rename it to .jsonl"),
    "JSON array": data("a.json", '[{"text": "x"}, {"text": "y"}]', "JSON array", "one object per line", "jq -c"),
    "JSON over lines": data("a.json", '{\n  "text": "x"\n}\n', "is a JSON object", "one per line", "jq -c ."),
    # Recipes
    "empty recipe": recipe("# only a comment\n", "is empty", "expected a recipe", "Write `stages: []`"),
    "list as recipe": recipe("- exact_dedup", "Expected `object`, got `array`", "such as stages: [exact_dedup]"),
    "recipe in Latin-1": Mistake(PLAN, ("r.yaml", "UTF-8"), {"r.yaml": "# café\nstages: []".encode("latin-1")}),
    "tab in a recipe": recipe("stages:\n\t- exact_dedup", "(line 2, column 1)", "Indent with spaces"),
    "open bracket": recipe("stages: [{kind: filter", "line 1", "A bracket or a quote is not closed"),
    "indentation": recipe("stages:\n  - kind: filter\n    - kind: x", "line 3", "Indent the entries"),
    "path with escapes": recipe('input: [{path: "C:\\data"}]', "line 1", "Use / in paths"),
    "glob without quotes": recipe("input:\n  - path: *.jsonl", "line 2", "Quote text that begins with *"),
    "key twice": recipe("stages: []\nstages: []", "duplicate key 'stages'", "line 2", "Remove one"),
    "colon without space": stage("kind:exact_dedup", "space after the colon: kind: exact_dedup", "$.stages[0]"),
    "Curator": recipe(CURATOR, "_target_: nemo_curator.stages", "Hydra", "by their kind", "$.stages[0]"),
    "misspelt key": recipe("stage: []", "`stage`", "did you mean stages?"),
    "misspelt kind": stage("{kind: fuzy_dedup}", "'fuzy_dedup'", "$.stages[0].kind", "did you mean fuzzy_dedup?"),
    "type for kind": stage(
        "{type: filter, rules: gopher}", "$.stages[0]", "Write kind: filter instead of type: filter"
    ),
    "settings beside the kind": recipe(
        "stages:\n  - filter:\n    rules: gopher", "$.stages[0]", "Indent the settings below filter:"
    ),
    "stages as text": recipe("stages: exact_dedup", "$.stages", "Write a list: stages: [exact_dedup]"),
    "stages as mapping": recipe("stages: {kind: filter}", "$.stages", "Write a list: - before each entry"),
    "columns as text": recipe("input: [{path: a, columns: b}]", "$.input", "Write a list: columns: [b]"),
    "start of a name": stage("{kind: select, column: s, keep: 0.5}", "did you mean keep_lowest or keep_highest?"),
    "number as a column": recipe("input: [{path: a, columns: {b: 3}}]", "columns[...]", "Quote it: columns: {b: '3'}"),
    "mapping as text": recipe("output: {parquet: {a: 1}}", "`$.output.parquet`. Write one value: parquet: ..."),
    "number as a key": stage("{kind: mix, weights: {0: 1}}", "$.weights", "Quote the keys of weights: {'0': ...}"),
    "no as a key": stage("{kind: mix, weights: {no: 1}}", "got `bool`", "Quote the keys of weights"),
    "stages left empty": recipe("stages:\n", "$.stages", "Write stages: [] for none"),
    "input as text": recipe("input: made.jsonl", "$.input", "Write input: [{path: made.jsonl}]"),
    "stage at the top": recipe("filter: {rules: gopher}", "`filter`", "is a stage", "stages: [{kind: filter"),
    "rules at the top": recipe("rules: gopher", "`rules`", "setting of a stage: {kind: filter, rules: ...}"),
    "tokenizer as text": recipe("tokenizer: gpt2", "$.tokenizer", "Write tokenizer: {name: gpt2}"),
    "output as text": recipe("output: megatron", "$.output", "Write output: {formats: [megatron]}"),
    "format as text": recipe("output: {formats: megatron}", "$.output.formats", "formats: [megatron]"),
    "size with a unit": recipe("output: {max_file_bytes: 10GB}", "$.output.max_file_bytes", "Write 10_000_000_000"),
    "number in quotes": recipe("seed: '12'", "$.seed", "Remove the quotes"),
    "filter without rules": stage("filter", "`rules`", "$.stages[0]", "Write rules: gopher"),
    "min_words": stage("{kind: filter, rules: gopher, min_words: 9}", "`min_words`", "rules: {words: {min: 9}}"),
    "probability without keep": stage(
        "{kind: language, min_probability: 0.9}", "min_probability is 0.9", "give keep too, such as [en]"
    ),
    "percentage as share": stage(
        "{filter: {rules: {duplicate_lines/lines: {max: 30}}}}", "max: 30", "rules[0]", "0.3 for 30 %"
    ),
    "percentage of n-grams": stage(
        "{filter: {rules: {top_2gram_characters/characters: {max: 20}}}}", "max: 20", "at most 3", "0.2 for 20 %"
    ),
    "negative bound": stage("{filter: {rules: {words: {min: -5}}}}", "min: -5", "never below 0", "rules[0]"),
    "bounds swapped": stage("{filter: {rules: {words: {min: 9, max: 5}}}}", "min 9", "above max 5"),
    "rule as text": stage("{filter: {rules: words > 5}}", "'words > 5'", "as a mapping: {words: {min: 50}}"),
    "threshold in percent": stage("{kind: fuzzy_dedup, threshold: 80}", "80", "$.stages[0]", "Write 0.8 for 80 %"),
    "setting of another stage": stage(
        "{kind: exact_dedup, threshold: 0.8}", "`threshold`", "{kind: fuzzy_dedup, threshold"
    ),
    "shares of splits": recipe("output: {splits: {train: 0.9, valid: 0.05}}", "add up to 1", "0.95", "$.output"),
    "splits in percent": recipe("output: {splits: {train: 99, valid: 1}}", "train", "Write 0.99 for 99 %"),
    "name of a split": recipe("output: {splits: {train: 0.9, validation: 0.1}}", "'validation'", "did you mean valid?"),
    "unknown Unicode form": stage("{kind: rewrite, unicode: nfd}", "'nfd'", "keep, nfc, nfkc"),
    "two inputs of one name": Mistake(
        "plan r.yaml",
        ("two inputs are named 'a'", "Change name:"),
        {"r.yaml": "input: [{path: made.jsonl, name: a}, {path: b.jsonl, name: a}]", "b.jsonl": RECORD},
    ),
    "measure as column": Mistake(
        PLAN,
        ("stage filter", "'word_count'", "did you mean the measure words?"),
        {"r.yaml": "stages: [{filter: {rules: {word_count: {min: 5}}}}]"},
    ),
    "language before its stage": Mistake(
        PLAN,
        ("'language'", "Put the stage language, which writes it, before this one"),
        {"r.yaml": "stages: [{filter: {rules: {language: {in: [en]}}}}, {language: {keep: [en]}}]"},
    ),
    "column of the outputs": Mistake(
        PLAN,
        ("'source'", "The outputs have their own source. Add columns: {input_source: source}, and name input_source"),
        {"r.yaml": "stages: [{filter: {rules: [{column: source, in: [web]}]}}]"},
    ),
    "vectors without a stage": Mistake(
        PLAN, ("'embedding'", "Put an embed stage before this one, or add"), {"r.yaml": "stages: [semantic_dedup]"}
    ),
    "clusters without vectors": Mistake(
        PLAN,
        ("'embedding'", "Put an embed stage before this one, or add"),
        {"r.yaml": "stages: [{assign_clusters: {centroids: made.jsonl}}]"},
    ),
    "list and mapping of columns": Mistake(
        "plan r.yaml",
        ("got `object`", "$.input[0].columns[1]", "columns: {new_name: field, score: score}"),
        {"r.yaml": "input: [{path: made.jsonl, columns: [score, {domain: source}]}]"},
    ),
    "column without its field": Mistake(
        "plan r.yaml",
        ("got `null`", "$.input[0].columns", "columns: {new_name: field, score: score}"),
        {"r.yaml": "input: [{path: made.jsonl, columns: {domain: source, score}}]"},
    ),
    "weights of numbers": Mistake(
        PLAN,
        ("$.stages[0]", "Quote the keys of weights"),
        {"r.yaml": "stages: [{mix: {by: topic, weights: {0: 0.3, 1: 0.7}}}]"},
    ),
    "missing centroids": Mistake(
        "plan r.yaml",
        ("no.npz does not exist", "Give centroids/stage-N.npz of an earlier run"),
        {
            "r.yaml": "input: [{path: made.jsonl, columns: [v]}]\n"
            "stages: [{assign_clusters: {vectors: v, centroids: no.npz}}]"
        },
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "made.jsonl").write_bytes(RECORD * 3)
    assert main([*shlex.split(f"run -i {folder}/made.jsonl --stages exact_dedup -o {folder}/done"), "--quiet"]) == 0
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with made.jsonl and, as a link, the finished run done/."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("curation.base.engine.gpu_obstacle", lambda: "no NVIDIA driver was found. Use --engine cpu")
    (tmp_path / "made.jsonl").write_bytes(RECORD * 3)
    (tmp_path / "done").symlink_to(finished / "done")
    return tmp_path


def write(files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_in_one_message_with_its_remedy(here: Path, capsys: pytest.CaptureFixture[str], name: str):
    mistake = MISTAKES[name]
    write(mistake.files)
    code, out, err = curate(capsys, *shlex.split(mistake.line))
    message = err.splitlines()[-1]
    assert code == mistake.code and message.startswith("curate: "), (code, err)
    assert [part for part in mistake.parts if part not in message] == [], message
    assert (
        "Errno" not in err and "Traceback" not in err and "  " not in message and ".." not in message.replace("...", "")
    )
    if code == 2:
        assert (out, err.count("\n")) == ("", 1)
        assert not any(path.startswith("out") for path in files_below(here)) or "out" in mistake.files


RIGHT = {
    "kinds alone": ("plan r.yaml -i made.jsonl", {"r.yaml": "stages: [exact_dedup]"}),
    "rules by measure": ("plan r.yaml -i made.jsonl", {"r.yaml": "stages: [{filter: {rules: {words: {min: 50}}}}]"}),
    "upper-case Unicode form": ("plan r.yaml -i made.jsonl", {"r.yaml": "stages: [{rewrite: {unicode: NFC}}]"}),
    "two equal stages": ("plan r.yaml -i made.jsonl", {"r.yaml": "stages: [exact_dedup, exact_dedup]"}),
    "ratio above 1": (
        "plan r.yaml -i made.jsonl",
        {"r.yaml": "stages: [{filter: {rules: {hash_signs/words: {max: 10}}}}]"},
    ),
    "n-grams above 1": (
        "plan r.yaml -i made.jsonl",
        {"r.yaml": "stages: [{filter: {rules: {top_2gram_characters/characters: {max: 1.5}}}}]"},
    ),
    "threshold 1": ("plan r.yaml -i made.jsonl", {"r.yaml": "stages: [{kind: fuzzy_dedup, threshold: 1}]"}),
    "splits": ("plan r.yaml -i made.jsonl", {"r.yaml": "output: {splits: {train: 0.99, valid: 0.01}}"}),
    "column named as a measure": (
        "plan r.yaml",
        {
            "b.jsonl": '{"text": "one two", "word_count": 2}',
            "r.yaml": "input: [{path: b.jsonl, columns: [word_count]}]\n"
            "stages: [{filter: {rules: {word_count: {min: 5}}}}]",
        },
    ),
    "dollar in a name": ("plan -i '$DATA.jsonl'", {"$DATA.jsonl": RECORD}),
    "backslash in a name": (r"plan -i 'a\b.jsonl'", {r"a\b.jsonl": RECORD}),
    "comma in a name": ("plan -i a,b.jsonl", {"a,b.jsonl": RECORD}),
    "semicolons in text": ("plan -i s.csv", {"s.csv": "id,text\n1,a;b\n"}),
    "setting with a path in its value": ("plan -i made.jsonl --set name=a=b", {}),
    "recipe in UTF-16": ("plan r.yaml -i made.jsonl", {"r.yaml": "stages: []".encode("utf-16")}),
    "home": ("plan -i ~/a.jsonl", {"home/a.jsonl": RECORD}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_use_is_not_accused(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setenv("HOME", str(here / "home"))
    line, files = RIGHT[name]
    write(files)
    code, _, err = curate(capsys, *shlex.split(line))
    assert (code, err) == (0, "")


def test_outputs_with_unusual_names_are_written(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(here / "home"))
    Path("$OUT").mkdir()
    for given, folder in (("$OUT", "$OUT"), ("~/runs", "home/runs"), ("./~x", "~x")):
        assert curate(capsys, *shlex.split(RUN), given)[0] == 0
        assert Path(folder, "report.json").exists()
    assert not Path("~").exists()


def test_some_rows_in_latin_1_bring_a_hint(here: Path, capsys: pytest.CaptureFixture[str]):
    Path("l.csv").write_bytes(f"id,text\n{ROWS}10,café\n11,café\n".encode("latin-1"))
    code, out, _ = curate(capsys, "run", "-i", "l.csv", "--stages", "exact_dedup", "-o", "out")
    assert code == 0 and "2 of 11 records (18%) were rejected" in out
    assert "set encoding: of the input, such as latin-1 (--set input." in out


# Errors of the operating system


FAILING = {
    errno.ENOSPC: "the disk is full (ENOSPC). Free disk space",
    errno.EDQUOT: "your disk quota is used up (EDQUOT)",
    errno.EIO: "the device failed to read or write (EIO)",
    errno.EMFILE: "too many files are open (EMFILE). Raise `ulimit -n`",
    errno.ESTALE: "the network file system has lost the file (ESTALE)",
    errno.ETIMEDOUT: "the server did not answer in time (ETIMEDOUT)",
    errno.EROFS: "the file system is read-only (EROFS)",
    errno.EACCES: "permission denied (EACCES)",
}


@pytest.mark.parametrize("number", FAILING)
def test_a_run_that_the_system_stops_exits_with_1(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
):
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "out/documents/part-00000.parquet")

    monkeypatch.setattr("curation.running.phase_loop.write_output_parts", fail)
    code, out, err = curate(capsys, *shlex.split(RUN), "out")
    message = err.splitlines()[-1]
    assert (code, out) == (1, "") and f"out/documents/part-00000.parquet: {FAILING[number]}" in message
    assert message.endswith("; rerun the same command to resume") == (number in PASSING)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_an_output_that_cannot_be_made_is_wrong_use(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int
):
    def fail(path: Path, *_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "mkdir", fail)
    code, _, err = curate(capsys, *shlex.split(RUN), "out")
    assert code == 2 and f"the output folder cannot be created: {here}/out: {SENTENCES[number][0]}" in err


def test_an_output_that_is_a_link_to_itself_is_wrong_use(here: Path, capsys: pytest.CaptureFixture[str]):
    Path("out").symlink_to("out")
    code, _, err = curate(capsys, *shlex.split(RUN), "out")
    assert code == 2 and "the output folder cannot be created" in err and "(EEXIST)" in err


# Python, and single pieces of advice


def test_keywords_of_other_tools_are_answered_with_rules():
    for keyword, told in (
        ("min_words", 'rules={"words": {"min": 50}}'),
        ("max_word_count", 'rules={"words": {"max": 50}}'),
        ("minimum_chars", 'rules={"characters": {"min": 50}}'),
    ):
        with pytest.raises(CurationError, match=re.escape(f"filter: no setting {keyword!r}. Write {told}")):
            curation.filter(None, **{keyword: 50})
    with pytest.raises(CurationError, match="no setting 'rulez'; did you mean rules"):
        curation.filter(None, rulez="gopher")


def test_no_ratio_exceeds_its_bound():
    """The bound of the most frequent n-gram, on texts whose n-grams overlap most."""
    import numpy as np

    from curation.base.engine import load_engine
    from tests.conftest import frame_of

    engine = load_engine("cpu")
    texts = ["a " * 40, "a b " * 40, *made_texts(40)]
    for n in (2, 3, 4):
        names = (f"top_{n}gram_characters", "characters")
        found = engine.measure(frame_of(engine, texts)["text"], names)
        assert np.all(found[names[0]] <= highest_ratio(*names) * found[names[1]]) and highest_ratio(*names) == 2 * n - 1
    assert highest_ratio("hash_signs", "words") == float("inf") and "words" in Measure.__members__
