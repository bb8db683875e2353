# SPDX-License-Identifier: Apache-2.0
"""Every command, call and Python block of README.md and docs/ is taken by the program as it is written there.

Commands are parsed by the parser of `curate`, and run in a folder with the files that the pages name. Calls in
backticks are bound to the signatures, and the names of their arguments are those of the parameters.
"""

import ast
import glob
import gzip
import importlib
import inspect
import io
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import yaml

import curation
from curation.base.contract import Engine
from curation.cli import main
from curation.cli.groups import GROUPS
from curation.cli.parsing import parse
from curation.recipes.recipe import parse_recipe
from curation.stages import CorpusStage, RowStage
from curation.stages.outcome import Corpus
from tests.menus import FEW, write_ablation, write_domains
from tests.models.tiny_files import write_static
from tests.needs import needs
from tests.oracle.fasttext_reference import as_bytes, model_of
from tests.pipelines.made import as_wet, made_texts
from tests.runs import records_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"  # on the day of each, so their commands may be gone
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.glob("**/*.md") if page.parent != DECISIONS)]
NAMED = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)  # a block that is a file of this name
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = {command.name for group in GROUPS for command in group.commands}

# Commands that are parsed and not run here -> why
NOT_RUN = {
    "curate demo": "tests/tools/test_demo.py runs it",
    "--scheduler tcp://": "tests/running/test_clusters_page.py starts a scheduler",
    "--engine gpu": "needs a GPU",
    "--array-task": "tests/running/test_clusters_page.py starts several processes; the other needs Slurm",
    "push out acme/news": "needs the hub; tests/results/test_hub_push.py has one",
    "s3://": "needs a bucket; tests/results/test_s3.py has one",
    "--allow-code mypackage": "tests/stages/test_own_stages.py installs the package of the page",
    "web.yaml": "tests/reading/test_pages.py has the pages",
    "lists.yaml": "tests/rules/test_lists_page.py has the lists",
    "languages.yaml": "tests/rules/test_groups_page.py has the documents",
    "by_language": "tests/rules/test_groups_page.py has the documents",
    "synthetic_documents.md": "needs an endpoint; tests/tools/test_page.py has a model",
    "generate rephrase": "the same",
    "train classifier": "needs the package fasttext that trains; tests/tools/test_classifier_training.py runs it",
}
# Pages with Python -> what runs it
PYTHON = {
    "README.md": "tests/contract/test_docs.py",
    "clusters.md": "needs a cluster; its calls of curation are bound below",
    "coming_from.md": "a script of datatrove, which `import-config` reads and nothing runs",
    "corpus_stages.md": "tests/stages/test_own_stages.py",
    "deduplication.md": "this file",
    "edits.md": "this file",
    "engine_functions.md": "this file",
    "extending.md": "tests/stages/test_own_stages.py",
    "graphs.md": "this file, with NetworkX",
    "how_to/data.md": "this file",
    "how_to/documents.md": "this file",
    "how_to/duplicates.md": "this file",
    "how_to/runs.md": "this file",
    "how_to/texts.md": "this file",
    "languages.md": "this file",
    "near_duplicates.md": "this file",
    "notebooks.md": "this file",
    "outputs.md": "tests/results/test_readers.py",
    "personal_data.md": "this file",
    "rule_lists.md": "tests/rules/test_lists_page.py",
    "rules_per_language.md": "tests/rules/test_groups_page.py",
    "spark.md": "needs Spark; tests/reading/test_spark_folders.py has its folders",
    "thresholds.md": "this file",
    "training.md": "this file, with PyTorch",
    "vectors.md": "this file",
}
STANDS_FOR = {
    "COMMAND": "run", "R": "recipe.yaml", "RECIPE": "recipe.yaml", "INPUT...": "data", "PATH...": "data",
    "PATH": "data/a.jsonl", "cl100k_base": "gpt2", "DIR/run": "RUN", "your/folder": "data",
}  # fmt: skip
OWNERS = (curation.RunResult, RowStage, CorpusStage, Corpus, Engine)
OTHERS = {
    "datasets",
    "help",
    "kenlm",
    "numpy",
    "pandas",
    "polars",
    "str",
    "strip",
    "text",
    "warnings",
}  # of Python and of libraries


