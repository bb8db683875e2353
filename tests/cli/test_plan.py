# SPDX-License-Identifier: Apache-2.0
"""`curate plan`: what it prints, what it finds in files, and how near its numbers are to those of the run."""

import bz2
import csv
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import curation
from curation.cli import plan_text
from curation.reading import excerpts
from curation.reading.inputs import FilesInput
from curation.reading.paths import find_files
from curation.record.lost_groups import _counted
from curation.running.planning import estimate as estimates
from curation.running.planning.estimate import DeviceTime
from curation.running.planning.survey_numbers import Sampled, StageSurvey, Survey
from tests.cli.test_cli import curate, failed
from tests.runs import files_below, made_texts, recipe_of, records_of

LINES = 25
SETTINGS = {"select": {"max_documents": 10}, "filter": {"rules": [{"measure": "words", "min": 20}]}}


def write(path: Path, texts: list[str]) -> None:
    """Write texts as documents in the format of the path."""
    name = path.name
    table = pa.table({"body": texts, "url": ["http://x"] * len(texts)})
    if name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(records_of(texts)))
    elif name.endswith(".jsonl.bz2"):
        path.write_bytes(bz2.compress(records_of(texts), 1))  # blocks of 100 KB
    elif name.endswith(".jsonl"):
        path.write_bytes(records_of(texts))
    elif name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=100)
    elif name.endswith(".arrow"):
        pyarrow.feather.write_feather(table, path, compression="uncompressed", chunksize=100)
    elif name.endswith(".csv"):
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([["n", "text"], *([number, text] for number, text in enumerate(texts))])
    else:
        path.mkdir()
        for number, text in enumerate(texts):
            (path / f"{number}.txt").write_text(text)


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.csv", "texts"):
        write(tmp_path / "in" / name, [text.strip("\0 \n") or "one" for text in made_texts(60, seed=len(name))])
    return tmp_path / "in"


def test_the_plan_has_the_numbers_of_the_run_if_all_documents_are_sampled(corpus: Path, tmp_path: Path):
    stages = [{"kind": "rewrite", "unicode": "nfc", "whitespace": "collapse"}, {"kind": "filter", "rules": "gopher"}]
    recipe = recipe_of(corpus, stages=stages)
    found = curation.estimate(recipe, "out")
    report = curation.run(recipe, "out", engine="cpu").report
    assert found.sample.is_whole
    assert (found.documents, found.text_bytes) == (report["documents"]["read"], report["bytes"]["read"])
    assert (found.kept, found.tokens) == (report["documents"]["kept"], report["tokens"]["count"])
    for planned, done in zip(found.stages, report["stages"], strict=True):
        for name in ("documents_in", "documents_out", "edited"):
            assert getattr(planned, name) == done[name]
        assert planned.reasons == {name: count for name, count in done["reasons"].items() if count}
    assert sum(report["stages"][1]["reasons"].values()) > 50 < found.stages[0].edited


def test_the_plan_shows_what_is_removed_of_each_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [("de", "a b c")] * 6 + [("de", "a")] * 2 + [("en", "a b")] * 3 + [(None, "a")]
    content = b"".join(records_of([text], language=language) for language, text in rows)
    (tmp_path / "a.jsonl").write_bytes(content)
    languages = [f"l{number:02}" for number in range(40)]
    (tmp_path / "b.jsonl").write_bytes(b"".join(records_of(["a b"], language=name) for name in languages))
    rules = {"per": "language", "rules": {"de": {"words": {"min": 3}}, "en": {"words": {"max": 1}}, "other": "keep"}}
    stages = [{"kind": "filter", "rules": [rules]}]
    recipe = recipe_of({"path": str(tmp_path / "a.jsonl"), "columns": ["language"]}, stages=stages)
    (stage,) = curation.estimate(recipe, "out").stages
    found = [(entry.column, entry.group, entry.documents, entry.removed) for entry in stage.groups]
    assert found == [("language", "de", 8, 2), ("language", "en", 3, 3), ("language", "other", 1, 0)]
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps({"input": [{"path": str(tmp_path / "a.jsonl"), "columns": ["language"]}],
                                "stages": stages}))  # fmt: skip
    _, out, _ = curate(capsys, "plan", path)
    line = "per language: de 66.7% (removes 25.0%), en 25.0% (removes 100.0%), other 8.3% (removes 0.0%)"
    assert f"       {line}" in out.splitlines()
    many = {"per": "language", "rules": {name: {"words": {"min": 3}} for name in languages}}
    setting = f"stages.filter.rules={json.dumps([many])}"
    _, out, _ = curate(capsys, "plan", path, "--set", f"input.0.path={tmp_path / 'b.jsonl'}", "--set", setting)
    (line,) = [line for line in out.splitlines() if "per language: " in line]
    assert line.endswith(" more") and len(line) <= 118 and "l00 2.5% (removes 100.0%)" in line
    _, out, _ = curate(capsys, "plan", path, "--log", "json")
    assert json.loads(out)["stages"][0]["groups"][0] == {
        "column": "language", "group": "de", "documents": 8, "removed": 2, "removed_between": [0.25, 0.25],
    }  # fmt: skip


