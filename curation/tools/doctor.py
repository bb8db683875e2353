# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of a machine: usable engines, versions, devices, and whether the engines agree.

The self-check runs every function of the contract on generated documents, on each engine, and compares digests of the
results.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curation.base.contract import ID, ROW, TEXT, Engine, Frame, Text
from curation.base.engine import PACKAGES, gpu_obstacle, load_engine
from curation.base.errors import InputError, OutputError, counted
from curation.base.measures import Measure
from curation.base.parquet import file_options
from curation.base.system.files import unsynced_folder
from curation.base.system.os_errors import explain
from curation.base.system.toolchain import find_toolchain, toolchain_fault, toolchain_line
from curation.kernels.ngram_table import table_of
from curation.kernels.permutations import constants
from curation.kernels.rewrite import RewriteSteps
from curation.kernels.spans import new_memory
from curation.kernels.units import UNITS
from curation.kernels.word_breaks import SCRIPTS, TABLE
from curation.models.fasttext import Classifier, load_classifier
from curation.models.ngrams import tiny_model
from curation.rules.columns import Texts
from curation.rules.listed import PARTICLES, STOP_WORD, Listed, count_stop_words
from curation.tokens.tokenization import load_tokenizer

NUM_DOCUMENTS = 2500
NGRAM, PERMUTATIONS, BAND_ROWS = 5, 128, 6
WINDOW = 100  # bytes

STEPS = {
    "nfc": RewriteSteps(unicode="nfc"),
    "nfkc": RewriteSteps(unicode="nfkc"),
    "lower case": RewriteSteps(lowercase=True),
    "white space": RewriteSteps(whitespace="collapse"),
    "lines": RewriteSteps(whitespace="lines", control="strip"),
    "markup": RewriteSteps(markup="brackets"),
    "all steps": RewriteSteps("nfkc", "brackets_line", "strip_all", "basic", True, "strip"),
}

_WORDS = (
    "the of and to have that with be a data token corpus Σίσυφος ΟΔΟΣ ΑΣ İstanbul ẞ ǅ naïve e\u0301te\u0301 "
    "o\u0308\u0323 Ａｌｐｈａ ①② ½ ³ ٣٤ 𝟘𝟙 𐐀𐐨 ꙀA 中文沒有空格。 ひらがな ｶﾀｶﾅﾞ ภาษาไทย ភាសាខ្មែរ 한국어 हिन्दी। مرحبا "
    "שלום 👨‍👩‍👧‍👦 🇫🇷 http://example.com/a?b https://é.fr www.x.org #tag ... …… end. end! ok? • - * <b> </b> "
    "<a\u00a0b> ( ] { ⟨ » \u201d soft\u00adhyphen zero\u200bwidth \ufeffmark nul\x00byte \x1funit \u202eright "
    "0123456789 x 𠀀"
)
WORDS = _WORDS.split(" ")
GAPS = (*" " * 24, "\n", "\n", "\n\n", "\r\n", "  ", "\t", "\u00a0", "\u3000", "\u2028", "\x85", "\v", " \n \n")
SIZES = (0, 1, 2, 3, 5, 8, 20, 20, 40, 40, 80, 80, 160, 160, 320, 640)


