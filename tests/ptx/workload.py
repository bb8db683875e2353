# SPDX-License-Identifier: Apache-2.0
"""Calls of the engine's functions that launch every kernel, and the texts that they are profiled on."""

import itertools
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cpu_fallback
from curation.base import engine as selector
from curation.base.contract import TEXT
from curation.base.measures import OF_NON_SYMBOLS, OF_WORD_CASES, OF_WORD_LENGTHS, REPEATED_SIZES, Measure
from curation.kernels import jsonl
from curation.kernels.expressions import CL100K, GPT2, O200K
from curation.kernels.ngram_table import table_of as ngram_table_of
from curation.kernels.permutations import constants
from curation.kernels.rewrite import RewriteSteps
from curation.kernels.spans import new_memory
from curation.kernels.units import UNITS
from curation.kernels.word_breaks import MAX_BLANKS, MAX_SPAN, PIECES, SCRIPTS, TABLE
from curation.models.fasttext import load_classifier
from curation.models.ngrams import tiny_model
from curation.reading import probe
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.rules.columns import Texts
from curation.rules.listed import Listed, count_stop_words
from curation.running.run import run
from tests.conftest import frame_of
from tests.oracle.fasttext_reference import as_bytes, model_of
from tests.runs import recipe_of
from tests.tokens.byte_pairs import tokenizer_of

json_kernels = pytest.importorskip("gpu_pipeline.kernels.json_kernels")

