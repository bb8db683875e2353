# SPDX-License-Identifier: Apache-2.0
"""Cut off each leaf of `curation` in a copy of the tree, and check that the rest is whole, for `make test-leaves`.

The copy lacks the files of the leaf, its lines in the tables, and what `make functions` writes for it. It must pass
`tests/contract`, and curate a few documents. Pages still name what was cut, so a test may fail if its name or its error
has such a name in the form of a command, a call, a path or a quoted word.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.leaves import LEAVES, ROOT, TABLES, files_of

FORMS = "curation/tokens/forms/__init__.py"
NAMES = (
    "import curation\n"
    "from curation.cli.groups import GROUPS\n"
    "from curation.stages import STAGES\n"
    "from curation.tokens.forms import FORMS\n"
    "commands = [command.name for group in GROUPS for command in group.commands]\n"
    "print(*curation.__all__, *commands, *STAGES, *FORMS, sep='\\n')\n"
)
TESTS = ("-m", "pytest", "-vv", "-p", "no:cacheprovider", "--junitxml=tests.xml", "tests/contract")  # whole errors
IMPORT = re.compile(r"^E +(?:ImportError|ModuleNotFoundError)", re.MULTILINE)  # is a fault, whatever it names
OF_DEVICES = "--ignore=tests/contract/test_kernels_compile.py"  # no leaf has kernels of the GPU engine
RUN = (
    "import curation\n"
    "[getattr(curation, name) for name in curation.__all__]\n"
    "from curation.cli.main import main\n"
    "texts = [{'text': f'{word} ' * 60} for word in ('one', 'two', 'two')]\n"
    "import json, pathlib\n"
    "pathlib.Path('in.jsonl').write_text(''.join(json.dumps(text) + '\\n' for text in texts))\n"
    "stages = [{'kind': 'exact_dedup'}, {'kind': 'fuzzy_dedup'}]\n"
    "recipe = {'input': [{'path': 'in.jsonl'}], 'stages': stages, 'tokenizer': {'name': 'gpt2'}}\n"
    "pathlib.Path('recipe.yaml').write_text(json.dumps(recipe))\n"
    "code = main(['run', 'recipe.yaml', '-o', 'out', '--engine', 'cpu', '--workers', '1'])\n"
    "assert code == main(['verify', 'out']) == 0\n"
    "assert json.loads(pathlib.Path('out/report.json').read_text())['documents']['kept'] == 2\n"
)


def copy_tree(target: Path) -> None:
    """Copy the files under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (source := ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(source.read_bytes())


def cut(target: Path, leaf: str) -> re.Pattern[str]:
    """Remove a leaf from a copy of the tree. Return a pattern that finds what was cut in names and errors of tests."""
    files = [path.relative_to(ROOT) for path in files_of(leaf)]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files if path.suffix == ".py"}
    for path in files:
        (target / path).unlink(missing_ok=True)  # compiled code is not copied
    forms = (target / FORMS).read_text("utf-8")
    classes = {
        found for name in modules for found in re.findall(rf"^from {re.escape(name)} import (\w+)$", forms, re.M)
    }
    for name in TABLES:
        (target / name).write_text(without((target / name).read_text("utf-8"), modules, classes), "utf-8")
    python(target, "-m", "tests.scripts.make_functions")
    names = {*python(ROOT, "-c", NAMES).splitlines()} - {*python(target, "-c", NAMES).splitlines()}
    forms_of_names = [rf"(?:curate |curation\.|, |['\"`]){name}\b|\b{name}\(" for name in names]
    paths = [re.escape(name) for name in [*map(Path.as_posix, files), f"[{leaf}]"]]
    return re.compile("|".join([*forms_of_names, *paths]))


def without(table: str, modules: set[str], classes: set[str]) -> str:
    """Return the text of a table without the entries of modules, and of classes of forms."""
    for module in modules:
        name = module.rpartition(".")[2]
        table = re.sub(rf'^    "{re.escape(module)}": \([^)]*\),\n', "", table, flags=re.MULTILINE)  # of `_HOMES`
        if module.startswith("curation.cli."):  # of `groups.py`
            table = re.sub(rf"^    {name},\n", "", table, flags=re.MULTILINE)
            table = re.sub(rf"\b{name}\.[A-Z_]+,?[ \n]*", "", table)
        table = re.sub(rf"^from {re.escape(module)} import .*\n", "", table, flags=re.MULTILINE)
    for name in classes:
        table = re.sub(rf"^    \w+: {name} = .*\n", "", table.replace(f'"{name}", ', ""), flags=re.MULTILINE)
    return table


def python(place: Path, *arguments: str) -> str:
    """Return what Python prints in a folder. CalledProcessError if it fails."""
    return subprocess.run([sys.executable, *arguments], cwd=place, stdout=subprocess.PIPE, text=True, check=True).stdout


def failures(target: Path) -> list[str]:
    """Return the tests of a copy that fail, with their errors."""
    subprocess.run([sys.executable, *TESTS, OF_DEVICES], cwd=target, stdout=subprocess.DEVNULL, check=False)
    return [
        "\n".join(
            [f"{case.get('classname')} {case.get('name')}", *re.findall(r"^E .*", found.text or "", re.MULTILINE)]
        )
        for case in ElementTree.parse(target / "tests.xml").iter("testcase")
        for found in case
        if found.tag in ("failure", "error")
    ]


def check(leaf: str) -> tuple[list[str], int]:
    """Return the faults of the tree without a leaf, and the number of tests that fail over a name that was cut."""
    with TemporaryDirectory() as folder:
        target = Path(folder)
        copy_tree(target)
        was_cut = cut(target, leaf)
        failed = failures(target)
        faults = [text for text in failed if IMPORT.search(text) or not was_cut.search(text)]
        (target / "work").mkdir()
        run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r})\n{RUN}"]
        done = subprocess.run(run, cwd=target / "work", capture_output=True, text=True, check=False)
        return faults + [done.stdout + done.stderr] * bool(done.returncode), len(failed) - len(faults)


def main(leaves: Sequence[str]) -> int:
    faults = {}
    for leaf in leaves or LEAVES:
        faults[leaf], named = check(leaf)
        told = "\n".join(faults[leaf]) or f"can be cut off; {named} tests fail over its names"
        sys.stdout.write(f"{leaf}: {told}\n")
        sys.stdout.flush()
    return int(any(faults.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
