# SPDX-License-Identifier: Apache-2.0
"""Texts without a visible character are rejected with their line, wherever a run reads them, unless a setting keeps
them."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import regex

import curation
from curation.kernels.look_alikes import DRAWN, blank_characters
from curation.reading.blank import BLANK, blank_texts
from curation.recipes.changes import completed
from curation.recipes.recipe import Recipe
from curation.results.finished.verify import verify
from curation.running.planning.estimate import estimate
from curation.running.run import run
from tests.runs import recipe_of, records_of, table_rows

TEXTS = ["a", "", " \n\t", "\u200b", "\ufeff x", "\u3164\u00a0", "b\n\n \n\nc", "\u0640", "\x00"]
VISIBLE = ["a", "\ufeff x", "b\n\n \n\nc", "\u0640"]
LINES = [3, 4, 5, 7, 10]  # of the others: a blank line is the second one
WARNING = (
    "input 'a': 5 of 9 documents have no visible character (56%) and are rejected. If another column has the text, set "
    "text_column of the input. To keep them, set keep_blank: true"
)
PARTS: dict[str, Any] = {"split": {"at": "\n\n"}}


def test_blank_characters_are_those_that_unicode_draws_as_nothing():
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    drawn = {*map(chr, DRAWN)}
    expected = {*regex.findall(r"[\p{Cc}\p{Cf}\p{DI}\s\u001c-\u001f]", "".join(points))} - drawn
    assert {chr(point) for point in np.flatnonzero(blank_characters()).tolist()} == expected


def test_texts_of_blank_characters():
    found = blank_texts(pa.chunked_array([pa.array(TEXTS, pa.large_string())]))
    assert [text for text, is_blank in zip(TEXTS, found, strict=True) if not is_blank] == VISIBLE


@pytest.mark.parametrize(
    ("inputs", "settings", "kept", "lines"),
    [
        (1, {}, VISIBLE, LINES),
        (2, {}, VISIBLE, LINES),
        (2, {"keep_blank": True}, TEXTS, []),
        (1, {"skip": 3}, VISIBLE[1:], [5, 7, 10]),
        (1, {"max_documents": 3}, VISIBLE[:3], LINES[:4]),
        (2, PARTS, ["a", "\ufeff x", "b", "c", "\u0640"], [3, 4, 5, 7, 8, 10]),
    ],
    ids=["alone", "together", "kept", "skip", "budget", "parts"],
)
def test_runs_reject_texts_without_a_visible_character(
    tmp_path: Path, inputs: int, settings: dict[str, Any], kept: list[str], lines: list[int]
):
    """Two small inputs share a task: another one comes first."""
    first, *others = records_of(TEXTS).splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([first, b"".join(others)]))
    (tmp_path / "0.jsonl").write_bytes(records_of(["z"]))
    before = [{"path": str(tmp_path / "0.jsonl"), "name": "z"}] * (inputs - 1)
    own = {"path": str(tmp_path / "a.jsonl"), "keep_blank": False, **settings}
    recipe = recipe_of(*before, own, stages=[], output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu").report
    assert [text for (text,) in table_rows(tmp_path / "out" / "documents", "text")] == ["z"] * (inputs - 1) + kept
    rejected = [*map(orjson.loads, (tmp_path / "out" / "rejected.jsonl").read_bytes().splitlines())]
    assert [(entry["source"], entry["line"], entry["error"]) for entry in rejected] == [
        ("a", line, BLANK) for line in lines
    ]
    assert report["sources"][-1].get("documents_split", 9) == 9 and verify(tmp_path / "out") == []
    assert (WARNING in report["warnings"]) == (not settings)
    if not settings:
        planned = estimate(recipe).warnings
        assert WARNING.replace("documents have", "sampled documents have") in planned


@pytest.mark.parametrize(("keep", "kept"), [(False, VISIBLE), (True, TEXTS)])
def test_frames_have_the_documents_of_runs(tmp_path: Path, keep: bool, kept: list[str]):
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    frame = curation.read(tmp_path / "a.parquet", engine="cpu", keep_blank=keep)
    with nullcontext() if keep else pytest.warns(curation.InputWarning, match=f"5 of 9 .*line 2: {BLANK}"):
        assert frame.compute()["text"].tolist() == kept


def test_a_report_without_the_setting_is_of_a_run_that_kept_them():
    entry = completed({"input": [{"kind": "files", "path": "a"}], "stages": []})["input"][0]
    assert (entry["keep_blank"], Recipe(input=[curation.Input("a")]).input[0].keep_blank) == (True, False)
