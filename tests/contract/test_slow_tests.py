# SPDX-License-Identifier: Apache-2.0
"""Each slow test states what it guarantees; without optional packages tests are skipped, not broken."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import REMEDIES

ROOT = Path(__file__).resolve().parents[2]


def promises_of(path: Path) -> dict[tuple[str, str], str]:
    """Tests with a mark `slow`, on the function or on some of its parameters, and the argument of the mark."""
    found, text = {}, path.read_text("utf-8")
    for function in ast.walk(ast.parse(text)) if "pytest.mark.slow" in text else ():
        for mark in ast.walk(ast.Module(getattr(function, "decorator_list", []), [])):
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.slow":
                found[str(path.relative_to(ROOT)), function.name] = ast.literal_eval(mark.args[0])
    return found


def test_each_slow_test_has_a_promise_of_its_own():
    promises = [promise for path in (ROOT / "tests").glob("**/*.py") for promise in promises_of(path).values()]
    assert len({*promises}) == len(promises) > 30


def test_no_test_asks_for_an_optional_package_without_the_remedy():
    asked = {path: path.read_text("utf-8") for path in (ROOT / "tests").glob("**/*.py")}
    pattern = re.compile(rf'importorskip\("(?:{"|".join(map(re.escape, REMEDIES))})"')
    assert [str(path) for path, text in asked.items() if pattern.search(text)] == []


@pytest.mark.slow("without optional packages, tests are skipped and none fails")
def test_without_optional_packages_nothing_fails():
    """All tests are collected, and those of the GPU engine run, but for those whose kernels take minutes."""
    hidden = [sys.executable, "-m", "pytest", "-q", "-p", "tests.hidden"]
    for arguments in (
        ["--collect-only"],
        ["tests/gpu", "-x", "-k", "not test_parity and (not test_layout or test_some or test_little)"],
    ):
        environment = os.environ | {"HIDDEN": " ".join(name.partition(".")[0] for name in REMEDIES)}
        done = subprocess.run(
            [*hidden, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-5000:]
