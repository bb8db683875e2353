# SPDX-License-Identifier: Apache-2.0
"""`output.removed`: the texts and bounds in `removed/`."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from curation.base.errors import RecipeError
from curation.reading.source_files import RESERVED
from curation.recipes.doubts import recipe_warnings
from curation.record import removed_texts
from curation.results.finished.verify import verify
from curation.running.run import run
from tests.runs import made_texts, recipe_of, records_of, removed_rows, report_of, table_rows

STAGES = [
    {"kind": "rewrite", "unicode": "nfc"},
    {"kind": "exact_dedup"},
    {"kind": "measure", "script": True},
    {"kind": "filter", "rules": [{"measure": "words", "min": 5, "max": 40, "reason": "words"}]},
    {"kind": "language", "keep": ["en"]},
]
NAMES = ("doc", "stage", "reason", "value", "bound", "text")
GERMAN = "Die Katze sitzt seit gestern auf dem alten Dach."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("removed") / "a.jsonl"
    texts = ["cafe\u0301 twice", "cafe\u0301 twice", "three x y", "w " * 50]
    path.write_bytes(records_of([*made_texts(300), *texts]) + records_of([GERMAN], site="a.de", bound="own"))
    return path


def input_of(corpus: Path) -> dict[str, Any]:
    return {"path": str(corpus), "columns": {"site": "site", "bound": "bound"}}


@pytest.fixture(scope="module")
def finished(corpus: Path) -> Path:
    run(recipe_of(input_of(corpus), stages=STAGES), corpus.parent / "out", engine="cpu", slice_bytes=20_000)
    return corpus.parent / "out"


def test_a_removed_text_is_the_one_that_reached_its_stage_with_the_bound_it_broke(finished: Path):
    rows = {row[0]: row[1:] for row in table_rows(finished / "removed", *NAMES)}
    assert rows[301][:2] + rows[301][4:] == ("exact_dedup", "exact_duplicate", "caf\u00e9 twice")
    assert rows[301][3] is None
    assert rows[300] == ("filter", "words", 2.0, 5.0, "caf\u00e9 twice")
    assert rows[302] == ("filter", "words", 3.0, 5.0, "three x y")
    assert rows[303] == ("filter", "words", 50.0, 40.0, "w " * 50)
    assert len(rows) > 60
    assert verify(finished) == []


def test_a_removed_document_has_the_columns_that_it_had(finished: Path):
    """Also those of the stage that removed it. Later stages gave it none, and `bound` is a column of `removed/`."""
    names = ("doc", "stage", "site", "script", "language", "bound")
    rows = {row[0]: row[1:] for row in table_rows(finished / "removed", *names)}
    assert rows[304] == ("language", "a.de", "Latn", "de", None)
    assert rows[302] == ("filter", None, "Latn", None, 5.0)
    assert rows[301] == ("exact_dedup", None, None, None, None)
    assert any("has 'bound', which removed/ leaves out" in warning for warning in report_of(finished)["warnings"])


def test_a_warning_names_each_carried_column_that_removed_documents_lack():
    own = [
        *removed_texts.REMOVED_OUTPUT.names,
        *removed_texts.AddedColumns.of([], []).told.names,
        "matched_text",
        "title",
    ]
    carried = {name: f"my_{name}" for name in own if name not in RESERVED}
    stages = [{"kind": "decontaminate", "evaluation_files": ["e.txt"]}]
    recipe = recipe_of({"path": "x.jsonl", "columns": carried}, stages=stages)
    warnings = recipe_warnings(recipe)
    assert [warning.split("'")[1] for warning in warnings] == [name for name in carried if name != "title"]
    assert warnings[0].endswith("To have both, write columns: {input_stage: my_stage}")
    ids = msgspec.structs.replace(recipe, output=msgspec.structs.replace(recipe.output, removed="ids"))
    assert recipe_warnings(ids) == []


def test_the_report_names_the_reason_that_removes_most_of_a_language_and_an_input(finished: Path):
    report = report_of(finished)
    of_german = {"stage": "language", "reason": "language", "documents": 1}
    assert report["values"]["most_removed"]["de"] == of_german
    page = (finished / "report.html").read_text()
    assert "<td>language: language (1)</td>" in page
    reasons = Counter((stage, reason) for stage, reason in table_rows(finished / "removed", "stage", "reason"))
    [((stage, reason), documents)] = reasons.most_common(1)
    [source] = report["sources"]
    assert source["most_removed"] == {"stage": stage, "reason": reason, "documents": documents}


def test_ids_leave_the_texts_out_and_nothing_else(corpus: Path, finished: Path, tmp_path: Path):
    run(recipe_of(input_of(corpus), stages=STAGES, output={"removed": "ids"}), tmp_path / "out", engine="cpu")
    schema = pq.read_schema(tmp_path / "out/removed/part-00000.parquet")
    duplicate = ["duplicate_of", "duplicate_of_doc"]
    assert schema.names == ["doc", "id", "source", "stage", "reason", "value", *duplicate, "file", "line"]
    assert repr(removed_rows(tmp_path / "out")) == repr(removed_rows(finished))
    assert verify(tmp_path / "out") == []


@pytest.mark.slow("files of removed texts are cut by bytes of text, for any slices")
def test_files_are_cut_by_bytes_of_text_wherever_the_slices_end(
    corpus: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(removed_texts, "FILE_BYTES", 2_000)
    monkeypatch.setattr("curation.record.removed.FILE_BYTES", 2_000)
    monkeypatch.setattr(removed_texts, "ROW_GROUP_BYTES", 500)
    for name, size in (("small", 9_000), ("large", 1_000_000)):
        run(recipe_of(input_of(corpus), stages=STAGES), tmp_path / name, engine="cpu", slice_bytes=size)
    small, large = ([path.read_bytes() for path in sorted((tmp_path / name / "removed").iterdir())] for name in
                    ("small", "large"))  # fmt: skip
    assert small == large
    assert len(small) > 3
    assert repr(table_rows(tmp_path / "small/removed", *NAMES)) == repr(table_rows(finished / "removed", *NAMES))
    for path in (tmp_path / "small/removed").iterdir():
        assert sum(len(text.encode()) for (text,) in _texts(path)) <= 2_000
        assert pq.ParquetFile(path).num_row_groups > 1


def _texts(path: Path) -> list[tuple[str]]:
    return [(text,) for text in pq.read_table(path, columns=["text"]).column("text").to_pylist()]


def test_verify_finds_texts_that_are_missing(finished: Path, tmp_path: Path):
    import json
    import shutil

    from curation.base.system.files import as_json, file_sha256
    from curation.results.report.report import digest

    copy = Path(shutil.copytree(finished, tmp_path / "copy"))
    part = copy / "removed/part-00000.parquet"
    pq.write_table(pq.read_table(part).drop_columns(["text"]), part)
    content = json.loads((copy / "report.json").read_bytes())
    content["outputs"]["removed/part-00000.parquet"] = file_sha256(part)
    content["digest"] = digest(content)
    (copy / "report.json").write_bytes(as_json(content, indent=True))
    [problem] = verify(copy)
    assert "removed/part-00000.parquet is damaged: it has no column 'text' of type string" in problem


def test_another_value_is_refused():
    with pytest.raises(RecipeError, match="removed must be text or ids, not 'all'"):
        recipe_of(Path("a.jsonl"), output={"removed": "all"})
