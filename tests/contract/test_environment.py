# SPDX-License-Identifier: Apache-2.0
"""pyproject.toml and environment.yml have the same bounds, README and Makefile the same commands.

The steps of the Containerfile take files, extras and versions that exist.
"""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import curation
from curation.base.errors import installation

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
    expected = pip_bounds(PROJECT["dependencies"], EXTRAS["cu13"], EXTRAS["torch"])
    expected["python"] = SpecifierSet(PROJECT["requires-python"])
    expected["pytorch-gpu"] = expected.pop("torch")
    expected["brotli-python"] = pip_bounds(EXTRAS["warc"])["brotli"]  # its name in conda-forge
    assert conda_bounds() == {name: expected.get(name) for name in conda_bounds()}


def test_conda_brings_all_of_rapids_and_pip_the_project():
    assert set(pip_bounds(EXTRAS["cu13"])) <= set(conda_bounds())
    assert ENVIRONMENT["channels"] == ["rapidsai", "conda-forge", "nvidia"]
    assert ENVIRONMENT["dependencies"][-1] == {"pip": ["--editable .[test,torch,fasttext]"]}


def test_pip_brings_no_second_cuda_and_a_fasttext_that_trains():
    """What pip would install beside RAPIDS, conda has; nothing is named outside the extras, whose bounds are tested."""
    [pip] = ENVIRONMENT["dependencies"][-1]["pip"]
    extras = re.search(r"\[(.*)\]", pip)[1].split(",")
    named = pip_bounds(*(EXTRAS[extra] for extra in extras))
    assert {"torch", "pytest", "fasttext-modern"} <= set(named) and "fasttext" not in named
    brought_by_conda = {re.sub("^pytorch-gpu$", "torch", name) for name in conda_bounds()}
    of_cuda = {name for name in named if re.search("torch|cud|cupy|rmm|numba|nvidia|triton", name)}
    assert of_cuda <= brought_by_conda


def test_both_cuda_versions_ask_for_the_same_rapids():
    assert [re.sub("(cu|cuda)12", r"\g<1>13", line) for line in EXTRAS["cu12"]] == EXTRAS["cu13"]
    rapids = {bound for name, bound in pip_bounds(EXTRAS["cu12"]).items() if re.match("cu[dm]|dask-", name)}
    assert {str(bound) for bound in rapids} == {"==26.10.*"}


def test_versions_of_rapids_are_in_the_ranges_without_it():
    """So one Dask, Numba and pandas can serve both engines. Tests of the device code have these versions too."""
    base, rapids = pip_bounds(PROJECT["dependencies"], EXTRAS["distributed"]), pip_bounds(EXTRAS["cu13"])
    both = ["dask", "distributed", "numba", "pandas"]
    lowest = {name: re.search(r"[>=]=([\d.]+)", str(rapids[name]))[1] for name in both}
    assert {name: lowest[name] in base[name] for name in both} == dict.fromkeys(both, True)
    ptx = pip_bounds(EXTRAS["ptx"])
    assert {name: ptx[name] for name in both if name in ptx} == {
        name: rapids[name] for name in both if name != "distributed"
    }


def test_version_is_the_same_everywhere():
    versions = [item.rpartition(" ")[2] for item in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", item)]
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert versions == [version for number in range(30) if (version := f"3.{number}") in allowed]
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


# Containerfile

STEPS = [
    line.partition(" ")[::2]
    for line in (ROOT / "Containerfile").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def steps_of(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def test_the_image_has_a_version_of_python_that_is_allowed():
    [image, version] = re.fullmatch(r"BASE=(\w+):([\d.]+)-slim", steps_of("ARG")[0]).groups()
    assert image == "python" and version in SpecifierSet(PROJECT["requires-python"])
    assert [line.split()[0] for line in steps_of("FROM")] == ["${BASE}", "${BASE}"]  # a short name: the user's registry


def test_the_image_is_made_of_files_that_are_sent_to_the_builder():
    """All that a wheel is made of, and the module that compiles kernels for it."""
    ignored, *kept = (ROOT / ".containerignore").read_text("utf-8").split()
    copied = [words[:-1] for line in steps_of("COPY") if (words := line.split()) and not words[0].startswith("--")]
    paths = {path for words in copied for path in words}
    assert ignored == "*" and {line[1:] for line in kept if line.startswith("!")} == paths
    assert all((ROOT / path).exists() for path in paths)
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], "pyproject.toml", PROJECT["readme"], "tests/tools"} <= paths


def test_the_image_has_compiled_kernels_and_a_user_without_rights():
    runs = [command.strip() for line in steps_of("RUN") for command in line.split("&&")]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    [compiles] = [run for run in runs if run.startswith("python -m ")]
    assert compiles in makefile and runs.index('pip install ".${EXTRAS}"') < runs.index(compiles)
    assert runs[runs.index(compiles) + 1] == "pip install --no-deps --force-reinstall ."
    [user] = steps_of("USER")
    assert int(user) > 0 and f"useradd --uid {user} --create-home curate" in runs
    assert steps_of("ENTRYPOINT") == ['["curate"]'] and "curate" in PROJECT["scripts"]
    last = [step for step, _ in STEPS][[step for step, _ in STEPS].index("FROM", 2) :]
    assert last.count("COPY") == 1 and "USER" in last  # the last stage has the environment of the first alone


def test_extras_of_all_pages_exist():
    pages = [ROOT / "README.md", ROOT / "Containerfile", *(ROOT / "docs").glob("**/*.md")]
    found = {page: re.findall(r"(?:'|\.|\)|gpu-pipeline)\[([\w,-]+)\]'", page.read_text("utf-8")) for page in pages}
    named = {page.name: {name for names in lists for name in names.split(",")} for page, lists in found.items()}
    assert {page: names - set(EXTRAS) for page, names in named.items() if names - set(EXTRAS)} == {}
    assert len(set().union(*named.values())) > 10


def test_the_table_of_extras_is_complete():
    page = (ROOT / "docs/installing.md").read_text("utf-8")
    [table] = re.findall(r"^\| extra \| adds \|\n\|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert {name for row in table.splitlines() for name in re.findall(r"`([\w-]+)`", row.split("|")[1])} == set(EXTRAS)


WITHOUT_EXTRA = {"gdown", "socksio", "fasttext-modern", "unicodedata2"}  # or in the base


def test_messages_name_extras_that_exist():
    """In both forms, by `curation.base.errors.installation`, so that bounds are in pyproject.toml alone."""
    folders = ("curation", "cpu_fallback", "gpu_pipeline")
    sources = [path.read_text("utf-8") for folder in folders for path in (ROOT / folder).glob("**/*.py")]
    named = {name for text in sources for name in re.findall(r"installation\([\"']([\w-]+)[\"']\)", text)}
    assert len(named) > 10 and named <= set(EXTRAS)
    assert installation("warc") == "pip install 'gpu-pipeline[warc]', or '.[warc]' in a clone"
    others = {name for text in sources for name in re.findall(r"pip install (?:--\S+ |\"\s+f?\")*'?(\w[\w-]*)", text)}
    assert others - {"gpu-pipeline"} <= WITHOUT_EXTRA
