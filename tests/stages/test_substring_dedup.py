# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` cuts what a dictionary of windows cuts, in tasks of any division."""

import itertools
import json
import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.base.contract import TEXT
from curation.base.errors import RecipeError
from curation.cli import main
from curation.kernels.hashing import FMIX_1, FMIX_2
from curation.kernels.spans import BASE
from curation.recipes.recipe import convert_recipe
from curation.results.finished.first_copies import first_copies
from curation.results.finished.results import open_finished, run_documents
from curation.results.finished.verify import verify
from curation.running.planning.disk import CANDIDATES
from curation.running.run import run
from curation.stages import SubstringDedup
from curation.stages.base import StageSample
from curation.stages.corpus.cutting import cut_texts, cuts_folder, load_cuts
from curation.stages.corpus.key_ranges import division_of
from curation.stages.exact import span_blocks
from curation.stages.exact.substring_dedup import REASON
from curation.stages.invoke import decide
from curation.stages.outcome import StageCount
from tests.corpus import NASTY
from tests.kernels.test_spans import made_corpus
from tests.oracle.substring_dedup import frequent_spans, substring_dedup
from tests.runs import digests, records_of, report_of
from tests.stages.divided import CPU, ORDERS, Order, corpus_of, decide_in_order, write_partitions

LENGTH = 32
PIECES = [
    "Home. News! ",
    "漢字は。",
    "\n",
    "A licence permits copies of this text. ",
    "é" * 9,
    "x" * 40,
    "\u2028",
    "end.",
]


def made_pages(count: int, seed: int = 0) -> list[str]:
    """Texts of few different pieces, which repeat within texts and between them, and of others."""
    chance = random.Random(seed)
    texts = []
    for _ in range(count):
        new = ["".join(chance.choices("abcdefgh \n", k=chance.randrange(60))) for _ in range(3)]
        texts.append("".join(chance.choices(PIECES + new, k=chance.randrange(14))))
    return texts


PAGES = [*made_pages(60), *(text for text in NASTY if len(text) < 1000), "ab" * 700, "", "short"]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"length": 45, "join": 9},
    {"bounds": "lines", "min_kept": 20},
    {"bounds": "sentences", "join": 3},
]


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"BLOCK_RECORDS": 60, "BLOCK_BYTES": 3000, "PIECE_BYTES": 700, "PIECE_WINDOWS": 20}.items():
        monkeypatch.setattr(span_blocks, name, size)
    monkeypatch.setattr("curation.stages.corpus.key_ranges.MIN_GROUP_ROWS", 20)