def test_the_plan_names_columns_whose_names_are_taken_and_the_time_of_both_engines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "a.jsonl").write_bytes(records_of(["one text"], source="web", url="x"))
    _, out, _ = curate(capsys, "plan", "-i", str(tmp_path / "a.jsonl"), "--engine", "gpu")
    assert "; `columns` can carry: source (rename it), url\n" in out
    cpu, both, verdict, gpu = [line for line in out.splitlines() if line.startswith(("time", "engine", "gpu"))]
    assert re.fullmatch(r"time, cpu: .* on \d+ workers?; measured on the sample.*", cpu)
    assert re.fullmatch(
        r"time, modelled for \d+ processors?, if no document is removed: cpu 1\.2 s, gpu 15\.0 s on one H200", both
    )
    assert verdict == (
        "engine, by this model: cpu is expected to be faster; most of the time of gpu is its start, which is assumed"
    )
    assert re.fullmatch(r"gpu: a worker takes 134\.2 MB of its memory, or waits; (not )?usable here.*", gpu)
    assert {*map(len, out.splitlines())} <= {*range(119)}
    _, out, _ = curate(capsys, "plan", "-i", str(tmp_path / "a.jsonl"), "--engine", "gpu", "--workers", "64")
    assert " on 64 workers, which share this machine's " in out and "time, modelled for 64 processors, " in out
    assert "\nmemory, gpu: needs about 137.8 GB for 64 workers with batches of 268.4 MB" in out


def test_the_measured_time_is_at_least_no_more_than_the_modelled_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.jsonl").write_bytes(records_of(["one text"]))
    recipe = {"input": [{"path": str(tmp_path / "a.jsonl")}], "output": {"formats": []}}
    monkeypatch.setattr(estimates, "LOW", 1000.0)
    assert curation.estimate(recipe, tmp_path, engine="cpu").seconds[0] > 1000
    found = curation.estimate(recipe, tmp_path, engine="gpu", workers=64)
    assert found.device_time is not None and found.seconds[0] == found.device_time.cpu_seconds == 1.2


def test_the_plan_says_which_engine_the_model_expects_to_be_faster():
    found = DeviceTime(
        seconds=(90, 200), start=15, device="", cpu_seconds=180, processors=16, faster="", most="host",
        memory=16 << 28, obstacle="no NVIDIA driver was found (libcuda.so.1 does not load)",
    )  # fmt: skip
    assert plan_text._model_lines(found) == [
        "time, modelled for 16 processors, if no document is removed: cpu 180 s, gpu 90.0 s to 200 s on one H200",
        "engine, by this model: unclear, so auto takes cpu; most of the time of gpu is the host's work",
        "gpu: a worker takes 4.3 GB of its memory, or waits; not usable here: no NVIDIA driver was found",
    ]
    found = replace(found, seconds=(60, 90), faster="gpu", device="Made GPU", obstacle="")
    assert plan_text._model_lines(found)[1:] == [
        "engine, by this model: gpu is expected to be faster; most of the time of gpu is the host's work",
        "gpu: a worker takes 4.3 GB of its memory, or waits; usable here",
    ]


