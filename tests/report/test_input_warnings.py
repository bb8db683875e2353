# SPDX-License-Identifier: Apache-2.0
"""A run over text without spaces between words says that rules on words mean little."""

import json
from pathlib import Path

from curation.reading.inputs import Input
from curation.recipes.recipe import Output, Recipe
from curation.running.run import run
from curation.stages import Filter

CHINESE = "這是一個沒有空格的句子。"
ENGLISH = "This is a sentence with spaces between its words. "


def warnings_of(folder: Path, texts: list[str]) -> list[str]:
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    recipe = Recipe(
        input=[Input(path=str(folder / "a.jsonl"))], stages=[Filter(rules="fineweb")], output=Output(formats=())
    )
    return run(recipe, folder / "out", engine="cpu").report["warnings"]


def test_unspaced_text_is_announced(tmp_path: Path):
    [warning] = warnings_of(tmp_path / "mixed", [CHINESE * 20, ENGLISH * 20])
    assert "without spaces" in warning and warning.startswith("filter: ")
    assert not warnings_of(tmp_path / "english", [ENGLISH * 20, CHINESE])