def cut_in_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], order: Order, engine: Any
) -> tuple[list[str | None], dict[str, Any]]:  # fmt: skip
    """The texts after the stage, None for removed ones, and its details."""
    partitions = write_partitions(folder, {}, [25, 0, 1, 30, len(PAGES) - 56], PAGES)
    corpus = corpus_of(partitions, np.ones(len(PAGES), bool))
    decision = decide_in_order(monkeypatch, SubstringDedup(**{"length": LENGTH} | settings), corpus, order, engine)
    texts: list[str | None] = []
    for number, (low, high) in enumerate(itertools.pairwise(partitions.starts.tolist())):
        spans = load_cuts(cuts_folder(corpus.scratch), number)
        texts += cut_texts(pa.array(PAGES[low:high], pa.large_string()), spans, 0).to_pylist()
    for drops in decision.drops:
        assert drops.reason == REASON
        for row in drops.row.tolist():
            texts[row] = None
    return texts, dict(decision.details)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_texts_are_those_of_a_dictionary(settings: dict[str, Any], tmp_path: Path, monkeypatch, engine):
    expected = substring_dedup(PAGES, **{"length": LENGTH} | settings)
    pairs = [(old, new) for old, new in zip(PAGES, expected, strict=True) if new is not None]
    assert sum(old != new for old, new in pairs) > 9
    for number, order in enumerate([Order(1, 5, 3, 1, 2)] if settings else ORDERS[1:3]):
        texts, details = cut_in_order(tmp_path / str(number), monkeypatch, settings, order, engine)
        assert texts == expected
        assert details["characters"] == sum(len(old) - len(new) for old, new in pairs)
        assert details["bytes"] == sum(len(old.encode()) - len(new.encode()) for old, new in pairs)
        assert 0 < details["anchors"] < sum(len(page.encode()) for page in PAGES)
        assert details["emptied"] == sum(bool(old) and not new for old, new in pairs)
        assert details["documents"] == sum(old != new for old, new in pairs)
        assert (details["left"] > 0) == (None in expected) == ("min_kept" in settings)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            SETTINGS[1], marks=pytest.mark.slow("frequent spans that are joined are counted by key and length")
        ),
        SETTINGS[2],
    ],
    ids=str,
)
def test_spans_are_counted_by_key_and_length(settings: dict[str, Any], tmp_path: Path, monkeypatch):
    length, shown = settings.get("length", LENGTH), {}
    for number, order in enumerate(ORDERS[1:3]):
        partitions = write_partitions(tmp_path / str(number), {}, [25, 0, 1, 30, len(PAGES) - 56], PAGES)
        corpus = corpus_of(partitions, np.ones(len(PAGES), bool), sources=[("a", 0, len(PAGES))])
        decision = decide_in_order(monkeypatch, SubstringDedup(**{"length": LENGTH} | settings), corpus, order)
        spans = []
        for part, first in enumerate(partitions.starts[:-1].tolist()):
            rows = zip(*load_cuts(cuts_folder(corpus.scratch), part), strict=True)
            spans += [PAGES[first + row].encode()[start:stop] for row, start, stop in rows]
        shown[number] = decision.details["frequent"], decision.details["lengths"]
    assert shown[0] == shown[1]
    frequent, lengths = shown[0]
    expected = frequent_spans(spans, length)
    assert [entry["count"] for entry in frequent] == sorted((n for n, _ in expected.values()), reverse=True)[:50]
    assert frequent[0]["count"] > 1 and max(map(len, spans)) > 2 * length
    for entry in frequent:
        counted = (entry["count"], entry["bytes"], entry["text"])
        assert counted in [(n, len(span), span.decode()[:200]) for n, span in expected.values()]
    sizes = [len(span) for span in spans]
    for name, (count, size) in lengths.items():
        low, high = (0, length - 1) if name.startswith("below") else map(int, name.replace(",", "").split(" to "))
        own = [each for each in sizes if low <= each <= high]
        assert (count, size) == (len(own), sum(own)), name
    assert sum(count for count, _ in lengths.values()) == len(spans)


