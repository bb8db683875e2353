# SPDX-License-Identifier: Apache-2.0
"""The `engine` fixture, and how tests build and compare frames.

`--engine cpu|gpu` runs one engine only and fails where it cannot run; without it every engine that can run does, and
the others are skipped with the reason.
"""

import gc
import os
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings

from curation.base.contract import ID, ROW, TEXT, Frame
from curation.base.engine import PACKAGES, gpu_obstacle, load_engine
from curation.base.system import shared_files
from curation.base.system.memory import read_processors
from curation.base.system.progress import ProgressLines
from curation.stages.warm_up import GROUPS, warm_up
from tests.corpus import write_real_documents

ENGINES = tuple(PACKAGES)

EXAMPLES, ALL_EXAMPLES = 40, 100  # of a property, in README's command and with the slow tests

settings.register_profile("local", deadline=None, max_examples=EXAMPLES, print_blob=True)
settings.register_profile("all", settings.get_profile("local"), max_examples=ALL_EXAMPLES)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
# A kernel launch per example costs milliseconds.
settings.register_profile(
    "gpu", settings.get_profile("ci"), max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("stand-in", settings.get_profile("gpu"), max_examples=20)  # a thread is a call of Python


@cache
def missing_for(name: str) -> str:
    """What keeps the engine from running on this machine; empty when it can run."""
    return gpu_obstacle() if name == "gpu" else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=ENGINES, help="test this engine only, and fail where it cannot run")
    parser.addoption("--passed", type=Path, help="leave out the tests named in this file; then name those that passed")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected: objects of 9,000 tests live as long as the process
    keep_bytecode(config.rootpath / ".pytest_cache" / "bytecode")
    chosen = config.getoption("--engine")
    if chosen and missing_for(chosen):
        raise pytest.UsageError(f"--engine {chosen}: {missing_for(chosen)}")
    settings.load_profile(profile_of(config))
    os.fsync = os.fstat  # refuses the same descriptors; no machine crashes here, and a run syncs 50 times
    shared_files.WAITS = (0.0,) * len(shared_files.WAITS)  # no other machine replaces the damaged files of tests
    if config.getoption("--passed") and "PYTEST_CURRENT_TEST" not in os.environ:  # not in a session that a test starts
        config.pluginmanager.register(Passed(config), "passed")


def profile_of(config: pytest.Config) -> str:
    if config.getoption("--engine") == "gpu":
        stands_in = any(config.pluginmanager.hasplugin(f"tests.{name}.plugin") for name in ("gpu", "ptx"))
        return "stand-in" if stands_in else "gpu"
    return "ci" if os.environ.get("CI") else "local" if config.option.markexpr else "all"


def keep_bytecode(folder: Path) -> None:
    """Where the environment forbids bytecode in source folders: keep it elsewhere, or each process that a test starts
    compiles 1,400 modules, which takes a second."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(folder))
        sys.pycache_prefix, sys.dont_write_bytecode = os.environ["PYTHONPYCACHEPREFIX"], False


class Passed:
    """Two environments run all tests between them: the second one runs only what did not pass in the first."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.path = config, config.getoption("--passed").absolute()
        self.names = set(self.path.read_text("utf-8").splitlines()) if self.path.exists() else set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self.names]
        items[:] = [item for item in items if item.nodeid not in self.names]
        self.config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.names.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if not hasattr(self.config, "workerinput"):
            self.path.write_text("".join(f"{name}\n" for name in sorted(self.names)), "utf-8")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile all kernels once before workers of xdist start, which would each compile them at the same time."""
    if getattr(session.config.option, "numprocesses", None):
        warm_up(list(GROUPS), ProgressLines(), read_processors())


def pytest_collection_finish() -> None:
    gc.freeze()  # collections during tests do not look at the tests themselves
    gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    chosen = config.getoption("--engine")
    missing = {name: missing_for(name) for name in ([chosen] if chosen else ENGINES)}
    return "engines: " + ", ".join(f"{name} (skipped: {why})" if why else name for name, why in missing.items())


def _engine_param(name: str):
    missing = missing_for(name)
    return pytest.param(name, marks=pytest.mark.skip(reason=f"engine {name}: {missing}")) if missing else name


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--engine")
        names = [chosen] if chosen else ENGINES
        metafunc.parametrize("engine", [_engine_param(name) for name in names], indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """A module with all functions of the contract, once per engine."""
    return load_engine(request.param)


@pytest.fixture(scope="session")
def real_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real documents as JSON Lines."""
    return write_real_documents(tmp_path_factory.mktemp("real"))


def table_of(texts: list[str | None]) -> pa.Table:
    """A table as readers give it: row, id, text."""
    rows = range(len(texts))
    ids = [f"doc-{row}" for row in rows]
    columns = [pa.array(rows, pa.int64()), pa.array(ids, pa.large_string()), pa.array(texts, pa.large_string())]
    return pa.table(columns, names=[ROW, ID, TEXT])


def hidden_nulls() -> pa.Table:
    """Three documents, the second of them null over bytes that are not empty, as Arrow allows."""
    valid, offsets = pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 3, 9, 12], np.int64))
    hidden = pa.LargeStringArray.from_buffers(3, offsets, pa.py_buffer(b"a bhiddenc d"), valid)
    return table_of(["", "", ""]).set_column(2, TEXT, hidden)


def frame_of(engine: ModuleType, texts: list[str | None]) -> Frame:
    """A frame of the engine with these documents."""
    return engine.from_arrow(table_of(texts))


def assert_same_frames(engine: ModuleType, left: Frame, right: Frame) -> None:
    """The same columns in the same order with the same rows; indexes do not count."""
    left, right = engine.to_arrow(left), engine.to_arrow(right)
    assert left.column_names == right.column_names
    assert left.to_pydict() == right.to_pydict()
    assert left.schema.types == right.schema.types
