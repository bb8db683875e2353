# SPDX-License-Identifier: Apache-2.0
"""The GPU engine's memory layout, and its launches run on NumPy arrays: one Python call per CUDA thread.

What this cannot show is the device itself.
"""

import random
import re
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import cpu_fallback
import cpu_fallback.text
from curation.base.errors import EngineError, InputError
from curation.base.measures import REPEATED_SIZES, Measure
from curation.kernels.hashing import table_mask
from curation.kernels.rewrite import RewriteSteps
from curation.models.fasttext import load_classifier
from curation.models.ngrams import load_language_model
from tests.corpus import NASTY
from tests.gpu.stand_ins import all_kernels, install, kernels, rubbish
from tests.oracle.fasttext_reference import HIERARCHICAL, as_bytes, model_of
from tests.stages.test_perplexity import made_arpa
from tests.tools.test_byte_lm import made_byte_model

NAMES = tuple(measure.name for measure in Measure)
TEXTS = [*(text for text in NASTY if len(text) < 5_000), None, None, "e\u0301 ﬁ Σ <b>İ</b>  x" * 50]
SHORT_TEXTS = [text for text in TEXTS if text is None or len(text) < 200]
STEPS = [
    RewriteSteps(unicode="nfc"),
    RewriteSteps(lowercase=True),
    RewriteSteps(whitespace="collapse", markup="brackets"),
    RewriteSteps("nfkc", "brackets_line", "strip_all", "basic", True, "lines"),
]


@pytest.fixture
def on_numpy(monkeypatch):
    """Loads a module of the GPU engine over the stand-ins."""
    return install(monkeypatch)


@pytest.fixture
def gpu_text(on_numpy):
    return on_numpy("text")


@pytest.fixture
def gpu_dedup(on_numpy):
    return on_numpy("dedup")


def column(texts):
    return pd.Series(texts, dtype="str", index=range(100, 100 + len(texts)))


def assert_same_measures(gpu_text, texts, names=NAMES):
    expected, actual = cpu_fallback.measure(column(texts), names), gpu_text.measure(column(texts), names)
    assert list(actual) == list(expected)
    for name in names:
        np.testing.assert_array_equal(actual[name], expected[name], name, strict=True)


def test_measures(gpu_text):
    assert_same_measures(gpu_text, TEXTS, [name for name in NAMES if name not in REPEATED_SIZES])
    assert_same_measures(gpu_text, TEXTS[::5], [*REPEATED_SIZES])  # slow over NumPy


@pytest.mark.parametrize("names", [("words",), ("duplicate_lines",), ("distinct_words", "words"), ("top_3gram_count",)])
def test_some_measures(gpu_text, names):
    assert_same_measures(gpu_text, TEXTS[::5], names)


def test_a_walk_that_is_not_settled_is_walked_by_one_thread(gpu_text, monkeypatch):
    monkeypatch.setattr(all_kernels.repetition_kernels, "WALK_ROUNDS", 0)
    monkeypatch.setattr(all_kernels.word_kernels, "WALK_ROUNDS", 0)
    chance = random.Random(3)
    texts = [" ".join(chance.choices("ab", k=size)) for size in (0, 1, 20, 200, 600)]
    assert_same_measures(gpu_text, texts, [name for name in NAMES if "gram_" in name])


@pytest.fixture
def all_long(gpu_text, monkeypatch):
    """Documents of a word or a line are long."""
    monkeypatch.setattr(all_kernels.repetition_kernels, "SMALL_SLOTS", 0)
    for name in ("SMALL_WORDS", "MEDIUM_WORDS", "LARGE_WORDS"):
        monkeypatch.setattr(all_kernels.word_kernels, name, 0)


@pytest.mark.slow("the GPU engine over NumPy measures long documents")
def test_measures_of_long_documents(gpu_text, all_long):
    chance = random.Random(7)
    texts = [" ".join(chance.choices("abc", k=size)) for size in (1, 31, 32, 33, 64, 300)]
    assert_same_measures(gpu_text, [*SHORT_TEXTS[::9], *texts, None, "a\n\nb\na\n\nb\n" * 40])
    assert_same_measures(gpu_text, texts, ["distinct_words"])


@pytest.mark.slow("long walks that are not settled are left to the CPU engine")
def test_a_long_walk_that_is_not_settled_is_left_to_the_cpu_engine(gpu_text, all_long, monkeypatch):
    rows, on_cpu = [], gpu_text._on_cpu
    monkeypatch.setattr(gpu_text, "_on_cpu", lambda text, chosen, use: rows.extend(chosen) or on_cpu(text, chosen, use))
    monkeypatch.setattr(all_kernels.repetition_kernels, "WALK_ROUNDS", 1)
    chance = random.Random(3)
    texts = [" ".join(chance.choices("ab", k=size)) for size in (0, 3, 20, 200, 600)]
    assert_same_measures(gpu_text, [None, *texts, "one two three"])
    assert {5} <= set(rows) <= {3, 4, 5}