def test_random_corpora_of_few_phrases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs with many repetitions within them, and of texts in several batches."""
    cut = 0
    for seed in range(8):
        chance = random.Random(seed)
        texts = [text.decode() for text in made_corpus(chance) + made_corpus(chance)]
        rows = [3, 3, len(texts) - 6] if len(texts) > 6 else [len(texts)]
        corpus = corpus_of(write_partitions(tmp_path / str(seed), {}, rows, texts), np.ones(len(texts), bool))
        decide_in_order(monkeypatch, SubstringDedup(length=LENGTH), corpus, Order(3, 9, 2))
        found: list[str] = []
        for number, size in enumerate(rows):
            part, spans = texts[len(found) : len(found) + size], load_cuts(cuts_folder(corpus.scratch), number)
            found += cut_texts(pa.array(part, pa.large_string()), spans, 0).to_pylist()
            cut += len(spans.row)
        assert found == substring_dedup(texts, LENGTH), seed
    assert cut > 20


@pytest.mark.slow("a large range of substrings is treated in passes")
@pytest.mark.parametrize("limit", [9, 40])  # nine: fewer than the copies of one span
def test_a_large_range_takes_passes(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine):
    """A reducer holds few records, those of one frequent hash too."""
    monkeypatch.setattr(span_blocks, "PASS_RECORDS", limit)
    monkeypatch.setattr(span_blocks, "_are_repeated", lambda _, records: np.zeros(len(records), bool))  # it judges, too
    seen, real = [], engine.judge_records

    def judge(records: np.ndarray, is_whole: bool) -> np.ndarray:
        seen.append(len(records))
        return real(records, is_whole)

    monkeypatch.setattr(engine, "judge_records", judge)
    texts, _ = cut_in_order(tmp_path / "in", monkeypatch, {}, Order(1, 2, 1), engine)
    assert texts == substring_dedup(PAGES, LENGTH)
    assert len(seen) > 99 and max(seen) < limit + 20


# Runs


SPANS: dict[str, Any] = {"kind": "substring_dedup", "length": LENGTH}


def write_input(path: Path, texts: list[str]) -> Path:
    path.write_bytes(records_of(texts))
    return path


def finish(folder: Path, source: Path, stages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    recipe = convert_recipe(
        {"input": [{"path": str(source), "keep_blank": True}], "stages": stages, "output": {"formats": []}}
    )
    run(recipe, folder, engine="cpu", **{"workers": 2, "scheduler": "threads"} | more)
    return report_of(folder)


def test_a_run_counts_and_shows_what_it_cuts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, stages = write_input(tmp_path / "in.jsonl", PAGES), [SPANS | {"min_kept": 5}]
    report = finish(tmp_path / "out", source, stages)
    entry, no_warnings = report["stages"][0], report["warnings"]
    assert not [line for line in no_warnings if "record per" in line]
    expected = substring_dedup(PAGES, LENGTH, min_kept=5)
    kept = [text for text in expected if text is not None]
    assert pq.read_table(tmp_path / "out" / "documents")[TEXT].to_pylist() == kept
    changed = sum(new not in (old, None) for old, new in zip(PAGES, expected, strict=True))
    removed, details = expected.count(None), entry["details"]
    assert (entry["edited"], entry["reasons"]) == (changed, {REASON: removed}) and removed > 3
    share = details["bytes"] / entry["bytes_in"]
    assert entry["lines"][1].startswith("bytes cut by length of span: 32 to 63 11.8%, 64 to 127 ")
    assert entry["lines"][2] == "cut 15 times, 39 bytes: A licence permits copies of this text."
    assert entry["lines"][-1] == f"{entry['bytes_in']:,} bytes of text before, {entry['bytes_out']:,} after"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "most frequent spans" in page and "A licence permits copies of this text." in page
    assert [entry["lines"][0], entry["lines"][-2]] == [
        f"{details['bytes']:,} bytes of {entry['bytes_in']:,} cut ({share:.1%}) in {details['spans']} spans, "
        f"{details['characters']:,} characters in {changed} documents; {details['emptied']} documents without text now",
        f"{removed} documents removed that kept fewer than 5 characters, with the {details['left']} characters that "
        "were left",
    ]
    assert verify(tmp_path / "out") == []
    assert main(["show", str(tmp_path / "out"), "--what", "edited", "--sample", "30"]) == 0
    assert "[[" in capsys.readouterr().out
    whole = digests(tmp_path / "out")
    finish(tmp_path / "small", source, stages, slice_bytes=9000)
    found = digests(tmp_path / "small")
    assert {file for file in whole if found[file] != whole[file]} <= {"report.json", "recipe.resolved.yaml"}


def test_a_run_that_stops_at_each_rename_of_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One run, which stops again after each file that it writes."""
    source = write_input(tmp_path / "in.jsonl", made_pages(20))
    options = {"workers": 1, "slice_bytes": 2500}
    finish(tmp_path / "whole", source, [SPANS | {"min_kept": 5}], **options)
    real, seen = os.replace, []

    class Stopped(BaseException):
        """What no code of the project catches."""

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        name = str(Path(target).relative_to(tmp_path / "out"))
        if name not in seen and any(part in name for part in ("stage-0", "decision-0")):
            seen.append(name)
            raise Stopped

    monkeypatch.setattr(os, "replace", replace)
    done = False
    while not done:
        with suppress(Stopped):
            finish(tmp_path / "out", source, [SPANS | {"min_kept": 5}], **options)
            done = True
    for level in span_blocks.LEVELS:
        for folder in (level.name, f"{level.name}_listed", f"{level.name}_compared"):
            assert any(f"{folder}/" in name for name in seen), folder
    assert any("stage-0-cuts/" in name for name in seen)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_the_report_has_the_share_of_each_input(tmp_path: Path):
    paths = [write_input(tmp_path / f"{name}.jsonl", texts) for name, texts in (("a", PAGES[:30]), ("b", PAGES[30:]))]
    recipe = {
        "input": [{"path": str(path), "keep_blank": True} for path in paths],
        "stages": [SPANS],
        "output": {"formats": []},
    }
    run(convert_recipe(recipe), tmp_path / "out", engine="cpu", workers=1, slice_bytes=9000)
    expected = substring_dedup(PAGES, LENGTH)
    sizes = [[sum(len(text.encode()) for text in texts) for texts in (PAGES[own], expected[own])]
             for own in (slice(30), slice(30, None))]  # fmt: skip
    entry = report_of(tmp_path / "out")["stages"][0]
    assert entry["details"]["sources"] == {name: [a - b, a] for name, (a, b) in zip("ab", sizes, strict=True)}
    shares = sorted(((1 - b / a, name) for name, (a, b) in zip("ab", sizes, strict=True)), reverse=True)
    assert entry["lines"][1] == f"bytes cut by input: {', '.join(f'{name} {share:.1%}' for share, name in shares)}"


