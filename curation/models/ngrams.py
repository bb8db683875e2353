# SPDX-License-Identifier: Apache-2.0
"""Back-off language models: ARPA files (`ngrams`, for both engines), and KenLM's binary files through its package."""

from __future__ import annotations

import gzip
import mmap
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from curation.base.errors import InputError, installation
from curation.base.system.files import known_sha256
from curation.base.system.os_errors import fault_of, is_of_system
from curation.kernels import language_model as kernel

MODELS_KEPT = 2  # in memory
MAX_ORDER = 20
MISSING_UNKNOWN = 100 * kernel.UNITS  # KenLM's log probability of <unk> for a model without <unk>
NEVER = 99 * kernel.UNITS  # the log probability that ARPA files have in place of log(0) is -99
WORD, BYTE = "word", "byte"  # units of models
BYTE_WORDS = tuple(b"%02x" % byte for byte in range(256))  # the words of models of bytes
SPELLED = np.frombuffer(b"".join(BYTE_WORDS[k] + b" " if k != 0x0A else b"  \n" for k in range(256)), np.uint8)
SPELLED = SPELLED.reshape(256, 3)  # each byte as its word and white space, the end of a line as white space
BINARY = b"mmap lm http://kheafield.com/code"
GZIP = b"\x1f\x8b"
MAX_GROWTH, FREE_BYTES = 100, 16 << 20  # of a compressed file; 3 to 10 is usual, and a few MB may grow more
PIECE_BYTES = 1 << 20
SPACES = re.compile(r"[ \t\v\f\r]+")
CONTENT = re.compile(rb"\S")
SHOWN = 60  # characters of a wrong line
TINY = rb"""\data\
ngram 1=5
ngram 2=3

\1-grams:
-1.5	<unk>
-99	<s>	-0.4
-0.9	</s>
-0.7	the	-0.3
-0.8	of	-0.2

\2-grams:
-0.2	<s> the
-0.5	of the
-0.6	the </s>

\end\
"""
FAULTS = {
    kernel.BAD_NUMBER: "expected numbers before and after the words",
    kernel.BAD_WORDS: "expected a number, {order} words and at most one number",
    kernel.REPEATED: "these words are there twice",
    kernel.POSITIVE: "a log probability above 0",
    kernel.OUT_OF_RANGE: "a number below -200 or above 200",
}


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A loaded ARPA file.

    counts         n-grams of each order
    tables         arguments of `score_document` between `end` and `scratch`
    scratch_items  int64 items of scratch memory for one document
    unit           WORD; BYTE: its words are bytes as `spelled` writes them
    """

    counts: tuple[int, ...]
    tables: tuple[np.ndarray, ...]
    scratch_items: int
    unit: str


@dataclass(frozen=True, eq=False)
class KenlmModel:
    """A file that the package kenlm reads."""

    model: Any
    unit: str = WORD

    def score_texts(self, texts: Sequence[str | None]) -> np.ndarray:
        """Return the scores that `Engine.score_text` gives, to the precision of KenLM's float32 logarithms."""
        out = np.zeros((len(texts), kernel.NUM_RESULTS), np.int64)
        for row, text in enumerate(texts):
            for line in (text or "").split("\n"):
                words = line.encode().hex(" ") if self.unit == BYTE else SPACES.sub(" ", line).strip(" ")
                if words:
                    scores = [*self.model.full_scores(words)]
                    out[row, kernel.TOTAL] += sum(round(score * kernel.UNITS) for score, _, _ in scores)
                    out[row, kernel.WORDS] += len(scores) - 1
                    out[row, kernel.LINES] += 1
                    out[row, kernel.UNKNOWN_WORDS] += sum(is_unknown for _, _, is_unknown in scores[:-1])
        return out


def spelled(data: Any, offsets: Any, table: Any) -> tuple[Any, Any]:
    """Return the texts data[offsets[k]:offsets[k + 1]] in the words of a model of bytes, and their offsets. `table` is
    SPELLED. The arrays are all of NumPy or all of CuPy."""
    first = int(offsets[0])
    return table[data[first : int(offsets[-1])]].ravel(), (offsets - first) * table.shape[1]


