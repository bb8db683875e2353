# SPDX-License-Identifier: Apache-2.0
"""Samples of a plan, whatever the load of the machine."""

import pytest

from curation.reading import excerpts
from curation.running.planning import survey


@pytest.fixture(autouse=True)
def _whole_samples(monkeypatch: pytest.MonkeyPatch):
    """Two plans of one recipe have the same sample: no limit of time ends one of them earlier."""
    monkeypatch.setattr(excerpts, "MAX_SECONDS", 3600.0)
    monkeypatch.setattr(survey, "MAX_SECONDS", 3600.0)