class Words(NamedTuple):
    """A command on a page."""

    page: str
    words: tuple[str, ...]  # after `curate`; quoted ones keep their quotes

    def __str__(self) -> str:
        return f"{self.page}: curate {' '.join(self.words)}"


def name_of(page: Path) -> str:
    """The path of a page in `docs/`, or `README.md`."""
    return str(page.relative_to(DOCS)) if DOCS in page.parents else page.name


def words_in(page: Path, text: str) -> Iterator[Words]:
    """The commands of a line, which may be joined by `&&`, run in the background, and write to a file."""
    for part in re.split(r"&&|&$", text.strip().removeprefix("$ ").removeprefix("srun ")):
        match = re.match(r"(?:\.venv/bin/)?curate(?: (.*))?$", part.strip().partition(" > ")[0], re.DOTALL)
        if match and match[1]:
            yield Words(name_of(page), tuple(shlex.split(match[1], posix=False)))


def groups_of(page: Path) -> Iterator[list[Words]]:
    """The commands of each block, then each one in a sentence. Blocks of a tutorial follow each other."""
    text = page.read_text("utf-8")
    blocks = [block.replace("\\\n", " ") for _, block in FENCE.findall(text)]
    for block in ["\n".join(blocks)] if page.parent.name == "tutorials" else blocks:
        if found := [words for line in block.splitlines() for words in words_in(page, line)]:
            yield found
    for span in re.findall(r"`(curate [^`]+)`", FENCE.sub("", text)):
        yield [*words_in(page, " ".join(span.split()))]


GROUPED = [group for page in PAGES for group in groups_of(page)]
COMMANDS = [*dict.fromkeys(words for group in GROUPED for words in group)]


def unquoted(words: tuple[str, ...]) -> list[str]:
    """The words as a shell passes them; placeholders are replaced by what they stand for."""
    found: list[str] = []
    for word in words:
        [plain] = shlex.split(word)
        if word == "NAME":
            found.append("gpt2" if found[-1] == "--tokenizer" else "default")
        elif "*" in word and word == plain:
            found += sorted(glob.glob(word)) or [word]
        else:
            found.append(STANDS_FOR.get(plain, plain))
    return found


def is_name(words: tuple[str, ...]) -> bool:
    return " ".join(words) in NAMES


def test_commands_are_found():
    assert len(COMMANDS) > 60 and {words.page for words in COMMANDS} > {"README.md", "training.md", "clusters.md"}
    assert all(any(reason in str(words) for words in COMMANDS) for reason in NOT_RUN), "an exception is not needed"


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_commands_are_parsed(command: Words):
    if not is_name(command.words) and "--help" not in command.words:
        parse(unquoted(command.words), GROUPS)