def load_language_model(path: str) -> LanguageModel | KenlmModel:
    """Return the model at a path: an ARPA file, also compressed with gzip, or a binary file of KenLM. A process keeps
    up to MODELS_KEPT models. Raises InputError for a file that is no such model."""
    return _load(path, known_sha256(path))


@lru_cache(MODELS_KEPT)
def _load(path: str, digest: str) -> LanguageModel | KenlmModel:
    try:
        with open(path, "rb") as file:
            head = file.read(len(BINARY))
            if head == BINARY:
                return _load_binary(path)
            if head.startswith(GZIP):
                data: Any = _decompressed(path)
            else:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if head else bytearray()
    except (OSError, EOFError, zlib.error) as error:
        reason = fault_of(error) if isinstance(error, OSError) else "its gzip stream ends too early"
        reason = "its gzip stream is damaged" if isinstance(error, zlib.error) else reason
        raise InputError(f"no language model can be read at {path}: {reason}") from None
    return _parse(path, np.frombuffer(data, np.uint8))


def _decompressed(path: str) -> bytearray:
    """Return the content of a gzip file. To protect the memory, raises InputError if it grows more than a language
    model can."""
    limit, data = MAX_GROWTH * os.path.getsize(path) + FREE_BYTES, bytearray()
    with gzip.open(path) as file:
        while piece := file.read(PIECE_BYTES):
            data += piece
            if len(data) > limit:
                raise InputError(
                    f"{path} has more than {limit:,} bytes when it is decompressed, over {MAX_GROWTH} times its size, "
                    "which is no language model. Decompress the file if it is one"
                )
    return data


def tiny_model() -> LanguageModel:
    """Return a model of two words, for compiling and comparing the functions of engines."""
    return _parse("the tiny model", np.frombuffer(bytearray(TINY), np.uint8))


def _load_binary(path: str) -> KenlmModel:
    try:
        import kenlm
    except ImportError:
        raise InputError(
            f"{path} is a binary file of KenLM, which the package kenlm reads: {installation('kenlm')}. Or give the "
            "ARPA file"
        ) from None
    config = kenlm.Config()
    config.show_progress = False
    try:
        return _of_kenlm(kenlm.Model(path, config))
    except (OSError, RuntimeError) as error:
        if is_of_system(error):
            raise
        raise InputError(f"{path} is no model that KenLM can read: {' '.join(str(error).split())}") from None


def _of_kenlm(model: Any) -> KenlmModel:
    # KenLM does not list the words of a model, so other words cannot be excluded here.
    is_of_bytes = all(word.decode() in model for word in BYTE_WORDS)
    is_of_bytes = is_of_bytes and round(model.score("<unk>", bos=False, eos=False) * kernel.UNITS) == -NEVER
    return KenlmModel(model, BYTE if is_of_bytes else WORD)


# ARPA: https://www.speech.sri.com/projects/srilm/manpages/ngram-format.5.html


def _lines(data: np.ndarray, position: int) -> Iterator[tuple[str, int]]:
    """Yield the lines that are not blank, from a position on, stripped, with the position after each line."""
    raw = data.data
    while match := CONTENT.search(raw, position):
        position = match.start()
        piece = bytes(raw[position : position + 4096])
        size = piece.find(b"\n") + 1 or len(piece)
        position += size
        yield piece[:size].decode("utf-8", "replace").strip(), position


