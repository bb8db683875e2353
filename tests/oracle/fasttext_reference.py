# SPDX-License-Identifier: Apache-2.0
"""fastText's supervised prediction in slow plain Python: floats, lists, a recursive walk of the tree; and a writer of
small model files, since training needs fastText itself."""

import math
import random
import struct
from pathlib import Path
from typing import Any, NamedTuple

SPACES = " \n\r\t\v\f\0"
WORDS = [b"</s>", b"the", b"of", b"a", "é".encode(), "漢字".encode(), b"w1", b"__label__word", b"w2", b"-", b"b"]
MAGIC, SUPERVISED, HIERARCHICAL, SOFTMAX = 793712314, 3, 1, 3


class Model(NamedTuple):
    words: list[bytes]
    labels: list[tuple[bytes, int]]  # with their counts, which shape the tree
    rows: list[list[float]]  # of the words, then of the buckets
    output: list[list[float]]
    loss: int = SOFTMAX
    buckets: int = 0
    low: int = 0
    high: int = 0
    word_ngrams: int = 1
    pruned: dict[int, int] | None = None  # bucket -> number of its row after the words


def fnv(data: bytes) -> int:
    h = 2166136261
    for byte in data:
        h = (h ^ (byte - 256 if byte > 127 else byte)) * 16777619 % 2**32
    return h


def tokens_of(text: str) -> list[bytes]:
    """Up to the first `</s>`, which also ends every text."""
    for space in SPACES:
        text = text.replace(space, " ")
    tokens = [token.encode() for token in text.split(" ") if token]
    end = tokens.index(b"</s>") if b"</s>" in tokens else len(tokens)
    return [*tokens[:end], b"</s>"]