def _numbers(seed: int) -> Iterator[int]:
    """Yield random numbers by Knuth's MMIX generator, implemented here because the documents must never change."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        yield state >> 33


def generate_documents(count: int) -> list[str | None]:
    """Return `count` documents of many scripts and lengths, with nulls, repeated lines and near-duplicates.

    The documents are the same on every machine and in every version. The last document is very long.
    """
    numbers = _numbers(20)
    documents: list[str | None] = []

    def choose(items: Sequence[Any]) -> Any:
        return items[next(numbers) % len(items)]

    def line() -> str:
        return "".join(choose(WORDS) + choose(GAPS) for _ in range(choose(SIZES)))

    for position in range(count):
        kind = next(numbers) % 40
        if kind == 0:
            documents.append(None)
        elif kind < 6 and position:
            documents.append((choose(documents) or "") + choose(("", " more", "\n", choose(WORDS))))
        elif kind < 10:
            documents.append("\n".join([line()] * 3))
        else:
            documents.append(line())
    if documents:
        documents[-1] = " ".join(text for text in documents[:300] if text)
    return documents


def _table(documents: Sequence[str | None]) -> pa.Table:
    rows = pa.array(range(len(documents)), pa.int64())
    ids = pa.array([f"check/{row}" for row in range(len(documents))], pa.large_string())
    return pa.table([rows, ids, pa.array(documents, pa.large_string())], names=[ROW, ID, TEXT])


def _text_arrays(column: pa.ChunkedArray) -> list[np.ndarray]:
    """Return the validity (bool) and the UTF-8 length (int64) of each row, and the bytes of all rows (uint8)."""
    encoded = [None if text is None else text.encode() for text in column.to_pylist()]
    valid = np.array([text is not None for text in encoded], bool)
    lengths = np.array([len(text or b"") for text in encoded], np.int64)
    return [valid, lengths, np.frombuffer(b"".join(text or b"" for text in encoded), np.uint8)]


def _frame_arrays(engine: Engine, frame: Frame) -> list[np.ndarray]:
    return _table_arrays(engine.to_arrow(frame))


def _parquet_arrays(engine: Engine, table: pa.Table) -> list[np.ndarray]:
    """Write a table as Parquet, and return the columns that pyarrow reads, in the types of the table. The files
    themselves may differ between engines."""
    with unsynced_folder() as folder:
        with engine.parquet_file(folder / "check.parquet", table.schema, file_options(table.schema)) as file:
            file.write(table)
        return _table_arrays(pq.read_table(folder / "check.parquet").cast(table.schema))


def _table_arrays(table: pa.Table) -> list[np.ndarray]:
    names = np.frombuffer(repr([(field.name, str(field.type)) for field in table.schema]).encode(), np.uint8)
    columns = [
        [column.to_numpy()] if pa.types.is_integer(column.type) else _text_arrays(column) for column in table.columns
    ]
    return [names, *(array for arrays in columns for array in arrays)]


def _language_model() -> list[Classifier]:
    """Return a list with the model that identifies languages; an empty list if the model's package is not installed."""
    try:
        return [load_classifier("")]
    except InputError:
        return []


Check = tuple[str, Callable[[], list[np.ndarray]]]


def _text_checks(engine: Engine, frame: Frame) -> Iterator[Check]:
    text = frame[TEXT]
    a, b = constants(PERMUTATIONS)
    yield "byte_lengths", lambda: [engine.byte_lengths(text)]
    yield "spread_bytes", lambda: [engine.spread_bytes(text, 16)]
    yield "measure", lambda: [*engine.measure(text, [measure.name for measure in Measure]).values()]
    for name, steps in STEPS.items():
        yield f"rewrite {name}", partial(_rewritten, engine, frame, steps)
    yield "split_words", lambda: [array for words in (SCRIPTS, TABLE) for array in _split(engine, text, words)]
    yield "replace_texts", partial(_replaced, engine, frame)
    yield "count_stop_words", partial(_stop_words, engine, text)
    for unit in UNITS:
        yield f"split_units, join_units of {unit}s", partial(_units, engine, frame, unit)
    yield "hash_text", lambda: [engine.hash_text(text), engine.hash_text(text, 100)]
    yield "spread_windows", lambda: [engine.hash_text(engine.spread_windows(text, 5, 100))]
    for model in _language_model():
        yield "classify", partial(_labels, engine, text, model)
    yield "score_text", lambda: [engine.score_text(text, tiny_model())]
    yield "signatures of words", lambda: [engine.signatures(text, NGRAM, False, a, b)]
    yield "signatures of characters", lambda: [engine.signatures(text, NGRAM, True, a, b)]
    yield "shingles of words", lambda: [*engine.shingles(text, NGRAM, False)]
    yield "shingles of characters", lambda: [*engine.shingles(text, NGRAM, True)]
    yield "band_keys", lambda: [engine.band_keys(text, NGRAM, False, a, b, BAND_ROWS)]
    yield "ngram_hits", partial(_ngram_hits, engine, text)
    yield "tokenize", lambda: [*engine.tokenize(text, load_tokenizer("gpt2"))]