def _parse(path: str, data: np.ndarray) -> LanguageModel:
    counts, position = _read_counts(path, data)
    order = len(counts)
    entries = np.zeros(2 * (3 * (sum(counts) + 1) // 2 + 1), np.uint64)
    closed, longest = True, 0
    for size, count in enumerate(counts, 1):
        heading = f"\\{size}-grams:"
        line, position = _next_line(data, position)
        if line != heading:
            raise _wrong(path, f"expected the line {heading}, not {line[:SHOWN]!r}")
        start = position
        fault, position, has_suffixes = kernel.parse_section(data, start, size, count, entries)
        if fault == kernel.TOO_FEW:
            raise _wrong(path, f"it announces {count:,} {size}-grams and has fewer")
        if fault != kernel.SOUND:
            line, _ = _next_line(data, position)
            raise _wrong(path, f"{FAULTS[fault].format(order=size)} in the {size}-gram {line[:SHOWN]!r}")
        closed = closed and has_suffixes
        if size == 1:  # words that occur only in longer n-grams are unknown
            longest = kernel.longest_word(data, start, position)
    line, _ = _next_line(data, position)
    if line != "\\end\\":
        raise _wrong(path, f"expected \\end\\ after {counts[-1]:,} {order}-grams, not {line[:SHOWN]!r}")
    return _build(path, counts, entries, closed, longest)


def _read_counts(path: str, data: np.ndarray) -> tuple[tuple[int, ...], int]:
    """Return the announced number of n-grams of each order, and the position after them."""
    line, position = _next_line(data, 0)
    if line != "\\data\\":
        raise _wrong(path, f"it begins with {line[:SHOWN]!r}, expected \\data\\" if line else "it is empty")
    counts: list[int] = []
    for line, after in _lines(data, position):
        match = re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", line)
        if match and int(match[1]) == len(counts) + 1:
            counts.append(int(match[2]))
        elif line.startswith("\\"):
            break
        else:
            raise _wrong(path, f"expected the line ngram {len(counts) + 1}=NUMBER, not {line[:SHOWN]!r}")
        position = after
    if not 1 <= len(counts) <= MAX_ORDER:
        raise _wrong(path, f"it announces n-grams of {len(counts)} orders, expected 1 to {MAX_ORDER}")
    # The shortest line has a digit, a character and a separator per word, and a line end
    if sum(count * (2 * order + 2) for order, count in enumerate(counts, 1)) > len(data) + 1:
        raise _wrong(path, f"it announces {sum(counts):,} n-grams in {len(data):,} bytes")
    return tuple(counts), position


def _next_line(data: np.ndarray, position: int) -> tuple[str, int]:
    """Return the next line with content, and the position after it."""
    return next(_lines(data, position), ("", len(data)))


def _build(path: str, counts: tuple[int, ...], entries: np.ndarray, closed: bool, longest: int) -> LanguageModel:
    hashes = {name: _hash(name.encode()) for name in ("<s>", "</s>", "<unk>", "<UNK>")}
    for name in ("<s>", "</s>"):
        if not kernel.weights_of(entries, hashes[name]):
            raise _wrong(path, f"it has no {name}")
    unknown = next((hashes[name] for name in ("<unk>", "<UNK>") if kernel.weights_of(entries, hashes[name])), None)
    if unknown is None:
        unknown = hashes["<unk>"]
        slot = kernel.slot_of_key(entries, unknown)
        entries[slot] = unknown
        entries[slot + 1] = kernel.USED | np.uint64(MISSING_UNKNOWN) << np.uint64(32)
    settings = np.zeros(kernel.NUM_SETTINGS, np.int64)
    settings[kernel.ORDER], settings[kernel.CLOSED], settings[kernel.LONGEST] = len(counts), closed, longest
    words = {kernel.BEGIN: hashes["<s>"], kernel.END: hashes["</s>"], kernel.UNKNOWN: unknown}
    for setting, value in words.items():
        settings.view(np.uint64)[setting] = value
    for table in (settings, entries):
        table.setflags(write=False)
    return LanguageModel(counts, (settings, entries), 3 * len(counts), _unit(counts, entries, unknown))


def _unit(counts: tuple[int, ...], entries: np.ndarray, unknown: np.uint64) -> str:
    """Return BYTE for a model whose words are BYTE_WORDS, `<s>`, `</s>` and an unknown word that is never predicted.
    The last condition excludes a model of words that was trained on dumps of binary files."""
    is_closed = kernel.log_probability(kernel.weights_of(entries, unknown)) == -NEVER
    has_bytes = all(kernel.weights_of(entries, _hash(word)) for word in BYTE_WORDS)
    return BYTE if is_closed and has_bytes and counts[0] == len(BYTE_WORDS) + 3 else WORD


def _hash(word: bytes) -> np.uint64:
    data = np.frombuffer(word, np.uint8)
    return np.uint64(kernel.hash_span(data, 0, len(data)))


def _wrong(path: str, fault: str) -> InputError:
    return InputError(f"{path} is not an ARPA language model: {fault}")
