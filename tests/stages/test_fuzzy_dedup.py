# SPDX-License-Identifier: Apache-2.0
"""`fuzzy_dedup`: what a threshold means on real documents, rules of keeping, and hostile corpora."""

import json
import os
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.contract import ID, ROW, TEXT
from curation.base.engine import load_engine
from curation.base.errors import IntegrityError, RecipeError
from curation.base.system.files import remove
from curation.recipes.recipe import convert_recipe
from curation.record.partitions import Partitions, PartitionWriter
from curation.running.run import run
from curation.stages import FuzzyDedup, invoke
from curation.stages.corpus import similarity
from curation.stages.near.bands import s_curve, share_probability
from curation.stages.outcome import BYTES, Corpus, key_column
from curation.stages.own_code import convert_stage
from tests.corpus import corpora
from tests.oracle import minhash

CPU = load_engine("cpu")
CORPORA = corpora()


def corpus_of(folder: Path, stage, texts: list[str | None], pieces: int = 1, own_keys=None, **options) -> Corpus:
    """The parts that a segment leaves before the stage, in so many files of two batches each."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = CPU.from_arrow(pa.table({TEXT: pa.array(texts, pa.large_string())}))
    keys = (own_keys or (lambda found: found))(stage.keys(CPU, frame))
    table = pa.table(
        {
            ROW: pa.array(range(len(texts)), pa.int64()),
            ID: pa.array([f"doc-{k}" for k in range(len(texts))], pa.large_string()),
            TEXT: pa.array(texts, pa.large_string()),
        }
    )
    columns = {key_column(0, name): values for name, values in keys.items()}
    columns[BYTES] = CPU.byte_lengths(frame[TEXT])
    bounds = np.linspace(0, len(texts), pieces + 1).astype(int).tolist()
    parts = Partitions(folder, np.diff(bounds).tolist())
    for piece, (low, high) in enumerate(pairwise(bounds)):
        with PartitionWriter(parts.path(piece), parts.keys_path(piece)) as part:
            middle = (low + high + 1) // 2
            for start, stop in ((low, middle), (middle, high)):
                part.write(table[start:stop], {name: values[start:stop] for name, values in columns.items()})
    rows = options.pop("rows", np.arange(len(texts)))
    return parts.corpus(0, rows, **options)


class Found(NamedTuple):
    """The documents that went, the ones that stay in their places, and how alike they are."""

    row: np.ndarray
    kept_row: np.ndarray
    value: np.ndarray
    details: dict[str, Any]


def decide(folder: Path, stage, texts, **options):
    corpus = corpus_of(folder, stage, texts, **options)
    decision = invoke.decide(stage, CPU, corpus)
    remove(corpus.scratch)
    [drops] = decision.drops
    assert drops.reason == "near_duplicate"
    return Found(drops.row, drops.partner, drops.value, decision.details)


def removed(folder: Path, stage, texts, **options) -> dict[int, int]:
    found = decide(folder, stage, texts, **options)
    return dict(zip(found.row.tolist(), found.kept_row.tolist(), strict=True))


def words(start: int, count: int) -> str:
    return " ".join(map(str, range(start, start + count)))


# What the threshold means


class Truth:
    """The documents of a corpus and all their pairs with a Jaccard of 0.5 or more."""

    def __init__(self, documents: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> None:
        self.pairs = pairs
        self.texts = [document["text"] for document in documents]
        self.row = {document["id"]: row for row, document in enumerate(documents)}
        self.similarity = {frozenset(self.rows(pair)): pair["j"] for pair in self.pairs}
        self.best: dict[int, float] = defaultdict(float)
        for pair in self.pairs:
            for row in self.rows(pair):
                self.best[row] = max(self.best[row], pair["j"])

    def rows(self, pair: dict) -> tuple[int, int]:
        return self.row[pair["a"]], self.row[pair["b"]]

    def caught(self, gone: set[int], low: float, high: float) -> tuple[int, int]:
        """Pairs of a similarity in [low, high) that are not both kept, and all of them."""
        pairs = [pair for pair in self.pairs if low <= pair["j"] < high]
        return sum(not gone.isdisjoint(self.rows(pair)) for pair in pairs), len(pairs)


@pytest.fixture(scope="module", params=CORPORA)
def truth(request) -> Truth:
    return Truth(*CORPORA[request.param])


def test_recall_and_precision_on_real_documents(truth, tmp_path):
    found = decide(tmp_path, FuzzyDedup(), truth.texts, pieces=7)
    gone = set(found.row.tolist())
    caught, pairs = truth.caught(gone, 0.9, 1.1)
    assert caught == pairs >= 377
    caught, pairs = truth.caught(gone, 0.8, 0.9)
    assert caught >= 0.99 * pairs and pairs > 100
    assert all(truth.best[row] >= 0.8 for row in gone), "removed without a partner"
    for row, kept, value in zip(found.row.tolist(), found.kept_row.tolist(), found.value.tolist(), strict=True):
        assert kept not in gone
        left, right = (minhash.ngrams(truth.texts[k].lower(), 5) for k in (row, kept))
        assert value == minhash.jaccard(left, right)
    assert found.details["groups"] == len(set(found.kept_row.tolist()))
    assert sum(found.details["group_sizes"].values()) == found.details["groups"]


@pytest.mark.parametrize("threshold", [0.6, 0.7])
def test_recall_at_other_thresholds(truth, tmp_path, threshold):
    gone = set(removed(tmp_path, FuzzyDedup(threshold=threshold), truth.texts))
    caught, pairs = truth.caught(gone, threshold, 1.1)
    assert caught >= 0.99 * pairs
    assert all(truth.best[row] >= threshold for row in gone)


def test_the_result_does_not_depend_on_the_parts(truth, tmp_path):
    texts = truth.texts[:1500]
    one, many = (decide(tmp_path / str(pieces), FuzzyDedup(), texts, pieces=pieces) for pieces in (1, 13))
    assert all(np.array_equal(left, right) for left, right in zip(one[:3], many[:3], strict=True))
    assert one.details == many.details


def test_the_result_does_not_depend_on_the_workers(truth, tmp_path, monkeypatch):
    texts = truth.texts[:1500]
    one = decide(tmp_path / "one", FuzzyDedup(), texts)
    monkeypatch.setattr(similarity, "HASHES_AT_ONCE", 3000)  # some pairs at a time, and single ones that are larger
    monkeypatch.setattr("cpu_fallback.dedup.KEYS_PER_THREAD", 100)
    many = decide(tmp_path / "many", FuzzyDedup(), texts, workers=3)
    assert len(one.row) > 10
    assert all(np.array_equal(left, right) for left, right in zip(one[:3], many[:3], strict=True))
    assert one.details == many.details


def test_a_file_of_ngrams_that_was_cut_is_an_error(tmp_path):
    corpus = corpus_of(tmp_path, FuzzyDedup(), [words(k, 50) for k in range(4)])
    similarity.ExactJaccard.write(CPU, corpus, np.arange(4), FuzzyDedup().settings, tmp_path)
    found = similarity.ExactJaccard(CPU, tmp_path, 2)
    left, right = np.array([0, 1]), np.array([1, 3])
    assert np.allclose(found.between(found, left, right), [45 / 47, 44 / 48])
    os.truncate(tmp_path / similarity.SHINGLES, 1000)
    with pytest.raises(IntegrityError, match="is too short"):
        found.between(found, left, right)


def test_comparisons_end_before_the_error_of_one_is_told(tmp_path, monkeypatch):
    corpus = corpus_of(tmp_path, FuzzyDedup(), [words(k, 50) for k in range(6)])
    similarity.ExactJaccard.write(CPU, corpus, np.arange(6), FuzzyDedup().settings, tmp_path)
    found, ended = similarity.ExactJaccard(CPU, tmp_path, 3), []

    def common(_, left, right):
        if left[0] == 0:
            raise OSError("the disk is gone")
        time.sleep(0.2)
        ended.append(int(left[0]))
        return np.zeros(len(left), np.int64)

    monkeypatch.setattr(similarity.ExactJaccard, "_common_in_memory", lambda self, *pair: common(*pair))
    with pytest.raises(OSError, match="the disk is gone"):
        found.between(found, np.arange(3), np.arange(3, 6))
    assert sorted(ended) == [1, 2]


def test_signature_check_is_near_to_the_exact_one(truth, tmp_path):
    texts = truth.texts[:2000]
    exact = removed(tmp_path / "exact", FuzzyDedup(), texts)
    found = decide(tmp_path / "signature", FuzzyDedup(verify="signature"), texts)
    grams = {row: minhash.ngrams(texts[row].lower(), 5) for row in {*found.row.tolist(), *found.kept_row.tolist()}}
    for row, kept, value in zip(found.row.tolist(), found.kept_row.tolist(), found.value.tolist(), strict=True):
        assert abs(value - minhash.jaccard(grams[row], grams[kept])) < 0.15  # four standard deviations
    assert len(set(exact) ^ set(found.row.tolist())) < 0.05 * len(exact)


def test_without_a_check_every_shared_band_counts(tmp_path):
    texts = [words(0, 100), words(12, 100)]  # 84 of 108 5-grams: J 0.78 shares a band, and is no duplicate
    assert removed(tmp_path / "exact", FuzzyDedup(), texts) == {}
    found = decide(tmp_path / "none", FuzzyDedup(verify="none"), texts)
    assert (found.row.tolist(), found.kept_row.tolist()) == ([1], [0])
    assert np.isnan(found.value).all()


def test_the_threshold_itself_is_alike(tmp_path):
    texts = [words(0, 94), words(10, 94)]  # 80 of 100 5-grams
    assert removed(tmp_path / "at", FuzzyDedup(threshold=0.8), texts) == {1: 0}
    assert removed(tmp_path / "above", FuzzyDedup(threshold=0.801), texts) == {}
    assert removed(tmp_path / "one", FuzzyDedup(threshold=1), [*texts, texts[1].replace(" ", "\n")]) == {2: 1}


# What is compared, which document stays


@pytest.mark.parametrize(("compare", "expected"), [("exact", {}), ("lowercase", {1: 0}), ("folded", {1: 0, 2: 0})])
def test_compare(tmp_path, compare, expected):
    text = "In 1984 the Clocks were striking thirteen, and Winston Smith went up"
    texts = [text, text.upper(), text.lower().replace("84", "76").replace(",", " -")]
    assert removed(tmp_path, FuzzyDedup(compare=compare), texts) == expected


def test_character_ngrams_find_what_words_do_not(tmp_path):
    text = "北国之秋却特别地来得清来得静来得悲凉" * 3 + "我的不远千里要从杭州赶上青岛更要从青岛赶上北平来的理由"
    texts = [text, text + "也"]
    assert removed(tmp_path / "word", FuzzyDedup(), texts) == {}
    assert removed(tmp_path / "character", FuzzyDedup(unit="character", ngram=5), texts) == {1: 0}


def test_documents_shorter_than_an_ngram(tmp_path):
    texts = ["a b", "", "A  b", " \n", None, "a b c", "\u3000", "b a", "a b"]
    assert removed(tmp_path, FuzzyDedup(), texts) == {2: 0, 8: 0}


def test_keep_longest_and_by_source(tmp_path):
    texts = [words(0, 100), words(0, 103), words(0, 102), "other words", words(0, 103)]
    sources = [("web", 0, 2), ("news", 2, 3), ("books", 3, 5)]

    def kept(keep) -> set[int]:
        return set(range(5)) - set(removed(tmp_path / str(keep), FuzzyDedup(keep=keep), texts, sources=sources))

    assert kept("first") == {0, 3}
    assert kept("longest") == {1, 3}
    assert kept(["news"]) == {2, 3}
    assert kept(["books", "web"]) == {3, 4}
    with pytest.raises(RecipeError, match="no input is named 'book'; did you mean books"):
        kept(["book"])


def test_what_the_kept_document_does_not_contain_stays(tmp_path):
    own = " ".join(f"own{number}" for number in range(22))
    texts = [words(0, 104), f"{words(0, 104)} {own}", words(0, 99), words(8, 104), words(9, 103)]
    found = decide(tmp_path / "first", FuzzyDedup(contained=0.95), texts)
    assert (found.row.tolist(), found.kept_row.tolist(), found.value.tolist()) == ([2, 4], [0, 3], [1, 1])
    assert removed(tmp_path / "longest", FuzzyDedup(contained=0.95, keep="longest"), texts) == {0: 1, 2: 1, 4: 3}
    many = [words(8 * number, 104) for number in range(20)]
    found = decide(tmp_path / "many", FuzzyDedup(contained=0.95), many)
    assert len(found.row) == 0 and found.details["uncompared"] == 3


def test_only_rows_that_are_left_take_part(tmp_path):
    texts = [words(0, 50), words(0, 50), "else", words(0, 50), words(0, 51)]
    assert removed(tmp_path, FuzzyDedup(), texts, rows=np.array([1, 2, 4]), pieces=2) == {4: 1}


# Hostile and empty corpora


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        ([], {}),
        ([], {"verify": "signature"}),
        ([], {"contained": 0.9}),
        (["", "", None], {"verify": "none"}),
        (["one document", ""], {"contained": 0.9}),
    ],
    ids=str,
)
def test_nothing_to_compare(tmp_path, texts, options):
    found = decide(tmp_path, FuzzyDedup(**options), texts)
    assert len(found.row) == len(found.kept_row) == len(found.value) == 0
    assert found.details["groups"] == 0


def test_identical_documents_are_linear(tmp_path):
    found = decide(tmp_path, FuzzyDedup(), [words(0, 30)] * 20_000, pieces=3)
    assert found.row.tolist() == list(range(1, 20_000))
    assert not found.kept_row.any() and (found.value == 1).all()
    assert found.details["pairs_compared"] == 19_999
    assert found.details["group_sizes"] == {"16385-32768": 1}
    assert found.details["largest_groups"] == [{"row": 0, "documents": 20_000}]


def one_band(keys: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All share the first band and nothing else."""
    unique = np.arange(1, len(keys["band_000"]) + 1, dtype=np.uint64)
    return {name: np.ones_like(unique) if name == "band_000" else unique for name in keys}


