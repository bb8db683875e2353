# SPDX-License-Identifier: Apache-2.0
"""What this machine can do, and whether the engines agree: generated documents go through every function of the
contract on each engine, and digests of the results are compared.

`record_golden` keeps the results of a GPU, so that machines without one can still compare with it.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from curation.contract import ID, ROW, TEXT, Engine, Frame
from curation.engine import PACKAGES, gpu_obstacle, load_engine
from curation.errors import InputError
from curation.files import commit, read_json, write_json
from curation.kernels.rewrite import RewriteSteps
from curation.measures import Measure
from curation.stages.classifiers import Classifier, load_classifier
from curation.stages.permutations import constants

NUM_DOCUMENTS = 2500
NUM_GOLDEN_DOCUMENTS = 200  # whose results are kept whole, to see where a difference lies
GOLDEN_ARRAYS = ("byte_lengths", "measure", "hash_text", "band_keys", "rewrite all steps")
GOLDEN_JSON, GOLDEN_NPZ = "gpu.json", "gpu.npz"
NGRAM, PERMUTATIONS, BAND_ROWS = 5, 128, 6

STEPS = {
    "nfc": RewriteSteps(unicode="nfc"),
    "nfkc": RewriteSteps(unicode="nfkc"),
    "lower case": RewriteSteps(lowercase=True),
    "white space": RewriteSteps(whitespace="collapse"),
    "lines": RewriteSteps(whitespace="lines", control="strip"),
    "markup": RewriteSteps(markup="strip"),
    "all steps": RewriteSteps("nfkc", "strip_line", "strip_all", "basic", True, "strip"),
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
    """Knuth's MMIX generator, spelt out: the documents must never change."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        yield state >> 33


def generate_documents(count: int) -> list[str | None]:
    """Documents of many scripts and lengths with nulls, repeated lines, near-duplicates and one very long one."""
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
    """Which rows are not null, their lengths, their bytes."""
    encoded = [None if text is None else text.encode() for text in column.to_pylist()]
    valid = np.array([text is not None for text in encoded], bool)
    lengths = np.array([len(text or b"") for text in encoded], np.int64)
    return [valid, lengths, np.frombuffer(b"".join(text or b"" for text in encoded), np.uint8)]


def _frame_arrays(engine: Engine, frame: Frame) -> list[np.ndarray]:
    table = engine.to_arrow(frame)
    names = np.frombuffer(repr([(field.name, str(field.type)) for field in table.schema]).encode(), np.uint8)
    columns = [
        _text_arrays(column) if pa.types.is_large_string(column.type) else [column.to_numpy()]
        for column in table.columns
    ]
    return [names, *(array for arrays in columns for array in arrays)]


def _language_model() -> list[Classifier]:
    """The language model, where its package is installed."""
    try:
        return [load_classifier("")]
    except InputError:
        return []


def _text_results(engine: Engine, frame: Frame) -> Iterator[tuple[str, list[np.ndarray]]]:
    text = frame[TEXT]
    a, b = constants(PERMUTATIONS)
    yield "byte_lengths", [engine.byte_lengths(text)]
    yield "measure", list(engine.measure(text, [measure.name for measure in Measure]).values())
    for name, steps in STEPS.items():
        rewritten, edited = engine.rewrite(text, steps)
        column = engine.to_arrow(engine.with_columns(frame, {TEXT: rewritten}))[TEXT]
        yield f"rewrite {name}", [*_text_arrays(column), edited]
    yield "hash_text", [engine.hash_text(text), engine.hash_text(text, 100)]
    for model in _language_model():
        yield "classify", list(engine.classify(text, model, 2000))
    for unit, by_character in (("words", False), ("characters", True)):
        yield f"signatures of {unit}", [engine.signatures(text, NGRAM, by_character, a, b)]
        yield f"shingles of {unit}", list(engine.shingles(text, NGRAM, by_character))
    yield "band_keys", [engine.band_keys(text, NGRAM, False, a, b, BAND_ROWS)]