def test_a_report_without_samples_has_no_text_of_a_span(tmp_path: Path):
    source = write_input(tmp_path / "in.jsonl", PAGES)
    recipe = {
        "input": [{"path": str(source), "keep_blank": True}],
        "stages": [SPANS],
        "output": {"formats": [], "removed": "ids"},
    }
    run(convert_recipe(recipe | {"report": {"samples": 0}}), tmp_path / "out", engine="cpu", workers=1)
    entry = report_of(tmp_path / "out")["stages"][0]
    assert entry["lines"][2] == "cut 15 times, 39 bytes"
    assert {*entry["details"]["frequent"][0]} == {"count", "bytes"}
    for name in ("report.json", "report.html"):
        assert "licence permits" not in (tmp_path / "out" / name).read_text()


def test_show_names_the_first_copy_of_each_span(tmp_path: Path):
    """Bytes that are cut have their first copy in the kept documents or in their own text, but for those whose first
    copy was cut in part itself."""
    texts = [*made_pages(60, seed=5), "é" * 60, "short", "漢字は。" * 30]
    source = write_input(tmp_path / "in.jsonl", texts)
    stage = SPANS | {"min_kept": 3}
    recipe = {
        "input": [{"path": str(source), "keep_blank": True}],
        "stages": [stage],
        "output": {"formats": [], "removed": "text"},
    }
    run(convert_recipe(recipe), tmp_path / "out", engine="cpu", workers=1)
    finished = open_finished(tmp_path / "out")
    kept = pq.read_table(tmp_path / "out" / "documents")
    after = dict(zip(kept["id"].to_pylist(), kept[TEXT].to_pylist(), strict=True))
    expected = dict(zip((str(k) for k in range(len(texts))), substring_dedup(texts, LENGTH), strict=True))
    spans, cut, missed = 0, 0, 0
    for what, column in (("edited", "text_before"), ("removed", TEXT)):
        rows = run_documents(tmp_path / "out", what)
        assert len(rows) > 2
        found = first_copies(finished, rows, what)
        names = ("id", "doc", column)
        for id_, doc, text, copies in zip(*(rows[name].to_pylist() for name in names), found, strict=True):
            data = text.encode()
            left = bytearray(data)
            for copy in reversed(copies):
                del left[copy.start : copy.stop]
                other = data if copy.id == id_ else after[copy.id].encode()
                assert other[copy.first : copy.first + copy.stop - copy.start] == data[copy.start : copy.stop]
                assert copy.first < copy.start or copy.id != id_
                window = data[copy.start : copy.start + LENGTH]
                docs = zip(kept["doc"].to_pylist(), kept[TEXT].to_pylist(), kept["id"].to_pylist(), strict=True)
                before = [other for number, text, other in docs if number < doc and window in text.encode()]
                assert len(window) < LENGTH or copy.stop - copy.start < LENGTH or before[:1] in ([], [copy.id])
                spans += 1
            new = (expected[str(doc)] or "").encode() if what == "edited" else b""
            cut, missed = cut + len(data) - len(new), missed + max(len(left) - len(new), 0)
    assert spans > 40 and missed < 0.1 * cut