@pytest.fixture(params=["large batches", "small batches", "long documents"])
def sizes(request, gpu_text, monkeypatch):
    """Texts: all in large batches, a third of them where batches are small or documents long."""
    if request.param == "small batches":
        monkeypatch.setattr(gpu_text.columns, "MIN_SCRATCH_BYTES", 5000)
        monkeypatch.setattr(gpu_text.columns, "SCRATCH_SHARE", 0)
    if request.param == "long documents":  # of ordinary size here; they go through the CPU engine
        monkeypatch.setattr(gpu_text.columns, "LONG_BYTES", 30)
        monkeypatch.setattr(gpu_text.columns, "LONG_MEASURED_BYTES", 30)
    return TEXTS if request.param == "large batches" else TEXTS[::3]


@pytest.mark.slow("the GPU engine over NumPy measures batches of any size alike")
def test_measures_in_batches(gpu_text, sizes):
    assert_same_measures(gpu_text, sizes[::2])


def test_long_documents_are_left_to_the_cpu_engine(gpu_text, monkeypatch):
    sizes = []
    monkeypatch.setattr(gpu_text.columns, "LONG_MEASURED_BYTES", 30)
    monkeypatch.setattr(gpu_text, "_on_cpu", lambda text, rows, function: sizes.extend(text.iloc[rows].str.len()))
    with pytest.raises(TypeError):  # the stand-in gives nothing
        gpu_text.measure(column(["short", "x" * 30, "x" * 31, None, "y z " * 50]), NAMES)
    assert sizes == [31, 200]


SHORT = "device memory is short: documents are processed in smaller batches, which takes longer"
FULL = "the GPU's memory is full: a batch needs 0 MiB more, 4,096 of 16,384 MiB are free"


def run_out_of_memory(monkeypatch, module, items):
    """`empty` refuses more than `items`."""

    def empty(shape, dtype):
        if np.prod(shape) > items:
            raise MemoryError
        return rubbish(shape, dtype)

    monkeypatch.setattr(module.cp, "empty", empty)
    monkeypatch.setattr(kernels, "empty", lambda like, dtype, *shape: empty(shape, dtype))
    sys.modules["gpu_pipeline.memory.device"].warn_of_short_memory.cache_clear()


@pytest.mark.slow("a device that runs out of memory halves its batches")
def test_short_memory_halves_the_batches(gpu_text, monkeypatch, caplog):
    run_out_of_memory(monkeypatch, gpu_text, 2000)
    with pytest.raises(EngineError, match=FULL):
        gpu_text.measure(column(["a " * 9000]), NAMES)
    monkeypatch.setattr(gpu_text.columns, "MIN_SCRATCH_BYTES", 1000)
    caplog.clear()
    texts = ["a b c d e f g h"] * 600
    assert_same_measures(gpu_text, texts)
    rewritten, _ = gpu_text.rewrite(column(texts), RewriteSteps(lowercase=True))
    assert rewritten.tolist() == texts
    assert [record.message for record in caplog.records] == [SHORT]


A_B = np.arange(1, 253, 2, dtype=np.uint32), np.arange(126, dtype=np.uint32)


@pytest.mark.slow("a batch on the device takes no more memory than its bytes announce")
@pytest.mark.parametrize(
    "work",
    [
        lambda gpu_text, text: gpu_text.measure(text, NAMES),
        lambda gpu_text, text: gpu_text.rewrite(text, RewriteSteps(lowercase=True, whitespace="collapse")),
        lambda gpu_text, text: gpu_text.hash_text(text),
        lambda gpu_text, text: gpu_text.band_keys(text, 5, False, *A_B, 6),
        lambda gpu_text, text: gpu_text.shingles(text, 5, False),
    ],
    ids=["measure", "rewrite", "hash_text", "band_keys", "shingles"],
)
def test_memory_is_bounded_by_the_text(gpu_text, monkeypatch, work):
    """With the text before and after a stage, and its columns: `device.BATCH_SHARE` texts in all."""
    device = sys.modules["gpu_pipeline.memory.device"]
    monkeypatch.setattr(gpu_text.columns, "MIN_SCRATCH_BYTES", 0)
    chance = random.Random(4)
    words = ["".join(chance.choices("abcdefgh", k=chance.choice((1, 2, 3, 4, 5, 7, 9)))) for _ in range(2000)]
    texts = column([" ".join(chance.choices(words, k=chance.randrange(200, 800))) for _ in range(12)])
    work(gpu_text, texts.iloc[:1])  # what lives as long as the process
    tracemalloc.start()
    work(gpu_text, texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (device.BATCH_SHARE - 3) * cpu_fallback.byte_lengths(texts).sum()


def test_full_memory_is_said(gpu_text, monkeypatch):
    run_out_of_memory(monkeypatch, gpu_text, 5)
    with pytest.raises(EngineError, match="the GPU's memory is full: 4,096 of 16,384 MiB are free"):
        gpu_text.hash_text(column(["a"] * 9))


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: "-".join(map(str, steps)))
def test_rewrite(gpu_text, sizes, steps):
    expected, actual = (engine.rewrite(column(sizes), steps) for engine in (cpu_fallback, gpu_text))
    pd.testing.assert_series_equal(actual[0], expected[0])
    np.testing.assert_array_equal(actual[1], expected[1], strict=True)


