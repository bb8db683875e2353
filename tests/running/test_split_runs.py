# SPDX-License-Identifier: Apache-2.0
"""Runs over inputs that are split, joined and limited, against plain Python."""

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation import estimate, run
from curation.base.engine import load_engine
from curation.base.errors import InputError
from curation.reading.sampling import chosen
from curation.recipes.recipe import convert_recipe
from curation.results.finished.results import run_documents
from tests.runs import kept_rows, made_texts, rejected_rows, removed_rows

TEXTS = made_texts(120, seed=3)
RECORDS = [
    {"text": text, "url": f"u{number}"} | ({"id": f"x{number}"} if number % 3 else {})
    for number, text in enumerate(TEXTS)
]
SPLIT: dict[str, Any] = {"split": {"at": "\n"}, "keep_blank": True}
STAGES: list[Any] = [{"filter": {"rules": {"words": {"min": 2}}}}, "exact_dedup"]


def write(folder: Path, kind: str = "jsonl", records: list[dict] = RECORDS) -> Path:
    path = folder / f"a.{kind}"
    if kind == "parquet":
        schema = pa.schema([(name, pa.string()) for name in ("id", "text", "url")])
        pq.write_table(pa.Table.from_pylist(records, schema), path, row_group_size=13)
    else:
        data = b"".join(orjson.dumps(record) + b"\n" for record in records)
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    return path


def finish(folder: Path, path: Path, slice_bytes: int = 0, **settings: Any) -> Any:
    content = {"stages": settings.pop("stages", []), "output": {"formats": [], **settings.pop("output", {})}}
    content |= {name: settings.pop(name) for name in ("budget", "seed") if name in settings}
    recipe = convert_recipe(
        {"input": [{"path": str(path), "name": "a", "columns": ["url"], "keep_blank": True, **settings}], **content}
    )
    return run(recipe, folder, engine="cpu", slice_bytes=slice_bytes, workers=1, progress=False)


def expected_parts(records: list[dict] = RECORDS) -> list[tuple[int, str, str, str, str]]:
    """(doc, id, text, url, separator) of each part."""
    rows = []
    for record in records:
        first, pieces = len(rows), record["text"].split("\n")
        for number, piece in enumerate(pieces):
            id_ = record.get("id") or f"a/{first}"
            rows.append((len(rows), f"{id_}#{number}", piece, record["url"], "\n" * (number + 1 < len(pieces))))
    return rows


def test_split_filtered_deduplicated_and_joined(tmp_path: Path):
    few = RECORDS[:40]
    output = {"cleaned": "jsonl", "join": "id", "raw": "jsonl", "part_documents": 100}
    done = finish(tmp_path / "out", write(tmp_path, records=few), 5000, stages=STAGES, output=output, **SPLIT)
    parts, seen, kept = expected_parts(few), set(), []
    for part in parts:
        if len(part[2].split()) >= 2 and part[2] not in seen:
            seen.add(part[2])
            kept.append(part)
    assert [row[:2] for row in kept_rows(tmp_path / "out")] == [part[:2] for part in kept]
    raw = [
        json.loads(line) for path in sorted((tmp_path / "out/raw").iterdir()) for line in path.read_bytes().splitlines()
    ]
    assert [tuple(row[name] for name in ("doc", "id", "text", "url", "separator")) for row in raw] == parts
    joined: dict[str, list[tuple]] = {}
    for part in kept:
        joined.setdefault(part[1].rpartition("#")[0], []).append(part)
    found = [
        json.loads(line)
        for path in sorted((tmp_path / "out/cleaned").iterdir())
        for line in path.read_bytes().splitlines()
    ]
    assert [(row["id"], row["text"], row["url"], row["doc"]) for row in found] == [
        (id_, "\n".join(part[2] for part in own), own[0][3], own[0][0] - int(own[0][1].rpartition("#")[2]))
        for id_, own in joined.items()
    ]
    assert "separator" not in found[0]
    [source] = done.report["sources"]
    assert (source["documents_read"], source["documents_split"]) == (len(parts), len(few))
    duplicates = {row[1]: row[6] for row in removed_rows(tmp_path / "out") if row[3] == "exact_dedup"}
    by_text = {part[2]: part[1] for part in kept}
    assert duplicates and all(by_text[part[2]] == duplicates[part[1]] for part in parts if part[1] in duplicates)