def test_measure_counts_what_several_lengths_would_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    paths = [write_input(tmp_path / f"{name}.jsonl", texts) for name, texts in (("a", PAGES[:30]), ("b", PAGES[30:]))]
    keep = [word for name in "ab" for word in ("--set", f"input.{name}.keep_blank=true")]
    command = ["measure", *map(str, paths), *keep, "--spans", "80,32", "--engine", "cpu", "--workers", "1"]
    assert main([*command, "--log", "json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["documents"]["kept"] == len(PAGES) and found["documents"]["edited"] == 0
    for entry, length in zip(found["spans"], (32, 80), strict=True):
        pairs = [(len(old.encode()), len((new or "").encode()))
                 for old, new in zip(PAGES, substring_dedup(PAGES, length), strict=True)]  # fmt: skip
        assert (entry["length"], entry["bytes_in"]) == (length, sum(old for old, _ in pairs))
        assert entry["bytes"] == sum(old - new for old, new in pairs) > 0
        assert entry["documents"] == sum(old != new for old, new in pairs)
        assert entry["sources"]["a"][0] == sum(old - new for old, new in pairs[:30])
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"32 bytes  {found['spans'][0]['bytes']:,}  " in out
    assert "repeats 15 times, 39 bytes: A licence permits copies of this text.\n" in out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--spans", "20"], "measure --spans: length must be from 32 to 65,535 bytes, not 20"),
        (["--spans", "100,2x"], "measure --spans takes lengths in bytes, such as 100,200,500, not '2x'"),
        (["--spans", "100", "--names", "words"], "measure --spans prints shares alone: leave --names out"),
    ],
)
def test_wrong_lengths_to_measure(options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["measure", str(write_input(tmp_path / "in.jsonl", ["one"])), *options]) == 2
    assert told in capsys.readouterr().err


def test_plan_warns_of_stages_that_may_remove_the_last_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, recipe = write_input(tmp_path / "in.jsonl", PAGES), tmp_path / "recipe.yaml"
    told = "substring_dedup: filter, fuzzy_dedup after it may remove the only copy of a span that is left. Put stages"
    stages = ["{kind: substring_dedup}", "{kind: redact}", "{kind: filter, rules: {words: {min: 1}}}", "fuzzy_dedup"]
    for order, warns in ((stages, True), ([*stages[2:], *stages[:2]], False)):
        recipe.write_text(f"input: [{{path: {source}}}]\nstages: [{', '.join(order)}]\noutput: {{formats: []}}\n")
        assert main(["plan", str(recipe)]) == 0
        assert (told in capsys.readouterr().err) == warns


def test_text_that_was_chosen_against_the_hash_is_a_warning():
    """An anchor per byte in place of one per 50."""
    stage = SubstringDedup(length=200)
    count = StageCount(kind=stage.kind, name="", bytes_in=1_000_000, details={"anchors": 80_000})
    assert stage.warnings(count) == [
        "substring_dedup: the text has a record per 12.5 bytes, expected one per 50 or more. It may have been chosen "
        "to slow this stage. The cuts are exact; the stage took more time and disk"
    ]
    count.details["anchors"] = 79_999
    assert stage.warnings(count) == []


