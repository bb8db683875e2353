# SPDX-License-Identifier: Apache-2.0
"""The speed of a machine is measured once, and stored for its processor and device."""

import json
import logging
from pathlib import Path

import pytest

import cpu_fallback
from curation.base import host_probe
from curation.base.errors import EngineError
from curation.base.host_probe import host_speed, stored_file, stored_speed
from curation.base.speeds import HostSpeed

DEVICE = "Made GPU"


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(host_probe, "TEXT_BYTES", 1 << 16)


def test_a_machine_is_measured_once(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    found = host_speed(cpu_fallback, DEVICE)
    assert len(caplog.messages) == 1 and min(found) > 0
    assert host_speed(cpu_fallback, DEVICE) == stored_speed(DEVICE) == found
    assert len(caplog.messages) == 1
    host_speed(cpu_fallback, "Other GPU")
    assert len(caplog.messages) == 2 and stored_speed(DEVICE) is None


@pytest.mark.parametrize(
    "change",
    [{"version": 0}, {"processor": "another"}, {"compute": 0}, {"copy": "fast"}, {"bus": None}, {"compute": -1.0}],
)
def test_a_stored_speed_of_another_machine_or_a_damaged_one_is_not_used(change: dict):
    host_speed(cpu_fallback, DEVICE)
    stored = json.loads(stored_file().read_bytes())
    stored_file().write_text(json.dumps(stored | change))
    assert stored_speed(DEVICE) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", "7"])
def test_a_damaged_file_is_no_speed(content: str):
    host_speed(cpu_fallback, DEVICE)
    stored_file().write_text(content)
    assert stored_speed(DEVICE) is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert min(host_speed(cpu_fallback, DEVICE)) > 0 and stored_speed(DEVICE) is None


def test_the_made_text_is_compressed_about_as_text_is(monkeypatch: pytest.MonkeyPatch):
    """Its bytes are the same on every machine."""
    monkeypatch.setattr(host_probe, "TEXT_BYTES", 1 << 12)
    text = host_probe._made_text()
    assert bytes(text[:24]) == b"labbsxp bwuzivq taljqwz " and text.size == 1 << 12


def test_the_defaults_are_those_of_the_model():
    assert HostSpeed() == (1.0, 11_500.0, 25_000.0)


def test_a_device_that_fails_leaves_the_model(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    def fail(table: object) -> None:
        raise EngineError("the GPU's memory is full")

    monkeypatch.setattr(cpu_fallback, "from_arrow", fail)
    assert host_speed(cpu_fallback, DEVICE) is None and stored_speed(DEVICE) is None
    assert "was not measured: the GPU's memory is full" in caplog.text