def test_the_lower_bound_of_the_time_holds_where_nearly_all_documents_are_removed():
    """After the first stage that may remove nearly all, a run may have nothing to do. A busy machine made the sample
    wait."""

    def bounds(*kinds: str, share: float = 1.0) -> tuple[float, float]:
        recipe = recipe_of("a.jsonl", stages=[{"kind": kind, **SETTINGS.get(kind, {})} for kind in kinds])
        survey = Survey(
            kinds=[], sampled=Sampled(), segments=[], text_bytes=10**9, kept_bytes=10**9, processor_share=share,
            stages=[StageSurvey(name=kind, kind=kind, seconds=10) for kind in kinds],
            seconds={"read": 4, "stages": 10, "keys": 10, "write": 30, "tokenize": 50},
        )  # fmt: skip
        return estimates._seconds(recipe, survey, 2, 1.0)

    high = 2 * (1.2 + 104 / 2 + 4 + 12)
    assert bounds("filter", "exact_dedup") == pytest.approx((0.7 * (1.2 + 24 / 2 + 1), high), abs=0.06)
    assert bounds("filter", "exact_dedup", share=0.25) == pytest.approx((0.7 * (1.2 + 6 / 2 + 1), high), abs=0.06)
    assert bounds("filter", "select") == pytest.approx((0.7 * (1.2 + 104 / 2 + 16), high), abs=0.06)


