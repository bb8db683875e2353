# SPDX-License-Identifier: Apache-2.0
"""`curation.check_spans` and `check-overlap --spans`: evaluation text in an index, against a plain search."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import curation
from curation.base.errors import InputError, IntegrityError, RecipeError
from curation.running.run import run
from curation.tools import overlap_spans
from tests.cli.test_cli import curate, failed
from tests.runs import recipe_of, records_of

LENGTH = 32
WORDS = ("licence", "漢字", "é", "of", "the", "a\n", "0123456789", "🙂")


def made(count: int, chance: random.Random) -> list[str]:
    return [" ".join(chance.choices(WORDS, k=chance.randrange(40))) for _ in range(count)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A run with an index, its texts, and items: pieces of texts within other words, a repeated one, short ones."""
    folder, chance = tmp_path_factory.mktemp("spans"), random.Random(3)
    texts = made(80, chance)
    items = made(20, chance)
    for _ in range(30):
        text = chance.choice([text for text in texts if len(text) > 60])
        start = chance.randrange(len(text) - 50)
        items.append(f"{chance.random()}{text[start : start + chance.randrange(20, 90)]}{chance.random()}")
    items += [items[-1] + items[-1], texts[7], "short", ""]
    (folder / "train.jsonl").write_bytes(records_of(texts))
    (folder / "quiz.jsonl").write_bytes(records_of(items))
    (folder / "other.jsonl").write_bytes(records_of([str(chance.random()) * 4 for _ in range(3)]))
    stages = [{"kind": "substring_dedup", "length": LENGTH, "min_kept": 30}]
    recipe = recipe_of(folder / "train.jsonl", stages=stages, output={"formats": [], "index": True})
    run(recipe, folder / "out", engine="cpu", workers=1)
    return folder, texts, items


def covered(item: bytes, texts: list[bytes]) -> set[int]:
    """The bytes of an item in windows that a text has."""
    found: set[int] = set()
    for start in range(len(item) - LENGTH + 1):
        if any(item[start : start + LENGTH] in text for text in texts):
            found |= {*range(start, start + LENGTH)}
    return found


@pytest.mark.parametrize("at_once", [300, 1 << 20])
def test_spans_are_those_of_a_plain_search(place: Any, at_once: int, monkeypatch: pytest.MonkeyPatch):
    folder, texts, items = place
    monkeypatch.setattr(overlap_spans, "AT_ONCE", at_once)
    found = curation.check_spans(folder / "out/index", folder / "quiz.jsonl", places=1000, threshold=0.6)
    data = [text.encode() for text in texts]
    for row, item in zip(found.items.to_pylist(), map(str.encode, items), strict=True):
        expected = covered(item, data)
        assert (row["bytes"], row["found"]) == (len(item), len(expected)), item
        assert row["share"] == (len(expected) / len(item) if item else None)
        assert row["contaminated"] == (len(expected) > 0.6 * len(item))
        spans = [(span["start"], span["stop"]) for span in row["spans"]]
        assert spans == sorted(spans) and {byte for start, stop in spans for byte in range(start, stop)} == expected
        for span in row["spans"]:
            text, (start, stop) = data[int(span["document"].partition("/")[2])], (span["start"], span["stop"])
            first, last = span["offset"], span["offset"] + stop - start
            assert item[start:stop] == text[first:last] and stop - start >= LENGTH
            assert not start or not first or item[start - 1] != text[first - 1]  # no longer one is there
            assert item[stop : stop + 1] != text[last : last + 1] or not item[stop:]
    (counts,) = found.sets
    rows = found.items.to_pylist()
    assert counts == overlap_spans.SpanSet(
        "quiz", len(items), sum(row["contaminated"] for row in rows), sum(row["found"] > 0 for row in rows),
        sum(len(item.encode()) < LENGTH for item in items), sum(row["bytes"] for row in rows),
        sum(row["found"] for row in rows),
    )  # fmt: skip
    assert 9 < counts.contaminated < counts.touched < len(items) and counts.short > 1


def test_the_longest_spans_are_named(place: Any):
    folder, _, _ = place
    whole = curation.check_spans(folder / "out/index", folder / "quiz.jsonl", places=1000).items["spans"].to_pylist()
    some = curation.check_spans(folder / "out/index", folder / "quiz.jsonl", places=2).items["spans"].to_pylist()
    assert max(map(len, whole)) > 2
    for few, spans in zip(some, whole, strict=True):
        sizes = sorted(span["start"] - span["stop"] for span in spans)[:2]
        assert sorted(span["start"] - span["stop"] for span in few) == sizes
        assert all(span in spans for span in few)


def test_the_command_names_places(place: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, texts, _ = place
    (folder / "one.jsonl").write_bytes(records_of(["so " + texts[7], "short"]))
    tests, target = [folder / "one.jsonl", folder / "other.jsonl"], tmp_path / "items.json"
    code, out, _ = curate(
        capsys, "check-overlap", "--spans", folder / "out/index", "--test", *tests, "--output", target
    )  # fmt: skip
    lines, size = out.splitlines(), len(texts[7].encode())
    assert code == 1
    assert lines[0] == "searched the index of 80 documents; spans of 32 bytes or more"
    assert [line.split() for line in lines[2:4]] == [
        ["one", "2", "1", "50.00%", "1", f"{size / (size + 8):.2%}", "1"],
        ["other", "3", "0", "0.00%", "0", "0.00%", "0"],
    ]  # fmt: skip
    assert "one: 1 item of fewer than 32 bytes, not found; the index of a smaller length finds them" in lines
    assert any(line.startswith(f"{folder}/one.jsonl, item 1: ") and " in train/" in line for line in lines)
    content = json.loads(target.read_bytes())
    assert content["sets"][0]["bytes"] == size + 8 and len(content["items"]) == 5
    assert curate(capsys, "check-overlap", "--spans", folder / "out/index", "--test", tests[1])[0] == 0
    curation.check_spans(folder / "out/index", folder / "one.jsonl").save(tmp_path / "items.parquet")
    assert pq.read_table(tmp_path / "items.parquet")["spans"][0].as_py()[0]["document"] == "train/7"


def test_bad_input(place: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder, _, _ = place
    index, test = folder / "out/index", folder / "quiz.jsonl"
    for options, told in (
        ([], "give training texts as --train PATH..., or an index as --spans INDEX"),
        (["--spans", index, "--train", test], "give training texts as --train PATH..., or an index as --spans INDEX"),
        (["--spans", index, "--model", "m"], "--model compares vectors, and --spans bytes; give one of them"),
    ):
        assert told in failed(capsys, "check-overlap", "--test", test, *options)
    for arguments, error, told in (
        ((folder / "out", test), RecipeError, f"index: {folder}/out/spans has no index.json; did you mean {index}?"),
        ((index, []), InputError, "test has no inputs, expected at least one path"),
    ):
        with pytest.raises(error) as caught:
            curation.check_spans(*arguments)
        assert told in str(caught.value)
    for settings, told in (({"threshold": 1.0}, "threshold must be at least 0 and below 1, not 1"),
                           ({"places": 0}, "places must be at least 1, not 0")):  # fmt: skip
        with pytest.raises(RecipeError, match=told):
            curation.check_spans(index, test, **settings)
    damaged = tmp_path / "index/spans"
    damaged.mkdir(parents=True)
    (damaged / "index.json").write_bytes(b"[")
    with pytest.raises(IntegrityError, match=r"index\.json is damaged"):
        curation.check_spans(damaged.parent, test)
