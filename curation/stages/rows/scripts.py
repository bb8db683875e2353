# SPDX-License-Identifier: Apache-2.0
"""The main script of each text, and the shares of scripts among its letters, on the CPU with either engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import text_buffers
from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import nearest
from curation.kernels.scripts import (
    CODES,
    JOINED,
    MAIN,
    NO_SCRIPTS,
    letter_counts,
    letters_of,
    main_scripts,
)
from curation.kernels.word_breaks import SCRIPTS, allocate_span, count_listed
from curation.kernels.word_lists import load_word_lists
from curation.stages.words import measure_words

SCRIPT = "script"
SCRIPT_CODES = MAIN  # all values of the column
SUFFIX = "_share"
COUNT = "script/"  # prefix of a code in the details of a stage
CODES_TAKEN = (*CODES[NO_SCRIPTS:], *JOINED)
ONE_SCRIPT = {"Hans": "Hani", "Hant": "Hani"}  # letters do not tell simplified from traditional
# Scripts without a list of words: all except the scripts of the lists, and except Latin, whose long words are addresses
# and code.
UNLISTED = tuple(sorted({*MAIN} - {"Hani", "Jpan", "Khmr", "Laoo", "Latn", "Mymr", "Thai"}))
# A text with more characters per word, on average, is not divided into words. In the Universal Declaration of Human
# Rights, languages with spaces have 15 or fewer, languages in scripts without spaces 22 or more.
MIN_PER_WORD = 16
# Two bounds tell the listed languages (Thai, Lao, Khmer, Burmese) from other languages in the same scripts: the mean
# characters per word, and the share of letters in listed words. In 300 characters of the Declaration, the share is 95 %
# or more for listed languages, less than half for Shan and Mon.
MIN_WORD, MIN_LISTED = 2.5, 0.7
MIN_LETTERS, READ_CHARACTERS = 20, 200
OF_WORDS = ("words", "word_characters", "characters", "space_characters", "unspaced_characters")
UNLISTED_COUNT = "unlisted/"  # prefix of a code in the details of a stage
BLOCK_ROWS = 1 << 12  # texts per block; their counts take 2.9 MB


def check_scripts(codes: Sequence[str]) -> None:
    """Raise ValueError for a code that is no script of letters, or that is listed twice."""
    for number, code in enumerate(codes):
        if code in ONE_SCRIPT:
            raise ValueError(f"script_shares: letters do not tell Hans from Hant. Give {ONE_SCRIPT[code]}, not {code}")
        if code not in CODES_TAKEN:
            hint = nearest(code, CODES_TAKEN)
            raise ValueError(f"script_shares takes codes of ISO 15924, such as Latn or Cyrl, not {code!r}{hint}")
        if code in codes[:number]:
            raise ValueError(f"script_shares has {code} twice. List it once")


def columns_of(main: bool, codes: Sequence[str]) -> dict[str, str]:
    """Return the columns of `script_columns`: name -> Arrow type."""
    return ({SCRIPT: "large_string"} if main else {}) | dict.fromkeys((f"{code}{SUFFIX}" for code in codes), "double")


def script_columns(engine: Engine, frame: Frame, main: bool, codes: Sequence[str]) -> dict[str, Any]:
    """Return new columns. `script` has the main script of each text, null without letters. A column per code of `codes`
    has the share of the letters that belong to this script, float64; 0 without letters."""
    names, shares = [np.zeros(0, np.int16)], {code: [np.zeros(0)] for code in codes}
    for counts in _counts(engine.to_arrow(frame[[TEXT]]).column(TEXT)):
        letters = np.maximum(counts.sum(axis=1), 1)
        for code in codes:
            shares[code].append(letters_of(counts, code) / letters)
        if main:
            names.append(main_scripts(counts))
    columns: dict[str, Any] = {f"{code}{SUFFIX}": np.concatenate(parts) for code, parts in shares.items()}
    if main:
        columns[SCRIPT] = _named(np.concatenate(names))
    return columns


def counts_of(scripts: pa.Array) -> dict[str, int]:
    """Return the number of texts of each main script, for the details of a stage; `none` for those without letters."""
    found = scripts.value_counts().to_pylist()
    return {f"{COUNT}{entry['values'] or 'none'}": entry["counts"] for entry in found}


def count_unlisted(engine: Engine, frame: Frame, measures: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return, for the details of a stage, the number of texts per main script that stay undivided because the lists do
    not have their words. Only texts with long runs of characters, or with long words of listed scripts, are read.

    measures   the measures OF_WORDS, of words divided by the lists
    """
    words, letters, characters, spaces, unspaced = (measures[name] for name in OF_WORDS)
    of_listed_scripts = 2 * unspaced > characters
    may_be = np.where(of_listed_scripts, letters > MIN_WORD * words, characters > MIN_PER_WORD * (spaces + 1))
    if not may_be.any():
        return {}
    few = engine.filter_rows(frame, may_be)[[TEXT]]
    texts, lists = engine.to_arrow(few).column(TEXT), of_listed_scripts[may_be]
    # Words are those of `scripts`, because `table` makes a word of each mark, such as the one between Tibetan
    # syllables.
    words = measure_words(engine, few[TEXT], ("words",), SCRIPTS)["words"]
    rest = ~lists & (characters[may_be] > MIN_PER_WORD * words)
    rest[lists] = ~_has_listed_words(texts.filter(pa.array(lists)))
    numbers = [main_scripts(counts) for counts in _counts(texts.filter(pa.array(rest)))]
    scripts = _named(np.concatenate([np.zeros(0, np.int16), *numbers]))
    is_unlisted = pc.or_(pa.array(lists[rest]), pc.is_in(scripts, pa.array(UNLISTED)))
    found = scripts.filter(is_unlisted).value_counts().to_pylist()
    return {f"{UNLISTED_COUNT}{each['values']}": each["counts"] for each in found}


def _has_listed_words(texts: pa.ChunkedArray) -> np.ndarray:
    """Return for each text whether most Thai, Lao, Khmer and Burmese letters at its start are in listed words."""
    found = [np.zeros(0, bool)]
    for chunk in texts.chunks:
        counts = np.zeros((len(chunk), 2), np.int64)
        lists, scratch = tuple(load_word_lists()), allocate_span()
        count_listed(*text_buffers(chunk.fill_null("")), READ_CHARACTERS, lists, scratch, counts)
        found.append((counts[:, 0] < MIN_LETTERS) | (counts[:, 1] >= MIN_LISTED * counts[:, 0]))
    return np.concatenate(found)


def _named(numbers: np.ndarray) -> pa.Array:
    """Return the codes of main scripts, such as `Latn`, for their numbers; null for a number below 0."""
    return pa.array(MAIN, pa.large_string()).take(pa.array(numbers, mask=numbers < 0))


def _counts(texts: pa.ChunkedArray) -> Iterator[np.ndarray]:
    """Yield the number of letters of each text by script, block by block."""
    for chunk in texts.chunks:
        data, offsets = text_buffers(chunk.fill_null(""))
        for start in range(0, len(chunk), BLOCK_ROWS):
            yield letter_counts(data, offsets[start : start + BLOCK_ROWS + 1])