def _corpus_results(engine: Engine, frame: Frame) -> Iterator[tuple[str, list[np.ndarray]]]:
    text = frame[TEXT]
    keys = engine.hash_text(text)
    rows = len(keys)
    rank = np.arange(rows, dtype=np.int64)[::-1].copy()
    yield "first_of_group", [engine.first_of_group(keys, rank)]
    hashes, offsets = engine.shingles(text, NGRAM, False)
    numbers = np.fromiter(islice(_numbers(21), 4 * rows), np.int64, 4 * rows) % rows
    left, right = numbers[: 2 * rows], numbers[2 * rows :]
    yield "overlap", [engine.overlap(hashes, offsets, left, right)]
    yield "connected", [engine.connected(left[: rows // 2], right[: rows // 2], rows)]


def engine_results(engine: Engine, documents: Sequence[str | None]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """(what was computed, the result as arrays) of each function of the contract that computes."""
    frame = engine.from_arrow(_table(documents))
    yield "from_arrow, to_arrow", _frame_arrays(engine, frame)
    every_third = np.arange(len(documents)) % 3 == 1
    lengths = engine.byte_lengths(frame[TEXT])
    changed = engine.filter_rows(engine.with_columns(frame, {"length": lengths}), every_third)
    yield "with_columns, filter_rows", _frame_arrays(engine, changed)
    yield from _text_results(engine, frame)
    yield from _text_results_of_part(engine, changed)
    yield from _corpus_results(engine, frame)


def _text_results_of_part(engine: Engine, frame: Frame) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Columns that share buffers with others and do not begin at their start."""
    part = frame[TEXT].iloc[7:]
    yield "hash_text of a part", [engine.hash_text(part)]
    yield "measure of a part", list(engine.measure(part, ["words", "lines", "duplicate_5gram_characters"]).values())


def digest(arrays: Sequence[np.ndarray]) -> str:
    """SHA-256 of the types, shapes and values."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


class SelfCheck(NamedTuple):
    """Digests per function and engine."""

    documents: int
    digests: dict[str, dict[str, str]]

    @property
    def differing(self) -> list[str]:
        """Functions whose engines do not agree."""
        return [name for name, by_engine in self.digests.items() if len(set(by_engine.values())) > 1]


def self_check(engine_names: Sequence[str], count: int = NUM_DOCUMENTS) -> SelfCheck:
    """Runs `count` generated documents through each engine ("cpu", "gpu")."""
    documents = generate_documents(count)
    digests: dict[str, dict[str, str]] = {}
    for engine_name in engine_names:
        for name, arrays in engine_results(load_engine(engine_name), documents):
            digests.setdefault(name, {})[engine_name] = digest(arrays)
    return SelfCheck(len(documents), digests)


def _engine_lines(name: str, obstacle: str) -> tuple[list[str], bool]:
    if obstacle:
        return [f"engine {name}: not usable here: {obstacle}"], False
    try:
        facts = load_engine(name).describe()
    except ImportError as error:
        return [f"engine {name}: its packages are not complete: {error}"], False
    return [f"engine {name}: " + ", ".join(f"{key} {value}" for key, value in facts.items() if key != "engine")], True


def diagnose() -> tuple[list[str], bool]:
    """What `curate doctor` prints: engines, versions, devices, what is missing and what to do, and whether the engines
    agree. The second value is False where an engine that should run does not, or where two differ."""
    lines: list[str] = []
    ready = []
    obstacles = {"cpu": "", "gpu": gpu_obstacle()}
    for name in PACKAGES:
        said, usable = _engine_lines(name, obstacles[name])
        lines += said
        ready += [name] if usable else []
    try:
        check = self_check(ready)
    except Exception:  # whatever it is, here is the place to show it
        return [*lines, "self-check: FAILED; please report this with the lines above", traceback.format_exc()], False
    lines.append(f"self-check: {check.documents} generated documents, {len(check.digests)} results per engine")
    if len(ready) < 2:
        lines.append(f"  only engine {' '.join(ready)} ran: there was nothing to compare it with")
    elif check.differing:
        lines += [f"  DIFFERENT on {' and '.join(ready)}: {name}" for name in check.differing]
        lines.append("  please report this with the lines above; until then use one engine for all parts of a corpus")
    else:
        lines.append(f"  {' and '.join(ready)} agree on all of them")
    expected = [name for name, obstacle in obstacles.items() if not obstacle]
    return lines, ready == expected and not check.differing


def record_golden(folder: Path, engine_name: str = "gpu") -> None:
    """Writes digests of all results, and some results whole, with the device and versions they come from."""
    documents = generate_documents(NUM_DOCUMENTS)
    engine = load_engine(engine_name)
    few = dict(engine_results(engine, documents[:NUM_GOLDEN_DOCUMENTS]))
    arrays = {f"{name}/{k}": array for name in GOLDEN_ARRAYS for k, array in enumerate(few[name])}
    with commit(folder / GOLDEN_NPZ) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    facts = {
        "recorded_on": engine.describe(),
        "documents": digest(_text_arrays(_table(documents)[TEXT])),
        "digests": {name: digest(result) for name, result in engine_results(engine, documents)},
    }
    write_json(folder / GOLDEN_JSON, facts, indent=True)


class Golden(NamedTuple):
    recorded_on: dict[str, str]
    documents: str
    digests: dict[str, str]
    arrays: dict[str, np.ndarray]


def read_golden(folder: Path) -> Golden | None:
    """What `record_golden` wrote; None where nothing has been recorded yet."""
    facts = read_json(folder / GOLDEN_JSON)
    if facts is None:
        return None
    with np.load(folder / GOLDEN_NPZ) as stored:
        return Golden(**facts, arrays={name: stored[name] for name in stored.files})
