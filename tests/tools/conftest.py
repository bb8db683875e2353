# SPDX-License-Identifier: Apache-2.0
"""The fixture `use`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from curation.tools.synthesis import asking
from tests.tools.model import Model, Models


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Model], Models]:
    """Let `generate` ask a function of the prompt; returns what it was asked."""

    def used(model: Model) -> Models:
        models = Models(model)
        monkeypatch.setattr(asking, "Endpoint", models)
        return models

    return used