def _rewritten(engine: Engine, frame: Frame, steps: RewriteSteps) -> list[np.ndarray]:
    rewritten, edited = engine.rewrite(frame[TEXT], steps)
    return [*_text_arrays(engine.to_arrow(engine.with_columns(frame, {TEXT: rewritten}))[TEXT]), edited]


def _split(engine: Engine, text: Text, words: str) -> list[np.ndarray]:
    """Return hashes of the texts after words are split, and which texts were split."""
    split, wanted = engine.split_words(text, words)
    return [engine.hash_text(split), wanted]


def _replaced(engine: Engine, frame: Frame) -> list[np.ndarray]:
    """Return the texts, with the rewritten ones in place of every third one that is not null."""
    text, wanted = frame[TEXT], np.arange(len(frame)) % 3 == 0
    wanted &= engine.to_arrow(frame).column(TEXT).is_valid().to_numpy()
    parts = engine.filter_rows(frame, wanted)[TEXT]
    replaced = engine.replace_texts(text, engine.rewrite(parts, RewriteSteps(lowercase=True))[0], wanted)
    return _text_arrays(engine.to_arrow(engine.with_columns(frame, {TEXT: replaced}))[TEXT])


def _stop_words(engine: Engine, text: Text) -> list[np.ndarray]:
    lists = {0: Listed(words=("the", "of", "a"), as_=STOP_WORD), 1: Listed(words=PARTICLES, as_=STOP_WORD)}
    numbers = (np.arange(len(text)) % 3).astype(np.int32)
    return [*count_stop_words(Texts(engine, lambda: text, len(text)), lists, numbers, words=SCRIPTS)]


def _units(engine: Engine, frame: Frame, unit: str) -> list[np.ndarray]:
    """Return the units, and the texts without every third unit."""
    text = frame[TEXT]
    units = engine.split_units(text, unit, True)
    joined, edited = engine.join_units(text, units, np.arange(len(units.frame)) % 3 > 0)
    table = engine.to_arrow(engine.with_columns(frame, {TEXT: joined}))
    return [*_text_arrays(engine.to_arrow(units.frame)[TEXT]), units.counts, *_text_arrays(table[TEXT]), edited]


def _labels(engine: Engine, text: Text, model: Classifier) -> list[np.ndarray]:
    return [*engine.classify(text, model, 2000)]


def _ngram_hits(engine: Engine, text: Text) -> list[np.ndarray]:
    cpu = load_engine("cpu")
    hashes, _ = cpu.shingles(cpu.from_arrow(_table(generate_documents(40)))[TEXT], 2, False)
    distinct, first = np.unique(hashes, return_index=True)
    return [*engine.ngram_hits(text, table_of(("first", "second"), distinct, (first % 2).astype(np.int32)), 2)]


