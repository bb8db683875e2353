# SPDX-License-Identifier: Apache-2.0
"""A run whose parts another version has cut otherwise is refused when it is resumed."""

from pathlib import Path
from typing import Any

import pytest

from curation.base.errors import IntegrityError
from curation.running import phase_loop
from curation.running.phases import write_phase
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of


def test_parts_of_another_cut_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(60)))
    recipe = recipe_of(tmp_path / "a.jsonl", stages=[], output={"part_documents": 10})

    def call() -> Any:
        return run(recipe, tmp_path / "out", engine="cpu", workers=1, scheduler="threads", progress=False)

    with monkeypatch.context() as first:
        first.setattr(write_phase, "SHARED_DOCUMENTS", 20)
        first.setattr(phase_loop, "_finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            call()
    with pytest.raises(
        IntegrityError, match=r"outputs has parts that another version has cut\. Run again with --force"
    ):
        call()