@pytest.mark.parametrize("max_characters", [0, 3])
def test_hashes(gpu_text, sizes, max_characters):
    expected = cpu_fallback.hash_text(column(sizes), max_characters)
    np.testing.assert_array_equal(gpu_text.hash_text(column(sizes), max_characters), expected, strict=True)


def test_byte_lengths(gpu_text):
    np.testing.assert_array_equal(gpu_text.byte_lengths(column(TEXTS)), cpu_fallback.byte_lengths(column(TEXTS)))


@pytest.mark.parametrize("texts", [[], [None], ["", None, ""], ["a"]], ids=repr)
def test_little_text(gpu_text, texts):
    assert_same_measures(gpu_text, texts)
    assert gpu_text.hash_text(column(texts)).tolist() == cpu_fallback.hash_text(column(texts)).tolist()
    for steps in STEPS:
        rewritten, edited = gpu_text.rewrite(column(texts), steps)
        pd.testing.assert_series_equal(rewritten, cpu_fallback.rewrite(column(texts), steps)[0])
        assert edited.dtype == bool and len(edited) == len(texts)


def test_a_part_of_a_column(gpu_text):
    part, whole = column(TEXTS).iloc[7:30], column(TEXTS)
    assert gpu_text.hash_text(part).tolist() == cpu_fallback.hash_text(whole)[7:30].tolist()
    expected = cpu_fallback.measure(whole, ["words"])["words"][7:30]
    np.testing.assert_array_equal(gpu_text.measure(part, ["words"])["words"], expected, strict=True)


@pytest.mark.parametrize("max_characters", [0, 100])
def test_classify(gpu_text, sizes, max_characters):
    try:
        model = load_classifier("")
    except InputError as error:
        pytest.skip(str(error))
    expected, actual = (
        engine.classify(column(SHORT_TEXTS[::2]), model, max_characters) for engine in (cpu_fallback.text, gpu_text)
    )
    np.testing.assert_array_equal(actual[0], expected[0], strict=True)
    np.testing.assert_array_equal(actual[1], expected[1], strict=True)


MARKS = ["a </s> b", "</s>", "x</s> </s>x", "__label__x __label__l1 a", "__label__" + "é" * 40, "a\0b \x85c", "漢字 漢"]


@pytest.mark.slow("the GPU engine over NumPy classifies by small models")
@pytest.mark.parametrize("max_characters", [0, 7])
@pytest.mark.parametrize(
    "settings",
    [{}, {"word_ngrams": 3, "width": 7}, {"low": 1, "high": 3, "loss": HIERARCHICAL}, {"word_ngrams": 2, "high": 2}],
    ids=["words", "n-grams of words", "characters", "both"],
)
def test_classify_by_small_models(gpu_text, sizes, tmp_path, settings, max_characters):
    (tmp_path / "model.bin").write_bytes(as_bytes(model_of(**{"buckets": 50} | settings)))
    model = load_classifier(str(tmp_path / "model.bin"))
    texts = column([*SHORT_TEXTS[::6], *MARKS, *(mark * 9 for mark in MARKS), None])
    expected, actual = (engine.classify(texts, model, max_characters) for engine in (cpu_fallback.text, gpu_text))
    np.testing.assert_array_equal(actual[0], expected[0], strict=True)
    np.testing.assert_array_equal(actual[1], expected[1], strict=True)


