# SPDX-License-Identifier: Apache-2.0
"""Columns of a stage that compares documents: lost files, and a stage that announces what it does not store."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import curation
from curation.base.arrays import save_array
from curation.base.errors import IntegrityError, StageError
from curation.stages.corpus.written_columns import WrittenColumns


class Announces(curation.CorpusStage, frozen=True, kw_only=True, tag="tests.stages.test_written_columns:Announces"):
    def writes(self) -> dict[str, str]:
        return {"group": "int64"}

    def keys(self, engine: Any, frame: Any) -> dict[str, np.ndarray]:
        return {}

    def decide(self, engine: Any, corpus: Any) -> curation.Decision:
        return curation.Decision()


def test_a_stage_that_stores_none_of_its_columns():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(StageError, match=r"writes\(\) names columns, but the stage has stored none\. Write them in a"):
        curation.apply(pandas.DataFrame({"text": ["one"]}), Announces())


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (None, "000002.npy does not exist"),
        (np.zeros((1, 3), np.int32), r"has int32 of shape \(1, 3\)"),
        (np.zeros((1, 2), np.int64), r"has int64 of shape \(1, 2\)"),
        (np.zeros((2, 3), np.int64), r"has int64 of shape \(2, 3\)"),
    ],
)
def test_a_file_that_is_not_what_the_stage_stored(values: np.ndarray | None, told: str, tmp_path: Path):
    if values is not None:
        save_array(tmp_path / "000002.npy", values)
    with pytest.raises(IntegrityError, match=rf"{told}.*Start over with --force"):
        WrittenColumns(tmp_path, ("copies",)).of(2, 0, 3)