def _corpus_checks(engine: Engine) -> Iterator[Check]:
    """Yield checks of the functions on whole corpora. Their keys and hashes are generated, so a fault in the functions
    that compute these does not show here."""
    rows = 2000
    numbers = np.fromiter(islice(_numbers(21), 4 * rows), np.int64, 4 * rows)
    keys = (numbers[: 2 * rows] % 700).astype(np.uint64).reshape(rows, 2) % np.uint64(29)
    rank = np.arange(rows, dtype=np.int64)[::-1].copy()
    yield "group_leaders", lambda: [engine.group_leaders(keys), engine.group_leaders(keys, rank)]
    sets = [np.unique(numbers[k : k + k % 40] % 300).astype(np.uint64) for k in range(rows)]
    hashes, offsets = np.concatenate(sets), np.cumsum([0, *map(len, sets)], dtype=np.int64)
    left, right = numbers[: 2 * rows] % rows, numbers[2 * rows :] % rows
    yield "intersection_sizes", lambda: [engine.intersection_sizes(hashes, offsets, left, right)]
    vectors = (numbers % 255 - 127).astype(np.int8).reshape(-1, 40)
    weights = (1 / np.linalg.norm(vectors[:30], axis=1)).astype(np.float32)
    yield "nearest_vectors", lambda: [engine.nearest_vectors(vectors, vectors[:30], weights, 3)]
    yield "fit_centroids", partial(_centroids, engine)
    bounds = np.full(len(vectors), 100, np.float32)
    yield "close_vectors", lambda: [*engine.close_vectors(vectors, vectors, bounds, bounds)]
    yield "connected_components", lambda: [engine.connected_components(left[: rows // 2], right[: rows // 2], rows)]


def _window_checks(engine: Engine, documents: Sequence[str | None]) -> Iterator[Check]:
    """Yield checks of the records of windows. The documents are read twice; the places come from the CPU engine."""
    cpu, raw = load_engine("cpu"), [(text or "").encode() for text in documents]
    data, offsets = np.frombuffer(b"".join(raw), np.uint8), np.cumsum([0, *map(len, raw)])

    def anchors(of: Engine) -> list[np.ndarray]:
        memory, half = new_memory(), len(documents) // 2
        parts = (offsets[: half + 1], offsets[half:], offsets[: half + 1])
        return [each for part in parts for each in (*of.anchor_records(data, part, WINDOW, memory), memory.copy())]

    def verdicts() -> list[np.ndarray]:
        records = np.concatenate([anchors(cpu)[0]] * 2)
        records[::3, 1:] ^= np.uint64(1)
        return [engine.judge_records(records, is_whole) for is_whole in (True, False)]

    def windows() -> list[np.ndarray]:
        _, nodes = cpu.node_records(data, anchors(cpu)[1], WINDOW)
        return [*engine.window_records(data, nodes[::5].copy(), WINDOW)]

    yield "anchor_records", lambda: anchors(engine)
    yield "node_records", lambda: [*engine.node_records(data, anchors(cpu)[1], WINDOW)]
    yield "window_records", windows
    yield "judge_records", verdicts


def _centroids(engine: Engine) -> list[np.ndarray]:
    """Return the centres of four clusters. The means are exact in any order of summation, so engines agree."""
    corners = np.eye(4, 6, dtype=np.float32)
    around = (np.arange(8 * 6, dtype=np.float32).reshape(8, 6) % 5 - 2) / 64
    return [engine.fit_centroids((corners + around[:, None]).reshape(-1, 6), 4, 10, 7)]


def engine_checks(engine: Engine, documents: Sequence[str | None]) -> Iterator[Check]:
    """Yield the name of each computing function of the contract, and a function that returns its result as arrays."""
    frame = engine.from_arrow(_table(documents))
    every_third = np.arange(len(documents)) % 3 == 1

    def part() -> Frame:
        lengths = np.array([-1 if text is None else len(text) for text in documents], np.int64)
        return engine.filter_rows(engine.with_columns(frame, {"length": lengths}), every_third)

    yield "from_arrow, to_arrow", lambda: _frame_arrays(engine, frame)
    yield "with_columns, filter_rows", lambda: _frame_arrays(engine, part())
    yield "parquet_file", partial(_parquet_arrays, engine, _table(documents))
    yield from _text_checks(engine, frame)
    # Columns that share buffers with others and start inside them
    yield "hash_text of a part", lambda: [engine.hash_text(part()[TEXT].iloc[7:])]
    names = ["words", "lines", "duplicate_5gram_characters"]
    yield "measure of a part", lambda: [*engine.measure(part()[TEXT].iloc[7:], names).values()]
    yield from _corpus_checks(engine)
    yield from _window_checks(engine, documents)


def digest(arrays: Sequence[np.ndarray]) -> str:
    """Return the SHA-256, in hexadecimal, of the dtypes, shapes and values of arrays."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


class SelfCheck(NamedTuple):
    """Digests of the results of each engine from the same generated documents."""

    documents: int  # number of generated documents
    digests: dict[str, dict[str, str]]  # function -> engine -> digest
    failed: dict[str, str]  # "FUNCTION on ENGINE" -> traceback
    skipped: dict[str, str]  # "FUNCTION on ENGINE" -> the missing library or the full folder, and the remedy

    @property
    def differing(self) -> list[str]:
        """The functions whose digests differ between engines."""
        return [name for name, by_engine in self.digests.items() if len(set(by_engine.values())) > 1]


def self_check(engine_names: Sequence[str], count: int) -> SelfCheck:
    """Run every check on `count` generated documents with each engine ("cpu", "gpu"), and return the digests.

    A function that fails does not stop the other checks.
    """
    check = SelfCheck(count, {}, {}, {})
    documents = generate_documents(count)
    for engine_name in engine_names:
        try:
            for name, compute in engine_checks(load_engine(engine_name), documents):
                try:
                    check.digests.setdefault(name, {})[engine_name] = digest(compute())
                except (InputError, OutputError) as error:
                    check.skipped[f"{name} on {engine_name}"] = str(error)
                except OSError as error:
                    check.skipped[f"{name} on {engine_name}"] = explain(error)
                except Exception:  # the report shows any error
                    check.failed[f"{name} on {engine_name}"] = traceback.format_exc()
        except Exception:
            check.failed[f"from_arrow on {engine_name}"] = traceback.format_exc()
    return check


def _engine_lines(name: str, obstacle: str) -> tuple[list[str], bool]:
    if obstacle:
        return [f"engine {name}: not usable: {obstacle}"], False
    try:
        facts = load_engine(name).describe()
    except ImportError as error:
        return [f"engine {name}: its packages are incomplete: {error}"], False
    return [f"engine {name}: " + ", ".join(f"{key} {value}" for key, value in facts.items() if key != "engine")], True


def diagnose() -> tuple[list[str], bool]:
    """Return the lines of `curate doctor`, and whether this machine is sound.

    The lines show engines, versions, devices, the CUDA toolchain, missing parts with advice, and the comparison of the
    engines. The second value is False in four cases: an engine that should load does not, a check fails, two engines
    differ, or a GPU is usable but the versions of its toolchain do not fit each other.
    """
    lines: list[str] = []
    engines = []
    obstacles = {"cpu": "", "gpu": gpu_obstacle()}
    for name in PACKAGES:
        engine_lines, usable = _engine_lines(name, obstacles[name])
        lines += engine_lines
        engines += [name] if usable else []
    toolchain = find_toolchain()
    lines.append(toolchain_line(toolchain))
    check = self_check(engines, NUM_DOCUMENTS)
    lines.append(
        f"self-check: {check.documents} generated documents, {counted(len(check.digests), 'result')} per engine"
    )
    lines += [f"  not checked: {name}: {reason}" for name, reason in check.skipped.items()]
    for name, error in check.failed.items():
        lines += [f"  FAILED: {name}; please report this with the lines above", error]
    lines += [f"  DIFFERENT on {' and '.join(engines)}: {name}" for name in check.differing]
    if check.differing:
        lines.append("  please report this with the lines above; until it is fixed, use one engine for a whole corpus")
    elif len(engines) < 2:
        lines.append(f"  only engine {' '.join(engines)} ran: nothing to compare")
    elif not check.failed:
        lines.append(f"  {' and '.join(engines)} agree on all results")
    expected = [name for name, obstacle in obstacles.items() if not obstacle]
    fits = not toolchain_fault(toolchain) or "gpu" not in engines
    return lines, engines == expected and fits and not check.failed and not check.differing