RECIPE = {
    "name": "example",
    "input": [{"path": "data"}],
    "stages": [
        {"kind": "rewrite", "unicode": "nfc"},
        {"kind": "filter", "rules": [{"measure": "words", "min": 30, "reason": "too_few_words"}, "gopher_repetition"]},
        {"kind": "exact_dedup"},
        {"kind": "fuzzy_dedup"},
        {"kind": "measure", "names": ["words", "characters"]},
    ],
    "output": {
        "formats": ["megatron", "blocks", "chunks", "packed"], "measures": True, "shuffle": True, "removed": "text",
        "splits": {"train": 0.9, "valid": 0.1}, "blocks": {"length": 128}, "packed": {"length": 256},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, and a finished run under each name of one."""
    folder = tmp_path_factory.mktemp("pages")
    texts, more = ([text or "one" for text in made_texts(*own)] for own in ((120,), (40, 4)))
    for name in ("data", "wet", "evals", "models", "FOLDER"):
        (folder / name).mkdir()
    for name in ("data/a", "real_20mb", "wikipedia", "english", "german", "chinese", "FOLDER/a"):
        (folder / f"{name}.jsonl").write_bytes(records_of(texts))
    (folder / "data" / "b.jsonl.gz").write_bytes(gzip.compress(records_of(more)))
    for name in ("quiz", "evals/quiz"):
        (folder / f"{name}.jsonl").write_bytes(records_of(texts[:3]))
    write_ablation(folder, FEW, FEW)
    write_domains(folder)
    as_wet(texts, folder / "wet" / "a.warc.wet.gz")
    for name in ("all-MiniLM-L6-v2", "multilingual"):
        write_static(folder / "models" / name)
    for page in ("coming_from.md", "runs.md", "tutorials/curate_a_crawl.md"):
        for name, block in NAMED.findall((DOCS / page).read_text("utf-8")):
            (folder / name).write_text(block)
    for name, first, second in (("quality", b"good", b"bad"), ("toxicity", b"toxic", b"civil")):
        labels = [(b"__label__" + first, 4), (b"__label__" + second, 1)]
        (folder / f"{name}.bin").write_bytes(as_bytes(model_of(2)._replace(labels=labels)))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    spans = {"input": [{"path": "data"}], "stages": [{"kind": "substring_dedup", "length": 64}]}
    (folder / "first.yaml").write_text(yaml.safe_dump(spans | {"output": {"formats": [], "index": True}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for recipe, output in (("recipe.yaml", "out"), ("first.yaml", "first")):
            assert main(["run", recipe, "-o", output, "--engine", "cpu", "--quiet"]) == 0
        for name in ("DIR", "RUN", "A", "B", "demo/out"):
            shutil.copytree("out", name)
        for path in Path("out/tokens").glob("*_train_*_document.*"):
            for name in "ABC":
                shutil.copy(path, name + path.suffix)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "made", copy_function=os.link)  # commands rename new files into place
    monkeypatch.chdir(tmp_path / "made")
    return tmp_path / "made"


def outputs_of(words: list[str]) -> list[str]:
    found = [value for flag, value in pairwise(words) if flag in ("--output", "-o")]
    return found or ["recipe.yaml"] * (words[0] == "init")


def runs(command: Words) -> bool:
    return not is_name(command.words) and not any(reason in str(command) for reason in NOT_RUN)


RUN = [tuple(filter(runs, group)) for group in GROUPED]
DIFFERENT = {tuple(command.words for command in group): group for group in RUN if group}  # by the last page


@pytest.mark.parametrize("commands", DIFFERENT.values(), ids=lambda commands: str(commands[0]))
def test_commands_run(commands: tuple[Words, ...], here: Path, capsys: pytest.CaptureFixture[str]):
    """Those of a block one after the other. What a command writes is not there before the first."""
    for name in {name for command in commands for name in outputs_of(unquoted(command.words))}:
        shutil.rmtree(name, ignore_errors=True)
        Path(name).unlink(missing_ok=True)
    for command in commands:
        try:
            code = main(unquoted(command.words))
        except SystemExit as stop:  # --help
            code = stop.code
        found = command.words[0] == "check-overlap"  # exits with 1 if it finds an item
        assert code == found, f"{command}: {capsys.readouterr().err}"


# Python


def test_every_page_with_python_runs_in_a_test():
    assert {name_of(page) for page in PAGES if "\n```python" in page.read_text("utf-8")} == {*PYTHON}


@pytest.mark.parametrize("name", [name for name, how in PYTHON.items() if how.startswith("this file")])
def test_python_of_a_page_runs(name: str, here: Path):
    for package, module in (("PyTorch", "torch"), ("NetworkX", "networkx")):
        if package in PYTHON[name]:
            needs(module)
    names: dict[str, Any] = {"curation": curation, "pandas": pd}
    for language, block in FENCE.findall((DOCS / name).read_text("utf-8")):
        for node in ast.parse(block).body if language == "python" else ():
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(ast.Module([node], []), name, "exec"), names)
            _, comment, told = block.splitlines()[(node.end_lineno or 0) - 1].partition("  # ")
            if comment and out.getvalue():
                assert out.getvalue().strip() == told


def test_stages_in_sentences_of_how_tos_are_read():
    found = [
        stage
        for page in DOCS.glob("how_to/*.md")
        for stage in re.findall(r"`(\{kind: .*)`$", page.read_text("utf-8"), re.M)
    ]
    assert len(found) > 12
    for stage in found:
        assert parse_recipe(f"stages: [{stage}]").stages


# Calls


def calls_of(page: Path) -> Iterator[str]:
    """The calls in backticks, and those of `curation` in blocks of Python."""
    text = page.read_text("utf-8")
    yield from re.findall(r"`\.?([a-z_][\w.]*\([^`]*\))`", FENCE.sub("", text))
    for language, block in FENCE.findall(text):
        if language == "python":
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.Call) and re.fullmatch(r"curation(\.\w+)+", ast.unparse(node.func)):
                    yield ast.unparse(node)


def functions_of(name: str) -> list[Any]:
    """What a page may mean by a name: a function of `curation` or of one of its modules, or methods of this name."""
    *before, last = name.split(".")
    if before[:1] == ["curation"] and len(before) > 1:
        return [getattr(importlib.import_module(".".join(before)), last)]
    found = [getattr(curation, last)] if before in ([], ["curation"], ["engine"]) and last in curation.__all__ else []
    return found + [partial(method, None) for owner in OWNERS if callable(method := getattr(owner, last, None))]


def fault_of(call: str) -> str:
    """Why the program does not take a call as a page writes it; "" if it does."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call), call
    found, given = functions_of(ast.unparse(node.func)), [ast.unparse(value) for value in node.args]
    keywords = {keyword.arg: "" for keyword in node.keywords if keyword.arg}
    faults = []
    for function in found:
        try:
            bound = inspect.signature(function).bind(*given, **keywords)
        except TypeError as error:
            faults.append(str(error))
            continue
        wrong = [
            f"{name} is {value}"
            for name, value in bound.arguments.items()
            if isinstance(value, str) and value.isidentifier() and value != name
        ]
        if not wrong:
            return ""
        faults += wrong
    return "; ".join(faults) or "no such function"


CALLS = [(name_of(page), call) for page in PAGES for call in dict.fromkeys(calls_of(page))]
OURS = [(page, call) for page, call in CALLS if re.split(r"[.(]", call)[0] not in OTHERS]


@pytest.mark.parametrize(("page", "call"), OURS)
def test_calls_fit_the_signatures(page: str, call: str):
    assert fault_of(call) == ""


def test_calls_are_found_and_faults_too():
    assert len(OURS) > 60 and {re.split(r"[.(]", call)[0] for _, call in CALLS} > OTHERS
    assert fault_of("fuzzy_dedup(frame, column)") == "stage is column"
    assert fault_of("curation.run(recipe)").startswith("missing a required argument")
    assert fault_of("run(recipe, output, worker=1)").startswith("got an unexpected keyword")
    assert fault_of("gone(frame)") == "no such function"


# What nobody can install


def test_no_package_is_installed_by_a_name_that_no_registry_has():
    """A stranger could register it. Before an extra, pip takes the installed package (decision 0138)."""
    files = [
        *PAGES,
        *(path for name in ("curation", "cpu_fallback", "gpu_pipeline") for path in ROOT.glob(f"{name}/**/*")),
    ]
    texts = {path: path.read_text("utf-8") for path in files if path.suffix in (".md", ".py", ".yaml")}
    named = re.compile(r"pip install [^\n`]*\bgpu[-_]pipeline\b(?!\[)")
    assert [str(path) for path, text in texts.items() if named.search(text)] == []
