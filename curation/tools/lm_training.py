# SPDX-License-Identifier: Apache-2.0
"""Trains an n-gram language model with interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998), as an ARPA
file.  The estimation is that of KenLM's lmplz (Heafield et al. 2013), in three external sorts. Counts of the highest
order, sorted by suffixes, give the adjusted counts of all orders. Sorted by contexts, these give the discounted
probabilities and the back-off weights. Sorted by suffixes again, they give the probabilities, interpolated with those
of shorter n-grams. Memory: 200 bytes per word of the vocabulary, and at most 600 MB for texts of any size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curation.base.arrays import as_one_array, text_buffers, write_array
from curation.base.contract import TEXT
from curation.base.errors import InputError, OutputError, RecipeError, counted, nearest
from curation.base.system.files import commit, local_output, prepare_output, training_folder
from curation.base.system.steps import each, watching
from curation.kernels import ngram_counts as kernel
from curation.kernels.language_model import hash_span
from curation.models.discounts import FALLBACK, discounts_of
from curation.models.ngrams import BYTE, BYTE_WORDS, WORD
from curation.reading.inputs import AnyInput
from curation.reading.texts import InputTexts, list_whole_inputs
from curation.tools.external_sort import BATCH_ROWS, Sorter

BATCH_BYTES = 4 << 20
MAX_ORDER = 8
SUFFIX = ".arpa"
UNITS = (WORD, BYTE)
SPECIAL = (b"<s>", b"</s>", b"<unk>")
NEVER = b"-99"  # log probability of words that are never predicted: <s>, and <unk> of a model of bytes

Rows = tuple[np.ndarray, np.ndarray]


class TrainedLM(NamedTuple):
    """A trained language model.

    path        the ARPA file, for `perplexity` and `curation.perplexity`
    ngrams      n-grams per order in the model, with `<s>`, `</s>` and `<unk>` as words
    pruned      n-grams per order that were left out
    discounts   per order: the numbers subtracted from counts of 1, 2, and 3 or more
    fallback    orders whose counts give no discounts: 0.5, 1 and 1.5 are used
    documents, sentences, words   size of the training texts; a sentence is a line with words
    rejected    records that are no documents
    unit        `word`; `byte`: each byte of a line is a word
    """

    path: Path
    ngrams: tuple[int, ...]
    pruned: tuple[int, ...]
    discounts: tuple[tuple[float, float, float], ...]
    fallback: tuple[int, ...]
    documents: int
    sentences: int
    words: int
    rejected: int
    unit: str = WORD

    def __repr__(self) -> str:
        ngrams = ", ".join(f"{count:,} {order}-grams" for order, count in enumerate(self.ngrams, 1))
        return f"<trained language model {str(self.path)!r}: {ngrams} of {counted(self.documents, 'document')}>"


def train_lm(
    inputs: str | os.PathLike[str] | AnyInput | Sequence[Any],
    output: str | os.PathLike[str],
    *,
    unit: str = WORD,
    order: int = 5,
    prune: Sequence[int] = (),
    force: bool = False,
) -> TrainedLM:
    """Train an n-gram language model on documents, and write it as an ARPA file for `perplexity` and KenLM.

    inputs   paths, or inputs as in a recipe; all of them are read
    output   path of an `.arpa` file
    unit     `word` (default); `byte`: each byte is a word, for text without spaces between words
    order    words of the longest n-grams, 1 to 8
    prune    per order, leave out n-grams that occur at most so often: `(0, 0, 1)` leaves out n-grams of three and more
             words that occur once. The first number is 0, numbers do not fall, and the last is that of all higher
             orders. Default: none is left out
    force    replace an existing file. Default: False

    A word is a run of bytes without ASCII white space. Each line with words is a sentence. The words `<s>`, `</s>` and
    `<unk>` of a text are skipped. With `unit="byte"`, each byte of a line is a word, also a space. The file has all 256
    bytes as two hexadecimal digits, such as `e4`, so no word is unknown. Equal texts and settings give the same bytes.
    Disk, during the training: about 30 bytes per word for each order, in the folder of `output`.

        >>> import curation, pandas
        >>> texts = pandas.DataFrame({"text": ["the cat sat on the mat", "the dog sat on the cat"]})
        >>> texts.to_json("texts.jsonl", orient="records", lines=True)
        >>> curation.train_lm("texts.jsonl", "model.arpa", order=2).ngrams
        (9, 10)

    RecipeError: wrong settings. InputError: inputs that cannot be read, or without an n-gram of some order.
    OutputError: an `output` with another suffix, or that exists without `force`.
    """
    limits = _check(unit, order, prune)
    path = _check_output(output, force)
    entries = list_whole_inputs(inputs)
    with commit(path) as temporary, training_folder(path) as folder:
        training = _Training(folder, unit, order, limits)
        training.read(entries)
        training.count()
        training.discount()
        training.write(temporary)
    facts = {name: getattr(training, name) for name in ("documents", "sentences", "words", "rejected")}
    return TrainedLM(
        path,
        (len(training.vocabulary.words) - 1, *training.kept[1:]),
        tuple(training.pruned),
        tuple(training.discounts),
        tuple(training.fallback),
        **facts,
        unit=unit,
    )


def _check(unit: str, order: int, prune: Sequence[int]) -> list[int]:
    """Return the count up to which the n-grams of each order are left out."""
    if unit not in UNITS:
        raise RecipeError(f"unit: no unit {unit!r}{nearest(unit, UNITS)}")
    if not 1 <= order <= MAX_ORDER:
        raise RecipeError(f"order must be from 1 to {MAX_ORDER}, not {order}")
    given = list(prune) or [0]
    shown = ",".join(map(str, given))
    if len(given) > order:
        raise RecipeError(f"prune has {len(given)} numbers, expected at most {order}, one per order: {shown}")
    if given[0] != 0:
        raise RecipeError(f"prune must begin with 0, since {unit}s are not left out: {shown}")
    if given != sorted(given):
        raise RecipeError(f"prune must not fall from one order to the next: {shown}")
    return given + [given[-1]] * (order - len(given))


def _check_output(output: str | os.PathLike[str], force: bool) -> Path:
    path = local_output(output).expanduser()
    if path.suffix != SUFFIX:
        raise OutputError(f"the output is {path}, expected a model with the suffix {SUFFIX}")
    return prepare_output(path, force)


class _Vocabulary:
    """Gives words numbers, in the order of their first use; four numbers are reserved (`kernel.PAD` to
    `kernel.UNKNOWN`)."""

    def __init__(self) -> None:
        self.words = [b"", *SPECIAL]
        self.number_of: dict[int, int] = {int(kernel.LINE_END): kernel.END}
        self.left_out = np.array([_hash(word) for word in SPECIAL], np.uint64)

    def numbers(self, texts: Any) -> np.ndarray:
        """Return the numbers of the words of texts (large_string), END after each line."""
        data, offsets = text_buffers(texts)
        space = int(offsets[-1] - offsets[0]) + 2 * len(texts) + 1
        hashes, starts, ends = np.empty(space, np.uint64), np.empty(space, np.int64), np.empty(space, np.int64)
        count = kernel.find_words(data, offsets, self.left_out, hashes, starts, ends)
        different, first, inverse = np.unique(hashes[:count], return_index=True, return_inverse=True)
        numbers = np.empty(len(different), np.int32)
        for k in np.argsort(first).tolist():
            key = int(different[k])
            if key not in self.number_of:
                self.number_of[key] = len(self.words)
                self.words.append(data[starts[first[k]] : ends[first[k]]].tobytes())
            numbers[k] = self.number_of[key]
        return numbers[inverse]


class _Bytes:
    """Gives bytes numbers, as `_Vocabulary` gives them to words."""

    def __init__(self) -> None:
        self.words = [b"", *SPECIAL, *BYTE_WORDS]

    def numbers(self, texts: Any) -> np.ndarray:
        """Return the numbers of the bytes of texts (large_string), END after each line."""
        data, offsets = text_buffers(texts)
        numbers = np.empty(int(offsets[-1] - offsets[0]) + len(texts), np.int32)
        return numbers[: kernel.number_bytes(data, offsets, numbers)]


def _hash(word: bytes) -> int:
    data = np.frombuffer(word, np.uint8)
    return int(hash_span(data, 0, len(data)))


class _Ngrams:
    """The n-grams of one order in files, sorted by suffixes: int32 keys, and values of 8 bytes each."""

    def __init__(self, folder: Path, order: int, values: int, dtype: type) -> None:
        self.paths = folder / f"{order}.ngrams", folder / f"{order}.counts"
        self.shapes = order, values
        self.dtype, self.rows = dtype, 0

    def append(self, keys: np.ndarray, values: np.ndarray) -> None:
        for path, array in zip(self.paths, (keys, values), strict=True):
            with path.open("ab") as file:
                write_array(file, array)
        self.rows += len(keys)

    def arrays(self) -> Rows:
        """Return keys and values, memory-mapped."""
        if not self.rows:
            return np.empty((0, self.shapes[0]), np.int32), np.empty((0, self.shapes[1]), self.dtype)
        keys, values = (
            np.memmap(path, dtype, "r+", shape=(self.rows, width))
            for path, dtype, width in zip(self.paths, (np.int32, self.dtype), self.shapes, strict=True)
        )
        return np.asarray(keys), np.asarray(values)

    def batches(self) -> Iterator[Rows]:
        keys, values = self.arrays()
        for first in range(0, self.rows, BATCH_ROWS):
            yield keys[first : first + BATCH_ROWS], values[first : first + BATCH_ROWS]

    def remove(self) -> None:
        for path in self.paths:
            path.unlink(missing_ok=True)


class _Training:
    """The steps of a training, in order: `read`, `count`, `discount`, `write`."""

    def __init__(self, folder: Path, unit: str, order: int, limits: Sequence[int]) -> None:
        self.folder, self.unit, self.order, self.limits = folder, unit, order, limits
        self.never = (kernel.BEGIN, kernel.UNKNOWN) if unit == BYTE else (kernel.BEGIN,)
        self.vocabulary: _Bytes | _Vocabulary = _Bytes() if unit == BYTE else _Vocabulary()
        self.documents = self.sentences = self.words = self.rejected = 0
        self.kept, self.pruned = [0] * order, [0] * order
        self.discounts: list[tuple[float, float, float]] = []
        self.fallback: list[int] = []

    def read(self, entries: list[AnyInput]) -> None:
        """Sort the n-grams of the highest order by suffixes."""
        self.sorter = Sorter(self.folder, "read", self.order, 1)
        texts = InputTexts(entries, BATCH_BYTES)
        with watching("reading", len(texts.slices), texts.count, "slice"):
            for _, table in texts.tables():
                words = self.vocabulary.numbers(as_one_array(table.column(TEXT)))
                sentences = int(np.count_nonzero(words == kernel.END))
                self.sentences += sentences
                self.words += len(words) - sentences
                rows = np.empty((len(words), self.order), np.int32)
                kernel.make_rows(words, rows)
                self.sorter.add(rows, np.ones((len(words), 1), np.int64))
        self.documents, self.rejected = texts.texts, texts.rejected
        if not self.words:
            raise InputError(f"the training texts have no {self.unit}s. Check the paths and --text-column")

    def count(self) -> None:
        """Count the n-grams of all orders, and how many n-grams have each count up to 4."""
        self.counts = [_Ngrams(self.folder, n + 1, 2, np.int64) for n in range(self.order)]
        of_counts = np.zeros((self.order, 5), np.int64)
        last = np.zeros(self.order, np.int32)
        raw, left = np.zeros(self.order, np.int64), np.zeros(self.order, np.int64)
        keys = np.empty((self.order, BATCH_ROWS, self.order), np.int32)
        values = np.empty((self.order, BATCH_ROWS, 2), np.int64)
        end = np.zeros((1, self.order), np.int32), np.zeros((1, 1), np.int64)
        for rows, counts in each(_followed(self.sorter.merged(), end), "counting n-grams", "batch"):
            sizes = np.zeros(self.order, np.int64)
            kernel.count_orders(rows, counts[:, 0].copy(), last, raw, left, keys, values, sizes)
            for n, size in enumerate(sizes.tolist()):
                self.counts[n].append(np.ascontiguousarray(keys[n, :size, : n + 1]), values[n, :size])
                of_counts[n] += np.bincount(np.minimum(values[n, :size, 0], 5), minlength=6)[:5]
                is_pruned = values[n, :size, 1] <= self.limits[n]
                self.pruned[n] += int(np.count_nonzero(is_pruned))
                self.kept[n] += int(np.count_nonzero(~is_pruned))
        for n, numbers in enumerate(of_counts.tolist()):
            discounts = discounts_of(numbers)
            self.discounts.append(discounts or FALLBACK)
            if discounts is None:
                self.fallback.append(n + 1)
        for n, kept in enumerate(self.kept):
            if not kept:
                least = f" that occur more than {counted(self.limits[n], 'time')}" if self.limits[n] else ""
                raise InputError(
                    f"the training texts have no n-grams of {n + 1} {self.unit}s{least}. Give a lower order"
                )

    def discount(self) -> None:
        """Compute the discounted probabilities and the back-off weights, from n-grams sorted by contexts."""
        self.back_off = np.zeros(len(self.vocabulary.words))
        self.sorters = [Sorter(self.folder, f"{n + 1}.suffixes", n + 1, 3) if n else None for n in range(self.order)]
        for sorter in self.sorters[1:]:
            assert sorter
            sorter.release()
        for n in range(1, self.order):
            by_context = Sorter(self.folder, f"{n + 1}.contexts", n + 1, 2)
            for keys, values in self.counts[n].batches():
                by_context.add(np.roll(keys, -1, axis=1), values)
            self.counts[n].remove()
            mine, shorter = self.sorters[n], self.sorters[n - 1]
            assert mine
            mine.grow()
            if shorter:
                shorter.grow()
            label = f"discounting {n + 1}-grams"
            for keys, values in each(whole_contexts(by_context.merged()), label, "batch"):
                self._discount(n, keys, values, mine, shorter)
            if shorter:
                shorter.release()
            mine.release()

    def _discount(self, n: int, keys: np.ndarray, values: np.ndarray, mine: Sorter, shorter: Sorter | None) -> None:
        """Add the n-grams of complete contexts to the sorters. The values of an n-gram are (probability without shorter
        n-grams, weight of the shorter n-gram, 0); those of a context are (0, 0, back-off weight)."""
        adjusted, raw = values.T
        starts = _starts(keys[:, :-1])
        sizes = np.diff(np.append(starts, len(keys)))
        is_kept = raw > self.limits[n]
        taken = np.array([0.0, *self.discounts[n]])[np.minimum(adjusted, 3)]
        taken[~is_kept] = adjusted[~is_kept]
        total = np.add.reduceat(adjusted, starts).astype(np.float64)
        weight = np.add.reduceat(taken, starts) / total
        probability = (adjusted - taken) / np.repeat(total, sizes)
        bits = np.stack([probability, np.repeat(weight, sizes), np.zeros(len(keys))], axis=1).view(np.int64)
        mine.add(np.roll(keys, 1, axis=1)[is_kept], bits[is_kept])
        is_context = np.logical_or.reduceat(is_kept, starts)
        contexts, weight = keys[starts[is_context], :-1], weight[is_context]
        if shorter is None:
            self.back_off[contexts[:, 0]] = weight
        else:
            zeros = np.zeros(len(weight))
            shorter.add(contexts, np.stack([zeros, zeros, weight], axis=1).view(np.int64))

    def write(self, path: Path) -> None:
        """Write the ARPA file."""
        with path.open("wb") as file:
            words = len(self.vocabulary.words) - 1
            counts = [words, *self.kept[1:]]
            file.write(b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % (n, size) for n, size in enumerate(counts, 1)))
            lower = self._write_words(file)
            for n in range(1, self.order):
                lower = self._write_ngrams(file, n, lower)
            file.write(b"\n\\end\\\n")

    def _write_words(self, file: Any) -> _Ngrams:
        """Write the words, and return their probabilities."""
        keys, values = self.counts[0].arrays()
        adjusted = np.zeros(len(self.vocabulary.words), np.int64)
        adjusted[keys[:, 0]] = values[:, 0]
        taken = np.array([0.0, *self.discounts[0]])[np.minimum(adjusted, 3)]
        total = float(adjusted.sum())
        choices = len(adjusted) - 1 - len(self.never)  # without padding
        probability = (adjusted - taken) / total + taken.sum() / total / choices
        numbers = np.arange(1, len(adjusted), dtype=np.int32).reshape(-1, 1)
        logarithms = np.log10(probability[1:])
        self._write_section(file, 0, numbers, logarithms, self.back_off[1:])
        self.counts[0].remove()
        lower = _Ngrams(self.folder / "", 1, 1, np.float64)
        lower.append(numbers, probability[1:])
        return lower

    def _write_ngrams(self, file: Any, n: int, lower: _Ngrams) -> _Ngrams:
        """Write the n-grams of an order, and return their probabilities. `lower`: the n-grams with one word less."""
        sorter = self.sorters[n]
        assert sorter
        lower_keys, lower_values = lower.arrays()
        position = 0
        result = _Ngrams(self.folder, n + 1, 1, np.float64)
        file.write(b"\n\\%d-grams:\n" % (n + 1))
        for keys, values in each(sorter.merged(), f"writing {n + 1}-grams", "batch"):
            discounted, weight, back_off = values.view(np.float64).T
            shorter = np.empty(len(keys))
            position = kernel.find_lower(keys, position, lower_keys, lower_values[:, 0], shorter)
            assert position >= 0, "an n-gram without its suffix"
            probability = discounted + weight * shorter
            self._write_lines(file, n, keys, np.log10(probability), back_off)
            if n < self.order - 1:
                result.append(keys, probability)
        lower.remove()
        return result

    def _write_section(self, file: Any, n: int, keys: np.ndarray, logarithms: np.ndarray, back_off: np.ndarray) -> None:
        file.write(b"\n\\%d-grams:\n" % (n + 1))
        self._write_lines(file, n, keys, logarithms, back_off)

    def _write_lines(self, file: Any, n: int, keys: np.ndarray, logarithms: np.ndarray, back_off: np.ndarray) -> None:
        words = self.vocabulary.words
        lines = []
        weights = np.log10(back_off, out=np.zeros(len(back_off)), where=back_off > 0)
        for row, number, weight in zip(keys.tolist(), logarithms.tolist(), weights.tolist(), strict=True):
            text = b" ".join([words[k] for k in reversed(row)])
            shown = NEVER if n == 0 and row[0] in self.never else b"%.7f" % number
            lines.append(
                b"%b\t%b\n" % (shown, text) if n == self.order - 1 else b"%b\t%b\t%.7f\n" % (shown, text, weight)
            )
        file.write(b"".join(lines))


def _followed(batches: Iterator[Rows], last: Rows) -> Iterator[Rows]:
    yield from batches
    yield last


def _starts(contexts: np.ndarray) -> np.ndarray:
    """Return the first row of each group of equal rows."""
    is_first = np.ones(len(contexts), bool)
    is_first[1:] = (contexts[1:] != contexts[:-1]).any(axis=1)
    return np.flatnonzero(is_first)


def whole_contexts(batches: Iterator[Rows]) -> Iterator[Rows]:
    """Yield batches of complete contexts: rows whose keys are equal except the last key are in one batch."""
    pending: list[Rows] = []
    for keys, values in batches:
        starts = _starts(keys[:, :-1])
        same = bool(pending) and (pending[-1][0][-1, :-1] == keys[0, :-1]).all()
        if same and len(starts) == 1:
            pending.append((keys, values))
            continue
        first = int(starts[1]) if same else 0  # rows that belong to the pending context
        pending.append((keys[:first], values[:first]))
        yield from _joined(pending)
        pending = [(keys[starts[-1] :], values[starts[-1] :])]
        yield from _joined([(keys[first : starts[-1]], values[first : starts[-1]])])
    yield from _joined(pending)


def _joined(parts: list[Rows]) -> Iterator[Rows]:
    keys, values = (np.concatenate([part[k] for part in parts]) if parts else np.empty(0) for k in range(2))
    if len(keys):
        yield keys, values