def test_the_plan_names_the_columns_of_each_kind_of_file(corpus: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = curate(capsys, "plan", "-i", "in")
    assert (code, err) == (0, "")
    for line in (
        "  in (jsonl): 1 file, ", "  in (jsonl, gzip): 1 file, ", "; text in text; ids are made",
        "  in (parquet): 1 file, ", "; text in body; ids are made; `columns` can carry: url",
        "; text in text; ids are made; `columns` can carry: n", "  in (text): 60 files, ", "`columns` can carry: path",
    ):  # fmt: skip
        assert line in out
    assert "documents: 300 with about " in out and "all of them read for this estimate" in out
    assert "Jaccard similarity of word 5-grams >= 0.8" in out and " too_few_words: words at least 50," in out
    for start in ("tokens: ", "time: ", "memory: needs about ", "disk: needs about "):
        assert any(line.startswith(start) for line in out.splitlines()), out


def test_a_plan_has_at_most_25_lines(corpus: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(8):
        write(Path(f"more-{number}.csv"), ["one two", "three"])
    stages = ", ".join([f"{{kind: rewrite, name: r{number}, lowercase: true}}" for number in range(30)])
    Path("long.yaml").write_text(f"stages: [{stages}, exact_dedup]")
    inputs = ["in", *(f"more-{number}.csv" for number in range(8))]
    code, out, _ = curate(capsys, "plan", "long.yaml", "-i", *inputs)
    assert code == 0 and len(out.splitlines()) == LINES
    assert "  8 more kinds of files: " in out and ": 8 csv\n" in out and " more stages" in out
    assert len(curate(capsys, "plan", "nemo", "-i", *inputs)[1].splitlines()) <= LINES


def test_a_terminal_has_long_lines_wrapped_and_a_file_has_them_whole(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    rules = [{"measure": "words", "min": 1, "reason": "a_name_as_long_as_a_line_" * 6}]
    Path("long.yaml").write_text(json.dumps({"stages": [{"kind": "filter", "rules": rules}]}))
    _, out, _ = curate(capsys, "plan", "long.yaml", "-i", "in")
    assert "a_name_as_long_as_a_line_" * 6 in out and "..." not in out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    _, wrapped, _ = curate(capsys, "plan", "long.yaml", "-i", "in")
    assert len(wrapped.splitlines()) > len(out.splitlines())
    assert all(len(line) <= 60 for line in wrapped.splitlines() if " " in line.strip())


def test_a_file_without_the_text_column_fails_in_the_plan(corpus: Path, capsys: pytest.CaptureFixture[str]):
    (corpus / "z.jsonl").write_text('{"story": "one", "n": 2}\n')
    message = failed(capsys, "plan", "-i", "in")
    assert message == failed(capsys, "run", "-i", "in", "-o", "out")
    for part in ("z.jsonl", "['story', 'n']", "--text-column NAME", "text_column of the input in the recipe"):
        assert part in message
    assert message == failed(capsys, "plan", "-i", "in", "--full")
    (corpus / "z.jsonl").unlink()
    pq.write_table(pa.table({"story": ["one"]}), corpus / "z.parquet")
    assert "z.parquet" in failed(capsys, "plan", "-i", "in")
    assert "--text-column" in failed(capsys, "plan", "-i", "in/c.parquet", "--text-column", "story")
    assert curate(capsys, "plan", "-i", "in/z.parquet", "--text-column", "story")[0] == 0


def test_a_plan_writes_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    before = files_below(tmp_path)
    assert curate(capsys, "plan", "-i", "in", "-o", "out")[0] == 0
    assert files_below(tmp_path) == before and not Path("out").exists()


def test_the_plan_as_json_has_the_estimate(corpus: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = curate(capsys, "plan", "-i", "in", "--log", "json")
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert (result["command"], result["files"], result["documents"]) == ("plan", 64, 300)
    assert {kind["format"] for kind in result["kinds"]} == {"jsonl", "parquet", "csv", "text"}
    filtered, compared = result["stages"][2], result["stages"][3]
    assert filtered["documents_in"] == 300 and compared["documents_in"] is None
    low, high = result["seconds"]
    assert 0 < low < high and result["memory"]["needed"] > 10**8
    assert {"needed", "present", "free", "parts", "folder"} == result["disk"].keys()


@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "c.parquet", "d.arrow", "e.csv", "f.jsonl.bz2", "texts"])
def test_a_sample_is_near_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    texts = made_texts(3000 if "." in name else 600, seed=3)
    write(tmp_path / name, texts)
    monkeypatch.setattr(excerpts, "PIECE_BYTES", 8 << 10)
    monkeypatch.setattr(excerpts, "MAX_TEXT", 100_000)
    monkeypatch.setattr(excerpts, "MAX_HEAD_BYTES", 23_000)
    monkeypatch.setattr(excerpts, "STEP", 500)
    for compression in ("", "gzip", "bzip2"):
        monkeypatch.setitem(excerpts.HEAD_BYTES, compression, 23_000)
    recipe = recipe_of(tmp_path / name, stages=[{"kind": "filter", "rules": [{"measure": "words", "min": 20}]}])
    found = curation.estimate(recipe, tmp_path / "out")
    assert not found.sample.is_whole and found.sample.bytes < 400_000
    true_bytes = sum(len(text.encode()) for text in texts)
    assert found.documents == pytest.approx(len(texts), rel=0.15)
    assert found.text_bytes == pytest.approx(true_bytes, rel=0.15)
    assert found.kinds[0].documents == found.documents
    assert found.kinds[0].text_bytes == pytest.approx(found.text_bytes, abs=1)
    read = len(texts) if "." in name else sum(bool(text.strip()) for text in texts)  # blank files have no document
    assert found.documents_between[0] <= read <= found.documents_between[1] == found.kinds[0].documents_between[1]
    true_kept = sum(len(text.split()) >= 20 for text in texts)
    assert found.kept == pytest.approx(true_kept, rel=0.2)


@pytest.mark.slow("the documents and tokens of a sorted file are inside the bounds of its plan")
@pytest.mark.parametrize("name", ["a.jsonl", "b.jsonl.gz", "b.jsonl.xz", "c.parquet", "e.csv"])
def test_the_numbers_of_files_sorted_by_length_are_inside_the_bounds(tmp_path: Path, name: str):
    """At their beginning, a document takes a twentieth of the bytes of the later ones."""
    texts = sorted(made_texts(900, seed=3), key=len)
    texts = [text * (1 + number // 30) for number, text in enumerate(texts)]
    write(tmp_path / name.replace(".xz", ".gz"), texts)
    if name.endswith(".xz"):
        (tmp_path / name).write_bytes(lzma.compress(records_of(texts), preset=0))
    recipe = recipe_of(tmp_path / name, stages=[])
    found = curation.estimate(recipe, tmp_path / "out")
    tokens = len(curation.load_tokenizer("gpt2").pack(pa.array(texts, pa.large_string())).ids)
    for low, number, high in ((*found.documents_between[:1], 900, *found.documents_between[1:]),
                              (*found.tokens_between[:1], tokens, *found.tokens_between[1:])):  # fmt: skip
        assert low <= number <= high <= 2 * low
    assert found.kinds[0].read_in_part == 0


def test_slow_files_take_no_place_in_the_sample_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "a.jsonl", made_texts(1500, seed=3))
    (tmp_path / "pages").mkdir()
    for number in range(40):
        (tmp_path / "pages" / f"{number}.txt").write_text("word " * 4000)
    monkeypatch.setattr(excerpts, "MAX_TEXT", 60_000)
    monkeypatch.setattr(excerpts, "_is_head", lambda file: file.format == "text")  # as formats whose texts are costly
    files = find_files([FilesInput(path=str(tmp_path / name)) for name in ("a.jsonl", "pages")])
    drawn = [*excerpts.draw_excerpts(files, 0, lambda file: file.format)]
    sizes = {name: sum(each.table.nbytes for each in drawn if each.file.format == name) for name in ("jsonl", "text")}
    assert min(sizes.values()) >= 60_000, sizes


def test_an_input_with_few_bytes_has_as_many_places_as_it_needs(tmp_path: Path):
    write(tmp_path / "few.jsonl", ["few words"] * 20_000)
    write(tmp_path / "many.jsonl", ["word " * 2000] * 2000)
    files = curation.reading.paths.find_files(
        [FilesInput(path=str(tmp_path / f"{name}.jsonl")) for name in ("few", "many")]
    )
    places = excerpts._pieces_to_read(files, 0, lambda file: file.source)
    assert sum(file.source == "few" for file, _ in places) == excerpts.MIN_PIECES


def test_a_file_that_is_read_from_its_beginning_takes_no_text_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "a.parquet", made_texts(3000, seed=3))
    (tmp_path / "texts").mkdir()
    for number in range(100):
        (tmp_path / "texts" / f"{number}.txt").write_text("word " * 100)
    monkeypatch.setattr(excerpts, "MAX_TEXT", 100_000)
    files = find_files([FilesInput(path=str(tmp_path / name)) for name in ("a.parquet", "texts")])
    drawn = [*excerpts.draw_excerpts(files, 0, lambda file: file.format)]
    assert sum(each.file.format == "text" for each in drawn) >= 30


def test_the_share_that_a_stage_removes_has_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Long documents have most bytes, short ones most documents: few of these are in the sample."""
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "long.jsonl", ["word " * 3000] * 600)
    write(folder / "short.jsonl", ["a b c"] * 9500 + ["a"] * 500)
    stages = [{"kind": "filter", "rules": [{"measure": "words", "min": 2}]}]
    content = {"input": [{"path": str(folder)}], "stages": stages, "output": {"formats": []}}
    (tmp_path / "r.yaml").write_text(json.dumps(content))
    (stage,) = curation.estimate(tmp_path / "r.yaml", tmp_path / "out").stages
    low, high = stage.removed_between
    assert low < 500 / 10_600 < high
    _, out, _ = curate(capsys, "plan", tmp_path / "r.yaml")
    assert f"({100 * low:.1f} to {high:.1%})" in out, out


def test_estimated_counts_do_not_exceed_the_exact_number_of_files(tmp_path: Path):
    (tmp_path / "code").mkdir()
    for number in range(600):
        (tmp_path / "code" / f"{number}.txt").write_text("x = f(x);\n" * (5 + 20 * (number % 60)))
    recipe = recipe_of(tmp_path / "code", stages=[{"kind": "filter", "rules": ["gopher"]}])
    found = curation.estimate(recipe, tmp_path / "out")
    (line,) = [line for line in found.warnings if "look like source code" in line]
    assert not found.sample.is_whole and "about 600 of 600 documents" in line, line
    assert _counted(387.2, is_exact=False) == "about 380" and _counted(14.6, is_exact=False) == "about 15"


def test_warnings_of_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.jsonl").write_bytes(records_of(["one", "two"], kind="web", url="http://x"))
    columns = {"kind": "kind", "url": "urll", "site": "host"}
    stages = [{"kind": "mix", "by": "kind", "weights": {"web": 1, "wikki": 2}}]
    expected = [
        "input 'a': column 'url', from the field 'urll', is null in every sampled document; did you mean url?",
        "input 'a': column 'site', from the field 'host', is null in every sampled document",
        "mix: no sampled document has the kind 'wikki' of weights. A run that finds none is refused",
    ]
    entry = {"path": str(tmp_path / "a.jsonl"), "columns": columns}
    assert curation.estimate(recipe_of(entry, stages=stages), tmp_path / "out").warnings == expected
    (tmp_path / "r.yaml").write_text(json.dumps({"input": [entry], "stages": stages}))
    code, _, err = curate(capsys, "plan", tmp_path / "r.yaml")
    assert (code, err.splitlines()) == (0, [f"warning: {warning}" for warning in expected])
    stages[0]["weights"] = {"web": 1}
    early = recipe_of(
        entry | {"columns": {}}, stages=["fuzzy_dedup", {"kind": "filter", "rules": {"words": {"min": 1}}}]
    )
    (advice,) = curation.estimate(early, tmp_path / "out").warnings
    assert advice.startswith(
        "fuzzy_dedup compares documents that filter may remove later. Put filter before fuzzy_dedup"
    )
    right = entry | {"columns": {"kind": "kind"}}
    assert curation.estimate(recipe_of(right, stages=stages), tmp_path / "out").warnings == []


def test_the_sample_depends_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "a.jsonl", made_texts(3000))
    monkeypatch.setattr(excerpts, "PIECE_BYTES", 8 << 10)
    monkeypatch.setattr(excerpts, "MAX_TEXT", 50_000)
    sampled = [
        curation.estimate(recipe_of(tmp_path / "a.jsonl", seed=seed), tmp_path / "out").stages[1].reasons
        for seed in (1, 1, 2)
    ]
    assert sampled[0] == sampled[1] != sampled[2]


@pytest.mark.slow("the plan of a long document or of a compressed bomb takes little memory")
def test_a_long_document_and_a_bomb_do_not_fill_the_memory(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(excerpts, "MAX_SECONDS", 600)  # a machine under load reads as a slow disk
    (tmp_path / "long.jsonl").write_bytes(b'{"text": "' + b"word " * 4_000_000 + b'"}\n' + records_of(["one"] * 20_000))
    (tmp_path / "bomb.jsonl.gz").write_bytes(gzip.compress(b'{"text": "one"}\n' * 3_000_000))
    for name, documents in (("long.jsonl", 10), ("bomb.jsonl.gz", 1000)):
        recipe = recipe_of(tmp_path / name, stages=[], output={"formats": []})
        sample = curation.estimate(recipe, tmp_path / "out").sample
        assert sample.bytes < excerpts.MAX_HEAD_TEXT and documents <= sample.documents < 1_000_000


def test_streamed_inputs_are_named_and_not_counted(corpus: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = curate(capsys, "plan", "-i", "hf:some/data", "in/a.jsonl")
    assert code == 0 and "not counted, because their size is not known: 1 input (hf:some/data[train])" in out
    assert "documents: 60 " in out


def test_an_input_without_documents_has_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "empty.jsonl").write_bytes(b"")
    code, out, _ = curate(capsys, "plan", "-i", tmp_path / "empty.jsonl")
    assert code == 0 and "documents: 0 with about 0 bytes" in out and "changes no document" in out


def test_a_plan_says_that_a_run_would_be_refused(corpus: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("curation.running.planning.disk.free_bytes", lambda folder: 1000)
    code, out, _ = curate(capsys, "plan", "-i", "in")
    assert code == 0 and "; a run is refused without --force-disk; 1.0 kB are free in " in out
    assert "1,000 bytes" in failed(capsys, "run", "-i", "in", "-o", "out", "--quiet")
    assert files_below(Path("out")) == []
