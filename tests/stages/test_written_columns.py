# SPDX-License-Identifier: Apache-2.0
"""Columns of a stage that compares documents: lost files, and a stage that announces what it does not store."""

from typing import Any

import numpy as np
import pytest

import curation
from curation.base.errors import StageError


class Announces(curation.CorpusStage, frozen=True, kw_only=True, tag="tests.stages.test_written_columns:Announces"):
    def writes(self) -> dict[str, str]:
        return {"group": "int64"}

    def keys(self, engine: Any, frame: Any) -> dict[str, np.ndarray]:
        return {}

    def decide(self, engine: Any, corpus: Any) -> curation.Decision:
        return curation.Decision()


def test_a_stage_that_stores_none_of_its_columns():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(StageError, match=r"writes\(\) names columns, and the stage has stored none\. Write them in a"):
        curation.apply(pandas.DataFrame({"text": ["one"]}), Announces())