def windows_of(text: str, windows: int, max_characters: int) -> str:
    """Windows from the middles of parts of equal size, each without the rest of a token that began before it."""
    text = text.lstrip(SPACES)
    if len(text) <= max_characters:
        return f"{text} "
    data, found = text.encode(), ""
    for number in range(windows):
        rest = data[len(data) * (2 * number + 1) // (2 * windows) :].decode("utf-8", "ignore")
        before, window = text[: len(text) - len(rest)], rest[: max_characters // windows]
        spaces = [k for k, character in enumerate(window[:-1]) if character in SPACES]
        if spaces and before and before[-1] not in SPACES:
            window = window[spaces[0] + 1 :]
        found += f"{window} "
    return found


def character_ngrams(model: Model, token: bytes) -> list[int]:
    padded = f"<{token.decode()}>"
    found = []
    for i in range(len(padded)):
        for n in range(max(model.low, 1), model.high + 1):
            j = i + n
            if j <= len(padded) and not (n == 1 and (i == 0 or j == len(padded))):
                found.append(fnv(padded[i:j].encode()) % model.buckets)
    return found


def word_ngrams(model: Model, hashes: list[int]) -> list[int]:
    signed = [h - 2**32 if h >= 2**31 else h for h in hashes]
    found = []
    for i in range(len(signed)):
        h = signed[i]
        for j in range(i + 1, min(i + model.word_ngrams, len(signed))):
            h = (h * 116049371 + signed[j]) % 2**64
            found.append(h % model.buckets)
    return found


def inputs_of(model: Model, text: str) -> list[int]:
    """Numbers of the rows that are averaged."""
    numbers = {word: number for number, word in enumerate(model.words)}
    labels = {label for label, _ in model.labels}
    words, buckets, hashes = [], [], []
    for token in tokens_of(text):
        if token in labels or (token not in numbers and token.startswith(b"__label__")):
            continue
        hashes.append(fnv(token))
        if token in numbers:
            words.append(numbers[token])
        if token != b"</s>":
            buckets += character_ngrams(model, token)
    buckets += word_ngrams(model, hashes)
    if model.pruned is not None:
        buckets = [model.pruned[bucket] for bucket in buckets if bucket in model.pruned]
    return words + [len(model.words) + bucket for bucket in buckets]


def outputs_of(model: Model, text: str) -> list[float] | None:
    """What each row of the output gives for a text; None if the model knows nothing in it."""
    inputs = inputs_of(model, text)
    if not inputs:
        return None
    hidden = [math.fsum(column) / len(inputs) for column in zip(*(model.rows[k] for k in inputs), strict=True)]
    return [math.fsum(w * h for w, h in zip(row, hidden, strict=True)) for row in model.output]


def score_of(model: Model, text: str, label: int) -> float | None:
    """The probability of one label, however unlikely."""
    outputs = outputs_of(model, text)
    if outputs is None:
        return None
    scores = leaf_scores(model, outputs, -math.inf) if model.loss == HIERARCHICAL else softmax_scores(outputs)
    return math.exp(dict(scores)[label])


def predict_by_package(model: Any, text: str) -> tuple[str, float]:
    """The label and probability by a model of the package; the `predict` of the one that trains needs NumPy 1."""
    line = text.replace("\n", " ")
    score, label = next(iter(model.f.predict(f"{line}\n", 1, 0.0, "strict")), (0.0, "none"))
    return label.removeprefix("__label__"), score


def predict(model: Model, text: str) -> tuple[str, float] | None:
    outputs = outputs_of(model, text)
    if outputs is None:
        return None
    scores = leaf_scores(model, outputs) if model.loss == HIERARCHICAL else softmax_scores(outputs)
    best = None
    for label, score in scores:
        if best is None or score >= best[1]:
            best = label, score
    if best is None:
        return None
    return model.labels[best[0]][0].decode().removeprefix("__label__"), math.exp(best[1])


def softmax_scores(outputs: list[float]) -> list[tuple[int, float]]:
    powers = [math.exp(x - max(outputs)) for x in outputs]
    return [(label, math.log(power / math.fsum(powers) + 1e-5)) for label, power in enumerate(powers)]


def leaf_scores(model: Model, outputs: list[float], least: float = math.log(1e-5)) -> list[tuple[int, float]]:
    """Of the leaves that are not behind a node with a logarithm below `least`, from left to right."""
    found = []

    def walk(node: int, score: float) -> None:
        if score < least:
            return
        if node < len(model.labels):
            found.append((node, score))
            return
        right = 1 / (1 + math.exp(-outputs[node - len(model.labels)]))
        walk(children[node][0], score + math.log(1 - right + 1e-5))
        walk(children[node][1], score + math.log(right + 1e-5))

    children = tree_of([count for _, count in model.labels])
    walk(2 * len(model.labels) - 2, 0.0)
    return found


def tree_of(counts: list[int]) -> dict[int, list[int]]:
    """Huffman's: each new node joins the two rarest, the rarer left; of equal ones a node before a leaf, and among
    leaves the last."""
    leaves = [(count, label) for label, count in enumerate(counts)]
    nodes: list[tuple[int, int]] = []
    children = {}
    for parent in range(len(counts), 2 * len(counts) - 1):
        pair = [leaves.pop() if leaves and (not nodes or leaves[-1][0] < nodes[0][0]) else nodes.pop(0) for _ in "lr"]
        children[parent] = [number for _, number in pair]
        nodes.append((sum(count for count, _ in pair), parent))
    return children


def numbers(seed: int, height: int, width: int, size: float = 2.0) -> list[list[float]]:
    """A matrix of numbers that float32 holds exactly, as do their halves and doubles; rows come again after 256."""
    generator = random.Random(seed)
    rows = [
        [generator.randrange(-1 << 12, 1 << 12) * size / (1 << 12) for _ in range(width)]
        for _ in range(min(height, 256))
    ]
    return [rows[k % 256] for k in range(height)]


def model_of(
    num_labels: int = 5, buckets: int = 0, rows: int = 0, width: int = 6, words: list[bytes] = WORDS, **settings
) -> Model:
    """A model with random weights; `rows` of buckets where not each has one."""
    labels = [(f"__label__l{k}".encode(), (num_labels - k) ** 2) for k in range(num_labels)]
    height = len(words) + (rows or buckets)
    output = numbers(2, num_labels, width, size=4.0)
    return Model(words, labels, numbers(1, height, width), output, buckets=buckets, **settings)


# Files, as fastText's `saveModel` writes them.


def as_bytes(model: Model, quantised: bool = False, version: int = 12, kind: int = SUPERVISED) -> bytes:
    """A `.bin`; or a `.ftz` with a centroid for every part of a row, for which rows must come again after 256."""
    dimensions = len(model.rows[0])
    pieces = [struct.pack("<ii", MAGIC, version)]
    pieces.append(
        struct.pack(
            "<12id", dimensions, 5, 5, 1, 5, model.word_ngrams, model.loss, kind, model.buckets, model.low, model.high,
            100, 1e-4,
        )
    )  # fmt: skip
    entries = [(word, 1, 0) for word in model.words] + [(label, count, 1) for label, count in model.labels]
    pruned = -1 if model.pruned is None else len(model.pruned)
    pieces.append(struct.pack("<iiiqq", len(entries), len(model.words), len(model.labels), 100, pruned))
    pieces += [word + b"\0" + struct.pack("<qb", count, kind) for word, count, kind in entries]
    pieces += [struct.pack("<ii", *pair) for pair in (model.pruned or {}).items()]
    matrix = quantised_bytes if quantised else dense_bytes
    pieces += [struct.pack("<?", quantised), matrix(model.rows), struct.pack("<?", quantised), matrix(model.output)]
    return b"".join(pieces)


def dense_bytes(rows: list[list[float]]) -> bytes:
    return struct.pack("<qq", len(rows), len(rows[0])) + b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows)


def quantised_bytes(rows: list[list[float]]) -> bytes:
    """Parts of two numbers, the last of one where the width is odd; norms are kept, and are 2 or 0.5."""
    height, width = len(rows), len(rows[0])
    assert all(row == rows[number % 256] for number, row in enumerate(rows))
    parts = [list(range(first, min(first + 2, width))) for first in range(0, width, 2)]
    norms = [(2.0, 0.5)[number % 2] for number in range(height)]
    codes = bytes(number % 256 for number in range(height) for _ in parts)
    header = struct.pack("<?qqi", True, height, width, len(codes)) + codes
    quantizer = struct.pack("<4i", width, len(parts), 2, len(parts[-1]))
    for part in parts:
        values = [rows[number][k] / norms[number] for number in range(min(height, 256)) for k in part]
        quantizer += struct.pack(f"<{256 * len(part)}f", *values, *[0.0] * (256 * len(part) - len(values)))
    norm_codes = bytes(number % 2 for number in range(height))
    norm_quantizer = struct.pack("<4i", 1, 1, 1, 1) + struct.pack("<256f", 2.0, 0.5, *[0.0] * 254)
    return header + quantizer + norm_codes + norm_quantizer


def read(path: Path) -> Model:
    """A model file, with its own reading of the format."""
    data, at = path.read_bytes(), 0

    def take(layout: str) -> tuple:
        nonlocal at
        values = struct.unpack_from("<" + layout, data, at)
        at += struct.calcsize("<" + layout)
        return values

    def word() -> bytes:
        nonlocal at
        start, at = at, data.index(b"\0", at) + 1
        return data[start : at - 1]

    def matrix(quantised: bool) -> list[list[float]]:
        norms_kept = take("?")[0] if quantised else False
        height, width = take("qq")
        if not quantised:
            return [list(take(f"{width}f")) for _ in range(height)]
        codes = take(f"{take('i')[0]}B")
        part_codes = [codes[k * len(codes) // height : (k + 1) * len(codes) // height] for k in range(height)]
        parts = centroids()
        norms = [1.0] * height
        if norms_kept:
            norm_codes = take(f"{height}B")
            (norm_values,) = centroids()
            norms = [norm_values[code][0] for code in norm_codes]
        return [
            [norm * x for part, code in zip(parts, row, strict=True) for x in part[code]]
            for row, norm in zip(part_codes, norms, strict=True)
        ]

    def centroids() -> list[list[tuple]]:
        _, parts, wide, last = take("4i")
        return [[take(f"{wide if part < parts - 1 else last}f") for _ in range(256)] for part in range(parts)]

    take("ii")
    _, _, _, _, _, ngrams, loss, _, buckets, low, high, _, _ = take("12id")
    size, num_words, _, _, num_pruned = take("iiiqq")
    entries = [(word(), take("qb")[0]) for _ in range(size)]
    pruned = dict(take("ii") for _ in range(num_pruned)) if num_pruned >= 0 else None
    rows = matrix(take("?")[0])
    output = matrix(take("?")[0])
    words, labels = [name for name, _ in entries[:num_words]], entries[num_words:]
    return Model(words, labels, rows, output, loss, buckets, low, high, ngrams, pruned)