def test_tokens_that_are_too_long_for_word_ngrams_are_left_to_the_cpu_engine(gpu_text, tmp_path, monkeypatch):
    rows, on_cpu = [], gpu_text._on_cpu
    monkeypatch.setattr(gpu_text, "_on_cpu", lambda text, chosen, use: rows.extend(chosen) or on_cpu(text, chosen, use))
    (tmp_path / "model.bin").write_bytes(as_bytes(model_of(buckets=50, word_ngrams=2)))
    model = load_classifier(str(tmp_path / "model.bin"))
    texts = column(["the of", "the " + "x" * 5000, "__label__" + "x" * 5000, "é" * 2048, "é" * 2048 + "!"])
    expected, actual = (engine.classify(texts, model, 0) for engine in (cpu_fallback.text, gpu_text))
    np.testing.assert_array_equal(actual, expected)
    assert rows == [1, 4]


LINES = ["the of\nthe the\n\n\r\n of", "<s> the </s> of <unk>", "\n \n", "the", "the of " * 50, "of the\0\x0b\x0cthe"]


@pytest.mark.parametrize(("order", "closed"), [(1, True), (2, False), (3, True), (5, False)])
def test_score_text(gpu_text, sizes, tmp_path, order, closed):
    (tmp_path / "model.arpa").write_bytes(made_arpa(order, closed))
    words = re.findall(rb"\t(\S+)", made_arpa(1, True))
    chance = random.Random(order)
    made = [b" ".join(chance.choices([*words, b"\n", b"zz"], k=size)).decode() for size in (1, 5, 80, 300)]
    model = load_language_model(str(tmp_path / "model.arpa"))
    texts = column([*SHORT_TEXTS[::6], *LINES, *made, None])
    expected, actual = (engine.score_text(texts, model) for engine in (cpu_fallback, gpu_text))
    np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("order", [1, 4])
def test_score_text_by_bytes(gpu_text, sizes, tmp_path, order):
    model = load_language_model(str(made_byte_model(tmp_path, order)))
    texts = column([*SHORT_TEXTS[::6], *LINES, "中文\n" * 90, None])
    expected, actual = (engine.score_text(texts, model) for engine in (cpu_fallback, gpu_text))
    np.testing.assert_array_equal(actual, expected, strict=True)


MINHASH = np.array([3, 5, 2**32 - 1, 7, 9, 11, 13], np.uint32), np.arange(7, dtype=np.uint32) * np.uint32(2**29)


@pytest.mark.parametrize(("ngram", "by_character"), [(1, False), (5, False), (4, True)])
class TestNearDuplicates:
    def test_signatures(self, gpu_text, sizes, ngram, by_character):
        expected, actual = (
            engine.signatures(column(sizes), ngram, by_character, *MINHASH) for engine in (cpu_fallback, gpu_text)
        )
        np.testing.assert_array_equal(actual, expected, strict=True)

    def test_band_keys(self, gpu_text, sizes, ngram, by_character):
        expected, actual = (
            engine.band_keys(column(sizes), ngram, by_character, *MINHASH, 3) for engine in (cpu_fallback, gpu_text)
        )
        np.testing.assert_array_equal(actual, expected, strict=True)

    def test_shingles(self, gpu_text, sizes, ngram, by_character):
        expected, actual = (engine.shingles(column(sizes), ngram, by_character) for engine in (cpu_fallback, gpu_text))
        np.testing.assert_array_equal(actual[0], expected[0], strict=True)
        np.testing.assert_array_equal(actual[1], expected[1], strict=True)


def test_only_documents_that_exceed_a_batch_are_left_to_the_cpu_engine(gpu_text, monkeypatch):
    rows = []
    on_cpu = gpu_text._on_cpu
    monkeypatch.setattr(gpu_text, "_on_cpu", lambda text, chosen, use: rows.extend(chosen) or on_cpu(text, chosen, use))
    monkeypatch.setattr(gpu_text.columns, "MIN_SCRATCH_BYTES", 1000)
    monkeypatch.setattr(gpu_text.columns, "SCRATCH_SHARE", 0)
    monkeypatch.setattr(gpu_text.columns, "LONG_BYTES", 10)
    texts = column(["w" * 5000, "a b " * 100, "", "one two", "c d " * 100])
    expected, actual = (engine.shingles(texts, 2, False) for engine in (cpu_fallback, gpu_text))
    np.testing.assert_array_equal(actual[0], expected[0], strict=True)
    np.testing.assert_array_equal(actual[1], expected[1], strict=True)
    assert rows == [1, 4]


