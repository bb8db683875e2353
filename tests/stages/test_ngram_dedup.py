# SPDX-License-Identifier: Apache-2.0
"""`ngram_dedup` equals sets of tuples, whatever the batches; its memory limit is checked before anything is read."""

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpu_fallback.session
import curation
from curation.base.errors import RecipeError
from curation.running.run import run
from curation.stages import NgramDedup
from curation.stages.corpus import key_ranges
from curation.stages.invoke import decide
from tests.oracle.pipelines import seen_ngrams
from tests.runs import kept_rows, recipe_of, records_of, removed_rows, report_of
from tests.stages.divided import CPU, corpus_of, write_partitions

WORDS = ["a", "b", "c", "é", "E", "\u00a0", "漢字", "e\u0301"]
ANY_TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=12)


def outcome(texts: list[str], folder: Path, **settings) -> tuple[list[int], list[tuple]]:
    path = folder / "made.jsonl"
    path.write_bytes(records_of(texts))
    recipe = recipe_of(path, stages=[{"kind": "ngram_dedup", **settings}], output={"formats": []})
    run(recipe, folder / "out", engine="cpu", force=True, workers=2, slice_bytes=9000)
    return [doc for doc, *_ in kept_rows(folder / "out")], removed_rows(folder / "out")


def kept_of(texts: list[str], ngram: int, share: float) -> list[int]:
    reason_of = seen_ngrams(ngram, share)
    return [doc for doc, text in enumerate(texts) if not reason_of(text)]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_fallback.session, "BATCH_BYTES", 500)


@pytest.mark.parametrize(("ngram", "share"), [(5, 0.9), (2, 0.5), (1, 1.0), (3, 0.01), (10, 0.9)])
def test_equals_sets_of_tuples(tmp_path: Path, small_batches, ngram: int, share: float):
    chance = random.Random(ngram)
    texts: list[str] = []
    for _ in range(300):
        words = [chance.choice(WORDS) + chance.choice("xyz") for _ in range(chance.randrange(0, 40))]
        if texts and chance.random() < 0.5:
            old = chance.choice(texts).split()
            words = old[: chance.randrange(len(old) + 1)] + words[: chance.randrange(6)]
        texts.append(" ".join(words))
    kept, removed = outcome(texts, tmp_path, ngram=ngram, min_seen=share)
    assert kept == kept_of(texts, ngram, share)
    assert len(removed) == 300 - len(kept) > 5 and len(kept) > 5
    assert {reason for *_, reason, _, _ in removed} == {"seen_ngrams"}


@settings(max_examples=40)
@given(texts=ANY_TEXTS)
def test_equals_sets_of_tuples_on_any_frame(texts: list[str]):
    frame = pd.DataFrame({"text": pd.Series(texts, dtype="str")})
    found = curation.apply(frame, NgramDedup(ngram=2, min_seen=0.75))
    assert found.index.tolist() == kept_of(texts, 2, 0.75)


@settings(max_examples=6)  # whole runs
@given(texts=ANY_TEXTS)
def test_equals_sets_of_tuples_on_any_input(tmp_path_factory: pytest.TempPathFactory, texts: list[str]):
    kept, _ = outcome(texts, tmp_path_factory.mktemp("made"), ngram=2, min_seen=0.75)
    assert kept == kept_of(texts, 2, 0.75)


def test_exactly_the_share_goes_and_the_removed_say_why(tmp_path: Path):
    first = " ".join(f"w{k}" for k in range(13))  # 9 n-grams
    nine_of_ten = first + " new"
    eight_of_nine = " ".join(f"w{k}" for k in range(12)) + " other"
    texts = [first, nine_of_ten, eight_of_nine, "four words are few", first]
    kept, removed = outcome(texts, tmp_path)
    assert kept == [0, 2, 3]  # a document without an n-gram has none that was seen
    assert removed == [
        (1, "made/1", "made", "ngram_dedup", "seen_ngrams", 0.9, "made/0"),
        (4, "made/4", "made", "ngram_dedup", "seen_ngrams", 1.0, "made/0"),
    ]
    (stage,) = report_of(tmp_path / "out")["stages"]
    assert stage["details"]["too_few_words"] == 1 and stage["details"]["ngrams_kept"] == 10


def test_what_a_removed_document_brought_was_not_seen(tmp_path: Path):
    texts = ["a b c d e f g h i j k", "a b c d e f g h i j k l", "h i j k l"]
    kept, _ = outcome(texts, tmp_path, min_seen=0.5)
    assert kept == [0, 2]  # "h i j k l" was only in the second, which went


def test_case_counts_unless_it_is_asked_not_to(tmp_path: Path):
    texts = ["one two three four five six", "One Two Three Four Five Six"]
    assert outcome(texts, tmp_path)[0] == [0, 1]
    assert outcome(texts, tmp_path, compare="lowercase")[0] == [0]


def test_a_table_that_is_too_large_is_refused_before_it_is_made(tmp_path: Path):
    texts = [" ".join(f"w{k}" for k in range(1000))] * 3
    with pytest.raises(
        RecipeError, match=r"ngram_dedup: 3 documents with 2,988 n-grams need a table of 0.0 GB, max_mem"
    ):
        outcome(texts, tmp_path, max_memory_bytes=10_000)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ngram": 0}, "ngram must be at least 1"),
        ({"min_seen": 0.0}, "min_seen must be above 0"),
        ({"min_seen": 1.1}, "min_seen must be above 0"),
        ({"compare": "exat"}, "no comparison 'exat'; did you mean exact"),
        ({"max_memory_bytes": 0}, "max_memory_bytes must be at least 1"),
    ],
)
def test_wrong_settings(settings: dict, told: str):
    with pytest.raises(ValueError, match=told):
        NgramDedup(**settings)


def test_documents_take_no_memory_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(key_ranges, "MIN_GROUP_ROWS", 1000)
    rows = 20_000
    partitions = write_partitions(tmp_path / "segment", {"words": np.full(rows, 2)}, [1000] * 20, ["two words"] * rows)
    corpus = corpus_of(partitions, np.ones(rows, bool), workers=10)
    first = partitions.corpus(0, np.arange(1))
    first.scratch = tmp_path / "first"
    decide(NgramDedup(ngram=2), CPU, first)  # loads modules
    tracemalloc.start()
    decision = decide(NgramDedup(ngram=2), CPU, corpus)
    table, peak = decision.details["table_bytes"], tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(decision.dropped) == rows - 1
    assert peak - table < 60 * rows  # 135 bytes per document when arrays held them


def test_the_table_has_room_for_words_that_a_comparison_divides():
    """Of 5 words between white space, marks make 20."""
    texts = [" ".join(f"{k}a-{k}b.{k}c/{k}d" for k in range(start, start + 5)) for start in (10, 20, 20)]
    frame = pd.DataFrame({"text": texts})
    assert curation.ngram_dedup(frame, compare="visible")["text"].tolist() == texts[:2]
