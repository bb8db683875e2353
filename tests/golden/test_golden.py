# SPDX-License-Identifier: Apache-2.0
"""The CPU engine against results recorded on a real GPU, so that machines without one test what a GPU computed."""

from pathlib import Path

import numpy as np
import pytest

from curation.base.engine import load_engine
from curation.base.measures import Measure
from curation.tools import doctor
from tests.golden import recording

CHANGED = ("split_words",)  # words by scripts and by the table end elsewhere since WORDS_VERSION 2
FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def documents() -> list[str | None]:
    return doctor.generate_documents(doctor.NUM_DOCUMENTS)


@pytest.fixture(scope="module")
def golden() -> recording.Golden:
    recorded = recording.read_golden(FOLDER)
    if recorded is None:
        pytest.skip("no results of a GPU have been recorded yet: run `make gpu-check` on a machine with one")
    return recorded


def results(documents, measures: list[str]) -> dict[str, list[np.ndarray]]:
    """The results of the CPU engine, of `measure` those of these measures."""
    found = recording.engine_results(load_engine("cpu"), documents)
    by_name = dict(zip((measure.name for measure in Measure), found["measure"], strict=True))
    return found | {"measure": [by_name[name] for name in measures]}


def test_documents_are_those_of_the_recording(golden, documents):
    digest = doctor.digest(doctor._text_arrays(doctor._table(documents)[doctor.TEXT]))
    assert digest == golden.documents, "generate_documents was changed: record again on a GPU"


def test_some_results_whole(golden, documents):
    few = results(documents[: recording.NUM_GOLDEN_DOCUMENTS], golden.measures)
    for name, expected in golden.arrays.items():
        function, _, position = name.rpartition("/")
        np.testing.assert_array_equal(few[function][int(position)], expected, name, strict=True)


def test_all_results_by_digest(golden, documents):
    """All but those of functions that have other results since the recording."""
    actual = {name: doctor.digest(arrays) for name, arrays in results(documents, golden.measures).items()}
    expected = {name: value for name, value in golden.digests.items() if name != "classify" or name in actual}
    assert {name for name in CHANGED if actual[name] == expected.pop(name)} == set()
    assert {name: actual.get(name) for name in expected} == expected


def test_recording_and_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "NUM_DOCUMENTS", 300)
    assert recording.read_golden(tmp_path) is None
    recording.record_golden(tmp_path, "cpu")
    read = recording.read_golden(tmp_path)
    assert read.recorded_on["engine"] == "cpu"
    assert {name.rpartition("/")[0] for name in read.arrays} == set(recording.GOLDEN_ARRAYS)
    actual = results(doctor.generate_documents(300), read.measures)
    assert read.digests == {name: doctor.digest(arrays) for name, arrays in actual.items()}