@pytest.mark.parametrize("length", [32, 100, 200])
def test_copies_with_changes_need_less_disk_than_announced(length: int, tmp_path: Path, monkeypatch):
    """Copies in which one byte in 0.8 to 1.2 lengths differs need the most files."""
    monkeypatch.setattr(span_blocks, "BLOCK_RECORDS", 1 << 21)
    monkeypatch.setattr(span_blocks, "BLOCK_BYTES", 1 << 27)
    chance = random.Random(length)
    base = "".join(chance.choices("abcdefghijklmnop qrstuvwxyz", k=8000))
    texts = []
    for _ in range(6):
        text = [*base]
        for place in chance.sample(range(len(base)), len(base) // length):
            text[place] = chance.choice("0123456789")
        texts.append("".join(text))
    corpus = corpus_of(write_partitions(tmp_path / "in", {}, [3, 3], texts), np.ones(6, bool))
    stage, size = SubstringDedup(length=length), sum(map(len, texts))
    decide(stage, CPU, corpus)
    files = sum(path.stat().st_size for path in corpus.scratch.rglob("*.bin"))
    assert 0.5 < files / (CANDIDATES * stage.forecast(StageSample(6, size)).scratch_bytes) < 1


def chosen_text(size: int, length: int) -> str:
    """A text in which the hashes of strings of `length // 2` bytes ascend as often as they can: each of them is the
    least one of a window, when those before it are out."""
    strings, letters = length // 2, np.arange(33, 97, dtype=np.uint64)
    drop, text, rolled, before = np.uint64(1), [33] * strings, np.uint64(0), np.uint64(0)
    with np.errstate(over="ignore"):
        for _ in range(strings):
            drop, rolled = drop * BASE, rolled * BASE + np.uint64(33)
        while len(text) < size:
            values = rolled * BASE + (letters - drop * np.uint64(text[-strings]))
            hashes = values ^ values >> np.uint64(33)
            for factor in (FMIX_1, FMIX_2):
                hashes = hashes * factor
                hashes ^= hashes >> np.uint64(33)
            above = np.flatnonzero(hashes > before)
            best = above[hashes[above].argmin()] if len(above) else hashes.argmin()
            rolled, before = values[best], hashes[best]
            text.append(int(letters[best]))
    return bytes(text).decode()


def test_chosen_text_is_slow_and_cut_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It takes more disk and is a warning, and ends in the cuts of its definition."""
    monkeypatch.setattr("curation.stages.exact.substring_dedup.MIN_ANCHORS", 1000)
    text = chosen_text(3000, LENGTH)
    texts = [text[:2000], text[900:], text[200:700]]
    report = finish(tmp_path / "out", write_input(tmp_path / "in.jsonl", texts), [SPANS])
    anchors, size = report["stages"][0]["details"]["anchors"], sum(map(len, texts))
    assert anchors > size / 2
    (warning,) = [line for line in report["warnings"] if "record per" in line]
    assert warning.startswith(
        f"substring_dedup: the text has a record per {size / anchors:.1f} bytes, expected one per 8 "
    )
    assert pq.read_table(tmp_path / "out" / "documents")[TEXT].to_pylist() == substring_dedup(texts, LENGTH)


@pytest.mark.parametrize("texts", [[], [""], ["a" * 31] * 3, ["a" * 5000], [None, "a" * 32, "a" * 32]], ids=range(5))
def test_small_corpora(texts: list[str | None]):
    """No window, one character, and copies of one window: a run of one character keeps `length` of it."""
    frame = pd.DataFrame({TEXT: pd.Series(texts, dtype="str")})
    expected = substring_dedup([text or "" for text in texts], LENGTH)
    assert curation.substring_dedup(frame, length=LENGTH)[TEXT].fillna("").tolist() == expected


def test_ranges_and_groups_are_divided_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A group has about as many bytes as another, whatever the number of its documents."""
    texts = ["x"] * 300 + ["".join(random.Random(k).choices("abcd", k=4000)) for k in range(6)]
    partitions = write_partitions(tmp_path / "in", {}, [300, 1, 1, 1, 1, 1, 1], texts)
    corpus = corpus_of(partitions, np.ones(len(texts), bool))
    decide(SubstringDedup(length=LENGTH), CPU, corpus)
    assert division_of(corpus).slice_groups == [0, 4, 7]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"length": 31}, "length must be from 32 to 65,535 bytes, not 31. Shorter sequences repeat by chance"),
        ({"length": 65_536}, "length must be from 32 to 65,535 bytes, not 65536. Longer ones are rare"),
        ({"bounds": "line"}, "bounds must be one of characters, lines, sentences, not 'line'; did you mean lines?"),
        ({"join": -1}, "join must be 0 (cut only repeated bytes) or more bytes, not -1"),
        ({"min_kept": -5}, "min_kept must be 0 (remove no document) or more characters, not -5"),
    ],
)  # fmt: skip
def test_wrong_settings(settings: dict[str, Any], told: str):
    with pytest.raises(RecipeError) as error:
        convert_recipe({"input": [{"path": "x.jsonl"}], "stages": [SPANS | settings]})
    assert told in str(error.value)
