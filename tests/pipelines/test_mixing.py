# SPDX-License-Identifier: Apache-2.0
"""`sample` and `copies` per input, what each contributes, and documents exported as people open them."""

import csv
import io
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from curation.base.errors import InputError, IntegrityError, RecipeError
from curation.cli import main
from curation.recipes.recipe import convert_recipe
from curation.record.ledger import check_ledger
from curation.results.finished.verify import verify
from curation.results.report.html import as_html
from curation.results.report.page.rendering import percent
from curation.results.report.text import funnel, print_funnel
from curation.running.run import run
from curation.tokens.indexed import IndexedReader
from tests.runs import data_digests, kept_rows, made_texts, recipe_of, records_of, rejected_rows, report_of

STAGES = [{"kind": "filter", "rules": [{"measure": "words", "min": 5, "reason": "short"}]}, {"kind": "exact_dedup"}]


@pytest.fixture
def corpora(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    paths[0].write_bytes(records_of(made_texts(150, 1)) + b"{broken\n")
    paths[1].write_bytes(records_of([f"only in b, number {k} of these" for k in range(100)]))
    return paths


def go(out: Path, *inputs: dict[str, Any], stages: list[Any] = STAGES, **rest: Any) -> dict[str, Any]:
    recipe = convert_recipe({"input": [{"keep_blank": True, **each} for each in inputs], "stages": stages, **rest})
    report = run(recipe, out, engine="cpu", slice_bytes=rest.pop("slice_bytes", 8000)).report
    assert verify(out) == []
    documents = report["documents"]
    left, right = documents["read"] + documents["copies"], ("kept", "removed", "rejected")
    assert left == sum(documents[name] for name in right)
    return report


def test_a_sample_is_a_share_that_the_seed_chooses(tmp_path: Path, corpora: tuple[Path, Path]):
    b = {"path": str(corpora[1]), "name": "b", "sample": 0.4}
    go(tmp_path / "one", b)
    go(tmp_path / "again", b)
    other = go(tmp_path / "other", b, seed=5)
    found, others = kept_rows(tmp_path / "one"), kept_rows(tmp_path / "other")
    assert data_digests(tmp_path / "one") == data_digests(tmp_path / "again")
    assert 25 <= len(found) <= 55 and found != others
    assert all(text == f"only in b, number {doc} of these" and id_ == f"b/{doc}" for doc, id_, _, text in found)
    (source,) = other["sources"]
    assert source["documents_read"] + source["not_sampled"] == 100 and source["documents_read"] == len(others)


@pytest.mark.slow("a sample does not depend on slices and grows with the share")
def test_a_sample_does_not_depend_on_slices_and_grows_with_the_share(tmp_path: Path, corpora: tuple[Path, Path]):
    found = []
    for share in (0.2, 0.5, 1.0):
        recipe = recipe_of({"path": str(corpora[0]), "name": "a", "sample": share}, stages=STAGES)
        for slice_bytes in (3000, 1 << 20):
            run(recipe, tmp_path / f"{share}-{slice_bytes}", engine="cpu", slice_bytes=slice_bytes)
        small, large = (data_digests(tmp_path / f"{share}-{size}") for size in (3000, 1 << 20))
        assert small == large
        found.append({text for *_, text in kept_rows(tmp_path / f"{share}-3000")})
        assert len(rejected_rows(tmp_path / f"{share}-3000")) == 1  # what is no document is never passed over
    assert found[0] < found[1] < found[2]


def test_copies_are_whole_copies_one_after_the_other(tmp_path: Path, corpora: tuple[Path, Path]):
    a, b = ({"path": str(path), "name": name} for path, name in zip(corpora, "ab", strict=True))
    once = go(tmp_path / "once", a, b)
    more = go(tmp_path / "more", a | {"copies": 3}, b | {"copies": 1})
    rows = kept_rows(tmp_path / "once")
    split = sum(row[2] == "a" for row in rows)
    assert kept_rows(tmp_path / "more") == rows[:split] * 3 + rows[split:]
    assert more["documents"]["copies"] == 2 * split
    assert more["documents"]["kept"] == once["documents"]["kept"] + 2 * split
    tokens = [
        [ids.tolist() for ids in IndexedReader(tmp_path / name / "tokens" / "a_00000_text_document")]
        for name in ("once", "more")
    ]
    assert tokens[1] == tokens[0] * 3
    assert more["stages"] == [
        {**stage, "seconds": other["seconds"]} for stage, other in zip(once["stages"], more["stages"], strict=True)
    ]


def test_copies_stay_on_one_side_of_a_split_and_are_shuffled_with_the_rest(tmp_path: Path, corpora: tuple[Path, Path]):
    output = {"splits": {"train": 0.8, "valid": 0.2}, "shuffle": True, "formats": ["megatron", "token_shards"]}
    report = go(tmp_path / "out", {"path": str(corpora[1]), "name": "b", "copies": 2}, output=output)
    assert report["documents"]["copies"] == 100
    sides = [
        sorted(
            tuple(ids.tolist()) for ids in IndexedReader(tmp_path / "out" / "tokens" / f"b_{side}_00000_text_document")
        )
        for side in ("train", "valid")
    ]
    assert not {*sides[0]} & {*sides[1]} and len(sides[0]) + len(sides[1]) == 200
    assert all(side[::2] == side[1::2] for side in sides)


def test_the_report_says_what_each_input_contributes(tmp_path: Path, corpora: tuple[Path, Path]):
    a, b = ({"path": str(path), "name": name} for path, name in zip(corpora, "ab", strict=True))
    report = go(tmp_path / "out", a | {"copies": 2, "blend_weight": 3.0}, b | {"sample": 0.5, "blend_weight": 1.0})
    first, second = report["sources"]
    rows = kept_rows(tmp_path / "out")
    assert (first["name"], first["documents_read"], first["rejected"]) == ("a", 151, 1)
    for source in (first, second):
        own = [row[3] for row in rows if row[2] == source["name"]]
        assert source["documents_kept"] == len(own) and source["bytes_kept"] == sum(len(text.encode()) for text in own)
    assert first["copies"] == first["documents_kept"] // 2 and second["copies"] == 0
    assert first["bytes_read"] + second["bytes_read"] == report["bytes"]["read"]
    assert first["tokens"] + second["tokens"] == report["tokens"]["count"]
    assert first["share_before"] + second["share_before"] == pytest.approx(1)
    assert first["share_after"] == round(first["tokens"] / report["tokens"]["count"], 6)
    assert first["blend_weight"] == 3.0
    assert percent(first["share_after"], 1) in as_html(report_of(tmp_path / "out"))


def test_the_funnel_adds_up_with_samples_and_copies(
    tmp_path: Path, corpora: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
):
    a, b = ({"path": str(path), "name": name} for path, name in zip(corpora, "ab", strict=True))
    report = go(tmp_path / "out", a | {"copies": 2}, b | {"sample": 0.4})
    rows = funnel(report)
    passed = sum(source["not_sampled"] for source in report["sources"])
    assert [row[:3] for row in rows[:2]] == [("", "not sampled", -passed), ("read", "", report["documents"]["read"])]
    assert rows[0][3] == passed / 251
    assert sum(row[2] for row in rows[1:] if row[1] or row[0] == "read") == rows[-1][2] == report["documents"]["kept"]
    copies = report["documents"]["copies"]
    assert rows[-2][:3] == ("", "copies", copies) and rows[-1][0] == "kept"
    assert report["numbers"]["retention"] == round((rows[-1][2] - copies) / rows[1][2], 6)
    print_funnel(report)
    shown, page = capsys.readouterr().out, as_html(report)
    assert f"+{copies:,}" in shown and f"{copies:,} are further copies" in page
    assert f"-{passed:,}" in shown and f"−{passed:,} (" in page


def test_a_plain_funnel_has_no_row_for_copies_and_samples(tmp_path: Path, corpora: tuple[Path, Path]):
    report = go(tmp_path / "out", {"path": str(corpora[0])})
    assert not {"copies", "not sampled"} & {row[1] for row in funnel(report)}


@pytest.mark.parametrize(
    ("blend", "weight_of"),
    [
        ({"by": "temperature", "temperature": 3.0}, lambda factor, tokens: factor * tokens ** (1 / 3)),
        ({"by": "temperature", "temperature": 0.004}, lambda factor, tokens: factor * (tokens / 1e5) ** 250),
        ({"by": "tokens"}, lambda factor, tokens: factor * tokens),
        ({"by": "given"}, lambda factor, tokens: factor),
    ],
    ids=["temperature", "low temperature", "tokens", "given"],
)
def test_the_table_of_inputs_says_what_training_draws(
    tmp_path: Path,
    corpora: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    blend: dict[str, Any],
    weight_of: Any,
):
    a, b = ({"path": str(path), "name": name} for path, name in zip(corpora, "ab", strict=True))
    inputs = a | {"copies": 2, "blend_weight": 0.5}, b | {"sample": 0.3, "blend_weight": 1.0}
    report = go(tmp_path / "out", *inputs, output={"blend": blend, "max_file_bytes": 4000})
    weights = [weight_of(row["blend_weight"], row["tokens"]) for row in report["sources"]]
    drawn = [row["share_drawn"] for row in report["sources"]]
    assert drawn == pytest.approx([weight / sum(weights) for weight in weights], abs=1e-4)
    print_funnel(report)
    shown = capsys.readouterr().out
    first, second = report["sources"]
    head, *rows = [line.split() for line in shown.splitlines() if line.split()[:1] in (["input"], ["a"], ["b"])]
    assert head == ["input", "read", "MB", "share", "kept", "copies", "MB", "tokens", "share", "drawn"]
    for row, source in zip(rows, (first, second), strict=True):
        assert row == [
            source["name"],
            f"{source['documents_read']:,}",
            f"{source['bytes_read'] / 1e6:,.2f}",
            f"{source['share_before']:.2%}",
            f"{source['documents_kept']:,}",
            f"{source['copies']:,}",
            f"{source['bytes_kept'] / 1e6:,.2f}",
            f"{source['tokens']:,}",
            f"{source['share_after']:.2%}",
            f"{source['share_drawn']:.2%}",
        ]
    page = as_html(report)
    for source in report["sources"]:
        for key in ("share_before", "share_after", "share_drawn"):
            assert f"<td>{percent(source[key], 1)}</td>" in page


def test_a_ledger_with_wrong_copies_is_refused(tmp_path: Path, corpora: tuple[Path, Path]):
    report = go(tmp_path / "out", {"path": str(corpora[1]), "copies": 2})
    assert "copies" in report["documents"]
    documents = report["documents"] | {"copies": 99, "kept": 199, "read": 100}
    with pytest.raises(IntegrityError):
        check_ledger(documents | {"copies": 98}, [])
    with pytest.raises(IntegrityError, match="the ledger does not add up"):
        check_ledger(documents | {"kept": 200}, [])


def test_an_input_below_its_minimum_is_an_error(tmp_path: Path, corpora: tuple[Path, Path]):
    with pytest.raises(InputError, match=r"input 'b' gave [\d,]+ bytes of text, min_bytes asks for 1,000,000"):
        go(tmp_path / "out", {"path": str(corpora[1]), "name": "b", "min_bytes": 1_000_000})


# Exports


def test_raw_and_cleaned_in_every_format(tmp_path: Path, corpora: tuple[Path, Path]):
    texts = [*made_texts(60, 4), 'quotes " and, commas\r\nlines', "", "é漢字\u2028 end", "'"]
    path = tmp_path / "c.jsonl"
    path.write_bytes(records_of(texts, url="u,1"))
    for format_ in ("csv", "jsonl", "parquet"):
        out = tmp_path / format_
        output = {"formats": [], "raw": format_, "cleaned": format_, "part_documents": 25}
        go(out, {"path": str(path), "name": "c", "columns": ["url"]}, output=output)
        raw, cleaned = (exported(out / name) for name in ("raw", "cleaned"))
        assert [row["text"] for row in raw] == texts and {row["url"] for row in raw} == {"u,1"}
        assert [int(row["doc"]) for row in raw] == [*range(64)]
        assert [(row["id"], row["text"]) for row in cleaned] == [(id_, text) for _, id_, _, text in kept_rows(out)]
        assert len(list((out / "raw").iterdir())) == 3  # 25 + 25 + 14


def exported(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
        elif path.suffix == ".jsonl":
            rows += [json.loads(line) for line in path.read_bytes().splitlines()]
        else:
            rows += csv.DictReader(io.StringIO(path.read_bytes().decode(), newline=""))
    return rows


def test_exports_are_cut_alike_whatever_the_slices(tmp_path: Path, corpora: tuple[Path, Path]):
    found = []
    for size in (6000, 1 << 20):
        output = {"formats": [], "raw": "jsonl", "cleaned": "csv", "part_bytes": 2000}
        recipe = recipe_of(*corpora, stages=STAGES, output=output)
        report = run(recipe, tmp_path / str(size), engine="cpu", slice_bytes=size).report
        found.append({name: digest for name, digest in report["outputs"].items() if name[:3] in ("raw", "cle")})
    assert found[0] == found[1] and len(found[0]) > 10


def test_one_file_has_all_documents_and_the_chosen_columns(tmp_path: Path, corpora: tuple[Path, Path]):
    output = {
        "formats": [],
        "raw": "all.csv",
        "cleaned": "clean.jsonl",
        "export_columns": ["text", "id"],
        "part_bytes": 3000,
    }
    go(tmp_path / "out", *({"path": str(path), "copies": 2} for path in corpora), output=output)
    assert [path.name for name in ("raw", "cleaned") for path in (tmp_path / "out" / name).iterdir()] == [
        "all.csv", "clean.jsonl",
    ]  # fmt: skip
    raw, cleaned = exported(tmp_path / "out" / "raw"), exported(tmp_path / "out" / "cleaned")
    assert len(raw) == 250 and {tuple(row) for row in (*raw, *cleaned)} == {("text", "id")}
    assert [(row["id"], row["text"]) for row in cleaned] == [
        (id_, text) for _, id_, _, text in kept_rows(tmp_path / "out")
    ]


def test_nothing_kept_still_exports(tmp_path: Path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(records_of(["short"]))
    go(tmp_path / "out", {"path": str(path)}, output={"formats": [], "raw": "csv", "cleaned": "csv"})
    assert len(exported(tmp_path / "out" / "raw")) == 1 and exported(tmp_path / "out" / "cleaned") == []


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"raw": "cvs"}, "no raw format 'cvs'; did you mean csv"),
        ({"cleaned": "a.cvs"}, "no cleaned format 'cvs'; did you mean csv"),
        ({"cleaned": "../a.csv"}, "cleaned must be a format or the name of a file in cleaned/"),
        ({"export_columns": ["text"]}, "export_columns is set, but neither raw nor cleaned is"),
        ({"megatron": {"names": "txt"}}, "megatron.names must be text or document, not 'txt'"),
        ({"sample": {"batches": 1}}, "sample is set, but formats has no chunks"),
        ({"formats": ["chunks"], "sample": {"batches": -1}}, "batches must be 0"),
        ({"formats": ["chunks"], "sample": {"batches": 1, "batch_size": 0}}, "batch_size must be at least 1"),
    ],
)
def test_wrong_settings(output: dict[str, Any], told: str):
    with pytest.raises(RecipeError, match=told):
        convert_recipe({"output": output})


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["txt"], "output.export_columns: the documents have no column 'txt'; did you mean text"),
        (["text", "text"], "output.export_columns has 'text' twice"),
        (["language"], "the run adds 'language', so the documents in raw/ do not have it"),
    ],
)
def test_wrong_export_columns(columns: list[str], told: str):
    stages, output = [{"kind": "language", "keep": ["en"]}], {"raw": "csv", "export_columns": columns}
    with pytest.raises(RecipeError, match=told):
        convert_recipe({"input": [{"path": "a.jsonl"}], "stages": stages, "output": output})