@pytest.mark.parametrize("pair_bytes", [1 << 30, 1000])
def test_overlap(gpu_dedup, monkeypatch, pair_bytes):
    monkeypatch.setattr(gpu_dedup, "PAIR_BYTES", pair_bytes)
    hashes, offsets = cpu_fallback.shingles(column(TEXTS), 2, False)
    left, right = np.random.default_rng(6).integers(0, len(TEXTS), (2, 300))
    for pairs in ((left, right), (left[:0], right[:0])):
        expected = cpu_fallback.intersection_sizes(hashes, offsets, *pairs)
        np.testing.assert_array_equal(gpu_dedup.intersection_sizes(hashes, offsets, *pairs), expected, strict=True)


@pytest.mark.parametrize(("rows", "edges"), [(0, 0), (1, 0), (1, 1), (50, 20), (200, 150), (200, 1000)])
def test_connected(gpu_dedup, rows, edges):
    left, right = np.random.default_rng(rows + edges).integers(0, max(rows, 1), (2, edges))
    expected = cpu_fallback.connected_components(left, right, rows)
    np.testing.assert_array_equal(gpu_dedup.connected_components(left, right, rows), expected, strict=True)


@pytest.mark.parametrize("step", [1, -1])
def test_connected_along_a_chain(gpu_dedup, step):
    chain = np.random.default_rng(8).permutation(300)[::step]
    assert gpu_dedup.connected_components(chain[1:], chain[:-1], 300).tolist() == [0] * 300


@pytest.mark.parametrize("rows_at_once", [1 << 26, 60])
def test_first_of_group(gpu_dedup, monkeypatch, rows_at_once):
    monkeypatch.setattr(gpu_dedup, "ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr(gpu_dedup, "BLOCK", 7)
    numbers = np.random.default_rng(5)
    for rows, width in ((0, 1), (1, 2), (500, 1), (500, 3)):
        keys = numbers.choice(np.array([0, 1, 2**53, 2**53 + 1, 2**63, 2**64 - 1], np.uint64), (rows, width))
        rank = numbers.permutation(rows).astype(np.int64) * 3 - rows
        for ranks in (rank, None):
            expected = cpu_fallback.group_leaders(keys, ranks)
            np.testing.assert_array_equal(gpu_dedup.group_leaders(keys, ranks), expected, strict=True)


def test_many_groups_go_in_ranges_on_the_device(gpu_dedup, monkeypatch):
    monkeypatch.setattr(gpu_dedup, "ROWS_AT_ONCE", 200)
    monkeypatch.setattr(gpu_dedup, "load_engine", None)
    keys = np.random.default_rng(9).integers(0, 900, (1000, 2), np.uint64)
    np.testing.assert_array_equal(gpu_dedup.group_leaders(keys), cpu_fallback.group_leaders(keys))
    sizes = np.bincount(gpu_dedup._range_of(keys, 10))
    assert len(sizes) == 10 and sizes.min() > 60 and sizes.max() < 140


def test_groups_go_to_the_cpu_engine_where_memory_is_short(gpu_dedup, monkeypatch, caplog):
    run_out_of_memory(monkeypatch, gpu_dedup, 20)
    keys = np.arange(100, dtype=np.uint64)[:, None] // np.uint64(3)
    assert gpu_dedup.group_leaders(keys).tolist() == [row - row % 3 for row in range(100)]
    assert [record.message for record in caplog.records] == [SHORT]


def test_table_slots_equal_the_tables_of_the_kernels():
    words = np.array([*range(2000), 2**20 - 1, 2**20, 2**20 + 1, 2**31, 2**40])
    assert kernels.table_slots(words).tolist() == [int(table_mask(word)) + 1 for word in words]


def test_starts_of():
    assert kernels.starts_of(np.array([3, 0, 2])).tolist() == [0, 3, 3, 5]
    assert kernels.starts_of(np.zeros(0, np.int64)).tolist() == [0]
    assert kernels.starts_of(np.full(3, 2**40)).tolist() == [0, 2**40, 2**41, 3 * 2**40]


def test_longest_first():
    lengths = np.array([5, 0, 9, 5])
    assert lengths[kernels.longest_first(lengths)].tolist() == [9, 5, 5, 0]


@pytest.mark.parametrize("limit", [1, 10, 11, 25, 1000])
def test_batches_cover_all_rows_within_the_limit(limit):
    sizes = np.array([30, 12, 11, 10, 1, 1, 0, 0, 5, 5])
    starts = kernels.starts_of(sizes)
    first, batches = 0, []
    while first < len(sizes):
        last = kernels.batch_end(starts, first, limit)
        batches.append((first, last))
        first = last
    assert [row for first, last in batches for row in range(first, last)] == list(range(len(sizes)))
    for first, last in batches:
        assert sizes[first:last].sum() <= limit or last == first + 1
        assert last == len(sizes) or sizes[first : last + 1].sum() > limit  # none could take one row more