def test_one_band_shared_by_all_is_linear_and_counted(tmp_path):
    texts = [f"{k}a {k}b {k}c {k}d {k}e {k}f" for k in range(20_000)]
    started = time.process_time()
    found = decide(tmp_path, FuzzyDedup(), texts, own_keys=one_band)
    assert time.process_time() - started < 10  # 0.1 s; all pairs would take minutes
    assert len(found.row) == 0
    assert found.details["pairs_compared"] == 19_999
    assert found.details["regrouped"] == [20_000, 0, 0, 0]
    assert found.details["released"] == 20_000


def all_bands(keys: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ones_like(values) for name, values in keys.items()}


def test_groups_that_no_band_can_split_are_released(tmp_path):
    texts = [f"{k}a {k}b {k}c {k}d {k}e {k}f" for k in range(200)]
    found = decide(tmp_path, FuzzyDedup(), texts, own_keys=all_bands)
    assert len(found.row) == 0
    assert found.details["regrouped"] == [21 * 200] * 4
    assert found.details["released"] == 21 * 200
    assert found.details["pairs_compared"] == 199  # each with the first


def test_pairs_in_a_crowd_are_found_by_regrouping(tmp_path):
    """A band that all share, and 300 pairs in it that share others too."""
    texts = [words(1000 * k + shift, 100) for k in range(300) for shift in (0, 3)]

    def crowd(keys: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        pair = np.repeat(np.arange(1, 301, dtype=np.uint64), 2)
        unique = np.arange(1, 601, dtype=np.uint64)
        return {
            name: np.ones_like(pair) if band == 0 else pair if band == 1 else unique for band, name in enumerate(keys)
        }

    found = decide(tmp_path, FuzzyDedup(), texts, own_keys=crowd)
    assert found.row.tolist() == list(range(1, 600, 2))
    assert found.kept_row.tolist() == list(range(0, 600, 2))


def test_small_groups_are_compared_completely(tmp_path):
    """x and y are alike and both unlike the first of their group."""
    texts = [words(0, 100), *(words(1000 * k + shift, 100) for k in range(1, 7) for shift in (0, 3))]
    found = removed(tmp_path, FuzzyDedup(), texts, own_keys=one_band)
    assert found == {2 * k: 2 * k - 1 for k in range(1, 7)}


def test_chain_joins_all_and_says_how_alike_the_ends_are(tmp_path):
    texts = [words(8 * k, 104) for k in range(60)]  # neighbours share 92 of 108 5-grams: J 0.852
    found = decide(tmp_path, FuzzyDedup(), texts)
    assert found.row.tolist() == list(range(1, 60))
    assert not found.kept_row.any()
    assert found.value[0] == 92 / 108 and found.value[20] == 0
    assert found.details["removed_by_chain"] == 58


# The configuration


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0}, r"threshold must be above 0 and at most 1, not 0"),
        ({"threshold": 1.1}, r"threshold must be above 0 and at most 1, not 1.1"),
        ({"threshold": float("nan")}, r"threshold must be above 0 and at most 1, not nan"),
        ({"ngram": 0}, r"ngram must be at least 1, not 0"),
        ({"permutations": 0}, r"permutations must be at least 1, not 0"),
        ({"bands": 20, "rows": 7}, r"20 bands of 7 rows need more than the 128 permutations"),
        ({"bands": 200}, r"200 bands of 1 rows need more than the 128 permutations"),
        ({"rows": 129}, r"1 bands of 129 rows need more than the 128 permutations"),
        ({"bands": -1}, r"bands must be at least 0, not -1"),
        (
            {"permutations": 8, "threshold": 0.1},
            r"with 8 permutations no bands find 99.5% of the pairs at threshold 0.1",
        ),
        ({"unit": "byte"}, r"unit must be one of word, character, not 'byte'"),
        ({"compare": "upper"}, r"compare must be one of lowercase, exact, folded, visible, not 'upper'"),
        ({"verify": "maybe"}, r"verify must be one of exact, signature, none, not 'maybe'"),
        ({"keep": "last"}, r"keep must be one of first, longest or a list of input names, not 'last'"),
        ({"keep": []}, r"keep must list each input once, not \[\]"),
        ({"keep": ["a", "a"]}, r"keep must list each input once"),
        ({"contained": 90}, r"contained must be from 0 \(not used\) to 1, not 90. Write 0.9 for 90 %"),
        ({"contained": -1}, r"contained must be from 0 \(not used\) to 1, not -1. It is the share of a removed"),
        ({"contained": 0.9, "verify": "none"}, r"contained compares all n-grams, and `verify: none` does not. Set"),
        ({"seed": -1}, r"seed must be at least 0, not -1"),
        ({"seed": 2**64}, r"seed must be below 2\^64"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FuzzyDedup(**options)
    if options.get("seed", 0) < 2**63 and options.get("threshold") == options.get("threshold"):
        with pytest.raises(ValueError, match=message):
            convert_stage({"kind": "fuzzy_dedup", **options}, "$.stages[0]", ())


@pytest.mark.parametrize(
    ("options", "banding"),
    [
        ({}, (21, 6)),
        ({"threshold": 0.9, "permutations": 64}, (9, 7)),
        ({"threshold": 1}, (1, 128)),
        ({"bands": 9, "rows": 13}, (9, 13)),
        ({"bands": 20}, (20, 6)),
        ({"rows": 4}, (32, 4)),
    ],
)
def test_bands_are_chosen_or_given(options, banding):
    assert FuzzyDedup(**options).banding == banding


def test_chosen_bands_find_nearly_all_pairs_at_the_threshold():
    for threshold in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        stage = FuzzyDedup(threshold=threshold)
        bands, rows = stage.banding
        assert share_probability(threshold, bands, rows) >= 0.995
        assert share_probability(threshold, 128 // (rows + 1), rows + 1) < 0.995


def test_s_curve():
    curve = dict(s_curve(*FuzzyDedup().banding))
    assert list(curve) == [pytest.approx(step / 20) for step in range(1, 21)]
    assert curve[0.5] == pytest.approx(1 - (1 - 0.5**6) ** 21)
    assert curve[0.8] >= 0.995 and curve[1.0] == 1


# In a run


def write_input(path: Path, texts: list[str]) -> None:
    lines = [json.dumps({"id": f"{path.stem}-{k}", "text": text}) for k, text in enumerate(texts)]
    path.write_text("\n".join(lines) + "\n")


def run_stage(folder: Path, output: str, *, slice_bytes: int = 0, **options) -> dict:
    write_input(folder / "web.jsonl", [words(1000 * k, 60) for k in range(200)])
    write_input(folder / "books.jsonl", [words(1000 * k, 61) for k in range(0, 200, 10)])
    recipe = convert_recipe(
        {
            "input": [{"path": str(folder / f"{name}.jsonl"), "name": name} for name in ("web", "books")],
            "stages": [{"kind": "rewrite", "unicode": "nfc"}, {"kind": "fuzzy_dedup", **options}],
            "output": {"formats": []},
        }
    )
    run(recipe, folder / output, engine="cpu", workers=2, scheduler="threads", slice_bytes=slice_bytes)
    report = json.loads((folder / output / "report.json").read_text())
    removed = pq.read_table(folder / output / "removed").select(["id", "stage", "reason", "value", "duplicate_of"])
    details, digest = report["stages"][1]["details"], report["documents_digest"]
    return {"details": details, "removed": removed.to_pylist(), "digest": digest}


def test_a_run_names_the_kept_document_and_the_jaccard(tmp_path):
    found = run_stage(tmp_path, "first")
    assert found["removed"] == [
        {
            "id": f"books-{k}",
            "stage": "fuzzy_dedup",
            "reason": "near_duplicate",
            "value": 56 / 57,
            "duplicate_of": f"web-{10 * k}",
        }
        for k in range(20)
    ]
    assert found["details"]["group_sizes"] == {"2": 20}
    assert found["details"]["largest_groups"][:2] == [{"documents": 2, "id": "web-0"}, {"documents": 2, "id": "web-10"}]


def test_a_run_keeps_the_named_input(tmp_path):
    found = run_stage(tmp_path, "books", keep=["books"])
    assert [row["id"] for row in found["removed"]] == [f"web-{10 * k}" for k in range(20)]
    with pytest.raises(RecipeError, match="no input is named 'wiki'"):
        run_stage(tmp_path, "wiki", keep=["wiki"])


def test_a_run_does_not_depend_on_slices(tmp_path):
    assert run_stage(tmp_path, "one") == run_stage(tmp_path, "two", slice_bytes=20_000)