def test_what_another_input_makes_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    joined = "input: [{path: a.jsonl, split: {sentences: 2}}]\noutput: {cleaned: csv, join: id}\nstages: []"
    (tmp_path / "r.yaml").write_text(joined)
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    arguments = ["run", str(tmp_path / "r.yaml"), "--input", str(tmp_path / "a.jsonl")]
    assert main([*arguments, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "r.yaml with another input: output.join joins the parts" in error and error.count("\n") == 1


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed: pip install '.[torch]'")
@pytest.mark.parametrize("file_type", ["npy", "pt"])
def test_the_sample_is_what_the_loader_gives(tmp_path: Path, corpora: tuple[Path, Path], file_type: str):
    from curation.training import ChunkDataset, Loader, load_sample

    chunks = {"length": 16, "min_tokens": 1, "file_type": file_type, "shard_chunks": 100}
    output = {"formats": ["chunks"], "chunks": chunks, "sample": {"batches": 3, "batch_size": 4}}
    go(tmp_path / "out", {"path": str(corpora[0])}, output=output)
    batches = iter(Loader(ChunkDataset(tmp_path / "out" / "chunks"), 4, seed=1234))
    for batch in load_sample(tmp_path / "out" / "sample_dataset.pt"):
        expected = next(batches)
        assert batch.keys() == expected.keys()
        assert all(np.array_equal(batch[name], expected[name]) for name in batch)
