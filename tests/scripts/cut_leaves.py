# SPDX-License-Identifier: Apache-2.0
"""Cut off each leaf of `curation` in a copy of the tree, and check that the rest is whole, for `make test-leaves`.

The copy lacks the files of the leaf, its lines in the tables and the tests that import it. It must pass the tests of
imports and curate a few documents.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.leaves import LEAVES, ROOT, TABLES, files_of

FORMS = "curation/tokens/forms/__init__.py"
RUN = (
    "import curation\n"
    "[getattr(curation, name) for name in curation.__all__]\n"
    "from curation.cli.main import main\n"
    "texts = [{'text': f'{word} ' * 60} for word in ('one', 'two', 'two')]\n"
    "import json, pathlib\n"
    "pathlib.Path('in.jsonl').write_text(''.join(json.dumps(text) + '\\n' for text in texts))\n"
    "stages = [{'kind': 'exact_dedup'}, {'kind': 'fuzzy_dedup'}]\n"
    "recipe = {'input': [{'path': 'in.jsonl'}], 'stages': stages, 'tokenizer': {'name': 'bytes'}}\n"
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


def cut(target: Path, leaf: str) -> None:
    """Remove a leaf from a copy of the tree."""
    files = [path.relative_to(ROOT) for path in files_of(leaf)]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files if path.suffix == ".py"}
    for path in files:
        (target / path).unlink()
    forms = (target / FORMS).read_text("utf-8")
    classes = {
        found for name in modules for found in re.findall(rf"^from {re.escape(name)} import (\w+)$", forms, re.M)
    }
    for name in TABLES:
        (target / name).write_text(without((target / name).read_text("utf-8"), modules, classes), "utf-8")
    names = re.compile("|".join(rf"{re.escape(name)}\b|{re.escape(name.replace('.', '/'))}\b" for name in modules))
    parts = re.compile("|".join(rf"from {re.escape(name.rpartition('.')[0])} import .*\b{name.rpartition('.')[2]}\b"
                                for name in modules))  # fmt: skip
    for path in [*(target / "tests").rglob("test_*.py")]:
        text = path.read_text("utf-8")
        if path.name != "test_imports.py" and (names.search(text) or parts.search(text)):
            path.unlink()


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


def check(leaf: str) -> str:
    """Return the fault of the tree without a leaf; "" if there is none."""
    with TemporaryDirectory() as folder:
        target = Path(folder)
        copy_tree(target)
        cut(target, leaf)
        (target / "work").mkdir()
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/test_imports.py"]
        tests += ["-k", "not leaf"]  # the list still names the leaf
        run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r})\n{RUN}"]
        for command, place in ((tests, target), (run, target / "work")):
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stdout[-3_000:] + done.stderr[-3_000:]
    return ""


def main(leaves: Sequence[str]) -> int:
    faults = {}
    for leaf in leaves or LEAVES:
        faults[leaf] = check(leaf)
        sys.stdout.write(f"{leaf}: {faults[leaf] or 'can be cut off'}\n")
        sys.stdout.flush()
    return int(any(faults.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