def test_removed_and_rejected_parts_have_the_place_of_their_record(tmp_path: Path):
    lines = [orjson.dumps({"id": f"x{k}", "text": "one two\n\nalone\n\nthree four"}) for k in range(9)]
    lines[1] = lines[1].replace(b"{", b'{"long": "' + b"-" * 300 + b'", ', 1)  # slices without records
    lines[4:4] = [b"", b"{", b""]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines))
    finish(tmp_path / "out", path, 90, stages=STAGES[:1], columns=[], split={"at": "\n\n"})
    table = pq.read_table(tmp_path / "out" / "removed" / "part-00000.parquet")
    assert table.column("id").to_pylist() == [f"x{k}#1" for k in range(9)]
    assert table.column("line").to_pylist() == [1, 2, 3, 4, 8, 9, 10, 11, 12]
    assert [(row["line"], row["doc"]) for row in rejected_rows(tmp_path / "out")] == [(6, 12)]


def test_rejected_records_are_a_share_of_records_not_of_parts(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "word\n" * 50}) + "\n{\n")
    done = finish(tmp_path / "out", path, columns=[], **SPLIT)
    assert done.report["warnings"][0].startswith("1 of 2 records (50%) were rejected")


def test_an_empty_file_has_no_parts(tmp_path: Path):
    (tmp_path / "empty.jsonl").touch()
    inputs = [{"path": str(path), **SPLIT} for path in (write(tmp_path, records=RECORDS[:2]), tmp_path / "empty.jsonl")]
    recipe = convert_recipe({"input": inputs, "stages": [], "output": {"formats": []}})
    run(recipe, tmp_path / "out", engine="cpu", workers=1, progress=False)
    assert [row[3] for row in kept_rows(tmp_path / "out")] == [part[2] for part in expected_parts(RECORDS[:2])]


def test_parts_of_records_without_an_id_have_no_key(tmp_path: Path):
    records = [{"text": "a\nb"}, {"id": "x", "text": "a\nb"}, {"text": "c\nd"}, {"id": "x", "text": "e"}]
    done = finish(
        tmp_path / "out", write(tmp_path, records=records), stages=[{"exact_dedup": {"column": "id"}}], **SPLIT
    )
    assert [row[1] for row in kept_rows(tmp_path / "out")] == ["a/0#0", "a/0#1", "x#0", "x#1", "a/4#0", "a/4#1"]
    assert done.report["stages"][0]["details"] == {"without_key": 4}


def test_keys_that_all_parts_of_a_document_share_are_warned_of(tmp_path: Path):
    done = finish(tmp_path / "out", write(tmp_path), stages=[{"exact_dedup": {"column": "url"}}], **SPLIT)
    assert done.report["documents"]["kept"] == len(RECORDS)
    told = "exact_dedup: the parts of a document of input 'a' have the same url, so at most one of them is kept. "
    told += "To compare parts, write column: [url, text]"
    content = {"input": [{"path": str(tmp_path / "a.jsonl"), "name": "a", "columns": ["url"], **SPLIT}]}
    planned = estimate(convert_recipe({**content, "stages": [{"exact_dedup": {"column": "url"}}]}))
    assert told in done.report["warnings"] and told in planned.warnings


@pytest.mark.parametrize(
    ("kind", "slice_bytes", "step"), [("jsonl", 2500, 1), ("jsonl.gz", 0, 3), ("parquet", 2500, 4)]
)
def test_limits_are_exact_for_any_slices(kind: str, slice_bytes: int, step: int, tmp_path: Path):
    path = write(tmp_path, kind)
    records = [{"doc": number, **record} for number, record in enumerate(RECORDS)]
    sizes = [len(record["text"].encode()) for record in records]
    frame = load_engine("cpu").from_arrow(
        pa.Table.from_pylist([{"id": r.get("id"), "text": r["text"]} for r in RECORDS])
    )
    sampled = [record for record, own in zip(records, chosen(load_engine("cpu"), frame, 0.5, 7), strict=True) if own]
    reaching = next(k for k in range(len(sampled)) if sum(sizes[r["doc"]] for r in sampled[: k + 1]) >= 3000)
    cases: list[tuple[dict, list[dict], str]] = [
        ({"skip": 30}, records[30:], ""),
        ({"skip": 17, "limit": 50}, records[17:67], "limit"),
        ({"sample": 0.5, "max_documents": 11}, sampled[:11], "max_documents"),
        ({"sample": 0.5, "max_bytes": 3000}, sampled[: reaching + 1], "max_bytes"),
        ({"skip": 5, "limit": 9, "max_documents": 500}, records[5:14], "limit"),
    ]
    for number, (settings, wanted, ended_by) in enumerate(cases[::step]):
        done = finish(tmp_path / str(number), path, slice_bytes, seed=7, **settings)
        assert [row[0] for row in kept_rows(tmp_path / str(number))] == [record["doc"] for record in wanted], settings
        [source] = done.report["sources"]
        assert source.get("ended_by", "") == ended_by and source.get("skipped", 0) == settings.get("skip", 0)


