# SPDX-License-Identifier: Apache-2.0
"""What is said twice is said equally: bounds in pyproject.toml and environment.yml, commands in README and Makefile."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import curation

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
ONLY_CONDA = {"cuda-version", "pip"}  # pip packages carry the CUDA version in their names


def pip_bounds(*groups: list[str]) -> dict[str, SpecifierSet]:
    requirements = [Requirement(line) for group in groups for line in group]
    return {re.sub(r"-cu(da)?1[23]x?$", "", canonicalize_name(item.name)): item.specifier for item in requirements}


def conda_bounds() -> dict[str, SpecifierSet]:
    """conda writes `=` where pip writes `==`."""
    lines = [line for line in ENVIRONMENT["dependencies"] if isinstance(line, str)]
    pairs = [re.fullmatch(r"([a-z-]+)(.*)", line).groups() for line in lines]
    return {name: SpecifierSet(re.sub(r"^=+", "==", bound)) for name, bound in pairs if name not in ONLY_CONDA}


def test_conda_bounds_equal_pip_bounds():
    expected = pip_bounds(PROJECT["dependencies"], EXTRAS["cu13"], EXTRAS["distributed"])
    expected["python"] = SpecifierSet(PROJECT["requires-python"])
    assert conda_bounds() == {name: expected.get(name) for name in conda_bounds()}


def test_conda_brings_all_of_rapids_and_pip_the_project():
    assert set(pip_bounds(EXTRAS["cu13"])) <= set(conda_bounds())
    assert ENVIRONMENT["channels"] == ["rapidsai", "conda-forge", "nvidia"]
    assert ENVIRONMENT["dependencies"][-1] == {"pip": ["--editable ."]}


def test_both_cuda_versions_ask_for_the_same_rapids():
    assert [re.sub("(cu|cuda)12", r"\g<1>13", line) for line in EXTRAS["cu12"]] == EXTRAS["cu13"]
    assert {str(bound) for name, bound in pip_bounds(EXTRAS["cu12"]).items() if name != "cupy"} == {"==26.10.*"}


def test_version_is_the_same_everywhere():
    assert curation.__version__ == PROJECT["version"]
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize("target", ["demo", "test"])
def test_readme_and_makefile_have_the_same_commands(target: str):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    command = re.search(rf"^{target}:.*\n\t(python3 .*)$", makefile, re.MULTILINE)[1]
    marked = rf"^<!-- {target}-command -->$(.*?)^<!-- /{target}-command -->$"
    block = re.search(marked, (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert block, f"README.md has no <!-- {target}-command --> ... <!-- /{target}-command -->"
    assert command in block[1].splitlines()