NGRAM, PERMUTATIONS, ROWS = 5, 126, 6  # of MinHash: 21 bands
TABLE_NGRAM = 13  # of the table of evaluation texts
MODEL_CHARACTERS = 2000
WINDOW, CLOSER_SHARE = 200, 16  # of prose, a sixteenth of the anchors and of the nodes needs a closer look
SETTINGS = (
    f"JSON Lines, every step of rewriting, all {len(Measure)} measures, the language model on {MODEL_CHARACTERS:,} "
    f"characters, word {NGRAM}-grams with {PERMUTATIONS} permutations, a table of {TABLE_NGRAM}-grams, pairs of "
    "neighbours, words of `scripts`, `table` and `pieces`, three lists of stop words, GPT-2's tokens by its own "
    "expression, then by cl100k's and "
    "o200k's, "
    f"records of windows of {WINDOW} bytes, their verdicts, nodes and windows of every {CLOSER_SHARE}th anchor and node"
)
ALL_STEPS = RewriteSteps("nfkc", "brackets_line", "strip_all", "basic", True, "lines")
SPACELESS = RewriteSteps(characters="folded", lowercase=True, spaceless=True)
KEYS = np.frombuffer(b"text", np.uint8), np.frombuffer(b"id", np.uint8)
MARKED = "ΟΔΟΣ <b>½</b>"  # a capital sigma, tags, a character that NFKC changes
LONG_WORD = "word" * 10_000  # longer ones than real texts have
UNKNOWN_WORD = "antidisestablishmentarianism" * 3
# Line ends, with as many blanks as may be before or after one in a run, and one more
WRAPS = (
    "\n",
    "\r\n",
    " " * MAX_BLANKS + "\r\n\t",
    " " * (MAX_BLANKS + 1) + "\n",
    "\n" + "\t" * (MAX_BLANKS + 1),
    "\n\n",
    "\r",
)
# Texts of scripts without spaces: Chinese, Japanese and Thai with marks, a run of more than one piece, line ends that
# wrap runs and others, U+200B, and U+1361
UNSPACED = (
    "我们用Python写程序，处理1,000个文件。“你好”，他说：“再见！”《三国演义》是中国古典四大名著之一",
    "ジョン・スミスさんは東京タワーへ行きました。ｶﾀｶﾅとひらがなです（笑） ((好))",
    "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน๑๒๓ မြန်မာဘာသာစကားသည် plain words",
    "中国人民" * (MAX_SPAN // 2) + "𠀀",
    *("中国" + end + "人民ภา" + end + "ษา a" + end + "中 " + end + "b" for end in WRAPS),
    "un\u200bbelievable don'\u200bt 中\u200b\u200b国.\u200bภา\u200bษา a" + "\u200b" * 5 + "b 中" + "\u200b" * 5 + "国",
    "ሰላም፡ለዓለም፡፡ነው። a\u1361b 中\u1361(c",
)
STOP_WORDS = ("the", "of", "and", "in"), ("re", "con", "a", "mo", "ti"), ("정부는", "는", "다", "에서", "습니다")
KOREAN = ("정부는 사람을 돕는다", "학교에서 있습니다 🙂다 é는 는", "정부는 정부는")
SYLLABLES = ("a", "in", "the", "re", "con", "ter", "mo", "ti", "os", "qu", "el", "ba", "den", "sul", "fa", "gri")


def made_words(chance: random.Random, count: int) -> list[str]:
    words = ["".join(chance.choices(SYLLABLES, k=chance.choice((1, 1, 2, 2, 2, 3, 4)))) for _ in range(count)]
    return [f"{word}é" if k % 97 == 0 else f"{k}" if k % 89 == 0 else word for k, word in enumerate(words)]


def made_texts(count: int = 192, seed: int = 1) -> list[str]:
    """Texts as long and as repetitive as pages: words by Zipf's law, sentences, paragraphs, and a few addresses."""
    chance = random.Random(seed)
    words = made_words(chance, 4000)
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))
    texts = []
    for _ in range(count):
        length = max(3, min(3000, int(chance.lognormvariate(4.8, 0.9))))
        pieces = chance.choices(words, cum_weights=weights, k=length)
        for k in range(chance.randrange(8, 20), length, 14):
            pieces[k] = pieces[k].capitalize()
            pieces[k - 1] += chance.choice((". ", ". ", "? ", ".\n\n", ".\n", ' - "', "...")).rstrip(" ")
        if length > 400:
            pieces[length // 2] = "https://example.org/page"
        texts.append(" ".join(pieces))
    return texts


def several_pieces() -> str:
    """A document of which several blocks take a part each, the last one few: of its words, and 2,051 n-grams of 5."""
    words = made_words(random.Random(7), 2055)
    return "\n".join(" ".join(words[k : k + 9]) + "." for k in range(0, len(words), 9))


def longest_made() -> list[str]:
    """A document of more words, and one of more lines, than a table in shared memory has room for; both repeat. One of
    fewer words, of which only the table has."""
    text = "\n".join(made_texts(30))
    text += "\n" + text[: len(text) // 4]
    return [text, text.replace(" ", "\n"), " ".join(text.split()[:3000])]


def shifted_column(pieces: Sequence[bytes], nulls: Sequence[int], shift: int) -> pa.LargeStringArray:
    """A column whose buffer begins `shift` bytes late; the bytes of nulls stay in it."""
    offsets = np.cumsum([0, *map(len, pieces)])
    data = pa.py_buffer(bytes(shift) + b"".join(pieces)).slice(shift)
    valid = [number not in nulls for number in range(len(pieces))]
    mask = pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.LargeStringArray.from_buffers(len(pieces), pa.py_buffer(offsets), data, mask, len(nulls))


def rewritten(engine: ModuleType, texts: Sequence[str], steps: RewriteSteps) -> list[Any]:
    frame = frame_of(engine, list(texts))
    text, edited = engine.rewrite(frame[TEXT], steps)
    return [engine.to_arrow(engine.with_columns(frame, {TEXT: text})).column(TEXT).to_pylist(), edited]


def read(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The documents of a Parquet file."""
    path = folder / "texts.parquet"
    if not path.exists():
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path)
    files = [probe(file) for file in find_files([Input(path=str(path))])]
    batches = [batch for piece in plan_slices(files, 1 << 30) for batch in engine.read_slice(piece, 1 << 26)]
    return [engine.to_arrow(batch.frame).column(TEXT).to_pylist() for batch in batches]


def keys(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    return [engine.band_keys(frame_of(engine, list(texts))[TEXT], NGRAM, False, *constants(PERMUTATIONS), ROWS)]


def shingles(engine: ModuleType, texts: Sequence[str], ngram: int) -> tuple[np.ndarray, np.ndarray]:
    return engine.shingles(frame_of(engine, list(texts))[TEXT], ngram, False)


def overlap(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """N-grams, how many of them neighbours share, and components of three documents."""
    hashes, offsets = shingles(engine, texts, NGRAM)
    left = np.arange(len(texts) - 1)
    edges = left[left % 3 > 0]
    labels = engine.connected_components(edges, edges + 1, len(texts))
    return [hashes, offsets, engine.intersection_sizes(hashes, offsets, left, left + 1), labels]


def hits(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """Hits in a table of every third document's n-grams."""
    grams, starts = shingles(engine, texts[::3], TABLE_NGRAM)
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts)).astype(np.int32)
    table = ngram_table_of([f"text {k}" for k in range(len(starts) - 1)], grams, owners)
    return list(engine.ngram_hits(frame_of(engine, list(texts))[TEXT], table, TABLE_NGRAM))


# Measures that a batch pays for only if they are asked for
SEPARATE = (
    "max_line_characters", "stop_word_count", *OF_NON_SYMBOLS, *OF_WORD_LENGTHS, *OF_WORD_CASES, *REPEATED_SIZES,
    *(f"duplicate_{n}gram_characters" for n in (2, 3, 4)),
)  # fmt: skip
TOGETHER = tuple(measure.name for measure in Measure if measure.name not in SEPARATE)


def measured(engine: ModuleType, texts: Sequence[str], names: Sequence[str] = TOGETHER) -> list[Any]:
    return list(engine.measure(frame_of(engine, list(texts))[TEXT], names).values())


def classified_by_words(engine: ModuleType, texts: Sequence[str], folder: Path, word_ngrams: int = 2) -> list[Any]:
    """By a softmax over words and runs of up to so many words."""
    path = folder / f"words_{word_ngrams}.bin"
    path.write_bytes(as_bytes(model_of(buckets=1000, word_ngrams=word_ngrams, width=7)))
    return list(engine.classify(frame_of(engine, list(texts))[TEXT], load_classifier(str(path)), 0))


def classified_windows(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The text of five windows of a hundred characters, as the default recipe takes them, and its languages."""
    text = engine.spread_windows(frame_of(engine, list(texts))[TEXT], 5, 500)
    return [
        engine.to_arrow(text.to_frame(TEXT)).column(TEXT).to_pylist(),
        *engine.classify(text, load_classifier(""), 0),
    ]


def tokens(engine: ModuleType, texts: Sequence[str], pattern: int) -> list[Any]:
    """GPT-2's tokens by a regular expression. A word that no other text has needs a warp."""
    return list(engine.tokenize(frame_of(engine, [*texts, UNKNOWN_WORD])[TEXT], tokenizer_of(pattern)))


def parse_lines(raw: bytes) -> tuple[np.ndarray, ...]:
    """What the CPU's parser finds: starts, status, texts, text_offsets, ids, id_offsets, id_valid."""
    data = np.frombuffer(raw, np.uint8)
    lines = jsonl.count_lines(data, 0, len(data))
    starts = np.full(lines + 1, len(data), np.int64)
    status, valid = np.empty(lines, np.uint8), np.empty(lines, np.bool_)
    texts, ids = np.empty(len(data), np.uint8), np.empty(len(data), np.uint8)
    text_offsets, id_offsets = np.zeros(lines + 1, np.int64), np.zeros(lines + 1, np.int64)
    jsonl.parse_lines(
        data, 0, len(data), *KEYS, starts, status, texts, text_offsets, ids, id_offsets, valid
    )  # fmt: skip
    return starts, status, texts[: text_offsets[-1]], text_offsets, ids[: id_offsets[-1]], id_offsets, valid


def find_lines(raw: bytes, max_bytes: int = 1 << 31) -> json_kernels.BlockLines:
    """What the device finds."""
    data = np.frombuffer(raw, np.uint8)
    return json_kernels.find_lines(data, data[: data.size // 8 * 8].view(np.uint64), *KEYS, max_bytes)


def lines_of(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The documents of JSON Lines, all of them plain."""
    raw = b"".join(json.dumps({"id": f"id/{k}", "text": text}).encode() + b"\n" for k, text in enumerate(texts))
    return list(parse_lines(raw) if engine is cpu_fallback else find_lines(raw))


def divided(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The texts with a space between adjacent words, and which they are; a few of them need a search."""
    text, results = frame_of(engine, [*texts, *UNSPACED])[TEXT], []
    for words in (SCRIPTS, TABLE, PIECES):
        parts, wanted = engine.split_words(text, words)
        results += [engine.to_arrow(parts.to_frame(TEXT)).column(TEXT).to_pylist(), wanted]
    return results


def counted_words(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The stop words of three lists, the last of them Korean words and endings, and of no list."""
    text = frame_of(engine, [*texts, *KOREAN])[TEXT]
    lists = {number: Listed(words=words, as_="stop_word") for number, words in enumerate(STOP_WORDS)}
    numbers = np.arange(len(text), dtype=np.int32) % (len(lists) + 1)
    numbers[-len(KOREAN) :] = len(lists) - 1
    return [*count_stop_words(Texts(engine, lambda: text, len(text)), lists, numbers, words=SCRIPTS)]


def replaced(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The texts with others in place of every third one."""
    text, others = (frame_of(engine, each)[TEXT] for each in ([*texts], [f"{each} é" for each in texts[::3]]))
    found = engine.replace_texts(text, others, np.arange(len(texts)) % 3 == 0)
    return [engine.to_arrow(found.to_frame(TEXT)).column(TEXT).to_pylist()]


def cut_units(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """The units of each kind, and the texts without every third one."""
    frame, results = frame_of(engine, list(texts)), []
    for number, unit in enumerate(UNITS):
        units = engine.split_units(frame[TEXT], unit, number % 2 == 0)
        kept = np.arange(len(units.frame)) % 3 > 0
        text, edited = engine.join_units(frame[TEXT], units, kept)
        results += [engine.to_arrow(units.frame).column(TEXT).to_pylist(), units.counts, edited]
        results.append(engine.to_arrow(engine.with_columns(frame, {TEXT: text})).column(TEXT).to_pylist())
    return results


def window_records(engine: ModuleType, texts: Sequence[str], folder: Path) -> list[Any]:
    """Records of anchors, nodes and windows, and verdicts about the first."""
    raw = [text.encode() for text in texts]
    data, offsets = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])
    records, places, spans = engine.anchor_records(data, offsets, WINDOW, new_memory())
    nodes = engine.node_records(data, places[::CLOSER_SHARE].copy(), WINDOW)
    windows = engine.window_records(data, nodes[1][::CLOSER_SHARE].copy(), WINDOW)
    return [records, places, spans, engine.judge_records(records, True), *nodes, *windows]


CALLS: dict[str, Callable[[ModuleType, Sequence[str], Path], list[Any]]] = {
    "read": read,
    "read JSON Lines": lines_of,
    "rewrite": lambda engine, texts, folder: rewritten(engine, texts, ALL_STEPS),
    "rewrite what few texts have": lambda engine, texts, folder: rewritten(engine, [*texts, MARKED], ALL_STEPS),
    "rewrite without white space": lambda engine, texts, folder: rewritten(engine, [*texts, *UNSPACED], SPACELESS),
    "measure": lambda engine, texts, folder: measured(engine, texts),
    "measure separately": lambda engine, texts, folder: measured(engine, texts, SEPARATE),
    "measure long documents": lambda engine, texts, folder: measured(engine, [LONG_WORD, *longest_made()]),
    "hash": lambda engine, texts, folder: [engine.hash_text(frame_of(engine, list(texts))[TEXT])],
    "keys": keys,
    "classify": lambda engine, texts, folder: list(
        engine.classify(frame_of(engine, list(texts))[TEXT], load_classifier(""), MODEL_CHARACTERS)
    ),
    "classify windows": classified_windows,
    "classify by words": classified_by_words,
    "score": lambda engine, texts, folder: [engine.score_text(frame_of(engine, list(texts))[TEXT], tiny_model())],
    "overlap": overlap,
    "hits": hits,
    "tokens": lambda engine, texts, folder: tokens(engine, texts, GPT2),
    "tokens by cl100k's expression": lambda engine, texts, folder: tokens(engine, texts, CL100K),
    "tokens by o200k's expression": lambda engine, texts, folder: tokens(engine, texts, O200K),
    "windows": window_records,
    "words": divided,
    "stop words": counted_words,
    "replaced texts": replaced,
    "units": cut_units,  # the last: it launches kernels of measures several times
}


# Rows of the page's table of functions
FUNCTIONS = {
    "read JSON Lines": "documents of JSON Lines",
    "rewrite": "rewrite, every step",
    "measure": f"measure, {len(TOGETHER)} at once",
    "measure separately": f"measure, the other {len(SEPARATE)}",
    "hash": "hash of the text",
    "classify": f"language, {MODEL_CHARACTERS:,} characters",
    "score": "perplexity, a model of pairs of words",
    "keys": f"keys of near-duplicates, {PERMUTATIONS} permutations",
    "hits": f"{TABLE_NGRAM}-grams: a table of every third text, and lookups",
    "tokens": "tokens, GPT-2's expression",
    "tokens by cl100k's expression": "tokens, cl100k's expression",
    "tokens by o200k's expression": "tokens, o200k's expression",
    "stop words": "stop words of a list per document",
    "windows": f"repeated spans: records and verdicts, {WINDOW} bytes",
}


JOB = "job"  # in the recorded calls
JOB_SETTINGS = "JSON Lines, every step of rewriting, Gopher's rules, hashes"
JOB_STAGES = [
    {
        "kind": "rewrite", "unicode": "nfkc", "markup": "brackets_line", "control": "strip_all", "characters": "basic",
        "lowercase": True, "whitespace": "lines",
    },
    {"kind": "filter", "rules": ["gopher"]},
    {"kind": "exact_dedup"},
]  # fmt: skip


def run_job(monkeypatch: pytest.MonkeyPatch, texts: Sequence[str], folder: Path) -> None:
    """A run over the texts as JSON Lines, in one batch."""
    path = folder / "job.jsonl"
    path.write_text("".join(json.dumps({"id": str(k), "text": text}) + "\n" for k, text in enumerate(texts)))
    monkeypatch.setattr(selector, "gpu_obstacle", lambda: "")
    monkeypatch.setattr(sys.modules["gpu_pipeline.json_lines"], "MIN_BYTES", 0)
    run(
        recipe_of(path, stages=JOB_STAGES, output={"formats": []}),
        folder / "job",
        engine="gpu",
        workers=1,
        progress=False,
    )


def assert_equal(name: str, found: list[Any], texts: Sequence[str], folder: Path) -> None:
    """These are the CPU engine's results of the call."""
    expected = CALLS[name](cpu_fallback, texts, folder)
    for k, (actual, wanted) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(actual, wanted, f"result {k} of {name}", strict=isinstance(wanted, np.ndarray))


def assert_equal_results(name: str, engine: ModuleType, texts: Sequence[str], folder: Path) -> None:
    """The call gives the same with this engine as with the CPU engine."""
    assert_equal(name, CALLS[name](engine, texts, folder), texts, folder)