def test_limits_count_whole_documents_of_a_split_input(tmp_path: Path):
    path = write(tmp_path)
    finish(tmp_path / "out", path, 2500, skip=10, max_documents=20, **SPLIT)
    assert [row[3] for row in kept_rows(tmp_path / "out")] == [part[2] for part in expected_parts(RECORDS[10:30])]


def test_a_budget_of_all_files_ends_them_in_their_order(tmp_path: Path):
    first, second = write(tmp_path), write(tmp_path, "jsonl.gz")
    inputs = [{"path": str(path), "keep_blank": True} for path in (first, second, write(tmp_path, "parquet"))]
    recipe = convert_recipe(
        {"input": inputs, "stages": [], "output": {"formats": []}, "budget": {"max_documents": 130}}
    )
    report = run(recipe, tmp_path / "out", engine="cpu", slice_bytes=2500, progress=False).report
    assert [source["documents_read"] for source in report["sources"]] == [120, 10, 0]
    assert [source.get("ended_by") for source in report["sources"]] == [None, *["budget.max_documents"] * 2]


WRONG = {
    "input 'a': skip 500 leaves nothing: the input has 120 records. Lower skip": {"skip": 500},
    "input 'a': skip 120 leaves nothing: the input has 120 records": {"skip": 120},
    "input 'a' gave 120 documents, min_documents asks for 121": {"min_documents": 121},
    "the input gave 120 documents, min_documents asks for 999": {"budget": {"min_documents": 999}},
}


@pytest.mark.parametrize("message", WRONG)
def test_limits_that_cannot_be_met(message: str, tmp_path: Path):
    with pytest.raises(InputError, match=message):
        finish(tmp_path / "out", write(tmp_path), **WRONG[message])


def test_array_tasks_split_alike(tmp_path: Path):
    path = write(tmp_path, records=RECORDS[:40])
    settings = {"skip": 3, "limit": 25, **SPLIT}
    recipe = convert_recipe({"input": [{"path": str(path), **settings}], "stages": STAGES,
                             "output": {"formats": [], "cleaned": "jsonl", "join": "id"}})  # fmt: skip
    alone = run(recipe, tmp_path / "alone", engine="cpu", progress=False).report
    with ThreadPoolExecutor(2) as pool:
        options = {"engine": "cpu", "slice_bytes": 2500, "progress": False, "workers": 1}
        tasks = [*pool.map(lambda task: run(recipe, tmp_path / "array", array_task=task, **options), ("1/2", "2/2"))]
    report = tasks[0].report
    assert report["documents_digest"] == alone["documents_digest"] and report["documents"] == alone["documents"]
    cleaned = [(tmp_path / name / "cleaned/part-00000.jsonl").read_bytes() for name in ("alone", "array")]
    assert cleaned[0] == cleaned[1]


def test_edited_parts_are_shown_with_their_texts_before(tmp_path: Path):
    path = write(tmp_path, "parquet")
    other = tmp_path / "b.jsonl"
    other.write_text('{"text": "  other  "}\n')
    inputs = [{"path": str(path), "skip": 2, "limit": 90, **SPLIT}, {"path": str(other)}]
    stages = [{"rewrite": {"unicode": "nfc", "whitespace": "collapse"}}]
    recipe = convert_recipe({"input": inputs, "stages": stages, "output": {"formats": []}})
    run(recipe, tmp_path / "out", engine="cpu", slice_bytes=2500, progress=False)
    shown = run_documents(tmp_path / "out", "edited", sample=None)
    rows = dict(zip(shown.column("id").to_pylist(), shown.column("text_before").to_pylist(), strict=True))
    texts = {part[1]: part[2] for part in expected_parts()}
    assert rows.popitem()[1] == "  other  "
    own = {id_: text for id_, text in rows.items() if id_.startswith("x")}
    assert own and own == {id_: texts[id_] for id_ in own}


def test_an_estimate_knows_parts_and_limits(tmp_path: Path):
    path = write(tmp_path)
    parts = expected_parts()
    for settings, wanted in (
        (SPLIT, len(parts)),
        ({"max_documents": 12, "sample": 0.5}, 12),
        (SPLIT | {"limit": 60}, len(parts) / 2),
    ):
        recipe = convert_recipe(
            {"input": [{"path": str(path), "keep_blank": True, **settings}], "stages": [], "output": {"formats": []}}
        )
        assert estimate(recipe).documents == pytest.approx(wanted, abs=1), settings
