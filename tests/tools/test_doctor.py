# SPDX-License-Identifier: Apache-2.0
"""The self-check sees every difference and says what is missing."""

from importlib.util import find_spec

import numpy as np
import pytest

from curation.base.contract import ENGINE_FUNCTIONS
from curation.base.engine import gpu_obstacle, load_engine
from curation.base.errors import InputError
from curation.base.system.toolchain import Toolchain
from curation.tools import doctor
from tests.golden.recording import engine_results


def test_documents_never_change():
    documents = doctor.generate_documents(500)
    assert doctor.generate_documents(500) == documents
    assert documents[:499] == doctor.generate_documents(900)[:499]
    assert None in documents and "" in documents
    assert max(len(text or "") for text in documents) > 30_000
    digest = doctor.digest(doctor._text_arrays(doctor._table(documents)[doctor.TEXT]))
    assert digest == "618cfe21871b9288876090f8465d14a1485f9d737fcc268366f446e31318edc5"


def test_every_function_that_computes_is_checked():
    functions = {name for names in ENGINE_FUNCTIONS.values() for name in names}
    expected = functions - {"describe", "open_session", "batch_bytes", "tokens_at_once", "read_slice"}
    expected -= set() if find_spec("sklearn") else {"fit_centroids"}
    if not doctor._language_model():
        expected -= {"classify"}
    checked = " ".join(engine_results(load_engine("cpu"), doctor.generate_documents(60)))
    assert {name for name in functions if name in checked} == expected


def test_a_difference_is_seen(monkeypatch):
    class Other:
        def __getattr__(self, name):
            return getattr(load_engine("cpu"), name)

        def byte_lengths(self, text):
            return load_engine("cpu").byte_lengths(text) + (np.arange(len(text)) == 17)

    engines = {"cpu": load_engine("cpu"), "gpu": Other()}
    monkeypatch.setattr(doctor, "load_engine", engines.get)
    assert doctor.self_check(["cpu", "gpu"], 60).differing == ["byte_lengths"]
    assert doctor.self_check(["cpu", "cpu"], 60).differing == []


class Failing:
    def describe(self):
        return {"engine": "gpu", "device": "made"}

    def from_arrow(self, table):
        raise RuntimeError("an illegal memory access was encountered")


def test_diagnose_shows_what_fails(monkeypatch):
    monkeypatch.setattr(doctor, "NUM_DOCUMENTS", 60)
    monkeypatch.setattr(doctor, "gpu_obstacle", lambda: "")
    monkeypatch.setattr(doctor, "load_engine", {"cpu": load_engine("cpu"), "gpu": Failing()}.get)
    lines, sound = doctor.diagnose()
    assert not sound
    assert lines[1] == "engine gpu: device made"
    assert lines[2].startswith("CUDA toolchain: ")
    place = lines.index("  FAILED: from_arrow on gpu; please report this with the lines above")
    assert "illegal memory access" in lines[place + 1]


@pytest.mark.parametrize(("obstacle", "sound"), [("", False), ("no NVIDIA driver was found. Install it", True)])
def test_a_toolchain_that_does_not_go_together_is_a_fault_of_a_usable_gpu(monkeypatch, obstacle, sound):
    cpu = load_engine("cpu")
    monkeypatch.setattr(doctor, "NUM_DOCUMENTS", 60)
    monkeypatch.setattr(doctor, "gpu_obstacle", lambda: obstacle)
    monkeypatch.setattr(doctor, "load_engine", {"cpu": cpu, "gpu": cpu}.get)
    monkeypatch.setattr(doctor, "find_toolchain", lambda: Toolchain("12.8", "", "", "", "13.5.37"))
    lines, found = doctor.diagnose()
    assert found is sound
    assert "they do not go together: the linker 13.5.37 makes machine code for CUDA 13" in lines[2]


def test_a_function_that_fails_hides_no_other(monkeypatch):
    class Partly:
        def __getattr__(self, name):
            return getattr(load_engine("cpu"), name)

        def measure(self, text, names):
            raise RuntimeError("too many resources requested for launch")

        def connected_components(self, left, right, rows):
            return load_engine("cpu").connected_components(left, right, rows) + 1

    monkeypatch.setattr(doctor, "load_engine", {"cpu": load_engine("cpu"), "gpu": Partly()}.get)
    check = doctor.self_check(["cpu", "gpu"], 60)
    assert [*check.failed] == ["measure on gpu", "measure of a part on gpu"]
    assert "too many resources" in check.failed["measure on gpu"] and check.differing == ["connected_components"]
    assert set(check.digests["intersection_sizes"]) == {"cpu", "gpu"}


def test_a_library_that_is_not_installed_is_named_and_no_failure(monkeypatch):
    class Without:
        def __getattr__(self, name):
            return getattr(load_engine("cpu"), name)

        def fit_centroids(self, *_):
            raise InputError("cuML is not installed. pip install cuml-cu13")

    monkeypatch.setattr(doctor, "NUM_DOCUMENTS", 60)
    monkeypatch.setattr(doctor, "gpu_obstacle", lambda: "no NVIDIA driver was found")
    monkeypatch.setattr(doctor, "load_engine", lambda name: Without())
    lines, sound = doctor.diagnose()
    assert "  not checked: fit_centroids on cpu: cuML is not installed. pip install cuml-cu13" in lines and sound
    assert "fit_centroids" not in engine_results(Without(), doctor.generate_documents(60))


@pytest.mark.parametrize("obstacle", ["no NVIDIA driver was found. Install it", "the GPU's memory is full. Free some"])
def test_diagnose_says_what_is_missing(monkeypatch, obstacle):
    monkeypatch.setattr(doctor, "NUM_DOCUMENTS", 60)
    monkeypatch.setattr(doctor, "gpu_obstacle", lambda: obstacle)
    lines, sound = doctor.diagnose()
    assert sound  # it is no fault of the CPU engine
    assert lines[1] == f"engine gpu: not usable: {obstacle}"
    assert lines[-1] == "  only engine cpu ran: nothing to compare"


def test_digests_tell_types_and_shapes_apart():
    arrays = [np.zeros(4, np.int64), np.zeros(4, np.uint64), np.zeros((2, 2), np.int64), np.zeros(5, np.int64)]
    assert len({doctor.digest([array]) for array in arrays}) == 4


def test_diagnose(monkeypatch):
    monkeypatch.setattr(doctor, "NUM_DOCUMENTS", 60)
    lines, sound = doctor.diagnose()
    assert sound
    assert lines[0].startswith("engine cpu: device ")
    if gpu_obstacle():
        assert lines[1] == f"engine gpu: not usable: {gpu_obstacle()}"
        assert "nothing to compare" in lines[-1]
